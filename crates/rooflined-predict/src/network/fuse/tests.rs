use super::*;
use rooflined_models::network::{Convolution, ElementType, Product, Tensor};

/// A network that is written node by node.
struct Writer(Network);

impl Writer {
    fn new(dims: &[u64]) -> (Self, TensorId) {
        let mut network = Network {
            open_inputs: Vec::new(),
            name: "written".to_owned(),
            writer: String::new(),
            opset: 17,
            inputs: Vec::new(),
            outputs: Vec::new(),
            tensors: Vec::new(),
            nodes: Vec::new(),
            folded_nodes: 0,
            parameters: 0,
            weight_bytes: 0,
            missing: Vec::new(),
        };
        network.inputs = vec![TensorId(0)];
        let mut writer = Self(network);
        let input = writer.tensor(dims, None);
        (writer, input)
    }

    fn tensor(&mut self, dims: &[u64], producer: Option<NodeId>) -> TensorId {
        let id = TensorId(self.0.tensors.len());
        self.0.tensors.push(Tensor {
            name: id.0.to_string(),
            dims: Some(dims.to_vec()),
            element: ElementType::Float32,
            quantised: None,
            constant: false,
            producer,
            consumers: Vec::new(),
        });
        id
    }

    fn node(&mut self, operator: &str, inputs: &[TensorId], dims: &[u64]) -> TensorId {
        let at = NodeId(self.0.nodes.len());
        for input in inputs {
            let consumers = &mut self.0.tensors[input.0].consumers;
            if !consumers.contains(&at) {
                consumers.push(at);
            }
        }
        let output = self.tensor(dims, Some(at));
        self.0.nodes.push(Node {
            name: String::new(),
            operator: Operator::of_name(operator),
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: vec![output],
            convolution: None,
            product: None,
            window: None,
            axis: None,
            flops: None,
            weight_elements: 0,
            weight_bytes: 0,
            precision: None,
        });
        output
    }

    fn convolution(&mut self, input: TensorId, cout: u64, side: u64, groups: u64) -> TensorId {
        let dims = self.0[input].dims.clone().unwrap();
        let cin = dims[1];
        let output = self.node("Conv", &[input], &[dims[0], cout, dims[2], dims[3]]);
        let node = self.0.nodes.last_mut().unwrap();
        node.weight_elements = cout * cin / groups * side * side;
        node.flops = Some(2 * node.weight_elements * dims[0] * dims[2] * dims[3]);
        node.convolution = Some(Convolution {
            kernel: vec![side, side],
            stride: vec![1, 1],
            dilation: vec![1, 1],
            groups,
            cin,
            cout,
        });
        output
    }

    fn product(&mut self, inputs: [TensorId; 2], rows: u64, inner: u64, columns: u64) -> TensorId {
        let output = self.node("MatMul", &inputs, &[1, rows, columns]);
        let node = self.0.nodes.last_mut().unwrap();
        node.flops = Some(2 * rows * inner * columns);
        node.product = Some(Product { batch: 1, rows, inner, columns });
        output
    }

    fn silu(&mut self, input: TensorId) -> TensorId {
        let dims = self.0[input].dims.clone().unwrap();
        let gate = self.node("Sigmoid", &[input], &dims);
        self.node("Mul", &[input, gate], &dims)
    }

    fn kinds(mut self, output: TensorId) -> Vec<LayerKind> {
        self.0.outputs = vec![output];
        fuse(&self.0).layers.iter().map(|layer| layer.kind).collect()
    }
}

#[test]
fn a_layer_with_weights_whose_sizes_only_a_run_knows_is_named() {
    let (mut network, input) = Writer::new(&[1, 16, 8, 8]);
    network.convolution(input, 16, 3, 1);
    assert!(fuse(&network.0).undescribed.is_empty());
    network.0.nodes[0].flops = None;
    assert_eq!(fuse(&network.0).undescribed, ["Conv"]);
}

#[test]
fn a_convolution_takes_its_activation_and_a_residual_along() {
    let (mut network, input) = Writer::new(&[1, 16, 8, 8]);
    let first = network.convolution(input, 16, 3, 1);
    let first = network.silu(first);
    let second = network.convolution(first, 16, 3, 1);
    let second = network.silu(second);
    let sum = network.node("Add", &[first, second], &[1, 16, 8, 8]);
    let last = network.convolution(sum, 32, 1, 1);
    network.0.outputs = vec![last];
    let layers = fuse(&network.0);
    let [one, two, three] = &layers.layers[..] else { panic!("{layers:?}") };
    assert_eq!(
        (one.kind, two.kind, three.kind),
        (LayerKind::Convolution, LayerKind::Convolution, LayerKind::Pointwise)
    );
    assert_eq!((one.reads, two.reads), (1024.0, 2048.0), "the residual is read as well");
    assert_eq!((one.inner, one.columns, one.window, one.flops), (144.0, 16.0, 9.0, 2.0 * 2304.0 * 64.0));
    assert_eq!((one.exponentials, one.apart, one.apart_kernels), (1024.0, 2048.0, 1.0));
    layers.check().unwrap();
}

