//! The machine under a root: what it is ([`discover()`]) and how it is now ([`read_state`]).
//!
//! [`SysRoot`] is the prefix of /sys, /proc and /etc: `/` in production, a directory in tests and simulations. What
//! a machine lacks becomes [`Reading::Absent`] with the path that is not there. Nothing here forks.
//!
//! What changes is read by sources, one in each file of `sources`: where its files lie, how they are read, and which
//! fields of the state they are for.
//!
//! Files are of two kinds. Those of /proc are answered by the kernel itself and are read directly. Those behind a
//! driver (thermal zones, hwmon, powercap, cpufreq) may wait for a bus or a firmware, so they are read by
//! [`timed_reader`](self), in helper threads and with a time limit for the whole sample: a source that does not answer
//! is `Failed`, delays nothing else, and is left alone until it has answered.

mod answers;
mod ask;
pub mod bundle;
mod cgroup;
mod cpu;
mod devfreq;
mod discover;
mod emc;
mod file;
mod gpu_nodes;
mod hidden;
mod identity;
mod modes;
mod names;
pub mod nvml;
mod pci;
mod placement;
mod rail;
mod sampler;
mod source;
mod sources;
mod state;
mod throttle;
mod timed_reader;
mod total;

use std::path::{Component, Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

pub use cgroup::{CpuLimits, cpu_limits};
pub use cpu::count_cores;
pub use discover::{Discovered, discover};
pub use file::ReadError;
pub use gpu_nodes::{GpuNode, denied_nodes, gpu_nodes};
pub use nvml::Nvml;
pub use placement::{CoreSpeed, FarMemory, core_speed, far_memory, memory_nodes};
pub use sampler::{Sampler, read_state};

use rooflined_core::board::{Reading, parse};
use rooflined_core::units::Seconds;

/// Most entries of one directory that are looked at.
const MOST_ENTRIES: usize = 8192;

/// Where /sys, /proc and /etc are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysRoot {
    root: PathBuf,
}

impl SysRoot {
    /// The tree under `root`; `/` is this machine.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    #[must_use]
    pub fn host() -> Self {
        Self::new("/")
    }

    /// True for the machine that the program runs on, false for a captured or simulated tree.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where the file that is called `logical` (`/sys/…`) on the board lies here.
    #[must_use]
    pub fn path(&self, logical: &str) -> PathBuf {
        self.root.join(logical.trim_start_matches('/'))
    }

    /// What the symbolic links of `logical` lead to on the board. Links are followed inside the root: an absolute one
    /// starts there, and none leads out. A path that does not exist stands for itself.
    #[must_use]
    pub fn resolve(&self, logical: &str) -> String {
        const MOST_LINKS: u32 = 40;
        let mut links = 0;
        let mut resolved: Vec<String> = Vec::new();
        let names = |path: &Path| -> Vec<String> {
            let parts = path.components().filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                Component::ParentDir => Some("..".to_owned()),
                _ => None,
            });
            parts.collect()
        };
        let mut rest: Vec<String> = names(Path::new(logical)).into_iter().rev().collect();
        while let Some(name) = rest.pop() {
            if name == ".." {
                resolved.pop();
                continue;
            }
            resolved.push(name);
            let Ok(target) = std::fs::read_link(self.path(&resolved.join("/"))) else { continue };
            links += 1;
            if links > MOST_LINKS {
                break;
            }
            resolved.pop();
            if target.is_absolute() {
                resolved.clear();
            }
            rest.extend(names(&target).into_iter().rev());
        }
        format!("/{}", resolved.join("/"))
    }

    /// The text of a file that the kernel answers without asking a driver: at most 64 KiB of it, bytes that are no
    /// UTF-8 replaced. Never waits for a writer of a FIFO.
    ///
    /// # Errors
    /// The file is missing, not readable, or no plain file. The message names the path on the board.
    pub fn read(&self, logical: &str) -> Result<String, ReadError> {
        file::OpenFile::of_kernel(self, logical).read()
    }

    /// The same for /proc/cpuinfo, which is long on large machines: at most 256 KiB.
    fn read_long(&self, logical: &str) -> Result<String, ReadError> {
        file::OpenFile::of_kernel(self, logical).limited(256 << 10).read()
    }

    /// Names in a directory that start with `prefix` and go on with a number, in numerical order, with the number.
    /// Empty where there is no such directory.
    fn numbered(&self, dir: &str, prefix: &str) -> Vec<(u32, String)> {
        let Ok(entries) = std::fs::read_dir(self.path(dir)) else { return Vec::new() };
        let mut found: Vec<(u32, String)> = entries
            .take(MOST_ENTRIES)
            .filter_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                Some((name.strip_prefix(prefix)?.parse().ok()?, name))
            })
            .collect();
        found.sort_unstable();
        found
    }

    /// Names in a directory, sorted. Empty where there is no such directory.
    fn names(&self, dir: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(dir)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .take(MOST_ENTRIES)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names
    }
}

/// Time since boot, suspension included: the clock of every interval and age.
#[must_use]
pub fn boot_time() -> Seconds {
    let time = clock_gettime(ClockId::Boottime);
    Seconds(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// The logical CPUs online that this process may run on, in ascending order. A damaged or missing list is made up for by
/// /proc/stat.
#[must_use]
pub fn online_cpus(root: &SysRoot) -> Reading<Vec<u32>> {
    let limits = cgroup::Limits::discover(root);
    sources::online::listed(root.read(ONLINE), || root.read(STAT)).map(|online| limits.allowed(online))
}

const ONLINE: &str = "/sys/devices/system/cpu/online";
const STAT: &str = "/proc/stat";
/// Marks a tree whose board is simulated.
const SIMULATED: &str = "/rooflined/simulated";

/// Reads `parse`d text, or says that the text is not what was expected.
fn parsed<T, E: Into<Reading<T>>>(
    logical: &str,
    text: Result<impl AsRef<str>, E>,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Reading<T> {
    match text {
        Err(error) => error.into(),
        Ok(text) => parse(text.as_ref()).map_or_else(
            || Reading::failed(format!("{logical} holds {}, expected {expected}", excerpt(text.as_ref()))),
            Reading::Known,
        ),
    }
}

/// The first of several files that holds something, with its path; otherwise why the first holds nothing.
fn first_of<T>(root: &SysRoot, files: &[&str], parse: impl Fn(&str) -> Option<T>) -> Reading<(T, String)> {
    let mut reason = None;
    for file in files {
        match root.read(file) {
            Ok(text) => match parse(&text) {
                Some(value) => return Reading::Known((value, (*file).to_owned())),
                None => reason.get_or_insert_with(|| format!("{file} holds {}", excerpt(&text))),
            },
            Err(error) => reason.get_or_insert_with(|| error.to_string()),
        };
    }
    Reading::absent(reason.unwrap_or_default())
}

/// What a file holds, for a message: quoted, short, on one line.
fn excerpt(text: &str) -> String {
    if text.trim().is_empty() {
        return "nothing".into();
    }
    let label = parse::label(text).unwrap_or_default();
    let short: String = label.chars().take(40).collect();
    format!("{short:?}{}", if short.len() < text.trim_end().len() { "…" } else { "" })
}
