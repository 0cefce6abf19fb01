//! What the machine is, and where its changing values are to be read.

use std::collections::BTreeMap;

use super::file::Kept;
use super::identity::{gpu, identify};
use super::nvml::{Facts, Nvml};
use super::patience::Patience;
use super::tegra::TegraFiles;
use super::throttle::OverCurrent;
use super::total::TotalRule;
use super::{SIMULATED, SysRoot, cpu, ina3221, modes, power, tegra, total};
use crate::board::{Board, PowerModes, Reading, parse};
use crate::hardware::Hardware;
use crate::units::Hertz;

/// Where the changing values of one machine are. Found once, at start; read at every sample.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Discovered {
    /// CPU frequency policies.
    pub policies: Vec<Policy>,
    /// Thermal zones.
    pub zones: Vec<Zone>,
    /// Power sensors and energy counters.
    pub rails: Vec<RailSource>,
    /// Which rails make up the power of the whole machine; `None` where no rule is known.
    pub total: Option<TotalRule>,
    /// What is not at rest while something slows a processor down.
    pub alarms: Vec<Alarm>,
    /// Counters of over-current events.
    pub over_current: Vec<OverCurrent>,
    /// Intel's counters of throttling events.
    pub throttle_counters: Vec<String>,
    /// A Tegra's GPU and memory clock.
    pub tegra: Option<TegraFiles>,
    /// Where NVML answers.
    pub nvml: Option<Nvml>,
    /// What data sheets say of this hardware.
    pub nominal: Option<Hardware>,
    /// The power modes, or why there are none.
    pub modes: Option<Reading<PowerModes>>,
    /// Why there is no GPU, where there is none.
    pub no_gpu: String,
    /// A GPU clock below this, under load and without a reason named, is a fault of the supply (GB10).
    pub starved_below: Option<Hertz>,
    /// Highest CPU clock.
    pub cpu_max: Option<Hertz>,
}

/// A directory of cpufreq, and the CPUs that share its clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// `/sys/devices/system/cpu/cpufreq/policyN`.
    pub dir: String,
    /// CPUs that share this clock, online or not.
    pub cpus: Vec<u32>,
}

/// A thermal zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Its `type`, or the name of its directory where it has none.
    pub name: String,
    /// Its `temp` file.
    pub path: String,
}

/// A file that tells power.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RailSource {
    /// What it measures.
    pub name: String,
    /// Name of the sensor's driver; empty where there is none.
    pub device: String,
    /// The file.
    pub path: String,
    /// The file of the current, where the first is that of a voltage.
    pub current: Option<String>,
    /// What the file counts.
    pub counter: Counter,
    /// Milliseconds to a new value, or that it averages over; `None` where the driver does not tell.
    pub update_ms: Option<u64>,
}

/// What the file of a rail counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Power in µW.
    Power,
    /// Power in mW.
    Milliwatts,
    /// Voltage in mV; a second file has the current in mA.
    MilliwattsByProduct,
    /// Energy in µJ since some time ago.
    Energy {
        /// Value after which it starts again at zero; `None` where the driver does not tell.
        wraps_after: Option<u64>,
    },
}

/// A file that holds 0 unless something slows a processor down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// What it is, as evidence names it.
    pub name: String,
    /// The file.
    pub path: String,
}

