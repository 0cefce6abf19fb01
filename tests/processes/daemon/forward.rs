//! Models with random weights, run by the probe of a real daemon. No time is asserted: only that answers exist, agree with
//! each other and with physics.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::files::inspected;
use super::harness::{Home, http, missing};

/// A model of 2.9 million weights in the format; `None` without Python.
pub fn small(home: &Home, format: &str) -> Option<PathBuf> {
    small_of(home, format, 704)
}

/// The same with another inner width: super-blocks of 256 weights need a multiple of that.
pub fn small_of(home: &Home, format: &str, inner: u32) -> Option<PathBuf> {
    let path = home.path(&format!("small-{format}.gguf"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/random_gguf.py");
    let written = Command::new("python3")
        .arg(script)
        .args(["small", format, "--inner", &inner.to_string()])
        .arg(&path)
        .output();
    let Ok(written) = written else {
        missing("python3", "write a model");
        return None;
    };
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    Some(path)
}

pub fn ctl(home: &Home, args: &[&str]) -> Output {
    Command::new(crate::programs::rooflinectl())
        .arg("--socket")
        .arg(home.path("run"))
        .args(args)
        .env_clear()
        .env("LANG", "C.UTF-8")
        .output()
        .unwrap()
}

fn measure(home: &Home, workload: &Value) -> (u16, Value) {
    http(&home.control(), "POST", "/v1/measure", &json!({ "workload": workload }).to_string())
}

#[test]
fn a_model_is_compared_with_its_prediction_from_end_to_end() {
    let home = Home::new();
    home.calibrate();
    let _daemon = home.start();
    let Some(q8) = small(&home, "q8_0") else { return };
    let args = ["compare", q8.to_str().unwrap(), "--batches", "1,3", "--contexts", "0,17", "-o", "json"];
    let output = ctl(&home, &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let compared: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = compared["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{compared}");
    for (index, row) in rows.iter().enumerate() {
        let op = &row["op"];
        let (batch, context) = ([1.0, 3.0][index % 2], [0, 17][index / 2]);
        assert_eq!(op["kind"], "model");
        assert_eq!(op["phase"], "decode");
        assert_eq!(op["batch"].as_f64(), Some(batch));
        assert_eq!(op["context_tokens"], context);
        assert_eq!(row["format"], "q8_0");
        let measured = row["measured_time_s"]["value"].as_f64().unwrap();
        let predicted = row["predicted_time_s"]["value"].as_f64().unwrap();
        // 2.9 million weights of a byte or more: no machine's caches give two terabytes a second to a probe.
        assert!(measured > 2.9e6 / 2e12, "{row}");
        assert!(predicted >= row["roofline_time_s"].as_f64().unwrap(), "{row}");
        let error = row["error_ratio"].as_f64().unwrap();
        assert!((error - (predicted - measured) / measured).abs() < 1e-9, "{row}");
        let rate = row["measured_tokens_per_s"]["value"].as_f64().unwrap();
        assert!((rate * measured / batch - 1.0).abs() < 1e-9, "{row}");
        assert!(row["runs"].as_u64().unwrap() >= 3);
    }
    assert!(compared["median_error_ratio"].is_number() && compared["verdict"].is_string());
    assert_eq!(compared["skipped"], json!([]));
    let human = ctl(&home, &["compare", q8.to_str().unwrap(), "--batches", "1", "--contexts", "0"]);
    let human = String::from_utf8(human.stdout).unwrap();
    for word in ["small-q8_0.gguf", "tokens/s", "90 % interval", "median error"] {
        assert!(human.contains(word), "{word}: {human}");
    }
}

#[test]
fn what_cannot_be_run_is_refused_with_the_reason() {
    let home = Home::new();
    home.calibrate();
    let _daemon = home.start();
    let Some(file) = small(&home, "q4_0") else { return };
    let path: Value = inspected(&home, file.to_str().unwrap());
    let cut = home.path("cut.gguf");
    let whole = fs::read(&file).unwrap();
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let cases = [
        (json!({"model": path, "batch": 0}), "invalid_dimension", "batch is 0"),
        (json!({"model": path, "batch": 65}), "invalid_dimension", "batch is 65"),
        (
            json!({"model": path, "batch": 64, "context_tokens": 67_000_000}),
            "unsupported_workload",
            "available",
        ),
        (json!({"model": path, "context_tokens": 1_u64 << 40}), "invalid_dimension", "tokens"),
        (json!({"model": path, "phase": "prefill"}), "unsupported_workload", "one token"),
        (json!({"model": path, "kv_format": "q8_0"}), "unsupported_workload", "fp16"),
        (json!({"model": path, "format": "q4_k_m"}), "unsupported_workload", "stored as q"),
        (json!({"model": path, "format": "q9"}), "unknown_format", "q9"),
        (json!({"model": {"path": cut}}), "unreadable_model", "not in a directory"),
        (json!({"model": {"path": "small.gguf"}}), "unreadable_model", "not in a directory"),
        (json!({"model": {"path": home.path("gone.gguf")}}), "unreadable_model", "not in a directory"),
        (json!({"model": "tinylama-1.1b", "format": "fp16"}), "unsupported_workload", "tinyllama-1.1b"),
        (json!({"model": 7}), "unsupported_workload", "give one of these"),
    ];
    for (workload, code, word) in cases {
        let (status, answer) = measure(&home, &workload);
        let error = &answer["error"];
        assert_eq!(status, 400, "{workload}: {answer}");
        assert_eq!(error["code"], code, "{workload}: {answer}");
        assert!(error["message"].as_str().unwrap().contains(word), "{workload}: {answer}");
        assert!(!error["hint"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_file_that_vanishes_between_two_questions_is_missed_and_nothing_else_suffers() {
    let home = Home::new();
    home.calibrate();
    let _daemon = home.start();
    let Some(file) = small(&home, "fp16") else { return };
    let compare = || ctl(&home, &["compare", file.to_str().unwrap(), "--batches", "1", "--contexts", "3"]);
    assert!(compare().status.success());
    fs::remove_file(&file).unwrap();
    let missed = compare();
    assert_eq!(missed.status.code(), Some(1), "{missed:?}");
    assert!(String::from_utf8_lossy(&missed.stderr).contains("there is no file"), "{missed:?}");
    let op = json!({"op": {"kind": "gemv", "n": 64, "k": 64}, "format": "fp32"});
    assert_eq!(measure(&home, &op).0, 200);
}
