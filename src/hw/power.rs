//! Power rails: the INA3221 of Jetsons, hwmon power sensors and energy counters, and RAPL behind powercap.

use super::discover::{Counter, RailSource, ask};
use super::file::ReadError;
use super::{SysRoot, ina3221, patience::Answer};
use crate::board::{MeterRead, Rail, Reading, parse};
use crate::units::{Joules, Seconds, Watts};

pub(super) const HWMON: &str = "/sys/class/hwmon";
pub(super) const POWERCAP: &str = "/sys/class/powercap";

/// A mean power beyond this is a counter that was reset, not power.
const IMPLAUSIBLE: Watts = Watts(20_000.0);
/// Running average power limit counters are renewed about every millisecond (Intel SDM volume 3, 16.10.1).
const RAPL_UPDATE_MS: u64 = 1;

/// Every file that tells power, Jetson's rails first, then hwmon.
pub(super) fn rails(root: &SysRoot) -> Vec<RailSource> {
    let mut rails = ina3221::rails(root);
    rails.extend(hwmon(root));
    rails.extend(powercap(root));
    rails
}

fn hwmon(root: &SysRoot) -> Vec<RailSource> {
    let mut found = Vec::new();
    for (_, device) in root.numbered(HWMON, "hwmon") {
        let dir = format!("{HWMON}/{device}");
        let files = root.names(&dir);
        for (prefix, counter) in
            [("power", Counter::Power), ("energy", Counter::Energy { wraps_after: None })]
        {
            for sensor in sensors(&files, prefix) {
                // Some power meters only tell an average.
                let file = ["input", "average"].map(|kind| format!("{sensor}_{kind}"));
                let Some(file) = file.into_iter().find(|file| files.contains(file)) else { continue };
                found.push((dir.clone(), sensor, file, counter));
            }
        }
    }
    // A label of the sensor, else of the device, which is all that an INA238 has.
    // A meter that averages says over how long; of the others the device tells how often it converts.
    let labels = found.iter().flat_map(|(dir, sensor, ..)| {
        let average = format!("{dir}/{sensor}_average_interval");
        let update = format!("{dir}/update_interval");
        [format!("{dir}/{sensor}_label"), format!("{dir}/label"), format!("{dir}/name"), average, update]
    });
    let mut labels = ask(root, labels).into_iter().map(|text| parse::label(&text?));
    let rails = found.into_iter().map(|(dir, sensor, file, counter)| {
        let label = labels.next().flatten();
        let (of_device, device) = (labels.next().flatten(), labels.next().flatten());
        let (average, update) = (labels.next().flatten(), labels.next().flatten());
        let update_ms = [average, update].into_iter().flatten().find_map(|text| text.trim().parse().ok());
        let name = label.or(of_device).unwrap_or_else(|| match &device {
            Some(device) => format!("{device} {sensor}"),
            None => sensor.clone(),
        });
        let device = device.unwrap_or_default();
        RailSource { name, device, path: format!("{dir}/{file}"), current: None, counter, update_ms }
    });
    rails.filter(is_rail).collect()
}

/// GB10's power controller tells each channel as power and as energy, and beside the channels its limiters' own view.
fn is_rail(source: &RailSource) -> bool {
    let limiter = ["pl1", "pl2", "syspl1", "syspl2"].contains(&source.name.as_str());
    source.device != "spbm" || (source.counter == Counter::Power && !limiter)
}

/// `power1`, `power2`, … among the files of a device, in numerical order.
fn sensors(files: &[String], prefix: &str) -> Vec<String> {
    let mut numbers: Vec<u32> = files
        .iter()
        .filter_map(|file| {
            let sensor = file.strip_prefix(prefix)?;
            sensor.strip_suffix("_input").or_else(|| sensor.strip_suffix("_average"))?.parse().ok()
        })
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(|number| format!("{prefix}{number}")).collect()
}

