use std::sync::Arc;

use super::*;
use crate::Opener;
use rooflined_api::{OperatingPointRequest, OtherProcess, PredictRequest, Workload};
use rooflined_core::board::{ActiveMode, OperatingPoint, Reading, Throttle};
use rooflined_core::hardware::registry;
use rooflined_core::units::Hertz;
use serde_json::json;

const BOARDS: [&str; 4] =
    ["jetson-orin-nano-8gb-super", "jetson-agx-orin-64gb", "jetson-agx-thor-t5000", "gb10"];

fn machine(key: &str) -> Snapshot {
    let hardware = Arc::new(registry().get(key).unwrap().clone());
    Snapshot { serial: 1, ..Snapshot::hypothetical(hardware) }
}

fn catalogue() -> Catalogue {
    Catalogue::new(registry().clone(), Opener::Caller)
}

fn asked() -> ExplainRequest {
    ExplainRequest {
        workload: Workload {
            model: Some(json!("llama-3.2-1b")),
            format: Some("q4_k_m".to_owned()),
            context_tokens: Some(1024),
            ..Workload::default()
        },
        engine: rooflined_predict::Engine::LlamaCpp,
        ..ExplainRequest::default()
    }
}

fn explained(snapshot: &Snapshot, request: &ExplainRequest) -> ExplainAnswer {
    explain(snapshot, &catalogue(), request).unwrap()
}

#[test]
fn a_model_alone_is_expected_as_predict_takes_it() {
    let workload = Workload { model: Some(json!("qwen3-4b")), ..Workload::default() };
    for key in BOARDS {
        let snapshot = machine(key);
        let answer =
            explained(&snapshot, &ExplainRequest { workload: workload.clone(), ..ExplainRequest::default() });
        let request = PredictRequest { workload: workload.clone(), ..PredictRequest::default() };
        let predicted = crate::predict::predict(&snapshot, &catalogue(), &request).unwrap();
        assert_eq!((answer.engine, answer.format), (predicted.engine, predicted.format));
        assert_eq!(answer.expected_tokens_per_s, predicted.tokens_per_s);
    }
}

fn expected(snapshot: &Snapshot) -> EstimateAnswer {
    explained(snapshot, &asked()).expected_tokens_per_s
}

fn at(rate: f64) -> ExplainRequest {
    ExplainRequest { tokens_per_s: Some(rate), ..asked() }
}

fn throttle(snapshot: &mut Snapshot, clock: Hertz) {
    snapshot.state.gpu_clock = Reading::Known(clock);
    snapshot.state.gpu_load = Reading::Known(0.97);
    snapshot.busy_clocks.gpu = Some(clock);
    let evidence = vec!["cpu-throttle-alert is at 1 (/sys/class/thermal/cooling_device3)".to_owned()];
    snapshot.state.throttle = Reading::Known(Throttle { active: true, evidence });
}

#[test]
fn within_the_interval_nothing_is_named_whatever_the_sensors_say() {
    for key in BOARDS {
        let mut snapshot = machine(key);
        let EstimateAnswer { value, low, high } = expected(&snapshot);
        throttle(&mut snapshot, Hertz(300e6));
        for rate in [low * 1.001, value, high * 0.999] {
            let answer = explained(&snapshot, &at(rate));
            assert_eq!((answer.verdict.as_str(), answer.causes.len()), ("as_expected", 0), "{key} {rate}");
            assert_eq!(answer.unexplained_ratio, None);
        }
        let fast = explained(&snapshot, &at(high * 1.5));
        assert_eq!((fast.verdict.as_str(), fast.causes.len()), ("faster_than_expected", 0));
    }
}

#[test]
fn a_slow_run_without_a_cause_lists_what_was_checked() {
    for key in BOARDS {
        let snapshot = machine(key);
        let EstimateAnswer { value, low, .. } = expected(&snapshot);
        let answer = explained(&snapshot, &at(low * 0.5));
        assert!(answer.causes.is_empty(), "{:?}", answer.causes);
        let whats: Vec<&str> = answer.checked.iter().map(|of| of.what.as_str()).collect();
        assert_eq!(
            (whats[0], whats[1], whats.last()),
            ("GPU clock under load", "throttling", Some(&"whether the rate counts the time of the prompt"))
        );
        assert!(answer.checked.iter().all(|of| of.value.as_deref() != Some("0 Hz")), "unknown is no figure");
        let process = |request| ExplainRequest {
            seen: Some(RunEvidence { pid: Some(7), cpus_allowed: Some(4), ..RunEvidence::default() }),
            ..request
        };
        let seen = explained(&snapshot, &process(at(low * 0.5))).checked;
        let of = |what: &str| seen.iter().find(|of| of.what == what).unwrap();
        assert_eq!(of("CPUs that it may use").value.as_deref(), Some("4"));
        assert_eq!(of("its memory in swap").value, None);
        assert!(explained(&snapshot, &at(value)).checked.is_empty());
        let mut hot = machine(key);
        throttle(&mut hot, Hertz(300e6));
        assert!(explained(&hot, &at(low * 0.5)).checked.is_empty(), "a cause is named instead");
    }
}

