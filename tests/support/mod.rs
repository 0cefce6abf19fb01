//! A machine that does not exist, a daemon that answers by rote, and a client that can misbehave.
//!
//! Every number here is invented for tests.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its world does"
)]

pub mod bus;
pub mod governed;
pub mod programs;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc as sync_mpsc;
use std::time::Duration;

use rooflined::server::dbus::{self, Bus, Pace};
use rooflined::server::{Control, Limits, Request, Socket, http};
use rooflined_core::board::{Board, BoardState, Cache, Cpu, Load, Memory, Reading, ThermalZone, Throttle};
use rooflined_core::ceilings::{BandwidthPoint, Ceiling, Provenance, Roofline};
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_core::refusal::Code;
use rooflined_core::units::{Bytes, BytesPerSecond, Celsius, FlopsPerSecond, Hertz, Seconds};
use rooflined_governor::{Command, Reply};
use rooflined_predict::calibration::{
    CalibrationRecord, MachineKey, PowerUnderLoad, RECORD_SCHEMA, Reference, Regime,
};
use rooflined_predict::power::label_watts;
use rooflined_predict::snapshot::{CalibrationStatus, ReferenceReading, Snapshot};
use rooflined_predict::{Engine, EngineProfile, FormatCost};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

/// 50 GB/s, 2 workers at 2 GHz, 100 GFLOP/s in fp32 and 400 in int8, 10 µs to start.
pub fn roofline() -> Roofline {
    fn measured<R: Copy + std::ops::Mul<f64, Output = R>>(value: R) -> Ceiling<R> {
        Ceiling { value, low: value * 0.95, high: value * 1.05, provenance: Provenance::Measured }
    }
    Roofline {
        bandwidth: measured(BytesPerSecond(50e9)),
        memory_limit: None,
        pull_limit: None,
        curve: vec![BandwidthPoint { working_set: Bytes(1e6), threads: 2, read: BytesPerSecond(200e9) }],
        copy: Some(measured(BytesPerSecond(60e9))),
        triad: None,
        compute: BTreeMap::from([
            (Precision::Fp32, measured(FlopsPerSecond(100e9))),
            (Precision::Int8, measured(FlopsPerSecond(400e9))),
        ]),
        launch: measured(Seconds(10e-6)),
        ramp: Seconds::ZERO,
        workers: 2,
        clock: Some(Hertz(2e9)),
    }
}

fn profile() -> EngineProfile {
    let cost = |compute, cycles_per_weight| FormatCost {
        compute,
        cycles_per_weight,
        column_ratio: 0.5,
        bandwidth_ratio: 0.9,
        ramp: Seconds::ZERO,
        half_width_ratio: 0.05,
    };
    EngineProfile {
        formats: BTreeMap::from([
            (WeightFormat::Fp32, cost(Precision::Fp32, 0.1)),
            (WeightFormat::Int8, cost(Precision::Int8, 0.05)),
            (WeightFormat::Int4G32, cost(Precision::Int8, 0.4)),
        ]),
        gemm: BTreeMap::new(),
        ..EngineProfile::unknown(Engine::Bare)
    }
}

fn board() -> Board {
    Board {
        notes: Vec::new(),
        memory_clock_max: None,
        key: "cpu".into(),
        model: Reading::Known("Test bench \"7\"".into()),
        kernel: Reading::Known("6.1.0".into()),
        os: Reading::Known("Testix".into()),
        machine: Reading::absent("no /etc/machine-id"),
        module: Reading::absent("no device tree"),
        l4t: Reading::absent("no /etc/nv_tegra_release"),
        gpu: Reading::absent("no GPU"),
        modes: Reading::absent("no nvpmodel"),
        cpu: Cpu {
            model: Reading::Known("Imaginary 2000".into()),
            architecture: "x86_64".into(),
            logical: 2,
            cores: Reading::Known(2),
            kinds: Vec::new(),
            max_clock: Reading::absent("no cpufreq"),
            caches: vec![Cache {
                level: 3,
                kind: "unified".into(),
                size_bytes: 8 << 20,
                shared_by: 2,
                instances: 1,
            }],
            features: vec!["avx2".into()],
        },
        memory_total: Reading::Known(Bytes(8e9)),
        unified_memory: false,
        simulated: false,
        sources: BTreeMap::from([("kernel".into(), "/proc/sys/kernel/osrelease".into())]),
    }
}

