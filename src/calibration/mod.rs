//! Calibration: what to measure ([`Plan`]), what was measured ([`Sample`]), and what it says about the machine.

mod sample;

pub use sample::{
    Clock, Gate, GemvCase, Kernel, OperatingPoint, Plan, ProbeEvent, Reference, Sample, Step, Stores, Stream,
};
