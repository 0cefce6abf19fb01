//! `GET /v1/observations`: the reports, their users, and for whom they count.

use serde_json::Value;

use rooflined_api::{ObservationEntry, ObservationListAnswer};
use rooflined_core::units::Watts;
use rooflined_predict::learning::OpReport;
use rooflined_predict::learning::models::StoredRun;
use rooflined_predict::learning::networks::NetworkReport;
use rooflined_predict::learning::report::{Report, Selection, Source};
use rooflined_predict::snapshot::Snapshot;

/// Which reports are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The caller, whose own reports are listed with the shared ones.
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
    entries.extend(residuals.reports().map(|op| of_op(op)));
    entries.extend(observed_runs.runs().map(|run| of_run(run)));
    entries.extend(residuals.networks().iter().map(|network| of_network(network)));
    let mut other_users = 0;
    for (uid, user) in reports.users() {
        if !listing.all && listing.viewer != Some(uid) {
            other_users += 1;
            continue;
        }
        entries.extend(user.ops().map(|op| of_op(op)));
        entries.extend(user.runs().map(|run| of_run(run)));
        entries.extend(user.networks().map(|network| of_network(network)));
    }
    entries.retain(|entry| meant(entry, which));
    entries.sort_by_key(|entry| entry.id);
    ObservationListAnswer { observations: entries, other_users, serial: snapshot.serial }
}

fn meant(entry: &ObservationEntry, which: &Selection) -> bool {
    let kind = entry.op.as_ref().and_then(|op| op.get("kind")).and_then(Value::as_str);
    let source = entry.uid.map(|uid| Source::User { uid, pid: None, shared: false });
    let report = Report { id: entry.id, source: source.unwrap_or_default(), unix_s: 0.0 };
    which.takes(&report, &entry.engine, entry.model.as_deref(), kind, &entry.format)
}

fn of_report(report: &Report) -> ObservationEntry {
    let (uid, pid) = match report.source {
        Source::User { uid, pid, .. } => (Some(uid), pid),
        Source::Supposed => (None, None),
    };
    ObservationEntry {
        id: report.id,
        uid,
        pid,
        reported_at_unix_s: (report.unix_s > 0.0).then_some(report.unix_s),
        moves: if report.source.is_own() { "own" } else { "everyone" }.to_owned(),
        engine: String::new(),
        model: None,
        op: None,
        format: String::new(),
        phase: None,
        batch: None,
        context_tokens: None,
        prompt_tokens: None,
        power_mode: None,
        time_s: 0.0,
        power_w: None,
        measured_over_predicted_ratio: None,
    }
}

fn of_op(op: &OpReport) -> ObservationEntry {
    ObservationEntry {
        engine: op.key.engine.key().to_owned(),
        op: serde_json::to_value(op.op).ok(),
        format: op.key.format.key().to_owned(),
        time_s: op.time.get(),
        measured_over_predicted_ratio: Some(op.log_ratio.exp()),
        ..of_report(&op.report)
    }
}

fn of_network(network: &NetworkReport) -> ObservationEntry {
    let of = &network.point;
    ObservationEntry {
        engine: of.engine.key().to_owned(),
        model: Some(of.network.clone()),
        format: of.precision.key().to_owned(),
        batch: Some(of.batch),
        power_mode: network.mode.clone(),
        time_s: network.time.get(),
        measured_over_predicted_ratio: Some(network.log_ratio.exp()),
        ..of_report(&network.report)
    }
}

fn of_run(run: &StoredRun) -> ObservationEntry {
    let of = run.observation();
    ObservationEntry {
        engine: of.engine.key().to_owned(),
        model: Some(of.model.clone()),
        format: of.format.clone(),
        phase: Some(of.phase.key().to_owned()),
        batch: Some(of.batch),
        context_tokens: Some(of.context_tokens),
        prompt_tokens: Some(of.prompt_tokens),
        power_mode: of.mode.clone(),
        time_s: run.time().get(),
        power_w: run.power().map(Watts::get),
        measured_over_predicted_ratio: run.ratio(),
        ..of_report(&run.report())
    }
}
