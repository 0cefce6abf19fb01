//! What the board does with the load that it has and the caps that it is given: one pure step in time.
//!
//! Governors ramp the clocks, power follows `P0 + activity x f x V²` with the activity of the accelerator's units additive in
//! bytes, operations and weights (see the truth in `probe`), the temperature is a first-order system, and what is
//! too hot or draws too much is slowed down. Not a model of silicon: what matters is that every reading moves as it
//! does on a board, in the right order and to about the right value.

use super::spec::Spec;

/// Seconds from the lowest to the highest GPU clock when work arrives.
const RAMP: f64 = 0.3;
/// Seconds back to the lowest clock once there is none.
const DECAY: f64 = 0.5;
/// Activity from which a governor sees work.
const BUSY: f64 = 0.02;
/// Seconds without work after which a GPU that can be switched off is.
const GATED_AFTER: f64 = 3.0;
/// Kelvin below the limit at which slowing down ends.
const HYSTERESIS: f64 = 2.0;
/// How fast the GPU is slowed down, and recovers, per second.
const THROTTLE_RATE: f64 = 0.15;
/// Least part of the clock that slowing down leaves.
const THROTTLE_FLOOR: f64 = 0.5;
/// Over-current events a second, at most.
const EVENTS: f64 = 30.0;
/// Each costs about a millisecond at half the clock.
const EVENT_COST: f64 = 0.0005;
/// The room that the idle temperature belongs to, in °C.
pub(super) const ROOM: f64 = 27.0;
/// Longest step that is computed at once.
const LONGEST: f64 = 0.1;

/// What the accelerator does: parts of the most it could, 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Load {
    pub gpu: f64,
    pub memory: f64,
    pub cpu: f64,
}

/// The caps as the files have them. Clocks in Hz.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Caps {
    pub gpu_max: f64,
    pub gpu_min: f64,
    pub emc_max: f64,
    pub sm: u32,
    pub cpu_max: f64,
    pub cores: u32,
    /// Clock that the firmware holds the GPU at, as with a supply that gives too little; infinite where it does not.
    pub held: f64,
    /// °C of the room.
    pub ambient: f64,
}

/// The board at one instant. Clocks in Hz, powers in W.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct State {
    pub gpu: f64,
    /// The GPU is switched off.
    pub gated: bool,
    pub emc: f64,
    pub cpu: f64,
    /// Junction, °C.
    pub temperature: f64,
    /// Part of the GPU clock that heat leaves.
    pub throttle: f64,
    /// Events counted, as a number with the part of the next.
    pub over_current: f64,
    pub idle_for: f64,
    pub load: Load,
    pub idle_power: f64,
    pub gpu_power: f64,
    pub memory_power: f64,
    pub cpu_power: f64,
    /// J of the GPU and its memory.
    pub energy: f64,
    /// Seconds that a CPU was busy and idle.
    pub cpu_busy: f64,
    pub cpu_idle: f64,
    pub load_average: f64,
}

impl State {
    /// A board that has been idle for long.
    pub fn cold(spec: &Spec, caps: &Caps) -> Self {
        let mut state = Self {
            gpu: caps.gpu_min,
            gated: false,
            emc: (spec.emc_idle as f64).min(caps.emc_max),
            cpu: cpu_idle(spec),
            temperature: spec.thermal.idle + caps.ambient - ROOM,
            throttle: 1.0,
            over_current: 0.0,
            idle_for: 0.0,
            load: Load::default(),
            idle_power: spec.power.idle,
            gpu_power: 0.0,
            memory_power: 0.0,
            cpu_power: 0.0,
            energy: 0.0,
            cpu_busy: 40.0,
            cpu_idle: 4000.0,
            load_average: 0.05,
        };
        powers(spec, caps, &mut state);
        state
    }

    pub fn total_power(&self) -> f64 {
        self.idle_power + self.gpu_power + self.memory_power + self.cpu_power
    }

    /// Whether heat slows the GPU down right now.
    pub fn throttling(&self) -> bool {
        self.throttle < 0.999
    }

