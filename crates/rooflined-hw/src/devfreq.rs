//! The devfreq device of a Tegra's GPU.

use super::SysRoot;
use super::ask::ask;
use rooflined_core::board::parse;
use rooflined_core::units::Hertz;

const DEVFREQ: &str = "/sys/class/devfreq";
/// The GPU's node in the device tree by generation; Orin's is called `gpu` since JetPack 6.
pub(super) const NODES: [&str; 5] = ["ga10b", "gv11b", "gp10b", "gb10b", "gpu"];
/// Of the nodes of Thor's GPU this one clocks its SMs, with the number of its memory node; `gpu-nvd-0` clocks the video
/// engines.
const THOR_GPU: &str = "gpu-gpc-";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct GpuDevice {
    pub dir: String,
    /// Clocks that it can have, ascending; empty where it does not tell. Where the hardware has many the driver lists some of
    /// them and the highest.
    pub clocks: Vec<Hertz>,
}

pub(super) fn device(root: &SysRoot) -> Option<GpuDevice> {
    let dir = directory(root)?;
    let [table, now] = ["available_frequencies", "cur_freq"].map(|file| format!("{dir}/{file}"));
    let texts = ask(root, [table.clone(), now.clone()]);
    let mut clocks = texts.text(&table).map(parse::frequencies).unwrap_or_default();
    let now = texts.text(&now).and_then(parse::hertz);
    // A table that ends below the clock that it runs at lists a part of them.
    if clocks.last().zip(now).is_some_and(|(last, now)| last.get() < 0.99 * now.get()) {
        clocks.clear();
    }
    Some(GpuDevice { dir, clocks })
}

fn is_there(root: &SysRoot, path: &str) -> bool {
    root.path(path).symlink_metadata().is_ok()
}

fn directory(root: &SysRoot) -> Option<String> {
    let devices = root.names(DEVFREQ);
    let is_gpu = |name: &str| name.rsplit_once('.').is_some_and(|(_, node)| NODES.contains(&node));
    if let Some(name) = devices.iter().find(|name| name.starts_with(THOR_GPU) || is_gpu(name)) {
        return Some(format!("{DEVFREQ}/{name}"));
    }
    // A kernel that names its devices otherwise still says which node of the device tree they stand for.
    let node = |name: &String| format!("{DEVFREQ}/{name}/device/of_node/name");
    let nodes = ask(root, devices.iter().map(node));
    let by_node = devices
        .iter()
        .find(|name| nodes.label(&node(name)).is_some_and(|node| NODES.contains(&node.as_str())));
    if let Some(name) = by_node {
        return Some(format!("{DEVFREQ}/{name}"));
    }
    // Trees without the class: the device's own directory, by name or by an alias.
    for parent in ["/sys/devices", "/sys/devices/platform", "/sys/devices/platform/bus@0"] {
        for device in root.names(parent).into_iter().filter(|name| *name == "gpu.0" || is_gpu(name)) {
            let dir = format!("{parent}/{device}");
            let inner =
                root.names(&format!("{dir}/devfreq")).into_iter().map(|name| format!("devfreq/{name}"));
            let alias = std::iter::once("devfreq_dev".to_owned());
            let found = inner.chain(alias).map(|name| format!("{dir}/{name}"));
            if let Some(found) = found.into_iter().find(|dir| is_there(root, &format!("{dir}/max_freq"))) {
                return Some(found);
            }
        }
    }
    None
}
