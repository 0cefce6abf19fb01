//! State, sampling and publication.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::control::PowerState;
use super::device::differences;
use super::effects::Effects;
use super::job::{CalibrationRequest, Job, MeasurementRequest, Purpose};
use super::machine::{machine_key, machine_name};
use super::metering::Metering;
use super::servers::Servers;
use super::{Command, Effect, Event, Now, Policy, Severity, Ticket, prior};
use rooflined_core::board::{Board, BoardState, OperatingPoint};
use rooflined_core::ceilings::{Roofline, scaling};
use rooflined_core::configuration::gpu_as_accelerator;
use rooflined_core::hardware::{Hardware, Kind, UNLISTED_GPU};
use rooflined_core::units::{Hertz, Seconds};
use rooflined_predict::calibration::{
    Accelerator, CalibrationRecord, DriverFacts, METERING_PERIOD, PlanContext, ProbeEvent, regime_key,
};
use rooflined_predict::learning::Residuals;
use rooflined_predict::learning::models::ObservedRuns;
use rooflined_predict::learning::reports::{Learnt, Reports};
use rooflined_predict::snapshot::{
    Automatic, BusyClocks, CalibrationStatus, LoadWatch, PowerControl, ReferenceReading, Snapshot,
    accelerator, gpu_model, point_now,
};
use rooflined_predict::{Engine, EngineProfile};

/// Owns everything that changes.
#[derive(Debug)]
pub struct Governor {
    /// When what is handled happened.
    pub(crate) now: Now,
    /// What is to be done about it.
    pub(crate) effects: Effects,
    pub(crate) board: Board,
    /// What the registry knows of the board.
    pub(crate) hardware: Option<Arc<Hardware>>,
    pub(crate) accelerator: Accelerator,
    pub(crate) state: BoardState,
    pub(crate) load_watch: LoadWatch,
    pub(crate) record: Option<CalibrationRecord>,
    /// What services reported.
    pub(crate) learnt: Learnt,
    pub(crate) servers: Servers,
    pub(crate) policy: Policy,
    pub(crate) status: CalibrationStatus,
    pub(crate) job: Option<Job>,
    pub(crate) next_job: u64,
    /// When the last job failed, CLOCK_BOOTTIME.
    pub(crate) failed_at: Option<Seconds>,
    /// Failures since the last success.
    pub(crate) failures: u32,
    /// Since when a calibration waits for the load to end, CLOCK_BOOTTIME.
    pub(crate) busy_since: Option<Seconds>,
    pub(crate) reference: Option<ReferenceReading>,
    pub(crate) degraded: BTreeMap<&'static str, String>,
    pub(crate) watched_until: Seconds,
    pub(crate) power: PowerState,
    /// Sampling period last sent to the sampler.
    pub(crate) sampling_period: Seconds,
    /// Second-level cache of the GPU as its driver tells it; 0 before a probe has asked.
    pub(crate) driver_l2_bytes: u64,
    pub(crate) snapshot: Arc<Snapshot>,
}

/// Between two samples while a calibration waits for an idle moment.
pub(crate) const IDLENESS_PERIOD: Seconds = Seconds(0.25);
/// Sampling stays fast for this long after somebody last looked.
pub(crate) const WATCHED_FOR: Seconds = Seconds(30.0);

impl Governor {
    /// A governor for one machine, with what an earlier run of the daemon stored. A record of another machine, or of
    /// another version's kernels, is not used.
    #[must_use]
    pub fn new(
        now: Now,
        board: Board,
        state: BoardState,
        record: Option<CalibrationRecord>,
        residuals: Residuals,
        policy: &Policy,
    ) -> Self {
        let key = machine_key(&board, policy.instruction_set);
        let record = record.filter(|record| record.key == key && !record.regimes.is_empty());
        let name = machine_name(&board);
        let learnt = Learnt::on(&name, residuals, ObservedRuns::default(), Reports::default());
        let hardware = Hardware::of_board(&board).map(Arc::new);
        let accelerator = accelerator(&board, hardware.as_deref(), policy.accelerator);
        let roofline = prior::roofline(&board, &state);
        let snapshot = Arc::new(Snapshot {
            serial: 0,
            taken_at: now.boottime,
            board: board.clone(),
            state: state.clone(),
            busy_clocks: BusyClocks::default(),
            accelerator,
            hardware: hardware.clone(),
            roofline,
            profile: EngineProfile::unknown(Engine::Bare),
            residuals: Arc::clone(&learnt.residuals),
            observed_runs: Arc::clone(&learnt.observed_runs),
            reports: Arc::clone(&learnt.reports),
            servers: Arc::default(),
            calibration: None,
            calibration_status: CalibrationStatus::default(),
            reference: None,
            degraded: BTreeMap::new(),
            modes: Arc::default(),
            power: PowerControl::default(),
            control_enabled: policy.control_enabled,
            power_limit: None,
        });
        let power = PowerState::new(&state);
        let mut governor = Self {
            now,
            effects: Effects::default(),
            board,
            hardware,
            accelerator,
            state,
            load_watch: LoadWatch::default(),
            record,
            learnt,
            servers: Servers::default(),
            policy: policy.clone(),
            status: CalibrationStatus::default(),
            job: None,
            next_job: 1,
            failed_at: None,
            failures: 0,
            busy_since: None,
            reference: None,
            degraded: BTreeMap::new(),
            watched_until: Seconds::ZERO,
            power,
            sampling_period: policy.idle_period,
            driver_l2_bytes: 0,
            snapshot,
        };
        if let Some(unmet) = governor.unmet() {
            governor.degraded.insert("accelerator", unmet);
        }
        governor.rebuild();
        governor
    }

