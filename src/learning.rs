//! Learning from what services measured: one multiplicative residual per (engine, operation, format).
//!
//! The residual is the mean of log(measured / predicted) with a weight that forgets older observations, so a factor
//! learnt at one shape corrects the others of the same kind.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::precision::WeightFormat;
use crate::predict::{Engine, Prediction, Tier};
use crate::units::Seconds;

/// What a residual belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResidualKey {
    /// Whose kernels.
    pub engine: Engine,
    /// `gemv`, `gemm` or `attention`.
    pub op: String,
    /// Storage of the weights.
    pub format: WeightFormat,
}

/// Running mean and spread of log(measured / predicted).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Residual {
    /// Observations so far.
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
        /// What was reported.
        measured: Seconds,
        /// The bound.
        bound: Seconds,
        /// Bound over measured.
        ratio: f64,
    },
    /// Beyond belief, most likely a unit mistake.
    #[error("{measured} is {ratio:.0} times the predicted {predicted}: expected seconds for one run")]
    Outlier {
        /// What was reported.
        measured: Seconds,
        /// The prediction.
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
    /// As a list, because the key is a structure.
    entries: Vec<(ResidualKey, Residual)>,
}

impl Residuals {
    /// Most keys kept; engines x operations x formats stay far below it.
    const MAX_ENTRIES: usize = 512;

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
        let bound = predicted.roofline_time;
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
        match self.get(key) {
            Some(residual) => {
                // 1.645 standard deviations hold 90 % of a normal distribution.
                let prior = PRIOR_LOG_SD * PRIOR_LOG_SD / f64::from(residual.count);
                let half_width = (1.645 * (residual.log_variance + prior).sqrt()).exp_m1();
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

    /// Observations by engine.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, u32> {
        let mut counts = BTreeMap::new();
        for (key, residual) in &self.entries {
            *counts.entry(key.engine.key()).or_insert(0) += residual.count;
        }
        counts
    }
}
