//! Ranks candidates as they come: which meet the constraints, the best, the Pareto front, and the closest miss.

use std::cmp::Ordering;

use super::point::CandidatePoint;
use super::score::{CRITERIA, Score, Scores, criteria};
use super::{Objective, Optimism, Query, QueryError};
use crate::snapshot::Snapshot;
use roofline::units::{Bytes, Seconds, Watts};

/// Alternatives shown; more would not be read by anyone.
const SHOWN: usize = 12;
/// A candidate that needs a reboot nobody allowed misses as far as one that takes twice too long.
const REBOOT_MISS: f64 = 2.0;
/// What is unknown misses further than anything known.
const UNKNOWN_MISS: f64 = 1e9;
/// A limit so many times beyond every candidate was probably meant in another unit.
const BEYOND: f64 = 100.0;

/// A constraint's name on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Constraint {
    /// `max_time_s`
    Time,
    /// `max_time_per_token_s`
    TimePerToken,
    /// `max_time_to_first_token_s`
    TimeToFirstToken,
    /// `min_tokens_per_s`
    Rate,
    /// `max_power_w`
    Power,
    /// `max_memory_bytes`
    Memory,
    /// `memory_available`: it would not fit into what is free now, less the reserve.
    Available,
    /// `max_quality_loss_ratio`
    QualityLoss,
    /// `allow_reboot`: its power mode needs a reboot.
    Reboot,
    /// `power_unknown`: the objective needs its power, and nothing is known of it.
    PowerUnknown,
}

impl Constraint {
    pub const ALL: [Self; 10] = [
        Self::Time,
        Self::TimePerToken,
        Self::TimeToFirstToken,
        Self::Rate,
        Self::Power,
        Self::Memory,
        Self::Available,
        Self::QualityLoss,
        Self::Reboot,
        Self::PowerUnknown,
    ];

    /// The key on the wire.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Time => "max_time_s",
            Self::TimePerToken => "max_time_per_token_s",
            Self::TimeToFirstToken => "max_time_to_first_token_s",
            Self::Rate => "min_tokens_per_s",
            Self::Power => "max_power_w",
            Self::Memory => "max_memory_bytes",
            Self::Available => "memory_available",
            Self::QualityLoss => "max_quality_loss_ratio",
            Self::Reboot => "allow_reboot",
            Self::PowerUnknown => "power_unknown",
        }
    }

    const fn bit(self) -> Mask {
        1 << self as u8
    }

    pub(super) fn of(mask: Mask) -> Vec<Self> {
        Self::ALL.into_iter().filter(|constraint| mask & constraint.bit() != 0).collect()
    }
}

/// A set of constraints.
pub(super) type Mask = u16;
const MASKS: usize = 1 << Constraint::ALL.len();

/// Candidates that one constraint excluded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rejected {
    pub by: Constraint,
    pub count: u64,
    /// Value of the one that missed least, in the constraint's unit; `None` where it is unknown or no number.
    pub closest: Option<f64>,
}

impl Rejected {
    /// With what the same constraint excluded elsewhere.
    pub(super) fn and(&self, other: &Self) -> Self {
        let nearer = if self.by == Constraint::Rate { f64::max } else { f64::min };
        let closest = match (self.closest, other.closest) {
            (Some(a), Some(b)) => Some(nearer(a, b)),
            (a, b) => a.or(b),
        };
        Self { by: self.by, count: self.count + other.count, closest }
    }
}

/// One candidate of the cross product.
#[derive(Debug, Clone, Copy)]
pub(super) struct CandidateRef {
    pub(super) option: usize,
    pub(super) point: usize,
    pub(super) batch: u64,
    pub(super) score: Score,
}

impl CandidateRef {
    pub(super) const fn same(&self, other: &Self) -> bool {
        self.option == other.option && self.point == other.point && self.batch == other.batch
    }
}

/// The best of one option at one operating point, and how good its candidates are at most.
#[derive(Debug, Clone, Copy)]
struct Pair {
    best: CandidateRef,
    rank: Rank,
    /// Least time, least negative rate, least power, least memory, quality: what none of them beats.
    ideal: [f64; CRITERIA],
}

