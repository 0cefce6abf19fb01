//! What NVML tells of the GPU. On a Tegra devfreq and the rails know better, so only the load and the reasons for a
//! lower clock are taken.

use crate::answers::{Answers, File};
use crate::identity::mig_instances;
use crate::nvml::{Nvml, Sample};
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::state::{StateBuilder, detail};
use crate::throttle::{EvidenceKind, ThrottleReport};
use crate::total::GpuPower;
use rooflined_core::board::{MeterRead, Reading, ThermalZone};
use rooflined_core::hardware::Hardware;
use rooflined_core::units::{Hertz, Seconds};

/// What NVML's temperature and power are called among zones and rails.
const SENSOR: &str = "gpu (nvml)";
/// NVML's power is a mean over a second on Ampere (but GA100) and later: nvmlDeviceGetPowerUsage.
const PERIOD: Seconds = Seconds(1.0);
/// A governor takes some tenths of a second to raise the clock under a new load.
const RAMP: Seconds = Seconds(1.0);

/// A power cap holds every card below its highest clock at times. Below this part of the clock that its data sheet states it
/// is what a supply or a fault allows, and no ordinary limit. A guess.
const CAPPED: f64 = 0.6;
/// NVML's reason that a power cap is.
const POWER_CAP: u64 = 0x4;

/// NVML's reasons that are a clock asked for: of applications, and of a display.
const ASKED_FOR: u64 = 0x102;
/// A GPU whose clocks are locked runs at this part of the lock at least.
const LOCKED: f64 = 0.95;

/// NVML's reasons for a clock below the highest. Idle (1), a clock asked for (2, 0x100) and a partner's (0x10) are
/// no throttling.
const REASONS: [(u64, &str, bool); 5] = [
    (POWER_CAP, "power cap", false),
    (0x8, "hardware slowdown", true),
    (0x20, "software thermal slowdown", true),
    (0x40, "hardware thermal slowdown", true),
    (0x80, "power brake", true),
];

/// The first GPU of the library, or of its files.
struct NvmlGpu {
    nvml: Nvml,
    /// The GPU is that of a Tegra, whose other values devfreq has.
    beside_devfreq: bool,
    /// Instances of a GPU that is divided: NVML then tells no load of the whole.
    instances: Vec<String>,
    nominal: Option<Hardware>,
    starved_below: Option<Hertz>,
    /// Since when the GPU is busy and slow without a reason.
    starved_since: Option<Seconds>,
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let mut source = NvmlGpu {
        nvml: context.nvml.clone()?,
        beside_devfreq: context.chip.is_some(),
        instances: mig_instances(context.root),
        nominal: context.nominal.clone(),
        starved_below: context.starved_below,
        starved_since: None,
    };
    match &source.nvml {
        Nvml::Library(_) => plan.add_origin("gpu_processes", "NVML"),
        Nvml::Files { dir } => {
            let processes = format!("{dir}/processes");
            if context.root.path(&processes).is_file() {
                plan.add_origin("gpu_processes", processes);
            }
        }
    }
    plan.read(source.nvml.paths().map(File::of_driver));
    found(move |answers, state| source.read(answers, state))
}

