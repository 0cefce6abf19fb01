//! Values invented for tests.

pub use rooflined_predict::fixtures::*;

use crate::Policy;
use rooflined_core::names::InstructionSet;
use rooflined_core::units::{Bytes, Seconds};
use rooflined_predict::snapshot::Automatic;

/// The shipped defaults, shortened where a test would wait.
pub fn policy() -> Policy {
    Policy {
        sampling_period: Seconds(1.0),
        idle_period: Seconds(30.0),
        automatic: true,
        max_age: Seconds(30.0 * 86_400.0),
        instruction_set: InstructionSet::Auto,
        time_limit_s: 10,
        memory_limit_bytes: 512 << 20,
        max_load_ratio: 0.5,
        max_temperature_c: 85.0,
        min_free_memory: Bytes(1e9),
        back_off: Seconds(600.0),
        accelerator: None,
        elsewhere: false,
        control_enabled: false,
        allowed_modes: None,
        dwell: Seconds(10.0),
        auto: Automatic::Off,
        hysteresis_ratio: 0.1,
    }
}