    /// The same to a reader as `other`: nothing that files show will change without a cause.
    pub fn settled(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64, by: f64| (a - b).abs() <= by;
        self.load == Load::default()
            && self.gpu == other.gpu
            && self.emc == other.emc
            && self.gated == other.gated
            && self.throttle == other.throttle
            && near(self.temperature, other.temperature, 0.02)
            && near(self.total_power(), other.total_power(), 0.001)
    }
}

fn cpu_idle(spec: &Spec) -> f64 {
    let lowest = spec.clusters.first().map_or(0, |cluster| cluster.clocks.down(729_600));
    lowest as f64 * 1e3
}

/// The board `dt` seconds later.
pub(super) fn step(spec: &Spec, caps: &Caps, load: Load, state: &State, dt: f64) -> State {
    let mut next = *state;
    let mut left = if dt.is_finite() { dt.clamp(0.0, 600.0) } else { 0.0 };
    while left > 0.0 {
        let slice = left.min(LONGEST);
        slice_of(spec, caps, load, &mut next, slice);
        left -= slice;
    }
    next
}

fn slice_of(spec: &Spec, caps: &Caps, load: Load, state: &mut State, dt: f64) {
    let clamped = |part: f64| if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
    let load = Load { gpu: clamped(load.gpu), memory: clamped(load.memory), cpu: clamped(load.cpu) };
    state.load = load;
    let busy = load.gpu > BUSY || load.memory > BUSY;
    state.idle_for = if busy { 0.0 } else { state.idle_for + dt };
    throttle(spec, caps, state, dt);
    state.gated = spec.gates_idle_gpu && state.idle_for > GATED_AFTER;

    let floor = (spec.gpu.min as f64).max(caps.gpu_min);
    let top = (caps.gpu_max.min(spec.gpu_boost as f64) * state.throttle).min(caps.held).max(floor);
    let span = spec.gpu_boost as f64 - spec.gpu.min as f64;
    let wanted = if busy { top } else { floor };
    state.gpu =
        towards(state.gpu, wanted, if wanted > state.gpu { span * dt / RAMP } else { span * dt / DECAY });
    // A cap takes effect at once.
    state.gpu = state.gpu.min(top.max(floor));

    let emc_idle = (spec.emc_idle as f64).min(caps.emc_max);
    state.emc = if load.memory > BUSY || load.gpu > BUSY { caps.emc_max } else { emc_idle };
    let cpu_top = caps.cpu_max.max(1.0);
    state.cpu = if busy || load.cpu > BUSY { cpu_top } else { cpu_idle(spec).min(cpu_top) };

    powers(spec, caps, state);
    let ambient = spec.thermal.idle + caps.ambient - ROOM;
    let settles = ambient + spec.thermal.resistance * (state.total_power() - spec.power.idle).max(0.0);
    state.temperature += (settles - state.temperature) * (1.0 - (-dt / spec.thermal.time_constant).exp());
    state.energy += (state.gpu_power + state.memory_power + state.idle_power) * dt;
    let cpu = load.cpu.max(0.005);
    state.cpu_busy += cpu * dt;
    state.cpu_idle += (1.0 - cpu) * dt;
    let running = load.cpu * f64::from(caps.cores);
    state.load_average += (running - state.load_average) * (1.0 - (-dt / 60.0).exp());
}

/// Heat takes clock away and gives it back; current peaks are counted.
fn throttle(spec: &Spec, caps: &Caps, state: &mut State, dt: f64) {
    let limit = spec.thermal.throttle;
    if state.temperature > limit {
        state.throttle = (state.throttle - THROTTLE_RATE * dt).max(THROTTLE_FLOOR);
    } else if state.temperature < limit - HYSTERESIS {
        state.throttle = (state.throttle + THROTTLE_RATE * dt).min(1.0);
    }
    let excess = state.total_power() / spec.power.over_current - 1.0;
    let ramped = state.gpu >= 0.9 * caps.gpu_max.min(spec.gpu_boost as f64);
    if excess > 0.0 && ramped {
        state.over_current += EVENTS * (excess * 20.0).min(1.0) * dt;
    }
}

