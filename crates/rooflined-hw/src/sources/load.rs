//! How busy the CPUs are.

use super::online;
use crate::STAT;
use crate::answers::File;
use crate::source::{DiscoveryContext, Plan, Reader, found};
use rooflined_core::board::parse::{self, CpuTimes};
use rooflined_core::board::{Load, Reading};

const LOADAVG: &str = "/proc/loadavg";

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    if context.root.path(LOADAVG).is_file() {
        plan.add_origin("load", format!("{LOADAVG}, {STAT}"));
    }
    plan.read([File::of_kernel(LOADAVG), online::stat()]);
    let mut last: Option<CpuTimes> = None;
    found(move |answers, state| {
        let times = answers.text(STAT).ok().and_then(parse::cpu_times);
        let before = std::mem::replace(&mut last, times);
        let ratios = times.zip(before).and_then(|(now, before)| now.ratios_since(&before));
        let load: Reading<Load> =
            answers.value(LOADAVG, "a load average", parse::load_average).map(|average_1m| Load {
                average_1m,
                busy_ratio: ratios.map(|(busy, _)| busy),
                steal_ratio: ratios.map(|(_, steal)| steal),
            });
        state.set(|state| &mut state.load, load);
    })
}
