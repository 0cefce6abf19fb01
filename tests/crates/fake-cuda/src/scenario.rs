//! The simulated GPU: a TOML file that both libraries read.
//!
//! Every field has a default, so that a test writes only what it is about. An unknown key is an error.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Where the mark of a GPU that is gone for every process lies.
pub fn lost(scenario: &Path) -> PathBuf {
    scenario.with_extension("lost")
}

/// Names the scenario's file.
pub const VARIABLE: &str = "ROOFLINED_FAKE_GPU";

/// A GPU, its driver and what goes wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// What the driver calls the GPU.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: [u32; 2],
    pub sm_count: u32,
    /// Shares its memory with the CPU.
    pub integrated: bool,
    /// What `cuDriverGetVersion` says: 12060 for 12.6.
    pub driver_version: i32,
    /// The library loads, and finds no GPU.
    pub no_device: bool,
    /// Whether launches are interpreted. If not, they succeed, change nothing and last as long as their overhead.
    pub execute: bool,
    /// How the names of the entries begin that are interpreted, where not all of them are.
    pub execute_only: Vec<String>,
    /// Warp instructions after which a launch fails with `CUDA_ERROR_LAUNCH_TIMEOUT`.
    pub instruction_limit: u64,
    /// Seconds that pass outside for each simulated second: 0 answers at once, 1 is as slow as the simulated GPU.
    pub pace: f64,
    /// A launch takes this many times less than the model says: more than 1 is faster than physics allow.
    pub lie_fast: f64,
    pub temperature_c: i32,
    pub clock: Clock,
    pub memory: Memory,
    pub compute: Compute,
    pub launch: Overhead,
    /// Power, as NVML tells it.
    pub power: Power,
    /// What only NVML has.
    pub nvml: Nvml,
    /// What calls cost the CPU. Without it they are free, and only the device's work makes time pass; with it, what
    /// [`Host`] describes, and then also `cold`, `tenant`, and the governor and dips of `clock`.
    pub host: Option<Host>,
    pub cold: Cold,
    /// Other processes on the GPU.
    pub tenant: Vec<Tenant>,
    /// `cuDeviceGetAttribute`: values by number of the attribute that differ from those that follow from the rest.
    pub attributes: BTreeMap<String, i32>,
    pub fail: Vec<Fail>,
    /// Calls that never return.
    pub hang: Vec<Hang>,
    /// Kernels whose output is damaged.
    pub corrupt: Vec<Corrupt>,
    /// Kernels that do not end well.
    pub fault: Vec<Fault>,
}

/// Clocks of the SMs and the memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clock {
    /// SMs, under load.
    pub sm_hz: f64,
    /// SMs, before the first launch.
    pub idle_hz: f64,
    /// Time from the first launch to the full clock.
    pub ramp_s: f64,
    /// The ramp follows time outside instead of simulated time.
    pub ramp_is_real: bool,
    pub memory_hz: f64,
    /// Standard deviation of a launch's time, as a ratio.
    pub noise: f64,
    /// Chooses the noise.
    pub seed: u64,
    /// Lower clocks after a while.
    pub throttle: Option<Throttle>,
    /// What moves the clock with the load, where `host` is given; the ramp then counts for nothing.
    pub governor: Option<Governor>,
    /// Lower clocks that come and go, where `host` is given.
    pub dip: Vec<Dip>,
}

/// Moves the clock of the SMs between the steps of a table, by the load that the device sees in its own time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Governor {
    pub kind: GovernorKind,
    /// Clocks that there are, the lowest first. It begins with the first.
    pub table_hz: Vec<f64>,
    /// Without work for so long the device is switched off, and wakes at its lowest clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_s: Option<f64>,
    /// How long the first work after that waits.
    #[serde(default)]
    pub wake_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GovernorKind {
    /// `nvhost_podgov` of JetPack 5 and 6.
    Podgov,
    /// That of JetPack 7, which climbs and falls by steps of the table.
    PodgovSteps,
    /// A card's own: within a tenth of a second up, and down after half a second without work.
    Boost,
}

