//! All mutable state of the daemon, and every decision about it. Time, readings and requests come in as values;
//! what is to be done goes out as [`Effect`]s.

mod calibrate;
mod control;
mod core;
mod device;
mod effects;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod learn;
mod machine;
mod measure;
mod metering;
mod modes;
mod prior;

pub use self::control::{Client, ControlRequest, HoldTerms, KeptHold, KeptHolds, Question};

pub use decide::snapshot::Now;
pub use predict::learning::Observed;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::calibrate::Calibrating;
use self::control::PowerState;
use self::measure::Measuring;
use self::metering::Metering;
use decide::snapshot::{Advice, Automatic, CalibrationStatus, Snapshot};
use predict::Prediction;
use predict::calibration::{Accelerator, CalibrationRecord, Plan, PlanKind, ProbeEvent, Reference, Sample};
use predict::learning::Residuals;
use predict::learning::models::{ObservationOutcome, ObservedRuns};
use predict::learning::report::{Reporter, Selection};
use predict::learning::reports::{Learnt, Reports};
use roofline::board::{Board, BoardState, Order, OrderAnswer, OrderFailure, SwitchReport};
use roofline::hardware::Hardware;
use roofline::precision::WeightFormat;
use roofline::refusal::Refusal;
use roofline::units::{Bytes, Joules, Seconds, Watts};
use roofline::workload::Op;
use roofline::workload::model::Model;

/// Owns everything that changes.
#[derive(Debug)]
pub struct Governor {
    board: Board,
    /// What the registry knows of the board.
    hardware: Option<Arc<Hardware>>,
    accelerator: Accelerator,
    state: BoardState,
    record: Option<CalibrationRecord>,
    /// What services reported.
    learnt: Learnt,
    policy: Policy,
    status: CalibrationStatus,
    job: Option<Job>,
    next_job: u64,
    /// When the last job failed, CLOCK_BOOTTIME.
    failed_at: Option<Seconds>,
    /// Failures since the last success.
    failures: u32,
    /// Since when a calibration waits for the load to end, CLOCK_BOOTTIME.
    busy_since: Option<Seconds>,
    reference: Option<(Seconds, Reference)>,
    degraded: BTreeMap<&'static str, String>,
    watched_until: Seconds,
    power: PowerState,
    /// Sampling period last sent to the sampler.
    sampling_period: Seconds,
    /// Second-level cache of the GPU as its driver tells it; 0 before a probe has asked.
    driver_l2_bytes: u64,
    snapshot: Arc<Snapshot>,
}

/// The running probe child and what it is for.
#[derive(Debug)]
struct Job {
    id: u64,
    purpose: Purpose,
}

#[derive(Debug)]
enum Purpose {
    Calibrate(Box<Calibrating>),
    Measure(Box<Measuring>),
}

impl Purpose {
    /// The power meter beside the probe; `None` where nobody asked for it.
    fn metering(&mut self) -> Option<&mut Metering> {
        match self {
            Self::Calibrate(calibrating) => Some(&mut calibrating.metering),
            Self::Measure(measuring) => measuring.metering.as_mut(),
        }
    }
}

