//! Ceilings and kernel costs at an operating point: measured there, carried there, or from the data sheet.

use std::borrow::Cow;

use super::{ReferenceReading, Snapshot};
use crate::calibration::{Accelerator, CalibrationRecord, Regime, regime_key};
use crate::costs::engine_costs;
use crate::cpu::{self, Host, Processor};
use crate::power::{PowerCosts, PowerSource, power_of};
use crate::{Engine, EngineProfile};
use rooflined_core::board::{ActiveMode, Board, BoardState, Knob, OperatingPoint, PowerMode};
use rooflined_core::ceilings::{Roofline, datasheet, scaling};
use rooflined_core::hardware::{Hardware, Kind};
use rooflined_core::units::{Bytes, Hertz, Seconds};

/// A GPU that is throttled and at least this busy runs at the clock it shows; below, the clock is an idle one.
const UNDER_LOAD: f64 = 0.5;
/// Points that differ by less than this are the same: clocks are rounded to the steps of a table.
const SAME_POINT: f64 = 0.01;
/// Checkpoints that llama.cpp is told to keep for each slot. It makes two in a turn of a chat, before the last message and near
/// the end of the prompt, and its own limit is 32 (llama-cpp-python 0.3.36: tools/server/server-context.cpp, common/common.h).
pub const CHECKPOINTS: u64 = 2;

/// What predictions are for: the choice of the configuration where the board has it, else the GPU of a board that
/// shares its memory with the CPU. A GPU that the registry does not know has no ceilings to predict from.
#[must_use]
pub fn accelerator(board: &Board, hardware: Option<&Hardware>, chosen: Option<Accelerator>) -> Accelerator {
    let described = hardware.filter(|hardware| hardware.kind != Kind::Cpu && board.gpu.known().is_some());
    let Some(hardware) = described else { return Accelerator::Cpu };
    let usual = if hardware.kind == Kind::Integrated { Accelerator::Gpu } else { Accelerator::Cpu };
    chosen.unwrap_or(usual)
}

/// The lower of two clocks of which either may be open.
fn lower(one: Option<Hertz>, other: Option<Hertz>) -> Option<Hertz> {
    one.into_iter().chain(other).reduce(Hertz::min)
}

/// What the memory clock that is read tells beside the mode in force.
struct MemoryClock {
    /// The highest that this board's memory runs at, as far as anything tells.
    highest: Option<Hertz>,
    /// The clock in force, where it is below what the mode in force asks for: firmware holds it there.
    held: Option<Hertz>,
}

impl MemoryClock {
    fn of(board: &Board, state: &BoardState, hardware: Option<&Hardware>) -> Self {
        let told = lower(board.memory_clock_max, hardware.and_then(|hardware| hardware.memory_clock));
        // Of an uncapped mode and of one with a cap alike the kernel tells what comes of it and of the firmware's limit.
        let active = state.power_mode.known().and_then(|active| board.modes.known()?.get(active));
        let asked = active.and_then(|mode| lower(mode.memory_max, told));
        let in_force = state.memory_clock_cap.known().filter(|clock| clock.is_positive());
        let held = in_force.zip(asked).filter(|(now, asked)| now.get() < asked.get() * (1.0 - SAME_POINT));
        let held = held.map(|(now, _)| *now);
        Self { highest: held.or(told), held }
    }
}

/// What is to be said of the clocks that `mode` gets: what keeps one below its cap, or that nobody knows.
#[must_use]
pub fn clock_notes(
    board: &Board,
    state: &BoardState,
    hardware: Option<&Hardware>,
    mode: &PowerMode,
) -> Vec<String> {
    let mut notes = Vec::new();
    if mode.knob != Knob::Nvpmodel {
        return notes;
    }
    let above = |clock: Hertz, limit: Hertz| clock.get() > limit.get() * (1.0 + SAME_POINT);
    let table = board.gpu.known().and_then(|gpu| gpu.clocks.last().copied());
    if let Some((cap, highest)) = mode.gpu_max.zip(table).filter(|(cap, highest)| above(*cap, *highest)) {
        notes.push(format!("the GPU's table of clocks ends at {highest}, below the {cap} of this mode"));
    }
    let nominal = hardware.and_then(|hardware| hardware.memory_clock);
    let MemoryClock { highest, held } = MemoryClock::of(board, state, hardware);
    let (Some(asked), Some(highest)) = (lower(mode.memory_max, nominal), highest) else { return notes };
    let in_force = state.memory_clock_cap.known();
    if above(asked, highest) {
        let why =
            if held.is_some() { "the active mode allows no more" } else { "the firmware allows no more" };
        notes.push(format!("the memory clock stays at {highest}, below the {asked} of this mode: {why}"));
    } else if board.memory_clock_max.is_none() && in_force.is_some_and(|now| above(asked, *now)) {
        notes.push(format!(
            "nothing confirms a memory clock of {asked}: the active mode caps it lower, and what the firmware allows is \
             for root only"
        ));
    }
    notes
}

