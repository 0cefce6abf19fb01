//! Valid files changed in tens of thousands of ways: read or refused, in bounded time, and never more read of them than
//! their header.

use std::io::Read;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rooflined_models::import::config::Config;
use rooflined_models::import::safetensors::{self, Index};
use rooflined_models::import::{ImportError, gguf};
use rooflined_models::model::Model;

use super::write::{Gguf, Safetensors, Val, llama};

/// Longer than any machine needs for a header of a few thousand bytes, however it is changed.
const LONG: Duration = Duration::from_secs(120);

/// Counts what is asked of it.
struct Counted<R> {
    source: R,
    read: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.read += count as u64;
        Ok(count)
    }
}

/// Numbers at the edges of what fits.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    31,
    255,
    65_535,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    (1 << 53) + 1,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Words that mean something to JSON or to the reader.
const WORDS: [&str; 18] = [
    "\"",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "null",
    "-1",
    "1e400",
    "18446744073709551616",
    "\\u0000",
    "\\ud800",
    "\"__metadata__\"",
    "\"re:((((\"",
    "\"../../x\"",
    "\u{0}",
    "[[[[[[[[[[[[[[[[",
];

/// One to six changes: bytes, edges of numbers, words, cuts, doubled and moved pieces.
fn changed(original: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..rng.usize(1..=6) {
        if bytes.is_empty() {
            bytes.push(rng.u8(..));
        }
        let at = rng.usize(..bytes.len());
        let rest = bytes.len() - at;
        match rng.u8(..8) {
            0 => bytes[at] = rng.u8(..),
            1 => bytes[at] ^= 1 << rng.u8(..8),
            2 => {
                let edge = EDGES[rng.usize(..EDGES.len())].to_le_bytes();
                let length = [1, 2, 4, 8][rng.usize(..4)].min(rest);
                bytes[at..at + length].copy_from_slice(&edge[..length]);
            }
            3 => {
                let word = WORDS[rng.usize(..WORDS.len())].bytes();
                let over = rng.usize(..=rest.min(12));
                bytes.splice(at..at + over, word);
            }
            4 => bytes.truncate(at),
            5 => {
                let piece = bytes[at..at + rng.usize(..=rest.min(200))].to_vec();
                let to = rng.usize(..=bytes.len());
                bytes.splice(to..to, piece);
            }
            6 => {
                bytes.drain(at..at + rng.usize(..=rest.min(60)));
            }
            _ => {
                let edge = EDGES[rng.usize(..EDGES.len())].to_string();
                let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                bytes.splice(at..at + digits, edge.bytes());
            }
        }
    }
    bytes
}

/// Reads `count` mutants of each file. A message must be short, and what became a model must hold together.
fn survive(
    files: &[Vec<u8>],
    count: usize,
    seed: u64,
    read: impl Fn(&[u8]) -> Result<Option<Model>, ImportError>,
) {
    let mut rng = Rng::with_seed(seed);
    let (mut models, mut refused) = (0, 0);
    // Under emulation a tenth of them: what differs between processors is not what a reader does with bytes.
    let count = if cfg!(target_arch = "x86_64") { count } else { count / 10 };
    for file in files {
        read(file).unwrap();
        for _ in 0..count {
            let bytes = changed(file, &mut rng);
            let started = Instant::now();
            match read(&bytes) {
                Ok(Some(model)) => {
                    models += 1;
                    assert!(model.bytes_per_token().get() <= model.bytes().get());
                    assert!(
                        model
                            .kv_bytes_per_token(rooflined_core::precision::WeightFormat::Fp16)
                            .get()
                            .is_finite()
                    );
                }
                Ok(None) => {}
                Err(error) => {
                    refused += 1;
                    let message = error.to_string();
                    assert!(message.len() < 1000 && !error.hint().is_empty(), "{message}");
                }
            }
            assert!(started.elapsed() < LONG, "{:?}", bytes.escape_ascii().to_string());
        }
    }
    println!("{models} models, {refused} refused");
    assert!(refused > 0);
}

fn experts() -> Gguf {
    llama(true)
        .numbers("llama", &[("expert_count", 4), ("expert_used_count", 2), ("attention.sliding_window", 64)])
        .pair("llama.attention.sliding_window_pattern", Val::Bools(vec![true, false]))
        .tensor("blk.0.ffn_gate_inp.weight", &[256, 4], super::write::F32)
        .tensor("blk.0.ffn_up_exps.weight", &[256, 512, 4], super::write::Q4_K)
}

