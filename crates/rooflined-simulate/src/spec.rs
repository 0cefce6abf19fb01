//! The boards that can be simulated: the constants of their physics and the files that they show, read from
//! `boards/KEY.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::simulated_probe::Truth;

/// Clocks from `min` in equal steps below `max`, and `max` itself; in the unit of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Clocks {
    pub min: u64,
    pub step: u64,
    pub max: u64,
}

impl Clocks {
    pub fn all(self) -> impl Iterator<Item = u64> {
        (0..)
            .map(move |n| self.min + n * self.step)
            .take_while(move |clock| *clock < self.max)
            .chain([self.max])
    }

    /// The highest clock of the table that is not above `asked`; the lowest if all are.
    pub fn down(self, asked: u64) -> u64 {
        self.all().take_while(|clock| *clock <= asked).last().unwrap_or(self.min)
    }
}

/// CPUs that share a clock.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cluster {
    pub cpus: Vec<u32>,
    /// kHz.
    pub clocks: Clocks,
    /// `CPU part` of /proc/cpuinfo.
    pub part: u32,
}

/// A power rail: where it is measured, and its part of the board's power.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rail {
    /// Directory of its hwmon.
    pub dir: String,
    pub channel: u32,
    /// mV.
    pub voltage: f64,
    /// Watts at idle, without what clocks and units that are up add to it.
    pub idle: f64,
    /// Parts of the power that the GPU, the memory and the CPU draw beyond idle.
    #[serde(default)]
    pub gpu: f64,
    #[serde(default)]
    pub memory: f64,
    #[serde(default)]
    pub cpu: f64,
}

/// Watts beyond idle with everything at its highest clock and fully busy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Power {
    /// With every unit gated or at its lowest clock.
    pub idle: f64,
    /// Further power at idle with all clocks uncapped and nothing gated.
    pub idle_uncapped: f64,
    pub gpu: f64,
    pub memory: f64,
    pub cpu: f64,
    /// Mean power from which short peaks trip the over-current alarm; infinite where nothing counts them.
    pub over_current: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Thermal {
    /// Degrees at idle in a room of 27 °C.
    pub idle: f64,
    /// Kelvin per watt beyond idle.
    pub resistance: f64,
    /// Seconds: a tenth of a real heat sink's, so that a tour shows what heat does.
    pub time_constant: f64,
    /// Degrees from which the GPU is slowed down.
    pub throttle: f64,
    /// Zones in their order: type, difference from the junction, and whether the unit is always gated.
    pub zones: Vec<(String, f64, bool)>,
}

/// Texts of files by directory and name. A text that does not end with a line end or NUL is a line.
pub(super) type Texts = BTreeMap<String, BTreeMap<String, String>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spec {
    pub key: String,
    pub memory_kib: u64,
    pub swap_kib: u64,
    pub clusters: Vec<Cluster>,
    pub sm: u32,
    /// Texture-processing clusters of two SMs, each with a bit in the mask; clusters that the module lacks stay masked.
    pub tpcs_in_mask: Option<u32>,
    /// A mask without such bits, and the SMs that it leaves.
    pub gated: Option<(u32, u32)>,
    /// Whether the GPU is switched off once it has been idle for a while.
    #[serde(default)]
    pub gates_idle_gpu: bool,
    /// Hz.
    pub gpu: Clocks,
    /// Hz that the GPU really reaches.
    pub gpu_boost: u64,
    /// The real directory, not an alias; `None` where NVML has the clocks of the GPU.
    pub gpu_devfreq: Option<String>,
    /// Directory of the file `load`.
    pub gpu_device: Option<String>,
    /// Where the mask of gated clusters is read back.
    pub mask_file: Option<String>,
    /// Where the cap of the memory clock is read back.
    pub emc_cap_file: Option<String>,
    /// Hz of the memory clock at idle.
    pub emc_idle: u64,
    pub emc_max: u64,
    /// What nvpmodel prints for a clock without a cap.
    #[serde(default = "largest")]
    pub uncapped_clock: i64,
    pub rails: Vec<Rail>,
    pub power: Power,
    pub thermal: Thermal,
    pub accelerator: Truth,
    /// Files that every boot resets.
    pub files: Texts,
    /// Files that last over a boot.
    #[serde(default)]
    pub lasting: Texts,
    pub links: BTreeMap<String, String>,
}

