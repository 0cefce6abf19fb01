//! Four-bit codebooks: `nf4`, and GGUF's IQ4_NL and IQ4_XS.
//!
//! | type | block |
//! |---|---|
//! | nf4 | fp16 largest magnitude, 32 bytes of nibbles, even weights high: weight = value(code) x magnitude |
//! | IQ4_NL | fp16 d, 16 bytes of nibbles: weights 0..16 low, 16..32 high: weight = d value(code) |
//! | IQ4_XS | fp16 d, upper two bits of 8 scales, their low nibbles in 4 bytes, 8 x 16 bytes of nibbles as IQ4_NL: weight = d (scale - 32) value(code) |
//!
//! The nf4 values are the quantiles of the normal distribution that QLoRA (Dettmers et al. 2023, appendix E) defines,
//! as bitsandbytes rounds them; codes are taken at the midpoints. The scales of the IQ types are found as
//! [`super::search`] says.

use super::float::{decode_fp16, encode_fp16};
use super::largest;
use super::scaled::{half_at, pack_halves, unpack_halves};
use super::search::{self, better, rounded};

/// Quantiles of the normal distribution.
pub(super) const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// The values of IQ4_NL and IQ4_XS.
const IQ4: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0,
];

/// The code of the value nearest to `value`, the lower of two that are equally near.
fn nearest(codebook: &[f32; 16], value: f32) -> u8 {
    codebook.windows(2).map(|pair| u8::from(value > 0.5 * (pair[0] + pair[1]))).sum()
}

pub(super) fn encode_nf4(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let stored = encode_fp16(largest(block));
    let scale = decode_fp16(stored);
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    bytes.extend(stored.to_le_bytes());
    let code = |weight: &f32| nearest(&NF4, weight * inverse);
    bytes.extend(block.chunks(2).map(|pair| code(&pair[0]) << 4 | pair.get(1).map_or(7, code)));
}

pub(super) fn decode_nf4(bytes: &[u8], _: f32, block: &mut [f32]) {
    let scale = decode_fp16(half_at(bytes, 0));
    for (pair, byte) in block.chunks_mut(2).zip(&bytes[2..]) {
        for (weight, code) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
            *weight = NF4[usize::from(code)] * scale;
        }
    }
}

fn value(code: u8) -> f32 {
    IQ4[usize::from(code & 15)]
}

/// The scale for 32 weights: by search, or the plain one.
fn scale_of(block: &[f32], searched: bool) -> f32 {
    if searched {
        search::symmetric(block, IQ4[0], |scaled| value(nearest(&IQ4, scaled)))
    } else {
        search::plain_symmetric(block, IQ4[0])
    }
}

/// Codes for a scale, and their squared error.
fn codes(block: &[f32], scale: f32) -> ([u8; 32], f32) {
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let (mut codes, mut error) = ([0; 32], 0.0);
    for (to, weight) in codes.iter_mut().zip(block) {
        *to = nearest(&IQ4, weight * inverse);
        let difference = scale * value(*to) - weight;
        error += difference * difference;
    }
    (codes, error)
}

pub(super) fn encode_iq4_nl(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let pack = |searched| {
        let stored = encode_fp16(scale_of(block, searched));
        let (codes, error) = codes(block, decode_fp16(stored));
        ((stored, codes), error)
    };
    let (stored, codes) = better(pack(true), pack(false));
    bytes.extend(stored.to_le_bytes());
    pack_halves(|i| codes[i], 32, bytes);
}

pub(super) fn decode_iq4_nl(bytes: &[u8], _: f32, block: &mut [f32]) {
    let scale = decode_fp16(half_at(bytes, 0));
    unpack_halves(&bytes[2..], |i, code| block[i] = scale * value(code));
}

pub(super) fn encode_iq4_xs(block: &[f32], _: f32, bytes: &mut Vec<u8>) {
    let pack = |searched| {
        let mut scales = [0.0; 8];
        for (to, part) in scales.iter_mut().zip(block.chunks_exact(32)) {
            *to = scale_of(part, searched);
        }
        let stored = encode_fp16(search::extreme(&scales) / -32.0);
        let d = decode_fp16(stored);
        let (mut sixes, mut packed, mut error) = ([0_u8; 8], [[0; 32]; 8], 0.0);
        for (j, part) in block.chunks_exact(32).enumerate() {
            let scale = if d == 0.0 { 0.0 } else { rounded(scales[j] / d, -32.0, 31.0) };
            let (codes, lost) = codes(part, d * scale);
            sixes[j] = (scale + 32.0) as u8;
            packed[j] = codes;
            error += lost;
        }
        ((stored, sixes, packed), error)
    };
    let (stored, sixes, packed) = better(pack(true), pack(false));
    bytes.extend(stored.to_le_bytes());
    let upper = sixes.iter().enumerate().fold(0_u16, |bits, (j, six)| bits | u16::from(six >> 4) << (2 * j));
    bytes.extend(upper.to_le_bytes());
    bytes.extend(sixes.chunks_exact(2).map(|pair| pair[0] & 15 | pair[1] << 4));
    for codes in &packed {
        pack_halves(|i| codes[i], 32, bytes);
    }
}

pub(super) fn decode_iq4_xs(bytes: &[u8], _: f32, block: &mut [f32]) {
    let (d, upper) = (decode_fp16(half_at(bytes, 0)), half_at(bytes, 2));
    for (j, (part, stored)) in block.chunks_exact_mut(32).zip(bytes[8..].chunks_exact(16)).enumerate() {
        let low = bytes[4 + j / 2] >> (4 * (j % 2)) & 15;
        let high = (upper >> (2 * j) & 3) as u8;
        let scale = d * (f32::from(low | high << 4) - 32.0);
        unpack_halves(stored, |i, code| part[i] = scale * value(code));
    }
}
