//! The probe of a GPU against a mock driver: the shipped kernels run on an interpreter, time is simulated, and
//! everything that a driver can answer goes wrong in turn. cudarc and nvml-wrapper are the ones that the product uses.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fake_cuda::{Corrupt, Fail, Hang, Scenario, Throttle, install};
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_predict::calibration::{
    Accelerator, GemvCase, Hold, Kernel, Plan, ProbeEvent, Sample, Step, Stores, Stream, centre, vet,
};
use serde_json::Value;

pub const READ: Kernel = Kernel::Stream { pattern: Stream::Read, bytes: 8 << 20, stores: Stores::Temporal };
pub const FP16: Kernel = Kernel::Peak { precision: Precision::Fp16 };

pub const fn gemv(format: WeightFormat, case: GemvCase) -> Kernel {
    Kernel::Gemv { n: 700, k: 1000, columns: 1, format, case }
}

pub fn plan(kernels: &[Kernel]) -> Plan {
    Plan {
        steps: kernels.iter().map(|kernel| Step { kernel: *kernel, threads: 2, budget_s: 0.005 }).collect(),
        holds: Vec::new(),
        accelerator: Accelerator::Gpu,
        cpus: Vec::new(),
        warm_up_s: 0.05,
        time_limit_s: 120.0,
        filling_s: 0.0,
        memory_limit_bytes: 64 << 20,
        seed: 3,
    }
}

/// `rooflined probe` with the driver of `scenario`; without one there is no driver at all.
fn probe(scenario: Option<&Scenario>, args: &[&str], input: &str) -> Output {
    probe_in(tempfile::tempdir().unwrap().path(), scenario, args, input)
}

/// The same with the driver's files in a directory of the caller's.
pub fn probe_in(dir: &Path, scenario: Option<&Scenario>, args: &[&str], input: &str) -> Output {
    let mut command = Command::new(crate::programs::rooflined());
    command.arg("probe").args(args).env_remove("LD_LIBRARY_PATH");
    if let Some(scenario) = scenario {
        command.envs(install(dir, scenario));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    // The end of its input would cancel it.
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    output
}

pub struct Run {
    pub samples: Vec<Sample>,
    pub skipped: Vec<String>,
    pub finished: bool,
    pub errors: String,
    pub success: bool,
}

pub fn measure(scenario: &Scenario, plan: &Plan) -> Run {
    told(probe(Some(scenario), &[], &format!("{}\n", serde_json::to_string(plan).unwrap())))
}

/// What a probe said.
pub fn told(output: Output) -> Run {
    let mut run = Run {
        samples: Vec::new(),
        skipped: Vec::new(),
        finished: false,
        errors: String::from_utf8(output.stderr).unwrap(),
        success: output.status.success(),
    };
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        match serde_json::from_str(line).unwrap() {
            ProbeEvent::Sample(sample) => run.samples.push(*sample),
            ProbeEvent::Skipped { reason, .. } => run.skipped.push(reason),
            ProbeEvent::NotHeld { reason, .. } => run.skipped.push(reason),
            ProbeEvent::Finished { .. } => run.finished = true,
            _ => {}
        }
    }
    run
}

fn rate(sample: &Sample) -> f64 {
    sample.bytes.get().max(sample.flops.get()) / centre(&sample.times).get()
}

/// Verified entries by name: their error, or why they did not run.
fn verified(scenario: &Scenario) -> BTreeMap<String, Result<f64, String>> {
    let output = probe(Some(scenario), &["--verify"], "");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.success(), scenario.execute_only.is_empty(), "{errors}");
    let outcome = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        let said = value["skipped"].as_str().map(str::to_owned);
        // JSON has no number for the error of a result that nothing has written.
        let outcome = said.map_or_else(|| Ok(value["error"].as_f64().unwrap_or(f64::INFINITY)), Err);
        (value["entry"].as_str().unwrap().to_owned(), outcome)
    };
    String::from_utf8(output.stdout).unwrap().lines().map(outcome).collect()
}

