//! The HTTP interface, against a server in this process on temporary sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its world does"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use rooflined::server::Limits;
use rooflined_core::board::{Reading, Throttle};
use rooflined_core::units::{BytesPerSecond, Seconds};
use serde_json::{Value, json};

use crate::support::{Server, ask, connect, fresh_snapshot, read_response, send, short_limits, snapshot};

fn server() -> Server {
    Server::start(snapshot(), short_limits())
}

const GEMV: &str = r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8"}}"#;

#[test]
fn every_reading_route_answers_with_the_serial() {
    let server = server();
    for path in [
        "/v1/board",
        "/v1/state",
        "/v1/roofline",
        "/v1/formats",
        "/v1/models",
        "/v1/models/llama-3.1-8b",
        "/v1/calibration",
        "/v1/openapi.json",
        "/-/ready",
        "/-/healthy",
    ] {
        for socket in [server.query(), server.control_socket()] {
            let answer = ask(&socket, "GET", path, "");
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            assert_eq!(answer.header("x-rooflined-serial"), Some("17"), "{path}");
            assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
            assert!(answer.json().is_object(), "{path}");
        }
    }
}

#[test]
fn a_model_is_described_in_the_format_asked_for() {
    let server = server();
    let listed = server.get("/v1/models").json();
    assert!(listed["models"].as_array().unwrap().iter().any(|model| model["key"] == "llama-3-8b"));
    let model = server.get("/v1/models/Llama-3-8B?format=q8_0&kv_format=q8_0").json();
    assert_eq!((model["key"].as_str(), model["format"].as_str()), (Some("llama-3-8b"), Some("q8_0")));
    // 32 layers, keys and values of 8 heads of 128, 34 bytes for every 32
    assert_eq!(model["kv_bytes_per_token"], 32.0 * 2.0 * 8.0 * 128.0 * 34.0 / 32.0);
    for (path, status, code, field) in [
        ("/v1/models/llama-9", 404, "not_found", ""),
        ("/v1/models/llama-3-8b?format=q9", 400, "unknown_format", "format"),
        ("/v1/models/llama-3-8b?kv_format=q9", 400, "unknown_format", "kv_format"),
        ("/v1/models/llama-3-8b?mode=x", 400, "unknown_field", "mode"),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.error()), (status, (code.into(), field.into())), "{path}");
    }
}

#[test]
fn the_state_has_a_value_or_a_reason_for_each_field() {
    let server = server();
    let state = server.get("/v1/state").json();
    assert_eq!(state["cores_online"]["value"], 2);
    assert!(state["cores_online"]["age_s"].as_f64().unwrap() > 0.0);
    assert_eq!(state["temperatures_c"]["value"]["cpu-thermal"], 45.5);
    assert_eq!(state["cpu_hz"], json!({ "value": null, "reason": "no cpufreq" }));
    assert!(state["pressure"]["reason"].as_str().unwrap().contains("permission denied"));
}

#[test]
fn the_roofline_shows_ceilings_ridges_regimes_and_drift() {
    let server = server();
    let roofline = server.get("/v1/roofline").json();
    assert_eq!(roofline["bandwidth_bytes_per_s"]["value"], 50e9);
    assert_eq!(roofline["bandwidth_bytes_per_s"]["provenance"], "measured");
    assert_eq!(roofline["ridge_flops_per_byte"]["int8"], 400.0 / 50.0);
    assert_eq!(roofline["regimes"][0]["active"], true);
    assert_eq!(roofline["drift_ratio"], 45.0 / 50.0);
    assert_eq!(roofline["triad_bytes_per_s"], Value::Null);
    let one = server.get("/v1/roofline?precision=int8").json();
    assert_eq!(one["compute_flops_per_s"].as_object().unwrap().len(), 1);
    for (query, code, field) in [
        ("precision=int9", "unknown_precision", "precision"),
        ("precision=fp8", "no_unit", "precision"),
        ("mode=MAXN", "unknown_mode", "mode"),
        ("mod=MAXN", "unknown_field", "mod"),
    ] {
        let answer = server.get(&format!("/v1/roofline?{query}"));
        assert_eq!((answer.status, answer.error()), (400, (code.into(), field.into())), "{query}");
    }
}

#[test]
fn a_sweep_has_each_warning_once() {
    let server = server();
    server.publish(|snapshot| {
        snapshot.state.throttle = Reading::Known(Throttle { active: true, evidence: vec![] });
    });
    let body =
        r#"{"ops":[{"kind":"gemv","n":64,"k":64}],"formats":["int8","fp32","int4_g32"],"batches":[1,2]}"#;
    let answer = server.post("/v1/sweep", body).json();
    let rows = answer["rows"].as_array().unwrap();
    assert!(rows.len() == 6 && rows.iter().all(|row| row["warnings"] == json!([])), "{answer}");
    let warnings = answer["warnings"].as_array().unwrap();
    let of_all: Vec<&Value> = warnings.iter().filter(|warning| warning.get("rows").is_none()).collect();
    assert!(
        of_all.iter().any(|warning| warning["message"].as_str().unwrap().contains("throttling")),
        "{answer}"
    );
    for warning in warnings {
        let same = warnings.iter().filter(|other| other["message"] == warning["message"]).count();
        assert_eq!(same, 1, "{answer}");
    }
}

