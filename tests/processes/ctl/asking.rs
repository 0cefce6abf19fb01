//! What each command asks and prints when all is well.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::answers::{self, healthy};
use super::fake::{Fake, Reply};
use super::{bad, contains, ctl, good, run, stderr, stdout};

#[test]
fn status_shows_what_is_known_what_is_not_and_why() {
    let fake = Fake::start(healthy);
    let first = good(&fake, &["status"]);
    contains(
        &first,
        &["board ", "mode ", "12.5 GB", "40.0 GB/s (measured", "peak int8", "problems", "no message bus"],
    );
    assert!(first.lines().count() < 20, "{first}");
    let text = good(&fake, &["status", "--all"]);
    contains(&text, &["cores online", "12.5 GB", "3.4 %", "40.0 GB/s (measured", "peak int8", "serial 17"]);
    contains(&text, &["\nunknown:", "cpu clock (no cpufreq", "degraded:", "no message bus"]);
    let json = good(&fake, &["status", "-o", "json"]);
    assert_eq!(json.trim_end(), serde_json::to_string(&answers::state()).unwrap(), "the body is untouched");
}

#[test]
fn a_status_without_a_calibration_is_still_a_status() {
    let fake = Fake::start(|asked| match asked.route.as_str() {
        "/v1/roofline" => Reply::error(409, "not_calibrated", None),
        _ => healthy(asked),
    });
    contains(&good(&fake, &["status", "--all"]), &["cores online"]);
    contains(&good(&fake, &["status"]), &["load", "rooflinectl calibrate --wait"]);
}

#[test]
fn answers_come_as_lines_tables_metrics_and_variables_too() {
    let fake = Fake::start(healthy);
    contains(
        &good(&fake, &["status", "-o", "env"]),
        &["ROOFLINED_CORES_ONLINE_VALUE='2'\n", "ROOFLINED_SERIAL='17'"],
    );
    contains(
        &good(&fake, &["roofline", "-o", "prom"]),
        &[
            "# TYPE rooflined_roofline_bandwidth_bytes_per_second gauge\n",
            "_bandwidth_bytes_per_second 40000000000.0\n",
        ],
    );
    let csv = good(&fake, &["sweep", "gemv", "--sizes", "64,128", "-o", "csv"]);
    assert_eq!(csv.lines().count(), 1 + 4, "{csv}");
    contains(csv.lines().next().unwrap(), &["format", "op.kind", "op.n", "time_s.value"]);
    let lines = good(&fake, &["sweep", "gemv", "64", "64", "-o", "jsonl"]);
    let formats: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["format"].clone()).collect();
    assert_eq!(formats, ["fp32", "int8"]);
}

#[test]
fn board_names_the_file_of_each_value() {
    let fake = Fake::start(healthy);
    let text = good(&fake, &["board"]);
    contains(
        &text,
        &["AMD EPYC 9654", "[/proc/sys/kernel/osrelease]", "unknown (no device tree)", "1 x L3 33.6 MB"],
    );
}

