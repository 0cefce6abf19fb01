//! `evaluate groups`: predictions by kind of machine, engine, kind of model and what was asked, each beside a rule of thumb.
//!
//! Four splits: the rows added since a month by a fit to those before it, by a fit to all other machines and by one to all other
//! sources, and each model by a fit to all others. The rule of thumb is a constant times the bytes that a run reads over the bandwidth of the data
//! sheet, [`thumb`](crate::thumb). A group in which it is nearer with models left out uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::engine_files::{costs_file, engine_files};
use crate::fits::{Fits, leave_one_model_out};
use crate::pooled::with_intervals;
use crate::published;
use crate::report::{Coverage, Errors, Figures, Section, figures, print};
use crate::rows::{EngineRows, Row, prepare};
use crate::thumb::{Asked, Group, LEAST_ROWS, Thumb, all};
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
use rooflined_core::hardware::registry;
use rooflined_models::registry::models;
use rooflined_predict::Engine;
use rooflined_predict::costs::{EngineFile, EngineTable, Family, Interval, build_costs};
use rooflined_predict::learning::conformal::quantile;

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
    let tables = tables(engine_files(&before))?;
    let interval = |row: &Row, family| {
        tables[&row.engine].on(Some(&row.hardware), row.build).interval(family, row.part(), row.depth())
    };
    Ok(outcomes(&before, after, &tables, interval))
}

/// Rows added since a month, each by a fit to all rows with another name, with the intervals that are shipped.
fn by_name(rows: &[Row], since: &str, name: fn(&Row) -> &str) -> Result<Vec<Outcome>, Failure> {
    let is_new = |row: &&Row| row.added.as_str() >= since;
    let names: BTreeSet<&str> = rows.iter().filter(is_new).map(name).collect();
    let mut all = Vec::new();
    for left_out in names {
        let (judged, rest): (Vec<Row>, Vec<Row>) =
            rows.iter().cloned().partition(|row| name(row) == left_out);
        let judged: Vec<Row> = judged.into_iter().filter(|row| is_new(&row)).collect();
        let (mut rest, _) = prepare(&rest, registry(), models());
        rest.retain(|engine| judged.iter().any(|row| row.engine == engine.engine));
        let tables = tables(rest.iter().map(costs_file).collect())?;
        let interval = |row: &Row, family| {
            let of = rest.iter().filter(|engine| engine.engine == row.engine);
            let known = of.flat_map(|engine| &engine.machines).find(|key| **key == row.hardware);
            build_costs(row.engine, row.build, known.map(String::as_str)).interval(
                family,
                row.part(),
                row.depth(),
            )
        };
        all.extend(outcomes(&rest, &judged, &tables, interval));
    }
    Ok(all)
}

fn tables(files: Vec<EngineFile>) -> Result<BTreeMap<Engine, EngineTable>, Failure> {
    let table = |file: EngineFile| {
        let text = toml::to_string(&file).map_err(|error| unreadable(&error))?;
        Ok((file.engine, EngineTable::parse(&text).map_err(|error| unreadable(&error))?))
    };
    files.into_iter().map(table).collect()
}

/// Predictions of `judged` by costs that were fitted to `known`.
fn outcomes(
    known: &[EngineRows],
    judged: &[Row],
    tables: &BTreeMap<Engine, EngineTable>,
    interval: impl Fn(&Row, Family) -> Interval,
) -> Vec<Outcome> {
    let thumb = Thumb::of(all(known));
    let (judged, _) = prepare(judged, registry(), models());
    let outcome = |(engine, index): (&EngineRows, usize)| {
        let row = &engine.rows[index];
        let costs = tables.get(&row.engine)?.on(Some(row.hardware.as_str()), row.build);
        Some(Outcome {
            group: Group::of(engine, index),
            error: engine.error(index, &costs.log),
            log_half_width: interval(row, engine.family(index)).half_width_ratio.ln_1p(),
            thumb: thumb.error(engine, index),
            uses_rule: false,
        })
    };
    all(&judged).filter_map(outcome).collect()
}

fn unreadable(error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("the costs of the other rows cannot be read back: {error}"), "report this")
}

