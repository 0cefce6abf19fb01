//! Files that describe machines and engines: hardware, engines' costs on GPUs and CPUs, power.
#![no_main]

use std::hint::black_box;
use std::sync::LazyLock;

use answer::Catalogue;
use libfuzzer_sys::fuzz_target;
use predict::costs::EngineTable;
use predict::cpu;
use predict::power::PowerTable;
use roofline::ceilings::Roofline;
use roofline::hardware::{Hardware, Registry, registry};
use rooflined_fuzz::{ask_all, support};

static ROOFLINE: LazyLock<Roofline> = LazyLock::new(support::roofline);

fuzz_target!(|text: &str| {
    if let Ok(table) = EngineTable::parse(text) {
        black_box((table.on(None), table.on(Some("jetson-orin-nano-8gb-super"))));
    }
    let _ = black_box(cpu::File::read(text).and_then(|file| file.costs()));
    if let Ok(table) = PowerTable::parse(text) {
        black_box(table.at(&ROOFLINE));
    }
    match Hardware::parse(text) {
        Ok(hardware) => {
            black_box(hardware.implausible(registry()));
            let key = hardware.key.clone();
            let catalogue =
                Catalogue::new(Registry::with(vec![hardware]), answer::Opener::Daemon(Vec::new()));
            answer::hardware::show(catalogue.hardware(), &key).expect("an entry is shown by its key");
            if let Ok(Some(snapshot)) = catalogue.snapshot_of(None, &key) {
                ask_all(&snapshot);
            }
        }
        Err(error) => assert!(!error.problems.is_empty()),
    }
});
