//! Standard output: in which form an answer is printed, and how wide and plain it has to be.

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use serde_json::Value;

use super::failure::Failure;
use super::flatten;
use rooflined_client::Answer;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables and sentences
    Human,
    /// The daemon's own answer
    Json,
    /// One JSON object a line, for each row of the answer
    Jsonl,
    /// Comma-separated values with a header
    Csv,
    /// Prometheus text
    Prom,
    /// NAME='value' lines for a shell
    Env,
}

/// Size assumed where there is no terminal to ask.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

#[derive(Debug, Clone)]
pub struct Printer {
    /// Form of the answers.
    pub format: Format,
    /// Only ASCII may be printed.
    pub ascii: bool,
    /// Colours may be used.
    pub colour: bool,
    /// Columns of the terminal.
    pub columns: u16,
    /// Lines of the terminal.
    pub lines: u16,
}

impl Printer {
    /// What fits the terminal and the environment of this process.
    #[must_use]
    pub fn from_environment(format: Format, ascii: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
        let size = size.filter(|size| terminal && size.ws_col > 0).map(|size| (size.ws_col, size.ws_row));
        let from_environment =
            |name| std::env::var(name).ok().and_then(|text| text.parse().ok()).filter(|size| *size > 0);
        let (columns, lines) = size.unwrap_or(DEFAULT_SIZE);
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            format,
            ascii: ascii || !speaks_utf8(),
            colour: terminal && !no_colour,
            columns: from_environment("COLUMNS").unwrap_or(columns),
            lines: from_environment("LINES").unwrap_or(lines),
        }
    }

    /// Prints text for people.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        let plain;
        let text = if self.ascii {
            plain = to_ascii(text);
            &plain
        } else {
            text
        };
        self.bytes(text.as_bytes())
    }

    /// Prints one line for people.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn line(&self, text: &str) -> Result<(), Failure> {
        self.text(&format!("{text}\n"))
    }

    /// Prints an answer: as JSON untouched, for people by `human`, otherwise from its fields. `name` is put in front
    /// of the names of metrics.
    ///
    /// # Errors
    /// Standard output is closed or full, or the answer is not JSON.
    pub fn answer(
        &self,
        name: &str,
        answer: &Answer,
        human: impl FnOnce() -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Human => self.text(&human()?),
            Format::Json => self.json(&answer.body),
            _ => self.value(name, &answer.parse()?),
        }
    }

    /// Prints a value that is not an answer of the daemon.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn value(&self, name: &str, value: &Value) -> Result<(), Failure> {
        match self.format {
            Format::Human | Format::Json => self.json(value.to_string().as_bytes()),
            Format::Jsonl => self.bytes(flatten::json_lines(name, value).as_bytes()),
            Format::Csv => self.bytes(flatten::csv(name, value).as_bytes()),
            Format::Prom => self.bytes(flatten::prometheus(name, value).as_bytes()),
            Format::Env => self.bytes(flatten::environment(value).as_bytes()),
        }
    }

    /// Prints a JSON body as it is, and ends its line.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn json(&self, body: &[u8]) -> Result<(), Failure> {
        self.bytes(body)?;
        if body.ends_with(b"\n") { Ok(()) } else { self.bytes(b"\n") }
    }

    /// Prints bytes as they are.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        Ok(out.flush()?)
    }
}

/// Whether the locale says that text is UTF-8; the first variable that is set decides.
fn speaks_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_default()
        .to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The same text in ASCII, as long as it is.
#[must_use]
pub fn to_ascii(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            'µ' | 'μ' => 'u',
            '×' => 'x',
            '–' | '—' | '−' | '─' | '└' | '┴' => '-',
            '│' | '┤' | '├' => '|',
            '…' => '.',
            '±' => '~',
            '≤' => '<',
            '≥' => '>',
            '°' => ' ',
            '●' => 'o',
            '◇' => '+',
            '·' => ',',
            '\u{2801}'..='\u{28ff}' => '*',
            '\u{2800}' => ' ',
            c if c.is_ascii() => c,
            _ => '?',
        })
        .collect()
}
