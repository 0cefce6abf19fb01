//! `POST`, `GET` and `DELETE /v1/observations`.

use serde::{Deserialize, Serialize};

use super::{NetworkPredictRequest, OperatingPointRequest, RunEvidence, Workload, nullable};
use rooflined_core::names::Engine;

/// What a service measured: an element of `POST /v1/observations`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ObservationRequest {
    /// Workload that ran: one operation or one model.
    #[serde(default, skip_serializing_if = "is_none")]
    pub workload: Workload,
    /// A vision network that ran instead, as `POST /v1/networks/predict` takes it; `time_s` is that of one run inside the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Box<NetworkPredictRequest>>,
    /// Inference engine whose kernels run.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::Engine))]
    pub engine: Engine,
    /// Where it ran; absent = as the machine is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Aggregate rate; give this or `time_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
    /// Time of one run (operation) or one step (model).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_s: Option<f64>,
    /// Mean power while it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Name of the server that it ran in, for the event `degraded`: `llama-server on port 8080`. Two reports in a row below what
    /// is expected of it degrade the machine for everybody, until three in a row are as expected, where the reporter's reports count for everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// What was seen of its process. A run that it shows to be slowed down or `disturbed` is not learned from.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::nullable::object")]
    pub seen: Option<RunEvidence>,
}

fn is_none(workload: &Workload) -> bool {
    *workload == Workload::default()
}

/// `POST /v1/observations`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ObservationsAnswer {
    /// Number of observations that were learned from.
    pub accepted: u64,
    /// What was learned of models, by position.
    #[serde(default)]
    pub learnt: Vec<LearntObservation>,
    /// Why the others were not, by position.
    pub refused: Vec<RefusedObservation>,
    /// What was not learned of those that were.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Servers that are slower than expected, by position.
    #[serde(default)]
    pub slow: Vec<SlowServer>,
}

/// A server that is slower than expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SlowServer {
    /// Position of the report in the request.
    pub index: u64,
    /// Why, with the remedy.
    pub reason: String,
}

/// What was learned from a report of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct LearntObservation {
    /// Position of the report in the request.
    pub index: u64,
    /// Time predicted now over the time predicted before anything was learned.
    pub factor: f64,
    /// What a prediction of this model rests on now.
    #[cfg_attr(test, schema(value_type = crate::schema::Tier))]
    pub tier: String,
    /// Number of runs of this model that are kept.
    pub count: u64,
    /// What changed; `null` if nothing did.
    pub alarm: Option<String>,
}

/// Why a report was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct RefusedObservation {
    /// Position of the report in the request.
    pub index: u64,
    /// Stable code of the error.
    #[cfg_attr(test, schema(value_type = crate::schema::ErrorCode))]
    pub code: String,
    /// Field of the report that is wrong.
    pub field: Option<String>,
    /// One sentence.
    pub reason: String,
    /// What to do next.
    pub hint: String,
}

/// A report of something that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ObservationEntry {
    /// Number of the report.
    pub id: u64,
    /// User who reported it.
    pub uid: Option<u32>,
    /// Process that reported it; `null` where that is not known.
    pub pid: Option<i32>,
    /// When it was reported, in seconds since 1970; `null` where that was not recorded.
    pub reported_at_unix_s: Option<f64>,
    /// Whose answers it moves: `everyone` or `own` (those of `uid`).
    #[cfg_attr(test, schema(value_type = crate::schema::Moves))]
    pub moves: String,
    /// Engine that ran.
    #[cfg_attr(test, schema(value_type = crate::schema::AnyEngine))]
    pub engine: String,
    /// Key, path or name of the model or network; `null` for an operation.
    pub model: Option<String>,
    /// The operation; `null` for a model.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::ObservedOp>))]
    pub op: Option<serde_json::Value>,
    /// How weights were stored; of a network, what it computed in.
    pub format: String,
    /// `prefill`, `decode` or `serve`; `null` for an operation or a network.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Phase>))]
    pub phase: Option<String>,
    /// Sequences, or pictures; `null` for an operation.
    pub batch: Option<u64>,
    /// Tokens that were in the cache; `null` for an operation.
    pub context_tokens: Option<u64>,
    /// Tokens of the prompt; `null` for an operation.
    pub prompt_tokens: Option<u64>,
    /// Power mode by name; `null` where it was not known.
    pub power_mode: Option<String>,
    /// Measured time of one run.
    pub time_s: f64,
    /// Reported power; `null` where there was none.
    pub power_w: Option<f64>,
    /// Measured over predicted: for a model as it was predicted before, for an operation or a network without what was learned; `null` if
    /// that is no longer known.
    pub measured_over_predicted_ratio: Option<f64>,
}

/// `GET /v1/observations`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ObservationListAnswer {
    /// Reports, those of the lowest number first.
    pub observations: Vec<ObservationEntry>,
    /// Other users with reports that move only their own answers and are not listed.
    pub other_users: u32,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// `DELETE /v1/observations` and `DELETE /v1/observations/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ForgottenAnswer {
    /// Number of reports that are gone.
    pub forgotten: u64,
}
