//! Operating points to choose from: power modes, and on a CPU the number of threads.

use std::borrow::Cow;

use super::{Modes, Query, QueryError};
use crate::snapshot::{ModeView, Snapshot};
use predict::EngineProfile;
use predict::calibration::{Accelerator, CalibrationRecord};
use predict::power::{PowerCosts, table};
use roofline::board::{ActiveMode, SwitchOutcome};
use roofline::ceilings::{Roofline, scaling};
use roofline::units::Seconds;

/// What entering a mode takes where none was entered yet: `nvpmodel` and reading back. A guess.
const SWITCH: Seconds = Seconds(1.0);
/// What a reboot takes until services run again. A guess.
const REBOOT: Seconds = Seconds(90.0);

/// An operating point that may be chosen, with what predictions need there.
#[derive(Debug, Clone)]
pub(super) struct CandidatePoint<'a> {
    /// The power mode; `None` where the machine has none or does not tell it.
    pub(super) mode: Option<ActiveMode>,
    /// Worker threads, where they are chosen.
    pub(super) threads: Option<u32>,
    pub(super) roofline: Cow<'a, Roofline>,
    pub(super) profile: Cow<'a, EngineProfile>,
    /// What power costs there; `None` where nothing is known of it.
    pub(super) power: Option<PowerCosts>,
    /// Entering it needs a reboot.
    pub(super) reboot: bool,
    /// Time until it is in force.
    pub(super) entering: Seconds,
}

/// Every operating point that the query may choose.
pub(super) fn points<'a>(
    snapshot: &'a Snapshot,
    query: &Query,
) -> Result<Vec<CandidatePoint<'a>>, QueryError> {
    let active = snapshot.state.power_mode.known();
    let now = || CandidatePoint {
        mode: active.cloned(),
        threads: None,
        roofline: Cow::Borrowed(&snapshot.roofline),
        profile: Cow::Borrowed(&snapshot.profile),
        power: snapshot.power_costs(&snapshot.roofline),
        reboot: false,
        entering: Seconds::ZERO,
    };
    let of = |view: &'a ModeView| {
        // The mode in force is known better than its caps say: throttling shows.
        if active.is_some_and(|active| view.mode.is(active)) {
            return now();
        }
        // Where that is not known, a reboot may be needed.
        let reboot = view.reboot_required != Some(false) && !snapshot.is_hypothetical();
        CandidatePoint {
            mode: Some(view.mode.key()),
            threads: None,
            roofline: Cow::Borrowed(&view.roofline),
            profile: Cow::Borrowed(&view.profile),
            power: snapshot.power_costs(&view.roofline),
            reboot,
            // Nothing is entered on a machine that is not at hand.
            entering: if snapshot.is_hypothetical() { Seconds::ZERO } else { entering(snapshot, reboot) },
        }
    };
    let modes = || snapshot.modes.iter();
    let mut points: Vec<CandidatePoint<'a>> = match &query.modes {
        Modes::Now => vec![now()],
        // A machine without modes has one operating point.
        Modes::All | Modes::Live if snapshot.modes.is_empty() => vec![now()],
        Modes::All => modes().map(of).collect(),
        Modes::Live => modes().map(of).filter(|point| !point.reboot).collect(),
        Modes::Listed(keys) => {
            modes().filter(|view| keys.iter().any(|key| view.mode.is(key))).map(of).collect()
        }
    };
    if points.is_empty() {
        return Err(QueryError::NoModes);
    }
    by_one_meter(snapshot, &mut points);
    if query.threads.is_empty() {
        return Ok(points);
    }
    if snapshot.accelerator == Accelerator::Gpu {
        return Err(QueryError::NoThreads);
    }
    let with = |point: &CandidatePoint<'a>, threads: u32| {
        let roofline = scaling::to_threads(&point.roofline, threads, snapshot.physical_cores());
        let power = snapshot.power_costs(&roofline);
        CandidatePoint { threads: Some(threads), roofline: Cow::Owned(roofline), power, ..point.clone() }
    };
    Ok(points.iter().flat_map(|point| query.threads.iter().map(|threads| with(point, *threads))).collect())
}

/// Coefficients that were measured in one or two modes say nothing of how the others differ: carried there unchanged, the
/// fastest mode would always take the least energy. Where modes are compared, those that others published for all of them
/// are used for all of them then.
fn by_one_meter(snapshot: &Snapshot, points: &mut [CandidatePoint<'_>]) {
    let slope_known =
        |record: &CalibrationRecord| record.power.as_ref().is_none_or(|file| file.voltage_per_ghz.is_some());
    if points.len() < 2 || snapshot.calibration.as_ref().is_none_or(slope_known) {
        return;
    }
    // What is carried from another board is no better.
    if snapshot.hardware.as_deref().is_none_or(|hardware| table(&hardware.key).is_none()) {
        return;
    }
    let carried = |point: &CandidatePoint<'_>| point.power.as_ref().is_some_and(|power| power.carried);
    if !points.iter().any(carried) {
        return;
    }
    let published: Option<Vec<PowerCosts>> =
        points.iter().map(|point| snapshot.published_power_costs(&point.roofline)).collect();
    if let Some(published) = published {
        for (point, power) in points.iter_mut().zip(published) {
            point.power = Some(power);
        }
    }
}

/// Until another mode is in force: as long as the last switch took.
fn entering(snapshot: &Snapshot, reboot: bool) -> Seconds {
    let last = snapshot.power.last.as_ref().filter(|last| last.outcome == SwitchOutcome::Applied);
    match (reboot, last) {
        (true, _) => REBOOT,
        (false, Some(last)) => last.took,
        (false, None) => SWITCH,
    }
}
