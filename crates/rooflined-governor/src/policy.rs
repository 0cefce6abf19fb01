//! The part of the configuration that decides.

use rooflined_core::names::InstructionSet;
use rooflined_core::units::{Bytes, Seconds};
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::snapshot::Automatic;

/// The part of the configuration that the governor decides by.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Sampling period while somebody looks.
    pub sampling_period: Seconds,
    /// Sampling period while nobody does.
    pub idle_period: Seconds,
    /// Calibrate without being asked when there is no record or it is stale.
    pub automatic: bool,
    /// A record older than this is stale.
    pub max_age: Seconds,
    /// Vector instructions that are measured; a record of others is stale.
    pub instruction_set: InstructionSet,
    /// Time limit of a calibration in seconds.
    pub time_limit_s: u32,
    /// Memory limit of a probe.
    pub memory_limit_bytes: u64,
    /// No unasked calibration above this busy ratio of the CPUs.
    pub max_load_ratio: f64,
    /// No unasked calibration above this temperature.
    pub max_temperature_c: f64,
    /// No unasked calibration with less memory available than this.
    pub min_free_memory: Bytes,
    /// Wait this long after a failure.
    pub back_off: Seconds,
    /// What predictions are for; `None` = the GPU of a board that shares its memory with it, else the CPU.
    pub accelerator: Option<Accelerator>,
    /// The board is described by a tree that is not this machine's: its GPU is not here to be measured.
    pub elsewhere: bool,
    /// Requests that change something are allowed.
    pub control_enabled: bool,
    /// Names of the modes that may be entered; `None` = every one.
    pub allowed_modes: Option<Vec<String>>,
    /// A mode entered for a hold stays for at least this long.
    pub dwell: Seconds,
    /// What is done about the queries of holds.
    pub auto: Automatic,
    /// A mode that meets every hold is left only for one that saves more than this part of the energy.
    pub hysteresis_ratio: f64,
}
