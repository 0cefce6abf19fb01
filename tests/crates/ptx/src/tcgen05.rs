//! `tcgen05`: products of matrices in shared memory into tensor memory, and what goes with them.
//!
//! The accumulator of 128 rows has row i in lane i and column j in column j; of 64 rows, row i is in lane 32 (i / 16) +
//! i mod 16. The scale factors of an instruction stand in the bytes of one word for each row of A or column of B: row i in
//! lane i mod 32 of column i / 32, and again in each of the four groups of 32 lanes.

use crate::access::Address;
use crate::barrier::{address, seen};
use crate::descriptor::{Descriptor, Factor, multiply};
use crate::float::E4M3;
use crate::mma::{Element, KINDS};
use crate::operation::Predicate;
use crate::shared::Ranges;
use crate::tensor::{By, LANES, Use};
use crate::warp::{Fail, Machine, Trouble, Warp, lanes_of};
use crate::warpgroup::wait_for_loads;

pub(crate) enum Tcgen05 {
    Allocate {
        into: Address,
        columns: usize,
    },
    Free {
        address: usize,
        columns: usize,
    },
    Relinquish,
    FenceBefore,
    FenceAfter,
    WaitForLoads,
    WaitForStores,
    /// `.32x32b`: each lane of the warp has its own lane of tensor memory, each register a column.
    Load {
        into: Vec<usize>,
        address: Address,
    },
    Store {
        from: Vec<usize>,
        address: Address,
    },
    Multiply(Box<Multiply>),
    /// `tcgen05.cp.32x128b.warpx4`: 32 rows of four words, to all four groups of lanes.
    Copy {
        to: Address,
        from: usize,
    },
    Commit {
        address: Address,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    F16,
    Tf32,
    F8f6f4,
    I8,
    Mxf8f6f4,
    Mxf4,
    Mxf4nvf4,
}

impl Kind {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "kind::f16" => Self::F16,
            "kind::tf32" => Self::Tf32,
            "kind::f8f6f4" => Self::F8f6f4,
            "kind::i8" => Self::I8,
            "kind::mxf8f6f4" => Self::Mxf8f6f4,
            "kind::mxf4" => Self::Mxf4,
            "kind::mxf4nvf4" => Self::Mxf4nvf4,
            _ => return None,
        })
    }

    /// Blocks along the depth of one instruction, by the name of the size of a block or of the scales.
    pub fn blocks(self, size: Option<&str>) -> Option<usize> {
        match (self, size) {
            (Self::Mxf8f6f4, None | Some("scale_vec::1X" | "block32")) => Some(1),
            (Self::Mxf4, None | Some("scale_vec::2X" | "block32"))
            | (Self::Mxf4nvf4, Some("scale_vec::2X" | "block32")) => Some(2),
            (Self::Mxf4nvf4, Some("scale_vec::4X" | "block16")) => Some(4),
            _ => None,
        }
    }
}

/// `tcgen05.mma` of two matrices in shared memory.
pub(crate) struct Multiply {
    pub kind: Kind,
    pub d: Address,
    pub descriptors: [usize; 2],
    pub instruction: usize,
    /// Where the factors of A and of B are, and how many blocks have one.
    pub scales: Option<([Address; 2], usize)>,
    pub add: Predicate,
}

/// An instruction descriptor as its fields say.
#[derive(Debug, Clone, Copy)]
struct Instruction {
    rows: usize,
    columns: usize,
    depth: usize,
    bits: usize,
    types: [Element; 2],
    /// The name of A's type, by its place in [`KINDS`].
    name: usize,
    is_integer: bool,
    saturates: bool,
    negated: [bool; 2],
    transposed: [bool; 2],
    scale: Option<Scale>,
}

#[derive(Debug, Clone, Copy)]
struct Scale {
    blocks: usize,
    /// The first byte of a word, of A and of B.
    bytes: [usize; 2],
    /// ue8m0, not ue4m3.
    is_exponent: bool,
}

