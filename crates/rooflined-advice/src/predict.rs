//! Predictions of one operation or one model.

use super::catalogue::Catalogue;
use super::convert::{as_f64, describe, estimate, tier_key};
use super::engines::{choice_for, engine_for};
use super::model::{ModelTask, refuse_overlong};
use super::modes::Model;
use super::observe::ObservedSoFar;
use super::remarks::{hypothetical, warnings};
use super::run::{self, room};
use super::settings::Device;
use super::supported;
use super::task::{Task, model_at, unpredictable, with_threads};
use super::words::shorten;
use rooflined_api::{
    BreakdownEntry, EstimateAnswer, MemoryAnswer, PowerAnswer, PredictAnswer, PredictRequest,
    RecommendRequest, ReportsAnswer, Workload,
};
use serde_json::Value;

use rooflined_core::board::{ActiveMode, Reading};
use rooflined_core::operation::Op;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{Bytes, Flops, Joules, Seconds, Watts};
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;
use rooflined_models::support::{Unsupported, check, check_cache};
use rooflined_predict::costs::Build;
use rooflined_predict::learning::Residuals;
use rooflined_predict::learning::report::Moved;
use rooflined_predict::optimize::with_columns;
use rooflined_predict::snapshot::{Cap, Snapshot};
use rooflined_predict::{Engine, Estimate, Limit, PredictError, Prediction};

/// An operation or a model, as one engine would run it.
#[derive(Debug, Clone)]
pub enum Work {
    Op(Task),
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
    ) -> Result<Self, Refusal> {
        if workload.model.is_some() {
            return ModelTask::new(snapshot, catalogue, workload, engine, path)
                .map(|task| Self::Model(Box::new(task)));
        }
        Task::new(snapshot, workload, engine, path).map(Self::Op)
    }

    /// Tokens (columns) that one run makes, or reads of a prompt, over the whole batch.
    pub fn tokens(&self) -> f64 {
        match self {
            Self::Op(task) => as_f64(task.op.tokens()),
            Self::Model(task) => run::tokens(task),
        }
    }

    /// As weights are stored; `None` where there are none, or a file does not say.
    pub fn format(&self) -> Option<String> {
        match self {
            Self::Op(Task { op: Op::Attention { .. }, .. }) => None,
            Self::Op(task) => Some(task.format.key().to_owned()),
            Self::Model(task) => task.format.clone(),
        }
    }

    const fn engine(&self) -> Engine {
        match self {
            Self::Op(task) => task.engine,
            Self::Model(task) => task.engine,
        }
    }

    /// Tokens that the cache of every sequence has room for; `None` for an operation.
    fn window(&self) -> Option<u64> {
        match self {
            Self::Op(_) => None,
            Self::Model(task) => Some(task.request.window()),
        }
    }

    /// What it takes while it runs.
    pub fn memory(&self, snapshot: &Snapshot, prediction: &Prediction) -> MemoryAnswer {
        match self {
            Self::Op(task) => memory(snapshot, task, prediction),
            Self::Model(task) => run::memory(snapshot, task),
        }
    }

    /// What is said of the request, and what the predictor says beside it.
    fn warnings(&self, predictor: Vec<String>) -> Vec<String> {
        match self {
            Self::Op(_) => predictor,
            Self::Model(task) => {
                let mut all = task.warnings.clone();
                all.extend(predictor.into_iter().filter(|warning| !task.warnings.contains(warning)));
                all
            }
        }
    }
}

/// Whether the engine of `work`, at `path` of the request, runs it on the machine of `snapshot`, and the model is made for it.
///
/// # Errors
/// Code `unsupported_format`, with the nearest that it runs; a context longer than the model's.
pub fn refuse_unsupported(snapshot: &Snapshot, work: &Work, path: &str) -> Result<(), Refusal> {
    if let Work::Model(task) = work {
        refuse_overlong(task, path)?;
    }
    unsupported(snapshot, work).map_or(Ok(()), |unsupported| Err(supported::refusal(&unsupported, path)))
}

