//! What was probably meant by a command or a value that there is not.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Command, builder::StyledStr};

use roofline::near::Near;

/// Verbs of the daemon itself, which people look for here.
const OF_THE_DAEMON: [&str; 1] = ["serve"];

/// The same mistake with what is near, as everywhere else in this program; `words` are the command line.
pub fn with_suggestions(mut error: Error, root: &Command, words: &[String]) -> Error {
    let typed = |kind| match error.get(kind) {
        Some(ContextValue::String(typed)) => Some(typed.clone()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let Some(typed) = typed(ContextKind::InvalidSubcommand) else { return error };
            if OF_THE_DAEMON.contains(&typed.as_str()) {
                let tip = StyledStr::from(format!("the daemon has it: rooflined {typed}"));
                error.remove(ContextKind::SuggestedSubcommand);
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
                return error;
            }
            let above = above(root, words, &typed);
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
        _ => {}
    }
    error
}

fn suggest(error: &mut Error, kind: ContextKind, names: Vec<String>) {
    if names.is_empty() {
        error.remove(kind);
    } else {
        error.insert(kind, ContextValue::Strings(names));
    }
}

/// The command that `typed` was looked for below.
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
