//! Reports of a server beside what was expected of it: a slow one is explained, and what one cause makes of it is not learned.

use serde_json::Value;

use rooflined_advice::{Catalogue, explain};
use rooflined_api::{ExplainAnswer, ExplainRequest, JudgedServer, ObservationRequest, OperatingPointRequest};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_governor::ServerReport;
use rooflined_predict::learning::report::Reporter;
use rooflined_predict::snapshot::Snapshot;

/// Longest name of a server, and longest reason, in characters.
const LONGEST_NAME: usize = 100;
const LONGEST_REASON: usize = 600;
/// Part of the difference that known causes take before a run tells of them and not of the machine.
const MOST_KNOWN: f64 = 0.5;
/// Larger judgements, of which `seen` was full of words, are not kept.
const LARGEST_KEPT_BYTES: usize = 16 << 10;

/// The servers among `list`, in its order.
///
/// # Errors
/// An empty name, or impossible evidence.
pub fn reports(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    by: &Reporter,
    list: &[ObservationRequest],
) -> Result<Vec<ServerReport>, Refusal> {
    let named = list.iter().enumerate().filter_map(|(index, one)| Some((index, one, one.server.as_ref()?)));
    let reports =
        named.map(|(index, one, server)| report(snapshot, catalogue, by, (index, one, server)).transpose());
    reports.flatten().collect()
}

fn report(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    by: &Reporter,
    (index, observation, server): (usize, &ObservationRequest, &str),
) -> Result<Option<ServerReport>, Refusal> {
    let path = format!("observations[{index}]");
    let length = server.chars().count();
    if length == 0 || length > LONGEST_NAME || server.chars().any(char::is_control) {
        return Err(Code::InvalidField.at(
            format!("{path}.server"),
            format!("the name has {length} characters, or a control character among them"),
            format!("give 1 to {LONGEST_NAME} characters, such as: llama-server on port 8080"),
        ));
    }
    // A slower mode that somebody entered is no fault of the server.
    let mode = snapshot.state.power_mode.known().map(|mode| mode.name.clone());
    let operating_point =
        mode.map(|mode| OperatingPointRequest { power_mode: Some(mode), ..OperatingPointRequest::default() });
    let request = ExplainRequest {
        operating_point: observation.operating_point.clone().or(operating_point),
        workload: observation.workload.clone(),
        engine: observation.engine,
        time_s: observation.time_s,
        tokens_per_s: observation.tokens_per_s,
        seen: observation.seen.clone(),
        ..ExplainRequest::default()
    };
    let answer = match explain(snapshot, catalogue, &request) {
        Ok(answer) => answer,
        Err(refusal) if refusal.field.as_ref().is_some_and(|field| field.starts_with("seen")) => {
            return Err(refusal.rename_fields(|field| format!("{path}.{field}")));
        }
        // What cannot be predicted can still be learned from.
        Err(_) => return Ok(None),
    };
    let slow = (answer.verdict == "slower_than_expected").then(|| in_words(&answer));
    let known: f64 = answer
        .causes
        .iter()
        .filter(|cause| cause.certainty != "possible")
        .map(|cause| cause.share_ratio)
        .sum();
    // Without evidence from the process the causes are those of the machine, which learning knows of.
    let is_slowed = slow.is_some() && observation.seen.is_some() && known >= MOST_KNOWN;
    let disturbed = observation.seen.as_ref().and_then(|seen| seen.disturbed.as_ref());
    let disturbed = disturbed.map(|why| {
        Code::SlowedDown.at(
            &path,
            format!("this run was disturbed: {why}"),
            "repeat it when nothing else runs: top",
        )
    });
    let slowed = is_slowed.then(|| {
        Code::SlowedDown.at(
            &path,
            format!("a cause slowed this run down: {}", answer.causes[0].what),
            format!("remove it first: {}", answer.causes[0].fix),
        )
    });
    let refusal = disturbed.or(slowed);
    let viewer = (!by.trusted).then_some(by.uid);
    let judged = judged(observation, answer);
    Ok(Some(ServerReport { index, server: server.to_owned(), slow, refusal, viewer, judged }))
}

/// Key or path of a model.
fn model_name(model: &Value) -> Option<String> {
    let name = model.as_str().or_else(|| model.get("path")?.as_str());
    name.map(ToOwned::to_owned)
}

/// What ran and how it compares, to be kept; null where that is too large.
fn judged(observation: &ObservationRequest, explained: ExplainAnswer) -> Value {
    let workload = &observation.workload;
    let judged = JudgedServer {
        engine: observation.engine,
        model: workload.model.as_ref().and_then(model_name),
        format: workload.format.clone(),
        batch: workload.batch,
        context_tokens: workload.context_tokens,
        explained,
    };
    let judged = serde_json::to_value(judged).unwrap_or_default();
    if judged.to_string().len() > LARGEST_KEPT_BYTES { Value::Null } else { judged }
}

/// On one line, whatever names of processes and files stand in it.
fn in_words(answer: &ExplainAnswer) -> String {
    let fix = answer.causes.first().map_or_else(String::new, |cause| format!(" To do: {}", cause.fix));
    let text = format!("{}{fix}", answer.reason);
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(LONGEST_REASON).collect()
}
