//! What clients are shown of power modes.

use super::choose::Candidate;
use super::{Governor, PowerState};
use crate::board::Reading;
use crate::snapshot::{Hold, PowerControl, Snapshot};

/// Every mode of the machine with what is known of it, in the order of the file.
pub(super) fn candidates(snapshot: &Snapshot) -> Vec<Candidate<'_>> {
    let gpu_clock_limit = snapshot.board.gpu.known().and_then(|gpu| gpu.max_clock.known()).copied();
    let views = snapshot.modes.as_slice();
    (snapshot.board.power_modes().iter())
        .map(|mode| {
            let view = views.iter().find(|view| view.mode.id == mode.id && view.mode.name == mode.name);
            Candidate { mode, view, gpu_clock_limit }
        })
        .collect()
}

impl Governor {
    /// Why modes cannot be switched at all, ending with the remedy.
    pub(super) fn unavailable(&self) -> Option<String> {
        match &self.board.modes {
            Reading::Known(modes) if !modes.modes.is_empty() => self.power.problem.clone(),
            Reading::Known(modes) => Some(format!(
                "{} names no power mode that could be understood; rooflinectl mode list --conf shows why",
                modes.source
            )),
            Reading::Absent { reason } | Reading::Failed { reason } => Some(format!(
                "this machine has no power modes ({reason}); clock_modes under [control] declares some"
            )),
        }
    }

    /// The part of the snapshot that this module fills.
    pub(in crate::governor) fn power_control(&self) -> PowerControl {
        let PowerState { cause, holds, pending, flight, last, .. } = &self.power;
        PowerControl {
            cause: *cause,
            switching: flight.as_ref().and_then(|flight| flight.target.clone()),
            pending: pending.clone(),
            holds: holds.iter().map(|held| self.shown(&held.hold)).collect(),
            last: last.clone(),
            unavailable: self.unavailable(),
        }
    }

    fn shown(&self, hold: &Hold) -> Hold {
        // The snapshot of before: its modes change far more rarely than holds do.
        let all = candidates(&self.snapshot);
        let active = self.state.power_mode.known();
        let satisfied = active.is_some_and(|active| {
            let candidate = all.iter().find(|candidate| candidate.mode.id == active.id);
            candidate.is_some_and(|candidate| candidate.unmet(&hold.constraints, &all).is_none())
        });
        Hold { satisfied, ..hold.clone() }
    }
}
