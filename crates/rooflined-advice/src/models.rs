//! Models in the shape of the wire: what the registry knows, and what a file holds.

use crate::modelfile::ModelFile;
use rooflined_api::{BlockAnswer, ClassAnswer, LayersAnswer, ModelAnswer, ModelEntry, ModelsAnswer};
use rooflined_core::precision::WeightFormat;
use rooflined_models::allocation::Allocation;
use rooflined_models::architecture::Mixer;
use rooflined_models::class::Class;
use rooflined_models::model::Model;
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::{KnownModel, Models};
use rooflined_models::transformer::Task;

/// `GET /v1/models`.
#[must_use]
pub fn list(models: &Models) -> ModelsAnswer {
    ModelsAnswer { models: models.all().map(line).collect() }
}

fn line(known: &KnownModel) -> ModelEntry {
    let recipe = Recipe::of(WeightFormat::Bf16);
    let model = known.model(recipe);
    ModelEntry {
        key: known.key.clone(),
        name: known.name.clone(),
        parameters: model.parameters(),
        active_parameters: model.active_parameters(),
        layers: known.architecture.layers.len() as u64,
        kv_bytes_per_token: model.kv_bytes_per_token(WeightFormat::Fp16).get(),
        context_tokens: known.architecture.context_tokens,
        confidence: known.confidence.key().to_owned(),
    }
}

/// A model with its cache stored as `kv_format`.
#[must_use]
pub fn of(model: &Model, kv_format: WeightFormat) -> ModelAnswer {
    let read = model.bytes_per_token().get();
    let passed = model.active_parameters();
    let routing = model.routing();
    let architecture = &model.architecture;
    ModelAnswer {
        key: None,
        name: model.name.clone(),
        family: model.family.clone(),
        task: Task::of(model).key().to_owned(),
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
        state_bytes: model.state_bytes(Allocation::Exact).get(),
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
        path: None,
        definition: None,
        files: Vec::new(),
        source: None,
        confidence: None,
        warnings: model.warnings.clone(),
    }
}

/// A model in a file that is called `path`, with the definition by which requests may name it.
#[must_use]
pub fn of_file(file: &ModelFile, path: String, kv_format: WeightFormat) -> ModelAnswer {
    ModelAnswer {
        path: Some(path),
        definition: serde_json::to_value(file.definition()).ok(),
        files: file.files.iter().map(|file| file.display().to_string()).collect(),
        ..of(&file.model, kv_format)
    }
}

/// How a model of the registry is stored where nobody names a format: as it is published, which is in 16 bits where nothing else is
/// known.
#[must_use]
pub fn published_recipe(known: &KnownModel) -> Recipe {
    Recipe::of(known.published_format.unwrap_or(WeightFormat::Bf16))
}

/// A model of the registry, which says where its figures come from.
#[must_use]
pub fn of_known(known: &KnownModel, model: &Model, kv_format: WeightFormat) -> ModelAnswer {
    ModelAnswer {
        key: Some(known.key.clone()),
        published_parameters: known.published_parameters,
        source: Some(known.source.clone()),
        confidence: Some(known.confidence.key().to_owned()),
        ..of(model, kv_format)
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
    // More tokens than any window has.
    const MANY: u64 = 1 << 30;
    let grown = |mixer: Mixer| mixer.cached_elements(2 * MANY) - mixer.cached_elements(MANY);
    let elements: f64 = model.architecture.layers.iter().map(|layer| grown(layer.mixer)).sum();
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    let each = elements / MANY as f64;
    format.bytes(each).get()
}
