//! Learning from what services measured: one multiplicative residual per (engine, operation, rows, format).
//!
//! The residual is the robust mean (`robust_mean`) of log(measured / predicted) over the last [`WINDOW`] reports, so a
//! factor learnt at one shape corrects the others of the same kind, and one wild report among several moves nothing.

pub mod anchor;
pub mod change;
pub mod conformal;
pub mod cpu;
pub mod cpu_run;
pub mod fit;
pub mod metered;
pub mod models;
pub mod networks;
pub mod nnls;
pub mod power;
pub mod report;
pub mod reports;
mod run;
pub mod vet;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thiserror::Error;

use self::networks::NetworkReport;
use self::report::{Moved, Report, Selection};
use crate::calibration::median;
use crate::{Engine, Prediction, Tier};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{Seconds, significant};

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
    Network(Box<networks::MeasuredNetwork>),
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

/// Centre and spread of log(measured / predicted).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    pub count: u32,
    /// Robust mean of the logarithm.
    pub log_mean: f64,
    /// Mean squared deviation of the logarithms that the mean rests on.
    pub log_variance: f64,
}

impl Residual {
    /// Of at least one report.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "at most WINDOW reports"
    )]
    fn of(logs: &[f64]) -> Self {
        let believed = near_median(logs);
        let log_mean = believed.iter().sum::<f64>() / believed.len() as f64;
        let squares: f64 = believed.iter().map(|log| (log - log_mean).powi(2)).sum();
        Self { count: logs.len() as u32, log_mean, log_variance: squares / believed.len() as f64 }
    }
}

/// Logarithms of measured times further than this ratio from their median are outliers.
const OUTLIER_FROM_MEDIAN: f64 = 1.6;

/// The logarithms that are not outliers; where all are, as of two that disagree, their median.
fn near_median(logs: &[f64]) -> Vec<f64> {
    let Some(middle) = median(logs.iter().copied()) else { return Vec::new() };
    let near: Vec<f64> =
        logs.iter().copied().filter(|log| (log - middle).abs() <= OUTLIER_FROM_MEDIAN.ln()).collect();
    if near.is_empty() { vec![middle] } else { near }
}

/// Mean of the logarithms that are not outliers; 0 without any.
#[expect(clippy::cast_precision_loss, reason = "a count of runs")]
fn robust_mean(logs: &[f64]) -> f64 {
    let near = near_median(logs);
    near.iter().sum::<f64>() / near.len().max(1) as f64
}

/// A measured time of an operation, as it was reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpReport {
    pub report: Report,
    pub key: ResidualKey,
    /// What ran.
    pub op: Op,
    /// As it was measured.
    pub time: Seconds,
    /// ln(measured / predicted), by the ceilings of then.
    pub log_ratio: f64,
}

impl OpReport {
    /// A report of a measured time, `predicted` being without what was learnt.
    ///
    /// # Errors
    /// An impossible time or an outlier is refused with the reason.
    pub fn vetted(
        report: Report,
        key: ResidualKey,
        op: Op,
        predicted: &Prediction,
        measured: Seconds,
    ) -> Result<Self, Refused> {
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
        Ok(Self { report, key, op, time: measured, log_ratio: ratio.ln() })
    }

    /// Whether no number in it can spoil an answer.
    fn is_sound(&self) -> bool {
        self.log_ratio.abs() < 100.0 && self.time.get().is_finite() && self.report.unix_s.is_finite()
    }

    fn is_selected(&self, which: &Selection) -> bool {
        which.takes(&self.report, self.key.engine.key(), None, Some(&self.key.op), self.key.format.key())
    }
}

/// What was learnt nearest to a key, and how many steps of rows away it is.
struct Nearest<'a> {
    key: &'a ResidualKey,
    residual: &'a Residual,
    away: u32,
}

