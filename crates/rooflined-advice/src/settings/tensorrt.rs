//! NVIDIA's two: TensorRT-LLM, whose checkpoints come from Model Optimizer, and TensorRT-Edge-LLM, which has a tool of
//! its own for it.

use super::{Chosen, Text, checkpoint};
use rooflined_core::precision::WeightFormat;
use rooflined_models::recipe::Recipe;

/// TensorRT-LLM: what the checkpoint has to be, and the options of `trtllm-serve`.
pub(super) fn llm(recipe: Recipe, chosen: &Chosen<'_>) -> Option<String> {
    let format = checkpoint(recipe)?;
    let what = algorithm(format)?;
    let Some(text) = chosen.text else {
        return Some(format!("trtllm-serve CHECKPOINT  # CHECKPOINT: {what}"));
    };
    let Text { batch, context_tokens, .. } = text;
    // As many tokens as a prompt and a token for every other sequence.
    let (length, tokens) = (context_tokens.max(1), text.pass().saturating_add(batch));
    let mut command = format!(
        "trtllm-serve CHECKPOINT --max_batch_size {batch} --max_seq_len {length} --max_num_tokens {tokens}"
    );
    if let Some(ratio) = chosen.shared.and_then(|shared| shared.cache_ratio()) {
        command.push_str(&format!(" --kv_cache_free_gpu_memory_fraction {ratio:.3}"));
    }
    let mut note = format!("  # CHECKPOINT: {what}");
    // Sixteen bits are those of the checkpoint.
    if let Some(kv) = text.kv(format).filter(|kv| *kv != WeightFormat::Bf16) {
        command.push_str(" --extra_llm_api_options KV.yaml");
        note = format!("{note}; KV.yaml: kv_cache_config: {{dtype: {}}}", cache(kv)?);
    }
    Some(command + &note)
}

const fn algorithm(format: WeightFormat) -> Option<&'static str> {
    use WeightFormat as F;
    Some(match format {
        F::Fp32 => "in float32",
        F::Fp16 => "in float16",
        F::Bf16 => "in bfloat16",
        F::Fp8E4m3 => "by ModelOpt, quant_algo FP8",
        F::Nvfp4 => "by ModelOpt, quant_algo NVFP4",
        F::Mxfp4 => "in MXFP4, as GPT-OSS is published",
        F::Int4G128 | F::AwqInt4 => "by ModelOpt, quant_algo W4A16_AWQ",
        F::GptqInt4 => "of GPTQ, quant_algo W4A16_GPTQ",
        _ => return None,
    })
}

const fn cache(format: WeightFormat) -> Option<&'static str> {
    match format {
        WeightFormat::Fp8E4m3 => Some("fp8"),
        WeightFormat::Nvfp4 => Some("nvfp4"),
        _ => None,
    }
}

/// TensorRT-Edge-LLM: its tool for checkpoints, and its builder.
pub(super) fn edge(recipe: Recipe, chosen: &Chosen<'_>) -> Option<String> {
    let format = checkpoint(recipe)?;
    let mut options = weights(format)?.to_owned();
    if chosen.text.and_then(|text| text.kv(format)).is_some() {
        options.push_str(" --kv_cache_quantization fp8");
    }
    let quantize =
        format!("tensorrt-edgellm-quantize llm --model_dir CHECKPOINT --output_dir QUANTIZED{options}");
    let (before, checkpoint) =
        if options.is_empty() { (String::new(), "CHECKPOINT") } else { (quantize + " && ", "QUANTIZED") };
    let note = if format == WeightFormat::GptqInt4 { "  # CHECKPOINT: of GPTQ, group_size 128" } else { "" };
    let lengths = chosen.text.map_or_else(String::new, |text| {
        let (batch, input, capacity) = (text.batch, text.pass(), text.context_tokens.max(1));
        format!(" --max-batch-size {batch} --max-input-len {input} --max-kv-cache-capacity {capacity}")
    });
    Some(format!(
        "{before}tensorrt-edgellm-build --model-dir {checkpoint} --engine-dir ENGINE{lengths}{note}"
    ))
}

/// How weights are asked for; nothing where the checkpoint is built as it is.
const fn weights(format: WeightFormat) -> Option<&'static str> {
    use WeightFormat as F;
    Some(match format {
        F::Fp16 | F::GptqInt4 => "",
        F::Int8 => " --quantization int8_sq",
        F::Int4G128 | F::AwqInt4 => " --quantization int4_awq",
        F::Fp8E4m3 => " --quantization fp8",
        F::Mxfp8 => " --quantization mxfp8",
        // The head in FP8, as predictions have it.
        F::Nvfp4 => " --quantization nvfp4 --lm_head_quantization fp8",
        _ => return None,
    })
}
