//! From the stored graph to a [`Network`]: sizes of inputs, order of nodes, facts of tensors, constants folded.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::io::{Read, Seek};
use std::ops::RangeInclusive;

use super::dimensions::Dimensions;
use super::element::ElementType;
use super::error::{NetworkError, Open};
use super::fact::{Call, Dims, Fact, is_too_large};
use super::onnx::{Attribute, Declared, File, Graph, MAX_RANK, Size, Step, Stored};
use super::operator::{Kind, Operator};
use super::wire::Wire;
use super::{Network, Node, NodeId, Tensor, TensorId, rules, work};

/// Most nodes, inputs, outputs and names after functions and branches are put in place.
const MAX_STEPS: usize = 1 << 19;
/// Longest name of a node that is kept.
const MAX_NAME: usize = 256;
/// Most numbers of all tensors together; later ones are left unknown.
const MAX_KEPT: usize = 1 << 22;
/// Bytes of names that count as one step.
const NAME_BYTES: usize = 64;
/// Deepest function in a function, or branch in a branch.
const MAX_DEPTH: usize = 16;

/// Versions of the default operator set whose rules are known.
const OPSETS: RangeInclusive<u64> = 11..=22;

/// Reads a network from an ONNX file of `length` bytes. Weights are skipped, so that a file of any size costs
/// milliseconds and a few megabytes. The network is called `name`: exporters call
/// every graph the same.
///
/// # Errors
/// The file is damaged or contradicts itself, leaves dimensions open that `dimensions` has no value for, or runs loops.
pub fn read<R: Read + Seek>(
    source: R,
    length: u64,
    name: &str,
    dimensions: &Dimensions,
) -> Result<Network, NetworkError> {
    let file = Wire::new(source, length).file()?;
    let default = file.opsets.iter().find(|(domain, _)| domain.is_empty());
    if let Some((_, version)) = default.filter(|(_, version)| !OPSETS.contains(version)) {
        return Err(NetworkError::Opset(*version));
    }
    let opset = default.or(file.opsets.first());
    let mut walk = Walk {
        file: &file,
        opset: opset.map_or(0, |(_, version)| *version),
        drafts: Vec::new(),
        nodes: Vec::new(),
        steps: 0,
        kept: 0,
        folded: 0,
        notes: HashMap::new(),
    };
    let sizes = input_sizes(&file.graph, dimensions)?;
    let notes = file.graph.notes.iter().chain(&file.graph.outputs);
    walk.notes = notes.map(|note| (note.name.as_str(), note)).collect();
    let mut scope = Scope::default();
    let mut inputs = Vec::new();
    for stored in &file.graph.initializers {
        walk.initializer(stored, &mut scope)?;
    }
    for (declared, dims) in file.graph.inputs.iter().zip(sizes) {
        if scope.names.contains_key(declared.name.as_str()) {
            continue;
        }
        let fact = Fact { dims, ..Fact::unknown(ElementType::of_number(declared.element)) };
        if is_too_large(&fact) {
            return Err(NetworkError::TooLarge(declared.name.clone()));
        }
        let id = walk.add(&declared.name, fact, false);
        scope.names.insert(&declared.name, id);
        inputs.push(id);
    }
    walk.graph(&file.graph.nodes, &mut scope, 0)?;
    let declared = file.graph.outputs.iter();
    let outputs = declared.filter_map(|output| scope.names.get(output.name.as_str()).copied()).collect();
    let is_open = |input: &Declared| input.dims.iter().flatten().any(|size| !matches!(size, Size::Fixed(_)));
    let open = file.graph.inputs.iter().filter(|input| is_open(input));
    let open_inputs = open.map(|input| input.name.clone()).collect();
    Ok(Network { open_inputs, ..walk.finish(name, inputs, outputs) })
}

