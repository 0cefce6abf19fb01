//! GEMV with NEON. Dot products of bytes take the `sdot` instruction where there is one, else two widening multiplies.
//!
//! What stable Rust has no intrinsic for (half precision, `sdot`, `bfdot`) is one assembly instruction each.

use std::arch::aarch64::*;
use std::arch::asm;

use super::activations::{Order, quantise, quantise_blocks, to_bf16};
use super::{Gemv, Stepped, Steps, Task, drive, padded_copy, rescale};
use crate::isa::Isa;
use rooflined_core::precision::WeightFormat;

pub(super) fn kernel(format: WeightFormat, isa: Isa) -> Option<Gemv> {
    use WeightFormat as F;
    Some(match (isa, format) {
        (Isa::Neon, F::Fp32) => fp32,
        (Isa::Neon, F::Fp16) => fp16,
        (Isa::Neon, F::Bf16) => bf16,
        (Isa::NeonBf16, F::Bf16) => bf16_dot,
        (Isa::Neon, F::Int8) => base::int8,
        (Isa::Neon, F::Int4) => base::int4,
        (Isa::Neon, F::Int4G32) => base::int4_g32,
        (Isa::Neon, F::Int4G128) => base::int4_g128,
        (Isa::Neon, F::Q8_0) => base::q8_0,
        (Isa::Neon, F::Q4_0) => base::q4_0,
        (Isa::NeonDotprod, F::Int8) => dotprod::int8,
        (Isa::NeonDotprod, F::Int4) => dotprod::int4,
        (Isa::NeonDotprod, F::Int4G32) => dotprod::int4_g32,
        (Isa::NeonDotprod, F::Int4G128) => dotprod::int4_g128,
        (Isa::NeonDotprod, F::Q8_0) => dotprod::q8_0,
        (Isa::NeonDotprod, F::Q4_0) => dotprod::q4_0,
        _ => return None,
    })
}

macro_rules! integer_entries {
    ($module:ident, $features:literal, $dot:ty) => {
        mod $module {
            use super::*;
            entries! { $features,
                int8, Stepped<Bytes<$dot>>, |task| { quantise(task, Order::Natural); };
                int4, Stepped<Nibbles<$dot>>, |task| { quantise(task, Order::EvenOdd); };
                int4_g32, Stepped<NibbleBlocks<$dot, false>>, |task| { quantise(task, Order::Natural); };
                int4_g128, Stepped<Groups128<$dot>>, |task| { quantise(task, Order::Natural); };
                q8_0, Stepped<ByteBlocks<$dot>>, |task| { quantise_blocks(task); };
                q4_0, Stepped<NibbleBlocks<$dot, true>>, |task| { quantise_blocks(task); };
            }
        }
    };
}

entries! { "neon",
    fp32, Stepped<Fp32>, |task| {};
    fp16, Stepped<Float16<Fp16>>, |task| {};
    bf16, Stepped<Float16<Bf16>>, |task| {};
}
entries! { "neon,bf16", bf16_dot, Stepped<Bf16Dot>, |task| { to_bf16(task); }; }
integer_entries!(base, "neon", Base);
integer_entries!(dotprod, "neon,dotprod", Dotprod);

/// What all formats with one vector of floating-point sums have in common.
macro_rules! float_sums {
    () => {
        type Sum = float32x4_t;
        #[inline(always)]
        unsafe fn zero() -> float32x4_t {
            vdupq_n_f32(0.0)
        }
        #[inline(always)]
        unsafe fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
            vaddq_f32(a, b)
        }
    };
}

/// What both formats with one scale per row have in common.
macro_rules! integer_sums {
    () => {
        type Sum = int32x4_t;
        #[inline(always)]
        unsafe fn zero() -> int32x4_t {
            vdupq_n_s32(0)
        }
        #[inline(always)]
        unsafe fn add(a: int32x4_t, b: int32x4_t) -> int32x4_t {
            vaddq_s32(a, b)
        }
        #[inline(always)]
        unsafe fn finish(task: &Task, row: usize, column: usize, sum: int32x4_t) -> f32 {
            // SAFETY: row and column lie inside the task; nothing was added to the weights.
            rescale(task, row, column, vaddvq_s32(sum), 0)
        }
    };
}

struct Fp32;

