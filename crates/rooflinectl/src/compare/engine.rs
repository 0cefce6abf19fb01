//! `compare FILE.gguf`: runs the engine's own `llama-bench` and compares it with the prediction.
//!
//! `llama-bench -o json` prints a list with one object for each test; [`Test`] has the fields that are read. Its log goes to
//! standard error.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;

use super::child::{Advice, Output, run_program};
use super::is_calibrated;
use super::rows::{Comparison, EngineRun, Program, Reference, Row};
use crate::Context;
use crate::args::CompareArgs;
use crate::failure::Failure;
use crate::input;
use crate::meant;
use crate::measure::TIME_LIMIT;
use crate::observe;
use crate::reference::memory_ratio;
use crate::working::{Counted, Working};
use rooflined_api::{
    EstimateAnswer, MeasuredModel, MeasuredOp, MeasuredRow, ModelKind, PredictAnswer, PredictRequest,
    Workload,
};
use rooflined_client::Client;
use rooflined_predict::Engine;
use rooflined_predict::calibration::median;

const PROGRAM: &str = "llama-bench";
const DEFAULT_PROMPT: u64 = 512;
const DEFAULT_OUTPUT: u64 = 128;
/// On a CPU, where one takes seconds.
const DEFAULT_REPETITIONS: u64 = 3;
/// On a GPU, where a prompt takes milliseconds and the clock rises during the first ones.
const DEFAULT_GPU_REPETITIONS: u64 = 10;
const ADVICE: Advice = Advice {
    start: "give --with a llama-bench for this machine",
    less: "ask for less with --prompt, --output-tokens or --repetitions, or allow more time with --time-limit",
};
/// Half of a 90 % interval in standard deviations.
const NINETY: f64 = 1.645;

/// One test, as the program prints it; older versions leave some fields out. Rates are in tokens a second.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Test {
    n_prompt: u64,
    n_gen: u64,
    /// Tokens in the cache before the test.
    n_depth: u64,
    avg_ts: Option<f64>,
    stddev_ts: Option<f64>,
    samples_ts: Vec<f64>,
    n_threads: Option<u32>,
    n_ubatch: Option<u64>,
    type_k: Option<String>,
    type_v: Option<String>,
    build_commit: Option<String>,
    build_number: Option<u64>,
    backends: Option<String>,
}

pub async fn compare(
    context: &mut Context,
    args: &CompareArgs,
    engine: Engine,
) -> Result<Comparison, Failure> {
    let file = named_file(args, engine)?;
    let program = find_program(args.with.as_deref(), std::env::var_os("PATH").as_deref())?;
    let _working = Working::on_terminal(context.printer.ascii, Counted::Nothing, "llama-bench runs");
    run(&context.client, args, &file, &program).await
}

/// The one file that the arguments name.
fn named_file(args: &CompareArgs, engine: Engine) -> Result<PathBuf, Failure> {
    if engine != Engine::LlamaCpp {
        return Err(Failure::usage(format!("{} is not run here", engine.key())).with_hint(
            "compare runs llama.cpp only; for other engines, watch a server with rooflinectl observe",
        ));
    }
    match args.what.as_slice() {
        [file] if Path::new(file).extension().is_some_and(|end| end == "gguf") => {
            let whole = std::path::absolute(file).unwrap_or_else(|_| file.into());
            // What is no model is said before the engine says it in its own way.
            rooflined_advice::modelfile::load(&whole)
                .map_err(|error| Failure::of_file(&error, error.hint()))?;
            Ok(whole)
        }
        [model, others @ ..] if meant::known_model(model).is_some_and(|_| !model.ends_with(".gguf")) => {
            let format =
                others.iter().filter_map(|word| meant::option(word)).find(|(kind, _)| *kind == "format");
            let format = format.map_or_else(String::new, |(_, written)| format!(" {written}"));
            Err(Failure::usage(format!("{model} is a model's name, and compare runs a file")).with_hint(format!(
                "give its file: rooflinectl compare model.gguf; to predict it without one: rooflinectl predict {model}{format}"
            )))
        }
        [first, ..] if meant::option(first).is_some_and(|(kind, _)| kind == "hardware") => {
            Err(Failure::usage(format!("{first} is hardware, and compare measures this machine alone"))
                .with_hint(format!(
                    "for other machines, ask about each: rooflinectl predict MODEL --hardware {first}"
                )))
        }
        words => {
            words.iter().try_for_each(|word| input::model(word).map(drop))?;
            Err(Failure::usage("llama.cpp runs one GGUF file").with_hint(
                "for example: rooflinectl compare model.gguf; a model without a file is predicted: rooflinectl predict qwen3-4b",
            ))
        }
    }
}

