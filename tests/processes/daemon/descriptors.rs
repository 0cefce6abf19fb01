//! Model files that clients have opened: whose they are, and that none stays open in the daemon.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use super::attached::{answer, ask, send};
use super::files::{homes, is_root};
use super::forward::small;
use super::harness::{Daemon, Home, as_nobody, eventually};

fn asked(model: &Value) -> Value {
    json!({"hardware": "h100", "engine": "llama.cpp", "workload": {"model": model}})
}

/// Whoever may open a file lets the daemon of another user read it, and nothing else of that directory.
#[test]
fn a_file_that_only_its_user_may_read_is_handed_to_the_daemon_of_another() {
    if !is_root() {
        return;
    }
    let (home, folder) = homes();
    let Some(file) = small(&home, "q8_0") else { return };
    let path = folder.path().join("m.gguf");
    fs::copy(&file, &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let daemon = home.start_with(as_nobody);
    assert!(!may_read(&daemon, &path));
    let file = File::open(&path).unwrap();
    let (status, told) = ask(&home.query(), "/v1/predict", &asked(&json!({"fd": 0})), &[file.as_fd()]);
    assert_eq!(status, 200, "{told}");
    let (status, by_path) = ask(&home.query(), "/v1/predict", &asked(&json!({"path": path})), &[]);
    assert_eq!((status, &by_path["error"]["code"]), (400, &json!("unreadable_model")));
    // What is opened for writing alone is not read, though the daemon could open a file of mode 0644 by itself.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let (status, told) = ask(&home.query(), "/v1/predict", &asked(&json!({"fd": 0})), &[writer.as_fd()]);
    assert_eq!((status, &told["error"]["code"]), (400, &json!("unreadable_model")), "{told}");
}

/// By its user and mode alone.
fn may_read(daemon: &Daemon, path: &Path) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    status.contains("\nUid:\t0\t") || fs::metadata(path).unwrap().permissions().mode() & 0o004 != 0
}

fn open_in(daemon: &Daemon) -> usize {
    fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

#[test]
fn no_descriptor_stays_open_in_the_daemon_whatever_was_asked() {
    let home = Home::new();
    let daemon = home.start();
    let path = home.path("config.json");
    let config = json!({
        "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 704, "vocab_size": 512,
    });
    fs::write(&path, config.to_string()).unwrap();
    let (file, folder) = (File::open(&path).unwrap(), File::open(home.path("")).unwrap());
    let (good, wrong) = (file.as_fd(), folder.as_fd());
    let fd = json!({"fd": 0});
    assert_eq!(ask(&home.query(), "/v1/predict", &asked(&fd), &[good]).0, 200);
    let before = open_in(&daemon);
    let mut stream = UnixStream::connect(home.query()).unwrap();
    let kinds = 6;
    for number in 0..1000 {
        let (target, model, descriptors, status) = match number % kinds {
            0 => ("/v1/predict", fd.clone(), vec![good], 200),
            1 => ("/v1/predict", fd.clone(), vec![wrong], 400),
            2 => ("/v1/predict", json!({"fd": 2}), vec![good, wrong], 400),
            3 => ("/v1/predict", json!("tinyllama-1.1b"), vec![good; 100], 200),
            4 => ("/v1/nowhere", fd.clone(), vec![good, good], 404),
            _ => {
                // A client that goes before it has an answer, or in the middle of its request.
                let gone = UnixStream::connect(home.query()).unwrap();
                send(&gone, "/v1/predict", &asked(&fd), &[good, good]);
                continue;
            }
        };
        send(&stream, target, &asked(&model), &descriptors);
        let (found, told) = answer(&mut stream);
        assert_eq!(found, status, "{number}: {told}");
    }
    drop(stream);
    eventually("every descriptor to be closed", || (open_in(&daemon) <= before).then_some(()));
}

#[test]
fn the_path_beside_a_descriptor_is_a_name_and_is_not_opened() {
    let home = Home::new();
    let _daemon = home.start();
    let path = home.path("config.json");
    fs::write(&path, r#"{"hidden_size":"secret"}"#).unwrap();
    let (status, told) = ask(&home.query(), "/v1/predict", &asked(&json!({"path": path, "fd": 0})), &[]);
    assert_eq!((status, &told["error"]["code"]), (400, &json!("invalid_field")), "{told}");
    assert!(!told.to_string().contains("secret"), "{told}");
}
