//! Inputs to start from, made of the project's own fixtures.

use std::fs;
use std::path::{Path, PathBuf};

use rooflined::store::Store;
use rooflined_advice::{Request, observed};
use rooflined_api::ObservationRequest;
use rooflined_governor::{Command, Effect, Event, Governor, StoreItem};
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

/// What a client may ask: `METHOD PATH BODY` a line.
fn requests() -> impl Iterator<Item = [&'static str; 3]> {
    include_str!("seeds/requests.txt").lines().map(|line| {
        let mut parts = line.splitn(3, ' ');
        [(); 3].map(|()| parts.next().unwrap_or_default())
    })
}

fn http() -> Vec<Vec<u8>> {
    let requests = requests().map(|[method, path, body]| match body.len() {
        0 => format!("{method} {path} HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"),
        length => {
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
        }
    });
    let others = [
        "PUT /v1/holds/7 HTTP/1.1\r\nContent-Length: 13\r\n\r\n{\"ttl_s\": 60}".to_owned(),
        "DELETE /v1/holds/7 HTTP/1.1\r\n\r\n".to_owned(),
        "DELETE /v1/observations?engine=vllm&all=true HTTP/1.1\r\n\r\n".to_owned(),
        "DELETE /v1/observations/3 HTTP/1.1\r\n\r\n".to_owned(),
        "HEAD /v1/state HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(),
        "OPTIONS * HTTP/1.1\r\nExpect: 100-continue\r\n\r\n".to_owned(),
        "POST /v1/predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nTrailer: x\r\n\r\n".to_owned(),
    ];
    requests.chain(others).map(String::into_bytes).collect()
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

fn lines(text: &str) -> Vec<Vec<u8>> {
    text.lines().map(|line| line.as_bytes().to_vec()).collect()
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
                Effect::Save(StoreItem::Residuals(residuals)) => store.save_residuals(&residuals),
                Effect::Save(StoreItem::ObservedRuns(runs)) => store.save_observed_runs(&runs),
                Effect::Save(StoreItem::Reports(reports)) => store.save_reports(&reports),
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

fn orders() -> Vec<Vec<u8>> {
    let all = include_str!("seeds/orders.jsonl");
    all.split_inclusive('\n').chain([all]).map(|lines| lines.as_bytes().to_vec()).collect()
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
    let requests = requests().map(|[_, _, body]| body.as_bytes().to_vec());
    let requests = requests.filter(|body| !body.is_empty()).collect();
    [
        ("bundles", files("tests/boards", "/tree.txt")),
        ("calibration", calibration()),
        ("config_json", lines(include_str!("seeds/config.jsonl"))),
        ("configuration", configuration()),
        ("gguf", gguf()),
        ("http", http()),
        ("journal", lines(include_str!("seeds/journal.jsonl"))),
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