const fn largest() -> i64 {
    i64::MAX
}

impl Spec {
    pub fn cpus(&self) -> u32 {
        self.clusters.iter().flat_map(|cluster| &cluster.cpus).max().map_or(0, |last| last + 1)
    }

    pub fn cpu_max(&self) -> u64 {
        self.clusters.iter().map(|cluster| cluster.clocks.max).max().unwrap_or(1)
    }

    pub fn cluster_of(&self, cpu: u32) -> Option<&Cluster> {
        self.clusters.iter().find(|cluster| cluster.cpus.contains(&cpu))
    }

    /// SMs that a mask leaves.
    pub fn sm_online(&self, mask: u32) -> u32 {
        match (self.tpcs_in_mask, self.gated) {
            (Some(tpcs), _) => (2 * tpcs.saturating_sub(mask.count_ones())).min(self.sm),
            (None, Some((gated, left))) if mask == gated => left,
            _ => self.sm,
        }
    }
}

pub(super) static BOARDS: LazyLock<Vec<Spec>> = LazyLock::new(|| {
    let texts = [
        include_str!("../boards/jetson-orin-nano-8gb-super.toml"),
        include_str!("../boards/jetson-agx-orin-64gb.toml"),
        include_str!("../boards/jetson-agx-thor-t5000.toml"),
        include_str!("../boards/gb10.toml"),
    ];
    // A test holds that every board is read.
    texts.into_iter().filter_map(|text| toml::from_str(text).ok()).collect()
});

#[cfg(test)]
impl Spec {
    pub fn of(key: &str) -> &'static Self {
        BOARDS.iter().find(|spec| spec.key == key).unwrap()
    }

    /// The power modes as its nvpmodel file has them.
    pub fn conf(&self) -> super::conf::Conf {
        let texts = self.lasting.get("/etc/nvpmodel").and_then(|files| files.values().next());
        super::conf::Conf::parse(texts.map_or("", String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_board_is_read() {
        let keys: Vec<&str> = BOARDS.iter().map(|spec| spec.key.as_str()).collect();
        assert_eq!(
            keys,
            ["jetson-orin-nano-8gb-super", "jetson-agx-orin-64gb", "jetson-agx-thor-t5000", "gb10"]
        );
    }

    #[test]
    fn clocks_round_down_and_stay_in_the_table() {
        let (nano, agx) = (Spec::of("jetson-orin-nano-8gb-super"), Spec::of("jetson-agx-orin-64gb"));
        assert_eq!(nano.gpu.down(820_000_000), 816_000_000);
        assert_eq!(nano.gpu.down(1), 306_000_000);
        assert_eq!(nano.gpu.down(u64::MAX), 1_020_000_000);
        assert_eq!(agx.gpu.down(1_300_000_000), 1_224_000_000);
        assert_eq!(agx.gpu.all().last(), Some(1_300_500_000));
    }

    #[test]
    fn every_cap_of_a_mode_is_in_the_table() {
        let mut checked = 0;
        for spec in BOARDS.iter() {
            for model in &spec.conf().models {
                if let Some(gpu) = model.cap("GPU", "MAX_FREQ") {
                    assert_eq!(spec.gpu.down(gpu), gpu, "{} {}", spec.key, model.name);
                    checked += 1;
                }
                if let Some(cpu) = model.cap("CPU", "MAX_FREQ") {
                    assert_eq!(spec.clusters[0].clocks.down(cpu), cpu, "{} {}", spec.key, model.name);
                    checked += 1;
                }
            }
        }
        assert_eq!(checked, 18, "three capped modes of each of three boards");
    }

    #[test]
    fn masks_leave_the_sms_that_owners_counted() {
        for (key, mask, sm) in [
            ("jetson-orin-nano-8gb-super", 240, 8),
            ("jetson-orin-nano-8gb-super", 252, 4),
            ("jetson-agx-orin-64gb", 0, 16),
            ("jetson-agx-orin-64gb", 248, 6),
            ("jetson-agx-thor-t5000", 512, 20),
            ("jetson-agx-thor-t5000", 17_353, 12),
        ] {
            assert_eq!(Spec::of(key).sm_online(mask), sm, "{key}");
        }
    }
}
