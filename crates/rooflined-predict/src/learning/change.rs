//! Notices that a machine or an engine is no longer what it was: a two-sided cumulative sum (E. S. Page, "Continuous
//! inspection schemes", Biometrika 41, 1954) over the standardised errors ln(measured / predicted).
//!
//! ```text
//! up   = max(0, up   + z - k)        down = max(0, down - z - k)        alarm where either exceeds h
//! ```
//!
//! With k = 1/2 and h = 12 a process in control is mistaken for a changed one once in some 520 000 observations
//! (Siegmund's approximation `(e^(2k b) - 2k b - 1) / 2k^2`, b = h + 1.166, halved for two sides; a test simulates it),
//! and a shift of one standard deviation is noticed after about 24, of three after 5. The spread is not known beforehand:
//! it is learnt from the errors themselves.

use serde::{Deserialize, Serialize};

/// Half of the shift that is looked for, in standard deviations.
pub const SLACK: f64 = 0.5;
/// The alarm's threshold, in standard deviations.
pub const THRESHOLD: f64 = 12.0;
/// One error counts for at most this many standard deviations, so that no single one raises an alarm.
pub const CLIP: f64 = 4.0;
/// Spread of the logarithm that is assumed before there are errors to tell it, and how many errors that counts as.
const ASSUMED_LOG_SD: f64 = 0.05;
const ASSUMED_COUNT: f64 = 4.0;
/// Errors that only tell the spread before any is held against it.
const WARM_UP: f64 = 12.0;
/// Errors that the spread is taken from weigh as an exponential window of this many.
const WINDOW: f64 = 200.0;

/// Errors in a row, as one engine's detector sees them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Detector {
    up: f64,
    down: f64,
    /// Observations since `up` and `down` last were 0.
    since_up: u32,
    since_down: u32,
    count: f64,
    variance: f64,
}

impl Default for Detector {
    fn default() -> Self {
        Self {
            up: 0.0,
            down: 0.0,
            since_up: 0,
            since_down: 0,
            count: ASSUMED_COUNT,
            variance: ASSUMED_LOG_SD * ASSUMED_LOG_SD,
        }
    }
}

/// The errors have moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// How many of the last errors are of the time after the change: those since the sum last was 0.
    pub after: u32,
    /// Slower than before, or faster.
    pub slower: bool,
}

impl Detector {
    /// Standard deviation of the errors' logarithm.
    #[must_use]
    pub fn log_sd(&self) -> f64 {
        self.variance.sqrt()
    }

    /// How far an error stands out; `expected_log_sd` is what its prediction allowed for.
    #[must_use]
    pub fn standardised(&self, error: f64, expected_log_sd: f64) -> f64 {
        (error / self.log_sd().max(expected_log_sd)).clamp(-CLIP, CLIP)
    }

    /// Takes in the error ln(measured / predicted) of the newest observation.
    pub fn take(&mut self, error: f64, expected_log_sd: f64) -> Option<Alarm> {
        let sd = self.log_sd();
        let z = self.standardised(error, expected_log_sd);
        if self.count >= ASSUMED_COUNT + WARM_UP {
            step(&mut self.up, &mut self.since_up, z);
            step(&mut self.down, &mut self.since_down, -z);
        }
        self.count = (self.count + 1.0).min(WINDOW);
        let counted = (error / sd).clamp(-CLIP, CLIP) * sd;
        self.variance += (counted * counted - self.variance) / self.count;
        let slower = self.up > THRESHOLD;
        if !slower && self.down <= THRESHOLD {
            return None;
        }
        let after = if slower { self.since_up } else { self.since_down };
        self.forget();
        Some(Alarm { after, slower })
    }

    /// Starts over, with the spread as it is known.
    pub const fn forget(&mut self) {
        self.up = 0.0;
        self.down = 0.0;
        self.since_up = 0;
        self.since_down = 0;
    }

