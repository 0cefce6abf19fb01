//! What would make a model fit into memory, judged by the closest candidate: only what helps is named.

use super::headline::memory_limit;
use rooflined_api::{CandidateAnswer, RecommendAnswer, RecommendRequest};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Bytes;
use rooflined_models::recipe::Recipe;

/// Formats of fewer bits per weight lose too much to be of use: those of `iq2_xxs`.
const LEAST_BITS: f64 = 2.06;
/// Those of fewer bits than `iq4_xs` lose more than is chosen where nobody says what may be lost.
const CAREFUL_BITS: f64 = 4.25;

/// `to fit: --kv-formats q8_0 or a shorter --context-tokens`; `None` where memory is not what is missing.
#[must_use]
pub fn advice(answer: &RecommendAnswer, request: &RecommendRequest) -> Option<String> {
    let limit = memory_limit(answer)?;
    let closest = answer.closest.as_ref()?;
    let memory = &closest.prediction.memory_bytes;
    // What is left for the weights where everything else stays, and where the cache were empty.
    let room = limit - (memory.total - memory.weights);
    let mut ways = Vec::new();
    let names_all =
        request.freedom.formats.as_ref().is_some_and(|formats| formats.iter().any(|of| of == "all"));
    let most_bits = bits(closest).map_or(0.0, |bits| bits * room / memory.weights);
    if !names_all && most_bits >= LEAST_BITS {
        ways.push(match request.constraints.max_quality_loss_ratio {
            None if most_bits >= CAREFUL_BITS => "a format of fewer bits (--formats all)",
            _ => "a format of fewer bits, which loses more quality (--formats all --max-quality-loss 0.3)",
        });
    }
    if room + memory.kv_cache > memory.weights {
        ways.push("a shorter --context-tokens");
        if closest.kv_format.as_deref() == Some("fp16") && room + memory.kv_cache / 2.0 > memory.weights {
            ways.push("--kv-formats q8_0");
        }
    }
    // What is beside the weights goes with the sequences.
    #[expect(clippy::cast_precision_loss, reason = "a count of sequences")]
    let of_one = (memory.total - memory.weights) / closest.batch as f64;
    if closest.batch > 1 && memory.weights + of_one <= limit {
        ways.push("a smaller --batch");
    }
    if !ways.is_empty() {
        return Some(format!("to fit: take {}", ways.join(", or ")));
    }
    let most = Bytes(room.max(0.0));
    Some(format!(
        "to fit: take a model whose weights need {most} or less, or more memory; in this format these weights need {}",
        Bytes(memory.weights)
    ))
}

/// Bits per weight of a candidate's format.
fn bits(candidate: &CandidateAnswer) -> Option<f64> {
    let format = match candidate.format.as_deref()?.parse::<Recipe>().ok()? {
        Recipe::Gguf(mix) => mix.base().format()?,
        Recipe::Checkpoint(format) | Recipe::WithHead { weights: format, .. } => format,
    };
    Some(WeightFormat::bits_per_weight(format))
}
