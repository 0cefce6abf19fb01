//! Vision networks: what one run takes, what a measured one says, and what meets a target.

mod recommend;

use std::cell::OnceCell;

use serde::Deserialize;

use super::convert::{estimate, tier_key};
use super::modes::{Model, refuse_power_limit};
use super::remarks::{hypothetical, warnings};
use super::run::available;
use super::task::{model_at, with_threads};
use super::words::shorten;
use rooflined_api::{
    EstimateAnswer, NetworkLayerAnswer, NetworkMemoryAnswer, NetworkPredictAnswer, NetworkPredictRequest,
    NetworkSharesAnswer, PowerAnswer,
};
use rooflined_core::ceilings::{Provenance, Roofline};
use rooflined_core::hardware::Hardware;
use rooflined_core::names::{NetworkEngine, NetworkScope};
use rooflined_core::near::Near;
use rooflined_core::precision::Precision;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{Bytes, Hertz, Joules, Seconds, Watts};
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::learning::networks::{MeasuredNetwork, NetworkLearning, NetworkPoint};
use rooflined_predict::learning::report::Moved;
use rooflined_predict::network::{
    InvalidLayers, LayerBound, Layers, NetworkError, NetworkPrediction, around, predict_network,
};
use rooflined_predict::power::Power;
use rooflined_predict::snapshot::Snapshot;
use rooflined_predict::{Estimate, Tier};

pub use recommend::recommend;

/// Most pictures in one run.
const MAX_BATCH: u64 = 1024;

/// A network, and where it runs.
struct Job<'a> {
    snapshot: &'a Snapshot,
    hardware: Option<&'a Hardware>,
    layers: &'a Layers,
    engine: NetworkEngine,
    scope: NetworkScope,
    path: &'a str,
    /// What was reported, once it is asked for.
    learning: OnceCell<Option<NetworkLearning>>,
}

/// What one candidate comes to.
struct Run {
    prediction: NetworkPrediction,
    /// With what the scope adds.
    latency: Estimate<Seconds>,
    around: Seconds,
    power: Option<Power>,
    warnings: Vec<String>,
    /// What it rests on, and how many reports moved it, where any did.
    learned: Option<(Tier, Moved)>,
}

impl Run {
    fn pictures_per_s(&self, batch: u64) -> EstimateAnswer {
        EstimateAnswer::rate(as_f64(batch), estimate(self.latency.map(Seconds::get)))
    }

    fn energy_per_picture(&self, batch: u64) -> Option<EstimateAnswer> {
        Some(estimate(self.power?.energy.map(|energy: Joules| energy.get() / as_f64(batch))))
    }

