//! `hardware list`, `show` and `check`: the registry, without a daemon.

use rooflined_core::units::significant;
use std::fmt::Write;
use std::path::Path;

use serde_json::json;

use super::args::HardwareCommand;
use super::failure::{Exit, Failure};
use super::output::{Format, Printer};
use super::table::Table;
use super::words;
use rooflined_advice::hardware;
use rooflined_api::{HardwareAnswer, NominalCeilings};
use rooflined_config::{Config, DEFAULT_FILE, Problem, hardware_dir, hardware_file};
use rooflined_core::hardware::{Hardware, Registry};
use rooflined_core::refusal::{Code, Refusal};

/// Columns of rates.
const SHOWN: [&str; 4] = ["fp16", "int8", "fp8", "fp4"];

pub fn run(printer: &Printer, command: &HardwareCommand) -> Result<Exit, Failure> {
    match command {
        HardwareCommand::List { word } => list(printer, &load_registry(), word.as_deref()),
        HardwareCommand::Show { key } => show(printer, &load_registry(), key),
        HardwareCommand::Check { file } => check(printer, file),
    }
}

/// What is built in and what the configured directory adds; files that are wrong are named on standard error.
pub fn load_registry() -> Registry {
    let config =
        Config::files(Path::new(DEFAULT_FILE)).and_then(|files| Config::load(&files)).unwrap_or_default();
    let (user, problems) = hardware_dir(&config.hardware.dir);
    for problem in problems {
        use std::io::Write;
        // Nobody is left to tell if standard error is closed.
        let _ = writeln!(std::io::stderr(), "warning: {problem}");
    }
    Registry::with(user)
}

fn list(printer: &Printer, registry: &Registry, word: Option<&str>) -> Result<Exit, Failure> {
    let mut answer = hardware::list(registry);
    if let Some(word) = word {
        answer.hardware.retain(|entry| has_word([&entry.key, &entry.name, &entry.kind], word));
        if answer.hardware.is_empty() {
            return Err(unknown(registry, word));
        }
    }
    if printer.format != Format::Human {
        printer.value("hardware", &json!(answer))?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&[
        "key",
        "name",
        ">SM or cores",
        ">MHz",
        ">GB/s",
        ">fp16 TFLOP/s",
        ">int8 TOP/s",
        ">fp8 TFLOP/s",
        ">fp4 TFLOP/s",
    ]);
    for entry in &answer.hardware {
        let mut row = vec![
            entry.key.clone(),
            entry.name.clone(),
            cell(entry.sm.or(entry.cores).map(f64::from), 1.0),
            cell(entry.gpu_clock_hz.or(entry.cpu_clock_hz), 1e6),
            cell(entry.bandwidth_bytes_per_s, 1e9),
        ];
        row.extend(SHOWN.map(|name| cell(entry.compute_flops_per_s.get(name).copied(), 1e12)));
        table.row(row);
    }
    printer.text(&table.render())?;
    printer.line(
        "\n  Rates are dense, at the reference clock. rooflinectl hardware show KEY has sources and modes.",
    )?;
    Ok(Exit::Ok)
}

fn unknown(registry: &Registry, key: &str) -> Failure {
    let Refusal { message, hint, .. } = hardware::unknown(registry, Code::NotFound, "key", key);
    Failure::usage(message).with_hint(hint)
}

/// Whether a name has all parts of `word`, which hyphens and spaces separate: `orin nano` is in `Jetson Orin Nano 8 GB`, and a
/// number begins where it begins there: `4b` is not in `34b`.
pub fn has_word<'a>(names: impl IntoIterator<Item = &'a String>, word: &str) -> bool {
    let wanted = word.to_lowercase();
    let mut parts = wanted.split(|of: char| of.is_whitespace() || "-_:/".contains(of));
    let names = names.into_iter().map(|name| name.to_lowercase()).collect::<Vec<_>>().join(" ");
    let is_digit = |of: char| of.is_ascii_digit() || of == '.';
    let begins = |part: &str, at: usize| !part.starts_with(is_digit) || !names[..at].ends_with(is_digit);
    parts.all(|part| names.match_indices(part).any(|(at, _)| begins(part, at)))
}