/// Part of the clock that the peaks of the last second cost, at most a few percent: what a reader of the clock never
/// sees.
pub(super) fn lost_to_peaks(events_per_s: f64) -> f64 {
    (events_per_s.max(0.0) * EVENT_COST).min(0.05)
}

fn powers(spec: &Spec, caps: &Caps, state: &mut State) {
    let part = f64::from(caps.sm) / f64::from(spec.sm.max(1));
    let clock = state.gpu / spec.gpu_boost as f64;
    let cap = caps.gpu_max.min(spec.gpu_boost as f64) / spec.gpu_boost as f64;
    let cores = f64::from(caps.cores) / f64::from(spec.cpus().max(1));
    let cpu_clock = state.cpu / (spec.cpu_max() as f64 * 1e3);
    let power = &spec.power;
    state.idle_power = power.idle + power.idle_uncapped * part * cap;
    state.gpu_power = power.gpu * state.load.gpu * part * clock * voltage(clock).powi(2);
    state.memory_power = power.memory * state.load.memory * state.emc / spec.emc_max as f64;
    state.cpu_power = power.cpu * state.load.cpu * cores * cpu_clock * voltage(cpu_clock).powi(2);
}

/// Volts relative to those at the highest clock.
fn voltage(clock: f64) -> f64 {
    0.65 + 0.35 * clock
}

fn towards(from: f64, to: f64, by: f64) -> f64 {
    if from < to { (from + by).min(to) } else { (from - by).max(to) }
}

#[cfg(test)]
mod tests {
    use super::super::conf::Model;
    use super::*;

