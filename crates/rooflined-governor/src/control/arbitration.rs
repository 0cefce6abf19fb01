//! Which holds can be kept together, and in which mode.
//!
//! A hold is kept if some mode meets it together with every older one that is kept: the oldest wins. Of the modes that
//! meet all that are kept the one with the least energy is chosen where there are queries (the sum over them of the
//! joules for a token), else the one with the lowest power.

use super::choose::{self, Candidate};
use super::queries::Needs;
use crate::Governor;
use rooflined_core::board::ActiveMode;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_predict::optimize::ModeVerdict;
use rooflined_predict::snapshot::{Automatic, Hold};

/// What of holds counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// What is switched for: queries only with `auto = "switch"`.
    Binding,
    /// All that is asked for.
    Requested,
}

/// The holds that are kept, and what keeps them.
#[derive(Debug)]
pub(super) struct Arbitration<'h, 'm> {
    /// Oldest first.
    pub(super) kept: Vec<&'h Hold>,
    /// The others, oldest first: no mode meets them beside the older ones.
    pub(super) losers: Vec<&'h Hold>,
    /// Modes that meet all that are kept.
    pub(super) modes: Vec<Candidate<'m>>,
}

impl Governor {
    pub(super) fn needs<'h>(&'h self, held: &'h Hold, scope: Scope) -> Needs<'h> {
        let counts = matches!(scope, Scope::Requested) || matches!(self.policy.auto, Automatic::Switch);
        let requested = self.requested_needs(held);
        Needs { answer: requested.answer.filter(|_| counts), ..requested }
    }