#[test]
fn every_kernel_of_an_orin_and_of_an_ada_card_computes_what_it_should() {
    for (capability, also, never) in [([8, 7], "mma_i4", "mma_f8"), ([8, 9], "mma_f8", "wgmma_f8")] {
        // What the second runs as the first does is not interpreted once more.
        let execute_only = if capability == [8, 7] { Vec::new() } else { vec!["mma_".to_owned()] };
        let scenario = Scenario { compute_capability: capability, execute_only, ..Scenario::toy() };
        let verified = verified(&scenario);
        let ran: Vec<(&String, f64)> =
            verified.iter().filter_map(|(entry, outcome)| Some((entry, *outcome.as_ref().ok()?))).collect();
        let interpreted = ran.iter().filter(|(entry, _)| scenario.executes(entry));
        let worst = interpreted.map(|(_, error)| *error).fold(0.0, f64::max);
        println!("{capability:?}: {} kernels ran, worst error {worst:.1e}", ran.len());
        assert!(worst < 1e-5, "{ran:?}");
        // Streams, arithmetic, twelve formats at four batches.
        assert!(ran.len() > 4 + 2 + 5 + 48, "{verified:#?}");
        assert!(verified[also].is_ok(), "{:?}", verified[also]);
        assert!(verified[never].as_ref().unwrap_err().contains("does not run on the units"));
    }
}

/// Nothing is offered that its architecture would emulate: what stands in the way is named before anything is launched.
/// What is offered computes what the probe expects, tiles of shared memory and blocks with factors too. Kernels that every
/// architecture runs alike are interpreted above.
#[test]
fn each_architecture_is_offered_its_own_instructions_only() {
    let offered = |scenario: &Scenario| -> Vec<String> {
        let not = "does not run on the units";
        let mut verified = verified(scenario);
        verified.retain(|_, outcome| !outcome.as_ref().is_err_and(|why| why.contains(not)));
        for (entry, outcome) in &verified {
            let is_interpreted = scenario.executes(entry);
            assert!(
                outcome.as_ref().is_ok_and(|error| *error < 1e-5 || !is_interpreted),
                "{entry}: {outcome:?}"
            );
        }
        println!("{:?}: {} kernels ran", scenario.compute_capability, verified.len());
        verified.into_keys().collect()
    };
    for (capability, driver, with, without) in [
        ([9, 0], 12060, ["wgmma_f16", "wgmma_f8", "wgmma_i8"], ["mma_f8", "mma_i4", "tcgen05_f16"]),
        ([10, 0], 13000, ["tcgen05_bf16", "tcgen05_i8", "tcgen05_nvf4"], ["mma_f8", "mma_nvf4", "wgmma_f8"]),
        ([11, 0], 13000, ["tcgen05_f16", "tcgen05_f8", "tcgen05_nvf4"], ["mma_f8", "mma_nvf4", "wgmma_f8"]),
        ([12, 1], 13000, ["mma_f8", "mma_nvf4", "mma_f16_f32"], ["mma_i4", "tcgen05_f16", "wgmma_f16"]),
    ] {
        let execute_only = ["mma_", "wgmma_", "tcgen05_"].map(str::to_owned).into();
        let scenario = Scenario {
            compute_capability: capability,
            driver_version: driver,
            execute_only,
            ..Scenario::toy()
        };
        let offered = offered(&scenario);
        for entry in with {
            assert!(offered.iter().any(|found| found == entry), "{capability:?} lacks {entry}: {offered:?}");
        }
        for entry in without {
            assert!(!offered.iter().any(|found| found == entry), "{capability:?} is offered {entry}");
        }
    }
}

