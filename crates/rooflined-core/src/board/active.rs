//! Which power mode is in force. Pure.
//!
//! nvpmodel's status file says which mode was asked for last. A refused reboot, a container or a failed write leaves it
//! wrong, so a mode counts only if its caps are those in force; the file decides between modes with the same caps.

use super::{ActiveMode, PowerMode, PowerModes};
use crate::units::Hertz;

/// Clocks within this ratio are the same where no table says what a cap is rounded to.
const SAME_CLOCK: f64 = 0.005;
/// The same for CPUs whose table cpufreq hides: steps of 77 MHz, and a TX2i that is set to 2000 MHz shows 2035.
const SAME_CPU_CLOCK: f64 = 0.02;

/// A cap as it is in force.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LiveCap {
    At(Hertz),
    Uncapped,
}

/// What the machine does now; `None` where it does not tell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Live {
    /// CPUs online.
    pub cores_online: Option<u32>,
    /// Highest of the CPU clusters' caps.
    pub cpu_cap: Option<Hertz>,
    /// Highest clock of the CPU.
    pub cpu_max: Option<Hertz>,
    /// Clocks that the CPUs can have, ascending; empty where cpufreq does not tell.
    pub cpu_clocks: Vec<Hertz>,
    /// Cap on the GPU clock.
    pub gpu_cap: Option<Hertz>,
    /// Clocks that the GPU can have, ascending; empty where it does not tell.
    pub gpu_clocks: Vec<Hertz>,
    /// Highest clock of the GPU by its data sheet, for a GPU that tells no table.
    pub gpu_max: Option<Hertz>,
    /// Cap on the memory clock.
    pub memory_cap: Option<LiveCap>,
    /// Highest memory clock by firmware and data sheet.
    pub memory_max: Option<Hertz>,
    /// Highest memory clock that the firmware admits: no mode goes beyond it.
    pub memory_admitted: Option<Hertz>,
    /// Mask of gated texture-processing clusters.
    pub tpc_mask: Option<u32>,
    /// Something slows the machine down now, and lowers its caps for as long.
    pub throttled: bool,
}

/// The mode in force, and what there is to say about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The mode, or why there is none.
    pub mode: Result<ActiveMode, String>,
    pub note: Option<String>,
}

/// How a mode agrees with what is in force.
#[derive(Debug, Default)]
struct Comparison {
    compared: u32,
    differences: Vec<String>,
    /// Every difference is a clock below that of the mode.
    only_lower: bool,
    /// Every difference is of the memory clock.
    only_memory: bool,
}

impl Comparison {
    /// All is as in the mode but for a memory clock that does not reach its cap.
    fn lacks_memory_clock(&self) -> bool {
        let agreed = self.compared as usize > self.differences.len();
        agreed && self.only_lower && self.only_memory && !self.differences.is_empty()
    }
}

