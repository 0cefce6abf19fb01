//! safetensors checkpoints with their configurations.

use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Bytes;
use rooflined_models::block::Block;
use rooflined_models::class::Class;
use rooflined_models::import::config::Config;
use rooflined_models::import::safetensors::{Index, model, read};
use rooflined_models::model::Model;

use super::write::Safetensors;

/// One layer 256 wide, 4 heads of 64 on 2, 512 inside.
pub const CONFIG: &str = r#""model_type": "llama", "hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 96, "torch_dtype": "bfloat16",
    "tie_word_embeddings": false, "max_position_embeddings": 2048"#;

fn config(quantisation: &str) -> Config {
    let comma = if quantisation.is_empty() { "" } else { ", \"quantization_config\": " };
    Config::parse(format!("{{{CONFIG}{comma}{quantisation}}}").as_bytes()).unwrap()
}

const PROJECTIONS: [(&str, u64, u64); 7] = [
    ("self_attn.q_proj", 256, 256),
    ("self_attn.k_proj", 128, 256),
    ("self_attn.v_proj", 128, 256),
    ("self_attn.o_proj", 256, 256),
    ("mlp.gate_proj", 512, 256),
    ("mlp.up_proj", 512, 256),
    ("mlp.down_proj", 256, 512),
];

/// Embedding, head and norms at 16 bits, projections as `add` writes them.
pub fn checkpoint(add: impl Fn(Safetensors, &str, u64, u64) -> Safetensors) -> Safetensors {
    let file = Safetensors::default()
        .tensor("model.embed_tokens.weight", "BF16", &[96, 256])
        .tensor("lm_head.weight", "BF16", &[96, 256])
        .tensor("model.norm.weight", "BF16", &[256])
        .tensor("model.layers.0.input_layernorm.weight", "BF16", &[256]);
    PROJECTIONS.iter().fold(file, |file, (name, rows, columns)| {
        add(file, &format!("model.layers.0.{name}"), *rows, *columns)
    })
}

fn load(file: &Safetensors, config: Option<&Config>) -> Model {
    let (bytes, length) = file.header();
    model(&read(bytes.as_slice(), length).unwrap(), config, "small").unwrap()
}

fn group_bits(model: &Model, class: Class) -> f64 {
    model.by_class().iter().find(|total| total.class == class).unwrap().bits_per_weight.unwrap()
}

/// Checks the sums that hold for every storage.
fn check(file: &Safetensors, model: &Model, block: Block, bits: f64) {
    let all = file.sum("");
    assert_eq!(model.bytes(), Bytes(all as f64));
    assert_eq!(model.bytes_per_token(), Bytes((all - file.sum("embed_tokens")) as f64));
    let projections: u64 = PROJECTIONS.iter().map(|(_, rows, columns)| rows * columns).sum();
    assert_eq!(model.parameters(), projections + 2 * 96 * 256 + 2 * 256);
    for class in [Class::AttentionQ, Class::AttentionK, Class::AttentionV, Class::AttentionOut, Class::Mlp] {
        assert!((group_bits(model, class) - bits).abs() < 1e-9, "{class} {}", group_bits(model, class));
        let groups: Vec<_> = model.weights.iter().filter(|group| group.class == class).collect();
        assert!(groups.iter().all(|group| group.block == block), "{groups:?}");
    }
    assert_eq!(group_bits(model, Class::Head), 16.0);
    assert_eq!(model.kv_bytes_per_token(WeightFormat::Fp16), Bytes(2.0 * 2.0 * 64.0 * 2.0));
    let shape =
        |rows, columns| model.weights.iter().any(|group| (group.rows, group.columns) == (rows, columns));
    assert!(block == Block::Nf4 || (shape(128, 256) && shape(256, 512)), "{:?}", model.weights);
}

#[test]
fn sixteen_bits() {
    let file = checkpoint(|file, name, rows, columns| {
        file.tensor(&format!("{name}.weight"), "BF16", &[rows, columns])
    });
    let model = load(&file, Some(&config("")));
    check(&file, &model, Block::Bf16, 16.0);
    assert_eq!(model.warnings, Vec::<String>::new());
    let alone = load(&file, None);
    assert_eq!(alone.bytes_per_token(), model.bytes_per_token());
    assert!(alone.warnings.iter().any(|warning| warning.contains("config.json")), "{:?}", alone.warnings);
}

