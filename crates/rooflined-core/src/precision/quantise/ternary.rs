//! One to two bits a weight: GGUF's ternary types and the experimental Q1_0 and Q2_0.
//!
//! | type | block |
//! |---|---|
//! | TQ1_0 | 52 bytes of five (the last four: of four) base-3 digits, fp16 d over 256 weights: weight = d (digit - 1) |
//! | TQ2_0 | 64 bytes of four 2-bit digits, fp16 d over 256: weight = d (digit - 1) |
//! | Q1_0 | fp16 d, 128 sign bits: weight = d where the bit is set, -d where not; d is the mean magnitude |
//! | Q2_0 | fp16 d, 128 2-bit digits, four consecutive ones a byte: weight = d (digit - 1) |
//!
//! d is the largest magnitude but for Q1_0. A byte of base-3 digits holds ceil(number x 256 / 243), so that digits are
//! read from the top by multiplying by 3. In TQ1_0 and TQ2_0 the digits of a byte are 32 (16, 4) weights apart.

use super::float::{decode_fp16, encode_fp16};
use super::gguf::round_away;
use super::largest;
use super::scaled::half_at;

const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
/// The parts of a TQ1_0 block: first byte, bytes, first weight, digits in a byte.
const PARTS: [(usize, usize, usize, usize); 3] = [(0, 32, 0, 5), (32, 16, 160, 5), (48, 4, 240, 4)];

/// The largest magnitude and the digit (0, 1 or 2) that each weight is nearest to.
fn digits(block: &[f32]) -> (f32, Vec<u8>) {
    let scale = largest(block);
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    (scale, block.iter().map(|weight| (round_away(weight * inverse).clamp(-1, 1) + 1) as u8).collect())
}

pub(super) fn encode_tq1_0(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let (scale, digits) = digits(block);
    for (_, stride, first, count) in PARTS {
        bytes.extend((0..stride).map(|i| {
            let number = (0..count)
                .fold(0_u16, |sum, n| sum + u16::from(digits[first + n * stride + i] * POWERS[4 - n]));
            (number * 256).div_ceil(243) as u8
        }));
    }
    bytes.extend(encode_fp16(scale).to_le_bytes());
}

pub(super) fn decode_tq1_0(bytes: &[u8], _: f32, block: &mut [f32]) {
    let scale = decode_fp16(half_at(bytes, 52));
    for (start, stride, first, count) in PARTS {
        for (i, byte) in bytes[start..start + stride].iter().enumerate() {
            for n in 0..count {
                let digit = (u16::from(byte.wrapping_mul(POWERS[n])) * 3) >> 8;
                block[first + n * stride + i] = scale * (f32::from(digit) - 1.0);
            }
        }
    }
}

pub(super) fn encode_tq2_0(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let (scale, digits) = digits(block);
    for half in digits.chunks_exact(128) {
        bytes.extend((0..32).map(|i| half[i] | half[i + 32] << 2 | half[i + 64] << 4 | half[i + 96] << 6));
    }
    bytes.extend(encode_fp16(scale).to_le_bytes());
}

pub(super) fn decode_tq2_0(bytes: &[u8], _: f32, block: &mut [f32]) {
    let scale = decode_fp16(half_at(bytes, 64));
    for (half, stored) in block.chunks_exact_mut(128).zip(bytes.chunks_exact(32)) {
        for (i, weight) in half.iter_mut().enumerate() {
            *weight = scale * (f32::from(stored[i % 32] >> (2 * (i / 32)) & 3) - 1.0);
        }
    }
}

pub(super) fn encode_q1_0(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let mean = block.iter().map(|weight| weight.abs()).sum::<f32>() / block.len() as f32;
    bytes.extend(encode_fp16(mean).to_le_bytes());
    for part in block.chunks_exact(8) {
        bytes.push(part.iter().enumerate().fold(0, |bits, (i, weight)| bits | u8::from(*weight >= 0.0) << i));
    }
}

pub(super) fn decode_q1_0(bytes: &[u8], _: f32, block: &mut [f32]) {
    let scale = decode_fp16(half_at(bytes, 0));
    for (i, weight) in block.iter_mut().enumerate() {
        *weight = if bytes[2 + i / 8] >> (i % 8) & 1 == 1 { scale } else { -scale };
    }
}

pub(super) fn encode_q2_0(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let (scale, digits) = digits(block);
    bytes.extend(encode_fp16(scale).to_le_bytes());
    bytes.extend(digits.chunks_exact(4).map(|four| four[0] | four[1] << 2 | four[2] << 4 | four[3] << 6));
}

pub(super) fn decode_q2_0(bytes: &[u8], _: f32, block: &mut [f32]) {
    let scale = decode_fp16(half_at(bytes, 0));
    for (i, weight) in block.iter_mut().enumerate() {
        *weight = scale * (f32::from(bytes[2 + i / 4] >> (2 * (i % 4)) & 3) - 1.0);
    }
}
