//! What inference engines can run: engine, architecture, number format, GPU and key/value cache, from `config/support.toml`.
//!
//! Predictions, recommendations, settings lines and `docs/internals/settings.md` all ask here, so that none of them offers what
//! another refuses. What an engine reads but leaves slow ("GGUF in vLLM"), or emulates for want of a unit (NVFP4 before
//! Blackwell), counts as not supported: a prediction from its tuned kernels would mislead. This crate's own kernels
//! (`none`) have no entries; the probe knows what they compute.

use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::import::UNNAMED;
use crate::recipe::{Mix, Recipe};
use rooflined_core::names::Engine;
use rooflined_core::precision::WeightFormat;

/// CUDA compute capability, major and minor.
pub type Capability = (u32, u32);

/// What an engine runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Cpu,
    /// `None` where nobody knows the compute capability, and then nothing is refused for it.
    Gpu(Option<Capability>),
}

/// GPUs with a compute capability from the first to the last, both included; without a last all newer ones.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    pub from: Capability,
    pub to: Option<Capability>,
}

/// Formats that an engine runs on the same machines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub formats: Vec<WeightFormat>,
    /// Whether it runs on CPUs.
    pub cpu: bool,
    /// GPUs that it runs on.
    pub gpus: Vec<Range>,
    /// What holds outside of these GPUs, where there is more to say than that it needs others.
    otherwise: Option<String>,
    /// Version and place that say so.
    pub source: String,
}

/// An engine: where it runs as a whole, and its entries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    pub key: Engine,
    /// The name that people write.
    pub name: String,
    cpu: bool,
    gpus: Vec<Range>,
    /// Formats of weights to fall back on, the usual ones first.
    preferred: Vec<WeightFormat>,
    /// What to use instead on some of the GPUs that it leaves out.
    instead: Option<Instead>,
    pub source: String,
    /// The models that it runs, where it has a list of them; `None` where it also runs others.
    pub architectures: Option<Architectures>,
    #[serde(default)]
    pub weights: Vec<Entry>,
    /// Keys and values in another type than that of the model, or than 16 bits.
    #[serde(default)]
    pub cache: Vec<Entry>,
}

/// Every architecture that an engine runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architectures {
    /// `model_type` of a `config.json`, or `general.architecture` of a GGUF file.
    pub names: Vec<String>,
    /// Version and place that say so.
    pub source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Instead {
    gpus: Vec<Range>,
    hint: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    engine: Vec<Platform>,
}

// A test reads the file; one with an error would know no engine.
static TABLE: LazyLock<Table> =
    LazyLock::new(|| toml::from_str(include_str!("../config/support.toml")).unwrap_or_default());

/// What the engine has instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nearest {
    Weights(WeightFormat),
    /// Of keys and values.
    Cache(WeightFormat),
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weights(format) => write!(f, "{format}"),
            Self::Cache(format) => write!(f, "kv_format {format}"),
        }
    }
}

/// Why an engine does not run something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    pub reason: String,
    /// `None` where the engine has nothing there.
    pub nearest: Option<Nearest>,
    /// Where that is from.
    pub source: &'static str,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Unsupported {}

/// Whether `engine` runs a model stored by `recipe` with keys and values as `kv_format` on `target`.
///
/// # Errors
/// Why not, and the nearest that it runs there.
pub fn check(
    engine: Engine,
    recipe: Recipe,
    kv_format: Option<WeightFormat>,
    target: Target,
) -> Result<(), Unsupported> {
    let Some(platform) = platform(engine) else { return Ok(()) };
    platform.runs_on(target)?;
    platform.stores(recipe, target)?;
    match kv_format {
        Some(format) => platform.caches(recipe, format, target),
        None => Ok(()),
    }
}

/// Whether `engine` runs models of the architecture `family` on `target`, whatever they are stored as. Of an architecture
/// without a name nothing is refused.
///
/// # Errors
/// As [`check`].
pub fn check_family(engine: Engine, family: &str, target: Target) -> Result<(), Unsupported> {
    let Some(platform) = platform(engine) else { return Ok(()) };
    platform.runs_on(target)?;
    platform.builds(family)
}

/// The engines of the table that run a model of the architecture `family` stored by `recipe` on `target`.
pub fn engines(family: &str, recipe: Recipe, target: Target) -> impl Iterator<Item = Engine> {
    let engines = platforms().iter().map(|platform| platform.key);
    engines.filter(move |engine| {
        check_family(*engine, family, target).and_then(|()| check(*engine, recipe, None, target)).is_ok()
    })
}

