//! GGUF files that are as they should be.

use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Bytes;
use rooflined_models::allocation::Allocation;
use rooflined_models::architecture::{FeedForward, Mixer};
use rooflined_models::class::Class;
use rooflined_models::import::ImportError;
use rooflined_models::import::gguf::{join, model, read};
use rooflined_models::model::Model;

use super::write::{F16, F32, Gguf, MXFP4, Q4_K, Q6_K, Q8_0, Val, llama};

fn load(file: &Gguf) -> Model {
    let (bytes, length) = file.header();
    model(&read(bytes.as_slice(), length).unwrap(), "model.gguf").unwrap()
}

fn bytes_of(model: &Model, class: Class) -> u64 {
    model.weights.iter().filter(|group| group.class == class).map(|group| group.bytes).sum()
}

#[test]
fn bytes_per_token_are_the_sum_of_the_tensors_without_the_embedding() {
    let file = llama(false);
    let model = load(&file);
    let all = file.sum(&[""]);
    assert_eq!(model.bytes(), Bytes(all as f64));
    assert_eq!(model.bytes_per_token(), Bytes((all - file.sum(&["token_embd"])) as f64));
    for (class, parts) in [
        (Class::Embedding, vec!["token_embd"]),
        (Class::Norm, vec!["norm"]),
        (Class::AttentionQ, vec!["attn_q"]),
        (Class::AttentionV, vec!["attn_v"]),
        (Class::AttentionOut, vec!["attn_output"]),
        (Class::Mlp, vec!["ffn_gate", "ffn_up", "ffn_down"]),
    ] {
        assert_eq!(bytes_of(&model, class), file.sum(&parts), "{class}");
    }
    // 96 rows of one Q6_K block
    assert_eq!(bytes_of(&model, Class::Head), 96 * 210);
    let layer = 256 * (256 + 128 + 128 + 256) + 3 * 256 * 512 + 2 * 256;
    assert_eq!(model.parameters(), 2 * layer + 2 * 96 * 256 + 256);
    assert_eq!(model.name, "Small Llama");
    assert_eq!(model.label.as_deref(), Some("q4_k_m"));
    assert_eq!(model.architecture.context_tokens, Some(2048));
    // keys and values, two layers, two heads of 64, two bytes
    assert_eq!(model.kv_bytes_per_token(WeightFormat::Fp16), Bytes(2.0 * 2.0 * 2.0 * 64.0 * 2.0));
    assert_eq!(model.warnings, Vec::<String>::new());
}

#[test]
fn a_file_without_a_head_reads_its_table_in_full() {
    let file = llama(true);
    let model = load(&file);
    assert!(model.architecture.tied_embeddings);
    assert_eq!(model.bytes_per_token(), model.bytes());
    assert_eq!(bytes_of(&model, Class::Head), file.sum(&["token_embd"]));
}

#[test]
fn every_version_and_byte_order_says_the_same() {
    let expected = load(&llama(false));
    for (version, big_endian) in [(1, false), (2, false), (3, false), (3, true)] {
        let file = Gguf { version, big_endian, ..llama(false) };
        assert_eq!(load(&file), expected, "version {version}, big endian: {big_endian}");
    }
}

#[test]
fn shards_are_one_model() {
    let whole = llama(false);
    let count = whole.tensors.len();
    let part = |no: u32, tensors: &[(String, Vec<u64>, u32, u64)]| {
        let mut file = if no == 0 { whole.clone() } else { Gguf::new("llama") };
        file.tensors = tensors.to_vec();
        let file = file.numbers("split", &[("no", no), ("count", 3), ("tensors.count", count as u32)]);
        let (bytes, length) = file.header();
        read(bytes.as_slice(), length).unwrap()
    };
    let shards = [part(0, &whole.tensors[..5]), part(1, &whole.tensors[5..9]), part(2, &whole.tensors[9..])];
    assert_eq!(model(&join(shards.to_vec()).unwrap(), "model.gguf").unwrap(), load(&whole));

    let said = |shards: &[_]| join(shards.to_vec()).unwrap_err().to_string();
    assert!(said(&shards[..2]).contains("2 given"), "{}", said(&shards[..2]));
    let doubled = [shards[0].clone(), shards[1].clone(), shards[1].clone()];
    assert!(said(&doubled).contains("number 2 of 3"), "{}", said(&doubled));
    let swapped = [shards[1].clone(), shards[0].clone(), shards[2].clone()];
    assert!(said(&swapped).contains("number 2 of 3"), "{}", said(&swapped));
}

