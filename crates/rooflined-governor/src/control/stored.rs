//! Holds that outlive the daemon: storing them, and going on with those of an earlier run.

use std::sync::Arc;

use serde_json::Value;

use super::choose::Candidate;
use super::hold::{Enforcement, StoredHold, StoredHolds};
use super::lifecycle::{Provisional, Purpose, Stage, Standing};
use super::queries::Needs;
use super::{KEPT, enforcement};
use crate::{Effect, Governor, Now, Reply, StoreItem};
use rooflined_core::units::Seconds;
use rooflined_predict::snapshot::{Hold, HoldQuery, ModeCause};

impl Governor {
    /// Goes on with the holds of an earlier run in the same boot. What became of their mode is learned from the
    /// privileged helper. `read_query` reads a query again; a hold whose query cannot be read ends.
    #[must_use]
    pub fn with_holds(
        mut self,
        now: Now,
        stored: StoredHolds,
        read_query: impl Fn(&StoredHold, &Value) -> Option<HoldQuery>,
    ) -> Self {
        self.now = now;
        let StoredHolds { mode, switched_at, holds } = stored;
        let restore = |stored: StoredHold| {
            let query = match &stored.query {
                None => None,
                Some(request) => Some(read_query(&stored, request)?),
            };
            Some(restore(now, stored, query))
        };
        let holds: Vec<Hold> = holds.into_iter().filter_map(restore).collect();
        if holds.is_empty() {
            return self;
        }
        if let Some((mode, original)) = mode {
            let provisional = Provisional { original, ..Provisional::new(mode) };
            self.power.stage = Stage::Idle(Standing::Provisional(provisional));
            self.power.mode.cause = ModeCause::Hold;
        }
        self.power.holds.switched_at = switched_at.map(|at| at.min(self.now.boottime));
        self.power.holds.enforcement = Enforcement::Economy;
        self.power.holds.keep_due = holds.iter().any(|held| !held.attached);
        self.power.holds.active = holds;
        self.rebuild();
        self
    }

    /// A hold that waits for its client, who asks for the same again: it goes on without a switch. `None` where there is
    /// none, or where the mode was left in the meantime: then that one ends, and the request is a new one.
    pub(super) fn take_over(
        &mut self,
        hold: &Hold,
        wanted: Needs<'_>,
        all: &[Candidate<'_>],
    ) -> Option<Reply> {
        let same = |held: &Hold| held.is_waiting() && held.is_like(hold);
        let cookie = self.power.holds.active.iter().find(|held| same(held))?.cookie;
        if self.will_do(wanted, all).is_none() {
            self.end_holds(None, |held| (held.cookie == cookie).then_some("replaced"));
            return None;
        }
        let mut hold = hold.clone();
        hold.begin(self.now.boottime);
        let expires_at = hold.expires_at;
        let held = self.power.holds.active.iter_mut().find(|held| held.cookie == cookie)?;
        held.waits_until = None;
        held.expires_at = expires_at;
        held.connection = hold.connection;
        held.query = hold.query;
        self.power.holds.keep_due = true;
        Some(self.held_reply(cookie, expires_at))
    }

    /// Has the privileged helper keep the mode of holds that go on: it knows only that of the earlier run.
    pub(super) fn keep_on(&mut self) {
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
        self.order(order, |standing| Ok(Purpose::Keep { standing }));
    }

    /// Stores what the next daemon would go on with whenever it has changed.
    pub(super) fn store_holds(&mut self) {
        let holds = &self.power.holds;
        let stored = if holds.active.is_empty() {
            StoredHolds::default()
        } else {
            // While a switch is under way nobody knows what there will be to go on with.
            let Some(standing) = self.power.stage.standing() else { return };
            let provisional = standing.provisional();
            StoredHolds {
                mode: provisional.map(|entered| (entered.mode.clone(), entered.original.clone())),
                switched_at: holds.switched_at,
                holds: holds.active.iter().map(store).collect(),
            }
        };
        if stored != *self.power.announced.stored {
            self.power.announced.stored = Arc::new(stored);
            self.effects.push(Effect::Save(StoreItem::Holds(Arc::clone(&self.power.announced.stored))));
        }
    }
}

fn restore(now: Now, stored: StoredHold, query: Option<HoldQuery>) -> Hold {
    let StoredHold {
        cookie, uid, constraints, app_id, reason, attached, expires_at, since, waits_until, ..
    } = stored;
    // Nothing began later than now: a container that was moved goes on with another clock.
    let ahead = (since - now.boottime).max(Seconds::ZERO);
    // Another restart gives nobody more time.
    let latest = now.boottime + KEPT;
    Hold {
        cookie,
        constraints,
        query,
        app_id,
        reason,
        uid,
        // Those of clients are counted from one.
        connection: 0,
        expires_at: expires_at.map(|at| at - ahead),
        attached,
        since: since - ahead,
        waits_until: attached.then(|| waits_until.unwrap_or(latest).min(latest)),
        satisfied: true,
        unmet: None,
        advice: None,
    }
}

fn store(hold: &Hold) -> StoredHold {
    StoredHold {
        cookie: hold.cookie,
        uid: hold.uid,
        constraints: hold.constraints.clone(),
        query: hold.query.as_ref().map(|query| Arc::clone(&query.request)),
        app_id: hold.app_id.clone(),
        reason: hold.reason.clone(),
        attached: hold.attached,
        expires_at: hold.expires_at,
        since: hold.since,
        waits_until: hold.waits_until,
    }
}
