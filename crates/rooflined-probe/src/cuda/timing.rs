//! Work between events, queued so that the device never waits for the CPU in between.
//!
//! A CPU takes from a few microseconds to a millisecond to hand a graph to the driver, the first time longest. Where the
//! device has nothing else to do meanwhile, that time lies between the events and counts as the kernel's. Hence a row of work
//! is queued behind a lead-in, a chain of instructions that keeps the device busy, and every submission is checked: if the
//! event before it has happened by then, the device may have been idle, and the row says nothing. The lead-in is then made
//! longer.

use std::cell::Cell;
use std::time::Instant;

use super::driver::{Arg, Buffer, Device, Event, Function, GpuError, Graph, Launch};
use rooflined_core::units::Seconds;

/// What a lead-in takes at first, and at most.
const LEAD_IN: Seconds = Seconds(100e-6);
const LONGEST_LEAD_IN: Seconds = Seconds(50e-3);
/// Rows tried before a device counts as one that cannot be kept at work.
pub const ATTEMPTS: u32 = 16;
/// The clock of a device that says it has done more than time has passed is simulated; asked so often.
const LOOKS: u32 = 8;
/// A chain that takes less than this part of what it should is made twice as long.
const STRETCHED: f64 = 0.7;
/// Lead-ins whose time tells how long the chain has to be.
const DOUBLINGS: u32 = 24;

/// What is submitted at once.
#[derive(Clone, Copy)]
pub enum Work<'a> {
    Graph(&'a Graph),
    Launch(&'a Launch),
}

impl Work<'_> {
    fn submit(self, device: &Device) -> Result<(), GpuError> {
        match self {
            Self::Graph(graph) => device.launch_graph(graph),
            Self::Launch(launch) => device.launch(launch),
        }
    }
}

/// A row that has been submitted; by default an empty one.
#[derive(Default)]
pub struct Queued {
    /// Around every piece of work.
    events: Vec<Event>,
    /// Whether the device had come to a piece of work when that had just been submitted.
    early: bool,
    /// Whether it had done all of it when the last had.
    done: bool,
}

/// What the device took.
pub struct Row {
    /// Of every piece of work.
    pub times: Vec<Seconds>,
    /// All of it was there before the device came to it.
    pub queued: bool,
}

/// Keeps a device at work while something else is submitted.
pub struct Timing {
    spin: Function,
    threads: u32,
    out: Buffer,
    /// Iterations of a chain of about [`LEAD_IN`].
    shortest: Cell<u32>,
    iterations: Cell<u32>,
    /// Longest lead-in, in iterations.
    longest: u32,
    /// The device's clock is a simulated one that time outside does not bind: what is done when it is asked says nothing.
    unbound: bool,
    /// What was not queued in time is taken all the same: a load is held, not timed.
    lenient: Cell<bool>,
}

impl Timing {
    /// Launches nothing yet.
    ///
    /// # Errors
    /// There is no memory left.
    pub fn new(device: &Device, spin: Function, threads: u32) -> Result<Self, GpuError> {
        Ok(Self {
            spin,
            threads,
            out: device.allocate(32)?,
            shortest: Cell::new(1_000),
            iterations: Cell::new(1_000),
            longest: u32::MAX,
            unbound: false,
            lenient: Cell::new(false),
        })
    }

    /// Finds out how long the lead-in has to be.
    ///
    /// # Errors
    /// The chain of instructions takes no time, or the device fails.
    pub fn settle(&mut self, device: &Device) -> Result<(), GpuError> {
        let time_of = |iterations: u32| {
            let chain = [self.chain(iterations, &self.out, 0)];
            // The first one is cold.
            device.run(&chain)?;
            Ok::<_, GpuError>(device.run(&chain)?.min(device.run(&chain)?))
        };
        let (mut iterations, mut time) = (self.shortest.get(), Seconds::ZERO);
        for _ in 0..DOUBLINGS {
            time = time_of(iterations)?;
            if time >= LEAD_IN {
                break;
            }
            iterations = iterations.saturating_mul(2);
        }
        if time < LEAD_IN {
            return Err(GpuError::Step(
                "the chain of instructions that measures the clock takes no time".into(),
            ));
        }
        self.shortest = Cell::new(iterations);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a factor below 501")]
        let most = (LONGEST_LEAD_IN / time).clamp(1.0, 500.0) as u32;
        self.longest = iterations.saturating_mul(most);
        self.iterations = Cell::new(iterations);
        self.unbound = self.runs_ahead(device)?;
        Ok(())
    }

