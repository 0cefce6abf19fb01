//! Observed runs of whole models on this machine: a bounded store, and predictions that rest on it.
//!
//! A prediction is the time by the engine's coefficients as its runs here moved them ([`anchor::posterior`]), times the
//! residual of the model's own runs ([`anchor::residual`]). Its interval holds nine of ten of the errors that earlier
//! predictions of its kind turned out to have, each made before its run was seen: of the same engine, phase and tier where
//! there are [`LEAST_ERRORS`], else of the same engine at that tier or a weaker one, else what the scatter of the model's
//! runs or the engine's file says. Where the machine changed ([`change`](super::change)) what was seen before is dropped,
//! and until [`RECOVERED`] runs in a row agree again, intervals are widened by the shift and the tier falls back.
//!
//! Of the runs at one place the outliers are left out (`robust_mean`), so one wild run among several moves
//! nothing. A user's own reports are kept apart from the shared ones ([`reports`](super::reports)) and added to them for that
//! user's answers ([`ObservedRuns::with_own`]).

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::anchor::{self, Anchors, Observation, Residual, RunPoint};
use super::change::Detector;
use super::conformal::{COVERAGE, LEAST_ERRORS};
use super::cpu::FittedCpu;
use super::report::{Moved, Report, Selection, Source};
use super::robust_mean;
pub use super::run::{Measured, ModelQuery};
use super::vet::{self, Refused};
use crate::costs::{EngineCosts, IntervalSource, engine_costs};
use crate::cpu::CpuCosts;
use crate::model::{Costs, Detail, ModelError, ModelRun, PointCeilings, predict_run};
use crate::step::Machine;
use crate::{Engine, EngineProfile, Prediction, Tier};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Seconds, Watts};
use rooflined_models::transformer::{Phase, Run};

/// Most runs kept of one model, format and engine; the oldest leave first.
pub const MAX_RUNS_OF_MODEL: usize = 64;
/// Most runs kept in all.
pub const MAX_RUNS: usize = 1024;
/// Most runs that move an engine's coefficients: the last ones, of which those at one point count as one.
const MAX_FITTED: usize = 256;
/// Most past errors kept of one engine.
const MAX_ERRORS: usize = 256;
/// An error of the past weighs half as much after this many seconds: 30 days.
const HALF_LIFE_S: f64 = 30.0 * 86_400.0;
/// Between two errors, in the order in which they came, passes no more than this: a clock that was set meanwhile, from 1970 or back
/// from the future, leaves what was learned before half of its weight and not nothing.
const LONGEST_GAP_S: f64 = HALF_LIFE_S;
/// Runs in a row within `AGREEING` standard deviations that end an alarm.
pub const RECOVERED: u32 = 10;
const AGREEING: f64 = 2.5;
/// Most runs before an alarm that tell how large the change is and that are kept: the sum begins to rise before it.
const SHIFT_RUNS: usize = 8;
/// No interval is narrower: nobody measures a rate better.
const LEAST_HALF_WIDTH: f64 = 0.01;
/// Times at one point whose logarithms differ by less say the same again.
const SAME_TIME: f64 = 1e-9;
/// What holds 90 % of a normal distribution on both sides, in standard deviations.
const NORMAL_90: f64 = 1.645;

/// What the runs of a model are filed under beside its name: its format, and that of its cache where it is unusual.
#[must_use]
pub fn stored_as(format: Option<&str>, kv_cache: WeightFormat) -> String {
    let format = format.unwrap_or_default();
    match kv_cache {
        WeightFormat::Fp16 | WeightFormat::Bf16 => format.to_owned(),
        cache => format!("{format}+{}", cache.key()),
    }
}

/// A run in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredRun {
    /// Which of all that were taken: the number of its report.
    number: u64,
    source: Source,
    /// Seconds since 1970.
    unix_s: f64,
    foreseen: Option<Foreseen>,
    /// Predicted by calibrated kernels, so that it says nothing of the engine's coefficients.
    by_kernels: bool,
    /// The time as it was measured.
    time: Seconds,
    power: Option<Watts>,
    observation: Observation,
}

/// What was predicted of a run before it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Foreseen {
    tier: Tier,
    /// ln(measured / predicted).
    error: f64,
    /// What the prediction allowed for, where it rested on runs of the model itself.
    log_sd: Option<f64>,
}

