//! `mma.sync` of 16 rows and 8 columns, with the fragments that the PTX ISA lays over the lanes.
//!
//! With n elements in a word, group g = lane / 4 and member t = lane % 4: register r of A holds row g + 8 (r mod 2),
//! columns t n ... of half r / 2 of the depth; register r of B holds column g, rows t n ... of half r; element e of C
//! is row g + 8 (e / 2), column 2 t + e mod 2. Products and their sums are exact or rounded as doubles, and the
//! result is rounded once to the accumulator's type.

use crate::float::{BF16, E2M1, E4M3, E5M2, F16, Format, Rounding, TF32};
use crate::lanes::Lanes;
use crate::warp::{Fail, Machine, Warp};

/// The names of the factors' types, as [`crate::Counts::mma_flops`] has them.
pub(crate) const KINDS: [&str; 10] = ["f16", "bf16", "tf32", "s8", "u8", "s4", "u4", "e4m3", "e5m2", "e2m1"];

/// The type of a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    Real(Format),
    /// A single of which only the upper 19 bits count.
    Tensor,
    Integer {
        signed: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accumulator {
    F32,
    F16,
    S32 { saturate: bool },
}

/// How blocks along the depth are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scale {
    /// Blocks along the depth; their scales stand in the bytes of one word.
    blocks: usize,
    /// ue8m0, an exponent alone, or ue4m3.
    exponent: bool,
    /// The first byte, and the lanes of four that hold the scales of A and of B.
    bytes: [usize; 2],
    threads: [usize; 2],
}

/// A kind of `mma`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mma {
    depth: usize,
    /// Bits of an element.
    bits: usize,
    a: Element,
    b: Element,
    kind: usize,
    accumulator: Accumulator,
    scale: Option<Scale>,
}

/// Of four bits, in four words a lane.
const DEEPEST: usize = 64;
const ROWS: usize = 16;
const COLUMNS: usize = 8;

impl Mma {
    /// From the opcode's words after `mma`, and the selectors of scales; None where one is not known.
    pub fn named(words: &[&str], selectors: &[[u64; 2]]) -> Option<Self> {
        let ["sync", "aligned", shape, "row", "col", rest @ ..] = words else { return None };
        let depth: usize = shape.strip_prefix("m16n8k")?.parse().ok()?;
        let (rest, saturate) = match rest {
            ["satfinite", rest @ ..] => (rest, true),
            _ => (rest, false),
        };
        let (rest, scale) = match rest {
            [
                "kind::mxf4nvf4" | "kind::mxf4" | "kind::mxf8f6f4",
                "block_scale",
                vector,
                types @ ..,
                format,
            ] => (types, Some(Scale::named(vector, format, selectors)?)),
            ["kind::f8f6f4", types @ ..] => (types, None),
            _ => (rest, None),
        };
        let &[d, a, b, c] = rest else { return None };
        if d != c {
            return None;
        }
        let kind = KINDS.iter().position(|&kind| kind == a)?;
        let (bits, a) = Element::named(a)?;
        let (bits_b, b) = Element::named(b)?;
        let integers = matches!(a, Element::Integer { .. });
        let accumulator = match d {
            "f32" if !integers => Accumulator::F32,
            "f16" if !integers => Accumulator::F16,
            "s32" if integers => Accumulator::S32 { saturate },
            _ => return None,
        };
        // A's fragment is two or four words a lane.
        let words = ROWS * depth * bits / 32 / 32;
        (bits == bits_b && (words == 2 || words == 4)).then_some(Self {
            depth,
            bits,
            a,
            b,
            kind,
            accumulator,
            scale,
        })
    }

    /// Words of the fragments of D, A and B.
    pub fn words(&self) -> [usize; 3] {
        let b = COLUMNS * self.depth * self.bits / 32 / 32;
        [if self.accumulator == Accumulator::F16 { 2 } else { 4 }, 2 * b, b]
    }

