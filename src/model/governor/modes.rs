//! The power modes of the machine, each with its ceilings and whether it can be entered.

use std::sync::Arc;

use super::Governor;
use decide::snapshot::{ModeView, WorstPower, gpu_model, point_in};
use predict::EngineProfile;
use predict::calibration::{Accelerator, CalibrationRecord, PowerUnderLoad};
use predict::power::{CARRIED_GUESS, PowerSource, whole_power_of};
use roofline::board::{PowerMode, Reading, nvpmodel};
use roofline::ceilings::Roofline;
use roofline::hardware::Hardware;

/// Power measured in the mode of that name.
fn measured_power<'a>(record: Option<&'a CalibrationRecord>, mode: &PowerMode) -> Option<&'a PowerUnderLoad> {
    let regime = record?.regimes.iter().find(|regime| regime.key == mode.name)?;
    regime.power.as_ref()
}

/// The most that the machine draws in a mode: by what loads cost that were held here, in this mode or another, and no less
/// than any reading; without them by the readings alone, whose loads were not the worst there are; else by what others
/// measured.
fn worst_power(
    record: Option<&CalibrationRecord>,
    hardware: Option<&Hardware>,
    mode: &PowerMode,
    roofline: &Roofline,
) -> Option<WorstPower> {
    let peak = measured_power(record, mode).map(|power| power.peak);
    let file = record.and_then(|record| record.power.as_ref());
    let held = file.and_then(|file| file.at(roofline, PowerSource::Measured)?.worst(roofline));
    let measured = held.map(|held| peak.map_or(held, |peak| held.max(peak)));
    let measured = measured.or_else(|| Some(peak? * (1.0 + CARRIED_GUESS)));
    if let Some(watts) = measured {
        return Some(WorstPower { watts, measured: true });
    }
    let watts = whole_power_of(hardware?, roofline)?.worst(roofline)?;
    Some(WorstPower { watts, measured: false })
}

impl Governor {
    /// Every mode with what it would give.
    pub(super) fn mode_views(&self) -> Arc<Vec<ModeView>> {
        let views = self.board.power_modes().iter().map(|mode| {
            let reboot_required = self.reboot_required(mode);
            let (roofline, profile) = self.model_in(mode);
            let hardware = self.hardware.as_deref().filter(|_| self.accelerator == Accelerator::Gpu);
            let worst_power = worst_power(self.record.as_ref(), hardware, mode, &roofline);
            ModeView {
                roofline,
                profile,
                reboot_required,
                unreachable: self.unreachable(mode, reboot_required),
                measured_power: measured_power(self.record.as_ref(), mode).map(|power| power.mean),
                worst_power,
                mode: mode.clone(),
            }
        });
        Arc::new(views.collect())
    }

    fn model_in(&self, mode: &PowerMode) -> (Roofline, EngineProfile) {
        match self.hardware.as_deref().filter(|_| self.accelerator == Accelerator::Gpu) {
            Some(hardware) => {
                let point = point_in(&self.board, &self.state, Some(hardware), mode);
                gpu_model(hardware, self.record.as_ref(), &point)
            }
            None => (self.snapshot.roofline.clone(), self.snapshot.profile.clone()),
        }
    }

    /// Whether entering `mode` from here needs a reboot: it does if the gating of units changes. `None` where the live
    /// gating is not known.
    fn reboot_required(&self, mode: &PowerMode) -> Option<bool> {
        let active = self.state.power_mode.known();
        if active.is_some_and(|active| mode.is(active)) {
            return Some(false);
        }
        match (mode.tpc_mask, &self.state.tpc_mask) {
            (Some(wanted), Reading::Known(live)) if wanted != *live => return Some(true),
            _ => {}
        }
        // Other masks have no file that everybody may read: compared with what the active mode wrote.
        let gating = |mode: &PowerMode| -> Vec<(String, String)> {
            let settings = nvpmodel::gating_settings(mode);
            settings.map(|setting| (setting.arg.clone(), setting.value.clone())).collect()
        };
        let wanted = gating(mode);
        if wanted.is_empty() {
            return Some(false);
        }
        let active = active.and_then(|active| self.board.modes.known()?.get(active));
        Some(gating(active?) != wanted)
    }