/// The same refusal of a format that the model's name says: another needs another name.
fn for_stored(mut refusal: Refusal, workload: &Workload) -> Refusal {
    if let (Some(Value::String(name)), None) = (&workload.model, &workload.format)
        && models().stored_in(name).is_some()
        && let Ok(known) = models().get(name)
    {
        refusal.field = Some("workload.model".to_owned());
        refusal.hint = format!("name {} instead, which leaves the format open; {}", known.key, refusal.hint);
    }
    refusal
}

/// The warning beside a prediction of something that the engine does not run.
pub fn hypothetical_warning(snapshot: &Snapshot, work: &Work) -> Option<String> {
    unsupported(snapshot, work).map(|unsupported| format!("hypothetical: {unsupported}"))
}

fn unsupported(snapshot: &Snapshot, work: &Work) -> Option<Unsupported> {
    let target = Device::of(snapshot).target();
    let answer = match work {
        Work::Op(task) => match task.op {
            Op::Attention { .. } => check_cache(task.engine, task.numeric.kv_cache, target),
            Op::Gemv { .. } | Op::Gemm { .. } => check(task.engine, Recipe::of(task.format), None, target),
        },
        Work::Model(task) => {
            let kv_cache = Some(task.request.kv_cache);
            supported::stored(task.engine, &task.model.family, task.format.as_deref(), kv_cache, target)
        }
    };
    answer.err()
}

/// `POST /v1/predict`.
pub fn predict(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &PredictRequest,
) -> Result<PredictAnswer, Refusal> {
    let model = model_at(snapshot, request.operating_point.as_ref(), "operating_point")?;
    let model = with_threads(snapshot, model, request.workload.threads, "workload.threads")?;
    let question = RecommendRequest {
        operating_point: request.operating_point.clone(),
        workload: request.workload.clone(),
        engine: request.engine,
        hypothetical: request.hypothetical,
        ..RecommendRequest::default()
    };
    let (engine, workload) = completed(snapshot, catalogue, question)?;
    let mut work = Work::new(snapshot, catalogue, &workload, engine, "workload")?;
    if let (Work::Model(task), Some(version)) = (&mut work, &request.engine_version) {
        if !Build::is_version(engine, version) {
            let example = if engine == Engine::LlamaCpp { "b10809" } else { "0.28.0" };
            let hint = match request.engine {
                Engine::Bare => "name its engine too, such as \"engine\":\"llama.cpp\" for b10809".to_owned(),
                _ => format!("write it like {example}, or leave it out for the newest that is known"),
            };
            return Err(Code::InvalidField.at(
                "engine_version",
                format!("{:?} is not a version of {}", shorten(version), engine.key()),
                hint,
            ));
        }
        task.build = Build::of(engine, version);
    }
    if !request.hypothetical {
        refuse_unsupported(snapshot, &work, "workload")
            .map_err(|refusal| for_stored(refusal, &request.workload))?;
    }
    let known = ObservedSoFar::supposing(snapshot, catalogue, &request.observations)?;
    let mut answer = predicted(snapshot, &model, &known, &work, "workload")?;
    answer.warnings.extend(hypothetical_warning(snapshot, &work));
    let mode = request.operating_point.as_ref().and_then(|point| point.power_mode.as_ref());
    answer.mode_name =
        mode.map(|name| snapshot.mode(name).map_or_else(|| name.clone(), |view| view.mode.name.clone()));
    Ok(answer)
}

/// The engine that the request names; of a model without one the engine that is recommended for it, at the same operating point.
///
/// # Errors
/// As [`engine_for`].
pub fn engine_of(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    question: &RecommendRequest,
) -> Result<Engine, Refusal> {
    let elsewhere = at_operating_point(snapshot, question)?;
    engine_for(elsewhere.as_ref().unwrap_or(snapshot), catalogue, question)
}

