//! Holds: who needs what of the mode, and which mode gives it to all of them.

use super::choose::{self, Candidate};
use super::orders::{Flight, Purpose};
use super::{Client, ControlRequest, Refusal, active_mode, disabled, refuse, view};
use crate::board::{ActiveMode, Order};
use crate::governor::core::log;
use crate::governor::{Effect, Governor, Now, Reply, Severity, Ticket};
use crate::snapshot::{Hold, HoldConstraints};
use crate::units::Seconds;

/// Holds at one time.
pub(super) const MOST: usize = 64;
/// Of one user.
pub(super) const MOST_OF_A_USER: usize = 16;

/// A hold as it is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    pub(super) constraints: HoldConstraints,
    pub(super) app_id: String,
    pub(super) reason: String,
    pub(super) ttl: Option<Seconds>,
    pub(super) attached: bool,
    pub(super) cookie: u64,
}

/// A hold that is asked for, and by whom.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub(super) ticket: Ticket,
    pub(super) client: Client,
    pub(super) hold: Wanted,
}

/// A hold in force.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) hold: Hold,
    /// Ends with this connection if it is attached.
    pub(super) connection: u64,
}

impl Governor {
    /// What does not depend on the mode of the moment.
    pub(super) fn may_hold(
        &self,
        client: Client,
        constraints: &HoldConstraints,
        ttl: Option<Seconds>,
        attached: bool,
        cookie: u64,
    ) -> Result<(), Refusal> {
        if *constraints == HoldConstraints::default() {
            let message = "a hold needs at least one constraint; give mode, min_mode, max_power_w, min_gpu_hz, \
                 min_bandwidth_bytes_per_s or min_compute_flops_per_s";
            return Err(("missing_field", message.to_owned()));
        }
        if ttl.is_none() && !attached {
            let message = "a hold that is not attached to its connection needs an end of its own; give ttl_s";
            return Err(("missing_field", message.to_owned()));
        }
        self.reachable()?;
        let snapshot = self.snapshot();
        let all = view::candidates(&snapshot);
        for name in [&constraints.mode, &constraints.min_mode].into_iter().flatten() {
            self.known_mode(&all, name)?;
        }
        let in_flight = match &self.power.flight {
            Some(Flight { purpose: Purpose::Hold { asked: Some(asked), .. }, .. }) => Some(asked),
            _ => None,
        };
        let waiting = self.power.queue.iter().filter_map(|queued| match queued.request {
            ControlRequest::Hold { cookie, .. } => Some((queued.client.uid, cookie)),
            _ => None,
        });
        let in_force = self.power.holds.iter().map(|held| (held.hold.uid, held.hold.cookie));
        let all_holds: Vec<(u32, u64)> = in_force
            .chain(in_flight.map(|asked| (asked.client.uid, asked.hold.cookie)))
            .chain(waiting)
            .collect();
        if all_holds.len() >= MOST {
            return Err(("busy", format!("all {MOST} holds are taken; try again when one has ended")));
        }
        let uid = client.uid;
        if all_holds.iter().filter(|(other, _)| *other == uid).count() >= MOST_OF_A_USER {
            let message =
                format!("user {uid} has {MOST_OF_A_USER} holds, the limit; release one and try again");
            return Err(("busy", message));
        }
        // They are random; one that comes twice is an accident and not a client's mistake.
        if all_holds.iter().any(|(_, other)| *other == cookie) {
            return Err(("busy", "the cookie is taken; try again".to_owned()));
        }
        Ok(())
    }

