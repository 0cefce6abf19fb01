//! `POST /v1/predict`.

use serde::{Deserialize, Serialize};

use super::{EstimateAnswer, ObservationRequest, OperatingPointRequest, PowerAnswer, Workload, nullable};
use rooflined_core::names::Engine;

/// `POST /v1/predict`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PredictRequest {
    /// A hardware key; absent = this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Inference engine whose kernels run. Absent: of a model, the one that is recommended for it; of an operation `none`, this
    /// program's own.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::Engine))]
    pub engine: Engine,
    /// Build number or release of the inference engine, such as `b10809`. Absent: the newest known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_version: Option<String>,
    /// Workload to predict: one operation or one model.
    pub workload: Workload,
    /// Used for this answer only.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable::or_default")]
    pub observations: Vec<ObservationRequest>,
    /// Answer even where the inference engine does not run the format on this hardware: as if it had kernels as good as those
    /// for similar formats.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", deserialize_with = "nullable::or_default")]
    pub hypothetical: bool,
}

/// Memory that a workload takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct MemoryAnswer {
    /// Bytes of the weights.
    pub weights: f64,
    /// Bytes of the key/value cache of all sequences.
    pub kv_cache: f64,
    /// Bytes of the activations: inputs and outputs.
    pub activations: f64,
    /// What the engine takes for itself; absent for an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<f64>,
    /// Sum of the parts above.
    pub total: f64,
    /// Bytes in the memory of the CPU of a machine with a card, not counted in the parts above; absent if there are no such bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<f64>,
    /// Memory available now without swapping; for other hardware, its memory less what the system usually
    /// needs. `null` where that is unknown.
    #[serde(default)]
    pub available: Option<f64>,
    /// Of these the bytes that it may take: some stay free for others. `null` where that is unknown.
    #[serde(default)]
    pub room: Option<f64>,
    /// Whether it fits into that room; `null` where it is unknown.
    pub fits: Option<bool>,
}

/// A part of a prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct BreakdownEntry {
    /// Name of the operation.
    pub op: String,
    /// Time of the operation.
    pub time_s: f64,
    /// Operations that it computes.
    pub flops: f64,
    /// Bytes to and from memory.
    pub bytes: f64,
}

/// `POST /v1/predict`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct PredictAnswer {
    /// The inference engine that it is of: the one asked for; of a model without one, the engine that is recommended for it.
    #[serde(default)]
    #[cfg_attr(test, schema(value_type = crate::schema::Engine))]
    pub engine: String,
    /// Weight format that it is of: the one asked for, else the usual one; of a model without engine and format, the one that is
    /// recommended. `null` for an attention, and where a file does not say how it is stored.
    #[serde(default)]
    pub format: Option<String>,
    /// Time of one run of an operation. Of a model: one step (decode), the prompt (prefill), or prompt and answer (serve).
    pub time_s: EstimateAnswer,
    /// Tokens (columns) per second over the batch: of a prefill those of the prompt, otherwise those generated.
    pub tokens_per_s: EstimateAnswer,
    /// Documents per second over the batch (tasks `embed` and `rerank`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents_per_s: Option<EstimateAnswer>,
    /// Time of the batch divided by its documents (tasks `embed` and `rerank`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_per_document_s: Option<EstimateAnswer>,
    /// Time to the first token (models that read a prompt).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_to_first_token_s: Option<EstimateAnswer>,
    /// Time of each token of a sequence after the first (models that generate).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_per_token_s: Option<EstimateAnswer>,
    /// Power while it runs; `null` where unknown.
    pub power_w: Option<PowerAnswer>,
    /// Whose measurements it rests on: `measured` on this machine, or `prior`: those of others; `null` without power.
    #[serde(default)]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::PowerSource>))]
    pub power_source: Option<String>,
    /// Energy per token of a model, of the same scope as the power; `null` where unknown, and for an operation.
    pub energy_j_per_token: Option<EstimateAnswer>,
    /// The same above what the idle machine takes in that time: what the token adds where the machine is on anyway.
    #[serde(default)]
    pub marginal_energy_j_per_token: Option<EstimateAnswer>,
    /// Energy of the whole run that `time_s` is of; `null` where unknown.
    #[serde(default)]
    pub energy_j: Option<EstimateAnswer>,
    /// Operations of one run.
    pub flops: f64,
    /// Traffic of one run.
    pub bytes: f64,
    /// Operations per byte.
    pub arithmetic_intensity_flops_per_byte: f64,
    /// Ridge point of the precision used.
    pub ridge_flops_per_byte: f64,
    /// Side of the roofline that it lies on: `memory` or `compute`.
    #[cfg_attr(test, schema(value_type = crate::schema::Bound))]
    pub bound: String,
    /// What limits it: `dram`, `cache`, `core` (dequantization), `compute`, `launch` or `power_cap`.
    #[cfg_attr(test, schema(value_type = crate::schema::Limit))]
    pub limit: String,
    /// What the arithmetic runs in.
    #[cfg_attr(test, schema(value_type = crate::schema::Precision))]
    pub compute: String,
    /// Tokens that the cache of every sequence has room for, as predicted and as the settings of a recommendation have it; `null` for
    /// an operation.
    #[serde(default)]
    pub context_tokens: Option<u64>,
    /// Memory it takes.
    pub memory_bytes: MemoryAnswer,
    /// What the prediction rests on.
    #[cfg_attr(test, schema(value_type = crate::schema::Tier))]
    pub tier: String,
    /// Whose errors the interval was taken from (models only): `own_tier`, `own_engine` or `own_runs` of this machine, else
    /// `engine_and_machine`, `engine`, `all` or `guess`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::IntervalSource>))]
    pub interval_from: Option<String>,
    /// Weakest provenance of the ceilings used.
    #[cfg_attr(test, schema(value_type = crate::schema::Provenance))]
    pub provenance: String,
    /// Parts of the prediction, by operation.
    pub breakdown: Vec<BreakdownEntry>,
    /// The least time that any implementation could take; no prediction lies below it.
    pub roofline_time_s: f64,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Name of the power mode that was asked about by name or number; absent where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_name: Option<String>,
    /// The hardware, where the figures are those of its data sheet and no machine was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Serial number of the snapshot that the answer rests on; 0 where no machine was asked.
    pub serial: u64,
    /// Whose reports of measured runs moved it, and how many; absent without such reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reports: Option<ReportsAnswer>,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// Reports of measured runs that moved an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ReportsAnswer {
    /// Whose moved it: `own` (the caller's, or given with the question, and shared ones) or `shared`.
    #[cfg_attr(test, schema(value_type = crate::schema::ReportScope))]
    pub scope: String,
    /// Number of the caller's reports, or of those given with the question.
    pub own: u32,
    /// Number of reports of root, the daemon's user and group `rooflined`, which count for everybody.
    pub shared: u32,
}
