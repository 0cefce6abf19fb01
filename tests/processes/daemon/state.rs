//! What survives, and what is survived.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use serde_json::Value;

use super::harness::{Home, degraded, eventually, get, http};

const BOARD: &str = "jetson-orin-nano-8gb-super";

/// A run that took a third longer than was predicted.
fn observe(home: &Home) -> Value {
    let mut run = serde_json::json!({
        "engine": "llama.cpp", "workload": {"model": "tinyllama-1.1b", "format": "q8_0", "context_tokens": 512},
    });
    let (status, answer) = http(&home.query(), "POST", "/v1/predict", &run.to_string());
    assert_eq!(status, 200, "{answer}");
    run["time_s"] = (answer["time_s"]["value"].as_f64().unwrap() * 1.3).into();
    let (status, answer) = http(&home.query(), "POST", "/v1/observations", &run.to_string());
    assert_eq!((status, &answer["accepted"]), (200, &1.into()), "{answer}");
    answer
}

#[test]
fn a_killed_daemon_comes_back_with_its_calibration() {
    let home = Home::new();
    let file = home.calibrate();
    let stored = fs::read(&file).unwrap();
    let mut daemon = home.start();
    assert_eq!(get(&home.query(), "/v1/calibration")["record"]["measured_at_unix_s"], 1.0);
    daemon.signal(Signal::KILL);
    daemon.wait();
    assert_eq!(fs::read(&file).unwrap(), stored);
    let mut daemon = home.start();
    assert_eq!(get(&home.query(), "/v1/calibration")["record"]["measured_at_unix_s"], 1.0);
    assert_eq!(degraded(&home), "[]");
    assert!(
        daemon.notifications().iter().any(|line| line.starts_with("STATUS=calibrated")),
        "{:?}",
        daemon.notifications()
    );
}

#[test]
fn what_was_learnt_of_models_survives_a_kill() {
    const WORKLOAD: &str = r#"{"model":"tinyllama-1.1b","format":"q8_0","context_tokens":512}"#;
    let home = Home::new();
    let predicted = || {
        let body = format!(r#"{{"engine":"llama.cpp","workload":{WORKLOAD}}}"#);
        let (status, answer) = http(&home.query(), "POST", "/v1/predict", &body);
        assert_eq!(status, 200, "{answer}");
        (answer["time_s"]["value"].as_f64().unwrap(), answer["tier"].as_str().unwrap().to_owned())
    };
    let mut daemon = home.start();
    let (plain, _) = predicted();
    let body = format!(r#"{{"engine":"llama.cpp","workload":{WORKLOAD},"time_s":{}}}"#, plain * 1.3);
    let (status, answer) = http(&home.query(), "POST", "/v1/observations", &body);
    assert_eq!((status, answer["accepted"].as_u64()), (200, Some(1)), "{answer}");
    assert_eq!(answer["learnt"][0]["tier"], "observed");
    let learnt = predicted();
    // Most of it. Without ceilings a run says something about the machine too: how much depends on the processor.
    assert!((1.1..1.35).contains(&(learnt.0 / plain)), "{learnt:?} {plain}");
    assert_eq!(learnt.1, "observed");
    // What is answered is stored.
    let file = home.path("state").join("models.json");
    daemon.signal(Signal::KILL);
    daemon.wait();
    let mut daemon = home.start();
    let again = predicted();
    assert!((again.0 / learnt.0 - 1.0).abs() < 1e-6, "{again:?} {learnt:?}");
    assert_eq!(again.1, "observed");
    daemon.signal(Signal::KILL);
    daemon.wait();
    fs::write(&file, &fs::read(&file).unwrap()[..100]).unwrap();
    let _daemon = home.start();
    let said = degraded(&home);
    assert!(said.contains("models.json") && said.contains("set aside"), "{said}");
    assert!((predicted().0 / plain - 1.0).abs() < 1e-6);
}

#[test]
fn a_damaged_calibration_is_set_aside_and_said() {
    let home = Home::new();
    let file = home.calibrate();
    let whole = fs::read(&file).unwrap();
    for damaged in [&whole[..whole.len() / 2], b"", b"\0\xff{[", b"null"] {
        fs::write(&file, damaged).unwrap();
        let _daemon = home.start();
        assert_eq!(get(&home.query(), "/v1/calibration")["record"], serde_json::Value::Null);
        let said = degraded(&home);
        assert!(said.contains("calibration.json") && said.contains("set aside"), "{said}");
        let aside = fs::read_dir(home.path("state")).unwrap().filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.starts_with("calibration.json.damaged-").then_some(name)
        });
        assert!(aside.count() > 0);
        assert!(!file.exists());
    }
}

/// However soon after one another the runs are reported.
#[test]
fn what_is_acknowledged_survives_a_kill_at_once() {
    let home = Home::new();
    let mut daemon = home.start();
    let contexts = [128, 512, 1024];
    for context in contexts {
        let mut run = serde_json::json!({
            "engine": "llama.cpp",
            "workload": {"model": "tinyllama-1.1b", "format": "q8_0", "context_tokens": context},
        });
        let (_, answer) = http(&home.query(), "POST", "/v1/predict", &run.to_string());
        run["time_s"] = (answer["time_s"]["value"].as_f64().unwrap() * 1.3).into();
        let (status, answer) = http(&home.query(), "POST", "/v1/observations", &run.to_string());
        assert_eq!((status, &answer["accepted"]), (200, &1.into()), "{answer}");
    }
    daemon.signal(Signal::KILL);
    daemon.wait();
    let _daemon = home.start();
    let listed = get(&home.query(), "/v1/observations");
    let kept: Vec<u64> = listed["observations"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|run| run["context_tokens"].as_u64())
        .collect();
    assert_eq!(kept, contexts, "{listed}");
}

