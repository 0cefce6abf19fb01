//! Boards as trees of files: captured ones beside this file, simulated ones, and what is read from single files of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

mod bundle;
mod captured;
mod garbage;
mod hidden;
mod machines;
mod metering;
mod metrics;
mod nvpmodel;
mod platforms;
#[path = "../support/programs.rs"]
mod programs;
mod sensors;
mod simulate;
mod tree;
mod watched;
