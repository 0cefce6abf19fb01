//! Predictions: one, or a cross product.

use std::borrow::Cow;

use super::modes::Model;
use super::task::{Task, format_named, invalid_op, model_at, unpredictable};
use super::{check_hardware, positive};
use crate::api::convert::{bound_key, limit_key, provenance_key, tier_key};
use crate::api::{
    BreakdownEntry, ErrorBody, EstimateAnswer, MemoryAnswer, ObservationRequest, PredictAnswer,
    PredictRequest, SweepAnswer, SweepRequest, SweepRow,
};
use crate::learning::Residuals;
use crate::optimize::with_columns;
use crate::precision::WeightFormat;
use crate::predict::Prediction;
use crate::roofline::Provenance;
use crate::server::error::Code;
use crate::snapshot::Snapshot;
use crate::units::Seconds;
use crate::workload::Op;

/// Most rows of one sweep.
pub const MAX_SWEEP_ROWS: u64 = 16_384;
/// Most observations of one prediction; each is a prediction itself.
const MAX_OBSERVATIONS: usize = 256;

/// `POST /v1/predict`.
pub fn predict(snapshot: &Snapshot, request: &PredictRequest) -> Result<PredictAnswer, ErrorBody> {
    check_hardware(snapshot, request.hardware.as_deref())?;
    let model = model_at(snapshot, request.operating_point.as_ref(), "operating_point")?;
    let task = Task::new(snapshot, &request.workload, request.engine, "workload")?;
    let residuals = supposing(snapshot, &request.observations)?;
    predicted(snapshot, &model, &residuals, &task).map_err(|error| unpredictable(&error, "workload"))
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

/// Predicts a task and puts it into the shape of the wire.
pub fn predicted(
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
        simulated: snapshot.board.simulated,
        serial: snapshot.serial,
        warnings: warnings(snapshot, prediction),
    }
}

fn warnings(snapshot: &Snapshot, prediction: Prediction) -> Vec<String> {
    let mut warnings = prediction.warnings;
    if matches!(prediction.provenance, Provenance::Prior | Provenance::Datasheet) {
        warnings.push("the ceilings are no measurements yet: rooflinectl calibrate".to_owned());
    }
    if snapshot.state.throttle.known().is_some_and(|throttle| throttle.active) {
        warnings.push("the machine is throttling: it may be slower than this".to_owned());
    }
    warnings
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
        Op::Gemv { .. } | Op::Gemm { .. } => crate::units::Bytes::ZERO,
    };
    MemoryAnswer {
        weights: weights.get(),
        kv_cache: kv_cache.get(),
        activations: activations.get(),
        total: total.get(),
        fits: snapshot.state.memory.known().map(|memory| total <= memory.available),
    }
}

/// `POST /v1/sweep`.
pub fn sweep(snapshot: &Snapshot, request: &SweepRequest) -> Result<SweepAnswer, ErrorBody> {
    let formats = formats_or_measured(snapshot, request.formats.as_deref(), "formats")?;
    if request.ops.is_empty() {
        return Err(Code::MissingField.at(
            "ops",
            "there is no operation to sweep",
            "name at least one in ops",
        ));
    }
    let batches = request.batches.as_deref().map(|batches| {
        if batches.is_empty() {
            return Err(Code::InvalidField.at("batches", "batches is empty", "leave it out for 1"));
        }
        Ok(batches)
    });
    let batches = batches.transpose()?;
    let per_op = (formats.len() as u64).saturating_mul(batches.map_or(1, <[u64]>::len) as u64);
    let rows = per_op.saturating_mul(request.ops.len() as u64);
    if rows > MAX_SWEEP_ROWS {
        return Err(Code::TooMany.at(
            "ops",
            format!("the cross product has {rows} rows, more than {MAX_SWEEP_ROWS}"),
            "sweep fewer operations, formats or batches at a time",
        ));
    }
    let mut answer =
        SweepAnswer { rows: Vec::new(), simulated: snapshot.board.simulated, serial: snapshot.serial };
    for (index, &op) in request.ops.iter().enumerate() {
        let ops = columns_of(op, index, batches)?;
        for (place, &format) in formats.iter().enumerate() {
            for &op in &ops {
                let numeric = snapshot.numeric_format(format);
                let task = Task { op, format, numeric, engine: request.engine };
                let prediction = predicted(snapshot, &Model::now(snapshot), &snapshot.residuals, &task)
                    .map_err(|error| match error {
                        crate::predict::PredictError::Op(error) => {
                            invalid_op(&error, &format!("ops[{index}]"))
                        }
                        error @ crate::predict::PredictError::NoUnit { .. } => Code::NoUnit.at(
                            format!("formats[{place}]"),
                            error.to_string(),
                            "leave this format out",
                        ),
                    })?;
                let batch = task.tokens();
                answer.rows.push(SweepRow { op, format: format.key().to_owned(), batch, prediction });
            }
        }
    }
    Ok(answer)
}

/// The operation at each batch; without batches, as it is.
fn columns_of(op: Op, index: usize, batches: Option<&[u64]>) -> Result<Vec<Op>, ErrorBody> {
    op.validate().map_err(|error| invalid_op(&error, &format!("ops[{index}]")))?;
    let Some(batches) = batches else { return Ok(vec![op]) };
    if matches!(op, Op::Attention { .. }) {
        return Err(Code::InvalidField.at(
            "batches",
            format!("ops[{index}] is attention, whose batch is inside the operation"),
            "sweep attention on its own, without batches",
        ));
    }
    batches
        .iter()
        .enumerate()
        .map(|(place, &batch)| {
            let at = |error: &dyn std::fmt::Display| {
                Code::InvalidDimension.at(format!("batches[{place}]"), error.to_string(), "give 1 or more")
            };
            if batch == 0 {
                return Err(at(&"a batch is 0"));
            }
            let op = with_columns(op, batch);
            op.validate().map_err(|error| at(&error)).map(|()| op)
        })
        .collect()
}

/// The formats named, or else every format measured on this machine.
pub fn formats_or_measured(
    snapshot: &Snapshot,
    names: Option<&[String]>,
    field: &str,
) -> Result<Vec<WeightFormat>, ErrorBody> {
    let mut formats = match names {
        Some(names) => names
            .iter()
            .enumerate()
            .map(|(index, name)| format_named(name, || format!("{field}[{index}]")))
            .collect::<Result<Vec<_>, _>>()?,
        None => snapshot.measured_formats().collect(),
    };
    let mut seen = std::collections::BTreeSet::new();
    formats.retain(|format| seen.insert(*format));
    match (formats.is_empty(), names) {
        (true, Some(_)) => Err(Code::InvalidField.at(
            field,
            format!("{field} is empty"),
            "leave it out for every format measured on this machine",
        )),
        (true, None) => Err(Code::NotCalibrated.at(
            field,
            "no format has been measured on this machine yet",
            format!("name them in {field}, or calibrate first: rooflinectl calibrate"),
        )),
        (false, _) => Ok(formats),
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
