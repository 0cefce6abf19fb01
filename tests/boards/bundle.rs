//! A captured board is the board: what is discovered and read in the replayed tree is what was in the original.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rooflined_core::units::Seconds;
use rooflined_hw::{self, Sampler, SysRoot, bundle};
use serde_json::{Value, json};

use crate::tree::{self, Node, put, unpack};

/// What the program makes of a tree. The machine's id is replaced in a capture, so its hash differs.
fn seen(root: &Path) -> Value {
    let root = SysRoot::new(root);
    let (board, discovered) = rooflined_hw::discover(&root);
    let state = rooflined_hw::read_state(&mut Sampler::new(&root, discovered), Seconds(1000.0));
    let mut board = json!(board);
    board.as_object_mut().unwrap().remove("machine");
    json!({ "board": board, "state": state })
}

fn captured(root: &Path) -> String {
    bundle::capture(&SysRoot::new(root), &BTreeMap::new(), "a test").text
}

#[track_caller]
fn same(name: &str, original: &Path, text: &str) {
    let replayed = unpack(&tree::parse(text));
    let (before, after) = (seen(original), seen(replayed.path()));
    for part in ["board", "state"] {
        for (key, value) in before[part].as_object().unwrap() {
            assert_eq!(&after[part][key], value, "{name}: {part}.{key}\n{text}");
        }
    }
    assert_eq!(before, after, "{name}");
    assert_eq!(captured(replayed.path()), text, "{name}: a capture of the replay is the capture");
}

#[test]
fn a_replayed_capture_is_the_board() {
    tree::obey_permissions();
    let boards = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards");
    let mut compared = 0;
    for board in fs::read_dir(boards).unwrap() {
        let board = board.unwrap();
        let name = board.file_name().to_string_lossy().into_owned();
        if !board.path().join("tree.txt").exists() {
            continue;
        }
        // Files that hang or hold other bytes than text are noted in a capture, not reproduced.
        // Whose processes are on the GPU and what is installed is nobody's business that a capture is sent to: they are
        // left out, or numbered again.
        // A directory that lets nobody in is not noted either.
        if ["-damaged", "-root", "-user", "-devices"].iter().any(|kind| name.ends_with(kind)) {
            continue;
        }
        let original = unpack(&tree::nodes(&name, "tree.txt"));
        same(&name, original.path(), &captured(original.path()));
        compared += 1;
    }
    assert!(compared >= 25, "{compared} boards");
}

#[test]
fn the_command_captures_a_board_with_odd_files_and_no_daemon() {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards/laptop-x86/tree.txt"));
    let original = unpack(&tree::parse(&text.unwrap()));
    let conf =
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvpmodel/xavier-nx-r35.conf")).unwrap();
    for (path, node) in [
        ("/etc/nvpmodel/nvpmodel_x.conf", Node::File(conf)),
        ("/etc/nvpmodel.conf", Node::Link("/etc/nvpmodel/nvpmodel_x.conf".into())),
        ("/var/lib/nvpmodel/status", Node::File(b"pmode:0002 fmode:quiet".to_vec())),
        ("/sys/devices/gpu.0/tpc_pg_mask", Node::File(b"1\n".to_vec())),
        ("/sys/class/thermal/thermal_zone10/temp", Node::Fifo),
        ("/proc/pressure/memory", Node::File(b"\xff\x00\n".to_vec())),
        (
            "/sys/devices/platform/c250000.i2c/i2c-7/7-0040/hwmon/hwmon4/curr1_max",
            Node::File(b"3000\n".to_vec()),
        ),
    ] {
        put(original.path(), path, &node);
    }
    let root = original.path().to_str().unwrap();
    let output = ctl(&["--root", root]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("# board tree, captured by rooflined "), "{text}");
    for entry in [
        "\n== /etc/machine-id == 0123456789abcdef0123456789abcdef\n",
        "\n== /etc/nvpmodel.conf link == /etc/nvpmodel/nvpmodel_x.conf\n",
        "\n== /var/lib/nvpmodel/status raw == pmode:0002\\x20fmode:quiet\n",
        "\n== /sys/class/thermal/thermal_zone10/temp fifo ==\n",
        "\n== /sys/devices/platform/c250000.i2c/i2c-7/7-0040/hwmon/hwmon4/curr1_max == 3000\n",
    ] {
        assert!(text.contains(entry), "no {entry:?} in\n{text}");
    }
    let body = |text: &str| text.split_inclusive('\n').skip(1).collect::<String>();
    let replayed = unpack(&tree::parse(&text));
    assert_eq!(seen(original.path()), seen(replayed.path()));
    assert_eq!(body(&captured(replayed.path())), body(&text));

    let file = original.path().join("bundle.txt");
    let output = ctl(&["--root", root, "--file", file.to_str().unwrap(), "-o", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["files"].as_u64().unwrap() > 20, "{answer}");
    assert_eq!(body(&fs::read_to_string(file).unwrap()), body(&text));
}

#[test]
fn a_place_that_is_none_ends_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    for args in [&["--root", "/nonexistent"][..], &["--root", root, "--file", "/nonexistent/x"]] {
        let output = ctl(args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.starts_with("error: ") && errors.contains("hint: "), "{errors}");
    }
    // A board without anything is a text without entries.
    let output = ctl(&["--root", root]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(tree::parse(&String::from_utf8(output.stdout).unwrap()), []);
}

fn ctl(args: &[&str]) -> Output {
    Command::new(crate::programs::rooflinectl())
        .arg("bundle")
        .args(args)
        .env("ROOFLINED_SOCKET", "/nonexistent")
        .output()
        .unwrap()
}
