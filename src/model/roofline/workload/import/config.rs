//! `config.json` of Hugging Face, with its `quantization_config`.
//!
//! Field names differ between families; for each figure the names are tried in order. Language models inside others
//! (`text_config`) are what is described.

use serde_json::Value;

use super::facts::Facts;
use super::fields::Fields;
use super::quantisation::{Quantisation, quantisation};
use super::tower::Tower;
use super::{ImportError, label, said, short};
use crate::workload::architecture::{Experts, Latent, LayerKind, Linear, MAX_LAYERS, Matrix, Part};
use crate::workload::block::Block;
use crate::workload::class::Class;
use crate::workload::model::{Grouping, Model};
use crate::workload::recipe::Recipe;

/// Longest file.
pub const MAX_BYTES: u64 = 16 << 20;
/// Most objects and lists of one, and most values. An object of seven bytes takes hundreds once it is read; lists of
/// modules have one for every matrix of a layer.
const MAX_CONTAINERS: u64 = 1 << 17;
const MAX_VALUES: u64 = 1 << 19;

/// A parsed `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub(super) facts: Facts,
    /// What weights that are not quantised are stored as.
    pub dtype: Block,
    /// What the projections were quantised to; `None` where they were not.
    pub quantisation: Option<Quantisation>,
    /// For pictures.
    tower: Option<Tower>,
}

impl Config {
    /// Reads the file.
    ///
    /// # Errors
    /// It is not JSON, or a field is no number.
    pub fn parse(json: &[u8]) -> Result<Self, ImportError> {
        if json.len() as u64 > MAX_BYTES {
            let count = json.len() as u64;
            return Err(ImportError::TooMany { what: "bytes of config.json", count, limit: MAX_BYTES });
        }
        Self::from_value(&value(json, "config.json")?)
    }

    /// The same from fields that came another way, such as inside a request.
    ///
    /// # Errors
    /// It is no object, or a field is no number.
    pub fn from_value(value: &Value) -> Result<Self, ImportError> {
        let Some(map) = value.as_object() else {
            let error = "an object was expected".to_owned();
            return Err(ImportError::Json { what: "config.json", error });
        };
        let outer = Fields { map };
        let inner = outer.inner(&["text_config", "language_config", "llm_config"]);
        // A tower's configuration may hold only what differs from the defaults: layers decide which is described.
        let text = match &inner {
            Some(inner) if inner.any(&["num_hidden_layers", "n_layer", "hidden_size"]).is_some() => inner,
            _ => &outer,
        };
        let facts = facts(&outer, text)?;
        let dtype =
            match text.text(&["torch_dtype", "dtype"]).or_else(|| outer.text(&["torch_dtype", "dtype"])) {
                Some("float32") => Block::F32,
                Some("float16") => Block::F16,
                _ => Block::Bf16,
            };
        let found = outer.inner(&["quantization_config"]).or_else(|| text.inner(&["quantization_config"]));
        let quantisation = found.map(|fields| quantisation(&fields)).transpose()?;
        Ok(Self { facts, dtype, quantisation, tower: Tower::read(&outer)? })
    }

