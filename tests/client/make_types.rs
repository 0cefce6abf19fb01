//! `clients/rust/src/types.rs` from the daemon's OpenAPI document.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Map, Value};

const HEAD: &str = "//! Bodies of requests and answers, as the daemon's OpenAPI document describes them.
//!
//! Every number carries its unit in its name. `None` is unknown, never zero, or absent. Requests are made by `new` of what
//! they must have, or `default`, and a function of the name of each field that they may have. Answers may gain fields, and strings
//! that look like an enumeration may gain values.

// Written by tests/client of the daemon's repository, from GET /v1/openapi.json.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::{Model, Request, setters};
";
const WIDTH: usize = 120;
/// Words that no field can be called.
const KEYWORDS: [&str; 12] =
    ["as", "box", "do", "for", "in", "loop", "match", "mod", "move", "ref", "type", "use"];

/// The source of every type of the document.
pub fn types(document: &Value) -> String {
    let schemas = document["components"]["schemas"].as_object().expect("the document has schemas");
    let sent = sent(document, schemas);
    let mut text = HEAD.to_owned();
    for (name, schema) in schemas {
        text.push('\n');
        if schema.get("oneOf").is_some() {
            one_or_several(&mut text, name, schema);
        } else {
            structure(&mut text, name, schema, schemas, sent.contains(&**name));
        }
    }
    text
}

/// The schemas that are part of a request.
fn sent<'a>(document: &'a Value, schemas: &'a Map<String, Value>) -> BTreeSet<&'a str> {
    let operations = document["paths"].as_object().into_iter().flat_map(Map::values);
    let operations = operations.filter_map(Value::as_object).flat_map(Map::values);
    let mut open: Vec<&Value> = operations.filter_map(|operation| operation.get("requestBody")).collect();
    let mut found = BTreeSet::new();
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => open.extend(fields.values()),
            Value::Array(items) => open.extend(items),
            Value::String(text) => {
                let name = text.strip_prefix("#/components/schemas/").filter(|name| found.insert(*name));
                open.extend(name.map(|name| &schemas[name]));
            }
            _ => {}
        }
    }
    found
}

/// A text, or a list of texts.
fn one_or_several(text: &mut String, name: &str, schema: &Value) {
    let parts = schema["oneOf"].as_array().expect("a list");
    let kinds: Vec<&str> = parts.iter().filter_map(|part| part["type"].as_str()).collect();
    assert_eq!(kinds, ["string", "array"], "{name}: teach tests/client/make_types.rs this shape");
    comment(text, "", described(schema).unwrap_or(name));
    text.push_str(
        "#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]\n#[serde(untagged)]\n#[non_exhaustive]\n",
    );
    writeln!(text, "pub enum {name} {{").unwrap();
    for (variant, kind, part) in [("One", "String", &parts[0]), ("Several", "Vec<String>", &parts[1])] {
        comment(text, "    ", described(part).unwrap_or(variant));
        writeln!(text, "    {variant}({kind}),").unwrap();
    }
    text.push_str("}\n");
    for (from, made) in [("&str", "One(one.to_owned())"), ("String", "One(one)")] {
        writeln!(text, "\nimpl From<{from}> for {name} {{\n    fn from(one: {from}) -> Self {{\n        Self::{made}\n    }}\n}}").unwrap();
    }
    writeln!(text, "\nimpl<T: Into<String>> FromIterator<T> for {name} {{\n    fn from_iter<I: IntoIterator<Item = T>>(several: I) -> Self {{").unwrap();
    text.push_str("        Self::Several(several.into_iter().map(Into::into).collect())\n    }\n}\n");
}

