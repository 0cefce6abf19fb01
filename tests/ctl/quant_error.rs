//! `quant-error`: without a daemon, on files that it can and cannot read.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{bad, contains, run, stderr, stdout};

const NOBODY: &str = "/nonexistent/rooflined";

fn ask(args: &[&str]) -> String {
    let output = run(Path::new(NOBODY), &[&["quant-error"], args].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stderr(&output), "");
    stdout(&output)
}

/// Weights of both signs that no 4-bit format stores exactly, deterministic.
fn weights(count: usize) -> Vec<u8> {
    (0..count).flat_map(|i| ((i as f32 * 0.7).sin() * 0.05).to_le_bytes()).collect()
}

/// A model: two matrices, an embedding, a norm and a tensor of integers.
fn model(directory: &Path) -> String {
    let places = [
        ("model.embed_tokens.weight", "F32", "[8,256]", 8192),
        ("layers.0.q.weight", "F32", "[16,256]", 16384),
        ("layers.0.down.weight", "F32", "[4,48]", 768),
        ("layers.0.norm.weight", "F32", "[256]", 1024),
        ("layers.0.ids", "I64", "[2,2]", 32),
    ];
    let (mut json, mut data, mut at) = (Vec::new(), Vec::new(), 0);
    for (name, dtype, shape, bytes) in places {
        json.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{at},{}]}}"#,
            at + bytes
        ));
        data.extend(weights(bytes / 4));
        at += bytes;
    }
    let json = format!("{{{}}}", json.join(","));
    let path = directory.join("model.safetensors");
    fs::write(&path, [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), &data].concat()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_table_names_what_was_used_what_was_refused_and_what_stood_apart() {
    let directory = tempfile::tempdir().unwrap();
    let text = ask(&[&model(directory.path()), "--formats", "fp32,int8,q4_k_m,iq2_xxs"]);
    contains(
        &text,
        &[
            "(safetensors): 2 tensors (2 fp32), 4288 of 4288 weights used",
            "1 tensor, an embedding",
            "1 tensor, of 1 dimension",
            "1 tensor, stored as I64, which is not read",
            "bits/weight",
            "exact",
            "q4_k_m: 1 refused: 48 columns are no multiple of the 256 weights of a q4_k_m block",
            "iq2_xxs: 2 refused: iq2_xxs is not implemented",
            "layers.0.q.weight",
        ],
    );
}

#[test]
fn the_json_has_the_units_in_its_keys_and_obeys_the_formula() {
    let directory = tempfile::tempdir().unwrap();
    let answer: Value =
        serde_json::from_str(&ask(&[&model(directory.path()), "--formats", "q8_0,q4_0,fp32", "-o", "json"]))
            .unwrap();
    assert_eq!(
        (&answer["tensors"], &answer["elements"], &answer["elements_used"]),
        (&2.into(), &4288.into(), &4288.into())
    );
    assert_eq!(answer["apart"].as_array().unwrap().len(), 3);
    let row = |i: usize| &answer["rows"][i];
    let number = |i: usize, key: &str| row(i)[key].as_f64().unwrap();
    assert_eq!((row(1)["format"].as_str(), number(1, "bits_per_weight")), (Some("q4_0"), 4.5));
    assert!((number(1, "snr_db") + 20.0 * number(1, "relative_rms_ratio").log10()).abs() < 1e-9);
    assert!(number(0, "snr_db") > number(1, "snr_db") + 15.0, "four bits more are some 24 dB");
    assert_eq!((&row(2)["snr_db"], number(2, "relative_rms_ratio")), (&Value::Null, 0.0));
    assert_eq!(row(1)["tensors_refused"], 1);
    assert_eq!(row(1)["worst"]["name"], "layers.0.q.weight");
}

#[test]
fn a_large_file_is_sampled_by_rows_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let answer: Value = serde_json::from_str(&ask(&[
        &model(directory.path()),
        "--max-elements",
        "1100",
        "--formats",
        "int8",
        "-o",
        "json",
    ]))
    .unwrap();
    // Shares of 4096 and 192 weights in 1100, whole rows of 256 and 48.
    assert_eq!((&answer["elements"], &answer["elements_used"]), (&4288.into(), &(4 * 256 + 48).into()));
}

#[test]
fn files_that_are_none_are_refused_with_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.npy");
    let (nobody, name) = (Path::new(NOBODY), path.to_str().unwrap());
    assert_eq!(bad(nobody, &["quant-error", name]).0, 1);
    fs::write(&path, "not weights at all").unwrap();
    let (exit, errors) = bad(nobody, &["quant-error", name]);
    assert_eq!(exit, 1);
    contains(
        &errors,
        &["is neither safetensors nor GGUF nor .npy", "hint: give a safetensors, GGUF or .npy file"],
    );
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n";
    let length = (header.len() as u16).to_le_bytes();
    fs::write(&path, [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &[0; 12]].concat()).unwrap();
    let (exit, errors) = bad(nobody, &["quant-error", name]);
    assert_eq!(exit, 1);
    contains(&errors, &["has no weights to try formats on: 1 tensor, of 1 dimension"]);
    assert_eq!(bad(nobody, &["quant-error", name, "--formats", "q4km"]).0, 2);
    assert_eq!(bad(nobody, &["quant-error", directory.path().to_str().unwrap()]).0, 1);
}
