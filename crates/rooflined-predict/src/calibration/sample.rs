//! The plan given to the probe and the samples it hands back.
//!
//! The probe reads one [`Plan`] as JSON on standard input and writes one [`ProbeEvent`] a line on standard output.
//! Closing its standard input, or SIGTERM, cancels it.

use serde::{Deserialize, Serialize};

use super::accelerator::Accelerator;
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_core::units::{Bytes, BytesPerSecond, Celsius, Flops, Hertz, Seconds};

/// The access pattern of a bandwidth kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Sum of one array: one read stream.
    Read,
    /// One write stream; of GPUs only.
    Write,
    /// `b = a`: one read and one write stream.
    Copy,
    /// `a = b + s*c`: two read streams and one write stream.
    Triad,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stores {
    /// Ordinary stores: the line is read for ownership first, which is not counted as traffic.
    Temporal,
    /// Non-temporal (streaming) stores where the instruction set has them.
    NonTemporal,
}

/// Where the weights of a GEMV lie when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GemvCase {
    /// In main memory: copies of the matrix are rotated through until at least four times the last-level cache
    /// lies between two uses of one.
    Dram,
    /// In each core's own cache: the in-core cost of the stored format.
    Cache,
}

/// One micro-benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kernel {
    /// Bandwidth over a working set of `bytes` (all arrays together, all threads together).
    Stream {
        pattern: Stream,
        /// Working set in bytes.
        bytes: u64,
        stores: Stores,
    },
    /// Register-only multiply-adds: the peak of a precision.
    Peak {
        /// What the units take.
        precision: Precision,
    },
    /// `y = W x` for `columns` vectors at once; W is `n` rows of `k` stored in `format`.
    Gemv {
        /// Output rows.
        n: u64,
        /// Row length.
        k: u64,
        /// Right-hand sides computed in one pass over the weights.
        columns: u64,
        /// Storage of the weights.
        format: WeightFormat,
        /// Where the weights lie.
        case: GemvCase,
    },
    /// Blocked fp32 `C = A B`, A `m x k`, B `k x n`; B lies in main memory.
    Gemm {
        /// Rows of A.
        m: u64,
        /// Columns of B.
        n: u64,
        /// The common dimension.
        k: u64,
    },
    /// An empty parallel region: the cost of waking the workers. Of a GPU an empty kernel among others in a graph: the gap
    /// between two kernels.
    Wake,
    /// An empty kernel started from a stream: what an engine pays that uses no graphs. Of GPUs only.
    Submit,
    /// One cache line bounced between two workers; the time is one way.
    PingPong,
}

/// One entry of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub kernel: Kernel,
    /// Worker threads; each is pinned to a core of its own.
    pub threads: u32,
    /// The step stops once its timed runs have taken this long, but never before three runs.
    pub budget_s: f64,
}

/// A load to be held while the meter is read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// What runs, again and again; `None` = nothing.
    pub kernel: Option<Kernel>,
    pub threads: u32,
    /// For so long, warm-up not counted.
    pub hold_s: f64,
}

/// A load that was held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// What ran; `None` = nothing.
    pub kernel: Option<Kernel>,
    /// CLOCK_BOOTTIME when it began.
    pub began: Seconds,
    /// And ended.
    pub ended: Seconds,
    /// Operations meanwhile.
    pub flops: Flops,
    /// Bytes to and from main memory.
    pub bytes: Bytes,
    pub weights: f64,
    /// Hottest thermal zone at the end.
    pub temperature: Option<Celsius>,
}

/// Everything that a probe process is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What to measure, in order.
    pub steps: Vec<Step>,
    /// Loads to be held for the power meter: idle before the steps, the others after them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
    #[serde(default)]
    pub accelerator: Accelerator,
    /// Logical CPUs the workers may be pinned to, in order of use; empty = every CPU the process may run on.
    #[serde(default)]
    pub cpus: Vec<u32>,
    /// Warm-up ends when the clock proxy is stable, at the latest after this long.
    pub warm_up_s: f64,
    /// The whole process ends by itself after this long, with what it has.
    pub time_limit_s: f64,
    /// The part of it that is for touching buffers for the first time, and for nothing else.
    #[serde(default)]
    pub filling_s: f64,
    /// Bytes of buffers that may be allocated together.
    pub memory_limit_bytes: u64,
    /// Seed of the random matrices, so that a run can be repeated.
    pub seed: u64,
}

/// What a short reference measurement beside each sample saw of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Read bandwidth of all workers over a buffer in main memory, from a run of a millisecond or two.
    pub read: BytesPerSecond,
    /// One-way latency between the first and the last worker; `None` with one worker.
    pub core_to_core: Option<Seconds>,
}

/// How fast the cores really ran.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// Cycles per second from a chain of dependent additions, one cycle each; the slowest of the workers.
    pub effective: Hertz,
    /// `scaling_cur_freq` or `cpuinfo_cur_freq` where the machine has cpufreq.
    pub reported: Option<Hertz>,
}

/// The machine's condition right before or right after a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    pub clock: Clock,
    pub reference: Reference,
    /// Part of the CPU time of the workers' CPUs that the hypervisor gave to others since the last reading.
    pub steal_ratio: Option<f64>,
    /// Hottest thermal zone.
    pub temperature: Option<Celsius>,
}

