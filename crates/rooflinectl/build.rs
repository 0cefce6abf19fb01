//! Packs the files of the dashboard's page and lists them for `dashboard/pages.rs`, so that one that is added there is compiled in.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

/// What browsers load; licences beside it are not.
const KINDS: [&str; 5] = ["html", "css", "js", "svg", "json"];

fn main() -> io::Result<()> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let root = manifest.join("src/dashboard/page");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut entries = String::new();
    for (index, file) in files.iter().enumerate() {
        let Some(name) = file.strip_prefix(&root).ok().and_then(Path::to_str) else { continue };
        let packed = out.join(format!("page-{index}.gz"));
        // Without a name or a time, so that the same files give the same bytes.
        let mut encoder = GzEncoder::new(fs::File::create(&packed)?, Compression::best());
        encoder.write_all(&fs::read(file)?)?;
        encoder.finish()?;
        entries += &format!("({name:?}, include_bytes!({:?})),", packed.to_string_lossy());
    }
    fs::write(out.join("page.rs"), format!("&[{entries}]"))
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().and_then(|kind| kind.to_str()).is_some_and(|kind| KINDS.contains(&kind)) {
            files.push(path);
        }
    }
    Ok(())
}
