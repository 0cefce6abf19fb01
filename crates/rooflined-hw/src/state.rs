//! The state that sources make together: each sets the fields that it reads.

use super::hidden::Hidden;
use super::modes::{MemoryLimits, ModeRule};
use super::names::distinguish;
use super::rail::Metered;
use super::throttle::{self, ThrottleReport};
use super::total::{self, GpuPower};
use rooflined_core::board::details::Details;
use rooflined_core::board::{BoardState, Rail, Reading, ThermalZone};
use rooflined_core::units::Seconds;

/// The state of one sample, put together from what its sources have read so far.
pub(super) struct StateBuilder<'a> {
    state: BoardState,
    hidden: &'a Hidden,
    rails: Vec<Metered>,
    pub gpu_power: Option<GpuPower>,
    throttle_reports: Vec<ThrottleReport>,
    pub memory_limits: MemoryLimits,
    pub mode_entered: Option<u32>,
    /// Cores online of the machine, which tell modes apart; no field shows them.
    pub machine_cores: Option<u32>,
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

    /// Sets a field of the state that has no value yet.
    pub fn set<T>(&mut self, field: impl FnOnce(&mut BoardState) -> &mut Reading<T>, reading: Reading<T>) {
        settle(field(&mut self.state), self.hidden.explain(reading));
    }

    /// Sets a field of what people watch that has no value yet; `read_at` is `None` for what was read just now.
    pub fn detail<T>(
        &mut self,
        name: &'static str,
        field: impl Fn(&mut Details) -> &mut Reading<T>,
        reading: Reading<T>,
        read_at: Option<Seconds>,
    ) {
        let details = &mut self.state.details;
        if field(details).known().is_none() {
            if let Some(at) = read_at {
                details.read_at.insert(name, at);
            }
            *field(details) = self.hidden.explain(reading);
        }
    }

    /// Adds zones.
    pub fn temperatures(&mut self, reading: Reading<Vec<ThermalZone>>) {
        match (&mut self.state.temperatures, reading) {
            (Reading::Known(all), Reading::Known(zones)) => all.extend(zones),
            (unknown, Reading::Known(zones)) => *unknown = Reading::Known(zones),
            (field, reading) => settle(field, self.hidden.explain(reading)),
        }
    }

    pub fn rails(&mut self, rails: impl Iterator<Item = Metered>) {
        self.rails.extend(rails);
    }

    pub fn throttle(&mut self, report: ThrottleReport) {
        self.throttle_reports.push(report);
    }

    /// The state, with what only follows from several sources.
    pub fn finish(mut self, modes: &ModeRule) -> BoardState {
        let hidden = self.hidden;
        self.state.throttle = hidden.explain(throttle::judge(self.throttle_reports));
        distinguish(&mut self.rails, |rail| &mut rail.rail.name, |_, rail| rail.place.clone());
        // Zones of one source have names of their own already; of several sources those of the first keep theirs.
        if let Reading::Known(zones) = &mut self.state.temperatures {
            distinguish(zones, |zone| &mut zone.name, |index, _| index.to_string());
        }
        let total = total::total(&self.rails, self.gpu_power.as_ref(), modes.chip);
        self.state.total_power = hidden.explain(total);
        self.state.rails = hidden.explain(rails(self.rails, self.gpu_power));
        modes.judge(&mut self.state, self.memory_limits, (self.mode_entered, self.machine_cores));
        self.state
    }
}

/// Sets a field of what people watch: its name is that under which its age is kept.
macro_rules! detail {
    ($state:ident.$field:ident = $reading:expr, $read_at:expr) => {
        $state.detail(stringify!($field), |details| &mut details.$field, $reading, $read_at)
    };
}
pub(super) use detail;

fn settle<T>(field: &mut Reading<T>, reading: Reading<T>) {
    if field.known().is_none() {
        *field = reading;
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