/// What two parsers would end in different places is a way to smuggle a request through a proxy.
#[test]
fn a_body_with_two_lengths_is_refused() {
    let server = server();
    let request = |lines: &str| {
        format!("POST /v1/predict HTTP/1.1\r\nhost: x\r\n{lines}\r\n{:x}\r\n{GEMV}\r\n0\r\n\r\n", GEMV.len())
    };
    let (length, chunked) = ("Content-LENGTH: 5\r\n", "transfer-encoding: chunked\r\n");
    for lines in [[length, chunked].concat(), [chunked, length].concat()] {
        let mut stream = connect(&server.query());
        stream.write_all(request(&lines).as_bytes()).unwrap();
        let answer = read_response(&mut stream);
        assert_eq!((answer.status, answer.error().0.as_str()), (400, "malformed_request"), "{lines:?}");
        assert_eq!(answer.header("connection"), Some("close"));
    }
    // One of each kind on a connection is as it should be.
    let mut stream = connect(&server.query());
    let length = GEMV.len();
    let plain = format!("POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{GEMV}");
    for request in [plain.clone(), request(chunked), plain, request(chunked)] {
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // It ends with the serial, behind which nothing comes but the end of the object.
        while !answer.ends_with(b"}") || !answer.windows(8).any(|part| part == b"\"serial\"") {
            let mut buffer = [0; 4096];
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&buffer[..read]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 OK"), "{}", String::from_utf8_lossy(&answer));
    }
}

/// Some 1 MB.
fn long_sweep() -> String {
    let batches: Vec<u64> = (1..=1024).collect();
    let ops = r#"[{"kind":"gemv","n":64,"k":64}]"#;
    format!(r#"{{"ops":{ops},"formats":["int8"],"batches":{}}}"#, json!(batches))
}

fn ask_unread(server: &Server, body: &str) -> std::os::unix::net::UnixStream {
    let mut stream = connect(&server.query());
    let length = body.len();
    write!(stream, "POST /v1/sweep HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    stream
}

#[test]
fn answers_that_a_user_has_not_read_count_against_it() {
    let body = long_sweep();
    let length = server().post("/v1/sweep", &body).body.len();
    // Of which one user may have half: one answer and a half.
    let limits = Limits { unread_bytes: 3 * length, write_stall: Duration::from_secs(60), ..short_limits() };
    let server = Server::start(snapshot(), limits);
    let mut unread = ask_unread(&server, &body);
    // The next one shows that the first was answered.
    let refused = (0..200).find_map(|_| {
        let answer = server.post("/v1/sweep", &body);
        (answer.status != 200).then_some(answer).or_else(|| {
            std::thread::sleep(Duration::from_millis(20));
            None
        })
    });
    let refused = refused.expect("a refusal");
    assert_eq!((refused.status, refused.error().0.as_str()), (409, "busy"));
    assert!(refused.body.contains("has not read"), "{refused:?}");
    // Its half of the connection stays open, so that it is read to its length.
    let mut read = 0;
    while read < length {
        read += unread.read(&mut [0; 65_536]).unwrap();
    }
    drop(unread);
    assert_eq!(server.post("/v1/sweep", &body).status, 200, "it was read");
}

#[test]
fn a_client_that_reads_a_little_now_and_then_is_cut_off_in_time() {
    let limits = Limits { write_total: Duration::from_secs(1), ..short_limits() };
    let server = Server::start(snapshot(), limits);
    let mut stream = ask_unread(&server, &long_sweep());
    let (begun, mut read, mut buffer) = (Instant::now(), 0, [0; 4096]);
    // Always in time for some progress, which a part of the socket's buffer has to be free for.
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        read += length;
        std::thread::sleep(Duration::from_millis(if begun.elapsed() < Duration::from_secs(3) {
            8
        } else {
            0
        }));
    }
    assert!(read < 800_000, "{read} bytes came in {:?}", begun.elapsed());
}

/// The formula of `predict` with the numbers of the fixture.
#[test]
fn a_prediction_follows_from_the_ceilings() {
    let server = server();
    let answer = server.post("/v1/predict", GEMV).json();
    let weights = 4096.0 * 4096.0;
    let bytes = weights + 4.0 * (4096.0 + 4096.0);
    let memory: f64 = bytes / (50e9 * 0.9);
    let compute: f64 = 2.0 * weights / 400e9;
    let core: f64 = weights * 0.05 / 2.0 / 2e9;
    let expected = 10e-6 + (memory.powi(4) + compute.powi(4) + core.powi(4)).powf(0.25);
    let value = answer["time_s"]["value"].as_f64().unwrap();
    assert!((value / expected - 1.0).abs() < 1e-6, "{value} {expected}");
    assert!((answer["tokens_per_s"]["value"].as_f64().unwrap() * value - 1.0).abs() < 1e-9);
    assert!((answer["roofline_time_s"].as_f64().unwrap() / (bytes / 50e9) - 1.0).abs() < 1e-9);
    assert_eq!(answer["bound"], "memory");
    assert_eq!(answer["limit"], "dram");
    assert_eq!(answer["tier"], "engine_calibrated");
    assert_eq!(answer["power_w"], Value::Null);
    assert_eq!(answer["memory_bytes"]["weights"], weights);
    assert_eq!(answer["memory_bytes"]["fits"], true);
    assert_eq!(answer["breakdown"][0]["op"], "gemv 4096x4096");
    assert_eq!(answer["serial"], 17);
}

#[test]
fn the_batch_of_a_gemv_is_its_columns() {
    let server = server();
    let batched = server
        .post(
            "/v1/predict",
            r#"{"workload":{"op":{"kind":"gemv","n":512,"k":512},"format":"int8","batch":8}}"#,
        )
        .json();
    let gemm = server
        .post("/v1/predict", r#"{"workload":{"op":{"kind":"gemm","m":8,"n":512,"k":512},"format":"int8"}}"#)
        .json();
    assert_eq!(batched, gemm);
}

#[test]
fn attention_has_a_cache_and_tokens_of_its_own() {
    let server = server();
    let body = |kv: &str| {
        format!(
            r#"{{"workload":{{"op":{{"kind":"attention","batch":2,"heads":8,"kv_heads":2,"query_tokens":4,
            "context_tokens":1020,"head_dim":64}},"kv_format":"{kv}"}}}}"#
        )
    };
    let fp16 = server.post("/v1/predict", &body("fp16")).json();
    let int8 = server.post("/v1/predict", &body("int8")).json();
    let cache = 2.0 * 2.0 * 1024.0 * 2.0 * 64.0;
    assert_eq!(fp16["memory_bytes"]["kv_cache"], 2.0 * cache);
    assert_eq!(int8["memory_bytes"]["kv_cache"], cache);
    let rate = fp16["tokens_per_s"]["value"].as_f64().unwrap() * fp16["time_s"]["value"].as_f64().unwrap();
    assert!((rate - 8.0).abs() < 1e-9, "2 sequences of 4 tokens: {rate}");
}

