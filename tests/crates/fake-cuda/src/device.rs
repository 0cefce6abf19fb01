//! The simulated GPU: a clock that only its work moves.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::activity::{Activity, Reporter, Timed, boottime_ns};
use crate::cache::L2;
use crate::errors::{self, Code};
use crate::memory::{DeviceMemory, Execution, Key, Rules};
use crate::scenario::Scenario;
use crate::timeline::{Demand, Timeline};

/// A moment of the device, and when it is reached outside.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// Simulated seconds.
    pub device_s: f64,
    pub outside: Instant,
    /// Launches before it.
    pub launches: u64,
}

/// How a launch is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Stream,
    Graph,
}

pub struct Device {
    pub scenario: Scenario,
    pub memory: DeviceMemory,
    executions: HashMap<Key, Arc<Execution>>,
    l2: L2,
    now_s: f64,
    /// Its own time, where calls cost the CPU some.
    pub timeline: Option<Timeline>,
    told_s: f64,
    told_busy: bool,
    /// When all that was given to the device is done, outside.
    done: Instant,
    first_launch: Option<Instant>,
    pub launches: u64,
    random: u64,
    reporter: Option<Reporter>,
    /// The fault of a kernel, as a sentence.
    pub fault: Option<String>,
}

/// What a launch took from the device.
struct Work {
    seconds: f64,
    /// Of the SMs' rate.
    compute: f64,
    dram_bytes: u64,
}

impl Device {
    pub fn new(scenario: Scenario, path: &Path) -> Self {
        let rules = Rules {
            l2_bytes: scenario.memory.l2_bytes,
            resident_warps: scenario.sm_count as usize * 48,
            instruction_limit: scenario.instruction_limit,
            corrupt: scenario.corrupt.clone(),
        };
        Self {
            memory: DeviceMemory::new(rules),
            executions: HashMap::new(),
            l2: L2::new(scenario.memory.l2_bytes),
            now_s: 0.0,
            timeline: scenario.host.is_some().then(|| Timeline::new(&scenario)),
            told_s: f64::NEG_INFINITY,
            told_busy: false,
            done: Instant::now(),
            first_launch: None,
            launches: 0,
            random: scenario.clock.seed,
            reporter: Reporter::new(path).ok(),
            fault: None,
            scenario,
        }
    }

    /// The moment at which everything given so far is done.
    pub fn stamp(&self) -> Stamp {
        Stamp { device_s: self.now_s, outside: self.done, launches: self.launches }
    }

    /// Runs a kernel, or counts it as run, and lets its time pass. `cold_s` is what the first time costs the device.
    pub fn launch(&mut self, module: &Arc<ptx::Module>, key: Key, by: By, cold_s: f64) -> Result<(), Code> {
        let clock = self.clock_hz();
        let mut demand = Demand::default();
        let mut execution = None;
        if self.scenario.executes(&key.entry) {
            let done = self.executed(module, key)?;
            demand = self.demand(&done, clock);
            execution = Some(done);
        }
        let overhead = match by {
            By::Stream => self.scenario.launch.stream_s,
            By::Graph => self.scenario.launch.graph_s,
        };
        let factor = self.noise() / self.scenario.lie_fast;
        self.launches += 1;
        self.first_launch.get_or_insert_with(Instant::now);
        let Self { timeline: Some(timeline), scenario, memory, .. } = self else {
            let seconds = (overhead + demand.seconds(clock)) * factor;
            self.pass(&Work { seconds, compute: demand.compute, dram_bytes: demand.dram_bytes }, clock);
            return Ok(());
        };
        demand.fixed_s = overhead * factor + cold_s;
        if let Some(execution) = &execution {
            demand.fixed_s += memory.touch(execution) as f64 / f64::from(1 << 20) * scenario.cold.mib_s;
        }
        demand.dram_s *= factor;
        demand.cycles *= factor;
        let pauses = timeline.run(scenario, &demand);
        if let Some(execution) = execution {
            memory.written(&execution, timeline.now_s);
            if execution.reads_clock && !pauses.is_empty() {
                // It ran well a moment ago.
                let _ = memory.execute(module, execution.key.clone(), &pauses);
            }
        }
        Ok(())
    }

