//! Every kernel once, on shapes with odd ends: is what this GPU computes right?

use serde::Serialize;

use super::driver::{GpuError, guarded};
use super::stored::Layout;
use super::{Cuda, Job, kernels, stream};
use predict::calibration::{Accelerator, GemvCase, Kernel, Plan, Step, Stores, Stream};
use roofline::precision::{Precision, WeightFormat};

/// Bytes that buffers may take.
const MEMORY: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verified {
    pub entry: String,
    /// Largest deviation from a reference in double precision, relative to the largest value; `None` where it did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl Verified {
    /// Whether the kernel ran and computed something else than it should.
    #[must_use]
    pub fn wrong(&self) -> bool {
        /// As in a calibration.
        const TOLERANCE: f64 = 0.02;
        let right = |error: f64| error <= TOLERANCE;
        self.error.is_some_and(|error| !right(error))
    }
}

/// Runs every kernel of this program that the first GPU has the units for, and hands the outcome of each to `each`.
///
/// # Errors
/// There is no driver or no GPU, or it was lost on the way; the reason, for people.
pub fn verify(each: &mut dyn FnMut(Verified)) -> Result<(), String> {
    let plan = Plan {
        steps: Vec::new(),
        holds: Vec::new(),
        models: Vec::new(),
        accelerator: Accelerator::Gpu,
        cpus: Vec::new(),
        warm_up_s: 0.0,
        time_limit_s: 60.0,
        filling_s: 0.0,
        memory_limit_bytes: MEMORY,
        seed: 11,
    };
    let mut cuda = Cuda::new(&plan)?;
    let threads = cuda.device.facts().sm_count;
    let step = |kernel| Step { kernel, threads, budget_s: 1.0 };
    let l2 = cuda.l2_bytes();
    let mut run = |entry: &str, job: &mut dyn FnMut(&mut Cuda) -> Result<Job, GpuError>| {
        let entry = entry.to_owned();
        match guarded(|| job(&mut cuda)) {
            Ok(job) => each(Verified { entry, error: job.error, skipped: None }),
            Err(GpuError::Step(reason)) => each(Verified { entry, error: None, skipped: Some(reason) }),
            Err(GpuError::Fatal(reason)) => return Err(format!("{entry}: {reason}")),
        }
        Ok(())
    };
    for pattern in [Stream::Read, Stream::Write, Stream::Copy, Stream::Triad] {
        // Neither a whole number of blocks nor of the pattern; large enough to be no cached read.
        let bytes = 12 * l2 + 48 * 1237;
        let kernel = Kernel::Stream { pattern, bytes, stores: Stores::Temporal };
        run(stream::entry_of(pattern), &mut |cuda| cuda.stream(&step(kernel), pattern, bytes))?;
    }
    let cached = l2 / 2 + 16 * 3;
    let kernel = Kernel::Stream { pattern: Stream::Read, bytes: cached, stores: Stores::Temporal };
    run("l2_read", &mut |cuda| cuda.stream(&step(kernel), Stream::Read, cached))?;
    let fp32 = Kernel::Peak { precision: Precision::Fp32 };
    run("fma_f32", &mut |cuda| cuda.peak(&step(fp32), Precision::Fp32))?;
    for precision in Precision::ALL {
        for &peak in kernels::peaks(*precision) {
            let kernel = Kernel::Peak { precision: *precision };
            run(peak.entry, &mut |cuda| cuda.tensor_peak(&step(kernel), *precision, peak))?;
        }
    }
    for format in WeightFormat::ALL {
        let Some(layout) = Layout::of(*format) else { continue };
        for columns in [1, 2, 4, 8] {
            // More rows than the reference repeats, and a row length that is padded.
            let (n, k, case) = (1003, 1000, GemvCase::Cache);
            let kernel = Kernel::Gemv { n, k, columns, format: *format, case };
            let entry = format!("gemv_{}_b{columns}", layout.name);
            run(&entry, &mut |cuda| cuda.gemv(&step(kernel), (n, k, columns), *format, case))?;
        }
    }
    for (head_dim, name) in
        [(64, "attention_64"), (96, "attention_96"), (160, "attention_160"), (256, "attention_256")]
    {
        let kernel = Kernel::Attention { batch: 2, heads: 15, kv_heads: 5, head_dim, context_tokens: 1002 };
        run(name, &mut |cuda| cuda.attention(&step(kernel)))?;
    }
    Ok(())
}
