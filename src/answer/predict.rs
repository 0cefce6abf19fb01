//! Predictions of one operation or one model.

use super::catalogue::Catalogue;
use super::model::ModelTask;
use super::modes::Model;
use super::observe::Known;
use super::run;
use super::task::{Task, model_at, unpredictable};
use crate::api::convert::{bound_key, limit_key, provenance_key, tier_key};
use crate::api::{
    BreakdownEntry, ErrorBody, EstimateAnswer, MemoryAnswer, PredictAnswer, PredictRequest, Workload,
};
use crate::learning::Residuals;
use crate::predict::{Engine, Prediction};
use crate::roofline::Provenance;
use crate::snapshot::Snapshot;
use crate::units::Bytes;
use crate::workload::Op;

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
    let known = Known::supposing(snapshot, catalogue, &request.observations)?;
    predicted(snapshot, &model, &known, &work, "workload")
}

/// Predicts the work at `path` of the request and puts it into the shape of the wire.
///
/// # Errors
/// An impossible operation, or a precision with no unit to run on.
pub fn predicted(
    snapshot: &Snapshot,
    model: &Model<'_>,
    known: &Known<'_>,
    work: &Work,
    path: &str,
) -> Result<PredictAnswer, ErrorBody> {
    match work {
        Work::Op(task) => {
            predicted_op(snapshot, model, &known.residuals, task).map_err(|error| unpredictable(&error, path))
        }
        Work::Model(task) => {
            let prediction = run::run(snapshot, model, &known.learned, task, path)?;
            Ok(run::shown(snapshot, task, prediction))
        }
    }
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
        power_source: prediction.power.map(|power| power.source.key().to_owned()),
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
        interval_from: None,
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
