//! Questions, reports and changes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rooflined_client::types::*;
use rooflined_client::{AsyncClient, Client, Error, Filter, Model, ModelQuery, RooflineQuery, Socket};
use serde_json::json;

use crate::harness::{Daemon, asynchronously, chat, chat_request, gemv, until};
use crate::make_types;

#[test]
fn every_verb_is_answered_and_its_answer_understood() {
    let daemon = Daemon::new();
    let client = daemon.client();
    let predicted = client.predict(&gemv()).unwrap();
    assert!(
        predicted.time_s.low <= predicted.time_s.value && predicted.time_s.value <= predicted.time_s.high
    );
    assert!(predicted.time_s.low >= predicted.roofline_time_s && predicted.simulated);
    assert_eq!(client.board().unwrap().key, "jetson-orin-nano-8gb-super");
    assert!(client.state().unwrap().fields.contains_key("power_mode"));
    assert!(client.roofline(&RooflineQuery::default()).unwrap().bandwidth_bytes_per_s.value > 0.0);
    let t4 = RooflineQuery::default().hardware("t4").precision("fp16");
    assert_eq!(client.roofline(&t4).unwrap().compute_flops_per_s.len(), 1);
    let names: Vec<String> = client.modes().unwrap().modes.into_iter().map(|mode| mode.name).collect();
    assert_eq!(names, ["15W", "25W", "MAXN_SUPER", "7W"]);
    assert!(client.hardware().unwrap().iter().any(|entry| entry.key == "t4"));
    assert_eq!(client.hardware_entry("t4").unwrap().compute_capability.as_deref(), Some("7.5"));
    assert!(client.models().unwrap().iter().any(|entry| entry.key == "llama-3.2-1b"));
    let stored = ModelQuery::default().format("q4_k_m");
    assert!(client.model("llama-3.2-1b", &stored).unwrap().bytes > 0.0);
    assert!(client.formats().unwrap().iter().any(|format| format.key == "int4_g128"));
    assert!(client.calibration().unwrap().status.is_object());
    assert!(client.metrics().unwrap().contains("# TYPE"));
    assert_eq!(client.openapi().unwrap()["openapi"], "3.1.0");
    assert!(client.holds().unwrap().holds.is_empty());
    let op = json!({"kind": "gemv", "n": 4096, "k": 4096});
    let sweep = SweepRequest::default().ops([op.clone()]).formats(["int8"]).batches([1, 2]).hardware("t4");
    assert_eq!(client.sweep(&sweep).unwrap().rows.len(), 2);
    let product = TilingRequest::new(512, 512, 512).hardware("t4");
    assert!(!client.tiling(&product).unwrap().candidates.is_empty());
    let workload = Workload::default().op(op).format("int8");
    let fast = AnalyzeRequest::new(workload.clone()).time_s(1e-9);
    assert_eq!(client.analyze(&fast).unwrap().verdict, "impossible");
    let joint = json!({"workloads": [{"workload": {"model": "llama-3.2-1b", "format": "q4_k_m", "phase": "decode"}},
                                     {"workload": {"op": {"kind": "gemv", "n": 512, "k": 512}, "format": "int8"}}]});
    assert_eq!(client.recommend_joint(&joint).unwrap().simulated, Some(true));
    let measured = client.measure(&MeasureRequest::default().workload(workload));
    assert_eq!(measured.unwrap().rows.len(), 1);
    client.calibrate(&CalibrateRequest::default().wait(true).force(true).plan("quick")).unwrap();
    assert!(client.calibration().unwrap().record.is_some());
}

#[test]
fn both_clients_get_the_same_answer() {
    let daemon = Daemon::new();
    let request = chat_request().hardware("t4");
    let mine = daemon.client().predict(&request).unwrap();
    let client = daemon.asynchronous();
    let mut theirs = asynchronously(async { client.predict(&request).await.unwrap() });
    theirs.serial = mine.serial;
    assert_eq!(theirs, mine);
    // The runtime of before has gone, and its connection is still good.
    assert!(asynchronously(async { client.board().await }).is_ok());
}

#[test]
fn an_infeasible_recommendation_is_an_answer() {
    let daemon = Daemon::new();
    let client = daemon.client();
    let freedom = Freedom::default()
        .formats(["q4_k_m", "q8_0"])
        .batch(BatchRange::default().min(1).max(4))
        .power_modes("live");
    let mut workload = chat();
    workload.format = None;
    let request = RecommendRequest::new(workload).engine("llama.cpp").freedom(freedom);
    let found = client.recommend(&request).unwrap();
    assert!(found.feasible && found.decision.is_some());
    let constraints = Constraints::default().min_tokens_per_s(1e6);
    let none = client.recommend(&request.constraints(constraints)).unwrap();
    assert!(!none.feasible && none.closest.is_some());
    assert_eq!(none.violated, ["min_tokens_per_s"]);
}

