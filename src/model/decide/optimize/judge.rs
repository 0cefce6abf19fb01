//! Ranks candidates as they come: which meet the constraints, the best, the Pareto front, and the closest miss.

use std::cmp::Ordering;
use std::ops::Range;

use pulp::{Arch, NullaryFnOnce};

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
/// So many times below every candidate, a limit on memory was probably meant in another unit.
const MISSED_MEMORY: f64 = 1e5;

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

    /// Limits on what has an interval.
    const ESTIMATED: Mask = Self::Time.bit()
        | Self::TimePerToken.bit()
        | Self::TimeToFirstToken.bit()
        | Self::Rate.bit()
        | Self::Power.bit();

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

/// Candidates of one option at one operating point.
struct Group {
    option: usize,
    index: usize,
    pair: usize,
    reboot: bool,
    /// The part of the run that entering the mode takes, and the run.
    entering: f64,
}

impl Group {
    /// The candidate at `at` of the batches of the query.
    fn which(&self, query: &Query, scores: &Scores, at: usize) -> CandidateRef {
        let batch = query.batch.start() + at as u64;
        CandidateRef { option: self.option, point: self.index, batch, score: scores.get(at) }
    }
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

/// Criteria of what meets the constraints, but quality, by column.
#[derive(Debug, Default)]
struct Feasible {
    columns: [Vec<f64>; QUALITY],
    /// Pair and quality of each run of batches, and where it ends.
    runs: Vec<(usize, f64, usize)>,
}

impl Feasible {
    const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Takes in a run of batches; returns the least of each criterion.
    #[inline(always)]
    fn add(&mut self, pair: usize, scores: &Scores, run: Range<usize>) -> [f64; CRITERIA] {
        let of = &scores.criteria(run.start);
        let mut ideal = *of;
        let [time, rate, watts, memory] = &mut self.columns;
        let from = time.len();
        time.extend_from_slice(&scores.time[run.clone()]);
        rate.extend(scores.rate[run.clone()].iter().map(|rate| -rate));
        let known = |watts: &f64| if watts.is_nan() { f64::INFINITY } else { *watts };
        watts.extend(scores.watts[run.clone()].iter().map(known));
        memory.extend_from_slice(&scores.memory[run]);
        self.runs.push((pair, of[QUALITY], time.len()));
        for (ideal, column) in ideal.iter_mut().zip(&self.columns) {
            *ideal = least(&column[from..]);
        }
        ideal
    }

    /// Whether one of the `pairs` has something that is at least as good in everything and better in something.
    fn dominates(&self, pairs: &[bool], candidate: &[f64; CRITERIA]) -> bool {
        let mut from = 0;
        self.runs.iter().any(|(pair, quality, end)| {
            let run = std::mem::replace(&mut from, *end)..*end;
            let of = |at: usize| {
                let [time, rate, watts, memory] = &self.columns;
                [time[at], rate[at], watts[at], memory[at], *quality]
            };
            pairs[*pair] && run.into_iter().any(|at| dominates(&of(at), candidate))
        })
    }
}

/// Marks what does not meet a constraint, most often nothing.
#[inline(always)]
fn mark(
    masks: &mut [Mask],
    bit: Mask,
    values: impl Iterator<Item = f64> + Clone,
    meets: impl Fn(f64) -> bool,
) {
    // All of them, because a loop that may end early takes them one by one.
    if !values.clone().fold(true, |all, value| all & meets(value)) {
        for (mask, value) in masks.iter_mut().zip(values) {
            *mask |= if meets(value) { 0 } else { bit };
        }
    }
}

/// How many masks from the first on are this one.
#[inline(always)]
fn alike(masks: &[Mask], mask: Mask) -> usize {
    const SIDE_BY_SIDE: usize = 64;
    let mut count = 0;
    for some in masks.chunks(SIDE_BY_SIDE) {
        // All of them, because a loop that may end early takes them one by one.
        if some.iter().fold(true, |same, other| same & (*other == mask)) {
            count += some.len();
        } else {
            return count + some.iter().take_while(|other| **other == mask).count();
        }
    }
    count
}

/// The least of a column; infinite where nothing in it is a number.
#[inline(always)]
fn least(column: &[f64]) -> f64 {
    // Side by side, so that none waits for the one before it.
    const LANES: usize = 8;
    let mut lanes = [f64::INFINITY; LANES];
    let (chunks, rest) = column.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if value < lane { *value } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f64::INFINITY, |least, value| if *value < least { *value } else { least })
}

/// Whether a value of a column is its least, or no number.
fn may_be_least(value: f64, least: f64) -> bool {
    value.partial_cmp(&least) != Some(Ordering::Greater)
}