#[test]
fn the_shares_and_the_rest_add_up_to_the_gap() {
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..200 {
        let mut snapshot = machine(BOARDS[round % BOARDS.len()]);
        let low = expected(&snapshot).low;
        if random.bool() {
            throttle(&mut snapshot, Hertz(200e6 + 1.5e9 * random.f64()));
        }
        if random.bool() {
            snapshot.state.memory_clock_cap = Reading::Known(Hertz(6e8 + 3e9 * random.f64()));
        }
        let mut request = at(low * (0.2 + 0.79 * random.f64()));
        let seen = RunEvidence {
            workload: Some(Workload {
                kv_format: Some("q8_0".to_owned()),
                context_tokens: Some(random.u64(1..16_000)),
                ..Workload::default()
            }),
            unlike: random.bool().then(|| "--lora".to_owned()).into_iter().collect(),
            ..RunEvidence::default()
        };
        request.seen = random.bool().then_some(seen);
        let answer = explained(&snapshot, &request);
        assert_eq!(answer.verdict, "slower_than_expected");
        let value = answer.expected_tokens_per_s.value;
        let shares: f64 = answer.causes.iter().map(|cause| cause.share_ratio).sum();
        assert!((shares + answer.unexplained_ratio.unwrap() - 1.0).abs() < 1e-6, "{answer:?}");
        let gap = value - answer.measured_tokens_per_s;
        let rates: f64 = answer.causes.iter().map(|cause| cause.share_tokens_per_s).sum();
        assert!((rates + answer.unexplained_tokens_per_s.unwrap() - gap).abs() < 1e-6 * value);
        for cause in &answer.causes {
            let reached = cause.without_tokens_per_s;
            assert!(reached >= answer.measured_tokens_per_s && reached <= value * (1.0 + 1e-9), "{cause:?}");
            assert!(!cause.evidence.is_empty() && !cause.fix.is_empty(), "{cause:?}");
        }
        let gains: Vec<f64> = answer.causes.iter().map(|cause| cause.without_tokens_per_s).collect();
        assert!(gains.windows(2).all(|pair| pair[0] >= pair[1]), "{gains:?}");
    }
}

/// A process and a board as they are where nothing is wrong, with what is never quite still.
fn healthy(snapshot: &mut Snapshot, random: &mut fastrand::Rng) -> RunEvidence {
    let hardware = snapshot.hardware.clone().unwrap();
    let near =
        |clock: Hertz, random: &mut fastrand::Rng| Reading::Known(clock * (0.98 + 0.04 * random.f64()));
    snapshot.state.gpu_clock_cap = near(hardware.gpu_clock, random);
    snapshot.state.gpu_clock = near(hardware.gpu_clock, random);
    if let Some(clock) = hardware.memory_clock {
        snapshot.state.memory_clock_cap = near(clock, random);
    }
    snapshot.state.gpu_load = Reading::Known(random.f64());
    snapshot.state.throttle = Reading::Known(Throttle { active: false, evidence: Vec::new() });
    RunEvidence {
        pid: Some(7),
        cpus_allowed: Some(64),
        cores_allowed: Some(64),
        computing_threads: None,
        nice: Some(random.i32(-5..=0)),
        core_speed_ratio: Some(0.96 + 0.04 * random.f64()),
        far_memory_ratio: Some(random.f64()),
        memory_distance_ratio: Some(1.0 + 0.04 * random.f64()),
        cpu_wait_ratio: Some(0.02 * random.f64()),
        blocked_ratio: Some(0.02 * random.f64()),
        read_bytes_per_s: Some(1e5 * random.f64()),
        major_faults_per_s: Some(random.f64()),
        swapped_bytes: Some(1e9 * random.f64()),
        others: vec![OtherProcess { pid: 9, name: "gnome-shell".to_owned(), cpus: 0.14 * random.f64() }],
        memory_ratio: Some(0.92 + 0.2 * random.f64()),
        spread_ratio: Some(1.0 + 0.25 * random.f64()),
        warming_ratio: Some(1.0 + 0.04 * random.f64()),
        gpu_library: Some(true),
        instructions: Some(vec!["AVX2".to_owned(), "AVX_VNNI".to_owned(), "AVX512_VNNI".to_owned()]),
        ..RunEvidence::default()
    }
}

