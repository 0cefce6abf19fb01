//! K-quants: super-blocks of 256 weights over sub-blocks with scales of their own.
//!
//! | type | block | sub-blocks | weight |
//! |---|---|---|---|
//! | Q2_K | 16 bytes (4-bit scale, 4-bit minimum), 64 bytes of codes, fp16 d, fp16 dmin | 16 of 16 | d s code - dmin m |
//! | Q3_K | 32 bytes of third bits, 64 bytes of codes, 12 bytes of 6-bit scales + 32, fp16 d | 16 of 16 | d s (code - 4) |
//! | Q4_K | fp16 d, fp16 dmin, 12 bytes of 6-bit scales and minima, 128 bytes of codes | 8 of 32 | d s code - dmin m |
//! | Q5_K | fp16 d, fp16 dmin, 12 bytes as Q4_K, 32 bytes of fifth bits, 128 bytes of codes | 8 of 32 | d s code - dmin m |
//! | Q6_K | 128 bytes of low nibbles, 64 bytes of upper bits, 16 signed 8-bit scales, fp16 d | 16 of 16 | d s (code - 32) |
//!
//! Scales are found as [`super::search`] says. Their packing: byte n of the 12 in Q4_K and Q5_K holds scale n
//! (n < 4) or minimum n - 4 (n < 8) in its low six bits; scales and minima 4..8 have their low nibbles in bytes 8..12
//! (minima in the high halves) and their upper two bits on top of bytes 0..8. In Q3_K scales 0..8 and 8..16 share bytes
//! 0..8 as low and high nibbles, and bytes 8..12 hold the upper two bits, four scales apart.

use super::float::{decode_fp16, encode_fp16};
use super::scaled::half_at;
use super::search::{self, Affine, better, rounded};

const SUPER: usize = 256;

/// A super-block with scales and minima.
struct WithMinima {
    scale: u16,
    minimum: u16,
    scales: [u8; 16],
    minima: [u8; 16],
    codes: [u8; SUPER],
}

/// A super-block with signed scales.
struct Signed {
    scale: u16,
    scales: [i32; 16],
    /// Less the lowest code, so that they are not negative.
    codes: [u8; SUPER],
}

/// Packs `fits`, one for each `sub` weights, with scales of 0..=`most`; the squared error comes with it.
fn pack_affine(block: &[f32], sub: usize, high: f32, most: f32, fits: &[Affine]) -> (WithMinima, f32) {
    let largest = |value: fn(&Affine) -> f32| fits.iter().map(value).fold(0.0, f32::max);
    let mut packed = WithMinima {
        scale: encode_fp16(largest(|fit| fit.scale) / most),
        minimum: encode_fp16(largest(|fit| fit.minimum) / most),
        scales: [0; 16],
        minima: [0; 16],
        codes: [0; SUPER],
    };
    let (d, dmin) = (decode_fp16(packed.scale), decode_fp16(packed.minimum));
    let mut error = 0.0;
    for (j, (fit, part)) in fits.iter().zip(block.chunks_exact(sub)).enumerate() {
        packed.scales[j] = rounded(fit.scale / d, 0.0, most) as u8;
        packed.minima[j] = rounded(fit.minimum / dmin, 0.0, most) as u8;
        let (scale, minimum) = (d * f32::from(packed.scales[j]), dmin * f32::from(packed.minima[j]));
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        for (value, to) in part.iter().zip(&mut packed.codes[j * sub..]) {
            let code = rounded((value + minimum) * inverse, 0.0, high);
            *to = code as u8;
            let difference = scale * code - minimum - value;
            error += difference * difference;
        }
    }
    (packed, error)
}

fn best_affine(block: &[f32], sub: usize, high: f32, most: f32) -> WithMinima {
    let pack = |fit: fn(&[f32], f32) -> Affine| {
        let mut fits = [Affine::default(); 16];
        for (to, part) in fits.iter_mut().zip(block.chunks_exact(sub)) {
            *to = fit(part, high);
        }
        pack_affine(block, sub, high, most, &fits[..SUPER / sub])
    };
    better(pack(search::affine), pack(search::plain_affine))
}

