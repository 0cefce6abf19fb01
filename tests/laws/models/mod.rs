//! Models from files: what headers say, how hostile ones are refused, and what the command line makes of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

mod checkpoint;
mod commands;
mod config;
mod gguf;
mod hostile;
mod learning;
mod mutants;
mod paths;
mod random;
mod wire;
mod write;