    pub fn run(
        &self,
        machine: &mut Machine<'_>,
        warp: &mut Warp,
        d: &[usize],
        [a, b, c]: [&[usize]; 3],
        scales: [usize; 2],
    ) -> Result<(), Fail> {
        let per_word = 32 / self.bits;
        let mut left = [0.0; ROWS * DEEPEST];
        let left = &mut left[..ROWS * self.depth];
        for (r, &register) in a.iter().enumerate() {
            for (lane, &word) in warp.read(machine, register, u32::MAX)?.iter().enumerate() {
                let row = lane / 4 + 8 * (r % 2);
                let first = row * self.depth + lane % 4 * per_word + self.depth / 2 * (r / 2);
                for (e, value) in left[first..first + per_word].iter_mut().enumerate() {
                    *value = self.a.value(word as u32, e, self.bits);
                }
            }
        }
        // Row after row of the depth, so that eight columns are summed side by side.
        let mut right = [[0.0; COLUMNS]; DEEPEST];
        let right = &mut right[..self.depth];
        for (r, &register) in b.iter().enumerate() {
            for (lane, &word) in warp.read(machine, register, u32::MAX)?.iter().enumerate() {
                let first = lane % 4 * per_word + self.depth / 2 * r;
                for (e, row) in right[first..first + per_word].iter_mut().enumerate() {
                    row[lane / 4] = self.b.value(word as u32, e, self.bits);
                }
            }
        }
        if let Some(scale) = self.scale {
            let [a, b] = scales;
            let words = [*warp.read(machine, a, u32::MAX)?, *warp.read(machine, b, u32::MAX)?];
            scale.apply(&words, left, right, self.depth);
        }
        let mut sums = [[0.0; COLUMNS]; ROWS];
        self.accumulators(machine, warp, c, &mut sums)?;
        for (sums, left) in sums.iter_mut().zip(left.chunks_exact(self.depth)) {
            for (a, right) in left.iter().zip(&*right) {
                for (sum, b) in sums.iter_mut().zip(right) {
                    *sum += a * b;
                }
            }
        }
        self.results(warp, d, &sums);
        machine.mma_flops[self.kind] += (2 * ROWS * COLUMNS * self.depth) as u64;
        Ok(())
    }

    fn accumulators(
        &self,
        machine: &Machine<'_>,
        warp: &Warp,
        c: &[usize],
        sums: &mut [[f64; COLUMNS]; ROWS],
    ) -> Result<(), Fail> {
        for (r, &register) in c.iter().enumerate() {
            for (lane, &word) in warp.read(machine, register, u32::MAX)?.iter().enumerate() {
                let (group, column) = (lane / 4, 2 * (lane % 4));
                let word = word as u32;
                match self.accumulator {
                    Accumulator::F16 => {
                        sums[group + 8 * r][column] = F16.decode(word & 0xffff);
                        sums[group + 8 * r][column + 1] = F16.decode(word >> 16);
                    }
                    Accumulator::F32 => {
                        sums[group + 8 * (r / 2)][column + r % 2] = f64::from(f32::from_bits(word));
                    }
                    Accumulator::S32 { .. } => {
                        sums[group + 8 * (r / 2)][column + r % 2] = f64::from(word.cast_signed());
                    }
                }
            }
        }
        Ok(())
    }

    fn results(&self, warp: &mut Warp, d: &[usize], sums: &[[f64; COLUMNS]; ROWS]) {
        for (r, &register) in d.iter().enumerate() {
            let lanes: Lanes = std::array::from_fn(|lane| {
                let (group, column) = (lane / 4, 2 * (lane % 4));
                let half = |column: usize| F16.encode(sums[group + 8 * r][column], Rounding::Nearest, false);
                u64::from(match self.accumulator {
                    Accumulator::F16 => half(column) | half(column + 1) << 16,
                    Accumulator::F32 => (sums[group + 8 * (r / 2)][column + r % 2] as f32).to_bits(),
                    Accumulator::S32 { saturate: true } => {
                        (sums[group + 8 * (r / 2)][column + r % 2] as i32).cast_unsigned()
                    }
                    Accumulator::S32 { .. } => sums[group + 8 * (r / 2)][column + r % 2] as i64 as u32,
                })
            });
            warp.write(register, &lanes, u32::MAX);
        }
    }
}