/// Packs sixteen scales of codes `low..-low`, with the largest stored as `lowest`.
fn pack_signed(block: &[f32], low: f32, lowest: f32, fits: &[f32; 16]) -> (Signed, f32) {
    let mut packed =
        Signed { scale: encode_fp16(search::extreme(fits) / lowest), scales: [0; 16], codes: [0; SUPER] };
    let d = decode_fp16(packed.scale);
    let mut error = 0.0;
    for (j, (fit, part)) in fits.iter().zip(block.chunks_exact(16)).enumerate() {
        let stored = if d == 0.0 { 0.0 } else { rounded(fit / d, lowest, -lowest - 1.0) };
        packed.scales[j] = stored as i32;
        let scale = d * stored;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        for (value, to) in part.iter().zip(&mut packed.codes[16 * j..]) {
            let code = rounded(value * inverse, low, -low - 1.0);
            *to = (code - low) as u8;
            let difference = scale * code - value;
            error += difference * difference;
        }
    }
    (packed, error)
}

fn best_signed(block: &[f32], low: f32, lowest: f32) -> Signed {
    let pack = |fit: &dyn Fn(&[f32]) -> f32| {
        let mut fits = [0.0; 16];
        for (to, part) in fits.iter_mut().zip(block.chunks_exact(16)) {
            *to = fit(part);
        }
        pack_signed(block, low, lowest, &fits)
    };
    better(
        pack(&|part| search::symmetric(part, low, |value| rounded(value, low, -low - 1.0))),
        pack(&|part| search::plain_symmetric(part, low)),
    )
}

/// Two bits of each code, from `shift` up: weights 32 apart share a byte.
fn put_pairs(codes: &[u8; SUPER], shift: u32, bytes: &mut Vec<u8>) {
    for half in codes.chunks_exact(128) {
        bytes.extend(
            (0..32).map(|i| (0..4).fold(0, |byte, n| byte | (half[i + 32 * n] >> shift & 3) << (2 * n))),
        );
    }
}

fn pair(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3
}

/// One bit of each code, at `shift`: weights 32 apart share a byte.
fn put_bits(codes: &[u8; SUPER], shift: u32, bytes: &mut Vec<u8>) {
    bytes.extend((0..32).map(|i| (0..8).fold(0, |byte, n| byte | (codes[i + 32 * n] >> shift & 1) << n)));
}

fn bit(bytes: &[u8], i: usize) -> u8 {
    bytes[i % 32] >> (i / 32) & 1
}

/// Low nibbles: weights `apart` apart share a byte.
fn put_nibbles(codes: &[u8; SUPER], apart: usize, bytes: &mut Vec<u8>) {
    for part in codes.chunks_exact(2 * apart) {
        bytes.extend((0..apart).map(|i| part[i] & 15 | (part[i + apart] & 15) << 4));
    }
}

fn nibble(bytes: &[u8], apart: usize, i: usize) -> u8 {
    bytes[i / (2 * apart) * apart + i % apart] >> (4 * (i / apart % 2)) & 15
}

pub(super) fn encode_q2_k(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let packed = best_affine(block, 16, 3.0, 15.0);
    bytes.extend(packed.scales.iter().zip(packed.minima).map(|(scale, minimum)| scale | minimum << 4));
    put_pairs(&packed.codes, 0, bytes);
    bytes.extend(packed.scale.to_le_bytes());
    bytes.extend(packed.minimum.to_le_bytes());
}

pub(super) fn decode_q2_k(bytes: &[u8], _: f32, block: &mut [f32]) {
    let (scales, codes) = bytes.split_at(16);
    let (d, dmin) = (decode_fp16(half_at(bytes, 80)), decode_fp16(half_at(bytes, 82)));
    for (i, weight) in block.iter_mut().enumerate() {
        let (scale, minimum) = (d * f32::from(scales[i / 16] & 15), dmin * f32::from(scales[i / 16] >> 4));
        *weight = scale * f32::from(pair(codes, i)) - minimum;
    }
}

pub(super) fn encode_q3_k(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let packed = best_signed(block, -4.0, -32.0);
    let scales = packed.scales.map(|scale| (scale + 32) as u8);
    put_bits(&packed.codes, 2, bytes);
    put_pairs(&packed.codes, 0, bytes);
    bytes.extend((0..8).map(|j| scales[j] & 15 | (scales[j + 8] & 15) << 4));
    bytes.extend((0..4).map(|j| (0..4).fold(0, |byte, n| byte | (scales[j + 4 * n] >> 4) << (2 * n))));
    bytes.extend(packed.scale.to_le_bytes());
}

