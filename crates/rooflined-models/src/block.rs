//! Storage of a tensor's elements: the block types of GGUF files and the packings of safetensors checkpoints.
//!
//! A [`WeightFormat`] names what a model was quantised to, which may be a mix; a [`Block`] is what one tensor holds.

use crate::class::by_key;
use rooflined_core::keyed;
use rooflined_core::precision::WeightFormat;

macro_rules! blocks {
    ($($(#[$doc:meta])* $variant:ident = $key:literal, $elements:literal in $bytes:literal, $ggml:expr, $format:expr;)*) => {
        keyed! {
            /// How the elements of one tensor are stored.
            #[serde(into = "&'static str", try_from = "String")]
            Block { $($(#[$doc])* $variant = $key,)* }
        }

        impl Block {
            #[must_use]
            pub const fn elements(self) -> u64 {
                match self { $(Self::$variant => $elements,)* }
            }

            /// Bytes of a block, scales included.
            #[must_use]
            pub const fn bytes(self) -> u64 {
                match self { $(Self::$variant => $bytes,)* }
            }

            /// The number that GGUF files name the type by; `None` where they have none.
            #[must_use]
            pub const fn ggml(self) -> Option<u32> {
                match self { $(Self::$variant => $ggml,)* }
            }

            /// The weight format whose kernels read such blocks; `None` for indices and other helpers.
            #[must_use]
            pub const fn format(self) -> Option<WeightFormat> {
                use WeightFormat as F;
                match self { $(Self::$variant => $format,)* }
            }
        }
    };
}

blocks! {
    /// IEEE binary64.
    F64 = "fp64", 1 in 8, Some(28), None;
    /// IEEE binary32.
    F32 = "fp32", 1 in 4, Some(0), Some(F::Fp32);
    /// IEEE binary16.
    F16 = "fp16", 1 in 2, Some(1), Some(F::Fp16);
    /// 16 bits with fp32's exponent.
    Bf16 = "bf16", 1 in 2, Some(30), Some(F::Bf16);
    /// 8-bit float, 4 exponent bits.
    Fp8E4m3 = "fp8_e4m3", 1 in 1, None, Some(F::Fp8E4m3);
    /// 8-bit float, 5 exponent bits.
    Fp8E5m2 = "fp8_e5m2", 1 in 1, None, Some(F::Fp8E5m2);
    /// 8-bit exponent: a scale.
    E8m0 = "e8m0", 1 in 1, None, None;
    /// 64-bit integers: indices.
    I64 = "i64", 1 in 8, Some(27), None;
    /// 32-bit integers: indices or packed weights.
    I32 = "i32", 1 in 4, Some(26), None;
    /// 16-bit integers.
    I16 = "i16", 1 in 2, Some(25), None;
    /// 8-bit integers.
    I8 = "int8", 1 in 1, Some(24), Some(F::Int8);
    /// 4-bit integers with an fp16 scale for every 32.
    Int4G32 = "int4_g32", 32 in 18, None, Some(F::Int4G32);
    /// 4-bit integers with an fp16 scale for every 64.
    Int4G64 = "int4_g64", 64 in 34, None, Some(F::Int4G64);
    /// 4-bit integers with an fp16 scale for every 128.
    Int4G128 = "int4_g128", 128 in 66, None, Some(F::Int4G128);
    /// 4-bit integers, a scale for every row.
    Int4 = "int4", 2 in 1, None, Some(F::Int4);
    /// Normal-float codebook, an fp32 scale for every 64 (less with double quantisation).
    Nf4 = "nf4", 64 in 36, None, Some(F::Nf4);
    /// AWQ: a scale and a zero point for every 128.
    AwqInt4 = "awq_int4", 256 in 133, None, Some(F::AwqInt4);
    /// GPTQ: a scale and a zero point for every 128.
    GptqInt4 = "gptq_int4", 256 in 133, None, Some(F::GptqInt4);
    /// OCP microscaling e2m1, a scale for every 32.
    Mxfp4 = "mxfp4", 32 in 17, Some(39), Some(F::Mxfp4);
    /// OCP microscaling, 8 bits.
    Mxfp8 = "mxfp8", 32 in 33, None, Some(F::Mxfp8);
    /// e2m1, an e4m3 scale for every 16.
    Nvfp4 = "nvfp4", 64 in 36, Some(40), Some(F::Nvfp4);
    /// GGUF Q4_0.
    Q4_0 = "q4_0", 32 in 18, Some(2), Some(F::Q4_0);
    /// GGUF Q4_1.
    Q4_1 = "q4_1", 32 in 20, Some(3), Some(F::Q4_1);
    /// GGUF Q5_0.
    Q5_0 = "q5_0", 32 in 22, Some(6), Some(F::Q5_0);
    /// GGUF Q5_1.
    Q5_1 = "q5_1", 32 in 24, Some(7), Some(F::Q5_1);
    /// GGUF Q8_0.
    Q8_0 = "q8_0", 32 in 34, Some(8), Some(F::Q8_0);
    /// GGUF Q8_1: quantised activations.
    Q8_1 = "q8_1", 32 in 40, Some(9), None;
    /// GGUF Q2_K.
    Q2K = "q2_k", 256 in 84, Some(10), Some(F::Q2K);
    /// GGUF Q3_K.
    Q3K = "q3_k", 256 in 110, Some(11), Some(F::Q3KM);
    /// GGUF Q4_K.
    Q4K = "q4_k", 256 in 144, Some(12), Some(F::Q4KM);
    /// GGUF Q5_K.
    Q5K = "q5_k", 256 in 176, Some(13), Some(F::Q5KM);
    /// GGUF Q6_K.
    Q6K = "q6_k", 256 in 210, Some(14), Some(F::Q6K);
    /// GGUF Q8_K: quantised activations.
    Q8K = "q8_k", 256 in 292, Some(15), None;
    /// GGUF IQ2_XXS.
    Iq2Xxs = "iq2_xxs", 256 in 66, Some(16), Some(F::Iq2Xxs);
    /// GGUF IQ2_XS.
    Iq2Xs = "iq2_xs", 256 in 74, Some(17), Some(F::Iq2Xs);
    /// GGUF IQ3_XXS.
    Iq3Xxs = "iq3_xxs", 256 in 98, Some(18), Some(F::Iq3Xxs);
    /// GGUF IQ1_S.
    Iq1S = "iq1_s", 256 in 50, Some(19), Some(F::Iq1S);
    /// GGUF IQ4_NL.
    Iq4Nl = "iq4_nl", 32 in 18, Some(20), Some(F::Iq4Nl);
    /// GGUF IQ3_S.
    Iq3S = "iq3_s", 256 in 110, Some(21), Some(F::Iq3S);
    /// GGUF IQ2_S.
    Iq2S = "iq2_s", 256 in 82, Some(22), Some(F::Iq2S);
    /// GGUF IQ4_XS.
    Iq4Xs = "iq4_xs", 256 in 136, Some(23), Some(F::Iq4Xs);
    /// GGUF IQ1_M.
    Iq1M = "iq1_m", 256 in 56, Some(29), Some(F::Iq1M);
    /// GGUF TQ1_0.
    Tq1_0 = "tq1_0", 256 in 54, Some(34), Some(F::Tq1_0);
    /// GGUF TQ2_0.
    Tq2_0 = "tq2_0", 256 in 66, Some(35), Some(F::Tq2_0);
    /// One-bit blocks of 128 with an fp16 scale.
    Q1_0 = "q1_0", 128 in 18, Some(41), Some(F::Q1_0);
    /// Two-bit blocks of 128 with an fp16 scale, of the fork that came before type 42 was settled.
    Q2_0 = "q2_0", 128 in 34, None, Some(F::Q2_0);
    /// GGUF Q2_0: two-bit blocks of 64 with an fp16 scale.
    Q2_0G64 = "q2_0_g64", 64 in 18, Some(42), Some(F::Q2_0);
}

impl Block {
    /// The block type that GGUF files give this number.
    #[must_use]
    pub fn from_ggml(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|block| block.ggml() == Some(number))
    }

    /// What most tensors of a model quantised to `format` hold.
    #[must_use]
    pub fn of(format: WeightFormat) -> Self {
        match format {
            WeightFormat::Tf32 => Self::F32,
            WeightFormat::Q4KS => Self::Q4K,
            WeightFormat::Q5KS => Self::Q5K,
            // Every other format is what some block stores; a test holds the table to it.
            _ => Self::ALL.iter().copied().find(|block| block.format() == Some(format)).unwrap_or(Self::F16),
        }
    }

    /// Bits per element with the scales of a block.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "blocks are small")]
    pub fn bits(self) -> f64 {
        (self.bytes() * 8) as f64 / self.elements() as f64
    }

    /// Bytes of `rows` rows of `columns` elements, every row a whole number of blocks; `None` where the product
    /// does not fit 64 bits. A last block that is not full counts in full, as its writer pads it.
    #[must_use]
    pub fn size(self, rows: u64, columns: u64) -> Option<u64> {
        columns.div_ceil(self.elements()).checked_mul(self.bytes())?.checked_mul(rows)
    }

    /// The format whose bytes these are, block for block; `None` where scales stand elsewhere or blocks differ.
    #[must_use]
    pub fn packed_as(self) -> Option<WeightFormat> {
        let format =
            self.format().filter(|_| self.is_plain() || self.ggml().is_some() || self == Self::Q2_0)?;
        let layout = format.layout();
        let same =
            u64::from(layout.elements) == self.elements() && u64::from(layout.block_bytes()) == self.bytes();
        (same && self != Self::I8).then_some(format)
    }

    /// Whether a weight is stored without blocks: a float of 16 bits or more.
    #[must_use]
    pub const fn is_plain(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::Bf16)
    }
}

by_key!(Block, "a storage of tensors");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_a_block_that_stores_it() {
        for format in &WeightFormat::ALL {
            let block = Block::of(*format);
            // The 16-bit scales of the format's name are fp32 in checkpoints of bitsandbytes.
            let expected = if *format == WeightFormat::Nf4 { 4.5 } else { format.bits_per_weight() };
            assert_eq!(block.bits(), expected, "{format}");
        }
    }

    #[test]
    fn sizes_count_whole_blocks_and_refuse_to_wrap() {
        assert_eq!(Block::Q4K.size(2, 512), Some(2 * 2 * 144));
        assert_eq!(Block::Q8_0.size(1, 33), Some(2 * 34));
        assert_eq!(Block::F32.size(u64::MAX, 2), None);
        assert_eq!(Block::F32.size(1, u64::MAX), None);
    }

    #[test]
    fn numbers_of_types_are_unique() {
        let mut numbers: Vec<_> = Block::ALL.iter().filter_map(|block| block.ggml()).collect();
        numbers.sort_unstable();
        let count = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }
}
