//! Learning from what services measured: one multiplicative residual per (engine, operation, rows, format).
//!
//! The residual is the mean of log(measured / predicted) with a weight that forgets older observations, so a factor
//! learnt at one shape corrects the others of the same kind.

pub mod anchor;
pub mod change;
pub mod conformal;
pub mod fit;
pub mod metered;
pub mod models;
pub mod nnls;
pub mod power;
mod run;
pub mod vet;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Engine, Prediction, Tier};
use roofline::precision::WeightFormat;
use roofline::units::Seconds;
use roofline::workload::Op;

/// What a service measured.
#[derive(Debug, Clone, PartialEq)]
pub enum Observed {
    Op {
        engine: Engine,
        op: Op,
        /// Storage of the weights.
        format: WeightFormat,
        time: Seconds,
    },
    Model(Box<models::Measured>),
}

/// What a residual belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResidualKey {
    pub engine: Engine,
    /// `gemv`, `gemm` or `attention`.
    pub op: String,
    /// Power of four nearest to the rows of a GEMM, as its exponent: kernels for a handful of rows and for hundreds
    /// have little in common. 0 for everything else.
    #[serde(default)]
    pub rows: u32,
    /// Storage of the weights.
    pub format: WeightFormat,
}

impl ResidualKey {
    /// The key of an operation.
    #[must_use]
    pub fn new(engine: Engine, op: &Op, format: WeightFormat) -> Self {
        let rows = match *op {
            // Half a step up before the logarithm rounds to the nearest power.
            Op::Gemm { m, .. } => m.saturating_mul(2).max(1).ilog(4),
            Op::Gemv { .. } | Op::Attention { .. } => 0,
        };
        Self { engine, op: op.kind().to_owned(), rows, format }
    }

    fn like(&self, other: &Self) -> bool {
        self.engine == other.engine && self.op == other.op && self.format == other.format
    }
}

/// Running mean and spread of log(measured / predicted).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Residual {
    pub count: u32,
    /// Mean of the logarithm.
    pub log_mean: f64,
    /// Mean squared deviation of the logarithm.
    pub log_variance: f64,
}

/// An observation that was not learnt from.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Refused {
    /// Faster than the physical bound.
    #[error(
        "{measured} is {ratio:.2} times faster than the physical bound of {bound}: bytes, shape or unit are wrong"
    )]
    Impossible {
        measured: Seconds,
        bound: Seconds,
        /// Bound over measured.
        ratio: f64,
    },
    /// There is nothing yet that it could correct.
    #[error(
        "this machine is not calibrated yet, so there is nothing to correct: run rooflinectl calibrate first"
    )]
    NotCalibrated,
    /// Beyond belief, most likely a unit mistake.
    #[error("{measured} is {ratio:.0} times the predicted {predicted}: expected seconds for one run")]
    Outlier {
        measured: Seconds,
        predicted: Seconds,
        /// Measured over predicted.
        ratio: f64,
    },
}

/// An observation may lie this far beyond the bound before it is called impossible: ceilings have intervals too.
const BOUND_TOLERANCE: f64 = 1.05;
/// Slower than this many times the prediction is a unit mistake rather than a slow engine.
const OUTLIER_RATIO: f64 = 100.0;
/// Observations beyond this many weigh as an exponential window.
const WINDOW: u32 = 20;
/// Standard deviation of the logarithm assumed before there are observations to tell it.
const PRIOR_LOG_SD: f64 = 0.1;

/// All residuals of one machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Residuals {
    /// The machine they were learnt on, as the governor names it.
    #[serde(default)]
    machine: Option<String>,
    /// As a list, because the key is a structure.
    entries: Vec<(ResidualKey, Residual)>,
}

impl Residuals {
    /// Most keys kept; engines x operations x formats stay far below it.
    const MAX_ENTRIES: usize = 512;

    /// These residuals if they were learnt on `machine`, none otherwise.
    #[must_use]
    pub fn of(self, machine: String) -> Self {
        if self.machine.as_ref() == Some(&machine) {
            return self;
        }
        Self { machine: Some(machine), entries: Vec::new() }
    }

    /// Learns from one measured time.
    ///
    /// # Errors
    /// An impossible time or an outlier is refused with the reason.
    pub fn observe(
        &mut self,
        key: ResidualKey,
        predicted: &Prediction,
        measured: Seconds,
    ) -> Result<(), Refused> {
        if predicted.tier == Tier::Prior {
            return Err(Refused::NotCalibrated);
        }
        let bound = predicted.floor;
        if measured * BOUND_TOLERANCE < bound {
            return Err(Refused::Impossible { measured, bound, ratio: bound / measured });
        }
        let ratio = measured / predicted.time.value;
        if ratio > OUTLIER_RATIO {
            return Err(Refused::Outlier { measured, predicted: predicted.time.value, ratio });
        }
        let index = match self.entries.iter().position(|(known, _)| *known == key) {
            Some(index) => index,
            None => {
                if self.entries.len() == Self::MAX_ENTRIES {
                    self.entries.remove(0);
                }
                self.entries.push((key, Residual { count: 0, log_mean: 0.0, log_variance: 0.0 }));
                self.entries.len() - 1
            }
        };
        let residual = &mut self.entries[index].1;
        let log = ratio.ln();
        residual.count = residual.count.saturating_add(1);
        let weight = 1.0 / f64::from(residual.count.min(WINDOW));
        let deviation = log - residual.log_mean;
        residual.log_mean += weight * deviation;
        residual.log_variance = (1.0 - weight) * (residual.log_variance + weight * deviation * deviation);
        Ok(())
    }

