//! Orders to the privileged helper, what becomes of their answers, and what is due without anybody asking.

use super::KEPT;
use super::lifecycle::{
    ANSWER_LIMIT, Author, Base, HoldSwitch, OrderInFlight, Pending, Provisional, Purpose, Stage, Standing,
};
use super::said;
use crate::effects::{audit, log, refuse, reply};
use crate::governor::WATCHED_FOR;
use crate::{AuditEvent, AuditRecord, Effect, Governor, Now, Reply, Severity, Ticket};
use rooflined_core::board::{Order, OrderAnswer, OrderFailure, SwitchOutcome, SwitchReport};
use rooflined_core::refusal::Code;
use rooflined_core::units::Seconds;
use rooflined_predict::snapshot::{Hold, ModeCause, PendingConfirmation};

impl Governor {
    /// Sends the order that `begin` makes of the standing. Nothing is sent where one is under way already, or where the
    /// standing allows of none: then it comes back, and so does `false`.
    pub(super) fn order(
        &mut self,
        now: Now,
        what: Order,
        effects: &mut Vec<Effect>,
        begin: impl FnOnce(Standing) -> Result<Purpose, Standing>,
    ) -> bool {
        let (stage, sent) = match std::mem::take(&mut self.power.stage) {
            Stage::Idle(standing) => match begin(standing) {
                Ok(purpose) => (self.send(now, purpose, what, effects), true),
                Err(standing) => (Stage::Idle(standing), false),
            },
            in_flight @ Stage::InFlight(_) => (in_flight, false),
        };
        self.power.stage = stage;
        sent
    }

    /// What follows on an answer, with the standing that the answer left.
    pub(super) fn send(
        &mut self,
        now: Now,
        purpose: Purpose,
        what: Order,
        effects: &mut Vec<Effect>,
    ) -> Stage {
        self.power.orders += 1;
        let number = self.power.orders;
        effects.push(Effect::Actuate { order: number, what });
        Stage::InFlight(OrderInFlight { number, purpose, since: now.boottime })
    }

    pub(super) fn settle(
        &mut self,
        now: Now,
        then: Option<(Ticket, Reply)>,
        record: Option<AuditRecord>,
        effects: &mut Vec<Effect>,
    ) {
        let record = record.map(Box::new);
        self.order(now, Order::Settle, effects, |standing| Ok(standing.settle(then, record)));
    }

    /// Takes a change back that was not confirmed.
    pub(super) fn revert(&mut self, now: Now, asked: Option<(Ticket, u32)>, effects: &mut Vec<Effect>) {
        // The journal's original is the mode from before the holds; while there are any, theirs comes back.
        let of_holds = (self.power.stage.standing().and_then(Standing::provisional))
            .filter(|_| !self.power.holds.active.is_empty())
            .and_then(|entered| self.board.power_modes().iter().find(|other| other.is(&entered.mode)));
        let target = of_holds.map(|mode| mode.name.clone());
        let what = of_holds.map_or(Order::Restore, |mode| Order::SetMode {
            id: mode.id,
            name: mode.name.clone(),
            knob: mode.knob,
            dry_run: false,
            keep: Some(KEPT),
        });
        let (ticket, by) = asked.unzip();
        self.order(now, what, effects, |standing| standing.revert(ticket, by, target));
    }

    pub(crate) fn finish_order(
        &mut self,
        now: Now,
        order: u64,
        answer: OrderAnswer,
        effects: &mut Vec<Effect>,
    ) {
        self.power.stage = match std::mem::take(&mut self.power.stage) {
            Stage::InFlight(sent) if sent.number == order => {
                self.handle_answer(now, sent.purpose, answer, effects)
            }
            other => {
                self.log_late_answer(order, &answer, effects);
                other
            }
        };
    }

    fn log_late_answer(&mut self, order: u64, answer: &OrderAnswer, effects: &mut Vec<Effect>) {
        if matches!(answer, OrderAnswer::Failed(_)) {
            // It was given up already, with the connection that it was sent over.
            return;
        }
        log(effects, Severity::Warning, format!("an answer to order {order} came too late: {answer:?}"));
        self.power.helper.distrust_journal();
    }

