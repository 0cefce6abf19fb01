//! Holds: who needs what of the mode, from the request to the end.

use super::arbitration::Scope;
use super::choose::Candidate;
use super::hold::RequestedHold;
use super::queries::Needs;
use super::{KEPT, disabled, said, view};
use crate::{AuditEvent, AuditRecord, Client, ControlRequest, Governor, Reply, Severity, Ticket};
use rooflined_core::configuration::file_in_use;
use rooflined_core::hold::HoldConstraints;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::Seconds;
use rooflined_predict::snapshot::{Automatic, Hold};

/// Holds at one time.
pub(super) const MOST: usize = 64;
/// Of one user.
pub(super) const MOST_OF_A_USER: usize = 16;

impl Governor {
    /// What does not depend on the mode of the moment.
    pub(super) fn may_hold(&self, hold: &Hold) -> Result<(), Refusal> {
        let Hold { constraints, query, expires_at, attached, cookie, uid, .. } = hold;
        if *constraints == HoldConstraints::default() && query.is_none() {
            return Err(Code::MissingField.error(
                "a hold needs at least one constraint, or a query",
                "give mode, min_mode, max_power_w, min_gpu_hz, min_bandwidth_bytes_per_s or \
                 min_compute_flops_per_s",
            ));
        }
        if query.is_some() && self.policy.auto == Automatic::Off {
            return Err(Code::AutoOff.error(
                "queries of holds are not acted on here",
                format!(
                    "hold with constraints, or have the administrator set auto = \"switch\" or \"advise\" below \
                     [policy] in {} and reload",
                    file_in_use()
                ),
            ));
        }
        if expires_at.is_none() && !*attached {
            let message = "a hold that is not attached to its connection needs an end of its own";
            return Err(Code::MissingField.error(message, "give ttl_s"));
        }
        self.reachable()?;
        let snapshot = self.snapshot();
        let all = view::candidates(&snapshot);
        for name in [&constraints.mode, &constraints.min_mode].into_iter().flatten() {
            self.known_mode(&all, name)?;
        }
        let in_flight = self.power.stage.requested_hold();
        let waiting = self.power.queue.iter().filter_map(|queued| match queued.request {
            ControlRequest::Hold(ref hold) => Some((hold.uid, hold.cookie)),
            _ => None,
        });
        // The client of one that waits for it is most likely the one who asks.
        let present = self.power.holds.active.iter().filter(|held| !held.is_waiting());
        let active = present.map(|held| (held.uid, held.cookie));
        let all_holds: Vec<(u32, u64)> =
            active.chain(in_flight.map(|(_, hold)| (hold.uid, hold.cookie))).chain(waiting).collect();
        if all_holds.len() >= MOST {
            let message = format!("all {MOST} holds are taken");
            return Err(Code::Busy.error(message, "try again when one has ended"));
        }
        if all_holds.iter().filter(|(other, _)| other == uid).count() >= MOST_OF_A_USER {
            let message = format!("user {uid} has {MOST_OF_A_USER} holds, the limit");
            return Err(Code::Busy.error(message, "release one and try again"));
        }
        // They are random; one that comes twice is an accident and not a client's mistake.
        if all_holds.iter().any(|(_, other)| other == cookie) {
            return Err(Code::Busy.error("the cookie is taken", "try again"));
        }
        Ok(())
    }

