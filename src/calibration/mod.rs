//! Calibration: what to measure ([`Plan`]), what was measured ([`Sample`]), and what it says about the machine.

mod record;
mod sample;

pub use record::{CalibrationRecord, MachineKey, RECORD_SCHEMA, Regime, Rejection};
pub use sample::{
    Clock, Gate, GemvCase, Kernel, OperatingPoint, Plan, PlanKind, ProbeEvent, Reference, Sample, Step,
    Stores, Stream,
};
