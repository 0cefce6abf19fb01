//! What the live files say, compared with what a mode would have them say.
//!
//! Files are compared as nvpmodel uses them: of those that stand for the same on different kernels the newest that
//! exists, and of several assignments to one file the last. Left out is what legitimately reads otherwise: the lowest
//! GPU clock (written as 0) and the switch that keeps the GPU awake during the writes. A clock is rounded by the kernel
//! to its table, and "no cap" shows as the highest clock there is.

use std::collections::BTreeMap;

use super::clocks::{Clocks, Lock};
use rooflined_core::board::nvpmodel::{gating_settings, parse_status};
use rooflined_core::board::{
    ActiveMode, Difference, Knob, OperatingPoint, PowerMode, PowerModes, ReadBack, Setting,
};
use rooflined_core::units::Hertz;
use rooflined_hw::{ReadError, SysRoot};

/// The mode that the next boot sets, as nvpmodel keeps it.
pub(super) const STATUS: &str = "/var/lib/nvpmodel/status";
/// Highest memory clock, for root on Orin.
const MEMORY_HIGHEST: &str = "/sys/kernel/debug/bpmp/debug/clk/emc/max_rate";
/// Without a table a clock may be off by this much: data sheets and firmware round to whole MHz.
const ROUNDING: f64 = 0.005;
/// From here on a number is what nvpmodel of JetPack 4 and 5 writes for "no cap"; memory caps lie above it, so it is
/// only taken for one as it stands.
const INT_MAX: i64 = 0x7fff_ffff;
/// Above every clock there is, in Hz.
const BEYOND: i64 = 20_000_000_000;

/// The modes of a machine and the tree they are set in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine<'a> {
    pub root: &'a SysRoot,
    pub modes: &'a PowerModes,
    pub clocks: &'a Clocks,
}

/// What every file of every mode held at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Snapshot {
    files: BTreeMap<String, FileState>,
    lock: Result<Lock, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FileState {
    Text(String),
    /// This kernel does not have the file.
    Missing,
    Failed(String),
}

impl<'a> Machine<'a> {
    pub fn look(&self) -> Snapshot {
        let settings = self.modes.modes.iter().flat_map(|mode| &mode.settings);
        let files = settings.filter_map(|setting| self.file_of(setting)).map(|file| {
            let found = match self.root.read(&file) {
                Ok(text) => {
                    FileState::Text(text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned())
                }
                Err(ReadError::Missing { .. }) => FileState::Missing,
                Err(error) => FileState::Failed(error.to_string()),
            };
            (file, found)
        });
        let files = files.collect();
        let locks = self.modes.modes.iter().any(|mode| mode.knob != Knob::Nvpmodel);
        let lock = if locks { self.clocks.lock() } else { Err("no mode locks clocks".into()) };
        Snapshot { files, lock }
    }

    /// The newest file of a setting that exists.
    fn file_of(&self, setting: &Setting) -> Option<String> {
        setting
            .paths
            .iter()
            .rev()
            .filter_map(|path| self.expand(path))
            .find(|path| self.root.path(path).exists())
    }