/// Judges by what `status` (the number in nvpmodel's status file) claims and by what is in force.
#[must_use]
pub fn active_mode(modes: &PowerModes, status: Option<u32>, live: &Live) -> Judgement {
    let of_modes = modes.modes.iter().filter_map(|mode| mode.memory_max);
    let highest_memory = live.memory_admitted.or_else(|| of_modes.chain(live.memory_max).reduce(Hertz::max));
    let compared: Vec<(&PowerMode, Comparison)> =
        modes.modes.iter().map(|mode| (mode, compare(mode, live, highest_memory))).collect();
    let (claimed, source) = match status {
        Some(id) => (Some(id), format!("nvpmodel's status file says mode {id}")),
        None => (modes.default, "nvpmodel's status file names no mode".to_owned()),
    };
    // A number can be that of two modes: the one whose caps are in force is meant.
    let of_id = |id: u32| {
        let of_that_id = || compared.iter().filter(move |(mode, _)| mode.id == id);
        of_that_id().find(|(_, comparison)| comparison.differences.is_empty()).or_else(|| of_that_id().next())
    };
    let of_claim = claimed.and_then(of_id);
    let found = |mode: &PowerMode, note| Judgement { mode: Ok(mode.key()), note };
    if let Some((mode, comparison)) = of_claim {
        let by_default = status.is_none().then(|| format!("{source}: this is the default"));
        match comparison {
            Comparison { compared: 0, .. } => {
                return found(mode, Some(format!("{source}; no cap could be read to confirm it")));
            }
            Comparison { differences, .. } if differences.is_empty() => return found(mode, by_default),
            _ => {}
        }
    }
    let against = of_claim.map_or_else(
        || match status {
            Some(id) => format!("nvpmodel's status file says mode {id}, which is not in {}", modes.source),
            None => format!("{source}, and {} no default", modes.source),
        },
        |(mode, comparison)| {
            let differences = comparison.differences.join(", ");
            match status {
                Some(_) => format!("{source} ({}), but {differences}", mode.name),
                None => format!("the default is {} ({}), but {differences}", mode.id, mode.name),
            }
        },
    );
    let fitting: Vec<&PowerMode> = compared
        .iter()
        .filter(|(_, comparison)| comparison.compared > 0 && comparison.differences.is_empty())
        .map(|(mode, _)| *mode)
        .collect();
    match (fitting.as_slice(), of_claim) {
        ([only], _) => found(only, Some(against)),
        // Cooling lowers the very caps that a mode sets, for as long as it is needed.
        ([], Some((mode, comparison))) if live.throttled && comparison.only_lower => {
            found(mode, Some(format!("throttled: {}", comparison.differences.join(", "))))
        }
        // What is read is what comes of the mode's cap and the firmware's own, which older firmware has lower.
        ([], Some((mode, comparison))) if comparison.lacks_memory_clock() => {
            let differences = comparison.differences.join(", ");
            found(
                mode,
                Some(format!("{differences}: its firmware admits no more, or something else caps it")),
            )
        }
        ([], _) => {
            Judgement { mode: Err(format!("the current caps match no mode: {against}")), note: Some(against) }
        }
        (several, _) => {
            let names: Vec<&str> = several.iter().map(|mode| mode.name.as_str()).collect();
            let reason = format!("the current caps fit {}; {against}", names.join(" and "));
            Judgement { mode: Err(reason), note: Some(against) }
        }
    }
}

const CPU: &str = "the CPU";

fn compare(mode: &PowerMode, live: &Live, highest_memory: Option<Hertz>) -> Comparison {
    let mut comparison = Comparison { only_lower: true, only_memory: true, ..Comparison::default() };
    let mut number = |what: &str, set: Option<u32>, now: Option<u32>| {
        let Some((set, now)) = set.zip(now) else { return };
        comparison.compared += 1;
        if set != now {
            comparison.only_lower = false;
            comparison.only_memory = false;
            comparison.differences.push(format!("{what} is {now} and not {set}"));
        }
    };
    number("the number of CPUs online", mode.cores_online, live.cores_online);
    number("the mask of gated clusters", mode.tpc_mask, live.tpc_mask);
    let clock = |comparison: &mut Comparison,
                 what: &str,
                 set: Option<Hertz>,
                 now: Option<LiveCap>,
                 max: Option<Hertz>,
                 table: &[Hertz]| {
        // An uncapped mode can only be distinguished from a capped one where the highest clock is known.
        let Some(expected) = set.or(max) else { return };
        let Some(now) = now else { return };
        let now = match (now, max) {
            (LiveCap::At(now), Some(max)) => now.min(max),
            (LiveCap::At(now), None) => now,
            (LiveCap::Uncapped, Some(max)) => max,
            (LiveCap::Uncapped, None) => {
                comparison.compared += 1;
                comparison.only_lower = false;
                comparison.differences.push(format!("{what} is not capped at {expected}"));
                return;
            }
        };
        comparison.compared += 1;
        // A cap above the highest clock is none.
        let expected = max.map_or(expected, |max| expected.min(max));
        let tolerance = if what == CPU && table.is_empty() { SAME_CPU_CLOCK } else { SAME_CLOCK };
        if !same_clock(expected, now, table, tolerance) {
            comparison.only_lower &= now.0 < expected.0;
            comparison.differences.push(format!("{what} is capped at {now} and not {expected}"));
        }
    };
    let at = |clock: Option<Hertz>| clock.map(LiveCap::At);
    clock(&mut comparison, CPU, mode.cpu_max, at(live.cpu_cap), live.cpu_max, &live.cpu_clocks);
    let gpu_max = live.gpu_clocks.last().copied().or(live.gpu_max);
    clock(&mut comparison, "the GPU", mode.gpu_max, at(live.gpu_cap), gpu_max, &live.gpu_clocks);
    let beside_memory = comparison.differences.is_empty();
    clock(&mut comparison, "the memory clock", mode.memory_max, live.memory_cap, highest_memory, &[]);
    comparison.only_memory &= beside_memory;
    comparison
}

