//! Speculative decoding: laws, and published rates with it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fmt::Write as _;
use std::sync::LazyLock;

use rooflined_advice::{Catalogue, Opener, Request, suppose};
use rooflined_core::hardware::registry;
use serde_json::{Value, json};

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::new(registry().clone(), Opener::Caller));

fn predict(hardware: &str, workload: &Value) -> Result<Value, String> {
    let body = json!({"hardware": hardware, "engine": "llama.cpp", "workload": workload});
    let request = Request::Predict(serde_json::from_value(body).unwrap());
    let answer = suppose(&CATALOGUE, &request).map_err(|refusal| refusal.to_string())?;
    Ok(serde_json::to_value(answer).unwrap())
}

fn rate(answer: &Value) -> f64 {
    answer["tokens_per_s"]["value"].as_f64().unwrap()
}

fn memory(answer: &Value) -> f64 {
    answer["memory_bytes"]["total"].as_f64().unwrap()
}

fn qwen(speculative: Value) -> Value {
    let mut workload = json!({"model": "qwen3.5-27b", "format": "q4_k_m", "context_tokens": 300});
    if !speculative.is_null() {
        workload["speculative"] = speculative;
    }
    workload
}

/// A row of `published_speculation.csv`.
struct Published<'a> {
    device: &'a str,
    workload: Value,
    rate: f64,
    plain: f64,
}

fn published() -> Vec<Published<'static>> {
    let text = include_str!("../data/published_speculation.csv");
    let row = |line: &'static str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [device, model, format, kind, draft, tokens, accepted, rate, plain, source] = fields[..] else {
            panic!("{line}");
        };
        assert!(source.contains('/'), "{line}");
        let number = |text: &str| text.parse::<f64>().unwrap();
        let mut speculative = json!({
            "kind": kind, "draft_tokens": number(tokens) as u64, "accepted_per_step": number(tokens) * number(accepted),
        });
        if !draft.is_empty() {
            speculative["draft_model"] = draft.into();
        }
        let workload = json!({
            "model": model, "format": format, "context_tokens": 300, "speculative": speculative,
        });
        Published { device, workload, rate: number(rate), plain: number(plain) }
    };
    text.lines().skip(1).map(row).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn published_rates_with_drafts_are_met() {
    let (mut errors, mut gains, mut report) = (Vec::new(), Vec::new(), String::new());
    for Published { device, mut workload, rate: measured, plain } in published() {
        let drafted = rate(&predict(device, &workload).unwrap());
        let tokens = workload["speculative"]["draft_tokens"].clone();
        workload.as_object_mut().unwrap().remove("speculative");
        let alone = rate(&predict(device, &workload).unwrap());
        let error = (drafted / measured).ln();
        let gain = (drafted / alone / (measured / plain)).ln();
        let _ = writeln!(
            report,
            "{device} {tokens}: {drafted:.1} of {measured} ({error:+.2}), {:.2}x of {:.2}x ({gain:+.2})",
            drafted / alone,
            measured / plain
        );
        errors.push(error.abs());
        gains.push(gain.abs());
    }
    let (error, gain) = (median(errors), median(gains));
    assert!(error < 0.12 && gain < 0.2, "{error:.3}, of the gain {gain:.3}\n{report}");
}

#[test]
fn more_accepted_tokens_are_never_slower_and_no_drafts_are_no_speculation() {
    for hardware in ["v100", "rtx-5090", "jetson-agx-orin-64gb"] {
        let plain = predict(hardware, &qwen(Value::Null)).unwrap();
        let none = predict(hardware, &qwen(json!({"draft_tokens": 0, "acceptance_ratio": 0.8}))).unwrap();
        assert_eq!(plain, none);
        for tokens in 1..=8 {
            let mut before = 0.0;
            for tenths in 0..=10 {
                let speculative =
                    json!({"draft_tokens": tokens, "acceptance_ratio": f64::from(tenths) / 10.0});
                let now = predict(hardware, &qwen(speculative)).unwrap();
                assert!(rate(&now) > before, "{hardware} {tokens} {tenths}");
                assert!(memory(&now) > memory(&plain));
                before = rate(&now);
            }
            let useless =
                predict(hardware, &qwen(json!({"draft_tokens": tokens, "acceptance_ratio": 0}))).unwrap();
            assert!(rate(&useless) < rate(&plain), "{hardware} {tokens}: drafting is no free lunch");
        }
    }
}

