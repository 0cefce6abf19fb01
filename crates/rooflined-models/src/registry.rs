//! Models by key, for when there is no file to read: `config/models/*.toml`, built into the program.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::architecture::Architecture;
use super::block::Block;
use super::import::ImportError;
use super::import::config::Config;
use super::model::{Model, WeightGroup};
use super::recipe::Recipe;
use rooflined_core::keyed;
use rooflined_core::near::Near;
use rooflined_core::precision::WeightFormat;

/// The files of the registry with their names.
const FILES: &[(&str, &str)] = &[
    ("deepseek", include_str!("../config/models/deepseek.toml")),
    ("exaone", include_str!("../config/models/exaone.toml")),
    ("falcon", include_str!("../config/models/falcon.toml")),
    ("gemma", include_str!("../config/models/gemma.toml")),
    ("glm", include_str!("../config/models/glm.toml")),
    ("gpt-oss", include_str!("../config/models/gpt-oss.toml")),
    ("granite", include_str!("../config/models/granite.toml")),
    ("lfm", include_str!("../config/models/lfm.toml")),
    ("llama", include_str!("../config/models/llama.toml")),
    ("minimax", include_str!("../config/models/minimax.toml")),
    ("mistral", include_str!("../config/models/mistral.toml")),
    ("nemotron", include_str!("../config/models/nemotron.toml")),
    ("olmo", include_str!("../config/models/olmo.toml")),
    ("phi", include_str!("../config/models/phi.toml")),
    ("qwen", include_str!("../config/models/qwen.toml")),
    ("seed", include_str!("../config/models/seed.toml")),
    ("smollm", include_str!("../config/models/smollm.toml")),
    ("yi", include_str!("../config/models/yi.toml")),
];

keyed! {
    /// How sure the figures of an entry are.
    Confidence {
        /// Read from a configuration file.
        Config = "config",
        /// At least one figure is recalled and was not read in a public file.
        Recalled = "recalled",
        /// Assumed.
        Guess = "guess",
    }
}

/// One table of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    aliases: Vec<String>,
    /// The fields of its `config.json` that describe it; there is no `null`: a field of 0 stands for one.
    config: Value,
    published_parameters: Option<u64>,
    published_format: Option<WeightFormat>,
    #[serde(default)]
    sixteen_bit: BTreeMap<WeightFormat, Vec<String>>,
    source: String,
    confidence: Confidence,
}

/// A model that is known by its key.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownModel {
    pub key: String,
    /// What the model calls itself.
    pub name: String,
    /// Other models of this very architecture, as [`Models::get`] takes them.
    pub aliases: Vec<String>,
    /// Architecture, as its `config.json` calls it: `qwen3_moe`.
    pub family: String,
    pub architecture: Architecture,
    /// What its `config.json` says of it: towers and the head that drafts, too.
    config: Config,
    /// Weights by its model card; `None` where nobody published them.
    pub published_parameters: Option<u64>,
    /// What its weights are published in, where it was trained in less than 16 bits.
    pub published_format: Option<WeightFormat>,
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
        let mut model = self.config.quantised(self.architecture.clone(), recipe, &self.name);
        self.keep_sixteen_bits(&mut model.weights, recipe);
        if self.confidence == Confidence::Guess {
            model.warnings.insert(0, format!("{} is a guess", self.name));
        }
        model
    }

    /// Puts classes that the published checkpoint of the format keeps at 16 bits back to them.
    fn keep_sixteen_bits(&self, groups: &mut [WeightGroup], recipe: Recipe) {
        let (Recipe::Checkpoint(format) | Recipe::WithHead { weights: format, .. }) = recipe else { return };
        let Some(kept) = self.sixteen_bit.get(&format) else { return };
        for group in groups.iter_mut().filter(|group| kept.iter().any(|key| key == group.class.key())) {
            let each = Block::Bf16.size(group.rows, group.columns);
            if let Some(bytes) = each.and_then(|each| each.checked_mul(group.matrices)) {
                group.block = Block::Bf16;
                group.bytes = bytes;
            }
        }
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
    /// A configuration that describes no model.
    #[error("{key}: {error}")]
    Model {
        key: String,
        #[source]
        error: ImportError,
    },
    /// A configuration of a family that is not known.
    #[error("{key}: config/families has no {family:?}")]
    Family { key: String, family: String },
}

/// A key that no model has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown model {key:?}; {}", near.hint("the registry has no such key"))]
pub struct UnknownModel {
    pub key: String,
    /// The known keys that were probably meant.
    pub near: Near,
}

/// A table of a file, and what it describes once somebody has asked.
#[derive(Debug, Clone)]
struct Listed {
    entry: Entry,
    known: OnceLock<Option<KnownModel>>,
}

impl Listed {
    /// `None` where the configuration describes no model; a test holds every table to it.
    fn known(&self, key: &str) -> Option<&KnownModel> {
        self.known.get_or_init(|| self.entry.clone().known(key).ok()).as_ref()
    }
}

#[derive(Debug, Clone, Default)]
pub struct Models {
    entries: BTreeMap<String, Listed>,
}

impl Models {
    /// Adds the models of one file; a key that is known already is replaced.
    ///
    /// # Errors
    /// Names what is wrong with the text and where. Nothing has been added then.
    fn add(&mut self, file: &str, text: &str) -> Result<(), RegistryError> {
        let tables: BTreeMap<String, Entry> = toml::from_str(text)
            .map_err(|error| RegistryError::Syntax { file: file.to_owned(), error: Box::new(error) })?;
        let listed = |entry| Listed { entry, known: OnceLock::new() };
        self.entries.extend(tables.into_iter().map(|(key, entry)| (key.to_ascii_lowercase(), listed(entry))));
        Ok(())
    }