#[test]
fn of_experts_a_token_reads_those_it_passes() {
    let file = Gguf::new("qwen3moe")
        .numbers(
            "qwen3moe",
            &[
                ("block_count", 1),
                ("embedding_length", 256),
                ("attention.head_count", 4),
                ("attention.head_count_kv", 1),
                ("attention.key_length", 128),
                ("attention.value_length", 128),
                ("expert_count", 8),
                ("expert_used_count", 2),
                // The tensors are as wide as they are.
                ("expert_feed_forward_length", 100),
            ],
        )
        .tensor("token_embd.weight", &[256, 96], F16)
        .tensor("output.weight", &[256, 96], F16)
        .tensor("blk.0.attn_q.weight", &[256, 512], F16)
        .tensor("blk.0.attn_k.weight", &[256, 128], F16)
        .tensor("blk.0.attn_v.weight", &[256, 128], F16)
        .tensor("blk.0.attn_output.weight", &[512, 256], F16)
        .tensor("blk.0.ffn_gate_inp.weight", &[256, 8], F32)
        .tensor("blk.0.ffn_gate_exps.weight", &[256, 64, 8], MXFP4)
        .tensor("blk.0.ffn_up_exps.weight", &[256, 64, 8], MXFP4)
        .tensor("blk.0.ffn_down_exps.weight", &[64, 256, 8], Q8_0)
        .tensor("blk.0.ffn_up_shexp.weight", &[256, 32], F16);
    let model = load(&file);
    let experts = file.sum(&["_exps"]);
    let rest = file.sum(&[""]) - experts - file.sum(&["token_embd"]);
    assert_eq!(model.bytes_per_token(), Bytes(rest as f64 + experts as f64 * 2.0 / 8.0));
    assert_eq!(bytes_of(&model, Class::Router), file.sum(&["ffn_gate_inp"]));
    assert_eq!(bytes_of(&model, Class::SharedExpert), file.sum(&["shexp"]));
    assert!(matches!(
        model.architecture.layers[0].feed_forward,
        FeedForward::Experts { intermediate: 64, shared_intermediate: 32, .. }
    ));
    let routing = model.routing().unwrap();
    assert_eq!((routing.experts, routing.active), (8, 2));
    let down = model.weights.iter().find(|group| (group.rows, group.columns) == (256, 64)).unwrap();
    assert_eq!(down.matrices, 8);
}

#[test]
fn a_label_that_the_tensors_do_not_keep_is_a_warning() {
    // Labelled Q4_K_M, stored as Q8_0.
    let mut file = llama(false);
    for (name, _, kind, bytes) in &mut file.tensors {
        if !name.contains("norm") {
            *bytes = *bytes / super::write::block(*kind).1 * 8 * 34;
            *kind = Q8_0;
        }
    }
    let model = load(&file);
    let warning = model.warnings.iter().find(|warning| warning.contains("labelled q4_k_m")).unwrap();
    assert!(warning.contains("8.50") && warning.contains("q8_0"), "{warning}");

    let (bytes, length) = llama(false).header();
    let named = super::gguf::model(&read(bytes.as_slice(), length).unwrap(), "small-Q8_0.gguf").unwrap();
    assert!(named.warnings.iter().any(|warning| warning.contains("named q8_0")), "{:?}", named.warnings);
}