impl Element {
    /// The bits and the type of that name.
    pub fn named(name: &str) -> Option<(usize, Self)> {
        Some(match name {
            "f16" => (16, Self::Real(F16)),
            "bf16" => (16, Self::Real(BF16)),
            "tf32" => (32, Self::Tensor),
            "s8" => (8, Self::Integer { signed: true }),
            "u8" => (8, Self::Integer { signed: false }),
            "s4" => (4, Self::Integer { signed: true }),
            "u4" => (4, Self::Integer { signed: false }),
            "e4m3" => (8, Self::Real(E4M3)),
            "e5m2" => (8, Self::Real(E5M2)),
            "e2m1" => (4, Self::Real(E2M1)),
            _ => return None,
        })
    }

    #[inline]
    pub fn value(self, word: u32, at: usize, bits: usize) -> f64 {
        let field = (u64::from(word) >> (at * bits)) as u32 & (u32::MAX >> (32 - bits));
        match self {
            Self::Real(format) => format.decode(field),
            Self::Tensor => TF32.decode(field >> 13),
            Self::Integer { signed: false } => f64::from(field),
            Self::Integer { signed: true } => {
                let spare = 32 - bits;
                f64::from((field << spare).cast_signed() >> spare)
            }
        }
    }
}

impl Scale {
    fn named(vector: &str, format: &str, selectors: &[[u64; 2]]) -> Option<Self> {
        let blocks = match vector {
            "scale_vec::1X" => 1,
            "scale_vec::2X" => 2,
            "scale_vec::4X" => 4,
            _ => return None,
        };
        let exponent = match format {
            "ue8m0" => true,
            "ue4m3" => false,
            _ => return None,
        };
        let &[[byte_a, thread_a], [byte_b, thread_b]] = selectors else { return None };
        let fits = byte_a.max(byte_b) as usize + blocks <= 4 && thread_a < 2 && thread_b < 4;
        fits.then_some(Self {
            blocks,
            exponent,
            bytes: [byte_a as usize, byte_b as usize],
            threads: [thread_a as usize, thread_b as usize],
        })
    }

    /// Multiplies each block of a row of A and of a column of B. Of each four lanes a pair holds the scales of A, the
    /// even one those of row g and the odd one those of row g + 8, and one lane those of B.
    fn apply(self, words: &[Lanes; 2], left: &mut [f64], right: &mut [[f64; COLUMNS]], depth: usize) {
        let value = |word: u64, byte: usize, block: usize| {
            let bits = (word >> (8 * (byte + block))) as u32 & 0xff;
            match (self.exponent, bits) {
                (true, 255) => f64::NAN,
                (true, bits) => (f64::from(bits) - 127.0).exp2(),
                (false, bits) => E4M3.decode(bits & 0x7f),
            }
        };
        let length = depth / self.blocks;
        for (row, values) in left.chunks_exact_mut(depth).enumerate() {
            let word = words[0][row % 8 * 4 + 2 * self.threads[0] + row / 8];
            for (block, values) in values.chunks_exact_mut(length).enumerate() {
                let scale = value(word, self.bytes[0], block);
                values.iter_mut().for_each(|value| *value *= scale);
            }
        }
        for (block, rows) in right.chunks_exact_mut(length).enumerate() {
            for (column, word) in words[1].iter().skip(self.threads[1]).step_by(4).enumerate() {
                let scale = value(*word, self.bytes[1], block);
                rows.iter_mut().for_each(|row| row[column] *= scale);
            }
        }
    }
}