pub(super) struct Judge<'a> {
    query: &'a Query,
    limits: Limits,
    expected: bool,
    options: usize,
    pairs: Vec<Option<Pair>>,
    /// The best of those that meet the constraints at the best estimate only.
    at_expected: Option<(CandidateRef, Rank)>,
    /// Everything that meets the constraints.
    feasible: Feasible,
    /// The best of each criterion; of equals the one that is better in the others.
    extremes: [Option<(CandidateRef, [f64; CRITERIA])>; CRITERIA],
    counts: Vec<u64>,
    /// By option, whether any batch of it fits into memory.
    fits: Vec<bool>,
    /// Room for the constraints that a range of batches breaks.
    masks: Vec<Mask>,
    /// Room for a column that is looked at once.
    room: Vec<f64>,
    /// By constraint the value that misses its limit least, negative of what more is better of; infinite where none is known.
    nearest: [f64; Constraint::ALL.len()],
    power_known: bool,
    /// The largest time, time per token, time to the first token, watts; the least memory.
    span: [f64; 5],
    closest: Option<(f64, CandidateRef, Mask)>,
    candidates: u64,
}

/// What a judge is to look at, with the widest vectors that the processor has: what is called is inlined for that.
struct Considered<'c, 'a> {
    judge: &'c mut Judge<'a>,
    option: usize,
    index: usize,
    point: &'c CandidatePoint<'c>,
    scores: &'c Scores,
}

