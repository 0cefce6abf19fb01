//! What a prediction holds for: an operating point, a workload and an engine. Causes change it one by one.

use std::borrow::Cow;
use std::cell::RefCell;

use super::suspect::{Change, Suspect};
use crate::catalogue::Catalogue;
use crate::modes::Model;
use crate::predict::{Work, predict_op};
use crate::run;
use crate::task::{unpredictable, with_threads};
use rooflined_api::{ExplainRequest, Workload};
use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::{Roofline, scaling};
use rooflined_core::refusal::Refusal;
use rooflined_core::units::{Bytes, Hertz};
use rooflined_predict::calibration::{Accelerator, CalibrationRecord, Regime};
use rooflined_predict::costs::Build;
use rooflined_predict::snapshot::{Cap, Snapshot, point_in, point_now};
use rooflined_predict::{Engine, Prediction};

/// Conditions that may be changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    pub point: OperatingPoint,
    workload: Workload,
    version: Option<String>,
    /// Part of the memory's bandwidth that others leave.
    memory_ratio: f64,
    without: Vec<&'static str>,
    /// Part of the predicted rate that is left.
    rate: f64,
    /// Part that is left beside rivals for a CPU: at the usual priority, and at the own one.
    beside_rivals: Option<f64>,
    at_low_priority: Option<f64>,
}

impl Conditions {
    /// Part of the predicted rate that is left.
    fn left(&self) -> f64 {
        // A low priority costs nothing where nobody wants the CPU.
        let rivals = self.beside_rivals.map_or(1.0, |fair| self.at_low_priority.unwrap_or(fair));
        self.rate * rivals
    }
}

fn least<T: Copy + PartialOrd>(known: Option<T>, limit: T) -> Option<T> {
    Some(known.filter(|known| *known < limit).unwrap_or(limit))
}

impl Conditions {
    fn apply(&mut self, change: &Change) {
        let workload = &mut self.workload;
        match change.clone() {
            Change::GpuClock(clock) => self.point.gpu_clock = least(self.point.gpu_clock, clock),
            Change::MemoryClock(clock) => self.point.memory_clock = least(self.point.memory_clock, clock),
            Change::Sm(count) => self.point.sm_online = least(self.point.sm_online, count),
            Change::CpuClock(clock) => self.point.cpu_clock = least(self.point.cpu_clock, clock),
            Change::Cores(count) => self.point.cores_online = least(self.point.cores_online, count),
            Change::MemoryRatio(ratio) => self.memory_ratio *= ratio,
            Change::Threads(count) => workload.threads = Some(count),
            Change::KvFormat(format) => workload.kv_format = Some(format),
            Change::ContextTokens(count) => workload.context_tokens = Some(count),
            Change::Batch(count) => workload.batch = Some(count),
            Change::ChunkTokens(count) => workload.chunk_tokens = Some(count),
            Change::Offload(offload) => workload.offload = Some(offload),
            Change::Speculative(speculative) => workload.speculative = Some(*speculative),
            Change::Model { model, format } => {
                workload.model = Some(model);
                workload.format = format;
            }
            Change::EngineVersion(version) => self.version = Some(version),
            Change::Without(features) => self.without.extend(features),
            Change::Rate(ratio) => self.rate *= ratio,
            Change::Rivals(left) => self.beside_rivals = Some(left),
            Change::LowPriority(left) => self.at_low_priority = Some(left),
        }
    }
}

/// Predicts one request under changed conditions.
pub struct Predictor<'a> {
    snapshot: &'a Snapshot,
    catalogue: &'a Catalogue,
    engine: Engine,
    pub expected: Conditions,
    /// Workloads that were read: a model in a file is unfolded once.
    known: RefCell<Vec<(Workload, Work)>>,
}

