//! Number formats: what a unit computes in ([`Precision`]) and how weights are stored ([`WeightFormat`]).
//!
//! Storage is described by its block [`Layout`]: elements, bits of an element, and the bits of scales, minima and
//! zero points that every block carries along. Bits per weight follow from the layout and are never typed in.

pub mod quantise;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::keyed;
use crate::near::Near;
use crate::units::Bytes;

/// A name that is no known format or precision.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown {what} {name:?}{}", question(near))]
pub struct UnknownName {
    /// `format` or `precision`.
    pub what: &'static str,
    pub name: String,
    /// The known keys that were probably meant.
    pub near: Near,
}

/// `; did you mean int8 or int4?`, where anything is near.
fn question(near: &Near) -> String {
    if near.is_empty() { String::new() } else { format!("; {}", near.hint("")) }
}

macro_rules! named {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $key:literal,)* }) => {
        keyed! {
            $(#[$doc])*
            #[serde(try_from = "String", into = "&'static str")]
            $name { $($(#[$vdoc])* $variant = $key,)* }
        }

        impl FromStr for $name {
            type Err = UnknownName;
            fn from_str(name: &str) -> Result<Self, UnknownName> {
                let wanted = name.to_ascii_lowercase();
                Self::ALL.iter().copied().find(|member| member.key() == wanted).ok_or_else(|| UnknownName {
                    what: $what,
                    name: name.chars().take(40).collect(),
                    near: Near::of(name, Self::ALL.iter().map(|member| member.key())),
                })
            }
        }

        impl TryFrom<String> for $name {
            type Error = UnknownName;
            fn try_from(name: String) -> Result<Self, UnknownName> {
                name.parse()
            }
        }

        impl From<$name> for &'static str {
            fn from(member: $name) -> Self {
                member.key()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.key())
            }
        }
    };
}

named! {
    /// What an arithmetic unit takes as operands. Rates are dense.
    Precision, "precision" {
        /// IEEE binary64.
        Fp64 = "fp64",
        /// IEEE binary32.
        Fp32 = "fp32",
        /// 19-bit tensor-core input: fp32's exponent, fp16's mantissa.
        Tf32 = "tf32",
        /// IEEE binary16.
        Fp16 = "fp16",
        /// 16 bits with fp32's exponent.
        Bf16 = "bf16",
        /// 8-bit float, either split.
        Fp8 = "fp8",
        /// 8-bit integers into 32-bit sums.
        Int8 = "int8",
        /// 6-bit float.
        Fp6 = "fp6",
        /// 4-bit float (e2m1), block-scaled.
        Fp4 = "fp4",
        /// 4-bit integers into 32-bit sums.
        Int4 = "int4",
    }
}

named! {
    /// How weights are stored. A GGUF mix (`q4_k_m`) names the block type of most of its tensors.
    WeightFormat, "format" {
        /// IEEE binary32.
        Fp32 = "fp32",
        /// Stored as fp32, computed with a 10-bit mantissa.
        Tf32 = "tf32",
        /// IEEE binary16.
        Fp16 = "fp16",
        /// 16 bits with fp32's exponent.
        Bf16 = "bf16",
        /// 8-bit float, 4 exponent bits, one scale per tensor.
        Fp8E4m3 = "fp8_e4m3",
        /// 8-bit float, 5 exponent bits, one scale per tensor.
        Fp8E5m2 = "fp8_e5m2",
        /// 8-bit integers, one scale per output row.
        Int8 = "int8",
        /// 4-bit integers, one scale per output row.
        Int4 = "int4",
        /// 4-bit integers, an fp16 scale for every 32.
        Int4G32 = "int4_g32",
        /// 4-bit integers, an fp16 scale for every 64.
        Int4G64 = "int4_g64",
        /// 4-bit integers, an fp16 scale for every 128.
        Int4G128 = "int4_g128",
        /// 4-bit normal-float codebook, a 16-bit scale for every 64.
        Nf4 = "nf4",
        /// OCP microscaling: e2m1, an e8m0 scale for every 32.
        Mxfp4 = "mxfp4",
        /// OCP microscaling: e4m3 or e5m2, an e8m0 scale for every 32.
        Mxfp8 = "mxfp8",
        /// e2m1, an e4m3 scale for every 16 (and one fp32 per tensor).
        Nvfp4 = "nvfp4",
        /// AWQ: 4-bit integers, an fp16 scale and a 4-bit zero point for every 128.
        AwqInt4 = "awq_int4",
        /// GPTQ: 4-bit integers, an fp16 scale and a 4-bit zero point for every 128.
        GptqInt4 = "gptq_int4",
        /// GGUF Q4_0.
        Q4_0 = "q4_0",
        /// GGUF Q4_1.
        Q4_1 = "q4_1",
        /// GGUF Q5_0.
        Q5_0 = "q5_0",
        /// GGUF Q5_1.
        Q5_1 = "q5_1",
        /// GGUF Q8_0.
        Q8_0 = "q8_0",
        /// GGUF Q2_K.
        Q2K = "q2_k",
        /// GGUF mix of Q3_K.
        Q3KM = "q3_k_m",
        /// GGUF mix of Q4_K, small.
        Q4KS = "q4_k_s",
        /// GGUF mix of Q4_K, medium.
        Q4KM = "q4_k_m",
        /// GGUF mix of Q5_K, small.
        Q5KS = "q5_k_s",
        /// GGUF mix of Q5_K, medium.
        Q5KM = "q5_k_m",
        /// GGUF Q6_K.
        Q6K = "q6_k",
        /// GGUF IQ4_XS.
        Iq4Xs = "iq4_xs",
        /// GGUF IQ4_NL.
        Iq4Nl = "iq4_nl",
        /// GGUF IQ1_S.
        Iq1S = "iq1_s",
        /// GGUF IQ1_M.
        Iq1M = "iq1_m",
        /// GGUF IQ2_XXS.
        Iq2Xxs = "iq2_xxs",
        /// GGUF IQ2_XS.
        Iq2Xs = "iq2_xs",
        /// GGUF IQ2_S.
        Iq2S = "iq2_s",
        /// GGUF IQ3_XXS.
        Iq3Xxs = "iq3_xxs",
        /// GGUF IQ3_S.
        Iq3S = "iq3_s",
        /// GGUF TQ1_0.
        Tq1_0 = "tq1_0",
        /// GGUF TQ2_0.
        Tq2_0 = "tq2_0",
        /// Experimental one-bit blocks of 128 with an fp16 scale.
        Q1_0 = "q1_0",
        /// Experimental two-bit blocks of 128 with an fp16 scale.
        Q2_0 = "q2_0",
    }
}

/// One storage block: `elements` weights of `element_bits` each, and what the block carries beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// Weights in a block.
    pub elements: u32,
    /// Payload bits of the whole block.
    pub payload_bits: u32,
    /// Bits of scales, minima, zero points and shared signs of the whole block.
    pub overhead_bits: u32,
}

