//! The registry of hardware: its own files, a user's, and the command that shows and checks them.

#![allow(clippy::unwrap_used, reason = "a missing entry or file fails the test that asked for it")]

use std::path::Path;
use std::process::{Command, Output};

use rooflined_config::{hardware_dir, hardware_file};
use rooflined_core::hardware::{Hardware, Kind, Registry, registry};
use serde_json::Value;

/// A user's accelerator: complete, plausible and like nothing that is built in.
const OWN: &str = r#"key = "my-npu"
name = "My accelerator"
kind = "discrete"
sm = 4
gpu_clock_hz = 1_000_000_000
bus_bits = 128
bandwidth_bytes_per_s = 68.3e9

[flops_per_sm_clock]
fp16 = 1024
int8 = 2048

[sources]
sm = "data sheet"
gpu_clock_hz = "data sheet"
bus_bits = "data sheet"
bandwidth_bytes_per_s = "data sheet"
"flops_per_sm_clock.fp16" = "data sheet"
flops_per_sm_clock.int8 = "measured"
"#;

/// OWN with one thing changed.
fn changed(from: &str, to: &str) -> String {
    let from = from.to_owned();
    assert!(OWN.contains(&from), "{from}");
    OWN.replacen(&from, to, 1)
}

fn complaints(text: &str) -> Vec<(Option<usize>, String)> {
    let error = Hardware::parse(text).unwrap_err();
    error.problems.into_iter().map(|problem| (problem.line, problem.message)).collect()
}

#[test]
fn every_file_that_is_built_in_parses_under_its_own_name_and_is_plausible() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/hardware");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let hardware = hardware_file(&path).unwrap_or_else(|problems| {
            unreachable!("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        });
        assert_eq!(path.file_stem().unwrap().to_str(), Some(hardware.key.as_str()));
        assert_eq!(registry().get(&hardware.key), Some(&hardware), "{} is not built in", hardware.key);
        let doubts = hardware.implausible(&registry().without(&hardware.key));
        let unlike = ["no known part of this compute capability", "above the"];
        let doubts: Vec<_> =
            doubts.iter().filter(|doubt| !unlike.iter().any(|words| doubt.contains(words))).collect();
        // A GeForce or an embedded part has half the rate of the professional one: those differ by two and are right.
        let halves = doubts.iter().all(|doubt| doubt.contains("exactly twice"));
        assert!(halves, "{}: {doubts:?}", hardware.key);
        found.push(hardware.key);
    }
    found.sort_unstable();
    assert_eq!(found, registry().keys().collect::<Vec<_>>());
}

#[test]
fn every_name_that_is_in_use_finds_its_entry() {
    let names = "jetson-orin-nano-4gb jetson-orin-nano-8gb jetson-orin-nano-8gb-super jetson-orin-nx-8gb \
        jetson-orin-nx-16gb jetson-agx-orin-32gb jetson-agx-orin-64gb jetson-agx-thor-t4000 jetson-agx-thor-t5000 \
        jetson-xavier-nx jetson-agx-xavier gb10 t4 v100 a100-40gb a100-80gb l4 l40s a40 rtx-a6000 rtx-4090 rtx-5090 \
        h100-sxm h100-pcie h200 b200 cpu a100-pcie-80 rtx-6000-ada rtx-5000-ada rtx-4000-ada rtx-3090ti rtx-3090 \
        rtx-3080ti rtx-3080 rtx-3070 rtx-2080 rtx-4080 rtx-4070ti rtx-5070 gtx-1050ti \
        jetson-agx-orin-devkit-32gb jetson-agx-orin-32gb-super jetson-agx-orin-industrial igx-orin igx-thor \
        jetson-agx-xavier-8gb jetson-agx-xavier-industrial";
    for name in names.split_whitespace() {
        assert_eq!(registry().get(name).map(|entry| entry.key.as_str()), Some(name));
    }
    for (name, key) in [
        ("orin-nano-8gb-super", "jetson-orin-nano-8gb-super"),
        ("agx-orin-64gb", "jetson-agx-orin-64gb"),
        ("agx-thor", "jetson-agx-thor-t5000"),
        ("jetson-agx-thor", "jetson-agx-thor-t5000"),
        ("agx-thor-t5000", "jetson-agx-thor-t5000"),
        ("agx-xavier-32gb", "jetson-agx-xavier"),
        ("jetson-agx-xavier-32gb", "jetson-agx-xavier"),
        ("a100-sxm-80", "a100-80gb"),
        ("dgx-spark", "gb10"),
        (" RTX-4090 ", "rtx-4090"),
    ] {
        assert_eq!(registry().get(name).map(|entry| entry.key.as_str()), Some(key), "{name}");
    }
    assert_eq!(registry().get("jetson-"), None);
    assert_eq!(registry().near("jetson-orin-nan-8gb").first(), Some("jetson-orin-nano-8gb"));
}

