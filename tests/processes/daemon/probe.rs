//! The probe child, killed and orphaned.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;

use rustix::process::Signal;

use super::harness::{Daemon, Home, eventually, get, http, is_emulated, is_gone, kill, skip};

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

#[test]
fn a_measurement_that_nobody_waits_for_any_more_is_stopped() {
    let home = Home::new();
    let daemon = home.start();
    let shapes: Vec<String> = (0..40)
        .map(|row| {
            let n = 4096 + 128 * row;
            format!(r#"{{"op":{{"kind":"gemv","n":{n},"k":4096}},"format":"fp32"}}"#)
        })
        .collect();
    let body = format!(r#"{{"workloads":[{}]}}"#, shapes.join(","));
    let mut client = UnixStream::connect(home.control()).unwrap();
    let length = body.len();
    write!(
        client,
        "POST /v1/measure HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                    Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let probe = eventually("the probe", || daemon.children().first().copied());
    drop(client);
    eventually("the probe to end", || is_gone(probe).then_some(()));
    // The place is free for the next one long before the forty would have been measured.
    eventually("the next job", || {
        let (status, _) = http(&home.control(), "POST", "/v1/calibrate", r#"{"force":true}"#);
        (200..300).contains(&status).then_some(())
    });
}

#[test]
fn the_probe_has_a_memory_limit_and_none_of_the_managers_variables() {
    let home = Home::new();
    let (daemon, probe) = calibrating(&home);
    if is_emulated(daemon.pid()) {
        skip("an emulator keeps the limits of its guest to itself");
        return;
    }
    let limits = fs::read_to_string(format!("/proc/{probe}/limits")).unwrap();
    let data = limits.lines().find(|line| line.starts_with("Max data size")).unwrap();
    assert!(!data.contains("unlimited"), "{data}");
    let environment = fs::read(format!("/proc/{probe}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains("NOTIFY_SOCKET"), "{environment}");
    let score = fs::read_to_string(format!("/proc/{probe}/oom_score_adj")).unwrap();
    assert!(score.trim().parse::<i32>().unwrap() > 0, "it goes before the daemon: {score}");
}

#[test]
fn what_a_client_was_told_is_finished_survives_a_kill() {
    let home = Home::new();
    let mut daemon = home.start();
    let body = r#"{"plan":"quick","wait":true,"force":true}"#;
    let (status, answer) = http(&home.control(), "POST", "/v1/calibrate", body);
    daemon.signal(Signal::KILL);
    daemon.wait();
    if status >= 400 {
        skip(&format!("this machine was too restless to be measured: {answer}"));
        return;
    }
    let _next = home.start();
    let record = &get(&home.query(), "/v1/calibration")["record"];
    assert!(record["measured_at_unix_s"].is_number(), "{record}");
}
