//! Vision networks: what one run takes, and what meets a target.

use std::cmp::Ordering;

use serde::Deserialize;

use super::convert::{estimate, tier_key};
use super::mode_named::mode_named;
use super::modes::{Model, refuse_power_limit};
use super::predict::{hypothetical, warnings};
use super::run::available;
use super::task::{model_at, with_threads};
use super::wanted::Wanted;
use super::words::{positive, shorten};
use rooflined_api::{
    EstimateAnswer, ModesRequest, NetworkCandidate, NetworkConstraints, NetworkLayerAnswer,
    NetworkMemoryAnswer, NetworkPredictAnswer, NetworkPredictRequest, NetworkRecommendAnswer,
    NetworkRecommendRequest, NetworkSharesAnswer, OperatingPointRequest, PowerAnswer,
};
use rooflined_core::ceilings::Provenance;
use rooflined_core::hardware::Hardware;
use rooflined_core::names::{NetworkEngine, NetworkScope, Optimism};
use rooflined_core::near::Near;
use rooflined_core::precision::Precision;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{Bytes, Hertz, Joules, Seconds, Watts};
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::network::{
    InvalidLayers, LayerBound, Layers, NetworkError, NetworkPrediction, around, predict_network,
};
use rooflined_predict::power::Power;
use rooflined_predict::snapshot::Snapshot;
use rooflined_predict::{Estimate, Tier};

/// Most pictures in one run.
const MAX_BATCH: u64 = 1024;
/// Most batches, modes and precisions together.
const MAX_CANDIDATES: usize = 4096;
/// Alternatives that are shown.
const SHOWN: usize = 10;
/// Batches beyond these are not proposed: nothing was measured.
const PROPOSED_BATCHES: [u64; 4] = [1, 2, 4, 8];

/// A network, and where it runs.
struct Job<'a> {
    snapshot: &'a Snapshot,
    hardware: Option<&'a Hardware>,
    layers: &'a Layers,
    engine: NetworkEngine,
    scope: NetworkScope,
    path: &'a str,
}

/// What one candidate comes to.
struct Run {
    prediction: NetworkPrediction,
    /// With what the scope adds.
    latency: Estimate<Seconds>,
    around: Seconds,
    power: Option<Power>,
    warnings: Vec<String>,
}

impl Run {
    fn pictures_per_s(&self, batch: u64) -> EstimateAnswer {
        EstimateAnswer::rate(as_f64(batch), estimate(self.latency.map(Seconds::get)))
    }

    fn energy_per_picture(&self, batch: u64) -> Option<EstimateAnswer> {
        Some(estimate(self.power?.energy.map(|energy: Joules| energy.get() / as_f64(batch))))
    }