    /// `hwmon*` stands for the one numbered directory there.
    pub fn expand(&self, path: &str) -> Option<String> {
        let Some((dir, rest)) = path.split_once("/hwmon*/") else { return Some(path.to_owned()) };
        let mut names: Vec<String> = std::fs::read_dir(self.root.path(dir))
            .ok()?
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("hwmon"))
            .collect();
        names.sort_unstable();
        Some(format!("{dir}/{}/{rest}", names.first()?))
    }

    /// Number of the mode that the next boot sets.
    pub fn persisted(&self) -> Option<u32> {
        parse_status(&self.root.read(STATUS).ok()?)
    }

    /// The mode in force: the one that nvpmodel believes in if the files agree, else the first that they show.
    pub fn active(&self, snapshot: &Snapshot) -> Option<&'a PowerMode> {
        let holds =
            |mode: &&PowerMode| self.judge(mode, snapshot).is_ok_and(|differences| differences.is_empty());
        let believed = self.persisted().and_then(|id| self.modes.all_of(id).find(holds));
        believed.or_else(|| self.modes.modes.iter().find(holds))
    }

    /// What nvpmodel believes in, whatever the files say.
    pub fn believed(&self) -> Option<&'a PowerMode> {
        self.modes.by_id(self.persisted().or(self.modes.default)?)
    }

    /// Where the files differ from the mode.
    ///
    /// # Errors
    /// Nothing of the mode can be read, so nothing can be said.
    pub fn judge(&self, mode: &PowerMode, snapshot: &Snapshot) -> Result<Vec<Difference>, String> {
        match mode.knob {
            Knob::Nvpmodel => {}
            Knob::LockedClocks { min, max } => {
                return self.clocks.judge(Lock::between(min, max), &snapshot.lock);
            }
            Knob::UnlockedClocks => return self.clocks.judge(Lock::None, &snapshot.lock),
        }
        let (mut compared, mut differences) = (0, Vec::new());
        for (file, setting) in self.last_assignments(mode) {
            let found = match snapshot.files.get(&file) {
                Some(FileState::Text(text)) => text,
                Some(FileState::Failed(reason)) => {
                    let (expected, found) = (setting.value.clone(), reason.clone());
                    differences.push(Difference { path: file, expected, found });
                    continue;
                }
                Some(FileState::Missing) | None => continue,
            };
            compared += 1;
            if let Err(expected) = self.agrees(setting, &file, found) {
                differences.push(Difference { path: file, expected, found: found.clone() });
            }
        }
        if compared == 0 && differences.is_empty() {
            return Err(format!(
                "no file that mode {} sets can be read, so it could not be verified",
                mode.name
            ));
        }
        Ok(differences)
    }

    /// The settings that are compared, each with its file, in the order of the mode.
    fn last_assignments<'m>(&self, mode: &'m PowerMode) -> Vec<(String, &'m Setting)> {
        let mut kept: Vec<(String, &Setting)> = Vec::new();
        for setting in &mode.settings {
            let expected_otherwise =
                setting.param.starts_with("GPU_POWER_CONTROL") || setting.arg.starts_with("MIN_FREQ");
            let Some(file) = self.file_of(setting).filter(|_| !expected_otherwise) else { continue };
            kept.retain(|(earlier, _)| *earlier != file);
            kept.push((file, setting));
        }
        kept
    }

    /// `Err` holds the value that was expected.
    fn agrees(&self, setting: &Setting, file: &str, found: &str) -> Result<(), String> {
        let right = |holds: bool, expected: &dyn Fn() -> String| if holds { Ok(()) } else { Err(expected()) };
        // A file of module options holds `name=number`.
        let live = found.rsplit_once('=').map_or(found, |(_, number)| number).trim();
        if !setting.arg.starts_with("MAX_FREQ") {
            let same = match (number(live), number(&setting.value)) {
                (Some(live), Some(value)) => live == value,
                _ => live == setting.value.trim(),
            };
            return right(same, &|| setting.value.clone());
        }
        let (Some(live), Some(value)) = (number(live), number(&setting.value)) else {
            return right(live == setting.value.trim(), &|| setting.value.clone());
        };
        if live == value {
            return Ok(());
        }
        let table = self.table(file);
        if value <= 0 || value == INT_MAX || value == i64::MAX {
            // The files that cap the memory hold 0 or a number beyond any clock.
            if live > BEYOND || (live <= 0 && file.contains("nvpmodel")) {
                return Ok(());
            }
            let highest = self.highest(file, &table);
            let expected =
                || highest.map_or_else(|| "no cap".into(), |highest| format!("no cap ({highest})"));
            // Where nothing tells the highest clock, no cap is at least not below any cap that a mode knows.
            return match highest {
                Some(highest) => right(near(live, highest) || live > highest, &expected),
                None => right(live >= self.highest_cap(setting), &expected),
            };
        }
        let below = table.iter().copied().filter(|clock| *clock <= value).max();
        let above = table.iter().copied().filter(|clock| *clock >= value).min();
        let rounded = Some(live) == below || Some(live) == above || (table.is_empty() && near(live, value));
        // A cap above the highest clock is cut down to that.
        let cut = self.highest(file, &table).is_some_and(|highest| highest < value && near(live, highest));
        right(rounded || cut, &|| setting.value.clone())
    }

    /// The clocks that the kernel rounds to; empty where it does not tell.
    fn table(&self, file: &str) -> Vec<i64> {
        let Some((dir, _)) = file.rsplit_once('/') else { return Vec::new() };
        let tables = ["available_frequencies", "scaling_available_frequencies"];
        let text =
            tables.iter().find_map(|name| self.root.read(&format!("{dir}/{name}")).ok()).unwrap_or_default();
        text.split_ascii_whitespace().filter_map(number).filter(|clock| *clock > 0).collect()
    }

    /// The highest clock of what the file caps; `None` where nothing tells.
    fn highest(&self, file: &str, table: &[i64]) -> Option<i64> {
        let (dir, _) = file.rsplit_once('/')?;
        let read = |path: &str| number(self.root.read(path).ok()?.trim()).filter(|clock| *clock > 0);
        let of_memory = || if dir.contains("nvpmodel") { read(MEMORY_HIGHEST) } else { None };
        read(&format!("{dir}/cpuinfo_max_freq")).or(table.iter().copied().max()).or_else(of_memory)
    }

    /// What to write for no cap: the highest clock, or what nvpmodel of JetPack 6 writes.
    pub fn uncapped(&self, file: &str) -> String {
        self.highest(file, &self.table(file)).unwrap_or(i64::MAX).to_string()
    }

    /// The highest cap that any mode sets on the same thing.
    fn highest_cap(&self, setting: &Setting) -> i64 {
        let settings = self.modes.modes.iter().flat_map(|mode| &mode.settings);
        let same = settings.filter(|other| (&other.param, &other.arg) == (&setting.param, &setting.arg));
        same.filter_map(|other| number(&other.value))
            .filter(|cap| *cap != INT_MAX && *cap != i64::MAX)
            .max()
            .unwrap_or(0)
    }

    /// Masks of gated units that differ: they change only at a boot.
    pub fn gated_otherwise(&self, mode: &PowerMode, snapshot: &Snapshot) -> Vec<Difference> {
        let masks: Vec<&Setting> = gating_settings(mode).collect();
        let differs = |(file, setting): (String, &Setting)| {
            let Some(FileState::Text(found)) = snapshot.files.get(&file) else { return None };
            let expected = self.agrees(setting, &file, found).err()?;
            Some(Difference { path: file, expected, found: found.clone() })
        };
        let ours = |(_, setting): &(String, &Setting)| masks.contains(setting);
        self.last_assignments(mode).into_iter().filter(ours).filter_map(differs).collect()
    }

    /// What is in force, and how it differs from what was `asked` for.
    pub fn read_back(&self, asked: Option<&PowerMode>, snapshot: &Snapshot) -> ReadBack {
        let mode = self.active(snapshot);
        let differences =
            asked.map(|asked| self.judge(asked, snapshot)).and_then(Result::ok).unwrap_or_default();
        ReadBack { mode: mode.map(named), point: self.point(mode, snapshot), differences }
    }

    fn point(&self, mode: Option<&PowerMode>, snapshot: &Snapshot) -> OperatingPoint {
        let mut point = mode.map(PowerMode::operating_point).unwrap_or_default();
        let mut cores = None;
        let mut caps = BTreeMap::new();
        for setting in self.modes.modes.iter().flat_map(|mode| &mode.settings) {
            let Some(FileState::Text(text)) =
                self.file_of(setting).and_then(|file| snapshot.files.get(&file))
            else {
                continue;
            };
            let Some(live) = number(text).filter(|live| *live >= 0) else { continue };
            match (setting.param.as_str(), setting.arg.as_str()) {
                ("CPU_ONLINE", core) => {
                    cores.get_or_insert_with(BTreeMap::new).insert(core.to_owned(), live == 1);
                }
                ("GPU" | "EMC", "MAX_FREQ") if live > 0 => {
                    caps.insert(setting.param.as_str(), Hertz(live as f64));
                }
                (cpu, "MAX_FREQ") if cpu.starts_with("CPU") && live > 0 => {
                    let cap = Hertz(live as f64 * 1e3);
                    caps.entry("CPU").and_modify(|kept| *kept = kept.max(cap)).or_insert(cap);
                }
                (_, arg) if arg.ends_with("TPC_PG_MASK") => {
                    let same = |mode: &&PowerMode| mode.tpc_mask.map(i64::from) == Some(live);
                    point.sm_online = self.modes.modes.iter().find(same).and_then(|mode| mode.sm_online);
                }
                _ => {}
            }
        }
        point.gpu_clock = caps.get("GPU").copied().or(point.gpu_clock);
        point.memory_clock = caps.get("EMC").copied().or(point.memory_clock);
        point.cpu_clock = caps.get("CPU").copied().or(point.cpu_clock);
        let online =
            cores.map(|cores: BTreeMap<_, _>| cores.values().filter(|online| **online).count() as u32);
        point.cores_online = online.or(point.cores_online);
        if let Ok(Lock::Between { max_mhz, .. }) = snapshot.lock {
            point.gpu_clock = Some(Hertz(f64::from(max_mhz) * 1e6));
        }
        point
    }
}

