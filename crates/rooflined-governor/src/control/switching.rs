//! Orders to the privileged helper, what becomes of their answers, and what is due without anybody asking.

use super::KEPT;
use super::lifecycle::{
    ANSWER_LIMIT, Author, Base, HoldSwitch, OrderInFlight, Pending, Provisional, Purpose, Stage, Standing,
};
use super::said;
use crate::governor::WATCHED_FOR;
use crate::{AuditEvent, AuditRecord, Effect, Governor, Reply, Severity, Ticket};
use rooflined_core::board::{Order, OrderAnswer, OrderFailure, SwitchOutcome, SwitchReport};
use rooflined_core::refusal::Code;
use rooflined_core::units::Seconds;
use rooflined_predict::snapshot::{Hold, ModeCause, PendingConfirmation};

impl Governor {
    /// Sends the order that `begin` makes of the standing. Nothing is sent where one is under way already, or where the
    /// standing allows of none: then it comes back, and so does `false`.
    pub(super) fn order(
        &mut self,
        what: Order,
        begin: impl FnOnce(Standing) -> Result<Purpose, Standing>,
    ) -> bool {
        let (stage, sent) = match std::mem::take(&mut self.power.stage) {
            Stage::Idle(standing) => match begin(standing) {
                Ok(purpose) => (self.send(purpose, what), true),
                Err(standing) => (Stage::Idle(standing), false),
            },
            in_flight @ Stage::InFlight(_) => (in_flight, false),
        };
        self.power.stage = stage;
        sent
    }

    /// What follows on an answer, with the standing that the answer left.
    pub(super) fn send(&mut self, purpose: Purpose, what: Order) -> Stage {
        self.power.orders += 1;
        let number = self.power.orders;
        self.effects.push(Effect::Actuate { order: number, what });
        Stage::InFlight(OrderInFlight { number, purpose, since: self.now.boottime })
    }

    pub(super) fn settle(&mut self, then: Option<(Ticket, Reply)>, record: Option<AuditRecord>) {
        let record = record.map(Box::new);
        self.order(Order::Settle, |standing| Ok(standing.settle(then, record)));
    }

    /// Takes a change back that was not confirmed.
    pub(super) fn revert(&mut self, asked: Option<(Ticket, u32)>) {
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
        self.order(what, |standing| standing.revert(ticket, by, target));
    }

    pub(crate) fn finish_order(&mut self, order: u64, answer: OrderAnswer) {
        self.power.stage = match std::mem::take(&mut self.power.stage) {
            Stage::InFlight(sent) if sent.number == order => self.handle_answer(sent.purpose, answer),
            other => {
                self.log_late_answer(order, &answer);
                other
            }
        };
    }

    fn log_late_answer(&mut self, order: u64, answer: &OrderAnswer) {
        if matches!(answer, OrderAnswer::Failed(_)) {
            // It was given up already, with the connection that it was sent over.
            return;
        }
        self.effects.log(Severity::Warning, format!("an answer to order {order} came too late: {answer:?}"));
        self.power.helper.distrust_journal();
    }

