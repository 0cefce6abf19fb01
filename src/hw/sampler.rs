//! The machine as it is now.

use std::time::Instant;

use super::discover::{Discovered, THERMAL};
use super::file::{Kept, ReadError};
use super::nvml::{self, Nvml};
use super::patience::{Answer, Patience};
use super::power::{self, Count};
use super::tegra::{MemoryLimits, TegraFiles};
use super::throttle::Watch;
use super::{ONLINE, STAT, SysRoot, modes, parsed, total};
use crate::board::active::{Live, active_mode};
use crate::board::parse::{self, CpuTimes, Temperature};
use crate::board::{
    BoardState, Load, Memory, MeterRead, Pressure, Rail, Reading, ThermalZone, TotalPower, nvpmodel,
};
use crate::units::{Hertz, Seconds};

/// Reads one machine again and again: keeps the descriptors, and the counters of the sample before.
pub struct Sampler {
    discovered: Discovered,
    online: Kept,
    stat: Kept,
    meminfo: Kept,
    loadavg: Kept,
    memory_pressure: Kept,
    cpu_pressure: Kept,
    throttle: Watch,
    slow: Patience,
    cpu_times: Option<CpuTimes>,
    energies: Vec<Option<Count>>,
}

/// Reads the machine once more. `now` is the CLOCK_BOOTTIME of the sample, see [`super::boot_time`].
#[must_use]
pub fn read_state(sampler: &mut Sampler, now: Seconds) -> BoardState {
    sampler.sample(now)
}

impl Sampler {
    /// Prepares to read what was discovered under `root`. Reads nothing yet.
    #[must_use]
    pub fn new(root: &SysRoot, discovered: Discovered) -> Self {
        let direct = |path: &str| Kept::direct(root, path);
        // In the order in which `sample` takes the answers.
        let slow = (discovered.policies.iter().map(|policy| format!("{}/scaling_cur_freq", policy.dir)))
            .chain(discovered.policies.iter().map(|policy| format!("{}/scaling_max_freq", policy.dir)))
            .chain(discovered.zones.iter().map(|zone| zone.path.clone()))
            .chain(
                discovered
                    .rails
                    .iter()
                    .flat_map(|rail| [Some(rail.path.clone()), rail.current.clone()])
                    .flatten(),
            )
            .chain(discovered.alarms.iter().map(|alarm| alarm.path.clone()))
            .chain(discovered.over_current.iter().map(|counter| counter.path.clone()))
            .chain(discovered.tegra.iter().flat_map(TegraFiles::paths))
            .chain(discovered.nvml.iter().flat_map(Nvml::paths))
            .chain(has_modes(&discovered).then(|| modes::STATUS.to_owned()))
            .map(|path| Kept::patient(root, path).limited(4096))
            .collect();
        Self {
            online: direct(ONLINE),
            // Only the first line is needed; the interrupt counters after it are long.
            stat: direct(STAT).limited(16 << 10),
            meminfo: direct("/proc/meminfo"),
            loadavg: direct("/proc/loadavg"),
            memory_pressure: direct("/proc/pressure/memory"),
            cpu_pressure: direct("/proc/pressure/cpu"),
            throttle: Watch::new(
                discovered.throttle_counters.iter().map(|path| direct(path)).collect(),
                discovered.over_current.len(),
            ),
            slow: Patience::new(slow),
            cpu_times: None,
            energies: vec![None; discovered.rails.len()],
            discovered,
        }
    }

    /// Sources that have stopped answering; each keeps one helper thread waiting.
    #[must_use]
    pub fn stuck_sources(&self) -> usize {
        self.slow.stuck()
    }

