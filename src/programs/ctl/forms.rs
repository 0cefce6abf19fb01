//! Which forms of `--output` each command has. Those that it has not are refused before anything is done.

use clap::ValueEnum;

use super::args::{Command, ConfigCommand, ModelsCommand};
use super::failure::Failure;
use super::output::Format;

/// A command whose output has not every form.
struct Fixed {
    command: &'static str,
    /// What it prints.
    prints: &'static str,
    /// The forms that it has beside that for people.
    forms: &'static [Format],
    /// What has the other forms.
    instead: &'static str,
}

/// # Errors
/// A usage error that names the command, the form and what to do instead.
pub fn check(command: &Command, format: Format) -> Result<(), Failure> {
    let Some(Fixed { command, prints, forms, instead }) = fixed(command) else { return Ok(()) };
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
    let of = |command, prints, forms, instead| Some(Fixed { command, prints, forms, instead });
    match command {
        Command::Completions { .. } => of("completions", "a script for a shell", &[], ""),
        Command::Man { .. } => of("man", "a manual page", &[], ""),
        Command::Demo(_) => of("demo", "a tour for people", &[], ""),
        Command::Hold(_) => {
            of("hold", "what its command prints", &[], "holds in force: rooflinectl holds -o json")
        }
        Command::Metrics(_) => {
            of("metrics", "Prometheus text", &[Prom], "the same values: rooflinectl status -o json")
        }
        Command::Features(args) if args.file.is_some() => of(
            "features --file",
            "labels for Node Feature Discovery",
            &[],
            "in this form: the same without --file",
        ),
        Command::Features(_) => {
            of("features", "words", &[Json, Jsonl, Csv, Env], "numbers for Prometheus: rooflinectl metrics")
        }
        Command::Doctor(_) => {
            of("doctor", "words", &[Json, Jsonl, Csv, Env], "numbers for Prometheus: rooflinectl metrics")
        }
        Command::Config(ConfigCommand::Check { .. }) => of(
            "config check",
            "words",
            &[Json, Jsonl, Csv, Env],
            "the exit code is 1 where something is wrong",
        ),
        Command::Predict(args) if args.requests.is_some() => of(
            "predict --requests",
            "one JSON object a line",
            &[Json, Jsonl],
            "a table of many predictions: rooflinectl sweep -o csv",
        ),
        Command::Recommend(args) if args.watch => of(
            "recommend --watch",
            "a line for each change",
            &[Json, Jsonl],
            "once in any form: the same without --watch",
        ),
        Command::Watch(args) if args.events => {
            of("watch --events", "a line for each event", &[Json, Jsonl], "")
        }
        Command::Watch(_) => of(
            "watch",
            "a live view for people",
            &[],
            "for programs: rooflinectl watch --events -o jsonl, or rooflinectl status -o json",
        ),
        Command::Models(ModelsCommand::Contents { .. }) => {
            of("models contents", "one JSON object", &[Json, Jsonl], "")
        }
        _ => None,
    }
}
