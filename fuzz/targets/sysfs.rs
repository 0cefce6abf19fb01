//! What files of sensors and the kernel hold: parsed alone, and in place of files of a captured board.
//!
//! The input is the number of a board, then changes: the number of a file (two bytes), a length (one byte), the bytes.
use std::fs;
use std::hint::black_box;
use std::sync::LazyLock;

use crate::{Node, ask_all, board_tree, machine, place, published, unpacked};
use rooflined_core::board::{identity, parse};

const BOARDS: [&str; 5] =
    ["orin-nano-8gb-super", "agx-thor-t5000", "gb10", "agx-orin-64gb-jp5", "laptop-x86"];
/// A board has few files that change at once.
const MOST_CHANGES: usize = 8;

struct Board {
    dir: tempfile::TempDir,
    files: Vec<(String, Vec<u8>)>,
}

static UNPACKED: LazyLock<[Board; 5]> = LazyLock::new(|| {
    BOARDS.map(|name| {
        let nodes = board_tree(name);
        let dir = unpacked(&nodes);
        let files = nodes.into_iter().filter_map(|(path, node)| match node {
            Node::File(bytes) => Some((path, bytes)),
            Node::Dir | Node::Link(_) => None,
        });
        Board { files: files.collect(), dir }
    })
});

fn parse_alone(text: &str) {
    let strings = parse::device_tree_strings(text);
    black_box((parse::unsigned(text), parse::signed(text), parse::label(text), parse::dmi_string(text)));
    black_box((identity::part_numbers(&strings), identity::module(&strings), identity::boot_module(text)));
    black_box((identity::l4t_release(text), identity::gpu_key(text), parse::os_release(text, "NAME")));
    black_box((parse::meminfo(text), parse::stat_cpus(text), parse::load_average(text)));
    black_box(parse::cpu_times(text).map(|times| times.ratios_since(&times)));
    black_box((parse::pressure(text, Some(text)), parse::cache_size(text), parse::kilohertz(text)));
    black_box((parse::millidegrees(text), parse::microwatts(text)));
}

pub fn run(input: &[u8]) {
    parse_alone(&String::from_utf8_lossy(input));
    let Some((&board, mut rest)) = input.split_first() else { return };
    let Board { dir, files } = &UNPACKED[usize::from(board) % BOARDS.len()];
    let mut changed = Vec::new();
    while let [low, high, length, tail @ ..] = rest {
        if changed.len() == MOST_CHANGES {
            break;
        }
        let (bytes, after) = tail.split_at(usize::from(*length).min(tail.len()));
        let (path, original) = &files[usize::from(u16::from_le_bytes([*low, *high])) % files.len()];
        let path = place(dir.path(), path);
        fs::write(&path, bytes).expect("a file of the tree");
        changed.push((path, original));
        rest = after;
    }
    let (board, states) = machine(dir.path());
    ask_all(&published(board, states));
    for (path, original) in changed {
        fs::write(path, original).expect("a file of the tree");
    }
}
