//! JSON answers as lines, tables, metrics and shell variables.
//!
//! An answer that lists things has a row for each; of one that describes a single thing, such as the machine, each value is a
//! row; any other is one row. A nested field is named by its path.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::words;

/// The list whose elements are the rows of an answer, by the answer's name. Every answer may have `rows`.
const LISTS: [(&str, &str); 8] = [
    ("mode", "modes"),
    ("hardware", "hardware"),
    ("model", "models"),
    ("observations", "observations"),
    ("holds", "holds"),
    ("tiling", "candidates"),
    ("formats", "formats"),
    ("servers", "servers"),
];

/// Answers that describe one thing by many values.
const DESCRIPTIONS: [&str; 4] = ["state", "board", "roofline", "config"];

fn list<'a>(name: &str, answer: &'a Value) -> Option<&'a Vec<Value>> {
    let field = LISTS.iter().find(|(of, _)| *of == name).map_or("rows", |(_, field)| field);
    answer.as_array().or_else(|| answer.get("rows")?.as_array()).or_else(|| answer.get(field)?.as_array())
}

/// What is decided and what comes after it.
fn rank_candidates(answer: &Value) -> Option<Vec<Cow<'_, Value>>> {
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
fn list_rows<'a>(name: &str, answer: &'a Value) -> Vec<Cow<'a, Value>> {
    if let Some(ranked) = rank_candidates(answer) {
        return ranked;
    }
    list(name, answer)
        .map_or_else(|| vec![Cow::Borrowed(answer)], |rows| rows.iter().map(Cow::Borrowed).collect())
}

/// The rows of any answer.
fn rows<'a>(name: &str, answer: &'a Value) -> Vec<Cow<'a, Value>> {
    if DESCRIPTIONS.contains(&name) && list(name, answer).is_none() {
        describe_rows(answer).into_iter().map(Cow::Owned).collect()
    } else {
        list_rows(name, answer)
    }
}

