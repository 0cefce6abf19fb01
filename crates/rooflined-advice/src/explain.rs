//! `POST /v1/explain`: why a run is slower than predicted, split into causes.
//!
//! The workload is predicted as it was expected, on the machine as it was calibrated. A rate below the interval of that is a gap.
//! Each cause that is [seen](suspect::Suspect) changes the conditions of the prediction; predictions with one cause alone and with
//! all but one tell what it takes, and `split` makes the parts add up to the gap. Within the interval nothing is claimed.

mod checked;
mod conditions;
mod cpu_time;
mod kernels;
mod machine;
mod process;
mod remedy;
mod split;
mod suspect;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use conditions::Predictor;
use split::{Effect, LEAST, Part, split};
use suspect::{Certainty, Suspect};

use super::catalogue::Catalogue;
use super::engines::COMPARED;
use super::mode_named::cap_named;
use super::modes::refuse_power_limit;
use super::predict::{Work, completed};
use super::words::positive;
use rooflined_api::{
    CauseAnswer, EstimateAnswer, EvidenceAnswer, ExplainAnswer, ExplainRequest, RecommendRequest, RunEvidence,
};
use rooflined_core::board::OperatingPoint;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{Hertz, Seconds, significant};
use rooflined_models::transformer::Phase;
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::snapshot::Snapshot;
use rooflined_predict::{Engine, Limit, Prediction};
use serde_json::Value;

/// Rates that a machine can have, in tokens per second: beyond them, logarithms of ratios are of no use.
const RATES: RangeInclusive<f64> = 1e-9..=1e15;
/// A first cause with less of the difference does not explain it.
const MINOR: f64 = 0.2;
/// Half of a 90 % interval in standard deviations.
const NINETY: f64 = 1.645;

/// `POST /v1/explain`.
pub fn explain(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &ExplainRequest,
) -> Result<ExplainAnswer, Refusal> {
    refuse_power_limit(request.operating_point.as_ref(), "operating_point")?;
    if let Some(name) = request.operating_point.as_ref().and_then(|point| point.power_mode.as_ref()) {
        cap_named(snapshot, "operating_point.power_mode", name)?;
    }
    let seen = request.seen.clone().unwrap_or_default();
    process::check(&seen)?;
    let is_open = request.engine == Engine::Bare && request.workload.model.is_some();
    let is_measured = request.time_s.is_some() || request.tokens_per_s.is_some();
    let mut resolved = resolve(snapshot, catalogue, request, None)?;
    if is_open && is_measured {
        // Nobody said which engine ran: a rate that is as expected of one of them is no fault.
        let fits = |engine: &Engine| {
            let other = resolve(snapshot, catalogue, request, Some(*engine)).ok()?;
            let (expected, _) =
                Predictor::new(snapshot, catalogue, &other).predict(std::iter::empty()).ok()?;
            let (rate, expected) = (measured_rate(&other, expected.tokens).ok()??, rate_of(&expected));
            (expected.low..=expected.high).contains(&rate).then_some(other)
        };
        let first = [resolved.engine].into_iter().chain(COMPARED);
        resolved = first.into_iter().find_map(|engine| fits(&engine)).unwrap_or(resolved);
    }
    let request = &resolved;
    let engine = request.engine;
    let predictor = Predictor::new(snapshot, catalogue, request);
    let (expected, _) = predictor.predict(std::iter::empty())?;
    let expected_rate = rate_of(&expected);
    let measured = measured_rate(request, expected.tokens)?;
    if measured.is_some() && seen.pid.is_none() {
        refuse_too_large(snapshot, &predictor, &expected)?;
    }
    let unit = unit_of(request, expected.tokens);
    let mut answer = ExplainAnswer {
        verdict: String::new(),
        reason: String::new(),
        measured_tokens_per_s: measured.unwrap_or(expected_rate.value),
        expected_tokens_per_s: expected_rate,
        expected_at: in_words(&predictor.expected.point),
        engine: engine.key().to_owned(),
        format: predictor.expected_work()?.format(),
        causes: Vec::new(),
        unexplained_ratio: None,
        unexplained_tokens_per_s: None,
        checked: Vec::new(),
        unseen: machine::unseen(snapshot).into_iter().chain(seen.unseen.iter().cloned()).collect(),
        simulated: snapshot.board.simulated,
        serial: snapshot.serial,
    };
    match measured {
        Some(rate) if rate > expected_rate.high => {
            "faster_than_expected".clone_into(&mut answer.verdict);
            answer.reason = faster(rate, &expected_rate, (&expected, unit));
        }
        Some(rate) if rate >= expected_rate.low => {
            "as_expected".clone_into(&mut answer.verdict);
            answer.reason = format!(
                "{} {unit} is within the expected range, {} to {}.",
                significant(rate),
                significant(expected_rate.low),
                significant(expected_rate.high)
            );
        }
        _ => {
            find_causes(snapshot, &predictor, request, &seen, &expected, &mut answer)?;
            if is_open && is_measured {
                answer.reason.push_str(" No engine was named, and none that was tried gives this rate.");
            }
        }
    }
    Ok(answer)
}

