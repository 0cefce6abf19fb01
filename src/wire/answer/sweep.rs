//! A cross product of predictions: shapes or models, formats, power modes, threads, batches and contexts.

use std::collections::BTreeSet;

use serde_json::Value;

use super::catalogue::Catalogue;
use super::mode_named::mode_named;
use super::modes::Model;
use super::observe::ObservedSoFar;
use super::predict::{self, Work, predicted};
use super::supported;
use super::task::{Task, format_named, invalid_op, model_at, with_threads};
use ::predict::PredictError;
use decide::optimize::with_columns;
use decide::snapshot::Snapshot;
use roofline::precision::{Precision, WeightFormat};
use roofline::refusal::{Code, Refusal};
use roofline::workload::Op;
use wire::{ModeAnswer, OperatingPointRequest, SweepAnswer, SweepRequest, SweepRow, Workload};

/// Most rows of one sweep.
pub const MAX_SWEEP_ROWS: u64 = 16_384;

/// Formats swept where none is named and none has been measured: one of each width that people run, and of the narrow
/// ones those that the accelerator has a unit for.
const USUAL: [(WeightFormat, Option<Precision>); 7] = [
    (WeightFormat::Fp16, None),
    (WeightFormat::Fp8E4m3, Some(Precision::Fp8)),
    (WeightFormat::Int8, Some(Precision::Int8)),
    (WeightFormat::Q8_0, None),
    (WeightFormat::Q4KM, None),
    (WeightFormat::Int4G128, None),
    (WeightFormat::Nvfp4, Some(Precision::Fp4)),
];

/// An operating point of the cross product.
struct SweepPoint<'a> {
    mode: Option<ModeAnswer>,
    model: Model<'a>,
}

/// `POST /v1/sweep`.
pub fn sweep(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &SweepRequest,
) -> Result<SweepAnswer, Refusal> {
    let batches = listed(request.batches.as_deref(), "batches", "leave it out for 1")?;
    let contexts = listed(request.contexts.as_deref(), "contexts", "leave it out for 0")?;
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
    let mut rows = Vec::new();
    for point in &points {
        for (index, &op) in request.ops.iter().enumerate() {
            sweep_op(snapshot, request, point, &columns_of(op, index, batches)?, &formats, index, &mut rows)?;
        }
        for (index, model) in request.models.iter().enumerate() {
            for format in &keys {
                for &batch in batches.unwrap_or(&[1]) {
                    for &context in contexts.unwrap_or(&[0]) {
                        let workload = Workload {
                            model: Some(model.clone()),
                            format: format.clone(),
                            kv_format: request.kv_format.clone(),
                            phase: request.phase.clone(),
                            batch: Some(batch),
                            context_tokens: Some(context),
                            prompt_tokens: request.prompt_tokens,
                            output_tokens: request.output_tokens,
                            cached_tokens: request.cached_tokens,
                            chunk_tokens: request.chunk_tokens,
                            speculative: request.speculative,
                            image_tokens: request.image_tokens,
                            ..Workload::default()
                        };
                        let path = format!("models[{index}]");
                        rows.push(model_row(snapshot, catalogue, request, point, &workload, &path)?);
                    }
                }
            }
        }
    }
    Ok(SweepAnswer { rows, simulated: snapshot.board.simulated, serial: snapshot.serial })
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
    if request.operating_point.is_some() {
        return Err(Code::InvalidField.at(
            "operating_point",
            "operating_point and power_modes are both given",
            "leave one of the two out",
        ));
    }
    let at_mode = |(index, name): (usize, &String)| {
        let field = format!("power_modes[{index}]");
        let view = mode_named(snapshot, &field, name)?;
        let point = OperatingPointRequest { power_mode: Some(view.mode.name.clone()), ..Default::default() };
        let mode = Some(ModeAnswer { id: view.mode.id, name: view.mode.name.clone() });
        Ok(SweepPoint { mode, model: model_at(snapshot, Some(&point), &field)? })
    };
    names.iter().enumerate().map(at_mode).collect()
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
    rows: &mut Vec<SweepRow>,
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
            rows.push(SweepRow {
                op: Some(op),
                model: None,
                format: Some(format.key().to_owned()),
                power_mode: point.mode.clone(),
                threads: request.threads.as_ref().and(point.model.threads),
                batch: op.tokens(),
                context_tokens: None,
                prediction,
            });
        }
    }
    Ok(())
}

