//! What is to run, and where it runs.

use serde::{Deserialize, Serialize};

use super::numbers;
use rooflined_core::names::Op;

/// One operation (`op` + `format`) or one model. A body has exactly one of the two.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// A bare operation: `{"kind":"gemv","n":4096,"k":4096}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Op>))]
    pub op: Option<Op>,
    /// A model: a key of `GET /v1/models`; the answer of `POST /v1/models/inspect`, which `rooflinectl models inspect FILE -o
    /// json` prints too; `{"path": FILE}` below a directory of `[models] dirs`, read for 30 s at most; or the fields of a
    /// Hugging Face `config.json`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "numbers::without_point")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::ModelRequest>))]
    pub model: Option<serde_json::Value>,
    /// Weight format: a key of `GET /v1/formats`. Default: a file's own; of a model known by a key what it is
    /// published in, else what the engine's files usually hold: `q4_k_m` with llama.cpp, `int4_g32` with MLC and ONNX Runtime, `fp16`
    /// with the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Key/value cache format: a key of `GET /v1/formats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_format: Option<String>,
    /// `generate`, `embed` or `rerank` (models only). Documents that are embedded or ranked are prompts of `prompt_tokens`, of which
    /// `batch` run together. Default: `embed` for an encoder, otherwise `generate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Task>))]
    pub task: Option<String>,
    /// `prefill`, `decode` or `serve` (models only). Default `decode`; documents have only a `prefill`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Phase>))]
    pub phase: Option<String>,
    /// Batch size: sequences (models) or columns (operations). Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// Context length (models only): tokens in the cache, which a step of a decode fills and a prompt comes after. Default: every
    /// sequence has room for 4096 tokens, or for as many as the model was made for, if that is fewer; a decode fills them, and a
    /// prompt begins an empty cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Tokens that every sequence has room for, prompt and answer included (models only): more than it fills, or an error. Default: as
    /// `context_tokens` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<u64>,
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
    /// The part of the model that stays in the memory of the CPU, on a machine with a card (models only, llama.cpp). Absent: nothing; `recommend`
    /// keeps the experts of as few layers there as leave room, where a mixture does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offload: Option<Offload>,
    /// Tokens of the images in every prompt, in addition to `prompt_tokens` (models only). Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_tokens: Option<u64>,
    /// Worker threads, where the CPU is the accelerator. Default: one for every physical core, as engines do; without an
    /// engine, as many as were calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
}

/// What stays in the memory of the CPU, which computes it. One of the two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Offload {
    /// Layers, from the first, whose experts stay there: llama.cpp's `--n-cpu-moe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_moe_layers: Option<u64>,
    /// Layers on the card, the last ones, the output counted as one; the others stay there: llama.cpp's `-ngl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_layers: Option<u64>,
}

/// Tokens that are drafted ahead and verified together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Speculative {
    /// What drafts: `draft`, a smaller model; `mtp`, a head of the model itself; `ngram`, text that came before. Default: `draft`
    /// with a `draft_model`, else `mtp` where the model is known to have such a head, else `ngram`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::DraftKind>))]
    pub kind: Option<String>,
    /// The model that drafts, named as `model` is. It takes time and memory.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "numbers::without_point")]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::ModelRequest>))]
    pub draft_model: Option<serde_json::Value>,
    /// Weight format of the model that drafts. Default: that of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft_format: Option<String>,
    /// Tokens drafted for every sequence and step; 0 = none. Absent: `recommend` takes the best of 0 to 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft_tokens: Option<u64>,
    /// Chance that a drafted token is accepted where the one before it was, between 0 and 1; every step adds one token more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance_ratio: Option<f64>,
    /// Instead of `acceptance_ratio`: how many of `draft_tokens` are accepted on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_per_step: Option<f64>,
}

/// Operating point to predict for instead of the present one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OperatingPointRequest {
    /// A power mode by name; of a card or a GB10 also `lgc-MHZ` for a clock cap, of a card `pl-WATTS` for a power limit.
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
    /// Power limit of a card's board, or of a GB10: the clock comes down until the predicted power keeps to it (predict, recommend
    /// and sweep).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
}