/// Between two samples while a calibration waits for an idle moment.
const IDLENESS_PERIOD: Seconds = Seconds(0.25);
/// Sampling stays fast for this long after somebody last looked.
const WATCHED_FOR: Seconds = Seconds(30.0);

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
    /// A calibration is asked for. Replied to with [`Reply::Started`], and if `wait` with [`Reply::Finished`] only.
    CalibrateRequested {
        ticket: Ticket,
        plan: PlanKind,
        /// Answer at the end rather than at the start.
        wait: bool,
        force: bool,
    },
    /// The running calibration shall stop.
    CancelRequested {
        ticket: Ticket,
        /// The job; `None` = whichever runs.
        job: Option<u64>,
    },
    /// Operations or models shall be measured now. Replied to with [`Reply::Measured`].
    MeasureRequested {
        ticket: Ticket,
        work: Vec<(Op, WeightFormat)>,
        /// Models to run a step of, and why others cannot be.
        models: Vec<Result<ModelWork, String>>,
        /// Report power and energy too.
        power: bool,
    },
    /// A service reports measured times. Replied to with [`Reply::Observed`].
    Observed {
        ticket: Ticket,
        by: Reporter,
        /// What ran and how long it took.
        observations: Vec<Observed>,
    },
    /// Reports are to be forgotten. Replied to with [`Reply::Forgotten`].
    ForgetRequested {
        ticket: Ticket,
        which: Selection,
        /// Who says so; `None` where nobody tells.
        by: Option<u32>,
    },
    /// A report that moves one user's answers is to move everybody's. Replied to with [`Reply::Done`].
    ConfirmReportRequested {
        ticket: Ticket,
        /// Of the report.
        id: u64,
        /// Who says so.
        uid: u32,
    },
    /// A mode or a hold is asked for.
    ControlRequested {
        ticket: Ticket,
        client: Client,
        request: ControlRequest,
    },
    /// A connection that may have holds attached to it has closed.
    ConnectionClosed {
        connection: u64,
    },
    /// The privileged helper has answered an order.
    Ordered {
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

/// An observation that nothing is learnt from, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedObservation {
    /// Position in the request.
    pub index: usize,
    /// Why; the field is one of the observation.
    pub refusal: Refusal,
}

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
    /// Store a record with the samples it rests on.
    SaveCalibration {
        record: Box<CalibrationRecord>,
        /// Its samples, raw times included.
        samples: Vec<Sample>,
    },
    /// Have the privileged helper do something; its answer comes as [`Event::Ordered`].
    Actuate {
        order: u64,
        what: Order,
    },
    /// Keep this for the next daemon of this boot.
    SaveHolds(Arc<KeptHolds>),
    SaveResiduals(Arc<Residuals>),
    /// Store what was learnt of models.
    SaveObservedRuns(Arc<ObservedRuns>),
    /// Store what users reported that moves their own answers only.
    SaveReports(Arc<Reports>),
    Reply {
        ticket: Ticket,
        reply: Reply,
    },
    /// Send [`Event::Tick`] at this CLOCK_BOOTTIME, in place of what was asked for before; `None`: not at all.
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

/// What a line of the log is about, in fields that can be searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    pub event: AuditEvent,
    /// The mode before.
    pub from: Option<String>,
    /// The mode after, or the one that was asked for.
    pub to: Option<String>,
    /// Why: of a mode its [`decide::snapshot::ModeCause`], of the end of a hold what ended it.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditEvent {
    /// A mode was entered, or was not.
    Switch,
    /// A change that waited to be confirmed stays.
    Confirm,
    /// The mode from before came back, or did not.
    Revert,
    /// Somebody else has switched.
    External,
    /// A hold is in force.
    Hold,
    /// A hold has ended.
    Release,
    /// Reports were forgotten.
    Forget,
    /// A report of one user is believed by everybody.
    ConfirmReport,
}

impl AuditEvent {
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Confirm => "confirm",
            Self::Revert => "revert",
            Self::External => "external",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Forget => "forget",
            Self::ConfirmReport => "confirm_report",
        }
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

/// An answer to a request that changes something.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Started {
        job: u64,
    },
    /// A calibration has ended well.
    Finished {
        job: u64,
    },
    /// The running job was cancelled.
    Cancelled {
        job: u64,
    },
    Measured(MeasuredSet),
    Observed {
        accepted: u64,
        refused: Vec<RefusedObservation>,
        /// What was learnt of models, with the position.
        outcomes: Vec<(usize, ObservationOutcome)>,
    },
    Forgotten {
        /// Reports that were meant and are gone.
        count: usize,
    },
    /// A switch was made, or came to nothing.
    Switched {
        report: Box<SwitchReport>,
        /// What confirms it, and CLOCK_BOOTTIME of the way back.
        confirm: Option<(u64, Seconds)>,
    },
    /// A hold is in force.
    Held {
        /// What releases it.
        cookie: u64,
        /// The mode that it is held in.
        mode: String,
        /// CLOCK_BOOTTIME when it ends by itself.
        expires_at: Option<Seconds>,
        satisfied: bool,
        /// The mode that would meet every hold at least energy, where a query is in force.
        advice: Option<Advice>,
    },
    Done,
    Refused(Refusal),
}

