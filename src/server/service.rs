//! From a route and a body to the bytes of an answer: what HTTP and D-Bus `Query` have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::access::{Peer, may_run};
use super::metrics::{Counters, page};
use super::remembered::{Remembered, lasting};
use super::routes::{Route, Spec, query_pairs};
use super::{Control, Snapshots, clock, command, openapi, power};
use crate::answer::error::Code;
use crate::answer::parse::parse;
use crate::answer::{Answer, Request, answer};
use crate::api::{ErrorBody, ModelAnswer, ModelsAnswer, RecommendAnswer, RecommendRequest};
use crate::precision::{UnknownName, WeightFormat};
use crate::snapshot::Snapshot;
use crate::workload::recipe::Recipe;
use crate::workload::registry;

/// Answers that take more predictions than this are computed beside the event loop.
const LIGHT: u64 = 256;
/// So many of them at once; each may hold megabytes.
const HEAVY_AT_ONCE: usize = 2;
/// Waiting for one of those places.
const HEAVY_WAIT: Duration = Duration::from_secs(5);

/// After an answer was given anew, this many times as long nothing is.
const REST: u32 = 4;
/// But no longer than this.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Everything an answer is given from.
#[derive(Debug)]
pub struct Service {
    /// The picture of the moment.
    pub snapshots: Snapshots,
    /// The way to the daemon.
    pub control: Control,
    /// What the server counts about itself.
    pub counters: Arc<Counters>,
    /// Label of those counters.
    pub label: &'static str,
    heavy: Arc<Semaphore>,
    remembered: Remembered,
    /// The place at which answers that were given are given anew.
    anew: Arc<Semaphore>,
    /// Boot-time second in which the daemon was last told that somebody looks.
    watched_at: AtomicU64,
}

/// A request as a transport sees it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// What is asked.
    pub spec: &'a Spec,
    /// What stands in the path for its parameter.
    pub argument: Option<&'a str>,
    /// The query string.
    pub query: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// Who asks, where the transport knows.
    pub peer: Option<&'a Peer>,
}

/// An answer, or a lasting part of one.
#[derive(Debug)]
pub enum Content {
    /// Made for this request.
    Json(Vec<u8>),
    /// The same for every request.
    Static(&'static [u8]),
    /// Prometheus text.
    Text(String),
}

impl Service {
    /// A service for one transport.
    #[must_use]
    pub fn new(snapshots: Snapshots, control: Control, label: &'static str) -> Self {
        Self {
            snapshots,
            control,
            counters: Arc::default(),
            label,
            heavy: Arc::new(Semaphore::new(HEAVY_AT_ONCE)),
            remembered: Remembered::default(),
            anew: Arc::new(Semaphore::new(1)),
            watched_at: AtomicU64::new(0),
        }
    }

    /// The newest snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshots.borrow())
    }

