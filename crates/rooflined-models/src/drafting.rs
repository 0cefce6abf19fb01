//! What drafts tokens for a model: a smaller model, or a head of its own that predicts further tokens.

use std::sync::Arc;

use super::architecture::{Architecture, FeedForward, Mixer};
use super::class::Class;
use super::model::{Drafter, Drafting, Model, WeightGroup};
use super::recipe::Recipe;
use rooflined_core::units::Bytes;

impl Model {
    /// Whether it is known to have a head that predicts further tokens.
    #[must_use]
    pub fn has_own_head(&self) -> bool {
        !self.drafting.head.is_empty() || self.weights.iter().any(|group| group.class == Class::Draft)
    }

    /// The model with `draft` to draft for it.
    #[must_use]
    pub fn drafted_by(&self, draft: &Self) -> Self {
        let by = Drafter { model: draft.clone(), loaded: draft.bytes() };
        let drafting = Drafting { by: Some(Arc::new(by)), ..self.drafting.clone() };
        Self { drafting, ..self.clone() }
    }

    /// The model with its own head to draft for it; `None` where it is not known to have one. The head is a layer like the
    /// last one with attention, behind a product that joins a token to what the model made of those before, and it shares the
    /// table that gives the logits.
    #[must_use]
    pub fn drafted_by_own_head(&self) -> Option<Self> {
        let mut weights = self.weights.clone();
        if !weights.iter().any(|group| group.class == Class::Draft) {
            weights
                .extend(self.drafting.head.iter().map(|group| WeightGroup { class: Class::Draft, ..*group }));
        }
        let experts = self.routing().map(|routing| routing.experts);
        let class = |group: &WeightGroup| match experts {
            Some(experts) if experts > 1 && group.matrices >= experts => Class::Expert,
            _ => Class::Mlp,
        };
        let used = weights.iter().filter_map(|group| match group.class {
            Class::Draft => Some(WeightGroup { class: class(group), ..*group }),
            Class::Head => Some(*group),
            _ => None,
        });
        let used: Vec<WeightGroup> = used.collect();
        weights.iter().any(|group| group.class == Class::Draft).then_some(())?;
        let layers =
            [*self.architecture.layers.iter().rev().find(|layer| has_attention(layer.mixer))?].to_vec();
        let model = Self {
            architecture: Architecture { layers, ..self.architecture.clone() },
            weights: used,
            warnings: Vec::new(),
            drafting: Drafting::default(),
            ..self.clone()
        };
        let by = Some(Arc::new(Drafter { model, loaded: Bytes::ZERO }));
        Some(Self { weights, drafting: Drafting { by, ..self.drafting.clone() }, ..self.clone() })
    }
}

const fn has_attention(mixer: Mixer) -> bool {
    matches!(mixer, Mixer::Attention(_) | Mixer::Latent(_))
}

/// The weights of a head of `layers` layers, stored by `recipe`.
#[must_use]
pub fn head_weights(recipe: Recipe, architecture: &Architecture, layers: u64) -> Vec<WeightGroup> {
    let last = architecture
        .layers
        .iter()
        .rev()
        .find(|layer| has_attention(layer.mixer) && !matches!(layer.feed_forward, FeedForward::None));
    let Some(last) = last.filter(|_| layers > 0) else { return Vec::new() };
    let layers = vec![*last; usize::try_from(layers).unwrap_or(1).min(8)];
    let of = Architecture { layers, ..architecture.clone() };
    let mut groups = recipe.weights(&of);
    groups.retain(|group| !matches!(group.class, Class::Head | Class::Embedding));
    // The product that joins the two is as wide as both.
    let like = groups.iter().find(|group| matches!(group.class, Class::AttentionOut)).copied();
    let (rows, columns) = (architecture.hidden, architecture.hidden.saturating_mul(2));
    let joined = like.and_then(|like| {
        let (parameters, bytes) = (rows.checked_mul(columns)?, like.block.size(rows, columns)?);
        Some(WeightGroup { class: Class::Mlp, rows, columns, matrices: 1, parameters, bytes, ..like })
    });
    groups.extend(joined);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::models;
    use crate::transformer::{DraftKind, MemoryFootprint, Request, Run, Speculative};
    use rooflined_core::precision::WeightFormat;

    fn model(key: &str) -> Model {
        models().get(key).unwrap().model(Recipe::of(WeightFormat::Q4KM))
    }

    /// Query with gate, key, value, output, three matrices of the feed-forward, and the product that joins the two.
    #[test]
    fn a_head_is_a_layer_and_a_product() {
        let of = model("qwen3.5-27b");
        let parameters: u64 = of.drafting.head.iter().map(|group| group.parameters).sum();
        let products = 5120 * (2 * 24 * 256 + 2 * 4 * 256 + 24 * 256 + 3 * 17_408 + 2 * 5120);
        assert!((products..products + 50_000).contains(&parameters), "{parameters} {products}");
        let drafted = of.drafted_by_own_head().unwrap();
        assert_eq!(drafted.parameters(), of.parameters() + parameters);
        assert_eq!(drafted.drafted_by_own_head().unwrap().parameters(), drafted.parameters());
        assert!(model("llama-3.1-8b").drafted_by_own_head().is_none());
    }

    #[test]
    fn what_drafts_passes_a_token_at_a_time_and_takes_memory() {
        let (of, small) = (model("llama-3.1-8b"), model("llama-3.2-1b"));
        let speculative = Some(Speculative::with_acceptance(DraftKind::Draft, 3, 0.5));
        let request = Request { speculative, ..Request::decode(1000) };
        let drafted = of.drafted_by(&small);
        let run = Run::new(&drafted, &request).unwrap();
        let (verifies, drafts) = (run.decode.unwrap(), run.draft.unwrap().decode.unwrap());
        assert_eq!((verifies.tokens, drafts.tokens, drafts.repeats), (4, 1, 3 * verifies.repeats));
        let memory = |model: &Model, request: &Request| MemoryFootprint::new(model, request, Bytes::ZERO);
        let (with, without) = (memory(&drafted, &request), memory(&of, &Request::decode(1000)));
        assert_eq!(with.weights, without.weights + small.bytes());
        assert!(with.kv_cache > without.kv_cache);
        assert_eq!(memory(&drafted, &Request::decode(1000)), without);
        assert!((request.tokens_per_step() - (1.0 - 0.5_f64.powi(4)) / 0.5).abs() < 1e-12);
    }
}
