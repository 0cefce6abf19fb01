//! A workload of the wire → an operation that can be predicted.

use super::mode_named::mode_named;
use super::modes::{Model, gpu_model_at};
use super::words::{positive, shorten};
use std::borrow::Cow;
use std::collections::BTreeSet;

use rooflined_api::{OperatingPointRequest, Workload};
use rooflined_core::ceilings::scaling;
use rooflined_core::operation::{InvalidOp, Op};
use rooflined_core::precision::{NumericFormat, Precision, WeightFormat};
use rooflined_core::refusal::{Code, Refusal, all};
use rooflined_core::units::Hertz;
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::learning::ResidualKey;
use rooflined_predict::optimize::with_columns;
use rooflined_predict::snapshot::Snapshot;
use rooflined_predict::{Engine, PredictError, Prediction, predict};

/// One operation as one engine would run it on this machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// With its columns applied.
    pub op: Op,
    /// Storage of the weights.
    pub format: WeightFormat,
    /// Storage and arithmetic of everything.
    pub numeric: NumericFormat,
    /// Inference engine whose kernels run.
    pub engine: Engine,
}

/// Storage where the request names none.
const DEFAULT_FORMAT: WeightFormat = WeightFormat::Fp16;

impl Task {
    /// Reads the workload at `path` of the request.
    ///
    /// # Errors
    /// A model, a field that operations do not have, an unknown format or an impossible dimension.
    pub fn new(
        snapshot: &Snapshot,
        workload: &Workload,
        engine: Engine,
        path: &str,
    ) -> Result<Self, Refusal> {
        let op = operation(workload, path)?;
        let format = match &workload.format {
            Some(name) => format_named(name, || format!("{path}.format"))?,
            None => DEFAULT_FORMAT,
        };
        let mut numeric = snapshot.numeric_format(format);
        if let Some(name) = &workload.kv_format {
            let field = format!("{path}.kv_format");
            if !matches!(op, Op::Attention { .. }) {
                return Err(Code::InvalidField.at(
                    &field,
                    format!("{field} applies to attention; {} has no key/value cache", op.kind()),
                    "leave it out",
                ));
            }
            numeric.kv_cache = format_named(name, || field)?;
        }
        Ok(Self { op, format, numeric, engine })
    }

    /// Predicts it with `model`, without what was learnt from services.
    ///
    /// # Errors
    /// An impossible operation, or a precision with no unit to run on.
    pub fn predict(&self, model: &Model<'_>) -> Result<Prediction, PredictError> {
        let (roofline, profile) = (model.roofline.as_ref(), model.profile.as_ref());
        if self.engine == Engine::Bare {
            predict(roofline, profile, &self.op, &self.numeric)
        } else {
            predict(roofline, &profile.clone().lent_to(self.engine), &self.op, &self.numeric)
        }
    }

    /// What a residual for it is filed under.
    #[must_use]
    pub fn residual_key(&self) -> ResidualKey {
        ResidualKey::new(self.engine, &self.op, self.format)
    }
}

/// The operation of a workload with its batch applied and its dimensions checked.
///
/// # Errors
/// A model, no operation, a field that operations do not have, or an impossible dimension.
pub fn operation(workload: &Workload, path: &str) -> Result<Op, Refusal> {
    if workload.model.is_some() {
        return Err(Code::UnsupportedWorkload.at(
            format!("{path}.model"),
            "this takes an operation and no model",
            format!(
                "ask for its operations one by one: {path}.op = {{\"kind\":\"gemv\",\"n\":…,\"k\":…}}; POST /v1/predict, \
                 /v1/sweep and /v1/analyze take models"
            ),
        ));
    }
    let Some(op) = workload.op else {
        return Err(Code::MissingField.at(
            format!("{path}.op"),
            format!("{path} has no op"),
            "add \"op\":{\"kind\":\"gemv\",\"n\":4096,\"k\":4096}",
        ));
    };
    let of_models = [
        ("task", workload.task.is_some()),
        ("phase", workload.phase.is_some()),
        ("context_tokens", workload.context_tokens.is_some()),
        ("prompt_tokens", workload.prompt_tokens.is_some()),
        ("output_tokens", workload.output_tokens.is_some()),
        ("cached_tokens", workload.cached_tokens.is_some()),
        ("chunk_tokens", workload.chunk_tokens.is_some()),
        ("speculative", workload.speculative.is_some()),
        ("offload", workload.offload.is_some()),
        ("image_tokens", workload.image_tokens.is_some()),
    ];
    if let Some((name, _)) = of_models.into_iter().find(|(_, present)| *present) {
        return Err(Code::InvalidField.at(
            format!("{path}.{name}"),
            format!("{path}.{name} applies to models, and this is an operation"),
            "leave it out; attention has its tokens inside op",
        ));
    }
    op.validate().map_err(|error| invalid_op(&error, &format!("{path}.op")))?;
    let op = match workload.batch {
        None => op,
        Some(batch) => batched(op, batch, path)?,
    };
    op.validate().map_err(|error| invalid_op(&error, &format!("{path}.op")))?;
    Ok(op)
}

