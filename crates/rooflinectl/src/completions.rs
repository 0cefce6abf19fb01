//! `completions`: what a shell offers after TAB, made of the definition of the arguments.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::Shell;

use super::args::Cli;
use super::failure::Failure;
use super::output::Printer;
use rooflined_core::hardware::registry;
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_models::recipe::Mix;
use rooflined_models::registry::models;
use rooflined_predict::Engine;

const NAME: &str = "rooflinectl";
/// What zsh is given for a place where both names and files may stand, and what completes them.
const ZSH_BOTH: ValueHint = ValueHint::EmailAddress;
const ZSH_BOTH_WRITTEN: &str = ":_email_addresses'";
const ZSH_TARGETS: &str = ":_rooflinectl_targets'";
const ZSH_HEAD: &str = "autoload -U is-at-least\n";
/// bash knows where a command that is run begins, and the generator does not.
const BASH_RUNNING: [&str; 2] = ["rooflinectl__subcmd__run)\n", "rooflinectl__subcmd__hold)\n"];
const BASH_COMMAND: &str = "            if [[ ${prev} == -- ]] ; then
                COMPREPLY=( $(compgen -c -- \"${cur}\") )
                return 0
            fi
";
/// bash splits --output=j at the sign, so that the word before the value is the sign.
const BASH_BEFORE: &str = "    prev=\"$3\"\n";
const BASH_SPLIT: &str =
    "    [[ $prev != '=' ]] || (( COMP_CWORD < 2 )) || prev=\"${COMP_WORDS[COMP_CWORD-2]}\"\n";
/// fish's argparse fails before the command where an option has no value yet.
const FISH_OR: &str = "    or return\n";
const FISH_PENDING: &str = "    or argparse -s (__fish_rooflinectl_global_optspecs) -- $cmd '' 2>/dev/null\n";

/// What asks the daemon for the modes of this board. Names are taken as far as no shell reads more in them than a name.
const ASK_MODES: &str = "rooflinectl mode list -o jsonl --timeout 1s 2>/dev/null";
const MODE_NAME: &str = r#""name":"\([A-Za-z0-9_.+-]*\)""#;

pub fn run(printer: &Printer, shell: Shell) -> Result<(), Failure> {
    printer.bytes(script(shell).as_bytes())
}

fn script(shell: Shell) -> String {
    let mut command = describe_values(Cli::command(), shell, "");
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut command, NAME, &mut bytes);
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    match shell {
        Shell::Bash => {
            text = text.replacen(BASH_BEFORE, &[BASH_BEFORE, BASH_SPLIT].concat(), 1);
            for running in BASH_RUNNING {
                text = text.replacen(running, &[running, BASH_COMMAND].concat(), 1);
            }
            let all = modes().join(" ");
            text = posix_modes(&all, "\"${COMP_LINE}\"", "echo \"${found:-$all}\"")
                + &text.replace(&all, "$(_rooflinectl_modes)");
        }
        Shell::Zsh => {
            text = text.replace(ZSH_BOTH_WRITTEN, ZSH_TARGETS);
            let all = modes().join(" ");
            text = text.replace(&format!(":({all})"), ":_rooflinectl_modes");
            text = text.replace(&format!(":({all} all)"), ":{compadd all; _rooflinectl_modes}");
            let own = posix_modes(&all, "\"${words[*]}\"", "compadd -- ${=${found:-$all}}");
            text = text.replacen(ZSH_HEAD, &[ZSH_HEAD, &zsh_targets(), &own].concat(), 1);
        }
        Shell::Fish => {
            text = text.replacen(FISH_OR, &[FISH_PENDING, FISH_OR].concat(), 1);
            // The generator writes no arguments without a name for fish.
            positionals(&command, &mut Vec::new(), &mut text);
            let all = modes();
            let described: Vec<_> = all.iter().map(|mode| format!("{mode}\\t''")).collect();
            text = text.replace(&described.join("\n"), "(__rooflinectl_modes)");
            text = text.replace(&all.join(" "), "(__rooflinectl_modes)");
            text.insert_str(0, &fish_modes(&all.join(" ")));
        }
        _ => {}
    }
    text
}

/// The same command with what its values are: names that are known, files, or nothing that a shell could know.
fn describe_values(command: Command, shell: Shell, above: &str) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| {
        let names = names(&arg, above, &name);
        match names {
            // zsh would offer the names alone, and a model may be a file too.
            Some(_) if is_target(&arg) && shell == Shell::Zsh => arg.value_hint(ZSH_BOTH),
            Some(names) => arg.value_parser(PossibleValuesParser::new(names)),
            None => hinted(arg),
        }
    });
    command.mut_subcommands(|below| describe_values(below, shell, &name))
}

/// An operation, or a model by key or path.
fn is_target(arg: &Arg) -> bool {
    ["kind", "what"].contains(&arg.get_id().as_str())
}

