//! Power that a calibration of a simulated board measures, against what the board's own rails show.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rooflined::bench::{Probe, Simulated};
use rooflined::calibration::{GemvCase, Kernel, Plan, Step};
use rooflined::precision::WeightFormat;
use serde_json::{Value, json};

use crate::harness::{Home, get, http};

const BOARD: &str = "jetson-orin-nano-8gb-super";
const RAIL: &str = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1";

/// Power of the rail at the input of the module.
fn rail(root: &Path) -> f64 {
    let milli = |file: &str| -> f64 {
        fs::read_to_string(root.join(RAIL).join(file)).unwrap().trim().parse::<f64>().unwrap() / 1e3
    };
    milli("in1_input") * milli("curr1_input")
}

/// What the board draws while it does an operation again and again: no part of what the daemon measured.
fn truth(root: &Path, format: WeightFormat) -> f64 {
    let plan = Plan {
        steps: Vec::new(),
        holds: Vec::new(),
        models: Vec::new(),
        cpus: Vec::new(),
        warm_up_s: 1.0,
        time_limit_s: 30.0,
        memory_limit_bytes: 1 << 30,
        seed: 3,
    };
    let kernel = Kernel::Gemv { n: 5000, k: 4352, columns: 1, format, case: GemvCase::Dram };
    let step = Step { kernel, threads: 8, budget_s: 0.1 };
    let mut probe = Simulated::new(root, &plan).unwrap();
    probe.hold(&step, Duration::from_millis(600), &|| false).unwrap();
    rail(root)
}

fn predicted(home: &Home, format: WeightFormat) -> Value {
    let op = json!({ "kind": "gemv", "n": 5000, "k": 4352 });
    let body = json!({ "workload": { "op": op, "format": format.key() } });
    let (status, answer) = http(&home.query(), "POST", "/v1/predict", &body.to_string());
    assert_eq!(status, 200, "{answer}");
    answer
}

#[test]
fn after_a_calibration_the_watts_of_a_simulated_board_are_measured_and_within_their_interval() {
    let home = Home::new();
    let root = home.path("board");
    let _daemon = home.start_with(|command| {
        command.arg("--simulate").arg(BOARD).arg("--root").arg(&root);
    });
    let before = get(&home.query(), "/v1/roofline");
    assert_eq!(before["power"]["power_source"], "prior", "{before}");
    assert!(before["power"]["reason"].as_str().unwrap().contains("rooflinectl calibrate"), "{before}");
    let (status, answer) =
        http(&home.control(), "POST", "/v1/calibrate", r#"{"plan":"full","wait":true,"force":true}"#);
    assert_eq!(status, 200, "{answer}");
    let power = &get(&home.query(), "/v1/roofline")["power"];
    assert_eq!(power["power_source"], "measured", "{power:#}");
    assert_eq!(power["power_from"], "module");
    assert_eq!(power["reason"], Value::Null);
    let points = power["points"].as_array().unwrap();
    assert_eq!(points[0]["load"], "idle");
    assert!(
        points.iter().all(|point| point["power_w"].as_f64().is_some_and(|watts| watts > 4.0)),
        "{power:#}"
    );
    let record = get(&home.query(), "/v1/calibration")["record"].clone();
    assert_eq!(record["regimes"][0]["power_points"].as_array().map(Vec::len), Some(points.len()));
    assert_eq!(record["power"]["rails"], "module");
    for format in [WeightFormat::Fp16, WeightFormat::Int8, WeightFormat::Q8_0, WeightFormat::Q4_0] {
        let answer = predicted(&home, format);
        assert_eq!((&answer["power_source"], &answer["power_from"]), (&json!("measured"), &json!("module")));
        let watts = truth(&root, format);
        let bound = |name: &str| answer["power_w"][name].as_f64().unwrap();
        println!("{format}: {watts:.2} W, predicted {:.2}", bound("value"));
        assert!(
            (bound("low")..=bound("high")).contains(&watts),
            "{format}: {watts} W, {}",
            answer["power_w"]
        );
    }
    // Another mode is carried, in the same rails, and says so.
    let (_, other) = http(
        &home.query(),
        "POST",
        "/v1/predict",
        r#"{"operating_point":{"power_mode":"7W"},"workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8"}}"#,
    );
    assert_eq!(other["power_from"], "module", "{other}");
    assert!(other["warnings"].to_string().contains("never measured below"), "{other}");
}
