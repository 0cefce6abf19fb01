//! Modes and holds through the real HTTP server and the real governor; the privileged helper is a mock that always
//! succeeds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rooflined_governor::Policy;
use serde_json::{Value, json};

use crate::support::governed::{Daemon, policy};

fn send(socket: &Path, method: &str, path: &str, body: &str) -> UnixStream {
    // The daemon's thread may not listen yet.
    let begun = Instant::now();
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
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
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
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
fn a_hold_ends_with_its_time_and_no_sooner() {
    let daemon = Daemon::start(&policy());
    let body = json!({ "constraints": { "max_power_w": 15 }, "app_id": "llm", "ttl_s": 1 });
    let begun = Instant::now();
    assert_eq!(ask(&daemon.socket, "POST", "/v1/holds", &body).0, 200);
    daemon.until("the end", |snapshot| snapshot.power.holds.is_empty());
    assert!((1.0..10.0).contains(&begun.elapsed().as_secs_f64()), "{:?}", begun.elapsed());
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
