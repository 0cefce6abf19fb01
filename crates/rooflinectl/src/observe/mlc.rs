//! `mlc_llm serve`: two looks at `/metrics`, which has the mean time of a decode step for each batch size.

use std::collections::BTreeMap;

use super::prometheus::samples;
use super::window::{Instant, Skip, Window};

const MEAN: &str = "decode_time_by_batch_size_mean";
const COUNT: &str = "decode_time_by_batch_size_count";

/// One look.
#[derive(Debug, Clone, PartialEq)]
pub struct Poll {
    pub at: Instant,
    /// Sum of the times and number of the steps, by batch size.
    steps: BTreeMap<u64, (f64, f64)>,
    /// Sum of everything that speculation counts.
    speculated: f64,
}

impl Poll {
    /// What `/metrics` answered; `None` where it tells nothing of decoding.
    pub fn read(at: Instant, page: &str) -> Option<Self> {
        let samples = samples(page);
        let by_batch = |name: &str| -> BTreeMap<u64, f64> {
            samples
                .iter()
                .filter(|sample| sample.name == name)
                .filter_map(|sample| Some((sample.labels.get("batch_size")?.parse().ok()?, sample.value)))
                .collect()
        };
        let (means, counts) = (by_batch(MEAN), by_batch(COUNT));
        let known = page.contains("decode_time_by_batch_size") || page.contains("engine_decode_time_sum");
        let speculated = samples
            .iter()
            .filter(|sample| sample.name.starts_with("spec_decode_") && sample.value.is_finite());
        known.then(|| Self {
            at,
            steps: counts
                .into_iter()
                .filter_map(|(batch, count)| Some((batch, (means.get(&batch)? * count, count))))
                .collect(),
            speculated: speculated.map(|sample| sample.value).sum(),
        })
    }
}

/// The window between two looks. It has no context, which the server does not tell.
///
/// # Errors
/// Why it is missing.
pub fn window(before: &Poll, after: &Poll) -> Result<Window, Skip> {
    if before.speculated != after.speculated {
        return Err(Skip::Speculation);
    }
    let mut moved = Vec::new();
    for (batch, (sum, count)) in &after.steps {
        let (was_sum, was_count) = before.steps.get(batch).copied().unwrap_or_default();
        if *count < was_count {
            return Err(Skip::Restarted);
        }
        if *count > was_count {
            moved.push((*batch, sum - was_sum, count - was_count));
        }
    }
    if before.steps.keys().any(|batch| !after.steps.contains_key(batch)) {
        return Err(Skip::Restarted);
    }
    let (batch, sum, count) = match moved.as_slice() {
        [] => return Err(Skip::Idle),
        [only] => *only,
        _ => return Err(Skip::BatchVaried),
    };
    let seconds = before.at.until(after.at)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive count")]
    Window::new(batch, None, count as u64, seconds, sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_s: f64, rows: &[(u64, f64, u64)]) -> Poll {
        let row = |(batch, mean, count): &(u64, f64, u64)| {
            format!("{MEAN}{{batch_size={batch}}}\t{mean}\n{COUNT}{{batch_size={batch}}}\t{count}\n")
        };
        let page = format!("engine_decode_time_sum\t1.5\n{}", rows.iter().map(row).collect::<String>());
        Poll::read(Instant { at_s, reply_s: 0.001 }, &page).unwrap()
    }

    #[test]
    fn the_steps_of_one_batch_size_are_the_growth_of_mean_times_count() {
        // 100 steps of 10 ms, then 100 of 20 ms: a mean of 15 ms over 200.
        let window =
            window(&look(0.0, &[(1, 0.5, 3), (2, 0.01, 100)]), &look(2.5, &[(1, 0.5, 3), (2, 0.015, 200)]))
                .unwrap();
        assert_eq!((window.batch, window.context_tokens, window.steps), (2, None, 100));
        assert!((window.step_s - 0.02).abs() < 1e-12);
    }

    #[test]
    fn what_is_no_steady_decoding_is_named() {
        let before = || look(0.0, &[(2, 0.01, 100)]);
        let then = |rows: &[(u64, f64, u64)]| {
            window(&before(), &look(2.0, rows)).and_then(Window::long_enough).unwrap_err()
        };
        assert_eq!(then(&[(2, 0.01, 100)]), Skip::Idle);
        assert_eq!(then(&[(1, 0.01, 60), (2, 0.01, 160)]), Skip::BatchVaried);
        assert_eq!(then(&[(2, 0.01, 60)]), Skip::Restarted);
        assert_eq!(then(&[(1, 0.01, 200)]), Skip::Restarted);
        assert_eq!(then(&[(2, 0.01, 120)]), Skip::TooShort);
        let drafts = "engine_decode_time_sum\t1\nspec_decode_draft_count{step=0}\t4\n";
        let drafted = Poll::read(Instant { at_s: 2.0, reply_s: 0.0 }, drafts).unwrap();
        assert_eq!(window(&before(), &drafted), Err(Skip::Speculation));
        assert_eq!(Poll::read(Instant { at_s: 0.0, reply_s: 0.0 }, "<html>404</html>"), None);
    }
}