impl Layout {
    const fn uniform(elements: u32, element_bits: u32, overhead_bits: u32) -> Self {
        Self { elements, payload_bits: elements * element_bits, overhead_bits }
    }

    /// A block known by its total size, `payload_bits` of which are the weights' own.
    const fn block(elements: u32, bytes: u32, payload_bits: u32) -> Self {
        Self { elements, payload_bits, overhead_bits: bytes * 8 - payload_bits }
    }

    /// Bits per weight, overhead included.
    #[must_use]
    pub fn bits_per_weight(self) -> f64 {
        f64::from(self.payload_bits + self.overhead_bits) / f64::from(self.elements)
    }

    /// Bytes of a whole block; layouts whose block is no whole number of bytes round up.
    #[must_use]
    pub const fn block_bytes(self) -> u32 {
        (self.payload_bits + self.overhead_bits).div_ceil(8)
    }
}

impl WeightFormat {
    /// The storage block. Scales kept once per row or tensor are not part of a block and count as nothing.
    #[must_use]
    pub const fn layout(self) -> Layout {
        use WeightFormat as F;
        const K: u32 = 256;
        match self {
            F::Fp32 | F::Tf32 => Layout::uniform(1, 32, 0),
            F::Fp16 | F::Bf16 => Layout::uniform(1, 16, 0),
            F::Fp8E4m3 | F::Fp8E5m2 | F::Int8 => Layout::uniform(1, 8, 0),
            F::Int4 => Layout::uniform(2, 4, 0),
            F::Int4G32 => Layout::uniform(32, 4, 16),
            F::Int4G64 => Layout::uniform(64, 4, 16),
            F::Int4G128 => Layout::uniform(128, 4, 16),
            F::Nf4 => Layout::uniform(64, 4, 16),
            F::Mxfp4 => Layout::uniform(32, 4, 8),
            F::Mxfp8 => Layout::uniform(32, 8, 8),
            F::Nvfp4 => Layout::uniform(16, 4, 8),
            F::AwqInt4 | F::GptqInt4 => Layout::uniform(128, 4, 16 + 4),
            // fp16 scale; _1 types add an fp16 minimum.
            F::Q4_0 | F::Iq4Nl => Layout::uniform(32, 4, 16),
            F::Q4_1 => Layout::uniform(32, 4, 32),
            F::Q5_0 => Layout::uniform(32, 5, 16),
            F::Q5_1 => Layout::uniform(32, 5, 32),
            F::Q8_0 => Layout::uniform(32, 8, 16),
            // Super-blocks of 256: fp16 scale (and minimum) over 4-, 6- or 8-bit sub-block scales.
            F::Q2K => Layout::uniform(K, 2, 16 * 8 + 32),
            F::Q3KM => Layout::uniform(K, 3, 16 * 6 + 16),
            F::Q4KS | F::Q4KM => Layout::uniform(K, 4, 8 * 12 + 32),
            F::Q5KS | F::Q5KM => Layout::uniform(K, 5, 8 * 12 + 32),
            F::Q6K => Layout::uniform(K, 6, 16 * 8 + 16),
            F::Iq4Xs => Layout::uniform(K, 4, 8 * 6 + 16),
            // Codebook types: grid indices and signs are payload, scales are overhead.
            F::Iq1S => Layout::block(K, 50, 50 * 8 - 16 - 8 * 4),
            F::Iq1M => Layout::block(K, 56, 56 * 8 - 64),
            F::Iq2Xxs => Layout::block(K, 66, 66 * 8 - 16 - 8 * 4),
            F::Iq2Xs => Layout::block(K, 74, 74 * 8 - 16 - 16 * 4),
            F::Iq2S => Layout::block(K, 82, 82 * 8 - 16 - 16 * 4),
            F::Iq3Xxs => Layout::block(K, 98, 98 * 8 - 16 - 8 * 4),
            F::Iq3S => Layout::block(K, 110, 110 * 8 - 16 - 8 * 4),
            F::Tq1_0 => Layout::block(K, 54, 52 * 8),
            F::Tq2_0 => Layout::uniform(K, 2, 16),
            F::Q1_0 => Layout::uniform(128, 1, 16),
            F::Q2_0 => Layout::uniform(128, 2, 16),
        }
    }

