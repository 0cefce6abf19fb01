//! Answers to what clients want.

use rooflined_core::board::SwitchReport;
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::Refusal;
use rooflined_core::units::{Joules, Seconds, Watts};
use rooflined_predict::Prediction;
use rooflined_predict::calibration::Sample;
use rooflined_predict::learning::models::ObservationOutcome;
use rooflined_predict::snapshot::Advice;

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
        /// Why servers are slow, with the position.
        slow: Vec<(usize, String)>,
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
    /// One for each operation and format that could be measured.
    pub rows: Vec<Measured>,
    /// What could not be measured, and why.
    pub skipped: Vec<String>,
}

/// One measured operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub op: Op,
    /// Storage of its weights.
    pub format: WeightFormat,
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

/// Power and energy of one measured operation. What is not known is `None`, with the reason.
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

/// An observation that nothing is learnt from, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedObservation {
    /// Position in the request.
    pub index: usize,
    /// Why; the field is one of the observation.
    pub refusal: Refusal,
}
