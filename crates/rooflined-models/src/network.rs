//! Vision networks: what an ONNX file computes, node by node, with the shape of every tensor.
//!
//! A [`Network`] holds the nodes that run, in an order in which they can run. Whatever depends on constants alone is
//! folded: its result is a constant tensor, and its node is gone. Sizes that the file leaves open come from
//! [`Dimensions`].

use std::ops::Index;

use rooflined_core::precision::Precision;
use serde::{Deserialize, Serialize};

mod dimensions;
pub mod dla;
mod element;
mod error;
mod fact;
mod layout;
mod memory;
mod onnx;
mod operator;
mod read;
mod rules;
#[cfg(test)]
mod tests;
mod values;
mod window;
mod wire;
mod work;

pub use dimensions::Dimensions;
pub use element::ElementType;
pub use error::{NetworkError, Open};
pub use operator::{Kind, Operator};
pub use read::read;

/// Place of a tensor in [`Network::tensors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TensorId(pub usize);

/// Place of a node in [`Network::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub usize);

/// A network as an engine is given it.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// Name of the file, without its ending.
    pub name: String,
    /// The program that wrote the file, with its version; empty where the file does not say.
    pub writer: String,
    /// Version of the default operator set.
    pub opset: u64,
    /// What a caller hands over. Weights are not among them.
    pub inputs: Vec<TensorId>,
    /// Names of those of which the file leaves sizes open.
    pub open_inputs: Vec<String>,
    /// What a caller gets.
    pub outputs: Vec<TensorId>,
    pub tensors: Vec<Tensor>,
    /// The nodes that run, each after those whose results it reads.
    pub nodes: Vec<Node>,
    /// Nodes that depend on constants alone, so that no engine runs them.
    pub folded_nodes: usize,
    /// Trained numbers: elements of the initializers of floats, and of quantised ones without their scales and zero
    /// points, that nodes read. Shared ones count once.
    pub parameters: u64,
    /// Their bytes as the file stores them.
    pub weight_bytes: u64,
    /// Files with weights, by their paths from the directory of the network's own file. Who opened that one keeps those
    /// that are not there.
    pub missing: Vec<String>,
}

/// A tensor between nodes, an input or a constant.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Unique in its network.
    pub name: String,
    /// Sizes from the outermost; none for a scalar. `None` where they depend on values that only a run knows, as those of
    /// `NonZero` and `NonMaxSuppression` do.
    pub dims: Option<Vec<u64>>,
    pub element: ElementType,
    /// The 8- or 4-bit type that it was before `DequantizeLinear`: an engine computes in that type.
    pub quantised: Option<ElementType>,
    /// An initializer, or computed from constants alone.
    pub constant: bool,
    /// The node that writes it; `None` for inputs and constants.
    pub producer: Option<NodeId>,
    /// The nodes that read it, each once, in order.
    pub consumers: Vec<NodeId>,
}

impl Tensor {
    /// `None` where the sizes are unknown.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        self.dims.as_ref().map(|dims| dims.iter().product())
    }

    /// Bytes as stored: those of the quantised type where there is one. `None` where the sizes are unknown, and for strings.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let bits = self.quantised.unwrap_or(self.element).bits()?;
        Some(self.elements()?.checked_mul(bits)?.div_ceil(8))
    }
}

/// One operator at work.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// As the file names it; may be empty.
    pub name: String,
    pub operator: Operator,
    /// In the operator's order; `None` where an optional one is left out.
    pub inputs: Vec<Option<TensorId>>,
    /// Without those that nobody named.
    pub outputs: Vec<TensorId>,
    /// Of `Conv`, `ConvTranspose` and their quantised forms, where the shapes are known.
    pub convolution: Option<Convolution>,
    /// Of `MatMul`, `Gemm` and their quantised forms, where the shapes are known. `Einsum` and recurrent layers have none.
    pub product: Option<Product>,
    /// Of pooling.
    pub window: Option<Window>,
    /// The axis of the attribute `axis` or its default, counted from 0. `None` for operators without one.
    pub axis: Option<usize>,
    /// Twice the multiply-adds of convolutions and products, without biases. Elsewhere one for each element written, for
    /// each input element of a reduction, for each element of each window of pooling, and zero for what only moves data.
    /// `None` where a shape is unknown.
    pub flops: Option<u64>,
    /// Elements of its constant inputs that are [parameters](Network::parameters).
    pub weight_elements: u64,
    /// Their bytes as stored: one an element after quantisation to 8 bits.
    pub weight_bytes: u64,
    /// What it computes in: 8 bits where all operands of a convolution or product come from `DequantizeLinear`, otherwise
    /// the type of its first output. `None` for integers and truth values, which are indices and masks.
    pub precision: Option<Precision>,
}

impl Node {
    /// The inputs that there are.
    pub fn reads(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.inputs.iter().copied().flatten()
    }
}

/// Sizes of a convolution; spatial ones from the outermost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Convolution {
    /// Of the window: height and width for pictures.
    pub kernel: Vec<u64>,
    pub stride: Vec<u64>,
    pub dilation: Vec<u64>,
    /// As many as channels in a depthwise one.
    pub groups: u64,
    /// Channels read, of all groups together.
    pub cin: u64,
    /// Channels written, of all groups together.
    pub cout: u64,
}

/// Sizes of a matrix product: `batch` times `rows` x `inner` by `inner` x `columns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    pub batch: u64,
    pub rows: u64,
    pub inner: u64,
    pub columns: u64,
}

/// A window of pooling; sizes from the outermost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    pub kernel: Vec<u64>,
    pub stride: Vec<u64>,
}

impl Index<TensorId> for Network {
    type Output = Tensor;
    fn index(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0]
    }
}

impl Index<NodeId> for Network {
    type Output = Node;
    fn index(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }
}