    /// Bits per weight with the scales of its blocks.
    #[must_use]
    pub fn bits_per_weight(self) -> f64 {
        self.layout().bits_per_weight()
    }

    /// Bytes that `weights` weights take. A matrix whose rows are no whole number of blocks is padded by its
    /// writer; this is the unpadded size.
    #[must_use]
    pub fn bytes(self, weights: f64) -> Bytes {
        Bytes(weights * self.bits_per_weight() / 8.0)
    }

    /// The precision that a matrix unit would compute these weights in where it has that unit; weight-only
    /// formats are expanded to 16 bits first.
    #[must_use]
    pub const fn native_precision(self) -> Precision {
        use WeightFormat as F;
        match self {
            F::Fp32 => Precision::Fp32,
            F::Tf32 => Precision::Tf32,
            F::Bf16 => Precision::Bf16,
            F::Fp8E4m3 | F::Fp8E5m2 | F::Mxfp8 => Precision::Fp8,
            F::Int8 => Precision::Int8,
            F::Mxfp4 | F::Nvfp4 => Precision::Fp4,
            _ => Precision::Fp16,
        }
    }
}

/// Everything a numeric choice fixes: how weights, activations and the KV cache are stored and what computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumericFormat {
    /// Storage of the weights.
    pub weights: WeightFormat,
    /// Storage of inputs and outputs.
    pub activations: WeightFormat,
    /// Storage of the key/value cache.
    pub kv_cache: WeightFormat,
    /// What the arithmetic units take.
    pub compute: Precision,
}