/// A lower clock for a while, as power and heat bring about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dip {
    pub when: When,
    /// What the clock is multiplied by.
    pub factor: f64,
}

/// A stretch of time that may come again; in seconds since the driver was started.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    pub from_s: f64,
    /// How long it lasts; for ever where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_s: Option<f64>,
    /// From one beginning to the next; once where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_s: Option<f64>,
}

impl When {
    /// Whether it is on at that moment, and when that changes next.
    pub fn at(&self, now_s: f64) -> (bool, f64) {
        // Nearer to a change than this is past it.
        const NEAR_S: f64 = 1e-10;
        if now_s < self.from_s - NEAR_S {
            return (false, self.from_s);
        }
        let Some(for_s) = self.for_s else { return (true, f64::INFINITY) };
        let since = (now_s - self.from_s).max(0.0);
        let Some(every_s) = self.every_s else {
            return if since < for_s - NEAR_S { (true, self.from_s + for_s) } else { (false, f64::INFINITY) };
        };
        let mut round = (since / every_s).floor();
        if since - round * every_s > every_s - NEAR_S {
            round += 1.0;
        }
        let begun = self.from_s + round * every_s;
        let on = now_s < begun + for_s - NEAR_S;
        (on, begun + if on { for_s } else { every_s })
    }
}

/// What the CPU pays. One clock goes through everything: calls move it on, the device runs beside it, and work begins no
/// earlier than it is submitted. So a late CPU leaves the device idle, and the gap lies between the events around it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    /// Every call.
    pub call_s: f64,
    /// `cuLaunchKernel`, and what else gives a stream one thing to do.
    pub launch_s: f64,
    /// `cuGraphLaunch`.
    pub graph_s: f64,
    /// Each node of a graph that is launched; the device may be done with the first ones before the last is submitted.
    pub node_s: f64,
    /// Each node when a graph is instantiated, and again when it is first uploaded.
    pub upload_s: f64,
    /// Each module that is loaded, and so compiled.
    pub module_s: f64,
    /// From the submission to the start, on a device that has nothing else to do.
    pub latency_s: f64,
    /// Until a copy or a fill that a call leaves behind begins.
    pub lag_s: f64,
    /// Launches of streams that may wait for the device; a thread that submits more waits.
    pub queue: usize,
    /// What the caller takes to make each 2²⁰ bytes that it uploads, and to look at those that it downloads.
    pub mib_s: f64,
    /// Every so many submissions one takes `stall_s` longer: an interrupt, a page fault. 0 for none.
    pub stall_every: u64,
    pub stall_s: f64,
    /// A query that answers `CUDA_ERROR_NOT_READY` takes so long, twice as long the next time in a row, and up to a
    /// millisecond: a thread that asks again and again sleeps in between.
    pub poll_s: f64,
    /// Seconds for each second that passes outside between calls.
    pub real: f64,
    /// What calls cost passes outside, too, so that a clock there sees it.
    pub spin: bool,
}

/// What the first time costs and no later one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cold {
    /// The first launch of a function in a stream, from and to.
    pub function_s: [f64; 2],
    /// The first launch of an instantiated graph, from and to.
    pub graph_s: [f64; 2],
    /// How much of both the device takes. The CPU takes the rest before it submits, which work given earlier may hide.
    pub device_share: f64,
    /// Each 2²⁰ bytes of an allocation, when a kernel first uses it; on the device.
    pub mib_s: f64,
}

