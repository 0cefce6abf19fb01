//! Settings of each engine for a decision: `apply.settings` of a recommendation.
//!
//! Every engine that people use has a line, whichever the decision was made for: the commands that store the weights
//! that way and serve them with that batch and context, or why there are none and the nearest format that the engine
//! has. A part in capitals (`MODEL`, `CHECKPOINT`) is the user's own path. `docs/internals/settings.md` says which version of each
//! engine the names were checked against; `tests/laws/settings` holds them to what those packages contain.

mod llama_cpp;
mod mlc;
mod tensorrt;
mod torch;
mod vllm;

use serde_json::{Map, Value};

use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Bytes;
use rooflined_models::recipe::Recipe;
use rooflined_models::support::{Target, Unsupported, check, check_family};
use rooflined_models::transformer::{DraftKind, MemoryFootprint, USUAL_PASS};
use rooflined_predict::Engine;
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::optimize::ModelOrigin;
use rooflined_predict::snapshot::Snapshot;

/// Engines whose options for speculative decoding are known.
pub const SPECULATING: [Engine; 2] = [Engine::LlamaCpp, Engine::Vllm];

/// What was decided, as far as it concerns engines.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen<'a> {
    /// The format's key, or the name of a mix that has no format of its own: `q4_k_m`, `awq_int4`, `q3_k_l`.
    pub format: &'a str,
    /// What is generated; `None` for a single operation, which says nothing of batch and context.
    pub text: Option<Text>,
    /// Architecture of the model; empty for a single operation.
    pub family: &'a str,
    /// What it runs on.
    pub device: Device,
    /// How weights in the format are come by.
    pub origin: ModelOrigin,
    /// The memory, where CPU and GPU share one: an engine would take most of it by itself.
    pub shared: Option<SharedMemory>,
}

/// A memory that CPU and GPU share, and what the model takes of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedMemory {
    pub total: Bytes,
    /// What can be had now without swapping. vLLM asks the kernel for it, too: the driver counts the page cache as taken.
    pub available: Bytes,
    /// What of that the model may take.
    pub room: Bytes,
    pub footprint: MemoryFootprint,
}

impl SharedMemory {
    /// Most of all memory that one engine is given. With 0.92, vLLM's default, it does not start on a GB10, whose system
    /// has more than the rest (vLLM 0.33: v1/worker/utils.py, `request_memory`).
    pub const MOST: f64 = 0.85;
    /// By how much an engine may need more than was predicted.
    const MARGIN: f64 = 0.02;

    /// Part of all memory that the model needs, but no more than it may take.
    fn ratio(&self) -> Option<f64> {
        let most = (self.room / self.total).min(Self::MOST);
        rounded(self.footprint.total() * (1.0 + Self::MARGIN) / self.total, most)
    }

    /// Part of what is free after weights and buffers that the cache needs, but no more than it may take.
    fn cache_ratio(&self) -> Option<f64> {
        let rest = self.footprint.total() - self.footprint.kv_cache;
        let (free, room) = (self.available - rest, self.room - rest);
        rounded(self.footprint.kv_cache * (1.0 + Self::MARGIN) / free, room / free)
    }
}

/// A part that is needed, in thousandths, and at most what there is; `None` where nothing is left.
fn rounded(needed: f64, most: f64) -> Option<f64> {
    let thousandths = (1000.0 * needed).ceil().min((1000.0 * most).floor());
    (1.0..1000.0).contains(&thousandths).then_some(thousandths / 1000.0)
}

/// Text that is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text {
    pub batch: u64,
    /// Tokens that the cache of every sequence has room for.
    pub context_tokens: u64,
    /// Tokens of every prompt; 0 where only decoding was decided on.
    pub prompt_tokens: u64,
    /// Tokens of a sequence in one pass over its prompt, as predicted; `None` = all of it.
    pub chunk_tokens: Option<u64>,
    /// Storage of keys and values; `None` = as the engine does by itself, which is 16 bits.
    pub kv_format: Option<WeightFormat>,
    /// What drafts, and how many tokens of every sequence and step.
    pub drafts: Option<(DraftKind, u64)>,
    /// Layers whose experts stay in the memory of the CPU.
    pub cpu_moe_layers: u64,
    /// Layers on the card where not all are there, the output counted as one.
    pub gpu_layers: Option<u64>,
}

