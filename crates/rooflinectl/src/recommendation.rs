//! A recommendation in words and tables: the choice, what else meets the limits, what was excluded, and how to apply it.

use std::fmt::Write;

use serde_json::Value;

use super::headline::memory_limit;
use super::options::{name_options, options_for};
use super::table::Table;
use super::{choice, headline, show, to_fit, words};
use rooflined_advice::settings::MISSING;
use rooflined_api::{CandidateAnswer, Objective, Optimism, PowerAnswer, RecommendAnswer, RecommendRequest};
use rooflined_core::names::EnergyBasis;
use rooflined_core::units::{Bytes, Joules, Watts};
use rooflined_predict::Engine;
use rooflined_predict::optimize::MOST_ALTERNATIVES;
use rooflined_predict::power::scope_words;

/// A quality loss that few people accept: formats that are usual with an engine lose less.
const MUCH_LOST: f64 = 0.2;
/// Where energy stands, behind power.
const ENERGY_COLUMN: usize = 8;
/// Likewise in the table of engines.
const ENERGY_OF_ENGINES: usize = 7;

/// Joules of a token or a column, as the objective counts them.
fn energy(candidate: &CandidateAnswer, basis: &str) -> String {
    let prediction = &candidate.prediction;
    let of = if candidate.kv_format.is_none() {
        &prediction.energy_j
    } else if basis == EnergyBasis::Marginal.key() {
        &prediction.marginal_energy_j_per_token
    } else {
        &prediction.energy_j_per_token
    };
    // The energy of an operation is that of all its columns.
    #[expect(clippy::cast_precision_loss, reason = "a batch is small")]
    let count = if candidate.kv_format.is_none() { candidate.batch.max(1) as f64 } else { 1.0 };
    of.as_ref().map_or_else(|| "unknown".to_owned(), |of| Joules(of.value / count).to_string())
}

/// A key that ends with the unit of a constraint's value.
fn quantity(constraint: &str) -> &str {
    if constraint == "memory_available" { "memory_bytes" } else { constraint }
}

