//! `rooflinectl doctor --report` on every simulated board: what it finds, what it leaves as it was, what it does not tell.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rooflined_simulate::Simulation;
use rustix::process::Signal;
use serde_json::Value;

use super::harness::{Daemon, Home, eventually, get, kill};

const SERIAL: &str = "1424922123456";
const USER: &str = "violetta";

/// A daemon that may switch modes on a simulated board, whose directory holds what tells who and which it is.
fn board(home: &Home, key: &str) -> (Daemon, PathBuf) {
    home.configure("[calibration]\nautomatic = false\n[control]\nenabled = true\n");
    let root = home.path("board");
    let daemon = home.start_with(|command| {
        command.arg("--simulate").arg(key).arg("--root").arg(&root);
    });
    fs::create_dir_all(root.join("proc/device-tree")).unwrap();
    fs::write(root.join("proc/device-tree/serial-number"), format!("{SERIAL}\0")).unwrap();
    (daemon, root)
}

fn report(socket: &Path, root: &Path, file: &Path) -> Command {
    let mut command = Command::new(crate::programs::rooflinectl());
    command
        .args(["doctor", "--report"])
        .arg(file)
        .args(["--yes", "--root"])
        .arg(root)
        .env_clear()
        .env("ROOFLINED_SOCKET", socket)
        .env("LANG", "C.UTF-8")
        .env("USER", USER)
        .env("HOME", format!("/home/{USER}"))
        .stdin(Stdio::null());
    command
}

fn outcomes(report: &Value) -> Vec<(String, String)> {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    report["steps"].as_array().unwrap().iter().map(|row| (text(row, "step"), text(row, "outcome"))).collect()
}

fn outcome<'a>(report: &'a Value, step: &str) -> (&'a str, &'a str) {
    let row = report["steps"].as_array().unwrap().iter().find(|row| row["step"] == step).unwrap();
    (row["outcome"].as_str().unwrap(), row["message"].as_str().unwrap())
}

fn parsed(file: &Path) -> (Value, String) {
    let text = fs::read_to_string(file).unwrap();
    (serde_json::from_str(&text).unwrap(), text)
}

/// Whether a word stands in a text by itself: a host may be called `vm`, and so begin many words.
fn holds(text: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word)
        .any(|(at, _)| !part(text[..at].chars().next_back()) && !part(text[at + word.len()..].chars().next()))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn gets_its_report(key: &str, switches: bool) {
    let home = Home::new();
    let (_daemon, root) = board(&home, key);
    let before = get(&home.query(), "/v1/holds")["active_mode"].clone();
    let file = home.path("report.json");
    let output = report(&home.path("run"), &root, &file).output().unwrap();
    assert!(output.status.success(), "{key}: {}", said(&output));
    let (found, text) = parsed(&file);
    println!("{}", String::from_utf8_lossy(&output.stdout));
    let names: Vec<_> = outcomes(&found).into_iter().map(|(step, _)| step).collect();
    let all =
        ["doctor", "identity", "nodes", "sensors", "verify", "calibration", "compare", "switch", "bundle"];
    assert_eq!(names, all);
    for (step, outcome) in outcomes(&found) {
        let not_simulated = ["nodes", "verify"].contains(&step.as_str()) || (step == "switch" && !switches);
        assert_eq!(
            outcome,
            if not_simulated { "skipped" } else { "pass" },
            "{key} {step}: {}",
            said(&output)
        );
    }
    assert!(outcome(&found, "identity").1.starts_with(key), "{found:#}");
    assert_eq!(found["board"]["key"], key);
    assert_eq!(found["versions"]["simulated"], true);
    assert_eq!(found["versions"]["rooflined"], env!("CARGO_PKG_VERSION"));
    assert!(found["calibration"]["record"]["regimes"].as_array().is_some_and(|found| !found.is_empty()));
    assert!(found["comparison"]["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
    assert_eq!(found["samples"].as_array().map(Vec::len), Some(2));
    assert!(found["bundle"].as_str().unwrap().contains("== /proc/meminfo =="), "{key}");
    // Nothing tells whose it is.
    let id = fs::read_to_string(root.join("etc/machine-id")).unwrap_or_default();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let (board, _) = rooflined_hw::discover(&rooflined_hw::SysRoot::new(&root));
    let hash = board.machine.known().cloned().unwrap_or_default();
    for secret in [SERIAL, USER, id.trim(), host.trim(), hash.as_str()] {
        assert!(secret.is_empty() || !holds(&text, secret), "{key}: {secret} is in the report");
    }
    // Nothing was left switched, nothing waits to be confirmed, and nobody holds anything.
    let after = get(&home.query(), "/v1/holds");
    assert_eq!((&after["active_mode"], &after["pending"]), (&before, &Value::Null), "{after}");
}

#[test]
fn an_orin_nano_gets_its_report() {
    gets_its_report("jetson-orin-nano-8gb-super", true);
}

/// From its default every other mode has another mask, and with that needs a reboot.
#[test]
fn an_agx_orin_gets_its_report() {
    gets_its_report("jetson-agx-orin-64gb", false);
}

#[test]
fn a_thor_gets_its_report() {
    gets_its_report("jetson-agx-thor-t5000", true);
}

/// Without modes declared there is nothing to switch.
#[test]
fn a_gb10_gets_its_report() {
    gets_its_report("gb10", false);
}

#[test]
fn every_simulated_board_is_among_these() {
    let boards: Vec<_> = rooflined_simulate::boards().collect();
    assert_eq!(boards.len(), 4, "{boards:?} have tests above");
}

/// Sends the signal when the step begins, and returns how it ended.
fn interrupted(home: &Home, root: &Path, file: &Path, step: &str) -> Value {
    let mut child =
        report(&home.path("run"), root, file).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let begun = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(&format!("] {step}: "))));
    assert!(begun.is_some(), "{step} never began");
    kill(child.id(), Signal::INT);
    for _ in lines {}
    assert_eq!(child.wait().unwrap().code(), Some(1));
    parsed(file).0
}