#[test]
fn the_ceilings_of_the_mock_gpu_are_found() {
    let scenario = Scenario::toy();
    let int8 = Kernel::Peak { precision: Precision::Int8 };
    let cached = Kernel::Stream { pattern: Stream::Read, bytes: 32 << 10, stores: Stores::Temporal };
    let copy = Kernel::Stream { pattern: Stream::Copy, bytes: 4 << 20, stores: Stores::Temporal };
    let dram = gemv(WeightFormat::Fp16, GemvCase::Dram);
    let run =
        measure(&scenario, &plan(&[READ, copy, cached, FP16, int8, dram, Kernel::Wake, Kernel::Submit]));
    assert!(run.success && run.finished && run.skipped.is_empty(), "{} {:?}", run.errors, run.skipped);
    let clock = scenario.clock.sm_hz;
    let cycles = 2.0 * clock;
    let memory = scenario.memory.dram_bytes_per_s;
    let expected = [
        (READ, memory),
        (copy, memory),
        (cached, scenario.memory.l2_bytes_per_clock * cycles),
        (FP16, scenario.compute.mma["f16"] * cycles),
        (int8, scenario.compute.mma["s8"] * cycles),
    ];
    for (kernel, truth) in expected {
        let sample = run.samples.iter().find(|sample| sample.kernel == kernel).unwrap();
        let found = rate(sample) / truth;
        assert!((0.9..1.02).contains(&found), "{}: {found}", kernel.describe());
        assert_eq!((vet(sample), sample.isa.as_str()), (None, "sm_87"));
        assert_eq!(sample.max_error_ratio, Some(0.0), "{}", kernel.describe());
    }
    for sample in &run.samples {
        for conditions in [&sample.before, &sample.after] {
            assert!((conditions.clock.effective.get() / clock - 1.0).abs() < 0.02, "{conditions:?}");
            assert_eq!(conditions.clock.reported.unwrap().get(), clock);
            assert!((conditions.temperature.unwrap().get() - f64::from(scenario.temperature_c)).abs() < 0.1);
            assert!((conditions.reference.read.get() / memory - 1.0).abs() < 0.05);
        }
    }
    let time =
        |kernel| centre(&run.samples.iter().find(|sample| sample.kernel == kernel).unwrap().times).get();
    assert!(time(Kernel::Wake) < time(Kernel::Submit), "a node of a graph starts faster than a launch");
    // The weights of the product come from memory, although they would fit the cache.
    let product = run.samples.iter().find(|sample| sample.kernel == dram).unwrap();
    let share = product.bytes.get() / centre(&product.times).get() / memory;
    assert!((0.3..1.02).contains(&share), "{share}");
}

#[test]
fn a_driver_that_is_not_there_or_cannot_be_used_is_named() {
    let read = format!("{}\n", serde_json::to_string(&plan(&[READ])).unwrap());
    let toy = Scenario::toy;
    let failing = |call: &str, code: u32| Scenario { fail: vec![Fail::always(call, code)], ..toy() };
    for (scenario, says) in [
        (None, "there is no libcuda.so.1"),
        (Some(Scenario { no_device: true, ..toy() }), "CUDA_ERROR_NO_DEVICE"),
        (Some(failing("cuInit", 803)), "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH; kernel module"),
        (Some(failing("cuDevicePrimaryCtxRetain", 2)), "CUDA_ERROR_OUT_OF_MEMORY; end other programs"),
        // Younger than the bindings.
        (Some(failing("cuDevicePrimaryCtxRetain", 46)), "CUDA_ERROR_DEVICE_UNAVAILABLE; another process"),
        (Some(failing("cuInit", 777)), "CUDA error 777"),
        (
            Some(Scenario { driver_version: 10020, ..toy() }),
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION; the driver is too old",
        ),
        (Some(Scenario { compute_capability: [7, 2], ..toy() }), "compute capability 7.2"),
    ] {
        let output = probe(scenario.as_ref(), &[], &read);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{says}: {errors}");
        assert!(errors.starts_with("rooflined probe: ") && errors.contains(says), "{says}: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    }
}

/// What toolkits install for linking has the plain name; the driver's own library has the number.
#[test]
fn a_stub_that_lies_beside_the_driver_is_not_taken_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let variables = install(dir.path(), &Scenario { execute: false, ..Scenario::toy() });
    let plain = dir.path().join("libcuda.so");
    std::fs::remove_file(&plain).unwrap();
    // A library without any of the driver's functions.
    std::os::unix::fs::symlink(dir.path().join("libnvidia-ml.so.1"), &plain).unwrap();
    let verify = |dir: &std::path::Path| {
        let mut command = Command::new(crate::programs::rooflined());
        command.args(["probe", "--verify"]).env_remove("LD_LIBRARY_PATH").envs(variables.clone());
        command.current_dir(dir).output().unwrap()
    };
    let errors = String::from_utf8(verify(dir.path()).stderr).unwrap();
    assert!(errors.contains(" kernels: "), "{errors}");
    // Alone it is named for what it lacks.
    std::fs::remove_file(dir.path().join("libcuda.so.1")).unwrap();
    let output = verify(dir.path());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("the driver has no cu"), "{errors}");
}

