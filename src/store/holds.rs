//! Holds for the next daemon of the same boot.

use std::fs;

use serde::{Deserialize, Serialize};

use super::file::{self, Survives};
use super::{Loaded, Store, StoreError};
use rooflined_governor::StoredHolds;

const NAME: &str = "holds.json";
const KIND: &str = "holds";
const SCHEMA: u32 = 1;

/// Times are CLOCK_BOOTTIME, which another boot counts from zero.
#[derive(Serialize, Deserialize)]
struct OfBoot {
    boot_id: String,
    #[serde(flatten)]
    holds: StoredHolds,
}

impl Store {
    /// Stores holds until this boot ends; where there are none, the file is removed.
    ///
    /// # Errors
    /// As for [`Store::save_calibration`].
    pub fn save_holds(&self, holds: &StoredHolds) -> Result<(), StoreError> {
        if holds.holds.is_empty() {
            file::remove(&self.dir.join(NAME));
            return Ok(());
        }
        let bytes = self.encode(NAME, KIND, SCHEMA, &OfBoot { boot_id: boot_id(), holds: holds.clone() })?;
        self.write_to_survive(NAME, &bytes, Survives::Kill)
    }

    /// The holds of an earlier daemon of this boot. A damaged file is set aside, and means no holds.
    ///
    /// # Errors
    /// The file is there but the system does not let it be read.
    pub fn load_holds(&self) -> Result<Loaded<StoredHolds>, StoreError> {
        let Loaded { value, damaged } = self.load::<OfBoot>(NAME, KIND, SCHEMA, |_| Ok(()))?;
        let stored = value.filter(|stored| stored.boot_id == boot_id());
        Ok(Loaded { value: stored.map(|stored| stored.holds), damaged })
    }
}

/// Tells boots apart.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
