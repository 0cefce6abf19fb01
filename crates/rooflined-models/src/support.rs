//! What inference engines can run: one table of engine, number format, GPU and key/value cache, each entry with its source.
//!
//! Predictions, recommendations, settings lines and `docs/internals/settings.md` all ask here, so that none of them offers what
//! another refuses. What an engine reads but leaves slow ("GGUF in vLLM"), or emulates for want of a unit (NVFP4 before
//! Blackwell), counts as not supported: a prediction from its tuned kernels would mislead. This crate's own kernels
//! (`none`) have no entries; the probe knows what they compute.

use std::fmt;

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

/// GPUs with a compute capability from the first to the last, both included.
type Range = (Capability, Capability);

const NEWEST: Capability = (u32::MAX, u32::MAX);
const FROM_5_0: &[Range] = &[((5, 0), NEWEST)];
const FROM_7_0: &[Range] = &[((7, 0), NEWEST)];
const FROM_7_5: &[Range] = &[((7, 5), NEWEST)];
const FROM_8_0: &[Range] = &[((8, 0), NEWEST)];
const FROM_8_9: &[Range] = &[((8, 9), NEWEST)];
const FROM_10_0: &[Range] = &[((10, 0), NEWEST)];

/// What one entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    Weights,
    /// Keys and values in another type than that of the model, or than 16 bits.
    Cache,
}

/// Formats that an engine runs on the same machines.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub engine: Engine,
    pub stores: Stores,
    pub formats: &'static [WeightFormat],
    /// Whether it runs on CPUs.
    pub cpu: bool,
    /// GPUs that it runs on.
    pub gpus: &'static [Range],
    /// What holds outside of these GPUs, where there is more to say than that it needs others.
    pub otherwise: &'static str,
    /// Version and place that say so.
    pub source: &'static str,
}

/// Where an engine as a whole runs.
#[derive(Debug, Clone, Copy)]
pub struct Platform {
    pub engine: Engine,
    /// The name that people write.
    pub name: &'static str,
    pub cpu: bool,
    pub gpus: &'static [Range],
    /// What to use instead on some of the GPUs that it leaves out.
    pub instead: Option<(&'static [Range], &'static str)>,
    pub source: &'static str,
    /// Formats of weights to fall back on, the usual ones first.
    pub preferred: &'static [WeightFormat],
}

use WeightFormat as F;

/// Every GPU of TensorRT-LLM's support matrix; those of Jetsons (7.2, 8.7, 11.0) are not in it.
const TENSORRT_LLM: &[Range] = &[((8, 0), (8, 6)), ((8, 9), (10, 3)), ((12, 0), (12, 1))];

/// The GPUs of Jetsons for which NVIDIA has another engine: Orin and Thor.
const TENSORRT_EDGE_LLM: &[Range] = &[((8, 7), (8, 7)), ((11, 0), (11, 0))];

/// Engines with entries.
pub const PLATFORMS: &[Platform] = &[
    Platform {
        engine: Engine::LlamaCpp,
        name: "llama.cpp",
        cpu: true,
        gpus: FROM_5_0,
        instead: None,
        source: "llama.cpp b11434, docs/build.md",
        preferred: &[F::Q4KM, F::Q8_0, F::Fp16, F::Q6K, F::Q5KM, F::Fp32, F::Bf16, F::Tq2_0],
    },
    Platform {
        engine: Engine::Vllm,
        name: "vLLM",
        cpu: true,
        gpus: FROM_7_0,
        instead: None,
        source: "vLLM 0.33.0, docs/getting_started/installation/gpu.md",
        preferred: &[F::AwqInt4, F::GptqInt4, F::Int8, F::Fp8E4m3, F::Fp16, F::Bf16, F::Fp32],
    },
    Platform {
        engine: Engine::TensorRtLlm,
        name: "TensorRT-LLM",
        cpu: false,
        gpus: TENSORRT_LLM,
        instead: Some((TENSORRT_EDGE_LLM, "on Jetsons use tensorrt-edge-llm")),
        source: "TensorRT-LLM 1.3, docs/source/reference/support-matrix.md",
        preferred: &[F::AwqInt4, F::Nvfp4, F::Fp8E4m3, F::Fp16, F::Bf16],
    },
    Platform {
        engine: Engine::TensorRtEdgeLlm,
        name: "TensorRT-Edge-LLM",
        cpu: false,
        gpus: FROM_8_0,
        instead: None,
        source: "TensorRT-Edge-LLM 0.11, docs: Overview, Supported Platforms",
        preferred: &[F::AwqInt4, F::GptqInt4, F::Int8, F::Fp8E4m3, F::Fp16],
    },
    Platform {
        engine: Engine::Mlc,
        name: "MLC LLM",
        cpu: true,
        gpus: FROM_7_0,
        instead: None,
        source: "mlc-llm main of 2026, docs/install/gpu.rst",
        preferred: &[F::Int4G32, F::Fp16, F::Fp32, F::Fp8E4m3],
    },
    Platform {
        engine: Engine::Torch,
        name: "torchao",
        cpu: true,
        gpus: FROM_7_0,
        instead: None,
        source: "torchao 0.18.0, README.md",
        preferred: &[F::Int4G128, F::Int8, F::Bf16, F::Fp16, F::Fp32],
    },
];

