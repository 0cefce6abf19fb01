//! Switches for holds: when one is due, and what becomes of it.

use super::choose::{self, Candidate};
use super::holds::Asked;
use super::judge::Needs;
use super::keep::{Kept, Scope};
use super::orders::Purpose;
use super::{active_mode, refuse, view};
use crate::board::{ActiveMode, Order, SwitchOutcome, SwitchReport};
use crate::governor::core::{log, reply};
use crate::governor::{Effect, Governor, Now, Severity};
use crate::optimize::ModeVerdict;
use crate::snapshot::{Automatic, ModeCause};
use crate::units::Seconds;

/// A mode that was left because it met a query no longer is not entered for this long to save energy: where its own heat
/// is what it fails by, two modes would alternate at every dwell time. New holds and calibrations end that.
const LEFT_FOR: Seconds = Seconds(600.0);

impl Governor {
    pub(super) fn switch_for_holds(
        &mut self,
        now: Now,
        target: &Candidate<'_>,
        purpose: Purpose,
        effects: &mut Vec<Effect>,
    ) {
        let what = Order::SetMode {
            id: target.mode.id,
            name: target.mode.name.clone(),
            knob: target.mode.knob,
            dry_run: false,
        };
        self.order(now, purpose, what, effects);
    }

    /// When a switch that nobody asked for just now may be made: the dwell time after the last one for a hold.
    fn dwell_over(&self) -> Seconds {
        self.power.held_at.map_or(Seconds::ZERO, |at| at + self.policy.dwell)
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
        now: Now,
        wanted: Needs<'_>,
        active: &Candidate<'_>,
        all: &[Candidate<'m>],
    ) -> Option<Candidate<'m>> {
        let own = wanted.verdicts()?;
        if self.power.pending.is_some() || now.boottime < self.dwell_over() {
            return None;
        }
        let mut kept = self.kept(Scope::Binding, &self.possible(&[], all), all);
        kept.modes.retain(|mode| wanted.unmet(mode, all).is_none());
        let mut verdicts = self.verdicts(&kept.holds, Scope::Binding);
        verdicts.push(own);
        self.cheaper(now, active, &kept, &verdicts)
    }

