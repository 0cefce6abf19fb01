//! `fit-engines`: engine costs from a table of published rates.

use std::fmt::Write as _;
use std::path::Path;

use super::args::FitEnginesArgs;
use super::engine_files::engine_files;
use super::published;
use super::rows::prepare;
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
use rooflined_core::hardware::registry;
use rooflined_models::registry::models;
use rooflined_predict::costs::{EngineFile, FILES};

pub fn run(printer: &Printer, args: &FitEnginesArgs) -> Result<(), Failure> {
    let table = published::read(&args.data)?;
    let (engines, unusable) = prepare(&table.rows, registry(), models());
    if engines.is_empty() {
        return Err(Failure::failed(
            format!("{} has no row that can be fitted", args.data.display()),
            "its engines, devices and models must be known: rooflinectl hardware list, rooflinectl models list",
        ));
    }
    let mut report = String::new();
    for (why, count) in &table.left_out {
        let _ = writeln!(report, "{count:5} rows left out: {why}");
    }
    for why in &unusable {
        let _ = writeln!(report, "      row left out: {why}");
    }
    let files = engine_files(&engines);
    let mut changed = Vec::new();
    for file in &files {
        let text = text(file)?;
        let name = file.engine.key();
        let shipped = FILES.iter().find(|(key, _)| *key == name).map(|(_, text)| *text);
        let same = shipped == Some(text.as_str());
        let _ = writeln!(
            report,
            "{:18} {:4} rows, {:2} machines: {}",
            name,
            file.rows,
            file.hardware.len(),
            if same { "as built in" } else { "differs from what is built in" }
        );
        if !same {
            changed.push(name);
        }
        if let Some(dir) = &args.out {
            write_file(dir, file)?;
        }
    }
    printer.text(&report)?;
    if args.check && !changed.is_empty() {
        return Err(Failure::failed(
            format!("these rows give other costs than those built in: {}", changed.join(", ")),
            "write them with --out config/engines and build again",
        ));
    }
    Ok(())
}

pub fn text(file: &EngineFile) -> Result<String, Failure> {
    let body = toml::to_string(file).map_err(|error| {
        Failure::failed(
            format!("the costs of {} cannot be written: {error}", file.engine.key()),
            "report this",
        )
    })?;
    Ok(format!(
        "# Costs of {} on GPUs, fitted by `rooflined-lab fit-engines`: do not edit. Meaning and units: docs/internals/prediction.md.\n\n{body}",
        file.engine.key()
    ))
}

/// Writes the costs of an engine into a directory.
///
/// # Errors
/// It cannot be written.
pub fn write_file(dir: &Path, file: &EngineFile) -> Result<(), Failure> {
    let path = dir.join(format!("{}.toml", file.engine.key()));
    std::fs::write(&path, text(file)?).map_err(|error| {
        Failure::failed(format!("{}: {error}", path.display()), "name a directory that can be written")
    })
}
