//! What sources read, by the field that it is for, and the state that it makes together.

use std::collections::HashSet;

use super::answers::Answers;
use super::detail::Detail;
use super::hidden::Hidden;
use super::modes::{MemoryLimits, ModeRule};
use super::names::{Named, distinguished};
use super::rail::Metered;
use super::throttle::{self, ThrottleReport};
use super::total::{self, GpuPower};
use rooflined_core::board::{BoardState, Load, Memory, MeterRead, Pressure, Rail, Reading, ThermalZone};
use rooflined_core::units::{Hertz, Seconds, Watts};

/// A value for a field. Where two sources tell one value, the first that knows it counts; lists and evidence are put
/// together.
pub(super) enum Update {
    CoresOnline {
        /// To this process.
        granted: Reading<u32>,
        /// Of the machine, which tells modes apart; no field shows it.
        of_machine: Option<u32>,
    },
    CpuClocks(Reading<Vec<Hertz>>),
    CpuClockCap(Reading<Hertz>),
    GpuClock(Reading<Hertz>),
    GpuClockCap(Reading<Hertz>),
    GpuLoad(Reading<f64>),
    TpcMask(Reading<u32>),
    SmOnline(Reading<u32>),
    MemoryClock(Reading<Hertz>),
    MemoryClockCap(Reading<Hertz>),
    /// For telling modes apart; no field shows it.
    MemoryLimits(MemoryLimits),
    Temperatures(Reading<Vec<ThermalZone>>),
    /// Of meters that a rule of `total` may add up.
    Rails(Vec<Metered>),
    /// Of a GPU alone: a rail, and the total where the machine has no better one.
    GpuPower {
        meter: &'static str,
        power: Reading<Watts>,
        read: MeterRead,
    },
    Memory(Reading<Memory>),
    Load(Reading<Load>),
    Pressure(Reading<Pressure>),
    Throttle(ThrottleReport),
    /// The number of the mode that was entered last.
    ModeEntered(u32),
    /// What no ceiling follows from; `read_at` where it is not read at every sample.
    Detail {
        detail: Detail,
        read_at: Option<Seconds>,
    },
}

impl Detail {
    /// The update of what is read at every sample.
    pub fn now(self) -> Update {
        Update::Detail { detail: self, read_at: None }
    }

    /// The update of what was read when `path` was.
    pub fn read_with(self, path: &str, answers: &Answers<'_>) -> Update {
        Update::Detail { detail: self, read_at: Some(answers.read_at(path)) }
    }
}

/// The state of one sample, put together from what its sources have read so far.
pub(super) struct StateBuilder<'a> {
    state: BoardState,
    hidden: &'a Hidden,
    rails: Vec<Metered>,
    gpu_power: Option<GpuPower>,
    throttle_reports: Vec<ThrottleReport>,
    memory_limits: MemoryLimits,
    mode_entered: Option<u32>,
    machine_cores: Option<u32>,
}

const NO_MEMORY_CLOCK: &str = "no memory clock: /sys/class/devfreq has no memory controller (dmc, *ddr*), and no GPU driver reports one";

impl<'a> StateBuilder<'a> {
    /// Nothing read yet. `no_gpu` is why there is no GPU, where there is none.
    pub fn new(now: Seconds, no_gpu: &str, hidden: &'a Hidden) -> Self {
        let state = BoardState {
            memory_clock: hidden.explain(Reading::absent(NO_MEMORY_CLOCK)),
            memory_clock_cap: hidden.explain(Reading::absent(NO_MEMORY_CLOCK)),
            ..BoardState::unknown(now, no_gpu)
        };
        Self {
            state,
            hidden,
            rails: Vec::new(),
            gpu_power: None,
            throttle_reports: Vec::new(),
            memory_limits: MemoryLimits::default(),
            mode_entered: None,
            machine_cores: None,
        }
    }

