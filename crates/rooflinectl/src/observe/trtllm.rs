//! `trtllm-serve`: the rows of `/metrics`, one for each iteration of its engine.
//!
//! Reading takes the rows away from every other reader, so it is done on request only.

use serde_json::Value;

use super::window::{Instant, Skip, Window};

/// One look: the iterations since the one before.
#[derive(Debug, Clone, PartialEq)]
pub struct Poll {
    pub at: Instant,
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    seconds: f64,
    prompts: u64,
    generating: u64,
}

impl Poll {
    /// What `/metrics` answered; `None` where it is no list of iterations, as without `enable_iter_perf_stats`.
    pub fn read(at: Instant, answer: &Value) -> Option<Self> {
        let row = |row: &Value| {
            let batch = row.get("inflightBatchingStats")?;
            let count = |key: &str| batch.get(key).and_then(Value::as_u64);
            Some(Row {
                seconds: row.get("iterLatencyMS")?.as_f64()? / 1e3,
                prompts: count("numContextRequests")?,
                generating: count("numGenRequests")?,
            })
        };
        Some(Self { at, rows: answer.as_array()?.iter().map(row).collect::<Option<_>>()? })
    }

    /// Puts the rows that an earlier look took away before its own.
    pub fn follow(&mut self, mut earlier: Self) {
        earlier.rows.append(&mut self.rows);
        self.rows = earlier.rows;
    }
}

/// The window between two looks: the rows of the second. It has no context, which the server does not tell.
///
/// # Errors
/// Why it is missing.
pub fn window(before: &Poll, after: &Poll) -> Result<Window, Skip> {
    let decoding = after.rows.iter().filter(|row| row.generating > 0);
    let Some(batch) = decoding.clone().map(|row| row.generating).next() else {
        return Err(Skip::Idle);
    };
    if decoding.clone().any(|row| row.prompts > 0) {
        return Err(Skip::Prompt);
    }
    if decoding.clone().any(|row| row.generating != batch) {
        return Err(Skip::BatchVaried);
    }
    let mut times: Vec<f64> = decoding.map(|row| row.seconds).collect();
    times.sort_by(f64::total_cmp);
    let seconds = before.at.until(after.at)?;
    Window::new(batch, None, times.len() as u64, seconds, times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn look(at_s: f64, rows: &[(f64, u64, u64)]) -> Poll {
        let row = |(ms, context, generating): &(f64, u64, u64)| {
            json!({"iter": 1, "iterLatencyMS": ms,
                   "inflightBatchingStats": {"numContextRequests": context, "numGenRequests": generating}})
        };
        let rows: Vec<Value> = rows.iter().map(row).collect();
        Poll::read(Instant { at_s, reply_s: 0.001 }, &json!(rows)).unwrap()
    }

    #[test]
    fn the_step_is_the_median_of_the_iterations() {
        let rows: Vec<_> = (0..99_u32).map(|i| (f64::from(i) + 1.0, 0, 3)).collect();
        let window = window(&look(0.0, &[]), &look(5.0, &rows)).unwrap();
        assert_eq!((window.batch, window.steps, window.step_s), (3, 99, 0.050));
    }

    #[test]
    fn rows_that_an_earlier_look_took_away_still_count() {
        let mut after = look(5.0, &[(2.0, 0, 1); 30]);
        after.follow(look(3.0, &[(2.0, 0, 1); 30]));
        assert_eq!(window(&look(0.0, &[]), &after).unwrap().steps, 60);
    }

    #[test]
    fn what_is_no_steady_decoding_is_named() {
        let then = |rows: &[(f64, u64, u64)]| {
            window(&look(0.0, &[]), &look(5.0, rows)).and_then(Window::long_enough).unwrap_err()
        };
        assert_eq!(then(&[]), Skip::Idle);
        assert_eq!(then(&[(1.0, 0, 2); 10]), Skip::TooShort);
        assert_eq!(then(&[[(1.0, 0, 2); 60], [(1.0, 0, 3); 60]].concat()), Skip::BatchVaried);
        assert_eq!(then(&[[(1.0, 0, 2); 60].as_slice(), &[(9.0, 1, 2)]].concat()), Skip::Prompt);
        assert_eq!(Poll::read(Instant { at_s: 0.0, reply_s: 0.0 }, &json!({"detail": "Not Found"})), None);
        assert_eq!(Poll::read(Instant { at_s: 0.0, reply_s: 0.0 }, &json!([{"iter": 1}])), None);
    }
}
