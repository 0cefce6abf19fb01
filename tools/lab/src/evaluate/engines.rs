//! `evaluate engines`: predictions of whole models against published rows that did not go into them.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::percent;
use crate::carrying::{Along, Carried, Coverage, carried, coverage};
use crate::fits::{Fits, leave_one_machine_out, leave_one_model_out};
use crate::pooled::with_intervals;
use crate::published::{self, Wanted};
use crate::rounded;
use crate::rows::{EngineRows, Judged, Row, Summary, prepare, summary};
use crate::sizes::sizes;
use rooflinectl::failure::Failure;
use rooflinectl::output::{Format, Printer};
use rooflinectl::table::Table;
use rooflined_core::hardware::registry;
use rooflined_core::units::Seconds;
use rooflined_models::registry::models;
use rooflined_models::transformer::Phase;
use rooflined_predict::costs::Part;
use rooflined_predict::learning::fit::Sample;
use rooflined_predict::learning::vet::is_impossible;

/// `evaluate engines FILE`
pub fn run(printer: &Printer, file: &Path) -> Result<(), Failure> {
    let table = published::read(file)?;
    let (engines, _) = prepare(&table.rows, registry(), models());
    let all = published::read_wanted(file, Wanted::All)?;
    let refused = refused(&prepare(&all.rows, registry(), models()).0);
    let fits = Fits::new(&engines);
    let known = leave_one_model_out(&fits);
    let unknown = leave_one_machine_out(&fits);
    if known.is_empty() {
        return Err(Failure::failed(
            format!("{} has no row that can be judged", file.display()),
            "its engines, devices and models must be known: rooflinectl hardware list, rooflinectl models list",
        ));
    }
    let rows = rows(&fits, &known, &unknown);
    match printer.format {
        Format::Human => {
            let mut shown =
                Table::new(&["", "QUANTITY", "ROWS", "MEDIAN", "MEAN", "P90", "PROTOTYPE", "GOAL"]);
            for row in &rows {
                shown.row(row.cells());
            }
            printer.text(&format!(
                "{}{}{} rows were used; {} were left out.\n",
                shown.render(),
                refused.words(),
                engines.iter().map(|engine| engine.rows.len()).sum::<usize>(),
                table.left_out.values().sum::<u64>(),
            ))
        }
        _ => printer.value(
            "evaluation",
            &json!({
                "rows": rows.iter().map(Line::json).collect::<Vec<_>>(),
                "physical_bound": { "rows": refused.of, "refused": refused.rows },
            }),
        ),
    }
}

/// Rows that were measured faster than physics allows, as an observation of them would be refused.
struct RefusedRows {
    /// How many were looked at, second-hand ones included.
    of: usize,
    /// Each by its name in the table, and the bound over the time measured.
    rows: Vec<RefusedRow>,
}

#[derive(Debug, Serialize)]
struct RefusedRow {
    id: String,
    bound_over_measured_ratio: f64,
}

fn refused(engines: &[EngineRows]) -> RefusedRows {
    let all = engines.iter().flat_map(|engine| engine.rows.iter().zip(&engine.samples));
    let impossible = |(row, sample): (&Row, &Sample)| {
        let (measured, least) = (Seconds(sample.log_time.exp()), sample.fastest());
        is_impossible(measured, least)
            .then(|| RefusedRow { id: row.id.clone(), bound_over_measured_ratio: rounded(least / measured) })
    };
    RefusedRows { of: all.clone().count(), rows: all.filter_map(impossible).collect() }
}

impl RefusedRows {
    fn words(&self) -> String {
        let each = |row: &RefusedRow| format!("{} ({:.2} times)", row.id, row.bound_over_measured_ratio);
        let named: Vec<String> = self.rows.iter().map(each).collect();
        format!(
            "{} of {} rows are faster than physics allows{}{}\n",
            named.len(),
            self.of,
            if named.is_empty() { "." } else { ": " },
            named.join(", ")
        )
    }
}

