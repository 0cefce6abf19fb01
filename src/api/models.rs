//! Models on the wire: what the registry knows, and what a file holds.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::precision::WeightFormat;
use crate::workload::architecture::Mixer;
use crate::workload::class::Class;
use crate::workload::model::Model;
use crate::workload::registry::{KnownModel, Models};

/// `GET /v1/models`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelsAnswer {
    /// Every model that is known by its key.
    pub models: Vec<ModelEntry>,
}

/// One line of the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelEntry {
    /// What requests name it by.
    pub key: String,
    /// What it calls itself.
    pub name: String,
    /// Weights by its matrices.
    pub parameters: u64,
    /// Weights that one token passes.
    pub active_parameters: f64,
    /// Layers.
    pub layers: u64,
    /// Bytes that a token adds to a 16-bit cache.
    pub kv_bytes_per_token: f64,
    /// Longest context it was made for.
    pub context_tokens: Option<u64>,
    /// `config`, `recalled` or `guess`: how sure the figures are.
    pub confidence: String,
}

/// `GET /v1/models/{key}`, and what `rooflinectl models inspect` prints of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelAnswer {
    /// Its key in the registry; `null` for a file.
    pub key: Option<String>,
    /// What it calls itself.
    pub name: String,
    /// The family that its file names.
    pub family: String,
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
    /// Files that were read.
    pub files: Vec<String>,
    /// Where the figures come from.
    pub source: Option<String>,
    /// `config`, `recalled` or `guess`; `null` for a file, which is exact.
    pub confidence: Option<String>,
    /// What to know before relying on them.
    pub warnings: Vec<String>,
}

/// Layers by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LayersAnswer {
    /// All.
    pub total: u64,
    /// Attention over the whole context.
    pub full_attention: u64,
    /// Attention over a window.
    pub sliding_attention: u64,
    /// The window of those.
    pub window_tokens: Option<u64>,
    /// Latent attention.
    pub latent_attention: u64,
    /// A state of fixed size.
    pub linear: u64,
}

/// Totals of one use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClassAnswer {
    /// Which.
    pub class: String,
    /// Weights.
    pub parameters: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes that a token reads.
    pub bytes_per_token: f64,
    /// Bits of a weight with its scales.
    pub bits_per_weight: Option<f64>,
}

/// What a token reads in one storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BlockAnswer {
    /// Which.
    pub block: String,
    /// Weights.
    pub weights: f64,
    /// Bytes.
    pub bytes: f64,
}

impl From<&Models> for ModelsAnswer {
    fn from(models: &Models) -> Self {
        Self { models: models.all().map(ModelEntry::from).collect() }
    }
}

impl From<&KnownModel> for ModelEntry {
    fn from(known: &KnownModel) -> Self {
        let recipe = crate::workload::recipe::Recipe::of(WeightFormat::Bf16);
        let model = known.model(recipe);
        Self {
            key: known.key.clone(),
            name: known.name.clone(),
            parameters: model.parameters(),
            active_parameters: model.active_parameters(),
            layers: known.architecture.layers.len() as u64,
            kv_bytes_per_token: model.kv_bytes_per_token(WeightFormat::Fp16).get(),
            context_tokens: known.architecture.context_tokens,
            confidence: confidence(known),
        }
    }
}

fn confidence(known: &KnownModel) -> String {
    use crate::workload::registry::Confidence;
    match known.confidence {
        Confidence::Config => "config",
        Confidence::Recalled => "recalled",
        Confidence::Guess => "guess",
    }
    .to_owned()
}

impl ModelAnswer {
    /// A model with its cache stored as `kv_format`.
    #[must_use]
    pub fn new(model: &Model, kv_format: WeightFormat) -> Self {
        let read = model.bytes_per_token().get();
        let passed = model.active_parameters();
        let routing = model.routing();
        let architecture = &model.architecture;
        Self {
            key: None,
            name: model.name.clone(),
            family: model.family.clone(),
            format: model.label.clone(),
            parameters: model.parameters(),
            active_parameters: passed,
            published_parameters: None,
            bytes: model.bytes().get(),
            bytes_per_token: read,
            bits_per_weight: (passed > 0.0).then(|| read * 8.0 / passed),
            hidden: architecture.hidden,
            vocab: architecture.vocab,
            context_tokens: architecture.context_tokens,
            tied_embeddings: architecture.tied_embeddings,
            experts: routing.map(|routing| routing.experts),
            active_experts: routing.map(|routing| routing.active),
            layers: layers(model),
            kv_format: kv_format.key().to_owned(),
            kv_bytes_per_token: model.kv_bytes_per_token(kv_format).get(),
            kv_bytes_per_token_long: long_kv(model, kv_format),
            state_bytes: model.state_bytes().get(),
            classes: model
                .by_class()
                .into_iter()
                .map(|total| ClassAnswer {
                    class: Class::key(total.class).to_owned(),
                    parameters: total.parameters,
                    bytes: total.bytes,
                    bytes_per_token: total.bytes_per_token,
                    bits_per_weight: total.bits_per_weight,
                })
                .collect(),
            blocks: model
                .by_block()
                .into_iter()
                .filter(|(_, _, bytes)| bytes.get() > 0.0)
                .map(|(block, weights, bytes)| BlockAnswer {
                    block: block.key().to_owned(),
                    weights,
                    bytes: bytes.get(),
                })
                .collect(),
            files: Vec::new(),
            source: None,
            confidence: None,
            warnings: model.warnings.clone(),
        }
    }

    /// A model of the registry, which says where its figures come from.
    #[must_use]
    pub fn of_known(known: &KnownModel, model: &Model, kv_format: WeightFormat) -> Self {
        Self {
            key: Some(known.key.clone()),
            published_parameters: known.published_parameters,
            source: Some(known.source.clone()),
            confidence: Some(confidence(known)),
            ..Self::new(model, kv_format)
        }
    }
}

fn layers(model: &Model) -> LayersAnswer {
    let mut layers =
        LayersAnswer { total: model.architecture.layers.len() as u64, ..LayersAnswer::default() };
    for layer in &model.architecture.layers {
        match layer.mixer {
            Mixer::Attention(attention) => match attention.window {
                None => layers.full_attention += 1,
                Some(window) => {
                    layers.sliding_attention += 1;
                    layers.window_tokens = Some(window);
                }
            },
            Mixer::Latent(_) => layers.latent_attention += 1,
            Mixer::Linear(_) => layers.linear += 1,
            Mixer::None => {}
        }
    }
    layers
}

/// What the next token adds where every window is full.
fn long_kv(model: &Model, format: WeightFormat) -> f64 {
    let layers = model.architecture.layers.iter().map(|layer| layer.mixer);
    let growing = layers.filter(|mixer| !matches!(mixer, Mixer::Attention(a) if a.window.is_some()));
    format.bytes(growing.map(|mixer| mixer.cached_elements(1)).sum()).get()
}