    /// What an order came to, and what comes after it.
    fn handle_answer(&mut self, purpose: Purpose, answer: OrderAnswer) -> Stage {
        match (purpose, answer) {
            (Purpose::Status { standing }, OrderAnswer::Status { journal, recovered, now: found }) => {
                self.journal_found(standing, journal.as_ref(), recovered, &found)
            }
            (Purpose::DryRun { ticket, standing }, OrderAnswer::Switched { report }) => {
                self.effects.reply(ticket, Reply::Switched { report: Box::new(report), confirm: None });
                Stage::Idle(standing)
            }
            (
                Purpose::User { ticket, author, confirm_within, base, .. },
                OrderAnswer::Switched { report },
            ) => self.finish_user_switch((ticket, author), confirm_within, base, report),
            (Purpose::Hold(switch), OrderAnswer::Switched { report }) => {
                self.finish_hold_switch(switch, report)
            }
            (Purpose::Revert { ticket, by, pending, .. }, OrderAnswer::Switched { report }) => {
                Stage::Idle(self.finish_revert((ticket, by), pending, report))
            }
            (Purpose::Return { from }, OrderAnswer::Switched { report }) => {
                Stage::Idle(self.finish_return(from, &report).into())
            }
            (Purpose::Keep { standing }, OrderAnswer::Switched { report }) => {
                if report.outcome != SwitchOutcome::Applied {
                    let record = AuditRecord::of(AuditEvent::Switch);
                    self.note_reached(&report, ModeCause::Hold, record);
                }
                Stage::Idle(standing)
            }
            (Purpose::Undo, OrderAnswer::Switched { report }) => {
                self.finish_undo(&report);
                Stage::Idle(Standing::Settled)
            }
            (Purpose::Settle { then, record, .. }, OrderAnswer::Settled) => {
                if let Some(record) = record {
                    let to = record.to.as_deref().unwrap_or("that is active");
                    self.effects.audit(Severity::Info, format!("power mode {to} stays"), *record);
                }
                if let Some((ticket, answer)) = then {
                    self.effects.reply(ticket, answer);
                }
                Stage::Idle(Standing::Settled)
            }
            (purpose, OrderAnswer::Failed(failure)) => Stage::Idle(self.order_failed(purpose, &failure)),
            (purpose, answer) => {
                let message = format!("the privileged helper sent an unexpected answer ({answer:?})");
                let failure = OrderFailure::with_hint(message, "restart rooflined");
                Stage::Idle(self.order_failed(purpose, &failure))
            }
        }
    }

