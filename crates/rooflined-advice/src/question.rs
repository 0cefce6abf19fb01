//! What is to be decided: the wire → a query.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::Value;

use super::catalogue::Catalogue;
use super::mode_named::{cap_named, mode_named};
use super::model::{self, ModelTask};
use super::run;
use super::supported;
use super::task::{
    format_named, formats_or_measured, invalid_op, is_all, operation, possible_threads, unpredictable,
};
use super::words::{positive, shorten};
use rooflined_api::{self as api, ModesRequest, OperatingPointRequest, RecommendRequest, Workload};
use rooflined_core::operation::Op;
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_core::refusal::{Code, Refusal, Refusals, all};
use rooflined_core::units::{Bytes, Seconds, Watts};
use rooflined_models::model::Model;
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;
use rooflined_predict::Engine;
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::optimize::{
    Constraints, ModelOrigin, Modes, Objective, Query, QueryError, StoredModel, USUAL_RUN, WorkForms,
};
use rooflined_predict::snapshot::{Cap, Snapshot};

/// Largest batch that is compared where a request leaves it open and one sequence is not enough.
pub(super) const MOST_SEQUENCES: u64 = 64;

/// Whether a request of a model leaves open how many sequences run at once.
pub(super) fn leaves_batch_open(request: &RecommendRequest) -> bool {
    request.workload.model.is_some()
        && request.workload.batch.is_none()
        && request.freedom.batch.is_none()
        && (request.objective == Objective::Throughput || request.constraints.min_tokens_per_s.is_some())
}

/// Most formats, cache formats, modes or threads of one request.
const MOST_LISTED: usize = 256;

/// What is to run in what batch, and what is to be known of it: named formats that the engine does not run are left out.
struct Wanted {
    work: WorkForms,
    batch: RangeInclusive<u64>,
    notes: Vec<String>,
}

/// Most quality that one of all formats may lose where no limit is given: the fastest of them loses nearly everything.
const MOST_LOST: f64 = 0.25;

/// The query of a request, for the machine of `snapshot`, and what is to be known of the model and of formats that were
/// left out because the engine does not run them. Blocks where the model is a file.
///
/// # Errors
/// Every field that cannot be.
pub fn query(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &RecommendRequest,
    forms: Forms,
) -> Result<(Query, Vec<String>), Refusal> {
    let (freedom, limits) = (&request.freedom, &request.constraints);
    lengths(request)?;
    let is_model = request.workload.model.is_some();
    let wanted =
        if is_model { model_work(snapshot, catalogue, request, forms) } else { op_work(snapshot, request) };
    let op = request.workload.op.as_ref().filter(|_| !is_model);
    let run_time = freedom.run_s.map_or(Ok(USUAL_RUN), |run| positive("freedom.run_s", run).map(Seconds));
    let mut refusals = Refusals::default();
    let parts = (
        refusals.check(wanted),
        refusals.check(modes_and_caps(snapshot, request)),
        refusals.check(constraints(limits, op)),
        refusals.check(reserve(snapshot, request.engine, limits)),
        refusals.check(threads(snapshot, freedom.threads.as_deref(), request.workload.threads)),
        refusals.check(run_time),
    );
    refusals.finish()?;
    let (Some(wanted), Some((modes, caps)), Some(constraints), Some(reserve), Some(threads), Some(run_time)) =
        parts
    else {
        return Err(Code::Internal.error("a refusal was lost", "report this"));
    };
    let Wanted { work, batch, mut notes } = wanted;
    let mut constraints = constraints;
    if is_model && limits.max_quality_loss_ratio.is_none() && freedom.formats.as_deref().is_some_and(is_all) {
        constraints.max_quality_loss = Some(MOST_LOST);
        notes.push(format!(
            "formats that lose more than {:.0} % are left out unless you name them",
            MOST_LOST * 100.0
        ));
    }
    let query = Query {
        constraints,
        reserve,
        threads,
        run_time,
        work,
        engine: request.engine,
        objective: request.objective,
        energy: request.energy_basis,
        modes,
        caps,
        allow_reboot: freedom.allow_reboot,
        batch,
        optimism: request.optimism,
    };
    Ok((query, notes))
}

fn lengths(request: &RecommendRequest) -> Result<(), Refusal> {
    let freedom = &request.freedom;
    let modes = match &freedom.power_modes {
        Some(ModesRequest::Listed(modes)) => modes.len(),
        _ => 0,
    };
    let lists = [
        ("formats", freedom.formats.as_ref().map_or(0, Vec::len)),
        ("kv_formats", freedom.kv_formats.as_ref().map_or(0, Vec::len)),
        ("power_modes", modes),
        ("threads", freedom.threads.as_ref().map_or(0, Vec::len)),
    ];
    match lists.into_iter().find(|(_, length)| *length > MOST_LISTED) {
        Some((name, length)) => Err(Code::TooMany.at(
            format!("freedom.{name}"),
            format!("freedom.{name} has {length} entries, more than {MOST_LISTED}"),
            "name each once",
        )),
        None => Ok(()),
    }
}

