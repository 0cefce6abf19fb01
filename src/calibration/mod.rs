//! Calibration: what to measure ([`Plan`]), what was measured ([`Sample`]), and what it says about the machine
//! ([`fit()`]).

mod fit;
mod forward;
mod plan;
mod power;
mod record;
mod sample;
mod vet;

pub use fit::{FitContext, FitError, GpuContext, fit};
pub use forward::{
    FORWARD_KV_CACHE, ForwardLayer, ForwardModel, MAX_FORWARD_BATCH, MAX_FORWARD_LAYERS, NotRunnable,
};
pub use plan::{Accelerator, MEASURED_FORMATS, PlanContext, calibration_plan, measurable, measurement_plan};
pub use power::{
    Doing, Held, Hold, METERING_PERIOD, Metered, PowerPoint, PowerReading, attribute, power_holds,
};
pub use record::{CalibrationRecord, MachineKey, PowerUnderLoad, RECORD_SCHEMA, Regime, Rejection};
pub use sample::{
    Clock, Conditions, Gate, GemvCase, Kernel, Plan, PlanKind, ProbeEvent, Reference, Sample, Step, Stores,
    Stream,
};
pub use vet::{centre, depends_on_bandwidth, disturbed, least_disturbed, median, quantile, regime_key, vet};