/// Applies `batch`: columns of a GEMV; at the others it would say twice what the operation says already.
fn batched(op: Op, batch: u64, path: &str) -> Result<Op, Refusal> {
    let field = format!("{path}.batch");
    let (name, own) = match op {
        Op::Gemv { .. } => {
            if batch == 0 {
                return Err(Code::InvalidDimension.at(field, "the batch is 0", "give 1 or more"));
            }
            return Ok(with_columns(op, batch));
        }
        Op::Gemm { m, .. } => ("m", m),
        Op::Attention { batch, .. } => ("batch", batch),
    };
    if batch == own {
        return Ok(op);
    }
    let kind = op.kind();
    Err(Code::InvalidField.at(
        field,
        format!("the batch of {kind} is its {name}, which is {own}, and batch says {batch}"),
        format!("leave {path}.batch out, or change {path}.op.{name}"),
    ))
}

/// An impossible operation at `path` of the request.
pub fn invalid_op(error: &InvalidOp, path: &str) -> Refusal {
    let (field, hint) = match error {
        InvalidOp::Dimension { field, .. } => (*field, "give a whole number within these limits"),
        InvalidOp::HeadGroups { .. } => ("kv_heads", "kv_heads must divide heads: 1 is MQA, heads is MHA"),
    };
    Code::InvalidDimension.at(format!("{path}.{field}"), error.to_string(), hint)
}

/// Why a prediction failed, for a task at `path`.
pub fn unpredictable(error: &PredictError, path: &str) -> Refusal {
    match error {
        PredictError::Op(error) => invalid_op(error, &format!("{path}.op")),
        PredictError::NoUnit { .. } => Code::NoUnit.at(
            format!("{path}.format"),
            error.to_string(),
            "choose a format that GET /v1/formats shows with a compute precision",
        ),
    }
}

/// A format by its key.
pub fn format_named(name: &str, field: impl FnOnce() -> String) -> Result<WeightFormat, Refusal> {
    name.parse().map_err(|error: rooflined_core::precision::UnknownName| {
        Code::UnknownFormat.at(
            field(),
            format!("there is no format {:?}", shorten(name)),
            error.near.hint("GET /v1/formats lists all"),
        )
    })
}

/// Ceilings and kernel costs at the operating point asked for.
pub fn model_at<'a>(
    snapshot: &'a Snapshot,
    point: Option<&OperatingPointRequest>,
    path: &str,
) -> Result<Model<'a>, Refusal> {
    let Some(point) = point else { return Ok(Model::now(snapshot)) };
    if snapshot.accelerator == Accelerator::Gpu {
        return gpu_model_at(snapshot, point, path);
    }
    if let Some(mode) = &point.power_mode {
        mode_named(snapshot, &format!("{path}.power_mode"), mode)?;
    }
    if point.power_limit_w.is_some() {
        return Err(Code::UnsupportedOperatingPoint.at(
            format!("{path}.power_limit_w"),
            "this machine's accelerator is its CPU, which takes no power limit",
            "leave it out; cpu_hz and cores_online apply",
        ));
    }
    let absent = [
        ("gpu_hz", point.gpu_hz.is_some(), "no GPU"),
        ("sm_online", point.sm_online.is_some(), "no GPU"),
        ("emc_hz", point.emc_hz.is_some(), "no memory clock that it tells"),
    ];
    if let Some((name, _, lacks)) = absent.into_iter().find(|(_, present, _)| *present) {
        return Err(Code::UnsupportedOperatingPoint.at(
            format!("{path}.{name}"),
            format!("this machine has {lacks}, so {name} means nothing here"),
            "leave it out; cpu_hz and cores_online apply",
        ));
    }
    let clock = point.cpu_hz.map(|clock| cpu_clock(snapshot, clock, path)).transpose()?;
    let workers = match point.cores_online {
        Some(cores) => workers(snapshot, cores, path)?,
        None => snapshot.roofline.workers,
    };
    if clock.is_none() && point.cores_online.is_none() {
        return Ok(Model::now(snapshot));
    }
    let roofline = scaling::to_clock(&snapshot.roofline, workers, clock);
    Ok(Model { roofline: Cow::Owned(roofline), ..Model::now(snapshot) })
}

