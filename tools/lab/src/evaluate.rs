//! `evaluate`: how good the models are on measurements that others published.

mod cpu;
mod decisions;
mod engines;
mod gemm;
pub mod groups;
mod moe;
pub mod networks;
mod power;

use std::path::Path;

use serde::Deserialize;

use super::args::EvaluateCommand;
use super::in_words;
use super::power_rows::Tables;
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
use rooflined_core::precision::{Precision, WeightFormat};

pub fn run(printer: &Printer, command: &EvaluateCommand) -> Result<(), Failure> {
    match command {
        EvaluateCommand::Engines { file } => engines::run(printer, file),
        EvaluateCommand::Groups { file, since } => groups::run(printer, file, since),
        EvaluateCommand::Cpu { file } => cpu::run(printer, file),
        EvaluateCommand::Networks { file, networks } => networks::run(printer, file, networks),
        EvaluateCommand::Decisions { file } => decisions::run(printer, file),
        EvaluateCommand::Gemm { file } => gemm::run(printer, file),
        EvaluateCommand::Moe { file } => moe::run(printer, file),
        EvaluateCommand::Power { data, micro, power } => {
            let (micro, power) = (micro.as_deref(), power.as_deref());
            power::run(printer, &Tables { data, power, micro, caps: None })
        }
    }
}

/// A measurement of one operation: a line of the file. Columns that are not named here are not read.
#[derive(Debug, Clone, Deserialize)]
struct Record {
    device: String,
    op: String,
    shape: String,
    precision: String,
    m: Option<u64>,
    n: Option<u64>,
    k: Option<u64>,
    time_us: Option<f64>,
    engine: String,
    source: String,
}

impl Record {
    /// Measured seconds; `None` where the line has no time that a run can take.
    fn seconds(&self) -> Option<f64> {
        self.time_us.filter(|time| time.is_finite() && *time > 0.0).map(|time| time / 1e6)
    }

    /// How the weights are stored and what the product is computed in.
    fn format(&self) -> Option<(WeightFormat, Precision)> {
        let format = match self.precision.as_str() {
            "bfloat16" => WeightFormat::Bf16,
            "fp8" | "fp8_block" => WeightFormat::Fp8E4m3,
            "w4a16_mxfp4" => return Some((WeightFormat::Mxfp4, Precision::Bf16)),
            name => name.parse().ok()?,
        };
        Some((format, format.native_precision()))
    }
}

const WANTED: &str = "give a CSV file with the columns device, op, shape, precision, m, n, k, time_us, engine and \
                      source, such as tests/data/published_micro.csv";

/// The lines of `file` about `op`.
fn records(file: &Path, op: &str) -> Result<Vec<Record>, Failure> {
    let named = |what: String| Failure::failed(format!("{}: {what}", file.display()), WANTED);
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_path(file)
        .map_err(|error| named(format!("cannot be read: {}", in_words(&error))))?;
    let mut records = Vec::new();
    for record in reader.deserialize::<Record>() {
        let record = record.map_err(|error| named(in_words(&error)))?;
        if record.op == op {
            records.push(record);
        }
    }
    if records.is_empty() {
        return Err(named(format!("has no line with op {op}")));
    }
    Ok(records)
}

/// What a source is called in a table: the project before its path.
fn short(source: &str) -> &str {
    source.split(':').next().unwrap_or(source)
}
