//! Files that describe machines and engines: hardware, engines' costs on GPUs and CPUs, power.
use std::hint::black_box;
use std::sync::LazyLock;

use crate::{ask_all, support};
use rooflined_advice::Catalogue;
use rooflined_core::ceilings::Roofline;
use rooflined_core::hardware::{Hardware, Registry, registry};
use rooflined_predict::costs::{Build, EngineTable};
use rooflined_predict::cpu;
use rooflined_predict::power::{PowerFile, PowerSource};

static ROOFLINE: LazyLock<Roofline> = LazyLock::new(support::roofline);

pub fn run(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    if let Ok(table) = EngineTable::parse(text) {
        for build in [Build::Early, Build::Current, Build::Newer] {
            black_box((table.on(None, build), table.on(Some("jetson-orin-nano-8gb-super"), build)));
        }
    }
    let _ = black_box(cpu::File::read(text).and_then(|file| file.costs()));
    if let Ok(file) = PowerFile::parse(text) {
        black_box(file.at(&ROOFLINE, PowerSource::Prior));
    }
    match Hardware::parse(text) {
        Ok(hardware) => {
            black_box(hardware.implausible(registry()));
            let key = hardware.key.clone();
            let catalogue =
                Catalogue::new(Registry::with(vec![hardware]), rooflined_advice::Opener::Daemon(Vec::new()));
            rooflined_advice::hardware::show(catalogue.hardware(), &key)
                .expect("an entry is shown by its key");
            if let Ok(Some(snapshot)) = catalogue.snapshot_of(None, &key) {
                ask_all(&snapshot);
            }
        }
        Err(error) => assert!(!error.problems.is_empty()),
    }
}
