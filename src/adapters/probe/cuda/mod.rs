//! The probe of an NVIDIA GPU: the kernels below `kernels/`, timed by events around graphs of launches.
//!
//! A graph is what is timed, not single launches: its nodes start each other on the device, so that the time between the
//! events is that of the kernels and of the gaps between them, and not of a CPU that submits. [`Kernel::Wake`] is such a
//! gap, found with empty kernels, and [`Kernel::Submit`] what a launch from a stream takes.
//!
//! Buffers that are to be read from memory are rotated through until four times the second-level cache lies between two
//! uses. Every output is filled with a pattern before its kernel runs and is compared afterwards with a reference
//! that the CPU computes in double precision.

mod attention;
mod driver;
mod kernels;
mod matrix;
mod meters;
mod peak;
mod stored;
mod stream;
mod verify;

pub use verify::{Verified, verify};

use std::time::{Duration, Instant};

use self::driver::{Arg, Buffer, Device, Function, GpuError, Graph, Launch, guarded};
use self::kernels::{Entry, Kernels};
use self::meters::Meters;
use super::clock;
use super::probe::{Outcome, Probe};
use predict::calibration::{Clock, Conditions, GemvCase, Held, Kernel, Plan, Reference, Sample, Step};
use roofline::units::{Bytes, BytesPerSecond, Flops, Hertz, Seconds};

/// Times kept of a step.
const MAX_TIMES: usize = 2_000;
/// Graphs timed of every step, whatever its budget.
const MIN_TIMES: usize = 3;
/// What one graph takes at least, or the resolution of events (half a microsecond) would show.
const ENTRY: Seconds = Seconds(400e-6);
/// What is queued at once while a load is held.
const QUEUE: Seconds = Seconds(30e-3);
/// Launches of a graph.
const MAX_NODES: usize = 4_096;
/// Times the second-level cache that lie between two uses of a buffer.
const CACHES_APART: u64 = 4;
/// The shorter of the two chains of instructions that a clock reading takes, and how much longer the other is.
const SPIN: Seconds = Seconds(100e-6);
const SPIN_RATIO: u32 = 4;
/// The clock counts as stable when this many readings in a row agree.
const STABLE_READINGS: u32 = 4;
/// Largest difference of those readings, as a ratio.
const STABLE_RATIO: f64 = 0.01;
/// Bytes, or weights, beyond those of any GPU: sums of a few of these do not overflow.
const LARGEST: u64 = 1 << 42;
/// Copies of a buffer that are rotated through at most; what needs more is too small to be read from memory.
const MOST_COPIES: u64 = 1 << 10;
/// Work before a clock counts as that under load: governors look every tens of milliseconds.
const RAMP: Duration = Duration::from_millis(300);
/// The same before every further step, which the CPU has prepared meanwhile.
const AGAIN: Seconds = Seconds(15e-3);
/// What every output holds before its kernel runs: as a float an implausible number, as an index out of range.
const POISON: u8 = 0xa5;
/// Of the memory that is free when the probe starts, this much is left alone: on a board the CPU lives in it.
const RESERVE: f64 = 0.25;

pub struct Cuda {
    kernels: Kernels,
    meters: Meters,
    rng: fastrand::Rng,
    /// Bytes that all buffers together may take.
    limit: u64,
    warm_up: Duration,
    /// Iterations of the shorter spin.
    spin: u32,
    /// The array that the reference reads.
    reference: Option<stream::Reference>,
    warm: bool,
    /// Where the launch before every graph writes.
    lead_out: Option<Buffer>,
    /// Why nothing can be measured any more.
    lost: Option<String>,
    /// Last, because what is allocated is given back to it.
    device: Device,
}

struct Job {
    /// What one run launches, once for every copy of its buffers.
    runs: Vec<Vec<Launch>>,
    /// Operations of a run.
    flops: Flops,
    /// Bytes of a run.
    bytes: Bytes,
    /// Weights of a run.
    weights: f64,
    /// Largest deviation from the reference; `None` where there is nothing to compare.
    error: Option<f64>,
    /// Kept for as long as launches use them.
    _buffers: Vec<Buffer>,
}

impl Cuda {
    /// Opens the GPU for `plan`.
    ///
    /// # Errors
    /// There is no driver, no device, or it does not answer; the reason, for people.
    pub fn new(plan: &Plan) -> Result<Self, String> {
        guarded(|| Self::open(plan)).map_err(GpuError::message)
    }

