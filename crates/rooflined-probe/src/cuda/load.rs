//! The clock under load: brought back before every sample, and read beside it.
//!
//! A board's governor looks every 25 ms at how busy the GPU was, and lets the clock fall within some hundred milliseconds
//! while the CPU prepares a step; below 70 % of load it never raises it again, at 80 % it takes seconds. So the step's own
//! graph runs, without a gap, until the clock is one that this GPU has kept under load before, or until it no longer moves
//! for longer than a governor needs to raise it from the lowest to the highest.

use std::time::Instant;

use super::Cuda;
use super::driver::{GpuError, Graph};
use super::timing::{Queued, Work};
use rooflined_core::units::{BytesPerSecond, Celsius, Hertz, Seconds};
use rooflined_predict::calibration::{Clock, Conditions, Kernel, Reference, Step, centre, median};

/// The step's own work in a poll, at least.
const OWN: Seconds = Seconds(3e-3);
const MOST_OWN: f64 = 64.0;
/// Chains of a poll: short ones in a row, which show whether the device stops in between, and a longer one.
const TRAIN: usize = 24;
const LONGER: u32 = 4;
/// Looks in a row that have to agree.
const AGREEING: u32 = 3;
/// Largest difference of clocks, and of times of the same work, that agree.
const CLOCK_AGREES: f64 = 0.02;
const TIME_AGREES: f64 = 0.03;
/// A clock that this GPU has not kept before has to stay for so long: from the lowest clock to the highest a governor takes 75
/// to 100 ms at full load. One below those that it has kept may be a dip that ends, and has to stay for longer.
const STEADY: Seconds = Seconds(0.2);
const STEADY_BELOW: Seconds = Seconds(0.5);
/// What does not become steady is measured as it is after so long; before the first step the plan may allow more.
const LIMIT: Seconds = Seconds(1.0);
const FIRST_LIMIT: Seconds = Seconds(1.5);
/// How often cycles are counted: the least are those that nobody interrupted.
const COUNTS: u32 = 5;
/// Polls before a sample at most.
const MOST_POLLS: u32 = 2_000;

/// The device under the load of a step.
#[derive(Debug, Clone)]
pub(super) struct Poll {
    /// Cycles a second of an SM that works.
    pub clock: Hertz,
    pub reported: Option<Hertz>,
    pub reference: BytesPerSecond,
    pub temperature: Option<Celsius>,
    /// Of the step's graph.
    own: Seconds,
    /// Of a short chain.
    pub chain: Seconds,
    /// What the short chains would have taken without a stop, and what they took.
    pub alone: Seconds,
    pub taken: Seconds,
    /// All of the poll.
    whole: Seconds,
    /// It was queued in time.
    queued: bool,
}

impl Poll {
    pub fn conditions(&self) -> Conditions {
        Conditions {
            clock: Clock { effective: self.clock, reported: self.reported },
            reference: Reference { read: self.reference, core_to_core: None },
            steal_ratio: None,
            temperature: self.temperature,
        }
    }

    fn agrees(&self, other: &Self) -> bool {
        close(self.clock.get(), other.clock.get(), CLOCK_AGREES)
            && close(self.own.get(), other.own.get(), TIME_AGREES)
    }
}

pub(super) fn close(a: f64, b: f64, ratio: f64) -> bool {
    (a / b - 1.0).abs() <= ratio
}

/// A poll that has been submitted.
struct PendingPoll {
    queued: Queued,
    own: usize,
    /// Iterations of its short chains.
    iterations: u32,
}

impl Cuda {
    /// Cycles that one iteration of the chain takes: the difference of a longer and a shorter one, so that what starts and
    /// ends them falls out. As an SM is built, whatever its clock.
    pub(super) fn cycles_of_chain(&self) -> Result<f64, GpuError> {
        let short = self.timing.shortest();
        let cycles = |iterations: u32| -> Result<f64, GpuError> {
            let mut least = u64::MAX;
            for _ in 0..COUNTS {
                self.device.run(&[self.timing.chain(iterations, &self.chains, 0)])?;
                let cycles = self.chains.read(0, 8)?;
                least = least.min(u64::from_le_bytes(cycles.try_into().unwrap_or_default()));
            }
            #[expect(clippy::cast_precision_loss, reason = "cycles of less than a second")]
            Ok(least as f64)
        };
        let long = short.saturating_mul(LONGER);
        let difference = cycles(long)? - cycles(short)?;
        let each = difference / f64::from(long - short);
        if each > 0.0 && each.is_finite() {
            Ok(each)
        } else {
            Err(GpuError::Step("the chain of instructions that measures the clock takes no cycles".into()))
        }
    }