    /// The snapshot that was last published.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    /// Takes in what happened and says what is to be done.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Effect> {
        self.now = now;
        match event {
            Event::Tick => {
                self.woken();
                self.consider_calibrating();
            }
            Event::Sampled(state) => {
                self.sampled(*state);
                self.note_slow_servers();
                self.pace();
                self.consider_calibrating();
                // Loads are metered, and idle moments looked for, many times a second; clients are notified as often as ever.
                let since = self.now.boottime - self.snapshot.taken_at;
                let often = self.is_holding() || self.looks_for_idleness();
                if !often || since >= self.policy.sampling_period {
                    self.publish();
                }
            }
            Event::Watched => {
                self.watched_until = self.now.boottime + WATCHED_FOR;
                self.pace();
            }
            Event::Requested { ticket, command } => self.execute(ticket, command),
            Event::ConnectionClosed { connection } => self.connection_closed(connection),
            Event::ConnectionLost { connection } => self.connection_lost(connection),
            Event::OrderAnswered { order, answer } => self.finish_order(order, *answer),
            Event::Actuator { problem } => self.actuator_changed(problem),
            Event::ClientGone { ticket } => self.client_gone(ticket),
            Event::Probe { job, event } => self.probe(job, *event),
            Event::ProbeEnded { job, outcome } => self.probe_ended(job, outcome),
            Event::Degraded { name, problem } => {
                if self.note_degraded(name, problem) {
                    self.publish();
                }
            }
            Event::Reconfigured(policy) => {
                let began = policy.auto == Automatic::Switch && self.policy.auto != Automatic::Switch;
                self.policy = policy;
                if began {
                    self.restart_enforcement();
                }
                self.pace();
                self.publish();
            }
        }
        self.mind_power();
        self.effects.take()
    }

    fn execute(&mut self, ticket: Ticket, command: Command) {
        match command {
            Command::Calibrate { plan, wait, force } => {
                let request = CalibrationRequest { ticket, wait, force };
                self.calibrate_requested(request, plan);
            }
            Command::Cancel { job } => self.cancel(ticket, job),
            Command::Measure { work, power } => {
                let request = MeasurementRequest { ticket, power };
                self.measure_requested(request, &work);
            }
            Command::Observe { by, observations, servers } => {
                self.observed(ticket, &by, (&observations, &servers));
                self.publish();
            }
            Command::Forget { which, by } => self.forget_requested(ticket, (&which, by)),
            Command::Control { client, request } => {
                self.control_requested(ticket, client, request);
            }
        }
    }

    fn sampled(&mut self, mut state: BoardState) {
        if self.outdated(&state) {
            return;
        }
        self.complete(&mut state);
        let active = |state: &BoardState| state.throttle.known().is_some_and(|throttle| throttle.active);
        if active(&state) != active(&self.state) {
            let message = match state.throttle.known() {
                Some(throttle) if throttle.active => format!("throttled: {}", throttle.evidence.join(", ")),
                _ => "no longer throttled".to_owned(),
            };
            self.effects.log(Severity::Warning, message);
        }
        if let Some(metering) = self.job.as_mut().and_then(|job| job.purpose.metering()) {
            metering.sampled(&state, self.accelerator);
        }
        self.load_watch.sampled(&state);
        self.state = state;
        self.watch_mode();
    }

    /// Whether the running probe holds a load for the power meter.
    fn is_holding(&self) -> bool {
        match self.job.as_ref().map(|job| &job.purpose) {
            Some(Purpose::Calibrate(running)) => running.metering.is_holding(),
            Some(Purpose::Measure(running)) => running.metering.as_ref().is_some_and(Metering::is_holding),
            None => false,
        }
    }

    /// Samples very fast while a load is held, fast while somebody looks or a probe runs, and rarely otherwise.
    pub(super) fn pace(&mut self) {
        let fast = self.now.boottime < self.watched_until || self.job.is_some() || self.lively();
        let period = if self.is_holding() {
            METERING_PERIOD.min(self.policy.sampling_period)
        } else if self.looks_for_idleness() {
            IDLENESS_PERIOD.min(self.policy.sampling_period)
        } else if fast {
            self.policy.sampling_period
        } else {
            self.policy.idle_period
        };
        if period != self.sampling_period {
            self.sampling_period = period;
            self.effects.push(Effect::SampleEvery(period));
        }
    }

    /// True if anything changed. Says a lasting fault once when it starts and once when it ends.
    pub(super) fn note_degraded(&mut self, name: &'static str, problem: Option<String>) -> bool {
        match problem {
            Some(problem) => {
                let known = self.degraded.insert(name, problem.clone());
                if known.is_none() {
                    self.effects.log(Severity::Warning, format!("{name}: {problem}"));
                }
                known.as_ref() != Some(&problem)
            }
            None => {
                let known = self.degraded.remove(name).is_some();
                if known {
                    self.effects.log(Severity::Info, format!("{name}: works again"));
                }
                known
            }
        }
    }

    fn probe(&mut self, job: u64, event: ProbeEvent) {
        let Some(running) = self.job.as_mut().filter(|running| running.id == job) else { return };
        match event {
            ProbeEvent::Beside(other_work) => {
                if let Purpose::Calibrate(calibrating) = &mut running.purpose {
                    calibrating.other_work = Some(other_work);
                }
            }
            ProbeEvent::Device(facts) => self.device(&facts),
            ProbeEvent::Progress { fraction, step } => {
                if let Some(metering) = running.purpose.metering() {
                    metering.hold_over();
                    self.progress(fraction, step);
                }
            }
            ProbeEvent::Holding { fraction, step } => {
                if let Some(metering) = running.purpose.metering() {
                    metering.hold_began();
                    self.progress(fraction, step);
                }
            }
            ProbeEvent::Held(held) => {
                if let Some(metering) = running.purpose.metering() {
                    metering.held(*held);
                }
            }
            ProbeEvent::NotHeld { kernel, reason } => {
                if let Some(metering) = running.purpose.metering() {
                    metering.not_held(kernel, reason);
                }
            }
            ProbeEvent::Sample(sample) => {
                self.reference =
                    Some(ReferenceReading::new(self.now.boottime, sample.after.reference, &self.state));
                match &mut running.purpose {
                    Purpose::Calibrate(calibrating) => calibrating.samples.push(*sample),
                    Purpose::Measure(measuring) => measuring.samples.push(*sample),
                }
            }
            ProbeEvent::Skipped { kernel, reason } => {
                let line = format!("{}: {reason}", kernel.describe());
                match &mut running.purpose {
                    Purpose::Calibrate(calibrating) => calibrating.skipped.push(line),
                    Purpose::Measure(measuring) => measuring.skipped.push(line),
                }
            }
            ProbeEvent::Finished { wall, cut_short } => match &mut running.purpose {
                Purpose::Calibrate(calibrating) => calibrating.finished = Some((wall, cut_short)),
                Purpose::Measure(measuring) => measuring.finished = Some(cut_short),
            },
        }
    }

    /// The larger of two second-level caches decides what is read from memory; what the driver tells otherwise is shown.
    fn device(&mut self, facts: &DriverFacts) {
        self.driver_l2_bytes = facts.l2_bytes;
        let Some(hardware) = self.hardware.as_deref() else { return };
        let sm_online = self.state.sm_online.known().copied();
        for note in differences(facts, hardware, sm_online) {
            if !self.board.notes.contains(&note) {
                self.board.notes.push(note);
            }
        }
    }

    fn progress(&mut self, fraction: f64, step: String) {
        // The status is that of calibrations.
        if self.status.running.is_some() {
            self.status.fraction = Some(fraction.clamp(0.0, 1.0));
            self.status.step = Some(step);
        }
        self.pace();
        self.publish();
    }

    fn probe_ended(&mut self, job: u64, outcome: Result<(), String>) {
        if self.job.as_ref().is_none_or(|running| running.id != job) {
            return;
        }
        let Some(ended) = self.job.take() else { return };
        match ended.purpose {
            Purpose::Calibrate(calibrating) => self.calibrated(job, *calibrating, outcome),
            Purpose::Measure(measuring) => self.measured(*measuring, outcome),
        }
        self.choose_regime();
        self.pace();
        self.publish();
    }

    /// Puts the regime of the newest reference measurement first.
    pub(super) fn choose_regime(&mut self) {
        // The regimes of a GPU are its operating points, which a reference does not distinguish.
        if self.accelerator == Accelerator::Gpu {
            return;
        }
        let (Some(reading), Some(record)) = (&self.reference, self.record.as_mut()) else { return };
        let key = regime_key(&reading.reference);
        if let Some(index) = record.regimes.iter().position(|regime| regime.key == key) {
            record.regimes[..=index].rotate_right(1);
        }
    }

    fn client_gone(&mut self, ticket: Ticket) {
        self.control_client_gone(ticket);
        let Some(job) = self.job.as_mut() else { return };
        let abandoned = match &mut job.purpose {
            // A calibration is worth having even if nobody waits for it any more.
            Purpose::Calibrate(calibrating) => {
                calibrating.waiting.retain(|waiting| *waiting != ticket);
                false
            }
            Purpose::Measure(measuring) => measuring.ticket == ticket,
        };
        if abandoned {
            self.effects.push(Effect::StopProbe { job: job.id });
        }
    }

    /// What probes need to know about this machine.
    pub(super) fn plan_context(&self) -> PlanContext {
        const DEFAULT_CORE_CACHE: u64 = 512 << 10;
        const DEFAULT_LAST_LEVEL: u64 = 16 << 20;
        /// First-level cache and shared memory of an SM since compute capability 7.
        const SM_CACHE: u64 = 128 << 10;
        let last = self.board.cpu.last_level_cache_bytes();
        let own = self
            .board
            .cpu
            .caches
            .iter()
            .filter(|cache| cache.kind != "instruction" && cache.shared_by <= 1)
            .map(|cache| cache.size_bytes)
            .max();
        // Leave the rest of the machine half of what is free.
        let available =
            self.state.memory.known().map_or(f64::INFINITY, |memory| memory.available.get() / 2.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "bytes"
        )]
        let memory_limit_bytes = (self.policy.memory_limit_bytes as f64).min(available).max(0.0) as u64;
        if let Some(hardware) = self.hardware.as_deref().filter(|_| self.accelerator == Accelerator::Gpu) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a cache")]
            let l2 = hardware.l2.map_or(DEFAULT_LAST_LEVEL, |l2| l2.get() as u64).max(self.driver_l2_bytes);
            return PlanContext {
                threads: self.state.sm_online.known().copied().unwrap_or(hardware.sm).max(1),
                core_cache_bytes: SM_CACHE,
                last_level_cache_bytes: l2.max(1 << 20),
                memory_limit_bytes,
                time_limit_s: self.policy.time_limit_s,
                accelerator: self.accelerator,
            };
        }
        PlanContext {
            threads: self.state.cores_online.known().copied().unwrap_or(self.board.cpu.logical).max(1),
            core_cache_bytes: own.unwrap_or(DEFAULT_CORE_CACHE),
            last_level_cache_bytes: last.unwrap_or(DEFAULT_LAST_LEVEL).max(1 << 20),
            memory_limit_bytes,
            time_limit_s: self.policy.time_limit_s,
            accelerator: Accelerator::Cpu,
        }
    }

    /// Ceilings and kernel costs of the GPU at `point`. Where nothing tells how many SMs are on, the ceilings say so.
    pub(super) fn gpu_model_at(
        &self,
        hardware: &Hardware,
        point: &OperatingPoint,
    ) -> (Roofline, EngineProfile) {
        let (roofline, profile) = gpu_model(hardware, self.record.as_ref(), point);
        let least = hardware.least_sm_ratio();
        let assumed = hardware.kind == Kind::Integrated && point.sm_online.is_none() && least < 1.0;
        let divided = self.board.gpu.known().is_some_and(|gpu| gpu.parts.share_is_unknown());
        let roofline = if divided { roofline.of_unknown_share() } else { roofline };
        let roofline = match () {
            () if hardware.key == UNLISTED_GPU => roofline.of_unlisted(),
            () if assumed && !divided => roofline.with_assumed_sm(least),
            () => roofline,
        };
        // Of a module that is not listed only the family is known, and an Orin Nano of 4 GB has half of its family's bus.
        let of_family = hardware.key.ends_with("-unlisted");
        let roofline = if of_family { roofline.with_assumed_memory(0.5) } else { roofline };
        (roofline, profile)
    }

    /// What of the configuration this machine cannot do: a GPU that was asked for and is not there is never replaced by the
    /// CPU without a word.
    fn unmet(&self) -> Option<String> {
        let unmet = self.policy.accelerator == Some(Accelerator::Gpu) && self.accelerator == Accelerator::Cpu;
        unmet.then(|| {
            let why = self.board.gpu.reason().unwrap_or("its GPU is not in the hardware registry");
            format!("{} cannot be met, and answers are about the CPU: {why}", gpu_as_accelerator())
        })
    }

    /// Ceilings and kernel costs as they are now.
    fn current_model(&self) -> (Roofline, EngineProfile) {
        let record = self.record.as_ref();
        if let Some(hardware) = self.hardware.as_deref().filter(|_| self.accelerator == Accelerator::Gpu) {
            return self.gpu_model_at(hardware, &point_now(&self.board, &self.state, Some(hardware)));
        }
        let regime = match (record, &self.reference) {
            (Some(record), Some(reading)) => record.under(&reading.reference).map(|(regime, _)| regime),
            (record, _) => record.and_then(CalibrationRecord::current).cloned(),
        };
        match regime {
            Some(regime) => {
                let cores = self.state.cores_online.known().copied().unwrap_or(regime.roofline.workers);
                let cap = self.state.cpu_clock_cap.known().copied();
                let clock = clock_now(regime.roofline.clock, regime.clock_cap, cap);
                (scaling::to_clock(&regime.roofline, cores, clock), regime.profile)
            }
            None => (prior::roofline(&self.board, &self.state), EngineProfile::unknown(Engine::Bare)),
        }
    }

    pub(super) fn rebuild(&mut self) {
        let (roofline, profile) = self.current_model();
        self.snapshot = Arc::new(Snapshot {
            serial: self.snapshot.serial + 1,
            taken_at: self.now.boottime,
            board: self.board.clone(),
            state: self.state.clone(),
            busy_clocks: self.load_watch.clocks(),
            accelerator: self.accelerator,
            hardware: self.hardware.clone(),
            roofline,
            profile,
            residuals: Arc::clone(&self.learnt.residuals),
            observed_runs: Arc::clone(&self.learnt.observed_runs),
            reports: Arc::clone(&self.learnt.reports),
            servers: self.servers.list(),
            calibration: self.record.clone(),
            calibration_status: self.status.clone(),
            reference: self.reference.clone(),
            degraded: self.degraded.clone(),
            modes: self.mode_views(),
            power: self.power_control(),
            control_enabled: self.policy.control_enabled,
            power_limit: None,
        });
    }

    pub(super) fn publish(&mut self) {
        self.rebuild();
        self.effects.push(Effect::Publish(Arc::clone(&self.snapshot)));
    }

    pub(super) const fn next_job(&mut self) -> u64 {
        self.next_job += 1;
        self.next_job - 1
    }

    pub(super) fn start_job(&mut self, purpose: Purpose) -> u64 {
        let id = self.next_job();
        self.job = Some(Job { id, purpose });
        id
    }
}

