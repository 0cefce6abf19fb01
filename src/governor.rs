//! All mutable state of the daemon, and every decision about it. Time, readings and requests come in as values;
//! what is to be done goes out as [`Effect`]s.

mod calibrate;
mod control;
mod core;
mod measure;
mod metering;
mod modes;
mod prior;

pub use self::control::{Client, ControlRequest, Question, Wanted};
pub use self::core::Governor;

use std::sync::Arc;

use crate::board::{BoardState, Order, OrderAnswer, SwitchReport};
use crate::calibration::{Accelerator, CalibrationRecord, Plan, PlanKind, ProbeEvent, Sample};
use crate::learning::Residuals;
use crate::learning::models::{Learned, Learnt, Measured as MeasuredRun};
use crate::precision::WeightFormat;
use crate::predict::{Engine, Prediction};
use crate::snapshot::{Advice, Automatic, Snapshot};
use crate::units::{Bytes, Joules, Seconds, Watts};
use crate::workload::Op;
use crate::workload::model::Model;

/// The two clocks that the governor is told with every event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Now {
    /// CLOCK_BOOTTIME: for intervals.
    pub boottime: Seconds,
    /// Seconds since 1970: for dates in records.
    pub unix_s: f64,
}

/// Ties a reply to the request it answers; chosen by the daemon.
pub type Ticket = u64;

/// What happens to the daemon.
#[derive(Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The sampler read the machine.
    Sampled(Box<BoardState>),
    /// Somebody looks (a query or a subscription), so sampling may speed up.
    Watched,
    /// A calibration is asked for. Replied to with [`Reply::Started`], and if `wait` with [`Reply::Finished`] only.
    CalibrateRequested {
        /// Who is answered.
        ticket: Ticket,
        /// How thorough.
        plan: PlanKind,
        /// Answer at the end rather than at the start.
        wait: bool,
        /// Ignore the gate.
        force: bool,
    },
    /// The running calibration shall stop.
    CancelRequested {
        /// Who is answered.
        ticket: Ticket,
        /// The job; `None` = whichever runs.
        job: Option<u64>,
    },
    /// Operations or models shall be measured now. Replied to with [`Reply::Measured`].
    MeasureRequested {
        /// Who is answered.
        ticket: Ticket,
        /// Operations to run.
        work: Vec<(Op, WeightFormat)>,
        /// Models to run a step of, and why others cannot be.
        models: Vec<Result<ModelWork, String>>,
        /// Tell power and energy too.
        power: bool,
    },
    /// A service reports measured times. Replied to with [`Reply::Learnt`].
    Observed {
        /// Who is answered.
        ticket: Ticket,
        /// What ran and how long it took.
        observations: Vec<Observed>,
    },
    /// A mode or a hold is asked for.
    ControlRequested {
        /// Who is answered.
        ticket: Ticket,
        /// Who asks.
        client: Client,
        /// For what.
        request: ControlRequest,
    },
    /// A connection that may have holds attached to it has closed.
    ConnectionClosed {
        /// Which.
        connection: u64,
    },
    /// The root role has answered an order.
    Ordered {
        /// Number of the order.
        order: u64,
        /// What it said; a lost connection is a [`OrderAnswer::Failed`].
        answer: Box<OrderAnswer>,
    },
    /// The root role can be reached (`None`), or cannot and why.
    Actuator {
        /// Why not, ending with the remedy.
        problem: Option<String>,
    },
    /// The client of a ticket has gone; no reply is needed any more.
    ClientGone {
        /// Whose.
        ticket: Ticket,
    },
    /// The probe child said something.
    Probe {
        /// Of which job.
        job: u64,
        /// What.
        event: Box<ProbeEvent>,
    },
    /// The probe child ended.
    ProbeEnded {
        /// Of which job.
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

/// What a service measured.
#[derive(Debug, Clone, PartialEq)]
pub enum Observed {
    /// One operation.
    Op {
        /// Whose kernels.
        engine: Engine,
        /// Which.
        op: Op,
        /// Storage of the weights.
        format: WeightFormat,
        /// Of one run.
        time: Seconds,
    },
    /// A whole model.
    Model(Box<MeasuredRun>),
}

/// Why nothing was learnt from an observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlearnt {
    /// Position in the request.
    pub index: usize,
    /// Stable code.
    pub code: &'static str,
    /// Field of the observation.
    pub field: &'static str,
    /// In words.
    pub reason: String,
    /// What to do.
    pub hint: String,
}