    /// Adds what a separate `hf_quant_config.json` (modelopt) says, where the configuration itself says nothing.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn with_modelopt(mut self, json: &[u8]) -> Result<Self, ImportError> {
        let value = value(json, "hf_quant_config.json")?;
        if let (None, Some(map)) = (&self.quantisation, value.as_object()) {
            let fields = Fields { map };
            self.quantisation = Some(quantisation(&fields)?);
        }
        Ok(self)
    }

    /// The model that the configuration describes, quantised as it says, or by `recipe`.
    ///
    /// # Errors
    /// Fields contradict each other.
    pub fn model(&self, recipe: Option<Recipe>, name: &str) -> Result<Model, ImportError> {
        let architecture = self.facts.describe()?.build()?;
        let mut warnings = self.facts.warnings();
        let mut weights = match (recipe, &self.quantisation) {
            (Some(recipe), _) => recipe.weights(&architecture),
            (None, quantisation) => {
                let format = quantisation.as_ref().and_then(|quantisation| quantisation.format);
                if let (Some(quantisation), None) = (quantisation, format) {
                    warnings.push(format!(
                        "quantization method {:?} is unknown: weights are taken as {}",
                        quantisation.method, self.dtype
                    ));
                }
                if let Some(found) = quantisation {
                    warnings.extend(found.remarks());
                }
                let matrices = architecture.matrices();
                if let Some(found) = quantisation {
                    found.check(matrices.len())?;
                }
                let mut groups = Grouping::default();
                for matrix in matrices {
                    let plain = matrix.part == Part::Small
                        || matches!(matrix.class, Class::Embedding | Class::Norm | Class::Router)
                        || (matrix.class == Class::Head
                            && !quantisation.as_ref().is_some_and(|found| found.head));
                    let found = quantisation.as_ref().filter(|_| !plain);
                    let format = found.and_then(|found| found.of(&module_names(&matrix))?.0);
                    let block = format.map_or(self.dtype, Block::of);
                    let bytes = block
                        .size(matrix.rows, matrix.columns)
                        .and_then(|bytes| bytes.checked_mul(matrix.matrices));
                    let parameters = u64::try_from(matrix.parameters()).ok();
                    let added = bytes.zip(parameters).and_then(|(bytes, parameters)| {
                        let shape = (matrix.rows, matrix.columns);
                        groups.add(matrix.class, block, shape, matrix.matrices, parameters, bytes)
                    });
                    if added.is_none() {
                        return Err(ImportError::TooMany {
                            what: "weights",
                            count: u64::MAX,
                            limit: u64::MAX,
                        });
                    }
                }
                groups.finish()
            }
        };
        if let Some(tower) = self.tower {
            let groups = tower.weights(self.dtype);
            let millions = groups.iter().map(|group| group.parameters).sum::<u64>() / 1_000_000;
            warnings.push(format!(
                "a vision tower of {millions} million weights is counted as memory by its configuration, without what \
                 connects it to the text model; looking at a picture takes time that is not counted"
            ));
            weights.extend(groups);
        }
        let label = match (recipe, &self.quantisation) {
            (Some(recipe), _) => recipe.key().to_owned(),
            (None, Some(found)) => {
                found.format.map_or(found.method.clone(), |format| format.key().to_owned())
            }
            (None, None) => self.dtype.key().to_owned(),
        };
        let mut model = Model {
            name: self.facts.name.clone().unwrap_or_else(|| name.to_owned()),
            family: self.facts.family.clone(),
            architecture,
            weights,
            label: Some(label),
            warnings,
        };
        if let (None, Some(format)) = (recipe, self.quantisation.as_ref().and_then(|found| found.format)) {
            label::compare(&mut model, Recipe::Checkpoint(format));
        }
        Ok(model)
    }
}

/// Reads JSON that takes no more memory than a configuration does.
fn value(json: &[u8], what: &'static str) -> Result<Value, ImportError> {
    let (mut containers, mut values) = (0, 1);
    let (mut quoted, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => containers += 1,
            b',' if !quoted => values += 1,
            _ => {}
        }
    }
    for (what, count, limit) in
        [("objects and lists", containers, MAX_CONTAINERS), ("values", values, MAX_VALUES)]
    {
        if count > limit {
            return Err(ImportError::TooMany { what, count, limit });
        }
    }
    serde_json::from_slice(json).map_err(|error| ImportError::Json { what, error: said(&error) })
}

/// Families whose configuration leaves `tie_word_embeddings` out when it is true.
const TIED_BY_DEFAULT: &[&str] = &[
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gemma4",
    "gemma4_text",
    "cohere",
    "cohere2",
    "gpt2",
    "lfm2",
    "lfm2_moe",
    "bloom",
];

/// Families whose feed-forward has no gate.
const PLAIN_MLP: &[&str] = &[
    "phi",
    "gpt2",
    "gpt_neox",
    "gptj",
    "opt",
    "bloom",
    "falcon",
    "starcoder2",
    "mpt",
    "nemotron",
    "nemotron_h",
    "gpt_bigcode",
];

