//! Model files belong to their users: what a daemon of another user tells of them, what its client does for its user, and what
//! files may cost.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::harness::{Home, as_nobody, http, is_emulated, skip};
use super::small_model::{ctl, small};

const NOBODY: u32 = 65_534;

pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("only root can start a daemon of another user");
    }
    root
}

/// A home whose daemon runs as another user, and a directory that this one alone may enter.
pub fn homes() -> (Home, tempfile::TempDir) {
    let home = Home::new();
    chown(home.path(""), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(home.path("rooflined.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    let private = tempfile::tempdir().unwrap();
    fs::set_permissions(private.path(), fs::Permissions::from_mode(0o700)).unwrap();
    (home, private)
}

fn private(folder: &Path, file: &Path) -> PathBuf {
    let moved = folder.join(file.file_name().unwrap());
    fs::rename(file, &moved).or_else(|_| fs::copy(file, &moved).map(drop)).unwrap();
    fs::set_permissions(&moved, fs::Permissions::from_mode(0o600)).unwrap();
    moved
}

fn answered(home: &Home, args: &[&str]) -> Value {
    let output = ctl(home, &[args, &["-o", "json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The model that requests of any client may name the file by.
fn inspected(home: &Home, file: &str) -> Value {
    answered(home, &["models", "inspect", file])
}

#[test]
fn every_verb_takes_a_file_that_only_its_user_may_read() {
    if !is_root() {
        return;
    }
    let (home, folder) = homes();
    let Some(file) = small(&home, "q8_0") else { return };
    let file = private(folder.path(), &file);
    let _daemon = home.start_with(as_nobody);
    let file = file.to_str().unwrap();
    for args in [
        &["predict", file, "--engine", "llama.cpp"][..],
        &["recommend", file, "--engine", "llama.cpp"],
        &["sweep", file, "--engine", "llama.cpp", "--contexts", "0,64"],
        &["analyze", file, "--engine", "llama.cpp", "--tokens-per-s", "100"],
        &["observe", file, "--engine", "llama.cpp", "--tokens-per-s", "100"],
    ] {
        let output = ctl(&home, &[args, &["-o", "json"]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("directories") && !errors.contains("denied"), "{args:?}: {errors}");
        // An observation may be refused as impossible on this machine, which takes knowing the model.
        let impossible = args[0] == "observe" && errors.contains("impossible_observation");
        assert!(output.status.success() || impossible, "{args:?}: {errors}");
    }
    let lines = home.path("lines");
    fs::write(&lines, json!({"workload": {"model": {"path": file}}, "engine": "llama.cpp"}).to_string())
        .unwrap();
    let predicted = answered(&home, &["predict", "--requests", lines.to_str().unwrap()]);
    assert_eq!(predicted["tier"], answered(&home, &["predict", file, "--engine", "llama.cpp"])["tier"]);
    let model = inspected(&home, file);
    // What the command prints is what any client sends.
    let body = json!({"workload": {"model": model}, "engine": "llama.cpp"}).to_string();
    let (status, answer) = http(&home.query(), "POST", "/v1/predict", &body);
    assert_eq!(status, 200, "{answer}");
    let body = json!({"workload": {"model": {"path": file}}, "engine": "llama.cpp"}).to_string();
    let (status, answer) = http(&home.query(), "POST", "/v1/predict", &body);
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("unreadable_model")));
}

#[test]
fn by_a_path_alone_nobody_learns_what_lies_there() {
    if !is_root() {
        return;
    }
    let (home, folder) = homes();
    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(open.path().join("readable.gguf"), "first bytes").unwrap();
    fs::write(open.path().join("config.json"), r#"{"hidden_size":"secret"}"#).unwrap();
    fs::write(folder.path().join("closed.gguf"), "first bytes").unwrap();
    let _daemon = home.start_with(as_nobody);
    let told = |path: PathBuf| {
        let body = json!({"workload": {"model": {"path": path}}}).to_string();
        let (status, answer) = http(&home.query(), "POST", "/v1/predict", &body);
        (status, answer["error"].clone())
    };
    let absent = told(open.path().join("absent.gguf"));
    assert_eq!((absent.0, &absent.1["code"]), (400, &json!("unreadable_model")));
    for path in [
        open.path().join("readable.gguf"),
        open.path().join("config.json"),
        open.path().to_owned(),
        folder.path().join("closed.gguf"),
        folder.path().join("absent.gguf"),
        home.path("rooflined.toml"),
        "/proc/self/environ".into(),
    ] {
        assert_eq!(told(path.clone()), absent, "{}", path.display());
    }
}

#[test]
fn files_below_a_configured_directory_are_opened() {
    let home = Home::new();
    let Some(file) = small(&home, "fp16") else { return };
    let models = home.path("models");
    fs::create_dir(&models).unwrap();
    home.configure(&format!("[calibration]\nautomatic = false\n[models]\ndirs = [{models:?}]\n"));
    let _daemon = home.start();
    let told = |path: &Path| {
        let body = json!({"workload": {"model": {"path": path}}, "engine": "llama.cpp"}).to_string();
        http(&home.query(), "POST", "/v1/predict", &body)
    };
    assert_eq!(told(&file).0, 400);
    let inside = models.join("m.gguf");
    fs::copy(&file, &inside).unwrap();
    let (status, answer) = told(&inside);
    assert_eq!(status, 200, "{answer}");
    std::os::unix::fs::symlink(&file, models.join("link.gguf")).unwrap();
    assert_eq!(told(&models.join("link.gguf")).1, told(&file).1, "a link leads nowhere else");
}

/// An index of forty shards, each the same file of 30 MB. Read one after the other they would be four million tensors.
#[test]
fn many_links_to_one_large_header_cost_no_more_than_one_model() {
    let folder = tempfile::tempdir().unwrap();
    let entry = |number: usize| {
        format!("\"{number:0300}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}")
    };
    let header = format!("{{{}}}", (0..80_000).map(entry).collect::<Vec<_>>().join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    fs::write(folder.path().join("one"), &bytes).unwrap();
    let name = |number: usize| format!("model-{number:05}-of-00040.safetensors");
    let mut map = serde_json::Map::new();
    for number in 1..=40 {
        std::os::unix::fs::symlink("one", folder.path().join(name(number))).unwrap();
        map.insert(format!("tensor{number}"), json!(name(number)));
    }
    let index = json!({ "weight_map": map }).to_string();
    fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    let inspected = || {
        // The limit is on addresses: threads and libraries take some too.
        Command::new("sh")
            .args(["-c", "ulimit -v 700000; exec \"$0\" models inspect \"$1\""])
            .arg(crate::programs::rooflinectl())
            .arg(folder.path())
            .output()
            .unwrap()
    };
    let output = inspected();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("67108864 bytes of headers") || errors.contains("262144 tensors"), "{errors}");
    assert!(errors.contains("hint: give one file of the model"), "{errors}");
    fs::remove_file(folder.path().join("model.safetensors.index.json")).unwrap();
    let output = inspected();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The most memory that a process has had.
fn peak_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// A file of safetensors with this header.
fn checkpoint(path: &Path, header: &str) {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    fs::write(path, bytes).unwrap();
}

/// Directories that anybody may name, made to cost as much as they can: forty links to one header of 95 MB, a configuration of
/// two million objects, and the most tensors with the longest names that are read.
#[test]
fn model_files_cost_a_daemon_bounded_memory_however_many_are_asked_about_at_once() {
    let home = Home::new();
    let models = home.path("models");
    let (links, objects, tensors) = (models.join("links"), models.join("objects"), models.join("tensors"));
    for folder in [&links, &objects, &tensors] {
        fs::create_dir_all(folder).unwrap();
    }
    checkpoint(&links.join("one"), &format!("{{\"__metadata__\":{{\"a\":\"{}\"}}}}", "a".repeat(95 << 20)));
    let name = |number: usize| format!("model-{number:05}-of-00040.safetensors");
    let mut map = serde_json::Map::new();
    for number in 1..=40 {
        std::os::unix::fs::symlink("one", links.join(name(number))).unwrap();
        map.insert(format!("tensor{number}"), json!(name(number)));
    }
    let index = json!({ "weight_map": map }).to_string();
    fs::write(links.join("model.safetensors.index.json"), index).unwrap();
    fs::write(objects.join("config.json"), format!("{{\"a\":[{}0]}}", "{\"\":0},".repeat(2_000_000)))
        .unwrap();
    let entry = |number: usize| {
        format!("\"{number:0200}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}")
    };
    let header = format!("{{{}}}", (0..250_000).map(entry).collect::<Vec<_>>().join(","));
    checkpoint(&tensors.join("model.safetensors"), &header);
    home.configure(&format!("[calibration]\nautomatic = false\n[models]\ndirs = [{models:?}]\n"));
    let daemon = home.start();
    let observe = |folder: &Path| {
        let workload = json!({"model": {"path": folder}});
        let observation = json!({"engine": "llama.cpp", "workload": workload, "tokens_per_s": 1.0});
        let (_, told) = http(&home.query(), "POST", "/v1/observations", &observation.to_string());
        told["error"]["code"].as_str().unwrap_or_default().to_owned()
    };
    let folders = [&objects, &links, &tensors];
    for folder in folders {
        assert_eq!(observe(folder), "unreadable_model", "{}", folder.display());
    }
    std::thread::scope(|scope| {
        for folder in folders.into_iter().chain(folders) {
            scope.spawn(|| assert!(["unreadable_model", "busy"].contains(&observe(folder).as_str())));
        }
    });
    if is_emulated(daemon.pid()) {
        return skip("an emulator's memory is not the daemon's");
    }
    let peak = peak_bytes(daemon.pid());
    // What one user may have read at a time, and the daemon itself.
    assert!(peak < (256 + 64) << 20, "the daemon took {} MiB", peak >> 20);
}

/// A llama-bench that prints what its documentation shows, or does what `$habit` says.
fn stand_in(home: &Home) -> PathBuf {
    let folder = home.path("bench");
    fs::create_dir(&folder).unwrap();
    let program = folder.join("llama-bench");
    let script = r#"#!/bin/sh
echo "$@" >"$0.args"
echo "ggml: loading tensors, n_tensors = [ 7 ]" >&2
row() {
    cat <<ROW
  {
    "build_commit": "0c1e570", "build_number": 1, "cpu_info": "Intel(R) Xeon(R) Processor", "gpu_info": "",
    "backends": "CPU", "model_filename": "m.gguf", "model_type": "llama ?B Q8_0", "model_size": 2900000,
    "model_n_params": 2900000, "n_batch": 2048, "n_ubatch": 512, "n_threads": 2, "cpu_mask": "0x0", "cpu_strict": false,
    "poll": 50, "type_k": "f16", "type_v": "f16", "n_gpu_layers": 0, "fit_target": 0, "of_a_later_version": {"a": [1]},
    "n_prompt": $1, "n_gen": $2, "n_depth": 0, "test_time": "2026-11-23T01:32:30Z", "avg_ns": 312253413, "stddev_ns": 0,
    "avg_ts": $3, "stddev_ts": 1.500000, "samples_ns": [ 312253413 ], "samples_ts": [ $3 ]
  }
ROW
}
case "$(cat "$0.habit" 2>/dev/null)" in
empty) exit 0 ;;
none) echo "[]" ;;
zero) echo "["; row 512 0 0.000000; echo ","; row 0 128 0.000000; echo "]" ;;
half) echo "["; row 512 0 1000.5; echo ","; row 0 128 0.000000; echo "]" ;;
cut) echo "["; row 512 0 1000.5 | head -c 200 ;;
killed) kill -KILL $$ ;;
fails) echo "error: failed to load model 'm.gguf'" >&2; exit 1 ;;
hangs) exec sleep 600 ;;
*) echo "build: 1 (0c1e570)"; echo "["; row 512 0 1000.5; echo ","; row 0 128 250.25; echo "]" ;;
esac
"#;
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn the_engine_itself_is_run_and_put_beside_its_prediction() {
    let home = Home::new();
    let _daemon = home.start();
    let Some(file) = small(&home, "q8_0") else { return };
    let file = file.to_str().unwrap();
    let program = stand_in(&home);
    let folder = program.parent().unwrap().to_str().unwrap();
    let args = ["compare", file, "--with", folder];
    let compared = answered(&home, &args);
    let rows = compared["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{compared}");
    for (row, (phase, tokens, rate)) in rows.iter().zip([("prefill", 512.0, 1000.5), ("decode", 1.0, 250.25)])
    {
        assert_eq!(
            (&row["op"]["phase"], &row["threads"], &row["kv_format"]),
            (&json!(phase), &json!(2), &json!("fp16"))
        );
        let measured = row["measured_time_s"]["value"].as_f64().unwrap();
        assert!((measured - tokens / rate).abs() < 1e-9, "{row}");
        let predicted = row["predicted_time_s"]["value"].as_f64().unwrap();
        assert!(
            (row["error_ratio"].as_f64().unwrap() - (predicted - measured) / measured).abs() < 1e-9,
            "{row}"
        );
        assert!(row["verdict"].is_string() && row["bound"].is_string() && row["limit"].is_string());
    }
    assert_eq!(compared["engine"]["build_commit"], "0c1e570");
    assert!(compared["median_error_ratio"].is_number() && compared["verdict"].is_string());
    // The reference was read beside the run, or it is said why not.
    let reference = &compared["reference"];
    assert!(reference["after_ratio"].is_number() || reference["reason"].is_string(), "{reference}");
    let given = fs::read_to_string(program.with_extension("args")).unwrap();
    assert_eq!(given.trim(), format!("-m {file} -p 512 -n 128 -r 3 -ngl 0 -o json"));
    let human = String::from_utf8(ctl(&home, &args).stdout).unwrap();
    for word in [
        "pp512",
        "tg128",
        "threads",
        "predicted",
        "measured",
        "memory compared with the calibration",
        "verdict",
    ] {
        assert!(human.contains(word), "{word}: {human}");
    }

    // Without it no reference is read, which keeps every processor busy for seconds each time.
    fs::remove_file(home.control()).unwrap();
    for (habit, word) in [
        ("empty", "printed no test"),
        ("none", "printed no test"),
        ("zero", "0 tokens a second"),
        ("cut", "not understood"),
        ("killed", "ended by signal 9"),
        ("fails", "exit code 1; it said"),
        ("hangs", "did not finish within"),
    ] {
        fs::write(program.with_extension("habit"), habit).unwrap();
        let output = ctl(&home, &[&args[..], &["--time-limit", "5s"]].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{habit}: {errors}");
        assert!(errors.contains(word) && errors.contains("hint: "), "{habit}: {errors}");
    }
    fs::write(program.with_extension("habit"), "half").unwrap();
    let half = answered(&home, &args);
    assert_eq!(half["rows"].as_array().unwrap().len(), 1);
    assert!(half["skipped"][0].as_str().unwrap().contains("tg128"), "{half}");

    // Nothing is on the PATH of these tests.
    let missing = ctl(&home, &["compare", file]);
    let errors = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(missing.status.code(), Some(1));
    assert!(errors.contains("llama-bench") && errors.contains("install llama.cpp"), "{errors}");
}