impl StoredRun {
    #[must_use]
    pub fn report(&self) -> Report {
        Report { id: self.number, source: self.source.clone(), unix_s: self.unix_s }
    }

    #[must_use]
    pub const fn observation(&self) -> &Observation {
        &self.observation
    }

    /// As it was measured.
    #[must_use]
    pub const fn time(&self) -> Seconds {
        self.time
    }

    #[must_use]
    pub const fn power(&self) -> Option<Watts> {
        self.power
    }

    /// Measured over what was predicted before it was seen; `None` where that is no longer known.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        self.foreseen.map(|foreseen| foreseen.error.exp())
    }

    /// Without what was predicted of it.
    pub(super) fn unforeseen(&self) -> Self {
        Self { foreseen: None, ..self.clone() }
    }

    pub(super) fn is_selected(&self, which: &Selection) -> bool {
        let of = &self.observation;
        which.takes(&self.report(), of.engine.key(), Some(&of.model), None, &of.format)
    }

    /// Whether no number in it can spoil an answer.
    pub(super) fn is_sound(&self) -> bool {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let of = &self.observation;
        positive(self.time.get())
            && self.unix_s.is_finite()
            && self.foreseen.is_none_or(|foreseen| foreseen.error.abs() < 100.0)
            && positive(of.time.get())
            && positive(of.machine.cycles)
            && positive(of.machine.memory.get())
            && of.cpu.as_ref().is_none_or(|cpu| cpu.is_sound(of.engine))
            && self.log_ratio().is_finite()
    }

    fn log_ratio(&self) -> f64 {
        let of = &self.observation;
        match &of.cpu {
            Some(cpu) => cpu.log_ratio(of.engine, of.time),
            None => of.log_ratio(engine_costs(of.engine, of.hardware.as_deref())),
        }
    }

    /// Whether a measured run says the same again.
    fn says_again(&self, run: &Measured) -> bool {
        same(self, run) && (self.time.get().ln() - run.time.get().ln()).abs() < SAME_TIME
    }
}

/// How far a prediction was off that was made before its run was seen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct PastError {
    number: u64,
    phase: Phase,
    tier: Tier,
    /// ln(measured / predicted).
    error: f64,
    unix_s: f64,
    /// As the detector was told; `None` where it was not.
    watched_log_sd: Option<f64>,
}

/// The machine is not what it was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Seconds since 1970 when it was noticed.
    pub unix_s: f64,
    /// Number of the run that showed it.
    pub shown_by: u64,
    /// Measured over predicted since the change.
    pub ratio: f64,
    /// Runs in a row that agreed since.
    pub agreeing: u32,
}

/// Errors of earlier predictions for one engine, and the changes of the machine that they showed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct EngineHistory {
    errors: Vec<PastError>,
    detector: Detector,
    changed: Option<Changed>,
}

/// What an accepted observation changed.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservationOutcome {
    /// The same prediction now over what it was before anything was learnt.
    pub factor: f64,
    /// What it rests on now.
    pub tier: Tier,
    /// Runs of this model, format and engine that are kept.
    pub count: usize,
    /// The alarm in words, while there is one.
    pub alarm: Option<String>,
}

/// Observed runs of whole models on one machine, and what was learnt from them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ObservedRuns {
    machine: Option<String>,
    taken: u64,
    refused: u64,
    /// Oldest first.
    runs: Vec<Arc<StoredRun>>,
    engines: BTreeMap<Engine, EngineHistory>,
    /// The engines' coefficients on this machine: they follow from the runs.
    #[serde(skip)]
    posterior: BTreeMap<Engine, Arc<EngineCosts>>,
    /// Likewise on its CPU.
    #[serde(skip)]
    on_cpu: BTreeMap<Engine, Arc<FittedCpu>>,
}

impl ObservedRuns {
    /// What was learnt on `machine`, nothing otherwise.
    #[must_use]
    pub fn of(mut self, machine: String) -> Self {
        if self.machine.as_ref() != Some(&machine) {
            return Self { machine: Some(machine), ..Self::default() };
        }
        self.settle(self.engines.keys().copied().collect());
        self
    }

