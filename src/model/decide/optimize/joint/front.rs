//! The best of one choice for each workload in one power mode, exactly, without going through the cross product.
//!
//! What the choices come to together is a sum or a maximum of what each comes to. So a set of choices for the first few
//! workloads that is no better than another in anything that counts leads nowhere that the other does not lead to, and only
//! the Pareto front of the first few is carried to the next.

use std::cmp::Ordering;

/// Longest time, sum of the times, negative rate, watts, their upper end, bytes: less is better in each.
pub(super) const DIMS: usize = 6;
pub(super) const LONGEST: usize = 0;
pub(super) const TIMES: usize = 1;
pub(super) const RATE: usize = 2;
pub(super) const WATTS: usize = 3;
pub(super) const WATTS_HIGH: usize = 4;
pub(super) const MEMORY: usize = 5;

pub(super) type Dims = [f64; DIMS];

/// Most sets of choices that are compared for one question, and most comparisons: about half a second each.
pub(super) const MAX_SETS: u64 = 2_000_000;
const MAX_COMPARISONS: u64 = 30_000_000;
/// Sets that are put together before the dominated ones are dropped.
const CHUNK: usize = 32_768;
/// A sum in another order may differ by as much.
const ROUNDING: f64 = 1.0 + 1e-12;

/// Neither worse than another in any of what counts, nor the same.
#[derive(Debug, Clone, Copy)]
struct Set {
    dims: Dims,
    /// Of the front before.
    parent: u32,
    /// Of the workload's own choices.
    choice: u32,
}

/// What is left of the work that one question may cause.
#[derive(Debug)]
pub(super) struct Budget {
    sets: u64,
    comparisons: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { sets: MAX_SETS, comparisons: MAX_COMPARISONS }
    }
}

/// More work than one question may cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exhausted;

impl Budget {
    const fn take_sets(&mut self, count: u64) -> Result<(), Exhausted> {
        match self.sets.checked_sub(count) {
            Some(rest) => {
                self.sets = rest;
                Ok(())
            }
            None => Err(Exhausted),
        }
    }

    const fn take_comparisons(&mut self, count: usize) -> Result<(), Exhausted> {
        match self.comparisons.checked_sub(count as u64) {
            Some(rest) => {
                self.comparisons = rest;
                Ok(())
            }
            None => Err(Exhausted),
        }
    }
}

/// What is searched for.
#[derive(Debug, Clone)]
pub(super) struct Goal {
    /// What counts: a set is dropped where another is as good in all of these.
    pub(super) active: Vec<usize>,
    /// The most of each; infinite where there is no limit.
    pub(super) limits: Dims,
}

/// What two parts come to together.
pub(super) fn joined(a: &Dims, b: &Dims) -> Dims {
    let mut sum = [0.0; DIMS];
    for (index, sum) in sum.iter_mut().enumerate() {
        *sum = if index == LONGEST { a[index].max(b[index]) } else { a[index] + b[index] };
    }
    sum
}

/// What nothing comes to.
pub(super) const NOTHING: Dims = [0.0; DIMS];

/// For each workload the choice that makes the whole best by `rank` (less is better), and what the whole comes to; `None`
/// where no choices keep the limits together. `rank` may not fall where anything that counts rises.
pub(super) fn best<const N: usize>(
    choices: &[Vec<Dims>],
    goal: &Goal,
    budget: &mut Budget,
    rank: impl Fn(&Dims) -> [f64; N],
) -> Result<Option<(Vec<usize>, Dims)>, Exhausted> {
    // What all later workloads add at least.
    let mut least = vec![NOTHING; choices.len() + 1];
    for (index, of) in choices.iter().enumerate().rev() {
        least[index] = joined(&ideal(of), &least[index + 1]);
    }
    let mut levels: Vec<Vec<Set>> = Vec::with_capacity(choices.len());
    let mut front = vec![Set { dims: NOTHING, parent: 0, choice: 0 }];
    for (index, of) in choices.iter().enumerate() {
        let own: Vec<Set> = of
            .iter()
            .enumerate()
            .map(|(choice, dims)| Set { dims: *dims, parent: 0, choice: position(choice) })
            .collect();
        let own = undominated(own, goal, budget)?;
        let mut next: Vec<Set> = Vec::new();
        let mut fresh = 0;
        for (parent, before) in front.iter().enumerate() {
            for choice in &own {
                let dims = joined(&before.dims, &choice.dims);
                if within(&joined(&dims, &least[index + 1]), &goal.limits, ROUNDING) {
                    next.push(Set { dims, parent: position(parent), choice: choice.choice });
                    fresh += 1;
                }
            }
            budget.take_sets(own.len() as u64)?;
            if fresh >= CHUNK {
                next = undominated(next, goal, budget)?;
                fresh = 0;
            }
        }
        next = undominated(next, goal, budget)?;
        levels.push(std::mem::replace(&mut front, next));
    }
    let kept = front.iter().filter(|set| within(&set.dims, &goal.limits, 1.0));
    let best = kept.min_by(|a, b| in_order(&rank(&a.dims), &rank(&b.dims)));
    let Some(best) = best.copied() else { return Ok(None) };
    // `levels` holds what each front was made from: the first is the empty set.
    let mut picked = Vec::with_capacity(choices.len());
    let mut set = best;
    for level in levels.iter().rev() {
        picked.push(set.choice as usize);
        set = level[set.parent as usize];
    }
    picked.reverse();
    Ok(Some((picked, best.dims)))
}

#[expect(clippy::cast_possible_truncation, reason = "lists are bounded by MAX_SETS and MAX_CANDIDATES")]
const fn position(index: usize) -> u32 {
    index as u32
}