fn op_work(snapshot: &Snapshot, request: &RecommendRequest) -> Result<Wanted, Refusal> {
    let op = operation(&request.workload, "workload")?;
    if request.freedom.kv_formats.is_some() {
        return Err(Code::InvalidField.at(
            "freedom.kv_formats",
            "freedom.kv_formats applies to models, and this is an operation",
            "leave it out",
        ));
    }
    let (mut formats, field) = match one_or_listed(request)? {
        Named::One(name) => {
            let field = "workload.format";
            (vec![format_named(name, || field.to_owned())?], field)
        }
        Named::Listed(names) => (formats_or_measured(snapshot, names, "freedom.formats")?, "freedom.formats"),
    };
    let mut left_out = Vec::new();
    if !request.hypothetical && !matches!(op, Op::Attention { .. }) {
        left_out = supported::keep_formats(&mut formats, request.engine, snapshot, field)?;
        if !names_formats(request) {
            left_out.clear();
        }
    }
    let columns = if let Op::Gemm { m, .. } = op { m } else { 1 };
    Ok(Wanted { work: WorkForms::Op { op, formats }, batch: batch(request, columns)?, notes: left_out })
}

/// How the request names its formats.
enum Named<'a> {
    One(&'a str),
    Listed(Option<&'a [String]>),
}

/// A format in the workload fixes the choice; together with a freedom it would contradict it. So does one in the name of a
/// model.
fn one_or_listed(request: &RecommendRequest) -> Result<Named<'_>, Refusal> {
    let model = request.workload.model.as_ref().and_then(Value::as_str);
    let stored = model.and_then(|name| models().stored_in(name));
    match (&request.workload.format, &request.freedom.formats) {
        (Some(_), Some(_)) => Err(Code::InvalidField.at(
            "workload.format",
            "workload.format and freedom.formats are both given",
            "leave workload.format out to let freedom.formats choose",
        )),
        (Some(name), None) => Ok(Named::One(name)),
        (None, None) => Ok(stored.map_or(Named::Listed(None), |format| Named::One(format.key()))),
        (None, names) => Ok(Named::Listed(names.as_deref())),
    }
}

fn batch(request: &RecommendRequest, own: u64) -> Result<RangeInclusive<u64>, Refusal> {
    match (request.workload.batch, request.freedom.batch) {
        (Some(_), Some(_)) => Err(Code::InvalidField.at(
            "workload.batch",
            "workload.batch and freedom.batch are both given",
            "leave workload.batch out to let freedom.batch choose",
        )),
        (_, Some(range)) => Ok(range.min..=range.max),
        (_, None) => Ok(own..=own),
    }
}

/// Which forms of a model that is given by its file or its fields are looked at where none is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forms {
    /// Its own: a service that is about to run it serves that.
    AtHand,
    /// Of one in 16 or 32 bits also what the engine usually runs, which can be made of it.
    ThatCanBeMade,
}

