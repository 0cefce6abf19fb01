//! What the shipped coefficients come from and how good the models are: fits to published measurements, and evaluations
//! against rows that did not go into them.
//!
//! Only developers run it (`rooflined-lab`); nothing that is shipped imports it.

mod args;
mod carrying;
mod choices;
mod cpu_rows;
mod engine_files;
mod evaluate;
mod fit_cpu;
mod fit_engines;
mod fit_networks;
mod fit_power;
mod fits;
mod operations;
mod pooled;
mod power;
mod power_rows;
mod published;
mod refresh;
mod report;
mod routing;
mod rows;
mod sizes;
mod thumb;

use std::process::ExitCode;

use args::{Cli, Command};
use rooflinectl::failure::{Exit, Failure};
use rooflinectl::output::Printer;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    rooflinectl::program(run)
}

fn run(cli: Cli) -> Result<Exit, Failure> {
    let printer = Printer::from_environment(cli.output, cli.ascii);
    match cli.command {
        Command::FitEngines(args) => fit_engines::run(&printer, &args)?,
        Command::FitCpuEngines(args) => fit_cpu::run(&printer, &args)?,
        Command::Refresh(args) => refresh::run(&printer, &args)?,
        Command::NetworkLayers { file } => evaluate::networks::print_layers(&printer, &file)?,
        Command::FitPower(args) => fit_power::run(&printer, &args)?,
        Command::Evaluate(command) => evaluate::run(&printer, &command)?,
    }
    Ok(Exit::Ok)
}

/// Four significant digits, which hide what the mathematics of one processor differs by from another's.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The reader's own words, without the part that only says that it is one of its errors.
fn in_words(error: &csv::Error) -> String {
    let text = error.to_string();
    text.strip_prefix("CSV error: ")
        .or_else(|| text.strip_prefix("CSV deserialize error: "))
        .unwrap_or(&text)
        .to_owned()
}
