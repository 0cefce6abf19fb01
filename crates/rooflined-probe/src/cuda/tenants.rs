//! Other work on the GPU: what is seen of it beside a sample.

use super::load::Poll;
use super::{CACHES_APART, Cuda, times_apart};
use rooflined_core::units::{BytesPerSecond, Hertz, Seconds};
use rooflined_predict::calibration::{Kernel, Step, Stream, depends_on_bandwidth};

/// Part of its time that a GPU stood still within work of equal length, from which on others had it.
const STOPPED: f64 = 0.1;
/// The clock that the SMs counted over the one that NVML reports, below which others had them.
const COUNTED: f64 = 0.9;
/// The reference read over the best of the run, below which others read too.
const READ: f64 = 0.9;

impl Cuda {
    /// What somebody else did to the GPU meanwhile, as a sentence; `None` where nothing was seen.
    pub(super) fn other_work(&mut self, step: &Step, polls: [&Poll; 2], times: &[Seconds]) -> Option<String> {
        let seen = self.seen(step, polls, times).map(|seen| match self.meters.suspects() {
            Some(who) if !seen.contains(&who) => format!("{seen}; {who} may have used it"),
            _ => seen,
        });
        let read = polls[0].reference.max(polls[1].reference);
        self.best_read = self.best_read.max(read);
        seen
    }

    fn seen(&self, step: &Step, polls: [&Poll; 2], times: &[Seconds]) -> Option<String> {
        let others = self.meters.others();
        if others.is_some() {
            return others;
        }
        let (alone, taken) = polls.iter().fold((Seconds::ZERO, Seconds::ZERO), |(alone, taken), poll| {
            (alone + poll.alone, taken + poll.taken)
        });
        // What launches from a stream take is the CPU's to spread.
        let apart = if step.kernel == Kernel::Submit { 0.0 } else { times_apart(times) };
        for stopped in [1.0 - alone / taken, apart] {
            if stopped > STOPPED {
                return Some(format!("the GPU stood still for {:.0} % of the time", 100.0 * stopped));
            }
        }
        let below = |poll: &&&Poll| poll.reported.is_some_and(|reported| poll.clock / reported < COUNTED);
        if let Some(poll) = polls.iter().find(below) {
            let reported = poll.reported.unwrap_or(poll.clock);
            return Some(format!("the SMs counted {} while NVML reports {reported}", poll.clock));
        }
        // The lower of both: who came or went meanwhile was there for a part of it.
        let read = polls[0].reference.min(polls[1].reference);
        self.read_less(&step.kernel, read, polls[0].clock).then(|| {
            format!("memory gave {read} around the sample, and {} at another time of the run", self.best_read)
        })
    }

    /// Whether the reference beside a sample whose time memory sets read less than it can at that clock.
    pub(super) fn read_less(&self, kernel: &Kernel, read: BytesPerSecond, clock: Hertz) -> bool {
        // What is read from a cache needs no memory.
        let cached = matches!(*kernel, Kernel::Stream { pattern: Stream::Read, bytes, .. }
            if self.beyond_cache(Stream::Read, bytes) < CACHES_APART * self.l2_bytes());
        // A lower clock reads less by itself.
        let slower = self.kept.iter().any(|(_, kept)| clock / *kept < 0.95);
        depends_on_bandwidth(kernel) && !cached && !slower && read / self.best_read < READ
    }
}
