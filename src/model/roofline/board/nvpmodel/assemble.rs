//! From assignments to caps: which clocks a mode limits, and how many units it leaves.

use std::collections::BTreeMap;

use super::line::quoted;
use super::{Param, Setting};
use crate::units::Hertz;

/// Clocks outside of this are written in another unit, or damaged: the lowest cap that is sold is 114.75 MHz, the
/// highest clock 4.266 GHz.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1e6..=20e9;

/// What the settings of a mode amount to.
#[derive(Debug, Default)]
pub(super) struct Caps {
    cores: BTreeMap<u32, bool>,
    /// Highest of the CPU clusters' caps.
    pub cpu: Option<Hertz>,
    /// Cap on the GPU clock.
    pub gpu: Option<Hertz>,
    /// Cap on the memory clock.
    pub memory: Option<Hertz>,
    /// Mask of gated texture-processing clusters.
    pub tpc_mask: Option<u32>,
}

impl Caps {
    /// Takes one setting into account; later ones win, as they do when they are written.
    ///
    /// # Errors
    /// Its value means nothing. The message says what was found.
    pub fn note(&mut self, setting: &Setting, is_clock: bool) -> Result<(), String> {
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
            _ if is_clock => self.clock(setting),
            _ => Ok(()),
        }
    }

    fn clock(&mut self, setting: &Setting) -> Result<(), String> {
        let Setting { param, arg, value, .. } = setting;
        let number = value.parse::<i128>().map_err(|_| {
            format!("{} {} {}, expected a whole number", quoted(param), quoted(arg), quoted(value))
        })?;
        if arg != "MAX_FREQ" && arg != "MAX_FREQ_KNEXT" {
            return Ok(());
        }
        let is_cpu = param == "CPU" || param.starts_with("CPU_");
        // cpufreq counts in kHz, devfreq and the clocks of the firmware in Hz.
        let (scale, unit) = if is_cpu { (1e3, "kHz") } else { (1.0, "Hz") };
        let cap = match param.as_str() {
            "GPU" | "EMC" => cap(number, scale),
            _ if is_cpu => cap(number, scale),
            _ => return Ok(()),
        };
        let Ok(cap) = cap else {
            return Err(format!("{param} {arg} {}, expected a clock in {unit}", quoted(value)));
        };
        match param.as_str() {
            "GPU" => self.gpu = cap,
            "EMC" => self.memory = cap,
            // A cluster without a cap is as a rule one whose cores are off.
            _ => self.cpu = self.cpu.into_iter().chain(cap).reduce(Hertz::max),
        }
        Ok(())
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
