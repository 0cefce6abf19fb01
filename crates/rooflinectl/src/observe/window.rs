//! A stretch of steady decoding between two looks at a server, or why there was none.

use std::collections::BTreeMap;

use serde::Serialize;

/// Shortest stretch that is reported.
pub const LEAST_SECONDS: f64 = 1.0;
pub const LEAST_STEPS: u64 = 50;
/// The instant of a look is uncertain by the time of its reply; more of the stretch than this is too much.
const REPLY_RATIO: f64 = 0.02;
/// Contexts that differ by no more than the larger of these are one in a median.
const SAME_CONTEXT_TOKENS: u64 = 256;
const SAME_CONTEXT_RATIO: f64 = 0.25;

/// When a server was looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Instant {
    /// Middle between request and reply, on the monotonic clock.
    pub at_s: f64,
    /// Time of the reply.
    pub reply_s: f64,
}

impl Instant {
    /// Time from here to `later`, if both ends are sharp enough for it.
    ///
    /// # Errors
    /// [`Skip::SlowReply`].
    pub fn until(self, later: Self) -> Result<f64, Skip> {
        let seconds = later.at_s - self.at_s;
        if self.reply_s.max(later.reply_s) < REPLY_RATIO * seconds {
            Ok(seconds)
        } else {
            Err(Skip::SlowReply)
        }
    }
}

/// Steady decoding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Sequences that got a token in every step.
    pub batch: u64,
    /// Tokens in the cache of each, in the middle; `None` where the server does not tell.
    pub context_tokens: Option<u64>,
    /// Time of one step.
    pub step_s: f64,
    /// Steps seen.
    pub steps: u64,
    /// Time between the two looks.
    pub seconds: f64,
    /// Threads that computed for most of it; `None` where they are not counted.
    pub threads: Option<u64>,
}

impl Window {
    /// A window of `steps` in `seconds`.
    ///
    /// # Errors
    /// It has no step, after which a later second look may still do, or no time of one.
    pub fn new(
        batch: u64,
        context_tokens: Option<u64>,
        steps: u64,
        seconds: f64,
        step_s: f64,
    ) -> Result<Self, Skip> {
        if steps == 0 {
            return Err(Skip::TooShort);
        }
        if batch == 0 || !step_s.is_finite() || step_s <= 0.0 {
            return Err(Skip::Inconsistent);
        }
        Ok(Self { batch, context_tokens, step_s, steps, seconds, threads: None })
    }

    /// The window, if it is long enough to learn from.
    ///
    /// # Errors
    /// [`Skip::TooShort`], after which a later second look may still do.
    pub fn long_enough(self) -> Result<Self, Skip> {
        if self.steps < LEAST_STEPS || self.seconds < LEAST_SECONDS { Err(Skip::TooShort) } else { Ok(self) }
    }

    /// Whether it may stand in one median with `other`.
    fn is_like(&self, other: &Self) -> bool {
        self.batch == other.batch
            && match (self.context_tokens, other.context_tokens) {
                (Some(own), Some(other)) => {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        clippy::cast_precision_loss,
                        reason = "a quarter of a count of tokens"
                    )]
                    let share = (own as f64 * SAME_CONTEXT_RATIO) as u64;
                    own.abs_diff(other) <= share.max(SAME_CONTEXT_TOKENS)
                }
                (None, None) => true,
                _ => false,
            }
    }
}