    /// Reads everything once. Takes as long as the sensors need, at most a fifth of a second.
    pub fn sample(&mut self, now: Seconds) -> BoardState {
        let start = Instant::now();
        let found = &self.discovered;
        if let Some(nvml) = &found.nvml {
            nvml.begin();
        }
        let mut slow = self.slow.read_all().into_iter();
        let mut take = |count: usize| -> Vec<Answer> { slow.by_ref().take(count).collect() };
        let (policies, zones) = (found.policies.len(), found.zones.len());
        let (current, caps) = (take(policies), take(policies));
        let temperatures = take(zones);
        let rails = found.rails.iter().map(|rail| take(1 + usize::from(rail.current.is_some()))).collect();
        let (alarms, over_current) = (take(found.alarms.len()), take(found.over_current.len()));
        let tegra = found.tegra.as_ref().map(|tegra| tegra.state(&mut slow, found.nominal.as_ref()));
        let nvml =
            found.nvml.as_ref().map(|nvml| nvml.finish(slow.by_ref().take(nvml.paths().count()).collect()));
        let status = slow.next();

        let stat = self.stat.read();
        let online = online(self.online.read(), || match &stat {
            Ok(text) => Ok(text.clone()),
            Err(_) => Err(ReadError::Missing { path: STAT.into() }),
        });
        let throttle = self.throttle.judge(&self.discovered, alarms, over_current, nvml.as_ref(), now);
        let mut state = BoardState {
            cpu_clocks: self.clocks(&online, current),
            cpu_clock_cap: self.cap(caps),
            cores_online: online.map(|cpus| u32::try_from(cpus.len()).unwrap_or(u32::MAX)),
            temperatures: self.temperatures(temperatures),
            rails: self.rails(rails, |read_at| now + Seconds((read_at - start).as_secs_f64())),
            memory: self.memory(),
            load: self.load(stat),
            pressure: self.pressure(),
            throttle,
            ..BoardState::unknown(now, &self.discovered.no_gpu)
        };
        state.memory_clock = Reading::absent(NO_MEMORY_CLOCK);
        state.memory_clock_cap = Reading::absent(NO_MEMORY_CLOCK);
        state.total_power = total::total(self.discovered.total.as_ref(), &state.rails);
        let limits = tegra.map(|tegra| tegra.put_into(&mut state));
        if let Some(sample) = nvml {
            self.add_nvml(&mut state, sample);
        }
        self.judge_mode(&mut state, limits, status);
        state
    }

    /// The mode whose caps are in force.
    fn judge_mode(&self, state: &mut BoardState, limits: Option<MemoryLimits>, status: Option<Answer>) {
        let modes = match &self.discovered.modes {
            Some(Reading::Known(modes)) => modes,
            other => {
                let reason = other.as_ref().and_then(Reading::reason);
                state.power_mode = Reading::absent(reason.unwrap_or("no power modes on this machine"));
                return;
            }
        };
        let status = status.and_then(Result::ok).and_then(|(text, _)| nvpmodel::parse_status(&text));
        let live = Live {
            cores_online: state.cores_online.known().copied(),
            cpu_cap: state.cpu_clock_cap.known().copied(),
            cpu_max: self.discovered.cpu_max,
            gpu_cap: state.gpu_clock_cap.known().copied(),
            gpu_clocks: self
                .discovered
                .tegra
                .as_ref()
                .map(|tegra| tegra.gpu_clocks.clone())
                .unwrap_or_default(),
            gpu_max: self.discovered.nominal.as_ref().map(|nominal| nominal.gpu_clock),
            memory_cap: limits.and_then(|limits| limits.cap),
            memory_max: limits.and_then(|limits| limits.max),
            tpc_mask: state.tpc_mask.known().copied(),
            throttled: state.throttle.known().is_some_and(|throttle| throttle.active),
        };
        let judgement = active_mode(modes, status, &live);
        state.mode_note = judgement.note;
        state.power_mode = judgement.mode.map_or_else(Reading::absent, Reading::Known);
    }

