//! What people watch beside what ceilings follow from, field by field.

use super::hidden::Hidden;
use rooflined_core::board::Reading;
use rooflined_core::board::details::{
    Core, Details, DeviceTemperature, Engine, Fan, FreeBlocks, GpuControl, GpuProcess, RailMeter, SwapArea,
    Zram,
};
use rooflined_core::units::{Bytes, Seconds};

macro_rules! details {
    ($($variant:ident($type:ty) => $field:ident,)*) => {
        /// A value for a field of [`Details`].
        #[expect(clippy::large_enum_variant, reason = "it is moved once, into its field")]
        pub(super) enum Detail {
            $($variant(Reading<$type>),)*
        }

        impl Detail {
            /// Puts the value in its place, where the field has none yet.
            pub fn settle(self, details: &mut Details, read_at: Option<Seconds>, hidden: &Hidden) {
                match self {
                    $(Self::$variant(reading) => {
                        if details.$field.known().is_none() {
                            if let Some(at) = read_at {
                                details.read_at.insert(stringify!($field), at);
                            }
                            details.$field = hidden.explain(reading);
                        }
                    })*
                }
            }
        }
    };
}

details! {
    Cores(Vec<Core>) => cores,
    Engines(Vec<Engine>) => engines,
    EmcUtilisation(f64) => emc_utilisation,
    Fans(Vec<Fan>) => fans,
    FanProfile(String) => fan_profile,
    GpuControl(GpuControl) => gpu_control,
    GpuProcesses(Vec<GpuProcess>) => gpu_processes,
    GpuSharedMemory(Bytes) => gpu_shared_memory,
    FreeBlocks(FreeBlocks) => free_blocks,
    Swap(Vec<SwapArea>) => swap,
    Zram(Vec<Zram>) => zram,
    RailMeters(Vec<RailMeter>) => rail_meters,
    DeviceTemperatures(Vec<DeviceTemperature>) => device_temperatures,
    JetsonClocks(bool) => jetson_clocks,
    Jetpack(String) => jetpack,
    Cuda(String) => cuda,
    Tensorrt(String) => tensorrt,
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
