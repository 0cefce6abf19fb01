//! Lists the files of the dashboard's page for `dashboard/pages.rs`, so that one that is added there is compiled in.

use std::io;
use std::path::{Path, PathBuf};
use std::{env, fs};

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
    let entries = files.iter().filter_map(|file| {
        let name = file.strip_prefix(&root).ok()?.to_str()?;
        Some(format!("({name:?}, include_bytes!({:?})),", file.to_str()?))
    });
    fs::write(out.join("page.rs"), format!("&[{}]", entries.collect::<String>()))
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
