//! GGUF blocks of 32: a scale, perhaps a minimum, and 4-, 5- or 8-bit codes.
//!
//! | type | block |
//! |---|---|
//! | Q4_0 | fp16 d, 16 bytes of nibbles: weight = d (code - 8) |
//! | Q4_1 | fp16 d, fp16 m, 16 bytes of nibbles: weight = d code + m |
//! | Q5_0 | fp16 d, 32 fifth bits, 16 bytes of nibbles: weight = d (code - 16) |
//! | Q5_1 | fp16 d, fp16 m, 32 fifth bits, 16 bytes of nibbles: weight = d code + m |
//! | Q8_0 | fp16 d, 32 signed bytes: weight = d code |
//!
//! Nibbles: weights 0..16 low, 16..32 high. Packing is the reference quantiser's to the bit: the codes are rounded
//! against the scale before it is rounded to fp16; types without a minimum map the weight of largest magnitude to the
//! most negative code.

use super::float::{decode_fp16, encode_fp16};
use super::largest;
use super::scaled::{half_at, pack_halves, unpack_halves};

const BLOCK: usize = 32;

/// One over a scale; zero for none, so that every code becomes the one of zero.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// The weight of largest magnitude, the first of equals.
fn extreme(block: &[f32]) -> f32 {
    block.iter().fold(0.0, |most: f32, weight| if weight.abs() > most.abs() { *weight } else { most })
}

fn range(block: &[f32]) -> (f32, f32) {
    block
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), weight| (low.min(*weight), high.max(*weight)))
}

/// Truncates to a code; what is no number, from a scale too small to invert, becomes zero.
fn truncated(value: f32, most: u8) -> u8 {
    (value as u8).min(most)
}

fn put_half(value: f32, bytes: &mut Vec<u8>) {
    bytes.extend(encode_fp16(value).to_le_bytes());
}

fn put_fives(codes: &[u8; BLOCK], bytes: &mut Vec<u8>) {
    let fifth = codes.iter().enumerate().fold(0_u32, |bits, (i, code)| bits | u32::from(code >> 4) << i);
    bytes.extend(fifth.to_le_bytes());
    pack_halves(|i| codes[i] & 15, BLOCK, bytes);
}

fn fives(bytes: &[u8], mut put: impl FnMut(usize, f32)) {
    let fifth = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    unpack_halves(&bytes[4..], |i, nibble| put(i, f32::from(nibble | ((fifth >> i & 1) as u8) << 4)));
}

fn codes(block: &[f32], code: impl Fn(f32) -> u8) -> [u8; BLOCK] {
    let mut codes = [0; BLOCK];
    for (to, weight) in codes.iter_mut().zip(block) {
        *to = code(*weight);
    }
    codes
}

pub(super) fn encode_q4_0(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let scale = extreme(block) / -8.0;
    let inverse = inverse(scale);
    put_half(scale, bytes);
    let codes = codes(block, |weight| truncated(weight * inverse + 8.5, 15));
    pack_halves(|i| codes[i], BLOCK, bytes);
}

pub(super) fn decode_q4_0(bytes: &[u8], _: f32, block: &mut [f32]) {
    let scale = decode_fp16(half_at(bytes, 0));
    unpack_halves(&bytes[2..], |i, nibble| block[i] = scale * (f32::from(nibble) - 8.0));
}

pub(super) fn encode_q4_1(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let (low, high) = range(block);
    let scale = (high - low) / 15.0;
    let inverse = inverse(scale);
    put_half(scale, bytes);
    put_half(low, bytes);
    let codes = codes(block, |weight| truncated((weight - low) * inverse + 0.5, 15));
    pack_halves(|i| codes[i], BLOCK, bytes);
}

pub(super) fn decode_q4_1(bytes: &[u8], _: f32, block: &mut [f32]) {
    let (scale, low) = (decode_fp16(half_at(bytes, 0)), decode_fp16(half_at(bytes, 2)));
    unpack_halves(&bytes[4..], |i, nibble| block[i] = scale * f32::from(nibble) + low);
}

pub(super) fn encode_q5_0(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let scale = extreme(block) / -16.0;
    let inverse = inverse(scale);
    put_half(scale, bytes);
    put_fives(&codes(block, |weight| truncated(weight * inverse + 16.5, 31)), bytes);
}

pub(super) fn decode_q5_0(bytes: &[u8], _: f32, block: &mut [f32]) {
    let scale = decode_fp16(half_at(bytes, 0));
    fives(&bytes[2..], |i, code| block[i] = scale * (code - 16.0));
}

pub(super) fn encode_q5_1(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let (low, high) = range(block);
    let scale = (high - low) / 31.0;
    let inverse = inverse(scale);
    put_half(scale, bytes);
    put_half(low, bytes);
    put_fives(&codes(block, |weight| truncated((weight - low) * inverse + 0.5, 31)), bytes);
}

pub(super) fn decode_q5_1(bytes: &[u8], _: f32, block: &mut [f32]) {
    let (scale, low) = (decode_fp16(half_at(bytes, 0)), decode_fp16(half_at(bytes, 2)));
    fives(&bytes[4..], |i, code| block[i] = scale * code + low);
}

/// Rounds half away from zero.
pub(super) fn round_away(value: f32) -> i32 {
    let whole = value as i32;
    let rest = value - whole as f32;
    whole + i32::from(rest >= 0.5) - i32::from(rest <= -0.5)
}

pub(super) fn encode_q8_0(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let scale = largest(block) / 127.0;
    let inverse = inverse(scale);
    put_half(scale, bytes);
    bytes.extend(block.iter().map(|weight| round_away(weight * inverse).clamp(-128, 127) as u8));
}

pub(super) fn decode_q8_0(bytes: &[u8], _: f32, block: &mut [f32]) {
    let scale = decode_fp16(half_at(bytes, 0));
    for (weight, code) in block.iter_mut().zip(&bytes[2..]) {
        *weight = f32::from(*code as i8) * scale;
    }
}
