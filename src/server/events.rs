//! Server-sent events: what changed between the snapshot a reader saw last and the newest.
//!
//! Nothing is queued for a reader. One that reads slowly skips snapshots and is sent the difference to the newest
//! when it comes back; one that does not read at all is cut off by the connection's write limit.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{Stream, unfold};
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::metrics::Counters;
use super::shares::Place;
use super::{Control, Snapshots, clock};
use rooflined_advice::cause::in_words;
use rooflined_advice::state;
use rooflined_predict::snapshot::{Automatic, Change, Hold, Snapshot, diff};

/// The body of `GET /v1/events`.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

/// What a stream is made from.
pub struct Source {
    /// Where snapshots come from.
    pub snapshots: Snapshots,
    /// To say that somebody looks.
    pub control: Control,
    /// Between two comments.
    pub heartbeat: Duration,
    /// Ends the stream when it becomes true.
    pub stop: watch::Receiver<bool>,
    /// One of the streams admitted.
    pub place: Place,
    pub counters: Arc<Counters>,
}

struct Reader {
    source: Source,
    /// `None` until the first event has been written.
    last: Option<Arc<Snapshot>>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.source.counters.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Events for one reader, beginning with the state.
pub fn stream(source: Source) -> EventStream {
    source.counters.streams.fetch_add(1, Ordering::Relaxed);
    let reader = Reader { source, last: None };
    Box::pin(unfold(reader, |mut reader| async move {
        let text = reader.next().await?;
        Some((Ok(Frame::data(Bytes::from(text))), reader))
    }))
}

impl Reader {
    /// The next events as text; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            let source = &mut self.source;
            let newest = Arc::clone(&source.snapshots.borrow_and_update());
            let text = match &self.last {
                None => event("state", newest.serial, &json!(state(&newest, clock::now()))),
                Some(last) => changes(last, &newest),
            };
            self.last = Some(newest);
            if !text.is_empty() {
                return Some(text);
            }
            tokio::select! {
                changed = source.snapshots.changed() => changed.ok()?,
                () = tokio::time::sleep(source.heartbeat) => {
                    source.control.watched();
                    return Some(": still here\n\n".to_owned());
                }
                _ = source.stop.wait_for(|stop| *stop) => return None,
            }
        }
    }
}

fn changes(old: &Snapshot, new: &Snapshot) -> String {
    let mut text = String::new();
    for change in diff(old, new) {
        let (name, data) = described(&change, old, new);
        text.push_str(&event(name, new.serial, &data));
        if let Some(reason) = in_words(&change, old, new) {
            text.push_str(&event(
                "advice_stale",
                new.serial,
                &json!({ "reason": reason, "serial": new.serial }),
            ));
        }
    }
    text
}

fn described(change: &Change, old: &Snapshot, new: &Snapshot) -> (&'static str, Value) {
    let serial = new.serial;
    match change {
        Change::State => ("state", json!(state(new, clock::now()))),
        Change::Mode { from, to } => {
            let cause = new.power.cause.key();
            ("mode", json!({ "from": from, "to": to, "cause": cause, "serial": serial }))
        }
        Change::Throttle { active } => {
            let evidence = new.state.throttle.known().map(|throttle| &throttle.evidence);
            ("throttle", json!({ "active": active, "evidence": evidence, "serial": serial }))
        }
        Change::Roofline { ratio } => (
            "roofline",
            json!({
                "ratio": ratio, "bandwidth_bytes_per_s": new.roofline.bandwidth.value,
                "was_bandwidth_bytes_per_s": old.roofline.bandwidth.value, "serial": serial,
            }),
        ),
        Change::Hold => {
            let shown = |hold: &Hold| {
                json!({
                    "app_id": hold.app_id, "reason": hold.reason, "satisfied": hold.satisfied, "unmet": hold.unmet,
                    "advice": hold.advice.as_ref().map(|advice| &advice.mode),
                })
            };
            let holds: Vec<Value> = new.power.holds.iter().map(shown).collect();
            let started: Vec<Value> = missing(&new.power.holds, &old.power.holds).map(shown).collect();
            let ended: Vec<Value> = missing(&old.power.holds, &new.power.holds)
                .map(|hold| json!({ "app_id": hold.app_id, "cause": end_of(hold, new) }))
                .collect();
            let pending = new.power.pending.as_ref().map(
                |pending| json!({ "id": pending.id, "mode": pending.mode, "original": pending.original }),
            );
            let data = json!({
                "started": started, "ended": ended, "holds": holds, "pending": pending,
                "switching": new.power.switching, "cause": new.power.cause.key(),
                "unavailable": new.power.unavailable, "serial": serial,
            });
            ("hold", data)
        }
        Change::Calibration => {
            let mut data = json!(new.calibration_status);
            data["serial"] = serial.into();
            data["measured_at_unix_s"] =
                json!(new.calibration.as_ref().map(|record| record.measured_at_unix_s));
            ("calibration", data)
        }
        Change::Degraded => ("degraded", json!({ "degraded": new.degraded_lines(), "serial": serial })),
    }
}

/// The holds of `these` that `those` does not have.
pub(super) fn missing<'a>(these: &'a [Hold], those: &'a [Hold]) -> impl Iterator<Item = &'a Hold> {
    these.iter().filter(|hold| those.iter().all(|other| other.cookie != hold.cookie))
}

/// How a hold ended that is no longer in force.
pub(super) fn end_of(hold: &Hold, now: &Snapshot) -> &'static str {
    match hold.expires_at {
        Some(end) if end <= now.taken_at => "expired",
        _ if !now.control_enabled => "control_disabled",
        _ if hold.query.is_some() && now.power.auto == Automatic::Off => "auto_off",
        _ => "released",
    }
}

/// JSON has no raw line feeds, so one data line holds it.
pub(super) fn event(name: &str, serial: u64, data: &impl std::fmt::Display) -> String {
    format!("event: {name}\nid: {serial}\ndata: {data}\n\n")
}