#[test]
fn ctrl_c_ends_the_step_skips_the_rest_and_leaves_the_mode_as_it_was() {
    let home = Home::new();
    let (_daemon, root) = board(&home, "jetson-orin-nano-8gb-super");
    let mode = || get(&home.query(), "/v1/holds");
    let before = mode()["active_mode"].clone();
    let file = home.path("report.json");
    let found = interrupted(&home, &root, &file, "calibration");
    assert_eq!(outcome(&found, "sensors").0, "pass", "{found:#}");
    for step in ["calibration", "compare", "switch", "bundle"] {
        assert_eq!(outcome(&found, step), ("skipped", "ended by SIGINT"), "{found:#}");
    }
    // The switch is taken back whether the signal came before, within or after it.
    eventually("the calibration to end", || {
        (get(&home.query(), "/v1/calibration")["status"]["fraction"] == Value::Null).then_some(())
    });
    let found = interrupted(&home, &root, &file, "switch");
    assert_eq!(outcome(&found, "bundle").0, "skipped", "{found:#}");
    let after = mode();
    assert_eq!((&after["active_mode"], &after["pending"]), (&before, &Value::Null), "{after}");
}

#[test]
fn without_a_daemon_the_board_is_read_and_the_rest_says_why_it_is_skipped() {
    let home = Home::new();
    let root = home.path("board");
    let program = Path::new(env!("CARGO_BIN_EXE_rooflined"));
    let _board = Simulation::create("jetson-agx-orin-64gb", Some(&root), program).unwrap();
    let file = home.path("report.json");
    let output = report(&home.path("nowhere"), &root, &file).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let (found, _) = parsed(&file);
    assert_eq!(outcome(&found, "doctor").0, "fail");
    for step in ["identity", "sensors", "bundle"] {
        assert_eq!(outcome(&found, step).0, "pass", "{found:#}");
    }
    for step in ["calibration", "compare", "switch"] {
        let (outcome, why) = outcome(&found, step);
        assert!(outcome == "skipped" && why.starts_with("no daemon: "), "{step}: {outcome}, {why}");
    }
    // A place that cannot be written is told before anything is measured.
    let output = report(&home.path("nowhere"), &root, &home.path("no/such/place.json")).output().unwrap();
    assert!(said(&output).contains("cannot be written"), "{}", said(&output));
    assert!(!said(&output).contains("[1/9]"), "{}", said(&output));
}
