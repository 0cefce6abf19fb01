//! llama.cpp: the type as `llama-quantize` spells it, and the options of `llama-server`.

use std::fmt::Write as _;

use super::{Chosen, Device, Missing, Settings, Text};
use roofline::precision::WeightFormat;
use roofline::workload::recipe::{Mix, Recipe};

/// Layers on the GPU: more than any model has, which older builds read as well as "all".
const ALL_LAYERS: u32 = 999;
/// Tokens of one physical batch, as predictions assume.
const PHYSICAL_BATCH: u64 = 512;
/// Tokens of one logical batch, the default.
const LOGICAL_BATCH: u64 = 2048;
/// The cache of a slot is a whole number of these.
const CACHE_STEP: u64 = 256;

/// Files and options.
pub(super) fn settings(recipe: Recipe, chosen: &Chosen<'_>) -> Settings {
    let file = file(recipe, chosen.device)?;
    let Some(text) = chosen.text else { return Ok(file) };
    Ok(format!("{file} && llama-server -m MODEL.gguf {}", options(text, chosen.device)?))
}

/// How the file is made.
fn file(recipe: Recipe, device: Device) -> Settings {
    let mix = match recipe {
        Recipe::Gguf(mix) => mix,
        Recipe::Checkpoint(format) | Recipe::WithHead { weights: format, .. } => {
            of_checkpoint(format, device)?
        }
    };
    let converted = |kind| format!("convert_hf_to_gguf.py CHECKPOINT --outtype {kind} --outfile MODEL.gguf");
    Ok(match mix {
        Mix::F32 => converted("f32"),
        Mix::F16 => converted("f16"),
        Mix::Bf16 => converted("bf16"),
        // llama-quantize does not write it; the converter keeps the blocks of a checkpoint that has them.
        Mix::Nvfp4 => "convert_hf_to_gguf.py NVFP4-CHECKPOINT --outfile MODEL.gguf".to_owned(),
        // The name is taken by other blocks.
        Mix::Q2_0 => {
            let why = "its Q2_0 has blocks of 64 and 2.25 bits a weight, this format blocks of 128 and 2.125";
            return Err(Missing::but(why, "tq2_0"));
        }
        _ => {
            let importance = if needs_importance(mix) { " --imatrix IMATRIX" } else { "" };
            format!("llama-quantize{importance} MODEL-F16.gguf MODEL.gguf {}", name(mix))
        }
    })
}

/// The type's name for `llama-quantize`.
fn name(mix: Mix) -> String {
    mix.key().to_ascii_uppercase()
}

/// Codebooks of three bits and less, and the smallest two-bit mix, are refused without an importance matrix.
const fn needs_importance(mix: Mix) -> bool {
    matches!(
        mix,
        Mix::Iq1S
            | Mix::Iq1M
            | Mix::Iq2Xxs
            | Mix::Iq2Xs
            | Mix::Iq2S
            | Mix::Iq2M
            | Mix::Iq3Xxs
            | Mix::Iq3Xs
            | Mix::Q2KS
    )
}

/// The mix that stores a checkpoint's format.
fn of_checkpoint(format: WeightFormat, device: Device) -> Result<Mix, Missing> {
    let nearest = match format {
        WeightFormat::Tf32 if device.is_cpu() => {
            return Err(Missing::but("CPUs have no TF32", "fp32"));
        }
        // 32-bit weights are multiplied in TF32 by CUDA's library.
        WeightFormat::Tf32 => return Ok(Mix::F32),
        WeightFormat::Nvfp4 => return Ok(Mix::Nvfp4),
        WeightFormat::Fp8E4m3 | WeightFormat::Fp8E5m2 | WeightFormat::Mxfp8 | WeightFormat::Int8 => "q8_0",
        WeightFormat::Int4G32 => "q4_0",
        WeightFormat::Nf4 => "iq4_nl",
        WeightFormat::AwqInt4 | WeightFormat::GptqInt4 => "q4_k_m",
        _ => "q4_k_s",
    };
    Mix::of(format).ok_or_else(|| Missing::but(format!("GGUF files have no {format}"), nearest))
}

fn options(text: Text, device: Device) -> Settings {
    // The context is shared out evenly over the slots, each rounded up.
    let slot = text.context_tokens.max(1).div_ceil(CACHE_STEP).saturating_mul(CACHE_STEP);
    let (batch, context) = (text.batch, slot.saturating_mul(text.batch));
    let logical = LOGICAL_BATCH.max(batch);
    let physical = PHYSICAL_BATCH.max(batch);
    let mut options = format!("-c {context} -np {batch} -b {logical} -ub {physical}");
    let written = match device {
        Device::Gpu { .. } => write!(options, " -ngl {ALL_LAYERS}"),
        Device::Cpu { threads: Some(threads) } => write!(options, " -ngl 0 -t {threads}"),
        Device::Cpu { threads: None } => write!(options, " -ngl 0"),
    };
    debug_assert!(written.is_ok(), "a string takes every text");
    if let Some(format) = text.kv(WeightFormat::Fp16) {
        let kind = cache(format)?;
        // Values that are not plain numbers are read by flash attention alone.
        let flash = if matches!(kind, "f32" | "bf16") { "" } else { "-fa on " };
        options = format!("{options} {flash}-ctk {kind} -ctv {kind}");
    }
    Ok(options)
}

fn cache(format: WeightFormat) -> Result<&'static str, Missing> {
    Ok(match format {
        WeightFormat::Fp32 => "f32",
        WeightFormat::Fp16 => "f16",
        WeightFormat::Bf16 => "bf16",
        WeightFormat::Q8_0 => "q8_0",
        WeightFormat::Q4_0 => "q4_0",
        WeightFormat::Q4_1 => "q4_1",
        WeightFormat::Q5_0 => "q5_0",
        WeightFormat::Q5_1 => "q5_1",
        WeightFormat::Iq4Nl => "iq4_nl",
        _ => return Err(Missing::cache("llama.cpp", format, WeightFormat::Q8_0)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Nearest;
    use super::*;

    #[test]
    fn a_context_is_that_of_every_slot_rounded_up_times_the_slots() {
        let text = Text { batch: 3, context_tokens: 1000, prompt_tokens: 0, kv_format: None };
        let device = Device::Gpu { compute_capability: None };
        assert_eq!(options(text, device).unwrap(), "-c 3072 -np 3 -b 2048 -ub 512 -ngl 999");
        let wide = Text { batch: 4096, context_tokens: u64::MAX, ..text };
        assert!(options(wide, device).unwrap().contains("-b 4096 -ub 4096"));
    }

    #[test]
    fn flash_attention_is_asked_for_where_values_are_quantised() {
        let text = |kv| Text { batch: 1, context_tokens: 512, prompt_tokens: 0, kv_format: Some(kv) };
        let options_of = |kv| options(text(kv), Device::Cpu { threads: Some(6) });
        let expected = "-c 512 -np 1 -b 2048 -ub 512 -ngl 0 -t 6";
        assert_eq!(options_of(WeightFormat::Fp16).unwrap(), expected);
        assert_eq!(options_of(WeightFormat::Q8_0).unwrap(), format!("{expected} -fa on -ctk q8_0 -ctv q8_0"));
        assert_eq!(options_of(WeightFormat::Bf16).unwrap(), format!("{expected} -ctk bf16 -ctv bf16"));
        assert_eq!(
            options_of(WeightFormat::Fp8E4m3).unwrap_err().nearest,
            Some(Nearest::Cache(WeightFormat::Q8_0))
        );
    }
}
