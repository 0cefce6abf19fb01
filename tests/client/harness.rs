//! A private daemon in a temporary directory, and programs that answer badly.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rooflined_api::{PredictRequest, Workload};
use rooflined_client::Client;
use rooflined_core::names::Engine;
use tempfile::TempDir;

/// Long enough for a loaded machine; no test should come near it.
const PATIENCE: Duration = Duration::from_secs(60);
pub const CONTROLLED: &str = "[control]\nenabled = true\ndwell_s = 0.0\n[calibration]\nautomatic = false\n";

/// Whether `what` becomes true in time.
pub fn until(mut what: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !what() {
        if Instant::now() > end {
            return false;
        }
        sleep(Duration::from_millis(50));
    }
    true
}

pub fn chat() -> Workload {
    Workload {
        model: Some("llama-3.2-1b".into()),
        format: Some("q4_k_m".to_owned()),
        phase: Some("decode".to_owned()),
        context_tokens: Some(512),
        ..Workload::default()
    }
}

pub fn chat_request() -> PredictRequest {
    PredictRequest { workload: chat(), engine: Engine::LlamaCpp, ..PredictRequest::default() }
}

/// A directory of a short path, whatever TMPDIR is: that of a socket has at most 107 bytes.
fn short_directory() -> TempDir {
    tempfile::Builder::new().prefix("rl").tempdir_in("/tmp").unwrap()
}

/// `rooflined` of a simulated board; `restart` comes back with the same state and board.
pub struct Daemon {
    home: TempDir,
    process: Option<Child>,
}

impl Daemon {
    pub fn new() -> Self {
        Self::with(CONTROLLED)
    }

    pub fn with(config: &str) -> Self {
        let mut daemon = Self { home: short_directory(), process: None };
        fs::create_dir(daemon.home.path().join("board")).unwrap();
        daemon.configure(config);
        daemon.start();
        daemon
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("run")
    }

    pub fn client(&self) -> Client {
        Client::new(Some(&self.socket()), Duration::from_secs(30))
    }

    pub fn configure(&self, text: &str) {
        fs::write(self.path("rooflined.toml"), text).unwrap();
    }

    pub fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rooflined"));
        command.args(["serve", "--bus", "none", "--simulate", "jetson-orin-nano-8gb-super"]);
        command.args(["--exit-on-stdin-close", "--config"]).arg(self.path("rooflined.toml"));
        command.arg("--socket").arg(self.socket()).arg("--state-dir").arg(self.path("state"));
        command.arg("--root").arg(self.path("board"));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().unwrap());
        let is_ready = until(|| wait_for(self.client().get("/-/ready")).is_ok());
        assert!(is_ready, "{}", fs::read_to_string(self.path("log")).unwrap_or_default());
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }
}

/// The output of a future, on a runtime of its own.
pub fn wait_for<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Listens where a daemon would and treats each connection as it is told to.
pub struct Impostor {
    directory: PathBuf,
    _home: Option<TempDir>,
    /// What was asked, by head and body.
    requests: Arc<Mutex<Vec<String>>>,
    visits: Arc<AtomicUsize>,
}

/// One connection of an impostor.
pub struct Visit {
    connection: UnixStream,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Visit {
    /// A whole request; false at the end.
    pub fn read(&mut self) -> bool {
        let mut data = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&data).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
                if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                    self.requests.lock().unwrap().push(text);
                    return true;
                }
            }
            match self.connection.read(&mut buffer) {
                Ok(read) if read > 0 => data.extend_from_slice(&buffer[..read]),
                _ => return false,
            }
        }
    }

    /// Sends what the client may not want any more.
    pub fn send(&mut self, text: &[u8]) -> bool {
        self.connection.write_all(text).is_ok()
    }
}

impl Impostor {
    pub fn new(behave: impl Fn(&mut Visit) + Send + Sync + 'static) -> Self {
        Self::at("query.sock", behave)
    }

    /// In place of the control socket.
    pub fn control(behave: impl Fn(&mut Visit) + Send + Sync + 'static) -> Self {
        Self::at("control.sock", behave)
    }

    fn at(socket: &str, behave: impl Fn(&mut Visit) + Send + Sync + 'static) -> Self {
        let home = short_directory();
        let mut impostor = Self::in_directory(home.path(), socket, behave);
        impostor._home = Some(home);
        impostor
    }

    /// As one of the two sockets in a directory.
    pub fn in_directory(
        directory: &Path,
        socket: &str,
        behave: impl Fn(&mut Visit) + Send + Sync + 'static,
    ) -> Self {
        let (requests, visits) = (Arc::default(), Arc::<AtomicUsize>::default());
        let listener = UnixListener::bind(directory.join(socket)).unwrap();
        let (seen, behave, counted) = (Arc::clone(&requests), Arc::new(behave), Arc::clone(&visits));
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(connection) = connection else {
                    // Out of descriptors.
                    sleep(Duration::from_millis(50));
                    continue;
                };
                counted.fetch_add(1, Ordering::SeqCst);
                let (behave, requests) = (Arc::clone(&behave), Arc::clone(&seen));
                std::thread::spawn(move || behave(&mut Visit { connection, requests }));
            }
        });
        Self { directory: directory.to_owned(), _home: None, requests, visits }
    }

    pub fn client(&self) -> Client {
        Client::new(Some(&self.directory), Duration::from_secs(1))
    }

    /// How many connections were made.
    pub fn visited(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }

    /// How many requests came whole.
    pub fn asked(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}
