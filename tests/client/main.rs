//! `rooflined-client` against the daemon of a simulated board, and against programs that answer badly.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

mod bad_company;
mod calls;
mod harness;
mod places;
#[path = "../support/programs.rs"]
mod programs;
mod streams;
