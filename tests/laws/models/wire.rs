//! Whole models in requests: by key, in files, as fields; what is answered and what is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rooflined_advice::parse::parse;
use rooflined_advice::{Catalogue, Opener, Request, suppose};
use rooflined_api::ErrorBody;
use rooflined_core::hardware::registry;
use rooflined_core::precision::WeightFormat;
use serde_json::{Value, json};

use super::checkpoint::CONFIG;
use super::write::llama;

fn catalogue(opener: Opener) -> Catalogue {
    Catalogue::new(registry().clone(), opener)
}

fn asked_of(catalogue: &Catalogue, body: &Value) -> Result<Value, ErrorBody> {
    let request = Request::Predict(parse(body.to_string().as_bytes())?);
    Ok(serde_json::to_value(suppose(catalogue, &request)?).unwrap())
}

/// A prediction of this workload on an AGX Orin.
fn asked(workload: &Value) -> Result<Value, ErrorBody> {
    let body = json!({"hardware": "jetson-agx-orin-64gb", "engine": "llama.cpp", "workload": workload});
    asked_of(&catalogue(Opener::Caller), &body)
}

#[track_caller]
fn answered(workload: &Value) -> Value {
    asked(workload).unwrap_or_else(|error| panic!("{workload}: {error:?}"))
}

#[track_caller]
fn refused(workload: &Value) -> (String, String, String) {
    let error = asked(workload).unwrap_err();
    assert!(error.hint.is_some_and(|hint| !hint.is_empty()), "{workload}");
    (error.code, error.field.unwrap_or_default(), error.message)
}

fn number(answer: &Value, path: &str) -> f64 {
    answer.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {answer}"))
}

fn warned(answer: &Value, part: &str) -> bool {
    answer["warnings"].as_array().unwrap().iter().any(|warning| warning.as_str().unwrap().contains(part))
}

#[test]
fn a_decode_step_reads_the_weights_and_is_never_faster_than_the_memory() {
    let answer = answered(&json!({"model": "llama-3.1-8b", "format": "q4_k_m", "context_tokens": 1024}));
    // Llama 3.1 8B in Q4_K_M is 4.58 GiB, of which the embedding is not read; keys and values are 128 KiB a token.
    let bytes = number(&answer, "/bytes");
    assert!((4.4e9..5.2e9).contains(&bytes), "{bytes}");
    let bus = 256.0 / 8.0 * 2.0 * 3199e6;
    assert!(number(&answer, "/roofline_time_s") >= 0.99 * 4.4e9 / bus);
    for path in ["/time_s/low", "/time_per_token_s/low"] {
        assert!(number(&answer, path) >= number(&answer, "/roofline_time_s"), "{path}");
    }
    let rate = number(&answer, "/tokens_per_s/value");
    assert!((rate * number(&answer, "/time_s/value") - 1.0).abs() < 1e-9);
    let memory = &answer["memory_bytes"];
    assert_eq!(number(memory, "/kv_cache"), 1024.0 * 32.0 * 2.0 * 1024.0 * 2.0);
    let parts = ["/weights", "/kv_cache", "/activations", "/engine"].map(|part| number(memory, part));
    assert!((parts.iter().sum::<f64>() - number(memory, "/total")).abs() < 1.0);
    assert_eq!(memory["fits"], true);
    let breakdown = answer["breakdown"].as_array().unwrap();
    let sum: f64 = breakdown.iter().map(|part| part["time_s"].as_f64().unwrap()).sum();
    assert!((sum / number(&answer, "/time_s/value") - 1.0).abs() < 1e-6, "{sum}");
    assert!(breakdown.iter().any(|part| part["op"] == "mlp"), "{breakdown:?}");
    assert!(answer.get("time_to_first_token_s").is_none());
}

#[test]
fn serving_has_a_first_token_and_a_time_for_each_after_it() {
    let answer = answered(&json!({
        "model": "llama-3.1-8b", "format": "q4_k_m", "phase": "serve", "prompt_tokens": 512, "output_tokens": 128,
    }));
    let whole =
        number(&answer, "/time_to_first_token_s/value") + 127.0 * number(&answer, "/time_per_token_s/value");
    assert!((whole / number(&answer, "/time_s/value") - 1.0).abs() < 1e-6);
    assert!((number(&answer, "/tokens_per_s/value") * number(&answer, "/time_s/value") - 128.0).abs() < 1e-6);
    let prefill = answered(
        &json!({"model": "llama-3.1-8b", "format": "q4_k_m", "phase": "prefill", "prompt_tokens": 512}),
    );
    assert_eq!(number(&prefill, "/time_s/value"), number(&answer, "/time_to_first_token_s/value"));
    assert!(prefill.get("time_per_token_s").is_none());
}

