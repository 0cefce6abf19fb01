//! `evaluate power`: power where it was not measured.

use serde_json::json;

use crate::power::{
    Family, GroupScore, Kernels, families, format_orders, judge_boards, judge_cards, judge_kernels,
    judge_labs, left_out_errors, model_coverage,
};
use crate::power_rows::{self, Tables};
use crate::report::{Errors, Figures, Section, as_f64, figures, print};
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
use rooflined_core::hardware::registry;
use rooflined_predict::learning::power::Point;

/// `evaluate power DATA.csv [MICRO.csv] [--power FILE]`
pub fn run(printer: &Printer, tables: &Tables<'_>) -> Result<(), Failure> {
    let rows = power_rows::read(tables)?;
    let families = families(&rows.points, registry());
    let kernels: Vec<Figures> = judge_kernels(&rows.kernels).iter().map(kernel).collect();
    let decodes: Vec<Figures> = families.iter().flat_map(decodes).collect();
    if decodes.is_empty() && kernels.is_empty() {
        return Err(Failure::failed(
            format!("{} has no power that can be judged", tables.data.display()),
            "it needs rows of two models or more with power_w, and a source that names the meter",
        ));
    }
    let groups = |key, what: &str, scores: Vec<GroupScore>| {
        let title = format!("Power of decodes of a {what} that was left out, by the others");
        Section::new(key, title, scores.iter().flat_map(group).collect())
    };
    let sections = [
        Section::new("kernels", "Power of steady kernels, fitted to four of them".to_owned(), kernels),
        Section::new("decodes", "Power of decodes in a mode, each model left out in turn".to_owned(), decodes),
        Section::new(
            "intervals",
            "90 % intervals of those decodes from the errors of the other models, and which format draws more".to_owned(),
            families.iter().filter_map(intervals).collect(),
        ),
        groups("boards", "machine", families.iter().flat_map(judge_boards).collect()),
        groups("labs", "lab", families.iter().flat_map(judge_labs).collect()),
        groups("cards", "card", judge_cards(&families, registry())),
    ];
    print(printer, &sections)
}

fn kernel(of: &Kernels) -> Figures {
    let mut row = figures([("device", json!(of.device)), ("rows", json!(of.four.rows))]);
    row.extend(of.four.figures(""));
    row.extend(figures([("all_fitted_mean_error_ratio", json!(of.all.mean))]));
    row
}

/// Decodes in each mode, each model left out in turn, beside the mean of the others as the prediction.
fn decodes(family: &Family<'_>) -> Vec<Figures> {
    let errors = left_out_errors(family);
    let judged = family.points.iter().filter(|point| !point.runs.is_empty()).filter_map(|point| {
        let own = errors.iter().filter(|left_out| std::ptr::eq(left_out.point, *point));
        let score = Errors::of_rates(own.map(|left_out| -left_out.error))?;
        let mut row = figures([
            ("machine", json!(point.hardware)),
            ("mode", json!(point.mode)),
            ("rails", json!(point.rails.key())),
            ("rows", json!(score.rows)),
        ]);
        row.extend(score.figures(""));
        row.extend(figures([("mean_of_others_error_ratio", json!(constant(point).map(|of| of.mean)))]));
        Some(row)
    });
    judged.collect()
}

/// Errors of decodes with the mean of the other models as the prediction.
fn constant(point: &Point) -> Option<Errors> {
    let runs: Vec<_> = point.runs.iter().filter(|run| run.decode).collect();
    let errors = runs.iter().filter_map(|run| {
        let others: Vec<f64> = runs
            .iter()
            .filter(|other| other.model != run.model)
            .map(|other| other.sample.power.ln())
            .collect();
        let mean = others.iter().sum::<f64>() / as_f64(others.len());
        (!others.is_empty()).then(|| run.sample.power.ln() - mean)
    });
    Errors::of_rates(errors)
}

/// Decodes of a family of silicon, each model left out in turn.
fn intervals(family: &Family<'_>) -> Option<Figures> {
    let left_out = left_out_errors(family);
    let covered = model_coverage(&left_out)?;
    let errors = Errors::of_rates(left_out.iter().map(|left_out| -left_out.error))?;
    let orders = format_orders(&left_out);
    let mut row = figures([
        ("silicon_of", json!(family.hardware)),
        ("rows", json!(covered.rows)),
        ("median_error_ratio", json!(errors.median)),
    ]);
    row.extend(covered.figures());
    row.extend(figures([("pairs_of_formats", json!(orders.pairs)), ("in_order", json!(orders.kept))]));
    Some(row)
}

/// What was left out, before and after one decode of it.
fn group(of: &GroupScore) -> Vec<Figures> {
    let row = |after: &str, errors: Option<Errors>| {
        let errors = errors?;
        let mut row =
            figures([("left_out", json!(of.name)), ("after", json!(after)), ("rows", json!(errors.rows))]);
        row.extend(errors.figures(""));
        Some(row)
    };
    let alone = row("no row of it", Some(of.alone)).map(|mut row| {
        row.extend(figures([("covered_ratio", json!(of.covered.covered))]));
        row
    });
    alone.into_iter().chain(row("one decode of it", of.anchored)).collect()
}
