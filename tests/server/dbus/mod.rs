//! The D-Bus interface on a private bus.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its world does"
)]

use std::collections::HashMap;
use std::io::Read;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rooflined::server::dbus::{Bus, NAME, PATH, from_variants, to_variants};
use rooflined_core::units::BytesPerSecond;
use serde_json::{Value, json};
use zbus::connection::Builder;
use zbus::{Connection, OwnedVariant, Proxy};

mod advice;
mod power;

use crate::support::bus::PrivateBus;
use crate::support::{Server, ask, short_limits, snapshot};

const CALIBRATION: &str = "io.github.rooflined.Rooflined1.Calibration";
const GEMV: &str = r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8"}}"#;

type Variants = HashMap<String, OwnedVariant>;

fn start(bus: &PrivateBus) -> Server {
    Server::start_on(snapshot(), short_limits(), Bus::Address(bus.address()))
}

/// Runs a test with a bus, a server on it and a client.
fn on_a_bus<F: Future<Output = ()>>(test: impl FnOnce(PrivateBus, Server, Connection) -> F) {
    let Some(bus) = PrivateBus::start() else { return };
    let server = start(&bus);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Builder::address(bus.address().as_str()).build().await.unwrap();
        wait_for_name(&client).await;
        tokio::time::timeout(Duration::from_secs(30), test(bus, server, client)).await.unwrap();
    });
}

async fn wait_for_name(client: &Connection) {
    let begun = Instant::now();
    let bus = zbus::fdo::DBusProxy::new(client).await.unwrap();
    while !bus.name_has_owner(NAME.try_into().unwrap()).await.unwrap() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the name never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn proxy<'a>(client: &Connection, interface: &'a str) -> Proxy<'a> {
    Proxy::new(client, NAME, PATH, interface).await.unwrap()
}

fn variants(json: &str) -> Variants {
    let members = to_variants(serde_json::from_str(json).unwrap());
    members.into_iter().map(|(key, value)| (key, OwnedVariant::try_from(value).unwrap())).collect()
}

/// An `a{sv}` as it would be read from JSON, which serde_json reads with an error in the last place of some numbers.
fn through_json(variants: &Variants) -> Value {
    serde_json::from_str(&from_variants(variants).unwrap().to_string()).unwrap()
}

/// What JSON loses on the way to `a{sv}`.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect(),
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[test]
fn properties_show_the_snapshot() {
    on_a_bus(async |_bus, server, client| {
        let rooflined = proxy(&client, NAME).await;
        assert_eq!(rooflined.get_property::<String>("Version").await.unwrap(), env!("CARGO_PKG_VERSION"));
        assert_eq!(rooflined.get_property::<u32>("ApiVersion").await.unwrap(), 1);
        assert_eq!(rooflined.get_property::<u64>("Serial").await.unwrap(), 17);
        assert_eq!(rooflined.get_property::<Vec<String>>("Degraded").await.unwrap(), Vec::<String>::new());
        let board = rooflined.get_property::<Variants>("Board").await.unwrap();
        let expected = without_nulls(server.get("/v1/board").json());
        assert_eq!(from_variants(&board).unwrap(), expected);
        let state = from_variants(&rooflined.get_property::<Variants>("State").await.unwrap()).unwrap();
        assert_eq!(state["temperatures_c"]["value"]["cpu-thermal"], 45.5);
        let calibration = proxy(&client, CALIBRATION).await;
        let records = calibration.get_property::<Vec<Variants>>("Records").await.unwrap();
        assert_eq!(from_variants(&records[0]).unwrap()["regime"], "near");
    });
}

#[test]
fn methods_answer_as_http_does() {
    on_a_bus(async |_bus, server, client| {
        let rooflined = proxy(&client, NAME).await;
        let predicted: Variants = rooflined.call("Predict", &variants(GEMV)).await.unwrap();
        let expected = server.post("/v1/predict", GEMV).body;
        assert_eq!(through_json(&predicted), without_nulls(serde_json::from_str(&expected).unwrap()));
        let again: Variants = rooflined.call("Predict", &variants(GEMV)).await.unwrap();
        assert_eq!(again, predicted, "asked again");
        let query = |path: &str, body: Value| json!({ "path": path, "body": body }).to_string();
        let same: String = rooflined
            .call("Query", &query("/v1/predict", serde_json::from_str(GEMV).unwrap()))
            .await
            .unwrap();
        assert_eq!(same, expected, "the same bytes");
        for path in ["/v1/roofline?precision=int8", "/v1/formats", "/v1/board"] {
            let answer: String = rooflined.call("Query", &json!({ "path": path }).to_string()).await.unwrap();
            // Ages move on between two questions.
            let strip = |text: &str| {
                let mut value: Value = serde_json::from_str(text).unwrap();
                for ceiling in ["bandwidth_bytes_per_s", "copy_bytes_per_s", "launch_s"] {
                    value[ceiling]["age_s"] = Value::Null;
                }
                value["compute_flops_per_s"]["int8"]["age_s"] = Value::Null;
                value
            };
            assert_eq!(strip(&answer), strip(&server.get(path).body), "{path}");
        }
        let recommend =
            r#"{"workload":{"op":{"kind":"gemv","n":512,"k":512}},"constraints":{"max_time_s":1.0}}"#;
        let decided: Variants = rooflined.call("Recommend", &variants(recommend)).await.unwrap();
        let expected = without_nulls(server.post("/v1/recommend", recommend).json());
        assert_eq!(through_json(&decided), expected);
        let file: zbus::OwnedFd = rooflined.call("Diagnose", &()).await.unwrap();
        let mut text = String::new();
        std::fs::File::from(std::os::fd::OwnedFd::from(file)).read_to_string(&mut text).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["board"]["key"], "cpu");
    });
}