#[test]
fn what_does_not_fit_says_so() {
    let body =
        json!({"hardware": "jetson-orin-nano-8gb", "workload": {"model": "llama-3-70b", "format": "q4_k_m"}});
    let answer = asked_of(&catalogue(Opener::Caller), &body).unwrap();
    assert_eq!(answer["memory_bytes"]["fits"], false);
}

#[test]
fn every_model_in_every_usual_format_has_a_prediction_within_physics() {
    let catalogue = catalogue(Opener::Caller);
    for known in rooflined_models::registry::models().keys() {
        for format in ["fp16", "q4_k_m", "int8"] {
            let workload = json!({"model": known, "format": format, "batch": 4, "context_tokens": 100});
            let body =
                json!({"hardware": "h100-sxm", "engine": "vllm", "workload": workload, "hypothetical": true});
            let answer = asked_of(&catalogue, &body).unwrap_or_else(|error| panic!("{known}: {error:?}"));
            let bound = number(&answer, "/roofline_time_s");
            assert!(bound > 0.0 && number(&answer, "/time_s/low") >= bound, "{known} {format}");
        }
    }
}

#[test]
fn every_bad_value_is_an_error_with_its_field() {
    let with = |name: &str, value: Value| {
        let mut workload = json!({"model": "llama-3.1-8b", "format": "q4_k_m"});
        workload[name] = value;
        workload
    };
    for (workload, code, field) in [
        (with("model", json!("llama-3.1-8")), "unknown_model", "workload.model"),
        (with("model", json!(7)), "invalid_field", "workload.model"),
        (with("model", json!([])), "invalid_field", "workload.model"),
        (with("model", json!({"path": 7})), "invalid_field", "workload.model.path"),
        (with("model", json!({"path": "/x.gguf", "name": "x"})), "unknown_field", "workload.model.name"),
        (with("op", json!({"kind": "gemv", "n": 1, "k": 1})), "invalid_field", "workload.op"),
        (with("format", json!("q4km")), "unknown_format", "workload.format"),
        (with("kv_format", json!("fp17")), "unknown_format", "workload.kv_format"),
        (with("phase", json!("decoding")), "invalid_field", "workload.phase"),
        (with("phase", json!("serve")), "missing_field", "workload.prompt_tokens"),
        (with("phase", json!("prefill")), "missing_field", "workload.prompt_tokens"),
        (with("batch", json!(0)), "invalid_dimension", "workload.batch"),
        (with("batch", json!(u64::MAX)), "invalid_dimension", "workload.batch"),
        (with("batch", json!(-1)), "invalid_field", "workload.batch"),
        (with("batch", json!(1e308)), "invalid_field", "workload.batch"),
        (with("context_tokens", json!(u64::MAX)), "invalid_dimension", "workload.context_tokens"),
    ] {
        let (found, at, message) = refused(&workload);
        assert_eq!((found.as_str(), at.as_str()), (code, field), "{workload}: {message}");
    }
    let mut serve = with("phase", json!("serve"));
    serve["prompt_tokens"] = json!(0);
    serve["output_tokens"] = json!(5);
    assert_eq!(refused(&serve).1, "workload.prompt_tokens");
    assert!(asked(&with("model", json!("llama-3.1-8"))).unwrap_err().hint.unwrap().contains("llama-3.1-8b"));
}

#[test]
fn a_context_beyond_the_limit_is_refused() {
    let workload = json!({"model": "llama-3-8b", "format": "q4_k_m", "context_tokens": 10_000});
    let (code, field, message) = refused(&workload);
    assert_eq!((code.as_str(), field.as_str()), ("invalid_dimension", "workload.context_tokens"));
    assert!(message.contains("10000") && message.contains("8192"), "{message}");
    let answer = answered(&json!({"model": "llama-3-8b", "format": "q4_k_m", "prompt_tokens": 10}));
    assert!(warned(&answer, "prompt_tokens"), "{}", answer["warnings"]);
}