    /// Puts a hold in force, after a switch where one is needed. No switch is under way.
    pub(super) fn grant(&mut self, (ticket, hold): RequestedHold) -> Result<Option<Reply>, Refusal> {
        self.reachable()?;
        self.answer_queries();
        let snapshot = self.snapshot();
        let all = view::candidates(&snapshot);
        let answer = hold.query.as_ref().map(|query| self.answer_query(query));
        if let Some(Err(why)) = &answer {
            let hint = "send it to POST /v1/recommend, which says more, and correct it";
            return Err(Code::Unsatisfiable.error(format!("the query cannot be answered: {why}"), hint));
        }
        let constraints = &hold.constraints;
        let wanted = Needs { constraints, answer: answer.as_ref() };
        if answer.is_some() {
            // Where the daemon only advises, what could not be met is refused all the same.
            self.choose_for(Some(wanted), Scope::Requested, &[], &all)?;
        }
        if let Some(reply) = self.take_over(&hold, wanted, &all) {
            return Ok(Some(reply));
        }
        let switches = self.policy.auto == Automatic::Switch;
        let wanted = Needs { answer: wanted.answer.filter(|_| switches), ..wanted };
        if !switches && *constraints == HoldConstraints::default() {
            return Ok(Some(self.begin_without_switch(*hold)));
        }
        let target = match self.will_do(wanted, &all) {
            // Hysteresis: a mode that will do stays, unless its query is answered at much less energy elsewhere.
            Some(active) => {
                let Some(better) = self.better_for(wanted, &active, &all) else {
                    return Ok(Some(self.begin_without_switch(*hold)));
                };
                better
            }
            None => self.choose_for(Some(wanted), Scope::Binding, &[], &all)?,
        };
        if let Some(pending) = self.pending() {
            return Err(Code::Busy.error(
                format!("{} waits to be confirmed and does not meet the hold", pending.mode),
                "confirm or revert it first",
            ));
        }
        self.switch_for_holds(Some((ticket, hold)), &target);
        Ok(None)
    }

    fn begin_without_switch(&mut self, hold: Hold) -> Reply {
        self.power.stage.allow_all_attempts();
        self.begin_hold(hold)
    }

    /// Adds a hold that the active mode meets, as far as anything is switched for it.
    pub(super) fn begin_hold(&mut self, mut hold: Hold) -> Reply {
        let Hold { cookie, uid, ref app_id, .. } = hold;
        let mode = self.active_name();
        let record = AuditRecord {
            to: Some(mode.clone()).filter(|mode| !mode.is_empty()),
            uid: Some(uid),
            hold: Some(app_id.clone()),
            reason: said(hold.reason.clone()),
            ..AuditRecord::of(AuditEvent::Hold)
        };
        self.effects.audit(Severity::Info, format!("{app_id} of user {uid} holds {mode}"), record);
        if let Some(query) = &hold.query {
            let answer = self.answer_query(query);
            self.power.holds.answers.insert(cookie, answer);
            if self.power.holds.answered_on.is_none() {
                self.power.holds.answered_on = Some(self.snapshot());
            }
        }
        if hold.constraints != HoldConstraints::default() || self.policy.auto == Automatic::Switch {
            self.restart_enforcement();
        }
        hold.begin(self.now.boottime);
        let expires_at = hold.expires_at;
        self.power.holds.active.push(hold);
        self.held_reply(cookie, expires_at)
    }

    pub(super) fn held_reply(&self, cookie: u64, expires_at: Option<Seconds>) -> Reply {
        let view = self.hold_views().into_iter().find(|hold| hold.cookie == cookie);
        let (satisfied, advice) = view.map_or((true, None), |hold| (hold.satisfied, hold.advice));
        Reply::Held { cookie, mode: self.active_name(), expires_at, satisfied, advice }
    }

    fn active_name(&self) -> String {
        let active = self.power.mode.mode().or(self.state.power_mode.known());
        active.map(|mode| mode.name.clone()).unwrap_or_default()
    }

