//! The registry and the files that it is read from.

mod near;

use super::*;
use crate::class::Class;
use rooflined_core::precision::WeightFormat;

#[test]
fn every_file_of_the_registry_parses() {
    let mut all = Models::default();
    for (file, text) in FILES {
        all.add(file, text).unwrap();
    }
    for (key, listed) in &all.entries {
        let read = listed.entry.clone().known(key);
        assert!(read.is_ok(), "{key}: {:?}", read.err());
    }
    assert!(all.entries.len() >= 120, "{}", all.entries.len());
}

#[test]
fn a_model_is_found_by_every_name_that_people_use_and_no_name_is_of_two() {
    let mut owners = BTreeMap::new();
    for model in models().all() {
        for name in std::iter::once(&model.key).chain(&model.aliases) {
            let before = owners.insert(plain_name(name), &model.key);
            assert_eq!(before, None, "{name} is of two models");
            let hub = format!("Maker/{}-Instruct", name.to_ascii_uppercase());
            let bare =
                if models().default_tag(name).is_some() { format!("maker/{name}") } else { name.clone() };
            for public in [bare, hub, format!("maker/{name}-it-GGUF"), name.replacen('-', ":", 1)] {
                assert_eq!(models().get(&public).map(|found| &found.key), Ok(&model.key), "{public}");
            }
        }
    }
    for (public, key) in [
        ("Qwen/Qwen3-4B", "qwen3-4b"),
        ("https://huggingface.co/Qwen/Qwen3-4B/", "qwen3-4b"),
        ("hf.co/Qwen/Qwen3-4B-GGUF", "qwen3-4b"),
        ("https://ollama.com/library/qwen3:4b", "qwen3-4b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("qwen3:8b", "qwen3-8b"),
        ("llama3.2:3b", "llama-3.2-3b"),
        ("gpt-oss:20b", "gpt-oss-20b"),
        ("gemma3:4b", "gemma-3-4b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama-3.1-8b"),
        ("qwen2.5-coder:7b", "qwen2.5-7b"),
        ("Qwen/Qwen3.6-27B", "qwen3.6-27b"),
        ("qwen3.6:27b", "qwen3.6-27b"),
        ("qwen3.6:35b-a3b", "qwen3.6-35b-a3b"),
        ("Qwen/Qwen3.8-27B", "qwen3.8-27b"),
        ("google/gemma-4-E4B-it", "gemma-4-e4b"),
        ("gemma4:e4b", "gemma-4-e4b"),
        ("Qwen/Qwen3-Coder-Next", "qwen3-coder-next"),
        ("Qwen/Qwen3-VL-8B-Instruct", "qwen3-vl-8b"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16", "nemotron-3-nano-4b"),
        ("zai-org/GLM-4.7-Flash", "glm-4.7-flash"),
        ("mistralai/Ministral-3-3B-Instruct-2512", "ministral-3-3b"),
        ("ministral-3:3b", "ministral-3-3b"),
        ("deepseek-ai/DeepSeek-V4-Flash", "deepseek-v4-flash"),
        ("deepseek-r1:1.5b", "deepseek-r1-distill-qwen-1.5b"),
        ("llama4:scout", "llama-4-scout"),
        ("deepseek-r1:8b", "qwen3-8b"),
        ("deepseek-r1:8b-llama-distill", "llama-3.1-8b"),
        ("llama3.2-vision:11b", "llama-3.2-11b-vision"),
        ("nemotron:70b", "llama-3.1-70b"),
        ("nvidia/Llama-3.1-Nemotron-Nano-8B-v1", "llama-3.1-8b"),
    ] {
        assert_eq!(models().get(public).map(|found| found.key.as_str()), Ok(key), "{public}");
        assert_eq!(models().stored_in(public), None, "{public}");
    }
    for other in [
        "Qwen3-4B-Q4_K_M.gguf",
        "a/b/qwen3-4b",
        "Qwen/qwen3",
        "qwen3-4b-mlx",
        "awq",
        "-awq",
        ":q4_0",
        ":",
        "/",
        "-it",
        "",
    ] {
        assert!(models().get(other).is_err(), "{other}");
    }
}

#[test]
fn a_name_of_several_models_is_the_one_that_ollama_runs_for_it() {
    let mut owners = BTreeMap::new();
    for model in models().all() {
        for name in &model.ollama {
            assert_eq!(owners.insert(name.as_str(), &model.key), None, "{name} is of two models");
            for typed in [name.clone(), format!("{name}:latest"), name.to_uppercase()] {
                // A name may also be a model's own.
                let found = models().get(&typed).map(|found| found.key.as_str());
                assert!(models().default_tag(&typed).is_none() || found == Ok(&model.key), "{typed}");
            }
            assert_eq!(
                models().get(&format!("{name}:latest")).map(|found| &found.key),
                Ok(&model.key),
                "{name}"
            );
        }
    }
    for (bare, key) in [
        ("llama3.1", "llama-3.1-8b"),
        ("llama3.2", "llama-3.2-3b"),
        ("qwen3", "qwen3-8b"),
        ("gemma3", "gemma-3-4b"),
        ("mistral", "mistral-7b"),
        ("codellama", "codellama-7b"),
        ("https://ollama.com/library/olmo2", "olmo-2-7b"),
        ("phi3", "phi-3-mini"),
        ("deepseek-r1:latest", "qwen3-8b"),
        ("deepseek-r1", "qwen3-8b"),
        ("ollama://qwen3", "qwen3-8b"),
        ("dolphin-mistral", "mistral-7b-v0.2"),
        ("openthinker", "qwen2.5-7b"),
    ] {
        assert_eq!(models().default_tag(bare), Some(key), "{bare}");
    }
    for own in ["phi4", "qwen3:8b", "deepseek-ai/DeepSeek-R1", "deepseek-r1:671b", "Qwen/Qwen3", "qwen3-"] {
        assert_eq!(models().default_tag(own), None, "{own}");
    }
}

#[test]
fn a_storage_that_is_not_predicted_is_refused_by_its_name() {
    for (public, key, word) in [
        ("mlx-community/Qwen3-8B-4bit", "qwen3-8b", "MLX"),
        ("lmstudio-community/Qwen3-4B-MLX-8bit", "qwen3-4b", "MLX"),
        ("turboderp/Llama-3.1-8B-Instruct-exl2", "llama-3.1-8b", "ExLlama"),
        ("bartowski/Qwen2.5-7B-Instruct-exl2:6_5", "qwen2.5-7b", "ExLlama"),
        ("turboderp/Qwen3-8B-4.0bpw-h6-exl3", "qwen3-8b", "ExLlama"),
        ("unsloth/Qwen3-8B-unsloth-bnb-4bit", "qwen3-8b", "Unsloth"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "qwen2.5-7b", "GPTQ"),
        ("OpenVINO/Qwen3-8B-int4-ov", "qwen3-8b", "runtime"),
        ("mlc-ai/Qwen3-8B-q4f16_1-MLC", "qwen3-8b", "--engine mlc"),
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "", ""),
        ("AngelSlim/Qwen3-8B_eagle3", "qwen3-8b", "drafts"),
    ] {
        let error = models().get(public).unwrap_err();
        let hint = error.hint("none");
        assert!(hint.contains(word), "{public}: {hint}");
        assert_eq!(error.storage.map_or(String::new(), |unread| unread.model), key, "{public}");
    }
    assert_eq!(models().get("Maker/Unknown-9B-exl2").unwrap_err().storage, None);
}

#[test]
fn the_name_of_a_quantised_repository_says_the_model_and_its_format() {
    for (public, key, format) in [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b", "awq_int4"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", "gptq_int4"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "qwen3-30b-a3b-2507", "fp8_e4m3"),
        ("nvidia/Qwen3-8B-NVFP4", "qwen3-8b", "nvfp4"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", "int4_g128"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b", "fp8_e4m3"),
        ("casperhansen/llama-3-8b-instruct-awq", "llama-3-8b", "awq_int4"),
        ("unsloth/Llama-3.2-3B-Instruct-bnb-4bit", "llama-3.2-3b", "nf4"),
        ("hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M", "qwen3-8b", "q4_k_m"),
        ("llama3.1:8b-instruct-q4_K_M", "llama-3.1-8b", "q4_k_m"),
        ("deepseek-r1:7b-qwen-distill-q4_K_M", "deepseek-r1-distill-qwen-7b", "q4_k_m"),
        ("qwen3:4b-q8_0", "qwen3-4b", "q8_0"),
        ("qwen3-4b-fp16", "qwen3-4b", "fp16"),
        ("TheBloke/CodeLlama-13B-Instruct-GPTQ", "codellama-13b", "gptq_int4"),
        ("neuralmagic/Mistral-7B-Instruct-v0.3-Marlin", "mistral-7b", "gptq_int4"),
        ("Intel/Qwen3-8B-int4-AutoRound", "qwen3-8b", "int4_g128"),
        ("google/gemma-3-4b-it-qat-q4_0-gguf", "gemma-3-4b", "q4_0"),
        ("mradermacher/Qwen3-8B-abliterated-i1-GGUF:Q4_K_M", "qwen3-8b", "q4_k_m"),
    ] {
        let found = models().get(public).map(|found| found.key.as_str());
        assert_eq!(found, Ok(key), "{public}");
        assert_eq!(models().stored_in(public).map(WeightFormat::key), Some(format), "{public}");
    }
}

