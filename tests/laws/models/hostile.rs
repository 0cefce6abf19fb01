//! Files that lie: refused in bounded time and memory, by name.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use rooflined_models::import::config::Config;
use rooflined_models::import::{ImportError, gguf, safetensors};

use super::write::{F32, Gguf, Q4_K, Safetensors, Val, llama, raw_safetensors};

/// Reads and, where it can be read, makes a model of it.
fn read_gguf(bytes: &[u8], length: u64) -> Result<(), ImportError> {
    let header = gguf::read(bytes, length)?;
    gguf::model(&header, "x.gguf").map(|_| ())
}

fn read_safetensors(bytes: &[u8], length: u64) -> Result<(), ImportError> {
    let tensors = safetensors::read(bytes, length)?;
    safetensors::model(&tensors, None, "x").map(|_| ())
}

/// A GGUF header with these counts, then `rest`.
fn counts(tensors: u64, pairs: u64, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(tensors.to_le_bytes());
    bytes.extend(pairs.to_le_bytes());
    bytes.extend(rest);
    bytes
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// A tensor's entry: name, dimensions, type, offset.
fn entry(name: &str, dimensions: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let mut bytes = text(name);
    bytes.extend(u32::try_from(dimensions.len()).unwrap().to_le_bytes());
    dimensions.iter().for_each(|length| bytes.extend(length.to_le_bytes()));
    bytes.extend(kind.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes
}

fn said(bytes: &[u8], length: u64) -> String {
    let started = Instant::now();
    let message = read_gguf(bytes, length).expect_err("it should be refused").to_string();
    // A reader that walked all of it would take hours; an emulator on a busy machine needs seconds.
    assert!(started.elapsed() < Duration::from_secs(120), "{message} took {:?}", started.elapsed());
    assert!(message.len() < 400, "{message}");
    message
}

const HUGE: u64 = 1 << 40;

#[test]
fn counts_beyond_reason_are_refused_before_anything_is_read() {
    for (tensors, pairs, word) in
        [(0, 1_000_000_000, "keys"), (1_000_000_000, 0, "tensors"), (u64::MAX, u64::MAX, "tensors")]
    {
        let message = said(&counts(tensors, pairs, &[]), HUGE);
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn lengths_beyond_the_file_or_the_limit_are_refused_without_memory() {
    let name = |length: u64| counts(0, 1, &length.to_le_bytes());
    assert!(said(&name(u64::MAX), HUGE).contains("name"));
    let value = |kind: u32, rest: &[u8]| counts(0, 1, &[&text("k")[..], &kind.to_le_bytes(), rest].concat());
    // A string, an array of bytes and an array of strings as long as half of all addresses.
    assert!(said(&value(8, &(u64::MAX / 2).to_le_bytes()), HUGE).contains("is cut"));
    for member in [0u32, 8, 9, 12] {
        let rest = [&member.to_le_bytes()[..], &(u64::MAX / 2).to_le_bytes()].concat();
        assert!(said(&value(9, &rest), HUGE).contains("is cut"), "{member}");
    }
    // Within a file that is large enough, but beyond any header.
    let rest = [&0u32.to_le_bytes()[..], &(1u64 << 39).to_le_bytes()].concat();
    assert!(said(&value(9, &rest), HUGE).contains("bytes of header"));
    assert!(said(&value(99, &[]), HUGE).contains("unknown type 99"));
}

/// Claims to be long and delivers zeros for ever: every member is an empty string.
#[test]
fn an_array_is_walked_to_the_limit_and_not_kept() {
    let strings = |count: u64| {
        let array = [&text("k")[..], &9u32.to_le_bytes(), &8u32.to_le_bytes(), &count.to_le_bytes()].concat();
        let endless = std::io::Read::chain(std::io::Cursor::new(counts(0, 1, &array)), std::io::repeat(0));
        gguf::read(std::io::BufReader::new(endless), HUGE)
    };
    let started = Instant::now();
    assert_eq!(strings(30_000_000).unwrap().metadata.get("k"), Some(&gguf::Value::Array(30_000_000)));
    assert!(started.elapsed() < Duration::from_secs(600), "{:?}", started.elapsed());
    // One more than a header can hold is refused by its count.
    assert!(strings(40_000_000).unwrap_err().to_string().contains("bytes of header"));
}

#[test]
fn arrays_in_arrays_are_followed_to_a_depth() {
    let nested = |depth: usize| {
        let mut rest = [&text("k")[..], &9u32.to_le_bytes()].concat();
        for _ in 0..depth {
            rest.extend(9u32.to_le_bytes());
            rest.extend(1u64.to_le_bytes());
        }
        rest.extend(0u32.to_le_bytes());
        rest.extend(0u64.to_le_bytes());
        counts(0, 1, &rest)
    };
    assert!(gguf::read(nested(2).as_slice(), HUGE).is_ok());
    assert!(said(&nested(10), HUGE).contains("nests"));
    assert!(said(&nested(1_000_000), HUGE).contains("nests"));
}

#[test]
fn tensors_that_cannot_be_are_named() {
    let one = |dimensions: &[u64], kind, offset| counts(1, 0, &entry("evil", dimensions, kind, offset));
    for (bytes, word) in [
        (one(&[256, 0], F32, 0), "dimension of 0"),
        (one(&[u64::MAX, u64::MAX], F32, 0), "impossible shape"),
        (one(&[1 << 32, 1 << 32], F32, 0), "impossible shape"),
        (one(&[1 << 62, 2], F32, 0), "impossible shape"),
        (one(&[1, 2, 3, 4, 5], F32, 0), "5 dimensions"),
        (one(&[100, 4], Q4_K, 0), "no whole number"),
        (one(&[256, 4], 77, 0), "unknown type 77"),
        (one(&[256, 4], F32, 1), "not aligned"),
        (one(&[256, 4], F32, u64::MAX - 31), "is cut"),
        (one(&[256, 1 << 40], F32, 0), "is cut"),
    ] {
        let message = said(&bytes, HUGE);
        assert!(message.contains(word) && message.contains("evil"), "{message}");
    }
    let mut many = one(&[256, 4], F32, 0);
    many.splice(8 + 16 + 8 + 4..8 + 16 + 8 + 8, u32::MAX.to_le_bytes());
    assert!(said(&many, HUGE).contains("dimensions"), "{}", said(&many, HUGE));
}

#[test]
fn overlaps_doubles_and_bad_alignment_are_named() {
    let two = |first: &[u8], second: &[u8]| counts(2, 0, &[first, second].concat());
    let overlap = two(&entry("a", &[256, 4], F32, 0), &entry("b", &[256, 4], F32, 4064));
    assert!(said(&overlap, HUGE).contains("overlap"));
    let inside = two(&entry("a", &[256, 4], F32, 0), &entry("b", &[8], F32, 32));
    assert!(said(&inside, HUGE).contains("overlap"));
    let double = two(&entry("a", &[256, 4], F32, 0), &entry("a", &[256, 4], F32, 4096));
    assert!(said(&double, HUGE).contains("twice"));
    let key = [&text("k")[..], &4u32.to_le_bytes(), &1u32.to_le_bytes()].concat();
    assert!(said(&counts(0, 2, &[&key[..], &key].concat()), HUGE).contains("twice"));
    for alignment in [0u32, 3, 33, u32::MAX] {
        let pair = [&text("general.alignment")[..], &4u32.to_le_bytes(), &alignment.to_le_bytes()].concat();
        assert!(said(&counts(0, 1, &pair), HUGE).contains("alignment"), "{alignment}");
    }
}

#[test]
fn a_file_of_something_else_is_named_as_what_it_is() {
    assert!(said(b"PK\x03\x04aaaaaaaaaaaaaaaaaaaaaaaaaa", 1000).contains("PK"));
    assert!(said(b"", 0).contains("is cut"));
    assert!(said(b"GGUF\x04\0\0\0", 1000).contains("version 4"));
    assert!(said(b"GGUF\x00\0\0\0", 1000).contains("version 0"));
    assert!(said(&counts(0, 0, &[]), 1000).contains("no general.architecture"));
}

#[test]
fn metadata_that_fill_memory_are_refused() {
    let numbers = vec![7u32; 4096];
    let mut file = Gguf::new("llama");
    for index in 0..2000 {
        file = file.pair(&format!("key{index}"), Val::Numbers(numbers.clone()));
    }
    let (bytes, length) = file.header();
    assert!(said(&bytes, length).contains("bytes of metadata"));
}

#[test]
fn absurd_metadata_do_no_harm() {
    for key in [
        "block_count",
        "embedding_length",
        "attention.head_count",
        "attention.head_count_kv",
        "feed_forward_length",
        "context_length",
        "nextn_predict_layers",
        "expert_count",
        "expert_used_count",
        "attention.key_length",
        "attention.value_length",
        "attention.kv_lora_rank",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "attention.key_length_swa",
        "rope.dimension_count",
        "ssm.inner_size",
        "ssm.state_size",
        "ssm.time_step_rank",
        "ssm.group_count",
        "shortconv.l_cache",
        "vocab_size",
    ] {
        for number in [0, 1, 3, 1 << 20, u32::MAX] {
            let mut file = llama(false);
            file.pairs.retain(|(known, _)| *known != format!("llama.{key}"));
            let file = file.numbers("llama", &[(key, number)]);
            let (bytes, length) = file.header();
            // Either a model or an error that says why; the figures must hold still.
            if let Ok(model) = gguf::model(&gguf::read(bytes.as_slice(), length).unwrap(), "x") {
                assert!(model.bytes_per_token().get() <= model.bytes().get(), "{key} {number}");
                assert!(
                    model.kv_bytes_per_token(rooflined_core::precision::WeightFormat::Fp16).get().is_finite()
                );
            }
        }
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let (header, length) = llama(false).header();
    for cut in 0..header.len() {
        assert!(read_gguf(&header[..cut], cut as u64).is_err(), "{cut}");
        // The length is said to be whole, and the bytes end.
        assert!(read_gguf(&header[..cut], length).is_err(), "{cut}");
    }
    assert!(read_gguf(&header, length - 1).unwrap_err().to_string().contains("is cut"));
    let message = read_gguf(&header, header.len() as u64 + 100).unwrap_err().to_string();
    assert!(message.contains("is cut"), "{message}");
    let (header, length) = checkpoint().header();
    for cut in 0..header.len() {
        assert!(read_safetensors(&header[..cut], cut as u64).is_err(), "{cut}");
        assert!(read_safetensors(&header[..cut], length).is_err(), "{cut}");
    }
    assert!(read_safetensors(&header, length - 1).unwrap_err().to_string().contains("is cut"));
}

/// Every byte of a valid file turned into others: never a panic, never a wait.
#[test]
fn a_file_with_any_byte_changed_is_read_or_refused() {
    let started = Instant::now();
    let (header, length) = llama(false).header();
    for at in 0..header.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff, header[at] ^ 1, header[at].wrapping_add(1)] {
            let mut changed = header.clone();
            changed[at] = value;
            let _ = read_gguf(&changed, length);
        }
    }
    let (header, length) = checkpoint().header();
    for at in 0..header.len() {
        for value in [0, b'"', b'{', b'}', b'9', 0xff, header[at] ^ 1] {
            let mut changed = header.clone();
            changed[at] = value;
            let _ = read_safetensors(&changed, length);
        }
    }
    assert!(started.elapsed() < Duration::from_secs(600), "{:?}", started.elapsed());
}

fn checkpoint() -> Safetensors {
    Safetensors::default()
        .tensor("model.embed_tokens.weight", "BF16", &[96, 64])
        .tensor("model.layers.0.self_attn.q_proj.weight", "BF16", &[64, 64])
        .tensor("model.layers.0.self_attn.k_proj.weight", "BF16", &[32, 64])
        .tensor("model.layers.0.self_attn.v_proj.weight", "BF16", &[32, 64])
        .tensor("model.layers.0.self_attn.o_proj.weight", "BF16", &[64, 64])
        .tensor("model.layers.0.mlp.up_proj.qweight", "I32", &[8, 128])
        .tensor("model.layers.0.mlp.up_proj.scales", "F16", &[1, 128])
        .tensor("model.layers.0.mlp.down_proj.weight", "BF16", &[64, 128])
}

#[test]
fn safetensors_that_lie_are_named() {
    let said = |json: &str, data: u64| {
        let (bytes, length) = raw_safetensors(json, data);
        read_safetensors(&bytes, length).expect_err(json).to_string()
    };
    let entry = |name: &str, shape: &str, begin: u64, end: u64| {
        format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":[{begin},{end}]}}")
    };
    let one = |shape: &str, begin, end| said(&format!("{{{}}}", entry("evil", shape, begin, end)), 1000);
    assert!(one("[10]", 0, 39).contains("evil"));
    assert!(one("[10]", 40, 0).contains("evil"));
    assert!(one("[10]", 980, 1020).contains("is cut"));
    assert!(one("[18446744073709551615, 3]", 0, 8).contains("impossible shape"));
    assert!(one("[1,1,1,1,1,1,1,1,1]", 0, 4).contains("holds no valid header"));
    assert!(one("[-1]", 0, 4).contains("holds no valid header"));
    assert!(one("[1.5]", 0, 4).contains("holds no valid header"));
    assert!(said("{\"x\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 9).contains("F99"));
    let two = |first: String, second: String| said(&format!("{{{first},{second}}}"), 1000);
    assert!(two(entry("a", "[10]", 0, 40), entry("b", "[10]", 20, 60)).contains("overlap"));
    assert!(two(entry("a", "[10]", 0, 40), entry("a", "[10]", 40, 80)).contains("twice"));
    assert!(said("[]", 0).contains("is not a safetensors file"));
    assert!(said("{}", 0).contains("no weights"));
    assert!(said(&format!("{{\"{}\":0}}", "x".repeat(1_000_000)), 0).len() < 400);
    assert!(said(&"{\"__metadata__\":".repeat(100_000), 0).contains("holds no valid header"));
    let length =
        |claimed: u64, file: u64| read_safetensors(&claimed.to_le_bytes(), file).unwrap_err().to_string();
    assert!(length(u64::MAX, HUGE).contains("bytes of header"));
    assert!(length(50_000_000, 100).contains("is cut"));
}

proptest! {
    #[test]
    fn bytes_of_any_kind_are_read_or_refused(tail in proptest::collection::vec(any::<u8>(), 0..300), length in any::<u64>()) {
        for start in [&b"GGUF\x03\0\0\0"[..], b"GGUF\x01\0\0\0", b"GGUF\0\0\0\x03", b""] {
            let bytes = [start, &tail].concat();
            let _ = read_gguf(&bytes, length);
            let _ = read_safetensors(&bytes, length);
        }
        let _ = Config::parse(&tail);
    }

    #[test]
    fn several_bytes_changed_at_once_are_read_or_refused(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let (mut bytes, length) = llama(false).header();
        let (mut other, other_length) = checkpoint().header();
        for (index, value) in changes {
            *index.get_mut(&mut bytes) = value;
            *index.get_mut(&mut other) = value;
        }
        let _ = read_gguf(&bytes, length);
        let _ = read_safetensors(&other, other_length);
    }

    /// Numbers of every size in every field of a configuration.
    #[test]
    fn any_configuration_is_described_or_refused(values in proptest::collection::vec(prop_oneof![0u64..10, 0u64..100_000, any::<u64>()], 16)) {
        let keys = [
            "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
            "vocab_size", "sliding_window", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "kv_lora_rank",
            "linear_num_key_heads", "linear_num_value_heads", "full_attention_interval", "max_position_embeddings",
        ];
        let fields: Vec<_> = keys.iter().zip(&values).map(|(key, value)| format!("\"{key}\": {value}")).collect();
        if let Ok(model) = Config::parse(format!("{{{}}}", fields.join(",")).as_bytes()).and_then(|config| config.model(None, "x")) {
            prop_assert!(model.bytes_per_token().get() <= model.bytes().get());
        }
    }
}
