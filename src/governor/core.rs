//! State, sampling and publication.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::measure::Measuring;
use super::{Effect, Event, Now, Policy, Reply, Severity, Ticket, calibrate, measure, prior};
use crate::board::{Board, BoardState};
use crate::calibration::{CalibrationRecord, MachineKey, PlanContext, ProbeEvent, Reference, regime_key};
use crate::learning::{ResidualKey, Residuals};
use crate::precision::WeightFormat;
use crate::predict::{Engine, EngineProfile, predict};
use crate::roofline::{Roofline, scaling};
use crate::snapshot::{CalibrationStatus, Snapshot};
use crate::units::{Hertz, Seconds};
use crate::workload::Op;

/// Sampling stays fast for this long after somebody last looked.
const WATCHED_FOR: Seconds = Seconds(30.0);

/// Owns everything that changes.
#[derive(Debug)]
pub struct Governor {
    pub(super) board: Board,
    pub(super) state: BoardState,
    pub(super) record: Option<CalibrationRecord>,
    pub(super) residuals: Residuals,
    pub(super) policy: Policy,
    pub(super) status: CalibrationStatus,
    pub(super) job: Option<Job>,
    pub(super) next_job: u64,
    /// When the last job failed, CLOCK_BOOTTIME.
    pub(super) failed_at: Option<Seconds>,
    pub(super) reference: Option<(Seconds, Reference)>,
    degraded: BTreeMap<&'static str, String>,
    watched_until: Seconds,
    sampling_fast: bool,
    snapshot: Arc<Snapshot>,
}

/// The running probe child and what it is for.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) purpose: Purpose,
}

