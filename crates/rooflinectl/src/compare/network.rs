//! `compare FILE.onnx`: ONNX Runtime runs the network on the CPU, by a short program in Python that prints [`Run`] as JSON.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;

use super::child::{Advice, Output, run_program};
use super::is_calibrated;
use super::rows::{Comparison, EngineRun, Program, Reference, Row};
use crate::Context;
use crate::args::CompareArgs;
use crate::failure::Failure;
use crate::input::EngineChoice;
use crate::measure::TIME_LIMIT;
use crate::network_args::NetworkArgs;
use crate::observe;
use crate::reference::memory_ratio;
use crate::words;
use crate::working::{Counted, Working};
use rooflined_api::{
    EstimateAnswer, MeasuredNetwork, MeasuredOp, MeasuredRow, NetworkKind, NetworkPredictAnswer,
    NetworkPredictRequest,
};
use rooflined_predict::Engine;
use rooflined_predict::learning::conformal::quantile;

const SCRIPT: &str = include_str!("onnxruntime.py");
const PYTHON: &str = "python3";
const DEFAULT_REPETITIONS: u64 = 10;
/// It runs again and again for so long at least.
const SECONDS: f64 = 1.0;
/// Part of all CPUs that other programs may have before runs are called disturbed.
const QUIET: f64 = 0.1;
const ADVICE: Advice = Advice {
    start: "install Python, or name one that has onnxruntime: --with venv/bin/python",
    less: "ask for less with --repetitions or a smaller --size, or allow more time with --time-limit",
};

/// What the program prints: times of the runs, or why there are none.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Run {
    version: String,
    times_s: Vec<f64>,
    /// Part of all CPUs that other programs had meanwhile; `None` where that is unknown.
    others_ratio: Option<f64>,
    /// A module of Python that is not there.
    missing: Option<String>,
    /// An input that nobody knows how to fill.
    unfed: Option<String>,
}

pub async fn compare(context: &mut Context, args: &CompareArgs, path: &Path) -> Result<Comparison, Failure> {
    if args.engine.is_some_and(|engine| engine != Engine::OnnxRuntime) {
        return Err(Failure::usage("an .onnx file is run by onnxruntime").with_hint(
            "leave --engine out; for TensorRT, run trtexec and give its log to rooflinectl observe",
        ));
    }
    let network = NetworkArgs { dimensions: args.dimensions.clone(), ..NetworkArgs::default() };
    let request = NetworkPredictRequest {
        threads: args.threads,
        ..network.request(path, Some(EngineChoice::Models(Engine::OnnxRuntime)))?
    };
    let mut client = context.client.another(TIME_LIMIT);
    if observe::has_gpu(&mut client, false).await? {
        return Err(Failure::failed(
            "compare runs ONNX Runtime on the CPU, and the figures of this machine are those of its GPU",
            "run trtexec, and give its log to rooflinectl observe FILE.onnx --log FILE",
        ));
    }
    let calibrated = is_calibrated(&mut client).await?;
    let predict = client.post("/v1/networks/predict", &request).await?;
    let prediction: NetworkPredictAnswer = predict.parse()?;
    let inputs = request.network.as_ref().and_then(|network| network.get("inputs"));
    let repetitions = args.repetitions.unwrap_or(DEFAULT_REPETITIONS);
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let asked = json!({
        "file": whole, "inputs": inputs, "threads": prediction.workers, "least": repetitions, "seconds": SECONDS,
    });
    let python = args.with.as_deref().unwrap_or(Path::new(PYTHON));
    let mut command = Command::new(python);
    command.arg("-c").arg(SCRIPT).arg(asked.to_string());
    let _working = Working::on_terminal(context.printer.ascii, Counted::Nothing, "ONNX Runtime runs");
    let mut reference = Reference::default();
    reference.before_ratio = memory_ratio(&client, &mut reference.reason).await;
    let name = python.display().to_string();
    let output = run_program(&name, command, args.time_limit, ADVICE).await?;
    reference.after_ratio = memory_ratio(&client, &mut reference.reason).await;
    let run = parse(&output, &name)?;
    let row = row(&prediction, &run, &reference, calibrated);
    let engine = Program {
        name: Engine::OnnxRuntime.key(),
        program: name,
        build_commit: None,
        build_number: None,
        version: Some(run.version),
        backends: Some("CPU".to_owned()),
    };
    Ok(Comparison {
        engine: Some(EngineRun { engine, reference }),
        simulated: prediction.simulated,
        serial: prediction.serial,
        ..Comparison::of(vec![row], calibrated)
    })
}

