//! The registry of hardware on the wire; the command line prints the same without a daemon.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CeilingAnswer, EstimateAnswer};

/// `GET /v1/hardware`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct HardwareListAnswer {
    /// Every entry in the order of its key.
    pub hardware: Vec<HardwareSummary>,
}

/// One entry in short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct HardwareSummary {
    /// Key that requests name it by.
    pub key: String,
    /// Name for people.
    pub name: String,
    /// `integrated`, `discrete` or `cpu`.
    #[cfg_attr(test, schema(value_type = crate::schema::HardwareKind))]
    pub kind: String,
    /// Number of streaming multiprocessors (SM); `null` for a CPU.
    pub sm: Option<u32>,
    /// Reference clock of the GPU.
    pub gpu_clock_hz: Option<f64>,
    /// Physical cores of a CPU that an engine's threads use; `null` for a GPU.
    pub cores: Option<u32>,
    /// Clock of these cores when all of them compute; `null` for a GPU.
    pub cpu_clock_hz: Option<f64>,
    /// Nominal memory bandwidth of the data sheet.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Dense peak by precision at the reference clock.
    pub compute_flops_per_s: BTreeMap<String, f64>,
    /// Size of the memory.
    pub memory_bytes: Option<f64>,
    /// Names of the vendor's power modes, the default first.
    pub modes: Vec<String>,
}

/// `GET /v1/hardware/{key}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct HardwareAnswer {
    /// Key that requests name it by.
    pub key: String,
    /// Name for people.
    pub name: String,
    /// Other keys that it is found by.
    pub aliases: Vec<String>,
    /// `integrated`, `discrete` or `cpu`.
    #[cfg_attr(test, schema(value_type = crate::schema::HardwareKind))]
    pub kind: String,
    /// CUDA compute capability, such as `8.7`.
    pub compute_capability: Option<String>,
    /// Number of streaming multiprocessors (SM); `null` for a CPU.
    pub sm: Option<u32>,
    /// SMs of one texture-processing cluster (TPC).
    pub sm_per_tpc: Option<u32>,
    /// Bits of the mask that gates clusters; `null` without such a mask.
    pub tpc_mask_bits: Option<u32>,
    /// Reference clock of the GPU.
    pub gpu_clock_hz: Option<f64>,
    /// Dense operations per SM and clock, by precision.
    pub flops_per_sm_clock: BTreeMap<String, f64>,
    /// Width of the memory interface.
    pub bus_bits: Option<u32>,
    /// Highest memory clock; `null` for a part whose bandwidth is given as such.
    pub memory_clock_hz: Option<f64>,
    /// Nominal memory bandwidth of the data sheet.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Bytes that an SM can request from memory per clock; `null` where it is unknown.
    pub sm_pull_bytes_per_clock: Option<EstimateAnswer>,
    /// Size of the second-level cache.
    pub l2_bytes: Option<f64>,
    /// Size of the memory.
    pub memory_bytes: Option<f64>,
    /// Power limit of the part as sold.
    pub tdp_w: Option<f64>,
    /// Least power limit that its driver sets; `null` where nobody published it.
    pub min_power_limit_w: Option<f64>,
    /// The CPU, where it is the accelerator and its data sheet is known.
    pub cpu: Option<CpuPartsAnswer>,
    /// Ceilings at the reference clocks; `null` for a CPU that has to be measured.
    pub ceilings: Option<NominalCeilings>,
    /// The vendor's power modes, the default first.
    pub modes: Vec<NominalModeAnswer>,
    /// What advertisements say: sparse, or of several engines together. Never used.
    pub marketing: BTreeMap<String, f64>,
    /// Where each figure comes from.
    pub sources: BTreeMap<String, String>,
    /// Figures that circulate and are wrong, and what contradicts them.
    pub notes: Vec<String>,
}

/// A CPU by its data sheet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct CpuPartsAnswer {
    /// Physical cores that an engine's threads use: of two kinds, the fast ones.
    pub cores: u32,
    /// Logical CPUs.
    pub threads: u32,
    /// Highest clock of these cores when all of them compute.
    pub clock_hz: f64,
    /// Single-precision operations of a core and clock; a multiply-add is two.
    pub fp32_per_clock: f64,
    /// Size of the last-level cache.
    pub cache_bytes: Option<f64>,
    /// Instruction-set flags that decide which kernels run.
    pub features: Vec<String>,
}

/// A power mode as the vendor ships it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NominalModeAnswer {
    /// Number; two configurations of one board may use the same.
    pub id: u32,
    /// Name for people.
    pub name: String,
    /// Number of CPU cores online.
    pub cores_online: u32,
    /// CPU clock; `null` where it has not been published.
    pub cpu_hz: Option<f64>,
    /// Highest GPU clock in the mode.
    pub gpu_hz: f64,
    /// Clock of the external memory controller (EMC).
    pub emc_hz: f64,
    /// Number of streaming multiprocessors (SM) online.
    pub sm_online: u32,
    /// Ceilings of the data sheet at these clocks.
    pub ceilings: NominalCeilings,
}

/// Ceilings from the data sheet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NominalCeilings {
    /// Memory bandwidth: the smaller of the next two.
    pub bandwidth_bytes_per_s: CeilingAnswer,
    /// Bandwidth of the memory alone.
    pub memory_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Bandwidth that the online SMs can request; `null` where it is unknown.
    pub pull_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Dense peak by precision: FLOP/s, of integer precisions OP/s.
    pub compute_flops_per_s: BTreeMap<String, CeilingAnswer>,
    /// Ridge point by precision: peak over read bandwidth.
    pub ridge_flops_per_byte: BTreeMap<String, f64>,
}
