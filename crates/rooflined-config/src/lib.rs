//! TOML → [`Config`].
//!
//! `/etc/rooflined/rooflined.toml` and then `conf.d/*.toml` beside it in the order of their names; a later file
//! replaces single keys of an earlier one. Every key, its default and its range is declared once, in
//! [`schema`](self); `config/rooflined.toml` shows them all and a test keeps the two alike. Nothing unknown is
//! accepted: an error names the file, the line, and the nearest key or what was expected.

mod hardware;
mod modes;
mod schema;
mod value;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use thiserror::Error;
use toml::de::DeValue;
use toml::{Table, Value};

pub use hardware::{hardware_dir, hardware_file};
pub use modes::ClockMode;
pub use schema::{
    Calibration, Config, Control, Daemon, Engines, Hardware, Metrics, Models, Policy, Sampling,
};
pub use value::{Accelerator, Bus, Location};

pub use rooflined_predict::snapshot::Automatic;

use rooflined_core::document::{self, Document, DocumentError};
use rooflined_core::near::Near;

pub use rooflined_core::configuration::USUAL_FILE as DEFAULT_FILE;
/// A longer file is no configuration.
const LONGEST_FILE: u64 = 1 << 20;

/// One mistake in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub file: PathBuf,
    /// The line, counted from 1; `None` where the file could not be read at all.
    pub line: Option<usize>,
    /// The key, as `table.key`; `None` where the text is invalid TOML.
    pub key: Option<String>,
    /// What was found and what was expected.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Everything wrong in the configuration, in the order found; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    pub problems: Vec<Problem>,
}

impl Config {
    /// `main` and the `conf.d/*.toml` beside it by name: what an installed daemon loads. A file that does not exist
    /// is left out, so without any the answer is empty and loading it yields the defaults.
    ///
    /// # Errors
    /// The directory exists but cannot be listed.
    pub fn files(main: &Path) -> Result<Vec<PathBuf>, ConfigError> {
        let mut files = Vec::new();
        // A file that may not be looked at is kept: loading it says why.
        if main.try_exists().unwrap_or(true) {
            files.push(main.to_owned());
        }
        let dir = main.with_file_name("conf.d");
        let unreadable = |source: io::Error| unreadable(&dir, &source);
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
            Err(error) => return Err(unreadable(error)),
        };
        let mut parts = Vec::new();
        for entry in entries {
            let path = entry.map_err(unreadable)?.path();
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if path.extension().is_some_and(|extension| extension == "toml") && !hidden {
                parts.push(path);
            }
        }
        parts.sort_unstable();
        files.extend(parts);
        Ok(files)
    }

    /// The defaults with what `files` set, the later winning. Every file named must exist.
    ///
    /// # Errors
    /// Every mistake of every file.
    pub fn load(files: &[PathBuf]) -> Result<Self, ConfigError> {
        let (mut settings, mut problems) = (Table::new(), Vec::new());
        for file in files {
            match read(file).and_then(|text| read_settings(file, &text)) {
                Ok(tables) => merge(&mut settings, tables),
                Err(error) => problems.extend(error.problems),
            }
        }
        if problems.is_empty() { Ok(Self::of(settings)) } else { Err(ConfigError { problems }) }
    }

    /// What [`Config::load`] would complain of; empty if nothing.
    #[must_use]
    pub fn check(files: &[PathBuf]) -> Vec<Problem> {
        Self::load(files).err().map(|error| error.problems).unwrap_or_default()
    }

    /// The defaults with what `text` sets. `file` is what messages call it.
    ///
    /// # Errors
    /// Every mistake in the text.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        read_settings(file, text).map(Self::of)
    }

    /// Every key with its value as TOML, which loads back to the same configuration.
    #[must_use]
    pub fn to_toml(&self) -> String {
        // Tables of strings, numbers and lists of strings are always representable.
        toml::to_string(self).unwrap_or_default()
    }

    /// Each key of `settings` was read by itself before.
    fn of(settings: Table) -> Self {
        settings.try_into().unwrap_or_default()
    }
}

