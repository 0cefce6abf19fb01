//! From a route and a body to the bytes of an answer: what HTTP and D-Bus `Query` have in common.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::answer_cache::{AnswerCache, is_cacheable};
use super::judge::{self, Accepted, Call, Content, Stream};
use super::metrics::{Counters, page};
use super::routes::Route;
use super::{Control, Snapshots, clock, command, power};
use answer::{Answer, Request, answer};
use decide::snapshot::Snapshot;
use roofline::refusal::{Code, Refusal};
use wire::{RecommendAnswer, RecommendRequest};

/// Answers that take more predictions than this are computed beside the event loop.
const LIGHT: u64 = 256;
/// So many of them at once; each may hold megabytes.
const HEAVY_AT_ONCE: usize = 2;
/// Waiting for one of those places.
const HEAVY_WAIT: Duration = Duration::from_secs(5);

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
    heavy: Arc<Semaphore>,
    cache: AnswerCache,
    /// Permit to re-evaluate an earlier answer.
    reevaluation: Arc<Semaphore>,
    /// The newest snapshot as users see it whose answers differ from everybody's.
    views: Mutex<Views>,
    /// Boot-time second in which the daemon was last notified that somebody looks.
    watched_at: AtomicU64,
}

/// Copies of one snapshot, by the user who sees them.
#[derive(Debug, Default)]
struct Views {
    /// Of the snapshot that they are copies of.
    serial: u64,
    of: Vec<(u32, Arc<Snapshot>)>,
}

/// What a request comes to.
#[derive(Debug)]
pub enum Answered {
    Whole(Content),
    /// One without an end, which begins now.
    Stream(Stream),
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
            cache: AnswerCache::default(),
            reevaluation: Arc::new(Semaphore::new(1)),
            views: Mutex::default(),
            watched_at: AtomicU64::new(0),
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
        let known = {
            let views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
            let view = views.of.iter().find(|(user, _)| *user == uid && views.serial == snapshot.serial);
            view.map(|(_, view)| Arc::clone(view))
        };
        known.unwrap_or_else(|| {
            let view = snapshot.seen_by(uid);
            if !Arc::ptr_eq(&view, snapshot) {
                let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
                if views.serial != snapshot.serial {
                    *views = Views { serial: snapshot.serial, of: Vec::new() };
                }
                views.of.push((uid, Arc::clone(&view)));
            }
            view
        })
    }

    /// Tells the daemon that somebody looks, at most once a second.
    pub fn watched(&self, now: roofline::units::Seconds) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds since boot")]
        let second = now.get() as u64;
        if self.watched_at.swap(second, Ordering::Relaxed) != second {
            self.control.watched();
        }
    }

    /// Answers every route, from `snapshot`.
    ///
    /// # Errors
    /// What the answer would have been refused with.
    pub async fn respond(&self, snapshot: &Arc<Snapshot>, call: Call<'_>) -> Result<Answered, Refusal> {
        let viewer = if snapshot.reports.is_empty() { None } else { call.caller.account() };
        let seen = self.seen_by(snapshot, viewer);
        // Everybody who sees the same is answered the same.
        let viewer = viewer.filter(|_| !Arc::ptr_eq(&seen, snapshot));
        // What is cached was judged when it was first asked.
        if call.route == Route::Recommend
            && call.query.is_empty()
            && let Some(known) = self.cache.find(snapshot.serial, viewer, call.body)
        {
            self.watched(clock::now().boottime);
            return Ok(Answered::Whole(Content::Json(known)));
        }
        let json = match self.judge(snapshot, call).await? {
            Accepted::Shown(content) => return Ok(Answered::Whole(content)),
            Accepted::Metrics => {
                let page = page(snapshot, clock::now(), &self.counters, self.label);
                return Ok(Answered::Whole(Content::Text(page)));
            }
            Accepted::Stream(stream) => return Ok(Answered::Stream(stream)),
            Accepted::Question(request) => self.question(&seen, viewer, *request, call.body).await?,
            Accepted::Order { client, request } => {
                power::ask(&self.control, clock::now, client, request).await?.encode()?
            }
            Accepted::Command { command, power } => {
                let reply = self.control.ask(command).await;
                command::answered(&self.snapshot(), reply, power)?
            }
        };
        Ok(Answered::Whole(Content::Json(json)))
    }

    /// Judges a request of any route, which is a sign that somebody looks.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn judge(&self, snapshot: &Arc<Snapshot>, call: Call<'_>) -> Result<Accepted, Refusal> {
        if !matches!(call.route, Route::Ready | Route::Healthy | Route::OpenApi | Route::Metrics) {
            self.watched(clock::now().boottime);
        }
        judge::judge(&self.control, snapshot, call).await
    }

    async fn question(
        &self,
        snapshot: &Arc<Snapshot>,
        viewer: Option<u32>,
        request: Request,
        body: &[u8],
    ) -> Result<Vec<u8>, Refusal> {
        let cacheable = is_cacheable(&request);
        let encoded = if request.effort() > LIGHT {
            self.heavy(Arc::clone(snapshot), request).await?
        } else {
            command::encode(&answer(snapshot, self.control.catalogue(), clock::now(), &request)?)?
        };
        if cacheable {
            self.cache.insert(snapshot.serial, viewer, body, &encoded);
        }
        Ok(encoded)
    }

    /// Computes and encodes beside the event loop, which would stand still for tens of milliseconds otherwise.
    async fn heavy(&self, snapshot: Arc<Snapshot>, request: Request) -> Result<Vec<u8>, Refusal> {
        let catalogue = Arc::clone(self.control.catalogue());
        let permit = self.heavy_place().await?;
        let work = move || {
            let answered: Result<Answer, Refusal> = answer(&snapshot, &catalogue, clock::now(), &request);
            answered.and_then(|answer| command::encode(&answer))
        };
        beside(permit, work).await.1
    }

    async fn heavy_place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
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
    ) -> Result<RecommendAnswer, Refusal> {
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
}

/// Works beside the event loop and gives the place back. Where nobody waits any more it is free when the work is done.
async fn beside<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> (Option<OwnedSemaphorePermit>, Result<T, Refusal>) {
    let unfinished = || Code::Internal.error("the answer was not finished", "report this");
    match tokio::task::spawn_blocking(move || (permit, work())).await {
        Ok((permit, done)) => (Some(permit), done),
        Err(_) => (None, Err(unfinished())),
    }
}

fn recommended(answered: Result<Answer, Refusal>) -> Result<RecommendAnswer, Refusal> {
    match answered? {
        Answer::Recommend(answer) => Ok(*answer),
        _ => Err(Code::Internal.error("another question was answered", "report this")),
    }
}