#[test]
fn a_healthy_machine_has_no_cause_whatever_the_rate() {
    let mut random = fastrand::Rng::with_seed(41);
    for key in BOARDS.into_iter().chain(["cpu"]) {
        for _ in 0..20 {
            let mut snapshot = machine(key);
            let EstimateAnswer { low, high, .. } = expected(&snapshot);
            let seen = Some(healthy(&mut snapshot, &mut random));
            let within = low + (high - low) * random.f64();
            let calm = explained(&snapshot, &ExplainRequest { seen: seen.clone(), ..asked() });
            assert_eq!(
                (calm.verdict.as_str(), calm.causes.len()),
                ("not_measured", 0),
                "{key} {:?}",
                calm.causes
            );
            let normal = explained(&snapshot, &ExplainRequest { seen: seen.clone(), ..at(within) });
            assert_eq!((normal.verdict.as_str(), normal.causes.len()), ("as_expected", 0), "{key}");
            let slow =
                explained(&snapshot, &ExplainRequest { seen, ..at(low * (0.1 + 0.85 * random.f64())) });
            assert_eq!((slow.causes.as_slice(), slow.unexplained_ratio), (&[][..], Some(1.0)), "{key}");
        }
    }
}

#[test]
fn far_memory_slow_cores_and_cold_caches_are_causes_with_their_evidence() {
    let snapshot = machine("cpu");
    let rate = 0.5 * expected(&snapshot).low;
    let named = |seen: RunEvidence| {
        let answer = explained(&snapshot, &ExplainRequest { seen: Some(seen), ..at(rate) });
        let shares: f64 = answer.causes.iter().map(|cause| cause.share_ratio).sum();
        assert!((shares + answer.unexplained_ratio.unwrap() - 1.0).abs() < 1e-6);
        answer.causes.into_iter().map(|cause| (cause.cause, cause.certainty)).collect::<Vec<_>>()
    };
    let found = |cause: &str, certainty: &str| vec![(cause.to_owned(), certainty.to_owned())];
    let far = RunEvidence {
        far_memory_ratio: Some(0.8),
        memory_distance_ratio: Some(1.9),
        ..RunEvidence::default()
    };
    assert_eq!(named(far), found("numa", "estimated"));
    let slow = RunEvidence { core_speed_ratio: Some(0.4), ..RunEvidence::default() };
    assert_eq!(named(slow), found("slow_cores", "estimated"));
    assert_eq!(
        named(RunEvidence { warming_ratio: Some(1.8), ..RunEvidence::default() }),
        found("warming", "estimated")
    );
    let drafts = RunEvidence {
        acceptance_ratio: Some(0.1),
        workload: Some(Workload::default()),
        ..RunEvidence::default()
    };
    assert_eq!(named(drafts), found("speculation", "possible"));
}

/// Beside a rival, both its end and a usual priority help: its end more.
#[test]
fn a_low_priority_costs_what_it_costs_beside_the_rival() {
    let snapshot = machine("cpu");
    let value = expected(&snapshot).value;
    let seen = RunEvidence {
        cpu_wait_ratio: Some(0.95),
        nice: Some(19),
        others: vec![OtherProcess { pid: 9, name: "make".to_owned(), cpus: 1.0 }],
        ..RunEvidence::default()
    };
    let causes = explained(&snapshot, &ExplainRequest { seen: Some(seen), ..at(0.05 * value) }).causes;
    let reached: Vec<(&str, f64)> =
        causes.iter().map(|cause| (cause.cause.as_str(), cause.without_tokens_per_s / value)).collect();
    let [("other_process", ended), ("low_priority", shared)] = reached[..] else { panic!("{reached:?}") };
    assert!((ended - 1.0).abs() < 0.02 && (shared - 0.5).abs() < 0.05, "{reached:?}");
}

#[test]
fn a_lower_clock_never_takes_a_smaller_share() {
    for key in BOARDS {
        let mut snapshot = machine(key);
        let (low, top) = (expected(&snapshot).low, snapshot.hardware.as_ref().unwrap().gpu_clock);
        let share = |part: f64, snapshot: &mut Snapshot| {
            throttle(snapshot, Hertz(top.get() * part));
            let answer = explained(snapshot, &at(low * 0.5));
            answer.causes.iter().find(|cause| cause.cause == "thermal").map_or(0.0, |cause| cause.share_ratio)
        };
        let shares: Vec<f64> =
            (1..20).rev().map(|step| share(f64::from(step) * 0.05, &mut snapshot)).collect();
        assert!(shares.windows(2).all(|pair| pair[1] >= pair[0] - 1e-9), "{key} {shares:?}");
        assert!(shares.last().unwrap() > &0.3, "{key} {shares:?}");
    }
}