    /// The mode that is active as far as this program knows.
    pub(super) fn active_candidate<'a>(&self, all: &[Candidate<'a>]) -> Option<Candidate<'a>> {
        let active = self.state.power_mode.known()?;
        // Between two readings that contradict each other nothing is known.
        if self.power.mode.mode().is_some_and(|expected| expected != active) {
            return None;
        }
        all.iter().find(|candidate| candidate.mode.is(active)).copied()
    }

    pub(super) fn renew(&mut self, client: Client, cookie: u64, ttl: Seconds) -> Result<Reply, Refusal> {
        let expires_at = Some(self.now.boottime + ttl);
        self.own_hold(client, cookie)?.expires_at = expires_at;
        Ok(self.held_reply(cookie, expires_at))
    }

    pub(super) fn release(&mut self, client: Client, cookie: u64) -> Result<(), Refusal> {
        self.own_hold(client, cookie)?;
        let released = |held: &Hold| (held.cookie == cookie).then_some("released");
        self.end_holds(Some(client.uid), released);
        Ok(())
    }

    /// Of the same user, or of anyone for an administrator.
    fn own_hold(&mut self, client: Client, cookie: u64) -> Result<&mut Hold, Refusal> {
        let found = self.power.holds.active.iter_mut().find(|held| held.cookie == cookie);
        match found {
            Some(held) if client.uid == 0 || client.uid == held.uid => Ok(held),
            Some(_) => {
                Err(Code::NotAuthorized.error("it is another user's hold", "ask its owner, or do it as root"))
            }
            None => {
                Err(Code::UnknownHold
                    .error("there is no such hold: it has ended, or never was", "hold again"))
            }
        }
    }

    /// Ends holds whose time has come, or all of them once control is disabled.
    pub(super) fn expire(&mut self) {
        let enabled = self.policy.control_enabled;
        if !enabled {
            if !self.power.holds.active.is_empty() {
                self.effects.log(Severity::Warning, "control was disabled: every hold ends".to_owned());
            }
            for queued in std::mem::take(&mut self.power.queue) {
                self.effects.refuse(queued.ticket, disabled());
            }
        }
        let (now, off) = (self.now.boottime, self.policy.auto == Automatic::Off);
        if off && self.power.holds.active.iter().any(|held| held.query.is_some()) {
            let message = "auto below [policy] was set to \"off\": every hold with a query ends";
            self.effects.log(Severity::Warning, message.to_owned());
        }
        for held in &self.power.holds.active {
            if held.waits_until.is_some_and(|end| end <= now) {
                let who = &held.app_id;
                let message = format!("the hold of {who} ends: its client did not come back");
                self.effects.log(Severity::Warning, message);
            }
        }
        let ends = |held: &Hold| match () {
            () if !enabled => Some("control_disabled"),
            () if off && held.query.is_some() => Some("auto_off"),
            () if held.expires_at.is_some_and(|end| end <= now) => Some("expired"),
            () if held.waits_until.is_some_and(|end| end <= now) => Some("not_back"),
            () => None,
        };
        self.end_holds(None, ends);
    }

    /// Ends those that there is a cause for, and records it with who asked for it, if anybody did.
    pub(super) fn end_holds(&mut self, by: Option<u32>, cause: impl Fn(&Hold) -> Option<&'static str>) {
        let before = self.power.holds.active.len();
        self.power.holds.active.retain(|held| {
            let Some(cause) = cause(held) else { return true };
            let Hold { app_id, uid, .. } = held;
            let record = AuditRecord {
                cause: Some(cause),
                uid: Some(by.unwrap_or(*uid)),
                hold: Some(app_id.clone()),
                ..AuditRecord::of(AuditEvent::Release)
            };
            let message = format!("the hold of {app_id} of user {uid} has ended ({cause})");
            self.effects.audit(Severity::Info, message, record);
            false
        });
        if self.power.holds.active.len() != before {
            // A mode that one of them was left for may do for the others.
            self.power.holds.left.clear();
        }
    }

    /// The holds that came over this connection end.
    pub(crate) fn connection_closed(&mut self, connection: u64) {
        let attached = |client: u64, attached: bool| attached && client == connection;
        let ends = |held: &Hold| attached(held.connection, held.attached).then_some("disconnected");
        self.end_holds(None, ends);
        self.power.queue.retain(|queued| {
            let is_attached = matches!(&queued.request, ControlRequest::Hold(hold) if hold.attached);
            !attached(queued.client.connection, is_attached)
        });
        self.power.stage.drop_requested_hold(|(_, hold)| attached(hold.connection, hold.attached));
    }

    /// The holds that came over this connection wait for their clients, as they do after a restart.
    pub(crate) fn connection_lost(&mut self, connection: u64) {
        for held in &mut self.power.holds.active {
            if held.attached && held.connection == connection {
                // Those of clients are counted from one.
                held.connection = 0;
                held.waits_until = Some(self.now.boottime + KEPT);
            }
        }
    }

    /// The client of a request will not hear its answer.
    pub(crate) fn control_client_gone(&mut self, ticket: Ticket) {
        // A switch that was asked for is wanted even so, but nobody would learn the cookie of a hold.
        let is_hold = |request: &ControlRequest| matches!(request, ControlRequest::Hold(_));
        self.power.queue.retain(|queued| queued.ticket != ticket || !is_hold(&queued.request));
        self.power.stage.drop_requested_hold(|(waiting, _)| *waiting == ticket);
    }
}
