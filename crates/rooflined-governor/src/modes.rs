//! The power modes of the machine, each with its ceilings and whether it can be entered.

use std::sync::Arc;

use super::Governor;
use rooflined_core::board::{PowerMode, Reading, nvpmodel};
use rooflined_core::ceilings::{Roofline, scaling};
use rooflined_core::configuration::how_to_enable_control;
use rooflined_core::hardware::Hardware;
use rooflined_core::units::{Hertz, Watts};
use rooflined_predict::EngineProfile;
use rooflined_predict::calibration::{Accelerator, CalibrationRecord, PowerUnderLoad};
use rooflined_predict::power::{CARRIED_GUESS, PowerSource, power_of};
use rooflined_predict::snapshot::{ModeView, WorstPower, WorstSource, point_in};

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
    // Its ceilings, and whether they are its own.
    (roofline, own): (&Roofline, bool),
) -> Option<WorstPower> {
    let peak = measured_power(record, mode).map(|power| power.peak);
    let file = record.and_then(|record| record.power.as_ref());
    let held = file.and_then(|file| file.at(roofline, PowerSource::Measured)).and_then(|costs| {
        let costs = match hardware {
            Some(hardware) => costs.of_module(hardware),
            None => costs,
        };
        let source = if costs.carried || !own { WorstSource::Carried } else { WorstSource::Measured };
        Some(WorstPower { watts: costs.worst(roofline)?, source })
    });
    match (held, peak) {
        (Some(held), Some(peak)) if peak > held.watts => {
            Some(WorstPower { watts: peak, source: WorstSource::Measured })
        }
        (Some(held), _) => Some(held),
        (None, Some(peak)) => {
            Some(WorstPower { watts: peak * (1.0 + CARRIED_GUESS), source: WorstSource::Measured })
        }
        (None, None) => {
            let watts = power_of(hardware, roofline)?.worst(roofline)?;
            Some(WorstPower { watts, source: WorstSource::Prior })
        }
    }
}

/// Caps that differ by less than this are the same: clocks are rounded to the steps of a table.
const SAME_CAP: f64 = 0.01;

/// What bounds the load of a mode from above, each infinite where nothing caps it.
type Caps = [f64; 5];

/// Whether a mode with these caps gives nothing more than `other`: what it can draw, that one can.
fn within(caps: &Caps, other: &Caps) -> bool {
    caps.iter().zip(other).all(|(own, others)| *own <= others * (1.0 + SAME_CAP))
}

/// The most that each mode draws in line with the others: no more than a mode that gives no less of anything, and no less
/// than a reading in a mode that gives no more. Each mode has its caps, what is said of it alone, and its highest reading.
fn in_line(modes: &[(Caps, Option<WorstPower>, Option<Watts>)]) -> Vec<Option<WorstPower>> {
    let seen = |of: &Caps| {
        let within = modes.iter().filter(|(caps, ..)| within(caps, of));
        within.filter_map(|(_, _, peak)| *peak).reduce(Watts::max)
    };
    let elsewhere = |worst: WorstPower| match worst.source {
        WorstSource::Measured => WorstSource::Carried,
        source => source,
    };
    // A reading is a fact: what is carried to a mode that gives more is no less.
    let raised: Vec<Option<WorstPower>> = modes
        .iter()
        .map(|(caps, worst, _)| {
            let worst = (*worst)?;
            let seen = seen(caps).filter(|seen| *seen > worst.watts);
            Some(seen.map_or(worst, |watts| WorstPower { watts, source: WorstSource::Carried }))
        })
        .collect();
    let bounded = |index: usize| {
        let (caps, ..) = &modes[index];
        let others = modes.iter().zip(&raised).filter(|((of, ..), _)| within(caps, of));
        let bound =
            others.filter_map(|(_, worst)| *worst).reduce(|a, b| if b.watts < a.watts { b } else { a })?;
        let own = raised[index].filter(|own| own.watts <= bound.watts);
        Some(own.unwrap_or(WorstPower { source: elsewhere(bound), ..bound }))
    };
    (0..modes.len()).map(bounded).collect()
}