/// The clock under load: the calibrated one, moved by the cap as it was and as it is. Never an idle clock.
fn clock_now(calibrated: Option<Hertz>, cap_then: Option<Hertz>, cap_now: Option<Hertz>) -> Option<Hertz> {
    match (calibrated, cap_then, cap_now) {
        (Some(clock), Some(then), Some(now)) if then.is_positive() && now.is_positive() => {
            Some(clock * (now / then))
        }
        _ => calibrated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{board, policy, sample, state, truth};
    use crate::{Observed, Reply};
    use rooflined_core::board::{ActiveMode, Load, OperatingPoint, Reading, Throttle};
    use rooflined_core::operation::Op;
    use rooflined_core::precision::WeightFormat;
    use rooflined_core::refusal::Code;
    use rooflined_core::refusal::Refusal;
    use rooflined_predict::calibration::{Gate, Kernel, Plan, PlanKind};
    use rooflined_predict::learning::report::Reporter;

    fn at(seconds: f64) -> Now {
        Now { boottime: Seconds(seconds), unix_s: 1e9 + seconds }
    }

    fn manual() -> Policy {
        Policy { automatic: false, ..policy() }
    }

    fn governor(policy: &Policy) -> Governor {
        Governor::new(at(0.0), board(), state(), None, Residuals::default(), policy)
    }

    fn started(effects: &[Effect]) -> Option<(u64, Plan)> {
        effects.iter().find_map(|effect| match effect {
            Effect::StartProbe { job, plan } => Some((*job, plan.clone())),
            _ => None,
        })
    }

    fn replies(effects: &[Effect]) -> Vec<(Ticket, Reply)> {
        effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Reply { ticket, reply } => Some((*ticket, reply.clone())),
                _ => None,
            })
            .collect()
    }

    /// Feeds the governor what a probe that did the whole plan would say.
    fn run(governor: &mut Governor, now: Now, job: u64, plan: &Plan, core_to_core: f64) -> Vec<Effect> {
        for step in &plan.steps {
            let event = Box::new(ProbeEvent::Sample(Box::new(sample(step, 1.0, core_to_core))));
            governor.handle(now, Event::Probe { job, event });
        }
        let finished = ProbeEvent::Finished { wall: Seconds(3.0), cut_short: None };
        governor.handle(now, Event::Probe { job, event: Box::new(finished) });
        governor.handle(now, Event::ProbeEnded { job, outcome: Ok(()) })
    }

    fn calibrate(governor: &mut Governor, now: Now) -> Vec<Effect> {
        let asked = Event::Requested {
            ticket: 9,
            command: Command::Calibrate { plan: PlanKind::Full, wait: true, force: false },
        };
        let (job, plan) = started(&governor.handle(now, asked)).unwrap();
        run(governor, now, job, &plan, 50e-9)
    }

    #[test]
    fn a_machine_without_a_record_calibrates_once_and_then_when_it_is_stale() {
        let mut governor = governor(&policy());
        let (job, plan) = started(&governor.handle(at(1.0), Event::Tick)).unwrap();
        assert!(started(&governor.handle(at(2.0), Event::Tick)).is_none(), "one at a time");
        let effects = run(&mut governor, at(5.0), job, &plan, 50e-9);
        assert!(
            effects.iter().any(|effect| matches!(effect, Effect::Save(crate::StoreItem::Calibration(_))))
        );
        assert!(started(&governor.handle(at(6.0), Event::Tick)).is_none(), "fresh");
        let stale = 7.0 + policy().max_age.get();
        assert!(started(&governor.handle(at(stale), Event::Tick)).is_some());
    }

    /// A board without a battery-backed clock is in 1970 after each start, until the network tells it the time.
    #[test]
    fn a_clock_that_is_not_set_yet_calibrates_nothing_anew() {
        let mut governor = governor(&policy());
        let (job, plan) = started(&governor.handle(at(1.0), Event::Tick)).unwrap();
        run(&mut governor, at(5.0), job, &plan, 50e-9);
        let early = |seconds: f64| Now { boottime: Seconds(seconds), unix_s: seconds };
        for seconds in [6.0, 60.0, 3599.0] {
            assert!(started(&governor.handle(early(seconds), Event::Tick)).is_none(), "{seconds}");
        }
        // The network has told the time; then a clock that stays in the past, and one far in the future.
        assert!(started(&governor.handle(at(3600.0), Event::Tick)).is_none());
        let (job, plan) = started(&governor.handle(early(3600.0), Event::Tick)).unwrap();
        run(&mut governor, early(3605.0), job, &plan, 50e-9);
        assert!(
            started(&governor.handle(early(3700.0), Event::Tick)).is_none(),
            "what it measured then is fresh"
        );
        let far = Now { unix_s: 1e11, ..early(3800.0) };
        let (job, plan) = started(&governor.handle(far, Event::Tick)).unwrap();
        run(&mut governor, far, job, &plan, 50e-9);
        assert!(started(&governor.handle(far, Event::Tick)).is_none(), "once");
    }

    #[test]
    fn a_busy_machine_is_not_calibrated_unasked_and_says_why() {
        let mut governor = governor(&policy());
        let mut busy = state();
        busy.load = Reading::Known(Load { average_1m: 4.0, busy_ratio: Some(0.9), steal_ratio: None });
        let effects = governor.handle(at(1.0), Event::Sampled(Box::new(busy)));
        assert!(started(&effects).is_none());
        let status = &governor.snapshot().calibration_status;
        assert_eq!(status.waiting_for, Some(Gate::Load));
        assert!(status.waiting_reason.as_ref().unwrap().contains("90 %"));
        assert!(started(&governor.handle(at(2.0), Event::Sampled(Box::new(state())))).is_some());
        assert_eq!(governor.snapshot().calibration_status.waiting_for, None);
    }

    fn busy(ratio: f64) -> Event {
        let load = Load { average_1m: 4.0 * ratio, busy_ratio: Some(ratio), steal_ratio: None };
        Event::Sampled(Box::new(BoardState { load: Reading::Known(load), ..state() }))
    }

    #[test]
    fn an_idle_moment_is_looked_for_often_and_used() {
        let policy = Policy { max_load_ratio: 0.2, ..policy() };
        let mut governor = governor(&policy);
        let effects = governor.handle(at(1.0), busy(0.75));
        assert!(started(&effects).is_none());
        let effects = governor.handle(at(2.0), busy(0.75));
        assert!(
            effects
                .iter()
                .any(|effect| matches!(effect, Effect::SampleEvery(period) if *period <= Seconds(0.3))),
            "{effects:?}"
        );
        let reason = governor.snapshot().calibration_status.waiting_reason.clone().unwrap();
        assert!(reason.contains("3 of 4 cores busy") && reason.contains("load 3.0"), "{reason}");
        assert!(started(&governor.handle(at(2.25), busy(0.05))).is_some());
    }

    #[test]
    fn a_machine_that_never_rests_is_calibrated_once_beside_its_load() {
        let mut governor = governor(&policy());
        assert!(started(&governor.handle(at(1.0), busy(1.0))).is_none());
        assert!(started(&governor.handle(at(30.0), busy(1.0))).is_none());
        let (job, plan) = started(&governor.handle(at(61.5), busy(1.0))).unwrap();
        assert!(plan.steps.iter().all(|step| step.threads == 1), "one worker where every core is taken");
        run(&mut governor, at(65.0), job, &plan, 50e-9);
        let loaded = governor.snapshot();
        assert!(loaded.calibration.as_ref().unwrap().loaded);
        assert_eq!(loaded.calibration_status.last_error, None);
        // A quiet one is wanted, but not at once and not beside the same load.
        assert!(started(&governor.handle(at(66.0), busy(0.0))).is_none());
        let later = 66.0 + policy().back_off.get();
        assert!(started(&governor.handle(at(later), busy(1.0))).is_none());
        assert!(started(&governor.handle(at(later + 120.0), busy(1.0))).is_none());
        let (job, plan) = started(&governor.handle(at(later + 121.0), busy(0.1))).unwrap();
        run(&mut governor, at(later + 130.0), job, &plan, 50e-9);
        assert!(!governor.snapshot().calibration.as_ref().unwrap().loaded);
        assert!(started(&governor.handle(at(later + 131.0), busy(0.0))).is_none());
    }

    #[test]
    fn a_load_that_spoils_every_sample_leaves_one_more_try_with_fewer_workers_and_is_named() {
        let mut governor = governor(&manual());
        let asked = Event::Requested {
            ticket: 9,
            command: Command::Calibrate { plan: PlanKind::Full, wait: true, force: false },
        };
        let (job, _) = started(&governor.handle(at(1.0), asked)).unwrap();
        let other_work = rooflined_predict::calibration::OtherWork {
            cpus: 4,
            busy_cpus: 3,
            busy_ratio: 0.75,
            load_average: Some(3.1),
            busiest: None,
        };
        let finish = |governor: &mut Governor, now: Now| {
            for event in [
                ProbeEvent::Beside(other_work.clone()),
                ProbeEvent::Finished { wall: Seconds(1.0), cut_short: None },
            ] {
                governor.handle(now, Event::Probe { job, event: Box::new(event) });
            }
            governor.handle(now, Event::ProbeEnded { job, outcome: Ok(()) })
        };
        let effects = finish(&mut governor, at(2.0));
        assert_eq!(replies(&effects), []);
        let (again, plan) = started(&effects).unwrap();
        assert_eq!(again, job);
        assert!(plan.steps.iter().all(|step| step.threads == 1));
        let effects = finish(&mut governor, at(3.0));
        let [(9, Reply::Refused(refusal))] = &replies(&effects)[..] else { panic!("{effects:?}") };
        assert_eq!(refusal.code, Code::FitFailed);
        assert!(refusal.message.starts_with("3 of 4 cores busy: load 3.1"), "{}", refusal.message);
    }

    #[test]
    fn a_failed_calibration_keeps_the_old_ceilings_and_backs_off() {
        let mut governor = governor(&policy());
        calibrate(&mut governor, at(1.0));
        let before = governor.snapshot().roofline.clone();
        let asked = Event::Requested {
            ticket: 1,
            command: Command::Calibrate { plan: PlanKind::Full, wait: true, force: false },
        };
        let (job, _) = started(&governor.handle(at(10.0), asked)).unwrap();
        let effects =
            governor.handle(at(11.0), Event::ProbeEnded { job, outcome: Err("killed by signal 9".into()) });
        assert!(matches!(
            &replies(&effects)[..],
            [(1, Reply::Refused(Refusal { code: Code::ProbeFailed, .. }))]
        ));
        let snapshot = governor.snapshot();
        assert_eq!(snapshot.roofline, before);
        assert!(snapshot.calibration_status.last_error.as_ref().unwrap().contains("killed by signal 9"));
        // Stale now, but inside the back-off.
        let late = at(11.0 + policy().max_age.get());
        governor.failed_at = Some(late.boottime);
        governor.handle(late, Event::Sampled(Box::new(state())));
        assert_eq!(governor.snapshot().calibration_status.waiting_for, Some(Gate::BackOff));
    }

    #[test]
    fn everyone_who_waits_for_a_calibration_is_answered_when_it_ends() {
        let mut governor = governor(&manual());
        let ask = |ticket, wait| Event::Requested {
            ticket,
            command: Command::Calibrate { plan: PlanKind::Full, wait, force: false },
        };
        let (job, plan) = started(&governor.handle(at(1.0), ask(1, true))).unwrap();
        assert_eq!(replies(&governor.handle(at(1.0), ask(2, true))), []);
        assert_eq!(replies(&governor.handle(at(1.0), ask(3, false))), [(3, Reply::Started { job })]);
        governor.handle(at(1.0), Event::ClientGone { ticket: 2 });
        let effects = run(&mut governor, at(2.0), job, &plan, 50e-9);
        assert_eq!(replies(&effects), [(1, Reply::Finished { job })]);
    }

    #[test]
    fn measuring_and_calibrating_do_not_measure_each_other() {
        let mut governor = governor(&manual());
        let asked = Event::Requested {
            ticket: 1,
            command: Command::Calibrate { plan: PlanKind::Full, wait: false, force: false },
        };
        governor.handle(at(1.0), asked);
        let work = vec![(Op::Gemv { n: 64, k: 64 }, WeightFormat::Fp32)];
        let effects = governor.handle(
            at(1.0),
            Event::Requested { ticket: 2, command: Command::Measure { work, power: false } },
        );
        assert!(matches!(&replies(&effects)[..], [(2, Reply::Refused(Refusal { code: Code::Busy, .. }))]));
    }

    #[test]
    fn a_cancelled_calibration_is_stopped_and_changes_nothing() {
        let mut governor = governor(&manual());
        let asked = Event::Requested {
            ticket: 1,
            command: Command::Calibrate { plan: PlanKind::Full, wait: true, force: false },
        };
        let (job, plan) = started(&governor.handle(at(1.0), asked)).unwrap();
        let effects = governor
            .handle(at(1.0), Event::Requested { ticket: 2, command: Command::Cancel { job: Some(job) } });
        assert!(
            effects
                .iter()
                .any(|effect| matches!(effect, Effect::StopProbe { job: stopped } if *stopped == job))
        );
        let effects = run(&mut governor, at(2.0), job, &plan, 50e-9);
        assert!(matches!(
            &replies(&effects)[..],
            [(1, Reply::Refused(Refusal { code: Code::Cancelled, .. }))]
        ));
        assert_eq!(governor.snapshot().calibration, None);
        let effects =
            governor.handle(at(3.0), Event::Requested { ticket: 3, command: Command::Cancel { job: None } });
        assert!(matches!(
            &replies(&effects)[..],
            [(3, Reply::Refused(Refusal { code: Code::NotRunning, .. }))]
        ));
    }

    #[test]
    fn a_measurement_is_put_beside_its_prediction_and_the_drift_is_shown() {
        let mut governor = governor(&manual());
        calibrate(&mut governor, at(1.0));
        let op = Op::Gemv { n: 4096, k: 4096 };
        let work = vec![(op, WeightFormat::Bf16), (op, WeightFormat::Nf4)];
        let (job, plan) = started(&governor.handle(
            at(5.0),
            Event::Requested { ticket: 7, command: Command::Measure { work, power: false } },
        ))
        .unwrap();
        // Neighbours take half of the bandwidth while it is measured.
        for step in &plan.steps {
            let event = Box::new(ProbeEvent::Sample(Box::new(sample(step, 0.5, 50e-9))));
            governor.handle(at(5.0), Event::Probe { job, event });
        }
        let finished = ProbeEvent::Finished { wall: Seconds(1.0), cut_short: None };
        governor.handle(at(5.0), Event::Probe { job, event: Box::new(finished) });
        let effects = governor.handle(at(5.0), Event::ProbeEnded { job, outcome: Ok(()) });
        let [(7, Reply::Measured(set))] = &replies(&effects)[..] else { panic!("{effects:?}") };
        assert_eq!(set.rows.len(), 1);
        assert!(set.skipped[0].contains("no CPU kernel for nf4"), "{:?}", set.skipped);
        let row = &set.rows[0];
        assert!((row.drift_ratio.unwrap() - 0.5).abs() < 1e-9);
        let measured = rooflined_predict::calibration::centre(&row.sample.times);
        assert!((row.predicted.time.value / measured - 1.0).abs() < 0.05, "{row:?}");
        assert!(
            row.predicted_at_calibration.time.value / measured < 0.6,
            "half the bandwidth was not foreseen"
        );
    }

    /// Another mode has another bandwidth, and another cap on the clock may have.
    #[test]
    fn drift_is_told_of_the_mode_and_the_cap_that_were_calibrated_alone() {
        let mut governor = governor(&manual());
        calibrate(&mut governor, at(1.0));
        let calibrated = governor.snapshot();
        assert!((calibrated.drift().unwrap() - 1.0).abs() < 1e-9);
        let modes = ["15W", "25W"];
        let cases = (0..8).map(|bits| [0, 1, 2].map(|bit| modes[bits >> bit & 1]));
        for [calibrated_in, read_in, now] in cases {
            let mut snapshot = (*calibrated).clone();
            snapshot.accelerator = Accelerator::Gpu;
            for regime in &mut snapshot.calibration.as_mut().unwrap().regimes {
                regime.point = Some(OperatingPoint {
                    power_mode: Some(calibrated_in.into()),
                    ..OperatingPoint::default()
                });
            }
            snapshot.reference.as_mut().unwrap().point.power_mode = Some(read_in.into());
            snapshot.state.power_mode = Reading::Known(ActiveMode { id: 0, name: now.into() });
            let all_one = calibrated_in == read_in && read_in == now;
            assert_eq!(snapshot.drift().is_some(), all_one, "{calibrated_in}, {read_in}, {now}");
        }
        // What was read under a cap, or while it was hot, says nothing once that is over.
        let changes: [fn(&mut BoardState); 3] = [
            |state| state.memory_clock_cap = Reading::Known(Hertz(1e9)),
            |state| state.gpu_clock_cap = Reading::Known(Hertz(1e9)),
            |state| state.throttle = Reading::Known(Throttle { active: true, evidence: Vec::new() }),
        ];
        for change in changes {
            let mut snapshot = (*calibrated).clone();
            change(&mut snapshot.state);
            assert_eq!(snapshot.drift(), None);
        }
        let mut slow = state();
        slow.cpu_clock_cap = Reading::Known(Hertz(1.5e9));
        governor.handle(at(2.0), Event::Sampled(Box::new(slow)));
        assert_eq!(governor.snapshot().drift(), None);
    }

    #[test]
    fn the_regime_of_the_newest_reference_is_in_force() {
        let mut governor = governor(&manual());
        calibrate(&mut governor, at(1.0));
        let asked = Event::Requested {
            ticket: 2,
            command: Command::Calibrate { plan: PlanKind::Full, wait: false, force: false },
        };
        let (job, plan) = started(&governor.handle(at(2.0), asked)).unwrap();
        run(&mut governor, at(3.0), job, &plan, 400e-9);
        let first =
            |governor: &Governor| governor.snapshot().calibration.as_ref().unwrap().regimes[0].key.clone();
        assert_eq!(first(&governor), "far");
        assert_eq!(governor.snapshot().calibration.as_ref().unwrap().regimes.len(), 2);
        let work = vec![(Op::Gemv { n: 64, k: 64 }, WeightFormat::Fp32)];
        let (job, plan) = started(&governor.handle(
            at(4.0),
            Event::Requested { ticket: 3, command: Command::Measure { work, power: false } },
        ))
        .unwrap();
        run(&mut governor, at(4.0), job, &plan, 50e-9);
        assert_eq!(first(&governor), "near");
    }

    #[test]
    fn a_lower_clock_cap_lowers_the_peaks_but_not_the_bandwidth() {
        let mut governor = governor(&manual());
        calibrate(&mut governor, at(1.0));
        let peak = |governor: &Governor| {
            governor.snapshot().roofline.compute[&rooflined_core::precision::Precision::Fp32].value
        };
        let (before, bandwidth) = (peak(&governor), governor.snapshot().roofline.bandwidth.value);
        let mut slow = state();
        slow.cpu_clock_cap = Reading::Known(Hertz(1.5e9));
        governor.handle(at(2.0), Event::Sampled(Box::new(slow)));
        assert!((peak(&governor) / before - 0.5).abs() < 1e-9);
        assert_eq!(governor.snapshot().roofline.bandwidth.value, bandwidth);
    }

    #[test]
    fn a_record_of_another_machine_is_not_used() {
        let mut first = governor(&manual());
        calibrate(&mut first, at(1.0));
        let record = first.record.clone();
        let mut other = board();
        other.machine = Reading::Known("beef".into());
        let with =
            |board| Governor::new(at(0.0), board, state(), record.clone(), Residuals::default(), &manual());
        assert_eq!(with(other).snapshot().calibration, None);
        assert!(with(board()).snapshot().calibration.is_some());
    }

    #[test]
    fn sampling_is_fast_while_somebody_looks() {
        let mut governor = governor(&manual());
        let pace = |effects: &[Effect]| {
            effects.iter().find_map(|effect| {
                if let Effect::SampleEvery(period) = effect { Some(period.get()) } else { None }
            })
        };
        assert_eq!(pace(&governor.handle(at(1.0), Event::Watched)), Some(1.0));
        assert_eq!(pace(&governor.handle(at(2.0), Event::Watched)), None, "no effect without a change");
        assert_eq!(pace(&governor.handle(at(10.0), Event::Sampled(Box::new(state())))), None);
        assert_eq!(pace(&governor.handle(at(40.0), Event::Sampled(Box::new(state())))), Some(30.0));
    }

    #[test]
    fn a_lasting_fault_is_said_once_when_it_starts_and_once_when_it_ends() {
        let mut governor = governor(&manual());
        let lines =
            |effects: &[Effect]| effects.iter().filter(|effect| matches!(effect, Effect::Log { .. })).count();
        let lost = || Event::Degraded { name: "bus", problem: Some("the bus is gone".into()) };
        assert_eq!(lines(&governor.handle(at(1.0), lost())), 1);
        assert_eq!(governor.snapshot().degraded_lines(), ["bus: the bus is gone"]);
        assert_eq!(lines(&governor.handle(at(2.0), lost())), 0);
        assert_eq!(lines(&governor.handle(at(3.0), Event::Degraded { name: "bus", problem: None })), 1);
        assert!(governor.snapshot().degraded.is_empty());
        let mut hot = state();
        hot.throttle = Reading::Known(Throttle { active: true, evidence: vec!["oc3".into()] });
        assert_eq!(lines(&governor.handle(at(4.0), Event::Sampled(Box::new(hot.clone())))), 1);
        assert_eq!(lines(&governor.handle(at(5.0), Event::Sampled(Box::new(hot)))), 0);
    }

    #[test]
    fn observations_correct_their_engine_and_impossible_ones_are_refused() {
        let mut governor = governor(&manual());
        calibrate(&mut governor, at(1.0));
        let op = Op::Gemv { n: 4096, k: 4096 };
        let bound = 4.0 * 4096.0 * 4096.0 / truth::BANDWIDTH;
        let run = |time| Observed::Op {
            engine: Engine::Torch,
            op,
            format: WeightFormat::Fp32,
            time: Seconds(time),
        };
        let observations = vec![run(2.0 * bound), run(bound / 1000.0), run(bound * 1000.0)];
        let by = Reporter { uid: 0, pid: None, trusted: true };
        let effects = governor.handle(
            at(2.0),
            Event::Requested {
                ticket: 4,
                command: Command::Observe { by, observations, servers: Vec::new() },
            },
        );
        let [(4, Reply::Observed { accepted: 1, refused, .. })] = &replies(&effects)[..] else {
            panic!("{effects:?}")
        };
        assert!(refused[0].refusal.message.contains("faster than the physical bound"), "{refused:?}");
        assert!(refused[1].refusal.message.contains("expected seconds"), "{refused:?}");
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Save(crate::StoreItem::Residuals(_)))));
    }

    #[test]
    fn a_client_that_leaves_takes_its_measurement_with_it() {
        let mut governor = governor(&manual());
        let work = vec![(Op::Gemv { n: 64, k: 64 }, WeightFormat::Fp32)];
        let (job, plan) = started(&governor.handle(
            at(1.0),
            Event::Requested { ticket: 5, command: Command::Measure { work, power: false } },
        ))
        .unwrap();
        assert!(matches!(plan.steps[0].kernel, Kernel::Gemv { n: 64, k: 64, .. }));
        let effects = governor.handle(at(1.0), Event::ClientGone { ticket: 5 });
        assert!(matches!(effects[..], [Effect::StopProbe { job: stopped }] if stopped == job));
    }
}