#[test]
fn fields_of_a_config_are_a_model_and_contradictions_name_both() {
    let config = json!({
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128_256, "tie_word_embeddings": false,
    });
    let inline = answered(&json!({"model": config, "format": "q4_k_m"}));
    let known = answered(&json!({"model": "llama-3-8b", "format": "q4_k_m"}));
    assert_eq!(inline["bytes"], known["bytes"]);
    let own = answered(&json!({"model": config}));
    assert!(number(&own, "/bytes") > 1.4e10, "without a format, 16 bits as the fields say");
    for (name, value, at, words) in [
        ("num_key_value_heads", json!(5), "num_key_value_heads", ["num_attention_heads is 32", "is 5"]),
        ("num_key_value_heads", json!(64), "num_key_value_heads", ["num_attention_heads is 32", "is 64"]),
        ("num_attention_heads", json!(24), "num_attention_heads", ["hidden_size is 4096", "24"]),
        ("hidden_size", json!(-1), "hidden_size", ["-1", "whole number"]),
        ("hidden_size", json!(1e308), "hidden_size", ["1e+308", "whole number"]),
        ("num_hidden_layers", json!(1_000_000), "num_hidden_layers", ["1000000", "4096"]),
        ("vocab_size", json!(0), "vocab_size", ["is 0", "1 or more"]),
    ] {
        let mut wrong = config.clone();
        wrong[name] = value.clone();
        let (code, field, message) = refused(&json!({"model": wrong}));
        assert_eq!(
            (code.as_str(), field),
            ("invalid_model", format!("workload.model.{at}")),
            "{name} {value}"
        );
        for word in words {
            assert!(message.contains(word), "{name} {value}: {message}");
        }
    }
    let (code, field, _) = refused(&json!({"model": {"hidden_sze": 4096}}));
    assert!(code == "invalid_model" || code == "missing_field", "{code} {field}");
}

#[test]
fn a_file_is_counted_as_it_is_whatever_format_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small-q4_k_m.gguf");
    let file = llama(false);
    fs::write(&path, file.file()).unwrap();
    let model = json!({"path": path});
    let own = answered(&json!({"model": model}));
    assert_eq!(number(&own, "/memory_bytes/weights"), file.sum(&[""]) as f64);
    assert!(!warned(&own, "exact bytes"), "{}", own["warnings"]);
    let same = answered(&json!({"model": model, "format": "q4_k_m"}));
    assert!(!warned(&same, "exact bytes"));
    let other = answered(&json!({"model": model, "format": "fp16"}));
    assert_eq!(other["bytes"], own["bytes"]);
    assert!(warned(&other, "q4_k_m") && warned(&other, "fp16"), "{}", other["warnings"]);
    // A configuration holds no tensors, so the format counts.
    let config = json!({
        "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 512, "vocab_size": 96, "torch_dtype": "float16",
    });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let config = json!({"path": folder.path().join("config.json")});
    let half = number(&answered(&json!({"model": config})), "/memory_bytes/weights");
    let full = number(&answered(&json!({"model": config, "format": "fp32"})), "/memory_bytes/weights");
    assert!((full / half - 2.0).abs() < 0.01, "{full} {half}");
}

#[test]
fn a_file_that_changes_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let catalogue = catalogue(Opener::Daemon(vec![folder.path().to_owned()]));
    let ask = || {
        let body = json!({"hardware": "h100", "workload": {"model": {"path": path}}});
        number(&asked_of(&catalogue, &body).unwrap(), "/memory_bytes/weights")
    };
    fs::write(&path, llama(false).file()).unwrap();
    let untied = ask();
    assert_eq!(ask(), untied);
    fs::write(&path, llama(true).file()).unwrap();
    assert!(ask() < untied);
}

