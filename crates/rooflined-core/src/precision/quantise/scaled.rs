//! Floats with a scale per tensor or block, and integers with a scale per row or group.
//!
//! | format | stored |
//! |---|---|
//! | fp32, tf32, fp16, bf16 | the value, little-endian |
//! | `fp8_*` | one code; weight = code x the tensor's fp32 scale |
//! | int8, int4 | codes rounded from weight / the row's fp32 scale: largest / 127, largest / 7; two nibbles a byte, even low |
//! | `int4_g*` | fp16 scale, codes + 8: the group's first half in low nibbles, its second half in high ones |
//! | awq, gptq | fp16 scale, a byte with the zero point, codes as above; weight = (code - zero) x scale |
//! | mxfp4 | e8m0 scale, 16 bytes: weights 0..16 in low nibbles, 16..32 in high ones |
//! | mxfp8 | e8m0 scale, 32 e4m3 codes |
//! | nvfp4 | e4m3 scale, 8 bytes, even weights low; weight = code x scale x the tensor's fp32 scale |
//!
//! Codes are rounded against the scale as it is stored.

use super::float::{
    self, decode_e2m1, decode_e4m3, decode_e5m2, decode_e8m0, encode_e2m1, encode_e4m3, encode_e5m2,
    round_even, shared_exponent,
};
use super::largest;

pub(super) fn half_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn encode_fp32(values: &[f32], _: f32, bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

pub(super) fn decode_fp32(bytes: &[u8], _: f32, values: &mut [f32]) {
    for (value, stored) in values.iter_mut().zip(bytes.chunks_exact(4)) {
        *value = f32::from_le_bytes([stored[0], stored[1], stored[2], stored[3]]);
    }
}

pub(super) fn encode_tf32(values: &[f32], _: f32, bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().flat_map(|value| float::encode_tf32(*value).to_le_bytes()));
}

pub(super) fn encode_fp16(values: &[f32], _: f32, bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().flat_map(|value| float::encode_fp16(*value).to_le_bytes()));
}

pub(super) fn decode_fp16(bytes: &[u8], _: f32, values: &mut [f32]) {
    for (value, stored) in values.iter_mut().zip(bytes.chunks_exact(2)) {
        *value = float::decode_fp16(half_at(stored, 0));
    }
}

pub(super) fn encode_bf16(values: &[f32], _: f32, bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().flat_map(|value| float::encode_bf16(*value).to_le_bytes()));
}

pub(super) fn decode_bf16(bytes: &[u8], _: f32, values: &mut [f32]) {
    for (value, stored) in values.iter_mut().zip(bytes.chunks_exact(2)) {
        *value = float::decode_bf16(half_at(stored, 0));
    }
}

pub(super) fn encode_fp8_e4m3(values: &[f32], scale: f32, bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().map(|value| encode_e4m3(value / scale)));
}

pub(super) fn decode_fp8_e4m3(bytes: &[u8], scale: f32, values: &mut [f32]) {
    for (value, code) in values.iter_mut().zip(bytes) {
        *value = decode_e4m3(*code) * scale;
    }
}

pub(super) fn encode_fp8_e5m2(values: &[f32], scale: f32, bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().map(|value| encode_e5m2(value / scale)));
}

pub(super) fn decode_fp8_e5m2(bytes: &[u8], scale: f32, values: &mut [f32]) {
    for (value, code) in values.iter_mut().zip(bytes) {
        *value = decode_e5m2(*code) * scale;
    }
}

/// The integer nearest to `value / scale` within -`limit` - 1 ..= `limit`; a scale of zero has only zero.
fn code(value: f32, scale: f32, limit: f32) -> i32 {
    if scale == 0.0 { 0 } else { round_even((value / scale).clamp(-limit - 1.0, limit)) as i32 }
}

pub(super) fn encode_int8_row(row: &[f32], bytes: &mut Vec<u8>) -> f32 {
    let scale = largest(row) / 127.0;
    bytes.extend(row.iter().map(|value| code(*value, scale, 127.0).max(-127) as u8));
    scale
}

pub(super) fn decode_int8_row(bytes: &[u8], scale: f32, row: &mut [f32]) {
    for (value, stored) in row.iter_mut().zip(bytes) {
        *value = f32::from(*stored as i8) * scale;
    }
}

pub(super) fn encode_int4_row(row: &[f32], bytes: &mut Vec<u8>) -> f32 {
    let scale = largest(row) / 7.0;
    let nibble = |value: &f32| (code(*value, scale, 7.0) + 8) as u8;
    bytes.extend(row.chunks(2).map(|pair| nibble(&pair[0]) | pair.get(1).map_or(8, nibble) << 4));
    scale
}

pub(super) fn decode_int4_row(bytes: &[u8], scale: f32, row: &mut [f32]) {
    for (pair, stored) in row.chunks_mut(2).zip(bytes) {
        for (value, nibble) in pair.iter_mut().zip([stored & 15, stored >> 4]) {
            *value = (f32::from(nibble) - 8.0) * scale;
        }
    }
}

