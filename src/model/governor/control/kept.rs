//! Holds of an earlier run of the daemon: what is kept of them, and what becomes of it.

use std::sync::Arc;

use super::choose::Candidate;
use super::hold::{ActiveHold, Enforcement, HoldTerms, KeptHold, KeptHolds, RequestedHold};
use super::judge::Needs;
use super::lifecycle::{Provisional, Purpose, Stage, Standing};
use super::{KEPT, enforcement};
use crate::{Effect, Governor, Now, Reply};
use decide::snapshot::{Hold, ModeCause};
use roofline::units::Seconds;

impl Governor {
    /// Goes on with the holds of an earlier run in the same boot. What became of their mode is learned from the
    /// privileged helper.
    #[must_use]
    pub fn with_holds(mut self, now: Now, kept: KeptHolds) -> Self {
        let KeptHolds { mode, switched_at, holds } = kept;
        if holds.is_empty() {
            return self;
        }
        if let Some((mode, original)) = mode {
            let provisional = Provisional { original, ..Provisional::new(mode) };
            self.power.stage = Stage::Idle(Standing::Provisional(provisional));
            self.power.in_force.cause = ModeCause::Hold;
        }
        self.power.holds.switched_at = switched_at.map(|at| at.min(now.boottime));
        self.power.holds.enforcement = Enforcement::Economy;
        self.power.holds.keep_due = holds.iter().any(|kept| !kept.terms.attached);
        self.power.holds.active = holds.into_iter().map(|kept| restored(now, kept)).collect();
        self.rebuild(now);
        self
    }

    /// A hold that waits for its client, who asks for the same again: it goes on without a switch. `None` where there is
    /// none, or where the mode was left in the meantime: then that one ends, and the request is a new one.
    pub(super) fn taken_over(
        &mut self,
        now: Now,
        requested: &RequestedHold,
        wanted: Needs<'_>,
        all: &[Candidate<'_>],
        effects: &mut Vec<Effect>,
    ) -> Option<Reply> {
        let RequestedHold { client, hold: terms, .. } = requested;
        let same =
            |held: &ActiveHold| held.is_waiting() && held.hold.uid == client.uid && asks_for(held, terms);
        let cookie = self.power.holds.active.iter().find(|held| same(held))?.hold.cookie;
        if self.will_do(wanted, all).is_none() {
            self.end_holds(None, |held| (held.hold.cookie == cookie).then_some("replaced"), effects);
            return None;
        }
        let expires_at = terms.ttl.map(|ttl| now.boottime + ttl);
        let held = self.power.holds.active.iter_mut().find(|held| held.hold.cookie == cookie)?;
        held.hold.waits_until = None;
        held.hold.expires_at = expires_at;
        held.connection = client.connection;
        held.question.clone_from(&terms.question);
        self.power.holds.keep_due = true;
        Some(self.held_reply(cookie, expires_at))
    }

    /// Has the privileged helper keep the mode of holds that go on: it knows only that of the earlier run.
    pub(super) fn keep_on(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.power.holds.keep_due || self.unavailable().is_some() {
            return;
        }
        let Some(standing) = self.power.stage.standing() else { return };
        let mode = match standing {
            Standing::Provisional(provisional) => &provisional.mode,
            Standing::Settled | Standing::Pending(_) => {
                self.power.holds.keep_due = false;
                return;
            }
        };
        let found = self.board.power_modes().iter().find(|other| other.is(mode));
        let Some(order) = found.map(enforcement::entering_mode) else { return };
        self.power.holds.keep_due = false;
        self.order(now, order, effects, |standing| Ok(Purpose::Keep { standing }));
    }

    /// Has what the next daemon would go on with kept whenever it has changed.
    pub(super) fn keep_holds(&mut self, effects: &mut Vec<Effect>) {
        let holds = &self.power.holds;
        let kept = if holds.active.is_empty() {
            KeptHolds::default()
        } else {
            // While a switch is under way nobody knows what there will be to go on with.
            let Some(standing) = self.power.stage.standing() else { return };
            let provisional = standing.provisional();
            KeptHolds {
                mode: provisional.map(|entered| (entered.mode.clone(), entered.original.clone())),
                switched_at: holds.switched_at,
                holds: holds.active.iter().map(kept).collect(),
            }
        };
        if kept != *self.power.announced.kept {
            self.power.announced.kept = Arc::new(kept);
            effects.push(Effect::SaveHolds(Arc::clone(&self.power.announced.kept)));
        }
    }
}

fn restored(now: Now, kept: KeptHold) -> ActiveHold {
    let KeptHold { terms, uid, expires_at, since, waits_until } = kept;
    let HoldTerms { constraints, question, app_id, reason, attached, cookie, .. } = terms;
    // Nothing began later than now: a container that was moved goes on with another clock.
    let ahead = (since - now.boottime).max(Seconds::ZERO);
    let (since, expires_at) = (since - ahead, expires_at.map(|at| at - ahead));
    // Another restart gives nobody more time.
    let latest = now.boottime + KEPT;
    let waits_until = attached.then(|| waits_until.unwrap_or(latest).min(latest));
    ActiveHold {
        hold: Hold {
            cookie,
            constraints,
            query: question.as_ref().map(|question| Arc::clone(&question.request)),
            app_id,
            reason,
            uid,
            expires_at,
            attached,
            since,
            waits_until,
            satisfied: true,
            unmet: None,
            advice: None,
        },
        question,
        judged: None,
        // Those of clients are counted from one.
        connection: 0,
    }
}

fn kept(held: &ActiveHold) -> KeptHold {
    let hold = &held.hold;
    KeptHold {
        terms: HoldTerms {
            constraints: hold.constraints.clone(),
            question: held.question.clone(),
            app_id: hold.app_id.clone(),
            reason: hold.reason.clone(),
            ttl: None,
            attached: hold.attached,
            cookie: hold.cookie,
        },
        uid: hold.uid,
        expires_at: hold.expires_at,
        since: hold.since,
        waits_until: hold.waits_until,
    }
}

/// Whether a request is for what a hold in force is.
fn asks_for(held: &ActiveHold, terms: &HoldTerms) -> bool {
    let Hold { constraints, app_id, reason, attached, .. } = &held.hold;
    let request =
        |question: &Option<super::Question>| question.as_ref().map(|question| Arc::clone(&question.asked));
    (constraints, app_id, reason, attached)
        == (&terms.constraints, &terms.app_id, &terms.reason, &terms.attached)
        && request(&held.question) == request(&terms.question)
}
