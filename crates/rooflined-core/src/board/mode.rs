//! Power modes: named sets of caps, not power budgets. The wattage in a name is a label.

use serde::{Deserialize, Serialize};

use super::{ActiveMode, Reading};
use crate::units::Hertz;

/// The clocks and units that ceilings hold for. `None`: not known, or not limited by it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OperatingPoint {
    /// Name of the power mode.
    pub power_mode: Option<String>,
    /// Streaming multiprocessors (SMs) not gated.
    pub sm_online: Option<u32>,
    /// GPU clock under load.
    pub gpu_clock: Option<Hertz>,
    /// Memory clock under load.
    pub memory_clock: Option<Hertz>,
    /// CPU clock under load.
    pub cpu_clock: Option<Hertz>,
    /// Logical CPUs online.
    pub cores_online: Option<u32>,
}

/// How a mode is entered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "knob", rename_all = "snake_case")]
pub enum Knob {
    /// By the program `nvpmodel`.
    Nvpmodel,
    /// By locking the GPU's clock between two bounds through NVML; declared in the configuration.
    LockedClocks { min: Hertz, max: Hertz },
    /// By letting NVML's lock go: the mode without one.
    UnlockedClocks,
}

/// One value that nvpmodel writes when it enters a mode, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Parameter, such as `GPU`.
    pub param: String,
    /// Argument, such as `MAX_FREQ`.
    pub arg: String,
    /// The files that the argument stands for: that of older kernels first, then the one for newer (`…_KNEXT`).
    pub paths: Vec<String>,
    /// The value as written; clocks of -1 and 0 that mean "no cap" are kept as they stand.
    pub value: String,
}

/// One power mode: a set of caps. `None` where the mode sets none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PowerMode {
    /// Number; not an index, and it means another mode on every module.
    pub id: u32,
    /// Free text.
    pub name: String,
    /// CPUs that stay online.
    pub cores_online: Option<u32>,
    /// Highest of the CPU clusters' caps; `None` too where one that runs has no cap.
    pub cpu_max: Option<Hertz>,
    /// Cap on the GPU clock.
    pub gpu_max: Option<Hertz>,
    /// Cap on the memory clock.
    pub memory_max: Option<Hertz>,
    /// Mask of gated texture-processing clusters.
    pub tpc_mask: Option<u32>,
    /// SMs that the mask leaves.
    pub sm_online: Option<u32>,
    pub knob: Knob,
    /// Everything that nvpmodel writes.
    pub settings: Vec<Setting>,
}

impl PowerMode {
    /// What it is known by: tables have two modes of one number (MAXN and MAXN_SUPER), and two of one name.
    #[must_use]
    pub fn key(&self) -> ActiveMode {
        ActiveMode { id: self.id, name: self.name.clone() }
    }

    /// Whether it is the mode of that key.
    #[must_use]
    pub fn is(&self, key: &ActiveMode) -> bool {
        self.id == key.id && self.name == key.name
    }

    /// The point that this mode's ceilings hold for; what it leaves uncapped is `None`.
    #[must_use]
    pub fn operating_point(&self) -> OperatingPoint {
        OperatingPoint {
            power_mode: Some(self.name.clone()),
            sm_online: self.sm_online,
            gpu_clock: self.gpu_max,
            memory_clock: self.memory_max,
            cpu_clock: self.cpu_max,
            cores_online: self.cores_online,
        }
    }
}

/// Something in a file of modes that was not understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeWarning {
    /// Line, counted from 1; `None` for the file as a whole.
    pub line: Option<usize>,
    /// What was found and what became of it.
    pub message: String,
}

/// The power modes of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PowerModes {
    /// Number of the mode at boot where none was chosen; `None` where nothing says.
    pub default: Option<u32>,
    /// In the order of the file.
    pub modes: Vec<PowerMode>,
    /// What was not understood.
    pub warnings: Vec<ModeWarning>,
    /// The file, or `configuration`.
    pub source: String,
}

impl PowerModes {
    /// The mode of that number, the first in the file of several.
    #[must_use]
    pub fn by_id(&self, id: u32) -> Option<&PowerMode> {
        self.all_of(id).next()
    }

    /// Every mode of that number.
    pub fn all_of(&self, id: u32) -> impl Iterator<Item = &PowerMode> {
        self.modes.iter().filter(move |mode| mode.id == id)
    }

    /// The mode of that key.
    #[must_use]
    pub fn get(&self, key: &ActiveMode) -> Option<&PowerMode> {
        self.modes.iter().find(|mode| mode.is(key))
    }

    /// The mode of that name, upper and lower case alike; failing that, of that number if only one has it.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&PowerMode> {
        let named = |mode: &&PowerMode| mode.name.eq_ignore_ascii_case(name.trim());
        // An exact name wins over one that differs in case.
        let exact = self.modes.iter().find(|mode| mode.name == name.trim());
        let by_id = || {
            let mut all = self.all_of(name.trim().parse().ok()?);
            all.next().filter(|_| all.next().is_none())
        };
        exact.or_else(|| self.modes.iter().find(named)).or_else(by_id)
    }
}

impl super::Board {
    /// The mode of that name or number; `None` on a machine without modes.
    #[must_use]
    pub fn mode(&self, name: &str) -> Option<&PowerMode> {
        self.modes.known().and_then(|modes| modes.find(name))
    }

    /// Every mode; empty on a machine without.
    #[must_use]
    pub fn power_modes(&self) -> &[PowerMode] {
        match &self.modes {
            Reading::Known(modes) => &modes.modes,
            Reading::Absent { .. } | Reading::Failed { .. } => &[],
        }
    }
}
