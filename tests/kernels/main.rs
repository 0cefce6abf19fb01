//! The shipped PTX on the interpreter, against references in double precision.
//!
//! Every output must be written once in every byte and nothing beside it, every input may only be read, and loads and stores
//! must be aligned and inside their buffers. Bytes and operations are counted and compared with what the kernels say.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a kernel that is wrong fails the test that ran it")]

mod coverage;
mod device;
mod faults;
mod formats;
mod gemv;
mod gpu;
mod mma;
mod mutants;
#[path = "../support/programs.rs"]
mod programs;
mod rate;
mod simple;
mod tiles;
mod worlds;
