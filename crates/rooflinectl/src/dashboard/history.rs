//! What this program has seen of the machine since it started, at most an hour of it.
//!
//! The daemon keeps no past. So this asks for `/v1/state` every second, and of every number in it keeps the median of five
//! seconds: a value that was really there, also where numbers stand for something, as that of a power mode does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::Response;
use serde::Serialize;
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use super::Dashboard;
use super::reply::{Body, json};

/// Between two looks at the machine.
const SAMPLE: Duration = Duration::from_secs(1);
/// Time that one value stands for.
const EVERY: Duration = Duration::from_secs(5);
/// Values of a series: an hour.
const VALUES: usize = 720;
/// Most series. A machine with hundreds of cores has more numbers than that; totals come before parts.
const SERIES: usize = 256;
/// Longest wait for the daemon.
const PATIENCE: Duration = Duration::from_secs(5);

/// Series by the path of their number in `/v1/state`: `total_power_w`, `rails_w.VDD_IN`, `cpu_hz.0`. Those in which a value is
/// not known have NaN there, which is `null` in JSON. Four bytes a value: more digits than any sensor has.
#[derive(Debug)]
pub struct History {
    /// By [`now`], as every `now` here.
    began: Duration,
    series: BTreeMap<String, VecDeque<f32>>,
    /// Spans of [`EVERY`] since `began` that have passed: the end of every series.
    spans: u64,
    /// What was seen in the span that has not passed yet.
    seen: BTreeMap<String, Vec<f32>>,
}

impl History {
    pub const fn new(began: Duration) -> Self {
        Self { began, series: BTreeMap::new(), spans: 0, seen: BTreeMap::new() }
    }

    /// Takes what was seen of the machine at `now`.
    fn saw(&mut self, state: &Value, now: Duration) {
        self.pass(now);
        let mut numbers = Vec::new();
        for (field, reading) in state.as_object().into_iter().flatten() {
            if let Some(value) = reading.get("value") {
                numbers_of(field.clone(), value, 0, &mut numbers);
            }
        }
        // The shallow ones first, for which there is always room.
        numbers.sort_by_key(|(depth, ..)| *depth);
        for (_, name, number) in numbers {
            if self.series.contains_key(&name) || self.series.len() < SERIES {
                self.series.entry(name.clone()).or_default();
                self.seen.entry(name).or_default().push(number);
            }
        }
    }

    /// Ends the spans that have passed until `now`.
    fn pass(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.began).as_secs() / EVERY.as_secs();
        let fresh = usize::try_from(passed.saturating_sub(self.spans)).unwrap_or(usize::MAX);
        if fresh == 0 {
            return;
        }
        let before = usize::try_from(self.spans).unwrap_or(usize::MAX).min(VALUES);
        let mut seen = std::mem::take(&mut self.seen);
        for (name, values) in &mut self.series {
            // One that is seen for the first time was unknown before; nothing was seen in all spans but the first that ended.
            let first = seen.get_mut(name).and_then(|seen| median(seen)).unwrap_or(f32::NAN);
            values.resize(before.max(values.len()).min(VALUES), f32::NAN);
            let now = std::iter::once(first).chain(std::iter::repeat_n(f32::NAN, fresh.min(VALUES + 1) - 1));
            values.extend(now);
            values.drain(..values.len().saturating_sub(VALUES));
        }
        // Whatever has not been there for an hour makes room.
        self.series.retain(|_, values| values.iter().any(|value| !value.is_nan()));
        self.spans = passed;
    }

    fn answer(&mut self, now: Duration, wall: SystemTime) -> Answer<'_> {
        self.pass(now);
        let kept = self.spans.min(VALUES as u64);
        let end = self.began + EVERY * u32::try_from(self.spans).unwrap_or(u32::MAX);
        let ago = now.saturating_sub(end) + EVERY * u32::try_from(kept).unwrap_or(u32::MAX);
        let since = wall.checked_sub(ago).and_then(|since| since.duration_since(UNIX_EPOCH).ok());
        Answer {
            every_s: EVERY.as_secs(),
            values_at_most: VALUES,
            since_unix_s: since.map(|since| since.as_secs()),
            begins_with_this_program: self.spans <= VALUES as u64,
            // What was seen in the present span alone has no value yet.
            series: self.series.iter().filter(|(_, values)| !values.is_empty()).collect(),
        }
    }
}

/// To `GET /dashboard/history`.
#[derive(Debug, Serialize)]
struct Answer<'h> {
    every_s: u64,
    values_at_most: usize,
    /// When the first value's span began.
    since_unix_s: Option<u64>,
    /// Nothing is known of the time before, and nothing has been dropped since.
    begins_with_this_program: bool,
    series: BTreeMap<&'h String, &'h VecDeque<f32>>,
}