fn powercap(root: &SysRoot) -> Vec<RailSource> {
    // The class directory is flat: `intel-rapl:0` is a package and `intel-rapl:0:1` a part of it.
    let zones: Vec<String> = root
        .names(POWERCAP)
        .into_iter()
        .filter(|zone| zone.contains(':') && root.path(&format!("{POWERCAP}/{zone}/energy_uj")).exists())
        .collect();
    let files = zones
        .iter()
        .flat_map(|zone| ["name", "max_energy_range_uj"].map(|file| format!("{POWERCAP}/{zone}/{file}")));
    let mut texts = ask(root, files).into_iter();
    let mut known: Vec<(String, Option<String>, Option<u64>)> = Vec::new();
    for zone in zones {
        let name = texts.next().flatten().and_then(|text| parse::label(&text));
        let range = texts.next().flatten().and_then(|text| parse::unsigned(&text)).filter(|range| *range > 0);
        known.push((zone, name, range));
    }
    let name_of =
        |wanted: &str| known.iter().find(|(zone, ..)| zone == wanted).and_then(|(_, name, _)| name.clone());
    let rails = known.iter().map(|(zone, name, range)| {
        let own = name.clone().unwrap_or_else(|| zone.clone());
        let parent = zone.rsplit_once(':').and_then(|(parent, _)| name_of(parent));
        RailSource {
            name: parent.map_or_else(|| own.clone(), |parent| format!("{parent}/{own}")),
            device: String::new(),
            path: format!("{POWERCAP}/{zone}/energy_uj"),
            current: None,
            counter: Counter::Energy { wraps_after: *range },
            update_ms: Some(RAPL_UPDATE_MS),
        }
    });
    rails.collect()
}

/// The last value of an energy counter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    microjoules: u64,
    at: Seconds,
}

/// Turns an answer into a rail. `current` is the answer of its other file, where it has one; `at` is when it was
/// read, `last` the counter's last value, which is replaced.
pub(super) fn rail(
    source: &RailSource,
    answer: Answer,
    current: Option<Answer>,
    at: impl Fn(std::time::Instant) -> Seconds,
    last: &mut Option<Count>,
) -> Rail {
    let name = source.name.clone();
    let (text, read_at) = match answer {
        Ok(answer) => answer,
        Err(error) => return Rail { name, power: refused(error), energy: None, read: None },
    };
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    let period = source.update_ms.map(|ms| Seconds(ms as f64 / 1e3));
    let read = MeterRead { at: at(read_at), since: None, period };
    let plain = |name, power: Reading<Watts>| {
        let read = power.known().map(|_| read);
        Rail { name, power, energy: None, read }
    };
    match source.counter {
        Counter::Power => {
            plain(name, super::parsed(&source.path, Ok(text), "a power in µW", parse::microwatts))
        }
        Counter::Milliwatts => {
            plain(name, super::parsed(&source.path, Ok(text), "a power in mW", milliwatts))
        }
        Counter::MilliwattsByProduct => plain(name, product(source, text, current)),
        Counter::Energy { wraps_after } => {
            match super::parsed(&source.path, Ok(text), "an energy in µJ", parse::unsigned) {
                Reading::Known(microjoules) => {
                    let now = Count { microjoules, at: read.at };
                    let before = last.replace(now);
                    let power = mean_power(&source.path, before, now, wraps_after);
                    let since = before.map(|before| before.at);
                    let read = power.known().map(|_| MeterRead { since, ..read });
                    Rail { name, power, energy: Some(Joules(microjoules as f64 / 1e6)), read }
                }
                other => plain(name, other.map(|_| Watts::ZERO)),
            }
        }
    }
}

/// More than any rail of a board carries, in mV, mA and mW alike.
const LARGEST_MILLI: u64 = 1_000_000;

fn milli(text: &str) -> Option<f64> {
    parse::unsigned(text).filter(|value| *value <= LARGEST_MILLI).map(|value| value as f64 / 1e3)
}

fn milliwatts(text: &str) -> Option<Watts> {
    milli(text).map(Watts)
}

/// Voltage times current. Assumes nothing of either: a rail may be measured at the input of its converter.
fn product(source: &RailSource, volts: String, current: Option<Answer>) -> Reading<Watts> {
    let volts = match super::parsed(&source.path, Ok(volts), "a voltage in mV", milli) {
        Reading::Known(volts) => volts,
        other => return other.map(Watts),
    };
    let (Some(path), Some(answer)) = (&source.current, current) else {
        return Reading::failed(format!("{} is a voltage without a current", source.path));
    };
    super::parsed(path, answer.map(|(text, _)| text), "a current in mA", milli)
        .map(|amperes| Watts(volts * amperes))
}

/// Energy counters are for root only since they were found to leak what a neighbour computes.
fn refused<T>(error: ReadError) -> Reading<T> {
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