    /// The launch of a graph before its kernels.
    pub fn start_graph(&mut self) {
        let seconds = self.scenario.launch.stream_s * self.noise();
        self.pass(&Work { seconds, compute: 0.0, dram_bytes: 0 }, self.clock_hz());
    }

    /// A copy to or from the host.
    pub fn host_copy(&mut self, address: u64, bytes: u64, write: bool) {
        let Scenario { integrated, memory, .. } = &self.scenario;
        let rate = if *integrated { memory.dram_bytes_per_s / 2.0 } else { memory.host_bytes_per_s };
        self.move_bytes(address, bytes, write, bytes as f64 / rate);
    }

    /// A copy within the device, or a memset.
    pub fn device_fill(&mut self, address: u64, bytes: u64, traffic: u64) {
        let seconds = traffic as f64 / self.scenario.memory.dram_bytes_per_s;
        self.move_bytes(address, bytes, true, seconds);
    }

    fn move_bytes(&mut self, address: u64, bytes: u64, write: bool, seconds: f64) {
        self.l2.sweep(address, bytes, write);
        self.pass(&Work { seconds, compute: 0.0, dram_bytes: bytes }, self.clock_hz());
    }

    fn executed(&mut self, module: &Arc<ptx::Module>, key: Key) -> Result<Arc<Execution>, Code> {
        if let Some(earlier) = self.executions.get(&key).filter(|earlier| self.memory.is_same(earlier)) {
            let earlier = Arc::clone(earlier);
            self.memory.pass_over(&earlier);
            return Ok(earlier);
        }
        match self.memory.execute(module, key.clone(), &[]) {
            Ok(execution) => {
                self.executions.insert(key, Arc::clone(&execution));
                Ok(execution)
            }
            Err(fault) => {
                self.fault = Some(fault.to_string());
                Err(match fault {
                    ptx::Fault::Misaligned { .. } => errors::MISALIGNED_ADDRESS,
                    ptx::Fault::Memory { .. } => errors::ILLEGAL_ADDRESS,
                    ptx::Fault::Unsupported { .. } => errors::NOT_SUPPORTED,
                    ptx::Fault::Timeout { .. } => errors::LAUNCH_TIMEOUT,
                    ptx::Fault::Params(_) => errors::INVALID_VALUE,
                    _ => errors::LAUNCH_FAILED,
                })
            }
        }
    }

    /// Forgets the launches of a module that is unloaded.
    pub fn forget(&mut self, module: u64) {
        self.executions.retain(|key, _| key.module != module);
    }

    /// The longest of what the launch needs: DRAM, L2, each kind of arithmetic, issue, and its longest warp.
    fn demand(&mut self, execution: &Execution, clock: f64) -> Demand {
        let Scenario { sm_count, memory, compute, .. } = &self.scenario;
        let counts = &execution.counts;
        let dram_bytes = self.l2.replay(&execution.trace.runs);
        let blocks: f64 = execution.key.grid.iter().map(|&blocks| f64::from(blocks)).product();
        let all = f64::from(*sm_count);
        let used = blocks.min(all).max(1.0);
        let per_clock = |amount: u64, rate: f64| amount as f64 / (used * rate);
        let mma = (counts.mma_flops.iter())
            .filter_map(|(class, &flops)| Some(per_clock(flops, *compute.mma.get(class)?)))
            .fold(0.0, f64::max);
        let pipes = mma
            .max(per_clock(counts.fma_flops, compute.fma))
            .max(per_clock(counts.warp_instructions, compute.issue));
        let cycles = (execution.trace.bytes as f64 / (memory.l2_bytes_per_clock * all))
            .max(counts.longest_warp as f64)
            .max(pipes);
        let dram_s = dram_bytes as f64 / memory.dram_bytes_per_s;
        let demand = Demand { fixed_s: 0.0, dram_s, cycles, compute: 0.0, dram_bytes };
        let seconds = demand.seconds(clock);
        let compute = if seconds > 0.0 { pipes / clock / seconds * used / all } else { 0.0 };
        Demand { compute, ..demand }
    }

