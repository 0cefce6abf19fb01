//! The files of a Tegra's GPU, memory clock and power modes.
//!
//! Every JetPack has them elsewhere, and each place is tried:
//!
//! | | JetPack 4, 5 | JetPack 6, 7 on Orin | Thor |
//! |---|---|---|---|
//! | GPU clock | /sys/devices/17000000.ga10b/devfreq/… | /sys/class/devfreq/17000000.gpu | /sys/class/devfreq/gpu-gpc-0 |
//! | load, mask | /sys/devices/gpu.0 | /sys/devices/platform/gpu.0 | none |
//! | cap on memory | /sys/kernel/nvpmodel_emc_cap/emc_iso_cap | /sys/kernel/nvpmodel_clk_cap/emc | bwmgr/max_freq |
//! | memory clock | debugfs, for root only | debugfs, for root only | /sys/class/devfreq/bwmgr |

use std::collections::BTreeMap;

use super::SysRoot;
use super::discover::ask;
use super::patience::Answer;
use crate::board::active::LiveCap;
use crate::board::identity::Chip;
use crate::board::parse::{self, Cap};
use crate::board::{BoardState, Reading};
use crate::hardware::Hardware;
use crate::units::Hertz;

const DEVFREQ: &str = "/sys/class/devfreq";
const BPMP_EMC: &str = "/sys/kernel/debug/bpmp/debug/clk/emc";
/// JetPack 6 and later, then 4 and 5.
const MEMORY_CAPS: [&str; 2] =
    ["/sys/kernel/nvpmodel_clk_cap/emc", "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap"];
const BWMGR: &str = "/sys/class/devfreq/bwmgr";
/// The GPU's node in the device tree by generation; Orin's is called `gpu` since JetPack 6.
const NODES: [&str; 5] = ["ga10b", "gv11b", "gp10b", "gb10b", "gpu"];
/// Of the nodes of Thor's GPU this one clocks its multiprocessors; `gpu-nvd-0` clocks the video engines.
const THOR_GPU: &str = "gpu-gpc-0";

/// Where a Tegra's changing values are.
#[derive(Debug, Clone, PartialEq)]
pub struct TegraFiles {
    /// The chip.
    pub chip: Chip,
    /// Directory of the GPU's devfreq device.
    pub gpu: Option<String>,
    /// Clocks that the GPU can have, ascending; empty where it does not tell.
    pub gpu_clocks: Vec<Hertz>,
    /// Load of the GPU in thousandths.
    pub gpu_load: Option<String>,
    /// Mask of gated texture-processing clusters.
    pub tpc_mask: Option<String>,
    /// Whether the GPU's power domain is on.
    pub gpu_status: Option<String>,
    /// Current memory clock.
    pub memory_clock: String,
    /// Highest memory clock that the boot processor admits.
    pub memory_max: String,
    /// Caps on the memory clock; the lowest counts.
    pub memory_caps: Vec<String>,
}

/// Finds them.
pub(super) fn discover(root: &SysRoot, chip: Chip) -> TegraFiles {
    let gpu = gpu(root);
    let bases = gpu_bases(root, gpu.as_deref());
    let first =
        |file: &str| bases.iter().map(|base| format!("{base}/{file}")).find(|path| is_there(root, path));
    let gpu_clocks = gpu
        .as_ref()
        .and_then(|dir| ask(root, std::iter::once(format!("{dir}/available_frequencies"))).pop().flatten())
        .map(|text| parse::frequencies(&text))
        .unwrap_or_default();
    let has_bwmgr = is_there(root, &format!("{BWMGR}/max_freq"));
    let mut memory_caps: Vec<String> =
        MEMORY_CAPS.into_iter().filter(|path| is_there(root, path)).map(str::to_owned).collect();
    if has_bwmgr {
        memory_caps.push(format!("{BWMGR}/max_freq"));
    }
    TegraFiles {
        chip,
        gpu_load: first("load"),
        tpc_mask: first("tpc_pg_mask"),
        gpu_status: first("power/runtime_status"),
        gpu,
        gpu_clocks,
        memory_clock: if has_bwmgr { format!("{BWMGR}/cur_freq") } else { format!("{BPMP_EMC}/rate") },
        memory_max: format!("{BPMP_EMC}/max_rate"),
        memory_caps,
    }
}

