//! The optimizer: which format, power mode and batch size meet the target, and why.
//!
//! Every candidate of the cross product is looked at; nothing is assumed to be monotone, least of all that a higher mode is
//! faster. Constraints are met at the worse end of the 90 % interval unless the query asks for the expected value. The
//! objective is compared at the best estimate; a mode that has to be entered first is worse by the part of the run that
//! entering it takes.

mod candidate;
mod point;
mod query;
mod ranking;
mod score;
mod validate;
mod words;

#[cfg(test)]
mod tests;

use thiserror::Error;

use self::point::{CandidatePoint, points};
use self::ranking::{CandidateRef, Ranking, Standings};
use self::score::{Batches, Scorer};
use crate::PredictError;
use crate::model::{ModelError, PointCeilings};
use crate::snapshot::Snapshot;
use rooflined_core::board::ActiveMode;
use rooflined_core::operation::{InvalidOp, Op};
use rooflined_core::units::{Hertz, Seconds};

pub use candidate::{Candidate, Outcome, Runs};
pub use query::{Constraints, ModelOrigin, Modes, Query, StoredModel, WorkForms};
pub use ranking::{Constraint, MOST_ALTERNATIVES, Miss, Rejection, Tally};
pub use rooflined_core::names::{EnergyBasis, Objective, Optimism};
pub use score::Score;

/// Most candidates that one query may span.
pub const MAX_CANDIDATES: u64 = 65_536;
/// The same where each has to be summed from calibrated kernels, which takes a thousand times as long.
pub const MAX_SUMMED: u64 = 4_096;
/// Candidates that are predicted between two questions whether the answer is still wanted.
const STRIDE: usize = 256;
/// How long it will run where the query does not say: an hour.
pub const USUAL_RUN: Seconds = Seconds(3_600.0);

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
        /// Batch sizes that it may have beside everything else.
        batches: u64,
    },
    /// The answer needs power, and nothing is known of it.
    #[error("{wanted}: nothing is known of the power of this machine's accelerator")]
    PowerUnknown {
        /// What cannot be done, as a sentence.
        wanted: &'static str,
        /// Whether it is the objective rather than a constraint.
        objective: bool,
    },
    /// No candidate can be predicted.
    #[error(transparent)]
    Predict(#[from] PredictError),
    #[error(transparent)]
    Model(ModelError),
    /// Nobody waits for the answer any more.
    #[error("nobody waits for the answer any more")]
    Unwanted,
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
    /// How many candidates there were, and what excluded them.
    pub tally: Tally,
    /// The candidate that misses the fewest constraints and those by least, and what it misses; only if nothing was chosen.
    pub closest: Option<(Candidate, Vec<Miss>)>,
    /// Limits that look like another unit was meant, as a sentence.
    pub hints: Vec<String>,
    /// Why, in one or two sentences; if nothing was chosen, what the closest candidate misses.
    pub reason: String,
    /// How sure the choice is.
    pub sensitivity: Option<Sensitivity>,
    /// What would sharpen the answer most.
    pub next_best_measurement: Option<String>,
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
    decide_while(&|| true, snapshot, query)
}

/// [`decide`], as long as `is_wanted`, which is asked every few hundred candidates.
///
/// # Errors
/// As [`decide`], and [`QueryError::Unwanted`].
pub fn decide_while(
    is_wanted: &dyn Fn() -> bool,
    snapshot: &Snapshot,
    query: &Query,
) -> Result<Decision, QueryError> {
    validate::query(query)?;
    let points = points(snapshot, query)?;
    let standings = search(is_wanted, snapshot, query, &points)?;
    let candidate = |of: CandidateRef| candidate::candidate(query, &points, of);
    let chosen = standings.chosen.map(candidate);
    let outcome = chosen.as_ref().map(|chosen| chosen.outcome_at(snapshot, query, &points)).transpose()?;
    let closest = standings.closest.clone().map(|(which, misses)| (candidate(which), misses));
    let runner_up = standings.runner_up.map(candidate);
    let rival = runner_up.as_ref().map(|rival| rival.outcome_at(snapshot, query, &points)).transpose()?;
    let at_expected = standings.at_expected.map(candidate);
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
            at_expected: at_expected.clone(),
        }
    });
    let mut reason = words::reason(
        query,
        &standings.fits,
        chosen.as_ref(),
        outcome.as_ref(),
        sensitivity.as_ref(),
        &closest,
    );
    reason.extend(at_expected.map(|candidate| words::at_expected(query, &candidate)));
    let next = words::next_best_measurement(
        query,
        chosen.as_ref(),
        outcome.as_ref(),
        sensitivity.as_ref(),
        &closest,
    );
    Ok(Decision {
        alternatives: standings.front.iter().copied().map(candidate).collect(),
        tally: standings.tally,
        hints: standings.hints,
        next_best_measurement: next,
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
        let query = Query {
            modes: Modes::Listed(vec![mode.clone()]),
            caps: Vec::new(),
            allow_reboot: true,
            ..query.clone()
        };
        let points = points(snapshot, &query)?;
        match search(&|| true, snapshot, &query, &points) {
            Ok(standings) => Ok(verdict(mode, &standings)),
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

fn verdict(mode: ActiveMode, standings: &Standings) -> ModeVerdict {
    let score = standings.chosen.map(|which| which.score);
    let known = |value: f64| value.is_finite().then_some(value);
    let misses = standings.closest.as_ref().map_or(&[][..], |(_, misses)| misses.as_slice());
    ModeVerdict {
        mode,
        meets: score.is_some(),
        energy_j_per_token: score.and_then(|score| known(score.energy)),
        power_w: score.and_then(|score| known(score.watts)),
        tokens_per_s: score.map(|score| score.rate),
        misses: misses.iter().map(|miss| miss.by.key()).collect(),
    }
}

/// Scores and ranks the whole cross product.
fn search(
    is_wanted: &dyn Fn() -> bool,
    snapshot: &Snapshot,
    query: &Query,
    points: &[CandidatePoint<'_>],
) -> Result<Standings, QueryError> {
    validate::size(snapshot, query, points)?;
    let options = query.work.options();
    let mut ranking = Ranking::new(snapshot, query, points.len(), options);
    let batches = Batches::new(query.batch.clone());
    let ceilings: Vec<PointCeilings<'_>> =
        points.iter().map(|point| PointCeilings::of(&point.roofline)).collect();
    let mut unpredictable = None;
    for option in 0..options {
        let scorer = match Scorer::new(is_wanted, (snapshot, query), &batches, option) {
            Ok(scorer) => scorer,
            Err(QueryError::Unwanted) => return Err(QueryError::Unwanted),
            Err(error) => {
                unpredictable = Some(error);
                continue;
            }
        };
        for (index, (point, ceilings)) in points.iter().zip(&ceilings).enumerate() {
            match scorer.score_at(point, ceilings) {
                Ok(scores) => {
                    let is_proposed = query.modes == Modes::All
                        && query.constraints.max_power.is_none()
                        && snapshot.power_limit.is_none();
                    for (batch, score) in query.batch.clone().zip(scores) {
                        // A limit that nobody asked for and that does nothing is the machine as it is.
                        if is_proposed && point.is_beyond_reach(Hertz(score.clock)) {
                            continue;
                        }
                        ranking.consider(CandidateRef { option, point: index, batch, score }, point);
                    }
                }
                Err(QueryError::Unwanted) => return Err(QueryError::Unwanted),
                Err(error) => unpredictable = Some(error),
            }
        }
    }
    match unpredictable {
        Some(error) if ranking.is_empty() => Err(error),
        _ => ranking.finish(),
    }
}

impl WorkForms {
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
