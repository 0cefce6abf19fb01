//! Jetson's counters of over-current events.

use super::HWMON;
use crate::answers::File;
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::throttle::{EvidenceKind, ThrottleReport};
use rooflined_core::board::parse;
use rooflined_core::units::Seconds;

/// Events of one millisecond each. Boards without a power cap have up to thirty in a second while all is well.
const NORMAL_OC3_PER_S: f64 = 30.0;

struct Counter {
    path: String,
    /// 1, 2 or 3: under-voltage, average or instantaneous over-current.
    number: u32,
    /// The count at the previous sample, and the time of that.
    last: Option<(u64, Seconds)>,
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let devices = context.hwmon.iter().filter(|device| device.name == "soctherm_oc");
    let counters = devices.flat_map(|device| {
        (1..=3).map(|number| Counter {
            path: format!("{}/oc{number}_event_cnt", device.dir),
            number,
            last: None,
        })
    });
    let mut counters: Vec<Counter> = counters.filter(|counter| context.has(&counter.path)).collect();
    if counters.is_empty() {
        return None;
    }
    plan.add_origin("throttle", format!("{HWMON}/hwmon*/oc*_event_cnt"));
    plan.read(counters.iter().map(|counter| File::of_driver(&counter.path)));
    found(move |answers, state| {
        let mut report = ThrottleReport::of(EvidenceKind::Event);
        let now = answers.now();
        for counter in &mut counters {
            let count = report.value_of(answers.value(&counter.path, "a count", parse::unsigned));
            let Some(count) = count else { continue };
            let Some((before, at)) = counter.last.replace((count, now)) else { continue };
            let grown = count.saturating_sub(before);
            if grown > 0 {
                let (active, evidence) = events(counter, grown, now - at);
                report.add(active, evidence);
            }
        }
        state.throttle(report);
    })
}

fn events(counter: &Counter, grown: u64, time: Seconds) -> (bool, String) {
    let rate = grown as f64 / time.get().max(1e-3);
    let what = match counter.number {
        1 => "under-voltage",
        2 => "average over-current",
        _ => "over-current",
    };
    let normal = counter.number >= 3 && rate <= NORMAL_OC3_PER_S;
    let remark = if normal { ", as is normal without a power cap" } else { "" };
    (!normal, format!("{grown} more {what} events in {time}{remark} ({})", counter.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_instantaneous_events_are_told_but_are_no_throttling() {
        let counter = |number| Counter { path: "/sys/x".into(), number, last: None };
        // 24 in a second are 2.4 % of the time at a reduced clock.
        assert!(!events(&counter(3), 24, Seconds(1.0)).0);
        assert!(events(&counter(3), 31, Seconds(1.0)).0);
        assert!(events(&counter(2), 1, Seconds(60.0)).0);
        assert!(events(&counter(1), 1, Seconds(60.0)).0);
        assert!(events(&counter(3), 24, Seconds(0.0)).1.starts_with("24 more over-current"));
    }
}