    /// Every run that is kept, oldest first.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<StoredRun>> {
        self.runs.iter()
    }

    /// Number of the last run that was taken.
    #[must_use]
    pub const fn last_id(&self) -> u64 {
        self.taken
    }

    /// Numbers runs from here on if it has not come as far.
    pub fn number_after(&mut self, last: u64) {
        self.taken = self.taken.max(last);
    }

    /// How many runs move the prediction of a model.
    #[must_use]
    pub fn moved(&self, asked: &ModelQuery<'_>) -> Moved {
        let by_kernels = asked.kernels.is_some();
        let mut moved = Moved::default();
        for run in self.runs.iter().filter(|run| run.observation.engine == asked.engine) {
            let of_it = run.observation.is_of(asked.subject(), asked.request.phase);
            if run.by_kernels == by_kernels && (of_it || !by_kernels) {
                moved.count(&run.source);
            }
        }
        moved
    }

    /// The same with what one user reported laid over it.
    #[must_use]
    pub fn with_own(&self, own: &[Arc<StoredRun>]) -> Self {
        let mut view = self.clone();
        for run in own {
            view.admit(run);
        }
        view.settle(own.iter().map(|run| run.observation.engine).collect());
        view
    }

    /// Forgets the runs that are meant and returns their number. What was predicted after the first of them rested on it, so how far
    /// that was off is forgotten too.
    pub fn forget(&mut self, which: impl Fn(&StoredRun) -> bool) -> usize {
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.runs).into_iter().partition(|run| which(run));
        self.runs = kept;
        for (engine, of) in &mut self.engines {
            let of_engine = gone.iter().filter(|run| run.observation.engine == *engine);
            let Some(first) = of_engine.min_by_key(|run| run.number) else { continue };
            of.errors.retain(|past| past.number < first.number);
            // Runs are numbered in the order in which they came; the clock may have been wrong when one did.
            if of.changed.is_some_and(|changed| changed.shown_by >= first.number) {
                of.changed = None;
            }
            of.detector = Detector::default();
            for past in &of.errors {
                if let Some(log_sd) = past.watched_log_sd {
                    of.detector.take(past.error, log_sd);
                }
            }
        }
        let runs = &self.runs;
        self.engines.retain(|engine, of| {
            *of != EngineHistory::default() || runs.iter().any(|run| run.observation.engine == *engine)
        });
        self.settle(gone.iter().map(|run| run.observation.engine).collect());
        gone.len()
    }

    /// Works out what follows from the runs: the coefficients of engines.
    fn settle(&mut self, engines: BTreeSet<Engine>) {
        engines.into_iter().for_each(|engine| self.fit(engine));
    }

    /// Why what was read from a file cannot be used.
    ///
    /// # Errors
    /// A number that no measurement can have led to, or more than is ever kept.
    pub fn check(&self) -> Result<(), String> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let sound_run = |run: &Arc<StoredRun>| run.number <= self.taken && run.is_sound();
        let sound_engine = |of: &EngineHistory| {
            of.detector.sound()
                && of.errors.len() <= MAX_ERRORS
                && of.errors.iter().all(|past| past.error.abs() < 100.0 && past.unix_s.is_finite())
                && of.changed.is_none_or(|changed| positive(changed.ratio))
        };
        if self.runs.len() > MAX_RUNS {
            return Err(format!("it holds {} runs, more than {MAX_RUNS}", self.runs.len()));
        }
        if !self.runs.iter().all(sound_run) || !self.engines.values().all(sound_engine) {
            return Err("it holds a run that nobody can have measured".into());
        }
        Ok(())
    }

    /// Runs that are kept, by engine.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, u32> {
        let mut counts = BTreeMap::new();
        for run in &self.runs {
            *counts.entry(run.observation.engine.key()).or_insert(0) += 1;
        }
        counts
    }

    /// Observations that were refused so far.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Predicts a model with what was learnt.
    ///
    /// # Errors
    /// A request that cannot be, or ceilings that say too little.
    pub fn predict(&self, asked: &ModelQuery<'_>) -> Result<Prediction, ModelError> {
        Ok(self.forecast(asked)?.prediction)
    }

    /// Predicts runs that differ from the one of `asked` in their batch only, at the operating point of `asked`: the figures
    /// of [`predict`](Self::predict), without the breakdown and the warnings.
    ///
    /// # Errors
    /// Ceilings that say too little.
    pub fn predict_batches(
        &self,
        asked: &ModelQuery<'_>,
        ceilings: &PointCeilings<'_>,
        runs: &[ModelRun<'_>],
    ) -> Result<Vec<Prediction>, ModelError> {
        if asked.cpu_costs().is_some() {
            let of =
                |run: &ModelRun<'_>| self.predict(&ModelQuery { request: run.request(), ..asked.clone() });
            return runs.iter().map(of).collect();
        }
        let (fitted, costs) = (self.fitted_model(asked), asked.kernels);
        let of = |run: &ModelRun<'_>| Ok(fitted.forecast(costs, ceilings, run, Detail::Figures)?.prediction);
        runs.iter().map(of).collect()
    }

    /// Learns from runs. Each is held against what was learnt before it; the engines' coefficients move once, at the end.
    pub fn observe(&mut self, runs: &[Measured], unix_s: f64) -> Vec<Result<ObservationOutcome, Refused>> {
        self.observe_from(&Source::Supposed, runs, unix_s)
    }

    /// The same of runs that somebody reported.
    pub fn observe_from(
        &mut self,
        source: &Source,
        runs: &[Measured],
        unix_s: f64,
    ) -> Vec<Result<ObservationOutcome, Refused>> {
        let taken: Vec<Result<(), Refused>> = runs.iter().map(|run| self.take(source, run, unix_s)).collect();
        let accepted = runs.iter().zip(&taken).filter(|(_, taken)| taken.is_ok());
        self.settle(accepted.map(|(run, _)| run.engine).collect());
        let learnt = |(run, taken): (&Measured, Result<(), Refused>)| {
            taken.and_then(|()| {
                let asked = run.asked();
                let now = self.forecast(&asked)?.prediction;
                let before = asked.predict(asked.shipped())?;
                Ok(ObservationOutcome {
                    factor: now.time.value / before.time.value,
                    tier: now.tier,
                    count: self.of_model(&asked).count(),
                    alarm: self.alarm(run.engine),
                })
            })
        };
        runs.iter().zip(taken).map(learnt).collect()
    }

    /// Whether a calibration would change what is known.
    #[must_use]
    pub fn awaits_calibration(&self) -> bool {
        self.engines.values().any(|of| of.changed.is_some())
    }

    /// The machine was calibrated again: what was seen of it since it changed is explained by that.
    pub fn recalibrated(&mut self) {
        let changed: Vec<Engine> =
            self.engines.iter().filter(|(_, of)| of.changed.is_some()).map(|(engine, _)| *engine).collect();
        for engine in changed {
            self.runs.retain(|run| run.observation.engine != engine);
            self.engines.remove(&engine);
        }
        self.settle(self.posterior.keys().chain(self.engines.keys()).copied().collect());
    }

    /// What changed, in words that end with the remedy; `None` where nothing did.
    #[must_use]
    pub fn alarm(&self, engine: Engine) -> Option<String> {
        let changed = self.engines.get(&engine)?.changed?;
        let (by, way) = if changed.ratio >= 1.0 {
            ((changed.ratio - 1.0) * 100.0, "slower")
        } else {
            ((1.0 / changed.ratio - 1.0) * 100.0, "faster")
        };
        Some(format!(
            "{} runs {by:.0} % {way} here than it used to: intervals are wider until runs agree again; see \
             rooflinectl doctor, and rooflinectl calibrate",
            engine.key()
        ))
    }

    #[must_use]
    pub fn alarms(&self) -> Vec<String> {
        self.engines.keys().filter_map(|engine| self.alarm(*engine)).collect()
    }

    fn of_model<'s>(&'s self, asked: &ModelQuery<'_>) -> impl Iterator<Item = &'s StoredRun> {
        let (engine, name, format) = (asked.engine, asked.name.to_owned(), asked.format.to_owned());
        self.runs.iter().map(Arc::as_ref).filter(move |run| {
            let of = &run.observation;
            of.engine == engine && of.model == name && of.format == format
        })
    }

    /// What was learnt of a model at an operating point, for any batch of it.
    fn fitted_model<'s>(&'s self, asked: &ModelQuery<'_>) -> FittedModel<'s> {
        let costs = self.posterior.get(&asked.engine).filter(|_| asked.kernels.is_none());
        let fitted = costs.is_some();
        let costs = costs.map_or_else(|| asked.shipped(), |costs| costs.as_ref());
        let of = self.engines.get(&asked.engine);
        let phase = asked.request.phase;
        let anchors = of.and_then(|_| {
            let by_kernels = asked.kernels.is_some();
            let known: Vec<&Observation> = self
                .of_model(asked)
                .filter(|run| run.by_kernels == by_kernels && run.observation.cpu.is_none())
                .map(|run| &run.observation)
                .collect();
            Anchors::of(costs, &known, asked.subject(), phase)
        });
        FittedModel {
            costs,
            fitted,
            of,
            anchors,
            phase,
            tokens: asked.tokens(),
            machine: asked.machine(),
            intervals: Default::default(),
            moved: self.moved(asked),
            alarm: self.alarm(asked.engine),
        }
    }

    /// On a CPU one fit holds the engine's costs, the number of threads and the file, so it says how sure it is.
    fn forecast_on_cpu(&self, asked: &ModelQuery<'_>, shipped: &CpuCosts) -> Result<Forecast, ModelError> {
        let Some(fitted) = self.on_cpu.get(&asked.engine) else {
            let prediction = Prediction { moved: self.moved(asked), ..asked.predict_on_cpu(shipped)? };
            return Ok(Forecast { log_sd: log_sd(half_width(&prediction)), prediction, residual: None });
        };
        let mut prediction = Prediction { moved: self.moved(asked), ..asked.predict_on_cpu(&fitted.costs)? };
        let here = RunPoint::new(asked.request.batch, asked.tokens(), &asked.machine());
        let residual = fitted.at(&asked.cpu_run()?, asked.subject(), asked.request.phase, &here);
        let mut tier = residual.tier;
        let mut half = (NORMAL_90 * residual.log_sd).exp_m1().max(LEAST_HALF_WIDTH);
        if let Some(changed) = self.engines.get(&asked.engine).and_then(|of| of.changed) {
            half = (1.0 + half) * changed.ratio.max(1.0 / changed.ratio) - 1.0;
            tier = prediction.tier.min(Tier::BoardCalibrated);
            prediction.warnings.extend(self.alarm(asked.engine));
        }
        if let Some(model) = &mut prediction.model {
            model.interval_from = IntervalSource::OwnRuns;
        }
        let factor = residual.log_factor.exp();
        let prediction = prediction.corrected(factor, half, tier);
        let residual = (residual.count > 0).then_some(residual);
        Ok(Forecast { log_sd: log_sd(half), prediction, residual })
    }

    fn forecast(&self, asked: &ModelQuery<'_>) -> Result<Forecast, ModelError> {
        if let Some(shipped) = asked.cpu_costs() {
            return self.forecast_on_cpu(asked, shipped);
        }
        let run = ModelRun::new(asked.engine, asked.model, asked.request)?;
        let ceilings = PointCeilings::of(asked.roofline);
        self.fitted_model(asked).forecast(asked.kernels, &ceilings, &run, Detail::Full)
    }

    /// Takes in one run, or says why not. The engine's coefficients stay as they were.
    fn take(&mut self, source: &Source, run: &Measured, unix_s: f64) -> Result<(), Refused> {
        let taken = self.vetted(source, run, unix_s);
        if taken.is_err() {
            self.refused = self.refused.saturating_add(1);
        }
        taken
    }

    fn vetted(&mut self, source: &Source, run: &Measured, unix_s: f64) -> Result<(), Refused> {
        let asked = run.asked();
        vet::request(run)?;
        let forecast = self.forecast(&asked)?;
        vet::plausible(run, &forecast.prediction)?;
        if let Some(position) = self.runs.iter().position(|known| known.says_again(run)) {
            let elder = self.runs.remove(position);
            self.runs.push(elder);
            return Ok(());
        }
        let shipped = asked.shipped();
        let plain = asked.predict(shipped)?;
        let observation = run.observation(shipped, &plain)?;
        let error = run.time.get().ln() - forecast.prediction.time.value.get().ln();
        self.taken += 1;
        self.admit(&Arc::new(StoredRun {
            number: self.taken,
            source: source.clone(),
            unix_s,
            foreseen: Some(Foreseen {
                tier: forecast.prediction.tier,
                error,
                // The first run of a model tells of the model, the next ones of the machine.
                log_sd: forecast.residual.is_some().then_some(forecast.log_sd),
            }),
            by_kernels: run.kernels.is_some(),
            time: run.time,
            power: run.power,
            observation,
        }));
        Ok(())
    }

    /// Takes in a run that was vetted. What follows from the runs stays as it was.
    fn admit(&mut self, run: &Arc<StoredRun>) {
        let (engine, number, unix_s) = (run.observation.engine, run.number, run.unix_s);
        let of = self.engines.entry(engine).or_default();
        if let Some(Foreseen { tier, error, log_sd }) = run.foreseen {
            let phase = run.observation.phase;
            of.errors.push(PastError { number, phase, tier, error, unix_s, watched_log_sd: log_sd });
            if of.errors.len() > MAX_ERRORS {
                of.errors.remove(0);
            }
        }
        self.runs.push(Arc::clone(run));
        self.bound(&run.observation);
        if let Some(Foreseen { error, log_sd: Some(log_sd), .. }) = run.foreseen {
            self.watch(engine, error, log_sd, (number, unix_s));
        }
    }

    /// Lets the oldest leave.
    fn bound(&mut self, newest: &Observation) {
        let of_model = |run: &&Arc<StoredRun>| {
            let of = &run.observation;
            of.engine == newest.engine && of.model == newest.model && of.format == newest.format
        };
        if self.runs.iter().filter(of_model).count() > MAX_RUNS_OF_MODEL {
            let oldest = self.runs.iter().filter(of_model).map(|known| known.number).min();
            self.runs.retain(|known| Some(known.number) != oldest);
        }
        if self.runs.len() > MAX_RUNS {
            self.runs.remove(0);
        }
    }

    fn watch(&mut self, engine: Engine, error: f64, expected_log_sd: f64, newest: (u64, f64)) {
        let of = self.engines.entry(engine).or_default();
        if let Some(changed) = &mut of.changed {
            let agrees = of.detector.standardised(error, expected_log_sd).abs() <= AGREEING;
            changed.agreeing = if agrees { changed.agreeing + 1 } else { 0 };
            if changed.agreeing >= RECOVERED {
                of.changed = None;
            }
        }
        let Some(alarm) = of.detector.take(error, expected_log_sd) else { return };
        let after = of.errors.iter().rev().take((alarm.after as usize).min(SHIFT_RUNS));
        let (mut sum, mut count, mut first) = (0.0, 0.0, u64::MAX);
        for past in after {
            sum += past.error;
            count += 1.0;
            first = first.min(past.number);
        }
        if count > 0.0 {
            self.change(engine, first.saturating_sub(1), (sum / count).exp(), newest);
        }
    }

    /// Forgets what was seen of an engine up to and with the observation `last`; `number` and date of the one that shows it.
    fn change(&mut self, engine: Engine, last: u64, ratio: f64, (number, unix_s): (u64, f64)) {
        self.runs.retain(|run| run.observation.engine != engine || run.number > last);
        let of = self.engines.entry(engine).or_default();
        // Those after it were predicted from what no longer holds, so they tell nothing of the next ones.
        of.errors.clear();
        of.detector.forget();
        of.changed = Some(Changed { unix_s, shown_by: number, ratio, agreeing: 0 });
    }

    /// Computes an engine's coefficients on this machine from its runs.
    fn fit(&mut self, engine: Engine) {
        self.on_cpu.remove(&engine);
        let mut alike_runs: Vec<(Observation, Vec<f64>)> = Vec::new();
        let of_engine = self.runs.iter().filter(|run| run.observation.engine == engine && !run.by_kernels);
        for run in of_engine.rev().take(MAX_FITTED) {
            let log_time = run.observation.time.get().ln();
            match alike_runs.iter_mut().find(|(known, _)| alike(known, &run.observation)) {
                Some((_, log_times)) => log_times.push(log_time),
                None => alike_runs.push((run.observation.clone(), vec![log_time])),
            }
        }
        let mut merged: Vec<Observation> = alike_runs
            .into_iter()
            .map(|(observation, log_times)| Observation {
                time: Seconds(robust_mean(&log_times).exp()),
                ..observation
            })
            .collect();
        // In an order of their own, so that the same runs give the same figures in whatever order they came.
        merged.sort_by(|a, b| {
            let key = |of: &Observation| (of.model.clone(), of.format.clone(), of.batch, of.context_tokens);
            key(a).cmp(&key(b)).then(a.time.get().total_cmp(&b.time.get()))
        });
        let Some(first) = merged.first() else {
            self.posterior.remove(&engine);
            return;
        };
        let shipped = engine_costs(engine, first.hardware.as_deref());
        let observations: Vec<&Observation> = merged.iter().collect();
        if let Some(fitted) = FittedCpu::new(engine, &observations) {
            self.on_cpu.insert(engine, Arc::new(fitted));
        }
        let observations: Vec<&Observation> =
            observations.into_iter().filter(|observation| observation.cpu.is_none()).collect();
        if observations.is_empty() {
            self.posterior.remove(&engine);
            return;
        }
        self.posterior.insert(engine, Arc::new(anchor::posterior(shipped, &observations)));
    }
}

