//! Bodies of requests.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{absent, whole};
use roofline::names::{Engine, Objective, Op, Optimism, PlanKind};

/// One operation (`op` + `format`) or one model. A body has exactly one of the two.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// A bare operation: `{"kind":"gemv","n":4096,"k":4096}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub op: Option<Op>,
    /// A model: a key of `GET /v1/models`; `{"path": FILE, "contents": {…}}` as `rooflinectl models contents FILE` prints it,
    /// where nothing is opened; `{"path": FILE}` below a directory of `[models] dirs`; `{"fd": 0}`, the first descriptor
    /// attached (`SCM_RIGHTS`) to the first byte of the request, a file open for reading, with a `path` that merely names it;
    /// or the fields of a Hugging Face `config.json`. Files are read for 30 s at most.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole::one")]
    pub model: Option<serde_json::Value>,
    /// Weight format: a key of `GET /v1/formats`. Default: a file's own, what a model known by a key is published in, `fp16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Key/value cache format: a key of `GET /v1/formats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_format: Option<String>,
    /// `prefill`, `decode` or `serve` (models only). Default `decode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Batch size: sequences (models) or columns (operations). Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// Context length: tokens already in the cache (models only). Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Tokens of the prompt (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Tokens to generate (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Tokens already cached: of the prompt, where they are not computed again, or of the context of a decode those that all
    /// sequences share (models only). Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Tokens of a prompt that one pass takes, each of which reads the weights again (models only): llama.cpp's `-ub`, vLLM's
    /// `--max-num-batched-tokens`. Absent = the engine's default, by which the time is predicted and nothing is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_tokens: Option<u64>,
    /// Speculative decoding (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speculative: Option<Speculative>,
    /// Tokens of the images in every prompt, beside `prompt_tokens` (models only). Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_tokens: Option<u64>,
    /// Worker threads, where the CPU is the accelerator. Default: one for every physical core, as engines do; without an
    /// engine, as many as were calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
}

/// Tokens that are drafted ahead and verified together. The time of drafting is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Speculative {
    /// Tokens drafted for every sequence and step.
    pub draft_tokens: u64,
    /// Of those, how many are accepted in the mean; every step adds one more.
    pub accepted_per_step: f64,
}

/// Operating point to predict for instead of the present one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatingPointRequest {
    /// A power mode by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<String>,
    /// Clock of the CPU cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_hz: Option<f64>,
    /// Number of CPU cores online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_online: Option<u32>,
    /// Clock of the GPU's SMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_hz: Option<f64>,
    /// Number of streaming multiprocessors (SM) online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_online: Option<u32>,
    /// Clock of the external memory controller (EMC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emc_hz: Option<f64>,
}

/// `POST /v1/predict`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictRequest {
    /// A hardware key; absent = this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Inference engine whose kernels run; default `none`, this program's own.
    #[serde(default, deserialize_with = "absent::or_default")]
    #[schema(value_type = String)]
    pub engine: Engine,
    /// Workload to predict: one operation or one model.
    pub workload: Workload,
    /// Used for this answer only.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "absent::or_default")]
    pub observations: Vec<ObservationRequest>,
    /// Answer even where the inference engine does not run the format on this hardware: as if it had kernels as good as those
    /// for similar formats.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", deserialize_with = "absent::or_default")]
    pub hypothetical: bool,
}

/// What a service measured: an element of `POST /v1/observations`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObservationRequest {
    /// Workload that ran: one operation or one model.
    pub workload: Workload,
    /// Inference engine whose kernels run.
    #[serde(default, deserialize_with = "absent::or_default")]
    #[schema(value_type = String)]
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
}

/// `POST /v1/observations/confirm` (control socket).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmObservationRequest {
    /// Number of a report that moves only its user's answers, and shall move everybody's.
    pub id: u64,
}

/// Limits that an answer must keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Constraints {
    /// Maximum time of one run of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_time_s: Option<f64>,
    /// Maximum time per token; for an operation the same as `max_time_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_time_per_token_s: Option<f64>,
    /// Maximum time to the first token (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_time_to_first_token_s: Option<f64>,
    /// Minimum tokens/s (columns/s) over the whole batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_tokens_per_s: Option<f64>,
    /// Maximum power while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_power_w: Option<f64>,
    /// Maximum memory for weights and activations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory_bytes: Option<f64>,
    /// Maximum expected increase of a model's perplexity over 16-bit weights, as a ratio: 0.03 is three per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_quality_loss_ratio: Option<f64>,
    /// Minimum memory that stays available to others; absent = a twentieth of all, and 256 MiB at least. Swap never counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_free_memory_bytes: Option<f64>,
}

/// A range of batch sizes, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRange {
    /// Smallest batch size; absent = 1.
    #[serde(default = "one", deserialize_with = "absent::or_one")]
    pub min: u64,
    /// Largest batch size; absent = 1.
    #[serde(default = "one", deserialize_with = "absent::or_one")]
    pub max: u64,
}

const fn one() -> u64 {
    1
}

/// Power modes to consider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ModesRequest {
    /// `"all"`, or `"live"`: those that need no reboot.
    Kind(String),
    /// Modes by name, or by number in digits.
    Listed(Vec<String>),
}