/// One decimal where there is one; a dash for what does not exist.
fn cell(value: Option<f64>, unit: f64) -> String {
    match value.map(|value| value / unit) {
        None => "-".to_owned(),
        Some(value) if value >= 1000.0 || value.fract() == 0.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.1}"),
    }
}

fn show(printer: &Printer, registry: &Registry, key: &str) -> Result<Exit, Failure> {
    let known = registry.get(key).ok_or_else(|| unknown(registry, key))?;
    let answer = hardware::entry(known);
    match printer.format {
        Format::Human => printer.text(&render_details(&answer))?,
        _ => printer.value("hardware", &json!(answer))?,
    }
    Ok(Exit::Ok)
}

fn render_details(answer: &HardwareAnswer) -> String {
    let mut text = format!("{} ({}, {})\n", answer.name, answer.key, answer.kind);
    if !answer.aliases.is_empty() {
        let _ = writeln!(text, "  also: {}", answer.aliases.join(", "));
    }
    let mut facts = Table::new(&["", ">", "", ""]);
    let source = |field: &str| answer.sources.get(field).cloned().unwrap_or_default();
    let mut fact = |field: &str, value: Option<f64>, scale: f64, unit: &str| {
        if value.is_some() {
            facts.row([field.to_owned(), cell(value, scale), unit.to_owned(), source(field)]);
        }
    };
    fact("sm", answer.sm.map(f64::from), 1.0, "");
    fact("gpu_clock_hz", answer.gpu_clock_hz, 1e6, "MHz");
    fact("bus_bits", answer.bus_bits.map(f64::from), 1.0, "bit");
    fact("memory_clock_hz", answer.memory_clock_hz, 1e6, "MHz");
    fact("bandwidth_bytes_per_s", answer.bandwidth_bytes_per_s, 1e9, "GB/s");
    fact("sm_pull", answer.sm_pull_bytes_per_clock.map(|pull| pull.value), 1.0, "B/clock");
    fact("l2_bytes", answer.l2_bytes, 1_048_576.0, "MiB");
    fact("memory_bytes", answer.memory_bytes, 1_073_741_824.0, "GiB");
    fact("tdp_w", answer.tdp_w, 1.0, "W");
    fact("min_power_limit_w", answer.min_power_limit_w, 1.0, "W");
    if let Some(cpu) = &answer.cpu {
        for (field, value, scale, unit) in [
            ("cpu.cores", Some(f64::from(cpu.cores)), 1.0, ""),
            ("cpu.threads", Some(f64::from(cpu.threads)), 1.0, ""),
            ("cpu.clock_hz", Some(cpu.clock_hz), 1e6, "MHz"),
            ("cpu.fp32_per_clock", Some(cpu.fp32_per_clock), 1.0, ""),
            ("cpu.cache_bytes", cpu.cache_bytes, 1_048_576.0, "MiB"),
        ] {
            let from = Some(source(field)).filter(|own| !own.is_empty()).unwrap_or_else(|| source("cpu"));
            if value.is_some() {
                facts.row([field.to_owned(), cell(value, scale), unit.to_owned(), from]);
            }
        }
        facts.row(["cpu.features".to_owned(), String::new(), String::new(), cpu.features.join(", ")]);
    }
    for (precision, rate) in &answer.flops_per_sm_clock {
        let field = format!("flops_per_sm_clock.{precision}");
        let from = Some(source(&field)).filter(|own| !own.is_empty());
        let from = from.unwrap_or_else(|| source("flops_per_sm_clock"));
        facts.row([format!("{precision} per SM and clock"), cell(Some(*rate), 1.0), String::new(), from]);
    }
    let _ = write!(text, "\n{}", facts.render());
    text.push_str(&ceilings(answer));
    for (figure, value) in &answer.marketing {
        let _ = writeln!(text, "\n  Advertised, never used: {figure} {} T/s", significant(value / 1e12));
    }
    if !answer.notes.is_empty() {
        text.push_str("\n  how the figures were found: -o json\n");
    }
    text
}

