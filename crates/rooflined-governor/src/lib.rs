//! All mutable state of the daemon, and every decision about it. Time, readings and requests come in as values;
//! what is to be done goes out as [`Effect`]s.
//!
//! | module | holds |
//! |---|---|
//! | `governor` | the state, `Governor::handle`, sampling, publication |
//! | `event`, `effects`, `reply`, `policy` | what goes in and out, and the configuration |
//! | `control` | power modes and holds |
//! | `job`, `calibrate`, `measure`, `metering` | runs of the probe |
//! | `learn` | reports of services |
//! | `modes`, `prior`, `device`, `machine` | what is known of the machine before and between calibrations |

mod calibrate;
mod control;
mod device;
mod effects;
mod event;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod governor;
mod job;
mod learn;
mod machine;
mod measure;
mod metering;
mod modes;
mod policy;
mod prior;
mod reply;
mod servers;

pub use self::control::{StoredHold, StoredHolds};
pub use self::effects::{AuditEvent, AuditRecord, Effect, Severity, StoreItem};
pub use self::event::{Client, Command, ControlRequest, Event, Ticket};
pub use self::governor::Governor;
pub use self::policy::Policy;
pub use self::reply::{Measured, MeasuredPower, MeasuredSet, RefusedObservation, Reply};
pub use self::servers::{ServerReport, SlowServers};
pub use rooflined_predict::learning::Observed;
pub use rooflined_predict::snapshot::Now;