fn facts(outer: &Fields<'_>, text: &Fields<'_>) -> Result<Facts, ImportError> {
    let family = text
        .text(&["model_type"])
        .or_else(|| outer.text(&["model_type"]))
        .map_or_else(|| "unknown".to_owned(), short);
    let layers = text.number(&["num_hidden_layers", "n_layer", "num_layers", "n_layers"])?;
    if let Some(layers) = layers.filter(|layers| !(1..=MAX_LAYERS as u64).contains(layers)) {
        return Err(crate::workload::architecture::InvalidModel::Layers(layers).into());
    }
    let heads = text.number(&["num_attention_heads", "n_head", "num_heads"])?;
    let multi_query =
        text.flag(&["multi_query"]) == Some(true) && text.flag(&["new_decoder_architecture"]) != Some(true);
    let kv_heads = match text.number(&["num_key_value_heads", "num_kv_heads", "n_head_kv"])? {
        Some(kv_heads) if !multi_query => Some(kv_heads),
        _ if multi_query => Some(1),
        _ => heads,
    };
    let hidden = text.number(&["hidden_size", "n_embd", "d_model"])?;
    let intermediate = match text.number(&["intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"])? {
        None if PLAIN_MLP.contains(&family.as_str()) => hidden.map(|hidden| hidden.saturating_mul(4)),
        other => other,
    };
    // LFM2 names the width before it is cut to two thirds and rounded up.
    let intermediate = match (text.flag(&["block_auto_adjust_ff_dim"]), text.number(&["block_ff_dim"])?) {
        (Some(true), Some(width)) => {
            let multiple = text.number(&["block_multiple_of"])?.unwrap_or(256).clamp(1, 1 << 20);
            Some((width.min(1 << 40) * 2 / 3).next_multiple_of(multiple))
        }
        (_, Some(width)) => Some(width),
        (_, None) => intermediate,
    };
    let global_head_dim = text.number(&["global_head_dim"])?;
    let global_kv = text.number(&["num_global_key_value_heads"])?.or(kv_heads);
    let mut facts = Facts {
        name: outer.text(&["_name_or_path", "name"]).filter(|name| !name.is_empty()).map(short),
        hidden,
        vocab: text.number(&["vocab_size"])?.or(outer.number(&["vocab_size"])?),
        layers,
        heads,
        kv_heads,
        head_dim: text.number(&["head_dim", "attention_head_dim", "kv_channels"])?,
        global: global_head_dim.zip(global_kv).map(|(width, heads)| (heads, width)),
        shared_kv: text.flag(&["attention_k_eq_v"]).unwrap_or(false),
        output_gate: text.flag(&["attn_output_gate"]).unwrap_or(false),
        intermediate,
        gated: Some(!PLAIN_MLP.contains(&family.as_str())),
        tied: text.flag(&["tie_word_embeddings"]).or_else(|| outer.flag(&["tie_word_embeddings"])),
        context: text.number(&["max_position_embeddings", "n_positions", "max_sequence_length"])?,
        latent: latent(text, heads)?,
        linear: linear(text)?,
        experts: experts(text)?,
        reused: text.number(&["num_kv_shared_layers"])?.unwrap_or(0),
        drafts: text.number(&["num_nextn_predict_layers", "mtp_num_hidden_layers"])?.unwrap_or(0),
        ..Facts::new(family)
    };
    if facts.tied.is_none() {
        facts.tied = Some(TIED_BY_DEFAULT.contains(&facts.family.as_str()));
    }
    let windowed = text.flag(&["use_sliding_window"]).unwrap_or(true);
    facts.window = text.number(&["sliding_window", "sliding_window_size"])?.filter(|_| windowed);
    kinds(text, &mut facts)?;
    sparse(text, &mut facts)?;
    Ok(facts)
}

/// Latent attention, of which `kv_lora_rank` is the sign.
fn latent(text: &Fields<'_>, heads: Option<u64>) -> Result<Option<Latent>, ImportError> {
    let Some(kv_rank) = text.number(&["kv_lora_rank"])? else { return Ok(None) };
    let need = |name: &'static str, value: Option<u64>| {
        value.ok_or_else(|| ImportError::Field {
            field: name.to_owned(),
            reason: "is missing beside kv_lora_rank".to_owned(),
        })
    };
    Ok(Some(Latent {
        heads: need("num_attention_heads", heads)?,
        q_rank: text.number(&["q_lora_rank"])?.filter(|rank| *rank > 0),
        kv_rank,
        nope_dim: need("qk_nope_head_dim", text.number(&["qk_nope_head_dim"])?)?,
        rope_dim: need("qk_rope_head_dim", text.number(&["qk_rope_head_dim"])?)?,
        value_dim: need("v_head_dim", text.number(&["v_head_dim"])?)?,
    }))
}

