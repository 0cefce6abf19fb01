//! The registry of hardware.

use super::shorten;
use crate::answer::error::Code;
use crate::api::{ErrorBody, HardwareAnswer, HardwareListAnswer, HardwareSummary};
use crate::hardware::Registry;

/// `GET /v1/hardware`.
pub fn list(registry: &Registry) -> HardwareListAnswer {
    HardwareListAnswer { hardware: registry.entries().map(HardwareSummary::new).collect() }
}

/// `GET /v1/hardware/{key}`.
pub fn show(registry: &Registry, key: &str) -> Result<HardwareAnswer, ErrorBody> {
    registry.get(key).map(HardwareAnswer::new).ok_or_else(|| {
        Code::UnknownHardware.at(
            "key",
            format!("there is no hardware {:?} in the registry", shorten(key)),
            format!("did you mean {}? GET /v1/hardware lists all", registry.nearest(shorten(key))),
        )
    })
}
