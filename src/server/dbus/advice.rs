//! Recommendations that are kept true: the signals to those who subscribed.
//!
//! A subscription lasts until Unsubscribe, until its sender leaves the bus, or until we do.

use std::convert::Infallible;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use zbus::Connection;
use zbus::object_server::{InterfaceRef, SignalEmitter};

use super::PATH;
use super::bounded::Bounded;
use super::convert::to_variants;
use super::interface::Rooflined;
use super::power::addressed;
use crate::server::advice::Renewal;
use crate::server::service::Service;

/// The daemon is notified this often that somebody looks, while anybody does.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Tells subscribers when their answers have altered, one after the other, until the bus fails.
pub async fn run(connection: &Connection, service: &Service) -> zbus::Result<Infallible> {
    let rooflined: InterfaceRef<Bounded<Rooflined>> = connection.object_server().interface(PATH).await?;
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
            // Nothing is sent to those who have left or unsubscribed.
            if subscriptions.keep(cookie, advice)
                && let Some(renewal) = renewal
            {
                notify(&addressed(emitter, sender)?, cookie, renewal).await?;
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

async fn notify(subscriber: &SignalEmitter<'_>, cookie: u64, renewal: Renewal) -> zbus::Result<()> {
    let Renewal { stale, answer } = renewal;
    Rooflined::advice_stale(subscriber, &stale.reason, stale.serial).await?;
    let answer = answer.map(|answer| to_variants(json!(answer))).unwrap_or_default();
    Rooflined::answer_changed(subscriber, cookie, to_variants(json!(stale)), answer).await
}
