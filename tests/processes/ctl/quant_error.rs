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
            "1 tensor, stored as i64, which is not read",
            "bits/weight",
            "exact",
            "q4_k_m: 1 refused: 48 columns are not a multiple of the 256 weights of a q4_k_m block",
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
    let formats = [0, 1, 2].map(|index| row(index)["format"].as_str().unwrap());
    assert_eq!(formats, ["fp32", "q8_0", "q4_0"], "the least error first");
    assert_eq!(number(2, "bits_per_weight"), 4.5);
    assert!((number(2, "snr_db") + 20.0 * number(2, "relative_rms_ratio").log10()).abs() < 1e-9);
    assert!(number(1, "snr_db") > number(2, "snr_db") + 15.0, "four bits more are some 24 dB");
    assert_eq!((&row(0)["snr_db"], number(0, "relative_rms_ratio")), (&Value::Null, 0.0));
    assert_eq!(row(2)["tensors_refused"], 1);
    assert_eq!(row(2)["worst"]["name"], "layers.0.q.weight");
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

/// A safetensors file of tensors (name, dtype, shape, data).
fn safetensors(path: &Path, tensors: &[(&str, &str, &str, Vec<u8>)]) -> String {
    let (mut json, mut data, mut at) = (Vec::new(), Vec::new(), 0);
    for (name, dtype, shape, bytes) in tensors {
        let end = at + bytes.len();
        json.push(format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{at},{end}]}}"#));
        data.extend(bytes);
        at = end;
    }
    let json = format!("{{{}}}", json.join(","));
    fs::write(path, [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), &data].concat()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A GGUF of one matrix of 4 rows of 256.
