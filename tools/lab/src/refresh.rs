//! `refresh`: takes in new rows. How well they were predicted, which groups a fit to all rows makes worse, and which shipped
//! coefficients it moves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::args::RefreshArgs;
use super::engine_files::engine_files;
use super::evaluate::groups;
use super::rows::{Row, prepare};
use super::{fit_engines, published};
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
use rooflined_core::hardware::registry;
use rooflined_models::registry::models;
use rooflined_predict::costs::{EngineFile, FILES};

/// Change of a coefficient from which on it is shown.
const NOTABLE: f64 = 0.05;
/// Most changes of one engine that are shown, the largest first.
const MOST: usize = 15;

pub fn run(printer: &Printer, args: &RefreshArgs) -> Result<(), Failure> {
    let (known, new) = (published::read(&args.known)?, published::read(&args.new)?);
    let mut report = String::new();
    for (why, count) in &new.left_out {
        let _ = writeln!(report, "{count:5} new rows left out: {why}");
    }
    let ids: BTreeSet<&str> = known.rows.iter().map(|row| row.id.as_str()).collect();
    if let Some(row) = new.rows.iter().find(|row| ids.contains(row.id.as_str())) {
        return Err(Failure::usage(format!("row {} of {} is known already", row.id, args.new.display()))
            .with_hint("give new rows ids of their own"));
    }
    if new.rows.is_empty() {
        return Err(Failure::failed(
            format!("{} has no row that can be used", args.new.display()),
            "its engines, devices and models must be known: rooflinectl hardware list, rooflinectl models list",
        ));
    }
    for section in groups::compare(&known.rows, &new.rows)? {
        report += &section.text();
        report.push('\n');
    }
    let all: Vec<Row> = known.rows.into_iter().chain(new.rows).collect();
    let (engines, _) = prepare(&all, registry(), models());
    let _ = writeln!(
        report,
        "\nShipped coefficients that a fit to all rows moves by {:.0} % or more:",
        NOTABLE * 100.0
    );
    for file in &engine_files(&engines) {
        report.push_str(&describe_changes(file)?);
        if let Some(dir) = &args.out {
            fit_engines::write_file(dir, file)?;
        }
    }
    printer.text(&report)
}

/// The numbers of a file that differ from those built in, the largest change first.
fn describe_changes(file: &EngineFile) -> Result<String, Failure> {
    let name = file.engine.key();
    let read = |text: &str| {
        text.parse::<toml::Table>()
            .map(|table| numbers(&toml::Value::Table(table)))
            .map_err(|error| Failure::failed(format!("the costs of {name}: {error}"), "report this"))
    };
    let shipped = FILES.iter().find(|(key, _)| *key == name).map_or("", |(_, text)| *text);
    let (shipped, fitted) = (read(shipped)?, read(&fit_engines::text(file)?)?);
    let mut changes: Vec<(f64, String)> = fitted
        .iter()
        .filter_map(|(place, value)| {
            let former = shipped.get(place)?;
            let change = (value / former).ln();
            let words = format!("  {name:18} {place:50} {former} -> {value}\n");
            (change.abs() >= NOTABLE.ln_1p()).then_some((change.abs(), words))
        })
        .collect();
    changes.sort_by(|a, b| b.0.total_cmp(&a.0));
    let more = changes.len().saturating_sub(MOST);
    let mut text: String = changes.into_iter().take(MOST).map(|(_, words)| words).collect();
    if more > 0 {
        let _ = writeln!(text, "  {name:18} and {more} more");
    }
    Ok(text)
}

/// Numbers of a file by their place.
fn numbers(value: &toml::Value) -> BTreeMap<String, f64> {
    fn walk(value: &toml::Value, place: &str, found: &mut BTreeMap<String, f64>) {
        let below = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
        match value {
            toml::Value::Table(table) => {
                table.iter().for_each(|(key, value)| walk(value, &below(key), found));
            }
            toml::Value::Array(list) => {
                list.iter()
                    .enumerate()
                    .for_each(|(index, value)| walk(value, &below(&index.to_string()), found));
            }
            toml::Value::Float(number) => drop(found.insert(place.to_owned(), *number)),
            _ => {}
        }
    }
    let mut found = BTreeMap::new();
    walk(value, "", &mut found);
    found
}