    /// Clock of the SMs now.
    fn clock_hz(&self) -> f64 {
        let clock = &self.scenario.clock;
        if self.timeline.is_some() {
            return clock.sm_hz;
        }
        let warm_s = match self.first_launch {
            None => 0.0,
            Some(first) if clock.ramp_is_real => first.elapsed().as_secs_f64(),
            Some(_) => self.now_s,
        };
        let risen = if clock.ramp_s > 0.0 { (warm_s / clock.ramp_s).min(1.0) } else { 1.0 };
        let reached = clock.idle_hz + (clock.sm_hz - clock.idle_hz) * risen;
        if self.throttled() { reached * clock.throttle.as_ref().map_or(1.0, |it| it.factor) } else { reached }
    }

    fn throttled(&self) -> bool {
        self.scenario.clock.throttle.as_ref().is_some_and(|throttle| {
            throttle.after_launches.is_some_and(|launches| self.launches >= launches)
                || throttle.after_s.is_some_and(|seconds| self.now_s >= seconds)
        })
    }

    /// 1, more or less: the sum of twelve uniform numbers is all but normal.
    fn noise(&mut self) -> f64 {
        let deviation = self.scenario.clock.noise;
        if deviation == 0.0 {
            return 1.0;
        }
        let sum: f64 = (0..12).map(|_| self.uniform()).sum();
        (1.0 + deviation * (sum - 6.0)).max(0.1)
    }

    /// SplitMix64.
    fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Lets time pass, inside and outside, and tells NVML.
    fn pass(&mut self, work: &Work, sm_hz: f64) {
        let Scenario { pace, power, .. } = &self.scenario;
        self.now_s += work.seconds;
        let now = Instant::now();
        self.done = self.done.max(now) + Duration::from_secs_f64((work.seconds * pace).clamp(0.0, 1e6));
        let left = self.done.duration_since(now).max(Duration::from_secs_f64(power.linger_s.clamp(0.0, 1e6)));
        let activity = Activity {
            busy_until_ns: boottime_ns() + left.as_nanos() as u64,
            sm_hz,
            compute: work.compute,
            dram_bytes_per_s: if work.seconds > 0.0 { work.dram_bytes as f64 / work.seconds } else { 0.0 },
            throttled: self.throttled(),
            allocated: self.memory.allocated(),
            timed: None,
        };
        self.report(&activity);
    }

    fn report(&mut self, activity: &Activity) {
        if let Some(reporter) = &mut self.reporter {
            // NVML of another process then shows the last thing that could be written.
            let _ = reporter.report(activity);
        }
    }

    /// Seconds of a copy between host and device.
    pub fn host_seconds(&self, bytes: u64) -> f64 {
        let Scenario { integrated, memory, .. } = &self.scenario;
        bytes as f64 / if *integrated { memory.dram_bytes_per_s / 2.0 } else { memory.host_bytes_per_s }
    }

    /// Seconds of that traffic to DRAM.
    pub fn dram_seconds(&self, bytes: u64) -> f64 {
        bytes as f64 / self.scenario.memory.dram_bytes_per_s
    }

    /// What a copy or a fill leaves in L2.
    pub fn sweep(&mut self, address: u64, bytes: u64, write: bool) {
        self.l2.sweep(address, bytes, write);
    }

    /// Tells NVML what the device is at a moment of its own time; every call does, so that not each one is told.
    pub fn tell(&mut self, now_s: f64) {
        const SELDOM_S: f64 = 0.5e-3;
        let Self { timeline: Some(timeline), scenario, .. } = self else { return };
        let begun = !self.told_busy && timeline.now_s > now_s;
        if now_s - self.told_s < SELDOM_S && !begun {
            return;
        }
        // Who asks NVML after a submission finds the work under way.
        let (now, load) = timeline.at(scenario, now_s.max(timeline.now_s.min(now_s + 1e-3)));
        (self.told_s, self.told_busy) = (now_s, now.busy);
        let here = |(place, tenant): (usize, &crate::scenario::Tenant)| {
            u64::from(tenant.when.at(now_s).0) << place.min(63)
        };
        let activity = Activity {
            busy_until_ns: boottime_ns(),
            sm_hz: now.hz,
            compute: now.compute,
            dram_bytes_per_s: now.dram_bytes_per_s,
            throttled: now.throttled,
            allocated: self.memory.allocated(),
            timed: Some(Timed {
                pid: std::process::id(),
                busy: now.busy,
                load,
                tenants: scenario.tenant.iter().enumerate().map(here).sum(),
            }),
        };
        self.report(&activity);
    }
}