/// Why two looks do not make a window. Programs match on the key, so that it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// Nothing is generated.
    Idle,
    /// Fewer steps or less time than counts.
    TooShort,
    /// A request came, went or changed places.
    RequestsChanged,
    /// A prompt was read meanwhile.
    Prompt,
    /// The number of sequences varied.
    BatchVaried,
    /// Tokens left the cache.
    ContextShift,
    /// Drafts are verified, so a step makes more than one token.
    Speculation,
    /// Requests waited or were preempted.
    Queued,
    /// The look took too long for the stretch.
    SlowReply,
    /// A counter fell, or the process is another.
    Restarted,
    /// The model file is another.
    ModelChanged,
    /// What it told does not fit together.
    Inconsistent,
    /// What it answered cannot be read.
    Unreadable,
    /// The process waited for a processor.
    Starved,
    /// The hypervisor gave the processors to others.
    Stolen,
    /// The process was stopped.
    Stopped,
    /// The machine was suspended.
    Suspended,
    /// The power mode or a clock changed, or cores went on- or offline.
    MachineChanged,
    /// Heat or a power limit held the clocks down.
    Throttled,
}

impl Skip {
    /// For people.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Idle => "nothing was generated",
            Self::TooShort => "fewer than 50 steps, or less than 1 s",
            Self::RequestsChanged => "a request began or ended",
            Self::Prompt => "a prompt was read",
            Self::BatchVaried => "the batch varied",
            Self::ContextShift => "tokens left the cache (context shift)",
            Self::Speculation => "speculative decoding",
            Self::Queued => "requests waited or were preempted",
            Self::SlowReply => "the server answered too late",
            Self::Restarted => "the server was restarted",
            Self::ModelChanged => "the model file was replaced",
            Self::Inconsistent => "the server's figures contradict each other",
            Self::Unreadable => "the server's answer cannot be read",
            Self::Starved => "the server waited for a processor: something else runs on its cores",
            Self::Stolen => "the hypervisor gave the processors to others",
            Self::Stopped => "the process was stopped",
            Self::Suspended => "the machine was suspended",
            Self::MachineChanged => "the power mode, a clock or the cores online changed",
            Self::Throttled => "the machine throttled",
        }
    }

    /// Whether it slows the server down, and so is worth a report where it lasts.
    pub const fn is_slowdown(self) -> bool {
        matches!(self, Self::Starved | Self::Stolen | Self::Throttled)
    }

    /// Whether the first look may stay: a later second one may make a window of it.
    pub const fn may_still_become(self) -> bool {
        matches!(self, Self::TooShort | Self::SlowReply)
    }
}

/// The middle of some windows that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Median {
    pub batch: u64,
    pub context_tokens: Option<u64>,
    pub step_s: f64,
    /// Slowest and fastest.
    pub step_range_s: (f64, f64),
    pub windows: usize,
    pub steps: u64,
    pub seconds: f64,
    /// Mean power, where every window has one.
    pub power_w: Option<f64>,
    /// Threads that computed in the window in the middle, where they are counted.
    pub threads: Option<u64>,
}

/// Windows that wait for others like them.
#[derive(Debug, Default)]
pub struct Windows {
    groups: Vec<Vec<(Window, Option<f64>)>>,
    /// What was skipped, by reason.
    pub skipped: BTreeMap<Skip, u64>,
    /// Windows taken.
    pub taken: u64,
}

impl Windows {
    /// Adds one with its power; answers a median once there are `enough` that are alike.
    pub fn add(&mut self, window: Window, power_w: Option<f64>, enough: usize) -> Option<Median> {
        self.taken += 1;
        let place = self
            .groups
            .iter()
            .position(|group| group.first().is_some_and(|(first, _)| first.is_like(&window)));
        let place = place.unwrap_or_else(|| {
            self.groups.push(Vec::new());
            self.groups.len() - 1
        });
        self.groups[place].push((window, power_w));
        (self.groups[place].len() >= enough).then(|| median(&self.groups.swap_remove(place)))
    }

    pub fn skip(&mut self, why: Skip) {
        *self.skipped.entry(why).or_default() += 1;
    }
}

