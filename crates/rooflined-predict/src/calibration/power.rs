//! Power of known loads: what is held, and which readings of a meter belong to it.
//!
//! The probe holds one load at a time, idle first, and stamps begin and end with CLOCK_BOOTTIME; readings of the meter
//! carry the same clock. A reading belongs to a load if the whole time that it stands for, since the counter was read
//! before or as long as the meter averages, lies inside, after the load has settled. Too few of them give no watts, and
//! the reason: never 0.

use serde::{Deserialize, Serialize};

use super::sample::Kernel;
use rooflined_core::keyed;
use rooflined_core::precision::Precision;
use rooflined_core::units::{Celsius, Seconds, Watts};

/// Between two readings while loads are held.
pub const METERING_PERIOD: Seconds = Seconds(0.05);
/// Clocks and regulators follow a load within this.
const SETTLES: Seconds = Seconds(0.2);
/// How long a meter takes to a new value where nothing tells. A guess: sensors of boards convert within it.
const USUAL_PERIOD: Seconds = Seconds(0.1);
/// A point rests on at least this many readings.
const LEAST_READINGS: usize = 4;
/// Between two readings of one load; longer, and something else happened: the machine was suspended, or could not read.
const LONGEST_GAP: Seconds = Seconds(0.5);
/// Longest hold; a meter that wants more cannot be used.
const LONGEST_HOLD: f64 = 4.0;

keyed! {
    /// What a load is there for.
    LoadKind {
        /// Nothing, before anything has run.
        Idle = "idle",
        /// Reading main memory.
        Bandwidth = "bandwidth",
        Compute = "compute",
        /// Weights of one format through a matrix-vector product, from main memory.
        Decode = "decode",
    }
}

impl LoadKind {
    /// What a kernel is held for; `None` of a kernel is the idle machine.
    #[must_use]
    pub const fn of(kernel: Option<&Kernel>) -> Self {
        match kernel {
            None => Self::Idle,
            Some(Kernel::Stream { .. }) => Self::Bandwidth,
            Some(Kernel::Gemv { .. }) => Self::Decode,
            Some(_) => Self::Compute,
        }
    }
}

/// Power of one load, as a record keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PowerPoint {
    /// What the load was there for.
    pub load: LoadKind,
    /// What ran; `None` = nothing.
    pub kernel: Option<Kernel>,
    /// Mean power; `None` with the reason.
    pub power_w: Option<Watts>,
    /// Why it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time that the readings stand for.
    pub duration_s: Seconds,
    pub readings: u32,
    /// Bytes a second to and from main memory.
    pub bytes_per_s: f64,
    /// Operations a second.
    pub flops_per_s: f64,
    /// What they were computed in.
    pub precision: Option<Precision>,
    /// Weights a second.
    pub weights_per_s: f64,
    /// What the meter covers: `module`, `system`, `gpu` or `package`.
    pub scope: String,
    /// Rails that were added.
    pub rails: Vec<String>,
    /// Hottest thermal zone at the end.
    pub temperature_c: Option<Celsius>,
}

/// One reading of a meter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerReading {
    pub power: Watts,
    /// CLOCK_BOOTTIME of it.
    pub at: Seconds,
    /// When the counter was read before; `None` of a meter that tells power itself.
    pub since: Option<Seconds>,
    /// How long the meter takes to a new value, or averages over.
    pub period: Option<Seconds>,
}

impl PowerReading {
    /// Where the time begins that it stands for.
    fn from(&self) -> Seconds {
        self.since.unwrap_or_else(|| self.at - self.period.unwrap_or(USUAL_PERIOD))
    }
}

/// Mean power of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metered {
    /// Energy of the counter over time, or the mean of the readings.
    pub power: Watts,
    /// Time that the readings stand for.
    pub duration: Seconds,
    pub readings: u32,
}

