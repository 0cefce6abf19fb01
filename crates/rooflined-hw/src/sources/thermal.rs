//! Thermal zones.

use super::THERMAL;
use crate::answers::{Answers, File};
use crate::names::distinguish;
use crate::source::{Device, DiscoveryContext, Plan, Reader, found};
use rooflined_core::board::parse::{self, Temperature};
use rooflined_core::board::{Reading, ThermalZone};
use rooflined_core::units::Celsius;

struct Zone {
    /// Its `type`, or the name of its directory where it has none. With the zone's number behind it if another zone has the
    /// same.
    name: String,
    path: String,
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let mut devices = Device::all(context.root, THERMAL, "thermal_zone", "type");
    let number =
        |_: usize, zone: &Device| zone.dir.trim_start_matches(|c: char| !c.is_ascii_digit()).to_owned();
    distinguish(&mut devices, |zone| &mut zone.name, number);
    let zones = devices.into_iter().map(|Device { name, dir }| Zone { name, path: format!("{dir}/temp") });
    let zones: Vec<Zone> = zones.collect();
    if zones.is_empty() {
        let none = format!("no {THERMAL}/thermal_zone*");
        return found(move |_, state| state.temperatures(Reading::absent(&none)));
    }
    plan.add_origin("temperatures", format!("{THERMAL}/thermal_zone*/temp"));
    plan.read(zones.iter().map(|zone| File::of_driver(&zone.path)));
    found(move |answers, state| {
        let zones = zones.iter().map(|zone| {
            let temperature = temperature(zone, answers);
            ThermalZone { name: zone.name.clone(), temperature }
        });
        state.temperatures(Reading::Known(zones.collect()));
    })
}

/// A zone of older Tegras (Nano, TX1, TX2) that no sensor is behind: it holds 100 °C whatever the board does.
const FIXED: &str = "PMIC-Die";

fn temperature(zone: &Zone, answers: &Answers<'_>) -> Reading<Celsius> {
    let path = &zone.path;
    if zone.name == FIXED {
        return Reading::absent(format!("{path} is fixed at 100 °C on Tegras and measures nothing"));
    }
    degrees(path, answers)
}

/// What a sensor says, in thousandths of a degree.
pub(super) fn degrees(path: &str, answers: &Answers<'_>) -> Reading<Celsius> {
    match answers.value(path, "thousandths of a degree", parse::millidegrees) {
        Reading::Known(Temperature::Known(temperature)) => Reading::Known(temperature),
        Reading::Known(Temperature::Off) => Reading::absent(format!("{path}: the sensor is off (-256 °C)")),
        Reading::Known(Temperature::Implausible(temperature)) => {
            Reading::failed(format!("{path} says {temperature}, which is not the temperature of a machine"))
        }
        Reading::Absent { reason } => Reading::Absent { reason },
        Reading::Failed { reason } => Reading::Failed { reason },
    }
}
