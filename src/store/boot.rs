//! What is stored for the next daemon of the same boot: holds, and servers that are noticed as slow.

use std::fs;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::file::{self, Survives};
use super::{Loaded, Store, StoreError};
use rooflined_governor::{SlowServers, StoredHolds};

const SCHEMA: u32 = 1;

/// Times are CLOCK_BOOTTIME, which another boot counts from zero.
#[derive(Serialize, Deserialize)]
struct OfBoot<T> {
    boot_id: String,
    #[serde(flatten)]
    content: T,
}

/// So that the content has a name in the file.
#[derive(Serialize, Deserialize)]
struct Servers {
    slow: SlowServers,
}

impl Store {
    /// Stores holds until this boot ends; where there are none, the file is removed.
    ///
    /// # Errors
    /// As for [`Store::save_calibration`].
    pub fn save_holds(&self, holds: &StoredHolds) -> Result<(), StoreError> {
        self.save_of_boot("holds", (!holds.holds.is_empty()).then(|| holds.clone()))
    }

    /// The holds of an earlier daemon of this boot. A damaged file is set aside, and means no holds.
    ///
    /// # Errors
    /// The file is there but the system does not let it be read.
    pub fn load_holds(&self) -> Result<Loaded<StoredHolds>, StoreError> {
        self.load_of_boot("holds")
    }

    /// Stores the servers that are noticed as slow, until this boot ends; where there are none, the file is removed.
    ///
    /// # Errors
    /// As for [`Store::save_calibration`].
    pub fn save_servers(&self, slow: &SlowServers) -> Result<(), StoreError> {
        self.save_of_boot("servers", (!slow.is_empty()).then(|| Servers { slow: slow.clone() }))
    }

    /// The servers that an earlier daemon of this boot noticed as slow. A damaged file is set aside, and means none.
    ///
    /// # Errors
    /// The file is there but the system does not let it be read.
    pub fn load_servers(&self) -> Result<Loaded<SlowServers>, StoreError> {
        let Loaded { value, damaged } = self.load_of_boot::<Servers>("servers")?;
        Ok(Loaded { value: value.map(|servers| servers.slow), damaged })
    }

    fn save_of_boot<T: Serialize + DeserializeOwned>(
        &self,
        kind: &str,
        content: Option<T>,
    ) -> Result<(), StoreError> {
        let name = format!("{kind}.json");
        let Some(content) = content else {
            file::remove(&self.dir.join(name));
            return Ok(());
        };
        let bytes = self.encode(&name, kind, SCHEMA, &OfBoot { boot_id: boot_id(), content })?;
        self.write_to_survive(&name, &bytes, Survives::Kill)
    }

    fn load_of_boot<T: DeserializeOwned>(&self, kind: &str) -> Result<Loaded<T>, StoreError> {
        let Loaded { value, damaged } =
            self.load::<OfBoot<T>>(&format!("{kind}.json"), kind, SCHEMA, |_| Ok(()))?;
        let stored = value.filter(|stored| stored.boot_id == boot_id());
        Ok(Loaded { value: stored.map(|stored| stored.content), damaged })
    }
}

/// Tells boots apart.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_servers_are_found_again_in_this_boot_and_their_file_goes_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.load_servers().unwrap().value, None);
        let slow = SlowServers::from([("llama-server on port 8080".to_owned(), "too hot".to_owned())]);
        store.save_servers(&slow).unwrap();
        assert_eq!(store.load_servers().unwrap().value, Some(slow.clone()));
        let file = dir.path().join("servers.json");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("too hot", "too cold")).unwrap();
        let altered = store.load_servers().unwrap();
        assert!(altered.value.is_none() && altered.damaged.is_some());
        store.save_servers(&slow).unwrap();
        store.save_servers(&SlowServers::new()).unwrap();
        assert!(!file.exists());
    }
}