/// One line of the table.
struct Line {
    id: &'static str,
    quantity: &'static str,
    found: Outcome,
    prototype: &'static str,
    goal: &'static str,
}

enum Outcome {
    Errors(Summary),
    Coverage(Coverage),
    Count { of: usize, hits: usize },
}

impl Line {
    fn cells(&self) -> Vec<String> {
        let found = match self.found {
            Outcome::Errors(s) => [s.count.to_string(), percent(s.median), percent(s.mean), percent(s.p90)],
            Outcome::Coverage(c) => [
                c.count.to_string(),
                format!("{} inside", percent(c.covered)),
                format!("+-{}", percent(c.half_width)),
                String::new(),
            ],
            Outcome::Count { of, hits } => [of.to_string(), hits.to_string(), String::new(), String::new()],
        };
        let mut cells = vec![self.id.to_owned(), self.quantity.to_owned()];
        cells.extend(found);
        cells.extend([self.prototype.to_owned(), self.goal.to_owned()]);
        cells
    }

    fn json(&self) -> Value {
        let found = match self.found {
            Outcome::Errors(s) => json!({
                "rows": s.count, "median_error_ratio": s.median, "mean_error_ratio": s.mean, "p90_error_ratio": s.p90,
            }),
            Outcome::Coverage(c) => json!({
                "rows": c.count, "covered_ratio": c.covered, "median_half_width_ratio": c.half_width,
            }),
            Outcome::Count { of, hits } => json!({ "rows": of, "count": hits }),
        };
        json!({
            "id": self.id, "quantity": self.quantity, "found": found, "prototype": self.prototype, "goal": self.goal,
        })
    }
}

const fn one_decode(row: &Row) -> bool {
    matches!(row.phase, Phase::Decode) && row.batch == 1
}

