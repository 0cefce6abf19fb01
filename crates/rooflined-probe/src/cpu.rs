//! The probe of the CPU: buffers, warm-up, operating points and timed runs around each kernel.

mod deviation;
mod job;
mod shared;

use std::io;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use self::job::{Demand, Job};
use super::arena::{Region, replicate};
use super::clock::{self, Accounts, Caches, Instruments, ReferencePart};
use super::pool::{Pool, allowed_cpus};
use super::probe::{Outcome, Probe};
use rooflined_core::units::{Bytes, Seconds};
use rooflined_predict::calibration::{Held, Hold, Plan, Sample, Step};

/// Times kept of a step.
const MAX_TIMES: usize = 2_000;
/// A timed entry lasts at least this long, or the timer's resolution would show; shorter runs are repeated in it.
const MIN_ENTRY_S: f64 = 20e-6;
/// Entries timed of every step, whatever its budget.
const MIN_TIMES: usize = 3;
/// A step beside other work goes on until this many entries were quiet, for at most [`PATIENCE`] times its budget.
const QUIET_TIMES: usize = 12;
const PATIENCE: f64 = 4.0;
/// A good part of a time slice.
const LONG_ENTRY_S: f64 = 1e-3;
/// The clock counts as stable when this many readings in a row agree.
const STABLE_READINGS: u32 = 3;
/// Largest difference of those readings, as a ratio.
const STABLE_RATIO: f64 = 0.01;
/// Length of the pattern that fills the buffers; prime, so that no row or block repeats its neighbour.
const PATTERN: usize = 65_537;

/// Workers, buffers and instruments for one plan.
pub struct Cpu {
    pool: Pool,
    buffers: Buffers,
    reference: Vec<ReferencePart>,
    instruments: Instruments,
    caches: Caches,
    warm_up: Duration,
    warm: bool,
    memory_limit: u64,
}

struct Buffers {
    /// Per worker: matrices and arrays, placed on its memory node by its first touch. Starts with its part of the
    /// reference buffer.
    parts: Vec<Region>,
    /// Where the matrices begin in each part.
    offset: usize,
    /// How far each part holds the pattern from `offset` on.
    filled: Vec<usize>,
    /// How far each part holds floats, at least.
    floats: Vec<usize>,
    pattern: Vec<u8>,
    /// Per worker: quantised activations.
    scratch: Vec<Region>,
    /// Vectors that all workers use.
    shared: Region,
    rng: fastrand::Rng,
}

impl Cpu {
    /// Starts the workers and reserves the buffers for `plan`. Steps whose buffers do not fit are skipped later.
    ///
    /// # Errors
    /// If none of the plan's CPUs may be used, or threads or memory cannot be had.
    pub fn new(plan: &Plan) -> io::Result<Self> {
        Self::beside(plan, Caches::discover)
    }

    /// The same beside caches of these sizes.
    fn beside(plan: &Plan, caches: impl Fn(&[u32]) -> Caches) -> io::Result<Self> {
        let cpus = allowed_cpus(&plan.cpus)?;
        let held = plan.holds.iter().filter_map(|hold: &Hold| {
            Some(Step { kernel: hold.kernel?, threads: hold.threads, budget_s: hold.hold_s })
        });
        let steps: Vec<Step> = plan.steps.iter().copied().chain(held).collect();
        let most = steps.iter().map(|step| step.threads as usize).max().unwrap_or(1);
        let workers = most.clamp(1, cpus.len().max(1));
        let pool = Pool::new(cpus.get(..workers).unwrap_or_default())?;
        let limit = usize::try_from(plan.memory_limit_bytes).unwrap_or(usize::MAX);
        let caches = caches(pool.cpus()).within(limit / 2);
        let reference = clock::reference_len((4 * caches.last_level).min(limit / 6) / workers);

        let mut parts = vec![reference; workers];
        let mut scratch = vec![0; workers];
        let mut shared = 0;
        for step in &steps {
            let Ok(demand) = Demand::of(step, caches) else { continue };
            if demand.threads > workers {
                continue;
            }
            let widen = |sizes: &[usize], size: usize| {
                let mut sizes = sizes.to_vec();
                sizes[..demand.threads].iter_mut().for_each(|old| *old = size.max(*old));
                sizes
            };
            let wider = widen(&parts, reference.saturating_add(demand.part));
            let deeper = widen(&scratch, demand.scratch);
            let longer = demand.shared.max(shared);
            let total = wider
                .iter()
                .chain(&deeper)
                .chain([&longer])
                .fold(0_usize, |sum, size| sum.saturating_add(*size));
            if total <= limit {
                (parts, scratch, shared) = (wider, deeper, longer);
            }
        }
        let map = |sizes: Vec<usize>| sizes.into_iter().map(Region::new).collect::<io::Result<Vec<_>>>();
        let mut rng = fastrand::Rng::with_seed(plan.seed);
        let buffers = Buffers {
            parts: map(parts)?,
            offset: reference,
            filled: vec![0; workers],
            floats: vec![0; workers],
            pattern: pattern(&mut rng),
            scratch: map(scratch)?,
            shared: Region::new(shared)?,
            rng,
        };
        let mut cpu = Self {
            reference: Vec::new(),
            instruments: Instruments::discover(pool.cpus()),
            pool,
            buffers,
            caches,
            warm_up: Duration::try_from_secs_f64(plan.warm_up_s).unwrap_or(Duration::ZERO),
            warm: false,
            memory_limit: plan.memory_limit_bytes,
        };
        cpu.fill_reference(reference);
        // The time that pages take to come is not a step's.
        for threads in (1..=workers).rev() {
            // Steps of few workers have larger parts: the first worker's is the largest.
            let lens = cpu.buffers.parts[..threads].iter().map(|part| part.len() - reference);
            let len = lens.min().unwrap_or_default();
            cpu.buffers.fill(&cpu.pool, threads, len);
        }
        Ok(cpu)
    }

