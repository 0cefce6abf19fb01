//! The real daemon and the real client on a simulated board.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Watch;
use crate::support::ask;

const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon on a board, both gone with it.
struct Board {
    dir: TempDir,
    daemon: Child,
}

impl Board {
    fn boot(key: &str) -> Self {
        // A socket's path is short, whatever TMPDIR is.
        let dir = tempfile::Builder::new().prefix("rl").tempdir_in("/tmp").unwrap();
        let daemon = launch(dir.path(), key);
        let board = Self { dir, daemon };
        board.wait_ready();
        board
    }

    fn wait_ready(&self) {
        let begun = Instant::now();
        while !(self.query().exists()
            && std::os::unix::net::UnixStream::connect(self.query()).is_ok()
            && ask(&self.query(), "GET", "/-/ready", "").status == 200)
        {
            assert!(begun.elapsed() < PATIENCE, "the daemon is not ready");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn query(&self) -> PathBuf {
        self.dir.path().join("run/query.sock")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("board").join(name)
    }

    fn nvpmodel(&self, mode: &str) {
        let script = self.file("usr/sbin/nvpmodel");
        let status =
            Command::new(script).args(["-m", mode]).stdin(Stdio::null()).stdout(Stdio::null()).status();
        assert!(status.unwrap().success());
    }

    fn state(&self) -> Value {
        ask(&self.query(), "GET", "/v1/state", "").json()
    }

    /// Looks until the state is so.
    fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        while !holds(&self.state()) {
            assert!(begun.elapsed() < PATIENCE, "{what} did not come: {:#}", self.state());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn launch(dir: &Path, key: &str) -> Child {
    let config = dir.join("rooflined.toml");
    fs::write(&config, "[calibration]\nautomatic = false\n[sampling]\nperiod_s = 0.1\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rooflined"));
    for name in ["ROOFLINED_ROOT", "NOTIFY_SOCKET", "JOURNAL_STREAM", "LISTEN_FDS"] {
        command.env_remove(name);
    }
    command.arg("serve").args(["--bus", "none", "--simulate", key]).arg("--config").arg(config);
    command.arg("--root").arg(dir.join("board")).arg("--socket").arg(dir.join("run"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

const NANO: &str = "jetson-orin-nano-8gb-super";
const GEMV: &str =
    r#"{"workload":{"op":{"kind":"gemv","n":14336,"k":4096}},"freedom":{"formats":["fp16","int8"]}}"#;

fn mode_of(answer: &Value) -> &Value {
    &answer["decision"]["power_mode"]["name"]
}

fn temperature(state: &Value) -> f64 {
    let zones = state["temperatures_c"]["value"].as_object().unwrap();
    zones.values().filter_map(Value::as_f64).fold(f64::MIN, f64::max)
}

#[test]
fn heat_alone_is_not_told_but_a_mode_and_throttling_are() {
    let board = Board::boot(NANO);
    let (mut watch, first) = Watch::begin(&board.query(), GEMV);
    assert_eq!(
        (&first["simulated"], &first["decision"]["power_mode"]["name"]),
        (&json!(true), &json!("25W"))
    );
    fs::write(board.file("rooflined/ambient_c"), "60\n").unwrap();
    let (previous, serial) = (&first["serial"], |state: &Value| state["serial"].as_u64().unwrap());
    board
        .until("warmth", |state| temperature(state) > 50.0 && serial(state) > previous.as_u64().unwrap() + 3);
    let warm = serial(&board.state());
    board.nvpmodel("0");
    // The first event there is: of the mode, from the answer given at the beginning.
    let (stale, mut answer) = watch.change();
    assert_eq!((&stale["causes"][0], &stale["was_serial"]), (&json!("mode"), &first["serial"]));
    assert!(stale["serial"].as_u64().unwrap() > warm);
    let reason = stale["reason"].as_str().unwrap();
    assert!(reason.starts_with("the power mode went from 25W to "), "{reason}");
    // A sample between two writes of the tool finds the caps of no mode, and that is reported as well.
    while mode_of(&answer) != "15W" {
        answer = watch.change().1;
    }
    board.nvpmodel("1");
    while mode_of(&watch.change().1) != "25W" {}

    // An oven with the GPU at work: the clock under load falls, and answers with it.
    fs::write(board.file("rooflined/load"), "gpu 1\nmemory 1\nuntil_s 1e12\n").unwrap();
    fs::write(board.file("rooflined/ambient_c"), "150\n").unwrap();
    let (stale, answer) = watch.change();
    let causes = stale["causes"].as_array().unwrap();
    assert!(causes.contains(&json!("throttle")) || causes.contains(&json!("clocks")), "{stale}");
    assert_eq!(answer["serial"], stale["serial"]);
}
