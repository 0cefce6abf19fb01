//! What asking costs: our answers beside empty ones over the same kind of transport, in the same run.
//!
//! ```text
//! cargo bench -p rooflined-benches --bench interprocess
//! ```
//!
//! HTTP predict is compared with an axum handler that takes and gives an empty body on a Unix socket, D-Bus `Predict`
//! with a zbus method without arguments on the same private bus, and with one that takes and gives the same bytes and does
//! nothing. Predictions are of another product each time, unless they are asked for again, which is a look-up until the machine
//! has been read again. Both servers of a pair share one thread and are asked call by call in turn by one client, so that the
//! scheduler's choices and the machine's drift hit both. A ratio is the median over rounds of the ratio of the rounds'
//! medians. The D-Bus part is skipped aloud where there is no dbus-daemon.

#![expect(clippy::unwrap_used, reason = "a benchmark ends where its world does")]

use std::cell::Cell;
use std::collections::HashMap;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use axum::Router;
use axum::routing::post;
use rooflined::server::dbus::{Bus, NAME, PATH, from_variants, to_variants};
use rooflined::server::{Limits, clock};
use rooflined_advice::{Answer, Catalogue, Request, answer};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_predict::predict;
use zbus::connection::Builder;
use zbus::message::Message;
use zbus::{Connection, OwnedVariant, Variant, interface};

#[path = "../tests/support/mod.rs"]
mod support;

use support::bus::PrivateBus;
use support::{Server, snapshot};

const BODY: &str = r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8"}}"#;
/// More than the daemon remembers.
const QUESTIONS: usize = 256;
const EMPTY_NAME: &str = "io.github.rooflined.Empty1";
const EMPTY_PATH: &str = "/io/github/rooflined/Empty1";

/// Bodies that the daemon has forgotten before they come again, all of one length.
fn bodies() -> Vec<String> {
    (0..QUESTIONS).map(|index| BODY.replace("\"n\":4096", &format!("\"n\":{}", 4096 + 8 * index))).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What a scheduler asks of this machine.
const QUESTION: &str = r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096}},"objective":"throughput",
    "constraints":{"max_time_s":0.01},"freedom":{"batch":{"min":1,"max":32}}}"#;

/// Rounds of `calls` each, call by call in turn; p50 of both over all rounds in seconds, and the median ratio.
fn pairs(rounds: usize, calls: usize, mut ours: impl FnMut(), mut empty: impl FnMut()) -> (f64, f64, f64) {
    let time = |call: &mut dyn FnMut()| {
        let begun = Instant::now();
        call();
        begun.elapsed().as_secs_f64()
    };
    let mut round = || {
        let times = (0..calls).map(|_| (time(&mut ours), time(&mut empty)));
        let (ours, empty): (Vec<f64>, Vec<f64>) = times.unzip();
        (median(ours), median(empty))
    };
    round();
    let (mut times, mut base, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (ours, empty) = round();
        times.push(ours);
        base.push(empty);
        ratios.push(ours / empty);
    }
    (median(times), median(base), median(ratios))
}

fn report(name: &str, (ours, empty, ratio): (f64, f64, f64), target: f64) {
    let verdict = if ratio <= target { "ok" } else { "MISSED" };
    println!(
        "{name:<28} {:8.1} us   empty {:8.1} us   ratio {ratio:.2}   target {target:.2}   {verdict}",
        ours * 1e6,
        empty * 1e6
    );
}

/// Where an empty method takes hundreds of microseconds of the bus's own time, a difference says more than a ratio.
fn report_difference(name: &str, (ours, empty, _): (f64, f64, f64), target_us: f64) {
    let difference = (ours - empty) * 1e6;
    let verdict = if difference <= target_us { "ok" } else { "MISSED" };
    println!(
        "{name:<28} {:8.1} us   empty {:8.1} us   {difference:+.1} us   target {target_us:.0} us   {verdict}",
        ours * 1e6,
        empty * 1e6
    );
}

/// A keep-alive client that reads one response of a known shape.
struct Client {
    stream: UnixStream,
    /// In turn.
    requests: Vec<Vec<u8>>,
    calls: usize,
    buffer: Vec<u8>,
}

