//! Values of the model in the shape of the wire.

use rooflined_api::{CeilingAnswer, EstimateAnswer};
use rooflined_core::ceilings::{Ceiling, Provenance};
use rooflined_core::operation::Op;
use rooflined_predict::{Estimate, Tier};

/// An estimate in the base unit.
#[must_use]
pub const fn estimate(of: Estimate<f64>) -> EstimateAnswer {
    EstimateAnswer { value: of.value, low: of.low, high: of.high }
}

/// A ceiling in the base unit; `age_s` counts only where it was measured.
#[must_use]
pub fn ceiling(of: Ceiling<f64>, age_s: Option<f64>) -> CeilingAnswer {
    let measured = matches!(of.provenance, Provenance::Measured | Provenance::Scaled);
    CeilingAnswer {
        value: of.value,
        low: of.low,
        high: of.high,
        provenance: of.provenance.key().to_owned(),
        age_s: age_s.filter(|_| measured),
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

/// A count as a factor.
#[expect(
    clippy::cast_precision_loss,
    reason = "products of checked dimensions; beyond 2^53 a rate needs no more digits"
)]
pub const fn as_f64(value: u64) -> f64 {
    value as f64
}