#[test]
fn awq_packs_the_outputs_and_gptq_the_inputs() {
    let awq = checkpoint(|file, name, rows, columns| {
        file.tensor(&format!("{name}.qweight"), "I32", &[columns, rows / 8])
            .tensor(&format!("{name}.qzeros"), "I32", &[columns / 128, rows / 8])
            .tensor(&format!("{name}.scales"), "F16", &[columns / 128, rows])
    });
    let bits = 4.0 + 16.0 / 128.0 + 4.0 / 128.0;
    let said = r#"{"quant_method": "awq", "bits": 4, "group_size": 128}"#;
    let model = load(&awq, Some(&config(said)));
    check(&awq, &model, Block::AwqInt4, bits);
    assert_eq!(model.label.as_deref(), Some("awq_int4"));
    assert_eq!(model.warnings, Vec::<String>::new());

    let gptq = checkpoint(|file, name, rows, columns| {
        file.tensor(&format!("{name}.qweight"), "I32", &[columns / 8, rows])
            .tensor(&format!("{name}.qzeros"), "I32", &[columns / 128, rows / 8])
            .tensor(&format!("{name}.scales"), "F16", &[columns / 128, rows])
    });
    let said = r#"{"quant_method": "gptq", "bits": 4, "group_size": 128}"#;
    check(&gptq, &load(&gptq, Some(&config(said))), Block::GptqInt4, bits);
}

#[test]
fn nvfp4_mxfp4_fp8_nf4_and_packed_integers() {
    let nvfp4 = checkpoint(|file, name, rows, columns| {
        file.tensor(&format!("{name}.weight"), "U8", &[rows, columns / 2]).tensor(
            &format!("{name}.weight_scale"),
            "F8_E4M3",
            &[rows, columns / 16],
        )
    });
    let said = r#"{"quant_method": "modelopt", "quant_algo": "NVFP4"}"#;
    check(&nvfp4, &load(&nvfp4, Some(&config(said))), Block::Nvfp4, 4.5);

    let fp8 = checkpoint(|file, name, rows, columns| {
        file.tensor(&format!("{name}.weight"), "F8_E4M3", &[rows, columns]).tensor(
            &format!("{name}.weight_scale_inv"),
            "F32",
            &[rows / 128, columns / 128],
        )
    });
    let said = r#"{"quant_method": "fp8", "weight_block_size": [128, 128]}"#;
    check(&fp8, &load(&fp8, Some(&config(said))), Block::Fp8E4m3, 8.0 + 32.0 / 16384.0);

    let packed = checkpoint(|file, name, rows, columns| {
        file.tensor(&format!("{name}.weight_packed"), "I32", &[rows, columns / 8]).tensor(
            &format!("{name}.weight_scale"),
            "BF16",
            &[rows, columns / 32],
        )
    });
    let said = r#"{"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":
        {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}, "ignore": ["lm_head"]}"#;
    check(&packed, &load(&packed, Some(&config(said))), Block::Int4G32, 4.5);

    let nf4 = checkpoint(|file, name, rows, columns| {
        file.tensor(&format!("{name}.weight"), "U8", &[rows * columns / 2, 1]).tensor(
            &format!("{name}.weight.absmax"),
            "F32",
            &[rows * columns / 64],
        )
    });
    let said = r#"{"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"}"#;
    check(&nf4, &load(&nf4, Some(&config(said))), Block::Nf4, 4.5);
}

#[test]
fn experts_in_mxfp4_blocks() {
    let file = Safetensors::default()
        .tensor("model.embed_tokens.weight", "BF16", &[96, 64])
        .tensor("lm_head.weight", "BF16", &[96, 64])
        .tensor("model.layers.0.self_attn.q_proj.weight", "BF16", &[128, 64])
        .tensor("model.layers.0.self_attn.k_proj.weight", "BF16", &[64, 64])
        .tensor("model.layers.0.self_attn.v_proj.weight", "BF16", &[64, 64])
        .tensor("model.layers.0.self_attn.o_proj.weight", "BF16", &[64, 128])
        .tensor("model.layers.0.mlp.router.weight", "BF16", &[4, 64])
        .tensor("model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", &[4, 128, 2, 16])
        .tensor("model.layers.0.mlp.experts.gate_up_proj_scales", "U8", &[4, 128, 2])
        .tensor("model.layers.0.mlp.experts.down_proj_blocks", "U8", &[4, 64, 2, 16])
        .tensor("model.layers.0.mlp.experts.down_proj_scales", "U8", &[4, 64, 2]);
    let said = r#"{"model_type": "gpt_oss", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 64, "vocab_size": 96, "num_local_experts": 4,
        "num_experts_per_tok": 2, "sliding_window": 16, "layer_types": ["sliding_attention"],
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}}"#;
    let model = load(&file, Some(&Config::parse(said.as_bytes()).unwrap()));
    assert_eq!(group_bits(&model, Class::Expert), 4.25);
    let experts = file.sum("experts") as f64;
    let rest = (file.sum("") - file.sum("embed_tokens")) as f64 - experts;
    assert_eq!(model.bytes_per_token(), Bytes(rest + experts * 2.0 / 4.0));
    assert_eq!(model.kv_cache(1000, WeightFormat::Fp16), Bytes(16.0 * 2.0 * 64.0 * 2.0));
    assert_eq!(model.warnings, Vec::<String>::new());
}

