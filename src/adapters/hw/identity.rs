//! Which machine this is: a Jetson by its device tree, a GB10 or a card by its name in NVML, else plain Linux.

use std::collections::BTreeMap;

use super::devfreq::{self, GpuDevice};
use super::nvml::{Facts, Nvml};
use super::{SysRoot, first_of};
use roofline::board::identity::{self, Chip, Evidence};
use roofline::board::{Gpu, GpuDriver, PowerModes, Reading, parse};
use roofline::hardware::{Hardware, Kind, known};
use roofline::units::Bytes;

const COMPATIBLE: &str = "/proc/device-tree/compatible";
const BOOT: &str = "/etc/nv_boot_control.conf";
const RELEASE: &str = "/etc/nv_tegra_release";
/// The key of a machine whose accelerator is its CPU.
const PLAIN: &str = "cpu";

/// Which machine it is, with the files that say so.
pub(super) struct Identity {
    pub key: String,
    pub module: Reading<String>,
    pub l4t: Reading<String>,
    pub chip: Option<Chip>,
    pub nvml: Option<Nvml>,
    pub facts: Option<Facts>,
    pub nominal: Option<Hardware>,
    /// What answers about the GPU, or why nothing does.
    pub gpu: Result<GpuDriver, String>,
    pub unified_memory: bool,
    /// The device that clocks a Tegra's GPU.
    pub device: Option<GpuDevice>,
    /// What was assumed, and what of the board speaks against it.
    pub notes: Vec<String>,
    pub sources: BTreeMap<String, String>,
}

/// What is known of a machine before it is known which one it is.
pub(super) struct Found<'a> {
    pub model: Option<&'a str>,
    pub memory: Option<Bytes>,
    pub cpus: u32,
    pub modes: Option<&'a PowerModes>,
}

/// Finds out which machine `root` is.
pub(super) fn identify(root: &SysRoot, found: &Found<'_>) -> Identity {
    let compatible = root.read(COMPATIBLE).unwrap_or_default();
    let compatible = parse::device_tree_strings(&compatible);
    match Chip::of(&compatible) {
        Some(chip) => tegra(root, chip, &compatible, found),
        None => by_nvml(root),
    }
}

fn tegra(root: &SysRoot, chip: Chip, compatible: &[String], found: &Found<'_>) -> Identity {
    let boot = root.read(BOOT).ok().and_then(|text| identity::boot_module(&text));
    let module = identity::module(compatible);
    let device = devfreq::device(root);
    let identified = identity::jetson(Evidence {
        compatible,
        boot_module: boot.as_deref(),
        memory: found.memory,
        cpus: Some(found.cpus),
        has_gpu: device.is_some(),
        modes: found.modes.map(|modes| modes.source.as_str()),
    });
    let l4t = first_of(root, &[RELEASE], identity::l4t_release);
    let mut sources = BTreeMap::new();
    let mut from = |field: &str, file: &str| sources.insert(field.to_owned(), file.to_owned());
    if module.is_some() {
        from("module", COMPATIBLE);
    }
    if l4t.known().is_some() {
        from("l4t", RELEASE);
    }
    if identified.is_some() {
        from("key", if boot.is_some() && chip == Chip::Tegra264 { BOOT } else { COMPATIBLE });
        from("gpu", COMPATIBLE);
    }
    // Orin's library says no more than its name and version, and JetPack 5 has none. On an IGX with a card it is the card's.
    let nvml = Nvml::discover(root).ok();
    let (card, nvml) = match nvml {
        Some((_, Facts { name: Reading::Known(name), .. })) if !identity::is_integrated(&name) => {
            (Some(name), None)
        }
        nvml => (None, nvml),
    };
    let (nvml, facts) = nvml.map_or((None, None), |(nvml, facts)| (Some(nvml), Some(facts)));
    let gpu = match identified {
        Some(_) => Ok(GpuDriver::Devfreq),
        None => Err(unrecognised(module.as_deref(), found.model)),
    };
    let mut notes = Vec::new();
    let mut key = PLAIN.to_owned();
    let mut fitted = None;
    if let Some(identified) = identified {
        let most_sm = found.modes.and_then(most_sm);
        fitted = nominal(identified.key);
        notes = identified.notes;
        if let Some(entry) = &mut fitted {
            if identified.unlisted {
                let from = found.modes.map_or("", |modes| modes.source.as_str());
                notes.push(match most_sm {
                    Some(sm) => {
                        format!("the power modes of {from} leave {sm} SMs on at most, and that counts")
                    }
                    None => {
                        format!("nothing tells how many SMs it has: {} is the most of its family", entry.sm)
                    }
                });
                entry.sm = most_sm.map_or(entry.sm, |sm| sm.min(entry.sm));
            }
            let highest = device.as_ref().and_then(|device| device.clocks.last()).copied();
            notes.extend(entry.contradictions(found.memory, most_sm, highest));
        }
        notes.extend(
            card.map(|card| format!("NVML tells of {card}, a card beside this module: it is left alone")),
        );
        identified.key.clone_into(&mut key);
    }
    Identity {
        gpu,
        notes,
        nominal: fitted,
        key,
        device,
        module: module
            .map_or_else(|| Reading::absent(format!("{COMPATIBLE} holds no part number")), Reading::Known),
        l4t: l4t.map(|(release, _)| release),
        chip: Some(chip),
        nvml: nvml.filter(|_| chip == Chip::Tegra264),
        facts,
        unified_memory: true,
        sources,
    }
}

