//! GGUF types whose codes stand for vectors of a codebook: IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S.
//!
//! | type | block of 256 weights |
//! |---|---|
//! | IQ1_S | fp16 d, 32 bytes of low codes, 8 words: 4 x 3 upper code bits, 3-bit scale, sign of the shift |
//! | IQ1_M | 32 bytes of low codes, 16 bytes of (3 upper bits, sign of the shift) x 2, 4 words: 4 x 3-bit scales and a nibble of d |
//! | IQ2_XXS | fp16 d, 8 x (4 codes, a word of 4 x 7 sign bits and a 4-bit scale) |
//! | IQ2_XS | fp16 d, 32 words of 9 code and 7 sign bits, 8 bytes of 4-bit scales |
//! | IQ2_S | fp16 d, 32 low codes, 32 bytes of signs, 8 bytes of upper code bits, 8 bytes of 4-bit scales |
//! | IQ3_XXS | fp16 d, 64 codes, 8 words of 4 x 7 sign bits and a 4-bit scale |
//! | IQ3_S | fp16 d, 64 low codes, 8 bytes of upper code bits, 32 bytes of signs, 4 bytes of 4-bit scales |
//!
//! A sign field of 7 bits leaves the eighth to parity: the number of negative weights is even. The codebooks are in
//! `grids.txt`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::float::decode_fp16;
use super::scaled::half_at;

const IQ1: [f32; 4] = [-1.0, 0.0, 1.0, 0.0];
const IQ2: [f32; 4] = [8.0, 25.0, 43.0, 0.0];
const IQ3_XXS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];
const IQ3_S: [f32; 8] = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];

/// What IQ1 adds to or takes from every value of a vector.
const SHIFT: f32 = 0.125;

/// The bytes of every codebook by its name.
static GRIDS: LazyLock<BTreeMap<&'static str, Vec<u8>>> = LazyLock::new(|| {
    let (mut grids, mut name) = (BTreeMap::new(), "");
    for line in include_str!("grids.txt").lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with("iq") {
            name = line;
            continue;
        }
        let bytes: &mut Vec<u8> = grids.entry(name).or_default();
        let digits: Vec<u8> = line.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
        bytes.extend(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]));
    }
    grids
});

fn grid(name: &str) -> &'static [u8] {
    GRIDS.get(name).map_or(&[], Vec::as_slice)
}

/// Eight values of a codebook of 2-bit indices.
fn eight(grid: &[u8], code: usize, values: [f32; 4]) -> [f32; 8] {
    std::array::from_fn(|i| values[usize::from(grid[2 * code + i / 4] >> (2 * (i % 4)) & 3)])
}

/// Four values of a codebook of 4-bit indices.
fn four(grid: &[u8], code: usize, values: [f32; 8]) -> [f32; 4] {
    std::array::from_fn(|i| values[usize::from(grid[2 * code + i / 2] >> (4 * (i % 2)) & 7)])
}

/// Seven sign bits and the eighth that makes their number even.
fn with_parity(signs: u32) -> u8 {
    let signs = (signs & 127) as u8;
    signs | ((signs.count_ones() & 1) as u8) << 7
}

