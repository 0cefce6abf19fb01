//! Mistakes in the configuration and on the command line.

use std::process::{Output, Stdio};

use rustix::process::Signal;

use super::harness::{Home, bare, degraded, eventually, get};

fn run(home: &Home, more: &[&str]) -> Output {
    home.command().args(more).stderr(Stdio::piped()).output().unwrap()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_mistake_is_named_with_its_line_and_stops_the_start() {
    let home = Home::new();
    home.configure("[sampling]\nperiod_s = 1\nperoid_s = 2\n");
    for more in [&[][..], &["--check-config"]] {
        let output = run(&home, more);
        assert_eq!(output.status.code(), Some(1));
        let said = complaint(&output);
        assert!(said.contains("rooflined.toml:3"), "{said}");
        assert!(said.contains("period_s"), "the nearest key: {said}");
        assert!(said.contains("--check-config"), "what to do next: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    assert!(!home.query().exists());
}

#[test]
fn a_right_configuration_checks_without_a_daemon() {
    let home = Home::new();
    let output = run(&home, &["--check-config"]);
    assert!(output.status.success(), "{}", complaint(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("rooflined.toml"));
    assert!(!home.query().exists());
}

#[test]
fn a_file_that_was_asked_for_must_exist() {
    let output = bare().args(["--config", "/nonexistent/r.toml", "--check-config"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("/nonexistent/r.toml"), "{}", complaint(&output));
}

#[test]
fn a_wrong_option_is_a_usage_error() {
    for wrong in [&["--sockets", "x"][..], &["--bus", "sytem"], &["server"]] {
        let output = bare().args(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(complaint(&output).contains("--help"), "what to do next: {}", complaint(&output));
    }
}

#[test]
fn a_reload_takes_what_is_right_and_keeps_the_old_for_what_is_wrong() {
    let home = Home::new();
    let mut daemon = home.start();
    home.configure("[calibration]\nautomatic = maybe\n");
    daemon.signal(Signal::HUP);
    let said = eventually("the reload to be refused", || Some(degraded(&home)).filter(|said| said != "[]"));
    assert!(said.contains("rooflined.toml:2") && said.contains("kept"), "{said}");
    daemon.wait_notified("RELOADING=1", 1);
    daemon.wait_notified("READY=1", 2);

    home.configure("[calibration]\nautomatic = false\n\n[sampling]\nidle_period_s = 20\n");
    daemon.signal(Signal::HUP);
    eventually("the reload to be taken", || (degraded(&home) == "[]").then_some(()));
    daemon.wait_notified("READY=1", 3);
    get(&home.query(), "/v1/state");
}
