//! A least-recently-used cache.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Values by key, bounded in number and in bytes: the one used longest ago goes first.
#[derive(Debug)]
pub struct Recent<K, V> {
    entries: Mutex<Entries<K, V>>,
    most: usize,
    most_bytes: usize,
}

#[derive(Debug)]
struct Entries<K, V> {
    /// The most recently used is last.
    list: Vec<Entry<K, V>>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    bytes: usize,
}

impl<K, V: Clone> Recent<K, V> {
    #[must_use]
    pub const fn new(most: usize, most_bytes: usize) -> Self {
        Self { entries: Mutex::new(Entries { list: Vec::new(), bytes: 0 }), most, most_bytes }
    }

    fn entries(&self) -> MutexGuard<'_, Entries<K, V>> {
        // Nothing that panics runs while it is held, and a list that was cut short is still a list.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, wanted: impl Fn(&K) -> bool) -> Option<V> {
        let mut entries = self.entries();
        let place = entries.list.iter().rposition(|entry| wanted(&entry.key))?;
        let found = entries.list[place].value.clone();
        entries.list[place..].rotate_left(1);
        drop(entries);
        Some(found)
    }

    /// `bytes` is about what key and value take; what takes more than all may is not kept.
    pub fn keep(&self, key: K, value: V, bytes: usize) {
        if bytes > self.most_bytes {
            return;
        }
        let mut entries = self.entries();
        let mut gone = 0;
        while entries.list.len() - gone >= self.most || entries.bytes + bytes > self.most_bytes {
            entries.bytes -= entries.list[gone].bytes;
            gone += 1;
        }
        entries.list.drain(..gone);
        entries.bytes += bytes;
        entries.list.push(Entry { key, value, bytes });
    }

    /// Forgets what is of no more use.
    pub fn retain(&self, is_useful: impl Fn(&K) -> bool) {
        let mut entries = self.entries();
        entries.list.retain(|entry| is_useful(&entry.key));
        entries.bytes = entries.list.iter().map(|entry| entry.bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_last_is_kept() {
        let recent = Recent::new(2, 100);
        recent.keep(1, "one", 1);
        recent.keep(2, "two", 1);
        assert_eq!(recent.find(|key| *key == 1), Some("one"));
        recent.keep(3, "three", 1);
        assert_eq!(recent.find(|key| *key == 2), None, "it was asked for longest ago");
        assert_eq!(recent.find(|key| *key == 1), Some("one"));
        assert_eq!(recent.find(|key| *key == 3), Some("three"));
        recent.retain(|key| *key > 1);
        assert_eq!((recent.find(|key| *key == 1), recent.find(|key| *key == 3)), (None, Some("three")));
    }

    #[test]
    fn memory_is_bounded_in_number_and_in_bytes() {
        let recent = Recent::new(64, 100);
        let held = || {
            let entries = recent.entries();
            (entries.list.len(), entries.bytes)
        };
        for key in 0..1_000_u32 {
            recent.keep(key, "x", 1);
        }
        assert_eq!(held(), (64, 64));
        recent.keep(1_000, "long", 60);
        assert_eq!(held(), (41, 100));
        recent.keep(1_001, "longest", 100);
        assert_eq!(held(), (1, 100));
        recent.keep(1_002, "too long", 101);
        assert_eq!(recent.find(|key| *key == 1_001), Some("longest"));
        assert_eq!(recent.find(|key| *key == 1_002), None);
    }
}
