//! `evaluate networks`: latencies of vision networks, predicted by constants that did not see them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::percent;
use crate::fit_networks::{NetworkRun, fit};
use crate::{in_words, rounded};
use rooflinectl::failure::Failure;
use rooflinectl::output::{Format, Printer};
use rooflinectl::table::Table;
use rooflined_advice::networkfile;
use rooflined_core::hardware::{Hardware, registry};
use rooflined_core::names::NetworkEngine;
use rooflined_core::precision::Precision;
use rooflined_core::units::Seconds;
use rooflined_models::network::Dimensions;
use rooflined_predict::learning::conformal::quantile;
use rooflined_predict::learning::networks::{MeasuredNetwork, NetworkLearning, NetworkPoint, NetworkReport};
use rooflined_predict::learning::report::Report;
use rooflined_predict::network::{FILES, Layers, NetworkCosts, fuse, network_costs};

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

/// Errors of rows, as parts of the measured time.
#[derive(Debug, Clone, Copy, Serialize)]
struct Errors {
    rows: usize,
    median: f64,
    p90: f64,
    /// Inside the interval that is stated.
    inside: f64,
}

/// How good a generation's constants are.
#[derive(Debug, Serialize)]
struct Generation {
    name: String,
    boards: BTreeSet<String>,
    networks: BTreeSet<String>,
    half_width: f64,
    shipped: Errors,
    /// By constants that were fitted to these rows.
    fitted: Errors,
    family_left_out: Option<Errors>,
    network_left_out: Errors,
    board_left_out: Option<Errors>,
    /// Pairs of networks on one board at one size whose order is predicted, and all.
    order: (usize, usize),
    /// What the rows lead to.
    constants: BTreeMap<&'static str, f64>,
    /// After runs of the board's other networks at the size of its file.
    after_others: Errors,
    /// Other sizes after a run of the network at one.
    after_own: Errors,
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

/// Of ln(predicted / measured), each with the half-width that was stated as a ratio.
fn errors(logs: &[(f64, f64)]) -> Errors {
    let mut sizes: Vec<f64> = logs.iter().map(|(log, _)| log.exp_m1().abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let inside = logs.iter().filter(|(log, half)| log.abs() <= half.ln_1p()).count();
    #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
    let share = inside as f64 / logs.len().max(1) as f64;
    Errors {
        rows: logs.len(),
        median: rounded(quantile(&sizes, 0.5)),
        p90: rounded(quantile(&sizes, 0.9)),
        inside: rounded(share),
    }
}

/// Errors of the rows of each part by constants from all others; `None` where there is one part.
fn left_out(
    start: &NetworkCosts,
    runs: &[&NetworkRun<'_>],
    part: impl Fn(&NetworkRun<'_>) -> String,
) -> Option<Errors> {
    let parts: BTreeSet<String> = runs.iter().map(|run| part(run)).collect();
    if parts.len() < 2 {
        return None;
    }
    let mut logs = Vec::new();
    for out in parts {
        let (judged, others): (Vec<_>, Vec<_>) = runs.iter().copied().partition(|run| part(run) == out);
        let costs = fit(start, &others);
        logs.extend(judged.iter().map(|run| run.judged(&costs)));
    }
    Some(errors(&logs))
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
) -> Errors {
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
    errors(&logs)
}

fn judge(name: &str, runs: &[&NetworkRun<'_>], costs: &NetworkCosts) -> Generation {
    let stated =
        |costs: &NetworkCosts| -> Vec<(f64, f64)> { runs.iter().map(|run| run.judged(costs)).collect() };
    let fitted = fit(costs, runs);
    let (mut right, mut pairs) = (0, 0);
    for (index, a) in runs.iter().enumerate() {
        for b in runs[..index].iter().filter(|b| b.hardware.key == a.hardware.key && b.size == a.size) {
            pairs += 1;
            let predicted = a.error(costs) + a.time.get().ln() > b.error(costs) + b.time.get().ln();
            right += usize::from((a.time > b.time) == predicted);
        }
    }
    let all = errors(&stated(costs));
    Generation {
        name: name.to_owned(),
        boards: runs.iter().map(|run| run.hardware.key.clone()).collect(),
        networks: runs.iter().map(|run| run.network.clone()).collect(),
        half_width: costs.half_width_ratio,
        shipped: all,
        fitted: errors(&stated(&fitted)),
        family_left_out: left_out(costs, runs, |run| run.family().to_owned()),
        network_left_out: left_out(costs, runs, |run| run.network.clone()).unwrap_or(all),
        board_left_out: left_out(costs, runs, |run| run.hardware.key.clone()),
        order: (right, pairs),
        constants: fitted.fitted().map(|(name, value)| (name, rounded(value))).into(),
        after_others: after(costs, runs, |_| true, |run, other| run.network != other.network),
        after_own: after(costs, runs, |run| !run.is_own_size(), |run, other| run.network == other.network),
    }
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
    let judged: Vec<Generation> =
        by_generation.into_iter().map(|(name, (runs, costs))| judge(name, &runs, costs)).collect();
    match printer.format {
        Format::Human => printer.text(&text(&judged, others)),
        _ => printer.value("evaluation", &serde_json::json!({ "generations": judged, "others": others })),
    }
}

fn text(judged: &[Generation], others: usize) -> String {
    let mut text = format!(
        "Constants of {}\n",
        FILES.iter().find(|(of, _)| *of == ENGINE).map_or("", |(of, _)| of.key())
    );
    let mut table =
        Table::new(&["generation", "rows of", ">rows", ">median", ">9 of 10", ">inside", "interval"]);
    for of in judged {
        let half = format!("±{}", percent(of.half_width));
        let rows = [
            ("shipped constants", Some(of.shipped)),
            ("a fit to them", Some(of.fitted)),
            ("families left out", of.family_left_out),
            ("networks left out", Some(of.network_left_out)),
            ("boards left out", of.board_left_out),
            ("after others of a board", Some(of.after_others)),
            ("other sizes after one", Some(of.after_own)),
        ];
        for (what, errors) in rows {
            let Some(errors) = errors else { continue };
            table.row([
                of.name.clone(),
                what.to_owned(),
                errors.rows.to_string(),
                percent(errors.median),
                percent(errors.p90),
                percent(errors.inside),
                half.clone(),
            ]);
        }
    }
    text.push_str(&table.render());
    for of in judged {
        let constants: Vec<String> =
            of.constants.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let _ = writeln!(
            text,
            "{}: {} of {} pairs in order; the rows lead to {}",
            of.name,
            of.order.0,
            of.order.1,
            constants.join(", ")
        );
    }
    if others > 0 {
        let _ = writeln!(text, "{others} rows have no known board or layers");
    }
    text
}
