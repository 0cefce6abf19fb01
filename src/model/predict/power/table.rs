//! Coefficients of boards that others measured, as files.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Coefficients, PowerCosts, PowerSource, Rails};
use roofline::ceilings::Roofline;
use roofline::hardware::{Hardware, NominalMode};
use roofline::precision::Precision;
use roofline::units::Watts;

/// Whose errors an interval was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorsOf {
    /// Predictions on this very hardware.
    Hardware,
    /// Predictions on every hardware.
    All,
}

/// A file of `config/power`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerFile {
    /// Key in the registry of hardware.
    pub hardware: String,
    /// What the meter covered.
    pub rails: Rails,
    /// Rows that went in.
    pub rows: u32,
    /// Relative half-width that held 90 % of the errors of what was left out of the fit, at a point that was measured.
    pub half_width_ratio: f64,
    /// How many errors it was taken from.
    pub errors: u32,
    pub errors_of: ErrorsOf,
    /// What the work was computed in.
    pub flop_precision: Precision,
    /// The limit that this meter enforces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_w: Option<f64>,
    /// Slope of the voltage over the clock, relative to that at the highest; absent with fewer than three points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voltage_per_ghz: Option<f64>,
    /// Relative half-width at points between those measured, from predicting each mode from its neighbour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried_half_width_ratio: Option<f64>,
    /// The same below the lowest clock measured, from predicting the lowest mode from the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below_half_width_ratio: Option<f64>,
    /// Operating points that were measured, by clock.
    pub modes: Vec<ModeFile>,
}

/// Coefficients of one operating point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeFile {
    /// Power mode; empty where there is none.
    pub name: String,
    pub gpu_clock_hz: f64,
    pub sm_online: u32,
    /// Nominal memory bandwidth, which goes with the memory clock.
    pub memory_bytes_per_s: f64,
    /// Rows that went in.
    pub rows: u32,
    /// P0.
    pub static_w: f64,
    /// eB.
    pub byte_j: f64,
    /// eF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flop_j: Option<f64>,
    /// eW.
    pub weight_j: f64,
    /// Most that operations drew in the busiest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_w: Option<f64>,
    /// Relative half-width at this point, where it is not that of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width_ratio: Option<f64>,
}

impl ModeFile {
    #[must_use]
    pub const fn coefficients(&self) -> Coefficients {
        Coefficients {
            static_w: self.static_w,
            byte_j: self.byte_j,
            flop_j: self.flop_j,
            weight_j: self.weight_j,
            busy_w: self.busy_w,
        }
    }

    /// How far its point is from that of a roofline, in natural logarithms.
    fn distance(&self, roofline: &Roofline, clock: f64) -> f64 {
        let memory =
            roofline.memory_limit.map_or(0.0, |limit| ratio(limit.value.get(), self.memory_bytes_per_s));
        ratio(clock, self.gpu_clock_hz)
            + memory
            + ratio(f64::from(roofline.workers.max(1)), f64::from(self.sm_online.max(1)))
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    (a / b).ln().abs()
}

/// Whether `roofline` holds for the clocks and units of a vendor's mode.
pub(super) fn same_point(mode: &NominalMode, hardware: &Hardware, roofline: &Roofline) -> bool {
    let near = |a: f64, b: f64| ratio(a, b) <= SAME_POINT;
    let memory = hardware.memory_clock.map_or(1.0, |highest| mode.memory_clock / highest);
    let limit = roofline.memory_limit.map_or(0.0, |limit| limit.value.get());
    roofline.clock.is_some_and(|clock| near(clock.get(), mode.gpu_clock.get()))
        && roofline.workers == mode.sm_online
        && (limit <= 0.0 || near(limit, hardware.bandwidth.get() * memory))
}

/// Why a file is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidPower {
    /// No TOML of this shape.
    #[error("{0}")]
    Shape(String),
    /// A number that cannot be.
    #[error("{field} of {hardware} is {value}; it must be finite and {must}")]
    Value { hardware: String, field: &'static str, value: String, must: &'static str },
}

#[derive(Debug, Clone, PartialEq)]
pub struct PowerTable {
    file: PowerFile,
}