/// Finds out what the machine under `root` is and what it can tell.
#[must_use]
pub fn discover(root: &SysRoot) -> (Board, Discovered) {
    let mut sources = BTreeMap::new();
    let mut cpu = cpu::discover(root, &mut sources);
    let policies = policies(root);
    cpu.max_clock = max_clock(root, &policies);
    if cpu.max_clock.known().is_some() {
        sources.insert("cpu.max_clock".into(), format!("{CPUFREQ}/policy*/cpuinfo_max_freq"));
    }
    let mut from = |field: &str, found: Reading<(String, String)>| {
        found.map(|(value, file)| {
            sources.insert(field.into(), file);
            value
        })
    };
    let model = from("model", model(root));
    let kernel = from("kernel", first_of(root, &["/proc/sys/kernel/osrelease"], parse::label));
    let os = from(
        "os",
        first_of(root, &["/etc/os-release", "/usr/lib/os-release"], |text| {
            parse::os_release(text, "PRETTY_NAME").or_else(|| parse::os_release(text, "NAME"))
        }),
    );
    let machine =
        from("machine", first_of(root, &["/etc/machine-id", "/var/lib/dbus/machine-id"], machine_hash));
    let memory = super::parsed("/proc/meminfo", root.read("/proc/meminfo"), "MemTotal", parse::meminfo);
    if memory.known().is_some() {
        sources.insert("memory_total".into(), "/proc/meminfo".into());
    }
    let rails = power::rails(root);
    let (over_current, mut alarms) = hwmon_evidence(root);
    alarms.splice(0..0, cooling(root));
    let who = identify(root, model.known().map(String::as_str), memory.known().map(|memory| memory.total));
    let modes = modes::discover(root);
    if let Reading::Known(modes) = &modes {
        sources.insert("modes".into(), modes.source.clone());
    }
    let discovered = Discovered {
        zones: zones(root),
        total: total::rule(&rails),
        rails,
        alarms,
        over_current,
        throttle_counters: throttle_counters(root),
        policies,
        tegra: who.chip.map(|chip| tegra::discover(root, chip)),
        nvml: who.nvml,
        nominal: who.nominal,
        modes: Some(modes.clone()),
        no_gpu: who.gpu.as_ref().err().cloned().unwrap_or_default(),
        starved_below: who.facts.as_ref().filter(|_| who.unified_memory).and_then(starved_below),
        cpu_max: cpu.max_clock.known().copied(),
    };
    discovered.note_sources(root, &mut sources);
    sources.extend(who.sources);
    let gpu = match who.gpu {
        Ok(facts) => Reading::Known(gpu(&discovered, who.facts, facts)),
        Err(reason) => Reading::absent(reason),
    };
    let board = Board {
        key: who.key,
        model,
        kernel,
        os,
        machine,
        module: who.module,
        l4t: who.l4t,
        cpu,
        gpu,
        modes,
        memory_total: memory.map(|memory| memory.total),
        unified_memory: who.unified_memory,
        simulated: root.path(SIMULATED).exists(),
        sources,
    };
    (board, discovered)
}

/// The lowest clocks seen under load are seven tenths of the highest; a starved GPU has less than two.
fn starved_below(facts: &Facts) -> Option<Hertz> {
    facts.max_clock.known().map(|clock| *clock * 0.3)
}

impl Discovered {
    fn note_sources(&self, root: &SysRoot, sources: &mut BTreeMap<String, String>) {
        let mut from = |field: &str, files: &str, found: bool| {
            if found {
                sources.insert(field.into(), files.into());
            }
        };
        from("state.cpu_clocks", &format!("{CPUFREQ}/policy*/scaling_cur_freq"), !self.policies.is_empty());
        from(
            "state.cpu_clock_cap",
            &format!("{CPUFREQ}/policy*/scaling_max_freq"),
            !self.policies.is_empty(),
        );
        from("state.temperatures", &format!("{THERMAL}/thermal_zone*/temp"), !self.zones.is_empty());
        let of = |dir: &&str| self.rails.iter().any(|rail| rail.path.starts_with(dir));
        let rails: Vec<&str> = [ina3221::I2C, power::HWMON, power::POWERCAP].into_iter().filter(of).collect();
        from("state.rails", &rails.join(", "), !rails.is_empty());
        let exists = |file: &str| root.path(file).is_file();
        from("state.cores_online", super::ONLINE, exists(super::ONLINE));
        from("state.memory", "/proc/meminfo", exists("/proc/meminfo"));
        from("state.load", "/proc/loadavg, /proc/stat", exists("/proc/loadavg"));
        let pressure = "/proc/pressure/memory, /proc/pressure/cpu";
        from("state.pressure", pressure, exists("/proc/pressure/memory"));
        let cooling = self.alarms.iter().any(|alarm| alarm.path.starts_with(THERMAL));
        let hwmon = self.alarms.iter().any(|alarm| alarm.path.starts_with(power::HWMON));
        let counters = format!("{CPUS}/cpu*/thermal_throttle");
        let devices = format!("{THERMAL}/cooling_device*/cur_state");
        let events = format!("{}/hwmon*/oc*_event_cnt", power::HWMON);
        let prochot = format!("{}/hwmon*/prochot", power::HWMON);
        let evidence: Vec<&str> = [
            (&counters, !self.throttle_counters.is_empty()),
            (&devices, cooling),
            (&events, !self.over_current.is_empty()),
            (&prochot, hwmon),
        ]
        .into_iter()
        .filter_map(|(files, found)| found.then_some(files.as_str()))
        .collect();
        from("state.throttle", &evidence.join(", "), !evidence.is_empty());
        from("state.power_mode", modes::STATUS, matches!(self.modes, Some(Reading::Known(_))));
        if let Some(tegra) = &self.tegra {
            tegra.note_sources(sources);
        }
    }
}

