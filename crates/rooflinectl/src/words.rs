//! Numbers, operations and ages as people read them.

use serde_json::Value;

use rooflined_api::{EstimateAnswer, MeasuredOp, PowerAnswer, SweepRow};
use rooflined_core::operation::Op;
use rooflined_core::units::{
    Bytes, BytesPerSecond, Celsius, FlopsPerSecond, Hertz, Joules, Seconds, Watts, counted, significant,
};
use rooflined_predict::Limit;
use rooflined_predict::power::scope_words;

/// `gemv 4096x4096`, `gemm 64x4096x4096`, `attention 1x32/8x128, 1+4096 tokens`.
#[must_use]
pub fn operation(op: &Op) -> String {
    match *op {
        Op::Gemv { n, k } => format!("gemv {n}x{k}"),
        Op::Gemm { m, n, k } => format!("gemm {m}x{n}x{k}"),
        Op::Attention { batch, heads, kv_heads, query_tokens, context_tokens, head_dim, window } => {
            let window = window.map_or_else(String::new, |window| format!(", window {window}"));
            format!(
                "attention {batch}x{heads}/{kv_heads}x{head_dim}, {query_tokens}+{context_tokens} tokens{window}"
            )
        }
    }
}

/// What was measured: an operation, or a model with its batch and context.
#[must_use]
pub fn name_measured(op: &MeasuredOp) -> String {
    match op {
        MeasuredOp::Op(op) => operation(op),
        MeasuredOp::Model(model) => {
            format!("{} x{} after {}", self::model(&model.model), model.batch, model.context_tokens)
        }
        MeasuredOp::Network(network) => format!("{} x{}", printable(&network.network), network.batch),
    }
}

/// A model's key, or the name of its file.
#[must_use]
pub fn model(reference: &Value) -> String {
    match (reference, reference.get("path").and_then(Value::as_str)) {
        (_, Some(path)) => std::path::Path::new(path)
            .file_name()
            .map_or_else(|| path.into(), |name| name.to_string_lossy())
            .into_owned(),
        (Value::String(key), None) => key.clone(),
        _ => "model".to_owned(),
    }
}

/// What a row of a sweep is about: `gemv 4096x4096 int8`, `llama-3.1-8b q4_k_m`.
#[must_use]
pub fn name_swept(row: &SweepRow) -> String {
    let what = row.op.as_ref().map_or_else(|| row.model.clone().unwrap_or_default(), operation);
    row.prediction.format.as_ref().map_or_else(|| what.clone(), |format| format!("{what} {format}"))
}

/// `13.1 W (module)`
#[must_use]
pub fn power(power: &PowerAnswer) -> String {
    with_scope(Watts(power.value), Some(&power.scope))
}

/// Watts with what they cover.
#[must_use]
pub fn with_scope(watts: Watts, scope: Option<&String>) -> String {
    scope.map_or_else(|| watts.to_string(), |scope| format!("{watts} ({})", scope_words(scope)))
}

/// The words of a file or of another program, without what would drive the terminal.
#[must_use]
pub fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// A sentence with the system's errors in words: `No such file or directory (os error 2)`.
pub fn without_numbers(sentence: &str) -> String {
    let sentence = sentence.replace("No such file or directory", "there is no such file or directory");
    let mut parts = sentence.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |said, part| match part.split_once(')') {
        Some((number, rest)) if number.parse::<i32>().is_ok() => said + rest,
        _ => format!("{said} (os error {part}"),
    })
}

/// A time with three digits.
#[must_use]
pub fn time(seconds: f64) -> String {
    Seconds(seconds).to_string()
}

