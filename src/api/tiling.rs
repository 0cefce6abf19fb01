//! `POST /v1/tiling`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ErrorBody, OperatingPointRequest};
use crate::board::OperatingPoint;
use crate::hardware::{Hardware, NominalMode, Registry};
use crate::precision::{NumericFormat, UnknownName, WeightFormat, nearest};
use crate::predict::tiling::{Candidate, REGISTERS, SmLimits, Tiling, TilingError, tiling};
use crate::roofline::{Roofline, datasheet};
use crate::units::{Bytes, Hertz};
use crate::workload::InvalidOp;

/// Candidates where the request does not say how many.
pub const DEFAULT_TILES: u64 = 8;
/// Most candidates of one answer; there are no more than blocks and splits.
pub const MOST_TILES: u64 = 128;

/// `POST /v1/tiling`: how to cut an `m x n x k` product.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TilingRequest {
    /// A hardware key; absent = this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Absent = now; of other hardware, its reference clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Rows.
    pub m: u64,
    /// Columns.
    pub n: u64,
    /// Common dimension.
    pub k: u64,
    /// Storage of the weights, the `n x k` operand; absent = fp16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// How many candidates, 1 to 128; absent = 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// `POST /v1/tiling`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TilingAnswer {
    /// Key of the hardware.
    pub hardware: String,
    /// Its name.
    pub name: String,
    /// Multiprocessors at work.
    pub sm_online: u32,
    /// Their clock.
    pub gpu_hz: Option<f64>,
    /// Storage of the weights.
    pub format: String,
    /// What it is computed in.
    pub compute: String,
    /// Limits of a multiprocessor.
    pub limits: SmLimitsAnswer,
    /// Second-level cache.
    pub l2_bytes: Option<f64>,
    /// The plain physical bound.
    pub roofline_time_s: f64,
    /// Fastest first: the best variant of each block and split.
    pub candidates: Vec<TileAnswer>,
    /// Why the first is first.
    pub reason: String,
    /// Variants looked at.
    pub considered: usize,
    /// Variants that do not fit, by what they need too much of.
    pub rejected: BTreeMap<String, usize>,
    /// Values are simulated.
    #[serde(default)]
    pub simulated: bool,
    /// Of the snapshot; 0 without a daemon.
    pub serial: u64,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// What one multiprocessor holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SmLimitsAnswer {
    /// CUDA compute capability.
    pub compute_capability: String,
    /// Resident threads.
    pub threads: u32,
    /// Resident blocks.
    pub blocks: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Shared memory.
    pub shared_memory_bytes: u32,
    /// Shared memory of one block.
    pub block_shared_memory_bytes: u32,
    /// Shared memory that the system takes beside each block's own.
    pub reserved_shared_memory_bytes: u32,
}

/// One way to cut the product.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TileAnswer {
    /// Rows of a block.
    pub m: u32,
    /// Columns of a block.
    pub n: u32,
    /// Step along the common dimension.
    pub k: u32,
    /// Buffers of operands.
    pub stages: u32,
    /// Warps of a block.
    pub warps: u32,
    /// Parts that the common dimension is cut into.
    pub split_k: u32,
    /// Blocks in all.
    pub tiles: u64,
    /// Rounds in which all places are filled.
    pub waves: f64,
    /// Part of the rounds that is filled.
    pub wave_efficiency_ratio: f64,
    /// Part of the arithmetic that is not padding.
    pub tile_efficiency_ratio: f64,
    /// Shared memory of a block.
    pub shared_memory_bytes: u32,
    /// Registers of a thread, estimated.
    pub registers_per_thread: u32,
    /// Blocks resident on a multiprocessor.
    pub resident_blocks: u32,
    /// `blocks`, `threads`, `shared_memory` or `registers`.
    pub resident_limited_by: String,
    /// Resident warps over the most there can be.
    pub occupancy_ratio: f64,
    /// What one block reads.
    pub tile_bytes: f64,
    /// Operations for a byte that a block reads.
    pub tile_intensity_flops_per_byte: f64,
    /// From memory if every block read for itself.
    pub dram_without_reuse_bytes: f64,
    /// From memory with the second-level cache.
    pub dram_bytes: f64,
    /// The former over the latter.
    pub l2_reuse_ratio: f64,
    /// Estimated time; a ranking, not a measurement.
    pub time_s: f64,
    /// Of it, starting.
    pub launch_s: f64,
    /// Arithmetic; it overlaps with the next two.
    pub compute_s: f64,
    /// Shared memory.
    pub shared_memory_s: f64,
    /// Main memory.
    pub dram_s: f64,
    /// `compute`, `shared_memory`, `dram` or `launch`.
    pub limit: String,
    /// What is lost, in words.
    pub reason: String,
}

