//! What the governor is told: readings, requests and answers.

use super::policy::Policy;
use super::servers::ServerReport;
use rooflined_core::board::{BoardState, OrderAnswer, OrderFailure};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Seconds;
use rooflined_predict::calibration::{PlanKind, ProbeEvent};
use rooflined_predict::learning::Observed;
use rooflined_predict::learning::report::{Reporter, Selection};
use rooflined_predict::snapshot::Hold;

/// Ties a reply to the request it answers; chosen by the daemon.
pub type Ticket = u64;

/// An input of the governor: a reading, a request or an answer.
#[derive(Debug)]
pub enum Event {
    Tick,
    /// The sampler read the machine.
    Sampled(Box<BoardState>),
    /// A client reads the snapshot (a query or a subscription), so sampling may speed up.
    Watched,
    /// A client wants something.
    Requested {
        ticket: Ticket,
        command: Command,
    },
    /// A connection that may have holds attached to it has closed.
    ConnectionClosed {
        connection: u64,
    },
    /// Such a connection broke without its client's doing, as all of a message bus do when it ends.
    ConnectionLost {
        connection: u64,
    },
    /// The privileged helper has answered an order.
    OrderAnswered {
        order: u64,
        /// What it said; a lost connection is a [`OrderAnswer::Failed`].
        answer: Box<OrderAnswer>,
    },
    /// The privileged helper can be reached (`None`), or cannot and why.
    Actuator {
        problem: Option<OrderFailure>,
    },
    /// The client of a ticket has gone; no reply is needed any more.
    ClientGone {
        ticket: Ticket,
    },
    /// The probe child said something.
    Probe {
        job: u64,
        event: Box<ProbeEvent>,
    },
    ProbeEnded {
        job: u64,
        /// `Err` with the reason if it failed, was killed or ran out of time.
        outcome: Result<(), String>,
    },
    /// An adapter lost or regained something. `None` = it works again.
    Degraded {
        /// Stable name: `bus`, `state_dir`, …
        name: &'static str,
        /// What does not work, ending with the remedy.
        problem: Option<String>,
    },
    /// The configuration was read again.
    Reconfigured(Policy),
}

/// What a client wants of the daemon.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Calibrate. Replied to with [`Reply::Started`](super::Reply::Started), and if `wait` with
    /// [`Reply::Finished`](super::Reply::Finished) only.
    Calibrate {
        plan: PlanKind,
        /// Answer at the end rather than at the start.
        wait: bool,
        force: bool,
    },
    /// Stop the running calibration.
    Cancel {
        /// The job; `None` = whichever runs.
        job: Option<u64>,
    },
    /// Measure operations now. Replied to with [`Reply::Measured`](super::Reply::Measured).
    Measure {
        work: Vec<(Op, WeightFormat)>,
        /// Report power and energy too.
        power: bool,
    },
    /// Learn from measured times. Replied to with [`Reply::Observed`](super::Reply::Observed).
    Observe {
        by: Reporter,
        /// What ran and how long it took.
        observations: Vec<Observed>,
        /// How the servers that they ran in compare with what was expected.
        servers: Vec<ServerReport>,
    },
    /// Forget reports. Replied to with [`Reply::Forgotten`](super::Reply::Forgotten).
    Forget {
        which: Selection,
        /// The user who asks; `None` where the kernel does not tell.
        by: Option<u32>,
    },
    /// Something about power modes or holds.
    Control { client: Client, request: ControlRequest },
}

/// Who asks. Connections are numbered by the servers; the number of one is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The connection (or the D-Bus sender, numbered).
    pub connection: u64,
    pub uid: u32,
}

/// A request about modes and holds. The servers have checked who asks.
#[derive(Debug, Clone, PartialEq)]
pub enum ControlRequest {
    /// Enter a mode. Replied to with [`Reply::Switched`](super::Reply::Switched).
    SetMode {
        /// By name or number.
        mode: String,
        /// Go back unless confirmed in time.
        confirm_within: Option<Seconds>,
        /// Say what would be done, and do nothing.
        dry_run: bool,
        reason: String,
    },
    /// Keep what waits to be confirmed. Replied to with [`Reply::Done`](super::Reply::Done).
    Confirm { id: u64 },
    /// Go back. Replied to with [`Reply::Switched`](super::Reply::Switched).
    Revert {
        /// Which pending change; `None` = whichever.
        id: Option<u64>,
    },
    /// Hold the machine to constraints, or to a query. Its user and connection become those of the client. Replied to with
    /// [`Reply::Held`](super::Reply::Held).
    Hold(Box<Hold>),
    /// Hold on for longer. Replied to with [`Reply::Held`](super::Reply::Held).
    Renew {
        cookie: u64,
        /// From now.
        ttl: Seconds,
    },
    /// Let go. Replied to with [`Reply::Done`](super::Reply::Done).
    Release { cookie: u64 },
}

impl ControlRequest {
    /// Needs the mode to be known, so it waits for the end of what was begun without anybody asking.
    pub(super) const fn waits(&self) -> bool {
        !matches!(self, Self::Renew { .. } | Self::Release { .. })
    }
}
