//! `GET /v1/modes`.

use serde::{Deserialize, Serialize};

use super::CeilingsAnswer;

/// A power mode with what it would give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ModeDetail {
    /// Its number: not an index, and another mode on every module.
    pub id: u32,
    /// Its name: free text.
    pub name: String,
    /// The mode at boot where none was chosen.
    pub default: bool,
    /// The live files show this mode.
    pub active: bool,
    /// CPUs that stay online; `null` = the mode sets none.
    pub cores_online: Option<u32>,
    /// Lowest CPU clock that the governor may choose; `null` = the mode sets none.
    pub cpu_min_hz: Option<f64>,
    /// Highest CPU clock; `null` = no cap.
    pub cpu_max_hz: Option<f64>,
    /// Lowest GPU clock that the governor may choose; `null` = the mode sets none.
    pub gpu_min_hz: Option<f64>,
    /// Cap on the GPU clock; `null` = no cap.
    pub gpu_max_hz: Option<f64>,
    /// Cap on the memory clock; `null` = no cap.
    pub emc_max_hz: Option<f64>,
    /// Bounds on every other clock that the mode names, in the order of the file: DLA, PVA, video engines.
    pub other_clocks: Vec<ModeClock>,
    /// Gating mask of the texture-processing clusters; `null` = the mode sets none.
    pub tpc_mask: Option<u32>,
    /// SMs that the mask leaves online.
    pub sm_online: Option<u32>,
    /// Entering it from here needs a reboot; `null` where that is unknown.
    pub reboot_required: Option<bool>,
    /// It can be entered now, by those who may.
    pub reachable: bool,
    /// Why it cannot.
    pub unreachable_reason: Option<String>,
    /// What it would give; nothing was switched to find out.
    pub ceilings: CeilingsAnswer,
    /// What keeps its clocks below its caps on this board, such as older firmware, or that nothing tells whether they are
    /// reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_notes: Vec<String>,
    /// Mean power while it was calibrated; `null` where that was not measured.
    pub measured_power_w: Option<f64>,
    /// What the meter of that covers, as `scope` of a predicted power; `null` without it.
    #[serde(default)]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::PowerScope>))]
    pub measured_power_scope: Option<String>,
    /// The most that it draws: memory and cores flat out at once, at the upper end of the 90 % interval. What a hold's
    /// `max_power_w` is compared with; `null` where nothing is known of it, and such a mode meets no limit.
    pub worst_power_w: Option<f64>,
    /// What that covers: the module, or what comes nearest to it, as `scope` of a predicted power; `null` without it.
    #[serde(default)]
    #[cfg_attr(test, schema(value_type = Option<crate::schema::PowerScope>))]
    pub worst_power_scope: Option<String>,
    /// `measured` in this mode on this machine, `carried` from another of its modes, or `prior`: from boards that others
    /// measured; `null` with the watts. The watts in a mode's name count for nothing.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::WorstSource>))]
    pub worst_power_source: Option<String>,
}

/// Bounds that a mode sets on the clock of an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ModeClock {
    /// Parameter in the file of modes: `DLA0_CORE`, `PVA0_VPS`, …
    pub name: String,
    /// Lowest clock; `null` = the mode sets none.
    pub min_hz: Option<f64>,
    /// Cap; `null` = no cap.
    pub max_hz: Option<f64>,
}

/// Something in a file of modes that was not understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ModeWarning {
    /// Line, counted from 1; `null` for the file as a whole.
    pub line: Option<usize>,
    /// What was found and what became of it.
    pub message: String,
}

/// `GET /v1/modes`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ModesAnswer {
    /// Number of the default mode.
    pub default: Option<u32>,
    /// Name of the active mode by the live files; `null` where they match none.
    pub active: Option<String>,
    /// `boot`, `user`, `hold`, `revert` or `external`.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::ModeCause>))]
    pub active_cause: Option<String>,
    /// In the order of the file; empty on a machine without.
    pub modes: Vec<ModeDetail>,
    /// What was not understood of the file.
    pub warnings: Vec<ModeWarning>,
    /// Where the modes come from.
    pub source: Option<String>,
    /// Why the list is empty; `null` if it is not.
    pub reason: Option<String>,
    /// True where values come from a simulated board, not from hardware.
    pub simulated: bool,
    /// Serial number of the snapshot that the answer rests on.
    pub serial: u64,
}
