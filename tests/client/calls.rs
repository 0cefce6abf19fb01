//! Calls of a real daemon, with the types that it answers with.

use std::process::Command;
use std::thread;
use std::time::Duration;

use rooflined_api::*;
use rooflined_client::{Client, ClientError};
use rooflined_core::names::{Engine, Op};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::harness::{Daemon, chat, chat_request, until, wait_for};

fn gemv() -> PredictRequest {
    let op = Some(Op::Gemv { n: 4096, k: 4096 });
    let workload = Workload { op, format: Some("int8".to_owned()), ..Workload::default() };
    PredictRequest { workload, ..PredictRequest::default() }
}

async fn get<T: DeserializeOwned>(client: &mut Client, route: &str) -> T {
    client.get(route).await.unwrap().parse().unwrap()
}

async fn ask<T: DeserializeOwned>(client: &mut Client, route: &str, body: &impl serde::Serialize) -> T {
    client.post(route, body).await.unwrap().parse().unwrap()
}

#[test]
fn every_answer_has_the_type_of_its_route() {
    let daemon = Daemon::new();
    let mut client = daemon.client();
    wait_for(async {
        let predicted: PredictAnswer = ask(&mut client, "/v1/predict", &gemv()).await;
        let time = &predicted.time_s;
        assert!(time.low <= time.value && time.value <= time.high && predicted.simulated);
        assert_eq!(get::<BoardAnswer>(&mut client, "/v1/board").await.key, "jetson-orin-nano-8gb-super");
        assert!(get::<StateAnswer>(&mut client, "/v1/state").await.fields.contains_key("power_mode"));
        let t4: RooflineAnswer = get(&mut client, "/v1/roofline?hardware=t4&precision=fp16").await;
        assert_eq!(t4.compute_flops_per_s.len(), 1);
        let modes: ModesAnswer = get(&mut client, "/v1/modes").await;
        assert_eq!(
            modes.modes.iter().map(|mode| &*mode.name).collect::<Vec<_>>(),
            ["15W", "25W", "MAXN_SUPER", "7W"]
        );
        let hardware: HardwareListAnswer = get(&mut client, "/v1/hardware").await;
        assert!(hardware.hardware.iter().any(|entry| entry.key == "t4"));
        let t4: HardwareAnswer = get(&mut client, "/v1/hardware/t4").await;
        assert_eq!(t4.compute_capability.as_deref(), Some("7.5"));
        let models: ModelsAnswer = get(&mut client, "/v1/models").await;
        assert!(models.models.iter().any(|entry| entry.key == "llama-3.2-1b"));
        assert!(get::<ModelAnswer>(&mut client, "/v1/models/llama-3.2-1b?format=q4_k_m").await.bytes > 0.0);
        let formats: FormatsAnswer = get(&mut client, "/v1/formats").await;
        assert!(formats.formats.iter().any(|format| format.key == "int4_g128"));
        get::<CalibrationAnswer>(&mut client, "/v1/calibration").await;
        assert!(get::<HoldsAnswer>(&mut client, "/v1/holds").await.holds.is_empty());
        let sweep = json!({"ops": [Op::Gemv { n: 64, k: 64 }], "formats": ["int8"], "batches": [1, 2], "hardware": "t4"});
        assert_eq!(ask::<SweepAnswer>(&mut client, "/v1/sweep", &sweep).await.rows.len(), 2);
        let product = TilingRequest {
            hardware: Some("t4".to_owned()),
            m: 512,
            n: 512,
            k: 512,
            ..TilingRequest::default()
        };
        assert!(!ask::<TilingAnswer>(&mut client, "/v1/tiling", &product).await.candidates.is_empty());
        let fast = json!({"workload": gemv().workload, "time_s": 1e-9});
        assert_eq!(ask::<AnalyzeAnswer>(&mut client, "/v1/analyze", &fast).await.verdict, "impossible");
        let measured = client.command("/v1/measure", &json!({"workload": gemv().workload})).await.unwrap();
        assert_eq!(measured.parse::<MeasureAnswer>().unwrap().rows.len(), 1);
        let calibrated = json!({"wait": true, "force": true, "plan": "quick"});
        let calibrated =
            client.another(Duration::from_secs(60)).command("/v1/calibrate", &calibrated).await.unwrap();
        calibrated.parse::<CalibrateAnswer>().unwrap();
        assert!(get::<CalibrationAnswer>(&mut client, "/v1/calibration").await.record.is_object());
    });
}

#[test]
fn reports_are_taken_listed_and_forgotten() {
    let daemon = Daemon::new();
    let mut client = daemon.client();
    wait_for(async {
        let predicted: PredictAnswer = ask(&mut client, "/v1/predict", &chat_request()).await;
        let rate = predicted.tokens_per_s.value * 1.1;
        let engine = Engine::LlamaCpp;
        let report = ObservationRequest {
            workload: chat(),
            engine,
            tokens_per_s: Some(rate),
            ..ObservationRequest::default()
        };
        assert_eq!(ask::<ObservationsAnswer>(&mut client, "/v1/observations", &report).await.accepted, 1);
        let listed: ObservationListAnswer = get(&mut client, "/v1/observations?engine=llama.cpp").await;
        let [only] = &listed.observations[..] else { panic!("{listed:?}") };
        let forgotten = client.delete(&format!("/v1/observations/{}", only.id)).await.unwrap();
        assert_eq!(forgotten.parse::<ForgottenAnswer>().unwrap().forgotten, 1);
    });
}

