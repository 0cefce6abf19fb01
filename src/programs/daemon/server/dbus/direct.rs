//! An answer in JSON as `a{sv}`, without a value in memory for each of its values.
//!
//! Types on the wire are those of [`to_variants`](super::to_variants): whole numbers `t`, or `x` below zero, others `d`,
//! lists `av`, objects `a{sv}`; `null`s are left out. The bytes are written while the JSON is read, and zbus is handed them
//! eight at a time, as numbers: a signature for each value, parsed again for each, takes it several times as long. Entries
//! of a dictionary begin at a multiple of eight bytes wherever the dictionary is, so they are the same anywhere.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeSeq, Serializer};
use zbus::wire::{Endian, Signature, Type};

/// How deep a message may go: each dictionary, entry, list and variant is one.
const MAX_DEPTH: usize = 64;

/// The members of a JSON object.
#[derive(Debug, Clone)]
pub struct Members {
    endian: Endian,
    /// Of the dictionary, as they are on the wire.
    entries: Vec<u8>,
}

impl Members {
    /// Reads an object for a message of that byte order; of another value, which no answer is, there are no members.
    ///
    /// # Errors
    /// It is no JSON, or what a message cannot hold.
    pub fn read(json: &[u8], endian: Endian) -> serde_json::Result<Self> {
        let mut writer = Writer { endian, entries: Vec::with_capacity(2 * json.len()), depth: 0 };
        let mut json = serde_json::Deserializer::from_slice(json);
        json.deserialize_any(Whole(&mut writer))?;
        json.end()?;
        Ok(Self { endian, entries: writer.entries })
    }
}

impl Type for Members {
    const SIGNATURE: &'static Signature =
        <std::collections::HashMap<String, zbus::Variant<'static>> as Type>::SIGNATURE;
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (words, rest) = self.entries.as_chunks();
        // zbus writes its length, and the padding up to the first entry.
        let mut dictionary = serializer.serialize_seq(None)?;
        for word in words {
            let word = match self.endian {
                Endian::Little => u64::from_le_bytes(*word),
                Endian::Big => u64::from_be_bytes(*word),
            };
            dictionary.serialize_element(&word)?;
        }
        rest.iter().try_for_each(|byte| dictionary.serialize_element(byte))?;
        dictionary.end()
    }
}

struct Writer {
    endian: Endian,
    entries: Vec<u8>,
    depth: usize,
}

impl Writer {
    fn align(&mut self, to: usize) {
        self.entries.resize(self.entries.len().next_multiple_of(to), 0);
    }

    fn half_word(&mut self, number: u32) {
        self.align(4);
        self.entries.extend_from_slice(&match self.endian {
            Endian::Little => number.to_le_bytes(),
            Endian::Big => number.to_be_bytes(),
        });
    }

    fn word(&mut self, number: u64) {
        self.align(8);
        self.entries.extend_from_slice(&match self.endian {
            Endian::Little => number.to_le_bytes(),
            Endian::Big => number.to_be_bytes(),
        });
    }

    fn text<E: Error>(&mut self, text: &str) -> Result<(), E> {
        if text.contains('\0') {
            return Err(E::custom("a text holds a zero byte, which a message cannot"));
        }
        self.half_word(length(text.len())?);
        self.entries.extend_from_slice(text.as_bytes());
        self.entries.push(0);
        Ok(())
    }

    /// Begins a variant.
    fn signature(&mut self, signature: &'static str) {
        // The longest is `a{sv}`.
        self.entries.push(signature.len() as u8);
        self.entries.extend_from_slice(signature.as_bytes());
        self.entries.push(0);
    }

