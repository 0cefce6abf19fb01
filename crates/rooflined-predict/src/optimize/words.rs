//! The reason for a decision as text, and which measurement would improve it most.

use super::ranking::{ALIKE, Tally, needs_power};
use super::{
    Candidate, Constraint, EnergyBasis, Miss, Objective, Outcome, Query, Rejection, Sensitivity, WorkForms,
};
use crate::power::scope_words;
use crate::{Engine, Tier};
use rooflined_core::units::{Bytes, Joules, Seconds, Watts, counted, significant};

type Closest = Option<(Candidate, Vec<Miss>)>;

pub(super) fn reason(
    query: &Query,
    fits: &[bool],
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
            if let Some(format) = only_one_fits(query, fits) {
                reason
                    .push_str(&format!(" Of the formats compared with it, only {format} fits into memory."));
            }
            reason
        }
        (None, Some((closest, violated))) => against(query, closest, violated),
        (None, None) => String::new(),
    }
}

/// The only format that fits into memory, where there were several.
fn only_one_fits(query: &Query, fits: &[bool]) -> Option<String> {
    let key = |option: usize| match &query.work {
        WorkForms::Op { formats, .. } => Some(formats[option].key().to_owned()),
        WorkForms::Model { stored, kv_formats, .. } => stored[option / kv_formats.len()].format.clone(),
    };
    let formats = match &query.work {
        WorkForms::Op { formats, .. } => formats.len(),
        WorkForms::Model { stored, .. } => stored.len(),
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
        (Objective::Throughput, WorkForms::Op { .. }) => "the most columns per second",
        (Objective::Throughput, WorkForms::Model { .. }) => "the most tokens per second",
        (Objective::Energy, WorkForms::Op { .. }) => "the least energy per column",
        (Objective::Energy, WorkForms::Model { .. }) => "the least energy per token",
        (Objective::Power, _) => "the least power",
    };
    let counted = match (query.objective, query.energy) {
        (Objective::Energy, EnergyBasis::WithIdle) => ", idle power included",
        (Objective::Energy, EnergyBasis::Marginal) => " above idle",
        _ => "",
    };
    let limit = outcome
        .map_or_else(String::new, |outcome| format!(", limited by {}", outcome.prediction.limit.words()));
    let what = in_words(query, chosen);
    let least = |of: &Candidate| match query.objective {
        Objective::Energy => of.score.energy,
        Objective::Power => of.score.watts,
        Objective::Latency | Objective::Throughput => f64::INFINITY,
    };
    let has = if runner_up.is_some_and(|other| least(other) < least(chosen)) {
        format!("is faster, and within {:.0} % of", ALIKE * 100.0)
    } else {
        "has".to_owned()
    };
    let with = with_engine(query).map_or_else(String::new, |engine| format!("With {engine}, "));
    let mut reason = format!("{with}{what} {has} {goal}{counted}: {}{limit}.", figures(query, chosen));
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

/// The engine that a decision is about: each of several decides for itself.
fn with_engine(query: &Query) -> Option<&'static str> {
    (query.engine != Engine::Bare).then(|| query.engine.key())
}

/// What the best estimate would choose with the same engine, and how to ask for it.
pub(super) fn at_expected(query: &Query, candidate: &Candidate) -> String {
    let with = with_engine(query).map_or_else(String::new, |engine| format!("{engine} and "));
    format!(
        " Limits are kept at the worse end of the intervals; with {with}\"optimism\":\"expected\" it would be {}: {}.",
        in_words(query, candidate),
        figures(query, candidate)
    )
}

/// `q4_k_m in mode 25W with 4 sequences`.
fn in_words(query: &Query, candidate: &Candidate) -> String {
    let mut words = candidate.format.clone().unwrap_or_else(|| "the file as it is".to_owned());
    if let (WorkForms::Model { kv_formats, .. }, Some(kv_format)) = (&query.work, candidate.kv_format)
        && kv_formats.len() > 1
    {
        words.push_str(&format!(" with its cache in {kv_format}"));
    }
    if let Some(mode) = &candidate.mode {
        words.push_str(&format!(" in mode {}", mode.name));
    }
    if let Some(threads) = candidate.threads {
        words.push_str(&format!(" on {threads} threads"));
    }
    match (candidate.batch, &query.work) {
        (1, _) => {}
        (batch, WorkForms::Op { .. }) => words.push_str(&format!(" with {batch} columns")),
        (batch, WorkForms::Model { .. }) => words.push_str(&format!(" with {batch} sequences")),
    }
    words
}

/// The figures that the decision is about.
fn figures(query: &Query, candidate: &Candidate) -> String {
    let score = &candidate.score;
    let mut parts = Vec::new();
    match &query.work {
        WorkForms::Op { .. } => {
            parts.push(format!("{} ({} columns/s)", Seconds(score.time), counted(score.rate)));
        }
        WorkForms::Model { .. } => {
            if score.first.is_finite() {
                parts.push(format!("{} to the first token", Seconds(score.first)));
            }
            if score.per_token.is_finite() {
                let each = if candidate.batch > 1 { " of each sequence" } else { "" };
                parts.push(format!("{} a token{each}", Seconds(score.per_token)));
            }
            parts.push(format!("{} tokens/s", counted(score.rate)));
        }
    }
    if score.watts.is_finite() && (query.constraints.max_power.is_some() || needs_power(query.objective)) {
        let each = if matches!(query.work, WorkForms::Op { .. }) { "column" } else { "token" };
        parts.push(format!("{}{}", Watts(score.watts), scope(candidate)));
        let above = if query.energy == EnergyBasis::Marginal { " above idle" } else { "" };
        parts.push(format!("{} a {each}{above}", Joules(score.energy)));
    }
    parts.join(", ")
}