    /// Modes that may be entered from here and are not among `tried`; the active one need not be entered.
    pub(super) fn possible<'m>(&self, tried: &[ActiveMode], all: &[Candidate<'m>]) -> Vec<Candidate<'m>> {
        let active = self.active_candidate(all);
        let enterable = |candidate: &Candidate<'_>| {
            self.may_enter(candidate).is_ok()
                && (candidate.view)
                    .is_none_or(|view| view.reboot_required != Some(true) && view.unreachable.is_none())
        };
        let is_active =
            |candidate: &Candidate<'_>| active.is_some_and(|active| active.mode.is(&candidate.mode.key()));
        (all.iter())
            .filter(|candidate| !tried.iter().any(|mode| candidate.mode.is(mode)))
            .filter(|candidate| is_active(candidate) || enterable(candidate))
            .copied()
            .collect()
    }

    /// Which holds some mode of `possible` meets together.
    pub(super) fn arbitrate<'m>(
        &self,
        scope: Scope,
        possible: &[Candidate<'m>],
        all: &[Candidate<'_>],
    ) -> Arbitration<'_, 'm> {
        let mut arbitration = Arbitration { kept: Vec::new(), losers: Vec::new(), modes: possible.to_vec() };
        for held in &self.power.holds.active {
            let needs = self.needs(held, scope);
            let meets = |mode: &Candidate<'_>| needs.unmet(mode, all).is_none();
            if arbitration.modes.iter().any(meets) {
                arbitration.modes.retain(meets);
                arbitration.kept.push(held);
            } else {
                arbitration.losers.push(held);
            }
        }
        arbitration
    }

    /// What the queries of these holds come to.
    pub(super) fn verdicts<'h>(&'h self, holds: &[&'h Hold], scope: Scope) -> Vec<&'h [ModeVerdict]> {
        holds.iter().filter_map(|held| self.needs(held, scope).verdicts()).collect()
    }

    /// `mode` meets every hold that is kept.
    pub(super) fn meets_holds(&self, mode: &Candidate<'_>, all: &[Candidate<'_>]) -> bool {
        let arbitration = self.arbitrate(Scope::Binding, &self.possible(&[], all), all);
        arbitration.kept.iter().all(|held| self.needs(held, Scope::Binding).unmet(mode, all).is_none())
    }

    /// A user's switch may not break a hold that is kept.
    pub(super) fn keeps_holds(&self, target: &Candidate<'_>, all: &[Candidate<'_>]) -> Result<(), Refusal> {
        let arbitration = self.arbitrate(Scope::Binding, &self.possible(&[], all), all);
        let broken: Vec<String> = (arbitration.kept.iter())
            .filter_map(|held| Some((held, self.needs(held, Scope::Binding).unmet(target, all)?)))
            .map(|(held, why)| format!("{} ({why})", held.app_id))
            .collect();
        if broken.is_empty() {
            return Ok(());
        }
        Err(Code::Busy.error(
            format!("{} would break the hold of {}", target.mode.name, broken.join(", ")),
            "wait for its end, or have it released",
        ))
    }

    /// The mode for every hold that is kept and for `wanted`, which may be entered and is not among `tried`.
    pub(super) fn choose_for<'m>(
        &self,
        wanted: Option<Needs<'_>>,
        scope: Scope,
        tried: &[ActiveMode],
        all: &[Candidate<'m>],
    ) -> Result<Candidate<'m>, Refusal> {
        let possible = self.possible(tried, all);
        let arbitration = self.arbitrate(scope, &possible, all);
        let meets = |mode: &&Candidate<'_>| wanted.is_none_or(|wanted| wanted.unmet(mode, all).is_none());
        let together: Vec<Candidate<'m>> = arbitration.modes.iter().filter(meets).copied().collect();
        let mut verdicts = self.verdicts(&arbitration.kept, scope);
        verdicts.extend(wanted.and_then(|wanted| wanted.verdicts()));
        choose::cheapest(&together, &verdicts).copied().ok_or_else(|| {
            let alone: Vec<Candidate<'_>> = possible.iter().filter(meets).copied().collect();
            let (message, hint) = if possible.is_empty() {
                (
                    "no mode may be entered from here without a reboot".to_owned(),
                    "allowed_modes under [control] and rooflinectl mode list show which could",
                )
            } else if alone.is_empty() {
                let why: Vec<String> = wanted
                    .map(|wanted| possible.iter().filter_map(|mode| wanted.unmet(mode, all)).collect())
                    .unwrap_or_default();
                let is_power_estimated = wanted.is_some_and(|wanted| wanted.constraints.max_power.is_some())
                    && possible.iter().any(Candidate::has_estimated_power);
                (
                    format!("no mode that can be entered now meets the constraints: {}", why.join("; ")),
                    if is_power_estimated {
                        "measure the power of the modes first with rooflinectl hold --calibrate, or raise the limit"
                    } else {
                        "relax them, or see rooflinectl mode list"
                    },
                )
            } else {
                self.against(&arbitration.kept, scope, &alone, all)
            };
            Code::Unsatisfiable.error(message, hint)
        })
    }

    /// Which of `holds` leave none of the modes that somebody could have alone, and what to do about it.
    pub(super) fn against(
        &self,
        holds: &[&Hold],
        scope: Scope,
        alone: &[Candidate<'_>],
        all: &[Candidate<'_>],
    ) -> (String, &'static str) {
        let excludes = |held: &&Hold| {
            let needs = self.needs(held, scope);
            let reasons: Vec<String> = alone.iter().filter_map(|mode| needs.unmet(mode, all)).collect();
            (reasons.len() == alone.len()).then(|| format!("{} ({})", held.app_id, reasons.join(", ")))
        };
        let single: Vec<String> = holds.iter().filter_map(excludes).collect();
        if single.is_empty() {
            let everyone: Vec<&str> = holds.iter().map(|held| held.app_id.as_str()).collect();
            let everyone = everyone.join(", ");
            return (
                format!("the holds of {everyone} together leave no such mode"),
                "relax it, or wait for their end",
            );
        }
        (
            format!("it contradicts the hold of {}", single.join(", ")),
            "relax it, or wait for the end of that hold",
        )
    }

    /// Who holds whose needs the mode in force does not meet, and why: the mode, the constraint, and whose hold stands
    /// against it.
    pub(super) fn complaint(&self, held: &Hold, hold_verdict: &HoldVerdict<'_, '_>) -> Option<String> {
        let HoldVerdict { all, possible, arbitration, best, .. } = hold_verdict;
        let needs = self.requested_needs(held);
        let Some(active) = self.active_candidate(all) else {
            return Some("the active power mode is not known".to_owned());
        };
        let why = needs.unmet(&active, all)?;
        let alone: Vec<Candidate<'_>> =
            possible.iter().filter(|mode| needs.unmet(mode, all).is_none()).copied().collect();
        Some(match best {
            _ if alone.is_empty() => format!("{why}; no mode that can be entered meets it"),
            _ if !hold_verdict.keeps(held) => {
                let cookie = |held: &Hold| held.cookie;
                let before = self.power.holds.active.iter().take_while(|other| cookie(other) != cookie(held));
                let is_kept =
                    |other: &&Hold| arbitration.kept.iter().any(|kept| cookie(kept) == cookie(other));
                let older: Vec<&Hold> = before.filter(is_kept).collect();
                format!("{why}; {}", self.against(&older, Scope::Requested, &alone, all).0)
            }
            Some(best) if self.policy.auto == Automatic::Advise && held.query.is_some() => {
                let best = &best.mode.name;
                format!("{why}; {best} would meet every hold, but auto is \"advise\", so nothing is switched")
            }
            _ => why,
        })
    }

    /// All that is asked for, whatever is switched for.
    pub(super) fn hold_verdict<'h, 'm>(&'h self, all: Vec<Candidate<'m>>) -> HoldVerdict<'h, 'm> {
        let possible = self.possible(&[], &all);
        let arbitration = self.arbitrate(Scope::Requested, &possible, &all);
        let verdicts = self.verdicts(&arbitration.kept, Scope::Requested);
        let best = choose::cheapest(&arbitration.modes, &verdicts).filter(|_| !verdicts.is_empty()).copied();
        let saving_ratio = best
            .zip(self.active_candidate(&all))
            .and_then(|(best, active)| choose::saving(&active, &best, &verdicts));
        HoldVerdict { all, possible, arbitration, best, saving_ratio }
    }
}

/// What the holds in force come to.
#[derive(Debug)]
pub(super) struct HoldVerdict<'h, 'm> {
    all: Vec<Candidate<'m>>,
    possible: Vec<Candidate<'m>>,
    pub(super) arbitration: Arbitration<'h, 'm>,
    /// The mode that meets every hold that is kept at least energy; `None` where nobody holds with a query.
    pub(super) best: Option<Candidate<'m>>,
    /// Part of the energy that it saves over the mode in force.
    pub(super) saving_ratio: Option<f64>,
}

impl HoldVerdict<'_, '_> {
    /// Some mode meets the hold together with the older ones.
    pub(super) fn keeps(&self, held: &Hold) -> bool {
        self.arbitration.kept.iter().any(|kept| kept.cookie == held.cookie)
    }
}