#[expect(clippy::disallowed_macros, reason = "what was compared, for a run with --nocapture")]
#[test]
fn the_matrices_sum_to_the_published_number_of_weights() {
    let mut worst = (0.0_f64, "");
    let mut checked = 0;
    for model in models().all() {
        let Some(published) = model.published_parameters else { continue };
        let error = model.architecture.parameters() as f64 / published as f64 - 1.0;
        println!("{:28} {:>16} {:+.3} %", model.key, published, error * 100.0);
        assert!(error.abs() <= 0.005, "{}: {error:+.4}", model.key);
        if error.abs() > worst.0.abs() {
            worst = (error, &model.key);
        }
        checked += 1;
    }
    println!("{checked} models, worst {} {:+.3} %", worst.1, worst.0 * 100.0);
    assert!(checked >= 68);
}

#[test]
fn a_tied_table_stored_twice_is_larger_and_no_slower() {
    // Qwen2.5-0.5B's own file stores the tied table twice: some 20 % more, of which nothing is read.
    let known = models().get("qwen2.5-0.5b").unwrap();
    let recipe = Recipe::of(WeightFormat::Q4KM);
    let tied = known.model(recipe);
    let architecture = Architecture { tied_embeddings: false, ..known.architecture.clone() };
    let twice = Model { weights: recipe.weights(&architecture), architecture, ..tied.clone() };
    let ratio = twice.bytes() / tied.bytes();
    assert!((1.18..1.26).contains(&ratio), "{ratio}");
    assert_eq!(twice.bytes_per_token(), tied.bytes_per_token());
}