/// Formats of weights that GGUF files have and llama.cpp reads.
const GGUF: &[WeightFormat] = &[
    F::Fp32,
    F::Fp16,
    F::Bf16,
    F::Mxfp4,
    F::Nvfp4,
    F::Q4_0,
    F::Q4_1,
    F::Q5_0,
    F::Q5_1,
    F::Q8_0,
    F::Q2K,
    F::Q3KM,
    F::Q4KS,
    F::Q4KM,
    F::Q5KS,
    F::Q5KM,
    F::Q6K,
    F::Iq4Xs,
    F::Iq4Nl,
    F::Iq1S,
    F::Iq1M,
    F::Iq2Xxs,
    F::Iq2Xs,
    F::Iq2S,
    F::Iq3Xxs,
    F::Iq3S,
    F::Tq1_0,
    F::Tq2_0,
    F::Q1_0,
];

const fn weights(
    engine: Engine,
    formats: &'static [WeightFormat],
    cpu: bool,
    gpus: &'static [Range],
    source: &'static str,
) -> Entry {
    Entry { engine, stores: Stores::Weights, formats, cpu, gpus, otherwise: "", source }
}

const fn cache(
    engine: Engine,
    formats: &'static [WeightFormat],
    cpu: bool,
    gpus: &'static [Range],
    source: &'static str,
) -> Entry {
    Entry { engine, stores: Stores::Cache, formats, cpu, gpus, otherwise: "", source }
}

