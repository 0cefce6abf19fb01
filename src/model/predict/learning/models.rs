//! Observed runs of whole models on this machine: a bounded store, and predictions that rest on it.
//!
//! A prediction is the time by the engine's coefficients as its runs here moved them ([`anchor::posterior`]), times the
//! residual of the model's own runs ([`anchor::residual`]). Its interval holds nine of ten of the errors that earlier
//! predictions of its kind turned out to have, each made before its run was seen: of the same engine, phase and tier where
//! there are [`LEAST_ERRORS`], else of the same engine at that tier or a weaker one, else what the scatter of the model's
//! runs or the engine's file says. Where the machine changed ([`change`](super::change)) what was seen before is dropped,
//! and until [`RECOVERED`] runs in a row agree again, intervals are widened by the shift and the tier falls back.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::anchor::{self, Anchors, Observation, Residual, RunPoint};
use super::change::Detector;
use super::conformal::{COVERAGE, LEAST_ERRORS};
pub use super::run::{Measured, ModelQuery};
use super::vet::{self, Contradictions, Refused};
use crate::costs::{EngineCosts, IntervalSource, engine_costs};
use crate::model::ModelError;
use crate::step::Machine;
use crate::{Engine, Prediction, Tier};
use roofline::precision::WeightFormat;
use roofline::units::{Seconds, Watts};
use roofline::workload::transformer::{Phase, Run};

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
struct StoredRun {
    /// Which of all that were taken.
    number: u64,
    /// Predicted by calibrated kernels, so that it says nothing of the engine's coefficients.
    by_kernels: bool,
    /// The time as it was measured.
    time: Seconds,
    power: Option<Watts>,
    observation: Observation,
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
}

/// The machine is not what it was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Seconds since 1970 when it was noticed.
    pub unix_s: f64,
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
    #[serde(skip)]
    contradictions: Contradictions,
    /// The engines' coefficients on this machine: they follow from the runs.
    #[serde(skip)]
    posterior: BTreeMap<Engine, Arc<EngineCosts>>,
}

impl ObservedRuns {
    /// What was learnt on `machine`, nothing otherwise.
    #[must_use]
    pub fn of(mut self, machine: String) -> Self {
        if self.machine.as_ref() != Some(&machine) {
            return Self { machine: Some(machine), ..Self::default() };
        }
        for engine in self.engines.keys().copied().collect::<Vec<_>>() {
            self.fit(engine);
        }
        self
    }

    /// Why what was read from a file cannot be used.
    ///
    /// # Errors
    /// A number that no measurement can have led to, or more than is ever kept.
    pub fn check(&self) -> Result<(), String> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let sound_run = |run: &Arc<StoredRun>| {
            let of = &run.observation;
            let machine = of.machine;
            positive(run.time.get())
                && positive(of.time.get())
                && positive(machine.cycles)
                && positive(machine.memory.get())
                && run.number <= self.taken
                && of.log_ratio(engine_costs(of.engine, of.hardware.as_deref())).is_finite()
        };
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

