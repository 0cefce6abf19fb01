//! Vision networks in ONNX files: `predict`, `recommend` and what they print.

use std::fmt::Write;
use std::path::Path;

use super::Context;
use super::args::{ObserveArgs, PredictArgs, RecommendArgs};
use super::failure::{Exit, Failure};
use super::network_args::refuse_of_models;
use super::network_log::{self, NetworkLog};
use super::table::Table;
use super::{input, options, show, words};
use rooflined_advice::Request;
use rooflined_api::{
    BatchRange, EstimateAnswer, NetworkCandidate, NetworkConstraints, NetworkEngine, NetworkPredictAnswer,
    NetworkPredictRequest, NetworkRecommendAnswer, NetworkRecommendRequest, ObservationRequest,
    OperatingPointRequest, PowerAnswer,
};
use rooflined_core::names::Objective;
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, Hertz};
use rooflined_predict::power::scope_words;

/// Layers that are shown by name.
const LONGEST: usize = 8;

/// `predict FILE.onnx`.
pub async fn predict(context: &mut Context, args: &PredictArgs, path: &Path) -> Result<(), Failure> {
    let subject = &args.subject;
    let others = [
        ("--format", subject.format.is_some()),
        ("--kv-format", subject.kv_format.is_some()),
        ("--engine-version", args.engine_version.is_some()),
    ];
    refuse_of_models(&subject.op, &subject.model, &others)?;
    let request = NetworkPredictRequest {
        hardware: args.machine.hardware.clone(),
        operating_point: args.machine.point_under(&args.limit),
        batch: args.subject.batch,
        threads: args.subject.run.threads,
        ..args.network.request(path, args.subject.engine)?
    };
    let answer = context.ask("/v1/networks/predict", request, Request::PredictNetwork).await?;
    context.printer.answer("network", &answer, || Ok(prediction(&answer.parse()?)))
}

/// `recommend FILE.onnx`.
pub async fn recommend(context: &mut Context, args: &RecommendArgs, path: &Path) -> Result<Exit, Failure> {
    let target = &args.target;
    let others = [
        ("--formats", !args.formats.is_empty()),
        ("--kv-formats", !args.kv_formats.is_empty()),
        ("--objective", target.objective != Objective::Latency),
        ("--max-time-per-token", target.max_time_per_token.is_some()),
        ("--max-time-to-first-token", args.max_time_to_first_token.is_some()),
        ("--min-tokens-per-s", target.min_tokens_per_s.is_some()),
        ("--max-memory", target.max_memory_bytes.is_some()),
        ("--min-free-memory", args.min_free_memory_bytes.is_some()),
        ("--max-quality-loss", args.max_quality_loss.is_some()),
        ("--run-time", args.run_time.is_some()),
    ];
    refuse_of_models(&args.op, &args.model, &others)?;
    let workload = NetworkPredictRequest {
        hardware: args.machine.hardware.clone(),
        operating_point: args.machine.point_under(&args.limit),
        threads: input::each_thread_count(&args.threads).and_then(|counts| counts.first().copied()),
        ..args.network.request(path, args.engine)?
    };
    let request = NetworkRecommendRequest {
        workload,
        constraints: NetworkConstraints {
            min_pictures_per_s: args.min_fps,
            max_latency_s: args.max_time,
            max_power_w: args.target.max_power,
        },
        streams: args.streams,
        precisions: None,
        batch: args.target.batch.map(|(min, max)| BatchRange { min, max }),
        power_modes: args.target.power_modes(),
        optimism: args.target.optimism,
    };
    let ask = |request| Request::RecommendNetwork(Box::new(request));
    let answer = context.ask("/v1/networks/recommend", request, ask).await?;
    let parsed: NetworkRecommendAnswer = answer.parse()?;
    context.printer.answer("network", &answer, || Ok(recommendation(&parsed)))?;
    Ok(if parsed.feasible { Exit::Ok } else { Exit::Infeasible })
}

/// `observe FILE.onnx`: what is reported.
///
/// # Errors
/// The file or the log, and where the two do not belong together.
pub fn observation(
    args: &ObserveArgs,
    path: &Path,
    operating_point: Option<OperatingPointRequest>,
) -> Result<ObservationRequest, Failure> {
    let subject = &args.subject;
    let others = [("--format", subject.format.is_some()), ("--kv-format", subject.kv_format.is_some())];
    refuse_of_models(&subject.op, &subject.model, &others)?;
    let mut network = NetworkPredictRequest {
        operating_point,
        batch: args.subject.batch,
        threads: args.subject.run.threads,
        ..args.network.request(path, args.subject.engine)?
    };
    let mut time_s = args.time;
    if let Some(log) = &args.log {
        let log = network_log::read(log)?;
        belongs(&log, path, &mut network)?;
        time_s = Some(log.time_s);
        network.threads = network.threads.or(log.threads);
        let of_log = log.precision.map(|precision| precision.key().to_owned());
        if let (Some(own), Some(of_log)) = (&network.precision, &of_log)
            && own != of_log
        {
            return Err(Failure::usage(format!("the log is of a run in {of_log}, and --precision is {own}"))
                .with_hint("leave --precision out"));
        }
        network.precision = network.precision.or(of_log);
        if log.engine == NetworkEngine::TensorRt && network.precision.is_none() {
            return Err(Failure::usage("the log does not tell the precision of an engine that was loaded")
                .with_hint("give it: --precision fp16"));
        }
        network.engine = Some(log.engine);
    }
    if time_s.is_none() {
        return Err(Failure::usage("the time of a network is given by --log or --time"));
    }
    Ok(ObservationRequest {
        network: Some(Box::new(network)),
        time_s,
        power_w: args.power,
        ..ObservationRequest::default()
    })
}