/// The SMs that the power modes leave on at most; `None` where no mode tells.
fn most_sm(modes: &PowerModes) -> Option<u32> {
    modes.modes.iter().filter_map(|mode| mode.sm_online).max()
}

fn unrecognised(module: Option<&str>, model: Option<&str>) -> String {
    let module = module.map_or_else(|| "no part number".to_owned(), |module| format!("module {module}"));
    let model = model.map_or_else(|| "no model".to_owned(), |model| format!("model {model:?}"));
    format!("this Tegra is none that the hardware registry has: {module}, {model}")
}

fn by_nvml(root: &SysRoot) -> Identity {
    let no_tree = |what: &str| Reading::absent(format!("{what} of Jetsons only: no {COMPATIBLE} of a Tegra"));
    let plain = |gpu: Result<GpuDriver, String>| Identity {
        key: PLAIN.into(),
        module: no_tree("a module number"),
        l4t: no_tree("NVIDIA's board support"),
        chip: None,
        nvml: None,
        facts: None,
        nominal: None,
        gpu,
        unified_memory: false,
        device: None,
        notes: Vec::new(),
        sources: BTreeMap::new(),
    };
    let (nvml, facts) = match Nvml::discover(root) {
        Ok(found) => found,
        Err(reason) => return plain(Err(format!("no NVIDIA GPU: {reason}"))),
    };
    let name = facts.name.known().cloned();
    let by_key = || nominal(&identity::gpu_key(name.as_deref()?)?);
    let by_name = || known().named(name.as_deref()?).cloned();
    let Some(nominal) = by_key().or_else(by_name) else {
        let name = name.map_or_else(|| "it has no name".into(), |name| format!("its name is {name:?}"));
        return plain(Err(format!("NVML's GPU is none that the hardware registry has: {name}")));
    };
    let source = match &nvml {
        Nvml::Library(_) => "NVML",
        Nvml::Files { dir } => dir.as_str(),
    };
    Identity {
        unified_memory: nominal.kind == Kind::Integrated,
        key: nominal.key.clone(),
        nominal: Some(nominal),
        sources: ["key", "gpu"].map(|field| (field.to_owned(), source.to_owned())).into(),
        facts: Some(facts),
        nvml: Some(nvml),
        ..plain(Ok(GpuDriver::Nvml))
    }
}

/// What data sheets say of the hardware with this key.
fn nominal(key: &str) -> Option<Hardware> {
    known().get(key).cloned()
}

/// What does not change of the GPU.
pub(super) fn gpu(
    device: Option<&GpuDevice>,
    nominal: Option<&Hardware>,
    facts: Option<Facts>,
    driver: GpuDriver,
) -> Gpu {
    let device = device.filter(|_| driver == GpuDriver::Devfreq);
    let clocks = device.map(|device| device.clocks.clone()).unwrap_or_default();
    let node = device.and_then(|device| device.dir.rsplit('/').next());
    let no_nvml = || Reading::absent("neither NVML nor a devfreq device names the GPU");
    let (name, version, highest) = match facts {
        Some(facts) => (facts.name, facts.driver_version, facts.max_clock),
        None => {
            (no_nvml(), Reading::absent("no NVML tells the driver's version"), Reading::absent("no NVML"))
        }
    };
    let name = match (name, node) {
        (Reading::Known(name), _) => Reading::Known(name),
        (_, Some(node)) => Reading::Known(node.to_owned()),
        (absent, None) => absent,
    };
    let max_clock = clocks.last().copied().or_else(|| highest.known().copied());
    Gpu {
        name,
        driver,
        sm_total: nominal.map_or_else(
            || Reading::absent("the hardware registry has no entry of this machine"),
            |nominal| Reading::Known(nominal.sm),
        ),
        max_clock: max_clock.or_else(|| nominal.map(|nominal| nominal.gpu_clock)).map_or_else(
            || Reading::absent("neither a table of clocks nor NVML tells the highest clock of the GPU"),
            Reading::Known,
        ),
        clocks,
        driver_version: version,
    }
}
