//! Vision networks on the wire: what an ONNX file holds.

use serde::{Deserialize, Serialize};

/// `rooflinectl models inspect` of an ONNX file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkAnswer {
    /// Name of the file, without its ending.
    pub name: String,
    /// The file.
    pub path: String,
    /// The program that wrote it; `null` where it does not say.
    pub writer: Option<String>,
    /// Version of the default operator set.
    pub opset: u64,
    /// What a caller hands over.
    pub inputs: Vec<NetworkTensor>,
    /// What a caller gets.
    pub outputs: Vec<NetworkTensor>,
    /// Trained numbers.
    pub parameters: u64,
    /// Bytes of the weights as stored.
    pub weight_bytes: u64,
    /// Most bytes of activations at once, in the file's types; `null` where a shape is unknown.
    pub activation_peak_bytes: Option<u64>,
    /// The same with floats of 16 bits.
    pub activation_peak_fp16_bytes: Option<u64>,
    /// Floating-point operations of one run: two for each multiply-add; `null` where a shape is unknown.
    pub flops: Option<u64>,
    /// Nodes that depend on constants alone, so that no engine runs them.
    pub folded_nodes: u64,
    /// Work by kind, in the order of the kinds; those without a node are left out.
    pub work: Vec<NetworkWork>,
    /// Operators by how often they run, most first.
    pub operators: Vec<NetworkOperator>,
    /// What a DLA would take.
    pub dla: NetworkDla,
    /// The nodes that run, in order.
    pub nodes: Vec<NetworkNode>,
    /// What to know before relying on the figures.
    pub warnings: Vec<String>,
}

/// A tensor by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkTensor {
    /// Unique in its network.
    pub name: String,
    /// `fp32`, `fp16`, `int64`, …
    pub element: String,
    /// Sizes from the outermost; `null` where only a run knows them.
    pub shape: Option<Vec<u64>>,
}

/// Work of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkWork {
    /// `convolution`, `product`, `elementwise`, …
    #[cfg_attr(test, schema(value_type = crate::schema::WorkKind))]
    pub kind: String,
    /// How many nodes.
    pub nodes: u64,
    /// Floating-point operations; `null` where a shape is unknown.
    pub flops: Option<u64>,
    /// Bytes of their weights.
    pub weight_bytes: u64,
}

/// How often an operator runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkOperator {
    /// As ONNX spells it.
    pub operator: String,
    /// How many nodes.
    pub nodes: u64,
}

/// How TensorRT splits a network between a DLA and the GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkDla {
    /// Nodes on the DLA.
    pub nodes: u64,
    /// Nodes that fall back to the GPU.
    pub fallback_nodes: u64,
    /// Runs of nodes on the DLA; a core holds 16.
    pub loadables: u64,
    /// Tensors that are copied between the two.
    pub crossings: u64,
    /// What falls back and why, most first.
    pub fallbacks: Vec<NetworkFallback>,
    /// Boards that have a DLA, by the beginning of their keys.
    pub boards: Vec<String>,
    /// The last TensorRT that builds for it.
    pub last_tensorrt: String,
}

/// Nodes that fall back to the GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkFallback {
    /// As ONNX spells it.
    pub operator: String,
    /// Why.
    pub reason: String,
    /// How many nodes.
    pub nodes: u64,
}

/// One operator at work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NetworkNode {
    /// As the file names it; may be empty.
    pub name: String,
    /// As ONNX spells it.
    pub operator: String,
    /// What it computes in; `null` for indices and masks.
    #[cfg_attr(test, schema(value_type = Option<crate::schema::Precision>))]
    pub precision: Option<String>,
    /// Floating-point operations; `null` where a shape is unknown.
    pub flops: Option<u64>,
    /// Bytes of its weights.
    pub weight_bytes: u64,
    /// What it writes.
    pub outputs: Vec<NetworkTensor>,
}