#[test]
fn what_is_observed_is_listed_and_forgotten_and_what_cannot_be_is_refused() {
    let daemon = Daemon::new();
    let client = daemon.client();
    let rate = client.predict(&chat_request()).unwrap().tokens_per_s.value;
    let report = |rate: f64| ObservationRequest::new(chat()).engine("llama.cpp").tokens_per_s(rate);
    assert_eq!(client.observe(&report(rate * 1.1)).unwrap().accepted, 1);
    let filter = Filter::default().engine("llama.cpp");
    let listed = client.observations(&filter).unwrap().observations;
    assert_eq!(listed.len(), 1);
    assert_eq!(client.predict(&chat_request()).unwrap().tier, "observed");
    assert_eq!(client.forget(listed[0].id.unwrap()).unwrap(), 1);
    assert_eq!(client.forget_all(&filter).unwrap(), 0);
    match client.observe(&report(rate * 1000.0)) {
        Err(Error::Refused(refused)) => {
            assert_eq!((refused.status, &*refused.code), (200, "impossible_observation"));
            assert!(!refused.message.is_empty());
        }
        other => panic!("{other:?}"),
    }
    let doubted = client.observe(&report(rate / 10.0)).unwrap();
    assert_eq!(doubted.learnt.unwrap()[0]["doubted"], true);
    assert_eq!(client.forget_all(&Filter::default().scope("all")).unwrap(), 1);
}

#[test]
fn a_mode_is_entered_confirmed_and_given_back() {
    let daemon = Daemon::new();
    let client = daemon.client();
    let active = || client.modes().unwrap().active;
    let before = active();
    let tried = ModeRequest::new("15W").dry_run(true);
    assert!(client.set_mode(&tried).unwrap().dry_run);
    let unconfirmed = ModeRequest::new("15W").confirm_within_s(30.0);
    let id = client.set_mode(&unconfirmed).unwrap().confirm.unwrap().id;
    client.confirm(id).unwrap();
    assert_eq!(active().as_deref(), Some("15W"));
    assert!(client.confirm(id).is_err_and(|error| matches!(error, Error::Refused(_))));
    let back = ModeRequest::new(before.clone().unwrap());
    client.set_mode(&back).unwrap();
    let id = client.set_mode(&unconfirmed).unwrap().confirm.unwrap().id;
    client.revert(Some(id)).unwrap();
    assert_eq!(client.revert(None).unwrap_err().code(), "not_pending");
    assert!(until(|| active() == before));
    let request = json!({"ttl_s": 60.0, "app_id": "test", "constraints": {"mode": "15W"}});
    let held = client.post_hold(&request).unwrap();
    assert!(client.renew_hold(held.id, 600.0).unwrap().expires_in_s.is_some_and(|left| left > 60.0));
    client.release_hold(held.id).unwrap();
    assert_eq!(client.release_hold(held.id).unwrap_err().code(), "unknown_hold");
}

#[test]
fn a_refusal_carries_code_field_and_what_to_do() {
    let daemon = Daemon::new();
    let client = daemon.client();
    let wrong = json!({"workload": {"op": {"kind": "gemv", "n": 4096}}});
    match client.predict(&wrong) {
        Err(error @ Error::Refused(_)) => {
            assert_eq!((error.code(), error.is_passing()), ("missing_field", false));
            assert!(error.hint().is_some_and(|hint| error.to_string().contains(hint)));
            let Error::Refused(refused) = error else { return };
            assert_eq!((refused.status, refused.field.as_deref()), (400, Some("workload.op.k")));
        }
        other => panic!("{other:?}"),
    }
    // The connection goes on.
    assert!(client.board().is_ok());
    for size in [70_000, 900_000] {
        let large = json!({"workload": {"model": {"model_type": "x".repeat(size)}}});
        assert_eq!(client.predict(&large).unwrap_err().code(), "body_too_large");
        let client = daemon.asynchronous();
        let told = asynchronously(async { client.predict(&large).await.unwrap_err() });
        assert_eq!(told.code(), "body_too_large");
    }
    // A key cannot leave its route.
    match client.hardware_entry("t4/../../x y\r\n") {
        Err(Error::Refused(refused)) => assert!([400, 404].contains(&refused.status)),
        other => panic!("{other:?}"),
    }
    let not_finite = ObservationRequest::default().time_s(f64::NAN);
    assert_eq!(client.observe(&not_finite).unwrap_err().code(), "invalid");
    assert_eq!(client.request("GET", "no route", None, Socket::Query).unwrap_err().code(), "invalid");
}

