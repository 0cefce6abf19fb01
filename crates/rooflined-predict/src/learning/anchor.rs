//! What measured runs of models say about others: the engine's coefficients on this machine, and the residual of one
//! model, carried to other power modes, contexts and batches.
//!
//! The residual ln(measured / predicted) of a model, format and engine is a Gaussian process: a constant that belongs to the
//! model, and what changes with the batch, the context and the operating point, each a process whose correlation falls
//! with the distance of the logarithms,
//! `k = s0^2 + sb^2 e^(-|db|/lb) + sc^2 e^(-|dc|/lc) + sm^2 e^(-|dm|/lm)`. Such a process interpolates between
//! neighbours and returns to the constant far from them; its variance is the interval.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cpu_run::CpuRun;
use super::fit::{Lower, Matrix, Prior, Repeated, Sample, Spreads, fit};
use super::robust_mean;
use crate::costs::{EFFECTS, EngineCosts};
use crate::step::{Machine, Step};
use crate::{Engine, Tier};
use rooflined_core::ceilings::Roofline;
use rooflined_core::units::Seconds;
use rooflined_models::model::Model;
use rooflined_models::transformer::{Pass, Phase, Run};

/// A measured run of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    pub engine: Engine,
    /// The model's key or path.
    pub model: String,
    pub format: String,
    /// Key of the hardware it ran on; `None` where that is unknown.
    pub hardware: Option<String>,
    /// Power mode by name.
    pub mode: Option<String>,
    pub phase: Phase,
    pub batch: u64,
    /// Tokens in the cache.
    pub context_tokens: u64,
    pub prompt_tokens: u64,
    pub steps: Vec<Repeated>,
    /// The machine as it ran.
    pub machine: Machine,
    pub roofline: Arc<Roofline>,
    /// The run as an engine's kernels on a CPU see it, which has no `steps`; `None` elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuRun>,
    /// Measured time of all passes.
    pub time: Seconds,
}

/// What names a run.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub engine: Engine,
    /// The model's key or path.
    pub model: &'a str,
    pub format: &'a str,
}

impl Observation {
    /// ln(measured / predicted) with an engine's coefficients.
    #[must_use]
    pub fn log_ratio(&self, costs: &EngineCosts) -> f64 {
        let sample = self.sample();
        sample.log_time - sample.predicted(&costs.log).get().ln()
    }

    fn sample(&self) -> Sample {
        Sample {
            steps: self.steps.clone(),
            machine: self.machine,
            roofline: Arc::clone(&self.roofline),
            machine_index: 0,
            effects: [false; EFFECTS],
            log_time: self.time.get().ln(),
            weight: 1.0,
        }
    }

    /// Whether it is of the same model, format, engine and phase.
    #[must_use]
    pub fn is_of(&self, subject: Subject<'_>, phase: Phase) -> bool {
        self.engine == subject.engine
            && self.model == subject.model
            && self.format == subject.format
            && (self.phase == Phase::Prefill) == (phase == Phase::Prefill)
    }

    pub(super) fn point(&self) -> RunPoint {
        RunPoint::new(self.batch, self.context_tokens + self.prompt_tokens, &self.machine)
    }
}

/// The passes of a run as an engine's kernels see them.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of passes are small")]
pub fn repeated(engine: Engine, model: &Model, run: &Run) -> Vec<Repeated> {
    let of =
        |model, pass: &Pass| Repeated { step: Step::new(engine, model, pass), times: pass.repeats as f64 };
    let own = run.passes().map(|pass| of(model, pass));
    let draft = run.draft.iter().zip(&model.drafting.by);
    own.chain(draft.flat_map(|(run, by)| run.passes().map(|pass| of(&by.model, pass)))).collect()
}

/// The engine's coefficients on this machine after `observations` of it: those shipped are the prior.
#[must_use]
pub fn posterior(shipped: &EngineCosts, observations: &[&Observation]) -> EngineCosts {
    let of_engine: Vec<&&Observation> =
        observations.iter().filter(|observation| observation.engine == shipped.engine).collect();
    if of_engine.is_empty() {
        return shipped.clone();
    }
    // Runs of one model at one operating point say much the same: together they weigh as the root of their number.
    let alike = |a: &Observation, b: &Observation| {
        a.model == b.model && a.format == b.format && a.mode == b.mode && a.phase == b.phase
    };
    #[expect(clippy::cast_precision_loss, reason = "a count of observations")]
    let samples: Vec<Sample> = of_engine
        .iter()
        .map(|one| {
            let count = of_engine.iter().filter(|other| alike(one, other)).count() as f64;
            Sample { weight: 1.0 / count.sqrt(), ..one.sample() }
        })
        .collect();
    let prior = Prior { mean: shipped.log, sd: shipped.spread };
    let fitted = fit(&samples, 1, &prior, &Spreads::NONE, None);
    EngineCosts { log: fitted.typical, spread: fitted.typical_sd, ..shipped.clone() }
}

/// Where a run stands among others of its model: logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunPoint {
    batch: f64,
    context: f64,
    cycles: f64,
    memory: f64,
}

/// Contexts below this differ by little: the weights dominate.
const SHORT_CONTEXT: f64 = 512.0;

impl RunPoint {
    /// The point of a run.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts of tokens and sequences")]
    pub fn new(batch: u64, tokens: u64, machine: &Machine) -> Self {
        Self {
            batch: (batch.max(1) as f64).ln(),
            context: (tokens as f64 + SHORT_CONTEXT).ln(),
            cycles: machine.cycles.ln(),
            memory: machine.memory.get().ln(),
        }
    }
}