/// A field: its schema, and whether it is always there.
type Fields<'a> = BTreeMap<&'a str, (&'a Value, bool)>;

fn structure(text: &mut String, name: &str, schema: &Value, schemas: &Map<String, Value>, is_sent: bool) {
    let mut fields = Fields::new();
    gather(&mut fields, schema, schemas);
    comment(text, "", described(schema).unwrap_or(name));
    text.push_str("#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]\n");
    text.push_str("#[non_exhaustive]\n");
    let (mut needed, mut allowed) = (Vec::new(), Vec::new());
    writeln!(text, "pub struct {name} {{").unwrap();
    for (field, (schema, required)) in fields {
        comment(text, "    ", described(schema).unwrap_or(field));
        let mut kind = type_of(field, schema, is_sent);
        let optional = kind.starts_with("Option<");
        if !required && !optional {
            kind = format!("Option<{kind}>");
        }
        if kind.starts_with("Option<") && !required {
            text.push_str("    #[serde(skip_serializing_if = \"Option::is_none\")]\n");
        }
        // Sent as null otherwise.
        match &*kind {
            "f64" if is_sent => text.push_str("    #[serde(serialize_with = \"crate::body::finite\")]\n"),
            "Option<f64>" if is_sent => {
                text.push_str("    #[serde(serialize_with = \"crate::body::finite_or_absent\")]\n");
            }
            _ => {}
        }
        let raw = if KEYWORDS.contains(&field) { "r#" } else { "" };
        match kind.strip_prefix("Option<").and_then(|inner| inner.strip_suffix('>')) {
            Some(inner) => allowed.push(format!("{raw}{field}: {}", setter(inner))),
            None => needed.push(format!("{raw}{field}: {}", setter(&kind))),
        }
        writeln!(text, "    pub {raw}{field}: {kind},").unwrap();
    }
    if let Some(rest) = schema.get("additionalProperties").filter(|rest| rest.is_object()) {
        comment(text, "    ", described(rest).unwrap_or("Further fields."));
        let kind = type_of("", rest, is_sent);
        writeln!(text, "    #[serde(flatten, deserialize_with = \"crate::verbs::known\")]\n    pub fields: BTreeMap<String, {kind}>,").unwrap();
    }
    text.push_str("}\n");
    if is_sent {
        writeln!(text, "\nimpl Request for {name} {{}}").unwrap();
        let fields = |fields: &[String]| fields.join(",\n    ");
        let (needed, allowed) = (format!("{};", fields(&needed)), fields(&allowed));
        writeln!(text, "setters!({name} {{\n    {needed}").unwrap();
        if !allowed.is_empty() {
            writeln!(text, "    {allowed}").unwrap();
        }
        text.push_str("});\n");
    }
}

/// How a field is given: `text` and the like as anything that becomes it, lists as anything that has items.
fn setter(kind: &str) -> String {
    let becomes = |kind: &str| matches!(kind, "String" | "Value" | "Model" | "ModesRequest");
    match kind.strip_prefix("Vec<").and_then(|inner| inner.strip_suffix('>')) {
        Some(item) if becomes(item) => format!("all {item}"),
        Some(item) => format!("each {item}"),
        None if becomes(kind) => format!("into {kind}"),
        None => format!("just {kind}"),
    }
}

/// The fields of a schema and of those that it is made of.
fn gather<'a>(fields: &mut Fields<'a>, schema: &'a Value, schemas: &'a Map<String, Value>) {
    if let Some(name) = reference(schema) {
        gather(fields, &schemas[name], schemas);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        gather(fields, part, schemas);
    }
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        fields.insert(name, (field, required.contains(&Value::from(&**name))));
    }
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

fn described(schema: &Value) -> Option<&str> {
    let parts = schema["oneOf"].as_array().into_iter().flatten();
    let below = parts.chain(schema["allOf"].as_array().into_iter().flatten());
    let mut texts = [schema].into_iter().chain(below).filter_map(|part| part["description"].as_str());
    texts.find(|text| !text.is_empty())
}

fn type_of(field: &str, schema: &Value, is_sent: bool) -> String {
    if is_sent && matches!(field, "model" | "models") && schema.get("type").is_none_or(|kind| kind == "array")
    {
        return if field == "model" { "Option<Model>".into() } else { "Vec<Model>".into() };
    }
    if let Some(name) = reference(schema) {
        return name.to_owned();
    }
    if let Some(parts) = schema["oneOf"].as_array() {
        let (nothing, known): (Vec<&Value>, Vec<&Value>) =
            parts.iter().partition(|part| part["type"] == "null");
        let [known] = known[..] else { return "Value".into() };
        let kind = type_of("", known, is_sent);
        return if nothing.is_empty() { kind } else { format!("Option<{kind}>") };
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let plain = kinds.iter().find(|kind| **kind != "null");
    let kind = match plain.copied() {
        Some("array") => format!("Vec<{}>", type_of("", &schema["items"], is_sent)),
        Some("object") => match schema.get("additionalProperties").filter(|inner| inner.is_object()) {
            Some(inner) => format!("BTreeMap<String, {}>", type_of("", inner, is_sent)),
            None => "Value".into(),
        },
        // Of more bits than the document says: a later daemon may count further.
        Some("integer") if schema["minimum"].as_f64().is_some_and(|least| least >= 0.0) => "u64".into(),
        Some("integer") => "i64".into(),
        Some("number") => "f64".into(),
        Some("string") => "String".into(),
        Some("boolean") => "bool".into(),
        _ => "Value".into(),
    };
    if kinds.contains(&"null") { format!("Option<{kind}>") } else { kind }
}

/// Lines of documentation, filled.
fn comment(text: &mut String, indent: &str, words: &str) {
    let mut line = String::new();
    let mut in_code = false;
    for word in words.split_whitespace() {
        // What rustdoc would take for a link or a tag, outside code.
        let mut escaped = String::new();
        for letter in word.chars() {
            in_code ^= letter == '`';
            if !in_code && "[]<>".contains(letter) {
                escaped.push('\\');
            }
            escaped.push(letter);
        }
        if !line.is_empty() && indent.len() + 5 + line.len() + escaped.len() > WIDTH {
            writeln!(text, "{indent}///{line}").unwrap();
            line.clear();
        }
        line.push(' ');
        line.push_str(&escaped);
    }
    writeln!(text, "{indent}///{line}").unwrap();
}