fn model_work(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &RecommendRequest,
    forms: Forms,
) -> Result<Wanted, Refusal> {
    let named = one_or_listed(request)?;
    // The request is checked with the format that the model has by itself; the others differ in their weights alone.
    let base = Workload { format: None, ..request.workload.clone() };
    let task = ModelTask::new(snapshot, catalogue, &base, request.engine, "workload")?;
    let formats: Option<Vec<(String, String)>> = match named {
        Named::One(name) => Some(vec![(name.to_owned(), "workload.format".to_owned())]),
        Named::Listed(Some([])) => {
            return Err(Code::InvalidField.at(
                "freedom.formats",
                "freedom.formats is empty",
                "leave it out for the usual formats of the engine",
            ));
        }
        Named::Listed(Some(names)) if is_all(names) => {
            let is_key = matches!(request.workload.model, Some(Value::String(_)));
            let every =
                || Recipe::all().map(|recipe| (recipe.key().to_owned(), "freedom.formats".to_owned()));
            (is_key || is_source(&task)).then(|| every().collect())
        }
        Named::Listed(Some(names)) => {
            let path = |index| format!("freedom.formats[{index}]");
            Some(names.iter().enumerate().map(|(index, name)| (name.clone(), path(index))).collect())
        }
        Named::Listed(None) if matches!(request.workload.model, Some(Value::String(_))) => {
            let usual = usual(snapshot, catalogue, request);
            Some(usual.into_iter().map(|format| (format.key().to_owned(), String::new())).collect())
        }
        // As for a model known by a key, whatever the engine usually runs can be made of it.
        Named::Listed(None) if forms == Forms::ThatCanBeMade && is_source(&task) => {
            let usual = usual(snapshot, catalogue, request).into_iter().map(|format| format.key().to_owned());
            Some(task.format.iter().cloned().chain(usual).map(|format| (format, String::new())).collect())
        }
        Named::Listed(None) => None,
    };
    let origin = |format: &Option<String>| origin(catalogue, request, &task, format.as_deref());
    let stored = |model, format| stored(model, origin(&format), format);
    let mut candidates = match formats {
        None => vec![stored(Arc::clone(&task.model), task.format.clone())],
        Some(formats) => {
            let mut seen = BTreeSet::new();
            let wanted = request.workload.model.as_ref();
            let made =
                formats.iter().map(|(name, field)| model::stored_as(catalogue, &task, wanted, name, field));
            let mut made = all(made)?;
            if let Some((speculative, given)) =
                task.request.speculative.zip(request.workload.speculative.as_ref())
            {
                for (model, format) in &mut made {
                    let drafts = (speculative.kind, given);
                    *model =
                        model::drafted(catalogue, task.engine, drafts, model, format.as_deref(), "workload")?;
                }
            }
            made.retain(|(_, format)| seen.insert(format.clone()));
            made.into_iter().map(|(model, format)| stored(model, format)).collect()
        }
    };
    let mut kv_formats = match (&request.workload.kv_format, &request.freedom.kv_formats) {
        (Some(_), Some(_)) => {
            return Err(Code::InvalidField.at(
                "workload.kv_format",
                "workload.kv_format and freedom.kv_formats are both given",
                "leave workload.kv_format out to let freedom.kv_formats choose",
            ));
        }
        (_, None) => vec![task.request.kv_cache],
        (None, Some(names)) if names.is_empty() => {
            return Err(Code::InvalidField.at(
                "freedom.kv_formats",
                "freedom.kv_formats is empty",
                "leave it out for fp16",
            ));
        }
        (None, Some(names)) if is_all(names) => WeightFormat::ALL.to_vec(),
        (None, Some(names)) => {
            let format = |(index, name): (usize, &String)| {
                format_named(name, || format!("freedom.kv_formats[{index}]"))
            };
            let mut seen = BTreeSet::new();
            let mut formats = all(names.iter().enumerate().map(format))?;
            formats.retain(|format| seen.insert(*format));
            formats
        }
    };
    let mut notes = task.warnings.clone();
    if !request.hypothetical {
        model::refuse_overlong(&task, "workload")?;
        notes.extend(runnable(snapshot, request, &task, forms, (&mut candidates, &mut kv_formats))?);
    }
    let batch = batch(request, task.request.batch)?;
    let work = WorkForms::Model { name: task.name, request: task.request, stored: candidates, kv_formats };
    Ok(Wanted { work, batch, notes })
}

/// Leaves what the engine runs. What was named and is not is returned in words, and so is what has to be made of a model
/// that is at hand in a form which the engine does not run.
fn runnable(
    snapshot: &Snapshot,
    request: &RecommendRequest,
    task: &ModelTask,
    forms: Forms,
    (all, kv_formats): (&mut Vec<StoredModel>, &mut Vec<WeightFormat>),
) -> Result<Vec<String>, Refusal> {
    let (engine, freedom) = (request.engine, &request.freedom);
    let is_named = request.workload.format.is_some() || names_formats(request);
    let is_at_hand = !is_named && !matches!(request.workload.model, Some(Value::String(_)));
    let format = task.format.as_deref();
    let own = if is_at_hand { supported::own(engine, &task.model.family, format, snapshot) } else { Ok(()) };
    if forms == Forms::AtHand || !is_source(task) {
        own.clone()?;
    }
    let field = match freedom.formats {
        Some(_) => "freedom.formats",
        None if is_named => "workload.format",
        None => supported::ENGINE,
    };
    let mut left_out = supported::keep_stored(all, engine, snapshot, field)?;
    if !names_formats(request) {
        left_out.clear();
    }
    let reads_gguf = matches!(engine, Engine::LlamaCpp | Engine::Bare);
    if is_at_hand && is_gguf(request) && !reads_gguf {
        left_out.push(format!(
            "{} reads no GGUF files: what is chosen has to be made of the checkpoint that this one was made of",
            engine.key()
        ));
    } else if let Err(refusal) = own {
        left_out.push(format!("{}; what is chosen has to be made of it", refusal.message));
    }
    let field = if freedom.kv_formats.is_some() { "freedom.kv_formats" } else { "workload.kv_format" };
    let caches = supported::keep_caches(kv_formats, all, engine, snapshot, field)?;
    let names_caches = !freedom.kv_formats.as_deref().is_some_and(is_all);
    left_out.extend(caches.into_iter().filter(|_| names_caches));
    Ok(left_out)
}

