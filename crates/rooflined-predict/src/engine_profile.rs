//! What an engine's kernels cost on one machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::gemm::GemmCost;
use rooflined_core::names::Engine;
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_core::units::Seconds;

/// Relative half-width of the interval where nothing but ceilings is known. A kernel reaches 0.5-1.0 of the plain
/// roofline on most published GPU and CPU rows.
pub(crate) const UNKNOWN_KERNEL_HALF_WIDTH: f64 = 0.5;

/// What one format costs an engine's kernels beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FormatCost {
    /// What the kernel computes in.
    pub compute: Precision,
    /// Clock cycles of one worker for one weight and one column.
    pub cycles_per_weight: f64,
    /// Further columns cost this part of the first.
    pub column_ratio: f64,
    /// Part of the bandwidth ceiling that the kernel reaches while it streams, above 0 and at most 1.
    pub bandwidth_ratio: f64,
    /// Time from the start of the kernel to full bandwidth.
    pub ramp: Seconds,
    /// Half-width of the 90 % interval of the kernel's time, relative.
    pub half_width_ratio: f64,
}

/// What an engine's kernels cost on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineProfile {
    pub engine: Engine,
    pub formats: BTreeMap<WeightFormat, FormatCost>,
    /// Blocked GEMM by compute precision.
    pub gemm: BTreeMap<Precision, GemmCost>,
}

impl EngineProfile {
    /// The same profile while others take bandwidth (`ratio` below 1) or leave more than they did when it was
    /// measured. The ceilings are the machine's own and stay; what a kernel reaches of them moves.
    #[must_use]
    pub fn with_bandwidth_drift(mut self, ratio: f64) -> Self {
        for cost in self.formats.values_mut() {
            cost.bandwidth_ratio = (cost.bandwidth_ratio * ratio).clamp(f64::MIN_POSITIVE, 1.0);
        }
        self
    }

    /// The same costs as a guess for another engine's kernels. Unchanged for its own engine.
    #[must_use]
    pub fn lent_to(mut self, engine: Engine) -> Self {
        if engine != self.engine {
            self.engine = engine;
            self.formats.values_mut().for_each(|cost| cost.half_width_ratio = UNKNOWN_KERNEL_HALF_WIDTH);
            self.gemm.values_mut().for_each(|cost| cost.half_width_ratio = UNKNOWN_KERNEL_HALF_WIDTH);
        }
        self
    }

    /// Whether the costs were measured with the engine's own kernels: only this crate's are so far.
    pub(crate) const fn measured(&self) -> bool {
        matches!(self.engine, Engine::Bare)
    }

    /// A profile that knows nothing: predictions rest on the ceilings alone.
    #[must_use]
    pub const fn unknown(engine: Engine) -> Self {
        Self { engine, formats: BTreeMap::new(), gemm: BTreeMap::new() }
    }
}
