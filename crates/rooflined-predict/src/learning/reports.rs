//! Shared reports, and each user's own.
//!
//! A report of root, the daemon's user or a member of its group is shared: it counts for everybody. Any other report counts
//! for its user alone. Each user has a quota, so a flood of reports evicts only reports of the same user.
//!
//! A user's view is the shared reports plus the user's own. It is computed on the first query after either has changed.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::models::{Measured, ObservationOutcome, ObservedRuns, StoredRun};
use super::networks::{MeasuredNetwork, NetworkLearning, NetworkReport};
use super::report::{Report, Reporter, Selection, Source, too_many_users};
use super::vet::Refused;
use super::{OpReport, Refused as RefusedOp, ResidualKey, Residuals};
use crate::{Engine, Prediction, Tier};
use rooflined_core::operation::Op;
use rooflined_core::refusal::Refusal;
use rooflined_core::units::Seconds;

/// Most users whose own reports are kept.
pub const MAX_USERS: usize = 16;
/// Most runs of models kept of one user; the oldest leave first.
pub const MAX_RUNS_OF_USER: usize = 64;
/// Most runs of networks kept of one user.
pub const MAX_NETWORKS_OF_USER: usize = 64;
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

/// Reports that count for one user only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct User {
    ops: Vec<Arc<OpReport>>,
    runs: Vec<Arc<StoredRun>>,
    #[serde(default)]
    networks: Vec<Arc<NetworkReport>>,
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

    /// Runs of vision networks, oldest first.
    pub fn networks(&self) -> impl Iterator<Item = &Arc<NetworkReport>> {
        self.networks.iter()
    }

    fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.runs.is_empty() && self.networks.is_empty()
    }
}

