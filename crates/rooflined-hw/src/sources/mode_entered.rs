//! The power mode that nvpmodel says it entered last.

use crate::answers::File;
use crate::source::{DiscoveryContext, Plan, Reader, found};
use rooflined_core::board::nvpmodel;

/// Written at every switch; absent before the first.
const STATUS: &str = "/var/lib/nvpmodel/status";

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    if !context.has_modes {
        return None;
    }
    plan.add_origin("power_mode", STATUS);
    plan.read([File::of_driver(STATUS)]);
    found(|answers, state| {
        state.mode_entered = answers.text(STATUS).ok().and_then(nvpmodel::parse_status);
    })
}