fn linear(text: &Fields<'_>) -> Result<Option<Linear>, ImportError> {
    if let (Some(key_heads), Some(value_heads)) =
        (text.number(&["linear_num_key_heads"])?, text.number(&["linear_num_value_heads"])?)
    {
        return Ok(Some(Linear::DeltaNet {
            key_heads,
            value_heads,
            key_dim: text.number(&["linear_key_head_dim"])?.unwrap_or(128),
            value_dim: text.number(&["linear_value_head_dim"])?.unwrap_or(128),
            kernel: text.number(&["linear_conv_kernel_dim"])?.unwrap_or(4),
        }));
    }
    if let (Some(heads), Some(state)) = (
        text.number(&["mamba_num_heads", "mamba_n_heads"])?,
        text.number(&["ssm_state_size", "mamba_d_state"])?,
    ) {
        return Ok(Some(Linear::Mamba2 {
            heads,
            head_dim: text.number(&["mamba_head_dim", "mamba_d_head"])?.unwrap_or(64),
            state,
            groups: text.number(&["n_groups", "mamba_n_groups"])?.unwrap_or(1),
            kernel: text.number(&["conv_kernel", "mamba_d_conv"])?.unwrap_or(4),
        }));
    }
    Ok(text.number(&["conv_L_cache"])?.map(|kernel| Linear::ShortConvolution { kernel }))
}

fn experts(text: &Fields<'_>) -> Result<Option<Experts>, ImportError> {
    let count = text.number(&["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"])?;
    let Some(count) = count.filter(|count| *count > 0) else { return Ok(None) };
    let active =
        text.number(&["num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_top_k"])?;
    let intermediate =
        text.number(&["moe_intermediate_size", "expert_intermediate_size", "intermediate_size"])?;
    let width = text.number(&["moe_shared_expert_intermediate_size"])?.or(intermediate).unwrap_or(0);
    let shared = match text.number(&["shared_expert_intermediate_size"])? {
        Some(width) => width,
        None => {
            let count = text.number(&["n_shared_experts", "num_shared_experts"])?.unwrap_or(0);
            // Gemma-4 runs its dense feed-forward beside the experts.
            let beside = text.flag(&["enable_moe_block"]) == Some(true);
            let dense = text.number(&["intermediate_size"])?.unwrap_or(0);
            if beside { dense } else { count.saturating_mul(width) }
        }
    };
    Ok(Some(Experts {
        count,
        // 0 is refused where the architecture is built, by its name.
        active: active.unwrap_or(0),
        intermediate: intermediate.unwrap_or(0),
        shared_intermediate: shared,
        shared_gate: text.any(&["shared_expert_intermediate_size"]).is_some(),
        dense_layers: text.number(&["first_k_dense_replace", "num_dense_layers"])?.unwrap_or(0),
    }))
}

/// What mixes tokens in every layer.
fn kinds(text: &Fields<'_>, facts: &mut Facts) -> Result<(), ImportError> {
    let Some(layers) = facts.layers.and_then(|layers| usize::try_from(layers).ok()) else { return Ok(()) };
    let has_window = facts.window.is_some();
    let sliding = if has_window { LayerKind::Sliding } else { LayerKind::Full };
    if let Some(pattern) = text.text(&["hybrid_override_pattern"]) {
        facts.separate_blocks = true;
        facts.kinds = pattern
            .chars()
            .take(layers)
            .map(|letter| match letter {
                'M' => LayerKind::Linear,
                '*' => LayerKind::Full,
                _ => LayerKind::FeedForward,
            })
            .collect();
    } else if let Some(list) = text.list(&["layer_types", "layers_block_type"]) {
        facts.kinds = list
            .iter()
            .take(layers)
            .map(|kind| match kind.as_str().unwrap_or_default() {
                "sliding_attention" | "chunked_attention" => sliding,
                "linear_attention" | "conv" | "mamba" | "mamba2" | "recurrent" => LayerKind::Linear,
                _ => LayerKind::Full,
            })
            .collect();
    } else if let Some(list) = text.list(&["full_attn_idxs", "attn_layer_indices"]) {
        let full: Vec<_> = list.iter().filter_map(Value::as_u64).collect();
        facts.kinds = (0..layers as u64)
            .map(|index| if full.contains(&index) { LayerKind::Full } else { LayerKind::Linear })
            .collect();
    } else if let (Some(period), Some(_)) = (text.number(&["full_attention_interval"])?, facts.linear) {
        facts.kinds = every(layers, period, LayerKind::Linear);
    } else {
        let period = match text.number(&["sliding_window_pattern", "_sliding_window_pattern"])? {
            Some(period) => Some(period),
            None => match facts.family.as_str() {
                "gemma2" | "gpt_oss" => Some(2),
                "gemma3" | "gemma3_text" | "gemma4" | "gemma4_text" => Some(6),
                "cohere2" | "olmo3" | "exaone4" => Some(4),
                _ => None,
            },
        };
        facts.kinds = match period {
            Some(period) => every(layers, period, sliding),
            None => vec![sliding; layers],
        };
        // Qwen2: layers below this index see everything.
        if let (Some(first), "qwen2" | "qwen3" | "qwen2_moe" | "qwen3_moe") =
            (text.number(&["max_window_layers"])?, facts.family.as_str())
        {
            for (index, kind) in facts.kinds.iter_mut().enumerate() {
                if (index as u64) < first {
                    *kind = LayerKind::Full;
                }
            }
        }
    }
    if facts.kinds.len() != layers {
        return Err(ImportError::Field {
            field: "layer_types".to_owned(),
            reason: format!("describes {} of {layers} layers", facts.kinds.len()),
        });
    }
    Ok(())
}

