//! Several workloads that are resident at once, each with its share of the machine: one decision for all of them.
//!
//! What a share gives is a model, stated in [`Sharing`]; neither form was measured here. Every workload is taken to have
//! always something to do. Limits of a workload are met by what it gets of its share; memory and power are those of all
//! together, and so is the power mode. The search is exact: see [`front`].

mod front;
mod together;
mod words;

use std::borrow::Cow;
use std::ops::RangeInclusive;

use thiserror::Error;

use self::front::{Budget, Dims};
use self::together::{Combination, Together};
use super::judge::{CandidateRef, Judge, Judged};
use super::point::{CandidatePoint, points};
use super::score::{Room, Score, Scorer, Scores};
use super::{
    Candidate, Constraint, Constraints, Modes, Objective, Optimism, Outcome, Query, QueryError, Rejected,
    Sharing, Work, candidate, validate,
};
use crate::snapshot::Snapshot;
use predict::Engine;
use predict::curve::{Batches, Site};
use roofline::ceilings::scaling;
use roofline::units::{Bytes, Seconds, Watts};

/// Most workloads of one question.
pub const MAX_WORKLOADS: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub struct Resident {
    pub work: Work,
    pub engine: Engine,
    /// Its part of the machine, above 0; all together are no more than 1.
    pub share: f64,
    /// What it must keep itself; power and reserve are the machine's.
    pub constraints: Constraints,
    /// Sequences (columns) to choose from.
    pub batch: RangeInclusive<u64>,
}

/// A question about several workloads.
#[derive(Debug, Clone, PartialEq)]
pub struct JointQuery {
    pub residents: Vec<Resident>,
    /// How they share the machine.
    pub sharing: Sharing,
    /// What to make as good as possible: the longest of their times, the sum of their rates, energy for a token of any of
    /// them, or power.
    pub objective: Objective,
    /// Most power of all together.
    pub max_power: Option<Watts>,
    /// Most memory of all together.
    pub max_memory: Option<Bytes>,
    /// Power modes to choose from.
    pub modes: Modes,
    /// Whether a mode that needs a reboot may be chosen.
    pub allow_reboot: bool,
    /// Which end of the interval counts.
    pub optimism: Optimism,
    /// How long it will run.
    pub run_time: Seconds,
    /// Available memory that is left to others.
    pub reserve: Bytes,
}

/// A question that cannot be answered as asked.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum JointError {
    /// None, one, or too many workloads.
    #[error("{count} workloads are not 2 to {MAX_WORKLOADS}")]
    Workloads { count: usize },
    /// A share that is none.
    #[error("a share of {share} is not above 0 and at most 1")]
    Share { workload: usize, share: f64 },
    /// Shares of more than the machine.
    #[error("the shares add up to {sum}, more than 1")]
    Shares { sum: f64 },
    /// One of the workloads, or what holds for all.
    #[error("{error}")]
    Query {
        /// Which; `None` where it is about all of them.
        workload: Option<usize>,
        error: QueryError,
    },
    /// More candidates, or more sets of them, than one question may span.
    #[error("{candidates} candidates of {workloads} workloads are too many to be decided together")]
    TooMany { candidates: u64, workloads: usize },
}

/// One workload in the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Format, mode and batch; its score is that at its share.
    pub candidate: Candidate,
    /// Predicted in full as if it had the machine for itself.
    pub alone: Outcome,
}

/// What all workloads come to together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Totals {
    /// The longest of their times in seconds.
    pub longest: f64,
    /// Tokens (columns) per second of all of them.
    pub rate: f64,
    /// Mean watts; NaN where unknown.
    pub watts: f64,
    /// Upper end of their interval.
    pub watts_high: f64,
    /// Joules for a token of any of them; NaN where unknown.
    pub energy: f64,
    /// Bytes.
    pub memory: f64,
}

/// A choice for every workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Joint {
    pub members: Vec<Member>,
    pub totals: Totals,
}

/// A constraint that is not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// By which workload; `None` where it is that of all together.
    pub workload: Option<usize>,
    pub by: Constraint,
}

#[derive(Debug, Clone, PartialEq)]
pub struct JointDecision {
    /// The choice; `None` if nothing meets the constraints.
    pub chosen: Option<Joint>,
    /// What misses least; only if nothing was chosen.
    pub closest: Option<Joint>,
    pub violated: Vec<Violation>,
    /// What workloads exclude by themselves: the workload and what was excluded of it.
    pub rejected: Vec<(usize, Rejected)>,
    /// Limits that look like another unit was meant, in words.
    pub hints: Vec<String>,
    /// Why, in one or two sentences.
    pub reason: String,
    /// Candidates of all workloads looked at.
    pub candidates: u64,
}

impl JointQuery {
    /// The question about one of the workloads. Its power is worked out to the end of the interval where all together have a
    /// limit on it.
    fn of(&self, index: usize) -> Query {
        let Resident { work, engine, constraints, batch, .. } = self.residents[index].clone();
        Query {
            work,
            engine,
            objective: self.objective,
            constraints: Constraints { max_power: self.max_power, ..constraints },
            modes: self.modes.clone(),
            allow_reboot: self.allow_reboot,
            threads: Vec::new(),
            batch,
            optimism: self.optimism,
            run_time: self.run_time,
            reserve: self.reserve,
        }
    }

