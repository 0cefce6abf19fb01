//! The probe child, killed and orphaned.

use rustix::process::Signal;

use crate::harness::{Daemon, Home, eventually, get, http, is_gone, kill};

/// A daemon whose probe runs, and the probe.
fn calibrating(home: &Home) -> (Daemon, u32) {
    let daemon = home.start();
    let (status, answer) = http(&home.control(), "POST", "/v1/calibrate", r#"{"plan":"full","force":true}"#);
    assert!((200..300).contains(&status), "{status} {answer}");
    let probe = eventually("the probe", || daemon.children().first().copied());
    (daemon, probe)
}

#[test]
fn a_killed_probe_costs_its_run_and_nothing_else() {
    let home = Home::new();
    home.calibrate();
    let (mut daemon, probe) = calibrating(&home);
    kill(probe, Signal::KILL);
    let status = eventually("the failure", || {
        let status = get(&home.query(), "/v1/calibration")["status"].clone();
        status["last_error"].is_string().then_some(status)
    });
    let reason = status["last_error"].as_str().unwrap();
    assert!(reason.contains("SIGKILL"), "{reason}");
    assert_eq!(
        get(&home.query(), "/v1/calibration")["record"]["measured_at_unix_s"],
        1.0,
        "the old one stays"
    );
    assert!(daemon.child.try_wait().unwrap().is_none(), "the daemon stays");
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
}

#[test]
fn the_probe_ends_with_the_daemon_however_that_ends() {
    for signal in [Signal::TERM, Signal::KILL] {
        let home = Home::new();
        let (mut daemon, probe) = calibrating(&home);
        daemon.signal(signal);
        daemon.wait();
        eventually("the probe to end", || is_gone(probe).then_some(()));
    }
}

#[test]
fn a_waiting_client_is_told_that_the_probe_was_killed() {
    let home = Home::new();
    let daemon = home.start();
    let control = home.control();
    let client = std::thread::spawn(move || {
        http(&control, "POST", "/v1/calibrate", r#"{"plan":"full","wait":true,"force":true}"#)
    });
    let probe = eventually("the probe", || daemon.children().first().copied());
    kill(probe, Signal::KILL);
    let (status, answer) = client.join().unwrap();
    assert!(status >= 400, "{status} {answer}");
    assert_eq!(answer["error"]["code"], "probe_failed", "{answer}");
}
