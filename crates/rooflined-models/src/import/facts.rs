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

/// Families whose figures are read as their own engines read them, one a line.
const KNOWN: &str = include_str!("../../config/families/known.txt");

impl Facts {
    pub fn new(family: String) -> Self {
        Self { family, ..Self::default() }
    }

    /// What a reader should know about these facts.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !KNOWN.lines().any(|known| known == self.family) {
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
