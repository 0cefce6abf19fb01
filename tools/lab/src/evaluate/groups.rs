//! `evaluate groups`: predictions by kind of machine, engine, kind of model and what was asked, each beside a rule of thumb.
//!
//! Two splits: a fit to the rows that were known before a month judges those that were added since, and a fit to all other models
//! judges each model. The rule of thumb is a constant times the bytes that a run reads over the bandwidth of the data
//! sheet, [`thumb`](crate::thumb). A group in which it is nearer with models left out uses it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::percent;
use crate::carrying::{Coverage, coverage};
use crate::engine_files::engine_files;
use crate::fits::{Fits, leave_one_model_out};
use crate::pooled::Errors;
use crate::published;
use crate::rows::{EngineRows, Row, Summary, prepare, summary};
use crate::thumb::{Asked, Group, LEAST_ROWS, Thumb, all};
use rooflinectl::failure::Failure;
use rooflinectl::output::{Format, Printer};
use rooflinectl::table::Table;
use rooflined_core::hardware::registry;
use rooflined_models::registry::models;
use rooflined_models::transformer::Phase;
use rooflined_predict::costs::{EngineTable, Part};

/// One row that was left out: ln(predicted / measured) by the formula and by the rule of thumb.
struct Outcome {
    group: Group,
    error: f64,
    log_half_width: f64,
    thumb: f64,
    /// Whether the prediction is the rule's.
    uses_rule: bool,
}

/// Fitted to some rows, judged by others, with the costs and the intervals that would have been shipped.
fn by_time(before: &[Row], after: &[Row]) -> Result<Vec<Outcome>, Failure> {
    let (before, _) = prepare(before, registry(), models());
    let (after, _) = prepare(after, registry(), models());
    let thumb = Thumb::of(all(&before));
    let mut tables = BTreeMap::new();
    for file in engine_files(&before) {
        let text = toml::to_string(&file).map_err(|error| unreadable(&error))?;
        tables.insert(file.engine, EngineTable::parse(&text).map_err(|error| unreadable(&error))?);
    }
    let judged = |(engine, index): (&EngineRows, usize)| {
        let row = &engine.rows[index];
        let table = tables.get(&row.engine)?;
        let machine = Some(row.hardware.as_str());
        let costs = table.on(machine, row.build);
        let part = Part::of(row.batch, if row.phase == Phase::Prefill { 1.0 } else { 0.0 });
        Some(Outcome {
            group: Group::of(engine, index),
            error: engine.error(index, &costs.log),
            log_half_width: costs.intervals(engine.family(index)).of(part).half_width_ratio.ln_1p(),
            thumb: thumb.error(engine, index),
            uses_rule: false,
        })
    };
    Ok(all(&after).filter_map(judged).collect())
}

fn unreadable(error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("the costs of the rows before cannot be read back: {error}"), "report this")
}

/// Each model judged by a fit to all others.
fn by_model(engines: &[EngineRows]) -> Vec<Outcome> {
    let fits = Fits::new(engines);
    let known = leave_one_model_out(&fits);
    let mut thumbs = BTreeMap::new();
    let places: BTreeMap<&str, (&EngineRows, usize)> =
        all(engines).map(|(engine, index)| (engine.rows[index].id.as_str(), (engine, index))).collect();
    let mut outcomes = Vec::new();
    for part in [Part::Decode, Part::Several, Part::Prefill] {
        for (judged, log_half_width) in Errors::of(&known, part).with_intervals() {
            let model = judged.row.model.as_str();
            let thumb = thumbs.entry(model).or_insert_with(|| {
                Thumb::of(all(engines).filter(|(engine, index)| engine.rows[*index].model != model))
            });
            let (engine, index) = places[judged.row.id.as_str()];
            let thumb = thumb.error(engine, index);
            let group = Group::of(engine, index);
            let uses_rule = fits.rules.contains(&group);
            outcomes.push(Outcome { group, error: judged.error, log_half_width, thumb, uses_rule });
        }
    }
    outcomes
}

/// A line of the table.
struct Line {
    words: String,
    errors: Summary,
    coverage: Coverage,
    thumb: Summary,
    uses_rule: bool,
}

impl Line {
    fn of(words: String, outcomes: &[&Outcome]) -> Option<Self> {
        Some(Self {
            words,
            errors: summary(outcomes.iter().map(|one| one.error))?,
            coverage: coverage(outcomes.iter().map(|one| (one.error, one.log_half_width)))?,
            thumb: summary(outcomes.iter().map(|one| one.thumb))?,
            uses_rule: outcomes.iter().all(|one| one.uses_rule),
        })
    }

