//! An answer as `a{sv}`, written from the answer itself, without a value in memory or a text for each of its values.
//!
//! Types on the wire are those of [`to_variants`](super::dbus::to_variants): whole numbers `t`, or `x` below zero, others
//! `d`, lists `av`, objects `a{sv}`; what JSON would call `null` is left out. zbus is handed the bytes eight at a time, as
//! numbers: a signature for each value, parsed again for each, takes it several times as long. Entries of a dictionary
//! begin at a multiple of eight bytes wherever the dictionary is, so they are the same anywhere.

use std::fmt::{self, Write as _};

use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::Error;
use zbus::wire::{Endian, Signature, Type};

/// How deep a message may go: each dictionary, entry, list and variant is one, and so is a plain value's.
const MAX_DEPTH: usize = 64;
/// How many bytes the elements of a list or dictionary may have.
const MAX_LENGTH: usize = 1 << 26;
/// Most answers are no longer.
const USUAL: usize = 2048;

/// The members of an object.
#[derive(Debug, Clone)]
pub struct Members {
    endian: Endian,
    /// Of the dictionary, as they are on the wire.
    entries: Vec<u8>,
}

impl Members {
    /// Those of what serialises as an object, for a message of that byte order.
    ///
    /// # Errors
    /// It is no object, or has what a message cannot hold.
    pub fn of(object: &(impl Serialize + ?Sized), endian: Endian) -> Result<Self, Error> {
        // The dictionary and its entry.
        let depth = DICTIONARY.2 - 1;
        let mut writer = Writer { endian, entries: Vec::with_capacity(USUAL), depth, key: String::new() };
        object.serialize(Slot { writer: &mut writer, is_whole: true })?;
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
    /// Room for a key's text.
    key: String,
}

/// A list or a dictionary whose length is not known yet.
#[derive(Clone, Copy)]
struct Open {
    /// Where its length belongs, and where its elements begin.
    length_at: usize,
    start: usize,
    /// What it takes of the depth.
    depth: usize,
}

/// Signature of a container, alignment of its elements and what it takes of the depth.
type Container = (&'static str, usize, usize);
const LIST: Container = ("av", 1, 2);
const DICTIONARY: Container = ("a{sv}", 8, 3);

impl Writer {
    fn align(&mut self, to: usize) {
        self.entries.resize(self.entries.len().next_multiple_of(to), 0);
    }

    const fn bytes_of(&self, number: u32) -> [u8; 4] {
        match self.endian {
            Endian::Little => number.to_le_bytes(),
            Endian::Big => number.to_be_bytes(),
        }
    }

    fn half_word(&mut self, number: u32) {
        self.align(4);
        self.entries.extend_from_slice(&self.bytes_of(number));
    }

    fn word(&mut self, number: u64) {
        self.align(8);
        self.entries.extend_from_slice(&match self.endian {
            Endian::Little => number.to_le_bytes(),
            Endian::Big => number.to_be_bytes(),
        });
    }

    fn text(&mut self, text: &str) -> Result<(), Error> {
        if text.contains('\0') {
            return Err(Error::custom("a text holds a zero byte, which a message cannot"));
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

    /// Begins a variant with a list or a dictionary.
    fn begin(&mut self, (signature, alignment, depth): Container) -> Result<Open, Error> {
        self.depth += depth;
        if self.depth >= MAX_DEPTH {
            return Err(Error::custom("it is deeper than a message may be"));
        }
        self.signature(signature);
        self.half_word(0);
        let length_at = self.entries.len() - 4;
        self.align(alignment);
        Ok(Open { length_at, start: self.entries.len(), depth })
    }

    fn end(&mut self, Open { length_at, start, depth }: Open) -> Result<(), Error> {
        let length = self.bytes_of(length(self.entries.len() - start)?);
        self.entries[length_at..length_at + 4].copy_from_slice(&length);
        self.depth -= depth;
        Ok(())
    }

    /// Ends an object unless it is all of the answer. It was something either way.
    fn end_if(&mut self, open: Option<Open>) -> Result<bool, Error> {
        open.map_or(Ok(()), |open| self.end(open)).map(|()| true)
    }

    /// Begins an entry; where it does is returned.
    fn entry(&mut self, key: &str) -> Result<usize, Error> {
        let start = self.entries.len();
        self.align(8);
        self.text(key)?;
        Ok(start)
    }

    /// Ends an entry; one without a value is taken back.
    fn value(&mut self, start: usize, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        if !value.serialize(Slot { writer: self, is_whole: false })? {
            self.entries.truncate(start);
        }
        Ok(())
    }
}

fn length(length: usize) -> Result<u32, Error> {
    let length = u32::try_from(length).ok().filter(|_| length <= MAX_LENGTH);
    length.ok_or_else(|| Error::custom("it is larger than a message may be"))
}

/// A key of a map as text, as JSON has it: texts, numbers, truths and names of variants.
struct Key<'k, K: ?Sized>(&'k K);

impl<K: Serialize + ?Sized> fmt::Display for Key<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.serialize(f)
    }
}

/// Where a value goes, or all of an answer; writing it says whether there was anything.
struct Slot<'w> {
    writer: &'w mut Writer,
    is_whole: bool,
}

