//! JSON answers as lines, tables, metrics and shell variables.
//!
//! An answer that lists things has a row for each; of one that describes a single thing, such as the machine, each value is a
//! row; any other is one row. A nested field is named by its path.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::{Map, Value, json};

/// The list whose elements are the rows of an answer, by the answer's name. Every answer may have `rows`.
const LISTS: [(&str, &str); 7] = [
    ("mode", "modes"),
    ("hardware", "hardware"),
    ("model", "models"),
    ("observations", "observations"),
    ("holds", "holds"),
    ("tiling", "candidates"),
    ("formats", "formats"),
];

/// Answers that describe one thing by many values.
const DESCRIPTIONS: [&str; 4] = ["state", "board", "roofline", "config"];

fn list<'a>(name: &str, answer: &'a Value) -> Option<&'a Vec<Value>> {
    let field = LISTS.iter().find(|(of, _)| *of == name).map_or("rows", |(_, field)| field);
    answer.as_array().or_else(|| answer.get("rows")?.as_array()).or_else(|| answer.get(field)?.as_array())
}

/// What is decided and what comes after it.
fn ranked(answer: &Value) -> Option<Vec<Cow<'_, Value>>> {
    let alternatives = answer.get("alternatives")?.as_array()?;
    let decision = answer.get("decision").filter(|decision| decision.is_object())?;
    let row = |(index, candidate): (usize, &Value)| {
        let mut row = Map::from_iter([("rank".to_owned(), json!(index + 1))]);
        row.extend(candidate.as_object().cloned().unwrap_or_default());
        Cow::Owned(Value::Object(row))
    };
    Some(std::iter::once(decision).chain(alternatives).enumerate().map(row).collect())
}

/// The rows of an answer that lists things; without a list, the answer itself.
fn listed<'a>(name: &str, answer: &'a Value) -> Vec<Cow<'a, Value>> {
    if let Some(ranked) = ranked(answer) {
        return ranked;
    }
    list(name, answer)
        .map_or_else(|| vec![Cow::Borrowed(answer)], |rows| rows.iter().map(Cow::Borrowed).collect())
}

/// The rows of any answer.
fn rows<'a>(name: &str, answer: &'a Value) -> Vec<Cow<'a, Value>> {
    if DESCRIPTIONS.contains(&name) && list(name, answer).is_none() {
        described(answer).into_iter().map(Cow::Owned).collect()
    } else {
        listed(name, answer)
    }
}

/// A row for each value: its `name`, `value` and what the answer says of it (`age_s`, `low`, `provenance`, …).
fn described(answer: &Value) -> Vec<Value> {
    fn descend(path: &str, value: &Value, about: &Map<String, Value>, rows: &mut Vec<Value>) {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value {
            Value::Object(fields) if fields.contains_key("value") => {
                let mut about = about.clone();
                about.extend(
                    fields
                        .iter()
                        .filter(|(name, _)| *name != "value")
                        .map(|(name, value)| (name.clone(), value.clone())),
                );
                descend(path, &fields["value"], &about, rows);
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    let mut about = about.clone();
                    // Why one of several values is unknown stands beside that one.
                    if let Some(Value::Object(reasons)) = about.remove("reasons")
                        && let Some(reason) = reasons.get(name)
                    {
                        about.insert("reason".to_owned(), reason.clone());
                    }
                    descend(&below(name), value, &about, rows);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    descend(&below(&index.to_string()), item, about, rows);
                }
            }
            _ => {
                let mut row =
                    Map::from_iter([("name".to_owned(), json!(path)), ("value".to_owned(), value.clone())]);
                row.extend(about.iter().map(|(name, value)| (name.clone(), value.clone())));
                rows.push(Value::Object(row));
            }
        }
    }
    let mut rows = Vec::new();
    let sources = answer.get("sources");
    for (name, value) in answer.as_object().into_iter().flatten().filter(|(name, _)| *name != "sources") {
        let source = sources.and_then(|sources| sources.get(name));
        let about = source.map(|source| ("source".to_owned(), source.clone())).into_iter().collect();
        descend(name, value, &about, &mut rows);
    }
    rows
}

