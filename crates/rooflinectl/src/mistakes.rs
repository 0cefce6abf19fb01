//! What was probably meant by a command, an option or a value that there is not.

use std::num::{ParseFloatError, ParseIntError};

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Command, ValueEnum as _, builder::StyledStr};

use super::failure::Failure;
use super::{habits, input, meant, units};
use rooflined_core::hardware::{Kind, registry};
use rooflined_core::near::Near;
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;

/// Dashes of web pages and word processors, which are printed where two hyphens are meant.
const DASHES: [char; 7] =
    ['\u{2010}', '\u{2011}', '\u{2012}', '\u{2013}', '\u{2014}', '\u{2015}', '\u{2212}'];

/// The option that a command line was pasted with another dash in front of, where it has one.
fn pasted_dash(words: &[String]) -> Option<Failure> {
    words.iter().skip(1).take_while(|word| *word != "--").find_map(|word| {
        let name = word.strip_prefix(DASHES)?.trim_start_matches('-').trim_start_matches(DASHES);
        let hyphens = if name.chars().count() == 1 { "-" } else { "--" };
        let is_option = name.starts_with(|of: char| of.is_ascii_alphabetic());
        is_option.then(|| {
            Failure::usage(format!("{word} begins with a long dash, which is not a hyphen"))
                .with_hint(format!("write {hyphens}{name}"))
        })
    })
}

/// An option of another program with one hyphen, of which the parser takes the first letter for one of ours: `-hf`, `-ot`.
pub fn glued_option(words: &[String], root: &Command) -> Option<Failure> {
    let mut options = words.iter().skip(1).take_while(|word| *word != "--");
    let whole = options.find_map(|word| {
        let whole = word.split('=').next()?;
        let name = whole.strip_prefix('-').filter(|name| name.len() > 1 && name.starts_with(['h', 'o']))?;
        let mut known = ["options", "left out"].into_iter().filter_map(|table| habits::tip(table, "*", name));
        (FILES.contains(&name) || known.next().is_some()).then_some(whole)
    })?;
    let (path, command) = above(root, words, whole);
    let tip = tip_for_option(whole, &path, command, root, words)?;
    Some(Failure::usage(format!("unexpected argument '{whole}' found")).with_hint(tip))
}

/// A mistake that only the whole command line shows.
pub fn of_words(words: &[String]) -> Option<Failure> {
    let split = || meant::split_hardware(words).or_else(|| meant::split_list(words));
    pasted_dash(words).or_else(|| pasted_quotes(words)).or_else(split)
}

/// A word in quotes of a word processor, which a shell passes on.
fn pasted_quotes(words: &[String]) -> Option<Failure> {
    const QUOTES: [char; 8] = ['“', '”', '„', '‘', '’', '‚', '«', '»'];
    let word = words.iter().skip(1).take_while(|word| *word != "--").find(|word| word.starts_with(QUOTES))?;
    Some(
        Failure::usage(format!("{word} has quotes of a word processor around it"))
            .with_hint(format!("write {}", word.trim_matches(QUOTES))),
    )
}

