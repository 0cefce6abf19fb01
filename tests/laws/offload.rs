//! Layers and experts in the memory of the CPU: laws, and published rates with them.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::sync::LazyLock;

use rooflined_advice::{Catalogue, Opener, Request, suppose};
use rooflined_core::hardware::registry;
use serde_json::{Value, json};

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::new(registry().clone(), Opener::Caller));

fn predict(hardware: &str, model: &str, offload: &Value) -> Result<Value, String> {
    predicted(hardware, model, 512, offload)
}

fn predicted(hardware: &str, model: &str, context: u64, offload: &Value) -> Result<Value, String> {
    let body = json!({
        "hardware": hardware, "engine": "llama.cpp",
        "workload": {"model": model, "format": stored(model), "context_tokens": context, "offload": offload},
    });
    let request = Request::Predict(serde_json::from_value(body).unwrap());
    let answer = suppose(&CATALOGUE, &request).map_err(|refusal| refusal.to_string())?;
    Ok(serde_json::to_value(answer).unwrap())
}

fn stored(model: &str) -> &'static str {
    if model.starts_with("gpt-oss") { "mxfp4" } else { "q4_k_m" }
}

fn rate(answer: &Value) -> f64 {
    answer["tokens_per_s"]["value"].as_f64().unwrap()
}

/// Model, what stays where, tokens/s: an RTX 2080 beside an i9-10900X (94 GB/s), AlexsJones/llmfit pull requests 775 and 778.
const PUBLISHED: [(&str, &str, u64, f64); 4] = [
    ("gpt-oss-20b", "cpu_moe_layers", 12, 36.4),
    ("deepseek-v2-lite", "cpu_moe_layers", 16, 49.6),
    ("gemma-2-9b", "gpu_layers", 36, 23.7),
    ("qwen2.5-14b", "gpu_layers", 42, 20.8),
];

#[test]
fn published_rates_with_layers_on_the_cpu_are_met() {
    let (mut errors, mut report) = (Vec::new(), String::new());
    for (model, name, count, measured) in PUBLISHED {
        let answer = predict("rtx-2080", model, &json!({name: count})).unwrap();
        let of = &answer["tokens_per_s"];
        let _ = writeln!(report, "{model}: {:.1} of {measured}", rate(&answer));
        errors.push((rate(&answer) / measured).ln().abs());
        assert!(
            of["low"].as_f64().unwrap() < measured && measured < of["high"].as_f64().unwrap(),
            "{report}"
        );
        assert!(answer["warnings"].to_string().contains("DDR5-5600"), "{answer}");
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors[2] < 0.25, "{errors:?}\n{report}");
}

/// Nothing moved is nothing asked; the more is moved, the less of the card is taken and the slower it is.
#[test]
fn more_on_the_cpu_takes_less_of_the_card() {
    for (model, name, counts) in [
        ("gpt-oss-20b", "cpu_moe_layers", (0..=24).collect::<Vec<u64>>()),
        ("deepseek-v2-lite", "cpu_moe_layers", (0..=27).collect()),
        ("llama-3.1-8b", "gpu_layers", (0..=33).rev().collect()),
        ("gpt-oss-20b", "gpu_layers", (0..=25).rev().collect()),
    ] {
        let plain = predict("rtx-4090", model, &Value::Null).unwrap();
        let (mut card, mut speed, mut host) = (f64::INFINITY, f64::INFINITY, -1.0);
        for (index, count) in counts.into_iter().enumerate() {
            let answer = predict("rtx-4090", model, &json!({name: count})).unwrap();
            if index == 0 {
                assert_eq!(answer, plain);
            }
            let memory = &answer["memory_bytes"];
            let (now, beside) = (memory["total"].as_f64().unwrap(), memory["host"].as_f64().unwrap_or(0.0));
            assert!(now <= card && beside >= host && rate(&answer) <= speed, "{model} {name} {count}");
            let all = plain["memory_bytes"]["total"].as_f64().unwrap();
            assert!(((now + beside) / all - 1.0).abs() < 1e-9, "nothing is lost: {model} {name} {count}");
            (card, host, speed) = (now, beside, rate(&answer));
        }
    }
}

#[test]
fn what_cannot_be_moved_is_refused_by_name() {
    for (hardware, model, offload, words) in [
        ("gb10", "gpt-oss-20b", json!({"cpu_moe_layers": 4}), "share one memory"),
        ("rtx-4090", "llama-3.1-8b", json!({"cpu_moe_layers": 4}), "has no experts"),
        ("rtx-4090", "gpt-oss-20b", json!({"cpu_moe_layers": 25}), "more than the 24 layers"),
        ("rtx-4090", "gpt-oss-20b", json!({"cpu_moe_layers": 2, "gpu_layers": 3}), "both given"),
    ] {
        let refusal = predict(hardware, model, &offload).unwrap_err();
        assert!(refusal.contains(words), "{refusal}");
    }
}

fn recommended(workload: &Value) -> Value {
    let body = json!({"hardware": "rtx-2080", "workload": workload});
    let request = Request::Recommend(Box::new(serde_json::from_value(body).unwrap()));
    serde_json::to_value(suppose(&CATALOGUE, &request).unwrap()).unwrap()
}

/// A mixture of 12 GB on a card of 8: the fewest layers that leave room, and a command that says so.
#[test]
fn a_mixture_that_does_not_fit_has_an_answer() {
    let answer = recommended(&json!({"model": "gpt-oss-20b"}));
    let decision = &answer["decision"];
    let layers = decision["cpu_moe_layers"].as_u64().unwrap();
    let line = answer["apply"]["settings"]["llama.cpp"].as_str().unwrap();
    assert!(line.contains(&format!("-ngl 999 --n-cpu-moe {layers} ")), "{line}");
    assert!((25.0..60.0).contains(&rate(&decision["prediction"])), "{decision}");
    // The command says all that the memory depends on.
    let context = decision["prediction"]["context_tokens"].as_u64().unwrap();
    assert!(line.contains(&format!("-c {context} -np 1 ")), "{line}");
    let again = predicted("rtx-2080", "gpt-oss-20b", context, &json!({"cpu_moe_layers": layers})).unwrap();
    assert_eq!(again["memory_bytes"], decision["prediction"]["memory_bytes"]);
    let fewer = recommended(&json!({"model": "gpt-oss-20b", "offload": {"cpu_moe_layers": layers - 1}}));
    assert_eq!(fewer["feasible"], false);
    let dense = recommended(&json!({"model": "qwen2.5-14b"}));
    assert_eq!(dense["feasible"], false);
}
