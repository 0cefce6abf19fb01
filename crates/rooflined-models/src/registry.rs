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
    ("cohere", include_str!("../config/models/cohere.toml")),
    ("deepseek", include_str!("../config/models/deepseek.toml")),
    ("ernie", include_str!("../config/models/ernie.toml")),
    ("exaone", include_str!("../config/models/exaone.toml")),
    ("falcon", include_str!("../config/models/falcon.toml")),
    ("gemma", include_str!("../config/models/gemma.toml")),
    ("glm", include_str!("../config/models/glm.toml")),
    ("gpt-oss", include_str!("../config/models/gpt-oss.toml")),
    ("granite", include_str!("../config/models/granite.toml")),
    ("hunyuan", include_str!("../config/models/hunyuan.toml")),
    ("internlm", include_str!("../config/models/internlm.toml")),
    ("kimi", include_str!("../config/models/kimi.toml")),
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
    ("stablelm", include_str!("../config/models/stablelm.toml")),
    ("starcoder", include_str!("../config/models/starcoder.toml")),
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
    #[serde(default)]
    ollama: Vec<String>,
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
    /// Names that Ollama has for several models, of which it runs this one where no tag is given.
    pub ollama: Vec<String>,
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
    /// Whether a name of it is its own, and not that of another model with its architecture.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        plain_name(without_maker(name)) == plain_name(&self.key)
    }

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

/// What people mean most often by a part of a name, such as `llama`.
const USUAL: [&str; 9] = [
    "qwen3-8b",
    "qwen3-4b",
    "llama-3.1-8b",
    "llama-3.2-3b",
    "llama-3.3-70b",
    "gemma-3-4b",
    "phi-4",
    "mistral-7b",
    "gpt-oss-20b",
];

/// A name that no model has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown model {key:?}; {}", self.hint("the registry has no such key"))]
pub struct UnknownModel {
    pub key: String,
    /// The known keys that were probably meant.
    pub near: Near,
    /// What the name says of its storage, where that alone is why nothing is known.
    pub storage: Option<Unread>,
}

impl UnknownModel {
    /// What to do next: `all` where nothing is near.
    #[must_use]
    pub fn hint(&self, all: &str) -> String {
        self.storage.as_ref().map_or_else(|| self.near.hint(all), Unread::hint)
    }
}

/// A known model in a storage that nothing here predicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Key of the model.
    pub model: String,
    /// Why its storage is not predicted: a sentence without a full stop.
    why: &'static str,
}

impl Unread {
    /// Why, and what to name instead.
    #[must_use]
    pub fn hint(&self) -> String {
        format!("{}; for a near answer name {} and a format, such as int8 or awq_int4", self.why, self.model)
    }
}