/// Packs the first half of `codes` into low nibbles and the second into high ones.
pub(super) fn pack_halves(codes: impl Fn(usize) -> u8, count: usize, bytes: &mut Vec<u8>) {
    bytes.extend((0..count / 2).map(|i| codes(i) | codes(i + count / 2) << 4));
}

/// The inverse of [`pack_halves`]: calls `put` with every index and its code.
pub(super) fn unpack_halves(bytes: &[u8], mut put: impl FnMut(usize, u8)) {
    for (i, byte) in bytes.iter().enumerate() {
        put(i, byte & 15);
        put(i + bytes.len(), byte >> 4);
    }
}

pub(super) fn encode_int4_group(group: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let stored = float::encode_fp16(largest(group) / 7.0);
    let scale = float::decode_fp16(stored);
    bytes.extend(stored.to_le_bytes());
    pack_halves(|i| (code(group[i], scale, 7.0) + 8) as u8, group.len(), bytes);
}

pub(super) fn decode_int4_group(bytes: &[u8], _: f32, group: &mut [f32]) {
    let scale = float::decode_fp16(half_at(bytes, 0));
    unpack_halves(&bytes[2..], |i, nibble| group[i] = (f32::from(nibble) - 8.0) * scale);
}

/// The range includes zero, as GPTQ's does: a group of one sign keeps its zero point within four bits.
pub(super) fn encode_asymmetric(group: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let (low, high) =
        group.iter().fold((0.0_f32, 0.0_f32), |(low, high), value| (low.min(*value), high.max(*value)));
    let stored = float::encode_fp16((high - low) / 15.0);
    let scale = float::decode_fp16(stored);
    let (zero, inverse) =
        if scale == 0.0 { (0.0, 0.0) } else { (round_even((-low / scale).clamp(0.0, 15.0)), 1.0 / scale) };
    bytes.extend(stored.to_le_bytes());
    bytes.push(zero as u8);
    let nibble =
        |value: f32| (round_even((value * inverse).clamp(-16.0, 16.0)) + zero).clamp(0.0, 15.0) as u8;
    pack_halves(|i| nibble(group[i]), group.len(), bytes);
}

pub(super) fn decode_asymmetric(bytes: &[u8], _: f32, group: &mut [f32]) {
    let (scale, zero) = (float::decode_fp16(half_at(bytes, 0)), f32::from(bytes[2]));
    unpack_halves(&bytes[3..], |i, nibble| group[i] = (f32::from(nibble) - zero) * scale);
}

/// Multiplies by a power of two in two steps, so that neither factor leaves the exponent's range.
fn unscaled(value: f32, code: u8) -> f32 {
    let exponent = 127 - i32::from(code);
    let half = exponent / 2;
    value * float::power_of_two(half) * float::power_of_two(exponent - half)
}

pub(super) fn encode_mxfp4(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let scale = shared_exponent(largest(block), 2);
    bytes.push(scale);
    pack_halves(|i| encode_e2m1(unscaled(block[i], scale)), block.len(), bytes);
}

pub(super) fn decode_mxfp4(bytes: &[u8], _: f32, block: &mut [f32]) {
    let scale = decode_e8m0(bytes[0]);
    unpack_halves(&bytes[1..], |i, nibble| block[i] = decode_e2m1(nibble) * scale);
}

pub(super) fn encode_mxfp8(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let scale = shared_exponent(largest(block), 8);
    bytes.push(scale);
    bytes.extend(block.iter().map(|value| encode_e4m3(unscaled(*value, scale))));
}

pub(super) fn decode_mxfp8(bytes: &[u8], _: f32, block: &mut [f32]) {
    let scale = decode_e8m0(bytes[0]);
    for (value, code) in block.iter_mut().zip(&bytes[1..]) {
        *value = decode_e4m3(*code) * scale;
    }
}

pub(super) fn encode_nvfp4(block: &[f32], tensor_scale: f32, bytes: &mut Vec<u8>) {
    let stored = encode_e4m3(largest(block) / 6.0 / tensor_scale);
    let scale = decode_e4m3(stored) * tensor_scale;
    bytes.push(stored);
    // A block too small for any scale is a block of zeros.
    let nibble = |value: f32| if scale == 0.0 { 0 } else { encode_e2m1(value / scale) };
    bytes.extend(block.chunks_exact(2).map(|pair| nibble(pair[0]) | nibble(pair[1]) << 4));
}

pub(super) fn decode_nvfp4(bytes: &[u8], tensor_scale: f32, block: &mut [f32]) {
    let scale = decode_e4m3(bytes[0]) * tensor_scale;
    for (pair, byte) in block.chunks_exact_mut(2).zip(&bytes[1..]) {
        pair[0] = decode_e2m1(*byte) * scale;
        pair[1] = decode_e2m1(byte >> 4) * scale;
    }
}