    fn fill_reference(&mut self, len: usize) {
        let Buffers { parts, pattern, .. } = &self.buffers;
        self.pool.run(parts.len(), &|worker| {
            // SAFETY: each part is at least `len` long and belongs to one worker.
            unsafe { replicate(pattern, parts[worker].start(), len) };
        });
        self.reference = parts
            .iter()
            .map(|part| ReferencePart { start: part.start(), len, cursor: AtomicU64::new(0) })
            .collect();
    }

    fn refuse(&self, demand: &Demand) -> Option<String> {
        let workers = self.pool.len();
        if demand.threads > workers {
            return Some(format!("wants {} threads, and {workers} CPUs may be used", demand.threads));
        }
        let buffers = &self.buffers;
        let fits =
            buffers.parts[..demand.threads].iter().all(|part| part.len() >= buffers.offset + demand.part)
                && buffers.scratch[..demand.threads].iter().all(|scratch| scratch.len() >= demand.scratch)
                && buffers.shared.len() >= demand.shared;
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        (!fits).then(|| {
            format!(
                "needs {} of buffers in addition to {} for the reference, and the plan allows {} in all",
                Bytes(demand.threads as f64 * (demand.part + demand.scratch) as f64 + demand.shared as f64),
                Bytes((buffers.offset * workers) as f64),
                Bytes(self.memory_limit as f64)
            )
        })
    }
}

/// Bytes that are decent weights in every format, wherever a block starts, so that the buffers are filled once.
///
/// Every byte is 0x38..=0x3b with or without the sign bit. As the upper half of an fp16 value (or block scale) that is a
/// magnitude of 0.5 to 1, as the top of a bf16 or fp32 value one of 3e-5 to 6e-3: nothing denormal, infinite or NaN.
fn pattern(rng: &mut fastrand::Rng) -> Vec<u8> {
    (0..PATTERN).map(|_| 0x38 | rng.u8(0..4) | if rng.bool() { 0x80 } else { 0 }).collect()
}

impl Buffers {
    /// Makes the parts of the first `threads` workers hold the pattern, `len` bytes each.
    fn fill(&mut self, pool: &Pool, threads: usize, len: usize) {
        if self.filled[..threads].iter().all(|filled| *filled >= len) {
            return;
        }
        let Self { parts, offset, filled, pattern, .. } = self;
        pool.run(threads, &|worker| {
            // Whole patterns, so that it goes on where it ended.
            let start = filled[worker] / PATTERN * PATTERN;
            // SAFETY: `Cpu::refuse` has checked the length; the part belongs to this worker.
            unsafe {
                replicate(pattern, parts[worker].start().add(*offset + start), len.saturating_sub(start));
            };
        });
        for (filled, floats) in filled.iter_mut().zip(&mut self.floats).take(threads) {
            *filled = len.max(*filled);
            *floats = len.max(*floats);
        }
    }

    /// Makes them hold decent floats, which may be what is left of an earlier kernel.
    fn fill_floats(&mut self, pool: &Pool, threads: usize, len: usize) {
        if self.floats[..threads].iter().any(|floats| *floats < len) {
            self.fill(pool, threads, len);
        }
    }

