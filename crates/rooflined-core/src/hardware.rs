//! The registry of hardware: what data sheets say, each figure with its source, dense and sparse apart.
//!
//! The entries are the files of `config/hardware`, built into the program; a user's own accelerator is a file of the
//! same shape. Peak rates are stored per SM and clock, so that a power mode, which gates SMs
//! and caps clocks, has ceilings without anybody having written them down.

mod cpu_parts;
mod fitted;
mod parse;
mod parts;
mod plausible;
mod registry;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::board::{Knob, PowerMode};
use crate::keyed;
use crate::precision::Precision;
use crate::units::{Bytes, BytesPerSecond, Hertz, Watts};

pub use cpu_parts::CpuParts;
pub use parts::{GpuInstance, GpuParts, MIG, UNLISTED_GPU};
pub use registry::{Registry, declare, known, registry};

keyed! {
    /// What kind of machine an entry describes.
    Kind {
        /// CPU and GPU share one memory (Jetson, GB10).
        Integrated = "integrated",
        /// A card with its own memory.
        Discrete = "discrete",
        /// No GPU: the CPU is the accelerator. Without a description of it, its ceilings have to be measured.
        Cpu = "cpu",
    }
}

/// Memory bandwidth that the SMs together can draw: `bytes_per_clock` for each, at their clock.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
// A file is read without what is missing from it, which its check reports together with every other mistake.
#[serde(default, deny_unknown_fields)]
pub struct SmPull {
    /// Bytes per SM and GPU clock.
    pub bytes_per_clock: f64,
    /// 90 % interval.
    pub low: f64,
    /// 90 % interval.
    pub high: f64,
}

/// A power mode as the vendor ships it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NominalMode {
    pub id: u32,
    pub name: String,
    /// CPUs online.
    pub cores_online: u32,
    /// CPU clock; the hardware's own limit where the mode sets no cap.
    #[serde(rename = "cpu_clock_hz")]
    pub cpu_clock: Option<Hertz>,
    /// GPU clock, likewise.
    #[serde(rename = "gpu_clock_hz")]
    pub gpu_clock: Hertz,
    /// Memory clock, likewise.
    #[serde(rename = "memory_clock_hz")]
    pub memory_clock: Hertz,
    /// SMs not gated.
    pub sm_online: u32,
}

impl NominalMode {
    /// The same as a board reads it from its nvpmodel file, without the settings that file would write.
    #[must_use]
    pub fn power_mode(&self) -> PowerMode {
        PowerMode {
            id: self.id,
            name: self.name.clone(),
            cores_online: Some(self.cores_online),
            cpu_max: self.cpu_clock,
            gpu_max: Some(self.gpu_clock),
            memory_max: Some(self.memory_clock),
            tpc_mask: None,
            sm_online: Some(self.sm_online),
            knob: Knob::Nvpmodel,
            settings: Vec::new(),
        }
    }
}

/// One entry of the registry. Rates are dense; marketing's sparse figures are kept apart and never used.
#[derive(Debug, Clone, PartialEq)]
pub struct Hardware {
    /// Stable key, such as `jetson-agx-orin-64gb`.
    pub key: String,
    /// For people.
    pub name: String,
    /// Other keys that it is found by.
    pub aliases: Vec<String>,
    pub kind: Kind,
    /// CUDA compute capability, major and minor; `None` for a CPU.
    pub compute_capability: Option<(u32, u32)>,
    /// SMs of the part as sold; 0 for a CPU, which has none.
    pub sm: u32,
    /// SMs of one texture-processing cluster.
    pub sm_per_tpc: u32,
    /// Texture-processing clusters that the gating mask of the chip counts, those fused off included; `None` where
    /// there is no mask.
    pub tpc_mask_bits: Option<u32>,
    /// Deep-learning accelerators beside the GPU; 0 where there is none.
    pub dla_cores: u32,
    /// Reference clock of the GPU: the highest of a Jetson, the boost clock of a card. Zero for a CPU.
    pub gpu_clock: Hertz,
    /// Dense operations (multiply and add are two) per SM and clock; a precision that is not listed has no unit.
    pub rates: BTreeMap<Precision, f64>,
    /// Width of the memory interface; 0 where it is not known.
    pub bus_bits: u32,
    /// Highest memory clock; bandwidth is bus_bits / 8 x 2 x this. `None` for a part whose bandwidth is given as such.
    pub memory_clock: Option<Hertz>,
    /// Nominal bandwidth at the highest memory clock. Zero for a CPU that nothing describes.
    pub bandwidth: BytesPerSecond,
    /// Limit on the bandwidth that the SMs draw; `None` where nothing is known of it.
    pub sm_pull: Option<SmPull>,
    /// Second-level cache of the GPU.
    pub l2: Option<Bytes>,
    pub memory: Option<Bytes>,
    /// Power limit.
    pub tdp: Option<Watts>,
    /// The CPU where it is the accelerator and its data sheet is known.
    pub cpu: Option<CpuParts>,
    /// The least that its driver sets; `None` where nobody published it.
    pub min_power_limit: Option<Watts>,
    /// Modes as the vendor ships them, the default first.
    pub modes: Vec<NominalMode>,
    /// Figures of advertisements: sparse, or of several engines together. Shown beside the dense ones, never used.
    pub marketing: BTreeMap<String, f64>,
    /// Where each figure comes from, by field.
    pub sources: BTreeMap<String, String>,
    /// Figures that circulate and are wrong, and what contradicts them.
    pub notes: Vec<String>,
}

