//! What a family of machines draws, as a file: energies at one reference point, and how they follow clocks, cores and memory.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Coefficients, PowerCosts, PowerSource, Rails};
use rooflined_core::ceilings::Roofline;
use rooflined_core::precision::Precision;
use rooflined_core::units::Watts;

/// Whose errors an interval was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorsOf {
    /// Predictions on this very hardware.
    Hardware,
    /// Predictions on every hardware.
    All,
}

/// Clocks and units that are in force.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Clock of the workers.
    pub clock_hz: f64,
    pub workers: u32,
    /// Nominal memory bandwidth, which goes with the memory clock.
    pub memory_bytes_per_s: f64,
}

impl Place {
    /// Where `roofline` holds; `None` where it names no clock.
    #[must_use]
    pub fn of(roofline: &Roofline) -> Option<Self> {
        let clock = roofline.clock.filter(|clock| clock.is_positive())?;
        let memory = roofline.memory_limit.unwrap_or(roofline.bandwidth).value;
        Some(Self {
            clock_hz: clock.get(),
            workers: roofline.workers.max(1),
            memory_bytes_per_s: memory.get(),
        })
    }

    /// How far another place is, in natural logarithms.
    fn distance(&self, other: &Self) -> f64 {
        let apart = |a: f64, b: f64| (a / b).ln().abs();
        apart(self.clock_hz, other.clock_hz)
            + apart(self.memory_bytes_per_s, other.memory_bytes_per_s)
            + apart(f64::from(self.workers), f64::from(other.workers))
    }
}

/// Parts of the idle power that stay, that go with the memory clock, and that go with the cores that have power and with
/// their voltage. From what idle boards draw: an AGX Orin 11.2 W in MAXN and 8.8 W in 30W
/// (github.com/jbecirovski/jetson-llm-maxperf), an Orin Nano 6.6 W (github.com/hokwangchoi/jetson-orin-nano-benchmarks). These
/// parts meet the three within 17 %, and leave the least error for decodes of boards that were left out.
const IDLE_PARTS: [f64; 3] = [0.3, 0.4, 0.3];

/// Where energies hold as they stand, and how the voltage follows the clock: flat up to a knee, then linear.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Highest clock of the silicon; the voltage is 1 there.
    pub clock_hz: f64,
    pub workers: u32,
    pub memory_bytes_per_s: f64,
    /// Of the board: multiprocessors and sixteenths of its memory's bits.
    pub size: f64,
    /// The voltage falls by this part of the part by which the clock does.
    pub voltage_slope: f64,
    /// It never falls below this.
    pub voltage_floor: f64,
}

/// What changes from the reference to another place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors {
    /// Of the power at idle.
    pub idle: f64,
    /// Of what busy cores draw: their number, clock and voltage squared.
    pub cycles: f64,
    /// The voltage squared.
    pub switching: f64,
}

impl Reference {
    /// At a place of a board of `size` whose silicon ends at `top_clock_hz`.
    #[must_use]
    pub fn factors(&self, place: &Place, size: f64, top_clock_hz: f64) -> Factors {
        let below_top = 1.0 - place.clock_hz / top_clock_hz;
        let voltage = (1.0 - self.voltage_slope * below_top).max(self.voltage_floor);
        let switching = voltage * voltage;
        let cores = f64::from(place.workers) / f64::from(self.workers);
        let memory = place.memory_bytes_per_s / self.memory_bytes_per_s;
        let [fixed, clocked, gated] = IDLE_PARTS;
        Factors {
            idle: fixed * (size / self.size) + clocked * memory + gated * cores * switching,
            cycles: cores * (place.clock_hz / self.clock_hz) * switching,
            switching,
        }
    }

    /// The same on a board of the reference's own size and silicon.
    #[must_use]
    pub fn own_factors(&self, place: &Place) -> Factors {
        self.factors(place, self.size, self.clock_hz)
    }
}