impl Governor {
    /// Every mode with what it would give.
    pub(super) fn mode_views(&self) -> Arc<Vec<ModeView>> {
        let views = self.board.power_modes().iter().map(|mode| {
            let reboot_required = self.reboot_required(mode);
            let (roofline, profile) = self.model_in(mode);
            let hardware = self.hardware.as_deref().filter(|_| self.accelerator == Accelerator::Gpu);
            let own =
                hardware.is_some() || self.state.power_mode.known().is_some_and(|active| mode.is(active));
            let worst_power = worst_power(self.record.as_ref(), hardware, mode, (&roofline, own));
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
        let mut views: Vec<ModeView> = views.collect();
        let alone: Vec<_> = views
            .iter()
            .map(|view| {
                let peak = measured_power(self.record.as_ref(), &view.mode).map(|power| power.peak);
                (self.caps_of(&view.mode), view.worst_power, peak)
            })
            .collect();
        views.iter_mut().zip(in_line(&alone)).for_each(|(view, worst)| view.worst_power = worst);
        Arc::new(views)
    }

    /// What bounds the worst load in `mode`: of a GPU its own clock, SMs and memory, for that load keeps these busy and not
    /// the CPU; where the CPU is the accelerator all that the mode caps.
    fn caps_of(&self, mode: &PowerMode) -> Caps {
        let hardware = self.hardware.as_deref().filter(|_| self.accelerator == Accelerator::Gpu);
        let clock = |cap: Option<Hertz>| cap.map_or(f64::INFINITY, Hertz::get);
        let units = |count: Option<u32>| count.map_or(f64::INFINITY, f64::from);
        match hardware {
            Some(hardware) => {
                let point = point_in(&self.board, &self.state, Some(hardware), mode);
                [
                    point.gpu_clock.unwrap_or(hardware.gpu_clock).get(),
                    f64::from(point.sm_online.unwrap_or(hardware.sm)),
                    clock(point.memory_clock.or(hardware.memory_clock)),
                    0.0,
                    0.0,
                ]
            }
            None => [
                clock(mode.gpu_max),
                units(mode.sm_online),
                clock(mode.memory_max),
                clock(mode.cpu_max),
                units(mode.cores_online),
            ],
        }
    }

    fn model_in(&self, mode: &PowerMode) -> (Roofline, EngineProfile) {
        match self.hardware.as_deref().filter(|_| self.accelerator == Accelerator::Gpu) {
            Some(hardware) => {
                let point = point_in(&self.board, &self.state, Some(hardware), mode);
                self.gpu_model_at(hardware, &point)
            }
            None => (self.cpu_roofline_in(mode), self.snapshot.profile.clone()),
        }
    }

    /// The CPU's ceilings now, carried to the cores and the clock of `mode`.
    fn cpu_roofline_in(&self, mode: &PowerMode) -> Roofline {
        let now = &self.snapshot.roofline;
        if self.state.power_mode.known().is_some_and(|active| mode.is(active)) {
            return now.clone();
        }
        let highest = self.board.cpu.max_clock.known().copied();
        let clock = mode.cpu_max.into_iter().chain(highest).reduce(Hertz::min);
        scaling::to_clock(now, mode.cores_online.unwrap_or(now.workers), clock)
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
            return Some(
                "it switches other GPU cores or memory channels on and off, which takes a reboot".into(),
            );
        }
        if !self.policy.control_enabled {
            return Some(format!("control is off: {}", how_to_enable_control()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{board, jetson, jetson_in, policy, sample};
    use crate::machine::machine_key;
    use crate::{Command, Effect, Event, Now, Policy, Reply};
    use rooflined_core::board::{Board, BoardState, Gpu, GpuDriver, PowerModes, Throttle};
    use rooflined_core::ceilings::Provenance;
    use rooflined_core::hardware::{Kind, NominalMode, registry};
    use rooflined_core::precision::Precision;
    use rooflined_core::refusal::{Code, Refusal};
    use rooflined_core::units::{Hertz, Seconds};
    use rooflined_predict::Engine;
    use rooflined_predict::calibration::{PlanKind, ProbeEvent, RECORD_SCHEMA, Reference, Regime};
    use rooflined_predict::learning::Residuals;
    use rooflined_predict::power::{Energies, ErrorsOf, Place, PowerFile, Rails};
    use rooflined_predict::snapshot::{Change, diff};

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
        let asked = Event::Requested {
            ticket: 9,
            command: Command::Calibrate { plan: PlanKind::Full, wait: true, force: false },
        };
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
        let rooflined_core::board::Reading::Known(gpu) = &mut board.gpu else { unreachable!() };
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
        assert!(
            effects.iter().any(|effect| matches!(effect, Effect::Save(crate::StoreItem::Calibration(_)))),
            "{effects:?}"
        );
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
        let asked = Event::Requested {
            ticket: 9,
            command: Command::Calibrate { plan: PlanKind::Full, wait: true, force: false },
        };
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
        let real = rooflined_core::board::Board { simulated: false, ..jetson() };
        let old = rooflined_core::board::Board { key: "jetson-agx-xavier".into(), ..real.clone() };
        let elsewhere = Policy { elsewhere: true, ..policy() };
        refused(real, &elsewhere, "--root");
        refused(old, &policy(), "7.2");
    }

    fn refused(board: rooflined_core::board::Board, policy: &Policy, why: &str) {
        let mut governor = Governor::new(at(0.0), board, jetson_in(0), None, Residuals::default(), policy);
        let effects = governor.handle(at(1.0), Event::Tick);
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::StartProbe { .. })), "{effects:?}");
        let asked = Event::Requested {
            ticket: 1,
            command: Command::Calibrate { plan: PlanKind::Full, wait: true, force: true },
        };
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

    macro_rules! tables {
        ($($name:literal)*) => {
            /// Every file of power modes that a release ships.
            const TABLES: &[(&str, &str)] =
                &[$(($name, include_str!(concat!("../../../tests/nvpmodel/", $name, ".conf"))),)*];
        };
    }

    tables! {
        "agx-orin-32gb-r35" "agx-orin-64gb-r34" "agx-orin-64gb-r35" "agx-orin-64gb-r36" "agx-thor-t4000-r38"
        "agx-thor-t5000-r38" "agx-xavier-r32" "custom-names-and-gaps" "orin-nano-4gb-r35" "orin-nano-4gb-super-r36"
        "orin-nano-8gb-r35" "orin-nano-8gb-r36" "orin-nano-8gb-super-r36" "orin-nano-8gb-super-r36.5" "orin-nx-16gb-r35"
        "orin-nx-16gb-super-r36" "orin-nx-8gb-r35" "orin-nx-8gb-super-r36" "tx2-r32" "xavier-nx-r32" "xavier-nx-r35"
    }

    /// Every board of the registry that shares its memory with the CPU, with its own modes and with those of every file.
    fn boards() -> Vec<(&'static Hardware, Board)> {
        let mut boards = Vec::new();
        for hardware in registry().entries().filter(|hardware| hardware.kind == Kind::Integrated) {
            let own = hardware.modes.iter().map(NominalMode::power_mode);
            let own = PowerModes { modes: own.collect(), ..PowerModes::default() };
            for modes in TABLES.iter().map(|(_, text)| nvpmodel::parse(text)).chain([own]) {
                let gpu = Gpu {
                    name: Reading::absent("not asked"),
                    driver: GpuDriver::Devfreq,
                    sm_total: Reading::Known(hardware.sm),
                    max_clock: Reading::Known(hardware.gpu_clock),
                    clocks: Vec::new(),
                    driver_version: Reading::absent("not asked"),
                    parts: Default::default(),
                };
                let board = Board {
                    key: hardware.key.clone(),
                    gpu: Reading::Known(gpu),
                    modes: Reading::Known(modes),
                    ..jetson()
                };
                boards.push((hardware, board));
            }
        }
        boards
    }

    /// A calibration in `mode` whose readings reached `peak`, with loads that were held there or without.
    fn calibrated_in(
        board: &Board,
        mode: &PowerMode,
        view: &ModeView,
        peak: f64,
        held: bool,
    ) -> CalibrationRecord {
        let place = Place::of(&view.roofline).unwrap();
        let file = PowerFile {
            hardware: board.key.clone(),
            boards: vec![board.key.clone()],
            rails: Rails::Module,
            rows: 8,
            half_width_ratio: 0.1,
            errors: 8,
            errors_of: ErrorsOf::Hardware,
            flop_precision: Precision::Fp16,
            cap_w: None,
            energies: Energies {
                idle_w: 0.1 * peak,
                active_w: 0.1 * peak,
                byte_j: 0.4 * peak / place.memory_bytes_per_s,
                flop_j: Some(1e-12),
                weight_j: 0.0,
                busy_w: Some(0.5 * peak),
            },
            reference: rooflined_predict::power::Reference::of(registry().get(&board.key).unwrap()),
            points: vec![place],
        };
        let power = PowerUnderLoad {
            mean: Watts(0.8 * peak),
            peak: Watts(peak),
            readings: 50,
            scope: "module".into(),
        };
        let regime = Regime {
            key: mode.name.clone(),
            reference: Reference { read: view.roofline.bandwidth.value, core_to_core: None },
            measured_at_unix_s: 1e9,
            clock_cap: None,
            point: None,
            power: Some(power),
            power_points: Vec::new(),
            power_reason: None,
            samples: 40,
            loaded: false,
            roofline: view.roofline.clone(),
            profile: EngineProfile::unknown(Engine::Bare),
        };
        CalibrationRecord {
            schema: RECORD_SCHEMA,
            key: machine_key(board, rooflined_core::names::InstructionSet::Auto),
            measured_at_unix_s: 1e9,
            wall: Seconds(8.0),
            plan: "full".into(),
            simulated: true,
            loaded: false,
            other_work: None,
            regimes: vec![regime],
            rejected: Vec::new(),
            skipped: Vec::new(),
            power: held.then_some(file),
        }
    }

    /// GPU clock, SMs and memory clock of a mode.
    fn clocks_and_units(hardware: &Hardware, mode: &PowerMode) -> [f64; 3] {
        let highest = |cap: Option<Hertz>, own: Option<Hertz>| {
            cap.into_iter().chain(own).reduce(Hertz::min).map_or(f64::INFINITY, Hertz::get)
        };
        let nominal = hardware.mode(&mode.name).map(|mode| mode.sm_online);
        [
            highest(mode.gpu_max, Some(hardware.gpu_clock)),
            f64::from(mode.sm_online.or(nominal).unwrap_or(hardware.sm)),
            highest(mode.memory_max, hardware.memory_clock),
        ]
    }

    #[test]
    fn no_mode_draws_more_at_its_worst_than_one_that_gives_no_less() {
        let (mut pairs, mut alone) = (0, 0);
        for (hardware, board) in boards() {
            let with = |record| {
                let state = crate::fixtures::state();
                Governor::new(at(0.0), board.clone(), state, record, Residuals::default(), &manual())
            };
            let modes = board.power_modes();
            let views = with(None).snapshot().modes.clone();
            let measured = modes.iter().zip(views.iter()).enumerate().flat_map(|(index, (mode, view))| {
                // Once more than any other mode's, once less.
                let peak = if index % 2 == 0 { 90.0 } else { 9.0 };
                [true, false].map(|held| Some(calibrated_in(&board, mode, view, peak, held)))
            });
            for record in measured.chain([None]) {
                let governor = with(record.clone());
                let views = governor.snapshot().modes.clone();
                let by_itself = |view: &ModeView| {
                    Some(
                        worst_power(record.as_ref(), Some(hardware), &view.mode, (&view.roofline, true))?
                            .watts,
                    )
                };
                for less in views.iter() {
                    let reading = measured_power(record.as_ref(), &less.mode).map(|power| power.peak);
                    assert!(
                        reading <= less.worst_power.map(|worst| worst.watts),
                        "{} {}",
                        board.key,
                        less.mode.name
                    );
                    for more in views.iter() {
                        let [fewer, many] = [less, more].map(|view| clocks_and_units(hardware, &view.mode));
                        if std::ptr::eq(less, more) || !fewer.iter().zip(many).all(|(a, b)| *a <= b) {
                            continue;
                        }
                        pairs += 1;
                        alone += usize::from(by_itself(less) > by_itself(more));
                        let [low, high] = [less, more].map(|view| view.worst_power.unwrap().watts);
                        let names = [&less.mode.name, &more.mode.name];
                        assert!(low <= high, "{} {names:?}: {low} and {high}, {record:?}", board.key);
                    }
                }
            }
        }
        assert!(
            pairs > 10_000 && alone > 100,
            "{alone} of {pairs} pairs are out of line alone: nothing was tested"
        );
    }

    #[test]
    fn what_a_mode_draws_at_its_worst_says_where_it_comes_from() {
        let mut board = jetson();
        board.key = "jetson-agx-orin-64gb".into();
        let with = |record| {
            let state = crate::fixtures::state();
            let governor =
                Governor::new(at(0.0), board.clone(), state, record, Residuals::default(), &manual());
            governor.snapshot().modes.clone()
        };
        let sources = |views: &[ModeView]| -> Vec<_> {
            views.iter().map(|view| view.worst_power.unwrap().source.key()).collect()
        };
        let before = with(None);
        assert_eq!(sources(&before), ["prior"; 3]);
        // Of MAXN, MODE_30W and MODE_50W the last.
        let record = calibrated_in(&board, &before[2].mode, &before[2], 30.0, true);
        let after = with(Some(record));
        assert_eq!(sources(&after), ["carried", "carried", "measured"]);
    }

    #[test]
    fn a_mode_that_gives_nothing_more_is_bounded_and_a_reading_raises_what_gives_no_less() {
        let measured = |watts| Some(WorstPower { watts: Watts(watts), source: WorstSource::Measured });
        let prior = |watts| Some(WorstPower { watts: Watts(watts), source: WorstSource::Prior });
        let caps = |clock: f64| [clock, 8.0, f64::INFINITY, 0.0, 0.0];
        // 15W says 26.7 W beside 21.2 W that 25W was measured with.
        let modes = [(caps(612e6), prior(26.7), None), (caps(918e6), measured(21.2), Some(Watts(17.0)))];
        let told = |modes: &[_]| -> Vec<_> {
            in_line(modes)
                .into_iter()
                .map(|worst| worst.map(|worst| (worst.watts.get(), worst.source)))
                .collect()
        };
        assert_eq!(told(&modes), [Some((21.2, WorstSource::Carried)), Some((21.2, WorstSource::Measured))]);
        let modes = [(caps(612e6), measured(20.0), Some(Watts(20.0))), (caps(918e6), prior(18.0), None)];
        assert_eq!(told(&modes), [Some((20.0, WorstSource::Measured)), Some((20.0, WorstSource::Carried))]);
        // Fewer SMs at a higher clock are another thing, and nothing bounds the fastest mode.
        let modes = [
            ([918e6, 4.0, 1.0, 0.0, 0.0], prior(9.0), None),
            ([612e6, 8.0, 1.0, 0.0, 0.0], prior(7.0), None),
        ];
        assert_eq!(told(&modes), [Some((9.0, WorstSource::Prior)), Some((7.0, WorstSource::Prior))]);
        let modes = [(caps(612e6), measured(7.0), Some(Watts(7.0))), (caps(918e6), None, None)];
        assert_eq!(told(&modes), [Some((7.0, WorstSource::Measured)), None]);
        // What nobody knows alone is known to stay below what gives no less.
        let modes = [(caps(612e6), None, None), (caps(918e6), measured(7.0), Some(Watts(7.0)))];
        assert_eq!(told(&modes), [Some((7.0, WorstSource::Carried)), Some((7.0, WorstSource::Measured))]);
    }

    #[test]
    fn a_machine_without_modes_has_none_to_show() {
        let none =
            Governor::new(at(0.0), board(), crate::fixtures::state(), None, Residuals::default(), &manual());
        assert!(none.snapshot().modes.is_empty());
    }
}