/// The same mistake with what is near, as everywhere else in this program; `words` are the command line.
pub fn with_suggestions(mut error: Error, root: &Command, words: &[String]) -> Error {
    let typed = |kind| match error.get(kind) {
        Some(ContextValue::String(typed)) => Some(typed.clone()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidUtf8 => {
            let message =
                "a word of the command line is not UTF-8 text: rename the file, or give its directory\n";
            return Error::raw(ErrorKind::InvalidUtf8, message);
        }
        ErrorKind::InvalidSubcommand => {
            let Some(typed) = typed(ContextKind::InvalidSubcommand) else { return error };
            let (_, above) = above(root, words, &typed);
            if let Some(tip) = command_for(root, above.get_name(), &typed, words) {
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
            let names: Vec<String> = near.iter().chain(next.iter()).map(str::to_owned).collect();
            if names.is_empty() && above.get_name() != root.get_name() {
                let all: Vec<&str> = above.get_subcommands().map(Command::get_name).collect();
                let name = above.get_name();
                advise(
                    &mut error,
                    match all.is_empty() {
                        true => format!("rooflinectl help {name}, without another word"),
                        false => format!("{name} has {}", all.join(", ")),
                    },
                );
            } else if let Some(begin) =
                habits::tip("commands", "rooflinectl", "?").filter(|_| near.is_empty())
            {
                advise(&mut error, begin.to_owned());
            }
            suggest(&mut error, ContextKind::SuggestedSubcommand, names);
        }
        ErrorKind::InvalidValue => {
            let argument = typed(ContextKind::InvalidArg).unwrap_or_default();
            let Some(typed) = typed(ContextKind::InvalidValue).filter(|typed| !typed.is_empty()) else {
                if let Some(tip) = value_for(&argument) {
                    advise(&mut error, tip);
                }
                return error;
            };
            if argument == "[OP]"
                && let Some(model) = meant::model_or_file(&typed)
            {
                error.remove(ContextKind::ValidValue);
                let what = if model.ends_with(".gguf") {
                    "to run a model: rooflinectl compare"
                } else {
                    "to ask about a model: rooflinectl predict"
                };
                advise(&mut error, format!("operations are run here; {what} {model}"));
                return error;
            }
            if argument.starts_with("--output") && typed.contains('.') {
                let format = typed.rsplit('.').next().unwrap_or("json");
                let kind = if ["csv", "jsonl", "prom", "env"].contains(&format) { format } else { "json" };
                let (_, command) = above(root, words, &typed);
                let tip = match ["file", "textfile"].into_iter().find(|long| has_option(command, long)) {
                    Some(long) => format!("-o is the format; the file is --{long} {typed}"),
                    None => format!("-o is the format; to write a file: -o {kind} > {typed}"),
                };
                advise(&mut error, tip);
                return error;
            }
            let table = match argument.split(' ').next() {
                Some("--objective") => "objectives",
                Some("--output") => "outputs",
                Some("--phase") => "phases",
                Some("--task") => "tasks",
                Some("<SHELL>") => "shells",
                Some("[OP]") => "measured",
                _ => "",
            };
            if let Some(meant) = habits::tip(table, "*", &typed.to_ascii_lowercase()) {
                let is_value = !meant.contains(' ') || table == "objectives";
                let tip = if is_value { format!("did you mean {meant}?") } else { meant.to_owned() };
                advise(&mut error, tip);
                return error;
            }
            let Some(ContextValue::Strings(valid)) = error.get(ContextKind::ValidValue) else { return error };
            let near = Near::of(&typed, valid.iter().map(String::as_str));
            suggest(&mut error, ContextKind::SuggestedValue, near.iter().map(str::to_owned).collect());
        }
        ErrorKind::UnknownArgument => {
            let Some(typed) = typed(ContextKind::InvalidArg) else { return error };
            error.remove(ContextKind::SuggestedArg);
            error.remove(ContextKind::Suggested);
            let whole = whole_word(words, &typed);
            if let Some(option) = option_before(words, whole).filter(|_| is_negative(whole)) {
                let plain = whole.trim_start_matches('-');
                let message =
                    format!("invalid value '{whole}' for '{option}': it is negative; write {plain}\n");
                return Error::raw(ErrorKind::ValueValidation, message);
            }
            let (path, command) = above(root, words, whole);
            // The parser's own usage has options in it that are only spelt alike.
            error.insert(ContextKind::Usage, ContextValue::StyledStr(usage(root, &path)));
            error.insert(ContextKind::InvalidArg, ContextValue::String(whole.to_owned()));
            let tip = match whole.starts_with('-') {
                true => tip_for_option(whole, &path, command, root, words),
                false => tip_for_word(whole, &path, command, words),
            };
            if let Some(tip) = tip {
                advise(&mut error, tip);
            }
        }
        ErrorKind::ValueValidation if model_of_words(&error, words).is_some() => {
            let model = model_of_words(&error, words).unwrap_or_default();
            let message = format!("a model's name is one word: did you mean {model}?\n");
            return Error::raw(ErrorKind::ValueValidation, message);
        }
        // The parser of plain numbers speaks of digits.
        ErrorKind::ValueValidation if is_of_a_number(&error) => {
            let (Some(typed), Some(argument)) =
                (typed(ContextKind::InvalidValue), typed(ContextKind::InvalidArg))
            else {
                return error;
            };
            let what = match () {
                () if argument.starts_with("--pid") => "the number of a process, which pgrep NAME prints",
                () if is_of_a_whole_number(&error) => "a whole number",
                () => "a number",
            };
            let (path, _) = above(root, words, &typed);
            let tip = habits::tip("missing", &path, "*").filter(|_| !argument.starts_with("--"));
            let hint = tip.map_or_else(String::new, |tip| format!("hint: {tip}\n"));
            let message = format!("invalid value '{typed}' for '{argument}': expected {what}\n{hint}");
            return Error::raw(ErrorKind::ValueValidation, message);
        }
        ErrorKind::ValueValidation => {
            let (Some(typed), Some(argument)) =
                (typed(ContextKind::InvalidValue), typed(ContextKind::InvalidArg))
            else {
                return error;
            };
            let (path, _) = above(root, words, &typed);
            let port = typed.parse::<u16>().ok().filter(|_| argument.starts_with("[WHAT]"));
            if let ("explain" | "observe", Some(port)) = (path.as_str(), port) {
                let option = if path == "explain" { "port" } else { "from" };
                let message =
                    format!("a port follows an option\nhint: rooflinectl {path} --{option} {port}\n");
                return Error::raw(ErrorKind::ValueValidation, message);
            }
            let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            if let Some((what, next)) = why.split_once("; ").filter(|_| argument.starts_with("[WHAT]")) {
                // One of a list is named already.
                let who = if what.starts_with('"') { String::new() } else { format!("\"{typed}\" is ") };
                let message = format!("{who}{what}\nhint: {next}\n");
                return Error::raw(ErrorKind::ValueValidation, message);
            }
            let option = argument.split(' ').next().unwrap_or_default();
            if let Some(tip) = tip_for_value(&typed, option, &why) {
                advise(&mut error, tip);
            }
        }
        ErrorKind::ArgumentConflict => {
            let option = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
            let (Some(this), Some(prior)) = (typed(ContextKind::InvalidArg), prior(&error)) else {
                return error;
            };
            let [this, prior] =
                [option(&this), option(&prior)].map(|name| name.replace("[WHAT]", "a model or an operation"));
            let message = match this == prior {
                true => format!("{this} is given twice\nhint: give it once\n"),
                false => format!("{this} and {prior} are both given\nhint: leave one of the two out\n"),
            };
            return Error::raw(ErrorKind::ArgumentConflict, message);
        }
        ErrorKind::MissingSubcommand => {
            // The parser's list of them is 300 characters long.
            error.remove(ContextKind::ValidSubcommand);
            let tip = match value_after(words, "--ssh") {
                Some(host) => format!("name a command to run there: rooflinectl --ssh {host} status"),
                None => {
                    "name a command: rooflinectl status, for example; rooflinectl help lists all".to_owned()
                }
            };
            advise(&mut error, tip);
        }
        ErrorKind::MissingRequiredArgument
        | ErrorKind::WrongNumberOfValues
        | ErrorKind::TooFewValues
        | ErrorKind::TooManyValues => {
            let (path, _) = above(root, words, "");
            if let Some([.., tip]) = habits::rows("missing").find(|[command, ..]| path.starts_with(command)) {
                advise(&mut error, tip.to_owned());
            }
        }
        _ => {}
    }
    error
}

/// The argument that another one conflicts with.
fn prior(error: &Error) -> Option<String> {
    match error.get(ContextKind::PriorArg)? {
        ContextValue::String(prior) => Some(prior.clone()),
        ContextValue::Strings(prior) => prior.first().cloned(),
        _ => None,
    }
}

/// What to write instead of a value that its option does not take, where the refusal itself does not say.
fn tip_for_value(typed: &str, option: &str, why: &str) -> Option<String> {
    if why.contains("write ") || why.contains("leave ") {
        return None;
    }
    if typed.eq_ignore_ascii_case("max") && option.starts_with("--context") {
        return Some(
            "give a number; rooflinectl models show MODEL has the most that the model takes".to_owned(),
        );
    }
    if ["auto", "default", "none", "max", "all", "any"].contains(&typed.to_ascii_lowercase().as_str()) {
        return Some(format!("leave {option} out for its default, which --help states"));
    }
    match option {
        "--max-time-per-token" | "--max-time" => {
            units::rate_in(typed).map(|rate| format!("a rate is --min-tokens-per-s {rate}"))
        }
        "--min-tokens-per-s" | "--tokens-per-s" if input::seconds(typed).is_ok() => {
            let other = if option == "--min-tokens-per-s" { "--max-time-per-token" } else { "--time" };
            Some(format!("a time is {other} {typed}"))
        }
        "--prompt" => Some("it is the length of the prompt in tokens: --prompt 512".to_owned()),
        _ => None,
    }
}

/// The model of whose name the refused value is the first word.
fn model_of_words(error: &Error, words: &[String]) -> Option<&'static str> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidValue) else { return None };
    let at = words.iter().position(|word| word == typed)?;
    meant::model_of_words(&words[at..])
}

/// Whether the standard library's parser of numbers refused a value.
fn is_of_a_number(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    is_of_a_whole_number(error) || source.and_then(|why| why.downcast_ref::<ParseFloatError>()).is_some()
}

fn is_of_a_whole_number(error: &Error) -> bool {
    std::error::Error::source(error).and_then(|why| why.downcast_ref::<ParseIntError>()).is_some()
}

/// How the command of this name below the program's is used.
fn usage(root: &Command, path: &str) -> StyledStr {
    let mut root = root.clone();
    root.build();
    let mut command = &mut root;
    for name in path.split_whitespace() {
        command = match command.find_subcommand_mut(name) {
            Some(below) => below,
            None => return StyledStr::new(),
        };
    }
    command.render_usage()
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
fn command_for(root: &Command, above: &str, typed: &str, words: &[String]) -> Option<String> {
    let rest: Vec<&str> =
        words.iter().skip_while(|word| *word != typed).skip(1).map(String::as_str).collect();
    // `set mode 15W`
    if let Some(first) = rest.first().filter(|_| above == root.get_name())
        && root.find_subcommand(first).is_some_and(|first| first.find_subcommand(typed).is_some())
    {
        return Some(format!("rooflinectl {first} {typed} {}", rest[1..].join(" ")).trim_end().to_owned());
    }
    let value = rest.iter().copied().find(|word| !word.starts_with('-'));
    let shows = |what: &str| Some(format!("rooflinectl {what} show {typed}"));
    match (habits::tip("commands", above, typed), above) {
        (Some(tip), _) => {
            let is_mode = |value: &&str| {
                value.parse::<u32>().is_ok() || meant::option(value).is_some_and(|(kind, _)| kind == "mode")
            };
            Some(habits::filled(tip, above, value.filter(|value| !tip.contains("<MODE>") || is_mode(value))))
        }
        (None, "models") if models().get(typed).is_ok() => shows("models"),
        (None, "hardware") if super::hardware::load_registry().get(typed).is_some() => shows("hardware"),
        // Modes are named by their watts or in capitals.
        (None, "rooflinectl") => question_about(typed, &rest),
        (None, "mode")
            if typed.contains(|letter: char| letter.is_ascii_digit() || letter.is_ascii_uppercase()) =>
        {
            Some(format!("to enter a power mode: rooflinectl mode set {typed}"))
        }
        _ => None,
    }
}

/// What is probably asked about something that was named without a command: `rooflinectl qwen3-4b`.
fn question_about(typed: &str, rest: &[&str]) -> Option<String> {
    if let Some(model) = meant::model_or_file(typed) {
        return Some(format!("rooflinectl recommend {model}, or rooflinectl predict {model}"));
    }
    if let Ok(kind) = input::Kind::from_str(typed, true) {
        let example = if rest.is_empty() {
            input::example(kind).to_owned()
        } else {
            format!("{typed} {}", rest.join(" "))
        };
        return Some(format!("rooflinectl predict {example}"));
    }
    if typed.parse::<u16>().is_ok() {
        return Some(format!("for the server at this port: rooflinectl explain --port {typed}"));
    }
    Some(match meant::option(typed)? {
        ("hardware", _) => {
            format!("rooflinectl hardware show {typed}, or rooflinectl recommend MODEL --hardware {typed}")
        }
        ("mode", _) => format!("rooflinectl mode set {typed}"),
        ("format", _) => "rooflinectl formats".to_owned(),
        (_, written) => format!("rooflinectl recommend MODEL {written}"),
    })
}

/// An example of the value that an option needs, here as the parser names it: `--hardware <KEY>`.
fn value_for(argument: &str) -> Option<String> {
    let (option, name) = argument.split_once(' ')?;
    let name = name.trim_matches(['<', '>', '.', '[', ']']);
    let of = |wanted: &str| habits::tip("values", "*", wanted);
    let example = of(option.trim_start_matches('-')).or_else(|| of(name))?;
    Some(format!("for example: {option} {example}"))
}

/// The whole of a word of which the parser names the first letter: `-ngl` where it says `-n`.
fn whole_word<'a>(words: &'a [String], typed: &'a str) -> &'a str {
    let is_letter = typed.len() == 2 && typed.starts_with('-') && !typed.ends_with('-');
    let whole = words.iter().skip(1).find(|word| word.starts_with(typed));
    whole.filter(|_| is_letter).map_or(typed, |word| word.split('=').next().unwrap_or(word))
}

/// A number and its unit that were written with a space, as they have to be written: `15 W`.
fn number_before(words: &[String], unit: &str) -> Option<String> {
    let at = words.iter().position(|word| word == unit)?;
    let number = words.get(at.checked_sub(1)?).filter(|word| word.parse::<f64>().is_ok())?;
    Some(format!("write a number and its unit without a space: {number}{}", units::meant(unit)?))
}

/// The option that stands before a word.
fn option_before<'a>(words: &'a [String], word: &str) -> Option<&'a str> {
    let at = words.iter().position(|own| own == word)?;
    words.get(at.checked_sub(1)?).map(String::as_str).filter(|before| before.starts_with("--"))
}

