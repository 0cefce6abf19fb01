//! Evidence that something slows the machine down.
//!
//! | source | throttling is |
//! |---|---|
//! | cooling devices of a processor, `*-throttle-alert`, GB10's `prochot` | a state other than 0 |
//! | Intel's `thermal_throttle` counters | growth |
//! | `soctherm_oc`, `oc1` (under-voltage) and `oc2` (average over-current) | growth |
//! | `soctherm_oc`, `oc3` (instantaneous over-current) | more than thirty in a second; fewer are only reported |
//! | `*_alarm` of hwmon, the firmware of a Raspberry Pi | raised; of drives, fans and main boards only reported |
//! | NVML's reasons for a lower clock | a thermal or hardware slowdown; a power cap that takes two fifths of the clock |
//! | GB10's clock under load | below three tenths of the highest with no reason named |

use rooflined_core::board::{Reading, Throttle};

/// What kind of evidence a source has. Evidence is listed in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvidenceKind {
    State,
    /// Events that were counted since the sample before.
    Event,
    /// Reasons that a driver names.
    Reason,
}

pub(super) struct ThrottleReport {
    kind: EvidenceKind,
    active: bool,
    answered: bool,
    evidence: Vec<String>,
    reason: Option<String>,
}

impl ThrottleReport {
    pub fn of(kind: EvidenceKind) -> Self {
        Self { kind, active: false, answered: false, evidence: Vec::new(), reason: None }
    }

    /// The value of a file or getter that answered.
    pub fn value_of<T>(&mut self, reading: Reading<T>) -> Option<T> {
        match reading {
            Reading::Known(value) => {
                self.answered = true;
                Some(value)
            }
            Reading::Absent { reason } | Reading::Failed { reason } => {
                self.reason = Some(reason);
                None
            }
        }
    }

    pub fn add(&mut self, active: bool, evidence: String) {
        self.active |= active;
        self.evidence.push(evidence);
    }
}

/// Whether the machine is throttled, by all reports together.
pub(super) fn judge(mut reports: Vec<ThrottleReport>) -> Reading<Throttle> {
    if reports.is_empty() {
        return Reading::absent(
            "no source of evidence: no cooling device of a processor in /sys/class/thermal, \
             no cpu*/thermal_throttle, no *_alarm in /sys/class/hwmon",
        );
    }
    reports.sort_by_key(|report| report.kind);
    if !reports.iter().any(|report| report.answered) {
        let reason = reports.into_iter().rev().find_map(|report| report.reason);
        return Reading::failed(reason.unwrap_or_default());
    }
    Reading::Known(Throttle {
        active: reports.iter().any(|report| report.active),
        evidence: reports.into_iter().flat_map(|report| report.evidence).collect(),
    })
}