/// `117 µs (110 to 125 µs)`; the lower bound goes without its unit where all three have the same.
#[must_use]
pub fn estimate(estimate: &EstimateAnswer, unit: impl Fn(f64) -> String) -> String {
    let [value, low, high] = [estimate.value, estimate.low, estimate.high].map(unit);
    // `2 min 5 s` has no unit of its own.
    let unit_of =
        |text: &str| text.split_once(' ').map(|(_, unit)| unit.to_owned()).filter(|unit| !unit.contains(' '));
    let unit = unit_of(&value);
    let same = unit.is_some() && unit == unit_of(&low) && unit == unit_of(&high);
    let low = low.split_once(' ').filter(|_| same).map_or(low.as_str(), |(number, _)| number);
    format!("{value} ({low} to {high})")
}

/// A rate of tokens or columns: `14.2 /s`, `26.9 M/s`.
#[must_use]
pub fn rate(per_second: f64) -> String {
    let number = counted(per_second);
    if number.contains(' ') { format!("{number}/s") } else { format!("{number} /s") }
}

/// Bits of a weight, at most four digits: `16`, `4.5`, `4.531`, `16.03`.
#[must_use]
pub fn bits(bits: f64) -> String {
    let decimals = if bits < 10.0 { 3 } else { 2 };
    let text = format!("{bits:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A compute rate in a precision: `1.79 TOP/s` for integers, `422 GFLOP/s` for the others.
#[must_use]
pub fn compute(precision: &str, per_second: f64) -> String {
    FlopsPerSecond(per_second).to_string().replace("FLOP/s", compute_unit(precision))
}

/// The unit of a compute rate in a precision.
#[must_use]
pub fn compute_unit(precision: &str) -> &'static str {
    if is_integer(precision) { "OP/s" } else { "FLOP/s" }
}

/// Operations per byte in a precision: `OP/B` for integers, `FLOP/B` for the others.
#[must_use]
pub fn intensity(precision: &str, per_byte: f64) -> String {
    let unit = if is_integer(precision) { "OP/B" } else { "FLOP/B" };
    format!("{} {unit}", significant(per_byte))
}

/// Whether the operations of a precision are integer ones, which are no FLOPs.
fn is_integer(precision: &str) -> bool {
    precision.starts_with("int")
}

/// What limits a prediction, as people call it.
#[must_use]
pub fn limit(key: &str) -> String {
    let known: Option<Limit> = serde_json::from_value(key.into()).ok();
    known.map_or_else(|| key.replace('_', " "), |limit| limit.words().to_owned())
}

/// `1 candidate`, `2 candidates`.
pub fn candidates(count: u64) -> String {
    format!("{count} {}", if count == 1 { "candidate" } else { "candidates" })
}

/// From this ratio on, nobody thinks in percent.
const MANY_TIMES: f64 = 9.9995;

/// A ratio as a signed percentage: `+3.1 %`; what is ten times as much and more says so: `247 times`.
#[must_use]
pub fn signed_percent(ratio: f64) -> String {
    if ratio >= MANY_TIMES {
        return percent(1.0 + ratio);
    }
    match percent(ratio) {
        share if share.starts_with(['-', 'u']) => share,
        share => format!("+{share}"),
    }
}

/// A ratio as a percentage, with a decimal below 100, and never a zero with a sign; large ones as `24.6 times`.
#[must_use]
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    match percent.abs() {
        size if !size.is_finite() => "unknown".to_owned(),
        size if size < 0.05 => "0.0 %".to_owned(),
        size if size < 99.95 => format!("{percent:.1} %"),
        size if size >= MANY_TIMES * 100.0 => format!("{} times", significant(ratio)),
        _ => format!("{} %", significant(percent)),
    }
}

