//! `rooflinectl dashboard` before the real daemon on a simulated board: what it answers a browser, and what nobody else gets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::harness::{Daemon, Home, PATIENCE, as_nobody, eventually, get, kill, skip};
use super::small_model::small;

const BOARD: &str = "jetson-orin-nano-8gb-super";

/// `rooflinectl dashboard`, killed when dropped.
struct Dashboard {
    child: Child,
    at: SocketAddr,
    token: String,
    control: Value,
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a browser got.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn program(home: &Home, args: &[&str]) -> Command {
    let mut command = Command::new(crate::programs::rooflinectl());
    command.arg("--socket").arg(home.path("run")).arg("dashboard").args(args);
    command.stdin(Stdio::null());
    command
}

fn refused(home: &Home, args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = program(home, args).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

impl Dashboard {
    fn start(home: &Home) -> Self {
        Self::start_with(home, |_| {})
    }

    fn start_with(home: &Home, prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = program(home, &["--listen", "127.0.0.1:0", "-o", "json"]);
        prepare(&mut command);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let url = said["url"].as_str().unwrap();
        let (address, token) = url.strip_prefix("http://").unwrap().split_once("/#token=").unwrap();
        let (at, token) = (address.parse().unwrap(), token.to_owned());
        Self { child, at, token, control: said["control"].clone() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends these bytes on a connection of their own.
    fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        let mut text = Vec::new();
        // A connection that is closed with something unread is reset behind the answer.
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let chunked = head.contains("transfer-encoding: chunked");
        let body = if chunked { unchunked(body) } else { body.to_owned() };
        Answer { status, head: head.to_owned(), body }
    }

    /// A request with these lines of header beside `Host` and `Connection`.
    fn ask(&self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request = format!("{line} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.at);
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            request += &format!("Content-Length: {}\r\n", body.len());
        }
        self.raw(&[request.as_bytes(), b"\r\n", body].concat())
    }

    fn get(&self, path: &str) -> Answer {
        let headers = [("X-Rooflined-Token", self.token.as_str()), ("Sec-Fetch-Site", "same-origin")];
        self.ask(&format!("GET {path}"), &headers, b"")
    }

    /// As the page sends it.
    fn send(&self, line: &str, body: &Value) -> Answer {
        let origin = format!("http://{}", self.at);
        let headers = [
            ("X-Rooflined-Token", self.token.as_str()),
            ("Origin", &origin),
            ("Sec-Fetch-Site", "same-origin"),
            ("Content-Type", "application/json"),
        ];
        self.ask(line, &headers, if body.is_null() { String::new() } else { body.to_string() }.as_bytes())
    }

    /// The beginning of a file of `length` bytes.
    fn upload(&self, name: &str, start: &[u8]) -> Answer {
        let origin = format!("http://{}", self.at);
        let headers = [
            ("X-Rooflined-Token", self.token.as_str()),
            ("Origin", &origin),
            ("Content-Type", "application/octet-stream"),
        ];
        self.ask(&format!("POST /v1/models/inspect?name={name}"), &headers, start)
    }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((length, more)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            break;
        }
        body += &more[..length];
        rest = &more[length + 2..];
    }
    body
}

fn board(home: &Home, control: bool) -> Daemon {
    home.configure(&format!("[calibration]\nautomatic = false\n[control]\nenabled = {control}\n"));
    let root = home.path("board");
    home.start_with(|command| {
        command.args(["--simulate", BOARD]).arg("--root").arg(root);
    })
}

#[test]
fn the_page_needs_no_token_and_may_load_nothing_from_elsewhere() {
    let home = Home::new();
    // Without a daemon too.
    let dashboard = Dashboard::start(&home);
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/index.html", "text/html; charset=utf-8"),
        ("/app.css", "text/css; charset=utf-8"),
        ("/main.js", "text/javascript; charset=utf-8"),
    ] {
        let answer = dashboard.ask(&format!("GET {path}"), &[], b"");
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
        assert!(!policy.contains("http:") && policy.contains("frame-ancestors 'none'"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        assert!(!answer.body.contains(&dashboard.token) && !answer.head.contains(&dashboard.token));
        let head = dashboard.ask(&format!("HEAD {path}"), &[], b"");
        assert_eq!((head.status, head.body.as_str()), (200, ""));
    }
    for path in
        ["/nothing.js", "/..%2f..%2fetc/passwd", "/../../etc/passwd", "/vendor/", "/index.html/", "//"]
    {
        assert_eq!(dashboard.ask(&format!("GET {path}"), &[], b"").status, 404, "{path}");
    }
    assert_eq!(dashboard.ask("POST /", &[], b"{}").status, 405);
}

/// The bytes of a body that was asked for in gzip, and the head.
fn in_gzip(dashboard: &Dashboard, path: &str) -> (String, Vec<u8>) {
    let mut stream = dashboard.connect();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nX-Rooflined-Token: {}\r\nAccept-Encoding: gzip, br\r\n\r\n",
        dashboard.at, dashboard.token
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (String::from_utf8(answer[..end].to_vec()).unwrap(), answer[end + 4..].to_vec())
}

#[test]
fn who_takes_gzip_gets_the_page_and_long_answers_in_it() {
    let home = Home::new();
    let _daemon = board(&home, false);
    let dashboard = Dashboard::start(&home);
    for path in ["/", "/main.js", "/vendor/d3.min.js", "/v1/board", "/v1/hardware"] {
        let plain = dashboard.get(path);
        assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{path}");
        let (head, packed) = in_gzip(&dashboard, path);
        assert!(head.contains("\r\ncontent-encoding: gzip"), "{path}: {head}");
        assert!(packed.starts_with(&[0x1f, 0x8b]) && packed.len() * 3 < plain.body.len() * 2, "{path}");
        let mut gunzip =
            Command::new("gzip").arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = gunzip.stdin.take().unwrap();
        let writing = std::thread::spawn(move || input.write_all(&packed));
        let unpacked = gunzip.wait_with_output().unwrap();
        writing.join().unwrap().unwrap();
        assert!(unpacked.status.success(), "{path}");
        // The board's answer has ages that go on.
        assert!(path == "/v1/board" || unpacked.stdout == plain.body.as_bytes(), "{path}");
    }
    let (head, _) = in_gzip(&dashboard, "/-/healthy");
    assert!(!head.contains("content-encoding"), "{head}");
}

#[test]
fn another_website_and_a_client_without_a_token_get_nothing() {
    let home = Home::new();
    let _daemon = board(&home, true);
    let dashboard = Dashboard::start(&home);
    assert_eq!(dashboard.get("/v1/state").status, 200);
    let (token, at) = (dashboard.token.clone(), dashboard.at.to_string());
    let own = format!("http://{at}");
    let mut wrong = token.clone();
    let last = if wrong.pop() == Some('0') { '1' } else { '0' };
    wrong.push(last);
    for path in [
        "/v1/state",
        "/v1/events",
        "/metrics",
        "/-/ready",
        "/v1/openapi.json",
        "/dashboard/session",
        "/dashboard/history",
        "/v1/models/inspect",
        "/dashboard/",
    ] {
        for headers in [
            &[][..],
            &[("X-Rooflined-Token", wrong.as_str())],
            &[("X-Rooflined-Token", "")],
            &[("X-Rooflined-Token", &token[..31])],
            &[("X-Rooflined-Token", &token), ("X-Rooflined-Token", &token)],
            &[("X-Rooflined-Token", &token), ("Origin", "http://evil.example")],
            &[("X-Rooflined-Token", &token), ("Origin", "null")],
            &[("X-Rooflined-Token", &token), ("Origin", "http://127.0.0.1:1")],
            &[("X-Rooflined-Token", &token), ("Origin", &format!("https://{at}"))],
            &[("X-Rooflined-Token", &token), ("Sec-Fetch-Site", "cross-site")],
            &[("X-Rooflined-Token", &token), ("Sec-Fetch-Site", "same-site")],
            &[("X-Rooflined-Token", &token), ("Sec-Fetch-Site", "none")],
            &[("Authorization", &token), ("Cookie", &format!("token={token}"))],
        ] {
            let answer = dashboard.ask(&format!("GET {path}"), headers, b"");
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (403, "not_authorized"),
                "{path} {headers:?}"
            );
            assert!(answer.header("access-control-allow-origin").is_none());
        }
        assert_eq!(dashboard.ask(&format!("GET {path}?token={token}"), &[], b"").status, 403);
    }
    // What changes something names where it comes from, and is nothing that an HTML form can send.
    let switch = json!({ "mode": "15W" }).to_string();
    for (headers, status) in [
        (&[("X-Rooflined-Token", token.as_str()), ("Content-Type", "application/json")][..], 403),
        (&[("X-Rooflined-Token", &token), ("Origin", &own)], 400),
        (&[("X-Rooflined-Token", &token), ("Origin", &own), ("Content-Type", "text/plain")], 400),
        (
            &[
                ("X-Rooflined-Token", &token),
                ("Origin", &own),
                ("Content-Type", "application/x-www-form-urlencoded"),
            ],
            400,
        ),
        (
            &[("X-Rooflined-Token", &token), ("Origin", &own), ("Content-Type", "application/octet-stream")],
            400,
        ),
        (&[("Origin", &own), ("Content-Type", "application/json")], 403),
    ] {
        let answer = dashboard.ask("POST /v1/mode", headers, switch.as_bytes());
        assert_eq!(answer.status, status, "{headers:?}: {answer:?}");
    }
    assert_eq!(get(&home.query(), "/v1/modes")["active"], "25W", "nothing has changed");
}

#[test]
fn names_that_lead_here_and_requests_for_a_proxy_are_refused() {
    let home = Home::new();
    let _daemon = board(&home, false);
    let dashboard = Dashboard::start(&home);
    let token = dashboard.token.clone();
    let with = |target: &str, hosts: &[&str]| {
        let hosts: String = hosts.iter().map(|host| format!("Host: {host}\r\n")).collect();
        let request = format!(
            "GET {target} HTTP/1.1\r\n{hosts}X-Rooflined-Token: {token}\r\nConnection: close\r\n\r\n"
        );
        dashboard.raw(request.as_bytes()).status
    };
    // ssh -L gives it another port here, and people write addresses as they like.
    for host in ["127.0.0.1:9", "localhost", "LOCALHOST:8000", "[::1]:8000", "[::1]", "127.0.0.2"] {
        assert_eq!(with("/v1/state", &[host]), 200, "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.1.2",
        "0.0.0.0:8000",
        "[::]:8000",
        "[::ffff:127.0.0.1]:8000",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:8000:1",
        "[::1]evil",
        "[127.0.0.1]",
        "user@127.0.0.1",
        "127.0.0.1 evil.example",
        "2130706433",
        "127.1",
        "",
    ] {
        let status = with("/v1/state", &[host]);
        assert!([400, 403].contains(&status), "{host:?}: {status}");
        assert!([400, 403].contains(&with("/", &[host])), "{host:?}: the page neither");
    }
    assert_eq!(with("/v1/state", &["127.0.0.1", "127.0.0.1"]), 400);
    assert_eq!(with("/v1/state", &["127.0.0.1", "evil.example"]), 400);
    assert_eq!(with("/v1/state", &[]), 403);
    // As a client of a proxy writes it.
    assert_eq!(with("http://127.0.0.1/v1/state", &["127.0.0.1"]), 400);
    assert_eq!(with("http://evil.example/v1/state", &["127.0.0.1"]), 400);
    for (request, statuses) in [
        (format!("CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Rooflined-Token: {token}\r\n\r\n"), &[400, 405][..]),
        (format!("TRACE / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Rooflined-Token: {token}\r\n\r\n"), &[405]),
        ("OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned(), &[405]),
        (
            "OPTIONS /v1/mode HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\n\
             Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-rooflined-token\r\n\r\n"
                .to_owned(),
            &[405],
        ),
        // Two lengths, a length beside chunks, and a length that is none: what one end takes for a body, the other takes for
        // a request.
        (
            format!(
                "GET /v1/state HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Rooflined-Token: {token}\r\nContent-Length: 3\r\n\
                 Content-Length: 30\r\n\r\nabc"
            ),
            &[400],
        ),
        (
            "POST /v1/mode HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: +5\r\n\r\nhello".to_owned(),
            &[400],
        ),
        (
            "POST /v1/mode HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n".to_owned(),
            &[400],
        ),
        ("GET /v1/state HTTP/1.1\r\n Host: 127.0.0.1\r\n\r\n".to_owned(), &[400]),
        (format!("GET /v1/state HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: {}\r\n\r\n", "a".repeat(20_000)), &[431]),
        (format!("GET /v1/state HTTP/1.1\r\nHost: 127.0.0.1\r\n{}\r\n", "a: b\r\n".repeat(100)), &[431]),
        ("\u{16}\u{3}\u{1} this is TLS\r\n\r\n".to_owned(), &[400]),
    ] {
        let answer = dashboard.raw(request.as_bytes());
        assert!(statuses.contains(&answer.status), "{request:.90}: {answer:?}");
        assert!(!answer.head.contains("access-control"), "{answer:?}");
    }
    // A body with a length and chunks: whatever hides behind it is not answered as a second request.
    let hidden = format!(
        "POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
         GET /v1/state HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Rooflined-Token: {token}\r\nConnection: close\r\n\r\n"
    );
    let answer = dashboard.raw(hidden.as_bytes());
    assert!([400, 403].contains(&answer.status) && !answer.body.contains("total_power_w"), "{answer:?}");
    assert_eq!(dashboard.get("/v1/state").status, 200);
}

#[test]
fn what_the_page_asks_is_passed_on_and_what_it_orders_is_done() {
    let home = Home::new();
    let _daemon = board(&home, true);
    let dashboard = Dashboard::start(&home);
    assert_eq!(dashboard.control["available"], true, "{}", dashboard.control);
    let session = dashboard.get("/dashboard/session").json();
    assert_eq!(session["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(session["socket"], home.query().to_str().unwrap());
    assert_eq!(session["simulated"], true);
    assert_eq!(session["control"]["available"], true);
    assert_eq!(session["control"]["reason"], Value::Null);

    let state = dashboard.get("/v1/state");
    assert!(
        state.header("x-rooflined-serial").is_some_and(|serial| serial.parse::<u64>().is_ok()),
        "{state:?}"
    );
    assert_eq!(state.header("x-rooflined-simulated"), Some("true"));
    let direct = get(&home.query(), "/v1/hardware");
    assert_eq!(dashboard.get("/v1/hardware").json(), direct);
    let other = dashboard.get("/v1/roofline?hardware=jetson-agx-orin-64gb&mode=MAXN").json();
    assert_eq!(other["power_mode"], "MAXN");
    assert_eq!(other["bandwidth_bytes_per_s"]["provenance"], "datasheet");
    let asked = json!({ "workload": { "op": { "kind": "gemv", "n": 4096, "k": 4096 }, "format": "int8" } });
    assert!(dashboard.send("POST /v1/predict", &asked).json()["time_s"]["value"].is_number());

    // The daemon's refusals are its own.
    let refused = dashboard.send("POST /v1/predict", &json!({ "nonsense": 1 }));
    assert_eq!((refused.status, refused.code().as_str()), (400, "unknown_field"));
    assert_eq!(dashboard.get("/v1/nothing").status, 404);
    let refused = dashboard.ask(
        "POST /v1/predict",
        &[
            ("X-Rooflined-Token", &dashboard.token),
            ("Origin", &format!("http://{}", dashboard.at)),
            ("Content-Type", "application/json"),
        ],
        &vec![b' '; 70_000],
    );
    assert_eq!(refused.status, 413);

    let switched = dashboard.send("POST /v1/mode", &json!({ "mode": "15W" }));
    assert_eq!((switched.status, &switched.json()["outcome"]), (200, &json!("applied")));
    let held = dashboard
        .send("POST /v1/holds", &json!({ "constraints": { "mode": "25W" }, "app_id": "page", "ttl_s": 60 }))
        .json();
    let id = held["id"].as_u64().unwrap_or_else(|| panic!("{held}"));
    let renewed = dashboard.send(&format!("PUT /v1/holds/{id}"), &json!({ "ttl_s": 90 }));
    assert_eq!(renewed.status, 200, "{renewed:?}");
    assert_eq!(dashboard.send(&format!("DELETE /v1/holds/{id}"), &Value::Null).status, 200);
    assert_eq!(dashboard.get("/v1/holds").json()["holds"], json!([]));
}

#[test]
fn control_that_is_disabled_or_closed_to_the_user_is_named_with_its_remedy() {
    let home = Home::new();
    let _daemon = board(&home, false);
    let dashboard = Dashboard::start(&home);
    let control = &dashboard.get("/dashboard/session").json()["control"];
    assert_eq!((&control["available"], &control["calibration_available"]), (&json!(false), &json!(true)));
    assert!(control["reason"].as_str().unwrap().contains("enabled = true under [control]"), "{control}");
    let answer = dashboard.send("POST /v1/mode", &json!({ "mode": "15W" }));
    assert_eq!((answer.status, answer.code().as_str()), (403, "control_disabled"));

    if !rustix::process::geteuid().is_root() {
        return skip("only root starts programs as another user");
    }
    // The directory of a daemon's own user is closed to others; the system's query socket is not.
    let open = |path: std::path::PathBuf, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    open(home.path(""), 0o755);
    open(home.path("run"), 0o755);
    open(home.query(), 0o666);
    open(home.control(), 0o660);
    let stranger = Dashboard::start_with(&home, as_nobody);
    assert_eq!(stranger.get("/v1/state").status, 200);
    let control = &stranger.get("/dashboard/session").json()["control"];
    assert_eq!((&control["available"], &control["calibration_available"]), (&json!(false), &json!(false)));
    assert!(control["reason"].as_str().unwrap().contains("usermod -aG rooflined"), "{control}");
    let answer = stranger.send("POST /v1/mode", &json!({ "mode": "15W" }));
    assert_eq!((answer.status, answer.code().as_str()), (403, "not_authorized"), "{answer:?}");
}

#[test]
fn events_come_as_they_happen() {
    let home = Home::new();
    let _daemon = board(&home, true);
    let dashboard = Dashboard::start(&home);
    let mut stream = dashboard.connect();
    write!(
        stream,
        "GET /v1/events HTTP/1.1\r\nHost: {}\r\nX-Rooflined-Token: {}\r\n\r\n",
        dashboard.at, dashboard.token
    )
    .unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut until = |what: &str| {
        let found = lines.by_ref().map(Result::unwrap).find(|line| line.contains(what));
        assert!(found.is_some(), "the stream ended before {what}");
    };
    until("content-type: text/event-stream");
    until("event: state");
    let switched = dashboard.send("POST /v1/mode", &json!({ "mode": "15W" }));
    assert_eq!(switched.status, 200, "{switched:?}");
    until("event: mode");
    until("15W");
}

#[test]
fn a_daemon_that_dies_and_returns_is_told_and_found_again() {
    let home = Home::new();
    let daemon = board(&home, true);
    let dashboard = Dashboard::start(&home);
    let mut stream = dashboard.connect();
    write!(
        stream,
        "GET /v1/events HTTP/1.1\r\nHost: {}\r\nX-Rooflined-Token: {}\r\nConnection: close\r\n\r\n",
        dashboard.at, dashboard.token
    )
    .unwrap();
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    kill(daemon.pid(), Signal::KILL);
    drop(daemon);
    // The stream ends with the daemon, and the page learns it.
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let answer = dashboard.get("/v1/state");
    assert_eq!((answer.status, answer.code().as_str()), (503, "daemon_unreachable"), "{answer:?}");
    assert!(answer.json()["error"]["hint"].as_str().unwrap().contains("rooflined serve"), "{answer:?}");
    let session = dashboard.get("/dashboard/session").json();
    assert_eq!(session["simulated"], Value::Null);
    assert_eq!(session["control"]["available"], false);
    assert_eq!(dashboard.ask("GET /", &[], b"").status, 200);
    let _again = board(&home, true);
    assert_eq!(dashboard.get("/v1/state").status, 200);
    assert_eq!(dashboard.get("/dashboard/session").json()["control"]["available"], true);
}

#[test]
fn a_daemon_in_another_place_is_found_and_a_place_that_changes_hands_is_left() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::os::unix::process::CommandExt;

    if !rustix::process::geteuid().is_root() {
        return skip("only root starts programs as another user");
    }
    if std::path::Path::new("/run/rooflined/query.sock").exists() {
        return skip("a daemon of the system would answer");
    }
    let home = Home::new();
    let user = 1_000_000 + std::process::id();
    let mut command = Command::new(crate::programs::rooflinectl());
    command.args(["dashboard", "--listen", "127.0.0.1:0", "-o", "json"]).stdin(Stdio::null());
    command.env_remove("XDG_RUNTIME_DIR").env_remove("ROOFLINED_SOCKET").uid(user).gid(user);
    let dashboard = Dashboard::spawn(command);
    let answer = dashboard.get("/v1/state");
    assert_eq!((answer.status, answer.code().as_str()), (503, "daemon_unreachable"), "{answer:?}");

    let _daemon = board(&home, false);
    for (path, mode) in [(home.path(""), 0o755), (home.path("run"), 0o755), (home.query(), 0o666)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    // Where rooflinectl looks by itself: removed with all that is in it.
    struct Place(std::path::PathBuf);
    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
    let place = Place(format!("/tmp/rooflined-{user}").into());
    std::fs::create_dir(&place.0).unwrap();
    symlink(home.query(), place.0.join("query.sock")).unwrap();
    assert_eq!(dashboard.get("/v1/state").status, 503, "another user's directory");
    chown(&place.0, Some(user), Some(user)).unwrap();
    assert_eq!(dashboard.get("/v1/state").status, 200);
    assert_eq!(dashboard.get("/dashboard/session").json()["simulated"], true);
    chown(&place.0, Some(user + 1), None).unwrap();
    assert_eq!(dashboard.get("/v1/state").status, 503, "it has changed hands");
}

#[test]
fn history_begins_with_the_program_and_has_the_names_of_the_state() {
    let home = Home::new();
    let _daemon = board(&home, false);
    let dashboard = Dashboard::start(&home);
    let first = dashboard.get("/dashboard/history").json();
    assert_eq!((&first["begins_with_this_program"], &first["every_s"]), (&json!(true), &json!(5)));
    let history = eventually("five seconds", || {
        let history = dashboard.get("/dashboard/history").json();
        history["series"]["total_power_w"].is_array().then_some(history)
    });
    let power = history["series"]["total_power_w"][0].as_f64().unwrap();
    assert!((1.0..60.0).contains(&power), "{power} W");
    let state = dashboard.get("/v1/state").json();
    for name in history["series"].as_object().unwrap().keys() {
        let field = name.split('.').next().unwrap();
        assert!(state.get(field).is_some(), "{name}");
    }
    assert_eq!(dashboard.send("POST /dashboard/history", &Value::Null).status, 405);
}

#[test]
fn a_model_file_is_known_by_its_beginning_and_any_daemon_takes_it() {
    let home = Home::new();
    let _daemon = board(&home, false);
    let dashboard = Dashboard::start(&home);
    let Some(file) = small(&home, "q8_0") else { return };
    let bytes = std::fs::read(&file).unwrap();
    let answer = dashboard.upload("my%20model.gguf", &bytes[..100]);
    assert_eq!((answer.status, answer.code().as_str()), (400, "unreadable_model"), "{answer:?}");
    assert!(answer.body.contains("the header goes on beyond the 100 bytes"), "{answer:?}");
    let answer = dashboard.upload("my%20model.gguf", &bytes[..bytes.len().min(4 << 20)]).json();
    assert_eq!(answer["path"], "my model.gguf");
    assert_eq!(answer["definition"]["exact"], true);
    assert_eq!(answer["format"], "q8_0");
    // The same as the file itself says here.
    let output = Command::new(crate::programs::rooflinectl())
        .args(["models", "inspect", file.to_str().unwrap(), "-o", "json"])
        .output()
        .unwrap();
    let inspected: Value = serde_json::from_slice(&output.stdout).unwrap();
    for field in ["parameters", "bytes", "bytes_per_token", "kv_bytes_per_token", "family", "layers"] {
        assert_eq!(answer[field], inspected[field], "{field}");
    }
    std::fs::remove_file(&file).unwrap();
    let model = json!({ "path": answer["path"], "definition": answer["definition"] });
    let asked = json!({ "engine": "llama.cpp", "workload": { "model": model, "phase": "decode" } });
    let predicted = dashboard.send("POST /v1/predict", &asked);
    assert_eq!(predicted.status, 200, "{predicted:?}");

    let config = json!({
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32,
        "num_key_value_heads": 4, "intermediate_size": 5632, "vocab_size": 32000, "torch_dtype": "bfloat16",
    })
    .to_string();
    let answer = dashboard.upload("config.json", config.as_bytes()).json();
    assert_eq!((&answer["definition"]["exact"], &answer["hidden"]), (&json!(false), &json!(2048)));
    let header = json!({ "__metadata__": { "n": "x".repeat(3000) } }).to_string();
    let header = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();

    for (name, start) in [
        ("m.safetensors", &header[..1000]),
        ("m.gguf", &b"GGUF\x63\0\0\0\0"[..]),
        ("m.gguf", &[&b"GGUF\x03\0\0\0"[..], &[255; 22]].concat()),
        ("m.safetensors", &[&u64::MAX.to_le_bytes()[..], b"{"].concat()),
        ("x.exe", b"MZMZMZMZMZMZMZ"),
        ("config.json", b"{\"a\":[[[[[[[[["),
        ("empty", b""),
    ] {
        let answer = dashboard.upload(name, start);
        assert_eq!((answer.status, answer.code().as_str()), (400, "unreadable_model"), "{name}: {answer:?}");
    }
    // A header without end is given up.
    let endless =
        [&b"GGUF\x03\0\0\0"[..], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], &[1; 64 << 20]].concat();
    let answer = dashboard.upload("m.gguf", &endless[..64 << 20]);
    assert_eq!(answer.status, 400, "{answer:?}");
    let answer = dashboard.upload("m.gguf", &endless);
    assert_eq!(answer.status, 413, "{answer:?}");
    assert_eq!(dashboard.get("/v1/state").status, 200);
}

#[test]
fn idle_connections_and_slow_headers_keep_nobody_else_from_the_page() {
    let home = Home::new();
    let _daemon = board(&home, false);
    let dashboard = Dashboard::start(&home);
    let idle: Vec<_> = (0..200).map(|_| dashboard.connect()).collect();
    assert_eq!(dashboard.get("/v1/state").status, 200);
    // Beyond all places one is told so, and the idle ones make room by themselves.
    let more: Vec<_> = (0..100).map(|_| dashboard.connect()).collect();
    let full = eventually("a connection too many", || {
        let mut stream = dashboard.connect();
        let mut text = String::new();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let _ = stream.read_to_string(&mut text);
        (!text.is_empty()).then_some(text)
    });
    assert!(full.contains("content-security-policy: default-src 'none'"), "{full}");
    assert!(full.starts_with("HTTP/1.1 503 ") && full.contains("too_many_connections"), "{full}");
    let mut slow = dashboard.connect_when_there_is_room();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: 127.0").unwrap();
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).unwrap();
    let rest = String::from_utf8(rest).unwrap();
    assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 408 "), "{rest}");
    eventually("room", || (dashboard.get("/v1/state").status == 200).then_some(()));
    drop((idle, more));
}

impl Dashboard {
    /// A connection that is not turned away.
    fn connect_when_there_is_room(&self) -> TcpStream {
        eventually("room", || (self.ask("GET /", &[], b"").status == 200).then_some(()));
        self.connect()
    }
}

#[test]
fn who_has_no_token_keeps_no_connection() {
    let home = Home::new();
    let _daemon = board(&home, false);
    let dashboard = Dashboard::start(&home);
    let at = dashboard.at;
    let ask = |path: &str, token: &str| format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n{token}\r\n");
    for path in ["/", "/app.css", "/nothing", "/v1/state"] {
        // Asked twice at once, answered once.
        let answer = dashboard.raw(ask(path, "").repeat(2).as_bytes());
        assert_eq!(answer.header("connection"), Some("close"), "{path}");
        assert!(!answer.body.contains("HTTP/1.1"), "{path}: {answer:?}");
    }
    let token = format!("X-Rooflined-Token: {}\r\n", dashboard.token);
    let answer = dashboard.raw(ask("/dashboard/history", &token).repeat(2).as_bytes());
    assert!(answer.header("connection").is_none() && answer.body.contains("HTTP/1.1 200"), "{answer:?}");
}

#[test]
fn a_model_file_that_comes_slowly_keeps_no_other_waiting() {
    let home = Home::new();
    let _daemon = board(&home, false);
    let dashboard = Dashboard::start(&home);
    let mut slow = dashboard.connect();
    write!(
        slow,
        "POST /v1/models/inspect?name=m.gguf HTTP/1.1\r\nHost: {at}\r\nX-Rooflined-Token: {}\r\nOrigin: http://{at}\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: 999\r\n\r\nGGUF",
        dashboard.token,
        at = dashboard.at
    )
    .unwrap();
    // This one is answered although the body of the other is not there.
    let answer = dashboard.upload("x.exe", b"MZMZMZMZMZMZMZ");
    assert_eq!((answer.status, answer.code().as_str()), (400, "unreadable_model"), "{answer:?}");
    slow.set_nonblocking(true).unwrap();
    let waiting = slow.read(&mut [0]).unwrap_err();
    assert_eq!(waiting.kind(), std::io::ErrorKind::WouldBlock, "the other is still taken");
}

#[test]
fn signals_end_it_well_and_mistakes_are_named() {
    let home = Home::new();
    let mut signals = vec![Signal::INT, Signal::TERM];
    // Under nohup the tests ignore it, and so does what they start.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    if u64::from_str_radix(ignored, 16).unwrap() & 1 == 0 {
        signals.push(Signal::HUP);
    }
    for signal in signals {
        let mut dashboard = Dashboard::start(&home);
        kill(dashboard.child.id(), signal);
        assert_eq!(dashboard.child.wait().unwrap().code(), Some(0), "{signal:?}");
    }
    // As nohup starts it.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    command.arg(crate::programs::rooflinectl()).arg("--socket").arg(home.path("run")).args([
        "dashboard",
        "--listen",
        "127.0.0.1:0",
        "-o",
        "json",
    ]);
    let mut dashboard = Dashboard::spawn(command);
    kill(dashboard.child.id(), Signal::HUP);
    assert_eq!(dashboard.ask("GET /", &[], b"").status, 200);
    kill(dashboard.child.id(), Signal::TERM);
    assert_eq!(dashboard.child.wait().unwrap().code(), Some(0));
    let dashboard = Dashboard::start(&home);
    let (code, text) = refused(&home, &["--listen", &dashboard.at.to_string()]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("is in use") && text.contains("--listen 127.0.0.1:0"), "{text}");
    for elsewhere in ["0.0.0.0:0", "0.0.0.0:8000", "[::]:8000", "192.0.2.1:8000"] {
        let (code, text) = refused(&home, &["--listen", elsewhere]);
        assert_eq!(code, Some(2), "{text}");
        assert!(
            text.contains("not a loopback address") && text.contains("ssh -L 8000:127.0.0.1:8000 HOST"),
            "{text}"
        );
    }
    for nonsense in ["", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x"] {
        let (code, text) = refused(&home, &["--listen", nonsense]);
        assert!(code == Some(2) && text.contains("for example: --listen"), "{nonsense}: {text}");
    }
    let (code, text) = refused(&home, &["--ssh", "board", "--listen", "127.0.0.1:8123"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("ssh -t -L 8123:127.0.0.1:8123 board rooflinectl dashboard"), "{text}");
}

#[test]
fn no_two_tokens_are_the_same_and_people_are_told_what_to_do() {
    let home = Home::new();
    let (one, two) = (Dashboard::start(&home), Dashboard::start(&home));
    assert_ne!(one.token, two.token);
    assert!(one.token.len() == 32 && one.token.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(one.ask("GET /v1/state", &[("X-Rooflined-Token", &two.token)], b"").status, 403);
    let greeted = |listen: &str| -> Vec<String> {
        let mut child = program(&home, &["--listen", listen]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines = lines.map(Result::unwrap).take(3).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        lines
    };
    // ssh forwards to the address there from 127.0.0.1 here.
    let lines = greeted("127.0.0.2:0");
    let (port, token) =
        lines[0].strip_prefix("dashboard: http://127.0.0.2:").unwrap().split_once('/').unwrap();
    let expected =
        format!("ssh -L {port}:127.0.0.2:{port} HOST, then open http://127.0.0.1:{port}/{token} there");
    assert!(lines[1].ends_with(&expected), "{lines:?}");
    let lines = greeted("localhost:0");
    assert!(lines[0].starts_with("dashboard: http://127.0.0.1:"), "{lines:?}");
    assert!(lines[1].contains("ssh -L "), "{lines:?}");
    assert!(lines[2].starts_with("control: not available: no daemon answers"), "{lines:?}");
}
