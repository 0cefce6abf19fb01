//! Which precision, batch and power mode of a network meet a target.

use std::cmp::Ordering;

use super::{Job, MAX_BATCH, Run, active_mode, as_f64, available, batch, layers_of};
use crate::convert::estimate;
use crate::mode_named::{cap_named, mode_named};
use crate::modes::{Model, refuse_power_limit};
use crate::task::{model_at, with_threads};
use crate::wanted::Wanted;
use crate::words::{positive, shorten};
use rooflined_api::{
    ModesRequest, NetworkCandidate, NetworkConstraints, NetworkRecommendAnswer, NetworkRecommendRequest,
    OperatingPointRequest,
};
use rooflined_core::names::{NetworkEngine, NetworkScope, Optimism};
use rooflined_core::precision::Precision;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{Bytes, Hertz, Seconds};
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::network::Layers;
use rooflined_predict::snapshot::{Cap, Snapshot};

/// Most batches, modes and precisions together.
const MAX_CANDIDATES: usize = 4096;
/// Alternatives that are shown.
const SHOWN: usize = 10;
/// Batches beyond these are not proposed: nothing was measured.
const PROPOSED_BATCHES: [u64; 4] = [1, 2, 4, 8];

/// A candidate before it is chosen.
struct Candidate<'a> {
    model: Model<'a>,
    mode: Option<String>,
    precision: Precision,
    batch: u64,
    run: Run,
    /// Constraints that it misses, and by which factor it misses the worst.
    misses: Vec<String>,
    by: f64,
}

/// `POST /v1/networks/recommend`.
///
/// # Errors
/// As [`predict`](super::predict); also more candidates than are looked at.
pub fn recommend(
    wanted: Wanted<'_>,
    snapshot: &Snapshot,
    request: &NetworkRecommendRequest,
) -> Result<NetworkRecommendAnswer, Refusal> {
    const PATH: &str = "workload.";
    let workload = &request.workload;
    let layers = layers_of(workload, PATH)?;
    let job = Job::new(snapshot, workload, &layers, PATH)?;
    check(&request.constraints)?;
    let streams = request.streams.unwrap_or(1);
    if !(1..=MAX_BATCH).contains(&streams) {
        let hint = format!("give 1 to {MAX_BATCH}");
        return Err(Code::InvalidField.at("streams", format!("{streams} streams are not predicted"), hint));
    }
    let precisions = precisions(&job, request)?;
    let batches = batches(request, &job, streams)?;
    let points = points(snapshot, request)?;
    if points.len() * precisions.len() * batches.len() > MAX_CANDIDATES {
        return Err(Code::TooMany.at(
            "batch",
            format!("these are more than {MAX_CANDIDATES} candidates"),
            "ask about fewer batches, modes or precisions",
        ));
    }
    let available = available(snapshot);
    let mut candidates = Vec::new();
    let mut refused = None;
    for (mode, model) in &points {
        for &precision in &precisions {
            wanted.check()?;
            for &batch in &batches {
                match job.run(model, mode.as_deref(), precision, batch) {
                    Ok(run) => candidates.push(judge(
                        request,
                        (streams, available),
                        mode,
                        model,
                        precision,
                        batch,
                        run,
                    )),
                    Err(refusal) => refused = Some(refusal),
                }
            }
        }
    }
    // Of those that meet everything 16 bits before 8, which cost accuracy; then the one that draws least, or where no power is
    // known the fastest. Where nothing meets everything, the closest.
    candidates.sort_by(|a, b| {
        let rank = |candidate: &Candidate<'_>| {
            let power = candidate.run.power.map_or(f64::INFINITY, |power| power.watts.value.get());
            let needs_calibration = candidate.precision == Precision::Int8 && !layers.quantised();
            let accuracy = if needs_calibration { 1.0 } else { 0.0 };
            [candidate.by, accuracy, power, candidate.run.latency.value.get()]
        };
        rank(a)
            .iter()
            .zip(rank(b))
            .map(|(a, b)| a.total_cmp(&b))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    });
    let considered = candidates.len() as u64;
    let mut candidates = candidates.into_iter();
    let Some(chosen) = candidates.next() else {
        return Err(refused.unwrap_or_else(|| {
            Code::InvalidField.at("precisions", "no precision is named", "name one, or leave precisions out")
        }));
    };
    let choice = shown(&chosen);
    let feasible = chosen.misses.is_empty();
    let alternatives = candidates.take(SHOWN).map(|candidate| shown(&candidate)).collect();
    let command = (job.engine == NetworkEngine::TensorRt)
        .then(|| trtexec(&layers, chosen.precision, chosen.batch, chosen.run.prediction.launch_share()));
    let mut notes = Vec::new();
    if streams > 1 {
        notes.push(format!("{streams} streams share one engine, whose runs follow one another"));
    }
    if job.scope == NetworkScope::Engine {
        notes.push(
            "frame rates are those of the engine alone: pictures also have to be resized and boxes sorted \
             (scope frame)"
                .to_owned(),
        );
    }
    let Candidate { model, run, precision, batch, mode, .. } = chosen;
    let prediction = job.answer(&model, run, precision, batch, mode);
    notes.extend(prediction.warnings.clone());
    Ok(NetworkRecommendAnswer {
        feasible,
        choice,
        prediction,
        alternatives,
        considered,
        command,
        warnings: notes,
    })
}

