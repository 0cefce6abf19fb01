//! Files of `random_gguf.py`: the reader finds in them what the script says it writes.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Hidden, heads, key/value heads, inner, vocabulary, layers of the script's models as they are written here.
struct Shape {
    key: &'static str,
    hidden: u64,
    heads: u64,
    kv_heads: u64,
    inner: u64,
    vocab: u64,
    layers: u64,
    tied: bool,
    bias: bool,
}

const SHAPES: [Shape; 3] = [
    Shape {
        key: "small",
        hidden: 256,
        heads: 4,
        kv_heads: 2,
        inner: 704,
        vocab: 2048,
        layers: 4,
        tied: false,
        bias: false,
    },
    Shape {
        key: "tinyllama",
        hidden: 2048,
        heads: 32,
        kv_heads: 4,
        inner: 5632,
        vocab: 256,
        layers: 1,
        tied: false,
        bias: false,
    },
    Shape {
        key: "qwen2.5-0.5b",
        hidden: 896,
        heads: 14,
        kv_heads: 2,
        inner: 4864,
        vocab: 512,
        layers: 2,
        tied: true,
        bias: true,
    },
];

#[test]
fn files_with_random_weights_are_inspected_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/random_gguf.py");
    for shape in &SHAPES {
        for (format, elements, bytes) in
            [("fp32", 1, 4), ("fp16", 1, 2), ("bf16", 1, 2), ("q8_0", 32, 34), ("q4_0", 32, 18)]
        {
            let path = folder.path().join(format!("{}-{format}.gguf", shape.key));
            let written = Command::new("python3")
                .arg(&script)
                .args([shape.key, format])
                .arg(&path)
                .args(["--layers", &shape.layers.to_string(), "--vocab", &shape.vocab.to_string()])
                .output();
            let Ok(written) = written else {
                let strict = std::env::var("ROOFLINED_STRICT").is_ok_and(|value| value == "1");
                assert!(
                    !strict,
                    "there is no python3 to write a model, and ROOFLINED_STRICT=1 forbids to skip"
                );
                println!("SKIPPED: there is no python3 to write a model");
                return;
            };
            assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
            let answer = inspected(&path);

            let kv = shape.hidden / shape.heads * shape.kv_heads;
            let stored = |weights: u64| weights / elements * bytes;
            let layer =
                2 * shape.hidden * shape.hidden + 2 * kv * shape.hidden + 3 * shape.inner * shape.hidden;
            let bias = if shape.bias { 4 * (shape.hidden + 2 * kv) } else { 0 };
            let norms = 4 * shape.hidden * (2 * shape.layers + 1);
            let table = stored(shape.vocab * shape.hidden);
            let read = shape.layers * (stored(layer) + bias) + norms + table;
            let whole = if shape.tied { read } else { read + table };
            assert_eq!(answer["bytes"], whole as f64, "{} {format}", shape.key);
            assert_eq!(answer["bytes_per_token"], read as f64, "{} {format}", shape.key);
            assert_eq!(answer["kv_bytes_per_token"], (2 * 2 * shape.layers * kv) as f64);
            assert_eq!(answer["layers"]["full_attention"], shape.layers);
            // The usual mix of this name keeps its head in six bits, and these files are all of one storage.
            let warnings = answer["warnings"].as_array().unwrap();
            let expected = |text: &str| format == "q4_0" && text.starts_with("labelled q4_0");
            assert!(warnings.iter().all(|text| expected(text.as_str().unwrap())), "{} {format}", shape.key);
            // The header takes the rest: at least the names of the tokens, at most a hundred bytes for each and a page.
            let length = std::fs::metadata(&path).unwrap().len();
            assert!(length > whole && length < whole + 100 * shape.vocab + 16_384, "{length} {whole}");
        }
    }
}

fn inspected(path: &Path) -> Value {
    let output = Command::new(crate::programs::rooflinectl())
        .args(["models", "inspect"])
        .arg(path)
        .args(["-o", "json"])
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
