//! Which machine this is: a Jetson by its device tree, a GB10 or a card by its name in NVML, else plain Linux.

use std::collections::BTreeMap;

use super::devfreq::{self, GpuDevice};
use super::nvml::{Facts, Nvml};
use super::pci::{self, OnBus};
use super::{ReadError, SysRoot, first_of};
use rooflined_core::board::identity::{self, Chip, Evidence};
use rooflined_core::board::{Gpu, GpuDriver, PowerModes, Reading, parse};
use rooflined_core::configuration::gpu_as_accelerator;
use rooflined_core::hardware::{GpuParts, Hardware, Kind, known};
use rooflined_core::units::Bytes;

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
    /// The power modes with the SMs that each leaves on, as far as they tell.
    pub modes: Option<PowerModes>,
    /// What answers about the GPU, or why nothing does.
    pub gpu: Result<GpuDriver, String>,
    /// Why a GPU that is there cannot be used.
    pub gpu_fault: Option<String>,
    /// Why a machine that is not taken for a Tegra is not.
    pub no_tegra: String,
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
    let text = root.read(COMPATIBLE);
    let compatible = parse::device_tree_strings(text.as_deref().unwrap_or_default());
    if let Some(chip) = Chip::of(&compatible) {
        return tegra(root, chip, &compatible, None, found);
    }
    if let Err(error) = &text
        && let Some((chip, names, betrayed)) = hidden_tegra(root)
    {
        let hidden = Hidden { why: error.to_string(), by: betrayed };
        return tegra(root, chip, &[names.to_owned()], Some(hidden), found);
    }
    by_nvml(root, &no_tegra(root, &text))
}

/// What tells of a Tegra whose device tree cannot be read: containers hide /sys/firmware.
struct Hidden {
    why: String,
    /// The file that betrays the chip.
    by: String,
}

/// A Tegra by what its fuses say, else by the names of its GPU's devices, else by what NVML calls it: the chip, its name in a
/// device tree, and the file.
fn hidden_tegra(root: &SysRoot) -> Option<(Chip, &'static str, String)> {
    const DEVFREQ: &str = "/sys/class/devfreq";
    const CHIP: &str = "/sys/devices/soc0";
    let of_chip = |file: &str| root.read(&format!("{CHIP}/{file}")).ok().and_then(|text| parse::label(&text));
    if of_chip("family").as_deref() == Some("Tegra") {
        // Decimal: the chip is called T234 by hexadecimal digits, 0x23.
        let (chip, compatible) = match of_chip("soc_id").as_deref() {
            Some("24") => (Chip::Tegra186, "nvidia,tegra186"),
            Some("25") => (Chip::Tegra194, "nvidia,tegra194"),
            Some("35") => (Chip::Tegra234, "nvidia,tegra234"),
            Some("38") => (Chip::Tegra264, "nvidia,tegra264"),
            _ => (Chip::Other, "nvidia,tegra"),
        };
        return Some((chip, compatible, format!("{CHIP}/soc_id")));
    }
    let of_name = |name: &str| match name {
        "17000000.gpu" => Some((Chip::Tegra234, "nvidia,tegra234")),
        _ if name.ends_with(".ga10b") => Some((Chip::Tegra234, "nvidia,tegra234")),
        _ if name.ends_with(".gv11b") => Some((Chip::Tegra194, "nvidia,tegra194")),
        _ if name.ends_with(".gp10b") => Some((Chip::Tegra186, "nvidia,tegra186")),
        _ if name.starts_with("gpu-gpc-") => Some((Chip::Tegra264, "nvidia,tegra264")),
        _ => None,
    };
    let by_device = root.names(DEVFREQ).into_iter().find_map(|name| {
        let (chip, compatible) = of_name(&name)?;
        Some((chip, compatible, format!("{DEVFREQ}/{name}")))
    });
    by_device.or_else(|| {
        let (nvml, facts) = Nvml::discover(root).ok()?;
        let name = facts.name.known()?;
        let has = |word: &str| identity::is_integrated(name) && name.contains(word);
        let by = format!("{} ({name})", source_of(&nvml));
        match () {
            () if has("Orin") => Some((Chip::Tegra234, "nvidia,tegra234", by)),
            () if has("Thor") => Some((Chip::Tegra264, "nvidia,tegra264", by)),
            () => None,
        }
    })
}

