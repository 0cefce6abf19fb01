//! Verdicts of the queries of holds on each power mode. Computed again when something that decides it has changed, and not at
//! each sample.

use std::sync::Arc;

use serde_json::Value;

use super::choose::Candidate;
use crate::Governor;
use decide::optimize::{ModeVerdict, Query, QueryError};
use decide::snapshot::{HoldConstraints, Snapshot, largest_ratio};
use roofline::board::Throttle;

/// Ceilings that moved by less than this part decide nothing.
const CEILING_MOVED: f64 = 0.01;
/// Of all memory; so much more or less of it available may decide whether a model fits.
const MEMORY_MOVED: f64 = 0.05;

/// The question that a hold carries.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub query: Arc<Query>,
    /// As everybody may see it.
    pub request: Arc<Value>,
    /// As it was asked, to be asked again by the next daemon.
    pub asked: Arc<Value>,
}

/// The function of `optimize` that answers it.
pub(super) type Judge = fn(&Snapshot, &Query) -> Result<Vec<ModeVerdict>, QueryError>;

/// What a query comes to in each mode, or why that is not known.
pub(super) type Judgement = Result<Vec<ModeVerdict>, String>;

/// What somebody needs of a mode.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs<'a> {
    pub(super) constraints: &'a HoldConstraints,
    /// Of the query; `None` without one, or where it does not count.
    pub(super) judged: Option<&'a Judgement>,
}

impl<'a> Needs<'a> {
    /// The first thing that `mode` does not meet, in words; `None` where it meets everything.
    pub(super) fn unmet(&self, mode: &Candidate<'_>, all: &[Candidate<'_>]) -> Option<String> {
        mode.unmet(self.constraints, all).or_else(|| self.missed(mode))
    }

    /// What the query misses in `mode`, in words.
    fn missed(&self, mode: &Candidate<'_>) -> Option<String> {
        let name = &mode.mode.name;
        match self.judged? {
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
        self.judged.map(|judged| judged.as_deref().unwrap_or_default())
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
    /// Answers the questions of holds again if something that decides them has changed.
    pub(super) fn judge_queries(&mut self) {
        if self.power.holds.active.iter().all(|held| held.question.is_none()) {
            self.power.holds.judged_on = None;
            return;
        }
        let snapshot = self.snapshot();
        let before = self.power.holds.judged_on.as_deref();
        if before.is_some_and(|before| !matters(before, &snapshot)) {
            return;
        }
        if before.is_some_and(|before| measured_at(before) != measured_at(&snapshot)) {
            // A calibration changed what is known of the modes.
            self.power.holds.left.clear();
        }
        let judge = self.power.holds.judge;
        for held in &mut self.power.holds.active {
            held.judged = held.question.as_ref().map(|question| answered(judge, &snapshot, question));
        }
        self.power.holds.judged_on = Some(snapshot);
    }

    /// What a question comes to now.
    pub(super) fn judged(&self, question: &Question) -> Judgement {
        answered(self.power.holds.judge, &self.snapshot, question)
    }
}

fn answered(judge: Judge, snapshot: &Snapshot, question: &Question) -> Judgement {
    judge(snapshot, &question.query).map_err(|error| error.to_string())
}
