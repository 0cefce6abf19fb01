//! Memory of activations: the most that lives at once, not the sum.

use super::operator::Kind;
use super::{Network, TensorId};

impl Network {
    /// The most bytes that tensors between nodes take at once when the nodes run in order, inputs and outputs included and
    /// weights left out. A view shares the bytes of what it looks at. Floats have `float_bits` bits each where that is
    /// given, as in an engine of another precision, and otherwise as many as in the file. `None` where a size is unknown.
    #[must_use]
    pub fn activation_peak(&self, float_bits: Option<u64>) -> Option<u64> {
        // What a view looks at, by its tensor.
        let mut source: Vec<usize> = (0..self.tensors.len()).collect();
        for node in &self.nodes {
            let is_view = matches!(node.operator.kind(), Kind::View | Kind::Quantization);
            if let (true, Some(TensorId(read)), Some(TensorId(wrote))) =
                (is_view, node.reads().next(), node.outputs.first())
            {
                source[*wrote] = source[read];
            }
        }
        let end = self.nodes.len();
        let mut last = vec![0; self.tensors.len()];
        for (id, tensor) in self.tensors.iter().enumerate() {
            let read = tensor.consumers.iter().map(|node| node.0).max();
            let until = read.or(tensor.producer.map(|node| node.0)).unwrap_or(0);
            last[source[id]] = last[source[id]].max(until);
        }
        for TensorId(id) in &self.outputs {
            last[source[*id]] = end;
        }
        let mut changes = vec![0_i128; end + 2];
        for (id, tensor) in self.tensors.iter().enumerate() {
            if tensor.constant || source[id] != id {
                continue;
            }
            let bits = match float_bits {
                Some(bits) if tensor.element.is_float() => bits,
                _ => tensor.quantised.unwrap_or(tensor.element).bits()?,
            };
            let bytes = i128::from(tensor.elements()?.checked_mul(bits)?.div_ceil(8));
            changes[tensor.producer.map_or(0, |node| node.0)] += bytes;
            changes[last[id] + 1] -= bytes;
        }
        let mut live = 0;
        let peak = changes.iter().map(|change| {
            live += change;
            live
        });
        peak.max().and_then(|peak| u64::try_from(peak).ok())
    }
}
