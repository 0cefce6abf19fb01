//! A cross product of predictions: shapes or models, formats, power modes, threads, batches and contexts.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::catalogue::Catalogue;
use super::mode_named::{cap_named, mode_named};
use super::modes::Model;
use super::observe::ObservedSoFar;
use super::predict::{self, Work, predicted};
use super::question::{both_given, expected_loss};
use super::settings::Device;
use super::supported;
use super::task::{Task, formats_or_measured, invalid_op, is_all, model_at, usual_formats, with_threads};
use super::wanted::Wanted;
use crate::bytes::{MAX_ANSWER_BYTES, length_of};
use rooflined_api::{
    ModeAnswer, OperatingPointRequest, RecommendRequest, SweepAnswer, SweepRequest, SweepRow, SweepWarning,
    Workload,
};
use rooflined_core::board::ActiveMode;
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::{Code, Refusal, all};
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;
use rooflined_predict::optimize::{ModelOrigin, with_columns};
use rooflined_predict::snapshot::Snapshot;
use rooflined_predict::{Engine, PredictError};

/// Most rows of one sweep.
pub const MAX_SWEEP_ROWS: u64 = 16_384;

/// An operating point of the cross product.
struct SweepPoint<'a> {
    mode: Option<ModeAnswer>,
    model: Model<'a>,
}

/// `POST /v1/sweep`.
pub fn sweep(
    wanted: Wanted<'_>,
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &SweepRequest,
) -> Result<SweepAnswer, Refusal> {
    let batches = listed(request.batches.as_deref(), "batches", "leave it out for 1")?;
    let contexts = listed(request.contexts.as_deref(), "contexts", "leave it out for the usual 4096")?;
    listed(
        request.formats.as_deref(),
        "formats",
        "leave it out for every format measured, or the usual ones",
    )?;
    check_fields(request)?;
    let modes = points(snapshot, request)?;
    let each_thread_count =
        request.threads.as_deref().map_or(1, |threads| threads.iter().collect::<BTreeSet<_>>().len());
    let points_count = product(&[modes.len(), each_thread_count.max(1)]);
    let formats = if request.ops.is_empty() { Vec::new() } else { formats(snapshot, request)? };
    let keys = model_formats(snapshot, request)?;
    let mut engines = HashMap::new();
    let per_op = product(&[formats.len(), batches.map_or(1, <[u64]>::len)]).saturating_mul(points_count);
    let per_model = product(&[keys.len(), batches.map_or(1, <[u64]>::len), contexts.map_or(1, <[u64]>::len)])
        .saturating_mul(points_count);
    let rows = per_op
        .saturating_mul(request.ops.len() as u64)
        .saturating_add(per_model.saturating_mul(request.models.len() as u64));
    if rows > MAX_SWEEP_ROWS {
        return Err(Code::TooMany.at(
            if request.ops.is_empty() { "models" } else { "ops" },
            format!("the cross product has {rows} rows, more than {MAX_SWEEP_ROWS}"),
            "sweep fewer shapes, models, formats, modes, threads, batches or contexts at a time",
        ));
    }
    let points = with_each_thread_count(snapshot, request, modes)?;
    let contexts: Vec<Option<u64>> =
        contexts.map_or_else(|| vec![None], |contexts| contexts.iter().copied().map(Some).collect());
    let mut table = Rows::of(wanted, rows);
    for point in &points {
        for (index, &op) in request.ops.iter().enumerate() {
            sweep_op(
                snapshot,
                request,
                point,
                &columns_of(op, index, batches)?,
                &formats,
                index,
                &mut table,
            )?;
        }
        for (index, model) in request.models.iter().enumerate() {
            for format in &keys {
                let path = format!("models[{index}]");
                let engine = match engines.entry((index, format)) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(place) => {
                        let engine = engine_of(snapshot, catalogue, request, model, format.as_ref());
                        let of_this = |field: String| field.replacen("workload", &path, 1);
                        let refused = |error: Refusal| named(error.rename_fields(of_this), &path);
                        *place.insert(engine.map_err(refused)?)
                    }
                };
                let Some(engine) = engine else { continue };
                for &batch in batches.unwrap_or(&[1]) {
                    for &context in &contexts {
                        let workload = Workload {
                            model: Some(model.clone()),
                            format: format.clone(),
                            kv_format: request.kv_format.clone(),
                            phase: request.phase.clone(),
                            batch: Some(batch),
                            context_tokens: context,
                            prompt_tokens: request.prompt_tokens,
                            output_tokens: request.output_tokens,
                            cached_tokens: request.cached_tokens,
                            chunk_tokens: request.chunk_tokens,
                            speculative: request.speculative.clone(),
                            image_tokens: request.image_tokens,
                            ..Workload::default()
                        };
                        let row = model_row(snapshot, catalogue, request, point, (&workload, engine), &path);
                        table.push(row?, &path)?;
                    }
                }
            }
        }
    }
    Ok(table.answer(snapshot))
}

