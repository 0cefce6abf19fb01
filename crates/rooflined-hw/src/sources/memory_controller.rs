//! The clock of a memory controller that devfreq governs, on boards that are no Tegras.
//!
//! ```text
//! /sys/class/devfreq/dmc/  cur_freq  max_freq (Hz)      Rockchip; others call it *.memory-controller, *.ddr, …
//! ```

use crate::answers::File;
use crate::source::{DiscoveryContext, Plan, Reader, found};
use rooflined_core::board::parse;

const DEVFREQ: &str = "/sys/class/devfreq";
/// Parts of the names of such devices. Names with `bw` count in MB/s and are none of them.
const NAMES: [&str; 4] = ["dmc", "ddr", "dram", "memory-controller"];

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    if context.chip.is_some() {
        return None;
    }
    let is_memory = |name: &String| NAMES.iter().any(|part| name.contains(part)) && !name.contains("bw");
    let name = context.root.names(DEVFREQ).into_iter().find(is_memory)?;
    let clock = format!("{DEVFREQ}/{name}/cur_freq");
    let cap = format!("{DEVFREQ}/{name}/max_freq");
    plan.add_origin("memory_clock", &clock);
    plan.add_origin("memory_clock_cap", &cap);
    plan.read([&clock, &cap].map(File::of_driver));
    found(move |answers, state| {
        let value = |path: &str| answers.value(path, "a clock in Hz", parse::hertz);
        state.set(|state| &mut state.memory_clock, value(&clock));
        state.set(|state| &mut state.memory_clock_cap, value(&cap));
    })
}
