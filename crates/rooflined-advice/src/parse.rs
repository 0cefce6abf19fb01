//! JSON → requests, with errors that name the field, what was found and what to do.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use crate::mistake::{self, Json, Kind, Mistake, short};
use rooflined_core::near::Near;
use rooflined_core::operation::MAX_DIMENSION;
use rooflined_core::refusal::{Code, Refusal, Refusals};

/// How often a body is read to find one more mistake.
const MOST_READINGS: usize = 16;

/// Reads a body that is an object.
///
/// # Errors
/// The body is not JSON; or every mistake found in the request.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    // A structure would also be read from a list of its values in order, which no client means.
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => read(body),
        _ => Err(match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => Code::InvalidField.at("body", "the body is not a JSON object", "send {…}"),
            Err(error) => not_json(body, &error),
        }),
    }
}

/// Reads a body that is a list of objects.
///
/// # Errors
/// As [`parse`].
pub fn parse_list<T: DeserializeOwned>(body: &[u8]) -> Result<Vec<T>, Refusal> {
    read(body)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    // The good case does not pay for what errors say: only a body that is refused is read again, from memory.
    if let Ok(request) = serde_json::from_slice(body) {
        return Ok(request);
    }
    let Json(json) = serde_json::from_slice(body).map_err(|error| not_json(body, &error))?;
    read_json(&json)
}

/// A mistake is taken away from the body to find the next.
fn read_json<T: DeserializeOwned>(json: &Value) -> Result<T, Refusal> {
    let mut mistake = match mistake::read(json) {
        Ok(request) => return Ok(request),
        Err(mistake) => mistake,
    };
    let (mut rest, mut removed, mut refusals) = (json.clone(), Vec::<String>::new(), Refusals::default());
    for _ in 0..MOST_READINGS {
        let refusal = refusal(&rest, mistake);
        let field = refusal.field.clone().unwrap_or_default();
        // A value removed here is missing because of us, not because of the client.
        if !removed.iter().any(|removed| lies_in(&field, removed)) {
            refusals.add(refusal);
        }
        let Some(gone) = remove_around(&mut rest, &field) else { break };
        removed.push(gone);
        match mistake::read::<T>(&rest) {
            Ok(_) => break,
            Err(next) => mistake = next,
        }
    }
    // The first mistake was added, so there is a refusal.
    refusals
        .finish()
        .and_then(|()| Err(Code::InvalidField.at("body", "the body is not this request", "send {…}")))
}

/// Whether a path is another one or goes on from there.
fn lies_in(path: &str, around: &str) -> bool {
    path.strip_prefix(around).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Removes the value at `path`, or the closest value that contains it, and returns the path removed; `None` if only the whole body
/// is left. An element of a list is made `null`, so that the others keep their places.
fn remove_around(json: &mut Value, path: &str) -> Option<String> {
    let (around, step) = match path.rfind(['.', '[']) {
        Some(end) => (&path[..end], path[end + 1..].trim_end_matches(']')),
        None => ("", path),
    };
    let is_gone = match json.pointer_mut(&pointer(around)) {
        Some(Value::Object(fields)) => fields.remove(step).is_some(),
        Some(Value::Array(list)) => {
            let item = step.parse::<usize>().ok().and_then(|index| list.get_mut(index));
            item.is_some_and(|item| !std::mem::take(item).is_null())
        }
        _ => false,
    };
    match (is_gone, around) {
        (true, _) => Some(path.to_owned()),
        (false, "") => None,
        (false, around) => remove_around(json, around),
    }
}

fn not_json(body: &[u8], error: &serde_json::Error) -> Refusal {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Code::InvalidJson.error("the body is empty", "send a JSON object with Content-Length");
    }
    let hint = if error.is_eof() {
        "it ends too early: check Content-Length and send all of it"
    } else {
        "write one JSON object, with names and texts in double quotes; NaN and Infinity are not JSON, numbers end at 1.8e308, and nesting ends at 128 levels"
    };
    let (line, column) = (error.line(), error.column());
    Code::InvalidJson.error(format!("the request is not JSON from line {line}, column {column} on"), hint)
}

