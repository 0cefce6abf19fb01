//! Rejects queries that cannot have an answer, before anything is computed.

use super::point::CandidatePoint;
use super::{MAX_CANDIDATES, MAX_SUMMED, Modes, Query, QueryError, WorkForms};
use crate::snapshot::Snapshot;
use rooflined_core::operation::Op;
use rooflined_models::transformer::{Phase, Request};

pub(super) fn query(query: &Query) -> Result<(), QueryError> {
    let (min, max) = (*query.batch.start(), *query.batch.end());
    if min == 0 || min > max {
        return Err(QueryError::EmptyBatch { min, max });
    }
    if query.work.options() == 0 {
        return Err(QueryError::NoFormats);
    }
    if matches!(&query.modes, Modes::Listed(ids) if ids.is_empty()) && query.caps.is_empty() {
        return Err(QueryError::NoModes);
    }
    match &query.work {
        WorkForms::Op { op, .. } => {
            op.validate()?;
            if matches!(op, Op::Attention { .. }) {
                return Err(QueryError::NothingToChoose { kind: op.kind() });
            }
        }
        WorkForms::Model { request, .. } => times_exist(query, request)?,
    }
    Ok(())
}

/// The cross product with these operating points.
pub(super) fn size(
    snapshot: &Snapshot,
    query: &Query,
    points: &[CandidatePoint<'_>],
) -> Result<(), QueryError> {
    let (candidates, most) = candidates(snapshot, query, points);
    if candidates > most {
        let sizes = (query.batch.end() - query.batch.start()).saturating_add(1);
        let batches = (most / (candidates / sizes).max(1)).max(1);
        return Err(QueryError::TooMany { candidates, most, batches });
    }
    Ok(())
}

/// Size of the cross product with these operating points, and the most that one of its kind may have.
pub(super) fn candidates(snapshot: &Snapshot, query: &Query, points: &[CandidatePoint<'_>]) -> (u64, u64) {
    let (min, max) = (*query.batch.start(), *query.batch.end());
    let options = query.work.options() as u64;
    let batches = (max - min).saturating_add(1);
    let candidates = batches.saturating_mul(options).saturating_mul(points.len() as u64);
    let summed = matches!(query.work, WorkForms::Model { .. })
        && (snapshot.cpu_host(query.engine, None).is_some()
            || points.iter().any(|point| snapshot.kernels(&point.profile, query.engine).is_some()));
    (candidates, if summed { MAX_SUMMED } else { MAX_CANDIDATES })
}

/// A limit on a time that the work does not have would never be met, or mean nothing.
const fn times_exist(query: &Query, request: &Request) -> Result<(), QueryError> {
    let of = &query.constraints;
    match request.phase {
        Phase::Decode if of.max_time_to_first_token.is_some() => {
            Err(QueryError::NoSuchTime { constraint: "max_time_to_first_token_s", work: "phase decode" })
        }
        Phase::Prefill if of.max_time_per_token.is_some() => {
            Err(QueryError::NoSuchTime { constraint: "max_time_per_token_s", work: "phase prefill" })
        }
        // The first token comes with the prompt.
        Phase::Serve if of.max_time_per_token.is_some() && request.output_tokens <= 1 => {
            Err(QueryError::NoSuchTime { constraint: "max_time_per_token_s", work: "an answer of one token" })
        }
        _ => Ok(()),
    }
}