fn state(taken_at: Seconds) -> BoardState {
    BoardState {
        power_mode: Reading::absent("no nvpmodel"),
        cores_online: Reading::Known(2),
        cpu_clocks: Reading::absent("no cpufreq"),
        cpu_clock_cap: Reading::absent("no cpufreq"),
        temperatures: Reading::Known(vec![ThermalZone {
            name: "cpu-thermal".into(),
            temperature: Reading::Known(Celsius(45.5)),
        }]),
        rails: Reading::absent("no hwmon"),
        memory: Reading::Known(Memory {
            total: Bytes(8e9),
            available: Bytes(6e9),
            free: Bytes(4e9),
            swap_used: Bytes(0.0),
        }),
        load: Reading::Known(Load { average_1m: 0.25, busy_ratio: Some(0.1), steal_ratio: None }),
        pressure: Reading::failed("/proc/pressure/memory: permission denied"),
        throttle: Reading::Known(Throttle { active: false, evidence: vec![] }),
        ..BoardState::unknown(taken_at, "no GPU")
    }
}

fn record() -> CalibrationRecord {
    CalibrationRecord {
        schema: RECORD_SCHEMA,
        key: MachineKey {
            machine: None,
            board: "cpu".into(),
            cpu: "Imaginary 2000".into(),
            logical_cpus: 2,
            kernel: Some("6.1.0".into()),
            version: "0".into(),
        },
        measured_at_unix_s: 1.7e9,
        wall: Seconds(8.0),
        plan: "full".into(),
        simulated: false,
        loaded: false,
        other_work: None,
        regimes: vec![Regime {
            key: "near".into(),
            reference: Reference { read: BytesPerSecond(50e9), core_to_core: Some(Seconds(50e-9)) },
            measured_at_unix_s: 1.7e9,
            clock_cap: None,
            point: None,
            power: None,
            power_points: Vec::new(),
            power_reason: None,
            loaded: false,
            samples: 40,
            roofline: roofline(),
            profile: profile(),
        }],
        rejected: vec![],
        skipped: vec![],
        power: None,
    }
}