/// Whether the request lists formats one by one.
fn names_formats(request: &RecommendRequest) -> bool {
    request.freedom.formats.as_deref().is_some_and(|names| !is_all(names))
}

/// Whether the model is stored in 16 or 32 bits, of which every other format can be made. What a file says of itself is
/// held against its weights.
fn is_source(task: &ModelTask) -> bool {
    /// Part of the weights that a step reads; small tables beside them may be integers.
    const MOST: f64 = 0.8;
    let format = task.format.as_deref().and_then(|format| format.parse().ok());
    let (mut plain, mut all) = (0.0, 0.0);
    for (block, weights, _) in task.model.by_block() {
        plain += if block.is_plain() { weights } else { 0.0 };
        all += weights;
    }
    matches!(format, Some(WeightFormat::Fp32 | WeightFormat::Fp16 | WeightFormat::Bf16))
        && plain >= MOST * all
}

pub fn is_gguf(request: &RecommendRequest) -> bool {
    let path = request.workload.model.as_ref().and_then(|model| model.get("path")).and_then(Value::as_str);
    path.is_some_and(|path| path.to_ascii_lowercase().ends_with(".gguf"))
}

fn stored(model: Arc<Model>, origin: ModelOrigin, format: Option<String>) -> StoredModel {
    StoredModel { quality_loss: expected_loss(origin, format.as_deref()), origin, format, model }
}

/// Expected quality loss of a model in a format; `None` for a mix of formats that no table names.
pub fn expected_loss(origin: ModelOrigin, format: Option<&str>) -> Option<f64> {
    match origin {
        // What was trained in a format lost nothing to it.
        ModelOrigin::Checkpoint => Some(0.0),
        ModelOrigin::Quantised | ModelOrigin::File | ModelOrigin::Otherwise => {
            format?.parse().ok().map(WeightFormat::expected_loss).filter(|loss| loss.is_finite())
        }
    }
}

/// Whether the model that the request names is published in the format.
fn origin(
    catalogue: &Catalogue,
    request: &RecommendRequest,
    task: &ModelTask,
    format: Option<&str>,
) -> ModelOrigin {
    match request.workload.model.as_ref() {
        Some(Value::String(key)) => catalogue.origin(key, format),
        Some(Value::Object(_))
            if is_gguf(request) && format.is_some() && format == task.format.as_deref() =>
        {
            ModelOrigin::File
        }
        _ => ModelOrigin::Otherwise,
    }
}

/// What the model is published in where that is a packed format and the engine runs it; else formats that people run with
/// the engine, of the narrow ones those that the accelerator has a unit for.
fn usual(snapshot: &Snapshot, catalogue: &Catalogue, request: &RecommendRequest) -> Vec<WeightFormat> {
    use WeightFormat as F;
    let engine = request.engine;
    let own_kernels = engine == Engine::Bare && snapshot.accelerator == Accelerator::Cpu;
    let model = request.workload.model.as_ref().and_then(Value::as_str);
    if let Some(format) = model.and_then(|key| catalogue.published(key)).filter(|_| !own_kernels)
        && supported::runs(snapshot, engine, format)
    {
        return vec![format];
    }
    let has = |unit: Precision| snapshot.roofline.compute(unit).is_some();
    let gguf = || vec![F::Q4KM, F::Q5KM, F::Q6K, F::Q8_0, F::Fp16];
    let with_units = |formats: &[F]| {
        let narrow = [(F::Fp8E4m3, Precision::Fp8), (F::Nvfp4, Precision::Fp4)];
        let narrow = narrow.into_iter().filter(|(_, unit)| has(*unit)).map(|(format, _)| format);
        formats.iter().copied().chain(narrow).collect()
    };
    match engine {
        Engine::LlamaCpp => gguf(),
        Engine::Mlc => vec![F::Int4G32, F::Fp16],
        Engine::OnnxRuntime => vec![F::Int4G32, F::Int8, F::Fp32],
        Engine::Vllm | Engine::TensorRtLlm | Engine::TensorRtEdgeLlm => with_units(&[F::AwqInt4, F::Fp16]),
        Engine::Torch => with_units(&[F::Int4G128, F::Int8, F::Bf16]),
        Engine::Bare if snapshot.accelerator == Accelerator::Cpu => {
            let measured: Vec<F> = snapshot.measured_formats().collect();
            if measured.is_empty() { gguf() } else { measured }
        }
        Engine::Bare => with_units(&[F::Q4KM, F::Int8, F::Q8_0, F::Fp16]),
    }
}

