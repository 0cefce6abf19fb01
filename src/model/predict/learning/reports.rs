//! Whom to believe: what everybody believes, and what each user reported besides.
//!
//! A report of root, of the daemon's own user or of a member of its group is believed by everybody. Any other moves the
//! answers of its user alone, until one of them confirms it or [`AGREEING_USERS`](super::report::AGREEING_USERS) users report
//! the same: then the report in the middle of theirs is believed. Each user has a share of the store, so whoever reports
//! much makes only reports of its own leave.
//!
//! A user's view is what everybody believes with the user's reports laid over it. It is worked out when it is first asked
//! for, and again only after either has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::models::{Measured, ObservationOutcome, ObservedRuns, StoredRun};
use super::report::{Report, Reporter, Selection, Source, agreed, lower_median, too_many_users};
use super::vet::Refused;
use super::{OpReport, Refused as RefusedOp, ResidualKey, Residuals};
use crate::{Engine, Prediction};
use roofline::refusal::Refusal;
use roofline::units::Seconds;
use roofline::workload::Op;

/// Most users whose reports are kept beside what everybody believes.
pub const MAX_USERS: usize = 16;
/// Most runs of models kept of one user; the oldest leave first.
pub const MAX_RUNS_OF_USER: usize = 64;
/// Most times of operations kept of one user.
pub const MAX_OPS_OF_USER: usize = 256;

/// What is learnt from, as one user sees it.
#[derive(Debug, Clone)]
pub struct View {
    /// Of operations.
    pub residuals: Arc<Residuals>,
    /// Of models.
    pub observed_runs: Arc<ObservedRuns>,
}

/// Reports of one user that nobody else believes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct User {
    ops: Vec<Arc<OpReport>>,
    runs: Vec<Arc<StoredRun>>,
    #[serde(skip)]
    view: Arc<OnceLock<View>>,
}

impl User {
    /// Times of operations, oldest first.
    pub fn ops(&self) -> impl Iterator<Item = &Arc<OpReport>> {
        self.ops.iter()
    }

    /// Runs of models, oldest first.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<StoredRun>> {
        self.runs.iter()
    }

    fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.runs.is_empty()
    }
}

/// Reports of users that move their own answers only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Reports {
    machine: Option<String>,
    /// Number of the newest report of all, those included that everybody believes.
    last_id: u64,
    /// Runs of users that were refused.
    refused: u64,
    users: BTreeMap<u32, User>,
}

impl Reports {
    /// What was reported on `machine`, nothing otherwise.
    #[must_use]
    pub fn of(self, machine: String) -> Self {
        if self.machine.as_ref() == Some(&machine) {
            return self;
        }
        Self { machine: Some(machine), ..Self::default() }
    }

    /// Why what was read from a file cannot be used.
    ///
    /// # Errors
    /// A number that no measurement can have led to, or more than is ever kept.
    pub fn check(&self) -> Result<(), String> {
        let most = |user: &User| user.ops.len() <= MAX_OPS_OF_USER && user.runs.len() <= MAX_RUNS_OF_USER;
        if self.users.len() > MAX_USERS || !self.users.values().all(most) {
            return Err("it holds more than is ever kept".into());
        }
        let own = |uid: u32, report: &Report| {
            report.source.is_own() && report.source.uid() == Some(uid) && report.id <= self.last_id
        };
        let sound = |(uid, user): (&u32, &User)| {
            user.ops.iter().all(|op| own(*uid, &op.report) && op.is_sound())
                && user.runs.iter().all(|run| own(*uid, &run.report()) && run.is_sound())
        };
        if self.users.iter().all(sound) {
            return Ok(());
        }
        Err("it holds a report that nobody can have made".into())
    }

    /// Whether no user's answers differ from anybody else's.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Users with reports that nobody else believes.
    pub fn users(&self) -> impl Iterator<Item = (u32, &User)> {
        self.users.iter().map(|(uid, user)| (*uid, user))
    }

