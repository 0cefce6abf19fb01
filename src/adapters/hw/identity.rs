//! Which machine this is: a Jetson by its device tree, a GB10 or a card by its name in NVML, else plain Linux.

use std::collections::BTreeMap;

use super::devfreq::GpuDevice;
use super::nvml::{Facts, Nvml};
use super::{SysRoot, first_of};
use roofline::board::identity::{self, Chip, Evidence};
use roofline::board::{Gpu, GpuDriver, Reading, parse};
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
    pub sources: BTreeMap<String, String>,
}

/// Finds out which machine `root` is.
pub(super) fn identify(root: &SysRoot, model: Option<&str>, memory: Option<Bytes>) -> Identity {
    let compatible = root.read(COMPATIBLE).unwrap_or_default();
    let compatible = parse::device_tree_strings(&compatible);
    match Chip::of(&compatible) {
        Some(chip) => tegra(root, chip, &compatible, model, memory),
        None => by_nvml(root),
    }
}

fn tegra(
    root: &SysRoot,
    chip: Chip,
    compatible: &[String],
    model: Option<&str>,
    memory: Option<Bytes>,
) -> Identity {
    let boot = root.read(BOOT).ok().and_then(|text| identity::boot_module(&text));
    let module = identity::module(compatible);
    let key = identity::jetson(Evidence { compatible, model, boot_module: boot.as_deref(), memory });
    let l4t = first_of(root, &[RELEASE], identity::l4t_release);
    let mut sources = BTreeMap::new();
    let mut from = |field: &str, file: &str| sources.insert(field.to_owned(), file.to_owned());
    if module.is_some() {
        from("module", COMPATIBLE);
    }
    if l4t.known().is_some() {
        from("l4t", RELEASE);
    }
    if key.is_some() {
        from("key", if boot.is_some() && chip == Chip::Tegra264 { BOOT } else { COMPATIBLE });
        from("gpu", COMPATIBLE);
    }
    // Orin's library says no more than its name and version, and JetPack 5 has none.
    let nvml = Nvml::discover(root).ok();
    let (nvml, facts) = nvml.map_or((None, None), |(nvml, facts)| (Some(nvml), Some(facts)));
    Identity {
        gpu: match key {
            Some(_) => Ok(GpuDriver::Devfreq),
            None => Err(unrecognised(module.as_deref(), model)),
        },
        nominal: key.and_then(nominal),
        key: key.unwrap_or(PLAIN).to_owned(),
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