/// Whatever is no model is refused at once: nothing waits for a writer, and no device is opened.
#[test]
fn paths_to_anything_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("fifo.gguf"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("cut.gguf"), &llama(false).file()[..100]).unwrap();
    fs::write(at("nothing.gguf"), "").unwrap();
    fs::write(at("deep.json"), format!("{{\"a\":{}", "[".repeat(100_000))).unwrap();
    fs::write(at("secret.gguf"), llama(false).file()).unwrap();
    fs::set_permissions(at("secret.gguf"), fs::Permissions::from_mode(0o0)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket.gguf")).unwrap();
    let refuse = |opener, path: &Path| {
        let body = json!({"hardware": "h100", "workload": {"model": {"path": path}}});
        let error = asked_of(&catalogue(opener), &body).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("workload.model.path"), "{path:?}");
        assert!(error.hint.is_some());
        (error.code, error.message)
    };
    let daemon = || Opener::Daemon(vec![folder.path().to_owned()]);
    let names =
        ["fifo.gguf", "empty", "cut.gguf", "nothing.gguf", "deep.json", "socket.gguf", "missing.gguf"];
    for name in names {
        let (code, message) = refuse(daemon(), &at(name));
        assert_eq!(code, "unreadable_model", "{name}: {message}");
    }
    for path in ["/dev/zero", "/dev/null", "/proc/self/mem", "/", ""] {
        assert_eq!(refuse(Opener::Caller, Path::new(path)).0, "unreadable_model", "{path}");
    }
    // Root may read everything.
    if !rustix::process::geteuid().is_root() {
        assert_eq!(refuse(daemon(), &at("secret.gguf")).0, "unreadable_model");
    }
    assert!(refuse(Opener::Caller, Path::new("relative/m.gguf")).1.contains("there is no file"));
}

/// Of what lies outside its directories a daemon says the same, be it a model, no model, closed, or not there.
#[test]
fn outside_its_directories_a_daemon_tells_nothing() {
    let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| outside.path().join(name);
    fs::write(at("model.gguf"), llama(false).file()).unwrap();
    fs::write(at("words.gguf"), "secret").unwrap();
    fs::write(at("closed.gguf"), "secret").unwrap();
    fs::set_permissions(at("closed.gguf"), fs::Permissions::from_mode(0o0)).unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/config.json"), r#"{"hidden_size":"secret"}"#).unwrap();
    let link = |name: &str, to: &Path| {
        std::os::unix::fs::symlink(to, inside.path().join(name)).unwrap();
        inside.path().join(name)
    };
    let mut paths: Vec<_> =
        ["model.gguf", "words.gguf", "closed.gguf", "folder", "missing.gguf"].map(at).into_iter().collect();
    paths.push("relative.gguf".into());
    paths.push(inside.path().join("..").join("model.gguf"));
    paths.push(link("to-file.gguf", &at("model.gguf")));
    paths.push(link("to-folder", outside.path()).join("model.gguf"));
    paths.push(link("to-nothing.gguf", &at("missing.gguf")));
    for roots in [vec![], vec![inside.path().to_owned()]] {
        let catalogue = catalogue(Opener::Daemon(roots.clone()));
        let told: Vec<_> = paths
            .iter()
            .map(|path| {
                let body = json!({"hardware": "h100", "workload": {"model": {"path": path}}});
                asked_of(&catalogue, &body).unwrap_err()
            })
            .collect();
        assert_eq!(told[0].code, "unreadable_model");
        for (told, path) in told.iter().zip(&paths) {
            let same = |error: &ErrorBody| (error.code.clone(), error.message.clone(), error.hint.clone());
            assert_eq!(
                same(told),
                same(
                    &asked_of(
                        &catalogue,
                        &json!({
                            "hardware": "h100", "workload": {"model": {"path": "/nowhere"}}
                        })
                    )
                    .unwrap_err()
                ),
                "{}",
                path.display()
            );
        }
    }
    fs::write(inside.path().join("own.gguf"), llama(false).file()).unwrap();
    let own = link("to-own.gguf", Path::new("own.gguf"));
    let catalogue = catalogue(Opener::Daemon(vec![inside.path().to_owned()]));
    for path in [inside.path().join("own.gguf"), own] {
        let body = json!({"hardware": "h100", "workload": {"model": {"path": path}}});
        asked_of(&catalogue, &body).unwrap();
    }
}