    /// Puts a hold in force, after a switch where one is needed. No switch is under way.
    pub(super) fn grant(
        &mut self,
        now: Now,
        asked: Asked,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Reply>, Refusal> {
        self.reachable()?;
        let snapshot = self.snapshot();
        let all = view::candidates(&snapshot);
        let wanted = &asked.hold.constraints;
        // Hysteresis: a mode that will do stays.
        let active = self.active_candidate(&all);
        if active
            .is_some_and(|active| self.meets_holds(&active, &all) && active.unmet(wanted, &all).is_none())
        {
            return Ok(Some(self.enter_force(now, asked)));
        }
        let target = self.choose_for(Some(wanted), &[], &all)?;
        if let Some(pending) = &self.power.pending {
            return Err((
                "busy",
                format!(
                    "{} waits to be confirmed and does not meet the hold; confirm or revert it first",
                    pending.mode
                ),
            ));
        }
        let mode = active_mode(&target);
        self.switch_for_holds(
            now,
            &target,
            Purpose::Hold { asked: Some(asked), mode, tried: Vec::new() },
            effects,
        );
        Ok(None)
    }

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

    /// Adds a hold whose constraints are met now.
    pub(super) fn enter_force(&mut self, now: Now, asked: Asked) -> Reply {
        let Asked { client, hold: Wanted { constraints, app_id, reason, ttl, attached, cookie }, .. } = asked;
        let expires_at = ttl.map(|ttl| now.boottime + ttl);
        self.power.enforce = true;
        self.power.attempts = 0;
        self.power.holds.push(Held {
            hold: Hold {
                cookie,
                constraints,
                app_id,
                reason,
                uid: client.uid,
                expires_at,
                attached,
                since: now.boottime,
                satisfied: true,
            },
            connection: client.connection,
        });
        Reply::Held { cookie, mode: self.active_name(), expires_at }
    }

    fn active_name(&self) -> String {
        let active = self.power.expected.as_ref().or(self.state.power_mode.known());
        active.map(|mode| mode.name.clone()).unwrap_or_default()
    }

    /// The mode that is active as far as this program knows.
    pub(super) fn active_candidate<'a>(&self, all: &[Candidate<'a>]) -> Option<Candidate<'a>> {
        let active = self.state.power_mode.known()?;
        // Between two readings that contradict each other nothing is known.
        if self.power.expected.as_ref().is_some_and(|expected| expected != active) {
            return None;
        }
        all.iter().find(|candidate| candidate.mode.id == active.id).copied()
    }

    pub(super) fn meets_holds(&self, mode: &Candidate<'_>, all: &[Candidate<'_>]) -> bool {
        self.power.holds.iter().all(|held| mode.unmet(&held.hold.constraints, all).is_none())
    }

    /// A user's switch may not break a hold.
    pub(super) fn keeps_holds(&self, target: &Candidate<'_>, all: &[Candidate<'_>]) -> Result<(), Refusal> {
        let broken: Vec<String> = (self.power.holds.iter())
            .filter_map(|held| Some((held, target.unmet(&held.hold.constraints, all)?)))
            .map(|(held, why)| format!("{} ({why})", held.hold.app_id))
            .collect();
        if broken.is_empty() {
            return Ok(());
        }
        Err((
            "busy",
            format!(
                "{} would break the hold of {}; wait for its end, or have it released",
                target.mode.name,
                broken.join(", ")
            ),
        ))
    }

    /// The thriftiest mode that meets every hold and `wanted`, may be entered and is not among `tried`.
    pub(super) fn choose_for<'a>(
        &self,
        wanted: Option<&HoldConstraints>,
        tried: &[u32],
        all: &[Candidate<'a>],
    ) -> Result<Candidate<'a>, Refusal> {
        let enterable: Vec<Candidate<'a>> = (all.iter())
            .filter(|candidate| {
                let view = candidate.view;
                self.may_enter(candidate).is_ok()
                    && !tried.contains(&candidate.mode.id)
                    && view
                        .is_none_or(|view| view.reboot_required != Some(true) && view.unreachable.is_none())
            })
            .copied()
            .collect();
        // The active mode need not be entered.
        let active = self.active_candidate(all).filter(|active| !tried.contains(&active.mode.id));
        let possible: Vec<Candidate<'a>> = (all.iter())
            .filter(|candidate| {
                enterable.iter().chain(&active).any(|possible| possible.mode.id == candidate.mode.id)
            })
            .copied()
            .collect();
        let meets =
            |candidate: &Candidate<'_>| wanted.is_none_or(|wanted| candidate.unmet(wanted, all).is_none());
        let alone: Vec<Candidate<'a>> =
            possible.iter().filter(|candidate| meets(candidate)).copied().collect();
        let together: Vec<Candidate<'a>> =
            alone.iter().filter(|candidate| self.meets_holds(candidate, all)).copied().collect();
        choose::thriftiest(&together)
            .copied()
            .ok_or_else(|| ("unsatisfiable", self.contradiction(wanted, &possible, &alone, all)))
    }

    /// Why no mode meets it all.
    fn contradiction(
        &self,
        wanted: Option<&HoldConstraints>,
        possible: &[Candidate<'_>],
        alone: &[Candidate<'_>],
        all: &[Candidate<'_>],
    ) -> String {
        if possible.is_empty() {
            return "no mode may be entered from here without a reboot; allowed_modes under [control] and \
                    rooflinectl mode list show which could"
                .to_owned();
        }
        if alone.is_empty() {
            let why: Vec<String> = wanted
                .map(|wanted| possible.iter().filter_map(|mode| mode.unmet(wanted, all)).collect())
                .unwrap_or_default();
            return format!(
                "no mode that can be entered now meets the constraints: {}; relax them, or see rooflinectl mode list",
                why.join("; ")
            );
        }
        let against =
            |held: &&Held| alone.iter().all(|mode| mode.unmet(&held.hold.constraints, all).is_some());
        let names = |holds: Vec<&Held>| {
            holds.iter().map(|held| held.hold.app_id.as_str()).collect::<Vec<_>>().join(", ")
        };
        let single: Vec<&Held> = self.power.holds.iter().filter(against).collect();
        if single.is_empty() {
            let everyone = names(self.power.holds.iter().collect());
            return format!(
                "the holds of {everyone} together leave no such mode; relax it, or wait for their end"
            );
        }
        format!("it contradicts the hold of {}; relax it, or wait for the end of that hold", names(single))
    }

    pub(super) fn renew(
        &mut self,
        now: Now,
        client: Client,
        cookie: u64,
        ttl: Seconds,
    ) -> Result<Reply, Refusal> {
        let mode = self.active_name();
        let held = self.own_hold(client, cookie)?;
        held.hold.expires_at = Some(now.boottime + ttl);
        Ok(Reply::Held { cookie, mode, expires_at: held.hold.expires_at })
    }

    pub(super) fn release(&mut self, client: Client, cookie: u64) -> Result<(), Refusal> {
        self.own_hold(client, cookie)?;
        self.power.holds.retain(|held| held.hold.cookie != cookie);
        Ok(())
    }

    /// Of the same user, or of anyone for an administrator.
    fn own_hold(&mut self, client: Client, cookie: u64) -> Result<&mut Held, Refusal> {
        let found = self.power.holds.iter_mut().find(|held| held.hold.cookie == cookie);
        match found {
            Some(held) if client.uid == 0 || client.uid == held.hold.uid => Ok(held),
            Some(_) => Err((
                "not_authorized",
                "it is another user's hold; ask its owner, or do it as root".to_owned(),
            )),
            None => Err((
                "unknown_hold",
                "there is no such hold: it has ended, or never was; hold again".to_owned(),
            )),
        }
    }

    /// Ends holds whose time has come, or all of them once control is disabled.
    pub(super) fn expire(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let enabled = self.policy.control_enabled;
        if !enabled {
            if !self.power.holds.is_empty() {
                log(effects, Severity::Warning, "control was disabled: every hold ends".to_owned());
            }
            for queued in std::mem::take(&mut self.power.queue) {
                refuse(effects, queued.ticket, disabled());
            }
        }
        self.power.holds.retain(|held| enabled && held.hold.expires_at.is_none_or(|end| end > now.boottime));
    }

    /// The holds that came over this connection end.
    pub(in crate::governor) fn connection_closed(&mut self, connection: u64) {
        let attached = |client: u64, attached: bool| attached && client == connection;
        self.power.holds.retain(|held| !attached(held.connection, held.hold.attached));
        self.power.queue.retain(|queued| {
            let is_attached = matches!(queued.request, ControlRequest::Hold { attached: true, .. });
            !attached(queued.client.connection, is_attached)
        });
        if let Some(Flight { purpose: Purpose::Hold { asked, .. }, .. }) = &mut self.power.flight
            && asked.as_ref().is_some_and(|asked| attached(asked.client.connection, asked.hold.attached))
        {
            *asked = None;
        }
    }

    /// The client of a request will not hear its answer.
    pub(in crate::governor) fn control_client_gone(&mut self, ticket: Ticket) {
        // A switch that was asked for is wanted even so, but nobody would learn the cookie of a hold.
        let is_hold = |request: &ControlRequest| matches!(request, ControlRequest::Hold { .. });
        self.power.queue.retain(|queued| queued.ticket != ticket || !is_hold(&queued.request));
        if let Some(Flight { purpose: Purpose::Hold { asked, .. }, .. }) = &mut self.power.flight
            && asked.as_ref().is_some_and(|asked| asked.ticket == ticket)
        {
            *asked = None;
        }
    }

    /// Enters a mode that meets the holds in force where the present one does not, for instance after a switch that
    /// was not confirmed.
    pub(super) fn enforce_holds(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let power = &self.power;
        let free = power.flight.is_none() && power.pending.is_none() && self.unavailable().is_none();
        if !free || !power.enforce || power.holds.is_empty() {
            return;
        }
        let snapshot = self.snapshot();
        let all = view::candidates(&snapshot);
        let Some(active) = self.active_candidate(&all) else { return };
        if self.meets_holds(&active, &all) {
            return;
        }
        match self.choose_for(None, &[], &all) {
            Ok(target) => {
                let mode = active_mode(&target);
                let purpose = Purpose::Hold { asked: None, mode, tried: Vec::new() };
                self.switch_for_holds(now, &target, purpose, effects);
            }
            Err((_, message)) => {
                self.power.enforce = false;
                log(effects, Severity::Warning, format!("holds are not met: {message}"));
            }
        }
    }

    /// When the mode of before the holds comes back; `None` while it does not.
    pub(super) fn return_due(&self) -> Option<Seconds> {
        let power = &self.power;
        let idle = power.flight.is_none() && power.pending.is_none() && power.holds.is_empty();
        if !idle || power.provisional.is_none() || power.problem.is_some() {
            return None;
        }
        // Where nobody may switch any more, nothing is waited for.
        let dwell = if self.policy.control_enabled { self.policy.dwell } else { Seconds::ZERO };
        let after_dwell = power.held_at.map_or(Seconds::ZERO, |at| at + dwell);
        Some(power.retry_at.map_or(after_dwell, |retry| retry.max(after_dwell)))
    }

    /// What a switch for holds came to.
    pub(super) fn held_in(&mut self, now: Now, mode: ActiveMode) {
        self.power.provisional = Some(mode);
        self.power.held_at = Some(now.boottime);
        self.power.retry_at = None;
        self.power.attempts = 0;
    }
}