    /// Memory of its weights and activations.
    fn needs(&self) -> Option<Bytes> {
        Some(self.prediction.weights + self.prediction.activations?)
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
/// A network that cannot be read, an engine or a precision that does not run there, an impossible batch or operating point.
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
    let mode = match &request.operating_point {
        None => active_mode(snapshot),
        Some(point) => point.power_mode.clone(),
    };
    let run = job.run(&model, mode.as_deref(), precision, batch)?;
    Ok(job.answer(&model, run, precision, batch, mode))
}

/// What a run that took `time` says, for the governor to learn from; the fields are below `path`.
///
/// # Errors
/// As [`predict`]; also a run elsewhere, or of more than the engine.
pub fn measured(
    snapshot: &Snapshot,
    request: &NetworkPredictRequest,
    time: Seconds,
    path: &str,
) -> Result<MeasuredNetwork, Refusal> {
    let layers = layers_of(request, path)?;
    if request.hardware.is_some() || request.scope != NetworkScope::Engine {
        let field = if request.hardware.is_some() { "hardware" } else { "scope" };
        return Err(Code::UnsupportedWorkload.at(
            format!("{path}{field}"),
            "what is learned of networks is the time inside the engine, on this machine",
            "leave hardware and scope out",
        ));
    }
    let job = Job::new(snapshot, request, &layers, path)?;
    if job.hardware.is_some() && job.engine == NetworkEngine::OnnxRuntime && request.precision.is_none() {
        return Err(Code::MissingField.at(
            format!("{path}precision"),
            "ONNX Runtime does not say whether a run was on the GPU or on the CPU",
            "if it was on the GPU, name the precision (tf32, unless the file is in 16 bits); runs on the CPU of this machine are not learned",
        ));
    }
    let (point, field) = (request.operating_point.as_ref(), format!("{path}operating_point"));
    refuse_power_limit(point, &field)?;
    let model = model_at(snapshot, point, &field)?;
    let model = with_threads(snapshot, model, request.threads, &format!("{path}threads"))?;
    let precision = job.precision(request.precision.as_deref(), "precision")?;
    let batch = batch(request.batch.unwrap_or(layers.batch), &format!("{path}batch"))?;
    let roofline = model.roofline.as_ref();
    let predicted = predict_network(&layers, job.engine, job.hardware, roofline, precision, batch);
    let predicted = predicted.map_err(|error| job.refusal(&error))?;
    Ok(MeasuredNetwork {
        point: NetworkPoint::new(&layers, job.engine, precision, batch, roofline, &predicted),
        mode: point.map_or_else(|| active_mode(snapshot), |point| point.power_mode.clone()),
        time,
        predicted: predicted.latency.value,
        bound: predicted.roofline_time,
        calibrated: roofline.bandwidth.provenance != Provenance::Prior,
    })
}

/// The layers that a request has, checked.
fn layers_of(request: &NetworkPredictRequest, path: &str) -> Result<Layers, Refusal> {
    let field = format!("{path}network");
    let network = request.network.as_ref().ok_or_else(|| {
        Code::MissingField.at(
            &field,
            format!("{field} is missing"),
            "name its file: {\"path\": \"/models/x.onnx\"}; or ask rooflinectl predict FILE.onnx",
        )
    })?;
    let wrong = |message: String| {
        let hint =
            "name an ONNX file: {\"path\": \"/models/x.onnx\"}; or send the layers as rooflinectl reads them";
        Code::InvalidModel.at(&field, message, hint)
    };
    let layers = Layers::deserialize(network)
        .map_err(|error| wrong(format!("{field} is no list of layers: {}", shorten(&error.to_string()))))?;
    layers.check().map_err(|error: InvalidLayers| wrong(format!("{field}: {error}")))?;
    if !layers.undescribed.is_empty() {
        let names: Vec<&str> = layers.undescribed.iter().take(12).map(|name| shorten(name)).collect();
        return Err(Code::UnsupportedWorkload.at(
            &field,
            format!(
                "{} has operators whose work is unknown ({}): no rule describes them, or only a run knows their sizes",
                shorten(&layers.name),
                names.join(", ")
            ),
            "export the network without them",
        ));
    }
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
        let learning = OnceCell::new();
        Ok(Self { snapshot, hardware, layers, engine, scope: request.scope, path, learning })
    }

