//! The shipped PTX on the interpreter, against references in double precision.
//!
//! Every output must be written once in every byte and nothing beside it, every input may only be read, and loads and stores
//! must be aligned and inside their buffers. Bytes and operations are counted and compared with what the kernels say.
//! Left out are `wgmma` and `tcgen05`, which the interpreter does not run.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a kernel that is wrong fails the test that ran it")]

#[path = "kernels/attention.rs"]
mod attention;
#[path = "kernels/coverage.rs"]
mod coverage;
#[path = "kernels/device.rs"]
mod device;
#[path = "kernels/formats.rs"]
mod formats;
#[path = "kernels/gemv.rs"]
mod gemv;
#[path = "kernels/mma.rs"]
mod mma;
#[path = "kernels/rate.rs"]
mod rate;
#[path = "kernels/simple.rs"]
mod simple;
