//! safetensors: the file format of checkpoints on Hugging Face.
//!
//! ```text
//! length u64 (little-endian)   JSON of that length: { name: { dtype, shape, data_offsets: [begin, end] }, … }   data
//! ```
//! Offsets count from the first byte after the JSON. A checkpoint of several files has `model.safetensors.index.json`
//! beside them, whose `weight_map` gives each tensor's file.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::io::{self, BufReader, Read};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{ImportError, MAX_NAME, MAX_TENSORS, Tensor, check_extents, config::Config, said, short};
use crate::block::Block;
use crate::model::Model;

/// Longest JSON: what the format's own reader allows.
pub const MAX_HEADER: u64 = 100_000_000;
/// Bytes of the JSON for each tensor that may come; they have some 150.
const MAX_ENTRY: u64 = 512;
/// Most files of one checkpoint.
pub const MAX_FILES: usize = 4096;
/// Most dimensions of a tensor.
const MAX_DIMENSIONS: usize = 8;

/// One entry of the header.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// Few numbers: a list of millions is refused while it is read.
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lengths;
        impl<'de> Visitor<'de> for Lengths {
            type Value = Shape;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MAX_DIMENSIONS} dimensions")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let mut lengths = Vec::new();
                while let Some(length) = list.next_element()? {
                    if lengths.len() == MAX_DIMENSIONS {
                        return Err(serde::de::Error::invalid_length(lengths.len() + 1, &self));
                    }
                    lengths.push(length);
                }
                Ok(Shape(lengths))
            }
        }
        deserializer.deserialize_seq(Lengths)
    }
}

/// Every entry in the order of the file, up to `most`. A JSON object may repeat a name; a map would keep the last silently.
struct Entries {
    most: u64,
}

impl<'de> DeserializeSeed<'de> for Entries {
    type Value = Vec<(String, Entry)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(String, Entry)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if entries.len() as u64 >= self.most {
                return Err(serde::de::Error::custom(TOO_MANY));
            }
            entries.push((name, map.next_value()?));
        }
        Ok(entries)
    }
}

/// Told from other errors of JSON by its words, because serde keeps nothing else.
const TOO_MANY: &str = "more tensors than are read";

/// The files of an index, in its order and with what it repeats.
struct WeightMap(Vec<(String, String)>);

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = WeightMap;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors and their files")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    if entries.len() as u64 == MAX_TENSORS {
                        return Err(serde::de::Error::custom(format!("more than {MAX_TENSORS} tensors")));
                    }
                    entries.push(entry);
                }
                Ok(WeightMap(entries))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// How a dtype stores its elements; types of eight bits without a name of their own count as integers.
fn block(dtype: &str) -> Option<Block> {
    Some(match dtype {
        "F64" => Block::F64,
        "F32" => Block::F32,
        "F16" => Block::F16,
        "BF16" => Block::Bf16,
        "F8_E4M3" | "F8_E4M3FN" => Block::Fp8E4m3,
        "F8_E5M2" => Block::Fp8E5m2,
        "F8_E8M0" => Block::E8m0,
        "I64" | "U64" => Block::I64,
        "I32" | "U32" => Block::I32,
        "I16" | "U16" => Block::I16,
        "I8" | "U8" | "BOOL" => Block::I8,
        // Two in a byte, scales apart.
        "F4" | "F4_E2M1" => Block::Int4,
        _ => return None,
    })
}

/// Reads the header of a file that is `file_bytes` long.
///
/// # Errors
/// Says what is wrong with the file, or that reading failed.
pub fn read(source: impl Read, file_bytes: u64) -> Result<Vec<Tensor>, ImportError> {
    read_at_most(source, file_bytes, MAX_TENSORS)
}

/// The same of one file of several, which may have `most` tensors more.
///
/// # Errors
/// As [`read`].
pub fn read_at_most(mut source: impl Read, file_bytes: u64, most: u64) -> Result<Vec<Tensor>, ImportError> {
    let cut = |what: &str, needed| ImportError::Cut { what: what.to_owned(), needed, available: file_bytes };
    let ended = |what: &str, needed: u64, error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => cut(what, needed),
        _ => ImportError::Io(error),
    };
    if file_bytes < 8 {
        return Err(cut("the length of the header", 8));
    }
    let mut length = [0; 8];
    source.read_exact(&mut length).map_err(|error| ended("the length of the header", 8, error))?;
    let length = u64::from_le_bytes(length);
    let limit = most.saturating_mul(MAX_ENTRY).clamp(1 << 20, MAX_HEADER);
    if length > limit {
        return Err(ImportError::TooMany { what: "bytes of header", count: length, limit });
    }
    let data = 8 + length;
    if data > file_bytes {
        return Err(cut("the header", data));
    }
    let mut first = [0];
    source
        .read_exact(&mut first[..usize::from(length > 0)])
        .map_err(|error| ended("the header", data, error))?;
    if first != *b"{" {
        let found = first[..usize::from(length > 0)].escape_ascii().to_string();
        return Err(ImportError::Magic { expected: "safetensors", found });
    }
    // Not as a whole: a hostile one is as long as is read at all.
    let json = first.chain(source).take(length);
    // The parser asks for single bytes, and the source may count and time each.
    let mut parser = serde_json::Deserializer::from_reader(BufReader::new(json));
    let entries = Entries { most }
        .deserialize(&mut parser)
        .and_then(|entries| parser.end().map(|()| entries))
        .map_err(|error| match said(&error) {
            error if error.starts_with(TOO_MANY) => {
                ImportError::Budget { what: "tensors", limit: MAX_TENSORS }
            }
            error => ImportError::Json { what: "header", error },
        })?;
    tensors(entries, data, file_bytes)
}

