//! A daemon's memory under everything that users may do at once, each as much as it gets: the most that it ever takes is bounded.
//!
//! `ROOFLINED_SOAK_S` says how many seconds of it (20 by default).

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use futures_util::future::join_all;
use rooflined::server::dbus::{NAME, PATH};
use zbus::connection::Builder;

use super::bus::PrivateBus;
use super::harness::{Home, get};
use super::sharing::{abandon_reads_of_properties, become_user, memory_kib, open_to_all, post};
use super::soak::seconds;

/// What the daemon may take at most, in KiB.
const MOST_KIB: u64 = 200_000_000 / 1024;
const USERS: [u32; 3] = [64_011, 64_012, 64_013];
/// Answers that a user leaves unread at a time.
const UNREAD: usize = 40;
type Doing = fn(&Attack<'_>);
/// What each user does all the time.
const KINDS: [(&str, Doing); 10] = [
    ("sweeps read", sweeps_that_are_read),
    ("sweeps left unread", sweeps_that_are_not_read),
    ("connections closed at once", connections_closed_at_once),
    ("events left unread", events_that_are_not_read),
    ("searches", searches),
    ("model files", model_files),
    ("reports", reports),
    ("reads of all properties", reads_of_properties),
    ("messages of 30 MB", large_messages),
    ("calls of senders that leave", calls_of_senders_that_leave),
];

/// Something that one user does until it is over.
struct Attack<'a> {
    query: &'a Path,
    bus: &'a str,
    over: &'a AtomicBool,
    /// How often it was done.
    done: &'a AtomicU64,
}

impl Attack<'_> {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends a request over a connection of its own; `None` where there was no place for it.
    fn ask(&self, request: &[u8]) -> Option<UnixStream> {
        let mut stream = UnixStream::connect(self.query).ok()?;
        stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request).ok()?;
        Some(stream)
    }

    /// Asks, and reads the answer to its end.
    fn ask_and_read(&self, request: &[u8]) {
        let mut buffer = [0; 65_536];
        let Some(mut stream) = self.ask(request) else { return sleep(Duration::from_millis(5)) };
        while self.goes_on() && stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
        self.count();
    }
}

/// About as many rows as an answer may have, with warnings and names that are longer in JSON.
fn sweep() -> String {
    let batches: Vec<String> = (1..=2_900_u32).map(|batch| batch.to_string()).collect();
    let body = format!(
        r#"{{"hardware":"h100","ops":[{{"kind":"gemv","n":64,"k":64}}],"formats":["fp16","int8"],"batches":[{}]}}"#,
        batches.join(",")
    );
    post("/v1/sweep", &body)
}

fn sweeps_that_are_read(attack: &Attack<'_>) {
    let request = sweep();
    while attack.goes_on() {
        attack.ask_and_read(request.as_bytes());
    }
}

/// A little is read of each now and then, so that none is cut off for standing still.
fn sweeps_that_are_not_read(attack: &Attack<'_>) {
    let request = sweep();
    let mut held: VecDeque<UnixStream> = VecDeque::new();
    while attack.goes_on() {
        if let Some(stream) = attack.ask(request.as_bytes()) {
            stream.set_nonblocking(true).unwrap();
            held.push_back(stream);
            attack.count();
        }
        held.retain_mut(|stream| {
            let mut some = [0; 512];
            stream
                .read(&mut some)
                .map_or_else(|error| error.kind() == std::io::ErrorKind::WouldBlock, |read| read > 0)
        });
        if held.len() > UNREAD {
            held.pop_front();
        }
        sleep(Duration::from_millis(20));
    }
}

fn connections_closed_at_once(attack: &Attack<'_>) {
    while attack.goes_on() {
        for _ in 0..100 {
            drop(UnixStream::connect(attack.query));
        }
        attack.count();
    }
}

fn events_that_are_not_read(attack: &Attack<'_>) {
    let watched =
        post("/v1/recommend/watch", r#"{"workload":{"model":"tinyllama-1.1b","context_tokens":512}}"#);
    let requests = ["GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), watched];
    let mut held = VecDeque::new();
    while attack.goes_on() {
        for request in &requests {
            held.extend(attack.ask(request.as_bytes()));
            attack.count();
        }
        while held.len() > 2 * UNREAD {
            held.pop_front();
        }
        sleep(Duration::from_millis(50));
    }
}

/// As many candidates as a search may have, and clients that leave in the middle of every second one.
fn searches(attack: &Attack<'_>) {
    let body = r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096}},"freedom":{"batch":{"min":1,"max":8192},"formats":["fp32","fp16","int8"]}}"#;
    let request = post("/v1/recommend", body);
    for turn in 0.. {
        if !attack.goes_on() {
            return;
        }
        if turn % 2 == 0 {
            attack.ask_and_read(request.as_bytes());
        } else {
            drop(attack.ask(request.as_bytes()));
            attack.count();
        }
    }
}

