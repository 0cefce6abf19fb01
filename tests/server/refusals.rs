//! Every refusal is one JSON error that its client comes to read, whatever it sends and however it ends its sending.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rooflined::server::Limits;

use crate::support::{Response, Server, ask, connect, parse, read_response, short_limits, snapshot};

/// Writes everything before it reads anything, as most clients do: each write has to succeed.
fn write_first(socket: &Path, request: &[u8]) -> Response {
    let mut stream = connect(socket);
    stream.write_all(request).unwrap_or_else(|error| panic!("{error} before all was written"));
    read_response(&mut stream)
}

/// Status and code, after checking that it is a whole error of ours.
fn refused(answer: &Response) -> (u16, String) {
    assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
    assert_eq!(answer.header("x-rooflined-serial"), Some("17"), "{answer:?}");
    let length = answer.header("content-length").map(|length| length.parse::<usize>().unwrap());
    assert_eq!(length, Some(answer.body.len()), "{answer:?}");
    (answer.status, answer.error().0)
}

fn server() -> Server {
    Server::start(snapshot(), short_limits())
}

#[test]
fn what_is_no_http_is_refused_in_json() {
    let server = server();
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\r\n\r\n"[..],
        b"hello\r\n\r\n",
        b"GET /v1/state\r\n\r\n",
        b"GET /v1/state HTTP/9.9\r\n\r\n",
        b"GET /v1/state HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: many\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    ] {
        let answer = write_first(&server.query(), garbage);
        assert_eq!(refused(&answer), (400, "malformed_request".into()), "{}", garbage.escape_ascii());
        assert_eq!(answer.header("connection"), Some("close"));
    }
    assert_eq!(server.get("/v1/state").status, 200);
}

#[test]
fn garbage_behind_a_request_is_refused_behind_its_answer() {
    let server = server();
    let mut stream = connect(&server.query());
    stream.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n\x01\x02\x03\r\n\r\n").unwrap();
    let mut both = String::new();
    stream.read_to_string(&mut both).unwrap();
    let second = both.rfind("HTTP/1.1 ").unwrap();
    assert_eq!(parse(&both[..second]).status, 200, "{both}");
    assert_eq!(refused(&parse(&both[second..])), (400, "malformed_request".into()));
}

#[test]
fn a_header_beyond_its_limits_is_refused_in_json() {
    let server = server();
    let many: String = (0..200).map(|index| format!("x-{index}: y\r\n")).collect();
    let answer = write_first(&server.query(), format!("GET /v1/state HTTP/1.1\r\n{many}\r\n").as_bytes());
    assert_eq!(refused(&answer), (431, "header_too_large".into()));
    for bytes in [20_000, 1 << 20, 8 << 20] {
        let long = format!("GET /v1/state HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(bytes));
        let answer = write_first(&server.query(), long.as_bytes());
        assert_eq!(refused(&answer), (431, "header_too_large".into()), "{bytes} bytes");
    }
    let target = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "y".repeat(100_000));
    assert_eq!(write_first(&server.query(), target.as_bytes()).status, 431);
}

#[test]
fn a_body_that_nobody_reads_does_not_keep_the_answer_from_its_client() {
    let server = server();
    for bytes in [0, 10, 1 << 16, 1 << 20, 6 << 20, 32 << 20] {
        let body = "x".repeat(bytes);
        for (method, path, expected) in [
            ("POST", "/v1/calibrate", (403, "wrong_socket")),
            ("POST", "/v1/mode", (403, "wrong_socket")),
            ("POST", "/v1/nowhere", (404, "not_found")),
            ("PUT", "/v1/predict", (405, "method_not_allowed")),
        ] {
            let request = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {bytes}\r\n\r\n{body}"
            );
            let answer = write_first(&server.query(), request.as_bytes());
            assert_eq!(refused(&answer), (expected.0, expected.1.into()), "{path} {bytes}");
        }
    }
    let body = "x".repeat(10 << 20);
    let request =
        format!("POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    assert_eq!(
        refused(&write_first(&server.query(), request.as_bytes())),
        (413, "body_too_large".into()),
        "far beyond the limit"
    );
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20)).repeat(10);
    let request =
        format!("POST /v1/predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{chunk}0\r\n\r\n");
    assert_eq!(refused(&write_first(&server.query(), request.as_bytes())), (413, "body_too_large".into()));
    let answer = ask(&server.query(), "GET", "/v1/state", &"x".repeat(1 << 20));
    assert_eq!(answer.status, 200, "a body says nothing there");
}