#[test]
fn a_cause_without_an_effect_is_not_named() {
    let mut snapshot = machine("jetson-agx-orin-64gb");
    let low = expected(&snapshot).low;
    let memory = snapshot.hardware.as_ref().unwrap().memory_clock.unwrap();
    // As it should be, and a setting that is the default.
    snapshot.state.memory_clock_cap = Reading::Known(memory);
    let mut request = at(low * 0.6);
    request.seen = Some(RunEvidence {
        workload: Some(Workload {
            kv_format: Some("fp16".to_owned()),
            context_tokens: Some(1024),
            batch: Some(1),
            chunk_tokens: Some(64),
            ..Workload::default()
        }),
        ..RunEvidence::default()
    });
    let answer = explained(&snapshot, &request);
    assert_eq!(answer.causes, [], "{:?}", answer.causes);
    assert_eq!(answer.unexplained_ratio, Some(1.0));
    snapshot.state.memory_clock_cap = Reading::Known(Hertz(665.6e6));
    let answer = explained(&snapshot, &request);
    assert_eq!(answer.causes.len(), 1, "{:?}", answer.causes);
    assert_eq!(answer.causes[0].cause, "memory_clock");
}

#[test]
fn the_order_in_which_things_are_seen_does_not_matter() {
    let mut snapshot = machine("jetson-orin-nano-8gb-super");
    let low = expected(&snapshot).low;
    throttle(&mut snapshot, Hertz(400e6));
    let with = |options: [&str; 3]| {
        let mut request = at(low * 0.3);
        request.seen =
            Some(RunEvidence { unlike: options.map(str::to_owned).to_vec(), ..RunEvidence::default() });
        explained(&snapshot, &request).causes
    };
    assert_eq!(with(["--lora", "--rpc", "--embedding"]), with(["--rpc", "--embedding", "--lora"]));
}

#[test]
fn another_mode_is_one_cause_and_its_fix_names_the_faster_one() {
    let mut snapshot = machine("jetson-agx-orin-64gb");
    let low = expected(&snapshot).low;
    let slow = snapshot.board.mode("MODE_15W").unwrap().key();
    let fast = snapshot.state.power_mode.known().unwrap().name.clone();
    snapshot.state.power_mode = Reading::Known(ActiveMode { id: slow.id, name: slow.name });
    let mut request = at(low * 0.3);
    request.operating_point =
        Some(OperatingPointRequest { power_mode: Some(fast.clone()), ..OperatingPointRequest::default() });
    let answer = explained(&snapshot, &request);
    assert_eq!(answer.causes[0].cause, "power_mode", "{:?}", answer.causes);
    assert_eq!(answer.causes[0].fix, format!("sudo rooflinectl mode set {fast}"));
    assert_eq!(answer.causes.len(), 1);
}

#[test]
fn without_a_measurement_a_cause_has_its_predicted_effect() {
    let mut snapshot = machine("gb10");
    let calm = explained(&snapshot, &asked());
    assert_eq!((calm.verdict.as_str(), calm.causes.len()), ("not_measured", 0));
    throttle(&mut snapshot, Hertz(513e6));
    snapshot.state.throttle = Reading::Known(Throttle { active: false, evidence: Vec::new() });
    let answer = explained(&snapshot, &asked());
    assert_eq!(answer.causes[0].cause, "supply");
    assert!((answer.causes[0].share_ratio - 1.0).abs() < 1e-6);
    assert!(answer.measured_tokens_per_s < calm.measured_tokens_per_s);
}

#[test]
fn impossible_evidence_is_refused_with_its_field() {
    let snapshot = machine("gb10");
    let refused = |seen: RunEvidence| {
        let request = ExplainRequest { seen: Some(seen), ..at(1.0) };
        explain(&snapshot, &catalogue(), &request).unwrap_err().field.unwrap()
    };
    assert_eq!(
        refused(RunEvidence { cpu_wait_ratio: Some(1.5), ..RunEvidence::default() }),
        "seen.cpu_wait_ratio"
    );
    assert_eq!(refused(RunEvidence { cpu_quota: Some(0.0), ..RunEvidence::default() }), "seen.cpu_quota");
    assert_eq!(
        refused(RunEvidence { swapped_bytes: Some(-1.0), ..RunEvidence::default() }),
        "seen.swapped_bytes"
    );
    for ratio in [1e308, 1001.0, 0.0] {
        let far = RunEvidence { memory_distance_ratio: Some(ratio), ..RunEvidence::default() };
        assert_eq!(refused(far), "seen.memory_distance_ratio");
        let cold = RunEvidence { warming_ratio: Some(ratio), ..RunEvidence::default() };
        assert_eq!(refused(cold), "seen.warming_ratio");
    }
    for rate in [1e-320, 1e300] {
        let refusal = explain(&snapshot, &catalogue(), &at(rate)).unwrap_err();
        assert_eq!(refusal.field.as_deref(), Some("tokens_per_s"));
    }
    assert_eq!(refused(RunEvidence { cpus_allowed: Some(0), ..RunEvidence::default() }), "seen.cpus_allowed");
    let none = RunEvidence { cpus_allowed: Some(0), ..RunEvidence::default() };
    let refusal =
        explain(&snapshot, &catalogue(), &ExplainRequest { seen: Some(none), ..at(1.0) }).unwrap_err();
    assert_eq!(refusal.message, "seen.cpus_allowed is 0");
    let both = ExplainRequest { time_s: Some(1.0), ..at(1.0) };
    assert_eq!(explain(&snapshot, &catalogue(), &both).unwrap_err().field.as_deref(), Some("tokens_per_s"));
}

