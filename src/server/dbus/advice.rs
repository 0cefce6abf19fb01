//! Recommendations that are kept true: who subscribed with which query, and the signals to them.
//!
//! A subscription lasts until Unsubscribe, until its sender leaves the bus, or until we do.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use zbus::Connection;
use zbus::object_server::{InterfaceRef, SignalEmitter};

use super::PATH;
use super::convert::to_variants;
use super::interface::Rooflined;
use super::power::addressed;
use crate::answer::error::Code;
use crate::api::ErrorBody;
use crate::server::advice::{Advice, Renewal};
use crate::server::service::Service;

/// Subscriptions of one sender.
const OF_ONE: usize = 8;
/// Subscriptions of all.
const OF_ALL: usize = 64;
/// The daemon is told this often that somebody looks, while anybody does.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Everybody who subscribed.
#[derive(Default)]
pub struct Subscriptions {
    all: Mutex<Entries>,
    /// Somebody subscribed.
    more: Notify,
}

#[derive(Default)]
struct Entries {
    last_cookie: u64,
    by_cookie: BTreeMap<u64, Subscription>,
}

struct Subscription {
    sender: String,
    /// `None` while it is being answered.
    advice: Option<Advice>,
}

impl Subscriptions {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a subscription of this sender.
    ///
    /// # Errors
    /// It has too many, or all together have.
    pub fn reserve(&self, sender: &str) -> Result<u64, ErrorBody> {
        let mut entries = self.entries();
        let full = |message: String| {
            Err(Code::TooManyConnections.error(message, "call Unsubscribe for those that are not needed"))
        };
        if entries.by_cookie.values().filter(|other| other.sender == sender).count() >= OF_ONE {
            return full(format!("all {OF_ONE} subscriptions of this client are taken"));
        }
        if entries.by_cookie.len() >= OF_ALL {
            return full(format!("all {OF_ALL} subscriptions are taken"));
        }
        entries.last_cookie += 1;
        let cookie = entries.last_cookie;
        entries.by_cookie.insert(cookie, Subscription { sender: sender.to_owned(), advice: None });
        Ok(cookie)
    }

    /// Begins, or goes on with, a subscription; false where it has ended meanwhile.
    fn keep(&self, cookie: u64, advice: Advice) -> bool {
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

    /// Ends one.
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

    fn cookies(&self) -> Vec<u64> {
        self.entries().by_cookie.keys().copied().collect()
    }

    fn take(&self, cookie: u64) -> Option<(String, Advice)> {
        let mut entries = self.entries();
        let entry = entries.by_cookie.get_mut(&cookie)?;
        Some((entry.sender.clone(), entry.advice.take()?))
    }
}

/// Tells subscribers when their answers have altered, one after the other, until the bus fails.
pub async fn run(connection: &Connection, service: &Service) -> zbus::Error {
    match tell(connection, service).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn tell(connection: &Connection, service: &Service) -> zbus::Result<std::convert::Infallible> {
    let rooflined: InterfaceRef<Rooflined> = connection.object_server().interface(PATH).await?;
    let subscriptions = rooflined.get().await.subscriptions();
    let emitter = rooflined.signal_emitter();
    let mut snapshots = service.snapshots.clone();
    let mut beat_at = Instant::now() + HEARTBEAT;
    loop {
        // Before the look at the newest, so that one which is published meanwhile wakes us again.
        snapshots.mark_unchanged();
        let cookies = subscriptions.cookies();
        let anybody = !cookies.is_empty();
        for cookie in cookies {
            let Some((sender, mut advice)) = subscriptions.take(cookie) else { continue };
            let renewal = advice.renew(service).await;
            // Whoever has left or unsubscribed meanwhile is told nothing.
            if subscriptions.keep(cookie, advice)
                && let Some(renewal) = renewal
            {
                told(&addressed(emitter, sender)?, cookie, renewal).await?;
            }
        }
        tokio::select! {
            changed = snapshots.changed() => {
                if changed.is_err() {
                    // The daemon is going away, and so shall we, by being dropped.
                    std::future::pending::<()>().await;
                }
            }
            () = subscriptions.more.notified() => {}
            () = tokio::time::sleep_until(beat_at), if anybody => {
                beat_at = Instant::now() + HEARTBEAT;
                service.control.watched();
            }
        }
    }
}

async fn told(subscriber: &SignalEmitter<'_>, cookie: u64, renewal: Renewal) -> zbus::Result<()> {
    let Renewal { stale, answer } = renewal;
    Rooflined::advice_stale(subscriber, &stale.reason, stale.serial).await?;
    let answer = answer.map(|answer| to_variants(json!(answer))).unwrap_or_default();
    Rooflined::answer_changed(subscriber, cookie, to_variants(json!(stale)), answer).await
}
