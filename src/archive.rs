//! What is loaded at the start and saved later, and what is said when that does not work.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::store::{Loaded, Lock, Store, StoreError};
use rooflined_governor::{Event, SlowServers, StoreItem, StoredHolds};
use rooflined_predict::calibration::CalibrationRecord;
use rooflined_predict::learning::Residuals;
use rooflined_predict::learning::models::ObservedRuns;
use rooflined_predict::learning::reports::Reports;

/// Name of the degradation.
pub const NAME: &str = "state_dir";
/// A daemon before this one may still be ending.
const HANDOVER: Duration = Duration::from_secs(3);

/// What an earlier run of the daemon left.
#[derive(Debug, Default)]
pub struct Earlier {
    pub record: Option<CalibrationRecord>,
    pub residuals: Residuals,
    /// What was learnt of models.
    pub observed_runs: ObservedRuns,
    /// What users reported that moves their own answers only.
    pub reports: Reports,
    /// Holds of this boot.
    pub holds: StoredHolds,
    /// Servers that were noticed as slow in this boot.
    pub servers: SlowServers,
    /// What went wrong; the daemon starts all the same.
    pub problems: Vec<String>,
}

/// The state directory, locked where that is possible, and what could not be saved in it.
#[derive(Debug, Clone)]
pub struct Archive {
    dir: Arc<Path>,
    lock: Arc<Mutex<Option<Lock>>>,
    /// What is not on the disk although it should be, by [`StoreItem::kind`].
    failed: BTreeMap<&'static str, String>,
}

/// What became of an item.
#[derive(Debug)]
pub struct Kept {
    /// It could not be saved.
    pub again: Option<StoreItem>,
    /// The directory had been removed and was made again: nothing else is in it.
    pub remade: bool,
    /// What to report to the governor.
    pub event: Event,
}

impl Archive {
    /// Locks `dir` and loads what is in it.
    ///
    /// # Errors
    /// Another daemon keeps things there. Whatever else is wrong stands among the problems of [`Earlier`].
    pub fn open(dir: &Path) -> Result<(Self, Earlier), StoreError> {
        let lock = match Lock::take(dir, HANDOVER) {
            Ok(lock) => Some(lock),
            Err(error @ StoreError::InUse { .. }) => return Err(error),
            // Loading says what is wrong with it.
            Err(_) => None,
        };
        let archive = Self { dir: dir.into(), lock: Arc::new(Mutex::new(lock)), failed: BTreeMap::new() };
        Ok((archive, load(dir)))
    }

    /// Saves `item`, while the loop's other tasks go on.
    pub async fn keep(&mut self, item: StoreItem) -> Kept {
        let kind = item.kind();
        let (dir, lock) = (Arc::clone(&self.dir), Arc::clone(&self.lock));
        let saving = tokio::task::spawn_blocking(move || {
            let mut lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let saved = save(&dir, &mut lock, &item);
            (item, saved)
        });
        let (again, remade, problem) = match saving.await {
            Ok((_, Ok(remade))) => (None, remade, None),
            Ok((item, Err(error))) => (Some(item), false, Some(error.to_string())),
            Err(error) => (None, false, Some(format!("nothing was saved: {error}; report this as a bug"))),
        };
        match problem {
            Some(problem) => self.failed.insert(kind, problem),
            None => self.failed.remove(kind),
        };
        Kept { again, remade, event: degraded(self.failed.values().next().cloned()) }
    }
}

/// Loads what is in `dir`.
#[must_use]
fn load(dir: &Path) -> Earlier {
    let mut earlier = Earlier::default();
    let store = match Store::open(dir) {
        Ok(store) => store,
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
    earlier.holds = value(store.load_holds(), &mut earlier.problems).unwrap_or_default();
    earlier.servers = value(store.load_servers(), &mut earlier.problems).unwrap_or_default();
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

/// Saves `item` in `dir`, which may have become writable since the start, or have been removed. Blocks until it is on
/// the disk. True if the directory was made again.
fn save(dir: &Path, lock: &mut Option<Lock>, item: &StoreItem) -> Result<bool, StoreError> {
    let remade = match lock {
        Some(lock) if lock.is_in_place() => None,
        _ => Some(Lock::take(dir, Duration::ZERO)?),
    };
    let store = Store::open(dir)?;
    match item {
        StoreItem::Calibration(record) => store.save_calibration(record),
        StoreItem::Residuals(residuals) => store.save_residuals(residuals),
        StoreItem::ObservedRuns(observed_runs) => store.save_observed_runs(observed_runs),
        StoreItem::Reports(reports) => store.save_reports(reports),
        StoreItem::Holds(kept) => store.save_holds(kept),
        StoreItem::Servers(slow) => store.save_servers(slow),
    }?;
    // Only now, so that a failure leaves it known that the directory was removed.
    Ok(remade.is_some_and(|remade| lock.replace(remade).is_some()))
}

/// The state of the directory as reported to the governor.
#[must_use]
pub const fn degraded(problem: Option<String>) -> Event {
    Event::Degraded { name: NAME, problem }
}
