//! Reads a request from JSON in memory, and keeps what is wrong with it as a value: where, and in which way.
//!
//! Whole numbers may be written with a point or an exponent, as some programs write every number: 4096.0 and 4.096e3 are 4096.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Number, Value};

/// Above it neighbouring whole numbers are one floating-point number.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// What is wrong, and where.
#[derive(Debug)]
pub struct Mistake {
    /// `workload.op`, `ops[3]`; empty for the whole request.
    pub path: String,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    /// At `path`, which ends with the field.
    UnknownField { known: &'static [&'static str] },
    /// At `path`, which ends with the field.
    MissingField,
    /// One of these names is wanted.
    NotAName { found: String, known: &'static [&'static str] },
    /// The reason in the words of the parser.
    Other(String),
}

impl Mistake {
    const fn here(kind: Kind) -> Self {
        Self { path: String::new(), kind }
    }

    /// The same, of a value that lies at `step` of the one around it.
    fn inside(mut self, step: &str) -> Self {
        let joint = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{step}{joint}{}", self.path);
        self
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.path, self.kind)
    }
}

impl std::error::Error for Mistake {}

impl de::Error for Mistake {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::here(Kind::Other(message.to_string()))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::here(Kind::UnknownField { known }).inside(&short(field))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::here(Kind::MissingField).inside(field)
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::here(Kind::NotAName { found: Value::from(variant).to_string(), known })
    }
}

/// A key of a client's, short enough to show.
pub fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

/// JSON without a key that an object has twice.
pub struct Json(pub Value);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyJson)
    }
}

struct AnyJson;

impl<'de> Visitor<'de> for AnyJson {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(Json(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Json(Value::Array(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut fields = Map::new();
        while let Some((key, Json(value))) = members.next_entry::<String, Json>()? {
            if fields.contains_key(&key) {
                let key = short(&key);
                return Err(de::Error::custom(format_args!("an object has {key:?} twice")));
            }
            fields.insert(key, value);
        }
        Ok(Json(Value::Object(fields)))
    }
}

/// Reads a request from JSON.
///
/// # Errors
/// The first mistake in it.
pub fn read<T: de::DeserializeOwned>(json: &Value) -> Result<T, Mistake> {
    T::deserialize(Reader(json))
}

struct Reader<'v>(&'v Value);

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::Number(number) => visit_number(number, visitor),
            Value::String(text) => visitor.visit_str(text),
            Value::Array(list) => visitor.visit_seq(Items { rest: list.iter(), next: 0 }),
            Value::Object(fields) => visitor.visit_map(Members { rest: fields.iter(), value: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        match self.0 {
            Value::String(name) => {
                let name: StrDeserializer<'_, Mistake> = name.as_str().into_deserializer();
                visitor.visit_enum(name)
            }
            other => Err(Mistake::here(Kind::NotAName { found: other.to_string(), known })),
        }
    }

    /// A structure would also be read from a list of its values in order, which no client means.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        match self.0 {
            Value::Object(fields) => visitor.visit_map(Members { rest: fields.iter(), value: None }),
            other => Err(de::Error::custom(format_args!("expected an object, found {}", kind_of(other)))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// Whether a value is read as a whole number of 0 or more.
pub fn is_whole(value: &Value) -> bool {
    let with_point = |number: f64| number.fract() == 0.0 && (0.0..=EXACT).contains(&number);
    value.as_u64().is_some() || value.as_f64().is_some_and(with_point)
}

const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn visit_number<'de, V: Visitor<'de>>(number: &Number, visitor: V) -> Result<V::Value, Mistake> {
    if let Some(whole) = number.as_u64() {
        return visitor.visit_u64(whole);
    }
    if let Some(negative) = number.as_i64() {
        return visitor.visit_i64(negative);
    }
    let number = number.as_f64().unwrap_or(f64::NAN);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range")]
    match number {
        whole if whole.fract() != 0.0 || whole.abs() > EXACT => visitor.visit_f64(number),
        // Minus zero is zero.
        whole if whole >= 0.0 => visitor.visit_u64(whole as u64),
        whole => visitor.visit_i64(whole as i64),
    }
}

struct Items<'v> {
    rest: std::slice::Iter<'v, Value>,
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Mistake;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mistake> {
        let Some(item) = self.rest.next() else { return Ok(None) };
        let index = self.next;
        self.next += 1;
        seed.deserialize(Reader(item)).map(Some).map_err(|mistake| mistake.inside(&format!("[{index}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Members<'v> {
    rest: serde_json::map::Iter<'v>,
    /// Of the key that was read last.
    value: Option<(&'v str, &'v Value)>,
}

impl<'de> MapAccess<'de> for Members<'_> {
    type Error = Mistake;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mistake> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some((key, value));
        let key: StrDeserializer<'_, Mistake> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mistake> {
        let (key, value) = self.value.take().unwrap_or(("", &Value::Null));
        seed.deserialize(Reader(value)).map_err(|mistake| mistake.inside(&short(key)))
    }
}
