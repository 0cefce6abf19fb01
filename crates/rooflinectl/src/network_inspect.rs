//! `models inspect` of a vision network: an ONNX file.

use std::fmt::Write;
use std::path::Path;

use super::failure::Failure;
use super::network_args::load;
use super::output::{Format, Printer};
use super::table::Table;
use super::words::printable;
use rooflined_advice::network_inspect;
use rooflined_api::{NetworkAnswer, NetworkDla, NetworkTensor};
use rooflined_core::units::Bytes;
use rooflined_models::network::{Dimensions, dla};

/// Most inputs, outputs or operators on a line.
const MOST_LISTED: usize = 12;

pub fn inspect(printer: &Printer, path: &Path, dimensions: &Dimensions) -> Result<(), Failure> {
    let network = load(path, dimensions)?;
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let answer = network_inspect::of_file(&network, whole.to_string_lossy().into_owned());
    if printer.format == Format::Human {
        return printer.text(&human(&answer));
    }
    let value = serde_json::to_value(&answer)
        .map_err(|error| Failure::failed(format!("cannot print the answer: {error}"), "report this"))?;
    printer.value("network", &value)
}

fn human(answer: &NetworkAnswer) -> String {
    let writer = answer
        .writer
        .as_deref()
        .map_or_else(String::new, |writer| format!(", written by {}", printable(writer)));
    let mut text = format!("{} (ONNX, opset {}{writer})\n", printable(&answer.name), answer.opset);
    let mut table = Table::new(&["", ""]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("inputs", tensors(&answer.inputs));
    row("outputs", tensors(&answer.outputs));
    row("parameters", format!("{} ({})", count(answer.parameters), answer.parameters));
    row("weights", bytes(answer.weight_bytes));
    row("activations", activations(answer));
    row(
        "operations",
        answer.flops.map_or_else(|| "unknown".to_owned(), |flops| format!("{}FLOP", count(flops))),
    );
    row("nodes", format!("{} run, {} depend on constants alone", answer.nodes.len(), answer.folded_nodes));
    let operators =
        answer.operators.iter().map(|entry| format!("{} {}", entry.nodes, printable(&entry.operator)));
    row("operators", listed(operators.collect()));
    text.push_str(&table.render());

    let mut table = Table::new(&["work", ">nodes", ">FLOP", ">share", ">weights"]);
    for work in &answer.work {
        #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
        let share = work.flops.zip(answer.flops).map(|(part, all)| 100.0 * part as f64 / all.max(1) as f64);
        table.row([
            work.kind.clone(),
            work.nodes.to_string(),
            work.flops.map_or_else(|| "unknown".to_owned(), count),
            share.map_or_else(|| "unknown".to_owned(), |share| format!("{share:.1} %")),
            bytes(work.weight_bytes),
        ]);
    }
    let _ = write!(text, "\n{}", table.render());
    text.push_str(&split(&answer.dla));
    for warning in &answer.warnings {
        let _ = writeln!(text, "\nwarning: {}", printable(warning));
    }
    text
}

fn split(split: &NetworkDla) -> String {
    let layers = split.nodes + split.fallback_nodes;
    let mut text = format!("\nDLA: takes {} of {layers} layers in fp16 or int8", split.nodes);
    let crossings = match split.crossings {
        1 => "1 tensor crosses".to_owned(),
        several => format!("{several} tensors cross"),
    };
    let _ = writeln!(text, ", {crossings} to or from the GPU");
    let mut table = Table::new(&["on the GPU", ">layers", "because"]);
    for fallback in &split.fallbacks {
        table.row([printable(&fallback.operator), fallback.nodes.to_string(), fallback.reason.clone()]);
    }
    if !split.fallbacks.is_empty() {
        text.push_str(&table.render());
    }
    if split.loadables > dla::MAX_LOADABLES as u64 {
        let most = dla::MAX_LOADABLES;
        let _ = writeln!(text, "It falls into {} parts; a core holds {most}.", split.loadables);
    }
    let boards = split.boards.join(", ");
    let _ = writeln!(text, "Boards with a DLA: {boards}; up to TensorRT {}.", split.last_tensorrt);
    let _ = writeln!(
        text,
        "Its speed is not predicted: only rates of both cores together with other networks are published."
    );
    text
}

fn activations(answer: &NetworkAnswer) -> String {
    let Some(peak) = answer.activation_peak_bytes else { return "unknown".to_owned() };
    let half = answer.activation_peak_fp16_bytes.filter(|half| *half != peak);
    let half = half.map_or_else(String::new, |half| format!(", {} in fp16", bytes(half)));
    format!("{} at most at once{half}", bytes(peak))
}

fn tensors(tensors: &[NetworkTensor]) -> String {
    let one = |tensor: &NetworkTensor| {
        let shape = tensor.shape.as_ref().map_or_else(|| "?".to_owned(), |shape| format!("{shape:?}"));
        format!("{} {} {shape}", printable(&tensor.name), tensor.element)
    };
    listed(tensors.iter().map(one).collect())
}

/// Some items, and how many more there are.
fn listed(mut items: Vec<String>) -> String {
    if items.len() > MOST_LISTED {
        let more = items.len() - MOST_LISTED;
        items.truncate(MOST_LISTED);
        items.push(format!("and {more} more, which -o json lists"));
    }
    items.join(", ")
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn bytes(bytes: u64) -> String {
    Bytes(bytes as f64).to_string()
}

/// A number with its prefix: `8.2 G`.
fn count(number: u64) -> String {
    bytes(number).trim_end_matches('B').to_owned()
}