    /// Submits the reference, the step's graph and the chains.
    fn submit_poll(&self, graph: &Graph, once: Seconds) -> Result<PendingPoll, GpuError> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let own = (OWN / once.max(Seconds(1e-6))).ceil().clamp(1.0, MOST_OWN) as usize;
        let iterations = self.timing.shortest();
        let short = self.timing.chain(iterations, &self.chains, 0);
        let long = self.timing.chain(iterations.saturating_mul(LONGER), &self.chains, 32);
        let mut works = Vec::with_capacity(own + TRAIN + 4);
        if let Some(reference) = &self.reference {
            works.extend([Work::Graph(reference.graph()); 2]);
        }
        // The first finds the reference's bytes in the cache.
        works.extend(std::iter::repeat_n(Work::Graph(graph), own + 1));
        works.extend([Work::Launch(&short); TRAIN]);
        works.push(Work::Launch(&long));
        Ok(PendingPoll { queued: self.timing.queue(&self.device, &works)?, own, iterations })
    }

    /// The last poll of several, with what the meters tell while it runs: they may take their time.
    fn finish_last(&self, pending: &PendingPoll) -> Result<Poll, GpuError> {
        let (reported, temperature) = (self.meters.clock(), self.meters.temperature());
        Ok(Poll { reported, temperature, ..self.finish_poll(pending)? })
    }

    fn finish_poll(&self, pending: &PendingPoll) -> Result<Poll, GpuError> {
        let row = self.timing.finish(&pending.queued)?;
        let whole = row.times.iter().fold(Seconds::ZERO, |sum, time| sum + *time);
        let mut rest = row.times.as_slice();
        let mut take = |count: usize| {
            let (these, others) = rest.split_at(count.min(rest.len()));
            rest = others;
            these
        };
        let reference = match &self.reference {
            // The first pass finds whatever the kernel before left in the cache.
            Some(reference) => reference.rate(take(2)),
            None => BytesPerSecond(0.0),
        };
        take(1);
        let own = centre(take(pending.own));
        let train = take(TRAIN);
        let long = take(1).first().copied().unwrap_or_default();
        let chain = median(train.iter().map(|time| time.get())).map_or(Seconds::ZERO, Seconds);
        let difference = long - chain;
        let cycles = self.cycles * f64::from(pending.iterations) * f64::from(LONGER - 1);
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let alone = chain * train.len() as f64;
        Ok(Poll {
            clock: if difference.is_positive() { Hertz(cycles / difference.get()) } else { Hertz(0.0) },
            reported: None,
            reference,
            temperature: None,
            own,
            chain,
            alone,
            taken: train.iter().fold(Seconds::ZERO, |sum, time| sum + *time),
            whole,
            queued: row.queued,
        })
    }

    /// One poll, on a device that is warm.
    pub(super) fn poll(&self, graph: &Graph, once: Seconds) -> Result<Poll, GpuError> {
        for _ in 0..super::timing::ATTEMPTS {
            let poll = self.finish_last(&self.submit_poll(graph, once)?)?;
            if poll.queued {
                return Ok(poll);
            }
        }
        Err(super::timing::Timing::not_kept_at_work())
    }

    /// How long the device has been at work; where its clock runs ahead of the one outside, what has passed there.
    fn passed(&self, device: Seconds, since: Instant) -> Seconds {
        if self.timing.unbound() { device.min(Seconds(since.elapsed().as_secs_f64())) } else { device }
    }

    /// Keeps the device at the step's work until its clock is that under load; the last poll.
    pub(super) fn settle(
        &mut self,
        step: &Step,
        graph: &Graph,
        once: Seconds,
        stop: &dyn Fn() -> bool,
    ) -> Result<Poll, GpuError> {
        // At a power limit arithmetic has a lower clock than memory.
        let arithmetic = matches!(step.kernel, Kernel::Peak { .. });
        let highest = self.kept.iter().map(|(_, clock)| *clock).fold(Hertz(0.0), Hertz::max);
        let begun = Instant::now();
        let limit = if self.kept.is_empty() { FIRST_LIMIT.max(self.warm_up) } else { LIMIT };
        let mut loaded = Seconds::ZERO;
        // Since when polls agree with the first that did: on the device's clock, and outside.
        let mut since: Option<(Poll, Seconds, Instant)> = None;
        let mut agreeing = 0;
        let mut next = self.submit_poll(graph, once)?;
        for _ in 0..MOST_POLLS {
            let current = std::mem::replace(&mut next, self.submit_poll(graph, once)?);
            let poll = self.finish_poll(&current)?;
            loaded += poll.whole;
            let spent = self.passed(loaded, begun);
            // One that was not queued in time gets a longer lead-in; in the end that is refused below.
            if stop() || spent >= limit {
                break;
            }
            if self.timing.stretch(poll.chain) || !poll.queued || !poll.clock.is_positive() {
                since = None;
                continue;
            }
            let (first, from, began) = match since.take() {
                Some(since) if since.0.agrees(&poll) => since,
                _ => {
                    agreeing = 0;
                    (poll.clone(), loaded, Instant::now())
                }
            };
            agreeing += 1;
            let stayed = self.passed(loaded - from, began);
            let near = |clock: Hertz| close(poll.clock.get(), clock.get(), CLOCK_AGREES);
            let kept = near(highest)
                || self
                    .kept
                    .iter()
                    .any(|(of_arithmetic, clock)| *of_arithmetic == arithmetic && near(*clock));
            let steady = stayed >= if poll.clock < highest { STEADY_BELOW } else { STEADY };
            since = Some((first, from, began));
            if agreeing >= AGREEING && (kept || steady) {
                if !kept {
                    self.kept.push((arithmetic, poll.clock));
                }
                break;
            }
        }
        let last = self.finish_last(&next)?;
        if last.queued { Ok(last) } else { self.poll(graph, once) }
    }
}
