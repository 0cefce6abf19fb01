//! A model as the header of its file describes it, in a form that one program writes and another reads.
//!
//! Layers of one kind are written once and referred to by number, so that a model takes a few kilobytes. A definition that
//! comes from elsewhere is held to everything that a reader of files makes sure of: products and sums stay within 64 bits, and nothing is longer than a file's would be.

use serde::{Deserialize, Serialize};

use super::architecture::{Architecture, Departures, Layer, MAX_LAYERS};
use super::import::{ImportError, MAX_GROUPS, short};
use super::model::{Drafting, Model, WeightGroup};
use rooflined_core::precision::WeightFormat;

/// Longest name, family or format.
const MAX_TEXT: usize = 512;
/// Most remarks, and their bytes together: every answer repeats them, each row of a sweep too.
const MAX_WARNINGS: usize = 8;
const MAX_WARNINGS_BYTES: usize = 8192;

/// A model in full: the `definition` of a model on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub name: String,
    /// The family that the file names: `llama`, `qwen3moe`.
    pub family: String,
    /// What the file says it was quantised to.
    #[serde(default)]
    pub label: Option<String>,
    /// Whether the weights are those of tensors, which are exact; `false` for a `config.json` alone.
    pub exact: bool,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Rows of the embedding table.
    pub vocab: u64,
    /// Feed-forwards have a gate beside their up projection.
    pub gated_mlp: bool,
    /// The embedding table serves as head.
    pub tied_embeddings: bool,
    /// Longest context the model was made for.
    #[serde(default)]
    pub context_tokens: Option<u64>,
    /// What its checkpoint was made to keep the cache in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_format: Option<WeightFormat>,
    /// It scores documents, where it generates no text.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ranks: bool,
    /// The different layers.
    pub kinds: Vec<Layer>,
    /// The layers in order, each by its place in `kinds`.
    pub layers: Vec<u32>,
    /// Weights by use, storage and shape.
    pub weights: Vec<WeightGroup>,
    /// Weights of a head that predicts further tokens, where they are not among `weights`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub head: Vec<WeightGroup>,
    /// What a reader should know before relying on the figures.
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl Definition {
    /// The definition of a model that was read from a file.
    #[must_use]
    pub fn of(model: &Model, exact: bool) -> Self {
        let Architecture {
            hidden,
            vocab,
            layers: all,
            gated_mlp,
            tied_embeddings,
            context_tokens,
            departures,
        } = &model.architecture;
        let mut kinds: Vec<Layer> = Vec::new();
        let mut layers = Vec::with_capacity(all.len());
        for layer in all {
            let place = kinds.iter().position(|kind| kind == layer).unwrap_or_else(|| {
                kinds.push(*layer);
                kinds.len() - 1
            });
            // There are at most MAX_LAYERS of them.
            layers.push(u32::try_from(place).unwrap_or(u32::MAX));
        }
        let cut = |text: &str, most: usize| text.chars().take(most / 4).collect::<String>();
        Self {
            name: cut(&model.name, MAX_TEXT),
            family: cut(&model.family, MAX_TEXT),
            label: model.label.as_deref().map(|label| cut(label, MAX_TEXT)),
            exact,
            hidden: *hidden,
            vocab: *vocab,
            gated_mlp: *gated_mlp,
            tied_embeddings: *tied_embeddings,
            context_tokens: *context_tokens,
            kv_format: departures.kv_format,
            ranks: departures.ranks,
            kinds,
            layers,
            weights: model.weights.clone(),
            head: model.drafting.head.clone(),
            warnings: model
                .warnings
                .iter()
                .take(MAX_WARNINGS)
                .map(|text| cut(text, MAX_WARNINGS_BYTES / MAX_WARNINGS))
                .collect(),
        }
    }

    /// The model.
    ///
    /// # Errors
    /// The first thing that no file could have said.
    pub fn model(self) -> Result<Model, ImportError> {
        let wrong = |field: &str, reason: String| ImportError::Field { field: field.to_owned(), reason };
        let texts = [("name", &self.name), ("family", &self.family)];
        for (field, text) in texts.into_iter().chain(self.label.as_ref().map(|label| ("label", label))) {
            if text.len() > MAX_TEXT {
                return Err(wrong(field, format!("has {} bytes; at most {MAX_TEXT} are read", text.len())));
            }
        }
        let bytes: usize = self.warnings.iter().map(String::len).sum();
        if self.warnings.len() > MAX_WARNINGS || bytes > MAX_WARNINGS_BYTES {
            let reason =
                format!("are more than {MAX_WARNINGS}, or longer than {MAX_WARNINGS_BYTES} bytes together");
            return Err(wrong("warnings", reason));
        }
        for (what, count, limit) in [
            ("layers", self.layers.len(), MAX_LAYERS),
            ("kinds of layer", self.kinds.len(), MAX_LAYERS),
            ("distinct shapes", self.weights.len(), MAX_GROUPS),
            ("distinct shapes of the head", self.head.len(), MAX_GROUPS),
        ] {
            if count > limit {
                return Err(ImportError::TooMany { what, count: count as u64, limit: limit as u64 });
            }
        }
        let kind = |number: &u32| {
            let found = usize::try_from(*number).ok().and_then(|place| self.kinds.get(place)).copied();
            found.ok_or_else(|| {
                wrong("layers", format!("has {number}, and there are {} kinds", self.kinds.len()))
            })
        };
        let layers = self.layers.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
        let architecture = Architecture {
            hidden: self.hidden,
            vocab: self.vocab,
            layers,
            gated_mlp: self.gated_mlp,
            tied_embeddings: self.tied_embeddings,
            context_tokens: self.context_tokens,
            departures: Departures { ranks: self.ranks, kv_format: self.kv_format, ..Departures::default() },
        };
        architecture.check()?;
        if self.weights.is_empty() {
            return Err(wrong("weights", "are none: there are no weights to read".to_owned()));
        }
        check("weights", &self.weights)?;
        check("head", &self.head)?;
        Ok(Model {
            name: self.name,
            family: self.family,
            architecture,
            weights: self.weights,
            label: self.label,
            warnings: self.warnings,
            drafting: Drafting { head: self.head, by: None },
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Weights whose products and sums are numbers, as many as their shapes hold, in bytes that these can take.
fn check(field: &str, weights: &[WeightGroup]) -> Result<(), ImportError> {
    let mut sums = (0_u64, 0_u64, 0_u64);
    for (index, group) in weights.iter().enumerate() {
        let elements =
            group.rows.checked_mul(group.columns).and_then(|product| product.checked_mul(group.matrices));
        let sum = || {
            if group.parameters != elements? || !fits(group) {
                return None;
            }
            Some((
                sums.0.checked_add(elements?)?,
                sums.1.checked_add(group.parameters)?,
                sums.2.checked_add(group.bytes)?,
            ))
        };
        sums = sum().ok_or_else(|| ImportError::Field {
            field: format!("{field}[{index}]"),
            reason: format!(
                "is impossible: {} matrices of {}x{} with {} weights in {} bytes",
                group.matrices,
                group.rows,
                group.columns,
                group.parameters,
                short(&group.bytes.to_string())
            ),
        })?;
    }
    Ok(())
}

/// Whether the bytes are those of the weights: with all that a block holds at most, and a bit for each at least. Scales
/// that stand apart are groups without weights.
fn fits(group: &WeightGroup) -> bool {
    let most = group.block.size(group.rows, group.columns).and_then(|each| each.checked_mul(group.matrices));
    group.parameters == 0
        || (most.is_some_and(|most| group.bytes <= most) && group.bytes >= group.parameters.div_ceil(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipe;
    use crate::registry::models;

    fn definition(key: &str) -> Definition {
        let model = models().get(key).unwrap().model(Recipe::of(WeightFormat::Q4KM));
        Definition::of(&model, true)
    }

    #[test]
    fn every_known_model_survives_the_way_through_json_in_less_than_a_body() {
        for known in models().all() {
            for format in [WeightFormat::Fp16, WeightFormat::Q4KM, WeightFormat::Nvfp4] {
                let mut model = known.model(Recipe::of(format));
                // They say how weights were counted, and the definition has the weights themselves.
                model.architecture.departures = Departures::default();
                let json = serde_json::to_string(&Definition::of(&model, true)).unwrap();
                assert!(json.len() < 16 << 10, "{} takes {} bytes", known.key, json.len());
                let back: Definition = serde_json::from_str(&json).unwrap();
                assert_eq!(back.model().unwrap(), model, "{}", known.key);
            }
        }
    }

    #[test]
    fn what_a_model_is_for_and_keeps_its_cache_in_reaches_the_other_side() {
        let mut scores = models().get("llama-3.1-8b").unwrap().model(Recipe::of(WeightFormat::Fp16));
        scores.architecture.departures.ranks = true;
        scores.architecture.departures.kv_format = Some(WeightFormat::Fp8E4m3);
        let json = serde_json::to_string(&Definition::of(&scores, true)).unwrap();
        let back = serde_json::from_str::<Definition>(&json).unwrap().model().unwrap();
        assert_eq!(back, scores);
    }

    #[test]
    fn what_no_file_could_say_is_refused_by_name() {
        let good = definition("llama-3.1-8b");
        assert!(good.clone().model().is_ok());
        let refused = |alter: &dyn Fn(&mut Definition)| {
            let mut bad = good.clone();
            alter(&mut bad);
            bad.model().unwrap_err().to_string()
        };
        assert!(refused(&|bad| bad.layers[3] = 7).contains("layers has 7, and there are 1 kinds"));
        assert!(refused(&|bad| bad.layers.clear()).contains("layers is 0"));
        assert!(refused(&|bad| bad.layers = vec![0; MAX_LAYERS + 1]).contains("4097 layers"));
        assert!(refused(&|bad| bad.weights.clear()).contains("weights are none"));
        assert!(refused(&|bad| bad.weights[1].rows = u64::MAX).contains("weights[1] is impossible"));
        assert!(refused(&|bad| bad.weights[0].bytes = u64::MAX).contains("is impossible"));
        assert!(refused(&|bad| bad.weights[1].parameters += 1).contains("weights[1] is impossible"));
        assert!(refused(&|bad| bad.weights[1].bytes += 1).contains("weights[1] is impossible"));
        assert!(refused(&|bad| bad.weights[1].bytes = 1).contains("weights[1] is impossible"));
        assert!(refused(&|bad| bad.weights[0].matrices = 0).contains("weights[0] is impossible"));
        assert!(refused(&|bad| bad.name = "x".repeat(600)).contains("name has 600 bytes"));
        assert!(refused(&|bad| bad.hidden = 0).contains("hidden is 0"));
        assert!(refused(&|bad| bad.vocab = 1 << 40).contains("vocab is"));
        assert!(
            refused(&|bad| {
                if let crate::architecture::Mixer::Attention(attention) = &mut bad.kinds[0].mixer {
                    attention.kv_heads = 3;
                }
            })
            .contains("kv_heads is 3")
        );
    }

    #[test]
    fn a_use_or_storage_of_another_version_is_named() {
        let text = serde_json::to_string(&definition("tinyllama-1.1b")).unwrap();
        let error = serde_json::from_str::<Definition>(&text.replace("\"q6_k\"", "\"q7_k\"")).unwrap_err();
        assert!(error.to_string().contains("\"q7_k\" is not a storage of tensors"), "{error}");
    }
}
