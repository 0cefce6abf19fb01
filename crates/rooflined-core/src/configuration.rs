//! Which configuration file hints name: the one in use, wherever it lies.

use std::path::Path;
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

/// What turns control on: a file of one's own beside the one in use, which no package touches.
#[must_use]
pub fn how_to_enable_control() -> String {
    let file = Path::new(file_in_use()).with_file_name("conf.d").join("control.toml");
    format!(
        "set enabled = true under [control] in {} and reload the daemon (systemctl reload rooflined)",
        file.display()
    )
}

/// What makes predictions about the GPU.
#[must_use]
pub fn gpu_as_accelerator() -> String {
    format!("accelerator = \"gpu\" below [daemon] in {}", file_in_use())
}

#[cfg(test)]
mod tests {
    use super::{gpu_as_accelerator, how_to_enable_control};

    #[test]
    fn the_file_of_the_accelerator_is_named() {
        assert_eq!(
            gpu_as_accelerator(),
            "accelerator = \"gpu\" below [daemon] in /etc/rooflined/rooflined.toml"
        );
    }

    #[test]
    fn control_is_enabled_in_a_file_of_ones_own() {
        let said = how_to_enable_control();
        assert!(
            said.contains(
                "enabled = true under [control] in /etc/rooflined/conf.d/control.toml and reload the daemon"
            ),
            "{said}"
        );
    }
}
