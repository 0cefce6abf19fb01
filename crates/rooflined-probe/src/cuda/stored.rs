//! Weights as GPU kernels read them: random ones, and what they mean.
//!
//! A matrix is a plane of codes and, for formats that keep them apart, a plane of scales; `docs/internals/kernels.md` gives the
//! layouts. Rows are whole numbers of blocks.

use half::{bf16, f16};

use crate::gemv::pack::{random_weight, weights};
use rooflined_core::precision::WeightFormat;
use rooflined_core::precision::quantise::{decode_e2m1, decode_e4m3, decode_e8m0, encode_e4m3};

/// A format that there are GPU kernels for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    format: WeightFormat,
    /// What follows `gemv_` in the names of its kernels.
    pub name: &'static str,
    /// Rows are padded to a multiple of so many weights.
    multiple: usize,
    /// Weights and bytes of a block in the plane of codes.
    codes: (usize, usize),
    /// Weights and bytes of a block in the plane of scales; `None` where there is none.
    scales: Option<(usize, usize)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its part of the plane of codes.
    pub codes: Vec<u8>,
    /// Its part of the plane of scales; one scale for a whole row is four bytes.
    pub scales: Vec<u8>,
    pub weights: Vec<f64>,
}

/// Factor of all weights that kernels apply at the end.
pub const ALPHA: f32 = 0.75;

impl Layout {
    /// The layout of a format; `None` where there is no kernel.
    pub const fn of(format: WeightFormat) -> Option<Self> {
        use WeightFormat as F;
        let (name, multiple, codes, scales) = match format {
            F::Fp32 => ("f32", 32, (1, 4), None),
            F::Fp16 => ("f16", 32, (1, 2), None),
            F::Bf16 => ("bf16", 32, (1, 2), None),
            // One scale a row: no block of weights has that length.
            F::Int8 => ("i8", 32, (1, 1), Some((usize::MAX, 4))),
            F::Fp8E4m3 => ("f8", 32, (1, 1), Some((usize::MAX, 4))),
            F::Int4G128 => ("i4g128", 128, (128, 64), Some((128, 2))),
            F::Q8_0 => ("q8_0", 32, (32, 34), None),
            F::Q4_0 => ("q4_0", 32, (32, 18), None),
            F::Q4KM => ("q4_k", 256, (256, 144), None),
            F::Q6K => ("q6_k", 256, (256, 210), None),
            F::Nvfp4 => ("nvf4", 32, (32, 16), Some((16, 1))),
            F::Mxfp4 => ("mxf4", 32, (32, 16), Some((32, 1))),
            _ => return None,
        };
        Some(Self { format, name, multiple, codes, scales })
    }

    /// Row length with its padding; `None` beyond the address space.
    pub fn padded(&self, k: usize) -> Option<usize> {
        k.checked_next_multiple_of(self.multiple)
    }

    /// Bytes of a row of `k` padded weights in the plane of codes.
    pub fn code_bytes(&self, k: usize) -> usize {
        k / self.codes.0 * self.codes.1
    }

    /// The same of scales.
    pub fn scale_bytes(&self, k: usize) -> usize {
        self.scales.map_or(0, |(weights, bytes)| k.div_ceil(weights) * bytes)
    }

