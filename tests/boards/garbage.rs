//! Boards whose files hold anything: nothing panics, and what is called known can be.

use proptest::prelude::{ProptestConfig, any, prop, prop_assert, proptest};
use rooflined_core::board::BoardState;
use rooflined_core::units::{Hertz, Seconds};
use rooflined_hw::{Sampler, SysRoot};

use crate::captured::BOARDS;
use crate::tree::{self, Node, nodes, put, unpack};

/// What a file may turn into: numbers of other units, codes of sensors that are off, no number, no file, a loop.
fn garbage(kind: usize) -> Node {
    const TEXTS: [&str; 16] = [
        "",
        "\n",
        "0",
        "-1",
        "85",
        "-256000",
        "-273150",
        "918000",
        "918000000000000",
        "1e9",
        "NaN",
        "0x",
        "pmode:zz",
        "18446744073709551615",
        "-9223372036854775808",
        "0-4294967295",
    ];
    match kind {
        0..16 => Node::File(TEXTS[kind].into()),
        16 => Node::File(vec![0xff, 0xfe, 0, b'1']),
        17 => Node::File(b"9 ".repeat(1 << 20)),
        18 => Node::Dir,
        19 => Node::Link(".".into()),
        20 => Node::Link("/".into()),
        21 => Node::Unreadable(b"1".to_vec()),
        _ => Node::Gone,
    }
}

fn possible(state: &BoardState) -> Result<(), String> {
    let clock = |name: &str, clock: Option<&Hertz>| match clock {
        Some(clock) if !(1e7..=2e10).contains(&clock.0) => Err(format!("{name} is {clock}")),
        _ => Ok(()),
    };
    for cpu in state.cpu_clocks.known().into_iter().flatten() {
        clock("a CPU's clock", Some(cpu))?;
    }
    clock("the CPU's cap", state.cpu_clock_cap.known())?;
    clock("the GPU's clock", state.gpu_clock.known())?;
    clock("the GPU's cap", state.gpu_clock_cap.known())?;
    clock("the memory's clock", state.memory_clock.known())?;
    clock("the memory's cap", state.memory_clock_cap.known())?;
    for zone in state.temperatures.known().into_iter().flatten() {
        let celsius = zone.temperature.known().map_or(20.0, |celsius| celsius.0);
        if !(-60.0..=250.0).contains(&celsius) {
            return Err(format!("{} is {celsius}", zone.name));
        }
    }
    let watts = state.total_power.known().map_or(0.0, |total| total.power.0);
    let load = state.gpu_load.known().copied().unwrap_or(0.0);
    let memory = state.memory.known().is_none_or(|memory| memory.available.get() <= memory.total.get());
    let sane = (-1.0..=60_000.0).contains(&watts) && (0.0..=1.0).contains(&load) && memory;
    if sane { Ok(()) } else { Err(format!("{watts} W, load {load}, {:?}", state.memory)) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn a_board_whose_files_hold_anything_has_no_impossible_value(
        board in prop::sample::select(BOARDS.as_slice()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..24), 1..40),
    ) {
        tree::obey_permissions();
        let all = nodes(board, "tree.txt");
        let dir = unpack(&all);
        for (index, kind) in changes.iter().filter(|_| !all.is_empty()) {
            let (path, _) = &all[index.index(all.len())];
            // A change before this one may have put a file where its directory was.
            let parent = tree::place(dir.path(), path);
            let inside = parent.parent().and_then(|parent| parent.canonicalize().ok());
            if inside.is_some_and(|parent| parent.is_dir() && parent.starts_with(dir.path())) {
                put(dir.path(), path, &Node::Gone);
                put(dir.path(), path, &garbage(*kind));
            }
        }
        let root = SysRoot::new(dir.path());
        let (_, discovered) = rooflined_hw::discover(&root);
        let mut sampler = Sampler::new(&root, discovered);
        for now in [1.0, 2.0] {
            let state = sampler.sample(Seconds(now));
            let found = possible(&state);
            prop_assert!(found.is_ok(), "{}: {:?} after {:?}", board, found, changes);
        }
    }
}
