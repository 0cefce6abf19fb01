//! Operations and what they cost: work, traffic and weights.
//!
//! Formulas count a multiply-add as two operations and every operand once: each weight, each input, each output.

use serde::Serialize;
use thiserror::Error;

use crate::precision::NumericFormat;
use crate::units::{ArithmeticIntensity, Bytes, Flops};

pub use crate::names::Op;

/// Largest dimension admitted; products of three stay far below what an `f64` counts exactly enough.
pub const MAX_DIMENSION: u64 = 1 << 32;

/// An operation that cannot exist.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidOp {
    /// A dimension of zero or beyond [`MAX_DIMENSION`].
    #[error("{field} is {value}; it must lie between 1 and {MAX_DIMENSION}")]
    Dimension { field: &'static str, value: u64 },
    /// Query heads must be a whole multiple of key/value heads.
    #[error("{heads} heads cannot share {kv_heads} key/value heads evenly")]
    HeadGroups { heads: u64, kv_heads: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    pub work: Flops,
    /// Bytes that must cross the memory interface at least once.
    pub traffic: Bytes,
    /// Weights read (each costs the core its dequantization).
    pub weights: f64,
}

impl Cost {
    /// Work over traffic.
    #[must_use]
    pub fn intensity(&self) -> ArithmeticIntensity {
        self.work / self.traffic
    }
}

#[expect(clippy::cast_precision_loss, reason = "dimensions are bounded by MAX_DIMENSION = 2^32")]
const fn f(value: u64) -> f64 {
    value as f64
}

impl Op {
    /// A product with one row is a GEMV, whatever it is called.
    #[must_use]
    pub const fn canonical(self) -> Self {
        match self {
            Self::Gemm { m: 1, n, k } => Self::Gemv { n, k },
            other => other,
        }
    }

    /// Tokens (columns, new query tokens of all sequences) of one run.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        match *self {
            Self::Gemv { .. } => 1,
            Self::Gemm { m, .. } => m,
            Self::Attention { batch, query_tokens, .. } => batch.saturating_mul(query_tokens),
        }
    }

    /// Checks every dimension.
    ///
    /// # Errors
    /// Names the first field that is zero or too large, or heads that do not divide.
    pub fn validate(&self) -> Result<(), InvalidOp> {
        let check = |fields: &[(&'static str, u64)]| {
            fields
                .iter()
                .find(|(_, value)| !(1..=MAX_DIMENSION).contains(value))
                .map_or(Ok(()), |&(field, value)| Err(InvalidOp::Dimension { field, value }))
        };
        match *self {
            Self::Gemv { n, k } => check(&[("n", n), ("k", k)]),
            Self::Gemm { m, n, k } => check(&[("m", m), ("n", n), ("k", k)]),
            Self::Attention { batch, heads, kv_heads, query_tokens, context_tokens, head_dim, window } => {
                check(&[
                    ("batch", batch),
                    ("heads", heads),
                    ("kv_heads", kv_heads),
                    ("query_tokens", query_tokens),
                    // A prompt's first chunk has no context yet.
                    ("context_tokens", context_tokens.max(1)),
                    ("head_dim", head_dim),
                    ("window", window.unwrap_or(1)),
                ])?;
                if heads % kv_heads == 0 { Ok(()) } else { Err(InvalidOp::HeadGroups { heads, kv_heads }) }
            }
        }
    }

    /// Work, traffic and weights of a valid operation.
    ///
    /// GEMM and GEMV: `2mnk` operations; weights, inputs and outputs once each. Attention: `QK^T` and `PV` are
    /// `4 x heads x head_dim` operations for every (query, visible key) pair; queries in, outputs out, and the
    /// keys and values that any query of the sequence can see, once each: shared by a group of query heads.
    #[must_use]
    pub fn cost(&self, format: &NumericFormat) -> Cost {
        match *self {
            Self::Gemv { n, k } => Self::Gemm { m: 1, n, k }.cost(format),
            Self::Gemm { m, n, k } => {
                let (m, n, k) = (f(m), f(n), f(k));
                let weights = n * k;
                Cost {
                    work: Flops(2.0 * m * weights),
                    traffic: format.weights.bytes(weights) + format.activations.bytes(m * k + m * n),
                    weights,
                }
            }
            Self::Attention { batch, heads, kv_heads, query_tokens, context_tokens, head_dim, window } => {
                let (tokens, context) = (f(query_tokens), f(context_tokens));
                let visible = visible_keys(tokens, context, window.map(f));
                // Keys no query can see any more are not read: the first query still sees window-1 back.
                let read = (context + tokens).min(window.map_or(f64::INFINITY, |w| f(w) + tokens - 1.0));
                let queries = f(batch) * tokens * f(heads) * f(head_dim);
                Cost {
                    work: Flops(4.0 * f(batch) * f(heads) * f(head_dim) * visible),
                    traffic: format.activations.bytes(2.0 * queries)
                        + format.kv_cache.bytes(2.0 * f(batch) * read * f(kv_heads) * f(head_dim)),
                    weights: 0.0,
                }
            }
        }
    }
}