/// A refusal of one operating point beside several modes.
pub fn both_given(point: &OperatingPointRequest, modes: &str) -> Refusal {
    let is_limit = point.power_limit_w.is_some() && point.power_mode.is_none();
    let own = if is_limit { "operating_point.power_limit_w" } else { "operating_point" };
    Code::InvalidField.at(own, format!("{own} and {modes} are both given"), "leave one of the two out")
}

/// The power modes to choose from, and caps of `nvidia-smi` beside them.
fn modes_and_caps(snapshot: &Snapshot, request: &RecommendRequest) -> Result<(Modes, Vec<Cap>), Refusal> {
    let field = "freedom.power_modes";
    let Some(wanted) = &request.freedom.power_modes else { return Ok((Modes::Now, Vec::new())) };
    if let Some(point) = &request.operating_point {
        return Err(both_given(point, field));
    }
    match wanted {
        ModesRequest::Kind(kind) => match kind.as_str() {
            "all" => {
                let mut caps = snapshot.proposed_caps();
                // A limit on the power is kept by the same limit on the card.
                let limit =
                    request.constraints.max_power_w.and_then(|watts| snapshot.cap_within(Watts(watts)));
                let is_new = |cap: &Cap| !caps.contains(cap);
                caps.extend(limit.filter(is_new));
                Ok((Modes::All, caps))
            }
            "live" => Ok((Modes::Live, Vec::new())),
            other => Err(Code::InvalidField.at(
                field,
                format!("{field} is {:?}", shorten(other)),
                "give a list of names, \"all\", or \"live\" for those that need no reboot",
            )),
        },
        ModesRequest::Listed(names) if names.is_empty() => Err(Code::InvalidField.at(
            field,
            format!("{field} is empty"),
            "leave it out for the current mode",
        )),
        ModesRequest::Listed(names) => {
            let mut caps = Vec::new();
            let mut modes = Vec::new();
            for (index, name) in names.iter().enumerate() {
                let field = format!("{field}[{index}]");
                match cap_named(snapshot, &field, name)? {
                    Some(cap) if caps.contains(&cap) => {}
                    Some(cap) => caps.push(cap),
                    None => modes.push(mode_named(snapshot, &field, name)?.mode.key()),
                }
            }
            Ok((Modes::Listed(modes), caps))
        }
    }
}

/// Numbers of threads to choose from: those listed, or the one of the workload.
fn threads(snapshot: &Snapshot, wanted: Option<&[u32]>, fixed: Option<u32>) -> Result<Vec<u32>, Refusal> {
    let field = "freedom.threads";
    let wanted = match (wanted, fixed) {
        (None, None) => return Ok(Vec::new()),
        (Some(_), Some(_)) => {
            return Err(Code::InvalidField.at(
                field,
                "workload.threads and freedom.threads are both given",
                "leave one of the two out",
            ));
        }
        (None, Some(fixed)) => {
            possible_threads(snapshot, fixed, "workload.threads")?;
            return Ok(vec![fixed]);
        }
        (Some(wanted), None) => wanted,
    };
    if wanted.is_empty() {
        return Err(Code::InvalidField.at(
            field,
            format!("{field} is empty"),
            "leave it out for as many as were calibrated",
        ));
    }
    let possible =
        |(index, threads): (usize, &u32)| possible_threads(snapshot, *threads, &format!("{field}[{index}]"));
    all(wanted.iter().enumerate().map(possible))?;
    let mut seen = BTreeSet::new();
    Ok(wanted.iter().copied().filter(|threads| seen.insert(*threads)).collect())
}

/// What has to stay free.
fn reserve(snapshot: &Snapshot, engine: Engine, wire: &api::Constraints) -> Result<Bytes, Refusal> {
    let field = "constraints.min_free_memory_bytes";
    match wire.min_free_memory_bytes {
        Some(bytes) if !(bytes.is_finite() && bytes >= 0.0) => Err(Code::InvalidField.at(
            field,
            format!("{field} is {bytes}; it must be 0 or more"),
            "give it in bytes: 1 GB is 1e9",
        )),
        wanted => Ok(run::reserve(snapshot, engine, wanted.map(Bytes))),
    }
}

