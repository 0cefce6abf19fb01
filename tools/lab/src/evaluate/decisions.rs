//! `evaluate decisions`: what choosing a power mode costs where every mode was measured.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::choices::{Choices, choices};
use crate::power::Regret;
use crate::published;
use rooflinectl::failure::Failure;
use rooflinectl::output::{Format, Printer};
use rooflinectl::table::Table;
use rooflined_core::hardware::registry;
use rooflined_models::registry::models;

/// What is aimed at in the mean.
const GOAL: f64 = 0.02;

/// `evaluate decisions DATA.csv`
pub fn run(printer: &Printer, file: &Path) -> Result<(), Failure> {
    let table = published::read(file)?;
    let boards: BTreeSet<&str> = table.rows.iter().map(|row| row.hardware.as_str()).collect();
    let mut judged = Vec::new();
    for board in boards {
        let found = choices(&table.rows, board, registry(), models()).map_err(|error| {
            Failure::failed(format!("{board}: {error}"), "correct the rows of this board")
        })?;
        judged.extend(found.map(|found| (board, found)));
    }
    if judged.is_empty() {
        return Err(Failure::failed(
            format!("{} has no board with three models in every power mode", file.display()),
            "it needs decodes with power_w in each mode, such as those of tests/data/published_llm.csv",
        ));
    }
    match printer.format {
        Format::Human => printer.text(&text(&judged)),
        _ => printer.value("evaluation", &value(&judged)),
    }
}

fn text(judged: &[(&str, Choices)]) -> String {
    let mut text = String::from(
        "Joules for a token above the least, where decide chooses the mode of a model seen in one mode, with two others \
         known in all\n",
    );
    let mut table = Table::new(&[
        "machine", "rate", ">choices", ">mean", ">90 %", ">worst", ">missed", ">unsure", ">goal",
    ]);
    let percent = |ratio: f64| format!("{:.1} %", 100.0 * ratio);
    for (board, of) in judged {
        let rows =
            [("any", of.free, "", ""), ("25, 50, 75, 90 % of the fastest", of.floored, "missed", "unsure")];
        for (rate, regret, missed, unsure) in rows {
            let Some(regret) = regret else { continue };
            let verdict = if regret.mean <= GOAL { "met" } else { "missed" };
            let count =
                |name: &str, count: usize| if name.is_empty() { String::new() } else { count.to_string() };
            table.row([
                (*board).to_owned(),
                rate.to_owned(),
                regret.count.to_string(),
                percent(regret.mean),
                percent(regret.p90),
                percent(regret.worst),
                count(missed, of.missed),
                count(unsure, of.unsure),
                format!("{} {verdict}", percent(GOAL)),
            ]);
        }
    }
    text.push_str(&table.render());
    text
}

fn value(judged: &[(&str, Choices)]) -> Value {
    let regret = |of: Option<Regret>| {
        of.map(|of| {
            json!({ "choices": of.count, "mean_ratio": of.mean, "p90_ratio": of.p90, "worst_ratio": of.worst })
        })
    };
    let board = |(board, of): &(&str, Choices)| {
        json!({
            "hardware": board, "modes": of.modes, "files": of.files, "free": regret(of.free),
            "floored": regret(of.floored), "missed_floors": of.missed, "unsure": of.unsure,
        })
    };
    json!({ "boards": judged.iter().map(board).collect::<Vec<_>>() })
}