/// The program, where it is named or on the PATH.
fn find_program(with: Option<&Path>, path: Option<&std::ffi::OsStr>) -> Result<PathBuf, Failure> {
    let runs = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if let Some(with) = with {
        let named = if with.is_dir() { with.join(PROGRAM) } else { with.to_owned() };
        if runs(&named) {
            return Ok(named);
        }
        return Err(Failure::wrong_file(
            format!("{} is not an executable program", named.display()),
            "give --with the llama-bench of a built llama.cpp, or the directory that holds it",
        ));
    }
    let found = path
        .and_then(|path| std::env::split_paths(path).map(|dir| dir.join(PROGRAM)).find(|path| runs(path)));
    found.ok_or_else(|| {
        Failure::failed(
            format!("there is no {PROGRAM} on the PATH"),
            "install llama.cpp, whose llama-bench runs the model: brew install llama.cpp, or build it (cmake -B build && \
             cmake --build build --target llama-bench); then give --with build/bin",
        )
    })
}

async fn run(
    client: &Client,
    args: &CompareArgs,
    file: &Path,
    program: &Path,
) -> Result<Comparison, Failure> {
    let mut client = client.another(TIME_LIMIT);
    // Refused now rather than after minutes.
    let calibrated = is_calibrated(&mut client).await?;
    let on_gpu = observe::has_gpu(&mut client, false).await?;
    let shortest = Test {
        n_gen: args.output_tokens.unwrap_or(DEFAULT_OUTPUT),
        n_threads: args.threads,
        ..Test::default()
    };
    predict(&mut client, file, &shortest, on_gpu).await?;

    let mut reference = Reference::default();
    reference.before_ratio = memory_ratio(&client, &mut reference.reason).await;
    let mut command = Command::new(program);
    command.args(arguments(args, file, on_gpu));
    if !on_gpu {
        // Builds for GPUs hand large batches to one whatever -ngl says.
        for devices in ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES"] {
            command.env(devices, "");
        }
    }
    let output = run_program(&program.display().to_string(), command, args.time_limit, ADVICE).await?;
    reference.after_ratio = memory_ratio(&client, &mut reference.reason).await;
    let drift = reference.before_ratio.zip(reference.after_ratio);
    let drift = drift.map(|(before, after)| f64::midpoint(before, after));

    let tests = parse_tests(&output)?;
    let (mut rows, mut skipped, mut serial, mut simulated) = (Vec::new(), Vec::new(), 0, false);
    for test in &tests {
        match rate_of(test) {
            Err(why) => skipped.push(why),
            Ok(rate) => {
                let prediction = predict(&mut client, file, test, on_gpu).await?;
                serial = prediction.serial;
                simulated |= prediction.simulated;
                let tokens = tokens_of(test);
                let measured = row(repetitions(args, on_gpu), test, file, rate, &prediction);
                rows.push(Row {
                    predicted_tokens_per_s: Some(EstimateAnswer::rate(tokens, prediction.time_s)),
                    measured_tokens_per_s: Some(rate),
                    test: Some(label(test)),
                    threads: test.n_threads,
                    prompt_tokens: Some(test.n_prompt).filter(|tokens| *tokens > 0),
                    kv_format: Some(cache_format(test).unwrap_or_else(|| "fp16".to_owned())),
                    ..Row::new(MeasuredRow { drift_ratio: drift, ..measured }, calibrated)
                });
            }
        }
    }
    let Some(first) = tests.first().filter(|_| !rows.is_empty()) else {
        return Err(nothing(&skipped, &output));
    };
    let engine = Program {
        name: Engine::LlamaCpp.key(),
        program: program.display().to_string(),
        build_commit: first.build_commit.clone(),
        build_number: first.build_number,
        version: None,
        backends: first.backends.clone(),
    };
    Ok(Comparison {
        engine: Some(EngineRun { engine, reference }),
        skipped,
        simulated,
        serial,
        ..Comparison::of(rows, calibrated)
    })
}

fn repetitions(args: &CompareArgs, on_gpu: bool) -> u64 {
    args.repetitions.unwrap_or(if on_gpu { DEFAULT_GPU_REPETITIONS } else { DEFAULT_REPETITIONS })
}

fn arguments(args: &CompareArgs, file: &Path, on_gpu: bool) -> Vec<std::ffi::OsString> {
    let count = |given: Option<u64>, usual: u64| given.unwrap_or(usual).to_string();
    let mut all: Vec<std::ffi::OsString> = vec!["-m".into(), file.into()];
    let mut add = |option: &str, value: String| all.extend([option.into(), value.into()]);
    add("-p", count(args.prompt, DEFAULT_PROMPT));
    add("-n", count(args.output_tokens, DEFAULT_OUTPUT));
    add("-r", repetitions(args, on_gpu).to_string());
    // Nothing on a GPU where the figures are those of the CPU.
    add("-ngl", if on_gpu { "999" } else { "0" }.to_owned());
    if let Some(threads) = args.threads {
        add("-t", threads.to_string());
    }
    if let Some(contexts) = input::each(&args.contexts) {
        let depths: Vec<_> = contexts.iter().map(u64::to_string).collect();
        add("-d", depths.join(","));
    }
    add("-o", "json".to_owned());
    all
}

