//! Model files that a client has opened and attaches to its request.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its world does")]

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use daemon::server::Limits;
use rustix::fs::{Mode, OFlags, mkfifoat, open};
use serde_json::{Value, json};

use crate::support::attached::{answer, ask, send};
use crate::support::{Server, snapshot};

/// A llama of so many layers as a `config.json`.
fn configuration(folder: &Path, layers: u64) -> PathBuf {
    let path = folder.join(format!("config-{layers}.json"));
    let config = json!({
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": layers, "num_attention_heads": 32,
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

fn asked(model: &Value) -> Value {
    json!({"hardware": "h100", "engine": "llama.cpp", "workload": {"model": model, "context_tokens": 128}})
}

/// What is answered to a client that sends the contents of a file.
fn expected(server: &Server, path: &Path) -> Value {
    let contents = answer::modelfile::load(path).unwrap().contents();
    let body = asked(&json!({"path": path, "contents": contents})).to_string();
    let response = server.post("/v1/predict", &body);
    assert_eq!(response.status, 200, "{response:?}");
    response.json()
}

#[test]
fn a_file_that_the_client_opened_is_answered_like_its_contents_and_stays_where_it_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(snapshot(), Limits::default());
    for path in [configuration(folder.path(), 22), checkpoint(folder.path())] {
        let mut file = File::open(&path).unwrap();
        file.seek(SeekFrom::Start(5)).unwrap();
        // A file's configuration lies beside it, where nobody looks for that of a descriptor.
        for model in [json!({"fd": 0}), json!({"fd": 0, "path": path})] {
            let (status, told) = ask(&server.query(), "/v1/predict", &asked(&model), &[file.as_fd()]);
            assert_eq!(status, 200, "{told}");
            let expected = expected(&server, &path);
            assert_eq!(
                (&told["time_s"], &told["memory_bytes"]),
                (&expected["time_s"], &expected["memory_bytes"])
            );
        }
        assert_eq!(file.stream_position().unwrap(), 5);
    }
}

#[test]
fn every_route_that_takes_a_model_takes_a_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(snapshot(), Limits::default());
    let file = File::open(configuration(folder.path(), 22)).unwrap();
    let model = json!({"fd": 0, "path": "/home/somebody/m"});
    let workload = json!({"model": model, "phase": "decode"});
    for (target, body) in [
        ("/v1/recommend", json!({"hardware": "h100", "engine": "vllm", "workload": workload})),
        ("/v1/sweep", json!({"hardware": "h100", "engine": "vllm", "models": [model, "tinyllama-1.1b"]})),
        ("/v1/analyze", json!({"hardware": "h100", "workload": workload, "tokens_per_s": 1.0})),
        ("/v1/observations", json!({"engine": "llama.cpp", "workload": workload, "tokens_per_s": 1.0})),
        ("/v1/observations", json!([{"engine": "llama.cpp", "workload": workload, "tokens_per_s": 1.0}])),
    ] {
        let (status, told) = ask(&server.query(), target, &body, &[file.as_fd()]);
        assert_eq!(status, 200, "{target}: {told}");
        let (status, told) = ask(&server.query(), target, &body, &[]);
        assert_eq!((status, &told["error"]["code"]), (400, &json!("invalid_field")), "{target}: {told}");
        assert!(told["error"]["field"].as_str().unwrap().ends_with(".fd") || target == "/v1/sweep", "{told}");
    }
    let seen: Vec<_> = server.seen.try_iter().filter(|seen| seen.starts_with("Observe")).collect();
    assert!(seen.len() == 2 && seen.iter().all(|seen| seen.contains("/home/somebody/m")), "{seen:?}");
}

#[test]
fn a_descriptor_belongs_to_the_request_that_it_came_with() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(snapshot(), Limits::default());
    let (small, large) = (configuration(folder.path(), 2), configuration(folder.path(), 40));
    let files = [File::open(&small).unwrap(), File::open(&large).unwrap()];
    let mut stream = UnixStream::connect(server.query()).unwrap();
    let mut one_more = |model: Value, files: &[&File]| {
        let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        send(&stream, "/v1/predict", &asked(&model), &files);
        answer(&mut stream)
    };
    let time = |path: &Path| expected(&server, path)["time_s"].clone();
    // The words are the same and the files are not: an answer that was kept by its words would be the other's.
    assert_eq!(one_more(json!({"fd": 0}), &[&files[0]]).1["time_s"], time(&small));
    assert_eq!(one_more(json!({"fd": 0}), &[&files[1]]).1["time_s"], time(&large));
    assert_eq!(one_more(json!({"fd": 1}), &[&files[0], &files[1]]).1["time_s"], time(&large));
    assert_eq!(one_more(json!("tinyllama-1.1b"), &[&files[0]]).0, 200);
    let (status, none) = one_more(json!({"fd": 0}), &[]);
    assert_eq!((status, &none["error"]["field"]), (400, &json!("workload.model.fd")), "{none}");
    assert_eq!(one_more(json!({"fd": 0}), &[&files[0]; 90]).1["time_s"], time(&small));
    let recommended = |file: &File| {
        let body = json!({"hardware": "h100", "engine": "vllm", "workload": {"model": {"fd": 0}}});
        ask(&server.query(), "/v1/recommend", &body, &[file.as_fd()]).1["decision"]["prediction"]["time_s"]
            .clone()
    };
    assert!(recommended(&files[0])["value"].as_f64() < recommended(&files[1])["value"].as_f64());
}