/// A rate that was measured earlier has no process on the GPU now; a server has one, and workers beside it.
#[test]
fn other_work_on_the_gpu_is_named_where_it_cannot_be_the_server() {
    use rooflined_core::board::details::GpuProcess;
    let mut snapshot = machine("gb10");
    let rate = 0.5 * expected(&snapshot).low;
    let process = |pid| GpuProcess {
        pid,
        name: Reading::Known("python3".to_owned()),
        memory: Reading::absent("not shown"),
    };
    let mut is_named = |processes: &[u32], load: f64, pid: Option<u32>| {
        snapshot.state.details.gpu_processes =
            Reading::Known(processes.iter().copied().map(process).collect());
        snapshot.state.gpu_load = Reading::Known(load);
        let seen = RunEvidence { pid, ..RunEvidence::default() };
        let answer = explained(&snapshot, &ExplainRequest { seen: Some(seen), ..at(rate) });
        answer.causes.iter().any(|cause| cause.cause == "gpu_shared")
    };
    assert!(is_named(&[7], 1.0, None));
    assert!(!is_named(&[7], 0.02, None), "an idle context takes no time");
    assert!(!is_named(&[], 1.0, None));
    assert!(!is_named(&[7], 1.0, Some(7)));
    assert!(is_named(&[7, 8], 1.0, Some(7)));
}

/// A rate at a capped clock is held against what is expected under that cap.
#[test]
fn a_cap_that_is_named_is_the_point_that_is_expected() {
    let snapshot = machine("gb10");
    let named = |name: &str| {
        Some(OperatingPointRequest { power_mode: Some(name.to_owned()), ..OperatingPointRequest::default() })
    };
    let capped = ExplainRequest { operating_point: named("lgc-695"), ..asked() };
    let own = explained(&snapshot, &capped).expected_tokens_per_s;
    assert!(own.value < 0.9 * expected(&snapshot).value, "{own:?}");
    let answer = explained(&snapshot, &ExplainRequest { tokens_per_s: Some(own.value), ..capped });
    assert_eq!((answer.verdict.as_str(), answer.causes.len()), ("as_expected", 0), "{answer:?}");
    assert!(answer.expected_at.contains("695 MHz"), "{}", answer.expected_at);
    let limited = ExplainRequest { operating_point: named("pl-200"), ..at(own.value) };
    let field = explain(&machine("rtx-4090"), &catalogue(), &limited).unwrap_err().field;
    assert_eq!(field.as_deref(), Some("operating_point.power_mode"));
}

/// Where nobody says which engine ran, what is as expected of one of them is no fault.
#[test]
fn a_rate_that_one_engine_gives_is_as_expected_where_none_is_named() {
    let snapshot = machine("jetson-agx-orin-64gb");
    let open = |rate: Option<f64>, model: &str| ExplainRequest {
        workload: Workload { model: Some(json!(model)), ..Workload::default() },
        tokens_per_s: rate,
        ..ExplainRequest::default()
    };
    let of = |engine, format: &str| {
        let mut request = ExplainRequest { engine, ..open(None, "llama-3.1-8b") };
        request.workload.format = Some(format.to_owned());
        explained(&snapshot, &request).expected_tokens_per_s
    };
    let llama = of(rooflined_predict::Engine::LlamaCpp, "q4_k_m");
    for model in ["llama-3.1-8b", "llama3.1:8b"] {
        let answer = explained(&snapshot, &open(Some(llama.value), model));
        assert_eq!(answer.verdict, "as_expected", "{model}: {answer:?}");
    }
    let answer = explained(&snapshot, &open(Some(0.2 * llama.low), "llama3.1:8b"));
    assert_eq!((answer.verdict.as_str(), answer.engine.as_str()), ("slower_than_expected", "llama.cpp"));
    assert!(answer.reason.contains("No engine was named"), "{}", answer.reason);
}

