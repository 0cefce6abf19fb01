//! What stands or falls together: the module of kernels that a step launches, and the GPU and driver that run it.

use serde::{Deserialize, Serialize};

use super::Cuda;
use super::kernels::{Group, group, peak};
use super::stored::Layout;
use rooflined_core::precision::Precision;
use rooflined_core::units::Hertz;
use rooflined_predict::calibration::{DriverFacts, Kernel};

/// Whose word an outcome is: the same kernel may do well with another driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// As the driver names it.
    pub gpu: String,
    /// `580.00 (CUDA 13.0)`; without NVML only what CUDA it has.
    pub driver: String,
    /// Compute capability times ten.
    pub capability: u32,
    pub facts: DriverFacts,
}

impl Cuda {
    pub fn identity(&self) -> Identity {
        let facts = self.device.facts();
        let cuda = format!("CUDA {}.{}", facts.driver / 1000, facts.driver % 1000 / 10);
        Identity {
            gpu: facts.name.clone(),
            driver: self.meters.driver().map_or_else(|| cuda.clone(), |driver| format!("{driver} ({cuda})")),
            capability: facts.capability,
            facts: DriverFacts {
                sm_count: facts.sm_count,
                l2_bytes: facts.l2_bytes,
                bus_bits: facts.bus_bits,
                sm_clock: Hertz(1e3 * f64::from(facts.clock_khz)),
            },
        }
    }
}

/// The group of a step; `None` where it launches nothing of its own, or nothing on such a GPU.
pub fn group_of(kernel: &Kernel, capability: u32) -> Option<Group> {
    match *kernel {
        Kernel::Stream { .. } => group("stream_read", capability),
        Kernel::Peak { precision: Precision::Fp32 } => group("fma_f32", capability),
        Kernel::Peak { precision } => group(peak(precision, capability).ok()?.entry, capability),
        Kernel::Gemv { format, .. } => group(&format!("gemv_{}_b1", Layout::of(format)?.name), capability),
        _ => None,
    }
}