/// The request with its engine and format: those that it names, else of `engine`, or of any, what is recommended. What has an Ollama
/// tag runs in llama.cpp.
fn resolve(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &ExplainRequest,
    engine: Option<Engine>,
) -> Result<ExplainRequest, Refusal> {
    let name = request.workload.model.as_ref().and_then(Value::as_str);
    let of_tag = name.filter(|name| name.contains(':')).map(|_| Engine::LlamaCpp);
    let mut question = RecommendRequest {
        operating_point: request.operating_point.clone(),
        workload: request.workload.clone(),
        engine: request.engine,
        ..RecommendRequest::default()
    };
    question.freedom.engines =
        of_tag.or(engine).filter(|_| request.engine == Engine::Bare).map(|of| vec![of]);
    let (engine, workload) = completed(snapshot, catalogue, question)?;
    Ok(ExplainRequest { engine, workload, ..request.clone() })
}

fn rate_of(prediction: &Prediction) -> EstimateAnswer {
    let time = prediction.time.map(Seconds::get);
    EstimateAnswer::rate(
        prediction.tokens,
        EstimateAnswer { value: time.value, low: time.low, high: time.high },
    )
}

/// What the rate of a run of so many columns counts, as a sentence.
fn unit_of(request: &ExplainRequest, columns: f64) -> &'static str {
    match request.workload.op {
        Some(_) if columns > 1.0 => "columns/s",
        Some(_) => "runs/s",
        None => "tokens/s",
    }
}

/// A model that needs more memory than there is was measured elsewhere. That of a process runs here, however that may be.
fn refuse_too_large(
    snapshot: &Snapshot,
    predictor: &Predictor<'_>,
    expected: &Prediction,
) -> Result<(), Refusal> {
    let board = &snapshot.board;
    let is_shared = board.unified_memory || snapshot.accelerator == Accelerator::Cpu;
    let (Some(has), Some(needs)) =
        (board.memory_total.known().filter(|_| is_shared), predictor.memory(expected))
    else {
        return Ok(());
    };
    if needs <= *has {
        return Ok(());
    }
    Err(Code::InvalidField.at(
        "workload",
        format!("it needs {needs}, and this machine has {has}: it cannot have run here"),
        "name the model and the format that ran, such as q4_k_m, or give the process that runs it; the rate of another machine: \
         rooflinectl analyze --hardware KEY",
    ))
}

/// The measured rate; `None` where nothing was measured.
fn measured_rate(request: &ExplainRequest, tokens: f64) -> Result<Option<f64>, Refusal> {
    let sane = |field: &str, given: f64, rate: f64| {
        if RATES.contains(&rate) {
            return Ok(Some(rate));
        }
        Err(Code::InvalidField.at(
            field,
            format!("{field} is {given}, which is {rate:e} tokens/s"),
            "give what was measured, in seconds or tokens per second",
        ))
    };
    match (request.time_s, request.tokens_per_s) {
        (None, None) => Ok(None),
        (Some(time), None) => sane("time_s", time, tokens / positive("time_s", time)?),
        (None, Some(rate)) => sane("tokens_per_s", rate, positive("tokens_per_s", rate)?),
        (Some(_), Some(_)) => Err(Code::InvalidField.at(
            "tokens_per_s",
            "time_s and tokens_per_s are both given",
            "give one of the two",
        )),
    }
}

