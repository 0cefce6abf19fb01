//! vLLM: options of `vllm serve`. Most formats are known from the checkpoint itself; a few are made while it is loaded.

use super::{Chosen, Device, Missing, Settings, Text};
use roofline::precision::WeightFormat;
use roofline::workload::block::Block;
use roofline::workload::recipe::{Mix, Recipe};

/// What is served, with what options, and what has to be known of it.
struct Weights {
    before: &'static str,
    model: &'static str,
    options: &'static str,
    note: &'static str,
}

impl Weights {
    const fn option(options: &'static str) -> Self {
        Self { before: "", model: "CHECKPOINT", options, note: "" }
    }

    const fn noted(note: &'static str) -> Self {
        Self { before: "", model: "CHECKPOINT", options: "", note }
    }
}

pub(super) fn settings(recipe: Recipe, chosen: &Chosen<'_>) -> Settings {
    let (weights, format) = match recipe {
        Recipe::Gguf(mix) => (gguf(mix, chosen.device)?, WeightFormat::Fp16),
        Recipe::Checkpoint(format) | Recipe::WithHead { weights: format, .. } => {
            (of_checkpoint(format, chosen.device)?, format)
        }
    };
    let mut command = format!("{}vllm serve {}{}", weights.before, weights.model, weights.options);
    if let Some(text) = chosen.text {
        command.push_str(&options(text, format, chosen.device)?);
    }
    if !weights.note.is_empty() {
        command.push_str("  # ");
        command.push_str(weights.note);
    }
    Ok(command)
}

/// Files of llama.cpp are read by a plugin of its own, on GPUs.
fn gguf(mix: Mix, device: Device) -> Result<Weights, Missing> {
    if device.is_cpu() {
        return Err(Missing::but("its plugin for GGUF files runs on GPUs only", "awq_int4"));
    }
    let weights = Weights {
        before: "",
        model: "MODEL.gguf",
        options: " --tokenizer CHECKPOINT",
        note: "with pip install \"vllm[extra-quant]\"",
    };
    match mix.base() {
        Block::Tq1_0 | Block::Tq2_0 | Block::Q1_0 | Block::Q2_0 => {
            Err(Missing::but(format!("its plugin for GGUF files has no {mix}", mix = mix.key()), "iq2_xxs"))
        }
        Block::Mxfp4 => Err(Missing::but("its plugin for GGUF files has no MXFP4", "mxfp4")),
        Block::Nvfp4 => Err(Missing::but("its plugin for GGUF files has no NVFP4", "nvfp4")),
        _ => Ok(weights),
    }
}

fn of_checkpoint(format: WeightFormat, device: Device) -> Result<Weights, Missing> {
    use WeightFormat as F;
    let (least, weights) = match format {
        F::Fp32 => ((7, 0), Weights::option(" --dtype float32")),
        F::Tf32 if !device.is_cpu() => (
            (8, 0),
            Weights { before: "VLLM_FLOAT32_MATMUL_PRECISION=high ", ..Weights::option(" --dtype float32") },
        ),
        F::Fp16 => ((7, 0), Weights::option(" --dtype float16")),
        F::Bf16 => ((8, 0), Weights::option(" --dtype bfloat16")),
        F::Fp8E4m3 => (
            (7, 5),
            Weights {
                note: if device.is_cpu() { "on a CPU with AMX tiles" } else { "" },
                ..Weights::option(" --quantization fp8_per_tensor")
            },
        ),
        F::Int8 => ((7, 5), Weights::noted("CHECKPOINT: by llm-compressor, scheme W8A8")),
        F::Int4 => {
            ((7, 5), Weights::noted("CHECKPOINT: by llm-compressor, 4-bit weights, one scale per channel"))
        }
        F::Int4G32 => ((7, 5), Weights::noted("CHECKPOINT: by llm-compressor, 4-bit weights, group_size 32")),
        F::Int4G64 => ((7, 5), Weights::noted("CHECKPOINT: by llm-compressor, 4-bit weights, group_size 64")),
        F::Int4G128 => ((7, 5), Weights::noted("CHECKPOINT: by llm-compressor, scheme W4A16")),
        F::AwqInt4 => ((7, 5), Weights::noted("CHECKPOINT: of AWQ, 4 bits, group_size 128")),
        F::GptqInt4 => ((6, 0), Weights::noted("CHECKPOINT: of GPTQ, 4 bits, group_size 128")),
        F::Mxfp8 if !device.is_cpu() => ((8, 0), Weights::option(" --quantization mxfp8")),
        F::Mxfp4 if !device.is_cpu() => ((8, 0), Weights::option(" --quantization mxfp4")),
        F::Nvfp4 if !device.is_cpu() => {
            ((7, 5), Weights::noted("CHECKPOINT: by ModelOpt or llm-compressor in NVFP4"))
        }
        _ => return Err(absent(format, device)),
    };
    device.at_least(least, &format!("{format} in vLLM"))?;
    Ok(weights)
}

fn absent(format: WeightFormat, device: Device) -> Missing {
    let nearest = match format {
        WeightFormat::Tf32 => "fp32",
        WeightFormat::Fp8E5m2 => "fp8_e4m3",
        WeightFormat::Mxfp8 => "int8",
        _ => "awq_int4",
    };
    let place = if device.is_cpu() { " on a CPU" } else { "" };
    Missing::but(format!("vLLM has no {format}{place}"), nearest)
}

fn options(text: Text, weights: WeightFormat, device: Device) -> Settings {
    let Text { batch, context_tokens, .. } = text;
    // A whole prompt beside a token for every other sequence.
    let tokens = text.pass().saturating_add(batch);
    let length = context_tokens.max(1);
    let mut options =
        format!(" --max-num-seqs {batch} --max-model-len {length} --max-num-batched-tokens {tokens}");
    if let Some(format) = text.kv(weights) {
        options = format!("{options} --kv-cache-dtype {}", cache(format, device)?);
    }
    Ok(options)
}

fn cache(format: WeightFormat, device: Device) -> Result<&'static str, Missing> {
    Ok(match format {
        WeightFormat::Bf16 => "bfloat16",
        WeightFormat::Fp8E4m3 => "fp8_e4m3",
        WeightFormat::Fp8E5m2 => "fp8_e5m2",
        WeightFormat::Int8 if !device.is_cpu() => "int8_per_token_head",
        WeightFormat::Int4 if !device.is_cpu() => "int4_per_token_head",
        WeightFormat::Nvfp4 if !device.is_cpu() => "nvfp4",
        _ => return Err(Missing::cache("vLLM", format, WeightFormat::Fp8E4m3)),
    })
}
