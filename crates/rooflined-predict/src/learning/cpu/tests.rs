//! Rows made by another hand: every coefficient of the truth differs from those shipped, and the formula does too.

use std::sync::Arc;

use super::*;
use crate::cpu::{Host, Machine, Processor, Repeated, Scalar, cpu_costs, repeated};
use crate::fixtures::Noise;
use crate::learning::models::{Measured, ObservedRuns};
use rooflined_core::ceilings::{BandwidthPoint, Ceiling, Provenance, Roofline};
use rooflined_core::precision::Precision;
use rooflined_core::units::{Bytes, BytesPerSecond, FlopsPerSecond, Hertz, Seconds};
use rooflined_models::recipe::{Mix, Recipe};
use rooflined_models::registry::models;
use rooflined_models::transformer::{Request, Run};

fn exact<R: Copy>(value: R) -> Ceiling<R> {
    Ceiling { value, low: value, high: value, provenance: Provenance::Measured }
}

fn ceilings() -> Roofline {
    let point =
        |threads, read| BandwidthPoint { working_set: Bytes(1e9), threads, read: BytesPerSecond(read) };
    Roofline {
        bandwidth: exact(BytesPerSecond(40e9)),
        memory_limit: None,
        pull_limit: None,
        curve: vec![point(1, 25e9), point(2, 40e9)],
        copy: None,
        triad: None,
        compute: std::collections::BTreeMap::from([(Precision::Fp32, exact(FlopsPerSecond(400e9)))]),
        launch: exact(Seconds(2e-6)),
        ramp: Seconds::ZERO,
        workers: 2,
        clock: Some(Hertz(3e9)),
    }
}

/// The time that the invented machine takes: `cores` times the shipped cycles, parts that overlap with exponent 3 instead of 2,
/// and a fifth more for small operations.
fn truth(run: &CpuRun, cores: f64) -> f64 {
    let costs = cpu_costs(Engine::LlamaCpp, Processor::Zen4).unwrap();
    let mut log = costs.log.clone();
    log[Coefficient::Scalar(Scalar::Core).index()] += cores.ln();
    log[Coefficient::Scalar(Scalar::Attention).index()] += 1.25f64.ln();
    let of_pass = |part: &Repeated| {
        let time = part.work.time(&run.machine, &log);
        let joined = (time.memory.get().powi(3) + (time.unpacking + time.arithmetic).get().powi(3)).cbrt();
        (joined + time.inputs.get() + time.attention.get() + 1.2 * time.overhead.get()) * part.times
    };
    run.passes.iter().map(of_pass).sum()
}

fn measured(model: &str, format: &str, threads: u32, request: Request) -> Measured {
    let of = models().get(model).unwrap().model(Recipe::Gguf(Mix::of(format.parse().unwrap()).unwrap()));
    Measured {
        engine: Engine::LlamaCpp,
        name: model.to_owned(),
        format: format.to_owned(),
        model: Arc::new(of),
        request,
        roofline: Arc::new(ceilings()),
        kernels: None,
        cpu: Some(Host {
            processor: Processor::Avx2,
            cores: 2,
            threads: Some(threads),
            far: false,
            costs: None,
        }),
        memory_ratio: None,
        hardware: None,
        mode: None,
        time: Seconds(1.0),
        power: None,
        power_limit: None,
    }
}

/// Twice what is assumed of the processor, about.
const CORES: f64 = 2.5;

fn run(model: &str, format: &str, threads: u32, request: Request, noise: f64) -> Measured {
    let plain = measured(model, format, threads, request);
    let host = plain.cpu.unwrap();
    let machine = Machine::of(&plain.roofline, &host).unwrap();
    let passes = repeated(&plain.model, &Run::new(&plain.model, &request).unwrap(), &request);
    let time = truth(&CpuRun { machine, passes }, CORES) * noise.exp();
    Measured { time: Seconds(time), ..plain }
}

fn error(runs: &ObservedRuns, of: &Measured) -> f64 {
    (runs.predict(&of.asked()).unwrap().time.value / of.time).ln()
}