/// The runs in what was printed.
fn parse(output: &Output, python: &str) -> Result<Run, Failure> {
    let last = output.text.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    let run: Run = serde_json::from_slice(last).map_err(|error| {
        Failure::failed(
            format!(
                "what ONNX Runtime's program printed is not understood: {error}; {}",
                output.last_words()
            ),
            "run it again, and report this if it happens again",
        )
    })?;
    if let Some(module) = &run.missing {
        return Err(Failure::failed(
            format!("{python} has no module {module}"),
            "install it: python3 -m pip install onnxruntime numpy; or name a Python that has it: --with venv/bin/python",
        ));
    }
    if let Some(input) = &run.unfed {
        return Err(Failure::failed(
            format!("the input {input} cannot be filled with numbers here"),
            "run the network in a program of your own, and report its time: rooflinectl observe FILE.onnx --time TIME",
        ));
    }
    if run.times_s.is_empty() || !run.times_s.iter().all(|time| time.is_finite() && *time > 0.0) {
        return Err(Failure::failed("ONNX Runtime measured nothing", "ask for more --repetitions"));
    }
    Ok(run)
}

/// What other programs did to the runs; `None` where they did little.
fn disturbance(others: Option<f64>) -> Option<String> {
    let others = others.filter(|others| *others > QUIET)?;
    Some(format!("preempted: other programs had {} of the CPUs while it ran", words::percent(others)))
}

fn row(prediction: &NetworkPredictAnswer, run: &Run, reference: &Reference, calibrated: bool) -> Row {
    let mut sorted = run.times_s.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share| quantile(&sorted, share);
    let time = EstimateAnswer { value: at(0.5), low: at(0.05), high: at(0.95) };
    let duration: f64 = sorted.iter().sum();
    #[expect(clippy::cast_precision_loss, reason = "pictures of a short run")]
    let pictures = (prediction.batch * sorted.len() as u64) as f64;
    let predicted = prediction.latency_s;
    let error_ratio = (predicted.value - time.value) / time.value;
    let shares = &prediction.shares;
    let bound = if shares.memory > shares.compute { "memory" } else { "compute" };
    let limit = match bound {
        _ if shares.launch > shares.memory.max(shares.compute) => "launch",
        "memory" => "dram",
        _ => "compute",
    };
    let drift = reference.before_ratio.zip(reference.after_ratio);
    let measured = MeasuredRow {
        op: MeasuredOp::Network(MeasuredNetwork {
            kind: NetworkKind::Network,
            network: prediction.network.clone(),
            batch: prediction.batch,
        }),
        format: prediction.precision.clone(),
        predicted_time_s: predicted,
        predicted_at_calibration_s: predicted.value,
        measured_time_s: time,
        error_ratio,
        error_at_calibration_ratio: error_ratio,
        drift_ratio: drift.map(|(before, after)| f64::midpoint(before, after)),
        disturbed: disturbance(run.others_ratio),
        regime: "engine".to_owned(),
        runs: sorted.len() as u64,
        isa: "CPU".to_owned(),
        bound: bound.to_owned(),
        limit: limit.to_owned(),
        roofline_time_s: prediction.roofline_time_s,
        power: None,
    };
    Row {
        test: Some(prediction.network.clone()),
        threads: Some(prediction.workers),
        measured_pictures_per_s: Some(pictures / duration),
        measured_duration_s: Some(duration),
        ..Row::new(measured, calibrated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Run, Failure> {
        parse(&Output { text: text.as_bytes().to_vec(), log: "Traceback\nno memory".to_owned() }, "python3")
    }

    #[test]
    fn a_python_without_the_engine_says_how_to_install_it() {
        let missing = parsed("{\"missing\": \"onnxruntime\"}\n").unwrap_err();
        assert!(missing.to_string().contains("no module onnxruntime"), "{missing}");
        assert!(missing.hint().unwrap().contains("pip install onnxruntime"));
    }

    #[test]
    fn work_of_others_is_told() {
        assert_eq!(disturbance(None), None);
        assert_eq!(disturbance(Some(0.02)), None);
        assert!(disturbance(Some(0.48)).unwrap().contains(&words::percent(0.48)));
    }

    #[test]
    fn runs_that_are_none_are_refused() {
        assert!(parsed("a warning\n{\"version\": \"1.32\", \"times_s\": [0.25, 0.5]}\n").is_ok());
        for text in
            ["", "{\"times_s\": [0.2", "{\"times_s\": []}", "{\"times_s\": [0.0]}", "{\"unfed\": \"x\"}", "3"]
        {
            assert!(parsed(text).is_err(), "{text}");
        }
        assert!(parsed("{\"times_s\": [0.2").unwrap_err().to_string().contains("no memory"));
    }
}
