//! Models on the wire: what the registry knows, and what a file holds.

use serde::{Deserialize, Serialize};

/// `GET /v1/models`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ModelsAnswer {
    /// Every model that is known by its key.
    pub models: Vec<ModelEntry>,
}

/// One line of the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ModelEntry {
    /// What requests name it by.
    pub key: String,
    /// Name that the model gives itself.
    pub name: String,
    /// Weights by its matrices.
    pub parameters: u64,
    /// Weights that one token passes.
    pub active_parameters: f64,
    /// Number of layers.
    pub layers: u64,
    /// Bytes that a token adds to a 16-bit cache.
    pub kv_bytes_per_token: f64,
    /// Longest context it was made for.
    pub context_tokens: Option<u64>,
    /// `config`, `recalled` or `guess`: how sure the figures are.
    #[cfg_attr(test, schema(value_type = crate::schema::Confidence))]
    pub confidence: String,
}

/// `GET /v1/models/{key}`, and `POST /v1/models/inspect` or `rooflinectl models inspect` of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ModelAnswer {
    /// Its key in the registry; `null` for a file.
    pub key: Option<String>,
    /// Name that the model gives itself.
    pub name: String,
    /// The family that its file names.
    pub family: String,
    /// What it is for: `generate` text, or `embed` (and rank) documents, without a decode, a cache or a head.
    #[cfg_attr(test, schema(value_type = crate::schema::Task))]
    pub task: String,
    /// What it is quantised to, by its label or as asked.
    pub format: Option<String>,
    /// Weights, towers and drafts included.
    pub parameters: u64,
    /// Weights that one token passes.
    pub active_parameters: f64,
    /// Weights by its model card.
    pub published_parameters: Option<u64>,
    /// Bytes of all weights.
    pub bytes: f64,
    /// Bytes of weights that a step of one token reads.
    pub bytes_per_token: f64,
    /// Bits of a weight that is read, with its scales.
    pub bits_per_weight: Option<f64>,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Rows of the embedding table.
    pub vocab: u64,
    /// Longest context it was made for.
    pub context_tokens: Option<u64>,
    /// The embedding table is the head.
    pub tied_embeddings: bool,
    /// Experts of a layer; `null` for a dense model.
    pub experts: Option<u64>,
    /// Experts that a token passes.
    pub active_experts: Option<u64>,
    /// Layers by kind.
    pub layers: LayersAnswer,
    /// How the cache is stored.
    pub kv_format: String,
    /// Bytes that a token adds to the cache while no window is full.
    pub kv_bytes_per_token: f64,
    /// The same once every window is full.
    pub kv_bytes_per_token_long: f64,
    /// Bytes of the states of one sequence in layers without a cache.
    pub state_bytes: f64,
    /// Totals by use.
    pub classes: Vec<ClassAnswer>,
    /// What a token reads by storage, most first.
    pub blocks: Vec<BlockAnswer>,
    /// The file by which runs of the model are filed; absent for a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The model of a file in full. It makes this object a `model` of requests; send it back as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>))]
    pub definition: Option<serde_json::Value>,
    /// Files that were read.
    pub files: Vec<String>,
    /// Where the figures come from.
    pub source: Option<String>,
    /// `config`, `recalled` or `guess`; `null` for a file, which is exact.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Confidence>))]
    pub confidence: Option<String>,
    /// What to know before relying on them.
    pub warnings: Vec<String>,
}

/// Number of layers by kind of attention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct LayersAnswer {
    /// Number of all layers.
    pub total: u64,
    /// Attention over the whole context.
    pub full_attention: u64,
    /// Attention over a sliding window.
    pub sliding_attention: u64,
    /// The window of those.
    pub window_tokens: Option<u64>,
    /// Latent attention.
    pub latent_attention: u64,
    /// A state of fixed size.
    pub linear: u64,
}

/// Totals of one use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ClassAnswer {
    /// Use of the weights, such as attention or the embedding.
    #[cfg_attr(test, schema(value_type = crate::schema::WeightClass))]
    pub class: String,
    /// Number of weights.
    pub parameters: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Bytes that a token reads.
    pub bytes_per_token: f64,
    /// Bits of a weight with its scales.
    pub bits_per_weight: Option<f64>,
}

/// What a token reads in one storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct BlockAnswer {
    /// Storage of these weights: a block type of the file, or a plain type.
    pub block: String,
    /// Number of weights.
    pub weights: f64,
    /// Bytes that they take.
    pub bytes: f64,
}