/// Holds what a log tells of its run against what is reported, and takes the batch from it.
fn belongs(log: &NetworkLog, path: &Path, network: &mut NetworkPredictRequest) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if let Some(file) = log.file.as_ref().filter(|file| **file != name) {
        return Err(Failure::usage(format!("the log is of {}, not of {name}", words::printable(file)))
            .with_hint("name the file that was timed"));
    }
    if network.engine.is_some_and(|engine| engine != log.engine) {
        return Err(
            Failure::usage(format!("the log is of {}", log.engine.key())).with_hint("leave --engine out")
        );
    }
    let inputs = network.network.as_ref().and_then(|network| network.get("inputs").cloned());
    let inputs: Vec<(String, Vec<u64>)> =
        serde_json::from_value(inputs.unwrap_or_default()).unwrap_or_default();
    for (input, sizes) in &log.shapes {
        let Some((_, read)) = inputs.iter().find(|(name, _)| name == input) else { continue };
        if sizes.len() != read.len() || sizes.iter().skip(1).ne(read.iter().skip(1)) {
            return Err(Failure::usage(format!(
                "the log ran {} with {sizes:?}, and the file is read with {read:?}",
                words::printable(input)
            ))
            .with_hint("give the sizes of the run: --size 640x640 --dim NAME=SIZE"));
        }
        let of_log = sizes.first().copied();
        if network.batch.is_some() && of_log.is_some() && network.batch != of_log {
            return Err(Failure::usage(format!(
                "the log is of a batch of {}, and --batch is {}",
                of_log.unwrap_or_default(),
                network.batch.unwrap_or_default()
            ))
            .with_hint("leave --batch out"));
        }
        network.batch = network.batch.or(of_log);
    }
    Ok(())
}

/// `74.1 /s`.
fn rate(of: &EstimateAnswer) -> String {
    words::estimate(of, words::rate)
}

fn watts(power: &PowerAnswer) -> String {
    let watts = words::estimate(&power.estimate(), |value| words::field("_w", &value.into()));
    format!("{watts}, {}", scope_words(&power.scope))
}

/// What a scope covers, as a sentence.
fn covers(scope: &str) -> &'static str {
    match scope {
        "copies" => "engine and copies",
        "frame" => "whole frame, before and after the network included",
        _ => "engine alone, without copies, resizing or boxes",
    }
}

