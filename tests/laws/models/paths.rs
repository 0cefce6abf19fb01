//! Paths that lead nowhere good, and files larger than any memory.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use rooflined_advice::modelfile::{load, table};

use super::write::{F16, Gguf, Safetensors, Val, llama};

fn refused(path: &Path) -> String {
    let error = load(path).expect_err(&path.display().to_string());
    assert!(!error.hint().is_empty());
    error.to_string()
}

#[test]
fn a_sparse_file_of_forty_gigabytes_is_inspected_by_its_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.safetensors");
    let file = Safetensors::default()
        .tensor("model.embed_tokens.weight", "BF16", &[32, 16_000])
        .tensor("model.layers.0.self_attn.q_proj.weight", "BF16", &[64, 16_000])
        .tensor("model.layers.0.self_attn.k_proj.weight", "BF16", &[64, 16_000])
        .tensor("model.layers.0.self_attn.v_proj.weight", "BF16", &[64, 16_000])
        .tensor("model.layers.0.self_attn.o_proj.weight", "BF16", &[16_000, 64])
        .tensor("model.layers.0.mlp.up_proj.weight", "BF16", &[1_250_000, 16_000]);
    let (header, length) = file.header();
    assert!(length > 40_000_000_000);
    let large = fs::File::create(&path).unwrap();
    large.write_all_at(&header, 0).unwrap();
    large.set_len(length).unwrap();
    let model = load(&path).unwrap().model;
    assert_eq!(model.parameters(), 20_000_000_000 + (32 + 4 * 64) * 16_000);
    assert_eq!(table(&path).unwrap().tensors[0].offset, header.len() as u64);
    large.set_len(length - 1).unwrap();
    assert!(refused(&path).contains("is cut"));
}

#[test]
fn a_projector_next_to_a_model_that_sees_counts_as_its_tower() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut file = llama(false);
    for (key, value) in &mut file.pairs {
        *key = key.replace("llama.", "qwen2vl.");
        if key == "general.architecture" {
            *value = Val::Text("qwen2vl");
        }
    }
    fs::write(&path, file.file()).unwrap();
    let alone = load(&path).unwrap().model;
    assert!(alone.warnings.iter().any(|warning| warning.contains("does not count here")), "{alone:?}");
    let projector = Gguf::new("clip").tensor("v.blk.0.attn_q.weight", &[256, 256], F16);
    fs::write(folder.path().join("mmproj-F16.gguf"), projector.file()).unwrap();
    let both = load(&path).unwrap().model;
    assert_eq!(both.bytes().get() - alone.bytes().get(), 256.0 * 256.0 * 2.0);
    assert_eq!(both.bytes_per_token(), alone.bytes_per_token());
    let told = both.warnings.join("\n");
    assert!(told.contains("mmproj-F16.gguf") && !told.contains("does not count here"), "{told}");
    // That of a model which is wider.
    let other = Gguf::new("clip").tensor("v.blk.0.attn_q.weight", &[512, 512], F16);
    fs::write(folder.path().join("mmproj-F16.gguf"), other.file()).unwrap();
    assert_eq!(load(&path).unwrap().model.bytes(), alone.bytes());
}

#[test]
fn every_prefix_of_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.gguf");
    let whole = llama(false).file();
    let (header, _) = llama(false).header();
    fs::write(&path, &whole).unwrap();
    load(&path).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    let lengths =
        (0..header.len() + 64).chain((header.len() + 64..whole.len()).step_by(997)).chain([whole.len() - 1]);
    for length in lengths.collect::<Vec<_>>().into_iter().rev() {
        file.set_len(length as u64).unwrap();
        assert!(load(&path).is_err(), "{length}");
    }
}

