//! How busy the CPUs are.

use super::online;
use crate::STAT;
use crate::SysRoot;
use crate::answers::{Answers, File};
use crate::source::{DiscoveryContext, Source};
use crate::state::StateBuilder;
use rooflined_core::board::parse::{self, CpuTimes};
use rooflined_core::board::{Load, Reading};

const LOADAVG: &str = "/proc/loadavg";

/// The load average, and the CPU times of the sample before.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LoadAverage {
    last: Option<CpuTimes>,
}

impl Source for LoadAverage {
    fn discover(_: &DiscoveryContext<'_>) -> Option<Self> {
        Some(Self { last: None })
    }

    fn origins(&self, root: &SysRoot) -> Vec<(&'static str, String)> {
        let exists = root.path(LOADAVG).is_file();
        exists.then(|| ("load", format!("{LOADAVG}, {STAT}"))).into_iter().collect()
    }

    fn files(&self) -> Vec<File> {
        vec![File::of_kernel(LOADAVG), online::stat()]
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        let times = answers.text(STAT).ok().and_then(parse::cpu_times);
        let before = std::mem::replace(&mut self.last, times);
        let ratios = times.zip(before).and_then(|(now, before)| now.ratios_since(&before));
        let load: Reading<Load> =
            answers.value(LOADAVG, "a load average", parse::load_average).map(|average_1m| Load {
                average_1m,
                busy_ratio: ratios.map(|(busy, _)| busy),
                steal_ratio: ratios.map(|(_, steal)| steal),
            });
        state.set(|state| &mut state.load, load);
    }
}
