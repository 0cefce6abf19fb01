//! What the GPU does, passed from the mock driver of one process to the mock NVML of another.
//!
//! A file beside the scenario's holds one record of twelve 64-bit words, written whole. The first and the last word
//! are the same number, and another one each time: a reader that sees two different ones reads again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

/// The GPU as its last launch left it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Activity {
    /// When the work is done, in nanoseconds of `CLOCK_BOOTTIME`.
    pub busy_until_ns: u64,
    /// Clock of the SMs.
    pub sm_hz: f64,
    /// How much of what the SMs could do was done, 0 to 1.
    pub compute: f64,
    /// Traffic to DRAM while the launch ran.
    pub dram_bytes_per_s: f64,
    /// The clock is lower than it would be.
    pub throttled: bool,
    /// Bytes of memory that are allocated.
    pub allocated: u64,
    /// What there is besides, where a scenario has a host: then the record holds until the next one.
    pub timed: Option<Timed>,
}

/// The GPU at a moment of its own time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timed {
    /// The process whose driver it is.
    pub pid: u32,
    pub busy: bool,
    /// How much of the last sixth of a second it was busy, 0 to 1.
    pub load: f64,
    /// The scenario's other processes that are there, by bit.
    pub tenants: u64,
}

/// Nanoseconds since the machine started, its sleep included.
pub fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Where the record of a scenario lies.
pub fn path(scenario: &Path) -> PathBuf {
    scenario.with_extension("activity")
}

const WORDS: usize = 12;

impl Activity {
    fn words(&self, sequence: u64) -> [u64; WORDS] {
        let timed = self.timed;
        [
            sequence,
            self.busy_until_ns,
            self.sm_hz.to_bits(),
            self.compute.to_bits(),
            self.dram_bytes_per_s.to_bits(),
            u64::from(self.throttled),
            self.allocated,
            timed.map_or(0, |it| u64::from(it.pid)),
            timed.map_or(0, |it| 1 + u64::from(it.busy)),
            timed.map_or(0, |it| it.load.to_bits()),
            timed.map_or(0, |it| it.tenants),
            sequence,
        ]
    }

    /// The last record of a scenario; `None` before the first, or where it cannot be read.
    pub fn read(scenario: &Path) -> Option<Self> {
        let file = File::open(path(scenario)).ok()?;
        for _ in 0..100 {
            let mut bytes = [0; WORDS * 8];
            file.read_exact_at(&mut bytes, 0).ok()?;
            let mut words = [0; WORDS];
            for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*chunk);
            }
            let [
                first,
                busy_until_ns,
                sm_hz,
                compute,
                dram,
                throttled,
                allocated,
                pid,
                timed,
                load,
                tenants,
                last,
            ] = words;
            if first == last {
                let timed = (timed > 0).then_some(Timed {
                    pid: pid as u32,
                    busy: timed == 2,
                    load: f64::from_bits(load),
                    tenants,
                });
                return Some(Self {
                    busy_until_ns,
                    sm_hz: f64::from_bits(sm_hz),
                    compute: f64::from_bits(compute),
                    dram_bytes_per_s: f64::from_bits(dram),
                    throttled: throttled != 0,
                    allocated,
                    timed,
                });
            }
        }
        None
    }
}

/// Writes a scenario's record.
pub struct Reporter {
    file: File,
    sequence: u64,
}

impl Reporter {
    /// Makes the file where it is missing.
    pub fn new(scenario: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path(scenario))?;
        // Two processes never start with the same number.
        Ok(Self { file, sequence: boottime_ns() })
    }

    /// Replaces the record.
    pub fn report(&mut self, activity: &Activity) -> io::Result<()> {
        self.sequence += 1;
        let mut bytes = [0; WORDS * 8];
        for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(activity.words(self.sequence)) {
            *chunk = word.to_le_bytes();
        }
        self.file.write_all_at(&bytes, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let scenario = dir.path().join("gpu.toml");
        assert_eq!(Activity::read(&scenario), None);
        let mut reporter = Reporter::new(&scenario).unwrap();
        assert_eq!(Activity::read(&scenario), None);
        for sm_hz in [1e6, 2e6] {
            let activity = Activity {
                busy_until_ns: boottime_ns(),
                sm_hz,
                compute: 0.5,
                dram_bytes_per_s: 3e9,
                throttled: true,
                allocated: 4096,
                timed: (sm_hz > 1e6).then_some(Timed { pid: 5, busy: true, load: 0.25, tenants: 3 }),
            };
            reporter.report(&activity).unwrap();
            assert_eq!(Activity::read(&scenario), Some(activity));
        }
    }
}
