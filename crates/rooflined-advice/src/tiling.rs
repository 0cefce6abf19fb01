//! Ways to cut a matrix product.

use super::modes::refuse_power_limit;
use super::task::model_at;
use rooflined_api::{
    DEFAULT_TILES, MOST_TILES, OperatingPointRequest, SmLimitsAnswer, TileAnswer, TilingAnswer, TilingRequest,
};
use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::{Roofline, datasheet};
use rooflined_core::hardware::{Hardware, NominalMode, Registry};
use rooflined_core::near::Near;
use rooflined_core::operation::InvalidOp;
use rooflined_core::precision::{NumericFormat, UnknownName, WeightFormat};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{Bytes, Hertz};
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::snapshot::Snapshot;
use rooflined_predict::tiling::{self, Candidate, REGISTERS, SmLimits, Tiling, TilingError};

/// `POST /v1/tiling`.
///
/// # Errors
/// As [`on_registered`]; also a machine without a GPU where no hardware is named.
pub fn tiling(
    snapshot: &Snapshot,
    registry: &Registry,
    request: &TilingRequest,
) -> Result<TilingAnswer, Refusal> {
    refuse_power_limit(request.operating_point.as_ref(), "operating_point")?;
    let other = request.hardware.as_deref().is_some_and(|key| key != snapshot.board.key);
    let mut answer = if other {
        on_registered(registry, request)?
    } else {
        let gpu = snapshot.hardware.as_deref().filter(|_| snapshot.accelerator == Accelerator::Gpu);
        let hardware = gpu.ok_or_else(|| {
            Code::UnsupportedWorkload.at(
                "hardware",
                "this machine's accelerator is its CPU, and tiles are a GPU's: a CPU's blocks follow its caches and \
                 are its library's choice",
                "name a GPU in hardware, such as jetson-orin-nano-8gb-super; for this CPU, rooflinectl compare gemm M \
                 N K measures",
            )
        })?;
        let model = model_at(snapshot, request.operating_point.as_ref(), "operating_point")?;
        TilingAnswer { simulated: snapshot.board.simulated, ..on(request, hardware, &model.roofline)? }
    };
    answer.serial = snapshot.serial;
    Ok(answer)
}

