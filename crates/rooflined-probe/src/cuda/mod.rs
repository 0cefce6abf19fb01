//! The probe of an NVIDIA GPU: the kernels below `kernels/`, timed by events around graphs of launches.
//!
//! A graph is what is timed, not single launches: its nodes start each other on the device, so that the time between the
//! events is that of the kernels and of the gaps between them, and not of a CPU that submits. [`Kernel::Wake`] is such a
//! gap, found with empty kernels, and [`Kernel::Submit`] what a launch from a stream takes: of all steps the only one that is
//! not queued behind other work, because what it measures is the submission that everywhere else is hidden.
//!
//! Buffers that are to be read from memory are rotated through until four times the second-level cache lies between two
//! uses. Every output is filled with a pattern before its kernel runs and is compared afterwards with a reference
//! that the CPU computes in double precision.

mod calls;
mod driver;
mod group;
mod kernels;
mod load;
mod matrix;
mod meters;
mod peak;
mod stored;
mod stream;
mod tenants;
mod timing;
mod verify;

pub use driver::{GpuError, HUNG, OURS};
pub use group::{Identity, group_of};
pub use kernels::{Group, NOT_NATIVE, group};
pub use verify::{TOLERANCE, entries};

use std::path::Path;
use std::time::{Duration, Instant};

use self::driver::{Arg, Buffer, Device, Function, Graph, Launch, guarded};
use self::kernels::{Entry, Kernels};
use self::load::{Poll, close};
use self::meters::Meters;
use self::timing::{Queued, Timing, Work};
use super::clock;
use super::probe::{Outcome, Probe};
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, Hertz, Seconds};
use rooflined_predict::calibration::{GemvCase, Held, Kernel, Plan, Sample, Step, Stream, centre};

/// Times kept of a step.
const MAX_TIMES: usize = 2_000;
/// Graphs timed of every step, whatever its budget.
const MIN_TIMES: usize = 3;
/// What one graph takes at least, or the resolution of events (half a microsecond) would show.
const ENTRY: Seconds = Seconds(400e-6);
/// What is queued at once while a load is held, and while a step is timed.
const QUEUE: Seconds = Seconds(30e-3);
const ROW: Seconds = Seconds(5e-3);
const MOST_OF_ROW: f64 = 64.0;
/// Launches of a graph.
const MAX_NODES: usize = 4_096;
/// Times the second-level cache that lie between two uses of a buffer.
const CACHES_APART: u64 = 4;
/// Bytes, or weights, beyond those of any GPU: sums of a few of these do not overflow.
const LARGEST: u64 = 1 << 42;
/// Copies of a buffer that are rotated through at most; what needs more is too small to be read from memory.
const MOST_COPIES: u64 = 1 << 10;
/// How far the clock of a row may lie from the one beside the sample.
const SAME_CLOCK: f64 = 0.03;
/// Times that a step is taken again because the clock did not stay, before it is kept as it is.
const RETAKES: u32 = 3;
/// Rows of a step that were not queued in time before the step is given up.
const MOST_IDLE: u32 = 32;
/// Launches whose fastest tells how long a graph takes; one before them is not timed.
const WARM_LAUNCHES: usize = 3;
/// What every output holds before its kernel runs: as a float an implausible number, as an index out of range.
const POISON: u8 = 0xa5;
/// Of the memory that is free when the probe starts, this much is left alone: on a board the CPU lives in it.
const RESERVE: f64 = 0.25;

/// Where control groups are, and which is this process'.
const GROUPS: &str = "/sys/fs/cgroup";
const OWN_GROUP: &str = "/proc/self/cgroup";