/// Where a run stands among others that a [`Process`] knows.
pub trait Place {
    /// Covariance of the residuals at two places.
    fn covariance(&self, other: &Self) -> f64;
    /// Whether runs there are repetitions of each other.
    fn is_same(&self, other: &Self) -> bool;
}

impl Place for RunPoint {
    fn covariance(&self, other: &Self) -> f64 {
        let part =
            |scale: Scale, distance: f64| scale.log_sd * scale.log_sd * (-distance / scale.length).exp();
        let operating_point = (self.cycles - other.cycles).abs() + (self.memory - other.memory).abs();
        MODEL_LOG_SD * MODEL_LOG_SD
            + part(BATCH, (self.batch - other.batch).abs())
            + part(CONTEXT, (self.context - other.context).abs())
            + part(OPERATING_POINT, operating_point)
    }

    /// Whether it is the same operating point, batch and about the same context.
    fn is_same(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64, within: f64| (a - b).abs() < within;
        near(self.batch, other.batch, 1e-9)
            && near(self.context, other.context, 0.25)
            && near(self.cycles, other.cycles, 0.03)
            && near(self.memory, other.memory, 0.03)
    }
}

/// How much a residual changes along one direction, and over what distance of the logarithm.
#[derive(Debug, Clone, Copy)]
struct Scale {
    log_sd: f64,
    length: f64,
}

// Standard deviations of the residuals of models left out of the fit of the public rows: between models, between runs of one model that differ
// in one thing, and between runs that differ in nothing named. Rounded; `rooflined-lab evaluate engines` shows the coverage
// that follows.
const MODEL_LOG_SD: f64 = 0.15;
const BATCH: Scale = Scale { log_sd: 0.28, length: 2.0 };
const CONTEXT: Scale = Scale { log_sd: 0.04, length: 3.0 };
const OPERATING_POINT: Scale = Scale { log_sd: 0.045, length: 1.0 };
const NOISE_LOG_SD: f64 = 0.02;
/// Standard deviations that hold 90 % of a normal distribution on both sides.
pub const NORMAL_90: f64 = 1.645;

/// What measured runs add to a prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    /// ln(expected / predicted).
    pub log_factor: f64,
    /// Standard deviation of what remains.
    pub log_sd: f64,
    /// Observed, if a run at the same point is among them; anchored otherwise.
    pub tier: Tier,
    /// How many runs it rests on.
    pub count: usize,
}

/// Most runs of one model that a residual takes: the last ones.
const MOST: usize = 64;

/// A Gaussian process of residuals with mean 0, ready to say what measured runs add to a prediction anywhere.
#[derive(Debug, Clone)]
pub struct Process<P> {
    places: Vec<P>,
    lower: Lower,
    /// The inverse of the covariance times the logarithms of the runs' ratios.
    pull: Vec<f64>,
}

/// The runs of one model.
pub type Anchors = Process<RunPoint>;

impl Anchors {
    /// Those of `observations` that are of `subject`; `None` where none is.
    #[must_use]
    pub fn of(
        costs: &EngineCosts,
        observations: &[&Observation],
        subject: Subject<'_>,
        phase: Phase,
    ) -> Option<Self> {
        let of_it: Vec<&&Observation> =
            observations.iter().filter(|observation| observation.is_of(subject, phase)).collect();
        let last = &of_it[of_it.len().saturating_sub(MOST)..];
        let measured: Vec<f64> = last.iter().map(|observation| observation.log_ratio(costs)).collect();
        Self::new(last.iter().map(|observation| observation.point()).collect(), &measured)
    }
}

impl<P: Place> Process<P> {
    /// Of runs at `places`, with ln(measured / predicted) of each; `None` without any.
    #[must_use]
    pub fn new(places: Vec<P>, measured: &[f64]) -> Option<Self> {
        if places.is_empty() {
            return None;
        }
        // Each run says what those at its place say together, so that one wild run among several moves nothing.
        let at_place = |place: &P| -> Vec<f64> {
            let runs = places.iter().zip(measured);
            runs.filter(|(other, _)| other.is_same(place)).map(|(_, ratio)| *ratio).collect()
        };
        let ratios: Vec<f64> = places.iter().map(|place| robust_mean(&at_place(place))).collect();
        let mut gram = Matrix::zero(places.len());
        for (row, a) in places.iter().enumerate() {
            for (column, b) in places.iter().enumerate() {
                let noise = if row == column { NOISE_LOG_SD * NOISE_LOG_SD } else { 0.0 };
                gram.set(row, column, a.covariance(b) + noise);
            }
        }
        let lower = gram.cholesky()?;
        let pull = lower.solve(&ratios);
        Some(Self { places, lower, pull })
    }

    /// The residual at `place`.
    #[must_use]
    pub fn at(&self, place: &P) -> Residual {
        let towards: Vec<f64> = self.places.iter().map(|known| known.covariance(place)).collect();
        let weights = self.lower.solve(&towards);
        let variance = place.covariance(place) - dot(&weights, &towards) + NOISE_LOG_SD * NOISE_LOG_SD;
        let same = self.places.iter().any(|known| known.is_same(place));
        Residual {
            log_factor: dot(&self.pull, &towards),
            log_sd: variance.max(NOISE_LOG_SD * NOISE_LOG_SD).sqrt(),
            tier: if same { Tier::Observed } else { Tier::Anchored },
            count: self.places.len(),
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The residual of `subject` at `point`; `None` where none of the observations is of it.
#[must_use]
pub fn residual(
    costs: &EngineCosts,
    observations: &[&Observation],
    subject: Subject<'_>,
    phase: Phase,
    point: &RunPoint,
) -> Option<Residual> {
    Some(Anchors::of(costs, observations, subject, phase)?.at(point))
}
