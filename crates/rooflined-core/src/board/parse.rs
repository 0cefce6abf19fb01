//! Text of the kernel's files → values. Pure: the text is given.
//!
//! Every function takes any text whatever and answers `None` for what is not the format it reads; none panics and
//! none takes memory out of proportion to its input.

mod cpu;
pub mod details;
mod tegra;

pub use cpu::{CpuInfo, cpu_list, cpuinfo};
pub use tegra::{Cap, bits, clock_cap, frequencies, gating_mask, hertz, megahertz, percent, permille};

use crate::board::{Memory, Pressure};
use crate::units::{Bytes, Celsius, Hertz, Watts};

/// Longest name kept of a board, a sensor or a processor.
const LONGEST_LABEL: usize = 128;

/// A whole number, with white space around it and nothing else.
#[must_use]
pub fn unsigned(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// A whole number with an optional sign.
#[must_use]
pub fn signed(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

/// The first line (or NUL-terminated string) without control characters and surrounding space, at most 128
/// characters; `None` where nothing is left.
#[must_use]
pub fn label(text: &str) -> Option<String> {
    let line = text.split(['\0', '\n']).next().unwrap_or("");
    let shown: String = line.chars().filter(|c| !c.is_control()).take(LONGEST_LABEL).collect();
    let shown = shown.trim();
    (!shown.is_empty()).then(|| shown.to_owned())
}

/// A DMI string; `None` for the placeholders that board makers leave in place of a name.
#[must_use]
pub fn dmi_string(text: &str) -> Option<String> {
    const PLACEHOLDERS: [&str; 8] = [
        "default string",
        "n/a",
        "none",
        "not applicable",
        "not specified",
        "o.e.m.",
        "system product name",
        "to be filled by o.e.m.",
    ];
    label(text).filter(|name| !PLACEHOLDERS.contains(&name.to_ascii_lowercase().as_str()))
}

/// The strings of a device-tree property (`compatible`), which are separated by NUL.
#[must_use]
pub fn device_tree_strings(text: &str) -> Vec<String> {
    text.split('\0').filter_map(label).take(64).collect()
}

/// The value of `key` in os-release(5), unquoted.
#[must_use]
pub fn os_release(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let value = line.trim().strip_prefix(key)?.strip_prefix('=')?;
        let bare = ['"', '\'']
            .into_iter()
            .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
            .unwrap_or(value);
        label(bare)
    })
}

/// The `(key, rest)` pairs of `key: rest` lines.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let (key, rest) = line.split_once(':')?;
        Some((key.trim(), rest.trim()))
    })
}

/// /proc/meminfo. `None` without a positive `MemTotal`. Kernels before 3.14 have no `MemAvailable`; free memory is
/// then the careful answer.
#[must_use]
pub fn meminfo(text: &str) -> Option<Memory> {
    let kilobytes = |wanted: &str| -> Option<Bytes> {
        let (_, value) = pairs(text).find(|(key, _)| *key == wanted)?;
        // As a float a value of any number of digits has a meaning, so nothing can overflow.
        let value = value.strip_suffix("kB")?.trim();
        let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let number = value.parse::<f64>().ok().filter(|number| digits && number.is_finite())?;
        Some(Bytes(number * 1024.0))
    };
    let total = kilobytes("MemTotal").filter(|total| total.is_positive())?;
    let free = kilobytes("MemFree").unwrap_or(Bytes::ZERO).min(total);
    let swap_free = kilobytes("SwapFree").unwrap_or(Bytes::ZERO);
    let swap_total = kilobytes("SwapTotal").unwrap_or(swap_free);
    Some(Memory {
        total,
        available: kilobytes("MemAvailable").unwrap_or(free).min(total),
        free,
        swap_used: (swap_total - swap_free).max(Bytes::ZERO),
    })
}

/// Clock ticks since boot, summed over the CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// Running something, in user space or in the kernel.
    pub busy: u64,
    /// Nothing to run, or waiting for a disk.
    pub idle: u64,
    /// Runnable, but the hypervisor ran somebody else.
    pub steal: u64,
}

impl CpuTimes {
    /// Busy and stolen parts of the time since `before`, each 0 to 1; `None` where no tick has passed.
    #[must_use]
    pub fn ratios_since(&self, before: &Self) -> Option<(f64, f64)> {
        // Idle and iowait may step back by a tick or two between two reads.
        let busy = self.busy.saturating_sub(before.busy) as f64;
        let idle = self.idle.saturating_sub(before.idle) as f64;
        let steal = self.steal.saturating_sub(before.steal) as f64;
        let total = busy + idle + steal;
        (total > 0.0).then(|| (busy / total, steal / total))
    }
}

