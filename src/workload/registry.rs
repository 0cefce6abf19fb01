//! Models by key, for when there is no file to read: `config/models/*.toml`, built into the program.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::architecture::{Architecture, Description, Experts, InvalidModel, Latent, LayerKind, Linear};
use super::model::Model;
use super::recipe::Recipe;
use crate::precision::nearest;

/// The files of the registry with their names.
const FILES: &[(&str, &str)] = &[
    ("deepseek", include_str!("../../config/models/deepseek.toml")),
    ("falcon", include_str!("../../config/models/falcon.toml")),
    ("gemma", include_str!("../../config/models/gemma.toml")),
    ("gpt-oss", include_str!("../../config/models/gpt-oss.toml")),
    ("granite", include_str!("../../config/models/granite.toml")),
    ("lfm", include_str!("../../config/models/lfm.toml")),
    ("llama", include_str!("../../config/models/llama.toml")),
    ("mistral", include_str!("../../config/models/mistral.toml")),
    ("nemotron", include_str!("../../config/models/nemotron.toml")),
    ("olmo", include_str!("../../config/models/olmo.toml")),
    ("phi", include_str!("../../config/models/phi.toml")),
    ("qwen", include_str!("../../config/models/qwen.toml")),
    ("smollm", include_str!("../../config/models/smollm.toml")),
    ("yi", include_str!("../../config/models/yi.toml")),
];

/// How sure the figures of an entry are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Read from a configuration file.
    Config,
    /// Recalled, and confirmed by the published number of weights.
    Recalled,
    /// Assumed.
    Guess,
}

/// Heads of layers without a window where they differ from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Global {
    kv_heads: u64,
    head_dim: u64,
    #[serde(default)]
    shared_kv: bool,
}

const fn yes() -> bool {
    true
}

/// One table of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    layers: usize,
    hidden: u64,
    vocab: u64,
    #[serde(default)]
    heads: u64,
    #[serde(default)]
    kv_heads: u64,
    head_dim: Option<u64>,
    #[serde(default)]
    intermediate: u64,
    #[serde(default = "yes")]
    gated_mlp: bool,
    tied_embeddings: bool,
    pattern: Option<String>,
    #[serde(default)]
    separate_blocks: bool,
    window: Option<u64>,
    global: Option<Global>,
    #[serde(default)]
    output_gate: bool,
    latent: Option<Latent>,
    linear: Option<Linear>,
    experts: Option<Experts>,
    context_tokens: Option<u64>,
    published_parameters: Option<u64>,
    source: String,
    confidence: Confidence,
}

/// A model that is known by its key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KnownModel {
    /// The key.
    pub key: String,
    /// What the model calls itself.
    pub name: String,
    /// The file that it stands in.
    pub family: String,
    /// Its layers.
    pub architecture: Architecture,
    /// Weights by its model card; `None` where nobody published them.
    pub published_parameters: Option<u64>,
    /// Where the figures come from.
    pub source: String,
    /// How sure they are.
    pub confidence: Confidence,
}

impl KnownModel {
    /// The model quantised by `recipe`.
    #[must_use]
    pub fn model(&self, recipe: Recipe) -> Model {
        let guess = (self.confidence == Confidence::Guess).then(|| format!("{} is a guess", self.name));
        Model {
            name: self.name.clone(),
            family: self.family.clone(),
            weights: recipe.weights(&self.architecture),
            architecture: self.architecture.clone(),
            label: Some(recipe.key().to_owned()),
            warnings: guess.into_iter().collect(),
        }
    }
}

/// A registry file that cannot be used.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// Not TOML, or a field of a wrong name or type.
    #[error("{file}: {error}")]
    Syntax {
        /// Name of the file.
        file: String,
        /// What is wrong, with its place.
        error: Box<toml::de::Error>,
    },
    /// A letter of a pattern that is no kind of layer.
    #[error("{key}: pattern holds {letter:?}; it may hold F, S, L and X")]
    Pattern {
        /// The model.
        key: String,
        /// The letter.
        letter: char,
    },
    /// An architecture that cannot exist.
    #[error("{key}: {error}")]
    Model {
        /// The model.
        key: String,
        /// Why.
        #[source]
        error: InvalidModel,
    },
}

/// A key that no model has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown model {key:?}; did you mean {nearest:?}?")]
pub struct UnknownModel {
    /// What was given.
    pub key: String,
    /// The known key that is spelled most alike.
    pub nearest: String,
}

/// Models by key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Models {
    entries: BTreeMap<String, KnownModel>,
}

