//! GGUF: the file format of llama.cpp.
//!
//! ```text
//! magic "GGUF"  version u32  tensors u64  pairs u64        (version 1: counts, lengths and dimensions are u32)
//! pairs   x { key string, type u32, value }                string = length, bytes
//! tensors x { name string, dimensions u32, dimension u64 each (contiguous first), type u32, offset u64 }
//! padding to general.alignment (32)  tensor data; offsets count from here
//! ```
//! Files are little-endian; version 3 may be big-endian, which the version number itself tells.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};

use super::header::TAGS;
pub use super::header::{Header, Value};
use super::{ImportError, MAX_NAME, MAX_TENSORS, Tensor, check_extents, short};
use crate::architecture::MAX_LAYERS;
use crate::block::Block;
use crate::model::Model;

/// Most bytes of a header: tokenizers with a vocabulary of 260 000 and their merges take some 20 MB.
pub const MAX_HEADER: u64 = 256 << 20;
/// Most key/value pairs; real files have below a hundred.
pub const MAX_PAIRS: u64 = 1 << 16;
/// Arrays in arrays.
const MAX_DEPTH: usize = 4;
/// Bytes of keys and values kept: everything else is skipped.
const MAX_KEPT: u64 = 16 << 20;
/// Longest text kept; chat templates are longer and tell nothing about weights.
const MAX_TEXT: u64 = 4096;
/// Most of them that are read.
const MAX_TAGS: u64 = 64;
/// The default of `general.alignment`.
const ALIGNMENT: u64 = 32;

/// Types of metadata values by their number: the size of those of fixed size.
const fn fixed_size(kind: u32) -> Option<u64> {
    Some(match kind {
        // u8, i8, bool
        0 | 1 | 7 => 1,
        // u16, i16
        2 | 3 => 2,
        // u32, i32, f32
        4..=6 => 4,
        // u64, i64, f64
        10..=12 => 8,
        _ => return None,
    })
}

const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Reads forward only, counts, and asks for nothing that the file or the limit cannot hold.
struct Cursor<R> {
    source: R,
    at: u64,
    file_bytes: u64,
    big_endian: bool,
    version: u32,
    kept: u64,
}

impl<R: Read> Cursor<R> {
    /// Checks that `count` more bytes can be there before anything is allocated or looped over for them.
    fn expect(&self, count: u64, what: &dyn Fn() -> String) -> Result<(), ImportError> {
        let needed = self.at.saturating_add(count);
        if needed > self.file_bytes {
            return Err(ImportError::Cut { what: what(), needed, available: self.file_bytes });
        }
        if needed > MAX_HEADER {
            return Err(ImportError::TooMany { what: "bytes of header", count: needed, limit: MAX_HEADER });
        }
        Ok(())
    }

