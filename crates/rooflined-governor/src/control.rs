//! Power modes: who may have which, what is switched when, and what is undone.
//!
//! | what | rule |
//! |---|---|
//! | allowed | nothing until `[control] enabled = true`, for root neither; then the modes of `allowed_modes` |
//! | at one time | one switch; another user's is refused as `busy`, further holds wait for it |
//! | a user's switch | settled once the live files show it, or undone unless confirmed in time; refused while it would break a hold |
//! | a hold | the mode in force stays if it meets every hold; else the one with the lowest power that does is entered, provisionally |
//! | tightening | at once |
//! | a query | with `auto = "switch"` it is a constraint, met by the modes in which it has an answer; of those that meet all the one with the least energy for all queries together. With `"advise"` it binds nobody: the mode is said and not entered. With `"off"` it is refused, and one in force ends |
//! | economy | a mode that meets every hold is left for one in which the queries take less energy by more than `hysteresis_ratio`, no sooner than the dwell time after the last switch for a hold, and not after a user has chosen it among the holds |
//! | contradiction | a new hold that no mode meets beside those in force is refused. Of those in force, should they come to contradict each other, the oldest are kept, and the owners of the others learn which hold and which constraint is against theirs |
//! | loosening | a mode that still meets every hold stays; after the last hold the previous mode comes back, no sooner than the dwell time after the last switch for a hold |
//! | somebody else's switch | after two readings that show it: cause `external`; nothing is undone any more, holds stay but are not enforced until a new one comes |
//! | a restart of the daemon | holds go on. The privileged helper keeps their mode for [`KEPT`]; one that is attached to a connection ends unless its client asks for the same again within as long, and nothing is switched for holds before that is decided |
//! | a lost privileged helper | it undoes what is not settled by itself; when it is back, its journal says what became of it |
//! | control disabled again | every hold ends and what is not confirmed goes back |
//!
//! What was entered for a hold is never settled, so that the death of the daemon undoes it, unless another is there in time. The states between an order
//! and what is settled or undone are those of [`lifecycle`].

mod arbitration;
mod choose;
mod enforcement;
mod helper;
mod hold;
mod holds;
mod journal;
mod lifecycle;
mod mode_in_force;
mod mode_tracker;
mod queries;
mod state;
mod stored;
mod switching;
mod view;

#[cfg(test)]
mod tests;

use self::choose::Candidate;
pub use self::hold::{StoredHold, StoredHolds};
use self::lifecycle::{Author, Purpose, Stage, Standing};
pub(super) use self::state::PowerState;
use self::state::Queued;
use super::{AuditEvent, AuditRecord, Client, ControlRequest, Governor, Reply, Ticket};
use rooflined_core::board::{ActiveMode, Order, PowerMode, SwitchOutcome};
use rooflined_core::configuration::how_to_enable_control;
use rooflined_core::near::Near;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::Seconds;
use rooflined_predict::snapshot::{ModeCause, PendingConfirmation};

/// The mode of the holds and those attached to a connection outlive the daemon for this long: until another is there, and
/// then until their clients are.
pub(super) const KEPT: Seconds = Seconds(30.0);

impl Governor {
    pub(super) fn control_requested(&mut self, ticket: Ticket, client: Client, request: ControlRequest) {
        // What has expired is gone, also if its timer is late.
        self.expire();
        self.look_closely();
        self.read_journal();
        if let Err(refusal) = self.dispatch(Queued { ticket, client, request }) {
            self.effects.refuse(ticket, refusal);
        }
    }

    fn dispatch(&mut self, queued: Queued) -> Result<(), Refusal> {
        let housekeeping =
            (self.power.stage.in_flight()).is_some_and(|order| order.purpose.is_housekeeping());
        if self.policy.control_enabled && housekeeping && queued.request.waits() {
            return self.enqueue(queued);
        }
        let Queued { ticket, client, request } = queued;
        let answer = match request {
            // Letting go is possible even after control was switched off.
            ControlRequest::Release { cookie } => self.release(client, cookie).map(|()| Some(Reply::Done))?,
            _ if !self.policy.control_enabled => return Err(disabled()),
            ControlRequest::SetMode { mode, confirm_within, dry_run, reason } => {
                let author = Author { uid: client.uid, reason };
                self.set_mode((ticket, author), &mode, confirm_within, dry_run)?
            }
            ControlRequest::Confirm { id } => self.confirm((ticket, client), id)?,
            ControlRequest::Revert { id } => self.revert_requested((ticket, client), id)?,
            ControlRequest::Hold(mut hold) => {
                (hold.uid, hold.connection) = (client.uid, client.connection);
                self.may_hold(&hold)?;
                if self.power.stage.in_flight().is_some() {
                    return self.enqueue(Queued { ticket, client, request: ControlRequest::Hold(hold) });
                }
                self.grant((ticket, hold))?
            }
            ControlRequest::Renew { cookie, ttl } => Some(self.renew(client, cookie, ttl)?),
        };
        if let Some(answer) = answer {
            self.effects.reply(ticket, answer);
        }
        Ok(())
    }