impl Client {
    fn new<S: AsRef<str>>(socket: &Path, route: &str, bodies: &[S]) -> Self {
        let head = format!("POST {route} HTTP/1.1\r\nhost: localhost\r\ncontent-length:");
        let request = |body: &str| format!("{head} {}\r\n\r\n{body}", body.len()).into_bytes();
        let requests = bodies.iter().map(|body| request(body.as_ref())).collect();
        // The server's thread may not have bound its socket yet.
        let mut tries = 0;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(tries < 200, "{}: {error}", socket.display()),
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            tries += 1;
        };
        Self { stream, requests, calls: 0, buffer: vec![0; 64 * 1024] }
    }

    fn call(&mut self) {
        self.stream.write_all(&self.requests[self.calls % self.requests.len()]).unwrap();
        self.calls += 1;
        let mut length = 0;
        loop {
            length += self.stream.read(&mut self.buffer[length..]).unwrap();
            if is_whole(&self.buffer[..length]) {
                assert!(self.buffer.starts_with(b"HTTP/1.1 200"));
                return;
            }
        }
    }
}

fn is_whole(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let head = std::str::from_utf8(&bytes[..end]).unwrap().to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap();
    let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
    bytes.len() == end + 4 + length
}

async fn empty_axum(socket: PathBuf) {
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    let router = Router::new().route("/v1/predict", post(async || {}));
    axum::serve(listener, router).await.unwrap();
}

fn http() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("empty.sock");
    let server = Server::start_beside(snapshot(), Limits::default(), Bus::None, empty_axum(socket.clone()));
    let mut ours = Client::new(&server.query(), "/v1/predict", &bodies());
    let mut empty = Client::new(&socket, "/v1/predict", &[""]);
    report("HTTP predict", pairs(21, 2000, || ours.call(), || empty.call()), 1.4);
    // The same empty handler, sent the body that ours has to read.
    let mut same_body = Client::new(&socket, "/v1/predict", &bodies());
    report("HTTP predict, same request", pairs(21, 2000, || ours.call(), || same_body.call()), 1.4);
    // Asked again from an unchanged snapshot: what was answered before.
    for (name, route, body) in [
        ("HTTP predict, asked again", "/v1/predict", BODY),
        ("HTTP recommend, asked again", "/v1/recommend", QUESTION),
    ] {
        let mut again = Client::new(&server.query(), route, &[body]);
        report(name, pairs(21, 2000, || again.call(), || empty.call()), 1.15);
    }
}

/// Nothing to do, and nothing but to send as much as an answer of `Predict` is.
struct Empty {
    answer: HashMap<String, Variant<'static>>,
}

#[expect(clippy::unused_self, reason = "a method of the bus has a receiver")]
#[interface(name = "io.github.rooflined.Empty1")]
impl Empty {
    fn nothing(&self) {}

    /// Takes what `Predict` takes, unread, and gives what that gave once.
    fn echo(&self) -> &HashMap<String, Variant<'static>> {
        &self.answer
    }
}

/// The answer to the question.
fn answered() -> Answer {
    let request = Request::Predict(serde_json::from_str(BODY).unwrap());
    answer(&snapshot(), &Catalogue::default(), clock::now(), &request).unwrap()
}

fn variants(body: &str) -> HashMap<String, OwnedVariant> {
    let members = to_variants(serde_json::from_str(body).unwrap());
    members.into_iter().map(|(key, value)| (key, OwnedVariant::try_from(value).unwrap())).collect()
}

