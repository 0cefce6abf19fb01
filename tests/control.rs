//! Modes and holds through the real HTTP server and the real governor; the root role is one that always succeeds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rooflined::board::{
    ActiveMode, Knob, Order, OrderAnswer, PowerMode, PowerModes, ReadBack, Reading, SwitchOutcome,
    SwitchReport,
};
use rooflined::governor::{Effect, Event, Governor, Policy, Reply, Ticket};
use rooflined::learning::Residuals;
use rooflined::server::{Command, Control, Limits, Socket, clock, http};
use rooflined::snapshot::Snapshot;
use rooflined::units::{Bytes, Hertz, Seconds};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

const MODES: [(u32, &str, f64); 3] = [(0, "25W", 918e6), (2, "15W", 612e6), (5, "7W", 408e6)];

fn modes() -> PowerModes {
    let mode = |(id, name, gpu_hz): (u32, &str, f64)| PowerMode {
        id,
        name: name.into(),
        cores_online: None,
        cpu_max: None,
        gpu_max: Some(Hertz(gpu_hz)),
        memory_max: None,
        tpc_mask: None,
        sm_online: None,
        knob: Knob::Nvpmodel,
        settings: Vec::new(),
    };
    PowerModes { default: Some(0), modes: MODES.map(mode).to_vec(), ..PowerModes::default() }
}

fn policy() -> Policy {
    Policy {
        sampling_period: Seconds(1.0),
        idle_period: Seconds(30.0),
        automatic: false,
        max_age: Seconds(1e6),
        time_limit_s: 10,
        memory_limit_bytes: 1 << 20,
        max_load_ratio: 1.0,
        max_temperature_c: 100.0,
        min_free_memory: Bytes(0.0),
        back_off: Seconds(1.0),
        accelerator: None,
        control_enabled: true,
        allowed_modes: None,
        dwell: Seconds(0.2),
    }
}

/// The root role: a board that does as it is told.
struct Role {
    live: ActiveMode,
    journal: Option<ActiveMode>,
}

impl Role {
    fn enter(&mut self, mode: ActiveMode) -> OrderAnswer {
        let before = std::mem::replace(&mut self.live, mode.clone());
        let report = SwitchReport {
            outcome: SwitchOutcome::Applied,
            asked: mode.clone(),
            before: Some(before),
            reached: ReadBack { mode: Some(mode), ..ReadBack::default() },
            message: "done".into(),
            writes: Vec::new(),
            took: Seconds(0.001),
        };
        OrderAnswer::Switched { report }
    }

    fn answer(&mut self, what: Order) -> OrderAnswer {
        match what {
            Order::SetMode { id, name, .. } => {
                self.journal.get_or_insert(self.live.clone());
                self.enter(ActiveMode { id, name })
            }
            Order::Restore => {
                let original = self.journal.take().unwrap_or_else(|| self.live.clone());
                self.enter(original)
            }
            Order::Settle => {
                self.journal = None;
                OrderAnswer::Settled
            }
            Order::Status => OrderAnswer::Status { journal: None, recovered: None, now: ReadBack::default() },
        }
    }
}

/// A daemon without a machine: its governor, its loop and its control socket.
struct Daemon {
    socket: PathBuf,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    switches: Arc<Mutex<u64>>,
    _dir: tempfile::TempDir,
    _stop: oneshot::Sender<()>,
}

