//! The first line of an answer: what somebody wanted to know, in a sentence.

use super::input::{Asked, PhaseArg};
use super::words;
use roofline::units::{Seconds, Watts, significant};
use wire::{
    AnalyzeAnswer, CandidateAnswer, Constraints, EstimateAnswer, PredictAnswer, RecommendAnswer, SweepAnswer,
    TilingAnswer,
};

/// `llama-3.1-8b q4_k_m decodes 14.2 tokens/s (11.9 to 16.8) on jetson-orin-nano-8gb-super at 25W; memory bandwidth limits
/// it`.
pub fn prediction(asked: &Asked, mode: Option<&str>, answer: &PredictAnswer) -> String {
    let rate = between(&answer.tokens_per_s);
    let time = words::estimate(&answer.time_s, words::time);
    let many = |what: &str| match asked.batch {
        0 | 1 => String::new(),
        batch => format!(" with {batch} {what}"),
    };
    let does = match asked.phase {
        None => format!("takes {time}{}", many("columns")),
        Some(PhaseArg::Decode) => format!("decodes {rate}{}", many("sequences")),
        Some(PhaseArg::Prefill) => format!("reads the prompt in {time}{}, {rate}", many("sequences")),
        Some(PhaseArg::Serve) => {
            let first = answer.time_to_first_token_s.as_ref();
            let first = first.map_or_else(String::new, |first| {
                format!(", the first after {}", words::estimate(first, words::time))
            });
            format!("serves {rate}{}{first}", many("sequences"))
        }
    };
    let on = answer.hardware.as_ref().map_or_else(String::new, |hardware| format!(" on {hardware}"));
    let at = mode.map_or_else(String::new, |mode| format!(" at {mode}"));
    format!("{} {does}{on}{at}; {} it\n", asked.what, limits(&answer.limit))
}

/// `14.2 tokens/s (11.9 to 16.8)`
fn between(rate: &EstimateAnswer) -> String {
    let [value, low, high] = [rate.value, rate.low, rate.high].map(significant);
    format!("{value} tokens/s ({low} to {high})")
}

/// What a limit is, with its verb.
fn limits(limit: &str) -> String {
    match limit {
        "dram" => "memory bandwidth limits".to_owned(),
        "cache" => "cache bandwidth limits".to_owned(),
        "core" => "dequantization limits".to_owned(),
        "compute" => "arithmetic limits".to_owned(),
        "launch" => "launching kernels limits".to_owned(),
        "power_cap" => "the power cap limits".to_owned(),
        other => format!("{} limits", other.replace('_', " ")),
    }
}

/// `Use q4_k_m, mode 25W, batch 4: 41.0 tokens/s (35.1 to 46.2) at 13.1 W, 82.0 ms a token (limit 100 ms)`; where nothing
/// meets the limits, the nearest that there is.
pub fn recommendation(answer: &RecommendAnswer, limits: &Constraints) -> String {
    match (&answer.decision, &answer.closest) {
        (Some(chosen), _) => format!("Use {}: {}\n", setting(chosen), figures(chosen, limits)),
        (None, Some(closest)) => format!(
            "Nothing meets {}; the nearest is {}: {}\n",
            if answer.violated.is_empty() { "the limits".to_owned() } else { answer.violated.join(" and ") },
            setting(closest),
            figures(closest, limits)
        ),
        (None, None) => "Nothing can run here: there is no candidate\n".to_owned(),
    }
}

fn setting(candidate: &CandidateAnswer) -> String {
    let mut parts = vec![candidate.format.clone().unwrap_or_else(|| "the file as it is".to_owned())];
    parts.extend(candidate.power_mode.as_ref().map(|mode| format!("mode {}", mode.name)));
    parts.extend(candidate.threads.map(|threads| format!("{threads} threads")));
    parts.push(format!("batch {}", candidate.batch));
    parts.join(", ")
}

/// Rate, power and the times that the limits are about; an operation has its time.
fn figures(candidate: &CandidateAnswer, limits: &Constraints) -> String {
    let prediction = &candidate.prediction;
    let limited =
        |limit: Option<f64>| limit.map_or_else(String::new, |limit| format!(" (limit {})", Seconds(limit)));
    let at = prediction.power_w.as_ref().map_or_else(String::new, |power| {
        let limit = limits.max_power_w.map_or_else(String::new, |limit| format!(" (limit {})", Watts(limit)));
        format!(" at {}{limit}", Watts(power.value))
    });
    // Of a model there is a cache; an operation counts columns.
    if candidate.kv_format.is_none() {
        let time = words::estimate(&prediction.time_s, words::time);
        return format!("{time}{}{at}", limited(limits.max_time_s));
    }
    let mut parts = vec![format!("{}{at}", between(&prediction.tokens_per_s))];
    if let Some(first) = &prediction.time_to_first_token_s {
        parts.push(format!(
            "{} to the first token{}",
            words::time(first.value),
            limited(limits.max_time_to_first_token_s)
        ));
    }
    if let Some(each) = &prediction.time_per_token_s {
        parts.push(format!("{} a token{}", words::time(each.value), limited(limits.max_time_per_token_s)));
    }
    parts.join(", ")
}

/// `12 predictions: llama-3.1-8b q4_0 is fastest with 14.2 tokens/s (11.9 to 16.8)`.
pub fn sweep(answer: &SweepAnswer) -> String {
    let rate = |row: &wire::SweepRow| row.prediction.tokens_per_s.value;
    let count = answer.rows.len();
    match answer.rows.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))) {
        None => "no prediction: nothing of this runs here\n".to_owned(),
        Some(best) => {
            let mode =
                best.power_mode.as_ref().map_or_else(String::new, |mode| format!(" in mode {}", mode.name));
            let batch = if best.batch > 1 { format!(" x{}", best.batch) } else { String::new() };
            let figure = match best.op {
                Some(_) => words::estimate(&best.prediction.time_s, words::time),
                None => between(&best.prediction.tokens_per_s),
            };
            let predictions = if count == 1 { "prediction" } else { "predictions" };
            format!(
                "{count} {predictions}; the highest rate: {}{batch}{mode}, {figure}\n",
                words::swept(best)
            )
        }
    }
}

/// `gemv 4096x4096 int8 in 700 µs: as predicted, 84.1 % of the ceiling; memory bandwidth limits it`.
pub fn analysis(what: &str, answer: &AnalyzeAnswer) -> String {
    format!(
        "{what}: {}, {} of the ceiling; {} it\n",
        answer.verdict.replace('_', " "),
        words::percent(answer.ceiling_ratio),
        limits(&answer.limit)
    )
}

/// `The fastest of 8 ways to cut it: blocks of 128x128, steps of 32, 41.0 µs`.
pub fn tiling(answer: &TilingAnswer) -> String {
    answer.candidates.first().map_or_else(
        || "no tiling fits into a streaming multiprocessor\n".to_owned(),
        |best| {
            format!(
                "blocks of {}x{} in steps of {} are fastest: {}\n",
                best.m,
                best.n,
                best.k,
                words::time(best.time_s)
            )
        },
    )
}
