//! MLC LLM: a quantisation by its name, and the overrides of `mlc_llm serve`.

use super::{Chosen, checkpoint};
use rooflined_core::precision::WeightFormat;
use rooflined_models::recipe::Recipe;

/// Most sequences of a model library that is built without saying.
const USUAL_BATCH: u64 = 128;

/// Conversion and server.
pub(super) fn settings(recipe: Recipe, chosen: &Chosen<'_>) -> Option<String> {
    let name = quantization(checkpoint(recipe)?)?;
    let convert = format!("mlc_llm convert_weight CHECKPOINT --quantization {name} -o MODEL");
    let Some(text) = chosen.text else { return Some(convert) };
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
    Some(format!(
        "{convert} && {config} && mlc_llm serve MODEL --device {device} --mode server --overrides \"{overrides}\""
    ))
}

const fn quantization(format: WeightFormat) -> Option<&'static str> {
    Some(match format {
        WeightFormat::Fp32 => "q0f32",
        WeightFormat::Fp16 => "q0f16",
        WeightFormat::Bf16 => "q0bf16",
        WeightFormat::Int4G32 => "q4f16_1",
        WeightFormat::AwqInt4 => "q4f16_autoawq",
        WeightFormat::Fp8E4m3 => "e4m3_e4m3_f16",
        WeightFormat::Fp8E5m2 => "e5m2_e5m2_f16",
        _ => return None,
    })
}
