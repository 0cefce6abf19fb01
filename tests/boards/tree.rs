//! A board's files as one text file, unpacked into a directory.
//!
//! ```text
//! # a comment, before the first file
//! == /sys/path == one line of content
//! == /proc/path ==
//! lines of content, up to the next file
//! == /sys/path raw == bytes with \xNN and \\ and no newline at the end
//! == /sys/path dir ==
//! == /sys/path fifo ==
//! == /sys/path unreadable == content that only root's special rights can read
//! == /sys/path gone ==
//! == /sys/path closed == (an empty directory that lets nobody but root in)
//! == /sys/path link == ../target or /target
//! == /etc/path from == name of a file in tests/nvpmodel
//! == /sys/path failing == os error 11
//! ```
//!
//! A file whose read fails is replayed as an empty one: nothing can be read of either, and both are there.
//!
//! A first line `include NAME` stands for the tree of the board NAME; what follows changes it.
//!
//! `{0-3}` in a path stands for each number in turn, and `{n}` in the content for the same number.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// What lies at a path.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    File(Vec<u8>),
    Unreadable(Vec<u8>),
    Dir,
    Fifo,
    Gone,
    Closed,
    Link(String),
}

/// Reads the text of a tree.
pub fn parse(text: &str) -> Vec<(String, Node)> {
    let mut nodes: Vec<(String, Node)> = Vec::new();
    let (mut batch, mut block) = (0, false);
    for (number, line) in text.lines().enumerate() {
        let Some(rest) = line.strip_prefix("== ") else {
            if block {
                for (_, node) in nodes.iter_mut().rev().take(batch) {
                    let (Node::File(bytes) | Node::Unreadable(bytes)) = node else { panic!("line {number}") };
                    bytes.extend(line.bytes().chain([b'\n']));
                }
            } else {
                assert!(line.is_empty() || line.starts_with('#'), "line {}: {line}", number + 1);
            }
            continue;
        };
        let (head, content) = rest.split_once(" ==").unwrap_or_else(|| panic!("line {}", number + 1));
        let (path, kind) = head.split_once(' ').unwrap_or((head, "file"));
        let content = content.strip_prefix(' ').unwrap_or(content);
        block = content.is_empty() && matches!(kind, "file" | "unreadable");
        let paths = expand(path);
        batch = paths.len();
        for (path, n) in paths {
            let content = content.replace("{n}", &n);
            let line = || if block { Vec::new() } else { format!("{content}\n").into_bytes() };
            let node = match kind {
                "file" => Node::File(line()),
                "raw" => Node::File(unescape(&content)),
                "unreadable" => Node::Unreadable(line()),
                "dir" => Node::Dir,
                "fifo" => Node::Fifo,
                "gone" => Node::Gone,
                "closed" => Node::Closed,
                "link" => Node::Link(content),
                "from" => Node::File(corpus(&content)),
                "failing" => Node::File(Vec::new()),
                other => panic!("line {}: {other}", number + 1),
            };
            nodes.push((path, node));
        }
    }
    nodes
}

/// A file of the corpus of power modes.
fn corpus(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvpmodel").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn expand(path: &str) -> Vec<(String, String)> {
    let range = path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    let Some((before, (range, after))) = range else { return vec![(path.into(), String::new())] };
    let (first, last) = range.split_once('-').unwrap();
    let numbers = first.parse::<u32>().unwrap()..=last.parse().unwrap();
    numbers.map(|n| (format!("{before}{n}{after}"), n.to_string())).collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = match (first, tail) {
            (b'\\', [b'\\', tail @ ..]) => {
                bytes.push(b'\\');
                tail
            }
            (b'\\', [b'x', a, b, tail @ ..]) => {
                let digits = [*a, *b];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
                tail
            }
            (byte, tail) => {
                bytes.push(byte);
                tail
            }
        };
    }
    bytes
}

/// The tree of a board in tests/boards, with what it includes.
pub fn nodes(board: &str, file: &str) -> Vec<(String, Node)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards").join(board).join(file);
    let text = fs::read_to_string(path).unwrap_or_default();
    // Comments may stand before the line that names the tree this one changes.
    let include = text.lines().find(|line| !line.starts_with('#'));
    let Some((include, base)) = include.and_then(|line| Some((line, line.strip_prefix("include ")?))) else {
        return parse(&text);
    };
    let mut tree = nodes(base, file);
    tree.extend(parse(&text.replacen(include, "", 1)));
    tree
}

/// The place of a board's path in an unpacked tree.
pub fn place(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Puts one node in its place, whatever was there before.
pub fn put(root: &Path, path: &str, node: &Node) {
    let place = place(root, path);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    if place.is_dir() && !place.is_symlink() && *node != Node::Dir {
        fs::remove_dir_all(&place).unwrap();
    } else if !matches!(node, Node::File(_)) || !place.is_file() {
        // A plain file is rewritten in place, as the kernel does: descriptors stay good.
        let _ = fs::remove_file(&place);
    }
    match node {
        Node::File(bytes) => fs::write(&place, bytes).unwrap(),
        Node::Unreadable(bytes) => {
            fs::write(&place, bytes).unwrap();
            fs::set_permissions(&place, fs::Permissions::from_mode(0o000)).unwrap();
        }
        Node::Dir => fs::create_dir_all(&place).unwrap(),
        Node::Fifo => mkfifoat(CWD, &place, Mode::from(0o600)).unwrap(),
        Node::Link(target) => symlink(target, &place).unwrap(),
        Node::Gone => {}
        Node::Closed => {
            fs::create_dir_all(&place).unwrap();
            // To be read it stays open, so that it can be removed.
            fs::set_permissions(&place, fs::Permissions::from_mode(0o400)).unwrap();
        }
    }
}

/// Unpacks a tree into a new directory.
pub fn unpack(nodes: &[(String, Node)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, node) in nodes {
        put(dir.path(), path, node);
    }
    dir
}

/// Gives up, for this thread and those it starts, root's right to read what the permissions forbid.
pub fn obey_permissions() {
    let mut sets = capabilities(None).unwrap();
    sets.effective &= !(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    set_capabilities(None, sets).unwrap();
}
