//! A recommendation as the few fields that a script wants, and the command that enters its mode.

use serde::Serialize;
use serde_json::{Value, json};

use rooflined_api::{CandidateAnswer, RecommendAnswer};

/// One candidate. Fields that an operation, or a model, does not have are left out; what is unknown is null.
#[derive(Debug, Serialize)]
struct Row<'a> {
    /// 1 is the choice; `null` of a candidate that misses a limit.
    rank: Option<usize>,
    engine: &'a str,
    format: Option<&'a str>,
    power_mode: Option<&'a str>,
    batch: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_tokens: Option<u64>,
    tokens_per_s: f64,
    /// The lower end of the 90 % interval.
    worst_tokens_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_per_token_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_to_first_token_s: Option<f64>,
    power_w: Option<f64>,
    /// The upper end of the 90 % interval.
    worst_power_w: Option<f64>,
    power_scope: Option<&'a str>,
    memory_bytes: f64,
    quality_loss_ratio: Option<f64>,
}

fn row(candidate: &CandidateAnswer, rank: Option<usize>) -> Row<'_> {
    let prediction = &candidate.prediction;
    Row {
        rank,
        engine: &prediction.engine,
        format: candidate.format.as_deref(),
        power_mode: candidate.power_mode.as_ref().map(|mode| mode.name.as_str()),
        batch: candidate.batch,
        context_tokens: prediction.context_tokens,
        tokens_per_s: prediction.tokens_per_s.value,
        worst_tokens_per_s: prediction.tokens_per_s.low,
        // Of a model, the time of a step is that of a token, or of the whole answer.
        time_s: candidate.kv_format.is_none().then_some(prediction.time_s.value),
        time_per_token_s: prediction.time_per_token_s.as_ref().map(|time| time.value),
        time_to_first_token_s: prediction.time_to_first_token_s.as_ref().map(|time| time.value),
        power_w: prediction.power_w.as_ref().map(|power| power.value),
        worst_power_w: prediction.power_w.as_ref().map(|power| power.high),
        power_scope: prediction.power_w.as_ref().map(|power| power.scope.as_str()),
        memory_bytes: prediction.memory_bytes.total,
        quality_loss_ratio: candidate.quality_loss_ratio,
    }
}

/// The choice and its alternatives, the best first; where nothing meets the limits, none.
pub fn rows(answer: &RecommendAnswer) -> Value {
    let candidates = answer.decision.iter().chain(&answer.alternatives);
    let rows: Vec<_> = match answer.decision {
        Some(_) => candidates.enumerate().map(|(index, candidate)| row(candidate, Some(index + 1))).collect(),
        None => Vec::new(),
    };
    json!({ "rows": rows })
}

/// The choice, or the nearest candidate where nothing meets the limits, with what applies it.
pub fn single(answer: &RecommendAnswer) -> Value {
    let candidate = answer.decision.as_ref().or(answer.closest.as_ref());
    let mut fields = json!({
        "feasible": answer.feasible,
        "violated": answer.violated.join(","),
        "enter": enter(answer),
        "settings": settings(answer),
        "simulated": answer.simulated,
    });
    let row = candidate.and_then(|candidate| serde_json::to_value(row(candidate, None)).ok());
    if let (Some(fields), Some(Value::Object(mut row))) = (fields.as_object_mut(), row) {
        row.remove("rank");
        fields.extend(row);
    }
    fields
}

/// The command that enters the mode of the choice; `None` where the machine is in it already, or has no modes.
pub fn enter(answer: &RecommendAnswer) -> Option<String> {
    let is = |field: &str| answer.apply.get(field).and_then(Value::as_bool) == Some(true);
    if is("active") {
        return None;
    }
    if let Some(command) = answer.apply.get("enter").and_then(Value::as_str) {
        return Some(command.to_owned());
    }
    let mode = answer.decision.as_ref()?.power_mode.as_ref()?;
    Some(if is("reboot_required") {
        format!("sudo nvpmodel -m {}", mode.id)
    } else {
        format!("rooflinectl mode set {}", mode.name)
    })
}

/// What the chosen engine is started with; `None` of an operation, which every engine runs.
fn settings(answer: &RecommendAnswer) -> Option<&str> {
    answer.apply.get("settings")?.get(&answer.engine)?.as_str()
}