    /// The prediction with what was learnt for its key; unchanged where nothing was.
    #[must_use]
    pub fn correct(&self, key: &ResidualKey, prediction: Prediction) -> Prediction {
        let nearest = self
            .entries
            .iter()
            .filter(|(known, _)| known.like(key))
            .min_by_key(|(known, _)| known.rows.abs_diff(key.rows));
        match nearest {
            Some((known, residual)) => {
                // 1.645 standard deviations hold 90 % of a normal distribution. Each step away in rows is worth as
                // much doubt as knowing nothing but the kind of kernel.
                let prior = PRIOR_LOG_SD * PRIOR_LOG_SD / f64::from(residual.count);
                let away = f64::from(known.rows.abs_diff(key.rows)) * PRIOR_LOG_SD;
                let half_width = (1.645 * (residual.log_variance + prior + away * away).sqrt()).exp_m1();
                prediction.corrected(residual.log_mean.exp(), half_width, Tier::Anchored)
            }
            None => prediction,
        }
    }

    /// What was learnt for a key.
    #[must_use]
    pub fn get(&self, key: &ResidualKey) -> Option<&Residual> {
        self.entries.iter().find(|(known, _)| known == key).map(|(_, residual)| residual)
    }

    /// Everything learnt.
    pub fn iter(&self) -> impl Iterator<Item = (&ResidualKey, &Residual)> {
        self.entries.iter().map(|(key, residual)| (key, residual))
    }

    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, u32> {
        let mut counts = BTreeMap::new();
        for (key, residual) in &self.entries {
            *counts.entry(key.engine.key()).or_insert(0) += residual.count;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EngineProfile, predict};
    use roofline::ceilings::{Ceiling, Provenance, Roofline};
    use roofline::precision::{NumericFormat, Precision};
    use roofline::units::{BytesPerSecond, FlopsPerSecond};

    fn predicted(op: &Op) -> Prediction {
        let roofline = Roofline {
            bandwidth: exact(BytesPerSecond(50e9)),
            memory_limit: None,
            pull_limit: None,
            curve: Vec::new(),
            copy: None,
            triad: None,
            compute: BTreeMap::from([(Precision::Fp32, exact(FlopsPerSecond(500e9)))]),
            launch: exact(Seconds(1e-6)),
            ramp: Seconds::ZERO,
            workers: 2,
            clock: None,
        };
        let format = NumericFormat::stored(WeightFormat::Fp32);
        predict(&roofline, &EngineProfile::unknown(Engine::Numpy), op, &format).unwrap()
    }

    fn exact<R: Copy>(value: R) -> Ceiling<R> {
        Ceiling { value, low: value, high: value, provenance: Provenance::Measured }
    }

    fn key(op: &Op) -> ResidualKey {
        ResidualKey::new(Engine::Numpy, op, WeightFormat::Fp32)
    }

    #[test]
    fn a_factor_learnt_at_one_shape_corrects_others_of_its_kind() {
        let (small, large) = (Op::Gemv { n: 2048, k: 2048 }, Op::Gemv { n: 4096, k: 4096 });
        let mut residuals = Residuals::default();
        for _ in 0..10 {
            residuals.observe(key(&small), &predicted(&small), predicted(&small).time.value * 1.5).unwrap();
        }
        let plain = predicted(&large);
        let corrected = residuals.correct(&key(&large), plain.clone());
        assert!((corrected.time.value / plain.time.value - 1.5).abs() < 1e-9);
        assert_eq!(corrected.tier, Tier::Anchored);
        assert!(corrected.time.high / corrected.time.low < plain.time.high / plain.time.low);
        let other =
            residuals.correct(&ResidualKey::new(Engine::Torch, &large, WeightFormat::Fp32), plain.clone());
        assert_eq!(other, plain, "another engine has learnt nothing");
    }

    #[test]
    fn rows_of_the_same_order_share_a_factor_and_the_nearest_stands_in() {
        let gemm = |m| Op::Gemm { m, n: 4096, k: 4096 };
        assert_eq!(key(&gemm(8)).rows, key(&gemm(12)).rows);
        assert_ne!(key(&gemm(8)).rows, key(&gemm(64)).rows);
        let mut residuals = Residuals::default();
        for (m, factor) in [(8, 2.0), (512, 3.0)] {
            residuals
                .observe(key(&gemm(m)), &predicted(&gemm(m)), predicted(&gemm(m)).time.value * factor)
                .unwrap();
        }
        let factor = |m| {
            residuals.correct(&key(&gemm(m)), predicted(&gemm(m))).time.value / predicted(&gemm(m)).time.value
        };
        assert!((factor(9) - 2.0).abs() < 1e-9);
        assert!((factor(2000) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_corrected_prediction_is_never_under_the_bound() {
        let op = Op::Gemv { n: 4096, k: 4096 };
        let mut residuals = Residuals::default();
        let bound = predicted(&op).roofline_time;
        residuals.observe(key(&op), &predicted(&op), bound * 0.97).unwrap();
        assert!(residuals.correct(&key(&op), predicted(&op)).time.low >= bound);
    }

    #[test]
    fn memory_of_the_keys_is_bounded() {
        let mut residuals = Residuals::default();
        let op = Op::Gemv { n: 64, k: 64 };
        for rows in 0..2000 {
            residuals
                .observe(ResidualKey { rows, ..key(&op) }, &predicted(&op), predicted(&op).time.value)
                .unwrap();
        }
        assert_eq!(residuals.iter().count(), Residuals::MAX_ENTRIES);
    }
}
