//! Orders to the root role, what becomes of their answers, and what is due without anybody asking.

use super::holds::Asked;
use super::refuse;
use crate::board::{ActiveMode, BoardState, JournalEntry, Knob, Order, OrderAnswer, Reading};
use crate::board::{ReadBack, SwitchOutcome, SwitchPhase, SwitchReport};
use crate::governor::core::{WATCHED_FOR, log, reply};
use crate::governor::{Effect, Governor, Now, Reply, Severity, Ticket};
use crate::snapshot::{ModeCause, PendingConfirmation};
use crate::units::Seconds;

/// Readings in a row that must show another mode before it counts as somebody else's.
const DEVIATIONS: u32 = 2;
/// The root role has time limits of its own; without an answer for this long it is taken for lost.
const FLIGHT_LIMIT: Seconds = Seconds(180.0);
/// Attempts to go back; what is left then is undone when the root role's connection ends.
const ATTEMPTS: u32 = 3;
/// Pause before the second attempt.
const RETRY: Seconds = Seconds(5.0);

/// An order whose answer has not come.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) order: u64,
    pub(super) purpose: Purpose,
    /// Name of the mode that is being entered.
    pub(super) target: Option<String>,
    since: Seconds,
}

/// What an order is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// To learn what an earlier run left behind.
    Status,
    /// Asked for by a user, as a question.
    DryRun { ticket: Ticket },
    /// Asked for by a user.
    User { ticket: Ticket, confirm_within: Option<Seconds> },
    /// To keep what was entered; then somebody may be told.
    Keep { then: Option<(Ticket, Reply)> },
    /// To meet holds: a new one, unless its client has gone, or those in force.
    Hold { asked: Option<Asked>, mode: ActiveMode, tried: Vec<u32> },
    /// Back from a change that was not confirmed.
    Revert { ticket: Option<Ticket> },
    /// Back after the last hold.
    Return,
    /// Back from what an earlier run of the daemon left behind.
    Undo,
}

impl Flight {
    /// Nobody asked for it.
    pub(super) const fn is_housekeeping(&self) -> bool {
        matches!(self.purpose, Purpose::Status | Purpose::Keep { then: None } | Purpose::Undo)
    }

    pub(super) fn described(&self) -> String {
        match (&self.target, &self.purpose) {
            (Some(target), _) => format!("a switch to {target} is under way"),
            (None, Purpose::Keep { .. }) => "a switch is being settled".to_owned(),
            (None, Purpose::Status) => "the state of the power modes is being read".to_owned(),
            (None, _) => "a switch back is under way".to_owned(),
        }
    }
}

impl Governor {
    /// Sends an order. None is under way.
    pub(super) fn order(&mut self, now: Now, purpose: Purpose, what: Order, effects: &mut Vec<Effect>) {
        self.power.orders += 1;
        let order = self.power.orders;
        let target = match (&what, &purpose) {
            (Order::SetMode { name, dry_run: false, .. }, _) => Some(name.clone()),
            (Order::Restore, Purpose::Revert { .. }) => {
                self.power.pending.as_ref().map(|pending| pending.original.clone())
            }
            _ => None,
        };
        self.power.flight = Some(Flight { order, purpose, target, since: now.boottime });
        effects.push(Effect::Actuate { order, what });
    }

    pub(super) fn settle(&mut self, now: Now, then: Option<(Ticket, Reply)>, effects: &mut Vec<Effect>) {
        self.order(now, Purpose::Keep { then }, Order::Settle, effects);
    }

    /// Takes a change back that was not confirmed.
    pub(super) fn revert(&mut self, now: Now, ticket: Option<Ticket>, effects: &mut Vec<Effect>) {
        // The journal's original is the mode of before the holds; while there are any, theirs comes back.
        let of_holds = self.power.provisional.clone().filter(|_| !self.power.holds.is_empty());
        let what = of_holds
            .and_then(|mode| self.board.power_modes().iter().find(|other| other.id == mode.id))
            .map_or(Order::Restore, |mode| Order::SetMode {
                id: mode.id,
                name: mode.name.clone(),
                knob: mode.knob,
                dry_run: false,
            });
        self.order(now, Purpose::Revert { ticket }, what, effects);
    }

