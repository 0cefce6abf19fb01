//! What clients are shown of power modes.

use super::choose::Candidate;
use super::holds::Held;
use super::keep::Outlook;
use super::{Governor, PowerState};
use crate::board::Reading;
use crate::snapshot::{Advice, Hold, PowerControl, Snapshot};
use crate::units::Watts;

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
            auto: self.policy.auto,
            switching: flight.as_ref().and_then(|flight| flight.target.clone()),
            pending: pending.clone(),
            holds: if holds.is_empty() { Vec::new() } else { self.shown_holds() },
            last: last.clone(),
            unavailable: self.unavailable(),
        }
    }

    fn shown_holds(&self) -> Vec<Hold> {
        // The snapshot of before: its modes change far more rarely than holds do.
        let outlook = self.outlook(candidates(&self.snapshot));
        let shown = self.power.holds.iter().map(|held| {
            let unmet = self.complaint(held, &outlook);
            let advice =
                outlook.best.filter(|_| outlook.keeps(held)).map(|best| advice(held, &best, &outlook));
            Hold { satisfied: unmet.is_none(), unmet, advice, ..held.hold.clone() }
        });
        shown.collect()
    }
}

fn advice(held: &Held, best: &Candidate<'_>, outlook: &Outlook<'_, '_>) -> Advice {
    let verdicts = held.asked().verdicts().unwrap_or_default();
    let verdict = verdicts.iter().find(|verdict| verdict.mode == best.mode.id);
    Advice {
        mode: best.mode.name.clone(),
        tokens_per_s: verdict.and_then(|verdict| verdict.tokens_per_s),
        power: verdict.and_then(|verdict| verdict.power_w).map(Watts),
        energy_j_per_token: verdict.and_then(|verdict| verdict.energy_j_per_token),
        saving_ratio: outlook.saving_ratio,
    }
}