/// The point that `mode` makes of this board: its caps, but no more than the board can do. In the mode in force these are
/// the caps that are in force, unless cooling lowers them.
#[must_use]
pub fn point_in(
    board: &Board,
    state: &BoardState,
    hardware: Option<&Hardware>,
    mode: &PowerMode,
) -> OperatingPoint {
    let caps = mode.operating_point();
    let gpu = board.gpu.known();
    let table = gpu.map_or(&[][..], |gpu| &gpu.clocks);
    let highest = table.last().copied().or_else(|| gpu?.max_clock.known().copied());
    let sm = caps.sm_online.or_else(|| Some(hardware?.mode(&mode.name)?.sm_online));
    let can = OperatingPoint {
        // Thor's file gates units by a number that means nothing by itself; the vendor's table tells how many.
        // A module with clusters fused off has fewer than the mask leaves.
        sm_online: sm.map(|sm| hardware.map_or(sm, |hardware| sm.min(hardware.sm))),
        gpu_clock: lower(caps.gpu_clock, highest).map(|clock| admitted(clock, table)),
        memory_clock: lower(caps.memory_clock, MemoryClock::of(board, state, hardware).highest),
        cpu_clock: lower(
            caps.cpu_clock,
            board.cpu.max_clock.known().copied().filter(|clock| clock.is_positive()),
        ),
        ..caps
    };
    let active = state.power_mode.known().is_some_and(|active| mode.is(active));
    if active && !is_throttled(state) { or(state.operating_point(), can) } else { can }
}

/// The highest clock of the driver's table that `cap` admits; the cap itself where there is no table.
fn admitted(cap: Hertz, table: &[Hertz]) -> Hertz {
    let within = |clock: &&Hertz| clock.get() <= cap.get() * (1.0 + SAME_POINT);
    table.iter().rev().find(within).or(table.first()).copied().unwrap_or(cap)
}

/// What `point` leaves open is as in `other`.
fn or(point: OperatingPoint, other: OperatingPoint) -> OperatingPoint {
    OperatingPoint {
        power_mode: point.power_mode.or(other.power_mode),
        sm_online: point.sm_online.or(other.sm_online),
        gpu_clock: point.gpu_clock.or(other.gpu_clock),
        memory_clock: point.memory_clock.or(other.memory_clock),
        cpu_clock: point.cpu_clock.or(other.cpu_clock),
        cores_online: point.cores_online.or(other.cores_online),
    }
}

fn is_throttled(state: &BoardState) -> bool {
    state.throttle.known().is_some_and(|throttle| throttle.active)
}

/// The point that answers hold for now: the caps in force; while the board throttles under load, the clock it shows.
#[must_use]
pub fn point_now(board: &Board, state: &BoardState, hardware: Option<&Hardware>) -> OperatingPoint {
    let mut point = state.operating_point();
    // A cap that cannot be read is the one that the active mode set, not the board's highest.
    let active = state.power_mode.known().and_then(|active| board.modes.known()?.get(active));
    if let Some(mode) = active {
        point = or(point, point_in(board, state, hardware, mode));
    }
    let throttled = is_throttled(state);
    let busy = state.gpu_load.known().is_some_and(|load| *load >= UNDER_LOAD);
    if throttled
        && busy
        && let Some(clock) = state.gpu_clock.known().filter(|clock| clock.is_positive())
    {
        point.gpu_clock = Some(point.gpu_clock.map_or(*clock, |cap| cap.min(*clock)));
    }
    point
}

/// The point with what it leaves open filled in from the hardware's own limits.
fn complete(point: &OperatingPoint, hardware: &Hardware) -> OperatingPoint {
    OperatingPoint {
        sm_online: point.sm_online.or(Some(hardware.sm)),
        gpu_clock: point.gpu_clock.or(Some(hardware.gpu_clock)),
        memory_clock: point.memory_clock.or(hardware.memory_clock),
        ..point.clone()
    }
}