/// Measured operations beside their predictions.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredSet {
    /// One for each operation and format, or model, that could be measured.
    pub rows: Vec<Measured>,
    /// What could not be measured, and why.
    pub skipped: Vec<String>,
}

/// A model of which a step is to be measured: a token for every sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelWork {
    /// As it was asked for: a key, or `{"path": …}`.
    pub reference: serde_json::Value,
    /// The format asked for; `None` = as its file is stored.
    pub format: Option<WeightFormat>,
    pub model: Arc<Model>,
    pub batch: u64,
    /// Tokens in the cache of each.
    pub context_tokens: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Subject {
    /// An operation, and the storage of its weights.
    Op(Op, WeightFormat),
    /// A step of a model.
    Model(ModelWork),
}

/// One measured operation or model.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub subject: Subject,
    /// The sample with its raw times.
    pub sample: Sample,
    /// Regime that the sample was taken in.
    pub regime: String,
    /// Predicted for the memory system as the reference beside the sample saw it.
    pub predicted: Prediction,
    /// Predicted from the calibration alone.
    pub predicted_at_calibration: Prediction,
    /// Reference bandwidth beside the sample over that of the calibration.
    pub drift_ratio: Option<f64>,
    /// What disturbed the sample; `None` if nothing did.
    pub disturbed: Option<String>,
    /// Power and energy; `None` where they were not asked for.
    pub power: Option<MeasuredPower>,
}

/// Power and energy of one measured operation or model. What is not known is `None`, with the reason.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeasuredPower {
    /// Mean power while it ran again and again.
    pub power: Option<Watts>,
    /// That of the idle machine before.
    pub idle: Option<Watts>,
    /// Energy of one run without what the idle machine takes in that time.
    pub energy: Option<Joules>,
    pub total_energy: Option<Joules>,
    /// Time that the readings under load stand for.
    pub duration: Option<Seconds>,
    pub readings: Option<u32>,
    /// How long the meter takes to a new value; `None` where it does not tell.
    pub period: Option<Seconds>,
    /// What the meter covers: `module`, `system`, `gpu` or `package`.
    pub scope: Option<String>,
    /// Rails that were added.
    pub rails: Vec<String>,
    /// Why something is `None` that the meter should tell.
    pub reason: Option<String>,
}

/// The part of the configuration that the governor decides by.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Sampling period while somebody looks.
    pub sampling_period: Seconds,
    /// Sampling period while nobody does.
    pub idle_period: Seconds,
    /// Calibrate without being asked when there is no record or it is stale.
    pub automatic: bool,
    /// A record older than this is stale.
    pub max_age: Seconds,
    /// Time limit of a calibration in seconds.
    pub time_limit_s: u32,
    /// Memory limit of a probe.
    pub memory_limit_bytes: u64,
    /// No unasked calibration above this busy ratio of the CPUs.
    pub max_load_ratio: f64,
    /// No unasked calibration above this temperature.
    pub max_temperature_c: f64,
    /// No unasked calibration with less memory available than this.
    pub min_free_memory: Bytes,
    /// Wait this long after a failure.
    pub back_off: Seconds,
    /// What predictions are for; `None` = the GPU of a board that shares its memory with it, else the CPU.
    pub accelerator: Option<Accelerator>,
    /// The board is described by a tree that is not this machine's: its GPU is not here to be measured.
    pub elsewhere: bool,
    /// Requests that change something are allowed.
    pub control_enabled: bool,
    /// Names of the modes that may be entered; `None` = every one.
    pub allowed_modes: Option<Vec<String>>,
    /// A mode entered for a hold stays for at least this long.
    pub dwell: Seconds,
    /// What is done about the queries of holds.
    pub auto: Automatic,
    /// A mode that meets every hold is left only for one that saves more than this part of the energy.
    pub hysteresis_ratio: f64,
}
