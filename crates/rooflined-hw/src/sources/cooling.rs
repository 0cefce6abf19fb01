//! Cooling devices that lower a clock. Fans and the like cool without slowing anything down.

use super::THERMAL;
use crate::answers::File;
use crate::source::{Device, DiscoveryContext, Plan, Reader, found};
use crate::throttle::{EvidenceKind, ThrottleReport};
use rooflined_core::board::parse;

/// Those of processors, at 0 unless they slow one down.
pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let devices = Device::all(context.root, THERMAL, "cooling_device", "type").into_iter();
    let found = devices.filter(|device| is_brake(&device.name)).map(|Device { name, dir }| Brake {
        name: format!("cooling device {name}"),
        path: format!("{dir}/cur_state"),
    });
    brakes(found.collect(), format!("{THERMAL}/cooling_device*/cur_state"), plan)
}

/// A file that holds 0 unless something slows a processor down.
pub(super) struct Brake {
    /// What it is, as evidence names it.
    pub name: String,
    pub path: String,
}

/// The source of such files.
pub(super) fn brakes(brakes: Vec<Brake>, origin: String, plan: &mut Plan) -> Option<Reader> {
    if brakes.is_empty() {
        return None;
    }
    plan.add_origin("throttle", origin);
    plan.read(brakes.iter().map(|brake| File::of_driver(&brake.path)));
    found(move |answers, state| {
        let mut report = ThrottleReport::of(EvidenceKind::State);
        for brake in &brakes {
            let value = report.value_of(answers.value(&brake.path, "a state", parse::unsigned));
            if let Some(value) = value.filter(|value| *value > 0) {
                report.add(true, format!("{} is at {value} ({})", brake.name, brake.path));
            }
        }
        state.throttle(report);
    })
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
