//! `GET /v1/observations`: what was reported, by whom, and whose answers it moves.

use serde_json::Value;

use decide::snapshot::Snapshot;
use predict::learning::models::StoredRun;
use predict::learning::report::{Report, Selection, Source};
use predict::learning::{OpReport, Residual, ResidualKey};
use roofline::units::{Seconds, Watts};
use roofline::workload::transformer::Phase;
use wire::{ObservationEntry, ObservationListAnswer};

/// Which reports are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Who asks: its own are listed beside those that everybody believes.
    pub viewer: Option<u32>,
    /// Those of every user are.
    pub all: bool,
    pub which: Selection,
}

/// Lists reports of `snapshot`, which is nobody's view.
#[must_use]
pub fn observations(snapshot: &Snapshot, listing: &Listing) -> ObservationListAnswer {
    let Snapshot { residuals, observed_runs, reports, .. } = snapshot;
    let which = &listing.which;
    let mut entries: Vec<ObservationEntry> = Vec::new();
    // What was not kept has no number and no user.
    if which.id.is_none() && which.uid.is_none() {
        entries.extend(residuals.unrecorded().map(|(key, residual)| earlier(key, residual)));
    }
    entries.extend(residuals.reports().map(|op| of_op(op, residuals.doubts(op))));
    entries.extend(observed_runs.runs().map(|run| of_run(run, observed_runs.doubts(run))));
    let mut other_users = 0;
    for (uid, user) in reports.users() {
        if !listing.all && listing.viewer != Some(uid) {
            other_users += 1;
            continue;
        }
        let Some(view) = reports.view(uid, residuals, observed_runs) else { continue };
        entries.extend(user.ops().map(|op| of_op(op, view.residuals.doubts(op))));
        entries.extend(user.runs().map(|run| of_run(run, view.observed_runs.doubts(run))));
    }
    entries.retain(|entry| meant(entry, which));
    entries.sort_by_key(|entry| entry.id);
    ObservationListAnswer { observations: entries, other_users, serial: snapshot.serial }
}

fn meant(entry: &ObservationEntry, which: &Selection) -> bool {
    let kind = entry.op.as_ref().and_then(|op| op.get("kind")).and_then(Value::as_str);
    let source = entry.uid.map(|uid| Source::User { uid, pid: None, confirmed_by: None });
    let report = Report { id: entry.id.unwrap_or_default(), source: source.unwrap_or_default(), unix_s: 0.0 };
    which.takes(&report, entry.engine, entry.model.as_deref(), kind, &entry.format)
}

fn of_report(report: &Report, doubted: bool) -> ObservationEntry {
    let (uid, pid, confirmed_by, agreeing_users) = match &report.source {
        Source::User { uid, pid, confirmed_by } => (Some(*uid), *pid, *confirmed_by, None),
        Source::Agreed { users } => (None, None, None, Some(*users)),
        Source::Unrecorded | Source::Supposed => (None, None, None, None),
    };
    let (moves, because) = match &report.source {
        _ if doubted => ("nobody", "doubted"),
        Source::User { confirmed_by: None, .. } | Source::Supposed => ("own", "own"),
        Source::User { .. } => ("everyone", "confirmed"),
        Source::Agreed { .. } => ("everyone", "agreed"),
        Source::Unrecorded => ("everyone", "unrecorded"),
    };
    ObservationEntry {
        id: Some(report.id),
        uid,
        pid,
        reported_at_unix_s: (report.unix_s > 0.0).then_some(report.unix_s),
        moves: moves.to_owned(),
        because: because.to_owned(),
        confirmed_by,
        agreeing_users,
        engine: predict::Engine::Bare,
        model: None,
        op: None,
        format: String::new(),
        phase: None,
        batch: None,
        context_tokens: None,
        prompt_tokens: None,
        power_mode: None,
        time_s: None,
        power_w: None,
        measured_over_predicted_ratio: None,
    }
}

fn of_op(op: &OpReport, doubted: bool) -> ObservationEntry {
    let kind = || serde_json::json!({ "kind": op.key.op });
    let value = op.op.and_then(|op| serde_json::to_value(op).ok());
    ObservationEntry {
        engine: op.key.engine,
        op: Some(value.unwrap_or_else(kind)),
        format: op.key.format.key().to_owned(),
        time_s: Some(op.time.get()),
        measured_over_predicted_ratio: Some(op.log_ratio.exp()),
        ..of_report(&op.report, doubted)
    }
}

fn earlier(key: &ResidualKey, residual: &Residual) -> ObservationEntry {
    ObservationEntry {
        id: None,
        engine: key.engine,
        op: Some(serde_json::json!({ "kind": key.op })),
        format: key.format.key().to_owned(),
        measured_over_predicted_ratio: Some(residual.log_mean.exp()),
        ..of_report(&Report::default(), false)
    }
}

const fn phase_key(phase: Phase) -> &'static str {
    match phase {
        Phase::Prefill => "prefill",
        Phase::Decode => "decode",
        Phase::Serve => "serve",
    }
}

fn of_run(run: &StoredRun, doubted: bool) -> ObservationEntry {
    let of = run.observation();
    ObservationEntry {
        engine: of.engine,
        model: Some(of.model.clone()),
        format: of.format.clone(),
        phase: Some(phase_key(of.phase).to_owned()),
        batch: Some(of.batch),
        context_tokens: Some(of.context_tokens),
        prompt_tokens: Some(of.prompt_tokens),
        power_mode: of.mode.clone(),
        time_s: Some(Seconds::get(run.time())),
        power_w: run.power().map(Watts::get),
        measured_over_predicted_ratio: run.ratio(),
        ..of_report(&run.report(), doubted)
    }
}
