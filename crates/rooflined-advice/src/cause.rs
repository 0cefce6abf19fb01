//! What happened between two snapshots, as far as it can alter an answer.

use std::sync::Arc;

use rooflined_core::board::{BoardState, Memory, Reading};
use rooflined_core::units::Hertz;
use rooflined_predict::snapshot::{Change, Snapshot, diff};

/// Available memory that moves by less than this part of the total alters no answer: every reserve is larger.
const MEMORY_STEP: f64 = 1.0 / 256.0;
/// A move of available memory by this part of the total is named beside another cause.
const MEMORY_MOVED: f64 = 1.0 / 64.0;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `mode`, `throttle`, `calibration`, `observations`, `clocks`, `ceilings`, `memory`, `modes` or `other`.
    pub key: &'static str,
    /// In words, with the numbers.
    pub words: String,
}

/// What an answer rests on has moved, so that it may have to be re-evaluated. Temperatures, rails, load and idle clocks
/// always move, and nothing is predicted from them.
#[must_use]
pub fn may_alter(old: &Snapshot, new: &Snapshot) -> bool {
    // Taken apart without `..`: a new field has to say whether answers rest on it.
    let Snapshot {
        serial: _,
        taken_at: _,
        // Nothing is predicted from them.
        busy_clocks: _,
        board,
        state,
        accelerator,
        hardware,
        roofline,
        profile,
        residuals,
        observed_runs,
        // A user's snapshot has them in the two above.
        reports: _,
        // Nothing is predicted from them.
        servers: _,
        calibration,
        calibration_status: _,
        reference: _,
        degraded: _,
        modes,
        power,
        control_enabled,
        power_limit,
    } = new;
    state_may_alter(&old.state, state)
        || *roofline != old.roofline
        || *profile != old.profile
        || !(Arc::ptr_eq(modes, &old.modes) || *modes == old.modes)
        || !Arc::ptr_eq(observed_runs, &old.observed_runs)
        || !Arc::ptr_eq(residuals, &old.residuals)
        || *calibration != old.calibration
        || *power != old.power
        || *board != old.board
        || *hardware != old.hardware
        || *accelerator != old.accelerator
        || *control_enabled != old.control_enabled
        || *power_limit != old.power_limit
}

fn state_may_alter(old: &BoardState, new: &BoardState) -> bool {
    let BoardState {
        taken_at: _,
        power_mode,
        mode_note: _,
        cores_online,
        cpu_clocks: _,
        cpu_clock_cap,
        // Where it counts, under a throttled load, the roofline has it.
        gpu_clock: _,
        gpu_clock_cap,
        gpu_load: _,
        tpc_mask,
        sm_online,
        memory_clock: _,
        memory_clock_cap,
        temperatures: _,
        rails: _,
        total_power: _,
        memory,
        load: _,
        pressure: _,
        throttle,
        details: _,
    } = new;
    let throttled = |reading: &Reading<_>| {
        reading.known().map(|throttle: &rooflined_core::board::Throttle| throttle.active)
    };
    *power_mode != old.power_mode
        || *cores_online != old.cores_online
        || *cpu_clock_cap != old.cpu_clock_cap
        || *gpu_clock_cap != old.gpu_clock_cap
        || *tpc_mask != old.tpc_mask
        || *sm_online != old.sm_online
        || *memory_clock_cap != old.memory_clock_cap
        || throttled(throttle) != throttled(&old.throttle)
        || memory_moved(&old.memory, memory, MEMORY_STEP)
}

/// By more than this part of the total, or from unknown to known and back.
fn memory_moved(old: &Reading<Memory>, new: &Reading<Memory>, part: f64) -> bool {
    match (old.known(), new.known()) {
        (Some(old), Some(new)) => (new.available - old.available).get().abs() > part * new.total.get(),
        (old, new) => old.is_some() != new.is_some(),
    }
}

