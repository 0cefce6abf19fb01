//! A request's `a{sv}` as the JSON that it stands for, written while the message is read, without a value in memory for
//! each of its values.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use zbus::wire::{Signature, Type};

use crate::server::members::Members;
use crate::server::model_files::{MAX_DESCRIPTORS, Received};
use roofline::refusal::{Code, Refusal};

/// Longest way to a value that an error names.
const MAX_PATH: usize = 80;

/// What a request came to.
#[derive(Debug)]
pub struct Given(pub Result<Body, Refusal>);

/// A request in JSON, with the descriptors that it has places of.
#[derive(Debug, Default)]
pub struct Body {
    pub json: Vec<u8>,
    pub descriptors: Vec<Arc<Received>>,
}

impl Type for Given {
    const SIGNATURE: &'static Signature = Members::SIGNATURE;
}

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut writer = Writer::default();
        let read = deserializer.deserialize_map(Object(&mut writer));
        match (writer.refusal, read) {
            (Some(refusal), _) => Ok(Self(Err(refusal))),
            (None, Ok(())) => Ok(Self(Ok(writer.body))),
            (None, Err(error)) => Err(error),
        }
    }
}

/// JSON so far.
#[derive(Default)]
struct Writer {
    body: Body,
    /// The way to what is being read.
    path: String,
    /// Why nothing more is read.
    refusal: Option<Refusal>,
}

impl Writer {
    fn refuse<E: Error>(&mut self, message: &str, hint: &str) -> E {
        let path: String = self.path.chars().take(MAX_PATH).collect();
        self.refusal = Some(Code::InvalidField.at(&path, format!("{path} {message}"), hint));
        E::custom("the request is refused")
    }

    fn write<E: Error>(&mut self, value: &(impl serde::Serialize + ?Sized)) -> Result<(), E> {
        serde_json::to_writer(&mut self.body.json, value).map_err(E::custom)
    }

    fn number<E: Error>(&mut self, number: f64) -> Result<(), E> {
        if number.is_finite() {
            return self.write(&number);
        }
        Err(self.refuse(&format!("is {number}"), "give a finite number"))
    }

    fn descriptor<E: Error>(&mut self, descriptor: &impl AsFd) -> Result<(), E> {
        let place = self.body.descriptors.len();
        if place == MAX_DESCRIPTORS {
            return Err(self.refuse("is one descriptor too many", "send fewer at a time"));
        }
        let Ok(own) = descriptor.as_fd().try_clone_to_owned() else {
            return Err(self.refuse("cannot be kept open", "try again in a second"));
        };
        self.body.descriptors.push(Arc::new(Received::new(own, Vec::new())));
        self.write(&place)
    }

    /// What is read next lies a step further.
    fn inside<R>(&mut self, step: fmt::Arguments<'_>, read: impl FnOnce(&mut Self) -> R) -> R {
        let back = self.path.len();
        // Writing into memory does not fail.
        let _ = fmt::Write::write_fmt(&mut self.path, step);
        let read = read(self);
        if self.refusal.is_none() {
            self.path.truncate(back);
        }
        read
    }
}

/// A dictionary with keys that are strings.
struct Object<'w>(&'w mut Writer);

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a dictionary")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        object(self.0, members, &Signature::Variant)
    }
}

fn object<'de, A: MapAccess<'de>>(
    writer: &mut Writer,
    mut members: A,
    signature: &Signature,
) -> Result<(), A::Error> {
    writer.body.json.push(b'{');
    let mut first = true;
    while let Some(key) = members.next_key::<&str>()? {
        if !std::mem::take(&mut first) {
            writer.body.json.push(b',');
        }
        writer.write(key)?;
        writer.body.json.push(b':');
        let step = if writer.path.is_empty() { format_args!("{key}") } else { format_args!(".{key}") };
        writer.inside(step, |writer| members.next_value_seed(Value { writer, signature }))?;
    }
    writer.body.json.push(b'}');
    Ok(())
}

/// A value of that type.
struct Value<'w, 's> {
    writer: &'w mut Writer,
    signature: &'s Signature,
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Self { writer, signature } = self;
        match signature {
            Signature::U8 => writer.write(&u8::deserialize(deserializer)?),
            Signature::Bool => writer.write(&bool::deserialize(deserializer)?),
            Signature::I16 => writer.write(&i16::deserialize(deserializer)?),
            Signature::U16 => writer.write(&u16::deserialize(deserializer)?),
            Signature::I32 => writer.write(&i32::deserialize(deserializer)?),
            Signature::U32 => writer.write(&u32::deserialize(deserializer)?),
            Signature::I64 => writer.write(&i64::deserialize(deserializer)?),
            Signature::U64 => writer.write(&u64::deserialize(deserializer)?),
            Signature::F64 => {
                let number = f64::deserialize(deserializer)?;
                writer.number(number)
            }
            Signature::Str | Signature::Signature | Signature::ObjectPath => {
                writer.write(<&str>::deserialize(deserializer)?)
            }
            Signature::Fd => {
                let descriptor = zbus::Fd::deserialize(deserializer)?;
                writer.descriptor(&descriptor)
            }
            Signature::Dict { key, .. } if *key.signature() != Signature::Str => {
                Err(writer.refuse("has a key that is no string", "use a{sv} for objects"))
            }
            _ => deserializer.deserialize_any(Container { writer, signature }),
        }
    }
}

/// A variant, a list, a dictionary or a structure.
struct Container<'w, 's> {
    writer: &'w mut Writer,
    signature: &'s Signature,
}

