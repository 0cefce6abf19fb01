//! What a kernel makes of its right-hand sides before the first weight is read, once per call and worker.
//!
//! Every loop here is plain Rust, inlined into a kernel's entry so that it is vectorised for that instruction set.

use super::Task;
use rooflined_core::precision::WeightFormat;

/// The form of the right-hand sides that a kernel multiplies with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activations {
    Fp32,
    /// Rounded to bf16.
    Bf16,
    /// 8-bit integers, one scale per column: `x = q * largest / 127`.
    Int8,
    /// 8-bit integers, one scale per 32 as in q8_0, kept in fp32.
    Int8Blocks,
}

impl Activations {
    /// The form that integer kernels of `format` use; fp32 for floating-point formats.
    pub const fn of(format: WeightFormat) -> Self {
        match format {
            WeightFormat::Int8 | WeightFormat::Int4 | WeightFormat::Int4G32 | WeightFormat::Int4G128 => {
                Self::Int8
            }
            WeightFormat::Q8_0 | WeightFormat::Q4_0 => Self::Int8Blocks,
            _ => Self::Fp32,
        }
    }
}

/// One column's scratch space.
#[derive(Clone, Copy)]
pub struct Column {
    /// Quantised values, bytes or bf16; beyond `k` they are zero.
    pub values: *mut i8,
    /// Sum of the quantised values of every block of 32, or group of 128.
    #[cfg(target_arch = "x86_64")]
    pub sums: *mut f32,
    /// Scale of every block of 32.
    pub scales: *mut f32,
    /// Where the odd values start if they are kept apart from the even ones.
    pub half: usize,
}

/// What `k` is rounded up to: sixteen blocks of 32, so that no kernel looks beyond.
const fn padded(k: usize) -> usize {
    k.next_multiple_of(512)
}

/// Distance between columns: values of up to two bytes, sums, scales, and a line for the column's own scale and sum.
const fn stride(k: usize) -> usize {
    2 * padded(k) + padded(k) / 4 + 64
}

/// Scratch bytes that `columns` of length `k` need.
pub const fn scratch_bytes(k: usize, columns: usize) -> usize {
    columns.saturating_mul(stride(k))
}

impl Task {
    /// The scratch space of column `c`.
    #[inline(always)]
    pub fn column(&self, c: usize) -> Column {
        let padded = padded(self.k);
        let base = self.scratch.wrapping_add(c * stride(self.k));
        Column {
            values: base.cast(),
            #[cfg(target_arch = "x86_64")]
            sums: base.wrapping_add(2 * padded).cast(),
            scales: base.wrapping_add(2 * padded + padded / 8).cast(),
            half: padded / 2,
        }
    }

    /// Scale and sum of column `c`, behind its arrays.
    #[inline(always)]
    fn totals(&self, c: usize) -> (*mut f32, *mut i32) {
        let end = self.scratch.wrapping_add((c + 1) * stride(self.k) - 64);
        (end.cast(), end.wrapping_add(4).cast())
    }

    /// The scale of column `c`, once prepared.
    #[inline(always)]
    pub unsafe fn scale(&self, c: usize) -> f32 {
        // SAFETY: inside the scratch space, written by `quantise`.
        *self.totals(c).0
    }

    /// The sum of the quantised values of column `c`, once prepared.
    #[inline(always)]
    pub unsafe fn sum(&self, c: usize) -> i32 {
        // SAFETY: inside the scratch space, written by `quantise`.
        *self.totals(c).1
    }
}

/// Largest magnitude. Magnitudes of floats order like their bits, and an integer maximum is vectorised.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().fold(0, |most, value| most.max(value.to_bits() & 0x7fff_ffff)))
}

/// `1 / (largest / 127)`, or zero for a column of zeros.
#[inline(always)]
pub fn inverse(scale: f32) -> f32 {
    if scale > 0.0 { 1.0 / scale } else { 0.0 }
}

#[inline(always)]
fn quantised(value: f32, inverse: f32) -> i8 {
    // Adding 1.5 * 2^23 leaves the value, rounded to nearest even, in the low bits: one instruction on every machine,
    // exact because |value * inverse| <= 127.00001.
    ((value * inverse + 12_582_912.0).to_bits() as i32 - 0x4b40_0000) as i8
}

/// Order in which the values of a column are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Natural,
    /// All even ones, then all odd ones: what both nibbles of a byte of int4 need.
    EvenOdd,
}