fn tensors(entries: Vec<(String, Entry)>, data: u64, available: u64) -> Result<Vec<Tensor>, ImportError> {
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut extents = Vec::new();
    for (name, Entry { dtype, shape: Shape(shape), data_offsets: (begin, end) }) in entries {
        if name.len() as u64 > MAX_NAME {
            let count = name.len() as u64;
            return Err(ImportError::TooMany { what: "bytes in a name", count, limit: MAX_NAME });
        }
        let wrong = |reason: String| ImportError::Tensor { name: short(&name), reason };
        let block = block(&dtype).ok_or_else(|| ImportError::UnknownType {
            what: format!("tensor {:?}", short(&name)),
            number: short(&dtype),
        })?;
        let offset = data.saturating_add(begin);
        let bytes = end.saturating_sub(begin);
        let elements = shape.iter().try_fold(1u64, |product, &length| product.checked_mul(length));
        let Some(expected) = elements.and_then(|elements| block.size(1, elements)) else {
            return Err(wrong(format!("has the impossible shape {shape:?}")));
        };
        if begin > end || expected != end - begin {
            return Err(wrong(format!(
                "of {dtype} {shape:?} takes {expected} bytes and claims those from {begin} to {end}"
            )));
        }
        extents.push((offset, data.saturating_add(end), tensors.len()));
        tensors.push(Tensor { name, block, shape, file: 0, offset, bytes });
    }
    let mut names = HashSet::new();
    if let Some(tensor) = tensors.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
        return Err(ImportError::Duplicate { what: "tensor", name: short(&tensor.name) });
    }
    drop(names);
    check_extents(extents, available, |index| {
        tensors.get(index).map(|tensor| short(&tensor.name)).unwrap_or_default()
    })?;
    Ok(tensors)
}

/// `model.safetensors.index.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    map: BTreeMap<String, String>,
}

impl Index {
    /// Reads the index.
    ///
    /// # Errors
    /// It is no index, or names a file outside its directory.
    pub fn parse(json: &[u8]) -> Result<Self, ImportError> {
        #[derive(Deserialize)]
        struct Raw {
            weight_map: WeightMap,
        }
        let raw: Raw = serde_json::from_slice(json)
            .map_err(|error| ImportError::Json { what: "index", error: said(&error) })?;
        let mut map = BTreeMap::new();
        for (name, file) in raw.weight_map.0 {
            let doubled = ImportError::Duplicate { what: "tensor", name: short(&name) };
            if map.insert(name, file).is_some() {
                return Err(doubled);
            }
        }
        let index = Self { map };
        let files = index.files();
        if files.len() > MAX_FILES {
            let (count, limit) = (files.len() as u64, MAX_FILES as u64);
            return Err(ImportError::TooMany { what: "files", count, limit });
        }
        if let Some(file) = files.iter().find(|file| {
            file.is_empty() || file.starts_with('.') || file.contains(['/', '\\', '\0']) || file.len() > 255
        }) {
            return Err(ImportError::Field {
                field: "weight_map".to_owned(),
                reason: format!("names {:?}, which is not a file next to the index", short(file)),
            });
        }
        Ok(index)
    }

    /// The files that hold the tensors, in order.
    #[must_use]
    pub fn files(&self) -> BTreeSet<&str> {
        self.map.values().map(String::as_str).collect()
    }

    /// Puts the headers of the files together.
    ///
    /// # Errors
    /// A tensor is missing from the file that should hold it, or stands in two.
    pub fn join(&self, files: Vec<(String, Vec<Tensor>)>) -> Result<Vec<Tensor>, ImportError> {
        let total: u64 = files.iter().map(|(_, tensors)| tensors.len() as u64).sum();
        if total > MAX_TENSORS {
            return Err(ImportError::TooMany { what: "tensors", count: total, limit: MAX_TENSORS });
        }
        let mut all = Vec::new();
        for (number, (file, tensors)) in files.into_iter().enumerate() {
            for tensor in tensors {
                match self.map.get(&tensor.name) {
                    Some(expected) if *expected != file => {
                        return Err(ImportError::Shards(format!(
                            "{:?} is in {file}, and the index says {expected}",
                            short(&tensor.name)
                        )));
                    }
                    _ => all.push(Tensor { file: number, ..tensor }),
                }
            }
        }
        let mut found = HashSet::new();
        if let Some(tensor) = all.iter().find(|tensor: &&Tensor| !found.insert(tensor.name.as_str())) {
            return Err(ImportError::Duplicate { what: "tensor", name: short(&tensor.name) });
        }
        match self.map.iter().find(|(name, _)| !found.contains(name.as_str())) {
            Some((name, file)) => Err(ImportError::Shards(format!(
                "{:?} is not in {file}, where the index puts it",
                short(name)
            ))),
            None => {
                drop(found);
                Ok(all)
            }
        }
    }
}

/// The model of a checkpoint; without its `config.json` heads and experts are read from shapes, with a warning.
///
/// # Errors
/// The configuration contradicts itself, or there are no weights.
pub fn model(tensors: &[Tensor], config: Option<&Config>, name: &str) -> Result<Model, ImportError> {
    super::assemble::from_checkpoint(tensors, config, name)
}
