//! `null` where a field may be left out is the same as leaving it out, also where its value has a default.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The default for `null`.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// 1 for `null`.
pub fn or_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Option::<u64>::deserialize(deserializer).map(|value| value.unwrap_or(1))
}

/// An object, or `None` for `null`. A list, which would do for a structure whose fields may all be left out, is an error.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    struct Object<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }

    deserializer.deserialize_any(Object(PhantomData))
}

#[cfg(test)]
mod tests {
    use crate::ExplainRequest;

    #[test]
    fn evidence_is_an_object_and_no_list() {
        let read = |seen: &str| {
            serde_json::from_str::<ExplainRequest>(&format!(r#"{{"workload":{{}},"seen":{seen}}}"#))
        };
        assert!(read("null").unwrap().seen.is_none());
        assert_eq!(read(r#"{"pid":7}"#).unwrap().seen.unwrap().pid, Some(7));
        for wrong in ["[]", "[7]", "7", "\"x\""] {
            assert!(read(wrong).unwrap_err().to_string().contains("expected an object"), "{wrong}");
        }
        assert!(read(r#"{"pid":-1}"#).is_err());
        assert!(read(r#"{"pd":1}"#).unwrap_err().to_string().contains("unknown field `pd`"));
    }
}
