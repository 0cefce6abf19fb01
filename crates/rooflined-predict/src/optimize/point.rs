//! Operating points to choose from: power modes, and on a CPU the number of threads.

use std::borrow::Cow;

use super::{Modes, Query, QueryError};
use crate::EngineProfile;
use crate::calibration::Accelerator;
use crate::power::PowerCosts;
use crate::snapshot::{Cap, ModeView, PowerLimit, Snapshot};
use rooflined_core::board::{ActiveMode, SwitchOutcome};
use rooflined_core::ceilings::{Roofline, scaling};
use rooflined_core::units::{Hertz, Seconds};

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
    /// The limit that lowers its clock until a run keeps to it.
    pub(super) limit: Option<PowerLimit>,
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
        limit: snapshot.power_limit.clone(),
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
            limit: None,
            reboot,
            // Nothing is entered on a machine that is not this one.
            entering: if snapshot.is_hypothetical() { Seconds::ZERO } else { entering(snapshot, reboot) },
        }
    };
    let modes = || snapshot.modes.iter();
    let mut points: Vec<CandidatePoint<'a>> = match &query.modes {
        Modes::Now => vec![now()],
        // A machine without modes has one operating point.
        Modes::All | Modes::Live if snapshot.modes.is_empty() => vec![now()],
        Modes::All => modes().map(of).collect(),
        Modes::Live => {
            let is_live = |view: &&ModeView| {
                view.reboot_required == Some(false) || active.is_some_and(|active| view.mode.is(active))
            };
            modes().filter(is_live).map(of).collect()
        }
        Modes::Listed(keys) => {
            modes().filter(|view| keys.iter().any(|key| view.mode.is(key))).map(of).collect()
        }
    };
    points.extend(query.caps.iter().filter_map(|cap| under(snapshot, *cap)));
    if points.is_empty() {
        return Err(QueryError::NoModes);
    }
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

/// The machine with its clock or power capped; `None` where a CPU is the accelerator.
fn under(snapshot: &Snapshot, cap: Cap) -> Option<CandidatePoint<'_>> {
    let (point, limit) = snapshot.point_under(cap);
    let (roofline, profile) = snapshot.gpu_at(&point)?;
    Some(CandidatePoint {
        mode: Some(cap.mode()),
        threads: None,
        power: snapshot.power_costs(&roofline),
        roofline: Cow::Owned(roofline),
        profile: Cow::Owned(profile),
        limit,
        reboot: false,
        entering: if snapshot.is_hypothetical() { Seconds::ZERO } else { SWITCH },
    })
}

impl CandidatePoint<'_> {
    /// What power costs there, and the ceilings that go with it; `None` where nothing is known of it.
    pub(super) fn power(&self) -> Option<(&PowerCosts, &Roofline)> {
        Some((self.power.as_ref()?, &self.roofline))
    }

    /// Whether `clock`, which its limit leads to, is the one without a limit.
    pub(super) fn is_beyond_reach(&self, clock: Hertz) -> bool {
        self.limit.as_ref().is_some_and(|limit| limit.point.gpu_clock == Some(clock))
    }

    /// The same at `clock`, which its limit leads to.
    pub(super) fn at_clock(&self, snapshot: &Snapshot, clock: Hertz) -> Option<CandidatePoint<'static>> {
        let (roofline, profile) = self.limit.as_ref()?.model_at(snapshot, clock)?;
        Some(CandidatePoint {
            mode: self.mode.clone(),
            threads: self.threads,
            power: snapshot.power_costs(&roofline),
            roofline: Cow::Owned(roofline),
            profile: Cow::Owned(profile),
            limit: None,
            reboot: self.reboot,
            entering: self.entering,
        })
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