/// Another process that uses the GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    pub pid: u32,
    pub when: When,
    /// Of the time, while it is there and we want the device, too.
    #[serde(default)]
    pub share: f64,
    /// How long it has the device at a stretch.
    #[serde(default = "two_ms")]
    pub slice_s: f64,
    /// Share of the DRAM's rate, for every user of the device.
    #[serde(default)]
    pub dram_share: f64,
    /// Whether `%clock64` counts while another process has the SMs. The manuals call it a counter of the SM's clock and
    /// say nothing of that, so both are here.
    #[serde(default)]
    pub counters_stop: bool,
    /// What it holds of the memory.
    #[serde(default)]
    pub bytes: u64,
}

fn two_ms() -> f64 {
    2e-3
}

impl Default for Host {
    /// An x86 server.
    fn default() -> Self {
        Self {
            call_s: 0.2e-6,
            launch_s: 3e-6,
            graph_s: 8e-6,
            node_s: 0.05e-6,
            upload_s: 0.4e-6,
            module_s: 20e-3,
            latency_s: 4e-6,
            lag_s: 30e-6,
            queue: 1024,
            mib_s: 2e-3,
            stall_every: 0,
            stall_s: 0.0,
            poll_s: 20e-6,
            real: 0.0,
            spin: true,
        }
    }
}

impl Host {
    /// The slower cores of a Jetson.
    pub fn jetson() -> Self {
        Self {
            call_s: 0.8e-6,
            launch_s: 14e-6,
            graph_s: 25e-6,
            node_s: 0.3e-6,
            upload_s: 1.5e-6,
            module_s: 80e-3,
            latency_s: 10e-6,
            mib_s: 8e-3,
            ..Self::default()
        }
    }
}

/// When the clock of the SMs falls, and how far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// After so many launches, where no `host` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_launches: Option<u64>,
    /// After so many simulated seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_s: Option<f64>,
    /// What the clock is multiplied by.
    pub factor: f64,
}

/// Memory and the cache before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// All of it.
    pub total_bytes: u64,
    /// What `cuMemGetInfo` calls free before anything is allocated; the rest cannot be had.
    pub free_bytes: u64,
    /// L2, least recently used lines of 128 bytes give way.
    pub l2_bytes: u64,
    /// Bytes that miss L2.
    pub dram_bytes_per_s: f64,
    /// Bytes that reach L2, each SM and clock.
    pub l2_bytes_per_clock: f64,
    /// Copies from and to the host; those of an integrated GPU run at the DRAM's rate all the same.
    pub host_bytes_per_s: f64,
}

/// Rates of one SM at one clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Compute {
    /// Warp instructions.
    pub issue: f64,
    /// FLOPs of single-precision add, multiply and fused multiply-add.
    pub fma: f64,
    /// Operations of `mma` by class: f16, bf16, tf32, s8, s4, e4m3. A class that is not here runs as fast as it is issued.
    pub mma: BTreeMap<String, f64>,
}

/// What a launch costs besides its work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overhead {
    /// A launch in a stream, and a launch of a whole graph.
    pub stream_s: f64,
    /// Each kernel of a graph.
    pub graph_s: f64,
}

/// Power as a sum of shares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Power {
    /// With nothing to do.
    pub idle_w: f64,
    /// With every SM at its rate, without the memory's share.
    pub full_w: f64,
    /// For each 10⁹ bytes per second from DRAM.
    pub w_per_gbs: f64,
    /// How long a launch is seen as load, in time outside, though it ended; for `pace = 0`.
    pub linger_s: f64,
}

/// NVML's own part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Nvml {
    /// As `nvidia-smi` shows it.
    pub driver_version: String,
    /// Functions that answer `NVML_ERROR_NOT_SUPPORTED`, in every version; with `(2)` behind it, for that kind of clock.
    pub not_supported: Vec<String>,
    /// Calls that fail, with codes of `nvmlReturn_t`.
    pub fail: Vec<Fail>,
    /// Calls that never return.
    pub hang: Vec<Hang>,
}

