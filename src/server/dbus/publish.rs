//! Signals: what changed between two snapshots, at a bounded rate.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use zbus::Connection;
use zbus::object_server::{InterfaceRef, SignalEmitter};

use super::PATH;
use super::bounded::Bounded;
use super::convert::to_variants;
use super::interface::{Calibration, Rooflined};
use super::power::{Power, tell_owners};
use crate::server::service::Service;
use rooflined_advice::cause::in_words;
use rooflined_predict::snapshot::{Change, Snapshot, diff};

/// `PropertiesChanged` at most this often; what comes in between is sent together.
const PERIOD: Duration = Duration::from_secs(1);

/// Tells every change until the bus fails.
pub async fn run(connection: &Connection, service: &Arc<Service>) -> zbus::Result<Infallible> {
    let rooflined: InterfaceRef<Bounded<Rooflined>> = connection.object_server().interface(PATH).await?;
    let calibration: InterfaceRef<Bounded<Calibration>> = connection.object_server().interface(PATH).await?;
    let power: InterfaceRef<Bounded<Power>> = connection.object_server().interface(PATH).await?;
    let mut snapshots = service.snapshots.clone();
    let mut last = Arc::clone(&snapshots.borrow_and_update());
    let mut properties_at = Instant::now();
    let mut shown = Arc::clone(&last);
    loop {
        let due = async {
            if shown.serial == last.serial {
                std::future::pending::<()>().await;
            } else {
                tokio::time::sleep_until(properties_at).await;
            }
        };
        tokio::select! {
            changed = snapshots.changed() => {
                if changed.is_err() {
                    // The daemon is going away, and so shall we, by being dropped.
                    std::future::pending::<()>().await;
                }
                let newest = Arc::clone(&snapshots.borrow_and_update());
                signals(&rooflined, &calibration, &last, &newest).await?;
                power_signals(&power, &last, &newest).await?;
                last = newest;
            }
            () = due => {
                properties(&rooflined, &calibration, &shown, &last).await?;
                power_properties(&power, &shown, &last).await?;
                shown = Arc::clone(&last);
                properties_at = Instant::now() + PERIOD;
            }
        }
    }
}

async fn signals(
    rooflined: &InterfaceRef<Bounded<Rooflined>>,
    calibration: &InterfaceRef<Bounded<Calibration>>,
    old: &Snapshot,
    new: &Snapshot,
) -> zbus::Result<()> {
    for change in diff(old, new) {
        if let Some(reason) = in_words(&change, old, new) {
            Rooflined::advice_stale(rooflined.signal_emitter(), &reason, new.serial).await?;
        }
        if change == Change::Calibration {
            job(calibration.signal_emitter(), old, new).await?;
        }
    }
    Ok(())
}

async fn power_signals(
    power: &InterfaceRef<Bounded<Power>>,
    old: &Snapshot,
    new: &Snapshot,
) -> zbus::Result<()> {
    for change in diff(old, new) {
        match change {
            Change::Mode { from, to } => {
                let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
                let details = to_variants(json!({ "serial": new.serial, "simulated": new.board.simulated }));
                let cause = new.power.cause.key();
                Power::mode_changed(power.signal_emitter(), &from, &to, cause, details).await?;
            }
            Change::Hold => tell_owners(&*power.get().await, power.signal_emitter(), old, new).await?,
            _ => {}
        }
    }
    Ok(())
}

async fn power_properties(
    power: &InterfaceRef<Bounded<Power>>,
    old: &Snapshot,
    new: &Snapshot,
) -> zbus::Result<()> {
    let (emitter, object) = (power.signal_emitter(), power.get().await);
    if old.state.power_mode != new.state.power_mode {
        object.active_mode_changed(emitter).await?;
    }
    if old.power.cause != new.power.cause {
        object.active_mode_cause_changed(emitter).await?;
    }
    if old.power.holds != new.power.holds {
        object.holds_changed(emitter).await?;
    }
    if old.control_enabled != new.control_enabled {
        object.control_enabled_changed(emitter).await?;
    }
    if old.modes != new.modes || old.board.modes != new.board.modes {
        object.modes_changed(emitter).await?;
    }
    Ok(())
}

/// Progress of the running job, and the end of the last one.
async fn job(emitter: &SignalEmitter<'_>, old: &Snapshot, new: &Snapshot) -> zbus::Result<()> {
    let (before, status) = (&old.calibration_status, &new.calibration_status);
    if let Some(job) = status.running {
        let step = status.step.as_deref().unwrap_or_default();
        Calibration::progress(emitter, job, status.fraction.unwrap_or(0.0), step).await?;
    }
    if let Some(job) = status.last_job.filter(|job| before.last_job != Some(*job)) {
        let facts = json!({
            "error": status.last_error,
            "loaded": new.calibration.as_ref().map(|record| record.loaded),
            "measured_at_unix_s": new.calibration.as_ref().map(|record| record.measured_at_unix_s),
            "serial": new.serial,
        });
        Calibration::finished(emitter, job, status.last_error.is_none(), to_variants(facts)).await?;
    }
    Ok(())
}

async fn properties(
    rooflined: &InterfaceRef<Bounded<Rooflined>>,
    calibration: &InterfaceRef<Bounded<Calibration>>,
    old: &Snapshot,
    new: &Snapshot,
) -> zbus::Result<()> {
    let emitter = rooflined.signal_emitter();
    let object = rooflined.get().await;
    object.serial_changed(emitter).await?;
    for change in diff(old, new) {
        match change {
            Change::State => object.state_changed(emitter).await?,
            Change::Degraded => {
                object.degraded_changed(emitter).await?;
                object.degraded_evidence_changed(emitter).await?;
            }
            Change::Calibration => {
                let records = calibration.get().await;
                records.records_changed(calibration.signal_emitter()).await?;
            }
            Change::Mode { .. } | Change::Throttle { .. } | Change::Roofline { .. } | Change::Hold => {}
        }
    }
    Ok(())
}
