//! Locks on the GPU's clock: through NVML on a machine, in a pseudo file of a captured or simulated tree.
//!
//! NVML takes a lock and does not report it. What was set is therefore kept in the state directory, for this boot:
//! the driver forgets it at the next.

use std::fs;
use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::enums::device::GpuLockedClocksSetting;
use serde::{Deserialize, Serialize};

use super::journal::replace;
use rooflined_core::board::{Difference, OrderFailure};
use rooflined_core::units::Hertz;
use rooflined_hw::{SysRoot, nvml::chosen};

/// The lock in a tree other than the machine itself: `lo,hi` in MHz, or empty.
const PSEUDO: &str = "/rooflined/nvml/0/locked_clocks_mhz";
/// What a difference calls the lock on a machine.
const NVML: &str = "NVML: locked GPU clocks";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Lock {
    /// The driver chooses.
    None,
    /// The driver stays between these.
    Between { min_mhz: u32, max_mhz: u32 },
}

impl Lock {
    pub fn between(min: Hertz, max: Hertz) -> Self {
        let mhz = |clock: Hertz| (clock.get() / 1e6).round() as u32;
        Self::Between { min_mhz: mhz(min), max_mhz: mhz(max) }
    }

    fn text(self) -> String {
        match self {
            Self::None => String::new(),
            Self::Between { min_mhz, max_mhz } => format!("{min_mhz},{max_mhz}"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text.trim().is_empty() {
            return Some(Self::None);
        }
        let (min, max) = text.split_once(',')?;
        Some(Self::Between { min_mhz: min.trim().parse().ok()?, max_mhz: max.trim().parse().ok()? })
    }
}

/// The lock that was set last, for as long as the machine has not rebooted.
#[derive(Debug, Serialize, Deserialize)]
struct LockRecord {
    boot_id: String,
    lock: Lock,
}

#[derive(Debug)]
pub(super) struct Clocks {
    root: SysRoot,
    kept: PathBuf,
    boot_id: String,
}

impl Clocks {
    pub fn new(root: &SysRoot, state_dir: &Path, boot_id: &str) -> Self {
        Self { root: root.clone(), kept: state_dir.join("locked_clocks.json"), boot_id: boot_id.to_owned() }
    }

    /// The lock in force, as far as it is known: NVML does not report it.
    pub fn lock(&self) -> Result<Lock, String> {
        if !self.root.is_host() {
            let text = self.root.read(PSEUDO).map_err(|error| error.to_string())?;
            return Lock::parse(&text)
                .ok_or_else(|| format!("{PSEUDO} holds {text:?}, expected LO,HI or nothing"));
        }
        // Without a note of this boot nobody here has locked anything.
        let kept =
            fs::read(&self.kept).ok().and_then(|bytes| serde_json::from_slice::<LockRecord>(&bytes).ok());
        Ok(kept.filter(|kept| kept.boot_id == self.boot_id).map_or(Lock::None, |kept| kept.lock))
    }

    /// Sets or releases the lock. The words say what the driver answered.
    pub fn set(&self, lock: Lock) -> Result<String, OrderFailure> {
        if !self.root.is_host() {
            let path = self.root.path(PSEUDO);
            // Written in place, as a file of sysfs is; a tree without the file has no such GPU.
            return if path.is_file() {
                let written = fs::write(&path, format!("{}\n", lock.text()));
                written
                    .map(|()| "the lock was written".into())
                    .map_err(|error| format!("{PSEUDO}: {error}").into())
            } else {
                Err(format!("there is no {PSEUDO}: this tree has no GPU whose clock can be locked").into())
            };
        }
        let failed = |error| {
            let message = format!("NVML refused ({error})");
            OrderFailure::with_hint(message, "check that the driver is loaded and that nvidia-smi -lgc works")
        };
        let nvml = Nvml::init().map_err(failed)?;
        let mut device = nvml.device_by_index(chosen(&nvml)).map_err(failed)?;
        // The note first: should the driver have the lock without it, nobody would know of it.
        let before = self.lock()?;
        self.keep(lock)?;
        let answered = match lock {
            Lock::None => device.reset_gpu_locked_clocks(),
            Lock::Between { min_mhz, max_mhz } => {
                device.set_gpu_locked_clocks(GpuLockedClocksSetting::Numeric {
                    min_clock_mhz: min_mhz,
                    max_clock_mhz: max_mhz,
                })
            }
        };
        if let Err(error) = answered {
            self.keep(before)?;
            return Err(failed(error));
        }
        Ok("the driver accepted the lock but does not report it; the clock that it reports is not above it"
            .into())
    }

    fn keep(&self, lock: Lock) -> Result<(), String> {
        let kept = LockRecord { boot_id: self.boot_id.clone(), lock };
        let bytes = serde_json::to_vec(&kept).map_err(|error| error.to_string())?;
        replace(&self.kept, &bytes, 0o600).map_err(|error| format!("{}: {error}", self.kept.display()))
    }

    /// Where the lock differs from the one `wanted`.
    pub fn judge(&self, wanted: Lock, found: &Result<Lock, String>) -> Result<Vec<Difference>, String> {
        let found = found.as_ref().map_err(Clone::clone)?;
        let path = if self.root.is_host() { NVML } else { PSEUDO }.to_owned();
        if *found != wanted {
            return Ok(vec![Difference { path, expected: wanted.text(), found: found.text() }]);
        }
        let above = match wanted {
            Lock::Between { max_mhz, .. } if self.root.is_host() => {
                sm_clock_mhz().filter(|mhz| *mhz > max_mhz + max_mhz / 50)
            }
            _ => None,
        };
        let difference = above.map(|mhz| Difference {
            path,
            expected: wanted.text(),
            found: format!("SM clock {mhz} MHz"),
        });
        Ok(difference.into_iter().collect())
    }
}

/// The SM clock now; `None` where the driver does not tell.
fn sm_clock_mhz() -> Option<u32> {
    let nvml = Nvml::init().ok()?;
    nvml.device_by_index(chosen(&nvml)).ok()?.clock_info(Clock::SM).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_reads_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rooflined/nvml/0/locked_clocks_mhz");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        let clocks = Clocks::new(&SysRoot::new(dir.path()), dir.path(), "boot");
        let lock = Lock::between(Hertz(0.0), Hertz(2.1e9));
        assert_eq!(clocks.lock(), Ok(Lock::None));
        clocks.set(lock).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "0,2100\n");
        assert_eq!(clocks.lock(), Ok(lock));
        assert_eq!(clocks.judge(lock, &clocks.lock()), Ok(Vec::new()));
        assert_eq!(clocks.judge(Lock::None, &clocks.lock()).unwrap()[0].found, "0,2100");
        fs::write(&file, "lots").unwrap();
        assert!(clocks.judge(Lock::None, &clocks.lock()).is_err());
    }

    #[test]
    fn a_tree_without_a_gpu_takes_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let clocks = Clocks::new(&SysRoot::new(dir.path()), dir.path(), "boot");
        assert!(clocks.set(Lock::None).unwrap_err().message.contains("no GPU"));
        assert!(clocks.lock().is_err());
    }
}
