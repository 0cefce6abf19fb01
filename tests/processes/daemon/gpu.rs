//! A daemon whose accelerator is a GPU of a mock driver: calibrated, asked, measured, and lost.

use std::fs;
use std::process::Command;

use fake_cuda::{Fail, Fault, FaultKind, Scenario, install};
use serde_json::{Value, json};

use super::harness::{Daemon, Home, get, http, is_emulated, skip};

/// What the mock GPU is called, and the hardware that a user has described for it.
const NAME: &str = "Toy";
const HARDWARE: &str = r#"
key = "toy"
name = "Toy"
kind = "integrated"
compute_capability = "8.7"
sm = 2
sm_per_tpc = 2
gpu_clock_hz = 20_000_000
bus_bits = 32
memory_clock_hz = 75_000_000
bandwidth_bytes_per_s = 600_000_000
l2_bytes = 65_536
memory_bytes = 268_435_456
notes = []
[flops_per_sm_clock]
fp32 = 128
fp16 = 1024
[sources]
compute_capability = "the scenario of this test"
sm = "the scenario of this test"
sm_per_tpc = "the scenario of this test"
gpu_clock_hz = "the scenario of this test"
bus_bits = "the scenario of this test"
memory_clock_hz = "the scenario of this test"
bandwidth_bytes_per_s = "the scenario of this test"
flops_per_sm_clock = "the scenario of this test"
l2_bytes = "the scenario of this test"
memory_bytes = "the scenario of this test"
"#;

fn home() -> Home {
    home_with(HARDWARE)
}

/// With that hardware described by a user.
fn home_with(hardware: &str) -> Home {
    let home = Home::new();
    let dir = home.path("hardware");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("toy.toml"), hardware).unwrap();
    home.configure(&format!(
        "[daemon]\naccelerator = \"gpu\"\n[calibration]\nautomatic = false\ntime_limit_s = 300\n[hardware]\ndir = {dir:?}\n"
    ));
    home
}

fn start(home: &Home, scenario: &Scenario) -> Daemon {
    let dir = home.path("driver");
    fs::create_dir_all(&dir).unwrap();
    let env = install(&dir, scenario);
    home.start_with(|command: &mut Command| {
        command.envs(env);
    })
}

fn toy() -> Scenario {
    Scenario { name: NAME.into(), ..Scenario::toy() }
}

