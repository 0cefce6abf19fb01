//! What can be measured, and in which formats.

use serde::{Deserialize, Serialize};

use rooflined_core::precision::{Precision, WeightFormat};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    #[default]
    Cpu,
    /// An NVIDIA GPU: its workers are SMs, its last-level cache is the second level.
    Gpu,
}

impl Accelerator {
    /// Precisions whose peak is looked for; the probe skips those that the unit lacks.
    pub(super) const fn peaks(self) -> &'static [Precision] {
        match self {
            Self::Cpu => &[Precision::Fp32, Precision::Bf16, Precision::Fp16, Precision::Int8],
            Self::Gpu => &[
                Precision::Fp32,
                Precision::Tf32,
                Precision::Fp16,
                Precision::Bf16,
                Precision::Int8,
                Precision::Fp8,
                Precision::Fp4,
                Precision::Int4,
            ],
        }
    }

    /// The name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
        }
    }

    /// Formats that there are kernels for.
    #[must_use]
    pub const fn formats(self) -> &'static [WeightFormat] {
        match self {
            Self::Cpu => &MEASURED_FORMATS,
            Self::Gpu => &GPU_FORMATS,
        }
    }
}

/// Formats that this crate has kernels for.
pub const MEASURED_FORMATS: [WeightFormat; 9] = [
    WeightFormat::Fp32,
    WeightFormat::Bf16,
    WeightFormat::Fp16,
    WeightFormat::Int8,
    WeightFormat::Int4,
    WeightFormat::Int4G32,
    WeightFormat::Int4G128,
    WeightFormat::Q8_0,
    WeightFormat::Q4_0,
];

/// Formats measured on a GPU.
const GPU_FORMATS: [WeightFormat; 12] = [
    WeightFormat::Fp32,
    WeightFormat::Fp16,
    WeightFormat::Bf16,
    WeightFormat::Int8,
    WeightFormat::Int4G128,
    WeightFormat::Q4_0,
    WeightFormat::Q4KM,
    WeightFormat::Q6K,
    WeightFormat::Q8_0,
    WeightFormat::Fp8E4m3,
    WeightFormat::Nvfp4,
    WeightFormat::Mxfp4,
];