/// Reports that count for their own users only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Reports {
    machine: Option<String>,
    /// Number of the newest report of all, shared reports included.
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
        let most = |user: &User| {
            user.ops.len() <= MAX_OPS_OF_USER
                && user.runs.len() <= MAX_RUNS_OF_USER
                && user.networks.len() <= MAX_NETWORKS_OF_USER
        };
        if self.users.len() > MAX_USERS || !self.users.values().all(most) {
            return Err("it holds more than is ever kept".into());
        }
        let own = |uid: u32, report: &Report| {
            report.source.is_own() && report.source.uid() == Some(uid) && report.id <= self.last_id
        };
        let sound = |(uid, user): (&u32, &User)| {
            user.ops.iter().all(|op| own(*uid, &op.report) && op.is_sound())
                && user.runs.iter().all(|run| own(*uid, &run.report()) && run.is_sound())
                && user.networks.iter().all(|run| own(*uid, &run.report) && run.is_sound())
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

    /// Users with reports of their own.
    pub fn users(&self) -> impl Iterator<Item = (u32, &User)> {
        self.users.iter().map(|(uid, user)| (*uid, user))
    }

    /// Runs of users that were refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// The shared reports plus those of one user; `None` where the user has none.
    #[must_use]
    pub fn view(
        &self,
        uid: u32,
        residuals: &Arc<Residuals>,
        observed_runs: &Arc<ObservedRuns>,
    ) -> Option<&View> {
        let user = self.users.get(&uid)?;
        Some(user.view.get_or_init(|| View {
            residuals: match (user.ops.as_slice(), user.networks.as_slice()) {
                ([], []) => Arc::clone(residuals),
                (ops, networks) => Arc::new(residuals.with_own(ops, networks)),
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
    /// Of operations, from shared reports.
    pub residuals: Arc<Residuals>,
    /// Of models, from shared reports.
    pub observed_runs: Arc<ObservedRuns>,
    /// Reports that count for their own users only.
    pub reports: Arc<Reports>,
}

impl Learnt {
    /// What an earlier run of the daemon stored, as far as it is of `machine`.
    #[must_use]
    pub fn on(machine: &str, residuals: Residuals, observed_runs: ObservedRuns, reports: Reports) -> Self {
        let residuals = residuals.of(machine.to_owned());
        let observed_runs = observed_runs.of(machine.to_owned());
        let mut reports = reports.of(machine.to_owned());
        let of_networks = residuals.networks().iter().map(|network| network.report.id);
        let ids = residuals.reports().map(|op| op.report.id).chain(of_networks);
        reports.last_id = reports.last_id.max(ids.max().unwrap_or(0)).max(observed_runs.last_id());
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

    /// Drops every view, because the shared reports have changed.
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
        let report = Report { id: self.reports.last_id + 1, source: Source::of(by), unix_s };
        let vetted = match OpReport::vetted(report, key, op, predicted, time) {
            Ok(vetted) => Arc::new(vetted),
            Err(refused) => return Ok(Err(refused)),
        };
        if by.trusted {
            self.next_id();
            Arc::make_mut(&mut self.residuals).admit(vetted);
            self.renew_views();
            return Ok(Ok(Changed { residuals: true, ..Changed::default() }));
        }
        let user = Arc::make_mut(&mut self.reports).entry(by.uid)?;
        user.ops.push(vetted);
        if user.ops.len() > MAX_OPS_OF_USER {
            user.ops.remove(0);
        }
        user.view = Arc::default();
        self.next_id();
        Ok(Ok(Changed { reports: true, ..Changed::default() }))
    }

    /// Learns from a measured run of a network: what it changes, and what is predicted of it now.
    ///
    /// # Errors
    /// Why not.
    pub fn observe_network(
        &mut self,
        by: &Reporter,
        run: &MeasuredNetwork,
        unix_s: f64,
    ) -> Result<Result<(Changed, ObservationOutcome), RefusedOp>, Refusal> {
        let report = Report { id: self.reports.last_id + 1, source: Source::of(by), unix_s };
        let vetted = match NetworkReport::vetted(report, run) {
            Ok(vetted) => Arc::new(vetted),
            Err(refused) => return Ok(Err(refused)),
        };
        let changed = if by.trusted {
            Arc::make_mut(&mut self.residuals).admit_network(vetted);
            self.renew_views();
            Changed { residuals: true, ..Changed::default() }
        } else {
            let user = Arc::make_mut(&mut self.reports).entry(by.uid)?;
            user.networks.push(vetted);
            if user.networks.len() > MAX_NETWORKS_OF_USER {
                user.networks.remove(0);
            }
            user.view = Arc::default();
            Changed { reports: true, ..Changed::default() }
        };
        self.next_id();
        let learned = NetworkLearning::new(self.view(by.uid).residuals.networks(), &run.point);
        let (factor, tier, count) = learned.map_or((1.0, Tier::Prior, 0), |learned| {
            let now = learned.at(&run.point);
            (now.log_factor.exp(), now.tier, learned.own)
        });
        Ok(Ok((changed, ObservationOutcome { factor, tier, count, alarm: None })))
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
            Arc::make_mut(&mut self.reports).last_id = known.last_id();
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
        Ok(LearntFromRuns { outcomes, changed: Changed { reports: true, ..Changed::default() } })
    }

    /// Forgets the reports that are meant: how many, and what that changed.
    pub fn forget(&mut self, which: &Selection) -> (usize, Changed) {
        let (mut count, mut changed) = (0, Changed::default());
        if self.residuals.has(which) {
            count += Arc::make_mut(&mut self.residuals).forget(which);
            changed.residuals = true;
        }
        if self.observed_runs.runs().any(|run| run.is_selected(which)) {
            count += Arc::make_mut(&mut self.observed_runs).forget(|run| run.is_selected(which));
            changed.observed_runs = true;
        }
        let mine = |uid: u32| which.uid.is_none_or(|wanted| wanted == uid);
        if self.reports.users.keys().any(|uid| mine(*uid)) {
            let users = &mut Arc::make_mut(&mut self.reports).users;
            let own: usize =
                users.iter_mut().filter(|(uid, _)| mine(**uid)).map(|(_, user)| user.forget(which)).sum();
            users.retain(|_, user| !user.is_empty());
            changed.reports = own > 0;
            count += own;
        }
        if changed.residuals || changed.observed_runs {
            self.renew_views();
        }
        (count, changed)
    }

    /// The machine was calibrated again: drops the runs from before a change of the machine.
    pub fn recalibrated(&mut self) -> Changed {
        let mut changed = Changed::default();
        if self.observed_runs.awaits_calibration() {
            Arc::make_mut(&mut self.observed_runs).recalibrated();
            changed.observed_runs = true;
        }
        let uids: Vec<u32> = self.reports.users.keys().copied().collect();
        for uid in uids {
            let View { observed_runs, .. } = self.view(uid);
            if !observed_runs.awaits_calibration() {
                continue;
            }
            let mut runs = ObservedRuns::clone(&observed_runs);
            runs.recalibrated();
            let reports = Arc::make_mut(&mut self.reports);
            let Some(user) = reports.users.get_mut(&uid) else { continue };
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
    /// Forgets the selected reports and returns their number. Later ones of the same engine were predicted with them.
    fn forget(&mut self, which: &Selection) -> usize {
        let before = self.ops.len() + self.runs.len() + self.networks.len();
        self.ops.retain(|op| !op.is_selected(which));
        self.networks.retain(|run| !run.is_selected(which));
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.runs).into_iter().partition(|run| run.is_selected(which));
        let mut first: BTreeMap<Engine, u64> = BTreeMap::new();
        for run in &gone {
            let known = first.entry(run.observation().engine).or_insert(u64::MAX);
            *known = (*known).min(run.report().id);
        }
        let unforeseen = |run: Arc<StoredRun>| match first.get(&run.observation().engine) {
            Some(first) if run.report().id > *first => Arc::new(run.unforeseen()),
            _ => run,
        };
        self.runs = kept.into_iter().map(unforeseen).collect();
        self.view = Arc::default();
        before - self.ops.len() - self.runs.len() - self.networks.len()
    }
}

#[cfg(test)]
mod tests;