fn is_there(root: &SysRoot, path: &str) -> bool {
    root.path(path).symlink_metadata().is_ok()
}

/// The devfreq directory of the GPU.
fn gpu(root: &SysRoot) -> Option<String> {
    let devices = root.names(DEVFREQ);
    let is_gpu = |name: &str| name.rsplit_once('.').is_some_and(|(_, node)| NODES.contains(&node));
    if let Some(name) = devices.iter().find(|name| *name == THOR_GPU || is_gpu(name)) {
        return Some(format!("{DEVFREQ}/{name}"));
    }
    // A kernel that names its devices otherwise still says which node of the device tree they stand for.
    let nodes = ask(root, devices.iter().map(|name| format!("{DEVFREQ}/{name}/device/of_node/name")));
    let by_node = devices.iter().zip(nodes).find(|(_, node)| {
        node.as_deref().and_then(parse::label).is_some_and(|node| NODES.contains(&node.as_str()))
    });
    if let Some((name, _)) = by_node {
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

/// Directories in which the GPU's other files may lie, the aliases first that no address is part of.
fn gpu_bases(root: &SysRoot, gpu: Option<&str>) -> Vec<String> {
    let mut bases: Vec<String> = vec!["/sys/devices/gpu.0".into(), "/sys/devices/platform/gpu.0".into()];
    if let Some(gpu) = gpu {
        bases.push(format!("{gpu}/device"));
    }
    for parent in ["/sys/devices", "/sys/devices/platform", "/sys/devices/platform/bus@0"] {
        let nodes = root.names(parent).into_iter();
        let nodes = nodes.filter(|name| name.split_once('.').is_some_and(|(_, node)| NODES.contains(&node)));
        bases.extend(nodes.map(|name| format!("{parent}/{name}")));
    }
    bases
}

/// What was read of a Tegra, for the fields of a state.
pub(super) struct TegraState {
    pub gpu_clock: Reading<Hertz>,
    pub gpu_clock_cap: Reading<Hertz>,
    pub gpu_load: Reading<f64>,
    pub tpc_mask: Reading<u32>,
    pub sm_online: Reading<u32>,
    pub memory_clock: Reading<Hertz>,
    pub memory_clock_cap: Reading<Hertz>,
    pub memory_limits: MemoryLimits,
}

/// What tells modes apart by their memory clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryLimits {
    /// The cap as it is set.
    pub cap: Option<LiveCap>,
    /// The highest memory clock.
    pub max: Option<Hertz>,
}

impl TegraState {
    /// Puts the readings into their fields and leaves the limits.
    pub fn put_into(self, state: &mut BoardState) -> MemoryLimits {
        state.gpu_clock = self.gpu_clock;
        state.gpu_clock_cap = self.gpu_clock_cap;
        state.gpu_load = self.gpu_load;
        state.tpc_mask = self.tpc_mask;
        state.sm_online = self.sm_online;
        state.memory_clock = self.memory_clock;
        state.memory_clock_cap = self.memory_clock_cap;
        self.memory_limits
    }
}

impl TegraFiles {
    /// Every file that is read for a sample.
    pub fn paths(&self) -> impl Iterator<Item = String> + '_ {
        let gpu =
            self.gpu.iter().flat_map(|dir| ["cur_freq", "max_freq"].map(|file| format!("{dir}/{file}")));
        let optional = [&self.gpu_load, &self.tpc_mask, &self.gpu_status];
        gpu.chain(optional.into_iter().flatten().cloned())
            .chain([self.memory_clock.clone(), self.memory_max.clone()])
            .chain(self.memory_caps.iter().cloned())
    }

    /// Notes which file each field comes from.
    pub fn note_sources(&self, sources: &mut BTreeMap<String, String>) {
        let mut from = |field: &str, file: Option<String>| {
            if let Some(file) = file {
                sources.insert(format!("state.{field}"), file);
            }
        };
        from("gpu_clock", self.gpu.as_ref().map(|dir| format!("{dir}/cur_freq")));
        from("gpu_clock_cap", self.gpu.as_ref().map(|dir| format!("{dir}/max_freq")));
        from("gpu_load", self.gpu_load.clone());
        from("tpc_mask", self.tpc_mask.clone());
        from("sm_online", self.tpc_mask.clone().filter(|_| self.chip.tpc_mask_bits().is_some()));
        from("memory_clock", Some(self.memory_clock.clone()));
        from("memory_clock_cap", (!self.memory_caps.is_empty()).then(|| self.memory_caps.join(", ")));
    }

    /// Takes the answers for [`TegraFiles::paths`], in that order.
    pub(super) fn state(
        &self,
        answers: &mut dyn Iterator<Item = Answer>,
        nominal: Option<&Hardware>,
    ) -> TegraState {
        let mut next = |there: bool| if there { answers.next() } else { None };
        let (current, cap) = (next(self.gpu.is_some()), next(self.gpu.is_some()));
        let load = next(self.gpu_load.is_some());
        let mask = next(self.tpc_mask.is_some());
        let status = next(self.gpu_status.is_some());
        let (rate, max) = (next(true), next(true));
        let caps: Vec<Answer> = self.memory_caps.iter().filter_map(|_| next(true)).collect();

        let no_gpu =
            "no devfreq device of a GPU: neither gpu-gpc-0 nor *.gpu, *.ga10b, *.gv11b in /sys/class/devfreq";
        let gpu_file = |file: &str| self.gpu.as_ref().map(|dir| format!("{dir}/{file}"));
        let tpc_mask = read(self.tpc_mask.as_deref(), mask, "a mask", parse::gating_mask, self.no_mask());
        let gpu_clock_cap = read(gpu_file("max_freq").as_deref(), cap, "a clock in Hz", parse::hertz, no_gpu);
        let sm_online = self.sm_online(&tpc_mask, &gpu_clock_cap, nominal);
        let memory_max =
            read(Some(&self.memory_max), max, "a clock in Hz", parse::hertz, "").known().copied();
        let highest = nominal.and_then(|nominal| nominal.memory_clock);
        // What the boot processor admits and what the part can do: each alone may be too high.
        let memory_max = [memory_max, highest].into_iter().flatten().reduce(Hertz::min);
        let (memory_clock_cap, memory_limit) = self.memory_cap(caps, memory_max);
        TegraState {
            gpu_clock: gpu_clock(gpu_file("cur_freq").as_deref(), current, status, no_gpu),
            gpu_clock_cap,
            gpu_load: read(
                self.gpu_load.as_deref(),
                load,
                "a load in thousandths",
                parse::permille,
                "no file tells the load of this GPU: neither gpu.0/load nor <device>/load",
            ),
            sm_online,
            tpc_mask,
            memory_clock: read(Some(&self.memory_clock), rate, "a clock in Hz", parse::hertz, ""),
            memory_clock_cap,
            memory_limits: MemoryLimits { cap: memory_limit, max: memory_max },
        }
    }

    fn no_mask(&self) -> &'static str {
        match self.chip {
            Chip::Tegra264 => "Thor gates clusters by an option of its driver, which no file tells",
            _ => "no tpc_pg_mask beside the GPU in /sys/devices",
        }
    }

    fn sm_online(
        &self,
        mask: &Reading<u32>,
        cap: &Reading<Hertz>,
        nominal: Option<&Hardware>,
    ) -> Reading<u32> {
        if self.chip.tpc_mask_bits().is_none() {
            return by_nominal_clock(cap, nominal);
        }
        let mask = match mask {
            Reading::Known(mask) => *mask,
            other => return other.clone(),
        };
        match self.chip.sm_online(mask) {
            // A module with clusters fused off has fewer than its chip, whatever the mask leaves.
            Some(sm) => Reading::Known(nominal.map_or(sm, |nominal| sm.min(nominal.sm))),
            None => Reading::failed(format!(
                "{} holds {mask}, which is no mask of this chip's clusters",
                self.tpc_mask.as_deref().unwrap_or("tpc_pg_mask")
            )),
        }
    }

    /// The cap in force and the cap as it is set. The lowest of several counts; uncapped is the highest clock.
    fn memory_cap(&self, answers: Vec<Answer>, max: Option<Hertz>) -> (Reading<Hertz>, Option<LiveCap>) {
        if self.memory_caps.is_empty() {
            let reason =
                format!("no cap on the memory clock: neither {} nor {BWMGR}", MEMORY_CAPS.join(" nor "));
            return (Reading::absent(reason), None);
        }
        let mut limit: Option<LiveCap> = None;
        let mut refused = None;
        for (path, answer) in self.memory_caps.iter().zip(answers) {
            match super::parsed(path, answer.map(|(text, _)| text), "a clock in Hz", parse::clock_cap) {
                Reading::Known(Cap::None) => limit = limit.or(Some(LiveCap::Uncapped)),
                Reading::Known(Cap::At(cap)) => {
                    limit = Some(LiveCap::At(match limit {
                        Some(LiveCap::At(other)) => other.min(cap),
                        _ => cap,
                    }));
                }
                other => refused = refused.or(Some(other)),
            }
        }
        let cap = match (limit, max, refused) {
            (Some(LiveCap::At(cap)), max, _) => Reading::Known(max.map_or(cap, |max| cap.min(max))),
            (Some(LiveCap::Uncapped), Some(max), _) => Reading::Known(max),
            (Some(LiveCap::Uncapped), None, _) => Reading::absent(format!(
                "{} sets no cap, and the highest memory clock of this board is not known: {} is for root only",
                self.memory_caps[0], self.memory_max
            )),
            (None, _, Some(refused)) => refused.map(|_| Hertz::ZERO),
            (None, _, None) => Reading::failed(format!("{} was not read", self.memory_caps[0])),
        };
        (cap, limit)
    }
}