#[test]
fn threads_that_share_cores_are_slowed_by_that() {
    let mut snapshot = machine("cpu");
    snapshot.board.cpu.logical = 16;
    snapshot.board.cpu.cores = Reading::Known(8);
    let suspects = |allowed: u32, cores: u32| {
        let seen = RunEvidence {
            pid: Some(7),
            cpus_allowed: Some(allowed),
            cores_allowed: Some(cores),
            computing_threads: Some(8),
            ..RunEvidence::default()
        };
        process::suspects(&snapshot, &OperatingPoint::default(), &asked(), &seen)
    };
    let keys = |found: &[suspect::Suspect]| found.iter().map(|suspect| suspect.key).collect::<Vec<_>>();
    let found = suspects(8, 4);
    assert_eq!(keys(&found), ["smt"]);
    assert!(found[0].fix.ends_with("sudo taskset -a -p -c CPUS 7"), "{}", found[0].fix);
    assert_eq!(keys(&suspects(8, 8)), [""; 0]);
    assert_eq!(keys(&suspects(16, 8)), [""; 0]);
    assert_eq!(keys(&suspects(4, 2)), ["affinity", "smt"]);
}

#[test]
fn a_program_that_may_use_fewer_cpus_than_it_has_threads_is_slowed_by_its_affinity() {
    for (logical, allowed) in [(2, 1), (4, 1), (8, 3), (64, 5)] {
        let mut snapshot = machine("cpu");
        snapshot.board.cpu.logical = logical;
        snapshot.board.cpu.cores = Reading::Known(logical);
        // Some runtimes start one thread for each CPU; of others threads take turns, and one looks idle.
        for computing in [1, allowed] {
            let seen = RunEvidence {
                cpus_allowed: Some(allowed),
                computing_threads: Some(computing),
                cpu_wait_ratio: Some(1.0 - f64::from(allowed) / f64::from(logical)),
                ..RunEvidence::default()
            };
            let found = process::suspects(&snapshot, &OperatingPoint::default(), &asked(), &seen);
            let keys: Vec<&str> = found.iter().map(|suspect| suspect.key).collect();
            assert_eq!(keys, ["affinity"], "{computing} threads on {allowed} of {logical}");
        }
    }
}

#[test]
fn a_setting_that_makes_a_run_faster_is_no_cause_of_a_slow_one() {
    for key in BOARDS {
        let snapshot = machine(key);
        let low = expected(&snapshot).low;
        let faster = [
            Workload { context_tokens: Some(16), ..Workload::default() },
            Workload {
                model: Some(json!("smollm2-135m")),
                format: Some("q4_k_m".to_owned()),
                ..Workload::default()
            },
        ];
        for workload in faster {
            let seen = RunEvidence { workload: Some(workload), ..RunEvidence::default() };
            let answer = explained(&snapshot, &ExplainRequest { seen: Some(seen), ..at(0.5 * low) });
            assert_eq!(answer.causes, [], "{key}");
        }
    }
}

fn host_of(seen: RunEvidence) -> (Snapshot, RunEvidence) {
    let mut snapshot = machine("gb10");
    snapshot.board.cpu.logical = 20;
    (snapshot, RunEvidence { pid: Some(7), gpu_library: Some(true), computing_threads: Some(1), ..seen })
}

/// The CPU starts the kernels of a GPU. What it costs that it is late is not known: such causes have no figure of their own.
#[test]
fn what_holds_up_the_cpu_beside_a_gpu_is_a_possible_cause() {
    let busy = || vec![OtherProcess { pid: 9, name: "make".to_owned(), cpus: 5.0 }];
    let cases: [(&str, RunEvidence); 6] = [
        ("cpu_quota", RunEvidence { cpu_quota: Some(0.2), ..RunEvidence::default() }),
        (
            "affinity",
            RunEvidence { cpus_allowed: Some(1), computing_threads: Some(3), ..RunEvidence::default() },
        ),
        (
            "other_process",
            RunEvidence { cpu_wait_ratio: Some(0.5), others: busy(), ..RunEvidence::default() },
        ),
        (
            "low_priority",
            RunEvidence {
                cpu_wait_ratio: Some(0.5),
                nice: Some(19),
                others: busy(),
                ..RunEvidence::default()
            },
        ),
        (
            "cpu_weight",
            RunEvidence { cpu_wait_ratio: Some(0.5), cpu_weight_ratio: Some(0.01), ..RunEvidence::default() },
        ),
        (
            "page_faults",
            RunEvidence { blocked_ratio: Some(0.5), read_bytes_per_s: Some(5e7), ..RunEvidence::default() },
        ),
    ];
    for (key, seen) in cases {
        let computing = seen.computing_threads;
        let (snapshot, seen) = host_of(seen);
        let seen = RunEvidence { computing_threads: computing.or(seen.computing_threads), ..seen };
        let EstimateAnswer { value, low, .. } = expected(&snapshot);
        let request = |rate: f64| ExplainRequest { seen: Some(seen.clone()), ..at(rate) };
        let answer = explained(&snapshot, &request(0.4 * low));
        let found = answer.causes.iter().find(|cause| cause.cause == key);
        let found = found.unwrap_or_else(|| panic!("{key}: {:?}", answer.causes));
        assert_eq!(found.certainty, "possible", "{key}");
        assert_eq!(explained(&snapshot, &request(value)).causes, [], "{key} within the interval");
    }
}