pub struct Cuda {
    kernels: Kernels,
    meters: Meters,
    rng: fastrand::Rng,
    /// Bytes that all buffers together may take.
    limit: u64,
    warm_up: Seconds,
    /// The plan's largest read, which is meant to come from memory.
    memory_read: u64,
    timing: Timing,
    /// Cycles of one iteration of the chain that tells the clock, and where chains write.
    cycles: f64,
    chains: Buffer,
    /// The array that the reference reads.
    reference: Option<stream::Reference>,
    /// Clocks that the device has kept under load, and whether that was arithmetic.
    kept: Vec<(bool, Hertz)>,
    /// The best that the reference has read.
    best_read: BytesPerSecond,
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

/// What the graphs of a row took, and the chain behind them.
struct TimedRow {
    times: Vec<Seconds>,
    chain: Seconds,
}

/// Part of their time that pieces of equal work stood still: what they took beyond the centre.
fn times_apart(times: &[Seconds]) -> f64 {
    let all = times.iter().fold(Seconds::ZERO, |sum, time| sum + *time);
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let alone = centre(times) * times.len() as f64;
    if all.is_positive() { 1.0 - alone / all } else { 0.0 }
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
        // Its buffers may be charged to this process' control group, whose limit ends the process.
        let free = if device.facts().integrated {
            let group =
                group_memory(Path::new(GROUPS), &std::fs::read_to_string(OWN_GROUP).unwrap_or_default());
            free.max(available_memory().unwrap_or(0).min(total)).min(group.unwrap_or(u64::MAX))
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
        let mut kernels = Kernels::default();
        let (spin, entry) = kernels.get(&device, "spin")?;
        let reads =
            plan.steps.iter().map(|step| step.kernel).chain(plan.holds.iter().filter_map(|hold| hold.kernel));
        let memory_read = reads.filter_map(|kernel| match kernel {
            Kernel::Stream { pattern: Stream::Read, bytes, .. } => Some(bytes),
            _ => None,
        });
        let mut cuda = Self {
            timing: Timing::new(&device, spin, entry.threads)?,
            chains: device.allocate(64)?,
            cycles: 0.0,
            kernels,
            meters,
            rng: fastrand::Rng::with_seed(plan.seed),
            limit: plan.memory_limit_bytes.min(available),
            memory_read: memory_read.max().unwrap_or(0),
            warm_up: Seconds(plan.warm_up_s.max(0.0)),
            reference: None,
            kept: Vec::new(),
            best_read: BytesPerSecond(0.0),
            lost: None,
            device,
        };
        // Nothing will be timed, so nothing that times has to run.
        if plan.steps.is_empty() && plan.holds.is_empty() {
            return Ok(cuda);
        }
        cuda.timing.settle(&cuda.device)?;
        cuda.cycles = cuda.cycles_of_chain()?;
        cuda.reference = Some(cuda.reference()?);
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
                "needs {} of buffers in addition to {} for the reference, and {} may be taken",
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
            Kernel::Wake | Kernel::Submit => self.empty(),
            Kernel::PingPong => Err(GpuError::Step("a GPU has no core-to-core latency".into())),
            Kernel::Gemm { .. } => {
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

    /// What a launch takes that is not the first of its kind.
    fn warm_time(&self, launch: &Launch) -> Result<Seconds, GpuError> {
        self.warm(Work::Launch(launch))
    }

    /// What a graph takes; its first launch, for which the driver prepares it, is not timed.
    fn graph_time(&self, graph: &Graph) -> Result<Seconds, GpuError> {
        self.warm(Work::Graph(graph))
    }

    fn warm(&self, work: Work<'_>) -> Result<Seconds, GpuError> {
        self.timing.time(&self.device, &[work])?;
        let times = self.timing.time(&self.device, &[work; WARM_LAUNCHES])?;
        Ok(times.into_iter().reduce(Seconds::min).unwrap_or(Seconds::ZERO))
    }

    /// A graph of whole rotations that takes as long as an entry should, how many runs it holds, and what it takes.
    fn graph(&self, job: &Job) -> Result<(Graph, usize, Seconds), GpuError> {
        let of = |rotations: usize| {
            let all = job.runs.iter().map(Vec::len).sum::<usize>() * rotations;
            let launches: Vec<Launch> = job.runs.iter().flatten().cloned().cycle().take(all).collect();
            self.device.graph(&launches)
        };
        let mut rotations = 1;
        let most = (MAX_NODES / job.runs.iter().map(Vec::len).sum::<usize>().max(1)).max(1);
        loop {
            let graph = of(rotations)?;
            let once = self.graph_time(&graph)?;
            if once >= ENTRY || rotations >= most {
                return Ok((graph, rotations * job.runs.len(), once));
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small factor")]
            let factor = (1.2 * (ENTRY / once.max(Seconds(1e-7)))).ceil().clamp(2.0, 64.0) as usize;
            rotations = (rotations * factor).min(most);
        }
    }

    /// A graph that takes long enough at the clock that the device has under it, and that clock.
    fn settled(
        &mut self,
        step: &Step,
        job: &Job,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Graph, usize, Seconds, Poll), GpuError> {
        let (mut graph, mut runs, mut once) = self.graph(job)?;
        let mut poll = self.settle(step, &graph, once, stop)?;
        // A graph that was found at a lower clock is shorter by now.
        if self.graph_time(&graph)? < ENTRY * 0.95 {
            (graph, runs, once) = self.graph(job)?;
            poll = self.settle(step, &graph, once, stop)?;
        }
        Ok((graph, runs, once, poll))
    }

    fn sample(&mut self, step: &Step, stop: &dyn Fn() -> bool) -> Result<Option<Sample>, GpuError> {
        let job = self.job(step)?;
        self.timing.reset(false);
        let (graph, runs, once, mut before) = self.settled(step, &job, stop)?;
        let mut taken = 0;
        loop {
            taken += 1;
            let (mut moved, mut all_moved) = (0.0, false);
            let times: Vec<Seconds> = if step.kernel == Kernel::Submit {
                self.submissions(&job, step, stop)?
            } else {
                let rows = self.rows(&graph, once, step, stop)?;
                // Rows at another clock than the one beside them say nothing of it.
                let (same, other): (Vec<_>, Vec<_>) =
                    rows.into_iter().partition(|row| close(row.chain.get(), before.chain.get(), SAME_CLOCK));
                let few = same.len() <= other.len();
                if few && taken <= RETAKES && !stop() {
                    before = self.settle(step, &graph, once, stop)?;
                    continue;
                }
                let kept = if few { other } else { same };
                if few {
                    let chain = centre(&kept.iter().map(|row| row.chain).collect::<Vec<_>>());
                    moved = chain / before.chain;
                    all_moved = kept.iter().all(|row| close(row.chain.get(), chain.get(), SAME_CLOCK));
                }
                kept.into_iter().flat_map(|row| row.times).collect()
            };
            if times.len() < MIN_TIMES {
                if stop() {
                    return Ok(None);
                }
                if taken > RETAKES {
                    return Err(GpuError::Step(format!(
                        "the GPU's clock does not stay for as long as {MIN_TIMES} graphs of this step take"
                    )));
                }
                before = self.settle(step, &graph, once, stop)?;
                continue;
            }
            let mut after = self.poll(&graph, once)?;
            let other_work = self.other_work(step, [&before, &after], &times);
            // The clock of the rows, where it was not the one beside them. If they agree among themselves it was there all the
            // time, as at a power limit, which a poll's chains do not reach; else the sample shows that it moved.
            if moved > 0.0 {
                after.clock = before.clock / moved;
                before.clock = if all_moved { after.clock } else { before.clock };
            }
            if !close(after.clock.get(), before.clock.get(), SAME_CLOCK) && taken <= RETAKES && !stop() {
                before = self.settle(step, &graph, once, stop)?;
                continue;
            }
            #[expect(clippy::cast_precision_loss, reason = "some thousands")]
            let divisor = if step.kernel == Kernel::Submit { 1.0 } else { runs as f64 };
            return Ok(Some(Sample {
                kernel: step.kernel,
                threads: step.threads,
                isa: self.isa(),
                flops: job.flops,
                bytes: job.bytes,
                weights: job.weights,
                other_work,
                times: times.into_iter().map(|time| time / divisor).collect(),
                overhead: Seconds::ZERO,
                max_error_ratio: job.error,
                waiting_ratio: None,
                left_out: 0,
                corrected_ratio: 0.0,
                before: before.conditions(),
                after: after.conditions(),
            }));
        }
    }

    /// Rows of the graph, one queued while the one before it runs, each with a chain that tells its clock.
    fn rows(
        &self,
        graph: &Graph,
        once: Seconds,
        step: &Step,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<TimedRow>, GpuError> {
        let chain = self.timing.chain(self.timing.shortest(), &self.chains, 0);
        // Three rows of a short step rather than one.
        let length = Seconds(step.budget_s / 3.0).min(ROW);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let count = (length / once.max(Seconds(1e-6))).clamp(1.0, MOST_OF_ROW) as usize;
        let mut works = vec![Work::Graph(graph); count];
        works.push(Work::Launch(&chain));
        let begun = Instant::now();
        let (mut rows, mut kept, mut idle) = (Vec::new(), 0, 0);
        // Two times a device's word of how long it took: whichever clock runs out first.
        let mut spent = Seconds::ZERO;
        let mut next = self.timing.queue(&self.device, &works)?;
        while (kept < MIN_TIMES
            || (spent.get() < step.budget_s && begun.elapsed().as_secs_f64() < step.budget_s))
            && kept < MAX_TIMES
            && !stop()
        {
            let current = std::mem::replace(&mut next, self.timing.queue(&self.device, &works)?);
            let mut row = self.timing.finish(&current)?;
            if !row.queued {
                idle += 1;
                if idle > MOST_IDLE {
                    return Err(Timing::not_kept_at_work());
                }
                continue;
            }
            let chain = row.times.pop().unwrap_or(Seconds::ZERO);
            spent += row.times.iter().fold(Seconds::ZERO, |sum, time| sum + *time);
            kept += row.times.len();
            rows.push(TimedRow { times: row.times, chain });
        }
        self.timing.finish(&next)?;
        Ok(rows)
    }

    /// What a launch from a stream takes, including what it costs to submit where that is longer.
    fn submissions(&self, job: &Job, step: &Step, stop: &dyn Fn() -> bool) -> Result<Vec<Seconds>, GpuError> {
        const LAUNCHES: usize = 256;
        let launches: Vec<Launch> = job.runs.iter().flatten().cloned().cycle().take(LAUNCHES).collect();
        self.device.run(&launches)?;
        let begun = Instant::now();
        let (mut times, mut spent) = (Vec::new(), Seconds::ZERO);
        while (times.len() < MIN_TIMES
            || (spent.get() < step.budget_s && begun.elapsed().as_secs_f64() < step.budget_s))
            && times.len() < MAX_TIMES
            && !stop()
        {
            let time = self.device.run(&launches)?;
            spent += time;
            #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
            times.push(time / launches.len().max(1) as f64);
        }
        Ok(times)
    }

    fn held(&mut self, step: &Step, length: Duration, stop: &dyn Fn() -> bool) -> Result<Held, GpuError> {
        let job = self.job(step)?;
        self.timing.reset(true);
        let (graph, each, once, _) = self.settled(step, &job, stop)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let queued = (QUEUE / once.max(Seconds(1e-6))).clamp(1.0, 200.0) as usize;
        let works = vec![Work::Graph(&graph); queued];
        let (began, start) = (clock::boot_time(), Instant::now());
        let mut runs = 0.0;
        let mut next = self.timing.queue(&self.device, &works)?;
        let mut last = false;
        while !last {
            let current = next;
            last = start.elapsed() >= length || stop();
            next = if last { Queued::default() } else { self.timing.queue(&self.device, &works)? };
            // The device may have been idle for moments: the load is what was done in all that time.
            self.timing.finish(&current)?;
            #[expect(clippy::cast_precision_loss, reason = "some thousands")]
            let done = (each * queued) as f64;
            runs += done;
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

    fn in_doubt(&mut self, sample: &Sample) -> bool {
        let read = sample.before.reference.read.min(sample.after.reference.read);
        self.read_less(&sample.kernel, read, sample.before.clock.effective)
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

/// What the limits of a process' control group, and of those around it, leave; `None` without a limit. `own` is what
/// [`OWN_GROUP`] holds: `0::/system.slice/rooflined.service`.
fn group_memory(groups: &Path, own: &str) -> Option<u64> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let number = |group: &Path, name: &str| {
        std::fs::read_to_string(groups.join(group).join(name)).ok()?.trim().parse::<u64>().ok()
    };
    Path::new(own.trim_start_matches('/'))
        .ancestors()
        .filter_map(|group| {
            Some(number(group, "memory.max")?.saturating_sub(number(group, "memory.current").unwrap_or(0)))
        })
        .min()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_leaves_what_the_tightest_around_it_leaves() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("system.slice/rooflined.service");
        std::fs::create_dir_all(&inner).unwrap();
        let own = "1:name=systemd:/old\n0::/system.slice/rooflined.service\n";
        assert_eq!(group_memory(dir.path(), own), None);
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        assert_eq!(group_memory(dir.path(), own), None);
        std::fs::write(inner.join("memory.max"), "5000\n").unwrap();
        assert_eq!(group_memory(dir.path(), own), Some(5000));
        std::fs::write(inner.join("memory.current"), "100\n").unwrap();
        assert_eq!(group_memory(dir.path(), own), Some(4900));
        std::fs::write(dir.path().join("system.slice/memory.max"), "3000\n").unwrap();
        std::fs::write(dir.path().join("system.slice/memory.current"), "4000\n").unwrap();
        assert_eq!(group_memory(dir.path(), own), Some(0));
        for none in ["", "0::", "12:memory:/a\n", "0::/elsewhere\n"] {
            assert_eq!(group_memory(dir.path(), none), None, "{none}");
        }
    }
}