/// What all candidates were judged to.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) chosen: Option<CandidateRef>,
    pub(super) runner_up: Option<CandidateRef>,
    /// What would be chosen at the best estimate, where it is something else.
    pub(super) at_expected: Option<CandidateRef>,
    pub(super) front: Vec<CandidateRef>,
    pub(super) rejected: Vec<Rejected>,
    pub(super) closest: Option<(CandidateRef, Mask)>,
    /// The product of the factors by which the closest exceeds its limits; 1 where something meets them.
    pub(super) distance: f64,
    pub(super) contradicting: Vec<Constraint>,
    pub(super) hints: Vec<String>,
    pub(super) candidates: u64,
    /// By option, whether any batch of it fits into memory.
    pub(super) fits: Vec<bool>,
    /// Whether the power of any candidate is known.
    pub(super) power_known: bool,
}

/// Place of quality among them.
const QUALITY: usize = 4;

fn dominates(a: &[f64; CRITERIA], b: &[f64; CRITERIA]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a != b
}

/// The objective first, then what decides between equals: less is better.
type Rank = [f64; 6];

/// What a query demands, as numbers.
#[derive(Debug, Clone, Copy)]
struct Limits {
    time: f64,
    per_token: f64,
    first: f64,
    rate: f64,
    watts: f64,
    memory: f64,
    available: f64,
    loss: f64,
    active: Mask,
}