impl Instruction {
    /// PTX ISA, "Instruction descriptor".
    fn of(kind: Kind, word: u32, blocks: Option<usize>) -> Result<Self, Trouble> {
        let field = |first: u32, bits: u32| (word >> first & ((1 << bits) - 1)) as usize;
        let refused = |what: &str| {
            Err(Trouble::Descriptor { what: format!("instruction descriptor {word:#010x}: {what}") })
        };
        if field(2, 1) != 0 {
            return refused("sparse matrices are not known here");
        }
        let name = |code: usize| {
            Some(match (kind, code) {
                (Kind::F16, 0) => "f16",
                (Kind::F16, 1) => "bf16",
                (Kind::Tf32, 2) => "tf32",
                (Kind::F8f6f4 | Kind::Mxf8f6f4, 0) => "e4m3",
                (Kind::F8f6f4 | Kind::Mxf8f6f4, 1) => "e5m2",
                (Kind::I8, 0) => "u8",
                (Kind::I8, 1) => "s8",
                (Kind::Mxf4 | Kind::Mxf4nvf4, 1) => "e2m1",
                _ => return None,
            })
        };
        let (Some(a), Some(b)) = (name(field(7, 3)), name(field(10, 3))) else {
            return refused("a type of A or B is none of this kind, or not known here");
        };
        if kind == Kind::F16 && a != b {
            return refused("A and B have different types");
        }
        let found = |name: &str| Element::named(name).zip(KINDS.iter().position(|&kind| kind == name));
        let (Some(((bits, left), name)), Some(((_, right), _))) = (found(a), found(b)) else {
            return refused("a type is not known here");
        };
        let is_integer = kind == Kind::I8;
        let columns = 8 * field(17, 6);
        let rows;
        let scale = if let Some(blocks) = blocks {
            let ids = [field(29, 2), field(4, 2)];
            let is_exponent = field(23, 1) == 1;
            if field(0, 2) | field(3, 1) | field(6, 1) | field(24, 3) != 0 {
                return refused("a reserved bit is set");
            }
            if field(31, 1) != 0 {
                return refused("a depth of 96 is not known here");
            }
            if ids.iter().any(|id| !id.is_multiple_of(blocks)) {
                return refused("the factors of a row begin at a byte where they cannot");
            }
            if !is_exponent && blocks != 4 {
                return refused("ue4m3 factors are for blocks of 16");
            }
            if kind != Kind::Mxf8f6f4 && (field(15, 1) | field(16, 1) | field(12, 1)) != 0 {
                return refused("4-bit matrices cannot be transposed, and have types of two bits");
            }
            rows = 128 * field(27, 2);
            Some(Scale { blocks, bytes: ids, is_exponent })
        } else {
            let wanted = if is_integer { 2 } else { 1 };
            if field(4, 2) != wanted {
                return refused("the accumulator's type is none of this kind, or not known here");
            }
            if field(0, 2) | field(6, 1) | field(23, 1) | field(29, 3) != 0
                || (!is_integer && field(3, 1) != 0)
            {
                return refused("a bit is set that dense matrices do not use");
            }
            if is_integer && (field(13, 1) | field(14, 1)) != 0 {
                return refused("integers cannot be negated");
            }
            rows = 16 * field(24, 5);
            None
        };
        let steps =
            if is_integer { columns.is_multiple_of(16) || columns == 8 || columns == 24 } else { true };
        if !(rows == 128 || (rows == 64 && scale.is_none())) || !(8..=256).contains(&columns) || !steps {
            return refused(&format!("{rows} rows and {columns} columns are no shape of this kind"));
        }
        Ok(Self {
            rows,
            columns,
            depth: 256 / bits,
            bits,
            types: [left, right],
            name,
            is_integer,
            saturates: is_integer && field(3, 1) == 1,
            negated: [field(13, 1) == 1, field(14, 1) == 1],
            transposed: [field(15, 1) == 1, field(16, 1) == 1],
            scale,
        })
    }

