//! Which holds can be kept together, and in which mode.
//!
//! A hold is kept if some mode meets it together with every older one that is kept: the oldest wins. Of the modes that
//! meet all that are kept the one with the least energy is chosen where there are queries (the sum over them of the
//! joules for a token), else the thriftiest.

use super::Refusal;
use super::choose::{self, Candidate};
use super::holds::Held;
use super::judge::Needs;
use crate::governor::Governor;
use crate::optimize::ModeVerdict;
use crate::snapshot::Automatic;

/// What of holds counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// What is switched for: queries only with `auto = "switch"`.
    Binding,
    /// All that is asked for.
    Asked,
}

/// The holds that are kept, and what keeps them.
#[derive(Debug)]
pub(super) struct Kept<'h, 'm> {
    /// Oldest first.
    pub(super) holds: Vec<&'h Held>,
    /// The others, oldest first: no mode meets them beside the older ones.
    pub(super) losers: Vec<&'h Held>,
    /// Modes that meet all that are kept.
    pub(super) modes: Vec<Candidate<'m>>,
}

impl Governor {
    pub(super) const fn needs<'h>(&self, held: &'h Held, scope: Scope) -> Needs<'h> {
        let counts = matches!(scope, Scope::Asked) || matches!(self.policy.auto, Automatic::Switch);
        let asked = held.asked();
        Needs { judged: if counts { asked.judged } else { None }, ..asked }
    }

    /// Modes that may be entered from here and are not among `tried`; the active one need not be entered.
    pub(super) fn possible<'m>(&self, tried: &[u32], all: &[Candidate<'m>]) -> Vec<Candidate<'m>> {
        let active = self.active_candidate(all);
        let enterable = |candidate: &Candidate<'_>| {
            self.may_enter(candidate).is_ok()
                && (candidate.view)
                    .is_none_or(|view| view.reboot_required != Some(true) && view.unreachable.is_none())
        };
        let is_active =
            |candidate: &Candidate<'_>| active.is_some_and(|active| active.mode.id == candidate.mode.id);
        (all.iter())
            .filter(|candidate| !tried.contains(&candidate.mode.id))
            .filter(|candidate| is_active(candidate) || enterable(candidate))
            .copied()
            .collect()
    }

    /// Which holds some mode of `possible` meets together.
    pub(super) fn kept<'m>(
        &self,
        scope: Scope,
        possible: &[Candidate<'m>],
        all: &[Candidate<'_>],
    ) -> Kept<'_, 'm> {
        let mut kept = Kept { holds: Vec::new(), losers: Vec::new(), modes: possible.to_vec() };
        for held in &self.power.holds {
            let needs = self.needs(held, scope);
            let meets = |mode: &Candidate<'_>| needs.unmet(mode, all).is_none();
            if kept.modes.iter().any(meets) {
                kept.modes.retain(meets);
                kept.holds.push(held);
            } else {
                kept.losers.push(held);
            }
        }
        kept
    }

    /// What the queries of these holds come to.
    pub(super) fn verdicts<'h>(&self, holds: &[&'h Held], scope: Scope) -> Vec<&'h [ModeVerdict]> {
        holds.iter().filter_map(|held| self.needs(held, scope).verdicts()).collect()
    }

    /// `mode` meets every hold that is kept.
    pub(super) fn meets_holds(&self, mode: &Candidate<'_>, all: &[Candidate<'_>]) -> bool {
        let kept = self.kept(Scope::Binding, &self.possible(&[], all), all);
        kept.holds.iter().all(|held| self.needs(held, Scope::Binding).unmet(mode, all).is_none())
    }

    /// A user's switch may not break a hold that is kept.
    pub(super) fn keeps_holds(&self, target: &Candidate<'_>, all: &[Candidate<'_>]) -> Result<(), Refusal> {
        let kept = self.kept(Scope::Binding, &self.possible(&[], all), all);
        let broken: Vec<String> = (kept.holds.iter())
            .filter_map(|held| Some((held, self.needs(held, Scope::Binding).unmet(target, all)?)))
            .map(|(held, why)| format!("{} ({why})", held.hold.app_id))
            .collect();
        if broken.is_empty() {
            return Ok(());
        }
        Err((
            "busy",
            format!(
                "{} would break the hold of {}; wait for its end, or have it released",
                target.mode.name,
                broken.join(", ")
            ),
        ))
    }

    /// The mode for every hold that is kept and for `wanted`, which may be entered and is not among `tried`.
    pub(super) fn choose_for<'m>(
        &self,
        wanted: Option<Needs<'_>>,
        scope: Scope,
        tried: &[u32],
        all: &[Candidate<'m>],
    ) -> Result<Candidate<'m>, Refusal> {
        let possible = self.possible(tried, all);
        let kept = self.kept(scope, &possible, all);
        let meets = |mode: &&Candidate<'_>| wanted.is_none_or(|wanted| wanted.unmet(mode, all).is_none());
        let together: Vec<Candidate<'m>> = kept.modes.iter().filter(meets).copied().collect();
        let mut verdicts = self.verdicts(&kept.holds, scope);
        verdicts.extend(wanted.and_then(|wanted| wanted.verdicts()));
        choose::cheapest(&together, &verdicts).copied().ok_or_else(|| {
            let alone: Vec<Candidate<'_>> = possible.iter().filter(meets).copied().collect();
            let message = if possible.is_empty() {
                "no mode may be entered from here without a reboot; allowed_modes under [control] and rooflinectl mode \
                 list show which could"
                    .to_owned()
            } else if alone.is_empty() {
                let why: Vec<String> = wanted
                    .map(|wanted| possible.iter().filter_map(|mode| wanted.unmet(mode, all)).collect())
                    .unwrap_or_default();
                format!(
                    "no mode that can be entered now meets the constraints: {}; relax them, or see rooflinectl mode list",
                    why.join("; ")
                )
            } else {
                let (whose, hint) = self.against(&kept.holds, scope, &alone, all);
                format!("{whose}; {hint}")
            };
            ("unsatisfiable", message)
        })
    }

    /// Which of `holds` leave none of the modes that somebody could have alone, and what to do about it.
    pub(super) fn against(
        &self,
        holds: &[&Held],
        scope: Scope,
        alone: &[Candidate<'_>],
        all: &[Candidate<'_>],
    ) -> (String, &'static str) {
        let excludes = |held: &&Held| {
            let needs = self.needs(held, scope);
            let reasons: Vec<String> = alone.iter().filter_map(|mode| needs.unmet(mode, all)).collect();
            (reasons.len() == alone.len()).then(|| format!("{} ({})", held.hold.app_id, reasons.join(", ")))
        };
        let single: Vec<String> = holds.iter().filter_map(excludes).collect();
        if single.is_empty() {
            let everyone: Vec<&str> = holds.iter().map(|held| held.hold.app_id.as_str()).collect();
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
    pub(super) fn complaint(&self, held: &Held, outlook: &Outlook<'_, '_>) -> Option<String> {
        let Outlook { all, possible, kept, best, .. } = outlook;
        let needs = held.asked();
        let Some(active) = self.active_candidate(all) else {
            return Some("nothing tells the mode in force".to_owned());
        };
        let why = needs.unmet(&active, all)?;
        let alone: Vec<Candidate<'_>> =
            possible.iter().filter(|mode| needs.unmet(mode, all).is_none()).copied().collect();
        Some(match best {
            _ if alone.is_empty() => format!("{why}; no mode that can be entered meets it"),
            _ if !outlook.keeps(held) => {
                let cookie = |held: &Held| held.hold.cookie;
                let before = self.power.holds.iter().take_while(|other| cookie(other) != cookie(held));
                let is_kept = |other: &&Held| kept.holds.iter().any(|kept| cookie(kept) == cookie(other));
                let older: Vec<&Held> = before.filter(is_kept).collect();
                format!("{why}; {}", self.against(&older, Scope::Asked, &alone, all).0)
            }
            Some(best) if self.policy.auto == Automatic::Advise && held.question.is_some() => {
                let best = &best.mode.name;
                format!("{why}; {best} would meet every hold, but auto is \"advise\", so nothing is switched")
            }
            _ => why,
        })
    }

    /// All that is asked for, whatever is switched for.
    pub(super) fn outlook<'h, 'm>(&'h self, all: Vec<Candidate<'m>>) -> Outlook<'h, 'm> {
        let possible = self.possible(&[], &all);
        let kept = self.kept(Scope::Asked, &possible, &all);
        let verdicts = self.verdicts(&kept.holds, Scope::Asked);
        let best = choose::cheapest(&kept.modes, &verdicts).filter(|_| !verdicts.is_empty()).copied();
        let saving_ratio = best
            .zip(self.active_candidate(&all))
            .and_then(|(best, active)| choose::saving(&active, &best, &verdicts));
        Outlook { all, possible, kept, best, saving_ratio }
    }
}

/// What the holds in force come to.
#[derive(Debug)]
pub(super) struct Outlook<'h, 'm> {
    all: Vec<Candidate<'m>>,
    possible: Vec<Candidate<'m>>,
    pub(super) kept: Kept<'h, 'm>,
    /// The mode that meets every hold that is kept at least energy; `None` where nobody holds with a query.
    pub(super) best: Option<Candidate<'m>>,
    /// Part of the energy that it saves over the mode in force.
    pub(super) saving_ratio: Option<f64>,
}

impl Outlook<'_, '_> {
    /// Some mode meets the hold together with the older ones.
    pub(super) fn keeps(&self, held: &Held) -> bool {
        self.kept.holds.iter().any(|kept| kept.hold.cookie == held.hold.cookie)
    }
}