    /// A row of `k` weights, padded to `padded`: weights of magnitude 0.05 to 1, near enough, and zeros.
    pub fn random_row(&self, rng: &mut fastrand::Rng, k: usize, padded: usize) -> Row {
        use WeightFormat as F;
        let mut codes = Vec::with_capacity(self.code_bytes(padded));
        let mut scales = Vec::with_capacity(self.scale_bytes(padded));
        let plain: Vec<f32> = (0..padded).map(|i| if i < k { random_weight(rng) } else { 0.0 }).collect();
        match self.format {
            F::Fp32 => codes.extend(plain.iter().flat_map(|w| w.to_le_bytes())),
            F::Fp16 => codes.extend(plain.iter().flat_map(|w| f16::from_f32(*w).to_le_bytes())),
            F::Bf16 => codes.extend(plain.iter().flat_map(|w| bf16::from_f32(*w).to_le_bytes())),
            F::Int8 => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "-127 to 127")]
                codes.extend(plain.iter().map(|w| (w * 127.0).round() as i8 as u8));
                scales.extend((rng.f32() / 127.0 + 1e-3).to_le_bytes());
            }
            F::Fp8E4m3 => {
                codes.extend(plain.iter().map(|w| encode_e4m3(*w)));
                scales.extend((0.5 + rng.f32()).to_le_bytes());
            }
            F::Int4G128 | F::Nvfp4 | F::Mxfp4 => {
                codes.extend((0..self.code_bytes(padded)).map(|_| rng.u8(..)));
                for _ in 0..self.scale_bytes(padded) / self.scales.map_or(1, |(_, bytes)| bytes) {
                    match self.format {
                        F::Int4G128 => scales.extend(f16::from_f32(0.05 + 0.1 * rng.f32()).to_le_bytes()),
                        F::Nvfp4 => scales.push(encode_e4m3(0.1 + 0.2 * rng.f32())),
                        // 1/16, 1/8, 1/4.
                        _ => scales.push(rng.u8(123..=125)),
                    }
                }
            }
            F::Q6K => {
                for _ in 0..padded / self.codes.0 {
                    // The block's fp16 scale is its end, and each sixteen weights have a signed byte as another.
                    codes.extend((2..self.codes.1).map(|_| rng.u8(..)));
                    codes.extend(f16::from_f32(4e-4 * (0.5 + rng.f32())).to_le_bytes());
                }
            }
            _ => {
                for _ in 0..padded / self.codes.0 {
                    // The block's fp16 scale; q4_k has a second one for its minima.
                    codes.extend(f16::from_f32(0.01 * (0.5 + rng.f32())).to_le_bytes());
                    codes.extend((2..self.codes.1).map(|_| rng.u8(..)));
                    if self.format == F::Q4KM {
                        let at = codes.len() - self.codes.1;
                        codes[at + 2..at + 4].copy_from_slice(&f16::from_f32(0.02 * rng.f32()).to_le_bytes());
                    }
                }
            }
        }
        let weights = self.meaning(&codes, &scales, padded);
        Row { codes, scales, weights }
    }

    fn meaning(&self, codes: &[u8], scales: &[u8], k: usize) -> Vec<f64> {
        use WeightFormat as F;
        let float = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let half = |at: usize, plane: &[u8]| u16::from_le_bytes([plane[at], plane[at + 1]]);
        let nibble = |i: usize| codes[i / 2] >> (4 * (i % 2)) & 15;
        let each = |weight: &dyn Fn(usize) -> f64| (0..k).map(weight).collect();
        match self.format {
            F::Fp32 => each(&|i| f64::from(float(&codes[4 * i..]))),
            F::Fp16 => each(&|i| f16::from_bits(half(2 * i, codes)).to_f64()),
            F::Bf16 => each(&|i| bf16::from_bits(half(2 * i, codes)).to_f64()),
            #[expect(clippy::cast_possible_wrap, reason = "a signed byte")]
            F::Int8 => each(&|i| f64::from(codes[i] as i8) * f64::from(float(scales))),
            F::Fp8E4m3 => each(&|i| f64::from(decode_e4m3(codes[i])) * f64::from(float(scales))),
            F::Int4G128 => each(&|i| {
                let (group, within) = (i / 128, i % 128);
                let byte = codes[64 * group + within % 64];
                let code = if within < 64 { byte & 15 } else { byte >> 4 };
                (f64::from(code) - 8.0) * f16::from_bits(half(2 * group, scales)).to_f64()
            }),
            F::Nvfp4 => each(&|i| f64::from(decode_e2m1(nibble(i))) * f64::from(decode_e4m3(scales[i / 16]))),
            F::Mxfp4 => each(&|i| f64::from(decode_e2m1(nibble(i))) * f64::from(decode_e8m0(scales[i / 32]))),
            // Blocks as files hold them.
            format => weights(format, codes, 1.0).into_iter().map(f64::from).collect(),
        }
    }
}
