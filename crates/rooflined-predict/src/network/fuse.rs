//! From the nodes of a file to the kernels that an engine runs.
//!
//! The rules are those that profiles of TensorRT show for FP16: a convolution takes its bias, its activation and the addition of a
//! residual along, but no GELU; views are free, and so are splits and slices of channels, unless convolutions read their parts; a
//! concatenation copies each input that is not written by a convolution for it alone; chains of elementwise operators are one
//! kernel, as are a normalisation written in parts and the softmax behind a product of two activations. What engines without such
//! fusion run in addition is counted beside it.

use std::collections::BTreeMap;

use super::layers::{Layer, LayerKind, Layers};
use rooflined_models::network::{Kind, Network, Node, NodeId, Operator, TensorId};

/// Most undescribed operators that are named.
const MOST_NAMED: usize = 12;

/// Groups the nodes of `network` into the kernels of an engine.
#[must_use]
pub fn fuse(network: &Network) -> Layers {
    let mut fusion = Fusion { network, layers: Vec::new(), written: BTreeMap::new(), same: BTreeMap::new() };
    for node in &network.nodes {
        fusion.take(node);
    }
    let elements = |tensors: &[TensorId]| tensors.iter().map(|&tensor| fusion.elements(tensor)).sum();
    let first = network.inputs.first().and_then(|&input| network[input].dims.as_ref()?.first().copied());
    let inputs = network.inputs.iter().map(|&input| {
        let tensor = &network[input];
        (tensor.name.clone(), tensor.dims.clone().unwrap_or_default())
    });
    Layers {
        name: network.name.clone(),
        batch: first.unwrap_or(1).max(1),
        inputs: inputs.collect(),
        input_elements: elements(&network.inputs),
        output_elements: elements(&network.outputs),
        parameters: count(network.parameters),
        // Two bytes each.
        live_elements: network.activation_peak(Some(16)).map(|bytes| count(bytes) / 2.0),
        unknown_nodes: network.nodes.iter().filter(|node| fusion.is_unknown(node)).count() as u64,
        undescribed: undescribed(network),
        open_inputs: network.open_inputs.clone(),
        missing: network.missing.clone(),
        layers: fusion.layers.into_iter().map(|kernel| kernel.layer).collect(),
    }
}

/// Operators that no rule describes, and layers with weights whose sizes only a run knows, each once.
fn undescribed(network: &Network) -> Vec<String> {
    let others = network.nodes.iter().filter_map(|node| match (&node.operator, node.operator.kind()) {
        (Operator::Other(name), _) => Some(name.chars().take(64).collect()),
        (operator, Kind::Convolution | Kind::Product) if node.flops.is_none() && node.weight_elements > 0 => {
            Some(operator.name().to_owned())
        }
        _ => None,
    });
    let mut names: Vec<String> = others.collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(MOST_NAMED);
    names
}

#[expect(clippy::cast_precision_loss, reason = "counts of elements need no last digit")]
const fn count(count: u64) -> f64 {
    count as f64
}

/// A kernel while nodes join it.
struct Kernel {
    layer: Layer,
    /// Largest tensor that it handles: parts of a normalisation join up to it.
    extent: f64,
    /// The tensor that its last node writes.
    last: TensorId,
    /// Whether it is nothing but a transposition so far.
    transposes: bool,
}

struct Fusion<'a> {
    network: &'a Network,
    layers: Vec<Kernel>,
    /// The kernel that writes a tensor.
    written: BTreeMap<TensorId, usize>,
    /// A tensor that is another one under another shape.
    same: BTreeMap<TensorId, TensorId>,
}

