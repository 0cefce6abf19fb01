//! Temperatures of drives, network cards and whatever else has a sensor that is no thermal zone.

use super::thermal::degrees;
use super::{HWMON, THERMAL, hwmon};
use crate::SysRoot;
use crate::answers::{Answers, File, RARELY, SOMETIMES};
use crate::ask::ask;
use crate::names::distinguish;
use crate::source::{Device, DiscoveryContext, Source};
use crate::state::{StateBuilder, detail};
use rooflined_core::board::Reading;
use rooflined_core::board::details::DeviceTemperature;

/// More than these are not worth watching one by one.
const MOST: usize = 32;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct DeviceTemperatures {
    sensors: Vec<Sensor>,
    /// Those beyond the most.
    left_out: usize,
}

#[derive(Debug, Clone, PartialEq)]
struct Sensor {
    name: String,
    /// What tells it from others of its name.
    place: String,
    path: String,
    /// Where the device reports trouble, if it says.
    critical: Option<String>,
}

impl Source for DeviceTemperatures {
    fn discover(context: &DiscoveryContext<'_>) -> Option<Self> {
        // A thermal zone is a device of hwmon too, under its type with underscores.
        let zones = Device::all(context.root, THERMAL, "thermal_zone", "type");
        let is_zone = |device: &Device| {
            zones.iter().any(|zone| zone.name.replace('-', "_") == device.name.replace('-', "_"))
        };
        let mut found: Vec<(String, Sensor)> = Vec::new();
        let mut devices: Vec<&Device> = context.hwmon.iter().filter(|device| !is_zone(device)).collect();
        devices.retain(|device| hwmon::is_awake(context.root, device));
        devices.sort_by_key(|device| rank(&device.name));
        for device in devices {
            let at = hwmon::device_of(context.root, &device.dir);
            let files = context.root.names(&device.dir);
            let mut numbers: Vec<u32> = files
                .iter()
                .filter_map(|file| file.strip_prefix("temp")?.strip_suffix("_input")?.parse().ok())
                .collect();
            numbers.sort_unstable();
            for number in numbers {
                let path = |what: &str| format!("{}/temp{number}_{what}", device.dir);
                let critical = files.contains(&format!("temp{number}_crit")).then(|| path("crit"));
                let place = format!("{at}.temp{number}");
                let sensor = Sensor { name: device.name.clone(), place, path: path("input"), critical };
                found.push((path("label"), sensor));
            }
        }
        let left_out = found.len().saturating_sub(MOST);
        found.truncate(MOST);
        let texts = ask(context.root, found.iter().map(|(label, _)| label.clone()));
        let named: Vec<Sensor> = found
            .into_iter()
            .map(|(label, sensor)| match texts.label(&label) {
                Some(label) => Sensor { name: format!("{} {label}", sensor.name), ..sensor },
                None => sensor,
            })
            .collect();
        let mut sensors = named;
        distinguish(&mut sensors, |sensor| (&mut sensor.name, &sensor.place));
        Some(Self { sensors, left_out })
    }

    fn origins(&self, _: &SysRoot) -> Vec<(&'static str, String)> {
        let files = self.sensors.iter().map(|sensor| sensor.path.clone());
        let left_out = (self.left_out > 0).then(|| format!("and {} more, which are not read", self.left_out));
        files.chain(left_out).map(|files| ("device_temperatures", files)).collect()
    }

    fn files(&self) -> Vec<File> {
        // A drive is asked by a command that its own work waits for.
        let inputs = self.sensors.iter().map(|sensor| File::of_driver(&sensor.path).every(SOMETIMES));
        let limits = self.sensors.iter().filter_map(|sensor| sensor.critical.as_ref());
        inputs.chain(limits.map(|path| File::of_driver(path).every(RARELY))).collect()
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        let Some(first) = self.sensors.first() else {
            let none = format!("no temp*_input in {HWMON}/hwmon* but those of thermal zones");
            return detail!(state.device_temperatures = Reading::absent(none), None);
        };
        let temperatures = self.sensors.iter().map(|sensor| DeviceTemperature {
            name: sensor.name.clone(),
            temperature: degrees(&sensor.path, answers),
            critical: match &sensor.critical {
                Some(path) => degrees(path, answers),
                None => Reading::absent(format!("no {}", sensor.path.replace("_input", "_crit"))),
            },
            source: sensor.path.clone(),
        });
        let reading = Reading::Known(temperatures.collect());
        detail!(state.device_temperatures = reading, Some(answers.read_at(&first.path)));
    }
}

/// What there are few of first: a machine may have more CPU cores than are watched.
fn rank(device: &str) -> u8 {
    const NETWORK: [&str; 7] = ["mlx", "mt7", "iwlwifi", "ath", "r8169", "bnxt", "ixgbe"];
    const CORES: [&str; 4] = ["coretemp", "k10temp", "k8temp", "zenpower"];
    match device {
        "nvme" => 0,
        _ if NETWORK.iter().any(|driver| device.starts_with(driver)) => 1,
        _ if CORES.contains(&device) => 3,
        _ => 2,
    }
}
