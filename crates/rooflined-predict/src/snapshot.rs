//! The immutable snapshot that every answer is computed from.

mod busy;
mod cap;
mod hypothetical;
mod model;
mod power;
mod power_limit;
mod servers;

use serde::Serialize;

pub use busy::{BusyClocks, LoadWatch};
pub use cap::Cap;
pub use model::{CHECKPOINTS, accelerator, clock_notes, distance, gpu_model, point_in, point_now};
pub use power::{
    Advice, Automatic, Hold, HoldQuery, ModeCause, ModeView, PendingConfirmation, PowerControl, WorstPower,
    WorstSource,
};
pub use power_limit::PowerLimit;
pub use servers::WatchedServer;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::calibration::{Accelerator, CalibrationRecord, Gate, Reference};
use crate::learning::Residuals;
use crate::learning::models::ObservedRuns;
use crate::learning::reports::{Reports, View};
use crate::{Engine, EngineProfile};
use rooflined_core::board::{Board, BoardState, OperatingPoint};
use rooflined_core::ceilings::Roofline;
use rooflined_core::hardware::Hardware;
use rooflined_core::precision::{NumericFormat, Precision, WeightFormat};
use rooflined_core::units::Seconds;

/// The two clocks at one instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Now {
    /// CLOCK_BOOTTIME: for intervals.
    pub boottime: Seconds,
    /// Seconds since 1970: for dates in records.
    pub unix_s: f64,
}

/// Everything the daemon knows at one instant. Shared read-only; a new one replaces it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Counts publications; a client that saw the same serial saw the same snapshot. 0 was never published: a
    /// [hypothetical](Self::hypothetical) machine.
    pub serial: u64,
    /// CLOCK_BOOTTIME when it was published.
    pub taken_at: Seconds,
    /// The machine as it is built.
    pub board: Board,
    /// The machine as it was last read.
    pub state: BoardState,
    /// Clocks under a load that lasts: no clock of `state` by itself is one.
    pub busy_clocks: BusyClocks,
    pub accelerator: Accelerator,
    /// What the registry knows of this board; `None` where it does not know it.
    pub hardware: Option<Arc<Hardware>>,
    /// Ceilings at the operating point of the moment.
    pub roofline: Roofline,
    /// Costs of this crate's own kernels; unknown before the first calibration.
    pub profile: EngineProfile,
    pub residuals: Arc<Residuals>,
    /// What services reported of whole models.
    pub observed_runs: Arc<ObservedRuns>,
    /// What users reported that moves their own answers only.
    pub reports: Arc<Reports>,
    /// Servers that somebody watches.
    pub servers: Arc<Vec<WatchedServer>>,
    pub calibration: Option<CalibrationRecord>,
    pub calibration_status: CalibrationStatus,
    /// The newest reference measurement of the memory system.
    pub reference: Option<ReferenceReading>,
    /// What does not work, by its short name, in words that end with the remedy.
    pub degraded: BTreeMap<&'static str, String>,
    /// Every power mode with what it would give.
    pub modes: Arc<Vec<ModeView>>,
    pub power: PowerControl,
    /// Changing things is allowed on the control socket.
    pub control_enabled: bool,
    /// A limit on the power that a question supposes; `None` on the machine as it is.
    pub power_limit: Option<PowerLimit>,
}

/// A reference measurement of the memory system, and what the board was set to.
#[derive(Debug, Clone, PartialEq)]
pub struct ReferenceReading {
    /// CLOCK_BOOTTIME.
    pub at: Seconds,
    pub reference: Reference,
    /// The caps and units at that time.
    pub point: OperatingPoint,
    /// Whether heat or power lowered the clocks further.
    pub throttled: bool,
}

impl ReferenceReading {
    /// Of a board in this state.
    #[must_use]
    pub fn new(at: Seconds, reference: Reference, state: &BoardState) -> Self {
        Self {
            at,
            reference,
            point: state.operating_point(),
            throttled: state.throttle.known().is_some_and(|throttle| throttle.active),
        }
    }
}

/// What the calibrator is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CalibrationStatus {
    /// Number of the running job.
    pub running: Option<u64>,
    /// Part of it that is done, 0 to 1.
    pub fraction: Option<f64>,
    pub step: Option<String>,
    /// Why a wanted calibration has not started.
    pub waiting_for: Option<Gate>,
    pub waiting_reason: Option<String>,
    /// Number of the last finished job.
    pub last_job: Option<u64>,
    /// Why the last job failed; `None` if it did not.
    pub last_error: Option<String>,
}

