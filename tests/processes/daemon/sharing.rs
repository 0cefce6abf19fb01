//! Users share the daemon: what one takes it does not take from the others.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rooflined::server::dbus::{NAME, PATH};
use rustix::process::{Resource, Rlimit, Uid, getrlimit, prlimit};
use rustix::thread::set_thread_res_uid;

use super::bus::PrivateBus;
use super::harness::{Daemon, Home, PATIENCE, eventually, get, missing};

/// Users that take what they can get.
const GREEDY: [u32; 2] = [64_001, 64_002];
/// Who wants an answer now and then.
const NEIGHBOUR: u32 = 64_003;
/// Connections of a greedy user that are open at once.
const KEPT: usize = 200;

/// Work as another user: who connects is decided by the thread that does.
pub fn become_user(uid: u32) {
    let user = Uid::from_raw(uid);
    set_thread_res_uid(user, user, user).unwrap();
}

/// A daemon that every user may ask; `None`, said aloud, where nobody can become another user.
pub fn open_to_all(home: &Home) -> Option<Daemon> {
    if !rustix::process::geteuid().is_root() {
        missing("root", "become several users");
        return None;
    }
    let daemon = home.start();
    for dir in [home.path(""), home.path("run")] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    Some(daemon)
}

/// What a neighbour asks while others are greedy.
struct Asked<'a> {
    request: &'a str,
    times: usize,
    /// Longest wait for each answer.
    patience: Duration,
}

/// The status of an answer that came in time.
fn ask_in_time(socket: &Path, Asked { request, patience, .. }: &Asked<'_>) -> Result<u16, String> {
    let begun = Instant::now();
    let in_words = |error: std::io::Error| format!("{error} after {:?}", begun.elapsed());
    let mut stream = UnixStream::connect(socket).map_err(in_words)?;
    stream.set_read_timeout(Some(*patience)).unwrap();
    stream.write_all(request.as_bytes()).map_err(in_words)?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).map_err(in_words)?;
    if begun.elapsed() > *patience {
        return Err(format!("an answer after {:?}", begun.elapsed()));
    }
    String::from_utf8_lossy(&answer[9..]).parse().map_err(|_| format!("{}", answer.escape_ascii()))
}

pub fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// What went wrong with questions of a neighbour while greedy users do what they do.
fn ask_beside(
    socket: &Path,
    asked: &[Asked<'_>],
    greed: impl Fn(&Path, &AtomicBool, &AtomicUsize) + Sync,
) -> Vec<String> {
    let (over, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for uid in GREEDY {
            let (over, begun, greed) = (&over, &begun, &greed);
            scope.spawn(move || {
                become_user(uid);
                greed(socket, over, begun);
            });
        }
        eventually("the greedy users", || {
            (begun.load(Ordering::Relaxed) >= GREEDY.len() * KEPT).then_some(())
        });
        let asking = scope.spawn(|| {
            become_user(NEIGHBOUR);
            let all = asked.iter().flat_map(|asked| (0..asked.times).map(move |_| asked));
            let answers = all.map(|asked| ask_in_time(socket, asked));
            answers.filter(|answer| *answer != Ok(200)).map(|answer| format!("{answer:?}")).collect()
        });
        let failed = asking.join();
        over.store(true, Ordering::Relaxed);
        failed.unwrap()
    })
}

#[test]
fn users_who_open_connections_without_end_leave_room_for_another() {
    let home = Home::new();
    let Some(_daemon) = open_to_all(&home) else { return };
    let request = "GET /v1/state HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let asked = [Asked { request, times: 100, patience: Duration::from_secs(1) }];
    let failed = ask_beside(&home.query(), &asked, |socket, over, begun| {
        let mut held = VecDeque::new();
        while !over.load(Ordering::Relaxed) {
            if let Ok(stream) = UnixStream::connect(socket) {
                stream.set_nonblocking(true).unwrap();
                held.push_back(stream);
                begun.fetch_add(1, Ordering::Relaxed);
            }
            // What was refused makes room; what was taken is kept for as long as it lasts.
            if held.len() > KEPT {
                held.retain_mut(|stream| stream.read(&mut [0; 512]).is_err());
            }
        }
    });
    assert!(failed.is_empty(), "{} of 100 failed, such as {}", failed.len(), failed[0]);
}

