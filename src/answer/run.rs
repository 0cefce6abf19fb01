//! A predicted model in the shape of the wire.

use std::borrow::Cow;

use super::error::Code;
use super::model::ModelTask;
use super::modes::Model;
use super::predict::{as_f64, available, hypothetical, warnings};
use crate::api::convert::{bound_key, limit_key, provenance_key, tier_key};
use crate::api::{BreakdownEntry, ErrorBody, EstimateAnswer, MemoryAnswer, PredictAnswer};
use crate::learning::models::{self, Asked, Learned};
use crate::predict::model::{ModelError, ModelPrediction};
use crate::predict::{Engine, EngineProfile};
use crate::snapshot::Snapshot;
use crate::units::Bytes;
use crate::workload::transformer::{MemoryFootprint, Phase};

/// The calibrated kernels that a model's passes are summed from; `None` where the engine's own costs are known better.
pub fn kernels<'a>(snapshot: &Snapshot, at: &'a Model<'_>, engine: Engine) -> Option<Cow<'a, EngineProfile>> {
    snapshot.kernels(&at.profile, engine)
}

/// What the runs of a model are filed under beside its name.
pub fn stored_as(task: &ModelTask) -> String {
    models::stored_as(task.format.as_deref(), task.request.kv_cache)
}

/// Predicts a model at the operating point of `at`, with what was learnt.
///
/// # Errors
/// A request that cannot be, or ceilings that say too little.
pub fn run(
    snapshot: &Snapshot,
    at: &Model<'_>,
    learned: &Learned,
    task: &ModelTask,
    path: &str,
) -> Result<ModelPrediction, ErrorBody> {
    let kernels = kernels(snapshot, at, task.engine);
    let asked = Asked {
        engine: task.engine,
        name: &task.name,
        format: &stored_as(task),
        model: &task.model,
        request: &task.request,
        roofline: &at.roofline,
        kernels: kernels.as_deref(),
        hardware: snapshot.hardware.as_deref().map(|hardware| hardware.key.as_str()),
    };
    let prediction = learned.predict(&asked).map_err(|error| unpredictable(&error, path))?;
    // Power follows from the time, so it comes after what was learnt.
    Ok(match snapshot.power_costs(&at.roofline) {
        Some(costs) => prediction.with_power(&costs, &at.roofline),
        None => prediction,
    })
}

/// Why a model has no prediction, for a task at `path`.
pub fn unpredictable(error: &ModelError, path: &str) -> ErrorBody {
    match error {
        ModelError::Request(error) => Code::InvalidDimension.at(
            format!("{path}.{}", error.field),
            error.to_string(),
            "give a whole number within these limits",
        ),
        ModelError::Op(error) => super::task::unpredictable(error, path),
        ModelError::NoMachine => Code::NotCalibrated.at(
            format!("{path}.model"),
            error.to_string(),
            "calibrate first: rooflinectl calibrate; or name the hardware: GET /v1/hardware",
        ),
    }
}

/// A prediction in the shape of the wire.
pub fn shown(snapshot: &Snapshot, task: &ModelTask, prediction: ModelPrediction) -> PredictAnswer {
    let time = EstimateAnswer::from(prediction.time);
    let energy_j_per_token = prediction.energy_per_token().map(EstimateAnswer::from);
    let cost = prediction.cost;
    let mut said = task.warnings.clone();
    // What the predictor says of the model and the request stands there already.
    said.extend(prediction.warnings.into_iter().filter(|warning| !task.warnings.contains(warning)));
    let breakdown = prediction.breakdown.iter().map(|part| BreakdownEntry {
        op: part.name.to_owned(),
        time_s: part.time.get(),
        flops: part.work.get(),
        bytes: part.traffic.get(),
    });
    PredictAnswer {
        time_s: time,
        tokens_per_s: EstimateAnswer::rate(prediction.tokens, time),
        time_to_first_token_s: prediction.time_to_first_token.map(Into::into),
        time_per_token_s: prediction.time_per_token.map(Into::into),
        power_w: prediction.power.map(Into::into),
        power_from: prediction.power.map(|power| power.from.key().to_owned()),
        power_source: prediction.power.map(|power| power.source.key().to_owned()),
        energy_j_per_token,
        flops: cost.work.get(),
        bytes: cost.traffic.get(),
        arithmetic_intensity_flops_per_byte: cost.intensity().get(),
        ridge_flops_per_byte: prediction.ridge.get(),
        bound: bound_key(prediction.bound).to_owned(),
        limit: limit_key(prediction.limit).to_owned(),
        compute: prediction.compute.key().to_owned(),
        memory_bytes: memory(snapshot, task),
        tier: tier_key(prediction.tier).to_owned(),
        interval_from: Some(prediction.interval_from.key().to_owned()),
        provenance: provenance_key(prediction.provenance).to_owned(),
        breakdown: breakdown.collect(),
        roofline_time_s: prediction.roofline_time.get(),
        simulated: snapshot.board.simulated,
        hardware: hypothetical(snapshot),
        serial: snapshot.serial,
        warnings: warnings(snapshot, prediction.provenance, said),
    }
}

/// What the model takes while it runs.
fn memory(snapshot: &Snapshot, task: &ModelTask) -> MemoryAnswer {
    let engine = snapshot.engine_memory(task.engine);
    let footprint = MemoryFootprint::new(&task.model, &task.request, engine);
    let available = available(snapshot);
    MemoryAnswer {
        weights: footprint.weights.get(),
        kv_cache: footprint.kv_cache.get(),
        activations: footprint.activations.get(),
        engine: Some(engine.get()),
        total: footprint.total().get(),
        available: available.map(Bytes::get),
        fits: available.map(|available| footprint.fits(available)),
    }
}

/// Tokens that one run makes, or reads of a prompt, over the whole batch.
pub fn tokens(task: &ModelTask) -> f64 {
    let request = &task.request;
    let each = match request.phase {
        Phase::Prefill => request.prompt_tokens,
        Phase::Decode => request.output_tokens.max(1),
        Phase::Serve => request.output_tokens,
    };
    as_f64(request.batch) * as_f64(each)
}
