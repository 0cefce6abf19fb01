//! A file of power modes: every mode is found again by its key, and what is derived of one is.
use std::hint::black_box;

use rooflined_core::board::nvpmodel::{
    self, expected_writes, gating_settings, parse_status, persists_dangerously,
};

pub fn run(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    black_box(parse_status(text));
    let modes = nvpmodel::parse(text);
    for mode in &modes.modes {
        assert!(modes.get(&mode.key()).is_some(), "{:?}", mode.key());
        black_box(expected_writes(mode, |path| path.len() % 2 == 0));
        black_box(persists_dangerously(mode, Some("36.4.3"), mode.memory_max));
        black_box(gating_settings(mode).count());
        black_box(mode.clock_bounds());
    }
}