/// The same with as many threads on its CPU as the field at `path` says.
///
/// # Errors
/// Threads on a GPU, none, or more than the machine has CPUs.
pub fn with_threads<'a>(
    snapshot: &Snapshot,
    model: Model<'a>,
    threads: Option<u32>,
    path: &str,
) -> Result<Model<'a>, Refusal> {
    let Some(threads) = threads else { return Ok(model) };
    possible_threads(snapshot, threads, path)?;
    let roofline = scaling::to_threads(&model.roofline, threads, snapshot.physical_cores());
    Ok(Model { roofline: Cow::Owned(roofline), threads: Some(threads), ..model })
}

/// Whether that many threads can run here.
///
/// # Errors
/// As [`with_threads`].
pub fn possible_threads(snapshot: &Snapshot, threads: u32, path: &str) -> Result<(), Refusal> {
    if snapshot.accelerator == Accelerator::Gpu {
        return Err(Code::InvalidField.at(
            path,
            "the accelerator is a GPU, which uses all its SMs together",
            format!("leave {path} out"),
        ));
    }
    let most = snapshot.board.cpu.logical.max(1);
    if (1..=most).contains(&threads) {
        return Ok(());
    }
    Err(Code::InvalidField.at(
        path,
        format!("{threads} threads are not possible: this machine has {most}"),
        format!("give 1 to {most}"),
    ))
}

fn cpu_clock(snapshot: &Snapshot, clock: f64, path: &str) -> Result<Hertz, Refusal> {
    let field = format!("{path}.cpu_hz");
    let clock = positive(&field, clock)?;
    let Some(calibrated) = snapshot.roofline.clock else {
        return Err(Code::NotCalibrated.at(
            field,
            "the clock that the ceilings hold for is unknown, so they cannot be scaled to another",
            "calibrate first: rooflinectl calibrate",
        ));
    };
    // Far outside of what the ceilings were measured at, proportion says nothing; most likely the unit is wrong.
    let ratio = clock / calibrated.get();
    if !(0.02..=10.0).contains(&ratio) {
        return Err(Code::InvalidField.at(
            field,
            format!("{clock} Hz is {ratio:.2e} times the {calibrated} that the ceilings hold for"),
            "give cpu_hz in hertz: 2.0e9 is 2 GHz",
        ));
    }
    Ok(Hertz(clock))
}

fn workers(snapshot: &Snapshot, cores: u32, path: &str) -> Result<u32, Refusal> {
    let present = snapshot.board.cpu.logical;
    if !(1..=present.max(1)).contains(&cores) {
        return Err(Code::InvalidField.at(
            format!("{path}.cores_online"),
            format!("{cores} cores cannot be online: this machine has {present}"),
            format!("give 1 to {present}"),
        ));
    }
    // The ceilings count workers, of which there may be fewer than logical CPUs.
    let online = snapshot.state.cores_online.known().copied().unwrap_or(present).max(1);
    let scaled = f64::from(snapshot.roofline.workers) * f64::from(cores) / f64::from(online);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a product of small counts")]
    let workers = scaled.round() as u32;
    Ok(workers.max(1))
}

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

pub(super) fn usual_formats(snapshot: &Snapshot) -> impl Iterator<Item = WeightFormat> + '_ {
    let has = |unit: Option<Precision>| unit.is_none_or(|unit| snapshot.roofline.compute(unit).is_some());
    USUAL.into_iter().filter(move |(_, unit)| has(*unit)).map(|(format, _)| format)
}

/// Whether a list of names asks for all that there are.
pub fn is_all(names: &[String]) -> bool {
    names.iter().any(|name| name == "all")
}