#[test]
fn an_unknown_architecture_is_read_from_its_tensors_with_a_warning() {
    let mut file = llama(false);
    file.pairs.retain(|(key, _)| !key.starts_with("llama."));
    file.pairs[0].1 = Val::Text("novelty");
    let model = load(&file);
    assert_eq!(model.bytes_per_token(), load(&llama(false)).bytes_per_token());
    // Widths of keys and values are in the shapes, so the cache is exact all the same.
    assert_eq!(
        model.kv_bytes_per_token(WeightFormat::Fp16),
        load(&llama(false)).kv_bytes_per_token(WeightFormat::Fp16)
    );
    assert!(model.warnings.iter().any(|warning| warning.contains("novelty")), "{:?}", model.warnings);
    assert!(model.warnings.iter().any(|warning| warning.contains("heads")), "{:?}", model.warnings);
}

#[test]
fn windows_bound_the_cache_of_their_layers() {
    let gemma = |pattern: Option<Val>| {
        let mut file = llama(true);
        for (key, _) in &mut file.pairs {
            *key = key.replace("llama.", "gemma2.");
        }
        file.pairs[0].1 = Val::Text("gemma2");
        // The tensors count the layers.
        file.pairs.retain(|(key, _)| key != "gemma2.block_count");
        file = file.numbers("gemma2", &[("attention.sliding_window", 100)]);
        match pattern {
            Some(pattern) => load(&file.pair("gemma2.attention.sliding_window_pattern", pattern)),
            None => load(&file),
        }
    };
    let width = 2.0 * 2.0 * 64.0 * 2.0;
    let cache = |model: &Model| model.kv_cache(1000, WeightFormat::Fp16).get();
    assert_eq!(cache(&gemma(None)), width * 1100.0);
    assert_eq!(cache(&gemma(Some(Val::Bools(vec![true, true])))), width * 200.0);
    assert_eq!(cache(&gemma(Some(Val::Numbers(vec![0, 0])))), width * 2000.0);
}

#[test]
fn latent_attention_caches_the_latent() {
    let file = Gguf::new("deepseek2")
        .numbers(
            "deepseek2",
            &[
                ("block_count", 1),
                ("embedding_length", 256),
                ("feed_forward_length", 512),
                ("attention.head_count", 4),
                ("attention.head_count_kv", 1),
                ("attention.kv_lora_rank", 128),
                ("attention.key_length", 160),
                ("attention.value_length", 128),
                ("attention.key_length_mla", 96),
                ("attention.value_length_mla", 64),
                ("rope.dimension_count", 32),
            ],
        )
        .tensor("token_embd.weight", &[256, 96], F16)
        .tensor("blk.0.attn_q.weight", &[256, 384], F16)
        .tensor("blk.0.attn_kv_a_mqa.weight", &[256, 160], F16)
        .tensor("blk.0.attn_k_b.weight", &[64, 128, 4], F16)
        .tensor("blk.0.attn_v_b.weight", &[128, 64, 4], F16)
        .tensor("blk.0.attn_output.weight", &[256, 256], F16)
        .tensor("blk.0.ffn_up.weight", &[256, 512], F16)
        .tensor("blk.0.ffn_gate.weight", &[256, 512], F16)
        .tensor("blk.0.ffn_down.weight", &[512, 256], F16);
    let model = load(&file);
    assert_eq!(model.kv_bytes_per_token(WeightFormat::Fp16), Bytes((128.0 + 32.0) * 2.0));
    assert!(
        matches!(model.architecture.layers[0].mixer, Mixer::Latent(l) if (l.nope_dim, l.value_dim) == (64, 64))
    );
    assert_eq!(bytes_of(&model, Class::AttentionLatent), file.sum(&["attn_kv_a", "attn_k_b", "attn_v_b"]));
    // Files that were converted before 2025 do not give the lengths of whole heads, which llama.cpp caches then.
    let mut old = file.clone();
    old.pairs.retain(|(key, _)| !key.ends_with("_mla"));
    assert_eq!(load(&old).kv_bytes_per_token(WeightFormat::Fp16), Bytes((160.0 + 128.0) * 2.0));
}

