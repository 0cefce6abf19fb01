//! Mistakes in the configuration and on the command line.

use std::process::{Output, Stdio};

use rustix::process::Signal;

use super::harness::{Home, bare, degraded, eventually, get, http};

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

/// What lies in the place of the file is neither waited for nor read to the end.
#[test]
fn what_is_no_configuration_file_is_refused_without_freezing() {
    let home = Home::new();
    let good = std::fs::read(home.path("rooflined.toml")).unwrap();
    let file = home.path("rooflined.toml");
    let mut daemon = home.start();
    let makers: [(&str, &dyn Fn()); 3] = [
        ("not a regular file", &|| {
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, &file, kind, 0o600.into(), 0).unwrap();
        }),
        ("not a regular file", &|| std::fs::create_dir(&file).unwrap()),
        ("longer than", &|| std::fs::File::create(&file).unwrap().set_len(1 << 30).unwrap()),
    ];
    for (count, (reason, make)) in makers.iter().enumerate() {
        std::fs::remove_file(&file).or_else(|_| std::fs::remove_dir(&file)).unwrap();
        make();
        daemon.signal(Signal::HUP);
        daemon.wait_notified("READY=1", 2 + count);
        let said = degraded(&home);
        assert!(said.contains(reason) && said.contains("rooflined.toml") && said.contains("stays"), "{said}");
        let output = run(&home, &["--check-config"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint(&output).contains(reason), "{}", complaint(&output));
    }
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, good).unwrap();
    daemon.signal(Signal::HUP);
    daemon.wait_notified("READY=1", 5);
    assert_eq!(degraded(&home), "[]");
}

/// Reloads beside a running calibration, a waiting client and an end that was asked for.
#[test]
fn a_reload_disturbs_nothing_that_is_under_way() {
    let home = Home::new();
    let mut daemon = home.start();
    let control = home.control();
    let client = std::thread::spawn(move || {
        http(&control, "POST", "/v1/calibrate", r#"{"plan":"full","wait":true,"force":true}"#)
    });
    eventually("the probe", || daemon.children().first().copied());
    for _ in 0..50 {
        daemon.signal(Signal::HUP);
        get(&home.query(), "/v1/state");
        // Read as a manager reads them: the sender waits for that.
        daemon.notifications();
    }
    let status = &get(&home.query(), "/v1/calibration")["status"];
    assert!(status["running"].is_number(), "{status}");
    daemon.signal(Signal::HUP);
    daemon.signal(Signal::TERM);
    daemon.signal(Signal::HUP);
    assert!(daemon.wait().success(), "{}", home.log());
    // An answer that was begun in time says that it is over.
    if let Ok((status, answer)) = client.join() {
        assert!(status >= 400, "{status} {answer}");
    }
}

#[test]
fn a_reload_takes_what_is_right_and_keeps_the_old_for_what_is_wrong() {
    let home = Home::new();
    let mut daemon = home.start();
    home.configure("[calibration]\nautomatic = maybe\n");
    daemon.signal(Signal::HUP);
    let said = eventually("the reload to be refused", || Some(degraded(&home)).filter(|said| said != "[]"));
    assert!(said.contains("rooflined.toml:2") && said.contains("stays"), "{said}");
    daemon.wait_notified("RELOADING=1", 1);
    daemon.wait_notified("READY=1", 2);

    home.configure("[calibration]\nautomatic = false\n\n[sampling]\nidle_period_s = 20\n");
    daemon.signal(Signal::HUP);
    eventually("the reload to be taken", || (degraded(&home) == "[]").then_some(()));
    daemon.wait_notified("READY=1", 3);
    get(&home.query(), "/v1/state");
}

#[test]
fn a_reload_names_each_key_that_only_a_start_takes() {
    let home = Home::new();
    let mut daemon = home.start();
    let mut reads = 1;
    // What is taken at once first: nothing waits for a start.
    for (section, line) in [
        ("calibration", "max_age_s = 3600"),
        ("control", "dwell_s = 3"),
        ("policy", "auto = \"advise\""),
        ("daemon", "root = \"/nowhere\""),
        ("daemon", "max_connections = 9"),
        ("daemon", "accelerator = \"cpu\""),
        ("hardware", "dir = \"/nowhere\""),
        ("models", "dirs = [\"/nowhere\"]"),
        ("control", "clock_modes = [\"quiet=0..900MHz\"]"),
        ("control", "actuator = \"/nowhere/actuate.sock\""),
    ] {
        home.configure(&format!("[{section}]\n{line}\n"));
        let before = home.log().len();
        daemon.signal(Signal::HUP);
        reads += 1;
        daemon.wait_notified("READY=1", reads);
        let said = home.log().split_off(before);
        let key = line.split(' ').next().unwrap();
        let waits = !["max_age_s", "dwell_s", "auto"].contains(&key);
        assert_eq!(said.contains("take effect at the next start"), waits, "{key}: {said}");
        assert_eq!(said.contains(&format!("[{section}] {key}")), waits, "{key}: {said}");
    }
}

#[test]
fn a_hint_names_the_configuration_file_in_use() {
    let home = Home::new();
    let _daemon = home.start();
    let (status, answer) = http(&home.control(), "POST", "/v1/mode", r#"{"mode":"15W"}"#);
    assert_eq!(status, 403, "{answer}");
    let hint = answer["error"]["hint"].as_str().unwrap();
    assert!(hint.contains(home.path("conf.d/control.toml").to_str().unwrap()), "{hint}");
}