/// A calibration of `board` in every mode with watts in its name that drew no more than they say at its worst.
pub fn metered(board: &Board) -> CalibrationRecord {
    let [known] = record().regimes.try_into().unwrap();
    let modes = board.modes.known().unwrap().modes.iter();
    let regimes = modes.filter_map(|mode| {
        // Without loads that were held, the worst is taken to be well above the highest reading.
        let peak = label_watts(&mode.name)? * 0.7;
        let power = PowerUnderLoad { mean: peak * 0.8, peak, readings: 50, scope: "module".into() };
        Some(Regime { key: mode.name.clone(), power: Some(power), ..known.clone() })
    });
    let key = MachineKey {
        machine: board.machine.known().cloned(),
        board: board.key.clone(),
        cpu: board.cpu.model.known().cloned().unwrap_or_else(|| board.cpu.architecture.clone()),
        logical_cpus: board.cpu.logical,
        kernel: board.kernel.known().cloned(),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    CalibrationRecord { key, regimes: regimes.collect(), ..record() }
}

/// A calibrated machine.
pub fn snapshot() -> Snapshot {
    Snapshot {
        serial: 17,
        taken_at: Seconds(100.0),
        board: board(),
        state: state(Seconds(100.0)),
        accelerator: rooflined_predict::calibration::Accelerator::Cpu,
        hardware: None,
        roofline: roofline(),
        profile: profile(),
        residuals: Arc::default(),
        observed_runs: Arc::default(),
        reports: Arc::default(),
        servers: Arc::default(),
        calibration: Some(record()),
        calibration_status: CalibrationStatus::default(),
        reference: Some(ReferenceReading::new(
            Seconds(99.0),
            Reference { read: BytesPerSecond(45e9), core_to_core: Some(Seconds(50e-9)) },
            &state(Seconds(100.0)),
        )),
        degraded: std::collections::BTreeMap::new(),
        modes: Arc::default(),
        power: rooflined_predict::snapshot::PowerControl::default(),
        control_enabled: false,
        busy_clocks: rooflined_predict::snapshot::BusyClocks::default(),
        power_limit: None,
    }
}

/// Before the first calibration and the first reading.
pub fn fresh_snapshot() -> Snapshot {
    let guess = |mut roofline: Roofline| {
        roofline.bandwidth.provenance = Provenance::Prior;
        roofline.clock = None;
        roofline
    };
    Snapshot {
        state: state(Seconds(0.0)),
        roofline: guess(roofline()),
        profile: EngineProfile::unknown(Engine::Bare),
        calibration: None,
        reference: None,
        ..snapshot()
    }
}

/// Replies as a daemon would; remembers what it was asked.
async fn answer_by_rote(mut requests: mpsc::Receiver<Request>, seen: sync_mpsc::Sender<String>) {
    while let Some(request) = requests.recv().await {
        let (command, mut reply) = match request {
            Request::Command { command, reply } => (command, reply),
            Request::Event(event) => {
                let _ = seen.send(format!("{event:?}"));
                continue;
            }
        };
        let _ = seen.send(format!("{command:?}"));
        let answer = match command {
            Command::Control { .. } => continue,
            Command::Calibrate { wait: true, .. } => {
                // Never finishes: for clients that go away.
                let seen = seen.clone();
                tokio::spawn(async move {
                    reply.closed().await;
                    let _ = seen.send("ClientGone".into());
                });
                continue;
            }
            Command::Calibrate { force: true, .. } => {
                Reply::Refused(Code::Busy.error("job 6 is running", "wait for it"))
            }
            Command::Calibrate { .. } => Reply::Started { job: 7 },
            Command::Cancel { job } => Reply::Cancelled { job: job.unwrap_or(7) },
            Command::Measure { .. } => {
                Reply::Refused(Code::ProbeFailed.error("there is no probe in this test", "expect none"))
            }
            Command::Forget { .. } => Reply::Forgotten { count: 1 },
            Command::Observe { observations, .. } => Reply::Observed {
                accepted: observations.len() as u64,
                refused: vec![],
                outcomes: vec![],
                slow: vec![],
            },
        };
        let _ = reply.send(answer);
    }
}

/// A server on temporary sockets, with its daemon.
pub struct Server {
    pub directory: tempfile::TempDir,
    pub snapshots: watch::Sender<Arc<Snapshot>>,
    pub control: Control,
    /// What the daemon was asked, as a sentence.
    pub seen: sync_mpsc::Receiver<String>,
    /// What the bus adapter reported.
    pub bus_states: sync_mpsc::Receiver<Option<String>>,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Limits that tests can wait for.
pub fn short_limits() -> Limits {
    Limits {
        header_time: Duration::from_millis(400),
        body_time: Duration::from_millis(400),
        write_stall: Duration::from_millis(400),
        heartbeat: Duration::from_millis(200),
        // Of which one user may have three.
        streams: 6,
        drain: Duration::from_millis(500),
        ..Limits::default()
    }
}

/// A pace that tests can wait for.
fn pace() -> Pace {
    Pace {
        patience: Duration::from_secs(2),
        dialogue: Duration::from_secs(4),
        ping: Duration::from_millis(300),
        longest_pause: Duration::from_millis(500),
        ..Pace::default()
    }
}

impl Server {
    pub fn start(snapshot: Snapshot, limits: Limits) -> Self {
        Self::start_on(snapshot, limits, Bus::None)
    }

    pub fn start_on(snapshot: Snapshot, limits: Limits, bus: Bus) -> Self {
        Self::start_beside(snapshot, limits, bus, async {})
    }

    /// With `other` on the same thread.
    pub fn start_beside(
        snapshot: Snapshot,
        limits: Limits,
        bus: Bus,
        other: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (snapshots, receiver) = watch::channel(Arc::new(snapshot));
        let (tx, requests) = mpsc::channel(16);
        let control = Control::new(tx);
        let (seen_tx, seen) = sync_mpsc::channel();
        let (stop, stopped) = watch::channel(false);
        let (query, control_socket) =
            (directory.path().join("query.sock"), directory.path().join("control.sock"));
        let handle = control.clone();
        let (ready, is_ready) = sync_mpsc::channel();
        let (bus_state, bus_states) = sync_mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                tokio::spawn(answer_by_rote(requests, seen_tx));
                tokio::spawn(other);
                let bind = |path: &Path| tokio::net::UnixListener::bind(path).unwrap();
                let until_stopped = || {
                    let mut stopped = stopped.clone();
                    async move {
                        let _ = stopped.wait_for(|stop| *stop).await;
                    }
                };
                let on_query = http::serve(
                    bind(&query),
                    Socket::Query { control: Some(control_socket.clone()) },
                    receiver.clone(),
                    handle.clone(),
                    limits.clone(),
                    until_stopped(),
                );
                let on_control = http::serve(
                    bind(&control_socket),
                    Socket::Control,
                    receiver.clone(),
                    handle.clone(),
                    limits,
                    until_stopped(),
                );
                let tell = move |problem| {
                    let _ = bus_state.send(problem);
                };
                let on_bus = dbus::run_at(pace(), bus, receiver, handle, tell, until_stopped());
                ready.send(()).unwrap();
                tokio::join!(on_query, on_control, on_bus);
            });
        });
        is_ready.recv().unwrap();
        Self { directory, snapshots, control, seen, bus_states, stop, thread: Some(thread) }
    }

    pub fn query(&self) -> PathBuf {
        self.directory.path().join("query.sock")
    }

    pub fn control_socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    pub fn get(&self, target: &str) -> Response {
        ask(&self.query(), "GET", target, "")
    }

    pub fn post(&self, target: &str, body: &str) -> Response {
        ask(&self.query(), "POST", target, body)
    }

    /// Stops it and waits; panics if the server did.
    pub fn stop(mut self) -> Duration {
        let begun = std::time::Instant::now();
        let _ = self.stop.send(true);
        self.thread.take().unwrap().join().unwrap();
        begun.elapsed()
    }

    pub fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        self.snapshots.send_modify(|snapshot| {
            let mut next = Snapshot::clone(snapshot);
            next.serial += 1;
            change(&mut next);
            *snapshot = Arc::new(next);
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Code and field of an error, after checking that it is a whole one.
    pub fn error(&self) -> (String, String) {
        let json = self.json();
        let text = |field: &str| json["error"][field].as_str().unwrap_or_default().to_owned();
        assert!(!text("message").is_empty() && !text("hint").is_empty(), "{self:?}");
        (text("code"), text("field"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

pub fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// One request on a connection of its own.
pub fn ask(socket: &Path, method: &str, target: &str, body: &str) -> Response {
    let request = format!(
        "{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    send(socket, request.as_bytes())
}

/// Raw bytes, and what comes back until the end.
pub fn send(socket: &Path, bytes: &[u8]) -> Response {
    let mut stream = connect(socket);
    stream.write_all(bytes).unwrap();
    read_response(&mut stream)
}

pub fn read_response(stream: &mut UnixStream) -> Response {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
    }
    parse(&String::from_utf8(bytes).unwrap())
}

pub fn parse(text: &str) -> Response {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Response { status, head: head.to_owned(), body: body.to_owned() }
}
