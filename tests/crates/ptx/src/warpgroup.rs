//! `wgmma`: 64 rows and up to 256 columns, a quarter of the rows to each warp of four, asynchronously.
//!
//! Each warp computes its own rows when it comes to the instruction, and has the result in its registers from then on;
//! but they count as unwritten until a `wgmma.wait_group` has waited for the group, and what the instruction reads may
//! not be written. Register r of an accumulator of 32 bits is row lane / 4 + 8 (r / 2 mod 2) of the warp's 16 and
//! column 8 (r / 4) + 2 (lane mod 4) + r mod 2; of 16 bits, register r holds elements 2 r and 2 r + 1.

use std::collections::BTreeMap;

use crate::descriptor::{Descriptor, Factor, multiply};
use crate::float::{F16, Rounding};
use crate::mma::{Element, KINDS};
use crate::operation::Predicate;
use crate::shared::Ranges;
use crate::warp::{Fail, Machine, Trouble, Warp};

/// Instructions of a warpgroup.
pub(crate) enum Wgmma {
    Fence,
    Commit,
    Wait { left: u64 },
    Multiply(Box<Multiply>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sum {
    F32,
    F16,
    S32 { saturate: bool },
}

/// `wgmma.mma_async` of two matrices in shared memory.
pub(crate) struct Multiply {
    columns: usize,
    sum: Sum,
    bits: usize,
    elements: [Element; 2],
    kind: usize,
    pub d: Vec<usize>,
    pub descriptors: [usize; 2],
    pub add: Predicate,
    negated: [bool; 2],
    transposed: [bool; 2],
}

/// Rows of a warp.
const ROWS: usize = 16;

impl Multiply {
    /// From the words after `wgmma.mma_async.sync.aligned` and the constants after the predicate.
    pub fn named(
        words: &[&str],
        constants: &[u64],
        d: Vec<usize>,
        descriptors: [usize; 2],
        add: Predicate,
    ) -> Option<Self> {
        let (words, saturate) = match words {
            [shape, "satfinite", rest @ ..] => ([&[*shape], rest].concat(), true),
            _ => (words.to_vec(), false),
        };
        let [shape, sum, a, b] = *words else { return None };
        let (columns, depth) = shape.strip_prefix("m64n")?.split_once('k')?;
        let (columns, depth): (usize, usize) = (columns.parse().ok()?, depth.parse().ok()?);
        let ((bits, left), (bits_b, right)) = (Element::named(a)?, Element::named(b)?);
        let integers = matches!(left, Element::Integer { .. });
        let fits = match a {
            "f16" => b == a && matches!(sum, "f16" | "f32"),
            "bf16" | "tf32" => b == a && sum == "f32",
            "e4m3" | "e5m2" => matches!(b, "e4m3" | "e5m2") && matches!(sum, "f16" | "f32"),
            "s8" | "u8" => matches!(b, "s8" | "u8") && sum == "s32",
            _ => false,
        };
        let steps = if integers {
            columns.is_multiple_of(16) || columns == 8 || columns == 24
        } else {
            columns.is_multiple_of(8)
        };
        if !fits || !steps || !(8..=256).contains(&columns) || bits != bits_b || bits * depth != 256 {
            return None;
        }
        if saturate && !integers {
            return None;
        }
        let sum = match sum {
            "f32" => Sum::F32,
            "f16" => Sum::F16,
            _ => Sum::S32 { saturate },
        };
        let sign = |value: u64| match value.cast_signed() {
            1 => Some(false),
            -1 => Some(true),
            _ => None,
        };
        let flag = |value: u64| (value < 2).then_some(value == 1);
        let (negated, transposed) = match (constants, bits) {
            (&[], 8) if integers => ([false; 2], [false; 2]),
            (&[a, b], 8 | 32) if !integers => ([sign(a)?, sign(b)?], [false; 2]),
            (&[a, b, c, d], 16) => ([sign(a)?, sign(b)?], [flag(c)?, flag(d)?]),
            _ => return None,
        };
        let registers = columns / if sum == Sum::F16 { 4 } else { 2 };
        (d.len() == registers).then_some(Self {
            columns,
            sum,
            bits,
            elements: [left, right],
            kind: KINDS.iter().position(|&kind| kind == a)?,
            d,
            descriptors,
            add,
            negated,
            transposed,
        })
    }

    fn run(&self, machine: &mut Machine<'_>, warp: &mut Warp) -> Result<(), Fail> {
        let fail = |trouble| Fail::at(0, trouble);
        if !machine.warps.is_multiple_of(4) {
            let what = format!("a block of {} warps has no whole warpgroups", machine.warps);
            return Err(fail(Trouble::Divergent { what }));
        }
        let mut words = [0; 2];
        for (word, &slot) in words.iter_mut().zip(&self.descriptors) {
            let lanes = warp.read(machine, slot, u32::MAX)?;
            *word = lanes[0];
            if let Some(lane) = lanes.iter().position(|&lane| lane != lanes[0]) {
                let what = "the lanes have different matrix descriptors".to_owned();
                return Err(Fail::at(lane, Trouble::Divergent { what }));
            }
        }
        let adds = warp.predicate(machine, self.add, u32::MAX)?;
        if adds != 0 && adds != u32::MAX {
            let what = "the lanes do not agree whether to add to the accumulator".to_owned();
            return Err(fail(Trouble::Divergent { what }));
        }
        let factor = |which: usize, rows| {
            Ok(Factor {
                descriptor: Descriptor::of_warpgroup(words[which])?,
                transposed: self.transposed[which],
                rows,
                depth: 256 / self.bits,
                bits: self.bits,
                element: self.elements[which],
                negated: self.negated[which],
            })
        };
        let first = usize::from(warp.index) % 4 * ROWS;
        let (thread, mut ranges) = (warp.thread(0), Ranges::new());
        let mut read =
            |which, rows| factor(which, rows)?.read(&mut machine.shared, thread, true, &mut ranges);
        let left = read(0, first..first + ROWS).map_err(fail)?;
        let right = read(1, 0..self.columns).map_err(fail)?;
        let mut sums = self.accumulators(machine, warp, adds != 0)?;
        multiply(&mut sums, &left, &right, 256 / self.bits);
        self.results(warp, &sums);
        machine.mma_flops[self.kind] += (2 * ROWS * self.columns * 256 / self.bits) as u64;
        let at = warp.at() as u64;
        let flight = &mut warp.flight;
        flight.registers.extend(self.d.iter().map(|&register| (register, (self.shape(), flight.open))));
        flight.ranges.push((flight.open, ranges));
        for word in [at, words[0], words[1], u64::from(adds)] {
            flight.history = (flight.history ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        }
        Ok(())
    }

    fn shape(&self) -> (usize, Sum) {
        (self.columns, self.sum)
    }

    /// Row and column of an element, of `per` a register.
    fn place(lane: usize, r: usize, e: usize, per: usize) -> (usize, usize) {
        let r = r * per + e;
        (lane / 4 + 8 * (r / 2 % 2), 8 * (r / 4) + 2 * (lane % 4) + r % 2)
    }

    /// What is added to; all zeros where nothing is. Registers must be those of instructions like this one that are
    /// under way, or have come to rest before a fence.
    fn accumulators(&self, machine: &Machine<'_>, warp: &Warp, adds: bool) -> Result<Vec<f64>, Fail> {
        let mut sums = vec![0.0; ROWS * self.columns];
        for (r, &register) in self.d.iter().enumerate() {
            let trouble = |what: &str| {
                let name = machine.registers.get(register).map_or("a register", |register| &register.name);
                Fail::at(0, Trouble::Race { what: format!("{name}: {what}") })
            };
            let lanes = match warp.flight.registers.get(&register) {
                Some((shape, _)) if *shape == self.shape() => warp.peek(register),
                Some(_) => return Err(trouble("a wgmma of another shape has not finished with it")),
                None if warp.stamp(register) >= warp.flight.fence => {
                    return Err(trouble("there is no wgmma.fence since it was written"));
                }
                None if adds => warp.read(machine, register, u32::MAX)?,
                None => continue,
            };
            if !adds {
                continue;
            }
            for (lane, &word) in lanes.iter().enumerate() {
                let word = word as u32;
                let mut set = |e, per, value| {
                    let (row, column) = Self::place(lane, r, e, per);
                    sums[row * self.columns + column] = value;
                };
                match self.sum {
                    Sum::F32 => set(0, 1, f64::from(f32::from_bits(word))),
                    Sum::S32 { .. } => set(0, 1, f64::from(word.cast_signed())),
                    Sum::F16 => {
                        set(0, 2, F16.decode(word & 0xffff));
                        set(1, 2, F16.decode(word >> 16));
                    }
                }
            }
        }
        Ok(sums)
    }

    fn results(&self, warp: &mut Warp, sums: &[f64]) {
        for (r, &register) in self.d.iter().enumerate() {
            let lanes = std::array::from_fn(|lane| {
                let sum = |e, per| {
                    let (row, column) = Self::place(lane, r, e, per);
                    sums[row * self.columns + column]
                };
                let half = |e| F16.encode(sum(e, 2), Rounding::Nearest, false);
                u64::from(match self.sum {
                    Sum::F32 => (sum(0, 1) as f32).to_bits(),
                    Sum::S32 { saturate: true } => (sum(0, 1) as i32).cast_unsigned(),
                    Sum::S32 { saturate: false } => sum(0, 1) as i64 as u32,
                    Sum::F16 => half(0) | half(1) << 16,
                })
            });
            warp.write_later(register, &lanes);
        }
    }
}

impl Wgmma {
    pub fn run(&self, machine: &mut Machine<'_>, warp: &mut Warp) -> Result<(), Fail> {
        match self {
            Self::Fence => warp.flight.fence = warp.executed,
            Self::Commit => warp.flight.open += 1,
            Self::Wait { left } => {
                let until = warp.flight.open.saturating_sub(*left);
                let flight = &mut warp.flight;
                let mut done = Vec::new();
                flight.registers.retain(|&register, (_, group)| {
                    let is_done = *group < until;
                    if is_done {
                        done.push(register);
                    }
                    !is_done
                });
                flight.ranges.retain(|(group, ranges)| {
                    if *group < until {
                        machine.shared.release(ranges);
                    }
                    *group >= until
                });
                settle(machine, warp, &done)?;
            }
            Self::Multiply(multiply) => multiply.run(machine, warp)?,
        }
        Ok(())
    }
}

/// Registers that an asynchronous instruction has written by now.
fn settle(machine: &Machine<'_>, warp: &mut Warp, registers: &[usize]) -> Result<(), Fail> {
    for &register in registers {
        if !warp.settle(register) {
            let name = machine.registers.get(register).map_or("a register", |register| &register.name);
            let what = format!("{name} was written before an asynchronous instruction was done with it");
            return Err(Fail::at(0, Trouble::Race { what }));
        }
    }
    Ok(())
}

/// What a warp has under way.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// When the last `wgmma.fence` was.
    fence: u64,
    /// Accumulators, their instruction's shape and the last group that they are in.
    registers: BTreeMap<usize, ((usize, Sum), u64)>,
    /// What groups read.
    ranges: Vec<(u64, Ranges)>,
    /// The group that is not committed yet.
    open: u64,
    /// Registers that `tcgen05.ld` has yet to write.
    loads: Vec<usize>,
    /// All `wgmma` so far as one number.
    history: u64,
}

impl Flight {
    pub fn is_busy(&self) -> bool {
        !self.registers.is_empty() || !self.loads.is_empty()
    }

    pub fn history(&self) -> u64 {
        self.history
    }

    pub fn load(&mut self, register: usize) {
        self.loads.push(register);
    }
}

/// `tcgen05.wait::ld`.
pub(crate) fn wait_for_loads(machine: &Machine<'_>, warp: &mut Warp) -> Result<(), Fail> {
    let mut loads = std::mem::take(&mut warp.flight.loads);
    loads.sort_unstable();
    loads.dedup();
    settle(machine, warp, &loads)
}
