//! What to measure on a given machine.
//!
//! Shapes are chosen to lie between and beyond those that people ask about, never on the round powers of two that
//! comparisons use.

use std::collections::BTreeSet;

use super::PlanKind;
use super::accelerator::Accelerator;
use super::power::hold_s;
use super::sample::{GemvCase, Hold, Kernel, Plan, Step, Stores, Stream};
use rooflined_core::operation::Op;
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_core::units::Seconds;

/// What a plan depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanContext {
    /// Logical CPUs online.
    pub threads: u32,
    /// Bytes of one core's own cache (the level before the last, or the first).
    pub core_cache_bytes: u64,
    /// Bytes of all instances of the last-level cache.
    pub last_level_cache_bytes: u64,
    /// Bytes that the probe may allocate.
    pub memory_limit_bytes: u64,
    /// Seconds that the probe may take.
    pub time_limit_s: u32,
    pub accelerator: Accelerator,
}

const QUICK_FORMATS: [WeightFormat; 6] = [
    WeightFormat::Fp32,
    WeightFormat::Bf16,
    WeightFormat::Fp16,
    WeightFormat::Int8,
    WeightFormat::Int4,
    WeightFormat::Q4_0,
];

/// `n x k` of the matrices read from main memory: small enough for the ramp to show, large enough to hide it, and
/// between.
const DRAM_SHAPES: [(u64, u64); 3] = [(896, 1280), (2816, 3072), (6144, 5120)];

/// `m, n, k` of the blocked products: rows from 2 to 768 in steps of about 1.5, and row lengths with few and with
/// many factors of two, because rows a power of two apart compete for the same cache sets.
const GEMM_SHAPES: [(u64, u64, u64); 14] = [
    (2, 2304, 2304),
    (4, 3072, 4096),
    (6, 5120, 3072),
    (12, 2048, 2048),
    (16, 1280, 1280),
    (24, 3072, 4096),
    (40, 3072, 3072),
    (48, 2560, 5120),
    (96, 3072, 4096),
    (128, 1280, 1280),
    (192, 2560, 5120),
    (320, 3072, 4096),
    (640, 2560, 2560),
    (768, 1280, 1280),
];

/// Columns of the second cached run of each format: what further columns cost.
const COLUMNS: u64 = 8;

/// Seconds that a GPU's driver may take to translate the kernels for the first time; a guess, on the slow side. A slow or
/// restless GPU may use it too.
const TRANSLATING_S: f64 = 120.0;

impl PlanContext {
    /// The working set that surely lies in main memory, or the largest that the limit leaves room for.
    #[must_use]
    pub fn dram_bytes(&self) -> u64 {
        self.last_level_cache_bytes
            .saturating_mul(4)
            .max(64 << 20)
            .min((self.memory_limit_bytes / 2).max(8 << 20))
    }

    /// Seconds at most for touching the buffers of a CPU's probe for the first time. Gigabytes beside a large cache are
    /// given by a virtual machine's host page by page: 1.0 to 5.6 s for 2 GiB on a Xeon with 480 MiB of cache, and several
    /// times that beside other work.
    #[expect(clippy::cast_precision_loss, reason = "a time limit")]
    fn filling_s(&self) -> f64 {
        match self.accelerator {
            Accelerator::Cpu => 10.0 * self.dram_bytes() as f64 / SLOWEST_BYTES_PER_S,
            Accelerator::Gpu => 0.0,
        }
    }

    /// Rows of a matrix of `k` columns of which every worker's part fills half of its own cache at 32 bits.
    fn cached_rows(&self, k: u64) -> u64 {
        let rows = (self.core_cache_bytes / 2 / (4 * k)).clamp(4, 1024);
        rows.saturating_mul(u64::from(self.threads))
    }
}