    /// The mode for what is kept that saves more than the hysteresis over the active one; `None` where none does.
    fn cheaper<'m>(
        &self,
        now: Now,
        active: &Candidate<'_>,
        kept: &Kept<'_, 'm>,
        verdicts: &[&[ModeVerdict]],
    ) -> Option<Candidate<'m>> {
        let not_left = |mode: &&Candidate<'_>| {
            let mut left = self.power.left.iter().filter(|(id, _)| *id == mode.mode.id);
            left.all(|(_, at)| now.boottime - *at >= LEFT_FOR)
        };
        let modes: Vec<Candidate<'m>> = kept.modes.iter().filter(not_left).copied().collect();
        let best = choose::cheapest(&modes, verdicts)?;
        let saving = choose::saving(active, best, verdicts)?;
        (saving > self.policy.hysteresis_ratio).then_some(*best)
    }

    /// Enters a mode that meets the holds in force where the present one does not, for instance after a switch that
    /// was not confirmed, and one that meets them at less energy where that is worth it.
    pub(super) fn enforce_holds(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.power.waits_until = None;
        let power = &self.power;
        let free = power.flight.is_none() && power.pending.is_none() && self.unavailable().is_none();
        if !free || !power.enforce || power.holds.is_empty() {
            return;
        }
        let snapshot = self.snapshot();
        let all = view::candidates(&snapshot);
        let Some(active) = self.active_candidate(&all) else { return };
        let kept = self.kept(Scope::Binding, &self.possible(&[], &all), &all);
        let losers: Vec<(u64, String)> =
            kept.losers.iter().map(|held| (held.hold.cookie, held.hold.app_id.clone())).collect();
        let verdicts = self.verdicts(&kept.holds, Scope::Binding);
        let unmet: Vec<bool> = (kept.holds.iter())
            .filter_map(|held| {
                let needs = self.needs(held, Scope::Binding);
                needs.unmet(&active, &all)?;
                Some(active.unmet(needs.constraints, &all).is_some())
            })
            .collect();
        let next = if unmet.is_empty() {
            let economises = power.economise && self.policy.auto == Automatic::Switch;
            economises.then(|| self.cheaper(now, &active, &kept, &verdicts)).flatten()
        } else {
            choose::cheapest(&kept.modes, &verdicts).copied()
        };
        // What was predicted otherwise a moment ago may be so again; constraints do not waver.
        let due = if unmet.contains(&true) { Seconds::ZERO } else { self.dwell_over() };
        self.tell_losers(&losers, effects);
        let Some(target) = next else { return };
        if due > now.boottime {
            self.power.waits_until = Some(due);
            return;
        }
        if !unmet.is_empty() {
            self.leave(now, active.mode.id);
        }
        let mode = active_mode(&target);
        self.switch_for_holds(now, &target, Purpose::Hold { asked: None, mode, tried: Vec::new() }, effects);
    }

    /// Says once which holds are not met beside older ones.
    fn tell_losers(&mut self, losers: &[(u64, String)], effects: &mut Vec<Effect>) {
        for (cookie, app_id) in losers {
            if !self.power.losers.contains(cookie) {
                let message =
                    format!("the hold of {app_id} is not met: no mode meets it beside the older ones");
                log(effects, Severity::Warning, message);
            }
        }
        self.power.losers = losers.iter().map(|(cookie, _)| *cookie).collect();
    }

    /// What a switch for holds came to.
    pub(super) fn hold_switched(
        &mut self,
        now: Now,
        asked: Option<Asked>,
        mode: ActiveMode,
        mut tried: Vec<u32>,
        report: SwitchReport,
        effects: &mut Vec<Effect>,
    ) {
        self.note_reached(now, &report, ModeCause::Hold, effects);
        if report.outcome == SwitchOutcome::Applied {
            self.held_in(now, mode);
            if let Some(asked) = asked {
                let ticket = asked.ticket;
                let answer = self.enter_force(now, asked);
                reply(effects, ticket, answer);
                for mode in tried {
                    self.leave(now, mode);
                }
            }
            return;
        }
        // Whether a mode needs a reboot may show only when it is tried; another may do as well.
        tried.push(mode.id);
        self.leave(now, mode.id);
        let snapshot = self.snapshot();
        let all = view::candidates(&snapshot);
        if asked.is_none() && self.active_candidate(&all).is_some_and(|mode| self.meets_holds(&mode, &all)) {
            return; // It was to save energy only.
        }
        let question = asked.as_ref().and_then(|asked| asked.hold.question.as_ref());
        let judged = question.filter(|_| self.policy.auto == Automatic::Switch);
        let judged = judged.map(|question| self.judged(question));
        let wanted = asked
            .as_ref()
            .map(|asked| Needs { constraints: &asked.hold.constraints, judged: judged.as_ref() });
        let next = self.choose_for(wanted, Scope::Binding, &tried, &all);
        match (next, asked) {
            (Ok(target), asked) if asked.is_some() || !self.power.holds.is_empty() => {
                let mode = active_mode(&target);
                self.switch_for_holds(now, &target, Purpose::Hold { asked, mode, tried }, effects);
            }
            (_, Some(asked)) => {
                let code = match report.outcome {
                    SwitchOutcome::RebootRequired => "reboot_required",
                    SwitchOutcome::Refused => "refused",
                    SwitchOutcome::NotApplied | SwitchOutcome::Applied => "not_reached",
                };
                refuse(effects, asked.ticket, (code, report.message));
            }
            (_, None) => self.stop_enforcing(&report.message, effects),
        }
    }

    /// What is needed has been said anew.
    pub(in crate::governor) fn enforce_anew(&mut self) {
        self.power.enforce = true;
        self.power.economise = true;
        self.power.left.clear();
    }

    fn leave(&mut self, now: Now, mode: u32) {
        self.power.left.retain(|(other, _)| *other != mode);
        self.power.left.push((mode, now.boottime));
    }

    /// A switch for holds that nobody waits for has failed. What they need is seen to again when the next one comes.
    pub(super) fn stop_enforcing(&mut self, message: &str, effects: &mut Vec<Effect>) {
        self.power.enforce = false;
        log(effects, Severity::Warning, format!("holds are not met: {message}"));
    }

    /// When the mode of before the holds comes back; `None` while it does not.
    pub(super) fn return_due(&self) -> Option<Seconds> {
        let power = &self.power;
        let idle = power.flight.is_none() && power.pending.is_none() && power.holds.is_empty();
        if !idle || power.provisional.is_none() || power.problem.is_some() {
            return None;
        }
        // Where nobody may switch any more, nothing is waited for.
        let after_dwell = if self.policy.control_enabled { self.dwell_over() } else { Seconds::ZERO };
        Some(power.retry_at.map_or(after_dwell, |retry| retry.max(after_dwell)))
    }

    fn held_in(&mut self, now: Now, mode: ActiveMode) {
        self.power.provisional = Some(mode);
        self.power.held_at = Some(now.boottime);
        self.power.retry_at = None;
        self.power.attempts = 0;
    }
}