impl Daemon {
    fn start(policy: &Policy) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let fake = support::snapshot();
        let mut board = fake.board.clone();
        board.modes = Reading::Known(modes());
        let mut state = fake.state.clone();
        let live = ActiveMode { id: 0, name: "25W".into() };
        state.power_mode = Reading::Known(live.clone());
        let mut governor = Governor::new(clock::now(), board, state, None, Residuals::default(), policy);
        let (published, snapshots) = watch::channel(governor.snapshot());
        let (tx, mut requests) = mpsc::channel::<rooflined::server::Request>(64);
        let (stop, stopped) = oneshot::channel::<()>();
        let switches = Arc::new(Mutex::new(0));
        let (path, shown, counted) = (socket.clone(), snapshots.clone(), Arc::clone(&switches));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::UnixListener::bind(path).unwrap();
                let limits = Limits { heartbeat: Duration::from_millis(500), ..Limits::default() };
                let stopping = async { drop(stopped.await) };
                tokio::spawn(http::serve(
                    listener,
                    Socket::Control,
                    shown,
                    Control::new(tx),
                    limits,
                    stopping,
                ));
                let mut role = Role { live, journal: None };
                let mut waiting: HashMap<Ticket, oneshot::Sender<Reply>> = HashMap::new();
                let (mut last, mut wake_at) = (0, None::<tokio::time::Instant>);
                loop {
                    let far = tokio::time::Instant::now() + Duration::from_secs(3600);
                    let event = tokio::select! {
                        request = requests.recv() => {
                            let Some(request) = request else { return };
                            last += 1;
                            waiting.insert(last, request.reply);
                            match request.command {
                                Command::Control { client, request } => {
                                    Event::ControlRequested { ticket: last, client, request }
                                }
                                Command::Closed { connection } => Event::ConnectionClosed { connection },
                                _ => continue,
                            }
                        }
                        () = tokio::time::sleep_until(wake_at.unwrap_or(far)) => Event::Tick,
                    };
                    let mut events = vec![event];
                    while let Some(event) = events.pop() {
                        for effect in governor.handle(clock::now(), event) {
                            match effect {
                                Effect::Publish(snapshot) => drop(published.send_replace(snapshot)),
                                Effect::Actuate { order, what } => {
                                    *counted.lock().unwrap() +=
                                        u64::from(matches!(what, Order::SetMode { .. }));
                                    let answer = Box::new(role.answer(what));
                                    events.push(Event::Ordered { order, answer });
                                }
                                Effect::Reply { ticket, reply } => {
                                    if let Some(client) = waiting.remove(&ticket) {
                                        drop(client.send(reply));
                                    }
                                }
                                Effect::WakeAt(at) => {
                                    wake_at = at.map(|at| {
                                        let left = (at - clock::now().boottime).max(Seconds::ZERO).get();
                                        tokio::time::Instant::now() + Duration::from_secs_f64(left)
                                    });
                                }
                                _ => {}
                            }
                        }
                    }
                }
            });
        });
        let daemon = Self { socket, snapshots, switches, _dir: dir, _stop: stop };
        daemon.until("the socket", |_| daemon.socket.exists());
        daemon
    }

    fn until(&self, what: &str, done: impl Fn(&Snapshot) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !done(&self.snapshots.borrow()) {
            assert!(Instant::now() < end, "{what} did not come: {:?}", self.snapshots.borrow().power);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn mode(&self) -> String {
        self.snapshots.borrow().state.power_mode.known().unwrap().name.clone()
    }
}

fn send(socket: &Path, method: &str, path: &str, body: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    stream
}

fn ask(socket: &Path, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut reader = BufReader::new(send(socket, method, path, &body));
    let (mut line, mut status, mut length) = (String::new(), 0, 0);
    while reader.read_line(&mut line).unwrap() > 2 {
        let lower = line.to_ascii_lowercase();
        if let Some(rest) = lower.strip_prefix("http/1.1 ") {
            status = rest[..3].parse().unwrap();
        }
        if let Some(rest) = lower.strip_prefix("content-length: ") {
            length = rest.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

/// The event line of an attached hold, and the connection that it lasts for.
fn attach(socket: &Path, watts: f64) -> (BufReader<UnixStream>, Value) {
    let body = json!({ "constraints": { "max_power_w": watts }, "app_id": "a test" }).to_string();
    let mut reader = BufReader::new(send(socket, "POST", "/v1/holds/attached", &body));
    let mut line = String::new();
    loop {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "closed");
        if line.starts_with('{') {
            return (reader, serde_json::from_str(&line).unwrap());
        }
    }
}

#[test]
fn a_switch_is_confirmed_or_taken_back_over_http() {
    let daemon = Daemon::start(&policy());
    let ask = |method: &str, path: &str, body: Value| ask(&daemon.socket, method, path, &body);
    let (status, answer) = ask("POST", "/v1/mode", json!({ "mode": "15w", "confirm_within_s": 1 }));
    assert_eq!((status, &answer["outcome"], &answer["reached"]), (200, &json!("applied"), &json!("15W")));
    let (status, error) = ask("POST", "/v1/mode", json!({ "mode": "7W" }));
    assert_eq!((status, &error["error"]["code"]), (409, &json!("busy")));
    let begun = Instant::now();
    daemon.until("the way back", |snapshot| snapshot.power.pending.is_none());
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert_eq!(daemon.mode(), "25W");
    let (_, answer) = ask("POST", "/v1/mode", json!({ "mode": "15W", "confirm_within_s": 60 }));
    let (status, done) = ask("POST", "/v1/mode/confirm", json!({ "id": answer["confirm"]["id"] }));
    assert_eq!((status, done), (200, json!({ "done": true })));
    let (status, error) = ask("POST", "/v1/mode/revert", Value::Null);
    assert_eq!((status, &error["error"]["code"]), (404, &json!("not_pending")));
    let (status, error) = ask("POST", "/v1/mode", json!({ "mode": "16W" }));
    assert_eq!((status, &error["error"]["code"]), (400, &json!("unknown_mode")));
    assert!(error["error"]["hint"].as_str().unwrap().contains("15W"), "{error}");
}

#[test]
fn a_hold_is_renewed_released_and_shown_without_what_releases_it() {
    let daemon = Daemon::start(&policy());
    let ask = |method: &str, path: &str, body: Value| ask(&daemon.socket, method, path, &body);
    let body = json!({ "constraints": { "max_power_w": 15 }, "app_id": "llm", "ttl_s": 60 });
    let (status, held) = ask("POST", "/v1/holds", body);
    assert_eq!((status, &held["mode"]), (200, &json!("7W")));
    let (_, shown) = ask("GET", "/v1/holds", Value::Null);
    assert_eq!((&shown["active_mode"], &shown["cause"]), (&json!("7W"), &json!("hold")));
    assert_eq!(shown["holds"][0]["app_id"], "llm");
    assert!(!shown.to_string().contains(&held["id"].to_string()), "{shown}");
    let path = format!("/v1/holds/{}", held["id"]);
    assert_eq!(ask("PUT", &path, json!({ "ttl_s": 3600 })).0, 200);
    assert_eq!(ask("DELETE", &path, Value::Null).0, 200);
    assert_eq!(ask("DELETE", &path, Value::Null).0, 404);
    daemon.until("the mode of before", |snapshot| snapshot.state.power_mode.known().unwrap().name == "25W");
}

#[test]
fn a_hold_ends_with_its_time_within_half_a_second() {
    let daemon = Daemon::start(&policy());
    let body = json!({ "constraints": { "max_power_w": 15 }, "app_id": "llm", "ttl_s": 1 });
    let begun = Instant::now();
    assert_eq!(ask(&daemon.socket, "POST", "/v1/holds", &body).0, 200);
    daemon.until("the end", |snapshot| snapshot.power.holds.is_empty());
    assert!((1.0..1.5).contains(&begun.elapsed().as_secs_f64()), "{:?}", begun.elapsed());
}

#[test]
fn nobody_switches_before_control_is_enabled() {
    let daemon = Daemon::start(&Policy { control_enabled: false, ..policy() });
    let (status, error) = ask(&daemon.socket, "POST", "/v1/mode", &json!({ "mode": "15W" }));
    assert_eq!((status, &error["error"]["code"]), (403, &json!("control_disabled")));
    assert_eq!(*daemon.switches.lock().unwrap(), 0);
}

#[test]
fn a_thousand_holds_of_dying_clients_leave_none() {
    let daemon = Daemon::start(&policy());
    let mut held = 0;
    for number in 0..1000 {
        let watts = if number % 2 == 0 { 15.0 } else { 25.0 };
        if number % 4 == 3 {
            // Gone before the answer.
            let body = json!({ "constraints": { "max_power_w": watts }, "app_id": "a test" }).to_string();
            drop(send(&daemon.socket, "POST", "/v1/holds/attached", &body));
            continue;
        }
        let (reader, line) = attach(&daemon.socket, watts);
        assert_eq!(line["event"], "held", "{line}");
        held += 1;
        drop(reader);
        if number % 8 == 0 {
            daemon.until("the end of the hold", |snapshot| snapshot.power.holds.is_empty());
        }
    }
    assert_eq!(held, 750);
    daemon.until("the end of the last hold", |snapshot| snapshot.power.holds.is_empty());
    daemon.until("the mode of before", |snapshot| snapshot.state.power_mode.known().unwrap().name == "25W");
    println!("{held} granted, {} switches, 0 left", daemon.switches.lock().unwrap());
}

#[test]
fn an_attached_hold_beats_and_tells_its_end() {
    let daemon = Daemon::start(&policy());
    let (mut reader, line) = attach(&daemon.socket, 15.0);
    let mut text = String::new();
    while !text.contains("heartbeat") {
        reader.read_line(&mut text).unwrap();
    }
    assert_eq!(ask(&daemon.socket, "DELETE", &format!("/v1/holds/{}", line["id"]), &Value::Null).0, 200);
    while !text.contains("ended") {
        assert!(reader.read_line(&mut text).unwrap() > 0, "{text}");
    }
    assert!(text.contains("released"), "{text}");
}
