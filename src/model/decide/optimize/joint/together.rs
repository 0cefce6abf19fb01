//! Combinations of one choice per workload in each power mode: the best one, or the one that misses its limits least.

use super::front::{
    Budget, DIMS, Dims, Exhausted, Goal, LONGEST, MEMORY, NOTHING, RATE, TIMES, WATTS, WATTS_HIGH, best,
    joined,
};
use super::{Choices, JointQuery, Sharing, Totals, Violation, dims};
use crate::optimize::judge::{CandidateRef, Judged};
use crate::optimize::point::CandidatePoint;
use crate::optimize::{Constraint, Objective, Optimism, QueryError};
use crate::snapshot::Snapshot;
use roofline::units::{Bytes, Watts};

/// A workload's choice at an operating point.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pick {
    /// One of those that keep its own limits.
    Candidate(usize),
    /// None does; the one that misses least.
    Closest,
}

impl Pick {
    pub(super) fn which(self, of: &Choices) -> Option<CandidateRef> {
        match self {
            Self::Candidate(index) => of.kept.get(index).copied(),
            Self::Closest => of.judged.closest.map(|(which, _)| which),
        }
    }
}

/// A choice for every workload at one operating point.
#[derive(Debug, Clone)]
pub(super) struct Combination {
    pub(super) point: usize,
    pub(super) picks: Vec<Pick>,
    pub(super) totals: Totals,
    /// The objective, then what decides between equals: less is better.
    rank: [f64; RANKS],
}

const RANKS: usize = 6;

/// The best of each operating point that has one, the best of all first.
#[derive(Debug)]
pub(super) struct Ranked(Vec<Combination>);

impl Ranked {
    pub(super) fn best(&self) -> Option<&Combination> {
        self.0.first()
    }

    /// The best in another power mode.
    pub(super) fn runner_up(&self) -> Option<&Combination> {
        self.0.get(1)
    }
}

pub(super) struct Together<'a> {
    query: &'a JointQuery,
    points: &'a [CandidatePoint<'a>],
    choices: &'a [Vec<Choices>],
    /// The least of what was asked for and what is free.
    memory: f64,
    available: f64,
}

