//! Verdicts of the queries of holds on each power mode. Computed again when something that decides it has changed, and not at
//! each sample.

use std::sync::Arc;

use super::choose::Candidate;
use super::hold::QueryAnswer;
use crate::Governor;
use rooflined_core::board::Throttle;
use rooflined_core::hold::HoldConstraints;
use rooflined_predict::optimize::ModeVerdict;
use rooflined_predict::snapshot::{Hold, HoldQuery, Snapshot, largest_ratio};

/// Ceilings that moved by less than this part decide nothing.
const CEILING_MOVED: f64 = 0.01;
/// Of all memory; so much more or less of it available may decide whether a model fits.
const MEMORY_MOVED: f64 = 0.05;

/// What somebody needs of a mode.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs<'a> {
    pub(super) constraints: &'a HoldConstraints,
    /// Of the query; `None` without one, or where it does not count.
    pub(super) answer: Option<&'a QueryAnswer>,
}

impl<'a> Needs<'a> {
    /// The first thing that `mode` does not meet, as a sentence; `None` where it meets everything.
    pub(super) fn unmet(&self, mode: &Candidate<'_>, all: &[Candidate<'_>]) -> Option<String> {
        mode.unmet(self.constraints, all).or_else(|| self.missed(mode))
    }

    /// What the query misses in `mode`, as a sentence.
    fn missed(&self, mode: &Candidate<'_>) -> Option<String> {
        let name = &mode.mode.name;
        match self.answer? {
            Err(why) => Some(format!("what {name} would give cannot be predicted ({why})")),
            Ok(verdicts) => match verdicts.iter().find(|verdict| mode.mode.is(&verdict.mode)) {
                Some(verdict) if verdict.meets => None,
                Some(verdict) if verdict.misses != ["unknown"] && !verdict.misses.is_empty() => {
                    Some(format!("{name} misses {}", verdict.misses.join(" and ")))
                }
                _ => Some(format!("what {name} would give is not known")),
            },
        }
    }

    /// What its query comes to in each mode; `None` where it has none that counts.
    pub(super) fn verdicts(&self) -> Option<&'a [ModeVerdict]> {
        self.answer.map(|answer| answer.as_deref().unwrap_or_default())
    }
}

/// Something differs that may decide what a query comes to.
fn matters(old: &Snapshot, new: &Snapshot) -> bool {
    let throttled =
        |snapshot: &Snapshot| snapshot.state.throttle.known().is_some_and(|it: &Throttle| it.active);
    let available = |snapshot: &Snapshot| snapshot.state.memory.known().map(|memory| memory.available.get());
    let total = new.state.memory.known().map_or(0.0, |memory| memory.total.get());
    let memory_moved = match (available(old), available(new)) {
        (Some(old), Some(new)) => (old - new).abs() > MEMORY_MOVED * total,
        (old, new) => old.is_some() != new.is_some(),
    };
    let moved = |old, new| (largest_ratio(old, new) - 1.0).abs() > CEILING_MOVED;
    measured_at(old) != measured_at(new)
        || throttled(old) != throttled(new)
        || memory_moved
        || !Arc::ptr_eq(&old.observed_runs, &new.observed_runs)
        || !Arc::ptr_eq(&old.residuals, &new.residuals)
        || moved(&old.roofline, &new.roofline)
        || old.modes.len() != new.modes.len()
        || (old.modes.iter().zip(new.modes.iter())).any(|(old, new)| {
            !old.mode.is(&new.mode.key())
                || old.measured_power != new.measured_power
                || old.worst_power != new.worst_power
                || moved(&old.roofline, &new.roofline)
        })
}

fn measured_at(snapshot: &Snapshot) -> Option<f64> {
    snapshot.calibration.as_ref().map(|record| record.measured_at_unix_s)
}

impl Governor {
    /// Answers the queries of holds again if something that decides them has changed.
    pub(super) fn answer_queries(&mut self) {
        if self.power.holds.active.iter().all(|held| held.query.is_none()) {
            self.power.holds.answered_on = None;
            return;
        }
        let snapshot = self.snapshot();
        let before = self.power.holds.answered_on.as_deref();
        if before.is_some_and(|before| !matters(before, &snapshot)) {
            return;
        }
        if before.is_some_and(|before| measured_at(before) != measured_at(&snapshot)) {
            // A calibration changed what is known of the modes.
            self.power.holds.left.clear();
        }
        let with_query =
            self.power.holds.active.iter().filter_map(|held| Some((held.cookie, held.query.as_ref()?)));
        let answers = with_query.map(|(cookie, query)| (cookie, self.answer_query(query))).collect();
        self.power.holds.answers = answers;
        self.power.holds.answered_on = Some(snapshot);
    }

    /// The answer to a query now.
    pub(super) fn answer_query(&self, query: &HoldQuery) -> QueryAnswer {
        (self.power.holds.answer_query)(&self.snapshot, &query.query).map_err(|error| error.to_string())
    }

    /// Everything that a hold needs, its query included.
    pub(super) fn requested_needs<'h>(&'h self, held: &'h Hold) -> Needs<'h> {
        Needs { constraints: &held.constraints, answer: self.power.holds.answers.get(&held.cookie) }
    }
}
