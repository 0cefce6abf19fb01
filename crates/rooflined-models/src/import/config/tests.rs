use serde_json::json;

use super::*;
use crate::import::Tensor;
use crate::transformer::Task;

#[test]
fn numbers_that_only_python_writes_are_read() {
    let text = br#"{"a": [0.0, Infinity, -Infinity], "NaN": NaN, "b": "Infinity \" NaN"}"#;
    let read = value(text, MAX_CONTAINERS).unwrap();
    assert_eq!(read, json!({"a": [0.0, null, null], "NaN": null, "b": "Infinity \" NaN"}));
}

#[test]
fn fewer_objects_may_have_fewer_values() {
    let text = br#"["a","b","c","d","e","f","g","h"]"#;
    assert!(value(text, 2).is_ok());
    let refused = value(text, 1).unwrap_err();
    assert!(matches!(refused, ImportError::TooMany { what: "values", count: 8, limit: 4 }), "{refused}");
}

/// DeepSeek-V3.2: 512 of the latent, 64 of the position and 128 of the indexer, in each of 61 layers; V3 has no indexer.
#[test]
fn an_indexer_keeps_a_key_of_every_token() {
    let kept = |family: &str| {
        let text = format!(r#"{{"model_type": "{family}"}}"#);
        let model = Config::parse(text.as_bytes()).unwrap().model(None, "m").unwrap();
        model.kv_bytes_per_token(WeightFormat::Fp16).get()
    };
    assert_eq!(kept("deepseek_v32"), 61.0 * (512.0 + 64.0 + 128.0) * 2.0);
    assert_eq!(kept("deepseek_v3"), 61.0 * (512.0 + 64.0) * 2.0);
}

/// MLX packs the embedding too, and names no method.
#[test]
fn what_mlx_packs_is_counted_in_its_bits() {
    let text = br#"{"model_type": "llama", "quantization": {"group_size": 64, "bits": 4}}"#;
    let model = Config::parse(text).unwrap().model(None, "m").unwrap();
    let bits = model.bytes().get() * 8.0 / model.parameters() as f64;
    assert!((4.5..4.52).contains(&bits), "{bits}");
}

/// Its first name in compressed-tensors and in AQLM; a field that is null hides no other.
#[test]
fn what_quantises_is_read_under_its_earlier_names() {
    let int8 = json!({"config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}, "targets": ["Linear"]}}});
    let aqlm = json!({"nbits_per_codebook": 8, "num_codebooks": 2, "in_group_size": 8, "out_group_size": 1});
    for (fields, label) in [
        (json!({"quantization_config": null, "compression_config": int8}), "int8"),
        (json!({"aqlm": aqlm}), "aqlm"),
    ] {
        assert_eq!(model(&with("llama", &fields)).label.unwrap(), label, "{fields}");
    }
}

#[test]
fn what_quantises_is_never_taken_for_16_bits() {
    for fields in [
        json!({"quantization_config": "fp8"}),
        json!({"quantization": "4bit"}),
        json!({"quantization": {"quant_algo": "W1A1"}}),
    ] {
        let error = Config::from_value(&with("llama", &fields)).and_then(|config| config.model(None, "m"));
        assert!(matches!(error, Err(ImportError::Method(_))), "{fields}: {error:?}");
    }
    let switched_off = json!({"quant_method": "bitsandbytes", "load_in_4bit": false, "load_in_8bit": false});
    for fields in [json!({"quantization_config": switched_off}), json!({"quantization": {}})] {
        assert_eq!(model(&with("llama", &fields)).label.unwrap(), "bf16", "{fields}");
    }
}

#[test]
fn an_embedder_of_nvidia_reads_its_states_through_latents() {
    let text = json!({"model_type": "bidir_mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000});
    let latents = json!({"num_cross_heads": 8, "cross_dim_head": 4096});
    let config = json!({"model_type": "nvembed", "text_config": text, "latent_attention_config": latents});
    let found = model(&config);
    assert!(Task::of(&found) == Task::Embed);
    assert!((7.82e9..7.88e9).contains(&(found.parameters() as f64)), "{}", found.parameters());
}

/// VILA keeps its parts under keys of its own, and its class ends as those of encoders do.
#[test]
fn a_wrapper_of_vila_generates_text_and_has_its_tower() {
    let config = json!({"model_type": "llava_llama", "architectures": ["LlavaLlamaModel"],
        "llm_cfg": with("qwen2", &json!({})),
        "vision_tower_cfg": {"model_type": "siglip_vision_model", "hidden_size": 1152, "num_hidden_layers": 27,
            "intermediate_size": 4304, "patch_size": 14, "image_size": 384}});
    let model = model(&config);
    assert!(Task::of(&model) == Task::Generate && model.parameters() > 400_000_000);
}

fn model(config: &Value) -> Model {
    Config::from_value(config).unwrap().model(None, "m").unwrap()
}

fn with(family: &str, fields: &Value) -> Value {
    let mut config = json!({"model_type": family, "hidden_size": 256, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000});
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    config
}

/// By the endings of vLLM's registry; a single label is a score.
#[test]
fn the_class_says_what_a_model_is_for() {
    let label = json!({"0": "LABEL_0"});
    for (family, class, more, task) in [
        ("llama", "LlamaForCausalLM", Value::Null, Task::Generate),
        ("llama", "LlamaForSequenceClassification", label.clone(), Task::Rerank),
        ("llama", "LlamaForSequenceClassification", Value::Null, Task::Embed),
        ("llama", "LlamaForTokenClassification", Value::Null, Task::Embed),
        ("mistral", "MistralModel", Value::Null, Task::Embed),
        ("chatglm", "ChatGLMModel", Value::Null, Task::Generate),
        ("xlm-roberta", "XLMRobertaForSequenceClassification", label, Task::Rerank),
        ("bert", "BertForMaskedLM", Value::Null, Task::Embed),
        ("bert", "BertLMHeadModel", Value::Null, Task::Generate),
        ("gemma3", "ShieldGemma2ForImageClassification", Value::Null, Task::Generate),
    ] {
        let config = with(
            family,
            &json!({"architectures": [class], "id2label": more,
            "max_position_embeddings": 512, "tie_word_embeddings": false}),
        );
        let model = model(&config);
        assert_eq!(Task::of(&model), task, "{class}");
        let is_cached = model.kv_bytes_per_token(WeightFormat::Fp16).get() > 0.0;
        assert_eq!(is_cached, task == Task::Generate, "{class}");
        let has_head = model.weights.iter().any(|group| group.class == Class::Head);
        assert_eq!(has_head, task == Task::Generate || class.contains("MaskedLM"), "{class}");
    }
}

#[test]
fn fields_around_a_text_model_are_not_its_own() {
    let text = with("granite", &json!({"max_position_embeddings": 4096}));
    let config = json!({"model_type": "granite_speech", "window_size": 15, "text_config": text});
    let config = Config::from_value(&config).unwrap();
    let mixer = config.architecture.unwrap().layers[0].mixer;
    assert!(matches!(mixer, Mixer::Attention(attention) if attention.window.is_none()));
}

#[test]
fn towers_without_sizes_are_refused_by_name() {
    let refused = |config: &Value| match Config::from_value(config).unwrap().model(None, "x") {
        Err(ImportError::Tower(name)) => Some(name),
        other => {
            other.unwrap();
            None
        }
    };
    let text = with("llama", &json!({}));
    assert_eq!(refused(&text), None);
    let named = |name: &str| refused(&with("llava", &json!({"mm_vision_tower": name})));
    assert_eq!(named("openai/clip-vit-large-patch14"), None);
    assert_eq!(named("somebody/else").unwrap(), "somebody/else");
    let own = json!({"model_type": "radio", "args": {"model": "vit_giant_patch14"}});
    assert_eq!(
        refused(&json!({"model_type": "x", "text_config": text, "vision_config": own})).unwrap(),
        "radio"
    );
    // What is around the text may have towers that it names in its own way.
    let around = json!({"model_type": "openvla", "timm_model_ids": ["vit_large"], "text_config": text});
    assert_eq!(refused(&around).unwrap(), "openvla");
    let usual = json!({"model_type": "pixtral", "hidden_size": 1024});
    let known = json!({"model_type": "llava", "text_config": text, "vision_config": usual});
    assert!(refused(&known).is_none() && model(&known).parameters() > 400_000_000);
}

/// What each tool leaves in 16 bits.
#[test]
fn only_the_modules_that_a_method_names_are_packed() {
    let bits = |quantisation: Value| {
        let model = model(&with(
            "llama",
            &json!({"quantization_config": quantisation,
            "tie_word_embeddings": false}),
        ));
        [Class::AttentionQ, Class::Mlp, Class::Head].map(|class| {
            let total = model.by_class().into_iter().find(|total| total.class == class).unwrap();
            total.bits_per_weight.unwrap() > 15.0
        })
    };
    let gptq = |name: &str, value: Value| json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": false, name: value});
    assert_eq!(bits(gptq("dynamic", json!({"lm_head": {}}))), [false, false, true]);
    assert_eq!(bits(gptq("dynamic", json!({"-:.*attn.*": {}}))), [true, false, true]);
    let only = json!([["mlp.up_proj", "mlp.gate_proj"], ["mlp.down_proj"]]);
    assert_eq!(bits(gptq("modules_in_block_to_quantize", only)), [true, false, true]);
    let mut quip = with("llama", &json!({"quip_params": {"codebook": "E8P12"}}));
    assert_eq!(model(&quip).label.as_deref(), Some("quip"));
    quip["architectures"] = json!(["LlamaForCausalLMEagle3"]);
    assert!(Config::from_value(&quip).unwrap_err().to_string().contains("drafts"));
}

#[test]
fn what_generates_no_text_is_named() {
    let error = |text: &str| Config::parse(text.as_bytes()).unwrap_err().to_string();
    assert!(error(r#"{"_class_name": "FluxTransformer2DModel"}"#).contains("image or video"));
    assert!(error(r#"{"peft_type": "LORA"}"#).contains("adapter"));
    let encoder = br#"{"model_type": "bert", "architectures": ["BertModel"]}"#;
    let model = Config::parse(encoder).unwrap().model(None, "m").unwrap();
    assert_eq!(model.kv_bytes_per_token(WeightFormat::Fp16).get(), 0.0);
    assert!(
        model.warnings[0].contains("encoder") && model.weights.iter().all(|group| group.class != Class::Head)
    );
}

/// Files that do not name their labels have as many as the last matrix has rows.
#[test]
fn weights_of_one_label_rank() {
    let config = with("qwen3", &json!({"architectures": ["Qwen3ForSequenceClassification"]}));
    let config = Config::from_value(&config).unwrap();
    for (labels, task) in [(1, Task::Rerank), (3, Task::Embed)] {
        let tensor = |name: &str, rows: u64, offset| Tensor {
            name: name.to_owned(),
            block: Block::Bf16,
            shape: vec![rows, 256],
            file: 0,
            offset,
            bytes: rows * 512,
        };
        let tensors = [tensor("model.embed_tokens.weight", 1000, 0), tensor("score.weight", labels, 512_000)];
        let model = crate::import::safetensors::model(&tensors, Some(&config), "m").unwrap();
        assert_eq!(Task::of(&model), task);
    }
}

/// Mistral Small 3.1, whose text model has a head of its own; transformers 5 ties it where a file of its own says nothing.
#[test]
fn a_table_is_tied_by_default_as_the_version_that_wrote_the_file_did() {
    let is_tied = |version: &str| {
        let text = json!({"model_type": "mistral", "hidden_size": 512, "num_hidden_layers": 1});
        let config = json!({"model_type": "mistral3", "transformers_version": version, "text_config": text});
        Config::from_value(&config).unwrap().architecture.unwrap().tied_embeddings
    };
    assert_eq!([is_tied("4.50.0.dev0"), is_tied("5.24.0")], [false, true]);
}