fn is_negative(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|of: char| of.is_ascii_digit() || of == '.'))
}

/// What to do where a command that takes no hardware is asked about other hardware.
fn this_machine(path: &str) -> String {
    if path.starts_with("models") {
        return "leave it out: a model is the same everywhere; for one machine: rooflinectl predict MODEL --hardware BOARD".to_owned();
    }
    format!(
        "{path} is about this machine alone; on a board over ssh: rooflinectl --ssh HOST {path}; predict, recommend and sweep take --hardware"
    )
}

/// The model that a command line names by position, where another one is given with an option.
fn model_before<'a>(words: &'a [String], whole: &str) -> Option<&'a str> {
    let with_option = value_after(words, whole);
    let plain = words.windows(2).filter(|pair| !pair[0].starts_with('-')).map(|pair| pair[1].as_str());
    plain.filter(|word| Some(*word) != with_option).find(|word| meant::model_or_file(word).is_some())
}

/// Whether the command line names hardware whose CPU and GPU share one memory.
fn is_of_shared_memory(words: &[String]) -> bool {
    let named = value_after(words, "--hardware").and_then(|name| registry().get(name));
    named.is_some_and(|hardware| hardware.kind == Kind::Integrated)
}

/// The value that was given with an option.
fn value_after<'a>(words: &'a [String], whole: &str) -> Option<&'a str> {
    let mut words = words.iter().map(String::as_str).skip_while(|word| word.split('=').next() != Some(whole));
    let own = words.next()?.split_once('=').map(|(_, value)| value);
    own.or_else(|| words.next().filter(|next| !next.starts_with('-')))
}

