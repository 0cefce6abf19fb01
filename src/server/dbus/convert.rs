//! JSON ⇄ `a{sv}`.

use std::collections::HashMap;

use rooflined_core::refusal::{Code, Refusal};
use serde_json::{Map, Number, Value};
use zbus::wire::Signature;
use zbus::{Array, Dict, OwnedVariant, Variant};

/// What a method takes and gives.
pub type Variants = HashMap<String, Variant<'static>>;

/// The members of an object; `null`s are left out. Anything but an object has none.
#[must_use]
pub fn to_variants(value: Value) -> Variants {
    match value {
        Value::Object(map) => {
            map.into_iter().filter_map(|(key, value)| Some((key, to_variant(value)?))).collect()
        }
        _ => HashMap::new(),
    }
}

fn to_variant(value: Value) -> Option<Variant<'static>> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(truth) => Variant::Bool(truth),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(whole), _) => Variant::U64(whole),
            (None, Some(negative)) => Variant::I64(negative),
            (None, None) => Variant::F64(number.as_f64()?),
        },
        Value::String(text) => Variant::Str(text.into()),
        Value::Array(list) => {
            let mut array = Array::new(&Signature::Variant);
            for value in list.into_iter().filter_map(to_variant) {
                // Fails on another signature only, and every element is a variant.
                array.append(Variant::Variant(Box::new(value))).ok()?;
            }
            Variant::Array(array)
        }
        Value::Object(map) => {
            let mut dict = Dict::new(&Signature::Str, &Signature::Variant);
            for (key, value) in map {
                if let Some(value) = to_variant(value) {
                    dict.append(Variant::Str(key.into()), Variant::Variant(Box::new(value))).ok()?;
                }
            }
            Variant::Dict(dict)
        }
    })
}

/// The object that an `a{sv}` stands for.
///
/// # Errors
/// A number that JSON does not have, a key that is no string, or a type without a counterpart; names the field.
pub fn from_variants(variants: &HashMap<String, OwnedVariant>) -> Result<Value, Refusal> {
    let members = variants.iter().map(|(key, value)| Ok((key.clone(), from_variant(value, key)?)));
    members.collect::<Result<Map<_, _>, Refusal>>().map(Value::Object)
}

fn from_variant(variant: &Variant<'_>, path: &str) -> Result<Value, Refusal> {
    let invalid = |message: &str, hint: &str| {
        let path: String = path.chars().take(80).collect();
        Err(Code::InvalidField.at(&path, format!("{path} {message}"), hint))
    };
    let list = |items: &[Variant<'_>]| {
        let items = items.iter().enumerate();
        let items = items.map(|(index, item)| from_variant(item, &format!("{path}[{index}]")));
        items.collect::<Result<Vec<_>, _>>().map(Value::Array)
    };
    Ok(match variant {
        Variant::U8(number) => (*number).into(),
        Variant::Bool(truth) => (*truth).into(),
        Variant::I16(number) => (*number).into(),
        Variant::U16(number) => (*number).into(),
        Variant::I32(number) => (*number).into(),
        Variant::U32(number) => (*number).into(),
        Variant::I64(number) => (*number).into(),
        Variant::U64(number) => (*number).into(),
        Variant::F64(number) => match Number::from_f64(*number) {
            Some(number) => Value::Number(number),
            None => return invalid(&format!("is {number}"), "give a finite number"),
        },
        Variant::Str(text) => text.as_str().into(),
        Variant::Signature(signature) => signature.to_string().into(),
        Variant::ObjectPath(path) => path.as_str().into(),
        Variant::Variant(inner) => from_variant(inner, path)?,
        Variant::Array(array) => list(array.inner())?,
        Variant::Structure(structure) => list(structure.fields())?,
        Variant::Dict(dict) => {
            let mut map = Map::new();
            for (key, value) in dict.iter() {
                let Variant::Str(key) = key else {
                    return invalid("has a key that is not a string", "use a{sv} for objects");
                };
                map.insert(key.to_string(), from_variant(value, &format!("{path}.{key}"))?);
            }
            Value::Object(map)
        }
        Variant::Fd(_) => {
            return invalid("is a file descriptor", "give a number, string, list or dictionary");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn there_and_back(value: &Value) -> Value {
        let owned: HashMap<String, OwnedVariant> = to_variants(value.clone())
            .into_iter()
            .map(|(key, variant)| (key, OwnedVariant::try_from(variant).unwrap()))
            .collect();
        from_variants(&owned).unwrap()
    }

    #[test]
    fn json_survives_the_way_through_variants_but_for_nulls() {
        let value = json!({
            "text": "x", "truth": true, "whole": 3, "negative": -3, "real": 0.5, "large": u64::MAX,
            "list": [1, "two", [3.5], {"four": 4}], "empty": [], "none": {},
            "object": {"deep": {"deeper": [true]}},
        });
        assert_eq!(there_and_back(&value), value);
        assert_eq!(
            there_and_back(&json!({"a": null, "b": {"c": null}, "d": [null, 1]})),
            json!({"b": {}, "d": [1]})
        );
    }

    #[test]
    fn what_json_cannot_say_is_refused_by_name() {
        let variants = HashMap::from([("time_s".to_owned(), OwnedVariant::from(f64::NAN))]);
        let error = from_variants(&variants).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("time_s"));
    }
}