/// What a daemon takes for itself, in KiB.
pub fn memory_kib(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// Connections that come faster than they are looked after leave nothing behind.
#[test]
fn connections_that_open_and_close_in_a_loop_take_no_memory() {
    let home = Home::new();
    let daemon = home.start();
    let query = home.query();
    let in_a_loop = |times: usize| {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..times).for_each(|_| drop(UnixStream::connect(&query))));
            }
        });
    };
    in_a_loop(1000);
    let before = memory_kib(&daemon);
    in_a_loop(20_000);
    let taken = memory_kib(&daemon) - before;
    assert!(taken < 3 << 10, "40 000 connections took {taken} KiB");
    get(&query, "/v1/state");
}

/// Who it is for, and whether anybody may call it.
#[test]
fn large_messages_on_the_bus_take_no_memory() {
    let Some(bus) = PrivateBus::start() else { return };
    let mut home = Home::new();
    home.bus = bus.address();
    let daemon = home.start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = zbus::connection::Builder::address(bus.address().as_str()).build().await.unwrap();
        let call = async |path: &str, interface: &str, method: &str, size: usize| {
            let body = ("x", "y".repeat(size));
            let called = client.call_method(Some(NAME), path, Some(interface), method, &body);
            tokio::time::timeout(PATIENCE, called).await.unwrap().map(drop)
        };
        let power = "io.github.rooflined.Rooflined1.Power";
        let properties = "org.freedesktop.DBus.Properties";
        while call(PATH, power, "Hold", 8).await.unwrap_err().to_string().contains("ServiceUnknown") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let before = memory_kib(&daemon);
        for (path, interface, method) in [
            (PATH, power, "Hold"),
            (PATH, NAME, "Query"),
            (PATH, properties, "Set"),
            ("/", properties, "Set"),
            ("/x", "a.b", "C"),
        ] {
            assert!(call(path, interface, method, 30_000_000).await.is_err(), "{path} {interface}.{method}");
        }
        let taken = memory_kib(&daemon) - before;
        assert!(taken < 8 << 10, "messages of 30 MB took {taken} KiB");
    });
}

/// Sends reads of all properties to the bus at this path, more than a user may have under way, and leaves without an answer.
pub fn abandon_reads_of_properties(bus: &Path) -> std::io::Result<()> {
    let call = |to: &str, path: &str, interface: &str, method: &str, body: &str| {
        let call = zbus::Message::method_call(path, method).destination(to).interface(interface);
        (if body.is_empty() { call.build(&()) } else { call.build(&body) }).unwrap().data().to_vec()
    };
    let uid = rustix::process::geteuid().as_raw().to_string();
    let uid: String = uid.bytes().map(|digit| format!("{digit:02x}")).collect();
    let driver = "org.freedesktop.DBus";
    let mut messages = call(driver, "/org/freedesktop/DBus", driver, "Hello", "");
    for _ in 0..120 {
        messages.extend(call(NAME, PATH, "org.freedesktop.DBus.Properties", "GetAll", NAME));
    }
    let mut stream = UnixStream::connect(bus)?;
    stream.write_all(format!("\0AUTH EXTERNAL {uid}\r\n").as_bytes())?;
    if stream.read(&mut [0; 512])? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    stream.write_all(&[&b"BEGIN\r\n"[..], &messages].concat())
}