impl NumericFormat {
    /// `weights` with 16-bit activations and cache, computed in the format's own precision.
    #[must_use]
    pub const fn stored(weights: WeightFormat) -> Self {
        let activations = match weights {
            WeightFormat::Fp32 | WeightFormat::Tf32 => WeightFormat::Fp32,
            WeightFormat::Bf16 => WeightFormat::Bf16,
            _ => WeightFormat::Fp16,
        };
        Self { weights, activations, kv_cache: activations, compute: weights.native_precision() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements and bytes of the GGUF blocks as the format defines them, and bits by hand for the others.
    #[test]
    fn bits_per_weight_follow_from_the_blocks() {
        let gguf = [
            (WeightFormat::Q4_0, 32, 18),
            (WeightFormat::Q4_1, 32, 20),
            (WeightFormat::Q5_0, 32, 22),
            (WeightFormat::Q5_1, 32, 24),
            (WeightFormat::Q8_0, 32, 34),
            (WeightFormat::Q2K, 256, 84),
            (WeightFormat::Q3KM, 256, 110),
            (WeightFormat::Q4KS, 256, 144),
            (WeightFormat::Q4KM, 256, 144),
            (WeightFormat::Q5KM, 256, 176),
            (WeightFormat::Q6K, 256, 210),
            (WeightFormat::Iq4Nl, 32, 18),
            (WeightFormat::Iq4Xs, 256, 136),
            (WeightFormat::Iq1S, 256, 50),
            (WeightFormat::Iq1M, 256, 56),
            (WeightFormat::Iq2Xxs, 256, 66),
            (WeightFormat::Iq2Xs, 256, 74),
            (WeightFormat::Iq2S, 256, 82),
            (WeightFormat::Iq3Xxs, 256, 98),
            (WeightFormat::Iq3S, 256, 110),
            (WeightFormat::Tq1_0, 256, 54),
            (WeightFormat::Tq2_0, 256, 66),
            (WeightFormat::Q1_0, 128, 18),
        ];
        for (format, elements, bytes) in gguf {
            assert_eq!(format.layout().elements, elements, "{format}");
            assert_eq!(format.layout().block_bytes(), bytes, "{format}");
            assert_eq!(format.bits_per_weight(), f64::from(bytes) * 8.0 / f64::from(elements), "{format}");
        }
        let others = [
            (WeightFormat::Fp32, 32.0),
            (WeightFormat::Tf32, 32.0),
            (WeightFormat::Fp16, 16.0),
            (WeightFormat::Bf16, 16.0),
            (WeightFormat::Fp8E4m3, 8.0),
            (WeightFormat::Fp8E5m2, 8.0),
            (WeightFormat::Int8, 8.0),
            (WeightFormat::Int4, 4.0),
            (WeightFormat::Int4G32, 4.0 + 16.0 / 32.0),
            (WeightFormat::Int4G64, 4.0 + 16.0 / 64.0),
            (WeightFormat::Int4G128, 4.0 + 16.0 / 128.0),
            (WeightFormat::Nf4, 4.0 + 16.0 / 64.0),
            (WeightFormat::Mxfp4, 4.0 + 8.0 / 32.0),
            (WeightFormat::Mxfp8, 8.0 + 8.0 / 32.0),
            (WeightFormat::Nvfp4, 4.0 + 8.0 / 16.0),
            (WeightFormat::AwqInt4, 4.0 + 16.0 / 128.0 + 4.0 / 128.0),
            (WeightFormat::GptqInt4, 4.0 + 16.0 / 128.0 + 4.0 / 128.0),
        ];
        for (format, bits) in others {
            assert_eq!(format.bits_per_weight(), bits, "{format}");
        }
    }

    #[test]
    fn every_key_parses_back_to_its_member() {
        for format in &WeightFormat::ALL {
            assert_eq!(format.key().parse(), Ok(*format));
        }
        for precision in &Precision::ALL {
            assert_eq!(precision.key().parse(), Ok(*precision));
        }
    }

    #[test]
    fn an_unknown_name_suggests_the_nearest_key_or_none() {
        let error = "q4km".parse::<WeightFormat>().unwrap_err();
        assert_eq!(error.to_string(), "unknown format \"q4km\"; did you mean q4_k_m?");
        let error = "nosuch".parse::<WeightFormat>().unwrap_err();
        assert_eq!(error.to_string(), "unknown format \"nosuch\"");
        let error = "x".repeat(1_000_000).parse::<WeightFormat>().unwrap_err();
        assert_eq!(error.name.len(), 40);
    }
}
