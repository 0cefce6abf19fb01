//! Register-only peaks of NEON and its extensions. What stable Rust has no intrinsic for is one assembly instruction.

use std::arch::aarch64::*;

use super::{Peak, counted, counted_up_to};
use crate::isa::Isa;
use rooflined_core::precision::Precision;

/// Up to six pipes of latency four; the rest of the 32 registers hold the operands.
const CHAINS: usize = 24;

/// Adding 0.5 stops at 2^23, where the spacing of floats is 1.
fn halves(iterations: u64, lanes: &[f32]) -> f64 {
    counted_up_to(8_388_608.0, iterations, 0.5, lanes)
}
fn halves64(iterations: u64, lanes: &[f64]) -> f64 {
    let narrow: Vec<f32> = lanes.iter().map(|lane| lane.min(8_388_608.0) as f32).collect();
    halves(iterations, &narrow)
}
/// Adding 1 stops at 2048, where the spacing of half-precision floats is 2.
fn ones16(iterations: u64, lanes: &[u16]) -> f64 {
    let wide: Vec<f32> = lanes.iter().map(|bits| half::f16::from_bits(*bits).to_f32()).collect();
    counted_up_to(2048.0, iterations, 1.0, &wide)
}
fn twos(iterations: u64, lanes: &[f32]) -> f64 {
    counted_up_to(16_777_216.0, iterations, 2.0, lanes)
}
fn fours(iterations: u64, lanes: &[f32]) -> f64 {
    counted_up_to(16_777_216.0, iterations, 4.0, lanes)
}
/// Products of 3 and -2, four or eight to a lane.
fn dots(iterations: u64, lanes: &[i32]) -> f64 {
    counted(iterations, -24, lanes)
}
fn matrix_dots(iterations: u64, lanes: &[i32]) -> f64 {
    counted(iterations, -48, lanes)
}

/// `acc op x, y` as one instruction. Not `pure`: identical chains must stay apart.
macro_rules! instruction {
    ($text:literal, $acc:expr, $x:expr, $y:expr) => {{
        let mut sum = $acc;
        std::arch::asm!($text, s = inout(vreg) sum, x = in(vreg) $x, y = in(vreg) $y,
            options(nomem, nostack, preserves_flags));
        sum
    }};
}

chains!(
    fp32,
    "neon",
    float32x4_t,
    f32,
    vdupq_n_f32(0.0),
    vdupq_n_f32(0.5),
    vdupq_n_f32(1.0),
    |acc, x, y| vfmaq_f32(acc, x, y),
    halves
);
chains!(
    fp64,
    "neon",
    float64x2_t,
    f64,
    vdupq_n_f64(0.0),
    vdupq_n_f64(0.5),
    vdupq_n_f64(1.0),
    |acc, x, y| vfmaq_f64(acc, x, y),
    halves64
);
chains!(
    fp16,
    "neon,fp16",
    uint16x8_t,
    u16,
    vdupq_n_u16(0),
    vdupq_n_u16(0x3c00),
    vdupq_n_u16(0x3c00),
    |acc, x, y| instruction!("fmla {s:v}.8h, {x:v}.8h, {y:v}.8h", acc, x, y),
    ones16
);
chains!(
    bf16,
    "neon,bf16",
    float32x4_t,
    f32,
    vdupq_n_f32(0.0),
    vdupq_n_u16(0x3f80),
    vdupq_n_u16(0x3f80),
    |acc, x, y| instruction!("bfdot {s:v}.4s, {x:v}.8h, {y:v}.8h", acc, x, y),
    twos
);
chains!(
    bf16_matrix,
    "neon,bf16",
    float32x4_t,
    f32,
    vdupq_n_f32(0.0),
    vdupq_n_u16(0x3f80),
    vdupq_n_u16(0x3f80),
    |acc, x, y| instruction!("bfmmla {s:v}.4s, {x:v}.8h, {y:v}.8h", acc, x, y),
    fours
);
chains!(
    int8,
    "neon,dotprod",
    int32x4_t,
    i32,
    vdupq_n_s32(0),
    vdupq_n_s8(3),
    vdupq_n_s8(-2),
    |acc, x, y| instruction!("sdot {s:v}.4s, {x:v}.16b, {y:v}.16b", acc, x, y),
    dots
);
chains!(
    int8_matrix,
    "neon,i8mm",
    int32x4_t,
    i32,
    vdupq_n_s32(0),
    vdupq_n_s8(3),
    vdupq_n_s8(-2),
    |acc, x, y| instruction!("smmla {s:v}.4s, {x:v}.16b, {y:v}.16b", acc, x, y),
    matrix_dots
);

const fn peak(isa: Isa, precision: Precision, fma_lanes: f64, run: unsafe fn(u64) -> f64) -> Peak {
    Peak { isa, precision, flops: 2.0 * fma_lanes * CHAINS as f64, run }
}

pub(super) const PEAKS: &[Peak] = &[
    peak(Isa::Neon, Precision::Fp64, 2.0, fp64),
    peak(Isa::Neon, Precision::Fp32, 4.0, fp32),
    peak(Isa::NeonFp16, Precision::Fp16, 8.0, fp16),
    peak(Isa::NeonBf16, Precision::Bf16, 16.0, bf16_matrix),
    peak(Isa::NeonBf16, Precision::Bf16, 8.0, bf16),
    peak(Isa::NeonI8mm, Precision::Int8, 32.0, int8_matrix),
    peak(Isa::NeonDotprod, Precision::Int8, 16.0, int8),
];
