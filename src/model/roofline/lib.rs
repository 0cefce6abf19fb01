//! What a machine and a workload are: units, number formats, boards, hardware, ceilings, operations and models.

pub mod board;
pub mod ceilings;
pub mod hardware;
pub mod names;
pub mod near;
pub mod precision;
pub mod refusal;
pub mod support;
pub mod units;
pub mod workload;
