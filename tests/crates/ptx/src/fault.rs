//! Why a launch stopped.

use std::fmt;

/// Where a launch stopped: the instruction and the first thread that met the fault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultLocation {
    pub entry: String,
    /// The instruction as the text has it.
    pub instruction: String,
    /// Its line in the PTX, from 1.
    pub line: usize,
    /// `%ctaid`.
    pub block: [u32; 3],
    /// `%tid`.
    pub thread: [u32; 3],
}

impl fmt::Display for FaultLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, instruction, line, block, thread } = self;
        write!(f, "{entry}, line {line}, `{instruction}`, block {block:?}, thread {thread:?}")
    }
}

/// Why a launch stopped. What was written to memory before stays written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// An address that is no multiple of the access's size.
    #[error("{at}: address {address:#x} is no multiple of the access's {bytes} bytes")]
    Misaligned {
        address: u64,
        /// What it must be a multiple of.
        bytes: usize,
        at: Box<FaultLocation>,
    },
    /// An access that the memory refuses.
    #[error("{at}: {what}")]
    Memory {
        /// The first address of the access.
        address: u64,
        /// The memory's own words.
        what: String,
        at: Box<FaultLocation>,
    },
    /// An instruction that this interpreter does not know.
    #[error("{at}: not supported ({instruction})")]
    Unsupported {
        /// The instruction, and what of it is not known.
        instruction: String,
        at: Box<FaultLocation>,
    },
    /// An instruction for several lanes at once that not all of them reached together.
    #[error("{at}: {what}")]
    Divergent {
        /// Which lanes were asked for and which came.
        what: String,
        at: Box<FaultLocation>,
    },
    /// A register or shared memory read before it was written.
    #[error("{at}: {what} is read before it is written")]
    Uninitialised {
        /// The register, or the bytes of shared memory.
        what: String,
        at: Box<FaultLocation>,
    },
    /// Two warps used the same shared memory, one of them to write, with no barrier between.
    #[error("{at}: {what}")]
    Race {
        /// The bytes and the other warp.
        what: String,
        at: Box<FaultLocation>,
    },
    /// A descriptor, address or amount that an instruction of a tensor core does not take.
    #[error("{at}: {what}")]
    Descriptor {
        /// The field and its value.
        what: String,
        at: Box<FaultLocation>,
    },
    /// The launch reached its limit of warp instructions.
    #[error("{at}: the limit of {limit} warp instructions is reached")]
    Timeout { limit: u64, at: Box<FaultLocation> },
    /// The launch does not fit the entry.
    #[error("{0}")]
    Params(String),
}