    pub(in crate::governor) fn ordered(
        &mut self,
        now: Now,
        order: u64,
        answer: OrderAnswer,
        effects: &mut Vec<Effect>,
    ) {
        let Some(flight) = self.power.flight.take_if(|flight| flight.order == order) else {
            if matches!(answer, OrderAnswer::Failed { .. }) {
                // It was given up already, with the connection that it was sent over.
                return;
            }
            log(effects, Severity::Warning, format!("an answer to order {order} came too late: {answer:?}"));
            // Whatever it did, the journal knows.
            self.power.acquainted = false;
            return;
        };
        match (flight.purpose, answer) {
            (Purpose::Status, OrderAnswer::Status { journal, recovered, now: found }) => {
                self.acquainted(now, journal.as_ref(), recovered, &found, effects);
            }
            (Purpose::DryRun { ticket }, OrderAnswer::Switched { report }) => {
                reply(effects, ticket, Reply::Switched { report: Box::new(report), confirm: None });
            }
            (Purpose::User { ticket, confirm_within }, OrderAnswer::Switched { report }) => {
                self.user_switched(now, ticket, confirm_within, report, effects);
            }
            (Purpose::Hold { asked, mode, tried }, OrderAnswer::Switched { report }) => {
                self.hold_switched(now, asked, mode, tried, report, effects);
            }
            (Purpose::Revert { ticket }, OrderAnswer::Switched { report }) => {
                self.reverted(now, ticket, report, effects);
            }
            (Purpose::Return | Purpose::Undo, OrderAnswer::Switched { report }) => {
                self.returned(now, &report, effects);
            }
            (Purpose::Keep { then }, OrderAnswer::Settled) => {
                self.power.provisional = None;
                if let Some((ticket, answer)) = then {
                    reply(effects, ticket, answer);
                }
            }
            (purpose, OrderAnswer::Failed { message }) => self.order_failed(now, purpose, &message, effects),
            (purpose, answer) => {
                let message =
                    format!("the root role answered something else ({answer:?}); restart rooflined");
                self.order_failed(now, purpose, &message, effects);
            }
        }
    }

    fn order_failed(&mut self, now: Now, purpose: Purpose, message: &str, effects: &mut Vec<Effect>) {
        let mut failed = |ticket, code| refuse(effects, ticket, (code, message.to_owned()));
        match purpose {
            Purpose::DryRun { ticket } | Purpose::User { ticket, .. } => failed(ticket, "not_reached"),
            Purpose::Keep { then: Some((ticket, _)) } => {
                let message = format!("the mode is in force, but is undone when rooflined ends: {message}");
                refuse(effects, ticket, ("not_settled", message));
            }
            Purpose::Hold { asked: Some(asked), .. } => failed(asked.ticket, "not_reached"),
            Purpose::Hold { asked: None, .. } => self.stop_enforcing(message, effects),
            Purpose::Revert { ticket } => {
                if let Some(ticket) = ticket {
                    failed(ticket, "not_reached");
                }
                self.try_again(now, message, effects);
            }
            Purpose::Return | Purpose::Undo => self.try_again(now, message, effects),
            Purpose::Keep { then: None } | Purpose::Status => {
                log(effects, Severity::Warning, format!("power modes: {message}"));
            }
        }
    }

    fn user_switched(
        &mut self,
        now: Now,
        ticket: Ticket,
        confirm_within: Option<Seconds>,
        report: SwitchReport,
        effects: &mut Vec<Effect>,
    ) {
        let original = self.power.provisional.as_ref().or(report.before.as_ref()).cloned();
        self.note_reached(now, &report, ModeCause::User, effects);
        if report.outcome != SwitchOutcome::Applied {
            return reply(effects, ticket, Reply::Switched { report: Box::new(report), confirm: None });
        }
        self.power.economise = false;
        let Some(within) = confirm_within else {
            let done = Reply::Switched { report: Box::new(report), confirm: None };
            return self.settle(now, Some((ticket, done)), effects);
        };
        self.power.changes += 1;
        let (id, deadline) = (self.power.changes, now.boottime + within);
        self.power.attempts = 0;
        self.power.pending = Some(PendingConfirmation {
            id,
            mode: report.asked.name.clone(),
            original: original.map(|mode| mode.name).unwrap_or_default(),
            deadline,
        });
        reply(effects, ticket, Reply::Switched { report: Box::new(report), confirm: Some((id, deadline)) });
    }

