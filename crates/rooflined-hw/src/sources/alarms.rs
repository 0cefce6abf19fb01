//! Alarms: files that hold 1 while something is wrong.
//!
//! ```text
//! /sys/class/hwmon/hwmonN/        in0_lcrit_alarm (Raspberry Pi: under-voltage)  temp1_crit_alarm  power1_cap_alarm …
//! /sys/devices/platform/soc*/*:firmware/get_throttled     hexadecimal, Raspberry Pi; see FIRMWARE
//! ```

use super::{HWMON, hwmon};
use crate::SysRoot;
use crate::answers::File;
use crate::source::{Device, DiscoveryContext, Plan, Reader, found};
use crate::throttle::{EvidenceKind, ThrottleReport};
use rooflined_core::board::parse;

const PLATFORM: &str = "/sys/devices/platform";
/// What the firmware of a Raspberry Pi tells of now (raspberrypi.com, `vcgencmd get_throttled`). The bits from 16 on tell the
/// same of the time since the boot.
const FIRMWARE: [(u64, &str); 4] = [
    (0x1, "under-voltage"),
    (0x2, "the CPU's clock is capped"),
    (0x4, "throttled"),
    (0x8, "the soft limit of the temperature is reached"),
];
/// Drivers of processors and of what feeds them: each of their alarms may slow a processor down.
const OF_PROCESSORS: [&str; 12] = [
    "coretemp",
    "k10temp",
    "zenpower",
    "cpu_thermal",
    "rpi_volt",
    "ina3221",
    "ina2",
    "power_meter",
    "spbm",
    "amdgpu",
    "scmi",
    "scpi",
];
/// Drivers whose alarms slow no processor down: drives, networks and their optics, batteries and chargers, supplies, memory
/// modules, and monitors of a main board, whose limits its maker rarely sets.
const BESIDE: [&str; 32] = [
    "nvme",
    "drivetemp",
    "iwlwifi",
    "mlx",
    "mt79",
    "r816",
    "bnxt",
    "ixgbe",
    "sfp",
    "BAT",
    "AC",
    "ADP",
    "ucsi",
    "tcpm",
    "battery",
    "pmbus",
    "corsairpsu",
    "dps",
    "nct",
    "it8",
    "w83",
    "f71",
    "sch5",
    "jc42",
    "spd5118",
    "lm7",
    "lm8",
    "lm9",
    "adt7",
    "emc",
    "max",
    "tmp",
];
/// Limits of other drivers that mean danger; the others are often never set.
const DANGER: [&str; 4] = ["_crit", "_lcrit", "_cap", "_emergency"];

struct Alarm {
    /// `rpi_volt in0_lcrit`.
    name: String,
    path: String,
    slows: bool,
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let root = context.root;
    let awake = context.hwmon.iter().filter(|device| hwmon::is_awake(root, device));
    let alarms: Vec<Alarm> = awake.flat_map(|device| of_device(root, device)).collect();
    let firmware = firmware(root);
    if alarms.is_empty() && firmware.is_none() {
        return None;
    }
    if !alarms.is_empty() {
        plan.add_origin("throttle", format!("{HWMON}/hwmon*/*_alarm"));
    }
    if let Some(path) = &firmware {
        plan.add_origin("throttle", path);
    }
    plan.read(alarms.iter().map(|alarm| &alarm.path).chain(&firmware).map(File::of_driver));
    found(move |answers, state| {
        let mut report = ThrottleReport::of(EvidenceKind::State);
        for alarm in &alarms {
            let state = report.value_of(answers.value(&alarm.path, "0 or 1", parse::unsigned));
            if state.is_some_and(|state| state > 0) {
                report.add(alarm.slows, format!("{} is raised ({})", alarm.name, alarm.path));
            }
        }
        if let Some(path) = &firmware {
            let bits =
                answers.value(path, "hexadecimal digits", |text| u64::from_str_radix(text.trim(), 16).ok());
            let bits = report.value_of(bits).unwrap_or(0);
            for (_, name) in FIRMWARE.into_iter().filter(|(bit, _)| bits & bit != 0) {
                report.add(true, format!("the firmware says: {name} ({path} holds {bits:x})"));
            }
        }
        state.throttle(report);
    })
}

fn of_device(root: &SysRoot, device: &Device) -> Vec<Alarm> {
    let is_of = |drivers: &[&str]| drivers.iter().any(|prefix| device.name.starts_with(prefix));
    let (of_processor, beside) = (is_of(&OF_PROCESSORS), is_of(&BESIDE));
    let names = root.names(&device.dir).into_iter();
    // A rail's own alarms are among its meters' as well; a fan that stands still or a lid that is open slows nothing.
    let alarms = names.filter_map(|file| {
        let name = file.strip_suffix("_alarm")?;
        let could = !beside && !name.starts_with("fan") && !name.starts_with("intrusion");
        let slows = could && (of_processor || DANGER.iter().any(|limit| name.ends_with(limit)));
        Some(Alarm { name: format!("{} {name}", device.name), path: format!("{}/{file}", device.dir), slows })
    });
    alarms.collect()
}

fn firmware(root: &SysRoot) -> Option<String> {
    let buses = root.names(PLATFORM).into_iter().filter(|name| name.starts_with("soc"));
    let devices = buses.flat_map(|bus| {
        let devices = root.names(&format!("{PLATFORM}/{bus}")).into_iter();
        let firmware = devices.filter(|name| name.ends_with(":firmware"));
        firmware.map(|name| format!("{PLATFORM}/{bus}/{name}/get_throttled")).collect::<Vec<_>>()
    });
    devices.into_iter().find(|path| root.path(path).is_file())
}
