//! Power modes: who may have which, what is switched when, and what is undone.
//!
//! | what | rule |
//! |---|---|
//! | allowed | nothing until `[control] enabled = true`, for root neither; then the modes of `allowed_modes` |
//! | at one time | one switch; another user's is refused as `busy`, further holds wait for it |
//! | a user's switch | settled once the live files show it, or undone unless confirmed in time; refused while it would break a hold |
//! | a hold | the mode in force stays if it meets every hold; else the thriftiest that does is entered, provisionally |
//! | tightening | at once |
//! | a query | with `auto = "switch"` it is a constraint, met by the modes in which it has an answer; of those that meet all the one with the least energy for all queries together. With `"advise"` it binds nobody: the mode is said and not entered. With `"off"` it is refused, and one in force ends |
//! | economy | a mode that meets every hold is left for one in which the queries take less energy by more than `hysteresis_ratio`, no sooner than the dwell time after the last switch for a hold, and not after a user has chosen it among the holds |
//! | contradiction | a new hold that no mode meets beside those in force is refused. Of those in force, should they come to contradict each other, the oldest are kept, and the others are told by whom and by what |
//! | loosening | a mode that still meets every hold stays; after the last hold the mode of before comes back, no sooner than the dwell time after the last switch for a hold |
//! | somebody else's switch | after two readings that show it: cause `external`; nothing is undone any more, holds stay but are not enforced until a new one comes |
//! | a lost root role | it undoes what is not settled by itself; when it is back, its journal says what became of it |
//! | control disabled again | every hold ends and what is not confirmed goes back |
//!
//! What was entered for a hold is never settled, so that the death of the daemon undoes it.

mod choose;
mod holds;
mod judge;
mod keep;
mod orders;
mod steer;
mod view;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use self::choose::Candidate;
pub use self::holds::Wanted;
use self::holds::{Asked, Held};
use self::judge::Judge;
pub use self::judge::Question;
use self::orders::Flight;
use super::core::reply;
use super::{Effect, Governor, Now, Reply, Ticket};
use crate::board::{ActiveMode, BoardState, Order, ReadBack, SwitchOutcome, SwitchReport};
use crate::optimize;
use crate::precision::nearest;
use crate::snapshot::{ModeCause, PendingConfirmation, Snapshot};
use crate::units::Seconds;

/// A reading older than this does not show that a mode is active already.
const FRESH: Seconds = Seconds(2.0);

/// Who asks. Connections are numbered by the servers; the number of one is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The connection (or the D-Bus sender, numbered).
    pub connection: u64,
    /// Its user.
    pub uid: u32,
}

/// A request about modes and holds. The servers have checked who asks.
#[derive(Debug, Clone, PartialEq)]
pub enum ControlRequest {
    /// Enter a mode. Replied to with [`Reply::Switched`].
    SetMode {
        /// By name or number.
        mode: String,
        /// Go back unless confirmed in time.
        confirm_within: Option<Seconds>,
        /// Say what would be done, and do nothing.
        dry_run: bool,
        /// In the client's words.
        reason: String,
    },
    /// Keep what waits to be confirmed. Replied to with [`Reply::Done`].
    Confirm {
        /// Which.
        id: u64,
    },
    /// Go back. Replied to with [`Reply::Switched`].
    Revert {
        /// Which pending change; `None` = whichever.
        id: Option<u64>,
    },
    /// Hold the machine to constraints, or to a query. Replied to with [`Reply::Held`].
    Hold(Wanted),
    /// Hold on for longer. Replied to with [`Reply::Held`].
    Renew {
        /// Which.
        cookie: u64,
        /// From now.
        ttl: Seconds,
    },
    /// Let go. Replied to with [`Reply::Done`].
    Release {
        /// Which.
        cookie: u64,
    },
}

impl ControlRequest {
    /// Needs the mode to be known, so it waits for the end of what was begun without anybody asking.
    const fn waits(&self) -> bool {
        !matches!(self, Self::Renew { .. } | Self::Release { .. })
    }
}