fn within(dims: &Dims, limits: &Dims, rounding: f64) -> bool {
    // A limit on a negative value does not occur: the rate has none.
    dims.iter().zip(limits).all(|(value, limit)| *limit == f64::INFINITY || *value <= limit * rounding)
}

/// The least of each.
fn ideal(of: &[Dims]) -> Dims {
    let mut ideal = [f64::INFINITY; DIMS];
    for dims in of {
        for (ideal, value) in ideal.iter_mut().zip(dims) {
            *ideal = ideal.min(*value);
        }
    }
    ideal
}

fn in_order(a: &[f64], b: &[f64]) -> Ordering {
    let differs = a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
    differs.unwrap_or(Ordering::Equal)
}

/// The sets that no other is as good as in all that counts; of equals the one that is better in the rest.
fn undominated(mut sets: Vec<Set>, goal: &Goal, budget: &mut Budget) -> Result<Vec<Set>, Exhausted> {
    let active = goal.active.as_slice();
    sets.sort_unstable_by(|a, b| {
        let counts = active.iter().map(|index| a.dims[*index].total_cmp(&b.dims[*index]));
        let order = counts.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
        order
            .then_with(|| in_order(&a.dims, &b.dims))
            .then_with(|| (a.parent, a.choice).cmp(&(b.parent, b.choice)))
    });
    // Whoever dominates comes first, and is no worse in the first of what counts.
    match active {
        [] | [_] => sets.truncate(1),
        [_, second] => {
            let mut least = f64::INFINITY;
            sets.retain(|set| {
                let better = set.dims[*second] < least;
                least = least.min(set.dims[*second]);
                better
            });
        }
        [_, second, third] => {
            let mut stairs = Stairs::default();
            sets.retain(|set| stairs.add(set.dims[*second], set.dims[*third]));
        }
        [_, rest @ ..] => return undominated_in(sets, rest, budget),
    }
    Ok(sets)
}

fn undominated_in(sets: Vec<Set>, rest: &[usize], budget: &mut Budget) -> Result<Vec<Set>, Exhausted> {
    let mut front: Vec<Set> = Vec::new();
    for set in sets {
        let dominated =
            front.iter().position(|known| rest.iter().all(|index| known.dims[*index] <= set.dims[*index]));
        budget.take_comparisons(dominated.unwrap_or(front.len()) + 1)?;
        if dominated.is_none() {
            front.push(set);
        }
    }
    Ok(front)
}

/// Pairs that none of the others is as good as: one rises where the other falls.
#[derive(Debug, Default)]
struct Stairs {
    steps: Vec<(f64, f64)>,
}

impl Stairs {
    /// Adds a pair; false where one that is there is as good in both.
    fn add(&mut self, first: f64, second: f64) -> bool {
        let after = self.steps.partition_point(|step| step.0 <= first);
        if after > 0 && self.steps[after - 1].1 <= second {
            return false;
        }
        let from = self.steps.partition_point(|step| step.0 < first);
        let to = from + self.steps[from..].iter().take_while(|step| step.1 >= second).count();
        self.steps.splice(from..to, [(first, second)]);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_set(choices: &[Vec<Dims>]) -> Vec<Dims> {
        choices.iter().fold(vec![NOTHING], |sets, of| {
            sets.iter().flat_map(|set| of.iter().map(|dims| joined(set, dims))).collect()
        })
    }

    #[test]
    fn the_best_set_is_that_of_the_cross_product_whatever_counts() {
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..3_000 {
            let workloads = 1 + round % 4;
            // Few values, so that many are equal.
            let mut dims = |_| {
                let mut dims = [0.0; DIMS];
                dims.fill_with(|| f64::from(random.u8(1..9)));
                dims[RATE] = -dims[RATE];
                dims
            };
            let choices: Vec<Vec<Dims>> = (0..workloads).map(|_| (0..6).map(&mut dims).collect()).collect();
            let active: Vec<usize> = (0..DIMS).filter(|_| random.bool()).collect();
            let mut limits = [f64::INFINITY; DIMS];
            for index in &active {
                if *index != RATE && random.u8(..3) == 0 {
                    limits[*index] = f64::from(random.u8(1..20));
                }
            }
            let rank = |dims: &Dims| [active.iter().map(|index| dims[*index]).sum::<f64>()];
            let goal = Goal { active: active.clone(), limits };
            let found = best(&choices, &goal, &mut Budget::default(), rank).unwrap();
            let all = every_set(&choices);
            let kept = all.iter().filter(|dims| within(dims, &limits, 1.0));
            let least = kept.map(|dims| rank(dims)[0]).reduce(f64::min);
            assert_eq!(found.as_ref().map(|(_, dims)| rank(dims)[0]), least, "{choices:?} {goal:?}");
            if let Some((picked, dims)) = found {
                let sum =
                    picked.iter().zip(&choices).fold(NOTHING, |sum, (pick, of)| joined(&sum, &of[*pick]));
                assert_eq!(sum, dims);
            }
        }
    }

    #[test]
    fn a_front_that_grows_without_end_is_refused() {
        let mut random = fastrand::Rng::with_seed(6);
        let mut dims = |_| {
            let mut dims = [0.0; DIMS];
            dims.fill_with(|| random.f64());
            dims
        };
        let choices: Vec<Vec<Dims>> = (0..8).map(|_| (0..512).map(&mut dims).collect()).collect();
        let goal = Goal { active: vec![LONGEST, RATE, WATTS, MEMORY], limits: [f64::INFINITY; DIMS] };
        let refused = best(&choices, &goal, &mut Budget::default(), |dims| [dims[LONGEST]]);
        assert_eq!(refused.unwrap_err(), Exhausted);
    }
}
