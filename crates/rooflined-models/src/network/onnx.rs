//! An ONNX file as it is stored: graphs, nodes, attributes and the sizes of weights.
//!
//! Field numbers are those of `onnx.proto3` (<https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3>). Numbers of a tensor
//! are read where there are at most [`MAX_VALUES`]: shapes depend on those.

use std::collections::HashMap;
use std::io::{Read, Seek};

use half::{bf16, f16};

use super::element::ElementType;
use super::error::NetworkError;
use super::wire::{Field, Span, Wire};

/// Most numbers of a tensor that are read or computed.
pub const MAX_VALUES: u64 = 1024;
/// Deepest graph in a graph.
const MAX_DEPTH: usize = 12;
/// Most files with values of tensors that are named.
const MAX_FILES: usize = 16;
/// Most dimensions of a tensor.
pub const MAX_RANK: usize = 32;

/// Numbers of a tensor by their place; `None` for one that is not known.
pub type Values = Vec<Option<f64>>;

#[derive(Debug, Default)]
pub struct File {
    pub writer: String,
    /// Version of each operator set by its domain; the default one is empty.
    pub opsets: Vec<(String, u64)>,
    pub graph: Graph,
    pub functions: HashMap<(String, String), Function>,
    /// Files that hold values of tensors, by their paths from the file's own directory.
    pub beside: Vec<String>,
}

/// A local function: a graph under a name, which nodes call.
#[derive(Debug, Default)]
pub struct Function {
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub nodes: Vec<Step>,
    /// Attributes with a default.
    pub defaults: Vec<(String, Attribute)>,
}

#[derive(Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Step>,
    pub initializers: Vec<Stored>,
    pub inputs: Vec<Declared>,
    pub outputs: Vec<Declared>,
    /// What exporters noted on tensors in between.
    pub notes: Vec<Declared>,
}

/// A node as it is stored.
#[derive(Debug, Default)]
pub struct Step {
    pub name: String,
    pub operator: String,
    /// Empty for the default one.
    pub domain: String,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub attributes: Vec<(String, Attribute)>,
}

#[derive(Debug)]
pub enum Attribute {
    Int(i64),
    Float(f64),
    Text(String),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Tensor(Stored),
    Graph(Box<Graph>),
    /// The attribute of this name of the function around it.
    Reference(String),
    /// Strings, and types that no rule asks for.
    Other,
}

/// A tensor in the file.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    pub name: String,
    pub dims: Vec<u64>,
    /// Number of its type.
    pub element: u64,
    /// `None` where there are many, or they lie in another file.
    pub values: Option<Values>,
}

/// A tensor's name with its type and, where they are given, its sizes.
#[derive(Debug, Default)]
pub struct Declared {
    pub name: String,
    /// Number of its type; 0 for sequences and the like.
    pub element: u64,
    pub dims: Option<Vec<Size>>,
}

/// A declared size.
#[derive(Debug, Clone)]
pub enum Size {
    Fixed(u64),
    Named(String),
    Unnamed,
}

impl<R: Read + Seek> Wire<R> {
    pub fn file(&mut self) -> Result<File, NetworkError> {
        let mut file = File::default();
        let (mut version, message) = (String::new(), self.whole());
        while let Some((number, field)) = self.field(message)? {
            match (number, field) {
                (2, Field::Bytes(span)) => file.writer = self.text(span)?,
                (3, Field::Bytes(span)) => version = self.text(span)?,
                (7, Field::Bytes(span)) => file.graph = self.graph(span, 0)?,
                (8, Field::Bytes(span)) => {
                    let (mut domain, mut version) = (String::new(), 0);
                    while let Some((number, field)) = self.field(span)? {
                        match (number, field) {
                            (1, Field::Bytes(span)) => domain = self.text(span)?,
                            (2, Field::Varint(value)) => version = value,
                            _ => self.skip(field)?,
                        }
                    }
                    self.keep_item()?;
                    file.opsets.push((default_domain(domain), version));
                }
                (25, Field::Bytes(span)) => {
                    let (key, function) = self.function(span)?;
                    file.functions.insert(key, function);
                }
                _ => self.skip(field)?,
            }
        }
        if !version.is_empty() {
            file.writer = format!("{} {version}", file.writer);
        }
        if file.graph.nodes.is_empty() || file.opsets.is_empty() {
            return Err(NetworkError::NotOnnx("it holds no graph with nodes and no operator set".to_owned()));
        }
        file.beside = std::mem::take(&mut self.beside).into_iter().collect();
        Ok(file)
    }

