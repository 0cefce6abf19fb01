//! One kernel bound to its buffers: how often it is asked to run is all that is left to decide.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Buffers;
use super::deviation::worse;
use super::shared::Shared;
use crate::clock::{self, Caches};
use crate::isa::Isa;
use crate::pool::Pool;
use crate::stream::{self, Kernels};
use crate::{gemm, gemv, peak};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Bytes, Flops};
use rooflined_predict::calibration::{GemvCase, Kernel, Step, Stores, Stream};

/// Iterations of a peak kernel in one run: some tens of microseconds.
const PEAK_ITERATIONS: u64 = 20_000;
/// Round trips in one run of the ping-pong.
const ROUND_TRIPS: u32 = 100;
/// Rows of every worker that are checked against the reference.
const CHECKED_ROWS: usize = 4;
/// A pass over a large working set is timed in pieces of this size: a neighbour who takes a core for some milliseconds
/// then spoils a few entries and not every one.
const PIECE: usize = 16 << 20;
/// Keeps the arrays of a stream from lying on top of each other modulo 4096, where stores delay loads.
const STAGGER: usize = 320;
/// 32-bit sums of products of two bytes are exact up to this row length.
const LONGEST_INTEGER_ROW: usize = 1 << 17;

/// Buffers that a step needs.
pub struct Demand {
    pub threads: usize,
    /// Bytes of each worker's part.
    pub part: usize,
    /// Bytes of each worker's scratch space.
    pub scratch: usize,
    /// Bytes that all workers share.
    pub shared: usize,
    /// Copies of the worker's matrix that are rotated through, and the bytes of one.
    copies: usize,
    copy: usize,
}

impl Demand {
    /// What `step` needs, or why it cannot run on any amount of memory.
    pub fn of(step: &Step, caches: Caches) -> Result<Self, String> {
        let demand = Self::unbounded(step, caches)?;
        // Far beyond any machine, and sums of these cannot overflow.
        let largest = demand.part.max(demand.scratch).max(demand.shared);
        if largest > 1 << 46 { Err("needs more memory than any machine has".into()) } else { Ok(demand) }
    }

    fn unbounded(step: &Step, caches: Caches) -> Result<Self, String> {
        let threads = step.threads as usize;
        if threads == 0 {
            return Err("wants no threads".into());
        }
        let none = Self { threads, part: 0, scratch: 0, shared: 0, copies: 1, copy: 0 };
        let too_large = || "is larger than the address space".to_owned();
        match step.kernel {
            Kernel::Stream { pattern: Stream::Write, .. } | Kernel::Submit => {
                Err(format!("{} is measured on GPUs only", step.kernel.describe()))
            }
            Kernel::Stream { pattern, bytes, .. } => {
                let bytes = usize::try_from(bytes).map_err(|_| too_large())?;
                let array = bytes / Kernels::arrays(pattern) / threads / stream::CHUNK * stream::CHUNK;
                if array == 0 {
                    return Err(format!("gives each thread less than {} bytes of each array", stream::CHUNK));
                }
                let part = (array + STAGGER).saturating_mul(Kernels::arrays(pattern));
                Ok(Self { part, copy: array, ..none })
            }
            Kernel::Gemv { n, k, columns, format, case } => {
                let [n, k, columns] = dimensions([n, k, columns])?;
                if gemv::activations::Activations::of(format) != gemv::activations::Activations::Fp32
                    && k > LONGEST_INTEGER_ROW
                {
                    return Err(format!(
                        "rows of {k} may overflow 32-bit sums; at most {LONGEST_INTEGER_ROW}"
                    ));
                }
                let row = gemv::pack::row_bytes(format, k)
                    .ok_or_else(|| format!("there is no CPU kernel for {format}"))?;
                let copy = n.div_ceil(threads).checked_mul(row).ok_or_else(too_large)?.next_multiple_of(64);
                let copies = match case {
                    GemvCase::Dram => copies(copy, threads, caches),
                    GemvCase::Cache => 1,
                };
                let vectors = (k.checked_add(n).and_then(|sum| sum.checked_mul(columns)))
                    .and_then(|sum| sum.checked_add(n)?.checked_mul(4))
                    .ok_or_else(too_large)?;
                Ok(Self {
                    part: copy.checked_mul(copies).ok_or_else(too_large)?,
                    scratch: gemv::activations::scratch_bytes(k, columns),
                    shared: vectors + 3 * 64,
                    copies,
                    copy,
                    ..none
                })
            }
            Kernel::Gemm { m, n, k } => {
                let [m, n, k] = dimensions([m, n, k])?;
                let product = |a: usize, b: usize| a.checked_mul(b)?.checked_mul(4);
                let copy = product(n.div_ceil(threads), k).ok_or_else(too_large)?.next_multiple_of(64);
                let copies = copies(copy, threads, caches);
                let shared =
                    product(m, k).zip(product(m, n)).and_then(|(a, c)| a.checked_add(c)?.checked_add(128));
                Ok(Self {
                    part: copy.checked_mul(copies).ok_or_else(too_large)?,
                    shared: shared.ok_or_else(too_large)?,
                    copies,
                    copy,
                    ..none
                })
            }
            Kernel::PingPong if threads < 2 => Err("needs two threads".into()),
            Kernel::Peak { .. } | Kernel::Wake | Kernel::PingPong => Ok(none),
        }
    }
}

