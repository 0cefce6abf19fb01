//! What was probably meant by a name or a word that nothing here has, or that stands in the wrong place.

use std::path::Path;

use super::failure::Failure;
use super::habits;
use super::options::is_option;
use super::units;

use rooflined_core::hardware::registry;
use rooflined_core::near::Near;
use rooflined_models::foreign;
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;
use rooflined_predict::Engine;

/// Whether a name ends as model files do.
pub fn ends_as_file(text: &str) -> bool {
    const ENDINGS: [&str; 9] =
        [".gguf", ".safetensors", ".json", ".onnx", ".pt", ".pth", ".bin", ".engine", ".plan"];
    ENDINGS.iter().any(|ending| text.ends_with(ending))
}

/// Letters and digits alone, small.
fn bare(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// What was probably meant by a name that no format has, and other programs use.
pub fn format(name: &str) -> Option<String> {
    if name.contains(',') {
        return Some("give one; rooflinectl sweep --formats takes several".to_owned());
    }
    let bare = bare(name);
    let plain = bare.strip_prefix("ud").unwrap_or(&bare);
    if ["auto", "default", "none", "any", "all"].contains(&plain) {
        return Some(
            "leave the option out for the usual choice, or name one; rooflinectl formats lists all"
                .to_owned(),
        );
    }
    let ours = habits::tip("formats", "*", plain)?;
    let more = if plain.starts_with('q') && plain.ends_with('l') {
        "Such a mix differs from file to file: give the file itself for its exact size"
    } else {
        "rooflinectl formats shows all"
    };
    Some(format!("did you mean {ours}? {more}"))
}

/// The key of a known model and the format that a name of a file or of a hub also holds: `hf.co/Qwen/Qwen3-4B-GGUF:Q4_K_M`.
fn model(name: &str) -> Option<(&'static str, Option<String>)> {
    let name = name.split(['?', '#']).next().unwrap_or(name);
    let name = if name.contains("/resolve/") || name.contains("/blob/") { last(name) } else { name };
    let name = name.strip_suffix(".gguf").unwrap_or(name);
    let known = [name, last(name)].into_iter().find_map(|name| Some((name, models().get(name).ok()?)));
    let Some((name, known)) = known else {
        let (name, format) = name.rsplit_once('/')?;
        return Some((&models().get(name).ok()?.key, Some(format.parse::<Recipe>().ok()?.key().to_owned())));
    };
    Some((&known.key, models().stored_in(name).map(|format| format.key().to_owned())))
}

fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// What to type for a known model that `name` holds, with its format: `qwen3-4b --format q4_k_m`.
pub fn known_model(name: &str) -> Option<String> {
    let (key, format) = model(name)?;
    Some(format.map_or_else(|| key.to_owned(), |format| format!("{key} --format {format}")))
}

/// A known model, or a path as it was written, where `name` is one.
pub fn model_or_file(name: &str) -> Option<String> {
    known_model(name).or_else(|| ends_as_file(name).then(|| name.to_owned()))
}

/// The name that was written as several words at the end of a command line: `hardware show orin nano`.
pub fn joined(path: &str, words: &[String]) -> Option<String> {
    let last = path.rsplit(' ').next()?;
    let at = words.iter().rposition(|word| word == last)? + 1;
    let parts: Vec<&str> =
        words[at..].iter().map(String::as_str).take_while(|word| !word.starts_with('-')).collect();
    match path {
        "hardware show" => hardware_of_words(&parts),
        "models show" => model_of_words(&words[at..]).map(str::to_owned),
        _ => match (parts.as_slice(), parts.get(1).and_then(|unit| units::meant(unit))) {
            ([number, _], Some(unit)) => Some(format!("{number}{unit}")),
            _ => Some(parts.join("_")).filter(|name| is_mode(name)),
        },
    }
}

/// The hardware whose name these words are, with hyphens between.
fn hardware_of_words(words: &[&str]) -> Option<String> {
    let name = words.join("-");
    let known = registry().get(&name).map(|_| name.clone());
    known.or_else(|| registry().near(&name).first().map(str::to_owned))
}

/// A value of `--hardware` that was written as several words, as it has to be written: `--hardware orin nano`.
pub fn split_hardware(words: &[String]) -> Option<Failure> {
    let at = words.iter().position(|word| word == "--hardware")? + 1;
    let is_value = |word: &&String| !word.starts_with('-');
    let parts: Vec<&str> = words[at..].iter().take_while(is_value).map(String::as_str).collect();
    let name = (2..=parts.len())
        .rev()
        .map(|count| parts[..count].join("-"))
        .find(|name| registry().get(name).is_some())?;
    Some(Failure::usage("the name of hardware is one word").with_hint(format!("write --hardware {name}")))
}

/// A list whose values were written with spaces or other marks between, as it has to be written: `--modes 15W 25W`.
pub fn split_list(words: &[String]) -> Option<Failure> {
    let lists = [("--modes", "mode"), ("--formats", "format"), ("--engines", "engine")];
    let (at, kind) = words.iter().enumerate().find_map(|(at, word)| {
        let (_, kind) = lists.iter().find(|(list, _)| list == word)?;
        Some((at, *kind))
    })?;
    let is_value = |word: &&str| option(word.trim_end_matches(',')).is_some_and(|(own, _)| own == kind);
    let mut parts: Vec<&str> = words[at + 1..].iter().map(String::as_str).take_while(is_value).collect();
    let marked = words.get(at + 1).filter(|_| parts.is_empty()).map(|word| word.split([';', '|', '+', ' ']));
    parts.extend(marked.into_iter().flatten().filter(|part| !part.is_empty()));
    (parts.len() > 1 && parts.iter().all(is_value)).then(|| {
        let values: Vec<&str> = parts.iter().map(|part| part.trim_end_matches(',')).collect();
        Failure::usage(format!("the values of {} go with commas, without spaces", words[at]))
            .with_hint(format!("write {} {}", words[at], values.join(",")))
    })
}

/// What to type instead of a name that is neither an operation nor a model.
pub fn instead(name: &str, near: &Near) -> String {
    const ALL: &str =
        "rooflinectl models list shows all models; for another one, save its config.json and give its path";
    if name.is_empty() {
        return "it is empty: name a model such as qwen3-4b; a variable of the shell may be unset".to_owned();
    }
    let (bare, parts) = (bare(name), name.split(',').collect::<Vec<_>>());
    if parts.len() > 1 && parts.iter().all(|part| models().get(part).is_ok()) {
        return "several go to rooflinectl sweep, with commas".to_owned();
    }
    if let Some(model) = known_model(name) {
        return format!("did you mean {model}?");
    }
    let kind = match option(name) {
        Some(("hardware", written)) => Some(("hardware", written)),
        Some(("format", written)) => Some(("a weight format", written)),
        Some(("engine", written)) => Some(("an inference engine", written)),
        _ => None,
    };
    if let Some((kind, written)) = kind {
        return format!("it is {kind}: name a model first, such as qwen3-4b {written}");
    }
    if let Some(kind) = habits::tip("operations", "*", &bare).or_else(|| habits::tip("no model", "*", &bare))
    {
        return kind.to_owned();
    }
    if is_parameters(name) {
        return format!(
            "it is a size, not a name; rooflinectl models list {name} shows the models of that size"
        );
    }
    if let Some(kind) = foreign::of_published(name).or_else(|| foreign::of_name(name).copied()) {
        return format!("it is {}: {}", kind.what, kind.instead);
    }
    if let Some(sizes) = sizes(name) {
        let example = match sizes.len() {
            2 => format!("gemv {}", sizes.join(" ")),
            3 => format!("gemm {}", sizes.join(" ")),
            _ => format!("gemv {name} {name}"),
        };
        return format!("sizes follow an operation, with spaces: {example}");
    }
    near.or(ALL)
}

/// Whether a word counts parameters: `7b`, `1.5B`.
fn is_parameters(word: &str) -> bool {
    word.strip_suffix(['b', 'B'])
        .is_some_and(|number| number.parse::<f64>().is_ok_and(|billions| billions > 0.0))
}

/// What people write between two sizes.
pub const JOINTS: [char; 5] = ['x', 'X', '*', '×', ','];

/// The sizes of operations that a word consists of: `4096*14336`.
fn sizes(word: &str) -> Option<Vec<&str>> {
    let sizes: Vec<&str> = word.split(JOINTS).collect();
    sizes.iter().all(|size| size.parse::<u64>().is_ok()).then_some(sizes)
}

/// A known model whose name was written as several words, of which these are the first: `Llama 3.1 8B`.
pub fn model_of_words(words: &[String]) -> Option<&'static str> {
    let count = words.iter().take_while(|word| !word.starts_with('-')).count();
    (2..=count).rev().find_map(|count| {
        let wanted = bare(&words[..count].concat());
        models().keys().find(|key| bare(key) == wanted)
    })
}

