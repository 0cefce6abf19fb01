//! The probe of the CPU: buffers, warm-up, operating points and timed runs around each kernel.

mod job;

use std::io;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use self::job::{Demand, Job};
use super::arena::{Region, replicate};
use super::clock::{self, Caches, Instruments, ReferencePart};
use super::gemv::pack;
use super::pool::{Pool, allowed_cpus};
use super::runner::{Outcome, Probe};
use crate::calibration::{Plan, Sample, Step};
use crate::precision::WeightFormat;
use crate::units::{Bytes, Seconds};

/// Times kept of a step.
const MAX_TIMES: usize = 2_000;
/// A timed entry lasts at least this long, or the timer's resolution would show; shorter runs are repeated in it.
const MIN_ENTRY_S: f64 = 20e-6;
/// Entries timed of every step, whatever its budget.
const MIN_TIMES: usize = 3;
/// The clock counts as stable when this many readings in a row agree.
const STABLE_READINGS: u32 = 3;
/// How closely they must.
const STABLE_RATIO: f64 = 0.01;
/// Weights in the pattern that fills the buffers: whole blocks of every format, and no power of two.
const PATTERN: usize = 128 * 97;

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

/// Everything kernels work on.
struct Buffers {
    /// Per worker: matrices and arrays, placed on its memory node by its first touch. Starts with its part of the
    /// reference buffer.
    parts: Vec<Region>,
    /// Where the matrices begin in each part.
    offset: usize,
    /// What a part holds from `offset` on, and how far.
    filled: Vec<(WeightFormat, usize)>,
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
        let cpus = allowed_cpus(&plan.cpus)?;
        let most = plan.steps.iter().map(|step| step.threads as usize).max().unwrap_or(1);
        let workers = most.clamp(1, cpus.len().max(1));
        let pool = Pool::new(cpus.get(..workers).unwrap_or_default())?;
        let limit = usize::try_from(plan.memory_limit_bytes).unwrap_or(usize::MAX);
        let caches = Caches::discover(pool.cpus()).within(limit / 2);
        let reference = clock::reference_len((4 * caches.last_level).min(limit / 3) / workers);

        let mut parts = vec![reference; workers];
        let mut scratch = vec![0; workers];
        let mut shared = 0;
        for step in &plan.steps {
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
            let total = wider.iter().chain(&deeper).chain([&longer]).fold(0_usize, |sum, size| sum.saturating_add(*size));
            if total <= limit {
                (parts, scratch, shared) = (wider, deeper, longer);
            }
        }
        let map = |sizes: Vec<usize>| sizes.into_iter().map(Region::new).collect::<io::Result<Vec<_>>>();
        let buffers = Buffers {
            parts: map(parts)?,
            offset: reference,
            filled: vec![(WeightFormat::Fp32, 0); workers],
            scratch: map(scratch)?,
            shared: Region::new(shared)?,
            rng: fastrand::Rng::with_seed(plan.seed),
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
        Ok(cpu)
    }

    fn fill_reference(&mut self, len: usize) {
        let pattern = pattern(WeightFormat::Fp32, &mut self.buffers.rng);
        let parts = &self.buffers.parts;
        self.pool.run(parts.len(), &|worker| {
            // SAFETY: each part is at least `len` long and belongs to one worker.
            unsafe { replicate(&pattern, parts[worker].start(), len) };
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
        let fits = buffers.parts[..demand.threads].iter().all(|part| part.len() >= buffers.offset + demand.part)
            && buffers.scratch[..demand.threads].iter().all(|scratch| scratch.len() >= demand.scratch)
            && buffers.shared.len() >= demand.shared;
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        (!fits).then(|| {
            format!(
                "needs {} of buffers beside {} for the reference, and the plan allows {} in all",
                Bytes((demand.threads * (demand.part + demand.scratch) + demand.shared) as f64),
                Bytes((buffers.offset * workers) as f64),
                Bytes(self.memory_limit as f64)
            )
        })
    }
}

/// Stored weights that can be repeated to fill any matrix of `format`.
fn pattern(format: WeightFormat, rng: &mut fastrand::Rng) -> Vec<u8> {
    let weights: Vec<f32> = (0..PATTERN).map(|_| pack::random_weight(rng)).collect();
    pack::pack(format, 1, PATTERN, &weights).map(|packed| packed.bytes).unwrap_or_default()
}

impl Buffers {
    /// Makes the parts of the first `threads` workers hold weights of `format`, `len` bytes each.
    fn fill(&mut self, pool: &Pool, format: WeightFormat, threads: usize, len: usize) {
        if self.filled[..threads].iter().all(|filled| filled.0 == format && filled.1 >= len) {
            return;
        }
        let pattern = pattern(format, &mut self.rng);
        let (parts, offset) = (&self.parts, self.offset);
        pool.run(threads, &|worker| {
            // SAFETY: `Cpu::refuse` has checked the length; the part belongs to this worker.
            unsafe { replicate(&pattern, parts[worker].start().add(offset), len) };
        });
        self.filled[..threads].fill((format, len));
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
        let estimate = warm_up(&mut job, &self.pool, demand.threads, self.warm_up, self.warm, stop);
        self.warm = true;
        let read = |instruments: &mut Instruments| instruments.read(&self.pool, demand.threads, &self.reference);
        let before = read(&mut self.instruments);
        let (waited, begin) = (clock::waited(&self.pool, demand.threads), Instant::now());
        let timed = time(&mut job, estimate, step.budget_s, stop);
        let waiting_ratio = waited
            .zip(clock::waited(&self.pool, demand.threads))
            .map(|(before, after)| clock::waiting_ratio(&before, &after, begin.elapsed()));
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
            waiting_ratio,
            before,
            after,
        }))
    }
}

/// Runs the job until the clock of the slowest worker no longer moves; returns the time of one run.
fn warm_up(job: &mut Job<'_>, pool: &Pool, threads: usize, limit: Duration, warm: bool, stop: &dyn Fn() -> bool) -> f64 {
    let begin = Instant::now();
    let mut agreeing = 0;
    let mut last = 0.0;
    // The first run finds cold caches and untouched pages.
    let mut estimate = job.run(1);
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
        // A long run warms up by itself; a short one is worth knowing better.
        if estimate < 2e-3 {
            estimate = estimate.min(job.run(1));
        }
    }
    estimate
}

struct Timed {
    times: Vec<Seconds>,
    overhead: Seconds,
}

fn time(job: &mut Job<'_>, estimate: f64, budget_s: f64, stop: &dyn Fn() -> bool) -> Timed {
    let mut empty: Vec<f64> = (0..15).map(|_| job.run(0)).collect();
    empty.sort_by(f64::total_cmp);
    let overhead = empty[empty.len() / 2];

    let estimate = (estimate - overhead).max(1e-9);
    #[expect(clippy::cast_precision_loss, reason = "a small constant")]
    let entry = MIN_ENTRY_S.max(budget_s / MAX_TIMES as f64);
    let repeats = ((entry / estimate).ceil() as u64).clamp(1, 1 << 32);
    #[expect(clippy::cast_precision_loss, reason = "at most 2^32")]
    let divisor = repeats as f64;
    let begin = Instant::now();
    let mut times = Vec::with_capacity(MAX_TIMES);
    while (times.len() < MIN_TIMES || begin.elapsed().as_secs_f64() < budget_s) && times.len() < MAX_TIMES && !stop() {
        times.push(Seconds(((job.run(repeats) - overhead) / divisor).max(1e-12)));
    }
    Timed { times, overhead: Seconds(overhead / divisor) }
}