/// Copies of every worker's matrix so that the rotation's bytes lie between two uses of one.
fn copies(copy: usize, threads: usize, caches: Caches) -> usize {
    caches.rotation.div_ceil(copy.saturating_mul(threads).max(1)).max(1)
}

fn dimensions<const N: usize>(sizes: [u64; N]) -> Result<[usize; N], String> {
    let mut checked = [0; N];
    for (to, from) in checked.iter_mut().zip(sizes) {
        // A matrix of 2^40 rows is no matrix of this machine, and products below stay inside 128 bits.
        *to = usize::try_from(from)
            .ok()
            .filter(|size| (1..1 << 40).contains(size))
            .ok_or_else(|| format!("a dimension of {from} is outside 1..=2^40"))?;
    }
    Ok(checked)
}

pub struct Job<'a> {
    /// What it is dispatched to.
    pub isa: Isa,
    /// Operations of one run.
    pub flops: Flops,
    /// Traffic of one run.
    pub bytes: Bytes,
    /// Weights of one run.
    pub weights: f64,
    run: Box<dyn FnMut(u64) -> f64 + 'a>,
    check: Option<Box<dyn FnOnce() -> f64 + 'a>>,
    /// Largest deviation that the kernel itself has seen, as bits; NaN's where it sees none.
    error: std::rc::Rc<Cell<Option<f64>>>,
}

impl Job<'_> {
    /// Runs it a number of times and returns the seconds that took; 0 times measures the harness.
    pub fn run(&mut self, times: u64) -> f64 {
        (self.run)(times)
    }

    /// Runs it once and compares the result with the reference.
    pub fn check(&mut self) -> Option<f64> {
        self.check.take().map(|check| check())
    }

    /// Largest deviation that the kernel has found by itself so far.
    pub fn error(&self) -> Option<f64> {
        self.error.get()
    }
}

fn seconds(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "sizes and counts are far below 2^53")]
fn float(count: usize) -> f64 {
    count as f64
}

impl<'a> Job<'a> {
    /// Binds `step`'s kernel to the buffers, which hold what it needs afterwards.
    pub fn new(
        step: &Step,
        demand: &Demand,
        pool: &'a Pool,
        buffers: &'a mut Buffers,
    ) -> Result<Self, String> {
        match step.kernel {
            // Refused by the demand already.
            Kernel::Submit => Err(format!("{} is measured on GPUs only", step.kernel.describe())),
            Kernel::Stream { pattern, stores, .. } => Self::stream(pattern, stores, demand, pool, buffers),
            Kernel::Peak { precision } => {
                let unit = peak::peaks(precision).next().ok_or_else(|| peak::absence(precision))?;
                Ok(Self::peak(unit, demand.threads, pool))
            }
            Kernel::Gemv { n, k, columns, format, .. } => {
                Self::gemv([n, k, columns].map(|size| size as usize), format, demand, pool, buffers)
            }
            Kernel::Gemm { m, n, k } => {
                Ok(Self::gemm([m, n, k].map(|size| size as usize), demand, pool, buffers))
            }
            Kernel::Wake => {
                let threads = demand.threads;
                Ok(Self::plain(move |times| seconds(|| (0..times).for_each(|_| pool.run(threads, &|_| {})))))
            }
            Kernel::PingPong => {
                let last = demand.threads - 1;
                #[expect(clippy::cast_precision_loss, reason = "repeats of a run")]
                Ok(Self::plain(move |times| match u32::try_from(times) {
                    Ok(0) => 0.0,
                    Ok(times) => {
                        clock::ping_pong(pool, last, ROUND_TRIPS.saturating_mul(times)).get()
                            * f64::from(times)
                    }
                    Err(_) => times as f64,
                }))
            }
        }
    }

    fn plain(run: impl FnMut(u64) -> f64 + 'a) -> Self {
        Self {
            isa: Isa::Scalar,
            flops: Flops::ZERO,
            bytes: Bytes::ZERO,
            weights: 0.0,
            run: Box::new(run),
            check: None,
            error: std::rc::Rc::default(),
        }
    }

