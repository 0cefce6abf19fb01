//! The real daemon as a process: how it starts, what it refuses, what it survives and how it ends.
//!
//! Nothing here asserts a time: deadlines are for hangs alone.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../support/bus.rs"]
#[allow(dead_code, reason = "other tests also freeze it")]
mod bus;

#[path = "../../support/fuse.rs"]
mod fuse;

#[path = "../../boards/tree.rs"]
#[allow(dead_code, reason = "other tests also put single files into one")]
mod tree;

mod activation;
mod configuration;
mod containers;
mod dashboard;
mod fanout;
mod files;
mod gpu;
pub mod harness;
mod holds;
mod idle;
mod lifecycle;
mod memory;
mod place;
mod power;
mod probe;
mod report;
mod reporters;
mod restarts;
mod sensors;
mod servers;
mod sharing;
pub mod small_model;
mod soak;
mod state;
