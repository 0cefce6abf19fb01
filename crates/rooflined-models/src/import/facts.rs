//! What a file says of its model, whichever kind of file it is.

use super::ImportError;
use crate::architecture::{
    Description, Experts, InvalidModel, Latent, LayerKind, Linear, MAX_LAYERS, MAX_WIDTH,
};

/// What a file says about its model, as far as it says it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Facts {
    pub family: String,
    pub name: Option<String>,
    pub hidden: Option<u64>,
    pub vocab: Option<u64>,
    /// Layers, without those that draft.
    pub layers: Option<u64>,
    /// Layers behind the last that draft tokens.
    pub drafts: u64,
    pub heads: Option<u64>,
    pub kv_heads: Option<u64>,
    pub kv_heads_by_layer: Vec<u64>,
    pub head_dim: Option<u64>,
    pub value_dim: Option<u64>,
    pub window: Option<u64>,
    pub global: Option<(u64, u64)>,
    pub shared_kv: bool,
    pub output_gate: bool,
    pub intermediate: Option<u64>,
    pub intermediate_by_layer: Vec<u64>,
    pub gated: Option<bool>,
    pub experts: Option<Experts>,
    pub sparse: Vec<bool>,
    pub latent: Option<Latent>,
    pub linear: Option<Linear>,
    /// The kind of every layer; empty = not said.
    pub kinds: Vec<LayerKind>,
    pub separate_blocks: bool,
    pub tied: Option<bool>,
    /// Layers that read the cache of others instead of keeping one.
    pub reused: u64,
    pub heads_by_layer: Vec<u64>,
    /// It embeds or ranks text, and generates none.
    pub encoder: bool,
    /// It scores documents.
    pub ranks: bool,
    pub context: Option<u64>,
}

/// What a reader of an encoder's figures should know.
pub(super) const ENCODER: &str = "it is an encoder, which embeds or ranks documents: it has no decode, no cache and no head, and \
     predictions are of documents";

/// Families whose figures are read as their own engines read them.
const KNOWN: &[&str] = &[
    "llama",
    "llama4",
    "llama4_text",
    "mistral",
    "mistral3",
    "mixtral",
    "qwen2",
    "qwen2moe",
    "qwen2_moe",
    "qwen3",
    "qwen3moe",
    "qwen3_moe",
    "qwen3next",
    "qwen3_next",
    "qwen35",
    "qwen35moe",
    "qwen3_5",
    "qwen3_5_text",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "qwen3vl",
    "qwen3vlmoe",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gemma3n",
    "gemma-embedding",
    "bert",
    "nomic-bert",
    "t5",
    "t5encoder",
    "kimi-linear",
    "rwkv7",
    "smallthinker",
    "openelm",
    "gemma4",
    "gemma4_text",
    "phi",
    "phi2",
    "phi3",
    "phimoe",
    "gpt-oss",
    "gpt_oss",
    "gpt2",
    "smollm3",
    "lfm2",
    "lfm2moe",
    "lfm2_moe",
    "granite",
    "granitemoe",
    "granitehybrid",
    "deepseek2",
    "deepseek_v2",
    "deepseek_v3",
    "nemotron",
    "nemotron_h",
    "nemotron_h_moe",
    "olmo",
    "olmo2",
    "olmo3",
    "falcon",
    "falcon3",
    "falcon-h1",
    "yi",
    "starcoder2",
    "stablelm",
    "command-r",
    "cohere2",
    "glm4",
    "glm4moe",
    "exaone",
    "exaone4",
    "internlm2",
    "bitnet",
    "mamba",
    "mamba2",
    "minicpm",
    "ernie4_5",
    "ernie4_5-moe",
    "bailingmoe",
    "hunyuan-moe",
    "hunyuan-dense",
    "dots1",
    "baichuan",
    "afmoe",
    "arcee",
    "arctic",
    "bailingmoe2",
    "bloom",
    "chatglm",
    "codeshell",
    "cogvlm",
    "cohere2moe",
    "dbrx",
    "deci",
    "deepseek",
    "deepseek32",
    "eurobert",
    "exaone-moe",
    "gptneox",
    "hunyuan_vl",
    "hy_v3",
    "jais",
    "jais2",
    "jamba",
    "jina-bert-v3",
    "laguna",
    "maincoder",
    "mellum",
    "mimo2",
    "minimax-m2",
    "modern-bert",
    "mpt",
    "muse-glimmer",
    "nanbeige",
    "neo-bert",
    "nomic-bert-moe",
    "olmoe",
    "orion",
    "paddleocr",
    "pangu-embedded",
    "plamo",
    "plamo3",
    "qwen",
    "qwen2vl",
    "refact",
    "seed_oss",
    "starcoder",
    "step35",
    "talkie",
    "xverse",
];

impl Facts {
    pub fn new(family: String) -> Self {
        Self { family, ..Self::default() }
    }

    /// What a reader should know about these facts.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !KNOWN.contains(&self.family.as_str()) {
            warnings.push(format!(
                "architecture {:?} is not known here: weights are counted from their shapes and names",
                self.family
            ));
        }
        if self.encoder {
            warnings.push(ENCODER.to_owned());
        }
        warnings
    }

    /// The same as a description; what must be known and is not stays 0, which is refused by its name.
    pub fn describe(&self) -> Result<Description, ImportError> {
        let layers = self.layers.unwrap_or(0);
        let layers = usize::try_from(layers)
            .ok()
            .filter(|layers| (1..=MAX_LAYERS).contains(layers))
            .ok_or(InvalidModel::Layers(layers))?;
        let kinds = if self.kinds.is_empty() { vec![LayerKind::Full; layers] } else { self.kinds.clone() };
        Ok(Description {
            hidden: self.hidden.unwrap_or(0),
            vocab: self.vocab.unwrap_or(0),
            kinds,
            separate_blocks: self.separate_blocks,
            heads: self.heads.unwrap_or(0),
            kv_heads: self.kv_heads.or(self.heads).unwrap_or(0),
            head_dim: self.head_dim,
            value_dim: self.value_dim,
            window: self.window,
            global: self.global,
            global_shared_kv: self.shared_kv,
            output_gate: self.output_gate,
            intermediate: self.intermediate.unwrap_or(0),
            gated_mlp: self.gated.unwrap_or(true),
            experts: self.experts,
            latent: self.latent,
            linear: self.linear,
            tied_embeddings: self.tied.unwrap_or(false),
            context_tokens: self.context.filter(|context| (1..=MAX_WIDTH).contains(context)),
            kv_heads_by_layer: self.kv_heads_by_layer.clone(),
            intermediate_by_layer: self.intermediate_by_layer.clone(),
            sparse_by_layer: self.sparse.clone(),
            heads_by_layer: self.heads_by_layer.clone(),
            reused_layers: self.reused,
            encoder: self.encoder,
        })
    }
}