fn rows(fits: &Fits<'_>, known: &[Judged<'_>], unknown: &[Judged<'_>]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut errors = |id, quantity, errors: &mut dyn Iterator<Item = f64>, prototype, goal| {
        if let Some(found) = summary(errors) {
            lines.push(Line { id, quantity, found: Outcome::Errors(found), prototype, goal });
        }
    };
    let judged = |of: &[Judged<'_>], test: &dyn Fn(&Row) -> bool| -> Vec<f64> {
        of.iter().filter(|judged| test(judged.row)).map(|judged| judged.error).collect()
    };
    let files = sizes();
    let by_rule = files.iter().filter(|size| size.file.cause.is_none());
    errors(
        "A",
        "size of a file by rules",
        &mut by_rule.map(|size| -(size.error_ratio.ln_1p())),
        "0.3 %",
        "<= 1 %",
    );
    let plain = |row: &Row| one_decode(row) && !row.experimental();
    let several = |row: &Row| row.phase != Phase::Prefill && row.batch > 1;
    let prompt = |row: &Row| row.phase == Phase::Prefill;
    errors(
        "B",
        "decode, machine and model unknown",
        &mut judged(unknown, &one_decode).into_iter(),
        "median 11.9 %",
        "median <= 12 %",
    );
    errors("", "  without one- and two-bit kernels", &mut judged(unknown, &plain).into_iter(), "", "");
    errors(
        "C",
        "decode, engine known, model unknown",
        &mut judged(known, &one_decode).into_iter(),
        "median 8.2 %, mean 17 %",
        "median <= 7 %, mean <= 12 %",
    );
    errors("", "  without one- and two-bit kernels", &mut judged(known, &plain).into_iter(), "mean 13 %", "");
    errors(
        "",
        "decode of several sequences",
        &mut judged(known, &several).into_iter(),
        "median 15 %, mean 20 %",
        "",
    );
    errors("", "  machine unknown too", &mut judged(unknown, &several).into_iter(), "", "");
    errors("", "prompts", &mut judged(known, &prompt).into_iter(), "median 18.9 %, mean 61 %", "");
    errors("", "  machine unknown too", &mut judged(unknown, &prompt).into_iter(), "", "");
    let moved: Vec<(Along, Vec<Carried>)> = [Along::Mode, Along::Context, Along::Batch]
        .into_iter()
        .map(|along| (along, carried(fits, along)))
        .collect();
    let of = |along: Along, test: &dyn Fn(&Carried) -> bool| -> Vec<f64> {
        let all = moved.iter().find(|(known, _)| *known == along).map_or(&[][..], |(_, all)| all);
        all.iter().filter(|one| test(one)).map(|one| one.error).collect()
    };
    errors(
        "D",
        "another power mode, one observation",
        &mut of(Along::Mode, &|one| !one.gated).into_iter(),
        "median 1.3-2.4 %, p90 6-9 %",
        "median <= 2.5 %, p90 <= 8 %",
    );
    errors(
        "",
        "  into or out of gated multiprocessors",
        &mut of(Along::Mode, &|one| one.gated).into_iter(),
        "median 5.5-9 %",
        "median <= 7 %, p90 <= 15 %",
    );
    errors(
        "E",
        "another context, one observation",
        &mut of(Along::Context, &|_| true).into_iter(),
        "vLLM 0.8 %, llama.cpp 5.8 %",
        "median <= 4 %, p90 <= 10 %",
    );
    errors(
        "F",
        "other batches, three observations",
        &mut of(Along::Batch, &|_| true).into_iter(),
        "median 17-30 % from one",
        "median <= 10 %",
    );
    let intervals = with_intervals(known);
    let held = |parts: &[Part], test: &dyn Fn(&Row) -> bool| -> Vec<(f64, f64)> {
        let of = intervals.iter().filter(|(one, _)| parts.contains(&one.row.part()) && test(one.row));
        of.map(|(one, half)| (one.error, *half)).collect()
    };
    let one_sequence = [Part::Decode, Part::Depth];
    let mut covers = |id, quantity, pairs: Vec<(f64, f64)>, prototype, goal| {
        if let Some(found) = coverage(pairs) {
            lines.push(Line { id, quantity, found: Outcome::Coverage(found), prototype, goal });
        }
    };
    covers(
        "K",
        "90 % interval, engine known",
        held(&one_sequence, &|_| true),
        "91.8 %, +-35 %",
        "88-93 %, +-22 %",
    );
    covers("", "  without one- and two-bit kernels", held(&one_sequence, &plain), "", "88-93 %, +-22 %");
    covers("", "  several sequences", held(&[Part::Several], &|_| true), "", "88-93 %");
    covers("", "  prompts", held(&[Part::Prefill], &|_| true), "", "88-93 %");
    let anchored = |test: &dyn Fn(Along) -> bool| -> Vec<(f64, f64)> {
        let of = moved.iter().filter(|(along, _)| test(*along)).flat_map(|(_, all)| all);
        of.map(|one| (one.error, one.log_half_width)).collect()
    };
    covers("", "90 % interval, anchored", anchored(&|_| true), "", "88-93 %, +-10 %");
    covers("", "  another power mode", anchored(&|along| along == Along::Mode), "", "88-93 %");
    covers("", "  another context", anchored(&|along| along == Along::Context), "", "88-93 %");
    covers("", "  other batches", anchored(&|along| along == Along::Batch), "", "88-93 %");
    let faster = fits
        .all()
        .map(|(engine, fitted)| {
            let fitted = engine.in_order(|_| true, fitted);
            let below = |sample: &&Sample| sample.predicted(&fitted.of(sample)) < sample.floor();
            engine.samples.iter().filter(below).count()
        })
        .sum();
    let of = fits.engines.iter().map(|engine| engine.samples.len()).sum();
    lines.push(Line {
        id: "",
        quantity: "predicted faster than physics",
        found: Outcome::Count { of, hits: faster },
        prototype: "",
        goal: "0",
    });
    lines
}
