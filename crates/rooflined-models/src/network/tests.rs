//! Small files by hand: what is read, and what is refused.

use std::io::Cursor;

use proptest::prelude::*;
use rooflined_core::precision::Precision;

use super::*;

mod write;
use write::{BFLOAT16, Dim, FLOAT, FLOAT16, Graph, INT8, Message, Value, node, tensor};

fn read_with(bytes: &[u8], dimensions: &Dimensions) -> Result<Network, NetworkError> {
    read(Cursor::new(bytes), bytes.len() as u64, "test", dimensions)
}

fn read_all(bytes: &[u8]) -> Result<Network, NetworkError> {
    read_with(bytes, &Dimensions::default())
}

fn fixed(sizes: &[i64]) -> Vec<Dim<'_>> {
    sizes.iter().map(|size| Dim::Fixed(*size)).collect()
}

fn tensor_of<'n>(network: &'n Network, name: &str) -> &'n Tensor {
    network.tensors.iter().find(|tensor| tensor.name == name).expect(name)
}

/// Dimensions of the tensor `y` of a graph with one node, which reads `x`.
fn written_by(operator: &str, dims: &[i64], attributes: &[(&str, Value<'_>)]) -> Option<Vec<u64>> {
    let graph = Graph::default()
        .input("x", FLOAT, &fixed(dims))
        .node(operator, &["x"], &["y"], attributes)
        .output("y");
    tensor_of(&read_all(&graph.file(11)).unwrap(), "y").dims.clone()
}

fn first_layer() -> Graph {
    Graph::default()
        .input("images", FLOAT, &[Dim::Named("batch"), Dim::Fixed(3), Dim::Open, Dim::Open])
        .weights("w", FLOAT, &[64, 3, 7, 7])
        .weights("b", FLOAT, &[64])
        .node(
            "Conv",
            &["images", "w", "b"],
            &["c"],
            &[("strides", Value::Ints(&[2, 2])), ("pads", Value::Ints(&[3; 4]))],
        )
        .node("Relu", &["c"], &["y"], &[])
        .output("y")
}

#[test]
fn a_convolution_has_its_shape_its_work_and_its_weights() {
    let values = [("batch".to_owned(), 2)].into();
    let network = read_with(&first_layer().file(17), &Dimensions { values, size: Some((224, 320)) }).unwrap();
    assert_eq!((network.opset, network.writer.as_str()), (17, "test"));
    assert_eq!(tensor_of(&network, "y").dims, Some(vec![2, 64, 112, 160]));
    let conv = &network.nodes[0];
    let sizes = conv.convolution.clone().unwrap();
    assert_eq!((sizes.cin, sizes.cout, sizes.groups, sizes.kernel), (3, 64, 1, vec![7, 7]));
    assert_eq!(conv.flops, Some(2 * (2 * 64 * 112 * 160) * (3 * 7 * 7)));
    assert_eq!((conv.weight_elements, conv.weight_bytes), (64 * 3 * 49 + 64, 4 * (64 * 3 * 49 + 64)));
    assert_eq!(conv.precision, Some(Precision::Fp32));
    assert_eq!(network.parameters, 64 * 3 * 49 + 64);
    assert_eq!(network.nodes[1].flops, Some(2 * 64 * 112 * 160));
    let read = tensor_of(&network, "c");
    assert_eq!((read.producer, read.consumers.as_slice()), (Some(NodeId(0)), &[NodeId(1)][..]));
}

#[test]
fn an_open_dimension_is_asked_for_by_name() {
    let error = read_all(&first_layer().file(17)).unwrap_err();
    let said = "has no value for dimension `batch` of input `images`, dimension `images.2` of input `images`, \
                dimension `images.3` of input `images`";
    assert_eq!(error.to_string(), said);
    assert_eq!(error.hint(), "add --dim batch=1 --size 640x640, with your own sizes");
    let error = read_with(
        &first_layer().file(17),
        &Dimensions { values: [("bath".to_owned(), 1)].into(), size: None },
    );
    let said = "has no input with an open dimension \"bath\"; open ones: batch, images.2, images.3";
    assert_eq!(error.unwrap_err().to_string(), said);
    let closed = Graph::default().input("x", FLOAT, &fixed(&[1, 3, 8, 8])).node("Relu", &["x"], &["y"], &[]);
    let error = read_with(&closed.file(17), &Dimensions { size: Some((9, 9)), ..Dimensions::default() });
    let said = "has no input whose height and width are open; its inputs are x [1, 3, 8, 8]";
    assert_eq!(error.unwrap_err().to_string(), said);
}

#[test]
fn a_model_of_text_is_named_as_one_and_its_cache_is_no_picture() {
    let cache = [Dim::Named("batch"), Dim::Fixed(8), Dim::Named("past"), Dim::Fixed(64)];
    let graph = Graph::default()
        .input("input_ids", 7, &[Dim::Named("batch"), Dim::Named("tokens")])
        .input("past_key_values.0.key", FLOAT, &cache)
        .node("Relu", &["past_key_values.0.key"], &["y"], &[]);
    let hint = read_all(&graph.file(17)).unwrap_err().hint();
    let sizes = "add --dim batch=1 --dim tokens=1 --dim past=1, with your own sizes";
    assert!(hint.starts_with("it reads tokens of text") && hint.ends_with(sizes), "{hint}");
}

/// A flattening as exporters write it: the batch of the input, and -1.
fn computed_shape() -> Graph {
    Graph::default()
        .input("x", FLOAT, &[Dim::Named("n"), Dim::Fixed(8), Dim::Fixed(4), Dim::Fixed(4)])
        .ints("zero", &[0])
        .ints("rest", &[-1])
        .node("Shape", &["x"], &["s"], &[])
        .node("Gather", &["s", "zero"], &["batch"], &[("axis", Value::Int(0))])
        .node("Concat", &["batch", "rest"], &["shape"], &[("axis", Value::Int(0))])
        .node("Reshape", &["x", "shape"], &["y"], &[])
        .output("y")
}

#[test]
fn a_shape_that_is_computed_in_the_graph_is_folded() {
    let graph = computed_shape();
    let network =
        read_with(&graph.file(13), &Dimensions { values: [("n".to_owned(), 5)].into(), size: None }).unwrap();
    assert_eq!(tensor_of(&network, "y").dims, Some(vec![5, 128]));
    assert_eq!((network.nodes.len(), network.folded_nodes, network.parameters), (1, 3, 0));
    assert!(tensor_of(&network, "shape").constant);
}

fn quantised_layer() -> Graph {
    Graph::default()
        .input("x", FLOAT, &fixed(&[1, 16, 8, 8]))
        .floats("s", &[0.1])
        .weights("z", INT8, &[1])
        .weights("w", INT8, &[32, 16, 1, 1])
        .node("QuantizeLinear", &["x", "s", "z"], &["q"], &[])
        .node("DequantizeLinear", &["q", "s", "z"], &["a"], &[])
        .node("DequantizeLinear", &["w", "s", "z"], &["v"], &[])
        .node("Conv", &["a", "v"], &["y"], &[])
        .output("y")
}

#[test]
fn a_quantised_layer_computes_in_8_bits() {
    let graph = quantised_layer();
    let network = read_all(&graph.file(13)).unwrap();
    let conv = network.nodes.last().unwrap();
    assert_eq!(conv.precision, Some(Precision::Int8));
    // The weights' scale and zero point are no parameters, and a weight has one byte.
    assert_eq!((conv.weight_elements, conv.weight_bytes), (512, 512));
    assert_eq!((network.parameters, network.weight_bytes), (512, 512));
    assert_eq!((network.nodes.len(), network.folded_nodes), (3, 1));
}

#[test]
fn weights_of_16_bits_count_two_bytes() {
    for (element, precision) in [(FLOAT16, Precision::Fp16), (BFLOAT16, Precision::Bf16)] {
        let graph = Graph::default()
            .input("x", element, &fixed(&[4, 8]))
            .weights("w", element, &[8, 2])
            .node("MatMul", &["x", "w"], &["y"], &[]);
        let network = read_all(&graph.file(17)).unwrap();
        let node = &network.nodes[0];
        assert_eq!((node.precision, node.weight_bytes), (Some(precision), 32));
        assert_eq!(node.product, Some(Product { batch: 1, rows: 4, inner: 8, columns: 2 }));
        assert_eq!(node.flops, Some(2 * 4 * 8 * 2));
    }
}

#[test]
fn operators_of_old_sets_take_their_lists_from_attributes() {
    let axes = [("axes", Value::Ints(&[0, 3]))];
    assert_eq!(written_by("Unsqueeze", &[2, 3], &axes), Some(vec![1, 2, 3, 1]));
    assert_eq!(written_by("Squeeze", &[1, 2, 3, 1], &axes), Some(vec![2, 3]));
    let slice =
        [("starts", Value::Ints(&[-3])), ("ends", Value::Ints(&[i64::MAX])), ("axes", Value::Ints(&[1]))];
    assert_eq!(written_by("Slice", &[2, 8], &slice), Some(vec![2, 3]));
    assert_eq!(
        written_by("Upsample", &[1, 2, 3, 4], &[("scales", Value::Floats(&[1.0, 1.0, 2.0, 2.5]))]),
        Some(vec![1, 2, 6, 10])
    );
    assert_eq!(
        written_by("ReduceMean", &[2, 3, 4], &[("axes", Value::Ints(&[-1])), ("keepdims", Value::Int(0))]),
        Some(vec![2, 3])
    );
}

#[test]
fn a_last_window_that_starts_in_the_padding_is_left_out() {
    let pool = |size: i64, ceil: i64| {
        let attributes = [
            ("kernel_shape", Value::Ints(&[3, 3])),
            ("strides", Value::Ints(&[2, 2])),
            ("pads", Value::Ints(&[1; 4])),
            ("ceil_mode", Value::Int(ceil)),
        ];
        written_by("MaxPool", &[1, 1, size, size], &attributes).unwrap()[2]
    };
    // In 112 and two of padding windows start at 0, 2 … 110; one more starts at 112, which is in the picture.
    assert_eq!((pool(112, 0), pool(112, 1)), (56, 57));
    assert_eq!((pool(3, 0), pool(3, 1)), (2, 2));
}

#[test]
fn automatic_padding_divides_by_the_stride() {
    for padding in ["SAME_UPPER", "SAME_LOWER"] {
        let attributes = [
            ("kernel_shape", Value::Ints(&[3, 3])),
            ("strides", Value::Ints(&[2, 2])),
            ("auto_pad", Value::Text(padding)),
        ];
        assert_eq!(written_by("MaxPool", &[1, 4, 9, 224], &attributes), Some(vec![1, 4, 5, 112]));
    }
}

#[test]
fn a_function_is_put_in_place_of_its_calls() {
    let call = node("Twice", &["x"], &["y"], &[("by", Value::Int(1))]).text(7, "own");
    let graph = Graph(Graph::default().input("x", FLOAT, &fixed(&[2, 3, 4])).output("y").0.message(1, &call));
    let axis = Message::default().text(1, "axis").text(21, "by").int(20, 2);
    let inner = node("Concat", &["a", "a"], &["b"], &[]).message(5, &axis);
    let function =
        Message::default().text(1, "Twice").text(4, "a").text(5, "b").message(7, &inner).text(10, "own");
    let network = read_all(&graph.message(17).message(25, &function).0).unwrap();
    assert_eq!(tensor_of(&network, "b").dims, Some(vec![2, 6, 4]));
    assert_eq!(network.outputs.len(), 1);
    // One that calls itself has no end.
    let endless = node("Twice", &["a"], &["b"], &[]).text(7, "own");
    let function =
        Message::default().text(1, "Twice").text(4, "a").text(5, "b").message(7, &endless).text(10, "own");
    assert!(matches!(
        read_all(&graph.message(17).message(25, &function).0),
        Err(NetworkError::TooMany { .. })
    ));
}

#[test]
fn a_branch_with_a_known_condition_is_taken_and_a_loop_or_products_that_may_run_are_refused_by_name() {
    let branch = |operator: &str, name: &str| {
        let attributes = [("perm", Value::Ints(&[1, 0]))];
        let attributes = if operator == "Transpose" { &attributes[..] } else { &[] };
        let inputs = if operator == "MatMul" { &["x", "x"][..] } else { &["x"] };
        Graph::default().node(operator, inputs, &[name], attributes).output(name).0
    };
    let with = |operator: &str, condition: &str, otherwise: &str| {
        Graph::default()
            .input("x", FLOAT, &fixed(&[2, 3]))
            .input("open", 9, &[])
            .ints("known", &[1])
            .node(
                operator,
                &[condition],
                &["y"],
                &[
                    ("then_branch", Value::Graph(branch("Transpose", "t"))),
                    ("else_branch", Value::Graph(branch(otherwise, "e"))),
                ],
            )
            .output("y")
    };
    let network = read_all(&with("If", "known", "Relu").file(17)).unwrap();
    assert_eq!((network.nodes.len(), network.nodes[0].operator.clone()), (1, Operator::Transpose));
    assert_eq!(tensor_of(&network, "t").dims, Some(vec![3, 2]));
    // What follows the selection of boxes stays, without sizes.
    let network = read_all(&with("If", "open", "Relu").file(17)).unwrap();
    assert_eq!((network.nodes.len(), network.nodes[0].operator.clone()), (1, Operator::If));
    assert_eq!(tensor_of(&network, "y").dims, None);
    for (operator, condition, otherwise) in [("If", "open", "MatMul"), ("Loop", "known", "Relu")] {
        let error = read_all(&with(operator, condition, otherwise).file(17)).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("runs a subgraph: how often node \"y\" ({operator}) does is known only at run time")
        );
    }
}

#[test]
fn nodes_run_after_those_that_they_read() {
    let graph = Graph::default()
        .input("x", FLOAT, &fixed(&[4]))
        .node("Relu", &["b"], &["c"], &[])
        .node("Relu", &["x"], &["a"], &[])
        .node("Relu", &["a"], &["b"], &[]);
    let order: Vec<_> = read_all(&graph.file(17)).unwrap().nodes.iter().map(|node| node.outputs[0]).collect();
    assert_eq!(order, [TensorId(1), TensorId(2), TensorId(3)]);
    let circle = Graph::default().node("Relu", &["b"], &["a"], &[]).node("Relu", &["a"], &["b"], &[]);
    let error = read_all(&circle.file(17)).unwrap_err().to_string();
    assert_eq!(error, "cannot run: node \"a\" reads tensor \"b\", which depends on that node");
    let missing = Graph::default().node("Relu", &["nowhere"], &["a"], &[]);
    let error = read_all(&missing.file(17)).unwrap_err().to_string();
    assert_eq!(error, "cannot run: node \"a\" reads tensor \"nowhere\", which nothing writes");
    let twice = Graph::default().input("x", FLOAT, &[]).node("Relu", &["x"], &["a"], &[]).node(
        "Relu",
        &["x"],
        &["a"],
        &[],
    );
    assert!(matches!(read_all(&twice.file(17)), Err(NetworkError::WrittenTwice(_))));
}

#[test]
fn data_of_another_length_than_the_sizes_need_are_refused() {
    for (dims, raw, refused) in
        [(&[2][..], 8, false), (&[2], 4, true), (&[2], 9, true), (&[1 << 40], 8, true)]
    {
        let graph = Graph::default().input("x", FLOAT, &[]).stored("w", FLOAT, dims, &vec![0; raw]);
        let read = read_all(&graph.node("Relu", &["x"], &["a"], &[]).file(17));
        assert_eq!(matches!(read, Err(NetworkError::Data { .. })), refused, "{dims:?}, {raw} bytes");
    }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let graph = |dims: &[i64], operator: &str, attributes: &[(&str, Value<'_>)]| {
        Graph::default().input("x", FLOAT, &fixed(dims)).node(operator, &["x"], &["y"], attributes).file(11)
    };
    let huge = [1 << 30, 1 << 30, 1 << 30];
    let window = [("kernel_shape", Value::Ints(&[9, 9]))];
    let most =
        [("kernel_shape", Value::Ints(&[i64::MAX, i64::MAX])), ("dilations", Value::Ints(&[i64::MAX, 1]))];
    let pads = [("pads", Value::Ints(&[i64::MIN, i64::MIN, i64::MIN, -1]))];
    for file in [
        graph(&[1, 1, 4, 4], "Unsqueeze", &[("axes", Value::Ints(&[0; 40]))]),
        graph(&[1, 1, 4, 4], "MaxPool", &window),
        graph(&[1, 1, 4, 4], "MaxPool", &most),
        graph(&[2, 2], "Pad", &pads),
        graph(&[2, 3], "Squeeze", &[("axes", Value::Ints(&[7]))]),
        graph(&[2, 3], "Squeeze", &[("axes", Value::Ints(&[0]))]),
        graph(&[2, 3], "Transpose", &[("perm", Value::Ints(&[0, 0]))]),
        graph(&[2, 3], "Reshape", &[("shape", Value::Ints(&[4, -1]))]),
        graph(&[2, 3], "Reshape", &[("shape", Value::Ints(&[1 << 40, 1 << 40]))]),
    ] {
        let error = read_all(&file).unwrap_err();
        assert!(matches!(error, NetworkError::Shape { .. }), "{error}");
    }
    assert!(matches!(read_all(&graph(&huge, "Relu", &[])), Err(NetworkError::TooLarge(_))));
    let weights = Graph::default().weights("w", FLOAT, &huge).node("Relu", &["w"], &["y"], &[]);
    assert!(matches!(read_all(&weights.file(11)), Err(NetworkError::TooLarge(_))));
    let negative =
        Graph::default().input("x", FLOAT, &[]).weights("w", FLOAT, &[-1]).node("Relu", &["w"], &["y"], &[]);
    assert!(matches!(read_all(&negative.file(11)), Err(NetworkError::NotOnnx(_))));
}

#[test]
fn what_is_no_onnx_file_is_refused() {
    for bytes in [&b""[..], b"GGUF\x03\0\0\0", b"{\"a\": 1}", &[0x80; 40], &[0x3a, 0x7f], &[0xff; 64]] {
        let error = read_all(bytes).unwrap_err();
        assert!(matches!(error, NetworkError::NotOnnx(_) | NetworkError::Cut { .. }), "{bytes:?}: {error}");
    }
}

#[test]
fn a_file_says_how_many_nodes_and_how_deep_only_up_to_a_limit() {
    let mut many = Graph::default().input("x", FLOAT, &[]);
    many.0.0.extend([0x0a, 0].repeat(1 << 20));
    assert!(matches!(read_all(&many.file(17)), Err(NetworkError::TooMany { .. })));
    let mut deep = Graph::default().node("Relu", &["x"], &["y"], &[]);
    for _ in 0..40 {
        deep = Graph::default().node("If", &["x"], &["y"], &[("then_branch", Value::Graph(deep.0))]);
    }
    assert!(matches!(read_all(&deep.file(17)), Err(NetworkError::TooMany { .. })));
}

#[test]
fn weights_are_skipped() {
    // The file ends long before the weights that it announces would: only their length is looked at.
    struct Counted(Cursor<Vec<u8>>, std::rc::Rc<std::cell::Cell<u64>>);
    impl std::io::Read for Counted {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let read = self.0.read(buffer)?;
            self.1.set(self.1.get() + read as u64);
            Ok(read)
        }
    }
    impl std::io::Seek for Counted {
        fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
            self.0.seek(to)
        }
    }
    let mut graph = Graph::default().input("x", FLOAT, &fixed(&[1, 1024]));
    graph.0 = graph.0.message(5, &tensor("w", FLOAT, &[1024, 1024], &vec![0; 4 << 20]));
    let file = graph.node("MatMul", &["x", "w"], &["y"], &[]).file(17);
    let (length, count) = (file.len() as u64, std::rc::Rc::default());
    let network =
        read(Counted(Cursor::new(file), std::rc::Rc::clone(&count)), length, "w", &Dimensions::default());
    assert_eq!(network.unwrap().parameters, 1 << 20);
    assert!(count.get() < 200_000, "{} bytes of {length} were read", count.get());
}

