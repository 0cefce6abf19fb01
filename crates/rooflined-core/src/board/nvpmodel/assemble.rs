//! From assignments to caps: which clocks a mode limits, and how many units it leaves.

use std::collections::BTreeMap;

use super::line::quoted;
use super::{Kind, NEWER, Param, Setting};
use crate::units::Hertz;

/// Clocks outside of this are written in another unit, or damaged: the lowest cap that is sold is 114.75 MHz, the
/// highest clock 4.266 GHz.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1e6..=20e9;

/// What the settings of a mode amount to.
#[derive(Debug, Default)]
pub(super) struct Caps {
    cores: BTreeMap<u32, bool>,
    /// Of each CPU cluster that the mode names, by its parameter.
    clusters: BTreeMap<String, Cluster>,
    /// Cap on the GPU clock.
    pub gpu: Option<Hertz>,
    /// Cap on the memory clock.
    pub memory: Option<Hertz>,
    /// Mask of gated texture-processing clusters.
    pub tpc_mask: Option<u32>,
}

#[derive(Debug)]
struct Cluster {
    /// The CPU that its files are named by: its first. `None` where they name none.
    first: Option<u32>,
    /// `None` where its clock is left open.
    cap: Option<Hertz>,
}

/// What a clock is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Capped {
    Cpu,
    Gpu,
    Memory,
}

impl Capped {
    /// What a setting caps, by the names that all releases use, else by the files that it stands for.
    fn by(setting: &Setting) -> Option<Self> {
        let arg = setting.arg.strip_suffix(NEWER).unwrap_or(&setting.arg);
        match setting.param.as_str() {
            "GPU" if arg == "MAX_FREQ" => Some(Self::Gpu),
            "EMC" if arg == "MAX_FREQ" => Some(Self::Memory),
            cpu if arg == "MAX_FREQ" && (cpu == "CPU" || cpu.starts_with("CPU_")) => Some(Self::Cpu),
            _ if arg.starts_with("MIN") => None,
            _ => setting.paths.iter().find_map(|path| Self::in_file(path)),
        }
    }

    fn in_file(path: &str) -> Option<Self> {
        const GPUS: [&str; 6] = [".gpu/", ".ga10b/", ".gv11b/", ".gp10b/", "/gpu-gpc-", "/gpu.0/"];
        const MEMORY: [&str; 3] =
            ["/nvpmodel_emc_cap/emc_iso_cap", "/nvpmodel_clk_cap/emc", "/bwmgr/max_freq"];
        if MEMORY.iter().any(|file| path.ends_with(file)) {
            return Some(Self::Memory);
        }
        if path.contains("/cpufreq/") && path.ends_with("/scaling_max_freq") {
            return Some(Self::Cpu);
        }
        let gpu = path.ends_with("/max_freq") && GPUS.iter().any(|gpu| path.contains(gpu));
        gpu.then_some(Self::Gpu)
    }
}

/// The CPU, or the policy of cpufreq, that a path names.
fn cpu_in(path: &str) -> Option<u32> {
    let number = |part: &str| part.strip_prefix("cpu").or_else(|| part.strip_prefix("policy"))?.parse().ok();
    path.split('/').find_map(number)
}

impl Caps {
    /// Takes one setting into account; later ones win, as they do when they are written.
    ///
    /// # Errors
    /// Its value means nothing. The message says what was found.
    pub fn note(&mut self, setting: &Setting, kind: Kind) -> Result<(), String> {
        let Setting { param, arg, value, .. } = setting;
        match (param.as_str(), arg.as_str()) {
            ("CPU_ONLINE", core) => {
                if let Some(number) = core.strip_prefix("CORE_").and_then(|number| number.parse().ok()) {
                    let online = match value.as_str() {
                        "1" => true,
                        "0" => false,
                        other => return Err(format!("{param} {arg} {}, expected 0 or 1", quoted(other))),
                    };
                    self.cores.insert(number, online);
                }
                Ok(())
            }
            (_, "TPC_PG_MASK") => {
                let mask = mask(value).ok_or_else(|| format!("{arg} {}, expected a mask", quoted(value)))?;
                self.tpc_mask = Some(mask);
                Ok(())
            }
            _ if kind == Kind::Hwmon => Ok(()),
            _ => match Capped::by(setting) {
                Some(what) => self.clock(setting, what),
                None if kind == Kind::Clock => whole(setting).map(|_| ()),
                None => Ok(()),
            },
        }
    }

    fn clock(&mut self, setting: &Setting, what: Capped) -> Result<(), String> {
        let Setting { param, arg, value, paths } = setting;
        // cpufreq counts in kHz, devfreq and the clocks of the firmware in Hz.
        let (scale, unit) = if what == Capped::Cpu { (1e3, "kHz") } else { (1.0, "Hz") };
        let Ok(cap) = cap(whole(setting)?, scale) else {
            return Err(format!("{param} {arg} {}, expected a clock in {unit}", quoted(value)));
        };
        match what {
            Capped::Gpu => self.gpu = cap,
            Capped::Memory => self.memory = cap,
            Capped::Cpu => {
                let first = paths.iter().find_map(|path| cpu_in(path));
                self.clusters.insert(param.clone(), Cluster { first, cap });
            }
        }
        Ok(())
    }

