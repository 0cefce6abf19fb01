//! The real binary in a temporary home, watched through the service manager's protocol.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rooflined::store::Store;
use rooflined_core::ceilings::{Ceiling, Provenance, Roofline};
use rooflined_core::units::{BytesPerSecond, FlopsPerSecond, Seconds};
use rooflined_hw::{SysRoot, discover};
use rooflined_predict::calibration::{CalibrationRecord, MachineKey, RECORD_SCHEMA, Reference, Regime};
use rooflined_predict::{Engine, EngineProfile};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Long enough for a loaded machine and for an emulated one; no test should come near it.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks again and again until there is something to see.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(PAUSE);
    }
}

/// Says aloud that a test does not apply to this machine.
pub fn skip(why: &str) {
    println!("SKIPPED: {why}");
}

/// Says aloud that a test lacks a program, which CI forbids.
pub fn missing(program: &str, purpose: &str) {
    let strict = std::env::var("ROOFLINED_STRICT").is_ok_and(|value| value == "1");
    assert!(!strict, "there is no {program} to {purpose}, and ROOFLINED_STRICT=1 forbids to skip");
    skip(&format!("there is no {program} to {purpose}"));
}

/// Directories that outlive a daemon.
pub struct Home {
    dir: TempDir,
    /// Where calibrations are kept.
    pub state: PathBuf,
    pub bus: String,
}

impl Home {
    /// An empty one, with no calibration to be started unasked.
    pub fn new() -> Self {
        // A socket's path is short, whatever TMPDIR is.
        let dir = tempfile::Builder::new().prefix("rl").tempdir_in("/tmp").unwrap();
        let state = dir.path().join("state");
        let home = Self { dir, state, bus: "none".into() };
        home.configure("[calibration]\nautomatic = false\n");
        home
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn query(&self) -> PathBuf {
        self.path("run/query.sock")
    }

    pub fn control(&self) -> PathBuf {
        self.path("run/control.sock")
    }

    pub fn configure(&self, text: &str) {
        fs::write(self.path("rooflined.toml"), text).unwrap();
    }

    /// Everything that daemons of this home have said on standard error.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// `rooflined` with the options of this home.
    pub fn command(&self) -> Command {
        let mut command = bare();
        command.arg("--config").arg(self.path("rooflined.toml"));
        command.arg("--socket").arg(self.path("run"));
        command.arg("--state-dir").arg(&self.state);
        command.arg("--bus").arg(&self.bus);
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        command
    }

    /// A daemon that is ready.
    pub fn start(&self) -> Daemon {
        self.start_with(|_| {})
    }

    /// A daemon that is ready, with more options.
    pub fn start_with(&self, prepare: impl FnOnce(&mut Command)) -> Daemon {
        let mut command = self.command();
        prepare(&mut command);
        let mut daemon = self.launch(command);
        daemon.wait_ready();
        daemon
    }

    /// A daemon that may not become ready.
    pub fn launch(&self, mut command: Command) -> Daemon {
        let socket = self.path(&format!("notify{}", fastrand::u32(..)));
        let manager = UnixDatagram::bind(&socket).unwrap();
        manager.set_nonblocking(true).unwrap();
        // The daemon may be another user's.
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
        command.env("NOTIFY_SOCKET", &socket);
        Daemon { child: command.spawn().unwrap(), manager, notifications: Vec::new() }
    }

    /// Stores a record that holds for this machine, and returns its file.
    pub fn calibrate(&self) -> PathBuf {
        let store = Store::open(self.path("state")).unwrap();
        store.save_calibration(&record()).unwrap();
        self.path("state/calibration.json")
    }
}

/// `rooflined` without what the environment of the tests might tell it.
pub fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rooflined"));
    for name in [
        "ROOFLINED_ROOT",
        "ROOFLINED_LOG",
        "JOURNAL_STREAM",
        "STATE_DIRECTORY",
        "LISTEN_FDS",
        "WATCHDOG_USEC",
    ] {
        command.env_remove(name);
    }
    command
}