/// Until the bus has told who has sent a call, that call waits.
#[test]
fn calls_of_senders_that_have_left_take_no_memory() {
    let Some(bus) = PrivateBus::start() else { return };
    let mut home = Home::new();
    home.bus = bus.address();
    let daemon = home.start();
    let address = bus.address();
    let path = Path::new(address.strip_prefix("unix:path=").unwrap());
    let in_a_loop = |times: usize| (0..times).for_each(|_| abandon_reads_of_properties(path).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = zbus::connection::Builder::address(address.as_str()).build().await.unwrap();
        let driver = zbus::fdo::DBusProxy::new(&client).await.unwrap();
        while !driver.name_has_owner(NAME.try_into().unwrap()).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    in_a_loop(20);
    let before = memory_kib(&daemon);
    in_a_loop(250);
    let taken = memory_kib(&daemon) - before;
    assert!(taken < 16 << 10, "30 000 calls took {taken} KiB");
    get(&home.query(), "/v1/state");
}

/// 4096 predictions.
const LARGE: &str =
    r#"{"hardware":"h100","ops":[{"kind":"gemv","n":64,"k":64}],"formats":["fp16","int8"],"batches":[@]}"#;

#[test]
fn users_who_ask_large_questions_without_end_leave_time_for_another() {
    let home = Home::new();
    let Some(_daemon) = open_to_all(&home) else { return };
    let batches: Vec<String> = (1..=2048).map(|batch: u32| batch.to_string()).collect();
    let large = post("/v1/sweep", &LARGE.replace('@', &batches.join(",")));
    let request = post("/v1/predict", r#"{"workload":{"op":{"kind":"gemv","n":64,"k":64}}}"#);
    // One that is large itself has its turn behind one of each greedy user.
    let asked = [
        Asked { request: &request, times: 100, patience: Duration::from_secs(10) },
        Asked { request: &large, times: 3, patience: Duration::from_secs(60) },
    ];
    let failed = ask_beside(&home.query(), &asked, |socket, over, begun| {
        let mut held = VecDeque::new();
        while !over.load(Ordering::Relaxed) {
            if let Ok(mut stream) = UnixStream::connect(socket)
                && stream.write_all(large.as_bytes()).is_ok()
            {
                held.push_back(stream);
            }
            begun.fetch_add(1, Ordering::Relaxed);
            if held.len() > KEPT {
                held.pop_front();
            }
        }
    });
    assert!(failed.is_empty(), "{} of 103 failed, such as {}", failed.len(), failed[0]);
}

/// Ticks of the processor that the daemon has taken.
fn ticks(daemon: &Daemon) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn open_files(daemon: &Daemon) -> usize {
    fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

#[test]
fn a_daemon_without_descriptors_answers_who_is_connected_and_recovers() {
    let home = Home::new();
    let daemon = home.start();
    let request = b"GET /v1/state HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut connected = UnixStream::connect(home.query()).unwrap();
    let mut answered = |what: &str| {
        connected.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        connected.write_all(request).unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"}") || !text.starts_with(b"HTTP/1.1 200") {
            let mut more = [0; 65_536];
            let length = connected.read(&mut more).unwrap();
            assert!(length > 0, "closed {what}: {}", text.escape_ascii());
            text.extend_from_slice(&more[..length]);
        }
    };
    answered("at the beginning");
    let few = open_files(&daemon) as u64 + 10;
    let pid = rustix::process::Pid::from_raw(daemon.pid().try_into().unwrap());
    let maximum = getrlimit(Resource::Nofile).maximum;
    let before = prlimit(pid, Resource::Nofile, Rlimit { current: Some(few), maximum }).unwrap();
    let held: Vec<_> = (0..60).map(|_| UnixStream::connect(home.query()).unwrap()).collect();
    eventually("the daemon to run out", || home.log().contains("cannot accept").then_some(()));
    answered("while others wait");
    // Trying again and again without a pause takes all of a processor.
    let (taken, begun) = (ticks(&daemon), Instant::now());
    while begun.elapsed() < Duration::from_secs(2) {
        answered("again and again");
        thread::sleep(Duration::from_millis(100));
    }
    let hundredths = (ticks(&daemon) - taken) * 100 / (100 * begun.elapsed().as_secs());
    assert!(hundredths < 50, "{hundredths} % of a processor");
    // Some go and others come, over and over.
    let mut held = VecDeque::from(held);
    for _ in 0..40 {
        held.pop_front();
        thread::sleep(Duration::from_millis(20));
        held.push_back(UnixStream::connect(home.query()).unwrap());
    }
    let said = home.log().matches("cannot accept").count();
    assert_eq!(said, 1, "{}", home.log());
    prlimit(pid, Resource::Nofile, before).unwrap();
    drop(held);
    get(&home.query(), "/v1/state");
    answered("at the end");
}
