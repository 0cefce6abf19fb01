//! A candidate as an answer reports it, with its full prediction.

use std::sync::Arc;

use super::judge::CandidateRef;
use super::point::{CandidatePoint, points};
use super::score::{self, Score};
use super::{Objective, Query, QueryError, Work};
use crate::snapshot::Snapshot;
use predict::Prediction;
use predict::learning::models::{ModelQuery, stored_as};
use roofline::board::ActiveMode;
use roofline::precision::WeightFormat;
use roofline::units::Seconds;
use roofline::workload::Op;
use roofline::workload::model::Model;
use roofline::workload::transformer::Request;

use super::with_columns;

/// One combination of format, power mode and batch, and what it comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Key of the format; `None` for a file that does not say.
    pub format: Option<String>,
    /// Storage of the cache; `None` for an operation.
    pub kv_format: Option<WeightFormat>,
    /// The power mode; `None` where the machine has none.
    pub mode: Option<ActiveMode>,
    /// Worker threads, where they were to be chosen.
    pub threads: Option<u32>,
    /// Sequences (columns).
    pub batch: u64,
    pub score: Score,
    /// Its mode needs a reboot.
    pub reboot_required: bool,
    /// Until its mode is in force.
    pub entering: Seconds,
    option: usize,
    point: usize,
}

/// A candidate's prediction in full.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub runs: Runs,
    pub prediction: Prediction,
}

/// The work of a candidate, with its format and batch size.
#[derive(Debug, Clone, PartialEq)]
pub enum Runs {
    Op {
        op: Op,
        /// How its weights are stored.
        format: WeightFormat,
    },
    Model {
        model: Arc<Model>,
        /// What is asked of it.
        request: Request,
    },
}

pub(super) fn candidate(query: &Query, points: &[CandidatePoint<'_>], which: CandidateRef) -> Candidate {
    let point = &points[which.point];
    let (format, kv_format) = match &query.work {
        Work::Op { formats, .. } => (Some(formats[which.option].key().to_owned()), None),
        Work::Model { stored, kv_formats, .. } => {
            let (stored, kv_format) = score::form(stored, kv_formats, which.option);
            (stored.format.clone(), Some(kv_format))
        }
    };
    Candidate {
        format,
        kv_format,
        mode: point.mode.clone(),
        threads: point.threads,
        batch: which.batch,
        score: which.score,
        reboot_required: point.reboot,
        entering: point.entering,
        option: which.option,
        point: which.point,
    }
}

impl Candidate {
    /// The candidate predicted in full, from the snapshot and the query that it came from.
    ///
    /// # Errors
    /// What cannot be predicted, which a candidate can.
    pub fn outcome(&self, snapshot: &Snapshot, query: &Query) -> Result<Outcome, QueryError> {
        self.outcome_at(snapshot, query, &points(snapshot, query)?, Some(self.score.watts))
    }

    /// The same with what its batch draws alone: its own score may be that of a share of the machine.
    pub(super) fn outcome_alone(&self, snapshot: &Snapshot, query: &Query) -> Result<Outcome, QueryError> {
        self.outcome_at(snapshot, query, &points(snapshot, query)?, None)
    }

    /// The same with the operating points of the query at hand.
    pub(super) fn outcome_at(
        &self,
        snapshot: &Snapshot,
        query: &Query,
        points: &[CandidatePoint<'_>],
        watts: Option<f64>,
    ) -> Result<Outcome, QueryError> {
        let point = points.get(self.point).ok_or(QueryError::NoModes)?;
        match &query.work {
            Work::Op { op, formats } => {
                let format = formats[self.option];
                let lent = score::lent(&point.profile, query.engine);
                let prediction =
                    score::predicted_op(snapshot, point, &lent, query.engine, *op, format, self.batch)?;
                let prediction = score::with_power(prediction, point, watts);
                Ok(Outcome { runs: Runs::Op { op: with_columns(*op, self.batch), format }, prediction })
            }
            Work::Model { name, request, stored, kv_formats } => {
                let (stored, kv_cache) = score::form(stored, kv_formats, self.option);
                let request = Request { kv_cache, batch: self.batch, ..*request };
                let filed_as = stored_as(stored.format.as_deref(), kv_cache);
                let kernels = snapshot.kernels(&point.profile, query.engine);
                let asked = score::asked(
                    snapshot,
                    query,
                    name,
                    &filed_as,
                    stored,
                    &request,
                    point,
                    kernels.as_deref(),
                );
                let prediction = snapshot.observed_runs.predict(&ModelQuery { ..asked })?;
                Ok(Outcome {
                    runs: Runs::Model { model: Arc::clone(&stored.model), request },
                    prediction: score::with_power(prediction, point, watts),
                })
            }
        }
    }
}

/// By how much `chosen` is better than `other` in the objective, entering their modes counted, and the relative half-width
/// of the interval of the two's ratio.
pub(super) fn margin(
    query: &Query,
    chosen: (&Candidate, &Prediction),
    other: (&Candidate, &Prediction),
) -> (f64, f64) {
    let ((a, chosen), (b, other)) = (chosen, other);
    let spread = |slack: fn(&Prediction) -> f64| slack(chosen).ln().hypot(slack(other).ln()).exp() - 1.0;
    let entering = |candidate: &Candidate| 1.0 + candidate.entering.get() / query.run_time.get();
    let longer = entering(b) / entering(a);
    let (a, b) = (&a.score, &b.score);
    match query.objective {
        Objective::Latency => (b.time / a.time * longer - 1.0, spread(Prediction::time_slack)),
        Objective::Throughput => (a.rate / b.rate * longer - 1.0, spread(Prediction::time_slack)),
        Objective::Energy => (b.energy / a.energy * longer - 1.0, spread(Prediction::energy_slack)),
        Objective::Power => (b.watts / a.watts - 1.0, spread(Prediction::power_slack)),
    }
}