    pub fn apply(&mut self, update: Update) {
        let (state, hidden) = (&mut self.state, self.hidden);
        match update {
            Update::CoresOnline { granted, of_machine } => {
                settle(&mut state.cores_online, hidden.explain(granted));
                self.machine_cores = of_machine;
            }
            Update::CpuClocks(reading) => settle(&mut state.cpu_clocks, hidden.explain(reading)),
            Update::CpuClockCap(reading) => settle(&mut state.cpu_clock_cap, hidden.explain(reading)),
            Update::GpuClock(reading) => settle(&mut state.gpu_clock, hidden.explain(reading)),
            Update::GpuClockCap(reading) => settle(&mut state.gpu_clock_cap, hidden.explain(reading)),
            Update::GpuLoad(reading) => settle(&mut state.gpu_load, hidden.explain(reading)),
            Update::TpcMask(reading) => settle(&mut state.tpc_mask, hidden.explain(reading)),
            Update::SmOnline(reading) => settle(&mut state.sm_online, hidden.explain(reading)),
            Update::MemoryClock(reading) => settle(&mut state.memory_clock, hidden.explain(reading)),
            Update::MemoryClockCap(reading) => settle(&mut state.memory_clock_cap, hidden.explain(reading)),
            Update::MemoryLimits(reading) => self.memory_limits = reading,
            Update::Temperatures(Reading::Known(zones)) => match &mut state.temperatures {
                Reading::Known(all) => all.extend(zones),
                unknown => *unknown = Reading::Known(zones),
            },
            Update::Temperatures(reading) => settle(&mut state.temperatures, hidden.explain(reading)),
            Update::Rails(rails) => self.rails.extend(rails),
            Update::GpuPower { meter, power, read } => self.gpu_power = Some(GpuPower { meter, power, read }),
            Update::Memory(reading) => settle(&mut state.memory, hidden.explain(reading)),
            Update::Load(reading) => settle(&mut state.load, hidden.explain(reading)),
            Update::Pressure(reading) => settle(&mut state.pressure, hidden.explain(reading)),
            Update::Throttle(report) => self.throttle_reports.push(report),
            Update::ModeEntered(id) => self.mode_entered = Some(id),
            Update::Detail { detail, read_at } => detail.settle(&mut state.details, read_at, hidden),
        }
    }

    /// The state, with what only follows from several sources.
    pub fn finish(mut self, modes: &ModeRule) -> BoardState {
        let hidden = self.hidden;
        self.state.throttle = hidden.explain(throttle::judge(self.throttle_reports));
        keep_apart(
            &mut self.rails,
            |rail| &rail.rail.name,
            |_, rail| rail.place.clone(),
            |rail, name| rail.rail.name = name,
        );
        // Zones of one source have names of their own already; of several sources those of the first keep theirs.
        if let Reading::Known(zones) = &mut self.state.temperatures {
            keep_apart(zones, |zone| &zone.name, |index, _| index.to_string(), |zone, name| zone.name = name);
        }
        let total = total::total(&self.rails, self.gpu_power.as_ref(), modes.chip);
        self.state.total_power = hidden.explain(total);
        self.state.rails = hidden.explain(rails(self.rails, self.gpu_power));
        modes.judge(&mut self.state, self.memory_limits, (self.mode_entered, self.machine_cores));
        self.state
    }
}

fn settle<T>(field: &mut Reading<T>, reading: Reading<T>) {
    if field.known().is_none() {
        *field = reading;
    }
}

/// Gives sensors of one name a name each.
fn keep_apart<T>(
    sensors: &mut [T],
    name: impl Fn(&T) -> &str,
    place: impl Fn(usize, &T) -> String,
    rename: impl Fn(&mut T, String),
) {
    let mut seen = HashSet::with_capacity(sensors.len());
    if sensors.iter().all(|sensor| seen.insert(name(sensor))) {
        return;
    }
    let places: Vec<String> =
        sensors.iter().enumerate().map(|(index, sensor)| place(index, sensor)).collect();
    let named: Vec<Named<'_>> =
        sensors.iter().zip(&places).map(|(sensor, place)| Named { name: name(sensor), place }).collect();
    let keys = distinguished(&named);
    for (sensor, key) in sensors.iter_mut().zip(keys) {
        if let Some(key) = key {
            rename(sensor, key);
        }
    }
}

fn rails(metered: Vec<Metered>, gpu: Option<GpuPower>) -> Reading<Vec<Rail>> {
    let gpu = gpu.and_then(|GpuPower { meter, power, read }| {
        power.known()?;
        Some(Rail { name: meter.into(), power, energy: None, read: Some(read) })
    });
    let rails: Vec<Rail> = metered.into_iter().map(|metered| metered.rail).chain(gpu).collect();
    if rails.is_empty() { Reading::absent(total::NO_METER) } else { Reading::Known(rails) }
}