/// What is wrong with a request, for a client.
fn refusal(json: &Value, Mistake { path, kind }: Mistake) -> Refusal {
    // A tagged enumeration is read from a copy that knows no paths.
    if let Some(op) = around(&path).find_map(|path| wrong_operation(json, path)) {
        return op;
    }
    let field = if path.is_empty() { "body" } else { &path };
    match kind {
        Kind::UnknownField { known } => unknown_field(field, known),
        Kind::MissingField => {
            Code::MissingField.at(field, format!("{field} is missing"), format!("add {field}"))
        }
        Kind::NotAName { found, known } => {
            let found = short(&found);
            let near = Near::of(found.trim_matches('"'), known.iter().copied());
            let hint = near.hint(&format!("use one of {}", known.join(", ")));
            let message = if found.starts_with('"') {
                format!("{field} is {found}, which is not known")
            } else {
                format!("{field} is {found}; it must be a name in quotes")
            };
            Code::InvalidField.at(field, message, hint)
        }
        Kind::Other(reason) => {
            const ALL: &str = "GET /v1/openapi.json has the type of every field";
            match (shown_at(json, &path), wanted(&reason)) {
                (Some(found), Some(wanted)) => {
                    Code::InvalidField.at(field, format!("{field} is {found}; it must be {wanted}"), ALL)
                }
                (Some(found), None) => Code::InvalidField.at(
                    field,
                    format!("{field}: {reason}"),
                    format!("{found} was sent; {ALL}"),
                ),
                (None, _) => Code::InvalidField.at(field, format!("{field}: {reason}"), ALL),
            }
        }
    }
}

/// What serde expected, in words for people who write another language; `None` if it already is.
fn wanted(reason: &str) -> Option<&'static str> {
    let (_, expected) = reason.rsplit_once(", expected ")?;
    Some(match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" => "text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        other if other.starts_with("struct ") || other == "a map" => "an object",
        _ => return None,
    })
}

/// The path itself, and the one around it.
fn around(path: &str) -> impl Iterator<Item = &str> {
    std::iter::once(path).chain(path.rsplit_once('.').map(|(around, _)| around))
}

fn unknown_field(field: &str, known: &[&str]) -> Refusal {
    let name = field.rsplit('.').next().unwrap_or(field);
    let hint = if known.is_empty() {
        "leave it out".to_owned()
    } else {
        Near::of(name, known.iter().copied()).hint(&format!("Known: {}", known.join(", ")))
    };
    Code::UnknownField.at(field, format!("{field} is not a field of this request"), hint)
}

/// The value at `path` (`workload.op`, `ops[3].n`), where the body has one.
fn value_at<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    root.pointer(&pointer(path))
}

/// A path in the notation of JSON pointers: `/ops/3/n`.
fn pointer(path: &str) -> String {
    let steps = path.split(['.', '[']).filter(|step| !step.is_empty());
    steps.map(|step| format!("/{}", step.strip_suffix(']').unwrap_or(step))).collect()
}

fn shown_at(json: &Value, path: &str) -> Option<String> {
    let text = value_at(json, path)?.to_string();
    let cut = short(&text);
    Some(if cut.len() < text.len() { format!("{cut}…") } else { cut })
}

/// Dimensions of each kind of operation, required ones first.
const DIMENSIONS: [(&str, &[&str], &[&str]); 3] = [
    ("gemv", &["n", "k"], &[]),
    ("gemm", &["m", "n", "k"], &[]),
    ("attention", &["batch", "heads", "kv_heads", "query_tokens", "context_tokens", "head_dim"], &["window"]),
];

