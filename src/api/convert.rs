//! Domain values → wire values.

use super::answer::{BreakdownEntry, CeilingAnswer, EstimateAnswer};
use crate::predict::power::Power;
use crate::predict::{Estimate, Limit, Prediction, Tier};
use crate::roofline::{Bound, Ceiling, Provenance};
use crate::units::{Joules, Seconds, Watts};
use crate::workload::Op;

macro_rules! estimates {
    ($($quantity:ident)*) => {$(
        impl From<Estimate<$quantity>> for EstimateAnswer {
            fn from(estimate: Estimate<$quantity>) -> Self {
                Self { value: estimate.value.get(), low: estimate.low.get(), high: estimate.high.get() }
            }
        }
    )*};
}
estimates! { Seconds Watts Joules }

impl From<Power> for EstimateAnswer {
    /// Its watts.
    fn from(power: Power) -> Self {
        power.watts.into()
    }
}

impl EstimateAnswer {
    /// `amount` for each of these: the rate of something that takes a time, with its interval turned round.
    #[must_use]
    pub fn rate(amount: f64, time: Self) -> Self {
        Self { value: amount / time.value, low: amount / time.high, high: amount / time.low }
    }

    /// The same divided by a positive number.
    #[must_use]
    pub fn per(self, divisor: f64) -> Self {
        Self { value: self.value / divisor, low: self.low / divisor, high: self.high / divisor }
    }
}

impl CeilingAnswer {
    /// From a ceiling in the base unit; `age_s` counts only where it was measured.
    #[must_use]
    pub fn new(ceiling: Ceiling<f64>, age_s: Option<f64>) -> Self {
        let measured = matches!(ceiling.provenance, Provenance::Measured | Provenance::Scaled);
        Self {
            value: ceiling.value,
            low: ceiling.low,
            high: ceiling.high,
            provenance: provenance_key(ceiling.provenance).to_owned(),
            age_s: age_s.filter(|_| measured),
        }
    }
}

/// A provenance on the wire.
#[must_use]
pub const fn provenance_key(provenance: Provenance) -> &'static str {
    match provenance {
        Provenance::Measured => "measured",
        Provenance::Scaled => "scaled",
        Provenance::Observed => "observed",
        Provenance::Datasheet => "datasheet",
        Provenance::Prior => "prior",
    }
}

/// A bound on the wire.
#[must_use]
pub const fn bound_key(bound: Bound) -> &'static str {
    match bound {
        Bound::Memory => "memory",
        Bound::Compute => "compute",
    }
}

/// A limit on the wire.
#[must_use]
pub const fn limit_key(limit: Limit) -> &'static str {
    match limit {
        Limit::Dram => "dram",
        Limit::Cache => "cache",
        Limit::Core => "core",
        Limit::Compute => "compute",
        Limit::Launch => "launch",
        Limit::PowerCap => "power_cap",
    }
}

/// A tier on the wire.
#[must_use]
pub const fn tier_key(tier: Tier) -> &'static str {
    match tier {
        Tier::Prior => "prior",
        Tier::BoardCalibrated => "board_calibrated",
        Tier::EngineCalibrated => "engine_calibrated",
        Tier::Anchored => "anchored",
        Tier::Observed => "observed",
    }
}

impl BreakdownEntry {
    /// One operation of a prediction.
    #[must_use]
    pub fn new(op: &Op, prediction: &Prediction) -> Self {
        Self {
            op: describe(op),
            time_s: prediction.time.value.get(),
            flops: prediction.cost.work.get(),
            bytes: prediction.cost.traffic.get(),
        }
    }
}

/// `gemv 4096x4096`, `gemm 8x4096x4096`, `attention 1x32/8x128 +1@1024`.
#[must_use]
pub fn describe(op: &Op) -> String {
    match *op {
        Op::Gemv { n, k } => format!("gemv {n}x{k}"),
        Op::Gemm { m, n, k } => format!("gemm {m}x{n}x{k}"),
        Op::Attention { batch, heads, kv_heads, query_tokens, context_tokens, head_dim, window } => {
            let window = window.map_or_else(String::new, |window| format!(" window {window}"));
            format!(
                "attention {batch}x{heads}/{kv_heads}x{head_dim} +{query_tokens}@{context_tokens}{window}"
            )
        }
    }
}