/// What to do about a path where nothing is.
pub fn instead_of_path(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kind = foreign::of_published(&name).as_ref().map(|kind| kind.instead);
    let kind = kind.or_else(|| foreign::of_name(&name).map(|kind| kind.instead));
    let more = match (known_model(&name), kind) {
        (Some(model), _) => format!("a known model needs no file: {model}"),
        (None, Some(instead)) => instead.to_owned(),
        (None, None) => "rooflinectl models list shows the models that need no file".to_owned(),
    };
    format!("check the path; {more}")
}

/// The option that a word is a value of, with it: `--hardware gb10`.
pub fn option(word: &str) -> Option<(&'static str, String)> {
    let option = if registry().get(word).is_some() {
        "hardware"
    } else if word.parse::<Recipe>().is_ok() {
        "format"
    } else if Engine::named(word).is_some() {
        "engine"
    } else if is_mode(word) {
        "mode"
    } else {
        return None;
    };
    Some((option, format!("--{option} {word}")))
}

/// What to write instead of a value that another option takes: `--engine q4_k_m`.
pub fn value_of_another(option: &str, value: &str) -> Option<String> {
    match self::option(value) {
        Some((other, written)) if other != option => {
            let kind = match other {
                "hardware" => "hardware",
                "format" => "a weight format",
                "engine" => "an inference engine",
                _ => "a power mode",
            };
            Some(format!("{value} is {kind}: write {written}"))
        }
        Some(_) => None,
        None => models()
            .get(value)
            .is_ok()
            .then(|| format!("{value} is a model, which is named without an option")),
    }
}