/// What the governor wants done.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Show this picture to everyone.
    Publish(Arc<Snapshot>),
    /// Start a probe child with this plan.
    StartProbe {
        /// Number of the job.
        job: u64,
        /// What to measure.
        plan: Plan,
    },
    /// Stop the probe child of this job.
    StopProbe {
        /// Number of the job.
        job: u64,
    },
    /// Store a record with the samples it rests on.
    SaveCalibration {
        /// The record.
        record: Box<CalibrationRecord>,
        /// Its samples, raw times included.
        samples: Vec<Sample>,
    },
    /// Have the root role do something; its answer comes as [`Event::Ordered`].
    Actuate {
        /// Number of the order.
        order: u64,
        /// What to do.
        what: Order,
    },
    /// Store what was learnt.
    SaveResiduals(Residuals),
    /// Store what was learnt of models.
    SaveLearned(Arc<Learned>),
    /// Answer a request.
    Reply {
        /// Whose.
        ticket: Ticket,
        /// With what.
        reply: Reply,
    },
    /// Send [`Event::Tick`] at this CLOCK_BOOTTIME, in place of what was asked for before; `None`: not at all.
    WakeAt(Option<Seconds>),
    /// Take samples this often from now on.
    SampleEvery(Seconds),
    /// Tell the log.
    Log {
        /// How bad it is.
        severity: Severity,
        /// In words.
        message: String,
    },
}

/// Of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Something is degraded.
    Warning,
    /// Something failed.
    Error,
}

/// An answer to a request that changes something.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A calibration has started.
    Started {
        /// Number of the job.
        job: u64,
    },
    /// A calibration has ended well.
    Finished {
        /// Number of the job.
        job: u64,
    },
    /// The running job was told to stop.
    Cancelled {
        /// Number of the job.
        job: u64,
    },
    /// Operations were measured.
    Measured(MeasuredSet),
    /// Observations were taken.
    Learnt {
        /// How many.
        accepted: u64,
        /// The others.
        refused: Vec<Unlearnt>,
        /// What was learnt of models, with the position.
        learnt: Vec<(usize, Learnt)>,
    },
    /// A switch was made, or came to nothing.
    Switched {
        /// What came of it.
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
        /// That mode meets it.
        satisfied: bool,
        /// The mode that would meet every hold at least energy, where a query is in force.
        advice: Option<Advice>,
    },
    /// It was done.
    Done,
    /// It was not done.
    Refused {
        /// Stable code: `busy`, `gated`, `probe_failed`, `fit_failed`, `not_running`, `cancelled`, `control_disabled`,
        /// `unknown_mode`, `mode_not_allowed`, `reboot_required`, `not_reached`, `not_settled`, `refused`,
        /// `unsatisfiable`, `auto_off`, `unknown_hold`, `not_pending`, `missing_field`, `control_unavailable`, `not_authorized`.
        code: &'static str,
        /// Why, ending with what to do.
        message: String,
    },
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
    /// It.
    pub model: Arc<Model>,
    /// Sequences.
    pub batch: u64,
    /// Tokens in the cache of each.
    pub context_tokens: u64,
}

/// What was measured.
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
    /// What ran.
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

/// Power and energy of one measured operation or model. What cannot be told is `None`, with the reason.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeasuredPower {
    /// Mean power while it ran again and again.
    pub power: Option<Watts>,
    /// That of the idle machine before.
    pub idle: Option<Watts>,
    /// Energy of one run without what the idle machine takes in that time.
    pub energy: Option<Joules>,
    /// With it.
    pub total_energy: Option<Joules>,
    /// Time that the readings under load stand for.
    pub duration: Option<Seconds>,
    /// How many.
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