const CPUS: &str = "/sys/devices/system/cpu";
const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";
pub(super) const THERMAL: &str = "/sys/class/thermal";

/// The first of several files that holds something, with its path; otherwise why the first holds nothing.
pub(super) fn first_of<T>(
    root: &SysRoot,
    files: &[&str],
    parse: impl Fn(&str) -> Option<T>,
) -> Reading<(T, String)> {
    let mut reason = None;
    for file in files {
        match root.read(file) {
            Ok(text) => match parse(&text) {
                Some(value) => return Reading::Known((value, (*file).to_owned())),
                None => reason.get_or_insert_with(|| format!("{file} holds {}", super::excerpt(&text))),
            },
            Err(error) => reason.get_or_insert_with(|| error.to_string()),
        };
    }
    Reading::absent(reason.unwrap_or_default())
}

/// Device-tree model, else DMI vendor and product.
fn model(root: &SysRoot) -> Reading<(String, String)> {
    const PRODUCT: &str = "/sys/class/dmi/id/product_name";
    let tree = first_of(root, &["/proc/device-tree/model"], parse::label);
    if tree.known().is_some() {
        return tree;
    }
    let product = first_of(root, &[PRODUCT, "/sys/class/dmi/id/board_name"], parse::dmi_string);
    let vendor = root.read("/sys/class/dmi/id/sys_vendor").ok().and_then(|text| parse::dmi_string(&text));
    match product {
        Reading::Known((product, file)) => Reading::Known(match vendor {
            Some(vendor) if !product.starts_with(&vendor) => (format!("{vendor} {product}"), file),
            _ => (product, file),
        }),
        absent => match absent.reason() {
            Some(reason) => Reading::absent(format!("no /proc/device-tree/model; {reason}")),
            None => absent,
        },
    }
}

/// Sixteen hexadecimal digits that stand for a machine id: FNV-1a (64 bits) over `rooflined machine 1\n` and the id.
///
/// The id itself is confidential, see machine-id(5). Of its 128 bits 64 are lost here, so it cannot be computed back.
fn machine_hash(text: &str) -> Option<String> {
    let id = text.trim();
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hash =
        b"rooflined machine 1\n".iter().chain(id.as_bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    is_id.then(|| format!("{hash:016x}"))
}

/// The texts of small files that name things, in the order asked. They too lie behind drivers, so with patience.
pub(super) fn ask(root: &SysRoot, files: impl Iterator<Item = String>) -> Vec<Option<String>> {
    let answers = Patience::new(files.map(|file| Kept::patient(root, file)).collect()).read_all();
    answers.into_iter().map(|answer| answer.ok().map(|(text, _)| text)).collect()
}

fn policies(root: &SysRoot) -> Vec<Policy> {
    let policies = root.numbered(CPUFREQ, "policy").into_iter().map(|(number, name)| {
        let dir = format!("{CPUFREQ}/{name}");
        let cpus = root.read(&format!("{dir}/related_cpus")).ok();
        let cpus = cpus
            .and_then(|text| parse::cpu_list(&text.split_ascii_whitespace().collect::<Vec<_>>().join(",")));
        Policy { dir, cpus: cpus.filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| vec![number]) }
    });
    policies.collect()
}

