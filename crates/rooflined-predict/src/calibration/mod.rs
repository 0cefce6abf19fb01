//! Calibration: what to measure ([`Plan`]), what was measured ([`Sample`]), and what it says about the machine
//! ([`fit()`]).

mod accelerator;
mod fit;
mod plan;
mod power;
mod record;
mod sample;
mod vet;

pub use accelerator::{Accelerator, MEASURED_FORMATS};
pub use fit::{FitContext, FitError, GpuContext, fit};
pub use plan::{PlanContext, calibration_plan, measurable, measurement_plan, power_holds};
pub use power::{LoadKind, METERING_PERIOD, Metered, PowerPoint, PowerReading, attribute};
pub use record::{CalibrationRecord, MachineKey, PowerUnderLoad, RECORD_SCHEMA, Regime};
pub use rooflined_core::names::PlanKind;
pub use sample::{
    Clock, Conditions, DriverFacts, Gate, GemvCase, Held, Hold, Kernel, OtherWork, Plan, ProbeEvent,
    Reference, Sample, Step, Stores, Stream,
};
pub use vet::{
    Rejection, centre, depends_on_bandwidth, disturbed, least_disturbed, median, quantile, regime_key, vet,
};
