//! JSON → requests, with errors that name the field, what was found and what to do.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::error::Category;

use roofline::near::Near;
use roofline::refusal::{Code, Refusal};
use roofline::workload::MAX_DIMENSION;

/// Reads a body that is an object.
///
/// # Errors
/// A body that is no JSON, or not this request.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    // A structure would also be read from a list of its values in order, which no client means.
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => read(body),
        _ => Err(match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => Code::InvalidField.at("body", "the body is no JSON object", "send {…}"),
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
    // Paths are tracked only for the error: the good case shall not pay for them.
    serde_json::from_slice(body).or_else(|error| match error.classify() {
        // JSON has one kind of number, and some programs write every one with a point.
        Category::Data => match with_integers(body) {
            Some(body) => serde_json::from_slice(&body).map_err(|_| explain::<T>(&body)),
            None => Err(explain::<T>(body)),
        },
        Category::Syntax if is_json(body, &error) => Err(explain::<T>(body)),
        Category::Syntax | Category::Eof | Category::Io => Err(not_json(body, &error)),
    })
}

/// Whether the body is JSON all the same: serde_json also takes for bad syntax what stands where one of a list of names is
/// wanted and is no text, and a number beyond all that a computer's are.
fn is_json(body: &[u8], error: &serde_json::Error) -> bool {
    error.to_string().starts_with(TOO_LARGE) || serde_json::from_slice::<Value>(body).is_ok()
}

/// How serde_json begins to say so.
const TOO_LARGE: &str = "number out of range";

/// The same JSON with every number that is whole written without a point or an exponent: 4096.0 and 4.096e3 are 4096.
/// `None` where none is written otherwise.
fn with_integers(body: &[u8]) -> Option<Vec<u8>> {
    /// Above it neighbouring whole numbers are one floating-point number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let mut text = Vec::with_capacity(body.len());
    let (mut quoted, mut altered, mut at) = (false, false, 0);
    while let Some(&byte) = body.get(at) {
        let rest = &body[at..];
        let length = match byte {
            b'\\' if quoted => 2.min(rest.len()),
            b'-' | b'0'..=b'9' if !quoted => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
                rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len())
            }
            _ => 1,
        };
        quoted ^= byte == b'"';
        let token = &rest[..length];
        let number = std::str::from_utf8(token).ok().filter(|_| length > 1 && !quoted && byte != b'\\');
        let number =
            number.filter(|token| token.contains(['.', 'e', 'E'])).and_then(|token| token.parse().ok());
        match number.filter(|number: &f64| number.fract() == 0.0 && number.abs() <= EXACT) {
            // Minus zero is zero.
            Some(number) => {
                text.extend_from_slice(format!("{:.0}", number + 0.0).as_bytes());
                altered = true;
            }
            None => text.extend_from_slice(token),
        }
        at += length;
    }
    altered.then_some(text)
}

fn not_json(body: &[u8], error: &serde_json::Error) -> Refusal {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Code::InvalidJson.error("the body is empty", "send a JSON object with Content-Length");
    }
    let hint = if error.is_eof() {
        "the body ends too early: check Content-Length and send all of it"
    } else {
        "send one JSON object; NaN and Infinity are no JSON, and nesting ends at 128 levels"
    };
    Code::InvalidJson.error(format!("the body is no JSON: {error}"), hint)
}

/// Parses again and says which field is wrong and how.
fn explain<T: DeserializeOwned>(body: &[u8]) -> Refusal {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let Err(error) = serde_path_to_error::deserialize::<_, T>(&mut deserializer) else {
        // Only what follows the value can be wrong then.
        return Code::InvalidJson.error("something follows the JSON value", "send one JSON object");
    };
    let path = match error.path().to_string() {
        path if path == "." => String::new(),
        path => path,
    };
    let message = error.inner().to_string();
    // The position says less than the path does.
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(before, _)| before);
    if let Some(op) = wrong_operation(body, &path) {
        return op;
    }
    let names = quoted(message);
    if message.starts_with("unknown field") {
        return unknown_field(&path, &names);
    }
    if message.starts_with("missing field") {
        let field = join(&path, names.first().copied().unwrap_or_default());
        return Code::MissingField.at(&field, format!("{field} is missing"), format!("add {field}"));
    }
    let field = if path.is_empty() { "body" } else { &path };
    if error.inner().is_syntax() && !message.starts_with(TOO_LARGE) {
        let found = shown_at(body, &path).unwrap_or_default();
        let known = match known_at::<T>(body, &path).as_slice() {
            [] => "GET /v1/openapi.json has the type of every field".to_owned(),
            names => format!("one of {}", names.join(", ")),
        };
        return Code::InvalidField.at(
            field,
            format!("{field} is {found}, and a name is wanted, in quotes"),
            known,
        );
    }
    let hint = if message.starts_with("unknown variant") && names.len() > 1 {
        Near::of(names[0], names[1..].iter().copied()).hint(&format!("Known: {}", names[1..].join(", ")))
    } else {
        match shown_at(body, &path) {
            Some(found) => format!("{found} was sent; GET /v1/openapi.json has the type of every field"),
            None => "GET /v1/openapi.json has the type of every field".to_owned(),
        }
    };
    Code::InvalidField.at(field, format!("{field}: {message}"), hint)
}

