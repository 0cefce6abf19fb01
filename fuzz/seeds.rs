//! Inputs to start from, made of the project's own fixtures.

use std::fs;
use std::path::{Path, PathBuf};

use rooflined::store::Store;
use rooflined_advice::{Request, observed};
use rooflined_api::ObservationRequest;
use rooflined_governor::{Command, Effect, Event, Governor};
use rooflined_predict::calibration::{Accelerator, PlanContext, PlanKind, calibration_plan};
use rooflined_predict::fixtures;
use rooflined_predict::learning::Residuals;
use rooflined_predict::learning::report::Reporter;
use serde_json::{Value, json};

use crate::write::{F32, Gguf, Q4_K, Safetensors, Val, llama};
use crate::write_onnx::{Dim, FLOAT, Graph, INT8, Message, Value as Attr, node};
use crate::{NOW, Node, board_tree, repository, support};

/// As the targets `sysfs` count them.
const BOARDS: [&str; 5] =
    ["orin-nano-8gb-super", "agx-thor-t5000", "gb10", "agx-orin-64gb-jp5", "laptop-x86"];
/// Files whose contents go into one seed.
const FILES_TOGETHER: usize = 6;

/// What a client may ask, by the route.
fn bodies() -> Vec<(&'static str, Value)> {
    let gemv = json!({"op": {"kind": "gemv", "n": 4096, "k": 4096}, "format": "int8"});
    let gemm = json!({"op": {"kind": "gemm", "m": 512, "n": 4096, "k": 4096}, "format": "fp32", "batch": 2});
    let attention = json!({"op": {"kind": "attention", "batch": 1, "heads": 32, "kv_heads": 8, "query_tokens": 1,
        "context_tokens": 2048, "head_dim": 128, "window": 512}, "format": "fp16", "kv_format": "int8"});
    let model = json!({"model": "llama-3.1-8b", "format": "q4_k_m", "kv_format": "fp16", "task": "generate", "phase": "serve", "batch": 4,
        "context_tokens": 512, "prompt_tokens": 64, "output_tokens": 32, "cached_tokens": 16, "chunk_tokens": 32,
        "speculative": {"draft_tokens": 4, "accepted_per_step": 2.5}, "image_tokens": 8, "threads": 2});
    let inline = json!({"model": {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 96}, "phase": "decode"});
    let observation = json!({"workload": gemv, "engine": "none", "time_s": 0.01, "power_w": 5.0});
    let observed = json!({"workload": model, "engine": "llama.cpp", "tokens_per_s": 12.5,
        "operating_point": {"power_mode": "MAXN", "cpu_hz": 2e9, "cores_online": 2}});
    let recommend = json!({"workload": model, "engine": "llama.cpp", "objective": "energy", "optimism": "expected",
        "hardware": "jetson-orin-nano-8gb-super",
        "constraints": {"max_time_per_token_s": 0.05, "max_time_to_first_token_s": 1.0, "min_tokens_per_s": 1.0,
            "max_power_w": 15, "max_memory_bytes": 8e9, "max_quality_loss_ratio": 0.1},
        "freedom": {"formats": ["q4_k_m", "q8_0"], "power_modes": "all", "batch": {"min": 1, "max": 4}, "allow_reboot": true}});
    vec![
        ("/v1/predict", json!({"workload": gemv})),
        (
            "/v1/predict",
            json!({"workload": attention, "operating_point": {"cpu_hz": 1e9, "cores_online": 1}}),
        ),
        (
            "/v1/predict",
            json!({"hardware": "jetson-agx-orin-64gb", "engine": "llama.cpp", "workload": model,
            "operating_point": {"gpu_hz": 9e8, "sm_online": 8, "emc_hz": 2e9}, "observations": [observed], "hypothetical": true}),
        ),
        ("/v1/predict", json!({"hardware": "gb10", "engine": "vllm", "workload": inline})),
        ("/v1/recommend", recommend.clone()),
        ("/v1/recommend", json!({"workload": gemm, "objective": "latency", "freedom": {"threads": [1, 2]}})),
        (
            "/v1/sweep",
            json!({"ops": [{"kind": "gemv", "n": 1024, "k": 1024}], "formats": ["fp32", "int8"], "batches": [1, 8]}),
        ),
        (
            "/v1/sweep",
            json!({"hardware": "h200", "engine": "vllm", "models": ["llama-3.1-8b"], "formats": ["fp16"],
            "contexts": [0, 4096], "power_modes": ["MAXN"]}),
        ),
        ("/v1/tiling", json!({"hardware": "a100-80gb", "m": 512, "n": 512, "k": 512, "format": "fp16"})),
        ("/v1/analyze", json!({"workload": gemm, "time_s": 0.2})),
        (
            "/v1/explain",
            json!({"workload": gemm, "time_s": 0.2, "seen": {"cpus_allowed": 1, "cpu_wait_ratio": 0.5, "nice": 19}}),
        ),
        ("/v1/observations", observation.clone()),
        ("/v1/observations", json!([observation, observed])),
        ("/v1/calibrate", json!({"plan": "quick", "force": true})),
        ("/v1/measure", json!({"op": {"kind": "gemv", "n": 1024, "k": 1024}, "formats": ["int8"]})),
        ("/v1/mode", json!({"mode": "15W", "confirm_within_s": 30, "dry_run": true, "reason": "a test"})),
        ("/v1/mode/confirm", json!({"id": 1})),
        ("/v1/mode/revert", json!({})),
        (
            "/v1/holds",
            json!({"constraints": {"max_power_w": 15, "min_gpu_hz": 5e8}, "app_id": "a", "ttl_s": 60}),
        ),
        ("/v1/holds", json!({"query": {"workload": inline}, "app_id": "b", "reason": "c", "ttl_s": 5})),
    ]
}

