//! The machine as it is built ([`Board`]) and as it is right now ([`BoardState`]).
//!
//! Every value that a machine may lack is a [`Reading`]: "this board has none" is not "it did not answer", and
//! neither is zero.

pub mod active;
pub mod details;
pub mod identity;
mod jetpack;
mod mode;
mod mode_clocks;
pub mod nvpmodel;
pub mod parse;
mod switch;

use std::collections::BTreeMap;

pub use details::Details;
pub use jetpack::jetpack;
pub use mode::{Knob, ModeWarning, OperatingPoint, PowerMode, PowerModes, Setting};
pub use mode_clocks::ClockBounds;
pub use switch::{
    Difference, JournalEntry, Order, OrderAnswer, OrderFailure, ReadBack, SwitchOutcome, SwitchPhase,
    SwitchReport,
};

use serde::{Deserialize, Serialize};

use crate::hardware::GpuParts;
use crate::units::{Bytes, Celsius, Hertz, Joules, Seconds, Watts};

/// One value of the outside world, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading<T> {
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

/// A physical core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreKind {
    /// The first of its logical CPUs.
    pub first: u32,
    /// Built for efficiency (Intel's E and LP E cores, Arm's Cortex-A53, -A55, -A510, -A520): half the operations of the others
    /// in a cycle.
    pub efficient: bool,
}

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
    /// The cores that are online, where the kernel tells their threads.
    #[serde(skip)]
    pub kinds: Vec<CoreKind>,
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

/// Who tells about a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuDriver {
    /// The kernel's devfreq and platform files (Jetson).
    Devfreq,
    /// NVIDIA's management library (discrete cards, GB10).
    Nvml,
}

/// The NVIDIA GPU that is the machine's accelerator, as it is built.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// What its driver calls it.
    pub name: Reading<String>,
    pub driver: GpuDriver,
    /// SMs with nothing gated.
    pub sm_total: Reading<u32>,
    /// Highest clock that the driver's table or the registry admits.
    pub max_clock: Reading<Hertz>,
    /// The clocks that the driver admits, ascending; empty where it does not tell.
    pub clocks: Vec<Hertz>,
    pub driver_version: Reading<String>,
    /// What its driver tells of its parts.
    #[serde(default, skip_serializing_if = "GpuParts::is_empty")]
    pub parts: GpuParts,
}

/// The machine as it is built.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Board {
    /// Key in the hardware registry; `cpu` on plain Linux.
    pub key: String,
    /// What was assumed when it was taken for `key`, and what of it speaks against that, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Device-tree model or DMI product name.
    pub model: Reading<String>,
    /// Kernel release.
    pub kernel: Reading<String>,
    /// `PRETTY_NAME` of the operating system.
    pub os: Reading<String>,
    /// Stable identity of this installation: a hash of /etc/machine-id, never the id itself.
    pub machine: Reading<String>,
    /// Module part number from the device tree, such as `p3767-0005-super`.
    pub module: Reading<String>,
    /// Release of NVIDIA's board support, such as `36.4.3`.
    pub l4t: Reading<String>,
    pub cpu: Cpu,
    /// The GPU that answers are about; absent where the CPU is the accelerator.
    pub gpu: Reading<Gpu>,
    /// Highest memory clock that the firmware admits, whatever a mode asks for; `None` where it does not tell.
    #[serde(skip)]
    pub memory_clock_max: Option<Hertz>,
    /// The power modes of this machine.
    pub modes: Reading<PowerModes>,
    /// Usable memory.
    pub memory_total: Reading<Bytes>,
    /// CPU and GPU share one memory.
    pub unified_memory: bool,
    /// The board is simulated: no value of it describes hardware.
    pub simulated: bool,
    /// Which file each field was read from.
    pub sources: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThermalZone {
    /// `type` of the zone.
    pub name: String,
    pub temperature: Reading<Celsius>,
}

/// A power rail, or an energy counter read as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rail {
    pub name: String,
    /// Power drawn; from an energy counter it is the mean since the sample before.
    pub power: Reading<Watts>,
    /// Energy counter where the rail is one, before unwrapping.
    pub energy: Option<Joules>,
    /// The time that `power` belongs to; `None` where there is no power.
    #[serde(skip)]
    pub read: Option<MeterRead>,
}

/// The time that a power belongs to, CLOCK_BOOTTIME.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeterRead {
    pub at: Seconds,
    /// When the counter was read before: the power is the mean since then. `None` of a meter that tells power itself.
    pub since: Option<Seconds>,
    /// How long the meter takes to a new value, or averages over; `None` where nothing tells.
    pub period: Option<Seconds>,
}