/// Non-negative coefficients at the reference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Energies {
    /// With nothing running.
    pub idle_w: f64,
    /// What cores draw in addition while a kernel runs, whatever it does.
    pub active_w: f64,
    /// Of a byte to or from memory, which knows nothing of the cores' voltage.
    pub byte_j: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flop_j: Option<f64>,
    pub weight_j: f64,
    /// Most that operations and weights drew in the busiest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_w: Option<f64>,
}

impl Energies {
    #[must_use]
    pub fn at(&self, factors: &Factors) -> Coefficients {
        let idle_w = self.idle_w * factors.idle;
        Coefficients {
            idle_w,
            static_w: idle_w + self.active_w * factors.cycles,
            byte_j: self.byte_j,
            flop_j: self.flop_j.map(|flop| flop * factors.switching),
            weight_j: self.weight_j * factors.switching,
            busy_w: self.busy_w.map(|busy| busy * factors.cycles),
        }
    }
}

/// A file of `config/power`, and what a calibration stores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerFile {
    /// The largest board that was measured: its key in the registry of hardware.
    pub hardware: String,
    /// Every board whose rows went in.
    pub boards: Vec<String>,
    /// What the meter covered.
    pub rails: Rails,
    /// Rows that went in.
    pub rows: u32,
    /// Relative half-width that held 90 % of the errors of what was left out of the fit.
    pub half_width_ratio: f64,
    /// How many errors it was taken from.
    pub errors: u32,
    pub errors_of: ErrorsOf,
    /// What the work was computed in.
    pub flop_precision: Precision,
    /// The limit that this meter enforces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_w: Option<f64>,
    pub energies: Energies,
    pub reference: Reference,
    /// Where it was measured, by clock.
    pub points: Vec<Place>,
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

/// Points that are closer than this are the same: clocks are rounded to the steps of a table.
const SAME_POINT: f64 = 0.015;
/// What a highest reading or a point that was not measured may be off by where nothing tells. A guess.
pub const CARRIED_GUESS: f64 = 0.3;
/// Half-width that a place gains for each factor of e to the nearest place that was measured. Both are guesses: where several
/// clocks were measured, the boards of one family meet each other within 12 % at clocks 3 times apart; where only one was,
/// the curve is that of other boards.
const FARTHER: f64 = 0.25;
const FARTHER_THAN_ONE: f64 = 0.5;
/// Whose limit that of a file is.
const CARD_LIMIT: &str = "the card's power limit";