#[test]
fn the_socket_may_be_named_as_directory_file_option_or_variable() {
    let fake = Fake::start(healthy);
    for path in ["", "query.sock", "control.sock"] {
        let socket = fake.path().join(path);
        assert!(run(&socket, &["board"]).status.success(), "{path}");
        let option = run(Path::new("/nowhere"), &["board", "--socket", socket.to_str().unwrap()]);
        assert!(option.status.success(), "{path}");
    }
    let mut searching = ctl(fake.path(), &["board"]);
    searching.env_remove("ROOFLINED_SOCKET").env("XDG_RUNTIME_DIR", fake.path().parent().unwrap());
    let link = fake.path().parent().unwrap().join("rooflined");
    if std::os::unix::fs::symlink(fake.path(), &link).is_ok() {
        let output = searching.output().unwrap();
        std::fs::remove_file(&link).unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn predict_sends_the_operation_and_shows_the_answer() {
    let fake = Fake::start(healthy);
    let text = good(&fake, &["predict", "gemv", "4096", "1024", "--format", "int8", "--batch", "4"]);
    contains(
        &text,
        &["gemv 4096x1024 int8 takes ", " with 4 columns", "limited by", "warning: fp16 runs as fp32 here"],
    );
    let expected = json!({
        "engine": "none",
        "workload": {"op": {"kind": "gemv", "n": 4096, "k": 1024}, "format": "int8", "batch": 4},
    });
    assert_eq!(fake.asked_of("/v1/predict").json(), expected);
}

#[test]
fn attention_has_its_sizes_in_order_or_by_name() {
    let by_name = ["--heads", "32", "--kv-heads", "8", "--context-tokens", "0", "--batch", "2"];
    for args in [
        ["predict", "attention"].iter().chain(&by_name).copied().collect::<Vec<_>>(),
        "predict attention 2 32 8 1 0 128".split(' ').collect(),
    ] {
        let fake = Fake::start(healthy);
        good(&fake, &args);
        let workload = fake.asked_of("/v1/predict").json()["workload"].clone();
        let op = json!({
            "kind": "attention", "batch": 2, "heads": 32, "kv_heads": 8, "query_tokens": 1, "context_tokens": 0,
            "head_dim": 128,
        });
        assert_eq!(workload, json!({"op": op, "format": "fp16"}));
    }
}

#[test]
fn requests_are_answered_line_by_line_in_order() {
    let fake = Fake::start(healthy);
    let good_line = r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8"}}"#;
    let long = format!("{{\"x\":\"{}\"}}", "y".repeat(70_000));
    let file = fake.path().join("requests.jsonl");
    std::fs::write(&file, format!("{good_line}\n{{\"workload\":{{}}}}\n{long}\n{good_line}")).unwrap();
    let output = run(fake.path(), &["predict", "--requests", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    contains(&stderr(&output), &["2 of 4 requests were refused"]);
    let answers: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 4);
    assert!(answers[0]["time_s"]["value"].is_f64() && answers[3] == answers[0]);
    assert_eq!(answers[1]["error"]["code"], "missing_field");
    assert_eq!(answers[1]["line"], 2);
    assert_eq!(answers[2]["error"]["code"], "body_too_large");
    assert_eq!(fake.asked().len(), 3, "the long line was not sent");
}

#[test]
fn requests_from_standard_input_are_answered_as_they_come() {
    let fake = Fake::start(healthy);
    let mut child = ctl(fake.path(), &["predict", "--requests", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut answers = BufReader::new(output).lines();
    for _ in 0..3 {
        writeln!(input, r#"{{"workload":{{"op":{{"kind":"gemv","n":1,"k":1}}}}}}"#).unwrap();
        contains(&answers.next().unwrap().unwrap(), &["roofline_time_s"]);
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn compare_has_the_shape_of_the_contract() {
    let fake = Fake::start(healthy);
    let text =
        good(&fake, &["compare", "gemv", "--sizes", "4096,8192", "--formats", "fp16,int8", "-o", "json"]);
    let answer: Value = serde_json::from_str(&text).unwrap();
    let row = &answer["rows"][1];
    assert_eq!(row["op"], json!({"kind": "gemv", "n": 4096, "k": 4096}));
    assert_eq!(
        (&row["format"], &row["bound"], &row["limit"]),
        (&json!("int8"), &json!("memory"), &json!("dram"))
    );
    for estimate in ["predicted_time_s", "measured_time_s"] {
        assert!(row[estimate]["low"].as_f64() < row[estimate]["high"].as_f64(), "{estimate}");
    }
    assert_eq!(row["error_ratio"], 0.03);
    assert_eq!(answer["median_error_ratio"], 0.03);
    for speedup in ["speedup_vs_fp16_predicted", "speedup_vs_fp16_measured"] {
        assert!((row[speedup].as_f64().unwrap() - 2.0).abs() < 1e-9, "{speedup}");
    }
    contains(answer["verdict"].as_str().unwrap(), &["agree", "4 rows"]);
    let posts: Vec<_> = fake.asked().into_iter().filter(|asked| asked.route == "/v1/measure").collect();
    assert_eq!(posts.len(), 2, "one request for each operation");
    assert!(posts.iter().all(|asked| asked.socket == "control"));
    let without = good(&fake, &["compare", "gemv", "64", "64", "--formats", "int8", "-o", "json"]);
    let without: Value = serde_json::from_str(&without).unwrap();
    assert_eq!(without["rows"][0]["speedup_vs_fp16_measured"], Value::Null);
}

#[test]
fn compare_puts_predicted_beside_measured() {
    let fake = Fake::start(healthy);
    let text = good(&fake, &["compare"]);
    contains(
        &text,
        &["predicted", "measured", "drift", "gemv 8192x8192", "gemm 512x4096x4096", "+3.0 %", "-2.0 %"],
    );
    contains(
        &text,
        &["as predicted", "skipped: gemv 1x1 nf4: no kernel", "prediction and measurement agree"],
    );
    assert_eq!(good(&fake, &["compare", "gemm", "8", "64", "64", "-o", "csv"]).lines().count(), 2);
}

#[test]
fn measure_runs_each_shape_in_each_format_in_one_request() {
    let fake = Fake::start(healthy);
    let text = good(&fake, &["measure", "gemm", "--sizes", "8,64", "--formats", "fp32,int8"]);
    contains(&text, &["gemm 64x4096x4096", "avx512", "31"]);
    let sent = fake.asked_of("/v1/measure");
    assert_eq!(sent.json()["workloads"].as_array().unwrap().len(), 4);
    assert_eq!(sent.json()["power"], Value::Null, "an older daemon refuses what it does not know");
    assert_eq!(sent.socket, "control");
}

#[test]
fn measure_shows_watts_and_joules_and_says_once_why_there_are_none() {
    let fake = Fake::start(healthy);
    let text = good(&fake, &["measure", "gemv", "--sizes", "4096", "--formats", "fp32,int8,int4", "--power"]);
    assert_eq!(fake.asked_of("/v1/measure").json()["power"], true);
    contains(&text, &["idle W", "energy above idle", "21.5", "6.25", "1.50 mJ"]);
    assert_eq!(text.matches("power: no power rail can be read").count(), 1, "{text}");
}

#[test]
fn the_roofline_is_drawn_and_written() {
    let fake = Fake::start(healthy);
    let file = fake.path().join("x.svg");
    let text = good(&fake, &["roofline", "--measure", "--svg", file.to_str().unwrap()]);
    contains(
        &text,
        &["FLOP/byte", "40.0 GB/s measured", "int8 2.00 TOP/s measured", "● measured   ◇ predicted"],
    );
    contains(&text, &["12.5 FLOP/B", "regime near", "measured 2026-11-20 18:25 UTC"]);
    assert!(text.contains(|c: char| ('\u{2801}'..='\u{28ff}').contains(&c)), "Braille dots");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours without a terminal");
    let svg = std::fs::read_to_string(&file).unwrap();
    contains(
        &svg,
        &["<svg xmlns", "ridge 12.5", "gemv 4096x4096 int8", "measured 2026-11-20 18:25 UTC", "</svg>"],
    );
    let (exit, errors) = bad(fake.path(), &["roofline", "--svg", "/nowhere/x.svg"]);
    assert_eq!(exit, 1);
    contains(&errors, &["/nowhere/x.svg cannot be written"]);
}

#[test]
fn a_mode_is_asked_for_by_name_and_the_json_is_the_daemons() {
    let fake = Fake::start(healthy);
    let json = good(&fake, &["roofline", "--mode", "MAXN SUPER", "-o", "json"]);
    assert_eq!(json.trim_end(), serde_json::to_string(&answers::roofline()).unwrap());
    assert_eq!(fake.asked_of("/v1/roofline?mode=MAXN%20SUPER").method, "GET");
}

#[test]
fn a_locale_without_utf8_gets_ascii() {
    let fake = Fake::start(healthy);
    for args in [
        vec!["roofline"],
        vec!["status"],
        vec!["compare", "gemv", "64", "64"],
        vec!["predict", "gemv", "1", "1"],
    ] {
        let output = ctl(fake.path(), &args).env("LANG", "C").output().unwrap();
        assert!(output.status.success() && output.stdout.is_ascii(), "{args:?}: {}", stdout(&output));
        let output = ctl(fake.path(), &args).arg("--ascii").output().unwrap();
        assert!(output.stdout.is_ascii(), "{args:?}");
    }
}

#[test]
fn recommend_sends_every_limit_and_tells_feasible_from_not() {
    let fake = Fake::start(healthy);
    let args = "recommend gemv 4096 1024 --max-time 1ms --formats int8,int4 --batch 1..32 --objective throughput \
                --min-tokens-per-s 100 --max-memory-bytes 1000000000 --max-power 15W --optimism expected";
    let text = good(&fake, &args.split_whitespace().collect::<Vec<_>>());
    contains(
        &text,
        &["int8 it is.", "choice", "or", "12 candidates excluded by --max-time; the fastest takes 1.50 ms"],
    );
    let expected = json!({
        "workload": {"op": {"kind": "gemv", "n": 4096, "k": 1024}},
        "engine": "none",
        "objective": "throughput",
        "energy_basis": "with_idle",
        "constraints": {
            "max_time_s": 1e-3, "min_tokens_per_s": 100.0, "max_memory_bytes": 1e9, "max_power_w": 15.0,
        },
        "freedom": {"formats": ["int8", "int4"], "batch": {"min": 1, "max": 32}, "allow_reboot": false},
        "optimism": "expected",
    });
    assert_eq!(fake.asked_of("/v1/recommend").json(), expected);
    contains(&text, &["with torch: quantize_(model, X())", "not available with llama.cpp"]);
    let text = good(&fake, &["recommend", "gemv", "1", "1", "--engine", "llama.cpp"]);
    contains(&text, &["with llama.cpp: not available: no int8; nearest: q8_0"]);
    assert!(!text.contains("torch"), "{text}");

    let fake = Fake::start(|_| Reply::ok(&answers::recommendation(false)));
    let output = run(fake.path(), &["recommend", "gemv", "1", "1"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stderr(&output), "", "an infeasible question has an answer, not an error");
    contains(&stdout(&output), &["closest", "violated: --max-time"]);
}

#[test]
fn analyze_and_observe_pass_seconds() {
    let fake = Fake::start(healthy);
    contains(
        &good(&fake, &["analyze", "gemv", "4096", "4096", "--format", "int8", "--time", "280us"]),
        &["gemv 4096x4096 int8 in 280 µs: as predicted", "95.0 %"],
    );
    assert_eq!(fake.asked_of("/v1/analyze").json()["time_s"], 280.0 * 1e-6);
    good(&fake, &["observe", "gemv", "64", "64", "--engine", "llama.cpp", "--time", "1.5ms"]);
    let sent = fake.asked_of("/v1/observations").json();
    assert_eq!((&sent["time_s"], &sent["engine"]), (&json!(1.5e-3), &json!("llama.cpp")));

    let fake = Fake::start(|_| {
        Reply::ok(
            &json!({"accepted": 0, "refused": [{"index": 0, "code": "impossible_observation", "reason": "too fast", "hint": "measure again"}]}),
        )
    });
    let (exit, errors) = bad(fake.path(), &["observe", "gemv", "64", "64", "--time", "1ns"]);
    assert_eq!(exit, 1);
    contains(&errors, &["not accepted: too fast"]);
}

#[test]
fn calibrate_starts_waits_and_shows_how_far_it_is() {
    let fake = Fake::start(healthy);
    contains(&good(&fake, &["calibrate"]), &["calibration 3 has started"]);
    let output = run(fake.path(), &["calibrate", "--quick", "--force", "--wait"]);
    assert!(output.status.success(), "{output:?}");
    contains(&stderr(&output), &["calibrating  50 % read 128 MB\n", "calibrating 100 % done\n"]);
    assert!(!stderr(&output).contains('\r'), "plain lines without a terminal");
    contains(
        &stdout(&output),
        &["calibrated in 1.90 s; the ceilings of one operating point are measured; 1 samples rejected"],
    );
    let sent: Vec<_> = fake.asked().into_iter().filter(|asked| asked.route == "/v1/calibrate").collect();
    assert_eq!(sent[1].json(), json!({"plan": "quick", "wait": true, "force": true}));
    assert!(sent.iter().all(|asked| asked.socket == "control"));

    let fake = Fake::start(|asked| match asked.route.as_str() {
        "/v1/calibrate" => Reply::error(409, "gated", None),
        _ => healthy(asked),
    });
    let output = run(fake.path(), &["calibrate", "--wait"]);
    assert_eq!(output.status.code(), Some(75));
    contains(&stderr(&output), &["error: refused as gated\nhint: "]);
}

#[test]
fn events_are_lines_and_their_end_is_said() {
    let fake = Fake::start(healthy);
    let output = run(fake.path(), &["watch", "--events"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), "calibration  50.0 % done\n", "a sample is no news for people");
    contains(&stderr(&output), &["ended the stream"]);
    let output = run(fake.path(), &["watch", "--events", "-o", "jsonl"]);
    assert_eq!(stdout(&output).lines().next(), Some(r#"{"data":{"load":1},"event":"state"}"#));
}

#[test]
fn metrics_are_passed_on() {
    let fake = Fake::start(healthy);
    assert_eq!(good(&fake, &["metrics"]), "# TYPE rooflined_serial gauge\nrooflined_serial 17\n");
}

#[test]
fn metrics_and_labels_are_files_for_collectors_too() {
    let fake = Fake::start(healthy);
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    assert_eq!(good(&fake, &["metrics", "--textfile", &file("rooflined.prom")]), "");
    let text = std::fs::read_to_string(file("rooflined.prom")).unwrap();
    assert_eq!(text, "# TYPE rooflined_serial gauge\nrooflined_serial 17\n");
    let (code, errors) = bad(fake.path(), &["metrics", "--textfile", &file("absent/rooflined.prom")]);
    assert_eq!(code, 1, "{errors}");
    contains(&errors, &["absent/rooflined.prom cannot be written", "hint: name a file in a directory"]);

    let labels = good(&fake, &["features"]);
    contains(
        &labels,
        &[
            "rooflined.github.io/bandwidth-gb-per-s=40\n",
            "rooflined.github.io/fp32-gops=500\n",
            "rooflined.github.io/int8-gops=2000\n",
            "rooflined.github.io/simulated=false\n",
        ],
    );
    assert!(!labels.contains("power-mode"), "what is unknown has no label: {labels}");
    assert_eq!(good(&fake, &["features", "--file", &file("rooflined")]), "");
    assert_eq!(std::fs::read_to_string(file("rooflined")).unwrap(), labels);
    let json: Value = serde_json::from_str(&good(&fake, &["features", "-o", "json"])).unwrap();
    assert_eq!(json["rooflined.github.io/fp32-gops"], "500");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left beside them");
}

#[test]
fn lists_and_descriptions_have_a_row_for_each_thing() {
    let fake = Fake::start(healthy);
    let registry = good(&fake, &["hardware", "list", "-o", "csv"]);
    assert!(registry.lines().count() > 50, "{registry}");
    assert!(registry.lines().skip(1).any(|line| line.contains("jetson-orin-nano-8gb")), "{registry}");
    assert!(good(&fake, &["models", "list", "-o", "jsonl"]).lines().count() > 50);
    let state = good(&fake, &["status", "-o", "csv"]);
    assert!(state.lines().any(|line| line.contains("cores_online")), "{state}");
    let ceilings = good(&fake, &["roofline", "-o", "jsonl"]);
    let fp32 = ceilings.lines().find(|line| line.contains("compute_flops_per_s.fp32")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(fp32).unwrap()["value"], json!(500e9));
}

#[test]
fn help_keeps_the_options_of_every_command_apart() {
    let output = run(Path::new("/nowhere"), &["predict", "--help"]);
    let help = stdout(&output);
    let (own, global) = help.split_once("Options of every command:").expect("a heading of their own");
    contains(global, &["--socket", "--ssh", "--output", "--ascii", "--timeout"]);
    assert!(!own.contains("--socket") && own.contains("--kv-heads"), "{own}");
}

#[test]
fn doctor_says_what_is_wrong_and_what_to_do() {
    let fake = Fake::start(healthy);
    let text = good(&fake, &["doctor"]);
    contains(&text, &["ok   query socket: ", "ok   daemon: answers, version", "ok   ready: serial 17"]);
    contains(
        &text,
        &[
            "ok   control: this user may calibrate and measure; there are no power modes to switch",
            "warn degraded: no message bus; start one or give --bus none\n",
        ],
    );
    let json: Value = serde_json::from_str(&good(&fake, &["doctor", "-o", "json"])).unwrap();
    assert_eq!(json["ok"], true);

    let nowhere = tempfile::tempdir().unwrap();
    let output = run(nowhere.path(), &["doctor"]);
    assert_eq!(output.status.code(), Some(1));
    contains(&stdout(&output), &["FAIL query socket", "-> ", "FAIL daemon"]);

    let fake = Fake::start(|asked| match asked.route.as_str() {
        "/v1/calibrate" => Reply::error(403, "not_authorized", None),
        _ => healthy(asked),
    });
    contains(
        &good(&fake, &["doctor"]),
        &["warn control: refused as not_authorized\n       -> do something else"],
    );
}

/// A daemon with power modes, that answers a switch with this.
fn with_modes(switch: fn() -> Reply) -> Fake {
    Fake::start(move |asked| match asked.route.as_str() {
        "/v1/modes" => Reply::ok(&json!({"active": "15W", "modes": [
            {"name": "15W", "reboot_required": false},
            {"name": "7W", "reboot_required": true},
            {"name": "25W", "reboot_required": false},
        ]})),
        "/v1/mode" => switch(),
        _ => healthy(asked),
    })
}

fn dry_run(outcome: &str, message: &str) -> Reply {
    Reply::ok(&json!({
        "outcome": outcome, "asked": "25W", "before": "15W", "reached": "15W", "message": message, "dry_run": true,
        "writes": [], "differences": [], "took_s": 0.1, "confirm": null,
    }))
}

#[test]
fn doctor_asks_for_a_switch_and_changes_nothing() {
    let fake = with_modes(|| dry_run("applied", "25W would be entered from 15W; nothing was changed"));
    let text = good(&fake, &["doctor"]);
    contains(&text, &["ok   control: commands are accepted\n", "ok   helper: answers: 25W would be entered"]);
    let asked = fake.asked_of("/v1/mode");
    assert_eq!((asked.socket, &asked.json()["dry_run"]), ("control", &json!(true)));
    assert_eq!(asked.json()["mode"], "25W", "one that can be entered, and not the one in force");
}

#[test]
fn doctor_tells_where_a_command_would_end() {
    // Root may calibrate whatever the configuration says, which is not to say that it may switch.
    let fake = with_modes(|| Reply::error(403, "control_disabled", None));
    let text = good(&fake, &["doctor"]);
    contains(&text, &["warn control: refused as control_disabled"]);
    assert!(!text.contains("commands are accepted"), "{text}");
    let fake = with_modes(|| dry_run("refused", "there is no /usr/sbin/nvpmodel on this machine"));
    contains(&good(&fake, &["doctor"]), &["ok   control: ", "warn helper: there is no /usr/sbin/nvpmodel"]);
    let fake = with_modes(|| Reply::error(503, "not_reached", None));
    contains(&good(&fake, &["doctor"]), &["warn helper: refused as not_reached"]);
    let fake = with_modes(|| Reply::error(503, "control_unavailable", None));
    contains(&good(&fake, &["doctor"]), &["warn control: refused as control_unavailable"]);
    let fake = with_modes(|| Reply::error(409, "busy", None));
    contains(&good(&fake, &["doctor"]), &["ok   control: commands are accepted; right now: refused as busy"]);
}

#[test]
fn ssh_runs_the_same_command_there() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let ssh = directory.path().join("ssh");
    std::fs::write(&ssh, "#!/bin/sh\necho \"$@\"\nexit ${CODE:-0}\n").unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", directory.path().display());
    let remote = |code: &str| {
        ctl(directory.path(), &["--ssh", "board", "predict", "gemv", "1", "1"])
            .env("PATH", &path)
            .env("CODE", code)
            .output()
            .unwrap()
    };
    let output = remote("0");
    assert_eq!(stdout(&output), "-o ConnectTimeout=10 -- board rooflinectl 'predict' 'gemv' '1' '1'\n");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(remote("3").status.code(), Some(3), "exit codes come back");
    let output = remote("255");
    assert_eq!(output.status.code(), Some(69));
    contains(&stderr(&output), &["board cannot be reached through ssh"]);
}

#[test]
fn config_check_names_file_line_and_the_nearest_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rooflined.toml");
    std::fs::write(&file, "[daemon]\nmax_conections = 3\n").unwrap();
    let name = file.to_str().unwrap();
    let output = run(directory.path(), &["config", "check", name]);
    assert_eq!(output.status.code(), Some(1));
    contains(&stdout(&output), &["rooflined.toml:2: ", "did you mean `max_connections`?"]);
    std::fs::write(&file, "[daemon]\nmax_connections = 3\n").unwrap();
    assert!(run(directory.path(), &["config", "check", name]).status.success());
    let shown = run(directory.path(), &["config", "show", name]);
    contains(&stdout(&shown), &["[daemon]", "max_connections = 3", "[calibration]"]);
}

#[test]
fn completions_and_help_need_no_daemon() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(Path::new("/nowhere"), &["completions", shell]);
        assert!(output.status.success());
        contains(&stdout(&output), &["recommend"]);
    }
    let help = run(Path::new("/nowhere"), &["--help"]);
    assert!(help.status.success());
    contains(&stdout(&help), &["Exit codes: 0 ok", "calibrate", "69 daemon unreachable"]);
    contains(&stdout(&run(Path::new("/nowhere"), &["--version"])), &["rooflinectl 0."]);
}

#[test]
fn every_command_and_every_role_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let page = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    contains(&stdout(&run(Path::new("/nowhere"), &["man"])), &[".TH rooflinectl 1", "EXIT STATUS"]);
    assert!(
        run(Path::new("/nowhere"), &["man", "--dir", directory.path().to_str().unwrap()]).status.success()
    );
    contains(
        &stdout(&run(Path::new("/nowhere"), &["man", "mode", "set"])),
        &[".TH rooflinectl-mode-set 1", "confirm"],
    );
    let help = stdout(&run(Path::new("/nowhere"), &["--help"]));
    let commands = help.lines().skip_while(|line| *line != "Ask:").take_while(|line| *line != "Options:");
    let commands: Vec<&str> =
        commands.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands.into_iter().filter(|command| *command != "help") {
        contains(&page(&format!("rooflinectl-{command}.1")), &[&format!(".TH rooflinectl-{command} 1")]);
    }
    contains(&page("rooflinectl-mode-set.1"), &["confirm"]);

    let mut daemon = std::process::Command::new(env!("CARGO_BIN_EXE_rooflined"));
    assert!(daemon.arg("man").arg(directory.path()).status().unwrap().success());
    contains(&page("rooflined.8"), &[".TH rooflined 8", "rooflined\\-actuate(8)"]);
    contains(&page("rooflined-serve.8"), &["state\\-dir"]);
    assert!(!directory.path().join("rooflined-man.8").exists(), "roles that are hidden have no page");

    let refused = run(Path::new("/nowhere"), &["man", "--dir", "/proc/nowhere"]);
    contains(&stderr(&refused), &["/proc/nowhere", "hint: name a directory"]);
}
