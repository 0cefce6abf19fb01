//! What the metadata of a GGUF file say about its model.

use super::config::every;
use super::facts::Facts;
use super::header::{Header, Value};
use super::{ImportError, Tensor, short};
use crate::workload::architecture::{Experts, InvalidModel, Latent, LayerKind, Linear, MAX_LAYERS};

/// What the metadata and the names of tensors say.
pub(super) fn facts(header: &Header) -> Result<Facts, ImportError> {
    let family = header.text("general.architecture").map_or_else(|| "unknown".to_owned(), short);
    let number = |key: &str| header.number(&format!("{family}.{key}"));
    let by_layer = |key: &str| match header.metadata.get(&format!("{family}.{key}")) {
        Some(Value::Numbers(numbers)) => numbers.clone(),
        _ => Vec::new(),
    };
    let drafts = number("nextn_predict_layers").unwrap_or(0);
    let layers = number("block_count").map(|blocks| blocks.saturating_sub(drafts));
    if let Some(layers) = layers.filter(|layers| !(1..=MAX_LAYERS as u64).contains(layers)) {
        return Err(InvalidModel::Layers(layers).into());
    }
    let heads = by_layer("attention.head_count").into_iter().max().or_else(|| number("attention.head_count"));
    let kv_by_layer = by_layer("attention.head_count_kv");
    let kv_heads = number("attention.head_count_kv").or_else(|| kv_by_layer.iter().copied().max()).or(heads);
    let latent = gguf_latent(&number, heads);
    let full = number("attention.key_length");
    let sliding = number("attention.key_length_swa");
    let mut facts = Facts {
        hidden: number("embedding_length"),
        vocab: number("vocab_size").or(match header.metadata.get("tokenizer.ggml.tokens") {
            Some(Value::Array(count)) => Some(*count),
            _ => None,
        }),
        layers,
        drafts,
        heads: heads.filter(|heads| *heads > 0),
        kv_heads,
        kv_heads_by_layer: kv_by_layer,
        head_dim: if latent.is_some() { None } else { sliding.or(full) },
        value_dim: number("attention.value_length_swa").or_else(|| number("attention.value_length")),
        global: sliding.and(full).zip(kv_heads).map(|(width, heads)| (heads, width)),
        window: number("attention.sliding_window").filter(|window| *window > 0),
        intermediate: number("feed_forward_length"),
        gated: Some(has_gate(header)),
        experts: number("expert_count").filter(|count| *count > 0).map(|count| Experts {
            count,
            active: number("expert_used_count").unwrap_or(0),
            intermediate: number("expert_feed_forward_length")
                .or_else(|| number("feed_forward_length"))
                .unwrap_or(0),
            shared_intermediate: shared_width(header),
            shared_gate: header.tensors.iter().any(|tensor| tensor.name.contains("ffn_gate_inp_shexp")),
            dense_layers: number("leading_dense_block_count").unwrap_or(0),
        }),
        linear: gguf_linear(header, &family, &number),
        context: number("context_length"),
        reused: number("attention.shared_kv_layers").unwrap_or(0),
        latent,
        ..Facts::new(family.clone())
    };
    facts.output_gate = has_output_gate(header, &facts);
    facts.kinds = gguf_kinds(header, &facts);
    Ok(facts)
}

/// Whether the query projection is twice as wide as the input of the output projection.
fn has_output_gate(header: &Header, facts: &Facts) -> bool {
    let width = facts.global.map(|(_, width)| width).or(facts.head_dim);
    let expected = width.zip(facts.heads).and_then(|(width, heads)| width.checked_mul(heads));
    let query = header.tensors.iter().find(|tensor| tensor.name.ends_with(".attn_q.weight"));
    match (expected.and_then(|expected| expected.checked_mul(2)), query) {
        (Some(doubled), Some(query)) => query.matrix().1 == doubled && facts.linear.is_some(),
        _ => false,
    }
}