    /// The precision of that name, or the usual one.
    fn precision(&self, name: Option<&str>, field: &str) -> Result<Precision, Refusal> {
        let Some(name) = name else {
            return Ok(match self.hardware {
                _ if self.layers.quantised() => Precision::Int8,
                // It computes in the file's own type, with TF32 where it can.
                Some(_) if self.engine == NetworkEngine::OnnxRuntime => Precision::Tf32,
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

    /// The clock at which the CPU prepares frames in a mode.
    fn cpu_clock(&self, mode: Option<&str>, roofline: &Roofline) -> Option<Hertz> {
        let Some(hardware) = self.hardware else { return roofline.clock };
        let nominal = hardware.modes.iter().find(|known| Some(known.name.as_str()) == mode);
        let live = self.snapshot.modes.iter().find(|view| Some(view.mode.name.as_str()) == mode);
        nominal
            .and_then(|mode| mode.cpu_clock)
            .or_else(|| live.and_then(|view| view.mode.cpu_max))
            .or_else(|| self.snapshot.state.cpu_clock_cap.known().copied())
    }

    fn run(
        &self,
        model: &Model<'_>,
        mode: Option<&str>,
        precision: Precision,
        batch: u64,
    ) -> Result<Run, Refusal> {
        let roofline = model.roofline.as_ref();
        let predicted = predict_network(self.layers, self.engine, self.hardware, roofline, precision, batch);
        let mut prediction = predicted.map_err(|error| self.refusal(&error))?;
        let learned = self.learn(&mut prediction, roofline, precision, batch);
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
                warnings
                    .push("the power is unknown: no power of such a machine was ever measured".to_owned());
            }
        }
        warnings.extend(self.vnni(precision));
        let has_tf32 = |of: &Hardware| of.rates.contains_key(&Precision::Tf32);
        if precision == Precision::Tf32 && self.hardware.is_some_and(|of| !has_tf32(of)) {
            warnings.push("this GPU has no TF32: it computes in fp32".to_owned());
        }
        if self.layers.fixes(batch) {
            warnings.push(format!(
                "the file has a fixed batch of {}: export it again for a batch of {batch}",
                self.layers.batch
            ));
        }
        let cpu = self.cpu_clock(mode, roofline);
        let added = around(self.layers, self.engine, self.hardware, roofline, self.scope, batch, cpu)
            .map_err(|error| self.refusal(&error))?;
        warnings.extend(added.warnings);
        let inside = prediction.latency;
        let latency = Estimate {
            value: inside.value + added.time.value,
            low: inside.low + added.time.low,
            high: inside.high + added.time.high,
        };
        let mut run = Run { prediction, latency, around: added.time.value, power, warnings, learned };
        if let Some((needs, available)) = run.needs().zip(available(self.snapshot)).filter(|(a, b)| a > b) {
            run.warnings.push(format!(
                "its weights and activations need {needs}, and {available} are free: take a smaller batch or size"
            ));
        }
        Ok(run)
    }

    /// Corrects a prediction by what was reported: what it rests on then, and how many reports moved it.
    fn learn(
        &self,
        prediction: &mut NetworkPrediction,
        roofline: &Roofline,
        precision: Precision,
        batch: u64,
    ) -> Option<(Tier, Moved)> {
        let reports = self.snapshot.residuals.networks();
        let point = NetworkPoint::new(self.layers, self.engine, precision, batch, roofline, prediction);
        let learning = self.learning.get_or_init(|| NetworkLearning::new(reports, &point)).as_ref()?;
        let residual = learning.at(&point);
        prediction.correct(&residual);
        Some((residual.tier, learning.moved))
    }

    /// What is said of 8 bits on a CPU without instructions for them.
    fn vnni(&self, precision: Precision) -> Option<String> {
        if self.hardware.is_some() || precision != Precision::Int8 {
            return None;
        }
        let has_vnni = self.snapshot.board.cpu.features.iter().any(|feature| feature.contains("vnni"));
        let words = if has_vnni {
            "no run in int8 on a CPU with VNNI was used, and one that was tried was slower than in fp32: time yours"
        } else {
            "this CPU has no VNNI: int8 was measured slower than fp32 for half of the networks there"
        };
        Some(words.to_owned())
    }

    fn refusal(&self, error: &NetworkError) -> Refusal {
        let (code, field, hint) = match error {
            NetworkError::NeedsGpu => (Code::UnsupportedFormat, "engine", "ask for onnxruntime"),
            NetworkError::Precision { .. } => (Code::NoUnit, "precision", "choose one of these"),
            NetworkError::Batch => (Code::InvalidField, "batch", "give 1 or more"),
            NetworkError::CpuClock => (
                Code::UnsupportedWorkload,
                "scope",
                "ask for engine or copies, and add what your program takes",
            ),
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
        let (tier, moved) = run.learned.unwrap_or_else(|| {
            let tier = match provenance {
                Provenance::Measured | Provenance::Scaled => Tier::BoardCalibrated,
                _ => Tier::Prior,
            };
            (tier, Moved::default())
        });
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
            reports: moved.own + moved.shared,
            tier: tier_key(tier).to_owned(),
            simulated: self.snapshot.board.simulated,
            hardware: hypothetical(self.snapshot),
            serial: self.snapshot.serial,
            warnings: warnings(self.snapshot, provenance, run.warnings),
        }
    }
}