/// What a name says.
struct Found<'a> {
    known: &'a KnownModel,
    format: Option<WeightFormat>,
    /// The name is Ollama's for several models.
    is_default_tag: bool,
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
    /// Ollama (`qwen3:8b`; `qwen3` is its default tag). Endings that say how it was trained, as `-Instruct`, do not count, and
    /// neither do those that say how it is stored (`-AWQ`, `-GGUF:Q4_K_M`), which [`stored_in`](Self::stored_in) reads.
    ///
    /// # Errors
    /// Suggests the keys that are near, or says why the storage is not predicted.
    pub fn get(&self, name: &str) -> Result<&KnownModel, UnknownModel> {
        self.find(name).map(|found| found.known).ok_or_else(|| UnknownModel {
            key: name.chars().take(80).collect(),
            near: self.near(name),
            storage: self.unread(name),
        })
    }

    /// The format that a name of a known model says its weights are stored in: `awq_int4` of `Qwen/Qwen3-8B-AWQ`, `q4_k_m` of
    /// `qwen3:8b-q4_K_M`. `None` where it says nothing.
    #[must_use]
    pub fn stored_in(&self, name: &str) -> Option<WeightFormat> {
        self.find(name)?.format
    }

    /// The key of the model that Ollama runs for a name without a tag: `qwen3-8b` of `qwen3`. `None` for any other name.
    #[must_use]
    pub fn default_tag(&self, name: &str) -> Option<&str> {
        self.find(name).filter(|found| found.is_default_tag).map(|found| found.known.key.as_str())
    }

    fn find(&self, name: &str) -> Option<Found<'_>> {
        if name.len() > MAX_NAME {
            return None;
        }
        let found = |known, format| Found { known, format, is_default_tag: false };
        let key = name.to_ascii_lowercase();
        let by_key = self.entries.get(&key).and_then(|listed| listed.known(&key));
        if let Some(known) = by_key {
            return Some(found(known, None));
        }
        // `deepseek-r1` is the name of a model of 671 billion weights, and who types it alone means what Ollama runs for it.
        if let Some(known) = self.by_default_tag(name) {
            let is_own = self.by_public_name(name).is_some_and(|own| own.key == known.key);
            return Some(Found { known, format: None, is_default_tag: !is_own });
        }
        if let Some(known) = self.by_public_name(name) {
            return Some(found(known, None));
        }
        let (base, format) = split_storage(name)?;
        Some(found(self.by_public_name(base)?, Some(format)))
    }

    fn by_default_tag(&self, name: &str) -> Option<&KnownModel> {
        let name = without_site(name).to_ascii_lowercase();
        let name = name.strip_suffix(":latest").unwrap_or(&name);
        let is_meant = |listed: &Listed| listed.entry.ollama.iter().any(|own| own == name);
        let (key, listed) = self.entries.iter().find(|(_, listed)| is_meant(listed))?;
        listed.known(key)
    }

    /// The known model in a name whose storage is not predicted.
    fn unread(&self, name: &str) -> Option<Unread> {
        if name.len() > MAX_NAME {
            return None;
        }
        endings(name).find_map(|(base, ending)| {
            let why = UNREAD.iter().find(|(word, _)| has_word(&ending, word)).map(|(_, why)| *why)?;
            let known = self.by_public_name(base).or_else(|| self.by_default_tag(base))?;
            Some(Unread { model: known.key.clone(), why })
        })
    }

    fn by_public_name(&self, name: &str) -> Option<&KnownModel> {
        let wanted = plain_name(without_maker(name));
        let (key, listed) = self.entries.iter().find(|(key, listed)| {
            let mut names = std::iter::once(*key).chain(&listed.entry.aliases);
            names.any(|own| plain_name(own) == wanted)
        })?;
        listed.known(key)
    }

    /// The keys that `name` was probably meant to be.
    #[must_use]
    pub fn near(&self, name: &str) -> Near {
        Near::with_usual(name, self.keys(), &USUAL)
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
    const SITES: [&str; 6] =
        ["huggingface.co/", "hf.co/", "ollama.com/library/", "ollama.com/", "ollama://", "ollama:"];
    let name = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://")).unwrap_or(name);
    let name = SITES.into_iter().find_map(|site| name.strip_prefix(site)).unwrap_or(name);
    name.trim_end_matches('/')
}

/// The same without who made it.
fn without_maker(name: &str) -> &str {
    let name = without_site(name);
    name.split_once('/').map_or(name, |(_, name)| name)
}

/// Most bytes of a name that is taken apart: a maker, a model and a site have fewer, and the work grows with their square.
const MAX_NAME: usize = 256;

/// How names of repositories say what the weights are stored in, and what that is here. Keys of formats are understood, too.
const STORAGE: [(&str, WeightFormat); 32] = [
    ("awq", WeightFormat::AwqInt4),
    ("awq-int4", WeightFormat::AwqInt4),
    ("awq-4bit", WeightFormat::AwqInt4),
    ("int4-awq", WeightFormat::AwqInt4),
    ("4bit-awq", WeightFormat::AwqInt4),
    ("awq-marlin", WeightFormat::AwqInt4),
    ("gptq", WeightFormat::GptqInt4),
    ("gptq-int4", WeightFormat::GptqInt4),
    ("gptq-4bit", WeightFormat::GptqInt4),
    ("4bit-gptq", WeightFormat::GptqInt4),
    ("gptq-4bit-128g", WeightFormat::GptqInt4),
    ("gptq-marlin", WeightFormat::GptqInt4),
    ("marlin", WeightFormat::GptqInt4),
    ("w4a16", WeightFormat::Int4G128),
    ("w4a16-g128", WeightFormat::Int4G128),
    ("quantized-w4a16", WeightFormat::Int4G128),
    ("autoround", WeightFormat::Int4G128),
    ("int4-autoround", WeightFormat::Int4G128),
    ("w8a8", WeightFormat::Int8),
    ("quantized-w8a8", WeightFormat::Int8),
    ("w8a16", WeightFormat::Int8),
    ("quantized-w8a16", WeightFormat::Int8),
    ("fp8", WeightFormat::Fp8E4m3),
    ("fp8-dynamic", WeightFormat::Fp8E4m3),
    ("fp8-static", WeightFormat::Fp8E4m3),
    ("fp8-block", WeightFormat::Fp8E4m3),
    ("fp8-kv", WeightFormat::Fp8E4m3),
    ("fp4", WeightFormat::Nvfp4),
    ("nvfp4a16", WeightFormat::Nvfp4),
    ("bnb-4bit", WeightFormat::Nf4),
    ("bnb-8bit", WeightFormat::Int8),
    ("f16", WeightFormat::Fp16),
];