fn tile(candidate: &Candidate) -> TileAnswer {
    let (cut, parts) = (candidate.tile, candidate.parts);
    TileAnswer {
        m: cut.m,
        n: cut.n,
        k: cut.k,
        stages: cut.stages,
        warps: cut.warps,
        split_k: cut.split,
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

/// The first `limit` candidates in the shape of the wire.
fn tiling_answer(
    hardware: &Hardware,
    roofline: &Roofline,
    format: WeightFormat,
    tiling: &Tiling,
    limit: u64,
) -> TilingAnswer {
    let shown = usize::try_from(limit).unwrap_or(usize::MAX);
    let candidates: Vec<TileAnswer> = tiling.candidates.iter().take(shown).map(tile).collect();
    let rejected =
        [("shared_memory", tiling.too_much_shared_memory), ("registers", tiling.too_many_registers)];
    TilingAnswer {
        hardware: hardware.key.clone(),
        name: hardware.name.clone(),
        sm_online: tiling.sm,
        gpu_hz: roofline.clock.map(Hertz::get),
        format: format.key().to_owned(),
        compute: tiling.compute.key().to_owned(),
        limits: sm_limits(hardware.compute_capability, &tiling.limits),
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

fn sm_limits(capability: Option<(u32, u32)>, limits: &SmLimits) -> SmLimitsAnswer {
    SmLimitsAnswer {
        compute_capability: capability.map(|(major, minor)| format!("{major}.{minor}")).unwrap_or_default(),
        threads: limits.threads,
        blocks: limits.blocks,
        registers: REGISTERS,
        shared_memory_bytes: limits.shared_memory,
        block_shared_memory_bytes: limits.block_shared_memory,
        reserved_shared_memory_bytes: limits.reserved_shared_memory,
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

/// Answers for hardware of the registry, from its data sheet.
///
/// # Errors
/// Unknown hardware, mode or format, an impossible size or clock, or hardware that has no tiles.
pub fn on_registered(registry: &Registry, request: &TilingRequest) -> Result<TilingAnswer, Refusal> {
    let key = request.hardware.as_deref().unwrap_or_default();
    let hardware = registry
        .get(key)
        .ok_or_else(|| super::hardware::unknown(registry, Code::UnknownHardware, "hardware", key))?;
    let point = match &request.operating_point {
        Some(request) => point(hardware, request)?,
        None => OperatingPoint::default(),
    };
    on(request, hardware, &datasheet(hardware, &point))
}

/// Answers for hardware whose ceilings at the operating point are known.
fn on(request: &TilingRequest, hardware: &Hardware, roofline: &Roofline) -> Result<TilingAnswer, Refusal> {
    let format = request.format.as_deref().map_or(Ok(WeightFormat::Fp16), |name| {
        name.parse().map_err(|error: UnknownName| {
            let shown: String = name.chars().take(40).collect();
            Code::UnknownFormat.at(
                "format",
                format!("there is no format {shown:?}"),
                error.near.hint("GET /v1/formats lists all"),
            )
        })
    })?;
    let limit = request.limit.unwrap_or(DEFAULT_TILES);
    if !(1..=MOST_TILES).contains(&limit) {
        return Err(Code::InvalidField.at(
            "limit",
            format!("limit is {limit}; it must be from 1 to {MOST_TILES}"),
            "leave it out for 8",
        ));
    }
    let shape = [request.m, request.n, request.k];
    let tiling =
        tiling::tiling(hardware, roofline, shape, &NumericFormat::stored(format)).map_err(|error| {
            let (code, field) = match &error {
                TilingError::Op(InvalidOp::Dimension { field, .. }) => (Code::InvalidDimension, *field),
                TilingError::Op(InvalidOp::HeadGroups { .. }) => (Code::InvalidDimension, "m"),
                TilingError::Cpu { .. } | TilingError::UnknownCapability { .. } => {
                    (Code::UnsupportedWorkload, "hardware")
                }
                TilingError::NoUnit { .. } => (Code::NoUnit, "format"),
            };
            code.at(field, error.to_string(), error.hint())
        })?;
    Ok(tiling_answer(hardware, roofline, format, &tiling, limit))
}

/// The point asked for; what it leaves open is the mode's, or the hardware's own highest.
fn point(hardware: &Hardware, request: &OperatingPointRequest) -> Result<OperatingPoint, Refusal> {
    let mut point = match &request.power_mode {
        None => OperatingPoint::default(),
        Some(name) => hardware.mode(name).map(NominalMode::operating_point).ok_or_else(|| {
            let names: Vec<&str> = hardware.modes.iter().map(|mode| mode.name.as_str()).collect();
            let shown: String = name.chars().take(40).collect();
            let hint = if names.is_empty() {
                "leave it out".to_owned()
            } else {
                Near::of(&shown, names.iter().copied()).hint(&format!("its modes are {}", names.join(", ")))
            };
            Code::UnknownMode.at(
                "operating_point.power_mode",
                format!("{} has no power mode {shown:?}", hardware.name),
                hint,
            )
        })?,
    };
    if let Some(sm) = request.sm_online {
        if !(1..=hardware.sm).contains(&sm) {
            return Err(Code::InvalidField.at(
                "operating_point.sm_online",
                format!("{sm} SMs cannot be online: {} has {}", hardware.name, hardware.sm),
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
fn clock(name: &str, value: Option<f64>, highest: Option<Hertz>) -> Result<Option<Hertz>, Refusal> {
    let Some(value) = value else { return Ok(None) };
    let plausible =
        value > 0.0 && highest.is_none_or(|highest| (1e-3..=2.0).contains(&(value / highest.get())));
    if value.is_finite() && plausible {
        return Ok(Some(Hertz(value)));
    }
    Err(Code::InvalidField.at(
        format!("operating_point.{name}"),
        format!("{value} Hz is not a clock of this hardware"),
        format!("give {name} in hertz: 1.02e9 is 1.02 GHz"),
    ))
}