#[test]
fn linear_layers_have_a_state_and_no_cache() {
    let numbers = [
        ("block_count", 2),
        ("embedding_length", 256),
        ("feed_forward_length", 512),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 64),
        ("attention.value_length", 64),
        ("ssm.inner_size", 256),
        ("ssm.state_size", 32),
        ("ssm.time_step_rank", 8),
        ("ssm.group_count", 4),
        ("ssm.conv_kernel", 4),
    ];
    let mut file =
        Gguf::new("qwen35").numbers("qwen35", &numbers).tensor("token_embd.weight", &[256, 96], F16);
    file = file
        .tensor("blk.0.attn_qkv.weight", &[256, 512], F16)
        .tensor("blk.0.attn_gate.weight", &[256, 256], F16)
        .tensor("blk.0.ssm_beta.weight", &[256, 8], F16)
        .tensor("blk.0.ssm_out.weight", &[256, 256], F16)
        // Twice as wide as heads x head: the other half gates the output.
        .tensor("blk.1.attn_q.weight", &[256, 512], F16)
        .tensor("blk.1.attn_k.weight", &[256, 128], F16)
        .tensor("blk.1.attn_v.weight", &[256, 128], F16)
        .tensor("blk.1.attn_output.weight", &[256, 256], F16);
    for layer in 0..2 {
        file = file
            .tensor(&format!("blk.{layer}.ffn_up.weight"), &[256, 512], F16)
            .tensor(&format!("blk.{layer}.ffn_gate.weight"), &[256, 512], F16)
            .tensor(&format!("blk.{layer}.ffn_down.weight"), &[512, 256], F16);
    }
    let model = load(&file);
    assert_eq!(model.kv_bytes_per_token(WeightFormat::Fp16), Bytes(2.0 * 2.0 * 64.0 * 2.0));
    let convolution = (2 * 4 * 32 + 8 * 32) * 4 * 2;
    assert_eq!(model.state_bytes(Allocation::Exact), Bytes(f64::from(8 * 32 * 32 * 4 + convolution)));
    assert_eq!(bytes_of(&model, Class::LinearMixer), file.sum(&["blk.0.attn", "ssm"]));
    assert!(matches!(model.architecture.layers[1].mixer, Mixer::Attention(a) if a.output_gate));
}

#[test]
fn towers_and_drafting_layers_are_not_read() {
    let mut file = llama(false)
        .tensor("v.blk.0.attn_q.weight", &[256, 256], F16)
        .tensor("blk.2.attn_q.weight", &[256, 256], Q4_K)
        .tensor("blk.2.nextn.eh_proj.weight", &[512, 256], Q6_K)
        .numbers("llama", &[("nextn_predict_layers", 1)]);
    for (key, value) in &mut file.pairs {
        if key == "llama.block_count" {
            *value = Val::U32(3);
        }
    }
    let model = load(&file);
    assert_eq!(model.bytes_per_token(), load(&llama(false)).bytes_per_token());
    assert_eq!(model.architecture.layers.len(), 2);
    assert_eq!(bytes_of(&model, Class::Draft), file.sum(&["blk.2."]));
    assert_eq!(model.warnings.iter().filter(|warning| warning.contains("% of the file")).count(), 2);
}

#[test]
fn metadata_that_contradict_themselves_name_their_field() {
    let mut file = llama(false);
    for (key, value) in &mut file.pairs {
        if key == "llama.attention.head_count" {
            *value = Val::U32(3);
        }
    }
    file = file.numbers("llama", &[("attention.key_length", 64)]);
    let (bytes, length) = file.header();
    let error = model(&read(bytes.as_slice(), length).unwrap(), "x").unwrap_err();
    assert!(matches!(&error, ImportError::Model(invalid) if invalid.field() == "kv_heads"), "{error}");
}
