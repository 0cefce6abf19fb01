//! Scores of candidates: time, rate, power, memory and quality, taken from their predictions.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::point::CandidatePoint;
use super::{Query, QueryError, STRIDE, StoredModel, WorkForms, with_columns};
use crate::costs::Build;
use crate::learning::ResidualKey;
use crate::learning::models::{ModelQuery, stored_as};
use crate::model::{ModelRun, PointCeilings};
use crate::power::rungs;
use crate::prediction::{AtLeast, Fewer};
use crate::snapshot::Snapshot;
use crate::{Engine, EngineProfile, Estimate, Prediction, predict};
use rooflined_core::names::EnergyBasis;
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Seconds, Watts};
use rooflined_models::transformer::{MAX_BATCH, MemoryFootprint, Request};

/// What one candidate comes to. NaN stands for what is unknown or does not apply.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Time of the run in seconds.
    pub time: f64,
    /// Upper over middle of the interval of every time.
    pub slack: f64,
    /// Seconds until the first token.
    pub first: f64,
    /// Seconds of a token after the first.
    pub per_token: f64,
    /// Tokens (columns) per second over the batch.
    pub rate: f64,
    /// Watts.
    pub watts: f64,
    /// Upper end of their interval.
    pub watts_high: f64,
    /// Joules for a token, of what the query counts.
    pub energy: f64,
    /// Bytes.
    pub memory: f64,
    pub loss: f64,
    /// The clock in hertz that a power limit leads to.
    pub clock: f64,
}

impl Score {
    fn of(prediction: &Prediction, basis: EnergyBasis, memory: f64, loss: f64) -> Self {
        let (time, tokens) = (prediction.time, prediction.tokens);
        let value = |estimate: Option<Estimate<Seconds>>| estimate.map_or(f64::NAN, |e| e.value.get());
        // The time of an operation is what its limit on a token is about.
        let per_token = match &prediction.model {
            None => time.value.get(),
            Some(model) => value(model.time_per_token),
        };
        let watts = prediction.power.map(|power| power.watts.map(Watts::get));
        let energy = match basis {
            EnergyBasis::WithIdle => prediction.energy_per_token(),
            EnergyBasis::Marginal => prediction.marginal_energy_per_token(),
        };
        Self {
            time: time.value.get(),
            slack: time.high / time.value,
            first: value(prediction.time_to_first_token()),
            per_token,
            rate: tokens / time.value.get(),
            watts: watts.map_or(f64::NAN, |watts| watts.value),
            watts_high: watts.map_or(f64::NAN, |watts| watts.high),
            energy: energy.map_or(f64::NAN, |energy| energy.value.get()),
            memory,
            loss,
            clock: f64::NAN,
        }
    }
}

/// Time, rate, power, memory, quality.
pub(super) const CRITERIA: usize = 5;

/// What of a candidate is better where it is less; what is unknown is worse than anything known.
pub(super) const fn criteria(score: &Score) -> [f64; CRITERIA] {
    let watts = if score.watts.is_nan() { f64::INFINITY } else { score.watts };
    let loss = if score.loss.is_nan() { f64::INFINITY } else { score.loss };
    [score.time, -score.rate, watts, score.memory, loss]
}

/// The batches that are predicted for a query: those to choose from, and then the rungs beside them that say how power rises
/// ([`Fewer`]).
#[derive(Debug)]
pub(super) struct Batches {
    candidates: RangeInclusive<u64>,
    all: Vec<u64>,
}

impl Batches {
    pub(super) fn new(candidates: RangeInclusive<u64>) -> Self {
        let rungs = rungs(*candidates.end()).filter(|rung| *rung <= MAX_BATCH && !candidates.contains(rung));
        let all = candidates.clone().chain(rungs).collect();
        Self { candidates, all }
    }

    /// The place of a batch among all.
    fn position(&self, batch: u64) -> Option<usize> {
        let from_first = batch.checked_sub(*self.candidates.start());
        match from_first.filter(|_| self.candidates.contains(&batch)) {
            Some(place) => usize::try_from(place).ok(),
            None => self.all.iter().position(|known| *known == batch),
        }
    }
}

