//! What power costs on a board: its own file, or that of the nearest relative of which somebody published measurements.
//!
//! A relative's coefficients are carried by the chip (SMs, width of the memory) and by the operating point (clock, SMs
//! online). Whole modules alone are carried: what limits a board is its module, and a part of its rails is no bound.

use super::table::{PowerTable, table, tables};
use super::{PowerCosts, Rails, budget};
use roofline::ceilings::Roofline;
use roofline::hardware::{Hardware, Kind, registry};

/// Half-width of what is carried from another board with the same silicon. A guess: of the three figures that a maker of
/// carrier boards published of an Orin NX, which are no runs of models, the one farthest off was 25 % off.
const KIN: f64 = 0.6;
/// The same from other silicon. A guess: nothing public tells.
const STRANGER: f64 = 1.0;

/// The coefficients of a machine at the point that `roofline` holds for, within the budget of that point; `None` of a card
/// or CPU that nobody measured.
#[must_use]
pub fn power_of(hardware: Option<&Hardware>, roofline: &Roofline) -> Option<PowerCosts> {
    let hardware = hardware?;
    let costs = match table(&hardware.key) {
        Some(table) => table.at(roofline)?,
        None => carried(hardware, roofline)?,
    };
    Some(match budget(hardware, roofline) {
        Some(budget) => costs.within(budget, roofline),
        None => costs,
    })
}

/// The same of the whole machine, before any budget: what a part of the rails takes is no bound on it, and neither is what
/// its maker calls a mode.
#[must_use]
pub fn whole_power_of(hardware: &Hardware, roofline: &Roofline) -> Option<PowerCosts> {
    let own = table(&hardware.key).filter(|table| {
        hardware.kind == Kind::Discrete || matches!(table.file().rails, Rails::Module | Rails::System)
    });
    match own {
        Some(table) => table.at(roofline),
        None => carried(hardware, roofline),
    }
}

/// A file of a whole module and its hardware.
struct Relative {
    table: &'static PowerTable,
    hardware: &'static Hardware,
    kin: bool,
}

/// Same silicon first, then the most similar chip.
fn relative(hardware: &Hardware) -> Option<Relative> {
    let modules = tables().filter(|table| table.file().rails == Rails::Module).filter_map(|table| {
        let known = registry().get(&table.file().hardware)?;
        let kin = known.compute_capability == hardware.compute_capability;
        (known.kind == Kind::Integrated).then_some(Relative { table, hardware: known, kin })
    });
    let apart = |of: &Relative| {
        let [sm, bus] = sizes(hardware, of.hardware);
        sm.ln().abs() + bus.ln().abs()
    };
    modules.min_by(|a, b| b.kin.cmp(&a.kin).then(apart(a).total_cmp(&apart(b))))
}

/// How many times the SMs and the memory width of another chip.
fn sizes(hardware: &Hardware, other: &Hardware) -> [f64; 2] {
    let ratio = |a: u32, b: u32| f64::from(a.max(1)) / f64::from(b.max(1));
    [ratio(hardware.sm, other.sm), ratio(hardware.bus_bits, other.bus_bits)]
}

fn carried(hardware: &Hardware, roofline: &Roofline) -> Option<PowerCosts> {
    if hardware.kind != Kind::Integrated {
        return None;
    }
    let relative = relative(hardware)?;
    let mut costs = relative.table.at(roofline)?;
    let [sm, bus] = sizes(hardware, relative.hardware);
    let of = &mut costs.coefficients;
    // Idle cores and idle memory take about as much; an Orin NX with half of both takes 4.6 of an AGX Orin's 11.2 W.
    of.static_w *= f64::midpoint(sm, bus);
    let rate = |of: &Hardware| of.rates.get(&costs.flop_precision).copied();
    if let (Some(own), Some(others)) = (rate(hardware), rate(relative.hardware)) {
        // Between as much for each operation and as much for each cycle, as of other precisions.
        of.flop_j = of.flop_j.map(|flop| flop * (others / own).sqrt());
    }
    costs.half_width_ratio = if relative.kin { KIN } else { STRANGER };
    costs.carried = true;
    let silicon = if relative.kin { "the same silicon" } else { "other silicon" };
    costs.warnings = vec![format!(
        "nobody published the power of {}: it is carried from {}, {silicon}, by SMs, clocks and memory width, and may be \
         {:.0} % off",
        hardware.key,
        relative.hardware.key,
        costs.half_width_ratio * 100.0
    )];
    Some(costs)
}