    fn fill(&mut self, buffer: &mut [u8], what: &dyn Fn() -> String) -> Result<(), ImportError> {
        self.expect(buffer.len() as u64, what)?;
        self.source.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ImportError::Cut {
                what: what(),
                needed: self.at.saturating_add(buffer.len() as u64),
                available: self.at,
            },
            _ => ImportError::Io(error),
        })?;
        self.at += buffer.len() as u64;
        Ok(())
    }

    fn skip(&mut self, mut count: u64, what: &dyn Fn() -> String) -> Result<(), ImportError> {
        self.expect(count, what)?;
        let mut scratch = [0; 8192];
        while count > 0 {
            let step = usize::try_from(count).unwrap_or(usize::MAX).min(scratch.len());
            self.fill(&mut scratch[..step], what)?;
            count -= step as u64;
        }
        Ok(())
    }

    fn u32(&mut self, what: &dyn Fn() -> String) -> Result<u32, ImportError> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes, what)?;
        Ok(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn u64(&mut self, what: &dyn Fn() -> String) -> Result<u64, ImportError> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes, what)?;
        Ok(if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    /// A count or length: 32 bits in version 1.
    fn length(&mut self, what: &dyn Fn() -> String) -> Result<u64, ImportError> {
        if self.version == 1 { self.u32(what).map(u64::from) } else { self.u64(what) }
    }

    const fn length_bytes(&self) -> u64 {
        if self.version == 1 { 4 } else { 8 }
    }

    fn name(&mut self, what: &'static str) -> Result<String, ImportError> {
        let length = self.length(&|| what.to_owned())?;
        if length > MAX_NAME {
            return Err(ImportError::TooMany { what: "bytes in a name", count: length, limit: MAX_NAME });
        }
        self.text(length, &|| what.to_owned())
    }

    fn text(&mut self, length: u64, what: &dyn Fn() -> String) -> Result<String, ImportError> {
        self.expect(length, what)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.fill(&mut bytes, what)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// An integer, boolean or float of fixed size.
    fn number(&mut self, kind: u32, what: &dyn Fn() -> String) -> Result<Value, ImportError> {
        let size = fixed_size(kind).unwrap_or(8);
        let mut bytes = [0; 8];
        let used = &mut bytes[..usize::try_from(size).unwrap_or(8)];
        self.fill(used, what)?;
        if self.big_endian {
            used.reverse();
        }
        let raw = u64::from_le_bytes(bytes);
        let shift = 64 - 8 * size;
        #[expect(clippy::cast_possible_wrap, reason = "the sign is what is looked for")]
        let signed = ((raw << shift) as i64) >> shift;
        #[expect(clippy::cast_possible_truncation, reason = "the upper half of a 32-bit value is zero")]
        let value = match kind {
            6 => Value::Float(f64::from(f32::from_bits(raw as u32))),
            12 => Value::Float(f64::from_bits(raw)),
            1 | 3 | 5 | 11 if signed < 0 => Value::Negative(signed),
            _ => Value::Unsigned(raw),
        };
        Ok(value)
    }

    fn value(&mut self, kind: u32, key: &str) -> Result<Value, ImportError> {
        let what = || format!("the value of {key:?}");
        match kind {
            STRING => {
                let length = self.length(&what)?;
                if length > MAX_TEXT {
                    self.skip(length, &what)?;
                    return Ok(Value::Skipped);
                }
                self.text(length, &what).map(Value::Text)
            }
            ARRAY => self.array(key, 1),
            kind if fixed_size(kind).is_some() => self.number(kind, &what),
            number => Err(ImportError::UnknownType { what: what(), number: number.to_string() }),
        }
    }

    fn array(&mut self, key: &str, depth: usize) -> Result<Value, ImportError> {
        let what = || format!("the array {key:?}");
        if depth > MAX_DEPTH {
            return Err(ImportError::Nested(MAX_DEPTH, short(key)));
        }
        let kind = self.u32(&what)?;
        let count = self.length(&what)?;
        // The least that so many members take, before any is looked at.
        let member = match kind {
            STRING => self.length_bytes(),
            ARRAY => 4 + self.length_bytes(),
            kind => fixed_size(kind)
                .ok_or_else(|| ImportError::UnknownType { what: what(), number: kind.to_string() })?,
        };
        let bytes = count.saturating_mul(member);
        self.expect(bytes, &what)?;
        match kind {
            STRING if key == TAGS && count <= MAX_TAGS => {
                let mut words = String::new();
                for _ in 0..count {
                    words.push_str(&self.name("a tag")?);
                    words.push(' ');
                }
                Ok(Value::Text(words))
            }
            STRING => {
                for _ in 0..count {
                    let length = self.length(&what)?;
                    self.skip(length, &what)?;
                }
                Ok(Value::Array(count))
            }
            ARRAY => {
                for _ in 0..count {
                    self.array(key, depth + 1)?;
                }
                Ok(Value::Array(count))
            }
            // Floats are scores of a tokenizer.
            6 | 12 => self.skip(bytes, &what).map(|()| Value::Array(count)),
            _ if count > MAX_LAYERS as u64 || depth > 1 => {
                self.skip(bytes, &what).map(|()| Value::Array(count))
            }
            kind => {
                self.keep(count * 8)?;
                let mut numbers = Vec::new();
                for _ in 0..count {
                    numbers.push(match self.number(kind, &what)? {
                        Value::Unsigned(number) => number,
                        // A negative width is no width: it fails where it is used.
                        _ => u64::MAX,
                    });
                }
                Ok(Value::Numbers(numbers))
            }
        }
    }

    fn keep(&mut self, bytes: u64) -> Result<(), ImportError> {
        self.kept = self.kept.saturating_add(bytes);
        if self.kept > MAX_KEPT {
            return Err(ImportError::TooMany {
                what: "bytes of metadata",
                count: self.kept,
                limit: MAX_KEPT,
            });
        }
        Ok(())
    }
}

/// Reads the header of a file that is `file_bytes` long.
///
/// # Errors
/// Says what is wrong with the file, or that reading failed.
pub fn read(source: impl Read, file_bytes: u64) -> Result<Header, ImportError> {
    read_at_most(source, file_bytes, MAX_TENSORS)
}

/// The same of one shard of several, which may have `most` tensors more.
///
/// # Errors
/// As [`read`].
pub fn read_at_most(source: impl Read, file_bytes: u64, most: u64) -> Result<Header, ImportError> {
    let mut cursor = Cursor { source, at: 0, file_bytes, big_endian: false, version: 3, kept: 0 };
    let mut magic = [0; 4];
    cursor.fill(&mut magic, &|| "the magic number".to_owned())?;
    if &magic != b"GGUF" {
        let found = magic.escape_ascii().to_string();
        return Err(ImportError::Magic { expected: "GGUF", found });
    }
    let version = cursor.u32(&|| "the version".to_owned())?;
    // A version has its small number in the half that its byte order puts first.
    cursor.big_endian = version & 0xffff == 0;
    cursor.version = if cursor.big_endian { version.swap_bytes() } else { version };
    if !(1..=3).contains(&cursor.version) {
        return Err(ImportError::Version(cursor.version));
    }
    let tensors = cursor.length(&|| "the number of tensors".to_owned())?;
    let pairs = cursor.length(&|| "the number of keys".to_owned())?;
    for (what, count, limit) in [("tensors", tensors, MAX_TENSORS), ("keys", pairs, MAX_PAIRS)] {
        if count > limit {
            return Err(ImportError::TooMany { what, count, limit });
        }
    }
    if tensors > most {
        return Err(ImportError::Budget { what: "tensors", limit: MAX_TENSORS });
    }
    let metadata = read_metadata(&mut cursor, pairs)?;
    let tensors = read_tensors(&mut cursor, tensors, &metadata)?;
    Ok(Header { version: cursor.version, big_endian: cursor.big_endian, metadata, tensors })
}

fn read_metadata<R: Read>(
    cursor: &mut Cursor<R>,
    pairs: u64,
) -> Result<BTreeMap<String, Value>, ImportError> {
    let mut metadata = BTreeMap::new();
    for _ in 0..pairs {
        let key = cursor.name("a key")?;
        let kind = cursor.u32(&|| format!("the type of {key:?}"))?;
        let value = cursor.value(kind, &key)?;
        cursor.keep(key.len() as u64 + if let Value::Text(text) = &value { text.len() as u64 } else { 0 })?;
        if metadata.contains_key(&key) {
            return Err(ImportError::Duplicate { what: "key", name: short(&key) });
        }
        metadata.insert(key, value);
    }
    Ok(metadata)
}

fn read_tensors<R: Read>(
    cursor: &mut Cursor<R>,
    count: u64,
    metadata: &BTreeMap<String, Value>,
) -> Result<Vec<Tensor>, ImportError> {
    let alignment = match metadata.get("general.alignment") {
        None => ALIGNMENT,
        Some(Value::Unsigned(alignment)) if alignment.is_power_of_two() && *alignment <= 1 << 30 => {
            *alignment
        }
        Some(other) => {
            return Err(ImportError::Field {
                field: "general.alignment".to_owned(),
                reason: format!("is {other:?}, not a power of two"),
            });
        }
    };
    let mut tensors: Vec<Tensor> = Vec::new();
    for _ in 0..count {
        let tensor = read_tensor(cursor)?;
        if tensor.offset % alignment != 0 {
            let reason = format!("starts at {}, which is not aligned to {alignment}", tensor.offset);
            return Err(ImportError::Tensor { name: short(&tensor.name), reason });
        }
        tensors.push(tensor);
    }
    let mut names = HashSet::new();
    if let Some(tensor) = tensors.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
        return Err(ImportError::Duplicate { what: "tensor", name: short(&tensor.name) });
    }
    drop(names);
    let data = cursor.at.next_multiple_of(alignment);
    for tensor in &mut tensors {
        tensor.offset = tensor.offset.saturating_add(data);
    }
    settle_two_bits(&mut tensors);
    let extents = tensors
        .iter()
        .enumerate()
        .map(|(index, tensor)| (tensor.offset, tensor.offset.saturating_add(tensor.bytes), index))
        .collect();
    check_extents(extents, cursor.file_bytes, |index| {
        tensors.get(index).map(|tensor| short(&tensor.name)).unwrap_or_default()
    })?;
    Ok(tensors)
}