/// A row for the reference clocks and for each mode.
fn ceilings(answer: &HardwareAnswer) -> String {
    let Some(reference) = &answer.ceilings else { return String::new() };
    let precisions: Vec<&String> = reference.compute_flops_per_s.keys().collect();
    let mut columns: Vec<String> =
        ["mode", ">SM", ">GPU MHz", ">EMC MHz", ">GB/s", ">of DRAM"].map(str::to_owned).to_vec();
    columns.extend(
        precisions.iter().map(|precision| format!(">{precision} T{}", words::compute_unit(precision))),
    );
    columns.push(">ridge fp16".to_owned());
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(&columns);
    let mut row = |name: &str, sm: Option<u32>, gpu: Option<f64>, emc: Option<f64>, at: &NominalCeilings| {
        let mut cells = vec![
            name.to_owned(),
            cell(sm.map(f64::from), 1.0),
            cell(gpu, 1e6),
            cell(emc, 1e6),
            cell(Some(at.bandwidth_bytes_per_s.value), 1e9),
            cell(at.memory_limit_bytes_per_s.as_ref().map(|limit| limit.value), 1e9),
        ];
        cells.extend(precisions.iter().map(|name| {
            let peak = at.compute_flops_per_s.get(*name).map(|peak| peak.value / 1e12);
            peak.map_or_else(|| "-".to_owned(), significant)
        }));
        cells.push(cell(at.ridge_flops_per_byte.get("fp16").map(|ridge| ridge.round()), 1.0));
        table.row(cells);
    };
    row("(reference)", answer.sm, answer.gpu_clock_hz, answer.memory_clock_hz, reference);
    for mode in &answer.modes {
        row(&mode.name, Some(mode.sm_online), Some(mode.gpu_hz), Some(mode.emc_hz), &mode.ceilings);
    }
    format!("\n{}", table.render())
}

fn check(printer: &Printer, file: &Path) -> Result<Exit, Failure> {
    if !file.exists() {
        let message = format!("there is no file {}", file.display());
        return Err(Failure::wrong_file(
            message,
            "check the path; docs/hardware.md has the keys of a description",
        ));
    }
    let checked = hardware_file(file);
    let doubts = checked.as_ref().map(|entry| entry.implausible(&others(entry))).unwrap_or_default();
    let problems: &[Problem] = checked.as_ref().err().map_or(&[], Vec::as_slice);
    let exit = if problems.is_empty() { Exit::Ok } else { Exit::Failed };
    if printer.format != Format::Human {
        let rows: Vec<_> = problems
            .iter()
            .map(|problem| json!({ "line": problem.line, "key": problem.key, "message": problem.message }))
            .collect();
        printer.value(
            "hardware_check",
            &json!({
                "file": file.display().to_string(), "key": checked.as_ref().ok().map(|entry| &entry.key),
                "valid": problems.is_empty(), "problems": rows, "warnings": doubts,
            }),
        )?;
        return Ok(exit);
    }
    for problem in problems {
        printer.line(&words::without_numbers(&problem.to_string()))?;
    }
    if !problems.is_empty() {
        printer.line(&format!(
            "{}: docs/hardware.md has the keys of a description; for the daemon's configuration: rooflinectl config check {0}",
            file.display()
        ))?;
    }
    for doubt in &doubts {
        printer.line(&format!("{}: warning: {doubt}", file.display()))?;
    }
    if let Ok(entry) = &checked {
        let verdict = if doubts.is_empty() { "right" } else { "readable, but see above" };
        printer.line(&format!("{}: {verdict}", file.display()))?;
        printer.text(&render_details(&hardware::entry(entry)))?;
    }
    Ok(exit)
}

/// What an entry is compared with: everything built in but itself.
fn others(entry: &Hardware) -> Registry {
    rooflined_core::hardware::registry().without(&entry.key)
}
