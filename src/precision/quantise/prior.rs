//! What a format is expected to lose where there are no weights to try it on.

use crate::precision::WeightFormat;

impl WeightFormat {
    /// Prior of the quality loss ratio: the relative root-mean-square error of independent Gaussian weights.
    ///
    /// Trained weights are close to Gaussian within a block but have outliers, which cost formats with large blocks more
    /// than this says; what a model loses on its task is another matter again. The number orders formats; the weights'
    /// own error ([`quant_error`](crate::precision::quantise::quant_error)) replaces it where they are at hand. The
    /// table is computed by this crate's own encoders on 64 rows of 4096 values, which a test repeats. Row scales (`int8`,
    /// `int4`) lose a little more on longer rows. The ternary types are made for weights trained to three values and lose
    /// most of any others. `None` for formats that have no encoder here.
    #[must_use]
    pub const fn expected_loss(self) -> Option<f64> {
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
