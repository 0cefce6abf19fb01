//! `rooflinectl tiling` without a daemon, and `POST /v1/tiling` with one.

#![allow(clippy::unwrap_used, reason = "a missing field fails the test that asked for it")]

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{Server, short_limits, snapshot};

fn tiling(arguments: &[&str]) -> Output {
    Command::new(crate::support::programs::rooflinectl())
        .env("ROOFLINED_SOCKET", "/nonexistent")
        .arg("tiling")
        .args(arguments)
        .output()
        .unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = tiling(&[arguments, &["-o", "json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_command_ranks_tiles_without_a_daemon() {
    let answer = json(&["512", "4096", "4096", "--hardware", "jetson-orin-nano-8gb-super", "--mode", "15W"]);
    assert_eq!(answer["sm_online"], 8);
    assert_eq!(answer["gpu_hz"], 612e6);
    assert_eq!(answer["limits"]["compute_capability"], "8.7");
    let candidates = answer["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 8);
    assert!(candidates.is_sorted_by_key(|tile| tile["time_s"].as_f64().unwrap()));
    let bound = answer["roofline_time_s"].as_f64().unwrap();
    assert!(candidates.iter().all(|tile| tile["time_s"].as_f64().unwrap() >= bound));
    let first = &candidates[0];
    let tiles =
        512_u64.div_ceil(first["m"].as_u64().unwrap()) * 4096_u64.div_ceil(first["n"].as_u64().unwrap());
    assert_eq!(first["tiles"], tiles * first["split_k"].as_u64().unwrap());
    assert!(answer["reason"].as_str().unwrap().contains("Next: "));
}

#[test]
fn the_table_for_people_names_the_accelerator_and_the_page() {
    let output = tiling(&["8", "14336", "4096", "--hardware", "gb10", "--format", "q4_k_m", "--limit", "3"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["gemm 8x14336x4096 q4_k_m", "48 SM", "12.1", "docs/internals/tiling.md"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn wrong_questions_are_usage_errors_that_say_what_to_do() {
    for (arguments, found) in [
        (&["0", "1", "1", "--hardware", "gb10"][..], "M is \"0\""),
        (&["1", "1099511627776", "1", "--hardware", "gb10"], "N is \"1099511627776\""),
        (&["1", "1", "-5", "--hardware", "gb10"], "K is \"-5\""),
        (&["1", "1", "--hardware", "gb10"], "3 values"),
        (&["1", "1", "1", "--hardware", "gb11"], "did you mean gb10"),
        (&["1", "1", "1", "--hardware", "gb10", "--format", "fp17"], "fp1"),
        (&["1", "1", "1", "--hardware", "gb10", "--limit", "1000"], "limit is 1000"),
        (&["1", "1", "1", "--hardware", "jetson-agx-orin-64gb", "--mode", "99W"], "no power mode"),
        (&["1", "1", "1", "--hardware", "cpu"], "hardware list"),
    ] {
        let output = tiling(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {stderr}");
        assert!(stderr.contains(found), "{found}: {stderr}");
    }
    assert_eq!(tiling(&["8", "8", "8"]).status.code(), Some(69), "this machine needs its daemon");
}

#[test]
fn the_daemon_answers_for_other_hardware_and_refuses_its_own_cpu() {
    let server = Server::start(snapshot(), short_limits());
    let asked = r#"{"hardware":"h100","m":4096,"n":4096,"k":4096,"format":"fp16","limit":2}"#;
    let answer = server.post("/v1/tiling", asked).json();
    assert_eq!(answer["hardware"], "h100-sxm");
    assert_eq!(answer["candidates"].as_array().unwrap().len(), 2);
    let (code, _) = server.post("/v1/tiling", r#"{"m":1,"n":1,"k":1}"#).error();
    assert_eq!(code, "unsupported_workload");
    for (body, expected) in [
        (r#"{"hardware":"h100","m":0,"n":1,"k":1}"#, "invalid_dimension"),
        (r#"{"hardware":"h100","m":1,"n":1,"k":1099511627776}"#, "invalid_dimension"),
        (r#"{"hardware":"h100","m":1,"n":1,"k":1,"format":"x"}"#, "unknown_format"),
        (r#"{"hardware":"h100","m":1,"n":1,"k":1,"limit":0}"#, "invalid_field"),
        (r#"{"hardware":"h100","m":1,"n":1}"#, "missing_field"),
        (r#"{"hardware":"h100","m":1,"n":1,"k":1,"tile":1}"#, "unknown_field"),
        (r#"{"hardware":"h100","m":1,"n":1,"k":1,"operating_point":{"gpu_hz":1830}}"#, "invalid_field"),
        (r#"{"hardware":"h100","m":1,"n":1,"k":1,"operating_point":{"sm_online":0}}"#, "invalid_field"),
        (r#"{"hardware":"h100","m":1,"n":1,"k":1,"operating_point":{"power_mode":"x"}}"#, "unknown_mode"),
        (r#"{"hardware":"i286","m":1,"n":1,"k":1}"#, "unknown_hardware"),
    ] {
        assert_eq!(server.post("/v1/tiling", body).error().0, expected, "{body}");
    }
}