/// The outcome of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub kernel: Kernel,
    /// On how many workers.
    pub threads: u32,
    /// The instruction set dispatched to: `avx512_vnni`, `avx2_fma`, `neon_dotprod`, `scalar`, …
    pub isa: String,
    /// Operations of one run.
    pub flops: Flops,
    /// Bytes of one run that must cross the memory interface (or the cache, for a cached case).
    pub bytes: Bytes,
    /// Weights used in one run.
    pub weights: f64,
    /// Every timed run, harness overhead subtracted, in the order measured.
    pub times: Vec<Seconds>,
    /// What was subtracted from each run: an empty timed region on the same workers.
    pub overhead: Seconds,
    /// Largest relative deviation of the kernel's result from a scalar reference; `None` where the kernel has no
    /// result to check.
    pub max_error_ratio: Option<f64>,
    /// Part of the timed span in which the worker worst off was without its CPU; `None` where that is not known.
    #[serde(default)]
    pub waiting_ratio: Option<f64>,
    /// Timed runs left out because a worker was without its CPU meanwhile.
    #[serde(default)]
    pub left_out: u32,
    /// Part of the runs kept that a worker was without its CPU, which is subtracted from their times; 0 where enough runs
    /// were undisturbed.
    #[serde(default)]
    pub corrected_ratio: f64,
    /// What else worked on the GPU meanwhile, as a sentence; `None` where nothing was seen of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_work: Option<String>,
    /// Before the timed runs.
    pub before: Conditions,
    pub after: Conditions,
}

impl Sample {
    /// The reference beside the sample: the faster of the reads before and after, because a process that happened to
    /// run beside one of them only ever slows it down, while a neighbour on the memory bus is there for both.
    #[must_use]
    pub const fn reference(&self) -> Reference {
        let (before, after) = (self.before.reference, self.after.reference);
        Reference { read: before.read.max(after.read), ..before }
    }
}

/// Other work on the CPUs that the probe may use, right before it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherWork {
    pub cpus: u32,
    /// Of them, how many somebody else kept busy for at least half of the time.
    pub busy_cpus: u32,
    /// Part of the time that all of them together were busy.
    pub busy_ratio: f64,
    /// Load average of the last minute; `None` where the machine tells none.
    pub load_average: Option<f64>,
    /// The process that used most of the CPUs, by name; `None` where none used a tenth of one.
    pub busiest: Option<String>,
}

impl std::fmt::Display for OtherWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} cores busy", self.busy_cpus, self.cpus)?;
        if self.busy_cpus == 0 {
            write!(f, " ({:.0} % in all)", 100.0 * self.busy_ratio)?;
        }
        if let Some(load) = self.load_average {
            write!(f, ": load {load:.1}")?;
        }
        self.busiest.as_ref().map_or(Ok(()), |busiest| write!(f, ", most of it {busiest}"))
    }
}

/// What the driver of a GPU says of it. 0 where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DriverFacts {
    /// Streaming multiprocessors that a process has.
    pub sm_count: u32,
    /// Second-level cache.
    pub l2_bytes: u64,
    /// Width of the memory interface.
    pub bus_bits: u32,
    /// Highest clock of the SMs.
    pub sm_clock: Hertz,
}

/// A line of the probe's output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ProbeEvent {
    /// What else the machine does; comes first, where it is known.
    Beside(OtherWork),
    /// What the driver says of the GPU that is measured; before any sample.
    Device(DriverFacts),
    Progress {
        /// Part of the plan that is done, 0 to 1.
        fraction: f64,
        /// The step, as a sentence.
        step: String,
    },
    /// A step has been measured.
    Sample(Box<Sample>),
    /// A load is going to be held.
    Holding {
        /// Part of the plan that is done, 0 to 1.
        fraction: f64,
        /// The load, as a sentence.
        step: String,
    },
    /// A load has been held.
    Held(Box<Held>),
    /// A load cannot be held here, and why.
    NotHeld { kernel: Option<Kernel>, reason: String },
    /// A step cannot run here, and why.
    Skipped {
        kernel: Kernel,
        /// The reason, with the remedy where there is one.
        reason: String,
    },
    /// The end; a probe that stops without it was killed.
    Finished {
        /// Wall-clock time of the whole probe.
        wall: Seconds,
        /// Whether the plan was cut short, by the time limit or by being cancelled.
        cut_short: Option<String>,
    },
}

/// Why a calibration is not running although one is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Other work keeps the cores busy.
    Load,
    /// Memory pressure, or too little free memory for the buffers.
    Memory,
    /// Too hot, or throttled.
    Thermal,
    /// The last attempt failed; waiting before the next.
    BackOff,
    Busy,
}

impl Kernel {
    /// A short name for progress lines and tables: `read 128 MB`, `gemv 4096x4096 int8 dram`.
    #[must_use]
    pub fn describe(&self) -> String {
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let size = |bytes: u64| Bytes(bytes as f64);
        match *self {
            Self::Stream { pattern, bytes, stores } => {
                let pattern = match pattern {
                    Stream::Read => "read",
                    Stream::Write => "write",
                    Stream::Copy => "copy",
                    Stream::Triad => "triad",
                };
                let stores = if stores == Stores::NonTemporal { " nt" } else { "" };
                format!("{pattern}{stores} {}", size(bytes))
            }
            Self::Peak { precision } => format!("peak {precision}"),
            Self::Gemv { n, k, columns, format, case } => {
                let case = if case == GemvCase::Dram { "dram" } else { "cache" };
                let columns = if columns == 1 { String::new() } else { format!(" x{columns}") };
                format!("gemv {n}x{k}{columns} {format} {case}")
            }
            Self::Gemm { m, n, k } => format!("gemm {m}x{n}x{k} fp32"),
            Self::Wake => "wake the workers".into(),
            Self::Submit => "start a kernel from a stream".into(),
            Self::PingPong => "core-to-core ping-pong".into(),
        }
    }
}
