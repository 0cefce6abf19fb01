//! Good files are read, hostile ones refused.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;
use rooflined_core::precision::WeightFormat;

fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    (directory, path)
}

fn open(bytes: &[u8]) -> Result<TensorFile, TensorError> {
    let (_directory, path) = file("weights", bytes);
    TensorFile::open(&path)
}

fn refusal(bytes: &[u8]) -> String {
    open(bytes).unwrap_err().to_string()
}

fn safetensors(json: &str, data: &[u8]) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), data].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// A GGUF of one tensor "w", 2 rows of 32, with some metadata and `kind`'s bytes as data.
fn gguf(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(3_u64.to_le_bytes());
    bytes.extend(text("general.alignment"));
    bytes.extend([4_u32, 64].map(u32::to_le_bytes).concat());
    bytes.extend(text("tokens"));
    bytes.extend([9_u32, 8].map(u32::to_le_bytes).concat());
    bytes.extend([&2_u64.to_le_bytes()[..], &text("a"), &text("bc")].concat());
    bytes.extend(text("general.name"));
    bytes.extend(8_u32.to_le_bytes());
    bytes.extend(text("x"));
    bytes.extend(text("w"));
    bytes.extend(2_u32.to_le_bytes());
    bytes.extend([32_u64, 2].map(u64::to_le_bytes).concat());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    [&bytes, data].concat()
}

fn halves(count: u16) -> Vec<u8> {
    (0..count).flat_map(|i| quantise::encode_fp16(f32::from(i)).to_le_bytes()).collect()
}

#[test]
fn rows_are_read_in_even_strides_from_each_kind_of_file() {
    let json = r#"{"__metadata__":{"format":"pt"},"w":{"dtype":"F16","shape":[4,3],"data_offsets":[0,24]}}"#;
    let file = open(&safetensors(json, &halves(12))).unwrap();
    assert_eq!((file.kind, sizes(&file.tensors[0])), ("safetensors", (4, 3)));
    assert_eq!(file.rows(&file.tensors[0], 2).unwrap(), [0.0, 1.0, 2.0, 6.0, 7.0, 8.0]);
    assert_eq!(file.rows(&file.tensors[0], 9).unwrap().len(), 12);

    let json = r#"{"w":{"dtype":"F64","shape":[2,2],"data_offsets":[0,32]}}"#;
    let data = [1.5_f64, 2.0, -3.0, 0.1].map(f64::to_le_bytes).concat();
    let file = open(&safetensors(json, &data)).unwrap();
    assert_eq!(file.rows(&file.tensors[0], 2).unwrap(), [1.5, 2.0, -3.0, 0.1]);

    let weights: Vec<f32> = (0..64).map(|i| i as f32 - 32.0).collect();
    let packed = quantise::encode(WeightFormat::Q8_0, 2, 32, &weights).unwrap();
    let file = open(&gguf(8, &packed.bytes)).unwrap();
    assert_eq!(file.tensors[0].shape, [2, 32]);
    assert_eq!(file.rows(&file.tensors[0], 2).unwrap(), quantise::decode(&packed).unwrap());
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let json = r#"{"w":{"dtype":"F16","shape":[4,3],"data_offsets":[0,24]}}"#;
    for whole in [safetensors(json, &halves(12)), gguf(1, &halves(64))] {
        let (_directory, path) = file("cut", &whole);
        assert!(TensorFile::open(&path).is_ok());
        for length in (0..whole.len()).rev() {
            fs::File::options().write(true).open(&path).unwrap().set_len(length as u64).unwrap();
            assert!(TensorFile::open(&path).is_err(), "{length} of {}", whole.len());
        }
    }
}

#[test]
fn any_byte_may_be_any_other_without_harm() {
    let mut rng = fastrand::Rng::with_seed(4);
    let json = r#"{"w":{"dtype":"F16","shape":[4,3],"data_offsets":[0,24]}}"#;
    for whole in [safetensors(json, &halves(12)), gguf(1, &halves(64))] {
        let (_directory, path) = file("changed", &whole);
        for _ in 0..600 {
            let mut bytes = whole.clone();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(0..bytes.len());
                bytes[at] = [rng.u8(..), 0, 0xff][rng.usize(0..3)];
            }
            fs::write(&path, &bytes).unwrap();
            if let Ok(file) = TensorFile::open(&path) {
                for tensor in &file.tensors {
                    assert!(tensor.bytes <= bytes.len() as u64);
                    let _ = file.rows(tensor, 4);
                }
            }
        }
    }
}

#[test]
fn counts_and_sizes_beyond_the_file_are_refused_at_once() {
    let begun = Instant::now();
    let mut many = gguf(1, &halves(64));
    many[8..16].copy_from_slice(&1_000_000_000_u64.to_le_bytes());
    assert!(refusal(&many).contains("1000000000 tensors"), "{}", refusal(&many));
    let mut many = gguf(1, &halves(64));
    many[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(refusal(&many).contains("keys"));
    let huge = r#"{"w":{"dtype":"F16","shape":[4294967296,4294967296,2],"data_offsets":[0,24]}}"#;
    assert!(refusal(&safetensors(huge, &[0; 24])).contains("impossible shape"));
    let empty = r#"{"w":{"dtype":"I8","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}}"#;
    assert_eq!(sizes(&open(&safetensors(empty, &[])).unwrap().tensors[0]), (0, 4));
    assert!(refusal(&[&99_999_999_u64.to_le_bytes()[..], b"{"].concat()).contains("is cut: the header"));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn contradictions_are_refused_with_the_tensors_name() {
    let over = r#"{"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},
                   "b":{"dtype":"F16","shape":[2,3],"data_offsets":[10,22]}}"#;
    assert!(refusal(&safetensors(over, &[0; 24])).contains(r#"tensors "a" and "b" overlap"#));
    let wrong = r#"{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,12]}}"#;
    assert!(refusal(&safetensors(wrong, &[0; 12])).contains("takes 24 bytes and claims those from 0 to 12"));
    let backwards = r#"{"a":{"dtype":"F32","shape":[0],"data_offsets":[12,0]}}"#;
    assert!(refusal(&safetensors(backwards, &[0; 12])).contains("claims those from 12 to 0"));
    let deep = "[".repeat(100_000);
    assert!(
        refusal(&safetensors(&format!(r#"{{"__metadata__":{deep}"#), &[]))
            .contains("holds no valid header: it ends too early")
    );
    let flat =
        format!(r#"{{"a":{{"dtype":"F32","shape":[{}1],"data_offsets":[0,0]}}}}"#, "1,".repeat(1_000_000));
    assert!(refusal(&safetensors(&flat, &[])).contains("at most 8 dimensions"));
    assert!(refusal(b"PK\x03\x04 a zip archive, which older models are").contains("archive"));
    assert!(refusal(b"").contains("is empty"));
}

#[test]
fn what_is_no_file_is_refused_without_waiting() {
    let directory = tempfile::tempdir().unwrap();
    assert!(TensorFile::open(directory.path()).unwrap_err().to_string().contains("holds no .gguf"));
    let fifo = directory.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(TensorFile::open(&fifo).unwrap_err().to_string().contains("not a regular file"));
    assert!(matches!(TensorFile::open(&directory.path().join("none")), Err(TensorError::Model(_))));
}
