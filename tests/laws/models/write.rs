//! Writers of small GGUF and safetensors files.

use std::fmt::Write;

/// A value of GGUF metadata.
#[derive(Debug, Clone)]
pub enum Val {
    U32(u32),
    Text(&'static str),
    Numbers(Vec<u32>),
    Bools(Vec<bool>),
    Texts(usize),
}

#[derive(Debug, Clone)]
pub struct Gguf {
    pub version: u32,
    pub big_endian: bool,
    pub pairs: Vec<(String, Val)>,
    /// Name, dimensions with the contiguous first, type, bytes.
    pub tensors: Vec<(String, Vec<u64>, u32, u64)>,
}

pub const F32: u32 = 0;
pub const F16: u32 = 1;
pub const Q8_0: u32 = 8;
pub const Q4_K: u32 = 12;
pub const Q6_K: u32 = 14;
pub const MXFP4: u32 = 39;

/// Elements and bytes of a block by the format's definition.
pub fn block(kind: u32) -> (u64, u64) {
    match kind {
        F32 => (1, 4),
        F16 => (1, 2),
        Q8_0 => (32, 34),
        Q4_K => (256, 144),
        Q6_K => (256, 210),
        MXFP4 => (32, 17),
        _ => panic!("the writer does not know type {kind}"),
    }
}

impl Gguf {
    pub fn new(architecture: &'static str) -> Self {
        let pairs = vec![("general.architecture".to_owned(), Val::Text(architecture))];
        Self { version: 3, big_endian: false, pairs, tensors: Vec::new() }
    }

    pub fn pair(mut self, key: &str, value: Val) -> Self {
        self.pairs.push((key.to_owned(), value));
        self
    }

    pub fn numbers(self, prefix: &str, pairs: &[(&str, u32)]) -> Self {
        pairs.iter().fold(self, |file, (key, value)| file.pair(&format!("{prefix}.{key}"), Val::U32(*value)))
    }

    pub fn tensor(mut self, name: &str, dimensions: &[u64], kind: u32) -> Self {
        let (elements, bytes) = block(kind);
        let count: u64 = dimensions.iter().product();
        self.tensors.push((name.to_owned(), dimensions.to_vec(), kind, count / elements * bytes));
        self
    }

    /// Bytes of all tensors whose name contains one of these.
    pub fn sum(&self, parts: &[&str]) -> u64 {
        let wanted = |name: &str| parts.iter().any(|part| name.contains(part));
        self.tensors.iter().filter(|(name, ..)| wanted(name)).map(|(.., bytes)| bytes).sum()
    }

    /// The header and the length that the whole file would have.
    pub fn header(&self) -> (Vec<u8>, u64) {
        let mut out = Bytes { bytes: b"GGUF".to_vec(), big: self.big_endian, short: self.version == 1 };
        out.u32(self.version);
        out.length(self.tensors.len() as u64);
        out.length(self.pairs.len() as u64);
        for (key, value) in &self.pairs {
            out.text(key);
            out.value(value);
        }
        let mut offset = 0u64;
        for (name, dimensions, kind, bytes) in &self.tensors {
            out.text(name);
            out.u32(u32::try_from(dimensions.len()).unwrap());
            dimensions.iter().for_each(|length| out.length(*length));
            out.u32(*kind);
            out.u64(offset);
            offset += bytes.next_multiple_of(32);
        }
        let data = (out.bytes.len() as u64).next_multiple_of(32);
        (out.bytes, data + offset)
    }