/// Whether `engine` keeps keys and values as `kv_format` on `target`, whatever the weights are stored as.
///
/// # Errors
/// As [`check`].
pub fn check_cache(engine: Engine, kv_format: WeightFormat, target: Target) -> Result<(), Unsupported> {
    let Some(platform) = platform(engine) else { return Ok(()) };
    platform.runs_on(target)?;
    platform.caches(Recipe::Checkpoint(WeightFormat::Fp16), kv_format, target)
}

/// The engines of the table.
#[must_use]
pub fn platforms() -> &'static [Platform] {
    &TABLE.engine
}

fn platform(engine: Engine) -> Option<&'static Platform> {
    platforms().iter().find(|platform| platform.key == engine)
}

impl Platform {
    fn runs_on(&'static self, target: Target) -> Result<(), Unsupported> {
        let refused = |reason| Err(Unsupported { reason, nearest: None, source: &self.source });
        match target {
            Target::Cpu if !self.cpu => refused(format!("{} runs on GPUs only", self.name)),
            Target::Gpu(_) if self.gpus.is_empty() => refused(format!("{} runs on CPUs only", self.name)),
            Target::Gpu(Some(capability)) if !within(&self.gpus, capability) => {
                let mut reason = format!("{} does not support {}", self.name, shown(capability));
                if let Some(instead) = self.instead.as_ref().filter(|of| within(&of.gpus, capability)) {
                    reason = format!("{reason}: {}", instead.hint);
                }
                refused(reason)
            }
            _ => Ok(()),
        }
    }

    fn builds(&'static self, family: &str) -> Result<(), Unsupported> {
        let Some(list) = self.architectures.as_ref() else { return Ok(()) };
        let wanted = plain_family(family);
        if matches!(wanted.as_str(), "" | UNNAMED)
            || list.names.iter().any(|name| plain_family(name) == wanted)
        {
            return Ok(());
        }
        let reason = format!("{} does not run models of the architecture {}", self.name, family);
        Err(Unsupported { reason, nearest: None, source: &list.source })
    }

    fn stores(&'static self, recipe: Recipe, target: Target) -> Result<(), Unsupported> {
        let (format, bits) = match recipe {
            Recipe::Checkpoint(format) | Recipe::WithHead { weights: format, .. } => {
                (Some(format), format.bits_per_weight())
            }
            Recipe::Gguf(mix) => (of_mix(mix), mix.base().bits()),
        };
        let nearest = || self.nearest(bits, format, target).map(Nearest::Weights);
        let refused = |reason, source| Err(Unsupported { reason, nearest: nearest(), source });
        if self.key == Engine::LlamaCpp {
            if recipe.key() == "q2_0" {
                let why =
                    "Q2_0 of llama.cpp has blocks of 64 and 2.25 bits, this format blocks of 128 and 2.125";
                return refused(why.to_owned(), "llama.cpp b11434, ggml/src/ggml-common.h");
            }
            // Mixes without a format of their own are made of blocks that have one.
            if format.is_none() {
                return Ok(());
            }
        } else if is_gguf(recipe) {
            return match self.key {
                Engine::Vllm => refused(
                    "vLLM reads GGUF files through a plugin that is not tuned and slow".to_owned(),
                    "vLLM docs, features/quantization/gguf.md: highly experimental and under-optimized",
                ),
                _ => refused(format!("{} reads no GGUF files ({})", self.name, recipe.key()), &self.source),
            };
        }
        let Some(format) = format else { return refused(self.lacks(recipe.key()), &self.source) };
        match entry(&self.weights, format) {
            None => refused(self.lacks(format.key()), &self.source),
            Some(entry) => match self.missing(entry, format, target) {
                None => Ok(()),
                Some(reason) => refused(reason, &entry.source),
            },
        }
    }

    fn caches(
        &'static self,
        recipe: Recipe,
        format: WeightFormat,
        target: Target,
    ) -> Result<(), Unsupported> {
        if format == WeightFormat::Fp16 || (self.key != Engine::LlamaCpp && format == own_type(recipe)) {
            return Ok(());
        }
        let had = self.cache.iter().filter(|entry| entry.runs_on(target));
        let all = had.flat_map(|entry| &entry.formats).copied().chain([WeightFormat::Fp16]);
        let nearest = nearest_of(all, format.bits_per_weight(), Some(format)).map(Nearest::Cache);
        let (reason, source) = match entry(&self.cache, format) {
            None => {
                let source = self.cache.first().map_or(&self.source, |entry| &entry.source);
                (format!("{} keeps no keys and values as {format}", self.name), source)
            }
            Some(entry) => match self.missing(entry, format, target) {
                None => return Ok(()),
                Some(reason) => (format!("keys and values: {reason}"), &entry.source),
            },
        };
        Err(Unsupported { reason, nearest, source })
    }