/// Points that are closer than this are the same: clocks are rounded to the steps of a table.
const SAME_POINT: f64 = 0.015;
/// Half-width at points that were not measured where nothing tells how far carrying goes wrong. A guess: between the
/// modes of an Orin Nano it was 8 %.
pub const CARRIED_GUESS: f64 = 0.3;
/// Whose limit that of a file is.
const CARD_LIMIT: &str = "the card's power limit";
/// The same below the lowest clock measured. A guess: on an Orin Nano it was 49 %.
const BELOW_GUESS: f64 = 1.0;

impl PowerTable {
    /// Reads a file.
    ///
    /// # Errors
    /// Anything that is no file of this shape, names the field.
    pub fn parse(text: &str) -> Result<Self, InvalidPower> {
        let file: PowerFile = toml::from_str(text).map_err(|error| InvalidPower::Shape(error.to_string()))?;
        Self::new(file)
    }

    /// Checks a file.
    ///
    /// # Errors
    /// A number that cannot be.
    pub fn new(file: PowerFile) -> Result<Self, InvalidPower> {
        let wrong = |field, value: f64, must| {
            let value = value.to_string();
            Err::<(), _>(InvalidPower::Value { hardware: file.hardware.clone(), field, value, must })
        };
        let least = |field, value: f64| {
            if value.is_finite() && value >= 0.0 { Ok(()) } else { wrong(field, value, "no less than 0") }
        };
        let positive = |field, value: f64| {
            if value.is_finite() && value > 0.0 { Ok(()) } else { wrong(field, value, "above 0") }
        };
        least("half_width_ratio", file.half_width_ratio)?;
        least("carried_half_width_ratio", file.carried_half_width_ratio.unwrap_or(0.0))?;
        least("below_half_width_ratio", file.below_half_width_ratio.unwrap_or(0.0))?;
        least("voltage_per_ghz", file.voltage_per_ghz.unwrap_or(0.0))?;
        positive("cap_w", file.cap_w.unwrap_or(1.0))?;
        if file.modes.is_empty() {
            wrong("modes", 0.0, "one or more")?;
        }
        for mode in &file.modes {
            positive("gpu_clock_hz", mode.gpu_clock_hz)?;
            positive("memory_bytes_per_s", mode.memory_bytes_per_s)?;
            positive("sm_online", f64::from(mode.sm_online))?;
            least("static_w", mode.static_w)?;
            least("byte_j", mode.byte_j)?;
            least("flop_j", mode.flop_j.unwrap_or(0.0))?;
            least("weight_j", mode.weight_j)?;
            positive("busy_w", mode.busy_w.unwrap_or(1.0))?;
            least("half_width_ratio", mode.half_width_ratio.unwrap_or(0.0))?;
            if file.cap_w.is_some_and(|cap| mode.static_w >= cap) {
                wrong("static_w", mode.static_w, "below cap_w")?;
            }
        }
        Ok(Self { file })
    }

    #[must_use]
    pub const fn file(&self) -> &PowerFile {
        &self.file
    }

    /// The coefficients at the point that `roofline` holds for: those measured there, else those of the nearest point
    /// with the dynamic ones carried by the voltage. `None` where the roofline names no clock.
    #[must_use]
    pub fn at(&self, roofline: &Roofline) -> Option<PowerCosts> {
        self.file.at(roofline, PowerSource::Prior)
    }
}

impl PowerFile {
    /// The operating point of the file closest to that of `roofline`, and the clock of the latter; `None` where it names
    /// none.
    fn nearest(&self, roofline: &Roofline) -> Option<(&ModeFile, f64)> {
        let clock = roofline.clock.filter(|clock| clock.is_positive())?.get();
        let modes = self.modes.iter();
        let nearest =
            modes.min_by(|a, b| a.distance(roofline, clock).total_cmp(&b.distance(roofline, clock)))?;
        Some((nearest, clock))
    }

