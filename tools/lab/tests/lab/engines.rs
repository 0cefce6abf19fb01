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
    let found = |section: &str, quantity: &str, figure: &str| {
        let mut rows = answer[section]["rows"].as_array().unwrap().iter();
        let row = rows.find(|row| row["quantity"] == quantity).unwrap_or_else(|| panic!("{quantity}"));
        row[figure].as_f64().unwrap()
    };
    // 14 % is the goal for prompts; what is reached is held.
    for (quantity, most) in [
        ("size of a file by rules", 0.01),
        ("decode, machine and model unknown", 0.11),
        ("decode, engine known, model unknown", 0.075),
        ("another power mode, one observation", 0.015),
        ("another context, one observation", 0.028),
        ("other batches, three observations", 0.055),
        ("decode of several sequences", 0.115),
        ("prompts", 0.16),
    ] {
        let error = found("errors", quantity, "median_error_ratio");
        assert!(error <= most, "{quantity}: {error}");
    }
    // One- and two-bit kernels have two models, which tell little of each other: what is reached without them is held.
    let without = "decode, engine known, model unknown, without one- and two-bit kernels";
    assert!(found("errors", without, "mean_error_ratio") <= 0.105);
    for quantity in [
        "one sequence",
        "several sequences",
        "prompts",
        "after observations",
        "another power mode",
        "another context",
    ] {
        let covered = found("intervals", quantity, "covered_ratio");
        assert!((0.86..0.94).contains(&covered), "{quantity}: {covered}");
    }
    // 46 rows: one more or less inside is 2 points.
    assert!((0.86..0.96).contains(&found("intervals", "other batches", "covered_ratio")));
    assert!(found("intervals", "one sequence", "median_half_width_ratio") <= 0.22);
    assert!(found("intervals", "after observations", "median_half_width_ratio") <= 0.10);
    let counts = &answer["counts"];
    assert_eq!(counts["predicted_faster_than_physics"], 0);
    // A row may be named here only if it is wrong, with what is wrong about it: both claim to read the weights at one and a half
    // times the bandwidth of the memory, one of several users or a draft, one of a seller of the machine.
    assert_eq!(counts["measured_faster_than_physics"], serde_json::json!(["n0144", "n0173"]));
    assert!(counts["rows_with_second_hand_ones"].as_u64().unwrap() >= 951, "second-hand rows are among them");
    assert!(counts["rows_used"].as_u64().unwrap() > 900);
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
    let groups = answer["model"]["rows"].as_array().unwrap();
    let is_named = |group: &Value| group["group"].as_str().unwrap().split(", ").count() == 4;
    let judged = groups.iter().filter(|group| is_named(group) && group["rows"].as_u64().unwrap() >= 10);
    let (worse, better): (Vec<&Value>, Vec<&Value>) =
        judged.partition(|group| group["rule_of_thumb"] == "nearer");
    assert!(better.len() >= 18, "{}", better.len());
    for group in worse {
        assert!(WORSE_THAN_A_CONSTANT.contains(&group["group"].as_str().unwrap()), "{group}");
    }
    // Rows that were added after the costs were fitted, and those of machines and sources left out: what is reached is held.
    let found = |split: &str, name: &str, figure: &str| {
        let group =
            answer[split]["rows"].as_array().unwrap().iter().find(|group| group["group"] == name).unwrap();
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
