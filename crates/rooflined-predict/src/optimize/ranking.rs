//! Ranks candidates: which meet the constraints, the best, the Pareto front, and the closest miss.

use std::cmp::Ordering;

use super::point::CandidatePoint;
use super::score::{CRITERIA, Score, criteria};
use super::{EnergyBasis, Objective, Optimism, Query, QueryError};
use crate::snapshot::Snapshot;
use rooflined_core::keyed;
use rooflined_core::units::{Bytes, Seconds, Watts};

/// Alternatives shown; more would not be read by anyone.
pub const MOST_ALTERNATIVES: usize = 12;
/// A candidate that needs a reboot nobody allowed misses as far as one that takes twice too long.
const REBOOT_MISS: f64 = 2.0;
/// What is unknown misses further than anything known.
const UNKNOWN_MISS: f64 = 1e9;
/// Energies above the idle machine's that differ by no more than this are as good as each other.
pub(super) const ALIKE: f64 = 0.02;
/// A limit so many times beyond every candidate was probably meant in another unit.
const BEYOND: f64 = 100.0;
/// So many times below every candidate, a limit on memory was probably meant in another unit.
const MISSED_MEMORY: f64 = 1e5;

keyed! {
    /// A constraint's name on the wire.
    #[repr(u8)]
    Constraint {
        /// `max_time_s`
        Time = "max_time_s",
        /// `max_time_per_token_s`
        TimePerToken = "max_time_per_token_s",
        /// `max_time_to_first_token_s`
        TimeToFirstToken = "max_time_to_first_token_s",
        /// `min_tokens_per_s`
        Rate = "min_tokens_per_s",
        /// `max_power_w`
        Power = "max_power_w",
        /// `max_memory_bytes`
        Memory = "max_memory_bytes",
        /// `memory_available`: it would not fit into what is free now, less the reserve.
        Available = "memory_available",
        /// `max_quality_loss_ratio`
        QualityLoss = "max_quality_loss_ratio",
        /// `allow_reboot`: its power mode needs a reboot.
        Reboot = "allow_reboot",
        /// `power_unknown`: the objective needs its power, and nothing is known of it.
        PowerUnknown = "power_unknown",
    }
}

/// A set of constraints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ConstraintSet(usize);

impl ConstraintSet {
    /// How many sets there are.
    const COUNT: usize = 1 << Constraint::ALL.len();
    /// Limits on what has an interval.
    const ESTIMATED: Self = Self(
        1 << Constraint::Time as usize
            | 1 << Constraint::TimePerToken as usize
            | 1 << Constraint::TimeToFirstToken as usize
            | 1 << Constraint::Rate as usize
            | 1 << Constraint::Power as usize,
    );

    fn of(constraints: impl Iterator<Item = Constraint>) -> Self {
        Self(constraints.fold(0, |set, by| set | 1 << by as usize))
    }

    const fn contains(self, by: Constraint) -> bool {
        self.0 >> by as usize & 1 == 1
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }

    const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn iter(self) -> impl Iterator<Item = Constraint> {
        Constraint::ALL.into_iter().filter(move |by| self.contains(*by))
    }

    fn members(self) -> Vec<Constraint> {
        self.iter().collect()
    }
}

/// What excluded candidates, of one search or of several.
#[derive(Debug, Clone, PartialEq)]
pub struct Tally {
    /// What was demanded, by constraint.
    limits: [Option<f64>; Constraint::ALL.len()],
    /// By constraint the value that misses its limit least, with that limit: of memory, engines have limits of their own.
    nearest: [Option<(f64, f64)>; Constraint::ALL.len()],
    /// Candidates by the set of constraints that they break.
    counts: Vec<u64>,
}

impl Tally {
    const fn of(limits: [Option<f64>; Constraint::ALL.len()]) -> Self {
        Self { limits, nearest: [None; Constraint::ALL.len()], counts: Vec::new() }
    }

