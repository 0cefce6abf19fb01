//! Power sensors and energy counters of hwmon, but for the INA3221 of Jetsons.

use super::{HWMON, rails};
use crate::SysRoot;
use crate::ask::ask;
use crate::rail::{Counter, Meter};
use crate::source::{Device, DiscoveryContext, Plan, Reader};
use crate::total::AMD_APU;

/// Every file of hwmon that tells power or energy.
pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    rails::discovered(meters(context.root), &[HWMON], plan)
}

/// A sensor before its labels are known.
struct Sensor {
    dir: String,
    /// `power1`, `energy2`, …
    name: String,
    file: String,
    counter: Counter,
}

impl Sensor {
    // A label of the sensor, or what the firmware says that an ACPI power meter sees; else a label of the device, which is
    // all that an INA238 has.
    fn labels(&self) -> [String; 3] {
        let of_sensor = ["label", "oem_info"].map(|what| format!("{}/{}_{what}", self.dir, self.name));
        let [label, oem_info] = of_sensor;
        [label, oem_info, format!("{}/label", self.dir)]
    }

    /// A meter that says 1 there is at a battery, which does not feed the machine while the mains do.
    fn is_battery(&self) -> String {
        format!("{}/{}_is_battery", self.dir, self.name)
    }

    // A meter that averages says over how long; of the others the device tells how often it converts.
    fn intervals(&self) -> [String; 2] {
        [format!("{}/{}_average_interval", self.dir, self.name), format!("{}/update_interval", self.dir)]
    }

    fn device(&self) -> String {
        format!("{}/name", self.dir)
    }

    /// The label of a voltage that an AMD GPU only has where it shares its package with the CPU: that of a northbridge.
    fn northbridge(&self) -> String {
        format!("{}/in1_label", self.dir)
    }
}

fn meters(root: &SysRoot) -> Vec<Meter> {
    let sensors = sensors(root);
    let texts = ask(
        root,
        sensors.iter().flat_map(|sensor| {
            let further = [sensor.device(), sensor.is_battery(), sensor.northbridge()];
            let names = sensor.labels().into_iter().chain(further);
            names.chain(sensor.intervals())
        }),
    );
    let meters = sensors.into_iter().map(|sensor| {
        let label = sensor.labels().iter().find_map(|file| texts.label(file));
        let is_battery = texts.unsigned(&sensor.is_battery()) == Some(1);
        let device =
            texts.label(&sensor.device()).map(|name| if is_battery { "battery".into() } else { name });
        let is_apu = device.as_deref() == Some("amdgpu")
            && texts.label(&sensor.northbridge()).as_deref() == Some("vddnb");
        let interval = |file: &String| texts.label(file).and_then(|text| text.trim().parse().ok());
        Meter {
            name: label.unwrap_or_else(|| match &device {
                Some(device) => format!("{device} {}", sensor.name),
                None => sensor.name.clone(),
            }),
            place: format!("{}.{}", device_of(root, &sensor.dir), sensor.name),
            path: format!("{}/{}", sensor.dir, sensor.file),
            current: None,
            check: check(root, &sensor, device.as_deref()),
            device: if is_apu { AMD_APU.to_owned() } else { device.unwrap_or_default() },
            counter: sensor.counter,
            update_ms: sensor.intervals().iter().find_map(interval),
            last: None,
        }
    });
    meters.filter(is_rail).collect()
}

/// Texas Instruments' meters of one rail, an INA226 or an INA238, tell its voltage and current too.
fn check(root: &SysRoot, sensor: &Sensor, device: Option<&str>) -> Option<[String; 2]> {
    let is_alone = sensor.name == "power1" && device.is_some_and(|name| name.starts_with("ina2"));
    let files = ["in1_input", "curr1_input"].map(|file| format!("{}/{file}", sensor.dir));
    (is_alone && files.iter().all(|file| root.path(file).exists())).then_some(files)
}

fn sensors(root: &SysRoot) -> Vec<Sensor> {
    let mut found = Vec::new();
    let dirs = root.numbered(HWMON, "hwmon").into_iter().flat_map(|(_, device)| {
        // Drivers of the old kind (acpi_power_meter before Linux 6.15) have their files in the device itself.
        ["", "/device"].map(|parent| format!("{HWMON}/{device}{parent}"))
    });
    for dir in dirs {
        let files = root.names(&dir);
        for (prefix, counter) in
            [("power", Counter::Power), ("energy", Counter::Energy { wraps_after: None })]
        {
            for name in numbered(&files, prefix) {
                // Some power meters only tell an average.
                let file = ["input", "average"].map(|kind| format!("{name}_{kind}"));
                let Some(file) = file.into_iter().find(|file| files.contains(file)) else { continue };
                found.push(Sensor { dir: dir.clone(), name, file, counter });
            }
        }
    }
    found
}

/// What a directory of hwmon belongs to, `7-0044` of I2C: hwmon numbers its directories again at each boot. The name of the
/// directory where nothing tells.
pub(super) fn device_of(root: &SysRoot, dir: &str) -> String {
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let dir = dir.strip_suffix("/device").unwrap_or(dir);
    let device = last(&root.resolve(&format!("{dir}/device")));
    if device == "device" { last(dir) } else { device }
}

/// Whether reading a device costs nothing but the reading: a device that sleeps would be woken up, and a drive that
/// `drivetemp` asks could never go to sleep.
pub(super) fn is_awake(root: &SysRoot, device: &Device) -> bool {
    let status = root.read(&format!("{}/device/power/runtime_status", device.dir));
    device.name != "drivetemp" && !status.is_ok_and(|status| status.trim() == "suspended")
}

/// GB10's power controller tells each channel as power and as energy, and beside the channels its limiters' own view.
fn is_rail(meter: &Meter) -> bool {
    let limiter = ["pl1", "pl2", "syspl1", "syspl2"].contains(&meter.name.as_str());
    meter.device != "spbm" || (meter.counter == Counter::Power && !limiter)
}

/// `power1`, `power2`, … among the files of a device, in numerical order.
fn numbered(files: &[String], prefix: &str) -> Vec<String> {
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