fn prediction(answer: &NetworkPredictAnswer) -> String {
    let mut text = String::new();
    if answer.simulated {
        text.push_str(show::SIMULATED);
    }
    let at = answer.power_mode.as_ref().map_or_else(String::new, |mode| format!(", {mode}"));
    let on = answer.hardware.as_ref().map_or_else(String::new, |key| format!(" on {key}"));
    let _ = writeln!(
        text,
        "{}, {} {}, batch {}{on}{at}",
        words::printable(&answer.network),
        answer.engine,
        answer.precision,
        answer.batch
    );
    let mut table = Table::new(&["", ""]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("latency", words::estimate(&answer.latency_s, words::time));
    row("scope", format!("{} ({})", answer.scope, covers(&answer.scope)));
    if answer.around_s > 0.0 {
        row("  engine", words::estimate(&answer.engine_s, words::time));
        row("  around it", words::time(answer.around_s));
    }
    row("pictures", rate(&answer.pictures_per_s));
    row("engine at least", format!("{} (physical bound)", words::time(answer.roofline_time_s)));
    let shares = &answer.shares;
    row(
        "time by bound",
        format!(
            "compute {}, memory {}, launch {}",
            words::percent(shares.compute),
            words::percent(shares.memory),
            words::percent(shares.launch)
        ),
    );
    row("work", format!("{} in {} kernels", Flops(answer.flops), answer.layers.len()));
    row("traffic", Bytes(answer.bytes).to_string());
    let memory = &answer.memory_bytes;
    row(
        "memory",
        format!(
            "weights {}, activations {}, engine's own unknown",
            Bytes(memory.weights),
            memory.activations.map_or_else(|| "unknown".to_owned(), |bytes| Bytes(bytes).to_string())
        ),
    );
    if let Some(file) = answer.engine_file_bytes {
        row("engine file", format!("about {}", Bytes(file)));
    }
    row("power", answer.power_w.as_ref().map_or_else(|| "unknown".to_owned(), watts));
    if let Some(energy) = &answer.energy_j_per_picture {
        row("energy per picture", words::estimate(energy, |value| words::field("_j", &value.into())));
    }
    let reports = match answer.reports {
        0 => String::new(),
        1 => ", 1 report of a run".to_owned(),
        count => format!(", {count} reports of runs"),
    };
    let rests = match answer.rows {
        0 => "constants of other generations".to_owned(),
        rows => format!("constants of {} from {rows} measured latencies", answer.generation),
    };
    row("rests on", format!("{} ({rests}{reports})", answer.tier));
    text.push_str(&table.render());
    text.push_str(&longest(answer));
    for warning in &answer.warnings {
        let _ = writeln!(text, "  warning: {warning}");
    }
    text
}

/// The layers that take longest.
fn longest(answer: &NetworkPredictAnswer) -> String {
    let whole: f64 = answer.layers.iter().map(|layer| layer.time_s).sum();
    let mut layers: Vec<_> = answer.layers.iter().collect();
    layers.sort_by(|a, b| b.time_s.total_cmp(&a.time_s));
    let mut table = Table::new(&["layer", "kind", ">time", ">of it", "bound"]);
    for layer in layers.iter().take(LONGEST) {
        table.row([
            words::printable(&layer.name),
            layer.kind.clone(),
            words::time(layer.time_s),
            words::percent(layer.time_s / whole),
            layer.bound.clone(),
        ]);
    }
    format!("\n{}", table.render())
}

/// A candidate as a row.
fn cells(candidate: &NetworkCandidate) -> [String; 7] {
    let power = candidate.power_w.as_ref();
    let clock = candidate.clock_hz.map_or_else(|| "?".to_owned(), |clock| Hertz(clock).to_string());
    [
        candidate.precision.clone(),
        candidate.batch.to_string(),
        candidate.power_mode.clone().unwrap_or_else(|| "-".to_owned()),
        format!("{} at {clock}, {}", candidate.workers, BytesPerSecond(candidate.bandwidth_bytes_per_s)),
        words::estimate(&candidate.latency_s, words::time),
        words::rate(candidate.pictures_per_s.value),
        power.map_or_else(|| "unknown".to_owned(), |power| words::field("_w", &power.value.into())),
    ]
}

fn recommendation(answer: &NetworkRecommendAnswer) -> String {
    let mut text = String::new();
    let choice = &answer.choice;
    if answer.prediction.simulated {
        text.push_str(show::SIMULATED);
    }
    let mode = choice.power_mode.as_ref().map_or_else(String::new, |mode| format!(", mode {mode}"));
    let what = format!("{}, batch {}{mode}", choice.precision, choice.batch);
    if answer.feasible {
        let _ = writeln!(text, "use {what}");
    } else {
        let missed = choice
            .misses
            .iter()
            .map(|key| options::option_for(key).unwrap_or(key))
            .collect::<Vec<_>>()
            .join(", ");
        let _ = writeln!(text, "nothing meets the limits; the closest is {what}, which misses {missed}");
    }
    let mut table = Table::new(&["", ""]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("latency", words::estimate(&choice.latency_s, words::time));
    row("scope", format!("{} ({})", answer.prediction.scope, covers(&answer.prediction.scope)));
    row("pictures", format!("{} of all streams", rate(&choice.pictures_per_s)));
    row("power", choice.power_w.as_ref().map_or_else(|| "unknown".to_owned(), watts));
    let clock =
        choice.clock_hz.map_or_else(|| "an unknown clock".to_owned(), |clock| Hertz(clock).to_string());
    row(
        "clocks",
        format!(
            "{} workers at {clock}, memory {}",
            choice.workers,
            BytesPerSecond(choice.bandwidth_bytes_per_s)
        ),
    );
    if let Some(file) = answer.prediction.engine_file_bytes {
        row("engine file", format!("about {}", Bytes(file)));
    }
    text.push_str(&table.render());
    if let Some(command) = &answer.command {
        let _ = writeln!(text, "\n  {}", words::printable(command));
    }
    if !answer.alternatives.is_empty() {
        let mut table = Table::new(&[
            "precision",
            ">batch",
            "mode",
            "workers, memory",
            ">latency",
            ">pictures",
            ">power",
        ]);
        for candidate in &answer.alternatives {
            table.row(cells(candidate));
        }
        let _ = write!(text, "\nothers of {}\n{}", words::candidates(answer.considered), table.render());
    }
    for warning in &answer.warnings {
        let _ = writeln!(text, "  warning: {warning}");
    }
    text
}