    /// Tells the daemon that somebody looks, at most once a second.
    pub fn watched(&self, now: crate::units::Seconds) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds since boot")]
        let second = now.get() as u64;
        if self.watched_at.swap(second, Ordering::Relaxed) != second {
            self.control.watched();
        }
    }

    /// Answers every route but the event stream, from `snapshot`.
    ///
    /// # Errors
    /// What the answer would have been refused with.
    pub async fn respond(&self, snapshot: &Arc<Snapshot>, call: Call<'_>) -> Result<Content, ErrorBody> {
        let now = clock::now();
        let route = call.spec.route;
        if !matches!(route, Route::Ready | Route::Healthy | Route::OpenApi | Route::Metrics) {
            self.watched(now.boottime);
        }
        if !matches!(route, Route::Roofline | Route::Model) {
            query_pairs(call.query, &[])?;
        }
        if route == Route::Recommend
            && let Some(known) = self.remembered.find(snapshot.serial, call.body)
        {
            return Ok(Content::Json(known));
        }
        let request = match route {
            Route::Predict => Request::Predict(parse(call.body)?),
            Route::Recommend => Request::Recommend(Box::new(parse(call.body)?)),
            Route::Joint => Request::Joint(Box::new(parse(call.body)?)),
            Route::Sweep => Request::Sweep(parse(call.body)?),
            Route::Tiling => Request::Tiling(parse(call.body)?),
            Route::Analyze => Request::Analyze(parse(call.body)?),
            Route::Board => Request::Board,
            Route::State => Request::State,
            Route::Roofline => roofline(call.query)?,
            Route::Modes => Request::Modes,
            Route::Formats => Request::Formats,
            Route::HardwareList => Request::Hardware { key: None },
            Route::Hardware => Request::Hardware { key: Some(call.argument.unwrap_or_default().to_owned()) },
            Route::Models => {
                let answer = ModelsAnswer::from(registry::models());
                return command::encode(&answer).map(Content::Json);
            }
            Route::Model => return model(call).map(Content::Json),
            Route::Calibration => Request::Calibration,
            Route::OpenApi => return Ok(Content::Static(openapi::document())),
            Route::Metrics => return Ok(Content::Text(page(snapshot, now, &self.counters, self.label))),
            Route::Healthy => return command::encode(&json!({ "healthy": true })).map(Content::Json),
            Route::Ready => return ready(snapshot).map(Content::Json),
            Route::Holds => {
                return command::encode(&power::holds(snapshot, now)).map(Content::Json);
            }
            Route::SetMode | Route::Confirm | Route::Revert | Route::Hold | Route::Renew | Route::Release => {
                return self.power(snapshot, call).await.map(Content::Json);
            }
            Route::HoldAttached => {
                return Err(Code::NotFound.error(
                    "an attached hold is a stream",
                    "hold with POST /v1/holds/attached over HTTP, or call Hold on D-Bus",
                ));
            }
            Route::RecommendWatch => {
                return Err(Code::NotFound.error(
                    "a recommendation that is kept true is a stream",
                    "read POST /v1/recommend/watch over HTTP, or call Subscribe on D-Bus",
                ));
            }
            Route::Observations | Route::Calibrate | Route::Measure => {
                return self.command(snapshot, call).await.map(Content::Json);
            }
            Route::Events => {
                return Err(Code::NotFound.error(
                    "events are a stream",
                    "read GET /v1/events over HTTP, or listen to D-Bus signals",
                ));
            }
        };
        let lasting = lasting(&request);
        let encoded = if request.effort() > LIGHT {
            self.heavy(Arc::clone(snapshot), request).await?
        } else {
            command::encode(&answer(snapshot, self.control.catalogue(), now, &request)?)?
        };
        if lasting {
            self.remembered.keep(snapshot.serial, call.body, &encoded);
        }
        Ok(Content::Json(encoded))
    }

    /// Computes and encodes beside the event loop, which would stand still for tens of milliseconds otherwise.
    async fn heavy(&self, snapshot: Arc<Snapshot>, request: Request) -> Result<Vec<u8>, ErrorBody> {
        let catalogue = Arc::clone(self.control.catalogue());
        let permit = self.heavy_place().await?;
        let work = move || {
            let answered: Result<Answer, ErrorBody> = answer(&snapshot, &catalogue, clock::now(), &request);
            answered.and_then(|answer| command::encode(&answer))
        };
        beside(permit, work).await.1
    }

    async fn heavy_place(&self) -> Result<OwnedSemaphorePermit, ErrorBody> {
        let waiting = tokio::time::timeout(HEAVY_WAIT, Arc::clone(&self.heavy).acquire_owned());
        let Ok(Ok(permit)) = waiting.await else {
            return Err(Code::Busy.error(
                format!("{HEAVY_AT_ONCE} other large questions are being answered"),
                "ask again in a second, or ask for less at a time",
            ));
        };
        Ok(permit)
    }

    /// A recommendation from `snapshot`, for somebody who waits for it.
    ///
    /// # Errors
    /// What the answer would have been refused with.
    pub async fn recommend(
        &self,
        snapshot: Arc<Snapshot>,
        request: RecommendRequest,
    ) -> Result<RecommendAnswer, ErrorBody> {
        let request = Request::Recommend(Box::new(request));
        let catalogue = Arc::clone(self.control.catalogue());
        if request.effort() <= LIGHT {
            return recommended(answer(&snapshot, &catalogue, clock::now(), &request));
        }
        let permit = self.heavy_place().await?;
        beside(permit, move || recommended(answer(&snapshot, &catalogue, clock::now(), &request))).await.1
    }

    /// The same from the newest snapshot, for somebody who has an older one. Only one at a time is worked on, and work
    /// is followed by rest: those who ask now are answered while a change of the machine alters the answers of all who
    /// subscribed, and however many they are, they take a fifth of a core.
    pub async fn recommend_anew(
        &self,
        request: RecommendRequest,
    ) -> (Arc<Snapshot>, Result<RecommendAnswer, ErrorBody>) {
        let Ok(permit) = Arc::clone(&self.anew).acquire_owned().await else {
            // It is never closed.
            return (
                self.snapshot(),
                Err(Code::Internal.error("there is no place to work at", "report this")),
            );
        };
        let snapshot = self.snapshot();
        let (from, catalogue) = (Arc::clone(&snapshot), Arc::clone(self.control.catalogue()));
        let request = Request::Recommend(Box::new(request));
        let work = move || recommended(answer(&from, &catalogue, clock::now(), &request));
        let began = Instant::now();
        let (permit, answered) = beside(permit, work).await;
        let rest = (REST * began.elapsed()).min(LONGEST_REST);
        tokio::spawn(async move {
            tokio::time::sleep(rest).await;
            drop(permit);
        });
        (snapshot, answered)
    }

    /// Switches or holds for somebody who may.
    async fn power(&self, snapshot: &Arc<Snapshot>, call: Call<'_>) -> Result<Vec<u8>, ErrorBody> {
        // No hold of these routes is attached to its connection.
        let client = power::client(call.peer, 0, snapshot.control_enabled)?;
        let request = match call.spec.route {
            Route::SetMode => power::set_mode(call.body)?,
            Route::Confirm => power::confirm(call.body)?,
            Route::Revert => power::revert(call.body)?,
            Route::Renew => power::renew(call.argument, call.body)?,
            Route::Release => power::release(call.argument)?,
            _ => power::hold(&self.control, snapshot, call.body, false).await?,
        };
        power::ask(&self.control, clock::now, client, request).await?.encode()
    }

    /// Reads what a service measured beside the event loop: its model may be a file.
    async fn observations(
        &self,
        snapshot: &Arc<Snapshot>,
        body: &[u8],
    ) -> Result<(super::Command, bool), ErrorBody> {
        let (catalogue, snapshot) = (Arc::clone(self.control.catalogue()), Arc::clone(snapshot));
        let body = body.to_vec();
        let worker = tokio::task::spawn_blocking(move || command::observe(&snapshot, &catalogue, &body));
        worker.await.unwrap_or_else(|_| {
            Err(Code::Internal.error("the observations were not read to the end", "report this"))
        })
    }

    /// Hands a request to the daemon and waits for its reply.
    async fn command(&self, snapshot: &Arc<Snapshot>, call: Call<'_>) -> Result<Vec<u8>, ErrorBody> {
        let (command, power) = match call.spec.route {
            Route::Observations => self.observations(snapshot, call.body).await?,
            route => {
                may_run(call.peer, snapshot.control_enabled)?;
                let command = if route == Route::Measure {
                    command::measure(call.body)?
                } else {
                    command::calibrate(call.body)?
                };
                (command, false)
            }
        };
        let reply = self.control.ask(command).await;
        command::answered(&self.snapshot(), reply, power)
    }
}