/// The table.
pub const TABLE: &[Entry] = &[
    weights(
        Engine::LlamaCpp,
        GGUF,
        true,
        FROM_5_0,
        "llama.cpp b11434, tools/quantize/quantize.cpp and ggml/src/ggml-cuda/mmvq.cu",
    ),
    weights(
        Engine::LlamaCpp,
        &[F::Tf32],
        false,
        FROM_8_0,
        "F32 files; CUDA C++ Programming Guide: TF32 from compute capability 8.0",
    ),
    cache(
        Engine::LlamaCpp,
        &[F::Fp32, F::Bf16, F::Q8_0, F::Q4_0, F::Q4_1, F::Iq4Nl, F::Q5_0, F::Q5_1],
        true,
        FROM_5_0,
        "llama.cpp b11434, common/arg.cpp: kv_cache_types",
    ),
    weights(
        Engine::Vllm,
        &[F::Fp32, F::Fp16],
        true,
        FROM_7_0,
        "vLLM 0.33.0, vllm/config/model.py: ModelDType",
    ),
    weights(
        Engine::Vllm,
        &[F::Bf16],
        true,
        FROM_8_0,
        "vLLM 0.33.0, vllm/platforms/cuda.py: bfloat16 from 8.0",
    ),
    weights(
        Engine::Vllm,
        &[F::Tf32],
        false,
        FROM_8_0,
        "vLLM 0.33.0, vllm/envs.py: VLLM_FLOAT32_MATMUL_PRECISION",
    ),
    Entry {
        otherwise: "Marlin expands FP8 to 16 bits from 7.5 on",
        ..weights(
            Engine::Vllm,
            &[F::Fp8E4m3],
            true,
            FROM_7_5,
            "vLLM 0.33.0, quantization/fp8.py: get_min_capability 75",
        )
    },
    weights(
        Engine::Vllm,
        &[F::Int8, F::Int4, F::Int4G32, F::Int4G64, F::Int4G128],
        true,
        FROM_7_5,
        "vLLM 0.33.0, compressed_tensors_w8a8_int8.py and compressed_tensors_wNa16.py: get_min_capability 75",
    ),
    weights(
        Engine::Vllm,
        &[F::AwqInt4],
        true,
        FROM_7_5,
        "vLLM 0.33.0, quantization/auto_awq.py: get_min_capability 75",
    ),
    weights(
        Engine::Vllm,
        &[F::GptqInt4],
        true,
        FROM_7_0,
        "vLLM 0.33.0, quantization/auto_gptq.py: get_min_capability 60; vLLM itself from 7.0",
    ),
    weights(
        Engine::Vllm,
        &[F::Mxfp4, F::Mxfp8],
        false,
        FROM_8_0,
        "vLLM 0.33.0, quantization/mxfp4.py and modelopt.py: get_min_capability 80",
    ),
    Entry {
        otherwise: "older GPUs have no unit for FP4, and vLLM expands it to 16 bits (Marlin)",
        ..weights(
            Engine::Vllm,
            &[F::Nvfp4],
            false,
            FROM_10_0,
            "vLLM 0.33.0, kernels/linear/nvfp4/marlin.py: no native support for FP4",
        )
    },
    cache(
        Engine::Vllm,
        &[F::Fp8E4m3, F::Fp8E5m2],
        true,
        FROM_8_9,
        "vLLM 0.33.0, v1/attention/backends/triton_attn.py: FP8 KV cache requires SM89+",
    ),
    cache(
        Engine::Vllm,
        &[F::Bf16],
        true,
        FROM_8_0,
        "vLLM 0.33.0, v1/attention/backends/triton_attn.py: bfloat16 requires SM80+",
    ),
    cache(
        Engine::Vllm,
        &[F::Int8, F::Int4],
        false,
        FROM_8_0,
        "vLLM 0.33.0, v1/attention/backends/triton_attn.py: int8_per_token_head, int4_per_token_head",
    ),
    cache(
        Engine::Vllm,
        &[F::Nvfp4],
        false,
        FROM_10_0,
        "vLLM 0.33.0, v1/attention/backends/flashinfer.py: nvfp4",
    ),
    weights(
        Engine::TensorRtLlm,
        &[F::Fp32, F::Fp16, F::Bf16],
        false,
        TENSORRT_LLM,
        "TensorRT-LLM 1.3, docs/source/reference/support-matrix.md",
    ),
    weights(
        Engine::TensorRtLlm,
        &[F::Fp8E4m3],
        false,
        &[((8, 9), (10, 3)), ((12, 0), (12, 1))],
        "TensorRT-LLM 1.3, docs/source/features/quantization.md: FP8 from Ada on",
    ),
    weights(
        Engine::TensorRtLlm,
        &[F::Nvfp4, F::Mxfp4],
        false,
        &[((10, 0), (10, 3)), ((12, 0), (12, 1))],
        "TensorRT-LLM 1.3, docs/source/features/quantization.md: NVFP4 and MXFP4 on Blackwell",
    ),
    weights(
        Engine::TensorRtLlm,
        &[F::Int4G128, F::AwqInt4, F::GptqInt4],
        false,
        &[((8, 0), (8, 6)), ((8, 9), (10, 3))],
        "TensorRT-LLM 1.3, docs/source/features/quantization.md: W4A16 AWQ and GPTQ, not on 12.x",
    ),
    cache(
        Engine::TensorRtLlm,
        &[F::Bf16],
        false,
        TENSORRT_LLM,
        "TensorRT-LLM 1.3, docs/source/features/quantization.md",
    ),
    cache(
        Engine::TensorRtLlm,
        &[F::Fp8E4m3],
        false,
        &[((8, 9), (10, 3)), ((12, 0), (12, 1))],
        "TensorRT-LLM 1.3, docs/source/features/quantization.md: FP8 KV cache",
    ),
    cache(
        Engine::TensorRtLlm,
        &[F::Nvfp4],
        false,
        &[((10, 0), (10, 3))],
        "TensorRT-LLM 1.3, docs/source/features/quantization.md: NVFP4 KV cache",
    ),
    weights(
        Engine::TensorRtEdgeLlm,
        &[F::Fp16, F::Int8, F::Int4G128, F::AwqInt4, F::GptqInt4],
        false,
        FROM_8_0,
        "TensorRT-Edge-LLM 0.11, docs: Overview: Jetson Orin has FP16, INT8 and INT4 only",
    ),
    weights(
        Engine::TensorRtEdgeLlm,
        &[F::Fp8E4m3],
        false,
        FROM_8_9,
        "TensorRT-Edge-LLM 0.11, docs: Supported Models: FP8 from SM89 on",
    ),
    weights(
        Engine::TensorRtEdgeLlm,
        &[F::Nvfp4, F::Mxfp8],
        false,
        FROM_10_0,
        "TensorRT-Edge-LLM 0.11, docs: Supported Models: NVFP4 from SM100 on",
    ),
    cache(
        Engine::TensorRtEdgeLlm,
        &[F::Fp8E4m3],
        false,
        FROM_8_9,
        "TensorRT-Edge-LLM 0.11, docs: FP8 KV Cache",
    ),
    weights(
        Engine::Mlc,
        &[F::Fp32, F::Fp16, F::Bf16, F::Int4G32, F::AwqInt4],
        true,
        FROM_7_0,
        "mlc-llm main of 2026, python/mlc_llm/quantization/quantization.py",
    ),
    weights(
        Engine::Mlc,
        &[F::Fp8E4m3, F::Fp8E5m2],
        false,
        FROM_8_9,
        "mlc-llm docs: Quantization: FP8 on CUDA; PTX ISA: mma of FP8 from sm_89 on",
    ),
    weights(Engine::Torch, &[F::Fp32, F::Fp16, F::Bf16], true, FROM_7_0, "torch 2.15.0, torch.Tensor.to"),
    weights(Engine::Torch, &[F::Tf32], false, FROM_8_0, "torch 2.15.0, torch.set_float32_matmul_precision"),
    weights(
        Engine::Torch,
        &[F::Int8, F::Fp8E4m3, F::Fp8E5m2, F::Nf4],
        true,
        FROM_7_0,
        "torchao 0.18.0, quantization/quant_api.py; FP8 is multiplied as such from 8.9 on",
    ),
    weights(
        Engine::Torch,
        &[F::Int4G32, F::Int4G64, F::Int4G128, F::AwqInt4],
        true,
        FROM_8_0,
        "torchao 0.18.0, quantization/quant_api.py: tile_packed_to_4d",
    ),
    weights(
        Engine::Torch,
        &[F::GptqInt4],
        false,
        FROM_8_0,
        "torchao 0.18.0, prototype/gptq: kernels of mslk",
    ),
    Entry {
        otherwise: "elsewhere torchao emulates it",
        ..weights(
            Engine::Torch,
            &[F::Nvfp4, F::Mxfp4, F::Mxfp8],
            false,
            FROM_10_0,
            "torchao 0.18.0, prototype/mx_formats/README.md",
        )
    },
    cache(
        Engine::Torch,
        &[F::Fp32, F::Bf16],
        true,
        FROM_7_0,
        "torch 2.15.0: the cache is of the type of the model",
    ),
];

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
    let Some(platform) = PLATFORMS.iter().find(|platform| platform.engine == engine) else { return Ok(()) };
    platform.runs_on(target)?;
    platform.stores(recipe, target)?;
    match kv_format {
        Some(format) => platform.caches(recipe, format, target),
        None => Ok(()),
    }
}