/// The rows so far, with each warning once.
struct Rows<'a> {
    wanted: Wanted<'a>,
    rows: Vec<SweepRow>,
    /// How many there will be.
    expected: u64,
    /// Of the rows and warnings so far, as they are sent.
    bytes: usize,
    warnings: Vec<SweepWarning>,
    /// Where each warning is.
    positions: HashMap<String, usize>,
}

impl<'a> Rows<'a> {
    fn of(wanted: Wanted<'a>, expected: u64) -> Self {
        Self { wanted, rows: Vec::new(), expected, bytes: 0, warnings: Vec::new(), positions: HashMap::new() }
    }

    /// Takes in a row.
    ///
    /// # Errors
    /// The answer is too large, or would be if the others are like the first (`path` names what it is about), or nobody
    /// waits for it.
    fn push(&mut self, mut row: SweepRow, path: &str) -> Result<(), Refusal> {
        self.wanted.check()?;
        let number = self.rows.len() as u64;
        for message in std::mem::take(&mut row.prediction.warnings) {
            let position = *self.positions.entry(message.clone()).or_insert_with(|| {
                self.bytes += length_of(&message);
                self.warnings.push(SweepWarning { message, rows: Some(Vec::new()) });
                self.warnings.len() - 1
            });
            let rows = self.warnings[position].rows.get_or_insert_default();
            if rows.last() != Some(&number) {
                rows.push(number);
                // Five digits and a comma.
                self.bytes += 6;
            }
        }
        let length = length_of(&row);
        self.bytes += length;
        self.rows.push(row);
        let all = if number == 0 { length.saturating_mul(self.expected as usize) } else { 0 };
        if all.max(self.bytes) <= MAX_ANSWER_BYTES {
            return Ok(());
        }
        let most = MAX_ANSWER_BYTES / 1_000_000;
        let fit = (self.rows.len() * MAX_ANSWER_BYTES / self.bytes).max(1);
        // It is about all of them, not the one that was too many.
        Err(Code::TooMany.at(
            path.split('[').next().unwrap_or(path),
            format!(
                "the answer would have more than {most} MB: {} rows, of which about {fit} fit",
                self.expected
            ),
            "sweep fewer shapes, models, formats, modes, threads, batches or contexts at a time",
        ))
    }

    fn answer(mut self, snapshot: &Snapshot) -> SweepAnswer {
        for warning in &mut self.warnings {
            if warning.rows.as_ref().is_some_and(|rows| rows.len() == self.rows.len()) {
                warning.rows = None;
            }
        }
        SweepAnswer {
            rows: self.rows,
            warnings: self.warnings,
            simulated: snapshot.board.simulated,
            serial: snapshot.serial,
        }
    }
}

fn product(lengths: &[usize]) -> u64 {
    lengths.iter().fold(1, |product: u64, &length| product.saturating_mul(length as u64))
}

/// A list that is not empty if it is there.
fn listed<'a, T>(list: Option<&'a [T]>, field: &str, hint: &str) -> Result<Option<&'a [T]>, Refusal> {
    match list {
        Some([]) => Err(Code::InvalidField.at(field, format!("{field} is empty"), hint)),
        other => Ok(other),
    }
}

/// There is something to sweep, and nothing that only the other kind has.
fn check_fields(request: &SweepRequest) -> Result<(), Refusal> {
    if request.ops.is_empty() && request.models.is_empty() {
        return Err(Code::MissingField.at(
            "ops",
            "there is no operation and no model to sweep",
            "name at least one in ops or models",
        ));
    }
    let of_models = [
        ("contexts", request.contexts.is_some()),
        ("kv_format", request.kv_format.is_some()),
        ("phase", request.phase.is_some()),
        ("prompt_tokens", request.prompt_tokens.is_some()),
        ("output_tokens", request.output_tokens.is_some()),
    ];
    match of_models.into_iter().find(|(_, given)| *given && request.models.is_empty()) {
        Some((name, _)) => Err(Code::InvalidField.at(
            name,
            format!("{name} applies to models, and only operations are swept"),
            "leave it out, or name models",
        )),
        None => Ok(()),
    }
}

