//! Settings of each engine for a decision: `apply.settings` of a recommendation.
//!
//! Every engine that people use has a line, whichever the decision was made for: the commands that store the weights
//! that way and serve them with that batch and context, or why there are none and the nearest format that the engine
//! has. A part in capitals (`MODEL`, `CHECKPOINT`) is the user's own path. `docs/settings.md` says which version of each
//! engine the names were checked against; `tests/laws/settings` holds them to what those packages contain.

mod llama_cpp;
mod mlc;
mod tensorrt;
mod torch;
mod vllm;

use std::fmt;

use serde_json::{Map, Value};

use decide::snapshot::Snapshot;
use predict::calibration::Accelerator;
use roofline::precision::WeightFormat;
use roofline::workload::recipe::Recipe;

/// What was decided, as far as it concerns engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen<'a> {
    /// The format's key, or the name of a mix that has no format of its own: `q4_k_m`, `awq_int4`, `q3_k_l`.
    pub format: &'a str,
    /// What is generated; `None` for a single operation, which says nothing of batch and context.
    pub text: Option<Text>,
    /// What it runs on.
    pub device: Device,
}

/// Text that is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text {
    pub batch: u64,
    /// Tokens in the cache of every sequence at the end.
    pub context_tokens: u64,
    /// Tokens of every prompt; 0 where only decoding was decided on.
    pub prompt_tokens: u64,
    /// Storage of keys and values; `None` = as the engine does by itself, which is 16 bits.
    pub kv_format: Option<WeightFormat>,
}

/// Tokens of a prompt that one pass takes where nothing is known of prompts: the default of vLLM and llama.cpp.
const USUAL_PASS: u64 = 2048;

impl Text {
    /// Tokens of a sequence in one pass over a prompt.
    const fn pass(self) -> u64 {
        let tokens = if self.prompt_tokens > 0 { self.prompt_tokens } else { self.context_tokens };
        let bounded = if self.prompt_tokens == 0 && tokens > USUAL_PASS { USUAL_PASS } else { tokens };
        if bounded == 0 { 1 } else { bounded }
    }

    /// The cache's storage where an engine that keeps it in the type of `weights` needs a setting.
    fn kv(self, weights: WeightFormat) -> Option<WeightFormat> {
        let own = match weights {
            WeightFormat::Fp32 | WeightFormat::Tf32 => WeightFormat::Fp32,
            WeightFormat::Bf16 => WeightFormat::Bf16,
            _ => WeightFormat::Fp16,
        };
        self.kv_format.filter(|format| !matches!(*format, WeightFormat::Fp16) && *format != own)
    }
}

/// What an engine runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Cpu {
        /// Threads; `None` = the engine's own choice.
        threads: Option<u32>,
    },
    Gpu {
        /// Major and minor; `None` where nobody knows, and then nothing is refused for it.
        compute_capability: Option<(u32, u32)>,
    },
}

impl Device {
    /// What `snapshot` predicts for.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        match snapshot.accelerator {
            Accelerator::Cpu => {
                Self::Cpu { threads: Some(snapshot.roofline.workers).filter(|workers| *workers > 0) }
            }
            Accelerator::Gpu => Self::Gpu {
                compute_capability: snapshot
                    .hardware
                    .as_deref()
                    .and_then(|hardware| hardware.compute_capability),
            },
        }
    }

    const fn is_cpu(self) -> bool {
        matches!(self, Self::Cpu { .. })
    }

    /// Compute capability; `None` on a CPU and where it is not known.
    const fn capability(self) -> Option<(u32, u32)> {
        match self {
            Self::Cpu { .. } => None,
            Self::Gpu { compute_capability } => compute_capability,
        }
    }

    /// Refuses a GPU that is known to be older.
    fn at_least(self, least: (u32, u32), what: &str) -> Result<(), Missing> {
        match self.capability() {
            Some(capability) if capability < least => Err(Missing::because(format!(
                "{what} needs compute capability {}.{} and this GPU has {}.{}",
                least.0, least.1, capability.0, capability.1
            ))),
            _ => Ok(()),
        }
    }

    fn gpu_only(self, engine: &str) -> Result<(), Missing> {
        if self.is_cpu() { Err(Missing::because(format!("{engine} runs on GPUs only"))) } else { Ok(()) }
    }
}