/// How far two complete points are apart, in natural logarithms of clocks and units; CPU clocks do not matter to a GPU.
#[must_use]
pub fn distance(a: &OperatingPoint, b: &OperatingPoint) -> f64 {
    let clock = |a: Option<Hertz>, b: Option<Hertz>| match (a, b) {
        (Some(a), Some(b)) if a.is_positive() && b.is_positive() => (a / b).ln().abs(),
        _ => 0.0,
    };
    let units = match (a.sm_online, b.sm_online) {
        (Some(a), Some(b)) if a > 0 && b > 0 => (f64::from(a) / f64::from(b)).ln().abs(),
        _ => 0.0,
    };
    clock(a.gpu_clock, b.gpu_clock) + clock(a.memory_clock, b.memory_clock) + units
}

/// The regime measured closest to `point`, and how far away that is. Of several the newest.
fn nearest<'a>(
    record: &'a CalibrationRecord,
    point: &OperatingPoint,
    hardware: &Hardware,
) -> Option<(&'a Regime, OperatingPoint, f64)> {
    let candidates = record.regimes.iter().filter_map(|regime| {
        let from = complete(regime.point.as_ref()?, hardware);
        let apart = distance(&from, point);
        Some((regime, from, apart))
    });
    candidates.min_by(|a, b| a.2.total_cmp(&b.2))
}

/// Ceilings and kernel costs of a GPU at `point`.
#[must_use]
pub fn gpu_model(
    hardware: &Hardware,
    record: Option<&CalibrationRecord>,
    point: &OperatingPoint,
) -> (Roofline, EngineProfile) {
    let point = complete(point, hardware);
    match record.and_then(|record| nearest(record, &point, hardware)) {
        Some((regime, _, apart)) if apart < SAME_POINT => (regime.roofline.clone(), regime.profile.clone()),
        Some((regime, from, _)) => {
            (scaling::carry(&regime.roofline, &from, &point, hardware), regime.profile.clone())
        }
        None => (datasheet(hardware, &point), EngineProfile::unknown(Engine::Bare)),
    }
}

impl Snapshot {
    /// Ceilings and kernel costs at another point of this machine's GPU; `None` where the CPU is the accelerator.
    #[must_use]
    pub fn gpu_at(&self, point: &OperatingPoint) -> Option<(Roofline, EngineProfile)> {
        let hardware = self.hardware.as_deref()?;
        (self.accelerator == Accelerator::Gpu).then(|| gpu_model(hardware, self.calibration.as_ref(), point))
    }

    /// What power costs this machine's accelerator at the point that `roofline` holds for: measured here, at this point or
    /// at others; else what others measured of such a machine; `None` where nobody did. The two are never mixed: they may be of
    /// different rails.
    #[must_use]
    pub fn power_costs(&self, roofline: &Roofline) -> Option<PowerCosts> {
        let measured = self.calibration.as_ref().and_then(|record| record.power.as_ref());
        let hardware = self.hardware.as_deref().filter(|_| self.accelerator == Accelerator::Gpu);
        match measured.and_then(|file| file.at(roofline, PowerSource::Measured)) {
            Some(costs) => Some(match hardware {
                Some(hardware) => costs.of_module(hardware),
                None => costs,
            }),
            None => power_of(hardware, roofline),
        }
    }