impl Steps for Fp32 {
    float_sums!();
    type Weights = float32x4_t;
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> float32x4_t {
        // SAFETY: a step is left in the row.
        vld1q_f32(p.cast())
    }
    #[inline(always)]
    unsafe fn load_some(p: *const u8, left: usize) -> float32x4_t {
        // SAFETY: a vector of bytes.
        vld1q_f32(padded_copy::<16>(p, left).as_ptr().cast())
    }
    #[inline(always)]
    unsafe fn dot(sum: float32x4_t, w: float32x4_t, task: &Task, column: usize, at: usize) -> float32x4_t {
        // SAFETY: as many activations as weights are left.
        vfmaq_f32(sum, w, vld1q_f32(task.x.add(column * task.k + at / 4)))
    }
    #[inline(always)]
    unsafe fn dot_some(
        sum: float32x4_t,
        w: float32x4_t,
        task: &Task,
        column: usize,
        at: usize,
        left: usize,
    ) -> float32x4_t {
        // SAFETY: only activations that are left are copied.
        let x = padded_copy::<16>(task.x.add(column * task.k + at / 4).cast(), left);
        vfmaq_f32(sum, w, vld1q_f32(x.as_ptr().cast()))
    }
    #[inline(always)]
    unsafe fn finish(_: &Task, _: usize, _: usize, sum: float32x4_t) -> f32 {
        vaddvq_f32(sum)
    }
}

/// Two vectors of floats from eight 16-bit weights.
trait Widen {
    unsafe fn widen(bits: uint16x8_t) -> [float32x4_t; 2];
}

struct Fp16;
struct Bf16;

impl Widen for Fp16 {
    #[inline(always)]
    unsafe fn widen(bits: uint16x8_t) -> [float32x4_t; 2] {
        let (low, high);
        // SAFETY: conversion of half precision is part of the baseline, unlike arithmetic.
        asm!("fcvtl {low:v}.4s, {bits:v}.4h", "fcvtl2 {high:v}.4s, {bits:v}.8h",
            low = out(vreg) low, high = lateout(vreg) high, bits = in(vreg) bits,
            options(pure, nomem, nostack, preserves_flags));
        [low, high]
    }
}

impl Widen for Bf16 {
    #[inline(always)]
    unsafe fn widen(bits: uint16x8_t) -> [float32x4_t; 2] {
        let low = vshll_n_u16::<16>(vget_low_u16(bits));
        let high = vshll_high_n_u16::<16>(bits);
        [vreinterpretq_f32_u32(low), vreinterpretq_f32_u32(high)]
    }
}

struct Float16<W>(W);

impl<W: Widen> Steps for Float16<W> {
    float_sums!();
    type Weights = [float32x4_t; 2];
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Weights {
        // SAFETY: a step is left in the row.
        W::widen(vld1q_u16(p.cast()))
    }
    #[inline(always)]
    unsafe fn load_some(p: *const u8, left: usize) -> Self::Weights {
        // SAFETY: a vector of bytes.
        W::widen(vld1q_u16(padded_copy::<16>(p, left).as_ptr().cast()))
    }
    #[inline(always)]
    unsafe fn dot(sum: float32x4_t, w: Self::Weights, task: &Task, column: usize, at: usize) -> float32x4_t {
        // SAFETY: as many activations as weights are left.
        let x = task.x.add(column * task.k + at / 2);
        vfmaq_f32(vfmaq_f32(sum, w[0], vld1q_f32(x)), w[1], vld1q_f32(x.add(4)))
    }
    #[inline(always)]
    unsafe fn dot_some(
        sum: float32x4_t,
        w: Self::Weights,
        task: &Task,
        column: usize,
        at: usize,
        left: usize,
    ) -> float32x4_t {
        // SAFETY: only activations that are left are copied.
        let x = padded_copy::<32>(task.x.add(column * task.k + at / 2).cast(), 2 * left);
        let x: *const f32 = x.as_ptr().cast();
        vfmaq_f32(vfmaq_f32(sum, w[0], vld1q_f32(x)), w[1], vld1q_f32(x.add(4)))
    }
    #[inline(always)]
    unsafe fn finish(_: &Task, _: usize, _: usize, sum: float32x4_t) -> f32 {
        vaddvq_f32(sum)
    }
}

struct Bf16Dot;

