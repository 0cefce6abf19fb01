//! Requests that the daemon carries out: wire → [`Command`], [`Reply`] → wire.

use serde_json::json;

use super::{Command, ModelAsked};
use crate::archive::NAME as STATE_DIR;
use answer::convert::{bound_key, estimate, limit_key, tier_key};
use answer::parse::{parse, parse_list};
use answer::{Catalogue, MAX_OBSERVATIONS, format_named, invalid_op, observed, operation};
use decide::snapshot::Snapshot;
use governor::{Measured, MeasuredPower, MeasuredSet, RefusedObservation, Reply, Subject};
use predict::calibration::{FORWARD_KV_CACHE, MAX_FORWARD_BATCH, Sample, centre, quantile};
use predict::learning::models::ObservationOutcome;
use predict::learning::report::Reporter;
use roofline::precision::WeightFormat;
use roofline::refusal::{Code, Refusal};
use roofline::units::{Joules, Seconds, Watts};
use roofline::workload::Op;
use roofline::workload::transformer::MAX_TOKENS;
use wire::{
    CalibrateAnswer, CalibrateRequest, DoneAnswer, EstimateAnswer, ForgottenAnswer, MeasureAnswer,
    MeasureRequest, MeasuredModel, MeasuredOp, MeasuredPowerAnswer, MeasuredRow, ModelKind,
    ObservationRequest, ObservationsAnswer, Workload,
};

/// Most operations of one `POST /v1/measure`; each takes up to some tenths of a second of every core.
const MAX_MEASURED: usize = 64;

/// `POST /v1/calibrate`.
///
/// # Errors
/// A body that is not this request.
pub fn calibrate(body: &[u8]) -> Result<Command, Refusal> {
    let CalibrateRequest { plan, wait, force } =
        if body.is_empty() { Default::default() } else { parse(body)? };
    Ok(Command::Calibrate { plan, wait, force })
}

/// `POST /v1/measure`.
///
/// # Errors
/// A body that is not this request, or an operation that cannot exist.
pub fn measure(body: &[u8]) -> Result<Command, Refusal> {
    let request: MeasureRequest = parse(body)?;
    let mut work = Vec::new();
    if let Some(op) = request.op {
        op.validate().map_err(|error| invalid_op(&error, "op"))?;
        for (index, name) in request.formats.iter().enumerate() {
            work.push((op, format_named(name, || format!("formats[{index}]"))?));
        }
        if request.formats.is_empty() {
            work.push((op, WeightFormat::Fp32));
        }
    }
    let single = request.workload.iter().map(|workload| ("workload".to_owned(), workload));
    let listed = request.workloads.iter().enumerate();
    let listed = listed.map(|(index, workload)| (format!("workloads[{index}]"), workload));
    let mut models = Vec::new();
    for (path, workload) in single.chain(listed) {
        if workload.model.is_some() && workload.op.is_none() {
            models.push(model_asked(workload, &path)?);
            continue;
        }
        let op = operation(workload, &path)?;
        let format = match &workload.format {
            Some(name) => format_named(name, || format!("{path}.format"))?,
            None => WeightFormat::Fp32,
        };
        work.push((op, format));
    }
    if let Some(index) = work.iter().position(|(op, _)| matches!(op, Op::Attention { .. })) {
        return Err(Code::UnsupportedWorkload.at(
            "op.kind",
            format!("operation {index} is attention, for which this program has no kernel to measure"),
            "measure gemv or gemm",
        ));
    }
    match work.len() + models.len() {
        0 => Err(Code::MissingField.at(
            "op",
            "there is nothing to measure",
            "give op with formats, a workload, or workloads",
        )),
        1..=MAX_MEASURED => Ok(Command::Measure { work, models, power: request.power }),
        more => Err(Code::TooMany.at(
            "workloads",
            format!("{more} operations are more than {MAX_MEASURED}"),
            "measure fewer at a time",
        )),
    }
}