/// What happened, the root before its consequences: who knows that the mode was switched need not hear that clocks
/// moved. Never empty.
#[must_use]
pub fn causes(old: &Snapshot, new: &Snapshot) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut ceilings = None;
    for change in diff(old, new) {
        let Some(words) = in_words(&change, old, new) else { continue };
        match change {
            Change::Mode { .. } => causes.push(Cause { key: "mode", words }),
            Change::Throttle { .. } => causes.push(Cause { key: "throttle", words }),
            Change::Calibration => causes.push(Cause { key: "calibration", words }),
            Change::Roofline { .. } => ceilings = Some(Cause { key: "ceilings", words }),
            Change::State | Change::Hold | Change::Degraded => {}
        }
    }
    let learnt =
        !Arc::ptr_eq(&old.observed_runs, &new.observed_runs) || !Arc::ptr_eq(&old.residuals, &new.residuals);
    if learnt && causes.iter().all(|cause| cause.key != "calibration") {
        causes.push(Cause { key: "observations", words: "services reported what they measured".to_owned() });
    }
    if causes.is_empty() {
        causes.extend(clocks(old, new).or(ceilings));
    }
    let least = if causes.is_empty() { 0.0 } else { MEMORY_MOVED };
    causes.extend(memory(old, new, least));
    if causes.is_empty() && old.modes != new.modes {
        let words = "which power modes can be entered has changed".to_owned();
        causes.push(Cause { key: "modes", words });
    }
    if causes.is_empty() {
        causes.push(Cause { key: "other", words: "the figures behind it have changed".to_owned() });
    }
    causes
}

/// Clocks that predictions are made for; never those of an idle machine.
fn clocks(old: &Snapshot, new: &Snapshot) -> Option<Cause> {
    let moved = |what: &str, old: Option<Hertz>, new: Option<Hertz>| match (old, new) {
        (Some(old), Some(new)) if old != new => Some(format!("{what} went from {old} to {new}")),
        _ => None,
    };
    let memory = |snapshot: &Snapshot| snapshot.state.memory_clock_cap.known().copied();
    let words: Vec<String> = [
        moved("the clock under load", old.roofline.clock, new.roofline.clock),
        moved("the memory clock under load", memory(old), memory(new)),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!words.is_empty()).then(|| Cause { key: "clocks", words: words.join(" and ") })
}

fn memory(old: &Snapshot, new: &Snapshot, least: f64) -> Option<Cause> {
    let (was, is) = (&old.state.memory, &new.state.memory);
    let words = match (was.known(), is.known()) {
        _ if !memory_moved(was, is, least) => return None,
        (Some(was), Some(is)) => {
            format!("the memory available went from {} to {}", was.available, is.available)
        }
        (_, Some(is)) => format!("the memory available is known again: {}", is.available),
        _ => "the memory available is no longer known".to_owned(),
    };
    Some(Cause { key: "memory", words })
}

