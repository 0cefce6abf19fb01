//! What a tensor is for, read from its name in a GGUF file or a checkpoint.

use rooflined_core::keyed;

/// Reads, writes and shows a type by its keys; `what` is its name in the error for an unknown key.
macro_rules! by_key {
    ($name:ident, $what:literal) => {
        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(key: String) -> Result<Self, String> {
                let known = Self::ALL.iter().copied().find(|known| known.key() == key);
                let shown: String = key.chars().take(40).collect();
                known.ok_or_else(|| format!("{shown:?} is not {} that this version knows", $what))
            }
        }

        impl From<$name> for &'static str {
            fn from(member: $name) -> Self {
                member.key()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.key())
            }
        }
    };
}
pub(crate) use by_key;

by_key!(Class, "a use of weights");

keyed! {
    /// What a weight is used for, in the order in which a layer uses them.
    #[serde(into = "&'static str", try_from = "String")]
    Class {
        /// Token, position and per-layer tables of which a step reads single rows.
        Embedding = "embedding",
        /// Norms and their biases.
        Norm = "norm",
        /// Query projection, its low-rank factors, and the gate of the output.
        AttentionQ = "attention_q",
        /// Key projection.
        AttentionK = "attention_k",
        /// Value projection.
        AttentionV = "attention_v",
        /// Query, key and value in one matrix.
        AttentionQkv = "attention_qkv",
        /// Down and up projections of a latent key/value (MLA).
        AttentionLatent = "attention_latent",
        /// Output projection.
        AttentionOut = "attention_out",
        /// State-space layers, linear attention, short convolutions.
        LinearMixer = "linear_mixer",
        /// Feed-forward that every token passes.
        Mlp = "mlp",
        /// Chooses the experts.
        Router = "router",
        /// Feed-forward of which a token passes a few.
        Expert = "experts",
        /// Experts that every token passes.
        SharedExpert = "shared_experts",
        /// The table that turns the last hidden state into logits.
        Head = "head",
        /// Names that say nothing; taken as read in full.
        Other = "other",
        /// Vision and audio towers: not read while text is generated.
        Tower = "tower",
        /// Layers that draft tokens ahead (MTP): not read unless speculation is on.
        Draft = "draft",
    }
}

impl Class {
    /// Whether a step that generates text reads weights of this class from end to end.
    #[must_use]
    pub const fn read_whole(self) -> bool {
        !matches!(self, Self::Embedding | Self::Tower | Self::Draft | Self::Expert)
    }
}

/// The layer that a tensor belongs to: the number after `blk`, `layers`, `h` or `blocks`.
#[must_use]
pub fn layer(name: &str) -> Option<u64> {
    let mut parts = name.split('.');
    while let Some(part) = parts.next() {
        if matches!(part, "blk" | "layers" | "h" | "blocks" | "block" | "layer") {
            return parts.next().and_then(|number| number.parse().ok());
        }
    }
    None
}

/// Whether a tensor is one of an encoder beside a decoder, if there is one, and of the decoder.
#[must_use]
pub fn halves(name: &str) -> (bool, bool) {
    let of = |short: &str, long: &str| {
        // The head of an encoder may be called decoder.
        let is_head = name.starts_with("lm_head.") || name.starts_with("cls.");
        name.starts_with(&format!("{short}.")) || !is_head && name.split('.').take(2).any(|part| part == long)
    };
    (of("enc", "encoder"), of("dec", "decoder"))
}

