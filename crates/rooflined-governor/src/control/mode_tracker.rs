//! What is known of the power mode in force.

use rooflined_core::board::{ActiveMode, BoardState, SwitchReport};
use rooflined_core::units::Seconds;
use rooflined_predict::snapshot::ModeCause;

/// What this program knows of the mode in force.
#[derive(Debug)]
pub(super) struct ModeTracker {
    pub(super) cause: ModeCause,
    /// `None` while nothing has shown a mode.
    pub(super) expected: Option<Expected>,
    /// End of the last switch; earlier readings do not count.
    pub(super) switched_at: Seconds,
    /// Of the last switch.
    pub(super) report: Option<SwitchReport>,
}

/// The mode that is active unless somebody else has switched.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) mode: ActiveMode,
    /// Readings in a row that showed another one.
    pub(super) deviations: u32,
}

impl ModeTracker {
    /// At start: what is active is taken for meant.
    pub(super) fn new(state: &BoardState) -> Self {
        Self {
            cause: ModeCause::default(),
            expected: state.power_mode.known().cloned().map(Expected::new),
            switched_at: Seconds::ZERO,
            report: None,
        }
    }

    pub(super) fn mode(&self) -> Option<&ActiveMode> {
        self.expected.as_ref().map(|expected| &expected.mode)
    }
}

impl Expected {
    pub(super) const fn new(mode: ActiveMode) -> Self {
        Self { mode, deviations: 0 }
    }
}
