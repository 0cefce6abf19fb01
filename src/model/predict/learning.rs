//! Learning from what services measured: one multiplicative residual per (engine, operation, rows, format).
//!
//! The residual is the mean of log(measured / predicted) over the last [`WINDOW`] reports that are believed, so a factor
//! learnt at one shape corrects the others of the same kind. One that is far off what was predicted is doubted
//! ([`report::is_doubtful`]): it widens the interval until others of its kind agree with it.

pub mod anchor;
pub mod change;
pub mod conformal;
pub mod cpu;
pub mod cpu_run;
pub mod fit;
pub mod metered;
pub mod models;
pub mod nnls;
pub mod power;
pub mod report;
pub mod reports;
mod run;
pub mod vet;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thiserror::Error;

use self::report::{BELIEVED_REPORTS, Moved, Report, Selection, Source, is_doubtful};
use crate::{Engine, Prediction, Tier};
use roofline::precision::WeightFormat;
use roofline::refusal::{Code, Refusal};
use roofline::units::{Seconds, significant};
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
    /// The least and the greatest logarithm of reports that are doubted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubted: Option<(f64, f64)>,
}

impl Residual {
    const NONE: Self = Self { count: 0, log_mean: 0.0, log_variance: 0.0, doubted: None };

    fn take(&mut self, log: f64) {
        self.count = self.count.saturating_add(1);
        let weight = 1.0 / f64::from(self.count.min(WINDOW));
        let deviation = log - self.log_mean;
        self.log_mean += weight * deviation;
        self.log_variance = (1.0 - weight) * (self.log_variance + weight * deviation * deviation);
    }
}

/// A measured time of an operation, as it was reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpReport {
    pub report: Report,
    pub key: ResidualKey,
    /// What ran; `None` where it is of no one operation.
    pub op: Option<Op>,
    /// As it was measured.
    pub time: Seconds,
    /// ln(measured / predicted), by the ceilings of then.
    pub log_ratio: f64,
    /// It was far off what was predicted.
    pub doubtful: bool,
}

impl OpReport {
    /// As everybody believes it from now on.
    fn believed(&self, id: u64, source: Source) -> Self {
        Self { report: Report { id, source, ..self.report.clone() }, doubtful: false, ..self.clone() }
    }

    /// Whether no number in it can spoil an answer.
    fn is_sound(&self) -> bool {
        self.log_ratio.abs() < 100.0 && self.time.get().is_finite() && self.report.unix_s.is_finite()
    }

    fn is_selected(&self, which: &Selection) -> bool {
        which.takes(&self.report, self.key.engine, None, Some(&self.key.op), self.key.format.key())
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
    /// For whoever reported it; `time_field` is the one that the time came in.
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
/// Observations beyond this many weigh as an exponential window.
pub const WINDOW: u32 = 20;
/// Logarithms that differ by less say the same again.
const SAME_TIME: f64 = 1e-9;
/// Said with a prediction that reaches to doubted reports.
const DOUBTED: &str = "a reported time contradicts the calibrated costs: the interval reaches to it, and the prediction moves \
                       only if others agree with it; see rooflinectl observations list";
/// Standard deviation of the logarithm assumed before there are observations to tell it.
const PRIOR_LOG_SD: f64 = 0.1;

/// All residuals of one machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Residuals {
    /// The machine they were learnt on, as the governor names it.
    #[serde(default)]
    machine: Option<String>,
    /// What follows from the reports. As a list, because the key is a structure.
    entries: Vec<(ResidualKey, Residual)>,
    /// What was learnt from reports that were not kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<(ResidualKey, Residual)>,
    /// Oldest first.
    #[serde(default)]
    reports: Vec<Arc<OpReport>>,
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
        Self { machine: Some(machine), ..Self::default() }
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
        let report = Report { source: Source::Supposed, ..Report::default() };
        let vetted = self.vetted(report, key, None, predicted, measured)?;
        self.admit(Arc::new(vetted));
        Ok(())
    }

    /// A report of a measured time as it would be learnt from, `predicted` being without what was learnt.
    ///
    /// # Errors
    /// An impossible time or an outlier is refused with the reason.
    pub fn vetted(
        &self,
        report: Report,
        key: ResidualKey,
        op: Option<Op>,
        predicted: &Prediction,
        measured: Seconds,
    ) -> Result<OpReport, Refused> {
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
        let known = self.nearest(&key).map_or(&Residual::NONE, |nearest| nearest.residual);
        let log_sd = (predicted.time.high / predicted.time.value).ln() / 1.645;
        let doubtful = is_doubtful(ratio.ln() - known.log_mean, log_sd);
        Ok(OpReport { report, key, op, time: measured, log_ratio: ratio.ln(), doubtful })
    }

