//! The alarm of GB10's power controller. Its channels of power are rails of hwmon.

use super::HWMON;
use crate::SysRoot;
use crate::answers::{Answers, File};
use crate::source::{DiscoveryContext, Source};
use crate::state::StateBuilder;
use crate::throttle::{Alarm, report};

/// `prochot`, at 0 unless the controller slows the processor down.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spbm {
    alarms: Vec<Alarm>,
}

impl Source for Spbm {
    fn discover(context: &DiscoveryContext<'_>) -> Option<Self> {
        let devices = context.hwmon.iter().filter(|device| device.name == "spbm");
        let paths = devices.map(|device| format!("{}/prochot", device.dir)).filter(|path| context.has(path));
        let alarms: Vec<Alarm> = paths.map(|path| Alarm { name: "prochot".into(), path }).collect();
        (!alarms.is_empty()).then_some(Self { alarms })
    }

    fn origins(&self, _: &SysRoot) -> Vec<(&'static str, String)> {
        vec![("throttle", format!("{HWMON}/hwmon*/prochot"))]
    }

    fn files(&self) -> Vec<File> {
        self.alarms.iter().map(|alarm| File::of_driver(&alarm.path)).collect()
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        state.throttle(report(&self.alarms, answers));
    }
}
