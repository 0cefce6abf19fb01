//! What the server sends is what its OpenAPI document says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use serde_json::Value;

use crate::support::{Server, short_limits, snapshot};

const UNDESCRIBED: &str = " is not described";

/// What of `value` at `at` is not as `schema` says: of the keywords that the document uses.
fn wrong(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let below = |schema: &Value, value: &Value, at: &str| wrong(document, schema, value, at);
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.strip_prefix('#').unwrap()).unwrap();
        return below(target, value, at);
    }
    for keyword in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[keyword].as_array() {
            let tried: Vec<_> = choices.iter().map(|choice| below(choice, value, at)).collect();
            let best = tried.into_iter().min_by_key(Vec::len).unwrap();
            return best;
        }
    }
    let mut found = Vec::new();
    for part in schema["allOf"].as_array().into_iter().flatten() {
        // What one part does not describe another may.
        let of_another = |problem: &String| {
            let rest =
                problem.strip_prefix(&format!("{at}.")).and_then(|rest| rest.strip_suffix(UNDESCRIBED));
            rest.is_some_and(|name| !name.contains(['.', '[']))
        };
        found.extend(below(part, value, at).into_iter().filter(|problem| !of_another(problem)));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is = match value {
        Value::Null => &["null"][..],
        Value::Bool(_) => &["boolean"],
        Value::String(_) => &["string"],
        Value::Array(_) => &["array"],
        Value::Object(_) => &["object"],
        Value::Number(number) if number.is_f64() => &["number"],
        Value::Number(_) => &["number", "integer"],
    };
    if !types.is_empty() && !types.iter().any(|wanted| is.contains(wanted)) {
        found.push(format!("{at} is {value:.60}, not {types:?}"));
    }
    if let Some(known) = schema["enum"].as_array()
        && !known.contains(value)
    {
        found.push(format!("{at} is {value:.60}, none of {known:?}"));
    }
    if let Value::Array(items) = value
        && schema["items"].is_object()
    {
        for (index, item) in items.iter().enumerate() {
            found.extend(below(&schema["items"], item, &format!("{at}[{index}]")));
        }
    }
    if let Value::Object(fields) = value {
        let properties = schema["properties"].as_object();
        let others = &schema["additionalProperties"];
        for (name, field) in fields {
            let at = format!("{at}.{name}");
            match properties.and_then(|properties| properties.get(name)) {
                Some(schema) => found.extend(below(schema, field, &at)),
                None if others.is_object() => found.extend(below(others, field, &at)),
                // Any object at all.
                None if properties.is_none() => {}
                None => found.push(format!("{at}{UNDESCRIBED}")),
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                found.push(format!("{at}.{name} is missing"));
            }
        }
    }
    found
}

