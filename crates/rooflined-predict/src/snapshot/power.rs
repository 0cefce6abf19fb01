//! Power modes as clients see them: which is active and why, what is pending, who holds what.

use std::sync::Arc;

use serde_json::Value;

use crate::EngineProfile;
use crate::optimize::Query;
use rooflined_core::board::{PowerMode, SwitchReport};
use rooflined_core::ceilings::Roofline;
use rooflined_core::hold::HoldConstraints;
use rooflined_core::keyed;
use rooflined_core::units::{Seconds, Watts};

keyed! {
    /// Why the active mode is active.
    #[derive(Default)]
    ModeCause {
        /// It was active when the daemon started.
        #[default]
        Boot = "boot",
        /// A client asked for it.
        User = "user",
        /// It satisfies those who hold.
        Hold = "hold",
        /// A change was not confirmed, or was taken back.
        Revert = "revert",
        /// Somebody else changed it. That is reported, not fought.
        External = "external",
    }
}

keyed! {
    /// What the daemon does by itself about the queries of holds.
    #[derive(Default)]
    Automatic {
        /// Nothing: a hold with a query is refused.
        #[default]
        Off = "off",
        /// It says which mode would meet every hold at least energy.
        Advise = "advise",
        Switch = "switch",
    }
}

/// The query that a hold carries.
#[derive(Debug, Clone, PartialEq)]
pub struct HoldQuery {
    pub query: Arc<Query>,
    /// As everybody may see it.
    pub shown: Arc<Value>,
    /// As it was requested, to be read again by the next daemon.
    pub request: Arc<Value>,
}

/// A hold, requested or active.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// Random, so that it cannot be guessed; what its owner releases it by.
    pub cookie: u64,
    pub constraints: HoldConstraints,
    /// The mode must have an answer to it; `None` where constraints are all.
    pub query: Option<HoldQuery>,
    /// Who holds, in its own words.
    pub app_id: String,
    /// Why, in its own words.
    pub reason: String,
    pub uid: u32,
    /// The connection it came over.
    pub connection: u64,
    /// CLOCK_BOOTTIME when it ends by itself; `None` while its connection lives.
    pub expires_at: Option<Seconds>,
    /// Ends with its connection.
    pub attached: bool,
    /// CLOCK_BOOTTIME when it was requested, and once it is active, when it began.
    pub since: Seconds,
    /// CLOCK_BOOTTIME when it ends unless its client has come back after a restart of the daemon; `None` where nobody is
    /// waited for.
    pub waits_until: Option<Seconds>,
    /// The active mode meets it; false after somebody else switched, if no mode meets it together with older holds, and
    /// where the daemon only advises.
    pub satisfied: bool,
    /// Which constraint the mode in force does not meet, and whose hold stands against it; `None` where it is satisfied.
    pub unmet: Option<String>,
    /// Which mode would meet every hold at least energy; `None` without a query in force, and for a hold that no mode
    /// meets beside the older ones.
    pub advice: Option<Advice>,
}

impl Hold {
    /// Starts it, which moves its end by the time that it has waited.
    pub fn begin(&mut self, now: Seconds) {
        let waited = now - self.since;
        self.expires_at = self.expires_at.map(|at| at + waited);
        self.since = now;
    }

    /// It came from an earlier run of the daemon, and its client has not come back.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.waits_until.is_some()
    }

    /// CLOCK_BOOTTIME when it ends by itself.
    #[must_use]
    pub fn end(&self) -> Option<Seconds> {
        self.expires_at.into_iter().chain(self.waits_until).reduce(Seconds::min)
    }

    /// Whether `other` requests the same for the same user.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let terms = |hold: &Self| {
            (hold.uid, hold.attached, hold.query.as_ref().map(|query| Arc::clone(&query.request)))
        };
        terms(self) == terms(other)
            && self.constraints == other.constraints
            && (&self.app_id, &self.reason) == (&other.app_id, &other.reason)
    }
}

/// The mode that meets every hold at least energy, and what one of them would have in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    pub mode: String,
    /// Tokens (columns) per second of the hold's query there; `None` without one, and where nothing tells.
    pub tokens_per_s: Option<f64>,
    pub power: Option<Watts>,
    /// Joules for a token of the hold's query there.
    pub energy_j_per_token: Option<f64>,
    /// Share of the energy of all queries that it saves over the active mode; negative if the active mode costs
    /// less but does not meet every hold. `None` where either is unknown.
    pub saving_ratio: Option<f64>,
}

/// A change that waits to be confirmed.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingConfirmation {
    /// What confirms or reverts it.
    pub id: u64,
    pub mode: String,
    /// The mode gone back to otherwise.
    pub original: String,
    /// CLOCK_BOOTTIME of the way back.
    pub deadline: Seconds,
}

/// The most that the machine draws in a mode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorstPower {
    /// The pessimistic end, with memory and cores both flat out.
    pub watts: Watts,
    pub source: WorstSource,
}

keyed! {
    /// Where the most that a mode draws comes from.
    WorstSource {
        /// Loads or readings in this very mode, on this machine.
        Measured = "measured",
        /// Those in another mode of this machine.
        Carried = "carried",
        /// Boards that others measured.
        Prior = "prior",
    }
}

/// One mode with what it would give, without switching to it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModeView {
    pub mode: PowerMode,
    /// Its ceilings: measured in it, or carried to it.
    pub roofline: Roofline,
    /// The kernel costs that go with them.
    pub profile: EngineProfile,
    /// Entering it from here needs a reboot; `None` where that is not known.
    pub reboot_required: Option<bool>,
    /// Why it cannot be entered now; `None` where it can.
    pub unreachable: Option<String>,
    /// Mean power measured in it under load, where a calibration was run in it and a rail could be read.
    pub measured_power: Option<Watts>,
    /// The most that it draws; `None` where nothing is known of it.
    pub worst_power: Option<WorstPower>,
}

/// Everything about power modes that is not hardware.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PowerControl {
    /// Why the active mode is active.
    pub cause: ModeCause,
    /// What is done by itself about the queries of holds.
    pub auto: Automatic,
    /// A switch that is under way: the name of its target.
    pub switching: Option<String>,
    /// A change that waits to be confirmed.
    pub pending: Option<PendingConfirmation>,
    /// Holds in force, oldest first.
    pub holds: Vec<Hold>,
    /// What came of the last switch.
    pub last: Option<SwitchReport>,
    /// Why modes cannot be switched at all (no privileged helper, no modes); `None` where they can.
    pub unavailable: Option<String>,
}
