//! The body of `POST /v1/recommend/watch`: the answer, and whenever the machine alters it, why and the new one.
//!
//! Nothing is queued for a reader and nothing is worked out while it does not read: one that comes back late is sent
//! the difference to the newest.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::unfold;
use hyper::body::{Bytes, Frame};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::server::Snapshots;
use crate::server::advice::{Advice, Renewal};
use crate::server::events::{EventStream, event};
use crate::server::service::Service;
use crate::server::shares::Place;
use rooflined_api::RecommendAnswer;

/// What the events are made from.
pub struct Source {
    pub service: Arc<Service>,
    /// Between two comments.
    pub heartbeat: Duration,
    /// Ends the stream when it becomes true.
    pub stop: watch::Receiver<bool>,
}

struct Reader {
    source: Source,
    /// One of the streams admitted.
    _place: Place,
    snapshots: Snapshots,
    advice: Advice,
    /// The first answer until it has been written.
    first: Option<RecommendAnswer>,
    /// When to say that we are still here.
    beat_at: Instant,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.source.service.counters.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Events for one reader, beginning with the first answer.
pub fn stream(source: Source, place: Place, advice: Advice, first: RecommendAnswer) -> EventStream {
    source.service.counters.streams.fetch_add(1, Ordering::Relaxed);
    let snapshots = source.service.snapshots.clone();
    let beat_at = Instant::now() + source.heartbeat;
    let reader = Reader { source, _place: place, snapshots, advice, first: Some(first), beat_at };
    Box::pin(unfold(reader, |mut reader| async move {
        let text = reader.next().await?;
        Some((Ok(Frame::data(Bytes::from(text))), reader))
    }))
}

fn recommend(answer: &RecommendAnswer) -> String {
    event("recommend", answer.serial, &json!(answer))
}

fn renewal_events(renewal: &Renewal) -> String {
    let stale = event("advice_stale", renewal.stale.serial, &json!(renewal.stale));
    let answer = renewal.answer.as_ref().map(recommend).unwrap_or_default();
    stale + &answer
}

impl Reader {
    /// The next events as text; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(recommend(&first));
        }
        let Source { service, heartbeat, stop, .. } = &mut self.source;
        loop {
            // Before the look at the newest, so that one which is published meanwhile wakes us again.
            self.snapshots.mark_unchanged();
            tokio::select! {
                renewal = self.advice.renew(service) => {
                    if let Some(renewal) = renewal {
                        return Some(renewal_events(&renewal));
                    }
                }
                _ = stop.wait_for(|stop| *stop) => return None,
            }
            tokio::select! {
                changed = self.snapshots.changed() => changed.ok()?,
                () = tokio::time::sleep_until(self.beat_at) => {
                    self.beat_at = Instant::now() + *heartbeat;
                    service.control.watched();
                    return Some(": still here\n\n".to_owned());
                }
                _ = stop.wait_for(|stop| *stop) => return None,
            }
        }
    }
}