/// The sizes of every input, in order; `None` for one that is no tensor.
fn input_sizes(graph: &Graph, dimensions: &Dimensions) -> Result<Vec<Option<Dims>>, NetworkError> {
    let stored: BTreeSet<&str> = graph.initializers.iter().map(|stored| stored.name.as_str()).collect();
    let (mut missing, mut known, mut used) = (Vec::new(), Vec::new(), BTreeSet::new());
    let (mut all, mut is_picture_used) = (Vec::new(), false);
    for input in &graph.inputs {
        let sizes = input.dims.as_deref().filter(|_| !stored.contains(input.name.as_str()));
        let Some(sizes) = sizes else {
            if !stored.contains(input.name.as_str()) {
                return Err(NetworkError::NoShape(input.name.clone()));
            }
            all.push(None);
            continue;
        };
        if sizes.len() > MAX_RANK {
            return Err(NetworkError::TooLarge(input.name.clone()));
        }
        let mut dims = Dims::new();
        for (place, size) in sizes.iter().enumerate() {
            let name = match size {
                Size::Fixed(size) => {
                    dims.push(Some(*size));
                    continue;
                }
                Size::Named(name) => Some(name.as_str()),
                Size::Unnamed => None,
            };
            let by_place = format!("{}.{place}", input.name);
            let picture = picture_axis(sizes, place);
            let value = dimensions.value(&input.name, place, name, picture);
            let option = name.map_or_else(|| by_place.clone(), str::to_owned);
            if value.is_none() && !used.contains(&option) {
                let is_picture = picture.is_some();
                missing.push(Open { input: input.name.clone(), name: option.clone(), is_picture });
            }
            is_picture_used |= picture.is_some();
            used.extend([by_place, option.clone()]);
            known.push(option);
            dims.push(value);
        }
        all.push(Some(dims));
    }
    known.dedup();
    if let Some(name) = dimensions.values.keys().find(|name| !used.contains(*name)) {
        return Err(NetworkError::NoSuchDimension { name: name.clone(), known });
    }
    if dimensions.size.is_some() && !is_picture_used {
        let names: Vec<_> =
            graph.inputs.iter().filter(|input| !stored.contains(input.name.as_str())).map(written).collect();
        return Err(NetworkError::NoOpenPicture(names.join(", ")));
    }
    if missing.is_empty() { Ok(all) } else { Err(NetworkError::Open(missing)) }
}

fn written(input: &Declared) -> String {
    let size = |size: &Size| match size {
        Size::Fixed(size) => size.to_string(),
        Size::Named(name) => name.clone(),
        Size::Unnamed => "?".to_owned(),
    };
    let sizes: Vec<_> = input.dims.iter().flatten().map(size).collect();
    format!("{} [{}]", input.name, sizes.join(", "))
}

/// 0 for the height of a picture, 1 for its width: the last two of four dimensions, or those before a fixed last one of at
/// most four channels. A cache of keys has four dimensions too, and the last one is fixed.
fn picture_axis(sizes: &[Size], place: usize) -> Option<usize> {
    let first = match sizes {
        [_, _, _, Size::Fixed(1..=4)] => 1,
        [_, _, _, Size::Fixed(_)] => return None,
        [_, _, _, _] => 2,
        _ => return None,
    };
    place.checked_sub(first).filter(|axis| *axis < 2)
}

/// What a name means in a graph.
#[derive(Default, Clone)]
struct Scope<'f> {
    names: HashMap<&'f str, usize>,
    /// What attributes of the function around it are.
    attributes: Vec<(String, &'f Attribute)>,
}

/// A tensor while the graph is walked.
struct Draft {
    name: String,
    fact: Fact,
    is_constant: bool,
    /// Constants with trained numbers in them: initializers of floats, and what is folded from them.
    is_weight: bool,
    /// Stored in the file, and read as weights by some node.
    is_parameter: bool,
    is_stored: bool,
    /// Stored in a node rather than among the weights, as grids of anchors are.
    is_inline: bool,
    producer: Option<usize>,
}

struct Walk<'f> {
    file: &'f File,
    opset: u64,
    drafts: Vec<Draft>,
    nodes: Vec<Node>,
    /// What was walked, and numbers that were kept.
    steps: usize,
    kept: usize,
    folded: usize,
    /// What the exporter noted on tensors, for operators without a rule.
    notes: HashMap<&'f str, &'f Declared>,
}