impl PowerFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// A file of another shape; the field is named.
    pub fn parse(text: &str) -> Result<Self, InvalidPower> {
        let file: Self = toml::from_str(text).map_err(|error| InvalidPower::Shape(error.to_string()))?;
        file.check()?;
        Ok(file)
    }

    /// # Errors
    /// A number that cannot be.
    pub fn check(&self) -> Result<(), InvalidPower> {
        let wrong = |field, value: f64, must| {
            let value = value.to_string();
            Err(InvalidPower::Value { hardware: self.hardware.clone(), field, value, must })
        };
        let least = |field, value: f64| {
            if value.is_finite() && value >= 0.0 { Ok(()) } else { wrong(field, value, "no less than 0") }
        };
        let positive = |field, value: f64| {
            if value.is_finite() && value > 0.0 { Ok(()) } else { wrong(field, value, "above 0") }
        };
        let (of, at) = (&self.energies, &self.reference);
        least("half_width_ratio", self.half_width_ratio)?;
        positive("cap_w", self.cap_w.unwrap_or(1.0))?;
        for (field, value) in [("idle_w", of.idle_w), ("active_w", of.active_w), ("byte_j", of.byte_j)] {
            least(field, value)?;
        }
        least("flop_j", of.flop_j.unwrap_or(0.0))?;
        least("weight_j", of.weight_j)?;
        positive("busy_w", of.busy_w.unwrap_or(1.0))?;
        positive("clock_hz", at.clock_hz)?;
        positive("workers", f64::from(at.workers))?;
        positive("memory_bytes_per_s", at.memory_bytes_per_s)?;
        positive("size", at.size)?;
        least("voltage_slope", at.voltage_slope)?;
        positive("voltage_floor", at.voltage_floor)?;
        if self.points.is_empty() {
            wrong("points", 0.0, "one or more")?;
        }
        for place in &self.points {
            positive("clock_hz", place.clock_hz)?;
            positive("workers", f64::from(place.workers))?;
            positive("memory_bytes_per_s", place.memory_bytes_per_s)?;
        }
        if self.cap_w.is_some_and(|cap| of.idle_w + of.active_w >= cap) {
            wrong("idle_w", of.idle_w, "below cap_w with active_w")?;
        }
        Ok(())
    }

    /// The costs of a board of the reference's own size and silicon where `roofline` holds; `None` where that names no
    /// clock. `source` = whose measurements the file holds.
    #[must_use]
    pub fn at(&self, roofline: &Roofline, source: PowerSource) -> Option<PowerCosts> {
        let place = Place::of(roofline)?;
        Some(self.costs(&place, self.energies.at(&self.reference.own_factors(&place)), source))
    }

    /// Costs with these coefficients, and how far `place` is from those that were measured.
    pub(super) fn costs(&self, place: &Place, coefficients: Coefficients, source: PowerSource) -> PowerCosts {
        let distance = self.points.iter().map(|point| point.distance(place)).fold(f64::INFINITY, f64::min);
        let carried = distance > SAME_POINT;
        let clocks = || self.points.iter().map(|point| point.clock_hz);
        let lowest = clocks().fold(f64::INFINITY, f64::min);
        let one_clock = clocks().all(|clock| clock <= lowest * (1.0 + SAME_POINT));
        let farther = if one_clock { FARTHER_THAN_ONE } else { FARTHER } * distance;
        let mhz = |clock: f64| clock / 1e6;
        let note = match (carried, one_clock) {
            (false, _) => None,
            (true, true) => Some(format!(
                "{} measured at {:.0} MHz only: the estimate for {:.0} MHz uses the voltage curve of other boards",
                if source == PowerSource::Prior {
                    "the power of boards like this one was"
                } else {
                    "power was"
                },
                mhz(lowest),
                mhz(place.clock_hz)
            )),
            (true, false) => Some(format!(
                "power at {:.0} MHz with {} cores was not measured: it is interpolated from {} other points",
                mhz(place.clock_hz),
                place.workers,
                self.points.len()
            )),
        };
        PowerCosts {
            rails: self.rails,
            source,
            coefficients,
            flop_precision: self.flop_precision,
            half_width_ratio: self.half_width_ratio.hypot(farther),
            cap: self.cap_w.map(Watts),
            cap_of: CARD_LIMIT.to_owned(),
            carried,
            warnings: note.into_iter().collect(),
        }
    }
}

macro_rules! built_in {
    ($($key:literal,)*) => {
        /// Name and text of every file of `config/power`.
        pub const FILES: &[(&str, &str)] =
            &[$(($key, include_str!(concat!("../../config/power/", $key, ".toml"))),)*];
    };
}

built_in! {
    "a100-40gb",
    "a40",
    "gb10",
    "h200",
    "jetson-agx-orin-64gb",
    "l40",
    "rtx-3090",
}

static TABLES: LazyLock<BTreeMap<String, PowerFile>> = LazyLock::new(|| {
    // A test parses every file, so none is left out here.
    let parsed = FILES.iter().filter_map(|(_, text)| PowerFile::parse(text).ok());
    parsed.map(|file| (file.hardware.clone(), file)).collect()
});

/// All that is built in, by key.
pub(super) fn tables() -> impl Iterator<Item = &'static PowerFile> {
    TABLES.values()
}