impl<'a> Together<'a> {
    pub(super) fn new(
        snapshot: &Snapshot,
        query: &'a JointQuery,
        points: &'a [CandidatePoint<'a>],
        choices: &'a [Vec<Choices>],
    ) -> Self {
        let available = snapshot.state.memory.known().map(|memory| memory.available - query.reserve);
        let available = available.map_or(f64::INFINITY, Bytes::get);
        let memory = query.max_memory.map_or(f64::INFINITY, Bytes::get).min(available);
        Self { query, points, choices, memory, available }
    }

    /// Power that is asked for and known of no candidate is a question that cannot be answered.
    pub(super) fn unknown_power(&self) -> Option<QueryError> {
        let objective = match self.query.objective {
            Objective::Energy => Some("energy cannot be minimised"),
            Objective::Power => Some("power cannot be minimised"),
            Objective::Latency | Objective::Throughput => None,
        };
        let wanted = objective.or_else(|| self.query.max_power.map(|_| "max_power_w cannot be kept"))?;
        // One workload without power leaves that of all unknown.
        let known = |of: &Vec<Choices>| of.iter().any(|choices| choices.judged.power_known);
        (!self.choices.iter().all(known))
            .then_some(QueryError::PowerUnknown { wanted, objective: objective.is_some() })
    }

    /// Watts that are there whatever is chosen, and the upper end of them.
    fn base(&self, point: usize) -> (f64, f64) {
        let Some(power) = &self.points[point].power else { return (f64::NAN, f64::NAN) };
        let standing = power.coefficients.static_w;
        match self.query.sharing {
            Sharing::Mps => (standing, standing),
            Sharing::TimeSlicing => {
                let idle = (1.0 - self.query.shared()).max(0.0) * standing;
                (idle, idle * (1.0 + power.half_width_ratio))
            }
        }
    }

    fn added(&self, point: usize, index: usize, which: &CandidateRef) -> Dims {
        let standing =
            self.points[point].power.as_ref().map_or(f64::NAN, |power| power.coefficients.static_w);
        dims(&which.score, self.query.sharing, self.query.residents[index].share, standing)
    }

    fn totals(&self, point: usize, sum: &Dims) -> Totals {
        let (base, base_high) = self.base(point);
        let (watts, rate) = (base + sum[WATTS], -sum[RATE]);
        Totals {
            longest: sum[LONGEST],
            rate,
            watts,
            watts_high: base_high + sum[WATTS_HIGH],
            energy: watts / rate,
            memory: sum[MEMORY],
        }
    }

    fn rank(&self, point: usize, sum: &Dims) -> [f64; RANKS] {
        // Entering a mode takes its part of the run.
        let entering = 1.0 + self.points[point].entering.get() / self.query.run_time.get();
        let Totals { longest, rate, watts, energy, memory, .. } = self.totals(point, sum);
        let objective = match self.query.objective {
            Objective::Latency => longest * entering,
            Objective::Throughput => -rate / entering,
            Objective::Energy => energy * entering,
            Objective::Power => watts,
        };
        [objective, longest, sum[TIMES], -rate, watts, memory]
    }

    /// The end of the power that counts.
    fn power_dim(&self) -> usize {
        if self.query.optimism == Optimism::Expected { WATTS } else { WATTS_HIGH }
    }

    /// What is left for the choices of the limit on power; infinite without one.
    fn power_limit(&self, point: usize) -> f64 {
        let (base, base_high) = self.base(point);
        let base = if self.power_dim() == WATTS { base } else { base_high };
        self.query.max_power.map_or(f64::INFINITY, |limit| limit.get() - base)
    }

    /// What counts for the objective.
    fn objective_dims(&self) -> Vec<usize> {
        match self.query.objective {
            Objective::Latency => vec![LONGEST, TIMES],
            Objective::Throughput => vec![RATE],
            Objective::Energy => vec![RATE, WATTS],
            Objective::Power => vec![WATTS],
        }
    }

    /// What each workload may choose at `point`: those whose power is known where it counts; with their numbers.
    fn choices_at(&self, point: usize) -> Vec<(Vec<usize>, Vec<Dims>)> {
        let needs_power = self.query.max_power.is_some()
            || matches!(self.query.objective, Objective::Energy | Objective::Power);
        let of = |(index, choices): (usize, &Vec<Choices>)| {
            let kept = choices[point].kept.iter().enumerate();
            kept.filter(|(_, which)| !(needs_power && which.score.watts.is_nan()))
                .map(|(number, which)| (number, self.added(point, index, which)))
                .unzip()
        };
        self.choices.iter().enumerate().map(of).collect()
    }

    /// The best set at `point` by `rank`, with limits on memory and power where they are asked for.
    fn best_at(
        &self,
        point: usize,
        active: Vec<usize>,
        power: bool,
        budget: &mut Budget,
        rank: impl Fn(&Dims) -> [f64; RANKS],
    ) -> Result<Option<Combination>, Exhausted> {
        let (numbers, choices): (Vec<Vec<usize>>, Vec<Vec<Dims>>) =
            self.choices_at(point).into_iter().unzip();
        if choices.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        let mut limits = [f64::INFINITY; DIMS];
        limits[MEMORY] = self.memory;
        if power {
            limits[self.power_dim()] = self.power_limit(point);
        }
        let mut active = active;
        for (index, limit) in limits.iter_mut().enumerate() {
            let of = |choices: &Vec<Dims>| choices.iter().map(|dims| dims[index]).fold(f64::MIN, f64::max);
            // A limit that no set reaches needs no looking at.
            if choices.iter().map(of).sum::<f64>() <= *limit {
                *limit = f64::INFINITY;
            } else if !active.contains(&index) {
                active.push(index);
            }
        }
        let goal = Goal { active, limits };
        let found = best(&choices, &goal, budget, &rank)?;
        Ok(found.map(|(picked, sum)| Combination {
            point,
            picks: picked.iter().zip(&numbers).map(|(pick, of)| Pick::Candidate(of[*pick])).collect(),
            totals: self.totals(point, &sum),
            rank: rank(&sum),
        }))
    }

    /// The best of every operating point.
    pub(super) fn search(&self, budget: &mut Budget) -> Result<Ranked, Exhausted> {
        let mut found = Vec::new();
        for point in 0..self.points.len() {
            let rank = |sum: &Dims| self.rank(point, sum);
            found.extend(self.best_at(point, self.objective_dims(), true, budget, rank)?);
        }
        found.sort_by(|a, b| {
            let order = a.rank.iter().zip(&b.rank).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
            order.unwrap_or_else(|| a.point.cmp(&b.point))
        });
        Ok(Ranked(found))
    }

    /// What misses least where nothing meets everything, and what it misses: a workload's own limits first, then memory,
    /// then power.
    pub(super) fn closest(&self, budget: &mut Budget) -> Result<(Combination, Vec<Violation>), Exhausted> {
        let complete = |point: &usize| self.choices_at(*point).iter().all(|(of, _)| !of.is_empty());
        let points: Vec<usize> = (0..self.points.len()).filter(complete).collect();
        if points.is_empty() {
            return Ok(self.closest_by_itself());
        }
        let mut fitting: Option<Combination> = None;
        for &point in &points {
            let dim = self.power_dim();
            let rank = |sum: &Dims| [sum[dim], sum[MEMORY], sum[LONGEST], 0.0, 0.0, 0.0];
            let active = if self.query.max_power.is_some() { vec![dim] } else { vec![MEMORY] };
            if let Some(mut found) = self.best_at(point, active, false, budget, rank)? {
                // What is there anyway differs from mode to mode.
                found.rank[0] = if dim == WATTS { found.totals.watts } else { found.totals.watts_high };
                if fitting.as_ref().is_none_or(|known| found.rank[0] < known.rank[0]) {
                    fitting = Some(found);
                }
            }
        }
        let closest = fitting.unwrap_or_else(|| self.smallest(&points));
        let violated = self.violated(&closest.totals);
        Ok((closest, violated))
    }

    /// Limits of all together that are not kept.
    fn violated(&self, totals: &Totals) -> Vec<Violation> {
        let above = |limit: Option<f64>, value: f64| limit.is_some_and(|limit| value > limit);
        let watts = if self.power_dim() == WATTS { totals.watts } else { totals.watts_high };
        let of = [
            (Constraint::Power, above(self.query.max_power.map(Watts::get), watts)),
            (Constraint::Memory, above(self.query.max_memory.map(Bytes::get), totals.memory)),
            (Constraint::Available, totals.memory > self.available),
        ];
        let violated = of.into_iter().filter(|(_, violated)| *violated);
        violated.map(|(by, _)| Violation { workload: None, by }).collect()
    }

    /// The set that takes the least memory.
    fn smallest(&self, points: &[usize]) -> Combination {
        let at_point = |point: &usize| {
            let mut sum = NOTHING;
            let mut picks = Vec::new();
            for (numbers, choices) in self.choices_at(*point) {
                let least = numbers.iter().zip(&choices).min_by(|a, b| a.1[MEMORY].total_cmp(&b.1[MEMORY]));
                if let Some((number, dims)) = least {
                    sum = joined(&sum, dims);
                    picks.push(Pick::Candidate(*number));
                }
            }
            let totals = self.totals(*point, &sum);
            Combination { point: *point, picks, totals, rank: self.rank(*point, &sum) }
        };
        let mut found: Vec<Combination> = points.iter().map(at_point).collect();
        found.sort_by(|a, b| a.totals.memory.total_cmp(&b.totals.memory));
        found.swap_remove(0)
    }

    /// Where at every operating point some workload cannot keep its own limits: the operating point where they miss least.
    fn closest_by_itself(&self) -> (Combination, Vec<Violation>) {
        let distance = |point: &usize| -> f64 {
            let of = |judged: &Judged| {
                if judged.candidates == 0 { f64::INFINITY } else { judged.distance.ln() }
            };
            self.choices.iter().map(|choices| of(&choices[*point].judged)).sum()
        };
        let points = (0..self.points.len()).min_by(|a, b| distance(a).total_cmp(&distance(b)));
        let point = points.unwrap_or(0);
        let (mut sum, mut picks, mut violated) = (NOTHING, Vec::new(), Vec::new());
        for (index, of) in self.choices.iter().enumerate() {
            let of = &of[point];
            let best = of.judged.chosen.and_then(|best| of.kept.iter().position(|which| which.same(&best)));
            let pick = best.map_or(Pick::Closest, Pick::Candidate);
            if let (Pick::Closest, Some((_, misses))) = (pick, of.judged.closest) {
                violated.extend(
                    Constraint::of(misses).into_iter().map(|by| Violation { workload: Some(index), by }),
                );
            }
            if let Some(which) = pick.which(of) {
                sum = joined(&sum, &self.added(point, index, &which));
            }
            picks.push(pick);
        }
        if violated.is_empty() {
            violated.push(Violation { workload: None, by: Constraint::PowerUnknown });
        }
        (
            Combination { point, picks, totals: self.totals(point, &sum), rank: self.rank(point, &sum) },
            violated,
        )
    }
}
