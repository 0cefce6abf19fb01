//! Latency of a vision network: a sum over the kernels that an engine makes of it.
//!
//! [`fuse()`] groups the nodes of a file as engines do, [`NetworkCosts`] holds what a kernel costs on a generation of silicon, and
//! [`predict_network`] adds them up on a roofline:
//!
//! ```text
//! t = sum over kernels [ max( F / (P e), B / (b W) ) + launch ]      e = e_kind K/(K + K_half) N/(N + N_half), at most 1
//! ```
//!
//! F and N count channels padded to 8, K is the number of products summed up for one result and N that of channels written; P is the peak of the matrix
//! units, W the nominal bandwidth and B the bytes read and written once. The form and the constants are fitted to published
//! latencies; `config/networks/*.toml` has them with their errors.

mod around;
mod costs;
mod fuse;
mod layers;
mod prediction;

pub use around::{Surroundings, around};
pub use costs::{FILES, InvalidCosts, NetworkCosts};
pub use fuse::fuse;
pub use layers::{InvalidLayers, Layer, LayerKind, Layers};
pub use prediction::{
    LayerBound, LayerTime, NetworkError, NetworkPrediction, missing_weights, network_costs, predict_network,
    predict_network_by,
};