    /// What an order came to, and what comes after it.
    fn handle_answer(
        &mut self,
        now: Now,
        purpose: Purpose,
        answer: OrderAnswer,
        effects: &mut Vec<Effect>,
    ) -> Stage {
        match (purpose, answer) {
            (Purpose::Status { standing }, OrderAnswer::Status { journal, recovered, now: found }) => {
                self.journal_found(now, standing, journal.as_ref(), recovered, &found, effects)
            }
            (Purpose::DryRun { ticket, standing }, OrderAnswer::Switched { report }) => {
                reply(effects, ticket, Reply::Switched { report: Box::new(report), confirm: None });
                Stage::Idle(standing)
            }
            (
                Purpose::User { ticket, author, confirm_within, base, .. },
                OrderAnswer::Switched { report },
            ) => self.finish_user_switch(now, (ticket, author), confirm_within, base, report, effects),
            (Purpose::Hold(switch), OrderAnswer::Switched { report }) => {
                self.finish_hold_switch(now, switch, report, effects)
            }
            (Purpose::Revert { ticket, by, pending, .. }, OrderAnswer::Switched { report }) => {
                Stage::Idle(self.finish_revert(now, (ticket, by), pending, report, effects))
            }
            (Purpose::Return { from }, OrderAnswer::Switched { report }) => {
                Stage::Idle(self.finish_return(now, from, &report, effects).into())
            }
            (Purpose::Keep { standing }, OrderAnswer::Switched { report }) => {
                if report.outcome != SwitchOutcome::Applied {
                    let record = AuditRecord::of(AuditEvent::Switch);
                    self.note_reached(now, &report, ModeCause::Hold, record, effects);
                }
                Stage::Idle(standing)
            }
            (Purpose::Undo, OrderAnswer::Switched { report }) => {
                self.finish_undo(now, &report, effects);
                Stage::Idle(Standing::Settled)
            }
            (Purpose::Settle { then, record, .. }, OrderAnswer::Settled) => {
                if let Some(record) = record {
                    let to = record.to.as_deref().unwrap_or("that is active");
                    audit(effects, Severity::Info, format!("power mode {to} stays"), *record);
                }
                if let Some((ticket, answer)) = then {
                    reply(effects, ticket, answer);
                }
                Stage::Idle(Standing::Settled)
            }
            (purpose, OrderAnswer::Failed(failure)) => {
                Stage::Idle(self.order_failed(now, purpose, &failure, effects))
            }
            (purpose, answer) => {
                let message = format!("the privileged helper sent an unexpected answer ({answer:?})");
                let failure = OrderFailure::with_hint(message, "restart rooflined");
                Stage::Idle(self.order_failed(now, purpose, &failure, effects))
            }
        }
    }

    fn order_failed(
        &mut self,
        now: Now,
        purpose: Purpose,
        failure: &OrderFailure,
        effects: &mut Vec<Effect>,
    ) -> Standing {
        let words = failure.to_string();
        let mut failed = |ticket| refuse(effects, ticket, failure.clone().refusal(Code::NotReached));
        match purpose {
            Purpose::DryRun { ticket, standing } => {
                failed(ticket);
                standing
            }
            Purpose::User { ticket, base, .. } => {
                failed(ticket);
                base.into()
            }
            Purpose::Settle { then: Some((ticket, _)), base, .. } => {
                let OrderFailure { message, hint } = failure.clone();
                let message = format!("the mode is active, but is undone when rooflined ends: {message}");
                refuse(effects, ticket, OrderFailure { message, hint }.refusal(Code::NotSettled));
                base.into()
            }
            Purpose::Hold(HoldSwitch { requested: Some((ticket, _)), base, .. }) => {
                failed(ticket);
                base.into()
            }
            Purpose::Hold(HoldSwitch { requested: None, base, .. }) => {
                self.stop_enforcing(&words, effects);
                base.into()
            }
            Purpose::Revert { ticket, pending, .. } => {
                if let Some(ticket) = ticket {
                    failed(ticket);
                }
                self.revert_failed(now, pending, &words, effects)
            }
            Purpose::Return { from } => self.return_failed(now, from, &words, effects).into(),
            Purpose::Undo => {
                self.undo_failed(&words, effects);
                Standing::Settled
            }
            Purpose::Settle { then: None, base, .. } => {
                log(effects, Severity::Warning, format!("power modes: {words}"));
                base.into()
            }
            Purpose::Status { standing } | Purpose::Keep { standing } => {
                log(effects, Severity::Warning, format!("power modes: {words}"));
                standing
            }
        }
    }