/// Each model judged by a fit to all others.
fn by_model(engines: &[EngineRows]) -> Vec<Outcome> {
    let fits = Fits::new(engines);
    let known = leave_one_model_out(&fits);
    let mut thumbs = BTreeMap::new();
    let places: BTreeMap<&str, (&EngineRows, usize)> =
        all(engines).map(|(engine, index)| (engine.rows[index].id.as_str(), (engine, index))).collect();
    let mut outcomes = Vec::new();
    for (judged, log_half_width) in with_intervals(&known) {
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
    outcomes
}

/// A line of the table.
struct Line {
    words: String,
    errors: Errors,
    /// Median of predicted over measured rate, less 1.
    bias: f64,
    coverage: Coverage,
    thumb: Errors,
    uses_rule: bool,
}

impl Line {
    fn of(words: String, outcomes: &[&Outcome]) -> Option<Self> {
        let mut biases: Vec<f64> = outcomes.iter().map(|one| (-one.error).exp_m1()).collect();
        biases.sort_by(f64::total_cmp);
        Some(Self {
            words,
            bias: quantile(&biases, 0.5),
            errors: Errors::of_rates(outcomes.iter().map(|one| one.error))?,
            coverage: Coverage::of_logs(outcomes.iter().map(|one| (one.error, one.log_half_width)))?,
            thumb: Errors::of_rates(outcomes.iter().map(|one| one.thumb))?,
            uses_rule: outcomes.iter().all(|one| one.uses_rule),
        })
    }

    fn is_worse(&self) -> bool {
        self.errors.rows >= LEAST_ROWS && self.errors.median > self.thumb.median
    }

    fn figures(&self) -> Figures {
        let rule = match (self.uses_rule, self.is_worse()) {
            (true, _) => json!("used"),
            (_, true) => json!("nearer"),
            _ => Value::Null,
        };
        let mut row = figures([("group", json!(self.words)), ("rows", json!(self.errors.rows))]);
        row.extend(self.errors.figures(""));
        row.extend(figures([("median_bias_ratio", json!(self.bias))]));
        row.extend(self.coverage.figures());
        row.extend(figures([
            ("thumb_median_error_ratio", json!(self.thumb.median)),
            ("rule_of_thumb", rule),
        ]));
        row
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

/// What new rows say of the costs fitted to those known, and which groups a fit to both makes worse.
pub fn compare(known: &[Row], new: &[Row]) -> Result<[Section; 2], Failure> {
    let judged = section("new", "The new rows, from those known".to_owned(), &by_time(known, new)?);
    let of = |rows: &[Row]| lines(&by_model(&prepare(rows, registry(), models()).0));
    let (before, after) = (of(known), of(&[known, new].concat()));
    let worse = after.iter().filter(|line| line.errors.rows >= LEAST_ROWS).filter_map(|line| {
        let former = before.iter().find(|former| former.words == line.words)?;
        (line.errors.median > former.errors.median + WORSE).then(|| {
            figures([
                ("group", json!(line.words)),
                ("rows_before", json!(former.errors.rows)),
                ("rows", json!(line.errors.rows)),
                ("median_error_before_ratio", json!(former.errors.median)),
                ("median_error_ratio", json!(line.errors.median)),
            ])
        })
    });
    let title = "Groups that are predicted worse with the new rows (each model from all others)".to_owned();
    Ok([judged, Section::new("worse", title, worse.collect())])
}

fn section(key: &'static str, title: String, outcomes: &[Outcome]) -> Section {
    Section::new(key, title, lines(outcomes).iter().map(Line::figures).collect())
}

/// `evaluate groups FILE`
pub fn run(printer: &Printer, file: &Path, since: &str) -> Result<(), Failure> {
    let table = published::read(file)?;
    let (engines, _) = prepare(&table.rows, registry(), models());
    let (before, after): (Vec<Row>, Vec<Row>) =
        table.rows.iter().cloned().partition(|row| row.added.as_str() < since);
    let added = |words: &str| format!("Rows added since {since}, {words}");
    let by_machine = by_name(&table.rows, since, |row| &row.hardware)?;
    let by_source = by_name(&table.rows, since, |row| &row.source)?;
    print(
        printer,
        &[
            section("time", added("from those before"), &by_time(&before, &after)?),
            section("machine", added("each machine from all others"), &by_machine),
            section("source", added("each source from all others"), &by_source),
            section("model", "Each model, from all others".to_owned(), &by_model(&engines)),
        ],
    )
}
