//! Calibrations: when one starts, and how its samples become the record in force.

use super::job::{Calibrating, CalibrationRequest, Job, Purpose};
use super::machine::machine_key;
use super::metering::{self, Metering};
use super::{Effect, Governor, Reply, Severity, StoreItem, Ticket};
use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::datasheet;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::Seconds;
use rooflined_predict::calibration::{
    Accelerator, CalibrationRecord, FitContext, Gate, GpuContext, OtherWork, PlanContext, PlanKind,
    calibration_plan, fit,
};
use rooflined_predict::snapshot::distance;

/// A point that moved by more than this was left: clocks are rounded to the steps of a table.
const MOVED: f64 = 0.01;

/// What to do about a run that failed for reasons of the machine.
const LOOK_FURTHER: &str = "GET /v1/calibration has the last error";

/// A board without a battery starts somewhere in the past and learns the time from the network, if at all, before this.
const CLOCK_SET: Seconds = Seconds(3600.0);

impl Governor {
    /// Starts a calibration that nobody asked for where there is no record or only a stale one.
    pub(super) fn consider_calibrating(&mut self) {
        let stale = self.record.as_ref().is_none_or(|record| {
            let age = self.now.unix_s - record.measured_at_unix_s;
            // A date in the future is as wrong as one too far back, unless it is the clock that is wrong.
            age > self.policy.max_age.get() || age < -86_400.0 && self.now.boottime >= CLOCK_SET
        });
        // A run beside other work is better than none, and a quiet one better than that.
        let stale = stale || self.is_new_point() || self.record.as_ref().is_some_and(|record| record.loaded);
        if !self.policy.automatic || !stale || self.job.is_some() || self.no_probe().is_some() {
            self.wait_for(None);
            return;
        }
        match self.gate() {
            Some((Gate::Load, _)) if self.has_waited() => {
                self.start_calibration(PlanKind::Full, Vec::new());
            }
            Some(gate) => self.wait_for(Some(gate)),
            None => {
                self.start_calibration(PlanKind::Full, Vec::new());
            }
        }
    }

    /// Whether a machine without a record was busy for so long that one made beside its load is better than none.
    fn has_waited(&mut self) -> bool {
        /// An idle moment has come by then, if there are any.
        const PATIENCE: Seconds = Seconds(60.0);
        let since = *self.busy_since.get_or_insert(self.now.boottime);
        self.record.is_none() && self.now.boottime - since >= PATIENCE
    }

    /// Whether samples follow each other closely, because a calibration waits for an idle moment, which may last only a few
    /// hundred milliseconds. A few seconds of every minute: looking costs power too.
    pub(super) fn looks_for_idleness(&self) -> bool {
        self.status.waiting_for == Some(Gate::Load) && self.now.boottime.get().rem_euclid(60.0) < 6.0
    }

    /// Why the accelerator cannot be measured; `None` where it can.
    pub(super) fn no_probe(&self) -> Option<Refusal> {
        /// The kernels' instructions begin with this compute capability.
        const OLDEST: (u32, u32) = (8, 0);
        const INSTEAD: &str = "the ceilings come from the data sheet and the clocks";
        if self.accelerator == Accelerator::Cpu && self.policy.accelerator == Some(Accelerator::Gpu) {
            let why = self.board.gpu.reason().unwrap_or("the hardware registry does not know it");
            return Some(Code::NoProbe.error(
                format!("accelerator = \"gpu\" is configured, and there is no GPU to measure: {why}"),
                "set it to \"auto\" to measure the CPU",
            ));
        }
        if self.accelerator != Accelerator::Gpu || self.board.simulated {
            return None;
        }
        if self.policy.elsewhere {
            return Some(Code::NoProbe.error(
                format!("the tree of --root is not this machine's, and its GPU is not here; {INSTEAD}"),
                LOOK_FURTHER,
            ));
        }
        let capability = self.hardware.as_ref()?.compute_capability?;
        let (major, minor) = capability;
        (capability < OLDEST).then(|| {
            let message = format!(
                "there are kernels for compute capability {}.{} and later, and this GPU has {major}.{minor}; {INSTEAD}",
                OLDEST.0, OLDEST.1
            );
            Code::NoProbe.error(message, LOOK_FURTHER)
        })
    }