#[test]
fn others_on_a_machine_that_nobody_watches_are_seen() {
    use rooflined_core::board::Load;
    let mut snapshot = Snapshot { serial: 1, ..machine("cpu") };
    snapshot.board.cpu.logical = 2;
    snapshot.board.cpu.cores = Reading::Known(2);
    snapshot.state.cores_online = Reading::Known(2);
    let mut rate_at = |load: Option<(f64, f64)>, seen: Option<RunEvidence>| {
        snapshot.state.load = load.map_or(Reading::absent("not read"), |(average_1m, busy)| {
            Reading::Known(Load { average_1m, busy_ratio: Some(busy), steal_ratio: None })
        });
        let answer = explained(&snapshot, &ExplainRequest { seen, ..asked() });
        let keys: Vec<String> = answer.causes.iter().map(|cause| cause.cause.clone()).collect();
        assert!(keys.is_empty() || keys == ["other_process"], "{keys:?}");
        (answer.measured_tokens_per_s / answer.expected_tokens_per_s.value, answer.reason)
    };
    assert!((rate_at(None, None).0 - 1.0).abs() < 1e-9);
    assert!((rate_at(Some((0.3, 0.2)), None).0 - 1.0).abs() < 1e-9, "a desktop");
    let (alone, beside_one) = (rate_at(Some((0.0, 0.0)), None).0, rate_at(Some((1.0, 0.5)), None).0);
    assert!((beside_one / alone - 0.5).abs() < 0.05, "{beside_one}");
    // Fifteen tasks on two CPUs.
    let (crowded, reason) = rate_at(Some((15.0, 1.0)), None);
    assert!(crowded < 0.2 && reason.contains("15.0 tasks that want one"), "{crowded} {reason}");
    let others = vec![OtherProcess { pid: 9, name: "cc1plus".to_owned(), cpus: 1.9 }];
    let seen = RunEvidence { runnable_tasks: Some(14.0), others, ..RunEvidence::default() };
    let (named, reason) = rate_at(None, Some(seen));
    assert!(named < 0.2 && reason.contains("cc1plus (process 9"), "{named} {reason}");
}

#[test]
fn pages_from_swap_are_told_from_those_of_a_file() {
    let snapshot = machine("cpu");
    let rate = 0.5 * expected(&snapshot).low;
    let named = |read: f64, swap: f64| {
        let seen = RunEvidence {
            blocked_ratio: Some(0.6),
            read_bytes_per_s: Some(read),
            swap_in_bytes_per_s: Some(swap),
            major_faults_per_s: Some(1000.0),
            swapped_bytes: Some(1e9),
            ..RunEvidence::default()
        };
        explained(&snapshot, &ExplainRequest { seen: Some(seen), ..at(rate) }).causes[0].cause.clone()
    };
    // What comes from swap is read from storage, too.
    assert_eq!(named(5e7, 5e7), "swap");
    assert_eq!(named(5e7, 0.0), "page_faults");
    assert_eq!(named(5e7, 1e6), "page_faults");
}

#[test]
fn a_cpu_that_stays_slow_under_load_is_a_cause_without_a_cap() {
    let mut snapshot = machine("cpu");
    snapshot.board.sources.insert("state.cpu_clocks".into(), "/sys/devices/system/cpu/cpufreq".into());
    let found = |part: f64, snapshot: &mut Snapshot| {
        snapshot.busy_clocks.cpu = Some(Hertz(4e9 * part));
        let point = OperatingPoint { cpu_clock: Some(Hertz(4e9)), ..OperatingPoint::default() };
        machine::suspects(snapshot, &point, &RunEvidence::default())
            .into_iter()
            .map(|suspect| suspect.key)
            .collect::<Vec<_>>()
    };
    assert_eq!(found(0.2, &mut snapshot), ["cpu_clock"]);
    assert_eq!(found(0.95, &mut snapshot), [""; 0]);
    snapshot.state.cpu_clocks = Reading::Known(vec![Hertz(8e8)]);
    snapshot.busy_clocks.cpu = None;
    let point = OperatingPoint { cpu_clock: Some(Hertz(4e9)), ..OperatingPoint::default() };
    assert_eq!(
        machine::suspects(&snapshot, &point, &RunEvidence::default()),
        [],
        "an idle clock says nothing"
    );
}

#[test]
fn a_clock_of_one_sample_is_no_cause() {
    let mut snapshot = machine("jetson-orin-nano-8gb-super");
    let low = expected(&snapshot).low;
    snapshot.state.gpu_clock = Reading::Known(Hertz(306e6));
    snapshot.state.gpu_load = Reading::Known(0.97);
    let answer = explained(&snapshot, &at(0.6 * low));
    assert_eq!((answer.causes.as_slice(), answer.unexplained_ratio), (&[][..], Some(1.0)));
    snapshot.busy_clocks.gpu = Some(Hertz(306e6));
    assert_eq!(explained(&snapshot, &at(0.6 * low)).causes[0].cause, "gpu_clock");
}

