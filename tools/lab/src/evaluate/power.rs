//! `evaluate power`: power where it was not measured, and what choosing a mode by it costs.

use serde_json::{Value, json};

use crate::carrying::Coverage;
use crate::power::{
    Choices, Family, GroupScore, Kernels, Orders, Regret, choose_modes, families, format_orders,
    judge_boards, judge_cards, judge_kernels, judge_labs, left_out_errors, model_coverage,
};
use crate::power_rows::{self, Tables};
use crate::rows::{Summary, summary};
use rooflinectl::failure::Failure;
use rooflinectl::output::{Format, Printer};
use rooflinectl::table::Table;
use rooflined_core::hardware::registry;
use rooflined_predict::learning::power::Point;

/// What the prototype left of steady kernels, with four points each, and what is aimed at.
const STEADY: (&str, f64) = ("0.7-4.7 %", 0.05);
/// Likewise of decodes of a model that was left out.
const DECODE: (&str, f64) = ("7.4-7.7 %", 0.08);
/// What is aimed at on a machine that was left out, in the median.
const BOARD: f64 = 0.1;
/// Likewise of the energy above the best mode.
const CHOICE: (&str, f64) = ("0.8 %", 0.02);

/// `evaluate power DATA.csv [MICRO.csv] [--power FILE]`
pub fn run(printer: &Printer, tables: &Tables<'_>) -> Result<(), Failure> {
    let rows = power_rows::read(tables)?;
    let kernels = judge_kernels(&rows.kernels);
    let families = families(&rows.points, registry());
    let decodes: Vec<Decode<'_>> = families.iter().flat_map(decodes).collect();
    let intervals: Vec<Intervals<'_>> = families.iter().filter_map(Intervals::of).collect();
    let groups = [
        ("machine", families.iter().flat_map(judge_boards).collect()),
        ("lab", families.iter().flat_map(judge_labs).collect()),
        ("card", judge_cards(&families, registry())),
    ];
    let choices = choose_modes(&rows.points);
    if decodes.is_empty() && kernels.is_empty() {
        return Err(Failure::failed(
            format!("{} has no power that can be judged", tables.data.display()),
            "it needs rows of two models or more with power_w, and a source that names the meter",
        ));
    }
    match printer.format {
        Format::Human => printer.text(&text(&kernels, &decodes, &intervals, &groups, &choices)),
        _ => printer.value("evaluation", &value(&kernels, &decodes, &intervals, &groups, &choices)),
    }
}

/// Decodes of what was left out: each machine, what each lab measured, and cards by the file of another.
type Groups = [(&'static str, Vec<GroupScore>); 3];

/// Decodes of a family of silicon, each model left out in turn.
struct Intervals<'a> {
    hardware: &'a str,
    covered: Coverage,
    errors: Summary,
    orders: Orders,
}

impl<'a> Intervals<'a> {
    fn of(family: &Family<'a>) -> Option<Self> {
        let errors = left_out_errors(family);
        Some(Self {
            hardware: family.hardware,
            covered: model_coverage(&errors)?,
            errors: summary(errors.iter().map(|left_out| -left_out.error))?,
            orders: format_orders(&errors),
        })
    }
}

/// Decodes in one mode, each model left out in turn.
struct Decode<'a> {
    point: &'a Point,
    score: Summary,
    constant: Option<Summary>,
}

fn decodes<'a>(family: &Family<'a>) -> Vec<Decode<'a>> {
    let errors = left_out_errors(family);
    let judged = family.points.iter().filter(|point| !point.runs.is_empty()).filter_map(|point| {
        let own = errors.iter().filter(|left_out| std::ptr::eq(left_out.point, *point));
        Some(Decode {
            point,
            score: summary(own.map(|left_out| -left_out.error))?,
            constant: constant(point),
        })
    });
    judged.collect()
}