    fn lacks(&self, key: &str) -> String {
        format!("{} has no {key}", self.name)
    }

    /// What the target lacks for an entry.
    fn missing(&self, entry: &Entry, format: WeightFormat, target: Target) -> Option<String> {
        let capability = match target {
            _ if entry.runs_on(target) => return None,
            Target::Cpu => return Some(format!("{} has no {format} on CPUs", self.name)),
            Target::Gpu(capability) => capability?,
        };
        let needs = match entry.gpus.first() {
            Some(Range { from: least, .. }) if capability < *least => format!(
                "{format} in {} needs compute capability {}.{} and this GPU has {}.{}",
                self.name, least.0, least.1, capability.0, capability.1
            ),
            _ => format!("{} has no {format} on {}", self.name, shown(capability)),
        };
        Some(match &entry.otherwise {
            Some(otherwise) => format!("{needs}: {otherwise}"),
            None => needs,
        })
    }

    /// The format closest to `bits` that it runs there, the usual ones first.
    fn nearest(&self, bits: f64, wanted: Option<WeightFormat>, target: Target) -> Option<WeightFormat> {
        let runs =
            |format: &WeightFormat| entry(&self.weights, *format).is_some_and(|entry| entry.runs_on(target));
        nearest_of(self.preferred.iter().copied().filter(runs), bits, wanted)
    }
}

/// A name of an architecture without what writers of it disagree on: `qwen3_moe`, `qwen3moe`, `Qwen3Moe`, and `qwen3_moe_text`
/// of a language model inside another.
fn plain_family(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let plain: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    plain.strip_suffix("text").map_or_else(|| plain.clone(), ToOwned::to_owned)
}

/// The entry of a format.
fn entry(entries: &[Entry], format: WeightFormat) -> Option<&Entry> {
    entries.iter().find(|entry| entry.formats.contains(&format))
}

impl Entry {
    /// Whether the target has what it needs.
    fn runs_on(&self, target: Target) -> bool {
        match target {
            Target::Cpu => self.cpu,
            Target::Gpu(None) => !self.gpus.is_empty(),
            Target::Gpu(Some(capability)) => within(&self.gpus, capability),
        }
    }
}

fn within(ranges: &[Range], capability: Capability) -> bool {
    ranges.iter().any(|range| capability >= range.from && range.to.is_none_or(|most| capability <= most))
}

fn shown(capability: Capability) -> String {
    format!("compute capability {}.{}", capability.0, capability.1)
}

/// The format that is closest in width: in steps of halving, then the wider one, then the one computed in the same unit, then
/// the first.
fn nearest_of(
    formats: impl Iterator<Item = WeightFormat>,
    bits: f64,
    wanted: Option<WeightFormat>,
) -> Option<WeightFormat> {
    let step = |bits: f64| bits.log2().round();
    let unit = wanted.map(WeightFormat::native_precision);
    let far = |format: &WeightFormat| {
        let off = step(format.bits_per_weight()) - step(bits);
        let other_unit = unit.is_some_and(|unit| unit != format.native_precision());
        (off.abs(), off < 0.0, other_unit)
    };
    formats.reduce(|best, format| {
        let order = far(&format).partial_cmp(&far(&best));
        if order.is_some_and(std::cmp::Ordering::is_lt) { format } else { best }
    })
}

/// The type of keys and values where nothing is asked for.
fn own_type(recipe: Recipe) -> WeightFormat {
    match recipe {
        Recipe::Checkpoint(WeightFormat::Fp32 | WeightFormat::Tf32) => WeightFormat::Fp32,
        Recipe::Checkpoint(WeightFormat::Bf16) => WeightFormat::Bf16,
        _ => WeightFormat::Fp16,
    }
}

/// The format of a mix; `None` for mixes that have a name only in llama.cpp.
fn of_mix(mix: Mix) -> Option<WeightFormat> {
    WeightFormat::ALL.iter().copied().find(|format| Mix::of(*format) == Some(mix))
}

