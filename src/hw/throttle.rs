//! Evidence that something slows the machine down.
//!
//! | source | throttling is |
//! |---|---|
//! | cooling devices of a processor, `*-throttle-alert`, GB10's `prochot` | a state other than 0 |
//! | Intel's `thermal_throttle` counters | growth |
//! | `soctherm_oc`, `oc1` (under-voltage) and `oc2` (average over-current) | growth |
//! | `soctherm_oc`, `oc3` (instantaneous over-current) | more than [`NORMAL_OC3_PER_S`]; fewer are told |
//! | NVML's reasons for a lower clock | a thermal or hardware slowdown; a power cap alone is told |
//! | GB10's clock under load | below three tenths of the highest with no reason named |

use super::discover::Discovered;
use super::file::Kept;
use super::nvml::Sample;
use super::parsed;
use super::patience::Answer;
use crate::board::{Reading, Throttle, parse};
use crate::units::{Hertz, Seconds};

/// Events of one millisecond each. Boards without a power cap have up to thirty in a second while all is well.
const NORMAL_OC3_PER_S: f64 = 30.0;

/// A counter of soctherm_oc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverCurrent {
    /// The file.
    pub path: String,
    /// Which of the three.
    pub number: u32,
}

/// NVML's reasons for a clock below the highest. Idle (1), a clock asked for (2, 0x100) and a partner's (0x10) are
/// no throttling.
const REASONS: [(u64, &str, bool); 5] = [
    (0x4, "power cap", false),
    (0x8, "hardware slowdown", true),
    (0x20, "software thermal slowdown", true),
    (0x40, "hardware thermal slowdown", true),
    (0x80, "power brake", true),
];

/// Remembers the counters of the sample before.
pub(super) struct Watch {
    intel: Vec<(Kept, Option<u64>)>,
    over_current: Vec<Option<(u64, Seconds)>>,
    /// Since when the GPU is busy and slow without a reason.
    starved_since: Option<Seconds>,
}

/// A governor takes some tenths of a second to raise the clock under a new load.
const RAMP: Seconds = Seconds(1.0);

/// What was found so far.
#[derive(Default)]
struct Verdict {
    active: bool,
    heard: bool,
    evidence: Vec<String>,
    reason: Option<String>,
}

impl Verdict {
    /// The value of a source that answered.
    fn hear<T>(&mut self, reading: Reading<T>) -> Option<T> {
        match reading {
            Reading::Known(value) => {
                self.heard = true;
                Some(value)
            }
            Reading::Absent { reason } | Reading::Failed { reason } => {
                self.reason = Some(reason);
                None
            }
        }
    }

    fn say(&mut self, active: bool, evidence: String) {
        self.active |= active;
        self.evidence.push(evidence);
    }
}

impl Watch {
    pub fn new(intel: Vec<Kept>, over_current: usize) -> Self {
        Self {
            intel: intel.into_iter().map(|counter| (counter, None)).collect(),
            over_current: vec![None; over_current],
            starved_since: None,
        }
    }

    /// Judges by the answers for `found.alarms` and `found.over_current`, and by NVML's reasons.
    pub fn judge(
        &mut self,
        found: &Discovered,
        alarms: Vec<Answer>,
        over_current: Vec<Answer>,
        nvml: Option<&Sample>,
        now: Seconds,
    ) -> Reading<Throttle> {
        let mut verdict = Verdict::default();
        for (alarm, answer) in found.alarms.iter().zip(alarms) {
            let text = answer.map(|(text, _)| text);
            let state = verdict.hear(parsed(&alarm.path, text, "a state", parse::unsigned));
            if let Some(state) = state.filter(|state| *state > 0) {
                verdict.say(true, format!("{} is at {state} ({})", alarm.name, alarm.path));
            }
        }
        for (counter, last) in &mut self.intel {
            let text = counter.read();
            let Some(count) = verdict.hear(parsed(counter.logical(), text, "a count", parse::unsigned))
            else {
                continue;
            };
            let grown = last.replace(count).and_then(|last| count.checked_sub(last)).unwrap_or(0);
            if grown > 0 {
                verdict.say(true, format!("{grown} more events in {}", counter.logical()));
            }
        }
        for ((counter, last), answer) in
            found.over_current.iter().zip(&mut self.over_current).zip(over_current)
        {
            let text = answer.map(|(text, _)| text);
            let Some(count) = verdict.hear(parsed(&counter.path, text, "a count", parse::unsigned)) else {
                continue;
            };
            let Some((before, at)) = last.replace((count, now)) else { continue };
            let grown = count.saturating_sub(before);
            if grown > 0 {
                let (active, evidence) = over_current_events(counter, grown, now - at);
                verdict.say(active, evidence);
            }
        }
        if let Some(sample) = nvml {
            for (_, name, active) in reasons_of(&mut verdict, sample) {
                verdict.say(active, format!("NVML names as reason for a lower clock: {name}"));
            }
            let starved = starved(found.starved_below, sample);
            self.starved_since = starved.as_ref().and(self.starved_since.or(Some(now)));
            let lasting = self.starved_since.is_some_and(|since| now - since >= RAMP);
            if let Some(evidence) = starved.filter(|_| lasting) {
                verdict.say(true, evidence);
            }
        }
        let exists = !found.alarms.is_empty()
            || !self.intel.is_empty()
            || !found.over_current.is_empty()
            || nvml.is_some();
        match (verdict.heard, exists, verdict.reason) {
            (true, ..) => Reading::Known(Throttle { active: verdict.active, evidence: verdict.evidence }),
            (false, true, reason) => Reading::failed(reason.unwrap_or_default()),
            (false, false, _) => Reading::absent(
                "no source of evidence: no cooling device of a processor in /sys/class/thermal, \
                 no cpu*/thermal_throttle",
            ),
        }
    }
}

fn reasons_of(verdict: &mut Verdict, sample: &Sample) -> Vec<(u64, &'static str, bool)> {
    let reasons = verdict.hear(sample.reasons.clone()).unwrap_or(0);
    REASONS.into_iter().filter(|(bit, ..)| reasons & bit != 0).collect()
}

/// A supply that negotiated too little power holds the clock at about 510 MHz, and no reason is named for it.
fn starved(below: Option<Hertz>, sample: &Sample) -> Option<String> {
    let (below, clock) = (below?, *sample.clock.known()?);
    let busy = *sample.load.known()? >= 0.5;
    let unnamed =
        sample.reasons.known().is_some_and(|reasons| REASONS.iter().all(|(bit, ..)| reasons & bit == 0));
    (busy && unnamed && clock.0 < below.0).then(|| {
        format!(
            "the GPU runs at {clock} under load and NVML names no reason: \
             the supply may have negotiated too little power; unplug it from the wall for a minute"
        )
    })
}

fn over_current_events(counter: &OverCurrent, grown: u64, time: Seconds) -> (bool, String) {
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
        let counter = |number| OverCurrent { path: "/sys/x".into(), number };
        // 24 in a second are 2.4 % of the time at a reduced clock.
        assert!(!over_current_events(&counter(3), 24, Seconds(1.0)).0);
        assert!(over_current_events(&counter(3), 31, Seconds(1.0)).0);
        assert!(over_current_events(&counter(2), 1, Seconds(60.0)).0);
        assert!(over_current_events(&counter(1), 1, Seconds(60.0)).0);
        assert!(over_current_events(&counter(3), 24, Seconds(0.0)).1.starts_with("24 more over-current"));
    }
}