fn http() -> Vec<Vec<u8>> {
    let posts = bodies().into_iter().map(|(path, body)| {
        let body = body.to_string();
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    });
    let gets = [
        "/v1/board",
        "/v1/state",
        "/v1/roofline?mode=15W&precision=int8",
        "/v1/roofline?hardware=gb10",
        "/v1/modes",
        "/v1/hardware",
        "/v1/hardware/h200",
        "/v1/models",
        "/v1/models/phi-2?format=q4_0&kv_format=int8",
        "/v1/formats",
        "/v1/calibration",
        "/v1/observations?scope=all",
        "/v1/servers",
        "/v1/holds",
        "/v1/events",
        "/v1/openapi.json",
        "/metrics",
        "/-/ready",
        "/-/healthy",
        "/",
    ];
    let gets = gets.map(|path| format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"));
    let others = [
        "PUT /v1/holds/7 HTTP/1.1\r\nContent-Length: 13\r\n\r\n{\"ttl_s\": 60}".to_owned(),
        "DELETE /v1/holds/7 HTTP/1.1\r\n\r\n".to_owned(),
        "DELETE /v1/observations?engine=vllm&all=true HTTP/1.1\r\n\r\n".to_owned(),
        "DELETE /v1/observations/3 HTTP/1.1\r\n\r\n".to_owned(),
        "HEAD /v1/state HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(),
        "OPTIONS * HTTP/1.1\r\nExpect: 100-continue\r\n\r\n".to_owned(),
        "POST /v1/predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nTrailer: x\r\n\r\n".to_owned(),
    ];
    posts.chain(gets).chain(others).map(String::into_bytes).collect()
}

/// A length before the bytes, as the readers of model files take it.
fn with_length((header, length): (Vec<u8>, u64)) -> Vec<u8> {
    [length.to_le_bytes().to_vec(), header].concat()
}

fn gguf() -> Vec<Vec<u8>> {
    let experts = llama(true)
        .numbers("llama", &[("expert_count", 4), ("expert_used_count", 2), ("attention.sliding_window", 64)])
        .pair("llama.attention.sliding_window_pattern", Val::Bools(vec![true, false]))
        .pair("llama.attention.head_count_kv", Val::Numbers(vec![2, 4]))
        .tensor("blk.0.ffn_gate_inp.weight", &[256, 4], F32)
        .tensor("blk.0.ffn_up_exps.weight", &[256, 512, 4], Q4_K);
    let versions = [(1, false), (2, false), (3, false), (3, true)];
    let plain = versions.map(|(version, big_endian)| Gguf { version, big_endian, ..llama(big_endian) });
    plain.into_iter().chain([experts]).map(|file| with_length(file.header())).collect()
}

fn safetensors() -> Vec<Vec<u8>> {
    let packed = Safetensors::default()
        .tensor("model.embed_tokens.weight", "BF16", &[96, 64])
        .tensor("model.layers.0.self_attn.q_proj.qweight", "I32", &[8, 64])
        .tensor("model.layers.0.self_attn.q_proj.scales", "F16", &[1, 64])
        .tensor("model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", &[4, 128, 2, 16])
        .tensor("model.layers.0.mlp.down_proj.weight", "F8_E4M3", &[64, 128]);
    let plain = Safetensors::default()
        .tensor("model.embed_tokens.weight", "F32", &[96, 64])
        .tensor("model.layers.0.self_attn.k_proj.weight", "F16", &[32, 64])
        .tensor("lm_head.weight", "F4", &[96, 64]);
    let index = br#"{"metadata":{"total_size":1},"weight_map":{"a.b":"model-00001-of-00002.safetensors","c":"m.safetensors"}}"#;
    vec![with_length(packed.header()), with_length(plain.header()), with_length((index.to_vec(), 0))]
}

fn onnx() -> Vec<Vec<u8>> {
    let picture = [Dim::Named("n"), Dim::Fixed(3), Dim::Open, Dim::Open];
    let layers = Graph::default()
        .input("x", FLOAT, &picture)
        .weights("w", FLOAT, &[8, 3, 3, 3])
        .node("Conv", &["x", "w"], &["c"], &[("strides", Attr::Ints(&[2, 2])), ("pads", Attr::Ints(&[1; 4]))])
        .node(
            "MaxPool",
            &["c"],
            &["p"],
            &[("kernel_shape", Attr::Ints(&[2, 2])), ("ceil_mode", Attr::Int(1))],
        )
        .node("GlobalAveragePool", &["p"], &["g"], &[])
        .node("Flatten", &["g"], &["f"], &[])
        .weights("v", FLOAT, &[10, 8])
        .node("Gemm", &["f", "v"], &["y"], &[("transB", Attr::Int(1))])
        .output("y");
    let sizes = Graph::default()
        .input("x", FLOAT, &picture)
        .ints("zero", &[0])
        .ints("rest", &[-1, 4])
        .floats("scales", &[1.0, 1.0, 2.0, 0.5])
        .node("Shape", &["x"], &["s"], &[])
        .node("Gather", &["s", "zero"], &["batch"], &[])
        .node("Add", &["batch", "zero"], &["sum"], &[])
        .node("Concat", &["sum", "rest"], &["shape"], &[("axis", Attr::Int(0))])
        .node("Resize", &["x", "", "scales"], &["r"], &[("mode", Attr::Text("nearest"))])
        .node("Reshape", &["r", "shape"], &["y"], &[])
        .node("Slice", &["y", "zero", "batch"], &["z"], &[])
        .output("z");
    let quantised = Graph::default()
        .input("x", FLOAT, &[Dim::Fixed(1), Dim::Fixed(16)])
        .floats("s", &[0.1])
        .weights("z", INT8, &[1])
        .weights("w", INT8, &[16, 4])
        .node("QuantizeLinear", &["x", "s", "z"], &["q"], &[])
        .node("DequantizeLinear", &["q", "s", "z"], &["a"], &[])
        .node("DequantizeLinear", &["w", "s", "z"], &["v"], &[])
        .node("MatMul", &["a", "v"], &["y"], &[])
        .output("y");
    let call = node("Own", &["x"], &["y"], &[]).text(7, "own");
    let called = Graph(Graph::default().input("x", FLOAT, &picture).output("y").0.message(1, &call));
    let function = Message::default().text(1, "Own").text(4, "a").text(5, "b").text(10, "own");
    let function = function.message(7, &node("Relu", &["a"], &["b"], &[]));
    let branch = Graph::default().node("Relu", &["x"], &["t"], &[]).output("t").0;
    let branches = [("then_branch", Attr::Graph(branch.clone())), ("else_branch", Attr::Graph(branch))];
    let taken =
        Graph::default().input("x", FLOAT, &picture).ints("c", &[1]).node("If", &["c"], &["y"], &branches);
    let files = [layers.file(17), sizes.file(13), quantised.file(13), taken.file(11)];
    files.into_iter().chain([called.message(17).message(25, &function).0]).collect()
}

fn config_json() -> Vec<Vec<u8>> {
    let llama = json!({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 96, "quantization_config": {
            "quant_method": "compressed-tensors", "ignore": ["lm_head", "re:.*(k|v)_proj"], "config_groups": {
                "a": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}},
                "b": {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 8, "type": "float"}}}}});
    let hybrid = json!({"text_config": {"model_type": "qwen3_next", "hidden_size": 256, "num_hidden_layers": 4,
        "head_dim": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96, "num_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "full_attention_interval": 2, "sliding_window": 32},
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {"model.layers.0.mlp.experts": {"quant_algo": "FP8"}}}});
    let others = ["gptq", "awq", "bitsandbytes", "mxfp4", "fp8"].map(|method| {
        json!({"model_type": "mistral", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
            "vocab_size": 96, "intermediate_size": 512, "tie_word_embeddings": true, "quantization_config":
            {"quant_method": method, "bits": 4, "group_size": 128, "load_in_4bit": true, "desc_act": true}})
    });
    [llama, hybrid].into_iter().chain(others).map(|config| config.to_string().into_bytes()).collect()
}