pub(super) fn decode_q3_k(bytes: &[u8], _: f32, block: &mut [f32]) {
    let (upper, codes, packed) = (&bytes[..32], &bytes[32..96], &bytes[96..108]);
    let d = decode_fp16(half_at(bytes, 108));
    let scale = |j: usize| {
        let low = packed[j % 8] >> (4 * (j / 8)) & 15;
        let high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
        d * (f32::from(low | high << 4) - 32.0)
    };
    for (j, part) in block.chunks_exact_mut(16).enumerate() {
        let scale = scale(j);
        for (i, weight) in part.iter_mut().enumerate() {
            let i = 16 * j + i;
            *weight = scale * (f32::from(pair(codes, i) | bit(upper, i) << 2) - 4.0);
        }
    }
}

fn put_scales_and_minima(scales: &[u8; 16], minima: &[u8; 16], bytes: &mut Vec<u8>) {
    for six in [scales, minima] {
        bytes.extend((0..4).map(|j| six[j] | six[j + 4] >> 4 << 6));
    }
    bytes.extend((4..8).map(|j| scales[j] & 15 | (minima[j] & 15) << 4));
}

/// The scale and the minimum of sub-block `j`, of the 12 bytes that hold them.
fn scale_and_minimum(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, minimum) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (packed[j + 4] & 15 | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4)
    };
    (f32::from(scale), f32::from(minimum))
}

/// `code` finds the code of a weight.
fn decode_with_minima(bytes: &[u8], block: &mut [f32], code: impl Fn(usize) -> u8) {
    let (d, dmin) = (decode_fp16(half_at(bytes, 0)), decode_fp16(half_at(bytes, 2)));
    for (j, part) in block.chunks_exact_mut(32).enumerate() {
        let (scale, minimum) = scale_and_minimum(&bytes[4..16], j);
        let (scale, minimum) = (d * scale, dmin * minimum);
        for (i, weight) in part.iter_mut().enumerate() {
            *weight = scale * f32::from(code(32 * j + i)) - minimum;
        }
    }
}

fn put_head(packed: &WithMinima, bytes: &mut Vec<u8>) {
    bytes.extend(packed.scale.to_le_bytes());
    bytes.extend(packed.minimum.to_le_bytes());
    put_scales_and_minima(&packed.scales, &packed.minima, bytes);
}

pub(super) fn encode_q4_k(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let packed = best_affine(block, 32, 15.0, 63.0);
    put_head(&packed, bytes);
    put_nibbles(&packed.codes, 32, bytes);
}

pub(super) fn decode_q4_k(bytes: &[u8], _: f32, block: &mut [f32]) {
    decode_with_minima(bytes, block, |i| nibble(&bytes[16..], 32, i));
}

pub(super) fn encode_q5_k(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let packed = best_affine(block, 32, 31.0, 63.0);
    put_head(&packed, bytes);
    put_bits(&packed.codes, 4, bytes);
    put_nibbles(&packed.codes, 32, bytes);
}

pub(super) fn decode_q5_k(bytes: &[u8], _: f32, block: &mut [f32]) {
    decode_with_minima(bytes, block, |i| nibble(&bytes[48..], 32, i) | bit(&bytes[16..48], i) << 4);
}

pub(super) fn encode_q6_k(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let packed = best_signed(block, -32.0, -128.0);
    put_nibbles(&packed.codes, 64, bytes);
    put_pairs(&packed.codes, 4, bytes);
    bytes.extend(packed.scales.iter().map(|scale| *scale as u8));
    bytes.extend(packed.scale.to_le_bytes());
}

pub(super) fn decode_q6_k(bytes: &[u8], _: f32, block: &mut [f32]) {
    let (low, upper, scales) = (&bytes[..128], &bytes[128..192], &bytes[192..208]);
    let d = decode_fp16(half_at(bytes, 208));
    for (i, weight) in block.iter_mut().enumerate() {
        let scale = d * f32::from(scales[i / 16] as i8);
        *weight = scale * (f32::from(nibble(low, 64, i) | pair(upper, i) << 4) - 32.0);
    }
}