/// Every `period`-th layer sees everything, the others are of another kind.
pub(super) fn every(layers: usize, period: u64, other: LayerKind) -> Vec<LayerKind> {
    let full = |index: usize| period > 0 && (index as u64 + 1).is_multiple_of(period);
    (0..layers).map(|index| if full(index) { LayerKind::Full } else { other }).collect()
}

/// Which layers have experts, where that is said otherwise than by a first few that have none.
fn sparse(text: &Fields<'_>, facts: &mut Facts) -> Result<(), ImportError> {
    let (Some(_), Some(layers)) = (facts.experts, facts.layers) else { return Ok(()) };
    let step = text.number(&["decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"])?;
    let dense: Vec<u64> = text
        .list(&["mlp_only_layers"])
        .map(|list| list.iter().filter_map(Value::as_u64).collect())
        .unwrap_or_default();
    let step = step.unwrap_or(1).max(1);
    if step > 1 || !dense.is_empty() {
        facts.sparse =
            (0..layers).map(|index| (index + 1).is_multiple_of(step) && !dense.contains(&index)).collect();
    }
    if text.any(&["num_dense_layers", "first_k_dense_replace"]).is_none() && facts.separate_blocks {
        facts.sparse = vec![true; usize::try_from(layers).unwrap_or(0)];
    }
    Ok(())
}

/// Names that a checkpoint would give the module.
fn module_names(matrix: &Matrix) -> Vec<String> {
    let Some(layer) = matrix.layer else {
        return match matrix.class {
            Class::Head => vec!["lm_head".to_owned()],
            _ => vec!["model.embed_tokens".to_owned()],
        };
    };
    let projection = match matrix.part {
        Part::Gate => "gate_proj",
        Part::Up => "up_proj",
        _ => "down_proj",
    };
    let names: Vec<String> = match matrix.class {
        Class::AttentionQ => vec!["self_attn.q_proj".into(), "self_attn.qkv_proj".into()],
        Class::AttentionK => vec!["self_attn.k_proj".into(), "self_attn.qkv_proj".into()],
        Class::AttentionV => vec!["self_attn.v_proj".into(), "self_attn.qkv_proj".into()],
        Class::AttentionOut => vec!["self_attn.o_proj".into()],
        Class::AttentionLatent => vec!["self_attn.kv_b_proj".into(), "self_attn.kv_a_proj_with_mqa".into()],
        Class::LinearMixer => vec!["linear_attn.in_proj_qkvz".into(), "linear_attn.out_proj".into()],
        Class::Expert => vec![format!("mlp.experts.0.{projection}")],
        Class::SharedExpert => {
            vec![format!("mlp.shared_expert.{projection}"), format!("mlp.shared_experts.{projection}")]
        }
        _ => vec![format!("mlp.{projection}")],
    };
    names.into_iter().map(|name| format!("model.layers.{layer}.{name}")).collect()
}