fn check(constraints: &NetworkConstraints) -> Result<(), Refusal> {
    let all = [
        ("constraints.min_pictures_per_s", constraints.min_pictures_per_s),
        ("constraints.max_latency_s", constraints.max_latency_s),
        ("constraints.max_power_w", constraints.max_power_w),
    ];
    all.into_iter()
        .try_for_each(|(field, value)| value.map_or(Ok(()), |value| positive(field, value).map(drop)))
}

fn precisions(job: &Job<'_>, request: &NetworkRecommendRequest) -> Result<Vec<Precision>, Refusal> {
    let one = request.workload.precision.iter();
    let named: Vec<&String> = one.chain(request.precisions.iter().flatten()).collect();
    if named.is_empty() {
        return Ok(match job.hardware {
            Some(_) if job.engine == NetworkEngine::TensorRt => vec![Precision::Fp16, Precision::Int8],
            // ONNX Runtime computes in the file's own type; 8 bits are slower or hardly faster on most CPUs, and cost accuracy.
            _ => vec![job.precision(None, "precision")?],
        });
    }
    named.into_iter().map(|name| job.precision(Some(name), "precision")).collect()
}

fn batches(request: &NetworkRecommendRequest, job: &Job<'_>, streams: u64) -> Result<Vec<u64>, Refusal> {
    if let Some(named) = request.workload.batch {
        return Ok(vec![batch(named, "workload.batch")?]);
    }
    let Some(range) = request.batch else {
        if job.layers.open_inputs.is_empty() {
            return Ok(vec![job.layers.batch]);
        }
        return Ok(PROPOSED_BATCHES.into_iter().filter(|&batch| batch <= streams).collect());
    };
    let (least, most) = (batch(range.min, "batch.min")?, batch(range.max, "batch.max")?);
    if least > most {
        return Err(Code::InvalidField.at("batch", "the range is empty", "give min and max in this order"));
    }
    Ok((least..=most).collect())
}

/// Operating points with the names of their modes.
fn points<'a>(
    snapshot: &'a Snapshot,
    request: &NetworkRecommendRequest,
) -> Result<Vec<(Option<String>, Model<'a>)>, Refusal> {
    let workload = &request.workload;
    refuse_power_limit(workload.operating_point.as_ref(), "workload.operating_point")?;
    let at = |name: &String| {
        let point =
            OperatingPointRequest { power_mode: Some(name.clone()), ..OperatingPointRequest::default() };
        Ok((Some(name.clone()), model_at(snapshot, Some(&point), "power_modes")?))
    };
    let now = || {
        let point = workload.operating_point.as_ref();
        let model = model_at(snapshot, point, "workload.operating_point")?;
        let model = with_threads(snapshot, model, workload.threads, "workload.threads")?;
        let mode = point.map_or_else(|| active_mode(snapshot), |point| point.power_mode.clone());
        Ok(vec![(mode, model)])
    };
    match &request.power_modes {
        None => now(),
        Some(_) if snapshot.accelerator == Accelerator::Cpu => now(),
        Some(ModesRequest::Kind(kind)) if snapshot.modes.is_empty() && kind == "all" => {
            let clocks = snapshot.proposed_caps().into_iter().filter(|cap| matches!(cap, Cap::Clock(_)));
            let mut points = now()?;
            points.extend(clocks.map(|cap| at(&cap.mode().name)).collect::<Result<Vec<_>, _>>()?);
            Ok(points)
        }
        Some(ModesRequest::Kind(kind)) if snapshot.modes.is_empty() && kind == "live" => now(),
        Some(ModesRequest::Kind(kind)) if kind == "all" || kind == "live" => {
            let live = snapshot.modes.iter().filter(|view| {
                kind == "all" || view.reboot_required != Some(true) && view.unreachable.is_none()
            });
            live.map(|view| at(&view.mode.name)).collect()
        }
        Some(ModesRequest::Kind(kind)) => Err(Code::InvalidField.at(
            "power_modes",
            format!("power_modes is {:?}", shorten(kind)),
            "give \"all\", \"live\" or a list of names",
        )),
        Some(ModesRequest::Listed(names)) => {
            let named = |name: &String| match cap_named(snapshot, "power_modes", name)? {
                Some(Cap::Power(_)) => Err(Code::UnsupportedOperatingPoint.at(
                    "power_modes",
                    format!(
                        "{} limits the power, whose effect on a vision network is not predicted",
                        shorten(name)
                    ),
                    "cap the clock instead: lgc-2000",
                )),
                Some(Cap::Clock(_)) => at(name),
                None => at(&mode_named(snapshot, "power_modes", name)?.mode.name),
            };
            names.iter().map(named).collect()
        }
    }
}

