//! Instructions to run.

use crate::access::{Access, Address, Atomic};
use crate::barrier::Barrier;
use crate::convert::Conversion;
use crate::lanes::{Comparison, Function};
use crate::mma::Mma;
use crate::tcgen05::Tcgen05;
use crate::warpgroup::Wgmma;

/// A predicate source: its register and whether it is negated.
pub(crate) type Predicate = (usize, bool);

/// How a `setp` joins its comparison with a predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    And,
    Or,
    Xor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

/// What an instruction does. Registers, constants and the special registers that stay the same are all slots.
pub(crate) enum Operation {
    Compute {
        function: Function,
        d: usize,
        sources: [usize; 4],
        flops: u32,
        flush: bool,
        saturate: bool,
    },
    Convert {
        conversion: Conversion,
        d: usize,
        a: usize,
        b: usize,
        register: u32,
    },
    Compare {
        comparison: Comparison,
        d: Option<usize>,
        inverse: Option<usize>,
        a: usize,
        b: usize,
        join: Option<(Join, Predicate)>,
        flush: bool,
    },
    /// `set`: all ones or 1.0 where the comparison holds.
    Set {
        comparison: Comparison,
        d: usize,
        a: usize,
        b: usize,
        truth: u64,
    },
    Select {
        d: usize,
        a: usize,
        b: usize,
        by: Predicate,
    },
    Logic {
        d: usize,
        a: Predicate,
        b: Predicate,
        join: Join,
    },
    Pack {
        d: usize,
        parts: Vec<usize>,
        bits: u32,
    },
    Unpack {
        parts: Vec<Option<usize>>,
        a: usize,
        bits: u32,
    },
    Clock {
        d: usize,
        shift: u32,
        bits: u32,
    },
    Load {
        access: Access,
        into: Vec<Option<usize>>,
        address: Address,
    },
    Store {
        access: Access,
        from: Vec<usize>,
        address: Address,
    },
    Atomic {
        atomic: Atomic,
        d: Option<usize>,
        address: Address,
        b: usize,
        c: usize,
    },
    Shuffle {
        mode: ShuffleMode,
        d: usize,
        p: Option<usize>,
        a: usize,
        b: usize,
        c: usize,
        members: usize,
    },
    Vote {
        mode: VoteMode,
        d: usize,
        by: Predicate,
        members: usize,
    },
    Reduce {
        function: Function,
        d: usize,
        a: usize,
        members: usize,
    },
    Members {
        members: usize,
    },
    /// `elect.sync`: one lane of the members.
    Elect {
        d: Option<usize>,
        p: usize,
        members: usize,
    },
    ActiveMask {
        d: usize,
    },
    Barrier {
        id: usize,
        threads: Option<usize>,
    },
    Mma {
        mma: Mma,
        d: Vec<usize>,
        a: Vec<usize>,
        b: Vec<usize>,
        c: Vec<usize>,
        scales: [usize; 2],
    },
    LoadMatrix {
        into: Vec<usize>,
        address: Address,
        transposed: bool,
    },
    Warpgroup(Wgmma),
    Tensor(Tcgen05),
    Synchronise(Barrier),
    Branch {
        target: usize,
    },
    Exit,
    Nothing,
    Unsupported {
        why: String,
    },
}

pub(crate) struct Instruction {
    pub guard: Option<Predicate>,
    pub operation: Operation,
}

pub(crate) struct Program {
    pub instructions: Vec<Instruction>,
    /// Values of the slots after the registers and the special registers.
    pub constants: Vec<u64>,
}