    /// Notes that a kernel writes to the parts of the first `threads` workers.
    fn spoil(&mut self, threads: usize) {
        self.filled[..threads].fill(0);
    }
}

impl Probe for Cpu {
    fn measure(&mut self, step: &Step, stop: &dyn Fn() -> bool) -> Outcome {
        let demand = match Demand::of(step, self.caches) {
            Ok(demand) => demand,
            Err(reason) => return Outcome::Skipped(reason),
        };
        if let Some(reason) = self.refuse(&demand) {
            return Outcome::Skipped(reason);
        }
        let mut job = match Job::new(step, &demand, &self.pool, &mut self.buffers) {
            Ok(job) => job,
            Err(reason) => return Outcome::Skipped(reason),
        };
        let max_error_ratio = job.check();
        warm_up(&mut job, &self.pool, demand.threads, self.warm_up, self.warm, stop);
        self.warm = true;
        let read =
            |instruments: &mut Instruments| instruments.read(&self.pool, demand.threads, &self.reference);
        let before = read(&mut self.instruments);
        let timed = time(&mut job, &Accounts::open(&self.pool, demand.threads), step.budget_s, stop);
        if timed.times.len() < MIN_TIMES {
            return Outcome::Stopped;
        }
        let after = read(&mut self.instruments);
        Outcome::Measured(Box::new(Sample {
            kernel: step.kernel,
            threads: step.threads,
            isa: job.isa.key().into(),
            flops: job.flops,
            bytes: job.bytes,
            weights: job.weights,
            times: timed.times,
            overhead: timed.overhead,
            max_error_ratio: max_error_ratio.or(job.error()),
            waiting_ratio: Some(timed.waiting_ratio),
            left_out: timed.left_out,
            corrected_ratio: timed.corrected_ratio,
            other_work: None,
            before,
            after,
        }))
    }

    fn hold(&mut self, step: &Step, length: Duration, stop: &dyn Fn() -> bool) -> Result<Held, String> {
        /// Seconds of work between two readings of the clock.
        const ENTRY_S: f64 = 5e-3;
        let demand = Demand::of(step, self.caches)?;
        if let Some(reason) = self.refuse(&demand) {
            return Err(reason);
        }
        let mut job = Job::new(step, &demand, &self.pool, &mut self.buffers)?;
        warm_up(&mut job, &self.pool, demand.threads, self.warm_up, self.warm, stop);
        self.warm = true;
        let once = job.run(1).max(1e-9);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let repeats = (ENTRY_S / once).clamp(1.0, 1e6) as u64;
        let (began, start) = (clock::boot_time(), Instant::now());
        let mut runs = 0_u64;
        while start.elapsed() < length && !stop() {
            job.run(repeats);
            runs += repeats;
        }
        let ended = clock::boot_time();
        #[expect(clippy::cast_precision_loss, reason = "runs of some seconds")]
        let runs = runs as f64;
        let (flops, bytes, weights) = (job.flops * runs, job.bytes * runs, job.weights * runs);
        drop(job);
        let temperature = self.instruments.temperature();
        Ok(Held { kernel: Some(step.kernel), began, ended, flops, bytes, weights, temperature })
    }
}

/// Runs the job until the clock of the slowest worker no longer moves.
fn warm_up(
    job: &mut Job<'_>,
    pool: &Pool,
    threads: usize,
    limit: Duration,
    warm: bool,
    stop: &dyn Fn() -> bool,
) {
    let begin = Instant::now();
    let mut agreeing = 0;
    let mut last = 0.0;
    // The first run finds cold caches and untouched pages.
    let first = job.run(1);
    // Frequency governors need milliseconds to notice load; later steps follow without a pause.
    let at_least = if warm { Duration::ZERO } else { limit.min(Duration::from_millis(20)) };
    while !stop() {
        let clock = clock::slowest_clock(pool, threads).get();
        agreeing = if (clock / last - 1.0).abs() < STABLE_RATIO { agreeing + 1 } else { 0 };
        last = clock;
        let spent = begin.elapsed();
        if (agreeing >= STABLE_READINGS && spent >= at_least) || spent >= limit {
            break;
        }
        // A long run has warmed up by itself.
        if first < 2e-3 {
            job.run(1);
        }
    }
}

struct Timed {
    times: Vec<Seconds>,
    overhead: Seconds,
    waiting_ratio: f64,
    left_out: u32,
    corrected_ratio: f64,
}

/// An entry: how long it took, for how much of that a worker was without its CPU, and the CPU time of the busiest worker
/// inside regions, where that was counted.
#[derive(Clone, Copy)]
struct Entry {
    wall: f64,
    stolen: f64,
    busy: f64,
}

