//! What survives, and what is survived.

use std::fs;

use rustix::process::Signal;

use crate::harness::{Home, degraded, get};

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
    assert!(daemon.told().iter().any(|line| line.starts_with("STATUS=calibrated")), "{:?}", daemon.told());
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