#[derive(Debug)]
pub(super) enum Purpose {
    Calibrate(calibrate::Calibrating),
    Measure(Measuring),
}

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
        let record = record.filter(|record| record.key == machine_key(&board) && !record.regimes.is_empty());
        let roofline = prior::roofline(&board, &state);
        let snapshot = Arc::new(Snapshot {
            serial: 0,
            taken_at: now.boottime,
            board: board.clone(),
            state: state.clone(),
            roofline,
            profile: EngineProfile::unknown(Engine::Bare),
            residuals: residuals.clone(),
            calibration: None,
            calibration_status: CalibrationStatus::default(),
            reference: None,
            degraded: Vec::new(),
            control_enabled: policy.control_enabled,
        });
        let mut governor = Self {
            board,
            state,
            record,
            residuals,
            policy: policy.clone(),
            status: CalibrationStatus::default(),
            job: None,
            next_job: 1,
            failed_at: None,
            reference: None,
            degraded: BTreeMap::new(),
            watched_until: Seconds::ZERO,
            sampling_fast: false,
            snapshot,
        };
        governor.rebuild(now);
        governor
    }

    /// The picture that was published last.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    /// Takes in what happened and says what is to be done.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Tick => self.consider_calibrating(now, &mut effects),
            Event::Sampled(state) => {
                self.sampled(*state, &mut effects);
                self.pace(now, &mut effects);
                self.consider_calibrating(now, &mut effects);
                self.publish(now, &mut effects);
            }
            Event::Watched => {
                self.watched_until = now.boottime + WATCHED_FOR;
                self.pace(now, &mut effects);
            }
            Event::CalibrateRequested { ticket, plan, wait, force } => {
                self.calibrate_requested(now, calibrate::Asked { ticket, wait, force }, plan, &mut effects);
            }
            Event::CancelRequested { ticket, job } => self.cancel(ticket, job, &mut effects),
            Event::MeasureRequested { ticket, work } => self.measure_requested(now, ticket, &work, &mut effects),
            Event::Observed { ticket, observations } => {
                self.observed(ticket, &observations, &mut effects);
                self.publish(now, &mut effects);
            }
            Event::ClientGone { ticket } => self.client_gone(ticket, &mut effects),
            Event::Probe { job, event } => self.probe(now, job, *event, &mut effects),
            Event::ProbeEnded { job, outcome } => self.probe_ended(now, job, outcome, &mut effects),
            Event::Degraded { name, problem } => {
                if self.note_degraded(name, problem, &mut effects) {
                    self.publish(now, &mut effects);
                }
            }
            Event::Reconfigured(policy) => {
                self.policy = policy;
                self.sampling_fast = !self.sampling_fast;
                self.pace(now, &mut effects);
                self.publish(now, &mut effects);
            }
        }
        effects
    }

    fn sampled(&mut self, state: BoardState, effects: &mut Vec<Effect>) {
        let active = |state: &BoardState| state.throttle.known().is_some_and(|throttle| throttle.active);
        if active(&state) != active(&self.state) {
            let message = match state.throttle.known() {
                Some(throttle) if throttle.active => format!("throttled: {}", throttle.evidence.join(", ")),
                _ => "no longer throttled".to_owned(),
            };
            log(effects, Severity::Warning, message);
        }
        self.state = state;
    }

    /// Samples fast while somebody looks or a probe runs, and rarely otherwise.
    fn pace(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let fast = now.boottime < self.watched_until || self.job.is_some();
        if fast != self.sampling_fast {
            self.sampling_fast = fast;
            effects.push(Effect::SampleEvery(if fast { self.policy.sampling_period } else { self.policy.idle_period }));
        }
    }

    /// True if anything changed. Says a lasting fault once when it starts and once when it ends.
    fn note_degraded(&mut self, name: &'static str, problem: Option<String>, effects: &mut Vec<Effect>) -> bool {
        match problem {
            Some(problem) => {
                let known = self.degraded.insert(name, problem.clone());
                if known.is_none() {
                    log(effects, Severity::Warning, format!("{name}: {problem}"));
                }
                known.as_ref() != Some(&problem)
            }
            None => {
                let known = self.degraded.remove(name).is_some();
                if known {
                    log(effects, Severity::Info, format!("{name}: works again"));
                }
                known
            }
        }
    }

    fn observed(
        &mut self,
        ticket: Ticket,
        observations: &[(Engine, Op, WeightFormat, Seconds)],
        effects: &mut Vec<Effect>,
    ) {
        let mut accepted = 0;
        let mut refused = Vec::new();
        for (position, &(engine, op, format, time)) in observations.iter().enumerate() {
            let numeric = self.snapshot.numeric_format(format);
            let profile = self.snapshot.profile_of(engine);
            let outcome = predict(&self.snapshot.roofline, &profile, &op, &numeric)
                .map_err(|error| error.to_string())
                .and_then(|predicted| {
                    let key = ResidualKey { engine, op: op.kind().to_owned(), format };
                    self.residuals.observe(key, &predicted, time).map_err(|error| error.to_string())
                });
            match outcome {
                Ok(()) => accepted += 1,
                Err(reason) => refused.push((position, reason)),
            }
        }
        if accepted > 0 {
            effects.push(Effect::SaveResiduals(self.residuals.clone()));
        }
        reply(effects, ticket, Reply::Learnt { accepted, refused });
    }

    fn probe(&mut self, now: Now, job: u64, event: ProbeEvent, effects: &mut Vec<Effect>) {
        let Some(running) = self.job.as_mut().filter(|running| running.id == job) else { return };
        match event {
            ProbeEvent::Progress { fraction, step } => {
                if matches!(running.purpose, Purpose::Calibrate(_)) {
                    self.status.fraction = Some(fraction.clamp(0.0, 1.0));
                    self.status.step = Some(step);
                    self.publish(now, effects);
                }
            }
            ProbeEvent::Sample(sample) => {
                self.reference = Some((now.boottime, sample.after.reference));
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

    fn probe_ended(&mut self, now: Now, job: u64, outcome: Result<(), String>, effects: &mut Vec<Effect>) {
        if self.job.as_ref().is_none_or(|running| running.id != job) {
            return;
        }
        let Some(ended) = self.job.take() else { return };
        match ended.purpose {
            Purpose::Calibrate(calibrating) => self.calibrated(now, job, calibrating, outcome, effects),
            Purpose::Measure(measuring) => self.measured(measuring, outcome, effects),
        }
        self.choose_regime();
        self.pace(now, effects);
        self.publish(now, effects);
    }

    /// Puts the regime of the newest reference measurement first.
    pub(super) fn choose_regime(&mut self) {
        let (Some((_, reference)), Some(record)) = (self.reference, self.record.as_mut()) else { return };
        let key = regime_key(&reference);
        if let Some(index) = record.regimes.iter().position(|regime| regime.key == key) {
            record.regimes[..=index].rotate_right(1);
        }
    }

    fn client_gone(&mut self, ticket: Ticket, effects: &mut Vec<Effect>) {
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
            effects.push(Effect::StopProbe { job: job.id });
        }
    }

    /// What probes are told of this machine.
    pub(super) fn plan_context(&self) -> PlanContext {
        const DEFAULT_CORE_CACHE: u64 = 512 << 10;
        const DEFAULT_LAST_LEVEL: u64 = 16 << 20;
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
        let available = self.state.memory.known().map_or(f64::INFINITY, |memory| memory.available.get() / 2.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "bytes")]
        let memory_limit_bytes = (self.policy.memory_limit_bytes as f64).min(available).max(0.0) as u64;
        PlanContext {
            threads: self.state.cores_online.known().copied().unwrap_or(self.board.cpu.logical).max(1),
            core_cache_bytes: own.unwrap_or(DEFAULT_CORE_CACHE),
            last_level_cache_bytes: last.unwrap_or(DEFAULT_LAST_LEVEL).max(1 << 20),
            memory_limit_bytes,
            time_limit_s: self.policy.time_limit_s,
        }
    }

    /// Ceilings and kernel costs as they are now.
    fn current_model(&self) -> (Roofline, EngineProfile) {
        match self.record.as_ref().and_then(CalibrationRecord::current) {
            Some(regime) => {
                let cores = self.state.cores_online.known().copied().unwrap_or(regime.roofline.workers);
                let clock = clock_now(regime.roofline.clock, regime.clock_cap, self.state.cpu_clock_cap.known().copied());
                (scaling::to_clock(&regime.roofline, cores, clock), regime.profile.clone())
            }
            None => (prior::roofline(&self.board, &self.state), EngineProfile::unknown(Engine::Bare)),
        }
    }

    fn rebuild(&mut self, now: Now) {
        let (roofline, profile) = self.current_model();
        self.snapshot = Arc::new(Snapshot {
            serial: self.snapshot.serial + 1,
            taken_at: now.boottime,
            board: self.board.clone(),
            state: self.state.clone(),
            roofline,
            profile,
            residuals: self.residuals.clone(),
            calibration: self.record.clone(),
            calibration_status: self.status.clone(),
            reference: self.reference,
            degraded: self.degraded.values().cloned().collect(),
            control_enabled: self.policy.control_enabled,
        });
    }

    pub(super) fn publish(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.rebuild(now);
        effects.push(Effect::Publish(Arc::clone(&self.snapshot)));
    }

    pub(super) fn start_job(&mut self, purpose: Purpose) -> u64 {
        let id = self.next_job;
        self.next_job += 1;
        self.job = Some(Job { id, purpose });
        id
    }
}

