//! llama.cpp: the type as `llama-quantize` spells it, and the options of `llama-server`.

use super::{Chosen, Device, Text};
use rooflined_core::precision::WeightFormat;
use rooflined_models::recipe::{Mix, Recipe};
use rooflined_models::transformer::DraftKind;
use rooflined_predict::optimize::ModelOrigin;
use rooflined_predict::snapshot::CHECKPOINTS;

/// Layers on the GPU: more than any model has, which older builds read as well as "all".
const ALL_LAYERS: u32 = 999;
/// Tokens of one physical batch where nothing else was predicted: the default.
const PHYSICAL_BATCH: u64 = 512;
/// Tokens of one logical batch, the default.
const LOGICAL_BATCH: u64 = 2048;
/// The cache of a slot is a whole number of these.
const CACHE_STEP: u64 = 256;

/// Files and options.
pub(super) fn settings(recipe: Recipe, chosen: &Chosen<'_>) -> Option<String> {
    let file = match chosen.origin {
        ModelOrigin::File if chosen.text.is_some() => None,
        // The converter keeps the blocks of a packed checkpoint; quantising them again would lose.
        ModelOrigin::Checkpoint | ModelOrigin::Quantised => {
            Some("convert_hf_to_gguf.py CHECKPOINT --outfile MODEL.gguf".to_owned())
        }
        ModelOrigin::File | ModelOrigin::Otherwise => Some(file(recipe)?),
    };
    let serve = match chosen.text {
        Some(text) => Some(format!("llama-server -m MODEL.gguf {}", options(text, chosen.device)?)),
        None => None,
    };
    Some([file, serve].into_iter().flatten().collect::<Vec<_>>().join(" && "))
}

