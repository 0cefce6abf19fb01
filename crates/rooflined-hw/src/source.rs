//! What a source of values is: it knows where its files lie, how they are read, and which fields they are for.

use std::collections::BTreeMap;

use super::SysRoot;
use super::answers::{Answers, File};
use super::cgroup::Limits;
use super::devfreq::GpuDevice;
use super::nvml::Nvml;
use super::state::StateBuilder;
use rooflined_core::board::identity::Chip;
use rooflined_core::hardware::Hardware;
use rooflined_core::units::Hertz;

/// Looks for a source on a machine; `None` where the machine has nothing of the kind. A source that is found although
/// it has nothing to read can say why. Each has a file of its own under `sources`, and a line in
/// [`super::sources::SOURCES`].
pub(super) type Discover = fn(&DiscoveryContext<'_>, &mut Plan) -> Option<Reader>;

/// Sets the fields of a state to what the files hold. May remember it for the next sample.
pub(super) type Reader = Box<dyn FnMut(&Answers<'_>, &mut StateBuilder<'_>) + Send + Sync>;

/// A source that is there.
pub(super) fn found(
    read: impl FnMut(&Answers<'_>, &mut StateBuilder<'_>) + Send + Sync + 'static,
) -> Option<Reader> {
    Some(Box::new(read))
}

/// What sources read for a sample.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub files: Vec<File>,
    /// Which files the fields of a state come from.
    pub origins: BTreeMap<&'static str, Vec<String>>,
}

impl Plan {
    pub fn read(&mut self, files: impl IntoIterator<Item = File>) {
        self.files.extend(files);
    }

    /// A field comes from these files.
    pub fn add_origin(&mut self, field: &'static str, files: impl Into<String>) {
        let (all, files) = (self.origins.entry(field).or_default(), files.into());
        if !all.contains(&files) {
            all.push(files);
        }
    }
}

/// What is known of a machine when its sources are looked for.
pub(super) struct DiscoveryContext<'a> {
    pub root: &'a SysRoot,
    pub hwmon: Vec<Device>,
    pub chip: Option<Chip>,
    pub gpu: Option<GpuDevice>,
    /// Where NVML answers.
    pub nvml: Option<Nvml>,
    /// What data sheets say of this hardware.
    pub nominal: Option<Hardware>,
    /// A GPU clock below this, under load and without a reason named, is a fault of the supply (GB10).
    pub starved_below: Option<Hertz>,
    /// What a control group leaves to this process.
    pub limits: Limits,
    pub has_modes: bool,
    /// The power modes gate units of the GPU, so a clock says nothing about its SMs.
    pub modes_tell_sm: bool,
    /// Why a machine that is not taken for a Tegra is not.
    pub no_tegra: String,
}

impl DiscoveryContext<'_> {
    /// Whether something is at `path`, readable or not.
    pub fn has(&self, path: &str) -> bool {
        self.root.path(path).symlink_metadata().is_ok()
    }
}

/// A directory of a class, and what the driver calls the device; the name of the directory where it does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    pub name: String,
    pub dir: String,
}

impl Device {
    /// Directories `prefixN` of `class`, named by what their file `label` holds.
    pub fn all(root: &SysRoot, class: &str, prefix: &str, label: &str) -> Vec<Self> {
        let dirs: Vec<String> = root.numbered(class, prefix).into_iter().map(|(_, dir)| dir).collect();
        // Drivers of the old kind have their files in the device itself.
        let labels = |dir: &str| [format!("{class}/{dir}/{label}"), format!("{class}/{dir}/device/{label}")];
        let texts = super::ask::ask(root, dirs.iter().flat_map(|dir| labels(dir)));
        let named = dirs.into_iter().map(|name| {
            let label = labels(&name).iter().find_map(|file| texts.label(file));
            Self { dir: format!("{class}/{name}"), name: label.unwrap_or(name) }
        });
        named.collect()
    }
}