fn taught(runs: &[Measured]) -> ObservedRuns {
    let mut observed = ObservedRuns::default().of("here".into());
    for outcome in observed.observe(runs, 0.0) {
        outcome.unwrap();
    }
    observed
}

#[test]
fn runs_of_other_models_make_the_next_model_right() {
    let next: Vec<Measured> = [("q4_0", 1), ("q8_0", 1), ("q4_k_m", 2), ("q8_0", 2)]
        .into_iter()
        .flat_map(|(format, threads)| {
            [0, 2048].map(|context| run("llama-3.2-1b", format, threads, Request::decode(context), 0.0))
        })
        .collect();
    let errors = |runs: &ObservedRuns| {
        let mut errors: Vec<f64> = next.iter().map(|of| error(runs, of).abs()).collect();
        errors.sort_by(f64::total_cmp);
        (errors[errors.len() / 2], errors[errors.len() - 1])
    };
    let before = errors(&taught(&[]));
    assert!(before.0 > 0.2, "{before:?}");
    let one = taught(&[run("tinyllama-1.1b", "q8_0", 1, Request::decode(32), 0.03)]);
    let three = taught(&[
        run("tinyllama-1.1b", "q8_0", 1, Request::decode(32), 0.03),
        run("tinyllama-1.1b", "q4_0", 2, Request::decode(512), -0.03),
        run("qwen2.5-0.5b", "q4_k_m", 1, Request::decode(32), 0.02),
    ]);
    assert!(errors(&one).0 < 0.7 * before.0, "{:?} {before:?}", errors(&one));
    let (median, worst) = errors(&three);
    assert!(median < 0.1 && worst < 0.2, "{median} {worst}");
    let prediction = three.predict(&next[0].asked()).unwrap();
    assert_eq!(prediction.tier, Tier::EngineCalibrated);
}

#[test]
fn one_run_of_a_file_corrects_its_other_contexts_batches_and_threads() {
    let runs = taught(&[run("llama-3.2-1b", "q4_0", 1, Request::decode(32), 0.0)]);
    let at = |threads, request| run("llama-3.2-1b", "q4_0", threads, request, 0.0);
    let nothing = taught(&[]);
    for of in [at(1, Request::decode(1024)), at(2, Request::decode(32))] {
        let (before, off) = (error(&nothing, &of), error(&runs, &of));
        assert!(off.abs() < 0.2 && off.abs() < 0.4 * before.abs(), "{:?} {before} {off}", of.request);
        assert_eq!(runs.predict(&of.asked()).unwrap().tier, Tier::Anchored);
    }
    // Processors differ in one row otherwise than in many, so these are moved the right way and no more.
    for of in [at(1, Request { batch: 4, ..Request::decode(32) }), at(1, Request::prefill(256))] {
        let (before, off) = (error(&nothing, &of), error(&runs, &of));
        assert!(off.abs() < before.abs(), "{:?} {before} {off}", of.request);
        assert_eq!(runs.predict(&of.asked()).unwrap().tier, Tier::Anchored);
    }
    let same = runs.predict(&at(1, Request::decode(32)).asked()).unwrap();
    assert_eq!(same.tier, Tier::Observed);
    // One run never justifies a few percent.
    assert!(same.time.high / same.time.value > 1.1);
}

#[test]
fn intervals_hold_and_narrow_with_what_is_known() {
    let mut noise = Noise::new(7);
    let mut rows = Vec::new();
    for (model, format) in [
        ("tinyllama-1.1b", "q8_0"),
        ("tinyllama-1.1b", "q4_0"),
        ("qwen2.5-0.5b", "q8_0"),
        ("llama-3.2-1b", "q4_k_m"),
    ] {
        for threads in [1, 2] {
            for context in [0, 700, 1900] {
                rows.push(run(model, format, threads, Request::decode(context), 0.05 * noise.normal()));
            }
        }
    }
    let (mut inside, mut widths) = (0, Vec::new());
    for (index, row) in rows.iter().enumerate() {
        let others: Vec<Measured> = rows.iter().filter(|other| other.name != row.name).cloned().collect();
        let prediction = taught(&others).predict(&row.asked()).unwrap();
        inside += usize::from((prediction.time.low..=prediction.time.high).contains(&row.time));
        widths.push(prediction.time.high / prediction.time.value);
        let before = taught(&[]).predict(&row.asked()).unwrap();
        assert!(before.time.high / before.time.value > widths[index], "{index}");
    }
    assert!(inside >= rows.len() * 85 / 100, "{inside} of {}", rows.len());
}

