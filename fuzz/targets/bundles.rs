//! A whole tree of files: what is captured of it says no more than the tree, and is the same when it is replayed.
use std::collections::BTreeMap;

use crate::{machine, tree, unpacked};
use rooflined_hw::{SysRoot, bundle};

fn captured(root: &std::path::Path) -> String {
    let bundle = bundle::capture(&SysRoot::new(root), &BTreeMap::new(), "");
    let text = bundle.text;
    // The comments count what was left out.
    text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect()
}

pub fn run(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let original = unpacked(&tree(text));
    machine(original.path());
    let first = captured(original.path());
    let replayed = unpacked(&tree(&first));
    machine(replayed.path());
    let second = captured(replayed.path());
    let third = captured(unpacked(&tree(&second)).path());
    assert_eq!(third, second, "a capture of a replayed capture is the capture");
}
