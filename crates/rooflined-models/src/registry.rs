//! Models by key, for when there is no file to read: `config/models/*.toml`, built into the program.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::architecture::{Architecture, Description, Experts, InvalidModel, Latent, LayerKind, Linear};
use super::block::Block;
use super::drafting::head_weights;
use super::model::{Drafting, Model, WeightGroup};
use super::recipe::Recipe;
use rooflined_core::keyed;
use rooflined_core::near::Near;
use rooflined_core::precision::WeightFormat;

#[cfg(test)]
mod near;
mod sizes;

pub use sizes::{Counted, PublishedSize, SizeRow, sizes};

/// The files of the registry with their names.
const FILES: &[(&str, &str)] = &[
    ("deepseek", include_str!("../config/models/deepseek.toml")),
    ("falcon", include_str!("../config/models/falcon.toml")),
    ("gemma", include_str!("../config/models/gemma.toml")),
    ("gpt-oss", include_str!("../config/models/gpt-oss.toml")),
    ("granite", include_str!("../config/models/granite.toml")),
    ("lfm", include_str!("../config/models/lfm.toml")),
    ("llama", include_str!("../config/models/llama.toml")),
    ("mistral", include_str!("../config/models/mistral.toml")),
    ("nemotron", include_str!("../config/models/nemotron.toml")),
    ("olmo", include_str!("../config/models/olmo.toml")),
    ("phi", include_str!("../config/models/phi.toml")),
    ("qwen", include_str!("../config/models/qwen.toml")),
    ("smollm", include_str!("../config/models/smollm.toml")),
    ("yi", include_str!("../config/models/yi.toml")),
];

keyed! {
    /// How sure the figures of an entry are.
    Confidence {
        /// Read from a configuration file.
        Config = "config",
        /// Recalled, and confirmed by the published number of weights.
        Recalled = "recalled",
        /// Assumed.
        Guess = "guess",
    }
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
    #[serde(default)]
    aliases: Vec<String>,
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
    published_format: Option<WeightFormat>,
    tower_parameters: Option<u64>,
    #[serde(default)]
    draft_layers: u64,
    #[serde(default)]
    sixteen_bit: BTreeMap<WeightFormat, Vec<String>>,
    source: String,
    confidence: Confidence,
}

/// A model that is known by its key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KnownModel {
    pub key: String,
    /// What the model calls itself.
    pub name: String,
    /// Other models of this very architecture, as [`Models::get`] takes them.
    pub aliases: Vec<String>,
    /// The file that it stands in.
    pub family: String,
    pub architecture: Architecture,
    /// Weights by its model card; `None` where nobody published them.
    pub published_parameters: Option<u64>,
    /// What its weights are published in, where it was trained in less than 16 bits.
    pub published_format: Option<WeightFormat>,
    /// Weights of a tower for pictures, which the architecture leaves out.
    pub tower_parameters: Option<u64>,
    /// Layers of the head that predicts further tokens, which the architecture leaves out; 0 where none is known.
    pub draft_layers: u64,
    /// Classes that the published checkpoint of a format keeps at 16 bits, by their keys.
    pub sixteen_bit: BTreeMap<WeightFormat, Vec<String>>,
    /// Where the figures come from.
    pub source: String,
    pub confidence: Confidence,
}

impl KnownModel {
    /// The model quantised by `recipe`.
    #[must_use]
    pub fn model(&self, recipe: Recipe) -> Model {
        let tower = self.tower_parameters.map(|parameters| {
            format!(
                "the vision tower of {} is not counted: {} million weights, {:.2} GB in 16 bits, where pictures are looked at",
                self.name,
                parameters / 1_000_000,
                parameters as f64 * 2e-9
            )
        });
        let guess = (self.confidence == Confidence::Guess).then(|| format!("{} is a guess", self.name));
        Model {
            name: self.name.clone(),
            family: self.family.clone(),
            weights: self.weights(recipe),
            architecture: self.architecture.clone(),
            label: Some(recipe.key().to_owned()),
            warnings: guess.into_iter().chain(tower).collect(),
            drafting: Drafting {
                head: head_weights(recipe, &self.architecture, self.draft_layers),
                by: None,
            },
        }
    }

