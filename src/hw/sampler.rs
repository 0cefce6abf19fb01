//! The machine as it is now.

use std::time::Instant;

use super::discover::{Discovered, THERMAL};
use super::file::{Kept, ReadError};
use super::patience::{Answer, Patience};
use super::power::{self, Count};
use super::{ONLINE, STAT, SysRoot, parsed};
use crate::board::parse::{self, CpuTimes, Temperature};
use crate::board::{BoardState, Load, Memory, Pressure, Reading, ThermalZone, Throttle};
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
    throttle_counters: Vec<(Kept, Option<u64>)>,
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
            .chain(discovered.rails.iter().map(|rail| rail.path.clone()))
            .chain(discovered.cooling.iter().map(|device| device.path.clone()))
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
            throttle_counters: discovered.throttle_counters.iter().map(|path| (direct(path), None)).collect(),
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
        let mut slow = self.slow.read_all().into_iter();
        let mut take = |count: usize| -> Vec<Answer> { slow.by_ref().take(count).collect() };
        let (policies, zones) = (self.discovered.policies.len(), self.discovered.zones.len());
        let (current, caps) = (take(policies), take(policies));
        let (temperatures, rails) = (take(zones), take(self.discovered.rails.len()));
        let cooling = take(self.discovered.cooling.len());

        let stat = self.stat.read();
        let online = online(self.online.read(), || match &stat {
            Ok(text) => Ok(text.clone()),
            Err(_) => Err(ReadError::Missing { path: STAT.into() }),
        });
        BoardState {
            taken_at: now,
            power_mode: Reading::absent("no power modes on this machine: no nvpmodel"),
            cpu_clocks: self.clocks(&online, current),
            cpu_clock_cap: self.cap(caps),
            cores_online: online.map(|cpus| u32::try_from(cpus.len()).unwrap_or(u32::MAX)),
            gpu_clock: Reading::absent(NO_GPU),
            gpu_clock_cap: Reading::absent(NO_GPU),
            gpu_load: Reading::absent(NO_GPU),
            tpc_mask: Reading::absent(NO_GPU),
            sm_online: Reading::absent(NO_GPU),
            memory_clock: Reading::absent("no file tells the memory clock of this machine"),
            memory_clock_cap: Reading::absent("no file tells the memory clock of this machine"),
            total_power: Reading::absent("no rule says which rails make up this machine"),
            temperatures: self.temperatures(temperatures),
            rails: self.rails(rails, |read_at| now + Seconds((read_at - start).as_secs_f64())),
            memory: self.memory(),
            load: self.load(stat),
            pressure: self.pressure(),
            throttle: self.throttle(cooling),
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

    fn rails(
        &mut self,
        answers: Vec<Answer>,
        at: impl Fn(Instant) -> Seconds,
    ) -> Reading<Vec<crate::board::Rail>> {
        if self.discovered.rails.is_empty() {
            return Reading::absent(format!(
                "no power sensor: no power*_input or energy*_input in {}/hwmon*, no energy_uj in {}",
                power::HWMON,
                power::POWERCAP
            ));
        }
        let sources = self.discovered.rails.iter().zip(&mut self.energies);
        let rails =
            sources.zip(answers).map(|((source, last), answer)| power::rail(source, answer, &at, last));
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

    /// Active if a cooling device is in use or a counter has grown since the sample before.
    fn throttle(&mut self, cooling: Vec<Answer>) -> Reading<Throttle> {
        let mut evidence = Vec::new();
        let mut heard = false;
        let mut reason = format!(
            "no source of evidence: no cooling device of a processor in {THERMAL}, no cpu*/thermal_throttle"
        );
        for (device, answer) in self.discovered.cooling.iter().zip(cooling) {
            let text = answer.map(|(text, _)| text);
            match parsed(&device.path, text, "a cooling state", parse::unsigned) {
                Reading::Known(state) => {
                    heard = true;
                    if state > 0 {
                        evidence
                            .push(format!("cooling device {} is at {state} ({})", device.name, device.path));
                    }
                }
                Reading::Absent { reason: why } | Reading::Failed { reason: why } => reason = why,
            }
        }
        for (counter, last) in &mut self.throttle_counters {
            let text = counter.read();
            match parsed(counter.logical(), text, "a count", parse::unsigned) {
                Reading::Known(count) => {
                    heard = true;
                    let grown = last.replace(count).and_then(|last| count.checked_sub(last)).unwrap_or(0);
                    if grown > 0 {
                        evidence.push(format!("{grown} more events in {}", counter.logical()));
                    }
                }
                Reading::Absent { reason: why } | Reading::Failed { reason: why } => reason = why,
            }
        }
        let exists = !self.discovered.cooling.is_empty() || !self.throttle_counters.is_empty();
        match (heard, exists) {
            (true, _) => Reading::Known(Throttle { active: !evidence.is_empty(), evidence }),
            (false, true) => Reading::failed(reason),
            (false, false) => Reading::absent(reason),
        }
    }
}

const NO_GPU: &str = "no GPU that this version can read";
const NO_CPUFREQ: &str = "no /sys/devices/system/cpu/cpufreq/policy*: this kernel has no cpufreq driver";

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
