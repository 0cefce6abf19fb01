//! Who subscribed to a recommendation, and with which query.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::server::advice::Advice;
use crate::server::shares::{User, share};
use rooflined_core::refusal::{Code, Refusal};

/// Subscriptions of one sender.
const OF_ONE: usize = 8;
/// Subscriptions of all; of one user half of them, and less where others have some.
const OF_ALL: usize = 64;

#[derive(Default)]
pub struct Subscriptions {
    all: Mutex<Entries>,
    /// Somebody subscribed.
    pub more: Notify,
}

#[derive(Default)]
struct Entries {
    last_cookie: u64,
    by_cookie: BTreeMap<u64, Subscription>,
}

struct Subscription {
    sender: String,
    user: User,
    /// `None` while it is being answered.
    advice: Option<Advice>,
}

impl Subscriptions {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a subscription of this sender, which is this user's.
    ///
    /// # Errors
    /// It, its user, or all together have too many.
    pub fn reserve(&self, sender: &str, user: User) -> Result<u64, Refusal> {
        let mut entries = self.entries();
        let hint = "call Unsubscribe for those that are not needed";
        if entries.by_cookie.values().filter(|other| other.sender == sender).count() >= OF_ONE {
            let message = format!("all {OF_ONE} subscriptions of this client are taken");
            return Err(Code::TooManyConnections.error(message, hint));
        }
        let own = entries.by_cookie.values().filter(|other| other.user == user).count();
        share(OF_ALL, entries.by_cookie.len(), own)
            .map_err(|full| full.refusal(user, "subscriptions", hint))?;
        entries.last_cookie += 1;
        let cookie = entries.last_cookie;
        entries.by_cookie.insert(cookie, Subscription { sender: sender.to_owned(), user, advice: None });
        Ok(cookie)
    }

    /// Begins, or goes on with, a subscription; false where it has ended meanwhile.
    pub fn keep(&self, cookie: u64, advice: Advice) -> bool {
        self.entries().by_cookie.get_mut(&cookie).is_some_and(|entry| {
            entry.advice = Some(advice);
            true
        })
    }

    /// [`keep`](Self::keep) for the first time.
    pub fn begin(&self, cookie: u64, advice: Advice) -> bool {
        let kept = self.keep(cookie, advice);
        // A snapshot that came while it was answered shall not be missed.
        self.more.notify_one();
        kept
    }

    pub fn end(&self, cookie: u64) {
        drop(self.entries().by_cookie.remove(&cookie));
    }

    /// Ends one for its owner; false where it has none of that number.
    pub fn end_for(&self, cookie: u64, sender: &str) -> bool {
        let mut entries = self.entries();
        let own = entries.by_cookie.get(&cookie).is_some_and(|entry| entry.sender == sender);
        if own {
            entries.by_cookie.remove(&cookie);
        }
        own
    }

    /// The sender has left the bus.
    pub fn left(&self, sender: &str) {
        self.entries().by_cookie.retain(|_, entry| entry.sender != sender);
    }

    pub fn cookies(&self) -> Vec<u64> {
        self.entries().by_cookie.keys().copied().collect()
    }

    pub fn take(&self, cookie: u64) -> Option<(String, Advice)> {
        let mut entries = self.entries();
        let entry = entries.by_cookie.get_mut(&cookie)?;
        Some((entry.sender.clone(), entry.advice.take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_subscriptions_to_others() {
        let subscriptions = Subscriptions::default();
        let all_of = |user: u32| {
            let senders = (0..OF_ALL).map(|index| format!(":{user}.{index}"));
            senders.filter(|sender| subscriptions.reserve(sender, Some(user)).is_ok()).count()
        };
        assert_eq!(all_of(0), OF_ALL / 2, "many clients of one user");
        assert_eq!(all_of(1000), OF_ALL / 4);
        subscriptions.left(":0.0");
        assert!(subscriptions.reserve(":0.99", Some(0)).is_err(), "it has more than are free");
        let refused = subscriptions.reserve(":0.99", Some(0)).unwrap_err();
        assert!(refused.message.contains("user 0"), "{}", refused.message);
    }
}
