//! `models list`, `show`, `sizes` and `inspect`: no daemon is asked.

use std::fmt::Write;
use std::path::Path;

use super::args::ModelsCommand;
use super::failure::{Exit, Failure};
use super::hardware::has_word;
use super::input::names_file;
use super::meant;
use super::network_inspect;
use super::output::{Format, Printer};
use super::table::Table;
use super::words::{self, printable};
use super::working::{Counted, Working};
use rooflined_advice::modelfile;
use rooflined_advice::networkfile;
use rooflined_api::{ModelAnswer, ModelEntry};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Bytes;
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;
use rooflined_models::transformer::Task;

pub fn run(printer: &Printer, command: &ModelsCommand) -> Result<Exit, Failure> {
    match command {
        ModelsCommand::List { word } => list(printer, word.as_deref())?,
        ModelsCommand::Show { key, format, kv_format } => show(printer, key, *format, *kv_format)?,
        ModelsCommand::Inspect { path, dimensions, .. } if networkfile::is_network(path) => {
            network_inspect::inspect(printer, path, &dimensions.dimensions()?)?;
        }
        ModelsCommand::Inspect { path, kv_format, .. } => inspect(printer, path, *kv_format)?,
    }
    Ok(Exit::Ok)
}

fn list(printer: &Printer, word: Option<&str>) -> Result<(), Failure> {
    let mut answer = rooflined_advice::models::list(models());
    if let Some(word) = word {
        // A name of a hub means one model; any other word, those that have it.
        let named = models().get(word).ok().map(|known| known.key.clone());
        let is_meant = |entry: &ModelEntry| {
            named.as_ref() == Some(&entry.key) || has_word([&entry.key, &entry.name], word)
        };
        answer.models.retain(is_meant);
        if answer.models.is_empty() {
            let near = models().near(word);
            return Err(Failure::usage(format!("no model has {word:?} in its name")).with_hint(near.hint(
                "rooflinectl models list shows all; for another model: rooflinectl models inspect FILE",
            )));
        }
    }
    if printer.format != Format::Human {
        return value(printer, &answer);
    }
    let mut table =
        Table::new(&["model", ">weights", ">per token", ">layers", ">cache/token", ">context", "figures"]);
    for ModelEntry {
        key,
        parameters,
        active_parameters,
        layers,
        kv_bytes_per_token,
        context_tokens,
        confidence,
        ..
    } in answer.models
    {
        table.row([
            key,
            #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
            count(parameters as f64),
            count(active_parameters),
            layers.to_string(),
            Bytes(kv_bytes_per_token).to_string(),
            context_tokens.map_or_else(|| "unknown".to_owned(), |tokens| tokens.to_string()),
            confidence,
        ]);
    }
    printer.text(&table.render())
}

fn show(
    printer: &Printer,
    key: &str,
    format: Option<Recipe>,
    kv_format: WeightFormat,
) -> Result<(), Failure> {
    let known = models().get(key).map_err(|error| {
        let hint = if Path::new(key).exists() {
            format!("for a file: rooflinectl models inspect {key}")
        } else if meant::ends_as_file(key) {
            format!("a file is inspected, and there is none at {key}: rooflinectl models inspect FILE")
        } else {
            error.hint("rooflinectl models list shows all")
        };
        Failure::usage(format!("there is no model {:?}", error.key)).with_hint(hint)
    })?;
    let model = known.model(format.unwrap_or_else(|| rooflined_advice::models::published_recipe(known)));
    print(printer, &rooflined_advice::models::of_known(known, &model, kv_format))
}

fn load(printer: &Printer, path: &Path) -> Result<modelfile::ModelFile, Failure> {
    if path == Path::new("-") {
        return Err(
            Failure::usage("a model is not read from standard input").with_hint("give the path of its file")
        );
    }
    if let Some(key) = path.to_str().filter(|_| !path.exists()).filter(|text| models().get(text).is_ok()) {
        let show = format!("the catalogue has this model: rooflinectl models show {key}");
        return Err(Failure::usage(format!("there is no file {key}")).with_hint(show));
    }
    if let Some(address) = path.to_str().filter(|path| path.contains("://")) {
        super::input::model(address)?;
    }
    if let Some(key) = path.to_str().filter(|key| !path.exists() && !names_file(key)) {
        let near = models().near(key);
        let known = near.first().unwrap_or("MODEL");
        let hint = format!(
            "for a known model: rooflinectl models show {known}; for another give the path of its file"
        );
        return Err(Failure::usage(format!("there is no file {key}")).with_hint(hint));
    }
    let _working = Working::new(printer, Counted::Nothing, "reading the model's files");
    modelfile::load(path).map_err(|error| Failure::of_file(&error, error.hint()))
}