    /// A request waits for the end of what is under way.
    fn enqueue(&mut self, queued: Queued) -> Result<(), Refusal> {
        if self.power.queue.len() >= holds::MOST {
            let message = format!("{} requests wait already", holds::MOST);
            return Err(Code::Busy.error(message, "try again in a second"));
        }
        self.power.queue.push_back(queued);
        Ok(())
    }

    /// Requests that waited for a switch, until one needs another.
    fn serve_queue(&mut self) {
        while self.power.stage.in_flight().is_none() {
            let Some(queued) = self.power.queue.pop_front() else { return };
            let ticket = queued.ticket;
            if let Err(refusal) = self.dispatch(queued) {
                self.effects.refuse(ticket, refusal);
            }
        }
    }

    /// `None`: the reply comes with the answer of the privileged helper.
    fn set_mode(
        &mut self,
        (ticket, author): (Ticket, Author),
        name: &str,
        confirm_within: Option<Seconds>,
        dry_run: bool,
    ) -> Result<Option<Reply>, Refusal> {
        let snapshot = self.snapshot();
        let all = view::candidates(&snapshot);
        let target = *self.known_mode(&all, name)?;
        self.may_enter(&target)?;
        self.reachable()?;
        self.idle()?;
        if !dry_run {
            self.nothing_pending()?;
        }
        self.keeps_holds(&target, &all)?;
        let active = active_mode(&target);
        // The privileged helper compares every file of the mode; a reading only those that tell modes apart.
        let of_holds = matches!(self.power.stage, Stage::Idle(Standing::Provisional(_)));
        if !dry_run && confirm_within.is_none() && of_holds && self.is_active(&active) {
            let report = self.already(&active);
            let done = Reply::Switched { report: Box::new(report), confirm: None };
            // It is active for a hold's sake only; now it is meant to stay.
            self.power.mode.cause = ModeCause::User;
            self.power.holds.enforcement = self.power.holds.enforcement.chosen_by_user();
            let record = AuditRecord {
                to: Some(active.name),
                cause: Some(ModeCause::User.key()),
                outcome: Some(SwitchOutcome::Applied.key()),
                uid: Some(author.uid),
                reason: said(author.reason),
                ..AuditRecord::of(AuditEvent::Switch)
            };
            self.settle(Some((ticket, done)), Some(record));
            return Ok(None);
        }
        if let (Some(view), false) = (target.view, dry_run) {
            if view.reboot_required == Some(true) {
                return Err(Code::RebootRequired.error(
                    format!(
                        "{} cannot be entered without a reboot, so nothing was changed",
                        target.mode.name
                    ),
                    format!(
                        "save your work, run sudo nvpmodel -m {} and answer its question yourself",
                        target.mode.id
                    ),
                ));
            }
            if let Some(reason) = &view.unreachable {
                let hint = "rooflinectl mode list shows which modes can be entered";
                let message = format!("{} cannot be entered: {reason}", target.mode.name);
                return Err(Code::Refused.error(message, hint));
            }
        }
        let name = target.mode.name.clone();
        let PowerMode { id, knob, .. } = *target.mode;
        let what = Order::SetMode { id, name: name.clone(), knob, dry_run, keep: None };
        let sent = self.order(what, |standing| {
            if dry_run {
                Ok(Purpose::DryRun { ticket, standing })
            } else {
                standing.enter(ticket, author, confirm_within, name)
            }
        });
        if !sent {
            self.nothing_pending()?;
        }
        Ok(None)
    }

