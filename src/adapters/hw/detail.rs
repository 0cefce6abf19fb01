//! What people watch beside what ceilings follow from, field by field.

use roofline::board::Reading;
use roofline::board::details::{
    Core, Details, DeviceTemperature, Engine, Fan, FreeBlocks, GpuControl, GpuProcess, RailMeter, SwapArea,
    Zram,
};
use roofline::units::{Bytes, Seconds};

/// A value for a field of [`Details`].
#[expect(clippy::large_enum_variant, reason = "it is moved once, into its field")]
pub(super) enum Detail {
    Cores(Reading<Vec<Core>>),
    Engines(Reading<Vec<Engine>>),
    EmcUtilisation(Reading<f64>),
    Fans(Reading<Vec<Fan>>),
    FanProfile(Reading<String>),
    GpuControl(Reading<GpuControl>),
    GpuProcesses(Reading<Vec<GpuProcess>>),
    GpuSharedMemory(Reading<Bytes>),
    FreeBlocks(Reading<FreeBlocks>),
    Swap(Reading<Vec<SwapArea>>),
    Zram(Reading<Vec<Zram>>),
    RailMeters(Reading<Vec<RailMeter>>),
    DeviceTemperatures(Reading<Vec<DeviceTemperature>>),
    JetsonClocks(Reading<bool>),
    Jetpack(Reading<String>),
    Cuda(Reading<String>),
    Tensorrt(Reading<String>),
}

impl Detail {
    /// Puts the value in its place, where the field has none yet.
    pub fn settle(self, details: &mut Details, read_at: Option<Seconds>) {
        macro_rules! settle {
            ($($variant:ident => $field:ident),* $(,)?) => {
                match self {
                    $(Self::$variant(reading) => {
                        if details.$field.known().is_none() {
                            if let Some(at) = read_at {
                                details.read_at.insert(stringify!($field), at);
                            }
                            details.$field = reading;
                        }
                    })*
                }
            };
        }
        settle! {
            Cores => cores,
            Engines => engines,
            EmcUtilisation => emc_utilisation,
            Fans => fans,
            FanProfile => fan_profile,
            GpuControl => gpu_control,
            GpuProcesses => gpu_processes,
            GpuSharedMemory => gpu_shared_memory,
            FreeBlocks => free_blocks,
            Swap => swap,
            Zram => zram,
            RailMeters => rail_meters,
            DeviceTemperatures => device_temperatures,
            JetsonClocks => jetson_clocks,
            Jetpack => jetpack,
            Cuda => cuda,
            Tensorrt => tensorrt,
        }
    }
}

/// Names that occur before get a number, so that each stands for one thing.
pub(super) fn told_apart(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for name in names {
        let mut own = name.clone();
        let mut number = 1_u32;
        while told.contains(&own) {
            number += 1;
            own = format!("{name} {number}");
        }
        told.push(own);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::told_apart;

    #[test]
    fn every_name_stands_for_one_thing() {
        let names = ["mlx5", "mlx5", "nvme", "mlx5 2", "mlx5"].map(String::from);
        assert_eq!(told_apart(names), ["mlx5", "mlx5 2", "nvme", "mlx5 2 2", "mlx5 3"]);
    }
}