    fn weights(&self, recipe: Recipe) -> Vec<WeightGroup> {
        let mut groups = recipe.weights(&self.architecture);
        let (Recipe::Checkpoint(format) | Recipe::WithHead { weights: format, .. }) = recipe else {
            return groups;
        };
        let Some(kept) = self.sixteen_bit.get(&format) else { return groups };
        for group in groups.iter_mut().filter(|group| kept.iter().any(|key| key == group.class.key())) {
            let each = Block::Bf16.size(group.rows, group.columns);
            if let Some(bytes) = each.and_then(|each| each.checked_mul(group.matrices)) {
                group.block = Block::Bf16;
                group.bytes = bytes;
            }
        }
        groups
    }
}

/// A registry file that cannot be used.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// Not TOML, or a field of a wrong name or type.
    #[error("{file}: {error}")]
    Syntax {
        file: String,
        /// What is wrong, with its place.
        error: Box<toml::de::Error>,
    },
    /// A letter of a pattern that is no kind of layer.
    #[error("{key}: pattern holds {letter:?}; it may hold F, S, L and X")]
    Pattern { key: String, letter: char },
    /// An architecture that cannot exist.
    #[error("{key}: {error}")]
    Model {
        key: String,
        #[source]
        error: InvalidModel,
    },
}

