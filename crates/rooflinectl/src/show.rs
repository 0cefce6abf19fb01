//! Answers in words: the machine, its ceilings, predictions and decisions.

use std::fmt::Write;

use serde_json::Value;

use super::headline;
use super::input::SubjectText;
use super::options::name_options;
use super::table::{Column, Table};
use super::{details, power_costs, words};
use rooflined_api::{
    AnalyzeAnswer, BoardAnswer, BreakdownEntry, CeilingAnswer, MemoryAnswer, ObservationsAnswer,
    PredictAnswer, ReportsAnswer, RooflineAnswer, StateAnswer, StateField, SweepAnswer, SweepRow,
};
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, significant};
use rooflined_models::transformer::Phase;
use rooflined_predict::power::scope_words;

/// Said of every value that describes no hardware.
pub const SIMULATED: &str = "SIMULATED: no value describes hardware\n";

/// `GET /v1/board`.
#[must_use]
pub fn board(board: &BoardAnswer) -> String {
    let mut text = String::new();
    if board.simulated {
        text.push_str(SIMULATED);
    }
    let mut table = Table::new(&["", "", ""]);
    let source = |name: &str| board.sources.get(name).map(|file| format!("[{file}]")).unwrap_or_default();
    let known = |name: &str, value: Option<&str>| {
        value.map_or_else(|| missing(board.reasons.get(name).map(String::as_str)), ToOwned::to_owned)
    };
    table.row(["board".to_owned(), board.key.clone(), source("key")]);
    for note in &board.notes {
        table.row([String::new(), note.clone(), String::new()]);
    }
    for (name, value) in [("model", &board.model), ("kernel", &board.kernel), ("os", &board.os)] {
        table.row([name.to_owned(), known(name, value.as_deref()), source(name)]);
    }
    // Of a Jetson alone: elsewhere its absence says nothing.
    for (name, value) in [("module", &board.module), ("l4t", &board.l4t)] {
        if let Some(value) = value {
            table.row([name.to_owned(), value.clone(), source(name)]);
        }
    }
    let gpu = board.gpu.as_ref().unwrap_or(&Value::Null);
    if gpu.is_null() {
        table.row(["gpu".to_owned(), known("gpu", None), String::new()]);
    }
    for (name, value) in [("gpu", gpu), ("cpu", &board.cpu), ("memory", &board.memory)] {
        for (key, value) in value.as_object().into_iter().flatten() {
            let path = format!("{name}.{key}");
            let shown = match value {
                Value::Null => missing(board.reasons.get(&path).map(String::as_str)),
                // A modern CPU has a hundred flags; `-o json` has them all.
                Value::Array(flags) if key == "features" => format!("{} flags", flags.len()),
                Value::Array(clocks) if key == "clocks_hz" && clocks.len() > 2 => {
                    let ends = [clocks.first(), clocks.last()].into_iter().flatten();
                    let ends: Vec<String> = ends.map(|clock| words::field(key, clock)).collect();
                    format!("{} from {}", clocks.len(), ends.join(" to "))
                }
                Value::Array(caches) if key == "caches" => {
                    caches.iter().map(cache).collect::<Vec<_>>().join(", ")
                }
                _ => words::field(key, value),
            };
            table.row([format!("{name} {}", words::name_field(key)), shown, source(&path)]);
        }
    }
    let modes: Vec<_> = board.modes.iter().map(|mode| format!("{} ({})", mode.name, mode.id)).collect();
    let modes = if modes.is_empty() { "none".to_owned() } else { modes.join(", ") };
    table.row(["power modes".to_owned(), modes, source("modes")]);
    text + &table.render()
}

fn cache(cache: &Value) -> String {
    let number = |name: &str| cache.get(name).and_then(Value::as_f64).unwrap_or_default();
    let kind = match cache.get("kind").and_then(Value::as_str) {
        Some("data") => "d",
        Some("instruction") => "i",
        _ => "",
    };
    format!("{} x L{}{kind} {}", number("instances"), number("level"), Bytes(number("size_bytes")))
}

pub fn missing(reason: Option<&str>) -> String {
    reason.map_or_else(|| "unknown".to_owned(), |reason| format!("unknown ({reason})"))
}