/// The operating point that was expected, as a sentence.
fn in_words(point: &OperatingPoint) -> String {
    let clock = |what: &str, clock: Option<Hertz>| Some(format!("{what} {}", clock?));
    let parts = [
        point.power_mode.clone(),
        clock("GPU", point.gpu_clock),
        clock("memory", point.memory_clock),
        point.sm_online.map(|count| format!("{count} SMs")),
        clock("CPU", point.cpu_clock),
        point.cores_online.map(|count| format!("{count} workers")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "this machine as it is".to_owned() } else { parts.join(", ") }
}

fn faster(rate: f64, expected: &EstimateAnswer, (prediction, unit): (&Prediction, &str)) -> String {
    let impossible = prediction.tokens / rate < prediction.floor.get();
    let why = if impossible {
        "more than the ceilings allow: data stayed in the cache, less was computed, or other work slowed the calibration"
    } else {
        "the machine is faster than when it was calibrated, or less was computed"
    };
    format!(
        "{} {unit} are more than the {} that were expected at most; {why}. Repeat the calibration: rooflinectl calibrate --wait",
        significant(rate),
        significant(expected.high)
    )
}

/// A predicted rate, and the standard deviation of its logarithm.
#[derive(Debug, Clone, Copy)]
struct Rate {
    value: f64,
    spread: f64,
}

impl Rate {
    fn with<'s>(
        predictor: &Predictor<'_>,
        suspects: impl Iterator<Item = &'s Suspect>,
    ) -> Result<Self, Refusal> {
        let (prediction, left) = predictor.predict(suspects)?;
        let time = prediction.time.map(Seconds::get);
        let spread = (time.high / time.low).ln() / (2.0 * NINETY);
        Ok(Self { value: left * prediction.tokens / time.value, spread })
    }
}

/// What a suspect does, as predicted: nothing where it changes nothing.
fn effect(
    predictor: &Predictor<'_>,
    suspects: &[Suspect],
    index: usize,
    (none, all): (Rate, Rate),
) -> Result<Effect, Refusal> {
    let suspect = &suspects[index];
    if suspect.changes.is_empty() {
        return Ok(Effect { alone: 0.0, removed: 0.0, spread: suspect.certainty.spread(0.0, 0.0) });
    }
    let with = Rate::with(predictor, std::iter::once(suspect))?;
    let others = suspects.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| other);
    let without = Rate::with(predictor, others)?;
    let (alone, removed) = ((none.value / with.value).ln(), (without.value / all.value).ln());
    if alone.max(removed) < -LEAST {
        // What makes a run faster explains nothing of a slow one.
        return Ok(Effect { alone: 0.0, removed: 0.0, spread: 0.0 });
    }
    let distance = suspect.distance(&predictor.expected.point);
    let spread = suspect.certainty.spread(alone.max(removed).max(0.0), distance);
    // What is predicted under its changes may be less well known, such as another file than the one that was observed.
    let wider = (with.spread.powi(2) - none.spread.powi(2)).max(0.0).sqrt();
    Ok(Effect { alone, removed, spread: spread.max(wider) })
}

fn find_causes(
    snapshot: &Snapshot,
    predictor: &Predictor<'_>,
    request: &ExplainRequest,
    seen: &RunEvidence,
    prediction: &Prediction,
    answer: &mut ExplainAnswer,
) -> Result<(), Refusal> {
    let expected = answer.expected_tokens_per_s;
    let is_measured = request.time_s.is_some() || request.tokens_per_s.is_some();
    let mut suspects = machine::suspects(snapshot, &predictor.expected.point, seen);
    suspects.extend(process::suspects(snapshot, &predictor.expected.point, request, seen));
    // The order in which causes are looked for must not matter.
    suspects.sort_by(|a, b| (a.key, &a.what).cmp(&(b.key, &b.what)));
    for suspect in &mut suspects {
        // What cannot be predicted may still be the cause.
        if !suspect.changes.is_empty() && predictor.predict(std::iter::once(&*suspect)).is_err() {
            suspect.changes.clear();
            suspect.certainty = Certainty::Possible;
        }
    }
    let rates = (Rate::with(predictor, std::iter::empty())?, Rate::with(predictor, suspects.iter())?);
    let effects = (0..suspects.len()).map(|index| effect(predictor, &suspects, index, rates));
    let effects: Vec<Effect> = effects.collect::<Result<_, _>>()?;
    let measured = if is_measured { answer.measured_tokens_per_s } else { rates.1.value };
    answer.measured_tokens_per_s = measured;
    let gap = (expected.value / measured).ln().max(0.0);
    let open = (expected.high / expected.low).ln() / (2.0 * NINETY);
    let split = split(gap, open, &effects);
    for (suspect, effect) in suspects.iter_mut().zip(&effects) {
        // A clock far off whose effect is predicted as nothing may still have one.
        if effect.alone.max(effect.removed) <= LEAST && effect.spread > LEAST {
            suspect.certainty = Certainty::Possible;
        }
    }
    let named = suspects.iter().zip(&split.parts).zip(&effects);
    let named = named.filter(|((suspect, part), effect)| {
        // Without a measurement there is no rest from which an effect could be inferred: then it is only named.
        match suspect.certainty {
            Certainty::Possible => part.taken > LEAST || !is_measured && suspect.changes.is_empty(),
            _ => effect.alone.max(effect.removed) > LEAST && part.taken > LEAST,
        }
    });
    let mut causes: Vec<CauseAnswer> = named
        .map(|((suspect, part), _)| cause(suspect, *part, (gap, measured, expected.value), &seen.files))
        .collect();
    causes.sort_by(|a, b| {
        let by_gain = b.without_tokens_per_s.total_cmp(&a.without_tokens_per_s);
        by_gain.then(b.share_ratio.total_cmp(&a.share_ratio)).then_with(|| a.what.cmp(&b.what))
    });
    let explained: f64 = causes.iter().map(|cause| cause.share_ratio).sum();
    let unexplained = if gap > 0.0 { (1.0 - explained).max(0.0) } else { 0.0 };
    if causes.is_empty() && is_measured {
        let decodes =
            matches!(predictor.expected_work()?, Work::Model(task) if task.request.phase == Phase::Decode);
        answer.checked = checked::checked(snapshot, seen, decodes);
    } else if seen.memory_ratio.or(seen.product_ratio).is_some() {
        answer.checked = checked::cleared(snapshot, seen);
    }
    answer.causes = causes;
    answer.unexplained_ratio = Some(unexplained);
    answer.unexplained_tokens_per_s = Some(unexplained * (expected.value - measured).max(0.0));
    let verdict = if is_measured { "slower_than_expected" } else { "not_measured" };
    verdict.clone_into(&mut answer.verdict);
    answer.reason = slower(answer, (prediction, unit_of(request, prediction.tokens)), is_measured);
    Ok(())
}

