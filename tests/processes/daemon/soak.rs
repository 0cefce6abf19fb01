//! A daemon under clients that behave badly for a while: what it has taken afterwards is what it had taken before.
//!
//! `ROOFLINED_SOAK_S` says how many seconds of load (24 by default). Each round of load ends with a quiet moment, in which
//! everything that clients caused is over and the process is looked at.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::harness::{Daemon, Home, PATIENCE, eventually, get, is_emulated};

const BOARD: &str = "jetson-orin-nano-8gb-super";
/// Load between two looks at the process.
const ROUND: Duration = Duration::from_secs(4);
/// By this much the least memory of the last rounds may exceed that of the rounds before. The allocator keeps what the largest
/// moment took, and which requests meet in one differs: single rounds lie up to 5 MiB apart, the least of many does not. A round
/// makes some thousand requests, so that a hundred bytes lost with each show within minutes.
const ROOM_KIB: u64 = 3 << 10;
/// The same for descriptors and threads: an idle helper thread or one of the reader of files comes and goes.
const ROOM_COUNT: u64 = 2;
/// What may lie in the state and the runtime directory while nobody holds anything.
const FILES: [&str; 10] = [
    "actuate",
    "calibration.json",
    "control.sock",
    "lock",
    "models.json",
    "query.sock",
    "reports.json",
    "rooflined.lock",
    "state.lock",
    "tool.lock",
];
const KINDS: [&str; 9] = [
    "answered",
    "cut off",
    "gone before the answer",
    "held",
    "held by a connection",
    "switched",
    "observed",
    "calibrated",
    "events not read",
];

/// How often each of [`KINDS`] was done.
#[derive(Default)]
struct Done([AtomicUsize; KINDS.len()]);

