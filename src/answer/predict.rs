//! Predictions of one operation or one model.

use std::borrow::Cow;

use super::catalogue::Catalogue;
use super::error::Code;
use super::model::ModelTask;
use super::modes::Model;
use super::task::{Task, model_at, unpredictable};
use super::{positive, run};
use crate::api::convert::{bound_key, limit_key, provenance_key, tier_key};
use crate::api::{
    BreakdownEntry, ErrorBody, EstimateAnswer, MemoryAnswer, ObservationRequest, PredictAnswer,
    PredictRequest, Workload,
};
use crate::learning::Residuals;
use crate::predict::{Engine, Prediction};
use crate::roofline::Provenance;
use crate::snapshot::Snapshot;
use crate::units::{Bytes, Seconds};
use crate::workload::Op;

/// Most observations of one prediction; each is a prediction itself.
const MAX_OBSERVATIONS: usize = 256;

/// An operation or a model, as one engine would run it.
#[derive(Debug, Clone)]
pub enum Work {
    /// One operation.
    Op(Task),
    /// A whole model.
    Model(Box<ModelTask>),
}

impl Work {
    /// Reads the workload at `path` of the request. Blocks where it is a model in a file.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn new(
        snapshot: &Snapshot,
        catalogue: &Catalogue,
        workload: &Workload,
        engine: Engine,
        path: &str,
    ) -> Result<Self, ErrorBody> {
        if workload.model.is_some() {
            return ModelTask::new(snapshot, catalogue, workload, engine, path)
                .map(|task| Self::Model(Box::new(task)));
        }
        Task::new(snapshot, workload, engine, path).map(Self::Op)
    }
}

/// `POST /v1/predict`.
pub fn predict(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &PredictRequest,
) -> Result<PredictAnswer, ErrorBody> {
    let model = model_at(snapshot, request.operating_point.as_ref(), "operating_point")?;
    let work = Work::new(snapshot, catalogue, &request.workload, request.engine, "workload")?;
    let residuals = supposing(snapshot, &request.observations)?;
    predicted(snapshot, &model, &residuals, &work, "workload")
}

/// Predicts the work at `path` of the request and puts it into the shape of the wire.
///
/// # Errors
/// An impossible operation, or a precision with no unit to run on.
pub fn predicted(
    snapshot: &Snapshot,
    model: &Model<'_>,
    residuals: &Residuals,
    work: &Work,
    path: &str,
) -> Result<PredictAnswer, ErrorBody> {
    match work {
        Work::Op(task) => {
            predicted_op(snapshot, model, residuals, task).map_err(|error| unpredictable(&error, path))
        }
        Work::Model(task) => {
            let prediction = run::run(snapshot, model, task, path)?;
            Ok(run::shown(snapshot, task, prediction))
        }
    }
}

/// What was learnt, as if `observations` had been made as well.
fn supposing<'a>(
    snapshot: &'a Snapshot,
    observations: &[ObservationRequest],
) -> Result<Cow<'a, Residuals>, ErrorBody> {
    if observations.is_empty() {
        return Ok(Cow::Borrowed(&snapshot.residuals));
    }
    if observations.len() > MAX_OBSERVATIONS {
        return Err(Code::TooMany.at(
            "observations",
            format!("{} observations are more than {MAX_OBSERVATIONS}", observations.len()),
            "send the newest ones",
        ));
    }
    let mut residuals = snapshot.residuals.clone();
    for (index, observation) in observations.iter().enumerate() {
        let path = format!("observations[{index}]");
        let (task, time) = observed(snapshot, observation, &path)?;
        let model =
            model_at(snapshot, observation.operating_point.as_ref(), &format!("{path}.operating_point"))?;
        let workload = format!("{path}.workload");
        let prediction = task.predict(&model).map_err(|error| unpredictable(&error, &workload))?;
        residuals.observe(task.residual_key(), &prediction, time).map_err(|refused| {
            Code::ImpossibleObservation.at(
                format!("{path}.{}", if observation.time_s.is_some() { "time_s" } else { "tokens_per_s" }),
                refused.to_string(),
                "give the time of one run of this operation in seconds",
            )
        })?;
    }
    Ok(Cow::Owned(residuals))
}

/// What an observation at `path` is about and the time of one run.
pub fn observed(
    snapshot: &Snapshot,
    observation: &ObservationRequest,
    path: &str,
) -> Result<(Task, Seconds), ErrorBody> {
    let task = Task::new(snapshot, &observation.workload, observation.engine, &format!("{path}.workload"))?;
    if let Some(power) = observation.power_w {
        positive(&format!("{path}.power_w"), power)?;
    }
    let time = match (observation.time_s, observation.tokens_per_s) {
        (Some(time), None) => positive(&format!("{path}.time_s"), time)?,
        (None, Some(rate)) => as_f64(task.tokens()) / positive(&format!("{path}.tokens_per_s"), rate)?,
        (Some(_), Some(_)) => {
            return Err(Code::InvalidField.at(
                format!("{path}.tokens_per_s"),
                "time_s and tokens_per_s are both given",
                "give one of the two",
            ));
        }
        (None, None) => {
            return Err(Code::MissingField.at(
                format!("{path}.time_s"),
                "neither time_s nor tokens_per_s is given",
                "give one of the two",
            ));
        }
    };
    // A rate of 1e-308 is above zero, and its time is not finite.
    Ok((task, Seconds(positive(&format!("{path}.time_s"), time)?)))
}