#[test]
fn what_is_no_file_to_read_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(snapshot(), Limits::default());
    let path = configuration(folder.path(), 22);
    let good = File::open(&path).unwrap();
    mkfifoat(rustix::fs::CWD, folder.path().join("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    let fifo = OpenOptions::new().read(true).write(true).open(folder.path().join("fifo")).unwrap();
    fs::write(folder.path().join("text"), "first bytes").unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    let text = File::open(folder.path().join("text")).unwrap();
    let empty = File::open(folder.path().join("empty")).unwrap();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    let appender = OpenOptions::new().append(true).open(&path).unwrap();
    let named = open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let directory = File::open(folder.path()).unwrap();
    let (socket, _other) = UnixStream::pair().unwrap();
    let device = File::open("/dev/null").unwrap();
    let fd = json!({"fd": 0});
    for (model, descriptor, code, word) in [
        (&fd, None, "invalid_field", "0 descriptors came"),
        (&json!({"fd": 1}), Some(good.as_fd()), "invalid_field", "1 descriptors came"),
        (&json!({"fd": -1}), Some(good.as_fd()), "invalid_field", "no number of a descriptor"),
        (&json!({"fd": "0"}), Some(good.as_fd()), "invalid_field", "no number of a descriptor"),
        (&json!({"fd": 0, "contents": {}}), Some(good.as_fd()), "unknown_field", "contents"),
        (&json!({"fd": 0, "path": 7}), Some(good.as_fd()), "invalid_field", "path is no text"),
        (&fd, Some(directory.as_fd()), "unreadable_model", "is a directory"),
        (&fd, Some(fifo.as_fd()), "unreadable_model", "is a pipe"),
        (&fd, Some(socket.as_fd()), "unreadable_model", "is a socket"),
        (&fd, Some(device.as_fd()), "unreadable_model", "is a device"),
        (&fd, Some(writer.as_fd()), "unreadable_model", "for writing only"),
        (&fd, Some(appender.as_fd()), "unreadable_model", "for writing only"),
        (&fd, Some(named.as_fd()), "unreadable_model", "O_PATH"),
        (&fd, Some(text.as_fd()), "unreadable_model", "starts with \"firs\""),
        (&fd, Some(empty.as_fd()), "unreadable_model", "starts with \"\""),
    ] {
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        let (status, told) = ask(&server.query(), "/v1/predict", &asked(model), &descriptors);
        let error = &told["error"];
        assert_eq!((status, &error["code"]), (400, &json!(code)), "{word}: {told}");
        assert!(error["message"].as_str().unwrap().contains(word), "{word}: {told}");
        assert!(!error["hint"].as_str().unwrap().is_empty(), "{word}: {told}");
    }
    assert_eq!(server.get("/-/healthy").status, 200);
}
