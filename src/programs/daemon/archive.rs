//! What is loaded at the start and saved later, and what is said when that does not work.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::{Loaded, Store, StoreError};
use governor::Event;
use predict::calibration::{CalibrationRecord, Sample};
use predict::learning::Residuals;
use predict::learning::models::ObservedRuns;
use predict::learning::reports::Reports;

/// Name of the degradation.
const NAME: &str = "state_dir";

#[derive(Debug)]
pub enum Item {
    /// A record with its samples.
    Calibration(Box<CalibrationRecord>, Vec<Sample>),
    Residuals(Arc<Residuals>),
    /// What was learnt of models.
    ObservedRuns(Arc<ObservedRuns>),
    /// What users reported that moves their own answers only.
    Reports(Arc<Reports>),
}

/// What an earlier run of the daemon left.
#[derive(Debug, Default)]
pub struct Earlier {
    pub record: Option<CalibrationRecord>,
    pub residuals: Residuals,
    /// What was learnt of models.
    pub observed_runs: ObservedRuns,
    /// What users reported that moves their own answers only.
    pub reports: Reports,
    /// What went wrong; the daemon starts all the same.
    pub problems: Vec<String>,
    pub writable: bool,
}

/// Loads what is in `dir`.
#[must_use]
pub fn load(dir: &Path) -> Earlier {
    let mut earlier = Earlier::default();
    let store = match Store::open(dir) {
        Ok(store) => {
            earlier.writable = true;
            store
        }
        Err(error) => {
            earlier.problems.push(error.to_string());
            if std::fs::read_dir(dir).is_err() {
                return earlier;
            }
            // A full or read-only disk: nothing can be kept, but what is there holds.
            Store::existing(dir)
        }
    };
    earlier.record = value(store.load_calibration(), &mut earlier.problems);
    earlier.residuals = value(store.load_residuals(), &mut earlier.problems).unwrap_or_default();
    earlier.observed_runs = value(store.load_observed_runs(), &mut earlier.problems).unwrap_or_default();
    earlier.reports = value(store.load_reports(), &mut earlier.problems).unwrap_or_default();
    earlier
}

fn value<T>(loaded: Result<Loaded<T>, StoreError>, problems: &mut Vec<String>) -> Option<T> {
    match loaded {
        Ok(loaded) => {
            problems.extend(loaded.damaged.map(|damaged| damaged.to_string()));
            loaded.value
        }
        Err(error) => {
            problems.push(error.to_string());
            None
        }
    }
}

/// Saves `item` in `dir`, which may have become writable since the start. Blocks until it is on the disk.
fn save(dir: &Path, item: &Item) -> Result<(), StoreError> {
    let store = Store::open(dir)?;
    match item {
        Item::Calibration(record, samples) => store.save_calibration(record, samples),
        Item::Residuals(residuals) => store.save_residuals(residuals),
        Item::ObservedRuns(observed_runs) => store.save_observed_runs(observed_runs),
        Item::Reports(reports) => store.save_reports(reports),
    }
}

/// Saves `item` while the loop's other tasks go on; returns what to report to the governor.
pub async fn keep(dir: PathBuf, item: Item) -> Event {
    let saved =
        tokio::task::spawn_blocking(move || save(&dir, &item).map_err(|error| error.to_string())).await;
    let problem = match saved {
        Ok(Ok(())) => None,
        Ok(Err(problem)) => Some(problem),
        Err(error) => Some(format!("nothing was saved: {error}; report this as a bug")),
    };
    degraded(problem)
}

/// The state of the directory as reported to the governor.
#[must_use]
pub const fn degraded(problem: Option<String>) -> Event {
    Event::Degraded { name: NAME, problem }
}
