//! Intel's counters of thermal throttling. One core counter per policy would miss cores, so all are kept.

use super::CPUS;
use crate::SysRoot;
use crate::answers::{Answers, File};
use crate::source::{DiscoveryContext, Source};
use crate::state::StateBuilder;
use crate::throttle::{EvidenceKind, ThrottleReport};
use rooflined_core::board::parse;

/// The counters, with what each held at the sample before.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ThermalThrottle {
    counters: Vec<(String, Option<u64>)>,
}

impl Source for ThermalThrottle {
    fn discover(context: &DiscoveryContext<'_>) -> Option<Self> {
        let counters = context.root.numbered(CPUS, "cpu").into_iter().take(1024).flat_map(|(_, cpu)| {
            ["core_throttle_count", "package_throttle_count"]
                .map(|file| format!("{CPUS}/{cpu}/thermal_throttle/{file}"))
        });
        let counters = counters.filter(|file| context.root.path(file).exists());
        let counters: Vec<_> = counters.map(|file| (file, None)).collect();
        (!counters.is_empty()).then_some(Self { counters })
    }

    fn origins(&self, _: &SysRoot) -> Vec<(&'static str, String)> {
        vec![("throttle", format!("{CPUS}/cpu*/thermal_throttle"))]
    }

    fn files(&self) -> Vec<File> {
        self.counters.iter().map(|(path, _)| File::of_kernel(path)).collect()
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        let mut report = ThrottleReport::of(EvidenceKind::Event);
        for (path, last) in &mut self.counters {
            let count = report.value_of(answers.value(path, "a count", parse::unsigned));
            let Some(count) = count else { continue };
            let grown = last.replace(count).and_then(|last| count.checked_sub(last)).unwrap_or(0);
            if grown > 0 {
                report.add(true, format!("{grown} more events in {path}"));
            }
        }
        state.throttle(report);
    }
}