/// Predictions of one model at one operating point: the coefficients that they start from, and what corrects them.
#[derive(Debug)]
struct FittedModel<'a> {
    /// The engine's coefficients as its runs here moved them.
    costs: &'a EngineCosts,
    fitted: bool,
    of: Option<&'a EngineHistory>,
    anchors: Option<Anchors>,
    phase: Phase,
    tokens: u64,
    machine: Machine,
    /// Of past errors, by tier: worked out once it is asked for.
    intervals: [OnceCell<Option<(f64, IntervalSource)>>; 5],
    moved: Moved,
    alarm: Option<String>,
}

/// Correction of a prediction by what was learnt from observed runs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Correction {
    factor: f64,
    /// Relative half-width of its interval.
    half_width: f64,
    /// What it rests on then.
    tier: Tier,
    /// Whose errors the interval was taken from.
    from: IntervalSource,
    residual: Option<Residual>,
}

impl FittedModel<'_> {
    /// Predicts a run, by calibrated `kernels` where there are any, and corrects it by what was learnt.
    fn forecast(
        &self,
        kernels: Option<&EngineProfile>,
        ceilings: &PointCeilings<'_>,
        run: &ModelRun<'_>,
        detail: Detail,
    ) -> Result<Forecast, ModelError> {
        let costs = kernels.map_or(Costs::Engine(self.costs), Costs::Kernels);
        let plain = Prediction { moved: self.moved, ..predict_run(ceilings, costs, run, detail)? };
        let half = half_width(&plain);
        let from = plain.model.as_ref().map_or(IntervalSource::Guess, |model| model.interval_from);
        let Some(correction) = self.correction(run.request().batch, half, from, plain.tier) else {
            return Ok(Forecast { log_sd: log_sd(half), prediction: plain, residual: None });
        };
        let Correction { factor, half_width, tier, from, residual } = correction;
        let mut prediction = plain;
        prediction.warnings.extend(self.alarm.clone());
        if let Some(model) = &mut prediction.model {
            model.interval_from = from;
        }
        Ok(Forecast {
            log_sd: residual.map_or_else(|| log_sd(half_width), |r| r.log_sd),
            prediction: prediction.corrected(factor, half_width, tier),
            residual,
        })
    }

    /// What corrects a prediction with `batch` sequences that has this interval and tier; `None` where nothing was learnt.
    fn correction(
        &self,
        batch: u64,
        plain_half_width: f64,
        plain_from: IntervalSource,
        plain_tier: Tier,
    ) -> Option<Correction> {
        let of = self.of?;
        let point = || RunPoint::new(batch, self.tokens, &self.machine);
        let residual = self.anchors.as_ref().map(|anchors| anchors.at(&point()));
        let without = if self.fitted { plain_tier.max(Tier::EngineCalibrated) } else { plain_tier };
        let mut tier = residual.map_or(without, |residual| residual.tier);
        let own = *self.intervals[tier as usize].get_or_init(|| of.own_interval(self.phase, tier));
        let (half, from) = own.unwrap_or_else(|| {
            residual.map_or((plain_half_width, plain_from), |residual| {
                ((NORMAL_90 * residual.log_sd).exp_m1(), IntervalSource::OwnRuns)
            })
        });
        let mut half_width = half.max(LEAST_HALF_WIDTH);
        if let Some(changed) = of.changed {
            half_width = (1.0 + half_width) * changed.ratio.max(1.0 / changed.ratio) - 1.0;
            tier = plain_tier.min(Tier::BoardCalibrated);
        }
        let factor = residual.map_or(1.0, |residual| residual.log_factor.exp());
        Some(Correction { factor, half_width, tier, from, residual })
    }
}