/// The scalars below `value` with their paths, parts joined by `separator`.
fn leaves<'a>(value: &'a Value, separator: &str) -> Vec<(String, &'a Value)> {
    fn descend<'a>(path: &str, value: &'a Value, separator: &str, found: &mut Vec<(String, &'a Value)>) {
        let below =
            |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}{separator}{name}") };
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    descend(&below(name), value, separator, found);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    descend(&below(&index.to_string()), item, separator, found);
                }
            }
            _ => found.push((path.to_owned(), value)),
        }
    }
    let mut found = Vec::new();
    descend("", value, separator, &mut found);
    found
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// One row a line.
#[must_use]
pub fn json_lines(name: &str, answer: &Value) -> String {
    rows(name, answer).into_iter().fold(String::new(), |mut text, row| {
        let _ = writeln!(text, "{row}");
        text
    })
}

/// A header and one line a row; columns in the order in which they first appear.
#[must_use]
pub fn csv(name: &str, answer: &Value) -> String {
    let rows = rows(name, answer);
    let rows: Vec<_> = rows.iter().map(|row| leaves(row, ".")).collect();
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let mut text = record(columns.iter().map(|name| (*name).to_owned()));
    for row in &rows {
        let cell = |column: &&str| {
            row.iter().find(|(name, _)| name == column).map(|(_, value)| scalar(value)).unwrap_or_default()
        };
        text.push_str(&record(columns.iter().map(cell)));
    }
    text
}

/// One CSV record after RFC 4180, with the line ending of this system.
fn record(cells: impl Iterator<Item = String>) -> String {
    let quoted = cells.map(|cell| {
        if cell.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell
        }
    });
    quoted.collect::<Vec<_>>().join(",") + "\n"
}

/// Numbers as gauges; what names a row (text fields, shape, batch) becomes its labels.
#[must_use]
pub fn prometheus(name: &str, answer: &Value) -> String {
    let rows = listed(name, answer);
    let several = rows.len() > 1 || list(name, answer).is_some();
    let mut gauges: Vec<(String, Vec<String>)> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let labels = if several { labels(index, row) } else { String::new() };
        for (path, value) in leaves(row, "_") {
            let number = match value {
                Value::Number(number) => number.to_string(),
                Value::Bool(flag) => u8::from(*flag).to_string(),
                _ => continue,
            };
            let gauge = metric_name(&format!("rooflined_{name}_{path}"));
            let line = format!("{gauge}{labels} {number}");
            match gauges.iter_mut().find(|(known, _)| *known == gauge) {
                Some((_, lines)) => lines.push(line),
                None => gauges.push((gauge, vec![line])),
            }
        }
    }
    gauges.iter().fold(String::new(), |mut text, (gauge, lines)| {
        let _ = writeln!(text, "# TYPE {gauge} gauge\n{}", lines.join("\n"));
        text
    })
}

fn labels(index: usize, row: &Value) -> String {
    let mut labels = vec![format!("row=\"{index}\"")];
    for name in ["op", "format", "batch", "key", "name", "power_mode", "app_id"] {
        let text = match row.get(name) {
            Some(Value::Object(op)) => op.values().map(scalar).collect::<Vec<_>>().join(" "),
            Some(value) => scalar(value),
            None => continue,
        };
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        labels.push(format!("{name}=\"{text}\""));
    }
    format!("{{{}}}", labels.join(","))
}