/// Calls of one function that fail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// The function as the library exports it, or `*`: every function, counted together.
    pub call: String,
    /// The number it returns.
    pub code: u32,
    /// After so many calls that go well.
    #[serde(default)]
    pub after: u64,
    /// How often; for ever where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

/// A function that does not return.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hang {
    /// The function. `cuEventQuery` and `cuStreamQuery` are special: the kernel hangs, not the call. The launches
    /// after the first `after` never end, so queries answer `CUDA_ERROR_NOT_READY` and waiting never ends.
    pub call: String,
    /// After so many calls that return.
    #[serde(default)]
    pub after: u64,
}

/// A kernel that computes wrongly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corrupt {
    /// Its name, or `*`.
    pub entry: String,
    /// How many of the 32-bit words that it wrote are changed, spread evenly.
    pub words: u64,
}

/// A kernel that does not end well. Its launch returns success all the same: what follows tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Its name; a `*` at the end stands for any rest of a name.
    pub entry: String,
    pub kind: FaultKind,
    /// What the calls after a `fault` answer; 719 where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
    /// After so many launches of it in one process that end well.
    #[serde(default)]
    pub after: u64,
}

/// How a kernel ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// With an error that spoils the context.
    Fault,
    /// Never.
    Hang,
    /// With the device gone from its bus: every call of this process answers 999 from then on.
    Lost,
    /// As `lost`, and no later process finds the device, until the file `gpu.lost` beside the scenario is removed.
    Gone,
}

impl Fault {
    pub fn new(entry: &str, kind: FaultKind) -> Self {
        Self { entry: entry.into(), kind, code: None, after: 0 }
    }

    /// Whether it concerns the kernel of that name.
    pub fn strikes(&self, entry: &str) -> bool {
        match self.entry.strip_suffix('*') {
            Some(start) => entry.starts_with(start),
            None => entry == self.entry,
        }
    }
}

impl Fail {
    /// `call` answers `code` from the first call on, for ever.
    pub fn always(call: &str, code: u32) -> Self {
        Self { call: call.into(), code, after: 0, times: None }
    }

    /// Whether the call after `before` earlier ones fails.
    pub fn strikes(&self, before: u64) -> bool {
        before >= self.after && self.times.is_none_or(|times| before - self.after < times)
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Self::toy()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Scenario::toy().clock
    }
}

impl Default for Memory {
    fn default() -> Self {
        Scenario::toy().memory
    }
}

impl Default for Compute {
    fn default() -> Self {
        Scenario::toy().compute
    }
}

impl Default for Overhead {
    fn default() -> Self {
        Self { stream_s: 5e-6, graph_s: 1.5e-6 }
    }
}

impl Default for Power {
    fn default() -> Self {
        Self { idle_w: 2.0, full_w: 8.0, w_per_gbs: 1.0, linger_s: 0.05 }
    }
}

impl Default for Nvml {
    fn default() -> Self {
        Self {
            driver_version: "560.35.03".into(),
            not_supported: Vec::new(),
            fail: Vec::new(),
            hang: Vec::new(),
        }
    }
}

const GIB: u64 = 1 << 30;