/// The command line with an option that was written before the command which has it moved to its end.
fn moved(whole: &str, root: &Command, words: &[String]) -> Option<String> {
    let at = words.iter().position(|word| word.split('=').next() == Some(whole))?;
    let to = at + words[at..].iter().position(|word| root.find_subcommand(word).is_some())?;
    let has = has_option(root.find_subcommand(&words[to])?, whole.trim_start_matches('-'));
    has.then(|| format!("rooflinectl {} {}", words[to..].join(" "), words[at..to].join(" ")))
}

/// Options of other programs that name a model, a file or what else a command takes without an option.
const FILES: [&str; 15] = [
    "m", "model", "models", "mode", "hf", "hfr", "hf-repo", "repo", "onnx", "f", "file", "config", "shell",
    "input", "key",
];

/// What to type instead of a word that `command` does not take.
fn tip_for_word(typed: &str, path: &str, command: &Command, words: &[String]) -> Option<String> {
    if let Some(tip) = habits::tip("words", path, typed) {
        return Some(tip.to_owned());
    }
    match path {
        "formats" if typed.parse::<Recipe>().is_ok() => Some(format!(
            "formats takes no name; for a model in this format: rooflinectl models show MODEL --format {typed}"
        )),
        "board" => {
            let registry = super::hardware::load_registry();
            let known = registry.get(typed).map(|_| typed.to_owned());
            let key = known.or_else(|| registry.near(typed).first().map(str::to_owned));
            let key = key.as_deref().unwrap_or("BOARD");
            Some(format!("board shows this machine; for another: rooflinectl hardware show {key}"))
        }
        "servers" if typed.parse::<u16>().is_ok() => Some(format!(
            "it lists what was watched in the last hour; to watch this one: rooflinectl observe --from {typed}, to ask why it is slow: rooflinectl explain --port {typed}"
        )),
        "calibrate" if input::timeout(typed).is_ok() => Some(
            "--wait takes no time: it waits until the calibration has ended; to limit that: timeout 60s rooflinectl calibrate --wait"
                .to_owned(),
        ),
        "bundle" => Some(format!("the file is named with --file {typed}")),
        "models list" | "hardware list" => Some("give one word, or several joined by hyphens".to_owned()),
        "hardware show" | "models show" | "mode set" => Some(match meant::joined(path, words) {
            Some(name) => format!("a name is one word: rooflinectl {path} {name}"),
            None => match meant::option(typed).filter(|(long, _)| has_option(command, long)) {
                Some((_, written)) => format!("write {written}"),
                None => "it takes one name".to_owned(),
            },
        }),
        "run" if meant::model_or_file(typed).is_some() => Some(format!(
            "it starts llama-server: rooflinectl run -- llama-server -m MODEL.gguf; to predict: rooflinectl recommend {typed}"
        )),
        "hold" if input::timeout(typed).is_ok() => Some(format!(
            "a hold lasts as long as its command: rooflinectl hold --max-power 25W -- sleep {typed}"
        )),
        "hold" if meant::option(typed).is_some_and(|(kind, _)| kind == "mode") => {
            Some(format!("rooflinectl hold --mode {typed} -- COMMAND"))
        }
        _ if number_before(words, typed).is_some() => number_before(words, typed),
        _ if command.get_positionals().any(clap::Arg::is_last_set) => {
            Some(format!("put -- in front of the command: -- {typed}"))
        }
        _ => {
            let meant = meant::option(typed);
            let takes_none = command.get_positionals().next().is_none();
            match meant {
                Some((long, option)) if has_option(command, long) => Some(format!("did you mean {option}?")),
                Some(("hardware", _)) if has_option(command, "simulate") => {
                    let registry = super::hardware::load_registry();
                    let key = registry.get(typed).map_or(typed, |known| known.key.as_str()).to_owned();
                    Some(format!("did you mean --simulate {key}?"))
                }
                Some(("hardware", _)) if takes_none => Some(this_machine(path)),
                _ if typed.parse::<u16>().is_ok() && has_option(command, "listen") => {
                    Some(format!("did you mean --listen {typed}?"))
                }
                _ if input::timeout(typed).is_ok() && has_option(command, "interval") => {
                    let unit = if typed.ends_with(|of: char| of.is_ascii_digit()) { "s" } else { "" };
                    Some(format!("did you mean --interval {typed}{unit}?"))
                }
                _ if takes_none => Some(format!("leave it out: rooflinectl {path}")),
                _ if path == "completions" => Some("name one shell: rooflinectl completions bash".to_owned()),
                // The word that took its place may belong to an option.
                _ => words.iter().filter_map(|word| meant::option(word)).find_map(|(long, written)| {
                    let long = [long.to_owned(), format!("{long}s")].into_iter().find(|long| has_option(command, long))?;
                    let value = written.rsplit(' ').next()?;
                    Some(format!("write --{long} {value}"))
                }),
            }
        }
    }
}

