//! File systems that cannot be seen: nobody mounted them, or a container or sandbox hides them.
//!
//! Then nothing below them is known to be missing, and one reason stands for all that is read there.

use std::io::ErrorKind;

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

/// Directories that sources list: where one may not be listed, nothing is known to be missing in it.
const LISTED: [&str; 7] = [
    "/sys/class/thermal",
    "/sys/class/hwmon",
    "/sys/class/powercap",
    "/sys/class/devfreq",
    "/sys/bus/pci/devices",
    "/sys/devices/system/cpu/cpufreq",
    "/proc/device-tree",
];

/// What container engines put an empty directory over, by the directory that leads to it: Docker hides meters of energy and
/// Intel's counters of throttling, which tell what a neighbour computes. With what a reason says that rests on it.
const MASKED: [(&str, &str); 2] = [
    ("/sys/class/powercap", "/sys/class/powercap"),
    ("/sys/devices/system/cpu/cpu0/thermal_throttle", "cpu*/thermal_throttle"),
];

/// Those of a root that are hidden, the directories that may not be listed, and those that are masked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hidden {
    mounts: Vec<&'static Mount>,
    closed: Vec<&'static str>,
    masked: Vec<(&'static str, &'static str)>,
}

impl Hidden {
    pub fn under(root: &SysRoot) -> Self {
        let is_closed = |dir: &&str| {
            std::fs::read_dir(root.path(dir)).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
        };
        Self {
            mounts: MOUNTS.iter().filter(|mount| is_hidden(root, mount.dir)).collect(),
            closed: LISTED.into_iter().filter(is_closed).collect(),
            masked: MASKED.into_iter().filter(|(dir, _)| is_masked(root, dir)).collect(),
        }
    }

    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        let note = |mount: &&Mount| Some(format!("{}: {} are not known", mount.words(), mount.unknown?));
        let closed = (!self.closed.is_empty()).then(|| {
            format!("{} may not be listed by this user: run the daemon as root", self.closed.join(", "))
        });
        self.mounts.iter().filter_map(note).chain(closed)
    }

    /// A reading that is absent because its files are hidden, or their directory is closed, says so.
    pub fn explain<T>(&self, reading: Reading<T>) -> Reading<T> {
        let Reading::Absent { reason } = reading else { return reading };
        let mount = self.mounts.iter().find(|mount| reason.contains(mount.reason));
        let closed = || self.closed.iter().find(|dir| reason.contains(**dir));
        let masked = || self.masked.iter().find(|(_, told)| reason.contains(told));
        let words = mount
            .map(|mount| mount.words())
            .or_else(|| Some(format!("{} may not be listed: permission denied", closed()?)))
            .or_else(|| {
                Some(format!("a container hides what is in {}: run the daemon outside of it", masked()?.0))
            });
        Reading::Absent { reason: words.unwrap_or(reason) }
    }
}

impl Mount {
    fn words(&self) -> String {
        format!("{} is not mounted here, or hidden", self.dir)
    }
}

/// Whether the links of a class all lead to nothing, or the directory of a device is there and empty. A class may be empty.
fn is_masked(root: &SysRoot, dir: &str) -> bool {
    if std::fs::read_dir(root.path(dir)).is_err() {
        return false;
    }
    let mut leads = root.names(dir).into_iter().map(|name| root.resolve(&format!("{dir}/{name}"))).peekable();
    if leads.peek().is_none() {
        return !dir.starts_with("/sys/class");
    }
    leads.all(|path| !root.path(&path).exists())
}

/// A directory that may not be listed is there.
fn is_hidden(root: &SysRoot, mount: &str) -> bool {
    match std::fs::read_dir(root.path(mount)) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() != ErrorKind::PermissionDenied,
    }
}
