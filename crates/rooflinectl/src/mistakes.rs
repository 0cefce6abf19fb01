//! What was probably meant by a command, an option or a value that there is not.

use std::num::ParseIntError;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Command, builder::StyledStr};

use rooflined_core::near::Near;

/// What other programs call a command below `above`, and what to type instead.
const COMMANDS: [(&str, &[&str], &str); 10] = [
    ("rooflinectl", &["serve", "start", "daemon"], "the daemon has it: rooflined serve"),
    ("rooflinectl", &["version"], "rooflinectl --version"),
    (
        "rooflinectl",
        &["bench", "benchmark"],
        "rooflinectl measure, or rooflinectl compare for predicted vs. measured",
    ),
    ("rooflinectl", &["top", "monitor", "stats"], "rooflinectl watch"),
    ("rooflinectl", &["info", "device", "gpu"], "rooflinectl board"),
    ("mode", &["enter", "switch", "use", "activate"], "rooflinectl mode set MODE"),
    ("mode", &["status", "current", "show"], "rooflinectl mode get"),
    ("config", &["print", "get", "cat", "dump"], "rooflinectl config show"),
    ("config", &["validate", "test", "verify"], "rooflinectl config check"),
    ("observations", &["delete", "remove", "clear", "rm"], "rooflinectl observations forget"),
];

/// What is typed where a command has nothing to work on.
const MISSING: [(&str, &str); 5] = [
    (
        "observe",
        "to watch a server: rooflinectl observe --from 8080; to report a rate: rooflinectl observe MODEL --engine ENGINE --tokens-per-s 40",
    ),
    ("hardware show", "rooflinectl hardware list shows every key"),
    ("models show", "rooflinectl models list shows every key"),
    ("mode confirm", "the number is the one that rooflinectl mode set printed"),
    ("hold", "for example: rooflinectl hold --max-power 15W -- COMMAND"),
];

/// What other programs call an option, and our options for it: the first that the command has is meant.
const OPTIONS: [(&[&str], &[&str]); 17] = [
    (
        &["quant", "quantization", "quantisation", "dtype", "weights", "precision"],
        &["format", "formats", "precision"],
    ),
    (&["gpu", "device", "board", "machine", "hw", "target", "on"], &["hardware"]),
    (&["host", "remote"], &["ssh"]),
    (&["power", "watts", "max-watts", "tdp", "power-budget", "budget"], &["max-power", "power-limit"]),
    (&["power-mode", "nvpmodel", "power-modes"], &["mode", "modes"]),
    (&["ctx", "ctx-size", "n-ctx", "context-length", "context-size", "max-model-len"], &["context-tokens"]),
    (&["batch-size", "bs", "parallel", "concurrency", "max-num-seqs", "np"], &["batch", "batches"]),
    (&["latency", "max-latency", "tpot"], &["max-time-per-token"]),
    (&["ttft"], &["max-time-to-first-token"]),
    (
        &["throughput", "tps", "tokens-per-second", "min-tps", "min-throughput"],
        &["min-tokens-per-s", "tokens-per-s"],
    ),
    (&["memory", "vram", "max-memory", "max-vram"], &["max-memory-bytes"]),
    (&["prompt-tokens", "prompt-length", "input-len", "isl", "input-tokens"], &["prompt"]),
    (&["output-len", "osl", "n-predict", "max-tokens", "new-tokens"], &["output-tokens"]),
    (&["kv-cache-dtype", "cache-type-k", "ctk", "kv-cache", "kv-quant", "kv-dtype"], &["kv-format"]),
    (&["ngl", "n-gpu-layers"], &["gpu-layers"]),
    (&["port", "listen", "bind", "address"], &["port", "listen"]),
    (&["goal", "optimize", "optimise", "for"], &["objective"]),
];

/// The same mistake with what is near, as everywhere else in this program; `words` are the command line.
pub fn with_suggestions(mut error: Error, root: &Command, words: &[String]) -> Error {
    let typed = |kind| match error.get(kind) {
        Some(ContextValue::String(typed)) => Some(typed.clone()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let Some(typed) = typed(ContextKind::InvalidSubcommand) else { return error };
            let above = above(root, words, &typed);
            if let Some(tip) = command_for(above.get_name(), &typed) {
                error.remove(ContextKind::SuggestedSubcommand);
                advise(&mut error, tip);
                return error;
            }
            let names: Vec<&str> =
                above.get_subcommands().filter(|below| !below.is_hide_set()).map(Command::get_name).collect();
            let near = Near::of(&typed, names.iter().copied());
            // `modle` is `mode` by its letters, and may well be `models`.
            let next =
                Near::of(&typed, names.into_iter().filter(|name| near.iter().all(|nearer| nearer != *name)));
            let names = near.iter().chain(next.iter()).map(str::to_owned).collect();
            suggest(&mut error, ContextKind::SuggestedSubcommand, names);
        }
        ErrorKind::InvalidValue => {
            let Some(typed) = typed(ContextKind::InvalidValue) else { return error };
            let Some(ContextValue::Strings(valid)) = error.get(ContextKind::ValidValue) else { return error };
            let near = Near::of(&typed, valid.iter().map(String::as_str));
            suggest(&mut error, ContextKind::SuggestedValue, near.iter().map(str::to_owned).collect());
        }
        ErrorKind::UnknownArgument => {
            let Some(typed) = typed(ContextKind::InvalidArg) else { return error };
            error.remove(ContextKind::SuggestedArg);
            error.remove(ContextKind::Suggested);
            if let Some(tip) = tip_for_argument(&typed, above(root, words, &typed)) {
                advise(&mut error, tip);
            }
        }
        // The parser of plain numbers speaks of digits.
        ErrorKind::ValueValidation if is_of_a_number(&error) => {
            let (Some(typed), Some(argument)) =
                (typed(ContextKind::InvalidValue), typed(ContextKind::InvalidArg))
            else {
                return error;
            };
            let message = format!("invalid value '{typed}' for '{argument}': expected a whole number\n");
            return Error::raw(ErrorKind::ValueValidation, message);
        }
        ErrorKind::MissingRequiredArgument => {
            let path: Vec<&str> =
                words.iter().skip(1).map(String::as_str).filter(|word| !word.starts_with('-')).collect();
            if let Some((_, tip)) = MISSING.iter().find(|(command, _)| path.join(" ").starts_with(command)) {
                advise(&mut error, (*tip).to_owned());
            }
        }
        _ => {}
    }
    error
}