const MLX: &str = "it is stored for MLX, which runs on Apple machines only";
const EXLLAMA: &str = "it is stored for ExLlama, an engine that is not predicted";
const UNSLOTH: &str = "Unsloth keeps some layers at 16 bits: save its config.json, and rooflinectl predict config.json has the size";
const GPTQ: &str = "GPTQ with other than 4 bits is read from config.json: save it, then rooflinectl models inspect config.json";
const CODEBOOK: &str = "no engine that is predicted reads this storage";
const OTHER_RUNTIME: &str = "it is stored for a runtime that is not predicted";
const PACKAGE: &str = "a package of MLC: --engine mlc predicts the model with int4_g32";
const DRAFTER: &str = "it only drafts for the model";

/// Words of names about storage that is not predicted, and why.
const UNREAD: [(&str, &str); 31] = [
    ("mlx", MLX),
    ("dwq", MLX),
    ("exl2", EXLLAMA),
    ("exl3", EXLLAMA),
    ("bpw", EXLLAMA),
    ("unsloth", UNSLOTH),
    ("gptq", GPTQ),
    ("hqq", CODEBOOK),
    ("aqlm", CODEBOOK),
    ("quip", CODEBOOK),
    ("quip#", CODEBOOK),
    ("spqr", CODEBOOK),
    ("vptq", CODEBOOK),
    ("ggml", CODEBOOK),
    ("openvino", OTHER_RUNTIME),
    ("ov", OTHER_RUNTIME),
    ("onnx", "of an export give the .onnx file itself"),
    ("coreml", OTHER_RUNTIME),
    ("litert", OTHER_RUNTIME),
    ("qnn", OTHER_RUNTIME),
    ("rkllm", OTHER_RUNTIME),
    ("mlc", PACKAGE),
    ("eagle", DRAFTER),
    ("eagle3", DRAFTER),
    ("lora", "an adapter has the speed of its model once merged"),
    ("2bit", MLX),
    ("3bit", MLX),
    ("4bit", MLX),
    ("5bit", MLX),
    ("6bit", MLX),
    ("8bit", MLX),
];

/// Where a name may be divided into a model and its storage, with the words of the second: the longest ending first.
fn endings(name: &str) -> impl Iterator<Item = (&str, String)> {
    let words = |at: usize| name[at + 1..].to_ascii_lowercase().replace(['_', '.', ':'], "-");
    name.match_indices([':', '-', '.', '_', '@']).map(move |(at, _)| (&name[..at], words(at)))
}

/// A name without its ending about storage, and what that says.
fn split_storage(name: &str) -> Option<(&str, WeightFormat)> {
    endings(name).find_map(|(base, ending)| {
        // A repository, and not a file.
        let is_hub = !name.ends_with(".gguf");
        let ending = ending.strip_suffix("-gguf").filter(|_| is_hub).unwrap_or(&ending);
        let known = STORAGE.iter().find(|(words, _)| *words == ending).map(|(_, format)| *format);
        Some((base, known.or_else(|| ending.replace('-', "_").parse().ok())?))
    })
}

/// Whether an ending has a word; what stands before `bpw` is a number.
fn has_word(ending: &str, word: &str) -> bool {
    ending.split('-').any(|own| own == word || word == "bpw" && own.ends_with(word))
}

/// Endings of a model's public name that change no matrix of it.
const TRAINING: [&str; 14] = [
    "-instruct",
    "-chat",
    "-it",
    "-hf",
    "-base",
    "-gguf",
    "-i1",
    "-imatrix",
    "-qat",
    "-abliterated",
    "-thinking",
    "-reasoning",
    "-sft",
    "-dpo",
];

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
            ollama: self.ollama,
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
