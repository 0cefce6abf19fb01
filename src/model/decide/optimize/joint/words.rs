//! The reason for a joint decision as text.

use super::together::Combination;
use super::{Joint, JointQuery, Member, Sharing, Totals, Violation};
use crate::optimize::point::CandidatePoint;
use crate::optimize::{Constraint, Objective, Optimism, Work};
use roofline::units::{Bytes, Seconds, Watts};

/// What a workload is called.
pub(super) fn name(query: &JointQuery, index: usize) -> String {
    match &query.residents[index].work {
        Work::Op { op, .. } => op.kind().to_owned(),
        Work::Model { name, .. } => name.clone(),
    }
}

pub(super) fn reason(
    query: &JointQuery,
    result: Option<&Joint>,
    violated: &[Violation],
    runner_up: Option<(&CandidatePoint<'_>, &Combination)>,
) -> String {
    let Some(joint) = result else { return "there was no candidate".to_owned() };
    let members: Vec<String> =
        joint.members.iter().enumerate().map(|(index, member)| described(query, index, member)).collect();
    let members = members.join(", ");
    let mode = joint.members.first().and_then(|member| member.candidate.mode.as_ref());
    let mode = mode.map_or_else(String::new, |mode| format!(" in mode {}", mode.name));
    if !violated.is_empty() {
        let misses: Vec<String> = violated.iter().map(|by| missed(query, joint, *by)).collect();
        return format!("{}; the closest is {members}{mode}.", misses.join(", and "));
    }
    let goal = match query.objective {
        Objective::Latency => "the shortest time of the slowest workload",
        Objective::Throughput => "the most tokens per second",
        Objective::Energy => "the least energy per token",
        Objective::Power => "the least power",
    };
    let figures = figures(query, &joint.totals);
    let mut reason = format!("{members}{mode} have {goal} together: {figures}.");
    if let Some((point, found)) = runner_up
        && let Some(mode) = &point.mode
    {
        reason.push_str(&format!(" Next is mode {}: {}.", mode.name, self::figures(query, &found.totals)));
    }
    reason
}

/// `qwen3-4b as q4_k_m with 4 sequences and 60 % of the time`.
fn described(query: &JointQuery, index: usize, member: &Member) -> String {
    let candidate = &member.candidate;
    let mut words = name(query, index);
    if let Some(format) = &candidate.format {
        words.push_str(&format!(" as {format}"));
    }
    let of = match query.sharing {
        Sharing::TimeSlicing => "time",
        Sharing::Mps => "machine",
    };
    match (candidate.batch, &query.residents[index].work) {
        (1, _) => words.push_str(" with"),
        (batch, Work::Op { .. }) => words.push_str(&format!(" with {batch} columns and")),
        (batch, Work::Model { .. }) => words.push_str(&format!(" with {batch} sequences and")),
    }
    let score = &candidate.score;
    words.push_str(&format!(
        " {:.0} % of the {of} ({}, {:.1} tokens/s)",
        query.residents[index].share * 100.0,
        Seconds(score.time),
        score.rate
    ));
    words
}

fn figures(query: &JointQuery, totals: &Totals) -> String {
    let mut parts = vec![format!("{:.1} tokens/s", totals.rate)];
    if query.objective == Objective::Latency {
        parts.insert(0, format!("{}", Seconds(totals.longest)));
    }
    if totals.watts.is_finite() {
        parts.push(format!("{}", Watts(totals.watts)));
        parts.push(format!("{:.3} J a token", totals.energy));
    }
    parts.push(format!("{} of memory", Bytes(totals.memory)));
    parts.join(", ")
}

fn missed(query: &JointQuery, joint: &Joint, violation: Violation) -> String {
    let Violation { workload, by } = violation;
    let key = by.key();
    let expected = query.optimism == Optimism::Expected;
    let Some(member) = workload.and_then(|index| Some((index, joint.members.get(index)?))) else {
        let totals = &joint.totals;
        let value = match by {
            Constraint::Power => {
                format!("up to {}", Watts(if expected { totals.watts } else { totals.watts_high }))
            }
            Constraint::PowerUnknown => "unknown power".to_owned(),
            _ => format!("{} of memory", Bytes(totals.memory)),
        };
        return format!("nothing meets {key} together, which comes to {value}");
    };
    let (index, member) = member;
    let score = &member.candidate.score;
    let slack = if expected { 1.0 } else { score.slack };
    let value = match by {
        Constraint::Time => format!("{} or more", Seconds(score.time * slack)),
        Constraint::TimePerToken => format!("{} or more a token", Seconds(score.per_token * slack)),
        Constraint::TimeToFirstToken => {
            format!("{} or more to the first token", Seconds(score.first * slack))
        }
        Constraint::Rate => format!("{:.1} tokens/s or less", score.rate / slack),
        Constraint::Memory | Constraint::Available => format!("{} of memory", Bytes(score.memory)),
        Constraint::QualityLoss if score.loss.is_nan() => "an unknown quality loss".to_owned(),
        Constraint::QualityLoss => format!("an expected quality loss of {:.2} %", score.loss * 100.0),
        Constraint::Reboot => "a reboot, which is not allowed".to_owned(),
        Constraint::Power | Constraint::PowerUnknown => "unknown power".to_owned(),
    };
    let share = query.residents[index].share * 100.0;
    format!("{} does not meet {key} with its share of {share:.0} %: it takes {value}", name(query, index))
}
