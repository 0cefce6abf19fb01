//! The registry of hardware: what data sheets say, each figure with its source, dense and sparse apart.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::precision::Precision;
use crate::units::{Bytes, BytesPerSecond, Hertz, Watts};

/// What kind of machine an entry describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// CPU and GPU share one memory (Jetson, GB10).
    Integrated,
    /// A card with its own memory.
    Discrete,
    /// No GPU: the CPU is the accelerator, and its ceilings have to be measured.
    Cpu,
}

/// What the streaming multiprocessors together can pull from memory: `bytes_per_clock` for each, at their clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SmPull {
    /// Bytes per SM and GPU clock.
    pub bytes_per_clock: f64,
    /// 90 % interval.
    pub low: f64,
    /// 90 % interval.
    pub high: f64,
}

/// A power mode as the vendor ships it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NominalMode {
    /// Number.
    pub id: u32,
    /// Name.
    pub name: String,
    /// CPUs online.
    pub cores_online: u32,
    /// CPU clock; the hardware's own limit where the mode sets no cap.
    pub cpu_clock: Option<Hertz>,
    /// GPU clock, likewise.
    pub gpu_clock: Hertz,
    /// Memory clock, likewise.
    pub memory_clock: Hertz,
    /// Streaming multiprocessors not gated.
    pub sm_online: u32,
}

/// One entry of the registry. Rates are dense; marketing's sparse figures are kept apart and never used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hardware {
    /// Stable key, such as `jetson-agx-orin-64gb`.
    pub key: String,
    /// For people.
    pub name: String,
    /// What kind.
    pub kind: Kind,
    /// CUDA compute capability, major and minor; `None` for a CPU.
    pub compute_capability: Option<(u32, u32)>,
    /// Streaming multiprocessors of the part as sold.
    pub sm: u32,
    /// Streaming multiprocessors of one texture-processing cluster.
    pub sm_per_tpc: u32,
    /// Texture-processing clusters that the gating mask of the chip counts, those fused off included; `None` where
    /// there is no mask.
    pub tpc_mask_bits: Option<u32>,
    /// Reference clock of the GPU: the highest of a Jetson, the boost clock of a card.
    pub gpu_clock: Hertz,
    /// Dense operations (multiply and add are two) per SM and clock; a precision that is not listed has no unit.
    pub rates: BTreeMap<Precision, f64>,
    /// Width of the memory interface.
    pub bus_bits: u32,
    /// Highest memory clock; bandwidth is bus_bits / 8 x 2 x this. `None` for a part whose bandwidth is given as such.
    pub memory_clock: Option<Hertz>,
    /// Nominal bandwidth at the highest memory clock.
    pub bandwidth: BytesPerSecond,
    /// Limit on what the multiprocessors pull; `None` where nothing is known of it.
    pub sm_pull: Option<SmPull>,
    /// Second-level cache of the GPU.
    pub l2: Option<Bytes>,
    /// Memory.
    pub memory: Option<Bytes>,
    /// Power limit.
    pub tdp: Option<Watts>,
    /// Modes as the vendor ships them, the default first.
    pub modes: Vec<NominalMode>,
    /// Where each figure comes from, by field.
    pub sources: BTreeMap<String, String>,
    /// Figures that circulate and are wrong, and what contradicts them.
    pub notes: Vec<String>,
}
