//! Tiles of a matrix product on a GPU: how many there are, how they fill the SMs, what each reads.
//!
//! ```text
//! tiles  = ceil(m / tile m) x ceil(n / tile n) x split        waves = tiles / (SM x resident blocks)
//! t      = launches + ( compute^4 + shared^4 + memory^4 )^(1/4)
//! compute = ceil(tiles / SM) x 2 tile_m tile_n k / (peak of an SM x min(1, resident warps / needed))
//! shared  = ceil(tiles / SM) x bytes through shared memory / (128 B x clock)
//! memory  = bytes from memory / min(bandwidth, bytes in flight / latency)
//! ```
//!
//! Blocks that run together form a patch of `r x c` tiles and move along `k` in step, so that the second-level cache gives
//! each its neighbours' operands: A is read `ceil(columns / c)` times and B `ceil(rows / r)` times. Where one operand
//! fits into half of that cache, both are read once. `docs/internals/tiling.md` says what is not modelled.

mod limits;

use thiserror::Error;

pub use limits::{MOST_REGISTERS, REGISTERS, Resource, SmLimits, WARP};

use super::operation::compute_path;
use rooflined_core::ceilings::Roofline;
use rooflined_core::hardware::Hardware;
use rooflined_core::keyed;
use rooflined_core::operation::{InvalidOp, Op};
use rooflined_core::precision::{NumericFormat, Precision};
use rooflined_core::units::{Bytes, Seconds};

/// Blocks tried: rows and columns of C.
const BLOCKS: [(u32, u32); 14] = [
    (16, 64),
    (16, 128),
    (32, 64),
    (32, 128),
    (64, 32),
    (64, 64),
    (64, 128),
    (64, 256),
    (128, 32),
    (128, 64),
    (128, 128),
    (128, 256),
    (256, 64),
    (256, 128),
];
/// Warps of a block tried.
const WARPS: [u32; 2] = [4, 8];
/// Steps along the common dimension tried; a row of a step is one or half a cache line long.
const STEPS: [u32; 4] = [16, 32, 64, 128];
const STEP_BYTES: std::ops::RangeInclusive<f64> = 64.0..=128.0;
/// Buffers of a block tried; without asynchronous copies only the first.
const STAGES: [u32; 4] = [2, 3, 4, 5];
/// Parts of the common dimension tried where there are fewer tiles than SMs.
const SPLITS: [u32; 5] = [1, 2, 4, 8, 16];
/// Steps that a part of the common dimension has at least.
const LEAST_STEPS: u64 = 4;
/// Shared memory moves this many bytes a clock, in every capability from 5.0 on.
const SHARED_BYTES_PER_CLOCK: f64 = 128.0;
/// Warps that keep the four schedulers of an SM busy while operands are fetched: an estimate.
const WARPS_NEEDED: f64 = 8.0;
/// The same where four warps multiply together and fetch nothing themselves.
const GROUPED_WARPS_NEEDED: f64 = 4.0;
/// From asking main memory to having it while others ask too: an estimate. Half of the bandwidth has been seen to need
/// 107 kB in flight on A40 and L40, 360 kB on A100 and 440 kB on H200 (te42kyfo/gpu-benches), which is 200 to 460 ns.
const MEMORY_LATENCY: f64 = 500e-9;
/// Registers of a thread for addresses and loop counters: an estimate.
const OTHER_REGISTERS: u32 = 40;
/// Registers of a thread while sums leave tensor memory.
const LEAVING_REGISTERS: u32 = 64;
/// Operands of two steps are held at once; a step of the tensor unit is this many bytes of a row.
const FRAGMENT_BYTES: u32 = 32;

/// One way to cut a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tile {
    /// Rows of C of a block.
    pub m: u32,
    /// Columns of C of a block.
    pub n: u32,
    /// Step along the common dimension.
    pub k: u32,
    /// Buffers of operands.
    pub stages: u32,
    /// Warps of a block.
    pub warps: u32,
    /// Parts that the common dimension is cut into; the sums of the parts are added by a second kernel.
    pub split: u32,
}

keyed! {
    /// The ceiling that takes most of the time.
    TileLimit {
        Dram = "dram",
        SharedMemory = "shared_memory",
        Compute = "compute",
        Launch = "launch",
    }
}

