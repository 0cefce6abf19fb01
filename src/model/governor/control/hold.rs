//! A hold as it is asked for and in force, and what is known of meeting all of them.

use std::sync::Arc;

use super::Client;
use super::judge::{Judge, Judgement, Needs, Question};
use crate::Ticket;
use decide::optimize;
use decide::snapshot::{Hold, HoldConstraints, Snapshot};
use roofline::board::ActiveMode;
use roofline::units::Seconds;

/// A hold as it is asked for: constraints, or a query, or both.
#[derive(Debug, Clone, PartialEq)]
pub struct HoldTerms {
    /// What is needed of the mode itself.
    pub constraints: HoldConstraints,
    /// What the mode must have an answer to.
    pub question: Option<Question>,
    pub app_id: String,
    pub reason: String,
    /// Ends by itself after this long.
    pub ttl: Option<Seconds>,
    /// Ends with the connection.
    pub attached: bool,
    /// Chosen at random by the server.
    pub cookie: u64,
}

/// A hold that is asked for, and by whom.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestedHold {
    pub(super) ticket: Ticket,
    pub(super) client: Client,
    pub(super) hold: HoldTerms,
}

/// A hold in force.
#[derive(Debug)]
pub(super) struct ActiveHold {
    pub(super) hold: Hold,
    pub(super) question: Option<Question>,
    /// What its query came to last.
    pub(super) judged: Option<Judgement>,
    /// Ends with this connection if it is attached.
    pub(super) connection: u64,
}

/// A hold for the next daemon to go on with.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptHold {
    /// Without a time to live, which `expires_at` stands for.
    pub terms: HoldTerms,
    pub uid: u32,
    /// CLOCK_BOOTTIME when it ends by itself.
    pub expires_at: Option<Seconds>,
    /// CLOCK_BOOTTIME when it began.
    pub since: Seconds,
    /// CLOCK_BOOTTIME when it ends unless its client has come back; `None` where the client is there, or need not be.
    pub waits_until: Option<Seconds>,
}

/// What the next daemon goes on with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeptHolds {
    /// Entered for holds, and the one from before them; `None` where what is in force is settled.
    pub mode: Option<(ActiveMode, Option<ActiveMode>)>,
    /// CLOCK_BOOTTIME of the last switch for a hold.
    pub switched_at: Option<Seconds>,
    /// Oldest first.
    pub holds: Vec<KeptHold>,
}

impl ActiveHold {
    /// It came from an earlier run of the daemon, and its client has not come back.
    pub(super) const fn is_waiting(&self) -> bool {
        self.hold.waits_until.is_some()
    }

    /// CLOCK_BOOTTIME when it ends by itself.
    pub(super) fn end(&self) -> Option<Seconds> {
        let ends = self.hold.expires_at.into_iter().chain(self.hold.waits_until);
        ends.reduce(Seconds::min)
    }

    /// What is asked for, the query included.
    pub(super) const fn asked(&self) -> Needs<'_> {
        Needs { constraints: &self.hold.constraints, judged: self.judged.as_ref() }
    }
}

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
    pub(super) active: Vec<ActiveHold>,
    pub(super) enforcement: Enforcement,
    /// Last switch for a hold that was not gone back from; the dwell time is counted from it.
    pub(super) switched_at: Option<Seconds>,
    /// Modes that were left because they met a query no longer, or that were not reached, and when.
    pub(super) left: Vec<(ActiveMode, Seconds)>,
    /// Those that no mode meets beside older ones, as was said last.
    pub(super) losers: Vec<u64>,
    /// The helper is to learn that a hold of an earlier run goes on.
    pub(super) keep_due: bool,
    /// What queries are answered by.
    pub(super) judge: Judge,
    /// The snapshot that they were last answered from.
    pub(super) judged_on: Option<Arc<Snapshot>>,
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
            judge: optimize::verdicts,
            judged_on: None,
        }
    }
}
