//! An answer in JSON as `a{sv}`, without a variant for each of its values.
//!
//! Types on the wire are those of [`to_variants`](super::to_variants): whole numbers `t`, or `x` below zero, others `d`,
//! lists `av`, objects `a{sv}`; `null`s are left out.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};
use zbus::wire::{Signature, Type};

/// The members of a JSON object.
#[derive(Debug, Default)]
pub struct Members(Vec<(String, Node)>);

/// What a member or an element is.
#[derive(Debug)]
enum Node {
    Null,
    Truth(bool),
    Whole(u64),
    Negative(i64),
    Real(f64),
    Text(String),
    List(Vec<Node>),
    Object(Members),
}

impl Members {
    /// Reads an object; of another value, which no answer is, there are no members.
    ///
    /// # Errors
    /// It is no JSON.
    pub fn read(json: &[u8]) -> serde_json::Result<Self> {
        match serde_json::from_slice(json)? {
            Node::Object(members) => Ok(members),
            _ => Ok(Self::default()),
        }
    }
}

impl Node {
    const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    const fn signature(&self) -> &'static Signature {
        match self {
            Self::Truth(_) => &Signature::Bool,
            Self::Whole(_) => &Signature::U64,
            Self::Negative(_) => &Signature::I64,
            Self::Real(_) => &Signature::F64,
            // A null stands nowhere.
            Self::Text(_) | Self::Null => &Signature::Str,
            Self::List(_) => <Vec<zbus::Variant<'static>> as Type>::SIGNATURE,
            Self::Object(_) => <Members as Type>::SIGNATURE,
        }
    }
}

impl Type for Members {
    const SIGNATURE: &'static Signature =
        <std::collections::HashMap<String, zbus::Variant<'static>> as Type>::SIGNATURE;
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in self.0.iter().filter(|(_, value)| !value.is_null()) {
            map.serialize_entry(key, &AsVariant(value))?;
        }
        map.end()
    }
}

/// A value behind its signature, as zbus writes variants.
struct AsVariant<'n>(&'n Node);

impl Serialize for AsVariant<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut variant = serializer.serialize_struct("Variant", 2)?;
        variant.serialize_field("signature", self.0.signature())?;
        variant.serialize_field("value", self.0)?;
        variant.end()
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_str(""),
            Self::Truth(truth) => serializer.serialize_bool(*truth),
            Self::Whole(number) => serializer.serialize_u64(*number),
            Self::Negative(number) => serializer.serialize_i64(*number),
            Self::Real(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => {
                let items = items.iter().filter(|item| !item.is_null());
                let mut list = serializer.serialize_seq(None)?;
                for item in items {
                    // An element of `av` whose value is a variant again: `v` inside `v`, as `to_variants` has it.
                    list.serialize_element(&AsVariant(item))?;
                }
                list.end()
            }
            Self::Object(members) => members.serialize(serializer),
        }
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Node, E> {
        Ok(Node::Truth(truth))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Whole(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(u64::try_from(number).map_or(Node::Negative(number), Node::Whole))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Real(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut members = Vec::with_capacity(32);
        while let Some(entry) = entries.next_entry()? {
            members.push(entry);
        }
        Ok(Node::Object(Members(members)))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::super::convert::to_variants;
    use super::*;
    use serde_json::{Value, json};
    use zbus::wire::serialized::Context;
    use zbus::wire::{LE, to_bytes};

    /// The bytes that both ways write, wherever in a message they begin.
    fn assert_alike(json: &[u8]) {
        let value: Value = serde_json::from_slice(json).unwrap();
        for place in [0, 4] {
            let context = Context::new(LE, place);
            let direct = to_bytes(context, &Members::read(json).unwrap()).unwrap();
            // The old way's order is that of a hash table: one member after the other.
            let Value::Object(members) = &value else {
                assert_eq!(direct.bytes(), to_bytes(context, &to_variants(value.clone())).unwrap().bytes());
                continue;
            };
            for (key, member) in members {
                let one = json!({ key.as_str(): member }).to_string();
                let ours = to_bytes(context, &Members::read(one.as_bytes()).unwrap()).unwrap();
                let theirs = to_bytes(context, &to_variants(serde_json::from_str(&one).unwrap())).unwrap();
                assert_eq!(ours.bytes(), theirs.bytes(), "{key}: {member}");
            }
            let read: std::collections::HashMap<String, zbus::OwnedVariant> = direct.deserialize().unwrap().0;
            let expected: std::collections::HashMap<String, zbus::OwnedVariant> = to_variants(value.clone())
                .into_iter()
                .map(|(key, variant)| (key, zbus::OwnedVariant::try_from(variant).unwrap()))
                .collect();
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn the_types_on_the_wire_are_those_of_variants() {
        assert_eq!(Members::SIGNATURE.to_string(), "a{sv}");
        for json in [
            "{}",
            "[]",
            "3",
            r#"{"text":"x","escaped":"a\n\u00b5\"","truth":true,"lie":false,"whole":3,"negative":-3,"real":0.5}"#,
            r#"{"large":18446744073709551615,"least":-9223372036854775808,"whole_real":4096.0,"tiny":1e-300}"#,
            r#"{"list":[1,"two",[3.5],{"four":4},[[[]]]],"empty":[],"none":{},"null":null,"nulls":[null,1,null]}"#,
            r#"{"object":{"deep":{"deeper":[true,{"null":null}]},"null":null}}"#,
        ] {
            assert_alike(json.as_bytes());
        }
        assert!(Members::read(b"{").is_err());
        // Answers of every kind, for every accelerator.
        let catalogue = answer::Catalogue::default();
        let mut compared = 0;
        for hardware in catalogue.hardware().keys() {
            for workload in [
                json!({"model": "llama-3.1-8b", "format": "q4_k_m", "context_tokens": 2048}),
                json!({"model": "qwen3-30b-a3b", "format": "fp16", "phase": "serve", "prompt_tokens": 512, "output_tokens": 9}),
                json!({"op": {"kind": "gemv", "n": 4096, "k": 4096}, "format": "int8"}),
            ] {
                let body = json!({"hardware": hardware, "engine": "llama.cpp", "workload": workload});
                let predict = answer::Request::Predict(serde_json::from_value(body.clone()).unwrap());
                let recommend = answer::Request::Recommend(serde_json::from_value(body).unwrap_or_default());
                for request in [predict, recommend] {
                    let Ok(answer) = answer::suppose(&catalogue, &request) else { continue };
                    assert_alike(&serde_json::to_vec(&answer).unwrap());
                    compared += 1;
                }
            }
        }
        assert!(compared > 50, "{compared}");
        let deep = format!("{}1{}", r#"{"a":["#.repeat(10), "]}".repeat(10));
        assert_alike(deep.as_bytes());
    }
}