impl From<&Candidate> for TileAnswer {
    fn from(candidate: &Candidate) -> Self {
        let (tile, parts) = (candidate.tile, candidate.parts);
        Self {
            m: tile.m,
            n: tile.n,
            k: tile.k,
            stages: tile.stages,
            warps: tile.warps,
            split_k: tile.split,
            tiles: candidate.tiles,
            waves: candidate.waves,
            wave_efficiency_ratio: candidate.wave_efficiency,
            tile_efficiency_ratio: candidate.tile_efficiency,
            shared_memory_bytes: candidate.shared_memory,
            registers_per_thread: candidate.registers,
            resident_blocks: candidate.resident,
            resident_limited_by: candidate.limited_by.key().to_owned(),
            occupancy_ratio: candidate.occupancy,
            tile_bytes: candidate.tile_bytes.get(),
            tile_intensity_flops_per_byte: candidate.tile_intensity,
            dram_without_reuse_bytes: candidate.bytes_without_reuse.get(),
            dram_bytes: candidate.bytes.get(),
            l2_reuse_ratio: candidate.bytes_without_reuse / candidate.bytes,
            time_s: candidate.time.get(),
            launch_s: parts.launch.get(),
            compute_s: parts.compute.get(),
            shared_memory_s: parts.shared.get(),
            dram_s: parts.memory.get(),
            limit: candidate.limit.key().to_owned(),
            reason: candidate.reason(),
        }
    }
}

impl TilingAnswer {
    /// In the shape of the wire, the first `limit` candidates of it.
    #[must_use]
    pub fn new(
        hardware: &Hardware,
        roofline: &Roofline,
        format: WeightFormat,
        tiling: &Tiling,
        limit: u64,
    ) -> Self {
        let shown = usize::try_from(limit).unwrap_or(usize::MAX);
        let candidates: Vec<TileAnswer> =
            tiling.candidates.iter().take(shown).map(TileAnswer::from).collect();
        let rejected =
            [("shared_memory", tiling.too_much_shared_memory), ("registers", tiling.too_many_registers)];
        Self {
            hardware: hardware.key.clone(),
            name: hardware.name.clone(),
            sm_online: tiling.sm,
            gpu_hz: roofline.clock.map(Hertz::get),
            format: format.key().to_owned(),
            compute: tiling.compute.key().to_owned(),
            limits: SmLimitsAnswer::new(hardware.compute_capability, &tiling.limits),
            l2_bytes: hardware.l2.map(Bytes::get),
            roofline_time_s: tiling.roofline_time.get(),
            reason: reason(&tiling.candidates),
            candidates,
            considered: tiling.considered,
            rejected: rejected.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            simulated: false,
            serial: 0,
            warnings: tiling.warnings.clone(),
        }
    }
}

impl SmLimitsAnswer {
    fn new(capability: Option<(u32, u32)>, limits: &SmLimits) -> Self {
        Self {
            compute_capability: capability
                .map(|(major, minor)| format!("{major}.{minor}"))
                .unwrap_or_default(),
            threads: limits.threads,
            blocks: limits.blocks,
            registers: REGISTERS,
            shared_memory_bytes: limits.shared_memory,
            block_shared_memory_bytes: limits.block_shared_memory,
            reserved_shared_memory_bytes: limits.reserved_shared_memory,
        }
    }
}

/// The best beside the runner-up.
fn reason(candidates: &[Candidate]) -> String {
    let name = |candidate: &Candidate| {
        let tile = candidate.tile;
        let split = if tile.split > 1 { format!(" in {} parts of k", tile.split) } else { String::new() };
        format!("{}x{}{split}", tile.m, tile.n)
    };
    let Some(best) = candidates.first() else { return String::new() };
    let mut text = format!("{}: {}", name(best), best.reason());
    if let Some(next) = candidates.get(1) {
        let slower = 100.0 * (next.time / best.time - 1.0);
        text.push_str(&format!(". Next: {}, {slower:.1} % slower: {}", name(next), next.reason()));
    }
    text.push('.');
    text
}

impl TilingRequest {
    /// Answers for hardware of the registry, from its data sheet.
    ///
    /// # Errors
    /// Unknown hardware, mode or format, an impossible size or clock, or hardware that has no tiles.
    pub fn on_registered(&self, registry: &Registry) -> Result<TilingAnswer, ErrorBody> {
        let key: String = self.hardware.as_deref().unwrap_or_default().chars().take(40).collect();
        let hardware = registry.get(&key).ok_or_else(|| {
            refused(
                "unknown_hardware",
                "hardware",
                format!("there is no hardware {key:?} in the registry"),
                format!("did you mean {}? rooflinectl hardware list shows all", registry.nearest(&key)),
            )
        })?;
        let point = match &self.operating_point {
            Some(request) => point(hardware, request)?,
            None => OperatingPoint::default(),
        };
        self.on(hardware, &datasheet(hardware, &point))
    }