impl Scenario {
    /// A GPU so small that every kernel is interpreted in moments, and so slow that its kernels last much longer than
    /// their launches.
    pub fn toy() -> Self {
        Self {
            name: "Toy".into(),
            compute_capability: [8, 7],
            sm_count: 2,
            integrated: true,
            driver_version: 12060,
            no_device: false,
            execute: true,
            execute_only: Vec::new(),
            instruction_limit: 200_000_000,
            pace: 0.0,
            lie_fast: 1.0,
            temperature_c: 45,
            clock: Clock {
                sm_hz: 20e6,
                idle_hz: 20e6,
                ramp_s: 0.0,
                ramp_is_real: false,
                memory_hz: 100e6,
                noise: 0.0,
                seed: 1,
                throttle: None,
                governor: None,
                dip: Vec::new(),
            },
            memory: Memory {
                total_bytes: 256 << 20,
                free_bytes: 192 << 20,
                l2_bytes: 64 << 10,
                dram_bytes_per_s: 0.5e9,
                l2_bytes_per_clock: 64.0,
                host_bytes_per_s: 0.25e9,
            },
            compute: Compute {
                issue: 4.0,
                fma: 128.0,
                // Enough that kernels on stored weights wait for memory, as on the boards.
                mma: rates(1024.0, &["f16", "bf16", "tf32", "s8", "s4", "e4m3", "e2m1"]).mma,
            },
            launch: Overhead::default(),
            power: Power::default(),
            nvml: Nvml::default(),
            host: None,
            cold: Cold::default(),
            tenant: Vec::new(),
            attributes: BTreeMap::new(),
            fail: Vec::new(),
            hang: Vec::new(),
            corrupt: Vec::new(),
            fault: Vec::new(),
        }
    }

    /// Jetson AGX Orin with JetPack 6. Its kernels are not interpreted.
    pub fn orin() -> Self {
        Self {
            name: "Orin".into(),
            compute_capability: [8, 7],
            sm_count: 16,
            clock: clock(1.3005e9, 0.3064e9, 3.2e9),
            memory: memory(62 * GIB, 48 * GIB, 4 << 20, 204.8e9),
            compute: rates(2048.0, &["f16", "bf16", "tf32", "s8", "s4"]),
            nvml: Nvml {
                driver_version: "540.4.0".into(),
                not_supported: not_supported(&SENSORS),
                ..Nvml::default()
            },
            ..Self::large()
        }
    }

    /// Jetson AGX Thor with JetPack 7. Its kernels are not interpreted.
    pub fn thor() -> Self {
        Self {
            name: "NVIDIA Thor".into(),
            compute_capability: [11, 0],
            sm_count: 20,
            driver_version: 13000,
            clock: clock(1.575e9, 0.315e9, 4.266e9),
            memory: memory(122 * GIB, 100 * GIB, 32 << 20, 273e9),
            compute: rates(8192.0, &["f16", "bf16", "tf32", "s8", "e4m3"]),
            nvml: Nvml {
                driver_version: "580.00".into(),
                not_supported: ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetMemoryInfo"]
                    .map(String::from)
                    .into(),
                ..Nvml::default()
            },
            ..Self::large()
        }
    }

    /// GB10, of DGX Spark. Its kernels are not interpreted.
    pub fn gb10() -> Self {
        Self {
            name: "NVIDIA GB10".into(),
            compute_capability: [12, 1],
            sm_count: 48,
            driver_version: 13000,
            clock: clock(2.418e9, 0.208e9, 4.266e9),
            memory: memory(119 * GIB, 100 * GIB, 24 << 20, 273e9),
            compute: rates(1024.0, &["f16", "bf16", "tf32", "s8", "e4m3"]),
            power: Power { idle_w: 5.0, full_w: 60.0, w_per_gbs: 0.08, linger_s: 0.05 },
            nvml: Nvml {
                driver_version: "580.95.05".into(),
                not_supported: not_supported(&[
                    "nvmlDeviceGetMemoryInfo",
                    "nvmlDeviceGetEnforcedPowerLimit",
                    "nvmlDeviceGetClockInfo(2)",
                ]),
                ..Nvml::default()
            },
            ..Self::large()
        }
    }

    /// H200. Its kernels are not interpreted.
    pub fn h200() -> Self {
        Self {
            name: "NVIDIA H200".into(),
            compute_capability: [9, 0],
            sm_count: 132,
            integrated: false,
            driver_version: 12080,
            clock: clock(1.98e9, 0.345e9, 3.201e9),
            memory: Memory { host_bytes_per_s: 50e9, ..memory(139 * GIB, 138 * GIB, 50 << 20, 4.8e12) },
            compute: rates(4096.0, &["f16", "bf16", "tf32", "s8", "e4m3"]),
            power: Power { idle_w: 75.0, full_w: 450.0, w_per_gbs: 0.05, linger_s: 0.05 },
            nvml: Nvml { driver_version: "570.86.15".into(), ..Nvml::default() },
            ..Self::large()
        }
    }

