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

use super::source::Registration;

pub(super) const SOURCES: &[Registration] = &[
    Registration::of::<online::Online>(),
    Registration::of::<cpufreq::Cpufreq>(),
    Registration::of::<thermal::Thermal>(),
    Registration::of::<ina3221::Ina3221>(),
    Registration::of::<hwmon::Hwmon>(),
    Registration::of::<powercap::Powercap>(),
    Registration::of::<thermal_throttle::ThermalThrottle>(),
    Registration::of::<cooling::Cooling>(),
    Registration::of::<soctherm::Soctherm>(),
    Registration::of::<spbm::Spbm>(),
    Registration::of::<alarms::Alarms>(),
    Registration::of::<tegra_gpu::TegraGpu>(),
    Registration::of::<tegra_memory::TegraMemory>(),
    Registration::of::<memory_controller::MemoryController>(),
    Registration::of::<nvml::NvmlGpu>(),
    Registration::of::<mode_entered::ModeEntered>(),
    Registration::of::<memory::MemInfo>(),
    Registration::of::<load::LoadAverage>(),
    Registration::of::<pressure::Stall>(),
    Registration::of::<cores::Cores>(),
    Registration::of::<engines::Engines>(),
    Registration::of::<memory_activity::MemoryActivity>(),
    Registration::of::<fans::Fans>(),
    Registration::of::<gpu_control::GpuPower>(),
    Registration::of::<nvmap::Nvmap>(),
    Registration::of::<swap::Swap>(),
    Registration::of::<rail_meters::RailMeters>(),
    Registration::of::<device_temperatures::DeviceTemperatures>(),
    Registration::of::<jetson_clocks::JetsonClocks>(),
    Registration::of::<software::Software>(),
];

pub(super) const HWMON: &str = "/sys/class/hwmon";
const THERMAL: &str = "/sys/class/thermal";
const CPUS: &str = "/sys/devices/system/cpu";
