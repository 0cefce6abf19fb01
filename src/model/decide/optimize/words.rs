//! The reason for a decision as text, and which measurement would improve it most.

use super::judge::Judged;
use super::{Candidate, Constraint, Objective, Outcome, Query, Sensitivity, Work};
use predict::{Limit, Tier};
use roofline::units::{Bytes, Joules, Seconds, Watts, counted};

type Closest = Option<(Candidate, Vec<Constraint>)>;

pub(super) fn reason(
    query: &Query,
    judged: &Judged,
    chosen: Option<&Candidate>,
    outcome: Option<&Outcome>,
    sensitivity: Option<&Sensitivity>,
    closest: &Closest,
) -> String {
    match (chosen, closest) {
        (Some(chosen), _) => {
            let runner_up = sensitivity.and_then(|sensitivity| sensitivity.runner_up.as_ref());
            let doubtful = sensitivity.is_some_and(Sensitivity::could_change);
            let mut reason = for_it(query, chosen, outcome, runner_up, doubtful);
            if let Some(format) = only_one_fits(query, &judged.fits) {
                reason.push_str(&format!(" Of the formats only {format} fits into memory."));
            }
            reason
        }
        (None, Some((closest, violated))) => against(query, judged, closest, violated),
        (None, None) => "there was no candidate".to_owned(),
    }
}

/// The only format that fits into memory, where there were several.
fn only_one_fits(query: &Query, fits: &[bool]) -> Option<String> {
    let key = |option: usize| match &query.work {
        Work::Op { formats, .. } => Some(formats[option].key().to_owned()),
        Work::Model { stored, kv_formats, .. } => stored[option / kv_formats.len()].format.clone(),
    };
    let formats = match &query.work {
        Work::Op { formats, .. } => formats.len(),
        Work::Model { stored, .. } => stored.len(),
    };
    let mut fitting: Vec<String> =
        fits.iter().enumerate().filter(|(_, fits)| **fits).filter_map(|(option, _)| key(option)).collect();
    fitting.dedup();
    if formats > 1 && fitting.len() == 1 { fitting.pop() } else { None }
}

fn for_it(
    query: &Query,
    chosen: &Candidate,
    outcome: Option<&Outcome>,
    runner_up: Option<&Candidate>,
    doubtful: bool,
) -> String {
    let goal = match (query.objective, &query.work) {
        (Objective::Latency, _) => "the shortest time",
        (Objective::Throughput, Work::Op { .. }) => "the most columns per second",
        (Objective::Throughput, Work::Model { .. }) => "the most tokens per second",
        (Objective::Energy, _) => "the least energy per token",
        (Objective::Power, _) => "the least power",
    };
    let limit = outcome.map_or_else(String::new, |outcome| format!(", limited by {}", limit(outcome)));
    let what = in_words(query, chosen);
    let mut reason = format!("{what} has {goal}: {}{limit}.", figures(query, chosen));
    if let Some(other) = runner_up {
        let doubt = if doubtful { "; their intervals overlap, so it may be the better one" } else { "" };
        let entering = if other.entering > Seconds::ZERO {
            format!(", and {} to enter its mode", other.entering)
        } else {
            String::new()
        };
        let (what, figures) = (in_words(query, other), figures(query, other));
        reason.push_str(&format!(" Next is {what}: {figures}{entering}{doubt}."));
    }
    reason
}

/// `q4_k_m in mode 25W with 4 sequences`.
fn in_words(query: &Query, candidate: &Candidate) -> String {
    let mut words = candidate.format.clone().unwrap_or_else(|| "the file as it is".to_owned());
    if let (Work::Model { kv_formats, .. }, Some(kv_format)) = (&query.work, candidate.kv_format)
        && kv_formats.len() > 1
    {
        words.push_str(&format!(" with a {kv_format} cache"));
    }
    if let Some(mode) = &candidate.mode {
        words.push_str(&format!(" in mode {}", mode.name));
    }
    if let Some(threads) = candidate.threads {
        words.push_str(&format!(" on {threads} threads"));
    }
    match (candidate.batch, &query.work) {
        (1, _) => {}
        (batch, Work::Op { .. }) => words.push_str(&format!(" with {batch} columns")),
        (batch, Work::Model { .. }) => words.push_str(&format!(" with {batch} sequences")),
    }
    words
}

/// The figures that the decision is about.
fn figures(query: &Query, candidate: &Candidate) -> String {
    let score = &candidate.score;
    let mut parts = Vec::new();
    match &query.work {
        Work::Op { .. } => {
            parts.push(format!("{} ({} columns/s)", Seconds(score.time), counted(score.rate)));
        }
        Work::Model { .. } => {
            if score.first.is_finite() {
                parts.push(format!("{} to the first token", Seconds(score.first)));
            }
            if score.per_token.is_finite() {
                parts.push(format!("{} a token", Seconds(score.per_token)));
            }
            parts.push(format!("{} tokens/s", counted(score.rate)));
        }
    }
    if score.watts.is_finite() && (query.constraints.max_power.is_some() || needs_power(query.objective)) {
        parts.push(format!("{}", Watts(score.watts)));
        parts.push(format!("{} a token", Joules(score.energy)));
    }
    parts.join(", ")
}

