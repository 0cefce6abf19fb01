//! Requests that the daemon carries out: wire → [`Command`], [`Reply`] → wire.

use serde_json::json;

use crate::archive::NAME as STATE_DIR;
use rooflined_advice::convert::{estimate, tier_key};
use rooflined_advice::parse::{parse, parse_list};
use rooflined_advice::{
    Catalogue, MAX_ANSWER_BYTES, MAX_OBSERVATIONS, format_named, invalid_op, observed, operation,
};
use rooflined_api::{
    CalibrateAnswer, CalibrateRequest, EstimateAnswer, ForgottenAnswer, LearntObservation, MeasureAnswer,
    MeasureRequest, MeasuredOp, MeasuredPowerAnswer, MeasuredRow, ObservationRequest, ObservationsAnswer,
    SlowServer,
};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::{Code, Refusal, all};
use rooflined_core::units::{Joules, Seconds, Watts};
use rooflined_governor::{Command, Measured, MeasuredPower, MeasuredSet, RefusedObservation, Reply};
use rooflined_predict::calibration::{Sample, centre, quantile};
use rooflined_predict::learning::models::ObservationOutcome;
use rooflined_predict::learning::report::Reporter;
use rooflined_predict::snapshot::Snapshot;

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
        let format = |(index, name): (usize, &String)| format_named(name, || format!("formats[{index}]"));
        let formats = all(request.formats.iter().enumerate().map(format))?;
        work.extend(formats.into_iter().map(|format| (op, format)));
        if request.formats.is_empty() {
            work.push((op, WeightFormat::Fp32));
        }
    }
    let single = request.workload.iter().map(|workload| ("workload".to_owned(), workload));
    let listed = request.workloads.iter().enumerate();
    let listed = listed.map(|(index, workload)| (format!("workloads[{index}]"), workload));
    for (path, workload) in single.chain(listed) {
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
    match work.len() {
        0 => Err(Code::MissingField.at(
            "op",
            "there is nothing to measure",
            "give op with formats, a workload, or workloads",
        )),
        1..=MAX_MEASURED => Ok(Command::Measure { work, power: request.power }),
        more => Err(Code::TooMany.at(
            "workloads",
            format!("{more} operations are more than {MAX_MEASURED}"),
            "measure fewer at a time",
        )),
    }
}

/// One observation, a list of them, or `{"observations": […]}`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ObservationList {
    observations: Vec<ObservationRequest>,
}

/// The body of `POST /v1/observations`.
#[derive(Debug)]
pub struct Reports {
    pub list: Vec<ObservationRequest>,
    /// One was sent, and no list.
    pub single: bool,
}

impl Reports {
    /// Reads a body.
    ///
    /// # Errors
    /// It is not this request.
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
        if first == Some(&b'[') {
            return Ok(Self { list: parse_list(body)?, single: false });
        }
        let wrapped = serde_json::from_slice::<serde_json::Value>(body)
            .is_ok_and(|value| value.get("observations").is_some());
        if wrapped {
            return Ok(Self { list: parse::<ObservationList>(body)?.observations, single: false });
        }
        Ok(Self { list: vec![parse(body)?], single: true })
    }
}

/// The client sent no list, so the names of its fields have none in front.
#[must_use]
pub fn without_list(error: Refusal) -> Refusal {
    error.rename_fields(|field| field.replacen("observations[0].", "", 1))
}

/// `POST /v1/observations`; also whether any of them reports a power, which nothing learns yet.
///
/// # Errors
/// One that cannot be; then nothing is learnt from any of them.
pub fn observe(
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    by: Reporter,
    reports: &Reports,
) -> Result<(Command, bool), Refusal> {
    let Reports { list, single } = reports;
    if list.is_empty() || list.len() > MAX_OBSERVATIONS {
        return Err(Code::TooMany.at(
            "observations",
            format!("{} observations were sent", list.len()),
            format!("send 1 to {MAX_OBSERVATIONS} at a time"),
        ));
    }
    let about =
        |(index, observation)| observed(snapshot, catalogue, observation, &format!("observations[{index}]"));
    let observations = all(list.iter().enumerate().map(about))
        .map_err(|error| if *single { without_list(error) } else { error })?;
    let power = list.iter().any(|observation| observation.power_w.is_some());
    let servers = super::servers::reports(snapshot, catalogue, &by, list)
        .map_err(|error| if *single { without_list(error) } else { error })?;
    Ok((Command::Observe { by, observations, servers }, power))
}