    /// Sum of all shares.
    fn shared(&self) -> f64 {
        self.residents.iter().map(|resident| resident.share).sum()
    }
}

/// Shares that were rounded may add up to this.
const WHOLE: f64 = 1.0 + 1e-9;

fn validated(query: &JointQuery) -> Result<(), JointError> {
    let count = query.residents.len();
    if !(2..=MAX_WORKLOADS).contains(&count) {
        return Err(JointError::Workloads { count });
    }
    for (workload, resident) in query.residents.iter().enumerate() {
        let share = resident.share;
        if !(share > 0.0 && share <= 1.0) {
            return Err(JointError::Share { workload, share });
        }
    }
    let sum = query.shared();
    if sum > WHOLE { Err(JointError::Shares { sum }) } else { Ok(()) }
}

const fn about(workload: usize) -> impl Fn(QueryError) -> JointError {
    move |error| JointError::Query { workload: Some(workload), error }
}

/// What one workload may choose in one power mode.
#[derive(Debug)]
struct Choices {
    /// Those that keep the workload's own limits.
    kept: Vec<CandidateRef>,
    judged: Judged,
}

/// Answers a question about several workloads from one snapshot.
///
/// # Errors
/// A question that is empty, too large or about an impossible operation; an infeasible one is an answer, not an error.
pub fn decide_jointly(snapshot: &Snapshot, query: &JointQuery) -> Result<JointDecision, JointError> {
    validated(query)?;
    let queries: Vec<Query> = (0..query.residents.len()).map(|index| query.of(index)).collect();
    for (index, query) in queries.iter().enumerate() {
        validate::query(query).map_err(about(index))?;
    }
    let points =
        points(snapshot, &queries[0]).map_err(|error| JointError::Query { workload: None, error })?;
    sized(snapshot, &queries, &points)?;
    let mut choices = Vec::with_capacity(queries.len());
    for (index, of) in queries.iter().enumerate() {
        choices.push(chosen_from(snapshot, query, index, of, &points).map_err(about(index))?);
    }
    let candidates = choices.iter().flatten().map(|of| of.judged.candidates).sum();
    let together = Together::new(snapshot, query, &points, &choices);
    if let Some(error) = together.unknown_power() {
        return Err(JointError::Query { workload: None, error });
    }
    let mut budget = Budget::default();
    let too_many = |_| JointError::TooMany { candidates, workloads: queries.len() };
    let found = together.search(&mut budget).map_err(too_many)?;
    let full = |found: &Combination| joint(snapshot, &queries, &points, &choices, found);
    let (chosen, closest, violated) = match found.best() {
        Some(best) => (Some(full(best)?), None, Vec::new()),
        None => {
            let (closest, violated) = together.closest(&mut budget).map_err(too_many)?;
            (None, Some(full(&closest)?), violated)
        }
    };
    let runner_up = found.runner_up().map(|other| (&points[other.point], other));
    let reason = words::reason(query, chosen.as_ref().or(closest.as_ref()), &violated, runner_up);
    Ok(JointDecision {
        chosen,
        closest,
        violated,
        rejected: rejected(&choices),
        hints: hints(query, &choices),
        reason,
        candidates,
    })
}

/// Each workload takes its part of what one question may span.
fn sized(snapshot: &Snapshot, queries: &[Query], points: &[CandidatePoint<'_>]) -> Result<(), JointError> {
    let (mut all, mut taken) = (0_u64, 0.0);
    for query in queries {
        let (candidates, most) = validate::candidates(snapshot, query, points);
        all = all.saturating_add(candidates);
        taken += as_f64(candidates) / as_f64(most);
    }
    if taken > 1.0 {
        return Err(JointError::TooMany { candidates: all, workloads: queries.len() });
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "compared with bounds far below 2^53")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}

/// The operating point as a workload with this share finds it.
fn share_of<'a>(point: &CandidatePoint<'a>, sharing: Sharing, share: f64) -> CandidatePoint<'a> {
    if sharing == Sharing::TimeSlicing {
        return point.clone();
    }
    // What energy costs is that of the machine's real clocks; of the power above the static part each has its share.
    let mut power = point.power.clone();
    if let Some(costs) = &mut power {
        let standing = Watts(costs.coefficients.static_w);
        costs.cap = costs.cap.map(|cap| standing + (cap - standing) * share);
    }
    CandidatePoint { roofline: Cow::Owned(scaling::split(&point.roofline, share)), power, ..point.clone() }
}

/// What a workload gets of its share, from what it gets at the operating point that it finds.
fn at_share(scores: &Scores, sharing: Sharing, share: f64) -> Cow<'_, Scores> {
    match sharing {
        Sharing::Mps => Cow::Borrowed(scores),
        Sharing::TimeSlicing => Cow::Owned(scores.sliced(share)),
    }
}