/// Type 42 has blocks of 64 in 18 bytes; a fork that came first wrote blocks of 128 in 34 under the same number. Where
/// the larger layout would run into the next tensor, the file is the fork's.
fn settle_two_bits(tensors: &mut [Tensor]) {
    let mut starts: Vec<u64> = tensors.iter().map(|tensor| tensor.offset).collect();
    starts.sort_unstable();
    let runs_over = |tensor: &Tensor| {
        let next = starts.get(starts.partition_point(|start| *start <= tensor.offset));
        next.is_some_and(|next| tensor.offset.saturating_add(tensor.bytes) > *next)
    };
    let is_two_bits = |tensor: &&mut Tensor| tensor.block == Block::Q2_0G64;
    if !tensors.iter().any(|tensor| tensor.block == Block::Q2_0G64 && runs_over(tensor)) {
        return;
    }
    for tensor in tensors.iter_mut().filter(is_two_bits) {
        let (matrices, rows, columns) = tensor.matrix();
        let whole = columns.is_multiple_of(Block::Q2_0.elements());
        if let Some(bytes) = Block::Q2_0.size(matrices.saturating_mul(rows), columns).filter(|_| whole) {
            (tensor.block, tensor.bytes) = (Block::Q2_0, bytes);
        }
    }
}

