//! A mock of the CUDA driver library.
//!
//! The cdylib is loaded in place of `libcuda.so.1`: it simulates the GPU of a [`Scenario`], runs the kernels that it is
//! given on an interpreter of PTX, and has them take the time that the scenario's rates allow. The rlib is for tests:
//! it describes scenarios and puts them, and the libraries, where a program finds them.
//!
//! ```no_run
//! let dir = std::path::Path::new("/tmp/gpu");
//! let mut gpu = fake_cuda::Scenario::toy();
//! gpu.fail.push(fake_cuda::Fail::always("cuMemAlloc_v2", 2));
//! std::process::Command::new("rooflined").envs(fake_cuda::install(dir, &gpu));
//! ```
//!
//! With a [`Host`] calls cost the CPU time, the device runs beside it, and it has what real drivers have besides: first
//! launches that are cold, clocks that follow the load, other processes, and copies and fills that are not done when the
//! call returns.
//!
//! What it does not do: kernels run one after another, whatever their streams, blocks too, and shared memory and
//! registers limit nothing. Without a host streams run one after another and copies are done when the call returns.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod activity;
mod attributes;
mod cache;
mod device;
mod driver;
mod errors;
mod exports;
mod host;
mod install;
mod memory;
pub mod scenario;
mod timeline;

pub use install::{Env, install, library};
pub use scenario::{
    Clock, Cold, Compute, Corrupt, Dip, Fail, Fault, FaultKind, Governor, GovernorKind, Hang, Host, Memory,
    Nvml, Overhead, Power, Scenario, Tenant, Throttle, When,
};
