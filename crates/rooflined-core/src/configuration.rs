//! Which configuration file hints name: the one in use, wherever it lies.

use std::sync::OnceLock;

/// That of an installed daemon.
pub const USUAL_FILE: &str = "/etc/rooflined/rooflined.toml";

static IN_USE: OnceLock<String> = OnceLock::new();

/// Says which file is in use, once in the life of a process and before anything is refused.
pub fn declare(file: String) {
    // A second one would be of the same process.
    let _ = IN_USE.set(file);
}

/// The file in use; the usual one where nobody said.
#[must_use]
pub fn file_in_use() -> &'static str {
    IN_USE.get().map_or(USUAL_FILE, String::as_str)
}