/// Attention and head left at 16 bits are most of what is read: the label promises half.
#[test]
fn a_label_that_covers_a_part_only_is_a_warning() {
    let file = checkpoint(|file, name, rows, columns| {
        if name.contains("down_proj") {
            file.tensor(&format!("{name}.weight"), "U8", &[rows, columns / 2]).tensor(
                &format!("{name}.weight_scale"),
                "F8_E4M3",
                &[rows, columns / 16],
            )
        } else {
            file.tensor(&format!("{name}.weight"), "BF16", &[rows, columns])
        }
    });
    let said = r#"{"quant_method": "modelopt", "quant_algo": "NVFP4"}"#;
    let model = load(&file, Some(&config(said)));
    assert!(
        model.warnings.iter().any(|warning| warning.contains("config.json describes")),
        "{:?}",
        model.warnings
    );
}

#[test]
fn weights_that_are_packed_in_an_unknown_way_are_told() {
    let file = checkpoint(|file, name, rows, columns| {
        file.tensor(&format!("{name}.dense_weights"), "I64", &[rows / 16, columns * 3 / 4])
    });
    let model = load(&file, Some(&config(r#"{"quant_method": "spqr", "bits": 3}"#)));
    assert_eq!(model.bytes(), Bytes(file.sum("") as f64));
    let told = "config.json describes 0.001 billion weights, and its tensors are understood as 0.000";
    assert!(model.warnings.iter().any(|warning| warning.contains(told)), "{:?}", model.warnings);
}

#[test]
fn an_index_joins_the_files_that_it_names() {
    let whole = checkpoint(|file, name, rows, columns| {
        file.tensor(&format!("{name}.weight"), "BF16", &[rows, columns])
    });
    let half = whole.tensors.len() / 2;
    let (mut first, mut second) = (Safetensors::default(), Safetensors::default());
    first.tensors = whole.tensors[..half].to_vec();
    second.tensors = whole.tensors[half..].to_vec();
    let map: Vec<_> = whole
        .tensors
        .iter()
        .enumerate()
        .map(|(index, (name, ..))| {
            format!("\"{name}\": \"{}.safetensors\"", if index < half { "a" } else { "b" })
        })
        .collect();
    let index = format!("{{\"metadata\": {{\"total_size\": 1}}, \"weight_map\": {{{}}}}}", map.join(","));
    let index = Index::parse(index.as_bytes()).unwrap();
    assert_eq!(index.files().into_iter().collect::<Vec<_>>(), ["a.safetensors", "b.safetensors"]);
    let header = |file: &Safetensors| {
        let (bytes, length) = file.header();
        read(bytes.as_slice(), length).unwrap()
    };
    let (a, b) =
        (("a.safetensors".to_owned(), header(&first)), ("b.safetensors".to_owned(), header(&second)));
    let joined = index.join(vec![a.clone(), b.clone()]).unwrap();
    let model = model(&joined, Some(&config("")), "small").unwrap();
    assert_eq!(model.weights, load(&whole, Some(&config(""))).weights);

    let missing = index.join(vec![a.clone()]).unwrap_err().to_string();
    assert!(missing.contains("b.safetensors"), "{missing}");
    let swapped = index.join(vec![(b.0, a.1), (a.0, b.1)]).unwrap_err().to_string();
    assert!(swapped.contains("the index says"), "{swapped}");
    for outside in ["../../etc/shadow", "/etc/shadow", ".hidden", "", "a\\u0000b"] {
        let index = format!("{{\"weight_map\": {{\"x\": \"{outside}\"}}}}");
        assert!(Index::parse(index.as_bytes()).is_err(), "{outside}");
    }
}
