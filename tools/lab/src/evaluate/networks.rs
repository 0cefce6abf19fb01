//! `evaluate networks`: latencies of vision networks, predicted by constants that did not see them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use crate::fit_networks::{NetworkRun, fit};
use crate::report::{Coverage, Errors, Figures, Section, as_f64, figures, print};
use crate::{in_words, rounded};
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
use rooflined_advice::networkfile;
use rooflined_core::hardware::{Hardware, registry};
use rooflined_core::names::NetworkEngine;
use rooflined_core::precision::Precision;
use rooflined_core::units::Seconds;
use rooflined_models::network::Dimensions;
use rooflined_predict::learning::networks::{MeasuredNetwork, NetworkLearning, NetworkPoint, NetworkReport};
use rooflined_predict::learning::report::Report;
use rooflined_predict::network::{Layers, NetworkCosts, fuse, network_costs};

const ENGINE: NetworkEngine = NetworkEngine::TensorRt;

/// A line of the table.
#[derive(Debug, Deserialize)]
struct Record {
    device: String,
    network: String,
    size: u32,
    latency_ms: f64,
    precision: String,
    batch: u64,
}

/// The layers in a file.
fn layers(path: &Path) -> Result<Layers, Failure> {
    if networkfile::is_network(path) {
        let network = networkfile::load(path, &Dimensions::default())
            .map_err(|error| Failure::failed(error.to_string(), error.hint()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        return Ok(Layers { name, ..fuse(&network) });
    }
    let wrong = |error: String| {
        let message = format!("{}: {error}", path.display());
        Failure::failed(message, "make it: rooflined-lab network-layers FILE.onnx > NAME.json")
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let layers: Layers = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    layers.check().map_err(|error| wrong(error.to_string()))?;
    Ok(layers)
}

/// `network-layers FILE.onnx`
pub fn print_layers(printer: &Printer, file: &Path) -> Result<(), Failure> {
    let mut network = layers(file)?;
    // Names of layers say nothing to a fit, and are most of the bytes.
    network.layers.iter_mut().for_each(|layer| layer.name.clear());
    let text = serde_json::to_string(&network)
        .map_err(|error| Failure::failed(format!("the layers cannot be written: {error}"), "report this"))?;
    printer.line(&text.replace("{\"name\":\"\",\"kind\"", "\n{\"name\":\"\",\"kind\""))
}

/// The same network for pictures of another size: rows and columns of every layer grow in proportion.
fn resized(layers: &Layers, size: u32) -> Layers {
    let grown = (f64::from(size) / f64::from(NetworkRun::side_of(layers).unwrap_or(size))).powi(2);
    let mut layers = layers.clone();
    layers.input_elements *= grown;
    layers.output_elements *= grown;
    layers.live_elements = layers.live_elements.map(|elements| elements * grown);
    for layer in &mut layers.layers {
        for value in
            [&mut layer.flops, &mut layer.reads, &mut layer.writes, &mut layer.exponentials, &mut layer.apart]
        {
            *value *= grown;
        }
    }
    layers
}

/// The rows of `file` whose board and network are known, and how many others it has.
fn read(file: &Path, networks: &Path) -> Result<(Vec<NetworkRun<'static>>, usize), Failure> {
    const WANTED: &str = "give a CSV file with the columns device, network, size, latency_ms, precision and batch, such as \
                          tests/data/published_vision.csv";
    let named = |what: String| Failure::failed(format!("{}: {what}", file.display()), WANTED);
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_path(file)
        .map_err(|error| named(format!("cannot be read: {}", in_words(&error))))?;
    let mut known: BTreeMap<String, Option<Layers>> = BTreeMap::new();
    let (mut runs, mut others) = (Vec::new(), 0);
    for record in reader.deserialize::<Record>() {
        let record = record.map_err(|error| named(in_words(&error)))?;
        if !known.contains_key(&record.network) {
            let path = ["json", "onnx"].map(|end| networks.join(format!("{}.{end}", record.network)));
            let found = path.iter().find(|path| path.exists()).map(|path| layers(path)).transpose()?;
            known.insert(record.network.clone(), found);
        }
        let layers = known.get(&record.network).and_then(Option::as_ref);
        let precision = Precision::ALL.iter().copied().find(|precision| precision.key() == record.precision);
        let is_time = record.latency_ms.is_finite() && record.latency_ms > 0.0;
        let (Some(layers), Some(hardware), Some(precision), true) =
            (layers, registry().get(&record.device), precision, is_time)
        else {
            others += 1;
            continue;
        };
        runs.push(NetworkRun {
            hardware,
            roofline: NetworkRun::roofline_of(hardware),
            layers: resized(layers, record.size),
            network: record.network,
            size: record.size,
            precision,
            batch: record.batch,
            time: Seconds(record.latency_ms / 1e3),
        });
    }
    if runs.is_empty() {
        return Err(named("has no row whose board and layers are known".to_owned()));
    }
    Ok((runs, others))
}

/// ln(predicted / measured) with the half-width that was stated as a ratio.
type Judged = (f64, f64);

/// Errors of the rows of each part by constants from all others; none where there is one part.
fn left_out(
    start: &NetworkCosts,
    runs: &[&NetworkRun<'_>],
    part: impl Fn(&NetworkRun<'_>) -> String,
) -> Vec<Judged> {
    let parts: BTreeSet<String> = runs.iter().map(|run| part(run)).collect();
    if parts.len() < 2 {
        return Vec::new();
    }
    let mut logs = Vec::new();
    for out in parts {
        let (judged, others): (Vec<_>, Vec<_>) = runs.iter().copied().partition(|run| part(run) == out);
        let costs = fit(start, &others);
        logs.extend(judged.iter().map(|run| run.judged(&costs)));
    }
    logs
}

/// A run as somebody reports it, by the shipped constants.
fn report(run: &NetworkRun<'_>, costs: &NetworkCosts) -> Option<(NetworkPoint, Arc<NetworkReport>)> {
    let predicted = run.predict(costs)?;
    let point = NetworkPoint::new(&run.layers, ENGINE, run.precision, run.batch, &run.roofline, &predicted);
    let measured = MeasuredNetwork {
        point: point.clone(),
        mode: None,
        time: run.time,
        predicted: predicted.latency.value,
        bound: predicted.roofline_time,
        calibrated: true,
    };
    Some((point, Arc::new(NetworkReport::vetted(Report::default(), &measured).ok()?)))
}

/// Errors of every row after those reports of its board at the size of the file that `taken` takes.
fn after(
    costs: &NetworkCosts,
    runs: &[&NetworkRun<'_>],
    judged: impl Fn(&NetworkRun<'_>) -> bool,
    taken: impl Fn(&NetworkRun<'_>, &NetworkRun<'_>) -> bool,
) -> Vec<Judged> {
    let mut logs = Vec::new();
    for run in runs.iter().filter(|run| judged(run)) {
        let of_board =
            runs.iter().filter(|other| other.hardware.key == run.hardware.key && other.is_own_size());
        let known: Vec<_> = of_board
            .filter(|other| taken(run, other))
            .filter_map(|other| Some(report(other, costs)?.1))
            .collect();
        let (Some((point, _)), Some(mut predicted)) = (report(run, costs), run.predict(costs)) else {
            continue;
        };
        if let Some(learning) = NetworkLearning::new(&known, &point) {
            predicted.correct(&learning.at(&point));
        }
        let latency = predicted.latency;
        logs.push(((latency.value / run.time).ln(), latency.high / latency.value - 1.0));
    }
    logs
}

/// Pairs of networks on one board at one size whose order is predicted, and all.
fn in_order(runs: &[&NetworkRun<'_>], costs: &NetworkCosts) -> [usize; 2] {
    let (mut right, mut pairs) = (0, 0);
    for (index, a) in runs.iter().enumerate() {
        for b in runs[..index].iter().filter(|b| b.hardware.key == a.hardware.key && b.size == a.size) {
            pairs += 1;
            let predicted = a.error(costs) + a.time.get().ln() > b.error(costs) + b.time.get().ln();
            right += usize::from((a.time > b.time) == predicted);
        }
    }
    [right, pairs]
}

/// How good a generation's constants are.
fn judge(name: &str, runs: &[&NetworkRun<'_>], costs: &NetworkCosts, fitted: &NetworkCosts) -> Vec<Figures> {
    let stated = |costs: &NetworkCosts| -> Vec<Judged> { runs.iter().map(|run| run.judged(costs)).collect() };
    let judged = [
        ("shipped constants", stated(costs)),
        ("a fit to them", stated(fitted)),
        ("families left out", left_out(costs, runs, |run| run.family().to_owned())),
        ("networks left out", left_out(costs, runs, |run| run.network.clone())),
        ("boards left out", left_out(costs, runs, |run| run.hardware.key.clone())),
        ("after others of a board", after(costs, runs, |_| true, |run, other| run.network != other.network)),
        (
            "other sizes after one",
            after(costs, runs, |run| !run.is_own_size(), |run, other| run.network == other.network),
        ),
    ];
    let row = |(what, logs): (&str, Vec<Judged>)| {
        let errors = Errors::of(logs.iter().map(|(log, _)| log.exp_m1().abs()))?;
        let mut row =
            figures([("generation", json!(name)), ("rows_of", json!(what)), ("rows", json!(errors.rows))]);
        row.extend(errors.figures(""));
        row.extend(Coverage::of_logs(logs.iter().map(|(log, half)| (*log, half.ln_1p())))?.figures());
        Some(row)
    };
    judged.into_iter().filter_map(row).collect()
}

/// `evaluate networks DATA.csv`
pub fn run(printer: &Printer, file: &Path, networks: &Path) -> Result<(), Failure> {
    let (runs, others) = read(file, networks)?;
    let mut by_generation: BTreeMap<&str, (Vec<&NetworkRun<'_>>, &NetworkCosts)> = BTreeMap::new();
    for run in &runs {
        let hardware: &Hardware = run.hardware;
        if let Some((name, costs)) = network_costs(ENGINE, Some(hardware), &run.roofline) {
            by_generation.entry(name).or_insert_with(|| (Vec::new(), costs)).0.push(run);
        }
    }
    let (mut rows, mut orders, mut constants) = (Vec::new(), Vec::new(), Vec::new());
    for (name, (runs, costs)) in by_generation {
        let fitted = fit(costs, &runs);
        rows.extend(judge(name, &runs, costs, &fitted));
        let [right, pairs] = in_order(&runs, costs);
        let generation = ("generation", json!(name));
        orders.push(figures([
            generation.clone(),
            ("pairs", json!(pairs)),
            ("in_order_ratio", json!(as_f64(right) / as_f64(pairs))),
        ]));
        let mut led_to = figures([generation]);
        led_to.extend(fitted.fitted().map(|(name, value)| (name.to_owned(), json!(rounded(value)))));
        constants.push(led_to);
    }
    let facts = figures([("rows_without_a_known_board_or_layers", json!(others))]);
    print(
        printer,
        &[
            Section { facts, ..Section::new("errors", format!("Constants of {}", ENGINE.key()), rows) },
            Section::new("orders", "Pairs of networks on one board".to_owned(), orders),
            Section::new("constants", "What the rows lead to".to_owned(), constants),
        ],
    )
}