/// The same with the workload, in the format that is recommended for a model of which neither the engine nor the format is named.
///
/// # Errors
/// As [`engine_for`].
pub fn completed(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    question: RecommendRequest,
) -> Result<(Engine, Workload), Refusal> {
    let elsewhere = at_operating_point(snapshot, &question)?;
    let snapshot = elsewhere.as_ref().unwrap_or(snapshot);
    let key = question.workload.model.as_ref().and_then(Value::as_str);
    // A file is stored as it is.
    let Some(key) = key.filter(|_| question.workload.format.is_none() && question.engine == Engine::Bare)
    else {
        return Ok((engine_for(snapshot, catalogue, &question)?, question.workload));
    };
    // What is published in a packed format is run in it, where an engine can.
    if let Some(format) = catalogue.published(key) {
        let workload = Workload { format: Some(format.key().to_owned()), ..question.workload.clone() };
        let published = RecommendRequest { workload: workload.clone(), ..question.clone() };
        if let Ok(engine) = engine_for(snapshot, catalogue, &published) {
            return Ok((engine, workload));
        }
    }
    let (engine, format) = choice_for(snapshot, catalogue, &question)?;
    Ok((engine, Workload { format, ..question.workload }))
}

/// Predicts the work at `path` of the request and puts it into the shape of the wire.
///
/// # Errors
/// An impossible operation, or a precision with no unit to run on.
pub fn predicted(
    snapshot: &Snapshot,
    model: &Model<'_>,
    known: &ObservedSoFar<'_>,
    work: &Work,
    path: &str,
) -> Result<PredictAnswer, Refusal> {
    let prediction = match work {
        Work::Op(task) => predict_op(snapshot, model, &known.residuals, task)
            .map_err(|error| unpredictable(&error, path))?,
        Work::Model(task) => run::run(snapshot, model, &known.observed_runs, task, path)?,
    };
    Ok(prediction_answer(snapshot, work, prediction))
}

/// Predicts an operation with what was learnt and its power.
///
/// # Errors
/// An impossible operation, or a precision with no unit to run on.
pub fn predict_op(
    snapshot: &Snapshot,
    model: &Model<'_>,
    residuals: &Residuals,
    task: &Task,
) -> Result<Prediction, PredictError> {
    if let Some(limit) = &model.limit {
        let kept = limit.keep(snapshot, |roofline, profile| {
            predict_op(snapshot, &model.unlimited(roofline, profile), residuals, task)
        })?;
        if let Some(kept) = kept {
            return Ok(kept);
        }
    }
    let predicted = |task: &Task| -> Result<Prediction, PredictError> {
        Ok(residuals.correct(&task.residual_key(), task.predict(model)?))
    };
    let prediction = predicted(task)?;
    let columns = match task.op {
        Op::Gemm { m, .. } => m,
        Op::Gemv { .. } | Op::Attention { .. } => 1,
    };
    let costs = snapshot.power_costs(&model.roofline);
    let power = costs.as_ref().map(|costs| (costs, model.roofline.as_ref()));
    Ok(prediction.with_power(power, columns, |columns| {
        predicted(&Task { op: with_columns(task.op, columns), ..*task }).ok()
    }))
}