/// What completes an operation, a model's key or a file in zsh; `sweep` takes several with commas between.
fn zsh_targets() -> String {
    let names: Vec<_> = targets().collect();
    format!(
        "\n_rooflinectl_targets() {{\n    local -a targets\n    targets=({})\n    \
         [[ ${{words[(r)sweep]}} != sweep ]] || compset -P '*,'\n    \
         _alternative 'targets:operation or model:compadd -a targets' 'files:file:_files'\n}}\n",
        names.join(" ")
    )
}

/// A function of bash and zsh that offers the modes of this board, or those of all boards where another one is asked about or no daemon
/// answers: `line` is what was typed, and `offer` uses `found` and `all`.
fn posix_modes(all: &str, line: &str, offer: &str) -> String {
    format!(
        "\n_rooflinectl_modes() {{\n    local found='' all='{all}'\n    \
         [[ {line} == *--hardware* ]] || found=$({ASK_MODES} | sed -n 's/.*{MODE_NAME}.*/\\1/p' | tr '\\n' ' ')\n    {offer}\n}}\n"
    )
}

/// The same for fish.
fn fish_modes(all: &str) -> String {
    format!(
        "function __rooflinectl_modes\n    set -l found\n    if not string match -q -- '*--hardware*' (commandline)\n        \
         set found ({ASK_MODES} | sed -n 's/.*{MODE_NAME}.*/\\1/p')\n    end\n    test (count $found) -gt 0; or set found {all}\n    \
         printf '%s\\n' $found\nend\n"
    )
}

/// Operations and models.
fn targets() -> impl Iterator<Item = &'static str> {
    ["gemv", "gemm", "attention"].into_iter().chain(models().keys())
}

/// Power modes of all known hardware.
fn modes() -> Vec<&'static str> {
    let known = registry().keys().filter_map(|key| registry().get(key));
    let mut names: Vec<_> =
        known.flat_map(|hardware| hardware.modes.iter().map(|mode| mode.name.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Names that an argument of `above command` is one of.
fn names(arg: &Arg, above: &str, command: &str) -> Option<Vec<&'static str>> {
    let formats = WeightFormat::ALL.iter().map(|format| format.key());
    let id = arg.get_id().as_str();
    let names = match id {
        "engine" | "engines" => Engine::ALL.iter().map(|engine| engine.key()).collect(),
        "precision" => Precision::ALL.iter().map(|precision| precision.key()).collect(),
        // What is run or quantised here has one format; files are also mixes of them.
        "format" | "formats" if !["compare", "measure", "quant-error", "tiling"].contains(&command) => {
            let mixes = Mix::ALL.iter().map(|mix| mix.key());
            let mut all: Vec<_> = formats.chain(mixes).collect();
            all.sort_unstable();
            all.dedup();
            all
        }
        "format" | "formats" | "kv_format" | "kv_formats" => formats.collect(),
        "hardware" => registry().keys().collect(),
        "key" if above == "hardware" => registry().keys().collect(),
        "key" if above == "models" && command == "show" => models().keys().collect(),
        "mode" | "min_mode" => modes(),
        "modes" => modes().into_iter().chain(["all"]).collect(),
        _ if is_target(arg) => targets().collect(),
        _ => return None,
    };
    Some(names)
}

/// File names are quoted by bash only where they are called files, and offered by it for whatever is not said to be something else.
fn hinted(arg: Arg) -> Arg {
    let takes_value = arg.get_action().takes_values() && arg.get_possible_values().is_empty();
    if !takes_value || arg.is_positional() {
        return arg;
    }
    let named = arg.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
    let hint = match (named, arg.get_value_hint()) {
        ("DIR", _) => ValueHint::DirPath,
        ("HOST", _) => ValueHint::Hostname,
        (_, ValueHint::AnyPath) | ("FILE|JSON", _) => ValueHint::FilePath,
        _ => ValueHint::Other,
    };
    arg.value_hint(hint)
}

/// Appends what fish offers for the arguments without a name below `command`, which is reached by the words of `path`.
fn positionals(command: &Command, path: &mut Vec<String>, text: &mut String) {
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        path.push(below.get_name().to_owned());
        if let Some((first, others)) = path.split_first() {
            let mut seen = format!("__fish_{NAME}_using_subcommand {first}");
            for word in others {
                seen.push_str(&format!("; and __fish_seen_subcommand_from {word}"));
            }
            for arg in below.get_positionals() {
                let values = arg.get_possible_values();
                let names: Vec<_> = values.iter().map(clap::builder::PossibleValue::get_name).collect();
                if !names.is_empty() {
                    let only = if is_target(arg) { "" } else { " -f" };
                    text.push_str(&format!(
                        "complete -c {NAME} -n \"{seen}\"{only} -a \"{}\"\n",
                        names.join(" ")
                    ));
                }
            }
        }
        positionals(below, path, text);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_modes_are_offered_where_several_may_be_named() {
        for (shell, offered) in [
            (Shell::Bash, "\"$(_rooflinectl_modes) all\""),
            (Shell::Zsh, ":MODES:{compadd all; _rooflinectl_modes}'"),
            (Shell::Fish, "\"(__rooflinectl_modes)\nall\\t''\""),
        ] {
            assert!(script(shell).contains(offered), "{shell}");
        }
    }
}
