//! vLLM: options of `vllm serve`. Most formats are known from the checkpoint itself; a few are made while it is loaded.

use super::{Chosen, Text, checkpoint};
use rooflined_core::precision::WeightFormat;
use rooflined_models::recipe::Recipe;
use rooflined_models::transformer::DraftKind;
use rooflined_predict::optimize::ModelOrigin;

/// What is served, with what options, and what has to be known of it.
struct Weights {
    before: &'static str,
    options: &'static str,
    note: &'static str,
}

impl Weights {
    const fn option(options: &'static str) -> Self {
        Self { before: "", options, note: "" }
    }

    const fn noted(note: &'static str) -> Self {
        Self { before: "", options: "", note }
    }
}

pub(super) fn settings(recipe: Recipe, chosen: &Chosen<'_>) -> Option<String> {
    let format = checkpoint(recipe)?;
    let weights = weights(format, chosen)?;
    let mut command = format!("{}vllm serve CHECKPOINT{}", weights.before, weights.options);
    if let Some(text) = chosen.text {
        command.push_str(&options(text, format)?);
        let shared = chosen.shared.filter(|_| !chosen.device.is_cpu());
        if let Some(ratio) = shared.and_then(|shared| shared.ratio()) {
            command.push_str(&format!(" --gpu-memory-utilization {ratio:.3}"));
        }
    }
    if !weights.note.is_empty() {
        command.push_str("  # ");
        command.push_str(weights.note);
    }
    Some(command)
}

fn weights(format: WeightFormat, chosen: &Chosen<'_>) -> Option<Weights> {
    use WeightFormat as F;
    if matches!(chosen.origin, ModelOrigin::Checkpoint | ModelOrigin::Quantised) {
        // Its own configuration says what it is.
        return Some(Weights::noted("CHECKPOINT: as published"));
    }
    Some(match format {
        F::Fp32 => Weights::option(" --dtype float32"),
        F::Tf32 => {
            Weights { before: "VLLM_FLOAT32_MATMUL_PRECISION=high ", ..Weights::option(" --dtype float32") }
        }
        F::Fp16 => Weights::option(" --dtype float16"),
        F::Bf16 => Weights::option(" --dtype bfloat16"),
        F::Fp8E4m3 => Weights {
            note: if chosen.device.is_cpu() { "on a CPU with AMX tiles" } else { "" },
            ..Weights::option(" --quantization fp8_per_tensor")
        },
        F::Int8 => Weights::noted("CHECKPOINT: by llm-compressor, scheme W8A8"),
        F::Int4 => Weights::noted("CHECKPOINT: by llm-compressor, 4-bit weights, one scale per channel"),
        F::Int4G32 => Weights::noted("CHECKPOINT: by llm-compressor, 4-bit weights, group_size 32"),
        F::Int4G64 => Weights::noted("CHECKPOINT: by llm-compressor, 4-bit weights, group_size 64"),
        F::Int4G128 => Weights::noted("CHECKPOINT: by llm-compressor, scheme W4A16"),
        F::AwqInt4 => Weights::noted("CHECKPOINT: of AWQ, 4 bits, group_size 128"),
        F::GptqInt4 => Weights::noted("CHECKPOINT: of GPTQ, 4 bits, group_size 128"),
        F::Mxfp8 => Weights::option(" --quantization mxfp8"),
        F::Mxfp4 => Weights::option(" --quantization mxfp4"),
        F::Nvfp4 => Weights::noted("CHECKPOINT: by ModelOpt or llm-compressor in NVFP4"),
        _ => return None,
    })
}

fn options(text: Text, weights: WeightFormat) -> Option<String> {
    let Text { batch, context_tokens, .. } = text;
    // A whole prompt beside a token for every other sequence.
    let tokens = text.pass().saturating_add(batch);
    let length = context_tokens.max(1);
    let mut options =
        format!(" --max-num-seqs {batch} --max-model-len {length} --max-num-batched-tokens {tokens}");
    if text.prompt_tokens > 0 {
        options.push_str(" --enable-prefix-caching");
    }
    if let Some((kind, tokens)) = text.drafts {
        let by = match kind {
            DraftKind::Draft => "\"model\":\"DRAFT\"",
            DraftKind::Mtp => "\"method\":\"mtp\"",
            DraftKind::Ngram => "\"method\":\"ngram\"",
        };
        options = format!("{options} --speculative-config '{{{by},\"num_speculative_tokens\":{tokens}}}'");
    }
    if let Some(format) = text.kv(weights) {
        options = format!("{options} --kv-cache-dtype {}", cache(format)?);
    }
    Some(options)
}

const fn cache(format: WeightFormat) -> Option<&'static str> {
    Some(match format {
        WeightFormat::Bf16 => "bfloat16",
        WeightFormat::Fp8E4m3 => "fp8_e4m3",
        WeightFormat::Fp8E5m2 => "fp8_e5m2",
        WeightFormat::Int8 => "int8_per_token_head",
        WeightFormat::Int4 => "int4_per_token_head",
        WeightFormat::Nvfp4 => "nvfp4",
        _ => return None,
    })
}