/// Predicts an operation and puts it into the shape of the wire.
pub fn predicted_op(
    snapshot: &Snapshot,
    model: &Model<'_>,
    residuals: &Residuals,
    task: &Task,
) -> Result<PredictAnswer, crate::predict::PredictError> {
    let mut prediction = residuals.correct(&task.residual_key(), task.predict(model)?);
    if let Some(costs) = snapshot.power_costs(&model.roofline) {
        prediction = prediction.with_power(&costs, &model.roofline, task.format);
    }
    Ok(shown(snapshot, task, prediction))
}

/// A prediction in the shape of the wire.
pub fn shown(snapshot: &Snapshot, task: &Task, prediction: Prediction) -> PredictAnswer {
    let time = EstimateAnswer::from(prediction.time);
    let tokens = as_f64(task.tokens());
    PredictAnswer {
        time_s: time,
        tokens_per_s: EstimateAnswer::rate(tokens, time),
        power_w: prediction.power.map(Into::into),
        power_from: prediction.power.map(|power| power.from.key().to_owned()),
        energy_j_per_token: prediction.energy().map(|energy| EstimateAnswer::from(energy).per(tokens)),
        flops: prediction.cost.work.get(),
        bytes: prediction.cost.traffic.get(),
        arithmetic_intensity_flops_per_byte: prediction.cost.intensity().get(),
        ridge_flops_per_byte: prediction.ridge.get(),
        bound: bound_key(prediction.bound).to_owned(),
        limit: limit_key(prediction.limit).to_owned(),
        compute: prediction.compute.key().to_owned(),
        memory_bytes: memory(snapshot, task, &prediction),
        tier: tier_key(prediction.tier).to_owned(),
        provenance: provenance_key(prediction.provenance).to_owned(),
        breakdown: vec![BreakdownEntry::new(&task.op, &prediction)],
        roofline_time_s: prediction.roofline_time.get(),
        time_to_first_token_s: None,
        time_per_token_s: None,
        simulated: snapshot.board.simulated,
        hardware: hypothetical(snapshot),
        serial: snapshot.serial,
        warnings: warnings(snapshot, prediction.provenance, prediction.warnings),
    }
}

/// The hardware of a picture that is no machine.
pub fn hypothetical(snapshot: &Snapshot) -> Option<String> {
    snapshot.is_hypothetical().then(|| snapshot.board.key.clone())
}

/// What the client should know beside what the prediction says itself.
pub fn warnings(snapshot: &Snapshot, provenance: Provenance, mut warnings: Vec<String>) -> Vec<String> {
    if snapshot.is_hypothetical() {
        warnings.push(format!(
            "the ceilings are those of {}'s data sheet: nothing was measured",
            snapshot.board.key
        ));
    } else if matches!(provenance, Provenance::Prior | Provenance::Datasheet) {
        warnings.push("the ceilings are no measurements yet: rooflinectl calibrate".to_owned());
    }
    if snapshot.state.throttle.known().is_some_and(|throttle| throttle.active) {
        warnings.push("the machine is throttling: it may be slower than this".to_owned());
    }
    warnings
}

/// Memory that can be had now.
pub fn available(snapshot: &Snapshot) -> Option<Bytes> {
    snapshot.state.memory.known().map(|memory| memory.available)
}

/// Memory of an operation: every operand once.
fn memory(snapshot: &Snapshot, task: &Task, prediction: &Prediction) -> MemoryAnswer {
    let total = prediction.cost.traffic;
    let weights = task.format.bytes(prediction.cost.weights);
    let activations = match task.op {
        Op::Gemv { .. } | Op::Gemm { .. } => total - weights,
        Op::Attention { batch, heads, query_tokens, head_dim, .. } => {
            let queries = as_f64(batch) * as_f64(heads) * as_f64(query_tokens) * as_f64(head_dim);
            task.numeric.activations.bytes(2.0 * queries)
        }
    };
    let kv_cache = match task.op {
        Op::Attention { .. } => total - activations,
        Op::Gemv { .. } | Op::Gemm { .. } => Bytes::ZERO,
    };
    MemoryAnswer {
        weights: weights.get(),
        kv_cache: kv_cache.get(),
        activations: activations.get(),
        total: total.get(),
        engine: None,
        available: available(snapshot).map(Bytes::get),
        fits: available(snapshot).map(|available| total <= available),
    }
}

/// A count as a factor.
#[expect(
    clippy::cast_precision_loss,
    reason = "products of checked dimensions; beyond 2^53 a rate needs no more digits"
)]
pub const fn as_f64(value: u64) -> f64 {
    value as f64
}