    fn is_worse(&self) -> bool {
        self.errors.count >= LEAST_ROWS && self.errors.median > self.thumb.median
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.words.clone(),
            self.errors.count.to_string(),
            percent(self.errors.median),
            percent(self.errors.mean),
            percent(self.errors.p90),
            percent(self.coverage.covered),
            percent(self.coverage.half_width),
            percent(self.thumb.median),
            match (self.uses_rule, self.is_worse()) {
                (true, _) => "used",
                (_, true) => "worse",
                _ => "",
            }
            .to_owned(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "group": self.words,
            "rows": self.errors.count,
            "median_error_ratio": self.errors.median,
            "mean_error_ratio": self.errors.mean,
            "p90_error_ratio": self.errors.p90,
            "covered_ratio": self.coverage.covered,
            "median_half_width_ratio": self.coverage.half_width,
            "thumb_median_error_ratio": self.thumb.median,
            "is_worse_than_thumb": self.is_worse(),
            "uses_thumb": self.uses_rule,
        })
    }
}

/// All rows by what is asked of boards and of cards, then each group.
fn lines(outcomes: &[Outcome]) -> Vec<Line> {
    let mut wide: BTreeMap<(Asked, bool), Vec<&Outcome>> = BTreeMap::new();
    let mut groups: BTreeMap<Group, Vec<&Outcome>> = BTreeMap::new();
    for one in outcomes {
        wide.entry((one.group.asked, one.group.is_card)).or_default().push(one);
        groups.entry(one.group).or_default().push(one);
    }
    let wide = wide.into_iter().map(|((asked, is_card), of)| {
        (format!("{}, {}", if is_card { "cards" } else { "boards" }, asked.words()), of)
    });
    let groups = groups.into_iter().map(|(group, of)| (group.words(), of));
    wide.chain(groups).filter_map(|(words, of)| Line::of(words, &of)).collect()
}

/// Rise of a group's median error from which on it got worse: a point.
const WORSE: f64 = 0.01;

/// What new rows say of the costs fitted to those known, and which groups a fit to both makes worse, as tables.
pub fn compare(known: &[Row], new: &[Row]) -> Result<String, Failure> {
    let judged = render(&lines(&by_time(known, new)?));
    let of = |rows: &[Row]| lines(&by_model(&prepare(rows, registry(), models()).0));
    let (before, after) = (of(known), of(&[known, new].concat()));
    let mut worse = Table::new(&["GROUP", "ROWS", "MEDIAN BEFORE", "MEDIAN NOW"]);
    let mut count = 0;
    for line in after.iter().filter(|line| line.errors.count >= LEAST_ROWS) {
        let Some(former) = before.iter().find(|former| former.words == line.words) else { continue };
        if line.errors.median > former.errors.median + WORSE {
            let rows = format!("{} -> {}", former.errors.count, line.errors.count);
            worse.row([line.words.clone(), rows, percent(former.errors.median), percent(line.errors.median)]);
            count += 1;
        }
    }
    let worse = if count == 0 { "  none\n".to_owned() } else { worse.render() };
    Ok(format!(
        "The new rows, from those known:\n{judged}\nGroups that are predicted worse with the new rows (each model from all others):\n{worse}"
    ))
}

fn render(lines: &[Line]) -> String {
    let mut shown =
        Table::new(&["GROUP", "ROWS", "MEDIAN", "MEAN", "P90", "INSIDE", "HALF-WIDTH", "RULE OF THUMB", ""]);
    lines.iter().for_each(|line| shown.row(line.cells()));
    shown.render()
}

/// `evaluate groups FILE`
pub fn run(printer: &Printer, file: &Path, since: &str) -> Result<(), Failure> {
    let table = published::read(file)?;
    let (engines, _) = prepare(&table.rows, registry(), models());
    let (before, after): (Vec<Row>, Vec<Row>) =
        table.rows.iter().cloned().partition(|row| row.added.as_str() < since);
    let splits = [("time", lines(&by_time(&before, &after)?)), ("model", lines(&by_model(&engines)))];
    match printer.format {
        Format::Human => {
            let mut text = String::new();
            for (split, lines) in &splits {
                text.push_str(&match *split {
                    "time" => format!("Rows added since {since}, from those before:\n{}\n", render(lines)),
                    _ => format!("Each model, from all others:\n{}", render(lines)),
                });
            }
            printer.text(&text)
        }
        _ => {
            let of = |lines: &[Line]| lines.iter().map(Line::json).collect::<Vec<_>>();
            printer.value(
                "evaluation",
                &json!({ "since": since, "time": of(&splits[0].1), "model": of(&splits[1].1) }),
            )
        }
    }
}
