//! File systems that cannot be seen: nobody mounted them, or a container or sandbox hides them.
//!
//! Then nothing below them is known to be missing, and one reason stands for all that is read there.

use super::SysRoot;
use rooflined_core::board::Reading;

#[derive(Debug, PartialEq)]
struct Mount {
    dir: &'static str,
    /// What a reason says that rests on it.
    reason: &'static str,
    /// What cannot be known without it, where that is worth a note.
    unknown: Option<&'static str>,
}

/// /proc/device-tree is a link into /sys.
const MOUNTS: [Mount; 3] = [
    Mount { dir: "/proc", reason: "/proc/", unknown: Some("memory, load and the processor's name") },
    Mount {
        dir: "/sys",
        reason: "/sys/",
        unknown: Some("clocks, temperatures, power and limits of control groups"),
    },
    Mount { dir: "/sys/kernel/debug", reason: "no /sys/kernel/debug/", unknown: None },
];

/// Those of a root that are hidden.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hidden(Vec<&'static Mount>);

impl Hidden {
    pub fn under(root: &SysRoot) -> Self {
        Self(MOUNTS.iter().filter(|mount| is_hidden(root, mount.dir)).collect())
    }

    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        let note = |mount: &&Mount| Some(format!("{}: {} are not known", mount.words(), mount.unknown?));
        self.0.iter().filter_map(note)
    }

    /// A reading that is absent because its files are hidden says so.
    pub fn explain<T>(&self, reading: Reading<T>) -> Reading<T> {
        let hidden = |reason: &str| self.0.iter().find(|mount| reason.contains(mount.reason));
        match reading {
            Reading::Absent { reason } => {
                Reading::Absent { reason: hidden(&reason).map_or(reason, |mount| mount.words()) }
            }
            other => other,
        }
    }
}

impl Mount {
    fn words(&self) -> String {
        format!("{} is not mounted here, or hidden", self.dir)
    }
}

/// A directory that may not be listed is there.
fn is_hidden(root: &SysRoot, mount: &str) -> bool {
    match std::fs::read_dir(root.path(mount)) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() != std::io::ErrorKind::PermissionDenied,
    }
}