/// A request that waits for what is under way.
#[derive(Debug)]
struct Queued {
    ticket: Ticket,
    client: Client,
    request: ControlRequest,
}

/// Everything about power modes that changes.
#[derive(Debug)]
pub(super) struct PowerState {
    cause: ModeCause,
    /// In force, oldest first.
    holds: Vec<Held>,
    /// Requests that wait for what is under way: holds for any switch, all of them for housekeeping.
    queue: VecDeque<Queued>,
    pending: Option<PendingConfirmation>,
    flight: Option<Flight>,
    orders: u64,
    changes: u64,
    last: Option<SwitchReport>,
    /// Why the root role cannot be reached.
    problem: Option<String>,
    /// Its journal has been asked for since it was reached last.
    acquainted: bool,
    /// It has been asked for at least once.
    greeted: bool,
    /// Entered for holds, and not settled.
    provisional: Option<ActiveMode>,
    /// The mode that is active as far as this program knows; another one in two readings is somebody else's doing.
    expected: Option<ActiveMode>,
    deviations: u32,
    /// End of the last switch; readings of before do not count.
    switched_at: Seconds,
    /// Last switch for a hold.
    held_at: Option<Seconds>,
    /// Holds that the mode does not meet are to be met.
    enforce: bool,
    /// A mode that meets them may be left for one that costs less: not for one that a user entered since.
    economise: bool,
    /// Modes that were left because they met a query no longer, or that were not reached, and when.
    left: Vec<(u32, Seconds)>,
    /// What queries are answered by.
    judge: Judge,
    /// The picture that they were answered from last.
    judged_on: Option<Arc<Snapshot>>,
    /// A switch for holds waits for the end of the dwell time.
    waits_until: Option<Seconds>,
    /// Holds that no mode meets beside older ones, as was said last.
    losers: Vec<u64>,
    /// Failed attempts to go back.
    attempts: u32,
    retry_at: Option<Seconds>,
    /// What the daemon was told to wake at.
    wake_at: Option<Seconds>,
    lively: bool,
}

impl PowerState {
    /// At start: what is active is taken for meant.
    pub(super) fn new(state: &BoardState) -> Self {
        Self {
            cause: ModeCause::default(),
            holds: Vec::new(),
            queue: VecDeque::new(),
            pending: None,
            flight: None,
            orders: 0,
            changes: 0,
            last: None,
            problem: None,
            acquainted: false,
            greeted: false,
            provisional: None,
            expected: state.power_mode.known().cloned(),
            deviations: 0,
            switched_at: Seconds::ZERO,
            held_at: None,
            enforce: false,
            economise: false,
            left: Vec::new(),
            judge: optimize::verdicts,
            judged_on: None,
            waits_until: None,
            losers: Vec::new(),
            attempts: 0,
            retry_at: None,
            wake_at: None,
            lively: false,
        }
    }
}