fn put(weights: &mut [f32], values: &[f32], scale: f32, signs: u8) {
    for (i, (weight, value)) in weights.iter_mut().zip(values).enumerate() {
        let sign = if signs >> i & 1 == 1 { -1.0 } else { 1.0 };
        *weight = scale * value * sign;
    }
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn nibble(bytes: &[u8], i: usize) -> f32 {
    f32::from(bytes[i / 2] >> (4 * (i % 2)) & 15)
}

pub(super) fn decode_iq2_xxs(bytes: &[u8], _: f32, block: &mut [f32]) {
    let (grid, d) = (grid("iq2_xxs"), decode_fp16(half_at(bytes, 0)));
    for (j, part) in block.chunks_exact_mut(32).enumerate() {
        let (codes, signs) = (&bytes[2 + 8 * j..], word_at(bytes, 6 + 8 * j));
        let scale = d * (0.5 + (signs >> 28) as f32) * 0.25;
        for (i, weights) in part.chunks_exact_mut(8).enumerate() {
            put(weights, &eight(grid, codes[i].into(), IQ2), scale, with_parity(signs >> (7 * i)));
        }
    }
}

pub(super) fn decode_iq2_xs(bytes: &[u8], _: f32, block: &mut [f32]) {
    let (grid, d) = (grid("iq2_xs"), decode_fp16(half_at(bytes, 0)));
    for (i, weights) in block.chunks_exact_mut(8).enumerate() {
        let code = half_at(bytes, 2 + 2 * i);
        let scale = d * (0.5 + nibble(&bytes[66..], i / 2)) * 0.25;
        put(weights, &eight(grid, usize::from(code & 511), IQ2), scale, with_parity(u32::from(code >> 9)));
    }
}

pub(super) fn decode_iq2_s(bytes: &[u8], _: f32, block: &mut [f32]) {
    let (grid, d) = (grid("iq2_s"), decode_fp16(half_at(bytes, 0)));
    let (codes, signs, upper) = (&bytes[2..34], &bytes[34..66], &bytes[66..74]);
    for (i, weights) in block.chunks_exact_mut(8).enumerate() {
        let code = usize::from(codes[i]) | usize::from(upper[i / 4] >> (2 * (i % 4)) & 3) << 8;
        let scale = d * (0.5 + nibble(&bytes[74..], i / 2)) * 0.25;
        put(weights, &eight(grid, code, IQ2), scale, signs[i]);
    }
}

pub(super) fn decode_iq3_xxs(bytes: &[u8], _: f32, block: &mut [f32]) {
    let (grid, d) = (grid("iq3_xxs"), decode_fp16(half_at(bytes, 0)));
    for (i, weights) in block.chunks_exact_mut(8).enumerate() {
        let word = word_at(bytes, 66 + 4 * (i / 4));
        let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        let signs = with_parity(word >> (7 * (i % 4)));
        for (n, weights) in weights.chunks_exact_mut(4).enumerate() {
            put(weights, &four(grid, bytes[2 + 2 * i + n].into(), IQ3_XXS), scale, signs >> (4 * n));
        }
    }
}

pub(super) fn decode_iq3_s(bytes: &[u8], _: f32, block: &mut [f32]) {
    let (grid, d) = (grid("iq3_s"), decode_fp16(half_at(bytes, 0)));
    let (codes, upper, signs, scales) = (&bytes[2..66], &bytes[66..74], &bytes[74..106], &bytes[106..]);
    for (i, weights) in block.chunks_exact_mut(4).enumerate() {
        let code = usize::from(codes[i]) | usize::from(upper[i / 8] >> (i % 8) & 1) << 8;
        let scale = d * (1.0 + 2.0 * nibble(scales, i / 8));
        put(weights, &four(grid, code, IQ3_S), scale, signs[i / 2] >> (4 * (i % 2)));
    }
}

/// Shifted values of an IQ1 vector.
fn shifted(code: usize, negative: bool) -> [f32; 8] {
    let shift = if negative { -SHIFT } else { SHIFT };
    eight(grid("iq1"), code, IQ1).map(|value| value + shift)
}

pub(super) fn decode_iq1_s(bytes: &[u8], _: f32, block: &mut [f32]) {
    let d = decode_fp16(half_at(bytes, 0));
    for (i, weights) in block.chunks_exact_mut(8).enumerate() {
        let word = half_at(bytes, 34 + 2 * (i / 4));
        let scale = d * f32::from(2 * (word >> 12 & 7) + 1);
        let code = usize::from(bytes[2 + i]) | usize::from(word >> (3 * (i % 4)) & 7) << 8;
        put(weights, &shifted(code, word >> 15 == 1), scale, 0);
    }
}

pub(super) fn decode_iq1_m(bytes: &[u8], _: f32, block: &mut [f32]) {
    let scales: [u16; 4] = std::array::from_fn(|i| half_at(bytes, 48 + 2 * i));
    let d = decode_fp16(scales.iter().rev().fold(0, |bits, word| bits << 4 | word >> 12));
    for (i, weights) in block.chunks_exact_mut(8).enumerate() {
        let scale = d * f32::from(2 * (scales[i / 8] >> (3 * (i / 2 % 4)) & 7) + 1);
        let upper = bytes[32 + i / 2] >> (4 * (i % 2));
        let code = usize::from(bytes[i]) | usize::from(upper & 7) << 8;
        put(weights, &shifted(code, upper & 8 != 0), scale, 0);
    }
}