fn judge<'a>(
    request: &NetworkRecommendRequest,
    (streams, available): (u64, Option<Bytes>),
    mode: &Option<String>,
    model: &Model<'a>,
    precision: Precision,
    batch: u64,
    run: Run,
) -> Candidate<'a> {
    let is_expected = request.optimism == Optimism::Expected;
    let worse = |value: f64, end: f64| if is_expected { value } else { end };
    let latency = worse(run.latency.value.get(), run.latency.high.get());
    let limits = &request.constraints;
    let wanted = limits.min_pictures_per_s.map(|rate| rate * as_f64(streams));
    // Power that nobody knows meets no limit.
    let watts =
        run.power.map_or(f64::INFINITY, |power| worse(power.watts.value.get(), power.watts.high.get()));
    // What its runtime takes beside them is not known.
    let memory = run.needs().zip(available).map(|(needs, available)| needs / available);
    let checks = [
        ("min_pictures_per_s", wanted.map(|wanted| wanted * latency / as_f64(batch))),
        ("max_latency_s", limits.max_latency_s.map(|most| latency / most)),
        ("max_power_w", limits.max_power_w.map(|most| watts / most)),
        ("memory_available", memory),
    ];
    let missed =
        checks.into_iter().filter_map(|(key, ratio)| Some((key, ratio.filter(|ratio| *ratio > 1.0)?)));
    let missed: Vec<(&str, f64)> = missed.collect();
    Candidate {
        model: model.clone(),
        mode: mode.clone(),
        precision,
        batch,
        run,
        by: missed.iter().map(|(_, ratio)| *ratio).fold(1.0, f64::max),
        misses: missed.into_iter().map(|(key, _)| key.to_owned()).collect(),
    }
}

fn shown(candidate: &Candidate<'_>) -> NetworkCandidate {
    let roofline = candidate.model.roofline.as_ref();
    NetworkCandidate {
        precision: candidate.precision.key().to_owned(),
        batch: candidate.batch,
        power_mode: candidate.mode.clone(),
        workers: roofline.workers,
        clock_hz: roofline.clock.map(Hertz::get),
        bandwidth_bytes_per_s: roofline.bandwidth.value.get(),
        latency_s: estimate(candidate.run.latency.map(Seconds::get)),
        pictures_per_s: candidate.run.pictures_per_s(candidate.batch),
        power_w: candidate.run.power(),
        energy_j_per_picture: candidate.run.energy_per_picture(candidate.batch),
        misses: candidate.misses.clone(),
    }
}

/// Launches from whose share on a CUDA graph is tried.
const GRAPH: f64 = 0.3;

/// The command that builds the engine and times it. Sizes are given where the file leaves them open, and only there: trtexec
/// takes 1 for what it is not given, and refuses sizes for a file that fixes them.
fn trtexec(layers: &Layers, precision: Precision, batch: u64, launch_share: f64) -> String {
    let mut command = format!("trtexec --onnx={0}.onnx --saveEngine={0}.engine", layers.name);
    match precision {
        Precision::Int8 if layers.quantised() => command.push_str(" --int8 --fp16"),
        Precision::Int8 => command.push_str(" --int8 --fp16 --calib=calibration.cache"),
        Precision::Fp16 => command.push_str(" --fp16"),
        _ => {}
    }
    if !layers.open_inputs.is_empty() {
        let open = layers.inputs.iter().filter(|(name, _)| layers.open_inputs.contains(name));
        let shapes = open.map(|(name, dims)| {
            let rest: Vec<String> = dims.iter().skip(1).map(u64::to_string).collect();
            format!("{name}:{batch}x{}", rest.join("x"))
        });
        command.push_str(" --shapes=");
        command.push_str(&shapes.collect::<Vec<_>>().join(","));
    }
    if launch_share > GRAPH {
        command.push_str(" --useCudaGraph");
    }
    command
}