impl Steps for Bf16Dot {
    float_sums!();
    type Weights = uint16x8_t;
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> uint16x8_t {
        // SAFETY: a step is left in the row.
        vld1q_u16(p.cast())
    }
    #[inline(always)]
    unsafe fn load_some(p: *const u8, left: usize) -> uint16x8_t {
        // SAFETY: a vector of bytes.
        vld1q_u16(padded_copy::<16>(p, left).as_ptr().cast())
    }
    #[inline(always)]
    unsafe fn dot(sum: float32x4_t, w: uint16x8_t, task: &Task, column: usize, at: usize) -> float32x4_t {
        let mut sum = sum;
        // SAFETY: the column is padded; the entry has checked for bf16.
        let x = vld1q_u16(task.column(column).values.add(at).cast());
        asm!("bfdot {s:v}.4s, {w:v}.8h, {x:v}.8h", s = inout(vreg) sum, w = in(vreg) w, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags));
        sum
    }
    #[inline(always)]
    unsafe fn finish(_: &Task, _: usize, _: usize, sum: float32x4_t) -> f32 {
        vaddvq_f32(sum)
    }
}

/// Dot products of sixteen signed bytes, none of them -128, into 32-bit sums.
trait Dot {
    unsafe fn dot(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t;
}

struct Base;
struct Dotprod;

impl Dot for Base {
    #[inline(always)]
    unsafe fn dot(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: NEON is the baseline. Two products of at most 127 x 127 fit 16 bits.
        let pairs = vmull_s8(vget_low_s8(w), vget_low_s8(x));
        vpadalq_s16(sum, vmlal_high_s8(pairs, w, x))
    }
}

impl Dot for Dotprod {
    #[inline(always)]
    unsafe fn dot(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        let mut sum = sum;
        // SAFETY: the entry has checked for dotprod.
        asm!("sdot {s:v}.4s, {w:v}.16b, {x:v}.16b", s = inout(vreg) sum, w = in(vreg) w, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags));
        sum
    }
}

struct Bytes<D>(D);

impl<D: Dot> Steps for Bytes<D> {
    integer_sums!();
    type Weights = int8x16_t;
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> int8x16_t {
        // SAFETY: a step is left in the row.
        vld1q_s8(p.cast())
    }
    #[inline(always)]
    unsafe fn load_some(p: *const u8, left: usize) -> int8x16_t {
        // SAFETY: a vector of bytes.
        vld1q_s8(padded_copy::<16>(p, left).as_ptr().cast())
    }
    #[inline(always)]
    unsafe fn dot(sum: int32x4_t, w: int8x16_t, task: &Task, column: usize, at: usize) -> int32x4_t {
        // SAFETY: the column is padded.
        D::dot(sum, w, vld1q_s8(task.column(column).values.add(at)))
    }
}

/// The low and the high nibbles of sixteen bytes, minus 8.
#[inline(always)]
unsafe fn nibbles(w: uint8x16_t) -> [int8x16_t; 2] {
    let eight = vdupq_n_s8(8);
    let low = vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8(15)));
    let high = vreinterpretq_s8_u8(vshrq_n_u8::<4>(w));
    [vsubq_s8(low, eight), vsubq_s8(high, eight)]
}

struct Nibbles<D>(D);

impl<D: Dot> Steps for Nibbles<D> {
    integer_sums!();
    type Weights = [int8x16_t; 2];
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Weights {
        // SAFETY: a step is left in the row.
        nibbles(vld1q_u8(p))
    }
    #[inline(always)]
    unsafe fn load_some(p: *const u8, left: usize) -> Self::Weights {
        // SAFETY: a vector of bytes. Beyond the row the activations are zero, so its nibbles of -8 count nothing.
        nibbles(vld1q_u8(padded_copy::<16>(p, left).as_ptr()))
    }
    #[inline(always)]
    unsafe fn dot(sum: int32x4_t, w: Self::Weights, task: &Task, column: usize, at: usize) -> int32x4_t {
        // SAFETY: both halves of the column are padded.
        let x = task.column(column);
        let sum = D::dot(sum, w[0], vld1q_s8(x.values.add(at)));
        D::dot(sum, w[1], vld1q_s8(x.values.add(x.half + at)))
    }
}

/// The fp16 scale of a block.
#[inline(always)]
unsafe fn half_scale(p: *const u8) -> f32 {
    let scale: f32;
    // SAFETY: two bytes of the block; conversion of half precision is part of the baseline.
    let bits = f32::from_bits(u32::from(p.cast::<u16>().read_unaligned()));
    asm!("fcvt {scale:s}, {bits:h}", scale = lateout(vreg) scale, bits = in(vreg) bits,
        options(pure, nomem, nostack, preserves_flags));
    scale
}

