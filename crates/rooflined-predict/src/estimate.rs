//! An estimate with its interval, what limits a time, and what a prediction rests on.

use serde::{Deserialize, Serialize};

use rooflined_core::ceilings::{Ceiling, Provenance, Roofline};
use rooflined_core::units::Seconds;

/// An estimate with its 90 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate<Q> {
    /// Best estimate.
    pub value: Q,
    /// 5 % lies below.
    pub low: Q,
    /// 5 % lies above.
    pub high: Q,
}

impl<Q> Estimate<Q> {
    /// The same interval of another quantity.
    pub fn map<R>(self, convert: impl Fn(Q) -> R) -> Estimate<R> {
        Estimate { value: convert(self.value), low: convert(self.low), high: convert(self.high) }
    }
}

/// Which ceiling takes most of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Dram,
    /// What the SMs read at their clock, where that is less than what the memory gives.
    #[serde(rename = "dram", skip_deserializing)]
    SmPull,
    Cache,
    /// Dequantizing stored weights in the cores.
    Core,
    Compute,
    /// Starting the operation.
    Launch,
    PowerCap,
}

impl Limit {
    /// The key on the wire, where the memory's side is one limit: which part of it holds is said in words.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Dram | Self::SmPull => "dram",
            Self::Cache => "cache",
            Self::Core => "core",
            Self::Compute => "compute",
            Self::Launch => "launch",
            Self::PowerCap => "power_cap",
        }
    }

    /// As a sentence names it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Dram => "memory bandwidth",
            Self::SmPull => "the rate at which so many SMs read at this clock",
            Self::Cache => "cache bandwidth",
            Self::Core => "dequantizing the weights in the cores",
            Self::Compute => "arithmetic",
            Self::Launch => "launching kernels",
            Self::PowerCap => "the power cap",
        }
    }

    /// The same where `roofline` holds, whose SMs may read less than the memory gives.
    pub(crate) fn under(self, roofline: &Roofline) -> Self {
        let limits = roofline.pull_limit.zip(roofline.memory_limit);
        match limits {
            Some((pull, memory)) if self == Self::Dram && pull.value < memory.value => Self::SmPull,
            _ => self,
        }
    }
}

/// What a prediction rests on, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Data sheets and guesses.
    Prior,
    /// Ceilings measured on this board.
    BoardCalibrated,
    /// Ceilings and the engine's own kernels measured on this board.
    EngineCalibrated,
    /// The same workload observed at another operating point.
    Anchored,
    /// The same workload observed at this operating point.
    Observed,
}

pub(crate) fn tier(provenance: Provenance, kernel_calibrated: bool) -> Tier {
    match (provenance, kernel_calibrated) {
        (Provenance::Measured | Provenance::Scaled, true) => Tier::EngineCalibrated,
        (Provenance::Measured | Provenance::Scaled, false) => Tier::BoardCalibrated,
        (Provenance::Observed, _) => Tier::Observed,
        (Provenance::Datasheet | Provenance::Prior, _) => Tier::Prior,
    }
}

/// A 90 % interval that is symmetric in the logarithm and never below the physical bound.
pub(crate) fn interval(value: Seconds, half_width_ratio: f64, bound: Seconds) -> Estimate<Seconds> {
    let factor = 1.0 + half_width_ratio;
    Estimate { value, low: (value / factor).max(bound), high: value * factor }
}

pub(crate) fn relative_half_width(ceiling: &Ceiling<f64>) -> f64 {
    (ceiling.high - ceiling.low) / (2.0 * ceiling.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::ceilings::datasheet;
    use rooflined_core::hardware::registry;

    #[test]
    fn sms_that_read_less_than_the_memory_gives_are_the_limit() {
        let hardware = registry().get("jetson-orin-nano-8gb-super").unwrap();
        let limit = |name: &str| {
            let mode = hardware.modes.iter().find(|mode| mode.name == name).unwrap();
            Limit::Dram.under(&datasheet(hardware, &mode.operating_point()))
        };
        assert_eq!(["7W", "15W", "25W"].map(limit), [Limit::SmPull, Limit::Dram, Limit::Dram]);
    }
}