/// The operating points: every mode named, or the one asked for.
fn points<'a>(snapshot: &'a Snapshot, request: &SweepRequest) -> Result<Vec<SweepPoint<'a>>, Refusal> {
    let Some(names) =
        listed(request.power_modes.as_deref(), "power_modes", "leave it out for the current mode")?
    else {
        let model = model_at(snapshot, request.operating_point.as_ref(), "operating_point")?;
        return Ok(vec![SweepPoint { mode: None, model }]);
    };
    let every: Vec<String> = snapshot.modes.iter().map(|view| view.mode.name.clone()).collect();
    let names = if is_all(names) && !every.is_empty() { &every } else { names };
    if let Some(point) = &request.operating_point {
        return Err(both_given(point, "power_modes"));
    }
    let at_mode = |(index, name): (usize, &String)| {
        let field = format!("power_modes[{index}]");
        let ActiveMode { id, name } = match cap_named(snapshot, &field, name)? {
            Some(cap) => cap.mode(),
            None => mode_named(snapshot, &field, name)?.mode.key(),
        };
        let point = OperatingPointRequest { power_mode: Some(name.clone()), ..Default::default() };
        let mode = Some(ModeAnswer { id, name });
        Ok(SweepPoint { mode, model: model_at(snapshot, Some(&point), &field)? })
    };
    all(names.iter().enumerate().map(at_mode))
}

/// Each of the operating points with every number of threads that is asked for.
fn with_each_thread_count<'a>(
    snapshot: &Snapshot,
    request: &SweepRequest,
    points: Vec<SweepPoint<'a>>,
) -> Result<Vec<SweepPoint<'a>>, Refusal> {
    let hint = "leave it out for as many as the engine takes";
    let Some(threads) = listed(request.threads.as_deref(), "threads", hint)? else { return Ok(points) };
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for point in &points {
        seen.clear();
        for (index, &count) in threads.iter().enumerate().filter(|(_, count)| seen.insert(**count)) {
            let model =
                with_threads(snapshot, point.model.clone(), Some(count), &format!("threads[{index}]"))?;
            all.push(SweepPoint { mode: point.mode.clone(), model });
        }
    }
    Ok(all)
}

fn sweep_op(
    snapshot: &Snapshot,
    request: &SweepRequest,
    point: &SweepPoint<'_>,
    ops: &[Op],
    formats: &[WeightFormat],
    index: usize,
    rows: &mut Rows<'_>,
) -> Result<(), Refusal> {
    for (number, &format) in formats.iter().enumerate() {
        for &op in ops {
            let numeric = snapshot.numeric_format(format);
            let task = Task { op, format, numeric, engine: request.engine };
            if !request.hypothetical {
                predict::refuse_unsupported(snapshot, &Work::Op(task), "ops").map_err(|error| {
                    let is_engine = error.field.as_deref() == Some(supported::ENGINE);
                    let field = if is_engine { error.field } else { Some(format!("formats[{number}]")) };
                    Refusal { field, ..error }
                })?;
            }
            let prediction = predict::predict_op(snapshot, &point.model, &snapshot.residuals, &task)
                .map_err(|error| match error {
                    PredictError::Op(error) => invalid_op(&error, &format!("ops[{index}]")),
                    error @ PredictError::NoUnit { .. } => Code::NoUnit.at(
                        format!("formats[{number}]"),
                        error.to_string(),
                        "leave this format out",
                    ),
                })?;
            let work = Work::Op(task);
            let mut prediction = predict::prediction_answer(snapshot, &work, prediction);
            prediction.warnings.extend(predict::hypothetical_warning(snapshot, &work));
            let row = SweepRow {
                op: Some(op),
                model: None,
                quality_loss_ratio: None,
                power_mode: point.mode.clone(),
                threads: request.threads.as_ref().and(point.model.threads),
                batch: op.tokens(),
                prediction,
            };
            rows.push(row, &format!("ops[{index}]"))?;
        }
    }
    Ok(())
}