    /// The whole file, with zeros for data.
    pub fn file(&self) -> Vec<u8> {
        let (mut bytes, length) = self.header();
        bytes.resize(usize::try_from(length).unwrap(), 0);
        bytes
    }
}

struct Bytes {
    bytes: Vec<u8>,
    big: bool,
    short: bool,
}

impl Bytes {
    fn u32(&mut self, value: u32) {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
    }
    fn u64(&mut self, value: u64) {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
    }
    fn length(&mut self, value: u64) {
        if self.short { self.u32(u32::try_from(value).unwrap()) } else { self.u64(value) }
    }
    fn text(&mut self, text: &str) {
        self.length(text.len() as u64);
        self.bytes.extend(text.bytes());
    }
    fn value(&mut self, value: &Val) {
        match value {
            Val::U32(number) => {
                self.u32(4);
                self.u32(*number);
            }
            Val::Text(text) => {
                self.u32(8);
                self.text(text);
            }
            Val::Numbers(numbers) => {
                self.u32(9);
                self.u32(4);
                self.length(numbers.len() as u64);
                numbers.iter().for_each(|number| self.u32(*number));
            }
            Val::Bools(flags) => {
                self.u32(9);
                self.u32(7);
                self.length(flags.len() as u64);
                self.bytes.extend(flags.iter().map(|flag| u8::from(*flag)));
            }
            Val::Texts(count) => {
                self.u32(9);
                self.u32(8);
                self.length(*count as u64);
                (0..*count).for_each(|index| self.text(&format!("token{index}")));
            }
        }
    }
}

/// A llama of two layers: 256 wide, 4 heads of 64 on 2, 512 inside, 96 tokens; `output.weight` unless tied.
pub fn llama(tied: bool) -> Gguf {
    let mut file = Gguf::new("llama")
        .pair("general.name", Val::Text("Small Llama"))
        .pair("general.file_type", Val::U32(15))
        .numbers(
            "llama",
            &[
                ("block_count", 2),
                ("embedding_length", 256),
                ("feed_forward_length", 512),
                ("attention.head_count", 4),
                ("attention.head_count_kv", 2),
                ("context_length", 2048),
            ],
        )
        .pair("tokenizer.ggml.tokens", Val::Texts(96))
        .tensor("token_embd.weight", &[256, 96], if tied { Q6_K } else { Q4_K })
        .tensor("output_norm.weight", &[256], F32);
    if !tied {
        file = file.tensor("output.weight", &[256, 96], Q6_K);
    }
    for layer in 0..2 {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        file = file
            .tensor(&name("attn_norm"), &[256], F32)
            .tensor(&name("ffn_norm"), &[256], F32)
            .tensor(&name("attn_q"), &[256, 256], Q4_K)
            .tensor(&name("attn_k"), &[256, 128], Q4_K)
            .tensor(&name("attn_v"), &[256, 128], if layer == 1 { Q6_K } else { Q4_K })
            .tensor(&name("attn_output"), &[256, 256], Q4_K)
            .tensor(&name("ffn_gate"), &[256, 512], Q4_K)
            .tensor(&name("ffn_up"), &[256, 512], Q4_K)
            .tensor(&name("ffn_down"), &[512, 256], if layer == 1 { Q6_K } else { Q4_K });
    }
    file
}

/// Bytes of one element of a safetensors type, as two for the half.
fn half_bytes(dtype: &str) -> u64 {
    match dtype {
        "F64" | "I64" => 16,
        "F32" | "I32" => 8,
        "F16" | "BF16" => 4,
        "F4" => 1,
        _ => 2,
    }
}

/// A safetensors file under construction: name, type, shape.
#[derive(Debug, Clone, Default)]
pub struct Safetensors {
    pub tensors: Vec<(String, &'static str, Vec<u64>)>,
}

impl Safetensors {
    pub fn tensor(mut self, name: &str, dtype: &'static str, shape: &[u64]) -> Self {
        self.tensors.push((name.to_owned(), dtype, shape.to_vec()));
        self
    }

    pub fn bytes_of(dtype: &str, shape: &[u64]) -> u64 {
        shape.iter().product::<u64>() * half_bytes(dtype) / 2
    }

    pub fn sum(&self, part: &str) -> u64 {
        let tensors = self.tensors.iter().filter(|(name, ..)| name.contains(part));
        tensors.map(|(_, dtype, shape)| Self::bytes_of(dtype, shape)).sum()
    }

    pub fn header(&self) -> (Vec<u8>, u64) {
        let mut json = String::from("{\"__metadata__\":{\"format\":\"pt\"}");
        let mut offset = 0;
        for (name, dtype, shape) in &self.tensors {
            let end = offset + Self::bytes_of(dtype, shape);
            write!(
                json,
                ",\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{offset},{end}]}}"
            )
            .unwrap();
            offset = end;
        }
        json.push('}');
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend(json.bytes());
        let length = bytes.len() as u64 + offset;
        (bytes, length)
    }

    pub fn file(&self) -> Vec<u8> {
        let (mut bytes, length) = self.header();
        bytes.resize(usize::try_from(length).unwrap(), 0);
        bytes
    }
}

/// A safetensors header of this JSON before `data` bytes.
pub fn raw_safetensors(json: &str, data: u64) -> (Vec<u8>, u64) {
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend(json.bytes());
    let length = bytes.len() as u64 + data;
    (bytes, length)
}
