//! A user's own hardware: a directory of TOML files in the shape of `config/hardware`.

use std::path::Path;

use super::{Problem, in_file, read};
use rooflined_core::hardware::Hardware;

/// Reads one file.
///
/// # Errors
/// It cannot be read, or every mistake in it.
pub fn hardware_file(path: &Path) -> Result<Hardware, Vec<Problem>> {
    let text = read(path).map_err(|error| error.problems)?;
    Hardware::parse(&text).map_err(|error| in_file(path, error.problems))
}

/// Reads every `*.toml` of a directory in the order of their names. What is wrong with one file keeps no other out; a
/// directory that does not exist holds no files.
#[must_use]
pub fn hardware_dir(dir: &Path) -> (Vec<Hardware>, Vec<Problem>) {
    let (mut hardware, mut problems) = (Vec::new(), Vec::new());
    let problem =
        |path: &Path, message: String| Problem { file: path.to_owned(), line: None, key: None, message };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (hardware, problems),
        Err(error) => return (hardware, vec![problem(dir, format!("cannot be read: {error}"))]),
    };
    let mut files: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    files.retain(|path| {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        path.extension().is_some_and(|extension| extension == "toml") && !hidden
    });
    files.sort_unstable();
    for path in files {
        // Opening a pipe would wait for a writer.
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            problems.push(problem(&path, "is not a regular file".to_owned()));
            continue;
        }
        match hardware_file(&path) {
            Ok(entry) => hardware.push(entry),
            Err(wrong) => problems.extend(wrong),
        }
    }
    (hardware, problems)
}
