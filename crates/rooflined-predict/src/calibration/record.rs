//! The stored result of a calibration.

use serde::{Deserialize, Serialize};

use super::power::PowerPoint;
use super::sample::{OtherWork, Reference};
use super::vet::{Rejection, regime_key};
use crate::power::PowerFile;
use crate::{EngineProfile, FormatCost};
use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::{Ceiling, Provenance, Roofline};
use rooflined_core::units::{BytesPerSecond, Hertz, Seconds, Watts};

/// Version of the stored shape; a record of another version is not read.
pub const RECORD_SCHEMA: u32 = 2;

/// What a record holds for: any difference makes it stale.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineKey {
    /// Hash of the machine id; `None` where there is none.
    pub machine: Option<String>,
    /// Registry key of the board.
    pub board: String,
    /// Processor model, and its vector instructions where the configuration names them.
    pub cpu: String,
    /// Logical CPUs present.
    pub logical_cpus: u32,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Version of this program; its kernels are part of what was measured.
    pub version: String,
}

/// The ceilings and kernel costs found in one regime of the machine.
///
/// Virtual machines move between core complexes and share memory with neighbours; boards change memory clocks. The
/// regime is identified by the core-to-core latency and kept with everything measured in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Regime {
    /// `near` (cores share a cache), `far`, or `single` with one worker; on a GPU the name of the power mode.
    pub key: String,
    /// Centre of the reference measurements of the samples used.
    pub reference: Reference,
    /// When it was last measured, seconds since 1970.
    pub measured_at_unix_s: f64,
    /// Cap on the clock when it was measured; `None` without cpufreq.
    pub clock_cap: Option<Hertz>,
    /// Clocks and units of the board when it was measured; `None` where the CPU is the accelerator.
    #[serde(default)]
    pub point: Option<OperatingPoint>,
    /// Power drawn while it was measured; `None` without a meter.
    #[serde(default)]
    pub power: Option<PowerUnderLoad>,
    /// Power of loads that were held.
    #[serde(default)]
    pub power_points: Vec<PowerPoint>,
    /// Why nothing can be said of the power of other work from them; `None` if it can.
    #[serde(default)]
    pub power_reason: Option<String>,
    /// Measured beside other work: every interval is wide, and a quiet run replaces it.
    #[serde(default)]
    pub loaded: bool,
    pub samples: u32,
    pub roofline: Roofline,
    /// Costs of this crate's own kernels.
    pub profile: EngineProfile,
}

/// Power of the whole module, or of what its meter covers, over a calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PowerUnderLoad {
    /// Mean of the readings, each weighted by the time to the next.
    pub mean: Watts,
    pub peak: Watts,
    pub readings: u32,
    /// What the meter covers: `module`, `system`, `gpu` or `package`.
    pub scope: String,
}

/// A stored calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibrationRecord {
    /// [`RECORD_SCHEMA`].
    pub schema: u32,
    /// What it holds for.
    pub key: MachineKey,
    /// When the newest part was measured, seconds since 1970.
    pub measured_at_unix_s: f64,
    /// Length of the newest run.
    pub wall: Seconds,
    /// `full` or `quick`.
    pub plan: String,
    /// Measured on a simulated accelerator.
    pub simulated: bool,
    /// The newest run was made beside other work, or while the clock moved all the time.
    #[serde(default)]
    pub loaded: bool,
    /// That work, as it was when the run began; `None` where the run was not loaded, or it is not known.
    #[serde(default)]
    pub other_work: Option<OtherWork>,
    /// Regimes, the one in force first; never empty.
    pub regimes: Vec<Regime>,
    /// Samples of the newest run that were not used.
    pub rejected: Vec<Rejection>,
    /// Steps of the newest run that this machine cannot do.
    pub skipped: Vec<String>,
    /// What power costs at the operating points whose loads were metered; `None` where there are none.
    #[serde(default)]
    pub power: Option<PowerFile>,
}

/// A bandwidth in a regime whose reference read is `ratio` of the one it was measured in.
fn carried(ceiling: Ceiling<BytesPerSecond>, ratio: f64) -> Ceiling<BytesPerSecond> {
    Ceiling {
        provenance: ceiling.provenance.max(Provenance::Scaled),
        low: ceiling.low * (ratio * 0.8),
        high: ceiling.high * (ratio * 1.2),
        value: ceiling.value * ratio,
    }
}

impl CalibrationRecord {
    #[must_use]
    pub fn current(&self) -> Option<&Regime> {
        self.regimes.first()
    }