fn has_option(command: &Command, long: &str) -> bool {
    command.get_arguments().any(|argument| !argument.is_hide_set() && argument.get_long() == Some(long))
}

/// What to type instead of an option that `command` does not have.
fn tip_for_option(
    whole: &str,
    path: &str,
    command: &Command,
    root: &Command,
    words: &[String],
) -> Option<String> {
    // Programs that others wrote in C++ or Python have capitals and underscores in their options.
    let plain = whole.trim_start_matches('-').to_ascii_lowercase().replace('_', "-");
    let name = plain.as_str();
    let value = value_after(words, whole);
    let filled = |tip: &str| Some(habits::filled(tip, path, value));
    // The options of every command are the program's.
    let has = |long: &str| has_option(command, long) || has_option(root, long);
    let mut tables = ["options of a command", "words"].into_iter();
    if let Some(tip) = tables.find_map(|table| habits::tip(table, command.get_name(), name)) {
        return filled(tip);
    }
    if is_negative(whole) {
        return Some(format!("no number here is negative: write {}", whole.trim_start_matches('-')));
    }
    if let Some(moved) = moved(whole, root, words) {
        return Some(format!("write it after the command: {moved}"));
    }
    match name {
        "json" | "csv" | "jsonl" | "prom" | "env" => return Some(format!("write -o {name}")),
        "format" if !has("formats") => {
            return Some("the format of the output is -o json, csv, prom or env".to_owned());
        }
        "all-modes" if has("modes") => return Some("did you mean --modes all?".to_owned()),
        "all-formats" if has("formats") => return Some("did you mean --formats all?".to_owned()),
        "decode" | "prefill" if has("phase") => return Some(format!("--phase {name}")),
        "m" | "model" | "models" | "hf" | "hf-repo"
            if has("engine") && model_before(words, whole).is_some() =>
        {
            let (first, second) = (model_before(words, whole)?, value.unwrap_or("MODEL"));
            return Some(format!(
                "one model is asked about at a time, so leave {first} or {second} out; for both: rooflinectl sweep {first},{second}"
            ));
        }
        _ if FILES.contains(&name) && command.get_positionals().any(|own| !own.is_last_set()) => {
            let plain = words.iter().skip(1).map(|word| match word.split_once('=') {
                Some((option, value)) if option == whole => value,
                _ if word == whole => {
                    if value.is_some() {
                        ""
                    } else {
                        "NAME"
                    }
                }
                _ => word,
            });
            let plain: Vec<&str> = plain.filter(|word| !word.is_empty()).collect();
            return Some(format!("write it without an option: rooflinectl {}", plain.join(" ")));
        }
        "v" if command.get_name() == root.get_name() => return Some("rooflinectl --version".to_owned()),
        "v" | "verbose" | "debug" => return Some("leave it out; -o json has every field".to_owned()),
        "quiet" | "silent" => {
            return Some("leave it out; -o env has the main figures alone".to_owned());
        }
        "color" | "colour" | "no-color" | "no-colour" | "plain" => {
            return Some("leave it out; --ascii prints plain text".to_owned());
        }
        _ => {}
    }
    if let Some(tip) =
        habits::tip("shared memory", "*", name).filter(|_| is_of_shared_memory(words) && has("hardware"))
    {
        return filled(tip);
    }
    let is_several = value.is_some_and(|value| value.contains(',') || value.eq_ignore_ascii_case("all"));
    let ours = |name: &str| {
        let meant: Vec<&str> = habits::tips("options", "*", name)
            .flat_map(|ours| ours.split(' '))
            .filter(|ours| has(ours))
            .collect();
        let several = meant.iter().find(|ours| is_several && ours.ends_with('s'));
        several.or(meant.first()).map(|ours| format!("did you mean --{ours}?"))
    };
    if let Some(tip) = ours(name) {
        return Some(tip);
    }
    if name == "hardware" {
        return Some(this_machine(path));
    }
    if let Some(tip) = habits::tip("left out", "*", name).filter(|_| has("hardware")) {
        return filled(tip);
    }
    // A value that was written as an option: `--fp16`, `--vllm`.
    for spelling in [name.to_owned(), name.replace('-', "_")] {
        let Some((long, _)) = meant::option(&spelling) else { continue };
        if let Some(long) = [long.to_owned(), format!("{long}s")].into_iter().find(|long| has(long)) {
            let of_network = has("precision") && words.iter().any(|word| word.ends_with(".onnx"));
            let long = if of_network && long.starts_with("format") { "precision" } else { &long };
            return Some(format!("write --{long} {spelling}"));
        }
    }
    if name.len() == 1 {
        let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
        let mut begin = shown.filter_map(clap::Arg::get_long).filter(|long| long.starts_with(name));
        return begin.next().filter(|_| begin.next().is_none()).map(|long| format!("did you mean --{long}?"));
    }
    let others = root.get_subcommands().filter(|other| has("hardware") && has_option(other, "hardware"));
    let others: Vec<&str> = others.filter(|other| has_option(other, name)).map(Command::get_name).collect();
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let near = Near::of(name, shown.filter_map(clap::Arg::get_long));
    match (near.first(), others.as_slice()) {
        (Some(long), _) => Some(format!("did you mean --{long}?")),
        (None, []) if ours_nearly(name, &ours).is_some() => ours_nearly(name, &ours),
        (None, []) => Some(match root.find_subcommand(name) {
            Some(other) => format!("rooflinectl {}", other.get_name()),
            None if has("hardware") => {
                format!("leave it out if it is an engine's own; rooflinectl {path} --help shows every option")
            }
            None => format!("rooflinectl {path} --help shows every option").replace("  ", " "),
        }),
        (None, others) => Some(format!("--{name} belongs to rooflinectl {}", others.join(", "))),
    }
}

