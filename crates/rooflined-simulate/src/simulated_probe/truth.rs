//! The hidden truth: what the simulated accelerators can really do. Nothing in the tree of a simulated board, in the
//! registry or in the rest of the program says these numbers of its file; they are found by measuring, or not at all.
//!
//! What a run does to the board's power is additive, as in E = P0 t + eB bytes + eF operations + eW weights: the units are
//! busy for bytes ([`STREAMING`]), for operations and for weights that they dequantize, and the interface for bytes. How
//! dear a weight is depends on its format, which no model of four coefficients knows.

use std::collections::BTreeMap;

use serde::Deserialize;

use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, Hertz, Seconds};
use rooflined_predict::calibration::{GemvCase, Kernel, Step, Stream};
use rooflined_probe::pack;

/// The part of the tree that rates depend on, as it is now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub sm: u32,
    pub gpu: Hertz,
    pub memory: Hertz,
}

/// How many SMs are active, or the file that says it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Units {
    /// A file with a mask of eight gated clusters of two.
    Clusters(String),
    /// A file with this number when only so many are left.
    Gated(String, f64, u32),
    /// All of them, always.
    All,
}

/// The table `accelerator` of a board's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Truth {
    /// What samples name as the instruction set.
    pub isa: String,
    /// File of the GPU clock, and the Hz that one of it stands for.
    pub clock: (String, f64),
    /// File of the memory clock in Hz; `None` where it stands still.
    pub memory_clock: Option<String>,
    pub memory_max: f64,
    pub units: Units,
    /// SMs with nothing gated.
    pub sm: u32,
    /// File of the GPU's temperature, and the degrees that one of it stands for.
    pub zone: (String, f64),
    /// Bytes that cross the interface in one memory clock cycle: twice the width.
    bytes_per_cycle: f64,
    /// Part of that which the best kernel gets.
    dram: f64,
    /// Bytes that one SM pulls from memory in one cycle of its own.
    pull: f64,
    /// Size of the second-level cache, and what one SM reads of it in a cycle.
    l2: (f64, f64),
    /// Dense operations of one SM in one cycle.
    rates: BTreeMap<Precision, f64>,
    /// Part of them that register-only code reaches.
    peak: f64,
    /// Cycles of one SM for one stored weight.
    cycles: BTreeMap<WeightFormat, f64>,
    /// Part of that cost for each further column.
    column: f64,
    /// Time that the start of a kernel takes.
    launch: f64,
    /// Part of the peak that large products reach.
    gemm: f64,
}

/// Sharpness of the passage from memory-limited to core-limited, and that from memory to pull.
const OVERLAP: i32 = 4;
const SATURATION: i32 = 8;
/// Busy part of the units that reading at the full rate of the memory takes.
const STREAMING: f64 = 0.3;
/// Rows and columns of a tile of the blocked product.
const TILE: (u64, u64) = (64, 128);
/// Common dimension at which a tile's start and end cost as much as its middle.
const TILE_START: f64 = 192.0;

/// What one run takes, and what it does meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    pub time: Seconds,
    pub flops: Flops,
    pub bytes: Bytes,
    pub weights: f64,
    /// Busy part of the arithmetic units.
    pub core: f64,
    /// Used part of the memory interface.
    pub interface: f64,
}

impl Truth {
    /// What `sm` SMs read from memory.
    pub fn dram(&self, point: &Point, sm: f64) -> BytesPerSecond {
        let interface = self.bytes_per_cycle * point.memory.get() * self.dram;
        let pull = self.pull * sm * point.gpu.get();
        BytesPerSecond(
            interface * (1.0 + (interface / pull).powi(SATURATION)).powf(-1.0 / f64::from(SATURATION)),
        )
    }

    /// Bytes a second at a working set of `bytes`.
    fn read(&self, point: &Point, sm: f64, bytes: f64) -> f64 {
        let (size, per_cycle) = self.l2;
        let l2 = per_cycle * sm * point.gpu.get();
        let dram = self.dram(point, sm).get();
        // A working set a few times the cache still finds some of itself there.
        let hit = if bytes <= size {
            1.0
        } else if bytes < 4.0 * size {
            0.4 * size / bytes
        } else {
            0.0
        };
        1.0 / (hit / l2 + (1.0 - hit) / dram)
    }

    fn rate(&self, precision: Precision) -> Result<f64, String> {
        let known = self.rates.get(&precision);
        known.map(|rate| rate * self.peak).ok_or_else(|| format!("the GPU has no unit for {precision}"))
    }