/// What `nvidia-smi` and `hardware list` call a part is a name of it.
#[test]
fn an_entry_is_found_by_the_name_that_is_shown_of_it() {
    for hardware in registry().entries() {
        assert_eq!(
            registry().get(&hardware.name).map(|of| &of.key),
            Some(&hardware.key),
            "{}",
            hardware.name
        );
    }
    for (name, key) in [
        ("NVIDIA GB10", "gb10"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
    ] {
        assert_eq!(registry().get(name).map(|of| of.key.as_str()), Some(key), "{name}");
    }
    let laptop = registry().get("NVIDIA GeForce RTX 4090 Laptop GPU");
    assert_eq!(laptop.map(|of| of.key.as_str()), Some("rtx-4090-laptop"));
}

#[test]
fn letters_and_digits_find_an_entry_however_they_are_separated() {
    let key = |name: &str| registry().get(name).map(|hardware| hardware.key.as_str());
    for (name, expected) in [
        ("RTX 4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("Orin Nano", "jetson-orin-nano-8gb-super"),
        ("Jetson_AGX_Orin_64GB", "jetson-agx-orin-64gb"),
        ("DGX Spark", "gb10"),
    ] {
        assert_eq!(key(name), Some(expected), "{name}");
    }
    for name in ["", "-", "jetson-", "4090", "orin"] {
        assert_eq!(key(name), None, "{name}");
    }
    for hardware in registry().entries() {
        let joined: String = hardware.key.chars().filter(char::is_ascii_alphanumeric).collect();
        assert_eq!(key(&joined), Some(hardware.key.as_str()), "{joined}");
    }
}

#[test]
fn modes_are_found_by_name_with_and_without_their_prefix_and_by_number() {
    let orin = registry().get("jetson-agx-orin-64gb").unwrap();
    assert_eq!(orin.modes[0].name, "MODE_30W", "the default is the first");
    for name in ["MODE_30W", "30W", "30w", "mode_30w", "2"] {
        assert_eq!(orin.mode(name).unwrap().id, 2, "{name}");
    }
    assert_eq!(orin.mode("31W"), None);
}

#[test]
fn masks_and_sms_agree() {
    for hardware in registry().entries() {
        let Some(bits) = hardware.tpc_mask_bits else { continue };
        assert!(hardware.sm <= bits * hardware.sm_per_tpc, "{}", hardware.key);
        for mode in &hardware.modes {
            assert_eq!(mode.sm_online % hardware.sm_per_tpc, 0, "{} {}", hardware.key, mode.name);
        }
    }
}

#[test]
fn a_users_own_entry_joins_the_others_or_replaces_one() {
    let own = Hardware::parse(OWN).unwrap();
    assert_eq!(own.kind, Kind::Discrete);
    assert_eq!(own.implausible(registry()), Vec::<String>::new());
    let replaced = Hardware::parse(&changed("\"my-npu\"", "\"gb10\"\naliases = [\"my-box\"]")).unwrap();
    let both = Registry::with(vec![own.clone(), replaced]);
    assert_eq!(both.get("my-npu"), Some(&own));
    assert_eq!(both.get("my-box").unwrap().name, "My accelerator");
    assert_eq!(both.get("dgx-spark"), None, "the alias of an entry goes with it");
    assert_eq!(both.keys().count(), registry().keys().count() + 1);
}

#[test]
fn every_mistake_is_named_with_its_line() {
    let mut missed = Vec::new();
    for (from, to, line, words) in [
        ("sm = 4", "sms = 4", Some(4), "did you mean `sm`"),
        ("sm = 4", "sm = 0", Some(4), "expected a whole number from 1 to 4096"),
        ("sm = 4", "sm = \"4\"", Some(4), "expected a whole number from 0"),
        ("sm = 4", "sm = 4.5", Some(4), "expected a whole number from 0"),
        ("sm = 4", "sm = -4", Some(4), "expected a whole number from 0"),
        ("1_000_000_000", "1000", Some(5), "expected a number from 1e6 to 1e11 Hz"),
        ("1_000_000_000", "nan", Some(5), "expected a number"),
        ("1_000_000_000", "inf", Some(5), "expected a number"),
        ("1_000_000_000", "99999999999999999999999999", Some(5), "expected a number"),
        ("68.3e9", "68.3", Some(7), "bytes per second"),
        ("fp16 = 1024", "fp16 = 16e12", Some(10), "per SM and clock"),
        ("fp16 = 1024", "fp61 = 1024", Some(10), "fp16 or fp6"),
        ("kind = \"discrete\"", "kind = \"gpu\"", Some(3), "expected one of integrated, discrete, cpu"),
        ("key = \"my-npu\"", "key = \"../etc\"", Some(1), "expected 1 to 64 of a-z"),
        ("sm = \"data sheet\"\n", "", Some(4), "`sm` has no source"),
        ("sm = \"data sheet\"\n", "sm = \"  \"\n", Some(14), "expected 1 to 4000 bytes"),
        ("flops_per_sm_clock.int8 = \"measured\"\n", "", Some(9), "`flops_per_sm_clock.int8` has no source"),
        ("sm = \"data sheet\"\n", "sm = \"a\"\nl2_bytes = \"b\"\n", Some(15), "is the source of nothing"),
        ("bandwidth_bytes_per_s = 68.3e9", "", None, "`bandwidth_bytes_per_s` is missing"),
        ("[flops_per_sm_clock]", "[flops_per_clock]", Some(9), "did you mean `flops_per_sm_clock`"),
        ("key = \"my-npu\"", "key = ", Some(1), "invalid TOML"),
        ("[sources]", "[[modes]]\nid = 1\n[sources]", Some(13), "`modes[0].name` is missing"),
        (
            "[sources]",
            "[sm_pull]\nbytes_per_clock = 9\nlow = 10\nhigh = 8\n[sources]",
            Some(13),
            "must lie between",
        ),
        ("[sources]", "[marketing]\nint8_sparse = 1e12\n[sources]", Some(14), "int8_sparse_ops_per_s"),
        ("[sources]", "sources = 3\n[s]", Some(13), "sources"),
    ] {
        let found = complaints(&changed(from, to));
        let named = found.iter().any(|(at, message)| *at == line && message.contains(words));
        if !named {
            missed.push(format!("{to:?}: no {words:?} at line {line:?} in {found:#?}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn all_mistakes_are_reported_at_once_from_the_top_down() {
    let text = changed("sm = 4", "sm = 0").replace("68.3e9", "1").replace("int8 = 2048", "int9 = 1");
    let lines: Vec<_> = complaints(&text).into_iter().map(|(line, _)| line.unwrap()).collect();
    assert!(lines.is_sorted() && lines.len() >= 3, "{lines:?}");
    // Inside tables and lists as well.
    let modes = "[[modes]]\nid = 1\nname = 5\ncores_online = 4\ngpu_clok_hz = 1e9\nmemory_clock_hz = 5\nsm_online = 99\n\
                 [[modes]]\nid = \"x\"\nname = \"B\"\ncores_online = 0\ngpu_clock_hz = 1e9\nmemory_clock_hz = 2e9\n\
                 [sm_pull]\nlow = 3\nhight = 5\n[sources]";
    let error = Hardware::parse(&changed("[sources]", modes)).unwrap_err();
    let mut keys: Vec<_> = error.problems.iter().map(|problem| problem.key.as_deref().unwrap()).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "modes",
            "modes[0].gpu_clock_hz",
            "modes[0].gpu_clok_hz",
            "modes[0].memory_clock_hz",
            "modes[0].name",
            "modes[0].sm_online",
            "modes[1].cores_online",
            "modes[1].id",
            "modes[1].sm_online",
            "sm_pull.bytes_per_clock",
            "sm_pull.high",
            "sm_pull.hight",
            "sm_pull.low",
        ],
        "{error}"
    );
    let lists = Hardware::parse(&changed("sm = 4", "sm = 4\naliases = [1, \"a\", 2]")).unwrap_err();
    let keys: Vec<_> = lists.problems.iter().map(|problem| problem.key.as_deref().unwrap()).collect();
    assert_eq!(keys, ["aliases[0]", "aliases[2]"], "{lists}");
}

#[test]
fn nothing_that_is_no_entry_is_taken_for_one() {
    let deep = "a = ".to_owned() + &"[".repeat(100_000);
    let long = format!("key = \"{}\"", "x".repeat(1_000_000));
    for text in ["", "\0\0\0", "[[modes]]", "key = 1\nname = 2\nkind = 3", "a.b.c.d = 1", &deep, &long] {
        assert!(!complaints(text).is_empty());
    }
}

#[test]
fn what_physics_and_relatives_contradict_is_doubted() {
    let ampere = "kind = \"discrete\"\ncompute_capability = \"8.0\"";
    let sourced = |text: String| text.replace("[sources]", "[sources]\ncompute_capability = \"c\"");
    let clocked = "bandwidth_bytes_per_s = 68.3e9\nmemory_clock_hz = 4266000000";
    for (text, words) in [
        (changed("int8 = 2048", "int8 = 4096"), "a dense rate doubles at most"),
        (
            sourced(changed("kind = \"discrete\"", ampere).replace("fp16 = 1024", "fp16 = 4096")),
            "exactly twice",
        ),
        (
            sourced(changed("kind = \"discrete\"", ampere).replace("fp16 = 1024", "fp16 = 3000")),
            "is above the 2048",
        ),
        (
            changed("bandwidth_bytes_per_s = 68.3e9", clocked)
                .replace("[sources]", "[sources]\nmemory_clock_hz = \"m\""),
            "half of the data rate",
        ),
        (changed("68.3e9", "68.3e13"), "ridge point"),
        (
            changed(
                "[sources]",
                "[sm_pull]\nbytes_per_clock = 2\nlow = 1\nhigh = 3\n[sources]\nsm_pull = \"s\"",
            ),
            "less than half",
        ),
        (
            changed("[sources]", "[marketing]\nint8_sparse_ops_per_s = 8.2e12\n[sources]\nmarketing = \"s\""),
            "calls sparse",
        ),
    ] {
        let hardware = Hardware::parse(&text).unwrap();
        let doubts = hardware.implausible(registry());
        assert!(doubts.iter().any(|doubt| doubt.contains(words)), "no {words:?} in {doubts:?}");
    }
}

#[test]
fn one_wrong_file_of_a_directory_keeps_no_other_out() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| std::fs::write(dir.path().join(name), text).unwrap();
    write("own.toml", OWN.as_bytes());
    write("wrong.toml", b"key = 1\n");
    write("binary.toml", b"\xff\xfe\x00");
    write("huge.toml", &vec![b'#'; 2 << 20]);
    write(".hidden.toml", b"nonsense");
    write("notes.txt", b"nonsense");
    std::fs::create_dir(dir.path().join("directory.toml")).unwrap();
    let pipe = dir.path().join("pipe.toml");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let (hardware, problems) = hardware_dir(dir.path());
    assert_eq!(hardware.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["my-npu"]);
    let named = |name: &str| problems.iter().any(|problem| problem.file.ends_with(name));
    for name in ["wrong.toml", "binary.toml", "huge.toml", "directory.toml", "pipe.toml"] {
        assert!(named(name), "{name}: {problems:?}");
    }
    assert!(!named(".hidden.toml") && !named("notes.txt"));
    assert_eq!(hardware_dir(&dir.path().join("none")), (Vec::new(), Vec::new()));
}

fn rooflinectl(arguments: &[&str]) -> Output {
    Command::new(crate::programs::rooflinectl())
        .args(arguments)
        .env("ROOFLINED_SOCKET", "/nonexistent")
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_command_lists_and_shows_without_a_daemon() {
    let list = rooflinectl(&["hardware", "list", "-o", "json"]);
    assert!(list.status.success());
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let entries = list["hardware"].as_array().unwrap();
    assert!(entries.len() >= registry().keys().count());
    let cpu = entries.iter().find(|entry| entry["key"] == "cpu").unwrap();
    assert_eq!((&cpu["bandwidth_bytes_per_s"], &cpu["sm"]), (&Value::Null, &Value::Null));
    let human = text(&rooflinectl(&["hardware", "list"]));
    assert!(human.lines().any(|line| line.contains("gb10") && line.contains("273")), "{human}");

    let show = rooflinectl(&["hardware", "show", "agx-orin-64gb", "-o", "json"]);
    let show: Value = serde_json::from_slice(&show.stdout).unwrap();
    let mode = show["modes"].as_array().unwrap().iter().find(|mode| mode["name"] == "MODE_30W").unwrap();
    assert_eq!(mode["ceilings"]["bandwidth_bytes_per_s"]["value"], 8.0 * 612e6 * 15.8);
    assert!(show["sources"]["sm_pull"].as_str().unwrap().contains("67 GB/s"));
    let human = text(&rooflinectl(&["hardware", "show", "jetson-agx-orin-64gb"]));
    for words in ["MODE_30W", "204.7", "77.4", "bandwidthTest", "Advertised, never used"] {
        assert!(human.contains(words), "{words}: {human}");
    }
}

#[test]
fn the_command_says_what_is_wrong_and_exits_so() {
    let unknown = rooflinectl(&["hardware", "show", "gb1O"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("did you mean gb10"));

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("own.toml");
    let check = |content: &str, more: &[&str]| {
        std::fs::write(&file, content).unwrap();
        rooflinectl(&[&["hardware", "check", file.to_str().unwrap()], more].concat())
    };
    let right = check(OWN, &[]);
    assert_eq!(right.status.code(), Some(0), "{right:?}");
    let wrong = check(&changed("sm = 4", "sm = 0"), &[]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong).contains("own.toml:4: `sm` is 0"), "{wrong:?}");
    let doubted = check(&changed("int8 = 2048", "int8 = 4096"), &["-o", "json"]);
    assert_eq!(doubted.status.code(), Some(0));
    let answer: Value = serde_json::from_slice(&doubted.stdout).unwrap();
    assert_eq!((&answer["valid"], answer["warnings"].as_array().unwrap().len()), (&Value::Bool(true), 1));
    assert_eq!(rooflinectl(&["hardware", "check", "/nonexistent.toml"]).status.code(), Some(2));
    assert_eq!(rooflinectl(&["hardware", "check", "/"]).status.code(), Some(1));
}

/// A user's CPU, with two of its channels filled.
const CPU: &str = r#"key = "my-cpu"
name = "My CPU"
kind = "cpu"
bus_bits = 128
memory_clock_hz = 2_400_000_000

[cpu]
cores = 16
threads = 32
clock_hz = 3_700_000_000
fp32_per_clock = 32
features = ["avx2", "avx512_vnni"]

[sources]
bus_bits = "two of twelve channels"
memory_clock_hz = "DDR5-4800"
cpu = "lscpu"
"#;

#[test]
fn a_cpu_is_described_by_its_channels_and_cores_and_what_is_wrong_in_it_is_named() {
    let cpu = Hardware::parse(CPU).unwrap();
    assert_eq!((cpu.kind, cpu.is_described(), cpu.bandwidth.get()), (Kind::Cpu, true, 76.8e9));
    for (from, to, what) in [
        ("bus_bits = 128\n", "", "64 x channels"),
        ("avx512_vnni", "avx512-vnni", "unknown feature `avx512-vnni`; did you mean `avx512_vnni`?"),
        ("threads = 32", "threads = 8", "a whole number from 16"),
        ("3_700_000_000", "3.7", "Hz"),
        ("kind = \"cpu\"", "kind = \"discrete\"", "leave it out"),
        ("cpu = \"lscpu\"\n", "", "has no source"),
    ] {
        assert!(CPU.contains(from), "{from}");
        let found = complaints(&CPU.replacen(from, to, 1));
        assert!(found.iter().any(|(_, message)| message.contains(what)), "{to}: {found:?}");
    }
}
