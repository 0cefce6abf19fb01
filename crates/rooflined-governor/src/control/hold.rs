//! Holds as they are stored, and the state of meeting them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Ticket;
use rooflined_core::board::ActiveMode;
use rooflined_core::hold::HoldConstraints;
use rooflined_core::units::Seconds;
use rooflined_predict::optimize::{self, ModeVerdict, Query, QueryError};
use rooflined_predict::snapshot::{Hold, Snapshot};

/// A hold that outlives the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredHold {
    pub cookie: u64,
    pub uid: u32,
    pub constraints: HoldConstraints,
    /// The query as it was requested.
    pub query: Option<Arc<Value>>,
    pub app_id: String,
    pub reason: String,
    pub attached: bool,
    /// CLOCK_BOOTTIME when it ends by itself.
    pub expires_at: Option<Seconds>,
    /// CLOCK_BOOTTIME when it began.
    pub since: Seconds,
    /// CLOCK_BOOTTIME when it ends unless its client has come back; `None` where the client is there, or need not be.
    pub waits_until: Option<Seconds>,
}

/// What the next daemon of this boot goes on with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredHolds {
    /// Entered for holds, and the one from before them; `None` where the active mode is settled.
    pub mode: Option<(ActiveMode, Option<ActiveMode>)>,
    /// CLOCK_BOOTTIME of the last switch for a hold.
    pub switched_at: Option<Seconds>,
    /// Oldest first.
    pub holds: Vec<StoredHold>,
}

/// A hold that was requested, and the ticket of its reply.
pub(super) type RequestedHold = (Ticket, Box<Hold>);

/// The function of `optimize` that answers queries.
pub(super) type AnswerQuery = fn(&Snapshot, &Query) -> Result<Vec<ModeVerdict>, QueryError>;

/// The verdict on each mode, or why there is none.
pub(super) type QueryAnswer = Result<Vec<ModeVerdict>, String>;

/// Whether the mode is left for what holds need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enforcement {
    /// It stays: somebody else has entered it, or those that would do were not reached. Until a new hold comes.
    Suspended,
    /// It is left where it does not meet a hold. A user has chosen it among those that do.
    Needs,
    /// It is also left for one that costs less.
    Economy,
}

impl Enforcement {
    pub(super) const fn chosen_by_user(self) -> Self {
        match self {
            Self::Suspended => Self::Suspended,
            Self::Needs | Self::Economy => Self::Needs,
        }
    }
}

/// The holds, and what is known of meeting them.
#[derive(Debug)]
pub(super) struct Holds {
    /// Oldest first.
    pub(super) active: Vec<Hold>,
    pub(super) enforcement: Enforcement,
    /// Last switch for a hold that was not gone back from; the dwell time is counted from it.
    pub(super) switched_at: Option<Seconds>,
    /// Modes that were left because they met a query no longer, or that were not reached, and when.
    pub(super) left: Vec<(ActiveMode, Seconds)>,
    /// Those that no mode meets beside older ones, as was said last.
    pub(super) losers: Vec<u64>,
    /// The helper is to learn that a hold of an earlier run goes on.
    pub(super) keep_due: bool,
    pub(super) answer_query: AnswerQuery,
    /// The last answers to the queries of active holds, by cookie.
    pub(super) answers: BTreeMap<u64, QueryAnswer>,
    /// The snapshot that they rest on.
    pub(super) answered_on: Option<Arc<Snapshot>>,
}

impl Holds {
    pub(super) const fn new() -> Self {
        Self {
            active: Vec::new(),
            enforcement: Enforcement::Suspended,
            switched_at: None,
            left: Vec::new(),
            losers: Vec::new(),
            keep_due: false,
            answer_query: optimize::verdicts,
            answers: BTreeMap::new(),
            answered_on: None,
        }
    }
}