fn error_of<T: std::fmt::Debug>(result: Result<T, zbus::Error>) -> (String, String) {
    match result {
        Err(zbus::Error::MethodError(name, text, _)) => {
            (name.rsplit_once(".Error.").unwrap().1.to_owned(), text.unwrap_or_default())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_descriptor_in_a_request_is_refused_by_name() {
    on_a_bus(async |_bus, _server, client| {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let plan = HashMap::from([("plan", zbus::Variant::Fd(zbus::Fd::from(&file)))]);
        for (interface, method) in [(NAME, "Predict"), (CALIBRATION, "Run")] {
            let proxy = proxy(&client, interface).await;
            let error = proxy.call_method(method, &plan).await.map(|_| ());
            let (name, text) = error_of(error);
            assert!(name == "InvalidArgs" && text.contains("(plan)"), "{name}: {text}");
        }
    });
}

/// Nothing of their bodies is decoded: these are none that the methods take.
#[test]
fn calls_with_too_large_a_body_are_refused_unread() {
    on_a_bus(async |_bus, _server, client| {
        let long = "x".repeat(1 << 20);
        for (interface, method) in [
            (NAME, "Predict"),
            (NAME, "Query"),
            (NAME, "Unsubscribe"),
            (CALIBRATION, "Run"),
            ("io.github.rooflined.Rooflined1.Power", "Hold"),
            ("io.github.rooflined.Rooflined1.Power", "SetMode"),
            ("org.freedesktop.DBus.Properties", "Set"),
        ] {
            let proxy = proxy(&client, interface).await;
            let refused = proxy.call_method(method, &(7_u8, long.as_str())).await.map(|_| ());
            let (name, text) = error_of(refused);
            assert!(name == "InvalidArgs" && text.starts_with("body_too_large"), "{method}: {name}: {text}");
        }
    });
}

/// The bus ends a connection that sends more than its own limit, and with it everybody's holds.
#[test]
fn an_answer_that_is_too_large_for_the_bus_is_refused_and_the_connection_stays() {
    on_a_bus(async |_bus, _server, client| {
        let rooflined = proxy(&client, NAME).await;
        let sweep = async |batches: u64| {
            let batches: Vec<u64> = (1..=batches).collect();
            let ops = json!([{"kind": "gemv", "n": 64, "k": 64}, {"kind": "gemm", "m": 2, "n": 64, "k": 64}]);
            let body = json!({"ops": ops, "formats": ["int8", "fp32"], "batches": batches});
            let query = json!({"path": "/v1/sweep", "body": body}).to_string();
            rooflined.call::<_, _, String>("Query", &query).await
        };
        let (name, text) = error_of(sweep(4096).await);
        assert!(name == "InvalidArgs" && text.starts_with("too_many"), "{name}: {text}");
        assert!(text.contains("8 MB"), "{text}");
        assert!(sweep(512).await.unwrap().len() < 8_000_000);
        let answer: String = rooflined.call("Query", &r#"{"path":"/-/healthy"}"#).await.unwrap();
        assert_eq!(answer, r#"{"healthy":true}"#);
    });
}

#[test]
fn bad_requests_are_named_errors_that_end_with_the_remedy() {
    on_a_bus(async |_bus, _server, client| {
        let rooflined = proxy(&client, NAME).await;
        let predict =
            async |json: &str| error_of(rooflined.call::<_, _, Variants>("Predict", &variants(json)).await);
        let (name, text) = predict(r#"{"workload":{"op":{"kind":"gemv","n":0,"k":1}}}"#).await;
        assert_eq!(name, "InvalidArgs");
        assert!(text.starts_with("invalid_dimension (workload.op.n): "), "{text}");
        assert!(text.contains("; give a whole number"), "{text}");
        assert_eq!(predict(r#"{"workload":{"op":{"kind":"gemv","n":-1,"k":1}}}"#).await.0, "InvalidArgs");
        assert_eq!(predict(r#"{"workload":{"op":{"kind":"gemv","n":1e18,"k":1}}}"#).await.0, "InvalidArgs");
        assert!(predict(r#"{"wrkload":{}}"#).await.1.contains("did you mean workload"));
        let nan = HashMap::from([("time_s", zbus::Variant::F64(f64::NAN))]);
        let (name, text) = error_of(rooflined.call::<_, _, Variants>("Predict", &nan).await);
        assert!(name == "InvalidArgs" && text.contains("(time_s)"), "{text}");
        let long = HashMap::from([("hardware", zbus::Variant::from("x".repeat(1 << 20)))]);
        assert!(
            error_of(rooflined.call::<_, _, Variants>("Predict", &long).await)
                .1
                .starts_with("body_too_large")
        );
        let query = async |json: &str| error_of(rooflined.call::<_, _, String>("Query", &json).await);
        assert_eq!(query("{").await.0, "InvalidArgs");
        assert_eq!(query(r#"{"path":"/v1/nothing"}"#).await.0, "InvalidArgs");
        assert_eq!(query(r#"{"path":"/v1/events"}"#).await.0, "InvalidArgs");
        assert_eq!(query(r#"{"path":"/v1/calibrate","body":{}}"#).await.0, "NotAuthorized");
        assert!(query(&" ".repeat(1 << 20)).await.1.starts_with("body_too_large"));
        let answer: String = rooflined.call("Query", &r#"{"path":"/-/healthy"}"#).await.unwrap();
        assert_eq!(answer, r#"{"healthy":true}"#);
    });
}

#[test]
fn calibrations_are_started_and_stopped() {
    on_a_bus(async |_bus, server, client| {
        let calibration = proxy(&client, CALIBRATION).await;
        let job: u64 = calibration.call("Run", &variants(r#"{"plan":"quick"}"#)).await.unwrap();
        assert_eq!(job, 7);
        calibration.call::<_, _, ()>("Cancel", &7_u64).await.unwrap();
        let busy = error_of(calibration.call::<_, _, u64>("Run", &variants(r#"{"force":true}"#)).await);
        assert_eq!(busy.0, "Busy");
        let wrong = error_of(calibration.call::<_, _, u64>("Run", &variants(r#"{"wait":true}"#)).await);
        assert_eq!(wrong.0, "InvalidArgs");
        let seen: Vec<_> = server.seen.try_iter().filter(|seen| !seen.starts_with("Watched")).collect();
        assert!(seen[0].starts_with("Calibrate") && seen[1].starts_with("Cancel { job: Some(7)"), "{seen:?}");
    });
}

#[test]
fn changes_are_signalled() {
    on_a_bus(async |_bus, server, client| {
        let rooflined = proxy(&client, NAME).await;
        let calibration = proxy(&client, CALIBRATION).await;
        let properties = proxy(&client, "org.freedesktop.DBus.Properties").await;
        let mut stale = rooflined.receive_signal("AdviceStale").await.unwrap();
        let mut progress = calibration.receive_signal("Progress").await.unwrap();
        let mut finished = calibration.receive_signal("Finished").await.unwrap();
        let mut changed = properties.receive_signal("PropertiesChanged").await.unwrap();
        server.publish(|snapshot| snapshot.roofline.bandwidth.value = BytesPerSecond(40e9));
        let (reason, serial): (String, u64) = stale.next().await.unwrap().body().deserialize().unwrap();
        assert!(reason.contains("-20.0 %") && serial == 18, "{reason} {serial}");
        server.publish(|snapshot| {
            snapshot.calibration_status.running = Some(3);
            snapshot.calibration_status.fraction = Some(0.5);
            snapshot.calibration_status.step = Some("read 128 MB".into());
        });
        let body = progress.next().await.unwrap();
        assert_eq!(body.body().deserialize::<(u64, f64, String)>().unwrap(), (3, 0.5, "read 128 MB".into()));
        server.publish(|snapshot| {
            snapshot.calibration_status.running = None;
            snapshot.calibration_status.last_job = Some(3);
            snapshot.calibration_status.last_error = Some("killed; try again".into());
        });
        let body = finished.next().await.unwrap();
        let (job, ok, facts): (u64, bool, Variants) = body.body().deserialize().unwrap();
        assert_eq!(
            (job, ok, from_variants(&facts).unwrap()["error"].clone()),
            (3, false, json!("killed; try again"))
        );
        server.publish(|snapshot| _ = snapshot.degraded.insert("sampler", "stuck; restart it".into()));
        let mut names = Vec::new();
        while !names.contains(&"Degraded".to_owned()) {
            let body = changed.next().await.unwrap();
            let (_, now, _): (String, Variants, Vec<String>) = body.body().deserialize().unwrap();
            names.extend(now.into_keys());
        }
        assert!(names.contains(&"Serial".to_owned()), "{names:?}");
        let evidence = rooflined.get_property::<Variants>("DegradedEvidence").await.unwrap();
        assert_eq!(from_variants(&evidence).unwrap(), json!({ "sampler": "stuck; restart it" }));
    });
}

#[test]
fn properties_change_at_a_bounded_rate() {
    on_a_bus(async |_bus, server, client| {
        let properties = proxy(&client, "org.freedesktop.DBus.Properties").await;
        let mut changed = properties.receive_signal("PropertiesChanged").await.unwrap();
        for _ in 0..100 {
            server.publish(|snapshot| {
                snapshot.state.taken_at += rooflined_core::units::Seconds(1.0);
            });
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        let mut signals = 0;
        while tokio::time::timeout(Duration::from_millis(1200), changed.next()).await.is_ok() {
            signals += 1;
        }
        // Serial and State, at the start, after one second, and at the end.
        assert!((2..=8).contains(&signals), "{signals} signals for 100 snapshots in 1.5 s");
    });
}

#[test]
fn a_bus_that_dies_is_noticed_and_joined_again_while_http_goes_on() {
    let Some(mut bus) = PrivateBus::start() else { return };
    let server = start(&bus);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let alive = || assert_eq!(server.post("/v1/predict", GEMV).status, 200);
    let wait = Duration::from_secs(20);
    let connected = |bus: &PrivateBus| {
        runtime.block_on(async {
            let client = Builder::address(bus.address().as_str()).build().await.unwrap();
            wait_for_name(&client).await;
            let predicted: Variants =
                proxy(&client, NAME).await.call("Predict", &variants(GEMV)).await.unwrap();
            assert!(predicted.contains_key("time_s"));
        });
    };
    connected(&bus);
    for _ in 0..2 {
        bus.kill();
        let problem = server.bus_states.recv_timeout(wait).unwrap().expect("a problem");
        assert!(problem.contains("tried again") || problem.contains("--bus none"), "{problem}");
        alive();
        std::thread::sleep(Duration::from_millis(600));
        alive();
        bus.restart();
        connected(&bus);
        let recovered =
            std::iter::from_fn(|| Some(server.bus_states.recv_timeout(wait).unwrap())).find(Option::is_none);
        assert!(recovered.is_some(), "the recovery is reported");
        alive();
    }
}

#[test]
fn a_bus_that_hangs_is_noticed_by_its_silence() {
    let Some(bus) = PrivateBus::start() else { return };
    let server = start(&bus);
    let wait = Duration::from_secs(20);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Builder::address(bus.address().as_str()).build().await.unwrap();
        wait_for_name(&client).await;
    });
    bus.freeze();
    let problem = server.bus_states.recv_timeout(wait).unwrap().expect("a problem");
    assert!(problem.contains("not answer"), "{problem}");
    assert_eq!(server.post("/v1/predict", GEMV).status, 200);
    bus.thaw();
    let recovered =
        std::iter::from_fn(|| Some(server.bus_states.recv_timeout(wait).unwrap())).find(Option::is_none);
    assert!(recovered.is_some());
}

#[test]
fn a_name_that_is_taken_names_its_owner_and_is_taken_over_later() {
    let Some(bus) = PrivateBus::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let squatter = runtime
        .block_on(async { Builder::address(bus.address().as_str()).name(NAME).build().await.unwrap() });
    let server = start(&bus);
    // The squatter's runtime must run for the bus to get its answers; none are needed for this.
    let problem = server.bus_states.recv_timeout(Duration::from_secs(10)).unwrap().expect("a problem");
    assert!(problem.contains(&format!("pid {}", std::process::id())), "{problem}");
    assert!(problem.contains("--bus none"), "{problem}");
    assert_eq!(ask(&server.query(), "GET", "/v1/state", "").status, 200);
    runtime.block_on(async { squatter.close().await.unwrap() });
    assert_eq!(server.bus_states.recv_timeout(Duration::from_secs(20)).unwrap(), None);
}

#[test]
fn without_a_bus_it_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:path={}/none.sock", directory.path().display());
    let server = Server::start_on(snapshot(), short_limits(), Bus::Address(address));
    let problem = server.bus_states.recv_timeout(Duration::from_secs(10)).unwrap().expect("a problem");
    assert!(problem.ends_with("--bus none"), "{problem}");
    assert_eq!(server.get("/v1/state").status, 200);
    std::thread::sleep(Duration::from_secs(1));
    assert!(server.bus_states.try_recv().is_err(), "the same problem is reported once");
}
