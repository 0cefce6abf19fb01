//! Examples in the help and the manual page of each command. A test parses every one.

use clap::Command;

/// Command lines without the program's name, the most useful of each command first.
const EXAMPLES: &str = include_str!("examples.txt");
/// Most examples that one command shows; those of `mode` are of the commands below it.
const MOST: usize = 4;

/// A command with its examples at the end of its help, and so those below it.
pub fn add(command: Command) -> Command {
    add_below("", command)
}

fn add_below(above: &str, command: Command) -> Command {
    let name = format!("{above}{}", command.get_name());
    let prefix = format!("{name} ");
    command.after_help(of(&name)).mut_subcommands(|below| add_below(&prefix, below))
}

fn of(command: &str) -> String {
    let is_of =
        |line: &&str| line.strip_prefix(command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    let lines = EXAMPLES.lines().filter(is_of).take(MOST);
    lines.fold("Examples:".to_owned(), |text, line| text + "\n  rooflinectl " + line)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    /// Names of the commands below `command`, with those above them.
    fn names(command: &Command, above: &str) -> Vec<String> {
        let of = |below: &Command| {
            let name = format!("{above}{}", below.get_name());
            let mut found = names(below, &format!("{name} "));
            found.push(name);
            found
        };
        command.get_subcommands().filter(|below| !below.is_hide_set()).flat_map(of).collect()
    }

    fn find<'a>(command: &'a Command, name: &str) -> &'a Command {
        name.split(' ').fold(command, |command, word| command.find_subcommand(word).unwrap())
    }

    #[test]
    fn every_command_has_examples_in_its_help_which_it_understands() {
        let root = Cli::command();
        let mut shown = std::collections::BTreeSet::new();
        for name in names(&root, "") {
            let help = find(&root, &name).clone().render_long_help().to_string();
            let lines: Vec<&str> =
                help.lines().filter_map(|line| line.strip_prefix("  rooflinectl ")).collect();
            assert!(lines.len() > 1 && help.contains("Examples:"), "{name}: {help}");
            for line in lines {
                let starts = line == name || line.starts_with(&format!("{name} "));
                assert!(starts, "{name} shows {line}");
                let words = ["rooflinectl"].into_iter().chain(line.split(' '));
                let parsed = Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                shown.insert(line.to_owned());
            }
        }
        let hidden: Vec<_> = EXAMPLES.lines().filter(|line| !shown.contains(*line)).collect();
        assert!(hidden.is_empty(), "no help shows {hidden:?}");
    }
}