/// ` (module)`
fn scope(candidate: &Candidate) -> String {
    candidate.rails.map_or_else(String::new, |rails| format!(" ({})", scope_words(rails.scope())))
}

impl Tally {
    /// Why no candidate is left: the limit that none of them meets, or how many meet each.
    #[must_use]
    pub fn why_none(&self) -> String {
        match self.contradicting().as_slice() {
            [] => "there was no candidate".to_owned(),
            [Constraint::Available] => "nothing fits into the free memory".to_owned(),
            [one] => format!("nothing meets {}", one.key()),
            _ => {
                let all = self.candidates();
                let met = |Rejection { by, count, .. }: Rejection| {
                    let left = all - count;
                    let plural = if left == 1 { "s" } else { "" };
                    match by {
                        Constraint::Available => format!("{left} fit{plural} into the free memory"),
                        Constraint::Reboot => format!("{left} need{plural} no reboot"),
                        by => format!("{left} meet{plural} {}", by.key()),
                    }
                };
                let met: Vec<String> = self.rejected().into_iter().map(met).collect();
                format!("no candidate meets all limits together: of {all}, {}", met.join(", "))
            }
        }
    }
}

fn against(query: &Query, closest: &Candidate, misses: &[Miss]) -> String {
    // What has no room has no rate.
    let has_room = misses.iter().all(|miss| !matches!(miss.by, Constraint::Available | Constraint::Memory));
    let at = if has_room { format!(" at {}", figures(query, closest)) } else { String::new() };
    let misses: Vec<String> = misses.iter().map(|miss| missed(closest, miss)).collect();
    format!("the closest is {}{at}: {}.", in_words(query, closest), misses.join(", "))
}

/// `it draws up to 15.4 W (module), 18 % over the 13.0 W limit`
fn missed(candidate: &Candidate, miss: &Miss) -> String {
    let seconds = |value: f64| Seconds(value).to_string();
    let rate = |value: f64| format!("{} tokens/s", counted(value));
    let bytes = |value: f64| Bytes(value).to_string();
    let loss = |value: f64| format!("{:.2} %", value * 100.0);
    let watts = |value: f64| Watts(value).to_string();
    let (takes, of, unit): (&str, String, &dyn Fn(f64) -> String) = match miss.by {
        Constraint::Time => ("takes up to", String::new(), &seconds),
        Constraint::TimePerToken => ("takes up to", " a token".to_owned(), &seconds),
        Constraint::TimeToFirstToken => ("takes up to", " to the first token".to_owned(), &seconds),
        Constraint::Rate => ("may give as little as", String::new(), &rate),
        Constraint::Power => ("draws up to", scope(candidate), &watts),
        Constraint::Memory => ("needs", " of memory".to_owned(), &bytes),
        Constraint::Available => ("needs", " of memory".to_owned(), &bytes),
        Constraint::QualityLoss => ("loses", " of quality".to_owned(), &loss),
        Constraint::Reboot => return "it needs a reboot, which is not allowed".to_owned(),
        Constraint::PowerUnknown => return "its power is unknown".to_owned(),
    };
    let Some((value, limit)) = miss.value.zip(miss.limit) else {
        return format!(
            "its {} is unknown",
            if miss.by == Constraint::Power { "power" } else { "quality loss" }
        );
    };
    // What is reserved may be more than there is.
    if miss.by == Constraint::Available && limit <= 0.0 {
        return format!("it {takes} {}{of}, and none is free", unit(value));
    }
    let (way, limit) = match miss.by {
        Constraint::Available => ("more than", format!("the {} that is free", unit(limit))),
        Constraint::Rate => ("below", format!("the minimum of {}", unit(limit))),
        _ => ("over", format!("the {} limit", unit(limit))),
    };
    let by = match miss.ratio() {
        Some(ratio) if ratio < 0.01 => format!("less than 1 % {way}"),
        Some(ratio) if ratio < 1.0 || miss.by == Constraint::Rate => format!("{:.0} % {way}", 100.0 * ratio),
        Some(ratio) => format!("{} times", significant(1.0 + ratio)),
        None => way.to_owned(),
    };
    format!("it {takes} {}{of}, {by} {limit}", unit(value))
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
        (WorkForms::Op { .. }, Tier::Prior) => Some("calibrate this machine: rooflinectl calibrate".to_owned()),
        (WorkForms::Op { op, .. }, Tier::BoardCalibrated) => Some(format!(
            "report one measured {} {} time: POST /v1/observations",
            doubtful.format.as_deref().unwrap_or_default(),
            op.kind()
        )),
        (WorkForms::Op { op, .. }, Tier::EngineCalibrated | Tier::Anchored) => {
            (half_width > 0.1).then(|| format!("measure this shape: rooflinectl measure {}", op.kind()))
        }
        (WorkForms::Model { .. }, _) if power => Some(format!(
            "its power decides and is uncertain by ±{:.0} %: report power_w of one run of {what} with POST /v1/observations",
            100.0 * power_half_width
        )),
        (WorkForms::Model { .. }, Tier::Prior) => Some(format!(
            "calibrate this machine (rooflinectl calibrate), or report the rate of one run of {what} (rooflinectl \
             observe): its time is uncertain by ±{:.0} %",
            100.0 * half_width
        )),
        (WorkForms::Model { name, .. }, Tier::BoardCalibrated | Tier::EngineCalibrated | Tier::Anchored) => {
            (half_width > 0.05 || rival.is_some()).then(|| {
                format!(
                    "report the rate of one run of {name} as {what} (rooflinectl observe): its time is uncertain by ±{:.0} %",
                    100.0 * half_width
                )
            })
        }
        (_, Tier::Observed) => rival.map(|_| format!("report one run of {what}: it may be the better choice")),
    }
}