    fn finish_user_switch(
        &mut self,
        now: Now,
        (ticket, author): (Ticket, Author),
        confirm_within: Option<Seconds>,
        base: Base,
        report: SwitchReport,
        effects: &mut Vec<Effect>,
    ) -> Stage {
        let record = AuditRecord {
            uid: Some(author.uid),
            reason: said(author.reason),
            ..AuditRecord::of(AuditEvent::Switch)
        };
        self.note_reached(now, &report, ModeCause::User, record, effects);
        if report.outcome != SwitchOutcome::Applied {
            let base = self.unless_left(base, &report);
            reply(effects, ticket, Reply::Switched { report: Box::new(report), confirm: None });
            return Stage::Idle(base.into());
        }
        self.power.holds.enforcement = self.power.holds.enforcement.chosen_by_user();
        let Some(within) = confirm_within else {
            let done = Reply::Switched { report: Box::new(report), confirm: None };
            let purpose = Purpose::Settle { then: Some((ticket, done)), base, record: None };
            return self.send(now, purpose, Order::Settle, effects);
        };
        self.power.changes += 1;
        let (id, deadline) = (self.power.changes, now.boottime + within);
        // After the last hold the way back leads past its mode.
        let of_holds = !self.power.holds.active.is_empty();
        let below =
            base.as_ref().and_then(|base| if of_holds { Some(&base.mode) } else { base.original.as_ref() });
        let original = below.or(report.before.as_ref());
        let confirmation = PendingConfirmation {
            id,
            mode: report.asked.name.clone(),
            original: original.map(|mode| mode.name.clone()).unwrap_or_default(),
            deadline,
        };
        reply(effects, ticket, Reply::Switched { report: Box::new(report), confirm: Some((id, deadline)) });
        Stage::Idle(Standing::Pending(Box::new(Pending::new(confirmation, base))))
    }

    fn finish_revert(
        &mut self,
        now: Now,
        (ticket, by): (Option<Ticket>, Option<u32>),
        mut pending: Box<Pending>,
        report: SwitchReport,
        effects: &mut Vec<Effect>,
    ) -> Standing {
        let record = AuditRecord { uid: by, ..AuditRecord::of(AuditEvent::Revert) };
        self.note_reached(now, &report, ModeCause::Revert, record, effects);
        let standing = if report.outcome == SwitchOutcome::Applied {
            self.power.holds.switched_at = None;
            pending.reverted(report.reached.mode.as_ref().unwrap_or(&report.asked)).into()
        } else {
            pending.base = self.unless_left(pending.base.take(), &report);
            self.revert_failed(now, pending, &report.words(), effects)
        };
        if let Some(ticket) = ticket {
            reply(effects, ticket, Reply::Switched { report: Box::new(report), confirm: None });
        }
        standing
    }

    fn finish_return(
        &mut self,
        now: Now,
        from: Provisional,
        report: &SwitchReport,
        effects: &mut Vec<Effect>,
    ) -> Base {
        self.note_reached(now, report, ModeCause::Revert, AuditRecord::of(AuditEvent::Revert), effects);
        if report.outcome == SwitchOutcome::Applied {
            self.power.holds.switched_at = None;
            return None;
        }
        let base = self.return_failed(now, from, &report.words(), effects);
        self.unless_left(base, report)
    }

    /// Plans another attempt to go back from a change that was not confirmed.
    fn revert_failed(
        &mut self,
        now: Now,
        pending: Box<Pending>,
        message: &str,
        effects: &mut Vec<Effect>,
    ) -> Standing {
        let next = pending.stuck(now.boottime);
        self.report_stuck(next.is_some(), message, effects);
        next.map_or(Standing::Settled, Standing::Pending)
    }

    /// Plans another attempt to go back after the last hold.
    fn return_failed(
        &mut self,
        now: Now,
        from: Provisional,
        message: &str,
        effects: &mut Vec<Effect>,
    ) -> Base {
        let next = from.stuck(now.boottime);
        self.report_stuck(next.is_some(), message, effects);
        next
    }