/// A running daemon; killed when dropped.
pub struct Daemon {
    pub child: Child,
    manager: UnixDatagram,
    /// Lines that it sent to the service manager.
    notifications: Vec<String>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    pub fn wait(&mut self) -> ExitStatus {
        let child = &mut self.child;
        eventually("the daemon to end", || child.try_wait().unwrap())
    }

    /// All lines sent to the service manager up to now.
    pub fn notifications(&mut self) -> &[String] {
        let mut buffer = [0; 4096];
        while let Ok(length) = self.manager.recv(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]);
            self.notifications.extend(text.lines().map(str::to_owned));
        }
        &self.notifications
    }

    /// Waits until a line that starts with `prefix` has been sent `times` times.
    pub fn wait_notified(&mut self, prefix: &str, times: usize) {
        eventually(prefix, || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!(
                    "the daemon ended with {status} before it sent {prefix}; sent: {:?}",
                    self.notifications()
                );
            }
            (self.notifications().iter().filter(|line| line.starts_with(prefix)).count() >= times)
                .then_some(())
        });
    }

    pub fn wait_ready(&mut self) {
        self.wait_notified("READY=1", 1);
    }

    pub fn children(&self) -> Vec<u32> {
        self.started(|state| state != 'Z')
    }

    /// Children that have ended and that it has not looked after.
    pub fn zombies(&self) -> Vec<u32> {
        self.started(|state| state == 'Z')
    }

    fn started(&self, is_meant: impl Fn(char) -> bool) -> Vec<u32> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| stat(*pid).is_some_and(|(state, parent)| parent == self.pid() && is_meant(state)))
            .collect()
    }
}

/// State and parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself hold spaces and parentheses.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

pub fn is_gone(pid: u32) -> bool {
    stat(pid).is_none_or(|(state, _)| state == 'Z')
}

pub fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// One request over a Unix socket: the status and the JSON of the answer.
pub fn http(socket: &Path, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: rooflined\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a header and a body");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

pub fn get(socket: &Path, path: &str) -> Value {
    let (status, body) = http(socket, "GET", path, "");
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// What does not work, as clients see it.
pub fn degraded(home: &Home) -> String {
    get(&home.query(), "/v1/state")["degraded"].to_string()
}

/// True if `pid` runs under an emulator, whose memory is then its own.
pub fn is_emulated(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.to_string_lossy().contains("qemu"))
}

/// Drops the rights of root in `command`.
pub fn as_nobody(command: &mut Command) {
    command.uid(65534).gid(65534);
}

fn record() -> CalibrationRecord {
    let (board, _) = discover(&SysRoot::host());
    let exact = |value| Ceiling { value, low: value, high: value, provenance: Provenance::Measured };
    let read = BytesPerSecond(30e9);
    let roofline = Roofline {
        bandwidth: exact(30e9).map(BytesPerSecond),
        memory_limit: None,
        pull_limit: None,
        curve: Vec::new(),
        copy: None,
        triad: None,
        compute: [(rooflined_core::precision::Precision::Fp32, exact(2e11).map(FlopsPerSecond))].into(),
        launch: exact(1e-6).map(Seconds),
        ramp: Seconds::ZERO,
        workers: board.cpu.logical,
        clock: None,
    };
    let regime = Regime {
        key: "single".into(),
        reference: Reference { read, core_to_core: None },
        measured_at_unix_s: 1.0,
        clock_cap: None,
        point: None,
        power: None,
        power_points: Vec::new(),
        power_reason: None,
        loaded: false,
        samples: 1,
        roofline,
        profile: EngineProfile::unknown(Engine::Bare),
    };
    CalibrationRecord {
        schema: RECORD_SCHEMA,
        key: MachineKey {
            machine: board.machine.known().cloned(),
            board: board.key.clone(),
            cpu: board.cpu.model.known().cloned().unwrap_or_else(|| board.cpu.architecture.clone()),
            logical_cpus: board.cpu.logical,
            kernel: board.kernel.known().cloned(),
            version: env!("CARGO_PKG_VERSION").into(),
        },
        measured_at_unix_s: 1.0,
        wall: Seconds(1.0),
        plan: "full".into(),
        simulated: false,
        loaded: false,
        other_work: None,
        regimes: vec![regime],
        rejected: Vec::new(),
        skipped: Vec::new(),
        power: None,
    }
}
