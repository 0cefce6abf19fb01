//! Thermal zones.

use super::THERMAL;
use crate::SysRoot;
use crate::answers::{Answers, File};
use crate::names::{Named, distinguished};
use crate::source::Device;
use crate::source::{DiscoveryContext, Source};
use crate::state::StateBuilder;
use rooflined_core::board::parse::{self, Temperature};
use rooflined_core::board::{Reading, ThermalZone};
use rooflined_core::units::Celsius;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Thermal {
    zones: Vec<Zone>,
}

#[derive(Debug, Clone, PartialEq)]
struct Zone {
    /// Its `type`, or the name of its directory where it has none. With the zone's number behind it if another zone has the
    /// same.
    name: String,
    path: String,
}

impl Source for Thermal {
    fn discover(context: &DiscoveryContext<'_>) -> Option<Self> {
        let zones = Device::all(context.root, THERMAL, "thermal_zone", "type");
        let number = |zone: &Device| zone.dir.trim_start_matches(|c: char| !c.is_ascii_digit()).to_owned();
        let places: Vec<String> = zones.iter().map(number).collect();
        let named: Vec<Named<'_>> =
            zones.iter().zip(&places).map(|(zone, place)| Named { name: &zone.name, place }).collect();
        let keys = distinguished(&named);
        let zones = zones
            .into_iter()
            .zip(keys)
            .map(|(zone, key)| Zone { name: key.unwrap_or(zone.name), path: format!("{}/temp", zone.dir) });
        Some(Self { zones: zones.collect() })
    }

    fn origins(&self, _: &SysRoot) -> Vec<(&'static str, String)> {
        let files = format!("{THERMAL}/thermal_zone*/temp");
        if self.zones.is_empty() { Vec::new() } else { vec![("temperatures", files)] }
    }

    fn files(&self) -> Vec<File> {
        self.zones.iter().map(|zone| File::of_driver(&zone.path)).collect()
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        let zones = self.zones.iter().map(|zone| {
            let temperature = temperature(zone, answers);
            ThermalZone { name: zone.name.clone(), temperature }
        });
        state.temperatures(if self.zones.is_empty() {
            Reading::absent(format!("no {THERMAL}/thermal_zone*"))
        } else {
            Reading::Known(zones.collect())
        });
    }
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
