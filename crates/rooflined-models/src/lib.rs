//! Models: architectures, the cost of their passes, and the importers of model files.

pub mod allocation;
pub mod architecture;
pub mod block;
pub mod class;
mod compute_buffer;
pub mod definition;
pub mod drafting;
pub mod foreign;
pub mod import;
pub mod model;
pub mod network;
pub mod recipe;
pub mod registry;
pub mod routing;
pub mod support;
pub mod transformer;