    /// Highest of the caps of those CPU clusters that the mode leaves running; `None` where none of them is capped, or one
    /// is left open.
    pub fn cpu(&self) -> Option<Hertz> {
        let open = self.clusters.values().any(|cluster| cluster.cap.is_none() && self.runs(cluster));
        if open {
            return None;
        }
        // Of a cluster that names no CPU nobody can say that it is offline.
        let running = self.clusters.values().filter(|cluster| cluster.first.is_none() || self.runs(cluster));
        running.filter_map(|cluster| cluster.cap).reduce(Hertz::max)
    }

    /// Whether any CPU of a cluster stays online: those from its first up to the next cluster's.
    fn runs(&self, cluster: &Cluster) -> bool {
        let Some(first) = cluster.first else { return self.cores.values().all(|online| *online) };
        let next =
            self.clusters.values().filter_map(|other| other.first).filter(|other| *other > first).min();
        let mut own = self.cores.range(first..next.unwrap_or(u32::MAX)).peekable();
        // The first CPU cannot be taken offline, and of what is not named nothing is known to be.
        first == 0 || own.peek().is_none() || own.any(|(_, online)| *online)
    }

    /// CPUs that stay online; `None` where the mode says nothing of them.
    pub fn cores_online(&self) -> Option<u32> {
        if self.cores.is_empty() {
            return None;
        }
        let listed = self.cores.values().filter(|online| **online).count();
        // The first core cannot be taken offline, and older files do not list it.
        let first = usize::from(!self.cores.contains_key(&0));
        u32::try_from(listed + first).ok()
    }
}

fn whole(setting: &Setting) -> Result<i128, String> {
    let Setting { param, arg, value, .. } = setting;
    let wrong = |_| format!("{} {} {}, expected a whole number", quoted(param), quoted(arg), quoted(value));
    value.parse().map_err(wrong)
}

/// The clock that a number stands for; `Ok(None)` is no cap, `Err` no clock.
///
/// Files of R32 to R35 write "no cap" as 0, later ones as -1, and the tool turns that into the largest number of its
/// type, which is what edited files contain.
fn cap(number: i128, scale: f64) -> Result<Option<Hertz>, ()> {
    const NO_CAP: [i128; 6] = [0, -1, i32::MAX as i128, u32::MAX as i128, i64::MAX as i128, u64::MAX as i128];
    if NO_CAP.contains(&number) {
        return Ok(None);
    }
    let hertz = number as f64 * scale;
    if PLAUSIBLE.contains(&hertz) { Ok(Some(Hertz(hertz))) } else { Err(()) }
}

/// A mask as the kernel reads one: decimal, or hexadecimal after `0x`.
pub(super) fn mask(text: &str) -> Option<u32> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+')),
        None => text.parse().ok(),
    }
}

/// The chip that a file of modes is for, as far as its masks need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chip {
    /// Xavier: four texture-processing clusters of two SMs.
    Tegra194,
    /// Orin: eight of them.
    Tegra234,
    /// TX2 and Thor: no mask that counts clusters.
    Other,
}

impl Chip {
    /// The chip that the declared paths and names betray.
    pub fn of(params: &BTreeMap<String, Param>) -> Option<Self> {
        let names = params.keys().map(String::as_str);
        let paths = params
            .values()
            .flat_map(|param| param.args.values())
            .flat_map(|files| files.older.iter().chain(&files.newer))
            .map(String::as_str);
        Self::betrayed_by(names, paths)
    }

    /// The same from the settings of one mode.
    pub fn of_settings(settings: &[Setting]) -> Option<Self> {
        let names = settings.iter().map(|setting| setting.param.as_str());
        Self::betrayed_by(names, settings.iter().flat_map(|setting| &setting.paths).map(String::as_str))
    }

    fn betrayed_by<'a>(
        names: impl Iterator<Item = &'a str>,
        paths: impl Iterator<Item = &'a str>,
    ) -> Option<Self> {
        let mut chip = None;
        // `17000000.gpu` is the last to be believed: a Xavier's file names it too, for its newer kernel.
        let mut newer_kernel = false;
        for path in paths {
            chip = chip.or(match path {
                _ if path.contains(".gv11b") => Some(Self::Tegra194),
                _ if path.contains(".ga10b") => Some(Self::Tegra234),
                _ if path.contains(".gp10b")
                    || path.contains("gpu-gpc-")
                    || path.ends_with("/gpu_pg_mask") =>
                {
                    Some(Self::Other)
                }
                _ => None,
            });
            newer_kernel |= path.contains("/17000000.gpu");
        }
        let a78 = names.into_iter().any(|name| name.starts_with("CPU_A78"));
        chip.or_else(|| (a78 || newer_kernel).then_some(Self::Tegra234))
    }

    /// Whether the chip's mask counts clusters.
    pub fn has_mask(self) -> bool {
        self != Self::Other
    }

    /// SMs that a mask leaves: two for each cluster that is not gated. `None` for a mask that
    /// cannot be this chip's.
    pub fn sm_online(self, mask: u32) -> Option<u32> {
        let clusters: u32 = match self {
            Self::Tegra194 => 4,
            Self::Tegra234 => 8,
            Self::Other => return None,
        };
        let left = clusters - mask.count_ones().min(clusters);
        (mask >> clusters == 0 && left > 0).then_some(2 * left)
    }
}