#[test]
fn a_mode_is_set_and_a_hold_renewed_and_released() {
    let daemon = Daemon::new();
    let mut client = daemon.client();
    wait_for(async {
        let mode = ModeRequest { mode: "15W".to_owned(), ..ModeRequest::default() };
        client.command("/v1/mode", &mode).await.unwrap().parse::<SwitchAnswer>().unwrap();
        let modes: ModesAnswer = get(&mut client, "/v1/modes").await;
        assert_eq!(modes.active.as_deref(), Some("15W"));
        let request = json!({"ttl_s": 60.0, "app_id": "test", "constraints": {"mode": "15W"}});
        let held = client.command("/v1/holds", &request).await.unwrap();
        let held: HeldAnswer = held.parse().unwrap();
        client.release(held.id).await.unwrap();
        match client.release(held.id).await {
            Err(ClientError::Refused { body, .. }) => assert_eq!(body.code, "unknown_hold"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_refusal_carries_code_and_field_and_the_connection_goes_on() {
    let daemon = Daemon::new();
    let mut client = daemon.client();
    wait_for(async {
        let wrong = json!({"workload": {"op": {"kind": "gemv", "n": 4096}}});
        match client.post("/v1/predict", &wrong).await {
            Err(error @ ClientError::Refused { .. }) => {
                assert!(error.hint().is_some(), "{error}");
                let ClientError::Refused { status, body } = error else { return };
                assert_eq!(
                    (status, &*body.code, body.field.as_deref()),
                    (400, "missing_field", Some("workload.op.k"))
                );
            }
            other => panic!("{other:?}"),
        }
        get::<BoardAnswer>(&mut client, "/v1/board").await;
        for size in [70_000, 900_000] {
            let large = json!({"workload": {"model": {"model_type": "x".repeat(size)}}});
            match client.post("/v1/predict", &large).await {
                Err(ClientError::Refused { body, .. }) => assert_eq!(body.code, "body_too_large"),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(client.get("no route").await, Err(ClientError::Unsendable { .. })));
    });
}

#[test]
fn without_a_daemon_the_error_names_the_places_and_what_to_do() {
    let call = |path: &str| {
        let mut client = Client::new(Some(path.as_ref()), Duration::from_secs(5));
        wait_for(client.get("/v1/board")).unwrap_err()
    };
    let error = call("/nonexistent");
    assert!(error.hint().unwrap().contains("systemctl start rooflined"), "{error}");
    assert_eq!(error.to_string(), "no daemon answers at /nonexistent/query.sock (not there)");
    for path in ["/dev/null", "", &format!("/{}", "long".repeat(40))] {
        let error = call(path);
        assert!(matches!(error, ClientError::Unreachable { .. }), "{path}: {error:?}");
    }
}

#[test]
fn a_daemon_that_takes_no_changes_is_told_from_one_that_is_not_there() {
    let daemon = Daemon::new();
    std::fs::remove_file(daemon.socket().join("control.sock")).unwrap();
    let error = wait_for(daemon.client().command("/v1/mode/revert", &json!({}))).unwrap_err();
    assert!(matches!(error, ClientError::WithoutControl { .. }), "{error:?}");
    assert!(error.hint().unwrap().contains("rooflinectl doctor"), "{error}");
}

#[test]
fn an_idle_connection_that_was_closed_is_opened_again() {
    let daemon = Daemon::with("[calibration]\nautomatic = false\n[daemon]\nheader_timeout_s = 1.0\n");
    let mut client = daemon.client();
    wait_for(async {
        for _ in 0..2 {
            get::<BoardAnswer>(&mut client, "/v1/board").await;
            tokio::time::sleep(Duration::from_millis(1500)).await;
        }
        get::<BoardAnswer>(&mut client, "/v1/board").await;
    });
}

#[test]
fn a_daemon_that_was_killed_is_found_again() {
    let mut daemon = Daemon::new();
    let mut client = daemon.client();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(get::<BoardAnswer>(&mut client, "/v1/board"));
    daemon.kill();
    let gone =
        |error: &ClientError| matches!(error, ClientError::Unreachable { .. } | ClientError::Broken(_));
    assert!(runtime.block_on(client.get("/v1/board")).is_err_and(|error| gone(&error)));
    daemon.start();
    let answered = || {
        let answer = runtime.block_on(client.get("/v1/board"));
        answer.is_ok()
    };
    assert!(until(answered));
}

#[test]
fn rooflinectl_prints_the_same_answer() {
    let daemon = Daemon::new();
    let mut command = Command::new(crate::programs::rooflinectl());
    command.arg("--socket").arg(daemon.socket()).args(["-o", "json", "predict", "gemv", "4096", "4096"]);
    let printed = command.args(["--format", "int8", "--hardware", "t4"]).output().unwrap().stdout;
    let printed: PredictAnswer = serde_json::from_slice(&printed).unwrap();
    let request = PredictRequest { hardware: Some("t4".to_owned()), ..gemv() };
    let answer: PredictAnswer = wait_for(ask(&mut daemon.client(), "/v1/predict", &request));
    assert_eq!(answer.time_s, printed.time_s);
}

#[test]
fn clients_in_threads_do_not_disturb_each_other() {
    let daemon = Daemon::new();
    let client = daemon.client();
    thread::scope(|scope| {
        for size in 1..=8_u32 {
            let mut client = client.another(Duration::from_secs(30));
            scope.spawn(move || {
                wait_for(async {
                    for _ in 0..20 {
                        let op = Some(Op::Gemv { n: u64::from(64 * size), k: 64 });
                        let workload =
                            Workload { op, format: Some("fp16".to_owned()), ..Workload::default() };
                        let request = PredictRequest { workload, ..PredictRequest::default() };
                        let answer: PredictAnswer = ask(&mut client, "/v1/predict", &request).await;
                        assert_eq!(answer.flops, f64::from(2 * 64 * size * 64));
                    }
                });
            });
        }
    });
}