/// What a tensor is for. Names that mean nothing to us are [`Class::Other`].
#[must_use]
pub fn classify(name: &str) -> Class {
    let parts: Vec<&str> = name.split('.').filter(|part| !part.bytes().all(|c| c.is_ascii_digit())).collect();
    let any = |test: &dyn Fn(&str) -> bool| parts.iter().any(|part| test(part));
    let is = |names: &[&str]| any(&|part| names.contains(&part));
    let first = parts.first().copied().unwrap_or_default();

    if matches!(first, "v" | "mm" | "a" | "resampler" | "visual" | "vpm" | "apm")
        || any(&|part| {
            part.starts_with("vision")
                || part.starts_with("high_res_vision")
                || part.starts_with("vis_")
                || part.starts_with("audio")
                || matches!(
                    part,
                    "visual"
                        | "multi_modal_projector"
                        | "mm_projector"
                        | "embed_vision"
                        | "embed_audio"
                        | "img_projection"
                        | "patch_merger"
                        | "merger"
                        | "projector"
                        | "connector"
                        | "aligner"
                        | "qformer"
                        | "query_tokens"
                        | "language_projection"
                        | "image_tower"
                        | "video_tower"
                        | "visual_embeddings_table"
                        | "vqmodel"
                        | "generation_embeddings"
                        | "generation_aligner"
                        | "generation_head"
                        | "talker"
                        | "token2wav"
                )
        })
    {
        return Class::Tower;
    }
    if any(&|part| part == "nextn" || part.starts_with("mtp") || part.starts_with("eagle")) {
        return Class::Draft;
    }
    if any(&is_norm) {
        return Class::Norm;
    }
    if is(&[
        "token_embd",
        "per_layer_token_embd",
        "position_embd",
        "token_types",
        "embed_tokens",
        "embed_tokens_per_layer",
        "wte",
        "wpe",
        "embeddings",
        "word_embeddings",
        "tok_embeddings",
        "embed_in",
        "embed_positions",
        "positions_embed",
        "tokens_embed",
        "shared",
    ]) {
        return Class::Embedding;
    }
    if first == "output" || is(&["lm_head", "embed_out", "predictions"]) {
        return Class::Head;
    }
    if is(&["ffn_gate_inp", "ffn_gate_inp_shexp", "exp_probs_b", "router", "shared_expert_gate", "gate"])
        || any(&|part| part.starts_with("e_score_correction"))
    {
        return Class::Router;
    }
    if any(&|part| part.ends_with("_shexp") || part.starts_with("shared_expert") || part == "shared_mlp") {
        return Class::SharedExpert;
    }
    // Files of the first mixtures have a matrix for each expert: blk.0.ffn_up.7.weight.
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    let single = name.split_once(".ffn_").and_then(|(_, rest)| rest.split('.').nth(1)).is_some_and(is_number);
    // Granite and JetMoE stack the matrices of all experts.
    let stacked = ["experts", "input_linear", "output_linear"];
    let is_expert =
        |part: &str| part.ends_with("_exps") || part.ends_with("_chexps") || stacked.contains(&part);
    if single || any(&is_expert) {
        return Class::Expert;
    }
    if any(&|part| {
        part.starts_with("ssm_")
            || part.starts_with("time_mix_")
            || matches!(
                part,
                "shortconv"
                    | "linear_attn"
                    | "mamba"
                    | "conv"
                    | "conv1d"
                    | "A_log"
                    | "D"
                    | "dt_bias"
                    | "dt_proj"
                    | "x_proj"
                    | "in_proj"
                    | "rg_lru"
                    | "linear_x"
                    | "linear_y"
                    | "linear_out"
                    | "f_proj"
                    | "f_a_proj"
                    | "f_b_proj"
                    | "g_a_proj"
                    | "g_b_proj"
            )
    }) {
        return Class::LinearMixer;
    }
    if let Some(class) = attention(&parts) {
        return class;
    }
    if any(&|part| {
        part.starts_with("ffn_")
            || part.starts_with("channel_mix_")
            || matches!(
                part,
                "ffn"
                    | "mlp"
                    | "feed_forward"
                    | "fc1"
                    | "fc2"
                    | "DenseReluDense"
                    | "w1"
                    | "w2"
                    | "w3"
                    | "gate_proj"
                    | "up_proj"
                    | "down_proj"
                    | "gate_up_proj"
            )
            // Of BERT, whose attention was asked before.
            || matches!(part, "intermediate" | "output") && is(&["dense"])
    }) {
        return Class::Mlp;
    }
    Class::Other
}

fn is_norm(part: &str) -> bool {
    part.contains("norm") || part.starts_with("ln_") || matches!(part, "ln1" | "ln2")
}

