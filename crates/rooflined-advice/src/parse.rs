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
            Ok(_) => {
                Code::InvalidField.at("body", "the body is not a JSON object", "write one JSON object: {…}")
            }
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
    refusals.finish().and_then(|()| {
        Err(Code::InvalidField.at("body", "the body is not this request", "write one JSON object: {…}"))
    })
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
        "it ends too early: close every bracket and quote, and send all of it"
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

/// Objects within requests, and fields that people put beside them.
const WITHIN: [(&str, &[&str]); 3] = [
    (
        "workload",
        &[
            "model",
            "op",
            "format",
            "kv_format",
            "batch",
            "context_tokens",
            "prompt_tokens",
            "output_tokens",
            "phase",
            "task",
            "threads",
            "speculative",
            "offload",
        ],
    ),
    (
        "constraints",
        &["max_power_w", "max_time_s", "max_time_per_token_s", "min_tokens_per_s", "max_memory_bytes"],
    ),
    ("freedom", &["formats", "kv_formats", "power_modes", "engines"]),
];

fn unknown_field(field: &str, known: &[&str]) -> Refusal {
    let name = field.rsplit('.').next().unwrap_or(field);
    let within = WITHIN.iter().find(|(object, fields)| known.contains(object) && fields.contains(&name));
    let hint = if let Some((object, _)) = within {
        format!("it belongs in {object}: {{\"{object}\": {{\"{name}\": …}}}}")
    } else if known.is_empty() {
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
mod tests;