/// A tile with what follows from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub tile: Tile,
    /// Shared memory of a block in bytes.
    pub shared_memory: u32,
    /// Registers of a thread, estimated.
    pub registers: u32,
    /// Blocks resident on an SM.
    pub resident: u32,
    /// What keeps it from being more.
    pub limited_by: Resource,
    /// Resident warps over the most there can be.
    pub occupancy: f64,
    /// Blocks in all.
    pub tiles: u64,
    /// Rounds in which all SMs are filled.
    pub waves: f64,
    /// Part of the rounds that is filled.
    pub wave_efficiency: f64,
    /// Part of the blocks' arithmetic that is not padding.
    pub tile_efficiency: f64,
    /// What one block reads.
    pub tile_bytes: Bytes,
    /// Operations for a byte that a block reads.
    pub tile_intensity: f64,
    /// From memory if every block read for itself.
    pub bytes_without_reuse: Bytes,
    /// From memory with the second-level cache.
    pub bytes: Bytes,
    pub time: Seconds,
    /// Parts of the estimated time, in order of the formula.
    pub parts: Parts,
    /// The part that takes most of the time.
    pub limit: TileLimit,
}

/// Parts of the time that overlap, and the launches before them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parts {
    pub launch: Seconds,
    pub compute: Seconds,
    pub shared: Seconds,
    pub memory: Seconds,
}

/// Every way to cut a product that was looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Tiling {
    /// Limits of an SM.
    pub limits: SmLimits,
    pub sm: u32,
    /// What it is computed in.
    pub compute: Precision,
    /// The best of each block and split, fastest first.
    pub candidates: Vec<Candidate>,
    /// How many were looked at.
    pub considered: usize,
    /// Of these, how many need more shared memory than a block has.
    pub too_much_shared_memory: usize,
    /// Of these, how many need more registers than there are.
    pub too_many_registers: usize,
    /// The plain physical bound.
    pub roofline_time: Seconds,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// Why a product has no tiles.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum TilingError {
    #[error(transparent)]
    Op(#[from] InvalidOp),
    #[error(
        "{name} is a CPU, and tiles are a GPU's: a CPU's blocks follow its caches and are its library's choice"
    )]
    Cpu { name: String },
    /// A GPU whose SMs are not known.
    #[error("{name} does not say its compute capability, or one that has no entry in the table of limits")]
    UnknownCapability { name: String },
    /// No ceiling for the precision, and none for one it can fall back to.
    #[error("{name} has no unit for {precision} and no wider one to fall back to")]
    NoUnit { name: String, precision: Precision },
}

impl TilingError {
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Op(_) => "give whole numbers within these limits",
            Self::Cpu { .. } => {
                "name a GPU, such as jetson-orin-nano-8gb-super; rooflinectl hardware list shows all. For this CPU, \
                 rooflinectl compare gemm M N K measures"
            }
            Self::UnknownCapability { .. } => {
                "add compute_capability to the file of the hardware: docs/hardware.md"
            }
            Self::NoUnit { .. } => "choose fp16 or fp32; rooflinectl hardware show KEY lists the units",
        }
    }
}

/// Ways to cut an `m x n x k` product, fastest first. `roofline` holds for `hardware` at the operating point asked for.
///
/// # Errors
/// A CPU, an impossible product, hardware without known limits, or a precision with no unit to run on.
pub fn tiling(
    hardware: &Hardware,
    roofline: &Roofline,
    [m, n, k]: [u64; 3],
    format: &NumericFormat,
) -> Result<Tiling, TilingError> {
    let op = Op::Gemm { m, n, k };
    op.validate()?;
    let name = || hardware.name.clone();
    if hardware.sm == 0 {
        return Err(TilingError::Cpu { name: name() });
    }
    let limits = hardware
        .compute_capability
        .and_then(SmLimits::of)
        .ok_or_else(|| TilingError::UnknownCapability { name: name() })?;
    let mut warnings = Vec::new();
    let no_unit = || TilingError::NoUnit { name: name(), precision: format.compute };
    let compute = compute_path(roofline, format.compute, &mut warnings).ok_or_else(no_unit)?;
    let peak = roofline.compute(compute).ok_or_else(no_unit)?.value;
    let cost = op.cost(format);
    let roofline_time = (cost.traffic / roofline.physical_bandwidth()).max(cost.work / peak);
    let product = Product {
        m,
        n,
        k,
        activation: format.activations.bytes(1.0).get(),
        weight: format.weights.bytes(1.0).get(),
    };
    let machine = Machine {
        limits,
        sm: roofline.workers.max(1),
        peak: peak.get(),
        clock: roofline.clock.map(rooflined_core::units::Hertz::get).filter(|clock| *clock > 0.0),
        bandwidth: roofline.bandwidth.value.get(),
        launch: roofline.launch.value,
        cache: hardware.l2.map_or(0.0, Bytes::get),
        floor: roofline_time,
    };
    let mut found = BestCandidates::default();
    for tile in tiles(&product, &machine) {
        found.try_out(&product, &machine, tile);
    }
    Ok(Tiling {
        limits,
        sm: machine.sm,
        compute,
        candidates: found.ranked(),
        considered: found.considered,
        too_much_shared_memory: found.too_much_shared_memory,
        too_many_registers: found.too_many_registers,
        roofline_time,
        warnings,
    })
}

