//! What the machine is, and where its changing values are to be read.

use std::collections::BTreeMap;

use super::file::Kept;
use super::patience::Patience;
use super::{SysRoot, cpu, power};
use crate::board::{Board, Reading, parse};
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
    /// Cooling devices that slow a processor down: in use, they are evidence of throttling.
    pub cooling: Vec<CoolingDevice>,
    /// Counters of throttling events.
    pub throttle_counters: Vec<String>,
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
    /// The file.
    pub path: String,
    /// What the file counts.
    pub counter: Counter,
}

/// What the file of a rail counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Power in µW.
    Power,
    /// Energy in µJ since some time ago.
    Energy {
        /// Value after which it starts again at zero; `None` where the driver does not tell.
        wraps_after: Option<u64>,
    },
}

/// A cooling device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoolingDevice {
    /// Its `type`.
    pub name: String,
    /// Its `cur_state` file.
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
    let compatible = root.read("/proc/device-tree/compatible").unwrap_or_default();
    let compatible = parse::device_tree_strings(&compatible);
    let discovered = Discovered {
        zones: zones(root),
        rails: power::rails(root),
        cooling: cooling(root),
        throttle_counters: throttle_counters(root),
        policies,
    };
    discovered.note_sources(root, &mut sources);
    let board = Board {
        // Reading a Tegra's GPU, memory clock and modes needs more than plain Linux tells, so its key is not claimed.
        key: "cpu".into(),
        model,
        kernel,
        os,
        machine,
        module: Reading::absent("not read yet"),
        l4t: Reading::absent("not read yet"),
        cpu,
        gpu: Reading::absent("no GPU that this version can read"),
        modes: Reading::absent("no power modes on this machine: no nvpmodel"),
        memory_total: memory.map(|memory| memory.total),
        unified_memory: compatible.iter().any(|name| name.starts_with("nvidia,tegra")),
        simulated: false,
        sources,
    };
    (board, discovered)
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
        let hwmon = self.rails.iter().any(|rail| rail.path.starts_with(power::HWMON));
        let powercap = self.rails.iter().any(|rail| rail.path.starts_with(power::POWERCAP));
        let rails = match (hwmon, powercap) {
            (true, true) => format!("{}, {}", power::HWMON, power::POWERCAP),
            (true, false) => power::HWMON.into(),
            _ => power::POWERCAP.into(),
        };
        from("state.rails", &rails, hwmon || powercap);
        let exists = |file: &str| root.path(file).is_file();
        from("state.cores_online", super::ONLINE, exists(super::ONLINE));
        from("state.memory", "/proc/meminfo", exists("/proc/meminfo"));
        from("state.load", "/proc/loadavg, /proc/stat", exists("/proc/loadavg"));
        let pressure = "/proc/pressure/memory, /proc/pressure/cpu";
        from("state.pressure", pressure, exists("/proc/pressure/memory"));
        let counters = format!("{CPUS}/cpu*/thermal_throttle");
        let devices = format!("{THERMAL}/cooling_device*/cur_state");
        let evidence: Vec<&str> =
            [(&counters, self.throttle_counters.is_empty()), (&devices, self.cooling.is_empty())]
                .into_iter()
                .filter_map(|(files, none)| (!none).then_some(files.as_str()))
                .collect();
        from("state.throttle", &evidence.join(", "), !evidence.is_empty());
    }
}

const CPUS: &str = "/sys/devices/system/cpu";
const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";
pub(super) const THERMAL: &str = "/sys/class/thermal";

/// The first of several files that holds something, with its path; otherwise why the first holds nothing.
fn first_of<T>(root: &SysRoot, files: &[&str], parse: impl Fn(&str) -> Option<T>) -> Reading<(T, String)> {
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
fn cooling(root: &SysRoot) -> Vec<CoolingDevice> {
    named(root, THERMAL, "cooling_device", "type")
        .into_iter()
        .filter(|(name, _)| {
            name == "Processor"
                || ["cpufreq-", "devfreq-"].iter().any(|prefix| name.starts_with(prefix))
                || name.ends_with("throttle-alert")
        })
        .map(|(name, dir)| CoolingDevice { name, path: format!("{dir}/cur_state") })
        .collect()
}

/// Intel's counters of thermal throttling. One core counter per policy would miss cores, so all are kept.
fn throttle_counters(root: &SysRoot) -> Vec<String> {
    let counters = root.numbered(CPUS, "cpu").into_iter().take(1024).flat_map(|(_, cpu)| {
        ["core_throttle_count", "package_throttle_count"]
            .map(|file| format!("{CPUS}/{cpu}/thermal_throttle/{file}"))
    });
    counters.filter(|file| root.path(file).exists()).collect()
}
