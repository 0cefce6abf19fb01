//! The snapshot of everything known at one instant, and the optimizer that decides on it.

pub mod optimize;
pub mod snapshot;