/// Adds scaled integer products to floating-point sums.
#[inline(always)]
unsafe fn add_scaled(sum: float32x4_t, products: int32x4_t, scale: f32) -> float32x4_t {
    vfmaq_n_f32(sum, vcvtq_f32_s32(products), scale)
}

struct ByteBlocks<D>(D);

impl<D: Dot> Steps for ByteBlocks<D> {
    float_sums!();
    type Weights = ([int8x16_t; 2], f32);
    const BYTES: usize = 34;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Weights {
        // SAFETY: a block is left in the row.
        ([vld1q_s8(p.add(2).cast()), vld1q_s8(p.add(18).cast())], half_scale(p))
    }
    #[inline(always)]
    unsafe fn dot(
        sum: float32x4_t,
        (w, scale): Self::Weights,
        task: &Task,
        column: usize,
        at: usize,
    ) -> float32x4_t {
        // SAFETY: the column and its scales are padded to whole blocks.
        let (x, block) = (task.column(column), at / 34);
        let products = D::dot(vdupq_n_s32(0), w[0], vld1q_s8(x.values.add(block * 32)));
        let products = D::dot(products, w[1], vld1q_s8(x.values.add(block * 32 + 16)));
        add_scaled(sum, products, scale * *x.scales.add(block))
    }
    #[inline(always)]
    unsafe fn finish(_: &Task, _: usize, _: usize, sum: float32x4_t) -> f32 {
        vaddvq_f32(sum)
    }
}

/// Blocks of 32 nibbles; `X_SCALES` says whether the activations have a scale per block as well.
struct NibbleBlocks<D, const X_SCALES: bool>(D);

impl<D: Dot, const X_SCALES: bool> Steps for NibbleBlocks<D, X_SCALES> {
    float_sums!();
    type Weights = ([int8x16_t; 2], f32);
    const BYTES: usize = 18;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Weights {
        // SAFETY: a block is left in the row.
        (nibbles(vld1q_u8(p.add(2))), half_scale(p))
    }
    #[inline(always)]
    unsafe fn dot(
        sum: float32x4_t,
        (w, scale): Self::Weights,
        task: &Task,
        column: usize,
        at: usize,
    ) -> float32x4_t {
        // SAFETY: the column and its scales are padded to whole blocks.
        let (x, block) = (task.column(column), at / 18);
        let products = D::dot(vdupq_n_s32(0), w[0], vld1q_s8(x.values.add(block * 32)));
        let products = D::dot(products, w[1], vld1q_s8(x.values.add(block * 32 + 16)));
        add_scaled(sum, products, if X_SCALES { scale * *x.scales.add(block) } else { scale })
    }
    #[inline(always)]
    unsafe fn finish(task: &Task, _: usize, column: usize, sum: float32x4_t) -> f32 {
        // SAFETY: the column lies inside the task.
        vaddvq_f32(sum) * if X_SCALES { 1.0 } else { task.scale(column) }
    }
}

/// Groups of 128 nibbles.
struct Groups128<D>(D);

impl<D: Dot> Steps for Groups128<D> {
    float_sums!();
    type Weights = ([[int8x16_t; 2]; 4], f32);
    const BYTES: usize = 66;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Weights {
        // SAFETY: a block is left in the row.
        let part = |i: usize| nibbles(vld1q_u8(p.add(2 + 16 * i)));
        ([part(0), part(1), part(2), part(3)], half_scale(p))
    }
    #[inline(always)]
    unsafe fn dot(
        sum: float32x4_t,
        (w, scale): Self::Weights,
        task: &Task,
        column: usize,
        at: usize,
    ) -> float32x4_t {
        // SAFETY: the column is padded to whole groups.
        let x = task.column(column).values.add(at / 66 * 128);
        let mut products = vdupq_n_s32(0);
        for (i, [low, high]) in w.into_iter().enumerate() {
            products = D::dot(products, low, vld1q_s8(x.add(16 * i)));
            products = D::dot(products, high, vld1q_s8(x.add(64 + 16 * i)));
        }
        add_scaled(sum, products, scale)
    }
    #[inline(always)]
    unsafe fn finish(task: &Task, _: usize, column: usize, sum: float32x4_t) -> f32 {
        // SAFETY: the column lies inside the task.
        vaddvq_f32(sum) * task.scale(column)
    }
}
