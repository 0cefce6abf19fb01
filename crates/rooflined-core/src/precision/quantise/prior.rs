//! What a format is expected to lose where there is no measurement of the model at hand.
//!
//! The quality loss ratio of a model is the relative increase of its perplexity over the weights at 16 bits, PPL / PPL_16 - 1.
//! Public tables give it for the block types of GGUF. For the others it follows from the error of the weights: near a
//! minimum of the training loss the loss grows with the square of a small random change of the weights, so
//! `ln(PPL / PPL_16) = SENSITIVITY x e^2`, e being the relative root-mean-square error.

use crate::precision::WeightFormat;

/// Increase of the loss for a relative error of 1, as the median over the public perplexities of files whose matrices are
/// almost all of one type and were rounded without looking at activations (Q4_0 to Q5_1, Q3_K_S, Q4_K_S, Q5_K_S, Q6_K).
/// They lie between 0.7 and 1.15 of it, over losses from 0.3 to 26 %. Files made with an importance matrix lose as little
/// as 0.55 of what this says.
const SENSITIVITY: f64 = 11.36;

/// Perplexity of Llama-3-8B at 16 bits on the test set of WikiText-2, from the perplexity tables of llama.cpp.
const PERPLEXITY_16: f64 = 6.233_160;

/// Perplexity of a word of WikiText-2 (lm-evaluation-harness) at 16 bits and in groups of 128: Llama-3-8B-Instruct by AWQ
/// (torchao/prototype/awq/README.md of github.com/pytorch/ao), and Llama-2-7B by GPTQ with its order of activations
/// (huggingface.co/smpanaro/Llama-2-7b-NuGPTQ, where AWQ loses 3.1 %). By the error of weights that are rounded to the nearest, both
/// would lose 12.3 %.
const AWQ: [f64; 2] = [10.936, 11.409];
const GPTQ: [f64; 2] = [8.7071, 9.4686];

/// The quality loss ratio that a relative root-mean-square error of the weights lets expect.
#[must_use]
pub fn quality_loss(relative_rms: f64) -> f64 {
    (SENSITIVITY * relative_rms * relative_rms).exp_m1()
}

impl WeightFormat {
    /// Prior of the quality loss ratio; 0 for 16 bits and more, which it is measured from.
    ///
    /// From the public perplexities of Llama-3-8B where there are any, for formats with a method of their own from those of
    /// other models, else by [`quality_loss`] of [`expected_error`](Self::expected_error). Smaller and longer-trained models
    /// lose more, larger ones less (Llama-2-70B in Q4_K_M 1.2 %, Llama-3-8B 2.8 %): the number orders formats and is no promise
    /// for a model.
    #[must_use]
    pub fn expected_loss(self) -> f64 {
        match (self, self.perplexity(), self.expected_error()) {
            (Self::Fp32 | Self::Tf32 | Self::Fp16 | Self::Bf16, ..) => 0.0,
            (Self::AwqInt4, ..) => AWQ[1] / AWQ[0] - 1.0,
            (Self::GptqInt4, ..) => GPTQ[1] / GPTQ[0] - 1.0,
            (_, Some(perplexity), _) => perplexity / PERPLEXITY_16 - 1.0,
            (_, None, Some(error)) => quality_loss(error),
            // No format is left without one of the two, which a test holds to.
            (_, None, None) => f64::INFINITY,
        }
    }

    /// Perplexity of Llama-3-8B stored so, from the perplexity tables of llama.cpp: K-quants and legacy types without an
    /// importance matrix, IQ types with one, as they are published. `None` where the tables have none.
    #[must_use]
    pub const fn perplexity(self) -> Option<f64> {
        use WeightFormat as F;
        Some(match self {
            F::Fp16 => PERPLEXITY_16,
            F::Q8_0 => 6.234_284,
            F::Q6K => 6.253_382,
            F::Q5KM => 6.288_607,
            F::Q5KS => 6.336_598,
            F::Q5_1 => 6.337_857,
            F::Q5_0 => 6.363_224,
            F::Q4KM => 6.407_115,
            F::Q4KS => 6.500_529,
            F::Iq4Nl => 6.455_593,
            F::Iq4Xs => 6.459_705,
            F::Q4_1 => 6.682_737,
            F::Q4_0 => 6.700_147,
            F::Q3KM => 6.888_498,
            F::Iq3S => 6.965_501,
            F::Iq3Xxs => 7.458_436,
            F::Q2K => 9.751_568,
            F::Iq2S => 9.650_781,
            F::Iq2Xs => 10.761_424,
            F::Iq2Xxs => 14.091_782,
            F::Iq1M => 25.493_722,
            F::Iq1S => 60.694_593,
            _ => return None,
        })
    }

    /// Prior of the relative root-mean-square error: that of independent Gaussian weights.
    ///
    /// Trained weights are close to Gaussian within a block but have outliers, which cost formats with large blocks more
    /// than this says; the weights' own error ([`quant_error`](crate::precision::quantise::quant_error)) replaces it where
    /// they are at hand. The table is computed by this crate's own encoders on 64 rows of 4096 values, which a test repeats.
    /// Row scales (`int8`, `int4`) lose a little more on longer rows. The ternary types are made for weights trained to
    /// three values and lose most of any others. `None` for formats that have no encoder here.
    #[must_use]
    pub const fn expected_error(self) -> Option<f64> {
        use WeightFormat as F;
        Some(match self {
            F::Fp32 => 0.0,
            F::Tf32 | F::Fp16 => 0.000_207_3,
            F::Bf16 => 0.001_657,
            F::Fp8E4m3 => 0.026_46,
            F::Fp8E5m2 => 0.052_55,
            F::Int8 => 0.008_612,
            F::Int4 => 0.155_7,
            F::Int4G32 => 0.097_07,
            F::Int4G64 => 0.107_9,
            F::Int4G128 => 0.117_8,
            F::Nf4 => 0.092_13,
            F::Mxfp4 => 0.114_9,
            F::Mxfp8 => 0.029_4,
            F::Nvfp4 => 0.095_13,
            F::AwqInt4 | F::GptqInt4 => 0.100_9,
            F::Q4_0 => 0.085_92,
            F::Q4_1 => 0.078_22,
            F::Q5_0 => 0.042_69,
            F::Q5_1 => 0.037_82,
            F::Q8_0 => 0.005_345,
            F::Q2K => 0.268_1,
            F::Q3KM => 0.143_5,
            F::Q4KS | F::Q4KM => 0.071_27,
            F::Q5KS | F::Q5KM => 0.035_78,
            F::Q6K => 0.016_6,
            F::Iq4Xs => 0.075_31,
            F::Iq4Nl => 0.074_56,
            F::Tq1_0 | F::Tq2_0 => 0.810_1,
            F::Q1_0 => 0.600_3,
            F::Q2_0 => 0.769,
            F::Iq1S | F::Iq1M | F::Iq2Xxs | F::Iq2Xs | F::Iq2S | F::Iq3Xxs | F::Iq3S => return None,
        })
    }
}
