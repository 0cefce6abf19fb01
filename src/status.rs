//! One line about the daemon for `systemctl status`. It changes when something happens, not with every sample.

use rooflined_core::precision::Precision;
use rooflined_predict::snapshot::Snapshot;

#[must_use]
pub fn line(snapshot: &Snapshot) -> String {
    let status = &snapshot.calibration_status;
    let mut parts = vec![match snapshot.calibration.as_ref().and_then(|record| record.current()) {
        Some(regime) => {
            let roofline = &regime.roofline;
            let peak = roofline.compute(Precision::Fp32);
            let peak = peak.map(|peak| format!(", {} fp32", peak.value)).unwrap_or_default();
            let beside = if regime.loaded { " during other work" } else { "" };
            format!("calibrated{beside}: {}{peak} ({})", roofline.bandwidth.value, regime.key)
        }
        None => "not calibrated".into(),
    }];
    if let Some(job) = status.running {
        parts.push(format!("calibration {job} is running"));
    } else if let Some(reason) = &status.waiting_reason {
        parts.push(format!("a calibration waits: {reason}"));
    } else if let Some(error) = &status.last_error {
        parts.push(format!("the last calibration failed: {error}"));
    }
    match snapshot.degraded_lines().as_slice() {
        [] => {}
        [only] => parts.push(format!("degraded: {only}")),
        [first, others @ ..] => parts.push(format!("degraded: {first} (and {} more)", others.len())),
    }
    // One line, and no longer than a terminal shows with its label.
    let line: String =
        parts.join("; ").chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    line
}
