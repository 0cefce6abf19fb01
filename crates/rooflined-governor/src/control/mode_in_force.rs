//! The power mode in force: which one the readings show, since when, and why.

use super::hold::Enforcement;
use super::lifecycle::{Base, Purpose, Stage, Standing};
use super::mode_tracker::Expected;
use crate::{AuditEvent, AuditRecord, Governor, Severity};
use rooflined_core::board::{
    ActiveMode, BoardState, Knob, Order, ReadBack, Reading, SwitchOutcome, SwitchReport,
};
use rooflined_core::units::Seconds;
use rooflined_predict::snapshot::ModeCause;

/// A reading older than this does not show that a mode is active already.
const FRESH: Seconds = Seconds(2.0);
/// Readings in a row that must show another mode before it counts as somebody else's.
const DEVIATIONS: u32 = 2;

impl Governor {
    /// The freshest reading shows this mode, and nothing says otherwise.
    pub(super) fn is_active(&self, mode: &ActiveMode) -> bool {
        let read_at = self.state.taken_at.max(self.power.mode.switched_at);
        self.state.power_mode.known() == Some(mode)
            && self.power.mode.mode() == Some(mode)
            && self.now.boottime - read_at <= FRESH
    }

    pub(super) fn already(&self, mode: &ActiveMode) -> SwitchReport {
        SwitchReport {
            outcome: SwitchOutcome::Applied,
            asked: mode.clone(),
            before: Some(mode.clone()),
            reached: ReadBack {
                mode: Some(mode.clone()),
                point: self.state.operating_point(),
                differences: Vec::new(),
            },
            message: format!("{} was active already", mode.name),
            hint: None,
            writes: Vec::new(),
            took: Seconds::ZERO,
        }
    }

    /// The mode of the holds, if it is still the one in force after a switch that was begun and not finished.
    pub(super) fn unless_left(&self, base: Base, report: &SwitchReport) -> Base {
        let begun = report.outcome == SwitchOutcome::NotApplied;
        base.filter(|base| !begun || self.power.mode.mode() == Some(&base.mode))
    }

    /// What the live files showed after a switch is a reading like any other, and a newer one than the sampler's.
    pub(super) fn note_reached(&mut self, report: &SwitchReport, cause: ModeCause, record: AuditRecord) {
        let applied = report.outcome == SwitchOutcome::Applied;
        let reached = report.reached.mode.clone().or_else(|| applied.then(|| report.asked.clone()));
        let name =
            |mode: Option<&ActiveMode>| mode.map_or("an unknown mode".to_owned(), |mode| mode.name.clone());
        let record = AuditRecord {
            from: report.before.as_ref().map(|mode| mode.name.clone()),
            to: Some(report.asked.name.clone()),
            cause: Some(cause.key()),
            outcome: Some(report.outcome.key()),
            ..record
        };
        if applied {
            self.power.mode.cause = cause;
            let (to, from) = (name(reached.as_ref()), name(report.before.as_ref()));
            let message = format!("power mode {to} entered from {from} in {} ({})", report.took, cause.key());
            self.effects.audit(Severity::Info, message, record);
        } else {
            let (asked, now) = (&report.asked.name, name(reached.as_ref()));
            let message = format!("power mode {asked} was not entered, {now} is active: {}", report.words());
            self.effects.audit(Severity::Warning, message, record);
        }
        self.power.mode.report = Some(report.clone());
        if matches!(report.outcome, SwitchOutcome::RebootRequired | SwitchOutcome::Refused) {
            return; // Nothing was changed.
        }
        self.take_reading(reached, &report.reached);
    }

    pub(super) fn take_reading(&mut self, mode: Option<ActiveMode>, found: &ReadBack) {
        self.power.mode.switched_at = self.now.boottime;
        self.state.power_mode = match mode.clone() {
            Some(mode) => Reading::Known(mode),
            None => Reading::failed("after an unfinished switch the current clocks match no power mode"),
        };
        self.power.mode.expected = mode.map(Expected::new);
        fn take<T: Copy>(reading: &mut Reading<T>, value: Option<T>) {
            if let Some(value) = value {
                *reading = Reading::Known(value);
            }
        }
        take(&mut self.state.sm_online, found.point.sm_online);
        take(&mut self.state.cores_online, found.point.cores_online);
        take(&mut self.state.gpu_clock_cap, found.point.gpu_clock);
        take(&mut self.state.memory_clock_cap, found.point.memory_clock);
        take(&mut self.state.cpu_clock_cap, found.point.cpu_clock);
    }

    /// Whether the sampler's reading replaces the state: not if it was begun before the last switch had ended.
    pub(crate) fn outdated(&self, state: &BoardState) -> bool {
        state.taken_at < self.power.mode.switched_at
    }

    /// Where nothing reads which clocks are locked, the privileged helper's last answer is the reading there is.
    pub(crate) fn complete(&self, state: &mut BoardState) {
        let Some(expected) = self.power.mode.mode() else { return };
        let mode = self.board.power_modes().iter().find(|mode| mode.is(expected));
        let locked = mode.is_some_and(|mode| mode.knob != Knob::Nvpmodel);
        if locked && matches!(state.power_mode, Reading::Absent { .. }) {
            state.power_mode = Reading::Known(expected.clone());
        }
    }

    /// Notices that somebody else has switched. That is reported and not fought.
    pub(crate) fn watch_mode(&mut self) {
        if self.power.stage.in_flight().is_some() {
            return;
        }
        let tracker = &mut self.power.mode;
        let Some(seen) = self.state.power_mode.known() else {
            // Caps that are no mode's: changed by hand, since this program knew of a mode.
            let expected = tracker.expected.as_mut().filter(|_| self.state.gpu_clock_cap.known().is_some());
            let Some(expected) = expected else { return };
            expected.deviations += 1;
            if expected.deviations == DEVIATIONS {
                let (name, why) = (&expected.mode.name, self.state.power_mode.reason().unwrap_or_default());
                let message = format!("another program changed the caps of power mode {name}: {why}");
                let record = AuditRecord {
                    from: Some(name.clone()),
                    cause: Some(ModeCause::External.key()),
                    ..AuditRecord::of(AuditEvent::External)
                };
                self.effects.audit(Severity::Warning, message, record);
                tracker.cause = ModeCause::External;
                self.power.holds.enforcement = Enforcement::Suspended;
            }
            return;
        };
        let Some(expected) = &mut tracker.expected else {
            tracker.expected = Some(Expected::new(seen.clone()));
            return;
        };
        if expected.mode == *seen {
            expected.deviations = 0;
            return;
        }
        expected.deviations += 1;
        if expected.deviations < DEVIATIONS {
            return;
        }
        let (from, to) = (&expected.mode.name, &seen.name);
        let message = format!("another program switched the power mode from {from} to {to}");
        let record = AuditRecord {
            from: Some(from.clone()),
            to: Some(to.clone()),
            cause: Some(ModeCause::External.key()),
            ..AuditRecord::of(AuditEvent::External)
        };
        self.effects.audit(Severity::Warning, message, record);
        tracker.cause = ModeCause::External;
        tracker.expected = Some(Expected::new(seen.clone()));
        self.power.holds.enforcement = Enforcement::Suspended;
        self.power.holds.switched_at = None;
        self.power.stage = match std::mem::take(&mut self.power.stage) {
            // Else it would be undone one day, over the head of the user who switched.
            Stage::Idle(Standing::Provisional(_) | Standing::Pending(_)) => {
                let purpose = Purpose::Settle { then: None, base: None, record: None };
                self.send(purpose, Order::Settle)
            }
            other => other,
        };
    }
}