    /// The lane of a row of the accumulator, from the first.
    fn lane(&self, row: usize) -> usize {
        if self.rows == 128 { row } else { row / 16 * 32 + row % 16 }
    }
}

/// Lane and column of an address in tensor memory.
const fn place(address: u64) -> (usize, usize) {
    ((address >> 16 & 0xffff) as usize, (address & 0xffff) as usize)
}

impl Multiply {
    fn run(&self, machine: &mut Machine<'_>, warp: &Warp, lane: usize) -> Result<(), Fail> {
        let only = 1 << lane;
        let value = |slot: usize| Ok(warp.read(machine, slot, only)?[lane]);
        let of = |address: Address| tensor_address(machine, warp, address, only).map(|lanes| lanes[lane]);
        let words = [value(self.descriptors[0])?, value(self.descriptors[1])?];
        let word = value(self.instruction)? as u32;
        let d = of(self.d)?;
        let scales = match self.scales {
            Some(([a, b], _)) => [of(a)?, of(b)?],
            None => [0; 2],
        };
        let adds = warp.predicate(machine, self.add, only)? & only != 0;
        let blocks = self.scales.map(|(_, blocks)| blocks);
        self.multiply(machine, warp, lane, (words, word, blocks), d, scales, adds)
            .map_err(|trouble| Fail::at(lane, trouble))
    }

    #[expect(clippy::too_many_arguments, reason = "the instruction's operands")]
    fn multiply(
        &self,
        machine: &mut Machine<'_>,
        warp: &Warp,
        lane: usize,
        (words, word, blocks): ([u64; 2], u32, Option<usize>),
        d: u64,
        scales: [u64; 2],
        adds: bool,
    ) -> Result<(), Trouble> {
        let instruction = Instruction::of(self.kind, word, blocks)?;
        let Instruction { rows, columns, depth, bits, .. } = instruction;
        let (first, column) = place(d);
        if first != 0 && !(rows == 64 && first == 16) {
            let what = format!("an accumulator of {rows} rows cannot begin at lane {first}");
            return Err(Trouble::Descriptor { what });
        }
        let (thread, mut ranges) = (warp.thread(lane), Ranges::new());
        let mut read = |which: usize, rows: usize| {
            let factor = Factor {
                descriptor: Descriptor::of_tensor(words[which])?,
                transposed: instruction.transposed[which],
                rows: 0..rows,
                depth,
                bits,
                element: instruction.types[which],
                negated: instruction.negated[which],
            };
            factor.read(&mut machine.shared, thread, false, &mut ranges)
        };
        let (mut left, mut right) = (read(0, rows)?, read(1, columns)?);
        let who = machine.tensor.order.next(warp.index, By::Unit);
        if let Some(scale) = instruction.scale {
            for (which, values) in [&mut left, &mut right].into_iter().enumerate() {
                scale.apply(machine, who, scales[which], scale.bytes[which], values, depth)?;
            }
        }
        let mut sums = vec![0.0; rows * columns];
        if adds {
            for (at, sum) in sums.iter_mut().enumerate() {
                let lane = first + instruction.lane(at / columns);
                let word = machine.tensor.read(who, lane, column + at % columns)?;
                *sum = if instruction.is_integer {
                    f64::from(word.cast_signed())
                } else {
                    f64::from(f32::from_bits(word))
                };
            }
        }
        multiply(&mut sums, &left, &right, depth);
        for (at, &sum) in sums.iter().enumerate() {
            let word = if !instruction.is_integer {
                (sum as f32).to_bits()
            } else if instruction.saturates {
                (sum as i32).cast_unsigned()
            } else {
                sum as i64 as u32
            };
            let lane = first + instruction.lane(at / columns);
            machine.tensor.write(who, lane, column + at % columns, word)?;
        }
        machine.tensor.issue(thread, who, ranges);
        machine.mma_flops[instruction.name] += (2 * rows * columns * depth) as u64;
        Ok(())
    }
}