impl Models {
    /// Adds the models of one file; a key that is known already is replaced.
    ///
    /// # Errors
    /// Names what is wrong and where. Nothing has been added then.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), RegistryError> {
        let tables: BTreeMap<String, Entry> = toml::from_str(text)
            .map_err(|error| RegistryError::Syntax { file: file.to_owned(), error: Box::new(error) })?;
        let known = tables
            .into_iter()
            .map(|(key, entry)| entry.known(&key, file).map(|known| (key.to_ascii_lowercase(), known)))
            .collect::<Result<Vec<_>, _>>()?;
        self.entries.extend(known);
        Ok(())
    }

    /// The model with this key, in whatever case.
    ///
    /// # Errors
    /// Suggests the nearest key.
    pub fn get(&self, key: &str) -> Result<&KnownModel, UnknownModel> {
        let wanted = key.to_ascii_lowercase();
        self.entries.get(&wanted).ok_or_else(|| UnknownModel {
            key: key.chars().take(80).collect(),
            nearest: nearest(&wanted, self.keys()).to_owned(),
        })
    }

    /// Every key in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Every model in the order of the keys.
    pub fn all(&self) -> impl Iterator<Item = &KnownModel> {
        self.entries.values()
    }
}

/// The models that are built in. A file that does not parse would be missing; a test holds every file to it.
#[must_use]
pub fn models() -> &'static Models {
    static MODELS: LazyLock<Models> = LazyLock::new(|| {
        let mut models = Models::default();
        for (file, text) in FILES {
            let _ = models.add(file, text);
        }
        models
    });
    &MODELS
}

impl Entry {
    fn known(self, key: &str, family: &str) -> Result<KnownModel, RegistryError> {
        let kinds = pattern(self.pattern.as_deref().unwrap_or("F"), self.layers)
            .map_err(|letter| RegistryError::Pattern { key: key.to_owned(), letter })?;
        let description = Description {
            hidden: self.hidden,
            vocab: self.vocab,
            kinds,
            separate_blocks: self.separate_blocks,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            window: self.window,
            global: self.global.map(|global| (global.kv_heads, global.head_dim)),
            global_shared_kv: self.global.is_some_and(|global| global.shared_kv),
            output_gate: self.output_gate,
            intermediate: self.intermediate,
            gated_mlp: self.gated_mlp,
            experts: self.experts,
            latent: self.latent,
            linear: self.linear,
            tied_embeddings: self.tied_embeddings,
            context_tokens: self.context_tokens,
            ..Description::default()
        };
        let architecture =
            description.build().map_err(|error| RegistryError::Model { key: key.to_owned(), error })?;
        Ok(KnownModel {
            key: key.to_ascii_lowercase(),
            name: self.name,
            family: family.to_owned(),
            architecture,
            published_parameters: self.published_parameters,
            source: self.source,
            confidence: self.confidence,
        })
    }
}