/// Sizes and bytes of an element of each operand. C is written in the format of A.
struct Product {
    m: u64,
    n: u64,
    k: u64,
    activation: f64,
    weight: f64,
}

struct Machine {
    limits: SmLimits,
    sm: u32,
    peak: f64,
    clock: Option<f64>,
    bandwidth: f64,
    launch: Seconds,
    cache: f64,
    floor: Seconds,
}

/// Every tile worth looking at.
fn tiles(product: &Product, machine: &Machine) -> Vec<Tile> {
    let stages = if machine.limits.asynchronous_copies { &STAGES[..] } else { &STAGES[..1] };
    let widest = product.activation.max(product.weight);
    let mut tiles = Vec::new();
    for (m, n) in BLOCKS {
        let blocks = product.m.div_ceil(m.into()).saturating_mul(product.n.div_ceil(n.into()));
        for k in STEPS.into_iter().filter(|k| STEP_BYTES.contains(&(f64::from(*k) * widest))) {
            for split in SPLITS {
                let steps = product.k.div_ceil(u64::from(split) * u64::from(k));
                if split > 1 && (blocks >= machine.sm.into() || steps < LEAST_STEPS) {
                    continue;
                }
                for warps in WARPS {
                    tiles.extend(stages.iter().map(|&stages| Tile { m, n, k, stages, warps, split }));
                }
            }
        }
    }
    tiles
}

#[derive(Default)]
struct BestCandidates {
    best: Vec<Candidate>,
    considered: usize,
    too_much_shared_memory: usize,
    too_many_registers: usize,
}

impl BestCandidates {
    /// Keeps the candidate if it is the best of its block and split so far.
    fn try_out(&mut self, product: &Product, machine: &Machine, tile: Tile) {
        self.considered += 1;
        let shared = product.shared_memory(&tile);
        let (across, registers) = Warps::arranged(product, machine, &tile);
        let Some((resident, limited_by)) = machine.limits.resident(tile.warps, registers, shared) else {
            if shared > machine.limits.block_shared_memory {
                self.too_much_shared_memory += 1;
            } else {
                self.too_many_registers += 1;
            }
            return;
        };
        let candidate = product.candidate(machine, tile, &across, [shared, registers, resident], limited_by);
        let same = |known: &&mut Candidate| {
            (known.tile.m, known.tile.n, known.tile.split) == (tile.m, tile.n, tile.split)
        };
        match self.best.iter_mut().find(same) {
            None => self.best.push(candidate),
            Some(known) if candidate.before(known) => *known = candidate,
            Some(_) => {}
        }
    }

    fn ranked(&mut self) -> Vec<Candidate> {
        let mut best = std::mem::take(&mut self.best);
        best.sort_by(|a, b| a.key().0.total_cmp(&b.key().0).then(a.key().1.cmp(&b.key().1)));
        best
    }
}

impl Candidate {
    /// Fastest first; of equals, the one that takes less shared memory.
    fn key(&self) -> (f64, (u32, Tile)) {
        (self.time.get(), (self.shared_memory, self.tile))
    }

    fn before(&self, other: &Self) -> bool {
        self.key() < other.key()
    }