/// The engines of the table that run a model stored by `recipe` on `target`.
pub fn engines(recipe: Recipe, target: Target) -> impl Iterator<Item = Engine> {
    let engines = PLATFORMS.iter().map(|platform| platform.engine);
    engines.filter(move |engine| check(*engine, recipe, None, target).is_ok())
}

/// Whether `engine` keeps keys and values as `kv_format` on `target`, whatever the weights are stored as.
///
/// # Errors
/// As [`check`].
pub fn check_cache(engine: Engine, kv_format: WeightFormat, target: Target) -> Result<(), Unsupported> {
    let Some(platform) = PLATFORMS.iter().find(|platform| platform.engine == engine) else { return Ok(()) };
    platform.runs_on(target)?;
    platform.caches(Recipe::Checkpoint(WeightFormat::Fp16), kv_format, target)
}

impl Platform {
    fn runs_on(&self, target: Target) -> Result<(), Unsupported> {
        let refused = |reason| Err(Unsupported { reason, nearest: None, source: self.source });
        match target {
            Target::Cpu if !self.cpu => refused(format!("{} runs on GPUs only", self.name)),
            Target::Gpu(_) if self.gpus.is_empty() => refused(format!("{} runs on CPUs only", self.name)),
            Target::Gpu(Some(capability)) if !within(self.gpus, capability) => {
                let mut reason = format!("{} does not support {}", self.name, shown(capability));
                if let Some((_, instead)) = self.instead.filter(|(gpus, _)| within(gpus, capability)) {
                    reason = format!("{reason}: {instead}");
                }
                refused(reason)
            }
            _ => Ok(()),
        }
    }