/// The middle of several, of which there is one at least.
fn median(windows: &[(Window, Option<f64>)]) -> Median {
    let mut steps: Vec<f64> = windows.iter().map(|(window, _)| window.step_s).collect();
    steps.sort_by(f64::total_cmp);
    let mut contexts: Vec<u64> = windows.iter().filter_map(|(window, _)| window.context_tokens).collect();
    contexts.sort_unstable();
    let mut threads: Vec<u64> = windows.iter().filter_map(|(window, _)| window.threads).collect();
    threads.sort_unstable();
    let powers: Option<Vec<f64>> = windows.iter().map(|(_, power)| *power).collect();
    #[expect(clippy::cast_precision_loss, reason = "a handful of windows")]
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let middle = steps.len() / 2;
    let step_s =
        if steps.len() % 2 == 1 { steps[middle] } else { f64::midpoint(steps[middle - 1], steps[middle]) };
    Median {
        batch: windows[0].0.batch,
        context_tokens: contexts.get(contexts.len() / 2).copied(),
        step_s,
        step_range_s: (steps[0], steps[steps.len() - 1]),
        windows: windows.len(),
        steps: windows.iter().map(|(window, _)| window.steps).sum(),
        seconds: windows.iter().map(|(window, _)| window.seconds).sum(),
        power_w: powers.map(|powers| mean(&powers)),
        threads: threads.get(threads.len() / 2).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(batch: u64, context: u64, step_s: f64) -> Window {
        let seconds = 100.0 * step_s;
        Window { batch, context_tokens: Some(context), step_s, steps: 100, seconds, threads: None }
    }

    #[test]
    fn a_median_is_of_windows_of_one_batch_and_about_one_context() {
        let mut windows = Windows::default();
        assert_eq!(windows.add(window(1, 100, 0.02), Some(10.0), 3), None);
        assert_eq!(windows.add(window(2, 100, 0.03), None, 3), None);
        assert_eq!(windows.add(window(1, 5000, 0.09), None, 3), None);
        assert_eq!(windows.add(window(1, 200, 0.05), Some(12.0), 3), None);
        let median = windows.add(window(1, 300, 0.021), Some(14.0), 3).unwrap();
        assert_eq!((median.batch, median.context_tokens, median.windows), (1, Some(200), 3));
        assert_eq!((median.step_s, median.step_range_s), (0.021, (0.02, 0.05)));
        assert_eq!(median.power_w, Some(12.0));
        // They were used up; the others still wait.
        assert_eq!(windows.add(window(1, 200, 0.02), None, 3), None);
        assert_eq!(windows.taken, 6);
    }

    #[test]
    fn one_window_in_which_threads_were_miscounted_does_not_count() {
        let mut windows = Windows::default();
        let with = |threads| Window { threads, ..window(1, 1, 0.02) };
        assert_eq!(windows.add(with(Some(2)), None, 3), None);
        assert_eq!(windows.add(with(Some(1)), None, 3), None);
        assert_eq!(windows.add(with(Some(2)), None, 3).unwrap().threads, Some(2));
        assert_eq!(windows.add(with(None), None, 1).unwrap().threads, None);
    }

    #[test]
    fn a_power_that_one_window_lacks_is_not_known() {
        let mut windows = Windows::default();
        assert_eq!(windows.add(window(1, 1, 0.02), Some(10.0), 2), None);
        let median = windows.add(window(1, 1, 0.04), None, 2).unwrap();
        assert_eq!(median.power_w, None);
        assert!((median.step_s - 0.03).abs() < 1e-12, "the middle of an even number is between two");
    }

    #[test]
    fn a_late_reply_blurs_a_short_stretch_and_not_a_long_one() {
        let look = |at_s, reply_s| Instant { at_s, reply_s };
        assert_eq!(look(0.0, 0.05).until(look(1.0, 0.0)), Err(Skip::SlowReply));
        assert_eq!(look(0.0, 0.05).until(look(3.0, 0.0)), Ok(3.0));
        assert_eq!(
            look(1.0, 0.0).until(look(1.0, 0.0)),
            Err(Skip::SlowReply),
            "no time at all is no stretch"
        );
    }
}