/// The same, or what the driver makes of a clock that its table does not have: one of its neighbours there.
fn same_clock(set: Hertz, now: Hertz, table: &[Hertz], tolerance: f64) -> bool {
    let close = |a: Hertz, b: Hertz| (a.0 - b.0).abs() <= tolerance * b.0;
    if close(set, now) {
        return true;
    }
    if table.iter().any(|clock| close(*clock, set)) {
        return false;
    }
    let above = table.iter().position(|clock| clock.0 > set.0).unwrap_or(table.len());
    let neighbours = [above.checked_sub(1), Some(above)];
    neighbours.into_iter().flatten().filter_map(|index| table.get(index)).any(|clock| close(*clock, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Knob;

    fn mode(id: u32, name: &str, gpu: Option<f64>, memory: Option<f64>, mask: u32) -> PowerMode {
        PowerMode {
            id,
            name: name.into(),
            cores_online: Some(6),
            cpu_max: None,
            gpu_max: gpu.map(Hertz),
            memory_max: memory.map(Hertz),
            tpc_mask: Some(mask),
            sm_online: None,
            knob: Knob::Nvpmodel,
            settings: Vec::new(),
        }
    }

    fn nano() -> PowerModes {
        PowerModes {
            default: Some(1),
            modes: vec![
                mode(0, "15W", Some(612e6), Some(2133e6), 240),
                mode(1, "25W", Some(918e6), Some(3199e6), 240),
                mode(2, "MAXN_SUPER", None, None, 240),
                mode(3, "7W", Some(408e6), Some(2133e6), 252),
            ],
            source: "/etc/nvpmodel.conf".into(),
            ..PowerModes::default()
        }
    }

    fn live(gpu: f64, memory: f64, mask: u32) -> Live {
        Live {
            cores_online: Some(6),
            gpu_cap: Some(Hertz(gpu)),
            gpu_clocks: [306e6, 408e6, 510e6, 612e6, 714e6, 816e6, 918e6, 1020e6].map(Hertz).to_vec(),
            memory_cap: Some(LiveCap::At(Hertz(memory))),
            tpc_mask: Some(mask),
            ..Live::default()
        }
    }

    fn name(judgement: &Judgement) -> &str {
        judgement.mode.as_ref().unwrap().name.as_str()
    }

    #[test]
    fn a_mode_whose_caps_are_in_force_needs_no_note() {
        for (id, gpu, memory, mask, expected) in [
            (0, 612e6, 2133e6, 240, "15W"),
            (1, 918e6, 3199e6, 240, "25W"),
            (2, 1020e6, 3199e6, 240, "MAXN_SUPER"),
            (3, 408e6, 2133e6, 252, "7W"),
        ] {
            let judgement = active_mode(&nano(), Some(id), &live(gpu, memory, mask));
            assert_eq!(name(&judgement), expected);
            assert_eq!(judgement.note, None, "{expected}");
        }
    }

    #[test]
    fn a_fresh_board_is_in_its_default_if_the_caps_agree() {
        let judgement = active_mode(&nano(), None, &live(918e6, 3199e6, 240));
        assert_eq!(name(&judgement), "25W");
        assert!(judgement.note.unwrap().contains("this is the default"));
        let judgement = active_mode(&nano(), None, &live(612e6, 2133e6, 240));
        assert_eq!(name(&judgement), "15W");
        assert!(judgement.note.unwrap().contains("the default is 1 (25W), but the GPU is capped at 612 MHz"));
    }

    #[test]
    fn of_two_modes_with_one_number_the_one_whose_caps_are_in_force_is_meant() {
        let mut modes = nano();
        modes.modes.push(mode(1, "25W_LEAN", Some(714e6), Some(2133e6), 240));
        let judgement = active_mode(&modes, Some(1), &live(714e6, 2133e6, 240));
        assert_eq!((name(&judgement), &judgement.note), ("25W_LEAN", &None));
        let judgement = active_mode(&modes, Some(1), &live(918e6, 3199e6, 240));
        assert_eq!((name(&judgement), &judgement.note), ("25W", &None));
        assert_eq!(modes.find("1"), None, "which of the two is not guessed");
        assert_eq!(modes.find("25w_lean").unwrap().gpu_max, Some(Hertz(714e6)));
    }

    #[test]
    fn the_caps_win_over_a_status_that_was_never_applied() {
        let judgement = active_mode(&nano(), Some(2), &live(612e6, 2133e6, 240));
        assert_eq!(name(&judgement), "15W");
        let note = judgement.note.unwrap();
        assert!(note.contains("says mode 2 (MAXN_SUPER)") && note.contains("capped at 612 MHz"), "{note}");
    }

    #[test]
    fn caps_of_no_mode_are_no_mode_unless_cooling_lowered_them() {
        let odd = live(714e6, 3199e6, 240);
        let judgement = active_mode(&nano(), Some(1), &odd);
        assert!(judgement.mode.unwrap_err().contains("match no mode"));
        let judgement = active_mode(&nano(), Some(1), &Live { throttled: true, ..odd });
        assert_eq!(name(&judgement), "25W");
        assert!(judgement.note.unwrap().starts_with("throttled: the GPU is capped at 714 MHz"));
        // Cooling never raises a cap.
        let above = Live { throttled: true, ..live(1020e6, 2133e6, 240) };
        assert!(active_mode(&nano(), Some(0), &above).mode.is_err());
    }

    #[test]
    fn firmware_that_holds_the_memory_clock_down_changes_no_mode() {
        // Its table ends below the caps of the modes, and the memory clock that is read below theirs.
        let old = |memory: f64| Live {
            gpu_clocks: [306e6, 408e6, 510e6, 612e6, 624.75e6].map(Hertz).to_vec(),
            ..live(624.75e6, memory, 240)
        };
        let judgement = active_mode(&nano(), Some(2), &old(2133e6));
        assert_eq!(name(&judgement), "MAXN_SUPER");
        assert!(judgement.note.unwrap().contains("memory clock is capped at 2.13 GHz and not 3.20 GHz"));
        // Where the firmware tells it nothing is odd.
        let told = Live { memory_admitted: Some(Hertz(2133e6)), ..old(2133e6) };
        let judgement = active_mode(&nano(), Some(2), &told);
        assert_eq!((name(&judgement), &judgement.note), ("MAXN_SUPER", &None));
        // A mode whose caps all agree counts more, and a clock above the mode's is none of it.
        assert_eq!(name(&active_mode(&nano(), Some(1), &live(612e6, 2133e6, 240))), "15W");
        assert!(active_mode(&nano(), Some(0), &live(612e6, 3199e6, 240)).mode.is_err());
        // Nothing but the memory clock was read, so nothing speaks for the mode.
        let alone = Live { memory_cap: Some(LiveCap::At(Hertz(1600e6))), ..Live::default() };
        assert!(active_mode(&nano(), Some(2), &alone).mode.is_err());
    }

    #[test]
    fn without_any_cap_to_read_the_status_is_taken_and_that_is_said() {
        let judgement = active_mode(&nano(), Some(3), &Live::default());
        assert_eq!(name(&judgement), "7W");
        assert!(judgement.note.unwrap().contains("no cap could be read"));
    }

    #[test]
    fn modes_that_cannot_be_told_apart_are_not_guessed() {
        let partly = Live { tpc_mask: Some(240), ..Live::default() };
        let judgement = active_mode(&nano(), Some(3), &partly);
        assert!(judgement.mode.unwrap_err().contains("15W and 25W and MAXN_SUPER"));
        assert!(active_mode(&nano(), Some(9), &partly).mode.is_err());
        assert!(active_mode(&PowerModes::default(), Some(0), &partly).mode.is_err());
    }

    #[test]
    fn a_cap_beside_the_table_is_compared_with_what_the_driver_makes_of_it() {
        let mut modes = nano();
        modes.modes[0].gpu_max = Some(Hertz(624.75e6));
        for rounded in [612e6, 714e6] {
            assert_eq!(name(&active_mode(&modes, Some(0), &live(rounded, 2133e6, 240))), "15W");
        }
        assert!(active_mode(&modes, Some(0), &live(816e6, 2133e6, 240)).mode.is_err());
    }
}