    fn stream(
        pattern: Stream,
        stores: Stores,
        demand: &Demand,
        pool: &'a Pool,
        buffers: &'a mut Buffers,
    ) -> Result<Self, String> {
        let kernels = stream::best();
        if stores == Stores::NonTemporal && !kernels.non_temporal {
            return Err("this CPU has no non-temporal stores that we know of".into());
        }
        let (threads, array, arrays) = (demand.threads, demand.copy, Kernels::arrays(pattern));
        buffers.fill_floats(pool, threads, demand.part);
        if pattern == Stream::Triad {
            // Its results are floats, but not weights of any other format.
            buffers.spoil(threads);
        }
        let (parts, offset) = (&buffers.parts, buffers.offset);
        let pieces = (array * arrays * threads / PIECE).max(1);
        let piece = (array / pieces / stream::CHUNK * stream::CHUNK).max(stream::CHUNK);
        let mut turn = 0;
        let run = move |times: u64| {
            let time = seconds(|| {
                pool.run(threads, &|worker| {
                    let start = parts[worker].start().wrapping_add(offset);
                    let mut turn = turn;
                    for _ in 0..times {
                        let start = start.wrapping_add(turn * piece);
                        // SAFETY: the part was filled with floats over its whole length, belongs to this worker, and
                        // starts at a huge page plus whole reference pieces; all pieces lie inside the array.
                        unsafe { kernels.run(pattern, stores, start, array + STAGGER, piece) };
                        turn = if turn + 1 == pieces { 0 } else { turn + 1 };
                    }
                });
            });
            turn = (turn + (times % pieces as u64) as usize) % pieces;
            time
        };
        let elements = float(threads * piece / 4);
        let flops = match pattern {
            Stream::Read => elements,
            Stream::Write | Stream::Copy => 0.0,
            Stream::Triad => 2.0 * elements,
        };
        let bytes = Bytes(float(threads * piece * arrays));
        Ok(Self { isa: kernels.isa, flops: Flops(flops), bytes, ..Self::plain(run) })
    }

    fn peak(unit: peak::Peak, threads: usize, pool: &'a Pool) -> Self {
        let error = std::rc::Rc::new(Cell::new(None));
        let seen = std::rc::Rc::clone(&error);
        let run = move |times: u64| {
            // Deviations are not negative, and such floats order like their bits.
            let worst = AtomicU64::new(0);
            let time = seconds(|| {
                pool.run(threads, &|_| {
                    if times > 0 {
                        // SAFETY: `peaks` yields supported units only.
                        let deviation = unsafe { (unit.run)(PEAK_ITERATIONS.saturating_mul(times)) };
                        worst.fetch_max(deviation.to_bits(), Ordering::Relaxed);
                    }
                });
            });
            let worst = f64::from_bits(worst.into_inner());
            seen.set(Some(seen.get().map_or(worst, |old: f64| old.max(worst))));
            time
        };
        let flops = unit.flops * float(threads) * PEAK_ITERATIONS as f64;
        Self { isa: unit.isa, flops: Flops(flops), error, ..Self::plain(run) }
    }

