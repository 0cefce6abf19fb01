//! `evaluate decisions`: what choosing a power mode costs where every mode was measured.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use crate::choices::{Choices, Regret, choices};
use crate::published;
use crate::report::{Figures, Section, figures, print};
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
use rooflined_core::hardware::registry;
use rooflined_models::registry::models;

/// `evaluate decisions DATA.csv`
pub fn run(printer: &Printer, file: &Path) -> Result<(), Failure> {
    let table = published::read(file)?;
    let boards: BTreeSet<&str> = table.rows.iter().map(|row| row.hardware.as_str()).collect();
    let mut rows = Vec::new();
    for board in boards {
        let found = choices(&table.rows, board, registry(), models()).map_err(|error| {
            Failure::failed(format!("{board}: {error}"), "correct the rows of this board")
        })?;
        rows.extend(found.iter().flat_map(|found| figures_of(board, found)));
    }
    if rows.is_empty() {
        return Err(Failure::failed(
            format!("{} has no board with three models in every power mode", file.display()),
            "it needs decodes with power_w in each mode, such as those of tests/data/published_llm.csv",
        ));
    }
    let title = "Joules for a token above the least, where decide chooses the mode of a model seen in one mode, with two \
                 others known in all";
    print(printer, &[Section::new("choices", title.to_owned(), rows)])
}

/// With no demand on the rate, and with a floor under it.
fn figures_of(board: &str, of: &Choices) -> Vec<Figures> {
    let row = |rate: &str, regret: Option<Regret>, missed: usize, unsure: usize| {
        let Regret { count, mean, p90, worst } = regret?;
        Some(figures([
            ("machine", json!(board)),
            ("files", json!(of.files)),
            ("rate", json!(rate)),
            ("choices", json!(count)),
            ("mean_ratio", json!(mean)),
            ("p90_ratio", json!(p90)),
            ("worst_ratio", json!(worst)),
            ("missed", json!(missed)),
            ("unsure", json!(unsure)),
        ]))
    };
    let floored = row("25, 50, 75, 90 % of the fastest", of.floored, of.missed, of.unsure);
    row("any", of.free, 0, 0).into_iter().chain(floored).collect()
}
