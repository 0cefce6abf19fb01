//! What NVIDIA's DLA takes of a network.
//!
//! A DLA computes in fp16 and int8 through TensorRT; layers that it does not take fall back to the GPU, and tensors that
//! cross are copied into the other unit's layout. Rules: NVIDIA, "DLA Supported Layers and Restrictions"
//! (<https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/dla-layer-restrictions.html>).

use super::operator::{Kind, Operator};
use super::{Network, Node, TensorId};

/// The last TensorRT that builds for a DLA; JetPack's TensorRT 11 does not.
pub const LAST_TENSORRT: &str = "10.7";
/// Loadables that a core holds at once.
pub const MAX_LOADABLES: usize = 16;
/// Largest batch.
const MAX_BATCH: u64 = 4096;
/// Largest size of any other dimension.
const MAX_SIZE: u64 = 8192;

/// A condition beyond the sizes that all layers share.
#[derive(Debug, Clone, Copy)]
enum Condition {
    ConstantWeights,
    /// Windows up to this size in both dimensions.
    Window(u64),
    /// Steps up to this size in both dimensions.
    Stride(u64),
    /// One group, without gaps.
    Plain,
    /// Along the channels.
    Channels,
}

/// What is taken, and on which conditions.
const TAKEN: [(&[Operator], &[Condition]); 5] = [
    (&[Operator::Conv], &[Condition::ConstantWeights, Condition::Window(32), Condition::Stride(8)]),
    (&[Operator::ConvTranspose], &[Condition::ConstantWeights, Condition::Window(32), Condition::Plain]),
    (&[Operator::MatMul, Operator::Gemm], &[Condition::ConstantWeights]),
    (&[Operator::MaxPool, Operator::AveragePool], &[Condition::Window(8), Condition::Stride(16)]),
    (&[Operator::Concat], &[Condition::Channels]),
];
/// What is taken on four dimensions without further conditions.
const SIMPLE: [Operator; 21] = [
    Operator::Relu,
    Operator::LeakyRelu,
    Operator::PRelu,
    Operator::Sigmoid,
    Operator::Tanh,
    Operator::Clip,
    Operator::Add,
    Operator::Sub,
    Operator::Mul,
    Operator::Max,
    Operator::Min,
    Operator::Resize,
    Operator::Slice,
    Operator::Split,
    Operator::Softmax,
    Operator::LRN,
    Operator::BatchNormalization,
    Operator::Reshape,
    Operator::Flatten,
    Operator::Transpose,
    Operator::Upsample,
];

/// Where a node runs when the engine is built for a DLA with fallback to the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Dla,
    /// With what keeps it off the DLA.
    Gpu(&'static str),
    /// With its neighbours: no layer of its own.
    Free,
}

/// How a network is split between a DLA and the GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// For each node.
    pub places: Vec<Place>,
    /// Runs of layers on the DLA in execution order. More than [`MAX_LOADABLES`] do not fit a core.
    pub loadables: usize,
    /// Tensors that one unit writes and the other reads: each is copied into the other's layout.
    pub crossings: usize,
}

/// Splits a network between a DLA and the GPU.
#[must_use]
pub fn split(network: &Network) -> Split {
    let places: Vec<_> = network.nodes.iter().map(|node| place(network, node)).collect();
    let layers = places.iter().filter(|place| **place != Place::Free);
    let mut is_before = false;
    let mut loadables = 0;
    for place in layers {
        let is_dla = *place == Place::Dla;
        loadables += usize::from(is_dla && !is_before);
        is_before = is_dla;
    }
    let is_dla = |node: &super::NodeId| match places[node.0] {
        Place::Free => None,
        place => Some(place == Place::Dla),
    };
    let crosses = |tensor: &&super::Tensor| {
        let writer = tensor.producer.as_ref().and_then(is_dla);
        writer.is_some_and(|writer| tensor.consumers.iter().filter_map(is_dla).any(|reader| reader != writer))
    };
    let crossings = network.tensors.iter().filter(crosses).count();
    Split { places, loadables, crossings }
}

fn place(network: &Network, node: &Node) -> Place {
    if node.operator.kind() == Kind::Quantization
        || matches!(node.operator, Operator::Identity | Operator::Dropout)
    {
        return Place::Free;
    }
    let is_simple = SIMPLE.contains(&node.operator);
    let conditions = match TAKEN.iter().find(|(operators, _)| operators.contains(&node.operator)) {
        Some((_, conditions)) => *conditions,
        None if is_simple => &[],
        None => return Place::Gpu("the DLA has no such layer"),
    };
    let of_matrices =
        matches!(node.operator, Operator::MatMul | Operator::Gemm | Operator::Flatten | Operator::Reshape);
    let data = node.reads().filter(|id| !network[*id].constant).chain(node.outputs.iter().copied());
    for TensorId(id) in data {
        let Some(dims) = &network.tensors[id].dims else {
            return Place::Gpu("its shape is known only at run time");
        };
        let is_picture = dims.len() == 4 || of_matrices && dims.len() == 2;
        if !is_picture {
            return Place::Gpu("its tensors do not have four dimensions");
        }
        if dims[0] > MAX_BATCH || dims[1..].iter().any(|size| *size > MAX_SIZE) {
            return Place::Gpu("a dimension is too large");
        }
    }
    let unmet = conditions.iter().find_map(|condition| unmet(network, node, *condition));
    unmet.map_or(Place::Dla, Place::Gpu)
}

/// What a node lacks of a condition.
fn unmet(network: &Network, node: &Node, condition: Condition) -> Option<&'static str> {
    let convolution = node.convolution.as_ref();
    let (kernel, stride) = match (convolution, &node.window) {
        (Some(sizes), _) => (sizes.kernel.as_slice(), sizes.stride.as_slice()),
        (None, Some(window)) => (window.kernel.as_slice(), window.stride.as_slice()),
        (None, None) => (&[][..], &[][..]),
    };
    let (is_met, otherwise) = match condition {
        Condition::ConstantWeights => {
            let weights = node.inputs.get(1).copied().flatten();
            (weights.is_some_and(|id| network[id].constant), "both operands are computed")
        }
        Condition::Window(most) => {
            (kernel.len() == 2 && kernel.iter().all(|size| *size <= most), "its window is too large")
        }
        Condition::Stride(most) => (stride.iter().all(|step| *step <= most), "its stride is too large"),
        Condition::Plain => {
            let is_plain = convolution
                .is_some_and(|sizes| sizes.groups == 1 && sizes.dilation.iter().all(|gap| *gap == 1));
            (is_plain, "it has groups or gaps")
        }
        Condition::Channels => (node.axis == Some(1), "it is not along the channels"),
    };
    (!is_met).then_some(otherwise)
}
