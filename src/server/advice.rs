//! An answer that is kept true for the client that subscribed with its query.

use std::sync::Arc;

use super::service::Service;
use crate::answer::cause::may_alter;
use crate::answer::error::Code;
use crate::answer::parse::parse;
use crate::answer::stale::renewed;
use crate::api::{AdviceStale, ErrorBody, RecommendAnswer, RecommendRequest};
use crate::snapshot::Snapshot;

/// A query, and what its client was told.
#[derive(Debug)]
pub struct Advice {
    request: RecommendRequest,
    told: Result<RecommendAnswer, ErrorBody>,
    /// What that was told from.
    told_of: Arc<Snapshot>,
    /// The newest snapshot that was answered from.
    seen: Arc<Snapshot>,
}

/// What a client is told when its answer has altered.
#[derive(Debug)]
pub struct Renewal {
    /// Why the old answer no longer holds.
    pub stale: AdviceStale,
    /// The new one; `None` where it can no longer be answered.
    pub answer: Option<RecommendAnswer>,
}

impl Advice {
    /// Reads a query.
    ///
    /// # Errors
    /// The body is no query.
    pub fn query(body: &[u8]) -> Result<RecommendRequest, ErrorBody> {
        parse(body)
    }

    /// Answers for the first time.
    ///
    /// # Errors
    /// What the answer would have been refused with; also a query about other hardware, of which nothing ever changes.
    pub async fn begin(
        service: &Service,
        snapshot: &Arc<Snapshot>,
        request: RecommendRequest,
    ) -> Result<(Self, RecommendAnswer), ErrorBody> {
        let answer = service.recommend(Arc::clone(snapshot), request.clone()).await?;
        if answer.serial != snapshot.serial {
            return Err(Code::InvalidField.at(
                "hardware",
                "hardware is not this machine: its data sheet does not change, and neither does the answer",
                "ask POST /v1/recommend once, or leave hardware out",
            ));
        }
        let (told_of, seen) = (Arc::clone(snapshot), Arc::clone(snapshot));
        Ok((Self { request, told: Ok(answer.clone()), told_of, seen }, answer))
    }

    /// Answers anew where the newest snapshot differs from the one answered from last in anything that answers rest
    /// on. `None` while the answer that was told holds.
    pub async fn renew(&mut self, service: &Service) -> Option<Renewal> {
        let newest = service.snapshot();
        if newest.serial == self.seen.serial || !may_alter(&self.seen, &newest) {
            return None;
        }
        let (snapshot, now) = service.recommend_anew(self.request.clone()).await;
        self.seen = Arc::clone(&snapshot);
        let stale = renewed((self.told.as_ref(), &self.told_of), (now.as_ref(), &snapshot))?;
        let answer = now.as_ref().ok().cloned();
        self.told = now;
        self.told_of = snapshot;
        Some(Renewal { stale, answer })
    }
}