fn unknown_field(path: &str, names: &[&str]) -> Refusal {
    let (name, known) = names.split_first().map_or(("", &names[..0]), |(name, known)| (*name, known));
    let name: String = name.chars().take(40).collect();
    // The path already ends with the unknown key where the deserialiser got that far.
    let field =
        if path == name || path.ends_with(&format!(".{name}")) { path.to_owned() } else { join(path, &name) };
    let hint = if known.is_empty() {
        "leave it out".to_owned()
    } else {
        Near::of(&name, known.iter().copied()).hint(&format!("Known: {}", known.join(", ")))
    };
    Code::UnknownField.at(&field, format!("{field} is no field of this request"), hint)
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// The names between backticks in a message of serde's.
fn quoted(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
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

/// The names of which the one at `path` has to be: what is said of a name that nothing has.
fn known_at<T: DeserializeOwned>(body: &[u8], path: &str) -> Vec<String> {
    let Ok(mut root) = serde_json::from_slice::<Value>(body) else { return Vec::new() };
    let Some(value) = root.pointer_mut(&pointer(path)) else { return Vec::new() };
    *value = Value::String(String::new());
    let message = serde_json::from_value::<T>(root).err().map(|error| error.to_string()).unwrap_or_default();
    let names = if message.starts_with("unknown variant ``") { quoted(&message) } else { Vec::new() };
    names.into_iter().skip(1).map(ToOwned::to_owned).collect()
}

fn shown_at(body: &[u8], path: &str) -> Option<String> {
    let root: Value = serde_json::from_slice(body).ok()?;
    let text = value_at(&root, path)?.to_string();
    let short: String = text.chars().take(40).collect();
    Some(if short.len() < text.len() { format!("{short}…") } else { short })
}

/// Dimensions of each kind of operation, required ones first.
const DIMENSIONS: [(&str, &[&str], &[&str]); 3] = [
    ("gemv", &["n", "k"], &[]),
    ("gemm", &["m", "n", "k"], &[]),
    ("attention", &["batch", "heads", "kv_heads", "query_tokens", "context_tokens", "head_dim"], &["window"]),
];

/// What is wrong with the operation at `path`. A tagged enumeration loses the path inside itself, so it is read again
/// by hand.
fn wrong_operation(body: &[u8], path: &str) -> Option<Refusal> {
    let is_op = path == "op" || path.ends_with(".op") || (path.starts_with("ops[") && path.ends_with(']'));
    if !is_op {
        return None;
    }
    let root: Value = serde_json::from_slice(body).ok()?;
    let Value::Object(op) = value_at(&root, path)? else {
        return Some(Code::InvalidField.at(
            path,
            format!("{path} is no object"),
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
        let short: String = kind.chars().take(40).collect();
        let hint = Near::of(kind, kinds()).hint("Known: gemv, gemm, attention");
        return Some(Code::InvalidField.at(at("kind"), format!("{short:?} is no kind of operation"), hint));
    };
    let known = || required.iter().chain(*optional).copied();
    for (name, value) in op.iter().filter(|(name, _)| *name != "kind") {
        if !known().any(|field| field == name) {
            return Some(unknown_field(path, &[&[name.as_str()][..], &known().collect::<Vec<_>>()].concat()));
        }
        let may_be_null = optional.contains(&name.as_str());
        if value.as_u64().is_none() && !(value.is_null() && may_be_null) {
            let short: String = value.to_string().chars().take(40).collect();
            return Some(Code::InvalidDimension.at(
                at(name),
                format!("{path}.{name} is {short}"),
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
    use wire::{JointRequest, PredictRequest, RecommendRequest, SweepRequest};

    fn wrong<T: DeserializeOwned + std::fmt::Debug>(body: &str) -> (&'static str, String, String) {
        let error = parse::<T>(body.as_bytes()).unwrap_err();
        (error.code.key(), error.field.unwrap_or_default(), error.hint)
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
            (r#"{"workload":{"model":"m","batch":1.0,"batch":2.0}}"#, "workload"),
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
    fn what_is_no_text_where_a_name_is_wanted_is_a_wrong_field_and_no_bad_json() {
        use roofline::names::Engine;
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
        let (code, field, hint) =
            wrong::<JointRequest>(r#"{"workloads":[{"workload":{}},{"workload":{"batch":2.0},"engine":7}]}"#);
        assert_eq!((code, field.as_str()), ("invalid_field", "workloads[1].engine"));
        assert!(hint.contains("vllm"), "{hint}");
        let (code, field, _) =
            wrong::<RecommendRequest>(r#"{"workload":{},"constraints":{"max_power_w":1e999}}"#);
        assert_eq!((code, field.as_str()), ("invalid_field", "constraints.max_power_w"));
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
        check::<JointRequest>(
            r#"{"workloads":[]}"#,
            &["sharing", "objective", "constraints", "freedom", "optimism"],
        );
        check::<wire::JointWorkload>(workload, &["engine", "share", "constraints", "freedom"]);
        check::<wire::Freedom>("{}", &["formats", "allow_reboot", "batch", "run_s"]);
        check::<wire::BatchRange>("{}", &["min", "max"]);
        check::<wire::ObservationRequest>(workload, &["engine", "operating_point", "tokens_per_s"]);
        check::<wire::AnalyzeRequest>(workload, &["engine", "time_s"]);
        check::<wire::CalibrateRequest>("{}", &["plan", "wait", "force"]);
        check::<wire::MeasureRequest>("{}", &["op", "formats", "workload", "workloads", "power"]);
        check::<wire::HoldRequest>(r#"{"app_id":"a"}"#, &["constraints", "query", "reason", "ttl_s"]);
        check::<wire::ModeRequest>(r#"{"mode":"a"}"#, &["confirm_within_s", "dry_run", "reason"]);
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
