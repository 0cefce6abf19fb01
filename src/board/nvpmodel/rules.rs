//! What follows from a mode before it is entered: its writes, whether it needs a reboot, whether it may be kept.

use super::assemble::{Chip, mask};
use crate::board::{PowerMode, Setting};
use crate::units::Hertz;

/// The settings that gate parts of the GPU off: its texture-processing clusters, its frame-buffer partitions, or both
/// in one mask. Once the GPU is in use they change only at a boot.
pub fn gating_settings(mode: &PowerMode) -> impl Iterator<Item = &Setting> {
    mode.settings.iter().filter(|setting| {
        let in_path = |path: &String| path.ends_with("_pg_mask");
        setting.arg.ends_with("PG_MASK") || setting.paths.iter().any(in_path)
    })
}

/// There since the release (R36) whose GPU driver keeps the set of cores for its contexts.
const KEEPS_CORES: &str = "/sys/kernel/nvpmodel_clk_cap/emc";

/// Whether entering `mode` takes a reboot. `live` gives the content of a file, `None` where it cannot be read.
///
/// - `Some(true)`: a mask of the mode differs from the live one.
/// - `Some(false)`: none does (the mode sets none, or they agree), and nothing else can be in the way.
/// - `None`: a mask cannot be read; or the set of cores changes on a release (R36 or later, told by its file for the
///   memory clock's cap) that refuses this too once a program has used the GPU, which no file tells.
pub fn reboot_required(mode: &PowerMode, live: impl Fn(&str) -> Option<String>) -> Option<bool> {
    let agrees = |setting: &Setting| {
        let text = setting.paths.iter().rev().find_map(|path| live(path))?;
        Some(same(&text, &setting.value))
    };
    let mut unreadable = false;
    for setting in gating_settings(mode) {
        match agrees(setting) {
            Some(true) => {}
            Some(false) => return Some(true),
            None => unreadable = true,
        }
    }
    let keeps_cores = || live(KEEPS_CORES).is_some();
    let cores_stay = || {
        let cores = mode.settings.iter().filter(|s| s.param == "CPU_ONLINE" && s.arg.starts_with("CORE_"));
        // The first core has no file on many kernels and never changes.
        cores.filter(|setting| setting.arg != "CORE_0").all(|setting| agrees(setting) == Some(true))
    };
    (!unreadable && (!keeps_cores() || cores_stay())).then_some(false)
}

/// Whether a live file holds a value: as numbers, where both are. A file of module options holds `name=number`.
fn same(live: &str, value: &str) -> bool {
    let live = live.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let live = live.rsplit_once('=').map_or(live, |(_, number)| number.trim());
    match (mask(live), mask(value)) {
        (Some(live), Some(value)) => live == value,
        _ => live == value.trim(),
    }
}

/// What nvpmodel writes when it enters `mode`, in order: files and values as the mode gives them (-1, which the tool
/// replaces by the largest number, included). Of the files that stand for the same on different kernels it is the newest
/// one that `exists`, or the newest where none does; what stands for no file is not written. A file may come twice: the
/// GPU is kept awake for the writes between the two. `hwmon*` in a path stands for the one numbered directory there.
pub fn expected_writes(mode: &PowerMode, exists: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let write = |setting: &Setting| {
        let newest_first = || setting.paths.iter().rev();
        let path = newest_first().find(|path| exists(path)).or_else(|| newest_first().next())?;
        Some((path.clone(), setting.value.clone()))
    };
    mode.settings.iter().filter_map(write).collect()
}

/// The clock from which on, downwards, the fault below was seen.
const LOWERED: Hertz = Hertz(2_133_000_000.0);

/// Whether `mode` must not be the one that the next boot sets: on an Orin with release 39 (`l4t` is `39.2`), lowering
/// the memory clock to 2133 MHz or less during the boot may crash the boot after it (NVIDIA bug 6236259).
///
/// `memory_highest` is the board's highest memory clock: a board whose memory never ran faster lowers nothing; `None`
/// counts as faster. A release that is not known is not counted as 39, the only one that the fault is known of.
#[must_use]
pub fn persists_dangerously(mode: &PowerMode, l4t: Option<&str>, memory_highest: Option<Hertz>) -> bool {
    let digits = l4t.map(|release| release.trim().trim_start_matches(['R', 'r']));
    let major = digits.and_then(|release| release.split('.').next()?.parse::<u32>().ok());
    let lowers = mode
        .memory_max
        .is_some_and(|cap| cap <= LOWERED && memory_highest.is_none_or(|highest| cap < highest));
    major.is_some_and(|major| major >= 39)
        && lowers
        && Chip::of_settings(&mode.settings) == Some(Chip::Tegra234)
}