/// `op`: the operation that is asked about, where it is not a model.
fn constraints(wire: &api::Constraints, op: Option<&Op>) -> Result<Constraints, Refusal> {
    let mut refusals = Refusals::default();
    if let (Some(op), Some(_)) = (op, wire.max_time_to_first_token_s) {
        refusals.add(Code::UnsupportedConstraint.at(
            "constraints.max_time_to_first_token_s",
            "max_time_to_first_token_s cannot be kept: it applies to models, and this is an operation",
            format!(
                "leave it out; {} takes max_time_s, min_tokens_per_s, max_power_w, max_memory_bytes and \
                 max_quality_loss_ratio",
                op.kind()
            ),
        ));
    }
    let max_quality_loss = wire.max_quality_loss_ratio;
    if let Some(ratio) = max_quality_loss.filter(|ratio| !ratio.is_finite() || *ratio < 0.0) {
        let field = "constraints.max_quality_loss_ratio";
        refusals.add(Code::InvalidField.at(
            field,
            format!("{field} is {ratio}; it must be 0 or more"),
            "give the relative increase of perplexity that is acceptable: 0.03 for three per cent",
        ));
    }
    let mut checked =
        |name: &str, value: Option<f64>| refusals.check(positive(&format!("constraints.{name}"), value?));
    let constraints = Constraints {
        max_time: checked("max_time_s", wire.max_time_s).map(Seconds),
        max_time_per_token: checked("max_time_per_token_s", wire.max_time_per_token_s).map(Seconds),
        max_time_to_first_token: checked("max_time_to_first_token_s", wire.max_time_to_first_token_s)
            .map(Seconds),
        min_tokens_per_s: checked("min_tokens_per_s", wire.min_tokens_per_s),
        max_power: checked("max_power_w", wire.max_power_w).map(Watts),
        max_memory: checked("max_memory_bytes", wire.max_memory_bytes).map(Bytes),
        max_quality_loss,
    };
    refusals.finish().map(|()| constraints)
}

/// Why a query cannot be decided, with the field that says so.
pub(super) fn refuse_query(error: &QueryError) -> Refusal {
    let message = error.to_string();
    match error {
        QueryError::Op(error) => invalid_op(error, "workload.op"),
        QueryError::NoFormats => {
            Code::InvalidField.at("freedom.formats", message, "name at least one format")
        }
        QueryError::NoModes => Code::InvalidField.at(
            "freedom.power_modes",
            message,
            "name at least one, or leave freedom.power_modes out for the current mode",
        ),
        QueryError::EmptyBatch { .. } => Code::InvalidField.at(
            "freedom.batch",
            message,
            "give a min of 1 or more and a max that is not smaller",
        ),
        QueryError::NothingToChoose { .. } => {
            Code::UnsupportedWorkload.at("workload.op.kind", message, "ask POST /v1/predict for its time")
        }
        QueryError::NoThreads => {
            Code::InvalidField.at("freedom.threads", message, "leave freedom.threads out")
        }
        QueryError::NoSuchTime { constraint, .. } => Code::UnsupportedConstraint.at(
            format!("constraints.{constraint}"),
            message,
            "leave it out, or ask for phase serve with several output_tokens, which has both",
        ),
        QueryError::TooMany { most, batches, .. } => Code::TooMany.at(
            "freedom.batch",
            message,
            format!("at most {most} are looked at: give a batch range within 1..{batches}, or name fewer formats and modes"),
        ),
        QueryError::PowerUnknown { objective: true, .. } => {
            Code::UnsupportedObjective.at("objective", message, "choose latency or throughput")
        }
        QueryError::PowerUnknown { objective: false, .. } => Code::UnsupportedConstraint.at(
            "constraints.max_power_w",
            message,
            "leave it out, or report measured runs with power_w: POST /v1/observations",
        ),
        QueryError::Predict(error) => unpredictable(error, "workload"),
        QueryError::Model(error) => run::unpredictable(error, "workload"),
        QueryError::Unwanted => super::wanted::unwanted(),
    }
}

#[cfg(test)]
mod tests {
    use rooflined_core::hardware::registry;
    use rooflined_models::definition::Definition;
    use rooflined_models::recipe::Recipe;
    use serde_json::json;

    use super::*;
    use crate::{Opener, Request, suppose};

    const KEY: &str = "llama-3.2-1b";
    const ORIN: &str = "jetson-agx-orin-64gb";