impl<'w> Slot<'w> {
    /// Begins a variant of a plain type.
    fn plain(self, signature: &'static str) -> Result<&'w mut Writer, Error> {
        if self.is_whole {
            return Err(Error::custom("an answer is an object"));
        }
        self.writer.signature(signature);
        Ok(self.writer)
    }

    fn list(self) -> Result<List<'w>, Error> {
        let Self { writer, is_whole } = self;
        if is_whole {
            return Err(Error::custom("an answer is an object"));
        }
        let open = writer.begin(LIST)?;
        Ok(List { writer, open, around: None })
    }

    fn object(self) -> Result<Object<'w>, Error> {
        let Self { writer, is_whole } = self;
        let open = if is_whole { None } else { Some(writer.begin(DICTIONARY)?) };
        Ok(Object { writer, open, entry: 0, around: None })
    }

    /// An object whose one member is named for a variant, and where that begins.
    fn variant(self, name: &str) -> Result<(Object<'w>, usize), Error> {
        let object = self.object()?;
        let start = object.writer.entry(name)?;
        Ok((object, start))
    }
}

struct List<'w> {
    writer: &'w mut Writer,
    open: Open,
    /// The object that it is the one member of; `None` where that is all of the answer, or where there is none.
    around: Option<Open>,
}

struct Object<'w> {
    writer: &'w mut Writer,
    /// `None` where it is all of the answer.
    open: Option<Open>,
    /// Where its newest entry begins.
    entry: usize,
    /// The object that it is the one member of; `None` where that is all of the answer, or where there is none.
    around: Option<Open>,
}

impl List<'_> {
    fn push(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        value.serialize(Slot { writer: self.writer, is_whole: false }).map(drop)
    }

    fn close(self) -> Result<bool, Error> {
        self.writer.end(self.open)?;
        self.writer.end_if(self.around)
    }
}

impl Object<'_> {
    fn member(&mut self, key: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let start = self.writer.entry(key)?;
        self.writer.value(start, value)
    }

    fn close(self) -> Result<bool, Error> {
        self.writer.end_if(self.open)?;
        self.writer.end_if(self.around)
    }
}

/// Numbers that are written as the widest of their kind.
macro_rules! widened {
    ($($method:ident: $number:ty => $widest:ident),*) => {$(
        fn $method(self, number: $number) -> Result<bool, Error> {
            self.$widest(number.into())
        }
    )*};
}

impl<'w> Serializer for Slot<'w> {
    type Ok = bool;
    type Error = Error;
    type SerializeSeq = List<'w>;
    type SerializeTuple = List<'w>;
    type SerializeTupleStruct = List<'w>;
    type SerializeTupleVariant = List<'w>;
    type SerializeMap = Object<'w>;
    type SerializeStruct = Object<'w>;
    type SerializeStructVariant = Object<'w>;

    fn serialize_bool(self, truth: bool) -> Result<bool, Error> {
        self.plain("b")?.half_word(u32::from(truth));
        Ok(true)
    }

