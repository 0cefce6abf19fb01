//! `evaluate engines`: predictions of whole models against published rows that did not go into them.

use std::path::Path;

use serde_json::json;

use crate::carrying::{Along, Carried, carried};
use crate::fits::{Fits, leave_one_machine_out, leave_one_model_out};
use crate::pooled::with_intervals;
use crate::published::{self, Wanted};
use crate::report::{Coverage, Errors, Figures, Section, figures, print};
use crate::rows::{EngineRows, Judged, Row, prepare};
use crate::sizes::sizes;
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
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
    let (of_all, _) = prepare(&all.rows, registry(), models());
    let fits = Fits::new(&engines);
    let known = leave_one_model_out(&fits);
    let unknown = leave_one_machine_out(&fits);
    if known.is_empty() {
        return Err(Failure::failed(
            format!("{} has no row that can be judged", file.display()),
            "its engines, devices and models must be known: rooflinectl hardware list, rooflinectl models list",
        ));
    }
    let moved = [Along::Mode, Along::Context, Along::Batch].map(|along| (along, carried(&fits, along)));
    let errors = Section::new("errors", "Errors".to_owned(), errors(&known, &unknown, &moved));
    let coverage = Section::new("intervals", "90 % intervals".to_owned(), intervals(&known, &moved));
    let facts = figures([
        ("rows_used", json!(rows(&engines))),
        ("rows_left_out", json!(table.left_out.values().sum::<u64>())),
        ("predicted_faster_than_physics", json!(predicted_too_fast(&fits))),
        ("rows_with_second_hand_ones", json!(rows(&of_all))),
        ("measured_faster_than_physics", json!(measured_too_fast(&of_all))),
    ]);
    print(
        printer,
        &[errors, coverage, Section { facts, ..Section::new("counts", "Rows".to_owned(), Vec::new()) }],
    )
}

fn rows(engines: &[EngineRows]) -> usize {
    engines.iter().map(|engine| engine.rows.len()).sum()
}

/// Rows that were measured faster than physics allows, as an observation of them would be refused, by their names.
fn measured_too_fast(engines: &[EngineRows]) -> Vec<&str> {
    let all = engines.iter().flat_map(|engine| engine.rows.iter().zip(&engine.samples));
    let impossible =
        |(_, sample): &(&Row, &Sample)| is_impossible(Seconds(sample.log_time.exp()), sample.fastest());
    all.filter(impossible).map(|(row, _)| row.id.as_str()).collect()
}

fn predicted_too_fast(fits: &Fits<'_>) -> usize {
    let of_engine = fits.all().map(|(engine, fitted)| {
        let fitted = engine.in_order(|_| true, fitted);
        let below = |sample: &&Sample| sample.predicted(&fitted.of(sample)) < sample.floor();
        engine.samples.iter().filter(below).count()
    });
    of_engine.sum()
}

const fn one_decode(row: &Row) -> bool {
    matches!(row.phase, Phase::Decode) && row.batch == 1
}

fn plain(row: &Row) -> bool {
    one_decode(row) && !row.experimental()
}

/// Runs that were carried to another, by what they differ in.
type Moved = [(Along, Vec<Carried>); 3];

fn along(moved: &Moved, along: Along) -> impl Iterator<Item = &Carried> {
    moved.iter().filter(move |(known, _)| *known == along).flat_map(|(_, all)| all)
}

fn errors(known: &[Judged<'_>], unknown: &[Judged<'_>], moved: &Moved) -> Vec<Figures> {
    let judged = |of: &[Judged<'_>], test: &dyn Fn(&Row) -> bool| -> Vec<f64> {
        of.iter().filter(|judged| test(judged.row)).map(|judged| judged.error).collect()
    };
    let carried = |of: Along, test: &dyn Fn(&Carried) -> bool| -> Vec<f64> {
        along(moved, of).filter(|one| test(one)).map(|one| one.error).collect()
    };
    let several = |row: &Row| row.phase != Phase::Prefill && row.batch > 1;
    let prompt = |row: &Row| row.phase == Phase::Prefill;
    let files = sizes();
    let by_rule = files.iter().filter(|size| size.file.cause.is_none());
    let by_rule: Vec<f64> = by_rule.map(|size| -(size.error_ratio.ln_1p())).collect();
    let lines = [
        ("size of a file by rules", by_rule),
        ("decode, machine and model unknown", judged(unknown, &one_decode)),
        ("decode, machine and model unknown, without one- and two-bit kernels", judged(unknown, &plain)),
        ("decode, engine known, model unknown", judged(known, &one_decode)),
        ("decode, engine known, model unknown, without one- and two-bit kernels", judged(known, &plain)),
        ("decode of several sequences", judged(known, &several)),
        ("decode of several sequences, machine unknown too", judged(unknown, &several)),
        ("prompts", judged(known, &prompt)),
        ("prompts, machine unknown too", judged(unknown, &prompt)),
        ("another power mode, one observation", carried(Along::Mode, &|one| !one.gated)),
        ("into or out of gated multiprocessors, one observation", carried(Along::Mode, &|one| one.gated)),
        ("another context, one observation", carried(Along::Context, &|_| true)),
        ("other batches, three observations", carried(Along::Batch, &|_| true)),
    ];
    let row = |(quantity, errors): (&str, Vec<f64>)| {
        let errors = Errors::of_rates(errors)?;
        let mut row = figures([("quantity", json!(quantity)), ("rows", json!(errors.rows))]);
        row.extend(errors.figures(""));
        Some(row)
    };
    lines.into_iter().filter_map(row).collect()
}

fn intervals(known: &[Judged<'_>], moved: &Moved) -> Vec<Figures> {
    let intervals = with_intervals(known);
    let held = |parts: &[Part], test: &dyn Fn(&Row) -> bool| -> Vec<(f64, f64)> {
        let of = intervals.iter().filter(|(one, _)| parts.contains(&one.row.part()) && test(one.row));
        of.map(|(one, half)| (one.error, *half)).collect()
    };
    let anchored = |of: &mut dyn Iterator<Item = &Carried>| -> Vec<(f64, f64)> {
        of.map(|one| (one.error, one.log_half_width)).collect()
    };
    let one_sequence = [Part::Decode, Part::Depth];
    let lines = [
        ("one sequence", held(&one_sequence, &|_| true)),
        ("one sequence, without one- and two-bit kernels", held(&one_sequence, &plain)),
        ("several sequences", held(&[Part::Several], &|_| true)),
        ("prompts", held(&[Part::Prefill], &|_| true)),
        ("after observations", anchored(&mut moved.iter().flat_map(|(_, all)| all))),
        ("another power mode", anchored(&mut along(moved, Along::Mode))),
        ("another context", anchored(&mut along(moved, Along::Context))),
        ("other batches", anchored(&mut along(moved, Along::Batch))),
    ];
    let row = |(quantity, pairs): (&str, Vec<(f64, f64)>)| {
        let coverage = Coverage::of_logs(pairs)?;
        let mut row = figures([("quantity", json!(quantity)), ("rows", json!(coverage.rows))]);
        row.extend(coverage.figures());
        Some(row)
    };
    lines.into_iter().filter_map(row).collect()
}
