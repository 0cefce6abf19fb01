//! `explain` of a running server: what it asks, and how it ends where the server, its model or its process cannot be seen.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::answers::{self, healthy};
use super::fake::{Fake, Received, Reply as Answer};
use super::inference::{Inference, Reply};
use super::observing::{busy, llama_server, props, start, started_with, steps};
use super::{bad, contains, run, stderr, stdout};

/// A daemon that predicts models which it knows by a key, and reads no files.
fn daemon(asked: &Received) -> Answer {
    match asked.route.as_str() {
        "/v1/predict" if asked.json().pointer("/workload/model/path").is_some() => {
            Answer::error(400, "unreadable_model", Some("workload.model.path"))
        }
        "/v1/predict" => Answer::ok(&answers::prediction(2e7, 1e7)),
        _ => healthy(asked),
    }
}

const NAMED: [&str; 3] = ["llama-3.2-1b", "--format", "q4_k_m"];

fn explain<'a>(port: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["explain", "--port", port], more].concat()
}

/// A llama-server whose model file is on another machine, or another user's.
fn with_foreign_model() -> Inference {
    llama_server(|now| json!([busy(0, 7, 100, 10 + steps(now, 200.0))]))
}

#[test]
fn a_model_that_cannot_be_read_is_not_compared_with_the_one_that_is_named() {
    let (server, fake) = (with_foreign_model(), Fake::start(daemon));
    let output = run(fake.path(), &explain(&server.port.to_string(), &NAMED));
    assert!(output.status.success(), "{}", stderr(&output));
    let sent = fake.asked_of("/v1/explain").json();
    assert_eq!(sent["workload"]["model"], "llama-3.2-1b");
    assert_eq!(sent["seen"]["workload"]["model"], Value::Null);
    let unseen = sent["seen"]["unseen"].as_array().unwrap();
    let model = unseen.iter().find(|one| one["what"] == "whether the server runs the model that you named");
    assert_eq!(model.unwrap()["reason"], "/models/x.gguf is not there");
}

#[test]
fn a_model_that_cannot_be_read_and_is_not_named_is_asked_for_before_the_server_is_watched() {
    let (server, fake) = (with_foreign_model(), Fake::start(daemon));
    let (exit, errors) = bad(fake.path(), &explain(&server.port.to_string(), &[]));
    assert_eq!(exit, 1, "{errors}");
    contains(&errors, &["/models/x.gguf is not there", "name what it runs", "hint: "]);
    assert!(server.asked("/slots") <= 1, "it was watched for nothing");
}

#[test]
fn a_server_that_does_not_tell_its_model_runs_the_one_that_is_named() {
    let server = Inference::start(|route, now| match route {
        "/props" => {
            let mut props = props();
            // From where the process stands, which another user may not see.
            props["model_path"] = json!("");
            Reply::json(&props)
        }
        "/slots" => Reply::json(&json!([busy(0, 7, 100, 10 + steps(now, 200.0))])),
        _ => Reply::missing(),
    });
    let fake = Fake::start(daemon);
    let output = run(fake.path(), &explain(&server.port.to_string(), &NAMED));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fake.asked_of("/v1/explain").json()["workload"]["model"], "llama-3.2-1b");
}

#[test]
fn servers_that_answer_nothing_usable_end_it_soon_with_what_to_do() {
    type Answering = fn(&str) -> Reply;
    let cases: [(&str, Answering); 6] = [
        ("did not answer /props within 5 s", |_| Reply::Silence),
        ("broke off its answer to /props", |_| Reply::Dropped),
        ("more than 4 MiB", |_| Reply::text("[".repeat(5 << 20))),
        ("not like an inference server", |_| Reply::text("<html>nginx</html>")),
        ("nothing that is understood", |route| match route {
            "/props" => Reply::json(&props()),
            _ => Reply::text("\u{1b}[31m[{\"id\":"),
        }),
        ("did not answer /slots within 5 s", |route| match route {
            "/props" => Reply::json(&props()),
            _ => Reply::Silence,
        }),
    ];
    std::thread::scope(|scope| {
        for (expected, answer) in cases {
            scope.spawn(move || {
                let server = Inference::start(move |route, _| answer(route));
                let fake = Fake::start(daemon);
                let (exit, errors) = bad(fake.path(), &explain(&server.port.to_string(), &NAMED));
                assert_eq!(exit, 1, "{expected}: {errors}");
                contains(&errors, &[expected, "hint: "]);
            });
        }
    });
}