    fn serialize_u64(self, number: u64) -> Result<bool, Error> {
        self.plain("t")?.word(number);
        Ok(true)
    }

    fn serialize_i64(self, number: i64) -> Result<bool, Error> {
        if let Ok(whole) = u64::try_from(number) {
            return self.serialize_u64(whole);
        }
        self.plain("x")?.word(number.cast_unsigned());
        Ok(true)
    }

    fn serialize_f64(self, number: f64) -> Result<bool, Error> {
        if !number.is_finite() {
            return self.serialize_unit();
        }
        self.plain("d")?.word(number.to_bits());
        Ok(true)
    }

    fn serialize_str(self, text: &str) -> Result<bool, Error> {
        self.plain("s")?.text(text)?;
        Ok(true)
    }

    widened!(serialize_u8: u8 => serialize_u64, serialize_u16: u16 => serialize_u64, serialize_u32: u32 => serialize_u64);
    widened!(serialize_i8: i8 => serialize_i64, serialize_i16: i16 => serialize_i64, serialize_i32: i32 => serialize_i64);
    widened!(serialize_f32: f32 => serialize_f64);

    fn serialize_char(self, letter: char) -> Result<bool, Error> {
        self.serialize_str(letter.encode_utf8(&mut [0; 4]))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<bool, Error> {
        self.collect_seq(bytes)
    }

    fn serialize_none(self) -> Result<bool, Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<bool, Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<bool, Error> {
        Ok(false)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<bool, Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Result<bool, Error> {
        self.serialize_str(name)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<bool, Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Result<bool, Error> {
        let (object, start) = self.variant(name)?;
        object.writer.value(start, value)?;
        object.close()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List<'w>, Error> {
        self.list()
    }

    fn serialize_tuple(self, _: usize) -> Result<List<'w>, Error> {
        self.list()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List<'w>, Error> {
        self.list()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<List<'w>, Error> {
        let (Object { writer, open: around, .. }, _) = self.variant(name)?;
        let list = Slot { writer, is_whole: false }.list()?;
        Ok(List { around, ..list })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Object<'w>, Error> {
        self.object()
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Object<'w>, Error> {
        self.object()
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Object<'w>, Error> {
        let (Object { writer, open: around, .. }, _) = self.variant(name)?;
        let object = Slot { writer, is_whole: false }.object()?;
        Ok(Object { around, ..object })
    }
}

macro_rules! lists {
    ($($compound:ident::$method:ident),*) => {$(
        impl $compound for List<'_> {
            type Ok = bool;
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.push(value)
            }

            fn end(self) -> Result<bool, Error> {
                self.close()
            }
        }
    )*};
}

lists!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

macro_rules! objects {
    ($($compound:ident),*) => {$(
        impl $compound for Object<'_> {
            type Ok = bool;
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Error> {
                self.member(key, value)
            }

            fn end(self) -> Result<bool, Error> {
                self.close()
            }
        }
    )*};
}

objects!(SerializeStruct, SerializeStructVariant);

