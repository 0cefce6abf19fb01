//! A writer of small ONNX files.

/// A message of protocol buffers.
#[derive(Debug, Clone, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    pub fn varint(mut self, mut number: u64) -> Self {
        while number > 0x7f {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
        self
    }

    pub fn int(self, field: u64, value: i64) -> Self {
        self.varint(field << 3).varint(value as u64)
    }

    pub fn bytes(self, field: u64, bytes: &[u8]) -> Self {
        let mut message = self.varint(field << 3 | 2).varint(bytes.len() as u64);
        message.0.extend(bytes);
        message
    }

    pub fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub fn message(self, field: u64, message: &Message) -> Self {
        self.bytes(field, &message.0)
    }

    fn each<T>(self, items: impl IntoIterator<Item = T>, add: impl Fn(Self, T) -> Self) -> Self {
        items.into_iter().fold(self, add)
    }
}

/// An attribute of a node.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    Int(i64),
    Ints(&'a [i64]),
    Text(&'a str),
    Floats(&'a [f32]),
    Graph(Message),
}

/// A size of an input.
#[derive(Debug, Clone, Copy)]
pub enum Dim<'a> {
    Fixed(i64),
    Named(&'a str),
    Open,
}

pub const FLOAT: i64 = 1;
pub const INT8: i64 = 3;
pub const INT64: i64 = 7;
pub const FLOAT16: i64 = 10;
pub const BFLOAT16: i64 = 16;

/// A tensor with these bytes.
pub fn tensor(name: &str, element: i64, dims: &[i64], raw: &[u8]) -> Message {
    let message = Message::default().each(dims, |message, size| message.int(1, *size));
    message.int(2, element).text(8, name).bytes(9, raw)
}

/// A node.
pub fn node(operator: &str, inputs: &[&str], outputs: &[&str], attributes: &[(&str, Value<'_>)]) -> Message {
    let message = Message::default()
        .each(inputs, |message, name| message.text(1, name))
        .each(outputs, |message, name| message.text(2, name));
    message.text(4, operator).each(attributes, |message, (name, value)| {
        let attribute = Message::default().text(1, name);
        let attribute = match value {
            Value::Int(value) => attribute.int(3, *value).int(20, 2),
            Value::Text(text) => attribute.text(4, text).int(20, 3),
            Value::Graph(graph) => attribute.message(6, graph).int(20, 5),
            Value::Ints(values) => {
                attribute.each(*values, |message, value| message.int(8, *value)).int(20, 7)
            }
            Value::Floats(values) => {
                let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                attribute.bytes(7, &packed).int(20, 6)
            }
        };
        message.message(5, &attribute)
    })
}

/// A graph that grows.
#[derive(Debug, Clone, Default)]
pub struct Graph(pub Message);

impl Graph {
    pub fn input(self, name: &str, element: i64, dims: &[Dim<'_>]) -> Self {
        let shape = Message::default().each(dims, |message, dim| {
            let size = match dim {
                Dim::Fixed(size) => Message::default().int(1, *size),
                Dim::Named(name) => Message::default().text(2, name),
                Dim::Open => Message::default(),
            };
            message.message(1, &size)
        });
        let tensor = Message::default().int(1, element).message(2, &shape);
        let declared = Message::default().text(1, name).message(2, &Message::default().message(1, &tensor));
        Self(self.0.message(11, &declared))
    }

    pub fn output(self, name: &str) -> Self {
        Self(self.0.message(12, &Message::default().text(1, name)))
    }

    pub fn node(
        self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, Value<'_>)],
    ) -> Self {
        Self(self.0.message(1, &node(operator, inputs, outputs, attributes)))
    }

    /// Weights without the bytes of their numbers.
    pub fn stored(self, name: &str, element: i64, dims: &[i64], raw: &[u8]) -> Self {
        Self(self.0.message(5, &tensor(name, element, dims, raw)))
    }

    pub fn weights(self, name: &str, element: i64, dims: &[i64]) -> Self {
        Self(self.0.message(5, &tensor(name, element, dims, &[])))
    }

    pub fn ints(self, name: &str, values: &[i64]) -> Self {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self(self.0.message(5, &tensor(name, INT64, &[values.len() as i64], &raw)))
    }

    pub fn floats(self, name: &str, values: &[f32]) -> Self {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self(self.0.message(5, &tensor(name, FLOAT, &[values.len() as i64], &raw)))
    }

    /// The file, for a version of the default operator set.
    pub fn file(&self, opset: i64) -> Vec<u8> {
        self.message(opset).0
    }

    /// The same as a message, which may get more fields.
    pub fn message(&self, opset: i64) -> Message {
        let set = Message::default().text(1, "").int(2, opset);
        Message::default().int(1, 8).text(2, "test").message(7, &self.0).message(8, &set)
    }
}