    /// What one run of a step costs at an operating point.
    ///
    /// # Errors
    /// It cannot run; the reason, for people.
    pub fn cost(&self, step: &Step, point: &Point) -> Result<Cost, String> {
        if step.threads == 0 || step.threads > point.sm {
            return Err(format!(
                "wants {} SMs, and {} are online in this power mode",
                step.threads, point.sm
            ));
        }
        let sm = f64::from(step.threads);
        let cycles = sm * point.gpu.get();
        #[expect(clippy::cast_precision_loss, reason = "dimensions of matrices")]
        let float = |count: u64| count as f64;
        let cost = match step.kernel {
            Kernel::Stream { pattern, bytes, .. } => {
                let bytes = float(bytes).max(1.0);
                // Turning the bus round costs some of what is written.
                let turns = if pattern == Stream::Read { 1.0 } else { 0.94 };
                let rate = self.read(point, sm, bytes) * turns;
                let flops = if matches!(pattern, Stream::Copy | Stream::Write) { 0.0 } else { bytes / 4.0 };
                Cost {
                    time: Seconds(bytes / rate),
                    flops: Flops(flops),
                    bytes: Bytes(bytes),
                    ..Cost::default()
                }
            }
            Kernel::Peak { precision } => {
                let rate = self.rate(precision)? * cycles;
                Cost { time: Seconds(1e-3), flops: Flops(rate * 1e-3), core: 1.0, ..Cost::default() }
            }
            Kernel::Gemv { n, k, columns, format, case } => {
                let each =
                    self.cycles.get(&format).ok_or_else(|| format!("there is no GPU kernel for {format}"))?;
                let weights = float(n) * float(k);
                let bytes = stored_bytes(format, n, k);
                let further = 1.0 + self.column * (float(columns.max(1)) - 1.0);
                let core = weights * each * further / cycles;
                let memory = match case {
                    GemvCase::Dram => bytes / self.dram(point, sm).get(),
                    GemvCase::Cache => 0.0,
                };
                let flops = Flops(2.0 * weights * float(columns));
                let unit = self.rate(format.native_precision()).or_else(|_| self.rate(Precision::Fp16))?;
                let time = self.launch + join(join(memory, core), flops.get() / (unit * cycles));
                Cost {
                    time: Seconds(time),
                    flops,
                    bytes: Bytes(bytes),
                    weights,
                    core: (core + flops.get() / (unit * cycles)) / time,
                    interface: 0.0,
                }
            }
            Kernel::Gemm { m, n, k } => {
                let weights = float(n) * float(k);
                let flops = 2.0 * weights * float(m);
                let bytes = 4.0 * (weights + float(m) * (float(n) + float(k)));
                let core =
                    flops / (self.rate(Precision::Fp32)? * cycles * self.utilisation(m, n, k, step.threads));
                let memory = bytes / self.dram(point, sm).get();
                let time = self.launch + join(memory, core);
                let (flops, bytes) = (Flops(flops), Bytes(bytes));
                Cost { time: Seconds(time), flops, bytes, weights, core: core / time, interface: 0.0 }
            }
            Kernel::Wake => Cost { time: Seconds(self.launch), core: 0.05, ..Cost::default() },
            // A driver's way from a call to the device takes about as long again.
            Kernel::Submit => Cost { time: Seconds(2.0 * self.launch), core: 0.05, ..Cost::default() },
            Kernel::PingPong => return Err("a GPU has no core-to-core latency".to_owned()),
        };
        let interface = self.bytes_per_cycle * point.memory.get();
        let from_memory = match step.kernel {
            Kernel::Gemv { case: GemvCase::Cache, .. } => 0.0,
            Kernel::Stream { bytes, .. } if float(bytes) <= self.l2.0 => 0.0,
            _ => cost.bytes.get() / cost.time.get() / interface,
        };
        let reading = STREAMING * from_memory * interface / self.dram(point, f64::from(self.sm)).get();
        let core = cost.core + reading;
        Ok(Cost { interface: from_memory.clamp(0.0, 1.0), core: core.clamp(0.0, 1.0), ..cost })
    }

    /// Part of the peak that a blocked product reaches: whole tiles in whole waves, each with a start and an end.
    fn utilisation(&self, m: u64, n: u64, k: u64, sm: u32) -> f64 {
        let tiles = m.div_ceil(TILE.0) * n.div_ceil(TILE.1);
        let waves = tiles.div_ceil(u64::from(sm));
        #[expect(clippy::cast_precision_loss, reason = "tiles of a product")]
        let (used, taken) = ((m * n) as f64 / (TILE.0 * TILE.1) as f64, (waves * u64::from(sm)) as f64);
        #[expect(clippy::cast_precision_loss, reason = "a dimension")]
        let middle = k as f64 / (k as f64 + TILE_START);
        (self.gemm * used / taken * middle).max(1e-4)
    }
}

/// Bytes of a matrix as it is stored.
fn stored_bytes(format: WeightFormat, n: u64, k: u64) -> f64 {
    let packed = usize::try_from(k).ok().and_then(|k| pack::row_bytes(format, k));
    let scales = if pack::has_row_scales(format) { 4.0 } else { 0.0 };
    #[expect(clippy::cast_precision_loss, reason = "dimensions of a matrix")]
    match packed {
        Some(row) => n as f64 * (row as f64 + scales),
        None => n as f64 * k as f64 * format.bits_per_weight() / 8.0,
    }
}

/// Joins memory and in-core time.
fn join(memory: f64, core: f64) -> f64 {
    let (long, short) = (memory.max(core), memory.min(core));
    if long <= 0.0 { 0.0 } else { long * (1.0 + (short / long).powi(OVERLAP)).powf(1.0 / f64::from(OVERLAP)) }
}