    /// Runs of users that were refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// What one user learns from, over what everybody believes; `None` where that is all.
    #[must_use]
    pub fn view(
        &self,
        uid: u32,
        residuals: &Arc<Residuals>,
        observed_runs: &Arc<ObservedRuns>,
    ) -> Option<&View> {
        let user = self.users.get(&uid)?;
        Some(user.view.get_or_init(|| View {
            residuals: match user.ops.as_slice() {
                [] => Arc::clone(residuals),
                own => Arc::new(residuals.with_own(own)),
            },
            observed_runs: match user.runs.as_slice() {
                [] => Arc::clone(observed_runs),
                own => Arc::new(observed_runs.with_own(own)),
            },
        }))
    }

    /// The user's entry, if there is a place for it.
    fn entry(&mut self, uid: u32) -> Result<&mut User, Refusal> {
        if self.users.len() >= MAX_USERS && !self.users.contains_key(&uid) {
            return Err(too_many_users(MAX_USERS));
        }
        Ok(self.users.entry(uid).or_default())
    }
}

/// What a change of [`Learnt`] leaves to be stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changed {
    pub residuals: bool,
    pub observed_runs: bool,
    pub reports: bool,
}

impl std::ops::BitOrAssign for Changed {
    fn bitor_assign(&mut self, other: Self) {
        self.residuals |= other.residuals;
        self.observed_runs |= other.observed_runs;
        self.reports |= other.reports;
    }
}

/// What a request to learn from runs came to.
#[derive(Debug)]
pub struct LearntFromRuns {
    pub outcomes: Vec<Result<ObservationOutcome, Refused>>,
    pub changed: Changed,
}

/// Everything that was learnt on one machine.
#[derive(Debug, Clone)]
pub struct Learnt {
    /// Of operations, as everybody believes it.
    pub residuals: Arc<Residuals>,
    /// Of models, as everybody believes it.
    pub observed_runs: Arc<ObservedRuns>,
    /// What only those who reported it believe.
    pub reports: Arc<Reports>,
}

impl Learnt {
    /// What an earlier run of the daemon stored, as far as it is of `machine`.
    #[must_use]
    pub fn on(machine: &str, residuals: Residuals, observed_runs: ObservedRuns, reports: Reports) -> Self {
        let residuals = residuals.of(machine.to_owned());
        let observed_runs = observed_runs.of(machine.to_owned());
        let mut reports = reports.of(machine.to_owned());
        let of_ops = residuals.reports().map(|op| op.report.id).max().unwrap_or(0);
        reports.last_id = reports.last_id.max(of_ops).max(observed_runs.last_id());
        Self {
            residuals: Arc::new(residuals),
            observed_runs: Arc::new(observed_runs),
            reports: Arc::new(reports),
        }
    }

    /// What `uid` learns from.
    #[must_use]
    pub fn view(&self, uid: u32) -> View {
        let own = self.reports.view(uid, &self.residuals, &self.observed_runs);
        own.cloned().unwrap_or_else(|| View {
            residuals: Arc::clone(&self.residuals),
            observed_runs: Arc::clone(&self.observed_runs),
        })
    }

    fn next_id(&mut self) -> u64 {
        let reports = Arc::make_mut(&mut self.reports);
        reports.last_id += 1;
        reports.last_id
    }

    /// What everybody believes has changed, so that every view has.
    fn renew_views(&mut self) {
        if !self.reports.users.is_empty() {
            for user in Arc::make_mut(&mut self.reports).users.values_mut() {
                user.view = Arc::default();
            }
        }
    }

