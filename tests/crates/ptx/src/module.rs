//! A parsed module and what a launch of its entries is given and gives back.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::decode::decode;
use crate::operation::{Operation, Program};
use crate::parse::{Code, Param, parse};

/// A text that is not PTX, or PTX of a kind that is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

pub struct Module {
    version: (u32, u32),
    target: String,
    entries: Vec<Entry>,
}

pub struct Entry {
    pub(crate) code: Code,
    pub(crate) program: Program,
    /// The module's own variables.
    pub(crate) statics: Arc<Vec<u8>>,
}

impl Module {
    /// Parses and decodes the text. An instruction that is not known is no error here: it is one when it is run.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let text = parse(text)?;
        let statics = Arc::new(text.statics);
        let entries = text
            .entries
            .into_iter()
            .map(|code| Entry { program: decode(&code), code, statics: Arc::clone(&statics) })
            .collect();
        Ok(Self { version: text.version, target: text.target, entries })
    }

    /// The PTX ISA version, major and minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The target, such as `sm_80`.
    pub fn target(&self) -> &str {
        &self.target
    }

    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name() == name)
    }

    /// All entries, as they stand in the text.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }
}

impl Entry {
    pub fn name(&self) -> &str {
        &self.code.name
    }

    /// Its parameters in order.
    pub fn params(&self) -> &[Param] {
        &self.code.params
    }

    /// The instructions that this interpreter does not know; a launch fails at the first it comes to.
    pub fn unsupported(&self) -> impl Iterator<Item = &str> {
        let unknown = |operation: &Operation| matches!(operation, Operation::Unsupported { .. });
        let both = self.code.statements.iter().zip(&self.program.instructions);
        both.filter(move |(_, decoded)| unknown(&decoded.operation)).map(|(written, _)| written.text.as_str())
    }
}

/// How an entry is launched.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, beside what the entry declares.
    pub shared_bytes: u32,
    /// The bytes of each parameter.
    pub params: &'a [Vec<u8>],
    /// Warp instructions after which the launch ends as [`crate::Fault::Timeout`].
    pub limit: u64,
}

/// What a launch did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Instructions of all warps; one for a warp is one, however many lanes take part.
    pub warp_instructions: u64,
    /// Instructions of the warp that ran most; `%clock64` counts the same.
    pub longest_warp: u64,
    /// Bytes that loads from global memory asked for; a byte that several lanes of one instruction ask for counts
    /// once, as the coalescer would have it.
    pub global_read: u64,
    /// Bytes that stores to global memory wrote, counted likewise.
    pub global_written: u64,
    /// Floating-point additions and multiplications outside `mma`; an fma is two, a packed one twice that.
    pub fma_flops: u64,
    /// Operations of `mma` by the type of its factors: `f16`, `bf16`, `tf32`, `s8`, `s4`, `e4m3`.
    pub mma_flops: BTreeMap<String, u64>,
}