    /// Learns from a report that was vetted.
    pub fn admit(&mut self, report: Arc<OpReport>) {
        let key = report.key.clone();
        if self.of_key(&key).next().is_none()
            && let Some(known) = self.entries.iter().find(|(known, _)| *known == key)
            && !self.earlier.iter().any(|(known, _)| *known == key)
        {
            self.earlier.push(known.clone());
        }
        if self.get(&key).is_none() && self.entries.len() == Self::MAX_ENTRIES {
            let (oldest, _) = self.entries.remove(0);
            self.earlier.retain(|(known, _)| *known != oldest);
            self.reports.retain(|known| known.key != oldest);
        }
        self.reports.push(report);
        if self.of_key(&key).count() > WINDOW as usize {
            self.earlier.retain(|(known, _)| *known != key);
            if let Some(oldest) = self.reports.iter().position(|known| known.key == key) {
                self.reports.remove(oldest);
            }
        }
        self.settle(&key);
    }

    /// The same with what one user reported laid over it.
    #[must_use]
    pub fn with_own(&self, own: &[Arc<OpReport>]) -> Self {
        let mut view = self.clone();
        own.iter().for_each(|report| view.admit(Arc::clone(report)));
        view
    }

    /// Whether any report is meant, or what was learnt from reports that were not kept.
    fn has(&self, which: &Selection) -> bool {
        self.reports.iter().any(|report| report.is_selected(which))
            || self.unrecorded().any(|(key, _)| is_unrecorded_meant(which, key))
    }

    /// What was learnt from reports that were not kept.
    pub fn unrecorded(&self) -> impl Iterator<Item = (&ResidualKey, &Residual)> {
        let since = self.entries.iter().filter(|(key, _)| {
            self.of_key(key).next().is_none() && !self.earlier.iter().any(|(known, _)| known == key)
        });
        since.chain(&self.earlier).map(|(key, residual)| (key, residual))
    }

    /// Forgets the reports that are meant, and says how many. What was learnt from reports that were not kept has no number and
    /// no user: it is forgotten with everybody's of its kind, and counts as one.
    fn forget(&mut self, which: &Selection) -> usize {
        let meant: Vec<ResidualKey> = self
            .unrecorded()
            .map(|(key, _)| key)
            .filter(|key| is_unrecorded_meant(which, key))
            .cloned()
            .collect();
        let mut count = meant.len();
        let mut keys: Vec<ResidualKey> = meant;
        self.earlier.retain(|(key, _)| !keys.contains(key));
        self.reports.retain(|report| {
            let gone = report.is_selected(which);
            if gone {
                keys.push(report.key.clone());
                count += 1;
            }
            !gone
        });
        keys.iter().for_each(|key| self.settle(key));
        count
    }

    /// Forgets what independent users agreed on of a key.
    fn forget_agreed(&mut self, key: &ResidualKey) {
        let is_agreed = |report: &OpReport| matches!(report.report.source, Source::Agreed { .. });
        let before = self.reports.len();
        self.reports.retain(|report| report.key != *key || !is_agreed(report));
        if self.reports.len() < before {
            self.settle(key);
        }
    }

    /// Whether anything is doubted, which a calibration contradicts a second time.
    #[must_use]
    pub fn awaits_calibration(&self) -> bool {
        self.entries.iter().any(|(_, residual)| residual.doubted.is_some())
    }

    /// The machine was calibrated again: what was doubted contradicts a second measurement.
    pub fn recalibrated(&mut self) {
        let doubted: Vec<ResidualKey> = self
            .entries
            .iter()
            .filter(|(_, residual)| residual.doubted.is_some())
            .map(|(key, _)| key.clone())
            .collect();
        for key in doubted {
            let refuted: Vec<Arc<OpReport>> = self.doubted_of(&key).cloned().collect();
            self.reports.retain(|report| !refuted.iter().any(|gone| Arc::ptr_eq(gone, report)));
            self.settle(&key);
        }
    }

    /// Every report that is kept, oldest first.
    pub fn reports(&self) -> impl Iterator<Item = &Arc<OpReport>> {
        self.reports.iter()
    }

    /// Whether a report is kept and not believed.
    #[must_use]
    pub fn doubts(&self, report: &OpReport) -> bool {
        report.doubtful && self.is_alone(report)
    }

    fn of_key(&self, key: &ResidualKey) -> impl Iterator<Item = &Arc<OpReport>> {
        self.reports.iter().filter(move |report| report.key == *key)
    }

    fn doubted_of(&self, key: &ResidualKey) -> impl Iterator<Item = &Arc<OpReport>> {
        self.of_key(key).filter(|report| self.doubts(report))
    }