/// Whether only GGUF files store it.
fn is_gguf(recipe: Recipe) -> bool {
    matches!(recipe, Recipe::Gguf(mix) if !mix.base().is_plain())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(engine: Engine, format: &str, target: Target) -> Result<(), Unsupported> {
        check(engine, format.parse().unwrap(), None, target)
    }

    const fn gpu(major: u32, minor: u32) -> Target {
        Target::Gpu(Some((major, minor)))
    }

    /// The cases that are known, as their engines document them.
    #[test]
    fn what_engines_refuse_is_refused_with_the_nearest_that_they_have() {
        for (engine, format, target, nearest) in [
            (Engine::Vllm, "awq_int4", gpu(7, 0), Some("gptq_int4")),
            (Engine::Vllm, "nvfp4", gpu(8, 7), Some("awq_int4")),
            (Engine::TensorRtEdgeLlm, "nvfp4", gpu(8, 7), Some("awq_int4")),
            (Engine::Vllm, "q4_k_m", gpu(11, 0), Some("awq_int4")),
            (Engine::Vllm, "fp8_e5m2", gpu(9, 0), Some("fp8_e4m3")),
            (Engine::TensorRtLlm, "fp16", gpu(8, 7), None),
            (Engine::TensorRtLlm, "nvfp4", gpu(11, 0), None),
            (Engine::TensorRtLlm, "awq_int4", gpu(12, 1), Some("nvfp4")),
            (Engine::Mlc, "q4_k_m", gpu(8, 7), Some("int4_g32")),
            (Engine::LlamaCpp, "awq_int4", gpu(8, 7), Some("q4_k_m")),
            (Engine::LlamaCpp, "fp8_e4m3", gpu(9, 0), Some("q8_0")),
        ] {
            let refused = asked(engine, format, target).unwrap_err();
            let found = refused.nearest.map(|nearest| nearest.to_string());
            assert_eq!(found.as_deref(), nearest, "{engine:?} {format}: {refused}");
            assert!(!refused.source.is_empty() && !refused.reason.is_empty());
        }
        let cache = check_cache(Engine::LlamaCpp, WeightFormat::Fp8E4m3, gpu(9, 0)).unwrap_err();
        assert_eq!(cache.nearest, Some(Nearest::Cache(WeightFormat::Q8_0)), "{cache}");
        let cache = check_cache(Engine::Vllm, WeightFormat::Fp8E4m3, gpu(8, 7)).unwrap_err();
        assert_eq!(cache.nearest, Some(Nearest::Cache(WeightFormat::Int8)), "{cache}");
    }

    #[test]
    fn what_people_run_is_supported() {
        for (engine, format, target) in [
            (Engine::LlamaCpp, "q4_k_m", gpu(8, 7)),
            (Engine::LlamaCpp, "q3_k_l", Target::Cpu),
            (Engine::LlamaCpp, "mxfp4", gpu(12, 1)),
            (Engine::Vllm, "awq_int4", gpu(8, 7)),
            (Engine::Vllm, "nvfp4", gpu(11, 0)),
            (Engine::TensorRtLlm, "nvfp4", gpu(12, 1)),
            (Engine::TensorRtEdgeLlm, "nvfp4", gpu(11, 0)),
            (Engine::Mlc, "int4_g32", gpu(8, 7)),
            (Engine::Torch, "int4_g128", gpu(8, 7)),
            // Nobody knows the GPU, so nothing is refused for it.
            (Engine::Vllm, "nvfp4", Target::Gpu(None)),
            (Engine::TensorRtLlm, "awq_int4", Target::Gpu(None)),
        ] {
            assert_eq!(asked(engine, format, target), Ok(()), "{engine:?} {format}");
        }
    }

    #[test]
    fn another_engine_is_named_only_on_the_boards_that_it_is_for() {
        for (target, is_jetson) in [
            (gpu(7, 0), false),
            (gpu(7, 2), false),
            (gpu(7, 5), false),
            (gpu(8, 7), true),
            (gpu(11, 0), true),
        ] {
            let refused = asked(Engine::TensorRtLlm, "fp16", target).unwrap_err();
            assert_eq!(refused.reason.contains("tensorrt-edge-llm"), is_jetson, "{refused}");
            assert_eq!(asked(Engine::TensorRtEdgeLlm, "fp16", target).is_ok(), is_jetson, "{target:?}");
        }
        let card = asked(Engine::TensorRtEdgeLlm, "awq_int4", gpu(8, 9)).unwrap_err();
        assert!(card.reason.contains("on cards use tensorrt-llm"), "{card}");
        assert_eq!(asked(Engine::TensorRtEdgeLlm, "awq_int4", gpu(12, 1)), Ok(()));
    }

    #[test]
    fn the_engines_of_a_format_are_those_that_run_it() {
        let of = |family, format: &str, target| {
            engines(family, format.parse().unwrap(), target).collect::<Vec<_>>()
        };
        assert_eq!(of("llama", "q4_k_m", gpu(8, 7)), [Engine::LlamaCpp]);
        assert_eq!(of("llama", "awq_int4", gpu(7, 0)), [Engine::Mlc]);
        assert_eq!(of("gpt_oss", "awq_int4", gpu(7, 0)), []);
        assert_eq!(of("llama", "fp32", Target::Cpu).last(), Some(&Engine::Torch));
    }

    #[test]
    fn an_engine_with_a_list_of_architectures_runs_no_others() {
        let runs = |engine, family: &str| check_family(engine, family, gpu(8, 7)).is_ok();
        for family in ["gpt_oss", "gpt-oss", "lfm2", "glm4_moe_lite", "GptOss"] {
            for engine in [Engine::Mlc, Engine::TensorRtEdgeLlm] {
                let refused = check_family(engine, family, gpu(8, 7)).unwrap_err();
                assert!(refused.reason.contains(family) && refused.nearest.is_none(), "{refused}");
            }
            assert!(
                runs(Engine::LlamaCpp, family) && runs(Engine::Vllm, family) && runs(Engine::Torch, family)
            );
        }
        for family in ["llama", "qwen3", "qwen3_moe", "qwen3moe", "qwen3_5_moe_text", "qwen35", "", "unknown"]
        {
            assert!(runs(Engine::Mlc, family) && runs(Engine::TensorRtEdgeLlm, family), "{family}");
        }
        let elsewhere = check_family(Engine::Mlc, "gpt_oss", gpu(5, 0)).unwrap_err();
        assert!(elsewhere.reason.contains("compute capability"), "{elsewhere}");
    }

    #[test]
    fn own_kernels_are_nobody_elses_business() {
        for format in &WeightFormat::ALL {
            for target in [Target::Cpu, gpu(7, 0), Target::Gpu(None)] {
                assert_eq!(check(Engine::Bare, Recipe::of(*format), Some(*format), target), Ok(()));
            }
        }
    }

    #[test]
    fn the_table_has_no_format_twice_and_every_entry_a_source() {
        let table: Table = toml::from_str(include_str!("../config/support.toml")).unwrap();
        assert_eq!(table.engine.len(), 6);
        for platform in &table.engine {
            for entries in [&platform.weights, &platform.cache] {
                for (index, entry) in entries.iter().enumerate() {
                    assert!(entry.source.len() > 8 && !entry.formats.is_empty(), "{entry:?}");
                    assert!(entry.cpu || !entry.gpus.is_empty(), "{entry:?} runs nowhere");
                    for other in &entries[index + 1..] {
                        let shared = entry.formats.iter().any(|format| other.formats.contains(format));
                        assert!(!shared, "{entry:?} {other:?}");
                    }
                }
            }
            if let Some(list) = &platform.architectures {
                let names: std::collections::BTreeSet<_> =
                    list.names.iter().map(|name| plain_family(name)).collect();
                assert!(names.len() == list.names.len() && list.source.len() > 8, "{}", platform.name);
            }
            for format in &platform.preferred {
                assert!(entry(&platform.weights, *format).is_some(), "{} {format}", platform.name);
            }
        }
    }

    #[test]
    fn the_nearest_is_supported_itself() {
        let targets =
            [Target::Cpu, Target::Gpu(None), gpu(7, 0), gpu(8, 7), gpu(9, 0), gpu(11, 0), gpu(12, 1)];
        for platform in platforms() {
            for target in targets {
                for format in &WeightFormat::ALL {
                    if let Err(refused) = check(platform.key, Recipe::of(*format), None, target) {
                        let Some(Nearest::Weights(nearest)) = refused.nearest else { continue };
                        let again = check(platform.key, Recipe::of(nearest), None, target);
                        assert_eq!(again, Ok(()), "{} {format} {target:?}", platform.name);
                    }
                    if let Err(refused) = check_cache(platform.key, *format, target) {
                        let Some(Nearest::Cache(nearest)) = refused.nearest else { continue };
                        let again = check_cache(platform.key, nearest, target);
                        assert_eq!(again, Ok(()), "{} {format} {target:?}", platform.name);
                    }
                }
            }
        }
    }
}
