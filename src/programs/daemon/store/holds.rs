//! Holds for the next daemon of the same boot.

use std::fs;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::file::{self, Survives};
use super::{Store, StoreError};
use decide::snapshot::HoldConstraints;
use governor::{HoldTerms, KeptHold, KeptHolds, Question};
use roofline::board::ActiveMode;
use roofline::units::Seconds;

const NAME: &str = "holds.json";
const KIND: &str = "holds";
const SCHEMA: u32 = 1;

/// What is on the disk. Times are CLOCK_BOOTTIME, which another boot counts from zero.
#[derive(Serialize, Deserialize)]
struct Stored {
    boot_id: String,
    mode: Option<(ActiveMode, Option<ActiveMode>)>,
    switched_at: Option<Seconds>,
    holds: Vec<StoredHold>,
}

/// A hold as it is stored.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredHold {
    cookie: u64,
    uid: u32,
    constraints: HoldConstraints,
    /// The body of a recommendation.
    query: Option<Value>,
    pub app_id: String,
    reason: String,
    attached: bool,
    expires_at: Option<Seconds>,
    since: Seconds,
    waits_until: Option<Seconds>,
}

impl Store {
    /// Keeps holds until this boot ends; where there are none, the file goes.
    ///
    /// # Errors
    /// As for [`Store::save_calibration`].
    pub fn save_holds(&self, kept: &KeptHolds) -> Result<(), StoreError> {
        if kept.holds.is_empty() {
            file::remove(&self.dir.join(NAME));
            return Ok(());
        }
        let KeptHolds { mode, switched_at, holds } = kept;
        let stored = Stored {
            boot_id: boot_id(),
            mode: mode.clone(),
            switched_at: *switched_at,
            holds: holds.iter().map(stored).collect(),
        };
        let bytes = self.encode(NAME, KIND, SCHEMA, None, &stored)?;
        self.write_to_survive(NAME, &bytes, Survives::Kill)
    }

    /// The holds of an earlier daemon of this boot. `question` reads a query again; a hold whose query cannot be asked any
    /// more is left out, with what it says. Nothing that is wrong with the file is worth more than a word in the log.
    pub fn load_holds(&self, mut question: impl FnMut(&StoredHold, &Value) -> Option<Question>) -> KeptHolds {
        let loaded = self.load::<Stored>(NAME, KIND, SCHEMA..=SCHEMA, |_| Ok(()));
        let Some(Stored { boot_id: of, mode, switched_at, holds }) =
            loaded.ok().and_then(|loaded| loaded.value)
        else {
            return KeptHolds::default();
        };
        if of != boot_id() {
            return KeptHolds::default();
        }
        let holds = holds.into_iter().filter_map(|stored| {
            let asked = match &stored.query {
                None => None,
                Some(query) => Some(question(&stored, query)?),
            };
            Some(restored(stored, asked))
        });
        KeptHolds { mode, switched_at, holds: holds.collect() }
    }
}

fn stored(kept: &KeptHold) -> StoredHold {
    let KeptHold { terms, uid, expires_at, since, waits_until } = kept;
    StoredHold {
        cookie: terms.cookie,
        uid: *uid,
        constraints: terms.constraints.clone(),
        query: terms.question.as_ref().map(|question| Value::clone(&question.asked)),
        app_id: terms.app_id.clone(),
        reason: terms.reason.clone(),
        attached: terms.attached,
        expires_at: *expires_at,
        since: *since,
        waits_until: *waits_until,
    }
}

fn restored(stored: StoredHold, question: Option<Question>) -> KeptHold {
    let StoredHold {
        cookie, uid, constraints, app_id, reason, attached, expires_at, since, waits_until, ..
    } = stored;
    KeptHold {
        terms: HoldTerms { constraints, question, app_id, reason, ttl: None, attached, cookie },
        uid,
        expires_at,
        since,
        waits_until,
    }
}

/// Tells boots apart.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