    /// What NVML tells. On a Tegra devfreq and the rails know better, so only the load is taken, where no file has it.
    fn add_nvml(&self, state: &mut BoardState, sample: nvml::Sample) {
        if self.discovered.tegra.is_some() {
            if state.gpu_load.known().is_none() {
                state.gpu_load = sample.load;
            }
            return;
        }
        let nominal = self.discovered.nominal.as_ref();
        state.gpu_clock = sample.clock;
        state.gpu_clock_cap = sample.locked;
        state.gpu_load = sample.load;
        state.tpc_mask = Reading::absent("no mask of gated clusters on this GPU");
        state.sm_online = nominal.map_or_else(
            || Reading::absent("the hardware registry has no entry of this machine"),
            |nominal| Reading::Known(nominal.sm),
        );
        state.memory_clock = sample.memory_clock;
        state.memory_clock_cap = nominal.and_then(|nominal| nominal.memory_clock).map_or_else(
            || Reading::absent("NVML tells no cap on the memory clock, and the data sheet no highest one"),
            Reading::Known,
        );
        if let Reading::Known(temperature) = sample.temperature {
            let zone = ThermalZone { name: NVML_SENSOR.into(), temperature: Reading::Known(temperature) };
            state.temperatures = match std::mem::replace(&mut state.temperatures, Reading::absent("")) {
                Reading::Known(zones) => Reading::Known(zones.into_iter().chain([zone]).collect()),
                _ => Reading::Known(vec![zone]),
            };
        }
        // A processor's package is not the machine that does the work here.
        let no_better = self.discovered.total.as_ref().is_none_or(|rule| rule.scope == "package");
        if no_better {
            let gpu = |power| TotalPower {
                power,
                rails: vec![NVML_SENSOR.into()],
                scope: "gpu".into(),
                read: Some(nvml_read(state.taken_at)),
            };
            state.total_power = sample.power.clone().map(gpu);
        }
        if let Reading::Known(power) = sample.power {
            let read = Some(nvml_read(state.taken_at));
            let rail = Rail { name: NVML_SENSOR.into(), power: Reading::Known(power), energy: None, read };
            state.rails = match std::mem::replace(&mut state.rails, Reading::absent("")) {
                Reading::Known(rails) => Reading::Known(rails.into_iter().chain([rail]).collect()),
                _ => Reading::Known(vec![rail]),
            };
        }
    }

    /// One clock for each online CPU. A policy that does not answer spoils the list, which has no place for a gap.
    fn clocks(&self, online: &Reading<Vec<u32>>, answers: Vec<Answer>) -> Reading<Vec<Hertz>> {
        let policies = &self.discovered.policies;
        if policies.is_empty() {
            return Reading::absent(NO_CPUFREQ);
        }
        let Some(online) = online.known() else {
            return Reading::failed(online.reason().unwrap_or("the online CPUs are not known"));
        };
        let mut clocks: Vec<(u32, Hertz)> = Vec::with_capacity(online.len());
        for (policy, answer) in policies.iter().zip(answers) {
            let cpus: Vec<u32> = policy.cpus.iter().copied().filter(|cpu| online.contains(cpu)).collect();
            // A policy whose CPUs are all offline does not answer, and need not.
            if cpus.is_empty() {
                continue;
            }
            match clock(&format!("{}/scaling_cur_freq", policy.dir), answer) {
                Reading::Known(clock) => clocks.extend(cpus.into_iter().map(|cpu| (cpu, clock))),
                other => return other.map(|_| Vec::new()),
            }
        }
        if clocks.is_empty() {
            return Reading::failed("no policy of /sys/devices/system/cpu/cpufreq is for an online CPU");
        }
        clocks.sort_by_key(|(cpu, _)| *cpu);
        Reading::Known(clocks.into_iter().map(|(_, clock)| clock).collect())
    }

    /// The highest cap of the policies that answer.
    fn cap(&self, answers: Vec<Answer>) -> Reading<Hertz> {
        let mut highest: Reading<Hertz> = Reading::absent(NO_CPUFREQ);
        for (policy, answer) in self.discovered.policies.iter().zip(answers) {
            let cap = clock(&format!("{}/scaling_max_freq", policy.dir), answer);
            highest = match (highest, cap) {
                (Reading::Known(a), Reading::Known(b)) => Reading::Known(a.max(b)),
                (Reading::Known(a), _) => Reading::Known(a),
                (_, cap) => cap,
            };
        }
        highest
    }