    fn reverted(
        &mut self,
        now: Now,
        ticket: Option<Ticket>,
        report: SwitchReport,
        effects: &mut Vec<Effect>,
    ) {
        self.note_reached(now, &report, ModeCause::Revert, effects);
        if report.outcome == SwitchOutcome::Applied {
            let back = report.reached.mode.as_ref().unwrap_or(&report.asked);
            if self.power.provisional.as_ref().is_some_and(|provisional| provisional.id != back.id) {
                self.power.provisional = None;
            }
            self.power.pending = None;
            self.gone_back();
        } else {
            self.try_again(now, &report.message, effects);
        }
        if let Some(ticket) = ticket {
            reply(effects, ticket, Reply::Switched { report: Box::new(report), confirm: None });
        }
    }

    fn returned(&mut self, now: Now, report: &SwitchReport, effects: &mut Vec<Effect>) {
        self.note_reached(now, report, ModeCause::Revert, effects);
        if report.outcome == SwitchOutcome::Applied {
            self.power.provisional = None;
            self.gone_back();
        } else {
            self.try_again(now, &report.message, effects);
        }
    }

    fn gone_back(&mut self) {
        self.power.attempts = 0;
        self.power.retry_at = None;
        self.power.held_at = None;
    }

    /// Plans another attempt to go back, later each time; in the end gives up aloud.
    fn try_again(&mut self, now: Now, message: &str, effects: &mut Vec<Effect>) {
        self.power.attempts += 1;
        if self.power.attempts >= ATTEMPTS {
            self.power.pending = None;
            self.power.provisional = None;
            self.gone_back();
            let advice =
                "it is tried once more when rooflined ends; set the mode by hand: sudo nvpmodel -m ID";
            return log(
                effects,
                Severity::Error,
                format!("the mode of before could not be restored: {message}; {advice}"),
            );
        }
        let at = now.boottime + RETRY * f64::from(1_u32 << (self.power.attempts - 1));
        self.power.retry_at = Some(at);
        if let Some(pending) = &mut self.power.pending {
            pending.deadline = at;
        }
        log(effects, Severity::Warning, format!("going back failed and is tried again: {message}"));
    }

    /// What the live files showed after a switch is a reading like any other, and a newer one than the sampler's.
    pub(super) fn note_reached(
        &mut self,
        now: Now,
        report: &SwitchReport,
        cause: ModeCause,
        effects: &mut Vec<Effect>,
    ) {
        let applied = report.outcome == SwitchOutcome::Applied;
        let reached = report.reached.mode.clone().or_else(|| applied.then(|| report.asked.clone()));
        let name =
            |mode: Option<&ActiveMode>| mode.map_or("an unknown mode".to_owned(), |mode| mode.name.clone());
        if applied {
            self.power.cause = cause;
            let (to, from) = (name(reached.as_ref()), name(report.before.as_ref()));
            let message = format!("power mode {to} entered from {from} in {} ({})", report.took, cause.key());
            log(effects, Severity::Info, message);
        } else {
            let (asked, now) = (&report.asked.name, name(reached.as_ref()));
            let message = format!("power mode {asked} was not entered, {now} is active: {}", report.message);
            log(effects, Severity::Warning, message);
        }
        self.power.last = Some(report.clone());
        if matches!(report.outcome, SwitchOutcome::RebootRequired | SwitchOutcome::Refused) {
            return; // Nothing was changed.
        }
        self.take_reading(now, reached, &report.reached);
        if !applied && self.power.provisional != self.power.expected {
            self.power.provisional = None;
        }
    }