/// `GET /v1/state` with the main ceilings, where they are known.
#[must_use]
pub fn status(state: &StateAnswer, roofline: Option<&RooflineAnswer>) -> String {
    let mut text = String::new();
    if state.simulated {
        text.push_str(SIMULATED);
    }
    let mut table = Table::new(&["", ""]);
    let mut absent: Vec<(String, String)> = Vec::new();
    for (name, field) in &state.fields {
        if field.value.is_null() {
            let reason = field.reason.as_deref().unwrap_or("no reason given");
            absent.push((words::name_field(name), reason.to_owned()));
        } else if let Some(lines) = details::lines(name, &field.value) {
            for (index, line) in lines.into_iter().enumerate() {
                let label = if index == 0 { words::name_field(name) } else { String::new() };
                table.row([label, line]);
            }
        } else {
            table.row([words::name_field(name), render_known(name, field)]);
        }
        // Of what is known in part: what is missing of lists stands in `-o json`.
        if name == "software" {
            absent.extend(field.reasons.iter().map(|(part, reason)| (part.clone(), reason.clone())));
        }
    }
    if let Some(roofline) = roofline {
        for (name, ceiling) in ceilings(roofline, 4) {
            table.row([name, ceiling]);
        }
        table.row(["power costs".to_owned(), power_costs::line(&roofline.power)]);
    }
    text.push_str(&table.render());
    if !absent.is_empty() {
        let _ = writeln!(text, "\nunknown:");
        for (names, reason) in by_reason(absent) {
            let _ = writeln!(text, "  {} ({reason})", names.join(", "));
        }
    }
    if !state.degraded.is_empty() {
        let _ = writeln!(text, "\ndegraded:");
        for problem in &state.degraded {
            let _ = writeln!(text, "  {problem}");
        }
    }
    let _ = writeln!(text, "\nserial {}", state.serial);
    text
}

/// The names of what has one reason together, in the order of the first of each: a missing driver is the reason of many.
fn by_reason(absent: Vec<(String, String)>) -> Vec<(Vec<String>, String)> {
    let mut grouped: Vec<(Vec<String>, String)> = Vec::new();
    for (name, reason) in absent {
        match grouped.iter_mut().find(|(_, known)| *known == reason) {
            Some((names, _)) => names.push(name),
            None => grouped.push((vec![name], reason)),
        }
    }
    grouped
}

fn render_known(name: &str, field: &StateField) -> String {
    let shown = words::field(name, &field.value);
    // Fresh values need no age; an old one must not pass for now.
    match field.age_s {
        Some(age) if age >= 5.0 => format!("{shown} ({} ago)", words::age(age)),
        _ => shown,
    }
}

/// The main ceilings by name, the most used precisions first, at most `precisions` of them.
pub fn ceilings(roofline: &RooflineAnswer, precisions: usize) -> Vec<(String, String)> {
    let bandwidth = &roofline.bandwidth_bytes_per_s;
    let mut found =
        vec![("memory read".to_owned(), ceiling(bandwidth, |value| BytesPerSecond(value).to_string()))];
    let compute = roofline.compute_flops_per_s.iter().take(precisions);
    found
        .extend(compute.map(|(name, rate)| {
            (format!("peak {name}"), ceiling(rate, |value| words::compute(name, value)))
        }));
    found
}

fn ceiling(ceiling: &CeilingAnswer, unit: impl Fn(f64) -> String) -> String {
    let age = ceiling.age_s.map_or_else(String::new, |age| format!(" {} ago", words::age(age)));
    format!("{} ({}{age})", unit(ceiling.value), ceiling.provenance)
}

/// `GET /v1/roofline`, beside its plot.
#[must_use]
pub fn roofline(answer: &RooflineAnswer) -> String {
    let mut table = Table::new(&["ceiling", ">value", ">low", ">high", "from", "age", ">ridge"]);
    let mut row =
        |name: String, ceiling: &CeilingAnswer, unit: &dyn Fn(f64) -> String, ridge: Option<String>| {
            table.row([
                name,
                unit(ceiling.value),
                unit(ceiling.low),
                unit(ceiling.high),
                ceiling.provenance.clone(),
                ceiling.age_s.map(words::age).unwrap_or_default(),
                ridge.unwrap_or_default(),
            ]);
        };
    let bandwidth = |value| BytesPerSecond(value).to_string();
    row("memory read".to_owned(), &answer.bandwidth_bytes_per_s, &bandwidth, None);
    for (name, ceiling) in
        [("memory copy", &answer.copy_bytes_per_s), ("memory triad", &answer.triad_bytes_per_s)]
    {
        if let Some(ceiling) = ceiling {
            row(name.to_owned(), ceiling, &bandwidth, None);
        }
    }
    for (precision, ceiling) in &answer.compute_flops_per_s {
        let ridge = answer.ridge_flops_per_byte.get(precision);
        let ridge = ridge.map(|ridge| words::intensity(precision, *ridge));
        row(format!("peak {precision}"), ceiling, &|value| words::compute(precision, value), ridge);
    }
    row("launch".to_owned(), &answer.launch_s, &words::time, None);
    let mut text = mark_simulated(answer.simulated, table.render());
    let clock = answer
        .clock_hz
        .map_or_else(String::new, |hz| format!(" at {}", words::field("clock_hz", &hz.into())));
    let _ = writeln!(text, "\n{} workers{clock}", answer.workers);
    for regime in &answer.regimes {
        let latency =
            regime.core_to_core_s.map_or_else(String::new, |s| format!(", core to core {}", words::time(s)));
        let active = if regime.active { " <- now" } else { "" };
        let bandwidth = BytesPerSecond(regime.bandwidth_bytes_per_s);
        let _ = writeln!(text, "regime {}: {bandwidth}{latency}{active}", regime.key);
    }
    if let Some(drift) = answer.drift_ratio {
        let _ = writeln!(text, "memory now at {} of its calibrated bandwidth", words::percent(drift));
    }
    text.push_str(&power_costs::detailed(&answer.power));
    text
}

