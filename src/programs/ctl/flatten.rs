//! JSON answers as lines, tables, metrics and shell variables.
//!
//! Rows are the elements of the answer's list of objects (`rows`, `formats`, …) where it has one, else the answer
//! itself. A nested field is named by its path.

use std::fmt::Write;

use serde_json::Value;

/// Lists of an answer that are its rows.
const ROW_LISTS: [&str; 3] = ["rows", "formats", "modes"];

/// The rows of an answer.
fn rows(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(rows) => rows.iter().collect(),
        _ => ROW_LISTS
            .iter()
            .find_map(|name| value.get(name)?.as_array())
            .filter(|rows| !rows.is_empty() || value.get("rows").is_some())
            .map_or_else(|| vec![value], |rows| rows.iter().collect()),
    }
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
pub fn json_lines(value: &Value) -> String {
    rows(value).into_iter().fold(String::new(), |mut text, row| {
        let _ = writeln!(text, "{row}");
        text
    })
}

/// A header and one line a row; columns in the order in which they first appear.
#[must_use]
pub fn csv(value: &Value) -> String {
    let rows: Vec<_> = rows(value).into_iter().map(|row| leaves(row, ".")).collect();
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
pub fn prometheus(name: &str, value: &Value) -> String {
    let rows = rows(value);
    let several = rows.len() > 1 || value.get("rows").is_some();
    let mut gauges: Vec<(String, Vec<String>)> = Vec::new();
    for (index, row) in rows.into_iter().enumerate() {
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
    for name in ["op", "format", "batch", "key"] {
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
        assert_eq!(csv(&value), "a,b.c,d\n\"x,\"\"y\"\"\",1,\n,,true\n");
        assert_eq!(json_lines(&value).lines().count(), 2);
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