/// `12 s`, `5 min`, `3 h`, `2 days`.
#[must_use]
pub fn age(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => "under 1 s".to_owned(),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

/// A field of an answer, in the unit that its name ends in.
#[must_use]
pub fn field(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "unknown".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => {
            number.as_f64().map_or_else(|| number.to_string(), |value| quantity(name, value))
        }
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => count_repeats(items.iter().map(|item| field(name, item))),
        Value::Object(fields) => {
            let each = fields.iter().map(|(key, value)| {
                // `memory_bytes: {total: …}` keeps the unit of the outer name.
                let unit = if has_unit(key) { key } else { name };
                let text = field(unit, value);
                // `compute_flops_per_s: {int8: …}` counts integer operations.
                let text = if is_integer(key) { text.replace("FLOP/s", "OP/s") } else { text };
                format!("{} {text}", name_field(key))
            });
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

/// A quantity that stands beside `other`: written like it the two differ, or else that it is a little less or more.
#[must_use]
pub fn beside(name: &str, value: f64, other: f64) -> String {
    let shown = quantity(name, value);
    if value == other || shown != quantity(name, other) {
        return shown;
    }
    format!("a little {}", if value < other { "less" } else { "more" })
}

/// The items with repetitions counted: `2 x 4.05 GHz`.
fn count_repeats(items: impl Iterator<Item = String>) -> String {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for item in items {
        match counted.last_mut() {
            Some((last, count)) if *last == item => *count += 1,
            _ => counted.push((item, 1)),
        }
    }
    let each = counted
        .iter()
        .map(|(item, count)| if *count > 1 { format!("{count} x {item}") } else { item.clone() });
    each.collect::<Vec<_>>().join(", ")
}

const UNITS: [&str; 11] = [
    "_bytes_per_s",
    "_flops_per_s",
    "_tokens_per_s",
    "_flops_per_byte",
    "_bytes",
    "_ratio",
    "_hz",
    "_s",
    "_w",
    "_j",
    "_c",
];

fn unit_of(name: &str) -> Option<&'static str> {
    UNITS.into_iter().find(|unit| name.ends_with(unit))
}

fn has_unit(name: &str) -> bool {
    unit_of(name).is_some()
}

fn quantity(name: &str, value: f64) -> String {
    match unit_of(name) {
        Some("_bytes_per_s") => BytesPerSecond(value).to_string(),
        Some("_flops_per_s") => FlopsPerSecond(value).to_string(),
        Some("_tokens_per_s") => rate(value),
        Some("_flops_per_byte") => format!("{} FLOP/B", significant(value)),
        Some("_bytes") => Bytes(value).to_string(),
        Some("_ratio") => percent(value),
        Some("_hz") => Hertz(value).to_string(),
        Some("_s") => time(value),
        Some("_w") => Watts(value).to_string(),
        Some("_j") => Joules(value).to_string(),
        Some("_c") => Celsius(value).to_string(),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => significant(value),
    }
}

/// `cores_online` as `cores online`, without the unit that the value shows anyway; `cpu_hz` is a clock.
#[must_use]
pub fn name_field(name: &str) -> String {
    let unit = unit_of(name).filter(|unit| name.len() > unit.len()).unwrap_or_default();
    let bare = name.strip_suffix(unit).unwrap_or(name).replace('_', " ");
    if unit == "_hz" { bare + " clock" } else { bare }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn two_quantities_that_are_written_alike_are_told_apart() {
        assert_eq!(beside("memory_bytes", 23.4e9, 23.5e9), "23.4 GB");
        assert_eq!(beside("memory_bytes", 23.501e9, 23.512e9), "a little less");
        assert_eq!(beside("power_w", 15.02, 15.0), "a little more");
        assert_eq!(beside("power_w", 15.0, 15.0), "15.0 W");
    }

    #[test]
    fn the_name_of_a_field_gives_its_unit() {
        assert_eq!(field("cpu_hz", &json!([4.05e9, 4.05e9, 2e9])), "2 x 4.05 GHz, 2.00 GHz");
        assert_eq!(
            field("memory_bytes", &json!({"free": 1e9, "busy_ratio": 0.5})),
            "busy 50.0 %, free 1.00 GB"
        );
        assert_eq!(field("cores_online", &json!(2)), "2");
        assert_eq!(field("x", &Value::Null), "unknown");
        assert_eq!(name_field("cpu_hz"), "cpu clock");
        assert_eq!(name_field("memory_bytes"), "memory");
    }

    #[test]
    fn integer_operations_are_no_flops() {
        assert_eq!(compute("int8", 1.79e12), "1.79 TOP/s");
        assert_eq!(compute("fp32", 422e9), "422 GFLOP/s");
        assert_eq!(
            (intensity("int4", 50.0), intensity("fp8", 50.0)),
            ("50.0 OP/B".into(), "50.0 FLOP/B".into())
        );
        let peaks = json!({"fp16": 1e12, "int8": 2e12});
        assert_eq!(field("compute_flops_per_s", &peaks), "fp16 1.00 TFLOP/s, int8 2.00 TOP/s");
    }

    #[test]
    fn bits_of_a_weight_have_no_empty_decimals() {
        let shown = [16.0, 4.5, 4.531_25, 16.031_25, 0.0].map(bits);
        assert_eq!(shown, ["16", "4.5", "4.531", "16.03", "0"]);
    }

    #[test]
    fn shares_and_rates_have_three_digits_and_no_zero_has_a_sign() {
        assert_eq!(
            (percent(0.0), percent(-0.0), percent(1.0)),
            ("0.0 %".into(), "0.0 %".into(), "100 %".into())
        );
        assert_eq!((percent(0.9996), percent(123.456)), ("100 %".into(), "123 times".into()));
        assert_eq!((signed_percent(0.031), signed_percent(-1e-9)), ("+3.1 %".into(), "+0.0 %".into()));
        assert_eq!((signed_percent(-0.274), signed_percent(9.5)), ("-27.4 %".into(), "+950 %".into()));
        assert_eq!((signed_percent(246.0), percent(9.9999)), ("247 times".into(), "10.0 times".into()));
        assert_eq!(
            (rate(14.234), rate(1234.5), rate(0.012_34)),
            ("14.2 /s".into(), "1230 /s".into(), "0.0123 /s".into())
        );
        assert_eq!(
            (rate(999_400.0), rate(6.82e6), rate(2.69e10)),
            ("999000 /s".into(), "6.82 M/s".into(), "26.9 G/s".into())
        );
    }

    #[test]
    fn figures_are_written_as_on_the_dashboards_page() {
        let figures: Vec<(String, Option<f64>, String)> =
            serde_json::from_str(include_str!("figures.json")).unwrap();
        for (kind, value, expected) in figures {
            let value = value.unwrap_or(f64::NAN);
            let shown = match kind.as_str() {
                "time" => time(value),
                "bandwidth" => BytesPerSecond(value).to_string(),
                "bytes" => Bytes(value).to_string(),
                "power" => Watts(value).to_string(),
                "percent" => percent(value),
                "signedPercent" => signed_percent(value),
                "digits" => significant(value),
                "temperature" => Celsius(value).to_string(),
                "duration" => age(value),
                other => panic!("no figure is a {other}"),
            };
            assert_eq!(shown, expected, "{kind} {value}");
        }
    }

    #[test]
    fn limits_are_named_as_on_the_dashboards_page() {
        let limits = [Limit::Dram, Limit::Cache, Limit::Core, Limit::Compute, Limit::Launch, Limit::PowerCap];
        for of in limits {
            assert_eq!(limit(of.key()), of.words());
            let said = format!("{}: \"{}\"", of.key(), of.words());
            assert!(include_str!("dashboard/page/units.js").contains(&said), "{said}");
        }
    }

    #[test]
    fn an_interval_names_its_unit_once() {
        let interval = EstimateAnswer { value: 117e-6, low: 110e-6, high: 125e-6 };
        assert_eq!(estimate(&interval, time), "117 µs (110 to 125 µs)");
        let wide = EstimateAnswer { value: 117e-6, low: 110e-6, high: 1.25e-3 };
        assert_eq!(estimate(&wide, time), "117 µs (110 µs to 1.25 ms)");
    }

    #[test]
    fn numbers_of_the_systems_errors_are_left_out() {
        assert_eq!(
            without_numbers("a: No such file or directory (os error 2), and more (os error x)"),
            "a: there is no such file or directory, and more (os error x)"
        );
        assert_eq!(without_numbers("plain (really)"), "plain (really)");
    }
}
