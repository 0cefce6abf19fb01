//! Micro-benchmarks: what the machine under us can do, measured.
//!
//! `rooflined probe` is [`probe_main`]: one [`Plan`](predict::calibration::Plan) in, one
//! [`ProbeEvent`](predict::calibration::ProbeEvent) a line out. It is a process of its own because it occupies every
//! core, holds large buffers and may be killed at any time.
//!
//! Times of bandwidth and peak kernels exclude the start of the parallel region, times of GEMV, GEMM and the wake
//! benchmark include it: starting the workers is part of such an operation. [`Sample::overhead`] is what was
//! subtracted.
//!
//! [`Sample::overhead`]: predict::calibration::Sample::overhead

#![expect(
    unsafe_code,
    reason = "SIMD intrinsics, raw buffers shared by pinned workers, memory maps, and the CUDA driver"
)]

mod arena;
mod beside;
mod clock;
mod cpu;
mod cuda;
mod elementwise;
mod gemm;
mod gemv;
mod heap;
mod isa;
mod keeper;
mod known;
mod peak;
mod pool;
mod probe;
mod runner;
mod stream;
mod verdict;
mod worker;

pub use cpu::Cpu;
pub use cuda::Cuda;
pub use gemv::pack;
pub use heap::release_free_memory;
pub use probe::{Outcome, Probe};
pub use runner::{Substitute, drive, probe_main};
pub use verdict::verify_main;
pub use worker::worker_main;
