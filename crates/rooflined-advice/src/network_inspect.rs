//! Vision networks in the shape of the wire.

use std::collections::BTreeMap;

use rooflined_api::{
    NetworkAnswer, NetworkDla, NetworkFallback, NetworkNode, NetworkOperator, NetworkTensor, NetworkWork,
};
use rooflined_core::hardware::registry;
use rooflined_models::network::dla::{self, Place};
use rooflined_models::network::{Kind, Network, Node, TensorId};
use rooflined_predict::network::missing_weights;

/// What the file at `path` holds.
#[must_use]
pub fn of_file(network: &Network, path: String) -> NetworkAnswer {
    let tensors = |ids: &[TensorId]| ids.iter().map(|id| tensor(network, *id)).collect();
    let node = |node: &Node| NetworkNode {
        name: node.name.clone(),
        operator: node.operator.name().to_owned(),
        precision: node.precision.map(|precision| precision.key().to_owned()),
        flops: node.flops,
        weight_bytes: node.weight_bytes,
        outputs: tensors(&node.outputs),
    };
    NetworkAnswer {
        name: network.name.clone(),
        path,
        writer: Some(network.writer.clone()).filter(|writer| !writer.is_empty()),
        opset: network.opset,
        inputs: tensors(&network.inputs),
        outputs: tensors(&network.outputs),
        parameters: network.parameters,
        weight_bytes: network.weight_bytes,
        activation_peak_bytes: network.activation_peak(None),
        activation_peak_fp16_bytes: network.activation_peak(Some(16)),
        flops: flops(network.nodes.iter()),
        folded_nodes: network.folded_nodes as u64,
        work: work(network),
        operators: counts(network.nodes.iter().map(|node| node.operator.name()))
            .into_iter()
            .map(|(operator, nodes)| NetworkOperator { operator: operator.to_owned(), nodes })
            .collect(),
        dla: split(network),
        nodes: network.nodes.iter().map(node).collect(),
        warnings: warnings(network),
    }
}

fn tensor(network: &Network, id: TensorId) -> NetworkTensor {
    let tensor = &network[id];
    let element = tensor.quantised.unwrap_or(tensor.element).key().to_owned();
    NetworkTensor { name: tensor.name.clone(), element, shape: tensor.dims.clone() }
}

fn flops<'n>(mut nodes: impl Iterator<Item = &'n Node>) -> Option<u64> {
    nodes.try_fold(0_u64, |all, node| all.checked_add(node.flops?))
}

fn work(network: &Network) -> Vec<NetworkWork> {
    let of = |kind: Kind| {
        let nodes = || network.nodes.iter().filter(move |node| node.operator.kind() == kind);
        let weight_bytes = nodes().map(|node| node.weight_bytes).fold(0, u64::saturating_add);
        NetworkWork {
            kind: kind.key().to_owned(),
            nodes: nodes().count() as u64,
            flops: flops(nodes()),
            weight_bytes,
        }
    };
    Kind::ALL.into_iter().map(of).filter(|work| work.nodes > 0).collect()
}

/// How often each item comes, most first.
fn counts<T: Ord + Copy>(items: impl Iterator<Item = T>) -> Vec<(T, u64)> {
    let mut counted: BTreeMap<T, u64> = BTreeMap::new();
    for item in items {
        *counted.entry(item).or_default() += 1;
    }
    let mut counted: Vec<_> = counted.into_iter().collect();
    counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counted
}

fn split(network: &Network) -> NetworkDla {
    let split = dla::split(network);
    let fallbacks = network.nodes.iter().zip(&split.places).filter_map(|(node, place)| match place {
        Place::Gpu(reason) => Some((node.operator.name(), *reason)),
        Place::Dla | Place::Free => None,
    });
    let fallbacks: Vec<_> = counts(fallbacks)
        .into_iter()
        .map(|((operator, reason), nodes)| NetworkFallback {
            operator: operator.to_owned(),
            reason: reason.to_owned(),
            nodes,
        })
        .collect();
    NetworkDla {
        nodes: split.places.iter().filter(|place| **place == Place::Dla).count() as u64,
        fallback_nodes: fallbacks.iter().map(|fallback| fallback.nodes).sum(),
        loadables: split.loadables as u64,
        crossings: split.crossings as u64,
        fallbacks,
        boards: registry()
            .entries()
            .filter(|board| board.dla_cores > 0)
            .map(|board| board.key.clone())
            .collect(),
        last_tensorrt: dla::LAST_TENSORRT.to_owned(),
    }
}

fn warnings(network: &Network) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(first) = network.missing.first() {
        warnings.push(missing_weights(first, network.missing.len()));
    }
    let has_shape = |node: &Node| node.outputs.iter().all(|id| network[*id].dims.is_some());
    let unknown: Vec<_> = network.nodes.iter().filter(|node| !has_shape(node)).collect();
    if let Some(first) = unknown.first() {
        let written = match unknown.len() {
            1 => "one node writes a tensor".to_owned(),
            count => format!("{count} nodes write tensors"),
        };
        warnings.push(format!(
            "{written} whose shape is known only at run time, from {} {:?} on: that work is not counted",
            first.operator.name(),
            first.name
        ));
    }
    let others = network.nodes.iter().filter(|node| node.operator.kind() == Kind::Other);
    let others: Vec<_> =
        counts(others.map(|node| node.operator.name())).into_iter().map(|(name, _)| name).collect();
    if !others.is_empty() {
        warnings.push(format!("no rule counts the work of {}", others.join(", ")));
    }
    warnings
}