    fn order_failed(&mut self, purpose: Purpose, failure: &OrderFailure) -> Standing {
        let words = failure.to_string();
        let mut failed = |ticket| self.effects.refuse(ticket, failure.clone().refusal(Code::NotReached));
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
                self.effects.refuse(ticket, OrderFailure { message, hint }.refusal(Code::NotSettled));
                base.into()
            }
            Purpose::Hold(HoldSwitch { requested: Some((ticket, _)), base, .. }) => {
                failed(ticket);
                base.into()
            }
            Purpose::Hold(HoldSwitch { requested: None, base, .. }) => {
                self.stop_enforcing(&words);
                base.into()
            }
            Purpose::Revert { ticket, pending, .. } => {
                if let Some(ticket) = ticket {
                    failed(ticket);
                }
                self.revert_failed(pending, &words)
            }
            Purpose::Return { from } => self.return_failed(from, &words).into(),
            Purpose::Undo => {
                self.undo_failed(&words);
                Standing::Settled
            }
            Purpose::Settle { then: None, base, .. } => {
                self.effects.log(Severity::Warning, format!("power modes: {words}"));
                base.into()
            }
            Purpose::Status { standing } | Purpose::Keep { standing } => {
                self.effects.log(Severity::Warning, format!("power modes: {words}"));
                standing
            }
        }
    }

    fn finish_user_switch(
        &mut self,
        (ticket, author): (Ticket, Author),
        confirm_within: Option<Seconds>,
        base: Base,
        report: SwitchReport,
    ) -> Stage {
        let record = AuditRecord {
            uid: Some(author.uid),
            reason: said(author.reason),
            ..AuditRecord::of(AuditEvent::Switch)
        };
        self.note_reached(&report, ModeCause::User, record);
        if report.outcome != SwitchOutcome::Applied {
            let base = self.unless_left(base, &report);
            self.effects.reply(ticket, Reply::Switched { report: Box::new(report), confirm: None });
            return Stage::Idle(base.into());
        }
        self.power.holds.enforcement = self.power.holds.enforcement.chosen_by_user();
        let Some(within) = confirm_within else {
            let done = Reply::Switched { report: Box::new(report), confirm: None };
            let purpose = Purpose::Settle { then: Some((ticket, done)), base, record: None };
            return self.send(purpose, Order::Settle);
        };
        self.power.changes += 1;
        let (id, deadline) = (self.power.changes, self.now.boottime + within);
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
        self.effects
            .reply(ticket, Reply::Switched { report: Box::new(report), confirm: Some((id, deadline)) });
        Stage::Idle(Standing::Pending(Box::new(Pending::new(confirmation, base))))
    }

    fn finish_revert(
        &mut self,
        (ticket, by): (Option<Ticket>, Option<u32>),
        mut pending: Box<Pending>,
        report: SwitchReport,
    ) -> Standing {
        let record = AuditRecord { uid: by, ..AuditRecord::of(AuditEvent::Revert) };
        self.note_reached(&report, ModeCause::Revert, record);
        let standing = if report.outcome == SwitchOutcome::Applied {
            self.power.holds.switched_at = None;
            pending.reverted(report.reached.mode.as_ref().unwrap_or(&report.asked)).into()
        } else {
            pending.base = self.unless_left(pending.base.take(), &report);
            self.revert_failed(pending, &report.words())
        };
        if let Some(ticket) = ticket {
            self.effects.reply(ticket, Reply::Switched { report: Box::new(report), confirm: None });
        }
        standing
    }

    fn finish_return(&mut self, from: Provisional, report: &SwitchReport) -> Base {
        self.note_reached(report, ModeCause::Revert, AuditRecord::of(AuditEvent::Revert));
        if report.outcome == SwitchOutcome::Applied {
            self.power.holds.switched_at = None;
            return None;
        }
        let base = self.return_failed(from, &report.words());
        self.unless_left(base, report)
    }

    /// Plans another attempt to go back from a change that was not confirmed.
    fn revert_failed(&mut self, pending: Box<Pending>, message: &str) -> Standing {
        let next = pending.stuck(self.now.boottime);
        self.report_stuck(next.is_some(), message);
        next.map_or(Standing::Settled, Standing::Pending)
    }

    /// Plans another attempt to go back after the last hold.
    fn return_failed(&mut self, from: Provisional, message: &str) -> Base {
        let next = from.stuck(self.now.boottime);
        self.report_stuck(next.is_some(), message);
        next
    }

    /// Reports that the previous mode is not back; a warning while it is tried again, then an error.
    pub(super) fn report_stuck(&mut self, again: bool, message: &str) {
        if again {
            let message = format!("restoring the previous mode failed and is retried: {message}");
            return self.effects.log(Severity::Warning, message);
        }
        self.power.holds.switched_at = None;
        let advice = "it is tried once more when rooflined ends; set the mode by hand: sudo nvpmodel -m ID";
        let message = format!("the previous mode could not be restored: {message}; {advice}");
        self.effects.log(Severity::Error, message);
    }

    /// The answer of the order that is under way is not waited for any longer.
    pub(super) fn give_up(&mut self, failure: &OrderFailure) {
        self.power.stage = match std::mem::take(&mut self.power.stage) {
            Stage::InFlight(order) => Stage::Idle(self.order_failed(order.purpose, failure)),
            idle @ Stage::Idle(_) => idle,
        };
    }

    /// Somebody switches or holds: readings are wanted soon.
    pub(super) fn look_closely(&mut self) {
        self.watched_until = self.watched_until.max(self.now.boottime + WATCHED_FOR);
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
    pub(crate) fn mind_power(&mut self) {
        self.expire();
        if self.power.stage.in_flight().is_some_and(|order| order.deadline() <= self.now.boottime) {
            let message = format!("the privileged helper has not answered for {ANSWER_LIMIT}");
            let failure = OrderFailure::with_hint(message, "look at journalctl -u rooflined-actuate");
            self.give_up(&failure);
            self.power.helper.distrust_journal();
        }
        self.read_journal();
        let overdue = |pending: &Pending| {
            pending.confirmation.deadline <= self.now.boottime
                || !self.policy.control_enabled && pending.is_untried()
        };
        let pending = self.power.stage.standing().and_then(Standing::pending);
        if self.unavailable().is_none() && pending.is_some_and(overdue) {
            self.revert(None);
        }
        self.serve_queue();
        self.keep_on();
        self.answer_queries();
        let switch_due = self.enforce_holds();
        if self.return_due().is_some_and(|due| due <= self.now.boottime) {
            self.order(Order::Restore, Standing::go_back);
        }
        self.show(switch_due);
    }

    fn show(&mut self, switch_due: Option<Seconds>) {
        let lively = self.lively();
        if lively != self.power.announced.lively {
            self.power.announced.lively = lively;
            self.look_closely();
            self.pace();
        }
        // Before anybody sees a hold, it outlives this daemon.
        self.store_holds();
        if self.power_control() != self.snapshot().power {
            self.publish();
        }
        let wake_at = self.next_deadline(switch_due);
        if wake_at != self.power.announced.wake_at {
            self.power.announced.wake_at = wake_at;
            self.effects.push(Effect::WakeAt(wake_at));
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
