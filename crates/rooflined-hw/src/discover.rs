//! What the machine is, and where its changing values are to be read.

use std::collections::BTreeMap;

use super::cgroup::{self, Limits};
use super::hidden::Hidden;
use super::identity::{Found, gpu, identify, mig_instances};
use super::modes::ModeRule;
use super::nvml::{Facts, Nvml};
use super::source::{Device, Discover, DiscoveryContext, Plan, Reader};
use super::sources::memory::{MEMINFO, limited};
use super::sources::{HWMON, SOURCES, cpufreq, online};
use super::{ONLINE, SIMULATED, STAT, SysRoot, cpu, emc, first_of, modes};
use rooflined_core::board::nvpmodel::gating_settings;
use rooflined_core::board::{Board, Cpu, Memory, PowerMode, Reading, parse};
use rooflined_core::units::Hertz;

/// Where the changing values of one machine are. Found once, at start; read at every sample.
pub struct Discovered {
    pub(super) plan: Plan,
    pub(super) readers: Vec<Reader>,
    /// Where NVML answers.
    pub(super) nvml: Option<Nvml>,
    pub(super) modes: ModeRule,
    /// Why there is no GPU, where there is none.
    pub(super) no_gpu: String,
    gpu_fault: Option<String>,
}

/// Readers are closures, so the plan and the modes stand for them.
impl std::fmt::Debug for Discovered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Discovered").field(&self.plan).field(&self.modes).finish()
    }
}

impl Discovered {
    /// Why a GPU that is there cannot be used by this process; `None` where it can, and where there is none.
    #[must_use]
    pub fn gpu_fault(&self) -> Option<&str> {
        self.gpu_fault.as_deref()
    }
}

/// Finds out what the machine under `root` is and what it can tell.
#[must_use]
pub fn discover(root: &SysRoot) -> (Board, Discovered) {
    discover_with(root, SOURCES)
}

/// The same with another table of sources.
pub(super) fn discover_with(root: &SysRoot, table: &[Discover]) -> (Board, Discovered) {
    let mut sources = BTreeMap::new();
    let mut cpu = cpu::discover(root, &mut sources);
    cpu.max_clock = cpufreq::max_clock(root).map(|(clock, files)| {
        sources.insert("cpu.max_clock".into(), files);
        clock
    });
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
    let memory = super::parsed(MEMINFO, root.read(MEMINFO), "MemTotal", parse::meminfo);
    if memory.known().is_some() {
        sources.insert("memory_total".into(), MEMINFO.into());
    }
    let limits = Limits::discover(root);
    let modes = modes::discover(root);
    let who = identify(
        root,
        &Found {
            model: model.known().map(String::as_str),
            memory: memory.known().map(|memory| memory.total),
            cpus: cpu.logical,
            modes: modes.known(),
        },
    );
    let modes = who.modes.map_or(modes, Reading::Known);
    if let Reading::Known(modes) = &modes {
        sources.insert("modes".into(), modes.source.clone());
    }
    let mut notes = who.notes;
    let device = who.device;
    let (no_gpu, gpu) = match who.gpu {
        Ok(driver) => {
            let is_divided = !mig_instances(root).is_empty();
            let gpu = gpu(device.as_ref(), who.nominal.as_ref(), who.facts.clone(), driver, is_divided);
            // Nothing answers about a GPU that cannot be used.
            let unusable = who.gpu_fault.clone().filter(|_| who.nvml.is_none() && who.chip.is_none());
            (unusable.unwrap_or_default(), Reading::Known(gpu))
        }
        Err(reason) => (reason.clone(), Reading::absent(reason)),
    };
    let memory = memory.map(|memory| limited_memory(root, &limits, memory, &mut notes));
    limit_cpus(root, &limits, &mut cpu, &mut notes);
    let rule = ModeRule {
        chip: who.chip,
        sm: who.nominal.as_ref().map(|nominal| nominal.sm),
        cpu_clocks: cpufreq::clocks(root),
        modes: modes.clone(),
        cpu_max: cpu.max_clock.known().copied(),
        gpu_clocks: device.as_ref().map(|device| device.clocks.clone()).unwrap_or_default(),
        gpu_max: who.nominal.as_ref().map(|nominal| nominal.gpu_clock),
    };
    let context = DiscoveryContext {
        root,
        hwmon: Device::all(root, HWMON, "hwmon", "name"),
        chip: who.chip,
        gpu: device,
        nvml: who.nvml,
        nominal: who.nominal,
        starved_below: who.facts.as_ref().filter(|_| who.unified_memory).and_then(starved_below),
        limits,
        has_modes: modes.known().is_some(),
        modes_tell_sm: modes.known().is_some_and(|modes| modes.modes.iter().any(gates)),
        no_tegra: who.no_tegra,
    };
    let mut plan = Plan::default();
    let readers = table.iter().filter_map(|discover| discover(&context, &mut plan)).collect();
    sources.extend(plan.origins.iter().map(|(field, files)| (format!("state.{field}"), files.join(", "))));
    sources.extend(who.sources);
    let hidden = Hidden::under(root);
    notes.extend(hidden.notes());
    cpu.model = hidden.explain(cpu.model);
    cpu.cores = hidden.explain(cpu.cores);
    cpu.max_clock = hidden.explain(cpu.max_clock);
    let board = Board {
        key: who.key,
        notes,
        model: hidden.explain(model),
        kernel: hidden.explain(kernel),
        os,
        machine,
        module: hidden.explain(who.module),
        l4t: who.l4t,
        cpu,
        gpu,
        memory_clock_max: emc::admitted(root),
        modes,
        memory_total: hidden.explain(memory.map(|memory| memory.total)),
        unified_memory: who.unified_memory,
        simulated: root.path(SIMULATED).exists(),
        sources,
    };
    let nvml = context.nvml;
    (board, Discovered { plan, readers, nvml, modes: rule, no_gpu, gpu_fault: who.gpu_fault })
}

