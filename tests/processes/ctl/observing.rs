//! `observe --from` and `run`: what is reported of an unmodified server, what is skipped, and what is refused by name.

use std::process::Command;

use serde_json::{Value, json};

use super::answers::{self, healthy};
use super::fake::{Fake, Received, Reply as Answer};
use super::inference::{Inference, Reply};
use super::{bad, contains, ctl, run, stderr, stdout};

/// As a healthy daemon, and it predicts models.
fn daemon(asked: &Received) -> Answer {
    match asked.route.as_str() {
        "/v1/predict" => Answer::ok(&answers::prediction(2e7, 1e7)),
        _ => healthy(asked),
    }
}

/// What the tests' machine is busy with is no matter of the server, whose process is that of the tests.
const CALM: [&str; 4] = ["--max-wait", "1000", "--interval", "200ms"];

fn observe<'a>(port: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["observe", "--from", port];
    args.extend(CALM);
    args.extend(more);
    args
}

pub(super) fn props() -> Value {
    json!({
        "default_generation_settings": {"n_ctx": 4096}, "total_slots": 2, "model_path": "/models/x.gguf",
        "endpoint_slots": true, "is_sleeping": false,
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole tokens of some seconds")]
pub(super) fn steps(seconds: f64, rate: f64) -> u64 {
    (seconds * rate) as u64
}

pub(super) fn busy(id: u64, task: u64, prompt: u64, decoded: u64) -> Value {
    json!({"id": id, "n_ctx": 4096, "speculative": false, "is_processing": true, "id_task": task,
           "n_prompt_tokens": prompt + decoded, "next_token": [{"n_decoded": decoded}]})
}

fn idle(id: u64) -> Value {
    json!({"id": id, "n_ctx": 4096, "speculative": false, "is_processing": false})
}

/// A llama-server whose slots are these.
pub(super) fn llama_server(slots: impl Fn(f64) -> Value + Send + Sync + 'static) -> Inference {
    Inference::start(move |route, now| match route {
        "/props" => Reply::json(&props()),
        "/slots" => Reply::json(&slots(now)),
        _ => Reply::missing(),
    })
}

#[test]
fn three_windows_of_a_llama_server_are_reported_as_their_median() {
    const RATE: f64 = 200.0;
    let server = llama_server(|now| {
        let decoded = 10 + steps(now, RATE);
        json!([busy(0, 7, 1000, decoded), busy(1, 8, 3000, decoded)])
    });
    let fake = Fake::start(daemon);
    let port = server.port.to_string();
    let output = run(fake.path(), &observe(&port, &["--kv-format", "q8_0", "-o", "json"]));
    assert!(output.status.success(), "{output:?}");
    let seen: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let sent = fake.asked_of("/v1/observations").json();
    assert_eq!(
        (&sent["engine"], &sent["workload"]["model"], &sent["workload"]["kv_format"]),
        (&json!("llama.cpp"), &json!({"path": "/models/x.gguf"}), &json!("q8_0"))
    );
    assert_eq!((&sent["workload"]["batch"], &sent["workload"]["phase"]), (&json!(2), &json!("decode")));
    // The mean of 1000 and 3000 and what was generated since.
    let context = sent["workload"]["context_tokens"].as_u64().unwrap();
    assert!((2010..5000).contains(&context), "{context}");
    let rate = sent["tokens_per_s"].as_f64().unwrap();
    // Where all cores are taken, an answer is read some time after it was given.
    assert!((rate / (2.0 * RATE) - 1.0).abs() < 0.15, "{rate} tokens/s of {}", 2.0 * RATE);
    let observed = &seen["observations"][0];
    assert_eq!((&observed["windows"], &observed["outcome"]), (&json!(3), &json!("learned")));
    assert!(observed["error_ratio"].is_number() && observed["power_w"].is_null(), "{observed}");
    assert_eq!(seen["server"]["kind"], "llama-server");
    // The prediction beside it is of what was measured, and was asked for before it was learned from.
    let asked: Vec<_> = fake.asked().into_iter().map(|asked| asked.route).collect();
    let place = |route: &str| asked.iter().rposition(|asked| asked == route).unwrap();
    assert!(place("/v1/predict") < place("/v1/observations"));
}

#[test]
fn a_dry_run_needs_no_daemon_and_says_what_it_saw() {
    let server = llama_server(|now| json!([busy(0, 7, 100, 1 + steps(now, 100.0)), idle(1)]));
    let directory = tempfile::tempdir().unwrap();
    let port = server.port.to_string();
    let output = run(directory.path(), &observe(&port, &["--kv-format", "fp16", "--dry-run"]));
    assert!(output.status.success(), "{output:?}");
    contains(
        &stdout(&output),
        &["llama-server at http://127.0.0.1:", "x.gguf, cache fp16", "x1 after ", "not reported: --dry-run"],
    );
}

/// Exit code, what was seen, and what was sent of a server that is watched for some seconds.
fn watched(server: &Inference, more: &[&str]) -> (i32, Value, usize) {
    let fake = Fake::start(daemon);
    let port = server.port.to_string();
    let mut args = observe(&port, &["-o", "json", "--for", "3s"]);
    args.extend(more);
    let output = run(fake.path(), &args);
    let sent = fake.asked().iter().filter(|asked| asked.route == "/v1/observations").count();
    let seen = serde_json::from_str(&stdout(&output)).unwrap();
    (output.status.code().unwrap(), seen, sent)
}

#[test]
fn prompts_in_between_restarts_and_silence_are_skipped_by_reason() {
    type Slots = fn(f64) -> Value;
    let cases: [(&str, Slots); 5] = [
        // Another request every half second on the other slot, gone before anybody looks.
        ("requests_changed", |now| {
            let mut other = idle(1);
            other["id_task"] = json!(steps(now, 2.0));
            json!([busy(0, 7, 100, 1 + steps(now, 200.0)), other])
        }),
        ("restarted", |now| json!([busy(0, 7, 100, 1 + steps(now % 0.5, 200.0)), idle(1)])),
        ("prompt", |_| json!([busy(0, 7, 100, 0), idle(1)])),
        ("idle", |_| json!([idle(0), idle(1)])),
        ("speculation", |now| {
            let mut slot = busy(0, 7, 100, 1 + steps(now, 200.0));
            slot["speculative"] = json!(true);
            json!([slot])
        }),
    ];
    // Each watches for some seconds.
    std::thread::scope(|scope| {
        for (reason, slots) in cases {
            scope.spawn(move || {
                let (exit, seen, sent) = watched(&llama_server(slots), &["--kv-format", "fp16"]);
                assert_eq!((exit, sent), (75, 0), "{reason}: {seen}");
                assert!(seen["skipped"][reason].as_u64() >= Some(1), "{reason}: {seen}");
                assert_eq!(seen["observations"], json!([]), "{reason}");
            });
        }
    });
}

/// A process that a llama-server's command line started, of one slot at 200 tokens/s; `None`, said aloud, without Python.
pub(super) fn started_with(options: &[&str]) -> Option<(tempfile::TempDir, std::process::Child, String)> {
    start(Command::new("python3"), options)
}

/// The same, where `python` ends with starting Python; `None`, said aloud, where that cannot be.
pub(super) fn start(
    mut python: Command,
    options: &[&str],
) -> Option<(tempfile::TempDir, std::process::Child, String)> {
    let script = "import http.server,json,sys,time\n\
        began=time.monotonic()\n\
        def slot():\n\
        \tdone=10+int(200*(time.monotonic()-began))\n\
        \treturn {'id':0,'is_processing':True,'id_task':7,'n_prompt_tokens':100+done,'next_token':[{'n_decoded':done}]}\n\
        class H(http.server.BaseHTTPRequestHandler):\n\
        \tprotocol_version='HTTP/1.1'\n\
        \tdef do_GET(self):\n\
        \t\tbody=json.dumps({'default_generation_settings':{},'endpoint_slots':True,'model_path':'/m.gguf'} if self.path=='/props' else [slot()]).encode()\n\
        \t\tself.send_response(200); self.send_header('content-length',str(len(body))); self.end_headers(); self.wfile.write(body)\n\
        \tdef log_message(self,*a): pass\n\
        s=http.server.HTTPServer(('127.0.0.1',0),H); print(s.server_port,flush=True); s.serve_forever()\n";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("llama-server");
    std::fs::write(&path, script).unwrap();
    let program = python.get_program().to_string_lossy().into_owned();
    let missing = || crate::daemon::harness::missing(&program, "run as a server");
    let spawned = python.arg(&path).args(options).stdout(std::process::Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        missing();
        return None;
    };
    let mut port = String::new();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut port).unwrap();
    if port.is_empty() {
        missing();
        return None;
    }
    Some((directory, child, port.trim().to_owned()))
}

#[test]
fn the_threads_of_the_server_go_with_every_observation_of_a_cpu() {
    let on_a_gpu = |asked: &Received| match asked.route.as_str() {
        "/v1/board" => {
            let mut board = answers::board();
            board.accelerators = vec![json!({"kind": "gpu"})];
            Answer::ok(&board)
        }
        _ => daemon(asked),
    };
    type Daemon = fn(&Received) -> Answer;
    let cpus = std::thread::available_parallelism().unwrap().get();
    let cases: [(Daemon, &[&str], &[&str], Value); 5] = [
        (daemon, &["-t", "1"], &[], json!(1)),
        // More than can run are as many as can.
        (daemon, &["-t", "100000"], &[], json!(cpus)),
        (daemon, &["--threads", "2"], &["--threads", "1"], json!(1)),
        // Its own choice; nothing of this one computes.
        (daemon, &["-t", "-1"], &[], Value::Null),
        (on_a_gpu, &["-t", "3", "-ngl", "all"], &[], Value::Null),
    ];
    let check = |(daemon, options, more, expected): (Daemon, &[&str], &[&str], Value)| {
        let Some((_directory, mut child, port)) = started_with(options) else { return };
        let fake = Fake::start(daemon);
        let args = observe(&port, &[&["-o", "json"], more].concat());
        let output = run(fake.path(), &args);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(output.status.success(), "{output:?}");
        let seen: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(seen["observations"][0]["threads"], expected, "{options:?}");
        for route in ["/v1/predict", "/v1/observations"] {
            let asked = fake.asked().into_iter().filter(|asked| asked.route == route);
            for asked in asked.map(|asked| asked.json()) {
                assert_eq!(asked["workload"]["threads"], expected, "{route} {options:?}");
            }
        }
    };
    // Each watches for some seconds.
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| check(case));
        }
    });
}

