//! `bundle`: the files of this board as one text. Asks no daemon: the board that it does not start on is the one whose
//! files are wanted.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use super::args::BundleArgs;
use super::failure::Failure;
use super::output::{Format, Printer};
use super::working::{Counted, Working};
use rooflined_core::calendar;
use rooflined_hw::{SysRoot, bundle, nvml};

pub fn run(printer: &Printer, args: &BundleArgs) -> Result<(), Failure> {
    if !args.root.is_dir() {
        let message = format!("{} is not a directory", args.root.display());
        return Err(Failure::failed(message, "give --root the directory that holds sys, proc and etc"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    let heading =
        format!("board tree, captured by rooflined {} on {}", env!("CARGO_PKG_VERSION"), calendar::date(now));
    let root = SysRoot::new(&args.root);
    let nvml = if root.is_host() { nvml::captured() } else { BTreeMap::new() };
    let working = Working::new(printer, Counted::Nothing, "reading the board's files");
    let captured = bundle::capture(&root, &nvml, &heading);
    drop(working);
    let mut answer = serde_json::json!({ "files": captured.files, "notes": captured.notes });
    match &args.file {
        Some(file) => {
            std::fs::write(file, &captured.text).map_err(|error| {
                let message = format!("{} cannot be written: {error}", file.display());
                Failure::failed(message, "give --file a path in a directory that you may write to")
            })?;
            answer["file"] = file.display().to_string().into();
        }
        None if printer.format == Format::Human => printer.bytes(captured.text.as_bytes())?,
        None => answer["text"] = captured.text.into(),
    }
    if printer.format != Format::Human {
        return printer.value("bundle", &answer);
    }
    // On standard error: what is on standard output may be on its way into a file.
    let mut errors = std::io::stderr().lock();
    let place = args.file.as_ref().map_or_else(String::new, |file| format!(" in {}", file.display()));
    let of = if root.is_host() { "this machine".to_owned() } else { args.root.display().to_string() };
    let _ = writeln!(errors, "{} files of {of}{place}. {ADVICE}", captured.files);
    for note in &captured.notes {
        let _ = writeln!(errors, "note: {note}");
    }
    Ok(())
}

const ADVICE: &str = "Serial numbers, addresses and names are replaced; check it before you send it.";
