//! The boot processor's view of a Tegra's memory clock; its files are for root.

use super::SysRoot;
use super::ask::ask;
use rooflined_core::board::parse;
use rooflined_core::units::Hertz;

pub(super) const BPMP_EMC: &str = "/sys/kernel/debug/bpmp/debug/clk/emc";
pub(super) const MAX_RATE: &str = "/sys/kernel/debug/bpmp/debug/clk/emc/max_rate";

/// Highest memory clock that the boot processor admits; `None` where it does not tell.
pub(super) fn admitted(root: &SysRoot) -> Option<Hertz> {
    let clock = ask(root, [MAX_RATE.to_owned()]).text(MAX_RATE).and_then(parse::hertz);
    clock.filter(|clock| clock.is_positive())
}
