//! The power mode that nvpmodel says it entered last.

use crate::SysRoot;
use crate::answers::{Answers, File};
use crate::source::{DiscoveryContext, Source};
use crate::state::StateBuilder;
use rooflined_core::board::nvpmodel;

/// Written at every switch; absent before the first.
const STATUS: &str = "/var/lib/nvpmodel/status";

/// nvpmodel's status file, on a machine with power modes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ModeEntered;

impl Source for ModeEntered {
    fn discover(context: &DiscoveryContext<'_>) -> Option<Self> {
        context.has_modes.then_some(Self)
    }

    fn origins(&self, _: &SysRoot) -> Vec<(&'static str, String)> {
        vec![("power_mode", STATUS.into())]
    }

    fn files(&self) -> Vec<File> {
        vec![File::of_driver(STATUS)]
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        state.mode_entered = answers.text(STATUS).ok().and_then(nvpmodel::parse_status);
    }
}