/// A prediction of `work` in the shape of the wire.
pub fn prediction_answer(snapshot: &Snapshot, work: &Work, prediction: Prediction) -> PredictAnswer {
    let time = estimate(prediction.time.map(Seconds::get));
    let times = |of: Option<Estimate<Seconds>>| of.map(|of| estimate(of.map(Seconds::get)));
    let energy = prediction.model.as_ref().and_then(|_| prediction.energy_per_token());
    let marginal = prediction.model.as_ref().and_then(|_| prediction.marginal_energy_per_token());
    let power = prediction.power;
    let pull = (prediction.limit == Limit::SmPull)
        .then(|| format!("what limits is not the memory itself, but {}", prediction.limit.words()));
    let documents = match work {
        Work::Model(task) => task.request.documents(),
        Work::Op(_) => None,
    };
    #[expect(clippy::cast_precision_loss, reason = "batches are bounded")]
    let documents = documents.map(|documents| documents as f64);
    PredictAnswer {
        engine: work.engine().key().to_owned(),
        format: work.format(),
        time_s: time,
        tokens_per_s: EstimateAnswer::rate(prediction.tokens, time),
        documents_per_s: documents.map(|documents| EstimateAnswer::rate(documents, time)),
        time_per_document_s: documents.map(|documents| time.per(documents)),
        time_to_first_token_s: times(prediction.time_to_first_token()).filter(|_| documents.is_none()),
        time_per_token_s: times(prediction.time_per_token()),
        power_w: power
            .map(|power| PowerAnswer::new(estimate(power.watts.map(Watts::get)), power.from.scope())),
        power_source: power.map(|power| power.source.key().to_owned()),
        energy_j_per_token: energy.map(|energy| estimate(energy.map(Joules::get))),
        marginal_energy_j_per_token: marginal.map(|energy| estimate(energy.map(Joules::get))),
        energy_j: power.map(|power| estimate(power.energy.map(Joules::get))),
        flops: prediction.cost.work.get(),
        bytes: prediction.cost.traffic.get(),
        arithmetic_intensity_flops_per_byte: prediction.cost.intensity().get(),
        ridge_flops_per_byte: prediction.ridge.get(),
        bound: prediction.bound.key().to_owned(),
        limit: prediction.limit.key().to_owned(),
        compute: prediction.compute.key().to_owned(),
        memory_bytes: work.memory(snapshot, &prediction),
        tier: tier_key(prediction.tier).to_owned(),
        interval_from: prediction.model.as_ref().map(|model| model.interval_from.key().to_owned()),
        provenance: prediction.provenance.key().to_owned(),
        context_tokens: work.window(),
        breakdown: breakdown(work, &prediction),
        roofline_time_s: prediction.roofline_time.get(),
        simulated: snapshot.board.simulated,
        mode_name: None,
        hardware: hypothetical(snapshot),
        serial: snapshot.serial,
        reports: reports(prediction.moved),
        warnings: warnings(
            snapshot,
            prediction.provenance,
            work.warnings(prediction.warnings).into_iter().chain(pull).collect(),
        ),
    }
}

/// Whose reports moved a prediction; `None` where there are none.
fn reports(Moved { own, shared }: Moved) -> Option<ReportsAnswer> {
    let scope = match (own, shared) {
        (0, 0) => return None,
        (0, _) => "shared",
        _ => "own",
    };
    Some(ReportsAnswer { scope: scope.to_owned(), own, shared })
}

/// The parts of a model's time; an operation is its only one.
fn breakdown(work: &Work, prediction: &Prediction) -> Vec<BreakdownEntry> {
    let entry = |op: String, time: Seconds, work: Flops, traffic: Bytes| BreakdownEntry {
        op,
        time_s: time.get(),
        flops: work.get(),
        bytes: traffic.get(),
    };
    match (&prediction.model, work) {
        (Some(model), _) => model
            .breakdown
            .iter()
            .map(|part| entry(part.name.to_owned(), part.time, part.work, part.traffic))
            .collect(),
        (None, Work::Op(task)) => {
            vec![entry(
                describe(&task.op),
                prediction.time.value,
                prediction.cost.work,
                prediction.cost.traffic,
            )]
        }
        (None, Work::Model(_)) => Vec::new(),
    }
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
        host: None,
        engine: None,
        available: run::available(snapshot).map(Bytes::get),
        room: room(snapshot, task.engine).map(Bytes::get),
        fits: room(snapshot, task.engine).map(|room| total <= room),
    }
}

/// The same snapshot at the operating point asked for; `None` where none is.
pub(super) fn at_operating_point(
    snapshot: &Snapshot,
    request: &RecommendRequest,
) -> Result<Option<Snapshot>, Refusal> {
    let Some(point) = &request.operating_point else { return Ok(None) };
    let model = model_at(snapshot, Some(point), "operating_point")?;
    let mut elsewhere = snapshot.clone();
    elsewhere.roofline = model.roofline.into_owned();
    elsewhere.profile = model.profile.into_owned();
    elsewhere.power_limit = model.limit;
    if let Some(cap) = point.power_mode.as_ref().and_then(|name| Cap::named(name)) {
        elsewhere.state.power_mode = Reading::Known(cap.mode());
    }
    if let Some(view) = point.power_mode.as_ref().and_then(|name| snapshot.mode(name)) {
        let (id, name) = (view.mode.id, view.mode.name.clone());
        elsewhere.state.power_mode = Reading::Known(ActiveMode { id, name });
    }
    Ok(Some(elsewhere))
}