    fn power(&self) -> Option<PowerAnswer> {
        self.power.map(|power| PowerAnswer::new(estimate(power.watts.map(Watts::get)), power.from.scope()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "batches and streams are small numbers")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

/// `POST /v1/networks/predict`.
///
/// # Errors
/// A network that is none, an engine or a precision that does not run there, an impossible batch or operating point.
pub fn predict(
    snapshot: &Snapshot,
    request: &NetworkPredictRequest,
) -> Result<NetworkPredictAnswer, Refusal> {
    let layers = layers_of(request, "")?;
    let job = Job::new(snapshot, request, &layers, "")?;
    refuse_power_limit(request.operating_point.as_ref(), "operating_point")?;
    let model = model_at(snapshot, request.operating_point.as_ref(), "operating_point")?;
    let model = with_threads(snapshot, model, request.threads, "threads")?;
    let precision = job.precision(request.precision.as_deref(), "precision")?;
    let batch = batch(request.batch.unwrap_or(layers.batch), "batch")?;
    let run = job.run(&model, precision, batch)?;
    let mode = match &request.operating_point {
        None => active_mode(snapshot),
        Some(point) => point.power_mode.clone(),
    };
    Ok(job.answer(&model, run, precision, batch, mode))
}

/// The layers that a request has, checked.
fn layers_of(request: &NetworkPredictRequest, path: &str) -> Result<Layers, Refusal> {
    let field = format!("{path}network");
    let network = request.network.as_ref().ok_or_else(|| {
        Code::MissingField.at(
            &field,
            format!("{field} is missing"),
            "let rooflinectl read it from the file: rooflinectl predict FILE.onnx",
        )
    })?;
    let wrong = |message: String| {
        let hint =
            "send the layers as rooflinectl reads them from an ONNX file: rooflinectl predict FILE.onnx";
        Code::InvalidModel.at(&field, message, hint)
    };
    // A definition that is sent beside the path of its file.
    let network = network.get("definition").unwrap_or(network);
    let layers = Layers::deserialize(network)
        .map_err(|error| wrong(format!("{field} is no list of layers: {}", shorten(&error.to_string()))))?;
    layers.check().map_err(|error: InvalidLayers| wrong(format!("{field}: {error}")))?;
    Ok(layers)
}

fn batch(batch: u64, field: &str) -> Result<u64, Refusal> {
    if (1..=MAX_BATCH).contains(&batch) {
        return Ok(batch);
    }
    Err(Code::InvalidField.at(
        field,
        format!("a batch of {batch} pictures is not predicted"),
        format!("give 1 to {MAX_BATCH}"),
    ))
}

fn active_mode(snapshot: &Snapshot) -> Option<String> {
    if snapshot.is_hypothetical() {
        return snapshot.hardware.as_deref()?.top_mode().map(|mode| mode.name.clone());
    }
    snapshot.state.power_mode.known().map(|mode| mode.name.clone())
}

impl<'a> Job<'a> {
    fn new(
        snapshot: &'a Snapshot,
        request: &NetworkPredictRequest,
        layers: &'a Layers,
        path: &'a str,
    ) -> Result<Self, Refusal> {
        let hardware = snapshot.hardware.as_deref().filter(|_| snapshot.accelerator == Accelerator::Gpu);
        let usual = if hardware.is_some() { NetworkEngine::TensorRt } else { NetworkEngine::OnnxRuntime };
        let engine = request.engine.unwrap_or(usual);
        if engine == NetworkEngine::TensorRt && hardware.is_none() {
            return Err(Code::UnsupportedFormat.at(
                format!("{path}engine"),
                NetworkError::NeedsGpu.to_string(),
                "ask for onnxruntime, or name a board with a GPU in hardware",
            ));
        }
        Ok(Self { snapshot, hardware, layers, engine, scope: request.scope, path })
    }

    /// The precision of that name, or the usual one.
    fn precision(&self, name: Option<&str>, field: &str) -> Result<Precision, Refusal> {
        let Some(name) = name else {
            return Ok(match self.hardware {
                _ if self.layers.quantised() => Precision::Int8,
                Some(_) => Precision::Fp16,
                None => Precision::Fp32,
            });
        };
        Precision::ALL.iter().copied().find(|precision| precision.key() == name).ok_or_else(|| {
            let keys = Precision::ALL.iter().map(|precision| precision.key());
            Code::UnknownPrecision.at(
                format!("{}{field}", self.path),
                format!("there is no precision {:?}", shorten(name)),
                Near::of(name, keys).hint("use fp16, int8, tf32 or fp32"),
            )
        })
    }

    fn run(&self, model: &Model<'_>, precision: Precision, batch: u64) -> Result<Run, Refusal> {
        let roofline = model.roofline.as_ref();
        let predicted = predict_network(self.layers, self.engine, self.hardware, roofline, precision, batch);
        let mut prediction = predicted.map_err(|error| self.refusal(&error))?;
        let costs = self.snapshot.power_costs(roofline);
        if let Some(costs) = &costs {
            prediction.latency = costs.capped(&prediction.activity, roofline, prediction.latency).0;
        }
        let power =
            costs.as_ref().and_then(|costs| costs.of(&prediction.activity, roofline, prediction.latency));
        let mut warnings = prediction.warnings.clone();
        match (&power, &costs) {
            (Some(_), Some(costs)) => warnings.extend(costs.words()),
            _ => {
                warnings.push("the power is unknown: nobody measured the power of such a machine".to_owned());
            }
        }
        warnings.extend(self.vnni_missing(precision));
        let added = around(self.layers, self.engine, self.hardware, roofline, self.scope, batch)
            .ok_or_else(|| self.refusal(&NetworkError::NeedsGpu))?;
        warnings.extend(added.warnings);
        let inside = prediction.latency;
        let latency = Estimate {
            value: inside.value + added.time.value,
            low: inside.low + added.time.low,
            high: inside.high + added.time.high,
        };
        Ok(Run { prediction, latency, around: added.time.value, power, warnings })
    }

    /// What is said of 8 bits on a CPU without instructions for them.
    fn vnni_missing(&self, precision: Precision) -> Option<String> {
        if self.hardware.is_some() || precision != Precision::Int8 {
            return None;
        }
        let has_vnni = self.snapshot.board.cpu.features.iter().any(|feature| feature.contains("vnni"));
        (!has_vnni).then(|| {
            "this CPU has no VNNI: int8 was measured slower than fp32 for half of the networks there"
                .to_owned()
        })
    }

    fn refusal(&self, error: &NetworkError) -> Refusal {
        let (code, field, hint) = match error {
            NetworkError::NeedsGpu => (Code::UnsupportedFormat, "engine", "ask for onnxruntime"),
            NetworkError::Precision { .. } => (Code::NoUnit, "precision", "choose one of these"),
            NetworkError::Batch => (Code::InvalidField, "batch", "give 1 or more"),
        };
        code.at(format!("{}{field}", self.path), error.to_string(), hint)
    }

    fn answer(
        &self,
        model: &Model<'_>,
        run: Run,
        precision: Precision,
        batch: u64,
        power_mode: Option<String>,
    ) -> NetworkPredictAnswer {
        let roofline = model.roofline.as_ref();
        let provenance = roofline.bandwidth.provenance;
        let (pictures, energy, power) =
            (run.pictures_per_s(batch), run.energy_per_picture(batch), run.power());
        let prediction = run.prediction;
        let all: Seconds = prediction.layers.iter().map(|layer| layer.time).sum();
        let share = |bound| prediction.time_of(bound) / all;
        let named = self.layers.layers.iter().zip(&prediction.layers);
        let tier = match provenance {
            Provenance::Measured | Provenance::Scaled => Tier::BoardCalibrated,
            _ => Tier::Prior,
        };
        NetworkPredictAnswer {
            network: self.layers.name.clone(),
            engine: self.engine.key().to_owned(),
            precision: precision.key().to_owned(),
            batch,
            scope: self.scope.key().to_owned(),
            latency_s: estimate(run.latency.map(Seconds::get)),
            pictures_per_s: pictures,
            engine_s: estimate(prediction.latency.map(Seconds::get)),
            around_s: run.around.get(),
            shares: NetworkSharesAnswer {
                memory: share(LayerBound::Memory),
                compute: share(LayerBound::Compute),
                launch: share(LayerBound::Launch),
            },
            layers: named
                .map(|(layer, time)| NetworkLayerAnswer {
                    name: layer.name.clone(),
                    kind: layer.kind.key().to_owned(),
                    bound: time.bound.key().to_owned(),
                    precision: time.precision.key().to_owned(),
                    time_s: time.time.get(),
                    flops: time.flops.get(),
                    bytes: time.traffic.get(),
                })
                .collect(),
            flops: prediction.activity.all_work().get(),
            bytes: prediction.activity.traffic.get(),
            roofline_time_s: prediction.roofline_time.get(),
            memory_bytes: NetworkMemoryAnswer {
                weights: prediction.weights.get(),
                activations: prediction.activations.map(Bytes::get),
                runtime: None,
                available: available(self.snapshot).map(Bytes::get),
            },
            engine_file_bytes: prediction.engine_file.map(Bytes::get),
            power_w: power,
            energy_j_per_picture: energy,
            power_mode,
            workers: roofline.workers,
            clock_hz: roofline.clock.map(Hertz::get),
            bandwidth_bytes_per_s: roofline.bandwidth.value.get(),
            generation: prediction.generation.to_owned(),
            rows: prediction.rows,
            tier: tier_key(tier).to_owned(),
            simulated: self.snapshot.board.simulated,
            hardware: hypothetical(self.snapshot),
            serial: self.snapshot.serial,
            warnings: warnings(self.snapshot, provenance, run.warnings),
        }
    }
}

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
/// As [`predict`]; also more candidates than are looked at.
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
    let batches = batches(request, streams)?;
    let points = points(snapshot, request)?;
    if points.len() * precisions.len() * batches.len() > MAX_CANDIDATES {
        return Err(Code::TooMany.at(
            "batch",
            format!("these are more than {MAX_CANDIDATES} candidates"),
            "ask about fewer batches, modes or precisions",
        ));
    }
    let mut candidates = Vec::new();
    let mut refused = None;
    for (mode, model) in &points {
        for &precision in &precisions {
            wanted.check()?;
            for &batch in &batches {
                match job.run(model, precision, batch) {
                    Ok(run) => candidates.push(judge(request, streams, mode, model, precision, batch, run)),
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
            Some(_) => vec![Precision::Tf32, Precision::Fp16],
            // 8 bits are slower or hardly faster on most CPUs, and cost accuracy.
            None => vec![job.precision(None, "precision")?],
        });
    }
    named.into_iter().map(|name| job.precision(Some(name), "precision")).collect()
}

fn batches(request: &NetworkRecommendRequest, streams: u64) -> Result<Vec<u64>, Refusal> {
    if let Some(named) = request.workload.batch {
        return Ok(vec![batch(named, "workload.batch")?]);
    }
    let Some(range) = request.batch else {
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
        Some(_) if snapshot.modes.is_empty() || snapshot.accelerator == Accelerator::Cpu => now(),
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
            names.iter().map(|name| at(&mode_named(snapshot, "power_modes", name)?.mode.name)).collect()
        }
    }
}

fn judge<'a>(
    request: &NetworkRecommendRequest,
    streams: u64,
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
    let checks = [
        ("min_pictures_per_s", wanted.map(|wanted| wanted * latency / as_f64(batch))),
        ("max_latency_s", limits.max_latency_s.map(|most| latency / most)),
        ("max_power_w", limits.max_power_w.map(|most| watts / most)),
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

/// The command that builds the engine and times it. Sizes are given only where the file leaves them open, so of a batch other
/// than that of the file.
fn trtexec(layers: &Layers, precision: Precision, batch: u64, launch_share: f64) -> String {
    let mut command = format!("trtexec --onnx={0}.onnx --saveEngine={0}.engine", layers.name);
    match precision {
        Precision::Int8 if layers.quantised() => command.push_str(" --int8 --fp16"),
        Precision::Int8 => command.push_str(" --int8 --fp16 --calib=calibration.cache"),
        Precision::Fp16 => command.push_str(" --fp16"),
        _ => {}
    }
    if batch != layers.batch {
        let shapes = layers.inputs.iter().map(|(name, dims)| {
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
