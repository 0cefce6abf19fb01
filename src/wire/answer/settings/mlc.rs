//! MLC LLM: a quantisation by its name, and the overrides of `mlc_llm serve`.

use super::{Chosen, Missing, Settings, checkpoint};
use roofline::precision::WeightFormat;
use roofline::workload::recipe::Recipe;

/// Most sequences of a model library that is built without saying.
const USUAL_BATCH: u64 = 128;

/// Conversion and server.
pub(super) fn settings(recipe: Recipe, chosen: &Chosen<'_>) -> Settings {
    let format = checkpoint(recipe, "MLC LLM", ["fp8_e4m3", "int4_g32"])?;
    let name = quantization(format)?;
    let convert = format!("mlc_llm convert_weight CHECKPOINT --quantization {name} -o MODEL");
    let Some(text) = chosen.text else { return Ok(convert) };
    if let Some(kv) = text.kv(format) {
        return Err(Missing::cache("MLC LLM", kv, WeightFormat::Fp16));
    }
    let (batch, context, pass) = (text.batch, text.context_tokens.max(1), text.pass());
    let built = if batch > USUAL_BATCH { format!(" --max-batch-size {batch}") } else { String::new() };
    let config = format!(
        "mlc_llm gen_config CHECKPOINT --quantization {name} --conv-template TEMPLATE{built} -o MODEL"
    );
    let total = context.saturating_mul(batch);
    let overrides = format!(
        "max_num_sequence={batch};max_total_seq_length={total};context_window_size={context};prefill_chunk_size={pass}"
    );
    let device = if chosen.device.is_cpu() { "cpu" } else { "cuda" };
    Ok(format!(
        "{convert} && {config} && mlc_llm serve MODEL --device {device} --mode server --overrides \"{overrides}\""
    ))
}

fn quantization(format: WeightFormat) -> Result<&'static str, Missing> {
    Ok(match format {
        WeightFormat::Fp32 => "q0f32",
        WeightFormat::Fp16 => "q0f16",
        WeightFormat::Bf16 => "q0bf16",
        WeightFormat::Int4G32 => "q4f16_1",
        WeightFormat::AwqInt4 => "q4f16_autoawq",
        WeightFormat::Fp8E4m3 => "e4m3_e4m3_f16",
        WeightFormat::Fp8E5m2 => "e5m2_e5m2_f16",
        _ => {
            let nearest = match format.bits_per_weight() {
                bits if bits > 16.0 => "fp32",
                bits if bits >= 8.0 => "fp8_e4m3",
                _ => "int4_g32",
            };
            return Err(Missing::but(format!("MLC LLM has no quantisation for {format}"), nearest));
        }
    })
}