/// The longest header that is read: as many tensors as a file may have, with long names.
fn model_file() -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let tensors = 262_144_u64;
    let mut file =
        [&b"GGUF"[..], &3_u32.to_le_bytes(), &tensors.to_le_bytes(), &1_u64.to_le_bytes()].concat();
    file.extend(text("general.architecture"));
    file.extend([&8_u32.to_le_bytes()[..], &text("llama")].concat());
    for index in 0..tensors {
        let mut name = String::new();
        let _ = write!(name, "blk.{index}.");
        let name = format!("{name:a<200}");
        file.extend(text(&name));
        file.extend(1_u32.to_le_bytes());
        file.extend(8_u64.to_le_bytes());
        file.extend(0_u32.to_le_bytes());
        file.extend((32 * index).to_le_bytes());
    }
    file.truncate(64 << 20);
    file.resize(64 << 20, 0);
    file
}

/// As many short values as a configuration may have.
fn configuration() -> Vec<u8> {
    let values = vec![r#""abcdefghijklmnopqrstuvwx""#; 131_000].join(",");
    format!(r#"{{"model_type":"llama","x":[{values}]}}"#).into_bytes()
}

fn model_files(attack: &Attack<'_>) {
    let requests = [model_file(), configuration()].map(|body| {
        let head = format!(
            "POST /v1/models/inspect?name=x HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), &body].concat()
    });
    while attack.goes_on() {
        for request in &requests {
            attack.ask_and_read(request);
        }
    }
}

fn reports(attack: &Attack<'_>) {
    let report = r#"{"engine":"llama.cpp","workload":{"model":"tinyllama-1.1b","format":"q4_0","context_tokens":512},"measured_time_s":0.05}"#;
    let request = post("/v1/observations", &format!("[{}]", vec![report; 400].join(",")));
    while attack.goes_on() {
        attack.ask_and_read(request.as_bytes());
    }
}

fn on_bus<F: Future<Output = ()>>(attack: &Attack<'_>, calls: impl Fn(zbus::Connection) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        while attack.goes_on() {
            // One that the bus has thrown out comes again.
            let connecting = Builder::address(attack.bus).build();
            match tokio::time::timeout(Duration::from_secs(5), connecting).await {
                Ok(Ok(client)) => drop(tokio::time::timeout(Duration::from_secs(10), calls(client)).await),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
            attack.count();
        }
    });
}

fn reads_of_properties(attack: &Attack<'_>) {
    on_bus(attack, |client| async move {
        let read =
            || client.call_method(Some(NAME), PATH, Some("org.freedesktop.DBus.Properties"), "GetAll", &NAME);
        join_all((0..120).map(|_| read())).await;
    });
}

fn large_messages(attack: &Attack<'_>) {
    on_bus(attack, |client| async move {
        let body = ("x", "y".repeat(30_000_000));
        let power = "io.github.rooflined.Rooflined1.Power";
        let _ = client.call_method(Some(NAME), PATH, Some(power), "Hold", &body).await;
    });
}

fn calls_of_senders_that_leave(attack: &Attack<'_>) {
    let bus = Path::new(attack.bus.strip_prefix("unix:path=").unwrap());
    while attack.goes_on() {
        match abandon_reads_of_properties(bus) {
            Ok(()) => attack.count(),
            // The bus has as many of this user as it takes.
            Err(_) => sleep(Duration::from_millis(5)),
        }
    }
}

#[test]
fn whatever_users_do_at_once_the_daemon_takes_no_more_than_200_mb() {
    let Some(bus) = PrivateBus::start() else { return };
    let mut home = Home::new();
    home.bus = bus.address();
    let Some(daemon) = open_to_all(&home) else { return };
    let before = memory_kib(&daemon);
    let (query, address, over) = (home.query(), bus.address(), AtomicBool::new(false));
    let done: [AtomicU64; KINDS.len()] = Default::default();
    let mut peaks = Vec::new();
    scope(|threads| {
        for uid in USERS {
            for ((_, attack), done) in KINDS.iter().zip(&done) {
                let with = Attack { query: &query, bus: &address, over: &over, done };
                threads.spawn(move || {
                    become_user(uid);
                    attack(&with);
                });
            }
        }
        let slices = 10;
        for _ in 0..slices {
            sleep(Duration::from_secs(seconds(20)) / slices);
            peaks.push(memory_kib(&daemon));
        }
        over.store(true, Ordering::Relaxed);
    });
    let counts: Vec<String> = KINDS
        .iter()
        .zip(&done)
        .map(|((what, _), done)| format!("{what} {}", done.load(Ordering::Relaxed)))
        .collect();
    println!("memory at most, in KiB: {before} before, then {peaks:?}; {}", counts.join(", "));
    get(&query, "/v1/state");
    assert!(done.iter().all(|done| done.load(Ordering::Relaxed) > 0), "{counts:?}");
    let peak = memory_kib(&daemon);
    assert!(peak <= MOST_KIB, "the daemon took {peak} KiB: {peaks:?}");
}
