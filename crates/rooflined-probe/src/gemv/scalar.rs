//! GEMV in plain Rust: what runs where no vector path exists.

use half::{bf16, f16};

use super::activations::{Order, quantise, quantise_blocks};
use super::{Gemv, Task, Tile, drive};
use rooflined_core::precision::WeightFormat;

pub(super) fn kernel(format: WeightFormat) -> Option<Gemv> {
    use WeightFormat as F;
    let kernel: Gemv = match format {
        F::Fp32 => |task| unsafe { drive::<Float<4>>(task) },
        F::Fp16 => |task| unsafe { drive::<Float<0x16>>(task) },
        F::Bf16 => |task| unsafe { drive::<Float<2>>(task) },
        F::Int8 => |task| unsafe { integer::<Bytes>(task, Order::Natural) },
        F::Int4 => |task| unsafe { integer::<Nibbles>(task, Order::EvenOdd) },
        F::Int4G32 => |task| unsafe { integer::<Groups<32>>(task, Order::Natural) },
        F::Int4G128 => |task| unsafe { integer::<Groups<128>>(task, Order::Natural) },
        F::Q8_0 => |task| unsafe { blocks::<Q8>(task) },
        F::Q4_0 => |task| unsafe { blocks::<Q4>(task) },
        _ => return None,
    };
    Some(kernel)
}

unsafe fn integer<T: Tile>(task: &Task, order: Order) {
    // SAFETY: the caller's promise about the task.
    quantise(task, order);
    drive::<T>(task);
}

unsafe fn blocks<T: Tile>(task: &Task) {
    // SAFETY: the caller's promise about the task.
    quantise_blocks(task);
    drive::<T>(task);
}

/// Calls `one` for each element of the tile.
macro_rules! each {
    ($task:ident, $row:ident, $column:ident, $one:expr) => {
        for r in $row..$row + R {
            for c in $column..$column + C {
                let value = $one(r, c);
                $task.store(r, c, value);
            }
        }
    };
}

unsafe fn half(p: *const u8) -> f32 {
    // SAFETY: the caller points at two bytes of the row.
    f16::from_bits(u16::from_le(p.cast::<u16>().read_unaligned())).to_f32()
}

/// 4: fp32, 2: bf16, 0x16: fp16.
struct Float<const KIND: usize>;

impl<const KIND: usize> Tile for Float<KIND> {
    unsafe fn tile<const R: usize, const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: inside the task.
        each!(task, row, column, |r, c| {
            let w = task.row(r);
            let x = task.x.add(c * task.k);
            let mut sums = [0.0_f32; 8];
            for i in 0..task.k {
                let weight = match KIND {
                    4 => w.cast::<f32>().add(i).read_unaligned(),
                    2 => bf16::from_bits(w.cast::<u16>().add(i).read_unaligned()).to_f32(),
                    _ => half(w.add(2 * i)),
                };
                sums[i % 8] += weight * *x.add(i);
            }
            sums.iter().sum::<f32>()
        });
    }
}

struct Bytes;

impl Tile for Bytes {
    unsafe fn tile<const R: usize, const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: inside the task.
        each!(task, row, column, |r: usize, c: usize| {
            let (w, x) = (task.row(r).cast::<i8>(), task.column(c).values);
            let sum: i32 = (0..task.k).map(|i| i32::from(*w.add(i)) * i32::from(*x.add(i))).sum();
            sum as f32 * *task.row_scales.add(r) * task.scale(c)
        });
    }
}

/// Sum of products of 4-bit codes, offset by 8, with two runs of values.
unsafe fn nibbles(w: *const u8, low: *const i8, high: *const i8, bytes: usize) -> i32 {
    // SAFETY: the caller's promise about the lengths.
    (0..bytes)
        .map(|i| {
            let byte = *w.add(i);
            (i32::from(byte & 15) - 8) * i32::from(*low.add(i))
                + (i32::from(byte >> 4) - 8) * i32::from(*high.add(i))
        })
        .sum()
}

struct Nibbles;

impl Tile for Nibbles {
    unsafe fn tile<const R: usize, const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: inside the task.
        each!(task, row, column, |r: usize, c: usize| {
            let x = task.column(c);
            let sum = nibbles(task.row(r), x.values, x.values.add(x.half), task.row_bytes);
            sum as f32 * *task.row_scales.add(r) * task.scale(c)
        });
    }
}

struct Groups<const GROUP: usize>;

impl<const GROUP: usize> Tile for Groups<GROUP> {
    unsafe fn tile<const R: usize, const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: inside the task.
        each!(task, row, column, |r: usize, c: usize| {
            let x = task.column(c).values;
            let mut total = 0.0_f32;
            for group in 0..task.k.div_ceil(GROUP) {
                let w = task.row(r).add(group * (2 + GROUP / 2));
                let x = x.add(group * GROUP);
                total += half(w) * nibbles(w.add(2), x, x.add(GROUP / 2), GROUP / 2) as f32;
            }
            total * task.scale(c)
        });
    }
}

struct Q8;

impl Tile for Q8 {
    unsafe fn tile<const R: usize, const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: inside the task.
        each!(task, row, column, |r: usize, c: usize| {
            let x = task.column(c);
            let mut total = 0.0_f32;
            for block in 0..task.k.div_ceil(32) {
                let w = task.row(r).add(block * 34);
                let (codes, values) = (w.add(2).cast::<i8>(), x.values.add(block * 32));
                let sum: i32 = (0..32).map(|i| i32::from(*codes.add(i)) * i32::from(*values.add(i))).sum();
                total += half(w) * *x.scales.add(block) * sum as f32;
            }
            total
        });
    }
}

struct Q4;

impl Tile for Q4 {
    unsafe fn tile<const R: usize, const C: usize, const U: usize>(task: &Task, row: usize, column: usize) {
        // SAFETY: inside the task.
        each!(task, row, column, |r: usize, c: usize| {
            let x = task.column(c);
            let mut total = 0.0_f32;
            for block in 0..task.k.div_ceil(32) {
                let w = task.row(r).add(block * 18);
                let values = x.values.add(block * 32);
                let sum = nibbles(w.add(2), values, values.add(16), 16);
                total += half(w) * *x.scales.add(block) * sum as f32;
            }
            total
        });
    }
}
