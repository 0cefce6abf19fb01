//! An answer that is kept true for the client that subscribed with its query.

use std::sync::Arc;

use super::service::{Service, recommendation};
use rooflined_advice::Request;
use rooflined_advice::cause::may_alter;
use rooflined_advice::stale::renewed;
use rooflined_api::{AdviceStale, RecommendAnswer, RecommendRequest};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_predict::snapshot::Snapshot;

/// A query, and the answer that its client has.
#[derive(Debug)]
pub struct Advice {
    request: RecommendRequest,
    /// Whose answer it is.
    viewer: Option<u32>,
    previous: Result<RecommendAnswer, Refusal>,
    /// What that was answered from.
    previous_snapshot: Arc<Snapshot>,
    /// The newest snapshot that was answered from.
    seen: Arc<Snapshot>,
}

/// What a client is sent when its answer has changed.
#[derive(Debug)]
pub struct Renewal {
    /// Why the old answer no longer holds.
    pub stale: AdviceStale,
    /// The new one; `None` where it can no longer be answered.
    pub answer: Option<RecommendAnswer>,
}

impl Advice {
    /// Answers for the first time.
    ///
    /// # Errors
    /// What the answer would have been refused with; also a query about other hardware, of which nothing ever changes.
    pub async fn begin(
        service: &Service,
        snapshot: &Arc<Snapshot>,
        request: RecommendRequest,
        viewer: Option<u32>,
    ) -> Result<(Self, RecommendAnswer), Refusal> {
        let snapshot = &service.seen_by(snapshot, viewer);
        let question = Request::Recommend(Box::new(request.clone()));
        let answer = service.question(snapshot, viewer, question, recommendation).await?;
        if answer.serial != snapshot.serial {
            return Err(Code::InvalidField.at(
                "hardware",
                "hardware is not this machine: its data sheet does not change, and neither does the answer",
                "ask POST /v1/recommend once, or leave hardware out",
            ));
        }
        let (previous_snapshot, seen) = (Arc::clone(snapshot), Arc::clone(snapshot));
        Ok((Self { request, viewer, previous: Ok(answer.clone()), previous_snapshot, seen }, answer))
    }

    /// Re-evaluates the query where the newest snapshot differs from the one answered from last in anything that answers rest
    /// on. `None` while the previous answer holds.
    pub async fn renew(&mut self, service: &Service) -> Option<Renewal> {
        let newest = service.seen_by(&service.snapshot(), self.viewer);
        if newest.serial == self.seen.serial || !may_alter(&self.seen, &newest) {
            return None;
        }
        let (snapshot, now) = service.reevaluate(self.request.clone(), self.viewer).await;
        self.seen = Arc::clone(&snapshot);
        let stale = renewed((self.previous.as_ref(), &self.previous_snapshot), (now.as_ref(), &snapshot))?;
        let answer = now.as_ref().ok().cloned();
        self.previous = now;
        self.previous_snapshot = snapshot;
        Some(Renewal { stale, answer })
    }
}
