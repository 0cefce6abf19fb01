//! A hold that lasts for as long as its answer is read: JSON lines, the first when the hold is in force.
//!
//! | line | when |
//! |---|---|
//! | `{"event":"held","id":…,"mode":…,"expires_in_s":…}` | at the beginning |
//! | `{"event":"satisfied","satisfied":false,"mode":…,"reason":…,"advice":…}` | the mode in force does not meet it: somebody else switched, what was predicted has changed, or an older hold stands against it; `true`: it is met again |
//! | `{"event":"heartbeat"}` | now and then |
//! | `{"event":"ended","cause":"expired"}`, `"released"`, `"control_disabled"` or `"auto_off"` | at the end, then the answer ends |

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::unfold;
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::server::events::{EventStream, end_of};
use crate::server::{Attachment, Snapshots, clock};
use rooflined_api::HeldAnswer;
use rooflined_predict::snapshot::{Hold, Snapshot};

/// What the lines are made from.
pub struct Source {
    /// Where snapshots come from.
    pub snapshots: Snapshots,
    /// Between two heartbeats.
    pub heartbeat: Duration,
    /// Ends the stream when it becomes true.
    pub stop: watch::Receiver<bool>,
    pub held: HeldAnswer,
}

enum Phase {
    Beginning,
    Holding,
    Over,
}

struct Reader {
    source: Source,
    phase: Phase,
    /// Ends the hold when the client goes.
    _attachment: Attachment,
    /// As it was seen last; `None` until it is in a snapshot.
    seen: Option<Hold>,
}

/// Lines for the holder. Dropping them ends the hold.
pub fn stream(source: Source, attachment: Attachment) -> EventStream {
    let reader = Reader { source, phase: Phase::Beginning, _attachment: attachment, seen: None };
    Box::pin(unfold(reader, |mut reader| async move {
        let line = reader.next().await?;
        Some((Ok(Frame::data(Bytes::from(format!("{line}\n")))), reader))
    }))
}

impl Reader {
    async fn next(&mut self) -> Option<Value> {
        match self.phase {
            Phase::Beginning => {
                self.phase = Phase::Holding;
                let mut line = json!(self.source.held);
                line["event"] = "held".into();
                Some(line)
            }
            Phase::Holding => self.change().await,
            Phase::Over => None,
        }
    }

    async fn change(&mut self) -> Option<Value> {
        // A hold that ended before it was ever seen is not waited for longer than this.
        let mut waited = false;
        loop {
            let newest = Arc::clone(&self.source.snapshots.borrow_and_update());
            let early = self.seen.is_none() && !waited;
            if let Some(line) = self.compare(&newest, early) {
                return Some(line);
            }
            if waited {
                return Some(json!({ "event": "heartbeat" }));
            }
            let source = &mut self.source;
            waited = tokio::select! {
                changed = source.snapshots.changed() => { changed.ok()?; false }
                () = tokio::time::sleep(source.heartbeat) => true,
                _ = source.stop.wait_for(|stop| *stop) => return None,
            };
        }
    }

    /// `early`: it need not be in a snapshot yet.
    fn compare(&mut self, newest: &Snapshot, early: bool) -> Option<Value> {
        let hold = newest.power.holds.iter().find(|hold| hold.cookie == self.source.held.id);
        let Some(hold) = hold else {
            if early {
                return None;
            }
            self.phase = Phase::Over;
            let end = self.seen.as_ref().and_then(|hold| hold.expires_at);
            let expired = end.is_some_and(|end| end <= clock::now().boottime);
            let cause = match &self.seen {
                _ if expired => "expired",
                Some(hold) => end_of(hold, newest),
                None => "released",
            };
            return Some(json!({ "event": "ended", "cause": cause }));
        };
        let was = self.seen.replace(hold.clone()).is_none_or(|seen| seen.satisfied);
        (was != hold.satisfied).then(|| {
            let mode = newest.state.power_mode.known().map(|mode| &mode.name);
            json!({
                "event": "satisfied", "satisfied": hold.satisfied, "mode": mode, "reason": hold.unmet,
                "advice": hold.advice.as_ref().map(|advice| &advice.mode),
            })
        })
    }
}