/// Why a machine is not taken for a Tegra.
fn no_tegra(root: &SysRoot, compatible: &Result<String, ReadError>) -> String {
    match compatible {
        Ok(text) => {
            let names = parse::device_tree_strings(text);
            let first = names.first().map_or("nothing", String::as_str);
            format!("this machine is not a Tegra: {COMPATIBLE} names {first}")
        }
        Err(ReadError::Missing { .. }) => {
            let cpuinfo = root.read_long("/proc/cpuinfo").unwrap_or_default();
            if parse::cpuinfo(&cpuinfo).architecture == Some("x86_64") {
                "this machine is not a Tegra: its processor is an x86".to_owned()
            } else if root.path("/sys/class/dmi/id").is_dir() {
                "this machine is not a Tegra: it has DMI tables and no device tree".to_owned()
            } else {
                format!("not known to be a Tegra: {COMPATIBLE} is not visible here")
            }
        }
        Err(error) => format!("not known to be a Tegra: {error}"),
    }
}

fn source_of(nvml: &Nvml) -> &str {
    match nvml {
        Nvml::Library(_) => "NVML",
        Nvml::Files { dir } => dir.as_str(),
    }
}

fn tegra(
    root: &SysRoot,
    chip: Chip,
    compatible: &[String],
    hidden: Option<Hidden>,
    found: &Found<'_>,
) -> Identity {
    let boot = root.read(BOOT).ok().and_then(|text| identity::boot_module(&text));
    let module = identity::module(compatible);
    let device = devfreq::device(root);
    let identified = identity::jetson(Evidence {
        compatible,
        boot_module: boot.as_deref(),
        memory: found.memory,
        cpus: Some(found.cpus),
        has_gpu: device.is_some() || hidden.is_some(),
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
        let told = hidden.as_ref().map_or(COMPATIBLE, |hidden| hidden.by.as_str());
        from("key", if boot.is_some() && chip == Chip::Tegra264 { BOOT } else { told });
        from("gpu", told);
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
    let further = facts.as_ref().filter(|facts| !facts.others.is_empty());
    let further = further
        .map(|facts| format!("NVML reports {}, in addition to this module: ignored", counted(&facts.others)));
    let is_identified = identified.is_some();
    // Where NVML answers the driver is up, and only its files are hidden.
    let gpu_fault = (is_identified && device.is_none() && facts.is_none()).then(|| no_devfreq(root, chip));
    let gpu = match identified {
        Some(_) => Ok(GpuDriver::Devfreq),
        None => Err(unrecognised(module.as_deref(), found.model)),
    };
    let mut notes = Vec::new();
    let hidden_note = hidden.as_ref().map(|hidden| {
        format!(
            "{}: which Tegra this is follows from {}, and which module is not known",
            hidden.why, hidden.by
        )
    });
    let mut key = PLAIN.to_owned();
    let mut fitted = None;
    let mut modes = found.modes.cloned();
    if let Some(identified) = identified {
        fitted = nominal(identified.key);
        if let (Some(entry), Some(modes)) = (&fitted, &mut modes) {
            entry.tell_sm(modes);
        }
        let most_sm = modes.as_ref().and_then(most_sm);
        notes = hidden_note.into_iter().chain(identified.notes).collect();
        if let Some(entry) = &mut fitted {
            if identified.unlisted {
                let from = found.modes.map_or("", |modes| modes.source.as_str());
                notes.push(match most_sm {
                    Some(sm) => {
                        format!("the power modes of {from} leave {sm} SMs on at most, and that counts")
                    }
                    None => {
                        format!(
                            "no power mode shows how many SMs it has: {} is the most of its family",
                            entry.sm
                        )
                    }
                });
                entry.sm = most_sm.map_or(entry.sm, |sm| sm.min(entry.sm));
            }
            let highest = device.as_ref().and_then(|device| device.clocks.last()).copied();
            notes.extend(entry.contradictions(found.memory, most_sm, highest));
        }
        let parts = facts.as_ref().map(|facts| facts.parts.clone()).unwrap_or_default();
        fitted = fitted.map(|entry| entry.of_instance(&parts));
        notes.extend(mig_note(root, &parts));
        notes.extend(
            card.map(|card| format!("NVML reports {card}, a card in addition to this module: it is ignored")),
        );
        notes.extend(further);
        identified.key.clone_into(&mut key);
    }
    let no_module = hidden.map_or_else(|| format!("{COMPATIBLE} holds no part number"), |hidden| hidden.why);
    Identity {
        gpu,
        gpu_fault,
        no_tegra: String::new(),
        notes,
        nominal: fitted,
        key,
        device,
        module: module.map_or_else(|| Reading::absent(no_module), Reading::Known),
        l4t: l4t.map(|(release, _)| release),
        chip: Some(chip),
        modes,
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
    format!("this Tegra is not in the hardware registry: {module}, {model}")
}

/// Why a Tegra's GPU has no device, with what to do.
fn no_devfreq(root: &SysRoot, chip: Chip) -> String {
    const CLASS: &str = "/sys/class/devfreq";
    let (module, device) = match chip {
        Chip::Tegra264 => ("nvidia", "gpu-gpc-*"),
        _ => ("nvgpu", "*.gpu, *.ga10b or *.gv11b"),
    };
    if root.path("/sys/class").is_dir() {
        format!(
            "the GPU cannot be used: no {device} in {CLASS}, so its driver is not up (see: lsmod | grep {module}; \
             dmesg | grep -i {module})"
        )
    } else {
        format!("the GPU cannot be used here: /sys is not visible, so no {device} in {CLASS}")
    }
}

fn by_nvml(root: &SysRoot, no_tegra: &str) -> Identity {
    let no_tree = |what: &str| Reading::absent(format!("{what} of Jetsons only: {no_tegra}"));
    let plain = |gpu: Result<GpuDriver, String>| Identity {
        key: PLAIN.into(),
        module: no_tree("a module number"),
        l4t: no_tree("NVIDIA's board support"),
        chip: None,
        modes: None,
        nvml: None,
        facts: None,
        nominal: None,
        gpu,
        gpu_fault: None,
        no_tegra: no_tegra.to_owned(),
        unified_memory: false,
        device: None,
        notes: Vec::new(),
        sources: BTreeMap::new(),
    };
    let on_bus = pci::nvidia_gpu(root);
    let (nvml, facts) = match Nvml::discover(root) {
        Ok(found) => found,
        Err(reason) => {
            let why = pci::no_gpu(&on_bus, &reason);
            let Some((nominal, file)) =
                pci::gb10(root, &on_bus).and_then(|file| Some((nominal("gb10")?, file)))
            else {
                let gpu_fault = matches!(on_bus, OnBus::Found(_)).then(|| why.clone());
                return Identity { gpu_fault, ..plain(Err(why)) };
            };
            let fault = format!("the GPU of this GB10 cannot be used here: {reason}");
            return Identity {
                unified_memory: true,
                key: nominal.key.clone(),
                nominal: Some(nominal),
                notes: vec![fault.clone()],
                gpu_fault: Some(fault),
                sources: ["key", "gpu"].map(|field| (field.to_owned(), file.clone())).into(),
                ..plain(Ok(GpuDriver::Nvml))
            };
        }
    };
    let name = facts.name.known().cloned();
    let by_key = || nominal(&identity::gpu_key(name.as_deref()?)?);
    let by_name = || known().named(name.as_deref()?).cloned();
    let sources = |fields: &[&str]| {
        fields.iter().map(|field| ((*field).to_owned(), source_of(&nvml).to_owned())).collect()
    };
    let mut facts = facts;
    let virtual_gpu = name.as_deref().and_then(identity::virtual_gpu);
    let of_card = || nominal(virtual_gpu.as_ref()?.card.as_deref()?);
    let named = by_key().or_else(by_name).or_else(of_card);
    let capability = facts.parts.compute_capability.or_else(|| named.as_ref()?.compute_capability);
    let of_name =
        name.as_deref().and_then(|name| GpuParts::instance_of_name(name, capability)).or_else(|| {
            let of = virtual_gpu.as_ref()?;
            GpuParts::instance(of.slices?, of.gibibytes.into(), capability)
        });
    if let Some(instance) = of_name.filter(|_| facts.parts.instances.is_empty()) {
        // The other figures are those of the instance, and its share is one of the whole.
        facts.parts = GpuParts { is_divided: true, instances: vec![instance], ..GpuParts::default() };
    }
    facts.parts.is_divided |= virtual_gpu.is_some();
    let one_of_several = (!facts.others.is_empty()).then(|| one_of_several(name.as_deref(), &facts.others));
    let mut notes: Vec<String> = mig_note(root, &facts.parts).into_iter().chain(one_of_several).collect();
    notes.extend(
        virtual_gpu
            .filter(|_| facts.parts.instances.is_empty())
            .map(|of| virtual_note(name.as_deref(), of.gibibytes)),
    );
    let is_variant = named.as_ref().is_some_and(|entry| entry.differs_from(&facts.parts));
    let Some(nominal) = named.filter(|_| !is_variant) else {
        let made = name.as_deref().zip(facts.max_clock.known());
        let made = made.and_then(|(name, clock)| Hardware::of_parts(name, *clock, &facts.parts));
        notes.push(unlisted(name.as_deref(), is_variant, made.as_ref()));
        return Identity {
            nominal: made.map(|made| made.of_instance(&facts.parts)),
            notes,
            sources: sources(&["gpu"]),
            facts: Some(facts),
            nvml: Some(nvml),
            ..plain(Ok(GpuDriver::Nvml))
        };
    };
    notes.extend(other_memory(&nominal, &facts.parts));
    let nominal = nominal.of_instance(&facts.parts);
    Identity {
        unified_memory: nominal.kind == Kind::Integrated,
        key: nominal.key.clone(),
        nominal: Some(nominal),
        notes,
        sources: sources(&["key", "gpu"]),
        facts: Some(facts),
        nvml: Some(nvml),
        ..plain(Ok(GpuDriver::Nvml))
    }
}

fn virtual_note(name: Option<&str>, gibibytes: u32) -> String {
    format!(
        "{} is a virtual GPU with {gibibytes} GiB of a card: nothing tells how much of the card's time it gets, so ceilings are those \
         of the whole and their intervals reach down to an eighth",
        name.unwrap_or("this")
    )
}

/// Which of several GPUs is described, and how to have another one.
fn one_of_several(name: Option<&str>, others: &[String]) -> String {
    format!(
        "NVML reports {} GPUs: figures and predictions are those of one {}, and not of {}; to choose another one, set \
         CUDA_VISIBLE_DEVICES in the service's environment",
        others.len() + 1,
        name.unwrap_or("without a name"),
        counted(others)
    )
}

/// `GeForce RTX 3090, 7 of H100 PCIe`.
fn counted(names: &[String]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    names.iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let counts = counts.into_iter().map(|(name, count)| match count {
        1 => name.to_owned(),
        _ => format!("{count} of {name}"),
    });
    counts.collect::<Vec<_>>().join(", ")
}

/// GPU instances of a GPU that is divided (MIG), `gpu0/gi1`, by the directories that the driver makes of them.
pub(crate) fn mig_instances(root: &SysRoot) -> Vec<String> {
    const CAPABILITIES: &str = "/proc/driver/nvidia/capabilities";
    let gpus = root.numbered(CAPABILITIES, "gpu").into_iter().flat_map(|(_, gpu)| {
        let instances = root.numbered(&format!("{CAPABILITIES}/{gpu}/mig"), "gi").into_iter();
        instances.map(move |(_, instance)| format!("{gpu}/{instance}")).collect::<Vec<_>>()
    });
    gpus.collect()
}

/// What a GPU is called that the registry does not know, or knows another variant of, and how to describe it.
fn unlisted(name: Option<&str>, is_variant: bool, made: Option<&Hardware>) -> String {
    let name = name.map_or_else(|| "without a name".into(), |name| format!("{name:?}"));
    let predictions = match made {
        Some(made) => format!(
            "and with {} predictions are guesses from the {} SMs, {} and {} bit that NVML reports,",
            gpu_as_accelerator(),
            made.sm,
            made.gpu_clock,
            made.bus_bits
        ),
        None => "and predictions are about the CPU".to_owned(),
    };
    format!(
        "NVML's GPU {name} {} the hardware registry: it is monitored, {predictions} until a file in \
         /etc/rooflined/hardware describes it (docs/hardware.md; rooflinectl hardware check FILE)",
        if is_variant {
            "has other SMs or another memory bus than the one of that name in"
        } else {
            "is not in"
        },
    )
}

fn other_memory(entry: &Hardware, parts: &GpuParts) -> Option<String> {
    let told = entry.other_bandwidth(parts)?;
    Some(format!(
        "by the memory's clock that NVML reports it has {told}, and {} has {}: other memory is sold under this name, and NVML's \
         counts",
        entry.key, entry.bandwidth
    ))
}

fn mig_note(root: &SysRoot, parts: &GpuParts) -> Option<String> {
    let instances = mig_instances(root);
    let count = instances.len().max(parts.instances.len());
    let many = if count == 1 { "one instance".to_owned() } else { format!("{count} instances") };
    let named = if instances.is_empty() { String::new() } else { format!(" ({})", instances.join(", ")) };
    let consequence = match parts.largest() {
        Some(largest) if parts.instances.len() == 1 => {
            format!("it has {} SMs and its share of the memory, and predictions are about it", largest.sm)
        }
        Some(largest) => {
            let each: Vec<String> = parts.instances.iter().map(|of| of.sm.to_string()).collect();
            format!(
                "they have {} SMs, and predictions are about the largest, with {} SMs and its share of the memory",
                each.join(", "),
                largest.sm
            )
        }
        None => "a process gets the SMs and the memory of its instance, which nothing tells, so ceilings are those of the whole \
                 and their intervals reach down to an eighth"
            .to_owned(),
    };
    (count > 0).then(|| format!("the GPU is divided (MIG) into {many}{named}: {consequence}"))
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
    is_divided: bool,
) -> Gpu {
    let device = device.filter(|_| driver == GpuDriver::Devfreq);
    let clocks = device.map(|device| device.clocks.clone()).unwrap_or_default();
    let node = device.and_then(|device| device.dir.rsplit('/').next());
    let no_nvml = || Reading::absent("neither NVML nor a devfreq device names the GPU");
    let (name, version, highest, mut parts) = match facts {
        Some(facts) => (facts.name, facts.driver_version, facts.max_clock, facts.parts),
        None => (
            no_nvml(),
            Reading::absent("NVML does not report the driver's version"),
            Reading::absent("no NVML"),
            GpuParts::default(),
        ),
    };
    parts.is_divided |= is_divided || !parts.instances.is_empty();
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
            || {
                let told = parts.largest().map(|of| of.sm).or_else(|| parts.sm());
                told.map_or_else(
                    || Reading::absent("the hardware registry has no entry of this machine"),
                    Reading::Known,
                )
            },
            |nominal| Reading::Known(nominal.sm),
        ),
        max_clock: max_clock.or_else(|| nominal.map(|nominal| nominal.gpu_clock)).map_or_else(
            || Reading::absent("neither a table of clocks nor NVML shows the highest clock of the GPU"),
            Reading::Known,
        ),
        clocks,
        driver_version: version,
        parts,
    }
}
