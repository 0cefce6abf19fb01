//! Power metering while a probe runs: readings, the load that each belongs to, and the power model fitted to them.

use super::MeasuredPower;
use rooflined_core::board::{BoardState, MeterRead, Rail, Reading};
use rooflined_core::hardware::Hardware;
use rooflined_core::precision::Precision;
use rooflined_core::units::{Seconds, Watts};
use rooflined_predict::calibration::{
    Accelerator, CalibrationRecord, Held, Kernel, LoadKind, Metered, PowerPoint, PowerReading,
    PowerUnderLoad, Regime, attribute,
};
use rooflined_predict::learning::metered::{Load, MeteredPoint, power_file};
use rooflined_predict::learning::power::Sample;
use rooflined_predict::power::{Place, Rails};

/// Bits from which on a weight needs no dequantization.
const PLAIN_BITS: f64 = 16.0;

/// What a meter covers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Meter {
    scope: String,
    rails: Vec<String>,
}

/// The power of the machine that an accelerator is part of, as one reading; or why there is none.
fn reading(state: &BoardState, accelerator: Accelerator) -> Result<(PowerReading, Meter), String> {
    let total = match (state.total_power.known(), accelerator) {
        (Some(total), Accelerator::Cpu) if total.scope == "gpu" => return package(state),
        (Some(total), Accelerator::Gpu) if total.scope == "package" => {
            return Err(format!(
                "{} is the power of the CPU, but the work runs on the GPU",
                total.rails.join(" + ")
            ));
        }
        (Some(total), _) if total.power < Watts::ZERO => {
            return Err(format!(
                "{} reads {}, which cannot be a power",
                total.rails.join(" + "),
                total.power
            ));
        }
        (Some(total), _) => total,
        (None, _) => {
            let reason = state.total_power.reason().unwrap_or("it is not reported");
            return Err(format!("no power rail or energy counter can be read: {reason}"));
        }
    };
    let meter = Meter { scope: total.scope.clone(), rails: total.rails.clone() };
    Ok((stamped(total.power, total.read, state.taken_at), meter))
}

fn stamped(power: Watts, read: Option<MeterRead>, taken_at: Seconds) -> PowerReading {
    let read = read.unwrap_or(MeterRead { at: taken_at, since: None, period: None });
    PowerReading { power, at: read.at, since: read.since, period: read.period }
}