/// A data sheet that knows half of the cache: what is meant to come from memory does.
#[test]
fn a_read_from_memory_outgrows_the_cache_that_the_driver_reports() {
    let scenario = Scenario::toy();
    let l2 = scenario.memory.l2_bytes;
    let read = |bytes| Kernel::Stream { pattern: Stream::Read, bytes, stores: Stores::Temporal };
    let run = measure(&scenario, &plan(&[read(2 * l2), read(l2 / 2)]));
    let of = |kernel| run.samples.iter().find(|sample| sample.kernel == kernel).unwrap();
    let (memory, cached) = (of(read(2 * l2)), of(read(l2 / 2)));
    let share = rate(memory) / scenario.memory.dram_bytes_per_s;
    assert!((0.9..1.02).contains(&share) && memory.bytes.get() >= (4 * l2) as f64, "{share}");
    assert!(rate(cached) > 2.0 * rate(memory), "the other is meant to be cached");
}

/// Errors about the capture of a graph leave the context as it was.
#[test]
fn a_graph_that_cannot_be_captured_costs_its_step() {
    for (call, code) in
        [("cuStreamEndCapture", 901), ("cuStreamBeginCapture_v2", 905), ("cuGraphInstantiateWithFlags", 900)]
    {
        // The first one is the reference's.
        let fail = vec![Fail { call: call.into(), code, after: 1, times: Some(1) }];
        let run = measure(&Scenario { fail, ..Scenario::toy() }, &plan(&[READ, FP16]));
        assert!(run.success && run.finished, "{call}: {}", run.errors);
        assert_eq!((run.samples.len(), run.skipped.len()), (1, 1), "{call}: {:?}", run.skipped);
        assert!(run.skipped[0].contains("CUDA_ERROR_STREAM_CAPTURE"), "{call}: {:?}", run.skipped);
    }
}