    fn confirm(&mut self, (ticket, client): (Ticket, Client), id: u64) -> Result<Option<Reply>, Refusal> {
        self.idle()?;
        self.pending_change(Some(id))?;
        self.reachable()?;
        self.still_in_force()?;
        let record = self.pending().map(|pending| AuditRecord {
            from: Some(pending.original.clone()),
            to: Some(pending.mode.clone()),
            uid: Some(client.uid),
            ..AuditRecord::of(AuditEvent::Confirm)
        });
        self.settle(Some((ticket, Reply::Done)), record);
        Ok(None)
    }

    fn revert_requested(
        &mut self,
        (ticket, client): (Ticket, Client),
        id: Option<u64>,
    ) -> Result<Option<Reply>, Refusal> {
        self.idle()?;
        self.pending_change(id)?;
        self.reachable()?;
        self.revert(Some((ticket, client.uid)));
        Ok(None)
    }

    /// What waits to be confirmed is what the last reading shows, as far as it shows any.
    fn still_in_force(&self) -> Result<(), Refusal> {
        let (Some(pending), Some(seen)) = (self.pending(), self.state.power_mode.known()) else {
            return Ok(());
        };
        if pending.mode == seen.name {
            return Ok(());
        }
        Err(Code::NotReached.error(
            format!("{} is active and not {}, so there is nothing to keep", seen.name, pending.mode),
            "switch again",
        ))
    }

    fn pending(&self) -> Option<&PendingConfirmation> {
        self.power.stage.pending().map(|pending| &pending.confirmation)
    }

    fn pending_change(&self, id: Option<u64>) -> Result<(), Refusal> {
        match self.pending() {
            Some(pending) if id.is_none_or(|id| id == pending.id) => Ok(()),
            Some(pending) => {
                let message = format!("change {} waits to be confirmed, not this one", pending.id);
                Err(Code::NotPending.error(message, "name it, or none"))
            }
            None => Err(Code::NotPending.error(
                "no change waits to be confirmed: it was confirmed or reverted, or its time ran out",
                "look at the active mode and switch again",
            )),
        }
    }

    /// No switch is under way.
    fn idle(&self) -> Result<(), Refusal> {
        match self.power.stage.in_flight() {
            None => Ok(()),
            Some(order) => Err(Code::Busy.error(order.described(), "try again in a second")),
        }
    }

    /// No switch waits to be confirmed.
    fn nothing_pending(&self) -> Result<(), Refusal> {
        match self.pending() {
            None => Ok(()),
            Some(pending) => {
                let message = format!("{} waits to be confirmed", pending.mode);
                Err(Code::Busy.error(message, "confirm or revert it first"))
            }
        }
    }

    /// Modes can be switched at all.
    fn reachable(&self) -> Result<(), Refusal> {
        if let Some(refusal) = self.no_modes() {
            return Err(refusal);
        }
        match self.power.helper.problem() {
            None => Ok(()),
            Some(problem) => Err(problem.clone().refusal(Code::ControlUnavailable)),
        }
    }

    fn known_mode<'a, 'b>(&self, all: &'b [Candidate<'a>], name: &str) -> Result<&'b Candidate<'a>, Refusal> {
        if all.is_empty() {
            self.reachable()?;
        }
        choose::find(all, name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|candidate| candidate.mode.name.as_str()).collect();
            let short: String = name.chars().take(60).collect();
            let near = Near::of(&short, names.iter().copied());
            let list = names.join(", ");
            Code::UnknownMode.error(
                format!("there is no power mode {short:?}"),
                near.hint(&format!("This machine has {list}")),
            )
        })
    }

    fn may_enter(&self, target: &Candidate<'_>) -> Result<(), Refusal> {
        let name = &target.mode.name;
        match &self.policy.allowed_modes {
            Some(allowed) if !allowed.iter().any(|allowed| allowed.trim().eq_ignore_ascii_case(name)) => {
                let listed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
                Err(Code::ModeNotAllowed.error(
                    format!("{name} is not among the allowed modes ({listed})"),
                    "have the administrator add it to allowed_modes under [control] and reload",
                ))
            }
            _ => Ok(()),
        }
    }
}

/// What somebody said, if anything.
fn said(reason: String) -> Option<String> {
    Some(reason).filter(|reason| !reason.is_empty())
}

fn active_mode(candidate: &Candidate<'_>) -> ActiveMode {
    candidate.mode.key()
}

fn disabled() -> Refusal {
    Code::ControlDisabled.error("control is not enabled on this machine", how_to_enable_control())
}