#[test]
fn the_peak_of_activations_is_what_lives_at_once() {
    // x lives until the sum; a until b is written, b until the sum, and y is the output.
    let graph = Graph::default()
        .input("x", FLOAT, &fixed(&[1, 100]))
        .node("Relu", &["x"], &["a"], &[])
        .node("Relu", &["a"], &["b"], &[])
        .node("Flatten", &["b"], &["c"], &[])
        .node("Add", &["x", "c"], &["y"], &[])
        .output("y");
    let network = read_all(&graph.file(17)).unwrap();
    assert_eq!(network.activation_peak(None), Some(3 * 400));
    assert_eq!(network.activation_peak(Some(16)), Some(3 * 200));
}

#[test]
fn a_dla_takes_convolutions_and_leaves_what_it_does_not_know_to_the_gpu() {
    let graph = Graph::default()
        .input("x", FLOAT, &fixed(&[1, 4, 16, 16]))
        .weights("w", FLOAT, &[4, 4, 3, 3])
        .weights("v", FLOAT, &[4, 4, 33, 33])
        .node("Conv", &["x", "w"], &["a"], &[("pads", Value::Ints(&[1; 4]))])
        .node("Relu", &["a"], &["b"], &[])
        .node("HardSwish", &["b"], &["c"], &[])
        .node("Conv", &["c", "w"], &["d"], &[("pads", Value::Ints(&[1; 4]))])
        .node("Conv", &["d", "v"], &["e"], &[("pads", Value::Ints(&[16; 4]))])
        .output("e");
    let split = dla::split(&read_all(&graph.file(17)).unwrap());
    let gpu = dla::Place::Gpu;
    let (none, large) = (gpu("the DLA has no such layer"), gpu("its window is too large"));
    assert_eq!(split.places, [dla::Place::Dla, dla::Place::Dla, none, dla::Place::Dla, large]);
    // b, c and d.
    assert_eq!((split.loadables, split.crossings), (2, 3));
}