/// Longest quotation of a file, in characters.
const LONGEST_QUOTE: usize = 200;

/// Evidence with what its file holds, where that was read.
fn as_read(by: &EvidenceAnswer, files: &BTreeMap<String, String>) -> EvidenceAnswer {
    let text = files.get(&by.source).map(|text| text.chars().take(LONGEST_QUOTE).collect());
    EvidenceAnswer { source: by.source.clone(), value: text.unwrap_or_else(|| by.value.clone()) }
}

fn cause(
    suspect: &Suspect,
    part: Part,
    (gap, measured, expected): (f64, f64, f64),
    files: &BTreeMap<String, String>,
) -> CauseAnswer {
    let share = if gap > 0.0 { part.taken / gap } else { 0.0 };
    CauseAnswer {
        cause: suspect.key.to_owned(),
        what: suspect.what.clone(),
        share_ratio: share,
        share_tokens_per_s: share * (expected - measured),
        without_tokens_per_s: (measured * part.gain.exp()).min(expected.max(measured)),
        certainty: suspect.certainty.key().to_owned(),
        evidence: suspect.evidence.iter().map(|by| as_read(by, files)).collect(),
        fix: suspect.fix.clone(),
    }
}

fn slower(answer: &ExplainAnswer, (prediction, unit): (&Prediction, &str), is_measured: bool) -> String {
    let (measured, expected) = (answer.measured_tokens_per_s, answer.expected_tokens_per_s);
    let less = format!("{:.0} %", 100.0 * (1.0 - measured / expected.value));
    match (answer.causes.first(), is_measured) {
        (Some(first), true) if first.share_ratio < MINOR => format!(
            "{} {unit} are {less} below the {} that were expected. Most of that is unexplained; of what was seen, {} takes most.",
            significant(measured),
            significant(expected.value),
            first.what
        ),
        (Some(first), true) => format!(
            "{} {unit} are {less} below the {} that were expected; first: {}.",
            significant(measured),
            significant(expected.value),
            first.what
        ),
        (Some(first), false) => format!(
            "The machine now gives {} {unit}, {less} below the {} that it was calibrated for; first: {}.",
            significant(measured),
            significant(expected.value),
            first.what
        ),
        (None, false) => "Nothing was found that slows the machine down.".to_owned(),
        (None, true) => format!(
            "{} {unit} are {less} below the {} that were expected, and no cause was found: {}.",
            significant(measured),
            significant(expected.value),
            match prediction.limit {
                limit @ (Limit::Core | Limit::Launch) =>
                    format!("{} limits it, whose cost may not be known well enough", limit.words()),
                _ if answer.checked.iter().any(|of| of.source == machine::PRODUCT && of.value.is_some()) =>
                    "the machine is as fast as at its calibration, so look at the engine and its settings"
                        .to_owned(),
                _ => "repeat the calibration on an idle machine: rooflinectl calibrate --wait".to_owned(),
            }
        ),
    }
}

#[cfg(test)]
mod tests;