/// The `cpu` line of /proc/stat.
#[must_use]
pub fn cpu_times(text: &str) -> Option<CpuTimes> {
    ticks(text.lines().find_map(|line| line.strip_prefix("cpu "))?)
}

/// What stands behind the name of a line of /proc/stat.
fn ticks(fields: &str) -> Option<CpuTimes> {
    let ticks: Vec<u64> =
        fields.split_ascii_whitespace().map_while(|field| field.parse().ok()).take(8).collect();
    // user nice system idle, and since 2.6 iowait irq softirq steal. Guest time is part of user time.
    let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
    if ticks.len() < 4 {
        return None;
    }
    let sum = |indices: [usize; 5]| indices.into_iter().fold(0_u64, |sum, i| sum.saturating_add(at(i)));
    Some(CpuTimes { busy: sum([0, 1, 2, 5, 6]), idle: at(3).saturating_add(at(4)), steal: at(7) })
}

/// The CPUs that have a line of their own in /proc/stat: those online.
#[must_use]
pub fn stat_cpus(text: &str) -> Vec<u32> {
    let number = |line: &str| {
        // The line of all CPUs together has a space here.
        let digits = line.strip_prefix("cpu")?.split(' ').next()?;
        digits.parse().ok().filter(|number| *number < cpu::MOST_CPUS)
    };
    // A line without its end was cut off, perhaps within the number.
    let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let mut cpus: Vec<u32> = whole.filter_map(number).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// The one-minute load average of /proc/loadavg.
#[must_use]
pub fn load_average(text: &str) -> Option<f64> {
    let load: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    (load.is_finite() && load >= 0.0).then_some(load)
}

/// `some avg10` of a /proc/pressure file as a ratio from 0 to 1.
#[must_use]
pub fn pressure_some(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent: f64 =
        line.split_ascii_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// Memory and CPU pressure together; the CPU file is optional, as in kernels without it.
#[must_use]
pub fn pressure(memory: &str, cpu: Option<&str>) -> Option<Pressure> {
    Some(Pressure { memory_some_ratio: pressure_some(memory)?, cpu_some_ratio: cpu.and_then(pressure_some) })
}

/// A cache size as sysfs writes it: `32768K`, `4M`, or bytes without a letter. Zero is no size.
#[must_use]
pub fn cache_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (text.strip_suffix('K')?, 1 << 10),
        b'M' => (text.strip_suffix('M')?, 1 << 20),
        b'G' => (text.strip_suffix('G')?, 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|bytes| *bytes > 0)
}

/// A clock in kHz as cpufreq writes it. A stopped clock is of no use, and a number that would be a clock only in
/// another unit is not one.
#[must_use]
pub fn kilohertz(text: &str) -> Option<Hertz> {
    unsigned(text).map(|value| Hertz(value as f64 * 1e3)).filter(|clock| tegra::CLOCKS.contains(&clock.0))
}

/// What a thermal zone says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Temperature {
    /// A temperature that silicon may have.
    Known(Celsius),
    /// The code of a sensor whose power domain is off: -256 °C.
    Off,
    /// A number, but no temperature of a working machine.
    Implausible(Celsius),
}

/// Thousandths of a degree, as thermal zones and hwmon write them.
#[must_use]
pub fn millidegrees(text: &str) -> Option<Temperature> {
    let number = signed(text)?;
    let temperature = Celsius(number as f64 / 1e3);
    Some(match temperature.0 {
        -256.0 => Temperature::Off,
        // Whole degrees: within a part of a degree of freezing no machine that computes stays for long.
        _ if (1..=150).contains(&number) => Temperature::Implausible(temperature),
        -60.0..=250.0 => Temperature::Known(temperature),
        _ => Temperature::Implausible(temperature),
    })
}

/// Power in µW as hwmon writes it, with a sign; beyond a megawatt it is no reading.
#[must_use]
pub fn microwatts(text: &str) -> Option<Watts> {
    signed(text).map(|value| Watts(value as f64 / 1e6)).filter(|power| power.0.abs() <= 1e6)
}

#[cfg(test)]
mod tests;