/// The formats named, or else every format measured on this machine; the usual ones where none has been, or there is no
/// machine.
pub fn formats_or_measured(
    snapshot: &Snapshot,
    names: Option<&[String]>,
    field: &str,
) -> Result<Vec<WeightFormat>, Refusal> {
    let mut formats = match names {
        Some(names) if is_all(names) => WeightFormat::ALL.to_vec(),
        Some(names) => {
            let format = |(index, name): (usize, &String)| format_named(name, || format!("{field}[{index}]"));
            all(names.iter().enumerate().map(format))?
        }
        None if snapshot.is_hypothetical() || snapshot.measured_formats().next().is_none() => {
            usual_formats(snapshot).collect()
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rooflined_core::units::Seconds;
    use rooflined_governor::{Governor, Now, fixtures};
    use rooflined_predict::learning::Residuals;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Catalogue, Request, answer};

    fn snapshot() -> Arc<Snapshot> {
        let now = Now { boottime: Seconds(1.0), unix_s: 1e9 };
        let governor = Governor::new(
            now,
            fixtures::board(),
            fixtures::state(),
            None,
            Residuals::default(),
            &fixtures::policy(),
        );
        governor.snapshot()
    }

    fn predicted(engine: &str, threads: &Value, observations: &Value) -> Result<f64, Refusal> {
        let body = json!({
            "engine": engine,
            "workload": { "model": "tinyllama-1.1b", "format": "q8_0", "threads": threads },
            "observations": observations,
        });
        let now = Now { boottime: Seconds(1.0), unix_s: 1e9 };
        let request = Request::Predict(serde_json::from_value(body).unwrap());
        let answer = answer(&snapshot(), &Catalogue::default(), now, &request)?;
        Ok(serde_json::to_value(answer).unwrap()["time_s"]["value"].as_f64().unwrap())
    }

    #[test]
    fn threads_are_part_of_the_question_and_one_for_every_core_is_the_default() {
        let of = |threads: Value| predicted("llama.cpp", &threads, &json!([])).unwrap();
        assert!(of(json!(1)) > 1.5 * of(json!(4)));
        assert_eq!(of(Value::Null), of(json!(4)));
        assert!(
            predicted("none", &json!(1), &json!([])).unwrap()
                > predicted("none", &Value::Null, &json!([])).unwrap()
        );
    }

    /// MiniLM, by the fields of its `config.json`.
    fn embedded(workload: &Value) -> Result<Value, Refusal> {
        let mut body = json!({"engine": "llama.cpp", "workload": {"model": {"model_type": "bert", "architectures": ["BertModel"],
            "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536, "vocab_size": 30522}}});
        body["workload"].as_object_mut().unwrap().extend(workload.as_object().unwrap().clone());
        let now = Now { boottime: Seconds(1.0), unix_s: 1e9 };
        let request = Request::Predict(serde_json::from_value(body).unwrap());
        answer(&snapshot(), &Catalogue::default(), now, &request)
            .map(|answer| serde_json::to_value(answer).unwrap())
    }

    #[test]
    fn an_encoder_answers_in_documents_and_has_no_decode() {
        let answer = embedded(&json!({"prompt_tokens": 128, "batch": 4})).unwrap();
        let value = |name: &str| answer[name]["value"].as_f64();
        let time = value("time_s").unwrap();
        assert_eq!(value("time_per_document_s"), Some(time / 4.0));
        assert_eq!(value("documents_per_s"), Some(4.0 / time));
        assert_eq!((value("time_to_first_token_s"), value("time_per_token_s")), (None, None));
        assert_eq!(answer["memory_bytes"]["kv_cache"], 0.0);
        for (fields, code, field) in [
            (json!({}), "missing_field", "workload.prompt_tokens"),
            (json!({"phase": "decode"}), "unsupported_workload", "workload.phase"),
            (json!({"task": "generate"}), "unsupported_workload", "workload.task"),
            (json!({"task": "oracle"}), "invalid_field", "workload.task"),
        ] {
            let refusal = embedded(&fields).unwrap_err();
            assert_eq!((refusal.code.key(), refusal.field.as_deref()), (code, Some(field)), "{fields}");
        }
    }

    #[test]
    fn more_threads_than_the_machine_has_are_refused() {
        for threads in [0, 5] {
            let refusal = predicted("llama.cpp", &json!(threads), &json!([])).unwrap_err();
            assert_eq!(refusal.code.key(), "invalid_field");
            assert_eq!(refusal.field.as_deref(), Some("workload.threads"));
            assert_eq!(refusal.hint, "give 1 to 4");
        }
    }

    #[test]
    fn a_run_with_one_thread_says_something_of_another_format_with_all() {
        let before = predicted("llama.cpp", &Value::Null, &json!([])).unwrap();
        let run = |slower: f64| {
            let workload = json!({ "model": "qwen2.5-0.5b", "format": "q4_0", "threads": 1 });
            let question = json!({ "engine": "llama.cpp", "workload": workload });
            let now = Now { boottime: Seconds(1.0), unix_s: 1e9 };
            let request = Request::Predict(serde_json::from_value(question).unwrap());
            let answer = answer(&snapshot(), &Catalogue::default(), now, &request).unwrap();
            let time = serde_json::to_value(answer).unwrap()["time_s"]["value"].as_f64().unwrap();
            json!([{ "engine": "llama.cpp", "workload": workload, "time_s": time * slower }])
        };
        let after = predicted("llama.cpp", &Value::Null, &run(1.5)).unwrap();
        assert!(after > 1.1 * before, "{after} {before}");
    }
}