    /// Learns from runs. Each is held against what was learnt before it; the engines' coefficients move once, at the end.
    pub fn observe(&mut self, runs: &[Measured], unix_s: f64) -> Vec<Result<ObservationOutcome, Refused>> {
        let taken: Vec<Result<(), Refused>> = runs.iter().map(|run| self.take(run, unix_s)).collect();
        let mut engines: Vec<Engine> =
            runs.iter().zip(&taken).filter(|(_, taken)| taken.is_ok()).map(|(run, _)| run.engine).collect();
        engines.sort_unstable();
        engines.dedup();
        engines.into_iter().for_each(|engine| self.fit(engine));
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

    /// The machine was calibrated again: what was seen of it since it changed is explained by that.
    pub fn recalibrated(&mut self) {
        let changed: Vec<Engine> =
            self.engines.iter().filter(|(_, of)| of.changed.is_some()).map(|(engine, _)| *engine).collect();
        for engine in changed {
            self.runs.retain(|run| run.observation.engine != engine);
            self.engines.remove(&engine);
            self.fit(engine);
        }
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
    #[must_use]
    pub fn fitted_model<'s>(&'s self, asked: &ModelQuery<'_>) -> FittedModel<'s> {
        let costs = self.posterior.get(&asked.engine).filter(|_| asked.kernels.is_none());
        let fitted = costs.is_some();
        let costs = costs.map_or_else(|| asked.shipped(), |costs| costs.as_ref());
        let of = self.engines.get(&asked.engine);
        let phase = asked.request.phase;
        let anchors = of.and_then(|_| {
            let by_kernels = asked.kernels.is_some();
            let known: Vec<&Observation> = self
                .of_model(asked)
                .filter(|run| run.by_kernels == by_kernels)
                .map(|run| &run.observation)
                .collect();
            Anchors::new(costs, &known, asked.subject(), phase)
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
        }
    }

    fn forecast(&self, asked: &ModelQuery<'_>) -> Result<Forecast, ModelError> {
        let fitted_model = self.fitted_model(asked);
        let plain = asked.predict(fitted_model.costs)?;
        let half = half_width(&plain);
        let from = plain.model.as_ref().map_or(IntervalSource::Guess, |model| model.interval_from);
        let Some(correction) = fitted_model.correction(asked.request.batch, half, from, plain.tier) else {
            return Ok(Forecast { log_sd: log_sd(half), prediction: plain, residual: None });
        };
        let Correction { factor, half_width, tier, from, residual } = correction;
        let mut prediction = plain;
        prediction.warnings.extend(self.alarm(asked.engine));
        if let Some(model) = &mut prediction.model {
            model.interval_from = from;
        }
        let prediction = prediction.corrected(factor, half_width, tier);
        Ok(Forecast {
            log_sd: residual.map_or_else(|| log_sd(half_width), |r| r.log_sd),
            prediction,
            residual,
        })
    }

    /// Takes in one run, or says why not. The engine's coefficients stay as they were.
    fn take(&mut self, run: &Measured, unix_s: f64) -> Result<(), Refused> {
        let taken = self.vetted(run, unix_s);
        if taken.is_err() {
            self.refused = self.refused.saturating_add(1);
        }
        taken
    }

    fn vetted(&mut self, run: &Measured, unix_s: f64) -> Result<(), Refused> {
        let asked = run.asked();
        vet::request(run)?;
        let foreseen = self.forecast(&asked)?;
        vet::plausible(run, &foreseen.prediction)?;
        let alike: Vec<f64> = self
            .of_model(&asked)
            .filter(|known| same(known, run))
            .map(|known| known.time.get().ln())
            .collect();
        let log_time = run.time.get().ln();
        if let Some(position) = self.again(run, log_time) {
            let elder = self.runs.remove(position);
            self.runs.push(elder);
            return Ok(());
        }
        let outvoted = self.contradictions.weigh(run, &alike)?;
        let shipped = asked.shipped();
        let plain = asked.predict(shipped)?;
        let observation = run.observation(shipped, &plain)?;
        let error = log_time - foreseen.prediction.time.value.get().ln();
        self.taken += 1;
        let number = self.taken;
        if let Some(ratio) = outvoted {
            self.change(run.engine, number.saturating_sub(1), ratio, unix_s);
        }
        let of = self.engines.entry(run.engine).or_default();
        let tier = foreseen.prediction.tier;
        if outvoted.is_none() {
            of.errors.push(PastError { number, phase: run.request.phase, tier, error, unix_s });
            if of.errors.len() > MAX_ERRORS {
                of.errors.remove(0);
            }
        }
        self.runs.push(Arc::new(StoredRun {
            number,
            by_kernels: run.kernels.is_some(),
            time: run.time,
            power: run.power,
            observation,
        }));
        self.bound(run);
        // The first run of a model tells of the model, the next ones of the machine.
        if foreseen.residual.is_some() && outvoted.is_none() {
            self.watch(run.engine, error, foreseen.log_sd, unix_s);
        }
        Ok(())
    }

    /// Index of a run that said the same.
    fn again(&self, run: &Measured, log_time: f64) -> Option<usize> {
        self.runs
            .iter()
            .position(|known| same(known, run) && (known.time.get().ln() - log_time).abs() < SAME_TIME)
    }

    /// Lets the oldest leave.
    fn bound(&mut self, run: &Measured) {
        let asked = run.asked();
        if self.of_model(&asked).count() > MAX_RUNS_OF_MODEL {
            let oldest = self.of_model(&asked).map(|known| known.number).min();
            self.runs.retain(|known| Some(known.number) != oldest);
        }
        if self.runs.len() > MAX_RUNS {
            self.runs.remove(0);
        }
    }

    fn watch(&mut self, engine: Engine, error: f64, expected_log_sd: f64, unix_s: f64) {
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
            self.change(engine, first.saturating_sub(1), (sum / count).exp(), unix_s);
        }
    }

    /// Forgets what was seen of an engine up to and with the observation `last`.
    fn change(&mut self, engine: Engine, last: u64, ratio: f64, unix_s: f64) {
        self.runs.retain(|run| run.observation.engine != engine || run.number > last);
        let of = self.engines.entry(engine).or_default();
        // Those after it were predicted from what no longer holds, so they tell nothing of the next ones.
        of.errors.clear();
        of.detector.forget();
        of.changed = Some(Changed { unix_s, ratio, agreeing: 0 });
    }

    /// Computes an engine's coefficients on this machine from its runs.
    fn fit(&mut self, engine: Engine) {
        let mut merged: Vec<(Observation, f64, f64)> = Vec::new();
        let of_engine = self.runs.iter().filter(|run| run.observation.engine == engine && !run.by_kernels);
        for run in of_engine.rev().take(MAX_FITTED) {
            let log_time = run.observation.time.get().ln();
            match merged.iter_mut().find(|(known, ..)| alike(known, &run.observation)) {
                Some((_, sum, count)) => {
                    *sum += log_time;
                    *count += 1.0;
                }
                None => merged.push((run.observation.clone(), log_time, 1.0)),
            }
        }
        for (observation, sum, count) in &mut merged {
            observation.time = Seconds((*sum / *count).exp());
        }
        // In an order of their own, so that the same runs give the same figures in whatever order they came.
        merged.sort_by(|(a, ..), (b, ..)| {
            let key = |of: &Observation| (of.model.clone(), of.format.clone(), of.batch, of.context_tokens);
            key(a).cmp(&key(b)).then(a.time.get().total_cmp(&b.time.get()))
        });
        let Some((first, ..)) = merged.first() else {
            self.posterior.remove(&engine);
            return;
        };
        let shipped = engine_costs(engine, first.hardware.as_deref());
        let observations: Vec<&Observation> = merged.iter().map(|(observation, ..)| observation).collect();
        self.posterior.insert(engine, Arc::new(anchor::posterior(shipped, &observations)));
    }
}

/// Predictions of one model at one operating point: the coefficients that they start from, and what corrects them.
#[derive(Debug)]
pub struct FittedModel<'a> {
    /// The engine's coefficients as its runs here moved them.
    pub costs: &'a EngineCosts,
    fitted: bool,
    of: Option<&'a EngineHistory>,
    anchors: Option<Anchors>,
    phase: Phase,
    tokens: u64,
    machine: Machine,
    /// Of past errors, by tier: worked out once it is asked for.
    intervals: [OnceCell<Option<(f64, IntervalSource)>>; 5],
}

/// Correction of a prediction by what was learnt from observed runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correction {
    pub factor: f64,
    /// Relative half-width of its interval.
    pub half_width: f64,
    /// What it rests on then.
    pub tier: Tier,
    /// Whose errors the interval was taken from.
    pub from: IntervalSource,
    residual: Option<Residual>,
}