impl Scale {
    /// Multiplies each block of each row with its factor.
    fn apply(
        self,
        machine: &mut Machine<'_>,
        who: Use,
        address: u64,
        byte: usize,
        values: &mut [f64],
        depth: usize,
    ) -> Result<(), Trouble> {
        let (first, column) = place(address);
        if first != 0 {
            let what = format!("scale factors cannot begin at lane {first}");
            return Err(Trouble::Descriptor { what });
        }
        for (row, values) in values.chunks_exact_mut(depth).enumerate() {
            let mut words = [0; LANES / 32];
            for (group, word) in words.iter_mut().enumerate() {
                *word = machine.tensor.read(who, 32 * group + row % 32, column + row / 32)?;
            }
            for (block, values) in values.chunks_exact_mut(depth / self.blocks).enumerate() {
                let bytes = words.map(|word| word >> (8 * (byte + block)) & 0xff);
                let factor = match bytes[0] {
                    // Which group's copy is used for what is not said.
                    _ if bytes.iter().any(|&copy| copy != bytes[0]) => f64::NAN,
                    255 if self.is_exponent => f64::NAN,
                    code if self.is_exponent => (f64::from(code) - 127.0).exp2(),
                    code => E4M3.decode(code & 0x7f),
                };
                values.iter_mut().for_each(|value| *value *= factor);
            }
        }
        Ok(())
    }
}

/// The addresses in tensor memory that lanes have.
fn tensor_address(machine: &Machine<'_>, warp: &Warp, at: Address, active: u32) -> Result<[u64; 32], Fail> {
    let mut lanes = match at.base {
        Some(base) => *warp.read(machine, base, active)?,
        None => [0; 32],
    };
    lanes.iter_mut().for_each(|lane| *lane = lane.wrapping_add_signed(at.offset) & 0xffff_ffff);
    Ok(lanes)
}

impl Tcgen05 {
    /// Whether all lanes of a warp run it together.
    pub fn is_aligned(&self) -> bool {
        !matches!(
            self,
            Self::FenceBefore
                | Self::FenceAfter
                | Self::Multiply(_)
                | Self::Copy { .. }
                | Self::Commit { .. }
        )
    }

