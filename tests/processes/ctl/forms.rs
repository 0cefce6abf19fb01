//! Every command with every `-o`: it prints that form, or says that it has none.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::answers::healthy;
use super::fake::{Fake, Received, Reply};
use super::{contains, ctl, run, stdout};
use crate::daemon::harness::eventually;

const KINDS: [&str; 5] = ["json", "jsonl", "csv", "prom", "env"];

/// Command lines, and the kinds that each has.
const ALL: &[&str] = &KINDS;
const LINES: &[&str] = &["json", "jsonl"];
const WORDS: &[&str] = &["json", "jsonl", "csv", "env"];
const NONE: &[&str] = &[];
const COMMANDS: [(&str, &[&str]); 52] = [
    ("status", ALL),
    ("board", ALL),
    ("roofline", ALL),
    ("roofline --svg {dir}/x.svg", ALL),
    ("predict gemv 64 64", ALL),
    ("predict --requests {dir}/requests.jsonl", LINES),
    ("sweep gemv 64 64", ALL),
    ("compare gemv 64 64 --formats fp32", ALL),
    ("measure gemv 64 64", ALL),
    ("analyze gemv 64 64 --time 1ms", ALL),
    ("explain gemv 64 64 --time 1ms", ALL),
    ("calibrate", ALL),
    ("calibrate --wait", ALL),
    ("recommend gemv 64 64", ALL),
    ("observe gemv 64 64 --format fp32 --time 1ms", ALL),
    ("observations list", ALL),
    ("observations export", &["csv"]),
    ("observations forget 1", ALL),
    ("servers", ALL),
    ("run --no-hold -- {dir}/llama-server -m {dir}/config.json", ALL),
    ("mode list", ALL),
    ("mode list --conf {conf}", ALL),
    ("mode get", ALL),
    ("mode set 25W", ALL),
    ("mode set 25W --dry-run", ALL),
    ("mode confirm 1", ALL),
    ("mode revert", ALL),
    ("hold --mode 25W -- true", NONE),
    ("holds", ALL),
    ("quant-error {dir}/x.safetensors", ALL),
    ("tiling 64 64 64 --hardware jetson-orin-nano-8gb-super", ALL),
    ("watch", NONE),
    ("watch --events", LINES),
    ("dashboard --listen 127.0.0.1:0", ALL),
    ("metrics", &["prom"]),
    ("metrics --textfile {dir}/x.prom", &["prom"]),
    ("features", WORDS),
    ("features --file {dir}/x", NONE),
    ("doctor", WORDS),
    ("bundle --root {dir}", ALL),
    ("config check {config}", WORDS),
    ("config show {config}", ALL),
    ("hardware list", ALL),
    ("hardware show gb10", ALL),
    ("hardware check {config}", ALL),
    ("models list", ALL),
    ("models show llama-3.1-8b", ALL),
    ("models inspect {dir}/config.json", ALL),
    ("formats", ALL),
    ("demo --quick", NONE),
    ("completions bash", NONE),
    ("man", NONE),
];

fn answer(asked: &Received) -> Reply {
    let switch = json!({
        "outcome": "applied", "asked": "25W", "before": "15W", "reached": "25W", "message": "in 25W", "dry_run": false,
        "writes": [], "differences": [], "took_s": 0.1, "confirm": null,
    });
    match asked.route.split('?').next().unwrap() {
        "/v1/modes" => Reply::ok(
            &json!({"active": "25W", "modes": [{"name": "25W", "id": 1}, {"name": "15W", "id": 0}]}),
        ),
        "/v1/holds" => Reply::ok(&json!({
            "active_mode": "25W", "cause": "hold", "switching": null, "pending": null, "unavailable": null,
            "holds": [{
                "app_id": "llama", "reason": "chat", "uid": 1000, "constraints": {}, "attached": true, "satisfied": true,
                "age_s": 90.0, "expires_in_s": null,
            }],
            "control_enabled": true, "simulated": false, "serial": 17,
        })),
        "/v1/mode" | "/v1/mode/revert" => Reply::ok(&switch),
        "/v1/mode/confirm" => Reply::ok(&json!({"confirmed": true})),
        "/v1/servers" => Reply::ok(&json!({"serial": 1, "servers": [{
            "server": "llama-server on port 8080", "reported_at_unix_s": 1.0, "shown_to": "own", "not_learned": null,
            "engine": "llama.cpp", "model": "/m/x.gguf", "format": null, "batch": 2, "context_tokens": 512,
            "explained": {
                "verdict": "as_expected", "reason": "r", "measured_tokens_per_s": 10.0,
                "expected_tokens_per_s": {"value": 10.0, "low": 9.0, "high": 11.0}, "expected_at": "MAXN", "causes": [],
                "unexplained_ratio": null, "unexplained_tokens_per_s": null, "unseen": [], "simulated": false, "serial": 1,
            },
        }]})),
        "/v1/observations/1" => Reply::ok(&json!({"forgotten": 1})),
        "/v1/observations" if asked.method == "GET" => {
            Reply::ok(&json!({"other_users": 0, "serial": 1, "observations": [{
                "id": 1, "uid": 0, "pid": null, "reported_at_unix_s": null, "moves": "everyone", "engine": "llama.cpp",
                "model": "qwen3-4b", "op": null, "format": "q4_k_m", "phase": "decode", "batch": 1, "context_tokens": 0,
                "prompt_tokens": null, "power_mode": "25W", "time_s": 0.1, "power_w": null,
                "measured_over_predicted_ratio": null,
            }]}))
        }
        "/v1/recommend" if asked.body.contains("config.json") => {
            let Reply::Whole(status, body) = healthy(asked) else {
                return Reply::error(404, "not_found", None);
            };
            let mut body: Value = serde_json::from_str(&body).unwrap();
            body["apply"]["settings"]["llama.cpp"] = json!("llama-server -m MODEL.gguf -t 2");
            Reply::Whole(status, body.to_string())
        }
        _ => healthy(asked),
    }
}

