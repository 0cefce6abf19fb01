use super::*;
use crate::import::expression::FUNCTIONS;
use serde_json::json;

#[test]
fn every_file_of_families_is_understood() {
    let mut names = BTreeMap::new();
    for (file, text) in FILES.iter().chain(&[("tensors", TENSORS_FILE)]) {
        for (name, family) in read(text).unwrap_or_else(|error| panic!("{file}: {error}")) {
            let sizes = family.weights.iter().chain(&family.layer_weights);
            let nodes = sizes.flat_map(|extra| extra.sizes.iter().chain(&extra.condition));
            let conditions = family.remarks.iter().map(|(_, condition)| condition);
            for node in nodes.chain(conditions).chain(family.keys.values()) {
                for call in node.calls() {
                    assert!(FUNCTIONS.contains(&call), "{name}: {call}");
                }
            }
            let described = names.insert((name.clone(), *file == "tensors"), *file);
            assert_eq!(described, None, "{name} is described twice");
        }
    }
    for all in [&*FAMILIES, &*TENSORS] {
        for (name, family) in all {
            assert!(name == "base" || all.contains_key(family.like.as_deref().unwrap()), "{name}");
        }
    }
    let is_known = |name: &String| name == "ties" || FAMILIES.contains_key(name);
    assert!(DEFAULTS.len() > 150 && DEFAULTS.keys().all(is_known));
}

fn parameters(config: &Value) -> Result<u128, String> {
    let map = config.as_object().unwrap();
    let fields = Fields { map };
    let family = config["model_type"].as_str().unwrap();
    let mut described = Described::new(family, &fields, &fields).ok_or("unknown")?;
    described.architecture().map(|found| found.parameters()).map_err(|error| error.to_string())
}

/// Weights that transformers makes of the same fields on torch's meta device.
#[test]
fn families_have_the_weights_that_transformers_gives_them() {
    let kind = |layer| if layer % 4 == 0 { "full_attention" } else { "sliding_attention" };
    for (config, expected) in [
        (json!({"model_type": "llama"}), 6_738_415_616_u128),
        (json!({"model_type": "apertus"}), 6_979_596_352),
        (json!({"model_type": "falcon_h1"}), 8_514_961_408),
        (json!({"model_type": "llama4_text"}), 107_769_861_120),
        (json!({"model_type": "mamba2"}), 7_285_403_648),
        (json!({"model_type": "bert"}), 109_514_298),
        (json!({"model_type": "olmo_hybrid"}), 7_430_870_688),
        (json!({"model_type": "gemma4_unified_text"}), 3_010_758_400),
        (
            json!({"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16,
            "vocab_size": 250_880}),
            559_214_592,
        ),
        (
            json!({"model_type": "chatglm", "hidden_size": 4096, "inner_hidden_size": 16384, "num_layers": 28,
            "num_attention_heads": 32, "vocab_size": 130_528}),
            6_173_286_400,
        ),
        // As published: 560 thousand million weights, and none in the experts that compute nothing.
        (json!({"model_type": "longcat_flash", "n_routed_experts": 512}), 560_000_000_000),
        (
            json!({"model_type": "nomic_bert", "architectures": ["NomicBertModel"], "n_embd": 768, "n_head": 12,
            "n_inner": 3072, "n_layer": 12, "num_experts": 8, "moe_top_k": 2, "moe_every_n_layers": 2,
            "activation_function": "gelu", "vocab_size": 250_048}),
            475_290_000,
        ),
        (json!({"model_type": "t5"}), 60_506_624),
        (
            json!({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100_352,
            "attn_config": {"kv_n_heads": 8},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}}),
            131_596_523_520,
        ),
        (json!({"model_type": "zamba"}), 7_232_490_496),
        // As published: 316 thousand million weights without the tower.
        (
            json!({"model_type": "step3_text", "hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 64,
            "num_attention_groups": 1, "num_hidden_layers": 61, "vocab_size": 128_815, "moe_intermediate_size": 5120,
            "moe_num_experts": 48, "moe_top_k": 3, "share_expert_dim": 5120, "share_q_dim": 2048, "head_dim": 256,
            "moe_layers_enum": (4..60).map(|layer: u32| layer.to_string()).collect::<Vec<_>>().join(",")}),
            316_000_000_000,
        ),
        // As published: 196.8 thousand million, and heads of its own where there is a window.
        (
            json!({"model_type": "step3p5", "vocab_size": 128_896, "num_attention_groups": 8, "moe_num_experts": 288,
            "moe_top_k": 8, "layer_types": (0..48).map(kind).collect::<Vec<_>>(),
            "attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8},
            "moe_layers_enum": (3..45).map(|layer: u32| layer.to_string()).collect::<Vec<_>>().join(",")}),
            196_960_000_000,
        ),
        // The same under the names that transformers takes for them.
        (
            json!({"model_type": "t5", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 6}),
            60_506_624,
        ),
        // As published, the first with its tower of 1.9 thousand million.
        (
            json!({"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
            "num_attention_heads": 32, "vocab_size": 151_936,
            "visual": {"layers": 48, "mlp_ratio": 4.9231, "output_dim": 4096, "width": 1664}}),
            9_660_000_000,
        ),
        (
            json!({"model_type": "bailing_moe", "hidden_size": 2048, "intermediate_size": 5632,
            "moe_intermediate_size": 1408, "num_hidden_layers": 28, "num_attention_heads": 16,
            "num_key_value_heads": 4, "num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2,
            "vocab_size": 126_464, "head_dim": 0}),
            16_800_000_000,
        ),
        (
            json!({"model_type": "deepseek_v4", "layer_types": vec!["heavily_compressed_attention"; 43],
            "num_hidden_layers": 43, "compress_rates": {"heavily_compressed_attention": 128}}),
            283_000_000_000,
        ),
    ] {
        let found = parameters(&config).unwrap();
        let share = found as f64 / expected as f64;
        assert!((0.98..1.02).contains(&share), "{config}: {found} of {expected}");
    }
}