/// The tables that `text` sets, each key checked.
fn read_settings(file: &Path, text: &str) -> Result<Table, ConfigError> {
    let checked = || {
        let mut document = Document::parse(text)?;
        let root = document.root().clone();
        let mut settings = Table::new();
        for (name, value) in &root {
            let (table, offset) = (name.get_ref().as_ref(), Some(name.span().start));
            let DeValue::Table(keys) = value.get_ref() else {
                document.report_at(offset, table, misplaced(table));
                continue;
            };
            let Some((_, known)) = Config::TABLES.iter().find(|(known, _)| *known == table) else {
                document.report_at(offset, table, unknown_table(table));
                continue;
            };
            let keys = document.readable::<Config>(Some(table), keys, |key| {
                (!known.contains(&key)).then(|| unknown_key(table, known, key))
            });
            merge(&mut settings, document::read(document::nested(table, keys)).unwrap_or_default());
        }
        for (key, expected) in Config::of(settings.clone()).validate() {
            document.expected(key, &expected);
        }
        document.finish(settings)
    };
    checked().map_err(|error: DocumentError| ConfigError { problems: in_file(file, error.problems) })
}

/// Replaces single keys.
fn merge(settings: &mut Table, later: Table) {
    for (name, keys) in later {
        match (settings.get_mut(&name), keys) {
            (Some(Value::Table(known)), Value::Table(keys)) => known.extend(keys),
            (_, keys) => {
                settings.insert(name, keys);
            }
        }
    }
}

fn in_file(file: &Path, problems: Vec<document::Problem>) -> Vec<Problem> {
    let located =
        |document::Problem { line, key, message }| Problem { file: file.to_owned(), line, key, message };
    problems.into_iter().map(located).collect()
}

fn unknown_table(name: &str) -> String {
    let quoted: String = name.chars().take(40).collect();
    let near = Near::of(name, Config::TABLES.iter().map(|(table, _)| *table)).written("`[", "]`");
    let all: Vec<String> = Config::TABLES.iter().map(|(table, _)| format!("`[{table}]`")).collect();
    format!("unknown table `[{quoted}]`; {}", near.or(&format!("there are {}", all.join(", "))))
}

/// A key before the first table, or a table written as a value.
fn misplaced(name: &str) -> String {
    if Config::TABLES.iter().any(|(table, _)| *table == name) {
        return format!("`{name}` is a table, expected `[{name}]` and its keys on the lines after it");
    }
    match tables_with(name).next() {
        Some(table) => format!("`{name}` is outside any table; move it below `[{table}]`"),
        None => {
            let keys = Config::TABLES.iter().flat_map(|(_, keys)| keys.iter().copied());
            let near = Near::of(name, keys);
            let quoted: String = name.chars().take(40).collect();
            match near.first().and_then(|near| Some((near, tables_with(near).next()?))) {
                Some((near, table)) => {
                    format!("unknown key `{quoted}`; did you mean `{near}` below `[{table}]`?")
                }
                None => format!(
                    "unknown key `{quoted}`; rooflinectl config show prints every table with its keys"
                ),
            }
        }
    }
}

fn unknown_key(table: &str, keys: &[&str], name: &str) -> String {
    let quoted: String = name.chars().take(40).collect();
    if let Some(other) = tables_with(name).next() {
        return format!("unknown key `{table}.{quoted}`; it belongs below `[{other}]`");
    }
    let all: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    let otherwise = match all.as_slice() {
        [] => format!("`[{table}]` has no keys in this version"),
        all => format!("`[{table}]` has {}", all.join(", ")),
    };
    let near = Near::of(name, keys.iter().copied()).written("`", "`");
    format!("unknown key `{table}.{quoted}`; {}", near.or(&otherwise))
}

fn tables_with(key: &str) -> impl Iterator<Item = &'static str> {
    Config::TABLES.iter().filter(move |(_, keys)| keys.contains(&key)).map(|(table, _)| *table)
}

fn unreadable(path: &Path, source: &io::Error) -> ConfigError {
    let message = match source.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => format!("cannot be read: {source}"),
    };
    ConfigError { problems: vec![Problem { file: path.to_owned(), line: None, key: None, message }] }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let failed = |source: io::Error| unreadable(path, &source);
    // Nothing else than a plain file is ever waited for.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("it is not a regular file")));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(failed(io::Error::other("longer than 1 MiB; no configuration is")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        let message = "invalid TOML: not UTF-8 text".to_owned();
        ConfigError {
            problems: vec![Problem { file: path.to_owned(), line: Some(line), key: None, message }],
        }
    })
}
