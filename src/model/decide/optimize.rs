//! The optimizer: which format, power mode and batch size meet the target, and why.
//!
//! Every candidate of the cross product is looked at; nothing is assumed to be monotone, least of all that a higher mode is
//! faster. Constraints are met at the worse end of the 90 % interval unless the query asks for the expected value. The
//! objective is compared at the best estimate; a mode that has to be entered first is worse by the part of the run that
//! entering it takes.

mod candidate;
mod joint;
mod judge;
mod point;
mod score;
mod validate;
mod words;

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::sync::Arc;

use thiserror::Error;

use self::judge::{Judge, Judged};
use self::point::{CandidatePoint, points};
use self::score::{Room, Scorer};
use crate::snapshot::Snapshot;
use predict::curve::{Batches, Site};
use predict::model::ModelError;
use predict::{Engine, PredictError};
use roofline::board::ActiveMode;
use roofline::precision::WeightFormat;
use roofline::units::{Bytes, Seconds, Watts};
use roofline::workload::model::Model;
use roofline::workload::transformer::Request;
use roofline::workload::{InvalidOp, Op};

pub use candidate::{Candidate, Outcome, Runs};
pub use joint::{
    Joint, JointDecision, JointError, JointQuery, MAX_WORKLOADS, Member, Resident, Totals, Violation,
    decide_jointly,
};
pub use judge::{Constraint, Rejected};
pub use roofline::names::{Objective, Optimism, Sharing};
pub use score::Score;

/// Most candidates that one query may span.
pub const MAX_CANDIDATES: u64 = 65_536;
/// The same where each has to be summed from calibrated kernels, which takes a thousand times as long.
pub const MAX_SUMMED: u64 = 4_096;
/// How long it will run where the query does not say: an hour.
pub const USUAL_RUN: Seconds = Seconds(3_600.0);

/// Limits that an answer must keep.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Constraints {
    /// Longest time of one run.
    pub max_time: Option<Seconds>,
    /// Longest time of one token after the first; for an operation, of the operation.
    pub max_time_per_token: Option<Seconds>,
    /// Longest time until the first token.
    pub max_time_to_first_token: Option<Seconds>,
    /// Fewest tokens (columns) per second over the batch.
    pub min_tokens_per_s: Option<f64>,
    pub max_power: Option<Watts>,
    pub max_memory: Option<Bytes>,
    /// Largest quality loss ratio: the relative increase of perplexity over 16-bit weights.
    pub max_quality_loss: Option<f64>,
}

/// A model as it would be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Key of the format; `None` for a file that does not say.
    pub format: Option<String>,
    pub model: Arc<Model>,
    /// Quality loss ratio that is expected of it; `None` where nothing is known.
    pub quality_loss: Option<f64>,
    pub published: Published,
}

/// How a model in a format is come by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Published {
    /// The checkpoint is published in the format.
    Checkpoint,
    /// The file at hand is stored in it.
    File,
    /// It has to be made of another.
    #[default]
    Otherwise,
}

/// What is to run, in every form that it may take.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// An operation; its columns are what the batch ranges over.
    Op {
        op: Op,
        /// Storage of its weights to choose from.
        formats: Vec<WeightFormat>,
    },
    Model {
        /// What its runs are filed under.
        name: String,
        /// What is asked of it; batch and cache are chosen.
        request: Request,
        /// Storage to choose from.
        stored: Vec<Stored>,
        /// Storage of the cache to choose from.
        kv_formats: Vec<WeightFormat>,
    },
}