/// A model at `path` of the request, which is run with a token for every sequence.
fn model_asked(workload: &Workload, path: &str) -> Result<ModelAsked, Refusal> {
    let other = |name: &str, what: &str, hint: &str| {
        Err(Code::UnsupportedWorkload.at(format!("{path}.{name}"), what.to_owned(), hint.to_owned()))
    };
    if workload.phase.as_deref().is_some_and(|phase| phase != "decode") {
        return other("phase", "what is run here adds one token to every sequence", "ask for phase decode");
    }
    if workload.prompt_tokens.is_some_and(|tokens| tokens > 0)
        || workload.output_tokens.is_some_and(|tokens| tokens > 1)
    {
        return other("prompt_tokens", "one step is run, without a prompt", "give context_tokens instead");
    }
    if workload.speculative.is_some() {
        return other("speculative", "one token is added without drafting", "leave it out");
    }
    if workload.cached_tokens.is_some_and(|tokens| tokens > 0) {
        return other("cached_tokens", "every sequence has a cache of its own here", "leave it out");
    }
    if workload.kv_format.as_deref().is_some_and(|format| format != FORWARD_KV_CACHE.key()) {
        return other("kv_format", "keys and values are kept in fp16 here", "leave kv_format out");
    }
    if workload.threads.is_some() {
        return other(
            "threads",
            "a step is run with as many threads as were calibrated",
            "leave threads out",
        );
    }
    let batch = workload.batch.unwrap_or(1);
    if !(1..=MAX_FORWARD_BATCH).contains(&batch) {
        return Err(Code::InvalidDimension.at(
            format!("{path}.batch"),
            format!("the batch is {batch}"),
            format!("give 1 to {MAX_FORWARD_BATCH}"),
        ));
    }
    let context_tokens = workload.context_tokens.unwrap_or(0);
    if context_tokens > MAX_TOKENS {
        return Err(Code::InvalidDimension.at(
            format!("{path}.context_tokens"),
            format!("{context_tokens} tokens are more than {MAX_TOKENS}"),
            "give a context that a model has",
        ));
    }
    let format = workload.format.as_ref();
    let format = format.map(|name| format_named(name, || format!("{path}.format"))).transpose()?;
    let reference = workload.model.clone().unwrap_or_default();
    Ok(ModelAsked { reference, format, batch, context_tokens })
}

/// One observation, a list of them, or `{"observations": […]}`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ObservationList {
    observations: Vec<ObservationRequest>,
}

/// `POST /v1/observations`; also whether any of them reports a power, which nothing learns yet.
///
/// # Errors
/// A body that is not this request; then nothing is learnt from any of it.
pub fn observe(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    by: Reporter,
    body: &[u8],
) -> Result<(Command, bool), Refusal> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let (list, single) = if first == Some(&b'[') {
        (parse_list(body)?, false)
    } else if serde_json::from_slice::<serde_json::Value>(body)
        .is_ok_and(|value| value.get("observations").is_some())
    {
        (parse::<ObservationList>(body)?.observations, false)
    } else {
        (vec![parse(body)?], true)
    };
    if list.is_empty() || list.len() > MAX_OBSERVATIONS {
        return Err(Code::TooMany.at(
            "observations",
            format!("{} observations were sent", list.len()),
            format!("send 1 to {MAX_OBSERVATIONS} at a time"),
        ));
    }
    let mut observations = Vec::with_capacity(list.len());
    for (index, observation) in list.iter().enumerate() {
        let path = format!("observations[{index}]");
        let about = observed(snapshot, catalogue, observation, &path).map_err(|mut error| {
            if single {
                // The client sent no list, so its field names have no list in front.
                error.field = error.field.map(|field| field.replacen(&format!("{path}."), "", 1));
            }
            error
        })?;
        observations.push(about);
    }
    let power = list.iter().any(|observation| observation.power_w.is_some());
    Ok((Command::Observe { by, observations }, power))
}

/// A reply in the shape of its route's answer.
///
/// # Errors
/// The daemon refused, or went away.
pub fn answered(snapshot: &Snapshot, reply: Option<Reply>, power: bool) -> Result<Vec<u8>, Refusal> {
    match reply {
        Some(Reply::Started { job }) => encode(&CalibrateAnswer { job, finished: false }),
        Some(Reply::Finished { job }) => {
            stored(snapshot, "the calibration is in force")?;
            encode(&CalibrateAnswer { job, finished: true })
        }
        Some(Reply::Cancelled { job }) => encode(&json!({ "job": job, "cancelled": true })),
        Some(Reply::Measured(set)) => encode(&measured(snapshot, set)),
        Some(Reply::Observed { accepted, refused, outcomes }) => {
            let mut answer = observations(accepted, &refused, &outcomes, power);
            if accepted > 0
                && let Err(unstored) = stored(snapshot, "it is learned from")
            {
                answer.warnings.push(unstored.to_string());
            }
            encode(&answer)
        }
        Some(Reply::Forgotten { count }) => {
            if count > 0 {
                stored(snapshot, &format!("{count} forgotten"))?;
            }
            encode(&ForgottenAnswer { forgotten: count as u64 })
        }
        Some(Reply::Done) => {
            stored(snapshot, "it is confirmed")?;
            encode(&DoneAnswer { done: true })
        }
        Some(Reply::Switched { .. } | Reply::Held { .. }) => {
            Err(Code::Internal.error("the daemon answered something else", "report this"))
        }
        Some(Reply::Refused(refusal)) => Err(refusal),
        None => Err(Code::ShuttingDown.error("the daemon is going away", "try again in a second")),
    }
}

/// What was done outlives the daemon.
///
/// # Errors
/// It is not on the disk.
fn stored(snapshot: &Snapshot, done: &str) -> Result<(), Refusal> {
    let Some(problem) = snapshot.degraded.get(STATE_DIR) else { return Ok(()) };
    // Every problem ends with its remedy.
    let (problem, remedy) = problem.rsplit_once("; ").unwrap_or((problem, "look at the state directory"));
    Err(Code::NotStored.error(format!("{done}, but only until rooflined ends: {problem}"), remedy))
}

