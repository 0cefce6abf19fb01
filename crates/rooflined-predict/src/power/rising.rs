//! Power by the batch: no less than with fewer sequences.
//!
//! Energies that add say that power falls past the ridge: weights are read and dequantized less often in a second while the
//! work rate stays. Nobody has published power by the batch, and of published prompts, which are past the ridge, most draw
//! more than decodes of the same model. So the cautious end is taken: a batch draws what the busiest smaller one draws, at
//! least, and none that is too large for a limit on power meets it again by growing.
//!
//! Not every batch is worked out for that, but rungs: two to each doubling. A batch between two rungs lies on the line
//! between them, which keeps the order of all, and may lie a little below its own figure where power bends there.

/// How many rungs lie between a batch and twice as many.
const RUNGS: u64 = 2;

/// The distance from a rung to the next, where `batch` is.
fn step(batch: u64) -> u64 {
    let doubling = 1_u64 << batch.max(1).ilog2();
    (doubling / RUNGS).max(1)
}

/// The highest rung up to `batch`.
fn below(batch: u64) -> u64 {
    let batch = batch.max(1);
    batch - batch % step(batch)
}

/// Every rung up to the first that reaches `batch`.
pub fn rungs(batch: u64) -> impl Iterator<Item = u64> {
    let last = if below(batch) == batch { batch } else { below(batch).saturating_add(step(batch)) };
    std::iter::successors(Some(1), |rung: &u64| rung.checked_add(step(*rung)))
        .take_while(move |rung| *rung <= last)
}

/// The most that any rung draws, up to each rung.
#[derive(Debug, Clone, Default)]
pub struct Rising(Vec<(u64, f64)>);

impl Rising {
    /// Adds the next rung, which draws `watts` alone, `None` where that is not known; returns the most so far.
    pub fn push(&mut self, rung: u64, watts: Option<f64>) -> f64 {
        let most = self.0.last().map_or(f64::NAN, |(_, most)| *most);
        // The larger of two, of which either may be unknown.
        let most = watts.map_or(most, |watts| watts.max(most));
        self.0.push((rung, most));
        most
    }

    /// Watts of a run with `batch` sequences, no more than those that this was made of; `None` where nothing is known.
    #[must_use]
    pub fn at(&self, batch: u64) -> Option<f64> {
        let above = self.0.partition_point(|(rung, _)| *rung <= batch);
        let (from, low) = *self.0.get(above.checked_sub(1)?)?;
        let watts = match self.0.get(above) {
            Some((to, high)) if from < batch && low.is_finite() => {
                low + (high - low) * (as_f64(batch - from) / as_f64(to - from))
            }
            _ => low,
        };
        watts.is_finite().then_some(watts)
    }
}

#[expect(clippy::cast_precision_loss, reason = "batches are far below 2^53")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn there_are_two_rungs_to_each_doubling() {
        let up_to = |batch| rungs(batch).collect::<Vec<_>>();
        assert_eq!(up_to(1), [1]);
        assert_eq!(up_to(3), [1, 2, 3]);
        assert_eq!(up_to(17), [1, 2, 3, 4, 6, 8, 12, 16, 24]);
        assert_eq!(up_to(1 << 16).last(), Some(&(1 << 16)));
        assert_eq!(up_to(1 << 16).len(), 1 + 15 * 2 + 1);
        assert!(up_to(u64::MAX).len() < 300);
    }

    proptest! {
        #[test]
        fn it_never_falls_and_a_rung_that_is_the_highest_so_far_keeps_its_own(
            watts in proptest::collection::vec(proptest::option::of(1.0..100.0_f64), 40),
        ) {
            let index = |rung| rungs(rung).count() - 1;
            let alone = |rung| watts[index(rung)];
            let of = |batch| {
                let mut rising = Rising::default();
                rungs(batch).for_each(|rung| { rising.push(rung, alone(rung)); });
                rising
            };
            // What each batch is said to draw where it is the largest asked for.
            let said = |batch| of(batch).at(batch);
            let mut highest = 0.0_f64;
            for batch in 1..300_u64 {
                let watts = said(batch);
                prop_assert!(highest <= watts.unwrap_or(highest), "{batch}: {highest} then {watts:?}");
                if rungs(batch).last() == Some(batch) {
                    let most = rungs(batch).filter_map(alone).fold(0.0, f64::max);
                    prop_assert_eq!(watts.unwrap_or(0.0), most);
                }
                highest = watts.unwrap_or(highest);
                prop_assert_eq!(of(300).at(batch), watts, "whatever larger batch is asked for beside");
            }
        }
    }
}