    /// True at a mode or at caps that no calibration was run at.
    fn is_new_point(&self) -> bool {
        let now = self.state.operating_point();
        let known = |record: &CalibrationRecord| {
            let points = record.regimes.iter().filter_map(|regime| regime.point.as_ref());
            points.into_iter().any(|point| distance(point, &now) <= MOVED)
        };
        self.accelerator == Accelerator::Gpu && !self.record.as_ref().is_some_and(known)
    }

    fn wait_for(&mut self, gate: Option<(Gate, String)>) {
        if gate.as_ref().is_none_or(|(gate, _)| *gate != Gate::Load) {
            self.busy_since = None;
        }
        let (gate, reason) = gate.unzip();
        self.status.waiting_for = gate;
        self.status.waiting_reason = reason;
    }

    /// Why now is a bad time.
    fn gate(&self) -> Option<(Gate, String)> {
        if let Some(failed_at) = self.failed_at {
            // Doubled with every further failure, up to some eleven hours for the default of ten minutes.
            let mut back_off =
                self.policy.back_off * f64::from(1_u32 << self.failures.saturating_sub(1).min(6));
            let mut what = "the last attempt failed";
            if self.status.last_error.is_none() {
                // It was only spoilt by other work, which may be over.
                back_off = back_off * 0.2;
                what = "the last calibration ran during other work";
            }
            let left = back_off - (self.now.boottime - failed_at);
            if left.is_positive() {
                return Some((Gate::BackOff, format!("{what}; the next is in {left}")));
            }
        }
        if let Some(reason) = self.too_hot() {
            return Some((Gate::Thermal, reason));
        }
        let available = self.state.memory.known().map(|memory| memory.available);
        if let Some(available) = available.filter(|available| *available < self.policy.min_free_memory) {
            let reason =
                format!("{available} of memory is free, and {} is needed", self.policy.min_free_memory);
            return Some((Gate::Memory, reason));
        }
        let gpu_busy = self.state.gpu_load.known().filter(|load| **load > self.policy.max_load_ratio);
        if let Some(busy) = gpu_busy {
            let reason = format!(
                "the GPU is {:.0} % busy; calibration needs {:.0} % or less",
                busy * 100.0,
                self.policy.max_load_ratio * 100.0
            );
            return Some((Gate::Load, reason));
        }
        let load = self.state.load.known()?;
        let cores = self.state.cores_online.known().copied().unwrap_or(self.board.cpu.logical).max(1);
        // The first sample has nothing to compare its counters with; the load average is slower, but it is there.
        let busy = load.busy_ratio.unwrap_or((load.average_1m / f64::from(cores)).min(1.0));
        (busy > self.policy.max_load_ratio).then(|| {
            let reason = format!(
                "{:.0} of {cores} cores busy ({:.0} %): load {:.1}; calibration needs {:.0} % or less",
                busy * f64::from(cores),
                busy * 100.0,
                load.average_1m,
                self.policy.max_load_ratio * 100.0
            );
            (Gate::Load, reason)
        })
    }

    fn too_hot(&self) -> Option<String> {
        if let Some(throttle) = self.state.throttle.known().filter(|throttle| throttle.active) {
            return Some(format!("throttled: {}", throttle.evidence.join(", ")));
        }
        let zones = self.state.temperatures.known()?;
        let hottest = zones.iter().filter_map(|zone| Some((zone.temperature.known()?, &zone.name)));
        let (temperature, name) = hottest.max_by(|a, b| a.0.get().total_cmp(&b.0.get()))?;
        (temperature.get() > self.policy.max_temperature_c).then(|| {
            format!(
                "{name} is at {temperature}; calibration needs {} °C or less",
                self.policy.max_temperature_c
            )
        })
    }