/// A user who may read a file sends its definition, and is answered as if the daemon had read it.
#[test]
fn definitions_are_answered_like_their_file_and_checked_like_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    fs::write(&path, llama(false).file()).unwrap();
    let definition = json!(rooflined_advice::modelfile::load(&path).unwrap().definition());
    let ask = |opener, model: Value| {
        let body = json!({"hardware": "h100", "engine": "llama.cpp", "workload": {"model": model}});
        asked_of(&catalogue(opener), &body)
    };
    let read = ask(Opener::Caller, json!({"path": path})).unwrap();
    let told = json!({"path": "/home/somebody/m.gguf", "definition": definition});
    assert_eq!(ask(Opener::Daemon(Vec::new()), told.clone()).unwrap(), read);
    for (pointer, wrong, word) in [
        ("/definition/hidden", json!(0), "hidden"),
        ("/definition/weights/0/rows", json!(u64::MAX), "weights[0]"),
        ("/definition/weights/0/block", json!("q9_9"), "q9_9"),
        ("/definition/layers", json!([]), "layers"),
        ("/definition/name", json!(7), "name"),
        ("/definition", json!("x"), "definition"),
    ] {
        let mut bad = told.clone();
        *bad.pointer_mut(pointer).unwrap() = wrong;
        let error = ask(Opener::Daemon(Vec::new()), bad).unwrap_err();
        assert_eq!(error.code, "invalid_model", "{pointer}");
        assert_eq!(error.field.as_deref(), Some("workload.model.definition"));
        assert!(error.message.contains(word), "{}", error.message);
    }
    let other = json!({"path": path, "definitions": {}});
    assert_eq!(ask(Opener::Caller, other).unwrap_err().field.as_deref(), Some("workload.model.definitions"));
}

/// A GGUF file, a checkpoint and a bare configuration, each by its path and by what it is inspected to.
#[test]
fn a_path_and_the_model_that_it_is_inspected_to_are_answered_alike() {
    let folder = tempfile::tempdir().unwrap();
    let gguf = folder.path().join("m.gguf");
    fs::write(&gguf, llama(false).file()).unwrap();
    let checkpoint = folder.path().join("checkpoint");
    let configured = folder.path().join("configured");
    for directory in [&checkpoint, &configured] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("config.json"), format!("{{{CONFIG}}}")).unwrap();
    }
    let sixteen_bits = super::checkpoint::checkpoint(|file, name, rows, columns| {
        file.tensor(&format!("{name}.weight"), "BF16", &[rows, columns])
    });
    fs::write(checkpoint.join("model.safetensors"), sixteen_bits.file()).unwrap();
    for (path, engine) in
        [(gguf, "llama.cpp"), (checkpoint, "vllm"), (configured.join("config.json"), "vllm")]
    {
        let file = rooflined_advice::modelfile::load(&path).unwrap();
        let name = path.display().to_string();
        let inspected = rooflined_advice::models::of_file(&file, name, WeightFormat::Fp16);
        let inspected = serde_json::to_value(inspected).unwrap();
        let ask = |opener, model: &Value| {
            let body = json!({
                "hardware": "h100", "engine": engine,
                "workload": {"model": model, "batch": 3, "context_tokens": 700},
            });
            asked_of(&catalogue(opener), &body).unwrap()
        };
        let by_path = ask(Opener::Caller, &json!({"path": path}));
        assert_eq!(ask(Opener::Daemon(Vec::new()), &inspected), by_path, "{}", path.display());
    }
}