/// The power from `began` to `ended`.
///
/// # Errors
/// Why the readings do not tell, as a sentence.
pub fn attribute(readings: &[PowerReading], began: Seconds, ended: Seconds) -> Result<Metered, String> {
    let lasted = ended - began;
    let period = readings.iter().filter_map(|reading| reading.period).reduce(Seconds::max);
    let least = SETTLES + period.unwrap_or(USUAL_PERIOD);
    if lasted.get().is_nan() || lasted <= least {
        return Err(format!(
            "it lasted {lasted}, and a load that settles in {SETTLES} under a meter with a new value every {} needs more than {least}",
            period.unwrap_or(USUAL_PERIOD)
        ));
    }
    let near: Vec<_> =
        readings.iter().filter(|reading| reading.at >= began && reading.from() <= ended).collect();
    if near.windows(2).any(|pair| pair[1].at <= pair[0].at) {
        return Err("the clock of the readings went back meanwhile".to_owned());
    }
    let settled = began + SETTLES;
    let inside: Vec<_> = readings
        .iter()
        .filter(|reading| reading.from() >= settled && reading.at <= ended && reading.power.get().is_finite())
        .collect();
    let ([first, .., last], true) = (inside.as_slice(), inside.len() >= LEAST_READINGS) else {
        return Err(format!(
            "{} readings of the meter lie inside the {lasted} after it had settled, {LEAST_READINGS} are wanted",
            inside.len()
        ));
    };
    let gap = inside.windows(2).map(|pair| pair[1].at - pair[0].at).fold(Seconds::ZERO, Seconds::max);
    if gap > LONGEST_GAP.max(period.unwrap_or(Seconds::ZERO)) {
        return Err(format!("the meter was not read for {gap}: the machine was suspended or too busy"));
    }
    let power = if inside.iter().all(|reading| reading.since.is_some()) {
        let time: f64 = inside.iter().map(|reading| (reading.at - reading.from()).get()).sum();
        let energy: f64 =
            inside.iter().map(|reading| reading.power.get() * (reading.at - reading.from()).get()).sum();
        energy / time
    } else {
        #[expect(clippy::cast_precision_loss, reason = "a count of readings")]
        let count = inside.len() as f64;
        inside.iter().map(|reading| reading.power.get()).sum::<f64>() / count
    };
    if !(power.is_finite() && power > 0.0) {
        return Err(format!("the meter says {power} W, which is implausible for a running machine"));
    }
    Ok(Metered {
        power: Watts(power),
        duration: last.at - first.from(),
        readings: u32::try_from(inside.len()).unwrap_or(u32::MAX),
    })
}

