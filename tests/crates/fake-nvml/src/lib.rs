//! A mock of the GPU management library, NVML.
//!
//! Loaded in place of `libnvidia-ml.so.1`, it reports the GPU of a [`scenario`], and shows the load that the fake
//! driver of any process of the same scenario puts on it.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

// Compiled in, because with the crate itself this library would export the driver's functions as well.
#[path = "../../fake-cuda/src/activity.rs"]
pub mod activity;
mod exports;
#[path = "../../fake-cuda/src/scenario.rs"]
pub mod scenario;
