//! `config.json` alone.

use rooflined_models::class::Class;
use rooflined_models::import::ImportError;
use rooflined_models::import::config::Config;
use rooflined_models::model::Model;
use rooflined_models::registry::models;

fn parse(json: &str) -> Result<Model, ImportError> {
    Config::parse(json.as_bytes())?.model(None, "named")
}

/// A configuration describes the same matrices as the entry of the registry.
fn same_as(key: &str, json: &str) {
    let model = parse(json).unwrap();
    let known = models().get(key).unwrap();
    assert_eq!(u128::from(model.parameters()), known.architecture.parameters(), "{key}");
    assert_eq!(model.architecture.layers, known.architecture.layers, "{key}");
    assert_eq!(model.architecture.tied_embeddings, known.architecture.tied_embeddings, "{key}");
    assert_eq!(model.warnings, Vec::<String>::new(), "{key}");
}

#[test]
fn families_are_described_as_in_the_registry() {
    same_as(
        "llama-3.1-8b",
        r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256}"#,
    );
    same_as(
        "qwen3-30b-a3b",
        r#"{"model_type": "qwen3_moe", "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048,
        "intermediate_size": 6144, "max_window_layers": 48, "mlp_only_layers": [], "moe_intermediate_size": 768,
        "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
        "num_key_value_heads": 4, "sliding_window": null, "use_sliding_window": false, "tie_word_embeddings": false,
        "vocab_size": 151936}"#,
    );
    same_as(
        "qwen3.5-35b-a3b",
        r#"{"model_type": "qwen3_5_moe", "text_config": {"model_type": "qwen3_5_moe_text", "hidden_size": 2048,
        "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
        "attn_output_gate": true, "full_attention_interval": 4, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "vocab_size": 248320, "tie_word_embeddings": false}}"#,
    );
    same_as(
        "gpt-oss-20b",
        r#"{"model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "num_local_experts": 32,
        "num_experts_per_tok": 4, "sliding_window": 128, "vocab_size": 201088, "tie_word_embeddings": false}"#,
    );
    same_as(
        "gemma-3-1b",
        r#"{"model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 6912, "sliding_window": 512,
        "sliding_window_pattern": 6, "vocab_size": 262144}"#,
    );
    same_as(
        "deepseek-v2-lite",
        r#"{"model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16,
        "num_key_value_heads": 16, "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 10944, "moe_intermediate_size": 1408,
        "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "vocab_size": 102400, "tie_word_embeddings": false}"#,
    );
    same_as(
        "lfm2-700m",
        r#"{"model_type": "lfm2", "hidden_size": 1536, "num_hidden_layers": 16, "num_attention_heads": 24,
        "num_key_value_heads": 8, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "conv_L_cache": 3, "block_ff_dim": 10240,
        "block_auto_adjust_ff_dim": true, "block_multiple_of": 256, "vocab_size": 65536}"#,
    );
    same_as(
        "nemotron-3-nano-30b-a3b",
        r#"{"model_type": "nemotron_h", "hidden_size": 2688, "num_hidden_layers": 52, "num_attention_heads": 32,
        "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 1856, "moe_intermediate_size": 1856,
        "moe_shared_expert_intermediate_size": 3712, "n_routed_experts": 128, "n_shared_experts": 1,
        "num_experts_per_tok": 6, "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
        "conv_kernel": 4, "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        "vocab_size": 131072, "tie_word_embeddings": false}"#,
    );
    same_as(
        "phi-2",
        r#"{"model_type": "phi", "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32,
        "intermediate_size": 10240, "vocab_size": 51200, "tie_word_embeddings": false}"#,
    );
}

const LLAMA: &str = r#""model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256"#;

fn bits(model: &Model, class: Class) -> f64 {
    model.by_class().iter().find(|total| total.class == class).unwrap().bits_per_weight.unwrap()
}

