//! Whole numbers inside what is passed on as it came: JSON has one kind of number, and some programs write every one with a
//! point. 4096.0 is 4096.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Above it neighbouring whole numbers are one floating-point number.
const EXACT: f64 = 9_007_199_254_740_992.0;

pub fn without_point<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Option::<Value>::deserialize(deserializer).map(|value| value.map(without_points))
}

pub fn list_without_points<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    let values = Option::<Vec<Value>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(values.into_iter().map(without_points).collect())
}

fn without_points(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
            Some(whole) if whole.fract() == 0.0 && whole.abs() <= EXACT => (whole as i64).into(),
            _ => Value::Number(number),
        },
        Value::Array(values) => values.into_iter().map(without_points).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, without_points(value))).collect()
        }
        other => other,
    }
}
