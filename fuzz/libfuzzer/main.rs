//! The target that ROOFLINED_FUZZ_TARGET names, run by libFuzzer.
#![no_main]

use std::sync::LazyLock;

use rooflined_fuzz::{Run, TARGETS};

static RUN: LazyLock<Run> = LazyLock::new(|| {
    let name = std::env::var("ROOFLINED_FUZZ_TARGET").expect("ROOFLINED_FUZZ_TARGET names a target");
    TARGETS.iter().find(|(target, _)| *target == name).expect("a target of this name").1
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| RUN(input));