    fn take_reading(&mut self, now: Now, mode: Option<ActiveMode>, found: &ReadBack) {
        self.power.switched_at = now.boottime;
        self.power.deviations = 0;
        self.state.power_mode = match mode.clone() {
            Some(mode) => Reading::Known(mode),
            None => Reading::failed("after an unfinished switch the live files match no power mode"),
        };
        self.power.expected = mode;
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

    /// What an earlier run, or a root role that was lost, left behind. Its holds and confirmations died with it, so a
    /// switch that is not settled is undone, unless it is the one that this run still holds or waits for.
    fn acquainted(
        &mut self,
        now: Now,
        journal: Option<&JournalEntry>,
        recovered: Option<String>,
        found: &ReadBack,
        effects: &mut Vec<Effect>,
    ) {
        let undone = recovered.is_some();
        if let Some(recovered) = recovered {
            log(
                effects,
                Severity::Info,
                format!("an unsettled switch of the power mode was found: {recovered}"),
            );
        }
        let pending = self.power.pending.as_ref().map(|pending| pending.mode.as_str());
        let provisional = self.power.provisional.as_ref().map(|mode| mode.name.as_str());
        match journal {
            Some(entry) => {
                let ours = pending.or(provisional) == Some(entry.target.name.as_str());
                if entry.phase == SwitchPhase::Applied && ours {
                    return;
                }
                let (from, to) = (&entry.target.name, &entry.original.name);
                log(
                    effects,
                    Severity::Warning,
                    format!("power mode {from} was not settled; {to} is restored"),
                );
                self.power.pending = None;
                self.power.provisional = None;
                self.order(now, Purpose::Undo, Order::Restore, effects);
            }
            None => {
                if pending.is_some() || provisional.is_some() {
                    let message = "the root role was lost, so the power mode of before was restored";
                    log(effects, Severity::Warning, message.to_owned());
                    self.power.pending = None;
                    self.power.provisional = None;
                    self.power.cause = ModeCause::Revert;
                    self.take_reading(now, found.mode.clone(), found);
                } else if undone {
                    // What was read before the root role went back is nobody else's doing.
                    self.power.cause = ModeCause::Revert;
                    self.take_reading(now, found.mode.clone(), found);
                }
            }
        }
    }

    pub(in crate::governor) fn actuator_changed(
        &mut self,
        now: Now,
        problem: Option<String>,
        effects: &mut Vec<Effect>,
    ) {
        match &problem {
            None => self.power.acquainted = false,
            Some(problem) => {
                // No answer will come over a connection that is gone.
                if let Some(flight) = self.power.flight.take() {
                    self.order_failed(now, flight.purpose, problem, effects);
                }
                if self.power.problem.is_none() {
                    log(effects, Severity::Warning, format!("power modes cannot be switched: {problem}"));
                }
            }
        }
        if problem.is_none() && self.power.problem.is_some() {
            log(effects, Severity::Info, "power modes can be switched again".to_owned());
        }
        self.power.problem = problem;
    }

    /// Whether the sampler's reading replaces the state: not if it was begun before the last switch had ended.
    pub(in crate::governor) fn outdated(&self, state: &BoardState) -> bool {
        state.taken_at < self.power.switched_at
    }

    /// Where nothing reads which clocks are locked, the root role's last answer is the reading there is.
    pub(in crate::governor) fn complete(&self, state: &mut BoardState) {
        let Some(expected) = &self.power.expected else { return };
        let mode = self.board.power_modes().iter().find(|mode| mode.id == expected.id);
        let locked = mode.is_some_and(|mode| mode.knob != Knob::Nvpmodel);
        if locked && matches!(state.power_mode, Reading::Absent { .. }) {
            state.power_mode = Reading::Known(expected.clone());
        }
    }

    /// Notices that somebody else has switched. That is reported and not fought.
    pub(in crate::governor) fn watch_mode(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.power.flight.is_some() {
            return;
        }
        let power = &mut self.power;
        let Some(seen) = self.state.power_mode.known() else {
            // Caps that are no mode's: changed by hand, since this program knew of a mode.
            let Some(expected) =
                power.expected.as_ref().filter(|_| self.state.gpu_clock_cap.known().is_some())
            else {
                return;
            };
            power.deviations += 1;
            if power.deviations == DEVIATIONS {
                let why = self.state.power_mode.reason().unwrap_or_default();
                let message =
                    format!("somebody else changed the caps of power mode {}: {why}", expected.name);
                log(effects, Severity::Warning, message);
                power.cause = ModeCause::External;
                power.enforce = false;
            }
            return;
        };
        let Some(expected) = &power.expected else {
            power.expected = Some(seen.clone());
            return;
        };
        if expected.id == seen.id {
            power.deviations = 0;
            return;
        }
        power.deviations += 1;
        if power.deviations < DEVIATIONS {
            return;
        }
        let (from, to) = (expected.name.clone(), seen.name.clone());
        log(effects, Severity::Warning, format!("somebody else switched the power mode from {from} to {to}"));
        power.cause = ModeCause::External;
        power.expected = Some(seen.clone());
        power.deviations = 0;
        power.enforce = false;
        let unsettled = power.pending.take().is_some() | power.provisional.take().is_some();
        self.gone_back();
        if unsettled {
            // Else it would be undone one day over the head of whoever switched.
            self.settle(now, None, effects);
        }
    }

    /// Somebody switches or holds: readings are wanted soon.
    pub(super) fn look_closely(&mut self, now: Now) {
        self.watched_until = self.watched_until.max(now.boottime + WATCHED_FOR);
    }

    /// The timer that was asked for last has run out.
    pub(in crate::governor) fn woken(&mut self) {
        self.power.wake_at = None;
    }

    /// Switches or holds are going on, so sampling stays fast.
    pub(in crate::governor) fn lively(&self) -> bool {
        self.power.flight.is_some() || self.power.pending.is_some() || !self.power.holds.is_empty()
    }

    /// Does what is due, shows it, and says when to come again. Called after every event.
    pub(in crate::governor) fn mind_power(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.expire(now, effects);
        if let Some(flight) = self.power.flight.take_if(|flight| now.boottime - flight.since >= FLIGHT_LIMIT)
        {
            let message = format!(
                "the root role has not answered for {FLIGHT_LIMIT}; look at journalctl -u rooflined-actuate"
            );
            self.order_failed(now, flight.purpose, &message, effects);
            self.power.acquainted = false;
        }
        self.get_acquainted(now, effects);
        let can_switch = self.unavailable().is_none();
        let overdue = self.power.pending.as_ref().is_some_and(|pending| {
            pending.deadline <= now.boottime || !self.policy.control_enabled && self.power.attempts == 0
        });
        if self.power.flight.is_none() && can_switch && overdue {
            self.revert(now, None, effects);
        }
        self.serve_queue(now, effects);
        self.judge_queries();
        self.enforce_holds(now, effects);
        if self.return_due().is_some_and(|due| due <= now.boottime) {
            self.order(now, Purpose::Return, Order::Restore, effects);
        }
        self.show(now, effects);
    }

    /// The first order asks what an earlier run left behind: a later one would take its own switch for that.
    pub(super) fn get_acquainted(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let free = self.power.flight.is_none() && self.unavailable().is_none();
        if free && !self.power.acquainted && (!self.power.greeted || self.may_matter()) {
            self.power.greeted = true;
            self.power.acquainted = true;
            self.order(now, Purpose::Status, Order::Status, effects);
        }
    }

    /// Where nobody may switch the root role is woken once, for what an earlier run may have left behind.
    fn may_matter(&self) -> bool {
        self.policy.control_enabled || self.power.pending.is_some() || self.power.provisional.is_some()
    }

    fn show(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let lively = self.lively();
        if lively != self.power.lively {
            self.power.lively = lively;
            self.look_closely(now);
            self.pace(now, effects);
        }
        if self.power_control() != self.snapshot().power {
            self.publish(now, effects);
        }
        let wake_at = self.next_deadline();
        if wake_at != self.power.wake_at {
            self.power.wake_at = wake_at;
            effects.push(Effect::WakeAt(wake_at));
        }
    }

    fn next_deadline(&self) -> Option<Seconds> {
        let power = &self.power;
        let holds = power.holds.iter().filter_map(|held| held.hold.expires_at);
        let flight = power.flight.as_ref().map(|flight| flight.since + FLIGHT_LIMIT);
        let can_switch = power.flight.is_none() && power.problem.is_none();
        let pending = power.pending.as_ref().map(|pending| pending.deadline).filter(|_| can_switch);
        let waits = power.waits_until.filter(|_| can_switch);
        holds.chain(flight).chain(pending).chain(waits).chain(self.return_due()).reduce(Seconds::min)
    }
}
