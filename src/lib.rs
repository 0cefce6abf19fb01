//! Performance advice on the device itself.
//!
//! The upper half of the crate is pure: no clock, file, environment, thread, log or task. Adapters read boards, run
//! kernels and speak sockets. `tests/architecture.rs` holds the import table that keeps them apart.

pub mod bench;
pub mod calibration;
pub mod precision;
pub mod units;
