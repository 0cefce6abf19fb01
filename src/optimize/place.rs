//! Where it could run: power modes, and on a CPU how many threads.

use std::borrow::Cow;

use super::{Modes, Query, QueryError};
use crate::board::{ActiveMode, SwitchOutcome};
use crate::calibration::{Accelerator, CalibrationRecord};
use crate::predict::EngineProfile;
use crate::predict::power::PowerCosts;
use crate::roofline::{Roofline, scaling};
use crate::snapshot::{ModeView, Snapshot};
use crate::units::Seconds;

/// What entering a mode takes where none was entered yet: `nvpmodel` and reading back. A guess.
const SWITCH: Seconds = Seconds(1.0);
/// What a reboot takes until services run again. A guess.
const REBOOT: Seconds = Seconds(90.0);

/// An operating point to choose.
#[derive(Debug, Clone)]
pub(super) struct Place<'a> {
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
pub(super) fn places<'a>(snapshot: &'a Snapshot, query: &Query) -> Result<Vec<Place<'a>>, QueryError> {
    let active = snapshot.state.power_mode.known();
    let now = || Place {
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
        if active.is_some_and(|active| active.id == view.mode.id) {
            return now();
        }
        // What cannot be told may need one.
        let reboot = view.reboot_required != Some(false) && !snapshot.is_hypothetical();
        Place {
            mode: Some(ActiveMode { id: view.mode.id, name: view.mode.name.clone() }),
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
    let mut places: Vec<Place<'a>> = match &query.modes {
        Modes::Now => vec![now()],
        // A machine without modes has one operating point.
        Modes::All | Modes::Live if snapshot.modes.is_empty() => vec![now()],
        Modes::All => modes().map(of).collect(),
        Modes::Live => modes().map(of).filter(|place| !place.reboot).collect(),
        Modes::Listed(ids) => modes().filter(|view| ids.contains(&view.mode.id)).map(of).collect(),
    };
    if places.is_empty() {
        return Err(QueryError::NoModes);
    }
    by_one_meter(snapshot, &mut places);
    if query.threads.is_empty() {
        return Ok(places);
    }
    if snapshot.accelerator == Accelerator::Gpu {
        return Err(QueryError::NoThreads);
    }
    let with = |place: &Place<'a>, threads: u32| {
        let roofline = scaling::to_clock(&place.roofline, threads, None);
        let power = snapshot.power_costs(&roofline);
        Place { threads: Some(threads), roofline: Cow::Owned(roofline), power, ..place.clone() }
    };
    Ok(places.iter().flat_map(|place| query.threads.iter().map(|threads| with(place, *threads))).collect())
}

/// Coefficients that were measured in one or two modes say nothing of how the others differ: carried there unchanged, the
/// fastest mode would always take the least energy. Where modes are compared, those that others published for all of them
/// are used for all of them then.
fn by_one_meter(snapshot: &Snapshot, places: &mut [Place<'_>]) {
    let slope_known =
        |record: &CalibrationRecord| record.power.as_ref().is_none_or(|file| file.voltage_per_ghz.is_some());
    if places.len() < 2 || snapshot.calibration.as_ref().is_none_or(slope_known) {
        return;
    }
    let carried = |place: &Place<'_>| place.power.as_ref().is_some_and(|power| !power.warnings.is_empty());
    if !places.iter().any(carried) {
        return;
    }
    let published: Option<Vec<PowerCosts>> =
        places.iter().map(|place| snapshot.published_power_costs(&place.roofline)).collect();
    if let Some(published) = published {
        for (place, power) in places.iter_mut().zip(published) {
            place.power = Some(power);
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