/// Power modes to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Modes {
    /// The machine as it is now.
    Now,
    /// Every mode that needs no reboot.
    Live,
    All,
    Listed(Vec<ActiveMode>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    pub work: Work,
    pub engine: Engine,
    /// What to make as good as possible.
    pub objective: Objective,
    pub constraints: Constraints,
    /// Power modes to choose from.
    pub modes: Modes,
    /// Whether a mode that needs a reboot may be chosen.
    pub allow_reboot: bool,
    /// Worker threads of the CPU to choose from; empty = as many as now.
    pub threads: Vec<u32>,
    /// Sequences (columns) to choose from.
    pub batch: RangeInclusive<u64>,
    /// Which end of the interval counts.
    pub optimism: Optimism,
    /// How long it will run: what entering a mode takes is spread over it.
    pub run_time: Seconds,
    /// Available memory that is left to others; [`Query::WHATEVER_IS_FREE`] where what is available does not matter.
    pub reserve: Bytes,
}

impl Query {
    /// A reserve that no shortage of memory breaks.
    pub const WHATEVER_IS_FREE: Bytes = Bytes(f64::NEG_INFINITY);
}

/// A question that cannot be answered as asked.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum QueryError {
    #[error(transparent)]
    Op(#[from] InvalidOp),
    /// No format to choose from.
    #[error("there is no format to choose from")]
    NoFormats,
    /// No mode to choose from.
    #[error("there is no power mode to choose from")]
    NoModes,
    /// An empty or reversed range.
    #[error("the batch range {min} to {max} is empty")]
    EmptyBatch { min: u64, max: u64 },
    /// Attention has no stored format and no columns.
    #[error("{kind} leaves nothing to choose: its format and batch are fixed by the operation")]
    NothingToChoose { kind: &'static str },
    #[error("the accelerator is a GPU, whose SMs are always used together")]
    NoThreads,
    /// A limit on something that the work does not have.
    #[error("{constraint} cannot be kept: {work} has no such time")]
    NoSuchTime {
        constraint: &'static str,
        /// What is asked of the model.
        work: &'static str,
    },
    /// Too large a cross product.
    #[error("{candidates} candidates are more than {most}")]
    TooMany {
        /// Size of the cross product.
        candidates: u64,
        most: u64,
    },
    /// The answer needs power, and nothing is known of it.
    #[error("{wanted}: nothing is known of the power of this machine's accelerator")]
    PowerUnknown {
        /// What cannot be done, in words.
        wanted: &'static str,
        /// Whether it is the objective rather than a constraint.
        objective: bool,
    },
    /// No candidate can be predicted.
    #[error(transparent)]
    Predict(#[from] PredictError),
    #[error(transparent)]
    Model(ModelError),
}

impl From<ModelError> for QueryError {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Op(error) => Self::Predict(error),
            other => Self::Model(other),
        }
    }
}

/// Whether another choice would be made if the predictions were off by what their intervals allow.
#[derive(Debug, Clone, PartialEq)]
pub struct Sensitivity {
    /// The best candidate in another format, mode or number of threads; `None` where there is none.
    pub runner_up: Option<Candidate>,
    /// By how much the choice is better in the objective: 0.1 is ten per cent; `None` without a runner-up.
    pub margin_ratio: Option<f64>,
    /// Relative half-width of the interval of the ratio of the two, as if their errors had nothing in common.
    pub interval_ratio: Option<f64>,
    /// What would be chosen if constraints were met at the best estimate; `None` where it is the same.
    pub at_expected: Option<Candidate>,
}

