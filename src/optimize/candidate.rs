//! A candidate that somebody will read about, and its prediction in full.

use std::sync::Arc;

use super::judge::Which;
use super::place::{Place, places};
use super::score::{self, Score};
use super::{Query, QueryError, Work};
use crate::board::ActiveMode;
use crate::learning::models::{Asked, stored_as};
use crate::precision::WeightFormat;
use crate::predict::Prediction;
use crate::predict::model::ModelPrediction;
use crate::predict::power::Power;
use crate::snapshot::Snapshot;
use crate::units::Seconds;
use crate::workload::Op;
use crate::workload::model::Model;
use crate::workload::transformer::Request;

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
    /// What it comes to.
    pub score: Score,
    /// Its mode needs a reboot.
    pub reboot_required: bool,
    /// Until its mode is in force.
    pub entering: Seconds,
    option: usize,
    place: usize,
}

/// A candidate's prediction in full.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Of an operation.
    Op {
        /// With its columns.
        op: Op,
        /// How its weights are stored.
        format: WeightFormat,
        /// The prediction.
        prediction: Box<Prediction>,
    },
    /// Of a model.
    Model {
        /// The model in its format.
        model: Arc<Model>,
        /// What is asked of it.
        request: Request,
        /// The prediction.
        prediction: Box<ModelPrediction>,
    },
}

impl Outcome {
    /// Upper over middle of the interval of the time.
    #[must_use]
    pub fn time_slack(&self) -> f64 {
        let time = match self {
            Self::Op { prediction, .. } => prediction.time,
            Self::Model { prediction, .. } => prediction.time,
        };
        time.high / time.value
    }

    const fn power(&self) -> Option<Power> {
        match self {
            Self::Op { prediction, .. } => prediction.power,
            Self::Model { prediction, .. } => prediction.power,
        }
    }

    /// The same of the energy; NaN where it is unknown.
    #[must_use]
    pub fn energy_slack(&self) -> f64 {
        self.power().map_or(f64::NAN, |power| power.energy.high / power.energy.value)
    }

    /// The same of the power.
    #[must_use]
    pub fn power_slack(&self) -> f64 {
        self.power().map_or(f64::NAN, |power| power.watts.high / power.watts.value)
    }
}

pub(super) fn candidate(query: &Query, places: &[Place<'_>], which: Which) -> Candidate {
    let place = &places[which.place];
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
        mode: place.mode.clone(),
        threads: place.threads,
        batch: which.batch,
        score: which.score,
        reboot_required: place.reboot,
        entering: place.entering,
        option: which.option,
        place: which.place,
    }
}

impl Candidate {
    /// The candidate predicted in full, from the snapshot and the query that it came from.
    ///
    /// # Errors
    /// What cannot be predicted, which a candidate can.
    pub fn outcome(&self, snapshot: &Snapshot, query: &Query) -> Result<Outcome, QueryError> {
        self.outcome_at(snapshot, query, &places(snapshot, query)?)
    }

    /// The same with the places of the query at hand.
    pub(super) fn outcome_at(
        &self,
        snapshot: &Snapshot,
        query: &Query,
        places: &[Place<'_>],
    ) -> Result<Outcome, QueryError> {
        let place = places.get(self.place).ok_or(QueryError::NoModes)?;
        match &query.work {
            Work::Op { op, formats } => {
                let format = formats[self.option];
                let lent = score::lent(&place.profile, query.engine);
                let prediction =
                    score::predicted_op(snapshot, place, &lent, query.engine, *op, format, self.batch)?;
                Ok(Outcome::Op {
                    op: with_columns(*op, self.batch),
                    format,
                    prediction: Box::new(prediction),
                })
            }
            Work::Model { name, request, stored, kv_formats } => {
                let (stored, kv_cache) = score::form(stored, kv_formats, self.option);
                let request = Request { kv_cache, batch: self.batch, ..*request };
                let filed_as = stored_as(stored.format.as_deref(), kv_cache);
                let kernels = snapshot.kernels(&place.profile, query.engine);
                let asked = score::asked(
                    snapshot,
                    query,
                    name,
                    &filed_as,
                    stored,
                    &request,
                    place,
                    kernels.as_deref(),
                );
                let prediction = snapshot.learned.predict(&Asked { ..asked })?;
                Ok(Outcome::Model {
                    model: Arc::clone(&stored.model),
                    request,
                    prediction: Box::new(score::with_power(prediction, place)),
                })
            }
        }
    }
}
