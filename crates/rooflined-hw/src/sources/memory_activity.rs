//! How much of the memory clock's cycles move data, by Orin's central activity monitor.
//!
//! ```text
//! /sys/kernel/debug/cactmon/mc_all            cycles in a millisecond that moved data, so kHz; for root only
//! /sys/kernel/debug/bpmp/debug/clk/emc/rate   the memory clock in Hz; for root only
//! ```
//!
//! Other chips and releases have counters of another unit, which nobody has published: releases that count in kHz have
//! `nvpmodel_clk_cap`.

use crate::answers::{EACH_SECOND, File};
use crate::emc::BPMP_EMC;
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::state::detail;
use rooflined_core::board::identity::Chip;
use rooflined_core::board::{Reading, parse};
use rooflined_core::units::Hertz;

const MONITOR: &str = "/sys/kernel/debug/cactmon/mc_all";
/// Of the releases whose counter is in kHz.
const RELEASE: &str = "/sys/kernel/nvpmodel_clk_cap";
/// Two readings of one moment apart may exceed the whole by this.
const MOST: f64 = 1.1;
/// Counters without a known unit: Thor's, and that of JetPack 4.
const OTHERS: [&str; 2] =
    ["/sys/kernel/debug/bpmp/debug/actmon/mc_all_avg_activity", "/sys/kernel/actmon_avg_activity/mc_all"];

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let Some(chip) = context.chip else {
        let none = format!("no monitor of the memory's activity: {}", context.no_tegra);
        return found(move |_, state| detail!(state.emc_utilisation = Reading::absent(&none), None));
    };
    let other = OTHERS.into_iter().find(|path| context.has(path));
    // Chip and release are those whose counter is in kHz.
    let is_known = chip == Chip::Tegra234 && context.has(RELEASE);
    if is_known && context.root.path(MONITOR).is_file() {
        plan.add_origin("emc_utilisation", format!("{MONITOR}, {BPMP_EMC}/rate"));
    }
    plan.read([File::of_driver(MONITOR).every(EACH_SECOND), File::of_driver(format!("{BPMP_EMC}/rate"))]);
    found(move |answers, state| {
        let reading = match answers.value(MONITOR, "a count in kHz", parse::unsigned) {
            Reading::Known(_) if !is_known => {
                Reading::absent(format!("the unit of {MONITOR} is known of Orin with {RELEASE} alone"))
            }
            Reading::Known(busy) => {
                match answers.value(&format!("{BPMP_EMC}/rate"), "a clock in Hz", parse::hertz) {
                    Reading::Known(clock) => part(busy as f64 * 1e3 / clock.get()),
                    unknown => unknown.map(Hertz::get),
                }
            }
            Reading::Absent { reason } => Reading::absent(match other {
                Some(other) => format!("{reason}; the unit of {other} is not known"),
                None => reason,
            }),
            Reading::Failed { reason } => Reading::failed(reason),
        };
        detail!(state.emc_utilisation = reading, Some(answers.read_at(MONITOR)));
    })
}

fn part(busy: f64) -> Reading<f64> {
    if busy > MOST {
        return Reading::failed(format!("{MONITOR} counts {busy:.2} of the cycles that there were"));
    }
    Reading::Known(busy.min(1.0))
}
