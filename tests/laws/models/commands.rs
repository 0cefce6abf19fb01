//! `rooflinectl models`, without a daemon.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::write::{Gguf, Safetensors, llama};

fn models(args: &[&str]) -> Output {
    Command::new(crate::programs::rooflinectl())
        .arg("models")
        .args(args)
        .env_clear()
        .env("LANG", "C.UTF-8")
        .output()
        .unwrap()
}

fn inspect(path: &Path) -> Output {
    models(&["inspect", path.to_str().unwrap(), "-o", "json"])
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(output: &Output, code: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.starts_with("error: ") && text.contains("hint: "), "{text}");
    text
}

#[test]
fn a_file_is_inspected_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small-q4_k_m.gguf");
    let file = llama(false);
    fs::write(&path, file.file()).unwrap();
    let answer = json(&inspect(&path));
    let read = file.sum(&[""]) - file.sum(&["token_embd"]);
    assert_eq!(answer["bytes_per_token"], read as f64);
    assert_eq!(answer["bytes"], file.sum(&[""]) as f64);
    assert_eq!(answer["kv_bytes_per_token"], 2.0 * 2.0 * 2.0 * 64.0 * 2.0);
    assert_eq!(answer["format"], "q4_k_m");
    assert_eq!(answer["warnings"], serde_json::json!([]));
    assert_eq!(answer["layers"]["full_attention"], 2);

    let human = String::from_utf8(models(&["inspect", path.to_str().unwrap()]).stdout).unwrap();
    for word in ["Small Llama", "bytes per token", "attention_q", "cache per token", "not read"] {
        assert!(human.contains(word), "{word}: {human}");
    }
    let eighth = models(&["inspect", path.to_str().unwrap(), "--kv-format", "q8_0", "-o", "json"]);
    assert_eq!(json(&eighth)["kv_bytes_per_token"], 2.0 * 2.0 * 2.0 * 64.0 * 34.0 / 32.0);
}

#[test]
fn any_shard_and_its_directory_are_the_whole_model() {
    let folder = tempfile::tempdir().unwrap();
    let whole = llama(false);
    for no in 0..2u32 {
        let mut file = if no == 0 { whole.clone() } else { Gguf::new("llama") };
        file.tensors = if no == 0 { whole.tensors[..7].to_vec() } else { whole.tensors[7..].to_vec() };
        let count = u32::try_from(whole.tensors.len()).unwrap();
        let file = file.numbers("split", &[("no", no), ("count", 2), ("tensors.count", count)]);
        fs::write(folder.path().join(format!("m-{:05}-of-00002.gguf", no + 1)), file.file()).unwrap();
    }
    let expected = whole.sum(&[""]) as f64;
    for path in ["", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"] {
        assert_eq!(json(&inspect(&folder.path().join(path)))["bytes"], expected, "{path}");
    }
    fs::rename(folder.path().join("m-00002-of-00002.gguf"), folder.path().join("other")).unwrap();
    let text = refused(&inspect(&folder.path().join("m-00001-of-00002.gguf")), 2);
    assert!(text.contains("m-00002-of-00002.gguf"), "{text}");
    fs::rename(folder.path().join("m-00001-of-00002.gguf"), folder.path().join("renamed.gguf")).unwrap();
    assert!(refused(&inspect(&folder.path().join("renamed.gguf")), 2).contains("-00001-of-00002.gguf"));
}