    /// A variant with a list or a dictionary, its elements aligned so, which take so much of the depth.
    fn container<E: Error>(
        &mut self,
        (signature, alignment, depth): (&'static str, usize, usize),
        elements: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.depth += depth;
        if self.depth > MAX_DEPTH {
            return Err(E::custom("it is deeper than a message may be"));
        }
        self.signature(signature);
        self.half_word(0);
        let before = self.entries.len();
        self.align(alignment);
        let start = self.entries.len();
        elements(self)?;
        let length = length(self.entries.len() - start)?;
        self.entries[before - 4..before].copy_from_slice(&match self.endian {
            Endian::Little => length.to_le_bytes(),
            Endian::Big => length.to_be_bytes(),
        });
        self.depth -= depth;
        Ok(())
    }

    fn members<'de, A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        loop {
            let start = self.entries.len();
            self.align(8);
            let something = match members.next_key_seed(Key(self))? {
                Some(()) => members.next_value_seed(Value(self))?,
                None => {
                    self.entries.truncate(start);
                    return Ok(());
                }
            };
            // The key of what is left out.
            if !something {
                self.entries.truncate(start);
            }
        }
    }
}

fn length<E: Error>(length: usize) -> Result<u32, E> {
    u32::try_from(length).map_err(|_| E::custom("it is larger than a message may be"))
}

/// What is answered; only an object has members.
struct Whole<'w>(&'w mut Writer);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        self.0.members(members)
    }
}

struct Key<'w>(&'w mut Writer);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<(), E> {
        self.0.text(key)
    }
}

/// A value behind its signature; whether it is any.
struct Value<'w>(&'w mut Writer);

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<bool, E> {
        self.0.signature("b");
        self.0.half_word(u32::from(truth));
        Ok(true)
    }

    fn visit_u64<E>(self, number: u64) -> Result<bool, E> {
        self.0.signature("t");
        self.0.word(number);
        Ok(true)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<bool, E> {
        if let Ok(whole) = u64::try_from(number) {
            return self.visit_u64(whole);
        }
        self.0.signature("x");
        self.0.word(number.cast_unsigned());
        Ok(true)
    }

    fn visit_f64<E>(self, number: f64) -> Result<bool, E> {
        self.0.signature("d");
        self.0.word(number.to_bits());
        Ok(true)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<bool, E> {
        self.0.signature("s");
        self.0.text(text)?;
        Ok(true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        self.0.container(("av", 1, 2), |writer| {
            while items.next_element_seed(Value(writer))?.is_some() {}
            Ok(())
        })?;
        Ok(true)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<bool, A::Error> {
        self.0.container(("a{sv}", 8, 3), |writer| writer.members(members))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::convert::to_variants;
    use super::*;
    use serde_json::json;
    use zbus::wire::serialized::Context;
    use zbus::wire::{BE, LE, to_bytes};

    /// The bytes that both ways write, wherever in a message they begin.
    fn assert_alike(json: &[u8]) {
        let value: serde_json::Value = serde_json::from_slice(json).unwrap();
        for (endian, place) in [(LE, 0), (LE, 4), (BE, 0), (BE, 4)] {
            let context = Context::new(endian, place);
            let direct = to_bytes(context, &Members::read(json, endian).unwrap()).unwrap();
            // The old way's order is that of a hash table: one member after the other.
            let serde_json::Value::Object(members) = &value else {
                assert_eq!(direct.bytes(), to_bytes(context, &to_variants(value.clone())).unwrap().bytes());
                continue;
            };
            for (key, member) in members {
                let one = json!({ key.as_str(): member }).to_string();
                let ours = to_bytes(context, &Members::read(one.as_bytes(), endian).unwrap()).unwrap();
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
        for broken in ["{", "{} 1", r#"{"a":"\u0000"}"#, r#"{"\u0000":1}"#] {
            assert!(Members::read(broken.as_bytes(), LE).is_err(), "{broken}");
        }
        // No deeper than zbus would let it be.
        let deep = format!("{}1{}", r#"{"a":"#.repeat(22), "}".repeat(22));
        assert!(Members::read(deep.as_bytes(), LE).is_ok());
        let deep = format!("{}1{}", r#"{"a":"#.repeat(60), "}".repeat(60));
        assert!(Members::read(deep.as_bytes(), LE).is_err());
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