/// An observation that was not learnt from.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Refused {
    /// Faster than the physical bound.
    #[error(
        "{measured} is {} times faster than the physical bound of {bound}: bytes, shape or unit are wrong", significant(*ratio))]
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
    #[error("{measured} is {} times the predicted {predicted}: expected seconds for one run", significant(*ratio))]
    Outlier {
        measured: Seconds,
        predicted: Seconds,
        /// Measured over predicted.
        ratio: f64,
    },
}

impl Refused {
    /// For the user who reported it; `time_field` is the one that the time came in.
    #[must_use]
    pub fn refusal(&self, time_field: &str) -> Refusal {
        let hint = "give the time of one run of this operation in seconds";
        match self {
            Self::NotCalibrated => Code::NotCalibrated.error(
                "this machine is not calibrated yet, so there is nothing to correct",
                "run rooflinectl calibrate first",
            ),
            Self::Impossible { .. } | Self::Outlier { .. } => {
                Code::ImpossibleObservation.at(time_field, self.to_string(), hint)
            }
        }
    }
}

/// An observation may lie this far beyond the bound before it is called impossible: ceilings have intervals too.
const BOUND_TOLERANCE: f64 = 1.05;
/// Slower than this many times the prediction is a unit mistake rather than a slow engine.
const OUTLIER_RATIO: f64 = 100.0;
/// Most reports kept of one kind; the oldest leave first.
pub const WINDOW: usize = 20;
/// Standard deviation of the logarithm assumed before there are observations to tell it.
const PRIOR_LOG_SD: f64 = 0.1;

/// All residuals of one machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Residuals {
    /// The machine they were learnt on, as the governor names it.
    machine: Option<String>,
    /// Oldest first.
    reports: Vec<Arc<OpReport>>,
    /// Runs of vision networks, oldest first.
    #[serde(default)]
    networks: Vec<Arc<NetworkReport>>,
    /// What follows from the reports.
    #[serde(skip)]
    entries: BTreeMap<ResidualKey, Residual>,
}

impl Residuals {
    /// Most keys kept; engines x operations x formats stay far below it.
    const MAX_ENTRIES: usize = 512;

    /// These residuals if they were learnt on `machine`, none otherwise.
    #[must_use]
    pub fn of(mut self, machine: String) -> Self {
        if self.machine.as_ref() != Some(&machine) {
            return Self { machine: Some(machine), ..Self::default() };
        }
        let keys: BTreeSet<ResidualKey> = self.reports.iter().map(|report| report.key.clone()).collect();
        keys.iter().for_each(|key| self.settle(key));
        self
    }

    /// Learns from one measured time.
    ///
    /// # Errors
    /// An impossible time or an outlier is refused with the reason.
    pub fn observe(
        &mut self,
        key: ResidualKey,
        op: Op,
        predicted: &Prediction,
        measured: Seconds,
    ) -> Result<(), Refused> {
        self.admit(Arc::new(OpReport::vetted(Report::default(), key, op, predicted, measured)?));
        Ok(())
    }

    /// Learns from a report that was vetted.
    pub fn admit(&mut self, report: Arc<OpReport>) {
        let key = report.key.clone();
        if self.get(&key).is_none()
            && self.entries.len() == Self::MAX_ENTRIES
            && let Some(oldest) = self.reports.first().map(|oldest| oldest.key.clone())
        {
            self.reports.retain(|known| known.key != oldest);
            self.entries.remove(&oldest);
        }
        self.reports.push(report);
        if self.of_key(&key).count() > WINDOW
            && let Some(oldest) = self.reports.iter().position(|known| known.key == key)
        {
            self.reports.remove(oldest);
        }
        self.settle(&key);
    }

    /// Learns from a run of a network that was vetted.
    pub fn admit_network(&mut self, report: Arc<NetworkReport>) {
        self.networks.push(report);
        if self.networks.len() > networks::MAX_REPORTS {
            self.networks.remove(0);
        }
    }

    /// Runs of vision networks, oldest first.
    #[must_use]
    pub fn networks(&self) -> &[Arc<NetworkReport>] {
        &self.networks
    }