impl Sensitivity {
    /// Whether the runner-up may be the better one.
    #[must_use]
    pub fn could_change(&self) -> bool {
        let reached = self.margin_ratio.zip(self.interval_ratio);
        reached.is_some_and(|(margin, interval)| margin < interval)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The choice; `None` if nothing meets the constraints.
    pub chosen: Option<Candidate>,
    /// The choice predicted in full.
    pub outcome: Option<Outcome>,
    /// Members of the Pareto front without the choice, by the objective: of each format, mode and number of threads the
    /// best by the objective, and the best of each criterion. No candidate is at least as good as one of them in time,
    /// rate, power, memory and quality at once and better in one.
    pub alternatives: Vec<Candidate>,
    pub rejected: Vec<Rejected>,
    /// The candidate that misses least, and what it misses; only if nothing was chosen.
    pub closest: Option<(Candidate, Vec<Constraint>)>,
    /// The fewest constraints that no candidate meets together; only if nothing was chosen.
    pub contradicting: Vec<Constraint>,
    /// Limits that look like another unit was meant, in words.
    pub hints: Vec<String>,
    /// Why, in one or two sentences.
    pub reason: String,
    /// How sure the choice is.
    pub sensitivity: Option<Sensitivity>,
    /// What would sharpen the answer most.
    pub next_best_measurement: Option<String>,
    pub candidates: u64,
}

/// What a query comes to in one power mode.
#[derive(Debug, Clone, PartialEq)]
pub struct ModeVerdict {
    pub mode: ActiveMode,
    /// Whether some format and batch meet every constraint in it.
    pub meets: bool,
    /// Energy of a token of the best of them, in joules; `None` where power is unknown.
    pub energy_j_per_token: Option<f64>,
    /// Its power in watts.
    pub power_w: Option<f64>,
    pub tokens_per_s: Option<f64>,
    /// Keys of the constraints that the closest one misses.
    pub misses: Vec<&'static str>,
}

/// Answers a query from one snapshot.
///
/// # Errors
/// A query that is empty, too large or about an impossible operation; an infeasible one is an answer, not an error.
pub fn decide(snapshot: &Snapshot, query: &Query) -> Result<Decision, QueryError> {
    validate::query(query)?;
    let points = points(snapshot, query)?;
    let judged = search(snapshot, query, &points)?;
    let candidate = |of: judge::CandidateRef| candidate::candidate(query, &points, of);
    let chosen = judged.chosen.map(candidate);
    let outcome = chosen
        .as_ref()
        .map(|chosen| chosen.outcome_at(snapshot, query, &points, Some(chosen.score.watts)))
        .transpose()?;
    let closest = judged.closest.map(|(which, misses)| (candidate(which), Constraint::of(misses)));
    let runner_up = judged.runner_up.map(candidate);
    let rival = runner_up
        .as_ref()
        .map(|rival| rival.outcome_at(snapshot, query, &points, Some(rival.score.watts)))
        .transpose()?;
    let sensitivity = chosen.as_ref().map(|chosen| {
        let other = runner_up.as_ref().zip(rival.as_ref());
        let margin = outcome.as_ref().zip(other).map(|(outcome, (rival, other))| {
            candidate::margin(query, (chosen, &outcome.prediction), (rival, &other.prediction))
        });
        let (margin_ratio, interval_ratio) = margin.unzip();
        Sensitivity {
            runner_up: runner_up.clone(),
            margin_ratio,
            interval_ratio,
            at_expected: judged.at_expected.map(candidate),
        }
    });
    let reason =
        words::reason(query, &judged, chosen.as_ref(), outcome.as_ref(), sensitivity.as_ref(), &closest);
    let next = words::next_best_measurement(
        query,
        chosen.as_ref(),
        outcome.as_ref(),
        sensitivity.as_ref(),
        &closest,
    );
    Ok(Decision {
        alternatives: judged.front.iter().copied().map(candidate).collect(),
        rejected: judged.rejected,
        contradicting: judged.contradicting,
        hints: judged.hints,
        next_best_measurement: next,
        candidates: judged.candidates,
        reason,
        sensitivity,
        closest,
        chosen,
        outcome,
    })
}

/// Candidates of the query in every power mode together, and whether each has to be predicted on its own, which takes
/// longer.
///
/// # Errors
/// As [`decide`].
pub fn effort(snapshot: &Snapshot, query: &Query) -> Result<(u64, bool), QueryError> {
    validate::query(query)?;
    let every = Query { modes: Modes::All, ..query.clone() };
    let points = points(snapshot, &every)?;
    let (candidates, most) = validate::candidates(snapshot, query, &points);
    Ok((candidates, most < MAX_CANDIDATES))
}

/// What the query comes to in each power mode of the machine, whatever modes it may choose from itself.
///
/// # Errors
/// As [`decide`].
pub fn verdicts(snapshot: &Snapshot, query: &Query) -> Result<Vec<ModeVerdict>, QueryError> {
    let in_mode = |mode: ActiveMode| {
        let query = Query { modes: Modes::Listed(vec![mode.clone()]), allow_reboot: true, ..query.clone() };
        let points = points(snapshot, &query)?;
        match search(snapshot, &query, &points) {
            Ok(judged) => Ok(verdict(mode, &judged)),
            // Of a mode without a prediction nothing is known; others may have one.
            Err(QueryError::Predict(_) | QueryError::Model(_) | QueryError::PowerUnknown { .. }) => {
                Ok(ModeVerdict {
                    mode,
                    meets: false,
                    energy_j_per_token: None,
                    power_w: None,
                    tokens_per_s: None,
                    misses: vec!["unknown"],
                })
            }
            Err(error) => Err(error),
        }
    };
    validate::query(query)?;
    let every = Query { modes: Modes::All, ..query.clone() };
    validate::size(snapshot, query, &points(snapshot, &every)?)?;
    snapshot.modes.iter().map(|view| in_mode(view.mode.key())).collect()
}

fn verdict(mode: ActiveMode, judged: &Judged) -> ModeVerdict {
    let score = judged.chosen.map(|which| which.score);
    let known = |value: f64| value.is_finite().then_some(value);
    let misses = judged.closest.map_or_else(Vec::new, |(_, misses)| Constraint::of(misses));
    ModeVerdict {
        mode,
        meets: score.is_some(),
        energy_j_per_token: score.and_then(|score| known(score.energy)),
        power_w: score.and_then(|score| known(score.watts)),
        tokens_per_s: score.map(|score| score.rate),
        misses: misses.iter().map(|by| by.key()).collect(),
    }
}

/// Scores and judges the whole cross product.
fn search(snapshot: &Snapshot, query: &Query, points: &[CandidatePoint<'_>]) -> Result<Judged, QueryError> {
    validate::size(snapshot, query, points)?;
    let options = query.work.options();
    let mut judge = Judge::new(snapshot, query, points, options);
    let (batches, mut room) = (Batches::new(query.batch.clone()), Room::default());
    let sites: Vec<Site> = points.iter().map(|point| Site::of(&point.roofline)).collect();
    let mut unpredictable = None;
    for option in 0..options {
        let mut scorer = match Scorer::new(snapshot, query, &batches, option) {
            Ok(scorer) => scorer,
            Err(error) => {
                unpredictable = Some(error);
                continue;
            }
        };
        for (index, (point, site)) in points.iter().zip(&sites).enumerate() {
            match scorer.at(point, site, &mut room) {
                Ok(scores) => judge.consider(option, index, point, scores),
                Err(error) => unpredictable = Some(error),
            }
        }
    }
    match unpredictable {
        Some(error) if judge.is_empty() => Err(error),
        _ => judge.finish(),
    }
}

impl Work {
    /// Forms that it may be stored in.
    #[must_use]
    pub const fn options(&self) -> usize {
        match self {
            Self::Op { formats, .. } => formats.len(),
            Self::Model { stored, kv_formats, .. } => stored.len() * kv_formats.len(),
        }
    }
}

/// The operation for `columns` right-hand sides at once.
#[must_use]
pub const fn with_columns(op: Op, columns: u64) -> Op {
    match op {
        Op::Gemv { n, k } | Op::Gemm { n, k, .. } if columns != 1 => Op::Gemm { m: columns, n, k },
        Op::Gemm { n, k, .. } => Op::Gemv { n, k },
        other => other,
    }
}

#[expect(clippy::cast_precision_loss, reason = "batches are bounded by MAX_CANDIDATES")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}