/// A draft that costs time and memory, against text that costs neither.
#[test]
fn what_drafts_costs_time_and_memory() {
    let of = |speculative: Value| {
        let workload = json!({"model": "llama-3.1-8b", "format": "q4_k_m", "speculative": speculative});
        predict("rtx-3090", &workload).unwrap()
    };
    let free = of(json!({"kind": "ngram", "draft_tokens": 4, "acceptance_ratio": 0.7}));
    let drafted = of(json!({"draft_model": "llama-3.2-1b", "draft_tokens": 4, "acceptance_ratio": 0.7}));
    let heavy = of(json!({
        "draft_model": "llama-3.2-1b", "draft_format": "fp16", "draft_tokens": 4, "acceptance_ratio": 0.7,
    }));
    assert!(rate(&free) > rate(&drafted) && rate(&drafted) > rate(&heavy));
    assert!(memory(&free) < memory(&drafted) - 7e8 && memory(&drafted) < memory(&heavy) - 1e9);
    let named =
        |answer: &Value| answer["breakdown"].as_array().unwrap().iter().any(|entry| entry["op"] == "draft");
    assert!(named(&drafted) && !named(&free));
}

#[test]
fn what_cannot_draft_is_refused_by_name() {
    let tokens = |speculative: &str| {
        let speculative: Value = serde_json::from_str(speculative).unwrap();
        json!({"model": "llama-3.1-8b", "format": "q4_k_m", "speculative": speculative})
    };
    for (speculative, words) in [
        (
            r#"{"kind": "mtp", "draft_tokens": 2, "acceptance_ratio": 0.8}"#,
            "Llama-3.1-8B has no known head that predicts further tokens",
        ),
        (
            r#"{"draft_model": "qwen3-0.6b", "draft_tokens": 2, "acceptance_ratio": 0.8}"#,
            "it cannot draft for it",
        ),
        (r#"{"kind": "draft", "draft_tokens": 2, "acceptance_ratio": 0.8}"#, "draft_model"),
        (r#"{"kind": "ngram", "draft_tokens": 2}"#, "acceptance_ratio is missing"),
        (r#"{"kind": "ngram", "acceptance_ratio": 0.5}"#, "draft_tokens is missing"),
        (r#"{"kind": "ngram", "draft_tokens": 2, "acceptance_ratio": 1.5}"#, "outside 0 to 1"),
        (r#"{"kind": "medusa", "draft_tokens": 2, "acceptance_ratio": 0.5}"#, "there is no kind"),
    ] {
        let refusal = predict("rtx-3090", &tokens(speculative)).unwrap_err();
        assert!(refusal.contains(words), "{refusal}");
    }
}

fn recommended(hardware: &str, engine: &str, workload: &Value) -> Result<Value, String> {
    let body = json!({
        "hardware": hardware, "engine": engine, "objective": "throughput", "workload": workload,
        "freedom": {"formats": ["q4_k_m"], "batch": {"max": 1}},
    });
    let request = Request::Recommend(Box::new(serde_json::from_value(body).unwrap()));
    let answer = suppose(&CATALOGUE, &request).map_err(|refusal| refusal.to_string())?;
    Ok(serde_json::to_value(answer).unwrap())
}

#[test]
fn the_number_of_drafts_is_the_best_of_all() {
    for (hardware, acceptance) in [("v100", 0.8), ("rtx-5090", 0.8), ("rtx-5090", 0.3), ("rtx-3090", 0.02)] {
        let mut workload = qwen(json!({"acceptance_ratio": acceptance}));
        workload.as_object_mut().unwrap().remove("format");
        let answer = recommended(hardware, "llama.cpp", &workload).unwrap();
        let tokens = answer["decision"]["draft_tokens"].as_u64().unwrap_or(0);
        let at = |tokens: u64| {
            let speculative = json!({"draft_tokens": tokens, "acceptance_ratio": acceptance});
            rate(&predict(hardware, &qwen(speculative)).unwrap())
        };
        let best = (0..=8).max_by(|a, b| at(*a).total_cmp(&at(*b))).unwrap();
        assert_eq!(tokens, best, "{hardware} {acceptance}");
        let line = answer["apply"]["settings"]["llama.cpp"].as_str().unwrap();
        let flags = format!("--spec-type draft-mtp --spec-draft-n-max {tokens}");
        assert_eq!(line.contains(&flags), tokens > 0, "{line}");
    }
    let workload = json!({"model": "llama-3.1-8b", "speculative": {"acceptance_ratio": 0.8}});
    let refusal = recommended("jetson-agx-orin-64gb", "mlc", &workload).unwrap_err();
    assert!(refusal.contains("mlc"), "{refusal}");
}