#[test]
fn a_neighbour_that_takes_bandwidth_is_not_learnt_as_the_engine() {
    // What the cores take is known already; a run that waits for memory tells nothing of it.
    let known = ["tinyllama-1.1b", "llama-3.2-1b", "llama-3.2-3b"]
        .map(|model| run(model, "fp16", 2, Request::decode(512), 0.0));
    let quiet = run("tinyllama-1.1b", "fp16", 2, Request::decode(32), 0.0);
    let host = quiet.cpu.unwrap();
    let machine = Machine::of(&quiet.roofline, &host).unwrap().with_memory_ratio(0.6);
    let passes = repeated(&quiet.model, &Run::new(&quiet.model, &quiet.request).unwrap(), &quiet.request);
    let disturbed = Seconds(truth(&CpuRun { machine, passes }, CORES));
    let told = Measured { time: disturbed, memory_ratio: Some(0.6), ..quiet.clone() };
    let untold = Measured { time: disturbed, ..quiet.clone() };
    let other = run("qwen2.5-0.5b", "fp16", 2, Request::decode(32), 0.0);
    let [alone, told, untold] = [quiet, told, untold].map(|run| {
        let runs: Vec<Measured> = known.iter().cloned().chain([run]).collect();
        error(&taught(&runs), &other)
    });
    assert!(told.abs() < 0.12, "{told}");
    // Most of what it took is told apart.
    assert!((told - alone).abs() < 0.5 * (untold - alone), "{alone} {told} {untold}");
}

#[test]
fn a_run_with_one_thread_is_held_against_what_one_thread_can() {
    // One core alone reads 25 of 40 GB/s: faster than half of all, and possible.
    let of = measured("tinyllama-1.1b", "fp16", 1, Request::decode(0));
    let bytes = of.model.bytes_per_token().get();
    let mut observed = taught(&[]);
    let at = |rate: f64| Measured { time: Seconds(bytes / rate), ..of.clone() };
    assert!(observed.observe(&[at(24e9)], 0.0)[0].is_ok());
    let refused = observed.observe(&[at(36e9)], 0.0);
    assert!(format!("{:?}", refused[0]).contains("Impossible"), "{refused:?}");
}

#[test]
fn what_was_learnt_survives_the_store() {
    let runs = taught(&[run("tinyllama-1.1b", "q8_0", 1, Request::decode(32), 0.0)]);
    let text = serde_json::to_string(&runs).unwrap();
    let back: ObservedRuns = serde_json::from_str(&text).unwrap();
    back.check().unwrap();
    let back = back.of("here".into());
    let of = run("llama-3.2-1b", "q8_0", 1, Request::decode(32), 0.0);
    let (back, kept) = (back.predict(&of.asked()).unwrap(), runs.predict(&of.asked()).unwrap());
    assert!((back.time.value / kept.time.value - 1.0).abs() < 1e-9);
    assert_eq!(back.tier, kept.tier);
}

#[test]
fn an_outlier_moves_little() {
    let mut runs: Vec<Measured> = [0, 512, 1024, 2000]
        .map(|context| run("tinyllama-1.1b", "q8_0", 1, Request::decode(context), 0.0))
        .into();
    let of = run("llama-3.2-1b", "q8_0", 1, Request::decode(32), 0.0);
    let without = error(&taught(&runs), &of);
    runs.push(run("tinyllama-1.1b", "q8_0", 1, Request::decode(256), 1.2));
    let with = error(&taught(&runs), &of);
    assert!((with - without).abs() < 0.06, "{without} {with}");
}