/// Serialises an answer.
///
/// # Errors
/// None in practice: our types have string keys and no failing implementation.
pub fn encode(answer: &impl serde::Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(answer).map_err(|error| unwritten(&error))
}

/// Why an answer cannot be sent.
#[must_use]
pub fn unwritten(error: &serde_json::Error) -> Refusal {
    Code::Internal.error(format!("the answer cannot be written: {error}"), "report this")
}

fn observations(
    accepted: u64,
    refused: &[RefusedObservation],
    outcomes: &[(usize, ObservationOutcome)],
    power: bool,
) -> ObservationsAnswer {
    let unused = "power_w is checked but not learnt from yet";
    ObservationsAnswer {
        accepted,
        learnt: outcomes
            .iter()
            .map(|(index, outcome)| {
                let ObservationOutcome { factor, tier, count, alarm, doubted } = outcome;
                json!({ "index": index, "factor": factor, "tier": tier_key(*tier), "count": count, "alarm": alarm, "doubted": doubted })
            })
            .collect(),
        refused: refused
            .iter()
            .map(|RefusedObservation { index, refusal: Refusal { code, message, hint, field } }| {
                json!({ "index": index, "code": code.key(), "field": field, "reason": message, "hint": hint })
            })
            .collect(),
        warnings: power.then(|| unused.to_owned()).into_iter().collect(),
    }
}

fn measured(snapshot: &Snapshot, set: MeasuredSet) -> MeasureAnswer {
    MeasureAnswer {
        rows: set.rows.into_iter().filter_map(row).collect(),
        skipped: set.skipped,
        simulated: snapshot.board.simulated,
        serial: snapshot.serial,
    }
}

/// `None` for a sample without a single run, which has no time to show.
fn row(measured: Measured) -> Option<MeasuredRow> {
    let time = quantiles(&measured.sample)?;
    let calibrated = measured.predicted_at_calibration.time.value.get();
    let error = |predicted: f64| (predicted - time.value) / time.value;
    let predicted = estimate(measured.predicted.time.map(Seconds::get));
    let (op, format, sequences) = match &measured.subject {
        Subject::Op(op, format) => (MeasuredOp::Op(*op), format.key().to_owned(), None),
        Subject::Model(work) => {
            let stored = work.model.by_block();
            let key = work.format.map(WeightFormat::key).or_else(|| Some(stored.first()?.0.key()));
            let model = MeasuredModel {
                kind: ModelKind::Model,
                model: work.reference.clone(),
                phase: "decode".to_owned(),
                batch: work.batch,
                context_tokens: work.context_tokens,
            };
            #[expect(clippy::cast_precision_loss, reason = "at most MAX_FORWARD_BATCH")]
            let sequences = work.batch as f64;
            (MeasuredOp::Model(model), key.unwrap_or_default().to_owned(), Some(sequences))
        }
    };
    let rate = |time: EstimateAnswer| sequences.map(|sequences| EstimateAnswer::rate(sequences, time));
    Some(MeasuredRow {
        op,
        format,
        predicted_tokens_per_s: rate(predicted),
        measured_tokens_per_s: rate(time),
        predicted_time_s: predicted,
        predicted_at_calibration_s: calibrated,
        measured_time_s: time,
        error_ratio: error(measured.predicted.time.value.get()),
        error_at_calibration_ratio: error(calibrated),
        drift_ratio: measured.drift_ratio,
        disturbed: measured.disturbed,
        reused_ratio: measured.sample.reused_ratio,
        regime: measured.regime,
        runs: measured.sample.times.len() as u64,
        isa: measured.sample.isa,
        bound: bound_key(measured.predicted.bound).to_owned(),
        limit: limit_key(measured.predicted.limit).to_owned(),
        roofline_time_s: measured.predicted.roofline_time.get(),
        power: measured.power.map(power),
    })
}

fn power(power: MeasuredPower) -> MeasuredPowerAnswer {
    MeasuredPowerAnswer {
        power_w: power.power.map(Watts::get),
        idle_power_w: power.idle.map(Watts::get),
        energy_j: power.energy.map(Joules::get),
        total_energy_j: power.total_energy.map(Joules::get),
        duration_s: power.duration.map(Seconds::get),
        readings: power.readings,
        period_s: power.period.map(Seconds::get),
        scope: power.scope,
        rails: power.rails,
        reason: power.reason,
    }
}

/// Centre with the 5 % and 95 % quantiles.
fn quantiles(sample: &Sample) -> Option<EstimateAnswer> {
    if sample.times.is_empty() {
        return None;
    }
    let at = |q| quantile(&sample.times, q).get();
    Some(EstimateAnswer { value: centre(&sample.times).get(), low: at(0.05), high: at(0.95) })
}