#[test]
fn a_server_that_rests_is_not_asked_again_until_its_process_does_something() {
    // A process that does nothing but listen: its port is forwarded by nobody, so it is found.
    let script = "import http.server,json,sys\n\
        class H(http.server.BaseHTTPRequestHandler):\n\
        \tprotocol_version='HTTP/1.1'\n\
        \tdef do_GET(self):\n\
        \t\tprint(self.path,flush=True)\n\
        \t\tbody=json.dumps({'default_generation_settings':{},'endpoint_slots':True,'model_path':'/m.gguf'} if self.path=='/props' else [{'id':0,'is_processing':False}]).encode()\n\
        \t\tself.send_response(200); self.send_header('content-length',str(len(body))); self.end_headers(); self.wfile.write(body)\n\
        \tdef log_message(self,*a): pass\n\
        s=http.server.HTTPServer(('127.0.0.1',0),H); print(s.server_port,flush=True); s.serve_forever()\n";
    let spawned = Command::new("python3").args(["-c", script]).stdout(std::process::Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        crate::daemon::harness::missing("python3", "rest as a server");
        return;
    };
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let port = lines.next().unwrap().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let args = observe(&port, &["--kv-format", "fp16", "--dry-run", "--for", "6s", "-o", "json"]);
    let output = run(directory.path(), &args);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    let looks = lines.map_while(Result::ok).filter(|line| line == "/slots").count();
    // 30 looks would fit; answering one may take a tick of the clock, and then there is another.
    assert!((1..20).contains(&looks), "{looks} looks at a server that rests");
}