impl<'de> Visitor<'de> for Container<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.writer.write(&())
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        match self.signature {
            Signature::Dict { value, .. } => object(self.writer, members, value.signature()),
            other => Err(A::Error::custom(format!("{other} is no dictionary"))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { writer, signature } = self;
        let ended = || A::Error::custom("the message ends too early");
        if *signature == Signature::Variant {
            let signature = &items.next_element::<Signature>()?.ok_or_else(ended)?;
            return items.next_element_seed(Value { writer, signature })?.ok_or_else(ended);
        }
        writer.body.json.push(b'[');
        let mut fields = match signature {
            Signature::Structure(fields) => Some(fields.iter()),
            _ => None,
        };
        for index in 0_usize.. {
            let signature = match (&mut fields, signature) {
                (Some(fields), _) => match fields.next() {
                    Some(field) => field,
                    None => break,
                },
                (None, Signature::Array(child)) => child.signature(),
                (None, other) => return Err(A::Error::custom(format!("{other} is no list"))),
            };
            let before = writer.body.json.len();
            if index > 0 {
                writer.body.json.push(b',');
            }
            let read = |writer: &mut Writer| items.next_element_seed(Value { writer, signature });
            if writer.inside(format_args!("[{index}]"), read)?.is_none() {
                writer.body.json.truncate(before);
                break;
            }
        }
        writer.body.json.push(b']');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::fd::OwnedFd;

    use super::super::convert::to_variants;
    use super::*;
    use serde_json::json;
    use zbus::wire::serialized::Context;
    use zbus::wire::{BE, LE, to_bytes};
    use zbus::{Structure, Variant};

    fn read(members: &HashMap<String, Variant<'_>>) -> Result<Body, Refusal> {
        let context = Context::new(LE, 0);
        to_bytes(context, members).unwrap().deserialize::<Given>().unwrap().0.0
    }

    #[test]
    fn a_request_is_the_json_that_it_was_made_of_but_for_nulls() {
        assert_eq!(Given::SIGNATURE.to_string(), "a{sv}");
        for value in [
            json!({}),
            json!({"text": "x", "escaped": "a\n\u{b5}\"\\", "truth": true, "whole": 3, "negative": -3, "real": 0.5}),
            json!({"large": u64::MAX, "least": i64::MIN, "tiny": 1e-300, "empty": [], "none": {}, "": {"": [[]]}}),
            json!({"list": [1, "two", [3.5], {"four": 4}, [[[]]]], "object": {"deep": {"deeper": [true, {}]}}}),
        ] {
            for (endian, place) in [(LE, 0), (LE, 4), (BE, 0), (BE, 4)] {
                let bytes = to_bytes(Context::new(endian, place), &to_variants(value.clone())).unwrap();
                let asked = bytes.deserialize::<Given>().unwrap().0.0.unwrap();
                assert_eq!(serde_json::from_slice::<serde_json::Value>(&asked.json).unwrap(), value);
            }
        }
    }

    #[test]
    fn every_type_of_a_number_and_every_container_is_taken() {
        let members = HashMap::from([
            ("byte".to_owned(), Variant::from(7_u8)),
            ("short".to_owned(), Variant::from(-7_i16)),
            ("word".to_owned(), Variant::from(7_u16)),
            ("int".to_owned(), Variant::from(-7_i32)),
            ("uint".to_owned(), Variant::from(7_u32)),
            ("bytes".to_owned(), Variant::from(vec![1_u8, 2])),
            ("texts".to_owned(), Variant::from(vec!["a", "b"])),
            ("inner".to_owned(), Variant::Variant(Box::new(Variant::from("x")))),
            ("plain".to_owned(), Variant::from(HashMap::from([("a", 1_u32)]))),
            ("pair".to_owned(), Variant::from(Structure::from((1_u8, "b", vec![0.5])))),
        ]);
        let asked = read(&members).unwrap();
        assert_eq!(
            serde_json::from_slice::<serde_json::Value>(&asked.json).unwrap(),
            json!({
                "byte": 7, "short": -7, "word": 7, "int": -7, "uint": 7, "bytes": [1, 2], "texts": ["a", "b"],
                "inner": "x", "plain": {"a": 1}, "pair": [1, "b", [0.5]],
            })
        );
    }

    #[test]
    fn what_json_cannot_say_is_refused_by_its_way() {
        let nan = HashMap::from([("values".to_owned(), Variant::from(vec![1.0, f64::NAN]))]);
        let deep = HashMap::from([("a".to_owned(), Variant::from(HashMap::from([("b", f64::INFINITY)])))]);
        let keys = HashMap::from([("op".to_owned(), Variant::from(HashMap::from([(1_u8, "x")])))]);
        for (members, field) in [(nan, "values[1]"), (deep, "a.b"), (keys, "op")] {
            let refusal = read(&members).unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some(field));
        }
    }

    #[test]
    fn descriptors_become_their_places_and_are_few() {
        let open = || Variant::from(zbus::Fd::from(OwnedFd::from(std::fs::File::open("/dev/null").unwrap())));
        let one = |name: &str| (name.to_owned(), open());
        let asked = read(&HashMap::from([one("fd")])).unwrap();
        assert_eq!((asked.json.as_slice(), asked.descriptors.len()), (br#"{"fd":0}"#.as_slice(), 1));
        let many = HashMap::from([one("a"), one("b"), one("c")]);
        assert!(read(&many).unwrap_err().to_string().contains("one descriptor too many"));
    }
}