    /// Whether no number in it can spoil an answer.
    #[must_use]
    pub fn sound(&self) -> bool {
        let in_range = |value: f64, most: f64| (0.0..=most).contains(&value);
        in_range(self.up, THRESHOLD)
            && in_range(self.down, THRESHOLD)
            && in_range(self.count, WINDOW)
            && in_range(self.variance, 100.0)
            && self.variance > 0.0
            && self.count >= 1.0
    }
}

fn step(sum: &mut f64, since: &mut u32, z: f64) {
    *sum = (*sum + z - SLACK).max(0.0);
    *since = if *sum > 0.0 { since.saturating_add(1) } else { 0 };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Noise;

    /// Mean run length of the two-sided sum with this threshold, the spread being known, over `runs` runs.
    fn run_length(noise: &mut Noise, threshold: f64, shift: f64, runs: u32) -> f64 {
        let mut total = 0_u64;
        for _ in 0..runs {
            let (mut up, mut down, mut unused) = (0.0, 0.0, 0);
            while up <= threshold && down <= threshold {
                let z = noise.normal() + shift;
                step(&mut up, &mut unused, z);
                step(&mut down, &mut unused, -z);
                total += 1;
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of samples")]
        let total = total as f64;
        total / f64::from(runs)
    }

    fn siegmund(threshold: f64) -> f64 {
        let b = 2.0 * SLACK * (threshold + 1.166);
        (b.exp() - b - 1.0) / (2.0 * SLACK * SLACK) / 2.0
    }

    #[test]
    fn the_average_run_length_is_the_documented_one() {
        let mut noise = Noise::new(7);
        // The textbook's value for h = 5, and the approximation where a run is short enough to be simulated often.
        assert!((run_length(&mut noise, 5.0, 0.0, 400) / 465.0 - 1.0).abs() < 0.2);
        assert!((run_length(&mut noise, 7.0, 0.0, 100) / siegmund(7.0) - 1.0).abs() < 0.4);
        assert!((siegmund(THRESHOLD) / 520_000.0 - 1.0).abs() < 0.02);
        assert!((run_length(&mut noise, THRESHOLD, 1.0, 400) - 24.0).abs() < 2.5);
        assert!((run_length(&mut noise, THRESHOLD, 3.0, 400) - 5.4).abs() < 0.8);
    }

    #[test]
    fn ten_thousand_observations_in_control_raise_no_alarm() {
        for (seed, log_sd) in [(1, 0.01), (2, 0.03), (3, 0.05), (4, 0.15)] {
            let (mut noise, mut detector) = (Noise::new(seed), Detector::default());
            for index in 0..10_000 {
                let alarm = detector.take(log_sd * noise.normal(), 0.0);
                assert_eq!(alarm, None, "at {index} of spread {log_sd}");
            }
            assert!((detector.log_sd() / log_sd - 1.0).abs() < 0.25, "{}", detector.log_sd());
        }
    }

    #[test]
    fn a_machine_that_slows_by_a_fifth_is_noticed_within_eight_observations() {
        for seed in 0..20 {
            let (mut noise, mut detector) = (Noise::new(seed), Detector::default());
            for _ in 0..60 {
                assert_eq!(detector.take(0.03 * noise.normal(), 0.0), None);
            }
            let alarm = (1..=8).find_map(|count| {
                detector.take(1.2_f64.ln() + 0.03 * noise.normal(), 0.0).map(|alarm| (count, alarm))
            });
            let (count, alarm) = alarm.unwrap();
            assert!(alarm.slower);
            assert!((count..count + 60).contains(&alarm.after), "{alarm:?} after {count}");
        }
    }

    #[test]
    fn one_outlier_raises_no_alarm() {
        let mut detector = Detector::default();
        assert_eq!(detector.take(3.0, 0.0), None);
        assert_eq!(detector.take(-3.0, 0.0), None);
        assert!(detector.sound());
    }
}