fn sysfs() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (board, name) in (0u8..).zip(BOARDS) {
        let files = board_tree(name).into_values().filter_map(|node| match node {
            Node::File(bytes) => Some(bytes),
            Node::Dir | Node::Link(_) => None,
        });
        let files: Vec<(u16, Vec<u8>)> = (0u16..).zip(files).collect();
        for together in files.chunks(FILES_TOGETHER) {
            let mut seed = vec![board];
            for (index, bytes) in together {
                let bytes = &bytes[..bytes.len().min(255)];
                seed.extend(index.to_le_bytes());
                seed.push(u8::try_from(bytes.len()).expect("at most 255"));
                seed.extend(bytes);
            }
            seeds.push(seed);
        }
    }
    seeds
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A stored record with the samples of the fixtures' machine, and one without.
fn calibration() -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(dir.path()).expect("a directory");
    let record = support::snapshot().calibration.expect("a calibrated machine");
    let context = PlanContext {
        threads: fixtures::truth::THREADS,
        core_cache_bytes: 1 << 20,
        last_level_cache_bytes: 16 << 20,
        memory_limit_bytes: 512 << 20,
        time_limit_s: 60,
        accelerator: Accelerator::Cpu,
    };
    let plan = calibration_plan(&context, PlanKind::Quick);
    let samples = fixtures::samples(&plan);
    store.save_calibration(&record).expect("a record");
    let record = read(&dir.path().join("calibration.json"));
    let lines = samples.iter().map(|sample| serde_json::to_string(sample).expect("a sample") + "\n");
    let lines: String = lines.collect();
    let few: String = lines.split_inclusive('\n').step_by(5).collect();
    [lines, few, String::new()].map(|lines| [&record[..], b"\0", lines.as_bytes()].concat()).into()
}