#[test]
fn links_pipes_devices_and_directories_in_place_of_files_are_refused_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    symlink(path("loop.gguf"), path("loop.gguf")).unwrap();
    assert!(refused(&path("loop.gguf")).contains("loop.gguf"));
    symlink("/dev/zero", path("zero.gguf")).unwrap();
    symlink("/dev/zero", path("zero.safetensors")).unwrap();
    symlink("/dev/zero", path("zero.safetensors.index.json")).unwrap();
    for name in ["zero.gguf", "zero.safetensors", "zero.safetensors.index.json"] {
        assert!(refused(&path(name)).contains("not a regular file"), "{name}");
    }
    for name in ["pipe.gguf", "config.json", "pipe.index.json"] {
        assert!(Command::new("mkfifo").arg(path(name)).status().unwrap().success());
        assert!(refused(&path(name)).contains("not a regular file"), "{name}");
    }
    let index = |file: &str| {
        fs::write(path("model.safetensors.index.json"), format!(r#"{{"weight_map":{{"a":"{file}"}}}}"#))
            .unwrap();
        refused(&path("model.safetensors.index.json"))
    };
    assert!(index("zero.safetensors").contains("not a regular file"));
    assert!(index("loop.gguf").contains("loop.gguf"));
    assert!(index("missing-00002-of-00002.safetensors").contains("missing-00002-of-00002.safetensors"));
    for outside in ["../../etc/passwd", "/etc/passwd", "..", "a/b.safetensors", "..\\\\x"] {
        assert!(index(outside).contains("not a file next to the index"), "{outside}");
    }
    fs::create_dir(path("folder.gguf")).unwrap();
    assert!(refused(&path("folder.gguf")).contains("holds no .gguf"));
}

#[test]
fn files_that_a_download_left_are_named_for_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (content, what) in [
        (&b"Entry not found"[..], "a text file"),
        (b"<!DOCTYPE html><html></html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"),
        (b"\xff\xfe{\0}\0", "UTF-16"),
        (b"\x1f\x8b\x08\0", "a compressed archive"),
    ] {
        fs::write(path("config.json"), content).unwrap();
        assert!(refused(folder.path()).contains(what), "{what}");
    }
    let config = format!("\u{feff}{}", r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}"#);
    fs::write(path("config.json"), &config).unwrap();
    assert!(!load(folder.path()).unwrap().model.is_encoder());
    // What sentence-transformers writes makes it an embedder.
    fs::write(path("modules.json"), "[]").unwrap();
    assert!(load(folder.path()).unwrap().model.is_encoder());
    fs::write(path("model.safetensors"), "version https://git-lfs.github.com/spec/v1\n").unwrap();
    assert!(refused(folder.path()).contains("Git LFS pointer"));
}

#[test]
fn a_cache_of_hugging_face_is_read_at_its_current_version() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("models--owner--name");
    for (version, hidden) in [("aaaa", 512), ("bbbb", 1024)] {
        let place = cache.join("snapshots").join(version);
        fs::create_dir_all(&place).unwrap();
        let config = format!(r#"{{"model_type": "llama", "hidden_size": {hidden}}}"#);
        fs::write(place.join("config.json"), config).unwrap();
    }
    fs::create_dir_all(cache.join("refs")).unwrap();
    fs::write(cache.join("refs/main"), "bbbb").unwrap();
    assert_eq!(load(&cache).unwrap().model.architecture.hidden, 1024);
}

#[test]
fn an_index_that_repeats_a_tensor_or_nests_without_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors.index.json");
    for (text, words) in [
        (r#"{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}"#.to_owned(), "twice"),
        (format!(r#"{{"weight_map":{}"#, "[".repeat(100_000)), "holds no valid index"),
        (
            format!(r#"{{"metadata":{},"weight_map":{{}}}}"#, "{\"a\":".repeat(100_000)),
            "holds no valid index",
        ),
        (r#"{"weight_map":{"a":3}}"#.to_owned(), "holds no valid index"),
        ("{}".to_owned(), "weight_map"),
    ] {
        fs::write(&path, text).unwrap();
        assert!(refused(&path).contains(words), "{}", refused(&path));
    }
}

#[test]
fn a_table_knows_where_each_tensor_lies() {
    let folder = tempfile::tempdir().unwrap();
    let whole = llama(false);
    let path = folder.path().join("m.gguf");
    fs::write(&path, whole.file()).unwrap();
    let found = table(&path).unwrap();
    let (header, length) = whole.header();
    assert_eq!((found.kind, found.files.len(), found.tensors.len()), ("gguf", 1, whole.tensors.len()));
    let mut at = (header.len() as u64).next_multiple_of(32);
    for (tensor, (name, _, _, bytes)) in found.tensors.iter().zip(&whole.tensors) {
        assert_eq!((&tensor.name, tensor.offset, tensor.bytes, tensor.file), (name, at, *bytes, 0));
        at += bytes.next_multiple_of(32);
    }
    assert_eq!(at, length);
    let mut big = llama(false);
    big.big_endian = true;
    fs::write(&path, big.file()).unwrap();
    load(&path).unwrap();
    assert!(table(&path).unwrap_err().to_string().contains("big-endian"));
}
