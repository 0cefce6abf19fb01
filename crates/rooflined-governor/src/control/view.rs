//! Power modes and holds as the snapshot shows them to clients.

use super::arbitration::HoldVerdict;
use super::choose::Candidate;
use super::state::PowerState;
use crate::Governor;
use rooflined_core::board::Reading;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::Watts;
use rooflined_predict::snapshot::{Advice, Hold, PowerControl, Snapshot};

/// Every mode of the machine with what is known of it, in the order of the file.
pub(super) fn candidates(snapshot: &Snapshot) -> Vec<Candidate<'_>> {
    let gpu_clock_limit = snapshot.board.gpu.known().and_then(|gpu| gpu.max_clock.known()).copied();
    let views = snapshot.modes.as_slice();
    (snapshot.board.power_modes().iter())
        .map(|mode| {
            let view = views.iter().find(|view| view.mode.is(&mode.key()));
            Candidate { mode, view, gpu_clock_limit }
        })
        .collect()
}

impl Governor {
    /// Why modes cannot be switched at all, ending with the remedy.
    pub(super) fn unavailable(&self) -> Option<String> {
        let problem = || self.power.helper.problem().map(ToString::to_string);
        self.no_modes().map(|refusal| refusal.to_string()).or_else(problem)
    }

    /// Why there is nothing to switch to.
    pub(super) fn no_modes(&self) -> Option<Refusal> {
        match &self.board.modes {
            Reading::Known(modes) if !modes.modes.is_empty() => None,
            Reading::Known(modes) => Some(Code::ControlUnavailable.error(
                format!("{} holds no power mode that can be read", modes.source),
                "rooflinectl mode list --conf shows why",
            )),
            Reading::Absent { reason } | Reading::Failed { reason } => Some(Code::ControlUnavailable.error(
                format!("this machine has no power modes ({reason})"),
                "clock_modes under [control] declares some",
            )),
        }
    }

    /// The part of the snapshot that this module fills.
    pub(crate) fn power_control(&self) -> PowerControl {
        let PowerState { stage, mode, .. } = &self.power;
        PowerControl {
            cause: mode.cause,
            auto: self.policy.auto,
            switching: stage.in_flight().and_then(|order| order.purpose.target()).map(str::to_owned),
            pending: stage.pending().map(|pending| pending.confirmation.clone()),
            holds: self.hold_views(),
            last: mode.report.clone(),
            unavailable: self.unavailable(),
        }
    }

    pub(super) fn hold_views(&self) -> Vec<Hold> {
        if self.power.holds.active.is_empty() {
            return Vec::new();
        }
        // The previous snapshot: its modes change far more rarely than holds do.
        let hold_verdict = self.hold_verdict(candidates(&self.snapshot));
        let views = self.power.holds.active.iter().map(|held| {
            let unmet = self.complaint(held, &hold_verdict);
            let advice = hold_verdict
                .best
                .filter(|_| hold_verdict.keeps(held))
                .map(|best| self.advise(held, &best, &hold_verdict));
            Hold { satisfied: unmet.is_none(), unmet, advice, ..held.clone() }
        });
        views.collect()
    }

    fn advise(&self, held: &Hold, best: &Candidate<'_>, hold_verdict: &HoldVerdict<'_, '_>) -> Advice {
        let verdicts = self.requested_needs(held).verdicts().unwrap_or_default();
        let verdict = verdicts.iter().find(|verdict| best.mode.is(&verdict.mode));
        Advice {
            mode: best.mode.name.clone(),
            tokens_per_s: verdict.and_then(|verdict| verdict.tokens_per_s),
            power: verdict.and_then(|verdict| verdict.power_w).map(Watts),
            energy_j_per_token: verdict.and_then(|verdict| verdict.energy_j_per_token),
            saving_ratio: hold_verdict.saving_ratio,
        }
    }
}