#[test]
fn answers_that_cannot_be_read_end_it_with_what_came() {
    type Answer = fn() -> Reply;
    let cases: [(&str, Answer, &str); 4] = [
        ("broken JSON", || Reply::text("[{\"id\":0,"), "nothing that is understood"),
        ("a huge answer", || Reply::text("[".repeat(5 << 20)), "more than 4 MiB"),
        ("a dropped connection", || Reply::Dropped, "broke off its answer to /slots"),
        (
            "an old build",
            || Reply::json(&json!([{"id": 0, "is_processing": true}])),
            "without the tokens of each slot",
        ),
    ];
    for (name, reply, expected) in cases {
        let server = Inference::start(move |route, _| match route {
            "/props" => Reply::json(&props()),
            _ => reply(),
        });
        let fake = Fake::start(daemon);
        let port = server.port.to_string();
        let (exit, errors) = bad(fake.path(), &observe(&port, &["--kv-format", "fp16", "-o", "jsonl"]));
        assert_eq!(exit, 1, "{name}");
        contains(&errors, &[expected, "hint: "]);
    }
    let silent = Inference::start(|_, _| Reply::Silence);
    let (exit, errors) = bad(Fake::start(daemon).path(), &observe(&silent.port.to_string(), &[]));
    assert_eq!(exit, 1);
    contains(&errors, &["did not answer /props within 5 s"]);
}

