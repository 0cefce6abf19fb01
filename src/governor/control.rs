//! Power modes: who may have which, what is switched when, and what is undone.

use super::core::{log, reply};
use super::{Effect, Governor, Now, Reply, Severity, Ticket};
use crate::board::OrderAnswer;
use crate::snapshot::HoldConstraints;
use crate::units::Seconds;

/// Who asks. Connections are numbered by the servers; the number of one is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The connection (or the D-Bus sender, numbered).
    pub connection: u64,
    /// Its user.
    pub uid: u32,
}

/// A request about modes and holds. The servers have checked who asks and whether control is enabled.
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
    /// Hold the machine to constraints. Replied to with [`Reply::Held`].
    Hold {
        /// What is needed.
        constraints: HoldConstraints,
        /// Who holds.
        app_id: String,
        /// Why.
        reason: String,
        /// Ends by itself after this long.
        ttl: Option<Seconds>,
        /// Ends with the connection.
        attached: bool,
        /// Chosen at random by the server.
        cookie: u64,
    },
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

impl Governor {
    pub(super) fn control_requested(
        &mut self,
        _now: Now,
        ticket: Ticket,
        _client: Client,
        _request: &ControlRequest,
        effects: &mut Vec<Effect>,
    ) {
        let message = "power modes cannot be switched here".to_owned();
        reply(effects, ticket, Reply::Refused { code: "refused", message });
    }

    pub(super) fn connection_closed(&mut self, _now: Now, _connection: u64, _effects: &mut Vec<Effect>) {}

    pub(super) fn ordered(
        &mut self,
        _now: Now,
        _order: u64,
        _answer: &OrderAnswer,
        effects: &mut Vec<Effect>,
    ) {
        log(effects, Severity::Warning, "an answer of the root role was not expected".to_owned());
    }

    pub(super) fn actuator_changed(
        &mut self,
        _now: Now,
        _problem: Option<String>,
        _effects: &mut Vec<Effect>,
    ) {
    }
}