/// `POST /v1/recommend`, with the settings of its engine; of an operation, of every engine.
#[must_use]
pub fn render(answer: &RecommendAnswer, request: &RecommendRequest) -> String {
    let engine = request.engine;
    let first = headline::recommendation(answer, request);
    // The first line has said already what has no room.
    let says_all =
        memory_limit(answer).is_some() && answer.violated.len() == 1 && answer.contradicting.len() < 2;
    let reason = if says_all { String::new() } else { format!("{}\n", name_options(&answer.reason)) };
    let mut text = show::mark_simulated(answer.simulated, format!("{first}{reason}"));
    if let Some(advice) = to_fit::advice(answer, request) {
        let _ = writeln!(text, "{advice}");
    }
    let candidates = || answer.decision.iter().chain(&answer.closest).chain(&answer.alternatives);
    let power = PowerColumn::of(candidates());
    let mut columns = vec![
        "",
        "format",
        ">batch",
        ">time",
        ">at worst",
        ">rate",
        &power.heading,
        ">at worst",
        ">memory",
        ">loss",
        "limit",
        "power mode",
    ];
    // What the objective compares stands in the table.
    let counts_energy = request.objective == Objective::Energy;
    if counts_energy {
        columns.insert(ENERGY_COLUMN, ">energy");
    }
    let mut table = Table::new(&columns);
    let mut row = |name: &str, candidate: &CandidateAnswer| {
        let prediction = &candidate.prediction;
        let format = candidate.format.clone().unwrap_or_else(|| "as it is".to_owned());
        let cache = candidate.kv_format.as_ref().filter(|kind| *kind != "fp16");
        let cache = cache.map(|kind| format!(", {kind} cache")).unwrap_or_default();
        let drafted = candidate.draft_tokens.map(|tokens| format!(", {tokens} drafted")).unwrap_or_default();
        let moved = candidate.cpu_moe_layers.map(|layers| format!(", experts of {layers} layers on the CPU"));
        let moved = moved.unwrap_or_default();
        let mut cells = vec![
            name.to_owned(),
            format!("{format}{cache}{drafted}{moved}"),
            candidate.batch.to_string(),
            words::time(prediction.time_s.value),
            words::time(prediction.time_s.high),
            words::rate(prediction.tokens_per_s.value),
            power.cell(candidate, |power| power.value),
            power.cell(candidate, |power| power.high),
            Bytes(prediction.memory_bytes.total).to_string(),
            candidate.quality_loss_ratio.map_or_else(|| "unknown".to_owned(), words::percent),
            prediction.limit.clone(),
            candidate.power_mode.as_ref().map(|mode| mode.name.clone()).unwrap_or_default(),
        ];
        if counts_energy {
            cells.insert(ENERGY_COLUMN, energy(candidate, &answer.energy_basis));
        }
        table.row(cells);
    };
    if let Some(decision) = &answer.decision {
        row("choice", decision);
    }
    if let Some(closest) = &answer.closest {
        row("closest", closest);
    }
    for alternative in &answer.alternatives {
        row("or", alternative);
    }
    text.push_str(&table.render());
    if answer.alternatives.len() >= MOST_ALTERNATIVES {
        let _ = writeln!(
            text,
            "  at most {MOST_ALTERNATIVES} others are listed; to see the best of one mode, name it: --modes NAME"
        );
    }
    for rejected in &answer.rejected {
        let is_own_limit = rejected.by == LOSS && request.constraints.max_quality_loss_ratio.is_none();
        let excluded = match rejected.by.as_str() {
            "memory_available" if rejected.count == 1 => "does not fit in free memory".to_owned(),
            "memory_available" => "do not fit in free memory".to_owned(),
            "allow_reboot" => {
                "excluded by a mode that needs a reboot, which --allow-reboot allows".to_owned()
            }
            LOSS if is_own_limit && rejected.count == 1 => "loses too much quality".to_owned(),
            LOSS if is_own_limit => "lose too much quality".to_owned(),
            _ => format!("excluded by {}", options_for([&rejected.by])),
        };
        let _ = write!(text, "  {} {excluded}", words::candidates(rejected.count));
        if let Some(closest) = rejected.closest {
            let shown = |value: f64| words::field(quantity(&rejected.by), &value.max(0.0).into());
            let at_worst = if is_at_worst(&rejected.by, request) { " at worst" } else { "" };
            let _ = write!(text, "; {} {}{at_worst}", describe_best(&rejected.by), shown(closest));
            if let Some(limit) = rejected.limit {
                let limit = words::beside(quantity(&rejected.by), limit.max(0.0), closest.max(0.0));
                let sets = if is_own_limit { ", which --max-quality-loss 100% lifts" } else { "" };
                let _ = write!(text, ", and the limit is {limit}{sets}");
            }
        }
        text.push('\n');
    }
    let lost = answer.decision.as_ref().and_then(|of| of.quality_loss_ratio);
    if lost.is_some_and(|lost| lost >= MUCH_LOST) {
        text.push_str("  that loses much: --max-quality-loss 5% leaves such formats out, and awq_int4 or int4_g128 lose less than int4\n");
    }
    text.push_str(&engines(answer, request));
    text.push_str(&engine_settings(answer, engine));
    if let Some(command) = choice::enter(answer) {
        let needs_reboot = answer.apply.get("reboot_required").and_then(Value::as_bool) == Some(true);
        let note = match () {
            // Only the board itself knows what its kernel can change while it runs.
            () if request.hardware.is_some() && command.starts_with("rooflinectl") => {
                " (on the board; it says if that needs a reboot)"
            }
            () if needs_reboot => ", which reboots",
            () => "",
        };
        let _ = writeln!(text, "  to enter the mode: {command}{note}");
    }
    if !answer.violated.is_empty() {
        let _ = writeln!(text, "  violated: {}", options_for(&answer.violated));
    }
    if answer.contradicting.len() > 1 {
        let _ = writeln!(text, "  contradicting: {}", options_for(&answer.contradicting));
    }
    for warning in answer.warnings.iter().filter(|warning| !headline::says_model(warning)) {
        let _ = writeln!(text, "  {}", name_options(warning));
    }
    if let Some(next) = &answer.next_best_measurement {
        let _ = writeln!(text, "  for a better estimate: {next}");
    }
    let _ = match answer.candidates {
        1 => write!(text, "  it was the only candidate"),
        several => write!(text, "  chosen among {}", words::candidates(several)),
    };
    let engines = answer.engines.iter().filter(|_| engine == Engine::Bare).count();
    if engines > 1 {
        let _ = write!(text, " of {engines} engines");
    }
    let is_of_a_model = request.workload.model.is_some() && request.workload.batch.is_none();
    if is_of_a_model && request.freedom.batch.is_none() && candidates().all(|of| of.batch == 1) {
        text.push_str(
            "; batch 1 is fastest for one request, and --objective throughput or --batch 1..32 compares more",
        );
    }
    text.push('\n');
    text
}

/// The limit on the loss, which stands where the request leaves it open too.
const LOSS: &str = "max_quality_loss_ratio";

/// Of the candidates that a limit excludes, the one that comes nearest to it.
fn describe_best(constraint: &str) -> &'static str {
    match constraint {
        "memory_available" | "max_memory_bytes" => "the smallest needs",
        "min_tokens_per_s" => "the fastest gives",
        LOSS => "the best loses",
        of if of.ends_with("_w") => "the lowest draws",
        of if of.ends_with("_s") => "the fastest takes",
        _ => "the nearest has",
    }
}

