//! The settings of engines: every format and engine, golden lines, and names held to the engines' own packages.
//!
//! `names.txt` is written by `names.py` from those packages.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a line that is not of the form that a test takes apart fails it"
)]

mod kept;
mod known;
mod memory;
mod names;
mod table;

use rooflined_advice::settings::{Chosen, Device, MISSING, SharedMemory, Text, settings};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Bytes;
use rooflined_models::recipe::Mix;
use rooflined_models::transformer::{DraftKind, MemoryFootprint};
use rooflined_predict::optimize::ModelOrigin;

const ENGINES: [&str; 7] =
    ["llama.cpp", "mlc", "tensorrt-edge-llm", "tensorrt-llm", "torch", "torchao", "vllm"];

/// A CPU, GPUs of every generation that the registry has, and one of which nothing is known.
const DEVICES: [Device; 11] = [
    Device::Cpu { threads: Some(8) },
    Device::Cpu { threads: None },
    gpu(7, 0),
    gpu(7, 2),
    gpu(8, 0),
    gpu(8, 7),
    gpu(8, 9),
    gpu(9, 0),
    gpu(10, 0),
    gpu(11, 0),
    gpu(12, 1),
];

const fn gpu(major: u32, minor: u32) -> Device {
    Device::Gpu { compute_capability: Some((major, minor)) }
}

const SERVE: Text = Text {
    batch: 4,
    context_tokens: 2048,
    prompt_tokens: 512,
    chunk_tokens: None,
    kv_format: None,
    drafts: None,
    cpu_moe_layers: 0,
    gpu_layers: None,
};

const fn chosen(format: &str, text: Option<Text>, device: Device) -> Chosen<'_> {
    Chosen { format, text, family: "", device, origin: ModelOrigin::Otherwise, shared: None }
}

/// Every format, and the mixes that have none.
fn formats() -> impl Iterator<Item = &'static str> {
    let mixes = Mix::ALL.iter().map(|mix| mix.key());
    WeightFormat::ALL.iter().map(|format| format.key()).chain(mixes)
}

fn setting(format: &str, text: Option<Text>, device: Device, engine: &str) -> String {
    settings(&chosen(format, text, device))[engine].as_str().unwrap().to_owned()
}

/// How weights are come by, and what part of a shared memory may be taken.
const WAYS: [(ModelOrigin, Option<SharedMemory>); 3] =
    [(ModelOrigin::Otherwise, None), (ModelOrigin::Checkpoint, Some(SHARED)), (ModelOrigin::File, None)];

/// A GB10 of which 120 GB are to be had, less 6 that stay free, and a model that takes 20 with a cache of 4.
const SHARED: SharedMemory = SharedMemory {
    total: Bytes(128e9),
    available: Bytes(120e9),
    room: Bytes(114e9),
    footprint: MemoryFootprint {
        weights: Bytes(15e9),
        kv_cache: Bytes(4e9),
        activations: Bytes(0.5e9),
        engine: Bytes(0.5e9),
        host: Bytes::ZERO,
    },
};

