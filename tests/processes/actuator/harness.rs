//! The real binary on a board in a directory, with a fake nvpmodel.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::boards::Board;

/// Long enough for a loaded machine and for an emulated one; no test should come near it.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// What is expected to read otherwise than it was written.
const READ_OTHERWISE: [&str; 2] = ["/power/control", "/min_freq"];

#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(Duration::from_millis(2));
    }
}

pub fn kill(pid: u32) {
    // It may have ended this instant.
    let _ = kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL);
}

/// For the tool, in seconds: more than a starved machine takes for a shell script; twice this, or once and the wait for
/// the lock of another, is less than [`PATIENCE`].
const TIME_LIMIT: &str = "50";

/// A board in a directory.
pub struct Tree {
    dir: TempDir,
    /// For the tool, in seconds.
    pub time_limit: &'static str,
}

impl Tree {
    /// With control enabled and every mode allowed.
    pub fn new(board: &Board) -> Self {
        let dir = tempfile::Builder::new().prefix("rl").tempdir_in("/tmp").unwrap();
        let tree = Self { dir, time_limit: TIME_LIMIT };
        for (path, text) in &board.files {
            tree.write(path, text);
        }
        tree.write("/etc/nvpmodel/nvpmodel_board.conf", &board.conf);
        // As at boot: an absolute link, which means a file of the board and not of this machine.
        std::os::unix::fs::symlink("/etc/nvpmodel/nvpmodel_board.conf", tree.path("/etc/nvpmodel.conf"))
            .unwrap();
        tree.write("/usr/sbin/nvpmodel", include_str!("nvpmodel.sh"));
        tree.mode("/usr/sbin/nvpmodel", 0o755);
        tree.configure("enabled = true\nallowed_modes = [\"15W\", \"25W\", \"MAXN_SUPER\", \"7W\", \"MAXN\", \"MODE_15W\", \
             \"MODE_20W\", \"MODE_30W\", \"MODE_50W\", \"120W\", \"90W\"]");
        tree
    }

    pub fn path(&self, logical: &str) -> PathBuf {
        self.dir.path().join(logical.trim_start_matches('/'))
    }

    pub fn write(&self, logical: &str, text: &str) {
        let path = self.path(logical);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, logical: &str) -> String {
        fs::read_to_string(self.path(logical)).unwrap_or_default()
    }

    pub fn mode(&self, logical: &str, mode: u32) {
        fs::set_permissions(self.path(logical), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn configure(&self, control: &str) {
        self.write("/rooflined.toml", &format!("[control]\n{control}\n"));
    }

    pub fn behave(&self, behaviour: &str) {
        self.write("/behaviour", behaviour);
    }

    /// Lines of a file that the fake nvpmodel writes.
    pub fn lines(&self, logical: &str) -> Vec<String> {
        self.read(logical).lines().map(str::to_owned).collect()
    }

    /// Everything that modes set, and the mode kept for the next boot.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut dirs = vec![self.path("/sys"), self.path("/opt"), self.path("/var/lib/nvpmodel")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                let logical = format!("/{}", path.strip_prefix(self.dir.path()).unwrap().display());
                if kind.is_dir() {
                    dirs.push(path);
                } else if !READ_OTHERWISE.iter().any(|ending| logical.ends_with(ending)) {
                    found.insert(logical, fs::read_to_string(path).unwrap());
                }
            }
        }
        found
    }

    pub fn journal(&self) -> Option<Value> {
        serde_json::from_str(&fs::read_to_string(self.state_dir().join("switch.json")).ok()?).ok()
    }

    pub fn state_dir(&self) -> PathBuf {
        self.path("/state")
    }

    /// `rooflined actuate` with the options of this tree.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rooflined"));
        command.args(["actuate", "--time-limit", self.time_limit, "--root"]).arg(self.dir.path());
        command.arg("--state-dir").arg(self.state_dir()).arg("--config").arg(self.path("/rooflined.toml"));
        let log = fs::File::options().create(true).append(true).open(self.path("/log")).unwrap();
        command.env_remove("STATE_DIRECTORY").env_remove("LISTEN_FDS").stderr(log);
        command
    }

    /// A client's end of a running actuator.
    pub fn actuator(&self) -> Actuator {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = self.command();
        let child = command.arg("--stdio").stdin(Stdio::from(OwnedFd::from(theirs))).spawn().unwrap();
        Actuator { child, line: Line::new(ours) }
    }
}

/// The client's end of a connection.
pub struct Line {
    reader: BufReader<UnixStream>,
    asked: u64,
}

impl Line {
    pub fn new(stream: UnixStream) -> Self {
        Self { reader: BufReader::new(stream), asked: 0 }
    }

    pub fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::new(stream)
    }

    pub fn say(&mut self, bytes: &[u8]) {
        // A client that has gone does not listen.
        let _ = self.reader.get_mut().write_all(bytes);
    }

    /// The next answer; `None` at the end.
    pub fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
        }
    }

    pub fn order(&mut self, order: &Value) {
        self.asked += 1;
        let mut order = order.clone();
        order["order"] = self.asked.into();
        self.say(format!("{order}\n").as_bytes());
    }

    pub fn ask(&mut self, order: &Value) -> Value {
        self.order(order);
        let answer = self.hear().expect("an answer");
        assert_eq!(answer["order"], self.asked, "{answer}");
        answer
    }

    /// Asks for a mode, and returns the report.
    pub fn set(&mut self, id: u32, name: &str) -> Value {
        let answer = self.ask(&set_mode(id, name, false));
        assert_eq!(answer["answer"], "switched", "{answer}");
        answer["report"].clone()
    }

    pub fn status(&mut self) -> Value {
        self.ask(&json!({"verb": "status"}))
    }
}

pub fn set_mode(id: u32, name: &str, dry_run: bool) -> Value {
    json!({"verb": "set_mode", "id": id, "name": name, "knob": {"knob": "nvpmodel"}, "dry_run": dry_run})
}

/// A running actuator and its one client.
pub struct Actuator {
    pub child: Child,
    pub line: Line,
}

impl Actuator {
    /// Closes the connection and waits for the end.
    pub fn close(self) -> ExitStatus {
        let Self { mut child, line } = self;
        drop(line);
        eventually("the actuator to end", || child.try_wait().unwrap())
    }
}