/// The same with the mean of the others as the prediction.
fn constant(point: &Point) -> Option<Summary> {
    let runs: Vec<_> = point.runs.iter().filter(|run| run.decode).collect();
    let errors = runs.iter().filter_map(|run| {
        let others: Vec<f64> = runs
            .iter()
            .filter(|other| other.model != run.model)
            .map(|other| other.sample.power.ln())
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
        let mean = others.iter().sum::<f64>() / others.len() as f64;
        (!others.is_empty()).then(|| run.sample.power.ln() - mean)
    });
    summary(errors)
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

fn goal(reached: f64, goal: f64) -> String {
    format!("{} {}", percent(goal), if reached <= goal { "met" } else { "missed" })
}

fn text(
    kernels: &[Kernels],
    decodes: &[Decode<'_>],
    intervals: &[Intervals<'_>],
    groups: &Groups,
    choices: &[Choices],
) -> String {
    let mut parts = Vec::new();
    if !kernels.is_empty() {
        let mut table = Table::new(&[
            "steady kernels",
            ">judged",
            ">mean",
            ">median",
            ">90 %",
            ">all fitted",
            ">prototype",
            ">goal",
        ]);
        for of in kernels {
            table.row([
                of.device.clone(),
                of.four.count.to_string(),
                percent(of.four.mean),
                percent(of.four.median),
                percent(of.four.p90),
                percent(of.all.mean),
                STEADY.0.to_owned(),
                goal(of.four.mean, STEADY.1),
            ]);
        }
        parts.push(format!("Power of steady kernels, fitted to four of them (MAPE)\n{}", table.render()));
    }
    if !decodes.is_empty() {
        let mut table = Table::new(&[
            "machine",
            "mode",
            "rails",
            ">judged",
            ">mean",
            ">median",
            ">90 %",
            ">constant",
            ">prototype",
            ">goal",
        ]);
        for of in decodes {
            table.row([
                of.point.hardware.clone(),
                if of.point.mode.is_empty() { "-".to_owned() } else { of.point.mode.clone() },
                of.point.rails.key().to_owned(),
                of.score.count.to_string(),
                percent(of.score.mean),
                percent(of.score.median),
                percent(of.score.p90),
                of.constant.map_or_else(|| "-".to_owned(), |of| percent(of.mean)),
                DECODE.0.to_owned(),
                goal(of.score.mean, DECODE.1),
            ]);
        }
        parts.push(format!(
            "Power of decodes in a mode, each model left out in turn (MAPE)\n{}",
            table.render()
        ));
    }
    if !intervals.is_empty() {
        let mut table = Table::new(&[
            "silicon of",
            ">judged",
            ">median",
            ">inside",
            ">half-width",
            ">pairs of formats",
            ">in order",
        ]);
        for of in intervals {
            table.row([
                of.hardware.to_owned(),
                of.covered.count.to_string(),
                percent(of.errors.median),
                percent(of.covered.covered),
                percent(of.covered.half_width),
                of.orders.pairs.to_string(),
                of.orders.kept.to_string(),
            ]);
        }
        parts.push(format!(
            "90 % intervals of those decodes from the errors of the other models, and which format draws more\n{}",
            table.render()
        ));
    }
    for (what, scores) in groups.iter().filter(|(_, scores)| !scores.is_empty()) {
        let left_out = format!("{what} left out");
        let mut table =
            Table::new(&[&left_out, "after", ">judged", ">mean", ">median", ">90 %", ">inside", ">goal"]);
        for of in scores {
            let inside = percent(of.covered.covered);
            for (after, score, inside) in
                [("no row of it", Some(of.alone), inside.as_str()), ("one decode of it", of.anchored, "")]
            {
                let Some(score) = score else { continue };
                table.row([
                    of.name.clone(),
                    after.to_owned(),
                    score.count.to_string(),
                    percent(score.mean),
                    percent(score.median),
                    percent(score.p90),
                    inside.to_owned(),
                    goal(score.median, BOARD),
                ]);
            }
        }
        parts.push(format!(
            "Power of decodes of a {what} that was left out, by the others (MAPE)\n{}",
            table.render()
        ));
    }
    if !choices.is_empty() {
        let mut table = Table::new(&[
            "machine",
            "speed",
            ">choices",
            ">mean",
            ">90 %",
            ">worst",
            ">missed",
            ">prototype",
            ">goal",
        ]);
        for of in choices {
            for (speed, regret, missed) in
                [("any", of.free, 0), ("25, 50, 75, 90 % of the fastest", of.floored, of.missed)]
            {
                table.row([
                    of.hardware.clone(),
                    speed.to_owned(),
                    regret.count.to_string(),
                    percent(regret.mean),
                    percent(regret.p90),
                    percent(regret.worst),
                    missed.to_string(),
                    CHOICE.0.to_owned(),
                    goal(regret.mean, CHOICE.1),
                ]);
            }
        }
        parts.push(format!(
            "Joules for a token above the best mode, chosen from one mode seen and two other models\n{}",
            table.render()
        ));
    }
    parts.join("\n")
}

fn scores(of: &Summary) -> Value {
    json!({ "count": of.count, "mean_error_ratio": of.mean, "median_error_ratio": of.median, "p90_error_ratio": of.p90 })
}

fn value(
    kernels: &[Kernels],
    decodes: &[Decode<'_>],
    intervals: &[Intervals<'_>],
    groups: &Groups,
    choices: &[Choices],
) -> Value {
    let intervals: Vec<Value> = intervals
        .iter()
        .map(|of| {
            json!({
                "hardware": of.hardware, "count": of.covered.count, "median_error_ratio": of.errors.median,
                "covered_ratio": of.covered.covered, "median_half_width_ratio": of.covered.half_width,
                "format_pairs": of.orders.pairs, "format_pairs_in_order": of.orders.kept,
            })
        })
        .collect();
    let kernels: Vec<Value> = kernels
        .iter()
        .map(|of| {
            json!({
                "device": of.device, "four_points": scores(&of.four), "all_points": scores(&of.all),
                "static_w": of.coefficients.static_w, "byte_j": of.coefficients.byte_j, "flop_j": of.coefficients.flop_j,
                "prototype": STEADY.0, "goal_mean_error_ratio": STEADY.1,
            })
        })
        .collect();
    let decodes: Vec<Value> = decodes
        .iter()
        .map(|of| {
            json!({
                "hardware": of.point.hardware, "mode": of.point.mode, "power_from": of.point.rails.key(),
                "left_out": scores(&of.score), "constant": of.constant.as_ref().map(scores),
                "prototype": DECODE.0, "goal_mean_error_ratio": DECODE.1,
            })
        })
        .collect();
    let choices: Vec<Value> = choices
        .iter()
        .map(|of| {
            let regret = |of: &Regret| {
                json!({ "choices": of.count, "mean_ratio": of.mean, "p90_ratio": of.p90, "worst_ratio": of.worst })
            };
            json!({
                "hardware": of.hardware, "power_from": of.rails.key(), "modes": of.modes, "files": of.files,
                "free": regret(&of.free), "floored": regret(&of.floored), "missed_floors": of.missed,
                "prototype": CHOICE.0, "goal_mean_ratio": CHOICE.1,
            })
        })
        .collect();
    let groups_of = |of: &[GroupScore]| -> Vec<Value> {
        let score = |of: &GroupScore| {
            json!({
                "name": of.name, "alone": scores(&of.alone), "covered_ratio": of.covered.covered,
                "anchored": of.anchored.as_ref().map(scores), "goal_median_error_ratio": BOARD,
            })
        };
        of.iter().map(score).collect()
    };
    let [(_, boards), (_, labs), (_, cards)] = groups;
    json!({
        "steady_kernels": kernels, "decodes": decodes, "models_left_out": intervals, "boards_left_out": groups_of(boards),
        "labs_left_out": groups_of(labs), "cards_left_out": groups_of(cards), "mode_choices": choices,
    })
}