fn calibrate(home: &Home) -> (u16, Value) {
    http(&home.control(), "POST", "/v1/calibrate", r#"{"plan":"quick","wait":true,"force":true}"#)
}

fn measure(home: &Home, body: &Value) -> Value {
    let (status, answer) = http(&home.control(), "POST", "/v1/measure", &body.to_string());
    assert_eq!(status, 200, "{answer}");
    answer
}

#[test]
fn a_gpu_is_calibrated_and_measured_and_a_lost_one_costs_the_run_alone() {
    let home = home();
    let daemon = start(&home, &toy());
    if is_emulated(daemon.pid()) {
        return skip("interpreting the kernels of a calibration takes an emulator too long");
    }
    let board = get(&home.query(), "/v1/board");
    assert_eq!(board["key"], "toy", "{board}");
    let before = get(&home.query(), "/v1/roofline");
    assert_eq!(before["bandwidth_bytes_per_s"]["provenance"], "datasheet", "{before}");

    let (status, answer) = calibrate(&home);
    assert_eq!(status, 200, "{answer}");
    let roofline = get(&home.query(), "/v1/roofline");
    let close = |found: &Value, truth: f64| {
        let ratio = found["value"].as_f64().unwrap() / truth;
        assert!((0.93..1.02).contains(&ratio), "{ratio} of {found}");
        assert_eq!(found["provenance"], "measured", "{found}");
    };
    let scenario = toy();
    close(&roofline["bandwidth_bytes_per_s"], scenario.memory.dram_bytes_per_s);
    let cycles = 2.0 * scenario.clock.sm_hz;
    for (precision, class) in
        [("fp16", "f16"), ("bf16", "bf16"), ("int8", "s8"), ("int4", "s4"), ("tf32", "tf32")]
    {
        close(&roofline["compute_flops_per_s"][precision], scenario.compute.mma[class] * cycles);
    }
    let calibration = get(&home.query(), "/v1/calibration");
    let skipped = calibration["record"]["skipped"].to_string();
    assert!(skipped.contains("fp8") && skipped.contains("fp4"), "no such units on 8.7: {skipped}");
    assert!(get(&home.query(), "/v1/state")["simulated"] == json!(false), "only the driver is a mock");

    // Shapes that no plan holds, predicted vs. measured.
    let mut errors = Vec::new();
    for (n, k) in [(512, 2048), (1536, 1024), (1000, 3000)] {
        let op = json!({ "kind": "gemv", "n": n, "k": k });
        let answer = measure(&home, &json!({ "op": op, "formats": ["fp16", "int8", "q4_0", "nvfp4"] }));
        for row in answer["rows"].as_array().unwrap() {
            errors.push(row["error_ratio"].as_f64().unwrap().abs());
        }
    }
    assert_eq!(errors.len(), 12);
    errors.sort_by(f64::total_cmp);
    println!("median error of predictions against the mock GPU: {:.1} %", 100.0 * errors[errors.len() / 2]);
    assert!(errors[errors.len() / 2] <= 0.08, "{errors:?}");
    // Products of few rows are spot-checked as well.
    let op = json!({ "kind": "gemm", "m": 5, "n": 512, "k": 512 });
    let answer = measure(&home, &json!({ "op": op, "formats": ["fp16"] }));
    let rows = answer["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{answer}");
    // The reference read beside it, over that of the calibration.
    let drift = rows[0]["drift_ratio"].as_f64().unwrap_or_else(|| panic!("{answer:#}"));
    assert!((drift - 1.0).abs() < 0.2, "{answer:#}");

    // The device is lost: the old ceilings stay, and the daemon goes on.
    let fail = vec![Fail { call: "cuGraphLaunch".into(), code: 719, after: 0, times: None }];
    install(&home.path("driver"), &Scenario { fail, ..toy() });
    let (status, answer) = calibrate(&home);
    assert!(status >= 400 && answer.to_string().contains("CUDA_ERROR_LAUNCH_FAILED"), "{status} {answer}");
    assert_eq!(
        get(&home.query(), "/v1/roofline")["bandwidth_bytes_per_s"]["value"],
        roofline["bandwidth_bytes_per_s"]["value"]
    );

    // A device that is three times faster than its data sheet allows is not believed.
    install(&home.path("driver"), &Scenario { lie_fast: 3.0, ..toy() });
    let (status, answer) = calibrate(&home);
    assert!(status >= 400 && answer.to_string().contains("above_physical_bound"), "{status} {answer}");
    drop(daemon);
}

#[test]
fn a_kernel_that_faults_is_missing_from_a_record_that_has_all_else_and_does_not_run_again() {
    let home = home_with(&HARDWARE.replace("\"8.7\"", "\"12.1\""));
    let fault = vec![Fault::new("mma_nvf4", FaultKind::Fault)];
    let mut scenario = Scenario { compute_capability: [12, 1], driver_version: 13000, fault, ..toy() };
    scenario.compute.mma.insert("e4m3".into(), 2048.0);
    let daemon = start(&home, &scenario);
    if is_emulated(daemon.pid()) {
        return skip("interpreting the kernels of a calibration takes an emulator too long");
    }
    let fp4 = || {
        let (status, answer) = calibrate(&home);
        assert_eq!(status, 200, "{answer}");
        let record = get(&home.query(), "/v1/calibration")["record"].clone();
        let mut skipped =
            record["skipped"].as_array().unwrap().iter().map(|why| why.as_str().unwrap().to_owned());
        skipped.find(|why| why.contains("fp4")).unwrap_or_else(|| panic!("fp4 was not skipped: {record}"))
    };
    let said = fp4();
    assert!(said.contains("CUDA_ERROR_LAUNCH_FAILED"), "{said}");
    let roofline = get(&home.query(), "/v1/roofline");
    for ceiling in ["fp16", "bf16", "int8", "fp8"] {
        assert_eq!(roofline["compute_flops_per_s"][ceiling]["provenance"], "measured", "{roofline}");
    }
    let struck = || fs::read_to_string(home.path("driver/gpu.faults")).unwrap().lines().count();
    let before = struck();
    let said = fp4();
    assert!(said.contains("mma_nvf4 faulted with driver 560.35.03 (CUDA 13.0) on "), "{said}");
    assert!(said.contains(&home.path("state/gpu-kernels.json").display().to_string()), "{said}");
    assert_eq!(struck(), before);
}