/// The kinds of `layers` layers from a pattern that repeats.
fn pattern(letters: &str, layers: usize) -> Result<Vec<LayerKind>, char> {
    let kind = |letter| match letter {
        'F' => Ok(LayerKind::Full),
        'S' => Ok(LayerKind::Sliding),
        'L' => Ok(LayerKind::Linear),
        'X' => Ok(LayerKind::FeedForward),
        other => Err(other),
    };
    let kinds = letters.chars().map(kind).collect::<Result<Vec<_>, _>>()?;
    Ok(kinds.into_iter().cycle().take(layers).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precision::WeightFormat;

    #[test]
    fn every_file_of_the_registry_parses() {
        let mut all = Models::default();
        for (file, text) in FILES {
            all.add(file, text).unwrap();
        }
        assert_eq!(&all, models());
        assert!(all.entries.len() >= 70, "{}", all.entries.len());
        for (file, _) in FILES {
            assert!(all.all().any(|model| model.family == *file), "{file} holds no model of its own");
        }
    }

    #[test]
    fn the_matrices_sum_to_the_published_number_of_weights() {
        let mut worst = (0.0_f64, "");
        let mut checked = 0;
        for model in models().all() {
            let Some(published) = model.published_parameters else { continue };
            let error = model.architecture.parameters() as f64 / published as f64 - 1.0;
            println!("{:28} {:>16} {:+.3} %", model.key, published, error * 100.0);
            assert!(error.abs() <= 0.005, "{}: {error:+.4}", model.key);
            if error.abs() > worst.0.abs() {
                worst = (error, &model.key);
            }
            checked += 1;
        }
        println!("{checked} models, worst {} {:+.3} %", worst.1, worst.0 * 100.0);
        assert!(checked >= 68);
    }

    /// Sizes in GiB as published beside the files, and what the recipe makes of the architecture.
    #[test]
    fn recipes_give_the_published_sizes_of_files() {
        let published = [
            ("llama-3-8b", "q4_k_m", 4.58),
            ("llama-3-8b", "iq4_xs", 4.13),
            ("llama-3-8b", "fp16", 14.96),
            ("llama-3-70b", "q2_k", 24.56),
            ("llama-3-70b", "iq4_xs", 35.30),
            ("llama-3-70b", "iq4_nl", 37.30),
            ("llama-3-70b", "q4_k_s", 37.58),
            ("llama-3-70b", "q4_k_m", 39.60),
            ("llama-3-70b", "q5_k_m", 46.52),
            ("llama-3-70b", "q6_k", 53.91),
            ("llama-3-70b", "q8_0", 69.83),
            ("gpt-oss-20b", "mxfp4_moe", 11.27),
            ("gpt-oss-120b", "mxfp4_moe", 59.02),
            ("qwen3-30b-a3b", "q8_0", 30.25),
            ("qwen2.5-7b", "q8_0", 7.54),
            ("gemma-3-1b", "q4_k_m", 0.751),
            ("lfm2.5-1.2b", "q4_k_m", 0.682),
            ("qwen3-4b", "q1_0", 0.527),
            ("qwen3-4b", "q2_0", 0.996),
        ];
        let size = |key: &str, recipe: &str| {
            let model = models().get(key).unwrap().model(recipe.parse().unwrap());
            model.bytes().get() / (1u64 << 30) as f64
        };
        let mut worst = (0.0_f64, "", "");
        for (key, recipe, gib) in published {
            let error = size(key, recipe) / gib - 1.0;
            println!(
                "{key:16} {recipe:10} {gib:8.3} GiB, computed {:8.3}, {:+.2} %",
                size(key, recipe),
                error * 100.0
            );
            assert!(error.abs() <= 0.0125, "{key} {recipe}: {error:+.4}");
            if error.abs() > worst.0.abs() {
                worst = (error, key, recipe);
            }
        }
        println!("worst {} {} {:+.2} %", worst.1, worst.2, worst.0 * 100.0);
    }

    /// Published files that the recipe misses, and why: their writers did something else.
    #[test]
    fn files_that_are_larger_than_their_recipe_have_a_cause() {
        let table = |known: &KnownModel| known.architecture.vocab as f64 * known.architecture.hidden as f64;
        // Qwen2.5-0.5B's own file stores the tied table twice: some 20 % more, of which nothing is read.
        let known = models().get("qwen2.5-0.5b").unwrap();
        let recipe = Recipe::of(WeightFormat::Q4KM);
        let tied = known.model(recipe);
        let architecture = Architecture { tied_embeddings: false, ..known.architecture.clone() };
        let twice = Model { weights: recipe.weights(&architecture), architecture, ..tied.clone() };
        let ratio = twice.bytes() / tied.bytes();
        assert!((1.18..1.26).contains(&ratio), "{ratio}");
        assert_eq!(twice.bytes_per_token(), tied.bytes_per_token());
        // Gemma-3-4B trained for Q4_0 keeps its table at Q8_0 instead of Q6_K: 6.6 % more.
        let known = models().get("gemma-3-4b").unwrap();
        let more =
            table(known) * (8.5 - 6.5625) / 8.0 / known.model(Recipe::of(WeightFormat::Q4_0)).bytes().get();
        assert!((more - 0.066).abs() < 0.006, "{more}");
    }

    #[test]
    fn rows_that_are_no_whole_blocks_fall_back() {
        // 576 columns are no multiple of 256: nearly 6.1 bits instead of 4.8.
        let model = models().get("SmolLM2-135M").unwrap().model(Recipe::of(WeightFormat::Q4KM));
        let bits = model.bytes().get() * 8.0 / model.parameters() as f64;
        assert!((5.9..6.3).contains(&bits), "{bits}");
        let model = models().get("gemma-3-1b").unwrap().model(Recipe::of(WeightFormat::Q4KM));
        let bits = model.bytes().get() * 8.0 / model.parameters() as f64;
        assert!((6.2..6.6).contains(&bits), "{bits}");
    }

    #[test]
    fn checkpoints_keep_head_embedding_and_norms_at_16_bits() {
        use super::super::class::Class;
        let model = models().get("llama-3-8b").unwrap().model(Recipe::of(WeightFormat::AwqInt4));
        let bits = |class| {
            model.by_class().iter().find(|total| total.class == class).and_then(|total| total.bits_per_weight)
        };
        assert_eq!(bits(Class::Head), Some(16.0));
        assert_eq!(bits(Class::Norm), Some(16.0));
        assert_eq!(bits(Class::AttentionQ), Some(4.0 + 16.0 / 128.0 + 4.0 / 128.0));
        let model = models().get("gpt-oss-20b").unwrap().model("mxfp4".parse().unwrap());
        let bits = |class| {
            model.by_class().iter().find(|total| total.class == class).and_then(|total| total.bits_per_weight)
        };
        assert_eq!(bits(Class::Expert), Some(4.25));
        assert_eq!(bits(Class::AttentionQ), Some(16.0));
    }

    #[test]
    fn an_unknown_key_suggests_the_nearest() {
        assert_eq!(models().get("llama-3.1-8").unwrap_err().nearest, "llama-3.1-8b");
        assert!(models().get(&"x".repeat(100_000)).unwrap_err().key.len() <= 80);
    }

    #[test]
    fn a_broken_file_says_where() {
        let mut all = Models::default();
        let error = all.add("mine", "[x]\nlayers = 1\nhiden = 4\n").unwrap_err().to_string();
        assert!(error.contains("mine") && error.contains("hiden"), "{error}");
        let base = "[x]\nname='x'\nlayers=2\nhidden=64\nvocab=100\nheads=2\nkv_heads=2\nintermediate=8\n\
                    tied_embeddings=true\nsource=''\nconfidence='guess'\n";
        all.add("mine", base).unwrap();
        let error = all.add("mine", &format!("{base}pattern='FQ'\n")).unwrap_err().to_string();
        assert!(error.contains("'Q'"), "{error}");
    }
}
