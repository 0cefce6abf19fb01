//! Observations inside a prediction: used for that answer only, or refused by name.

use rooflined_advice::parse::parse;
use rooflined_advice::{Catalogue, Opener, Request, suppose};
use rooflined_api::ErrorBody;
use rooflined_core::hardware::registry;
use serde_json::{Value, json};

fn asked(observations: &Value) -> Result<Value, ErrorBody> {
    let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
    let body = json!({
        "hardware": "jetson-agx-orin-64gb", "engine": "llama.cpp", "workload": workload("llama-3.1-8b", 1),
        "observations": observations,
    });
    let request = Request::Predict(parse(body.to_string().as_bytes())?);
    Ok(serde_json::to_value(suppose(&catalogue, &request)?).unwrap())
}

fn workload(model: &str, batch: u64) -> Value {
    json!({"model": model, "format": "q4_k_m", "context_tokens": 512, "batch": batch})
}

fn observation(model: &str, batch: u64, time: f64) -> Value {
    json!({"engine": "llama.cpp", "workload": workload(model, batch), "time_s": time})
}

fn time(answer: &Value) -> f64 {
    answer["time_s"]["value"].as_f64().unwrap()
}

fn width(answer: &Value) -> f64 {
    answer["time_s"]["high"].as_f64().unwrap() / answer["time_s"]["low"].as_f64().unwrap()
}

#[test]
fn an_observation_moves_the_answer_that_it_comes_with_and_no_other() {
    let plain = asked(&json!([])).unwrap();
    assert_eq!(plain["tier"], "prior");
    let measured = 1.3 * time(&plain);
    let own = asked(&json!([observation("llama-3.1-8b", 1, measured)])).unwrap();
    assert_eq!((own["tier"].as_str(), own["interval_from"].as_str()), (Some("observed"), Some("own_runs")));
    assert!((time(&own) / measured - 1.0).abs() < 0.02, "{own}");
    assert!(width(&own) < width(&plain));
    let rate = json!([{
        "engine": "llama.cpp", "workload": workload("llama-3.1-8b", 1), "tokens_per_s": 1.0 / measured, "power_w": 30.0,
        "operating_point": {"power_mode": "MAXN"},
    }]);
    assert!((time(&asked(&rate).unwrap()) / time(&own) - 1.0).abs() < 1e-6);
    let mode = json!([{
        "engine": "llama.cpp", "workload": workload("llama-3.1-8b", 1), "time_s": 2.5 * measured,
        "operating_point": {"power_mode": "30W"},
    }]);
    assert_eq!(asked(&mode).unwrap()["tier"], "anchored");
    let other = asked(&json!([observation("qwen2.5-7b", 1, 1.2 * time(&plain))])).unwrap();
    assert_eq!(other["tier"], "engine_calibrated");
    assert_eq!(asked(&json!([])).unwrap(), plain);
}

#[test]
fn what_cannot_have_been_measured_is_refused_by_name() {
    let usual = time(&asked(&json!([])).unwrap());
    let refused = |observation: Value| {
        let error = asked(&json!([observation])).unwrap_err();
        assert!(error.hint.is_some_and(|hint| !hint.is_empty()));
        (error.code, error.field.unwrap())
    };
    let with = |key: &str, value: Value| {
        let mut observation = observation("llama-3.1-8b", 1, usual);
        observation[key] = value;
        observation
    };
    let workload = |key: &str, value: Value| {
        let mut observation = observation("llama-3.1-8b", 1, usual);
        observation["workload"][key] = value;
        observation
    };
    for (observation, code, field) in [
        (with("time_s", json!(usual * 1e3)), "impossible_observation", "time_s"),
        (with("time_s", json!(usual / 1e3)), "impossible_observation", "time_s"),
        (with("time_s", json!(0)), "invalid_field", "time_s"),
        (with("tokens_per_s", json!(20.0)), "invalid_field", "tokens_per_s"),
        (with("power_w", json!(-1)), "invalid_field", "power_w"),
        (with("power_w", json!(1e4)), "invalid_field", "power_w"),
        (workload("batch", json!(0)), "invalid_dimension", "workload.batch"),
        (workload("context_tokens", json!(1_000_000)), "invalid_dimension", "workload.context_tokens"),
        (workload("model", json!("llama-9")), "unknown_model", "workload.model"),
        (with("operating_point", json!({"power_mode": "9W"})), "unknown_mode", "operating_point.power_mode"),
    ] {
        let path = format!("observations[0].{field}");
        assert_eq!(refused(observation.clone()), (code.to_owned(), path), "{observation}");
    }
    let many = vec![observation("llama-3.1-8b", 1, usual); 257];
    assert_eq!(asked(&json!(many)).unwrap_err().code, "too_many");
}

#[test]
fn hundreds_of_observations_are_taken_at_once() {
    let usual = time(&asked(&json!([])).unwrap());
    let many: Vec<Value> = (0..256)
        .map(|index| {
            observation(
                "llama-3.1-8b",
                1 + index % 8,
                usual * (1.4 + 0.0001 * f64::from(u32::try_from(index).unwrap())),
            )
        })
        .collect();
    let answer = asked(&json!(many)).unwrap();
    assert_eq!(answer["tier"], "observed");
}