/// A server with these answers and 404 for everything else.
fn answering(answers: &'static [(&'static str, &'static str)]) -> Inference {
    Inference::start(move |route, _| {
        let body = answers.iter().find(|(asked, _)| *asked == route).map(|(_, body)| *body);
        body.map_or_else(Reply::missing, Reply::text)
    })
}

#[test]
fn servers_that_tell_nothing_are_refused_by_name() {
    let cases: [(&str, &'static [(&'static str, &'static str)]); 13] = [
        ("a router", &[("/props", r#"{"role":"router","default_generation_settings":{"n_ctx":0}}"#)]),
        ("--no-slots", &[("/props", r#"{"default_generation_settings":{},"endpoint_slots":false}"#)]),
        (
            "say how its cache is stored: --kv-format",
            &[("/props", r#"{"default_generation_settings":{},"model_path":"/m.gguf"}"#)],
        ),
        ("Ollama 0.29.1, which reports nothing", &[("/api/version", r#"{"version":"0.29.1"}"#)]),
        ("SGLang", &[("/v1/models", r#"{"data":[{"id":"m","owned_by":"sglang"}]}"#)]),
        ("llama-cpp-python", &[("/v1/models", r#"{"data":[{"id":"m","owned_by":"me"}]}"#)]),
        (
            "vLLM without --disable-log-stats",
            &[
                ("/v1/models", r#"{"data":[{"id":"m","owned_by":"vllm"}]}"#),
                ("/metrics", "process_start_time_seconds 1\n"),
            ],
        ),
        ("give --drain", &[("/v1/models", r#"{"data":[{"id":"m","owned_by":"tensorrt_llm"}]}"#)]),
        ("TensorRT-Edge-LLM", &[("/health", r#"{"active_requests":0,"kv_cache_dtype":"fp16"}"#)]),
        ("Triton", &[("/v2", r#"{"name":"triton","version":"2"}"#)]),
        ("Triton's metrics", &[("/metrics", "nv_inference_count{model=\"m\"} 3\n")]),
        ("Text Generation Inference", &[("/info", r#"{"model_id":"m","max_total_tokens":4096}"#)]),
        ("not like an inference server that rooflined knows", &[("/", "<html>nginx</html>")]),
    ];
    let fake = Fake::start(daemon);
    for (expected, answers) in cases {
        let server = answering(answers);
        let (exit, errors) = bad(fake.path(), &observe(&server.port.to_string(), &[]));
        assert_eq!(exit, 1, "{expected}: {errors}");
        contains(&errors, &[expected, "hint: "]);
    }
    let locked = Inference::start(|_, _| Reply::Whole(401, "llama.cpp", "{\"error\":{\"code\":401}}".into()));
    let (_, errors) = bad(fake.path(), &observe(&locked.port.to_string(), &[]));
    contains(&errors, &["asks for a key", "--api-key-file"]);
    let loading = Inference::start(|_, _| {
        Reply::Whole(503, "llama.cpp", "{\"error\":{\"message\":\"Loading model\"}}".into())
    });
    let (exit, errors) = bad(fake.path(), &observe(&loading.port.to_string(), &[]));
    assert_eq!(exit, 75, "{errors}");
    assert!(fake.asked().iter().all(|asked| asked.route == "/v1/board"), "nothing was reported");
}

#[test]
fn addresses_of_other_machines_and_tls_are_refused() {
    let fake = Fake::start(daemon);
    let (exit, errors) = bad(fake.path(), &["observe", "--from", "http://192.0.2.1:8080"]);
    assert_eq!(exit, 2);
    contains(&errors, &["not on this machine", "--ssh HOST"]);
    let output = run(fake.path(), &["observe", "--from", "https://localhost:8080"]);
    assert_eq!(output.status.code(), Some(2));
    contains(&stderr(&output), &["TLS is not supported"]);
    let output = run(fake.path(), &["observe", "--from", "8080", "--time", "1ms"]);
    assert_eq!(output.status.code(), Some(2), "a server and a time of one's own");
    let (exit, errors) = bad(fake.path(), &["observe", "--pid", "4000000000"]);
    assert_eq!(exit, 1, "{errors}");
}

/// What vLLM's `/metrics` says `now` of three sequences at this rate each.
fn vllm_page(now: f64, rate: f64) -> String {
    let done = steps(now, rate);
    let tokens = 3 * done;
    #[expect(clippy::cast_precision_loss, reason = "tokens of some seconds")]
    let between = tokens as f64 / rate;
    format!(
        "vllm:num_requests_running{{engine=\"0\"}} 3\nvllm:num_requests_waiting{{engine=\"0\"}} 0\n\
         vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.3\n\
         vllm:cache_config_info{{block_size=\"16\",cache_dtype=\"fp8_e5m2\",num_gpu_blocks=\"500\"}} 1\n\
         vllm:prompt_tokens_total{{engine=\"0\"}} 99\nvllm:generation_tokens_total{{engine=\"0\"}} {tokens}\n\
         vllm:inter_token_latency_seconds_sum{{engine=\"0\"}} {between}\n\
         vllm:inter_token_latency_seconds_count{{engine=\"0\"}} {tokens}\n\
         vllm:iteration_tokens_total_count{{engine=\"0\"}} {done}\n"
    )
}

#[test]
fn vllm_is_reported_with_the_context_that_its_cache_tells() {
    let server = Inference::start(|route, now| match route {
        "/v1/models" => {
            Reply::json(&json!({"data": [{"id": "meta-llama/Llama-3.1-8B-Instruct", "owned_by": "vllm"}]}))
        }
        "/metrics" => Reply::text(vllm_page(now, 100.0)),
        _ => Reply::missing(),
    });
    let fake = Fake::start(daemon);
    let port = server.port.to_string();
    let (exit, errors) = bad(fake.path(), &observe(&port, &[]));
    assert_eq!(exit, 1);
    contains(&errors, &["how the weights of \"llama-3.1-8b\" are stored", "--format"]);
    let output = run(fake.path(), &observe(&port, &["--format", "awq_int4"]));
    assert!(output.status.success(), "{output:?}");
    let sent = fake.asked_of("/v1/observations").json();
    // 0.3 of 500 blocks of 16 tokens, shared by three.
    assert_eq!(
        sent["workload"],
        json!({"model": "llama-3.1-8b", "format": "awq_int4", "kv_format": "fp8_e5m2", "phase": "decode", "batch": 3,
               "context_tokens": 800})
    );
    let rate = sent["tokens_per_s"].as_f64().unwrap();
    assert!((rate - 300.0).abs() < 1.0, "{rate}");
}

#[test]
fn without_a_context_nothing_is_reported_until_one_is_given() {
    let server = Inference::start(|route, now| match route {
        "/v1/models" => Reply::json(&json!({"data": [{"id": "x", "owned_by": "MLC-LLM"}]})),
        "/metrics" => Reply::text(format!(
            "engine_decode_time_sum\t1\ndecode_time_by_batch_size_mean{{batch_size=2}}\t0.01\n\
             decode_time_by_batch_size_count{{batch_size=2}}\t{}\n",
            steps(now, 100.0)
        )),
        _ => Reply::missing(),
    });
    let fake = Fake::start(daemon);
    let port = server.port.to_string();
    let named = ["llama-3.1-8b", "--format", "int4"];
    let output = run(fake.path(), &observe(&port, &named));
    contains(
        &stdout(&output),
        &["x2: 200 /s (200 to 200 /s)", "not reported: the server does not report the context"],
    );
    let told = [&named[..], &["--context-tokens", "512"]].concat();
    assert!(run(fake.path(), &observe(&port, &told)).status.success());
    let sent = fake.asked_of("/v1/observations").json();
    assert_eq!((&sent["workload"]["context_tokens"], &sent["engine"]), (&json!(512), &json!("mlc")));
}

#[test]
fn what_the_daemon_does_not_take_is_said_and_not_hidden() {
    let server = llama_server(|now| json!([busy(0, 7, 100, 1 + steps(now, 200.0))]));
    let fake = Fake::start(|asked| match asked.route.as_str() {
        "/v1/observations" => {
            let refused = json!({"index": 0, "code": "impossible_observation", "reason": "faster than the physical bound", "hint": "measure again"});
            Answer::ok(&json!({"accepted": 0, "refused": [refused]}))
        }
        _ => daemon(asked),
    });
    let port = server.port.to_string();
    let output = run(fake.path(), &observe(&port, &["--kv-format", "fp16"]));
    contains(&stdout(&output), &["refused: faster than the physical bound"]);
    // A model that the daemon cannot read is said before anything is watched.
    let fake = Fake::start(|asked| match asked.route.as_str() {
        "/v1/predict" => Answer::error(400, "unknown_model", Some("workload.model.path")),
        _ => healthy(asked),
    });
    let looks = server.asked("/slots");
    let (exit, errors) = bad(fake.path(), &observe(&port, &["--kv-format", "fp16", "-o", "jsonl"]));
    assert_eq!((exit, server.asked("/slots")), (2, looks), "{errors}");
}

/// A daemon that recommends these options of llama-server, in this mode.
fn recommending(options: &'static str) -> Fake {
    Fake::start(move |asked| match asked.route.as_str() {
        "/v1/recommend" => {
            let mut answer = serde_json::to_value(answers::recommendation(true)).unwrap();
            answer["apply"]["settings"]["llama.cpp"] = json!(format!("llama-server -m MODEL.gguf {options}"));
            answer["decision"]["power_mode"] = json!({"id": 1, "name": "15W"});
            Answer::ok(&answer)
        }
        "/v1/holds/attached" => Answer::error(403, "control_disabled", None),
        _ => daemon(asked),
    })
}

/// A program of that name that writes down its arguments and ends as it is told, beside a model `x.json`.
fn program(body: &str) -> (tempfile::TempDir, String) {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let config = json!({
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 512, "torch_dtype": "bfloat16",
    });
    std::fs::write(directory.path().join("x.json"), config.to_string()).unwrap();
    let path = directory.path().join("llama-server");
    std::fs::write(&path, format!("#!/bin/sh\necho \"$@\" > \"$0.args\"\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

#[test]
fn run_adds_what_is_open_says_what_is_not_held_and_passes_the_exit_code_on() {
    let fake = recommending("-c 8192 -np 2 -b 2048 -ub 512 -ngl 0 -t 6");
    let (directory, server) = program("exit 7");
    let model = directory.path().join("x.json");
    let model = model.to_str().unwrap();
    let args = [
        "run",
        "--max-time-per-token",
        "50ms",
        "--batch",
        "1..4",
        "--",
        &server,
        "-m",
        model,
        "--threads",
        "4",
    ];
    let output = run(fake.path(), &args);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let given = std::fs::read_to_string(format!("{server}.args")).unwrap();
    assert_eq!(given.trim(), format!("-m {model} --threads 4 -c 8192 -np 2 -b 2048 -ub 512 -ngl 0"));
    contains(
        &stderr(&output),
        &[
            "added: -c 8192",
            "15W is not held: refused as control_disabled",
            "recommended x4: predicted",
            "0 windows",
        ],
    );
    let asked = fake.asked_of("/v1/recommend").json();
    assert_eq!(asked["workload"]["model"]["path"], model);
    assert_eq!(
        (&asked["constraints"]["max_time_per_token_s"], &asked["freedom"]["threads"]),
        (&json!(0.05), &json!([4]))
    );
    assert_eq!(asked["freedom"]["batch"], json!({"min": 1, "max": 4}));
}

#[test]
fn run_passes_signals_on_and_starts_nothing_that_is_infeasible_or_unknown() {
    let fake = recommending("-c 256 -np 1");
    let (directory, server) = program("trap 'exit 9' TERM\nwhile :; do sleep 0.05; done");
    let command = ["run", "--no-hold", "--", &server, "-m", "x.json"];
    let mut child = ctl(fake.path(), &command).current_dir(&directory).spawn().unwrap();
    crate::daemon::harness::eventually("the program to run", || {
        std::fs::read_to_string(format!("{server}.args")).ok().filter(|text| !text.is_empty())
    });
    // The shell sets its trap after it has written its arguments.
    std::thread::sleep(std::time::Duration::from_millis(300));
    crate::daemon::harness::kill(child.id(), rustix::process::Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert!(fake.asked().iter().all(|asked| asked.route != "/v1/holds/attached"));

    let (directory, server) = program("exit 0");
    let infeasible = Fake::start(|_| Answer::ok(&answers::recommendation(false)));
    let command = ["run", "--", &server, "-m", "x.json"];
    let output = ctl(infeasible.path(), &command).current_dir(&directory).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    contains(&stderr(&output), &["violated: --max-time"]);
    assert!(!std::path::Path::new(&format!("{server}.args")).exists(), "it was not started");
    let (exit, errors) = bad(fake.path(), &["run", "--", "sleep", "1"]);
    assert_eq!(exit, 2);
    contains(&errors, &["\"sleep\" is not llama-server"]);
}