/// How the file is made.
fn file(recipe: Recipe) -> Option<String> {
    let mix = match recipe {
        Recipe::Gguf(mix) => mix,
        // 32-bit weights are multiplied in TF32 by CUDA's library.
        Recipe::Checkpoint(WeightFormat::Tf32) => Mix::F32,
        Recipe::Checkpoint(WeightFormat::Nvfp4) => Mix::Nvfp4,
        Recipe::Checkpoint(format) | Recipe::WithHead { weights: format, .. } => Mix::of(format)?,
    };
    let converted = |kind| format!("convert_hf_to_gguf.py CHECKPOINT --outtype {kind} --outfile MODEL.gguf");
    Some(match mix {
        Mix::F32 => converted("f32"),
        Mix::F16 => converted("f16"),
        Mix::Bf16 => converted("bf16"),
        // llama-quantize does not write it; the converter keeps the blocks of a checkpoint that has them.
        Mix::Nvfp4 => "convert_hf_to_gguf.py NVFP4-CHECKPOINT --outfile MODEL.gguf".to_owned(),
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

fn options(text: Text, device: Device) -> Option<String> {
    // The context is shared out evenly over the slots, each rounded up.
    let slot = text.context_tokens.max(1).div_ceil(CACHE_STEP).saturating_mul(CACHE_STEP);
    let (batch, context) = (text.batch, slot.saturating_mul(text.batch));
    let physical = text.chunk_tokens.unwrap_or(PHYSICAL_BATCH).max(batch);
    let logical = LOGICAL_BATCH.max(physical);
    let checkpoints = if text.prompt_tokens > 0 { CHECKPOINTS } else { 0 };
    let place = match device {
        Device::Gpu { .. } => {
            let layers = text.gpu_layers.unwrap_or(ALL_LAYERS.into());
            let experts = text.cpu_moe_layers;
            let experts = if experts > 0 { format!(" --n-cpu-moe {experts}") } else { String::new() };
            format!("-ngl {layers}{experts}")
        }
        Device::Cpu { threads: Some(threads) } => format!("-ngl 0 -t {threads}"),
        Device::Cpu { threads: None } => "-ngl 0".to_owned(),
    };
    // What the server would do by itself: shrink the context and move layers until all fits, which contradicts `-ngl`, and
    // keep 8 GiB of old prompts, which nobody predicted.
    let mut options = format!(
        "-c {context} -np {batch} -b {logical} -ub {physical} {place} --fit off --cache-ram 0 \
         --ctx-checkpoints {checkpoints}"
    );
    if text.prompt_tokens > 0 {
        // The beginning of a prompt that is still in a slot is not computed again.
        options.push_str(" --cache-prompt");
    }
    let model = matches!(text.drafts, Some((DraftKind::Draft, _)));
    match text.drafts {
        Some((DraftKind::Ngram, tokens)) => {
            options = format!("{options} --spec-type ngram-simple --spec-ngram-simple-size-m {tokens}");
        }
        Some((_, tokens)) => {
            let by = if model { "draft-simple -md DRAFT.gguf" } else { "draft-mtp" };
            options = format!("{options} --spec-type {by} --spec-draft-n-max {tokens}");
            if model && matches!(device, Device::Gpu { .. }) {
                options = format!("{options} --spec-draft-ngl {ALL_LAYERS}");
            }
            if let Some(format) = text.kv(WeightFormat::Fp16) {
                let kind = cache(format)?;
                options = format!("{options} -ctkd {kind} -ctvd {kind}");
            }
        }
        None => {}
    }
    if let Some(format) = text.kv(WeightFormat::Fp16) {
        let kind = cache(format)?;
        // Values that are not plain numbers are read by flash attention alone.
        let flash = if matches!(kind, "f32" | "bf16") { "" } else { "-fa on " };
        options = format!("{options} {flash}-ctk {kind} -ctv {kind}");
    }
    Some(options)
}

const fn cache(format: WeightFormat) -> Option<&'static str> {
    Some(match format {
        WeightFormat::Fp32 => "f32",
        WeightFormat::Fp16 => "f16",
        WeightFormat::Bf16 => "bf16",
        WeightFormat::Q8_0 => "q8_0",
        WeightFormat::Q4_0 => "q4_0",
        WeightFormat::Q4_1 => "q4_1",
        WeightFormat::Q5_0 => "q5_0",
        WeightFormat::Q5_1 => "q5_1",
        WeightFormat::Iq4Nl => "iq4_nl",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_that_of_every_slot_rounded_up_times_the_slots() {
        let text = Text {
            batch: 3,
            context_tokens: 1000,
            prompt_tokens: 0,
            chunk_tokens: None,
            kv_format: None,
            drafts: None,
            cpu_moe_layers: 0,
            gpu_layers: None,
        };
        let device = Device::Gpu { compute_capability: None };
        assert_eq!(
            options(text, device).unwrap(),
            "-c 3072 -np 3 -b 2048 -ub 512 -ngl 999 --fit off --cache-ram 0 --ctx-checkpoints 0"
        );
        let wide = Text { batch: 4096, context_tokens: u64::MAX, ..text };
        assert!(options(wide, device).unwrap().contains("-b 4096 -ub 4096"));
    }

    #[test]
    fn flash_attention_is_asked_for_where_values_are_quantised() {
        let text = |kv| Text {
            batch: 1,
            context_tokens: 512,
            prompt_tokens: 0,
            chunk_tokens: None,
            kv_format: Some(kv),
            drafts: None,
            cpu_moe_layers: 0,
            gpu_layers: None,
        };
        let options_of = |kv| options(text(kv), Device::Cpu { threads: Some(6) });
        let expected = "-c 512 -np 1 -b 2048 -ub 512 -ngl 0 -t 6 --fit off --cache-ram 0 --ctx-checkpoints 0";
        assert_eq!(options_of(WeightFormat::Fp16).unwrap(), expected);
        assert_eq!(options_of(WeightFormat::Q8_0).unwrap(), format!("{expected} -fa on -ctk q8_0 -ctv q8_0"));
        assert_eq!(options_of(WeightFormat::Bf16).unwrap(), format!("{expected} -ctk bf16 -ctv bf16"));
        assert_eq!(options_of(WeightFormat::Fp8E4m3), None);
    }
}