    /// What the presets of real GPUs share.
    fn large() -> Self {
        Self {
            execute: false,
            power: Power { idle_w: 4.0, full_w: 35.0, w_per_gbs: 0.05, linger_s: 0.05 },
            ..Self::toy()
        }
    }

    /// Whether launches of that entry are interpreted.
    pub fn executes(&self, entry: &str) -> bool {
        let only = &self.execute_only;
        self.execute
            && (only.is_empty() || only.iter().any(|beginning| entry.starts_with(beginning.as_str())))
    }

    /// The scenario of a file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let scenario: Self = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let clock = &scenario.clock;
        let timed = scenario.cold != Cold::default()
            || !scenario.tenant.is_empty()
            || !clock.dip.is_empty()
            || clock.governor.is_some();
        if timed && scenario.host.is_none() {
            return Err(format!("{}: cold, tenant, clock.dip and clock.governor need host", path.display()));
        }
        if clock.governor.as_ref().is_some_and(|governor| governor.table_hz.is_empty()) {
            return Err(format!("{}: clock.governor.table_hz is empty", path.display()));
        }
        if scenario.tenant.iter().any(|tenant| !(0.0..0.99).contains(&tenant.share)) {
            return Err(format!("{}: tenant.share is a share of less than 0.99", path.display()));
        }
        Ok(scenario)
    }

    /// The scenario as a file holds it.
    pub fn to_toml(&self) -> Result<String, String> {
        toml::to_string(self).map_err(|error| format!("a scenario as TOML: {error}"))
    }

    /// Compute capability as one number: 87, 121.
    pub fn capability(&self) -> u32 {
        self.compute_capability[0] * 10 + self.compute_capability[1]
    }

    /// `GPU-…`'s sixteen bytes: the same name, the same GPU.
    pub fn uuid(&self) -> [u8; 16] {
        let mut hash = 0xcbf2_9ce4_8422_2325_cbf2_9ce4_8422_2325_u128;
        for byte in self.name.bytes() {
            hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
        hash.to_be_bytes()
    }
}

/// What Jetson's libraries do not tell, the load first.
const SENSORS: [&str; 11] = [
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
];

fn not_supported(functions: &[&str]) -> Vec<String> {
    functions.iter().map(|&function| function.to_owned()).collect()
}

/// Rates that follow from that of fp16, as in every generation that has a preset.
fn rates(f16: f64, supported: &[&str]) -> Compute {
    let of = |class: &str| match class {
        "tf32" => f16 / 2.0,
        "s8" | "e4m3" => f16 * 2.0,
        "s4" => f16 * 4.0,
        _ => f16,
    };
    let mma = supported.iter().map(|&class| (class.to_owned(), of(class))).collect();
    Compute { issue: 4.0, fma: 256.0, mma }
}

fn clock(sm_hz: f64, idle_hz: f64, memory_hz: f64) -> Clock {
    Clock { sm_hz, idle_hz, memory_hz, ramp_s: 0.3, noise: 0.005, ..Scenario::toy().clock }
}

