//! Cooling devices that lower a clock. Fans and the like cool without slowing anything down.

use super::THERMAL;
use crate::SysRoot;
use crate::answers::{Answers, File};
use crate::source::Device;
use crate::source::{DiscoveryContext, Source};
use crate::state::StateBuilder;
use crate::throttle::{Alarm, report};

/// Those of processors, at 0 unless they slow one down.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cooling {
    devices: Vec<Alarm>,
}

impl Source for Cooling {
    fn discover(context: &DiscoveryContext<'_>) -> Option<Self> {
        let devices = Device::all(context.root, THERMAL, "cooling_device", "type").into_iter();
        let devices = devices.filter(|device| is_brake(&device.name));
        let devices: Vec<Alarm> = devices
            .map(|Device { name, dir }| Alarm {
                name: format!("cooling device {name}"),
                path: format!("{dir}/cur_state"),
            })
            .collect();
        (!devices.is_empty()).then_some(Self { devices })
    }

    fn origins(&self, _: &SysRoot) -> Vec<(&'static str, String)> {
        vec![("throttle", format!("{THERMAL}/cooling_device*/cur_state"))]
    }

    fn files(&self) -> Vec<File> {
        self.devices.iter().map(|device| File::of_driver(&device.path)).collect()
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        state.throttle(report(&self.devices, answers));
    }
}

fn is_brake(name: &str) -> bool {
    // Names of a device tree have hyphens, and some kernels write others.
    let name = name.replace('_', "-");
    let begins = ["cpufreq-", "devfreq-", "thermal-cpufreq-", "thermal-devfreq-"];
    // `cpu-throttle-alert` of Xavier and later, `gpu-balanced` of Nano to Xavier, and the GPU's devfreq device by its name in the
    // device tree.
    let ends = ["throttle-alert", "-balanced", ".gpu", ".ga10b", ".gv11b", ".gp10b"];
    name == "Processor"
        || begins.iter().any(|prefix| name.starts_with(prefix))
        || ends.iter().any(|suffix| name.ends_with(suffix))
}