    fn spec(key: &str) -> &'static Spec {
        Spec::of(key)
    }

    fn caps(spec: &Spec, mode: Option<&Model>) -> Caps {
        let or =
            |param: &str, max: u64| mode.and_then(|mode| mode.cap(param, "MAX_FREQ")).unwrap_or(max) as f64;
        let settings = || mode.into_iter().flat_map(|mode| &mode.settings);
        let mask = settings().find(|[_, arg, _]| arg == "TPC_PG_MASK" || arg == "GPU_PG_MASK");
        let cores = settings().filter(|[param, _, value]| param == "CPU_ONLINE" && value == "1").count();
        Caps {
            gpu_max: or("GPU", spec.gpu.max),
            gpu_min: spec.gpu.min as f64,
            emc_max: or("EMC", spec.emc_max),
            sm: mask.map_or(spec.sm, |[_, _, mask]| spec.sm_online(mask.parse().unwrap())),
            cpu_max: or("CPU", spec.cpu_max()) * 1e3,
            cores: mode.map_or(spec.cpus(), |_| cores as u32),
            held: f64::INFINITY,
            ambient: ROOM,
        }
    }

    fn mode(spec: &'static Spec, name: &str) -> Caps {
        caps(spec, Some(spec.conf().models.iter().find(|mode| mode.name == name).unwrap()))
    }

    const FULL: Load = Load { gpu: 1.0, memory: 1.0, cpu: 0.1 };

    fn after(spec: &Spec, caps: &Caps, load: Load, seconds: f64) -> State {
        step(spec, caps, load, &State::cold(spec, caps), seconds)
    }

    #[test]
    fn a_cold_gpu_takes_a_third_of_a_second_to_its_cap_and_never_passes_it() {
        let nano = spec("jetson-orin-nano-8gb-super");
        let caps = mode(nano, "25W");
        let mut state = State::cold(nano, &caps);
        assert_eq!(state.gpu, 306e6);
        for _ in 0..10 {
            state = step(nano, &caps, FULL, &state, 0.01);
            assert!(state.gpu <= 918e6);
        }
        assert!((400e6..700e6).contains(&state.gpu), "{}", state.gpu);
        assert_eq!(step(nano, &caps, FULL, &state, 0.25).gpu, 918e6);
        assert_eq!(state.emc, 3199e6, "memory is up at once");
        let idle = step(nano, &caps, Load::default(), &state, 1.0);
        assert_eq!((idle.gpu, idle.emc), (306e6, 2133e6));
    }

    #[test]
    fn lowering_a_cap_lowers_the_clock_at_once() {
        let nano = spec("jetson-orin-nano-8gb-super");
        let hot = after(nano, &mode(nano, "25W"), FULL, 1.0);
        let lower = step(nano, &mode(nano, "15W"), FULL, &hot, 0.01);
        assert_eq!((lower.gpu, lower.emc), (612e6, 2133e6));
    }

    /// Totals that owners published: idle and under load.
    #[test]
    fn power_meets_the_published_figures() {
        let decode = |gpu, memory| Load { gpu, memory, cpu: 0.12 };
        for (key, name, load, low, high) in [
            ("jetson-orin-nano-8gb-super", "25W", Load::default(), 4.4, 4.9),
            ("jetson-orin-nano-8gb-super", "25W", decode(0.6, 0.8), 9.0, 16.0),
            ("jetson-agx-orin-64gb", "MODE_30W", Load::default(), 8.4, 9.2),
            ("jetson-agx-orin-64gb", "MAXN", Load::default(), 10.8, 11.6),
            ("jetson-agx-orin-64gb", "MAXN", decode(1.0, 1.0), 44.0, 51.0),
            ("jetson-agx-orin-64gb", "MODE_30W", decode(1.0, 0.45), 16.0, 20.0),
            ("jetson-agx-thor-t5000", "120W", Load::default(), 19.3, 20.3),
        ] {
            let spec = spec(key);
            let power = after(spec, &mode(spec, name), load, 5.0).total_power();
            assert!((low..=high).contains(&power), "{key} {name}: {power}");
        }
        let gb10 = spec("gb10");
        let caps = caps(gb10, None);
        assert!((3.5..4.5).contains(&after(gb10, &caps, Load::default(), 5.0).total_power()));
        let decode = Load { gpu: 0.15, memory: 1.0, cpu: 0.0 };
        assert!((45.0..55.0).contains(&after(gb10, &caps, decode, 5.0).total_power()));
    }

    #[test]
    fn heat_throttles_and_cooling_down_ends_it() {
        let nano = spec("jetson-orin-nano-8gb-super");
        let mut caps = mode(nano, "25W");
        assert!(!after(nano, &caps, FULL, 300.0).throttling(), "not in an ordinary room");
        caps.ambient = 62.0;
        let hot = after(nano, &caps, FULL, 60.0);
        assert!(hot.throttling() && hot.gpu < 900e6, "{hot:?}");
        assert!(hot.temperature < 104.5, "slowing down holds it: {}", hot.temperature);
        caps.ambient = ROOM;
        let cool = step(nano, &caps, Load::default(), &hot, 60.0);
        assert!(!cool.throttling());
        assert!((cool.temperature - nano.thermal.idle).abs() < 2.0);
    }

    #[test]
    fn current_peaks_are_counted_in_maxn_super_alone() {
        let nano = spec("jetson-orin-nano-8gb-super");
        let events = |name| after(nano, &mode(nano, name), FULL, 10.0).over_current;
        assert_eq!(events("25W"), 0.0);
        let in_ten_seconds = events("MAXN_SUPER");
        assert!((10.0..=300.0).contains(&in_ten_seconds), "{in_ten_seconds}");
        assert!(lost_to_peaks(30.0) < 0.02);
    }

    #[test]
    fn only_thor_switches_its_gpu_off() {
        let thor = spec("jetson-agx-thor-t5000");
        assert!(after(thor, &caps(thor, None), Load::default(), 5.0).gated);
        let agx = spec("jetson-agx-orin-64gb");
        assert!(!after(agx, &caps(agx, None), Load::default(), 5.0).gated);
    }

    #[test]
    fn the_same_steps_give_the_same_board_and_nonsense_gives_no_nan() {
        let agx = spec("jetson-agx-orin-64gb");
        let caps = mode(agx, "MAXN");
        assert_eq!(after(agx, &caps, FULL, 12.3), after(agx, &caps, FULL, 12.3));
        let nonsense = Load { gpu: f64::NAN, memory: f64::INFINITY, cpu: -3.0 };
        let state = after(agx, &caps, nonsense, f64::NAN);
        let state = step(agx, &caps, nonsense, &state, 3.0);
        assert!(state.total_power().is_finite() && state.temperature.is_finite());
    }
}
