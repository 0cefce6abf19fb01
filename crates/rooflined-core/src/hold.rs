//! What a holder needs of the power mode.

use serde::{Deserialize, Serialize};

use crate::units::{BytesPerSecond, FlopsPerSecond, Hertz, Watts};

/// Every field that is given must be met; a hold without any, and without a query, is refused.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HoldConstraints {
    /// Exactly this mode, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// A mode with no less compute and no less memory bandwidth than this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_mode: Option<String>,
    /// Most power: no load takes more in the mode, at the pessimistic end of what is known. The watts in its name are a label
    /// and count for nothing.
    #[serde(rename = "max_power_w", skip_serializing_if = "Option::is_none")]
    pub max_power: Option<Watts>,
    #[serde(rename = "min_gpu_hz", skip_serializing_if = "Option::is_none")]
    pub min_gpu_clock: Option<Hertz>,
    #[serde(rename = "min_bandwidth_bytes_per_s", skip_serializing_if = "Option::is_none")]
    pub min_bandwidth: Option<BytesPerSecond>,
    /// Least fp16 peak (fp32 where the accelerator has no fp16 unit).
    #[serde(rename = "min_compute_flops_per_s", skip_serializing_if = "Option::is_none")]
    pub min_compute: Option<FlopsPerSecond>,
}