/// A refusal, `code` and message.
type Refusal = (&'static str, String);

pub(super) fn refuse(effects: &mut Vec<Effect>, ticket: Ticket, (code, message): Refusal) {
    reply(effects, ticket, Reply::Refused { code, message });
}

impl Governor {
    pub(super) fn control_requested(
        &mut self,
        now: Now,
        ticket: Ticket,
        client: Client,
        request: ControlRequest,
        effects: &mut Vec<Effect>,
    ) {
        // What has expired is gone, also if its timer is late.
        self.expire(now, effects);
        self.look_closely(now);
        self.get_acquainted(now, effects);
        if let Err(refusal) = self.dispatch(now, Queued { ticket, client, request }, effects) {
            refuse(effects, ticket, refusal);
        }
    }

    fn dispatch(&mut self, now: Now, queued: Queued, effects: &mut Vec<Effect>) -> Result<(), Refusal> {
        let housekeeping = self.power.flight.as_ref().is_some_and(Flight::is_housekeeping);
        if self.policy.control_enabled && housekeeping && queued.request.waits() {
            return self.enqueue(queued);
        }
        let Queued { ticket, client, request } = queued;
        let answer = match request {
            // Letting go is possible even after control was switched off.
            ControlRequest::Release { cookie } => self.release(client, cookie).map(|()| Some(Reply::Done))?,
            _ if !self.policy.control_enabled => return Err(disabled()),
            ControlRequest::SetMode { mode, confirm_within, dry_run, reason: _ } => {
                self.set_mode(now, ticket, &mode, confirm_within, dry_run, effects)?
            }
            ControlRequest::Confirm { id } => self.confirm(now, ticket, id, effects)?,
            ControlRequest::Revert { id } => self.revert_requested(now, ticket, id, effects)?,
            ControlRequest::Hold(hold) => {
                self.may_hold(client, &hold)?;
                if self.power.flight.is_some() {
                    return self.enqueue(Queued { ticket, client, request: ControlRequest::Hold(hold) });
                }
                self.grant(now, Asked { ticket, client, hold }, effects)?
            }
            ControlRequest::Renew { cookie, ttl } => Some(self.renew(now, client, cookie, ttl)?),
        };
        if let Some(answer) = answer {
            reply(effects, ticket, answer);
        }
        Ok(())
    }

    /// A request waits for the end of what is under way.
    fn enqueue(&mut self, queued: Queued) -> Result<(), Refusal> {
        if self.power.queue.len() >= holds::MOST {
            return Err(("busy", format!("{} requests wait already; try again in a second", holds::MOST)));
        }
        self.power.queue.push_back(queued);
        Ok(())
    }

    /// Requests that waited for a switch, until one needs another.
    fn serve_queue(&mut self, now: Now, effects: &mut Vec<Effect>) {
        while self.power.flight.is_none() {
            let Some(queued) = self.power.queue.pop_front() else { return };
            let ticket = queued.ticket;
            if let Err(refusal) = self.dispatch(now, queued, effects) {
                refuse(effects, ticket, refusal);
            }
        }
    }

    /// `None`: the reply comes with the answer of the root role.
    fn set_mode(
        &mut self,
        now: Now,
        ticket: Ticket,
        name: &str,
        confirm_within: Option<Seconds>,
        dry_run: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Reply>, Refusal> {
        let snapshot = self.snapshot();
        let all = view::candidates(&snapshot);
        let target = *self.known_mode(&all, name)?;
        self.may_enter(&target)?;
        self.reachable()?;
        self.idle()?;
        if let Some(pending) = self.power.pending.as_ref().filter(|_| !dry_run) {
            return Err((
                "busy",
                format!("{} waits to be confirmed; confirm or revert it first", pending.mode),
            ));
        }
        self.keeps_holds(&target, &all)?;
        let active = active_mode(&target);
        // The root role compares every file of the mode; a reading only those that tell modes apart.
        if !dry_run && self.power.provisional.is_some() && self.is_active(now, &active) {
            let report = self.already(&active);
            let done = Reply::Switched { report: Box::new(report), confirm: None };
            // It is active for a hold's sake only; now it is meant to stay.
            self.power.cause = ModeCause::User;
            self.power.economise = false;
            self.settle(now, Some((ticket, done)), effects);
            return Ok(None);
        }
        if let (Some(view), false) = (target.view, dry_run) {
            if view.reboot_required == Some(true) {
                let message = format!(
                    "{0} cannot be entered without a reboot, so nothing was changed; save your work, run sudo nvpmodel -m {1} and \
                     answer its question yourself",
                    target.mode.name, target.mode.id
                );
                return Err(("reboot_required", message));
            }
            if let Some(reason) = &view.unreachable {
                let hint = "rooflinectl mode list shows which modes can be entered";
                return Err(("refused", format!("{} cannot be entered: {reason}; {hint}", target.mode.name)));
            }
        }
        let what = Order::SetMode {
            id: target.mode.id,
            name: target.mode.name.clone(),
            knob: target.mode.knob,
            dry_run,
        };
        let purpose = if dry_run {
            orders::Purpose::DryRun { ticket }
        } else {
            orders::Purpose::User { ticket, confirm_within }
        };
        self.order(now, purpose, what, effects);
        Ok(None)
    }

    fn confirm(
        &mut self,
        now: Now,
        ticket: Ticket,
        id: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Reply>, Refusal> {
        self.idle()?;
        self.pending_change(Some(id))?;
        self.reachable()?;
        self.still_in_force()?;
        self.power.pending = None;
        self.settle(now, Some((ticket, Reply::Done)), effects);
        Ok(None)
    }

    fn revert_requested(
        &mut self,
        now: Now,
        ticket: Ticket,
        id: Option<u64>,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Reply>, Refusal> {
        self.idle()?;
        self.pending_change(id)?;
        self.reachable()?;
        self.revert(now, Some(ticket), effects);
        Ok(None)
    }

    /// What waits to be confirmed is what the last reading shows, as far as it shows any.
    fn still_in_force(&self) -> Result<(), Refusal> {
        let (Some(pending), Some(seen)) = (&self.power.pending, self.state.power_mode.known()) else {
            return Ok(());
        };
        if pending.mode == seen.name {
            return Ok(());
        }
        Err((
            "not_reached",
            format!(
                "{} is in force and not {}, so there is nothing to keep; switch again",
                seen.name, pending.mode
            ),
        ))
    }

    fn pending_change(&self, id: Option<u64>) -> Result<(), Refusal> {
        match &self.power.pending {
            Some(pending) if id.is_none_or(|id| id == pending.id) => Ok(()),
            Some(pending) => {
                Err(("not_pending", format!("change {} waits, not that one; name it, or none", pending.id)))
            }
            None => Err((
                "not_pending",
                "no change waits to be confirmed: it was confirmed, taken back or ran out of time; look at the \
                 active mode and switch again"
                    .to_owned(),
            )),
        }
    }

    /// No switch is under way.
    fn idle(&self) -> Result<(), Refusal> {
        match &self.power.flight {
            None => Ok(()),
            Some(flight) => Err(("busy", format!("{}; try again in a second", flight.described()))),
        }
    }

    /// Modes can be switched at all.
    fn reachable(&self) -> Result<(), Refusal> {
        match self.unavailable() {
            None => Ok(()),
            Some(reason) => Err(("control_unavailable", reason)),
        }
    }

    fn known_mode<'a, 'b>(&self, all: &'b [Candidate<'a>], name: &str) -> Result<&'b Candidate<'a>, Refusal> {
        if all.is_empty() {
            self.reachable()?;
        }
        choose::find(all, name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|candidate| candidate.mode.name.as_str()).collect();
            let short: String = name.chars().take(60).collect();
            let near = nearest(&short, names.iter().copied());
            let list = names.join(", ");
            (
                "unknown_mode",
                format!("there is no power mode {short:?}; did you mean {near}? This machine has {list}"),
            )
        })
    }

    fn may_enter(&self, target: &Candidate<'_>) -> Result<(), Refusal> {
        let name = &target.mode.name;
        match &self.policy.allowed_modes {
            Some(allowed) if !allowed.iter().any(|allowed| allowed.trim().eq_ignore_ascii_case(name)) => {
                let listed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
                Err((
                    "mode_not_allowed",
                    format!(
                        "{name} is not among the allowed modes ({listed}); have the administrator add it to \
                         allowed_modes under [control] and reload"
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    /// The freshest reading shows this mode, and nothing says otherwise.
    fn is_active(&self, now: Now, mode: &ActiveMode) -> bool {
        let read_at = self.state.taken_at.max(self.power.switched_at);
        self.state.power_mode.known() == Some(mode)
            && self.power.expected.as_ref() == Some(mode)
            && now.boottime - read_at <= FRESH
    }

    fn already(&self, mode: &ActiveMode) -> SwitchReport {
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
            writes: Vec::new(),
            took: Seconds::ZERO,
        }
    }
}

fn active_mode(candidate: &Candidate<'_>) -> ActiveMode {
    ActiveMode { id: candidate.mode.id, name: candidate.mode.name.clone() }
}

fn disabled() -> Refusal {
    let message = "control is not enabled on this machine; set enabled = true under [control] in \
         /etc/rooflined/rooflined.toml and reload";
    ("control_disabled", message.to_owned())
}
