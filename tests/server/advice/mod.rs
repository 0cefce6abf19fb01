//! Recommendations that are kept true: over the sockets of a server whose snapshots the test publishes, and by the real
//! daemon on a simulated board that is switched and heated.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rooflined::server::Limits;
use rooflined_core::board::{ActiveMode, Reading, ThermalZone};
use rooflined_core::precision::Precision;
use rooflined_core::units::{Bytes, BytesPerSecond, Celsius, FlopsPerSecond};
use serde_json::{Value, json};

mod board;

use crate::support::{Server, ask, connect, short_limits, snapshot};

/// Streams from memory.
const GEMV: &str = r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096}},"freedom":{"formats":["int8"]}}"#;
/// Computes.
const GEMM: &str =
    r#"{"workload":{"op":{"kind":"gemm","m":512,"n":512,"k":512}},"freedom":{"formats":["fp32"]}}"#;

/// The events of one subscription.
struct Watch {
    reader: BufReader<UnixStream>,
}

impl Watch {
    /// Opened, with the header read.
    fn open(socket: &Path, body: &str) -> Self {
        let mut stream = connect(socket);
        let length = body.len();
        let request =
            format!("POST /v1/recommend/watch HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let (mut head, mut line) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0, "closed after {head}");
            head.push_str(&line);
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        Self { reader }
    }

    /// Opened, with the first answer.
    fn begin(socket: &Path, body: &str) -> (Self, Value) {
        let mut watch = Self::open(socket, body);
        let (name, answer) = watch.next();
        assert_eq!(name, "recommend");
        (watch, answer)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.reader.read_line(&mut line).unwrap() > 0, "the stream ended");
            // What is left of the chunks that HTTP frames a stream with.
            if line.contains(": ") {
                return line;
            }
        }
    }

    /// The next event with its data; comments are passed over.
    fn next(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let line = self.line();
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim_end().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).unwrap());
            }
        }
    }

    /// What has altered, and the answer that follows.
    fn change(&mut self) -> (Value, Value) {
        let (name, stale) = self.next();
        assert_eq!(name, "advice_stale", "{stale}");
        let (name, answer) = self.next();
        assert_eq!(name, "recommend", "{answer}");
        assert_eq!(stale["serial"], answer["serial"]);
        (stale, answer)
    }
}

fn server() -> Server {
    Server::start(snapshot(), short_limits())
}

fn set_bandwidth(server: &Server, bytes_per_s: f64) {
    server.publish(|snapshot| snapshot.roofline.bandwidth.value = BytesPerSecond(bytes_per_s));
}

fn causes(stale: &Value) -> &Value {
    &stale["causes"]
}

#[test]
fn a_subscriber_is_told_why_its_answer_altered_and_what_it_is_now() {
    let server = server();
    for socket in [server.query(), server.control_socket()] {
        let now = ask(&socket, "POST", "/v1/recommend", GEMV).json();
        let (mut watch, first) = Watch::begin(&socket, GEMV);
        assert_eq!(first, now, "the first answer is that of the question without an end");
        let previous = &first["decision"]["prediction"]["time_s"];
        server.publish(|snapshot| {
            snapshot.state.power_mode = Reading::Known(ActiveMode { id: 2, name: "15W".into() });
            snapshot.roofline.bandwidth.value = BytesPerSecond(25e9);
        });
        let (stale, answer) = watch.change();
        assert_eq!((&stale["was_serial"], &stale["serial"]), (&first["serial"], &answer["serial"]));
        assert_eq!(causes(&stale), &json!(["mode"]));
        let reason = stale["reason"].as_str().unwrap();
        assert!(reason.starts_with("the power mode went from unknown to 15W: "), "{reason}");
        assert_eq!(stale["changes"][0]["field"], "decision.power_mode");
        assert_eq!(
            (&stale["changes"][1]["field"], &stale["changes"][1]["told"]),
            (&json!("decision.prediction.time_s"), previous)
        );
        assert!(stale["changes"][1]["now"]["value"].as_f64() > previous["high"].as_f64());
        assert_eq!(answer, ask(&socket, "POST", "/v1/recommend", GEMV).json());
        server.publish(|snapshot| {
            snapshot.state.power_mode = Reading::absent("no nvpmodel");
            snapshot.roofline.bandwidth.value = BytesPerSecond(50e9);
        });
    }
}