#[test]
fn a_checkpoint_is_found_by_file_index_configuration_and_directory() {
    let folder = tempfile::tempdir().unwrap();
    let file = Safetensors::default()
        .tensor("model.embed_tokens.weight", "BF16", &[96, 64])
        .tensor("model.layers.0.self_attn.q_proj.weight", "BF16", &[64, 64])
        .tensor("model.layers.0.self_attn.k_proj.weight", "BF16", &[32, 64])
        .tensor("model.layers.0.self_attn.v_proj.weight", "BF16", &[32, 64])
        .tensor("model.layers.0.self_attn.o_proj.weight", "BF16", &[64, 64])
        .tensor("model.layers.0.mlp.gate_proj.weight", "BF16", &[128, 64])
        .tensor("model.layers.0.mlp.up_proj.weight", "BF16", &[128, 64])
        .tensor("model.layers.0.mlp.down_proj.weight", "BF16", &[64, 128])
        .tensor("model.norm.weight", "BF16", &[64]);
    fs::write(folder.path().join("model.safetensors"), file.file()).unwrap();
    let config = r#"{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 96, "tie_word_embeddings": true}"#;
    fs::write(folder.path().join("config.json"), config).unwrap();
    for path in ["", "model.safetensors"] {
        let answer = json(&inspect(&folder.path().join(path)));
        assert_eq!(answer["bytes_per_token"], file.sum("") as f64, "{path}");
        assert_eq!(answer["tied_embeddings"], true);
        assert_eq!(answer["warnings"], serde_json::json!([]));
    }
    // The configuration alone has the norms of every layer as well.
    let answer = json(&inspect(&folder.path().join("config.json")));
    assert_eq!(answer["bytes_per_token"], (file.sum("") + 2 * 2 * 64) as f64);

    let map: Vec<_> =
        file.tensors.iter().map(|(name, ..)| format!("\"{name}\": \"model.safetensors\"")).collect();
    let index = format!("{{\"weight_map\": {{{}}}}}", map.join(","));
    let path = folder.path().join("model.safetensors.index.json");
    fs::write(&path, index).unwrap();
    assert_eq!(json(&inspect(&path))["bytes_per_token"], file.sum("") as f64);
    fs::write(&path, r#"{"weight_map": {"x": "../model.safetensors"}}"#).unwrap();
    assert!(refused(&inspect(&path), 2).contains("not a file next to the index"));
}

#[test]
fn what_is_no_model_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    refused(&inspect(&path("missing.gguf")), 2);
    assert!(refused(&inspect(folder.path()), 2).contains("holds no"));
    for name in ["empty.gguf", "empty.safetensors", "empty", "config.json"] {
        fs::write(path(name), "").unwrap();
        refused(&inspect(&path(name)), 2);
    }
    fs::write(path("cut.gguf"), &llama(false).file()[..5000]).unwrap();
    assert!(refused(&inspect(&path("cut.gguf")), 2).contains("incomplete"));
    refused(&inspect(Path::new("/dev/null")), 2);
    refused(&inspect(Path::new("/dev/zero")), 2);

    let fifo = path("pipe.gguf");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert!(refused(&inspect(&fifo), 2).contains("not a regular file"));

    let several = tempfile::tempdir().unwrap();
    fs::write(several.path().join("a.gguf"), "").unwrap();
    fs::write(several.path().join("b.gguf"), "").unwrap();
    let text = refused(&inspect(several.path()), 2);
    assert!(text.contains("a.gguf") && text.contains("b.gguf"), "{text}");
}

#[test]
fn a_name_in_a_file_cannot_write_to_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = llama(false);
    file.pairs[1].1 = super::write::Val::Text("evil\u{1b}[2Jname");
    let path = folder.path().join("evil.gguf");
    fs::write(&path, file.file()).unwrap();
    let output = models(&["inspect", path.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("evil?[2Jname") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn the_registry_is_listed_and_shown() {
    let all = json(&models(&["list", "-o", "json"]));
    let keys: Vec<_> =
        all["models"].as_array().unwrap().iter().map(|model| model["key"].as_str().unwrap()).collect();
    for key in ["llama-2-7b", "llama-3.1-8b", "mistral-7b", "tinyllama-1.1b", "phi-2", "qwen3.5-35b-a3b"] {
        assert!(keys.contains(&key), "{key}");
    }
    let shown = json(&models(&["show", "Llama-3-8B", "--format", "q4_k_m", "-o", "json"]));
    assert_eq!(shown["key"], "llama-3-8b");
    let gib = shown["bytes"].as_f64().unwrap() / f64::from(1 << 30);
    assert!((gib / 4.58 - 1.0).abs() < 0.01, "{gib}");
    assert!(models(&["show", "llama-3-8b"]).status.success());
    assert!(models(&["list"]).status.success());
    assert!(refused(&models(&["show", "llama-3-8"]), 2).contains("llama-3-8b"));
    assert_eq!(models(&["show", "llama-3-8b", "--format", "q9"]).status.code(), Some(2));
}