    fn count(&mut self, broken: ConstraintSet) {
        self.counts.resize(ConstraintSet::COUNT, 0);
        self.counts[broken.0] += 1;
    }

    /// Keeps the value that is nearest to a limit that a candidate breaks.
    fn approach(&mut self, by: Constraint, value: f64) {
        self.approach_limit(by, value, self.limits[by as usize].unwrap_or(1.0));
    }

    fn approach_limit(&mut self, by: Constraint, value: f64, limit: f64) {
        let missed =
            |(value, limit): (f64, f64)| if by == Constraint::Rate { limit / value } else { value / limit };
        let nearest = &mut self.nearest[by as usize];
        if value.is_finite() && nearest.is_none_or(|known| missed((value, limit)) < missed(known)) {
            *nearest = Some((value, limit));
        }
    }

    /// Adds the candidates of another search with the same limits.
    pub fn add(&mut self, other: &Self) {
        self.counts.resize(ConstraintSet::COUNT, 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        for by in Constraint::ALL {
            self.limits[by as usize] = self.limits[by as usize].or(other.limits[by as usize]);
            if let Some((value, limit)) = other.nearest[by as usize] {
                self.approach_limit(by, value, limit);
            }
        }
    }

    #[must_use]
    pub fn candidates(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many of them break a constraint.
    pub(super) fn breaking(&self, by: Constraint) -> u64 {
        self.broken_sets().filter(|(set, _)| set.contains(by)).map(|(_, count)| count).sum()
    }

    /// The constraints that excluded candidates.
    #[must_use]
    pub fn rejected(&self) -> Vec<Rejection> {
        let rejected = Constraint::ALL.into_iter().map(|by| (by, self.breaking(by)));
        let rejection = |(by, count): (Constraint, u64)| {
            let nearest = self.nearest[by as usize];
            let limit = self.number(by).map(|limit| nearest.map_or(limit, |(_, own)| own));
            Rejection { by, count, closest: nearest.map(|(value, _)| value), limit }
        };
        rejected.filter(|(_, count)| *count > 0).map(rejection).collect()
    }

    /// The smallest set of constraints that no candidate meets together; of several the first in the order of
    /// [`Constraint::ALL`]. Empty where one meets all.
    #[must_use]
    pub fn contradicting(&self) -> Vec<Constraint> {
        let impossible =
            |set: &ConstraintSet| !set.is_empty() && self.broken_sets().all(|(broken, _)| broken.meets(*set));
        let sets = (0..ConstraintSet::COUNT).map(ConstraintSet).filter(impossible);
        sets.min_by_key(|set| set.0.count_ones()).map_or_else(Vec::new, ConstraintSet::members)
    }

    /// The sets of constraints that candidates break, each with how many.
    fn broken_sets(&self) -> impl Iterator<Item = (ConstraintSet, u64)> + '_ {
        let counted = self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0);
        counted.map(|(set, count)| (ConstraintSet(set), count))
    }

    fn limit(&self, by: Constraint) -> Option<f64> {
        self.limits[by as usize]
    }

    /// What a constraint demands, where it is a number.
    fn number(&self, by: Constraint) -> Option<f64> {
        self.limit(by).filter(|_| !matches!(by, Constraint::Reboot | Constraint::PowerUnknown))
    }
}

/// Candidates that one constraint excluded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rejection {
    pub by: Constraint,
    pub count: u64,
    /// Value of the one that missed least, in the constraint's unit; `None` where it is unknown or no number.
    pub closest: Option<f64>,
    /// What the constraint demands, likewise.
    pub limit: Option<f64>,
}

/// A limit that a candidate does not keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Miss {
    pub by: Constraint,
    /// In the constraint's unit; `None` where the constraint is no number.
    pub limit: Option<f64>,
    /// What the candidate comes to at the end of its interval that counts; `None` where that is unknown or no number.
    pub value: Option<f64>,
}