/// The list in what was printed; some builds write lines of their log in front of it.
fn parse_tests(output: &Output) -> Result<Vec<Test>, Failure> {
    let starts = output
        .text
        .iter()
        .enumerate()
        .filter(|(at, byte)| **byte == b'[' && (*at == 0 || output.text.get(at - 1) == Some(&b'\n')));
    let mut error = None;
    for (start, _) in starts {
        match serde_json::Deserializer::from_slice(&output.text[start..]).into_iter::<Vec<Test>>().next() {
            Some(Ok(tests)) => return Ok(tests),
            Some(Err(wrong)) => error = Some(wrong),
            None => {}
        }
    }
    match error {
        Some(error) => Err(Failure::failed(
            format!("what llama-bench printed is not understood: {error}; {}", output.last_words()),
            "use a llama-bench that knows -o json with n_prompt, n_gen and avg_ts",
        )),
        None => Ok(Vec::new()),
    }
}

fn label(test: &Test) -> String {
    let depth = if test.n_depth > 0 { format!(" @ d{}", test.n_depth) } else { String::new() };
    match (test.n_prompt, test.n_gen) {
        (prompt, 0) => format!("pp{prompt}{depth}"),
        (0, tokens) => format!("tg{tokens}{depth}"),
        (prompt, tokens) => format!("pp{prompt}+tg{tokens}{depth}"),
    }
}

/// Tokens per second with their range, or why the test has none. The median of the repetitions, so that one during which a clock
/// rises or another process runs does not count; builds that print none give their mean and spread.
fn rate_of(test: &Test) -> Result<EstimateAnswer, String> {
    if (test.n_prompt > 0) == (test.n_gen > 0) {
        return Err(format!("{}: neither a prompt alone nor decode alone", label(test)));
    }
    let mut samples = test.samples_ts.clone();
    samples.sort_by(f64::total_cmp);
    if let [low, _, .., high] = samples[..]
        && low > 0.0
        && high.is_finite()
        && let Some(value) = median(samples)
    {
        return Ok(EstimateAnswer { value, low, high });
    }
    let spread = test.stddev_ts.filter(|spread| spread.is_finite()).unwrap_or(0.0).max(0.0) * NINETY;
    match test.avg_ts {
        Some(rate) if rate.is_finite() && rate > 0.0 => {
            Ok(EstimateAnswer { value: rate, low: (rate - spread).max(rate / 10.0), high: rate + spread })
        }
        Some(rate) => Err(format!("{}: llama-bench reports {rate} tokens a second", label(test))),
        None => Err(format!("{}: llama-bench reports no avg_ts", label(test))),
    }
}

fn nothing(skipped: &[String], output: &Output) -> Failure {
    let message = match skipped.first() {
        Some(first) => format!("llama-bench measured nothing: {first}"),
        None => format!("llama-bench printed no test; {}", output.last_words()),
    };
    Failure::failed(message, "run it by hand with the same file, and look at its log")
}

/// How the cache is stored, as formats are named here.
fn cache_format(test: &Test) -> Option<String> {
    let named =
        test.type_k.as_deref().filter(|keys| test.type_v.as_deref().is_none_or(|values| values == *keys))?;
    Some(match named {
        "f32" => "fp32".to_owned(),
        "f16" => "fp16".to_owned(),
        other => other.to_owned(),
    })
}

async fn predict(
    client: &mut Client,
    file: &Path,
    test: &Test,
    on_gpu: bool,
) -> Result<PredictAnswer, Failure> {
    let prompt = test.n_prompt > 0;
    let workload = Workload {
        model: Some(json!({ "path": file })),
        kv_format: cache_format(test),
        phase: Some(if prompt { "prefill" } else { "decode" }.to_owned()),
        prompt_tokens: prompt.then_some(test.n_depth.saturating_add(test.n_prompt)),
        cached_tokens: (prompt && test.n_depth > 0).then_some(test.n_depth),
        // The cache grows while tokens are written: half of them are there in the mean.
        context_tokens: (!prompt).then_some(test.n_depth.saturating_add(test.n_gen / 2)),
        chunk_tokens: test.n_ubatch.filter(|_| prompt),
        // A GPU has no threads to choose.
        threads: test.n_threads.filter(|_| !on_gpu),
        ..Workload::default()
    };
    let request = PredictRequest { engine: Engine::LlamaCpp, workload, ..PredictRequest::default() };
    Ok(client.post("/v1/predict", &request).await?.parse()?)
}

