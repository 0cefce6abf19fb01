//! The GPU of a Tegra: its clock and the cap on it, its load, and what of it is gated.
//!
//! Every JetPack has the files elsewhere, and each place is tried:
//!
//! | | JetPack 4, 5 | JetPack 6, 7 on Orin | Thor |
//! |---|---|---|---|
//! | clock | /sys/devices/17000000.ga10b/devfreq/… | /sys/class/devfreq/17000000.gpu | /sys/class/devfreq/gpu-gpc-0 |
//! | load, mask | /sys/devices/gpu.0 | /sys/devices/platform/gpu.0 | none |

use crate::SysRoot;
use crate::answers::{Answers, File};
use crate::devfreq::NODES;
use crate::modes::NO_FILE_OF_SMS;
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::state::StateBuilder;
use rooflined_core::board::Reading;
use rooflined_core::board::identity::Chip;
use rooflined_core::board::parse::{self, Cap};
use rooflined_core::hardware::Hardware;
use rooflined_core::units::{Hertz, Seconds};

const NONE: &str = "the GPU's driver is not up, or its files are hidden here: no gpu-gpc-*, *.gpu, *.ga10b or *.gv11b in \
                    /sys/class/devfreq";

/// Shortest time between two looks at the load: each puts off the switching off of the GPU for half a second.
const LOAD_INTERVAL: Seconds = Seconds(0.5);

/// Where the changing values of the GPU are.
struct TegraGpu {
    chip: Chip,
    clock: Option<String>,
    cap: Option<String>,
    /// The highest clock of its table, which no cap raises: old firmware ends it below what newer modes ask for.
    highest: Option<Hertz>,
    /// File with the busy part in thousandths.
    load: Option<String>,
    /// Mask of gated texture-processing clusters.
    mask: Option<String>,
    /// Whether the power domain is on.
    status: Option<String>,
    nominal: Option<Hardware>,
    /// The power modes say how many SMs each of them leaves on.
    told_by_modes: bool,
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let chip = context.chip?;
    let dir = context.gpu.as_ref().map(|gpu| gpu.dir.as_str());
    let bases = bases(context.root, dir);
    let first = |file: &str| bases.iter().map(|base| format!("{base}/{file}")).find(|path| context.has(path));
    let source = TegraGpu {
        chip,
        clock: dir.map(|dir| format!("{dir}/cur_freq")),
        cap: dir.map(|dir| format!("{dir}/max_freq")),
        highest: context.gpu.as_ref().and_then(|gpu| gpu.clocks.last().copied()),
        load: first("load"),
        mask: first("tpc_pg_mask"),
        status: first("power/runtime_status"),
        nominal: context.nominal.clone(),
        told_by_modes: context.modes_tell_sm,
    };
    let counted = if chip.tpc_mask_bits().is_some() { &source.mask } else { &None };
    for (field, file) in [
        ("gpu_clock", &source.clock),
        ("gpu_clock_cap", &source.cap),
        ("gpu_load", &source.load),
        ("tpc_mask", &source.mask),
        ("sm_online", counted),
    ] {
        if let Some(file) = file {
            plan.add_origin(field, file);
        }
    }
    plan.read(source.clock.iter().chain(&source.cap).map(File::of_driver));
    // Reads in quick succession keep the GPU on its rail.
    plan.read(source.load.iter().map(|path| File::of_driver(path).every(LOAD_INTERVAL)));
    plan.read(source.mask.iter().chain(&source.status).map(File::of_driver));
    found(move |answers, state| source.read(answers, state))
}

impl TegraGpu {
    fn read(&self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        let mask = value(self.mask.as_deref(), answers, "a mask", parse::gating_mask, self.no_mask());
        let cap = self.cap(answers);
        let no_load = match self.chip {
            _ if self.clock.is_none() => NONE,
            Chip::Tegra264 => "no file has the load of Thor's GPU, and NVML does not report it here",
            _ => "no file has the load of this GPU: neither gpu.0/load nor <device>/load",
        };
        let load = value(self.load.as_deref(), answers, "a load in thousandths", parse::permille, no_load);
        state.set(|state| &mut state.gpu_clock, self.clock(answers));
        state.set(|state| &mut state.gpu_load, load);
        state.set(|state| &mut state.sm_online, self.sm_online(&mask, &cap));
        state.set(|state| &mut state.gpu_clock_cap, cap);
        state.set(|state| &mut state.tpc_mask, mask);
    }

    /// The current clock, where the GPU has one: without power its file tells zero or the last clock it had.
    fn clock(&self, answers: &Answers<'_>) -> Reading<Hertz> {
        let Some(path) = self.clock.as_deref() else { return Reading::absent(NONE) };
        let status = self.status.as_deref().and_then(|path| parse::label(answers.text(path).ok()?));
        if status.as_deref() == Some("suspended") {
            return Reading::absent(format!("{path}: the GPU is suspended and has no clock"));
        }
        match answers.text(path) {
            Ok(text) if parse::unsigned(text) == Some(0) => {
                Reading::absent(format!("{path} holds 0: the GPU is switched off for now"))
            }
            _ => answers.value(path, "a clock in Hz", parse::hertz),
        }
    }

    /// The cap in force. No cap is the highest clock.
    fn cap(&self, answers: &Answers<'_>) -> Reading<Hertz> {
        match value(self.cap.as_deref(), answers, "a clock in Hz", parse::clock_cap, NONE) {
            Reading::Known(Cap::At(cap)) => {
                Reading::Known(self.highest.map_or(cap, |highest| cap.min(highest)))
            }
            Reading::Known(Cap::None) => self.highest.map_or_else(
                || Reading::absent("no cap is set on the GPU clock, and no table shows the highest"),
                Reading::Known,
            ),
            Reading::Absent { reason } => Reading::Absent { reason },
            Reading::Failed { reason } => Reading::Failed { reason },
        }
    }

    fn no_mask(&self) -> &'static str {
        match self.chip {
            Chip::Tegra264 => "Thor gates clusters by an option of its driver, which no file shows",
            _ => "no tpc_pg_mask next to the GPU in /sys/devices",
        }
    }

    fn sm_online(&self, mask: &Reading<u32>, cap: &Reading<Hertz>) -> Reading<u32> {
        let nominal = self.nominal.as_ref();
        if self.chip.tpc_mask_bits().is_none() && self.told_by_modes {
            return Reading::absent(format!("{NO_FILE_OF_SMS}, and the current power mode is not known"));
        }
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
                "{} holds {mask}, which is not a mask of this chip's clusters",
                self.mask.as_deref().unwrap_or("tpc_pg_mask")
            )),
        }
    }
}

/// What one file holds, where there is one.
fn value<T>(
    path: Option<&str>,
    answers: &Answers<'_>,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
    absence: &str,
) -> Reading<T> {
    path.map_or_else(|| Reading::absent(absence), |path| answers.value(path, expected, parse))
}

/// Thor: only a mode of its data sheet with this very clock tells how many SMs are on.
fn by_nominal_clock(cap: &Reading<Hertz>, nominal: Option<&Hardware>) -> Reading<u32> {
    let unknown = |why: &str| Reading::absent(format!("no file shows how many SMs are on, and {why}"));
    let Some(cap) = cap.known() else { return unknown("the cap on the GPU clock is not known") };
    let Some(nominal) = nominal else { return unknown("the hardware registry has no entry of this module") };
    let mut counts: Vec<u32> = nominal
        .modes
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

/// Directories in which the GPU's other files may lie, the aliases first that no address is part of.
pub(super) fn bases(root: &SysRoot, gpu: Option<&str>) -> Vec<String> {
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
