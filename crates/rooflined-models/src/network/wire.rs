//! Protocol buffers as bytes: fields are read in place and long ones are skipped.
//!
//! A message is a list of fields. Each starts with a varint `number << 3 | type`; type 0 is a varint, 1 and 5 are 8 and 4
//! bytes, 2 is a length and so many bytes: text, a message, or numbers in a row
//! (<https://protobuf.dev/programming-guides/encoding/>). Skipped bytes are never read, so that a file costs what its
//! graph costs, however large its weights are.

use std::collections::BTreeSet;
use std::io::{BufReader, Read, Seek};

use super::error::NetworkError;

/// Most bytes that are read, skipped ones left out.
pub const MAX_BYTES: u64 = 64 << 20;
/// Most nodes, names, attributes, sizes and numbers together.
pub const MAX_ITEMS: u64 = 1 << 20;

/// A field of a message.
#[derive(Debug, Clone, Copy)]
pub enum Field {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    /// A field with a length; its bytes come next.
    Bytes(Span),
}

/// Bytes of the file.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub start: u64,
    pub end: u64,
}

impl Span {
    pub const fn length(self) -> u64 {
        self.end - self.start
    }
}

/// The place in a file, and what reading it may still cost.
pub struct Wire<R> {
    source: BufReader<R>,
    at: u64,
    length: u64,
    read: u64,
    items: u64,
    /// Files next to this one that hold values of tensors.
    pub beside: BTreeSet<String>,
}

impl<R: Read + Seek> Wire<R> {
    /// Starts at the first byte of `source`, which has `length` bytes.
    pub fn new(source: R, length: u64) -> Self {
        let length = length.min(i64::MAX.cast_unsigned());
        Self {
            source: BufReader::with_capacity(1 << 16, source),
            at: 0,
            length,
            read: 0,
            items: 0,
            beside: BTreeSet::new(),
        }
    }

    pub const fn whole(&self) -> Span {
        Span { start: 0, end: self.length }
    }

    /// The place of the next byte.
    pub const fn place(&self) -> u64 {
        self.at
    }

    /// Counts something that is kept.
    pub fn keep_item(&mut self) -> Result<(), NetworkError> {
        self.items += 1;
        if self.items > MAX_ITEMS {
            return Err(NetworkError::TooMany { what: "nodes, names and numbers", limit: MAX_ITEMS });
        }
        Ok(())
    }

    /// The next field of a message, or `None` at its end. Bytes of a field that the caller left are skipped.
    pub fn field(&mut self, message: Span) -> Result<Option<(u64, Field)>, NetworkError> {
        if self.at >= message.end {
            return Ok(None);
        }
        let tag = self.varint(message.end)?;
        let field = match tag & 7 {
            0 => Field::Varint(self.varint(message.end)?),
            1 => Field::Fixed64(u64::from_le_bytes(self.array(message.end)?)),
            2 => {
                let length = self.varint(message.end)?;
                let available = message.end - self.at;
                if length > available {
                    return Err(NetworkError::Cut {
                        what: "a field",
                        at: self.at,
                        needed: length,
                        available,
                    });
                }
                Field::Bytes(Span { start: self.at, end: self.at + length })
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.array(message.end)?)),
            other => return Err(NetworkError::NotOnnx(format!("byte {} is of wire type {other}", self.at))),
        };
        Ok(Some((tag >> 3, field)))
    }

    /// Goes to a place in the file.
    pub fn seek(&mut self, to: u64) -> Result<(), NetworkError> {
        // Both are below the length of a file.
        self.source.seek_relative(to.cast_signed() - self.at.cast_signed())?;
        self.at = to;
        Ok(())
    }

    pub fn skip(&mut self, field: Field) -> Result<(), NetworkError> {
        if let Field::Bytes(span) = field { self.seek(span.end) } else { Ok(()) }
    }

    pub fn varint(&mut self, end: u64) -> Result<u64, NetworkError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array(end)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(NetworkError::NotOnnx(format!("the number before byte {} has no end", self.at)))
    }

    pub fn array<const N: usize>(&mut self, end: u64) -> Result<[u8; N], NetworkError> {
        let mut bytes = [0; N];
        self.take(&mut bytes, end)?;
        Ok(bytes)
    }

    /// Text of a field; bytes that are not UTF-8 are replaced.
    pub fn text(&mut self, span: Span) -> Result<String, NetworkError> {
        self.keep_item()?;
        Ok(String::from_utf8_lossy(&self.bytes(span)?).into_owned())
    }

    pub fn bytes(&mut self, span: Span) -> Result<Vec<u8>, NetworkError> {
        if span.length() > MAX_BYTES - self.read {
            return Err(NetworkError::TooMany { what: "bytes besides weights", limit: MAX_BYTES });
        }
        self.seek(span.start)?;
        // The length is below MAX_BYTES.
        let mut bytes = vec![0; usize::try_from(span.length()).unwrap_or(0)];
        self.take(&mut bytes, span.end)?;
        Ok(bytes)
    }

    fn take(&mut self, bytes: &mut [u8], end: u64) -> Result<(), NetworkError> {
        let needed = bytes.len() as u64;
        let available = end.saturating_sub(self.at);
        if needed > available {
            return Err(NetworkError::Cut { what: "a number", at: self.at, needed, available });
        }
        self.read += needed;
        if self.read > MAX_BYTES {
            return Err(NetworkError::TooMany { what: "bytes besides weights", limit: MAX_BYTES });
        }
        self.source.read_exact(bytes)?;
        self.at += needed;
        Ok(())
    }
}