    /// [`PowerTable::at`] of a file that was checked; `source` = whose measurements it holds.
    #[must_use]
    pub fn at(&self, roofline: &Roofline, source: PowerSource) -> Option<PowerCosts> {
        let (nearest, clock) = self.nearest(roofline)?;
        let mut costs = PowerCosts {
            rails: self.rails,
            source,
            coefficients: nearest.coefficients(),
            flop_precision: self.flop_precision,
            half_width_ratio: nearest.half_width_ratio.unwrap_or(self.half_width_ratio),
            cap: self.cap_w.map(Watts),
            cap_of: CARD_LIMIT.to_owned(),
            carried: nearest.distance(roofline, clock) > SAME_POINT,
            warnings: Vec::new(),
        };
        if costs.carried {
            self.carry(&mut costs, nearest, roofline, clock);
        }
        Some(costs)
    }

    fn carry(&self, costs: &mut PowerCosts, nearest: &ModeFile, roofline: &Roofline, clock: f64) {
        // Busy cores draw by the cycle, and all that are online do.
        let cycles = clock * f64::from(roofline.workers.max(1))
            / (nearest.gpu_clock_hz * f64::from(nearest.sm_online.max(1)));
        costs.coefficients.busy_w = costs.coefficients.busy_w.map(|busy| busy * cycles);
        let clocks = || self.modes.iter().map(|mode| mode.gpu_clock_hz);
        let lowest = clocks().fold(f64::INFINITY, f64::min);
        let below = clock < lowest * (1.0 - SAME_POINT);
        let name = if nearest.name.is_empty() { "another clock" } else { nearest.name.as_str() };
        let (extra, text) = if below {
            (
                self.below_half_width_ratio.unwrap_or(BELOW_GUESS).max(CARRIED_GUESS),
                format!(
                    "power was never measured below {:.0} MHz here: what is said of {:.0} MHz is that of {name} and may be far off",
                    lowest / 1e6,
                    clock / 1e6
                ),
            )
        } else {
            if let Some(slope) = self.voltage_per_ghz {
                let highest = clocks().fold(0.0, f64::max);
                let squared = voltage_scale(slope, highest, nearest.gpu_clock_hz, clock);
                costs.coefficients.scale_dynamic(squared);
                costs.coefficients.busy_w = costs.coefficients.busy_w.map(|busy| busy * squared);
            }
            (
                self.carried_half_width_ratio.unwrap_or(CARRIED_GUESS),
                format!("power was not measured at this operating point: it is carried from {name}"),
            )
        };
        costs.half_width_ratio = costs.half_width_ratio.hypot(extra);
        costs.warnings.push(text);
    }
}

/// Square of the ratio of the voltages at two clocks; `highest` is the clock where V = 1.
#[must_use]
pub fn voltage_scale(slope_per_ghz: f64, highest_hz: f64, from_hz: f64, to_hz: f64) -> f64 {
    const LEAST: f64 = 0.3;
    let voltage = |clock: f64| (1.0 + slope_per_ghz * (clock - highest_hz) / 1e9).max(LEAST);
    (voltage(to_hz) / voltage(from_hz)).powi(2)
}

macro_rules! built_in {
    ($($key:literal,)*) => {
        /// Name and text of every file of `config/power`.
        pub const FILES: &[(&str, &str)] =
            &[$(($key, include_str!(concat!("../../../../config/power/", $key, ".toml"))),)*];
    };
}

built_in! {
    "a100-40gb",
    "a40",
    "gb10",
    "h200",
    "jetson-agx-orin-64gb",
    "jetson-orin-nano-8gb-super",
}

static TABLES: LazyLock<BTreeMap<String, PowerTable>> = LazyLock::new(|| {
    // A test parses every file, so none is left out here.
    let parsed = FILES.iter().filter_map(|(_, text)| PowerTable::parse(text).ok());
    parsed.map(|table| (table.file.hardware.clone(), table)).collect()
});

/// What is known of the power of a machine of the registry of hardware.
#[must_use]
pub fn table(hardware: &str) -> Option<&'static PowerTable> {
    TABLES.get(hardware)
}

/// All that is built in, by key.
pub(super) fn tables() -> impl Iterator<Item = &'static PowerTable> {
    TABLES.values()
}
