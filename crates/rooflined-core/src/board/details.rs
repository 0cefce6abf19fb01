//! What people watch on a board beside what ceilings follow from: engines, fans, rails, swap and the like. No answer
//! rests on it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Reading;
use crate::units::{Bytes, Celsius, Hertz, Seconds};

/// A logical CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Core {
    pub cpu: u32,
    /// Busy part since the sample before, 0 to 1.
    pub busy_ratio: Reading<f64>,
    /// Lowest clock that cpufreq may choose (`scaling_min_freq`).
    pub min_clock: Reading<Hertz>,
    /// Highest clock that cpufreq may choose (`scaling_max_freq`).
    pub clock_cap: Reading<Hertz>,
    pub governor: Reading<String>,
}

/// An engine beside CPU and GPU: video, images, signals, encryption, deep learning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// `NVDEC`, `VIC`, `DLA0_CORE`, …
    pub name: String,
    pub clock: Reading<Hertz>,
    pub clock_cap: Reading<Hertz>,
    /// Powered, or its clock enabled.
    pub on: Reading<bool>,
    /// Directory that tells.
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fan {
    pub name: String,
    /// Part of the time that the fan is driven, 0 to 1.
    pub duty_ratio: Reading<f64>,
    /// Turns per minute.
    pub speed_rpm: Reading<f64>,
    /// Directory that tells.
    pub source: String,
}

/// How the GPU's clock and power are governed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuControl {
    /// Of devfreq.
    pub governor: Reading<String>,
    /// Lowest clock that the governor may choose.
    pub min_clock: Reading<Hertz>,
    /// Whether the GPU may be cut off its supply when idle.
    pub railgate_enabled: Reading<bool>,
    /// Idle time after which it is.
    pub railgate_delay: Reading<Seconds>,
    /// Whether it is now.
    pub railgated: Reading<bool>,
    /// `auto`, or `on` where the GPU is kept awake.
    pub power_control: Reading<String>,
    /// Whether the clock follows the load.
    pub scaling_3d: Reading<bool>,
    /// Whether gated clusters stay as they are until a reboot.
    pub mask_fixed: Reading<bool>,
}

/// A process that holds memory of the GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuProcess {
    pub pid: u32,
    pub name: Reading<String>,
    pub memory: Reading<Bytes>,
}

/// A swap device or file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SwapArea {
    pub name: String,
    /// `zram`, `partition` or `file`.
    pub kind: String,
    pub size: Bytes,
    pub used: Bytes,
    pub priority: i64,
}

/// A compressed block device in memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Zram {
    pub name: String,
    /// What was stored.
    pub stored: Bytes,
    /// What it was compressed to.
    pub compressed: Bytes,
    /// Memory taken for it, fragmentation included.
    pub memory: Bytes,
}

/// Free memory in one piece: how many pieces of the largest size that the kernel keeps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FreeBlocks {
    pub count: u64,
    pub size: Bytes,
}

/// Voltage and current of a rail, and the limits that its meter watches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RailMeter {
    pub name: String,
    pub volts: Reading<f64>,
    /// Negative at idle on some boards.
    pub amperes: Reading<f64>,
    /// Mean current above which the meter warns.
    pub warning_amperes: Reading<f64>,
    /// Current above which it alarms at once.
    pub critical_amperes: Reading<f64>,
    /// Whether it warns or alarms.
    pub alarm: Reading<bool>,
    /// Directory that tells.
    pub source: String,
}

/// Temperature of a device that no thermal zone stands for: a drive, a network card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceTemperature {
    /// Driver and sensor.
    pub name: String,
    pub temperature: Reading<Celsius>,
    /// Where the device itself reports trouble.
    pub critical: Reading<Celsius>,
    pub source: String,
}

/// Everything of this page. Each field that a machine lacks says why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Details {
    pub cores: Reading<Vec<Core>>,
    pub engines: Reading<Vec<Engine>>,
    /// Part of the memory clock's cycles that move data, 0 to 1.
    pub emc_utilisation: Reading<f64>,
    pub fans: Reading<Vec<Fan>>,
    /// Profile of NVIDIA's fan control.
    pub fan_profile: Reading<String>,
    pub gpu_control: Reading<GpuControl>,
    pub gpu_processes: Reading<Vec<GpuProcess>>,
    /// Memory taken for the GPU of what it shares with the CPUs.
    pub gpu_shared_memory: Reading<Bytes>,
    pub free_blocks: Reading<FreeBlocks>,
    pub swap: Reading<Vec<SwapArea>>,
    pub zram: Reading<Vec<Zram>>,
    pub rail_meters: Reading<Vec<RailMeter>>,
    pub device_temperatures: Reading<Vec<DeviceTemperature>>,
    /// Whether clocks are locked as NVIDIA's jetson_clocks does it.
    pub jetson_clocks: Reading<bool>,
    pub jetpack: Reading<String>,
    pub cuda: Reading<String>,
    pub tensorrt: Reading<String>,
    /// When fields were read that are not read at every sample, CLOCK_BOOTTIME.
    #[serde(skip)]
    pub read_at: BTreeMap<&'static str, Seconds>,
}