    fn stores(&self, recipe: Recipe, target: Target) -> Result<(), Unsupported> {
        let (format, bits) = match recipe {
            Recipe::Checkpoint(format) | Recipe::WithHead { weights: format, .. } => {
                (Some(format), format.bits_per_weight())
            }
            Recipe::Gguf(mix) => (of_mix(mix), mix.base().bits()),
        };
        let nearest = || self.nearest(bits, format, target).map(Nearest::Weights);
        let refused = |reason, source| Err(Unsupported { reason, nearest: nearest(), source });
        if self.engine == Engine::LlamaCpp {
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
            return match self.engine {
                Engine::Vllm => refused(
                    "vLLM reads GGUF files through a plugin that is not tuned and slow".to_owned(),
                    "vLLM docs, features/quantization/gguf.md: highly experimental and under-optimized",
                ),
                _ => refused(format!("{} reads no GGUF files ({})", self.name, recipe.key()), self.source),
            };
        }
        let Some(format) = format else { return refused(self.lacks(recipe.key()), self.source) };
        match self.entry(Stores::Weights, format) {
            None => refused(self.lacks(format.key()), self.source),
            Some(entry) => match self.missing(entry, format, target) {
                None => Ok(()),
                Some(reason) => refused(reason, entry.source),
            },
        }
    }

    fn caches(&self, recipe: Recipe, format: WeightFormat, target: Target) -> Result<(), Unsupported> {
        if format == WeightFormat::Fp16 || (self.engine != Engine::LlamaCpp && format == own_type(recipe)) {
            return Ok(());
        }
        let offered = |entry: &&Entry| entry.engine == self.engine && entry.stores == Stores::Cache;
        let had = TABLE.iter().filter(offered).filter(|entry| entry.runs_on(target));
        let all = had.flat_map(|entry| entry.formats).copied().chain([WeightFormat::Fp16]);
        let nearest = nearest_of(all, format.bits_per_weight(), Some(format)).map(Nearest::Cache);
        let (reason, source) = match self.entry(Stores::Cache, format) {
            None => (format!("{} keeps no keys and values as {format}", self.name), self.cache_source()),
            Some(entry) => match self.missing(entry, format, target) {
                None => return Ok(()),
                Some(reason) => (format!("keys and values: {reason}"), entry.source),
            },
        };
        Err(Unsupported { reason, nearest, source })
    }

    fn lacks(&self, key: &str) -> String {
        format!("{} has no {key}", self.name)
    }

    fn cache_source(&self) -> &'static str {
        let first = TABLE.iter().find(|entry| entry.engine == self.engine && entry.stores == Stores::Cache);
        first.map_or(self.source, |entry| entry.source)
    }

    fn entry(&self, stores: Stores, format: WeightFormat) -> Option<&'static Entry> {
        TABLE.iter().find(|entry| {
            entry.engine == self.engine && entry.stores == stores && entry.formats.contains(&format)
        })
    }

    /// What the target lacks for an entry.
    fn missing(&self, entry: &Entry, format: WeightFormat, target: Target) -> Option<String> {
        let capability = match target {
            _ if entry.runs_on(target) => return None,
            Target::Cpu => return Some(format!("{} has no {format} on CPUs", self.name)),
            Target::Gpu(capability) => capability?,
        };
        let needs = match entry.gpus.first() {
            Some((least, _)) if capability < *least => format!(
                "{format} in {} needs compute capability {}.{} and this GPU has {}.{}",
                self.name, least.0, least.1, capability.0, capability.1
            ),
            _ => format!("{} has no {format} on {}", self.name, shown(capability)),
        };
        Some(if entry.otherwise.is_empty() { needs } else { format!("{needs}: {}", entry.otherwise) })
    }

    /// The format closest to `bits` that it runs there, the usual ones first.
    fn nearest(&self, bits: f64, wanted: Option<WeightFormat>, target: Target) -> Option<WeightFormat> {
        let runs = |format: &WeightFormat| {
            self.entry(Stores::Weights, *format).is_some_and(|entry| entry.runs_on(target))
        };
        nearest_of(self.preferred.iter().copied().filter(runs), bits, wanted)
    }
}