/// Files that the command lines name.
fn files(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let request = json!({"workload": {"op": {"kind": "gemv", "n": 64, "k": 64}}, "hardware": "gb10"});
    fs::write(directory.join("requests.jsonl"), format!("{request}\n{request}\n")).unwrap();
    let table = r#"{"w":{"dtype":"F32","shape":[4,256],"data_offsets":[0,4096]}}"#;
    let weights: Vec<u8> = (0..1024_u16).flat_map(|index| f32::from(index % 17).to_le_bytes()).collect();
    let length = (table.len() as u64).to_le_bytes();
    fs::write(directory.join("x.safetensors"), [&length[..], table.as_bytes(), &weights].concat()).unwrap();
    let config = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100,
        "max_position_embeddings": 512, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
    });
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
    let server = directory.join("llama-server");
    fs::write(&server, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Exit code, standard output and standard error; a command that goes on is ended once it has printed.
fn printed(fake: &Fake, directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let place = |name: &str| directory.join(name);
    let open = |name: &str| File::create(place(name)).unwrap();
    let read = |name: &str| String::from_utf8(fs::read(place(name)).unwrap()).unwrap();
    let mut child = ctl(fake.path(), arguments).stdout(open("out")).stderr(open("err")).spawn().unwrap();
    let code = eventually(&arguments.join(" "), || {
        let goes_on = arguments.contains(&"dashboard");
        match child.try_wait().unwrap() {
            Some(status) => Some(status.code()),
            None if goes_on && read("out").ends_with('\n') => {
                let _ = child.kill();
                let _ = child.wait();
                Some(Some(0))
            }
            None => None,
        }
    });
    (code, read("out"), read("err"))
}

/// Fields of each record.
fn records(csv: &str) -> Vec<usize> {
    let (mut records, mut fields, mut quoted) = (Vec::new(), 1, false);
    for c in csv.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields += 1,
            '\n' if !quoted => records.push(std::mem::replace(&mut fields, 1)),
            _ => {}
        }
    }
    assert!(!quoted && fields == 1, "{csv}");
    records
}

/// Words in the name of a metric that `promtool check metrics` is against, or that stand for a unit.
const NOT_IN_A_NAME: [&str; 22] = [
    "s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d", "hz", "w", "j", "c",
    "bits", "gauge", "counter", "percent",
];

/// What is wrong with metrics by the rules of promtool, and what promtool itself says where PROMTOOL names that program.
fn faults_of_metrics(page: &str) -> Vec<String> {
    let (mut faults, mut families, mut series) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut helped = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helped = rest.split(' ').next().unwrap();
            faults.extend((!families.insert(helped)).then(|| format!("{helped} has HELP twice")));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.split(' ').next().unwrap();
            faults.extend((name != helped).then(|| format!("{name} has no HELP")));
            let reserved =
                ["_total", "_count", "_sum", "_bucket"].iter().any(|ending| name.ends_with(ending));
            let word = name.split('_').find(|word| NOT_IN_A_NAME.contains(word));
            if reserved || word.is_some() || name.contains(|c: char| c.is_ascii_uppercase()) {
                faults.push(format!("{name} is no name of a gauge: {word:?}"));
            }
        } else {
            let name = line.rsplit_once(' ').unwrap().0;
            faults.extend((!series.insert(name)).then(|| format!("{name} stands twice")));
        }
    }
    if let Ok(promtool) = std::env::var("PROMTOOL") {
        let mut child = std::process::Command::new(promtool)
            .args(["check", "metrics"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), page.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        faults.extend((!output.status.success()).then_some(said));
    }
    faults
}