#[test]
fn a_concatenation_copies_what_no_convolution_writes_for_it_alone() {
    let (mut network, input) = Writer::new(&[1, 16, 8, 8]);
    let stem = network.convolution(input, 32, 1, 1);
    let stem = network.silu(stem);
    let half = network.node("Split", &[stem], &[1, 16, 8, 8]);
    let alone = network.convolution(half, 16, 3, 1);
    let alone = network.silu(alone);
    let joined = network.node("Concat", &[half, alone], &[1, 32, 8, 8]);
    let kinds = network.kinds(joined);
    assert_eq!(kinds, [LayerKind::Pointwise, LayerKind::Convolution, LayerKind::Copy]);
}

#[test]
fn parts_of_a_picture_are_copied_once_for_the_convolutions_that_read_them() {
    let (mut network, input) = Writer::new(&[1, 16, 8, 8]);
    let half = network.node("Split", &[input], &[1, 8, 8, 8]);
    let other = network.tensor(&[1, 8, 8, 8], Some(NodeId(0)));
    network.0.nodes[0].outputs.push(other);
    let (one, two) = (network.convolution(half, 8, 3, 8), network.convolution(other, 8, 5, 8));
    let joined = network.node("Concat", &[one, two], &[1, 16, 8, 8]);
    network.0.outputs = vec![joined];
    let layers = fuse(&network.0).layers;
    let [copy, _, _] = &layers[..] else { panic!("{layers:?}") };
    assert_eq!((copy.kind, copy.reads, copy.writes), (LayerKind::Copy, 1024.0, 1024.0));
}

#[test]
fn a_gelu_is_a_kernel_behind_a_convolution_and_none_behind_a_product() {
    let gelu = |network: &mut Writer, input, dims: &[u64]| {
        let scaled = network.node("Div", &[input], dims);
        let error = network.node("Erf", &[scaled], dims);
        let moved = network.node("Add", &[error], dims);
        network.node("Mul", &[input, moved], dims)
    };
    let (mut network, input) = Writer::new(&[1, 16, 8, 8]);
    let wide = network.convolution(input, 64, 1, 1);
    let output = gelu(&mut network, wide, &[1, 64, 8, 8]);
    assert_eq!(network.kinds(output), [LayerKind::Pointwise, LayerKind::Elementwise]);
    let (mut network, input) = Writer::new(&[1, 64, 32]);
    let weights = network.tensor(&[32, 128], None);
    network.0.tensors[weights.0].constant = true;
    let wide = network.product([input, weights], 64, 32, 128);
    let output = gelu(&mut network, wide, &[1, 64, 128]);
    assert_eq!(network.kinds(output), [LayerKind::Product]);
}

#[test]
fn attention_is_two_products_and_a_depthwise_window_is_told_apart() {
    let (mut network, input) = Writer::new(&[1, 64, 32]);
    let turned = network.node("Transpose", &[input], &[1, 32, 64]);
    let scores = network.product([input, turned], 64, 32, 64);
    let scaled = network.node("Mul", &[scores], &[1, 64, 64]);
    let weights = network.node("Softmax", &[scaled], &[1, 64, 64]);
    let output = network.product([weights, input], 64, 64, 32);
    assert_eq!(network.kinds(output), [LayerKind::Attention; 2]);
    let (mut network, input) = Writer::new(&[1, 32, 8, 8]);
    let output = network.convolution(input, 32, 3, 32);
    assert_eq!(network.kinds(output), [LayerKind::Depthwise]);
}

#[test]
fn a_normalisation_in_parts_is_one_kernel() {
    let (mut network, input) = Writer::new(&[1, 64, 32]);
    let mean = network.node("ReduceMean", &[input], &[1, 64, 1]);
    let centred = network.node("Sub", &[input, mean], &[1, 64, 32]);
    let square = network.node("Mul", &[centred, centred], &[1, 64, 32]);
    let variance = network.node("ReduceMean", &[square], &[1, 64, 1]);
    let deviation = network.node("Sqrt", &[variance], &[1, 64, 1]);
    let output = network.node("Div", &[centred, deviation], &[1, 64, 32]);
    assert_eq!(network.kinds(output), [LayerKind::Normalization]);
}

#[test]
fn views_are_free_and_slices_that_skip_rows_are_copied() {
    let (mut network, input) = Writer::new(&[1, 4, 8, 8]);
    let view = network.node("Reshape", &[input], &[1, 4, 64]);
    let back = network.node("Reshape", &[view], &[1, 4, 8, 8]);
    let channels = network.node("Slice", &[back], &[1, 2, 8, 8]);
    let rows = network.node("Slice", &[channels], &[1, 2, 4, 8]);
    assert_eq!(network.kinds(rows), [LayerKind::Copy]);
}