#[test]
fn thousands_of_changed_gguf_files() {
    let versions = [(1, false), (2, false), (3, false), (3, true)];
    let mut files: Vec<_> = versions
        .iter()
        .map(|(version, big_endian)| {
            Gguf { version: *version, big_endian: *big_endian, ..llama(false) }.header()
        })
        .collect();
    files.push(experts().header());
    let length = files.iter().map(|(_, length)| *length).max().unwrap();
    let headers: Vec<_> = files.into_iter().map(|(header, _)| header).collect();
    survive(&headers, 4000, 20_261_122, |bytes| {
        let mut source = Counted { source: bytes, read: 0 };
        let header = gguf::read(&mut source, length);
        assert!(source.read <= bytes.len() as u64);
        gguf::model(&header?, "x-q4_k_m.gguf").map(Some)
    });
}

#[test]
fn thousands_of_changed_checkpoints_and_indices() {
    let file = Safetensors::default()
        .tensor("model.embed_tokens.weight", "BF16", &[96, 64])
        .tensor("model.layers.0.self_attn.q_proj.qweight", "I32", &[8, 64])
        .tensor("model.layers.0.self_attn.q_proj.scales", "F16", &[1, 64])
        .tensor("model.layers.0.self_attn.k_proj.weight", "BF16", &[32, 64])
        .tensor("model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", &[4, 128, 2, 16])
        .tensor("model.layers.0.mlp.down_proj.weight", "F8_E4M3", &[64, 128]);
    let (header, length) = file.header();
    survive(&[header], 8000, 1, |bytes| {
        let tensors = safetensors::read(bytes, length.max(bytes.len() as u64))?;
        safetensors::model(&tensors, None, "x").map(Some)
    });
    let index = br#"{"metadata":{"total_size":1},"weight_map":{"a.b":"model-00001-of-00002.safetensors","c":"m.safetensors"}}"#;
    survive(&[index.to_vec()], 8000, 2, |bytes| {
        let index = Index::parse(bytes)?;
        for file in index.files() {
            assert!(!file.contains(['/', '\\', '\0']) && !file.starts_with('.'), "{file:?}");
        }
        Ok(None)
    });
}

#[test]
fn thousands_of_changed_configurations() {
    let llama = r#"{"model_type":"llama","hidden_size":256,"num_hidden_layers":2,"num_attention_heads":4,
        "num_key_value_heads":2,"intermediate_size":512,"vocab_size":96,"quantization_config":{"quant_method":
        "compressed-tensors","ignore":["lm_head","re:.*(k|v)_proj"],"config_groups":{"a":{"targets":["Linear"],
        "weights":{"num_bits":4,"type":"int","group_size":32}},"b":{"targets":["re:.*mlp.*"],"weights":{"num_bits":8,
        "type":"float"}}}}}"#;
    let hybrid = r#"{"text_config":{"model_type":"qwen3_next","hidden_size":256,"num_hidden_layers":4,"head_dim":64,
        "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":96,"num_experts":8,"num_experts_per_tok":2,
        "moe_intermediate_size":64,"shared_expert_intermediate_size":64,"linear_num_key_heads":2,
        "linear_num_value_heads":4,"full_attention_interval":2,"sliding_window":32},"quantization_config":{"quant_method":
        "modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":{"model.layers.0.mlp.experts":{"quant_algo":"FP8"}}}}"#;
    let files: Vec<_> = [llama, hybrid].iter().map(|text| text.as_bytes().to_vec()).collect();
    survive(&files, 8000, 3, |bytes| {
        let config = Config::parse(bytes).and_then(|config| config.with_modelopt(b"{}"))?;
        config.model(None, "x").map(Some)
    });
}

/// However large the weights, no more than the header is asked for.
#[test]
fn nothing_behind_the_header_is_read() {
    let (header, length) = llama(false).header();
    let endless = header.as_slice().chain(std::io::repeat(0));
    let mut source = Counted { source: endless, read: 0 };
    gguf::read(&mut source, length + (1 << 40)).unwrap();
    assert!(source.read <= header.len() as u64, "{} of {}", source.read, header.len());
    let (header, length) = Safetensors::default().tensor("a.weight", "BF16", &[1 << 20, 1 << 14]).header();
    assert!(length > 1 << 34);
    let mut source = Counted { source: header.as_slice().chain(std::io::repeat(0)), read: 0 };
    safetensors::read(&mut source, length).unwrap();
    assert_eq!(source.read, header.len() as u64);
}