    /// Learns from a measured time of an operation, `predicted` being without what was learnt.
    ///
    /// # Errors
    /// Why not.
    pub fn observe_op(
        &mut self,
        by: &Reporter,
        op: Op,
        key: ResidualKey,
        predicted: &Prediction,
        time: Seconds,
        unix_s: f64,
    ) -> Result<Result<Changed, RefusedOp>, Refusal> {
        let (source, known) = (Source::of(by), self.view(by.uid).residuals);
        let report = Report { id: self.reports.last_id + 1, source, unix_s };
        let vetted = match known.vetted(report, key, Some(op), predicted, time) {
            Ok(vetted) => Arc::new(vetted),
            Err(refused) => return Ok(Err(refused)),
        };
        if by.trusted {
            self.next_id();
            let known = Arc::make_mut(&mut self.residuals);
            // Who is believed anyway needs no others to agree.
            known.forget_agreed(&vetted.key);
            known.admit(vetted);
            self.renew_views();
            return Ok(Ok(Changed { residuals: true, ..Changed::default() }));
        }
        let user = Arc::make_mut(&mut self.reports).entry(by.uid)?;
        user.ops.push(Arc::clone(&vetted));
        if user.ops.len() > MAX_OPS_OF_USER {
            user.ops.remove(0);
        }
        user.view = Arc::default();
        self.next_id();
        let residuals = self.agree_on_op(&vetted.key, false);
        Ok(Ok(Changed { residuals, reports: true, ..Changed::default() }))
    }

    /// Learns from measured runs of models.
    ///
    /// # Errors
    /// There is no place for another user.
    pub fn observe_runs(
        &mut self,
        by: &Reporter,
        runs: &[Measured],
        unix_s: f64,
    ) -> Result<LearntFromRuns, Refusal> {
        let (source, last) = (Source::of(by), self.reports.last_id);
        if by.trusted {
            let known = Arc::make_mut(&mut self.observed_runs);
            known.number_after(last);
            let outcomes = known.observe_from(&source, runs, unix_s);
            // Who is believed anyway needs no others to agree.
            let newest: Vec<_> = known.runs().filter(|run| run.report().id > last).cloned().collect();
            known.forget(|run| {
                matches!(run.report().source, Source::Agreed { .. })
                    && newest.iter().any(|new| new.is_like(run))
            });
            Arc::make_mut(&mut self.reports).last_id = self.observed_runs.last_id();
            self.renew_views();
            let changed = Changed { observed_runs: true, reports: true, ..Changed::default() };
            return Ok(LearntFromRuns { outcomes, changed });
        }
        let base = self.view(by.uid);
        let reports = Arc::make_mut(&mut self.reports);
        let user = reports.entry(by.uid)?;
        let mut known = ObservedRuns::clone(&base.observed_runs);
        known.number_after(last);
        let outcomes = known.observe_from(&source, runs, unix_s);
        user.runs = known.runs().filter(|run| run.report().source.is_own()).cloned().collect();
        let newest: Vec<_> = user.runs.iter().filter(|run| run.report().id > last).cloned().collect();
        let last = known.last_id();
        let view = View { observed_runs: Arc::new(known), ..base };
        user.view = Arc::new(OnceLock::from(view));
        if user.runs.len() > MAX_RUNS_OF_USER {
            user.runs.drain(..user.runs.len() - MAX_RUNS_OF_USER);
            user.view = Arc::default();
        }
        if user.is_empty() {
            reports.users.remove(&by.uid);
        }
        reports.last_id = last;
        reports.refused += outcomes.iter().filter(|outcome| outcome.is_err()).count() as u64;
        let observed_runs = self.agree_on_runs(&newest, false);
        Ok(LearntFromRuns {
            outcomes,
            changed: Changed { observed_runs, reports: true, ..Changed::default() },
        })
    }

    /// Has everybody believe what independent users agree on about the workloads of `about`, and no longer believe it where
    /// `withdrawn` reports leave too few. True if anything changed.
    fn agree_on_runs(&mut self, about: &[Arc<StoredRun>], withdrawn: bool) -> bool {
        let mut changed = false;
        for (index, run) in about.iter().enumerate() {
            if about[..index].iter().any(|earlier| earlier.is_like(run)) {
                continue;
            }
            let standing = || self.observed_runs.runs().filter(|known| known.is_like(run));
            let is_agreed = |known: &&Arc<StoredRun>| matches!(known.report().source, Source::Agreed { .. });
            if standing().any(|known| !is_agreed(&known)) {
                continue;
            }
            let log = |run: &Arc<StoredRun>| run.time().get().ln();
            let middle = |user: &User| {
                let alike: Vec<_> = user.runs.iter().filter(|own| own.is_like(run)).cloned().collect();
                lower_median(&alike, log)
            };
            let voters: Vec<_> = self.reports.users.values().filter_map(middle).collect();
            let before = standing().find(is_agreed).cloned();
            let after = agreed(&voters, log).map(|(run, users)| {
                let users = u32::try_from(users).unwrap_or(u32::MAX);
                (run, Source::Agreed { users })
            });
            let same = match (&before, &after) {
                (Some(before), Some((run, source))) => {
                    before.time() == run.time() && before.report().source == *source
                }
                (None, None) => true,
                (Some(_), None) => !withdrawn,
                (None, Some(_)) => false,
            };
            if same {
                continue;
            }
            let id = self.next_id();
            let known = Arc::make_mut(&mut self.observed_runs);
            if let Some(before) = before {
                known.forget(|run| run.report().id == before.report().id);
            }
            if let Some((run, source)) = after {
                known.believe(run.believed(id, source));
            }
            changed = true;
        }
        if changed {
            self.renew_views();
        }
        changed
    }

