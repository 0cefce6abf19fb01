//! The fuzz targets as functions, and what several of them need: boards as trees of files, and the questions that every client
//! may ask of a machine. `fuzz/run` has libFuzzer call them; `cargo test` tries their seeds and the kept corpus.

pub mod seeds;
#[path = "../tests/support/mod.rs"]
pub mod support;
pub mod targets {
    pub mod bundles;
    pub mod calibration;
    pub mod config_json;
    pub mod configuration;
    pub mod gguf;
    pub mod http;
    pub mod journal;
    pub mod nvpmodel;
    pub mod observations;
    pub mod onnx;
    pub mod orders;
    pub mod profiles;
    pub mod requests;
    pub mod safetensors;
    pub mod sysfs;
}
#[path = "../tests/laws/models/write.rs"]
#[allow(dead_code, reason = "the tests of readers use more of it")]
mod write;
#[path = "../crates/rooflined-models/src/network/tests/write.rs"]
#[allow(dead_code, reason = "the tests of the reader use more of it")]
mod write_onnx;

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rooflined_advice::{Answer, Catalogue, Request};
use rooflined_core::board::{Board, BoardState};
use rooflined_core::units::Seconds;
use rooflined_governor::{Event, Governor};
use rooflined_predict::learning::Residuals;
use rooflined_predict::snapshot::{Now, Snapshot};
use serde_json::{Value, json};

/// Takes any bytes; panics at a fault.
pub type Run = fn(&[u8]);

macro_rules! targets {
    ($($name:ident)*) => { [$((stringify!($name), targets::$name::run as Run)),*] };
}

/// Every target by its name.
pub const TARGETS: [(&str, Run); 15] = targets!(
    bundles calibration config_json configuration gguf http journal nvpmodel observations
    onnx orders profiles requests safetensors sysfs
);
/// When everything happens.
pub const NOW: Now = Now { boottime: Seconds(1000.0), unix_s: 1.8e9 };
/// More predictions than this take longer than a fuzzer should wait for one input.
const MOST_EFFORT: u64 = 2000;
/// What has not come by then waits for more from the client, or for the daemon.
const PATIENCE: Duration = Duration::from_millis(5);
/// Much longer than any answer takes, and shorter than libFuzzer waits.
pub const HANGS: Duration = Duration::from_secs(6);
/// Files of one tree; the captured boards have up to 200.
const MOST_FILES: usize = 400;

/// What lies at a path of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    File(Vec<u8>),
    Dir,
    Link(String),
}

/// Reads the text of a tree as tests/boards has it, and leaves out what it cannot make sense of.
pub fn tree(text: &str) -> BTreeMap<String, Node> {
    let mut nodes = BTreeMap::new();
    let mut open: Vec<String> = Vec::new();
    for line in text.lines() {
        let Some(entry) = line.strip_prefix("== ").and_then(|rest| rest.split_once(" ==")) else {
            for path in &open {
                if let Some(Node::File(bytes)) = nodes.get_mut(path) {
                    bytes.extend(line.bytes().chain([b'\n']));
                }
            }
            continue;
        };
        let (head, content) = (entry.0, entry.1.strip_prefix(' ').unwrap_or(entry.1));
        let (path, kind) = head.split_once(' ').unwrap_or((head, "file"));
        let is_block = content.is_empty() && matches!(kind, "file" | "unreadable");
        open.clear();
        for (path, number) in expanded(path) {
            if nodes.len() >= MOST_FILES || !is_inside(&path) {
                continue;
            }
            let content = content.replace("{n}", &number);
            let node = match kind {
                "file" | "unreadable" if is_block => Node::File(Vec::new()),
                "file" | "unreadable" => Node::File(format!("{content}\n").into_bytes()),
                "raw" => Node::File(unescaped(&content)),
                "from" => Node::File(modes_file(&content)),
                "failing" => Node::File(Vec::new()),
                "dir" => Node::Dir,
                // What an absolute one leads to lies in the tree only for those who follow links themselves.
                "link" if !content.starts_with('/') && is_inside(&content) => Node::Link(content),
                _ => continue,
            };
            if is_block {
                open.push(path.clone());
            }
            nodes.insert(path, node);
        }
    }
    nodes
}

/// A board of tests/boards that includes no other.
pub fn board_tree(name: &str) -> BTreeMap<String, Node> {
    tree(&fs::read_to_string(repository(&format!("tests/boards/{name}/tree.txt"))).expect("a captured board"))
}

/// A file of the repository that the targets were built from.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A path that stays below the directory that it is put in.
fn is_inside(path: &str) -> bool {
    let parts = || Path::new(path.trim_start_matches('/')).components();
    path.len() < 200
        && parts().next().is_some()
        && parts().all(|part| matches!(part, Component::Normal(_)))
        && !path.contains('\0')
}

/// `{0-3}` in a path stands for each number in turn.
fn expanded(path: &str) -> Vec<(String, String)> {
    let range = path.split_once('{').and_then(|(before, rest)| {
        let (range, after) = rest.split_once('}')?;
        let (first, last) = range.split_once('-')?;
        let (first, last) = (first.parse::<u8>().ok()?, last.parse::<u8>().ok()?);
        Some((before, first..=last, after))
    });
    match range {
        None => vec![(path.to_owned(), String::new())],
        Some((before, numbers, after)) => {
            numbers.map(|n| (format!("{before}{n}{after}"), n.to_string())).collect()
        }
    }
}

fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    let digit = |byte: u8| char::from(byte).to_digit(16);
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, after) = match (first, tail) {
            (b'\\', [b'\\', after @ ..]) => (b'\\', after),
            (b'\\', [b'x', a, b, after @ ..]) => match (digit(*a), digit(*b)) {
                (Some(a), Some(b)) => ((a * 16 + b) as u8, after),
                _ => (first, tail),
            },
            _ => (first, tail),
        };
        bytes.push(byte);
        rest = after;
    }
    bytes
}

/// A file of the corpus of power modes.
fn modes_file(name: &str) -> Vec<u8> {
    if !is_inside(name) || name.contains('/') {
        return Vec::new();
    }
    fs::read(repository("tests/nvpmodel").join(name)).unwrap_or_default()
}

/// Where a path of a tree lies below `root`.
pub fn place(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Puts the nodes below `root`. What stands in the way of another is left out.
pub fn unpack(nodes: &BTreeMap<String, Node>, root: &Path) {
    for (path, node) in nodes {
        let place = place(root, path);
        if fs::create_dir_all(place.parent().unwrap_or(root)).is_err() {
            continue;
        }
        let _ = match node {
            Node::File(bytes) => fs::write(&place, bytes),
            Node::Dir => fs::create_dir_all(&place),
            Node::Link(target) => symlink(target, &place),
        };
    }
}

/// Nodes below a directory of their own.
pub fn unpacked(nodes: &BTreeMap<String, Node>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    unpack(nodes, dir.path());
    dir
}

/// What the program makes of a tree: twice read, for counters are told as differences.
pub fn machine(root: &Path) -> (Board, [BoardState; 2]) {
    let root = rooflined_hw::SysRoot::new(root);
    let (board, discovered) = rooflined_hw::discover(&root);
    let mut sampler = rooflined_hw::Sampler::new(&root, discovered);
    let states =
        [NOW.boottime, NOW.boottime + Seconds(1.0)].map(|now| rooflined_hw::read_state(&mut sampler, now));
    (board, states)
}

/// What the governor publishes of a machine that it sees for the first time.
pub fn published(board: Board, states: [BoardState; 2]) -> Arc<Snapshot> {
    let [first, second] = states;
    let policy = support::governed::policy();
    let mut governor = Governor::new(NOW, board, first, None, Residuals::default(), &policy);
    governor.handle(NOW, Event::Sampled(Box::new(second)));
    governor.snapshot()
}

/// Asks everything that clients ask without a body, and a few predictions.
pub fn ask_all(snapshot: &Snapshot) {
    let catalogue = Catalogue::default();
    let roofline = Request::Roofline { mode: None, precision: None, hardware: None };
    for request in
        [Request::Board, Request::State, roofline, Request::Modes, Request::Formats, Request::Calibration]
    {
        ask(snapshot, &catalogue, &request);
    }
    for engine in ["none", "llama.cpp"] {
        let op = json!({"workload": {"op": {"kind": "gemv", "n": 4096, "k": 4096}, "format": "int8"}});
        let model = json!({
            "engine": engine,
            "workload": {"model": "tinyllama-1.1b", "format": "q4_0", "phase": "serve", "context_tokens": 512,
                "prompt_tokens": 64, "output_tokens": 16},
        });
        let mut chosen = model.clone();
        chosen["freedom"] =
            json!({"power_modes": "all", "formats": ["q4_0", "q8_0"], "batch": {"min": 1, "max": 2}});
        for body in [op, model] {
            ask(snapshot, &catalogue, &Request::Predict(from(body)));
        }
        ask(snapshot, &catalogue, &Request::Recommend(Box::new(from(chosen))));
    }
}

fn from<T: serde::de::DeserializeOwned>(body: Value) -> T {
    serde_json::from_value(body).expect("a request of this version")
}

/// Answers a request as the daemon would, where that does not take long. An answer has a JSON form; a refusal says what
/// is wrong and what to do.
pub fn ask(snapshot: &Snapshot, catalogue: &Catalogue, request: &Request) -> Option<Answer> {
    if request.effort() > MOST_EFFORT {
        return None;
    }
    match rooflined_advice::answer(snapshot, catalogue, NOW, request) {
        Ok(answer) => {
            serde_json::to_vec(&answer).expect("an answer has a JSON form");
            Some(answer)
        }
        Err(refusal) => {
            assert!(!refusal.message.is_empty() && !refusal.hint.is_empty(), "{refusal:?}");
            None
        }
    }
}

/// A connection to a server of the tests.
#[must_use]
pub fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).expect("the server listens");
    stream.set_write_timeout(Some(HANGS)).expect("a socket");
    stream
}

/// All that comes back for what was sent; it ends soon, and is never a fault of the server.
pub fn rest(stream: &mut UnixStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let _ = stream.shutdown(Shutdown::Write);
            stream.set_read_timeout(Some(HANGS)).expect("a socket");
            let rest = stream.read_to_end(&mut answer);
            let hangs = rest.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            assert!(!hangs, "a connection stays open that its client has closed");
        }
        Ok(_) | Err(_) => {}
    }
    // Not every 500 is a fault of the server: there is no probe here that could measure.
    let fault = b"\"code\":\"internal\"";
    assert!(!answer.windows(fault.len()).any(|part| part == fault), "{}", answer.escape_ascii());
    answer
}

/// The daemon of the tests never ends a calibration that is waited for, and a client that has sent more behind it is not seen
/// to go before that.
#[must_use]
pub fn waits_for_ever(bytes: &[u8]) -> bool {
    bytes.windows(6).any(|word| word == b"\"wait\"")
}