/// A key that no model has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown model {key:?}; {}", near.hint("the registry has no such key"))]
pub struct UnknownModel {
    pub key: String,
    /// The known keys that were probably meant.
    pub near: Near,
}

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

    /// The model of this name, in whatever case: its key, an alias, the name on Hugging Face (`Qwen/Qwen3-8B`) or a tag of
    /// Ollama (`qwen3:8b`). Endings that say how it was trained, as `-Instruct`, do not count.
    ///
    /// # Errors
    /// Suggests the keys that are near.
    pub fn get(&self, name: &str) -> Result<&KnownModel, UnknownModel> {
        let key = self.entries.get(&name.to_ascii_lowercase());
        key.or_else(|| self.by_public_name(name)).ok_or_else(|| UnknownModel {
            key: name.chars().take(80).collect(),
            near: Near::of(name, self.keys()),
        })
    }

    fn by_public_name(&self, name: &str) -> Option<&KnownModel> {
        let name = without_site(name);
        let (_, name) = name.split_once('/').unwrap_or(("", name));
        let wanted = plain_name(name);
        self.entries.values().find(|known| {
            let mut names = std::iter::once(&known.key).chain(&known.aliases);
            names.any(|own| plain_name(own) == wanted)
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

/// A name without the address of the site that people copy it with.
fn without_site(name: &str) -> &str {
    const SITES: [&str; 4] = ["huggingface.co/", "hf.co/", "ollama.com/library/", "ollama.com/"];
    let name = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://")).unwrap_or(name);
    let name = SITES.into_iter().find_map(|site| name.strip_prefix(site)).unwrap_or(name);
    name.trim_end_matches('/')
}

/// Endings of a model's public name that change no matrix of it.
const TRAINING: [&str; 6] = ["-instruct", "-chat", "-it", "-hf", "-base", "-gguf"];

/// A public name without what writers disagree on: case, separators, the maker before Llama, and how it was trained.
fn plain_name(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let mut rest = lower.strip_prefix("meta-").unwrap_or(&lower);
    while let Some(shorter) = TRAINING.iter().find_map(|ending| rest.strip_suffix(ending)) {
        rest = shorter;
    }
    rest.chars().filter(|letter| !matches!(letter, '-' | '_' | ':')).collect()
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
            aliases: self.aliases,
            family: family.to_owned(),
            architecture,
            published_parameters: self.published_parameters,
            published_format: self.published_format,
            tower_parameters: self.tower_parameters,
            draft_layers: self.draft_layers,
            sixteen_bit: self.sixteen_bit,
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
    use rooflined_core::precision::WeightFormat;

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
    fn a_model_is_found_by_every_name_that_people_use_and_no_name_is_of_two() {
        let mut owners = BTreeMap::new();
        for model in models().all() {
            for name in std::iter::once(&model.key).chain(&model.aliases) {
                let before = owners.insert(plain_name(name), &model.key);
                assert_eq!(before, None, "{name} is of two models");
                let hub = format!("Maker/{}-Instruct", name.to_ascii_uppercase());
                for public in [name.clone(), hub, format!("maker/{name}-it-GGUF"), name.replacen('-', ":", 1)]
                {
                    assert_eq!(models().get(&public).map(|found| &found.key), Ok(&model.key), "{public}");
                }
            }
        }
        for (public, key) in [
            ("Qwen/Qwen3-4B", "qwen3-4b"),
            ("https://huggingface.co/Qwen/Qwen3-4B/", "qwen3-4b"),
            ("hf.co/Qwen/Qwen3-4B-GGUF", "qwen3-4b"),
            ("https://ollama.com/library/qwen3:4b", "qwen3-4b"),
            ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
            ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
            ("google/gemma-2-9b-it", "gemma-2-9b"),
            ("openai/gpt-oss-20b", "gpt-oss-20b"),
            ("qwen3:8b", "qwen3-8b"),
            ("llama3.2:3b", "llama-3.2-3b"),
            ("gpt-oss:20b", "gpt-oss-20b"),
            ("gemma3:4b", "gemma-3-4b"),
            ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"),
            ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"),
            ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama-3.1-8b"),
            ("qwen2.5-coder:7b", "qwen2.5-7b"),
        ] {
            assert_eq!(models().get(public).map(|found| found.key.as_str()), Ok(key), "{public}");
        }
        for other in ["a/b/qwen3-4b", "qwen3", "qwen3-4b-awq", "qwen3:4b-q4_K_M", ":", "/", "-it", ""] {
            assert!(models().get(other).is_err(), "{other}");
        }
    }

    #[expect(clippy::disallowed_macros, reason = "what was compared, for whoever runs it with --nocapture")]
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

    #[test]
    fn a_tied_table_stored_twice_is_larger_and_no_slower() {
        // Qwen2.5-0.5B's own file stores the tied table twice: some 20 % more, of which nothing is read.
        let known = models().get("qwen2.5-0.5b").unwrap();
        let recipe = Recipe::of(WeightFormat::Q4KM);
        let tied = known.model(recipe);
        let architecture = Architecture { tied_embeddings: false, ..known.architecture.clone() };
        let twice = Model { weights: recipe.weights(&architecture), architecture, ..tied.clone() };
        let ratio = twice.bytes() / tied.bytes();
        assert!((1.18..1.26).contains(&ratio), "{ratio}");
        assert_eq!(twice.bytes_per_token(), tied.bytes_per_token());
    }

    /// Billions of weights, and of those that a token passes (embedding counted), by the fields of the models' cards. For
    /// Gemma-4 the fields give a value projection to every layer; those without a window use their keys as values.
    #[test]
    fn weights_and_active_weights_are_those_of_the_cards() {
        let mut checked = 0;
        for line in include_str!("../../../tests/data/parameters.csv").lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let (key, all, active) =
                (fields[0], fields[1].parse::<f64>().unwrap(), fields[2].parse::<f64>().unwrap());
            let model = models().get(key).unwrap().model(Recipe::of(WeightFormat::Bf16));
            let architecture = &model.architecture;
            let table =
                if architecture.tied_embeddings { 0 } else { architecture.vocab * architecture.hidden };
            let values = match key {
                "gemma-4-26b-a4b" => 5 * 2816 * 2 * 512,
                "gemma-4-31b" => 10 * 5376 * 4 * 512,
                _ => 0,
            };
            let found = (model.parameters() + values) as f64 / 1e9;
            let passed = (model.active_parameters() + (table + values) as f64) / 1e9;
            assert!((found / all - 1.0).abs() <= 0.0035, "{key}: {found} of {all}");
            assert!((passed / active - 1.0).abs() <= 0.0035, "{key}: {passed} of {active} active");
            checked += 1;
        }
        assert!(checked >= 64);
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
        use crate::class::Class;
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
        assert_eq!(models().get("llama-3.1-8").unwrap_err().near.to_string(), "llama-3.1-8b");
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
