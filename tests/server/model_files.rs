//! Model files of which a client sends the beginning, to name the model by the answer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its world does")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rooflined::server::Limits;
use rooflined_advice::{modelfile, models};
use rooflined_core::precision::WeightFormat;
use serde_json::{Value, json};

use crate::support::{Response, Server, connect, read_response, snapshot};

/// A llama as a `config.json`.
fn configuration(folder: &Path) -> PathBuf {
    let path = folder.join("config.json");
    let config = json!({
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32,
        "num_key_value_heads": 4, "intermediate_size": 5632, "vocab_size": 32000, "torch_dtype": "bfloat16",
    });
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// A checkpoint of one layer whose weights are a hole.
fn checkpoint(folder: &Path) -> PathBuf {
    let path = folder.join("model.safetensors");
    let mut header = serde_json::Map::new();
    let mut end = 0_u64;
    for (name, shape) in [
        ("model.embed_tokens.weight", vec![512_u64, 256]),
        ("model.layers.0.self_attn.q_proj.weight", vec![256, 256]),
        ("model.layers.0.self_attn.k_proj.weight", vec![256, 256]),
        ("model.layers.0.self_attn.v_proj.weight", vec![256, 256]),
        ("model.layers.0.self_attn.o_proj.weight", vec![256, 256]),
        ("model.layers.0.mlp.gate_proj.weight", vec![704, 256]),
        ("model.layers.0.mlp.up_proj.weight", vec![704, 256]),
        ("model.layers.0.mlp.down_proj.weight", vec![256, 704]),
        ("model.norm.weight", vec![256]),
    ] {
        let begin = end;
        end += shape.iter().product::<u64>() * 2;
        header
            .insert(name.to_owned(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}));
    }
    let header = Value::Object(header).to_string();
    let mut file = File::create(&path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + end).unwrap();
    path
}

fn inspect(server: &Server, query: &str, bytes: &[u8]) -> Response {
    let mut stream: UnixStream = connect(&server.query());
    let head = format!(
        "POST /v1/models/inspect{query} HTTP/1.1\r\nhost: rooflined\r\ncontent-length: {}\r\n\r\n",
        bytes.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(bytes).unwrap();
    read_response(&mut stream)
}

fn asked(model: &Value) -> String {
    json!({"hardware": "h100", "engine": "llama.cpp", "workload": {"model": model, "context_tokens": 128}})
        .to_string()
}

#[test]
fn a_model_is_named_by_what_its_file_was_inspected_to() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(snapshot(), Limits::default());
    for path in [configuration(folder.path()), checkpoint(folder.path())] {
        let bytes = fs::read(&path).unwrap();
        let inspected = inspect(&server, &format!("?name={}", path.display()), &bytes);
        assert_eq!(inspected.status, 200, "{inspected:?}");
        let inspected = inspected.json();
        let file = modelfile::load(&path).unwrap();
        assert_eq!(inspected["definition"]["weights"], json!(file.definition().weights));
        let by_answer = server.post("/v1/predict", &asked(&inspected));
        assert_eq!(by_answer.status, 200, "{by_answer:?}");
        // What rooflinectl sends of a file that it reads itself.
        let local = models::of_file(&file, path.display().to_string(), WeightFormat::Fp16);
        if path.ends_with("config.json") {
            assert_eq!(by_answer.json(), server.post("/v1/predict", &asked(&json!(local))).json());
        }
        assert_eq!(by_answer.json()["memory_bytes"]["weights"], inspected["bytes"]);
    }
}

/// A GGUF file or a safetensors file need not be sent whole, and nothing else is taken for a model.
#[test]
fn the_header_is_enough_and_less_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(snapshot(), Limits::default());
    let bytes = fs::read(checkpoint(folder.path())).unwrap();
    let header = 8 + usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    assert_eq!(inspect(&server, "", &bytes[..header]).status, 200);
    let config = fs::read(configuration(folder.path())).unwrap();
    for (query, bytes, code) in [
        ("", &bytes[..header - 1], "unreadable_model"),
        ("", &bytes[..8], "unreadable_model"),
        ("", &config[..40], "unreadable_model"),
        ("", b"first bytes of a text", "unreadable_model"),
        ("", b"", "unreadable_model"),
        ("?name=", &config[..], "invalid_field"),
        ("?name=a%0ab", &config[..], "invalid_field"),
        ("?kv_format=q9", &config[..], "unknown_format"),
        ("?path=/etc/passwd", &config[..], "unknown_field"),
    ] {
        let refused = inspect(&server, query, bytes);
        assert_eq!((refused.status, refused.error().0.as_str()), (400, code), "{query} {refused:?}");
        assert!(!refused.json()["error"]["hint"].as_str().unwrap().is_empty());
    }
}

#[test]
fn every_route_that_takes_a_model_takes_an_inspected_one() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(snapshot(), Limits::default());
    let bytes = fs::read(configuration(folder.path())).unwrap();
    let model = inspect(&server, "?name=/home/somebody/m", &bytes).json();
    let workload = json!({"model": model, "phase": "decode"});
    for (target, body) in [
        ("/v1/recommend", json!({"hardware": "h100", "engine": "vllm", "workload": workload})),
        ("/v1/sweep", json!({"hardware": "h100", "engine": "vllm", "models": [model, "tinyllama-1.1b"]})),
        ("/v1/analyze", json!({"hardware": "h100", "workload": workload, "tokens_per_s": 1.0})),
        ("/v1/observations", json!({"engine": "llama.cpp", "workload": workload, "tokens_per_s": 1.0})),
        ("/v1/observations", json!([{"engine": "llama.cpp", "workload": workload, "tokens_per_s": 1.0}])),
    ] {
        let answered = server.post(target, &body.to_string());
        assert_eq!(answered.status, 200, "{target}: {answered:?}");
    }
    let seen: Vec<_> = server.seen.try_iter().filter(|seen| seen.starts_with("Observe")).collect();
    assert!(seen.len() == 2 && seen.iter().all(|seen| seen.contains("/home/somebody/m")), "{seen:?}");
}

/// JSON has more than one way to write a text.
#[test]
fn a_path_means_the_same_however_it_is_written() {
    let server = Server::start(snapshot(), Limits::default());
    let ask = |key: &str| {
        let body = format!(r#"{{"hardware":"h100","workload":{{"model":{{"{key}":"/nowhere/m.gguf"}}}}}}"#);
        server.post("/v1/predict", &body)
    };
    let (plain, escaped) = (ask("path"), ask(r"p\u0061th"));
    assert_eq!((plain.status, plain.error().0.as_str()), (400, "unreadable_model"));
    assert_eq!(plain.json(), escaped.json());
}
