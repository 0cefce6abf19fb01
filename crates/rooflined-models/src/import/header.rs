//! What the header of a GGUF file holds.

use std::collections::BTreeMap;

use super::Tensor;

/// The array of words in which a model's card says what the model is for.
pub const TAGS: &str = "general.tags";

/// A value of the metadata, as far as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Integers and booleans that are not negative.
    Unsigned(u64),
    Negative(i64),
    Float(f64),
    Text(String),
    /// An array of integers or booleans with no more members than a model has layers.
    Numbers(Vec<u64>),
    /// Any other array: its length.
    Array(u64),
    /// Text too long to keep.
    Skipped,
}

/// The header of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// 1, 2 or 3.
    pub version: u32,
    /// Numbers have their most significant byte first.
    pub big_endian: bool,
    /// What was kept of the metadata.
    pub metadata: BTreeMap<String, Value>,
    pub tensors: Vec<Tensor>,
}

impl Header {
    /// A non-negative integer.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.metadata.get(key)? {
            Value::Unsigned(number) => Some(*number),
            _ => None,
        }
    }

    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.metadata.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// How many files the model is split into, and which this is from 0; a file that says nothing is the only one.
    #[must_use]
    pub fn split(&self) -> (u64, u64) {
        (self.number("split.no").unwrap_or(0), self.number("split.count").unwrap_or(1).max(1))
    }
}