    pub fn run(&self, machine: &mut Machine<'_>, warp: &mut Warp, active: u32) -> Result<(), Fail> {
        let fail = |trouble| Fail::at(0, trouble);
        match *self {
            Self::Allocate { into, columns } => {
                let columns = warp.read(machine, columns, active)?[0] & 0xffff_ffff;
                let at = address(machine, warp, into, 4, active)?[0];
                let first = machine.tensor.allocate(columns).map_err(fail)? as u32;
                machine.shared.write(warp.thread(0), at, &first.to_le_bytes()).map_err(fail)?;
            }
            Self::Free { address, columns } => {
                let columns = warp.read(machine, columns, active)?[0] & 0xffff_ffff;
                let address = warp.read(machine, address, active)?[0];
                machine.tensor.free(warp.index, address, columns).map_err(fail)?;
            }
            Self::Relinquish => machine.tensor.relinquish(),
            Self::FenceBefore => machine.tensor.order.before(warp.index),
            Self::FenceAfter => machine.tensor.order.after(warp.index),
            Self::WaitForLoads => {
                machine.tensor.order.waited(warp.index, By::Load);
                wait_for_loads(machine, warp)?;
            }
            Self::WaitForStores => machine.tensor.order.waited(warp.index, By::Store),
            Self::Load { ref into, address } => {
                let (first, column) = own_lanes(machine, warp, address)?;
                let who = machine.tensor.order.next(warp.index, By::Load);
                for (index, &register) in into.iter().enumerate() {
                    let mut lanes = [0; 32];
                    for (lane, word) in lanes.iter_mut().enumerate() {
                        let found = machine.tensor.read(who, first + lane, column + index);
                        *word = u64::from(found.map_err(|trouble| Fail::at(lane, trouble))?);
                    }
                    warp.write_later(register, &lanes);
                    warp.flight.load(register);
                }
            }
            Self::Store { ref from, address } => {
                let (first, column) = own_lanes(machine, warp, address)?;
                let who = machine.tensor.order.next(warp.index, By::Store);
                for (index, &register) in from.iter().enumerate() {
                    let lanes = *warp.read(machine, register, active)?;
                    for (lane, &word) in lanes.iter().enumerate() {
                        let write = machine.tensor.write(who, first + lane, column + index, word as u32);
                        write.map_err(|trouble| Fail::at(lane, trouble))?;
                    }
                }
            }
            Self::Multiply(ref multiply) => {
                for lane in lanes_of(active) {
                    multiply.run(machine, warp, lane)?;
                }
            }
            Self::Copy { to, from } => {
                for lane in lanes_of(active) {
                    let to = tensor_address(machine, warp, to, 1 << lane)?[lane];
                    let from = warp.read(machine, from, 1 << lane)?[lane];
                    copy(machine, warp, lane, to, from).map_err(|trouble| Fail::at(lane, trouble))?;
                }
            }
            Self::Commit { address: at } => {
                let addresses = address(machine, warp, at, 8, active)?;
                for lane in lanes_of(active) {
                    seen(machine, warp, lane, addresses[lane])?;
                    let commit = machine.tensor.commit(warp.thread(lane), addresses[lane]);
                    commit.map_err(|trouble| Fail::at(lane, trouble))?;
                }
            }
        }
        Ok(())
    }
}

/// 32 rows of 16 bytes as a matrix without transposition, to each group of lanes.
fn copy(machine: &mut Machine<'_>, warp: &Warp, lane: usize, to: u64, from: u64) -> Result<(), Trouble> {
    let (first, column) = place(to);
    if first != 0 {
        return Err(Trouble::Descriptor {
            what: format!("a copy to all lanes cannot begin at lane {first}"),
        });
    }
    let rows = Factor {
        descriptor: Descriptor::of_tensor(from)?,
        transposed: false,
        rows: 0..32,
        depth: 16,
        bits: 8,
        element: Element::Integer { signed: false },
        negated: false,
    };
    let (thread, mut ranges) = (warp.thread(lane), Ranges::new());
    let bytes = rows.read(&mut machine.shared, thread, false, &mut ranges)?;
    let who = machine.tensor.order.next(warp.index, By::Unit);
    for (at, word) in bytes.chunks_exact(4).enumerate() {
        let word = word.iter().rev().fold(0, |word, &byte| word << 8 | byte as u32);
        for group in 0..LANES / 32 {
            machine.tensor.write(who, 32 * group + at / 4, column + at % 4, word)?;
        }
    }
    machine.tensor.issue(thread, who, ranges);
    Ok(())
}

/// The first lane and column of a load or store, which must be the warp's own lanes.
fn own_lanes(machine: &Machine<'_>, warp: &Warp, address: Address) -> Result<(usize, usize), Fail> {
    let lanes = tensor_address(machine, warp, address, u32::MAX)?;
    if let Some(lane) = lanes.iter().position(|&lane| lane != lanes[0]) {
        let what = "the lanes have different addresses of tensor memory".to_owned();
        return Err(Fail::at(lane, Trouble::Divergent { what }));
    }
    let (first, column) = place(lanes[0]);
    let own = usize::from(warp.index) % 4 * 32;
    if first != own {
        let what = format!("warp {} reaches the lanes from {own} on, not from {first}", warp.index);
        return Err(Fail::at(0, Trouble::Descriptor { what }));
    }
    Ok((first, column))
}
