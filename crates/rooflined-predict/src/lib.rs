//! Time, power and energy of a workload on a roofline, what calibrations and observed runs teach of them, and the search for
//! the best candidate.
//!
//! - A single operation: [`predict`], with the ceilings of a roofline and the costs of an engine's kernels ([`EngineProfile`]).
//! - A whole model: [`model`], on GPUs by [`step`] with the fitted [`costs`] of an engine, on CPUs by [`cpu`], and by
//!   calibrated kernels where an engine has no costs.
//! - Both end in a [`Prediction`], which [`power`] adds watts and joules to and [`learning`] corrects by observed runs.
//! - [`calibration`] fits ceilings and kernels to measured samples, and [`snapshot`] holds all that is known of a machine.
//! - [`network`] predicts vision networks, as a sum over fused kernels.
//! - [`optimize`] predicts candidates and ranks them; [`tiling`] does so for the tiles of a matrix product.

pub mod calibration;
mod coefficients;
pub mod costs;
pub mod cpu;
pub mod device_order;
mod engine_profile;
mod estimate;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod gemm;
pub mod learning;
pub mod model;
pub mod network;
mod operation;
pub mod optimize;
mod peaks;
pub mod power;
mod prediction;
pub mod snapshot;
pub mod step;
mod surface;
pub mod tiling;

pub use engine_profile::{EngineProfile, FormatCost};
pub use estimate::{Estimate, Limit, Tier};
pub use gemm::{GemmCost, GemmPoint, Ratios};
pub use operation::{CALIBRATED_COLUMNS, OVERLAP_EXPONENT, predict};
pub use prediction::{PredictError, Prediction};
pub use rooflined_core::names::Engine;
pub use surface::Surface;