#[test]
fn damaged_holds_are_set_aside_and_said() {
    let home = Home::new();
    fs::create_dir_all(&home.state).unwrap();
    fs::write(home.state.join("holds.json"), "{\"schema\":1,\"kind\":\"holds\",\"content\":{").unwrap();
    let _daemon = home.start();
    let said = degraded(&home);
    assert!(said.contains("holds.json: damaged") && said.contains("set aside"), "{said}");
}

#[test]
fn without_a_state_directory_it_works_and_says_so() {
    let mut home = Home::new();
    fs::write(home.path("file"), "").unwrap();
    // The first cannot be made even by root, the second is in the way.
    for dir in ["/proc/rooflined".into(), home.path("file")] {
        home.state.clone_from(&dir);
        let mut daemon = home.start();
        let said = degraded(&home);
        assert!(said.contains(dir.to_str().unwrap()) && said.contains("--state-dir"), "{said}");
        assert_eq!(get(&home.query(), "/v1/board")["key"], "cpu");
        daemon.signal(Signal::TERM);
        assert!(daemon.wait().success());
    }
}

#[test]
fn two_daemons_do_not_write_over_what_the_other_has_learned() {
    let (first, mut second) = (Home::new(), Home::new());
    second.state = first.path("state");
    let mut daemon = first.start();
    let output = second.command().stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    let holder = format!("rooflined (process {})", daemon.pid());
    for part in [first.state.to_str().unwrap(), &holder, "--state-dir"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    observe(&first);
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    // The lock of a daemon that was killed is nobody's.
    let mut next = second.start();
    assert_eq!(get(&second.query(), "/v1/observations")["observations"].as_array().map(Vec::len), Some(1));
    next.signal(Signal::KILL);
    next.wait();
    first.start();
}

#[test]
fn a_state_directory_that_is_removed_is_made_anew_with_everything_in_it() {
    let home = Home::new();
    let start = || {
        home.start_with(|command| {
            command.args(["--simulate", BOARD]).arg("--root").arg(home.path("board"));
        })
    };
    let mut daemon = start();
    let body = r#"{"plan":"quick","wait":true,"force":true}"#;
    let (status, answer) = http(&home.control(), "POST", "/v1/calibrate", body);
    assert_eq!(status, 200, "{answer}");
    let measured = || get(&home.query(), "/v1/calibration")["record"]["measured_at_unix_s"].clone();
    let before = measured();
    fs::remove_dir_all(&home.state).unwrap();
    let answer = observe(&home);
    assert_eq!(answer["warnings"], serde_json::json!([]), "{answer}");
    eventually("all of it", || home.state.join("calibration.json").exists().then_some(()));
    assert!(home.state.join("models.json").exists());
    assert_eq!(degraded(&home), "[]");
    let mut other = Home::new();
    other.state.clone_from(&home.state);
    assert!(!other.command().output().unwrap().status.success(), "it is locked again");
    daemon.signal(Signal::KILL);
    daemon.wait();
    let _daemon = start();
    assert_eq!(measured(), before);
}

#[test]
fn who_asked_is_told_that_it_was_not_saved_and_it_is_saved_later() {
    let home = Home::new();
    let root = home.path("board");
    let mut daemon = home.start_with(|command| {
        command.args(["--simulate", BOARD]).arg("--root").arg(&root);
    });
    // No directory can be made in the place of a file, not even by root. What the daemon writes meanwhile is in the way.
    eventually("a file in its place", || {
        fs::remove_dir_all(&home.state).and_then(|()| fs::write(&home.state, "")).ok()
    });
    let body = r#"{"plan":"quick","wait":true,"force":true}"#;
    let (status, answer) = http(&home.control(), "POST", "/v1/calibrate", body);
    assert_eq!((status, &answer["error"]["code"]), (500, &"not_stored".into()), "{answer}");
    let said = answer["error"]["message"].as_str().unwrap();
    assert!(
        said.contains("the calibration is used") && said.contains(home.state.to_str().unwrap()),
        "{said}"
    );
    let measured = get(&home.query(), "/v1/calibration")["record"]["measured_at_unix_s"].clone();
    assert!(measured.is_number(), "it is used: {measured}");
    let waited = Command::new(crate::programs::rooflinectl())
        .arg("--socket")
        .arg(home.path("run"))
        .args(["calibrate", "--quick", "--wait", "--force"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&waited.stderr);
    assert_eq!(waited.status.code(), Some(1), "{said}");
    assert!(said.contains("only until rooflined ends"), "{said}");
    let answer = observe(&home);
    assert!(answer["warnings"][0].as_str().unwrap().contains("only until rooflined ends"), "{answer}");

    fs::remove_file(&home.state).unwrap();
    eventually("what was not saved", || home.state.join("calibration.json").exists().then_some(()));
    eventually("the rest of it", || home.state.join("models.json").exists().then_some(()));
    eventually("it to be said", || (degraded(&home) == "[]").then_some(()));
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success(), "{}", home.log());
}
