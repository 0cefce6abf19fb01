//! What the metadata of a GGUF file say about its model.

use super::facts::Facts;
use super::header::{Header, Value};
use super::{ImportError, Tensor, UNNAMED, short};
use crate::architecture::{Experts, InvalidModel, Latent, LayerKind, Linear, MAX_LAYERS};
use crate::foreign::{self, Foreign};

/// What the metadata and the names of tensors say.
pub(super) fn facts(header: &Header) -> Result<Facts, ImportError> {
    let family = header.text("general.architecture").map_or_else(|| UNNAMED.to_owned(), short);
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
    let heads_by_layer = by_layer("attention.head_count");
    let heads = heads_by_layer.iter().copied().max().or_else(|| number("attention.head_count"));
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
        global: full
            .filter(|full| sliding.is_some_and(|sliding| sliding != *full))
            .zip(kv_heads)
            .map(|(width, heads)| (heads, width)),
        window: match family.as_str() {
            // llama.cpp sets the chunks of this family itself (llama-model.cpp).
            "llama4" => Some(number("attention.chunk_size").unwrap_or(8192)),
            // llama.cpp sets these itself: the first files of one leave it out, and that of the other is not used.
            "smallthinker" if number("attention.sliding_window").is_some_and(|window| window > 0) => {
                Some(4096)
            }
            "gemma2" => Some(number("attention.sliding_window").unwrap_or(4096)),
            _ => number("attention.sliding_window").filter(|window| *window > 0),
        },
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
        heads_by_layer,
        encoder: ENCODERS.contains(&family.as_str())
            || number("attention.causal") == Some(0)
            || number("pooling_type").is_some_and(|kind| kind > 0)
            || ranks(header),
        ranks: ranks(header),
        latent,
        ..Facts::new(family.clone())
    };
    facts.output_gate = has_output_gate(header, &facts);
    facts.kinds = gguf_kinds(header, &facts);
    Ok(facts)
}

/// Architectures that embed or rank text.
const ENCODERS: &[&str] = &[
    "bert",
    "t5encoder",
    "nomic-bert",
    "nomic-bert-moe",
    "jina-bert-v2",
    "jina-bert-v3",
    "modern-bert",
    "neo-bert",
    "eurobert",
    "gemma-embedding",
];

/// Whether it scores documents: llama.cpp's pooling of that name, which converters write, or an encoder with what makes the score.
/// llama.cpp lets a generator have such a tensor beside its head.
fn ranks(header: &Header) -> bool {
    let family = header.text("general.architecture").unwrap_or_default();
    header.number(&format!("{family}.pooling_type")) == Some(4)
        || (ENCODERS.contains(&family)
            && header.tensors.iter().any(|tensor| tensor.name == "cls.output.weight"))
}

/// What a file holds that is no model of text; `None` where it may be one.
pub(super) fn other_kind(header: &Header) -> Option<Foreign> {
    match (header.text("general.type"), header.text("general.architecture")) {
        (Some("adapter"), _) => Some(foreign::ADAPTER),
        (Some("imatrix"), _) => Some(Foreign {
            what: "an importance matrix (imatrix) for quantising a model",
            instead: "give the model's own .gguf file",
        }),
        (Some("mmproj"), _) | (_, Some("clip")) => Some(foreign::PROJECTOR),
        (_, Some(_)) if header.tensors.is_empty() => Some(foreign::VOCABULARY),
        (_, family) => foreign::of_family(family?),
    }
}

/// The most query heads of a layer, where a file gives them one by one.
fn heads(header: &Header, family: &str) -> Option<u64> {
    match header.metadata.get(&format!("{family}.attention.head_count")) {
        Some(Value::Numbers(numbers)) => numbers.iter().copied().max(),
        _ => None,
    }
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
    // Since the absorbed form was added, key_length is that of the latent and the head's own stands apart. Of files that were
    // converted before, llama.cpp caches whole heads (llama_hparams::is_mla).
    let key = number("attention.key_length_mla")?;
    Some(Latent {
        heads: heads?,
        q_rank: number("attention.q_lora_rank").filter(|rank| *rank > 0),
        kv_rank,
        nope_dim: key.checked_sub(rope_dim)?,
        rope_dim,
        value_dim: number("attention.value_length_mla").or_else(|| number("attention.value_length"))?,
        window: None,
        compression: None,
        index_dim: number("attention.indexer.key_length").unwrap_or(0),
    })
}