impl Hardware {
    /// Whether its data sheet says enough for ceilings; a CPU without one has to be measured.
    #[must_use]
    pub const fn is_described(&self) -> bool {
        !matches!(self.kind, Kind::Cpu) || self.cpu.is_some()
    }

    /// The mode of that name, upper and lower case and a leading `MODE_` alike; failing that, of that number if only
    /// one has it; failing that, the only one whose name begins so: `MAXN` is `MAXN_SUPER` where that is the one there is.
    #[must_use]
    pub fn mode(&self, name: &str) -> Option<&NominalMode> {
        let name = name.trim();
        let bare = |name: &str| {
            let upper = name.to_ascii_uppercase();
            upper.strip_prefix("MODE_").map(str::to_owned).unwrap_or(upper)
        };
        let wanted = bare(name);
        let exact = self.modes.iter().find(|mode| mode.name == name);
        let named = || self.modes.iter().find(|mode| bare(&mode.name) == wanted);
        let numbered = || {
            let id: u32 = name.parse().ok()?;
            let mut all = self.modes.iter().filter(|mode| mode.id == id);
            all.next().filter(|_| all.next().is_none())
        };
        let begun = || {
            let mut begun =
                self.modes.iter().filter(|mode| !wanted.is_empty() && bare(&mode.name).starts_with(&wanted));
            let only = begun.next();
            only.filter(|_| begun.next().is_none())
        };
        exact.or_else(named).or_else(numbered).or_else(begun)
    }

    /// The fastest mode at no more than the part's own clock: most SM cycles, then the highest memory clock, then the most cores. What
    /// goes beyond that clock, as modes that JetPack calls super, has to be named. `None` where the part has no modes.
    #[must_use]
    pub fn top_mode(&self) -> Option<&NominalMode> {
        let cycles = |mode: &NominalMode| f64::from(mode.sm_online) * mode.gpu_clock.get();
        let is_own = |mode: &NominalMode| mode.gpu_clock <= self.gpu_clock;
        self.modes.iter().reduce(|best, mode| {
            let order = is_own(mode)
                .cmp(&is_own(best))
                .then(cycles(mode).total_cmp(&cycles(best)))
                .then(mode.memory_clock.get().total_cmp(&best.memory_clock.get()))
                .then(mode.cores_online.cmp(&best.cores_online));
            if order.is_gt() { mode } else { best }
        })
    }

    /// Bandwidth of the memory interface at a clock: two transfers a cycle over the width of the bus. The nominal
    /// bandwidth where the part has no clock of its memory to go by.
    #[must_use]
    pub fn memory_bandwidth(&self, clock: Option<Hertz>) -> BytesPerSecond {
        match self.memory_clock {
            Some(highest) => {
                let clock = clock.filter(|clock| clock.is_positive()).unwrap_or(highest);
                BytesPerSecond(f64::from(self.bus_bits) / 8.0 * 2.0 * clock.get())
            }
            None => self.bandwidth,
        }
    }
}
