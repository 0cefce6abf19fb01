//! Switches for holds: when one is due, and what becomes of it.

use super::arbitration::{Arbitration, Scope};
use super::choose::{self, Candidate};
use super::hold::{Enforcement, Holds, RequestedHold};
use super::lifecycle::{HoldSwitch, Provisional, Purpose, Stage, Standing};
use super::queries::Needs;
use super::{KEPT, active_mode, said, view};
use crate::{AuditEvent, AuditRecord, Governor, Severity};
use rooflined_core::board::{ActiveMode, Order, PowerMode, SwitchOutcome, SwitchReport};
use rooflined_core::refusal::Code;
use rooflined_core::units::Seconds;
use rooflined_predict::optimize::ModeVerdict;
use rooflined_predict::snapshot::{Automatic, Hold, ModeCause};

/// A mode that was left because it met a query no longer is not entered for this long to save energy: where its own heat
/// is what it fails by, two modes would alternate at every dwell time. New holds and calibrations end that.
const LEFT_FOR: Seconds = Seconds(600.0);

fn entering(target: &Candidate<'_>) -> Order {
    entering_mode(target.mode)
}

/// A mode that the next daemon finds if this one is replaced.
pub(super) fn entering_mode(mode: &PowerMode) -> Order {
    let PowerMode { id, name, knob, .. } = mode;
    Order::SetMode { id: *id, name: name.clone(), knob: *knob, dry_run: false, keep: Some(KEPT) }
}

impl Governor {
    /// To meet a hold that is asked for, or those in force.
    pub(super) fn switch_for_holds(&mut self, requested: Option<RequestedHold>, target: &Candidate<'_>) {
        let mode = active_mode(target);
        self.order(entering(target), |standing| standing.hold(requested, mode));
    }

    /// When a switch that nobody asked for just now may be made: the dwell time after the last one for a hold.
    fn dwell_over(&self) -> Seconds {
        self.power.holds.switched_at.map_or(Seconds::ZERO, |at| at + self.policy.dwell)
    }

    /// The active mode, if it meets `wanted` and every hold that is kept.
    pub(super) fn will_do<'m>(&self, wanted: Needs<'_>, all: &[Candidate<'m>]) -> Option<Candidate<'m>> {
        let active = self.active_candidate(all)?;
        (self.meets_holds(&active, all) && wanted.unmet(&active, all).is_none()).then_some(active)
    }

    /// A mode in which a new hold with a query, and all that are kept, take so much less energy than in the active one,
    /// which would do, that it is entered for it.
    pub(super) fn better_for<'m>(
        &self,
        wanted: Needs<'_>,
        active: &Candidate<'_>,
        all: &[Candidate<'m>],
    ) -> Option<Candidate<'m>> {
        let own = wanted.verdicts()?;
        if !self.power.stage.is_free() || self.now.boottime < self.dwell_over() {
            return None;
        }
        let mut arbitration = self.arbitrate(Scope::Binding, &self.possible(&[], all), all);
        arbitration.modes.retain(|mode| wanted.unmet(mode, all).is_none());
        let mut verdicts = self.verdicts(&arbitration.kept, Scope::Binding);
        verdicts.push(own);
        self.cheaper(active, &arbitration, &verdicts)
    }

