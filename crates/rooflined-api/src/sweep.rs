//! `POST /v1/sweep`.

use serde::{Deserialize, Serialize};

use super::{ModeAnswer, OperatingPointRequest, PredictAnswer, Speculative, nullable, numbers};
use rooflined_core::names::{Engine, Op};

/// `POST /v1/sweep`: the cross product of shapes or models, formats, power modes, threads, batches and
/// contexts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SweepRequest {
    /// A hardware key; absent = this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Operations, as `op` of a workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = Vec<crate::schema::Op>))]
    pub ops: Vec<Op>,
    /// Models, each as in a workload.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "numbers::list_without_points"
    )]
    #[cfg_attr(test, schema(value_type = Vec<crate::schema::ModelRequest>))]
    pub models: Vec<serde_json::Value>,
    /// Formats; absent = every format measured on this machine, or the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formats: Option<Vec<String>>,
    /// Power modes; absent = the operating point above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_modes: Option<Vec<String>>,
    /// Worker threads, where the CPU is the accelerator; absent = one for every physical core, as engines do; without an
    /// engine, as many as were calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<Vec<u32>>,
    /// Batch sizes (columns) to consider; absent = 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<Vec<u64>>,
    /// Context lengths (models only); absent = as `context_tokens` of a workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contexts: Option<Vec<u64>>,
    /// Key/value cache format: a key of `GET /v1/formats` (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_format: Option<String>,
    /// `prefill`, `decode` or `serve` (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Phase>))]
    pub phase: Option<String>,
    /// Tokens of the prompt (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Tokens to generate (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Tokens already cached, as in a workload (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Tokens of a prompt that one pass takes, as in a workload (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_tokens: Option<u64>,
    /// Speculative decoding (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speculative: Option<Speculative>,
    /// Tokens of the images in every prompt, in addition to `prompt_tokens` (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_tokens: Option<u64>,
    /// Inference engine whose kernels run.
    #[serde(default, deserialize_with = "nullable::or_default")]
    #[cfg_attr(test, schema(value_type = crate::schema::Engine))]
    pub engine: Engine,
    /// Answer even where the inference engine does not run the format on this hardware: as if it had kernels as good as those
    /// for similar formats.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", deserialize_with = "nullable::or_default")]
    pub hypothetical: bool,
}

/// One point of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SweepRow {
    /// The operation with its batch applied; `null` for a model.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Op>))]
    pub op: Option<Op>,
    /// The model: its key, or what its file or fields call it. Absent for an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Expected relative increase of a model's perplexity by its format, a ratio; absent for an operation, and where it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality_loss_ratio: Option<f64>,
    /// The power mode, where modes are swept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<ModeAnswer>,
    /// Worker threads, where they are swept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Columns, or sequences of a model.
    pub batch: u64,
    /// The prediction. What it would warn of is in the warnings of the answer.
    #[serde(flatten)]
    pub prediction: PredictAnswer,
}

/// What the reader should know of rows of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SweepWarning {
    /// For people.
    pub message: String,
    /// The rows, by position; absent where it is about every row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<u64>>,
}

/// `POST /v1/sweep`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SweepAnswer {
    /// One row for each combination.
    pub rows: Vec<SweepRow>,
    /// Each once, however many rows it is about.
    #[serde(default)]
    pub warnings: Vec<SweepWarning>,
    /// True where values come from a simulated board, not from hardware.
    #[serde(default)]
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}
