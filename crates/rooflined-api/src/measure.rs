//! `POST /v1/measure`.

use serde::{Deserialize, Serialize};

use super::{EstimateAnswer, Workload, nullable};
use rooflined_core::names::Op;

/// `POST /v1/measure` (control socket): run operations now. Give `op` with `formats`, a `workload`, or `workloads`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasureRequest {
    /// One operation, measured in each of `formats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Op>))]
    pub op: Option<Op>,
    /// Formats for `op`; default `["fp32"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable::or_default")]
    pub formats: Vec<String>,
    /// One operation, with its `format`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Several operations, each with its `format`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable::or_default")]
    pub workloads: Vec<Workload>,
    /// Measure power and energy too: each operation runs again and again until the power meter has seen it, which takes a
    /// second of each, or some with a slow meter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", deserialize_with = "nullable::or_default")]
    pub power: bool,
}

/// What tells a model from an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// A prompt or a token of a model.
    Model,
}

/// A prompt or a token of a model in an engine, which `rooflinectl compare` measures and the daemon does not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredModel {
    /// `model`.
    pub kind: ModelKind,
    /// As it was asked for.
    pub model: serde_json::Value,
    /// `prefill` or `decode`.
    pub phase: String,
    /// Batch size in sequences.
    pub batch: u64,
    /// Tokens in the cache of each before.
    pub context_tokens: u64,
}

/// What tells a vision network from an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkKind {
    /// A run of a network.
    Network,
}

/// A run of a vision network, which `rooflinectl compare` measures and the daemon does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredNetwork {
    /// `network`.
    pub kind: NetworkKind,
    /// Name of its file.
    pub network: String,
    /// Pictures in one run.
    pub batch: u64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MeasuredOp {
    /// An operation.
    Op(Op),
    /// A model.
    Model(MeasuredModel),
    /// A network.
    Network(MeasuredNetwork),
}

impl MeasuredOp {
    /// The operation; `None` for a model or a network.
    #[must_use]
    pub const fn op(&self) -> Option<&Op> {
        match self {
            Self::Op(op) => Some(op),
            Self::Model(_) | Self::Network(_) => None,
        }
    }
}

/// One measured operation next to its prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct MeasuredRow {
    /// The operation.
    #[cfg_attr(test, schema(value_type = crate::schema::Op))]
    pub op: MeasuredOp,
    /// Storage of the weights.
    pub format: String,
    /// Predicted for the memory system as the probe saw it during the measurement.
    pub predicted_time_s: EstimateAnswer,
    /// Predicted from the calibration alone.
    pub predicted_at_calibration_s: f64,
    /// Where the runs lie most densely (half-sample mode), with the 5 % and 95 % quantiles.
    pub measured_time_s: EstimateAnswer,
    /// (predicted - measured) / measured.
    pub error_ratio: f64,
    /// The same for the prediction from the calibration alone.
    pub error_at_calibration_ratio: f64,
    /// Reference read bandwidth during the measurement over that of the calibration.
    pub drift_ratio: Option<f64>,
    /// What disturbed the measurement; `null` if nothing did.
    pub disturbed: Option<String>,
    /// Regime it was measured in.
    pub regime: String,
    /// Number of timed runs.
    pub runs: u64,
    /// Instruction set of the kernel, such as `avx512`.
    pub isa: String,
    /// Side of the roofline that it lies on: `memory` or `compute`.
    #[cfg_attr(test, schema(value_type = crate::schema::Bound))]
    pub bound: String,
    /// The limiting ceiling, as `limit` of a prediction.
    #[cfg_attr(test, schema(value_type = crate::schema::Limit))]
    pub limit: String,
    /// Physical bound of the roofline.
    pub roofline_time_s: f64,
    /// Power and energy; `null` where they were not asked for.
    #[serde(default)]
    pub power: Option<MeasuredPowerAnswer>,
}

/// Power and energy of one measured operation. What is unknown is `null`, with the reason; never 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct MeasuredPowerAnswer {
    /// Mean power while it ran again and again.
    pub power_w: Option<f64>,
    /// That of the idle machine before.
    pub idle_power_w: Option<f64>,
    /// Energy of one run without what the idle machine takes in that time: (`power_w` - `idle_power_w`) x `measured_time_s`.
    pub energy_j: Option<f64>,
    /// With it: `power_w` x `measured_time_s`.
    pub total_energy_j: Option<f64>,
    /// Time that the readings under load stand for.
    pub duration_s: Option<f64>,
    /// Number of readings of the power meter.
    pub readings: Option<u32>,
    /// How long the meter takes to a new value; `null` where it does not tell.
    pub period_s: Option<f64>,
    /// What the meter covers: `module`, `system`, `gpu` or `package`.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Rails>))]
    pub scope: Option<String>,
    /// Names of the power rails that were added up.
    pub rails: Vec<String>,
    /// Why a number that the meter should tell is `null`; `null` if none is.
    pub reason: Option<String>,
}

/// `POST /v1/measure`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct MeasureAnswer {
    /// One row for each operation and format.
    pub rows: Vec<MeasuredRow>,
    /// What could not be measured, and why.
    pub skipped: Vec<String>,
    /// Measured on a simulated accelerator.
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}
