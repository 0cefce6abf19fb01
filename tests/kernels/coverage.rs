//! That no shipped kernel is left out here.

use std::collections::BTreeSet;

use ptx::Module;

use crate::device::directory;
use crate::formats::FORMATS;
use crate::tiles::TILES;

/// Entries that the tests of this file's neighbours run.
fn tested(name: &str) -> bool {
    let gemv =
        FORMATS.iter().flat_map(|format| [1, 2, 4, 8].map(|batch| format!("gemv_{}_b{batch}", format.name)));
    let simple =
        ["stream_read", "stream_write", "stream_copy", "stream_triad", "l2_read", "empty", "spin", "fma_f32"];
    let mma = [
        "mma_f16_f32",
        "mma_f16_f16",
        "mma_bf16",
        "mma_tf32",
        "mma_i8",
        "mma_i4",
        "mma_f8",
        "mma_nvf4",
        "mma_mxf8",
    ];
    simple.contains(&name)
        || mma.contains(&name)
        || TILES.iter().any(|tile| tile.entry == name)
        || gemv.into_iter().any(|of| of == name)
}

#[test]
fn every_shipped_module_parses_and_every_entry_is_run() {
    let mut files = 0;
    let mut names = BTreeSet::new();
    for file in std::fs::read_dir(directory()).unwrap() {
        let path = file.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        let module = Module::parse(&std::fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        files += 1;
        assert!(module.version() >= (7, 0) && module.target().starts_with("sm_"), "{file}");
        assert!(module.entries().next().is_some(), "{file} has no entry");
        for entry in module.entries() {
            assert!(tested(entry.name()), "{file}: {} is in no test", entry.name());
            names.insert(entry.name().to_owned());
            let unknown: Vec<&str> = entry.unsupported().collect();
            assert!(unknown.is_empty(), "{file}: {}: {unknown:?}", entry.name());
        }
    }
    assert!(files > 0);
    println!("{files} modules, {} kernels, of which every one is run", names.len());
}