    /// The same with what one user reported laid over it.
    #[must_use]
    pub fn with_own(&self, own: &[Arc<OpReport>], networks: &[Arc<NetworkReport>]) -> Self {
        let mut view = self.clone();
        own.iter().for_each(|report| view.admit(Arc::clone(report)));
        networks.iter().for_each(|report| view.admit_network(Arc::clone(report)));
        view
    }

    /// Whether any report is meant.
    fn has(&self, which: &Selection) -> bool {
        self.reports.iter().any(|report| report.is_selected(which))
            || self.networks.iter().any(|report| report.is_selected(which))
    }

    /// Forgets the reports that are meant and returns their number.
    fn forget(&mut self, which: &Selection) -> usize {
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.reports).into_iter().partition(|report| report.is_selected(which));
        self.reports = kept;
        gone.iter().for_each(|report| self.settle(&report.key));
        let before = self.networks.len();
        self.networks.retain(|report| !report.is_selected(which));
        gone.len() + before - self.networks.len()
    }

    /// Every report that is kept, oldest first.
    pub fn reports(&self) -> impl Iterator<Item = &Arc<OpReport>> {
        self.reports.iter()
    }

    fn of_key(&self, key: &ResidualKey) -> impl Iterator<Item = &Arc<OpReport>> {
        self.reports.iter().filter(move |report| report.key == *key)
    }

    /// Works out what follows from the reports of a key.
    fn settle(&mut self, key: &ResidualKey) {
        let logs: Vec<f64> = self.of_key(key).map(|report| report.log_ratio).collect();
        if logs.is_empty() {
            self.entries.remove(key);
        } else {
            self.entries.insert(key.clone(), Residual::of(&logs));
        }
    }

    fn nearest(&self, key: &ResidualKey) -> Option<Nearest<'_>> {
        let alike = self.entries.iter().filter(|(known, _)| known.like(key));
        let (known, residual) = alike.min_by_key(|(known, _)| known.rows.abs_diff(key.rows))?;
        Some(Nearest { key: known, residual, away: known.rows.abs_diff(key.rows) })
    }

    /// The prediction with what was learnt for its key; unchanged where nothing was.
    #[must_use]
    pub fn correct(&self, key: &ResidualKey, prediction: Prediction) -> Prediction {
        let Some(Nearest { key, residual, away }) = self.nearest(key) else { return prediction };
        // 1.645 standard deviations hold 90 % of a normal distribution. Each step away in rows is worth as much doubt as
        // knowing nothing but the kind of kernel.
        let prior = PRIOR_LOG_SD * PRIOR_LOG_SD / f64::from(residual.count);
        let away = f64::from(away) * PRIOR_LOG_SD;
        let half_width = (1.645 * (residual.log_variance + prior + away * away).sqrt()).exp_m1();
        let mut corrected = prediction.corrected(residual.log_mean.exp(), half_width, Tier::Anchored);
        corrected.moved = Moved::default();
        self.of_key(key).for_each(|report| corrected.moved.count(&report.report.source));
        corrected
    }

    /// What was learnt for a key.
    #[must_use]
    pub fn get(&self, key: &ResidualKey) -> Option<&Residual> {
        self.entries.get(key)
    }

    /// Everything learnt.
    pub fn iter(&self) -> impl Iterator<Item = (&ResidualKey, &Residual)> {
        self.entries.iter()
    }

    /// Why what was read from a file cannot be used.
    ///
    /// # Errors
    /// A number that no measurement can have led to.
    pub fn check(&self) -> Result<(), String> {
        if self.reports.iter().all(|op| op.is_sound())
            && self.networks.iter().all(|network| network.is_sound())
        {
            return Ok(());
        }
        Err("it holds a correction that no measurement can have led to".into())
    }

    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, u32> {
        let mut counts = BTreeMap::new();
        for (key, residual) in &self.entries {
            *counts.entry(key.engine.key()).or_insert(0) += residual.count;
        }
        for network in &self.networks {
            *counts.entry(network.point.engine.key()).or_insert(0) += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EngineProfile, predict};
    use rooflined_core::ceilings::{Ceiling, Provenance, Roofline};
    use rooflined_core::precision::{NumericFormat, Precision};
    use rooflined_core::units::{BytesPerSecond, FlopsPerSecond};

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
        predict(&roofline, &EngineProfile::unknown(Engine::Torch), op, &format).unwrap()
    }

    fn exact<R: Copy>(value: R) -> Ceiling<R> {
        Ceiling { value, low: value, high: value, provenance: Provenance::Measured }
    }

    fn key(op: &Op) -> ResidualKey {
        ResidualKey::new(Engine::Torch, op, WeightFormat::Fp32)
    }

    #[test]
    fn a_factor_learnt_at_one_shape_corrects_others_of_its_kind() {
        let (small, large) = (Op::Gemv { n: 2048, k: 2048 }, Op::Gemv { n: 4096, k: 4096 });
        let mut residuals = Residuals::default();
        for _ in 0..10 {
            residuals
                .observe(key(&small), small, &predicted(&small), predicted(&small).time.value * 1.5)
                .unwrap();
        }
        let plain = predicted(&large);
        let corrected = residuals.correct(&key(&large), plain.clone());
        assert!((corrected.time.value / plain.time.value - 1.5).abs() < 1e-9);
        assert_eq!(corrected.tier, Tier::Anchored);
        assert!(corrected.time.high / corrected.time.low < plain.time.high / plain.time.low);
        let other =
            residuals.correct(&ResidualKey::new(Engine::Vllm, &large, WeightFormat::Fp32), plain.clone());
        assert_eq!(other, plain, "another engine has learnt nothing");
    }

    #[test]
    fn one_wild_report_among_several_moves_nothing() {
        let op = Op::Gemv { n: 4096, k: 4096 };
        let mut residuals = Residuals::default();
        let factor = |residuals: &Residuals| {
            residuals.correct(&key(&op), predicted(&op)).time.value / predicted(&op).time.value
        };
        for times in [1.49, 1.5, 1.51, 30.0] {
            residuals.observe(key(&op), op, &predicted(&op), predicted(&op).time.value * times).unwrap();
        }
        assert!((factor(&residuals) - 1.5).abs() < 0.01, "{}", factor(&residuals));
        for _ in 0..5 {
            residuals.observe(key(&op), op, &predicted(&op), predicted(&op).time.value * 30.0).unwrap();
        }
        assert!((factor(&residuals) - 30.0).abs() < 0.01, "most reports say so: {}", factor(&residuals));
    }

    #[test]
    fn rows_of_the_same_order_share_a_factor_and_the_nearest_stands_in() {
        let gemm = |m| Op::Gemm { m, n: 4096, k: 4096 };
        assert_eq!(key(&gemm(8)).rows, key(&gemm(12)).rows);
        assert_ne!(key(&gemm(8)).rows, key(&gemm(64)).rows);
        let mut residuals = Residuals::default();
        for (m, factor) in [(8, 2.0), (512, 3.0)] {
            residuals
                .observe(
                    key(&gemm(m)),
                    gemm(m),
                    &predicted(&gemm(m)),
                    predicted(&gemm(m)).time.value * factor,
                )
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
        residuals.observe(key(&op), op, &predicted(&op), bound * 0.97).unwrap();
        assert!(residuals.correct(&key(&op), predicted(&op)).time.low >= bound);
    }

    #[test]
    fn memory_of_the_keys_is_bounded() {
        let mut residuals = Residuals::default();
        let op = Op::Gemv { n: 64, k: 64 };
        for rows in 0..2000 {
            residuals
                .observe(ResidualKey { rows, ..key(&op) }, op, &predicted(&op), predicted(&op).time.value)
                .unwrap();
        }
        assert_eq!(residuals.iter().count(), Residuals::MAX_ENTRIES);
    }
}