/// Whether the standard library's parser of whole numbers refused a value.
fn is_of_a_number(error: &Error) -> bool {
    std::error::Error::source(error).and_then(|why| why.downcast_ref::<ParseIntError>()).is_some()
}

fn advise(error: &mut Error, tip: String) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
}

fn suggest(error: &mut Error, kind: ContextKind, names: Vec<String>) {
    if names.is_empty() {
        error.remove(kind);
    } else {
        error.insert(kind, ContextValue::Strings(names));
    }
}

/// What to type instead of `typed`, which is not a command of `above`.
fn command_for(above: &str, typed: &str) -> Option<String> {
    let known = COMMANDS.iter().find(|(of, names, _)| *of == above && names.contains(&typed));
    let shows = |what: &str| Some(format!("rooflinectl {what} show {typed}"));
    match (known, above) {
        (Some((_, _, tip)), _) => Some((*tip).to_owned()),
        (None, "models") if rooflined_models::registry::models().get(typed).is_ok() => shows("models"),
        (None, "hardware") if super::hardware::load_registry().get(typed).is_some() => shows("hardware"),
        // Modes are named by their watts or in capitals.
        (None, "mode")
            if typed.contains(|letter: char| letter.is_ascii_digit() || letter.is_ascii_uppercase()) =>
        {
            Some(format!("to enter a power mode: rooflinectl mode set {typed}"))
        }
        _ => None,
    }
}

/// What to type instead of an option or a word that `command` does not take.
fn tip_for_argument(typed: &str, command: &Command) -> Option<String> {
    let Some(name) = typed.strip_prefix('-').map(|rest| rest.trim_start_matches('-')) else {
        let takes_command = command.get_positionals().any(clap::Arg::is_last_set);
        return takes_command.then(|| format!("put -- in front of the command: -- {typed}"));
    };
    let longs =
        || command.get_arguments().filter(|argument| !argument.is_hide_set()).filter_map(clap::Arg::get_long);
    match name {
        "json" | "csv" | "jsonl" | "prom" | "env" => return Some(format!("rooflinectl … -o {name}")),
        "decode" | "prefill" if longs().any(|long| long == "phase") => {
            return Some(format!("--phase {name}"));
        }
        "model" | "m" if command.get_positionals().next().is_some() => {
            return Some("name the model without an option, such as qwen3-4b".to_owned());
        }
        "v" => return Some("rooflinectl --version".to_owned()),
        _ => {}
    }
    let meant = OPTIONS.iter().find(|(names, _)| names.contains(&name)).map_or(&[][..], |(_, ours)| ours);
    let ours = meant.iter().find(|ours| longs().any(|long| long == **ours));
    let near = Near::of(name, longs());
    let long = ours.copied().or_else(|| near.first())?;
    Some(format!("did you mean --{long}?"))
}

/// The command whose subcommands were searched for `typed`.
fn above<'a>(root: &'a Command, words: &[String], typed: &str) -> &'a Command {
    let before = words.iter().take_while(|word| *word != typed);
    before.fold(root, |command, word| command.find_subcommand(word).unwrap_or(command))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    fn said(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Cli::try_parse_from(&words).unwrap_err();
        with_suggestions(error, &Cli::command(), &words).to_string()
    }

    #[test]
    fn what_is_near_comes_first_and_what_is_not_is_not_suggested() {
        for (line, expected) in [
            ("rooflinectl help predct", "tip: a similar subcommand exists: 'predict'"),
            ("rooflinectl modle", "tip: some similar subcommands exist: 'mode', 'models'"),
            ("rooflinectl models lst", "tip: a similar subcommand exists: 'list'"),
            ("rooflinectl help mode lst", "tip: a similar subcommand exists: 'list'"),
            ("rooflinectl status -o cvs", "tip: a similar value exists: 'csv'"),
            ("rooflinectl predict llama-3.1-8b --phase decod", "tip: a similar value exists: 'decode'"),
            ("rooflinectl serve", "tip: the daemon has it: rooflined serve"),
        ] {
            let text = said(line);
            assert!(text.contains(expected), "{line}: {text}");
        }
        for line in ["rooflinectl frobnicate", "rooflinectl status -o yaml"] {
            let text = said(line);
            assert!(!text.contains("tip:"), "{text}");
        }
        assert!(!said("rooflinectl serve").contains("observe"));
    }
}
