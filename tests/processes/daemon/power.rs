//! Power that a calibration or a measurement of a simulated board finds, against what the board's own rails show.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rooflined_core::precision::WeightFormat;
use rooflined_predict::calibration::{Accelerator, GemvCase, Kernel, Plan, Step};
use rooflined_probe::Probe;
use rooflined_simulate::Simulated;
use serde_json::{Value, json};

use super::harness::{Home, eventually, get, http};

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
        accelerator: Accelerator::default(),
        cpus: Vec::new(),
        warm_up_s: 1.0,
        time_limit_s: 30.0,
        filling_s: 0.0,
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
        let scope = &answer["power_w"]["scope"];
        assert_eq!((&answer["power_source"], scope), (&json!("measured"), &json!("module")));
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
    assert_eq!(other["power_w"]["scope"], "module", "{other}");
    assert!(other["warnings"].to_string().contains("MHz only"), "{other}");
}

#[test]
fn a_measurement_tells_watts_and_joules_where_they_are_asked_for_and_where_there_is_a_meter() {
    let home = Home::new();
    let root = home.path("board");
    let _daemon = home.start_with(|command| {
        command.arg("--simulate").arg(BOARD).arg("--root").arg(&root);
    });
    let op = json!({ "kind": "gemv", "n": 5000, "k": 4352 });
    let measure = |body: Value| {
        let (status, answer) = http(&home.control(), "POST", "/v1/measure", &body.to_string());
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let plain = measure(json!({ "op": op, "formats": ["int8"] }));
    assert_eq!(plain["rows"][0]["power"], Value::Null, "{plain}");
    let answer = measure(json!({ "op": op, "formats": ["int8", "fp16"], "power": true }));
    assert_eq!(answer["simulated"], true, "{answer}");
    for (row, format) in
        answer["rows"].as_array().unwrap().iter().zip([WeightFormat::Int8, WeightFormat::Fp16])
    {
        let power = &row["power"];
        let number = |name: &str| power[name].as_f64().unwrap_or_else(|| panic!("{name}: {row:#}"));
        let (watts, idle) = (number("power_w"), number("idle_power_w"));
        let time = row["measured_time_s"]["value"].as_f64().unwrap();
        let shown = truth(&root, format);
        println!("{format}: {watts:.2} W, idle {idle:.2} W, the rail shows {shown:.2} W");
        assert!((watts / shown - 1.0).abs() < 0.1, "{watts} W, the rail shows {shown} W");
        assert!(0.0 < idle && idle < watts, "{row:#}");
        assert!((number("energy_j") / ((watts - idle) * time) - 1.0).abs() < 1e-9, "{row:#}");
        assert!((number("total_energy_j") / (watts * time) - 1.0).abs() < 1e-9, "{row:#}");
        assert!(number("readings") >= 4.0 && number("duration_s") > 0.2, "{row:#}");
        assert_eq!((&power["scope"], &power["reason"]), (&json!("module"), &Value::Null));
        assert_eq!(power["rails"].as_array().map(Vec::len), Some(1), "{row:#}");
    }
}

#[test]
fn a_measurement_without_a_meter_has_no_watts_and_says_why() {
    let home = Home::new();
    // A tree without rails, hwmon or counters: whatever this machine has, it is not in there.
    let root = home.path("nothing");
    fs::create_dir_all(root.join("proc")).unwrap();
    let _daemon = home.start_with(|command| {
        command.arg("--root").arg(&root);
    });
    let body = json!({ "op": { "kind": "gemv", "n": 256, "k": 256 }, "power": true });
    let measured = || {
        let (status, answer) = http(&home.control(), "POST", "/v1/measure", &body.to_string());
        assert_eq!(status, 200, "{answer}");
        answer
    };
    // Beside other tests a measurement may be refused as disturbed.
    let answer = eventually("a measurement that nothing disturbs", || {
        Some(measured()).filter(|answer| answer["rows"][0].is_object())
    });
    let power = &answer["rows"][0]["power"];
    for name in ["power_w", "idle_power_w", "energy_j", "total_energy_j", "duration_s", "readings"] {
        assert_eq!(power[name], Value::Null, "{answer:#}");
    }
    assert!(
        power["reason"].as_str().unwrap().contains("no power rail or energy counter can be read"),
        "{answer:#}"
    );
}