/// Works beside the event loop and gives the place back. Where nobody waits any more it is free when the work is done.
async fn beside<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    work: impl FnOnce() -> Result<T, ErrorBody> + Send + 'static,
) -> (Option<OwnedSemaphorePermit>, Result<T, ErrorBody>) {
    let unfinished = || Code::Internal.error("the answer was not finished", "report this");
    match tokio::task::spawn_blocking(move || (permit, work())).await {
        Ok((permit, done)) => (Some(permit), done),
        Err(_) => (None, Err(unfinished())),
    }
}

fn recommended(answered: Result<Answer, ErrorBody>) -> Result<RecommendAnswer, ErrorBody> {
    match answered? {
        Answer::Recommend(answer) => Ok(*answer),
        _ => Err(Code::Internal.error("another question was answered", "report this")),
    }
}

fn roofline(query: &str) -> Result<Request, ErrorBody> {
    let (mut mode, mut precision, mut hardware) = (None, None, None);
    for (key, value) in query_pairs(query, &["mode", "precision", "hardware"])? {
        match key.as_str() {
            "mode" => mode = Some(value),
            "precision" => precision = Some(value),
            _ => hardware = Some(value),
        }
    }
    Ok(Request::Roofline { mode, precision, hardware })
}

/// Ready once the machine has been read.
/// A model of the registry in a format (bf16 where none is named).
fn model(call: Call<'_>) -> Result<Vec<u8>, ErrorBody> {
    let key = call.argument.unwrap_or_default();
    let known = registry::models().get(key).map_err(|error| {
        let hint = format!("did you mean {}? GET /v1/models lists all", error.nearest);
        Code::NotFound.error(format!("there is no model {:?}", error.key), hint)
    })?;
    let (mut recipe, mut cache) = (Recipe::of(WeightFormat::Bf16), WeightFormat::Fp16);
    for (key, value) in query_pairs(call.query, &["format", "kv_format"])? {
        let unknown = |error: UnknownName| {
            let hint = format!("did you mean {}?", error.nearest);
            Code::UnknownFormat.at(&key, format!("there is no format {:?}", error.name), hint)
        };
        match key.as_str() {
            "format" => recipe = value.parse().map_err(unknown)?,
            _ => cache = value.parse().map_err(unknown)?,
        }
    }
    command::encode(&ModelAnswer::of_known(known, &known.model(recipe), cache))
}

fn ready(snapshot: &Snapshot) -> Result<Vec<u8>, ErrorBody> {
    if !snapshot.state.taken_at.is_positive() {
        return Err(Code::NotReady.error(
            "the machine has not been read yet",
            "ask again in a second; rooflinectl doctor looks further",
        ));
    }
    command::encode(&json!({
        "ready": true, "calibrated": snapshot.calibration.is_some(), "degraded": snapshot.degraded,
        "serial": snapshot.serial,
    }))
}