    /// Ceilings and kernel costs under a reference measurement, and the reference over that of the regime they were
    /// measured in. A regime that was never calibrated takes the ceilings of the one in force, its bandwidth carried
    /// by the reference reads and marked as scaled. `None` for a record without regimes.
    #[must_use]
    pub fn under(&self, reference: &Reference) -> Option<(Regime, f64)> {
        let key = regime_key(reference);
        if let Some(regime) = self.regimes.iter().find(|regime| regime.key == key) {
            return Some((regime.clone(), reference.read / regime.reference.read));
        }
        let mut regime = self.current()?.clone();
        let ratio = reference.read / regime.reference.read;
        if !(ratio.is_finite() && ratio > 0.0) {
            return Some((regime, 1.0));
        }
        regime.roofline.bandwidth = carried(regime.roofline.bandwidth, ratio);
        regime.roofline.copy = regime.roofline.copy.map(|copy| carried(copy, ratio));
        regime.roofline.triad = regime.roofline.triad.map(|triad| carried(triad, ratio));
        regime.reference = *reference;
        key.clone_into(&mut regime.key);
        Some((regime, 1.0))
    }

    /// This record with what an older one knew of regimes that this one did not see.
    #[must_use]
    pub fn merged_with(mut self, older: Option<&Self>) -> Self {
        let Some(older) = older.filter(|older| older.key == self.key && older.simulated == self.simulated)
        else {
            return self;
        };
        for regime in &older.regimes {
            match self.regimes.iter_mut().find(|own| own.key == regime.key) {
                Some(own) => own.keep_from(regime),
                None => self.regimes.push(regime.clone()),
            }
        }
        self
    }
}

/// What quiet parts of a busy machine leave open, as a part: caches that others use too, clocks that they share.
const LOADED_HALF_WIDTH: f64 = 0.2;

fn wider<R: Copy + std::ops::Mul<f64, Output = R>>(ceiling: &mut Ceiling<R>) {
    ceiling.low = ceiling.low * (1.0 - LOADED_HALF_WIDTH);
    ceiling.high = ceiling.high * (1.0 + LOADED_HALF_WIDTH);
}

impl Regime {
    /// Says that it was measured beside other work, with intervals as wide as that deserves.
    pub(super) fn mark_loaded(&mut self) {
        self.loaded = true;
        let roofline = &mut self.roofline;
        wider(&mut roofline.bandwidth);
        wider(&mut roofline.launch);
        roofline.copy.iter_mut().chain(&mut roofline.triad).for_each(wider);
        roofline.compute.values_mut().for_each(wider);
        let widths = self.profile.formats.values_mut().map(|cost| &mut cost.half_width_ratio);
        let widths = widths.chain(self.profile.gemm.values_mut().map(|gemm| &mut gemm.half_width_ratio));
        for width in widths {
            *width = width.hypot(LOADED_HALF_WIDTH);
        }
    }

    /// Takes over from an older run of the same regime what this one did not measure: a quick plan leaves formats,
    /// shapes and sizes out, and a disturbed run loses some.
    fn keep_from(&mut self, older: &Self) {
        // A kernel reaches a part of the reference that does not change; its part of the ceiling follows.
        let carried = (older.roofline.bandwidth.value / older.reference.read)
            / (self.roofline.bandwidth.value / self.reference.read);
        for (format, cost) in &older.profile.formats {
            self.profile.formats.entry(*format).or_insert_with(|| FormatCost {
                bandwidth_ratio: (cost.bandwidth_ratio * carried).clamp(f64::MIN_POSITIVE, 1.0),
                ..*cost
            });
        }
        for (precision, gemm) in &older.profile.gemm {
            let own = self.profile.gemm.entry(*precision).or_insert_with(|| gemm.clone());
            if own.points.len() < gemm.points.len() {
                own.clone_from(gemm);
            }
        }
        if !self.power_points.iter().any(|point| point.power_w.is_some()) && !older.power_points.is_empty() {
            self.power_points.clone_from(&older.power_points);
            self.power_reason.clone_from(&older.power_reason);
        }
        for (precision, ceiling) in &older.roofline.compute {
            self.roofline.compute.entry(*precision).or_insert(*ceiling);
        }
        if self.roofline.curve.len() < older.roofline.curve.len() {
            self.roofline.curve.clone_from(&older.roofline.curve);
        }
        self.roofline.copy = self.roofline.copy.or(older.roofline.copy);
        self.roofline.triad = self.roofline.triad.or(older.roofline.triad);
    }
}