/// Projections of attention; `out_proj`, `dense` and `c_proj` mean it only inside an attention block.
fn attention(parts: &[&str]) -> Option<Class> {
    let inside =
        parts.iter().any(|part| part.contains("attn") || part.to_ascii_lowercase().contains("attention"));
    parts.iter().find_map(|part| {
        Some(match *part {
            "cross_attn_q" | "attn_q" | "q_proj" | "attn_q_a" | "attn_q_b" | "q_a_proj" | "q_b_proj"
            | "attn_gate" | "wq" | "wq_a" | "wq_b" | "g_proj" => Class::AttentionQ,
            "cross_attn_k" | "attn_k" | "k_proj" | "wk" => Class::AttentionK,
            "cross_attn_v" | "attn_v" | "v_proj" | "wv" => Class::AttentionV,
            "attn_qkv" | "qkv_proj" | "query_key_value" | "c_attn" | "Wqkv" => Class::AttentionQkv,
            "attn_kv_a_mqa" | "attn_kv_b" | "attn_k_b" | "attn_v_b" | "kv_a_proj_with_mqa" | "kv_b_proj"
            | "wkv" => Class::AttentionLatent,
            "attn_output"
            | "attn_o"
            | "cross_attn_o"
            | "attn_rel_b"
            | "relative_attention_bias"
            | "o_proj"
            | "attn_sinks"
            | "sinks"
            | "wo"
            | "wo_a"
            | "wo_b" => Class::AttentionOut,
            "out_proj" | "dense" | "c_proj" | "o" | "Wo" | "out_lin" if inside => Class::AttentionOut,
            "q" | "query" | "q_lin" | "query_proj" if inside => Class::AttentionQ,
            "k" | "key" | "k_lin" | "key_proj" if inside => Class::AttentionK,
            "v" | "value" | "v_lin" | "value_proj" if inside => Class::AttentionV,
            // A mixer whose kind the name does not give (nemotron_h): its attention has names of its own.
            "out_proj" => Class::LinearMixer,
            _ => return None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_gguf_files_and_checkpoints_say_what_a_tensor_is_for() {
        for (name, class) in [
            ("token_embd.weight", Class::Embedding),
            ("output.weight", Class::Head),
            ("output_norm.weight", Class::Norm),
            ("blk.0.attn_q.weight", Class::AttentionQ),
            ("blk.0.attn_q.bias", Class::AttentionQ),
            ("blk.0.attn_q_norm.weight", Class::Norm),
            ("blk.11.attn_output.weight", Class::AttentionOut),
            ("blk.0.attn_kv_a_mqa.weight", Class::AttentionLatent),
            ("blk.0.attn_kv_a_norm.weight", Class::Norm),
            ("blk.0.ffn_gate.weight", Class::Mlp),
            ("blk.0.ffn_gate_inp.weight", Class::Router),
            ("blk.0.ffn_gate_inp_shexp.weight", Class::Router),
            ("blk.0.ffn_gate_exps.weight", Class::Expert),
            ("blk.0.ffn_gate_shexp.weight", Class::SharedExpert),
            ("blk.0.ssm_in.weight", Class::LinearMixer),
            ("blk.0.shortconv.in_proj.weight", Class::LinearMixer),
            ("blk.60.nextn.eh_proj.weight", Class::Draft),
            ("v.blk.0.attn_q.weight", Class::Tower),
            ("mm.0.weight", Class::Tower),
            ("rope_freqs.weight", Class::Other),
            ("model.embed_tokens.weight", Class::Embedding),
            ("lm_head.weight", Class::Head),
            ("model.norm.weight", Class::Norm),
            ("model.layers.0.self_attn.q_proj.weight", Class::AttentionQ),
            ("model.layers.0.self_attn.k_norm.weight", Class::Norm),
            ("model.layers.0.self_attn.kv_b_proj.weight_scale_inv", Class::AttentionLatent),
            ("model.layers.0.mlp.gate.weight", Class::Router),
            ("model.layers.0.mlp.gate_proj.weight", Class::Mlp),
            ("model.layers.0.mlp.experts.17.gate_proj.weight", Class::Expert),
            ("model.layers.0.mlp.shared_expert.up_proj.weight", Class::SharedExpert),
            ("model.layers.0.mlp.shared_expert_gate.weight", Class::Router),
            ("model.layers.0.block_sparse_moe.experts.3.w1.weight", Class::Expert),
            ("model.layers.0.linear_attn.in_proj_qkv.weight", Class::LinearMixer),
            ("model.layers.0.conv.in_proj.weight", Class::LinearMixer),
            ("backbone.layers.0.mixer.in_proj.weight", Class::LinearMixer),
            ("backbone.layers.0.mixer.out_proj.weight", Class::LinearMixer),
            ("backbone.layers.5.mixer.q_proj.weight", Class::AttentionQ),
            ("backbone.layers.1.mixer.experts.0.up_proj.weight", Class::Expert),
            ("model.layers.3.self_attn.dense.weight", Class::AttentionOut),
            ("model.layers.3.self_attn.out_proj.weight", Class::AttentionOut),
            ("model.layers.3.mlp.fc1.weight", Class::Mlp),
            ("dec.blk.0.cross_attn_k.weight", Class::AttentionK),
            ("dec.blk.0.attn_o.weight", Class::AttentionOut),
            ("decoder.block.0.layer.1.EncDecAttention.q.weight", Class::AttentionQ),
            ("decoder.block.0.layer.2.DenseReluDense.wi_0.weight", Class::Mlp),
            ("shared.weight", Class::Embedding),
            ("h.3.attn.c_proj.weight", Class::AttentionOut),
            ("h.3.mlp.c_proj.weight", Class::Mlp),
            ("mtp.layers.0.mlp.up_proj.weight", Class::Draft),
            ("model.layers.0.block_sparse_moe.input_linear.weight", Class::Expert),
            ("model.layers.0.block_sparse_moe.router.layer.weight", Class::Router),
            ("model.layers.0.shared_mlp.output_linear.weight", Class::SharedExpert),
            ("model.layers.0.attn.wo_a.weight", Class::AttentionOut),
            ("model.layers.0.attn.wq_b.weight", Class::AttentionQ),
            ("model.layers.0.self_attn.g_b_proj.weight", Class::LinearMixer),
            ("model.layers.0.temporal_block.linear_out.weight", Class::LinearMixer),
            ("model.decoder.embed_positions.weight", Class::Embedding),
            ("cls.predictions.transform.dense.weight", Class::Head),
            ("model.visual.blocks.0.attn.qkv.weight", Class::Tower),
            ("vision_tower.encoder.layers.0.mlp.fc1.weight", Class::Tower),
            ("encoder.layer.0.attention.self.query.weight", Class::AttentionQ),
            ("bert.encoder.layer.0.attention.output.dense.weight", Class::AttentionOut),
            ("bert.encoder.layer.0.intermediate.dense.weight", Class::Mlp),
            ("bert.encoder.layer.0.output.dense.weight", Class::Mlp),
            ("transformer.layer.0.attention.q_lin.weight", Class::AttentionQ),
            ("blk.0.ffn_gate.7.weight", Class::Expert),
            ("blk.0.ffn_down.0.weight", Class::Expert),
            ("vpm.encoder.layers.0.self_attn.q_proj.weight", Class::Tower),
            ("model.video_tower.encoder.layers.0.mlp.fc1.weight", Class::Tower),
            ("talker.model.layers.0.self_attn.q_proj.weight", Class::Tower),
            ("model.connector.modality_projection.proj.weight", Class::Tower),
            ("strange.thing", Class::Other),
            ("", Class::Other),
        ] {
            assert_eq!(classify(name), class, "{name}");
        }
    }

    #[test]
    fn the_layer_is_the_number_after_the_word_for_it() {
        assert_eq!(layer("blk.12.attn_q.weight"), Some(12));
        assert_eq!(layer("model.layers.3.mlp.experts.17.w1.weight"), Some(3));
        assert_eq!(layer("decoder.block.2.layer.1.EncDecAttention.q.weight"), Some(2));
        assert_eq!(layer("output.weight"), None);
        assert_eq!(layer("blk.99999999999999999999.x"), None);
    }
}