    fn function(&mut self, message: Span) -> Result<((String, String), Function), NetworkError> {
        let mut function = Function::default();
        let (mut name, mut domain) = (String::new(), String::new());
        while let Some((number, field)) = self.field(message)? {
            let Field::Bytes(span) = field else { continue };
            match number {
                1 => name = self.text(span)?,
                4 => function.inputs.push(self.text(span)?),
                5 => function.outputs.push(self.text(span)?),
                7 => function.nodes.push(self.step(span, 0)?),
                10 => domain = self.text(span)?,
                11 => function.defaults.push(self.attribute(span, 0)?),
                _ => self.skip(field)?,
            }
        }
        Ok(((default_domain(domain), name), function))
    }

    fn graph(&mut self, message: Span, depth: usize) -> Result<Graph, NetworkError> {
        if depth > MAX_DEPTH {
            return Err(NetworkError::TooMany { what: "graphs in graphs", limit: MAX_DEPTH as u64 });
        }
        let mut graph = Graph::default();
        while let Some((number, field)) = self.field(message)? {
            let Field::Bytes(span) = field else { continue };
            match number {
                1 => graph.nodes.push(self.step(span, depth)?),
                5 => graph.initializers.push(self.tensor(span)?),
                11 => graph.inputs.push(self.declared(span)?),
                12 => graph.outputs.push(self.declared(span)?),
                13 => graph.notes.push(self.declared(span)?),
                15 => graph.initializers.push(self.sparse(span)?),
                _ => self.skip(field)?,
            }
        }
        Ok(graph)
    }

    fn step(&mut self, message: Span, depth: usize) -> Result<Step, NetworkError> {
        self.keep_item()?;
        let mut step = Step::default();
        while let Some((number, field)) = self.field(message)? {
            let Field::Bytes(span) = field else { continue };
            match number {
                1 => step.inputs.push(self.text(span)?),
                2 => step.outputs.push(self.text(span)?),
                3 => step.name = self.text(span)?,
                4 => step.operator = self.text(span)?,
                5 => step.attributes.push(self.attribute(span, depth)?),
                7 => step.domain = default_domain(self.text(span)?),
                _ => self.skip(field)?,
            }
        }
        Ok(step)
    }

    fn attribute(&mut self, message: Span, depth: usize) -> Result<(String, Attribute), NetworkError> {
        self.keep_item()?;
        let (mut name, mut kind, mut value) = (String::new(), 0, Attribute::Other);
        let (mut ints, mut floats) = (Vec::new(), Vec::new());
        while let Some((number, field)) = self.field(message)? {
            match (number, field) {
                (1, Field::Bytes(span)) => name = self.text(span)?,
                (2, Field::Fixed32(bits)) => value = Attribute::Float(f32::from_bits(bits).into()),
                (3, Field::Varint(number)) => value = Attribute::Int(number.cast_signed()),
                (4, Field::Bytes(span)) => value = Attribute::Text(self.text(span)?),
                (5, Field::Bytes(span)) => value = Attribute::Tensor(self.tensor(span)?),
                (6, Field::Bytes(span)) => value = Attribute::Graph(Box::new(self.graph(span, depth + 1)?)),
                (7, _) => self.floats(field, &mut floats)?,
                (8, _) => self.ints(field, &mut ints)?,
                (20, Field::Varint(number)) => kind = number,
                (21, Field::Bytes(span)) => value = Attribute::Reference(self.text(span)?),
                _ => self.skip(field)?,
            }
        }
        // Empty lists leave no field behind, and neither does a zero in some files.
        let value = match (kind, value) {
            (_, value @ Attribute::Reference(_)) => value,
            (7, _) => Attribute::Ints(ints),
            (6, _) => Attribute::Floats(floats),
            (1, Attribute::Other) => Attribute::Float(0.0),
            (2, Attribute::Other) => Attribute::Int(0),
            (3, Attribute::Other) => Attribute::Text(String::new()),
            (0, Attribute::Other) if !ints.is_empty() => Attribute::Ints(ints),
            (0, Attribute::Other) if !floats.is_empty() => Attribute::Floats(floats),
            (_, value) => value,
        };
        Ok((name, value))
    }

    fn ints(&mut self, field: Field, into: &mut Vec<i64>) -> Result<(), NetworkError> {
        match field {
            Field::Varint(number) => {
                self.keep_item()?;
                into.push(number.cast_signed());
            }
            Field::Bytes(span) => {
                let mut at = span.start;
                while at < span.end {
                    self.keep_item()?;
                    into.push(self.varint(span.end)?.cast_signed());
                    at = self.place();
                }
            }
            Field::Fixed32(_) | Field::Fixed64(_) => {}
        }
        Ok(())
    }