    /// The same of the operations of a key.
    fn agree_on_op(&mut self, key: &ResidualKey, withdrawn: bool) -> bool {
        let standing = || self.residuals.reports().filter(|known| known.key == *key);
        let is_agreed = |known: &&Arc<OpReport>| matches!(known.report.source, Source::Agreed { .. });
        if standing().any(|known| !is_agreed(&known)) {
            return false;
        }
        let log = |op: &Arc<OpReport>| op.log_ratio;
        let middle = |user: &User| {
            let alike: Vec<_> = user.ops.iter().filter(|own| own.key == *key).cloned().collect();
            lower_median(&alike, log)
        };
        let voters: Vec<_> = self.reports.users.values().filter_map(middle).collect();
        let before = standing().find(is_agreed).map(|before| (before.report.clone(), before.log_ratio));
        let after = agreed(&voters, log).map(|(op, users)| {
            let source = Source::Agreed { users: u32::try_from(users).unwrap_or(u32::MAX) };
            (op, source)
        });
        let same = match (&before, &after) {
            (Some((report, ratio)), Some((op, source))) => *ratio == op.log_ratio && report.source == *source,
            (None, None) => true,
            (Some(_), None) => !withdrawn,
            (None, Some(_)) => false,
        };
        if same {
            return false;
        }
        let id = self.next_id();
        let known = Arc::make_mut(&mut self.residuals);
        if let Some((before, _)) = before {
            known.forget(&Selection { id: Some(before.id), ..Selection::default() });
        }
        if let Some((op, source)) = after {
            known.admit(Arc::new(op.believed(id, source)));
        }
        self.renew_views();
        true
    }

    /// Forgets the reports that are meant: how many, and what that changed.
    pub fn forget(&mut self, which: &Selection) -> (usize, Changed) {
        let (mut count, mut changed) = (0, Changed::default());
        if self.residuals.has(which) {
            count += Arc::make_mut(&mut self.residuals).forget(which);
            changed.residuals = true;
        }
        if self.observed_runs.runs().any(|run| run.is_selected(which)) {
            count += Arc::make_mut(&mut self.observed_runs).forget(|run| run.is_selected(which)).len();
            changed.observed_runs = true;
        }
        let (mut gone_ops, mut gone_runs) = (Vec::new(), Vec::new());
        let mine = |uid: u32| which.uid.is_none_or(|wanted| wanted == uid);
        if self.reports.users.keys().any(|uid| mine(*uid)) {
            let users = &mut Arc::make_mut(&mut self.reports).users;
            for (_, user) in users.iter_mut().filter(|(uid, _)| mine(**uid)) {
                user.forget(which, &mut gone_ops, &mut gone_runs);
            }
            users.retain(|_, user| !user.is_empty());
        }
        if changed != Changed::default() {
            self.renew_views();
        }
        count += gone_ops.len() + gone_runs.len();
        changed.reports = !(gone_ops.is_empty() && gone_runs.is_empty());
        let keys: BTreeSet<ResidualKey> = gone_ops.into_iter().map(|op| op.key.clone()).collect();
        for key in keys {
            changed.residuals |= self.agree_on_op(&key, true);
        }
        changed.observed_runs |= self.agree_on_runs(&gone_runs, true);
        (count, changed)
    }

