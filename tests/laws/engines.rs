//! What one run of a model that was observed does to predictions of it, through the command line.

#![allow(clippy::unwrap_used, reason = "a missing field fails the test that asked for it")]

use std::collections::BTreeSet;
use std::process::{Command, Output};

use rooflined_advice::{Answer, Catalogue, Opener, Request, suppose};
use rooflined_core::hardware::registry;
use serde_json::{Value, json};

fn rooflinectl(arguments: &[&str]) -> Output {
    Command::new(crate::programs::rooflinectl())
        .env("ROOFLINED_SOCKET", "/nonexistent")
        .args(arguments)
        .output()
        .unwrap()
}

fn predicted(body: &Value) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("requests.jsonl");
    std::fs::write(&file, format!("{body}\n")).unwrap();
    let output = rooflinectl(&["predict", "--requests", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn decode(mode: &str, context: u64, observations: &Value) -> Value {
    json!({
        "hardware": "jetson-orin-nano-8gb-super",
        "operating_point": { "power_mode": mode },
        "engine": "llama.cpp",
        "workload": {
            "model": "qwen2.5-1.5b", "format": "q4_k_m", "phase": "decode", "batch": 1, "context_tokens": context,
        },
        "observations": observations,
    })
}

fn rate(answer: &Value) -> f64 {
    let rate = answer["tokens_per_s"]["value"].as_f64();
    assert!(rate.is_some(), "{answer}");
    rate.unwrap()
}

#[test]
fn one_run_of_a_model_corrects_its_other_modes_and_contexts() {
    let none = json!([]);
    let before = predicted(&decode("25W", 512, &none));
    assert_eq!(before["tier"], "prior");
    let seen = rate(&before) * 0.8;
    let mut observation = decode("25W", 512, &none);
    observation.as_object_mut().unwrap().retain(|key, _| key != "observations" && key != "hardware");
    observation["tokens_per_s"] = seen.into();
    let observations = json!([observation]);
    let same = predicted(&decode("25W", 512, &observations));
    assert_eq!(same["tier"], "observed");
    assert!((rate(&same) / seen - 1.0).abs() < 0.05, "{} {seen}", rate(&same));
    for (mode, context) in [("15W", 512), ("25W", 4096)] {
        let (plain, other) =
            (predicted(&decode(mode, context, &none)), predicted(&decode(mode, context, &observations)));
        assert_eq!(other["tier"], "anchored");
        let factor = rate(&other) / rate(&plain);
        assert!((0.72..0.92).contains(&factor), "{mode} {context}: {factor}");
    }
}

#[test]
fn a_rate_in_the_wrong_unit_is_refused() {
    let mut observation = decode("25W", 512, &json!([]));
    observation.as_object_mut().unwrap().retain(|key, _| key != "observations" && key != "hardware");
    observation["tokens_per_s"] = 3e4.into();
    let body = decode("25W", 512, &json!([observation]));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("requests.jsonl");
    std::fs::write(&file, format!("{body}\n")).unwrap();
    let output = rooflinectl(&["predict", "--requests", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["error"]["field"].as_str().unwrap().starts_with("observations[0]"), "{answer}");
}

#[test]
fn an_engine_version_has_the_costs_of_its_time_and_a_newer_one_a_wider_interval() {
    let of = |version: Option<&str>| {
        let mut body = json!({
            "hardware": "rtx-3090",
            "engine": "llama.cpp",
            "workload": { "model": "llama-3.1-8b", "format": "q4_k_m", "phase": "decode", "context_tokens": 512 },
        });
        if let Some(version) = version {
            body["engine_version"] = version.into();
        }
        let answer = predicted(&body);
        let end = |name: &str| answer["tokens_per_s"][name].as_f64().unwrap();
        (rate(&answer), end("high") / end("low"))
    };
    let newest = of(None);
    assert_eq!(of(Some("b10338")), newest, "a build that was measured is as good as the default");
    for early in ["b3000", "May 2024"] {
        assert!(of(Some(early)).0 < newest.0, "{early}: engines became faster since");
    }
    let newer = of(Some("b99999"));
    assert!((newer.0 - newest.0).abs() < 1e-9 * newest.0 && newer.1 > newest.1);
}

/// Seconds of one step where a rule of thumb counts at depth: one with experts, one dense, one with few layers of attention.
#[test]
fn a_longer_context_and_more_sequences_are_never_faster_where_a_rule_of_thumb_counts() {
    let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
    let step = |model: &str, context: u64, batch: u64| {
        let workload = json!({"model": model, "format": "bf16", "context_tokens": context, "batch": batch});
        let body = json!({"hardware": "gb10", "engine": "vllm", "workload": workload});
        let request = Request::Predict(serde_json::from_value(body).unwrap());
        let answer = serde_json::to_value(suppose(&catalogue, &request).unwrap()).unwrap();
        f64::from(u32::try_from(batch).unwrap()) / rate(&answer)
    };
    for model in ["granite-4.1-8b", "qwen3.5-27b", "gpt-oss-20b"] {
        let mut before = 0.0;
        for context in [0, 500, 1000, 1100, 1500, 2000, 3000, 4000, 4096, 4200, 8000, 16_000, 30_000] {
            let now = step(model, context, 1);
            assert!(now >= before * (1.0 - 1e-9), "{model} {context}: {now} {before}");
            assert!(before == 0.0 || now < before * 1.5, "{model} {context}: a jump from {before} to {now}");
            before = now;
            assert!(step(model, context, 2) >= now * (1.0 - 1e-9), "{model} {context}");
        }
    }
}

/// Milliseconds of a token and quality loss of the engines that meet a question, the chosen one first.
fn compared(catalogue: &Catalogue, hardware: &str, model: &str) -> Vec<(String, f64, f64, f64)> {
    let body = json!({ "hardware": hardware, "workload": { "model": model }, "objective": "latency" });
    let request = Request::Recommend(serde_json::from_value(body).unwrap());
    let Ok(Answer::Recommend(answer)) = suppose(catalogue, &request) else {
        return Vec::new();
    };
    let met = answer.engines.iter().filter(|of| of.feasible);
    met.map(|of| {
        let candidate = of.candidate.as_ref().unwrap();
        let time = candidate.prediction.time_per_token_s.as_ref().unwrap();
        let loss = candidate.quality_loss_ratio.unwrap_or(f64::INFINITY);
        (of.engine.clone(), time.value, time.high, loss)
    })
    .collect()
}

#[test]
fn the_chosen_engine_is_as_good_as_the_safest_within_a_twentieth_and_of_equals_loses_least() {
    let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
    let (mut questions, mut moved) = (0, 0);
    for hardware in [
        "jetson-orin-nano-8gb-super",
        "jetson-agx-orin-64gb",
        "jetson-agx-thor-t5000",
        "gb10",
        "rtx-4090",
        "h100-sxm",
        "raspberry-pi-5",
        "n100",
        "epyc-9654",
    ] {
        for model in ["llama-3.2-1b", "qwen3-4b", "llama-3.1-8b", "qwen3-30b-a3b"] {
            let engines = compared(&catalogue, hardware, model);
            let [(chosen, expected, _, loss), others @ ..] = engines.as_slice() else { continue };
            let careful = engines.iter().filter(|(.., other)| *other <= 0.05 || *loss > 0.05);
            let safest = careful.min_by(|(_, _, one, _), (_, _, other, _)| one.total_cmp(other)).unwrap().1;
            assert!(*expected <= safest * 1.05, "{model} on {hardware}: {chosen} {expected} {safest}");
            for (other, value, high, other_loss) in others {
                let what = format!("{model} on {hardware}: {chosen} and {other}");
                let is_lossy = *other_loss > 0.05 && *loss <= 0.05;
                assert!(expected <= high || is_lossy, "{what}");
                assert!(*value > safest * 1.05 || *loss <= other_loss.max(0.01) || is_lossy, "{what}");
                moved += usize::from(value < expected);
            }
            questions += 1;
        }
    }
    assert!(questions >= 30 && moved > 0, "{questions} {moved}");
}

/// Neither MLC nor TensorRT-Edge-LLM builds gpt-oss, whatever it is stored as.
#[test]
fn an_engine_that_does_not_run_the_architecture_is_refused_and_not_recommended() {
    let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
    let asked =
        |request: Request| suppose(&catalogue, &request).map(|answer| serde_json::to_value(answer).unwrap());
    let board = "jetson-agx-orin-64gb";
    for engine in ["mlc", "tensorrt-edge-llm"] {
        let body = |model: &str, hypothetical: bool| {
            json!({"hardware": board, "engine": engine, "workload": {"model": model, "format": "awq_int4"},
                "hypothetical": hypothetical})
        };
        let predict = |body: Value| asked(Request::Predict(serde_json::from_value(body).unwrap()));
        let refusal = predict(body("gpt-oss-20b", false)).unwrap_err();
        assert_eq!((refusal.code.key(), refusal.field.as_deref()), ("unsupported_format", Some("engine")));
        assert!(refusal.message.contains("gpt_oss"), "{refusal}");
        let supposed = predict(body("gpt-oss-20b", true)).unwrap();
        assert!(supposed["warnings"].to_string().contains("hypothetical: "), "{supposed}");
        assert!(predict(body("qwen3-8b", false)).is_ok());
        let recommend = json!({"hardware": board, "engine": engine, "workload": {"model": "gpt-oss-20b"}});
        let refusal = asked(Request::Recommend(Box::new(serde_json::from_value(recommend).unwrap())));
        assert_eq!(refusal.unwrap_err().field.as_deref(), Some("engine"));
        let sweep = json!({"hardware": board, "engine": engine, "models": ["gpt-oss-20b"]});
        let refusal = asked(Request::Sweep(serde_json::from_value(sweep).unwrap())).unwrap_err();
        assert!(refusal.message.contains("gpt_oss"), "{refusal}");
    }
    let body = json!({"hardware": board, "workload": {"model": "gpt-oss-20b"}});
    let answer = asked(Request::Recommend(Box::new(serde_json::from_value(body).unwrap()))).unwrap();
    let compared: Vec<&str> =
        answer["engines"].as_array().unwrap().iter().filter_map(|of| of["engine"].as_str()).collect();
    assert_eq!(BTreeSet::from_iter(compared), BTreeSet::from(["llama.cpp", "torch", "vllm"]));
    for engine in ["mlc", "tensorrt-edge-llm"] {
        let line = answer["apply"]["settings"][engine].as_str().unwrap();
        assert!(line.starts_with("not available: ") && line.contains("gpt_oss"), "{line}");
    }
}

/// torchao's command keeps the weights in 8 bits and multiplies in 16: only reading them is faster.
#[test]
fn weights_in_8_bits_make_a_prompt_of_torch_hardly_faster() {
    for hardware in ["jetson-agx-orin-64gb", "rtx-3090", "h100-sxm"] {
        let [int8, fp16] = ["int8", "fp16"].map(|format| {
            let workload = json!({ "model": "llama-3.1-8b", "format": format, "phase": "prefill", "prompt_tokens": 2048 });
            rate(&predicted(&json!({ "hardware": hardware, "engine": "torch", "workload": workload })))
        });
        assert!(int8 < 1.1 * fp16, "{hardware}: {int8} {fp16}");
    }
}

#[test]
fn a_faster_engine_that_loses_much_quality_is_named() {
    let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
    let mut named = 0;
    let (all, two) = (json!({}), json!({ "engines": ["mlc", "torch"] }));
    for (hardware, freedom) in [
        ("jetson-xavier-nx", &all),
        ("jetson-orin-nano-8gb-super", &all),
        ("jetson-orin-nano-8gb-super", &two),
        ("gb10", &all),
        ("gb10", &two),
    ] {
        let body = json!({ "hardware": hardware, "workload": { "model": "qwen3-4b" }, "freedom": freedom });
        let request = Request::Recommend(serde_json::from_value(body).unwrap());
        let Ok(Answer::Recommend(answer)) = suppose(&catalogue, &request) else { unreachable!() };
        let time = |of: &rooflined_api::CandidateAnswer| of.prediction.time_per_token_s.unwrap();
        let chosen = time(answer.decision.as_ref().unwrap()).value;
        let candidates =
            answer.engines.iter().filter(|of| of.feasible).filter_map(|of| of.candidate.as_ref());
        let is_better = candidates
            .filter(|of| of.quality_loss_ratio.is_some_and(|loss| loss > 0.05))
            .any(|of| time(of).high < chosen);
        let says = answer.warnings.iter().any(|words| words.contains("would be better, but loses"));
        assert_eq!(says, is_better, "{hardware}: {:?}", answer.warnings);
        named += usize::from(says);
    }
    assert!(named > 0);
}

#[test]
fn what_loses_much_is_chosen_only_where_nothing_else_meets_the_limits_or_it_is_allowed() {
    let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
    let asked = |hardware: &str, model: &str, more: &Value| {
        let mut body = json!({ "hardware": hardware, "workload": { "model": model } });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let request = Request::Recommend(serde_json::from_value(body).unwrap());
        match suppose(&catalogue, &request) {
            Ok(Answer::Recommend(answer)) => answer,
            other => unreachable!("{other:?}"),
        }
    };
    let mut others = 0;
    for hardware in ["jetson-orin-nano-8gb-super", "jetson-orin-nx-16gb", "gb10", "rtx-5090"] {
        for (model, phase) in [("qwen3-8b", "decode"), ("llama-3.2-3b", "prefill")] {
            let mut workload = json!({ "model": model, "phase": phase });
            if phase == "prefill" {
                workload["prompt_tokens"] = 2048.into();
            }
            let careful = asked(hardware, model, &json!({ "workload": workload }));
            let chosen = careful.decision.unwrap();
            assert!(chosen.quality_loss_ratio.unwrap() <= 0.05, "{hardware} {model}: {:?}", chosen.format);
            let allowed = json!({ "workload": workload, "constraints": { "max_quality_loss_ratio": 0.2 } });
            let lossy = asked(hardware, model, &allowed).decision.unwrap();
            if lossy.quality_loss_ratio.unwrap() > 0.05 {
                let left_out = careful.rejected.iter().any(|of| of.by == "max_quality_loss_ratio");
                let warned = careful.warnings.iter().any(|words| words.contains("max_quality_loss_ratio"));
                assert!(left_out || warned, "{hardware}");
                others += 1;
            }
        }
    }
    assert!(others > 1, "{others}");
    // Nothing that loses less keeps this pace in this memory.
    let pace = json!({ "freedom": { "power_modes": "all" }, "constraints": { "min_tokens_per_s": 12 } });
    let pressed = asked("jetson-orin-nano-8gb-super", "qwen3-8b", &pace);
    assert!(pressed.decision.unwrap().quality_loss_ratio.unwrap() > 0.05);
}