impl NullaryFnOnce for Considered<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.judge.look_at(self.option, self.index, self.point, self.scores);
    }
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
            feasible: Feasible::default(),
            extremes: [None; CRITERIA],
            counts: vec![0; MASKS],
            fits: vec![false; options],
            masks: Vec::new(),
            room: Vec::new(),
            nearest: [f64::INFINITY; Constraint::ALL.len()],
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
        Arch::new().dispatch(Considered { judge: self, option, index, point, scores });
    }

    #[inline(always)]
    fn look_at(&mut self, option: usize, index: usize, point: &CandidatePoint<'_>, scores: &Scores) {
        let reboot = point.reboot && !self.query.allow_reboot;
        // Entering a mode takes its part of the run.
        let entering = 1.0 + point.entering.get() / self.query.run_time.get();
        let mut masks = std::mem::take(&mut self.masks);
        self.misses(scores, reboot, &mut masks);
        self.stretch(scores);
        let group = Group { option, index, pair: index * self.options + option, reboot, entering };
        // Batches side by side mostly break the same.
        let mut from = 0;
        while let Some(&mask) = masks.get(from) {
            let rows = from..from + alike(&masks[from..], mask);
            from = rows.end;
            self.candidates += rows.len() as u64;
            self.counts[usize::from(mask)] += rows.len() as u64;
            self.fits[option] |= mask & (Constraint::Memory.bit() | Constraint::Available.bit()) == 0;
            if mask == 0 {
                self.admit(&group, scores, rows);
            } else {
                self.reject(&group, scores, rows, mask);
            }
        }
        let pair = group.pair;
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
    #[inline(always)]
    fn misses(&self, scores: &Scores, reboot: bool, masks: &mut Vec<Mask>) {
        masks.clear();
        masks.resize(scores.time.len(), if reboot { Constraint::Reboot.bit() } else { 0 });
        for by in Constraint::ALL {
            if self.limits.active & by.bit() == 0 || by == Constraint::Reboot {
                continue;
            }
            let bit = by.bit();
            let mut above = |column: &[f64], limit: f64, slack: bool| {
                if slack {
                    let values = column.iter().zip(&scores.slack).map(|(value, slack)| value * slack);
                    mark(masks, bit, values, |value| value <= limit);
                } else {
                    mark(masks, bit, column.iter().copied(), |value| value <= limit);
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
                    let values = scores.rate.iter().zip(&scores.slack);
                    let values = values.map(|(rate, of)| rate - limits.rate * if slack { *of } else { 1.0 });
                    mark(masks, bit, values, |more| more >= 0.0);
                }
                Constraint::QualityLoss => {
                    let meets = scores.loss <= limits.loss;
                    masks.iter_mut().for_each(|mask| *mask |= if meets { 0 } else { bit });
                }
                Constraint::Reboot => {}
            }
        }
    }

    /// Whether a candidate's best estimate meets the first of the limits of `mask`, which most do not.
    fn estimate<'s>(&self, mask: Mask, scores: &'s Scores) -> impl Fn(usize) -> bool + use<'s> {
        let limits = &self.limits;
        let (column, limit) = match Constraint::ALL.into_iter().find(|by| mask & by.bit() != 0) {
            Some(Constraint::Time) => (&scores.time, limits.time),
            Some(Constraint::TimePerToken) => (&scores.per_token, limits.per_token),
            Some(Constraint::TimeToFirstToken) => (&scores.first, limits.first),
            Some(Constraint::Power) => (&scores.watts, limits.watts),
            _ => (&scores.memory, f64::INFINITY),
        };
        move |at| column[at] <= limit
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

    #[inline(always)]
    fn stretch(&mut self, scores: &Scores) {
        self.power_known = self.power_known || scores.watts.iter().any(|watts| !watts.is_nan());
        let active = self.limits.active;
        let [time, per_token, first, watts, memory] = &mut self.span;
        let slack = &scores.slack;
        // A limit that some candidate comes near is no mistake, and how near nobody asks.
        let far = |by: Constraint, limit: f64, span: f64| {
            active & by.bit() != 0 && (span.is_nan() || limit >= BEYOND * span)
        };
        let limits = &self.limits;
        let longest = |by: Constraint, limit: f64, span: &mut f64, column: &[f64]| {
            if far(by, limit, *span) {
                for (value, slack) in column.iter().zip(slack) {
                    *span = span.max(value * slack);
                }
            }
        };
        longest(Constraint::Time, limits.time, time, &scores.time);
        longest(Constraint::TimePerToken, limits.per_token, per_token, &scores.per_token);
        longest(Constraint::TimeToFirstToken, limits.first, first, &scores.first);
        if far(Constraint::Power, limits.watts, *watts) {
            scores.watts_high.iter().for_each(|high| *watts = watts.max(*high));
        }
        let missed = memory.is_nan() || limits.memory < *memory / MISSED_MEMORY;
        if active & Constraint::Memory.bit() != 0 && missed {
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

    /// The objective of a run of batches.
    #[inline(always)]
    fn firsts(&self, scores: &Scores, rows: Range<usize>, entering: f64, firsts: &mut Vec<f64>) {
        firsts.clear();
        match self.query.objective {
            Objective::Latency => firsts.extend(scores.time[rows].iter().map(|time| time * entering)),
            Objective::Throughput => firsts.extend(scores.rate[rows].iter().map(|rate| -rate / entering)),
            Objective::Energy => firsts.extend(scores.energy[rows].iter().map(|energy| energy * entering)),
            Objective::Power => firsts.extend_from_slice(&scores.watts[rows]),
        }
    }

    /// Takes in batches that meet everything.
    #[inline(always)]
    fn admit(&mut self, group: &Group, scores: &Scores, rows: Range<usize>) {
        let ideal = self.feasible.add(group.pair, scores, rows.clone());
        for (index, extreme) in self.extremes.iter_mut().enumerate().take(QUALITY) {
            if extreme.as_ref().is_some_and(|(_, known)| ideal[index] > known[index]) {
                continue;
            }
            let all = &self.feasible.columns[index];
            let column = &all[all.len() - rows.len()..];
            // Only the least can be the best, and of equals the one that is better in the others.
            for at in (0..rows.len()).filter(|at| may_be_least(column[*at], ideal[index])) {
                let criteria = scores.criteria(rows.start + at);
                let better = |(_, known): &(CandidateRef, [f64; CRITERIA])| {
                    criteria[index] < known[index]
                        || (criteria[index] <= known[index] && before(&criteria, known).is_lt())
                };
                if extreme.as_ref().is_none_or(better) {
                    *extreme = Some((group.which(self.query, scores, rows.start + at), criteria));
                }
            }
        }
        let mut firsts = std::mem::take(&mut self.room);
        self.firsts(scores, rows.clone(), group.entering, &mut firsts);
        let first = least(&firsts);
        for at in (0..rows.len()).filter(|at| may_be_least(firsts[*at], first)) {
            let which = group.which(self.query, scores, rows.start + at);
            let rank = self.rank(&which.score, group.entering);
            match &mut self.pairs[group.pair] {
                Some(known) if better(&rank, &known.rank) => (known.best, known.rank) = (which, rank),
                Some(_) => {}
                empty => *empty = Some(Pair { best: which, rank, ideal }),
            }
        }
        if let Some(known) = &mut self.pairs[group.pair] {
            for (ideal, value) in known.ideal.iter_mut().zip(ideal) {
                *ideal = if value < *ideal { value } else { *ideal };
            }
        }
        self.room = firsts;
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

    /// Takes in batches that break the constraints of `mask`.
    #[inline(always)]
    fn reject(&mut self, group: &Group, scores: &Scores, rows: Range<usize>, mask: Mask) {
        for by in Constraint::ALL.into_iter().filter(|by| mask & by.bit() != 0) {
            self.approach(by, scores, rows.clone());
        }
        // Once something meets everything, nobody asks what misses least.
        if self.feasible.is_empty() {
            for at in rows.clone() {
                let which = group.which(self.query, scores, at);
                let distance = self.distance(mask, &which.score);
                if self.closest.as_ref().is_none_or(|(least, ..)| distance < *least) {
                    self.closest = Some((distance, which, mask));
                }
            }
        }
        // The best estimate meets no limit that has no interval.
        if self.expected || mask & !Constraint::ESTIMATED != 0 {
            return;
        }
        let mut firsts = std::mem::take(&mut self.room);
        self.firsts(scores, rows.clone(), group.entering, &mut firsts);
        let estimate = self.estimate(mask, scores);
        for (at, first) in rows.zip(&firsts) {
            if !estimate(at) || self.at_expected.as_ref().is_some_and(|(_, known)| *first > known[0]) {
                continue;
            }
            let which = group.which(self.query, scores, at);
            if self.at_expected(&which.score, group.reboot) == 0 {
                let rank = self.rank(&which.score, group.entering);
                if self.at_expected.as_ref().is_none_or(|(_, known)| better(&rank, known)) {
                    self.at_expected = Some((which, rank));
                }
            }
        }
        self.room = firsts;
    }

    /// Keeps the value that is nearest to the limit that these batches break.
    #[inline(always)]
    fn approach(&mut self, by: Constraint, scores: &Scores, rows: Range<usize>) {
        let (room, expected) = (&mut self.room, self.expected);
        let mut longest = |column: &[f64]| {
            let column = &column[rows.clone()];
            if expected {
                return least(column);
            }
            room.clear();
            room.extend(column.iter().zip(&scores.slack[rows.clone()]).map(|(value, slack)| value * slack));
            least(room)
        };
        let nearest = match by {
            Constraint::Time => longest(&scores.time),
            Constraint::TimePerToken => longest(&scores.per_token),
            Constraint::TimeToFirstToken => longest(&scores.first),
            // The most of them.
            Constraint::Rate => {
                let rates = scores.rate[rows.clone()].iter().zip(&scores.slack[rows]);
                room.clear();
                room.extend(rates.map(|(rate, slack)| if expected { -rate } else { -rate / slack }));
                least(room)
            }
            Constraint::Power => {
                least(if self.expected { &scores.watts[rows] } else { &scores.watts_high[rows] })
            }
            Constraint::Memory | Constraint::Available => least(&scores.memory[rows]),
            Constraint::QualityLoss => scores.loss,
            Constraint::Reboot | Constraint::PowerUnknown => f64::INFINITY,
        };
        let known = &mut self.nearest[by as usize];
        *known = known.min(nearest);
    }

    /// The value that misses a limit least; `None` where it is unknown.
    fn nearest(&self, by: Constraint) -> Option<f64> {
        let nearest = self.nearest[by as usize];
        nearest.is_finite().then_some(if by == Constraint::Rate { -nearest } else { nearest })
    }

    /// How far a candidate misses: the product of the factors by which it exceeds each limit of `mask`.
    fn distance(&self, mask: Mask, score: &Score) -> f64 {
        let broken = Constraint::ALL.into_iter().filter(|by| mask & by.bit() != 0);
        broken.fold(1.0, |distance, by| {
            let (value, limit) = self.value(by, score);
            let factor = match by {
                Constraint::Reboot => REBOOT_MISS,
                _ if value.is_nan() => UNKNOWN_MISS,
                Constraint::Rate => limit / value,
                // No limit is so small that nothing exceeds it by a finite factor, but 0 is one.
                _ if limit <= 0.0 => 1.0 + value - limit,
                _ => value / limit,
            };
            distance * factor
        })
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
        let broken: Vec<(usize, u64)> =
            self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect();
        let count = |by: Constraint| -> u64 {
            let by = broken.iter().filter(|(mask, _)| mask >> (by as u8) & 1 == 1);
            by.map(|(_, count)| count).sum()
        };
        let rejected = Constraint::ALL.into_iter().map(|by| (by, count(by))).filter(|(_, count)| *count > 0);
        rejected.map(|(by, count)| Rejected { by, count, closest: self.nearest(by) }).collect()
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
        self.feasible.dominates(&pairs, candidate)
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
            let closest = self.nearest(by).unwrap_or(f64::NAN);
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
        if limits.memory < memory / MISSED_MEMORY {
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
