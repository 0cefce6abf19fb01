//! From a route and a body to the bytes of an answer: what HTTP and D-Bus `Query` have in common.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::answer_cache::{AnswerCache, Asked, is_cacheable};
use super::audit::{Refusals, Refused};
use super::form::Form;
use super::judge::{self, Accepted, Call, Content, Stream};
use super::metrics::{Counters, page};
use super::routes::Route;
use super::shares::{User, beside};
use super::{Control, Snapshots, clock, command, model_files, power};
use answer::{Answer, Request, answer};
use decide::snapshot::Snapshot;
use roofline::refusal::{Code, Refusal};
use wire::{RecommendAnswer, RecommendRequest};

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
    predictions: AnswerCache,
    /// Of `/v1/recommend`.
    decisions: AnswerCache,
    refusals: Refusals,
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
            predictions: AnswerCache::default(),
            decisions: AnswerCache::default(),
            refusals: Refusals::default(),
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

    /// What was answered on that route, where it is kept.
    const fn cache_of(&self, route: Route) -> Option<&AnswerCache> {
        match route {
            Route::Predict => Some(&self.predictions),
            Route::Recommend => Some(&self.decisions),
            _ => None,
        }
    }

    /// Tells the daemon that somebody looks, at most once a second.
    pub fn watched(&self, now: roofline::units::Seconds) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds since boot")]
        let second = now.get() as u64;
        if self.watched_at.swap(second, Ordering::Relaxed) != second {
            self.control.watched();
        }
    }

    /// Says that a request was refused, where that is anybody else's business.
    pub fn refused(&self, route: Route, body: &[u8], uid: Option<u32>, refusal: &Refusal) {
        let serial = self.snapshots.borrow().serial;
        self.refusals.record(Refused { route, body, uid, refusal, serial });
    }

    /// Answers every route, from `snapshot`; questions in that form.
    ///
    /// # Errors
    /// What the answer would have been refused with.
    pub async fn respond(
        &self,
        snapshot: &Arc<Snapshot>,
        call: Call<'_>,
        form: Form,
    ) -> Result<Answered, Refusal> {
        let answered = self.answer(snapshot, call, form).await;
        if let Err(refusal) = &answered {
            self.refused(call.route, call.body, call.caller.uid(), refusal);
        }
        answered
    }

    async fn answer(
        &self,
        snapshot: &Arc<Snapshot>,
        call: Call<'_>,
        form: Form,
    ) -> Result<Answered, Refusal> {
        let user = call.caller.account();
        let viewer = if snapshot.reports.is_empty() { None } else { user };
        let seen = self.seen_by(snapshot, viewer);
        // Everybody who sees the same is answered the same.
        let viewer = viewer.filter(|_| !Arc::ptr_eq(&seen, snapshot));
        let asked = Asked { viewer, form, body: call.body };
        let cache = self.cache_of(call.route);
        // What is cached was judged when it was first asked.
        if call.query.is_empty()
            && let Some(known) = cache.and_then(|cache| cache.find(snapshot.serial, &asked))
        {
            self.watched(clock::now().boottime);
            return Ok(Answered::Whole(known));
        }
        self.looked(call.route);
        let turn = self.control.work().body(user, call.body).await;
        let told = self.told(snapshot, call).await?;
        // What rests on a file is asked again with the same words when that is another.
        let cached_by = cache.filter(|_| matches!(told, Cow::Borrowed(_))).map(|cache| (cache, asked));
        let accepted = judge::judge(&self.control, snapshot, Call { body: &told, ..call }).await?;
        drop(turn);
        let json = match accepted {
            Accepted::Shown(content) => return Ok(Answered::Whole(content)),
            Accepted::Metrics => {
                let page = page(snapshot, clock::now(), &self.counters, self.label);
                return Ok(Answered::Whole(Content::Text(page)));
            }
            Accepted::Stream(stream) => return Ok(Answered::Stream(stream)),
            Accepted::Question(request) => {
                return self.question(&seen, (user, form), *request, cached_by).await.map(Answered::Whole);
            }
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
        self.looked(call.route);
        let told = self.told(snapshot, call).await?;
        judge::judge(&self.control, snapshot, Call { body: &told, ..call }).await
    }

    fn looked(&self, route: Route) {
        if !matches!(route, Route::Ready | Route::Healthy | Route::OpenApi | Route::Metrics) {
            self.watched(clock::now().boottime);
        }
    }

    /// The body with the contents of the model files that it names, for those who may ask.
    async fn told<'b>(&self, snapshot: &Snapshot, call: Call<'b>) -> Result<Cow<'b, [u8]>, Refusal> {
        if !call.route.takes_models() || !model_files::may_name_a_file(call.body) {
            return Ok(Cow::Borrowed(call.body));
        }
        judge::may(snapshot, call)?;
        self.control.files().told(call.body, call.descriptors, call.caller.account()).await
    }

    async fn question(
        &self,
        snapshot: &Arc<Snapshot>,
        (user, form): (User, Form),
        request: Request,
        cached_by: Option<(&AnswerCache, Asked<'_>)>,
    ) -> Result<Content, Refusal> {
        let cached_by = cached_by.filter(|_| is_cacheable(&request));
        let written = if request.effort() > LIGHT {
            self.heavy((user, form), Arc::clone(snapshot), request).await?
        } else {
            form.write(&answer(snapshot, self.control.catalogue(), clock::now(), &request)?)?
        };
        if let Some((cache, asked)) = cached_by {
            cache.insert(snapshot.serial, &asked, &written);
        }
        Ok(written)
    }

    /// Computes and writes beside the event loop, which would stand still for tens of milliseconds otherwise.
    async fn heavy(
        &self,
        (user, form): (User, Form),
        snapshot: Arc<Snapshot>,
        request: Request,
    ) -> Result<Content, Refusal> {
        let catalogue = Arc::clone(self.control.catalogue());
        let turn = self.control.work().large(user).await?;
        let work = move || {
            let answered: Result<Answer, Refusal> = answer(&snapshot, &catalogue, clock::now(), &request);
            answered.and_then(|answer| form.write(&answer))
        };
        beside(turn, work).await.1
    }

    /// A recommendation from `snapshot`, for somebody who waits for it.
    ///
    /// # Errors
    /// What the answer would have been refused with.
    pub async fn recommend(
        &self,
        user: User,
        snapshot: Arc<Snapshot>,
        request: RecommendRequest,
    ) -> Result<RecommendAnswer, Refusal> {
        let request = Request::Recommend(Box::new(request));
        let catalogue = Arc::clone(self.control.catalogue());
        if request.effort() <= LIGHT {
            return recommended(answer(&snapshot, &catalogue, clock::now(), &request));
        }
        let turn = self.control.work().large(user).await?;
        beside(turn, move || recommended(answer(&snapshot, &catalogue, clock::now(), &request))).await.1
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

fn recommended(answered: Result<Answer, Refusal>) -> Result<RecommendAnswer, Refusal> {
    match answered? {
        Answer::Recommend(answer) => Ok(*answer),
        _ => Err(Code::Internal.error("another question was answered", "report this")),
    }
}