/// The plan of a calibration.
#[must_use]
pub fn calibration_plan(context: &PlanContext, kind: PlanKind) -> Plan {
    let quick = kind == PlanKind::Quick;
    let mut steps = Vec::new();
    let all = context.threads;
    let mut add = |kernel, threads, budget_s| steps.push(Step { kernel, threads, budget_s });

    add(Kernel::Wake, all, 0.02);
    if context.accelerator == Accelerator::Gpu {
        add(Kernel::Submit, all, 0.02);
    }
    // Which cores share a cache is a question about CPUs.
    if all > 1 && context.accelerator == Accelerator::Cpu {
        add(Kernel::PingPong, all, 0.02);
    }
    streams(context, quick, &mut add);
    for &precision in context.accelerator.peaks() {
        add(Kernel::Peak { precision }, all, if quick { 0.03 } else { 0.06 });
    }
    let formats: &[WeightFormat] = match (quick, context.accelerator) {
        (true, Accelerator::Cpu) => &QUICK_FORMATS,
        (_, accelerator) => accelerator.formats(),
    };
    for &format in formats {
        let k = 1024;
        let n = context.cached_rows(k);
        let cached = |columns| Kernel::Gemv { n, k, columns, format, case: GemvCase::Cache };
        add(cached(1), all, 0.015);
        if !quick {
            add(cached(COLUMNS), all, 0.015);
        }
    }
    let shapes = if quick { &DRAM_SHAPES[..2] } else { &DRAM_SHAPES[..] };
    for &(n, k) in shapes {
        for &format in formats {
            let kernel = Kernel::Gemv { n, k, columns: 1, format, case: GemvCase::Dram };
            add(kernel, all, if quick { 0.02 } else { 0.05 });
        }
    }
    let products: &[_] = if context.accelerator == Accelerator::Cpu { &GEMM_SHAPES } else { &[] };
    for &(m, n, k) in products.iter().step_by(if quick { 4 } else { 1 }) {
        add(Kernel::Gemm { m, n, k }, all, if quick { 0.03 } else { 0.06 });
    }
    // Translated kernels are kept by the driver: the first run on a machine waits for it, later ones do not.
    let translating = if context.accelerator == Accelerator::Gpu { TRANSLATING_S } else { 0.0 };
    let limit = f64::from(context.time_limit_s);
    Plan {
        steps,
        holds: Vec::new(),
        accelerator: context.accelerator,
        cpus: Vec::new(),
        warm_up_s: if quick { 0.2 } else { 1.0 },
        time_limit_s: translating + context.filling_s() + if quick { limit.min(2.0) } else { limit },
        filling_s: context.filling_s(),
        memory_limit_bytes: context.memory_limit_bytes,
        seed: 0x726f_6f66,
    }
}

impl Plan {
    /// The same with the loads that tell what power costs; `period` = how long the meter takes to a new value. The run may
    /// take as much longer.
    #[must_use]
    pub fn with_power(mut self, context: &PlanContext, period: Option<Seconds>) -> Self {
        /// Filling buffers and warming up.
        const BETWEEN_S: f64 = 0.2;
        self.holds = power_holds(context, period);
        self.time_limit_s += self.holds.iter().map(|hold| hold.hold_s + BETWEEN_S).sum::<f64>();
        self
    }

    /// Also runs the kernel of each step again and again for as long as a meter needs that has a new value every `period`,
    /// after the idle machine. The run may take as much longer.
    pub fn hold_steps(&mut self, period: Option<Seconds>) {
        let hold_s = hold_s(period);
        for step in &self.steps {
            if self.holds.is_empty() {
                self.holds.push(Hold { kernel: None, threads: step.threads, hold_s });
            }
            let kernel = Some(step.kernel);
            if self.holds.iter().all(|hold| hold.kernel != kernel) {
                self.holds.push(Hold { kernel, threads: step.threads, hold_s });
            }
        }
        // Kernels are warm again before each.
        self.time_limit_s =
            2.0 * self.time_limit_s - self.filling_s + self.holds.iter().map(|hold| hold.hold_s).sum::<f64>();
    }
}

/// Formats whose decode is held: plain, and dequantized in ways that cost little to much.
const fn held_formats(accelerator: Accelerator) -> &'static [WeightFormat] {
    use WeightFormat::{Bf16, Fp16, Int4, Int4G128, Int8, Q4_0, Q8_0};
    match accelerator {
        Accelerator::Cpu => &[Bf16, Int8, Q8_0, Int4, Q4_0],
        Accelerator::Gpu => &[Fp16, Int8, Q8_0, Int4G128, Q4_0],
    }
}