impl Miss {
    /// By how much the limit is missed, relative to it: 0.18 is 18 per cent too much, or for a rate too little. `None` where either
    /// is unknown or the limit is 0.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let (limit, value) = self.limit.filter(|limit| *limit > 0.0).zip(self.value)?;
        Some((value / limit - 1.0).abs())
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

/// How many constraints a candidate breaks, and the product of the factors by which it exceeds each.
type Distance = (u32, f64);

/// The objective first, then what decides between equals: less is better.
type Rank = [f64; 6];

/// What all candidates came to.
#[derive(Debug)]
pub(super) struct Standings {
    pub(super) chosen: Option<CandidateRef>,
    pub(super) runner_up: Option<CandidateRef>,
    /// What would be chosen at the best estimate, where it is something else.
    pub(super) at_expected: Option<CandidateRef>,
    pub(super) front: Vec<CandidateRef>,
    pub(super) tally: Tally,
    pub(super) closest: Option<(CandidateRef, Vec<Miss>)>,
    pub(super) hints: Vec<String>,
    /// By option, whether any batch of it fits into memory.
    pub(super) fits: Vec<bool>,
}

/// Place of quality among the criteria.
const QUALITY: usize = 4;

fn dominates(a: &[f64; CRITERIA], b: &[f64; CRITERIA]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a != b
}

/// The largest time, time per token, time to the first token and power, and the least memory of all candidates.
#[derive(Debug)]
struct Span {
    time: f64,
    per_token: f64,
    first: f64,
    watts: f64,
    memory: f64,
}

impl Span {
    fn stretch(&mut self, score: &Score) {
        self.time = self.time.max(score.time * score.slack);
        self.per_token = self.per_token.max(score.per_token * score.slack);
        self.first = self.first.max(score.first * score.slack);
        self.watts = self.watts.max(score.watts_high);
        self.memory = self.memory.min(score.memory);
    }
}

/// The best of some candidates.
#[derive(Debug, Clone, Copy)]
struct Best {
    which: CandidateRef,
    rank: Rank,
}

impl Best {
    /// Puts the candidate in the place of the best so far, if it is better.
    fn contend(best: &mut Option<Self>, which: CandidateRef, rank: Rank) {
        if best.as_ref().is_none_or(|known| better(&rank, &known.rank)) {
            *best = Some(Self { which, rank });
        }
    }
}

/// The candidate that is best in one criterion.
#[derive(Debug, Clone, Copy)]
struct Extreme {
    which: CandidateRef,
    criteria: [f64; CRITERIA],
}

impl Extreme {
    /// Likewise by the criterion at `index`; of equals the one that is better in the others.
    fn contend(best: &mut Option<Self>, index: usize, which: CandidateRef) {
        let criteria = criteria(&which.score);
        let better = |known: &Self| {
            criteria[index] < known.criteria[index]
                || (criteria[index] <= known.criteria[index] && before(&criteria, &known.criteria).is_lt())
        };
        if best.as_ref().is_none_or(better) {
            *best = Some(Self { which, criteria });
        }
    }
}

pub(super) struct Ranking<'a> {
    query: &'a Query,
    tally: Tally,
    points: usize,
    options: usize,
    /// By option and operating point.
    best: Vec<Option<Best>>,
    /// The best of those that meet the constraints at the best estimate only.
    at_expected: Option<Best>,
    /// Criteria of everything that meets the constraints.
    feasible: Vec<[f64; CRITERIA]>,
    extremes: [Option<Extreme>; CRITERIA],
    fits: Vec<bool>,
    power_known: bool,
    span: Span,
    closest: Option<(Distance, CandidateRef, ConstraintSet)>,
}