    /// What is lost most, as a sentence.
    #[must_use]
    pub fn reason(&self) -> String {
        let limit = match self.limit {
            TileLimit::Dram => "main memory takes longest",
            TileLimit::SharedMemory => "shared memory takes longest",
            TileLimit::Compute => "arithmetic takes longest",
            TileLimit::Launch => "starting takes longest",
        };
        let percent = |ratio: f64| ratio * 100.0;
        let mut parts = vec![limit.to_owned()];
        if self.waves < 1.0 {
            parts.push(format!("{:.0} % of the slots for blocks are used", percent(self.waves)));
        } else if self.wave_efficiency < 0.95 {
            parts.push(format!(
                "the last of {:.0} waves leaves it {:.0} % filled",
                self.waves.ceil(),
                percent(self.wave_efficiency)
            ));
        }
        if self.tile_efficiency < 0.95 {
            parts.push(format!("{:.0} % of the arithmetic is padding", percent(1.0 - self.tile_efficiency)));
        }
        if self.tile.split > 1 {
            parts.push(format!("{} parts of k are added by a second kernel", self.tile.split));
        }
        parts.join("; ")
    }
}

/// How the warps of a block share it: this many down the rows and across the columns.
struct Warps {
    down: u32,
    across: u32,
}

impl Warps {
    /// The arrangement that reads least from shared memory, and the registers of a thread.
    fn arranged(product: &Product, machine: &Machine, tile: &Tile) -> (Self, u32) {
        let grouped = machine.limits.warp_groups;
        let units = if grouped { tile.warps / 4 } else { tile.warps };
        let arrangement = |down: u32| Self { down, across: units / down };
        let read = |warps: &Self| product.operands_read(tile, warps);
        let best = [1, 2, 4, 8]
            .into_iter()
            .filter(|down| *down <= units)
            .map(arrangement)
            .filter(|warps| tile.m / warps.down >= 16 && tile.n / warps.across >= 8)
            .min_by(|a, b| read(a).total_cmp(&read(b)))
            .unwrap_or(Self { down: 1, across: units });
        let sums = tile.m * tile.n / (tile.warps * WARP);
        let registers = if machine.limits.tensor_memory {
            sums.min(LEAVING_REGISTERS)
        } else if grouped {
            sums
        } else {
            // Rows of A and of B that a warp holds, a fragment of each, over its 32 lanes of 4 bytes; twice.
            sums + 2 * (tile.m / best.down + tile.n / best.across) * FRAGMENT_BYTES / (WARP * 4)
        };
        (best, (registers + OTHER_REGISTERS).next_multiple_of(8))
    }
}