/// Billions of weights, and of those that a token passes (embedding counted), by the fields of the models' cards. For
/// Gemma-4 the fields give a value projection to every layer; those without a window use their keys as values.
#[test]
fn weights_and_active_weights_are_those_of_the_cards() {
    let mut checked = 0;
    for line in include_str!("../../../../tests/data/parameters.csv").lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let (key, all, active) =
            (fields[0], fields[1].parse::<f64>().unwrap(), fields[2].parse::<f64>().unwrap());
        let model = models().get(key).unwrap().model(Recipe::of(WeightFormat::Bf16));
        let architecture = &model.architecture;
        let table = if architecture.tied_embeddings { 0 } else { architecture.vocab * architecture.hidden };
        let values = match key {
            "gemma-4-26b-a4b" => 5 * 2816 * 2 * 512,
            "gemma-4-31b" => 10 * 5376 * 4 * 512,
            _ => 0,
        };
        let towers = model.weights.iter().filter(|group| group.class == Class::Tower);
        let towers: u64 = towers.map(|group| group.parameters).sum();
        let found = (model.parameters() - towers + values) as f64 / 1e9;
        let passed = (model.active_parameters() + (table + values) as f64) / 1e9;
        assert!((found / all - 1.0).abs() <= 0.0035, "{key}: {found} of {all}");
        assert!((passed / active - 1.0).abs() <= 0.0035, "{key}: {passed} of {active} active");
        checked += 1;
    }
    assert!(checked >= 64);
}