pub(super) struct Judge<'a> {
    query: &'a Query,
    limits: Limits,
    expected: bool,
    options: usize,
    pairs: Vec<Option<Pair>>,
    /// The best of those that meet the constraints at the best estimate only.
    at_expected: Option<(CandidateRef, Rank)>,
    /// Criteria of everything that meets the constraints.
    feasible: Vec<(u32, [f64; CRITERIA])>,
    /// The best of each criterion; of equals the one that is better in the others.
    extremes: [Option<(CandidateRef, [f64; CRITERIA])>; CRITERIA],
    counts: Vec<u32>,
    /// By option, whether any batch of it fits into memory.
    fits: Vec<bool>,
    /// Room for the constraints that a range of batches breaks.
    masks: Vec<Mask>,
    nearest: [f64; Constraint::ALL.len()],
    power_known: bool,
    /// The largest time, time per token, time to the first token, watts; the least memory.
    span: [f64; 5],
    closest: Option<(f64, CandidateRef, Mask)>,
    candidates: u64,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        snapshot: &Snapshot,
        query: &'a Query,
        points: &[CandidatePoint<'_>],
        options: usize,
    ) -> Self {
        let of = &query.constraints;
        let available = snapshot.state.memory.known().map(|memory| memory.available - query.reserve);
        let mut active: Mask = Constraint::Reboot.bit();
        let mut limit = |constraint: Constraint, value: Option<f64>| {
            if value.is_some() {
                active |= constraint.bit();
            }
            value.unwrap_or(f64::INFINITY)
        };
        let mut limits = Limits {
            time: limit(Constraint::Time, of.max_time.map(Seconds::get)),
            per_token: limit(Constraint::TimePerToken, of.max_time_per_token.map(Seconds::get)),
            first: limit(Constraint::TimeToFirstToken, of.max_time_to_first_token.map(Seconds::get)),
            rate: limit(Constraint::Rate, of.min_tokens_per_s),
            watts: limit(Constraint::Power, of.max_power.map(Watts::get)),
            memory: limit(Constraint::Memory, of.max_memory.map(Bytes::get)),
            available: limit(Constraint::Available, available.map(Bytes::get)),
            loss: limit(Constraint::QualityLoss, of.max_quality_loss),
            active: 0,
        };
        if matches!(query.objective, Objective::Energy | Objective::Power) {
            active |= Constraint::PowerUnknown.bit();
        }
        limits.active = active;
        Self {
            query,
            limits,
            expected: query.optimism == Optimism::Expected,
            options,
            pairs: vec![None; options * points.len()],
            at_expected: None,
            feasible: Vec::new(),
            extremes: [None; CRITERIA],
            counts: vec![0; MASKS],
            fits: vec![false; options],
            masks: Vec::new(),
            nearest: [f64::NAN; Constraint::ALL.len()],
            power_known: false,
            span: [f64::NAN; 5],
            closest: None,
            candidates: 0,
        }
    }

    /// Constraints that each candidate of the last range broke.
    pub(super) fn masks(&self) -> &[Mask] {
        &self.masks
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.candidates == 0
    }

    /// Looks at the scores of one option at one operating point, for every batch of the query.
    pub(super) fn consider(
        &mut self,
        option: usize,
        index: usize,
        point: &CandidatePoint<'_>,
        scores: &Scores,
    ) {
        let pair = index * self.options + option;
        let reboot = point.reboot && !self.query.allow_reboot;
        // Entering a mode takes its part of the run.
        let entering = 1.0 + point.entering.get() / self.query.run_time.get();
        let mut masks = std::mem::take(&mut self.masks);
        self.misses(scores, reboot, &mut masks);
        self.stretch(scores);
        for (at, batch) in self.query.batch.clone().enumerate() {
            let mask = masks[at];
            self.candidates += 1;
            self.counts[usize::from(mask)] += 1;
            self.fits[option] |= mask & (Constraint::Memory.bit() | Constraint::Available.bit()) == 0;
            let which = || CandidateRef { option, point: index, batch, score: scores.get(at) };
            if mask == 0 {
                self.admit(pair, scores, at, which, entering);
                continue;
            }
            let which = which();
            self.reject(mask, which);
            if !self.expected && self.at_expected(&which.score, reboot) == 0 {
                let rank = self.rank(&which.score, entering);
                if self.at_expected.as_ref().is_none_or(|(_, known)| better(&rank, known)) {
                    self.at_expected = Some((which, rank));
                }
            }
        }
        self.masks = masks;
        // Quality is the same for all of them, so the best of them stands for it.
        if let Some(Pair { best, .. }) = self.pairs[pair] {
            let criteria = criteria(&best.score);
            let worse = |(_, known): &(CandidateRef, [f64; CRITERIA])| {
                criteria[QUALITY] < known[QUALITY]
                    || (criteria[QUALITY] <= known[QUALITY] && before(&criteria, known).is_lt())
            };
            if self.extremes[QUALITY].as_ref().is_none_or(worse) {
                self.extremes[QUALITY] = Some((best, criteria));
            }
        }
    }

    /// Constraints that each candidate breaks, one constraint after the other; what is unknown breaks a limit on it.
    fn misses(&self, scores: &Scores, reboot: bool, masks: &mut Vec<Mask>) {
        masks.clear();
        masks.resize(scores.time.len(), if reboot { Constraint::Reboot.bit() } else { 0 });
        for by in Constraint::ALL {
            if self.limits.active & by.bit() == 0 || by == Constraint::Reboot {
                continue;
            }
            let bit = by as u8;
            let mut above = |column: &[f64], limit: f64, slack: bool| {
                for ((mask, value), slack_of) in masks.iter_mut().zip(column).zip(&scores.slack) {
                    let value = if slack { value * slack_of } else { *value };
                    let meets = value <= limit;
                    *mask |= Mask::from(!meets) << bit;
                }
            };
            let (limits, slack) = (&self.limits, !self.expected);
            match by {
                Constraint::Time => above(&scores.time, limits.time, slack),
                Constraint::TimePerToken => above(&scores.per_token, limits.per_token, slack),
                Constraint::TimeToFirstToken => above(&scores.first, limits.first, slack),
                Constraint::Power if self.expected => above(&scores.watts, limits.watts, false),
                Constraint::Power => above(&scores.watts_high, limits.watts, false),
                Constraint::Memory => above(&scores.memory, limits.memory, false),
                Constraint::Available => above(&scores.memory, limits.available, false),
                // Every power that is known is below infinity.
                Constraint::PowerUnknown => above(&scores.watts, f64::INFINITY, false),
                Constraint::Rate => {
                    for ((mask, rate), slack_of) in masks.iter_mut().zip(&scores.rate).zip(&scores.slack) {
                        let meets = *rate >= limits.rate * if slack { *slack_of } else { 1.0 };
                        *mask |= Mask::from(!meets) << bit;
                    }
                }
                Constraint::QualityLoss => {
                    let meets = scores.loss <= limits.loss;
                    masks.iter_mut().for_each(|mask| *mask |= Mask::from(!meets) << bit);
                }
                Constraint::Reboot => {}
            }
        }
    }

    /// Constraints that a candidate breaks at the best estimate.
    fn at_expected(&self, score: &Score, reboot: bool) -> Mask {
        let limits = &self.limits;
        let within = [
            score.time <= limits.time,
            score.per_token <= limits.per_token,
            score.first <= limits.first,
            score.rate >= limits.rate,
            score.watts <= limits.watts,
            score.memory <= limits.memory,
            score.memory <= limits.available,
            score.loss <= limits.loss,
            !reboot,
            !score.watts.is_nan(),
        ];
        let mut mask = 0;
        for (bit, within) in within.into_iter().enumerate() {
            mask |= Mask::from(!within) << bit;
        }
        mask & limits.active
    }

    fn stretch(&mut self, scores: &Scores) {
        self.power_known |= scores.watts.iter().any(|watts| !watts.is_nan());
        let active = self.limits.active;
        let [time, per_token, first, watts, memory] = &mut self.span;
        let slack = &scores.slack;
        let longest = |by: Constraint, span: &mut f64, column: &[f64]| {
            if active & by.bit() != 0 {
                for (value, slack) in column.iter().zip(slack) {
                    *span = span.max(value * slack);
                }
            }
        };
        longest(Constraint::Time, time, &scores.time);
        longest(Constraint::TimePerToken, per_token, &scores.per_token);
        longest(Constraint::TimeToFirstToken, first, &scores.first);
        if active & Constraint::Power.bit() != 0 {
            scores.watts_high.iter().for_each(|high| *watts = watts.max(*high));
        }
        if active & Constraint::Memory.bit() != 0 {
            scores.memory.iter().for_each(|bytes| *memory = memory.min(*bytes));
        }
    }

    /// The objective where less is better.
    fn first(&self, time: f64, rate: f64, energy: f64, watts: f64, entering: f64) -> f64 {
        match self.query.objective {
            Objective::Latency => time * entering,
            Objective::Throughput => -rate / entering,
            Objective::Energy => energy * entering,
            Objective::Power => watts,
        }
    }

    fn rank(&self, score: &Score, entering: f64) -> Rank {
        let Score { time, rate, watts, energy, memory, loss, .. } = *score;
        [self.first(time, rate, energy, watts, entering), time, -rate, energy, memory, loss]
    }

    fn admit(
        &mut self,
        pair: usize,
        scores: &Scores,
        at: usize,
        which: impl Fn() -> CandidateRef,
        entering: f64,
    ) {
        let criteria = scores.criteria(at);
        let index = u32::try_from(pair).unwrap_or(u32::MAX);
        self.feasible.push((index, criteria));
        for (index, extreme) in self.extremes.iter_mut().enumerate().take(QUALITY) {
            let better = |(_, known): &(CandidateRef, [f64; CRITERIA])| {
                criteria[index] < known[index]
                    || (criteria[index] <= known[index] && before(&criteria, known).is_lt())
            };
            if extreme.as_ref().is_none_or(better) {
                *extreme = Some((which(), criteria));
            }
        }
        let first = self.first(criteria[0], scores.rate[at], scores.energy[at], scores.watts[at], entering);
        if let Some(known) = &mut self.pairs[pair] {
            for (ideal, value) in known.ideal.iter_mut().zip(criteria) {
                *ideal = if value < *ideal { value } else { *ideal };
            }
            // The objective decides between most pairs.
            if first > known.rank[0] {
                return;
            }
        }
        let which = which();
        let rank = self.rank(&which.score, entering);
        match &mut self.pairs[pair] {
            Some(known) if better(&rank, &known.rank) => {
                known.best = which;
                known.rank = rank;
            }
            Some(_) => {}
            empty => *empty = Some(Pair { best: which, rank, ideal: criteria }),
        }
    }

    /// Values at the end of the interval that counts, by constraint.
    fn value(&self, by: Constraint, score: &Score) -> (f64, f64) {
        let slack = if self.expected { 1.0 } else { score.slack };
        let limits = &self.limits;
        match by {
            Constraint::Time => (score.time * slack, limits.time),
            Constraint::TimePerToken => (score.per_token * slack, limits.per_token),
            Constraint::TimeToFirstToken => (score.first * slack, limits.first),
            Constraint::Rate => (score.rate / slack, limits.rate),
            Constraint::Power => (if self.expected { score.watts } else { score.watts_high }, limits.watts),
            Constraint::Memory => (score.memory, limits.memory),
            Constraint::Available => (score.memory, limits.available),
            Constraint::QualityLoss => (score.loss, limits.loss),
            Constraint::Reboot => (f64::NAN, 1.0 / REBOOT_MISS),
            Constraint::PowerUnknown => (f64::NAN, f64::NAN),
        }
    }

    fn reject(&mut self, mask: Mask, which: CandidateRef) {
        // Once something meets everything, nobody asks what misses least.
        let first = self.feasible.is_empty();
        // How far it misses: the product of the factors by which it exceeds each limit.
        let mut distance = 1.0;
        let mut rest = mask;
        while rest != 0 {
            let bit = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let by = Constraint::ALL[bit];
            let (value, limit) = self.value(by, &which.score);
            let nearest = &mut self.nearest[bit];
            let nearer = if by == Constraint::Rate { value > *nearest } else { value < *nearest };
            if nearer || nearest.is_nan() {
                *nearest = value;
            }
            if first {
                distance *= match by {
                    Constraint::Reboot => REBOOT_MISS,
                    _ if value.is_nan() => UNKNOWN_MISS,
                    Constraint::Rate => limit / value,
                    // No limit is so small that nothing exceeds it by a finite factor, but 0 is one.
                    _ if limit <= 0.0 => 1.0 + value - limit,
                    _ => value / limit,
                };
            }
        }
        if first && self.closest.as_ref().is_none_or(|(least, ..)| distance < *least) {
            self.closest = Some((distance, which, mask));
        }
    }

    pub(super) fn finish(self) -> Result<Judged, QueryError> {
        match self.unknown_power() {
            Some(error) => Err(error),
            None => Ok(self.judged()),
        }
    }

    /// What the candidates came to, whether their power is known or not.
    pub(super) fn judged(mut self) -> Judged {
        let mut best: Vec<(CandidateRef, Rank)> =
            self.pairs.iter().flatten().map(|pair| (pair.best, pair.rank)).collect();
        best.sort_by(|(_, a), (_, b)| before(a, b));
        let chosen = best.first().map(|(which, _)| *which);
        // Another batch of the same is no second opinion.
        let runner_up = best.get(1).map(|(which, _)| *which);
        let front = self.front(&best, chosen.as_ref());
        let rejected = self.rejected();
        let contradicting = if chosen.is_none() { self.contradicting() } else { Vec::new() };
        let closest = self.closest.take().filter(|_| chosen.is_none());
        let distance = closest.as_ref().map_or(1.0, |(distance, ..)| *distance);
        let closest = closest.map(|(_, which, mask)| (which, mask));
        Judged {
            chosen,
            runner_up,
            at_expected: self
                .at_expected
                .filter(|(_, rank)| best.first().is_none_or(|(_, chosen)| better(rank, chosen)))
                .map(|(which, _)| which),
            front,
            rejected,
            closest,
            distance,
            contradicting,
            hints: self.hints(),
            candidates: self.candidates,
            fits: self.fits,
            power_known: self.power_known,
        }
    }

    /// Power that is asked for and known of no candidate is a question that cannot be answered.
    fn unknown_power(&self) -> Option<QueryError> {
        let objective = match self.query.objective {
            Objective::Energy => Some("energy cannot be minimised"),
            Objective::Power => Some("power cannot be minimised"),
            Objective::Latency | Objective::Throughput => None,
        };
        let constraint = self.query.constraints.max_power.is_some().then_some("max_power_w cannot be kept");
        let wanted = objective.or(constraint)?;
        (!self.power_known).then_some(QueryError::PowerUnknown { wanted, objective: objective.is_some() })
    }

    fn rejected(&self) -> Vec<Rejected> {
        let count = |by: Constraint| -> u64 {
            let masks = self.counts.iter().enumerate();
            masks.filter(|(mask, _)| mask >> (by as u8) & 1 == 1).map(|(_, count)| u64::from(*count)).sum()
        };
        Constraint::ALL
            .into_iter()
            .map(|by| (by, count(by)))
            .filter(|(_, count)| *count > 0)
            .map(|(by, count)| {
                let closest = self.nearest[by as usize];
                Rejected { by, count, closest: closest.is_finite().then_some(closest) }
            })
            .collect()
    }

    /// The smallest set of constraints that no candidate meets together; of several the first in the order of
    /// [`Constraint::ALL`].
    fn contradicting(&self) -> Vec<Constraint> {
        let met: Vec<usize> = (0..MASKS).filter(|mask| self.counts[*mask] > 0).collect();
        let impossible = |set: usize| set != 0 && met.iter().all(|mask| mask & set != 0);
        let sets = (0..MASKS).filter(|set| impossible(*set));
        let least = sets.min_by_key(|set| set.count_ones());
        least.and_then(|set| Mask::try_from(set).ok()).map_or_else(Vec::new, Constraint::of)
    }

    /// Members of the front that are shown.
    fn front(&self, best: &[(CandidateRef, Rank)], chosen: Option<&CandidateRef>) -> Vec<CandidateRef> {
        let mut front: Vec<CandidateRef> = Vec::with_capacity(SHOWN);
        let extremes = self.extremes.iter().flatten().map(|(which, _)| which);
        let candidates = extremes.chain(best.iter().map(|(which, _)| which));
        for which in candidates {
            if front.len() >= SHOWN {
                break;
            }
            let known = chosen.is_some_and(|chosen| chosen.same(which))
                || front.iter().any(|known| known.same(which));
            if !known && !self.dominated(&criteria(&which.score)) {
                front.push(*which);
            }
        }
        let ranked = |which: &CandidateRef| self.rank(&which.score, 1.0);
        front.sort_by(|a, b| before(&ranked(a), &ranked(b)));
        front
    }

    fn dominated(&self, candidate: &[f64; CRITERIA]) -> bool {
        // Most pairs have nothing that could.
        let may = |pair: &Option<Pair>| {
            pair.as_ref().is_some_and(|pair| pair.ideal.iter().zip(candidate).all(|(a, b)| a <= b))
        };
        let pairs: Vec<bool> = self.pairs.iter().map(may).collect();
        self.feasible.iter().any(|(pair, criteria)| pairs[*pair as usize] && dominates(criteria, candidate))
    }

    /// Limits that look like another unit was meant.
    fn hints(&self) -> Vec<String> {
        let [time, per_token, first, watts, memory] = self.span;
        let limits = &self.limits;
        let mut hints = Vec::new();
        let mut beyond = |by: Constraint, limit: f64, most: f64, unit: &str, example: &str| {
            let active = limits.active & by.bit() != 0;
            if active && limit.is_finite() && limit >= BEYOND * most && limit >= 1.0 {
                hints.push(format!(
                    "{} is {limit} {unit}, {:.0} times what any candidate takes: it is in {unit}, {example}",
                    by.key(),
                    limit / most
                ));
            }
        };
        let seconds = "and 50 ms are 0.05";
        beyond(Constraint::Time, limits.time, time, "seconds", seconds);
        beyond(Constraint::TimePerToken, limits.per_token, per_token, "seconds", seconds);
        beyond(Constraint::TimeToFirstToken, limits.first, first, "seconds", seconds);
        let milliwatts = "and 15000 mW are 15";
        beyond(Constraint::Power, limits.watts, watts, "watts", milliwatts);
        // Missed by every candidate, and that by far.
        let mut missed = |by: Constraint, limit: f64, unit: &str, example: &str| {
            let closest = self.nearest[by as usize];
            let all = (0..MASKS)
                .filter(|mask| self.counts[*mask] > 0)
                .all(|mask| mask & usize::from(by.bit()) != 0);
            let off = (closest / limit).max(limit / closest);
            if all && closest.is_finite() && off.is_finite() && off >= BEYOND {
                hints.push(format!(
                    "{} is {limit} {unit}, and the closest candidate, {off:.0} times off, has {closest:.2e}: it is in {unit}, \
                     {example}",
                    by.key()
                ));
            }
        };
        missed(Constraint::Time, limits.time, "seconds", seconds);
        missed(Constraint::TimePerToken, limits.per_token, "seconds", seconds);
        missed(Constraint::TimeToFirstToken, limits.first, "seconds", seconds);
        missed(Constraint::Rate, limits.rate, "tokens a second", "over the whole batch");
        missed(Constraint::Power, limits.watts, "watts", milliwatts);
        if limits.memory < memory / 1e5 {
            hints.push(format!(
                "max_memory_bytes is {} bytes, and no candidate does with less than {memory:.0}: 8 GB are 8e9",
                limits.memory
            ));
        }
        if limits.loss.is_finite() && limits.loss >= 1.0 {
            hints.push(format!(
                "max_quality_loss_ratio is {}: it is a ratio, and three per cent are 0.03",
                limits.loss
            ));
        }
        hints
    }
}

/// Whether `a` comes before `b`; the first criterion decides between most.
fn better(a: &Rank, b: &Rank) -> bool {
    a[0] < b[0] || (a[0].total_cmp(&b[0]).is_le() && before(a, b).is_lt())
}

/// Lexicographic; unknown comes last.
fn before(a: &[f64], b: &[f64]) -> Ordering {
    let differs = a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
    differs.unwrap_or(Ordering::Equal)
}