/// Whether a mode gates units of the GPU by a mask, whatever it means.
fn gates(mode: &PowerMode) -> bool {
    gating_settings(mode).next().is_some()
}

/// What control groups leave of the memory.
fn limited_memory(root: &SysRoot, limits: &Limits, memory: Memory, notes: &mut Vec<String>) -> Memory {
    let left = limited(&limits.memory, memory, |path| root.read(path).ok());
    if left.total < memory.total {
        let limit = |path: &&String| {
            let text = root.read(path).ok()?;
            cgroup::limit(std::iter::once(text.as_str()))
        };
        let files = limits.memory.iter().flat_map(|level| &level.limits);
        let lowest = files.filter(|path| limit(path).is_some()).min_by_key(limit);
        notes.push(format!(
            "this process gets {} of {} of memory: {}",
            left.total,
            memory.total,
            lowest.map_or("a control group", String::as_str)
        ));
    }
    left
}

/// What control groups leave of the CPUs.
fn limit_cpus(root: &SysRoot, limits: &Limits, cpu: &mut Cpu, notes: &mut Vec<String>) {
    let Reading::Known(online) = online::listed(root.read(ONLINE), || root.read(STAT)) else { return };
    let count = |cpus: &[u32]| u32::try_from(cpus.len()).unwrap_or(u32::MAX);
    let mut most = u32::MAX;
    if limits.hides_some(&online, cpu.logical) {
        most = count(&online);
        notes.push(format!("this container shows {most} of {} CPUs: {ONLINE}", cpu.logical));
    }
    if let Some(note) = limits.cpu_note(&online) {
        notes.push(note);
        most = limits.granted(count(&limits.allowed(online)));
    }
    cpu.logical = cpu.logical.min(most);
    cpu.cores = cpu.cores.clone().map(|cores| cores.min(most));
}

/// The lowest clocks seen under load are seven tenths of the highest; a starved GPU has less than two.
fn starved_below(facts: &Facts) -> Option<Hertz> {
    facts.max_clock.known().map(|clock| *clock * 0.3)
}

/// Device-tree model, which containers hide and the chip's own device repeats; else DMI vendor and product.
fn model(root: &SysRoot) -> Reading<(String, String)> {
    const PRODUCT: &str = "/sys/class/dmi/id/product_name";
    let tree = first_of(root, &["/proc/device-tree/model", "/sys/devices/soc0/machine"], parse::label);
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