    /// The mode for what is kept that saves more than the hysteresis over the active one; `None` where none does.
    fn cheaper<'m>(
        &self,
        active: &Candidate<'_>,
        arbitration: &Arbitration<'_, 'm>,
        verdicts: &[&[ModeVerdict]],
    ) -> Option<Candidate<'m>> {
        let not_left = |mode: &&Candidate<'_>| {
            let mut left = self.power.holds.left.iter().filter(|(key, _)| mode.mode.is(key));
            left.all(|(_, at)| self.now.boottime - *at >= LEFT_FOR)
        };
        let modes: Vec<Candidate<'m>> = arbitration.modes.iter().filter(not_left).copied().collect();
        let best = choose::cheapest(&modes, verdicts)?;
        let saving = choose::saving(active, best, verdicts)?;
        (saving > self.policy.hysteresis_ratio).then_some(*best)
    }

    /// Enters a mode that meets the holds in force where the present one does not, for instance after a switch that
    /// was not confirmed, and one that meets them at less energy where that is worth it: at once,
    /// or when the dwell time is over, which is then returned.
    pub(super) fn enforce_holds(&mut self) -> Option<Seconds> {
        let Holds { active: holds, enforcement, .. } = &self.power.holds;
        let free = self.power.stage.is_free() && self.unavailable().is_none();
        if !free || *enforcement == Enforcement::Suspended || holds.is_empty() {
            return None;
        }
        // Whether their clients come back decides; a switch now might be undone in a moment.
        if holds.iter().any(Hold::is_waiting) {
            return None;
        }
        let snapshot = self.snapshot();
        let all = view::candidates(&snapshot);
        let active = self.active_candidate(&all)?;
        let arbitration = self.arbitrate(Scope::Binding, &self.possible(&[], &all), &all);
        let losers: Vec<(u64, String)> =
            arbitration.losers.iter().map(|held| (held.cookie, held.app_id.clone())).collect();
        let verdicts = self.verdicts(&arbitration.kept, Scope::Binding);
        let unmet: Vec<bool> = (arbitration.kept.iter())
            .filter_map(|held| {
                let needs = self.needs(held, Scope::Binding);
                needs.unmet(&active, &all)?;
                Some(active.unmet(needs.constraints, &all).is_some())
            })
            .collect();
        let next = if unmet.is_empty() {
            let economises = *enforcement == Enforcement::Economy && self.policy.auto == Automatic::Switch;
            economises.then(|| self.cheaper(&active, &arbitration, &verdicts)).flatten()
        } else {
            choose::cheapest(&arbitration.modes, &verdicts).copied()
        };
        // What was predicted otherwise a moment ago may be so again; constraints do not waver.
        let due = if unmet.contains(&true) { Seconds::ZERO } else { self.dwell_over() };
        self.tell_losers(&losers);
        let target = next?;
        if due > self.now.boottime {
            return Some(due);
        }
        if !unmet.is_empty() {
            self.leave(active.mode.key());
        }
        self.switch_for_holds(None, &target);
        None
    }

    /// Says once which holds are not met beside older ones.
    fn tell_losers(&mut self, losers: &[(u64, String)]) {
        for (cookie, app_id) in losers {
            if !self.power.holds.losers.contains(cookie) {
                let message =
                    format!("the hold of {app_id} is not met: no mode meets it together with the older ones");
                self.effects.log(Severity::Warning, message);
            }
        }
        self.power.holds.losers = losers.iter().map(|(cookie, _)| *cookie).collect();
    }

    /// What a switch for holds came to.
    pub(super) fn finish_hold_switch(&mut self, switch: HoldSwitch, report: SwitchReport) -> Stage {
        let HoldSwitch { requested, target, mut tried, base } = switch;
        let hold = requested.as_ref().map(|(_, hold)| hold);
        let record = AuditRecord {
            uid: hold.map(|hold| hold.uid),
            hold: hold.map(|hold| hold.app_id.clone()),
            reason: hold.and_then(|hold| said(hold.reason.clone())),
            ..AuditRecord::of(AuditEvent::Switch)
        };
        self.note_reached(&report, ModeCause::Hold, record);
        if report.outcome == SwitchOutcome::Applied {
            self.power.holds.switched_at = Some(self.now.boottime);
            if let Some((ticket, hold)) = requested {
                let answer = self.begin_hold(*hold);
                self.effects.reply(ticket, answer);
                for mode in tried {
                    self.leave(mode);
                }
            }
            let original = base.map_or_else(|| report.before.clone(), |base| base.original);
            return Stage::Idle(Standing::Provisional(Provisional { original, ..Provisional::new(target) }));
        }
        let base = self.unless_left(base, &report);
        // Whether a mode needs a reboot may show only when it is tried; another may do as well.
        tried.push(target.clone());
        self.leave(target);
        let snapshot = self.snapshot();
        let all = view::candidates(&snapshot);
        if requested.is_none()
            && self.active_candidate(&all).is_some_and(|mode| self.meets_holds(&mode, &all))
        {
            return Stage::Idle(base.into()); // It was to save energy only.
        }
        let hold = requested.as_ref().map(|(_, hold)| hold);
        let query =
            hold.and_then(|hold| hold.query.as_ref()).filter(|_| self.policy.auto == Automatic::Switch);
        let answer = query.map(|query| self.answer_query(query));
        let wanted = hold.map(|hold| Needs { constraints: &hold.constraints, answer: answer.as_ref() });
        let next = self.choose_for(wanted, Scope::Binding, &tried, &all);
        match (next, requested) {
            (Ok(target), requested) if requested.is_some() || !self.power.holds.active.is_empty() => {
                let what = entering(&target);
                let switch = HoldSwitch { requested, target: active_mode(&target), tried, base };
                self.send(Purpose::Hold(switch), what)
            }
            (_, Some((ticket, _))) => {
                let code = match report.outcome {
                    SwitchOutcome::RebootRequired => Code::RebootRequired,
                    SwitchOutcome::Refused => Code::Refused,
                    SwitchOutcome::NotApplied | SwitchOutcome::Applied => Code::NotReached,
                };
                self.effects.refuse(ticket, report.refusal(code));
                Stage::Idle(base.into())
            }
            (_, None) => {
                self.stop_enforcing(&report.words());
                Stage::Idle(base.into())
            }
        }
    }

    /// Constraints have changed: modes that were left may be entered again.
    pub(crate) fn restart_enforcement(&mut self) {
        self.power.holds.enforcement = Enforcement::Economy;
        self.power.holds.left.clear();
    }

    fn leave(&mut self, mode: ActiveMode) {
        self.power.holds.left.retain(|(other, _)| *other != mode);
        self.power.holds.left.push((mode, self.now.boottime));
    }

    /// A switch for holds that nobody waits for has failed. What they need is seen to again when the next one comes.
    pub(super) fn stop_enforcing(&mut self, message: &str) {
        self.power.holds.enforcement = Enforcement::Suspended;
        self.effects.log(Severity::Warning, format!("holds are not met: {message}"));
    }

    /// When the mode from before the holds comes back; `None` while it does not.
    pub(super) fn return_due(&self) -> Option<Seconds> {
        let power = &self.power;
        let Some(Standing::Provisional(entered)) = power.stage.standing() else { return None };
        if !power.holds.active.is_empty() || power.helper.problem().is_some() {
            return None;
        }
        // Where nobody may switch any more, nothing is waited for.
        let after_dwell = if self.policy.control_enabled { self.dwell_over() } else { Seconds::ZERO };
        Some(entered.retry.map_or(after_dwell, |retry| retry.at.max(after_dwell)))
    }
}