impl Snapshot {
    /// `name: problem; remedy` for each thing that does not work.
    #[must_use]
    pub fn degraded_lines(&self) -> Vec<String> {
        self.degraded.iter().map(|(name, problem)| format!("{name}: {problem}")).collect()
    }

    /// The same as one user sees it: with what that user reported. Shared with everybody where that is nothing.
    #[must_use]
    pub fn seen_by(self: &Arc<Self>, uid: u32) -> Arc<Self> {
        match self.reports.view(uid, &self.residuals, &self.observed_runs) {
            None => Arc::clone(self),
            Some(View { residuals, observed_runs }) => Arc::new(Self {
                residuals: Arc::clone(residuals),
                observed_runs: Arc::clone(observed_runs),
                ..Self::clone(self)
            }),
        }
    }

    /// How this machine would run weights stored as `format`: what its own kernels compute in where they were
    /// measured, the format's native precision otherwise. Activations are fp32 on a CPU and 16-bit on a GPU.
    #[must_use]
    pub fn numeric_format(&self, format: WeightFormat) -> NumericFormat {
        let mut numeric = NumericFormat::stored(format);
        if self.accelerator == Accelerator::Cpu {
            numeric.activations = WeightFormat::Fp32;
        }
        if let Some(cost) = self.profile.formats.get(&format) {
            numeric.compute = cost.compute;
        }
        numeric
    }

    /// The kernel costs of `engine`. Another engine's kernels have the same work to do on the same cores, so this
    /// crate's own are a better guess for them than the bare ceilings; the interval says that it is one.
    #[must_use]
    pub fn profile_of(&self, engine: Engine) -> EngineProfile {
        self.profile.clone().lent_to(engine)
    }

    /// Formats that this machine's own kernels have been measured with.
    pub fn measured_formats(&self) -> impl Iterator<Item = WeightFormat> {
        self.profile.formats.keys().copied()
    }

    /// Precisions that the accelerator has a unit for.
    pub fn precisions(&self) -> impl Iterator<Item = Precision> {
        self.roofline.compute.keys().copied()
    }
}

/// Something that differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// Clocks, temperatures, memory or load moved.
    State,
    /// Another power mode is active.
    Mode {
        /// Before.
        from: Option<String>,
        /// Now.
        to: Option<String>,
    },
    Throttle {
        /// Whether it is active now.
        active: bool,
    },
    /// A ceiling moved by more than one part in a hundred.
    Roofline {
        /// The largest ratio of new over old among the ceilings.
        ratio: f64,
    },
    /// A hold began or ended, a switch is pending, or control was lost or regained.
    Hold,
    /// A calibration began, moved on, ended or was refused.
    Calibration,
    /// Something stopped working or works again.
    Degraded,
}

/// What changed between two snapshots, in the order of [`Change`].
#[must_use]
pub fn diff(old: &Snapshot, new: &Snapshot) -> Vec<Change> {
    let mut changes = Vec::new();
    if old.state.taken_at != new.state.taken_at {
        changes.push(Change::State);
    }
    let mode = |snapshot: &Snapshot| snapshot.state.power_mode.known().map(|mode| mode.name.clone());
    if mode(old) != mode(new) {
        changes.push(Change::Mode { from: mode(old), to: mode(new) });
    }
    let throttled = |snapshot: &Snapshot| {
        snapshot.state.throttle.known().map(|throttle| throttle.active).unwrap_or_default()
    };
    if throttled(old) != throttled(new) {
        changes.push(Change::Throttle { active: throttled(new) });
    }
    let ratio = largest_ratio(&old.roofline, &new.roofline);
    if (ratio - 1.0).abs() > 0.01 {
        changes.push(Change::Roofline { ratio });
    }
    if old.calibration_status != new.calibration_status
        || old.calibration.as_ref().map(|record| record.measured_at_unix_s)
            != new.calibration.as_ref().map(|record| record.measured_at_unix_s)
    {
        changes.push(Change::Calibration);
    }
    if old.power != new.power {
        changes.push(Change::Hold);
    }
    if old.degraded != new.degraded {
        changes.push(Change::Degraded);
    }
    changes
}

/// The ceiling ratio, new over old, that lies farthest from one.
#[must_use]
pub fn largest_ratio(old: &Roofline, new: &Roofline) -> f64 {
    let bandwidth = new.bandwidth.value / old.bandwidth.value;
    let compute = new
        .compute
        .iter()
        .filter_map(|(precision, ceiling)| Some(ceiling.value / old.compute(*precision)?.value));
    std::iter::once(bandwidth)
        .chain(compute)
        .max_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs()))
        .unwrap_or(1.0)
}