#[test]
fn layers_follow_from_a_rule_or_are_refused_without_their_list() {
    let linear = json!({"model_type": "qwen3_next", "num_hidden_layers": 8});
    let fields = Fields { map: linear.as_object().unwrap() };
    let layers = Described::new("qwen3_next", &fields, &fields).unwrap().architecture().unwrap().layers;
    assert_eq!(layers.iter().filter(|layer| matches!(layer.mixer, Mixer::Linear(_))).count(), 6);
    // As published: a list of its own says which layers are linear.
    let listed = json!({"model_type": "kimi_linear", "num_hidden_layers": 4, "linear_attn_config":
        {"kda_layers": [1, 3, 4], "full_attn_layers": [2], "num_heads": 2, "head_dim": 64}});
    let fields = Fields { map: listed.as_object().unwrap() };
    let layers = Described::new("kimi_linear", &fields, &fields).unwrap().architecture().unwrap().layers;
    let attends = layers.iter().map(|layer| !matches!(layer.mixer, Mixer::Linear(_)));
    assert_eq!(attends.collect::<Vec<_>>(), [false, true, false, false]);
    for family in ["flint", "dots3_note_text"] {
        let error = parameters(&json!({"model_type": family})).unwrap_err();
        assert!(error.contains("layer_types is not given"), "{error}");
    }
}

/// A default is a size of another model.
#[test]
fn a_size_under_a_foreign_name_is_refused_by_it() {
    for (config, field) in [
        (json!({"model_type": "llama", "n_embed": 768}), "n_embed"),
        (json!({"model_type": "bloom", "d_model": 768}), "d_model"),
        (json!({"model_type": "llama", "hidden_size": 768, "inner_hidden_size": 9}), "inner_hidden_size"),
        (json!({"model_type": "gpt_neox", "hidden_size": 768, "n_layer": 9}), ""),
    ] {
        match parameters(&config) {
            Err(error) => assert!(!field.is_empty() && error.contains(field), "{config}: {error}"),
            Ok(_) => assert_eq!(field, "", "{config}"),
        }
    }
}

#[test]
fn heads_that_share_keys_and_layers_that_attend_are_counted_as_published() {
    let cached = |config: &Value| {
        let fields = Fields { map: config.as_object().unwrap() };
        let family = config["model_type"].as_str().unwrap();
        let layers = Described::new(family, &fields, &fields).unwrap().architecture().unwrap().layers;
        let kept = |mixer: &Mixer| match mixer {
            Mixer::Attention(attention) => attention.kv_heads * attention.head_dim * 2,
            _ => 0,
        };
        layers.iter().map(|layer| kept(&layer.mixer)).sum::<u64>()
    };
    let falcon = json!({"model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128, "n_head_kv": 8,
        "n_layer": 60, "vocab_size": 65024});
    assert_eq!(cached(&falcon), 60 * 8 * 64 * 2);
    let mut ring = json!({"model_type": "bailing_moe_linear", "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 128, "num_hidden_layers": 22, "intermediate_size": 5120,
        "vocab_size": 157_184, "layer_group_size": 5});
    assert_eq!(cached(&ring), (4 + 2) * 4 * 128 * 2);
    ring["layer_group_size"] = Value::Null;
    assert!(parameters(&ring).unwrap_err().contains("not known"));
}

#[test]
fn kinds_of_layers_that_nobody_knows_are_refused_by_name() {
    let error =
        parameters(&json!({"model_type": "llama", "num_hidden_layers": 1, "layer_types": ["oracular"]}));
    assert!(error.unwrap_err().contains("\"oracular\""));
    let short = json!({"model_type": "llama", "num_hidden_layers": 4, "layer_types": ["full_attention"]});
    assert!(parameters(&short).unwrap_err().contains("describes 1 of 4 layers"));
    assert_eq!(parameters(&json!({"model_type": "oracular"})).unwrap_err(), "unknown");
}
