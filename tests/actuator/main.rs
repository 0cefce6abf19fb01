//! `rooflined actuate`, the role of root, against boards in directories and an nvpmodel that misbehaves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod access;
mod boards;
mod harness;
mod killed;
mod switching;
