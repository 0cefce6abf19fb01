//! Engine costs and the predictions of whole models, held to the published rows that came with the sources.

#![allow(clippy::unwrap_used, reason = "a missing field fails the test that asked for it")]

use std::process::{Command, Output};

use serde_json::Value;

const PUBLISHED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/published_llm.csv");
#[cfg(target_arch = "x86_64")]
const CAPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/published_caps.csv");
#[cfg(target_arch = "x86_64")]
const POWER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/published_power.csv");
const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/published_micro.csv");

#[cfg(target_arch = "x86_64")]
fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rooflined-lab")).args(arguments).output().unwrap()
}

#[cfg(target_arch = "x86_64")]
const ON_CPUS: [&str; 3] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/data/cpu_llama_cpp.csv"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/data/cpu_torch.csv"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/data/cpu_onnxruntime.csv"),
];

/// On the processor that they were fitted on: logarithms of another differ in the last digit, which a search can enlarge.
#[cfg(target_arch = "x86_64")]
#[test]
fn refitting_the_rows_gives_the_shipped_files() {
    for arguments in [
        &["fit-engines", PUBLISHED, "--check"][..],
        &["fit-cpu-engines", ON_CPUS[0], ON_CPUS[1], ON_CPUS[2], "--check"][..],
        &["fit-power", PUBLISHED, "--power", POWER, "--micro", KERNELS, "--caps", CAPS, "--check"][..],
    ] {
        let output = lab(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn models_left_out_are_predicted_within_the_goals_that_are_met() {
    let output = lab(&["evaluate", "engines", PUBLISHED, "-o", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = answer["rows"].as_array().unwrap();
    let found = |id: &str, key: &str| {
        let row = rows.iter().find(|row| row["id"] == id).unwrap();
        row["found"][key].as_f64().unwrap()
    };
    assert!(found("A", "median_error_ratio") <= 0.01);
    assert!(found("B", "median_error_ratio") <= 0.11);
    assert!(found("C", "median_error_ratio") <= 0.075);
    assert!(found("D", "median_error_ratio") <= 0.015);
    assert!(found("E", "median_error_ratio") <= 0.028);
    assert!(found("F", "median_error_ratio") <= 0.055);
    let named = |quantity: &str, key: &str| {
        let row = rows.iter().find(|row| row["quantity"].as_str().unwrap().trim() == quantity).unwrap();
        row["found"][key].as_f64().unwrap()
    };
    assert!(named("decode of several sequences", "median_error_ratio") <= 0.115);
    // 14 % is the goal; what is reached is held.
    assert!(named("prompts", "median_error_ratio") <= 0.16);
    // One- and two-bit kernels have two models, which tell little of each other: what is reached without them is held.
    assert!(
        rows.iter()
            .filter(|row| row["id"] == "" && row["found"]["mean_error_ratio"].is_number())
            .nth(1)
            .unwrap()["found"]["mean_error_ratio"]
            .as_f64()
            .unwrap()
            <= 0.105
    );
    for quantity in [
        "90 % interval, engine known",
        "several sequences",
        "prompts",
        "90 % interval, anchored",
        "another power mode",
        "another context",
    ] {
        let of = rows.iter().find(|row| {
            row["quantity"].as_str().unwrap().trim() == quantity && row["found"]["covered_ratio"].is_number()
        });
        let covered = of.unwrap()["found"]["covered_ratio"].as_f64().unwrap();
        assert!((0.86..0.94).contains(&covered), "{quantity}: {covered}");
    }
    // 46 rows: one more or less inside is 2 points.
    assert!((0.86..0.96).contains(&named("other batches", "covered_ratio")));
    assert!(named("90 % interval, engine known", "median_half_width_ratio") <= 0.22);
    assert!(named("90 % interval, anchored", "median_half_width_ratio") <= 0.10);
    let faster = rows.iter().find(|row| row["quantity"] == "predicted faster than physics").unwrap();
    assert_eq!(faster["found"]["count"], 0);
    // A row may be named here only if it is wrong, with what is wrong about it: both claim to read the weights at one and a half
    // times the bandwidth of the memory, one of several users or a draft, one of a seller of the machine.
    let refused: Vec<&str> = answer["physical_bound"]["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["id"].as_str().unwrap())
        .collect();
    assert_eq!(refused, ["n0144", "n0173"]);
    assert!(answer["physical_bound"]["rows"].as_u64().unwrap() >= 951, "second-hand rows are among them");
    assert!(faster["found"]["rows"].as_u64().unwrap() > 900);
}

/// A group in which a constant times the bandwidth over the bytes is nearer, and not used: the rows at depth are of two models, and
/// their constant would take the decodes of all other mixtures from 3 % off to 12.
#[cfg(target_arch = "x86_64")]
const WORSE_THAN_A_CONSTANT: [&str; 1] = ["boards, llama.cpp, mixtures, decode at depth"];

#[cfg(target_arch = "x86_64")]
#[test]
fn groups_of_models_left_out_are_predicted_better_than_by_a_rule_of_thumb() {
    let output = lab(&["evaluate", "groups", PUBLISHED, "-o", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let groups = answer["model"].as_array().unwrap();
    let is_named = |group: &Value| group["group"].as_str().unwrap().split(", ").count() == 4;
    let judged = groups.iter().filter(|group| is_named(group) && group["rows"].as_u64().unwrap() >= 10);
    let (worse, better): (Vec<&Value>, Vec<&Value>) =
        judged.partition(|group| group["is_worse_than_thumb"] == true && group["uses_thumb"] == false);
    assert!(better.len() >= 18, "{}", better.len());
    for group in worse {
        assert!(WORSE_THAN_A_CONSTANT.contains(&group["group"].as_str().unwrap()), "{group}");
    }
    // Rows that were added after the costs were fitted, and those of machines and sources left out: what is reached is held.
    let found = |split: &str, name: &str, figure: &str| {
        let group = answer[split].as_array().unwrap().iter().find(|group| group["group"] == name).unwrap();
        group[figure].as_f64().unwrap()
    };
    let error = |split: &str, name: &str| found(split, name, "median_error_ratio");
    for (name, time, machine, source) in [
        ("boards, decode", 0.14, 0.14, 0.11),
        ("cards, decode", 0.15, 0.13, 0.13),
        ("cards, decode at depth", 0.14, 0.21, 0.19),
        ("boards, several sequences", 0.28, 0.23, 0.21),
        ("cards, several sequences", 0.16, 0.09, 0.06),
        ("cards, prompt", 0.26, 0.12, 0.10),
    ] {
        for (split, most) in [("time", time), ("machine", machine), ("source", source)] {
            assert!(error(split, name) <= most, "{name}, {split}: {}", error(split, name));
        }
    }
    // Decodes at depth err more than others. 86 to 94 % is the goal, what is reached is held: the 22 rows of cards added later are few.
    for (split, name) in [("time", "cards"), ("model", "cards"), ("model", "boards")] {
        let covered = found(split, &format!("{name}, decode at depth"), "covered_ratio");
        assert!((0.85..=0.96).contains(&covered), "{name}, {split}: {covered}");
    }
}
