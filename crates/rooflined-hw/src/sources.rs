//! Every source of values, each in a file of its own.
//!
//! A source looks for its files once, names them and the fields that they are for, and turns what they hold into
//! updates. The order of this table is the order of rails, temperatures and origins, and of precedence where two
//! sources tell one value; nothing else depends on it.

mod alarms;
mod cooling;
mod cores;
pub(super) mod cpufreq;
mod device_temperatures;
mod engines;
mod fans;
mod gpu_control;
mod hwmon;
mod ina3221;
mod jetson_clocks;
mod load;
pub(super) mod memory;
mod memory_activity;
mod memory_controller;
mod mode_entered;
mod nvmap;
mod nvml;
pub(super) mod online;
mod powercap;
mod pressure;
mod rail_meters;
mod rails;
mod soctherm;
mod software;
mod spbm;
mod swap;
mod tegra_gpu;
mod tegra_memory;
mod thermal;
mod thermal_throttle;

#[cfg(test)]
mod tests;

use super::source::Discover;

pub(super) const SOURCES: &[Discover] = &[
    online::discover,
    cpufreq::discover,
    thermal::discover,
    ina3221::discover,
    hwmon::discover,
    powercap::discover,
    thermal_throttle::discover,
    cooling::discover,
    soctherm::discover,
    spbm::discover,
    alarms::discover,
    tegra_gpu::discover,
    tegra_memory::discover,
    memory_controller::discover,
    nvml::discover,
    mode_entered::discover,
    memory::discover,
    load::discover,
    pressure::discover,
    cores::discover,
    engines::discover,
    memory_activity::discover,
    fans::discover,
    gpu_control::discover,
    nvmap::discover,
    swap::discover,
    rail_meters::discover,
    device_temperatures::discover,
    jetson_clocks::discover,
    software::discover,
];

pub(super) const HWMON: &str = "/sys/class/hwmon";
const THERMAL: &str = "/sys/class/thermal";
const CPUS: &str = "/sys/devices/system/cpu";
