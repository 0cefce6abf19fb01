//! A stored calibration: set aside, or a record that answers can rest on.
//!
//! The input is the record, a zero byte, and lines of samples, which the fit gets too.
use std::fs;
use std::sync::LazyLock;

use crate::{NOW, ask_all, support};
use rooflined::store::Store;
use rooflined_core::units::Seconds;
use rooflined_predict::calibration::{FitContext, PlanKind, Sample, fit};

static DIR: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary directory"));

pub fn run(input: &[u8]) {
    let (record, samples) = input.split_at(input.iter().position(|byte| *byte == 0).unwrap_or(input.len()));
    let dir = DIR.path();
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        fs::remove_file(entry.path()).expect("a file");
    }
    fs::write(dir.join("calibration.json"), record).expect("a file");
    let store = Store::existing(dir);
    let lines = samples.split(|byte| matches!(byte, 0 | b'\n')).filter(|line| !line.is_empty());
    let samples: Vec<Sample> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let mut snapshot = support::snapshot();
    let key = snapshot.calibration.as_ref().map(|record| record.key.clone()).expect("a calibrated machine");
    if let Some(record) = store.load_calibration().expect("a readable file").value {
        store.save_calibration(&record).expect("what was read can be stored");
        if let Some(regime) = record.current() {
            (snapshot.roofline, snapshot.profile) = (regime.roofline.clone(), regime.profile.clone());
        }
        snapshot.calibration = Some(record);
        ask_all(&snapshot);
    }
    let fitted = fit(
        &samples,
        &FitContext {
            key,
            unix_s: NOW.unix_s,
            wall: Seconds(1.0),
            plan: PlanKind::Full,
            simulated: false,
            clock_cap: None,
            dram_bytes: 64 << 20,
            skipped: Vec::new(),
            gpu: None,
            power: None,
            other_work: None,
            fewer_workers: false,
        },
    );
    if let Ok(record) = fitted {
        let _ = store.save_calibration(&record);
    }
}