impl<'a> Predictor<'a> {
    /// Of a request that is [completed](crate::predict::completed).
    pub fn new(snapshot: &'a Snapshot, catalogue: &'a Catalogue, request: &ExplainRequest) -> Self {
        let expected = Conditions {
            point: expected_point(snapshot, request),
            workload: request.workload.clone(),
            version: request.engine_version.clone(),
            memory_ratio: 1.0,
            without: Vec::new(),
            rate: 1.0,
            beside_rivals: None,
            at_low_priority: None,
        };
        let known = RefCell::new(Vec::new());
        Self { snapshot, catalogue, engine: request.engine, expected, known }
    }

    /// As it was expected, with the changes of `suspects`; and what is left of its rate beside the prediction.
    pub fn predict<'s>(
        &self,
        suspects: impl Iterator<Item = &'s Suspect>,
    ) -> Result<(Prediction, f64), Refusal> {
        let mut conditions = self.expected.clone();
        for change in suspects.flat_map(|suspect| &suspect.changes) {
            conditions.apply(change);
        }
        let work = self.work(&conditions)?;
        let prediction = self.predict_work(&conditions, &work)?;
        Ok((prediction, conditions.left()))
    }

    /// Memory that what was expected takes.
    pub fn memory(&self, expected: &Prediction) -> Option<Bytes> {
        let work = self.expected_work().ok()?;
        Some(Bytes(work.memory(self.snapshot, expected).total))
    }

    pub fn expected_work(&self) -> Result<Work, Refusal> {
        self.work(&self.expected)
    }

    fn work(&self, conditions: &Conditions) -> Result<Work, Refusal> {
        let mut known = self.known.borrow_mut();
        let found = known.iter().find(|(workload, _)| *workload == conditions.workload);
        let mut work = match found {
            Some((_, work)) => work.clone(),
            None => {
                let workload = &conditions.workload;
                let work = Work::new(self.snapshot, self.catalogue, workload, self.engine, "workload")?;
                known.push((workload.clone(), work.clone()));
                work
            }
        };
        if let (Work::Model(task), Some(version)) = (&mut work, &conditions.version) {
            task.build = Build::of(self.engine, version);
        }
        Ok(work)
    }

    fn predict_work(&self, conditions: &Conditions, work: &Work) -> Result<Prediction, Refusal> {
        let mut snapshot = Cow::Borrowed(self.snapshot);
        if !conditions.without.is_empty() {
            let features = &mut snapshot.to_mut().board.cpu.features;
            features.retain(|feature| !conditions.without.contains(&feature.as_str()));
        }
        let snapshot = snapshot.as_ref();
        let mut model = machine(snapshot, &conditions.point);
        if conditions.memory_ratio < 1.0 {
            slow_memory(model.roofline.to_mut(), conditions.memory_ratio);
        }
        let model = with_threads(snapshot, model, conditions.workload.threads, "workload.threads")?;
        match work {
            Work::Op(task) => predict_op(snapshot, &model, &snapshot.residuals, task)
                .map_err(|error| unpredictable(&error, "workload")),
            Work::Model(task) => run::run(snapshot, &model, &snapshot.observed_runs, task, "workload"),
        }
    }
}

/// Ceilings and kernel costs at a point of this machine.
fn machine<'a>(snapshot: &'a Snapshot, point: &OperatingPoint) -> Model<'a> {
    if let Some((roofline, profile)) = snapshot.gpu_at(point) {
        let (roofline, profile) = (Cow::Owned(roofline), Cow::Owned(profile));
        return Model { roofline, profile, ..Model::now(snapshot) };
    }
    let Some(regime) = snapshot.calibration.as_ref().and_then(CalibrationRecord::current) else {
        return Model::now(snapshot);
    };
    let workers = point.cores_online.unwrap_or(regime.roofline.workers);
    let roofline = scaling::to_clock(&regime.roofline, workers, point.cpu_clock);
    Model { roofline: Cow::Owned(roofline), ..Model::now(snapshot) }
}

