//! From a route and a body to the bytes of an answer: what HTTP and D-Bus `Query` have in common.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::audit::{Refusals, Refused};
use super::dispatch::{Accepted, Answered, Call, dispatch};
use super::metrics::{Counters, page};
use super::routes::Route;
use super::shares::{User, run_blocking};
use super::{Control, Snapshots, clock, command, power};
use crate::server::command::unwritten;
use rooflined_advice::recent::Recent;
use rooflined_advice::{Answer, Request, Wanted, answer_while};
use rooflined_api::{RecommendAnswer, RecommendRequest};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_predict::snapshot::Snapshot;

/// Answers that take more predictions than this are computed beside the event loop.
const LIGHT: u64 = 256;

/// After a re-evaluation of some length none begins for this many times as long.
const REST: u32 = 4;
/// But no longer than this.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Everything an answer is given from.
#[derive(Debug)]
pub struct Service {
    pub snapshots: Snapshots,
    /// The way to the daemon.
    pub control: Control,
    /// What the server counts about itself.
    pub counters: Arc<Counters>,
    /// Label of those counters.
    pub label: &'static str,
    /// Of `/v1/predict`: a client with many questions displaces no decision.
    predictions: Recent<AnswerKey, Vec<u8>>,
    /// Of `/v1/recommend`.
    decisions: Recent<AnswerKey, Vec<u8>>,
    refusals: Refusals,
    /// Permit to re-evaluate an earlier answer.
    reevaluation: Arc<Semaphore>,
    /// Snapshots as users see them whose answers differ from everybody's.
    views: Recent<ViewKey, Arc<Snapshot>>,
}

/// Answers to keep of one route; clients that ask again ask about a few models.
const ANSWERS: usize = 64;
const ANSWER_BYTES: usize = 4 << 20;
/// Copies of a snapshot to keep, each of which shares most with the others.
const VIEWS: usize = 64;
const VIEW_BYTES: usize = 64 * 1024;

/// Most bytes, as JSON, of an answer that is sent as values and not as text.
const MAX_VALUE_BYTES: usize = 1 << 20;

/// What an answer depends on.
#[derive(Debug)]
struct AnswerKey {
    /// Of the snapshot.
    serial: u64,
    /// Whose answer it is; `None`: everybody's who reported nothing.
    viewer: Option<u32>,
    body: Box<[u8]>,
}

/// A snapshot by its serial as a user sees it.
type ViewKey = (u64, u32);