/// What the line of an engine that lacks the format begins with.
pub const MISSING: &str = "not available";

/// Why an engine has no settings for it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Missing {
    why: String,
    nearest: Option<Nearest>,
}

/// What the engine has instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nearest {
    /// Of weights.
    Format(&'static str),
    /// Of keys and values.
    Cache(WeightFormat),
}

impl Missing {
    fn because(why: impl Into<String>) -> Self {
        Self { why: why.into(), nearest: None }
    }

    fn but(why: impl Into<String>, nearest: &'static str) -> Self {
        Self { why: why.into(), nearest: Some(Nearest::Format(nearest)) }
    }

    /// Keys and values are not stored so.
    fn cache(engine: &str, format: WeightFormat, nearest: WeightFormat) -> Self {
        let why = format!("{engine} keeps no keys and values as {format}");
        Self { why, nearest: Some(Nearest::Cache(nearest)) }
    }

    /// Without a nearest format that cannot be had there either.
    fn checked(self, render: Render, chosen: &Chosen<'_>) -> Self {
        let had = |nearest: &Nearest| {
            let (format, kv_format) = match *nearest {
                Nearest::Format(format) => (format, None),
                Nearest::Cache(kv) => (chosen.format, Some(kv)),
            };
            let text = chosen.text.map(|text| Text { kv_format, ..text });
            let instead = Chosen { format, text, device: chosen.device };
            format.parse().is_ok_and(|recipe| render(recipe, &instead).is_ok())
        };
        Self { nearest: self.nearest.filter(had), ..self }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MISSING}: {}", self.why)?;
        match self.nearest {
            None => Ok(()),
            Some(Nearest::Format(format)) => write!(f, "; nearest: {format}"),
            Some(Nearest::Cache(format)) => write!(f, "; nearest: kv_format {format}"),
        }
    }
}

/// The settings of an engine.
type Settings = Result<String, Missing>;

/// Renders the settings of an engine.
type Render = fn(Recipe, &Chosen<'_>) -> Settings;

const ENGINES: [(&str, Render); 7] = [
    ("llama.cpp", llama_cpp::settings),
    ("vllm", vllm::settings),
    ("tensorrt-llm", tensorrt::llm),
    ("tensorrt-edge-llm", tensorrt::edge),
    ("mlc", mlc::settings),
    ("torch", torch::settings),
    ("torchao", torch::config),
];

/// The settings of every engine, by its key; `torchao` is the configuration alone that `torch` applies.
#[must_use]
pub fn settings(chosen: &Chosen<'_>) -> Map<String, Value> {
    let recipe = chosen.format.parse::<Recipe>();
    let line = |render: Render| match &recipe {
        Ok(recipe) => {
            render(*recipe, chosen).unwrap_or_else(|missing| missing.checked(render, chosen).to_string())
        }
        Err(unknown) => Missing::because(unknown.to_string()).to_string(),
    };
    ENGINES.iter().map(|(key, render)| ((*key).to_owned(), line(*render).into())).collect()
}

/// The format of weights that are no GGUF mix; `instead` are what `engine` has of 8 and of 4 bits.
fn checkpoint(recipe: Recipe, engine: &str, instead: [&'static str; 2]) -> Result<WeightFormat, Missing> {
    match recipe {
        Recipe::Checkpoint(format) | Recipe::WithHead { weights: format, .. } => Ok(format),
        Recipe::Gguf(mix) => {
            let nearest = instead[usize::from(mix.base().bits() < 6.0)];
            Err(Missing::but(format!("{engine} reads no GGUF files"), nearest))
        }
    }
}
