//! What the probe reads beside its own clock: temperature and reported clock, from NVML or the kernel's zones.

use std::fs;
use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};

use super::driver::Facts;
use roofline::units::{Celsius, Hertz};

/// Where the kernel keeps its thermal zones.
const ZONES: &str = "/sys/class/thermal";

/// The instruments of one GPU; whatever is missing stays unknown.
pub struct Meters {
    /// The management library, and where on the bus the GPU is.
    nvml: Option<(Nvml, String)>,
}

impl Meters {
    /// Finds the instruments of a device.
    pub fn find(facts: &Facts) -> Self {
        let (domain, bus, device) = facts.pci;
        let place = format!("{domain:08x}:{bus:02x}:{device:02x}.0");
        Self { nvml: Nvml::init().ok().map(|nvml| (nvml, place)) }
    }

    fn device(&self) -> Option<nvml_wrapper::Device<'_>> {
        let (nvml, place) = self.nvml.as_ref()?;
        nvml.device_by_pci_bus_id(place.as_str())
            .or_else(|error| match nvml.device_count() {
                // With one there is no doubt which.
                Ok(1) => nvml.device_by_index(0),
                _ => Err(error),
            })
            .ok()
    }

    /// Temperature of the GPU; of a board whose library does not tell it that of the hottest zone.
    pub fn temperature(&self) -> Option<Celsius> {
        let reported = self.device().and_then(|device| device.temperature(TemperatureSensor::Gpu).ok());
        reported.map(|degrees| Celsius(f64::from(degrees))).or_else(|| hottest(Path::new(ZONES)))
    }

    /// Clock of the SMs as the driver reports it.
    pub fn clock(&self) -> Option<Hertz> {
        let megahertz = self.device()?.clock_info(Clock::SM).ok()?;
        (megahertz > 0).then(|| Hertz(f64::from(megahertz) * 1e6))
    }
}

fn hottest(zones: &Path) -> Option<Celsius> {
    let entries = fs::read_dir(zones).ok()?;
    let read = |path: &Path| fs::read_to_string(path.join("temp")).ok()?.trim().parse::<f64>().ok();
    entries
        .filter_map(|entry| read(&entry.ok()?.path()))
        // A zone that is switched off says -256 °C or more than any chip survives.
        .filter(|thousandths| (-40e3..150e3).contains(thousandths))
        .max_by(f64::total_cmp)
        .map(|thousandths| Celsius(thousandths / 1e3))
}
