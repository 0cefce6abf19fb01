//! What a kernel makes of its right-hand sides before the first weight is read, once per call and worker.
//!
//! Every loop here is plain Rust, inlined into a kernel's entry so that it is vectorised for that instruction set.

use super::Task;
use crate::precision::WeightFormat;

/// The form of the right-hand sides that a kernel multiplies with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activations {
    /// As given.
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
            WeightFormat::Int8 | WeightFormat::Int4 | WeightFormat::Int4G32 | WeightFormat::Int4G128 => Self::Int8,
            WeightFormat::Q8_0 | WeightFormat::Q4_0 => Self::Int8Blocks,
            _ => Self::Fp32,
        }
    }
}

/// One column's scratch space, `k` rounded up to `padded`:
/// `padded` bytes of quantised values (or twice that of bf16), then `padded` bytes of sums of four, then `padded`
/// bytes of block scales, each written eight times.
#[derive(Clone, Copy)]
pub struct Column {
    /// Quantised values; beyond `k` they are zero.
    pub values: *mut i8,
    /// Minus the weights' offset times the sum of each four values.
    pub bias: *mut i32,
    /// The scale of every block of 32, eight times over.
    pub block_scales: *mut f32,
    /// Half of the padded length: where the odd values start if they are kept apart from the even ones.
    pub half: usize,
}

/// What `k` is rounded up to: whole groups of 128, so that no kernel looks beyond.
pub const fn padded(k: usize) -> usize {
    k.next_multiple_of(128)
}

/// Scratch bytes that `columns` of length `k` need.
pub const fn scratch_bytes(k: usize, columns: usize) -> usize {
    // The last line holds each column's scale and sum.
    columns * (3 * padded(k) + 64)
}

impl Task {
    /// The scratch space of column `c`.
    #[inline(always)]
    pub fn column(&self, c: usize) -> Column {
        let padded = padded(self.k);
        let base = self.scratch.wrapping_add(c * (3 * padded + 64));
        Column {
            values: base.cast(),
            bias: base.wrapping_add(padded).cast(),
            block_scales: base.wrapping_add(2 * padded).cast(),
            half: padded / 2,
        }
    }

    /// Scale and sum of column `c`, behind its arrays.
    #[inline(always)]
    fn totals(&self, c: usize) -> (*mut f32, *mut i32) {
        let end = self.column(c).block_scales.cast::<u8>().wrapping_add(padded(self.k));
        (end.cast(), end.wrapping_add(4).cast())
    }

    /// The scale of column `c`, once prepared.
    #[inline(always)]
    pub unsafe fn scale(&self, c: usize) -> f32 {
        // SAFETY: inside the scratch space, written by `quantise`.
        unsafe { *self.totals(c).0 }
    }

    /// The sum of the quantised values of column `c`, once prepared.
    #[inline(always)]
    pub unsafe fn sum(&self, c: usize) -> i32 {
        // SAFETY: inside the scratch space, written by `quantise`.
        unsafe { *self.totals(c).1 }
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
    /// As they come.
    Natural,
    /// All even ones, then all odd ones: what both nibbles of a byte of int4 need.
    EvenOdd,
}

/// Quantises every column with one scale. With an `offset`, the weights are stored with it added (to be unsigned);
/// `bias` then takes its share back four values at a time.
#[inline(always)]
pub unsafe fn quantise(task: &Task, order: Order, offset: Option<i32>) {
    let padded = padded(task.k);
    for c in 0..task.columns {
        let column = task.column(c);
        // SAFETY: `x` holds `columns * k` floats and the scratch space belongs to this worker.
        let (x, values) = unsafe {
            (
                std::slice::from_raw_parts(task.x.add(c * task.k), task.k),
                std::slice::from_raw_parts_mut(column.values, padded),
            )
        };
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
                let (even, odd) = values.split_at_mut(column.half);
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
        if let Some(offset) = offset {
            // SAFETY: as above.
            unsafe { biases(values, column.bias, offset) };
        }
        // SAFETY: as above.
        unsafe {
            *task.totals(c).0 = scale;
            *task.totals(c).1 = sum;
        }
    }
}

/// Quantises every column in blocks of 32, the way q8_0 does.
#[inline(always)]
pub unsafe fn quantise_blocks(task: &Task, offset: Option<i32>) {
    let padded = padded(task.k);
    for c in 0..task.columns {
        let column = task.column(c);
        // SAFETY: `x` holds `columns * k` floats and the scratch space belongs to this worker.
        let (x, values, scales) = unsafe {
            (
                std::slice::from_raw_parts(task.x.add(c * task.k), task.k),
                std::slice::from_raw_parts_mut(column.values, padded),
                std::slice::from_raw_parts_mut(column.block_scales, padded / 4),
            )
        };
        let (whole, rest) = x.as_chunks::<32>();
        for ((block, values), scales) in
            whole.iter().zip(values.as_chunks_mut::<32>().0).zip(scales.as_chunks_mut::<8>().0)
        {
            let scale = largest(block) / 127.0;
            let inverse = inverse(scale);
            for (value, x) in values.iter_mut().zip(block) {
                *value = quantised(*x, inverse);
            }
            scales.fill(scale);
        }
        let done = whole.len() * 32;
        values[done..].fill(0);
        scales[done / 4..].fill(0.0);
        if !rest.is_empty() {
            let scale = largest(rest) / 127.0;
            for (value, x) in values[done..].iter_mut().zip(rest) {
                *value = quantised(*x, inverse(scale));
            }
            scales[done / 4..done / 4 + 8].fill(scale);
        }
        if let Some(offset) = offset {
            // SAFETY: as above.
            unsafe { biases(values, column.bias, offset) };
        }
    }
}

#[inline(always)]
unsafe fn biases(values: &[i8], bias: *mut i32, offset: i32) {
    for (i, four) in values.as_chunks::<4>().0.iter().enumerate() {
        let sum = i32::from(four[0]) + i32::from(four[1]) + i32::from(four[2]) + i32::from(four[3]);
        // SAFETY: a quarter as many sums as values, in space as long as the values.
        unsafe { *bias.add(i) = -offset * sum };
    }
}

/// Rounds every column to bf16; beyond `k` the values are zero.
#[inline(always)]
pub unsafe fn to_bf16(task: &Task) {
    let padded = padded(task.k);
    for c in 0..task.columns {
        // SAFETY: `x` holds `columns * k` floats; two bytes for each fit into the column's scratch space.
        let (x, values) = unsafe {
            (
                std::slice::from_raw_parts(task.x.add(c * task.k), task.k),
                std::slice::from_raw_parts_mut(task.column(c).values.cast::<u16>(), padded),
            )
        };
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