/// Seconds that a meter with a new value every `period` needs to see a load.
pub(super) fn hold_s(period: Option<Seconds>) -> f64 {
    let period = period.unwrap_or(USUAL_PERIOD).max(Seconds::ZERO).get();
    let readings = (8.0 * METERING_PERIOD.get()).max(period);
    (SETTLES.get() + period + readings).min(LONGEST_HOLD)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings of a sensor every 50 ms from `from` to `to`.
    fn sensor(from: f64, to: f64, watts: impl Fn(f64) -> f64) -> Vec<PowerReading> {
        let period = Some(Seconds(0.02));
        let mut at = from;
        let mut readings = Vec::new();
        while at <= to {
            readings.push(PowerReading { power: Watts(watts(at)), at: Seconds(at), since: None, period });
            at += 0.05;
        }
        readings
    }

    /// The same of an energy counter: each the mean since the one before.
    fn counter(readings: &[PowerReading]) -> Vec<PowerReading> {
        let since = |pair: &[PowerReading]| PowerReading {
            since: Some(pair[0].at),
            period: Some(Seconds(0.001)),
            ..pair[1]
        };
        readings.windows(2).map(since).collect()
    }

    fn of(readings: &[PowerReading]) -> Result<Metered, String> {
        attribute(readings, Seconds(10.0), Seconds(11.0))
    }

    #[test]
    fn readings_before_and_after_a_load_and_while_it_settles_do_not_count() {
        let watts = |at: f64| if (10.15..11.0).contains(&at) { 20.0 } else { 5.0 };
        let found = of(&sensor(9.0, 12.0, watts)).unwrap();
        assert!((found.power.get() - 20.0).abs() < 1e-9, "{found:?}");
        assert!((12..=16).contains(&found.readings), "{found:?}");
        assert!(found.duration.get() < 0.81, "{found:?}");
    }

    #[test]
    fn a_mean_that_reaches_back_before_the_load_settled_does_not_count() {
        let slow: Vec<_> = sensor(9.0, 12.0, |at| if at < 10.7 { 5.0 } else { 20.0 })
            .into_iter()
            .map(|reading| PowerReading { period: Some(Seconds(0.5)), ..reading })
            .collect();
        assert!((of(&slow).unwrap().power.get() - 20.0).abs() < 1e-9);
        let counted = counter(&sensor(9.0, 12.0, |at| if at < 10.21 { 5.0 } else { 20.0 }));
        assert!((of(&counted).unwrap().power.get() - 20.0).abs() < 1e-9);
    }

    #[test]
    fn a_counter_gives_the_energy_over_the_time_however_late_its_readings_are() {
        // 10 W for 100 ms and 30 W for 300 ms are 25 W, whatever the mean of two readings is.
        let at = [10.2, 10.3, 10.6, 10.7, 11.0];
        let watts = [10.0, 30.0, 10.0, 30.0];
        let readings: Vec<_> = at
            .windows(2)
            .zip(watts)
            .map(|(pair, watts)| PowerReading {
                power: Watts(watts),
                at: Seconds(pair[1]),
                since: Some(Seconds(pair[0])),
                period: Some(Seconds(0.001)),
            })
            .collect();
        let found = of(&readings).unwrap();
        assert!((found.power.get() - 25.0).abs() < 1e-9, "{found:?}");
        assert!((found.duration.get() - 0.8).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_load_too_short_for_its_meter_has_no_power_and_says_why() {
        let readings = sensor(9.0, 12.0, |_| 20.0);
        let short = attribute(&readings, Seconds(10.0), Seconds(10.15)).unwrap_err();
        assert!(short.contains("needs more"), "{short}");
        let slow: Vec<_> =
            readings.iter().map(|r| PowerReading { period: Some(Seconds(1.0)), ..*r }).collect();
        let slower = of(&slow).unwrap_err();
        assert!(slower.contains("every 1"), "{slower}");
        let few = of(&readings[..28]).unwrap_err();
        assert!(few.contains("3 readings") || few.contains("2 readings"), "{few}");
        assert!(of(&[]).unwrap_err().contains("0 readings"));
    }

    #[test]
    fn a_clock_that_jumps_spoils_the_load_that_it_jumps_in() {
        let mut back = sensor(9.0, 12.0, |_| 20.0);
        back[30].at = back[28].at;
        assert!(of(&back).unwrap_err().contains("went back"));
        let mut suspended = sensor(9.0, 12.0, |_| 20.0);
        suspended.retain(|reading| !(10.4..10.95).contains(&reading.at.get()));
        suspended.extend([10.96, 10.97, 10.98].map(|at| PowerReading { at: Seconds(at), ..suspended[0] }));
        suspended.sort_by(|a, b| a.at.get().total_cmp(&b.at.get()));
        assert!(of(&suspended).unwrap_err().contains("not read for"));
    }

    #[test]
    fn a_meter_that_shows_nothing_is_no_power_of_zero() {
        assert!(of(&sensor(9.0, 12.0, |_| 0.0)).unwrap_err().contains("0 W"));
        assert!(of(&sensor(9.0, 12.0, |_| f64::NAN)).is_err());
        assert!(attribute(&sensor(9.0, 12.0, |_| 1.0), Seconds(11.0), Seconds(10.0)).is_err());
        assert!(attribute(&sensor(9.0, 12.0, |_| 1.0), Seconds(f64::NAN), Seconds(10.0)).is_err());
    }
}