    pub(super) fn calibrate_requested(&mut self, asked: CalibrationRequest, plan: PlanKind) {
        let CalibrationRequest { ticket, wait, force } = asked;
        match self.job.as_mut().map(|job| (job.id, &mut job.purpose)) {
            // What is asked for is already under way.
            Some((job, Purpose::Calibrate(running)))
                if running.plan == plan || running.plan == PlanKind::Full =>
            {
                if wait {
                    running.waiting.push(ticket);
                } else {
                    self.effects.reply(ticket, Reply::Started { job });
                }
                return;
            }
            Some((_, Purpose::Calibrate(_))) => {
                return self.effects.busy(ticket, "a quick calibration");
            }
            Some((_, Purpose::Measure(_))) => return self.effects.busy(ticket, "a measurement"),
            None => {}
        }
        if let Some(refusal) = self.no_probe() {
            return self.effects.refuse(ticket, refusal);
        }
        if let Some(reason) = self.too_hot().filter(|_| !force) {
            let hint = "wait, or send \"force\": true; GET /v1/calibration shows what it waits for";
            return self.effects.refuse(ticket, Code::Gated.error(reason, hint));
        }
        let job = self.start_calibration(plan, if wait { vec![ticket] } else { Vec::new() });
        if !wait {
            self.effects.reply(ticket, Reply::Started { job });
        }
        self.publish();
    }

    fn start_calibration(&mut self, plan: PlanKind, waiting: Vec<Ticket>) -> u64 {
        let job = self.next_job();
        self.calibrate_on(job, self.free_workers(), plan, waiting);
        job
    }

