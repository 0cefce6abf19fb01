//! A power rail: what its file counts, and the power that follows from it.
//!
//! Sensors measure with a sign. Near zero their offset shows through it, and a rail may feed back what it has stored. Power
//! keeps the sign: cut off at zero, offsets would no longer cancel in a sum of rails.

use super::answers::Answers;
use super::file::ReadError;
use rooflined_core::board::{MeterRead, Rail, Reading, parse};
use rooflined_core::units::{Joules, Seconds, Watts};

/// Beyond this it is no power of a machine: a mean power is that of a counter that was reset.
const IMPLAUSIBLE: Watts = Watts(20_000.0);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Meter {
    pub name: String,
    /// Name of the sensor's driver; empty where there is none.
    pub device: String,
    /// What tells it from others of its name: the address of its sensor and its number there.
    pub place: String,
    pub path: String,
    /// The file of the current, where the first is that of a voltage.
    pub current: Option<String>,
    /// Files of a voltage and a current whose product a power has to be about.
    pub check: Option<[String; 2]>,
    pub counter: Counter,
    /// Milliseconds to a new value, or that it averages over; `None` where the driver does not tell.
    pub update_ms: Option<u64>,
    /// The last value, of a meter that counts energy.
    pub last: Option<Count>,
}

/// What the file of a rail counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counter {
    /// Power in µW.
    Power,
    /// Power in mW.
    Milliwatts,
    /// Voltage in mV; a second file has the current in mA.
    MilliwattsByProduct,
    /// Energy in µJ since some time ago.
    Energy {
        /// Value after which it starts again at zero; `None` where the driver does not tell.
        wraps_after: Option<u64>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Count {
    microjoules: u64,
    at: Seconds,
}

/// A rail, with what tells which machine's it is.
pub(super) struct Metered {
    pub device: String,
    pub place: String,
    pub rail: Rail,
}

impl Meter {
    pub fn read(&mut self, answers: &Answers<'_>) -> Rail {
        let name = self.name.clone();
        if let Err(error) = answers.text(&self.path) {
            return Rail { name, power: refused(error), energy: None, read: None };
        }
        #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
        let period = self.update_ms.map(|ms| Seconds(ms as f64 / 1e3));
        let read = MeterRead { at: answers.read_at(&self.path), since: None, period };
        let plain = |name, power: Reading<Watts>| {
            let power = plausible(&self.path, power);
            let read = power.known().map(|_| read);
            Rail { name, power, energy: None, read }
        };
        match self.counter {
            Counter::Power => plain(name, self.checked(answers)),
            Counter::Milliwatts => plain(name, answers.value(&self.path, "a power in mW", milliwatts)),
            Counter::MilliwattsByProduct => plain(name, self.product(answers)),
            Counter::Energy { wraps_after } => {
                match answers.value(&self.path, "an energy in µJ", parse::unsigned) {
                    Reading::Known(microjoules) => {
                        let now = Count { microjoules, at: read.at };
                        let before = self.last;
                        // A counter that is renewed less often than it is read gains the energy of several reads at once.
                        if before.is_none_or(|before| before.microjoules != microjoules) {
                            self.last = Some(now);
                        }
                        let power = mean_power(&self.path, before, now, wraps_after);
                        let since = before.map(|before| before.at);
                        let read = power.known().map(|_| MeterRead { since, ..read });
                        Rail { name, power, energy: Some(Joules(microjoules as f64 / 1e6)), read }
                    }
                    other => plain(name, other.map(|_| Watts::ZERO)),
                }
            }
        }
    }

    /// A power, unless voltage and current say that it is in another unit.
    fn checked(&self, answers: &Answers<'_>) -> Reading<Watts> {
        let power = answers.value(&self.path, "a power in µW", parse::microwatts);
        let (Some(watts), Some([volts, amperes])) = (power.known(), &self.check) else { return power };
        let known = |path: &str| answers.value(path, "a number of thousandths", milli).known().copied();
        let (Some(volts_now), Some(amperes_now)) = (known(volts), known(amperes)) else { return power };
        let product = Watts(volts_now * amperes_now);
        let agree = product < LEAST_CHECKED || (0.1..=10.0).contains(&(watts.0 / product.0));
        if agree {
            return power;
        }
        let path = &self.path;
        Reading::failed(format!(
            "{path} reports {watts}, but {volts} and {amperes} give {product}: a wrong unit"
        ))
    }

    /// Voltage times current. Assumes nothing of either: a rail may be measured at the input of its converter.
    fn product(&self, answers: &Answers<'_>) -> Reading<Watts> {
        let volts = match answers.value(&self.path, "a voltage in mV", voltage) {
            Reading::Known(volts) => volts,
            other => return other.map(Watts),
        };
        let Some(current) = &self.current else {
            return Reading::failed(format!("{} is a voltage without a current", self.path));
        };
        // No current at no voltage is not less than nothing.
        answers.value(current, "a current in mA", milli).map(|amperes| Watts(volts * amperes + 0.0))
    }
}

/// Below this the offsets of a voltage and a current are too much of their product.
const LEAST_CHECKED: Watts = Watts(0.5);
/// More than any rail of a board carries, in mV, mA and mW alike.
const LARGEST_MILLI: u64 = 1_000_000;
/// Below zero by more than this no voltage is that of an offset.
const LARGEST_OFFSET: f64 = 0.1;

fn milli(text: &str) -> Option<f64> {
    parse::signed(text).filter(|value| value.unsigned_abs() <= LARGEST_MILLI).map(|value| value as f64 / 1e3)
}

/// Against ground no rail is below zero.
fn voltage(text: &str) -> Option<f64> {
    milli(text).filter(|volts| *volts >= -LARGEST_OFFSET).map(|volts| volts.max(0.0))
}

fn plausible(path: &str, power: Reading<Watts>) -> Reading<Watts> {
    match power {
        Reading::Known(power) if power.0.abs() > IMPLAUSIBLE.0 => {
            Reading::failed(format!("{path} reports {power}, which no rail carries"))
        }
        other => other,
    }
}

fn milliwatts(text: &str) -> Option<Watts> {
    milli(text).map(Watts)
}

/// Energy counters are for root only since they were found to leak what a neighbour computes.
fn refused<T>(error: &ReadError) -> Reading<T> {
    match error {
        ReadError::Denied { path, .. } => Reading::absent(format!(
            "{path}: only root may read it; allow the daemon's group with a udev rule or `chgrp rooflined` and `chmod g+r` on it"
        )),
        other => other.into(),
    }
}

fn mean_power(path: &str, last: Option<Count>, now: Count, wraps_after: Option<u64>) -> Reading<Watts> {
    let Some(last) = last else {
        return Reading::failed(format!("{path} is a counter: its power needs a second sample"));
    };
    let elapsed = now.at - last.at;
    if !elapsed.is_positive() {
        return Reading::failed(format!("{path} was read twice at the same time"));
    }
    let grown = match (now.microjoules.checked_sub(last.microjoules), wraps_after) {
        (Some(0), _) => {
            return Reading::failed(format!("{path} stands still: it has not counted anything in {elapsed}"));
        }
        (Some(grown), _) => grown,
        // It counts up to and including the last value, then starts at zero.
        (None, Some(range)) if last.microjoules <= range => {
            (range - last.microjoules).saturating_add(now.microjoules).saturating_add(1)
        }
        (None, _) => {
            return Reading::failed(format!(
                "{path} went back from {} to {} µJ",
                last.microjoules, now.microjoules
            ));
        }
    };
    // The tick may be late, so divide by the time that passed, not by the period asked for.
    let power = Joules(grown as f64 / 1e6) / elapsed;
    if power > IMPLAUSIBLE {
        return Reading::failed(format!("{path} jumped by {grown} µJ in {elapsed}: the counter was reset"));
    }
    Reading::Known(power)
}