/// `POST /v1/predict`.
#[must_use]
pub fn prediction(asked: &SubjectText, mode: Option<&str>, answer: &PredictAnswer) -> String {
    let mut text = String::new();
    if answer.simulated {
        text.push_str(SIMULATED);
    }
    text.push_str(&headline::prediction(asked, mode, answer));
    // What is wrong with the question comes before the figures, what limits their worth behind them.
    let warnings: Vec<String> = answer.warnings.iter().map(|warning| name_options(warning)).collect();
    let (of_question, of_answer): (Vec<_>, Vec<_>) = warnings.iter().partition(|of| of.starts_with("--"));
    for warning in of_question {
        let _ = writeln!(text, "  note: {warning}");
    }
    let mut table = Table::new(&["", ""]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row(
        match asked.phase {
            _ if answer.documents_per_s.is_some() => "documents",
            None => "time",
            Some(Phase::Decode) => "step",
            Some(Phase::Prefill) => "prompt",
            Some(Phase::Serve) => "prompt and answer",
        },
        words::estimate(&answer.time_s, words::time),
    );
    row("  at least", format!("{} (physical bound)", words::time(answer.roofline_time_s)));
    if let Some(first) = &answer.time_to_first_token_s {
        row("first token", words::estimate(first, words::time));
    }
    // A step is a token, unless there are several of them.
    if let Some(each) = answer.time_per_token_s.as_ref().filter(|each| each.value != answer.time_s.value) {
        let name = if asked.batch > 1 { "token of a sequence" } else { "each token" };
        row(name, words::estimate(each, words::time));
    }
    row("limited by", words::limit(&answer.limit));
    row("rate", words::estimate(&answer.tokens_per_s, words::rate));
    row("work", format!("{} in {}", Flops(answer.flops), answer.compute));
    row("traffic", Bytes(answer.bytes).to_string());
    row(
        "intensity",
        format!(
            "{} (ridge {})",
            words::intensity(&answer.compute, answer.arithmetic_intensity_flops_per_byte),
            significant(answer.ridge_flops_per_byte)
        ),
    );
    let fits = match answer.memory_bytes.fits {
        Some(true) => ", fits",
        Some(false) => ", DOES NOT FIT",
        None => "",
    };
    row(
        "memory",
        format!("{}{}{fits}", Bytes(answer.memory_bytes.total), parts_of_memory(&answer.memory_bytes)),
    );
    if let Some(power) = &answer.power_w {
        let watts = words::estimate(&power.estimate(), |value| words::field("_w", &value.into()));
        row("power", format!("{watts}, {}", scope_words(&power.scope)));
    }
    let joules = |value: f64| words::field("_j", &value.into());
    if let Some(energy) = &answer.energy_j_per_token {
        row("energy per token", words::estimate(energy, joules));
    } else if let Some(energy) = &answer.energy_j {
        row("energy", words::estimate(energy, joules));
    }
    row("rests on", format!("{} ({})", answer.tier, answer.provenance));
    if let Some(ReportsAnswer { own, shared, .. }) = &answer.reports {
        row("reported runs", format!("{own} own, {shared} shared"));
    }
    text.push_str(&table.render());
    // One operation is all of itself.
    if answer.breakdown.len() > 1 {
        text.push_str(&breakdown(&answer.breakdown));
    }
    for warning in of_answer {
        let _ = writeln!(text, "  warning: {warning}");
    }
    text
}

/// What a model takes for what; nothing of an operation.
fn parts_of_memory(memory: &MemoryAnswer) -> String {
    let Some(engine) = memory.engine else { return String::new() };
    format!(
        " (weights {}, cache {}, activations {}, engine {})",
        Bytes(memory.weights),
        Bytes(memory.kv_cache),
        Bytes(memory.activations),
        Bytes(engine)
    )
}

/// Where the time of a model goes, longest first.
fn breakdown(parts: &[BreakdownEntry]) -> String {
    let whole: f64 = parts.iter().map(|part| part.time_s).sum();
    let mut table = Table::new(&["part", ">time", ">of it", ">bytes", ">work"]);
    for part in parts {
        table.row([
            part.op.clone(),
            words::time(part.time_s),
            words::percent(part.time_s / whole),
            Bytes(part.bytes).to_string(),
            Flops(part.flops).to_string(),
        ]);
    }
    format!("\n{}", table.render())
}

const SWEPT: [Column<SweepRow>; 17] = [
    ("what", |row| row.op.as_ref().map(words::operation).or_else(|| row.model.clone())),
    ("engine", |row| row.op.is_none().then(|| row.prediction.engine.clone())),
    ("format", |row| Some(row.prediction.format.clone().unwrap_or_else(|| "its own".to_owned()))),
    (">loss", |row| row.quality_loss_ratio.map(words::percent)),
    ("power mode", |row| Some(row.power_mode.as_ref()?.name.clone())),
    (">threads", |row| row.threads.map(|count| count.to_string())),
    (">batch", |row| Some(row.batch.to_string())),
    (">context", |row| row.prediction.context_tokens.map(|tokens| tokens.to_string())),
    (">time", |row| Some(words::time(row.prediction.time_s.value))),
    (">low", |row| Some(words::time(row.prediction.time_s.low))),
    (">high", |row| Some(words::time(row.prediction.time_s.high))),
    (">rate", |row| Some(words::rate(row.prediction.tokens_per_s.value))),
    (">memory", |row| Some(Bytes(row.prediction.memory_bytes.total).to_string())),
    ("fits", |row| {
        let fits = row.prediction.memory_bytes.fits;
        Some(fits.map_or("unknown", |fits| if fits { "yes" } else { "NO" }).to_owned())
    }),
    ("bound", |row| Some(row.prediction.bound.clone())),
    ("limit", |row| Some(row.prediction.limit.clone())),
    ("rests on", |row| Some(row.prediction.tier.clone())),
];

/// `POST /v1/sweep`.
#[must_use]
pub fn sweep(answer: &SweepAnswer) -> String {
    let mut text = headline::sweep(answer) + &Table::of(&answer.rows, &SWEPT).render();
    for warning in &answer.warnings {
        let rows = warning.rows.as_ref().map_or_else(String::new, |rows| match rows.len() {
            1 => " (1 row)".to_owned(),
            count => format!(" ({count} rows)"),
        });
        let _ = writeln!(text, "  {}{rows}", name_options(&warning.message));
    }
    mark_simulated(answer.simulated, text)
}

/// `text`, below a line that says so where it describes no hardware.
pub fn mark_simulated(simulated: bool, text: String) -> String {
    if simulated { format!("{SIMULATED}{text}") } else { text }
}

/// `POST /v1/analyze`.
#[must_use]
pub fn analysis(what: &str, answer: &AnalyzeAnswer) -> String {
    let verdict = format!("{}  {}\n", headline::analysis(what, answer), name_options(&answer.reason));
    let mut text = mark_simulated(answer.simulated, verdict);
    let mut table = Table::new(&["", ""]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row(
        "achieved",
        format!(
            "{} and {}",
            words::compute(&answer.prediction.compute, answer.achieved_flops_per_s),
            BytesPerSecond(answer.achieved_bytes_per_s)
        ),
    );
    row("of the ceiling", words::percent(answer.ceiling_ratio));
    row("predicted/measured", words::percent(answer.predicted_ratio));
    row("limited by", words::limit(&answer.limit));
    row("predicted", words::estimate(&answer.prediction.time_s, words::time));
    row("physical bound", words::time(answer.prediction.roofline_time_s));
    text.push_str(&table.render());
    text
}

/// What was learnt from an observation.
#[must_use]
pub fn observations(answer: &ObservationsAnswer) -> String {
    let mut text = match answer.accepted {
        0 => "no observation was accepted\n".to_owned(),
        1 => "learned from 1 observation\n".to_owned(),
        several => format!("learned from {several} observations\n"),
    };
    for learnt in &answer.learnt {
        let _ = writeln!(
            text,
            "predicted time is {} times that before learning, from {} {} of this model: {}",
            significant(learnt.factor),
            learnt.count,
            if learnt.count == 1 { "run" } else { "runs" },
            learnt.tier,
        );
        if let Some(alarm) = &learnt.alarm {
            text.push_str(alarm);
            text.push('\n');
        }
    }
    text
}