pub(super) fn named(mode: &PowerMode) -> ActiveMode {
    mode.key()
}

/// Decimal, or hexadecimal after `0x`. More than fits is the largest that does: JetPack 6 writes 2^63 - 1.
fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Some(digits) = text.strip_prefix("0x") {
        return i64::from_str_radix(digits, 16).ok();
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().or_else(|| (numeric && !text.starts_with('-')).then_some(i64::MAX))
}

fn near(live: i64, expected: i64) -> bool {
    (live as f64 - expected as f64).abs() <= expected as f64 * ROUNDING
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use rooflined_core::board::nvpmodel::parse;

    const CONF: &str = "\
< PARAM TYPE=CLOCK NAME=GPU >
MAX_FREQ /sys/gpu/max_freq
MAX_FREQ_KNEXT /sys/gpu_new/max_freq
MIN_FREQ /sys/gpu/min_freq
<PARAM TYPE=CLOCK NAME=EMC >
MAX_FREQ /sys/kernel/nvpmodel_emc_cap/emc_iso_cap
< POWER_MODEL ID=0 NAME=LOW >
GPU MIN_FREQ 0
GPU MAX_FREQ 600000000
EMC MAX_FREQ 2133000000
< POWER_MODEL ID=3 NAME=MAXN >
GPU MIN_FREQ 0
GPU MAX_FREQ -1
EMC MAX_FREQ 0
< PM_CONFIG DEFAULT=0 >
";

    fn differences(name: &str, files: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (root, modes) = (SysRoot::new(dir.path()), parse(CONF));
        let clocks = Clocks::new(&root, Path::new("/nonexistent"), "boot");
        let machine = Machine { root: &root, modes: &modes, clocks: &clocks };
        let judged = machine.judge(modes.find(name).unwrap(), &machine.look());
        judged.map(|all| all.into_iter().map(|d| (d.path, d.expected)).collect())
    }

    #[test]
    fn a_clock_rounded_to_the_table_is_the_clock_asked_for() {
        let table = ("sys/gpu/available_frequencies", "306000000 510000000 612000000 1020000000 \n");
        let none: Vec<(String, String)> = Vec::new();
        for live in ["612000000", "510000000\n", "600000000"] {
            assert_eq!(differences("LOW", &[table, ("sys/gpu/max_freq", live)]), Ok(none.clone()), "{live}");
        }
        let off = Ok(vec![("/sys/gpu/max_freq".to_owned(), "600000000".to_owned())]);
        assert_eq!(differences("LOW", &[table, ("sys/gpu/max_freq", "306000000")]), off);
        assert_eq!(
            differences("LOW", &[("sys/gpu/max_freq", "612000000")]),
            off,
            "without a table 2 % is too much"
        );
        assert_eq!(differences("LOW", &[("sys/gpu/max_freq", "600500000")]), Ok(none));
    }

    #[test]
    fn no_cap_shows_as_the_highest_clock() {
        let table = ("sys/gpu/available_frequencies", "306000000 1020000000");
        assert_eq!(differences("MAXN", &[table, ("sys/gpu/max_freq", "1020000000")]), Ok(Vec::new()));
        let capped = differences("MAXN", &[table, ("sys/gpu/max_freq", "306000000")]);
        let expected = ("/sys/gpu/max_freq".to_owned(), "no cap (1020000000)".to_owned());
        assert_eq!(capped, Ok(vec![expected]));
        let emc = "sys/kernel/nvpmodel_emc_cap/emc_iso_cap";
        assert_eq!(differences("MAXN", &[(emc, "0")]), Ok(Vec::new()));
        assert_eq!(differences("MAXN", &[(emc, "9223372036854775807")]), Ok(Vec::new()));
        let highest = ("sys/kernel/debug/bpmp/debug/clk/emc/max_rate", "3199000000");
        assert_eq!(differences("MAXN", &[(emc, "3199000000"), highest]), Ok(Vec::new()));
        assert!(!differences("MAXN", &[(emc, "2133000000"), highest]).unwrap().is_empty());
    }

    #[test]
    fn the_newer_file_of_two_counts() {
        let both = [("sys/gpu/max_freq", "1"), ("sys/gpu_new/max_freq", "600000000")];
        assert_eq!(differences("LOW", &both), Ok(Vec::new()));
    }

    #[test]
    fn a_mode_without_a_readable_file_is_not_taken_for_verified() {
        assert!(differences("LOW", &[]).unwrap_err().contains("could not be verified"));
        assert!(
            differences("LOW", &[("sys/gpu/min_freq", "306000000")]).is_err(),
            "the lowest clock is no evidence"
        );
    }

    #[test]
    fn what_is_no_number_is_a_difference_and_no_panic() {
        for live in ["", "garbage", "\u{0}\u{1}", "-5", "0x"] {
            assert!(!differences("LOW", &[("sys/gpu/max_freq", live)]).unwrap().is_empty(), "{live:?}");
        }
    }
}
