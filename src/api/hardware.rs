//! The registry of hardware on the wire; the command line prints the same without a daemon.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::CeilingAnswer;
use crate::board::OperatingPoint;
use crate::hardware::{Hardware, Kind, NominalMode};
use crate::precision::Precision;
use crate::roofline::{Roofline, datasheet};
use crate::units::{BytesPerSecond, FlopsPerSecond, Hertz};

/// `GET /v1/hardware`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HardwareListAnswer {
    /// Every entry in the order of its key.
    pub hardware: Vec<HardwareSummary>,
}

/// One entry in short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HardwareSummary {
    /// Key.
    pub key: String,
    /// Name.
    pub name: String,
    /// `integrated`, `discrete` or `cpu`.
    pub kind: String,
    /// Streaming multiprocessors; `null` for a CPU.
    pub sm: Option<u32>,
    /// Reference clock of the GPU.
    pub gpu_clock_hz: Option<f64>,
    /// Nominal memory bandwidth.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Dense peak by precision at the reference clock.
    pub compute_flops_per_s: BTreeMap<String, f64>,
    /// Memory.
    pub memory_bytes: Option<f64>,
    /// Names of the vendor's power modes, the default first.
    pub modes: Vec<String>,
}

/// `GET /v1/hardware/{key}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HardwareAnswer {
    /// Key.
    pub key: String,
    /// Name.
    pub name: String,
    /// Other keys that it is found by.
    pub aliases: Vec<String>,
    /// `integrated`, `discrete` or `cpu`.
    pub kind: String,
    /// CUDA compute capability, such as `8.7`.
    pub compute_capability: Option<String>,
    /// Streaming multiprocessors; `null` for a CPU.
    pub sm: Option<u32>,
    /// Streaming multiprocessors of one texture-processing cluster.
    pub sm_per_tpc: Option<u32>,
    /// Bits of the mask that gates clusters; `null` where there is none.
    pub tpc_mask_bits: Option<u32>,
    /// Reference clock of the GPU.
    pub gpu_clock_hz: Option<f64>,
    /// Dense operations per multiprocessor and clock, by precision.
    pub flops_per_sm_clock: BTreeMap<String, f64>,
    /// Width of the memory interface.
    pub bus_bits: Option<u32>,
    /// Highest memory clock; `null` for a part whose bandwidth is given as such.
    pub memory_clock_hz: Option<f64>,
    /// Nominal memory bandwidth.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// What a multiprocessor pulls from memory per clock; `null` where nobody knows.
    pub sm_pull_bytes_per_clock: Option<super::EstimateAnswer>,
    /// Second-level cache.
    pub l2_bytes: Option<f64>,
    /// Memory.
    pub memory_bytes: Option<f64>,
    /// Power limit.
    pub tdp_w: Option<f64>,
    /// Ceilings at the reference clocks; `null` for a CPU, which has to be measured.
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

/// A power mode as the vendor ships it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NominalModeAnswer {
    /// Number; two configurations of one board may use the same.
    pub id: u32,
    /// Name.
    pub name: String,
    /// CPUs online.
    pub cores_online: u32,
    /// CPU clock; `null` where it has not been published.
    pub cpu_hz: Option<f64>,
    /// GPU clock.
    pub gpu_hz: f64,
    /// Memory clock.
    pub emc_hz: f64,
    /// Streaming multiprocessors online.
    pub sm_online: u32,
    /// Its ceilings.
    pub ceilings: NominalCeilings,
}

/// Ceilings from the data sheet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NominalCeilings {
    /// Memory bandwidth: the smaller of the next two.
    pub bandwidth_bytes_per_s: CeilingAnswer,
    /// What the memory gives.
    pub memory_limit_bytes_per_s: Option<CeilingAnswer>,
    /// What the multiprocessors pull; `null` where nobody knows.
    pub pull_limit_bytes_per_s: Option<CeilingAnswer>,
    /// Dense peak by precision.
    pub compute_flops_per_s: BTreeMap<String, CeilingAnswer>,
    /// Ridge point by precision.
    pub ridge_flops_per_byte: BTreeMap<String, f64>,
}

/// Nothing of a quantity means that the machine has no such part: unknown on the wire, never 0.
fn given(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

const fn kind_key(kind: Kind) -> &'static str {
    match kind {
        Kind::Integrated => "integrated",
        Kind::Discrete => "discrete",
        Kind::Cpu => "cpu",
    }
}