/// The first event after what does not matter is that of what does.
#[test]
fn what_leaves_the_answer_as_it_is_is_not_told() {
    let server = server();
    let (mut watch, first) = Watch::begin(&server.query(), GEMV);
    server.publish(|snapshot| {
        let temperature = Reading::Known(Celsius(90.0));
        snapshot.state.temperatures = Reading::Known(vec![ThermalZone { name: "cpu".into(), temperature }]);
    });
    server.publish(|snapshot| _ = snapshot.degraded.insert("bus", "gone; start it".into()));
    // Within the interval, and a precision that int8 does not compute in.
    set_bandwidth(&server, 49e9);
    server.publish(|snapshot| {
        snapshot.roofline.compute.get_mut(&Precision::Fp32).unwrap().value = FlopsPerSecond(50e9);
    });
    server.publish(|snapshot| {
        if let Reading::Known(memory) = &mut snapshot.state.memory {
            memory.available = Bytes(3e9);
        }
    });
    set_bandwidth(&server, 40e9);
    let (stale, _) = watch.change();
    assert_eq!((&stale["serial"], &stale["was_serial"]), (&json!(23), &first["serial"]));
    assert!(stale["reason"].as_str().unwrap().contains("moved by"), "{stale}");
}

/// Each step lies within the interval of the one before; the answer that was sent last is what counts.
#[test]
fn small_steps_add_up_to_one_that_is_told() {
    let server = server();
    let (mut watch, first) = Watch::begin(&server.query(), GEMV);
    let high = first["decision"]["prediction"]["time_s"]["high"].as_f64().unwrap();
    for step in 1..=20 {
        set_bandwidth(&server, 50e9 * (1.0 - 0.01 * f64::from(step)));
        std::thread::sleep(Duration::from_millis(10));
    }
    let (stale, answer) = watch.change();
    assert_eq!(stale["was_serial"], 17);
    assert!(answer["decision"]["prediction"]["time_s"]["value"].as_f64().unwrap() > high);
}

#[test]
fn each_subscriber_is_told_of_its_own_answer_alone() {
    let server = server();
    let (mut streaming, _) = Watch::begin(&server.query(), GEMV);
    let (mut computing, _) = Watch::begin(&server.query(), GEMM);
    set_bandwidth(&server, 30e9);
    assert_eq!(streaming.change().0["serial"], 18);
    server.publish(|snapshot| {
        snapshot.roofline.compute.get_mut(&Precision::Fp32).unwrap().value = FlopsPerSecond(50e9);
    });
    assert_eq!(computing.change().0["serial"], 19, "the bandwidth was nothing to it");
    set_bandwidth(&server, 50e9);
    assert_eq!(streaming.change().0["serial"], 20, "neither was the peak to the other");
}

#[test]
fn a_target_that_can_no_longer_be_met_and_can_be_again_is_told() {
    let server = server();
    let body = r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096}},"freedom":{"formats":["int8"]},
        "constraints":{"max_time_s":0.0005}}"#;
    let (mut watch, first) = Watch::begin(&server.query(), body);
    assert_eq!(first["feasible"], true);
    set_bandwidth(&server, 30e9);
    let (stale, answer) = watch.change();
    assert!(stale["reason"].as_str().unwrap().ends_with("nothing meets max_time_s any more"), "{stale}");
    assert_eq!((&answer["feasible"], &answer["violated"]), (&json!(false), &json!(["max_time_s"])));
    set_bandwidth(&server, 50e9);
    let (stale, answer) = watch.change();
    assert_eq!(stale["changes"], json!([{ "field": "feasible", "told": false, "now": true }]));
    assert_eq!(answer["feasible"], true);
}

#[test]
fn a_question_that_can_no_longer_be_answered_says_so_and_goes_on() {
    let server = server();
    let (mut watch, _) = Watch::begin(
        &server.query(),
        r#"{"operating_point":{"cpu_hz":1e9},"workload":{"op":{"kind":"gemv","n":64,"k":64}}}"#,
    );
    let clock = snapshot().roofline.clock;
    // Ceilings of an unknown clock cannot be scaled to another.
    server.publish(|snapshot| snapshot.roofline.clock = None);
    let (name, stale) = watch.next();
    assert_eq!((name.as_str(), &stale["error"]["code"]), ("advice_stale", &json!("not_calibrated")));
    // Sent once.
    server.publish(|snapshot| snapshot.roofline.workers = 1);
    server.publish(|snapshot| snapshot.roofline.workers = 2);
    server.publish(|snapshot| snapshot.roofline.clock = clock);
    let (stale, answer) = watch.change();
    assert_eq!((&stale["serial"], &stale["error"]), (&json!(21), &Value::Null));
    assert_eq!(answer["feasible"], true);
}