/// The value in the middle, the lower one of two.
fn median(values: &mut [f32]) -> Option<f32> {
    values.sort_by(f32::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// Every number and truth value below `value`, with its path and how deep it lies.
fn numbers_of(path: String, value: &Value, depth: usize, found: &mut Vec<(usize, String, f32)>) {
    match value {
        #[expect(clippy::cast_possible_truncation, reason = "seven digits are more than a sensor has")]
        Value::Number(number) => found.extend(number.as_f64().map(|number| (depth, path, number as f32))),
        Value::Bool(truth) => found.push((depth, path, f32::from(u8::from(*truth)))),
        Value::Array(parts) => {
            for (index, part) in parts.iter().enumerate() {
                numbers_of(format!("{path}.{index}"), part, depth + 1, found);
            }
        }
        Value::Object(fields) => {
            for (name, part) in fields {
                numbers_of(format!("{path}.{name}"), part, depth + 1, found);
            }
        }
        Value::Null | Value::String(_) => {}
    }
}

/// Time since the machine was started, its sleep included: a gap is a gap.
pub fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

/// Looks at the machine for as long as it is polled.
pub async fn sample(dashboard: Arc<Dashboard>) {
    let mut client = dashboard.client.another(PATIENCE);
    let mut ticks = tokio::time::interval(SAMPLE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match client.get("/v1/state").await.and_then(|answer| answer.parse::<Value>()) {
            Ok(state) => {
                let mut history = dashboard.history.lock().unwrap_or_else(PoisonError::into_inner);
                history.saw(&state, now());
            }
            // It is looked for everywhere again: what answers next may be another one.
            Err(_) => client = dashboard.client.another(PATIENCE),
        }
    }
}

pub fn answer(dashboard: &Dashboard) -> Response<Body> {
    let mut history = dashboard.history.lock().unwrap_or_else(PoisonError::into_inner);
    json(&history.answer(now(), SystemTime::now()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(began: Duration, s: u64) -> Duration {
        began + Duration::from_secs(s)
    }

    fn said(history: &mut History, now: Duration) -> Value {
        let wall = UNIX_EPOCH + Duration::from_secs(1000) + (now - history.began);
        serde_json::to_value(history.answer(now, wall)).unwrap()
    }

    fn series(history: &mut History, now: Duration, name: &str) -> Value {
        said(history, now)["series"][name].clone()
    }

    #[test]
    fn five_seconds_give_the_median_of_what_was_seen_and_none_where_nothing_was() {
        let began = Duration::from_secs(1_000_000);
        let mut history = History::new(began);
        for (s, power) in [(0, 5.0), (1, 90.0), (2, 6.0), (3, 7.0), (4, 1.0)] {
            history.saw(&json!({ "total_power_w": { "value": power }, "serial": 7 }), at(began, s));
        }
        assert_eq!(series(&mut history, at(began, 4), "total_power_w"), Value::Null);
        assert_eq!(series(&mut history, at(began, 5), "total_power_w"), json!([6.0]));
        history.saw(&json!({ "total_power_w": { "value": 2.0 } }), at(began, 22));
        assert_eq!(series(&mut history, at(began, 25), "total_power_w"), json!([6.0, null, null, null, 2.0]));
        let answer = said(&mut history, at(began, 25));
        assert_eq!((&answer["since_unix_s"], &answer["every_s"]), (&json!(1000), &json!(5)));
    }

    #[test]
    fn all_series_are_as_long_as_the_time_and_never_longer_than_an_hour() {
        let began = Duration::from_secs(1_000_000);
        let mut history = History::new(began);
        for s in (0..10_000).step_by(5) {
            let late = if s >= 9000 { json!(3) } else { Value::Null };
            let state = json!({
                "total_power_w": { "value": 1 }, "rails_w": { "value": { "VDD_IN": 2 } },
                "cpu_hz": { "value": [late] }, "gone": { "value": if s < 5000 { json!(4) } else { Value::Null } },
                "throttle": { "value": { "active": true } },
            });
            history.saw(&state, at(began, s));
        }
        let answer = said(&mut history, at(began, 10_000));
        let lengths: Vec<_> = answer["series"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, values)| (name.as_str(), values.as_array().unwrap().len()))
            .collect();
        let expected =
            ["cpu_hz.0", "rails_w.VDD_IN", "throttle.active", "total_power_w"].map(|name| (name, VALUES));
        assert_eq!(lengths, expected, "what has not been seen for an hour is gone");
        assert_eq!(answer["series"]["cpu_hz.0"][0], Value::Null);
        assert_eq!(answer["series"]["cpu_hz.0"][VALUES - 1], json!(3.0));
        assert_eq!(answer["begins_with_this_program"], json!(false));
        // The machine slept for a year.
        history.saw(&json!({ "total_power_w": { "value": 1 } }), at(began, 30_000_000));
        assert_eq!(series(&mut history, at(began, 30_000_000), "total_power_w"), Value::Null);
    }

    #[test]
    fn of_too_many_numbers_the_totals_are_kept() {
        let began = Duration::from_secs(1_000_000);
        let mut history = History::new(began);
        let cores: Vec<_> = (0..1000).map(|cpu| json!({ "cpu": cpu, "busy_ratio": 0.5 })).collect();
        history.saw(&json!({ "cores": { "value": cores }, "total_power_w": { "value": 1 } }), began);
        let answer = said(&mut history, at(began, 5));
        assert_eq!(answer["series"].as_object().unwrap().len(), SERIES);
        assert_eq!(answer["series"]["total_power_w"], json!([1.0]));
    }
}