impl SerializeMap for Object<'_> {
    type Ok = bool;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        let mut text = std::mem::take(&mut self.writer.key);
        text.clear();
        write!(text, "{}", Key(key)).map_err(|_| Error::custom("a key is no text"))?;
        self.entry = self.writer.entry(&text)?;
        self.writer.key = text;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.writer.value(self.entry, value)
    }

    fn end(self) -> Result<bool, Error> {
        self.close()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::super::dbus::to_variants;
    use super::*;
    use serde_json::json;
    use zbus::OwnedVariant;
    use zbus::wire::serialized::Context;
    use zbus::wire::{BE, LE, to_bytes};

    /// The bytes that both ways write, wherever in a message they begin.
    fn assert_alike(object: &impl Serialize) {
        let value = serde_json::to_value(object).unwrap();
        for (endian, place) in [(LE, 0), (LE, 4), (BE, 0), (BE, 4)] {
            let context = Context::new(endian, place);
            let direct = to_bytes(context, &Members::of(object, endian).unwrap()).unwrap();
            // The other way's order is that of a hash table: one member after the other.
            for (key, member) in value.as_object().unwrap() {
                let one = json!({ key.as_str(): member });
                let ours = to_bytes(context, &Members::of(&one, endian).unwrap()).unwrap();
                let theirs = to_bytes(context, &to_variants(one)).unwrap();
                assert_eq!(ours.bytes(), theirs.bytes(), "{key}: {member}");
            }
            let read: HashMap<String, OwnedVariant> = direct.deserialize().unwrap().0;
            let expected: HashMap<String, OwnedVariant> = to_variants(value.clone())
                .into_iter()
                .map(|(key, variant)| (key, OwnedVariant::try_from(variant).unwrap()))
                .collect();
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn the_types_on_the_wire_are_those_of_variants() {
        assert_eq!(Members::SIGNATURE.to_string(), "a{sv}");
        let lists = json!([1, "two", [3.5], {"four": 4}, [[[]]]]);
        for object in [
            json!({}),
            json!({"text": "x", "escaped": "a\n\u{b5}\"", "truth": true, "lie": false, "whole": 3, "negative": -3}),
            json!({"real": 0.5, "large": u64::MAX, "least": i64::MIN, "whole_real": 4096.0, "tiny": 1e-300}),
            json!({"list": lists, "empty": [], "none": {}, "null": null, "nulls": [null, 1, null]}),
            json!({"object": {"deep": {"deeper": [true, {"null": null}]}, "null": null}}),
        ] {
            assert_alike(&object);
        }
        for broken in [json!({"a": "\0"}), json!({"\0": 1}), json!([]), json!(3), json!("x")] {
            assert!(Members::of(&broken, LE).is_err(), "{broken}");
        }
    }

    #[test]
    fn everything_that_serialises_is_written_as_json_would() {
        #[derive(serde::Serialize)]
        enum Kind {
            Unit,
            New(Option<u8>),
            Pair(i8, f32),
            Named { truth: bool },
        }
        #[derive(serde::Serialize)]
        struct Nothing;
        #[derive(serde::Serialize)]
        struct Around<T>(T);
        #[derive(serde::Serialize)]
        struct All {
            kinds: Vec<Kind>,
            by_number: BTreeMap<u16, char>,
            by_truth: BTreeMap<bool, Nothing>,
            pair: (i16, i32),
            around: Around<Around<i64>>,
            numbers: [f64; 4],
            #[serde(flatten)]
            flat: BTreeMap<&'static str, Around<(u32,)>>,
        }
        let all = || All {
            kinds: vec![
                Kind::Unit,
                Kind::New(Some(1)),
                Kind::New(None),
                Kind::Pair(-1, 0.5),
                Kind::Named { truth: true },
            ],
            by_number: BTreeMap::from([(1, 'a'), (2, '\u{b5}')]),
            by_truth: BTreeMap::from([(true, Nothing)]),
            pair: (-1, 1),
            around: Around(Around(-1)),
            numbers: [0.0, f64::NAN, f64::INFINITY, -0.25],
            flat: BTreeMap::from([("flat", Around((1,)))]),
        };
        assert_alike(&all());
        // An answer may be a variant, too.
        assert_alike(&Around(Kind::New(Some(1))));
        assert_alike(&Kind::New(None));
        assert_alike(&Kind::Pair(-1, 0.5));
        assert_alike(&Kind::Named { truth: false });
        assert!(Members::of(&BTreeMap::from([((1, 2), 3)]), LE).is_err(), "a key that is no text");
    }

    #[test]
    fn nothing_is_deeper_than_zbus_would_let_it_be() {
        let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert_alike(&nested(21));
        assert!(Members::of(&nested(22), LE).is_err());
        let listed = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({ "a": [inner] }));
        assert_alike(&listed(12));
        assert!(Members::of(&listed(13), LE).is_err());
    }

    #[test]
    fn answers_of_every_accelerator_are_written_alike() {
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
                    assert_alike(&answer);
                    compared += 1;
                }
            }
        }
        assert!(compared > 50, "{compared}");
    }
}