    /// The calibrated kernels that passes of a model are summed from, given those of an operating point; `None` where the
    /// engine's own costs are known better.
    #[must_use]
    pub fn kernels<'a>(&self, profile: &'a EngineProfile, engine: Engine) -> Option<Cow<'a, EngineProfile>> {
        // A CPU's cores are calibrated; what an engine makes of them is its own.
        if self.accelerator == Accelerator::Cpu && cpu::has_costs(engine) {
            return None;
        }
        // Kernels calibrated on this machine say more than what an engine took on others.
        let own = engine == Engine::Bare && !profile.formats.is_empty();
        if self.accelerator == Accelerator::Gpu && !own {
            return None;
        }
        Some(if engine == profile.engine {
            Cow::Borrowed(profile)
        } else {
            Cow::Owned(profile.clone().lent_to(engine))
        })
    }

    /// The CPU as an engine's kernels see it, with that many threads; `None` where a GPU is the accelerator, or the engine has no
    /// costs on CPUs.
    #[must_use]
    pub fn cpu_host(&self, engine: Engine, threads: Option<u32>) -> Option<Host> {
        if self.accelerator == Accelerator::Gpu || !cpu::has_costs(engine) {
            return None;
        }
        let of = &self.board.cpu;
        let regime = self.calibration.as_ref().and_then(CalibrationRecord::current);
        let roofline = regime.map_or(&self.roofline, |regime| &regime.roofline);
        let flops_per_cycle = cpu::fp32_per_cycle(roofline, roofline.workers.min(self.physical_cores()));
        let far = match &self.reference {
            Some(reading) => regime_key(&reading.reference) == "far",
            None => regime.is_some_and(|regime| regime.key == "far"),
        };
        let name = of.model.known().map(String::as_str);
        Some(Host {
            processor: Processor::of(name, &of.features, flops_per_cycle),
            cores: self.physical_cores(),
            threads,
            far,
            costs: None,
        })
    }

    /// Physical cores that can run threads: as many as an engine starts where nobody says.
    #[must_use]
    pub fn physical_cores(&self) -> u32 {
        let cores = self.board.cpu.cores.known().copied().unwrap_or(self.board.cpu.logical);
        let online = self.state.cores_online.known().copied().unwrap_or(u32::MAX);
        cores.min(online).max(1)
    }

    /// The newest reference read over that of a calibration under the same conditions: the power mode, and on a CPU the cap on
    /// its clock and the regime. `None` where nothing was calibrated under them, because the bandwidth of another mode differs
    /// by design, and where caps, units or throttling have changed since the read.
    #[must_use]
    pub fn drift(&self) -> Option<f64> {
        self.drift_of(self.reference.as_ref()?)
    }

    /// The same of a given reading.
    #[must_use]
    pub fn drift_of(&self, reading: &ReferenceReading) -> Option<f64> {
        let now = ReferenceReading::new(reading.at, reading.reference, &self.state);
        let is_same = |regime: &&Regime| match self.accelerator {
            Accelerator::Gpu => {
                regime.point.as_ref().and_then(|point| point.power_mode.as_ref())
                    == reading.point.power_mode.as_ref()
            }
            Accelerator::Cpu => {
                regime.key == regime_key(&reading.reference) && regime.clock_cap == reading.point.cpu_clock
            }
        };
        let regime = self.calibration.as_ref()?.regimes.iter().find(is_same).filter(|_| now == *reading)?;
        let ratio = reading.reference.read / regime.reference.read;
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// The [drift](Self::drift) of a reading as young as `within`: part of the bandwidth that others leave.
    #[must_use]
    pub fn memory_ratio(&self, within: Seconds) -> Option<f64> {
        let young = |reading: &&ReferenceReading| self.taken_at - reading.at <= within;
        self.reference.as_ref().filter(young).and_then(|_| self.drift())
    }

    /// Memory that an engine takes for itself: on a GPU a context, kernels and work space; kernels of this crate keep
    /// nothing of their own.
    #[must_use]
    pub fn engine_memory(&self, engine: Engine) -> Bytes {
        let hardware = self.hardware.as_deref().map(|hardware| hardware.key.as_str());
        match self.accelerator {
            Accelerator::Gpu => Bytes(engine_costs(engine, hardware).memory_bytes),
            Accelerator::Cpu => Bytes::ZERO,
        }
    }

    /// Checkpoints of a sequence that an engine keeps in the memory of the model: llama.cpp has them in that of the CPU.
    #[must_use]
    pub fn checkpoints(&self, engine: Engine) -> u64 {
        let is_card = self.hardware.as_deref().is_some_and(|hardware| hardware.kind == Kind::Discrete);
        let is_elsewhere = self.accelerator == Accelerator::Gpu && is_card;
        if engine == Engine::LlamaCpp && !is_elsewhere { CHECKPOINTS } else { 0 }
    }

    /// The mode of that name or number with what it would give.
    #[must_use]
    pub fn mode(&self, name: &str) -> Option<&super::ModeView> {
        let named = self.board.mode(name).map(PowerMode::key);
        // The registry spells modes as forgivingly as people do.
        let nominal = || {
            let mode = self.hardware.as_deref().filter(|_| self.is_hypothetical())?.mode(name)?;
            Some(ActiveMode { id: mode.id, name: mode.name.clone() })
        };
        let wanted = named.or_else(nominal)?;
        self.modes.iter().find(|view| view.mode.is(&wanted))
    }
}