/// What `ours` says of a name that is spelt nearly so elsewhere, or has a word in front: `--max-watt`, `--min-speed`.
fn ours_nearly(name: &str, ours: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let bare = ["max-", "min-", "n-", "num-"].iter().find_map(|front| name.strip_prefix(front));
    let known =
        habits::rows("options").flat_map(|[_, names, _]| names.split(' ')).filter(|known| known.len() > 3);
    bare.and_then(ours).or_else(|| ours(Near::of(name, known).first()?))
}

/// The command whose subcommands were searched for `typed`, and its name below the program's: `models list`.
fn above<'a>(root: &'a Command, words: &[String], typed: &str) -> (String, &'a Command) {
    let mut path = Vec::new();
    let mut command = root;
    for word in words.iter().take_while(|word| *word != typed) {
        if let Some(below) = command.find_subcommand(word) {
            command = below;
            path.push(below.get_name());
        }
    }
    (path.join(" "), command)
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
            ("rooflinectl serve", "tip: to serve a model: rooflinectl run"),
        ] {
            let text = said(line);
            assert!(text.contains(expected), "{line}: {text}");
        }
        for line in ["rooflinectl frobnicate", "rooflinectl status -o yaml"] {
            let text = said(line);
            assert!(!text.contains("similar"), "{text}");
        }
        assert!(!said("rooflinectl serve").contains("observe"));
    }
}