fn observations() -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(dir.path()).expect("a directory");
    let snapshot = support::snapshot();
    let (board, state, record) =
        (snapshot.board.clone(), snapshot.state.clone(), snapshot.calibration.clone());
    let policy = support::governed::policy();
    let mut governor = Governor::new(NOW, board, state, record, Residuals::default(), &policy);
    let catalogue = rooflined_advice::Catalogue::default();
    let workloads = [
        json!({"engine": "none", "workload": {"op": {"kind": "gemv", "n": 4096, "k": 4096}, "format": "int8"}}),
        json!({"engine": "llama.cpp", "workload": {"model": "tinyllama-1.1b", "format": "q4_0", "context_tokens": 128}}),
    ];
    // A little slower than predicted, which is believed.
    let request = |mut body: Value| {
        let request = Request::Predict(serde_json::from_value(body.clone()).expect("a request"));
        let answer = rooflined_advice::answer(&governor.snapshot(), &catalogue, NOW, &request).ok()?;
        let answer = serde_json::to_value(&answer).expect("JSON");
        body["time_s"] = json!(answer["time_s"]["value"].as_f64()? * 1.05);
        Some(serde_json::from_value::<ObservationRequest>(body).expect("an observation"))
    };
    let requests: Vec<ObservationRequest> = workloads.into_iter().filter_map(request).collect();
    for (ticket, uid) in (1..).zip([0, 1000, 1001, 1002]) {
        let observations = requests
            .iter()
            .filter_map(|request| observed(&governor.snapshot(), &catalogue, request, "[0]").ok())
            .collect();
        let by = Reporter { uid, pid: Some(7), trusted: uid == 0 };
        for effect in governor.handle(
            NOW,
            Event::Requested { ticket, command: Command::Observe { by, observations, servers: Vec::new() } },
        ) {
            match effect {
                Effect::SaveResiduals(residuals) => store.save_residuals(&residuals),
                Effect::SaveObservedRuns(runs) => store.save_observed_runs(&runs),
                Effect::SaveReports(reports) => store.save_reports(&reports),
                _ => Ok(()),
            }
            .expect("what was learnt can be stored");
        }
    }
    let stored = ["residuals.json", "models.json", "reports.json"].map(|name| dir.path().join(name));
    let [residuals, models, reports] = stored.map(|path| fs::read(path).unwrap_or_default());
    vec![
        [&residuals[..], b"\0", &models, b"\0", &reports].concat(),
        [&residuals[..], b"\0\0"].concat(),
        [&b"\0"[..], &models].concat(),
    ]
}