fn model_row(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    request: &SweepRequest,
    point: &SweepPoint<'_>,
    workload: &Workload,
    path: &str,
) -> Result<SweepRow, Refusal> {
    let work =
        Work::new(snapshot, catalogue, workload, request.engine, path).map_err(|error| named(error, path))?;
    if !request.hypothetical {
        predict::refuse_unsupported(snapshot, &work, path).map_err(|error| named(error, path))?;
    }
    let mut prediction = predicted(snapshot, &point.model, &ObservedSoFar::of(snapshot), &work, path)
        .map_err(|error| named(error, path))?;
    prediction.warnings.extend(predict::hypothetical_warning(snapshot, &work));
    let Work::Model(task) = work else {
        return Err(Code::Internal.error("a model became an operation", "report this"));
    };
    Ok(SweepRow {
        op: None,
        model: Some(match workload.model.as_ref() {
            Some(Value::String(key)) => key.clone(),
            _ => task.model.name.clone(),
        }),
        format: task.format,
        power_mode: point.mode.clone(),
        threads: request.threads.as_ref().and(point.model.threads),
        batch: task.request.batch,
        context_tokens: Some(task.request.context_tokens),
        prediction,
    })
}

/// The error of a workload that this route spells otherwise.
fn named(mut error: Refusal, path: &str) -> Refusal {
    let at = |name: &str| format!("{path}.{name}");
    error.field = error.field.map(|field| match field {
        field if field == at("model") || field == at("op") => path.to_owned(),
        field if field == at("format") => "formats".to_owned(),
        field if field == at("batch") => "batches".to_owned(),
        field if field == at("context_tokens") => "contexts".to_owned(),
        field => match field.strip_prefix(&at("")) {
            Some(name) if !name.starts_with("model.") => name.to_owned(),
            _ => field.replacen(&at("model."), &at(""), 1),
        },
    });
    error
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
    if request.formats.is_none() && !request.hypothetical {
        supported::keep_formats(&mut formats, request.engine, snapshot, supported::ENGINE)?;
    }
    Ok(formats)
}

/// Formats of models: mixes are none of single operations. `None` leaves a file as it is.
fn model_formats(snapshot: &Snapshot, request: &SweepRequest) -> Result<Vec<Option<String>>, Refusal> {
    Ok(match &request.formats {
        Some(names) => {
            let mut seen = BTreeSet::new();
            names.iter().filter(|name| seen.insert(*name)).map(|name| Some(name.clone())).collect()
        }
        None if request.models.iter().all(Value::is_string) => {
            let mut formats = usual(snapshot).collect();
            if !request.hypothetical {
                supported::keep_formats(&mut formats, request.engine, snapshot, supported::ENGINE)?;
            }
            formats.into_iter().map(|format| Some(format.key().to_owned())).collect()
        }
        None => vec![None],
    })
}

fn usual(snapshot: &Snapshot) -> impl Iterator<Item = WeightFormat> + '_ {
    let has = |unit: Option<Precision>| unit.is_none_or(|unit| snapshot.roofline.compute(unit).is_some());
    USUAL.into_iter().filter(move |(_, unit)| has(*unit)).map(|(format, _)| format)
}

/// The formats named, or else every format measured on this machine; the usual ones where none has been, or there is no
/// machine.
pub fn formats_or_measured(
    snapshot: &Snapshot,
    names: Option<&[String]>,
    field: &str,
) -> Result<Vec<WeightFormat>, Refusal> {
    let mut formats = match names {
        Some(names) => names
            .iter()
            .enumerate()
            .map(|(index, name)| format_named(name, || format!("{field}[{index}]")))
            .collect::<Result<Vec<_>, _>>()?,
        None if snapshot.is_hypothetical() || snapshot.measured_formats().next().is_none() => {
            usual(snapshot).collect()
        }
        None => snapshot.measured_formats().collect(),
    };
    let mut seen = BTreeSet::new();
    formats.retain(|format| seen.insert(*format));
    if formats.is_empty() {
        return Err(Code::InvalidField.at(
            field,
            format!("{field} is empty"),
            "leave it out for every format measured on this machine, or the usual ones before a calibration",
        ));
    }
    Ok(formats)
}
