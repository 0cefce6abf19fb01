//! `config check` and `config show`: what the daemon would make of its configuration.

use std::path::{Path, PathBuf};

use super::args::ConfigCommand;
use super::failure::{Exit, Failure};
use super::output::{Format, Printer};
use super::words;
use rooflined_config::{Config, ConfigError, DEFAULT_FILE};

pub fn run(printer: &Printer, command: &ConfigCommand) -> Result<Exit, Failure> {
    let (ConfigCommand::Check { file } | ConfigCommand::Show { file }) = command;
    if let Some(file) = file.as_deref().filter(|file| !file.exists()) {
        let hint = format!(
            "check the path, or leave it out for {DEFAULT_FILE}; rooflinectl config show prints every key"
        );
        return Err(Failure::wrong_file(format!("there is no file {}", file.display()), hint));
    }
    if let Some(dir) = file.as_deref().filter(|file| file.is_dir()) {
        return Err(Failure::wrong_file(
            format!("{} is a directory", dir.display()),
            "give the .toml file in it",
        ));
    }
    match command {
        ConfigCommand::Check { file } => check(printer, file.as_deref()),
        ConfigCommand::Show { file } => show(printer, file.as_deref()),
    }
}

/// The files that count: one by name, or what an installed daemon reads.
fn files(file: Option<&Path>) -> Result<Vec<PathBuf>, ConfigError> {
    match file {
        Some(file) => Ok(vec![file.to_owned()]),
        None => Config::files(Path::new(DEFAULT_FILE)),
    }
}

fn check(printer: &Printer, file: Option<&Path>) -> Result<Exit, Failure> {
    let (files, problems) = match files(file) {
        Ok(files) => {
            let problems = Config::check(&files);
            (files, problems)
        }
        Err(error) => (Vec::new(), error.problems),
    };
    let exit = if problems.is_empty() { Exit::Ok } else { Exit::Failed };
    let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    if printer.format != Format::Human {
        let rows: Vec<_> = problems
            .iter()
            .map(|problem| {
                let file = problem.file.display().to_string();
                serde_json::json!({
                    "file": file, "line": problem.line, "key": problem.key, "message": problem.message
                })
            })
            .collect();
        printer.value("config", &serde_json::json!({ "files": names, "problems": rows }))?;
        return Ok(exit);
    }
    for problem in &problems {
        printer.line(&words::without_numbers(&problem.to_string()))?;
    }
    match (problems.len(), names.as_slice()) {
        (0, []) => printer.line(&format!("{DEFAULT_FILE} does not exist: the defaults apply"))?,
        (0, names) if files.iter().any(|file| sets_something(file)) => {
            printer.line(&format!("{}: valid", names.join(", ")))?;
        }
        (0, names) => {
            let names = names.join(", ");
            printer.line(&format!("{names}: valid, but nothing is set: the defaults apply"))?;
        }
        _ => {}
    }
    Ok(exit)
}

/// Whether a file has anything but comments.
fn sets_something(file: &Path) -> bool {
    let is_comment = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    std::fs::read_to_string(file).is_ok_and(|text| !text.lines().all(is_comment))
}

fn show(printer: &Printer, file: Option<&Path>) -> Result<Exit, Failure> {
    let config = files(file).and_then(|files| Config::load(&files)).map_err(|error| {
        let hint = match file {
            Some(_) => "rooflinectl config show, without a file, prints every key",
            None => "correct the file, or move it away to have the defaults",
        };
        Failure::failed(error.to_string(), hint)
    })?;
    match printer.format {
        Format::Human => printer.text(&config.to_toml())?,
        _ => printer.value("config", &serde_json::json!(config))?,
    }
    Ok(Exit::Ok)
}