#[test]
fn a_sweep_ranges_over_models_formats_modes_batches_and_contexts() {
    let sweep = |body: &Value| {
        let request = Request::Sweep(parse(body.to_string().as_bytes()).unwrap());
        suppose(&catalogue(Opener::Caller), &request).map(|answer| serde_json::to_value(answer).unwrap())
    };
    let body = json!({
        "hardware": "jetson-agx-orin-64gb", "engine": "llama.cpp", "models": ["llama-3.2-1b", "qwen2.5-0.5b"],
        "formats": ["q4_k_m", "fp16"], "power_modes": ["MAXN", "MODE_15W"], "batches": [1, 8],
        "contexts": [0, 1024],
    });
    let answer = sweep(&body).unwrap();
    let rows = answer["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 2 * 2 * 2);
    assert_eq!(rows[0]["model"], "llama-3.2-1b");
    assert_eq!((&rows[0]["op"], &rows[0]["power_mode"]["name"]), (&Value::Null, &json!("MAXN")));
    assert!(
        number(&rows[1], "/time_s/value") > number(&rows[0], "/time_s/value"),
        "more context takes longer"
    );
    for (name, value, code, field) in [
        ("models", json!(["llama-3.2-1"]), "unknown_model", "models[0]"),
        ("formats", json!(["q4km"]), "unknown_format", "formats"),
        ("batches", json!([0]), "invalid_dimension", "batches"),
        ("batches", json!([]), "invalid_field", "batches"),
        ("contexts", json!([u64::MAX]), "invalid_dimension", "contexts"),
        ("power_modes", json!(["31W"]), "unknown_mode", "power_modes[0]"),
        ("batches", json!((1..=2000).collect::<Vec<_>>()), "too_many", "models"),
        ("phase", json!("serve"), "missing_field", "prompt_tokens"),
    ] {
        let mut wrong = body.clone();
        wrong[name] = value;
        let error = sweep(&wrong).unwrap_err();
        assert_eq!((error.code.key(), error.field.as_deref()), (code, Some(field)), "{name}: {error:?}");
    }
}

#[test]
fn power_never_falls_with_the_batch_and_is_the_same_in_a_sweep() {
    let ask = |request: Request| {
        serde_json::to_value(suppose(&catalogue(Opener::Caller), &request).unwrap()).unwrap()
    };
    let with = |mut body: Value, more: &Value| {
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let decode = json!({"phase": "decode"});
    let serve = json!({"phase": "serve", "prompt_tokens": 64, "output_tokens": 64});
    let batches: Vec<u64> = (1..=70).collect();
    for (hardware, engine, model, format, phase) in [
        ("jetson-agx-orin-64gb", "llama.cpp", "llama-3.1-8b", "q4_0", &decode),
        ("jetson-agx-thor-t5000", "llama.cpp", "qwen3-30b-a3b", "q4_k_m", &decode),
        ("gb10", "vllm", "llama-3.2-1b", "fp16", &serve),
    ] {
        let machine = json!({"hardware": hardware, "engine": engine});
        let body =
            with(machine.clone(), &json!({"models": [model], "formats": [format], "batches": batches}));
        let swept = ask(Request::Sweep(parse(with(body, phase).to_string().as_bytes()).unwrap()));
        let rows = swept["rows"].as_array().unwrap();
        let mut highest = 0.0;
        for row in rows {
            let (watts, batch) = (number(row, "/power_w/value"), &row["batch"]);
            assert!(watts >= highest, "{hardware} {batch}: {watts} W after {highest} W");
            highest = watts;
            let joules = watts / number(row, "/tokens_per_s/value");
            assert!(
                (joules / number(row, "/energy_j_per_token/value") - 1.0).abs() < 1e-9,
                "{hardware} {batch}"
            );
        }
        for batch in [1_u64, 7, 16, 48, 64] {
            let workload = with(json!({"model": model, "format": format, "batch": batch}), phase);
            let body = with(machine.clone(), &json!({"workload": workload}));
            let predicted = ask(Request::Predict(parse(body.to_string().as_bytes()).unwrap()));
            let row = &rows[usize::try_from(batch).unwrap() - 1];
            for path in ["/power_w/value", "/power_w/high", "/energy_j_per_token/value"] {
                let (one, swept) = (number(&predicted, path), number(row, path));
                assert!((swept / one - 1.0).abs() < 1e-9, "{hardware} {batch} {path}: {one}, swept {swept}");
            }
        }
    }
}

#[test]
fn a_measured_rate_is_judged_and_an_impossible_one_is_named() {
    let analyze = |rate: f64| {
        let body = json!({
            "hardware": "jetson-agx-orin-64gb", "engine": "llama.cpp", "tokens_per_s": rate,
            "workload": {"model": "llama-3.1-8b", "format": "q4_k_m"},
        });
        let request = Request::Analyze(parse(body.to_string().as_bytes()).unwrap());
        suppose(&catalogue(Opener::Caller), &request).map(|answer| serde_json::to_value(answer).unwrap())
    };
    // 204.7 GB/s over some 4.6 GB are 44 tokens a second.
    let fast = analyze(1000.0).unwrap();
    assert_eq!(fast["verdict"], "impossible");
    assert!(fast["reason"].as_str().unwrap().contains("times faster than the physical bound"), "{fast}");
    let expected = number(&analyze(20.0).unwrap(), "/prediction/tokens_per_s/value");
    let as_expected = analyze(expected).unwrap();
    assert_eq!(as_expected["verdict"], "as_predicted", "{as_expected}");
    assert!((number(&as_expected, "/predicted_ratio") - 1.0).abs() < 1e-6);
    assert_eq!(analyze(0.01).unwrap()["verdict"], "slower_than_predicted");
    assert_eq!(analyze(-1.0).unwrap_err().field.as_deref(), Some("tokens_per_s"));
    assert_eq!(analyze(1e-309).unwrap_err().field.as_deref(), Some("time_s"));
}
