//! Texas Instruments' INA3221 on Jetson modules and carriers: three rails each, in mV and mA.
//!
//! ```text
//! <device>/hwmon/hwmonN/  inM_label  inM_input (mV)  currM_input (mA)      M = 1, 2, 3
//! <device>/iio:deviceN/   rail_name_M  in_powerM_input (mW)                M = 0, 1, 2; JetPack 4
//! ```
//!
//! Channels 4 to 7 of hwmon are shunt voltages and their sum. A channel labelled `NC` is not connected.

use super::SysRoot;
use super::discover::{Counter, RailSource, ask};
use crate::board::parse;

/// Where its drivers are.
pub(super) const I2C: &str = "/sys/bus/i2c/drivers";
const DRIVERS: [&str; 2] = ["/sys/bus/i2c/drivers/ina3221", "/sys/bus/i2c/drivers/ina3221x"];
const HWMON: &str = super::power::HWMON;

/// One channel before its label is known.
struct Channel {
    fallback: String,
    label: String,
    /// File of the milliseconds between two values.
    interval: String,
    source: RailSource,
}

/// Every connected rail. Reached through the driver and through /sys/class/hwmon alike, but counted once.
pub(super) fn rails(root: &SysRoot) -> Vec<RailSource> {
    let mut channels = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for dir in hwmon_dirs(root) {
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
    let labels = ask(root, channels.iter().map(|channel| channel.label.clone()));
    let intervals = ask(root, channels.iter().map(|channel| channel.interval.clone()));
    let named = channels.into_iter().zip(labels).zip(intervals).filter_map(|((channel, label), interval)| {
        let label = label.and_then(|text| parse::label(&text));
        let connected = label.as_deref() != Some("NC");
        let name = label.unwrap_or(channel.fallback);
        let update_ms = interval.and_then(|text| parse::unsigned(&text));
        connected.then_some(RailSource { name, update_ms, ..channel.source })
    });
    named.collect()
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

fn hwmon_dirs(root: &SysRoot) -> Vec<String> {
    let mut dirs: Vec<String> = devices(root)
        .flat_map(|device| {
            let numbered = root.numbered(&format!("{device}/hwmon"), "hwmon");
            numbered.into_iter().map(move |(_, name)| format!("{device}/hwmon/{name}")).collect::<Vec<_>>()
        })
        .collect();
    let class: Vec<String> =
        root.numbered(HWMON, "hwmon").into_iter().map(|(_, name)| format!("{HWMON}/{name}")).collect();
    let names = ask(root, class.iter().map(|dir| format!("{dir}/name")));
    dirs.extend(class.into_iter().zip(names).filter_map(|(dir, name)| {
        name.and_then(|name| parse::label(&name)).is_some_and(|name| name == "ina3221").then_some(dir)
    }));
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
        fallback: format!("ina3221 in{channel}"),
        label: format!("{dir}/in{channel}_label"),
        interval: format!("{dir}/update_interval"),
        source: RailSource {
            name: String::new(),
            device: "ina3221".into(),
            path,
            current: Some(current),
            counter: Counter::MilliwattsByProduct,
            update_ms: None,
        },
    })
}

fn milliwatts(root: &SysRoot, dir: &str, channel: u32) -> Option<Channel> {
    let path = format!("{dir}/in_power{channel}_input");
    root.path(&path).symlink_metadata().is_ok().then(|| Channel {
        fallback: format!("ina3221 rail {channel}"),
        label: format!("{dir}/rail_name_{channel}"),
        interval: format!("{dir}/update_interval"),
        source: RailSource {
            name: String::new(),
            device: "ina3221x".into(),
            path,
            current: None,
            counter: Counter::Milliwatts,
            update_ms: None,
        },
    })
}