    /// Why `mode` cannot be entered now.
    fn unreachable(&self, mode: &PowerMode, reboot_required: Option<bool>) -> Option<String> {
        let allowed = self.policy.allowed_modes.as_ref();
        let listed =
            |allowed: &Vec<String>| allowed.iter().any(|name| name.trim().eq_ignore_ascii_case(&mode.name));
        if allowed.is_some_and(|allowed| !listed(allowed)) {
            return Some("it is not among allowed_modes of [control]".into());
        }
        if reboot_required == Some(true) {
            return Some("it gates other units than the active mode, which takes a reboot".into());
        }
        if !self.policy.control_enabled {
            return Some("control is off: set enabled = true below [control]".into());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{board, jetson, jetson_in, policy, sample};
    use crate::{Effect, Event, Now, Policy, Reply};
    use decide::snapshot::{Change, diff};
    use predict::calibration::{PlanKind, ProbeEvent};
    use predict::learning::Residuals;
    use roofline::board::{BoardState, Throttle};
    use roofline::ceilings::Provenance;
    use roofline::precision::Precision;
    use roofline::refusal::{Code, Refusal};
    use roofline::units::{Hertz, Seconds};

    fn at(seconds: f64) -> Now {
        Now { boottime: Seconds(seconds), unix_s: 1e9 + seconds }
    }

    fn manual() -> Policy {
        Policy { automatic: false, ..policy() }
    }

    fn governor(state: BoardState) -> Governor {
        Governor::new(at(0.0), jetson(), state, None, Residuals::default(), &manual())
    }

    fn near(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 0.005
    }

    /// Calibrates in the mode of the moment; the samples are those of the fixture.
    fn calibrate(governor: &mut Governor, now: f64) -> Vec<Effect> {
        let asked = Event::CalibrateRequested { ticket: 9, plan: PlanKind::Full, wait: true, force: false };
        let effects = governor.handle(at(now), asked);
        let started = effects.iter().find_map(|effect| match effect {
            Effect::StartProbe { job, plan } => Some((*job, plan.clone())),
            _ => None,
        });
        let (job, plan) = started.unwrap_or_else(|| panic!("{effects:?}"));
        for step in &plan.steps {
            let event = Box::new(ProbeEvent::Sample(Box::new(sample(step, 1.0, 50e-9))));
            governor.handle(at(now), Event::Probe { job, event });
        }
        let finished = ProbeEvent::Finished { wall: Seconds(3.0), cut_short: None };
        governor.handle(at(now), Event::Probe { job, event: Box::new(finished) });
        governor.handle(at(now), Event::ProbeEnded { job, outcome: Ok(()) })
    }

    #[test]
    fn an_uncalibrated_board_has_the_ceilings_of_its_mode_and_never_of_its_idle_clock() {
        let snapshot = governor(jetson_in(2)).snapshot();
        // 8 SM x 612 MHz x 2048 and 256 bit / 8 x 2 x 3199 MHz.
        assert!(near(snapshot.roofline.compute[&Precision::Fp16].value.get(), 8.0 * 612e6 * 2048.0));
        assert!(near(snapshot.roofline.memory_limit.unwrap().value.get(), 32.0 * 2.0 * 3199e6));
        assert!(snapshot.roofline.bandwidth.value < snapshot.roofline.memory_limit.unwrap().value);
        assert_eq!(
            snapshot.roofline.bandwidth.provenance,
            Provenance::Prior,
            "what is pulled is no data sheet's"
        );
        assert_eq!(snapshot.roofline.memory_limit.unwrap().provenance, Provenance::Datasheet);
    }

    #[test]
    fn every_mode_has_its_ceilings_without_being_entered() {
        let governor = governor(jetson_in(2));
        let modes = governor.snapshot().modes.clone();
        let fp16 = |index: usize| modes[index].roofline.compute[&Precision::Fp16].value.get();
        assert!(near(fp16(0), 16.0 * 1300.5e6 * 2048.0));
        assert!(near(fp16(1), 8.0 * 612e6 * 2048.0));
        assert!(near(fp16(2), 16.0 * 816e6 * 2048.0));
        let reboots: Vec<_> = modes.iter().map(|view| view.reboot_required).collect();
        assert_eq!(reboots, [Some(true), Some(false), Some(true)], "from 240 to 0 gates other units");
    }

    #[test]
    fn the_mode_in_force_gives_the_same_by_its_name() {
        for id in [0, 2, 3] {
            let snapshot = governor(jetson_in(id)).snapshot();
            let active = snapshot.state.power_mode.known().unwrap().name.clone();
            assert_eq!(snapshot.mode(&active).unwrap().roofline, snapshot.roofline, "{active}");
        }
    }

    #[test]
    fn a_mode_gives_no_more_than_the_board_can_do() {
        let mut board = jetson();
        board.memory_clock_max = Some(Hertz(2133e6));
        let roofline::board::Reading::Known(gpu) = &mut board.gpu else { unreachable!() };
        gpu.clocks = [306e6, 510e6, 714e6, 918e6].map(Hertz).to_vec();
        let state = jetson_in(2);
        let governor = Governor::new(at(0.0), board, state, None, Residuals::default(), &manual());
        let modes = governor.snapshot().modes.clone();
        let clock = |index: usize| modes[index].roofline.clock.unwrap().get();
        // MAXN has no cap, and 816 MHz is not in the table.
        assert!(near(clock(0), 918e6) && near(clock(2), 714e6));
        let memory = |index: usize| modes[index].roofline.memory_limit.unwrap().value.get();
        assert!(near(memory(0), 32.0 * 2.0 * 2133e6) && near(memory(2), memory(0)));
        // What is in force was read, and is believed.
        assert!(near(clock(1), 612e6) && near(memory(1), 32.0 * 2.0 * 3199e6));
    }

    #[test]
    fn measured_ceilings_beat_the_data_sheet_and_are_carried_to_other_modes() {
        let mut governor = governor(jetson_in(0));
        let effects = calibrate(&mut governor, 1.0);
        assert!(effects.iter().any(|effect| matches!(effect, Effect::SaveCalibration { .. })), "{effects:?}");
        let before = governor.snapshot();
        assert_eq!(before.roofline.bandwidth.provenance, Provenance::Measured);
        assert_eq!(before.calibration.as_ref().unwrap().regimes[0].key, "MAXN");
        let effects = governor.handle(at(2.0), Event::Sampled(Box::new(jetson_in(3))));
        let after = governor.snapshot();
        assert_eq!(after.roofline.bandwidth.provenance, Provenance::Scaled);
        let ratio =
            |precision| after.roofline.compute[&precision].value / before.roofline.compute[&precision].value;
        assert!(near(ratio(Precision::Fp32), 816.0 / 1300.5));
        assert!(
            after.roofline.compute[&Precision::Fp32].low < after.roofline.compute[&Precision::Fp32].value
        );
        let changes = diff(&before, &after);
        assert!(changes.iter().any(|change| matches!(change, Change::Mode { .. })), "{changes:?}");
        assert!(changes.iter().any(|change| matches!(change, Change::Roofline { .. })), "{changes:?}");
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Publish(_))));
        governor.handle(at(3.0), Event::Sampled(Box::new(jetson_in(0))));
        assert_eq!(governor.snapshot().roofline, before.roofline, "back where it was measured");
    }

    #[test]
    fn each_mode_keeps_its_own_measurement() {
        let mut governor = governor(jetson_in(0));
        calibrate(&mut governor, 1.0);
        governor.handle(at(2.0), Event::Sampled(Box::new(jetson_in(3))));
        calibrate(&mut governor, 3.0);
        let record = governor.snapshot().calibration.clone().unwrap();
        let mut keys: Vec<_> = record.regimes.iter().map(|regime| regime.key.clone()).collect();
        keys.sort();
        assert_eq!(keys, ["MAXN", "MODE_50W"]);
        let provenance = |index: usize| governor.snapshot().modes[index].roofline.bandwidth.provenance;
        assert_eq!(
            [0, 1, 2].map(provenance),
            [Provenance::Measured, Provenance::Scaled, Provenance::Measured]
        );
    }

    #[test]
    fn a_mode_that_changes_during_a_calibration_spoils_it() {
        let mut governor = governor(jetson_in(0));
        let asked = Event::CalibrateRequested { ticket: 9, plan: PlanKind::Full, wait: true, force: false };
        let effects = governor.handle(at(1.0), asked);
        let job = effects.iter().find_map(|effect| match effect {
            Effect::StartProbe { job, .. } => Some(*job),
            _ => None,
        });
        let job = job.unwrap();
        governor.handle(at(1.5), Event::Sampled(Box::new(jetson_in(3))));
        let finished = ProbeEvent::Finished { wall: Seconds(3.0), cut_short: None };
        governor.handle(at(2.0), Event::Probe { job, event: Box::new(finished) });
        let effects = governor.handle(at(2.0), Event::ProbeEnded { job, outcome: Ok(()) });
        let refused = effects.iter().find_map(|effect| match effect {
            Effect::Reply { reply: Reply::Refused(Refusal { message, .. }), .. } => Some(message.clone()),
            _ => None,
        });
        assert!(refused.unwrap().contains("MAXN before, MODE_50W now"));
    }

    #[test]
    fn a_gpu_that_is_not_here_or_too_old_for_the_kernels_is_not_measured_and_says_so() {
        let real = roofline::board::Board { simulated: false, ..jetson() };
        let old = roofline::board::Board { key: "jetson-agx-xavier".into(), ..real.clone() };
        let elsewhere = Policy { elsewhere: true, ..policy() };
        refused(real, &elsewhere, "--root");
        refused(old, &policy(), "7.2");
    }

    fn refused(board: roofline::board::Board, policy: &Policy, why: &str) {
        let mut governor = Governor::new(at(0.0), board, jetson_in(0), None, Residuals::default(), policy);
        let effects = governor.handle(at(1.0), Event::Tick);
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::StartProbe { .. })), "{effects:?}");
        let asked = Event::CalibrateRequested { ticket: 1, plan: PlanKind::Full, wait: true, force: true };
        let effects = governor.handle(at(1.0), asked);
        assert!(
            matches!(&effects[..], [Effect::Reply { reply: Reply::Refused(Refusal { code: Code::NoProbe, message, .. }), .. }] if message.contains(why)),
            "{effects:?}"
        );
    }

    #[test]
    fn throttling_under_load_lowers_the_ceilings_and_at_idle_it_does_not() {
        let throttled = |load| BoardState {
            throttle: Reading::Known(Throttle { active: true, evidence: vec!["gpu-throttle-alert".into()] }),
            gpu_load: Reading::Known(load),
            gpu_clock: Reading::Known(Hertz(650.25e6)),
            ..jetson_in(0)
        };
        let fp16 = |state| governor(state).snapshot().roofline.compute[&Precision::Fp16].value.get();
        assert!(near(fp16(throttled(0.95)) / fp16(jetson_in(0)), 0.5));
        assert!(near(fp16(throttled(0.0)) / fp16(jetson_in(0)), 1.0));
    }

    #[test]
    fn a_machine_without_modes_has_none_to_show() {
        let none =
            Governor::new(at(0.0), board(), crate::fixtures::state(), None, Residuals::default(), &manual());
        assert!(none.snapshot().modes.is_empty());
    }
}