/// A prediction and how sure it was.
struct Forecast {
    prediction: Prediction,
    log_sd: f64,
    residual: Option<Residual>,
}

impl EngineHistory {
    /// Half-width that held nine of ten past errors of this kind, and whose they are.
    fn own_interval(&self, phase: Phase, tier: Tier) -> Option<(f64, IntervalSource)> {
        let prompt = |phase: Phase| phase == Phase::Prefill;
        let group = |past: &&PastError| past.tier == tier && prompt(past.phase) == prompt(phase);
        // What is known of a model narrows its errors, so those of a stronger tier say nothing of a weaker one.
        let parent = |past: &&PastError| past.tier <= tier;
        let own = weighted(&self.errors.iter().filter(group).collect::<Vec<_>>());
        // Runs of the model itself say more of it than those of others do.
        let wider = || {
            (tier < Tier::Anchored).then(|| weighted(&self.errors.iter().filter(parent).collect::<Vec<_>>()))
        };
        own.map(|half| (half, IntervalSource::OwnTier))
            .or_else(|| wider().flatten().map(|half| (half, IntervalSource::OwnEngine)))
    }
}

/// The split-conformal quantile of weighted errors as a ratio (R. F. Barber et al., "Conformal prediction beyond
/// exchangeability", Annals of Statistics 51, 2023): the least size that holds [`COVERAGE`] of the weights, the next error
/// counting 1 as the newest does. `None` for fewer than [`LEAST_ERRORS`].
fn weighted(errors: &[&PastError]) -> Option<f64> {
    if errors.len() < LEAST_ERRORS {
        return None;
    }
    let (mut age, mut later) = (0.0, None);
    let aged = |past: &&PastError| {
        let passed: f64 = later.replace(past.unix_s).map_or(0.0, |later| later - past.unix_s);
        age += passed.clamp(0.0, LONGEST_GAP_S);
        (past.error.abs(), (-age / HALF_LIFE_S).exp2())
    };
    let mut sizes: Vec<(f64, f64)> = errors.iter().rev().map(aged).collect();
    sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let wanted = COVERAGE * (1.0 + sizes.iter().map(|(_, weight)| weight).sum::<f64>());
    let mut sum = 0.0;
    let held = sizes.iter().find(|(_, weight)| {
        sum += weight;
        sum >= wanted
    });
    held.or_else(|| sizes.last()).map(|(size, _)| size.exp_m1())
}