/// (query, key) pairs of one head: query `t` (from 1) sees itself and everything before it, `context + t` keys, or
/// the last `window` of them.
pub fn visible_keys(tokens: f64, context: f64, window: Option<f64>) -> f64 {
    // sum of min(context + t, window) for t in 1..=tokens, in closed form
    let full = |count: f64| count * context + count * (count + 1.0) / 2.0;
    let Some(window) = window else { return full(tokens) };
    let growing = (window - context).clamp(0.0, tokens).floor();
    full(growing) + (tokens - growing) * window
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precision::WeightFormat;

    fn stored(weights: WeightFormat) -> NumericFormat {
        NumericFormat::stored(weights)
    }

    #[test]
    fn a_gemv_reads_each_weight_once() {
        let cost = Op::Gemv { n: 4096, k: 4096 }.cost(&stored(WeightFormat::Fp16));
        assert_eq!(cost.work, Flops(2.0 * 4096.0 * 4096.0));
        assert_eq!(cost.traffic, Bytes(2.0 * (4096.0 * 4096.0 + 2.0 * 4096.0)));
        assert_eq!(cost.weights, 4096.0 * 4096.0);
    }

    /// Times of the plain roofline over the weights alone, as textbooks and data sheets quote them.
    #[test]
    fn known_gemv_times() {
        let weights = 4096.0 * 4096.0;
        let microseconds =
            |format: WeightFormat, bandwidth: f64| (format.bytes(weights).get() / bandwidth * 1e6).round();
        assert_eq!(microseconds(WeightFormat::Fp16, 287e9), 117.0);
        assert_eq!(microseconds(WeightFormat::Fp16, 60e9), 559.0);
        assert_eq!(microseconds(WeightFormat::Int8, 60e9), 280.0);
    }

    #[test]
    fn a_decode_step_of_attention_reads_the_cache_once_per_group() {
        let op = |kv_heads| Op::Attention {
            batch: 2,
            heads: 32,
            kv_heads,
            query_tokens: 1,
            context_tokens: 1023,
            head_dim: 128,
            window: None,
        };
        let (mha, gqa, mqa) = (
            op(32).cost(&stored(WeightFormat::Fp16)),
            op(8).cost(&stored(WeightFormat::Fp16)),
            op(1).cost(&stored(WeightFormat::Fp16)),
        );
        let queries = 2.0 * 2.0 * 2.0 * 32.0 * 128.0;
        for (cost, kv_heads) in [(mha, 32.0), (gqa, 8.0), (mqa, 1.0)] {
            assert_eq!(cost.work, Flops(4.0 * 2.0 * 32.0 * 128.0 * 1024.0));
            assert_eq!(cost.traffic, Bytes(queries + 2.0 * 2.0 * 2.0 * 1024.0 * kv_heads * 128.0));
        }
    }

    /// The closed form against the sum it stands for.
    #[test]
    fn causal_and_windowed_prefill_count_every_visible_pair() {
        for (tokens, context, window) in [
            (7, 0, None),
            (7, 5, None),
            (7, 0, Some(3)),
            (7, 5, Some(8)),
            (7, 5, Some(3)),
            (1, 100, Some(100)),
            (64, 3, Some(1)),
        ] {
            let expected: u64 = (1..=tokens).map(|t| (context + t).min(window.unwrap_or(u64::MAX))).sum();
            assert_eq!(
                visible_keys(f(tokens), f(context), window.map(f)),
                f(expected),
                "{tokens} {context} {window:?}"
            );
        }
    }

    #[test]
    fn impossible_dimensions_are_named() {
        assert_eq!(Op::Gemv { n: 0, k: 1 }.validate(), Err(InvalidOp::Dimension { field: "n", value: 0 }));
        let huge = 1_000_000_000_000_000_000;
        assert_eq!(
            Op::Gemm { m: 1, n: 1, k: huge }.validate(),
            Err(InvalidOp::Dimension { field: "k", value: huge })
        );
        let uneven = Op::Attention {
            batch: 1,
            heads: 32,
            kv_heads: 5,
            query_tokens: 1,
            context_tokens: 0,
            head_dim: 128,
            window: None,
        };
        assert_eq!(uneven.validate(), Err(InvalidOp::HeadGroups { heads: 32, kv_heads: 5 }));
    }
}
