//! What the governor wants done.

use std::sync::Arc;

use super::control::StoredHolds;
use super::event::Ticket;
use super::reply::Reply;
use super::servers::SlowServers;
use rooflined_core::board::Order;
use rooflined_core::keyed;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::Seconds;
use rooflined_predict::calibration::{CalibrationRecord, Plan};
use rooflined_predict::learning::Residuals;
use rooflined_predict::learning::models::ObservedRuns;
use rooflined_predict::learning::reports::Reports;
use rooflined_predict::snapshot::Snapshot;

/// What the governor wants done.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Publish this snapshot.
    Publish(Arc<Snapshot>),
    /// Start a probe child with this plan.
    StartProbe {
        job: u64,
        plan: Plan,
    },
    /// Stop the probe child of this job.
    StopProbe {
        job: u64,
    },
    /// Have the privileged helper do something; its answer comes as [`Event::OrderAnswered`](crate::Event::OrderAnswered).
    Actuate {
        order: u64,
        what: Order,
    },
    /// Keep this for the next daemon.
    Save(StoreItem),
    Reply {
        ticket: Ticket,
        reply: Reply,
    },
    /// Send [`Event::Tick`](crate::Event::Tick) at this CLOCK_BOOTTIME, in place of what was asked for before; `None`: not at all.
    WakeAt(Option<Seconds>),
    /// Take samples this often from now on.
    SampleEvery(Seconds),
    Log {
        severity: Severity,
        message: String,
        /// For what changed, or was to change, the machine for everybody.
        record: Option<Box<AuditRecord>>,
    },
}

/// What outlives the daemon.
#[derive(Debug, Clone)]
pub enum StoreItem {
    Calibration(Box<CalibrationRecord>),
    Residuals(Arc<Residuals>),
    /// What was learnt of models.
    ObservedRuns(Arc<ObservedRuns>),
    /// What users reported that moves their own answers only.
    Reports(Arc<Reports>),
    /// For the next daemon of this boot.
    Holds(Arc<StoredHolds>),
    /// Servers that are noticed as slow, for the next daemon of this boot.
    Servers(SlowServers),
}

impl StoreItem {
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Calibration(_) => "calibration",
            Self::Residuals(_) => "residuals",
            Self::ObservedRuns(_) => "models",
            Self::Reports(_) => "reports",
            Self::Holds(_) => "holds",
            Self::Servers(_) => "servers",
        }
    }
}

/// What a line of the log is about, in fields that can be searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    pub event: AuditEvent,
    /// The mode before.
    pub from: Option<String>,
    /// The mode after, or the one that was asked for.
    pub to: Option<String>,
    /// Why: of a mode its [`rooflined_predict::snapshot::ModeCause`], of the end of a hold what ended it.
    pub cause: Option<&'static str>,
    /// What a switch came to.
    pub outcome: Option<&'static str>,
    /// The user who asked; `None` where nobody did.
    pub uid: Option<u32>,
    /// Name of the program that holds.
    pub hold: Option<String>,
    /// In the words of who asked.
    pub reason: Option<String>,
    /// Reports that were forgotten.
    pub count: Option<u64>,
}

keyed! {
    AuditEvent {
        /// A mode was entered, or was not.
        Switch = "switch",
        /// A change that waited to be confirmed stays.
        Confirm = "confirm",
        /// The mode from before came back, or did not.
        Revert = "revert",
        /// Somebody else has switched.
        External = "external",
        /// A hold is in force.
        Hold = "hold",
        /// A hold has ended.
        Release = "release",
        /// Reports were forgotten.
        Forget = "forget",
    }
}

impl AuditRecord {
    /// Without any field; fields are added to it.
    #[must_use]
    pub const fn of(event: AuditEvent) -> Self {
        let (from, to, cause, outcome) = (None, None, None, None);
        Self { event, from, to, cause, outcome, uid: None, hold: None, reason: None, count: None }
    }
}

/// Of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Info,
    Warning,
    Error,
}

/// What is to be done so far, in order.
#[derive(Debug, Default)]
pub(super) struct Effects(Vec<Effect>);

impl Effects {
    pub(super) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    pub(super) fn reply(&mut self, ticket: Ticket, reply: Reply) {
        self.push(Effect::Reply { ticket, reply });
    }

    pub(super) fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.reply(ticket, Reply::Refused(refusal));
    }

    pub(super) fn log(&mut self, severity: Severity, message: String) {
        self.push(Effect::Log { severity, message, record: None });
    }

    /// What is done about power modes, holds and reports is looked for by its fields.
    pub(super) fn audit(&mut self, severity: Severity, message: String, record: AuditRecord) {
        self.push(Effect::Log { severity, message, record: Some(Box::new(record)) });
    }

    /// One probe at a time: two would measure each other.
    pub(super) fn busy(&mut self, ticket: Ticket, what: &str) {
        let hint = "wait for the running job: GET /v1/calibration shows it";
        self.refuse(ticket, Code::Busy.error(format!("{what} is running"), hint));
    }

    pub(super) fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.0)
    }
}