    fn temperatures(&self, answers: Vec<Answer>) -> Reading<Vec<ThermalZone>> {
        if self.discovered.zones.is_empty() {
            return Reading::absent(format!("no {THERMAL}/thermal_zone*"));
        }
        let zones = self.discovered.zones.iter().zip(answers).map(|(zone, answer)| {
            let text = answer.map(|(text, _)| text);
            let temperature = match parsed(&zone.path, text, "thousandths of a degree", parse::millidegrees) {
                Reading::Known(Temperature::Known(temperature)) => Reading::Known(temperature),
                Reading::Known(Temperature::Off) => {
                    Reading::absent(format!("{}: the sensor is off (-256 °C)", zone.path))
                }
                Reading::Known(Temperature::Implausible(temperature)) => {
                    Reading::failed(format!("{} says {temperature}, which no machine survives", zone.path))
                }
                Reading::Absent { reason } => Reading::Absent { reason },
                Reading::Failed { reason } => Reading::Failed { reason },
            };
            ThermalZone { name: zone.name.clone(), temperature }
        });
        Reading::Known(zones.collect())
    }

    fn rails(&mut self, answers: Vec<Vec<Answer>>, at: impl Fn(Instant) -> Seconds) -> Reading<Vec<Rail>> {
        if self.discovered.rails.is_empty() {
            return Reading::absent(format!(
                "no power sensor: no power*_input or energy*_input in {}/hwmon*, no energy_uj in {}",
                power::HWMON,
                power::POWERCAP
            ));
        }
        let sources = self.discovered.rails.iter().zip(&mut self.energies);
        let rails = sources.zip(answers).filter_map(|((source, last), answers)| {
            let mut answers = answers.into_iter();
            Some(power::rail(source, answers.next()?, answers.next(), &at, last))
        });
        Reading::Known(rails.collect())
    }

    fn memory(&mut self) -> Reading<Memory> {
        parsed("/proc/meminfo", self.meminfo.read(), "MemTotal", parse::meminfo)
    }

    fn load(&mut self, stat: Result<String, ReadError>) -> Reading<Load> {
        let times = stat.ok().and_then(|text| parse::cpu_times(&text));
        let before = std::mem::replace(&mut self.cpu_times, times);
        let ratios = times.zip(before).and_then(|(now, before)| now.ratios_since(&before));
        parsed("/proc/loadavg", self.loadavg.read(), "a load average", parse::load_average).map(
            |average_1m| Load {
                average_1m,
                busy_ratio: ratios.map(|(busy, _)| busy),
                steal_ratio: ratios.map(|(_, steal)| steal),
            },
        )
    }

    fn pressure(&mut self) -> Reading<Pressure> {
        let memory = self.memory_pressure.read();
        if let Err(error @ (ReadError::Missing { .. } | ReadError::Unsupported { .. })) = memory {
            return Reading::absent(format!(
                "{error}: the kernel was built without PSI or started with psi=0"
            ));
        }
        let cpu = self.cpu_pressure.read().ok();
        parsed("/proc/pressure/memory", memory, "a line `some avg10=…`", |text| {
            parse::pressure(text, cpu.as_deref())
        })
    }
}

const NO_MEMORY_CLOCK: &str = "no file tells the memory clock of this machine";
/// What NVML's temperature and power are called among zones and rails.
const NVML_SENSOR: &str = "gpu (nvml)";
/// NVML's power is a mean over a second on Ampere (but GA100) and later: nvmlDeviceGetPowerUsage.
const NVML_PERIOD: Seconds = Seconds(1.0);
const NO_CPUFREQ: &str = "no /sys/devices/system/cpu/cpufreq/policy*: this kernel has no cpufreq driver";

fn has_modes(found: &Discovered) -> bool {
    matches!(found.modes, Some(Reading::Known(_)))
}

const fn nvml_read(at: Seconds) -> MeterRead {
    MeterRead { at, since: None, period: Some(NVML_PERIOD) }
}

fn clock(path: &str, answer: Answer) -> Reading<Hertz> {
    parsed(path, answer.map(|(text, _)| text), "a clock in kHz", parse::kilohertz)
}

/// The online list, or what /proc/stat says where the list is missing or damaged.
pub(super) fn online(
    list: Result<String, ReadError>,
    stat: impl FnOnce() -> Result<String, ReadError>,
) -> Reading<Vec<u32>> {
    let cpus =
        parsed(ONLINE, list, "a CPU list", |text| parse::cpu_list(text).filter(|cpus| !cpus.is_empty()));
    if cpus.known().is_some() {
        return cpus;
    }
    match stat().map(|text| parse::stat_cpus(&text)) {
        Ok(found) if !found.is_empty() => Reading::Known(found),
        _ => cpus,
    }
}
