//! The machine as it is built ([`Board`]) and as it is right now ([`BoardState`]).
//!
//! Every value that a machine may lack is a [`Reading`]: "this board has none" is not "it did not answer", and
//! neither is zero.

pub mod parse;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Celsius, Hertz, Joules, Seconds, Watts};

/// One value of the outside world, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading<T> {
    /// It was read.
    Known(T),
    /// This machine does not have it; lasting.
    Absent {
        /// What is missing, naming the file or interface.
        reason: String,
    },
    /// The machine has it, but it did not answer this time.
    Failed {
        /// What went wrong, naming the file.
        reason: String,
    },
}

impl<T> Reading<T> {
    /// Shorthand for a lasting absence.
    pub fn absent(reason: impl Into<String>) -> Self {
        Self::Absent { reason: reason.into() }
    }

    /// Shorthand for a passing failure.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into() }
    }

    /// The value, where there is one.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Absent { .. } | Self::Failed { .. } => None,
        }
    }

    /// Why there is no value; `None` where there is one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Known(_) => None,
            Self::Absent { reason } | Self::Failed { reason } => Some(reason),
        }
    }

    /// The same reading with its value converted.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Known(value) => Reading::Known(convert(value)),
            Self::Absent { reason } => Reading::Absent { reason },
            Self::Failed { reason } => Reading::Failed { reason },
        }
    }
}

/// One cache as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// 1, 2, 3, …
    pub level: u32,
    /// `data`, `instruction` or `unified`.
    pub kind: String,
    /// Size of one instance in bytes.
    pub size_bytes: u64,
    /// Logical CPUs that share one instance.
    pub shared_by: u32,
    /// Instances over all present CPUs.
    pub instances: u32,
}

/// The processor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Marketing name, or implementer and part on arm64.
    pub model: Reading<String>,
    /// `x86_64`, `aarch64`, …
    pub architecture: String,
    /// Logical CPUs present.
    pub logical: u32,
    /// Physical cores present.
    pub cores: Reading<u32>,
    /// Highest clock that cpufreq admits.
    pub max_clock: Reading<Hertz>,
    /// Data and unified caches, smallest level first.
    pub caches: Vec<Cache>,
    /// Instruction-set flags in the kernel's spelling.
    pub features: Vec<String>,
}

impl Cpu {
    /// Bytes of all instances of the largest-level data cache; `None` where the kernel tells no caches.
    #[must_use]
    pub fn last_level_cache_bytes(&self) -> Option<u64> {
        let data = || self.caches.iter().filter(|cache| cache.kind != "instruction");
        let last = data().map(|cache| cache.level).max()?;
        Some(data().filter(|c| c.level == last).map(|c| c.size_bytes * u64::from(c.instances)).sum())
    }
}

/// The machine as it is built.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Board {
    /// Key in the hardware registry; `cpu` on plain Linux.
    pub key: String,
    /// Device-tree model or DMI product name.
    pub model: Reading<String>,
    /// Kernel release.
    pub kernel: Reading<String>,
    /// `PRETTY_NAME` of the operating system.
    pub os: Reading<String>,
    /// Stable identity of this installation: a hash of /etc/machine-id, never the id itself.
    pub machine: Reading<String>,
    /// The processor.
    pub cpu: Cpu,
    /// Usable memory.
    pub memory_total: Reading<Bytes>,
    /// CPU and GPU share one memory.
    pub unified_memory: bool,
    /// The board is simulated: no value of it describes hardware.
    pub simulated: bool,
    /// Which file each field was read from.
    pub sources: BTreeMap<String, String>,
}

/// A thermal zone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThermalZone {
    /// `type` of the zone.
    pub name: String,
    /// Its temperature.
    pub temperature: Reading<Celsius>,
}

/// A power rail, or an energy counter read as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rail {
    /// Label of the rail.
    pub name: String,
    /// Power drawn; from an energy counter it is the mean since the sample before.
    pub power: Reading<Watts>,
    /// Energy counter where the rail is one, before unwrapping.
    pub energy: Option<Joules>,
}

/// /proc/meminfo, the parts that matter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// `MemTotal`.
    pub total: Bytes,
    /// `MemAvailable`: what can be had without swapping.
    pub available: Bytes,
    /// `MemFree`.
    pub free: Bytes,
    /// `SwapTotal - SwapFree`.
    pub swap_used: Bytes,
}

/// How busy the CPUs are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Load average over one minute.
    pub average_1m: f64,
    /// Busy part of all online CPUs since the sample before, 0 to 1; `None` for the first sample.
    pub busy_ratio: Option<f64>,
    /// Part of the CPU time taken by the hypervisor since the sample before.
    pub steal_ratio: Option<f64>,
}

/// Pressure-stall information: share of the last ten seconds in which some task waited.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// Waiting for memory, 0 to 1.
    pub memory_some_ratio: f64,
    /// Waiting for a CPU, 0 to 1; `None` where the kernel does not tell.
    pub cpu_some_ratio: Option<f64>,
}

/// Evidence of throttling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    /// Whether anything throttles right now.
    pub active: bool,
    /// What says so.
    pub evidence: Vec<String>,
}

/// A power mode by number and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveMode {
    /// Number of the mode; not an index.
    pub id: u32,
    /// Free text.
    pub name: String,
}

/// The machine as it was at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BoardState {
    /// CLOCK_BOOTTIME of the sample.
    pub taken_at: Seconds,
    /// Active power mode.
    pub power_mode: Reading<ActiveMode>,
    /// Logical CPUs online.
    pub cores_online: Reading<u32>,
    /// Current clock of each online CPU as cpufreq reports it.
    pub cpu_clocks: Reading<Vec<Hertz>>,
    /// Cap on the CPU clock in force now (`scaling_max_freq`), the highest of the policies.
    pub cpu_clock_cap: Reading<Hertz>,
    /// Current GPU clock.
    pub gpu_clock: Reading<Hertz>,
    /// Current memory clock.
    pub memory_clock: Reading<Hertz>,
    /// Thermal zones.
    pub temperatures: Reading<Vec<ThermalZone>>,
    /// Power rails and energy counters.
    pub rails: Reading<Vec<Rail>>,
    /// Memory.
    pub memory: Reading<Memory>,
    /// Load.
    pub load: Reading<Load>,
    /// Pressure-stall information.
    pub pressure: Reading<Pressure>,
    /// Throttling.
    pub throttle: Reading<Throttle>,
}