fn by_key<T>(values: impl IntoIterator<Item = (Precision, T)>) -> BTreeMap<String, T> {
    values.into_iter().map(|(precision, value)| (precision.key().to_owned(), value)).collect()
}

impl HardwareSummary {
    /// In short.
    #[must_use]
    pub fn new(hardware: &Hardware) -> Self {
        let peak = |rate: &f64| rate * f64::from(hardware.sm) * hardware.gpu_clock.get();
        Self {
            key: hardware.key.clone(),
            name: hardware.name.clone(),
            kind: kind_key(hardware.kind).to_owned(),
            sm: Some(hardware.sm).filter(|sm| *sm > 0),
            gpu_clock_hz: given(hardware.gpu_clock.get()),
            bandwidth_bytes_per_s: given(hardware.bandwidth.get()),
            compute_flops_per_s: by_key(hardware.rates.iter().map(|(name, rate)| (*name, peak(rate)))),
            memory_bytes: hardware.memory.map(crate::units::Bytes::get),
            modes: hardware.modes.iter().map(|mode| mode.name.clone()).collect(),
        }
    }
}

impl NominalCeilings {
    fn new(roofline: &Roofline) -> Self {
        let bandwidth = |ceiling: crate::roofline::Ceiling<BytesPerSecond>| {
            CeilingAnswer::new(ceiling.map(BytesPerSecond::get), None)
        };
        let ridge = |precision: &Precision| Some((*precision, roofline.ridge(*precision)?.get()));
        Self {
            bandwidth_bytes_per_s: bandwidth(roofline.bandwidth),
            memory_limit_bytes_per_s: roofline.memory_limit.map(bandwidth),
            pull_limit_bytes_per_s: roofline.pull_limit.map(bandwidth),
            compute_flops_per_s: by_key(roofline.compute.iter().map(|(precision, ceiling)| {
                (*precision, CeilingAnswer::new(ceiling.map(FlopsPerSecond::get), None))
            })),
            ridge_flops_per_byte: by_key(roofline.compute.keys().filter_map(ridge)),
        }
    }
}

impl NominalModeAnswer {
    fn new(hardware: &Hardware, mode: &NominalMode) -> Self {
        Self {
            id: mode.id,
            name: mode.name.clone(),
            cores_online: mode.cores_online,
            cpu_hz: mode.cpu_clock.map(Hertz::get),
            gpu_hz: mode.gpu_clock.get(),
            emc_hz: mode.memory_clock.get(),
            sm_online: mode.sm_online,
            ceilings: NominalCeilings::new(&datasheet(hardware, &mode.operating_point())),
        }
    }
}

impl HardwareAnswer {
    /// Everything.
    #[must_use]
    pub fn new(hardware: &Hardware) -> Self {
        let gpu = hardware.kind != Kind::Cpu;
        Self {
            key: hardware.key.clone(),
            name: hardware.name.clone(),
            aliases: hardware.aliases.clone(),
            kind: kind_key(hardware.kind).to_owned(),
            compute_capability: hardware.compute_capability.map(|(major, minor)| format!("{major}.{minor}")),
            sm: Some(hardware.sm).filter(|sm| *sm > 0),
            sm_per_tpc: gpu.then_some(hardware.sm_per_tpc),
            tpc_mask_bits: hardware.tpc_mask_bits,
            gpu_clock_hz: given(hardware.gpu_clock.get()),
            flops_per_sm_clock: by_key(hardware.rates.iter().map(|(precision, rate)| (*precision, *rate))),
            bus_bits: Some(hardware.bus_bits).filter(|bits| *bits > 0),
            memory_clock_hz: hardware.memory_clock.map(Hertz::get),
            bandwidth_bytes_per_s: given(hardware.bandwidth.get()),
            sm_pull_bytes_per_clock: hardware.sm_pull.map(|pull| super::EstimateAnswer {
                value: pull.bytes_per_clock,
                low: pull.low,
                high: pull.high,
            }),
            l2_bytes: hardware.l2.map(crate::units::Bytes::get),
            memory_bytes: hardware.memory.map(crate::units::Bytes::get),
            tdp_w: hardware.tdp.map(crate::units::Watts::get),
            ceilings: gpu.then(|| NominalCeilings::new(&datasheet(hardware, &OperatingPoint::default()))),
            modes: hardware.modes.iter().map(|mode| NominalModeAnswer::new(hardware, mode)).collect(),
            marketing: hardware.marketing.clone(),
            sources: hardware.sources.clone(),
            notes: hardware.notes.clone(),
        }
    }
}
