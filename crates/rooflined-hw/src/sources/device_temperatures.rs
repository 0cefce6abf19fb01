//! Temperatures of drives, network cards and whatever else has a sensor that is no thermal zone.

use super::thermal::degrees;
use super::{HWMON, THERMAL, hwmon};
use crate::answers::{File, RARELY, SOMETIMES};
use crate::ask::ask;
use crate::names::distinguish;
use crate::source::{Device, DiscoveryContext, Plan, Reader, found};
use crate::state::detail;
use rooflined_core::board::Reading;
use rooflined_core::board::details::DeviceTemperature;

/// More than these are not worth watching one by one.
const MOST: usize = 32;

struct Sensor {
    name: String,
    /// What tells it from others of its name.
    place: String,
    path: String,
    /// Where the device reports trouble, if it says.
    critical: Option<String>,
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let (sensors, left_out) = sensors(context);
    for sensor in &sensors {
        plan.add_origin("device_temperatures", &sensor.path);
    }
    if left_out > 0 {
        plan.add_origin("device_temperatures", format!("and {left_out} more, which are not read"));
    }
    // A drive is asked by a command that its own work waits for.
    plan.read(sensors.iter().map(|sensor| File::of_driver(&sensor.path).every(SOMETIMES)));
    let limits = sensors.iter().filter_map(|sensor| sensor.critical.as_ref());
    plan.read(limits.map(|path| File::of_driver(path).every(RARELY)));
    found(move |answers, state| {
        let Some(first) = sensors.first() else {
            let none = format!("no temp*_input in {HWMON}/hwmon* but those of thermal zones");
            return detail!(state.device_temperatures = Reading::absent(none), None);
        };
        let temperatures = sensors.iter().map(|sensor| DeviceTemperature {
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
    })
}

/// Those that are watched, and how many there are beyond the most.
fn sensors(context: &DiscoveryContext<'_>) -> (Vec<Sensor>, usize) {
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
    let mut sensors: Vec<Sensor> = found
        .into_iter()
        .map(|(label, sensor)| match texts.label(&label) {
            Some(label) => Sensor { name: format!("{} {label}", sensor.name), ..sensor },
            None => sensor,
        })
        .collect();
    distinguish(&mut sensors, |sensor| &mut sensor.name, |_, sensor| sensor.place.clone());
    (sensors, left_out)
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