/// The clock under load: the calibrated one, moved by the cap as it was and as it is. Never an idle clock.
fn clock_now(calibrated: Option<Hertz>, cap_then: Option<Hertz>, cap_now: Option<Hertz>) -> Option<Hertz> {
    match (calibrated, cap_then, cap_now) {
        (Some(clock), Some(then), Some(now)) if then.is_positive() && now.is_positive() => Some(clock * (now / then)),
        _ => calibrated,
    }
}

/// What records of this machine are kept under.
pub(super) fn machine_key(board: &Board) -> MachineKey {
    MachineKey {
        machine: board.machine.known().cloned(),
        board: board.key.clone(),
        cpu: board.cpu.model.known().cloned().unwrap_or_else(|| board.cpu.architecture.clone()),
        logical_cpus: board.cpu.logical,
        kernel: board.kernel.known().cloned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

pub(super) fn reply(effects: &mut Vec<Effect>, ticket: Ticket, reply: Reply) {
    effects.push(Effect::Reply { ticket, reply });
}

pub(super) fn log(effects: &mut Vec<Effect>, severity: Severity, message: String) {
    effects.push(Effect::Log { severity, message });
}

/// One probe at a time: two would measure each other.
pub(super) fn busy(effects: &mut Vec<Effect>, ticket: Ticket, what: &str) {
    reply(effects, ticket, measure::busy_reply(what));
}