/// Scores one form of the work at one operating point after another.
pub(super) struct Scorer<'a> {
    is_wanted: &'a dyn Fn() -> bool,
    snapshot: &'a Snapshot,
    query: &'a Query,
    batches: &'a Batches,
    form: Form<'a>,
}

/// A form of the work, as far as it is the same at every operating point.
enum Form<'a> {
    Op {
        op: Op,
        format: WeightFormat,
    },
    Model {
        name: &'a str,
        stored: &'a StoredModel,
        filed_as: String,
        /// By batch.
        runs: Vec<ModelRun<'a>>,
        /// Bytes by batch.
        memory: Vec<f64>,
    },
}

impl<'a> Scorer<'a> {
    pub(super) fn new(
        is_wanted: &'a dyn Fn() -> bool,
        (snapshot, query): (&'a Snapshot, &'a Query),
        batches: &'a Batches,
        option: usize,
    ) -> Result<Self, QueryError> {
        check(is_wanted)?;
        let form = match &query.work {
            WorkForms::Op { op, formats } => Form::Op { op: *op, format: formats[option] },
            WorkForms::Model { name, request, stored, kv_formats } => {
                let (stored, kv_cache) = model_form(stored, kv_formats, option);
                let requests =
                    batches.all.iter().map(|batch| Request { kv_cache, batch: *batch, ..*request });
                let engine_memory = snapshot.engine_memory(query.engine);
                let memory = |request| MemoryFootprint::new(&stored.model, &request, engine_memory);
                Form::Model {
                    name,
                    stored,
                    filed_as: stored_as(stored.format.as_deref(), kv_cache),
                    memory: requests.clone().map(|request| memory(request).total().get()).collect(),
                    runs: requests
                        .map(|request| ModelRun::new(query.engine, &stored.model, &request))
                        .collect::<Result<_, _>>()?,
                }
            }
        };
        Ok(Self { is_wanted, snapshot, query, batches, form })
    }

    /// The score of every batch to choose from, under the power limit of the point.
    pub(super) fn score_at(
        &self,
        point: &CandidatePoint<'_>,
        ceilings: &PointCeilings<'_>,
    ) -> Result<Vec<Score>, QueryError> {
        let Some(limit) = &point.limit else { return self.score_unlimited(point, ceilings) };
        let clocks = limit.clocks(self.snapshot);
        let mut by_clock: Vec<Option<Vec<Score>>> = vec![None; clocks.len()];
        let mut score = |place: usize, index: usize| {
            if by_clock[place].is_none() {
                let slower = point.at_clock(self.snapshot, clocks[place]).ok_or(QueryError::NoModes)?;
                by_clock[place] = Some(self.score_unlimited(&slower, &PointCeilings::of(&slower.roofline))?);
            }
            let scores = by_clock[place].as_ref().and_then(|scores| scores.get(index));
            scores.copied().ok_or(QueryError::NoModes)
        };
        let known = |watts: f64| (!watts.is_nan()).then_some(watts);
        let batches = self.batches.candidates.clone().enumerate();
        let scores = batches.map(|(index, _)| {
            let place =
                limit.highest(clocks.len(), |place| score(place, index).map(|score| known(score.watts)))?;
            let score = score(place, index)?;
            let most = limit.most(self.snapshot, Watts(score.watts), Watts(score.watts_high));
            Ok::<_, QueryError>(Score { clock: clocks[place].get(), watts_high: most.get(), ..score })
        });
        scores.collect()
    }

    /// The same without a limit.
    fn score_unlimited(
        &self,
        point: &CandidatePoint<'_>,
        ceilings: &PointCeilings<'_>,
    ) -> Result<Vec<Score>, QueryError> {
        let predictions = self.predict_at(point, ceilings)?;
        let power = point.power();
        let most = *self.batches.candidates.end();
        let fewer = (most > 1)
            .then(|| Fewer::of(power, most, |batch| predictions.get(self.batches.position(batch)?).cloned()));
        let candidates = self.batches.candidates.clone().zip(predictions);
        let basis = self.query.energy;
        let score = |(index, (batch, prediction)): (usize, (u64, Prediction))| {
            let tier = prediction.tier;
            let at_least = fewer.as_ref().map_or_else(AtLeast::default, |fewer| fewer.at(batch, tier));
            let prediction = prediction.with_power_figures(power, at_least);
            match &self.form {
                Form::Op { format, .. } => {
                    Score::of(&prediction, basis, prediction.cost.traffic.get(), format.expected_loss())
                }
                Form::Model { stored, memory, .. } => {
                    Score::of(&prediction, basis, memory[index], stored.quality_loss.unwrap_or(f64::NAN))
                }
            }
        };
        Ok(candidates.enumerate().map(score).collect())
    }