const fn needs_power(objective: Objective) -> bool {
    matches!(objective, Objective::Energy | Objective::Power)
}

const fn limit(outcome: &Outcome) -> &'static str {
    match outcome.prediction.limit {
        Limit::Dram => "memory bandwidth",
        Limit::Cache => "cache bandwidth",
        Limit::Core => "dequantizing the weights in the cores",
        Limit::Compute => "arithmetic",
        Limit::Launch => "the cost of starting it",
        Limit::PowerCap => "the power budget",
    }
}

fn against(query: &Query, judged: &Judged, closest: &Candidate, violated: &[Constraint]) -> String {
    let keys = |constraints: &[Constraint]| {
        let keys: Vec<&str> = constraints.iter().map(|by| by.key()).collect();
        keys.join(" and ")
    };
    let why = match judged.contradicting.as_slice() {
        [] | [_] => format!("nothing meets {}", keys(violated)),
        several => format!("{} contradict each other here: no candidate meets them together", keys(several)),
    };
    let score = &closest.score;
    let mut misses = Vec::new();
    for by in violated {
        misses.push(match by {
            Constraint::Time => format!("up to {}", Seconds(score.time * score.slack)),
            Constraint::TimePerToken => format!("up to {} a token", Seconds(score.per_token * score.slack)),
            Constraint::TimeToFirstToken => {
                format!("up to {} to the first token", Seconds(score.first * score.slack))
            }
            Constraint::Rate => format!("{} tokens/s or more", counted(score.rate / score.slack)),
            Constraint::Power if score.watts.is_nan() => "unknown power".to_owned(),
            Constraint::Power => format!("up to {}", Watts(score.watts_high)),
            Constraint::Memory | Constraint::Available => format!("{} of memory", Bytes(score.memory)),
            Constraint::QualityLoss if score.loss.is_nan() => "an unknown quality loss".to_owned(),
            Constraint::QualityLoss => format!("an expected quality loss of {:.2} %", score.loss * 100.0),
            Constraint::Reboot => "a reboot, which is not allowed".to_owned(),
            Constraint::PowerUnknown => "unknown power".to_owned(),
        });
    }
    format!(
        "{why}; the closest is {} at {}, with {}.",
        in_words(query, closest),
        figures(query, closest),
        misses.join(", ")
    )
}

/// What would sharpen the answer most: of the choice and its rival the one that less is known of, unless nothing that
/// could be measured would change the choice.
pub(super) fn next_best_measurement(
    query: &Query,
    chosen: Option<&Candidate>,
    outcome: Option<&Outcome>,
    sensitivity: Option<&Sensitivity>,
    closest: &Closest,
) -> Option<String> {
    let subject = chosen.or(closest.as_ref().map(|(candidate, _)| candidate))?;
    let tier = outcome.map_or(Tier::Prior, |outcome| outcome.prediction.tier);
    let rival = sensitivity.filter(|sensitivity| sensitivity.could_change());
    let rival = rival.and_then(|sensitivity| sensitivity.runner_up.as_ref());
    // What is known least decides.
    let doubtful = match rival {
        Some(rival) if rival.score.slack > subject.score.slack => rival,
        _ => subject,
    };
    let half_width = doubtful.score.slack - 1.0;
    let what = in_words(query, doubtful);
    let power_half_width = outcome.map_or(f64::NAN, |outcome| outcome.prediction.energy_slack() - 1.0);
    let power = needs_power(query.objective) && power_half_width > 2.0 * half_width;
    match (&query.work, tier) {
        (Work::Op { .. }, Tier::Prior) => Some("calibrate this machine: rooflinectl calibrate".to_owned()),
        (Work::Op { op, .. }, Tier::BoardCalibrated) => Some(format!(
            "report one measured {} {} time: POST /v1/observations",
            doubtful.format.as_deref().unwrap_or_default(),
            op.kind()
        )),
        (Work::Op { op, .. }, Tier::EngineCalibrated | Tier::Anchored) => {
            (half_width > 0.1).then(|| format!("measure this shape: rooflinectl measure {}", op.kind()))
        }
        (Work::Model { .. }, _) if power => Some(format!(
            "its power decides and is known to {:.0} %: report power_w of one run of {what} with POST /v1/observations",
            100.0 * power_half_width
        )),
        (Work::Model { .. }, Tier::Prior) => Some(format!(
            "calibrate this machine (rooflinectl calibrate), or report the rate of one run of {what} (rooflinectl \
             observe): it is known to {:.0} % only",
            100.0 * half_width
        )),
        (Work::Model { name, .. }, Tier::BoardCalibrated | Tier::EngineCalibrated | Tier::Anchored) => {
            (half_width > 0.05 || rival.is_some()).then(|| {
                format!(
                    "report the rate of one run of {name} as {what} (rooflinectl observe): it is known to {:.0} %",
                    100.0 * half_width
                )
            })
        }
        (_, Tier::Observed) => rival.map(|_| format!("report one run of {what}: it may be the better choice")),
    }
}
