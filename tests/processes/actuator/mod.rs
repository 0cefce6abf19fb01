//! `rooflined actuate`, the privileged helper, against boards in directories and an nvpmodel that misbehaves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
pub mod boards;
pub mod harness;
mod killed;
mod switching;