/// Thor: only a mode of its data sheet with this very clock tells how many multiprocessors are on.
fn by_nominal_clock(cap: &Reading<Hertz>, nominal: Option<&Hardware>) -> Reading<u32> {
    let unknown =
        |why: &str| Reading::absent(format!("no file tells how many multiprocessors are on, and {why}"));
    let Some(cap) = cap.known() else { return unknown("the cap on the GPU clock is not known") };
    let modes = nominal.map_or(&[][..], |nominal| &nominal.modes);
    let mut counts: Vec<u32> = modes
        .iter()
        .filter(|mode| (mode.gpu_clock.0 - cap.0).abs() <= 0.005 * cap.0)
        .map(|mode| mode.sm_online)
        .collect();
    counts.sort_unstable();
    counts.dedup();
    match counts.as_slice() {
        [count] => Reading::Known(*count),
        _ => unknown(&format!("no mode of the data sheet has its cap at {cap}")),
    }
}

/// The current clock, where the GPU has one: without power its file tells zero or the last clock it had.
fn gpu_clock(
    path: Option<&str>,
    answer: Option<Answer>,
    status: Option<Answer>,
    absence: &str,
) -> Reading<Hertz> {
    let (Some(path), Some(answer)) = (path, answer) else { return Reading::absent(absence) };
    let status = status.and_then(Result::ok).and_then(|(text, _)| parse::label(&text));
    if status.as_deref() == Some("suspended") {
        return Reading::absent(format!("{path}: the GPU is suspended and has no clock"));
    }
    match answer {
        Ok((text, _)) if parse::unsigned(&text) == Some(0) => {
            Reading::absent(format!("{path} holds 0: the GPU is switched off for now"))
        }
        answer => super::parsed(path, answer.map(|(text, _)| text), "a clock in Hz", parse::hertz),
    }
}

fn read<T>(
    path: Option<&str>,
    answer: Option<Answer>,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
    absence: &str,
) -> Reading<T> {
    match (path, answer) {
        (Some(path), Some(answer)) => super::parsed(path, answer.map(|(text, _)| text), expected, parse),
        _ => Reading::absent(absence),
    }
}