fn slow_memory(roofline: &mut Roofline, ratio: f64) {
    // An engine's costs are parts of what the interface could give.
    let limits = [roofline.memory_limit.as_mut(), roofline.pull_limit.as_mut()];
    let reached = [Some(&mut roofline.bandwidth), roofline.copy.as_mut(), roofline.triad.as_mut()];
    for ceiling in reached.into_iter().chain(limits).flatten() {
        *ceiling = ceiling.map(|rate| rate * ratio);
    }
    for point in &mut roofline.curve {
        point.read = point.read * ratio;
    }
}

/// The operating point that the request expects: what it names of it, and otherwise the fastest that the machine was calibrated
/// at, or is at now.
fn expected_point(snapshot: &Snapshot, request: &ExplainRequest) -> OperatingPoint {
    let asked = request.operating_point.clone().unwrap_or_default();
    let mode = asked.power_mode.as_ref().and_then(|name| snapshot.mode(name));
    let base = match (mode, snapshot.accelerator) {
        (Some(view), Accelerator::Gpu) => {
            point_in(&snapshot.board, &snapshot.state, snapshot.hardware.as_deref(), &view.mode)
        }
        (None, Accelerator::Gpu) => match asked.power_mode.as_deref().and_then(Cap::named) {
            Some(cap) => snapshot.point_under(cap).0,
            None => fastest_point(snapshot),
        },
        (_, Accelerator::Cpu) => {
            let regime = snapshot.calibration.as_ref().and_then(CalibrationRecord::current);
            let roofline = regime.map(|regime| &regime.roofline);
            OperatingPoint {
                cpu_clock: roofline.and_then(|roofline| roofline.clock),
                cores_online: roofline.map(|roofline| roofline.workers),
                ..OperatingPoint::default()
            }
        }
    };
    OperatingPoint {
        power_mode: asked.power_mode.or(base.power_mode),
        sm_online: asked.sm_online.or(base.sm_online),
        gpu_clock: asked.gpu_hz.map(Hertz).or(base.gpu_clock),
        memory_clock: asked.emc_hz.map(Hertz).or(base.memory_clock),
        cpu_clock: asked.cpu_hz.map(Hertz).or(base.cpu_clock),
        cores_online: asked.cores_online.or(base.cores_online),
    }
}

/// The fastest point that a GPU was calibrated at, raised to what it may do now where that is more. Without a calibration the
/// hardware's own.
fn fastest_point(snapshot: &Snapshot) -> OperatingPoint {
    let hardware = snapshot.hardware.as_deref();
    let now = point_now(&snapshot.board, &snapshot.state, hardware);
    let regimes = snapshot.calibration.iter().flat_map(|record| &record.regimes);
    let bandwidth = |regime: &&Regime| regime.roofline.bandwidth.value.get();
    let fastest = regimes
        .filter(|regime| regime.point.is_some())
        .max_by(|a, b| bandwidth(a).total_cmp(&bandwidth(b)))
        .and_then(|regime| regime.point.clone());
    let base = fastest.unwrap_or_default();
    // What a calibration leaves open was not capped: the hardware's own.
    let own_gpu = hardware.map(|hardware| hardware.gpu_clock);
    let own_memory = hardware.and_then(|hardware| hardware.memory_clock);
    let raised = |known: Option<Hertz>, own: Option<Hertz>, now: Option<Hertz>| {
        known.map_or(own, |known| Some(now.map_or(known, |now| now.max(known))))
    };
    let gpu_clock = raised(base.gpu_clock, own_gpu, now.gpu_clock);
    let memory_clock = raised(base.memory_clock, own_memory, now.memory_clock);
    let is_now = gpu_clock == now.gpu_clock && memory_clock == now.memory_clock;
    OperatingPoint {
        power_mode: if is_now { now.power_mode.or(base.power_mode) } else { base.power_mode },
        sm_online: base
            .sm_online
            .into_iter()
            .chain(now.sm_online)
            .max()
            .or(hardware.map(|hardware| hardware.sm)),
        gpu_clock,
        memory_clock,
        cpu_clock: None,
        cores_online: None,
    }
}