    fn open(plan: &Plan) -> Result<Self, GpuError> {
        let device = Device::open()?;
        let (free, total) = device.memory()?;
        // Of a board the driver calls free what no page cache has taken, and the kernel would give that back.
        let free = if device.facts().integrated {
            free.max(available_memory().unwrap_or(0).min(total))
        } else {
            free
        };
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bytes"
        )]
        let available = (free as f64 * (1.0 - RESERVE)) as u64;
        let meters = Meters::find(device.facts());
        let mut cuda = Self {
            device,
            kernels: Kernels::default(),
            meters,
            rng: fastrand::Rng::with_seed(plan.seed),
            limit: plan.memory_limit_bytes.min(available),
            warm_up: Duration::try_from_secs_f64(plan.warm_up_s).unwrap_or(Duration::ZERO),
            spin: 1_000,
            reference: None,
            lead_out: None,
            warm: false,
            lost: None,
        };
        cuda.reference = Some(cuda.reference()?);
        // A reading of the clock finds out how long the chain has to be.
        cuda.clock()?;
        let (function, entry) = cuda.kernel("spin")?;
        let out = cuda.device.allocate(32)?;
        cuda.device.lead_in(launch(function, entry, 1, vec![out.at(0), Arg::U32(cuda.spin)]));
        cuda.lead_out = Some(out);
        Ok(cuda)
    }

    /// How samples name the instruction set.
    fn isa(&self) -> String {
        format!("sm_{}", self.device.facts().capability)
    }

    fn l2_bytes(&self) -> u64 {
        self.device.facts().l2_bytes.max(1 << 16)
    }

    /// Blocks that fill the SMs that a step may use.
    fn fill(&self, function: Function, entry: &Entry, step: &Step) -> Result<u32, GpuError> {
        let each = self.device.resident(function, entry.threads, entry.shared)?;
        Ok(each.saturating_mul(step.threads))
    }

    fn kernel(&mut self, name: &str) -> Result<(Function, &'static Entry), GpuError> {
        self.kernels.get(&self.device, name)
    }

    /// Memory for a step, within what the plan and the machine leave.
    fn allocate(&self, sizes: &[u64]) -> Result<Vec<Buffer>, GpuError> {
        let total = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(*size));
        let held = self.reference.as_ref().map_or(0, |reference| reference.bytes() as u64);
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        if total.saturating_add(held) > self.limit {
            return Err(GpuError::Step(format!(
                "needs {} of buffers beside {} for the reference, and {} may be taken",
                Bytes(total as f64),
                Bytes(held as f64),
                Bytes(self.limit as f64)
            )));
        }
        sizes.iter().map(|size| self.device.allocate(usize::try_from(*size).unwrap_or(usize::MAX))).collect()
    }

    /// Copies of `bytes` that are rotated through so that none is found in the cache.
    fn copies(&self, bytes: u64) -> Result<usize, GpuError> {
        let apart = CACHES_APART * self.l2_bytes();
        // One that is larger is out of the cache before it is begun again.
        let copies = if bytes >= apart { 1 } else { apart.div_ceil(bytes.max(1)) + 1 };
        usize::try_from(copies).ok().filter(|_| copies <= MOST_COPIES).ok_or_else(|| {
            GpuError::Step(format!(
                "{bytes} bytes are too few to be read from memory: {copies} copies would be needed to keep them out of a \
                 cache of {} bytes, and at most {MOST_COPIES} are used",
                self.l2_bytes()
            ))
        })
    }

    /// On the SMs that there are: an instance of a card that is shared out has fewer than the card.
    fn within(&self, step: &Step) -> Step {
        Step { threads: step.threads.clamp(1, self.device.facts().sm_count), ..*step }
    }

    fn job(&mut self, step: &Step) -> Result<Job, GpuError> {
        match step.kernel {
            Kernel::Stream { pattern, bytes, .. } => self.stream(step, pattern, bytes),
            Kernel::Peak { precision } => self.peak(step, precision),
            Kernel::Gemv { n, k, columns, format, case } => self.gemv(step, (n, k, columns), format, case),
            Kernel::Attention { .. } => self.attention(step),
            Kernel::Wake | Kernel::Submit => self.empty(),
            Kernel::PingPong => Err(GpuError::Step("a GPU has no core-to-core latency".into())),
            Kernel::Gemm { .. } | Kernel::Elementwise { .. } | Kernel::Forward { .. } => {
                Err(GpuError::Step(format!("there is no GPU kernel for {}", step.kernel.describe())))
            }
        }
    }

    fn empty(&mut self) -> Result<Job, GpuError> {
        let (function, entry) = self.kernel("empty")?;
        Ok(Job {
            runs: vec![vec![launch(function, entry, 1, Vec::new())]],
            flops: Flops(0.0),
            bytes: Bytes(0.0),
            weights: 0.0,
            error: None,
            _buffers: Vec::new(),
        })
    }

    /// A graph of whole rotations, and how many runs it holds, so that it takes as long as an entry should.
    fn graph(&self, job: &Job) -> Result<(Graph, usize), GpuError> {
        let of = |rotations: usize| {
            let all = job.runs.iter().map(Vec::len).sum::<usize>() * rotations;
            let launches: Vec<Launch> = job.runs.iter().flatten().cloned().cycle().take(all).collect();
            self.device.graph(&launches)
        };
        let mut rotations = 1;
        let most = MAX_NODES / job.runs.iter().map(Vec::len).sum::<usize>().max(1);
        loop {
            let graph = of(rotations)?;
            let once = self.device.run_graph(&graph, 1)?.min(self.device.run_graph(&graph, 1)?);
            if once >= ENTRY || rotations >= most {
                return Ok((graph, rotations * job.runs.len()));
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small factor")]
            let factor = (1.2 * (ENTRY / once.max(Seconds(1e-7)))).ceil().clamp(2.0, 64.0) as usize;
            rotations = (rotations * factor).min(most.max(1));
        }
    }

    /// Cycles a second of an SM that works: the difference of a longer and a shorter chain of dependent
    /// instructions, so that what starts and ends them falls out.
    fn clock(&mut self) -> Result<Hertz, GpuError> {
        let (function, entry) = self.kernel("spin")?;
        let out = self.device.allocate(32)?;
        let spin = |iterations: u32| -> Result<(f64, Seconds), GpuError> {
            let chain = launch(function, entry, 1, vec![out.at(0), Arg::U32(iterations)]);
            let time = self.device.run_queued(&[chain])?;
            let cycles = out.read(0, 8)?;
            let cycles = u64::from_le_bytes(cycles.try_into().unwrap_or_default());
            #[expect(clippy::cast_precision_loss, reason = "cycles of less than a second")]
            Ok((cycles as f64, time))
        };
        for _ in 0..24 {
            let (cycles, time) = spin(self.spin)?;
            if time >= SPIN {
                let (more_cycles, more_time) = spin(self.spin.saturating_mul(SPIN_RATIO))?;
                let difference = more_time - time;
                return Ok(if difference.is_positive() {
                    Hertz((more_cycles - cycles) / difference.get())
                } else {
                    Hertz(0.0)
                });
            }
            self.spin = self.spin.saturating_mul(2);
        }
        Err(GpuError::Step("the chain of instructions that tells the clock takes no time".into()))
    }

    /// Works until the clock no longer moves, and for a while at least.
    fn warm_up(&mut self, stop: &dyn Fn() -> bool) -> Result<(), GpuError> {
        let begun = Instant::now();
        let (mut agreeing, mut last) = (0, Hertz(0.0));
        let settled = |agreeing: u32| agreeing >= STABLE_READINGS && begun.elapsed() >= RAMP;
        while !self.warm && !stop() && begun.elapsed() < self.warm_up && !settled(agreeing) {
            self.read_reference()?;
            let clock = self.clock()?;
            agreeing = if (clock / last - 1.0).abs() < STABLE_RATIO { agreeing + 1 } else { 0 };
            last = clock;
        }
        self.warm = true;
        Ok(())
    }

    fn conditions(&mut self) -> Result<Conditions, GpuError> {
        let read = self.read_reference()?;
        Ok(Conditions {
            clock: Clock { effective: self.clock()?, reported: self.meters.clock() },
            reference: Reference { read, core_to_core: None },
            steal_ratio: None,
            temperature: self.meters.temperature(),
        })
    }

    fn read_reference(&self) -> Result<BytesPerSecond, GpuError> {
        match &self.reference {
            Some(reference) => reference.read(&self.device),
            None => Ok(BytesPerSecond(0.0)),
        }
    }

    /// Brings the clock back to where it is under load. Returns how often the graph is queued at once to keep the device at
    /// work while it is waited for.
    fn load(&self, graph: &Graph, stop: &dyn Fn() -> bool) -> Result<u32, GpuError> {
        let once = self.device.run_graph(graph, 1)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let times = |length: Seconds| (length / once.max(Seconds(1e-6))).clamp(1.0, 200.0) as u32;
        if !stop() {
            self.device.run_graph(graph, times(AGAIN))?;
        }
        Ok(times(QUEUE))
    }

    fn sample(&mut self, step: &Step, stop: &dyn Fn() -> bool) -> Result<Option<Sample>, GpuError> {
        let job = self.job(step)?;
        self.warm_up(stop)?;
        let (graph, runs) = self.graph(&job)?;
        self.load(&graph, stop)?;
        let before = self.conditions()?;
        #[expect(clippy::cast_precision_loss, reason = "some thousands")]
        let divisor = runs as f64;
        let begun = Instant::now();
        let mut times = Vec::new();
        // Two times a device's word of how long it took: whichever clock runs out first.
        let mut spent = Seconds::ZERO;
        while (times.len() < MIN_TIMES
            || (spent.get() < step.budget_s && begun.elapsed().as_secs_f64() < step.budget_s))
            && times.len() < MAX_TIMES
            && !stop()
        {
            let time = if step.kernel == Kernel::Submit {
                let nodes: Vec<Launch> =
                    job.runs.iter().flatten().cloned().cycle().take(runs.min(256)).collect();
                self.device.run(&nodes)? * (divisor / nodes.len().max(1) as f64)
            } else {
                self.device.run_graph(&graph, 1)?
            };
            spent += time;
            times.push(time / divisor);
        }
        if times.len() < MIN_TIMES {
            return Ok(None);
        }
        let after = self.conditions()?;
        Ok(Some(Sample {
            kernel: step.kernel,
            threads: step.threads,
            isa: self.isa(),
            flops: job.flops,
            bytes: job.bytes,
            weights: job.weights,
            times,
            overhead: Seconds::ZERO,
            max_error_ratio: job.error,
            waiting_ratio: None,
            left_out: 0,
            corrected_ratio: 0.0,
            before,
            after,
        }))
    }

    fn held(&mut self, step: &Step, length: Duration, stop: &dyn Fn() -> bool) -> Result<Held, GpuError> {
        let job = self.job(step)?;
        self.warm_up(stop)?;
        let (graph, each) = self.graph(&job)?;
        let queued = self.load(&graph, stop)?;
        let (began, start) = (clock::boot_time(), Instant::now());
        let mut runs = 0.0;
        while start.elapsed() < length && !stop() {
            self.device.run_graph(&graph, queued)?;
            #[expect(clippy::cast_precision_loss, reason = "some thousands")]
            let each = each as f64;
            runs += each * f64::from(queued);
        }
        Ok(Held {
            kernel: Some(step.kernel),
            began,
            ended: clock::boot_time(),
            flops: job.flops * runs,
            bytes: job.bytes * runs,
            weights: job.weights * runs,
            temperature: self.meters.temperature(),
        })
    }
}