    /// Answers for hardware whose ceilings at the operating point are known.
    ///
    /// # Errors
    /// An unknown format, an impossible size, or hardware that has no tiles.
    pub fn on(&self, hardware: &Hardware, roofline: &Roofline) -> Result<TilingAnswer, ErrorBody> {
        let format = self.format.as_deref().map_or(Ok(WeightFormat::Fp16), |name| {
            name.parse().map_err(|error: UnknownName| {
                let shown: String = name.chars().take(40).collect();
                refused(
                    "unknown_format",
                    "format",
                    format!("there is no format {shown:?}"),
                    format!("did you mean {:?}? GET /v1/formats lists all", error.nearest),
                )
            })
        })?;
        let limit = self.limit.unwrap_or(DEFAULT_TILES);
        if !(1..=MOST_TILES).contains(&limit) {
            return Err(refused(
                "invalid_field",
                "limit",
                format!("limit is {limit}; it must be from 1 to {MOST_TILES}"),
                "leave it out for 8",
            ));
        }
        let shape = [self.m, self.n, self.k];
        let tiling = tiling(hardware, roofline, shape, &NumericFormat::stored(format)).map_err(|error| {
            let (code, field) = match &error {
                TilingError::Op(InvalidOp::Dimension { field, .. }) => ("invalid_dimension", *field),
                TilingError::Op(InvalidOp::HeadGroups { .. }) => ("invalid_dimension", "m"),
                TilingError::Cpu { .. } | TilingError::UnknownCapability { .. } => {
                    ("unsupported_workload", "hardware")
                }
                TilingError::NoUnit { .. } => ("no_unit", "format"),
            };
            refused(code, field, error.to_string(), error.hint())
        })?;
        Ok(TilingAnswer::new(hardware, roofline, format, &tiling, limit))
    }
}

/// The point asked for; what it leaves open is the mode's, or the hardware's own highest.
fn point(hardware: &Hardware, request: &OperatingPointRequest) -> Result<OperatingPoint, ErrorBody> {
    let mut point = match &request.power_mode {
        None => OperatingPoint::default(),
        Some(name) => hardware.mode(name).map(NominalMode::operating_point).ok_or_else(|| {
            let names: Vec<&str> = hardware.modes.iter().map(|mode| mode.name.as_str()).collect();
            let shown: String = name.chars().take(40).collect();
            let hint = if names.is_empty() {
                "leave it out".to_owned()
            } else {
                format!(
                    "did you mean {:?}? There are {}",
                    nearest(&shown, names.iter().copied()),
                    names.join(", ")
                )
            };
            refused(
                "unknown_mode",
                "operating_point.power_mode",
                format!("{} has no power mode {shown:?}", hardware.name),
                hint,
            )
        })?,
    };
    if let Some(sm) = request.sm_online {
        if !(1..=hardware.sm).contains(&sm) {
            return Err(refused(
                "invalid_field",
                "operating_point.sm_online",
                format!("{sm} multiprocessors cannot be online: {} has {}", hardware.name, hardware.sm),
                format!("give 1 to {}", hardware.sm),
            ));
        }
        point.sm_online = Some(sm);
    }
    point.gpu_clock = clock("gpu_hz", request.gpu_hz, Some(hardware.gpu_clock))?.or(point.gpu_clock);
    point.memory_clock = clock("emc_hz", request.emc_hz, hardware.memory_clock)?.or(point.memory_clock);
    Ok(point)
}

/// A clock that the part could run at: a thousandth of its highest is MHz or kHz for Hz.
fn clock(name: &str, value: Option<f64>, highest: Option<Hertz>) -> Result<Option<Hertz>, ErrorBody> {
    let Some(value) = value else { return Ok(None) };
    let plausible =
        value > 0.0 && highest.is_none_or(|highest| (1e-3..=2.0).contains(&(value / highest.get())));
    if value.is_finite() && plausible {
        return Ok(Some(Hertz(value)));
    }
    Err(refused(
        "invalid_field",
        &format!("operating_point.{name}"),
        format!("{value} Hz is no clock of this hardware"),
        format!("give {name} in hertz: 1.02e9 is 1.02 GHz"),
    ))
}

fn refused(code: &str, field: &str, message: String, hint: impl Into<String>) -> ErrorBody {
    ErrorBody { code: code.to_owned(), message, field: Some(field.to_owned()), hint: Some(hint.into()) }
}
