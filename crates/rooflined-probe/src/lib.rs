//! Micro-benchmarks: what the machine under us can do, measured.
//!
//! `rooflined probe` is [`probe_main`]: one [`Plan`](rooflined_predict::calibration::Plan) in, one
//! [`ProbeEvent`](rooflined_predict::calibration::ProbeEvent) a line out. It is a process of its own because it occupies every
//! core, holds large buffers and may be killed at any time.
//!
//! Times of bandwidth and peak kernels exclude the start of the parallel region, times of GEMV, GEMM and the wake
//! benchmark include it: starting the workers is part of such an operation. [`Sample::overhead`] is what was
//! subtracted.
//!
//! [`Sample::overhead`]: rooflined_predict::calibration::Sample::overhead

#![expect(
    unsafe_code,
    reason = "SIMD intrinsics, raw buffers shared by pinned workers, memory maps, and the CUDA driver"
)]

mod arena;
mod clock;
mod cpu;
mod cuda;
mod gemm;
mod gemv;
mod heap;
mod isa;
mod known;
mod other_work;
mod peak;
mod pool;
mod probe;
mod runner;
mod stream;
mod verdict;
mod worker;
mod worker_supervisor;

pub use cpu::Cpu;
pub use cuda::Cuda;
pub use gemv::pack;
pub use heap::release_free_memory;
pub use probe::{Outcome, Probe};
pub use runner::{Substitute, drive, probe_main};
pub use verdict::verify_main;
pub use worker::worker_main;
