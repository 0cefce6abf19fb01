//! The real daemon, the real probe, this machine: what a newcomer types. One test at a time, because they measure.

#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]

#[path = "../support/programs.rs"]
mod programs;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Two measurements at a time would disturb each other.
static MEASURING: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    // A test that failed has ended all the same.
    MEASURING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Long enough for a loaded machine; no test should come near it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command with an environment that is the same everywhere.
fn ctl(socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(crate::programs::rooflinectl());
    command
        .args(args)
        .env_clear()
        .env("ROOFLINED_SOCKET", socket)
        .env("LANG", "C.UTF-8")
        .env("COLUMNS", "100");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
    command
}

fn run(socket: &Path, args: &[&str]) -> Output {
    ctl(socket, args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

/// A daemon in a directory of its own. Killed when dropped.
struct Real {
    directory: TempDir,
    child: Child,
}

impl Real {
    fn start() -> Self {
        // A socket's path is short, whatever TMPDIR is.
        let directory = tempfile::Builder::new().prefix("rl").tempdir_in("/tmp").unwrap();
        let file = directory.path().join("rooflined.toml");
        fs::write(&file, "[calibration]\nautomatic = false\n").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rooflined"));
        for name in ["ROOFLINED_ROOT", "NOTIFY_SOCKET", "JOURNAL_STREAM", "LISTEN_FDS"] {
            command.env_remove(name);
        }
        command.arg("serve").arg("--config").arg(&file).arg("--socket").arg(directory.path());
        command.arg("--state-dir").arg(directory.path().join("state")).args(["--bus", "none"]);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let real = Self { directory, child };
        let began = Instant::now();
        while !run(real.path(), &["status"]).status.success() {
            assert!(began.elapsed() < PATIENCE, "the daemon does not answer");
            sleep(Duration::from_millis(20));
        }
        real
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The JSON of a command that must succeed.
    #[track_caller]
    fn json(&self, command: &str) -> Value {
        let mut args: Vec<_> = command.split(' ').collect();
        args.extend(["-o", "json"]);
        let output = run(self.path(), &args);
        assert!(output.status.success(), "{command}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Emulated instructions are tens of times slower than this machine's; what is measured then says nothing.
fn emulated(test: &str) -> bool {
    let emulated = std::env::var_os("QEMU_CPU").is_some();
    if emulated {
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: measuring makes no sense under emulation");
    }
    emulated
}

#[test]
fn a_newcomer_calibrates_compares_predicts_and_asks() {
    let _alone = alone();
    if emulated("a_newcomer_calibrates_compares_predicts_and_asks") {
        return;
    }
    let real = Real::start();
    assert_eq!(real.json("roofline")["bandwidth_bytes_per_s"]["provenance"], "prior");
    let watching = ctl(real.path(), &["watch", "--events"]).stdout(Stdio::piped()).spawn().unwrap();

    let output = run(real.path(), &["calibrate", "--quick", "--force", "--wait"]);
    assert!(output.status.success(), "{output:?}");
    contains(&stdout(&output), &["calibrated in ", "the ceilings of "]);
    contains(&stderr(&output), &["calibrating 100 %"]);
    let roofline = real.json("roofline");
    assert_eq!(roofline["bandwidth_bytes_per_s"]["provenance"], "measured");
    assert_eq!(roofline["simulated"], false);
    let seen = first_line_with(watching, "calibration");
    contains(&seen, &["calibration"]);

    let compared = real.json("compare gemv 640 1024 --formats fp16,int8");
    let rows = compared["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{compared}");
    for row in rows {
        assert!(row["measured_time_s"]["value"].as_f64().unwrap() > 0.0);
        assert!(row["speedup_vs_fp16_measured"].as_f64().unwrap() > 0.0);
    }

    let predicted = real.json("predict gemv 4096 4096 --format int8");
    let time = &predicted["time_s"];
    assert!(
        time["low"].as_f64() <= time["value"].as_f64() && time["value"].as_f64() <= time["high"].as_f64()
    );
    assert!(time["value"].as_f64() >= predicted["roofline_time_s"].as_f64());
    // A run that other programs disturbed is left out, and its format then has the board's ceilings alone.
    let tier = predicted["tier"].as_str().unwrap();
    assert!(["engine_calibrated", "board_calibrated"].contains(&tier), "{predicted}");

    let chosen = real.json("recommend gemv 4096 4096 --formats fp32,int8");
    assert_eq!(chosen["feasible"], true);
    let impossible = run(real.path(), &["recommend", "gemv", "4096", "4096", "--max-time", "1ns"]);
    assert_eq!(impossible.status.code(), Some(3), "{impossible:?}");
    let analyzed = run(
        real.path(),
        &"analyze gemv 4096 4096 --format fp32 --time 1us -o json".split(' ').collect::<Vec<_>>(),
    );
    assert_eq!(analyzed.status.code(), Some(1), "{analyzed:?}");
    contains(&stdout(&analyzed), &["\"verdict\":\"impossible\""]);

    let file = real.path().join("roofline.svg");
    let drawn = run(real.path(), &["roofline", "--measure", "--svg", file.to_str().unwrap()]);
    assert!(drawn.status.success(), "{drawn:?}");
    contains(&stdout(&drawn), &["● measured"]);
    contains(&fs::read_to_string(&file).unwrap(), &["</svg>", "class=\"measured\""]);
    assert!(run(real.path(), &["doctor"]).status.success());
}

/// The first line of a command's output with this in it; the command is ended then.
fn first_line_with(mut child: Child, part: &str) -> String {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let found = lines.map_while(Result::ok).find(|line| line.contains(part)).unwrap_or_default();
    child.kill().unwrap();
    child.wait().unwrap();
    found
}

#[test]
fn the_daemons_refusals_are_passed_on() {
    let _alone = alone();
    let real = Real::start();
    let output = run(real.path(), &["roofline", "--mode", "NO SUCH MODE"]);
    assert_eq!(output.status.code(), Some(2));
    contains(&stderr(&output), &["error: ", "NO SUCH MODE", "hint: "]);
    let file = real.path().join("requests.jsonl");
    let lines = [
        r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8"}}"#,
        r#"{"workload":{"op":{"kind":"gemv","n":0,"k":4096},"format":"int8"}}"#,
        r#"{"workload":{"op":{"kind":"gemv","n":-1,"k":4096},"format":"int8"}}"#,
        r#"{"workload":{"op":{"kind":"gemv","n":1e18,"k":4096},"format":"int8"}}"#,
        r#"{"workload":{"op":{"kind":"gemv","n":NaN,"k":4096},"format":"int8"}}"#,
        r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int9"}}"#,
        r#"{"workload":{"op":{"kind":"gemv","n":4096,"#,
        "",
        r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8"}}"#,
    ];
    fs::write(&file, lines.join("\n")).unwrap();
    let output = run(real.path(), &["predict", "--requests", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let answers: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), lines.len());
    for (index, answer) in answers.iter().enumerate() {
        let good = index == 0 || index == lines.len() - 1;
        assert_eq!(answer["time_s"]["value"].is_f64(), good, "line {}: {answer}", index + 1);
        assert_eq!(answer["error"]["code"].is_string(), !good, "line {}: {answer}", index + 1);
    }
}

/// The demo with its directory below `home`.
fn demo(home: &Path, args: &[&str]) -> Command {
    let mut command = ctl(home, args);
    command.env("TMPDIR", home).env_remove("ROOFLINED_SOCKET");
    command
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn the_demo_runs_by_itself_and_leaves_nothing_behind() {
    let _alone = alone();
    if emulated("the_demo_runs_by_itself_and_leaves_nothing_behind") {
        return;
    }
    let home = tempfile::Builder::new().prefix("rl").tempdir_in("/tmp").unwrap();
    let svg = tempfile::tempdir().unwrap();
    let file = svg.path().join("demo.svg");
    let began = Instant::now();
    let output = demo(home.path(), &["demo", "--quick", "--svg", file.to_str().unwrap()]).output().unwrap();
    assert!(began.elapsed() < PATIENCE, "it ends by itself");
    assert_eq!(entries(home.path()), Vec::<PathBuf>::new(), "nothing is left");
    let text = stdout(&output);
    assert!(output.status.success(), "{text}\n{}", stderr(&output));
    contains(
        &text,
        &["[1/6]", "[6/6]", "FLOP/byte", "● measured", "predicted vs. measured", "nothing was simulated"],
    );
    assert_eq!(text.matches("$ rooflinectl recommend").count(), 2);
    assert!(file.exists());
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    let _alone = alone();
    for signal in [Signal::INT, Signal::TERM] {
        let home = tempfile::Builder::new().prefix("rl").tempdir_in("/tmp").unwrap();
        let mut child = demo(home.path(), &["demo"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().contains("[2/6]") {}
        let below = format!("{}/", home.path().display());
        assert!(!processes_with(&below).is_empty());
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        contains(&stderr(&output), &["error: ended by SIG", "hint: "]);
        assert_eq!(entries(home.path()), Vec::<PathBuf>::new());
        assert_eq!(processes_with(&below), Vec::<String>::new());
    }
}

#[test]
fn a_killed_demo_leaves_no_process_behind() {
    let _alone = alone();
    let home = tempfile::Builder::new().prefix("rl").tempdir_in("/tmp").unwrap();
    let mut child =
        demo(home.path(), &["demo"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains("[2/6]") {}
    child.kill().unwrap();
    child.wait().unwrap();
    let below = format!("{}/", home.path().display());
    let began = Instant::now();
    while !processes_with(&below).is_empty() {
        assert!(began.elapsed() < PATIENCE, "{:?}", processes_with(&below));
        sleep(Duration::from_millis(50));
    }
}

/// Command lines of running processes that name this path.
fn processes_with(path: &str) -> Vec<String> {
    let command_lines = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    command_lines.filter(|line| line.contains(path)).collect()
}
