//! Power and energy coefficients, and the loads they were learned from.

use serde::{Deserialize, Serialize};

/// Power and energy coefficients where the ceilings hold: energy = `static_w` x time + `byte_j` x bytes + `flop_j` x
/// operations + `weight_j` x weights that are dequantized.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct PowerCostsAnswer {
    /// Whose measurements the coefficients are: `measured` here, or `prior`: those of others on such a machine; `null`
    /// without any.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::PowerSource>))]
    pub power_source: Option<String>,
    /// What the meter covers: `vdd_cpu_gpu_cv`, `module`, `system`, `gpu` or `package`.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Rails>))]
    pub power_from: Option<String>,
    /// What stands while a kernel runs: the power of the idle machine and of its busy cores.
    pub static_w: Option<f64>,
    /// Energy of a byte to or from memory.
    pub byte_j: Option<f64>,
    /// Energy of an operation of `flop_precision`; `null` where nothing tells it apart.
    pub flop_j: Option<f64>,
    /// What operations are counted in.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Precision>))]
    pub flop_precision: Option<String>,
    /// Energy of dequantizing a weight.
    pub weight_j: Option<f64>,
    /// Half-width of the 90 % interval of power, relative.
    pub half_width_ratio: Option<f64>,
    /// Loads that were held here while the meter was read.
    pub points: Vec<PowerPointAnswer>,
    /// Why nothing was measured here; `null` if it was.
    pub reason: Option<String>,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// A load that was held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct PowerPointAnswer {
    /// `idle`, `bandwidth`, `compute` or `decode`.
    #[cfg_attr(test, schema(value_type = crate::schema::LoadKind))]
    pub load: String,
    /// Kernel that ran; `null` = nothing.
    pub kernel: Option<String>,
    /// Mean power; `null` with the reason.
    pub power_w: Option<f64>,
    /// Why there is no power; `null` if there is one.
    pub reason: Option<String>,
    /// Time that the readings stand for.
    pub duration_s: f64,
    /// Number of meter readings.
    pub readings: u32,
    /// Bytes a second to and from main memory.
    pub bytes_per_s: f64,
    /// Operations a second.
    pub flops_per_s: f64,
    /// What they were computed in; `null` at idle.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Precision>))]
    pub precision: Option<String>,
    /// Weights a second.
    pub weights_per_s: f64,
    /// What the meter covers, as `power_from` of the coefficients.
    #[cfg_attr(test, schema(value_type = crate::schema::Rails))]
    pub power_from: String,
    /// Names of the power rails that were added up.
    pub rails: Vec<String>,
    /// Hottest thermal zone; `null` where unknown.
    pub temperature_c: Option<f64>,
}