impl FittedModel<'_> {
    /// Whether nothing was learnt that could correct a prediction.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.of.is_none()
    }

    /// What corrects a prediction with `batch` sequences that has this interval and tier; `None` where nothing was learnt.
    #[must_use]
    pub fn correction(
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
    let newest = errors.iter().map(|past| past.unix_s).fold(f64::NEG_INFINITY, f64::max);
    let weight = |past: &PastError| (-(newest - past.unix_s).max(0.0) / HALF_LIFE_S).exp2();
    let mut sizes: Vec<(f64, f64)> = errors.iter().map(|past| (past.error.abs(), weight(past))).collect();
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
    let passes = |times: f64| near(times, of.steps.last().map_or(1.0, |step| step.times));
    of.engine == run.engine
        && of.model == run.name
        && of.format == run.format
        && of.phase == request.phase
        && (of.batch, of.context_tokens, of.prompt_tokens)
            == (request.batch, request.context_tokens, request.prompt_tokens)
        && (request.phase != Phase::Serve || passes(anchor_passes(run)))
        && near(of.machine.cycles, machine.cycles)
        && near(of.machine.memory.get(), machine.memory.get())
}

/// How often the last pass of a run repeats.
#[expect(clippy::cast_precision_loss, reason = "a count of tokens")]
fn anchor_passes(run: &Measured) -> f64 {
    Run::new(&run.model, &run.request)
        .ok()
        .and_then(|run| run.decode.map(|pass| pass.repeats as f64))
        .unwrap_or(1.0)
}

#[cfg(test)]
mod tests;