fn metric_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// `ROOFLINED_DECISION_FORMAT='int8'` lines. Unknown values are empty.
#[must_use]
pub fn environment(value: &Value) -> String {
    leaves(value, "_").into_iter().fold(String::new(), |mut text, (path, value)| {
        let name = metric_name(&path).to_ascii_uppercase();
        // Within single quotes a shell reads everything but the single quote as it is.
        let _ = writeln!(text, "ROOFLINED_{name}='{}'", scalar(value).replace('\'', "'\\''"));
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn csv_quotes_what_needs_it_and_leaves_unknown_empty() {
        let value = json!({"rows": [{"a": "x,\"y\"", "b": {"c": 1}}, {"a": null, "d": true}], "serial": 3});
        assert_eq!(csv("sweep", &value), "a,b.c,d\n\"x,\"\"y\"\"\",1,\n,,true\n");
        assert_eq!(json_lines("sweep", &value).lines().count(), 2);
    }

    #[test]
    fn every_list_has_a_row_for_each_thing_and_an_empty_one_has_none() {
        for (name, field) in LISTS {
            let answer = json!({ field: [{ "id": 1 }, { "id": 2 }], "serial": 3 });
            assert_eq!(csv(name, &answer), "id\n1\n2\n", "{name}");
            assert_eq!(json_lines(name, &json!({ field: [], "serial": 3 })), "", "{name}");
        }
        let recommended =
            json!({ "decision": { "format": "int8" }, "alternatives": [{ "format": "q8_0" }], "serial": 3 });
        assert_eq!(csv("recommend", &recommended), "format,rank\nint8,1\nq8_0,2\n");
        let infeasible = json!({ "decision": null, "alternatives": [], "feasible": false });
        assert_eq!(json_lines("recommend", &infeasible), format!("{infeasible}\n"));
    }

    #[test]
    fn each_value_of_a_description_is_a_row_with_what_is_said_of_it() {
        let state = json!({
            "gpu_hz": { "value": 9e8, "age_s": 0.5 },
            "temperatures_c": { "value": { "cpu": 40.5, "pva": null }, "age_s": 1.0, "reasons": { "pva": "off" } },
            "sources": { "gpu_hz": "/sys/x" },
            "serial": 3,
        });
        let text = csv("state", &state);
        let mut columns: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        columns.sort_unstable();
        assert_eq!(columns, ["age_s", "name", "reason", "source", "value"]);
        let lines: Vec<Value> =
            json_lines("state", &state).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        assert!(lines.contains(&json!({ "name": "gpu_hz", "value": 9e8, "age_s": 0.5, "source": "/sys/x" })));
        assert!(lines.contains(&json!({ "name": "temperatures_c.cpu", "value": 40.5, "age_s": 1.0 })));
        let unknown = json!({ "name": "temperatures_c.pva", "value": null, "age_s": 1.0, "reason": "off" });
        assert!(lines.contains(&unknown), "{lines:?}");
        assert!(prometheus("state", &state).contains("rooflined_state_temperatures_c_value_cpu 40.5\n"));
    }

    #[test]
    fn metrics_of_rows_are_told_apart_by_labels() {
        let value = json!({"rows": [
            {"op": {"kind": "gemv", "n": 2}, "format": "q\"1", "time_s": 0.5},
            {"op": {"kind": "gemv", "n": 4}, "format": "fp32", "time_s": null},
        ]});
        let text = prometheus("sweep", &value);
        assert!(
            text.contains("rooflined_sweep_time_s{row=\"0\",op=\"gemv 2\",format=\"q\\\"1\"} 0.5\n"),
            "{text}"
        );
        assert_eq!(text.matches("# TYPE rooflined_sweep_time_s gauge").count(), 1);
        assert!(!text.contains("time_s{row=\"1\""), "unknown is no number");
    }

    #[test]
    fn shell_values_cannot_escape_their_quotes() {
        let text = environment(&json!({"reason": "it's $(x)", "power_mode": null, "a-b": [1]}));
        assert_eq!(text, "ROOFLINED_A_B_0='1'\nROOFLINED_POWER_MODE=''\nROOFLINED_REASON='it'\\''s $(x)'\n");
    }
}
