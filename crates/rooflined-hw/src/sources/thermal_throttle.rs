//! Intel's counters of thermal throttling. One core counter per policy would miss cores, so all are kept.

use super::CPUS;
use crate::answers::File;
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::throttle::{EvidenceKind, ThrottleReport};
use rooflined_core::board::parse;

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let files = context.root.numbered(CPUS, "cpu").into_iter().take(1024).flat_map(|(_, cpu)| {
        ["core_throttle_count", "package_throttle_count"]
            .map(|file| format!("{CPUS}/{cpu}/thermal_throttle/{file}"))
    });
    let files = files.filter(|file| context.root.path(file).exists());
    // With what each held at the sample before.
    let mut counters: Vec<(String, Option<u64>)> = files.map(|file| (file, None)).collect();
    if counters.is_empty() {
        return None;
    }
    plan.add_origin("throttle", format!("{CPUS}/cpu*/thermal_throttle"));
    plan.read(counters.iter().map(|(path, _)| File::of_kernel(path)));
    found(move |answers, state| {
        let mut report = ThrottleReport::of(EvidenceKind::Event);
        for (path, last) in &mut counters {
            let count = report.value_of(answers.value(path, "a count", parse::unsigned));
            let Some(count) = count else { continue };
            let grown = last.replace(count).and_then(|last| count.checked_sub(last)).unwrap_or(0);
            if grown > 0 {
                report.add(true, format!("{grown} more events in {path}"));
            }
        }
        state.throttle(report);
    })
}