fn model_row(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &SweepRequest,
    point: &SweepPoint<'_>,
    (workload, engine): (&Workload, Engine),
    path: &str,
) -> Result<SweepRow, Refusal> {
    let work = Work::new(snapshot, catalogue, workload, engine, path).map_err(|error| named(error, path))?;
    if !request.hypothetical {
        predict::refuse_unsupported(snapshot, &work, path).map_err(|error| named(error, path))?;
    }
    let mut prediction = predicted(snapshot, &point.model, &ObservedSoFar::of(snapshot), &work, path)
        .map_err(|error| named(error, path))?;
    prediction.warnings.extend(predict::hypothetical_warning(snapshot, &work));
    let Work::Model(task) = work else {
        return Err(Code::Internal.error("a model became an operation", "report this"));
    };
    let format = task.format.as_deref();
    let origin = match &workload.model {
        Some(Value::String(key)) => catalogue.origin(key, format),
        _ => ModelOrigin::Otherwise,
    };
    Ok(SweepRow {
        op: None,
        model: Some(match workload.model.as_ref() {
            Some(Value::String(key)) => key.clone(),
            _ => task.model.name.clone(),
        }),
        quality_loss_ratio: expected_loss(origin, format),
        power_mode: point.mode.clone(),
        threads: request.threads.as_ref().and(point.model.threads),
        batch: task.request.batch,
        prediction,
    })
}

/// The engine that a model is predicted for in a format: the one that the request names, else the recommended one. `None` where no
/// engine runs a format that the request did not name.
fn engine_of(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &SweepRequest,
    model: &Value,
    format: Option<&String>,
) -> Result<Option<Engine>, Refusal> {
    let workload = Workload {
        model: Some(model.clone()),
        format: format.cloned(),
        kv_format: request.kv_format.clone(),
        phase: request.phase.clone(),
        prompt_tokens: request.prompt_tokens,
        output_tokens: request.output_tokens,
        speculative: request.speculative.clone(),
        ..Workload::default()
    };
    let question = RecommendRequest {
        operating_point: request.operating_point.clone(),
        engine: request.engine,
        workload,
        hypothetical: request.hypothetical,
        ..RecommendRequest::default()
    };
    match predict::engine_of(snapshot, catalogue, &question) {
        Err(refusal) if refusal.code == Code::UnsupportedFormat && !names_formats(request) => Ok(None),
        found => found.map(Some),
    }
}

/// Whether the request names formats, each of which then has to be one that can run.
fn names_formats(request: &SweepRequest) -> bool {
    request.formats.as_deref().is_some_and(|names| !is_all(names))
}

/// The error of a workload that this route spells otherwise.
fn named(error: Refusal, path: &str) -> Refusal {
    let at = |name: &str| format!("{path}.{name}");
    error.rename_fields(|field| match field {
        field if field == at("model") || field == at("op") => path.to_owned(),
        field if field == at("format") => "formats".to_owned(),
        field if field == at("batch") => "batches".to_owned(),
        field if field == at("context_tokens") => "contexts".to_owned(),
        field => match field.strip_prefix(&at("")) {
            Some(name) if !name.starts_with("model.") => name.to_owned(),
            _ => field.replacen(&at("model."), &at(""), 1),
        },
    })
}

/// The operation at each batch; without batches, as it is.
fn columns_of(op: Op, index: usize, batches: Option<&[u64]>) -> Result<Vec<Op>, Refusal> {
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

fn formats(snapshot: &Snapshot, request: &SweepRequest) -> Result<Vec<WeightFormat>, Refusal> {
    let mut formats = formats_or_measured(snapshot, request.formats.as_deref(), "formats")?;
    // What was named is refused row by row; what was not is what the engine has.
    if !names_formats(request) && !request.hypothetical {
        supported::keep_formats(&mut formats, request.engine, snapshot, supported::ENGINE)?;
    }
    Ok(formats)
}

/// Whether a model's name says nothing of its format.
fn has_no_storage(name: &str) -> bool {
    models().stored_in(name).is_none()
}

/// Formats of models: mixes are none of single operations. `None` leaves a file as it is.
fn model_formats(snapshot: &Snapshot, request: &SweepRequest) -> Result<Vec<Option<String>>, Refusal> {
    let every = || Recipe::all().map(|recipe| recipe.key().to_owned());
    Ok(match &request.formats {
        Some(names) if is_all(names) && request.engine == Engine::Bare => every().map(Some).collect(),
        Some(names) if is_all(names) => {
            let target = Device::of(snapshot).target();
            let runs = |key: &String| supported::stored(request.engine, "", Some(key), None, target).is_ok();
            every().filter(runs).map(Some).collect()
        }
        Some(names) => {
            let mut seen = BTreeSet::new();
            names.iter().filter(|name| seen.insert(*name)).map(|name| Some(name.clone())).collect()
        }
        None if request.models.iter().all(|model| model.as_str().is_some_and(has_no_storage)) => {
            let mut formats = usual_formats(snapshot).collect();
            if !request.hypothetical {
                supported::keep_formats(&mut formats, request.engine, snapshot, supported::ENGINE)?;
            }
            formats.into_iter().map(|format| Some(format.key().to_owned())).collect()
        }
        None => vec![None],
    })
}
