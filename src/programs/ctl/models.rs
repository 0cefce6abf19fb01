//! `models list`, `show`, `sizes` and `inspect`: no daemon is asked.

use std::fmt::Write;
use std::path::Path;

use super::args::ModelsCommand;
use super::failure::{Exit, Failure};
use super::output::{Format, Printer};
use super::table::Table;
use super::words;
use super::working::{Counted, Working};
use answer::modelfile;
use roofline::precision::WeightFormat;
use roofline::units::Bytes;
use roofline::workload::recipe::Recipe;
use roofline::workload::registry::{self, SizeRow, models};
use wire::{ModelAnswer, ModelEntry};

pub fn run(printer: &Printer, command: &ModelsCommand) -> Result<Exit, Failure> {
    match command {
        ModelsCommand::List => list(printer)?,
        ModelsCommand::Show { key, format, kv_format } => show(printer, key, *format, *kv_format)?,
        ModelsCommand::Sizes => sizes(printer)?,
        ModelsCommand::Contents { path } => contents(printer, path)?,
        ModelsCommand::Inspect { path, kv_format } => inspect(printer, path, *kv_format)?,
    }
    Ok(Exit::Ok)
}

fn list(printer: &Printer) -> Result<(), Failure> {
    let answer = answer::models::list(models());
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

/// Published sizes beside computed ones. Rows with a cause are no work of a rule and count apart.
fn sizes(printer: &Printer) -> Result<(), Failure> {
    let rows = registry::sizes();
    let by_rule = || rows.iter().filter(|row| row.file.cause.is_none());
    let mut errors: Vec<f64> = by_rule().map(|row| row.error_ratio.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let median = errors.get(errors.len() / 2).copied();
    let worst = by_rule().map(SizeRow::beyond_rounding).fold(0.0, f64::max);
    if printer.format != Format::Human {
        let answer = serde_json::json!({
            "rows": rows,
            "by_rule": errors.len(),
            "median_error_ratio": median,
            "worst_error_beyond_rounding_ratio": worst,
        });
        return printer.value("sizes", &answer);
    }
    let mut table =
        Table::new(&["model", "mix", ">published GiB", ">computed GiB", ">error", "published by"]);
    for row in &rows {
        table.row([
            row.file.model.to_owned(),
            row.file.recipe.to_owned(),
            row.file.published_gib.to_owned(),
            format!("{:.3}", row.computed_gib),
            format!("{:+.2} %", row.error_ratio * 100.0),
            row.file
                .cause
                .map_or_else(|| row.file.source.to_owned(), |cause| format!("{}: {cause}", row.file.source)),
        ]);
    }
    printer.text(&format!(
        "{}\n{} files by the rules: median error {:.2} %, worst {:.2} % beyond the rounding of the published digits; {} \
         more with a cause of their own\n",
        table.render(),
        errors.len(),
        median.unwrap_or(0.0) * 100.0,
        worst * 100.0,
        rows.len() - errors.len()
    ))
}

fn show(printer: &Printer, key: &str, format: Recipe, kv_format: WeightFormat) -> Result<(), Failure> {
    let known = models().get(key).map_err(|error| {
        Failure::usage(format!("there is no model {:?}", error.key))
            .with_hint(error.near.hint("rooflinectl models list shows all"))
    })?;
    print(printer, &answer::models::of_known(known, &known.model(format), kv_format))
}

fn load(printer: &Printer, path: &Path) -> Result<modelfile::ModelFile, Failure> {
    let _working = Working::new(printer, Counted::Nothing, "reading the model's files");
    modelfile::load(path).map_err(|error| Failure::failed(error.to_string(), error.hint()))
}

fn inspect(printer: &Printer, path: &Path, kv_format: WeightFormat) -> Result<(), Failure> {
    let file = load(printer, path)?;
    let files = file.files.iter().map(|file| file.display().to_string()).collect();
    print(printer, &ModelAnswer { files, ..answer::models::of(&file.model, kv_format) })
}

/// What a request names the file by that is sent to a daemon which may not read it.
fn contents(printer: &Printer, path: &Path) -> Result<(), Failure> {
    let file = load(printer, path)?;
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let model = serde_json::json!({ "path": whole.to_string_lossy(), "contents": file.contents() });
    printer.text(&format!("{model}\n"))
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

/// Control characters of a file's own words do not reach the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn human(answer: &ModelAnswer) -> String {
    let mut text = format!("{}\n", clean(&answer.name));
    let mut table = Table::new(&["", ""]);
    let unknown = || "unknown".to_owned();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("architecture", clean(&answer.family));
    row("format", answer.format.as_deref().map_or_else(unknown, clean));
    row("weights", parameters(answer));
    row("bytes", Bytes(answer.bytes).to_string());
    row("bytes per token", per_token(answer));
    row("layers", layers(answer));
    let head = if answer.tied_embeddings {
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
        let _ = writeln!(text, "\nwarning: {}", clean(warning));
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