    /// Reports that the previous mode is not back; a warning while it is tried again, then an error.
    pub(super) fn report_stuck(&mut self, again: bool, message: &str, effects: &mut Vec<Effect>) {
        if again {
            let message = format!("restoring the previous mode failed and is retried: {message}");
            return log(effects, Severity::Warning, message);
        }
        self.power.holds.switched_at = None;
        let advice = "it is tried once more when rooflined ends; set the mode by hand: sudo nvpmodel -m ID";
        let message = format!("the previous mode could not be restored: {message}; {advice}");
        log(effects, Severity::Error, message);
    }

    /// The answer of the order that is under way is not waited for any longer.
    pub(super) fn give_up(&mut self, now: Now, failure: &OrderFailure, effects: &mut Vec<Effect>) {
        self.power.stage = match std::mem::take(&mut self.power.stage) {
            Stage::InFlight(order) => Stage::Idle(self.order_failed(now, order.purpose, failure, effects)),
            idle @ Stage::Idle(_) => idle,
        };
    }

    /// Somebody switches or holds: readings are wanted soon.
    pub(super) fn look_closely(&mut self, now: Now) {
        self.watched_until = self.watched_until.max(now.boottime + WATCHED_FOR);
    }

    /// The timer that was asked for last has run out.
    pub(crate) fn woken(&mut self) {
        self.power.announced.wake_at = None;
    }

    /// Switches or holds are going on, so sampling stays fast.
    pub(crate) fn lively(&self) -> bool {
        let power = &self.power;
        power.stage.in_flight().is_some() || power.stage.pending().is_some() || !power.holds.active.is_empty()
    }

    /// Does what is due, shows it, and says when to come again. Called after every event.
    pub(crate) fn mind_power(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.expire(now, effects);
        if self.power.stage.in_flight().is_some_and(|order| order.deadline() <= now.boottime) {
            let message = format!("the privileged helper has not answered for {ANSWER_LIMIT}");
            let failure = OrderFailure::with_hint(message, "look at journalctl -u rooflined-actuate");
            self.give_up(now, &failure, effects);
            self.power.helper.distrust_journal();
        }
        self.read_journal(now, effects);
        let overdue = |pending: &Pending| {
            pending.confirmation.deadline <= now.boottime
                || !self.policy.control_enabled && pending.is_untried()
        };
        let pending = self.power.stage.standing().and_then(Standing::pending);
        if self.unavailable().is_none() && pending.is_some_and(overdue) {
            self.revert(now, None, effects);
        }
        self.serve_queue(now, effects);
        self.keep_on(now, effects);
        self.answer_queries();
        let switch_due = self.enforce_holds(now, effects);
        if self.return_due().is_some_and(|due| due <= now.boottime) {
            self.order(now, Order::Restore, effects, Standing::go_back);
        }
        self.show(now, switch_due, effects);
    }

    fn show(&mut self, now: Now, switch_due: Option<Seconds>, effects: &mut Vec<Effect>) {
        let lively = self.lively();
        if lively != self.power.announced.lively {
            self.power.announced.lively = lively;
            self.look_closely(now);
            self.pace(now, effects);
        }
        // Before anybody sees a hold, it outlives this daemon.
        self.store_holds(effects);
        if self.power_control() != self.snapshot().power {
            self.publish(now, effects);
        }
        let wake_at = self.next_deadline(switch_due);
        if wake_at != self.power.announced.wake_at {
            self.power.announced.wake_at = wake_at;
            effects.push(Effect::WakeAt(wake_at));
        }
    }

    fn next_deadline(&self, switch_due: Option<Seconds>) -> Option<Seconds> {
        let power = &self.power;
        let holds = power.holds.active.iter().filter_map(Hold::end);
        let answer = power.stage.in_flight().map(OrderInFlight::deadline);
        let reached = power.helper.problem().is_none();
        let pending = power.stage.standing().and_then(Standing::pending).filter(|_| reached);
        let deadline = pending.map(|pending| pending.confirmation.deadline);
        let others = [answer, deadline, switch_due, self.return_due()];
        holds.chain(others.into_iter().flatten()).reduce(Seconds::min)
    }
}
