//! The memory clock of a Tegra and the caps on it.
//!
//! | | JetPack 4, 5 | JetPack 6, 7 on Orin | Thor |
//! |---|---|---|---|
//! | cap | /sys/kernel/nvpmodel_emc_cap/emc_iso_cap | /sys/kernel/nvpmodel_clk_cap/emc | bwmgr/max_freq |
//! | clock | debugfs, for root only | debugfs, for root only | /sys/class/devfreq/bwmgr |

use crate::answers::{Answers, File};
use crate::emc::{BPMP_EMC, MAX_RATE};
use crate::modes::MemoryLimits;
use crate::source::{DiscoveryContext, Plan, Reader, found};
use rooflined_core::board::Reading;
use rooflined_core::board::active::LiveCap;
use rooflined_core::board::parse::{self, Cap};
use rooflined_core::units::Hertz;

/// JetPack 6 and later, then 4 and 5.
const CAPS: [&str; 2] = ["/sys/kernel/nvpmodel_clk_cap/emc", "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap"];
const BWMGR: &str = "/sys/class/devfreq/bwmgr";

/// Where the memory clock is read and capped.
struct TegraMemory {
    clock: String,
    /// Files with caps, of which the lowest counts.
    caps: Vec<String>,
    /// Highest clock by the data sheet.
    nominal: Option<Hertz>,
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    context.chip?;
    let has_bwmgr = context.has(&format!("{BWMGR}/max_freq"));
    let bwmgr = has_bwmgr.then(|| format!("{BWMGR}/max_freq"));
    let caps = CAPS.into_iter().filter(|path| context.has(path)).map(str::to_owned);
    let source = TegraMemory {
        clock: if has_bwmgr { format!("{BWMGR}/cur_freq") } else { format!("{BPMP_EMC}/rate") },
        caps: caps.chain(bwmgr).collect(),
        nominal: context.nominal.as_ref().and_then(|nominal| nominal.memory_clock),
    };
    plan.add_origin("memory_clock", &source.clock);
    if !source.caps.is_empty() {
        plan.add_origin("memory_clock_cap", source.caps.join(", "));
    }
    plan.read([File::of_driver(&source.clock), File::of_driver(MAX_RATE)]);
    plan.read(source.caps.iter().map(File::of_driver));
    found(move |answers, state| {
        let clock = |path: &str| answers.value(path, "a clock in Hz", parse::hertz);
        // What the boot processor admits and what the part can do: each alone may be too high.
        let admitted = clock(MAX_RATE).known().copied();
        let max = [admitted, source.nominal].into_iter().flatten().reduce(Hertz::min);
        let (cap, limit) = source.cap(answers, max);
        state.set(|state| &mut state.memory_clock, clock(&source.clock));
        state.set(|state| &mut state.memory_clock_cap, cap);
        state.memory_limits = MemoryLimits { cap: limit, max, admitted };
    })
}

impl TegraMemory {
    /// The cap in force and the cap as it is set. The lowest of several counts; uncapped is the highest clock.
    fn cap(&self, answers: &Answers<'_>, max: Option<Hertz>) -> (Reading<Hertz>, Option<LiveCap>) {
        if self.caps.is_empty() {
            let reason = format!("no cap on the memory clock: neither {} nor {BWMGR}", CAPS.join(" nor "));
            return (Reading::absent(reason), None);
        }
        let mut limit: Option<LiveCap> = None;
        let mut refused = None;
        for path in &self.caps {
            match answers.value(path, "a clock in Hz", parse::clock_cap) {
                Reading::Known(Cap::None) => limit = limit.or(Some(LiveCap::Uncapped)),
                Reading::Known(Cap::At(cap)) => {
                    limit = Some(LiveCap::At(match limit {
                        Some(LiveCap::At(other)) => other.min(cap),
                        _ => cap,
                    }));
                }
                other => refused = refused.or(Some(other)),
            }
        }
        let cap = match (limit, max, refused) {
            (Some(LiveCap::At(cap)), max, _) => Reading::Known(max.map_or(cap, |max| cap.min(max))),
            (Some(LiveCap::Uncapped), Some(max), _) => Reading::Known(max),
            (Some(LiveCap::Uncapped), None, _) => Reading::absent(format!(
                "{} sets no cap, and the highest memory clock of this board is not known: {MAX_RATE} is for root only",
                self.caps[0]
            )),
            (None, _, Some(refused)) => refused.map(|_| Hertz::ZERO),
            (None, _, None) => Reading::failed(format!("{} was not read", self.caps[0])),
        };
        (cap, limit)
    }
}
