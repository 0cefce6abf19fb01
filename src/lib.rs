//! Performance advice on the device itself.
//!
//! The upper half of the crate is pure: no clock, file, environment, thread, log or task. Adapters read boards, run
//! kernels and speak sockets. `tests/architecture.rs` holds the import table that keeps them apart.

pub mod actuator;
pub mod answer;
pub mod api;
pub mod bench;
pub mod board;
pub mod calibration;
pub mod cli;
pub mod client;
pub mod config;
pub mod daemon;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod governor;
pub mod hardware;
pub mod hw;
pub mod learning;
pub mod modelfile;
pub mod optimize;
pub mod precision;
pub mod predict;
pub mod roofline;
pub mod server;
pub mod snapshot;
pub mod store;
pub mod units;
pub mod workload;