/// What is wrong with the operation at `path`. A tagged enumeration loses the path inside itself, so it is read again
/// by hand.
fn wrong_operation(json: &Value, path: &str) -> Option<Refusal> {
    let is_op = path == "op" || path.ends_with(".op") || (path.starts_with("ops[") && path.ends_with(']'));
    if !is_op {
        return None;
    }
    let Value::Object(op) = value_at(json, path)? else {
        return Some(Code::InvalidField.at(
            path,
            format!("{path} is not an object"),
            "write it as {\"kind\":\"gemv\",\"n\":4096,\"k\":4096}",
        ));
    };
    let kinds = || DIMENSIONS.iter().map(|(kind, ..)| *kind);
    let at = |name: &str| format!("{path}.{name}");
    let Some(kind) = op.get("kind").and_then(Value::as_str) else {
        return Some(Code::MissingField.at(
            at("kind"),
            format!("{path}.kind is missing or no string"),
            "one of gemv, gemm, attention",
        ));
    };
    let Some((_, required, optional)) = DIMENSIONS.iter().find(|(name, ..)| *name == kind) else {
        let hint = Near::of(kind, kinds()).hint("Known: gemv, gemm, attention");
        return Some(Code::InvalidField.at(
            at("kind"),
            format!("{:?} is not a kind of operation", short(kind)),
            hint,
        ));
    };
    let known = || required.iter().chain(*optional).copied();
    for (name, value) in op.iter().filter(|(name, _)| *name != "kind") {
        if !known().any(|field| field == name) {
            return Some(unknown_field(&at(&short(name)), &known().collect::<Vec<_>>()));
        }
        let left_out = value.is_null() && optional.contains(&name.as_str());
        if !mistake::is_whole(value) && !left_out {
            return Some(Code::InvalidDimension.at(
                at(name),
                format!("{path}.{name} is {}", short(&value.to_string())),
                format!("give a whole number from 1 to {MAX_DIMENSION}"),
            ));
        }
    }
    let missing = required.iter().find(|field| !op.contains_key(**field))?;
    Some(Code::MissingField.at(
        at(missing),
        format!("{} is missing", at(missing)),
        format!("{kind} needs {}", required.join(", ")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_api::{PredictRequest, RecommendRequest, SweepRequest};

    fn wrong<T: DeserializeOwned + std::fmt::Debug>(body: &str) -> (&'static str, String, String) {
        let error = parse::<T>(body.as_bytes()).unwrap_err();
        (error.code.key(), error.field.unwrap_or_default(), error.hint)
    }

    #[test]
    fn a_wrong_type_is_named_in_words_of_json() {
        let said = |body: &str| parse::<PredictRequest>(body.as_bytes()).unwrap_err().message;
        for (field, value, expected) in [
            ("batch", r#""two""#, "workload.batch is \"two\"; it must be a whole number, 0 or more"),
            ("batch", "1.5", "workload.batch is 1.5; it must be a whole number, 0 or more"),
            ("format", "4", "workload.format is 4; it must be text in quotes"),
        ] {
            let body = format!(r#"{{"workload":{{"model":"llama-3.2-1b","{field}":{value}}}}}"#);
            assert_eq!(said(&body), expected);
        }
    }

    #[test]
    fn whole_numbers_may_be_written_with_a_point_and_no_others() {
        let read = |body: &str| parse::<PredictRequest>(body.as_bytes());
        let whole = read(
            r#"{"workload":{"op":{"kind":"gemv","n":4096.0,"k":4.096E3},"format":"int8","batch":-0.0e2,"threads":2.0}}"#,
        );
        let plain = read(
            r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8","batch":0,"threads":2}}"#,
        );
        assert_eq!(whole.unwrap(), plain.unwrap());
        // Texts stay what they are.
        let named =
            read(r#"{"workload":{"model":{"path":"/a \"1.0\" 2.0.gguf"},"context_tokens":8.0}}"#).unwrap();
        assert_eq!(named.workload.model.unwrap()["path"], "/a \"1.0\" 2.0.gguf");
        assert_eq!(named.workload.context_tokens, Some(8));
        // Nor is a model only what this program knows of it: its fields are kept as they are, numbers apart.
        let fields = |number: &str| {
            let body = format!(
                r#"{{"workload":{{"model":{{"hidden_size":{number},"mlp_only_layers":[{number},0.5],
                "rope_scaling":{{"factor":{number}}}}}}}}}"#
            );
            read(&body).unwrap().workload.model
        };
        assert_eq!(fields("4096.0"), fields("4096"));
        assert_eq!(fields("4.096e3"), fields("4096"));
        assert_ne!(fields("4096.5"), fields("4096"));
        let models = |number: &str| {
            let body = format!(r#"{{"models":[{{"hidden_size":{number}}}]}}"#);
            parse::<SweepRequest>(body.as_bytes()).unwrap().models
        };
        assert_eq!(models("4096.0"), models("4096"));
        for (body, field) in [
            (r#"{"workload":{"op":{"kind":"gemv","n":4096.5,"k":8.0}}}"#, "workload.op.n"),
            (r#"{"workload":{"model":"m","batch":1.5,"context_tokens":8.0}}"#, "workload.batch"),
            (r#"{"workload":{"model":"m","context_tokens":1e300}}"#, "workload.context_tokens"),
        ] {
            let refused = read(body).unwrap_err();
            assert!(refused.field.unwrap_or_default().starts_with(field), "{body}");
        }
    }

    #[test]
    fn every_wrong_field_is_named() {
        let op = |op: &str| format!(r#"{{"workload":{{"op":{op}}}}}"#);
        let cases = [
            (op(r#"{"kind":"gemv","n":-1,"k":1}"#), "invalid_dimension", "workload.op.n"),
            (op(r#"{"kind":"gemv","n":1e18,"k":1}"#), "invalid_dimension", "workload.op.n"),
            (op(r#"{"kind":"gemv","n":1.5,"k":1}"#), "invalid_dimension", "workload.op.n"),
            (op(r#"{"kind":"gemv","n":"1","k":1}"#), "invalid_dimension", "workload.op.n"),
            (op(r#"{"kind":"gemv","n":1}"#), "missing_field", "workload.op.k"),
            (op(r#"{"kind":"gemv","n":1,"k":1,"kk":1}"#), "unknown_field", "workload.op.kk"),
            (op(r#"{"kind":"gemw","n":1,"k":1}"#), "invalid_field", "workload.op.kind"),
            (op(r#"{"n":1,"k":1}"#), "missing_field", "workload.op.kind"),
            (op("3"), "invalid_field", "workload.op"),
            (op("NaN"), "invalid_json", ""),
            (r#"{"workload":{"format":8}}"#.into(), "invalid_field", "workload.format"),
            (r#"{"workload":{"formt":"int8"}}"#.into(), "unknown_field", "workload.formt"),
            (r#"{"worload":{}}"#.into(), "unknown_field", "worload"),
            ("{}".into(), "missing_field", "workload"),
            (r#"{"workload":{},"engine":"lama.cpp"}"#.into(), "invalid_field", "engine"),
            (r#"{"workload":{}} x"#.into(), "invalid_json", ""),
            (r#"{"workload":{}"#.into(), "invalid_json", ""),
            (String::new(), "invalid_json", ""),
            ("[".repeat(1000), "invalid_json", ""),
            ("[]".into(), "invalid_field", "body"),
        ];
        for (body, code, field) in cases {
            let found = wrong::<PredictRequest>(&body);
            assert_eq!((found.0, found.1.as_str()), (code, field), "{body:.60} {found:?}");
        }
    }

    #[test]
    fn every_mistake_is_listed_and_none_that_only_follows_from_another() {
        fn fields<T: DeserializeOwned + std::fmt::Debug>(body: &str) -> Vec<String> {
            let error = parse::<T>(body.as_bytes()).unwrap_err();
            let first = (error.message, error.field, error.hint);
            let listed =
                error.problems.into_iter().map(|problem| (problem.message, problem.field, problem.hint));
            let listed: Vec<_> = listed.collect();
            assert!(listed.is_empty() || listed[0] == first, "{listed:?}");
            let all = if listed.is_empty() { vec![first] } else { listed };
            all.into_iter().map(|(_, field, _)| field.unwrap()).collect()
        }
        assert_eq!(
            fields::<RecommendRequest>(
                r#"{"workload":{"formt":"int8","batch":"two"},"engine":5,"objective":"latenzy","optimism":"expected","x":1}"#
            ),
            ["engine", "objective", "workload.batch", "workload.formt", "x"],
        );
        assert_eq!(
            fields::<SweepRequest>(
                r#"{"ops":[{"kind":"gemv","n":1,"k":-2,"kk":1},{"kind":"gemv","n":1,"k":1}],"batches":[1,"2",-3],"engin":"vllm"}"#
            ),
            ["batches[1]", "engin", "ops[0].k", "ops[0].kk"],
        );
        // What is missing ends the list of what is around it, and that is not called missing as well.
        assert_eq!(
            fields::<PredictRequest>(r#"{"workload":{"op":{"kind":"gemv","n":1}},"engine":1}"#),
            ["engine", "workload.op.k"],
        );
        assert_eq!(
            fields::<PredictRequest>(r#"{"workload":7,"hypothetical":"no"}"#),
            ["hypothetical", "workload"]
        );
        assert_eq!(fields::<PredictRequest>("{}"), ["workload"]);
        let many: Vec<String> = (0..100).map(|n| format!(r#""x{n}":1"#)).collect();
        assert_eq!(fields::<PredictRequest>(&format!("{{{}}}", many.join(","))).len(), MOST_READINGS);
    }

    #[test]
    fn what_is_no_text_where_a_name_is_wanted_is_a_wrong_field_and_no_bad_json() {
        use rooflined_core::names::Engine;
        for found in ["5", "true", r#"["llama.cpp"]"#, "{}", "1.5"] {
            let body = format!(r#"{{"workload":{{"model":"m"}},"engine":{found}}}"#);
            let error = parse::<RecommendRequest>(body.as_bytes()).unwrap_err();
            assert_eq!((error.code, error.field.as_deref()), (Code::InvalidField, Some("engine")), "{error}");
            assert!(error.message.contains(found), "{error}");
            assert!(Engine::ALL.iter().all(|engine| error.hint.contains(engine.key())), "{error}");
        }
        for (name, known) in [("objective", "latency"), ("optimism", "expected")] {
            let (code, field, hint) =
                wrong::<RecommendRequest>(&format!(r#"{{"workload":{{}},"{name}":5}}"#));
            assert_eq!((code, field.as_str()), ("invalid_field", name));
            assert!(hint.contains(known), "{hint}");
        }
        // Nor is a number beyond all that a computer's are one of JSON's here, or a key that comes twice.
        for body in [
            r#"{"workload":{},"constraints":{"max_power_w":1e999}}"#,
            r#"{"workload":{"model":"m","batch":1.0,"batch":2.0}}"#,
        ] {
            assert_eq!(wrong::<RecommendRequest>(body).0, "invalid_json", "{body}");
        }
        // What is no JSON is still said to be none.
        for body in [
            r#"{"workload":{},"engine":5"#,
            r#"{"workload":{},"engine":nul}"#,
            r#"{"workload":{},"engine":5,}"#,
            r#"{"workload":{},"engine":5} {"#,
            "{\"workload\":{\"format\":\"\u{1}\"},\"engine\":5}",
        ] {
            assert_eq!(wrong::<RecommendRequest>(body).0, "invalid_json", "{body}");
        }
        let deep = format!(r#"{{"workload":{{"model":{}1{}}}}}"#, "[".repeat(200), "]".repeat(200));
        assert_eq!(wrong::<RecommendRequest>(&deep).0, "invalid_json");
    }

    /// Whatever may be left out may be null: each field of a request that is read without it.
    #[test]
    fn null_is_the_same_as_leaving_it_out() {
        fn check<T: DeserializeOwned + std::fmt::Debug + PartialEq>(least: &str, optional: &[&str]) {
            let plain = parse::<T>(least.as_bytes()).unwrap();
            for name in optional {
                let body = format!(
                    r#"{}{}"{name}":null}}"#,
                    &least[..least.len() - 1],
                    if least.len() > 2 { "," } else { "" }
                );
                assert_eq!(parse::<T>(body.as_bytes()).as_ref(), Ok(&plain), "{body}");
            }
            let unknown = format!(
                r#"{}{}"unheard_of":null}}"#,
                &least[..least.len() - 1],
                if least.len() > 2 { "," } else { "" }
            );
            assert_eq!(parse::<T>(unknown.as_bytes()).unwrap_err().code, Code::UnknownField);
        }
        let workload = r#"{"workload":{}}"#;
        let of_all = ["hardware", "operating_point", "engine", "hypothetical"];
        check::<PredictRequest>(workload, &[&of_all[..], &["observations"]].concat());
        check::<RecommendRequest>(
            workload,
            &[&of_all[..], &["objective", "constraints", "freedom", "optimism"]].concat(),
        );
        check::<SweepRequest>("{}", &[&of_all[..], &["ops", "models", "formats", "batches"]].concat());
        check::<rooflined_api::Freedom>("{}", &["formats", "allow_reboot", "batch", "run_s"]);
        check::<rooflined_api::BatchRange>("{}", &["min", "max"]);
        check::<rooflined_api::ObservationRequest>(workload, &["engine", "operating_point", "tokens_per_s"]);
        check::<rooflined_api::AnalyzeRequest>(workload, &["engine", "time_s"]);
        check::<rooflined_api::CalibrateRequest>("{}", &["plan", "wait", "force"]);
        check::<rooflined_api::MeasureRequest>("{}", &["op", "formats", "workload", "workloads", "power"]);
        check::<rooflined_api::HoldRequest>(
            r#"{"app_id":"a"}"#,
            &["constraints", "query", "reason", "ttl_s"],
        );
        check::<rooflined_api::ModeRequest>(r#"{"mode":"a"}"#, &["confirm_within_s", "dry_run", "reason"]);
    }

    #[test]
    fn a_hint_names_what_was_probably_meant() {
        let (_, _, hint) = wrong::<PredictRequest>(r#"{"workload":{"formt":"int8"}}"#);
        assert!(hint.contains("did you mean format?"), "{hint}");
        let (_, _, hint) = wrong::<RecommendRequest>(r#"{"workload":{},"objective":"latenzy"}"#);
        assert!(hint.contains("did you mean latency?"), "{hint}");
    }

    #[test]
    fn an_element_of_a_list_is_named_by_its_place() {
        let found =
            wrong::<SweepRequest>(r#"{"ops":[{"kind":"gemv","n":1,"k":1},{"kind":"gemv","n":1,"k":-2}]}"#);
        assert_eq!(found.1, "ops[1].k");
    }
}