    /// Every batch before its power.
    fn predict_at(
        &self,
        point: &CandidatePoint<'_>,
        ceilings: &PointCeilings<'_>,
    ) -> Result<Vec<Prediction>, QueryError> {
        let Self { snapshot, query, .. } = *self;
        match &self.form {
            Form::Op { op, format } => {
                let profile = lend(&point.profile, query.engine);
                let mut predictions = Vec::with_capacity(self.batches.all.len());
                for part in self.batches.all.chunks(STRIDE) {
                    check(self.is_wanted)?;
                    for columns in part {
                        let of = predict_op(snapshot, point, &profile, query.engine, *op, *format, *columns);
                        predictions.push(of?);
                    }
                }
                Ok(predictions)
            }
            Form::Model { name, stored, filed_as, runs, .. } => {
                let Some(first) = runs.first() else { return Ok(Vec::new()) };
                let kernels = snapshot.kernels(&point.profile, query.engine);
                let of_first = ModelQuery {
                    kernels: kernels.as_deref(),
                    ..model_query(snapshot, query.engine, name, filed_as, stored, first.request(), point)
                };
                let mut predictions = Vec::with_capacity(runs.len());
                for part in runs.chunks(STRIDE) {
                    check(self.is_wanted)?;
                    predictions.extend(snapshot.observed_runs.predict_batches(&of_first, ceilings, part)?);
                }
                Ok(predictions)
            }
        }
    }
}

/// Whether somebody still waits for the answer.
fn check(is_wanted: &dyn Fn() -> bool) -> Result<(), QueryError> {
    if is_wanted() { Ok(()) } else { Err(QueryError::Unwanted) }
}

/// Which storage an option stands for.
pub(super) fn model_form<'a>(
    stored: &'a [StoredModel],
    kv_formats: &[WeightFormat],
    option: usize,
) -> (&'a StoredModel, WeightFormat) {
    (&stored[option / kv_formats.len()], kv_formats[option % kv_formats.len()])
}

/// This crate's own kernels, or the same as a guess for another engine's.
pub(super) fn lend<'p>(profile: &'p EngineProfile, engine: Engine) -> Cow<'p, EngineProfile> {
    if engine == profile.engine {
        Cow::Borrowed(profile)
    } else {
        Cow::Owned(profile.clone().lent_to(engine))
    }
}

/// Predicts an operation with what was learnt, before its power.
pub(super) fn predict_op(
    snapshot: &Snapshot,
    point: &CandidatePoint<'_>,
    profile: &EngineProfile,
    engine: Engine,
    op: Op,
    format: WeightFormat,
    columns: u64,
) -> Result<Prediction, QueryError> {
    let op = with_columns(op, columns);
    op.validate()?;
    let plain = predict(&point.roofline, profile, &op, &snapshot.numeric_format(format))?;
    Ok(snapshot.residuals.correct(&ResidualKey::new(engine, &op, format), plain))
}

/// A model at an operating point, by the engine's costs.
pub(super) fn model_query<'a>(
    snapshot: &'a Snapshot,
    engine: Engine,
    name: &'a str,
    filed_as: &'a str,
    stored: &'a StoredModel,
    request: &'a Request,
    point: &'a CandidatePoint<'_>,
) -> ModelQuery<'a> {
    ModelQuery {
        engine,
        name,
        format: filed_as,
        model: &stored.model,
        request,
        roofline: &point.roofline,
        kernels: None,
        cpu: snapshot.cpu_host(engine, point.threads),
        build: Build::Current,
        hardware: snapshot.hardware.as_deref().map(|hardware| hardware.key.as_str()),
    }
}
