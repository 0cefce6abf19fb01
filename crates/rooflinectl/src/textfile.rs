//! Files that other programs read at any moment: replaced as a whole, never seen half-written.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use super::failure::Failure;

/// Puts `text` in the place of `file`. What is written first lies beside it under a name that starts with a dot and does not end
/// as `file` does, so that a collector which takes every `*.prom` passes it over.
pub fn replace(file: &Path, text: &[u8]) -> Result<(), Failure> {
    write(file, text).map_err(|error| {
        let message = format!("{} cannot be written: {error}", file.display());
        Failure::failed(message, "name a file in a directory that you may write to")
    })
}

fn write(file: &Path, text: &[u8]) -> io::Result<()> {
    let name = file.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let new = file.with_file_name(format!(".{}.{}.new", name.display(), std::process::id()));
    let written = fs::File::create(&new)
        .and_then(|mut out| out.write_all(text).and_then(|()| out.sync_all()))
        .and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        // It may never have been made.
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.prom");
        fs::write(&file, "old").unwrap();
        replace(&file, b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        // A directory is not replaced, and what was written for it goes.
        fs::create_dir(dir.path().join("d")).unwrap();
        let error = replace(&dir.path().join("d"), b"new").unwrap_err();
        assert!(error.to_string().contains("d cannot be written"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let error = replace(&dir.path().join("absent/x.prom"), b"new").unwrap_err();
        assert!(error.to_string().contains("absent/x.prom cannot be written: No such file"), "{error}");
        assert!(replace(Path::new("/"), b"new").is_err());
    }
}