#[test]
fn another_clock_scales_the_ceilings_and_an_absent_one_is_named() {
    let server = server();
    let at = |point: &str| {
        let body = format!(
            r#"{{"operating_point":{point},"workload":{{"op":{{"kind":"gemm","m":512,"n":512,"k":512}},"format":"int8"}}}}"#
        );
        server.post("/v1/predict", &body)
    };
    let now = at("{}").json()["time_s"]["value"].as_f64().unwrap();
    let half = at(r#"{"cpu_hz":1e9}"#).json();
    assert!(
        half["time_s"]["value"].as_f64().unwrap() > 1.8 * now,
        "compute bound: half the clock, twice the time"
    );
    assert_eq!(half["provenance"], "scaled");
    assert!(at(r#"{"cores_online":1}"#).json()["time_s"]["value"].as_f64().unwrap() > 1.8 * now);
    for (point, code, field) in [
        (r#"{"gpu_hz":1e9}"#, "unsupported_operating_point", "operating_point.gpu_hz"),
        (r#"{"emc_hz":1e9}"#, "unsupported_operating_point", "operating_point.emc_hz"),
        (r#"{"power_mode":"MAXN"}"#, "unknown_mode", "operating_point.power_mode"),
        (r#"{"cpu_hz":-1}"#, "invalid_field", "operating_point.cpu_hz"),
        (r#"{"cpu_hz":2}"#, "invalid_field", "operating_point.cpu_hz"),
        (r#"{"cores_online":3}"#, "invalid_field", "operating_point.cores_online"),
    ] {
        let answer = at(point);
        assert_eq!((answer.status, answer.error()), (400, (code.into(), field.into())), "{point}");
    }
}

#[test]
fn observations_in_a_prediction_count_for_that_answer_only() {
    let server = server();
    let before = server.post("/v1/predict", GEMV).json();
    let observed = 1.5 * before["time_s"]["value"].as_f64().unwrap();
    let workload = r#"{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8"}"#;
    let supposing = |time: f64| {
        server.post(
            "/v1/predict",
            &format!(
                r#"{{"workload":{workload},"observations":[{{"workload":{workload},"time_s":{time}}}]}}"#
            ),
        )
    };
    let supposed = supposing(observed).json();
    let value = supposed["time_s"]["value"].as_f64().unwrap();
    assert!((value / observed - 1.0).abs() < 1e-6, "{value} {observed}");
    assert_eq!(supposed["tier"], "anchored");
    assert_eq!(server.post("/v1/predict", GEMV).json(), before);
    let impossible = supposing(1e-9);
    assert_eq!(impossible.error(), ("impossible_observation".into(), "observations[0].time_s".into()));
}

#[test]
fn a_recommendation_meets_its_target_or_says_what_is_closest() {
    let server = server();
    let ask = |constraints: &str| {
        server.post(
            "/v1/recommend",
            &format!(
                r#"{{"workload":{{"op":{{"kind":"gemv","n":4096,"k":4096}}}},"objective":"throughput",
                "constraints":{constraints},"freedom":{{"batch":{{"min":1,"max":16}}}}}}"#
            ),
        )
    };
    let feasible = ask(r#"{"max_time_s":0.002}"#).json();
    assert_eq!(feasible["feasible"], true, "{feasible}");
    assert!(feasible["decision"]["prediction"]["time_s"]["high"].as_f64().unwrap() <= 0.002);
    assert_eq!(feasible["candidates"], 3 * 16);
    assert_eq!(feasible["apply"]["reboot_required"], false);
    let settings = feasible["apply"]["settings"].as_object().unwrap();
    assert!(
        settings.len() == 7
            && settings.values().all(|setting| setting.as_str().is_some_and(|text| !text.is_empty()))
    );
    let infeasible = ask(r#"{"max_time_per_token_s":1e-9}"#);
    assert_eq!(infeasible.status, 200);
    let infeasible = infeasible.json();
    assert_eq!(infeasible["feasible"], false);
    assert_eq!(infeasible["decision"], Value::Null);
    assert_eq!(infeasible["violated"], json!(["max_time_per_token_s"]));
    assert!(infeasible["closest"]["format"].is_string());
    let lossless = ask(r#"{"max_quality_loss_ratio":0}"#).json();
    assert_eq!(
        (&lossless["feasible"], &lossless["decision"]["quality_loss_ratio"]),
        (&json!(true), &json!(0.0))
    );
    assert!(lossless["rejected"].as_array().unwrap().iter().any(|row| {
        row["by"] == "max_quality_loss_ratio"
            && row["closest"].as_f64().unwrap() > 0.0
            && row["count"].as_u64().unwrap() >= 16
    }));
    let negative = ask(r#"{"max_quality_loss_ratio":-0.1}"#);
    assert_eq!(negative.error(), ("invalid_field".into(), "constraints.max_quality_loss_ratio".into()));
    for constraint in ["max_power_w", "max_time_to_first_token_s"] {
        let answer = ask(&format!(r#"{{"{constraint}":1}}"#));
        assert_eq!(answer.error(), ("unsupported_constraint".into(), format!("constraints.{constraint}")));
    }
    assert_eq!(ask(r#"{"max_time_s":0}"#).error(), ("invalid_field".into(), "constraints.max_time_s".into()));
}

#[test]
fn a_sweep_is_the_cross_product_up_to_its_limit() {
    let server = server();
    let sweep = |body: &str| server.post("/v1/sweep", body);
    let ops = r#"[{"kind":"gemv","n":64,"k":64},{"kind":"gemm","m":2,"n":64,"k":64}]"#;
    let answer = sweep(&format!(r#"{{"ops":{ops},"formats":["int8","fp32"],"batches":[1,4,16]}}"#)).json();
    assert_eq!(answer["rows"].as_array().unwrap().len(), 2 * 2 * 3);
    let default = sweep(&format!(r#"{{"ops":{ops}}}"#)).json();
    assert_eq!(
        default["rows"].as_array().unwrap().len(),
        2 * 3,
        "every measured format, batches as they are"
    );
    assert_eq!(default["rows"][3]["batch"], 2);
    assert!(default["rows"][0].get("threads").is_none(), "threads are named where they are swept");
    let one = sweep(&format!(r#"{{"ops":{ops},"formats":["int8"],"threads":[1,1]}}"#)).json();
    let threads: Vec<&Value> = one["rows"].as_array().unwrap().iter().map(|row| &row["threads"]).collect();
    assert_eq!(threads, [1, 1], "a row for each operation, a number of threads named twice counts once");
    let many: Vec<u64> = (1..=8000).collect();
    let answer = sweep(&format!(r#"{{"ops":{ops},"formats":["int8","fp32"],"batches":{}}}"#, json!(many)));
    assert_eq!(answer.error().0, "too_many");
    assert!(answer.body.contains("16384"), "{answer:?}");
    let largest: Vec<u64> = (1..=4096).collect();
    let answer = sweep(&format!(r#"{{"ops":{ops},"formats":["int8","fp32"],"batches":{}}}"#, json!(largest)));
    assert_eq!((answer.status, answer.error()), (400, ("too_many".into(), "ops".into())));
    assert!(answer.body.contains("8 MB: 16384 rows, of which about"), "{answer:?}");
    let large: Vec<u64> = (1..=1024).collect();
    let answer = sweep(&format!(r#"{{"ops":{ops},"formats":["int8","fp32"],"batches":{}}}"#, json!(large)));
    assert_eq!(answer.json()["rows"].as_array().unwrap().len(), 4096);
    for (body, code, field) in [
        (r#"{"ops":[]}"#.to_owned(), "missing_field", "ops"),
        (format!(r#"{{"ops":{ops},"formats":[]}}"#), "invalid_field", "formats"),
        (format!(r#"{{"ops":{ops},"formats":["int8","int9"]}}"#), "unknown_format", "formats[1]"),
        (format!(r#"{{"ops":{ops},"batches":[1,0]}}"#), "invalid_dimension", "batches[1]"),
        (format!(r#"{{"ops":{ops},"threads":[]}}"#), "invalid_field", "threads"),
        (format!(r#"{{"ops":{ops},"threads":[1,0]}}"#), "invalid_field", "threads[1]"),
        (r#"{"ops":[{"kind":"gemv","n":0,"k":1}]}"#.to_owned(), "invalid_dimension", "ops[0].n"),
    ] {
        let answer = sweep(&body);
        assert_eq!((answer.status, answer.error()), (400, (code.into(), field.into())), "{body}");
    }
}

#[test]
fn an_analysis_judges_the_measured_time() {
    let server = server();
    let analyze = |time: f64| {
        let body = format!(
            r#"{{"workload":{{"op":{{"kind":"gemv","n":4096,"k":4096}},"format":"int8"}},"time_s":{time}}}"#
        );
        server.post("/v1/analyze", &body).json()
    };
    let predicted = server.post("/v1/predict", GEMV).json();
    let value = predicted["time_s"]["value"].as_f64().unwrap();
    let bound = predicted["roofline_time_s"].as_f64().unwrap();
    assert_eq!(analyze(value)["verdict"], "as_predicted");
    assert_eq!(analyze(10.0 * value)["verdict"], "slower_than_predicted");
    assert_eq!(analyze(bound * 1.01)["verdict"], "at_ceiling");
    let impossible = analyze(bound / 3.0);
    assert_eq!(impossible["verdict"], "impossible");
    // The fixture's ceilings may be 5 % higher than their best estimate, and only beyond that is a time impossible.
    assert!(
        impossible["reason"].as_str().unwrap().contains(&format!("{:.2} times faster", 3.0 / 1.05)),
        "{impossible}"
    );
    let achieved = analyze(1.0)["achieved_flops_per_s"].as_f64().unwrap();
    assert_eq!(achieved, 2.0 * 4096.0 * 4096.0);
}

#[test]
fn observations_reach_the_daemon_one_or_many() {
    let server = server();
    let one = r#"{"workload":{"op":{"kind":"gemm","m":4,"n":64,"k":64},"format":"q4_0"},"engine":"llama.cpp","tokens_per_s":8}"#;
    for (body, count) in [
        (one.to_owned(), 1),
        (format!("[{one},{one}]"), 2),
        (format!(r#"{{"observations":[{one},{one},{one}]}}"#), 3),
    ] {
        let answer = server.post("/v1/observations", &body);
        assert_eq!(answer.json()["accepted"], count, "{answer:?}");
    }
    let seen: Vec<_> = server.seen.try_iter().filter(|seen| seen.starts_with("Observe")).collect();
    assert_eq!(seen.len(), 3);
    assert!(seen[0].contains("Seconds(0.5)"), "4 columns at 8 a second: {}", seen[0]);
    for (body, code, field) in [
        (r#"{"workload":{"op":{"kind":"gemv","n":1,"k":1}}}"#, "missing_field", "time_s"),
        (r#"{"workload":{"op":{"kind":"gemv","n":1,"k":1}},"time_s":0}"#, "invalid_field", "time_s"),
        (r#"{"workload":{"op":{"kind":"gemv","n":1,"k":1}},"time_s":-1}"#, "invalid_field", "time_s"),
        (r#"[{"workload":{"op":{"kind":"gemv","n":1,"k":1}},"time_s":"1"}]"#, "invalid_field", "[0].time_s"),
        (r#"{"workload":{"model":"llama-3.1-8c"},"time_s":1}"#, "unknown_model", "workload.model"),
        ("[]", "too_many", "observations"),
    ] {
        let answer = server.post("/v1/observations", body);
        assert_eq!((answer.status, answer.error()), (400, (code.into(), field.into())), "{body}");
    }
}

#[test]
fn bad_input_is_answered_with_code_field_and_hint() {
    let server = server();
    let op = |op: &str| format!(r#"{{"workload":{{"op":{op}}}}}"#);
    for (body, code, field) in [
        (op(r#"{"kind":"gemv","n":0,"k":4096}"#), "invalid_dimension", "workload.op.n"),
        (op(r#"{"kind":"gemv","n":-1,"k":4096}"#), "invalid_dimension", "workload.op.n"),
        (op(r#"{"kind":"gemv","n":1e18,"k":4096}"#), "invalid_dimension", "workload.op.n"),
        (op(r#"{"kind":"gemv","n":1000000000000000000,"k":4096}"#), "invalid_dimension", "workload.op.n"),
        (op(r#"{"kind":"gemv","n":NaN,"k":4096}"#), "invalid_json", ""),
        (op(r#"{"kind":"gemm","m":1,"n":1,"k":0}"#), "invalid_dimension", "workload.op.k"),
        (
            r#"{"workload":{"op":{"kind":"gemv","n":1,"k":1},"format":"q4km"}}"#.into(),
            "unknown_format",
            "workload.format",
        ),
        (
            r#"{"workload":{"op":{"kind":"gemv","n":1,"k":1},"kv_format":"fp16"}}"#.into(),
            "invalid_field",
            "workload.kv_format",
        ),
        (
            r#"{"workload":{"op":{"kind":"gemv","n":1,"k":1},"batch":0}}"#.into(),
            "invalid_dimension",
            "workload.batch",
        ),
        (
            r#"{"workload":{"op":{"kind":"gemv","n":1,"k":1},"batch":5000000000}}"#.into(),
            "invalid_dimension",
            "workload.op.m",
        ),
        (
            r#"{"workload":{"op":{"kind":"gemm","m":2,"n":1,"k":1},"batch":3}}"#.into(),
            "invalid_field",
            "workload.batch",
        ),
        (
            r#"{"workload":{"op":{"kind":"gemv","n":1,"k":1},"phase":"decode"}}"#.into(),
            "invalid_field",
            "workload.phase",
        ),
        (
            r#"{"workload":{"model":"llama-3.1-8","format":"q4_k_m"}}"#.into(),
            "unknown_model",
            "workload.model",
        ),
        (
            r#"{"workload":{"model":{"path":"/nowhere/m.gguf"}}}"#.into(),
            "unreadable_model",
            "workload.model.path",
        ),
        (r#"{"workload":{"model":{"path":"m.gguf"}}}"#.into(), "unreadable_model", "workload.model.path"),
        (
            r#"{"workload":{"model":"llama-3.1-8b","op":{"kind":"gemv","n":1,"k":1}}}"#.into(),
            "invalid_field",
            "workload.op",
        ),
        (r#"{"workload":{}}"#.into(), "missing_field", "workload.op"),
        (
            r#"{"hardware":"h101-sxm","workload":{"op":{"kind":"gemv","n":1,"k":1}}}"#.into(),
            "unknown_hardware",
            "hardware",
        ),
        (r#"{"wrkload":{}}"#.into(), "unknown_field", "wrkload"),
        (r#"{"workload":{"op":{"kind":"gem"#.into(), "invalid_json", ""),
        (String::new(), "invalid_json", ""),
        ("\u{0}".into(), "invalid_json", ""),
        (
            format!(r#"{{"workload":{{"model":{}{}}}}}"#, "[".repeat(20_000), "]".repeat(20_000)),
            "invalid_json",
            "",
        ),
    ] {
        let answer = server.post("/v1/predict", &body);
        assert_eq!((answer.status, answer.error()), (400, (code.into(), field.into())), "{body:.90}");
    }
    let hint =
        server.post("/v1/predict", r#"{"workload":{"op":{"kind":"gemv","n":1,"k":1},"format":"q4km"}}"#);
    assert!(hint.json()["error"]["hint"].as_str().unwrap().contains("q4_k_m"));
    // Bytes that are no text at all.
    let answer = send(
        &server.query(),
        b"POST /v1/predict HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\n{\"\xff\xfe",
    );
    assert_eq!(answer.error().0, "invalid_json");
}

#[test]
fn the_registry_of_hardware_is_listed_and_shown_by_key() {
    let server = server();
    let list = server.get("/v1/hardware").json();
    let keys: Vec<_> =
        list["hardware"].as_array().unwrap().iter().map(|entry| entry["key"].clone()).collect();
    assert!(keys.contains(&"gb10".into()) && keys.contains(&"jetson-agx-thor-t5000".into()), "{keys:?}");
    let orin = server.get("/v1/hardware/jetson%2Dagx-orin-64gb");
    assert_eq!((orin.status, orin.header("x-rooflined-serial")), (200, Some("17")));
    // 256 bit / 8 x 2 x 3199 MHz
    let limit = &orin.json()["ceilings"]["memory_limit_bytes_per_s"];
    assert_eq!((&limit["value"], &limit["provenance"]), (&204_736e6.into(), &"datasheet".into()));
    assert_eq!(server.get("/v1/hardware/agx-thor").json()["key"], "jetson-agx-thor-t5000");
    let unknown = server.get("/v1/hardware/gb11");
    assert_eq!((unknown.status, unknown.error()), (404, ("not_found".into(), "key".into())));
    assert!(unknown.body.contains("gb10"), "{unknown:?}");
    for path in ["/v1/hardware/", "/v1/hardware/gb10/x"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    assert_eq!(server.get("/v1/hardware/%ff").error().0, "malformed_request");
    assert_eq!(ask(&server.query(), "POST", "/v1/hardware/gb10", "{}").header("allow"), Some("GET, HEAD"));
}

#[test]
fn other_hardware_is_answered_from_its_data_sheet_and_this_machine_from_what_it_is() {
    let server = server();
    let ask = |hardware: &str| {
        let body = format!(
            r#"{{{hardware}"workload":{{"op":{{"kind":"gemv","n":4096,"k":4096}},"format":"int8"}}}}"#
        );
        server.post("/v1/predict", &body).json()
    };
    let (own, named, other) = (ask(""), ask(r#""hardware":"cpu","#), ask(r#""hardware":"h100","#));
    assert_eq!(own, named, "this machine by its own key is this machine");
    assert_eq!(
        (&other["hardware"], &other["serial"], &other["tier"]),
        (&json!("h100-sxm"), &json!(0), &json!("prior"))
    );
    assert!(other["time_s"]["value"].as_f64() < own["time_s"]["value"].as_f64());
    let roofline = server.get("/v1/roofline?hardware=agx-orin-64gb&mode=MODE_15W").json();
    assert_eq!(roofline["power_mode"], "MODE_15W");
    assert_eq!(roofline["bandwidth_bytes_per_s"]["age_s"], Value::Null);
    assert_eq!(server.get("/v1/roofline?hardware=nothing").error().0, "unknown_hardware");
}

#[test]
fn unknown_routes_and_wrong_methods_are_json_too() {
    let server = server();
    let answer = server.get("/v1/predikt");
    assert_eq!((answer.status, answer.error().0.as_str()), (404, "not_found"));
    assert!(answer.body.contains("/v1/predict"), "{answer:?}");
    assert_eq!(answer.header("x-rooflined-serial"), Some("17"));
    let answer = server.get("/v1/predict");
    assert_eq!((answer.status, answer.error().0.as_str()), (405, "method_not_allowed"));
    assert_eq!(answer.header("allow"), Some("POST"));
    let answer = ask(&server.query(), "DELETE", "/v1/state", "");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
    let head = ask(&server.query(), "HEAD", "/v1/state", "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(server.get("/v1/state?x=1").error(), ("unknown_field".into(), "x".into()));
    assert_eq!(server.get("/v1/events?x=1").error(), ("unknown_field".into(), "x".into()));
}

#[test]
fn a_body_beyond_the_limit_is_refused_however_it_is_sent() {
    let server = server();
    let megabyte = "x".repeat(1 << 20);
    let answer = server.post("/v1/predict", &megabyte);
    assert_eq!((answer.status, answer.error().0.as_str()), (413, "body_too_large"));
    let mut chunked =
        String::from("POST /v1/predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    for _ in 0..16 {
        chunked.push_str(&format!("1400\r\n{}\r\n", "x".repeat(0x1400)));
    }
    chunked.push_str("0\r\n\r\n");
    let answer = send(&server.query(), chunked.as_bytes());
    assert_eq!((answer.status, answer.error().0.as_str()), (413, "body_too_large"));
    let largest = format!("{GEMV}{}", " ".repeat(64 * 1024 - GEMV.len()));
    assert_eq!(server.post("/v1/predict", &largest).status, 200, "64 KiB is within the limit");
}

#[test]
fn a_slow_header_or_body_is_cut_off() {
    let server = server();
    let mut slow = connect(&server.query());
    let begun = Instant::now();
    slow.write_all(b"GET /v1/state HTTP/1.1\r\nhost: ").unwrap();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(100));
        slow.write_all(b"x").unwrap();
    }
    let answer = read_response(&mut slow);
    assert_eq!((answer.status, answer.error().0.as_str()), (408, "request_timeout"));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());

    let mut idle = connect(&server.query());
    let mut nothing = Vec::new();
    idle.read_to_end(&mut nothing).unwrap();
    assert!(nothing.is_empty(), "an idle connection is closed without a word");

    let answer =
        send(&server.query(), b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{");
    assert_eq!((answer.status, answer.error().0.as_str()), (408, "request_timeout"));
}

#[test]
fn header_floods_and_nonsense_are_refused() {
    let server = server();
    let many: String = (0..200).map(|index| format!("x-{index}: y\r\n")).collect();
    let answer = send(&server.query(), format!("GET /v1/state HTTP/1.1\r\n{many}\r\n").as_bytes());
    assert_eq!(answer.status, 431, "{answer:?}");
    let long = format!("GET /v1/state HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    let mut stream = connect(&server.query());
    // The server may hang up before all of it is written.
    let _ = stream.write_all(long.as_bytes());
    assert_eq!(read_response(&mut stream).status, 431);
    assert_eq!(send(&server.query(), b"\x16\x03\x01\x02\x00\x01\r\n\r\n").status, 400);
    assert_eq!(server.get("/v1/state").status, 200);
}

#[test]
fn three_hundred_connections_leave_the_server_answering() {
    let limits = Limits { header_time: Duration::from_secs(2), ..Limits::default() };
    let server = Server::start(snapshot(), limits);
    let mut held: Vec<_> = (0..300).map(|_| connect(&server.query())).collect();
    // A user may have as many as are free: of 256 a half. The last ones are refused.
    let answer = read_response(&mut held.pop().unwrap());
    assert_eq!((answer.status, answer.error().0.as_str()), (503, "too_many_connections"));
    assert!(answer.body.contains("its share of 128 connections"), "{answer:?}");
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(answer.header("x-rooflined-serial"), Some("17"));
    let turned_away = held.split_off(128);
    assert_eq!(turned_away.len(), 171);
    for mut stream in turned_away {
        assert_eq!(read_response(&mut stream).status, 503);
    }
    // Those within the limit are served.
    for stream in &mut held {
        stream.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    }
    for stream in &mut held {
        assert_eq!(read_response(stream).status, 200);
    }
    let page = server.get("/metrics").body;
    assert!(page.contains("rooflined_http_refused_total{socket=\"query\"} 172"), "{page}");
}

#[test]
fn many_clients_at_once_get_the_same_answer() {
    let server = server();
    let expected = server.post("/v1/predict", GEMV).body;
    let socket = server.query();
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(ask(&socket, "POST", "/v1/predict", GEMV).body, expected);
                }
            });
        }
    });
}

#[test]
fn a_connection_serves_request_after_request() {
    let server = server();
    let stream = connect(&server.query());
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    for _ in 0..3 {
        writer.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "HTTP/1.1 200 OK\r\n");
        let mut length = 0;
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        assert_eq!(body, br#"{"healthy":true}"#);
    }
}

#[test]
fn control_routes_answer_on_the_control_socket_only() {
    let server = server();
    for path in ["/v1/calibrate", "/v1/measure"] {
        let answer = server.post(path, "{}");
        assert_eq!((answer.status, answer.error().0.as_str()), (403, "wrong_socket"), "{path}");
        assert!(answer.body.contains("control.sock"), "{answer:?}");
    }
    let control = server.control_socket();
    // The tests run as the daemon's own user, who may always.
    let answer = ask(&control, "POST", "/v1/calibrate", r#"{"plan":"quick"}"#);
    assert_eq!((answer.status, answer.json()), (200, json!({ "job": 7, "finished": false })));
    assert_eq!(ask(&control, "POST", "/v1/calibrate", "").status, 200, "everything has a default");
    let answer = ask(&control, "POST", "/v1/calibrate", r#"{"force":true}"#);
    assert_eq!((answer.status, answer.error().0.as_str()), (409, "busy"));
    let answer = ask(&control, "POST", "/v1/calibrate", r#"{"plan":"quik"}"#);
    assert_eq!((answer.status, answer.error()), (400, ("invalid_field".into(), "plan".into())));
    let answer =
        ask(&control, "POST", "/v1/measure", r#"{"op":{"kind":"gemv","n":64,"k":64},"formats":["int8"]}"#);
    assert_eq!((answer.status, answer.error().0.as_str()), (500, "probe_failed"));
    for (body, code, field) in [
        ("{}", "missing_field", "op"),
        (r#"{"op":{"kind":"gemv","n":0,"k":64}}"#, "invalid_dimension", "op.n"),
        (r#"{"op":{"kind":"gemv","n":1,"k":1},"formats":["int9"]}"#, "unknown_format", "formats[0]"),
        (r#"{"workloads":[{"op":{"kind":"gemv","n":1,"k":0}}]}"#, "invalid_dimension", "workloads[0].op.k"),
        (r#"{"workload":{"model":"tinyllama-1.1b"}}"#, "unsupported_workload", "workload.model"),
    ] {
        let answer = ask(&control, "POST", "/v1/measure", body);
        assert_eq!((answer.status, answer.error()), (400, (code.into(), field.into())), "{body}");
    }
}

#[test]
fn the_daemon_hears_of_a_client_that_goes_away() {
    let server = server();
    let mut stream = connect(&server.control_socket());
    let body = r#"{"wait":true}"#;
    let request =
        format!("POST /v1/calibrate HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).unwrap();
    let wait = Duration::from_secs(5);
    loop {
        if server.seen.recv_timeout(wait).unwrap().starts_with("Calibrate") {
            break;
        }
    }
    drop(stream);
    loop {
        if server.seen.recv_timeout(wait).unwrap() == "ClientGone" {
            break;
        }
    }
}

/// Reads events until one of this name comes; its data.
fn next_event(reader: &mut impl BufRead, name: &str) -> Value {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream ended before {name}");
        if line.trim_end() == format!("event: {name}") {
            break;
        }
    }
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data.trim_end()).unwrap();
        }
    }
}

#[test]
fn changes_are_streamed() {
    let server = server();
    let mut stream = connect(&server.query());
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    assert_eq!(next_event(&mut reader, "state")["serial"], 17, "the first event is the state as it is");
    server.publish(|snapshot| snapshot.roofline.bandwidth.value = BytesPerSecond(40e9));
    assert_eq!(next_event(&mut reader, "roofline")["ratio"], 0.8);
    assert!(next_event(&mut reader, "advice_stale")["reason"].as_str().unwrap().contains("-20.0 %"));
    server.publish(|snapshot| snapshot.calibration_status.running = Some(3));
    assert_eq!(next_event(&mut reader, "calibration")["running"], 3);
    server.publish(|snapshot| _ = snapshot.degraded.insert("bus", "gone; start it".into()));
    assert_eq!(next_event(&mut reader, "degraded")["degraded"][0], "bus: gone; start it");
    server.publish(|snapshot| snapshot.state.taken_at = Seconds(101.0));
    assert_eq!(next_event(&mut reader, "state")["serial"], 21);
    let mut line = String::new();
    while line != ": still here\n" {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
}

#[test]
fn event_streams_are_bounded_and_end_with_the_server() {
    let server = server();
    let mut streams: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = connect(&server.query());
            stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            let mut begin = [0; 12];
            stream.read_exact(&mut begin).unwrap();
            assert_eq!(&begin, b"HTTP/1.1 200");
            stream
        })
        .collect();
    let answer = server.get("/v1/events");
    assert_eq!((answer.status, answer.error().0.as_str()), (503, "too_many_connections"));
    drop(streams.pop());
    std::thread::sleep(Duration::from_millis(300));
    let mut again = connect(&server.query());
    again.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut begin = [0; 12];
    again.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200", "a place is free again");
    let took = server.stop();
    assert!(took < Duration::from_millis(450), "streams end by themselves: {took:?}");
}

#[test]
fn a_reader_that_stops_reading_is_cut_off() {
    let server = server();
    let mut stream = connect(&server.query());
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let open =
        |server: &Server| server.get("/metrics").body.contains("rooflined_http_streams{socket=\"query\"} 1");
    let begun = Instant::now();
    while !open(&server) {
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
    let long = "x".repeat(20_000);
    while open(&server) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the stream is still open");
        server.publish(|snapshot| _ = snapshot.degraded.insert("bus", format!("{} {long}", snapshot.serial)));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn answers_in_progress_are_finished_at_the_end() {
    let server = server();
    let mut stream = connect(&server.query());
    stream.write_all(b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 77\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let query = server.query();
    std::thread::scope(|scope| {
        let stopping = scope.spawn(move || server.stop());
        std::thread::sleep(Duration::from_millis(100));
        assert!(std::os::unix::net::UnixStream::connect(&query).is_err(), "nobody new is let in");
        stream.write_all(&GEMV.as_bytes()[..77.min(GEMV.len())]).unwrap();
        stream.write_all(&vec![b' '; 77 - 77.min(GEMV.len())]).unwrap();
        assert_eq!(read_response(&mut stream).status, 200);
        stopping.join().unwrap();
    });
}

#[test]
fn metrics_are_prometheus_text_without_unknown_values() {
    let server = server();
    let answer = server.get("/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let page = &answer.body;
    assert!(page.contains(
        "\nrooflined_bandwidth_bytes_per_second{pattern=\"read\",provenance=\"measured\"} 50000000000\n"
    ));
    assert!(page.contains("rooflined_temperature_celsius{zone=\"cpu-thermal\"} 45.5\n"));
    assert!(page.contains("rooflined_bandwidth_drift_ratio 0.9\n"));
    assert!(!page.contains("rooflined_cpu_clock_hertz"), "unknown values have no sample");
    assert!(!page.contains("rooflined_cpu_steal_ratio"));
    let mut families = std::collections::BTreeSet::new();
    let mut current = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            current = rest.split(' ').next().unwrap();
            assert!(families.insert(current), "{current} is declared twice");
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(name.split('{').next(), Some(current), "{line}");
            assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
        }
    }
    assert!(families.len() > 15);
}

#[test]
fn before_the_first_reading_and_calibration_it_says_so() {
    let server = Server::start(fresh_snapshot(), short_limits());
    let answer = server.get("/-/ready");
    assert_eq!((answer.status, answer.error().0.as_str()), (503, "not_ready"));
    assert_eq!(server.get("/-/healthy").status, 200);
    assert_eq!(server.get("/v1/calibration").json()["record"], Value::Null);
    let body = r#"{"workload":{"op":{"kind":"gemv","n":64,"k":64}}}"#;
    let recommended = server.post("/v1/recommend", body).json();
    assert_eq!(recommended["feasible"], true, "the registry's formats stand in: {recommended}");
    assert_eq!(recommended["decision"]["prediction"]["tier"], "prior", "{recommended}");
    let predicted = server.post("/v1/predict", body).json();
    assert_eq!(predicted["tier"], "prior");
    assert!(predicted["warnings"].to_string().contains("calibrate"), "{predicted}");
    let scaled = r#"{"operating_point":{"cpu_hz":1e9},"workload":{"op":{"kind":"gemv","n":64,"k":64}}}"#;
    assert_eq!(server.post("/v1/predict", scaled).error().0, "not_calibrated");
    let one = r#"{"workload":{"op":{"kind":"gemv","n":64,"k":64}},"time_s":1e-3}"#;
    let supposed = body.replacen('{', &format!(r#"{{"observations":[{one}],"#), 1);
    let refused = server.post("/v1/predict", &supposed);
    assert_eq!(
        (refused.status, refused.error().0.as_str()),
        (409, "not_calibrated"),
        "nothing to correct yet"
    );
}