    /// The fields of that model's `config.json`, as it is published.
    fn config() -> Value {
        json!({
            "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128_256,
            "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        })
    }

    fn awq() -> Value {
        let mut config = config();
        config["quantization_config"] = json!({"quant_method": "awq", "bits": 4, "group_size": 128});
        config
    }

    /// A file of it.
    fn file(name: &str, recipe: &str) -> Value {
        let model = models().get(KEY).unwrap().model(recipe.parse::<Recipe>().unwrap());
        json!({"path": format!("/models/{name}"), "definition": Definition::of(&model, true)})
    }

    fn ask(hardware: &str, engine: &str, model: &Value, format: Option<&str>) -> Result<Value, Refusal> {
        let body = json!({
            "hardware": hardware, "engine": engine, "workload": {"model": model, "format": format},
        });
        let request = Request::Recommend(Box::new(serde_json::from_value(body).unwrap()));
        let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
        suppose(&catalogue, &request).map(|answer| serde_json::to_value(answer).unwrap())
    }

    #[track_caller]
    fn chosen(answer: &Result<Value, Refusal>) -> (&str, f64) {
        let decision = &answer.as_ref().unwrap()["decision"];
        let rate = decision["prediction"]["tokens_per_s"]["value"].as_f64().unwrap();
        (decision["format"].as_str().unwrap(), rate)
    }

    fn warnings(answer: &Result<Value, Refusal>) -> String {
        answer.as_ref().unwrap()["warnings"].to_string()
    }

    fn recommend(more: &Value) -> Value {
        let mut body = json!({"hardware": "orin-nano", "workload": {"model": "qwen3-4b"}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let request = Request::Recommend(Box::new(serde_json::from_value(body).unwrap()));
        let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
        serde_json::to_value(suppose(&catalogue, &request).unwrap()).unwrap()
    }

    #[test]
    fn several_sequences_are_compared_where_the_rate_counts_and_one_where_the_time_does() {
        let batch = |more: Value| recommend(&more)["decision"]["batch"].as_u64().unwrap();
        assert_eq!(batch(json!({})), 1);
        assert_eq!(batch(json!({"constraints": {"min_tokens_per_s": 5}})), 1, "one is enough");
        assert!(batch(json!({"constraints": {"min_tokens_per_s": 40}})) > 1);
        assert!(batch(json!({"objective": "throughput"})) > 1);
        assert_eq!(batch(json!({"objective": "throughput", "freedom": {"batch": {"max": 2}}})), 2);
    }

    #[test]
    fn without_an_engine_what_was_excluded_is_counted_in_all_of_them() {
        let limits = json!({"min_tokens_per_s": 15, "max_power_w": 12});
        let freedom = json!({"power_modes": "all", "batch": {"max": 1}});
        let both = recommend(&json!({"constraints": limits, "freedom": freedom}));
        let own = recommend(&json!({"constraints": limits, "freedom": freedom, "engine": "llama.cpp"}));
        assert!(both["candidates"].as_u64() > own["candidates"].as_u64(), "{both}");
        // No setting of llama.cpp is that fast at worst, but others are: they draw too much.
        assert_eq!(own["contradicting"], json!(["min_tokens_per_s"]));
        assert_eq!(both["contradicting"], json!(["min_tokens_per_s", "max_power_w"]));
        assert_eq!(both["violated"].as_array().unwrap().len(), 1, "{both}");
        let reason = both["reason"].as_str().unwrap();
        assert!(reason.starts_with("no candidate meets all limits together: of "), "{reason}");
    }

    #[test]
    fn a_name_of_several_variants_says_which_is_meant() {
        let said = warnings(&Ok(recommend(&json!({}))));
        assert!(said.contains("orin-nano means jetson-orin-nano-8gb-super here"), "{said}");
        assert!(said.contains("name it: jetson-orin-nano-4gb,"), "{said}");
        let said = warnings(&Ok(recommend(&json!({"hardware": "jetson-orin-nano-8gb"}))));
        assert!(!said.contains("another variant"), "{said}");
    }

    #[test]
    fn of_a_checkpoint_in_16_bits_the_same_is_chosen_as_of_the_model_by_its_key() {
        for (hardware, engine) in [
            (ORIN, "llama.cpp"),
            (ORIN, "vllm"),
            (ORIN, "tensorrt-edge-llm"),
            (ORIN, "mlc"),
            ("t4", "vllm"),
            ("v100", "vllm"),
            ("h100-sxm", "tensorrt-llm"),
        ] {
            let by_key = ask(hardware, engine, &json!(KEY), None);
            for model in [config(), file("model.safetensors", "bf16")] {
                let answer = ask(hardware, engine, &model, None);
                assert_eq!(chosen(&answer), chosen(&by_key), "{engine} on {hardware}");
            }
        }
    }

    #[test]
    fn what_the_engine_cannot_take_as_it_is_has_to_be_made_of_it_and_that_is_said() {
        for (hardware, engine, reason) in [
            (ORIN, "tensorrt-edge-llm", "the model is stored as bf16: TensorRT-Edge-LLM has no bf16"),
            ("t4", "vllm", "needs compute capability 8.0"),
        ] {
            let warnings = warnings(&ask(hardware, engine, &config(), None));
            assert!(warnings.contains(reason) && warnings.contains("has to be made of it"), "{warnings}");
        }
        let none = |model: &Value, engine: &str| {
            let warnings = warnings(&ask(ORIN, engine, model, None));
            assert!(!warnings.contains("has to be made of it"), "{warnings}");
        };
        none(&config(), "vllm");
        let gguf = file("m-f16.gguf", "fp16");
        none(&gguf, "llama.cpp");
        let warnings = warnings(&ask(ORIN, "vllm", &gguf, None));
        assert!(warnings.contains("vllm reads no GGUF files"), "{warnings}");
    }

    #[test]
    fn a_service_that_holds_is_asked_about_the_file_that_it_serves() {
        let snapshot = Snapshot::hypothetical(Arc::new(registry().get(ORIN).unwrap().clone()));
        let catalogue = Catalogue::new(registry().clone(), Opener::Caller);
        let body = json!({"engine": "llama.cpp", "workload": {"model": file("m-f16.gguf", "fp16")}});
        let request: RecommendRequest = serde_json::from_value(body).unwrap();
        let formats = |forms| {
            let (query, _) = query(&snapshot, &catalogue, &request, forms).unwrap();
            let WorkForms::Model { stored, .. } = query.work else { panic!("a model was asked about") };
            stored.into_iter().map(|stored| stored.format.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(formats(Forms::AtHand), ["fp16"]);
        assert!(formats(Forms::ThatCanBeMade).contains(&"q4_k_m".to_owned()));
    }

    #[test]
    fn what_is_at_hand_is_among_what_is_chosen_from() {
        let formats = |model| {
            let answer = ask(ORIN, "llama.cpp", &model, None).unwrap();
            let rows = answer["alternatives"].as_array().unwrap().iter();
            rows.map(|row| row["format"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
        };
        let of_gguf = formats(file("m-f16.gguf", "fp16"));
        assert!(of_gguf.contains("fp16") && of_gguf.contains("q8_0"), "{of_gguf:?}");
        let of_checkpoint = formats(config());
        assert!(of_checkpoint.contains("bf16") && of_checkpoint.contains("q8_0"), "{of_checkpoint:?}");
        // Made of the file where it is another format, served as it is where it is its own.
        let line = |format| {
            let answer = ask(ORIN, "llama.cpp", &file("m-f16.gguf", "fp16"), format).unwrap();
            answer["apply"]["settings"]["llama.cpp"].as_str().unwrap().to_owned()
        };
        assert!(
            line(None).starts_with("llama-quantize MODEL-F16.gguf MODEL.gguf Q4_K_M && "),
            "{}",
            line(None)
        );
        assert!(line(Some("fp16")).starts_with("llama-server "), "{}", line(Some("fp16")));
    }

    #[test]
    fn a_packed_model_keeps_its_format_and_where_it_does_not_run_the_refusal_names_it() {
        // One says 16 bits, and its weights are packed.
        let mut mislabelled = file("m.safetensors", "fp8_e4m3");
        mislabelled["definition"]["label"] = json!("bf16");
        for (engine, model, own) in [
            ("vllm", awq(), "awq_int4"),
            ("llama.cpp", file("m.gguf", "q5_k_m"), "q5_k_m"),
            ("vllm", mislabelled, "bf16"),
        ] {
            let answer = ask(ORIN, engine, &model, None);
            assert_eq!(chosen(&answer).0, own);
            assert_eq!(answer.unwrap()["alternatives"], json!([]));
        }
        for (engine, model, says, hints) in [
            (
                "llama.cpp",
                awq(),
                "stored as awq_int4: llama.cpp has no awq_int4",
                ["vllm", "the nearest is q4_k_m"],
            ),
            (
                "vllm",
                file("m.gguf", "q4_k_m"),
                "stored as q4_k_m: ",
                ["llama.cpp", "the nearest is awq_int4"],
            ),
        ] {
            let refusal = ask(ORIN, engine, &model, None).unwrap_err();
            assert_eq!(refusal.code, Code::UnsupportedFormat);
            assert_eq!(refusal.field.as_deref(), Some("workload.model"));
            assert!(refusal.message.contains(says), "{refusal}");
            assert!(hints.iter().all(|hint| refusal.hint.contains(hint)), "{refusal}");
            let named = ask(ORIN, engine, &model, Some("fp8_e5m2")).unwrap_err();
            assert_eq!(named.field.as_deref(), Some("workload.format"), "{named}");
        }
    }

    #[test]
    fn an_engine_that_runs_nowhere_there_is_itself_the_wrong_field() {
        for (hardware, engine) in [(ORIN, "tensorrt-llm"), ("t4", "tensorrt-llm")] {
            for model in [json!(KEY), config(), awq()] {
                for format in [None, Some("fp16")] {
                    let refusal = ask(hardware, engine, &model, format).unwrap_err();
                    assert_eq!(refusal.field.as_deref(), Some("engine"), "{refusal}");
                    assert_eq!(refusal.message.contains("Jetson"), hardware == ORIN, "{refusal}");
                }
            }
        }
    }
}