/// Whether power modes have names like this: `15W`, `MAXN_SUPER`.
fn is_mode(word: &str) -> bool {
    let upper = word.to_ascii_uppercase();
    upper.starts_with("MAXN") || upper.strip_suffix('W').is_some_and(|watts| watts.parse::<u32>().is_ok())
}

/// What to know about an engine that was named by a program which runs it: `--engine ollama`.
pub fn runner(words: &[String]) -> Option<String> {
    let values = words.iter().enumerate().filter_map(|(at, word)| match word.as_str() {
        "--engine" | "--engines" => words.get(at + 1).map(String::as_str),
        word => word.strip_prefix("--engine=").or_else(|| word.strip_prefix("--engines=")),
    });
    let mut names = values.flat_map(|value| value.split(','));
    names.find_map(|name| {
        let engine = habits::tip("runners", "*", &name.to_ascii_lowercase())?;
        Some(format!("{name} runs {engine}, so this is the answer for {engine}"))
    })
}

/// A word after a model, which takes none.
pub fn misplaced(word: &str) -> Failure {
    if word.starts_with(|of: char| of.is_ascii_digit() || of == '-') && !is_mode(word) {
        return Failure::usage(format!("a model takes no sizes, but {word:?} was given")).with_hint(
            "give it with its option, such as --context-tokens 4096 or --batch 8; several values go with commas: --batches 1,2,4",
        );
    }
    if models().get(word).is_ok() || word.ends_with(".gguf") {
        return Failure::usage(format!("{word:?} is a second model, and one is asked about at a time"))
            .with_hint(format!("to compare several, with commas: rooflinectl sweep MODEL,{word}"));
    }
    let failure = Failure::usage(format!("{word:?} is not expected after the model"));
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let name = name.trim_start_matches('/');
    if is_option(name) {
        let example = habits::tip("values", "*", name).unwrap_or_default();
        let value = if value.is_empty() { example } else { value };
        return failure.with_hint(format!("write --{name} {value}").trim_end());
    }
    match option(word) {
        Some((_, option)) => {
            failure.with_hint(format!("write {option}; several values of one option go with commas"))
        }
        None => failure.with_hint(match units::meant(word) {
            Some("") => "write the number of a rate without a unit: 20".to_owned(),
            Some(unit) => format!("write a number and its unit without a space: 15{unit}"),
            None => "every option begins with two hyphens; --help lists them".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hubs_and_files_are_taken_apart() {
        for (name, expected) in [
            ("hf.co/Qwen/Qwen3-4B-GGUF:Q4_K_M", "qwen3-4b --format q4_k_m"),
            (
                "https://huggingface.co/Qwen/Qwen3-4B-GGUF/resolve/main/Qwen3-4B-Q4_K_M.gguf",
                "qwen3-4b --format q4_k_m",
            ),
            ("Qwen3-4B-Q4_K_M", "qwen3-4b --format q4_k_m"),
            ("qwen3:4b-q8_0", "qwen3-4b --format q8_0"),
            ("qwen3-4b@q8_0", "qwen3-4b --format q8_0"),
            ("Qwen/Qwen3-4B-AWQ", "qwen3-4b --format awq_int4"),
            ("Qwen3-4B.gguf", "qwen3-4b"),
        ] {
            assert_eq!(known_model(name).as_deref(), Some(expected), "{name}");
        }
        assert_eq!(known_model("DoesNotExist-9B-Q4_K_M.gguf"), None);
        assert_eq!(known_model(""), None);
    }

    #[test]
    fn formats_have_other_names() {
        for (name, expected) in
            [("4-bit", "q4_k_m"), ("UD-Q4_K_XL", "give the file itself"), ("float16", "mean fp16?")]
        {
            assert!(format(name).is_some_and(|said| said.contains(expected)), "{name}: {:?}", format(name));
        }
        assert_eq!(format("q9_k"), None);
    }
}