    /// The model of this name, in whatever case: its key, an alias, the name on Hugging Face (`Qwen/Qwen3-8B`) or a tag of
    /// Ollama (`qwen3:8b`). Endings that say how it was trained, as `-Instruct`, do not count, and neither do those that say
    /// how it is stored (`-AWQ`, `-GGUF:Q4_K_M`), which [`stored_in`](Self::stored_in) reads.
    ///
    /// # Errors
    /// Suggests the keys that are near.
    pub fn get(&self, name: &str) -> Result<&KnownModel, UnknownModel> {
        self.find(name).map(|(known, _)| known).ok_or_else(|| UnknownModel {
            key: name.chars().take(80).collect(),
            near: Near::of(name, self.keys()),
        })
    }

    /// The format that a name of a known model says its weights are stored in: `awq_int4` of `Qwen/Qwen3-8B-AWQ`, `q4_k_m` of
    /// `qwen3:8b-q4_K_M`. `None` where it says nothing.
    #[must_use]
    pub fn stored_in(&self, name: &str) -> Option<WeightFormat> {
        self.find(name)?.1
    }

    fn find(&self, name: &str) -> Option<(&KnownModel, Option<WeightFormat>)> {
        let key = name.to_ascii_lowercase();
        let by_key = self.entries.get(&key).and_then(|listed| listed.known(&key));
        if let Some(known) = by_key.or_else(|| self.by_public_name(name)) {
            return Some((known, None));
        }
        let (base, format) = split_storage(name)?;
        Some((self.by_public_name(base)?, Some(format)))
    }

    fn by_public_name(&self, name: &str) -> Option<&KnownModel> {
        let name = without_site(name);
        let (_, name) = name.split_once('/').unwrap_or(("", name));
        let wanted = plain_name(name);
        let (key, listed) = self.entries.iter().find(|(key, listed)| {
            let mut names = std::iter::once(*key).chain(&listed.entry.aliases);
            names.any(|own| plain_name(own) == wanted)
        })?;
        listed.known(key)
    }

    /// Every key in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Every model in the order of the keys.
    pub fn all(&self) -> impl Iterator<Item = &KnownModel> {
        self.entries.iter().filter_map(|(key, listed)| listed.known(key))
    }
}

/// A name without the address of the site that people copy it with.
fn without_site(name: &str) -> &str {
    const SITES: [&str; 4] = ["huggingface.co/", "hf.co/", "ollama.com/library/", "ollama.com/"];
    let name = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://")).unwrap_or(name);
    let name = SITES.into_iter().find_map(|site| name.strip_prefix(site)).unwrap_or(name);
    name.trim_end_matches('/')
}

/// How names of repositories say what the weights are stored in, and what that is here. Keys of formats are understood, too.
const STORAGE: [(&str, WeightFormat); 17] = [
    ("awq", WeightFormat::AwqInt4),
    ("awq-int4", WeightFormat::AwqInt4),
    ("awq-4bit", WeightFormat::AwqInt4),
    ("int4-awq", WeightFormat::AwqInt4),
    ("gptq", WeightFormat::GptqInt4),
    ("gptq-int4", WeightFormat::GptqInt4),
    ("gptq-4bit", WeightFormat::GptqInt4),
    ("w4a16", WeightFormat::Int4G128),
    ("quantized-w4a16", WeightFormat::Int4G128),
    ("w8a8", WeightFormat::Int8),
    ("quantized-w8a8", WeightFormat::Int8),
    ("fp8", WeightFormat::Fp8E4m3),
    ("fp8-dynamic", WeightFormat::Fp8E4m3),
    ("fp8-kv", WeightFormat::Fp8E4m3),
    ("fp4", WeightFormat::Nvfp4),
    ("bnb-4bit", WeightFormat::Nf4),
    ("f16", WeightFormat::Fp16),
];

/// A name without its ending about storage, and what that says.
fn split_storage(name: &str) -> Option<(&str, WeightFormat)> {
    let format = |ending: &str| {
        let ending = ending.to_ascii_lowercase().replace(['_', '.'], "-");
        let known = STORAGE.iter().find(|(words, _)| *words == ending).map(|(_, format)| *format);
        known.or_else(|| ending.replace('-', "_").parse().ok())
    };
    // The longest ending: `-AWQ-INT4` before `-INT4`.
    name.match_indices([':', '-', '.', '_']).find_map(|(at, _)| Some((&name[..at], format(&name[at + 1..])?)))
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
    fn known(self, key: &str) -> Result<KnownModel, RegistryError> {
        let key = key.to_ascii_lowercase();
        // What a model may lack is found here, so that it can be asked for without a doubt later.
        let read = Config::from_value(&self.config);
        let checked = read.and_then(|config| {
            config.architecture.as_ref().map_or(Ok(()), |_| {
                config.model(Some(Recipe::of(WeightFormat::Bf16)), &self.name).map(|_| ())
            })?;
            Ok(config)
        });
        let config = match checked {
            Ok(config) => config,
            Err(error) => return Err(RegistryError::Model { key, error }),
        };
        let family = config.family.clone();
        let Some(architecture) = config.architecture.clone() else {
            return Err(RegistryError::Family { key, family });
        };
        Ok(KnownModel {
            key,
            name: self.name,
            aliases: self.aliases,
            family,
            architecture,
            config,
            published_parameters: self.published_parameters,
            published_format: self.published_format,
            sixteen_bit: self.sixteen_bit,
            source: self.source,
            confidence: self.confidence,
        })
    }
}

#[cfg(test)]
mod tests;