#[test]
fn what_costs_a_step_leaves_the_others_and_what_costs_the_device_leaves_what_was_measured() {
    let toy = Scenario::toy;
    let kernels = [READ, FP16, gemv(WeightFormat::Q4_0, GemvCase::Cache)];
    // Too little memory for one of them.
    let large = Kernel::Stream { pattern: Stream::Copy, bytes: 1 << 30, stores: Stores::Temporal };
    let run = measure(&toy(), &plan(&[large, FP16]));
    assert!(run.finished && run.samples.len() == 1, "{:?}", run.skipped);
    assert!(run.skipped[0].contains("may be taken"), "{:?}", run.skipped);
    // Memory that runs out although it was free a moment ago.
    let fail = vec![Fail { call: "cuMemAlloc_v2".into(), code: 2, after: 12, times: Some(1) }];
    let run = measure(&Scenario { fail, ..toy() }, &plan(&kernels));
    assert!(run.finished, "{}", run.errors);
    assert_eq!((run.samples.len(), run.skipped.len()), (2, 1), "{:?}", run.skipped);
    assert!(run.skipped[0].contains("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"), "{:?}", run.skipped);
    // The context is gone.
    for (call, code, name) in [
        ("cuGraphLaunch", 719, "CUDA_ERROR_LAUNCH_FAILED"),
        ("cuEventQuery", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("cuEventRecord", 999, "CUDA_ERROR_UNKNOWN"),
        ("cuLaunchKernel", 214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    ] {
        let fail = vec![Fail { call: call.into(), code, after: 25, times: None }];
        let run = measure(&Scenario { fail, ..toy() }, &plan(&kernels));
        // Nothing at all is a failure; less than all is not.
        assert_eq!((run.success, run.finished), (!run.samples.is_empty(), run.success), "{call}");
        assert!(!run.finished || run.samples.len() + run.skipped.len() == kernels.len(), "{:?}", run.skipped);
        let said = format!("{} {:?}", run.errors, run.skipped);
        assert!(said.contains(name) && !run.errors.contains("panicked"), "{call}: {said}");
    }
}

#[test]
fn a_kernel_that_never_ends_is_given_up_by_name() {
    let hang = vec![Hang { call: "cuEventQuery".into(), after: 20 }];
    let begun = Instant::now();
    let run = measure(&Scenario { hang, ..Scenario::toy() }, &plan(&[READ, FP16]));
    let said = format!("{} {:?}", run.errors, run.skipped);
    assert!(said.contains("has not ended within") && run.samples.len() < 2, "{said}");
    assert!(begun.elapsed() < Duration::from_secs(100));
    // A call that never returns takes the probe's own limit.
    let hang = vec![Hang { call: "cuMemcpyDtoH_v2".into(), after: 2 }];
    let limited = Plan { time_limit_s: 1.0, ..plan(&[READ, FP16]) };
    let run = measure(&Scenario { hang, ..Scenario::toy() }, &limited);
    assert!(!run.success && run.errors.contains("did not return within the time limit"), "{}", run.errors);
}

#[test]
fn wrong_results_and_moving_clocks_are_not_believed() {
    let code = |run: &Run| vet(&run.samples[0]).map(|rejection| rejection.code);
    let corrupt = vec![Corrupt { entry: "stream_read".into(), words: 1 }];
    let run = measure(&Scenario { corrupt, ..Scenario::toy() }, &plan(&[READ]));
    assert_eq!(code(&run).as_deref(), Some("wrong_result"), "JSON has no infinity");
    for kernel in [FP16, gemv(WeightFormat::Fp16, GemvCase::Cache)] {
        let corrupt = vec![Corrupt { entry: "*".into(), words: 3 }];
        let run = measure(&Scenario { corrupt, ..Scenario::toy() }, &plan(&[kernel]));
        assert_eq!(code(&run).as_deref(), Some("wrong_result"), "{:?}", run.samples[0].max_error_ratio);
    }
    // Whenever the clock falls, what is kept is the rate at the clock that stands beside it.
    for launches in (20..1_000).step_by(140) {
        let mut throttled = Scenario::toy();
        throttled.clock.throttle =
            Some(Throttle { after_launches: Some(launches), after_s: None, factor: 0.6 });
        let run = measure(&throttled, &plan(&[FP16]));
        let kept = run.samples.iter().rfind(|sample| vet(sample).is_none()).unwrap();
        let clock = kept.before.clock.effective.get();
        let truth = throttled.compute.mma["f16"] * 2.0 * clock;
        let found = rate(kept) / truth;
        assert!((0.97..1.03).contains(&found), "after {launches} launches: {found} at {clock} Hz");
        let part = clock / throttled.clock.sm_hz;
        assert!((part - 1.0).abs() < 0.02 || (part - 0.6).abs() < 0.02, "after {launches} launches: {part}");
    }
}

/// The clock of an idle GPU rises while it warms up; what is measured is the clock under load.
#[test]
fn it_is_warmed_up_before_it_is_measured() {
    let mut scenario = Scenario::toy();
    scenario.clock.idle_hz = scenario.clock.sm_hz / 4.0;
    scenario.clock.ramp_s = 0.1;
    let warm = Plan { warm_up_s: 20.0, ..plan(&[FP16]) };
    let run = measure(&scenario, &warm);
    let ratio = run.samples[0].before.clock.effective.get() / scenario.clock.sm_hz;
    assert!((0.97..1.03).contains(&ratio), "{ratio}");
}

#[test]
fn a_load_is_held_for_as_long_as_the_meter_wants() {
    let hold = |kernel| Hold { kernel, threads: 2, hold_s: 0.3 };
    let held = Plan { holds: vec![hold(None), hold(Some(READ))], ..plan(&[]) };
    let input = format!("{}\n", serde_json::to_string(&held).unwrap());
    let output = probe(Some(&Scenario { pace: 1.0, ..Scenario::toy() }), &[], &input);
    let events: Vec<ProbeEvent> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let held: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            ProbeEvent::Held(held) => Some(held),
            _ => None,
        })
        .collect();
    assert_eq!(held.len(), 2, "{events:?}");
    let [idle, read] = [held[0], held[1]];
    assert_eq!((idle.kernel, idle.bytes.get()), (None, 0.0));
    assert!(read.ended - read.began >= rooflined_core::units::Seconds(0.3));
    // At the pace of the world outside, what was read in that time is what the memory gives.
    let rate = read.bytes.get() / (read.ended - read.began).get();
    assert!((0.3..1.05).contains(&(rate / Scenario::toy().memory.dram_bytes_per_s)), "{rate}");
    // A device that is lost meanwhile is not a load that could not be held.
    let fail = vec![Fail { call: "cuGraphLaunch".into(), code: 719, after: 30, times: None }];
    let run = measure(
        &Scenario { fail, ..Scenario::toy() },
        &Plan { holds: vec![hold(Some(READ)); 4], ..plan(&[]) },
    );
    // What was held before is kept; the loss is told of the hold, or of the whole where nothing was held.
    let said = format!("{} {:?}", run.errors, run.skipped);
    assert!(said.contains("CUDA_ERROR_LAUNCH_FAILED"), "{said}");
}
