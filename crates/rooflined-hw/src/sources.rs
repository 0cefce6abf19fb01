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

use super::source::{Discover, find};

pub(super) const SOURCES: &[Discover] = &[
    find::<online::Online>,
    find::<cpufreq::Cpufreq>,
    find::<thermal::Thermal>,
    find::<ina3221::Ina3221>,
    find::<hwmon::Hwmon>,
    find::<powercap::Powercap>,
    find::<thermal_throttle::ThermalThrottle>,
    find::<cooling::Cooling>,
    find::<soctherm::Soctherm>,
    find::<spbm::Spbm>,
    find::<alarms::Alarms>,
    find::<tegra_gpu::TegraGpu>,
    find::<tegra_memory::TegraMemory>,
    find::<memory_controller::MemoryController>,
    find::<nvml::NvmlGpu>,
    find::<mode_entered::ModeEntered>,
    find::<memory::MemInfo>,
    find::<load::LoadAverage>,
    find::<pressure::Stall>,
    find::<cores::Cores>,
    find::<engines::Engines>,
    find::<memory_activity::MemoryActivity>,
    find::<fans::Fans>,
    find::<gpu_control::GpuPower>,
    find::<nvmap::Nvmap>,
    find::<swap::Swap>,
    find::<rail_meters::RailMeters>,
    find::<device_temperatures::DeviceTemperatures>,
    find::<jetson_clocks::JetsonClocks>,
    find::<software::Software>,
];

pub(super) const HWMON: &str = "/sys/class/hwmon";
const THERMAL: &str = "/sys/class/thermal";
const CPUS: &str = "/sys/devices/system/cpu";