/// Why advice given before this change may no longer hold; `None` where it still does.
#[must_use]
pub fn in_words(change: &Change, old: &Snapshot, new: &Snapshot) -> Option<String> {
    match change {
        Change::Mode { from, to } => {
            let name = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "unknown".to_owned());
            Some(format!("the power mode went from {} to {}", name(from), name(to)))
        }
        Change::Throttle { active: true } => Some("the machine began to throttle".to_owned()),
        Change::Throttle { active: false } => Some("the machine stopped throttling".to_owned()),
        Change::Roofline { ratio } => Some(format!("a ceiling moved by {:+.1} %", 100.0 * (ratio - 1.0))),
        Change::Calibration => {
            let measured =
                |snapshot: &Snapshot| snapshot.calibration.as_ref().map(|record| record.measured_at_unix_s);
            (measured(old) != measured(new)).then(|| "there is a new calibration".to_owned())
        }
        Change::State | Change::Degraded | Change::Hold => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::board::{ActiveMode, Load, ThermalZone, Throttle};
    use rooflined_core::units::{Bytes, BytesPerSecond, Celsius, Seconds};
    use rooflined_governor::fixtures;
    use rooflined_governor::{Governor, Now};
    use rooflined_predict::learning::Residuals;
    use rooflined_predict::learning::models::ObservedRuns;

    fn snapshot() -> Snapshot {
        let now = Now { boottime: Seconds(1.0), unix_s: 1.7e9 };
        let policy = fixtures::policy();
        let governor =
            Governor::new(now, fixtures::board(), fixtures::state(), None, Residuals::default(), &policy);
        let mut snapshot = Snapshot::clone(&governor.snapshot());
        snapshot.roofline.clock = Some(Hertz(2e9));
        snapshot.state.power_mode = mode("25W");
        snapshot.state.throttle = Reading::Known(Throttle { active: false, evidence: vec![] });
        snapshot
    }

    fn mode(name: &str) -> Reading<ActiveMode> {
        Reading::Known(ActiveMode { id: 1, name: name.into() })
    }

    /// What happens to a snapshot, and what is said of it; `None` where nothing is to be re-evaluated.
    type Happening = (&'static str, fn(&mut Snapshot), Option<(&'static str, &'static str)>);

    fn available(snapshot: &mut Snapshot, bytes: f64) {
        if let Reading::Known(memory) = &mut snapshot.state.memory {
            memory.available = Bytes(bytes);
        }
    }

    const HAPPENINGS: &[Happening] = &[
        ("nothing", |_| {}, None),
        (
            "it got warm and busy",
            |s| {
                let temperature = Reading::Known(Celsius(93.0));
                s.serial += 1;
                s.state.taken_at = Seconds(2.0);
                s.state.temperatures = Reading::Known(vec![ThermalZone { name: "cpu".into(), temperature }]);
                s.state.load =
                    Reading::Known(Load { average_1m: 9.0, busy_ratio: Some(1.0), steal_ratio: None });
                s.state.gpu_clock = Reading::Known(Hertz(306e6));
                s.state.memory_clock = Reading::Known(Hertz(204e6));
                s.state.cpu_clocks = Reading::Known(vec![Hertz(1e9)]);
                s.calibration_status.waiting_reason = Some("too hot".into());
                s.degraded.insert("bus", "gone; start it".into());
            },
            None,
        ),
        ("16 MB of 16 GB were taken", |s| available(s, 8e9 - 16e6), None),
        (
            "the evidence is worded otherwise",
            |s| {
                s.state.throttle = Reading::Known(Throttle { active: false, evidence: vec!["cool".into()] });
            },
            None,
        ),
        (
            "a mode",
            |s| {
                s.state.power_mode = mode("15W");
                s.roofline.clock = Some(Hertz(1e9));
                s.roofline.bandwidth.value = s.roofline.bandwidth.value * 0.5;
            },
            Some(("mode", "the power mode went from 25W to 15W")),
        ),
        (
            "heat",
            |s| {
                s.state.throttle = Reading::Known(Throttle { active: true, evidence: vec!["hot".into()] });
                s.roofline.clock = Some(Hertz(1.2e9));
            },
            Some(("throttle", "the machine began to throttle")),
        ),
        (
            "a cap",
            |s| s.roofline.clock = Some(Hertz(1.5e9)),
            Some(("clocks", "the clock under load went from 2.00 GHz to 1.50 GHz")),
        ),
        (
            "a ceiling",
            |s| s.roofline.bandwidth.value = BytesPerSecond(s.roofline.bandwidth.value.get() * 0.8),
            Some(("ceilings", "a ceiling moved by -20.0 %")),
        ),
        (
            "a loader",
            |s| available(s, 2e9),
            Some(("memory", "the memory available went from 8.00 GB to 2.00 GB")),
        ),
        (
            "an unreadable meminfo",
            |s| s.state.memory = Reading::failed("/proc/meminfo: denied"),
            Some(("memory", "the memory available is no longer known")),
        ),
        (
            "a report",
            |s| s.observed_runs = Arc::new(ObservedRuns::default()),
            Some(("observations", "services reported what they measured")),
        ),
        (
            "a hold",
            |s| s.power.switching = Some("15W".into()),
            Some(("other", "the figures behind it have changed")),
        ),
    ];

    #[test]
    fn what_answers_rest_on_is_told_from_what_always_moves() {
        for (name, happen, expected) in HAPPENINGS {
            let old = snapshot();
            let mut new = old.clone();
            happen(&mut new);
            assert_eq!(may_alter(&old, &new), expected.is_some(), "{name}");
        }
    }

    #[test]
    fn every_cause_is_named_with_its_numbers_and_its_consequences_are_not() {
        for (name, happen, expected) in HAPPENINGS {
            let Some((key, words)) = expected else { continue };
            let old = snapshot();
            let mut new = old.clone();
            happen(&mut new);
            let expected = [Cause { key, words: (*words).to_owned() }];
            assert_eq!(causes(&old, &new), expected, "{name}");
        }
    }

    #[test]
    fn two_things_at_once_are_both_named() {
        let old = snapshot();
        let mut new = old.clone();
        new.state.power_mode = mode("7W");
        available(&mut new, 1e9);
        let keys: Vec<_> = causes(&old, &new).into_iter().map(|cause| cause.key).collect();
        assert_eq!(keys, ["mode", "memory"]);
    }

    #[test]
    fn small_steps_of_memory_add_up() {
        let previous = snapshot();
        let steps = (1..10).map(|step| {
            let mut next = previous.clone();
            available(&mut next, 8e9 - 16e6 * f64::from(step));
            may_alter(&previous, &next)
        });
        // 16 GB / 256 = 62.5 MB are exceeded at the fourth step.
        let first = steps.into_iter().position(|alters| alters);
        assert_eq!(first, Some(3));
    }
}