/// The processor's own counters where the machine's figure is that of its card.
fn package(state: &BoardState) -> Result<(PowerReading, Meter), String> {
    let numbered = |rail: &&Rail| {
        let number = rail.name.strip_prefix("package-");
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let rails = state.rails.known().map(Vec::as_slice).unwrap_or_default();
    let (mut power, mut read, mut names) = (Watts::ZERO, None::<MeterRead>, Vec::new());
    for rail in rails.iter().filter(numbered) {
        let known = rail.power.known().ok_or_else(|| {
            let why = rail.power.reason().unwrap_or("it is not reported");
            format!("no energy counter of the CPU can be read: {why}")
        })?;
        power += *known;
        read = match (read, rail.read) {
            (Some(all), Some(one)) => Some(all.with(one)),
            (known, None) | (None, known) => known,
        };
        names.push(rail.name.clone());
    }
    if names.is_empty() {
        return Err(
            "the only power that can be read is that of the GPU, but the work runs on the CPU".to_owned()
        );
    }
    Ok((stamped(power, read, state.taken_at), Meter { scope: "package".to_owned(), rails: names }))
}

/// How long the meter takes to a new value; the reason where there is no meter.
pub(super) fn meter_period(state: &BoardState, accelerator: Accelerator) -> Result<Option<Seconds>, String> {
    // A counter has no power before its second sample, but the next is not far.
    let counts = |rail: &Rail| rail.energy.is_some() && rail.power.known().is_none();
    let counted = state.rails.known().is_some_and(|rails| rails.iter().any(counts));
    let ever = !matches!(state.total_power, Reading::Absent { .. });
    match reading(state, accelerator) {
        Ok((reading, _)) => Ok(reading.period),
        Err(_) if counted && ever => Ok(None),
        Err(why) => Err(why),
    }
}

/// Readings of a power meter over a run.
#[derive(Debug, Clone, Default)]
struct PowerTrace {
    readings: Vec<PowerReading>,
    meter: Option<Meter>,
    /// Why the meter cannot be used, or did not answer last.
    trouble: Option<String>,
    /// The first readings of the run that are those of an idle machine.
    idle: usize,
}

impl PowerTrace {
    fn sampled(&mut self, state: &BoardState, accelerator: Accelerator, idle: bool) {
        match reading(state, accelerator) {
            Err(why) => self.trouble = Some(why),
            Ok((_, meter)) if self.meter.as_ref().is_some_and(|known| *known != meter) => {
                self.trouble = Some(format!(
                    "the meter changed to {} while it ran; run it again",
                    meter.rails.join(" + ")
                ));
            }
            Ok((reading, meter)) => {
                self.meter = Some(meter);
                self.readings.push(reading);
                if idle {
                    self.idle = self.readings.len();
                }
            }
        }
    }

    /// `None` without two readings under load. The first was taken before the load had set in and only opens the first
    /// interval.
    fn summary(&self) -> Option<PowerUnderLoad> {
        let readings = self.readings.get(self.idle.saturating_sub(1)..)?;
        let span = readings.last()?.at - readings.first()?.at;
        if !span.is_positive() {
            return None;
        }
        let energy = readings
            .windows(2)
            .fold(0.0, |sum, pair| sum + pair[1].power.get() * (pair[1].at - pair[0].at).get());
        let peak = readings.iter().skip(1).map(|reading| reading.power).reduce(Watts::max)?;
        Some(PowerUnderLoad {
            mean: Watts(energy / span.get()),
            peak,
            readings: u32::try_from(readings.len() - 1).unwrap_or(u32::MAX),
            scope: self.meter.as_ref().map(|meter| meter.scope.clone()).unwrap_or_default(),
        })
    }

    /// The point of a load that was held.
    fn point(&self, held: &Held, regime: &Regime) -> PowerPoint {
        let found = self.metered(held);
        let lasted = (held.ended - held.began).get();
        let rate = |sum: f64| if lasted > 0.0 { sum / lasted } else { 0.0 };
        let mut point = PowerPoint {
            bytes_per_s: rate(held.bytes.get()),
            flops_per_s: rate(held.flops.get()),
            precision: held.kernel.as_ref().map(|kernel| computed_in(kernel, regime)),
            weights_per_s: rate(held.weights),
            temperature_c: held.temperature,
            ..self.without(held.kernel, String::new())
        };
        match found {
            Ok(metered) => {
                point.power_w = Some(metered.power);
                point.reason = None;
                (point.duration_s, point.readings) = (metered.duration, metered.readings);
            }
            Err(why) => point.reason = Some(why),
        }
        point
    }

    fn metered(&self, held: &Held) -> Result<Metered, String> {
        attribute(&self.readings, held.began, held.ended).map_err(|why| {
            let trouble = self.trouble.as_ref().map_or_else(String::new, |why| format!("; {why}"));
            why + &trouble
        })
    }

    fn without(&self, kernel: Option<Kernel>, reason: String) -> PowerPoint {
        let meter = self.meter.clone().unwrap_or_default();
        PowerPoint {
            load: LoadKind::of(kernel.as_ref()),
            kernel,
            power_w: None,
            reason: Some(reason),
            duration_s: Seconds::ZERO,
            readings: 0,
            bytes_per_s: 0.0,
            flops_per_s: 0.0,
            precision: None,
            weights_per_s: 0.0,
            scope: meter.scope,
            rails: meter.rails,
            temperature_c: None,
        }
    }
}

fn computed_in(kernel: &Kernel, regime: &Regime) -> Precision {
    match *kernel {
        Kernel::Peak { precision } => precision,
        Kernel::Gemv { format, .. } => {
            regime.profile.formats.get(&format).map_or_else(|| format.native_precision(), |cost| cost.compute)
        }
        _ => Precision::Fp32,
    }
}

/// The power meter beside a probe, and the loads that are held for it.
#[derive(Debug, Clone, Default)]
pub(super) struct Metering {
    /// What the meter said meanwhile.
    trace: PowerTrace,
    /// Loads that were held for it.
    held: Vec<Held>,
    /// Those that could not be, and why.
    not_held: Vec<(Option<Kernel>, String)>,
    /// A load is being held: `true` if it is that of the idle machine.
    holding: Option<bool>,
    /// Why no load is held.
    no_meter: Option<String>,
}

impl Metering {
    /// No load is held, for this reason.
    pub(super) fn without(why: String) -> Self {
        Self { no_meter: Some(why), ..Self::default() }
    }

    pub(super) fn sampled(&mut self, state: &BoardState, accelerator: Accelerator) {
        self.trace.sampled(state, accelerator, self.holding == Some(true));
    }

    /// Whether a load is being held.
    pub(super) fn is_holding(&self) -> bool {
        self.holding.is_some()
    }

    pub(super) fn hold_began(&mut self) {
        // The idle machine is held before anything else.
        self.holding = Some(self.held.is_empty() && self.not_held.is_empty());
    }

    /// The probe does something else.
    pub(super) fn hold_over(&mut self) {
        self.holding = None;
    }

    pub(super) fn held(&mut self, held: Held) {
        self.held.push(held);
    }

    pub(super) fn not_held(&mut self, kernel: Option<Kernel>, reason: String) {
        self.not_held.push((kernel, reason));
    }

    pub(super) fn summary(&self) -> Option<PowerUnderLoad> {
        self.trace.summary()
    }

    /// Power and energy of a kernel that takes `time` to run once.
    pub(super) fn of(&self, kernel: Kernel, time: Seconds) -> MeasuredPower {
        let (load, idle) = (self.of_load(Some(kernel)), self.of_load(None));
        let (power, rest) = (watts(&load), watts(&idle));
        let above = power.zip(rest).map(|(power, rest)| power - rest);
        let reason = match (&load, idle, above) {
            (Err(why), ..) => Some(why.clone()),
            (Ok(_), Err(why), _) => Some(format!("the power of the idle machine is not known: {why}")),
            (Ok(_), Ok(_), Some(above)) if !above.is_positive() => Some(
                "the meter shows no more than for the idle machine, so no energy can be attributed to the run"
                    .to_owned(),
            ),
            _ => None,
        };
        let load = load.ok();
        let meter = self.trace.meter.clone();
        MeasuredPower {
            power,
            idle: rest,
            energy: above.filter(|above| above.is_positive()).map(|above| above * time),
            total_energy: power.map(|power| power * time),
            duration: load.map(|load| load.duration),
            readings: load.map(|load| load.readings),
            period: self.trace.readings.iter().filter_map(|reading| reading.period).reduce(Seconds::max),
            scope: meter.as_ref().map(|meter| meter.scope.clone()),
            rails: meter.map(|meter| meter.rails).unwrap_or_default(),
            reason,
        }
    }

    /// The power of a load; `None` of a kernel is the idle machine.
    fn of_load(&self, kernel: Option<Kernel>) -> Result<Metered, String> {
        if let Some(why) = &self.no_meter {
            return Err(why.clone());
        }
        if let Some(held) = self.held.iter().find(|held| held.kernel == kernel) {
            return self.trace.metered(held);
        }
        let not_held = self.not_held.iter().find(|(other, _)| *other == kernel);
        Err(not_held.map_or_else(
            || "the probe ended before the load was held; measure less at a time".to_owned(),
            |(_, why)| format!("the load could not be held: {why}"),
        ))
    }
}

fn watts(metered: &Result<Metered, String>) -> Option<Watts> {
    metered.as_ref().ok().map(|metered| metered.power)
}

/// Puts the power of the loads that `run` held into the regime that they were held in, or why there is none.
pub(super) fn attach(record: &mut CalibrationRecord, run: &Metering) {
    // The one in force is the first, and the loads were held last.
    let Some(regime) = record.regimes.first_mut() else { return };
    let held = run.held.iter().map(|held| run.trace.point(held, regime));
    let not = run.not_held.iter().map(|(kernel, reason)| run.trace.without(*kernel, reason.clone()));
    let points: Vec<PowerPoint> = held.chain(not).collect();
    regime.power_reason.clone_from(&run.no_meter);
    regime.power_points = points;
}

/// What power costs at the points of all regimes; why it is not known stands in the regime. Returns what is to be said of
/// regimes that were refused.
pub(super) fn judge(record: &mut CalibrationRecord, hardware: Option<&Hardware>) -> Vec<String> {
    let mut said = Vec::new();
    let mut order: Vec<usize> = (0..record.regimes.len()).collect();
    // The newest says which rails count.
    order.sort_by(|a, b| {
        let at = |index: usize| record.regimes[index].measured_at_unix_s;
        at(*b).total_cmp(&at(*a))
    });
    let (mut metered_points, mut indices) = (Vec::new(), Vec::new());
    for index in order {
        match metered_point(&record.regimes[index]) {
            Some(Ok(metered)) => {
                record.regimes[index].power_reason = None;
                metered_points.push(metered);
                indices.push(index);
            }
            Some(Err(why)) => record.regimes[index].power_reason = Some(why),
            None => {}
        }
    }
    let (file, refused) = power_file(&record.key.board, &metered_points, hardware);
    for (position, why) in refused {
        let regime = &mut record.regimes[indices[position]];
        said.push(format!(
            "power in regime {}: {why}; published measurements are used instead, where there are any",
            regime.key
        ));
        regime.power_reason = Some(why);
    }
    record.power = file;
    said
}

/// The loads of a regime as they are fitted; `None` where none were held.
fn metered_point(regime: &Regime) -> Option<Result<MeteredPoint, String>> {
    let meter = regime.power_points.iter().find(|point| point.power_w.is_some());
    if regime.power_points.is_empty() {
        return None;
    }
    let Some(meter) = meter else {
        let why = regime.power_points.iter().find_map(|point| point.reason.clone()).unwrap_or_default();
        return Some(Err(format!("no load has a power: {why}")));
    };
    Some(loads_of(regime, &meter.scope))
}

fn loads_of(regime: &Regime, scope: &str) -> Result<MeteredPoint, String> {
    let rails = Rails::of(scope).ok_or_else(|| format!("{scope:?} is not a set of rails"))?;
    let place = Place::of(&regime.roofline).ok_or("the clock of the load is not known")?;
    let peak = regime.power_points.iter().find(|point| point.load == LoadKind::Compute);
    let precision = peak
        .and_then(|point| point.precision)
        .ok_or("no load of arithmetic with a known precision was held")?;
    let loads = regime.power_points.iter().filter(|point| point.scope == scope).filter_map(|point| {
        let (load, dequantized) = match (point.load, point.kernel) {
            (LoadKind::Idle, _) => (Load::Idle, false),
            (LoadKind::Bandwidth, _) => (Load::Bandwidth, false),
            (LoadKind::Decode, Some(Kernel::Gemv { format, .. })) => {
                (Load::Decode(format.key().to_owned()), format.bits_per_weight() < PLAIN_BITS)
            }
            (LoadKind::Compute | LoadKind::Decode, _) => (Load::Compute, false),
        };
        let sample = Sample {
            bytes: point.bytes_per_s,
            flops: point.flops_per_s * same_energy(regime, point.precision.unwrap_or(precision), precision),
            dequantized: if dequantized { point.weights_per_s } else { 0.0 },
            power: point.power_w?.get(),
        };
        Some((load, sample))
    });
    Ok(MeteredPoint {
        name: regime.point.as_ref().and_then(|point| point.power_mode.clone()).unwrap_or_default(),
        place,
        rails,
        precision,
        loads: loads.collect(),
    })
}

/// Operations of `to` that take the energy of one of `from`, as predictions have it: between as much for each operation and
/// as much for each cycle.
fn same_energy(regime: &Regime, from: Precision, to: Precision) -> f64 {
    let peak = |precision| regime.roofline.compute(precision).map(|ceiling| ceiling.value);
    match (peak(from), peak(to)) {
        (Some(from), Some(to)) if from.get() > 0.0 => (to / from).sqrt(),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{board, jetson, jetson_in, policy, sample, state};
    use crate::{Command, Effect, Event, Governor, Measured, Now, Policy, Reply};
    use rooflined_core::board::{Board, TotalPower};
    use rooflined_core::operation::Op;
    use rooflined_core::precision::WeightFormat;
    use rooflined_predict::calibration::{Hold, Plan, PlanKind, ProbeEvent, Step};
    use rooflined_predict::learning::Residuals;
    use rooflined_predict::power::{PowerCosts, PowerSource};
    use rooflined_predict::predict;

    /// The hidden truth: P0, eB, eF at fp32 (fp16 on the GPU), eW.
    const P0: f64 = 14.0;
    const BYTE: f64 = 400e-12;
    const FLOP: f64 = 80e-12;
    const WEIGHT: f64 = 150e-12;

    fn at(seconds: f64) -> Now {
        Now { boottime: Seconds(seconds), unix_s: 1e9 + seconds }
    }

    /// The machine as its meter sees it at `now`: a counter that was read `since`, or a sensor.
    fn metered(state: &BoardState, now: f64, since: Option<f64>, watts: f64, scope: &str) -> BoardState {
        let read = MeterRead { at: Seconds(now), since: since.map(Seconds), period: Some(Seconds(0.001)) };
        let (power, rails) = (Watts(watts), vec![format!("{scope}-0")]);
        BoardState {
            taken_at: Seconds(now),
            total_power: Reading::Known(TotalPower { power, rails, scope: scope.into(), read: Some(read) }),
            ..state.clone()
        }
    }

    /// A governor whose probe does what the fixture machine does and whose meter tells the truth above.
    struct Rig {
        governor: Governor,
        state: BoardState,
        scope: &'static str,
        now: f64,
        paces: Vec<f64>,
        logs: Vec<String>,
    }

    impl Rig {
        fn new(board: Board, state: BoardState, scope: &'static str) -> Self {
            let policy = Policy { automatic: false, ..policy() };
            let first = metered(&state, 0.0, Some(-1.0), P0, scope);
            let governor = Governor::new(at(0.0), board, first, None, Residuals::default(), &policy);
            Self { governor, state, scope, now: 1.0, paces: Vec::new(), logs: Vec::new() }
        }

        fn tell(&mut self, event: Event) -> Option<(u64, Plan)> {
            let mut started = None;
            for effect in self.governor.handle(at(self.now), event) {
                match effect {
                    Effect::StartProbe { job, plan } => started = Some((job, plan)),
                    Effect::SampleEvery(period) => self.paces.push(period.get()),
                    Effect::Log { message, .. } => self.logs.push(message),
                    _ => {}
                }
            }
            started
        }

        fn sampled(&mut self, watts: f64) {
            let since = Some(self.now - 0.05);
            let state = metered(&self.state, self.now, since, watts, self.scope);
            self.tell(Event::Sampled(Box::new(state)));
        }

        fn probe(&mut self, job: u64, event: ProbeEvent) {
            self.tell(Event::Probe { job, event: Box::new(event) });
        }

        /// Holds one load; what it does in a second is that of the fixture's kernel.
        fn hold(&mut self, job: u64, hold: &Hold, meter_shows: impl Fn(f64) -> f64) {
            let step = |kernel| Step { kernel, threads: hold.threads, budget_s: 0.1 };
            self.probe(job, ProbeEvent::Holding { fraction: 0.5, step: "power".into() });
            let run = hold.kernel.map(|kernel| (kernel, sample(&step(kernel), 1.0, 50e-9)));
            let rates = run.as_ref().map(|(kernel, run)| {
                let time = run.times[0].get();
                let plain = !matches!(kernel, Kernel::Gemv { format, .. } if format.bits_per_weight() < 16.0);
                let dequantized = if plain { 0.0 } else { run.weights / time };
                (run.bytes.get() / time, run.flops.get() / time, run.weights / time, dequantized)
            });
            let (bytes, flops, weights, dequantized) = rates.unwrap_or_default();
            let watts = meter_shows(P0 + BYTE * bytes + FLOP * flops + WEIGHT * dequantized);
            let began = self.now;
            while self.now < began + hold.hold_s {
                self.now += 0.05;
                self.sampled(watts);
            }
            let lasted = self.now - began;
            let held = Held {
                kernel: hold.kernel,
                began: Seconds(began),
                ended: Seconds(self.now),
                flops: rooflined_core::units::Flops(flops * lasted),
                bytes: rooflined_core::units::Bytes(bytes * lasted),
                weights: weights * lasted,
                temperature: None,
            };
            self.probe(job, ProbeEvent::Held(Box::new(held)));
        }

        fn calibrate(&mut self, plan: PlanKind, meter_shows: impl Fn(f64) -> f64) -> Plan {
            let asked =
                Event::Requested { ticket: 1, command: Command::Calibrate { plan, wait: true, force: true } };
            let (job, plan) = self.tell(asked).unwrap();
            let (idle, loads): (Vec<_>, Vec<_>) = plan.holds.iter().partition(|hold| hold.kernel.is_none());
            for hold in idle {
                self.hold(job, hold, &meter_shows);
            }
            for step in &plan.steps {
                self.probe(job, ProbeEvent::Progress { fraction: 0.5, step: String::new() });
                self.probe(job, ProbeEvent::Sample(Box::new(sample(step, 1.0, 50e-9))));
            }
            for hold in loads {
                self.hold(job, hold, &meter_shows);
            }
            self.probe(job, ProbeEvent::Finished { wall: Seconds(3.0), cut_short: None });
            self.tell(Event::ProbeEnded { job, outcome: Ok(()) });
            plan
        }

        /// Measures one product; `kept` says of a load whether the probe holds it.
        fn measure(
            &mut self,
            power: bool,
            kept: impl Fn(&Hold) -> bool,
            meter_shows: impl Fn(f64) -> f64,
        ) -> Measured {
            let work = vec![(Op::Gemv { n: 4096, k: 4096 }, WeightFormat::Int8)];
            let asked = Event::Requested { ticket: 1, command: Command::Measure { work, power } };
            let (job, plan) = self.tell(asked).unwrap();
            assert!(plan.holds.is_empty() || power);
            let (idle, loads): (Vec<&Hold>, Vec<&Hold>) =
                plan.holds.iter().partition(|hold| hold.kernel.is_none());
            for hold in idle.into_iter().filter(|hold| kept(hold)) {
                self.hold(job, hold, &meter_shows);
            }
            for step in &plan.steps {
                self.probe(job, ProbeEvent::Progress { fraction: 0.5, step: String::new() });
                self.probe(job, ProbeEvent::Sample(Box::new(sample(step, 1.0, 50e-9))));
            }
            for hold in loads {
                if kept(hold) {
                    self.hold(job, hold, &meter_shows);
                } else {
                    let reason = "out of memory".to_owned();
                    self.probe(job, ProbeEvent::NotHeld { kernel: hold.kernel, reason });
                }
            }
            self.probe(job, ProbeEvent::Finished { wall: Seconds(3.0), cut_short: None });
            let ended = Event::ProbeEnded { job, outcome: Ok(()) };
            let effects = self.governor.handle(at(self.now), ended);
            let set = effects.into_iter().find_map(|effect| match effect {
                Effect::Reply { reply: Reply::Measured(set), .. } => Some(set),
                _ => None,
            });
            set.unwrap().rows.remove(0)
        }

        fn costs(&self) -> Option<PowerCosts> {
            let snapshot = self.governor.snapshot();
            snapshot.power_costs(&snapshot.roofline)
        }
    }

    #[test]
    fn a_measured_operation_has_the_power_of_its_load_and_the_energy_of_one_run() {
        let mut rig = Rig::new(board(), state(), "package");
        let row = rig.measure(true, |_| true, |watts| watts);
        let (run, power) = (&row.sample, row.power.unwrap());
        let time = run.times[0].get();
        let truth = P0 + (BYTE * run.bytes.get() + FLOP * run.flops.get() + WEIGHT * run.weights) / time;
        let close =
            |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-6, "{found} {wanted}");
        close(power.power.unwrap().get(), truth);
        close(power.idle.unwrap().get(), P0);
        close(power.energy.unwrap().get(), (truth - P0) * time);
        close(power.total_energy.unwrap().get(), truth * time);
        assert!(power.readings.unwrap() >= 8, "{power:?}");
        assert_eq!((power.scope.as_deref(), power.rails.len()), (Some("package"), 1));
        assert_eq!((power.period, power.reason), (Some(Seconds(0.001)), None));
        assert_eq!(rig.paces, [0.05, 1.0, 0.05], "idle, the step, the load");
    }

    #[test]
    fn power_that_was_not_asked_for_is_not_metered() {
        let mut rig = Rig::new(board(), state(), "package");
        assert_eq!(rig.measure(false, |_| true, |watts| watts).power, None);
        assert!(!rig.paces.contains(&0.05));
    }

    #[test]
    fn what_the_meter_does_not_tell_of_a_measured_operation_is_missing_with_the_reason() {
        let of = |kept: fn(&Hold) -> bool, meter_shows: fn(f64) -> f64| {
            let power = Rig::new(board(), state(), "package").measure(true, kept, meter_shows).power.unwrap();
            let known = [power.power.is_some(), power.idle.is_some(), power.energy.is_some()];
            assert_eq!(power.total_energy.is_some(), power.power.is_some());
            (known, power.reason.unwrap())
        };
        let (known, why) = of(|hold| hold.kernel.is_none(), |watts| watts);
        assert_eq!(known, [false, true, false]);
        assert!(why.contains("could not be held: out of memory"), "{why}");
        let (known, why) = of(|hold| hold.kernel.is_some(), |watts| watts);
        assert_eq!(known, [true, false, false]);
        assert!(why.contains("idle machine is not known"), "{why}");
        let (known, why) = of(|_| true, |_| P0);
        assert_eq!(known, [true, true, false]);
        assert!(why.contains("no more than"), "{why}");
        let (known, why) = of(|_| true, |_| 0.0);
        assert_eq!(known, [false; 3], "a meter that shows nothing is no power of zero");
        assert!(why.contains("0 W"), "{why}");
        let mut rig = Rig::new(board(), state(), "package");
        rig.governor.handle(at(0.5), Event::Sampled(Box::new(state())));
        let power = rig.measure(true, |_| true, |watts| watts).power.unwrap();
        assert_eq!((power.power, power.idle, power.energy, power.readings), (None, None, None, None));
        assert!(power.reason.unwrap().contains("no power rail or energy counter can be read"));
    }

    #[test]
    fn a_cpu_with_energy_counters_learns_its_power_and_its_predictions_have_watts() {
        let mut rig = Rig::new(board(), state(), "package");
        assert_eq!(rig.costs(), None, "nobody measured this machine");
        rig.calibrate(PlanKind::Full, |watts| watts);
        let costs = rig.costs().unwrap();
        assert_eq!((costs.rails, costs.source), (Rails::Package, PowerSource::Measured));
        assert_eq!(costs.warnings, Vec::<String>::new());
        let of = costs.coefficients;
        assert!((of.static_w / P0 - 1.0).abs() < 0.05, "{of:?}");
        assert!((of.byte_j / BYTE - 1.0).abs() < 0.05, "{of:?}");
        assert!((of.flop_j.unwrap() / FLOP - 1.0).abs() < 0.05, "{of:?}");
        let snapshot = rig.governor.snapshot();
        let format = WeightFormat::Q8_0;
        let numeric = snapshot.numeric_format(format);
        let op = Op::Gemv { n: 4096, k: 4096 };
        let predicted = predict(&snapshot.roofline, &snapshot.profile, &op, &numeric).unwrap();
        let (time, cost) = (predicted.time.value.get(), predicted.cost);
        let truth =
            P0 + (BYTE * cost.traffic.get() + FLOP * cost.work.get() + WEIGHT * 4096.0 * 4096.0) / time;
        let power =
            predicted.with_power_at(Some((&costs, &snapshot.roofline)), Default::default()).power.unwrap();
        assert!(
            (power.watts.low.get()..=power.watts.high.get()).contains(&truth),
            "{truth} W are not in {:?}",
            power.watts
        );
    }

    #[test]
    fn the_meter_is_read_often_while_a_load_is_held_and_only_then() {
        let mut rig = Rig::new(board(), state(), "package");
        rig.calibrate(PlanKind::Full, |watts| watts);
        assert_eq!(rig.paces, [0.05, 1.0, 0.05, 30.0], "idle, the steps, the loads, and afterwards");
    }

    #[test]
    fn what_is_stored_comes_back_and_an_older_record_has_no_power() {
        let mut rig = Rig::new(board(), state(), "package");
        rig.calibrate(PlanKind::Full, |watts| watts);
        let record = rig.governor.snapshot().calibration.clone().unwrap();
        assert_eq!(record.regimes[0].power_points.len(), 8);
        let mut json = serde_json::to_value(&record).unwrap();
        assert_eq!(serde_json::from_value::<CalibrationRecord>(json.clone()).unwrap(), record);
        json.as_object_mut().unwrap().remove("power");
        for regime in json["regimes"].as_array_mut().unwrap() {
            regime.as_object_mut().unwrap().retain(|key, _| !key.starts_with("power_"));
        }
        let older: CalibrationRecord = serde_json::from_value(json).unwrap();
        assert_eq!((older.power.clone(), older.regimes[0].power_points.len()), (None, 0));
        let kept = older.clone().merged_with(Some(&record));
        assert_eq!(kept.regimes[0].power_points, record.regimes[0].power_points, "a quick run keeps them");
    }

    #[test]
    fn without_a_meter_no_load_is_held_and_the_reason_is_kept() {
        let mut rig = Rig::new(board(), state(), "package");
        rig.governor.handle(at(0.5), Event::Sampled(Box::new(state())));
        let plan = rig.calibrate(PlanKind::Full, |watts| watts);
        assert!(plan.holds.is_empty() && rig.costs().is_none());
        let record = rig.governor.snapshot().calibration.clone().unwrap();
        let why = record.regimes[0].power_reason.clone().unwrap();
        assert!(why.contains("no power rail or energy counter can be read"), "{why}");
        assert!(!rig.paces.contains(&0.05));
    }

    #[test]
    fn a_meter_that_does_not_see_the_load_is_refused_and_said() {
        let mut rig = Rig::new(board(), state(), "package");
        rig.calibrate(PlanKind::Full, |_| P0);
        assert_eq!(rig.costs(), None);
        let record = rig.governor.snapshot().calibration.clone().unwrap();
        assert!(record.regimes[0].power_reason.as_ref().unwrap().contains("does not see the load"));
        assert!(rig.logs.iter().any(|line| line.contains("does not see the load")), "{:?}", rig.logs);
    }

    #[test]
    fn the_power_of_a_card_is_not_that_of_the_cpu_beside_it() {
        let card = metered(&state(), 1.0, None, 30.0, "gpu");
        assert!(reading(&card, Accelerator::Gpu).is_ok());
        assert!(reading(&card, Accelerator::Cpu).unwrap_err().contains("runs on the CPU"));
        let rail = |name: &str, watts| Rail {
            name: name.into(),
            power: Reading::Known(Watts(watts)),
            energy: None,
            read: None,
        };
        let rails = vec![rail("package-0", 20.0), rail("package-0/core", 15.0), rail("package-1", 22.0)];
        let both = BoardState { rails: Reading::Known(rails), ..card };
        let (found, meter) = reading(&both, Accelerator::Cpu).unwrap();
        assert_eq!((found.power, meter.rails.len()), (Watts(42.0), 2));
        let package = metered(&state(), 1.0, None, 30.0, "package");
        assert!(reading(&package, Accelerator::Gpu).unwrap_err().contains("runs on the GPU"));
    }

    #[test]
    fn a_mode_that_was_not_metered_follows_its_clocks_from_what_was_and_says_so_and_takes_no_others_prior() {
        let mut rig = Rig::new(jetson(), jetson_in(0), "module");
        let prior = rig.costs().unwrap();
        assert_eq!(prior.source, PowerSource::Prior);
        rig.calibrate(PlanKind::Full, |watts| watts);
        let costs = rig.costs().unwrap();
        assert_eq!((costs.source, costs.rails), (PowerSource::Measured, Rails::Module), "{:?}", rig.logs);
        let snapshot = rig.governor.snapshot();
        for mode in snapshot.modes.iter().filter(|view| view.mode.id != 0) {
            let carried = snapshot.power_costs(&mode.roofline).unwrap();
            assert_eq!((carried.source, carried.rails), (PowerSource::Measured, Rails::Module));
            assert!(carried.warnings[0].contains("MHz only"), "{:?}", carried.warnings);
            assert!(carried.half_width_ratio > costs.half_width_ratio);
            let (of, slower) = (costs.coefficients, carried.coefficients);
            assert_eq!(slower.byte_j.to_bits(), of.byte_j.to_bits(), "memory has a voltage of its own");
            assert!(slower.idle_w < of.idle_w && slower.static_w < of.static_w, "{of:?} {slower:?}");
            assert!(slower.weight_j <= of.weight_j && slower.flop_j <= of.flop_j, "{of:?} {slower:?}");
            assert!(slower.busy_w < of.busy_w, "cores of fewer cycles draw less");
        }
    }
}
