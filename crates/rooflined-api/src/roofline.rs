//! `GET /v1/roofline`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PowerCostsAnswer;

/// A ceiling of the roofline with its 90 % interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct CeilingAnswer {
    /// Best estimate, in the unit that the key of the ceiling names.
    pub value: f64,
    /// 5 % lies below.
    pub low: f64,
    /// 5 % lies above.
    pub high: f64,
    /// `measured`, `scaled`, `observed`, `datasheet` or `prior`.
    #[cfg_attr(test, schema(value_type = crate::schema::Provenance))]
    pub provenance: String,
    /// Age of the measurement; `null` where it was not measured.
    pub age_s: Option<f64>,
}

/// Bandwidth at one working-set size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct BandwidthPointAnswer {
    /// Working set over all workers.
    pub working_set_bytes: f64,
    /// Number of threads that read.
    pub threads: u32,
    /// Read bandwidth that was measured.
    pub read_bytes_per_s: f64,
}

/// A regime of the machine and its main ceilings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct RegimeAnswer {
    /// `near`, `far` or `single`.
    pub key: String,
    /// The active regime.
    pub active: bool,
    /// Core-to-core latency, one way.
    pub core_to_core_s: Option<f64>,
    /// Main-memory read bandwidth.
    pub bandwidth_bytes_per_s: f64,
    /// Time of the measurement, in seconds since 1970.
    pub measured_at_unix_s: f64,
}

/// `GET /v1/roofline`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct RooflineAnswer {
    /// Main-memory read bandwidth.
    pub bandwidth_bytes_per_s: CeilingAnswer,
    /// Main-memory copy, read and write counted.
    pub copy_bytes_per_s: Option<CeilingAnswer>,
    /// Main-memory triad, two reads and one write counted.
    pub triad_bytes_per_s: Option<CeilingAnswer>,
    /// Peak by precision: FLOP/s, of integer precisions OP/s.
    pub compute_flops_per_s: BTreeMap<String, CeilingAnswer>,
    /// What the memory alone gives, bus width x memory clock; `null` where that is not known.
    #[serde(default)]
    pub memory_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Bandwidth that the online SMs can request at their clock; `null` where that is not known.
    #[serde(default)]
    pub pull_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Cost of starting one operation.
    pub launch_s: CeilingAnswer,
    /// Ridge point by precision: peak over read bandwidth.
    pub ridge_flops_per_byte: BTreeMap<String, f64>,
    /// Read bandwidth against working set.
    pub bandwidth_curve: Vec<BandwidthPointAnswer>,
    /// Workers the ceilings hold for.
    pub workers: u32,
    /// Clock the ceilings hold for.
    pub clock_hz: Option<f64>,
    /// Power mode the ceilings hold for; `null` on a machine without.
    #[serde(default)]
    pub power_mode: Option<String>,
    /// Regimes of the machine that were measured so far.
    pub regimes: Vec<RegimeAnswer>,
    /// Newest reference read over the one calibrated in the same power mode: below 1 when neighbours take bandwidth; `null`
    /// where this mode was not calibrated, or nothing was read in it.
    pub drift_ratio: Option<f64>,
    /// Power and energy coefficients at this operating point.
    #[serde(default)]
    pub power: PowerCostsAnswer,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}

/// Ceilings at one operating point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct CeilingsAnswer {
    /// Main-memory read bandwidth: the smaller of the next two where it was not measured.
    pub bandwidth_bytes_per_s: CeilingAnswer,
    /// What the memory alone gives, bus width x memory clock; `null` where that is not known.
    pub memory_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Bandwidth that the online SMs can request at their clock; `null` where that is not known.
    pub pull_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Peak by precision: FLOP/s, of integer precisions OP/s.
    pub compute_flops_per_s: BTreeMap<String, CeilingAnswer>,
    /// Cost of starting one operation.
    pub launch_s: CeilingAnswer,
    /// Ridge point by precision: peak over read bandwidth.
    pub ridge_flops_per_byte: BTreeMap<String, f64>,
    /// Workers the ceilings hold for.
    pub workers: u32,
    /// Clock the ceilings hold for.
    pub clock_hz: Option<f64>,
}