fn half_width(prediction: &Prediction) -> f64 {
    let time = prediction.time;
    if time.value.is_positive() { (time.high / time.value - 1.0).max(0.0) } else { 0.0 }
}

fn log_sd(half_width: f64) -> f64 {
    half_width.ln_1p() / NORMAL_90
}

fn near(a: f64, b: f64) -> bool {
    (a / b).ln().abs() < 0.03
}

/// Whether two runs did the same at the same operating point.
fn alike(a: &Observation, b: &Observation) -> bool {
    a.model == b.model
        && a.format == b.format
        && a.phase == b.phase
        && (a.batch, a.context_tokens, a.prompt_tokens) == (b.batch, b.context_tokens, b.prompt_tokens)
        && near(a.machine.cycles, b.machine.cycles)
        && near(a.machine.memory.get(), b.machine.memory.get())
}

/// Likewise of a run that is not kept yet; `output_tokens` shows in the passes.
fn same(known: &StoredRun, run: &Measured) -> bool {
    let (of, request, machine) = (&known.observation, &run.request, run.asked().machine());
    let last = of.steps.last().map(|step| step.times);
    let last = last.or_else(|| Some(of.cpu.as_ref()?.passes.last()?.times));
    let passes = |times: f64| near(times, last.unwrap_or(1.0));
    of.engine == run.engine
        && of.model == run.name
        && of.format == run.format
        && of.phase == request.phase
        && (of.batch, of.context_tokens, of.prompt_tokens)
            == (request.batch, request.context_tokens, request.prompt_tokens)
        && (request.phase != Phase::Serve || passes(repeats(run)))
        && near(of.machine.cycles, machine.cycles)
        && near(of.machine.memory.get(), machine.memory.get())
}

/// How often the last pass of a run repeats.
#[expect(clippy::cast_precision_loss, reason = "a count of tokens")]
fn repeats(run: &Measured) -> f64 {
    Run::new(&run.model, &run.request)
        .ok()
        .and_then(|run| run.decode.map(|pass| pass.repeats as f64))
        .unwrap_or(1.0)
}

#[cfg(test)]
mod tests;