fn dbus() {
    let Some(bus) = PrivateBus::start() else { return };
    let address = bus.address();
    let echo = Empty { answer: to_variants(serde_json::to_value(answered()).unwrap()) };
    let empty = async move {
        let builder = Builder::address(address.as_str()).serve_at(EMPTY_PATH, echo).name(EMPTY_NAME);
        let _connection = builder.build().await.unwrap();
        std::future::pending::<()>().await;
    };
    let _server = Server::start_beside(snapshot(), Limits::default(), Bus::Address(bus.address()), empty);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client: Connection = runtime
        .block_on(async {
            let client = Builder::address(bus.address().as_str()).build().await?;
            let names = zbus::fdo::DBusProxy::new(&client).await?;
            for name in [NAME, EMPTY_NAME] {
                while !names.name_has_owner(name.try_into()?).await? {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            }
            Ok::<_, zbus::Error>(client)
        })
        .unwrap();
    let questions: Vec<_> = bodies().iter().map(|body| variants(body)).collect();
    let turn = Cell::new(0);
    let next = || &questions[turn.replace(turn.get() + 1) % questions.len()];
    let predict = |body: &HashMap<String, OwnedVariant>| {
        let call = client.call_method(Some(NAME), PATH, Some(NAME), "Predict", body);
        black_box(runtime.block_on(call).unwrap());
    };
    let ours = || predict(next());
    let empty = || {
        let call = client.call_method(Some(EMPTY_NAME), EMPTY_PATH, Some(EMPTY_NAME), "Nothing", &());
        black_box(runtime.block_on(call).unwrap());
    };
    report_difference("D-Bus Predict", pairs(21, 500, ours, empty), 60.0);
    report_difference("D-Bus Predict, asked again", pairs(21, 500, || predict(&questions[0]), empty), 60.0);
    let echo = || {
        let call = client.call_method(Some(EMPTY_NAME), EMPTY_PATH, Some(EMPTY_NAME), "Echo", next());
        black_box(runtime.block_on(call).unwrap());
    };
    report_difference("D-Bus Predict, same bytes", pairs(21, 500, ours, echo), 60.0);
    report_difference("D-Bus echo of those bytes", pairs(21, 500, echo, empty), 60.0);
    let queries: Vec<String> = (bodies().iter())
        .map(|body| {
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            serde_json::json!({ "path": "/v1/predict", "body": body }).to_string()
        })
        .collect();
    let ours = || {
        let query = &queries[turn.replace(turn.get() + 1) % queries.len()];
        let call = client.call_method(Some(NAME), PATH, Some(NAME), "Query", query);
        black_box(runtime.block_on(call).unwrap());
    };
    report("D-Bus Query predict", pairs(21, 500, ours, empty), 1.4);
}

/// Time of one call in nanoseconds: the median of many batches.
fn nanoseconds(mut call: impl FnMut()) -> f64 {
    const BATCH: u32 = 1000;
    let batch = |call: &mut dyn FnMut()| {
        let begun = Instant::now();
        (0..BATCH).for_each(|_| call());
        begun.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
    };
    batch(&mut call);
    median((0..101).map(|_| batch(&mut call)).collect())
}

fn in_process() {
    let snapshot = snapshot();
    let op = Op::Gemv { n: 4096, k: 4096 };
    let format = snapshot.numeric_format(WeightFormat::Int8);
    let show = |name: &str, time: f64, target: f64| {
        let verdict = if time <= target { "ok" } else { "MISSED" };
        println!("{name:<28} {time:8.0} ns   target {target:.0} ns   {verdict}");
    };
    let bare = nanoseconds(|| {
        black_box(predict(&snapshot.roofline, &snapshot.profile, black_box(&op), &format)).unwrap();
    });
    show("predict of one op", bare, 1000.0);
    let request = Request::Predict(serde_json::from_str(BODY).unwrap());
    let (catalogue, now) = (Catalogue::default(), clock::now());
    let whole = nanoseconds(|| {
        black_box(answer(&snapshot, &catalogue, now, black_box(&request))).unwrap();
    });
    show("answer to a request", whole, 1000.0);
    let bytes = nanoseconds(|| {
        let request = Request::Predict(serde_json::from_str(black_box(BODY)).unwrap());
        black_box(serde_json::to_vec(&answer(&snapshot, &catalogue, now, &request).unwrap()).unwrap());
    });
    println!("{:<28} {bytes:8.0} ns", "bytes in, bytes out");
    let owned: HashMap<String, OwnedVariant> = variants(BODY);
    let taken = nanoseconds(|| {
        black_box(rooflined::server::dbus::from_variants(black_box(&owned))).unwrap();
    });
    println!("{:<28} {taken:8.0} ns", "a{sv} to JSON");
    dbus_parts(&owned);
}

/// What a call of `Predict` is made of beside the answer and the way of the messages, in the order of the call.
fn dbus_parts(request: &HashMap<String, OwnedVariant>) {
    let show = |name: &str, time: f64| println!("{name:<28} {time:8.0} ns");
    let call = || Message::method_call(PATH, "Predict").interface(NAME).build(black_box(request)).unwrap();
    show("client: request encoded", nanoseconds(|| drop(black_box(call()))));
    let call = call();
    let read = || {
        let variants = call.body().deserialize::<HashMap<String, OwnedVariant>>().unwrap();
        serde_json::to_vec(&from_variants(&variants).unwrap()).unwrap()
    };
    show("daemon: request to JSON", nanoseconds(|| drop(black_box(read()))));
    let answered = answered();
    let write = || to_variants(serde_json::to_value(black_box(&answered)).unwrap());
    show("daemon: answer to variants", nanoseconds(|| drop(black_box(write()))));
    let (members, header) = (write(), call.header());
    let reply = || Message::method_return(&header).build(black_box(&members)).unwrap();
    show("daemon: variants encoded", nanoseconds(|| drop(black_box(reply()))));
    let reply = reply();
    let read = || reply.body().deserialize::<HashMap<String, OwnedVariant>>().unwrap();
    show("client: answer decoded", nanoseconds(|| drop(black_box(read()))));
    let value = serde_json::to_value(&answered).unwrap();
    println!(
        "{:<28} {:8} bytes of {} members",
        "answer",
        reply.body().len(),
        value.as_object().unwrap().len()
    );
}

fn main() {
    in_process();
    http();
    dbus();
}