#[test]
fn a_process_that_is_no_server_is_said_to_be_none() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let fake = Fake::start(daemon);
    let (exit, errors) = bad(fake.path(), &["explain", "--pid", &child.id().to_string()]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(exit, 1, "{errors}");
    contains(&errors, &["listens on no port, so it is not a server", "hint: "]);
    let (_, errors) = bad(fake.path(), &["explain", "--pid", &child.id().to_string()]);
    contains(&errors, &["does not exist or cannot be seen", "hint: "]);
}

#[test]
fn a_server_that_ends_while_it_is_watched_is_said_to_have_ended() {
    let Some((_directory, mut child, port)) = started_with(&["-m", "/m.gguf"]) else { return };
    let fake = Fake::start(daemon);
    let (sender, asked) = std::sync::mpsc::channel();
    let path = fake.path().to_owned();
    let explaining = std::thread::spawn(move || {
        let ended = bad(&path, &explain(&port, &NAMED));
        sender.send(()).unwrap();
        ended
    });
    // As soon as it is watched.
    while !fake.asked().iter().any(|asked| asked.route == "/v1/predict") {
        std::thread::sleep(Duration::from_millis(20));
        assert!(asked.try_recv().is_err(), "it ended before");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let (exit, errors) = explaining.join().unwrap();
    assert_eq!(exit, 75, "{errors}");
    contains(&errors, &["has ended", "hint: "]);
}

#[test]
fn the_model_of_a_server_in_a_container_is_read_in_the_root_of_its_process() {
    // A mount that only the server sees. Its own root and processes are those of the tests.
    let script = "mount -t tmpfs none /mnt && cp \"$1\" /mnt/config.json && shift && exec python3 \"$@\"";
    let directory = tempfile::tempdir().unwrap();
    let model = directory.path().join("config.json");
    let fields = json!({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                        "num_attention_heads": 4, "vocab_size": 100});
    std::fs::write(&model, fields.to_string()).unwrap();
    let model = model.to_str().unwrap();
    let mut wrapped = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        wrapped.args(["--user", "--map-root-user"]);
    }
    wrapped.args(["--mount", "sh", "-c", script, "sh", model]);
    let Some((_directory, mut child, port)) = start(wrapped, &["-m", "/mnt/config.json"]) else { return };
    let fake = Fake::start(|asked: &Received| match asked.route.as_str() {
        "/v1/predict" => Answer::ok(&answers::prediction(2e7, 1e7)),
        _ => healthy(asked),
    });
    let output = run(fake.path(), &explain(&port, &[]));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let sent = fake.asked_of("/v1/explain").json();
    assert_eq!(sent["workload"]["model"]["path"], format!("/proc/{}/root/mnt/config.json", child.id()));
    assert!(sent["workload"]["model"]["definition"].is_object(), "{sent}");
}

#[test]
fn two_at_once_see_the_same_server() {
    let server = with_foreign_model();
    let port = server.port.to_string();
    let began = Instant::now();
    let rates: Vec<f64> = std::thread::scope(|scope| {
        let both = [(), ()].map(|()| {
            scope.spawn(|| {
                let fake = Fake::start(daemon);
                let output = run(fake.path(), &explain(&port, &NAMED));
                assert!(output.status.success(), "{} {}", stderr(&output), stdout(&output));
                1.0 / fake.asked_of("/v1/explain").json()["time_s"].as_f64().unwrap()
            })
        });
        both.map(|one| one.join().unwrap()).into()
    });
    // Where all cores are taken, an answer is read some time after it was given.
    assert!(
        rates.iter().all(|rate| (rate / 200.0 - 1.0).abs() < 0.2),
        "{rates:?} after {:?}",
        began.elapsed()
    );
}