impl Text {
    /// Tokens of a sequence in one pass over a prompt.
    const fn pass(self) -> u64 {
        let tokens = if self.prompt_tokens > 0 { self.prompt_tokens } else { self.context_tokens };
        let most = match self.chunk_tokens {
            Some(chunk) => chunk,
            None if self.prompt_tokens == 0 => USUAL_PASS,
            None => u64::MAX,
        };
        let bounded = if tokens > most { most } else { tokens };
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
                let workers = snapshot.roofline.workers;
                Self::Cpu { threads: (workers > 0).then(|| workers.min(snapshot.physical_cores())) }
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

    /// Where the table of what engines support looks for it.
    #[must_use]
    pub const fn target(self) -> Target {
        match self {
            Self::Cpu { .. } => Target::Cpu,
            Self::Gpu { compute_capability } => Target::Gpu(compute_capability),
        }
    }

    /// Whether it is a GPU of this compute capability or a newer one; unknown ones are taken for older.
    fn at_least(self, least: (u32, u32)) -> bool {
        matches!(self, Self::Gpu { compute_capability: Some(capability) } if capability >= least)
    }
}

/// What the line of an engine that lacks the format begins with.
pub const MISSING: &str = "not available";

/// Renders the settings of an engine for what it supports; `None` where there is no name for it, which a test rules out.
type Render = fn(Recipe, &Chosen<'_>) -> Option<String>;

const ENGINES: [(&str, Engine, Render); 7] = [
    ("llama.cpp", Engine::LlamaCpp, llama_cpp::settings),
    ("vllm", Engine::Vllm, vllm::settings),
    ("tensorrt-llm", Engine::TensorRtLlm, tensorrt::llm),
    ("tensorrt-edge-llm", Engine::TensorRtEdgeLlm, tensorrt::edge),
    ("mlc", Engine::Mlc, mlc::settings),
    ("torch", Engine::Torch, torch::settings),
    ("torchao", Engine::Torch, torch::config),
];

/// The settings of every engine, by its key; `torchao` is the configuration alone that `torch` applies.
#[must_use]
pub fn settings(chosen: &Chosen<'_>) -> Map<String, Value> {
    let recipe = chosen.format.parse::<Recipe>();
    let line = |engine: Engine, render: Render| {
        let recipe = recipe.as_ref().map_err(ToString::to_string)?;
        if chosen.text.is_some_and(|text| text.drafts.is_some()) && !SPECULATING.contains(&engine) {
            return Err(format!("how to configure {} for speculative decoding is not known", engine.key()));
        }
        let kv_format = chosen.text.and_then(|text| text.kv_format);
        let target = chosen.device.target();
        check_family(engine, chosen.family, target)
            .and_then(|()| check(engine, *recipe, kv_format, target))
            .map_err(|unsupported| shown(&unsupported))?;
        render(*recipe, chosen).ok_or_else(|| format!("{recipe} has no name there"))
    };
    let lines = ENGINES.iter().map(|(key, engine, render)| {
        let line = line(*engine, *render).unwrap_or_else(|why| format!("{MISSING}: {why}"));
        ((*key).to_owned(), line.into())
    });
    lines.collect()
}

/// Why an engine has none, and the nearest that it has.
fn shown(unsupported: &Unsupported) -> String {
    match unsupported.nearest {
        None => unsupported.reason.clone(),
        Some(nearest) => format!("{}; nearest: {nearest}", unsupported.reason),
    }
}

/// The format of weights that are no GGUF mix.
const fn checkpoint(recipe: Recipe) -> Option<WeightFormat> {
    match recipe {
        Recipe::Checkpoint(format) | Recipe::WithHead { weights: format, .. } => Some(format),
        Recipe::Gguf(_) => None,
    }
}