/// Everything that one workload may choose, by operating point.
fn chosen_from(
    snapshot: &Snapshot,
    joint: &JointQuery,
    index: usize,
    query: &Query,
    points: &[CandidatePoint<'_>],
) -> Result<Vec<Choices>, QueryError> {
    let (sharing, share) = (joint.sharing, joint.residents[index].share);
    // A workload's own power is no limit: it has the machine for a part of the time, or a part of it.
    let own = Query { constraints: joint.residents[index].constraints, ..query.clone() };
    let options = query.work.options();
    let found: Vec<CandidatePoint<'_>> = points.iter().map(|point| share_of(point, sharing, share)).collect();
    let mut judges: Vec<Judge<'_>> =
        points.iter().map(|point| Judge::new(snapshot, &own, std::slice::from_ref(point), options)).collect();
    let mut kept: Vec<Vec<CandidateRef>> = vec![Vec::new(); points.len()];
    let mut unpredictable = None;
    let (batches, mut room) = (Batches::new(query.batch.clone()), Room::default());
    let sites: Vec<Site> = found.iter().map(|point| Site::of(&point.roofline)).collect();
    for option in 0..options {
        let mut scorer = match Scorer::new(snapshot, query, &batches, option) {
            Ok(scorer) => scorer,
            Err(error) => {
                unpredictable = Some(error);
                continue;
            }
        };
        for (point, (at, site)) in found.iter().zip(&sites).enumerate() {
            let scores = match scorer.at(at, site, &mut room) {
                Ok(scores) => at_share(scores, sharing, share),
                Err(error) => {
                    unpredictable = Some(error);
                    continue;
                }
            };
            judges[point].consider(option, 0, at, &scores);
            let masks = query.batch.clone().zip(judges[point].masks()).enumerate();
            for (index, (batch, _)) in masks.filter(|(_, (_, mask))| **mask == 0) {
                // A judge knows one operating point.
                kept[point].push(CandidateRef { option, point: 0, batch, score: scores.get(index) });
            }
        }
    }
    if let Some(error) = unpredictable
        && judges.iter().all(Judge::is_empty)
    {
        return Err(error);
    }
    let judged = judges.into_iter().map(Judge::judged);
    Ok(kept.into_iter().zip(judged).map(|(kept, judged)| Choices { kept, judged }).collect())
}

/// A set of choices predicted in full.
fn joint(
    snapshot: &Snapshot,
    queries: &[Query],
    points: &[CandidatePoint<'_>],
    choices: &[Vec<Choices>],
    found: &Combination,
) -> Result<Joint, JointError> {
    let mut members = Vec::with_capacity(queries.len());
    for (index, (query, pick)) in queries.iter().zip(&found.picks).enumerate() {
        let of = &choices[index][found.point];
        // A workload that nothing is predicted of in any mode that the others have.
        let which = pick.which(of).ok_or_else(|| about(index)(QueryError::NoModes))?;
        let candidate = candidate::candidate(query, points, CandidateRef { point: found.point, ..which });
        let alone = candidate.outcome_alone(snapshot, query).map_err(about(index))?;
        members.push(Member { candidate, alone });
    }
    Ok(Joint { members, totals: found.totals })
}

/// What each workload excludes, over all operating points.
fn rejected(choices: &[Vec<Choices>]) -> Vec<(usize, Rejected)> {
    let mut all = Vec::new();
    for (index, points) in choices.iter().enumerate() {
        let mut of: Vec<Rejected> = Vec::new();
        for rejected in points.iter().flat_map(|point| &point.judged.rejected) {
            match of.iter_mut().find(|known| known.by == rejected.by) {
                Some(known) => *known = known.and(rejected),
                None => of.push(*rejected),
            }
        }
        of.sort_by_key(|rejected| rejected.by);
        all.extend(of.into_iter().map(|rejected| (index, rejected)));
    }
    all
}

/// Hints that hold at every operating point.
fn hints(query: &JointQuery, choices: &[Vec<Choices>]) -> Vec<String> {
    let mut hints = Vec::new();
    for (index, points) in choices.iter().enumerate() {
        let Some((first, others)) = points.split_first() else { continue };
        let key = |hint: &str| hint.split_once(' ').map(|(key, _)| key.to_owned());
        let everywhere = |hint: &&String| {
            others.iter().all(|point| point.judged.hints.iter().any(|other| key(other) == key(hint)))
        };
        let name = words::name(query, index);
        hints.extend(first.judged.hints.iter().filter(everywhere).map(|hint| format!("{name}: {hint}")));
    }
    hints
}

/// What a score adds to all together; watts are those above `standing`, the static part of a machine that is shared at the
/// same time, or the part of them that falls into its share of the time.
fn dims(score: &Score, sharing: Sharing, share: f64, standing: f64) -> Dims {
    let part = |watts: f64| match sharing {
        Sharing::TimeSlicing => watts * share,
        Sharing::Mps => watts - standing,
    };
    [score.time, score.time, -score.rate, part(score.watts), part(score.watts_high), score.memory]
}