impl NvmlGpu {
    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        let mut sample = self.nvml.finish(answers);
        if let Reading::Absent { .. } = sample.load
            && !self.instances.is_empty()
        {
            let instances = self.instances.join(", ");
            sample.load = Reading::absent(format!(
                "NVML tells no load of a GPU that is divided (MIG): {instances} in /proc/driver/nvidia/capabilities"
            ));
        }
        state.throttle(self.report(&sample, answers.now()));
        detail!(state.gpu_processes = sample.processes.clone(), None);
        if self.beside_devfreq {
            state.set(|state| &mut state.gpu_load, sample.load);
        } else {
            self.all(sample, answers.now(), state);
        }
    }

    fn all(&self, sample: Sample, now: Seconds, state: &mut StateBuilder<'_>) {
        let nominal = self.nominal.as_ref();
        state.set(|state| &mut state.gpu_clock, sample.clock);
        state.set(|state| &mut state.gpu_clock_cap, sample.locked);
        state.set(|state| &mut state.gpu_load, sample.load);
        state.set(|state| &mut state.tpc_mask, Reading::absent("no mask of gated clusters on this GPU"));
        state.set(
            |state| &mut state.sm_online,
            nominal.map_or_else(
                || Reading::absent("the hardware registry has no entry of this machine"),
                |nominal| Reading::Known(nominal.sm),
            ),
        );
        state.set(|state| &mut state.memory_clock, sample.memory_clock);
        state.set(
            |state| &mut state.memory_clock_cap,
            nominal.and_then(|nominal| nominal.memory_clock).map_or_else(
                || {
                    Reading::absent(
                        "NVML reports no cap on the memory clock, and the data sheet no highest one",
                    )
                },
                Reading::Known,
            ),
        );
        state.gpu_power = Some(GpuPower {
            meter: SENSOR,
            power: sample.power,
            read: MeterRead { at: now, since: None, period: Some(PERIOD) },
        });
        if let Reading::Known(temperature) = sample.temperature {
            let zone = ThermalZone { name: SENSOR.into(), temperature: Reading::Known(temperature) };
            state.temperatures(Reading::Known(vec![zone]));
        }
    }

    fn report(&mut self, sample: &Sample, now: Seconds) -> ThrottleReport {
        let mut report = ThrottleReport::of(EvidenceKind::Reason);
        let reasons = report.value_of(sample.reasons.clone()).unwrap_or(0);
        for (bit, name, active) in REASONS.into_iter().filter(|(bit, ..)| reasons & bit != 0) {
            let held = (bit == POWER_CAP).then(|| self.held_down(sample)).flatten();
            let by =
                held.map_or_else(String::new, |clock| format!(", and the GPU runs at {clock} under load"));
            report
                .add(active || held.is_some(), format!("NVML names as reason for a lower clock: {name}{by}"));
        }
        let starved = starved(self.starved_below, sample);
        self.starved_since = starved.as_ref().and(self.starved_since.or(Some(now)));
        let lasting = self.starved_since.is_some_and(|since| now - since >= RAMP);
        if let Some(evidence) = starved.filter(|_| lasting) {
            report.add(true, evidence);
        }
        report
    }

    /// The clock of a busy GPU that is far below its data sheet's.
    fn held_down(&self, sample: &Sample) -> Option<Hertz> {
        let (clock, stated) = (*sample.clock.known()?, self.nominal.as_ref()?.gpu_clock);
        let busy = *sample.load.known()? >= 0.5;
        (busy && clock.0 < CAPPED * stated.0).then_some(clock)
    }
}

/// A supply that negotiated too little power holds the clock at about 510 MHz, and no reason is named for it.
fn starved(below: Option<Hertz>, sample: &Sample) -> Option<String> {
    let (below, clock) = (below?, *sample.clock.known()?);
    let busy = *sample.load.known()? >= 0.5;
    // Clocks that somebody locked are no fault of the supply, and neither are those that a program asked for.
    let asked = sample.locked.known().is_some_and(|locked| clock.0 >= LOCKED * locked.0);
    let unnamed = sample.reasons.known().is_some_and(|reasons| {
        !asked && reasons & ASKED_FOR == 0 && REASONS.iter().all(|(bit, ..)| reasons & bit == 0)
    });
    (busy && unnamed && clock.0 < below.0).then(|| {
        format!(
            "the GPU runs at {clock} under load and NVML names no reason: \
             the supply may have negotiated too little power; unplug it from the wall for a minute"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::units::{Celsius, Watts};

    /// A busy GB10 at this clock, in MHz.
    fn busy(clock: f64) -> Sample {
        Sample {
            temperature: Reading::Known(Celsius(60.0)),
            power: Reading::Known(Watts(20.0)),
            load: Reading::Known(0.96),
            clock: Reading::Known(Hertz(clock * 1e6)),
            memory_clock: Reading::absent("none"),
            locked: Reading::absent("no lock"),
            reasons: Reading::Known(0),
            processes: Reading::Known(Vec::new()),
        }
    }

    #[test]
    fn a_clock_that_a_supply_holds_down_is_told_from_one_that_somebody_locked() {
        let below = Some(Hertz(600e6));
        assert!(starved(below, &busy(513.0)).unwrap().contains("supply"));
        assert_eq!(starved(None, &busy(513.0)), None, "of a GPU that is not known for it");
        let locked_at = |lock: f64| Sample { locked: Reading::Known(Hertz(lock * 1e6)), ..busy(513.0) };
        assert_eq!(starved(below, &locked_at(520.0)), None, "the lock explains the clock");
        assert!(starved(below, &locked_at(1800.0)).is_some(), "a lock far above it does not");
        assert_eq!(starved(below, &Sample { reasons: Reading::Known(0x100), ..busy(513.0) }), None);
        assert_eq!(starved(below, &Sample { reasons: Reading::Known(POWER_CAP), ..busy(513.0) }), None);
        assert_eq!(starved(below, &Sample { reasons: Reading::absent("none"), ..busy(513.0) }), None);
        assert_eq!(starved(below, &Sample { load: Reading::Known(0.1), ..busy(513.0) }), None);
        assert_eq!(starved(below, &busy(2400.0)), None);
    }
}