fn has_gate(header: &Header) -> bool {
    let mut plain = false;
    for tensor in &header.tensors {
        if tensor.name.contains(".ffn_gate.")
            || tensor.name.contains(".ffn_gate_exps.")
            || tensor.name.contains("ffn_gate_up_exps")
        {
            return true;
        }
        plain |= tensor.name.contains(".ffn_up.");
    }
    // phi3 and its kin keep gate and up in one matrix, twice as wide as the down projection's input.
    let rows =
        |part: &str| header.tensors.iter().find(|tensor| tensor.name.contains(part)).map(Tensor::matrix);
    match (rows(".ffn_up."), rows(".ffn_down.")) {
        (Some((_, up, _)), Some((_, _, down))) => up == down.saturating_mul(2),
        _ => !plain,
    }
}

fn shared_width(header: &Header) -> u64 {
    let up = header.tensors.iter().find(|tensor| tensor.name.contains("ffn_up_shexp"));
    up.map_or(0, |tensor| tensor.matrix().1)
}

fn gguf_latent(number: &dyn Fn(&str) -> Option<u64>, heads: Option<u64>) -> Option<Latent> {
    let kv_rank = number("attention.kv_lora_rank").filter(|rank| *rank > 0)?;
    let rope_dim = number("rope.dimension_count")?;
    // Since the absorbed form was added, key_length is that of the latent and the head's own stands apart.
    let key = number("attention.key_length_mla").or_else(|| number("attention.key_length"))?;
    Some(Latent {
        heads: heads?,
        q_rank: number("attention.q_lora_rank").filter(|rank| *rank > 0),
        kv_rank,
        nope_dim: key.checked_sub(rope_dim)?,
        rope_dim,
        value_dim: number("attention.value_length_mla").or_else(|| number("attention.value_length"))?,
    })
}

fn gguf_linear(header: &Header, family: &str, number: &dyn Fn(&str) -> Option<u64>) -> Option<Linear> {
    if let Some(kernel) = number("shortconv.l_cache") {
        return Some(Linear::ShortConvolution { kernel });
    }
    let (inner, state) = (number("ssm.inner_size")?, number("ssm.state_size")?);
    let rank = number("ssm.time_step_rank").filter(|rank| *rank > 0)?;
    let kernel = number("ssm.conv_kernel").unwrap_or(4);
    let groups = number("ssm.group_count").unwrap_or(1);
    let has = |part: &str| header.tensors.iter().any(|tensor| tensor.name.contains(part));
    if has("ssm_x") || family == "mamba" || !inner.is_multiple_of(rank) {
        // Mamba-1: a vector of `state` for every channel.
        return Some(Linear::Other { state_bytes: inner.saturating_mul(state).saturating_mul(4) });
    }
    let width = inner / rank;
    Some(if has("ssm_ba") || has("ssm_beta") {
        Linear::DeltaNet { key_heads: groups, value_heads: rank, key_dim: state, value_dim: width, kernel }
    } else {
        Linear::Mamba2 { heads: rank, head_dim: width, state, groups, kernel }
    })
}

/// Which layers see a window. Which attend at all is read from the tensors.
fn gguf_kinds(header: &Header, facts: &Facts) -> Vec<LayerKind> {
    let layers = facts.layers.and_then(|layers| usize::try_from(layers).ok()).unwrap_or(0);
    if facts.window.is_none() {
        return Vec::new();
    }
    let key = format!("{}.attention.sliding_window_pattern", facts.family);
    match header.metadata.get(&key) {
        Some(Value::Numbers(pattern)) => (0..layers)
            .map(|index| if pattern.get(index) == Some(&1) { LayerKind::Sliding } else { LayerKind::Full })
            .collect(),
        Some(Value::Unsigned(period)) => every(layers, *period, LayerKind::Sliding),
        _ => match facts.family.as_str() {
            "gemma2" | "gpt-oss" => every(layers, 2, LayerKind::Sliding),
            "gemma3" => every(layers, 6, LayerKind::Sliding),
            "gemma3n" => every(layers, 5, LayerKind::Sliding),
            "cohere2" | "olmo2" | "exaone4" | "llama4" => every(layers, 4, LayerKind::Sliding),
            // llama.cpp keeps the whole context of the others although they name a window.
            _ => Vec::new(),
        },
    }
}