proptest! {
    #[test]
    fn a_damaged_file_is_read_or_refused(
        number in 0_usize..3,
        changes in prop::collection::vec((0_usize..2000, any::<u8>()), 1..6),
        cut in 0_usize..4000,
    ) {
        let mut file = [first_layer(), computed_shape(), quantised_layer()][number].file(13);
        for (place, byte) in changes {
            let length = file.len();
            file[place % length] = byte;
        }
        let values: std::collections::BTreeMap<_, _> = [("batch".to_owned(), 1)].into();
        for dimensions in [
            Dimensions { values, size: Some((32, 32)) },
            Dimensions { values: [("n".to_owned(), 2)].into(), size: None },
            Dimensions::default(),
        ] {
            if let Ok(network) = read_with(&file, &dimensions) {
                let _ = (network.activation_peak(None), dla::split(&network));
            }
        }
        file.truncate(cut % file.len());
        let _ = read_all(&file);
    }

    #[test]
    fn a_larger_picture_is_more_work(small in 8_u64..200, more in 1_u64..100) {
        let flops = |size: u64| {
            let values = [("batch".to_owned(), 1)].into();
            let network = read_with(&first_layer().file(17), &Dimensions { values, size: Some((size, size)) }).unwrap();
            network.nodes.iter().map(|node| node.flops.unwrap()).sum::<u64>()
        };
        prop_assert!(flops(small) <= flops(small + more));
    }
}