impl<'f> Walk<'f> {
    fn add(&mut self, name: &str, fact: Fact, is_constant: bool) -> usize {
        let name = name.to_owned();
        let draft = Draft {
            name,
            fact,
            is_constant,
            is_weight: false,
            is_parameter: false,
            is_stored: false,
            is_inline: false,
            producer: None,
        };
        self.drafts.push(draft);
        self.drafts.len() - 1
    }

    /// Counts what walking on costs.
    fn count(&mut self, steps: usize) -> Result<(), NetworkError> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > MAX_STEPS {
            return Err(NetworkError::TooMany { what: "nodes and their inputs", limit: MAX_STEPS as u64 });
        }
        Ok(())
    }

    fn initializer(&mut self, stored: &'f Stored, scope: &mut Scope<'f>) -> Result<(), NetworkError> {
        let dims = stored.dims.iter().copied().map(Some).collect();
        let fact = Fact {
            values: stored.values.clone(),
            ..Fact::shaped(ElementType::of_number(stored.element), dims)
        };
        if is_too_large(&fact) {
            return Err(NetworkError::TooLarge(stored.name.clone()));
        }
        let id = self.add(&stored.name, fact, true);
        self.store(id);
        scope.names.insert(&stored.name, id);
        Ok(())
    }

    /// Marks a constant as stored in the file: with weights in it where it is more than one number.
    fn store(&mut self, id: usize) {
        let draft = &mut self.drafts[id];
        draft.is_stored = true;
        let element = draft.fact.element;
        draft.is_weight = draft.fact.rank() != Some(0) && can_be_weights(element);
    }

    fn graph(&mut self, steps: &'f [Step], scope: &mut Scope<'f>, depth: usize) -> Result<(), NetworkError> {
        if depth > MAX_DEPTH {
            return Err(NetworkError::TooMany { what: "functions in functions", limit: MAX_DEPTH as u64 });
        }
        for place in order(steps, scope)? {
            self.step(&steps[place], scope, depth)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &'f Step, scope: &mut Scope<'f>, depth: usize) -> Result<(), NetworkError> {
        let names = step.name.len() + step.outputs.iter().map(String::len).sum::<usize>();
        let references = step.attributes.len().saturating_mul(scope.attributes.len());
        self.count(1 + step.inputs.len() + step.outputs.len() + names / NAME_BYTES + references)?;
        let mut inputs = Vec::with_capacity(step.inputs.len());
        for name in &step.inputs {
            inputs.push(match name.as_str() {
                "" => None,
                name => Some(*scope.names.get(name).ok_or_else(|| unwritten(step, name, NOTHING_WRITES))?),
            });
        }
        let attributes = step.attributes.iter().filter_map(|(name, value)| match value {
            Attribute::Reference(outer) => {
                let found = scope.attributes.iter().find(|(of, _)| of == outer);
                found.map(|(_, value)| (name.clone(), *value))
            }
            value => Some((name.clone(), value)),
        });
        let attributes: Vec<_> = attributes.collect();
        if let Some(function) = self.file.functions.get(&(step.domain.clone(), step.operator.clone())) {
            let mut inside = Scope::default();
            for (name, input) in function.inputs.iter().zip(&inputs) {
                inside.names.extend(input.map(|input| (name.as_str(), input)));
            }
            inside.attributes = attributes;
            inside.attributes.extend(function.defaults.iter().map(|(name, value)| (name.clone(), value)));
            self.graph(&function.nodes, &mut inside, depth + 1)?;
            return bind(step, &function.outputs, &inside, scope);
        }
        let operator = match step.domain.as_str() {
            "" | "com.microsoft" => Operator::of_name(&step.operator),
            domain => Operator::Other(format!("{domain}.{}", step.operator)),
        };
        match operator {
            Operator::If => self.branch(step, &attributes, &inputs, scope, depth),
            Operator::Loop | Operator::Scan => Err(subgraph(step)),
            operator => self.node(step, operator, &attributes, &inputs, scope),
        }
    }

    /// Puts the branch in place that a constant condition picks. Where only a run knows it, the node stays, with results of
    /// unknown sizes, unless much of the work may be in its branches.
    fn branch(
        &mut self,
        step: &'f Step,
        attributes: &[(String, &'f Attribute)],
        inputs: &[Option<usize>],
        scope: &mut Scope<'f>,
        depth: usize,
    ) -> Result<(), NetworkError> {
        let condition = inputs
            .first()
            .copied()
            .flatten()
            .and_then(|id| self.drafts[id].fact.values.as_ref()?.first().copied()?);
        let name = match condition {
            Some(0.0) => "else_branch",
            Some(_) => "then_branch",
            None if is_small(step) => return self.node(step, Operator::If, attributes, inputs, scope),
            None => return Err(subgraph(step)),
        };
        let branch = attributes.iter().find(|(of, _)| of == name);
        let Some((_, Attribute::Graph(branch))) = branch else { return Err(subgraph(step)) };
        self.count(scope.names.len() + branch.initializers.len())?;
        let mut inside = scope.clone();
        for stored in &branch.initializers {
            self.initializer(stored, &mut inside)?;
        }
        self.graph(&branch.nodes, &mut inside, depth + 1)?;
        let outputs: Vec<_> = branch.outputs.iter().map(|output| output.name.clone()).collect();
        bind(step, &outputs, &inside, scope)
    }

    fn node(
        &mut self,
        step: &'f Step,
        operator: Operator,
        attributes: &[(String, &'f Attribute)],
        inputs: &[Option<usize>],
        scope: &mut Scope<'f>,
    ) -> Result<(), NetworkError> {
        let facts: Vec<_> = inputs.iter().map(|id| id.map(|id| &self.drafts[id].fact)).collect();
        let outputs = step.outputs.len();
        let call = Call { operator: &operator, opset: self.opset, attributes, inputs: &facts, outputs };
        let wrong = |reason| NetworkError::Shape {
            node: name_of(step).to_owned(),
            operator: step.operator.clone(),
            reason,
        };
        let mut results = rules::infer(&call).map_err(wrong)?;
        results.resize_with(outputs, || Fact::unknown(ElementType::Unknown));
        let described = work::describe(&call).map_err(wrong)?;
        let is_random = step.operator.starts_with("Random") || matches!(operator, Operator::Other(_));
        let is_folded = !is_random
            && (inputs.iter().flatten().all(|id| self.drafts[*id].is_constant)
                || results.iter().all(Fact::is_known));
        let is_stored = operator == Operator::Constant;
        let is_weight = is_folded
            && inputs.iter().flatten().any(|id| self.drafts[*id].is_weight)
            && !matches!(operator.kind(), Kind::Other)
            && !matches!(operator, Operator::Shape | Operator::Size);
        let mut written = Vec::new();
        for (name, mut fact) in step.outputs.iter().zip(results) {
            if name.is_empty() {
                continue;
            }
            self.complete(name, &mut fact);
            if is_too_large(&fact) {
                return Err(NetworkError::TooLarge(name.clone()));
            }
            let id = self.add(name, fact, is_folded);
            let draft = &mut self.drafts[id];
            draft.is_weight = is_weight && can_be_weights(draft.fact.element);
            draft.producer = (!is_folded).then_some(self.nodes.len());
            if is_stored {
                self.store(id);
                self.drafts[id].is_inline = true;
            }
            if scope.names.insert(name, id).is_some() {
                return Err(NetworkError::WrittenTwice(name.clone()));
            }
            written.push(TensorId(id));
        }
        for (place, id) in inputs.iter().enumerate() {
            let Some(id) = *id else { continue };
            let draft = &mut self.drafts[id];
            draft.is_parameter |= draft.is_stored && draft.is_weight_of(&operator, place);
        }
        if is_folded {
            self.folded += usize::from(!is_stored);
            return Ok(());
        }
        let mut node = Node {
            name: step.name.chars().take(MAX_NAME).collect(),
            operator,
            inputs: inputs.iter().map(|id| id.map(TensorId)).collect(),
            outputs: written,
            convolution: described.convolution,
            product: described.product,
            window: described.window,
            axis: described.axis,
            flops: None,
            weight_elements: 0,
            weight_bytes: 0,
            precision: None,
        };
        let mut weights = BTreeSet::new();
        for (place, id) in node.inputs.iter().enumerate() {
            let Some(TensorId(id)) = *id else { continue };
            if self.drafts[id].is_weight_of(&node.operator, place) && weights.insert(id) {
                let tensor = self.drafts[id].tensor();
                node.weight_elements = node.weight_elements.saturating_add(tensor.elements().unwrap_or(0));
                node.weight_bytes = node.weight_bytes.saturating_add(tensor.bytes().unwrap_or(0));
            }
        }
        let tensor = |id: &TensorId| &self.drafts[id.0].fact;
        let read: Vec<_> = node.inputs.iter().map(|id| id.as_ref().map(tensor)).collect();
        let wrote: Vec<_> = node.outputs.iter().map(tensor).collect();
        node.flops = work::flops(&node, &read, &wrote, described.multiply_adds).map_err(wrong)?;
        node.precision = work::precision(&node.operator, &read, &wrote);
        self.nodes.push(node);
        Ok(())
    }

    /// Takes what the exporter noted on a tensor for what no rule says, and leaves out numbers that would be too many.
    fn complete(&mut self, name: &str, fact: &mut Fact) {
        self.kept += fact.values.as_ref().map_or(0, Vec::len);
        if self.kept > MAX_KEPT {
            fact.values = None;
        }
        if let Some(note) = self.notes.get(name) {
            if fact.element == ElementType::Unknown {
                fact.element = ElementType::of_number(note.element);
            }
            if fact.sizes().is_none() {
                let fixed = |size: &Size| if let Size::Fixed(size) = size { Some(*size) } else { None };
                let noted: Option<Vec<_>> =
                    note.dims.as_ref().and_then(|dims| dims.iter().map(fixed).collect());
                if let Some(noted) = noted {
                    fact.dims = Some(noted.into_iter().map(Some).collect());
                }
            }
        }
    }

    fn finish(self, name: &str, inputs: Vec<usize>, outputs: Vec<usize>) -> Network {
        let (mut parameters, mut weight_bytes) = (0_u64, 0_u64);
        let mut tensors: Vec<Tensor> = Vec::with_capacity(self.drafts.len());
        for draft in &self.drafts {
            let tensor = draft.tensor();
            if draft.is_parameter {
                parameters = parameters.saturating_add(tensor.elements().unwrap_or(0));
                weight_bytes = weight_bytes.saturating_add(tensor.bytes().unwrap_or(0));
            }
            tensors.push(tensor);
        }
        for (place, node) in self.nodes.iter().enumerate() {
            for TensorId(id) in node.reads() {
                let consumers = &mut tensors[id].consumers;
                if consumers.last() != Some(&NodeId(place)) {
                    consumers.push(NodeId(place));
                }
            }
        }
        Network {
            name: name.to_owned(),
            writer: self.file.writer.clone(),
            opset: self.opset,
            open_inputs: Vec::new(),
            inputs: inputs.into_iter().map(TensorId).collect(),
            outputs: outputs.into_iter().map(TensorId).collect(),
            tensors,
            nodes: self.nodes,
            folded_nodes: self.folded,
            parameters,
            weight_bytes,
            missing: self.file.beside.clone(),
        }
    }
}

impl Draft {
    fn tensor(&self) -> Tensor {
        Tensor {
            name: self.name.clone(),
            dims: self.fact.sizes(),
            element: self.fact.element,
            quantised: self.fact.quantised,
            constant: self.is_constant,
            producer: self.producer.map(NodeId),
            consumers: Vec::new(),
        }
    }

    /// Whether the operator reads trained numbers from this tensor: neither scales nor indices nor limits.
    fn is_weight_of(&self, operator: &Operator, place: usize) -> bool {
        if !self.is_constant {
            return false;
        }
        match operator {
            Operator::DequantizeLinear => place == 0,
            Operator::QLinearConv => place == 3 || place == 8,
            Operator::QLinearMatMul => place == 3,
            Operator::QuantizeLinear | Operator::Pad => place == 0 && self.is_weight,
            Operator::ConvInteger | Operator::MatMulInteger => place <= 1 && self.is_weight,
            operator if self.is_inline && operator.kind() == Kind::Elementwise => false,
            operator if operator.kind() == Kind::Resampling => place == 0 && self.is_weight,
            _ => self.is_weight,
        }
    }
}

const fn can_be_weights(element: ElementType) -> bool {
    element.is_float() || element.is_narrow()
}

/// Gives a node's outputs the meaning that names have in the graph it stands for.
fn bind<'f>(
    step: &'f Step,
    outputs: &[String],
    inside: &Scope<'f>,
    scope: &mut Scope<'f>,
) -> Result<(), NetworkError> {
    for (outer, inner) in step.outputs.iter().zip(outputs) {
        if outer.is_empty() {
            continue;
        }
        let id = inside.names.get(inner.as_str()).ok_or_else(|| unwritten(step, inner, NOTHING_WRITES))?;
        if scope.names.insert(outer, *id).is_some() {
            return Err(NetworkError::WrittenTwice(outer.clone()));
        }
    }
    Ok(())
}

const NOTHING_WRITES: &str = "which nothing writes";

fn unwritten(step: &Step, tensor: &str, reason: &'static str) -> NetworkError {
    NetworkError::Unwritten { node: name_of(step).to_owned(), tensor: tensor.to_owned(), reason }
}

fn subgraph(step: &Step) -> NetworkError {
    NetworkError::Subgraph { node: name_of(step).to_owned(), operator: step.operator.clone() }
}

/// Whether branches only select and arrange, as those behind the selection of boxes do: neither convolutions, products nor functions.
fn is_small(step: &Step) -> bool {
    let graphs = step.attributes.iter().filter_map(|(_, attribute)| match attribute {
        Attribute::Graph(graph) => Some(graph),
        _ => None,
    });
    graphs.flat_map(|graph| &graph.nodes).all(|step| match Operator::of_name(&step.operator) {
        Operator::If => is_small(step),
        Operator::Other(_) | Operator::Loop | Operator::Scan => false,
        operator => !matches!(operator.kind(), Kind::Convolution | Kind::Product) && step.domain.is_empty(),
    })
}

/// A node's name, or that of its first output where it has none.
fn name_of(step: &Step) -> &str {
    if step.name.is_empty() { step.outputs.first().map_or("", String::as_str) } else { &step.name }
}

/// The places of `steps` in an order in which each runs after those that it reads from; that of the file where it can be.
fn order(steps: &[Step], scope: &Scope<'_>) -> Result<Vec<usize>, NetworkError> {
    let mut writer = BTreeMap::new();
    for (place, step) in steps.iter().enumerate() {
        for output in step.outputs.iter().filter(|output| !output.is_empty()) {
            if writer.insert(output.as_str(), place).is_some() {
                return Err(NetworkError::WrittenTwice(output.clone()));
            }
        }
    }
    let mut waits = vec![0_usize; steps.len()];
    let mut followers = vec![Vec::new(); steps.len()];
    for (place, step) in steps.iter().enumerate() {
        let mut names = BTreeSet::new();
        collect_reads(step, &mut names);
        for before in
            names.iter().filter(|name| !scope.names.contains_key(*name)).filter_map(|name| writer.get(name))
        {
            waits[place] += 1;
            followers[*before].push(place);
        }
    }
    let mut ready: BinaryHeap<_> = (0..steps.len()).filter(|place| waits[*place] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(Reverse(place)) = ready.pop() {
        order.push(place);
        for follower in &followers[place] {
            waits[*follower] -= 1;
            if waits[*follower] == 0 {
                ready.push(Reverse(*follower));
            }
        }
    }
    match (0..steps.len()).find(|place| waits[*place] > 0) {
        None => Ok(order),
        Some(stuck) => {
            let step = &steps[stuck];
            let tensor = step.inputs.iter().find(|name| writer.contains_key(name.as_str()));
            Err(unwritten(step, tensor.map_or("", String::as_str), "which depends on that node"))
        }
    }
}

/// The names that a node reads, those of its branches included.
fn collect_reads<'f>(step: &'f Step, names: &mut BTreeSet<&'f str>) {
    names.extend(step.inputs.iter().map(String::as_str).filter(|name| !name.is_empty()));
    for (_, attribute) in &step.attributes {
        if let Attribute::Graph(graph) = attribute {
            for step in &graph.nodes {
                collect_reads(step, names);
            }
        }
    }
}
