//! What a machine is: units, number formats, boards, hardware and ceilings.

pub mod board;
pub mod calendar;
pub mod ceilings;
pub mod configuration;
pub mod document;
pub mod hardware;
pub mod hold;
pub mod names;
pub mod near;
pub mod operation;
pub mod precision;
pub mod refusal;
pub mod units;