/// Tokens that the time of a test is of: the prompt, or one that is written.
#[expect(clippy::cast_precision_loss, reason = "counts of tokens stay far below 2^53")]
const fn tokens_of(test: &Test) -> f64 {
    if test.n_prompt > 0 { test.n_prompt as f64 } else { 1.0 }
}

fn row(
    runs: u64,
    test: &Test,
    file: &Path,
    measured: EstimateAnswer,
    prediction: &PredictAnswer,
) -> MeasuredRow {
    let tokens = tokens_of(test);
    let time = EstimateAnswer {
        value: tokens / measured.value,
        low: tokens / measured.high,
        high: tokens / measured.low,
    };
    let op = MeasuredModel {
        kind: ModelKind::Model,
        model: json!({ "path": file }),
        phase: if test.n_prompt > 0 { "prefill" } else { "decode" }.to_owned(),
        batch: 1,
        context_tokens: test.n_depth,
    };
    let format = rooflined_advice::modelfile::load(file).ok().and_then(|file| file.model.label);
    let error_ratio = (prediction.time_s.value - time.value) / time.value;
    MeasuredRow {
        op: MeasuredOp::Model(op),
        format: format.unwrap_or_else(|| "unknown".to_owned()),
        predicted_time_s: prediction.time_s,
        predicted_at_calibration_s: prediction.time_s.value,
        measured_time_s: time,
        error_ratio,
        error_at_calibration_ratio: error_ratio,
        drift_ratio: None,
        disturbed: None,
        regime: "engine".to_owned(),
        runs,
        isa: test.backends.clone().unwrap_or_else(|| "unknown".to_owned()),
        bound: prediction.bound.clone(),
        limit: prediction.limit.clone(),
        roofline_time_s: prediction.roofline_time_s,
        power: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &str) -> Output {
        Output { text: text.as_bytes().to_vec(), log: "loading\nerror: no memory\n".to_owned() }
    }

    #[test]
    fn rows_are_read_with_fields_of_other_versions_and_words_in_front() {
        let text = "build: 1 (0c1e570)\n[\n  {\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": 102.5, \"stddev_ts\": 0.5, \
                    \"n_threads\": 2, \"type_k\": \"f16\", \"type_v\": \"f16\", \"fit_target\": 0, \"samples_ts\": [ 102.5 ]},\n  \
                    {\"n_prompt\": 0, \"n_gen\": 128, \"n_depth\": 1024, \"avg_ts\": 0.000000}\n]\n";
        let tests = parse_tests(&output(text)).unwrap();
        assert_eq!(tests.len(), 2);
        assert_eq!(rate_of(&tests[0]).unwrap().value, 102.5);
        assert_eq!(cache_format(&tests[0]).as_deref(), Some("fp16"));
        assert_eq!(label(&tests[1]), "tg128 @ d1024");
        assert!(rate_of(&tests[1]).unwrap_err().contains("0 tokens a second"));
    }

    #[test]
    fn a_repetition_before_the_clock_rose_does_not_count() {
        let test = |samples: &str| {
            let text = format!(
                "[{{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": 90.0, \"stddev_ts\": 10.0, \"samples_ts\": {samples}}}]"
            );
            rate_of(&parse_tests(&output(&text)).unwrap()[0])
        };
        assert_eq!(test("[50.0, 100.0, 110.0]"), Ok(EstimateAnswer { value: 100.0, low: 50.0, high: 110.0 }));
        for unusable in ["[]", "[90.0, 90.0]", "[0.0, 90.0, 95.0]"] {
            let mean = test(unusable).unwrap();
            assert!(mean.value == 90.0 && mean.low < 80.0 && mean.high > 100.0, "{mean:?}");
        }
    }

    #[test]
    fn a_run_that_printed_nothing_or_half_is_told_with_its_last_words() {
        assert!(parse_tests(&output("")).unwrap().is_empty());
        assert!(nothing(&[], &output("")).to_string().contains("error: no memory"));
        let half = parse_tests(&output("[\n  {\"n_prompt\": 512, \"n_ge")).unwrap_err().to_string();
        assert!(half.contains("not understood") && half.contains("error: no memory"), "{half}");
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_what_to_install() {
        let directory = tempfile::tempdir().unwrap();
        let missing = find_program(None, Some(directory.path().as_os_str())).unwrap_err();
        assert!(missing.to_string().contains("llama-bench"));
        assert!(missing.hint().unwrap().contains("install llama.cpp"));
        let file = directory.path().join(PROGRAM);
        std::fs::write(&file, "").unwrap();
        assert!(find_program(None, Some(directory.path().as_os_str())).is_err(), "it may not be run");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_program(None, Some(directory.path().as_os_str())).unwrap(), file);
        assert_eq!(find_program(Some(directory.path()), None).unwrap(), file);
    }
}
