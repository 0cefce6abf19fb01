//! What power costs on a board of the registry: by the file that its own rows went into, or that of its nearest relative.
//!
//! One file speaks for all boards of a family of silicon: what a cycle of a core, a byte, a weight and an operation take is
//! the same on each, and what a board draws beside them goes with its size. So a smaller module never draws more than a
//! larger one of its family with the same clocks and units.

use super::table::{Energies, Place, PowerFile, Reference, tables};
use super::{PowerCosts, PowerSource, Rails};
use rooflined_core::ceilings::Roofline;
use rooflined_core::hardware::{Hardware, Kind, registry};
use rooflined_core::precision::Precision;

/// Half-width that is added where energies are carried to another board with the same silicon. With it nine in ten decodes of an
/// Orin Nano and of an AGX Orin lie within the interval that the rows of the other give.
pub const KIN: f64 = 0.1;
/// The same from other silicon. A guess: one model on a Thor and idle boards of both Xaviers lie well within.
const STRANGER: f64 = 0.6;
/// The same from one card to another by their power limits. With it 48 of 54 decodes on a B200, an H100, an RTX 4090 and an RTX
/// 5090 lie within the interval that the rows of an RTX 3090 give (`rooflined-lab evaluate power`).
const CARD_STRANGER: f64 = 0.5;
/// The same from a card of the same compute capability. A guess: less than [`CARD_STRANGER`].
const CARD_KIN: f64 = 0.25;
/// The card whose rows say most: decodes of dense models and of mixtures, and prompts, each from 540 to 1935 MHz.
const CARD: &str = "rtx-3090";
/// Part of its power limit that a card draws whatever the clock of its cores. Watts against speed under power limits end at 0.13 for
/// an RTX 4090 (github.com/noonghunna/club-3090) and at 0.09 for an RTX PRO 6000, and kernels of an A100 and an H200 leave 0.14 to
/// 0.16 for this and for busy cores together. Of compute capability 8.6 the rows of the RTX 3090 say 0.32.
const CONSTANT: f64 = 0.12;
/// Silicon that draws more at idle than its size says: 24.6 W were seen of a Thor that did next to nothing, 14.5 W is what
/// an AGX Orin of that size would draw.
const HUNGRY: ((u32, u32), f64) = ((11, 0), 1.7);
/// What a GB10 takes beside the GPU that NVML tells of: `spark_hwmon` shows 25 W of the whole at 5 W of the GPU.
const BESIDE_GPU_W: f64 = 20.0;
/// Energy of a byte in memory that the meter of a GPU does not see; between the 24 and 106 pJ of an AGX Orin and a TX2.
const BESIDE_GPU_BYTE_J: f64 = 60e-12;
/// Half-width of both. A guess.
const BESIDE_GPU: f64 = 0.3;
/// How far above the power that its maker states a module goes: an AGX Orin of 60 W took 77 W at the socket in MLPerf's BERT
/// (github.com/mlcommons/inference_results_v1.1), which is 72 W of its rails.
const ABOVE_STATED: f64 = 1.25;
/// Slope and floor of the voltage by silicon. Of Jetsons the least error of boards that are left out, about what the rails of a
/// TX2 show: flat up to 0.58 of the highest clock, then up to 1.28 times. Of GB10 what sweeps of its clock give: 41 to 49 % less
/// at 2000 of 2495 MHz. Of cards what three sweeps give (RTX 3090, 5090, PRO 6000: 1.10 and 0.89, and three tenths of the power
/// without a voltage) with all of it under one voltage.
pub const JETSON_VOLTAGE: (f64, f64) = (0.4, 0.835);
const GB10: (f64, f64) = (1.2, 0.78);
const CARD_VOLTAGE: (f64, f64) = (0.8, 0.92);

/// Multiprocessors and sixteenths of the memory's bits: what is beside them on a module goes with both.
#[must_use]
pub fn size(hardware: &Hardware) -> f64 {
    f64::from(hardware.sm.max(1)) + f64::from(hardware.bus_bits) / 16.0
}