fn gguf_linear(header: &Header, family: &str, number: &dyn Fn(&str) -> Option<u64>) -> Option<Linear> {
    if let Some(kernel) = number("shortconv.l_cache") {
        return Some(Linear::ShortConvolution { kernel });
    }
    if let (Some(width), Some(heads)) =
        (number("kda.head_dim"), number("attention.head_count").or_else(|| heads(header, family)))
    {
        let kernel = number("ssm.conv_kernel").unwrap_or(4);
        return Some(Linear::DeltaNet {
            key_heads: heads,
            value_heads: heads,
            key_dim: width,
            value_dim: width,
            kernel,
        });
    }
    if let (Some(width), Some(hidden)) = (number("wkv.head_size"), number("embedding_length")) {
        // A matrix for every head, and the last token twice, in 32 bits.
        let state_bytes = hidden.saturating_mul(width.saturating_add(2)).saturating_mul(4);
        return Some(Linear::Other { state_bytes });
    }
    let (inner, state) = (number("ssm.inner_size")?, number("ssm.state_size")?);
    let rank = number("ssm.time_step_rank").filter(|rank| *rank > 0)?;
    let kernel = number("ssm.conv_kernel").unwrap_or(4);
    let groups = number("ssm.group_count").unwrap_or(1);
    let has = |part: &str| header.tensors.iter().any(|tensor| tensor.name.contains(part));
    if has("ssm_x") || family == "mamba" || !inner.is_multiple_of(rank) {
        // Mamba-1: a vector of `state` and the last inputs of the convolution for every channel, in 32 bits.
        let kept = state.saturating_add(kernel.saturating_sub(1));
        return Some(Linear::Other { state_bytes: inner.saturating_mul(kept).saturating_mul(4) });
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
        pattern => {
            let named = match pattern {
                Some(Value::Unsigned(period)) => Some(*period),
                _ => window_period(&facts.family),
            };
            let Some(period) = named else { return Vec::new() };
            // The first of each group sees everything, or else the last.
            let first = matches!(facts.family.as_str(), "cohere2moe" | "laguna" | "smallthinker");
            let full = |index: usize| period > 0 && (index as u64 + u64::from(!first)).is_multiple_of(period);
            (0..layers).map(|index| if full(index) { LayerKind::Full } else { LayerKind::Sliding }).collect()
        }
    }
}

/// The layers to one that sees everything, where a file does not say (llama.cpp, src/models: `load_swa_pattern`); 0: every layer that
/// attends has a window. `None` for families of which llama.cpp keeps the whole context although they name a window.
fn window_period(family: &str) -> Option<u64> {
    Some(match family {
        "lfm2" | "lfm2moe" => 0,
        "gemma2" | "gpt-oss" => 2,
        "afmoe" | "cohere2" | "cohere2moe" | "exaone-moe" | "exaone4" | "laguna" | "llama4" | "mellum"
        | "muse-glimmer" | "olmo2" | "smallthinker" => 4,
        "gemma3n" => 5,
        "gemma3" => 6,
        "plamo3" => 8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(fields: &[(&str, Value)]) -> Header {
        let metadata = fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        Header { version: 3, big_endian: false, metadata, tensors: Vec::new() }
    }

    /// DeepSeek-V2-Lite as converted in 2024 and since: the first is cached in whole heads.
    #[test]
    fn latent_caches_need_the_lengths_of_whole_heads() {
        let number = Value::Unsigned;
        let mut fields = vec![
            ("general.architecture", Value::Text("deepseek2".to_owned())),
            ("deepseek2.attention.head_count", number(16)),
            ("deepseek2.attention.key_length", number(192)),
            ("deepseek2.attention.value_length", number(128)),
            ("deepseek2.attention.kv_lora_rank", number(512)),
            ("deepseek2.rope.dimension_count", number(64)),
        ];
        let old = facts(&header(&fields)).unwrap();
        assert_eq!((old.latent, old.head_dim, old.value_dim), (None, Some(192), Some(128)));
        fields.push(("deepseek2.attention.key_length_mla", number(192)));
        fields.push(("deepseek2.attention.value_length_mla", number(128)));
        let latent = facts(&header(&fields)).unwrap().latent.unwrap();
        assert_eq!((latent.nope_dim, latent.value_dim), (128, 128));
    }

    #[test]
    fn what_generates_no_text_is_named() {
        let of = |key, value: &str| header(&[(key, Value::Text(value.to_owned()))]);
        assert!(other_kind(&of("general.architecture", "clip")).unwrap().what.contains("mmproj"));
        assert!(other_kind(&of("general.type", "adapter")).unwrap().what.contains("LoRA"));
        assert!(other_kind(&of("general.architecture", "llama")).unwrap().what.contains("vocabulary"));
        assert!(facts(&of("general.architecture", "bert")).unwrap().encoder);
    }
}