    /// As many workers as there are cores; fewer where so many are taken that all workers would hardly ever be on at once.
    fn free_workers(&self) -> u32 {
        /// With so many taken, all workers are on their CPUs for a quarter of the time.
        const SHARED: u32 = 2;
        let cores = self.plan_context().threads;
        let busy = self.state.load.known().and_then(|load| load.busy_ratio).unwrap_or(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of the cores")]
        let taken = (busy.clamp(0.0, 1.0) * f64::from(cores)).round() as u32;
        if self.accelerator == Accelerator::Cpu && taken > SHARED {
            cores.saturating_sub(taken).max(1)
        } else {
            cores
        }
    }

    fn calibrate_on(&mut self, job: u64, workers: u32, plan: PlanKind, waiting: Vec<Ticket>) {
        let context = PlanContext { threads: workers, ..self.plan_context() };
        let mut steps = calibration_plan(&context, plan);
        let meter = match plan {
            PlanKind::Full => metering::meter_period(&self.state, self.accelerator),
            PlanKind::Quick => Err("a quick calibration does not measure power; run a full one".to_owned()),
        };
        let metering = match meter {
            Ok(period) => {
                steps = steps.with_power(&context, period);
                Metering::default()
            }
            Err(why) => Metering::without(why),
        };
        let purpose = Purpose::Calibrate(Box::new(Calibrating {
            plan,
            waiting,
            samples: Vec::new(),
            skipped: Vec::new(),
            finished: None,
            cancelled: false,
            other_work: None,
            workers,
            point: (self.accelerator == Accelerator::Gpu).then(|| self.state.operating_point()),
            metering,
        }));
        self.job = Some(Job { id: job, purpose });
        self.wait_for(None);
        self.status.running = Some(job);
        self.status.fraction = Some(0.0);
        self.status.step = None;
        self.effects.log(Severity::Info, format!("calibration {job} started: {} steps", steps.steps.len()));
        self.effects.push(Effect::StartProbe { job, plan: steps });
    }

    pub(super) fn cancel(&mut self, ticket: Ticket, wanted: Option<u64>) {
        match &mut self.job {
            Some(job) if wanted.is_none_or(|wanted| wanted == job.id) => {
                if let Purpose::Calibrate(calibrating) = &mut job.purpose {
                    calibrating.cancelled = true;
                }
                self.effects.push(Effect::StopProbe { job: job.id });
                let id = job.id;
                self.effects.reply(ticket, Reply::Cancelled { job: id });
            }
            _ => {
                let hint = "GET /v1/calibration shows the running job";
                self.effects.refuse(ticket, Code::NotRunning.error("no such job is running", hint));
            }
        }
    }

    /// The probe of a calibration has ended: a better record, or the old one and the reason why.
    pub(super) fn calibrated(&mut self, job: u64, run: Calibrating, outcome: Result<(), String>) {
        self.status.running = None;
        self.status.fraction = None;
        self.status.step = None;
        let result = self.judge(&run, outcome).map_err(|refusal| blaming(refusal, run.other_work.as_ref()));
        match result {
            Err(refusal) if refusal.code == Code::FitFailed && self.may_do_with_fewer(&run).is_some() => {
                let workers = self.may_do_with_fewer(&run).unwrap_or(1);
                self.effects.log(
                    Severity::Info,
                    format!(
                        "calibration {job}: {}; again with {workers} of {} workers",
                        refusal.message, run.workers
                    ),
                );
                self.calibrate_on(job, workers, PlanKind::Quick, run.waiting);
            }
            Ok(record) => {
                self.status.last_job = Some(job);
                let mut merged = record.merged_with(self.record.as_ref());
                for said in metering::judge(&mut merged, self.hardware.as_deref()) {
                    self.effects.log(Severity::Warning, said);
                }
                self.status.last_error = None;
                // Beside other work it is done, and yet wanted again.
                self.failed_at = merged.loaded.then_some(self.now.boottime);
                self.failures = if merged.loaded { self.failures.saturating_add(1) } else { 0 };
                self.effects.log(Severity::Info, summary(job, &merged));
                self.effects.push(Effect::Save(StoreItem::Calibration(Box::new(merged.clone()))));
                self.record = Some(merged);
                self.forget_changes();
                for ticket in run.waiting {
                    self.effects.reply(ticket, Reply::Finished { job });
                }
            }
            Err(refusal) => {
                self.status.last_job = Some(job);
                let message = &refusal.message;
                self.status.last_error = Some(message.clone());
                // A cancelled run is no reason to wait before the next attempt somebody asks for, but starting
                // over at once by ourselves would not be stopping.
                self.failed_at = Some(self.now.boottime);
                self.failures = self.failures.saturating_add(1);
                self.effects.log(
                    Severity::Warning,
                    format!("calibration {job}: {message}; the previous ceilings are kept"),
                );
                for ticket in run.waiting {
                    self.effects.refuse(ticket, refusal.clone());
                }
            }
        }
    }

    /// How many workers to try it with once more: those that other work left a core of its own. `None` where that would be
    /// no fewer, or it was no load that spoilt the run.
    fn may_do_with_fewer(&self, run: &Calibrating) -> Option<u32> {
        let other_work = run.other_work.as_ref().filter(|_| self.accelerator == Accelerator::Cpu)?;
        let free = other_work.cpus.saturating_sub(other_work.busy_cpus).max(1);
        (other_work.busy_cpus > 0 && run.workers == self.plan_context().threads && free < run.workers)
            .then_some(free)
    }

    /// Where the GPU was measured, if it stayed there.
    fn gpu_context(&self, run: &Calibrating) -> Result<Option<GpuContext>, Refusal> {
        let (Some(point), Some(hardware)) = (&run.point, self.hardware.as_deref()) else { return Ok(None) };
        let now = self.state.operating_point();
        if now.power_mode != point.power_mode || distance(&now, point) > MOVED {
            let name = |point: &OperatingPoint| point.power_mode.clone().unwrap_or_else(|| "unknown".into());
            return Err(Code::FitFailed.error(
                format!(
                    "the power mode or its caps changed while it ran ({} before, {} now)",
                    name(point),
                    name(&now)
                ),
                "try again",
            ));
        }
        // A card without a cap boosts above the clock of its data sheet: an H200 to 1980 MHz, where that says 1830.
        let highest = self.board.gpu.known().and_then(|gpu| gpu.max_clock.known()).copied();
        let boosted = highest.filter(|highest| *highest > hardware.gpu_clock);
        let fastest = OperatingPoint { gpu_clock: point.gpu_clock.or(boosted), ..point.clone() };
        Ok(Some(GpuContext { physical: datasheet(hardware, &fastest), point: point.clone() }))
    }

    fn judge(&self, run: &Calibrating, outcome: Result<(), String>) -> Result<CalibrationRecord, Refusal> {
        if run.cancelled {
            return Err(Code::Cancelled.error("it was cancelled", "start it again with POST /v1/calibrate"));
        }
        outcome.map_err(|reason| probe_failed(&format!("the probe failed: {reason}")))?;
        let (wall, cut_short) =
            run.finished.clone().ok_or_else(|| probe_failed("the probe ended before it was done"))?;
        let mut skipped = run.skipped.clone();
        skipped.extend(cut_short.map(|reason| format!("the rest of the plan: {reason}")));
        let gpu = self.gpu_context(run)?;
        let context = FitContext {
            key: machine_key(&self.board, self.policy.instruction_set),
            unix_s: self.now.unix_s,
            wall,
            plan: run.plan,
            simulated: self.board.simulated,
            clock_cap: self.state.cpu_clock_cap.known().copied(),
            dram_bytes: self.plan_context().dram_bytes(),
            skipped,
            gpu,
            power: run.metering.summary(),
            other_work: run.other_work.clone(),
            fewer_workers: run.workers < self.plan_context().threads,
        };
        let mut record = fit(&run.samples, &context).map_err(|error| {
            // Nothing can be fitted without a read from memory, and only this says why it is missing.
            let read = context.skipped.iter().find(|why| why.starts_with("read "));
            let message = read.map_or_else(|| error.to_string(), |why| format!("{error} ({why})"));
            Code::FitFailed.error(message, LOOK_FURTHER)
        })?;
        metering::attach(&mut record, &run.metering);
        Ok(record)
    }
}

/// The refusal with the load that is to blame in front, if there was one.
fn blaming(refusal: Refusal, other_work: Option<&OtherWork>) -> Refusal {
    /// From this part of the CPUs on.
    const LOAD: f64 = 0.1;
    let Some(other_work) = other_work.filter(|work| work.busy_ratio >= LOAD) else { return refusal };
    let hint = "stop or pause that work, or try again later; the daemon also calibrates by itself once the machine is idle";
    match refusal.code {
        Code::FitFailed | Code::ProbeFailed => {
            refusal.code.error(format!("{other_work}: {}", refusal.message), hint)
        }
        _ => refusal,
    }
}

pub(super) fn probe_failed(message: &str) -> Refusal {
    Code::ProbeFailed.error(message, LOOK_FURTHER)
}

fn summary(job: u64, record: &CalibrationRecord) -> String {
    let Some(regime) = record.current() else { return format!("calibration {job} found nothing") };
    let peaks: Vec<_> = regime
        .roofline
        .compute
        .iter()
        .map(|(precision, ceiling)| format!("{precision} {}", ceiling.value))
        .collect();
    let beside = match &record.other_work {
        Some(other_work) if record.loaded => format!(" during other work ({other_work})"),
        _ if record.loaded => " during other work".to_owned(),
        _ => String::new(),
    };
    format!(
        "calibration {job} took {}{beside}: read {}, {} ({} samples, {} rejected, regime {})",
        record.wall,
        regime.roofline.bandwidth.value,
        peaks.join(", "),
        regime.samples,
        record.rejected.len(),
        regime.key
    )
}
