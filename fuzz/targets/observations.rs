//! What was learnt, as it is stored: set aside, or something that answers can rest on.
//!
//! The input is the three files, each ended by a zero byte: of operations, of models, of what users report for themselves.
use std::fs;
use std::hint::black_box;
use std::sync::{Arc, LazyLock};

use crate::{NOW, ask_all, support};
use rooflined::store::Store;
use rooflined_governor::Governor;

static DIR: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary directory"));

pub fn run(input: &[u8]) {
    let dir = DIR.path();
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        fs::remove_file(entry.path()).expect("a file");
    }
    let mut files = input.splitn(3, |byte| *byte == 0);
    for name in ["residuals.json", "models.json", "reports.json"] {
        fs::write(dir.join(name), files.next().unwrap_or_default()).expect("a file");
    }
    let store = Store::existing(dir);
    let residuals = store.load_residuals().expect("a readable file").value;
    let observed_runs = store.load_observed_runs().expect("a readable file").value;
    let reports = store.load_reports().expect("a readable file").value;
    if residuals.is_none() && observed_runs.is_none() && reports.is_none() {
        return;
    }
    let mut snapshot = support::snapshot();
    let policy = support::governed::policy();
    // As the daemon starts with them.
    let governor = Governor::new(
        NOW,
        snapshot.board.clone(),
        snapshot.state.clone(),
        snapshot.calibration.clone(),
        residuals.clone().unwrap_or_default(),
        &policy,
    )
    .with_learnt(NOW, observed_runs.clone().unwrap_or_default(), reports.clone().unwrap_or_default());
    black_box(governor);
    // As if they were of this machine.
    snapshot.residuals = Arc::new(residuals.clone().unwrap_or_default());
    snapshot.observed_runs = Arc::new(observed_runs.clone().unwrap_or_default());
    snapshot.reports = Arc::new(reports.clone().unwrap_or_default());
    ask_all(&snapshot);
    ask_all(&Arc::new(snapshot).seen_by(1000));
    for saved in [
        residuals.map(|residuals| store.save_residuals(&residuals)),
        observed_runs.map(|runs| store.save_observed_runs(&runs)),
        reports.map(|reports| store.save_reports(&reports)),
    ] {
        saved.transpose().expect("what was read can be stored");
    }
}