impl MeterRead {
    /// The time that a sum of two powers belongs to.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let longer = |a: Option<Seconds>, b: Option<Seconds>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (known, None) | (None, known) => known,
        };
        let since = self.since.zip(other.since).map(|(a, b)| if a < b { a } else { b });
        Self { at: self.at.max(other.at), since, period: longer(self.period, other.period) }
    }
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

/// Power drawn by the whole module, and what it was summed from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TotalPower {
    pub power: Watts,
    /// Rails that were added; one where the board measures its input.
    pub rails: Vec<String>,
    /// What the figure covers: `module`, `system`, `gpu` or `package`.
    pub scope: String,
    /// The time that it belongs to.
    #[serde(skip)]
    pub read: Option<MeterRead>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    /// Whether anything throttles right now.
    pub active: bool,
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
    /// Active power mode: the one whose caps are in force, whatever nvpmodel's status file says.
    pub power_mode: Reading<ActiveMode>,
    /// What speaks against `power_mode`, or for it alone: a status file that says otherwise, caps that are lower.
    pub mode_note: Option<String>,
    /// Logical CPUs online.
    pub cores_online: Reading<u32>,
    /// Current clock of each online CPU as cpufreq reports it.
    pub cpu_clocks: Reading<Vec<Hertz>>,
    /// Cap on the CPU clock in force now (`scaling_max_freq`), the highest of the policies.
    pub cpu_clock_cap: Reading<Hertz>,
    /// Current GPU clock. At idle it is low or, with the GPU gated, absent: never a clock to predict from.
    pub gpu_clock: Reading<Hertz>,
    /// Cap on the GPU clock in force now (devfreq `max_freq`, or locked clocks).
    pub gpu_clock_cap: Reading<Hertz>,
    /// Busy part of the GPU, 0 to 1.
    pub gpu_load: Reading<f64>,
    /// Mask of gated texture-processing clusters as sysfs shows it.
    pub tpc_mask: Reading<u32>,
    /// SMs that are not gated.
    pub sm_online: Reading<u32>,
    /// Current memory clock. Below its cap at idle.
    pub memory_clock: Reading<Hertz>,
    /// Cap on the memory clock in force now; an uncapped one is the board's highest.
    pub memory_clock_cap: Reading<Hertz>,
    pub temperatures: Reading<Vec<ThermalZone>>,
    /// Power rails and energy counters.
    pub rails: Reading<Vec<Rail>>,
    /// Power of the module or system by this board's rule.
    pub total_power: Reading<TotalPower>,
    pub memory: Reading<Memory>,
    pub load: Reading<Load>,
    pub pressure: Reading<Pressure>,
    pub throttle: Reading<Throttle>,
    /// What no answer rests on.
    #[serde(flatten)]
    pub details: Details,
}

impl BoardState {
    /// A state in which nothing is known, for `reason`.
    #[must_use]
    pub fn unknown(taken_at: Seconds, reason: &str) -> Self {
        Self {
            taken_at,
            power_mode: Reading::absent(reason),
            mode_note: None,
            cores_online: Reading::absent(reason),
            cpu_clocks: Reading::absent(reason),
            cpu_clock_cap: Reading::absent(reason),
            gpu_clock: Reading::absent(reason),
            gpu_clock_cap: Reading::absent(reason),
            gpu_load: Reading::absent(reason),
            tpc_mask: Reading::absent(reason),
            sm_online: Reading::absent(reason),
            memory_clock: Reading::absent(reason),
            memory_clock_cap: Reading::absent(reason),
            temperatures: Reading::absent(reason),
            rails: Reading::absent(reason),
            total_power: Reading::absent(reason),
            memory: Reading::absent(reason),
            load: Reading::absent(reason),
            pressure: Reading::absent(reason),
            throttle: Reading::absent(reason),
            details: Details::unknown(reason),
        }
    }

    /// The point that ceilings of this moment hold for: the caps, never an idle clock.
    #[must_use]
    pub fn operating_point(&self) -> OperatingPoint {
        OperatingPoint {
            power_mode: self.power_mode.known().map(|mode| mode.name.clone()),
            sm_online: self.sm_online.known().copied(),
            gpu_clock: self.gpu_clock_cap.known().copied(),
            memory_clock: self.memory_clock_cap.known().copied(),
            cpu_clock: self.cpu_clock_cap.known().copied(),
            cores_online: self.cores_online.known().copied(),
        }
    }
}
