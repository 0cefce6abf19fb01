//! safetensors: a length (u64, little-endian), that many bytes of JSON, the data.
//!
//! The JSON maps names to `{"dtype":"F16","shape":[4,8],"data_offsets":[0,64]}`; offsets count from the end of it.
//! `__metadata__` is passed over.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;

use serde::Deserialize;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};

use super::{MAX_DIMENSIONS, MAX_NAME, MAX_TENSORS, Stored, Tensor, TensorError, bytes_of, header, shown};
use crate::precision::WeightFormat;

const KIND: &str = "safetensors";
/// Longest header; the format's own library allows 100 MB.
const MAX_HEADER: u64 = 100_000_000;

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// A shape of few dimensions, refused before it grows.
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;
        impl<'de> Visitor<'de> for Sizes {
            type Value = Shape;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MAX_DIMENSIONS} sizes")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut sizes: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::new();
                while let Some(size) = sizes.next_element()? {
                    if shape.len() == MAX_DIMENSIONS {
                        return Err(A::Error::custom(format!(
                            "a shape has more than {MAX_DIMENSIONS} sizes"
                        )));
                    }
                    shape.push(size);
                }
                Ok(Shape(shape))
            }
        }
        deserializer.deserialize_seq(Sizes)
    }
}

struct Entries(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    if name.len() > MAX_NAME {
                        return Err(A::Error::custom(format!("the name {}… is too long", shown(&name))));
                    }
                    if entries.len() == MAX_TENSORS {
                        return Err(A::Error::custom(format!("more than {MAX_TENSORS} tensors")));
                    }
                    entries.push((name, map.next_value()?));
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Names)
    }
}

/// Whether eight bytes at the start of a file of `size` can be the length of a header.
pub fn is_likely(start: [u8; 8], size: u64) -> bool {
    let length = u64::from_le_bytes(start);
    (2..=MAX_HEADER).contains(&length) && size >= 8
}

/// The tensors of the header.
pub fn read(file: &File, size: u64) -> Result<Vec<Tensor>, TensorError> {
    let mut start = [0; 8];
    file.read_exact_at(&mut start, 0)?;
    let length = u64::from_le_bytes(start);
    let end = length
        .checked_add(8)
        .filter(|end| *end <= size && length <= MAX_HEADER)
        .ok_or_else(|| header(KIND, format!("a header of {length} bytes in a file of {size}")))?;
    let mut json = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut json, 8)?;
    let Entries(entries) =
        serde_json::from_slice(&json).map_err(|error| header(KIND, format!("the header: {error}")))?;
    entries.into_iter().map(|(name, entry)| tensor(name, entry, end)).collect()
}

fn tensor(name: String, entry: Entry, data: u64) -> Result<Tensor, TensorError> {
    let Entry { dtype, shape: Shape(shape), data_offsets: (first, last) } = entry;
    let stored = match dtype.as_str() {
        "F32" => Stored::As(WeightFormat::Fp32),
        "F16" => Stored::As(WeightFormat::Fp16),
        "BF16" => Stored::As(WeightFormat::Bf16),
        "F64" => Stored::Fp64,
        other => Stored::Other(shown(other)),
    };
    let wrong = |what: &str| header(KIND, format!("tensor {} {what}", shown(&name)));
    let bytes = last.checked_sub(first).ok_or_else(|| wrong("ends before it begins"))?;
    let one = stored.block().unwrap_or((1, 0));
    let expected = bytes_of(&shape, one).ok_or_else(|| wrong("is larger than any file"))?;
    if one.1 > 0 && expected != bytes {
        return Err(wrong(&format!("has {bytes} bytes, its shape takes {expected}")));
    }
    let offset = data.checked_add(first).ok_or_else(|| wrong("begins beyond any file"))?;
    Ok(Tensor { name, shape, stored, offset, bytes })
}
