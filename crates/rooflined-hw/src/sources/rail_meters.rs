//! Volts and amperes of the rails, and the limits that their meters watch.
//!
//! ```text
//! <ina3221>/  inM_label  inM_input (mV)  currM_input (mA, signed)  currM_max  currM_crit  currM_{max,crit}_alarm
//! <ina238>/   label      in1_input       curr1_input
//! ```

use super::{hwmon, ina3221};
use crate::answers::{Answers, EACH_SECOND, File, RARELY, SOMETIMES};
use crate::ask::ask;
use crate::names::distinguish;
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::state::detail;
use rooflined_core::board::details::RailMeter;
use rooflined_core::board::{Reading, parse, parse::details as text};

/// Meters of one channel.
const SINGLE: [&str; 5] = ["ina219", "ina226", "ina237", "ina238", "ina260"];
/// More than any board carries, in mV and mA.
const LARGEST_MILLI: u64 = 1_000_000;

struct Channel {
    name: String,
    /// What tells it from others of its name: the same as of the rail whose power it is.
    place: String,
    dir: String,
    number: u32,
    /// Its power is read from these files at every sample anyhow.
    is_read: bool,
    /// Files of limits and alarms that are there.
    has_max: bool,
    has_crit: bool,
    alarms: Vec<String>,
}

impl Channel {
    fn file(&self, kind: &str, what: &str) -> String {
        format!("{}/{kind}{}_{what}", self.dir, self.number)
    }
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let channels = channels(context);
    for channel in &channels {
        plan.add_origin("rail_meters", &channel.dir);
        for file in [channel.file("in", "input"), channel.file("curr", "input")] {
            let file = File::of_driver(file);
            plan.read([if channel.is_read { file } else { file.every(EACH_SECOND) }]);
        }
        for (what, there) in [("max", channel.has_max), ("crit", channel.has_crit)] {
            plan.read(there.then(|| File::of_driver(channel.file("curr", what)).every(RARELY)));
        }
        plan.read(channel.alarms.iter().map(|path| File::of_driver(path).every(SOMETIMES)));
    }
    found(move |answers, state| {
        let reading = if channels.is_empty() {
            Reading::absent(
                "no meter of volts and amperes: neither an INA3221 nor an INA238 and the like in /sys/class/hwmon",
            )
        } else {
            Reading::Known(channels.iter().map(|channel| channel.read(answers)).collect())
        };
        detail!(state.rail_meters = reading, None);
    })
}

fn channels(context: &DiscoveryContext<'_>) -> Vec<Channel> {
    let mut seen: Vec<String> = Vec::new();
    let mut dirs: Vec<(String, String, u32)> = Vec::new();
    for dir in ina3221::hwmon_dirs(context.root, &context.hwmon) {
        // The same device is reached through its driver and through the class.
        let device = dir.rsplit('/').next().unwrap_or_default().to_owned();
        if !seen.contains(&device) {
            seen.push(device);
            dirs.push((dir, "ina3221".to_owned(), 3));
        }
    }
    let single = context.hwmon.iter().filter(|device| SINGLE.contains(&device.name.as_str()));
    dirs.extend(single.map(|device| (device.dir.clone(), device.name.clone(), 1)));
    let channels: Vec<Channel> = dirs
        .into_iter()
        .flat_map(|(dir, device, count)| {
            (1..=count).filter_map(move |number| channel(context, &dir, &device, number, count))
        })
        .collect();
    let labels = |channel: &Channel| [channel.file("in", "label"), format!("{}/label", channel.dir)];
    let texts = ask(context.root, channels.iter().flat_map(labels));
    let named = channels.into_iter().filter_map(|channel| {
        let label = labels(&channel).iter().find_map(|file| texts.label(file));
        let name = label.unwrap_or_else(|| channel.name.clone());
        (name != "NC").then_some(Channel { name, ..channel })
    });
    let mut channels: Vec<Channel> = named.collect();
    distinguish(&mut channels, |channel| &mut channel.name, |_, channel| channel.place.clone());
    channels
}

/// A channel with a voltage and a current, called as the rail whose power it is where no label names it.
fn channel(
    context: &DiscoveryContext<'_>,
    dir: &str,
    device: &str,
    number: u32,
    count: u32,
) -> Option<Channel> {
    let there = |file: String| context.has(&format!("{dir}/{file}"));
    if !(there(format!("in{number}_input")) || there(format!("curr{number}_input"))) {
        return None;
    }
    let alarm =
        |what: &str| Some(format!("{dir}/curr{number}_{what}_alarm")).filter(|path| context.has(path));
    let (name, place) = if count == 3 {
        (format!("{device} in{number}"), format!("{}.{number}", ina3221::place(context.root, dir)))
    } else {
        (format!("{device} power{number}"), format!("{}.power{number}", hwmon::device_of(context.root, dir)))
    };
    Some(Channel {
        name,
        place,
        dir: dir.to_owned(),
        number,
        is_read: count == 3,
        has_max: there(format!("curr{number}_max")),
        has_crit: there(format!("curr{number}_crit")),
        alarms: ["max", "crit"].into_iter().filter_map(alarm).collect(),
    })
}

impl Channel {
    fn read(&self, answers: &Answers<'_>) -> RailMeter {
        let value =
            |kind: &str, what: &str, expected: &str| answers.value(&self.file(kind, what), expected, milli);
        let limit = |there: bool, what: &str| {
            if there {
                value("curr", what, "a current in mA")
            } else {
                Reading::absent(format!("no {}", self.file("curr", what)))
            }
        };
        RailMeter {
            name: self.name.clone(),
            volts: value("in", "input", "a voltage in mV"),
            amperes: value("curr", "input", "a current in mA"),
            warning_amperes: limit(self.has_max, "max"),
            critical_amperes: limit(self.has_crit, "crit"),
            alarm: self.alarm(answers),
            source: self.dir.clone(),
        }
    }

    /// True if any of the alarms is raised; false only if all that there are say so.
    fn alarm(&self, answers: &Answers<'_>) -> Reading<bool> {
        let readings = self.alarms.iter().map(|path| answers.value(path, "0 or 1", text::switch));
        let none = || Reading::absent(format!("no {}", self.file("curr", "{max,crit}_alarm")));
        let worst = readings.reduce(|a, b| match (a, b) {
            (Reading::Known(a), Reading::Known(b)) => Reading::Known(a || b),
            (Reading::Known(true), _) | (_, Reading::Known(true)) => Reading::Known(true),
            (Reading::Known(false), unknown) | (unknown, _) => unknown,
        });
        worst.unwrap_or_else(none)
    }
}

/// Thousandths, with a sign.
fn milli(text: &str) -> Option<f64> {
    parse::signed(text).filter(|value| value.unsigned_abs() <= LARGEST_MILLI).map(|value| value as f64 / 1e3)
}