/// The highest clock of any board with the same silicon: the voltage of a clock is the same on all of them.
fn top_clock(hardware: &Hardware) -> f64 {
    // Cards of one generation are sold with clocks of their own.
    let kin =
        registry().entries().filter(|known| hardware.kind == Kind::Integrated && is_kin(known, hardware));
    kin.map(|known| known.gpu_clock.get()).fold(hardware.gpu_clock.get(), f64::max)
}

/// Whether it is a GB10, the one part whose CPU shares its memory and whose clocks are locked as those of a card are.
#[must_use]
pub fn is_gb10(hardware: &Hardware) -> bool {
    hardware.kind == Kind::Integrated && hardware.compute_capability == Some((12, 1))
}

fn is_kin(known: &Hardware, hardware: &Hardware) -> bool {
    known.kind == hardware.kind && known.compute_capability == hardware.compute_capability
}

impl Reference {
    /// The full configuration of a machine.
    #[must_use]
    pub fn of(hardware: &Hardware) -> Self {
        let (voltage_slope, voltage_floor) = match hardware.kind {
            Kind::Integrated if is_gb10(hardware) => GB10,
            Kind::Integrated => JETSON_VOLTAGE,
            _ => CARD_VOLTAGE,
        };
        Self {
            clock_hz: top_clock(hardware),
            workers: hardware.sm.max(1),
            memory_bytes_per_s: hardware.bandwidth.get(),
            size: size(hardware),
            voltage_slope,
            voltage_floor,
        }
    }
}

/// The costs of a machine at the point that `roofline` holds for, limited by what its maker allows it; `None` of a CPU that
/// nobody measured, and of a card whose power limit is not known.
#[must_use]
pub fn power_of(hardware: Option<&Hardware>, roofline: &Roofline) -> Option<PowerCosts> {
    let hardware = hardware?;
    Some(relative(hardware)?.carried_to(hardware, roofline)?.of_module(hardware))
}

impl PowerCosts {
    /// The same costs of the whole module that the accelerator is part of, with the most that this module can draw, which is
    /// the same at all of its operating points. A card is whole as it is, and what a meter behind the module covers has losses and parts
    /// that the limit does not.
    #[must_use]
    pub fn of_module(mut self, hardware: &Hardware) -> Self {
        if hardware.kind != Kind::Integrated || matches!(self.rails, Rails::System | Rails::Package) {
            return self;
        }
        if self.rails == Rails::Gpu {
            self.rails = Rails::Module;
            self.coefficients.idle_w += BESIDE_GPU_W;
            self.coefficients.static_w += BESIDE_GPU_W;
            self.coefficients.byte_j += BESIDE_GPU_BYTE_J;
            self.half_width_ratio = self.half_width_ratio.hypot(BESIDE_GPU);
            self.warnings.push(format!(
                "the meters of such boards see the GPU alone: {BESIDE_GPU_W} W and {:.0} pJ a byte are added for the rest of the module, \
                 which is a guess",
                BESIDE_GPU_BYTE_J * 1e12
            ));
        }
        self.cap = hardware.tdp.map(|stated| stated * ABOVE_STATED);
        "what the module can draw".clone_into(&mut self.cap_of);
        self
    }
}

/// The file for a machine, and how near it is.
struct Relative {
    file: &'static PowerFile,
    hardware: &'static Hardware,
    /// Its own rows went in.
    own: bool,
    /// The same silicon.
    kin: bool,
}

fn relative(hardware: &Hardware) -> Option<Relative> {
    let files = tables().filter_map(|file| {
        let known = registry().get(&file.hardware)?;
        let own = file.boards.contains(&hardware.key);
        let kin = is_kin(known, hardware);
        let stranger = match hardware.kind {
            Kind::Integrated => file.rails == Rails::Module,
            Kind::Discrete => known.key == CARD,
            Kind::Cpu => false,
        };
        let carried = (kin || stranger) && (hardware.kind != Kind::Discrete || speaks_of_models(file));
        (own || carried).then_some(Relative { file, hardware: known, own, kin })
    });
    files.max_by_key(|of| (of.own, of.kin))
}

/// Whether it tells what models take: the files of steady kernels know no weight that is unpacked.
fn speaks_of_models(file: &PowerFile) -> bool {
    file.energies.weight_j > 0.0
}