impl Product {
    /// Bytes of operands of one step.
    fn step_bytes(&self, tile: &Tile) -> f64 {
        f64::from(tile.k) * (f64::from(tile.m) * self.activation + f64::from(tile.n) * self.weight)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most some 10^6")]
    fn shared_memory(&self, tile: &Tile) -> u32 {
        (f64::from(tile.stages) * self.step_bytes(tile)).ceil() as u32
    }

    /// Bytes that warps read from shared memory for one element of the common dimension: each row of warps reads all
    /// of B's, each column of them all of A's.
    fn operands_read(&self, tile: &Tile, warps: &Warps) -> f64 {
        f64::from(tile.m) * self.activation * f64::from(warps.across)
            + f64::from(tile.n) * self.weight * f64::from(warps.down)
    }

    fn candidate(
        &self,
        machine: &Machine,
        tile: Tile,
        warps: &Warps,
        [shared_memory, registers, resident]: [u32; 3],
        limited_by: Resource,
    ) -> Candidate {
        let (rows, columns) = (self.m.div_ceil(tile.m.into()), self.n.div_ceil(tile.n.into()));
        let tiles = rows.saturating_mul(columns).saturating_mul(tile.split.into());
        let slots = u64::from(machine.sm) * u64::from(resident);
        let waves = as_f64(tiles) / as_f64(slots);
        // The part of the common dimension that one block walks, padded to whole steps.
        let depth = as_f64(self.k.div_ceil(tile.split.into()).next_multiple_of(tile.k.into()));
        let padded = as_f64(tiles) * f64::from(tile.m) * f64::from(tile.n) * depth;
        let (without_reuse, bytes) = self.traffic(machine, &tile, [rows, columns], slots);

        let of_one = as_f64(tiles.div_ceil(machine.sm.into()));
        let together = of_one.min(f64::from(resident));
        let needed = if machine.limits.warp_groups { GROUPED_WARPS_NEEDED } else { WARPS_NEEDED };
        let issue = (together * f64::from(tile.warps) / needed).min(1.0);
        let work = 2.0 * f64::from(tile.m) * f64::from(tile.n) * depth;
        let through_shared =
            depth * (self.operands_read(&tile, warps) + self.step_bytes(&tile) / f64::from(tile.k));
        let in_flight = as_f64(tiles.min(slots)) * f64::from(tile.stages - 1) * self.step_bytes(&tile);
        let parts = Parts {
            launch: machine.launch * if tile.split > 1 { 2.0 } else { 1.0 },
            compute: Seconds(of_one * work / (machine.peak / f64::from(machine.sm) * issue)),
            shared: Seconds(
                machine.clock.map_or(0.0, |clock| of_one * through_shared / (SHARED_BYTES_PER_CLOCK * clock)),
            ),
            memory: Seconds(bytes / machine.bandwidth.min(in_flight / MEMORY_LATENCY)),
        };
        Candidate {
            tile,
            shared_memory,
            registers,
            resident,
            limited_by,
            occupancy: f64::from(resident * tile.warps * WARP) / f64::from(machine.limits.threads),
            tiles,
            waves,
            wave_efficiency: waves / waves.ceil(),
            tile_efficiency: as_f64(self.m) * as_f64(self.n) * as_f64(self.k) / padded,
            tile_bytes: Bytes(depth / f64::from(tile.k) * self.step_bytes(&tile)),
            tile_intensity: 2.0 * f64::from(tile.m) * f64::from(tile.n) * f64::from(tile.k)
                / self.step_bytes(&tile),
            bytes_without_reuse: Bytes(without_reuse),
            bytes: Bytes(bytes),
            time: parts.together().max(machine.floor),
            limit: parts.limit(),
            parts,
        }
    }

    /// Bytes from memory if every block read for itself, and with the second-level cache.
    fn traffic(&self, machine: &Machine, tile: &Tile, [rows, columns]: [u64; 2], slots: u64) -> (f64, f64) {
        let (m, n, k) = (as_f64(self.m), as_f64(self.n), as_f64(self.k));
        let (a, b, c) = (m * k * self.activation, n * k * self.weight, m * n * self.activation);
        let without = a * as_f64(columns) + b * as_f64(rows) + c;
        // Sums of the parts, in 32 bits: written once and read once, in the cache where they fit.
        let sums = if tile.split > 1 { 2.0 * f64::from(tile.split) * m * n * 4.0 } else { 0.0 };
        let sums = if sums > machine.cache / 2.0 { sums } else { 0.0 };
        if a.min(b) <= machine.cache / 2.0 {
            return (without + sums, a + b + c + sums);
        }
        let together = (slots / u64::from(tile.split)).max(1);
        let patch = |down: u64| {
            let across = (together / down).clamp(1, columns);
            a * as_f64(columns.div_ceil(across)) + b * as_f64(rows.div_ceil(down))
        };
        let most = rows.min(together);
        let powers = (0..63).map(|power| 1_u64 << power).take_while(|down| *down < most);
        let read = powers.chain([most]).map(patch).fold(f64::INFINITY, f64::min);
        (without + sums, read + c + sums)
    }
}

impl Parts {
    fn together(&self) -> Seconds {
        let fourth = |part: Seconds| part.get().powi(super::OVERLAP_EXPONENT);
        let root = (fourth(self.compute) + fourth(self.shared) + fourth(self.memory)).sqrt().sqrt();
        // Tiny parts underflow when raised to the fourth.
        self.launch + Seconds(root).max(self.compute).max(self.shared).max(self.memory)
    }

    fn limit(&self) -> TileLimit {
        let parts = [
            (self.launch, TileLimit::Launch),
            (self.shared, TileLimit::SharedMemory),
            (self.memory, TileLimit::Dram),
            (self.compute, TileLimit::Compute),
        ];
        let most = parts.into_iter().max_by(|a, b| a.0.get().total_cmp(&b.0.get()));
        most.map_or(TileLimit::Compute, |(_, limit)| limit)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of tiles and sizes")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests;
