//! Commands take the memory that their answer says: over many models, boards, targets and amounts of free memory.

use std::collections::BTreeMap;

use rooflined_advice::{Catalogue, Opener, Request, suppose};
use rooflined_core::hardware::registry;
use rooflined_models::registry::models;
use rooflined_models::support::{Target, check_family};
use rooflined_predict::Engine;
use serde_json::{Value, json};

/// Boards whose CPU and GPU share one memory.
const SHARED: [&str; 5] = [
    "jetson-orin-nano-8gb-super",
    "jetson-orin-nx-16gb",
    "jetson-agx-orin-64gb",
    "jetson-agx-thor-t5000",
    "gb10",
];

fn answer(body: Value) -> Value {
    let request = Request::Recommend(Box::new(serde_json::from_value(body).unwrap()));
    let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
    serde_json::to_value(suppose(&catalogue, &request).unwrap()).unwrap()
}

/// The options of a command, and what follows each.
fn options(line: &str) -> BTreeMap<&str, &str> {
    let words: Vec<&str> = line.split(' ').collect();
    let pairs = words.windows(2).filter(|pair| pair[0].starts_with('-'));
    pairs.map(|pair| (pair[0], pair[1])).collect()
}

/// Decisions for random models on `boards` with their memory and the options of their engine.
fn decisions(
    engine: &str,
    boards: &[&str],
    mut see: impl FnMut(&Value, &BTreeMap<&str, &str>, &str),
) -> usize {
    let mut random = fastrand::Rng::with_seed(7);
    let key = Engine::ALL.into_iter().find(|known| known.key() == engine).unwrap();
    let runs = |family: &str| check_family(key, family, Target::Gpu(None)).is_ok();
    // A command has room for 4096 tokens even where the decision was about fewer.
    let known: Vec<_> = models()
        .all()
        .filter(|model| model.architecture.context_tokens >= Some(8192) && runs(&model.family))
        .collect();
    let mut seen = 0;
    for _ in 0..160 {
        let (model, board) = (random.choice(&known).unwrap(), random.choice(boards).unwrap());
        let free = registry().get(board).unwrap().memory.unwrap().get() * 0.6 * random.f64();
        let batch = random.u64(1..=8);
        let mut workload =
            json!({"model": model.key, "batch": batch, "context_tokens": random.u64(1..=6000)});
        if random.bool() {
            workload["phase"] = "serve".into();
            workload["prompt_tokens"] = random.u64(1..=2000).into();
            workload["output_tokens"] = 100.into();
        }
        let answer = answer(json!({
            "hardware": board, "engine": engine, "workload": workload,
            "constraints": {"min_free_memory_bytes": free},
        }));
        if answer["feasible"] == true {
            let line = answer["apply"]["settings"][engine].as_str().unwrap();
            see(&answer["decision"], &options(line), line);
            seen += 1;
        }
    }
    seen
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// What a board has in all: the memory of a part less what firmware and display keep, of which 1 GB is the system's.
fn total(memory: &Value) -> f64 {
    number(&memory["available"]) + 1e9
}

/// Memory that stays free for others is the same in both questions.
#[test]
fn what_is_predicted_to_fit_is_what_may_be_recommended() {
    let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
    let mut near = 0;
    for (board, model) in
        [("rtx-5090", "qwen3-32b"), ("jetson-orin-nano-8gb-super", "qwen3-8b"), ("gb10", "llama-3.3-70b")]
    {
        for (engine, format) in
            [("llama.cpp", "q6_k"), ("vllm", "awq_int4"), ("llama.cpp", "q4_k_m"), ("vllm", "fp8_e4m3")]
        {
            for context in (1..=20).map(|step| 2000 * step) {
                let body = json!({"hardware": board, "engine": engine, "hypothetical": true,
                    "workload": {"model": model, "format": format, "context_tokens": context}});
                let request = Request::Predict(serde_json::from_value(body.clone()).unwrap());
                let predicted = serde_json::to_value(suppose(&catalogue, &request).unwrap()).unwrap();
                let memory = &predicted["memory_bytes"];
                let recommended = answer(body);
                assert_eq!(
                    memory["fits"], recommended["feasible"],
                    "{board} {engine} {format} {context}: {memory}"
                );
                let shown = recommended["decision"]
                    .as_object()
                    .map(|decision| &decision["prediction"]["memory_bytes"]);
                assert!(shown.is_none_or(|shown| shown == memory), "{shown:?} {memory}");
                let (total, available) = (number(&memory["total"]), number(&memory["available"]));
                near += usize::from(total <= available && total > number(&memory["room"]));
            }
        }
    }
    assert!(near > 3, "{near} fit into what is available and not into the room");
}

/// The part is of all memory, as little as the model needs and no more than 85 %.
#[test]
fn vllm_is_given_the_memory_that_the_answer_states() {
    let seen = decisions("vllm", &SHARED[2..], |decision, options, line| {
        let memory = &decision["prediction"]["memory_bytes"];
        let given = options["--gpu-memory-utilization"].parse::<f64>().unwrap() * total(memory);
        let needed = number(&memory["total"]);
        assert!(given <= 0.85 * total(memory) * (1.0 + 1e-9), "{line}: {memory}");
        assert!(given <= number(&memory["available"]), "{line}: {memory}");
        // 2 % and a thousandth of all memory more than predicted, unless there is no more to give.
        let most = needed * 1.02 + 0.001 * total(memory);
        assert!((needed * 0.998..=most * 1.001).contains(&given), "{given:e} of {needed:e}: {line}");
    });
    assert!(seen > 60, "{seen}");
}

/// The part is of what is left once weights and buffers have their place.
#[test]
fn tensorrt_llm_is_given_a_part_of_what_its_weights_leave_free() {
    let seen = decisions("tensorrt-llm", &["gb10"], |decision, options, line| {
        let memory = &decision["prediction"]["memory_bytes"];
        let cache = number(&memory["kv_cache"]);
        let free = number(&memory["available"]) - (number(&memory["total"]) - cache);
        let given = options["--kv_cache_free_gpu_memory_fraction"].parse::<f64>().unwrap() * free;
        let most = cache * 1.02 + 0.001 * free;
        assert!((cache * 0.998..=most * 1.001).contains(&given), "{given:e} of {cache:e}: {line}");
    });
    assert!(seen > 60, "{seen}");
}

/// Slots share the cache evenly, nothing contradicts the layers on the GPU, and no memory is used that was not predicted.
#[test]
fn llama_server_leaves_nothing_to_its_defaults() {
    let boards = [&SHARED[..], &["rtx-4090", "a100-80gb"]].concat();
    let seen = decisions("llama.cpp", &boards, |decision, options, line| {
        let value = |name: &str| options[name].parse::<u64>().unwrap();
        let batch = decision["batch"].as_u64().unwrap();
        assert_eq!(value("-np"), batch, "{line}");
        assert_eq!(value("-c") % (256 * batch), 0, "{line}");
        // Slots that were given by number have caches of their own.
        assert!(!line.contains("kv-unified") && !line.contains("-kvu"), "{line}");
        assert_eq!(
            (options["--fit"], options["-ngl"], options["--cache-ram"]),
            ("off", "999", "0"),
            "{line}"
        );
        assert_eq!(value("--ctx-checkpoints") > 0, line.contains("--cache-prompt"), "{line}");
    });
    assert!(seen > 80, "{seen}");
}

/// Gemma 3 4B: 29 windows of 1024 tokens, 4 heads of 256 for keys and values, in fp16.
#[test]
fn checkpoints_are_in_the_memory_of_the_answer_where_it_is_that_of_the_cpu() {
    let window = 29.0 * 1024.0 * 4.0 * 2.0 * 256.0 * 2.0;
    let cache = |engine: &str, board: &str| {
        let workload = json!({
            "model": "gemma-3-4b", "phase": "serve", "prompt_tokens": 512, "output_tokens": 128, "context_tokens": 4096,
        });
        let answer = answer(json!({"hardware": board, "engine": engine, "workload": workload,
            "freedom": {"formats": ["fp16"]}}));
        number(&answer["decision"]["prediction"]["memory_bytes"]["kv_cache"])
    };
    let (board, card) = (cache("llama.cpp", "gb10"), cache("llama.cpp", "rtx-4090"));
    assert_eq!(board - card, 2.0 * window);
}