    /// Has everybody believe a user's report; `None` where there is none with this number that waits for it.
    pub fn confirm(&mut self, id: u64, by: u32) -> Option<Changed> {
        let waits = |user: &User| {
            user.ops.iter().any(|op| op.report.id == id) || user.runs.iter().any(|run| run.report().id == id)
        };
        let uid = self.reports.users().find(|(_, user)| waits(user)).map(|(uid, _)| uid)?;
        let mut changed = Changed { reports: true, ..Changed::default() };
        let reports = Arc::make_mut(&mut self.reports);
        let user = reports.users.get_mut(&uid)?;
        let (mut ops, mut runs) = (Vec::new(), Vec::new());
        let which = Selection { id: Some(id), ..Selection::default() };
        user.forget(&which, &mut ops, &mut runs);
        if user.is_empty() {
            reports.users.remove(&uid);
        }
        let confirmed = |source: &Source| match source {
            Source::User { uid, pid, .. } => Source::User { uid: *uid, pid: *pid, confirmed_by: Some(by) },
            other => other.clone(),
        };
        for op in ops {
            let source = confirmed(&op.report.source);
            Arc::make_mut(&mut self.residuals).admit(Arc::new(op.believed(id, source)));
            changed.residuals = true;
        }
        for run in runs {
            let source = confirmed(&run.report().source);
            Arc::make_mut(&mut self.observed_runs).believe(run.believed(id, source));
            changed.observed_runs = true;
        }
        self.renew_views();
        Some(changed)
    }

    /// The machine was calibrated again: drops what that explains, and what it contradicts a second time.
    pub fn recalibrated(&mut self) -> Changed {
        let mut changed = Changed::default();
        if self.residuals.awaits_calibration() {
            Arc::make_mut(&mut self.residuals).recalibrated();
            changed.residuals = true;
        }
        if self.observed_runs.awaits_calibration() {
            Arc::make_mut(&mut self.observed_runs).recalibrated();
            changed.observed_runs = true;
        }
        let uids: Vec<u32> = self.reports.users.keys().copied().collect();
        for uid in uids {
            let View { residuals, observed_runs } = self.view(uid);
            if !residuals.awaits_calibration() && !observed_runs.awaits_calibration() {
                continue;
            }
            let (mut ops, mut runs) = (Residuals::clone(&residuals), ObservedRuns::clone(&observed_runs));
            ops.recalibrated();
            runs.recalibrated();
            let reports = Arc::make_mut(&mut self.reports);
            let Some(user) = reports.users.get_mut(&uid) else { continue };
            user.ops.retain(|own| ops.reports().any(|kept| kept.report.id == own.report.id));
            user.runs.retain(|own| runs.runs().any(|kept| kept.report().id == own.report().id));
            if user.is_empty() {
                reports.users.remove(&uid);
            }
            changed.reports = true;
        }
        self.renew_views();
        changed
    }
}

impl User {
    /// Forgets the reports that are meant. Later ones of the same engine were predicted with them.
    fn forget(
        &mut self,
        which: &Selection,
        gone_ops: &mut Vec<Arc<OpReport>>,
        gone_runs: &mut Vec<Arc<StoredRun>>,
    ) {
        let (ops, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.ops).into_iter().partition(|op| op.is_selected(which));
        self.ops = kept;
        let (runs, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.runs).into_iter().partition(|run| run.is_selected(which));
        let mut first: BTreeMap<Engine, u64> = BTreeMap::new();
        for run in &runs {
            let known = first.entry(run.observation().engine).or_insert(u64::MAX);
            *known = (*known).min(run.report().id);
        }
        let unforeseen = |run: Arc<StoredRun>| match first.get(&run.observation().engine) {
            Some(first) if run.report().id > *first => Arc::new(run.unforeseen()),
            _ => run,
        };
        self.runs = kept.into_iter().map(unforeseen).collect();
        self.view = Arc::default();
        gone_ops.extend(ops);
        gone_runs.extend(runs);
    }
}

#[cfg(test)]
mod tests;