impl Entry {
    fn is_quiet(&self) -> bool {
        clock::is_quiet(self.wall, self.stolen)
    }

    fn lost_ratio(&self) -> f64 {
        1.0 - self.busy / self.wall
    }
}

/// The third of the entries that was disturbed least. Their time is what the busiest worker needed: with one region to an
/// entry nothing else keeps the others waiting.
fn least_disturbed(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.retain(|entry| entry.busy > 0.0);
    entries.sort_by(|a, b| a.lost_ratio().total_cmp(&b.lost_ratio()));
    entries.truncate((entries.len() / 3).max(MIN_TIMES));
    entries
}

fn time(job: &mut Job<'_>, accounts: &Accounts<'_>, budget_s: f64, stop: &dyn Fn() -> bool) -> Timed {
    let mut empty: Vec<f64> = (0..15).map(|_| job.run(0)).collect();
    empty.sort_by(f64::total_cmp);
    // Not the median: a neighbour on one of the cores can spoil most of them, and what is subtracted must not be more
    // than what was spent.
    let overhead = empty[empty.len() / 4];

    #[expect(clippy::cast_precision_loss, reason = "a small constant")]
    let entry = MIN_ENTRY_S.max(budget_s / MAX_TIMES as f64);
    let mut repeats = 1_u64;
    // The quicker of two: an interruption would make the entries too short.
    while repeats < 1 << 32 && job.run(repeats).min(job.run(repeats)) - overhead < entry && !stop() {
        repeats *= 2;
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 2^32")]
    let divisor = repeats as f64;
    let pool = accounts.pool();
    // An entry longer than this is rarely undisturbed beside other work.
    let long = job.run(repeats) > LONG_ENTRY_S;
    pool.count_time(long);
    let mut entry = || {
        let wall = job.run(repeats);
        Entry { wall, stolen: accounts.stolen(), busy: pool.most_time() }
    };
    let begin = Instant::now();
    let mut entries: Vec<Entry> = Vec::with_capacity(MAX_TIMES);
    let mut quiet = 0;
    let _ = (accounts.stolen(), pool.most_time());
    while entries.len() < MAX_TIMES && !stop() {
        let elapsed = begin.elapsed().as_secs_f64();
        let quiet_enough = quiet >= QUIET_TIMES || (quiet >= MIN_TIMES && 2 * quiet >= entries.len());
        let enough = elapsed >= budget_s && quiet_enough;
        if entries.len() >= MIN_TIMES && (enough || elapsed >= PATIENCE * budget_s) {
            break;
        }
        let next = entry();
        quiet += usize::from(next.is_quiet());
        entries.push(next);
    }
    let all = entries.len();
    let stolen: f64 = entries.iter().map(|entry| entry.stolen).sum();
    let waiting_ratio = (stolen / begin.elapsed().as_secs_f64().max(1e-9)).min(1.0);
    let corrected = quiet < MIN_TIMES;
    let kept = if corrected {
        if !long {
            pool.count_time(true);
            entries = (0..3 * MIN_TIMES).take_while(|_| !stop()).map(|_| entry()).collect();
        }
        least_disturbed(entries)
    } else {
        entries.into_iter().filter(Entry::is_quiet).collect()
    };
    pool.count_time(false);
    let wall: f64 = kept.iter().map(|entry| entry.wall).sum();
    let busy: f64 = kept.iter().map(|entry| entry.busy).sum();
    let times = kept.iter().map(|entry| {
        let spent = if corrected { entry.busy } else { entry.wall - overhead };
        Seconds((spent / divisor).max(1e-12))
    });
    Timed {
        times: times.collect(),
        overhead: Seconds(overhead / divisor),
        waiting_ratio,
        left_out: u32::try_from(all.saturating_sub(kept.len())).unwrap_or(u32::MAX),
        corrected_ratio: if corrected { (1.0 - busy / wall).clamp(0.0, 1.0) } else { 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::precision::{Precision, WeightFormat};
    use rooflined_predict::calibration::{Accelerator, GemvCase, Kernel, Stores, Stream};

    fn gemv(n: u64, format: WeightFormat, columns: u64, case: GemvCase) -> Kernel {
        Kernel::Gemv { n, k: 320, columns, format, case }
    }

    /// A plan that a small emulated machine gets through as well.
    fn plan(kernels: &[Kernel], threads: u32) -> Plan {
        Plan {
            steps: kernels.iter().map(|kernel| Step { kernel: *kernel, threads, budget_s: 1e-4 }).collect(),
            holds: Vec::new(),
            accelerator: Accelerator::default(),
            cpus: vec![],
            warm_up_s: 0.01,
            time_limit_s: 60.0,
            filling_s: 0.0,
            memory_limit_bytes: 600 << 20,
            seed: 5,
        }
    }

    fn measured(plan: &Plan) -> Vec<Result<Box<Sample>, String>> {
        // A large cache of this machine would make "from main memory" gigabytes.
        let mut cpu = Cpu::beside(plan, |_| Caches::of(32 << 20)).unwrap();
        let outcomes = plan.steps.iter().map(|step| match cpu.measure(step, &|| false) {
            Outcome::Measured(sample) => Ok(sample),
            Outcome::Skipped(reason) | Outcome::Lost(reason) => Err(reason),
            Outcome::Stopped => Err("stopped".into()),
        });
        outcomes.collect()
    }

    #[test]
    fn results_are_right_on_every_number_of_workers_and_after_other_kernels_wrote_to_the_buffers() {
        let triad = Kernel::Stream { pattern: Stream::Triad, bytes: 3 << 20, stores: Stores::Temporal };
        // From main memory once only: filling so much takes an emulator seconds.
        let mut kernels = vec![triad, gemv(1001, WeightFormat::Q4_0, 1, GemvCase::Dram), triad];
        for format in [WeightFormat::Fp32, WeightFormat::Int8, WeightFormat::Q4_0, WeightFormat::Int4G128] {
            kernels.push(gemv(33, format, 3, GemvCase::Cache));
        }
        kernels.push(Kernel::Gemm { m: 5, n: 67, k: 129 });
        let cpus = u32::try_from(allowed_cpus(&[]).unwrap().len()).unwrap();
        for threads in 1..=cpus.min(2) {
            for sample in measured(&plan(&kernels, threads)) {
                let sample = sample.unwrap();
                assert!(sample.times.len() >= MIN_TIMES);
                assert!(sample.times.iter().all(|time| time.is_positive()));
                assert_eq!(sample.max_error_ratio.is_some(), sample.kernel != triad);
                assert!(sample.max_error_ratio.unwrap_or(0.0) < 1e-5, "{sample:?}");
                assert!(
                    sample.before.clock.effective.is_positive() && sample.after.reference.read.is_positive()
                );
            }
        }
    }

    #[test]
    fn a_step_that_cannot_run_says_why_and_the_others_go_on() {
        let wake = Kernel::Wake;
        let huge = Kernel::Stream { pattern: Stream::Copy, bytes: u64::MAX, stores: Stores::Temporal };
        let large = Kernel::Stream { pattern: Stream::Read, bytes: 8 << 30, stores: Stores::Temporal };
        let cases = [
            (huge, "memory"),
            (large, "the plan allows"),
            (gemv(0, WeightFormat::Int8, 1, GemvCase::Cache), "dimension"),
            (gemv(1 << 50, WeightFormat::Int8, 1, GemvCase::Cache), "dimension"),
            (gemv(1 << 39, WeightFormat::Int8, 1 << 39, GemvCase::Dram), "space"),
            (gemv(8, WeightFormat::Q4KM, 1, GemvCase::Cache), "no CPU kernel"),
            (Kernel::Peak { precision: Precision::Fp4 }, "no unit"),
            (Kernel::PingPong, "two threads"),
            (Kernel::Stream { pattern: Stream::Read, bytes: 3, stores: Stores::Temporal }, "less than"),
            (wake, ""),
        ];
        let kernels: Vec<Kernel> = cases.iter().map(|case| case.0).collect();
        for (outcome, (kernel, reason)) in measured(&plan(&kernels, 1)).into_iter().zip(cases) {
            match outcome {
                Ok(sample) => assert_eq!(sample.kernel, wake),
                Err(said) => assert!(!reason.is_empty() && said.contains(reason), "{kernel:?}: {said}"),
            }
        }
        let threads = u32::MAX;
        assert!(measured(&plan(&[wake], threads))[0].as_ref().unwrap_err().contains("CPUs may be used"));
    }

    #[test]
    fn the_pattern_is_a_decent_weight_of_every_format_at_every_offset() {
        let bytes = pattern(&mut fastrand::Rng::with_seed(1));
        for window in bytes.windows(4) {
            let half = half::f16::from_le_bytes([window[0], window[1]]).to_f32().abs();
            assert!((0.5..1.0).contains(&half));
            let float = f32::from_le_bytes([window[0], window[1], window[2], window[3]]).abs();
            assert!((3e-5..6e-3).contains(&float), "{float}");
        }
    }
}