impl<'a> Ranking<'a> {
    pub(super) fn new(snapshot: &Snapshot, query: &'a Query, points: usize, options: usize) -> Self {
        let of = &query.constraints;
        let available = snapshot.state.memory.known().map(|memory| memory.available - query.reserve);
        let needs_power = needs_power(query.objective);
        let limit = |by: Constraint| match by {
            Constraint::Time => of.max_time.map(Seconds::get),
            Constraint::TimePerToken => of.max_time_per_token.map(Seconds::get),
            Constraint::TimeToFirstToken => of.max_time_to_first_token.map(Seconds::get),
            Constraint::Rate => of.min_tokens_per_s,
            Constraint::Power => of.max_power.map(Watts::get),
            Constraint::Memory => of.max_memory.map(Bytes::get),
            Constraint::Available => available.map(Bytes::get),
            Constraint::QualityLoss => of.max_quality_loss,
            Constraint::Reboot => (!query.allow_reboot).then_some(0.0),
            Constraint::PowerUnknown => needs_power.then_some(0.0),
        };
        Self {
            query,
            tally: Tally::of(Constraint::ALL.map(limit)),
            points,
            options,
            best: vec![None; options * points],
            at_expected: None,
            feasible: Vec::new(),
            extremes: [None; CRITERIA],
            fits: vec![false; options],
            power_known: false,
            span: Span {
                time: f64::NAN,
                per_token: f64::NAN,
                first: f64::NAN,
                watts: f64::NAN,
                memory: f64::NAN,
            },
            closest: None,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.tally.counts.is_empty()
    }

    /// Takes in a candidate at an operating point. All of one option at one operating point follow each other.
    pub(super) fn consider(&mut self, which: CandidateRef, point: &CandidatePoint<'_>) {
        let score = &which.score;
        let broken = self.broken(score, point.reboot, self.query.optimism);
        self.tally.count(broken);
        self.fits[which.option] |=
            !broken.contains(Constraint::Memory) && !broken.contains(Constraint::Available);
        self.power_known |= !score.watts.is_nan();
        self.span.stretch(score);
        // Entering a mode takes its part of the run.
        let rank = self.rank(score, 1.0 + point.entering.get() / self.query.run_time.get());
        if broken.is_empty() {
            self.admit(which, rank);
            return;
        }
        for by in broken.iter() {
            self.tally.approach(by, value(by, score, self.query.optimism));
        }
        // Once something meets everything, nobody asks what misses least.
        if self.feasible.is_empty() {
            let distance = (broken.0.count_ones(), self.distance(broken, score));
            if self.closest.as_ref().is_none_or(|(least, ..)| distance < *least) {
                self.closest = Some((distance, which, broken));
            }
        }
        // The best estimate meets no limit that has no interval.
        if self.query.optimism == Optimism::Pessimistic
            && broken.is_within(ConstraintSet::ESTIMATED)
            && self.broken(score, point.reboot, Optimism::Expected).is_empty()
        {
            Best::contend(&mut self.at_expected, which, rank);
        }
    }

    /// Takes in a candidate that meets everything.
    fn admit(&mut self, which: CandidateRef, rank: Rank) {
        self.feasible.push(criteria(&which.score));
        for (index, extreme) in self.extremes.iter_mut().enumerate().take(QUALITY) {
            Extreme::contend(extreme, index, which);
        }
        Best::contend(&mut self.best[which.point * self.options + which.option], which, rank);
    }

    /// Constraints that a candidate breaks at that end of its intervals; what is unknown breaks a limit on it.
    fn broken(&self, score: &Score, reboot: bool, optimism: Optimism) -> ConstraintSet {
        let meets = |by: Constraint, limit: f64| match by {
            Constraint::Reboot => !reboot,
            Constraint::PowerUnknown => !score.watts.is_nan(),
            Constraint::Rate => score.rate >= limit * slack(score, optimism),
            _ => value(by, score, optimism) <= limit,
        };
        let limited = Constraint::ALL.into_iter().zip(self.tally.limits);
        let broken = limited.filter(|(by, limit)| limit.is_some_and(|limit| !meets(*by, limit)));
        ConstraintSet::of(broken.map(|(by, _)| by))
    }

    fn miss(&self, by: Constraint, score: &Score) -> Miss {
        let value = value(by, score, self.query.optimism);
        Miss { by, limit: self.tally.number(by), value: Some(value).filter(|value| value.is_finite()) }
    }

    fn rank(&self, score: &Score, entering: f64) -> Rank {
        let Score { time, rate, watts, energy, memory, loss, .. } = *score;
        let objective = match self.query.objective {
            Objective::Latency => time * entering,
            Objective::Throughput => -rate / entering,
            Objective::Energy => energy * entering,
            Objective::Power => watts,
        };
        [objective, time, -rate, energy, memory, loss]
    }

    /// How far a candidate misses: the product of the factors by which it exceeds each limit.
    fn distance(&self, broken: ConstraintSet, score: &Score) -> f64 {
        broken.iter().fold(1.0, |distance, by| {
            let value = value(by, score, self.query.optimism);
            let limit = self.tally.limit(by).unwrap_or(f64::NAN);
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

    pub(super) fn finish(self) -> Result<Standings, QueryError> {
        match self.unknown_power() {
            Some(error) => Err(error),
            None => Ok(self.standings()),
        }
    }

    /// What the candidates came to, whether their power is known or not.
    pub(super) fn standings(mut self) -> Standings {
        // Quality is the same for all of one option at one operating point, so the best of them stands for it.
        for option in 0..self.options {
            for point in 0..self.points {
                if let Some(best) = self.best[point * self.options + option] {
                    Extreme::contend(&mut self.extremes[QUALITY], QUALITY, best.which);
                }
            }
        }
        let mut best: Vec<Best> = self.best.iter().flatten().copied().collect();
        best.sort_by(|a, b| before(&a.rank, &b.rank));
        // Above idle a slower mode wins by less than any model of power can tell, so the fastest of those is taken. With the idle
        // power counted, the published rows show that the least is worth choosing: ties would double what a wrong choice costs.
        let above_idle =
            self.query.objective == Objective::Energy && self.query.energy == EnergyBasis::Marginal;
        let alike = if above_idle { 1.0 + ALIKE } else { 1.0 };
        let most = best.first().map_or(f64::NAN, |least| least.rank[0] * alike);
        let alike = best.iter().take_while(|of| of.rank[0] <= most).enumerate();
        if let Some((fastest, _)) = alike.min_by(|(_, a), (_, b)| before(&a.rank[1..], &b.rank[1..])) {
            best[..=fastest].rotate_right(1);
        }
        let chosen = best.first().copied();
        let at_expected = self
            .at_expected
            .filter(|expected| chosen.is_none_or(|chosen| better(&expected.rank, &chosen.rank)));
        Standings {
            // Another batch of the same is no second opinion.
            runner_up: best.get(1).map(|best| best.which),
            at_expected: at_expected.map(|best| best.which),
            front: self.front(&best),
            closest: self.closest.filter(|_| chosen.is_none()).map(|(_, which, broken)| {
                (which, broken.iter().map(|by| self.miss(by, &which.score)).collect())
            }),
            chosen: chosen.map(|best| best.which),
            hints: self.hints(),
            fits: self.fits,
            tally: self.tally,
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

    /// Members of the front that are shown, `best` coming first in the objective.
    fn front(&self, best: &[Best]) -> Vec<CandidateRef> {
        let mut front: Vec<CandidateRef> = Vec::with_capacity(MOST_ALTERNATIVES);
        let extremes = self.extremes.iter().flatten().map(|extreme| extreme.which);
        for which in extremes.chain(best.iter().map(|best| best.which)) {
            if front.len() >= MOST_ALTERNATIVES {
                break;
            }
            let is_known =
                best.iter().take(1).map(|best| &best.which).chain(&front).any(|known| known.same(&which));
            let criteria = criteria(&which.score);
            if !is_known && !self.feasible.iter().any(|other| dominates(other, &criteria)) {
                front.push(which);
            }
        }
        front.sort_by(|a, b| before(&self.rank(&a.score, 1.0), &self.rank(&b.score, 1.0)));
        front
    }

    /// Limits that look like another unit was meant.
    fn hints(&self) -> Vec<String> {
        let span = &self.span;
        let mut hints = Vec::new();
        let mut beyond = |by: Constraint, most: f64, unit: &str, example: &str| {
            let beyond = |limit: &f64| limit.is_finite() && *limit >= BEYOND * most && *limit >= 1.0;
            if let Some(limit) = self.tally.limit(by).filter(beyond) {
                hints.push(format!(
                    "{} is {limit} {unit}, {:.0} times what any candidate takes: it is in {unit}, {example}",
                    by.key(),
                    limit / most
                ));
            }
        };
        let seconds = "and 50 ms are 0.05";
        beyond(Constraint::Time, span.time, "seconds", seconds);
        beyond(Constraint::TimePerToken, span.per_token, "seconds", seconds);
        beyond(Constraint::TimeToFirstToken, span.first, "seconds", seconds);
        let milliwatts = "and 15000 mW are 15";
        beyond(Constraint::Power, span.watts, "watts", milliwatts);
        // Missed by every candidate, and that by far.
        let mut missed = |by: Constraint, unit: &str, example: &str| {
            let nearest = self.tally.nearest[by as usize].filter(|_| self.tally.limit(by).is_some());
            let Some((closest, limit)) = nearest else { return };
            let all = self.tally.broken_sets().all(|(broken, _)| broken.contains(by));
            let off = (closest / limit).max(limit / closest);
            if all && off.is_finite() && off >= BEYOND {
                hints.push(format!(
                    "{} is {limit} {unit}, and the closest candidate, {off:.0} times off, has {closest:.2e}: it is in {unit}, \
                     {example}",
                    by.key()
                ));
            }
        };
        missed(Constraint::Time, "seconds", seconds);
        missed(Constraint::TimePerToken, "seconds", seconds);
        missed(Constraint::TimeToFirstToken, "seconds", seconds);
        missed(Constraint::Rate, "tokens a second", "over the whole batch");
        missed(Constraint::Power, "watts", milliwatts);
        if let Some(limit) =
            self.tally.limit(Constraint::Memory).filter(|limit| *limit < span.memory / MISSED_MEMORY)
        {
            hints.push(format!(
                "max_memory_bytes is {limit} bytes, and no candidate does with less than {:.0}: 8 GB are 8e9",
                span.memory
            ));
        }
        if let Some(limit) =
            self.tally.limit(Constraint::QualityLoss).filter(|limit| limit.is_finite() && *limit >= 1.0)
        {
            hints.push(format!(
                "max_quality_loss_ratio is {limit}: it is a ratio, and three per cent are 0.03"
            ));
        }
        hints
    }
}

pub(super) const fn needs_power(objective: Objective) -> bool {
    matches!(objective, Objective::Energy | Objective::Power)
}

/// Factor from the best estimate to the end of the interval that counts.
fn slack(score: &Score, optimism: Optimism) -> f64 {
    if optimism == Optimism::Expected { 1.0 } else { score.slack }
}

/// What a limit is held against, at that end of its interval; NaN where there is no such number.
fn value(by: Constraint, score: &Score, optimism: Optimism) -> f64 {
    let slack = slack(score, optimism);
    match by {
        Constraint::Time => score.time * slack,
        Constraint::TimePerToken => score.per_token * slack,
        Constraint::TimeToFirstToken => score.first * slack,
        Constraint::Rate => score.rate / slack,
        Constraint::Power if optimism == Optimism::Expected => score.watts,
        Constraint::Power => score.watts_high,
        Constraint::Memory | Constraint::Available => score.memory,
        Constraint::QualityLoss => score.loss,
        Constraint::Reboot | Constraint::PowerUnknown => f64::NAN,
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