fn read_tensor<R: Read>(cursor: &mut Cursor<R>) -> Result<Tensor, ImportError> {
    let name = cursor.name("the name of a tensor")?;
    let what = || format!("the entry of tensor {name:?}");
    let wrong = |reason: String| ImportError::Tensor { name: short(&name), reason };
    let dimensions = cursor.u32(&what)?;
    if dimensions > 4 {
        return Err(wrong(format!("has {dimensions} dimensions; GGUF has at most 4")));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(cursor.length(&what)?);
    }
    let number = cursor.u32(&what)?;
    let offset = cursor.u64(&what)?;
    let block = Block::from_ggml(number).ok_or_else(|| {
        let what = format!("tensor {:?}", short(&name));
        match owner(number) {
            Some(whose) => ImportError::ForeignType { what, number, whose },
            None => ImportError::UnknownType { what, number: number.to_string() },
        }
    })?;
    let columns = shape.first().copied().unwrap_or(1);
    if !columns.is_multiple_of(block.elements()) {
        return Err(wrong(format!("has rows of {columns}, no whole number of {block} blocks")));
    }
    if shape.contains(&0) {
        return Err(wrong("has a dimension of 0".to_owned()));
    }
    let rows = shape.iter().skip(1).try_fold(1u64, |product, &length| product.checked_mul(length));
    let elements = rows.and_then(|rows| rows.checked_mul(columns));
    let bytes = rows.and_then(|rows| block.size(rows, columns));
    let (Some(bytes), Some(_)) = (bytes, elements) else {
        return Err(wrong(format!("has the impossible shape {shape:?}")));
    };
    shape.reverse();
    Ok(Tensor { name, block, shape, file: 0, offset, bytes })
}

/// Whose type of tensors it is, where llama.cpp has no such type, or has it no more (ggml.h, `ggml_type`).
const fn owner(number: u32) -> Option<&'static str> {
    Some(match number {
        4 | 5 | 31..=33 | 37 => "llama.cpp reads no more",
        36 | 38 => "only bitnet.cpp reads",
        97..=399 => "only ik_llama.cpp reads",
        _ => return None,
    })
}

/// Puts the shards of a model together, in order.
///
/// # Errors
/// Says which shard is missing, doubled or of another model.
pub fn join(shards: Vec<Header>) -> Result<Header, ImportError> {
    let count = shards.len() as u64;
    let mut shards = shards.into_iter();
    let Some(mut whole) = shards.next() else {
        return Err(ImportError::Shards("there is none".to_owned()));
    };
    let declared = whole.split();
    if declared != (0, count) {
        return Err(ImportError::Shards(format!(
            "{count} given, and the first says that it is number {} of {}",
            declared.0 + 1,
            declared.1
        )));
    }
    let expected = whole.number("split.tensors.count");
    for (number, shard) in shards.enumerate().map(|(index, shard)| (index + 1, shard)) {
        let index = number as u64;
        if shard.split() != (index, count) {
            let (no, of) = shard.split();
            return Err(ImportError::Shards(format!(
                "number {} of {count} says that it is number {} of {of}",
                index + 1,
                no + 1
            )));
        }
        let total = whole.tensors.len() as u64 + shard.tensors.len() as u64;
        if total > MAX_TENSORS {
            return Err(ImportError::TooMany { what: "tensors", count: total, limit: MAX_TENSORS });
        }
        whole.tensors.extend(shard.tensors.into_iter().map(|tensor| Tensor { file: number, ..tensor }));
    }
    let found = whole.tensors.len() as u64;
    if expected.is_some_and(|expected| expected != found) {
        return Err(ImportError::Shards(format!(
            "they hold {found} tensors, and the first says {}",
            expected.unwrap_or(0)
        )));
    }
    let mut names = HashSet::new();
    if let Some(tensor) = whole.tensors.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
        return Err(ImportError::Duplicate { what: "tensor", name: short(&tensor.name) });
    }
    Ok(whole)
}

/// The model that a header describes. `file` is the file's name, which may carry a label.
///
/// # Errors
/// The metadata contradict themselves.
pub fn model(header: &Header, file: &str) -> Result<Model, ImportError> {
    super::assemble::from_gguf(header, file)
}
