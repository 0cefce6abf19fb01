//! `man`: the manual pages, made of the definition of the arguments.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use clap::CommandFactory;
use clap_mangen::Man;

use super::args::Cli;
use super::failure::Failure;
use super::output::Printer;
use rooflined_core::near::Near;

/// Prints the page of a command, of the program where none is named; with `dir`, writes a page for each.
///
/// # Errors
/// There is no such command, or the directory cannot be written.
pub fn run(printer: &Printer, command: &[String], dir: Option<&Path>) -> Result<(), Failure> {
    let Some(dir) = dir else {
        let mut root = Cli::command();
        root.build();
        let below = command.strip_prefix(&[root.get_name().to_owned()][..]).unwrap_or(command);
        let of = below.iter().try_fold(&root, |above, word| above.find_subcommand(word));
        let of = of.ok_or_else(|| {
            // `man 1 predict` of other systems names a section.
            let names: Vec<&str> =
                command.iter().map(String::as_str).filter(|word| word.parse::<u8>().is_err()).collect();
            if names.len() < command.len() {
                return Failure::usage("pages have no sections here")
                    .with_hint(format!("rooflinectl man {}", names.join(" ")));
            }
            let near =
                Near::of(names.first().unwrap_or(&""), root.get_subcommands().map(clap::Command::get_name));
            let all = "rooflinectl --help lists all; to write a page for each: rooflinectl man --dir DIR";
            let hint =
                near.first().map_or(all.to_owned(), |near| format!("did you mean rooflinectl man {near}?"));
            Failure::usage(format!("there is no command {:?}", command.join(" "))).with_hint(hint)
        })?;
        let page = page(of).map_err(|error| {
            Failure::failed(format!("the page cannot be made: {error}"), "please report it as a bug")
        })?;
        return if is_shown(&page) { Ok(()) } else { printer.bytes(&page) };
    };
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let written = fs::create_dir_all(dir).and_then(|()| write(&root, dir));
    written.map_err(|error| {
        let message = format!("the pages cannot be written to {}: {error}", dir.display());
        Failure::failed(message, "name a directory that you may write to")
    })
}

/// The page of a command. What its help ends with are examples, or the exit codes of all.
fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    let text = String::from_utf8_lossy(&page).replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n.nf\n");
    Ok(text.replace(".SH EXTRA\nExit codes: ", ".SH \"EXIT STATUS\"\n").into_bytes())
}

/// The pages of a command and of all below it.
fn write(command: &clap::Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write(below, dir)?;
    }
    fs::write(dir.join(Man::new(command.clone()).get_filename()), page(command)?)
}

/// Whether a person at a terminal was shown the page: by `man`, where it is installed.
fn is_shown(page: &[u8]) -> bool {
    let shown = || {
        let mut man = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn().ok()?;
        man.stdin.take()?.write_all(page).ok()?;
        man.wait().ok()
    };
    std::io::stdout().is_terminal() && shown().is_some_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_help_text_ends_with_has_its_section() {
        let mut root = Cli::command();
        root.build();
        let text = |command: &clap::Command| String::from_utf8(page(command).unwrap()).unwrap();
        let recommend = text(root.find_subcommand("recommend").unwrap());
        assert!(recommend.contains(".SH EXAMPLES\n.nf\n  rooflinectl recommend "), "{recommend}");
        assert!(text(&root).contains(".SH \"EXIT STATUS\"\n0 ok, "));
    }
}
