//! Things that requests name by a key: operations, engines, objectives and the like.
//!
//! A client writes these names and the model decides by them. They stand apart from what they mean, so that a crate that only
//! asks needs no predictor.

use serde::{Deserialize, Serialize};

/// An enumeration with all its members and the key of each, by which serde reads and writes it too.
#[macro_export]
macro_rules! keyed {
    ($(#[$meta:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $key:literal,)* }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        $(#[$meta])*
        pub enum $name { $($(#[$of])* #[serde(rename = $key)] $variant,)* }

        impl $name {
            /// Every member, in order.
            pub const ALL: [Self; [$($key),*].len()] = [$(Self::$variant),*];

            /// The key on the wire.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$variant => $key,)* }
            }
        }
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// `y = W x`: the weights are `n` rows of `k`.
    Gemv {
        /// Output length.
        n: u64,
        /// Input length.
        k: u64,
    },
    /// `C = A W`: A is `m x k`, W `k x n`.
    Gemm {
        /// Rows of A: tokens, or batch.
        m: u64,
        /// Columns of C.
        n: u64,
        /// The common dimension.
        k: u64,
    },
    /// Scaled dot-product attention of one layer, causal.
    Attention {
        batch: u64,
        heads: u64,
        /// Key/value heads: `heads` = MHA, 1 = MQA, between = GQA.
        kv_heads: u64,
        /// New tokens per sequence: 1 = decode, more = prefill.
        query_tokens: u64,
        /// Tokens already in the cache.
        context_tokens: u64,
        head_dim: u64,
        /// Sliding window; absent = the whole context.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<u64>,
    },
}

impl Op {
    /// `gemv`, `gemm` or `attention`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Gemv { .. } => "gemv",
            Self::Gemm { .. } => "gemm",
            Self::Attention { .. } => "attention",
        }
    }
}

keyed! {
    /// An inference engine, or the bare kernels of this crate.
    #[derive(Default)]
    Engine {
        /// The kernels of this crate, one operation at a time.
        #[default]
        Bare = "none",
        /// Also for Ollama, which starts llama.cpp.
        #[serde(alias = "ollama")]
        LlamaCpp = "llama.cpp",
        Vllm = "vllm",
        TensorRtLlm = "tensorrt-llm",
        TensorRtEdgeLlm = "tensorrt-edge-llm",
        Mlc = "mlc",
        Torch = "torch",
        OnnxRuntime = "onnxruntime",
    }
}

impl Engine {
    /// The engine of this key, or of a name that people use for it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        Self::ALL.into_iter().find(|engine| engine.key() == name || engine.aliases().contains(&name.as_str()))
    }

    const fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::LlamaCpp => &[
                "ollama",
                "llamacpp",
                "llama-cpp",
                "llama_cpp",
                "llama-server",
                "lmstudio",
                "lm-studio",
                "koboldcpp",
                "llamafile",
            ],
            Self::TensorRtLlm => &["trtllm", "trt-llm", "tensorrt_llm", "tensorrtllm"],
            Self::TensorRtEdgeLlm => &["trt-edge-llm", "edge-llm", "tensorrt_edge_llm"],
            Self::Mlc => &["mlc-llm", "mlc_llm"],
            Self::Torch => &["pytorch", "transformers", "huggingface"],
            Self::OnnxRuntime => &["ort", "onnx-runtime"],
            Self::Bare | Self::Vllm => &[],
        }
    }
}

/// The optimization objective.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    #[default]
    Latency,
    /// Most tokens (columns) per second.
    Throughput,
    /// Least energy per token.
    Energy,
    Power,
}

keyed! {
    /// Vector instructions that the kernels of this program may use.
    #[derive(Default)]
    InstructionSet {
        /// The best ones of the processor.
        #[default]
        Auto = "auto",
        Avx512Vnni = "avx512_vnni",
        Avx512 = "avx512",
        AvxVnni = "avx_vnni",
        Avx2 = "avx2",
        Sse2 = "sse2",
        NeonI8mm = "neon_i8mm",
        NeonDotprod = "neon_dotprod",
        Neon = "neon",
    }
}

keyed! {
    /// An engine that runs vision networks.
    NetworkEngine {
        /// NVIDIA's, on GPUs.
        TensorRt = "tensorrt",
        /// On CPUs, and on GPUs by CUDA.
        OnnxRuntime = "onnxruntime",
    }
}

impl NetworkEngine {
    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TensorRt => "TensorRT",
            Self::OnnxRuntime => "ONNX Runtime",
        }
    }
}

keyed! {
    /// What a latency of a vision network covers.
    #[derive(Default)]
    NetworkScope {
        /// The engine alone, with its input and output where it needs them.
        #[default]
        Engine = "engine",
        /// With the copies of input and output.
        Copies = "copies",
        /// With everything from a decoded picture to boxes: resizing, normalising and what comes after the network.
        Frame = "frame",
    }
}

keyed! {
    /// What the energy of a run counts.
    #[derive(Default)]
    EnergyBasis {
        /// Everything that the machine draws while it runs.
        #[default]
        WithIdle = "with_idle",
        /// What the run adds to a machine that is on anyway.
        Marginal = "marginal",
    }
}

/// Which end of the interval must meet a constraint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Optimism {
    /// The worse end of the 90 % interval.
    #[default]
    Pessimistic,
    /// The best estimate.
    Expected,
}

/// How thorough a calibration is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanKind {
    /// Everything, within ten seconds.
    #[default]
    Full,
    /// The ceilings and the main formats, within two seconds.
    Quick,
}