fn inspect(printer: &Printer, path: &Path, kv_format: WeightFormat) -> Result<(), Failure> {
    let file = load(printer, path)?;
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    print(printer, &rooflined_advice::models::of_file(&file, whole.to_string_lossy().into_owned(), kv_format))
}

fn value(printer: &Printer, answer: &impl serde::Serialize) -> Result<(), Failure> {
    let value = serde_json::to_value(answer)
        .map_err(|error| Failure::failed(format!("cannot print the answer: {error}"), "report this"))?;
    printer.value("model", &value)
}

fn print(printer: &Printer, answer: &ModelAnswer) -> Result<(), Failure> {
    if printer.format == Format::Human { printer.text(&human(answer)) } else { value(printer, answer) }
}

/// Weights: 8.03 G.
fn count(weights: f64) -> String {
    let text = Bytes(weights).to_string();
    text.strip_suffix('B').unwrap_or(&text).trim_end().to_owned()
}

fn human(answer: &ModelAnswer) -> String {
    let mut text = format!("{}\n", printable(&answer.name));
    let mut table = Table::new(&["", ""]);
    let unknown = || "unknown".to_owned();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("architecture", printable(&answer.family));
    row("task", answer.task.clone());
    row("format", answer.format.as_deref().map_or_else(unknown, printable));
    row("weights", parameters(answer));
    row("bytes", Bytes(answer.bytes).to_string());
    row("bytes per token", per_token(answer));
    row("layers", layers(answer));
    let is_encoder = answer.task != Task::Generate.key();
    let head = if is_encoder {
        "none: it generates no text"
    } else if answer.tied_embeddings {
        "the embedding table, read in full"
    } else {
        "of its own; the embedding is not read"
    };
    row("head", head.to_owned());
    row("cache per token", cache(answer));
    if answer.state_bytes > 0.0 {
        row("state", format!("{} a sequence, whatever the context", Bytes(answer.state_bytes)));
    }
    row("context", answer.context_tokens.map_or_else(unknown, |tokens| format!("{tokens} tokens")));
    if let (Some(source), Some(confidence)) = (&answer.source, &answer.confidence) {
        row("figures", format!("{confidence} ({source})"));
    }
    text.push_str(&table.render());

    let mut table = Table::new(&["use", ">weights", ">bytes", ">read per token", ">bits per weight"]);
    for class in &answer.classes {
        table.row([
            class.class.clone(),
            #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
            count(class.parameters as f64),
            #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
            Bytes(class.bytes as f64).to_string(),
            if class.bytes_per_token > 0.0 {
                Bytes(class.bytes_per_token).to_string()
            } else {
                "no".to_owned()
            },
            class.bits_per_weight.map_or_else(unknown, words::bits),
        ]);
    }
    let _ = write!(text, "\n{}", table.render());
    let mut table = Table::new(&["read as", ">weights", ">bytes"]);
    for block in &answer.blocks {
        table.row([block.block.clone(), count(block.weights), Bytes(block.bytes).to_string()]);
    }
    let _ = write!(text, "\n{}", table.render());
    for warning in &answer.warnings {
        let _ = writeln!(text, "\nwarning: {}", printable(warning));
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn parameters(answer: &ModelAnswer) -> String {
    let all = format!("{} ({})", count(answer.parameters as f64), answer.parameters);
    match (answer.experts, answer.active_experts) {
        (Some(experts), Some(active)) => {
            format!("{all}, {} a token: {active} of {experts} experts", count(answer.active_parameters))
        }
        _ => all,
    }
}

fn per_token(answer: &ModelAnswer) -> String {
    let bits = answer
        .bits_per_weight
        .map_or_else(String::new, |bits| format!(", {} bits per weight", words::bits(bits)));
    format!("{} ({:.0}){bits}", Bytes(answer.bytes_per_token), answer.bytes_per_token)
}

fn layers(answer: &ModelAnswer) -> String {
    let layers = &answer.layers;
    let window = layers.window_tokens.map_or_else(String::new, |window| format!(" of {window}"));
    let kinds = [
        (layers.full_attention, "full attention".to_owned()),
        (layers.sliding_attention, format!("sliding window{window}")),
        (layers.latent_attention, "latent attention".to_owned()),
        (layers.linear, "linear".to_owned()),
    ];
    let kinds: Vec<_> =
        kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
    format!("{}: {}", layers.total, kinds.join(", "))
}

fn cache(answer: &ModelAnswer) -> String {
    let first = format!("{} in {}", Bytes(answer.kv_bytes_per_token), answer.kv_format);
    if answer.kv_bytes_per_token_long < answer.kv_bytes_per_token {
        return format!("{first}, {} once windows are full", Bytes(answer.kv_bytes_per_token_long));
    }
    first
}
