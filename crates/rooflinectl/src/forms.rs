//! Which forms of `--output` each command has. Those that it has not are refused before anything is done.

use clap::ValueEnum;

use super::args::{Command, ConfigCommand, ObservationsCommand};
use super::failure::Failure;
use super::output::Format;

/// A command that does not support every output format: its name, what it prints, the formats it supports besides `human`, and
/// which command to use for the others.
type Fixed = (&'static str, &'static str, &'static [Format], &'static str);

/// # Errors
/// A usage error that names the command, the form and what to do instead.
pub fn check(command: &Command, format: Format) -> Result<(), Failure> {
    let Some((command, prints, forms, instead)) = fixed(command) else { return Ok(()) };
    if format == Format::Human || forms.contains(&format) {
        return Ok(());
    }
    let message = format!("{command} prints {prints}, and nothing as {}", name(format));
    let forms: Vec<_> = forms.iter().map(|form| format!("-o {}", name(*form))).collect();
    let choice = if forms.is_empty() { String::new() } else { format!(" or choose {}", forms.join(" or ")) };
    let instead = if instead.is_empty() { String::new() } else { format!("; {instead}") };
    Err(Failure::usage(message).with_hint(format!("leave -o out{choice}{instead}")))
}

fn name(format: Format) -> String {
    format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn fixed(command: &Command) -> Option<Fixed> {
    use Format::{Csv, Env, Json, Jsonl, Prom};
    const WORDS: &[Format] = &[Json, Jsonl, Csv, Env];
    const LINES: &[Format] = &[Json, Jsonl];
    const NUMBERS: &str = "numbers for Prometheus: rooflinectl metrics";
    Some(match command {
        Command::Completions { .. } => ("completions", "a script for a shell", &[], ""),
        Command::Man { .. } => ("man", "a manual page", &[], ""),
        Command::Demo(_) => ("demo", "a tour for people", &[], ""),
        Command::Hold(_) => {
            ("hold", "the output of the command it runs", &[], "active holds: rooflinectl holds -o json")
        }
        Command::Metrics(_) => {
            ("metrics", "Prometheus text", &[Prom], "the same values: rooflinectl status -o json")
        }
        Command::Features(args) if args.file.is_some() => {
            let instead = "in this form: the same without --file";
            ("features --file", "labels for Node Feature Discovery", &[], instead)
        }
        Command::Features(_) => ("features", "words", WORDS, NUMBERS),
        Command::Doctor(_) => ("doctor", "words", WORDS, NUMBERS),
        Command::Observations(ObservationsCommand::Export(_)) => {
            let instead = "the same reports: rooflinectl observations list";
            ("observations export", "a table as CSV", &[Csv], instead)
        }
        Command::Config(ConfigCommand::Check { .. }) => {
            ("config check", "words", WORDS, "the exit code is 1 if something is wrong")
        }
        Command::Predict(args) if args.requests.is_some() => {
            let instead = "a table of many predictions: rooflinectl sweep -o csv";
            ("predict --requests", "one JSON object a line", LINES, instead)
        }
        Command::Watch(args) if args.events => ("watch --events", "a line for each event", LINES, ""),
        Command::Watch(_) => {
            let instead = "for programs: rooflinectl watch --events -o jsonl, or rooflinectl status -o json";
            ("watch", "a live view for people", &[], instead)
        }
        _ => return None,
    })
}