impl Fusion<'_> {
    fn elements(&self, tensor: TensorId) -> f64 {
        self.network[tensor].elements().map_or(0.0, count)
    }

    /// The tensor whose bytes `tensor` is.
    fn root(&self, mut tensor: TensorId) -> TensorId {
        while let Some(&of) = self.same.get(&tensor) {
            tensor = of;
        }
        tensor
    }

    /// The inputs that are computed, each once.
    fn activations(&self, node: &Node) -> Vec<TensorId> {
        let mut all: Vec<TensorId> = node.reads().filter(|&tensor| !self.network[tensor].constant).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn is_unknown(&self, node: &Node) -> bool {
        node.outputs.iter().any(|&output| self.network[output].dims.is_none())
    }

    fn take(&mut self, node: &Node) {
        let inputs = self.activations(node);
        let (Some(&input), Some(&output)) = (inputs.first(), node.outputs.first()) else { return };
        if self.is_free(node, input, output) {
            let (copied, free): (Vec<_>, Vec<_>) =
                node.outputs.iter().partition(|&&output| self.is_copied_part(node, output));
            if copied.is_empty() {
                self.add_copy(node, input);
            } else {
                self.copy(node, &copied);
            }
            for output in free {
                self.written.remove(&output);
                self.same.insert(output, input);
            }
            return;
        }
        match (node.operator.kind(), &node.operator) {
            (Kind::Convolution | Kind::Product, _) => self.multiply(node, &inputs),
            (Kind::Elementwise, _) | (_, Operator::BatchNormalization) => {
                self.elementwise(node, &inputs, output);
            }
            (Kind::Softmax | Kind::Normalization | Kind::Reduction, _) => {
                self.normalize(node, &inputs, output);
            }
            (_, Operator::Transpose) => self.transpose(node, &inputs, output),
            (_, Operator::Concat | Operator::QLinearConcat) => self.concatenate(node),
            (_, Operator::Slice) => self.push(node, LayerKind::Copy, &[output]),
            _ => self.push(node, LayerKind::Other, &inputs),
        }
    }

    /// Views, splits, and arithmetic on indices and masks.
    fn is_free(&self, node: &Node, input: TensorId, output: TensorId) -> bool {
        // Products of integers write integers, and are none.
        let computes = matches!(node.operator.kind(), Kind::Convolution | Kind::Product)
            || matches!(node.operator, Operator::TopK | Operator::NonMaxSuppression);
        let indices = self.network[output].element.precision().is_none() && !computes;
        let moves_nothing = match &node.operator {
            Operator::Slice => !self.takes_every_other(input, output),
            Operator::Split | Operator::Cast | Operator::CastLike | Operator::Shape | Operator::Size => true,
            operator => matches!(operator.kind(), Kind::View | Kind::Quantization),
        };
        indices || moves_nothing
    }

    /// Whether a part of a picture is copied for the convolutions that read it. A concatenation copies it anyway.
    fn is_copied_part(&self, node: &Node, part: TensorId) -> bool {
        let is_picture = self.network[part].dims.as_ref().is_some_and(|dims| dims.len() == 4);
        if !is_picture || !matches!(node.operator, Operator::Split | Operator::Slice) {
            return false;
        }
        let readers = self.readers(part);
        readers.iter().any(|reader| reader.kind() == Kind::Convolution)
            && !readers.contains(&Operator::Concat)
    }

    /// One kernel that writes `tensors` elsewhere.
    fn copy(&mut self, node: &Node, tensors: &[TensorId]) {
        self.push(node, LayerKind::Copy, tensors);
        if let Some(kernel) = self.layers.last_mut() {
            kernel.layer.writes = kernel.layer.reads;
            kernel.layer.weights = 0.0;
        }
    }

    /// Adds what cores copy where a GPU reads in place to the kernel that wrote the input: a transposition, a split, a slice.
    fn add_copy(&mut self, node: &Node, input: TensorId) {
        let at = self.written.get(&self.root(input)).copied();
        let Some(kernel) = at.and_then(|at| self.layers.get_mut(at)) else { return };
        let copied = node.outputs.iter().filter_map(|&output| self.network[output].elements()).map(count);
        kernel.layer.exponentials += core_work(&node.operator) * copied.sum::<f64>();
    }

    /// Whether a slice skips rows or columns of pictures: those are copied.
    fn takes_every_other(&self, input: TensorId, output: TensorId) -> bool {
        let (Some(from), Some(to)) = (&self.network[input].dims, &self.network[output].dims) else {
            return false;
        };
        from.len() == to.len()
            && from.len() == 4
            && from.iter().zip(to).skip(2).any(|(from, to)| from != to && *to > 0 && from % to == 0)
    }

    /// A kernel of its own.
    fn push(&mut self, node: &Node, kind: LayerKind, reads: &[TensorId]) {
        let Some(&last) = node.outputs.first() else { return };
        let sizes =
            |tensors: &[TensorId]| tensors.iter().map(|&tensor| self.elements(tensor)).collect::<Vec<_>>();
        let (reads, writes) = (sizes(reads), sizes(&node.outputs));
        let extent = reads.iter().chain(&writes).copied().fold(0.0, f64::max);
        let name = if node.name.is_empty() { node.operator.name() } else { &node.name };
        let layer = Layer {
            name: name.to_owned(),
            kind,
            flops: 0.0,
            reads: reads.iter().sum(),
            writes: writes.iter().sum(),
            weights: count(node.weight_elements),
            inner: 0.0,
            columns: 0.0,
            window: 0.0,
            exponentials: if kind == LayerKind::Copy { 0.0 } else { core_work(&node.operator) * extent },
            apart: 0.0,
            apart_kernels: 0.0,
            quantised: false,
        };
        self.layers.push(Kernel { layer, extent, last, transposes: false });
        for &output in &node.outputs {
            self.written.insert(output, self.layers.len() - 1);
        }
    }

    fn multiply(&mut self, node: &Node, inputs: &[TensorId]) {
        let (kind, window, inner, columns) = match (&node.convolution, &node.product) {
            (Some(of), _) => {
                let window = of.kernel.iter().map(|&size| count(size)).product::<f64>();
                let groups = count(of.groups.max(1));
                let kind = match of.groups {
                    groups if groups > 1 && groups == of.cin => LayerKind::Depthwise,
                    _ if window > 1.0 => LayerKind::Convolution,
                    _ => LayerKind::Pointwise,
                };
                (kind, window, count(of.cin) / groups * window, count(of.cout) / groups)
            }
            (None, Some(of)) => {
                let kind = if inputs.len() > 1 { LayerKind::Attention } else { LayerKind::Product };
                (kind, 1.0, count(of.inner), count(of.columns))
            }
            // Einsum and recurrent layers: as many products for each result as their operations say.
            (None, None) => {
                let written = node.outputs.first().map_or(0.0, |&output| self.elements(output)).max(1.0);
                let kind = if node.weight_elements > 0 { LayerKind::Product } else { LayerKind::Attention };
                let last =
                    node.outputs.first().and_then(|&output| self.network[output].dims.as_ref()?.last());
                (kind, 1.0, node.flops.map_or(0.0, count) / (2.0 * written), last.copied().map_or(1.0, count))
            }
        };
        self.push(node, kind, inputs);
        if let Some(kernel) = self.layers.last_mut() {
            let layer = &mut kernel.layer;
            (layer.window, layer.inner, layer.columns) = (window, inner, columns);
            layer.flops = if kind.multiplies() { node.flops.map_or(0.0, count) } else { 0.0 };
            layer.quantised = node.precision == Some(rooflined_core::precision::Precision::Int8);
        }
    }

    /// Joins the newest kernel among those that write its inputs, where that one writes as much.
    fn elementwise(&mut self, node: &Node, inputs: &[TensorId], output: TensorId) {
        let writer = |tensor: TensorId| self.written.get(&self.root(tensor)).copied();
        let size = self.elements(output);
        // Windows end with simpler functions: published latencies of networks with a GELU need a kernel for it.
        let is_gelu = matches!(node.operator, Operator::Erf | Operator::Gelu);
        let newest = inputs.iter().filter_map(|&input| writer(input)).max().filter(|&at| {
            let kernel = &self.layers[at];
            match kernel.layer.kind {
                kind if kind.multiplies() => kernel.layer.writes == size && !(is_gelu && kind.has_window()),
                LayerKind::Elementwise | LayerKind::Normalization => {
                    size <= kernel.extent && !kernel.transposes
                }
                _ => false,
            }
        });
        let Some(at) = newest else { return self.push(node, LayerKind::Elementwise, inputs) };
        let others = inputs.iter().filter(|&&input| writer(input) != Some(at));
        let read = others.map(|&input| self.elements(input)).sum::<f64>();
        let kernel = &mut self.layers[at];
        let layer = &mut kernel.layer;
        layer.reads += read;
        layer.weights += count(node.weight_elements);
        layer.exponentials += core_work(&node.operator) * size;
        if layer.kind.multiplies() {
            layer.apart += size;
            layer.apart_kernels = 1.0;
        } else {
            layer.writes = size;
        }
        kernel.last = output;
        self.written.insert(output, at);
    }

    fn normalize(&mut self, node: &Node, inputs: &[TensorId], output: TensorId) {
        let before = inputs.first().and_then(|&input| self.written.get(&self.root(input)).copied());
        let is_newest = before.is_some_and(|at| at + 1 == self.layers.len());
        let size = self.elements(output);
        let joins = before.filter(|&at| {
            let kernel = &self.layers[at];
            match (node.operator.kind(), kernel.layer.kind) {
                (Kind::Softmax, LayerKind::Attention) => true,
                (Kind::Reduction, LayerKind::Elementwise | LayerKind::Normalization) => {
                    is_newest && node.operator != Operator::TopK
                }
                _ => kernel.transposes,
            }
        });
        let Some(at) = joins else { return self.push(node, LayerKind::Normalization, inputs) };
        let kernel = &mut self.layers[at];
        let layer = &mut kernel.layer;
        layer.exponentials += core_work(&node.operator) * size;
        if layer.kind == LayerKind::Attention {
            layer.apart += size;
            layer.apart_kernels = 1.0;
        } else {
            layer.kind = LayerKind::Normalization;
            layer.writes = layer.writes.max(size);
        }
        kernel.transposes = false;
        kernel.last = output;
        self.written.insert(output, at);
    }

    /// Free where a product reads it, or where the kernel before it can write in that order.
    fn transpose(&mut self, node: &Node, inputs: &[TensorId], output: TensorId) {
        let Some(&input) = inputs.first() else { return };
        let readers = self.readers(output);
        let for_products = !readers.is_empty() && readers.iter().all(|reader| *reader == Operator::MatMul);
        let writes_so = self.written.get(&self.root(input)).is_some_and(|&at| {
            matches!(
                self.layers[at].layer.kind,
                LayerKind::Product | LayerKind::Attention | LayerKind::Normalization | LayerKind::Elementwise
            ) && !self.layers[at].transposes
        });
        if for_products || writes_so {
            self.add_copy(node, input);
            self.same.insert(output, input);
            return;
        }
        self.push(node, LayerKind::Copy, inputs);
        if let Some(kernel) = self.layers.last_mut() {
            kernel.transposes = true;
        }
    }

    /// Operators that read a tensor, under whatever shape.
    fn readers(&self, tensor: TensorId) -> Vec<Operator> {
        let mut all = Vec::new();
        let mut open = vec![tensor];
        while let Some(tensor) = open.pop() {
            for &NodeId(at) in &self.network[tensor].consumers {
                let node = &self.network.nodes[at];
                match node.operator.kind() {
                    Kind::View => open.extend(&node.outputs),
                    _ if node.operator == Operator::Split => open.extend(&node.outputs),
                    _ => all.push(node.operator.clone()),
                }
            }
        }
        all
    }

    /// A copy for every input that no convolution or product writes for it alone.
    fn concatenate(&mut self, node: &Node) {
        let every: Vec<TensorId> = node.reads().filter(|&tensor| !self.network[tensor].constant).collect();
        for input in every {
            let root = self.root(input);
            let is_read_once = |tensor: TensorId| {
                self.network[tensor].consumers.len() == 1 && !self.network.outputs.contains(&tensor)
            };
            let written_in_place = self.written.get(&root).is_some_and(|&at| {
                let kernel = &self.layers[at];
                kernel.layer.kind.multiplies()
                    && kernel.last == root
                    && is_read_once(root)
                    && is_read_once(input)
                    && self.elements(root) == self.elements(input)
            });
            if !written_in_place {
                self.copy(node, &[input]);
            }
        }
        // What comes after it reads a tensor that no single kernel wrote.
        for output in &node.outputs {
            self.written.remove(output);
        }
    }
}

/// How long a core takes for an element of what an operator writes, over what it takes for a sigmoid; 0 where the traffic alone
/// counts. From profiles of ONNX Runtime 1.32 with Swin and ViT on one core with AVX-512: 0.25 ns a sigmoid, 0.9 ns a GELU, 1.2 to 2.7 ns
/// an element of a softmax over short rows, 0.7 ns of a transposition.
const fn core_work(operator: &Operator) -> f64 {
    match operator {
        Operator::Sigmoid
        | Operator::Tanh
        | Operator::Exp
        | Operator::HardSigmoid
        | Operator::HardSwish
        | Operator::Mish
        | Operator::Swish
        | Operator::Softplus
        | Operator::Elu
        | Operator::QLinearSigmoid => 1.0,
        Operator::Erf | Operator::Gelu | Operator::FastGelu | Operator::QuickGelu => 3.0,
        Operator::Softmax | Operator::LogSoftmax => 7.0,
        Operator::Transpose => 2.5,
        Operator::Split | Operator::Slice => 1.5,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests;