#[track_caller]
fn is_of_kind(kind: &str, text: &str, what: &str) {
    let json = |text: &str| {
        let read = serde_json::from_str::<Value>(text);
        assert!(read.is_ok(), "{what}: {read:?}: {text}");
    };
    assert!(text.ends_with('\n'), "{what}: {text:?}");
    match kind {
        "json" if text.lines().count() == 1 => json(text),
        "json" | "jsonl" => text.lines().for_each(json),
        "csv" => {
            let records = records(text);
            assert!(records.len() > 1 || text.contains(','), "{what}: {text}");
            assert!(records.iter().all(|fields| *fields == records[0]), "{what}: {records:?} {text}");
        }
        "prom" => {
            let faults = faults_of_metrics(text);
            assert!(faults.is_empty(), "{what}: {faults:?}\n{text}");
            for line in
                text.lines().filter(|line| !line.starts_with("# TYPE ") && !line.starts_with("# HELP "))
            {
                let (name, value) = line.rsplit_once(' ').unwrap_or_default();
                assert!(name.starts_with("rooflined_") && value.parse::<f64>().is_ok(), "{what}: {line}");
            }
        }
        _ => {
            let variable = |line: &str| line.starts_with("ROOFLINED_") && line.contains("='");
            assert!(text.lines().any(variable) && variable(text.lines().next().unwrap()), "{what}: {text}");
        }
    }
}

/// The commands that the help lists, those below a command by both names.
fn listed() -> BTreeSet<String> {
    fn below(path: &[&str], found: &mut BTreeSet<String>) {
        let help = stdout(&run(Path::new("/nowhere"), &[path, &["--help"]].concat()));
        // Those of the program stand in groups.
        let first = if path.is_empty() { "Ask:" } else { "Commands:" };
        let commands = help.lines().skip_while(|line| *line != first).skip(1);
        let mut is_leaf = true;
        for line in commands.take_while(|line| *line != "Options:") {
            // The rest of a long description is further in.
            let name = line.strip_prefix("  ").filter(|line| !line.starts_with(' '));
            let Some(name) = name.and_then(|line| line.split(' ').next()).filter(|name| *name != "help")
            else {
                continue;
            };
            is_leaf = false;
            below(&[path, &[name]].concat(), found);
        }
        if is_leaf {
            found.insert(path.join(" "));
        }
    }
    let mut found = BTreeSet::new();
    below(&[], &mut found);
    found
}

#[test]
fn every_command_prints_the_form_that_is_asked_for_or_refuses_it_by_name() {
    let fake = Fake::start(answer);
    let directory = tempfile::tempdir().unwrap();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let conf = root.join("tests/nvpmodel/agx-orin-64gb-r36.conf");
    files(directory.path());
    let mut missing = listed();
    // It speaks a protocol, and prints nothing.
    missing.remove("mcp");
    for (line, has) in COMMANDS {
        missing.retain(|name| !(line == name || line.starts_with(&format!("{name} "))));
        let line = line
            .replace("{dir}", directory.path().to_str().unwrap())
            .replace("{conf}", conf.to_str().unwrap())
            .replace("{config}", root.join("config/rooflined.toml").to_str().unwrap());
        for kind in KINDS {
            let arguments: Vec<&str> = ["-o", kind].into_iter().chain(line.split(' ')).collect();
            let (code, out, errors) = printed(&fake, directory.path(), &arguments);
            let what = format!("{arguments:?}: {code:?} {errors}");
            if has.contains(&kind) {
                // Metrics are in the file then, and otherwise what the daemon says, here a line of the test's own.
                if !(line.starts_with("metrics") && kind == "prom") {
                    is_of_kind(kind, &out, &what);
                }
            } else {
                assert_eq!((code, out.as_str()), (Some(2), ""), "{what}");
                contains(&errors, &["error: ", &format!("as {kind}"), "hint: leave -o out"]);
                assert!(errors.contains(line.split(' ').next().unwrap()), "{what}");
            }
        }
    }
    assert!(missing.is_empty(), "not looked at: {missing:?}");
    assert!(!directory.path().join("x").exists(), "a refused command has written its file");
}
