//! `POST /v1/networks/predict` and `POST /v1/networks/recommend`: vision networks from ONNX files.

use serde::{Deserialize, Serialize};

use super::{BatchRange, EstimateAnswer, ModesRequest, NetworkPredictRequest, PowerAnswer, nullable};
use rooflined_core::names::Optimism;

/// Memory that a network takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkMemoryAnswer {
    /// Bytes of the weights.
    pub weights: f64,
    /// Most bytes of activations at one time; `null` where a size is unknown.
    pub activations: Option<f64>,
    /// What the engine and its libraries take for themselves; `null`, because nothing is known of it.
    pub runtime: Option<f64>,
    /// Memory available now; for other hardware, its memory less what the system usually needs. `null` where that is unknown.
    pub available: Option<f64>,
}

/// The time of one layer: a kernel and the nodes that run in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkLayerAnswer {
    /// As the file calls its first node.
    pub name: String,
    /// What kind of kernel runs it.
    #[cfg_attr(test, schema(value_type = crate::schema::LayerKind))]
    pub kind: String,
    /// What takes most of its time: `memory`, `compute` or `launch`.
    #[cfg_attr(test, schema(value_type = crate::schema::LayerBound))]
    pub bound: String,
    /// What it computes in.
    #[cfg_attr(test, schema(value_type = crate::schema::Precision))]
    pub precision: String,
    /// Its time.
    pub time_s: f64,
    /// Operations; a multiply-add counts as two.
    pub flops: f64,
    /// Bytes to and from memory.
    pub bytes: f64,
}

/// Shares of the time of layers by what takes most of theirs; together 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkSharesAnswer {
    /// Of layers that wait for memory.
    pub memory: f64,
    /// Of layers that wait for arithmetic.
    pub compute: f64,
    /// Of layers that take longer to start than to run.
    pub launch: f64,
}

/// `POST /v1/networks/predict`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkPredictAnswer {
    /// Name of the network.
    pub network: String,
    /// The engine.
    #[cfg_attr(test, schema(value_type = crate::schema::NetworkEngine))]
    pub engine: String,
    /// What most layers compute in.
    #[cfg_attr(test, schema(value_type = crate::schema::Precision))]
    pub precision: String,
    /// Pictures in one run.
    pub batch: u64,
    /// What `latency_s` covers.
    #[cfg_attr(test, schema(value_type = crate::schema::NetworkScope))]
    pub scope: String,
    /// Time of one run of the batch.
    pub latency_s: EstimateAnswer,
    /// Pictures per second, one run after the other.
    pub pictures_per_s: EstimateAnswer,
    /// Time inside the engine alone.
    pub engine_s: EstimateAnswer,
    /// What the scope adds to it; 0 for scope `engine`.
    pub around_s: f64,
    /// Where the time goes.
    pub shares: NetworkSharesAnswer,
    /// The layers in order.
    pub layers: Vec<NetworkLayerAnswer>,
    /// Operations of one run.
    pub flops: f64,
    /// Bytes to and from memory in one run.
    pub bytes: f64,
    /// The least time inside the engine that the ceilings allow.
    pub roofline_time_s: f64,
    /// Memory.
    pub memory_bytes: NetworkMemoryAnswer,
    /// Rough size of the built engine; `null` where none is built.
    pub engine_file_bytes: Option<f64>,
    /// Power while it runs; `null` where unknown.
    pub power_w: Option<PowerAnswer>,
    /// Energy of one picture, of the same scope as the power; `null` where unknown.
    pub energy_j_per_picture: Option<EstimateAnswer>,
    /// The power mode; `null` where the machine has none, or the operating point is not one of its modes.
    pub power_mode: Option<String>,
    /// Multiprocessors and their clock, or cores.
    pub workers: u32,
    /// Clock of the GPU or of the cores; `null` where unknown.
    pub clock_hz: Option<f64>,
    /// Memory bandwidth that the prediction starts from.
    pub bandwidth_bytes_per_s: f64,
    /// Generation of silicon whose constants were used.
    pub generation: String,
    /// Published latencies behind them; 0 where they are those of other generations.
    pub rows: u32,
    /// Reports of measured runs that moved it.
    #[serde(default)]
    pub reports: u32,
    /// What the prediction rests on.
    #[cfg_attr(test, schema(value_type = crate::schema::Tier))]
    pub tier: String,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// The hardware, where the figures are those of its data sheet and no machine was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Serial number of the snapshot that the answer rests on; 0 where no machine was asked.
    pub serial: u64,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// Limits that a choice must keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NetworkConstraints {
    /// Minimum pictures per second of each stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_pictures_per_s: Option<f64>,
    /// Maximum time of one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_latency_s: Option<f64>,
    /// Maximum power while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_power_w: Option<f64>,
}

/// `POST /v1/networks/recommend`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NetworkRecommendRequest {
    /// What is to run where; its precision, batch and mode are chosen where they are left out.
    pub workload: NetworkPredictRequest,
    /// Limits that the choice must keep.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub constraints: NetworkConstraints,
    /// Cameras that are served at once. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u64>,
    /// Precisions to consider. Absent: those that the engine has there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Vec<crate::schema::Precision>>))]
    pub precisions: Option<Vec<String>>,
    /// Batches to consider. Absent: 1, or up to one picture of each stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRange>,
    /// Power modes to consider: a list, `"all"` or `"live"`; absent = the one that is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::ModesChoice>))]
    pub power_modes: Option<ModesRequest>,
    /// End of the prediction interval that must meet the constraints.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::Optimism))]
    pub optimism: Optimism,
}

/// A candidate of a recommendation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkCandidate {
    /// What it computes in.
    #[cfg_attr(test, schema(value_type = crate::schema::Precision))]
    pub precision: String,
    /// Pictures in one run.
    pub batch: u64,
    /// The power mode; `null` where the machine has none.
    pub power_mode: Option<String>,
    /// Multiprocessors online.
    pub workers: u32,
    /// Clock of the GPU, or of the cores; `null` where unknown.
    pub clock_hz: Option<f64>,
    /// Memory bandwidth.
    pub bandwidth_bytes_per_s: f64,
    /// Time of one run.
    pub latency_s: EstimateAnswer,
    /// Pictures per second of all streams together.
    pub pictures_per_s: EstimateAnswer,
    /// Power; `null` where unknown.
    pub power_w: Option<PowerAnswer>,
    /// Energy of one picture; `null` where unknown.
    pub energy_j_per_picture: Option<EstimateAnswer>,
    /// Constraints that it misses, by their keys.
    pub misses: Vec<String>,
}

/// `POST /v1/networks/recommend`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkRecommendAnswer {
    /// Whether any candidate meets the constraints.
    pub feasible: bool,
    /// The choice; where nothing meets the constraints, the closest.
    pub choice: NetworkCandidate,
    /// What is predicted of it.
    pub prediction: NetworkPredictAnswer,
    /// The others, best first; at most ten.
    pub alternatives: Vec<NetworkCandidate>,
    /// Candidates that were considered.
    pub considered: u64,
    /// The command that builds and times the engine; `null` where the engine has none.
    pub command: Option<String>,
    /// What the caller should know.
    pub warnings: Vec<String>,
}
