//! NVIDIA's two: TensorRT-LLM, whose checkpoints come from Model Optimizer, and TensorRT-Edge-LLM, which has a tool of
//! its own for it. Which GPU has kernels for what is their published support matrix.

use super::{Chosen, Device, Missing, Settings, Text, checkpoint};
use roofline::precision::WeightFormat;
use roofline::workload::recipe::Recipe;

/// TensorRT-LLM: what the checkpoint has to be, and the options of `trtllm-serve`.
pub(super) fn llm(recipe: Recipe, chosen: &Chosen<'_>) -> Settings {
    chosen.device.gpu_only("TensorRT-LLM")?;
    listed(chosen.device)?;
    let format = checkpoint(recipe, "TensorRT-LLM", ["int8", four_bits(chosen.device)])?;
    let what = algorithm(format, chosen.device)?;
    let Some(text) = chosen.text else { return Ok(format!("trtllm-serve CHECKPOINT  # CHECKPOINT: {what}")) };
    let Text { batch, context_tokens, .. } = text;
    // As many tokens as a prompt and a token for every other sequence.
    let (length, tokens) = (context_tokens.max(1), text.pass().saturating_add(batch));
    let mut command = format!(
        "trtllm-serve CHECKPOINT --max_batch_size {batch} --max_seq_len {length} --max_num_tokens {tokens}"
    );
    let mut note = format!("  # CHECKPOINT: {what}");
    // Sixteen bits are those of the checkpoint.
    if let Some(kv) = text.kv(format).filter(|kv| *kv != WeightFormat::Bf16) {
        let kind = cache(kv, chosen.device)?;
        command.push_str(" --extra_llm_api_options KV.yaml");
        note = format!("{note}; KV.yaml: kv_cache_config: {{dtype: {kind}}}");
    }
    Ok(command + &note)
}

/// Ampere, Ada, Hopper and Blackwell are in the support matrix.
fn listed(device: Device) -> Result<(), Missing> {
    match device.capability() {
        None | Some((8..=10 | 12, _)) => Ok(()),
        Some((major, minor)) => Err(Missing::because(format!(
            "compute capability {major}.{minor} is not in TensorRT-LLM's support matrix"
        ))),
    }
}

/// Groups of 4-bit integers have no kernels on the GPUs of 12.
const fn four_bits(device: Device) -> &'static str {
    if matches!(device.capability(), Some((12, _))) { "nvfp4" } else { "awq_int4" }
}

fn algorithm(format: WeightFormat, device: Device) -> Result<&'static str, Missing> {
    use WeightFormat as F;
    let integers = |name| match device.capability() {
        Some((12, _)) => {
            let why = "TensorRT-LLM has no kernels for groups of 4-bit integers on compute capability 12";
            Err(Missing::but(why, four_bits(device)))
        }
        _ => Ok(name),
    };
    match format {
        F::Fp32 => Ok("in float32"),
        F::Fp16 => Ok("in float16"),
        F::Bf16 => Ok("in bfloat16"),
        F::Fp8E4m3 => device.at_least((8, 9), "FP8 in TensorRT-LLM").map(|()| "by ModelOpt, quant_algo FP8"),
        F::Nvfp4 => {
            device.at_least((10, 0), "NVFP4 in TensorRT-LLM").map(|()| "by ModelOpt, quant_algo NVFP4")
        }
        F::Mxfp4 => {
            device.at_least((10, 0), "MXFP4 in TensorRT-LLM").map(|()| "in MXFP4, as GPT-OSS is published")
        }
        F::Int8 => Ok("quant_algo W8A16, which the support matrix does not list"),
        F::Int4 => Ok("quant_algo W4A16, which the support matrix does not list"),
        F::Int4G128 | F::AwqInt4 => integers("by ModelOpt, quant_algo W4A16_AWQ"),
        F::GptqInt4 => integers("of GPTQ, quant_algo W4A16_GPTQ"),
        _ => Err(Missing::but(
            format!("TensorRT-LLM has no {format}"),
            near(format, device, four_bits(device)),
        )),
    }
}

/// What either has instead.
fn near(format: WeightFormat, device: Device, four_bits: &'static str) -> &'static str {
    let fp8 = device.capability().is_none_or(|capability| capability >= (8, 9));
    match format {
        WeightFormat::Fp32 | WeightFormat::Tf32 | WeightFormat::Bf16 => "fp16",
        WeightFormat::Fp8E5m2 | WeightFormat::Mxfp8 if fp8 => "fp8_e4m3",
        _ if format.bits_per_weight() >= 8.0 => "int8",
        _ => four_bits,
    }
}

fn cache(format: WeightFormat, device: Device) -> Result<&'static str, Missing> {
    match (format, device.capability()) {
        (WeightFormat::Fp8E4m3, _) => Ok("fp8"),
        (WeightFormat::Nvfp4, None | Some((10, _))) => Ok("nvfp4"),
        _ => Err(Missing::cache("TensorRT-LLM", format, WeightFormat::Fp8E4m3)),
    }
}

/// TensorRT-Edge-LLM: its tool for checkpoints, and its builder.
pub(super) fn edge(recipe: Recipe, chosen: &Chosen<'_>) -> Settings {
    chosen.device.gpu_only("TensorRT-Edge-LLM")?;
    chosen.device.at_least((8, 0), "TensorRT-Edge-LLM")?;
    let format = checkpoint(recipe, "TensorRT-Edge-LLM", ["int8", "awq_int4"])?;
    let mut options = weights(format, chosen.device)?.to_owned();
    if let Some(kv) = chosen.text.and_then(|text| text.kv(format)) {
        if kv != WeightFormat::Fp8E4m3 {
            return Err(Missing::cache("TensorRT-Edge-LLM", kv, WeightFormat::Fp8E4m3));
        }
        chosen.device.at_least((8, 9), "an FP8 cache in TensorRT-Edge-LLM")?;
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
    Ok(format!("{before}tensorrt-edgellm-build --model-dir {checkpoint} --engine-dir ENGINE{lengths}{note}"))
}

/// How weights are asked for; nothing where the checkpoint is built as it is.
fn weights(format: WeightFormat, device: Device) -> Result<&'static str, Missing> {
    use WeightFormat as F;
    let (least, options) = match format {
        F::Fp16 | F::GptqInt4 => return Ok(""),
        F::Int8 => return Ok(" --quantization int8_sq"),
        F::Int4G128 | F::AwqInt4 => return Ok(" --quantization int4_awq"),
        F::Fp8E4m3 => ((8, 9), " --quantization fp8"),
        F::Mxfp8 => ((10, 0), " --quantization mxfp8"),
        // The head in FP8, as predictions have it.
        F::Nvfp4 => ((10, 0), " --quantization nvfp4 --lm_head_quantization fp8"),
        _ => {
            return Err(Missing::but(
                format!("TensorRT-Edge-LLM has no {format}"),
                near(format, device, "awq_int4"),
            ));
        }
    };
    device.at_least(least, &format!("{format} in TensorRT-Edge-LLM"))?;
    Ok(options)
}
