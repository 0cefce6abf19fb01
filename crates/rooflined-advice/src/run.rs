//! A model predicted with what was learnt, and the memory that it takes.

use std::borrow::Cow;

use super::model::ModelTask;
use super::modes::Model;
use super::settings::SharedMemory;
use rooflined_api::MemoryAnswer;
use rooflined_core::hardware::Kind;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::Bytes;
use rooflined_models::transformer::{MemoryFootprint, Request};
use rooflined_predict::learning::models::{self, ModelQuery, ObservedRuns};
use rooflined_predict::model::ModelError;
use rooflined_predict::snapshot::Snapshot;
use rooflined_predict::{Engine, EngineProfile, Prediction};

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
    observed_runs: &ObservedRuns,
    task: &ModelTask,
    path: &str,
) -> Result<Prediction, Refusal> {
    if let Some(limit) = &at.limit {
        let kept = limit.keep(snapshot, |roofline, profile| {
            run(snapshot, &at.unlimited(roofline, profile), observed_runs, task, path)
        })?;
        if let Some(kept) = kept {
            return Ok(kept);
        }
    }
    let kernels = kernels(snapshot, at, task.engine);
    let asked = ModelQuery {
        engine: task.engine,
        name: &task.name,
        format: &stored_as(task),
        model: &task.model,
        request: &task.request,
        roofline: &at.roofline,
        kernels: kernels.as_deref(),
        cpu: snapshot.cpu_host(task.engine, at.threads),
        build: task.build,
        hardware: snapshot.hardware.as_deref().map(|hardware| hardware.key.as_str()),
    };
    let prediction = observed_runs.predict(&asked).map_err(|error| unpredictable(&error, path))?;
    // Power follows from the time, so it comes after what was learnt.
    let costs = snapshot.power_costs(&at.roofline);
    let power = costs.as_ref().map(|costs| (costs, at.roofline.as_ref()));
    Ok(prediction.with_power(power, task.request.batch, |batch| {
        let request = Request { batch, ..task.request };
        observed_runs.predict(&ModelQuery { request: &request, ..asked.clone() }).ok()
    }))
}

/// Why a model has no prediction, for a task at `path`.
pub fn unpredictable(error: &ModelError, path: &str) -> Refusal {
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

/// Memory that can be had now.
pub fn available(snapshot: &Snapshot) -> Option<Bytes> {
    snapshot.state.memory.known().map(|memory| memory.available)
}

/// Memory left to others where the request does not say: a twentieth of all, and this at least.
const RESERVE_RATIO: f64 = 0.05;
const LEAST_RESERVE: Bytes = Bytes(256.0 * 1024.0 * 1024.0);

/// Memory that stays free: `wanted`, or a part of all that there is; and what vLLM is not given of a memory that CPU and GPU share.
pub fn reserve(snapshot: &Snapshot, engine: Engine, wanted: Option<Bytes>) -> Bytes {
    let memory = snapshot.state.memory.known();
    let usual = || (memory.map_or(Bytes::ZERO, |memory| memory.total) * RESERVE_RATIO).max(LEAST_RESERVE);
    let wanted = wanted.unwrap_or_else(usual);
    let is_shared = snapshot.hardware.as_deref().is_some_and(|hardware| hardware.kind == Kind::Integrated);
    let memory = memory.filter(|_| is_shared && engine == Engine::Vllm);
    memory.map_or(wanted, |memory| wanted.max(memory.available - memory.total * SharedMemory::MOST))
}

/// Memory that a run may take where nobody says how much has to stay free.
pub fn room(snapshot: &Snapshot, engine: Engine) -> Option<Bytes> {
    available(snapshot).map(|available| available - reserve(snapshot, engine, None))
}

/// What the model takes while it runs.
pub fn memory(snapshot: &Snapshot, task: &ModelTask) -> MemoryAnswer {
    let engine = snapshot.engine_memory(task.engine);
    let footprint = MemoryFootprint::new(&task.model, &task.request, engine);
    let room = room(snapshot, task.engine);
    MemoryAnswer {
        weights: footprint.weights.get(),
        kv_cache: footprint.kv_cache.get(),
        activations: footprint.activations.get(),
        engine: Some(engine.get()),
        total: footprint.total().get(),
        host: footprint.host.is_positive().then(|| footprint.host.get()),
        available: available(snapshot).map(Bytes::get),
        room: room.map(Bytes::get),
        fits: room.map(|room| footprint.fits(room)),
    }
}

/// Tokens that one run makes, or reads of a prompt, over the whole batch.
pub fn tokens(task: &ModelTask) -> f64 {
    task.request.tokens()
}