/// The connection is of use for the next request where the body was read to its end.
#[test]
fn a_request_to_the_wrong_socket_leaves_the_connection_usable() {
    let server = server();
    let mut stream = connect(&server.query());
    let body = "x".repeat(60_000);
    let first =
        format!("POST /v1/calibrate HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(first.as_bytes()).unwrap();
    stream.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut both = String::new();
    stream.read_to_string(&mut both).unwrap();
    let second = both.rfind("HTTP/1.1 ").unwrap();
    assert_eq!(refused(&parse(&both[..second])), (403, "wrong_socket".into()));
    assert_eq!(parse(&both[second..]).status, 200);
}

#[test]
fn a_connection_without_a_place_hears_why_though_it_writes_first() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = Server::start(snapshot(), limits);
    let _held = connect(&server.query());
    let body = "x".repeat(1 << 20);
    let request =
        format!("POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    for _ in 0..20 {
        let answer = write_first(&server.query(), request.as_bytes());
        assert_eq!(refused(&answer), (503, "too_many_connections".into()));
    }
}

/// 3 formats x 16384 batches are worked on beside the event loop.
const LARGE: &str = r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096}},"objective":"latency",
    "freedom":{"batch":{"min":1,"max":16384}}}"#;

#[test]
fn a_client_that_has_nothing_more_to_send_is_answered() {
    let server = server();
    for (method, path, body) in
        [("GET", "/v1/state", ""), ("POST", "/v1/recommend", LARGE), ("POST", "/v1/nowhere", LARGE)]
    {
        let mut stream = connect(&server.query());
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let answer = read_response(&mut stream);
        assert_eq!(answer.status, if path == "/v1/nowhere" { 404 } else { 200 }, "{path}: {answer:?}");
        assert!(answer.json().is_object());
    }
}

#[test]
fn a_request_that_ends_in_the_middle_is_refused_at_once() {
    // Refused for what is missing, and not because it takes too long.
    let minute = Duration::from_secs(60);
    let limits = Limits { header_time: minute, body_time: minute, ..Limits::default() };
    let server = Server::start(snapshot(), limits);
    for begun in [
        &b"G"[..],
        b"GET /v1/state HTTP/1.1\r\nhost: x\r\n",
        b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{",
        b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{",
    ] {
        let mut stream = connect(&server.query());
        stream.write_all(begun).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let answer = read_response(&mut stream);
        assert_eq!(refused(&answer), (400, "malformed_request".into()), "{}", begun.escape_ascii());
    }
    let mut silent = connect(&server.query());
    silent.shutdown(Shutdown::Write).unwrap();
    let mut nothing = Vec::new();
    silent.read_to_end(&mut nothing).unwrap();
    assert!(nothing.is_empty(), "those who asked nothing are told nothing");
}

/// Writes a byte now and then until the other end has had enough; what it said.
fn dribble(mut stream: UnixStream, begin: &str) -> Response {
    stream.write_all(begin.as_bytes()).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let answer = std::thread::spawn(move || read_response(&mut reader));
    while !answer.is_finished() {
        match stream.write_all(b"x") {
            Ok(()) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)),
        }
    }
    answer.join().unwrap()
}

#[test]
fn a_client_that_dribbles_is_ended() {
    let server = server();
    for begin in [
        "GET /v1/state HTTP/1.1\r\nx: ",
        "POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n",
        "POST /v1/calibrate HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n",
    ] {
        let answer = dribble(connect(&server.query()), begin);
        let expected = if begin.contains("calibrate") { 403 } else { 408 };
        assert_eq!(refused(&answer).0, expected, "{begin}");
    }
    // None of them has its place any more.
    let page = server.get("/metrics").body;
    assert!(page.contains("rooflined_http_connections{socket=\"query\"} 1\n"), "{page}");
}
