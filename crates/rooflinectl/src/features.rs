//! `features`: what this machine can do, as labels of a Kubernetes node.
//!
//! The text is that of a feature file of Node Feature Discovery's local source: a line `NAME=VALUE` for each label, names with a
//! domain of their own, numbers whole, so that a node affinity can ask for more than one (`Gt`).

use std::collections::BTreeMap;

use serde_json::json;

use super::Context;
use super::args::FeaturesArgs;
use super::failure::Failure;
use super::output::Format;
use super::textfile;
use rooflined_api::{BoardAnswer, CeilingAnswer, RooflineAnswer};

const DOMAIN: &str = "rooflined.github.io";
/// Longest value of a label.
const MAX_VALUE: usize = 63;

pub async fn run(context: &mut Context, args: &FeaturesArgs) -> Result<(), Failure> {
    let board: BoardAnswer = context.client.get("/v1/board").await?.parse()?;
    let roofline: RooflineAnswer = context.client.get("/v1/roofline").await?.parse()?;
    let labels = labels(&board, &roofline);
    let printer = &context.printer;
    match (&args.file, printer.format) {
        (Some(file), _) => textfile::replace(file, text(&labels).as_bytes()),
        (None, Format::Human) => printer.text(&text(&labels)),
        (None, _) => printer.value("features", &json!(labels)),
    }
}

fn text(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// What is unknown has no label.
fn labels(board: &BoardAnswer, roofline: &RooflineAnswer) -> BTreeMap<String, String> {
    let kind = board.accelerators.first().and_then(|first| first.get("kind")?.as_str());
    let memory = board.memory.get("total_bytes").and_then(serde_json::Value::as_f64);
    let mut all = vec![
        ("board".to_owned(), Some(board.key.clone())),
        ("simulated".to_owned(), Some(board.simulated.to_string())),
        ("accelerator".to_owned(), kind.map(ToOwned::to_owned)),
        ("power-mode".to_owned(), roofline.power_mode.clone()),
        ("memory-gib".to_owned(), memory.and_then(|bytes| round_down(bytes / f64::from(1 << 30)))),
        ("provenance".to_owned(), Some(roofline.bandwidth_bytes_per_s.provenance.clone())),
        ("bandwidth-gb-per-s".to_owned(), giga(&roofline.bandwidth_bytes_per_s)),
    ];
    let compute = roofline.compute_flops_per_s.iter();
    all.extend(compute.map(|(precision, ceiling)| (format!("{precision}-gops"), giga(ceiling))));
    all.into_iter()
        .filter_map(|(name, value)| Some((format!("{DOMAIN}/{name}"), label_value(&value?)?)))
        .collect()
}

/// Billions a second, of operations or bytes.
fn giga(ceiling: &CeilingAnswer) -> Option<String> {
    round_down(ceiling.value / 1e9)
}

/// Rounded down: a node promises no more than it has.
fn round_down(value: f64) -> Option<String> {
    (value.is_finite() && value >= 0.0).then(|| format!("{:.0}", value.floor()))
}

/// Letters, digits, `-`, `_` and `.`, the first and the last a letter or a digit; `None` where nothing is left.
fn label_value(text: &str) -> Option<String> {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let text: String = text.chars().map(allowed).take(MAX_VALUE).collect();
    let text = text.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_that_kubernetes_takes() {
        assert_eq!(label_value("MAXN_SUPER").as_deref(), Some("MAXN_SUPER"));
        assert_eq!(label_value("-15 W (µ)").as_deref(), Some("15-W"));
        assert_eq!(label_value("µ"), None);
        assert_eq!(label_value(&"x".repeat(70)).map(|value| value.len()), Some(MAX_VALUE));
        assert_eq!(round_down(34.9).as_deref(), Some("34"));
        assert_eq!((round_down(f64::NAN), round_down(-1.0)), (None, None));
    }
}
