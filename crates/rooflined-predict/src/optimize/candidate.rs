//! A candidate as an answer reports it, with its full prediction.

use std::sync::Arc;

use super::point::{CandidatePoint, points};
use super::ranking::CandidateRef;
use super::score::{self, Score};
use super::{EnergyBasis, Objective, Query, QueryError, WorkForms};
use crate::Prediction;
use crate::learning::models::{ModelQuery, stored_as};
use crate::power::Rails;
use crate::prediction::AtLeast;
use crate::snapshot::Snapshot;
use rooflined_core::board::ActiveMode;
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Hertz, Seconds, Watts};
use rooflined_models::model::Model;
use rooflined_models::transformer::Request;

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
    /// What its power covers; `None` where nothing is known of it.
    pub rails: Option<Rails>,
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
        WorkForms::Op { formats, .. } => (Some(formats[which.option].key().to_owned()), None),
        WorkForms::Model { stored, kv_formats, .. } => {
            let (stored, kv_format) = score::model_form(stored, kv_formats, which.option);
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
        rails: point.power.as_ref().map(|costs| costs.rails),
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
        self.outcome_at(snapshot, query, &points(snapshot, query)?)
    }

    /// The same with the operating points of the query.
    pub(super) fn outcome_at(
        &self,
        snapshot: &Snapshot,
        query: &Query,
        points: &[CandidatePoint<'_>],
    ) -> Result<Outcome, QueryError> {
        let of = points.get(self.point).ok_or(QueryError::NoModes)?;
        let clock = Hertz(self.score.clock);
        let slower = of.at_clock(snapshot, clock);
        let point = slower.as_ref().unwrap_or(of);
        let (runs, prediction) = match &query.work {
            WorkForms::Op { op, formats } => {
                let format = formats[self.option];
                let profile = score::lend(&point.profile, query.engine);
                let prediction =
                    score::predict_op(snapshot, point, &profile, query.engine, *op, format, self.batch)?;
                (Runs::Op { op: with_columns(*op, self.batch), format }, prediction)
            }
            WorkForms::Model { name, request, stored, kv_formats } => {
                let (stored, kv_cache) = score::model_form(stored, kv_formats, self.option);
                let request = Request { kv_cache, batch: self.batch, ..*request };
                let filed_as = stored_as(stored.format.as_deref(), kv_cache);
                let kernels = snapshot.kernels(&point.profile, query.engine);
                let prediction = snapshot.observed_runs.predict(&ModelQuery {
                    kernels: kernels.as_deref(),
                    ..score::model_query(snapshot, query.engine, name, &filed_as, stored, &request, point)
                })?;
                (Runs::Model { model: Arc::clone(&stored.model), request }, prediction)
            }
        };
        let Score { time, slack, watts, watts_high, .. } = self.score;
        let watts = Some(watts).filter(|watts| watts.is_finite()).map(Watts);
        let at_least = AtLeast {
            time_high: Seconds(time * slack),
            watts: watts.map(|watts| [watts, Watts(watts_high)]),
        };
        let mut prediction = prediction.with_power_at(point.power(), at_least);
        if let Some(limit) = &of.limit {
            limit.hold(snapshot, &mut prediction);
            prediction.warnings.extend(limit.words(clock, watts));
        }
        Ok(Outcome { runs, prediction })
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
        Objective::Energy => {
            let slack = match query.energy {
                EnergyBasis::WithIdle => Prediction::energy_slack,
                EnergyBasis::Marginal => Prediction::marginal_energy_slack,
            };
            (b.energy / a.energy * longer - 1.0, spread(slack))
        }
        Objective::Power => (b.watts / a.watts - 1.0, spread(Prediction::power_slack)),
    }
}