    fn floats(&mut self, field: Field, into: &mut Vec<f64>) -> Result<(), NetworkError> {
        match field {
            Field::Fixed32(bits) => {
                self.keep_item()?;
                into.push(f32::from_bits(bits).into());
            }
            Field::Bytes(span) => {
                for _ in 0..span.length() / 4 {
                    self.keep_item()?;
                    into.push(f32::from_le_bytes(self.array(span.end)?).into());
                }
                self.seek(span.end)?;
            }
            Field::Varint(_) | Field::Fixed64(_) => {}
        }
        Ok(())
    }

    fn sparse(&mut self, message: Span) -> Result<Stored, NetworkError> {
        let (mut stored, mut dims) = (Stored::default(), Vec::new());
        while let Some((number, field)) = self.field(message)? {
            match (number, field) {
                (1, Field::Bytes(span)) => stored = self.tensor(span)?,
                (3, _) => self.ints(field, &mut dims)?,
                _ => self.skip(field)?,
            }
        }
        Ok(Stored { dims: sizes(&dims)?, values: None, ..stored })
    }

    fn tensor(&mut self, message: Span) -> Result<Stored, NetworkError> {
        self.keep_item()?;
        let (mut stored, mut dims) = (Stored::default(), Vec::new());
        let (mut raw, mut typed, mut is_elsewhere) = (None, Vec::new(), false);
        while let Some((number, field)) = self.field(message)? {
            match (number, field) {
                (1, _) => self.ints(field, &mut dims)?,
                (2, Field::Varint(number)) => stored.element = number,
                (4 | 5 | 7 | 10 | 11, _) => {
                    // One number a field, or all in one.
                    if typed.len() as u64 <= MAX_VALUES {
                        self.keep_item()?;
                        typed.push((number, field));
                    }
                    self.skip(field)?;
                }
                (8, Field::Bytes(span)) => stored.name = self.text(span)?,
                (9, Field::Bytes(span)) => {
                    raw = Some(span);
                    self.skip(field)?;
                }
                (13, Field::Bytes(span)) => self.note_file(span)?,
                (14, Field::Varint(number)) => is_elsewhere = number == 1,
                _ => self.skip(field)?,
            }
        }
        stored.dims = sizes(&dims)?;
        let count = stored.dims.iter().try_fold(1, |product: u64, size| product.checked_mul(*size));
        let element = ElementType::of_number(stored.element);
        let needed = count.zip(element.bits()).map(|(count, bits)| u128::from(count) * u128::from(bits));
        if let (Some(span), Some(bits), false) = (raw, needed, is_elsewhere)
            && ![0, bits.div_ceil(8)].contains(&u128::from(span.length()))
        {
            let needed = u64::try_from(bits.div_ceil(8)).unwrap_or(u64::MAX);
            return Err(NetworkError::Data { tensor: stored.name, stored: span.length(), needed });
        }
        if let Some(count) = count.filter(|count| *count <= MAX_VALUES && !is_elsewhere) {
            let values = match raw {
                Some(span) => self.raw_values(span, element)?,
                None => self.typed_values(&typed, element, count)?,
            };
            stored.values = Some(values).filter(|values| values.len() as u64 == count);
            self.seek(message.end)?;
        }
        Ok(stored)
    }

    /// Where the values of a tensor are: a key and a value.
    fn note_file(&mut self, entry: Span) -> Result<(), NetworkError> {
        let (mut key, mut value) = (String::new(), String::new());
        while let Some((number, field)) = self.field(entry)? {
            match (number, field) {
                (1, Field::Bytes(span)) => key = self.text(span)?,
                (2, Field::Bytes(span)) => value = self.text(span)?,
                _ => self.skip(field)?,
            }
        }
        if key == "location" && self.beside.len() < MAX_FILES {
            self.beside.insert(value);
        }
        Ok(())
    }

    fn raw_values(&mut self, span: Span, element: ElementType) -> Result<Values, NetworkError> {
        if span.length() > MAX_VALUES * 8 {
            return Ok(Vec::new());
        }
        let bytes = self.bytes(span)?;
        Ok(match element {
            ElementType::Float32 => each(&bytes, |b| f32::from_le_bytes(b).into()),
            ElementType::Float64 => each(&bytes, f64::from_le_bytes),
            ElementType::Float16 => each(&bytes, |b| f16::from_le_bytes(b).to_f64()),
            ElementType::Bfloat16 => each(&bytes, |b| bf16::from_le_bytes(b).to_f64()),
            ElementType::Int64 => each(&bytes, |b| i64::from_le_bytes(b) as f64),
            ElementType::Uint64 => each(&bytes, |b| u64::from_le_bytes(b) as f64),
            ElementType::Int32 => each(&bytes, |b| i32::from_le_bytes(b).into()),
            ElementType::Uint32 => each(&bytes, |b| u32::from_le_bytes(b).into()),
            ElementType::Int16 => each(&bytes, |b| i16::from_le_bytes(b).into()),
            ElementType::Uint16 => each(&bytes, |b| u16::from_le_bytes(b).into()),
            ElementType::Int8 => each(&bytes, |b| i8::from_le_bytes(b).into()),
            ElementType::Uint8 | ElementType::Bool => each(&bytes, |[b]| b.into()),
            _ => Vec::new(),
        })
    }