/// Every combination, with caches of every format.
fn each(mut see: impl FnMut(&Chosen<'_>, &str, &str)) {
    let unknown = Device::Gpu { compute_capability: None };
    let caches = WeightFormat::ALL.iter().map(|format| Some(Text { kv_format: Some(*format), ..SERVE }));
    let drafts = DraftKind::ALL.into_iter().flat_map(|kind| {
        let text = Text { drafts: Some((kind, 3)), ..SERVE };
        [Some(text), Some(Text { kv_format: Some(WeightFormat::Q8_0), ..text })]
    });
    let moved = [Some(Text { cpu_moe_layers: 9, ..SERVE }), Some(Text { gpu_layers: Some(20), ..SERVE })];
    let texts: Vec<_> = [None, Some(SERVE)].into_iter().chain(caches).chain(drafts).chain(moved).collect();
    for device in DEVICES.into_iter().chain([unknown]) {
        for format in formats() {
            for text in &texts {
                // They say nothing of the cache.
                let ways = if text.is_some_and(|text| text.kv_format.is_some()) { 1 } else { WAYS.len() };
                for (origin, shared) in WAYS.into_iter().take(ways) {
                    let chosen = Chosen { origin, shared, ..chosen(format, *text, device) };
                    let settings = settings(&chosen);
                    assert_eq!(settings.keys().collect::<Vec<_>>(), ENGINES, "{chosen:?}");
                    for (engine, setting) in &settings {
                        see(&chosen, engine, setting.as_str().unwrap());
                    }
                }
            }
        }
    }
}

#[test]
fn every_format_has_a_setting_in_every_engine_or_a_reason_why_not() {
    let mut named = 0;
    each(|chosen, engine, line| {
        assert!(!line.trim().is_empty() && !line.contains('\n'), "{engine} {chosen:?}: {line:?}");
        match line.strip_prefix(MISSING) {
            None => named += 1,
            Some(why) => assert!(why.len() > ": because".len() && why.starts_with(": "), "{engine}: {line}"),
        }
    });
    assert!(named > 10_000, "{named}");
}

#[test]
fn the_nearest_format_is_one_that_the_engine_has_there() {
    each(|chosen, engine, line| {
        let Some((_, nearest)) = line.split_once("; nearest: ") else { return };
        let instead = match nearest.strip_prefix("kv_format ") {
            None => Chosen { format: nearest, text: chosen.text.map(|_| SERVE), ..chosen.clone() },
            Some(kv) => {
                let text = chosen.text.map(|text| Text { kv_format: Some(kv.parse().unwrap()), ..text });
                Chosen { text, ..chosen.clone() }
            }
        };
        let line = &settings(&instead)[engine];
        assert!(!line.as_str().unwrap().starts_with(MISSING), "{engine} {chosen:?}: {nearest}: {line}");
    });
}

#[test]
fn every_format_of_files_is_one_of_llama_cpp_and_of_no_engine_without_a_reader() {
    for mix in Mix::ALL.iter().filter(|mix| !mix.base().is_plain() && **mix != Mix::Q2_0) {
        let own = setting(mix.key(), None, gpu(8, 7), "llama.cpp");
        assert!(!own.starts_with(MISSING), "{}: {own}", mix.key());
        assert!(setting(mix.key(), None, gpu(9, 0), "tensorrt-llm").contains("reads no GGUF files"));
    }
}

#[test]
fn a_batch_and_a_context_reach_every_engine_that_serves() {
    let text = Text {
        batch: 7,
        context_tokens: 3072,
        prompt_tokens: 900,
        chunk_tokens: None,
        kv_format: None,
        drafts: None,
        cpu_moe_layers: 0,
        gpu_layers: None,
    };
    for (engine, device, batch, context) in [
        ("llama.cpp", gpu(9, 0), "-np 7 ", "-c 21504 "),
        ("vllm", gpu(9, 0), "--max-num-seqs 7 ", "--max-model-len 3072 "),
        ("tensorrt-llm", gpu(9, 0), "--max_batch_size 7 ", "--max_seq_len 3072 "),
        ("tensorrt-edge-llm", gpu(8, 7), "--max-batch-size 7 ", "--max-kv-cache-capacity 3072"),
        ("mlc", gpu(9, 0), "max_num_sequence=7;", "context_window_size=3072;"),
    ] {
        let line = setting("fp16", Some(text), device, engine);
        assert!(line.contains(batch) && line.contains(context), "{engine}: {line}");
    }
}

#[test]
fn a_cache_in_the_type_of_the_model_needs_no_option() {
    for (format, kv, engines) in [
        ("fp32", WeightFormat::Fp32, &["vllm", "tensorrt-llm", "mlc", "torch"][..]),
        ("bf16", WeightFormat::Bf16, &["vllm", "tensorrt-llm", "mlc", "torch"]),
        ("awq_int4", WeightFormat::Bf16, &["tensorrt-llm", "torch"]),
    ] {
        for engine in engines {
            let text = |kv_format| Some(Text { kv_format, ..SERVE });
            let line = setting(format, text(Some(kv)), gpu(9, 0), engine);
            assert_eq!(line, setting(format, text(None), gpu(9, 0), engine), "{engine} {format}");
            assert!(!line.starts_with(MISSING), "{engine} {format}: {line}");
        }
    }
    // llama.cpp keeps fp16 whatever the weights are.
    assert!(
        setting("bf16", Some(Text { kv_format: Some(WeightFormat::Bf16), ..SERVE }), gpu(9, 0), "llama.cpp")
            .ends_with(" -ctk bf16 -ctv bf16")
    );
}

#[test]
fn hostile_names_and_lengths_are_answered_without_a_panic() {
    let long = "é\u{0}'; rm -rf /".repeat(100_000);
    for format in ["", "q4_k_x", long.as_str()] {
        let line = setting(format, Some(SERVE), gpu(9, 0), "vllm");
        assert!(line.starts_with(MISSING) && line.len() < 200 && !line.contains('\0'), "{line}");
    }
    let of = |count| Text {
        batch: count,
        context_tokens: count,
        prompt_tokens: count,
        chunk_tokens: Some(count),
        kv_format: None,
        drafts: None,
        cpu_moe_layers: 0,
        gpu_layers: None,
    };
    for text in [of(u64::MAX), of(0)] {
        for engine in ENGINES {
            let line = setting("fp16", Some(text), DEVICES[0], engine);
            assert!(!line.is_empty(), "{engine}");
        }
    }
}
