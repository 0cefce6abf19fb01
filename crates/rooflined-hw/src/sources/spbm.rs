//! The alarm of GB10's power controller. Its channels of power are rails of hwmon.

use super::HWMON;
use super::cooling::{Brake, brakes};
use crate::source::{DiscoveryContext, Plan, Reader};

/// `prochot`, at 0 unless the controller slows the processor down.
pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let devices = context.hwmon.iter().filter(|device| device.name == "spbm");
    let paths = devices.map(|device| format!("{}/prochot", device.dir)).filter(|path| context.has(path));
    let found = paths.map(|path| Brake { name: "prochot".into(), path });
    brakes(found.collect(), format!("{HWMON}/hwmon*/prochot"), plan)
}