#[test]
fn rows_that_are_no_whole_blocks_fall_back() {
    // 576 columns are no multiple of 256: nearly 6.1 bits instead of 4.8.
    let model = models().get("SmolLM2-135M").unwrap().model(Recipe::of(WeightFormat::Q4KM));
    let bits = model.bytes().get() * 8.0 / model.parameters() as f64;
    assert!((5.9..6.3).contains(&bits), "{bits}");
    let model = models().get("gemma-3-1b").unwrap().model(Recipe::of(WeightFormat::Q4KM));
    let bits = model.bytes().get() * 8.0 / model.parameters() as f64;
    assert!((6.2..6.6).contains(&bits), "{bits}");
}

#[test]
fn checkpoints_keep_head_embedding_and_norms_at_16_bits() {
    let model = models().get("llama-3-8b").unwrap().model(Recipe::of(WeightFormat::AwqInt4));
    let bits = |class| {
        model.by_class().iter().find(|total| total.class == class).and_then(|total| total.bits_per_weight)
    };
    assert_eq!(bits(Class::Head), Some(16.0));
    assert_eq!(bits(Class::Norm), Some(16.0));
    assert_eq!(bits(Class::AttentionQ), Some(4.0 + 16.0 / 128.0 + 4.0 / 128.0));
    let model = models().get("gpt-oss-20b").unwrap().model("mxfp4".parse().unwrap());
    let bits = |class| {
        model.by_class().iter().find(|total| total.class == class).and_then(|total| total.bits_per_weight)
    };
    assert_eq!(bits(Class::Expert), Some(4.25));
    assert_eq!(bits(Class::AttentionQ), Some(16.0));
}

#[test]
fn an_unknown_key_suggests_the_nearest() {
    assert_eq!(models().get("llama-3.1-8").unwrap_err().near.to_string(), "llama-3.1-8b");
    for long in ["x", "mlx-", "a:", "4bit_gguf."] {
        assert!(models().get(&long.repeat(100_000)).unwrap_err().key.len() <= 80);
        assert!(models().get(&long.repeat(60)).is_err());
    }
}

#[test]
fn a_broken_file_says_where() {
    let mut all = Models::default();
    let mut error_of = |text: &str| {
        all.add("mine", text)
            .err()
            .or_else(|| all.entries["x"].entry.clone().known("x").err())
            .map(|error| error.to_string())
    };
    let error = error_of("[x]\nname = 'x'\nhiden = 4\n").unwrap();
    assert!(error.contains("mine") && error.contains("hiden"), "{error}");
    let base = "[x]\nname='x'\nsource=''\nconfidence='guess'\n";
    let config = "config = { model_type = 'llama', hidden_size = 64, num_hidden_layers = 2, vocab_size = 100, \
                  num_attention_heads = 2, intermediate_size = 8 }\n";
    assert_eq!(error_of(&format!("{base}{config}")), None);
    for (wrong, word) in [
        (config.replace("llama", "lama"), "lama"),
        (config.replace("= 64", "= 65"), "head_dim"),
        (config.replace("{ model_type", "{ hiden = 3, modeltype"), "unknown"),
        ("layers = 1\n".to_owned(), "layers"),
    ] {
        let error = error_of(&format!("{base}{wrong}")).unwrap();
        assert!(error.contains(word), "{error}");
    }
}