#[test]
fn evidence_quotes_the_files_as_they_were_read() {
    let mut snapshot = machine("cpu");
    snapshot.board.cpu.logical = 4;
    snapshot.board.cpu.cores = Reading::Known(4);
    let quota = "/sys/fs/cgroup/a/cpu.max";
    let seen = RunEvidence {
        pid: Some(7),
        cpus_allowed: Some(2),
        cpu_quota: Some(0.5),
        cpu_quota_file: Some(quota.to_owned()),
        files: [("/proc/7/status: Cpus_allowed_list", "0,3"), (quota, "50000 100000")]
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
            .into(),
        ..RunEvidence::default()
    };
    let rate = 0.1 * expected(&snapshot).low;
    let answer = explained(&snapshot, &ExplainRequest { seen: Some(seen), ..at(rate) });
    let values: Vec<&str> = answer.causes.iter().map(|cause| cause.evidence[0].value.as_str()).collect();
    assert!(values.contains(&"0,3") && values.contains(&"50000 100000"), "{values:?}");
}

#[test]
fn a_model_that_does_not_fit_was_not_measured_here() {
    use rooflined_core::units::Bytes;
    let mut snapshot = machine("cpu");
    snapshot.board.memory_total = Reading::Known(Bytes(25e9));
    let of = |pid: Option<u32>| {
        let workload = Workload {
            model: Some(json!("llama-3.1-70b")),
            format: Some("q4_k_m".to_owned()),
            ..Workload::default()
        };
        let seen = RunEvidence { pid, ..RunEvidence::default() };
        let request = ExplainRequest { workload, seen: Some(seen), ..at(5.0) };
        explain(&snapshot, &catalogue(), &request)
    };
    let refusal = of(None).unwrap_err();
    assert!(refusal.message.contains("it cannot have run here"), "{refusal:?}");
    assert!(of(Some(7)).is_ok(), "what runs is explained, from storage if it must");
}

/// The words of every cause that these say.
#[test]
fn one_thread_is_written_as_one() {
    let mut snapshot = machine("cpu");
    snapshot.board.cpu.logical = 4;
    snapshot.board.cpu.cores = Reading::Known(4);
    let seen = RunEvidence { computing_threads: Some(1), ..RunEvidence::default() };
    let found = process::suspects(&snapshot, &OperatingPoint::default(), &asked(), &seen);
    assert!(found.iter().any(|suspect| suspect.what.starts_with("1 thread instead of 4")), "{found:?}");
}

/// A state that no counter names shows in what a reference kernel reaches; what a counter does name is not blamed twice.
#[test]
fn a_reference_names_a_slow_state_or_clears_the_machine() {
    for key in BOARDS.into_iter().chain(["cpu"]) {
        let mut snapshot = machine(key);
        let low = expected(&snapshot).low;
        let explained_with = |snapshot: &Snapshot, memory: f64, product: f64| {
            let seen = RunEvidence {
                memory_ratio: Some(memory),
                product_ratio: Some(product),
                ..RunEvidence::default()
            };
            let answer = explained(snapshot, &ExplainRequest { seen: Some(seen), ..at(0.5 * low) });
            let keys: Vec<String> = answer.causes.iter().map(|cause| cause.cause.clone()).collect();
            (
                keys,
                answer.checked.into_iter().filter(|of| of.what.contains("calibration")).collect::<Vec<_>>(),
            )
        };
        let (keys, checked) = explained_with(&snapshot, 0.97, 0.9);
        assert_eq!((keys.len(), checked.len()), (0, 2), "{key}: {keys:?}");
        assert_eq!(checked[1].value.as_deref(), Some("90 %"), "{key}");
        assert_eq!(explained_with(&snapshot, 0.5, 0.9).0, ["memory_bandwidth"], "{key}");
        if key != "cpu" {
            throttle(&mut snapshot, Hertz(300e6));
            assert_eq!(
                explained_with(&snapshot, 0.5, 0.4),
                (vec!["thermal".to_owned()], Vec::new()),
                "{key}"
            );
        }
        let point = OperatingPoint {
            gpu_clock: Some(Hertz(1e9)),
            cpu_clock: Some(Hertz(2e9)),
            ..OperatingPoint::default()
        };
        let seen = RunEvidence { product_ratio: Some(0.4), ..RunEvidence::default() };
        let found = machine::suspects(&machine(key), &point, &seen);
        assert!(matches!(found[..], [Suspect { key: "slow_state", .. }]), "{key}: {found:?}");
        assert!(found[0].distance(&point) > 0.9, "a clock is supposed to be low");
    }
}