    fn typed_values(
        &mut self,
        fields: &[(u64, Field)],
        element: ElementType,
        count: u64,
    ) -> Result<Values, NetworkError> {
        let mut values = Vec::new();
        // Sixteen-bit floats are stored as the integer of their bits.
        let whole = |number: u64| match element {
            ElementType::Float16 => f16::from_bits(number as u16).to_f64(),
            ElementType::Bfloat16 => bf16::from_bits(number as u16).to_f64(),
            ElementType::Uint64 | ElementType::Uint32 => number as f64,
            _ => number.cast_signed() as f64,
        };
        for (number, field) in fields {
            match (number, *field) {
                (_, Field::Varint(number)) => values.push(Some(whole(number))),
                (_, Field::Fixed32(bits)) => values.push(Some(f32::from_bits(bits).into())),
                (_, Field::Fixed64(bits)) => values.push(Some(f64::from_bits(bits))),
                (number, Field::Bytes(span)) => {
                    self.seek(span.start)?;
                    while self.place() < span.end && values.len() as u64 <= count {
                        values.push(Some(match number {
                            4 => f32::from_le_bytes(self.array(span.end)?).into(),
                            10 => f64::from_le_bytes(self.array(span.end)?),
                            _ => whole(self.varint(span.end)?),
                        }));
                    }
                }
            }
        }
        Ok(values)
    }

    fn declared(&mut self, message: Span) -> Result<Declared, NetworkError> {
        self.keep_item()?;
        let mut declared = Declared::default();
        while let Some((number, field)) = self.field(message)? {
            match (number, field) {
                (1, Field::Bytes(span)) => declared.name = self.text(span)?,
                (2, Field::Bytes(kind)) => {
                    while let Some((number, field)) = self.field(kind)? {
                        match (number, field) {
                            (1, Field::Bytes(tensor)) => self.tensor_type(tensor, &mut declared)?,
                            _ => self.skip(field)?,
                        }
                    }
                }
                _ => self.skip(field)?,
            }
        }
        Ok(declared)
    }

    fn tensor_type(&mut self, message: Span, declared: &mut Declared) -> Result<(), NetworkError> {
        while let Some((number, field)) = self.field(message)? {
            match (number, field) {
                (1, Field::Varint(number)) => declared.element = number,
                (2, Field::Bytes(shape)) => {
                    let mut dims = Vec::new();
                    while let Some((number, field)) = self.field(shape)? {
                        match (number, field) {
                            (1, Field::Bytes(dim)) => dims.push(self.size(dim)?),
                            _ => self.skip(field)?,
                        }
                    }
                    declared.dims = Some(dims);
                }
                _ => self.skip(field)?,
            }
        }
        Ok(())
    }

    fn size(&mut self, message: Span) -> Result<Size, NetworkError> {
        self.keep_item()?;
        let mut size = Size::Unnamed;
        while let Some((number, field)) = self.field(message)? {
            match (number, field) {
                // Some exporters write -1 or 0 for an open size.
                (1, Field::Varint(number)) if number.cast_signed() > 0 => size = Size::Fixed(number),
                (2, Field::Bytes(span)) if span.length() > 0 => size = Size::Named(self.text(span)?),
                _ => self.skip(field)?,
            }
        }
        Ok(size)
    }
}

fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Values {
    bytes.as_chunks().0.iter().map(|chunk| Some(number(*chunk))).collect()
}

fn sizes(dims: &[i64]) -> Result<Vec<u64>, NetworkError> {
    if dims.len() > MAX_RANK {
        return Err(NetworkError::TooMany { what: "dimensions of a tensor", limit: MAX_RANK as u64 });
    }
    let size = |size: &i64| u64::try_from(*size);
    dims.iter()
        .map(size)
        .collect::<Result<_, _>>()
        .map_err(|_| NetworkError::NotOnnx("a tensor has a negative size".to_owned()))
}

/// The default operator set has two names.
fn default_domain(name: String) -> String {
    if name == "ai.onnx" { String::new() } else { name }
}