#[test]
fn control_that_is_disabled_is_refused() {
    let daemon = Daemon::with("[calibration]\nautomatic = false\n");
    let held = daemon.client().hold(&json!({"app_id": "test", "constraints": {"mode": "15W"}}));
    assert_eq!(held.unwrap_err().code(), "control_disabled");
}

#[test]
fn without_a_daemon_it_says_where_it_looked_and_what_to_do() {
    let error = Client::at("/nonexistent").board().unwrap_err();
    assert!(error.is_passing());
    assert!(error.to_string().contains("systemctl start rooflined"), "{error}");
    match error {
        Error::Unreachable { tried, .. } => {
            assert_eq!(tried, [("/nonexistent/query.sock".into(), "no such file or directory".into())]);
        }
        other => panic!("{other:?}"),
    }
    let long = format!("/{}", "long".repeat(40));
    for path in ["/dev/null", "", &long] {
        let error = Client::at(path).board().unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{path}: {error:?}");
    }
    let asynchronous = asynchronously(async { AsyncClient::at("/nonexistent").board().await });
    assert_eq!(asynchronous.unwrap_err().code(), "unreachable");
}

#[test]
fn without_a_runtime_the_asynchronous_client_says_so() {
    use std::task::{Context, Poll, Waker};
    let client = AsyncClient::at("/nonexistent");
    let mut asked = std::pin::pin!(client.board());
    match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error @ Error::System { .. })) => {
            assert!(!error.is_passing() && error.to_string().contains("within a tokio runtime"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// What an open file says that its path does not: the daemon's own rights do not reach it.
#[test]
fn a_model_is_attached_by_its_descriptor_and_none_leaks() {
    let daemon = Daemon::new();
    let directory = daemon.path("models");
    fs::create_dir(&directory).unwrap();
    let file = directory.join("config.json");
    let fields = json!({"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
                        "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256});
    fs::write(&file, fields.to_string()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let client = daemon.client();
    let asked = |model: Model| {
        let workload = chat().model(model);
        client.predict(&PredictRequest::new(workload).engine("llama.cpp"))
    };
    let inline = asked(fields.into()).unwrap();
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let by_path = asked(Model::open(&file).unwrap()).unwrap();
    let by_file = asked(Model::from_file(fs::File::open(&file).unwrap(), None)).unwrap();
    assert_eq!((by_path.bytes, by_file.bytes), (inline.bytes, inline.bytes));
    let asynchronous = daemon.asynchronous();
    let workload = chat().model(Model::open(&file).unwrap());
    let request = PredictRequest::new(workload).engine("llama.cpp");
    let theirs = asynchronously(async { asynchronous.predict(&request).await.unwrap() });
    assert_eq!(theirs.bytes, inline.bytes);
    drop(request);
    asynchronous.close();
    // By its path alone the daemon opens none outside its own directories.
    assert!(asked(Model::Path(file.clone())).is_err_and(|error| matches!(error, Error::Refused(_))));
    let before = open();
    for _ in 0..20 {
        asked(Model::open(&file).unwrap()).unwrap();
    }
    // Tests beside this one open and close theirs.
    assert!(until(|| open() < before + 15), "{} descriptors, {before} before", open());
}

#[test]
fn threads_share_a_client() {
    let daemon = Daemon::new();
    let client = daemon.client();
    thread::scope(|scope| {
        for size in 1..=8_u32 {
            let client = &client;
            scope.spawn(move || {
                for _ in 0..20 {
                    let op = json!({"kind": "gemv", "n": 64 * size, "k": 64});
                    let answer = client.predict(&json!({"workload": {"op": op, "format": "fp16"}})).unwrap();
                    assert_eq!(answer.flops, f64::from(2 * 64 * size * 64));
                }
            });
        }
    });
    let client = daemon.asynchronous();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let asked: Vec<_> = (1..=64_u32)
            .map(|size| {
                let client = client.clone();
                tokio::spawn(async move {
                    let op = json!({"kind": "gemv", "n": 64 * size, "k": 64});
                    let answer = client.predict(&json!({"workload": {"op": op, "format": "fp16"}})).await;
                    assert_eq!(answer.unwrap().flops, f64::from(2 * 64 * size * 64));
                })
            })
            .collect();
        for task in asked {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_question_on_an_idle_connection_that_was_closed_is_asked_again() {
    let daemon = Daemon::with("[calibration]\nautomatic = false\n[daemon]\nheader_timeout_s = 1.0\n");
    let client = daemon.client();
    for _ in 0..2 {
        client.board().unwrap();
        thread::sleep(Duration::from_millis(1500));
    }
    let rate = client.predict(&chat_request()).unwrap().tokens_per_s.value;
    let report = ObservationRequest::new(chat()).engine("llama.cpp").tokens_per_s(rate);
    assert_eq!(client.observe(&report).unwrap().accepted, 1);
}

#[test]
fn a_daemon_that_is_killed_in_the_middle_is_told_and_found_again() {
    let mut daemon = Daemon::new();
    let client = daemon.client();
    let (over, outcomes) = (std::sync::atomic::AtomicBool::new(false), std::sync::Mutex::new(Vec::new()));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let outcome = match client.predict(&gemv()) {
                    Ok(_) => "answered".to_owned(),
                    Err(error) => {
                        assert!(error.is_passing(), "{error:?}");
                        thread::sleep(Duration::from_millis(20));
                        error.code().to_owned()
                    }
                };
                outcomes.lock().unwrap().push(outcome);
            }
        });
        let has =
            |from: usize, what: &str| outcomes.lock().unwrap()[from..].iter().any(|outcome| outcome == what);
        let first = until(|| has(0, "answered"));
        daemon.kill();
        let gone = until(|| has(0, "unreachable"));
        let before = outcomes.lock().unwrap().len();
        daemon.start();
        let again = until(|| has(before, "answered"));
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(first && gone && again);
    });
    let seen: BTreeSet<String> = outcomes.into_inner().unwrap().into_iter().collect();
    let known = ["answered", "unreachable", "connection_lost", "denied", "not_ready"];
    assert!(seen.iter().all(|outcome| known.contains(&&**outcome)), "{seen:?}");
}

/// `ROOFLINED_UPDATE_DOCS=1` writes them.
#[test]
fn the_types_are_what_the_daemon_describes() {
    let daemon = Daemon::new();
    let wanted = make_types::types(&daemon.client().openapi().unwrap());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/rust/src/types.rs");
    if std::env::var_os("ROOFLINED_UPDATE_DOCS").is_some() {
        fs::write(&file, &wanted).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap();
    let differs = wanted.lines().zip(found.lines()).find(|(wanted, found)| wanted != found);
    let hint = "ROOFLINED_UPDATE_DOCS=1 cargo test --workspace --test client types writes it";
    assert!(
        wanted == found,
        "clients/rust/src/types.rs is not what the daemon describes: {differs:?}; {hint}"
    );
}

#[test]
fn every_route_has_a_verb() {
    let daemon = Daemon::new();
    let source =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/rust/src/verbs.rs")).unwrap();
    let document = daemon.client().openapi().unwrap();
    let routes = document["paths"].as_object().unwrap().keys();
    let asked = routes.filter(|route| !route.starts_with("/-/") && *route != "/v1/observations/confirm");
    for route in asked {
        let fixed = route.split("/{").next().unwrap();
        let parts = fixed.trim_start_matches('/').replace('/', "\", \"");
        assert!(source.contains(fixed) || source.contains(&format!("\"{parts}\"")), "{route}");
    }
}

#[test]
fn rooflinectl_is_given_the_same_answer() {
    let daemon = Daemon::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rooflinectl"));
    command.arg("--socket").arg(daemon.socket());
    let said = command.args([
        "-o",
        "json",
        "predict",
        "gemv",
        "4096",
        "4096",
        "--format",
        "int8",
        "--hardware",
        "t4",
    ]);
    let theirs: PredictAnswer = serde_json::from_slice(&said.output().unwrap().stdout).unwrap();
    let mut request = gemv();
    request["hardware"] = "t4".into();
    assert_eq!(daemon.client().predict(&request).unwrap().time_s, theirs.time_s);
}

#[test]
fn the_manual_names_every_verb() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manual = fs::read_to_string(root.join("docs/rust.md")).unwrap();
    let table = manual.split("| verb |").nth(1).unwrap().split("\n\n").next().unwrap();
    let cells = table.lines().filter_map(|row| row.split('|').nth(1));
    let told: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let source = ["verbs", "blocking"]
        .map(|name| fs::read_to_string(root.join(format!("clients/rust/src/{name}.rs"))).unwrap());
    let listed = source[0].split("$then! {").nth(1).unwrap().split("pub(crate) use").next().unwrap();
    let mut verbs: BTreeSet<&str> = listed
        .lines()
        .filter(|line| line.contains(" = verbs::"))
        .filter_map(|line| line.trim().split('(').next())
        .collect();
    verbs.extend(["events", "watch", "hold", "hold_with"]);
    assert!(
        verbs.iter().all(|verb| source.iter().any(|text| text.contains(&format!("{verb}(")))),
        "{verbs:?}"
    );
    assert_eq!(told, verbs);
}