fn max_clock(root: &SysRoot, policies: &[Policy]) -> Reading<Hertz> {
    let mut reason = None;
    let clocks = policies.iter().filter_map(|policy| {
        let file = format!("{}/cpuinfo_max_freq", policy.dir);
        let clock = super::parsed(&file, root.read(&file), "a clock in kHz", parse::kilohertz);
        reason = reason.take().or_else(|| clock.reason().map(str::to_owned));
        clock.known().copied()
    });
    let highest = clocks.reduce(Hertz::max);
    highest.map_or_else(
        || {
            Reading::absent(
                reason.unwrap_or_else(|| format!("no {CPUFREQ}/policy*: this kernel has no cpufreq driver")),
            )
        },
        Reading::Known,
    )
}

/// Directories `prefixN` of `class` with the label of their file `name`.
fn named(root: &SysRoot, class: &str, prefix: &str, name: &str) -> Vec<(String, String)> {
    let dirs: Vec<String> = root.numbered(class, prefix).into_iter().map(|(_, dir)| dir).collect();
    let texts = ask(root, dirs.iter().map(|dir| format!("{class}/{dir}/{name}")));
    let named = texts.into_iter().zip(&dirs).map(|(text, dir)| {
        let label = text.and_then(|text| parse::label(&text)).unwrap_or_else(|| dir.clone());
        (label, format!("{class}/{dir}"))
    });
    named.collect()
}

fn zones(root: &SysRoot) -> Vec<Zone> {
    named(root, THERMAL, "thermal_zone", "type")
        .into_iter()
        .map(|(name, dir)| Zone { name, path: format!("{dir}/temp") })
        .collect()
}

/// Cooling devices that lower a clock. Fans and the like cool without slowing anything down.
fn cooling(root: &SysRoot) -> Vec<Alarm> {
    named(root, THERMAL, "cooling_device", "type")
        .into_iter()
        .filter(|(name, _)| {
            name == "Processor"
                || ["cpufreq-", "devfreq-", "thermal-cpufreq-", "thermal-devfreq-"].iter().any(|prefix| name.starts_with(prefix))
                || name.ends_with("throttle-alert")
                // The GPU's devfreq device, by its name in the device tree.
                || [".gpu", ".ga10b", ".gv11b"].iter().any(|suffix| name.ends_with(suffix))
        })
        .map(|(name, dir)| Alarm { name: format!("cooling device {name}"), path: format!("{dir}/cur_state") })
        .collect()
}

/// What hwmon tells of throttling: Jetson's counters of over-current events, and GB10's alarm.
fn hwmon_evidence(root: &SysRoot) -> (Vec<OverCurrent>, Vec<Alarm>) {
    let (mut counters, mut alarms) = (Vec::new(), Vec::new());
    let is_there = |path: &str| root.path(path).symlink_metadata().is_ok();
    for (name, dir) in named(root, power::HWMON, "hwmon", "name") {
        match name.as_str() {
            "soctherm_oc" => {
                let files = (1..=3).map(|number| (number, format!("{dir}/oc{number}_event_cnt")));
                let files = files.filter(|(_, path)| is_there(path));
                counters.extend(files.map(|(number, path)| OverCurrent { path, number }));
            }
            "spbm" => {
                let path = format!("{dir}/prochot");
                if is_there(&path) {
                    alarms.push(Alarm { name: "prochot".into(), path });
                }
            }
            _ => {}
        }
    }
    (counters, alarms)
}

/// Intel's counters of thermal throttling. One core counter per policy would miss cores, so all are kept.
fn throttle_counters(root: &SysRoot) -> Vec<String> {
    let counters = root.numbered(CPUS, "cpu").into_iter().take(1024).flat_map(|(_, cpu)| {
        ["core_throttle_count", "package_throttle_count"]
            .map(|file| format!("{CPUS}/{cpu}/thermal_throttle/{file}"))
    });
    counters.filter(|file| root.path(file).exists()).collect()
}