impl Details {
    /// Nothing known, for `reason`.
    #[must_use]
    pub fn unknown(reason: &str) -> Self {
        Self {
            cores: Reading::absent(reason),
            engines: Reading::absent(reason),
            emc_utilisation: Reading::absent(reason),
            fans: Reading::absent(reason),
            fan_profile: Reading::absent(reason),
            gpu_control: Reading::absent(reason),
            gpu_processes: Reading::absent(reason),
            gpu_shared_memory: Reading::absent(reason),
            free_blocks: Reading::absent(reason),
            swap: Reading::absent(reason),
            zram: Reading::absent(reason),
            rail_meters: Reading::absent(reason),
            device_temperatures: Reading::absent(reason),
            jetson_clocks: Reading::absent(reason),
            jetpack: Reading::absent(reason),
            cuda: Reading::absent(reason),
            tensorrt: Reading::absent(reason),
            read_at: BTreeMap::new(),
        }
    }
}

/// What tells whether clocks are locked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClockLocks {
    /// Lowest and highest clock of each cpufreq policy that answers.
    pub cpus: Vec<(Hertz, Hertz)>,
    /// Lowest and highest clock of the GPU.
    pub gpu: Option<(Hertz, Hertz)>,
    /// Whether some idle state of a CPU is disabled.
    pub idle_disabled: Option<bool>,
    /// Whether the GPU is kept awake.
    pub gpu_kept_on: Option<bool>,
}

impl ClockLocks {
    /// Whether jetson_clocks is engaged, by its traces that everybody may read: no clock can move, and either CPUs are
    /// kept from idling or the GPU from sleeping. `None` where too little is known.
    ///
    /// A power mode whose caps are the lowest clocks, on a GPU that somebody keeps awake, leaves the same traces. The
    /// lock on the memory clock is in debugfs, for root alone, and not looked at.
    #[must_use]
    pub fn engaged(&self) -> Option<bool> {
        let fixed = |(low, high): &(Hertz, Hertz)| low.0 >= high.0;
        if self.cpus.is_empty() {
            return None;
        }
        if !self.cpus.iter().all(fixed) {
            return Some(false);
        }
        if !fixed(&self.gpu?) {
            return Some(false);
        }
        match (self.idle_disabled, self.gpu_kept_on) {
            (None, None) => None,
            (idle, kept) => Some(idle == Some(true) || kept == Some(true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_locked_where_none_can_move_and_something_is_kept_awake() {
        let free = (Hertz(7.296e8), Hertz(1.344e9));
        let fixed = (Hertz(1.344e9), Hertz(1.344e9));
        let locked = ClockLocks {
            cpus: vec![fixed, fixed],
            gpu: Some((Hertz(9.18e8), Hertz(9.18e8))),
            idle_disabled: Some(true),
            gpu_kept_on: Some(false),
        };
        assert_eq!(locked.engaged(), Some(true));
        let kept_on = ClockLocks { idle_disabled: Some(false), gpu_kept_on: Some(true), ..locked.clone() };
        assert_eq!(kept_on.engaged(), Some(true));
        let asleep = ClockLocks { idle_disabled: Some(false), gpu_kept_on: None, ..locked.clone() };
        assert_eq!(asleep.engaged(), Some(false));
        let one_free = ClockLocks { cpus: vec![fixed, free], ..locked.clone() };
        assert_eq!(one_free.engaged(), Some(false));
        let gpu_free = ClockLocks { gpu: Some(free), ..locked.clone() };
        assert_eq!(gpu_free.engaged(), Some(false));
        for unknown in [
            ClockLocks { cpus: Vec::new(), ..locked.clone() },
            ClockLocks { gpu: None, ..locked.clone() },
            ClockLocks { idle_disabled: None, gpu_kept_on: None, ..locked },
        ] {
            assert_eq!(unknown.engaged(), None, "{unknown:?}");
        }
    }
}