    /// Whether the lead-in has its length, without which nothing is timed.
    pub fn is_settled(&self) -> bool {
        self.longest != u32::MAX
    }

    /// A chain of dependent instructions that writes how many cycles it took to `out`.
    pub fn chain(&self, iterations: u32, out: &Buffer, offset: usize) -> Launch {
        let args = vec![out.at(offset), Arg::U32(iterations)];
        Launch { function: self.spin, blocks: 1, threads: self.threads, shared: 0, args }
    }

    /// Iterations of a chain of about [`LEAD_IN`].
    pub fn shortest(&self) -> u32 {
        self.shortest.get()
    }

    /// Makes the chain as long as it was where the clock has risen since; whether that was necessary.
    pub fn stretch(&self, took: Seconds) -> bool {
        let short =
            took.is_positive() && took < LEAD_IN * STRETCHED && self.shortest.get() < self.longest / 2;
        if short {
            self.shortest.set(self.shortest.get().saturating_mul(2));
            self.iterations.set(self.iterations.get().max(self.shortest.get()));
        }
        short
    }

    pub fn unbound(&self) -> bool {
        self.unbound
    }

    /// Whether the device says that it has done in no time what takes it longer: no device that exists does.
    fn runs_ahead(&self, device: &Device) -> Result<bool, GpuError> {
        let chain = self.chain(self.shortest.get().saturating_mul(32), &self.out, 0);
        for _ in 0..LOOKS {
            let begun = Instant::now();
            let before = device.mark()?;
            device.launch(&chain)?;
            let after = device.mark()?;
            if !after.happened()? {
                after.wait()?;
                return Ok(false);
            }
            let passed = begun.elapsed().as_secs_f64();
            if after.after(&before)?.get() > passed {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Begins again with the shortest lead-in; for a load that is held, whatever is not queued in time is taken too.
    pub fn reset(&self, lenient: bool) {
        self.lenient.set(lenient);
        self.iterations.set(self.shortest.get());
    }

    fn lengthen(&self) {
        self.iterations.set(self.iterations.get().saturating_mul(2).min(self.longest));
    }

    /// Submits a row behind the lead-in and whatever was submitted before.
    pub fn queue(&self, device: &Device, works: &[Work<'_>]) -> Result<Queued, GpuError> {
        device.launch(&self.chain(self.iterations.get(), &self.out, 0))?;
        let mut events = Vec::with_capacity(works.len() + 1);
        events.push(device.mark()?);
        let mut early = false;
        for work in works {
            work.submit(device)?;
            early |= events.last().map_or(Ok(true), Event::happened)?;
            events.push(device.mark()?);
        }
        let done = early && events.last().map_or(Ok(true), Event::happened)?;
        Ok(Queued { events, early, done })
    }

    /// Waits for a row. If it was not submitted in time, the next one gets a longer lead-in.
    pub fn finish(&self, queued: &Queued) -> Result<Row, GpuError> {
        let Some((last, earlier)) = queued.events.split_last() else {
            return Ok(Row { times: Vec::new(), queued: true });
        };
        last.wait_behind(earlier)?;
        let times = queued
            .events
            .iter()
            .zip(queued.events.iter().skip(1))
            .map(|(before, after)| after.after(before))
            .collect::<Result<Vec<Seconds>, GpuError>>()?;
        // What a device with a simulated clock has done when it is asked says nothing, unless it is some of it.
        let in_time = !queued.early || (self.unbound && queued.done);
        if !in_time {
            self.lengthen();
        }
        let enough = self.lenient.get() && self.iterations.get() >= self.longest;
        Ok(Row { times, queued: in_time || enough })
    }

    /// What the device takes for each of `works`, one behind the other. They have run before.
    pub fn time(&self, device: &Device, works: &[Work<'_>]) -> Result<Vec<Seconds>, GpuError> {
        for _ in 0..ATTEMPTS {
            let row = self.finish(&self.queue(device, works)?)?;
            if row.queued {
                return Ok(row.times);
            }
        }
        Err(Self::not_kept_at_work())
    }

    pub fn not_kept_at_work() -> GpuError {
        GpuError::Step(format!(
            "the CPU takes too long to submit work: the GPU was idle in between even behind {LONGEST_LEAD_IN} of other \
             work. End what keeps the CPU busy, and try again"
        ))
    }
}