/// What is held to learn the power of a machine whose meter has a new value every `period`, idle first.
#[must_use]
pub fn power_holds(context: &PlanContext, period: Option<Seconds>) -> Vec<Hold> {
    /// Rows and columns of the decode: larger than any cache's share of it.
    const DECODE: (u64, u64) = (6144, 5120);
    let hold_s = hold_s(period);
    let peak = match context.accelerator {
        Accelerator::Cpu => Precision::Fp32,
        Accelerator::Gpu => Precision::Fp16,
    };
    let read =
        Kernel::Stream { pattern: Stream::Read, bytes: context.dram_bytes(), stores: Stores::Temporal };
    let decode = held_formats(context.accelerator).iter().map(|&format| {
        let (n, k) = DECODE;
        Kernel::Gemv { n, k, columns: 1, format, case: GemvCase::Dram }
    });
    let kernels = [read, Kernel::Peak { precision: peak }].into_iter().chain(decode).map(Some);
    [None]
        .into_iter()
        .chain(kernels)
        .map(|kernel| Hold { kernel, threads: context.threads, hold_s })
        .collect()
}

/// Bandwidth: the caches' plateaus, main memory with 1 to all threads, and stores of both kinds.
fn streams(context: &PlanContext, quick: bool, add: &mut impl FnMut(Kernel, u32, f64)) {
    let all = context.threads;
    let read = |bytes| Kernel::Stream { pattern: Stream::Read, bytes, stores: Stores::Temporal };
    let dram = context.dram_bytes();
    add(read(dram), all, if quick { 0.08 } else { 0.2 });
    if quick {
        let stores =
            if context.accelerator == Accelerator::Cpu { Stores::NonTemporal } else { Stores::Temporal };
        add(Kernel::Stream { pattern: Stream::Triad, bytes: dram, stores }, all, 0.06);
        if context.accelerator == Accelerator::Cpu {
            // What one core reads is no fraction of what all do.
            let fewer: BTreeSet<u32> =
                [1, all / 2].into_iter().filter(|count| (1..all).contains(count)).collect();
            fewer.into_iter().for_each(|count| add(read(dram), count, 0.04));
        }
        return;
    }
    let threads = u64::from(all);
    for bytes in [
        threads.saturating_mul(16 * 1024),
        (context.core_cache_bytes / 2).saturating_mul(threads),
        context.last_level_cache_bytes / 2,
        context.last_level_cache_bytes.saturating_mul(2),
    ] {
        // Larger ones would be main memory by another name.
        if bytes < dram {
            add(read(bytes), all, 0.03);
        }
    }
    if context.accelerator == Accelerator::Gpu {
        // Which SMs run a few blocks is up to the hardware, and stores have no second kind.
        for pattern in [Stream::Write, Stream::Copy, Stream::Triad] {
            add(Kernel::Stream { pattern, bytes: dram, stores: Stores::Temporal }, all, 0.08);
        }
        return;
    }
    // Powers of two below all threads, so that a 64-core machine is not measured 64 times, and half of them: engines run one
    // thread for every physical core.
    let powers =
        std::iter::successors(Some(1_u32), |count| count.checked_mul(2)).take_while(|count| *count < all);
    let fewer: BTreeSet<u32> = powers.chain((all > 1).then_some(all / 2)).collect();
    let cached = context.last_level_cache_bytes / 2;
    for count in fewer {
        add(read(dram), count, 0.06);
        // A model that fits in the last-level cache is read from there, by few threads too.
        if cached < dram {
            add(read(cached), count, 0.03);
        }
    }
    for pattern in [Stream::Copy, Stream::Triad] {
        for stores in [Stores::Temporal, Stores::NonTemporal] {
            add(Kernel::Stream { pattern, bytes: dram, stores }, all, 0.08);
        }
    }
}