impl Probe for Cuda {
    fn measure(&mut self, step: &Step, stop: &dyn Fn() -> bool) -> Outcome {
        let step = self.within(step);
        match guarded(|| self.sample(&step, stop)) {
            Ok(Some(sample)) => Outcome::Measured(Box::new(sample)),
            Ok(None) => Outcome::Stopped,
            Err(GpuError::Step(reason)) => Outcome::Skipped(reason),
            Err(GpuError::Fatal(reason)) => {
                self.lost = Some(reason.clone());
                Outcome::Lost(reason)
            }
        }
    }

    fn hold(&mut self, step: &Step, length: Duration, stop: &dyn Fn() -> bool) -> Result<Held, String> {
        let step = self.within(step);
        guarded(|| self.held(&step, length, stop)).map_err(|trouble| {
            if let GpuError::Fatal(reason) = &trouble {
                self.lost = Some(reason.clone());
            }
            trouble.message()
        })
    }

    fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }
}

/// What the kernel says that programs may have, in bytes.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// An entry on so many blocks.
fn launch(function: Function, entry: &Entry, blocks: u32, args: Vec<Arg>) -> Launch {
    Launch { function, blocks, threads: entry.threads, shared: entry.shared, args }
}

/// Whether a GEMV's weights are to come from memory.
const fn from_memory(case: GemvCase) -> bool {
    matches!(case, GemvCase::Dram)
}

/// The deviation of a result that is no number, or not the one of whole numbers: finite, because JSON has no infinity.
const WRONG: f64 = f64::MAX;

/// Largest deviation of `found` from `wanted`, relative to the largest that is wanted.
fn deviation(found: impl Iterator<Item = f64>, wanted: impl Iterator<Item = f64>) -> f64 {
    let (mut worst, mut largest) = (0.0_f64, f64::MIN_POSITIVE);
    for (found, wanted) in found.zip(wanted) {
        let error = (found - wanted).abs();
        worst = worst.max(if error.is_finite() { error } else { WRONG });
        largest = largest.max(wanted.abs());
    }
    (worst / largest).min(WRONG)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    words(bytes).map(|word| f64::from(f32::from_bits(word)))
}
