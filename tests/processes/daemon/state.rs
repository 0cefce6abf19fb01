//! What survives, and what is survived.

use std::fs;

use rustix::process::Signal;

use super::harness::{Home, degraded, eventually, get, http};

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
    // Nearly all of it: a run scatters by a few percent.
    assert!((learnt.0 / plain - 1.3).abs() < 0.05, "{learnt:?} {plain}");
    assert_eq!(learnt.1, "observed");
    let file = home.path("state").join("models.json");
    eventually("what was learnt is stored", || file.exists().then_some(()));
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