/// Why an operation cannot be measured by this crate's kernels.
pub fn measurable(op: &Op, format: WeightFormat, accelerator: Accelerator) -> Result<Kernel, String> {
    /// Columns beyond which a pass over the weights per column block is no GEMV any more.
    const MAX_COLUMNS: u64 = 64;
    let formats = accelerator.formats();
    let unit = accelerator.name();
    if !formats.contains(&format) {
        let known: Vec<_> = formats.iter().map(|format| format.key()).collect();
        return Err(format!("no {unit} kernel for {format}; measurable: {}", known.join(", ")));
    }
    match *op {
        Op::Gemv { n, k } => Ok(Kernel::Gemv { n, k, columns: 1, format, case: GemvCase::Dram }),
        Op::Gemm { m: 1, n, k } => Ok(Kernel::Gemv { n, k, columns: 1, format, case: GemvCase::Dram }),
        Op::Gemm { m, n, k } if format == WeightFormat::Fp32 && accelerator == Accelerator::Cpu => {
            Ok(Kernel::Gemm { m, n, k })
        }
        Op::Gemm { m, n, k } if m <= MAX_COLUMNS => {
            Ok(Kernel::Gemv { n, k, columns: m, format, case: GemvCase::Dram })
        }
        Op::Gemm { m, .. } => Err(format!(
            "gemm with {m} rows has no {unit} kernel for {format}, which goes up to {MAX_COLUMNS} rows"
        )),
        Op::Attention { .. } => {
            Err(format!("attention alone has no {unit} kernel here; it can be predicted"))
        }
    }
}

/// Bytes per second that buffers are written with at least.
const SLOWEST_BYTES_PER_S: f64 = 1e9;
/// Seconds that an operation is timed.
const BUDGET_S: f64 = 0.12;
/// Seconds that an operation may take in all: filled, warmed up, checked and timed, twice more where it was disturbed.
const LIMIT_S: f64 = 1.5;

/// Seconds for starting and for buffers beside a cache of which the plan does not know; a bound, not a wait.
const STARTING_S: f64 = 15.0;

/// The plan that measures some operations once.
#[must_use]
pub fn measurement_plan(kernels: &[Kernel], context: &PlanContext) -> Plan {
    let starting = context.filling_s()
        + if context.accelerator == Accelerator::Gpu { TRANSLATING_S } else { STARTING_S };
    let step = |&kernel: &Kernel| Step { kernel, threads: context.threads, budget_s: BUDGET_S };
    Plan {
        steps: kernels.iter().map(step).collect(),
        holds: Vec::new(),
        accelerator: context.accelerator,
        cpus: Vec::new(),
        warm_up_s: 0.3,
        #[expect(clippy::cast_precision_loss, reason = "some operations")]
        time_limit_s: starting + LIMIT_S * kernels.len() as f64,
        filling_s: context.filling_s(),
        memory_limit_bytes: context.memory_limit_bytes,
        seed: 0x726f_6f66,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::calibration::LoadKind;

    proptest! {
        /// Whatever a machine says of itself: 200 MB of memory, a cache of exabytes, thousands of cores.
        #[test]
        fn every_machine_gets_a_plan(
            threads in 1..10_000_u32,
            core_cache_bytes in any::<u64>(),
            last_level_cache_bytes in any::<u64>(),
            memory_limit_bytes in any::<u64>(),
            time_limit_s in 1..100_u32,
        ) {
            let context =
                PlanContext { threads, core_cache_bytes, last_level_cache_bytes, memory_limit_bytes, time_limit_s, accelerator: Accelerator::Cpu };
            for kind in [PlanKind::Full, PlanKind::Quick] {
                let plan = calibration_plan(&context, kind);
                prop_assert!(plan.steps.len() < 200);
                prop_assert!(plan.time_limit_s <= f64::from(time_limit_s) + context.filling_s() + 1e-6);
                prop_assert!(plan.steps.iter().all(|step| step.threads <= threads && step.budget_s > 0.0));
            }
        }
    }

    #[test]
    fn holds_begin_idle_and_are_as_long_as_the_meter_needs() {
        let context = PlanContext {
            threads: 4,
            core_cache_bytes: 1 << 20,
            last_level_cache_bytes: 16 << 20,
            memory_limit_bytes: 512 << 20,
            time_limit_s: 10,
            accelerator: Accelerator::Cpu,
        };
        for (period, least, most) in [(0.001, 0.5, 0.7), (1.0, 2.0, 2.5), (60.0, 4.0, 4.0)] {
            let holds = power_holds(&context, Some(Seconds(period)));
            assert_eq!(holds[0].kernel, None);
            let doing: Vec<_> = holds.iter().map(|hold| LoadKind::of(hold.kernel.as_ref())).collect();
            assert_eq!(doing.iter().filter(|doing| **doing == LoadKind::Decode).count(), 5);
            assert!(holds.iter().all(|hold| (least..=most).contains(&hold.hold_s)), "{holds:?}");
        }
    }
}