#[test]
fn every_answer_is_as_the_document_describes_it() {
    let server = Server::start(snapshot(), short_limits());
    let document = server.get("/v1/openapi.json").json();
    let gemv = r#""workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8"}"#;
    let model = r#""workload":{"model":"llama-3.1-8b","format":"q4_k_m","context_tokens":512}"#;
    let ops = r#""ops":[{"kind":"gemv","n":64,"k":64}],"formats":["int8"]"#;
    let layer = r#"{"name":"conv","kind":"convolution","flops":1e9,"reads":1e6,"writes":1e6,"inner":576,"columns":64,"window":9}"#;
    let network = format!(
        r#"{{"hardware":"jetson-orin-nano-8gb-super","network":{{"name":"n","batch":1,"inputs":[["images",[1,3,640,640]]],
        "input_elements":1228800,"output_elements":705600,"parameters":1e6,"live_elements":2e6,"unknown_nodes":0,"layers":[{layer}]}}}}"#
    );
    let cases = [
        ("get", "/v1/board", "/v1/board", String::new()),
        ("get", "/v1/state", "/v1/state", String::new()),
        ("get", "/v1/roofline", "/v1/roofline", String::new()),
        ("get", "/v1/modes", "/v1/modes", String::new()),
        ("get", "/v1/formats", "/v1/formats", String::new()),
        ("get", "/v1/hardware", "/v1/hardware", String::new()),
        ("get", "/v1/hardware/{key}", "/v1/hardware/gb10", String::new()),
        ("get", "/v1/hardware/{key}", "/v1/hardware/gb11", String::new()),
        ("get", "/v1/models", "/v1/models", String::new()),
        ("get", "/v1/models/{key}", "/v1/models/llama-3-8b", String::new()),
        ("get", "/v1/models/{key}", "/v1/models/llama-9", String::new()),
        ("get", "/v1/calibration", "/v1/calibration", String::new()),
        ("get", "/v1/observations", "/v1/observations", String::new()),
        ("get", "/v1/servers", "/v1/servers", String::new()),
        ("get", "/v1/holds", "/v1/holds", String::new()),
        ("get", "/-/ready", "/-/ready", String::new()),
        ("post", "/v1/predict", "/v1/predict", format!("{{{gemv}}}")),
        ("post", "/v1/predict", "/v1/predict", format!("{{\"hardware\":\"h100\",{model}}}")),
        ("post", "/v1/predict", "/v1/predict", "{".into()),
        ("post", "/v1/recommend", "/v1/recommend", format!("{{{gemv}}}")),
        ("post", "/v1/recommend", "/v1/recommend", format!("{{\"hardware\":\"h100\",{model}}}")),
        ("post", "/v1/sweep", "/v1/sweep", format!("{{{ops}}}")),
        ("post", "/v1/tiling", "/v1/tiling", r#"{"hardware":"h100","m":512,"n":512,"k":512}"#.into()),
        ("post", "/v1/analyze", "/v1/analyze", format!("{{{gemv},\"time_s\":1}}")),
        ("post", "/v1/explain", "/v1/explain", format!("{{{gemv},\"time_s\":1}}")),
        (
            "post",
            "/v1/explain",
            "/v1/explain",
            format!("{{{gemv},\"time_s\":1,\"seen\":{{\"cpu_wait_ratio\":0.5}}}}"),
        ),
        ("post", "/v1/networks/predict", "/v1/networks/predict", network.clone()),
        ("post", "/v1/networks/predict", "/v1/networks/predict", "{}".into()),
        (
            "post",
            "/v1/networks/recommend",
            "/v1/networks/recommend",
            format!(r#"{{"workload":{network},"power_modes":"all","constraints":{{"max_power_w":15}}}}"#),
        ),
        ("post", "/v1/observations", "/v1/observations", format!("{{{gemv},\"time_s\":0.001}}")),
    ];
    let mut problems = Vec::new();
    for (method, route, path, body) in cases {
        let answer = crate::support::ask(&server.query(), &method.to_ascii_uppercase(), path, &body);
        let responses = &document["paths"][route][method]["responses"];
        let described = &responses[answer.status.to_string()];
        if !described.is_object() {
            problems.push(format!("{path}: {} is not described", answer.status));
            continue;
        }
        let schema = &described["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{path}: {described}");
        problems.extend(wrong(&document, schema, &answer.json(), path));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn clients_know_which_socket_takes_a_route() {
    use rooflined_client::address::Socket;
    let server = Server::start(snapshot(), short_limits());
    let document = server.get("/v1/openapi.json").json();
    let mut of_control = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let tagged = operation["tags"] == serde_json::json!(["control"]);
            let known = Socket::of_route(&method.to_ascii_uppercase(), &path.replace("{id}", "7"));
            assert_eq!(known == Socket::Control, tagged, "{method} {path}");
            of_control += usize::from(tagged);
        }
    }
    assert!(of_control > 5, "{of_control}");
}

/// A validator that finds nothing is worth nothing.
#[test]
fn what_is_not_as_described_is_found() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"], "properties": { "a": { "type": ["number", "null"] }, "b": { "type": "object" } },
    });
    let found = |value: Value| wrong(&Value::Null, &schema, &value, "x");
    assert!(found(serde_json::json!({ "a": null, "b": {} })).is_empty());
    for value in [
        serde_json::json!({ "b": {} }),
        serde_json::json!({ "a": "1" }),
        serde_json::json!({ "a": 1, "b": 2 }),
        serde_json::json!({ "a": 1, "c": 2 }),
        serde_json::json!(3),
    ] {
        assert_eq!(found(value.clone()).len(), 1, "{value}");
    }
}