    /// Too few that are far off agree with it. Saying the same again is no second opinion.
    fn is_alone(&self, report: &OpReport) -> bool {
        let mut agreeing: Vec<f64> = self
            .of_key(&report.key)
            .filter(|other| other.doubtful && report::agree(other.log_ratio, report.log_ratio))
            .map(|other| other.log_ratio)
            .collect();
        agreeing.sort_by(f64::total_cmp);
        agreeing.dedup_by(|a, b| (*a - *b).abs() < SAME_TIME);
        agreeing.len() < BELIEVED_REPORTS
    }

    /// Works out what follows from the reports of a key.
    fn settle(&mut self, key: &ResidualKey) {
        let earlier = self.earlier.iter().find(|(known, _)| known == key).map(|(_, residual)| *residual);
        let mut residual = earlier.unwrap_or(Residual::NONE);
        residual.doubted = None;
        for report in self.of_key(key) {
            if self.doubts(report) {
                let (low, high) = residual.doubted.unwrap_or((f64::INFINITY, f64::NEG_INFINITY));
                residual.doubted = Some((low.min(report.log_ratio), high.max(report.log_ratio)));
            } else {
                residual.take(report.log_ratio);
            }
        }
        let known = self.entries.iter().position(|(known, _)| known == key);
        match (known, residual.count > 0 || residual.doubted.is_some()) {
            (Some(index), true) => self.entries[index].1 = residual,
            (None, true) => self.entries.push((key.clone(), residual)),
            (Some(index), false) => drop(self.entries.remove(index)),
            (None, false) => {}
        }
    }

    fn nearest(&self, key: &ResidualKey) -> Option<Nearest<'_>> {
        let alike = self.entries.iter().filter(|(known, residual)| residual.count > 0 && known.like(key));
        let (known, residual) = alike.min_by_key(|(known, _)| known.rows.abs_diff(key.rows))?;
        Some(Nearest { key: known, residual, away: known.rows.abs_diff(key.rows) })
    }

    /// The prediction with what was learnt for its key; unchanged where nothing was.
    #[must_use]
    pub fn correct(&self, key: &ResidualKey, prediction: Prediction) -> Prediction {
        let moved = self.moved(key);
        let (mut corrected, mean) = match self.nearest(key) {
            Some(Nearest { residual, away, .. }) => {
                // 1.645 standard deviations hold 90 % of a normal distribution. Each step away in rows is worth as
                // much doubt as knowing nothing but the kind of kernel.
                let prior = PRIOR_LOG_SD * PRIOR_LOG_SD / f64::from(residual.count);
                let away = f64::from(away) * PRIOR_LOG_SD;
                let half_width = (1.645 * (residual.log_variance + prior + away * away).sqrt()).exp_m1();
                let factor = residual.log_mean.exp();
                (prediction.corrected(factor, half_width, Tier::Anchored), residual.log_mean)
            }
            None => (prediction, 0.0),
        };
        if let Some((low, high)) = self.get(key).and_then(|residual| residual.doubted) {
            corrected = corrected.reaching((high - mean).exp().max(1.0), (mean - low).exp().max(1.0));
            corrected.warnings.push(DOUBTED.to_owned());
        }
        corrected.moved = moved;
        corrected
    }

    /// How many reports move the prediction of a key.
    #[must_use]
    pub fn moved(&self, key: &ResidualKey) -> Moved {
        let doubted = self.doubted_of(key).count();
        let mut moved = Moved { doubted: u32::try_from(doubted).unwrap_or(u32::MAX), ..Moved::default() };
        if let Some(Nearest { key, residual, .. }) = self.nearest(key) {
            let believed = self.of_key(key).filter(|report| !self.doubts(report));
            believed.for_each(|report| moved.count(&report.report.source));
            // Those that were not kept were believed by everybody.
            moved.confirmed += residual.count.saturating_sub(moved.own + moved.confirmed);
        }
        moved
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

    /// Why what was read from a file cannot be used.
    ///
    /// # Errors
    /// A number that no measurement can have led to.
    pub fn check(&self) -> Result<(), String> {
        let sound = |(_, residual): &(ResidualKey, Residual)| {
            residual.log_variance >= 0.0 && residual.log_mean.abs() < 100.0
        };
        if self.entries.iter().chain(&self.earlier).all(sound) && self.reports.iter().all(|op| op.is_sound())
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
        counts
    }
}

fn is_unrecorded_meant(which: &Selection, key: &ResidualKey) -> bool {
    which.id.is_none() && which.takes(&Report::default(), key.engine, None, Some(&key.op), key.format.key())
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
            whole_clock: None,
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