impl Service {
    /// A service for one transport.
    #[must_use]
    pub fn new(snapshots: Snapshots, control: Control, label: &'static str) -> Self {
        Self {
            snapshots,
            control,
            counters: Arc::default(),
            label,
            predictions: Recent::new(ANSWERS, ANSWER_BYTES),
            decisions: Recent::new(ANSWERS, ANSWER_BYTES),
            refusals: Refusals::default(),
            reevaluation: Arc::new(Semaphore::new(1)),
            views: Recent::new(VIEWS, VIEWS * VIEW_BYTES),
        }
    }

    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshots.borrow())
    }

    /// A snapshot as a user sees it: a copy is made where its answers differ from everybody's, once for each serial.
    #[must_use]
    pub fn seen_by(&self, snapshot: &Arc<Snapshot>, uid: Option<u32>) -> Arc<Snapshot> {
        let Some(uid) = uid.filter(|_| !snapshot.reports.is_empty()) else { return Arc::clone(snapshot) };
        if let Some(view) = self.views.find(|key| *key == (snapshot.serial, uid)) {
            return view;
        }
        let view = snapshot.seen_by(uid);
        if !Arc::ptr_eq(&view, snapshot) {
            self.views.retain(|(serial, _)| *serial >= snapshot.serial);
            self.views.keep((snapshot.serial, uid), Arc::clone(&view), VIEW_BYTES);
        }
        view
    }

    /// Says that a request was refused, where that is anybody else's business.
    pub fn refused(&self, route: Route, body: &[u8], uid: Option<u32>, refusal: &Refusal) {
        let serial = self.snapshots.borrow().serial;
        self.refusals.record(Refused { route, body, uid, refusal, serial });
    }

    /// Answers every route, from `snapshot`.
    ///
    /// # Errors
    /// What the answer would have been refused with.
    pub async fn respond(&self, snapshot: &Arc<Snapshot>, call: Call<'_>) -> Result<Answered, Refusal> {
        let answered = async {
            let (user, body, serial) = (call.caller.account(), call.body, snapshot.serial);
            let seen = self.seen_by(snapshot, user);
            // Everybody who sees the same is answered the same.
            let viewer = user.filter(|_| !Arc::ptr_eq(&seen, snapshot));
            let cache = match call.route {
                _ if !call.query.is_empty() => None,
                Route::Predict => Some(&self.predictions),
                Route::Recommend => Some(&self.decisions),
                _ => None,
            };
            let is_same = |key: &AnswerKey| (key.serial, key.viewer, &*key.body) == (serial, viewer, &**body);
            // What is cached was checked when it was first asked.
            if let Some(known) = cache.and_then(|cache| cache.find(is_same)) {
                self.control.looked();
                return Ok(Answered::Json(known));
            }
            match dispatch(&self.control, snapshot, call).await? {
                Accepted::Answered(answered) => Ok(answered),
                Accepted::Metrics => {
                    Ok(Answered::Text(page(snapshot, clock::now(), &self.counters, self.label)))
                }
                Accepted::Question { request, from_files } => {
                    let json =
                        self.question(&seen, user, *request, |answer| command::encode(&answer)).await?;
                    // A file may change while the snapshot stays.
                    if let Some(cache) = cache.filter(|_| !from_files) {
                        cache.retain(|key| key.serial >= serial);
                        let key = AnswerKey { serial, viewer, body: (**body).into() };
                        cache.keep(key, json.clone(), body.len() + json.len());
                    }
                    Ok(Answered::Json(json))
                }
                Accepted::Order { client, request } => {
                    let answer = power::ask(&self.control, clock::now, client, request).await?;
                    command::encode(&answer).map(Answered::Json)
                }
                Accepted::Command { command, power } => {
                    let reply = self.control.ask(command).await;
                    command::encode_reply(&self.snapshot(), reply, power).map(Answered::Json)
                }
            }
        };
        answered.await.inspect_err(|refusal| {
            self.refused(call.route, call.body, call.caller.uid(), refusal);
        })
    }

    /// The answer to a question as a value in memory.
    ///
    /// # Errors
    /// As [`respond`](Self::respond); also a route that is no question.
    pub async fn value(&self, snapshot: &Arc<Snapshot>, call: Call<'_>) -> Result<Value, Refusal> {
        let answered = async {
            let Accepted::Question { request, .. } = dispatch(&self.control, snapshot, call).await? else {
                return Err(Code::Internal.error("another question was answered", "report this"));
            };
            let user = call.caller.account();
            let write = |answer| {
                // As variants it takes many times as much memory as in JSON.
                command::encode_within(&answer, MAX_VALUE_BYTES)?;
                serde_json::to_value(answer).map_err(|error| unwritten(&error))
            };
            self.question(&self.seen_by(snapshot, user), user, *request, write).await
        };
        answered.await.inspect_err(|refusal| {
            self.refused(call.route, call.body, call.caller.uid(), refusal);
        })
    }

    /// Answers and writes: a large question on a thread of its own, because the event loop would stand still for tens of
    /// milliseconds otherwise.
    ///
    /// # Errors
    /// What the answer would have been refused with.
    pub async fn question<T: Send + 'static>(
        &self,
        snapshot: &Arc<Snapshot>,
        user: User,
        request: Request,
        write: impl FnOnce(Answer) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let large = request.effort() > LIGHT;
        let (snapshot, catalogue) = (Arc::clone(snapshot), Arc::clone(&self.control.catalogue));
        let work = move |wanted: Wanted<'_>| {
            write(answer_while(wanted, &snapshot, &catalogue, clock::now(), &request)?)
        };
        if !large {
            return work(Wanted::ALWAYS);
        }
        let turn = self.control.work.large(user).await?;
        run_blocking(turn, work).await.1
    }

    /// A recommendation from the newest snapshot, for somebody who has an older one. Only one at a time is worked on, and work
    /// is followed by rest: those who ask now are answered while a change of the machine alters the answers of all who
    /// subscribed, and however many they are, they take a fifth of a core.
    pub async fn reevaluate(
        &self,
        request: RecommendRequest,
        viewer: Option<u32>,
    ) -> (Arc<Snapshot>, Result<RecommendAnswer, Refusal>) {
        let Ok(permit) = Arc::clone(&self.reevaluation).acquire_owned().await else {
            // It is never closed.
            return (
                self.seen_by(&self.snapshot(), viewer),
                Err(Code::Internal.error("there is no permit to work with", "report this")),
            );
        };
        let snapshot = self.seen_by(&self.snapshot(), viewer);
        let (from, catalogue) = (Arc::clone(&snapshot), Arc::clone(&self.control.catalogue));
        let request = Request::Recommend(Box::new(request));
        let work = move |wanted: Wanted<'_>| {
            recommendation(answer_while(wanted, &from, &catalogue, clock::now(), &request)?)
        };
        let began = Instant::now();
        let (permit, answered) = run_blocking(permit, work).await;
        let rest = (REST * began.elapsed()).min(LONGEST_REST);
        tokio::spawn(async move {
            tokio::time::sleep(rest).await;
            drop(permit);
        });
        (snapshot, answered)
    }
}

/// The answer to a recommendation that was asked for.
///
/// # Errors
/// It is another answer.
pub fn recommendation(answer: Answer) -> Result<RecommendAnswer, Refusal> {
    match answer {
        Answer::Recommend(answer) => Ok(*answer),
        _ => Err(Code::Internal.error("another question was answered", "report this")),
    }
}