fn journal() -> Vec<Vec<u8>> {
    let phases = ["started", "applied", "restoring"];
    let entry = |phase: &str, target: u32, name: &str, failed: u32| {
        json!({"boot_id": "b", "original": {"id": 0, "name": "15W"}, "target": {"id": target, "name": name}, "phase": phase,
            "failed_restores": failed})
    };
    let mut seeds: Vec<Value> = phases.iter().map(|phase| entry(phase, 1, "25W", 0)).collect();
    seeds.extend([entry("applied", 9, "MAXN", 2), entry("restoring", 0, "15W", 7)]);
    seeds.into_iter().map(|seed| seed.to_string().into_bytes()).collect()
}

fn orders() -> Vec<Vec<u8>> {
    let lines = [
        json!({"order": 1, "verb": "status"}),
        json!({"order": 2, "verb": "set_mode", "id": 1, "name": "25W", "knob": {"knob": "nvpmodel"}, "dry_run": true}),
        json!({"order": 3, "verb": "set_mode", "id": 0, "name": "15W", "knob": {"knob": "nvpmodel"}, "dry_run": false}),
        json!({"order": 4, "verb": "settle"}),
        json!({"order": 5, "verb": "restore"}),
        json!({"order": 6, "verb": "open", "path": "/sys/kernel/debug/cactmon/mc_all"}),
        json!({"order": 7, "verb": "open", "path": "/sys/class/powercap/intel-rapl:0/energy_uj"}),
        json!({"order": 8, "verb": "open", "path": "/etc/shadow"}),
        json!({"order": 9, "verb": "status", "force": true}),
    ];
    let lines = lines.map(|line| format!("{line}\n"));
    let all = lines.concat();
    lines.into_iter().chain([all]).map(String::into_bytes).collect()
}

/// The files below a directory of the repository whose name ends in this, its directories' too.
fn files(directory: &str, ending: &str) -> Vec<Vec<u8>> {
    let mut open = vec![repository(directory)];
    let mut found: Vec<PathBuf> = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found.iter().map(|path| read(path)).collect()
}

fn configuration() -> Vec<Vec<u8>> {
    let shipped = String::from_utf8(read(&repository("config/rooflined.toml"))).expect("text");
    // Every key is explained by a comment that sets its default.
    let key = |line: &&str| {
        line.split_once('=')
            .is_some_and(|(key, _)| key.trim().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
    };
    let uncommented = shipped.lines().map(|line| match line.strip_prefix('#').map(str::trim_start) {
        Some(text) if key(&text) => format!("{text}\n"),
        _ => format!("{line}\n"),
    });
    let uncommented: String = uncommented.collect();
    let short: String =
        uncommented.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect();
    [shipped, uncommented, short].map(String::into_bytes).into()
}

/// The seeds of every target, by its name.
pub fn all() -> [(&'static str, Vec<Vec<u8>>); 15] {
    let profiles =
        ["config/hardware", "config/engines", "config/power"].map(|place| files(place, ".toml")).concat();
    let requests = bodies().into_iter().map(|(_, body)| body.to_string().into_bytes()).collect();
    [
        ("bundles", files("tests/boards", "/tree.txt")),
        ("calibration", calibration()),
        ("config_json", config_json()),
        ("configuration", configuration()),
        ("gguf", gguf()),
        ("http", http()),
        ("journal", journal()),
        ("nvpmodel", files("tests/nvpmodel", ".conf")),
        ("observations", observations()),
        ("onnx", onnx()),
        ("orders", orders()),
        ("profiles", profiles),
        ("requests", requests),
        ("safetensors", safetensors()),
        ("sysfs", sysfs()),
    ]
}

/// Writes every seed to `DIR/TARGET/NUMBER`.
pub fn write_all(dir: &Path) {
    for (target, seeds) in all() {
        let place = dir.join(target);
        fs::create_dir_all(&place).expect("a directory");
        for (index, seed) in seeds.iter().enumerate() {
            fs::write(place.join(format!("{index:04}")), seed).expect("a file");
        }
    }
}
