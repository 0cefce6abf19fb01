//! Runs PTX on the CPU, thread for thread.
//!
//! [`Module::parse`] reads the text and decodes it once; [`launch()`] runs an entry, block after block, warp by warp,
//! 32 lanes together. It is there to prove kernels where there is no GPU, so it is strict where hardware is
//! lenient: each access must be aligned and inside its allocation, no register may be read before it is written, lanes
//! that act together must have come together, and two threads may pass a byte of shared memory on only across a barrier
//! of their block or of their warp.
//!
//! Its arithmetic is that of the PTX ISA, with these liberties: `ex2`, `lg2`, `rsqrt`, `sin` and `cos` with `.approx`
//! are exact to the last bit or two, where hardware is allowed a wider error, and the sums inside an `mma` are
//! rounded once.
//!
//! `wgmma` and `tcgen05` are executed through their descriptors, swizzles and tensor memory, and are as asynchronous as
//! the ISA lets them be: what they write may not be used, nor what they read be changed, before the kernel has waited for
//! them in a way that the ISA promises something about; and they see what was written to shared memory only past a proxy
//! fence.

mod access;
mod barrier;
mod collective;
mod convert;
mod decode;
mod decode_tensor;
mod descriptor;
mod fault;
mod float;
mod integer;
mod lanes;
mod launch;
mod lex;
mod memory;
mod mma;
mod module;
mod operation;
mod parse;
mod real;
mod shared;
mod special;
mod tcgen05;
mod tensor;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_tiles;
mod warp;
mod warpgroup;

pub use fault::{Fault, FaultLocation};
pub use launch::launch;
pub use memory::{Arena, Memory};
pub use module::{Counts, Entry, Launch, Module, ParseError};
pub use parse::Param;