    fn gemv(
        [n, k, columns]: [usize; 3],
        format: WeightFormat,
        demand: &Demand,
        pool: &'a Pool,
        buffers: &'a mut Buffers,
    ) -> Result<Self, String> {
        let (isa, kernel) =
            gemv::best(format).ok_or_else(|| format!("there is no CPU kernel for {format}"))?;
        let row_bytes = gemv::pack::row_bytes(format, k).unwrap_or_default();
        let (threads, copy, copies) = (demand.threads, demand.copy, demand.copies);
        buffers.fill(pool, threads, demand.part);
        // Scales, x and y follow each other, each from its own cache line.
        let shared: *mut f32 = buffers.shared.start().cast();
        let scales = Shared(shared);
        let x = Shared(shared.wrapping_add(n.next_multiple_of(16)));
        let y = Shared(x.at((k * columns).next_multiple_of(16)));
        for i in 0..n {
            // SAFETY: `Demand` counted the three arrays and their padding; no worker is running.
            unsafe { *scales.at(i) = 0.005 + 0.01 * buffers.rng.f32() };
        }
        for i in 0..k * columns {
            // SAFETY: as above.
            unsafe { *x.at(i) = gemv::pack::random_weight(&mut buffers.rng) };
        }
        let (parts, scratch, offset) = (&buffers.parts, &buffers.scratch, buffers.offset);
        let rows = move |worker: usize| (n * worker / threads, n * (worker + 1) / threads);
        let once = move |turn: usize| {
            pool.run(threads, &|worker| {
                let (first, end) = rows(worker);
                let task = gemv::Task {
                    weights: parts[worker].start().wrapping_add(offset + turn * copy),
                    row_bytes,
                    rows: end - first,
                    k,
                    row_scales: scales.at(first),
                    x: x.at(0),
                    columns,
                    y: y.at(first),
                    y_stride: n,
                    scratch: scratch[worker].start(),
                };
                // SAFETY: `best` checked the instruction set; `Demand` counted all buffers, the part was filled with
                // whole blocks of this format, and each worker writes its own rows of y.
                unsafe { kernel(&task) };
            });
        };
        let mut turn = 0;
        let run = move |times| {
            seconds(|| {
                for _ in 0..times {
                    once(turn);
                    turn = (turn + 1) % copies;
                }
            })
        };
        let form = gemv::activations(format, isa);
        let check = move || {
            once(0);
            let mut worst = 0.0_f64;
            for (worker, part) in parts[..threads].iter().enumerate() {
                let (first, end) = rows(worker);
                let step = ((end - first) / CHECKED_ROWS).max(1);
                for row in (first..end).step_by(step).chain((end > first).then(|| end - 1)) {
                    let start = part.start().wrapping_add(offset + (row - first) * row_bytes);
                    for column in [0, columns - 1] {
                        // SAFETY: no worker is running; the row and the column lie inside the buffers.
                        let (stored, scale, x, y) = unsafe {
                            (
                                std::slice::from_raw_parts(start, row_bytes),
                                *scales.at(row),
                                std::slice::from_raw_parts(x.at(column * k), k),
                                *y.at(column * n + row),
                            )
                        };
                        let (expected, magnitude) = gemv::reference(format, form, stored, scale, x);
                        worst = worse(worst, (f64::from(y) - expected).abs() / magnitude);
                    }
                }
            }
            worst
        };
        let weights = float(n) * float(k);
        let scales = if gemv::pack::has_row_scales(format) { 4.0 * float(n) } else { 0.0 };
        Ok(Self {
            isa,
            flops: Flops(2.0 * weights * float(columns)),
            // x and y stay in the caches between calls.
            bytes: Bytes(float(n) * float(row_bytes) + scales),
            weights,
            check: Some(Box::new(check)),
            ..Self::plain(run)
        })
    }

    fn gemm([m, n, k]: [usize; 3], demand: &Demand, pool: &'a Pool, buffers: &'a mut Buffers) -> Self {
        let (threads, copy, copies) = (demand.threads, demand.copy, demand.copies);
        buffers.fill(pool, threads, demand.part);
        let a = Shared(buffers.shared.start().cast::<f32>());
        let c = Shared(a.at((m * k).next_multiple_of(16)));
        for i in 0..m * k {
            // SAFETY: `Demand` counted A and C; no worker is running.
            unsafe { *a.at(i) = gemv::pack::random_weight(&mut buffers.rng) };
        }
        let (parts, offset) = (&buffers.parts, buffers.offset);
        let columns = move |worker: usize| (n * worker / threads, n * (worker + 1) / threads);
        let once = move |turn: usize| {
            pool.run(threads, &|worker| {
                let (first, end) = columns(worker);
                let b = parts[worker].start().wrapping_add(offset + turn * copy);
                let share = gemm::Task { m, n: end - first, k, a: a.at(0), b: b.cast(), c: c.at(first * m) };
                // SAFETY: `Demand` counted all buffers, and each worker writes its own columns of C.
                unsafe { gemm::gemm(&share) };
            });
        };
        let mut turn = 0;
        let run = move |times| {
            seconds(|| {
                for _ in 0..times {
                    once(turn);
                    turn = (turn + 1) % copies;
                }
            })
        };
        let check = move || {
            once(0);
            let mut worst = 0.0_f64;
            for (worker, part) in parts[..threads].iter().enumerate() {
                let (first, end) = columns(worker);
                let step = ((end - first) / CHECKED_ROWS).max(1);
                for column in (first..end).step_by(step).chain((end > first).then(|| end - 1)) {
                    let b = part.start().wrapping_add(offset).cast::<f32>();
                    let row = column * 7 % m;
                    // SAFETY: no worker is running; row and column lie inside the buffers.
                    let (a, b, c) = unsafe {
                        (
                            std::slice::from_raw_parts(a.at(row * k), k),
                            std::slice::from_raw_parts(b.wrapping_add((column - first) * k), k),
                            f64::from(*c.at(column * m + row)),
                        )
                    };
                    let terms = || a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
                    let magnitude: f64 = terms().map(f64::abs).sum();
                    worst = worse(worst, (c - terms().sum::<f64>()).abs() / magnitude);
                }
            }
            worst
        };
        let weights = float(n) * float(k);
        Self {
            isa: gemm::isa(),
            flops: Flops(2.0 * weights * float(m)),
            bytes: Bytes(4.0 * weights + 4.0 * float(m) * (float(k) + float(n))),
            weights,
            check: Some(Box::new(check)),
            ..Self::plain(run)
        }
    }
}