fn gguf(path: &Path, kind: u32, data: &[u8]) -> String {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes =
        [&b"GGUF\x03\0\0\0"[..], &1u64.to_le_bytes(), &0u64.to_le_bytes(), &text("blk.0.x.weight")].concat();
    bytes.extend(2u32.to_le_bytes());
    bytes.extend([256u64, 4].map(u64::to_le_bytes).concat());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.extend(data);
    fs::write(path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn answer(args: &[&str]) -> Value {
    serde_json::from_str(&ask(&[args, &["-o", "json"]].concat())).unwrap()
}

#[test]
fn sixteen_bit_weights_of_both_kinds_of_files_have_the_same_errors() {
    let directory = tempfile::tempdir().unwrap();
    let floats: Vec<f32> = (0..1024).map(|i| (i as f32 * 0.7).sin() * 0.05).collect();
    let fp32: Vec<u8> = floats.iter().flat_map(|weight| weight.to_le_bytes()).collect();
    let fp16: Vec<u8> = floats.iter().flat_map(|weight| half::f16::from_f32(*weight).to_le_bytes()).collect();
    let bf16: Vec<u8> =
        floats.iter().flat_map(|weight| half::bf16::from_f32(*weight).to_le_bytes()).collect();
    for (dtype, kind, bytes) in [("F32", 0, fp32), ("F16", 1, fp16), ("BF16", 30, bf16)] {
        let tensors = [("blk.0.x.weight", dtype, "[4,256]", bytes.clone())];
        let one = answer(&[&safetensors(&directory.path().join("a.safetensors"), &tensors)]);
        let two = answer(&[&gguf(&directory.path().join("a.gguf"), kind, &bytes)]);
        assert_eq!(one["rows"], two["rows"], "{dtype}");
        assert_eq!((&one["kind"], &two["kind"]), (&"safetensors".into(), &"gguf".into()));
        for row in one["rows"].as_array().unwrap() {
            let (rms, loss) =
                (row["relative_rms_ratio"].as_f64().unwrap(), row["quality_loss_ratio"].as_f64().unwrap());
            assert!((loss - ((11.36 * rms * rms).exp() - 1.0)).abs() < 1e-9, "{row}");
        }
    }
}

#[test]
fn quantised_weights_are_dequantised_first_and_it_is_said() {
    let directory = tempfile::tempdir().unwrap();
    // Q8_0: blocks of an fp16 scale (1/1024) and 32 integers.
    let block = |row: usize| {
        let numbers = (0..32).map(move |i| ((row * 37 + i * 11) % 255) as u8);
        half::f16::from_f32(1.0 / 1024.0).to_le_bytes().into_iter().chain(numbers).collect::<Vec<u8>>()
    };
    let data: Vec<u8> = (0..32).flat_map(block).collect();
    let path = gguf(&directory.path().join("q.gguf"), 8, &data);
    let found = answer(&[&path, "--formats", "q8_0,q4_0"]);
    assert_eq!((&found["dequantised"], &found["stored_as"]["q8_0"]), (&true.into(), &1.into()));
    contains(
        &ask(&[&path, "--formats", "q4_0"]),
        &["already quantised: errors are against its dequantised values"],
    );
    // Scales that stand elsewhere are not looked for.
    let tensors = [("x.weight", "F8_E4M3", "[4,256]", vec![0; 1024])];
    let path = safetensors(&directory.path().join("f8.safetensors"), &tensors);
    let (exit, errors) = bad(Path::new(NOBODY), &["quant-error", &path]);
    assert_eq!(exit, 2);
    contains(&errors, &["stored as fp8_e4m3, which is not read", "hint: "]);
}

#[test]
fn nan_and_empty_tensors_stand_apart_and_do_not_spoil_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut broken = weights(512);
    broken[400..404].copy_from_slice(&f32::NAN.to_le_bytes());
    broken[800..804].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let good = ("good.weight", "F32", "[2,256]", weights(512));
    let tensors = [
        good.clone(),
        ("broken.weight", "F32", "[2,256]", broken),
        ("none.weight", "F32", "[0,256]", Vec::new()),
    ];
    let path = safetensors(&directory.path().join("a.safetensors"), &tensors);
    let alone = safetensors(&directory.path().join("b.safetensors"), &[good]);
    let found = answer(&[&path, "--formats", "q8_0,nf4"]);
    assert_eq!(found["rows"], answer(&[&alone, "--formats", "q8_0,nf4"])["rows"]);
    let text = found["apart"].to_string();
    contains(&text, &["broken.weight", "2 of 512 weights read are NaN or infinite", "none.weight", "empty"]);
}

/// Zeros take no room on the disk, and what is read of them is bounded whatever the file's size.
#[test]
fn five_gigabytes_are_sampled_within_bounded_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.safetensors");
    let json = r#"{"x.weight":{"dtype":"BF16","shape":[655360,4096],"data_offsets":[0,5368709120]}}"#;
    let file = fs::File::create(&path).unwrap();
    fs::write(&path, [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat()).unwrap();
    file.set_len(8 + json.len() as u64 + 5_368_709_120).unwrap();
    // 512 MiB of addresses are a tenth of the file.
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 524288; exec \"$0\" quant-error \"$1\" --formats q4_0 -o json"])
        .arg(crate::programs::rooflinectl())
        .arg(&path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["elements"], 2_684_354_560_u64);
    assert!(found["elements_used"].as_u64().unwrap() <= 1 << 24);
}

#[test]
fn files_that_are_none_are_refused_with_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.safetensors");
    let (nobody, name) = (Path::new(NOBODY), path.to_str().unwrap());
    assert_eq!(bad(nobody, &["quant-error", name]).0, 2);
    fs::write(&path, "not weights at all").unwrap();
    let (exit, errors) = bad(nobody, &["quant-error", name]);
    assert_eq!(exit, 2);
    contains(&errors, &["x.safetensors", "hint: "]);
    safetensors(&path, &[("norm.weight", "F32", "[3]", weights(3))]);
    let (exit, errors) = bad(nobody, &["quant-error", name]);
    assert_eq!(exit, 2);
    contains(&errors, &["has no weights to try formats on: 1 tensor, of 1 dimension"]);
    assert_eq!(bad(nobody, &["quant-error", name, "--formats", "q4km"]).0, 2);
    assert_eq!(bad(nobody, &["quant-error", directory.path().to_str().unwrap()]).0, 2);
}
