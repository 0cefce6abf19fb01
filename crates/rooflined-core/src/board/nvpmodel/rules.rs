//! What follows from a mode before it is entered: its writes, what of it only a boot may change, whether it may be kept.

use super::assemble::Chip;
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
