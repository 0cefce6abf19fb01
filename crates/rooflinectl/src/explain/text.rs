//! An explanation for people, on one screen.

use std::fmt::Write;

use crate::show::SIMULATED;
use crate::words;
use rooflined_api::{CauseAnswer, ExplainAnswer};
use rooflined_core::units::significant;

/// The answer about `what`.
pub fn render(what: &str, answer: &ExplainAnswer) -> String {
    let mut text = if answer.simulated { SIMULATED.to_owned() } else { String::new() };
    let _ = writeln!(text, "{what}: {}\n{}\n", answer.verdict.replace('_', " "), answer.reason);
    let measured = if answer.verdict == "not_measured" { "now" } else { "measured" };
    let expected = words::estimate(&answer.expected_tokens_per_s, words::rate);
    let _ = writeln!(text, "  {measured:<11} {}", words::rate(answer.measured_tokens_per_s));
    let format = answer.format.as_ref().map_or_else(String::new, |format| format!(" as {format}"));
    // An older daemon names none.
    let is_named = !["", "none"].contains(&answer.engine.as_str());
    let engine = if is_named { format!(" in {}", answer.engine) } else { String::new() };
    let _ = writeln!(text, "  expected    {expected},{format}{engine} at {}", answer.expected_at);
    for cause in &answer.causes {
        describe(&mut text, cause);
    }
    if let Some((ratio, rate)) = answer
        .unexplained_ratio
        .zip(answer.unexplained_tokens_per_s)
        .filter(|(ratio, _)| *ratio > 0.005 && answer.verdict == "slower_than_expected")
    {
        let _ = writeln!(text, "\n  {} unexplained: {} of the difference", lost(rate), words::percent(ratio));
    }
    let checked = |is_known: bool| answer.checked.iter().filter(move |of| of.value.is_some() == is_known);
    for (number, of) in checked(true).enumerate() {
        let title = if number == 0 { "\n  checked, and not the cause:\n" } else { "" };
        let value = words::printable(of.value.as_deref().unwrap_or_default());
        let _ = writeln!(text, "{title}    {}: {value} ({})", of.what, of.source);
    }
    for (number, of) in checked(false).enumerate() {
        let title = if number == 0 { "\n  could not be checked:\n" } else { "" };
        let _ = writeln!(text, "{title}    {} ({})", of.what, of.source);
    }
    for unseen in &answer.unseen {
        let _ = writeln!(text, "\n  not seen: {} ({})\n    -> {}", unseen.what, unseen.reason, unseen.grant);
    }
    text
}

fn lost(rate: f64) -> String {
    format!("{:>10}", format!("-{} /s", significant(rate)))
}

fn describe(text: &mut String, cause: &CauseAnswer) {
    let _ = writeln!(text, "\n  {} {}", lost(cause.share_tokens_per_s), cause.what);
    let _ = writeln!(
        text,
        "             {} of the difference, {}; without it {}",
        words::percent(cause.share_ratio),
        cause.certainty,
        words::rate(cause.without_tokens_per_s)
    );
    for evidence in &cause.evidence {
        let _ = writeln!(text, "             {}: {}", evidence.source, words::printable(&evidence.value));
    }
    let _ = writeln!(text, "             -> {}", cause.fix);
}