/// A row for each value: its `name`, `value` and what the answer says of it (`age_s`, `low`, `provenance`, …).
fn describe_rows(answer: &Value) -> Vec<Value> {
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

/// Whole numbers below are exact in a number of the answer.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        // A shell counts in whole numbers: bytes have no decimal point.
        Value::Number(number) => match number.as_f64() {
            Some(value) if number.is_f64() && value.fract() == 0.0 && value.abs() < MOST_EXACT => {
                format!("{value:.0}")
            }
            _ => number.to_string(),
        },
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
    if columns.is_empty() {
        return String::new();
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

/// Numbers as gauges with the names that Prometheus wants; what names a row (text fields, shape, batch) becomes its labels.
#[must_use]
pub fn prometheus(name: &str, answer: &Value) -> String {
    let rows = list_rows(name, answer);
    let several = rows.len() > 1 || list(name, answer).is_some();
    let mut gauges: Vec<Gauge> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let labels = if several { labels(index, row) } else { String::new() };
        for (path, value) in leaves(row, ".") {
            // The base unit of what is stored or carried is the byte.
            let bits = ["bits", "bits_per_weight"].into_iter().find(|bits| path.ends_with(bits));
            let (converted, scale) = match bits.and_then(|bits| Some((path.strip_suffix(bits)?, bits))) {
                Some((before, bits)) => (format!("{before}{}", bits.replace("bits", "bytes")), 0.125),
                None => (path.clone(), 1.0),
            };
            let number = match value {
                Value::Number(number) if scale == 1.0 => number.to_string(),
                Value::Number(number) => (scale * number.as_f64().unwrap_or(f64::NAN)).to_string(),
                Value::Bool(flag) => u8::from(*flag).to_string(),
                _ => continue,
            };
            let gauge = gauge_name(name, &converted, value.is_boolean());
            let line = format!("{gauge}{labels} {number}");
            match gauges.iter_mut().find(|known| known.name == gauge) {
                Some(known) => known.lines.push(line),
                None => gauges.push(Gauge { name: gauge, path: converted, lines: vec![line] }),
            }
        }
    }
    gauges.iter().fold(String::new(), |mut text, Gauge { name: gauge, path, lines }| {
        let _ = writeln!(text, "# HELP {gauge} {}.", in_words(gauge, name, path));
        let _ = writeln!(text, "# TYPE {gauge} gauge\n{}", lines.join("\n"));
        text
    })
}

/// A metric: where its numbers stand in the answer, and its lines.
struct Gauge {
    name: String,
    path: String,
    lines: Vec<String>,
}

/// What a unit at the end of a key is called in the name of a metric, the longest first.
const METRIC_UNITS: [(&str, &str); 14] = [
    ("_j_per_token", "_joules_per_token"),
    ("_bytes_per_s", "_bytes_per_second"),
    ("_flops_per_s", "_flops_per_second"),
    ("_tokens_per_s", "_tokens_per_second"),
    ("_flops_per_byte", "_flops_per_byte"),
    ("_bytes", "_bytes"),
    ("_ratio", "_ratio"),
    ("_hz", "_hertz"),
    ("_s", "_seconds"),
    ("_w", "_watts"),
    ("_j", "_joules"),
    ("_c", "_celsius"),
    ("_v", "_volts"),
    ("_a", "_amperes"),
];

/// Endings that belong to other kinds of metrics than gauges, and what stands in their place.
const RESERVED: [(&str, &str); 4] =
    [("_total", "_all"), ("_count", "_number"), ("_sum", "_whole"), ("_bucket", "_bucket_number")];

/// The name of a metric: small letters, units in whole words, and that of the value at the end. A truth has none.
fn gauge_name(name: &str, path: &str, is_truth: bool) -> String {
    let parts = path.split('.').filter(|part| *part != "value");
    let with_unit = |part: &str| {
        // The m of a product is no metre.
        let part = if part == "m" { "rows" } else { part };
        let part = format!("_{}", metric_name(part).to_ascii_lowercase());
        let unit = METRIC_UNITS.into_iter().find(|(short, _)| part.ends_with(short));
        unit.map_or_else(
            || (part.clone(), ""),
            |(short, word)| (part.strip_suffix(short).unwrap_or(&part).to_owned(), word),
        )
    };
    let parts: Vec<_> = parts.map(with_unit).collect();
    let last = parts.iter().rposition(|(_, unit)| !unit.is_empty()).filter(|_| !is_truth);
    let mut text = format!("rooflined_{name}");
    for (index, (part, unit)) in parts.iter().enumerate() {
        text.push_str(part);
        if last != Some(index) {
            text.push_str(unit);
        }
    }
    text.push_str(last.map_or("", |last| parts[last].1));
    let reserved = RESERVED.into_iter().find(|(ending, _)| text.ends_with(ending));
    reserved.map_or(text.clone(), |(ending, instead)| {
        format!("{}{instead}", text.strip_suffix(ending).unwrap_or(&text))
    })
}

/// What a metric counts and in which unit: `predict: ridge, in flops per byte`.
fn in_words(gauge: &str, name: &str, path: &str) -> String {
    let parts = path.split('.').filter_map(|part| match part {
        "value" => None,
        "low" => Some("lower end of the 90 % interval".to_owned()),
        "high" => Some("upper end of the 90 % interval".to_owned()),
        part => Some(words::name_field(part)),
    });
    let what = parts.collect::<Vec<_>>().join(", ");
    let unit = METRIC_UNITS.into_iter().find(|(_, unit)| gauge.ends_with(unit));
    let unit = unit.filter(|(_, unit)| !what.ends_with(&unit[1..]));
    let unit = unit.map_or_else(String::new, |(_, unit)| format!(", in{}", unit.replace('_', " ")));
    format!("{}: {what}{unit}", name.replace('_', " ")).replace(", in ratio", ", as a ratio")
}

fn labels(index: usize, row: &Value) -> String {
    let mut labels = vec![format!("row=\"{index}\"")];
    for name in ["op", "engine", "format", "batch", "key", "name", "power_mode", "app_id"] {
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

/// `ROOFLINED_FORMAT='int8'` lines. Unknown values are empty.
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
    fn a_shell_reads_whole_numbers_without_a_point_and_others_exactly() {
        let value =
            json!({"bytes": 3.911_003_904e9, "count": 7, "rate": 26.25, "huge": 1e300, "text": "it's"});
        let expected = "ROOFLINED_BYTES='3911003904'\nROOFLINED_COUNT='7'\nROOFLINED_HUGE='1e+300'\n\
                        ROOFLINED_RATE='26.25'\nROOFLINED_TEXT='it'\\''s'\n";
        assert_eq!(environment(&value), expected);
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
        assert!(prometheus("state", &state).contains("rooflined_state_temperatures_cpu_celsius 40.5\n"));
    }

    #[test]
    fn metrics_of_rows_are_told_apart_by_labels() {
        let value = json!({"rows": [
            {"op": {"kind": "gemv", "n": 2}, "format": "q\"1", "time_s": 0.5},
            {"op": {"kind": "gemv", "n": 4}, "format": "fp32", "time_s": null},
        ]});
        let text = prometheus("sweep", &value);
        assert!(
            text.contains("rooflined_sweep_time_seconds{row=\"0\",op=\"gemv 2\",format=\"q\\\"1\"} 0.5\n"),
            "{text}"
        );
        assert_eq!(text.matches("# TYPE rooflined_sweep_time_seconds gauge").count(), 1);
        assert!(!text.contains("time_seconds{row=\"1\""), "unknown is no number");
    }

    #[test]
    fn names_of_metrics_end_in_their_unit() {
        for (path, expected) in [
            ("time_s.value", "time_seconds"),
            ("time_s.low", "time_low_seconds"),
            ("memory_bytes.total", "memory_total_bytes"),
            ("memory_bytes.busy_ratio", "memory_bytes_busy_ratio"),
            ("compute_flops_per_s.int8.value", "compute_int8_flops_per_second"),
            ("rails_w.value.VDD_IN", "rails_vdd_in_watts"),
            ("gpu_max_hz", "gpu_max_hertz"),
            ("energy_j_per_token.value", "energy_joules_per_token"),
            ("free_blocks.value.count", "free_blocks_number"),
            ("total", "all"),
            ("op.m", "op_rows"),
            ("serial", "serial"),
        ] {
            assert_eq!(gauge_name("x", path, false), format!("rooflined_x_{expected}"), "{path}");
        }
        assert_eq!(gauge_name("x", "memory_bytes.fits", true), "rooflined_x_memory_bytes_fits");
        let formats = json!({ "formats": [{ "key": "q4_k_m", "bits_per_weight": 4.5 }] });
        let text = prometheus("formats", &formats);
        assert!(
            text.contains("rooflined_formats_bytes_per_weight{row=\"0\",key=\"q4_k_m\"} 0.5625\n"),
            "{text}"
        );
        let said = "# HELP rooflined_formats_bytes_per_weight formats: bytes per weight.\n";
        assert!(text.contains(said), "{text}");
        let said = in_words("rooflined_predict_time_high_seconds", "predict", "time_s.high");
        assert_eq!(said, "predict: time, upper end of the 90 % interval, in seconds");
    }

    #[test]
    fn shell_values_cannot_escape_their_quotes() {
        let text = environment(&json!({"reason": "it's $(x)", "power_mode": null, "a-b": [1]}));
        assert_eq!(text, "ROOFLINED_A_B_0='1'\nROOFLINED_POWER_MODE=''\nROOFLINED_REASON='it'\\''s $(x)'\n");
    }
}