fn memory(total_bytes: u64, free_bytes: u64, l2_bytes: u64, dram_bytes_per_s: f64) -> Memory {
    Memory {
        total_bytes,
        free_bytes,
        l2_bytes,
        dram_bytes_per_s,
        l2_bytes_per_clock: 64.0,
        host_bytes_per_s: dram_bytes_per_s / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_survives_its_file() {
        let mut full = Scenario::toy();
        full.clock.throttle = Some(Throttle { after_launches: Some(3), after_s: None, factor: 0.5 });
        full.fail.push(Fail { call: "cuInit".into(), code: 100, after: 1, times: Some(2) });
        full.fail.push(Fail::always("cuMemAlloc_v2", 2));
        full.hang.push(Hang { call: "cuEventQuery".into(), after: 7 });
        full.corrupt.push(Corrupt { entry: "*".into(), words: 1 });
        full.fault.push(Fault { code: Some(715), after: 2, ..Fault::new("mma_*", FaultKind::Fault) });
        full.host = Some(Host { stall_every: 50, ..Host::jetson() });
        full.cold.graph_s = [1e-4, 1e-3];
        let when = When { from_s: 1.0, for_s: Some(0.5), every_s: None };
        full.clock.dip.push(Dip { when, factor: 0.5 });
        full.clock.governor = Some(Governor {
            kind: GovernorKind::PodgovSteps,
            table_hz: vec![5e6, 20e6],
            gate_s: None,
            wake_s: 0.01,
        });
        full.tenant.push(Tenant {
            pid: 7,
            when,
            share: 0.5,
            slice_s: 1e-3,
            dram_share: 0.25,
            counters_stop: true,
            bytes: 1 << 20,
        });
        full.attributes.insert("115".into(), 1);
        for scenario in
            [full, Scenario::toy(), Scenario::orin(), Scenario::thor(), Scenario::gb10(), Scenario::h200()]
        {
            let text = scenario.to_toml().unwrap();
            assert_eq!(toml::from_str::<Scenario>(&text).unwrap(), scenario, "{text}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_and_a_missing_one_is_the_toys() {
        assert!(toml::from_str::<Scenario>("colour = 3").is_err());
        assert!(toml::from_str::<Scenario>("[memory]\nl2 = 3").is_err());
        let short: Scenario = toml::from_str("name = \"A\"\n[memory]\nl2_bytes = 1024").unwrap();
        assert_eq!((short.sm_count, short.memory.l2_bytes), (2, 1024));
        assert!((short.memory.dram_bytes_per_s - 0.5e9).abs() < 1.0);
    }

    #[test]
    fn a_stretch_of_time_comes_again_or_not() {
        let once = When { from_s: 1.0, for_s: Some(0.5), every_s: None };
        assert_eq!(once.at(0.0), (false, 1.0));
        assert_eq!(once.at(1.0), (true, 1.5));
        assert_eq!(once.at(1.5), (false, f64::INFINITY));
        assert_eq!(When { for_s: None, ..once }.at(9.0), (true, f64::INFINITY));
        let often = When { every_s: Some(2.0), ..once };
        assert_eq!(often.at(3.25), (true, 3.5));
        assert_eq!(often.at(3.5), (false, 5.0));
        // What a sum of small steps misses by a hair is past the change: the next change lies ahead.
        let slices = When { from_s: 0.0, for_s: Some(2e-3), every_s: Some(4e-3) };
        let mut now_s = 0.0;
        for step in 1..10_000 {
            let (_, next_s) = slices.at(now_s);
            assert!(next_s > now_s, "{now_s}");
            now_s = next_s;
            assert!((now_s - f64::from(step) * 2e-3).abs() < 1e-9, "{now_s}");
        }
    }

    #[test]
    fn a_failure_strikes_after_so_many_calls_and_so_often() {
        let fail = Fail { call: "cuInit".into(), code: 2, after: 2, times: Some(2) };
        let struck: Vec<_> = (0..6).map(|before| fail.strikes(before)).collect();
        assert_eq!(struck, [false, false, true, true, false, false]);
        assert!(Fail::always("cuInit", 2).strikes(9));
        let fault = |entry| Fault::new(entry, FaultKind::Hang);
        assert!(fault("mma_f16").strikes("mma_f16") && fault("mma_*").strikes("mma_f16"));
        assert!(!fault("mma_f16").strikes("mma_f16_f32") && !fault("mma_*").strikes("wgmma_f16"));
    }
}