/// A reply in the shape of its route's answer.
///
/// # Errors
/// The daemon refused, or went away.
pub fn encode_reply(snapshot: &Snapshot, reply: Option<Reply>, power: bool) -> Result<Vec<u8>, Refusal> {
    match reply {
        Some(Reply::Started { job }) => encode(&CalibrateAnswer { job, finished: false }),
        Some(Reply::Finished { job }) => {
            stored(snapshot, "the calibration is used")?;
            encode(&CalibrateAnswer { job, finished: true })
        }
        Some(Reply::Cancelled { job }) => encode(&json!({ "job": job, "cancelled": true })),
        Some(Reply::Measured(set)) => encode(&measured(snapshot, set)),
        Some(Reply::Observed { accepted, refused, outcomes, slow }) => {
            let mut answer = observations(accepted, &refused, &outcomes, power);
            answer.slow =
                slow.into_iter().map(|(index, reason)| SlowServer { index: index as u64, reason }).collect();
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
        Some(Reply::Switched { .. } | Reply::Held { .. } | Reply::Done) => {
            Err(Code::Internal.error("the daemon gave an unexpected answer", "report this"))
        }
        Some(Reply::Refused(refusal)) => Err(refusal),
        None => Err(Code::ShuttingDown.error("the daemon is shutting down", "try again in a second")),
    }
}

/// What was done outlives the daemon.
///
/// # Errors
/// It is not on the disk.
fn stored(snapshot: &Snapshot, done: &str) -> Result<(), Refusal> {
    let Some(problem) = snapshot.degraded.get(STATE_DIR) else { return Ok(()) };
    let hint = "repair the state directory; it is tried again every 30 s and when rooflined ends";
    Err(Code::NotStored.error(format!("{done}, but only until rooflined ends: {problem}"), hint))
}

/// Serialises an answer.
///
/// # Errors
/// It is larger than an answer may be.
pub fn encode(answer: &impl serde::Serialize) -> Result<Vec<u8>, Refusal> {
    encode_within(answer, MAX_ANSWER_BYTES)
}

/// Serialises an answer of at most so many bytes.
///
/// # Errors
/// It has more.
pub fn encode_within(answer: &impl serde::Serialize, most: usize) -> Result<Vec<u8>, Refusal> {
    let mut buffer = Bounded { bytes: Vec::new(), most };
    match serde_json::to_writer(&mut buffer, answer) {
        Ok(()) => Ok(buffer.bytes),
        Err(error) if error.is_io() => {
            Err(Code::TooMany
                .error(format!("the answer has more than {most} bytes"), "ask for fewer at a time"))
        }
        Err(error) => Err(unwritten(&error)),
    }
}

/// A buffer that takes no more than so many bytes.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
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
    let unused = "power_w is checked, but nothing is learned from it yet";
    ObservationsAnswer {
        accepted,
        learnt: outcomes
            .iter()
            .map(|(index, outcome)| LearntObservation {
                index: *index as u64,
                factor: outcome.factor,
                tier: tier_key(outcome.tier).to_owned(),
                count: outcome.count as u64,
                alarm: outcome.alarm.clone(),
            })
            .collect(),
        refused: refused
            .iter()
            .map(|RefusedObservation { index, refusal }| rooflined_api::RefusedObservation {
                index: *index as u64,
                code: refusal.code.key().to_owned(),
                field: refusal.field.clone(),
                reason: refusal.message.clone(),
                hint: refusal.hint.clone(),
            })
            .collect(),
        warnings: power.then(|| unused.to_owned()).into_iter().collect(),
        slow: Vec::new(),
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
    Some(MeasuredRow {
        op: MeasuredOp::Op(measured.op),
        format: measured.format.key().to_owned(),
        predicted_time_s: estimate(measured.predicted.time.map(Seconds::get)),
        predicted_at_calibration_s: calibrated,
        measured_time_s: time,
        error_ratio: error(measured.predicted.time.value.get()),
        error_at_calibration_ratio: error(calibrated),
        drift_ratio: measured.drift_ratio,
        disturbed: measured.disturbed,
        regime: measured.regime,
        runs: measured.sample.times.len() as u64,
        isa: measured.sample.isa,
        bound: measured.predicted.bound.key().to_owned(),
        limit: measured.predicted.limit.key().to_owned(),
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