/// A column's values as given, and the space for the quantised ones.
#[inline(always)]
unsafe fn column_of<'a>(task: &Task, c: usize) -> (&'a [f32], &'a mut [i8]) {
    // SAFETY: `x` holds `columns * k` floats, and the scratch space belongs to this worker.
    (
        std::slice::from_raw_parts(task.x.add(c * task.k), task.k),
        std::slice::from_raw_parts_mut(task.column(c).values, padded(task.k)),
    )
}

/// Quantises every column with one scale.
#[inline(always)]
pub unsafe fn quantise(task: &Task, order: Order) {
    for c in 0..task.columns {
        // SAFETY: the caller's promise about the task.
        let (x, values) = column_of(task, c);
        let scale = largest(x) / 127.0;
        let inverse = inverse(scale);
        match order {
            Order::Natural => {
                for (value, x) in values.iter_mut().zip(x) {
                    *value = quantised(*x, inverse);
                }
                values[task.k..].fill(0);
            }
            Order::EvenOdd => {
                let (even, odd) = values.split_at_mut(task.column(c).half);
                let (pairs, rest) = x.as_chunks::<2>();
                for ((even, odd), pair) in even.iter_mut().zip(odd.iter_mut()).zip(pairs) {
                    *even = quantised(pair[0], inverse);
                    *odd = quantised(pair[1], inverse);
                }
                even[pairs.len()..].fill(0);
                odd[pairs.len()..].fill(0);
                if let [last] = rest {
                    even[pairs.len()] = quantised(*last, inverse);
                }
            }
        }
        let sum = values.iter().map(|value| i32::from(*value)).sum();
        // SAFETY: the line behind the column's arrays.
        *task.totals(c).0 = scale;
        *task.totals(c).1 = sum;
    }
}

/// Quantises every column in blocks of 32, the way q8_0 does.
#[inline(always)]
pub unsafe fn quantise_blocks(task: &Task) {
    for c in 0..task.columns {
        // SAFETY: the caller's promise about the task; a scale for every 32 values.
        let (x, values) = column_of(task, c);
        let scales = std::slice::from_raw_parts_mut(task.column(c).scales, padded(task.k) / 32);
        let (whole, rest) = x.as_chunks::<32>();
        for ((block, values), to) in whole.iter().zip(values.as_chunks_mut::<32>().0).zip(scales.iter_mut()) {
            let scale = largest(block) / 127.0;
            let inverse = inverse(scale);
            for (value, x) in values.iter_mut().zip(block) {
                *value = quantised(*x, inverse);
            }
            *to = scale;
        }
        values[whole.len() * 32..].fill(0);
        scales[whole.len()..].fill(0.0);
        if !rest.is_empty() {
            let scale = largest(rest) / 127.0;
            for (value, x) in values[whole.len() * 32..].iter_mut().zip(rest) {
                *value = quantised(*x, inverse(scale));
            }
            scales[whole.len()] = scale;
        }
    }
}

/// Sums the quantised values of every `GROUP`: what kernels that multiply unsigned weights have to take back.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn sum_groups<const GROUP: usize>(task: &Task) {
    for c in 0..task.columns {
        // SAFETY: the caller's promise about the task; fewer sums than there is space for.
        let sums = std::slice::from_raw_parts_mut(task.column(c).sums, padded(task.k) / 32);
        let (_, values) = column_of(task, c);
        for (group, sum) in values.as_chunks::<GROUP>().0.iter().zip(sums) {
            // At most 128 * 127: exact in a float.
            *sum = group.iter().map(|value| i32::from(*value)).sum::<i32>() as f32;
        }
    }
}

/// Rounds every column to bf16; beyond `k` the values are zero.
#[inline(always)]
pub unsafe fn to_bf16(task: &Task) {
    let padded = padded(task.k);
    for c in 0..task.columns {
        // SAFETY: `x` holds `columns * k` floats; the column's space has two bytes for each.
        let x = std::slice::from_raw_parts(task.x.add(c * task.k), task.k);
        let values = std::slice::from_raw_parts_mut(task.column(c).values.cast::<u16>(), padded);
        for (value, x) in values.iter_mut().zip(x) {
            *value = bf16_bits(*x);
        }
        values[task.k..].fill(0);
    }
}

/// Round to nearest even; the values here are finite.
#[inline(always)]
pub const fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}