#[test]
fn a_wrong_question_is_refused_before_any_stream() {
    let server = server();
    let op = |n: &str| format!(r#"{{"workload":{{"op":{{"kind":"gemv","n":{n},"k":64}}}}}}"#);
    let other = r#"{"hardware":"h100","workload":{"op":{"kind":"gemv","n":64,"k":64}},"freedom":{"formats":["fp16"]}}"#;
    for (body, code, field) in [
        ("{".to_owned(), "invalid_json", ""),
        (String::new(), "invalid_json", ""),
        (r#"{"wrkload":{}}"#.to_owned(), "unknown_field", "wrkload"),
        (op("0"), "invalid_dimension", "workload.op.n"),
        (op("NaN"), "invalid_json", ""),
        (op("64").replace("}}}", r#"}},"freedom":{"formats":[]}}"#), "invalid_field", "freedom.formats"),
        (other.to_owned(), "invalid_field", "hardware"),
    ] {
        let answer = server.post("/v1/recommend/watch", &body);
        assert_eq!((answer.status, answer.error()), (400, (code.into(), field.into())), "{body}");
    }
    assert_eq!(server.post("/v1/recommend/watch", &"x".repeat(1 << 20)).status, 413);
    let query = server.post("/v1/recommend/watch?mode=15W", GEMV);
    assert_eq!(query.error(), ("unknown_field".into(), "mode".into()));
    assert_eq!(server.get("/v1/recommend/watch").status, 405);
    assert!(server.get("/metrics").body.contains("rooflined_http_streams{socket=\"query\"} 0"));
}

#[test]
fn streams_are_bounded_freed_by_those_who_leave_and_ended_with_the_server() {
    let server = server();
    let mut watches: Vec<_> = (0..3).map(|_| Watch::begin(&server.query(), GEMV).0).collect();
    let answer = server.post("/v1/recommend/watch", GEMV);
    assert_eq!((answer.status, answer.error().0.as_str()), (503, "too_many_connections"));
    assert_eq!(server.get("/v1/events").status, 503, "events have the same places");
    assert_eq!(server.post("/v1/recommend/watch", "{").status, 400, "a wrong question is wrong all the same");
    drop(watches.pop());
    let begun = Instant::now();
    while server.get("/metrics").body.contains("streams{socket=\"query\"} 3") {
        assert!(begun.elapsed() < Duration::from_secs(10), "the place is still taken");
    }
    drop(Watch::begin(&server.query(), GEMV));
    server.stop();
    let mut rest = String::new();
    watches[0].reader.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "ended in order: {rest:?}");
}

/// The heart beats on while snapshots come that alter nothing, and the daemon hears that somebody looks.
#[test]
fn a_quiet_stream_says_that_it_is_there() {
    let server = server();
    let (mut watch, _) = Watch::begin(&server.query(), GEMV);
    let (snapshots, done) = (server.snapshots.clone(), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                snapshots.send_modify(|snapshot| std::sync::Arc::make_mut(snapshot).serial += 1);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        assert_eq!(watch.line(), ": still here\n");
        assert_eq!(watch.line(), ": still here\n");
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(server.seen.try_iter().any(|seen| seen == "Watched"));
}

/// Nothing is queued: who reads late gets the difference to the newest, and who never does is cut off.
#[test]
fn a_reader_that_stops_reading_is_cut_off() {
    let server = Server::start(snapshot(), Limits { heartbeat: Duration::from_secs(60), ..short_limits() });
    let _unread = Watch::open(&server.query(), GEMV);
    let open =
        |server: &Server| server.get("/metrics").body.contains("rooflined_http_streams{socket=\"query\"} 1");
    assert!(open(&server));
    let begun = Instant::now();
    let mut slow = false;
    while open(&server) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the stream is still open");
        slow = !slow;
        set_bandwidth(&server, if slow { 20e9 } else { 50e9 });
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// 3 formats x 16384 batches take long; meanwhile the server answers, and the newest is sent in the end.
#[test]
fn a_large_question_is_answered_again_while_others_are_served() {
    let server = server();
    let body = r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096}},"objective":"latency",
        "freedom":{"batch":{"min":1,"max":16384}}}"#;
    let (mut watch, first) = Watch::begin(&server.query(), body);
    assert_eq!(first["candidates"], 3 * 16384);
    for step in 1..=50 {
        set_bandwidth(&server, 50e9 / f64::from(step));
        assert_eq!(server.get("/-/healthy").status, 200);
    }
    // The choice streams, and so fast it never did: that alters whatever was sent last.
    set_bandwidth(&server, 200e9);
    while watch.change().0["serial"] != 68 {}
}