impl Relative {
    /// A card's share of its power limit at the same share of its bandwidth and of what its cores do is taken to be that of
    /// the card in the file.
    fn by_limit(&self, hardware: &Hardware, place: &Place) -> Option<PowerCosts> {
        let known = self.hardware;
        let share = hardware.tdp? / known.tdp?;
        let cycles = |of: &Hardware| f64::from(of.sm.max(1)) * of.gpu_clock.get();
        let rate = |of: &Hardware, precision| of.rates.get(&precision).map(|rate| rate * cycles(of));
        // What is said of INT8 holds for 16 and 32 bits on a card without it: the busiest unit counts.
        let precision = [self.file.flop_precision, Precision::Fp16, Precision::Fp32]
            .into_iter()
            .find(|precision| rate(hardware, *precision).is_some())?;
        let busiest = rate(known, self.file.flop_precision)? / rate(hardware, precision)?;
        let own = Reference::of(hardware);
        let per_cycle = share * cycles(known) / cycles(hardware);
        let of = &self.file.energies;
        let idle_w = if self.kin { of.idle_w * share } else { CONSTANT * hardware.tdp?.get() };
        let energies = Energies {
            idle_w,
            active_w: (of.idle_w + of.active_w) * share - idle_w,
            byte_j: of.byte_j * share * (known.bandwidth / hardware.bandwidth),
            flop_j: of.flop_j.map(|flop| flop * share * busiest),
            weight_j: of.weight_j * per_cycle,
            busy_w: of.busy_w.map(|busy| busy * share),
        };
        let coefficients = energies.at(&own.own_factors(place));
        // Where that is on the other card, whose clocks were measured.
        let there = Place {
            clock_hz: place.clock_hz * (known.gpu_clock / hardware.gpu_clock),
            workers: self.file.reference.workers,
            memory_bytes_per_s: self.file.reference.memory_bytes_per_s,
        };
        let costs = self.file.costs(&there, coefficients, PowerSource::Prior);
        Some(self.of_others(PowerCosts { cap: hardware.tdp, flop_precision: precision, ..costs }, hardware))
    }

    fn carried_to(&self, hardware: &Hardware, roofline: &Roofline) -> Option<PowerCosts> {
        let place = Place::of(roofline)?;
        if hardware.kind == Kind::Discrete && !self.own {
            return self.by_limit(hardware, &place);
        }
        let reference = &self.file.reference;
        let mut coefficients =
            self.file.energies.at(&reference.factors(&place, size(hardware), top_clock(hardware)));
        if !self.own && hardware.compute_capability == Some(HUNGRY.0) {
            let more = coefficients.idle_w * (HUNGRY.1 - 1.0);
            coefficients.idle_w += more;
            coefficients.static_w += more;
        }
        let rate = |of: &Hardware| of.rates.get(&self.file.flop_precision).copied();
        if let (Some(own), Some(others)) = (rate(hardware), rate(self.hardware)) {
            // Between as much for each operation and as much for each cycle, as of other precisions.
            coefficients.flop_j = coefficients.flop_j.map(|flop| flop * (others / own).sqrt());
        }
        let costs = self.file.costs(&place, coefficients, PowerSource::Prior);
        Some(if self.own { costs } else { self.of_others(costs, hardware) })
    }

    /// The same with what a board that was not measured may differ by.
    fn of_others(&self, mut costs: PowerCosts, hardware: &Hardware) -> PowerCosts {
        let card = hardware.kind == Kind::Discrete;
        let doubt = match (card, self.kin) {
            (false, true) => KIN,
            (false, false) => STRANGER,
            (true, true) => CARD_KIN,
            (true, false) => CARD_STRANGER,
        };
        costs.half_width_ratio = costs.half_width_ratio.hypot(doubt);
        costs.carried = true;
        let silicon = if self.kin { "the same silicon" } else { "other silicon" };
        let by = if card { "their power limits" } else { "cores, clocks and memory" };
        costs.warnings = vec![format!(
            "the power of {} is scaled from {} ({silicon}) by {by}, and may be {:.0} % off",
            hardware.key,
            self.hardware.key,
            costs.half_width_ratio * 100.0
        )];
        costs
    }
}