/// What may be chosen: formats, power modes, threads, batch sizes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Freedom {
    /// Weight formats to consider; absent = for an operation every format measured on this machine, for a model the usual ones
    /// of the engine and the one that its file is stored in, for a packed file or checkpoint its own alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formats: Option<Vec<String>>,
    /// Key/value cache formats to consider (models only); absent = that of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_formats: Option<Vec<String>>,
    /// Power modes to consider: a list, `"all"` or `"live"`; absent = the one that is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_modes: Option<ModesRequest>,
    /// Worker threads to consider, where the CPU is the accelerator; absent = as many as it was calibrated with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<Vec<u32>>,
    /// Batch sizes (columns) to consider; absent = 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRange>,
    /// Allow a mode that needs a reboot.
    #[serde(default, deserialize_with = "absent::or_default")]
    pub allow_reboot: bool,
    /// Expected run time, over which the cost of entering a mode is spread; absent = an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_s: Option<f64>,
}

/// `POST /v1/recommend`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecommendRequest {
    /// A hardware key; absent = this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// What is to run; its `format` and `batch` are what `freedom` chooses.
    pub workload: Workload,
    /// Inference engine whose kernels run.
    #[serde(default, deserialize_with = "absent::or_default")]
    #[schema(value_type = String)]
    pub engine: Engine,
    /// Optimization objective: `latency`, `throughput`, `energy` or `power`.
    #[serde(default, deserialize_with = "absent::or_default")]
    #[schema(value_type = String)]
    pub objective: Objective,
    /// Limits that the choice must keep.
    #[serde(default, deserialize_with = "absent::or_default")]
    pub constraints: Constraints,
    /// Degrees of freedom of the choice.
    #[serde(default, deserialize_with = "absent::or_default")]
    pub freedom: Freedom,
    /// End of the prediction interval that must meet the constraints: `pessimistic` or `expected`.
    #[serde(default, deserialize_with = "absent::or_default")]
    #[schema(value_type = String)]
    pub optimism: Optimism,
    /// Answer even where the inference engine does not run the format on this hardware: as if it had kernels as good as those
    /// for similar formats.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", deserialize_with = "absent::or_default")]
    pub hypothetical: bool,
}

/// `POST /v1/sweep`: the cross product of shapes or models, formats, power modes, threads, batches and
/// contexts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepRequest {
    /// A hardware key; absent = this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Operations, as `op` of a workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "absent::or_default")]
    #[schema(value_type = Vec<Object>)]
    pub ops: Vec<Op>,
    /// Models, each as in a workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "whole::list")]
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
    /// Context lengths: tokens already in the cache (models only); absent = 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contexts: Option<Vec<u64>>,
    /// Key/value cache format: a key of `GET /v1/formats` (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_format: Option<String>,
    /// `prefill`, `decode` or `serve` (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// Tokens of the images in every prompt, beside `prompt_tokens` (models only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_tokens: Option<u64>,
    /// Inference engine whose kernels run.
    #[serde(default, deserialize_with = "absent::or_default")]
    #[schema(value_type = String)]
    pub engine: Engine,
    /// Answer even where the inference engine does not run the format on this hardware: as if it had kernels as good as those
    /// for similar formats.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", deserialize_with = "absent::or_default")]
    pub hypothetical: bool,
}

/// `POST /v1/analyze`: a workload and how long it took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnalyzeRequest {
    /// A hardware key; absent = this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Absent = as it is now; other hardware: its fastest mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_point: Option<OperatingPointRequest>,
    /// Workload that ran: one operation or one model.
    pub workload: Workload,
    /// Inference engine whose kernels run.
    #[serde(default, deserialize_with = "absent::or_default")]
    #[schema(value_type = String)]
    pub engine: Engine,
    /// Measured time of one run (operation), or of one step, prompt or answer (model); give this or `tokens_per_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_s: Option<f64>,
    /// Measured rate over the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
}

/// `POST /v1/calibrate` (control socket).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CalibrateRequest {
    /// Extent of the measurements: `quick` (about two seconds) or `full`.
    #[serde(default, deserialize_with = "absent::or_default")]
    #[schema(value_type = String)]
    pub plan: PlanKind,
    /// Answer when it has finished rather than when it has started.
    #[serde(default, deserialize_with = "absent::or_default")]
    pub wait: bool,
    /// Run even though the load or temperature gate advises against it.
    #[serde(default, deserialize_with = "absent::or_default")]
    pub force: bool,
}

/// `POST /v1/measure` (control socket): run operations, or a step of models, now. Give `op` with `formats`, a `workload`,
/// or `workloads`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasureRequest {
    /// One operation, measured in each of `formats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub op: Option<Op>,
    /// Formats for `op`; default `["fp32"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "absent::or_default")]
    pub formats: Vec<String>,
    /// One operation or model, with its `format`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Several operations or models, each with its `format`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "absent::or_default")]
    pub workloads: Vec<Workload>,
    /// Measure power and energy too: each operation runs again and again until the power meter has seen it, which takes a
    /// second of each, or some with a slow meter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", deserialize_with = "absent::or_default")]
    pub power: bool,
}