/// Whether a limit is held at the worse end of the interval: those on what is estimated are, unless the request asks for the best estimate.
fn is_at_worst(constraint: &str, request: &RecommendRequest) -> bool {
    let estimated = ["_s", "_w"].iter().any(|unit| constraint.ends_with(unit));
    estimated && request.optimism == Optimism::Pessimistic
}

/// What a power covers stands in the heading where it is the same for all candidates, and else in each cell.
struct PowerColumn {
    heading: String,
    shared: bool,
}

impl PowerColumn {
    fn of<'a>(candidates: impl Iterator<Item = &'a CandidateAnswer>) -> Self {
        let mut scopes: Vec<&str> = candidates
            .filter_map(|of| of.prediction.power_w.as_ref())
            .map(|power| power.scope.as_str())
            .collect();
        scopes.dedup();
        match scopes.as_slice() {
            [scope] => Self { heading: format!(">power ({})", scope_words(scope)), shared: true },
            _ => Self { heading: ">power".to_owned(), shared: false },
        }
    }

    fn cell(&self, candidate: &CandidateAnswer, end: impl Fn(&PowerAnswer) -> f64) -> String {
        candidate.prediction.power_w.as_ref().map_or_else(
            || "unknown".to_owned(),
            |power| words::with_scope(Watts(end(power)), Some(&power.scope).filter(|_| !self.shared)),
        )
    }
}

/// Every engine that was compared, the best first; where one was asked for, a line about the best other one.
fn engines(answer: &RecommendAnswer, request: &RecommendRequest) -> String {
    let engine = request.engine;
    if engine != Engine::Bare {
        let other = answer.engines.iter().find(|of| of.engine != answer.engine && of.feasible);
        let other = other.and_then(|of| of.candidate.as_ref());
        return other.map_or_else(String::new, |candidate| {
            format!("  the best other engine: {}\n", headline::other_engine(candidate, request))
        });
    }
    if answer.engines.len() < 2 {
        return String::new();
    }
    let power = PowerColumn::of(answer.engines.iter().filter_map(|of| of.candidate.as_ref()));
    let mut columns = vec![
        "",
        "engine",
        "format",
        ">batch",
        ">time",
        ">rate",
        &power.heading,
        ">memory",
        ">loss",
        "power mode",
    ];
    let counts_energy = request.objective == Objective::Energy;
    if counts_energy {
        columns.insert(ENERGY_OF_ENGINES, ">energy");
    }
    let mut table = Table::new(&columns);
    for (index, of) in answer.engines.iter().enumerate() {
        let Some(candidate) = &of.candidate else { continue };
        let prediction = &candidate.prediction;
        let mut cells = vec![
            match (of.feasible, index) {
                (false, _) => "misses",
                (true, 0) => "choice",
                (true, _) => "or",
            }
            .to_owned(),
            of.engine.clone(),
            candidate.format.clone().unwrap_or_else(|| "as it is".to_owned()),
            candidate.batch.to_string(),
            words::time(prediction.time_s.value),
            words::rate(prediction.tokens_per_s.value),
            power.cell(candidate, |power| power.value),
            Bytes(prediction.memory_bytes.total).to_string(),
            candidate.quality_loss_ratio.map_or_else(|| "unknown".to_owned(), words::percent),
            candidate.power_mode.as_ref().map(|mode| mode.name.clone()).unwrap_or_default(),
        ];
        if counts_energy {
            cells.insert(ENERGY_OF_ENGINES, energy(candidate, &answer.energy_basis));
        }
        table.row(cells);
    }
    table.render()
}

/// The settings of the engine that was decided for; of an operation, of every engine that has the format, and which lack it.
fn engine_settings(answer: &RecommendAnswer, engine: Engine) -> String {
    let own = if engine == Engine::Bare { answer.engine.as_str() } else { engine.key() };
    let is_for_all = Engine::Bare.key() == own;
    let (mut text, mut lacking) = (String::new(), Vec::new());
    let settings = answer.apply.get("settings").and_then(Value::as_object);
    for (key, setting) in settings.into_iter().flatten() {
        let setting = setting.as_str().unwrap_or_default();
        if key == own || (is_for_all && !setting.starts_with(MISSING)) {
            let _ = writeln!(text, "  with {key}: {setting}");
        } else if is_for_all {
            lacking.push(key.as_str());
        }
    }
    if !lacking.is_empty() {
        let _ = writeln!(text, "  {MISSING} with {}", lacking.join(", "));
    }
    text
}