impl Done {
    fn count(&self, kind: &str) {
        let index = KINDS.iter().position(|other| *other == kind).expect("a kind");
        self.0[index].fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> [usize; KINDS.len()] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// What a process has taken.
#[derive(Debug, Clone)]
struct Taken {
    memory_kib: u64,
    descriptors: usize,
    threads: usize,
    children: usize,
    /// In the state and the runtime directory, without the numbers in their names.
    files: Vec<String>,
}

impl Taken {
    fn by(daemon: &Daemon, home: &Home) -> Self {
        let pid = daemon.pid();
        let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let mut files = Vec::new();
        list(&home.state, &mut files);
        list(&home.path("run"), &mut files);
        files.sort();
        Self {
            memory_kib: line.trim().strip_suffix(" kB").unwrap().parse().unwrap(),
            descriptors: count("fd"),
            threads: count("task"),
            children: daemon.children().len() + daemon.zombies().len(),
            files,
        }
    }
}

fn list(dir: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        files.push(name.chars().filter(|letter| !letter.is_ascii_digit()).collect());
        if path.is_dir() {
            list(&path, files);
        }
    }
}

/// One request as it goes over the socket.
fn request(method: &str, path: &str, body: &Value) -> String {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The status of an answer that is read to its end. 0 where the server closed without one, as it may in a crowd.
fn asked(socket: &Path, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let mut stream = connect(socket);
    let mut answer = String::new();
    // A connection without a place is answered and closed before the request is read.
    let _ = stream.write_all(request(method, path, body).as_bytes());
    let _ = stream.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

/// The status of an answer that is asked for again where a crowd has taken every place of this user.
fn asked_in_a_crowd(socket: &Path, method: &str, path: &str, body: &Value) -> u16 {
    let begun = Instant::now();
    loop {
        match asked(socket, method, path, body).0 {
            0 | 503 if begun.elapsed() < PATIENCE => sleep(Duration::from_millis(20)),
            status => return status,
        }
    }
}

fn workload(index: usize) -> Value {
    let models = ["tinyllama-1.1b", "qwen2.5-0.5b", "llama-3.2-1b"];
    let formats = ["q4_0", "q8_0", "fp16"];
    json!({
        "engine": "llama.cpp",
        "workload": {"model": models[index % 3], "format": formats[index / 3 % 3], "context_tokens": 512},
    })
}

fn held() -> Value {
    json!({"constraints": {"mode": "15W"}, "app_id": "soak", "ttl_s": 3600})
}

/// What clients do until `over`, each in a thread of its own.
fn load(home: &Home, done: &Done, over: &AtomicBool) {
    let (query, control) = (home.query(), home.control());
    let until_over = |body: &mut dyn FnMut(usize)| {
        (0..).take_while(|_| !over.load(Ordering::Relaxed)).for_each(body);
    };
    scope(|threads| {
        threads.spawn(|| {
            until_over(&mut |turn| {
                let asked = match turn % 5 {
                    0 => asked(&query, "GET", "/v1/state", &Value::Null),
                    1 => asked(&query, "GET", "/metrics", &Value::Null),
                    2 => asked(&query, "POST", "/v1/recommend", &workload(turn)),
                    3 => asked(&query, "GET", "/v1/nowhere", &Value::Null),
                    _ => asked(&query, "POST", "/v1/predict", &workload(turn)),
                };
                assert!([200, 404, 409, 422, 503].contains(&asked.0), "{asked:?}");
                done.count("answered");
            });
        });
        threads.spawn(|| {
            until_over(&mut |turn| {
                let whole = request("POST", "/v1/predict", &workload(turn));
                let part = 1 + fastrand::usize(..whole.len());
                let mut stream = connect(if turn % 2 == 0 { &query } else { &control });
                let _ = stream.write_all(&whole.as_bytes()[..part]);
                let is_whole = part == whole.len();
                done.count(if is_whole || turn % 3 == 0 { "gone before the answer" } else { "cut off" });
                if turn % 3 == 0 {
                    let _ = stream.write_all(&whole.as_bytes()[part..]);
                }
                sleep(Duration::from_millis(1));
            });
        });
        threads.spawn(|| {
            until_over(&mut |turn| {
                let (status, answer) = asked(&control, "POST", "/v1/holds", &held());
                if status == 200 {
                    let path = format!("/v1/holds/{}", answer["id"]);
                    if turn % 2 == 0 {
                        assert_eq!(asked_in_a_crowd(&control, "PUT", &path, &json!({"ttl_s": 60})), 200);
                    }
                    let released = asked_in_a_crowd(&control, "DELETE", &path, &Value::Null);
                    assert_eq!(released, 200, "{answer}");
                    done.count("held");
                }
                sleep(Duration::from_millis(20));
            });
        });
        threads.spawn(|| {
            until_over(&mut |turn| {
                let mut stream = connect(&control);
                let mut body = held();
                body.as_object_mut().unwrap().remove("ttl_s");
                let _ = stream.write_all(request("POST", "/v1/holds/attached", &body).as_bytes());
                // Gone before it is taken, or a while after.
                if turn % 2 == 0 {
                    let mut some = [0; 64];
                    let _ = stream.read(&mut some);
                    if some.starts_with(b"HTTP/1.1 200") {
                        done.count("held by a connection");
                    }
                }
                sleep(Duration::from_millis(30));
            });
        });
        threads.spawn(|| {
            until_over(&mut |turn| {
                let mode = ["15W", "25W", "MAXN_SUPER"][turn % 3];
                if asked(&control, "POST", "/v1/mode", &json!({ "mode": mode })).0 == 200 {
                    done.count("switched");
                }
                sleep(Duration::from_millis(50));
            });
        });
        threads.spawn(|| {
            until_over(&mut |turn| {
                let mut run = workload(turn);
                let (status, answer) = asked(&query, "POST", "/v1/predict", &run);
                if let (200, Some(time)) = (status, answer["time_s"]["value"].as_f64()) {
                    run["time_s"] = (time * (0.9 + 0.2 * fastrand::f64())).into();
                    if asked(&query, "POST", "/v1/observations", &run).0 == 200 {
                        done.count("observed");
                    }
                }
                sleep(Duration::from_millis(5));
            });
        });
        threads.spawn(|| {
            until_over(&mut |turn| {
                let body = json!({"plan": "quick", "force": true, "wait": turn % 2 == 0});
                let mut stream = connect(&control);
                let _ = stream.write_all(request("POST", "/v1/calibrate", &body).as_bytes());
                // Who waits goes in the middle; who does not has its answer at once.
                sleep(Duration::from_millis(300));
                drop(stream);
                done.count("calibrated");
            });
        });
        threads.spawn(|| {
            let mut kept = VecDeque::new();
            until_over(&mut |_| {
                let mut stream = connect(&query);
                let _ = stream.write_all(request("GET", "/v1/events", &Value::Null).as_bytes());
                kept.push_back(stream);
                done.count("events not read");
                if kept.len() > 8 {
                    kept.pop_front();
                }
                sleep(Duration::from_millis(25));
            });
        });
    });
}

/// Waits until nothing is left of what clients caused.
fn quiet(daemon: &mut Daemon, home: &Home) {
    eventually("all to be over", || {
        daemon.notifications();
        let calibration = get(&home.query(), "/v1/calibration");
        let holds = get(&home.query(), "/v1/holds");
        let running = &calibration["status"]["running"];
        (running.is_null() || running == false)
            .then_some(())
            .filter(|()| holds["holds"] == json!([]) && daemon.children().len() <= 1)
    });
}

/// How long a load lasts: `usual` unless the environment says otherwise.
pub fn seconds(usual: u64) -> u64 {
    std::env::var("ROOFLINED_SOAK_S").map_or(usual, |text| text.parse().expect("ROOFLINED_SOAK_S in seconds"))
}

#[test]
fn clients_that_behave_badly_leave_nothing_behind_in_the_daemon() {
    let home = Home::new();
    let configuration = |period: &str| {
        // As a whole: a reload in the middle of a write would find nothing in it, and end control.
        let path = home.path("rooflined.toml");
        let text = format!(
            "[calibration]\nautomatic = false\n[control]\nenabled = true\ndwell_s = 0\n\
             [sampling]\nidle_period_s = 0.5\nperiod_s = {period}\n"
        );
        fs::write(path.with_extension("new"), text).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    };
    configuration("0.2");
    let root = home.path("board");
    let mut daemon = home.start_with(|command: &mut Command| {
        command.args(["--simulate", BOARD]).arg("--root").arg(&root).env("ROOFLINED_LOG", "warn");
    });
    let (done, begun) = (Done::default(), Instant::now());
    let rounds = (seconds(24) / ROUND.as_secs()).max(4) as usize;
    let (mut reloads, mut looks) = (0, Vec::new());
    // On a machine that has little time for it some of it takes more rounds to happen at all.
    while looks.len() < rounds || done.get().contains(&0) && begun.elapsed() < 5 * PATIENCE {
        let over = AtomicBool::new(false);
        scope(|threads| {
            threads.spawn(|| load(&home, &done, &over));
            let end = Instant::now() + ROUND;
            while Instant::now() < end {
                configuration(if reloads % 2 == 0 { "0.1" } else { "0.2" });
                daemon.signal(Signal::HUP);
                reloads += 1;
                // Whom it tells of its state has to listen.
                daemon.notifications();
                sleep(Duration::from_millis(200));
            }
            over.store(true, Ordering::Relaxed);
        });
        quiet(&mut daemon, &home);
        let taken = Taken::by(&daemon, &home);
        println!("after {:.0} s, round {}: {taken:?}", begun.elapsed().as_secs_f64(), looks.len());
        looks.push(taken);
    }
    for (kind, count) in KINDS.iter().zip(done.get()) {
        println!("{kind}: {count}");
        assert!(count > 0, "never {kind}");
    }
    println!("reloads: {reloads}");

    // The first third fills what is kept: observations, answers, the allocator's pages.
    let third = looks.len() / 3;
    let (warm, last) = (&looks[third..2 * third], &looks[2 * third..]);
    let least = |looks: &[Taken], of: fn(&Taken) -> u64| looks.iter().map(of).min().unwrap();
    for (what, of, room) in [
        ("KiB of memory", (|taken| taken.memory_kib) as fn(&Taken) -> u64, ROOM_KIB),
        ("descriptors", |taken| taken.descriptors as u64, ROOM_COUNT),
        ("threads", |taken| taken.threads as u64, ROOM_COUNT),
    ] {
        let (warm, last) = (least(warm, of), least(last, of));
        println!("{what}: at least {warm} in the second third, {last} in the last");
        let foreign = what.contains("memory") && is_emulated(daemon.pid());
        assert!(foreign || last <= warm + room, "{last} {what}, {warm} before");
    }
    let last = &last[last.len() - 1];
    assert!(last.children <= 1, "{} programs were left behind", last.children);
    eventually("its own files alone, each once", || {
        let files = Taken::by(&daemon, &home).files;
        let own = files.iter().all(|name| FILES.contains(&name.as_str()));
        let once = files.windows(2).all(|pair| pair[0] != pair[1]);
        println!("{files:?}");
        (own && once).then_some(())
    });
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success(), "{}", home.log());
}