#[test]
fn methods_of_quantisation_have_their_bits() {
    for (said, expected) in [
        (r#"{"quant_method": "awq", "bits": 4, "group_size": 128}"#, 4.0 + 20.0 / 128.0),
        (r#"{"quant_method": "auto-round", "bits": 2, "group_size": 64}"#, 2.0 + 18.0 / 64.0),
        (r#"{"quant_method": "torchao", "quant_type": "int4_weight_only"}"#, 4.25),
        (r#"{"quant_method": "hqq", "weight_quant_params": {"nbits": 4, "group_size": 64}}"#, 4.5),
        (r#"{"quant_method": "bitnet"}"#, 2.0),
        (r#"{"quant_method": "fp8"}"#, 8.0),
        (r#"{"quant_method": "mxfp4"}"#, 4.25),
        (r#"{"quant_method": "modelopt", "quant_algo": "NVFP4"}"#, 4.5),
        (r#"{"quant_method": "modelopt", "quant_algo": "FP8"}"#, 8.0),
        (r#"{"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 128}"#, 4.125),
        (r#"{"quant_method": "modelopt", "quant_algo": "MXFP8"}"#, 8.25),
        (r#"{"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"}"#, 4.5),
        (r#"{"quant_method": "bitsandbytes", "load_in_8bit": true}"#, 8.0),
        (
            r#"{"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}}"#,
            4.5,
        ),
        (
            r#"{"quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 128}}}}"#,
            4.125,
        ),
    ] {
        let model = parse(&format!("{{{LLAMA}, \"quantization_config\": {said}}}")).unwrap();
        assert_eq!(bits(&model, Class::Mlp), expected, "{said}");
        assert_eq!(bits(&model, Class::AttentionQ), expected, "{said}");
        assert_eq!(bits(&model, Class::Head), 16.0, "{said}");
        assert_eq!(bits(&model, Class::Embedding), 16.0, "{said}");
    }
    // A scale and a zero point for every group or output, and the group of every input.
    for (width, group, each) in [(4.0, 32, 32.0), (8.0, 128, 128.0), (3.0, 128, 128.0), (4.0, -1, 4096.0)] {
        let said = format!(r#"{{"quant_method": "gptq", "bits": {width}, "group_size": {group}}}"#);
        let model = parse(&format!("{{{LLAMA}, \"quantization_config\": {said}}}")).unwrap();
        let expected = width + (16.0 + width) / each + 32.0 / 4096.0;
        assert!((bits(&model, Class::AttentionQ) - expected).abs() < 1e-6, "{said}");
        assert!((bits(&model, Class::Mlp) / expected - 1.0).abs() < 0.002, "{said}");
    }
    let unknown = parse(&format!("{{{LLAMA}, \"quantization_config\": {{\"quant_method\": \"magic\"}}}}"));
    assert!(unknown.unwrap_err().to_string().contains("\"magic\", which is not known"));
}

#[test]
fn exempt_modules_stay_at_16_bits() {
    for pattern in [
        "model.layers.*.self_attn",
        "model.language_model.layers.*.self_attn*",
        "self_attn",
        "re:.*self_attn.*",
        r"re:model\\.layers\\.\\d*.*self_attn.*",
    ] {
        let said = format!(
            r#"{{"quant_algo": "NVFP4", "quant_method": "modelopt", "exclude_modules": ["{pattern}"]}}"#
        );
        let model = parse(&format!("{{{LLAMA}, \"quantization_config\": {said}}}")).unwrap();
        assert_eq!(bits(&model, Class::AttentionQ), 16.0, "{pattern}");
        assert_eq!(bits(&model, Class::Mlp), 4.5, "{pattern}");
    }
    let said = r#"{"quant_method": "fp8", "ignored_layers": ["model.layers.1"]}"#;
    let model = parse(&format!("{{{LLAMA}, \"quantization_config\": {said}}}")).unwrap();
    // One layer of 32; layers 10 to 19 are others.
    let expected = 8.0 + 8.0 / 32.0;
    assert!((bits(&model, Class::Mlp) - expected).abs() < 1e-9, "{}", bits(&model, Class::Mlp));
}

/// Schemes that differ by module: groups of compressed-tensors, modelopt's list of layers, GPTQModel's rules.
#[test]
fn groups_of_modules_have_schemes_of_their_own() {
    let model = |said: &str| parse(&format!("{{{LLAMA}, \"quantization_config\": {said}}}")).unwrap();
    let mixed = model(
        r#"{"quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": ["lm_head"], "config_groups": {
            "group_0": {"targets": ["re:.*self_attn.(q|k|v|o)_proj$"], "format": "float-quantized",
                "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
            "group_1": {"targets": ["re:.*mlp.*"], "format": "nvfp4-pack-quantized",
                "weights": {"num_bits": 4, "type": "float", "group_size": 16}}}}"#,
    );
    assert_eq!((bits(&mixed, Class::AttentionQ), bits(&mixed, Class::AttentionOut)), (8.0, 8.0));
    assert_eq!((bits(&mixed, Class::Mlp), bits(&mixed, Class::Head)), (4.5, 16.0));
    let some = model(
        r#"{"quant_method": "compressed-tensors", "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 64}},
            "group_1": {"targets": ["re:.*down_proj"], "weights": {"num_bits": 8, "type": "int"}}}}"#,
    );
    assert_eq!(bits(&some, Class::AttentionV), 4.25);
    // With a scale for each of its outputs, whose inputs are 14336.
    assert!((bits(&some, Class::Mlp) - (4.25 * 2.0 + 8.0) / 3.0).abs() < 1e-3);

    let layers = |algorithm: &str, module: &str| {
        (0..32)
            .map(|layer| format!(r#""model.layers.{layer}.{module}": {{"quant_algo": "{algorithm}"}}"#))
            .collect::<Vec<_>>()
            .join(",")
    };
    let named = model(&format!(
        r#"{{"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {{{}, {}}}}}"#,
        layers("FP8", "self_attn.q_proj"),
        layers("NVFP4", "mlp.up_proj")
    ));
    assert_eq!((bits(&named, Class::AttentionQ), bits(&named, Class::AttentionK)), (8.0, 16.0));
    assert!((bits(&named, Class::Mlp) - (4.5 + 16.0 + 16.0) / 3.0).abs() < 1e-9);

    let ruled = model(
        r#"{"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {
            "-:.*k_proj.*": {}, "+:.*down_proj.*": {"bits": 8}, ".*q_proj": {"bits": 4, "group_size": 32}}}"#,
    );
    assert_eq!(
        (bits(&ruled, Class::AttentionK), bits(&ruled, Class::AttentionV)),
        (16.0, 4.15625 + 32.0 / 1024.0)
    );
    let (up, down) = (4.15625 + 32.0 / 14336.0, 8.0 + 24.0 / 128.0 + 32.0 / 4096.0);
    assert!((bits(&ruled, Class::Mlp) - (up * 2.0 + down) / 3.0).abs() < 1e-6);

    let strange = model(r#"{"quant_method": "fp8", "ignored_layers": ["re:.*(a{2}|b).*"]}"#);
    assert!(
        strange.warnings.iter().any(|warning| warning.contains("not understood")),
        "{:?}",
        strange.warnings
    );
    assert_eq!(bits(&strange, Class::Mlp), 8.0);
}

#[test]
fn lists_that_would_take_long_are_refused() {
    let patterns: Vec<String> = (0..4000).map(|index| format!("\"*a{index}*b\"")).collect();
    let text = format!(
        r#"{{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1000, "num_attention_heads": 1, "vocab_size": 9,
        "intermediate_size": 64, "quantization_config": {{"quant_method": "fp8", "ignore": [{}]}}}}"#,
        patterns.join(",")
    );
    assert!(parse(&text).err().unwrap().to_string().contains("comparisons"));
}

/// Gemma-4-31B as NVFP4 with attention left alone: 32 GB a token, and nothing contradicts the file.
#[test]
fn modules_that_are_left_count_in_full_without_an_alarm() {
    let model = parse(
        r#"{"text_config": {"model_type": "gemma4_text", "hidden_size": 5376, "num_hidden_layers": 60,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256, "global_head_dim": 512,
        "num_global_key_value_heads": 4, "attention_k_eq_v": true, "intermediate_size": 21504, "vocab_size": 262144,
        "sliding_window": 1024, "tie_word_embeddings": true}, "quantization_config": {"quant_method": "modelopt",
        "quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.language_model.layers.*.self_attn*"]}}"#,
    )
    .unwrap();
    let gigabytes = model.bytes_per_token().get() / 1e9;
    assert!((31.0..32.5).contains(&gigabytes), "{gigabytes}");
    assert_eq!(model.warnings, Vec::<String>::new());
}

#[test]
fn layers_that_nothing_here_describes_are_refused_with_a_way_on() {
    let layers = format!("[{}]", vec![r#""banana_attention""#; 32].join(","));
    let error = parse(&format!(r#"{{{LLAMA}, "layer_types": {layers}}}"#)).unwrap_err();
    assert!(matches!(&error, ImportError::Undescribed { field, .. } if field == "layer_types"), "{error}");
    assert!(error.hint().contains("a .safetensors or .gguf file tells the sizes"), "{}", error.hint());
}

#[test]
fn contradictions_name_their_field() {
    let field = |change: &str| {
        let error = parse(&format!("{{{LLAMA}, {change}}}")).unwrap_err();
        match error {
            ImportError::Model(invalid) => invalid.field().to_owned(),
            ImportError::Field { field, .. }
            | ImportError::Missing { field, .. }
            | ImportError::Undescribed { field, .. } => field,
            other => panic!("{other}"),
        }
    };
    // The last of two equal keys counts, as in Python.
    assert_eq!(field(r#""num_attention_heads": 30, "num_key_value_heads": 30"#), "head_dim");
    assert_eq!(field(r#""num_key_value_heads": 64"#), "kv_heads");
    assert_eq!(field(r#""num_key_value_heads": 0"#), "kv_heads");
    assert_eq!(field(r#""num_hidden_layers": 0"#), "layers");
    assert_eq!(field(r#""num_hidden_layers": 1000000000"#), "layers");
    assert_eq!(field(r#""hidden_size": 0"#), "hidden");
    assert_eq!(field(r#""hidden_size": 1e300"#), "hidden_size");
    assert_eq!(field(r#""hidden_size": -1"#), "hidden_size");
    assert_eq!(field(r#""hidden_size": "4096""#), "hidden_size");
    assert_eq!(field(r#""vocab_size": 9007199254740993"#), "vocab_size");
    assert_eq!(field(r#""layer_types": ["full_attention"]"#), "layer_types");
    assert_eq!(
        field(r#""num_experts": 8, "num_experts_per_tok": 9, "moe_intermediate_size": 5"#),
        "active_experts"
    );
    assert_eq!(field(r#""num_experts": 8"#), "num_experts_per_tok");
    assert_eq!(field(r#""kv_lora_rank": 8"#), "qk_nope_head_dim");
}

#[test]
fn what_is_no_configuration_is_refused() {
    for text in ["", "{", "[]", "null", "3", "\"x\"", "{}", &"[".repeat(100_000), &"{\"a\":".repeat(100_000)]
    {
        assert!(parse(text).is_err(), "{}", &text[..text.len().min(20)]);
    }
}

#[test]
fn a_configuration_of_more_than_any_model_has_is_refused_before_it_takes_its_memory() {
    for (json, word) in [
        (format!("{{\"a\":[{}0]}}", "{\"\":0},".repeat(200_000)), "objects and lists"),
        (format!("{{\"a\":[{}0]}}", "[0],".repeat(200_000)), "objects and lists"),
        (format!("{{\"a\":[{}0]}}", "0,".repeat(600_000)), "values"),
    ] {
        let error = parse(&json).unwrap_err();
        assert!(matches!(&error, ImportError::TooMany { what, .. } if *what == word), "{error}");
    }
    // Brackets and commas in text are none, behind an escaped quote too.
    let text = format!("\\\"{}", "[{,".repeat(600_000));
    let error = parse(&format!("{{\"a\":\"{text}\",\"b\\\"[\":[\"{text}\"]}}")).unwrap_err();
    assert!(!matches!(error, ImportError::TooMany { .. }), "{error}");
}

#[test]
fn what_is_wrong_is_told_in_few_words_however_many_the_file_has() {
    let error = parse(&format!("{{\"a\":1}} {}", "x".repeat(100_000))).unwrap_err().to_string();
    assert!(error.len() < 400 && error.contains(" at line 1 column "), "{error}");
    let header = format!(
        "{{\"a\":{{\"dtype\":\"F32\",\"shape\":\"{}\",\"data_offsets\":[0,0]}}}}",
        "é".repeat(100_000)
    );
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    let read = rooflined_models::import::safetensors::read(bytes.as_slice(), bytes.len() as u64);
    let error = read.unwrap_err().to_string();
    assert!(error.len() < 800 && error.contains("… at line 1 column "), "{error}");
}
