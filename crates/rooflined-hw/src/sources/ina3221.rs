//! Texas Instruments' INA3221 on Jetson modules and carriers: three rails each, in mV and mA.
//!
//! ```text
//! <device>/hwmon/hwmonN/  inM_label  inM_input (mV)  currM_input (mA)      M = 1, 2, 3
//! <device>/iio:deviceN/   rail_name_M  in_powerM_input (mW)                M = 0, 1, 2; JetPack 4
//! ```
//!
//! Channels 4 to 7 of hwmon are shunt voltages and their sum. A channel labelled `NC` is not connected. Currents have a sign.

use super::{HWMON, hwmon, rails};
use crate::SysRoot;
use crate::ask::ask;
use crate::rail::{Counter, Meter};
use crate::source::{Device, DiscoveryContext, Plan, Reader};

const I2C: &str = "/sys/bus/i2c/drivers";
const DRIVERS: [&str; 2] = ["/sys/bus/i2c/drivers/ina3221", "/sys/bus/i2c/drivers/ina3221x"];

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    rails::discovered(meters(context.root, &context.hwmon), &[I2C, HWMON], plan)
}

/// One channel before its label is known.
struct Channel {
    label: String,
    /// File of the milliseconds between two values.
    interval: String,
    /// Named by its place.
    meter: Meter,
}

/// Reached through the driver and through /sys/class/hwmon alike, but counted once.
fn meters(root: &SysRoot, hwmon: &[Device]) -> Vec<Meter> {
    let mut channels = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for dir in hwmon_dirs(root, hwmon) {
        // hwmon numbers its devices without regard to where they are.
        let device = dir.rsplit('/').next().unwrap_or_default().to_owned();
        if !seen.contains(&device) {
            channels.extend((1..=3).filter_map(|channel| voltage_and_current(root, &dir, channel)));
            seen.push(device);
        }
    }
    for dir in iio_dirs(root) {
        channels.extend((0..3).filter_map(|channel| milliwatts(root, &dir, channel)));
    }
    let files = channels.iter().flat_map(|channel| [channel.label.clone(), channel.interval.clone()]);
    let texts = ask(root, files);
    let connected = channels.into_iter().filter_map(|channel| {
        let name = texts.label(&channel.label).unwrap_or(channel.meter.name);
        let update_ms = texts.unsigned(&channel.interval);
        (name != "NC").then_some(Meter { name, update_ms, ..channel.meter })
    });
    connected.collect()
}

/// Devices of the driver, `1-0040` and so on.
fn devices(root: &SysRoot) -> impl Iterator<Item = String> + '_ {
    DRIVERS.into_iter().flat_map(|driver| {
        let devices = root.names(driver).into_iter();
        devices
            .filter(|name| name.starts_with(|c: char| c.is_ascii_digit()))
            .map(move |name| format!("{driver}/{name}"))
    })
}

pub(super) fn hwmon_dirs(root: &SysRoot, hwmon: &[Device]) -> Vec<String> {
    let mut dirs: Vec<String> = devices(root)
        .flat_map(|device| {
            let numbered = root.numbered(&format!("{device}/hwmon"), "hwmon");
            numbered.into_iter().map(move |(_, name)| format!("{device}/hwmon/{name}")).collect::<Vec<_>>()
        })
        .collect();
    let class = hwmon.iter().filter(|device| device.name == "ina3221");
    dirs.extend(class.map(|device| device.dir.clone()));
    dirs
}

fn iio_dirs(root: &SysRoot) -> Vec<String> {
    devices(root)
        .flat_map(|device| {
            let numbered = root.numbered(&device, "iio:device");
            numbered.into_iter().map(move |(_, name)| format!("{device}/{name}")).collect::<Vec<_>>()
        })
        .collect()
}

fn voltage_and_current(root: &SysRoot, dir: &str, channel: u32) -> Option<Channel> {
    let path = format!("{dir}/in{channel}_input");
    let current = format!("{dir}/curr{channel}_input");
    let there = |path: &str| root.path(path).symlink_metadata().is_ok();
    (there(&path) && there(&current)).then(|| Channel {
        label: format!("{dir}/in{channel}_label"),
        interval: format!("{dir}/update_interval"),
        meter: Meter {
            name: format!("ina3221 in{channel}"),
            device: "ina3221".into(),
            place: format!("{}.{channel}", place(root, dir)),
            path,
            current: Some(current),
            check: None,
            counter: Counter::MilliwattsByProduct,
            update_ms: None,
            last: None,
        },
    })
}

/// The sensor's address on its bus, `1-0040`, where it is known.
pub(super) fn place(root: &SysRoot, dir: &str) -> String {
    let device =
        DRIVERS.iter().find_map(|driver| dir.strip_prefix(driver)?.trim_start_matches('/').split('/').next());
    device.map_or_else(|| hwmon::device_of(root, dir), str::to_owned)
}

fn milliwatts(root: &SysRoot, dir: &str, channel: u32) -> Option<Channel> {
    let path = format!("{dir}/in_power{channel}_input");
    root.path(&path).symlink_metadata().is_ok().then(|| Channel {
        label: format!("{dir}/rail_name_{channel}"),
        interval: format!("{dir}/update_interval"),
        meter: Meter {
            name: format!("ina3221 rail {channel}"),
            device: "ina3221x".into(),
            place: format!("{}.{channel}", place(root, dir)),
            path,
            current: None,
            check: None,
            counter: Counter::Milliwatts,
            update_ms: None,
            last: None,
        },
    })
}