impl Entry {
    /// Whether the target has what it needs.
    #[must_use]
    pub fn runs_on(&self, target: Target) -> bool {
        match target {
            Target::Cpu => self.cpu,
            Target::Gpu(None) => !self.gpus.is_empty(),
            Target::Gpu(Some(capability)) => within(self.gpus, capability),
        }
    }
}

fn within(ranges: &[Range], capability: Capability) -> bool {
    ranges.iter().any(|(least, most)| (*least..=*most).contains(&capability))
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
        let cache = check_cache(Engine::LlamaCpp, F::Fp8E4m3, gpu(9, 0)).unwrap_err();
        assert_eq!(cache.nearest, Some(Nearest::Cache(F::Q8_0)), "{cache}");
        let cache = check_cache(Engine::Vllm, F::Fp8E4m3, gpu(8, 7)).unwrap_err();
        assert_eq!(cache.nearest, Some(Nearest::Cache(F::Int8)), "{cache}");
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
    }

    #[test]
    fn the_engines_of_a_format_are_those_that_run_it() {
        let of = |format: &str, target| engines(format.parse().unwrap(), target).collect::<Vec<_>>();
        assert_eq!(of("q4_k_m", gpu(8, 7)), [Engine::LlamaCpp]);
        assert_eq!(of("awq_int4", gpu(7, 0)), [Engine::Mlc]);
        assert_eq!(of("fp32", Target::Cpu).last(), Some(&Engine::Torch));
    }

    #[test]
    fn own_kernels_are_nobody_elses_business() {
        for format in WeightFormat::ALL {
            for target in [Target::Cpu, gpu(7, 0), Target::Gpu(None)] {
                assert_eq!(check(Engine::Bare, Recipe::of(*format), Some(*format), target), Ok(()));
            }
        }
    }

    #[test]
    fn the_table_has_no_format_twice_and_every_entry_a_source() {
        for (index, entry) in TABLE.iter().enumerate() {
            assert!(entry.source.len() > 8 && !entry.formats.is_empty(), "{entry:?}");
            assert!(entry.cpu || !entry.gpus.is_empty(), "{entry:?} runs nowhere");
            assert!(PLATFORMS.iter().any(|platform| platform.engine == entry.engine), "{entry:?}");
            for other in &TABLE[index + 1..] {
                let both = entry.engine == other.engine && entry.stores == other.stores;
                let shared = entry.formats.iter().any(|format| other.formats.contains(format));
                assert!(!both || !shared, "{entry:?} {other:?}");
            }
        }
        for platform in PLATFORMS {
            for format in platform.preferred {
                assert!(platform.entry(Stores::Weights, *format).is_some(), "{} {format}", platform.name);
            }
        }
    }

    #[test]
    fn the_nearest_is_supported_itself() {
        let targets =
            [Target::Cpu, Target::Gpu(None), gpu(7, 0), gpu(8, 7), gpu(9, 0), gpu(11, 0), gpu(12, 1)];
        for platform in PLATFORMS {
            for target in targets {
                for format in WeightFormat::ALL {
                    if let Err(refused) = check(platform.engine, Recipe::of(*format), None, target) {
                        let Some(Nearest::Weights(nearest)) = refused.nearest else { continue };
                        let again = check(platform.engine, Recipe::of(nearest), None, target);
                        assert_eq!(again, Ok(()), "{} {format} {target:?}", platform.name);
                    }
                    if let Err(refused) = check_cache(platform.engine, *format, target) {
                        let Some(Nearest::Cache(nearest)) = refused.nearest else { continue };
                        let again = check_cache(platform.engine, nearest, target);
                        assert_eq!(again, Ok(()), "{} {format} {target:?}", platform.name);
                    }
                }
            }
        }
    }
}
