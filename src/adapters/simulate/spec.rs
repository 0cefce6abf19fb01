//! The boards that can be simulated: what each is built of, its power modes, and the constants of its physics.
//!
//! Clocks, masks, paths and rails are those that owners of the boards have published. The power figures are set so
//! that idle and loaded totals meet the published ones; see [`Power`].

/// Which generation of files a board has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Orin with JetPack 5: `17000000.ga10b`, `emc_iso_cap`.
    Orin5,
    /// Orin with JetPack 6: `17000000.gpu`, `nvpmodel_clk_cap`.
    Orin6,
    /// Thor with JetPack 7: devfreq `gpu-gpc-0` and `bwmgr`.
    Thor,
    /// GB10: everything about the GPU comes from NVML.
    Gb10,
}

/// Clocks from `min` in equal steps below `max`, and `max` itself; in the unit of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy)]
pub(super) struct Cluster {
    pub cpus: &'static [u32],
    /// kHz.
    pub clocks: Clocks,
    /// `CPU part` of /proc/cpuinfo.
    pub part: u32,
}

/// One power mode. Clocks of -1 are not capped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mode {
    pub id: u32,
    pub name: &'static str,
    pub cores: u32,
    pub cpu_khz: i64,
    pub gpu_hz: i64,
    pub emc_hz: i64,
    pub mask: u32,
}

/// A power rail: where it is measured, and its part of the board's power.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rail {
    pub chip: &'static str,
    pub channel: u32,
    pub label: &'static str,
    /// mV.
    pub voltage: f64,
    /// Watts at idle, without what clocks and units that are up add to it.
    pub idle: f64,
    /// Parts of the power that the GPU, the memory and the CPU draw beyond idle.
    pub gpu: f64,
    pub memory: f64,
    pub cpu: f64,
}

/// Watts beyond idle with everything at its highest clock and fully busy.
#[derive(Debug, Clone, Copy)]
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

#[derive(Debug, Clone, Copy)]
pub(super) struct Thermal {
    /// Degrees at idle in a room of 27 °C.
    pub idle: f64,
    /// Kelvin per watt beyond idle.
    pub resistance: f64,
    /// Seconds: a tenth of a real heat sink's, so that a tour shows what heat does.
    pub time_constant: f64,
    /// Degrees from which the GPU is slowed down.
    pub throttle: f64,
    pub critical: f64,
    /// Zones in their order: type, difference from the junction, and whether the unit is always gated.
    pub zones: &'static [(&'static str, f64, bool)],
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub key: &'static str,
    pub family: Family,
    pub model: &'static str,
    pub compatible: &'static [&'static str],
    pub tegra_release: &'static str,
    pub os: &'static str,
    pub kernel: &'static str,
    pub memory_kib: u64,
    pub swap_kib: u64,
    pub clusters: &'static [Cluster],
    pub conf: &'static str,
    pub default_mode: u32,
    pub modes: &'static [Mode],
    pub sm: u32,
    /// Hz.
    pub gpu: Clocks,
    /// Hz that the GPU really reaches; below the table's highest on GB10.
    pub gpu_boost: u64,
    /// Hz of the memory clock at idle.
    pub emc_idle: u64,
    pub emc: &'static [u64],
    pub rails: &'static [Rail],
    pub power: Power,
    pub thermal: Thermal,
}

impl Spec {
    pub fn emc_max(&self) -> u64 {
        self.emc.last().copied().unwrap_or(self.emc_idle)
    }

    pub fn cpus(&self) -> u32 {
        self.clusters.iter().flat_map(|cluster| cluster.cpus).max().map_or(0, |last| last + 1)
    }

    pub fn cpu_max(&self) -> u64 {
        self.clusters.iter().map(|cluster| cluster.clocks.max).max().unwrap_or(1)
    }

    pub fn cluster_of(&self, cpu: u32) -> Option<&Cluster> {
        self.clusters.iter().find(|cluster| cluster.cpus.contains(&cpu))
    }

    /// SMs that a mask leaves.
    pub fn sm_online(&self, mask: u32) -> u32 {
        match self.family {
            // A bit for each of eight texture-processing clusters of two; units that the module lacks stay masked.
            Family::Orin5 | Family::Orin6 => (2 * 8_u32.saturating_sub(mask.count_ones())).min(self.sm),
            Family::Thor if mask == THOR_GATED => 12,
            Family::Thor | Family::Gb10 => self.sm,
        }
    }
}

/// Masks of Thor's module option: nothing gated, and what 90W and 70W gate.
const THOR_FULL: u32 = 512;
const THOR_GATED: u32 = 17_353;

const A78_NANO: Clocks = Clocks { min: 115_200, step: 76_800, max: 1_728_000 };
const A78_AGX: Clocks = Clocks { min: 115_200, step: 76_800, max: 2_201_600 };
const V3: Clocks = Clocks { min: 972_000, step: 27_000, max: 2_601_000 };
const A78: u32 = 0xd42;
const V3_PART: u32 = 0xd83;

const fn a78(cpus: &'static [u32], clocks: Clocks) -> Cluster {
    Cluster { cpus, clocks, part: A78 }
}

const fn v3(cpus: &'static [u32]) -> Cluster {
    Cluster { cpus, clocks: V3, part: V3_PART }
}

const fn rail(chip: &'static str, channel: u32, label: &'static str, voltage: f64, idle: f64) -> Rail {
    Rail { chip, channel, label, voltage, idle, gpu: 0.0, memory: 0.0, cpu: 0.0 }
}

const fn mode(id: u32, name: &'static str, caps: (u32, i64, i64, i64), mask: u32) -> Mode {
    let (cores, cpu_khz, gpu_hz, emc_hz) = caps;
    Mode { id, name, cores, cpu_khz, gpu_hz, emc_hz, mask }
}

pub(super) const BOARDS: [Spec; 4] = [ORIN_NANO, AGX_ORIN, THOR, GB10];

const ORIN_NANO: Spec = Spec {
    key: "jetson-orin-nano-8gb-super",
    family: Family::Orin6,
    model: "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
    compatible: &["nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", "nvidia,tegra234"],
    tegra_release: "# R36 (release), REVISION: 4.4, GCID: 41062509, BOARD: generic, EABI: aarch64, DATE: Mon Jun 16 16:07:13 UTC 2025\n# KERNEL_VARIANT: oot\nTARGET_USERSPACE_LIB_DIR=nvidia\nTARGET_USERSPACE_LIB_DIR_PATH=usr/lib/aarch64-linux-gnu/nvidia\n",
    os: "Ubuntu 22.04.5 LTS",
    kernel: "5.15.148-tegra",
    memory_kib: 7_802_880,
    swap_kib: 12_290_048,
    clusters: &[a78(&[0, 1, 2, 3], A78_NANO), a78(&[4, 5], A78_NANO)],
    conf: "nvpmodel_p3767_0003_super.conf",
    default_mode: 1,
    modes: &[
        mode(0, "15W", (6, 1_497_600, 612_000_000, 2_133_000_000), 240),
        mode(1, "25W", (6, 1_344_000, 918_000_000, 3_199_000_000), 240),
        mode(2, "MAXN_SUPER", (6, -1, -1, -1), 240),
        mode(3, "7W", (4, 960_000, 408_000_000, 2_133_000_000), 252),
    ],
    sm: 8,
    gpu: Clocks { min: 306_000_000, step: 102_000_000, max: 1_020_000_000 },
    gpu_boost: 1_020_000_000,
    emc_idle: 2_133_000_000,
    emc: &[204_000_000, 665_600_000, 2_133_000_000, 3_199_000_000],
    rails: &[
        Rail { gpu: 1.0, memory: 1.0, cpu: 1.0, ..rail("1-0040", 1, "VDD_IN", 5056.0, 4.47) },
        Rail { gpu: 1.0, cpu: 1.0, ..rail("1-0040", 2, "VDD_CPU_GPU_CV", 5056.0, 0.38) },
        Rail { memory: 0.4, ..rail("1-0040", 3, "VDD_SOC", 5056.0, 1.48) },
    ],
    power: Power {
        idle: 4.47,
        idle_uncapped: 0.2,
        gpu: 7.0,
        memory: 4.0,
        cpu: 3.0,
        // MAXN_SUPER under a full load, but not 25W: the alarm is set to 4984 mA, which peaks reach before the mean.
        over_current: 15.4,
    },
    thermal: Thermal {
        idle: 49.5,
        resistance: 2.2,
        time_constant: 6.0,
        throttle: 99.0,
        critical: 104.5,
        zones: &[
            ("cpu-thermal", -0.9, false),
            ("gpu-thermal", -0.2, false),
            ("cv0-thermal", 0.0, true),
            ("cv1-thermal", 0.0, true),
            ("cv2-thermal", 0.0, true),
            ("soc0-thermal", -0.5, false),
            ("soc1-thermal", -0.1, false),
            ("soc2-thermal", -1.6, false),
            ("tj-thermal", 0.0, false),
        ],
    },
};

const AGX_ORIN: Spec = Spec {
    key: "jetson-agx-orin-64gb",
    family: Family::Orin5,
    model: "NVIDIA Jetson AGX Orin Developer Kit",
    compatible: &["nvidia,p3737-0000+p3701-0005", "nvidia,p3701-0005", "nvidia,tegra234"],
    tegra_release: "# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref, EABI: aarch64, DATE: Tue Aug  1 19:57:35 UTC 2023\n",
    os: "Ubuntu 20.04.6 LTS",
    kernel: "5.10.120-tegra",
    memory_kib: 64_349_188,
    swap_kib: 32_174_592,
    clusters: &[a78(&[0, 1, 2, 3], A78_AGX), a78(&[4, 5, 6, 7], A78_AGX), a78(&[8, 9, 10, 11], A78_AGX)],
    conf: "nvpmodel_p3701_0000.conf",
    default_mode: 2,
    modes: &[
        mode(0, "MAXN", (12, -1, -1, 0), 0),
        mode(1, "MODE_15W", (4, 1_113_600, 408_000_000, 2_133_000_000), 248),
        mode(2, "MODE_30W", (8, 1_728_000, 612_000_000, 0), 240),
        mode(3, "MODE_50W", (12, 1_497_600, 816_000_000, 0), 0),
    ],
    sm: 16,
    gpu: Clocks { min: 306_000_000, step: 102_000_000, max: 1_300_500_000 },
    gpu_boost: 1_300_500_000,
    emc_idle: 2_133_000_000,
    emc: &[204_000_000, 665_600_000, 2_133_000_000, 3_199_000_000],
    rails: &[
        Rail { gpu: 1.0, memory: 0.3, ..rail("1-0040", 1, "VDD_GPU_SOC", 12_008.0, 2.75) },
        Rail { cpu: 1.0, ..rail("1-0040", 2, "VDD_CPU_CV", 12_008.0, 0.48) },
        Rail { memory: 0.7, ..rail("1-0040", 3, "VIN_SYS_5V0", 4968.0, 4.87) },
        rail("1-0041", 1, "NC", 0.0, 0.0),
        Rail { memory: 0.5, ..rail("1-0041", 2, "VDDQ_VDD2_1V8AO", 4968.0, 0.4) },
        rail("1-0041", 3, "NC", 0.0, 0.0),
    ],
    power: Power {
        idle: 8.1,
        idle_uncapped: 3.0,
        gpu: 24.0,
        memory: 9.0,
        cpu: 12.0,
        over_current: f64::INFINITY,
    },
    thermal: Thermal {
        idle: 41.5,
        resistance: 0.9,
        time_constant: 16.0,
        throttle: 99.0,
        critical: 104.5,
        zones: &[
            ("CPU-therm", -0.1, false),
            ("GPU-therm", -0.4, false),
            ("CV0-therm", 0.0, true),
            ("CV1-therm", 0.0, true),
            ("CV2-therm", 0.0, true),
            ("SOC0-therm", -2.5, false),
            ("SOC1-therm", -2.6, false),
            ("SOC2-therm", -2.4, false),
            ("tj-therm", 0.0, false),
            ("Tboard_tegra", -12.4, false),
            ("Tdiode_tegra", -10.7, false),
        ],
    },
};

const THOR: Spec = Spec {
    key: "jetson-agx-thor-t5000",
    family: Family::Thor,
    model: "NVIDIA Jetson AGX Thor Developer Kit",
    compatible: &["nvidia,p3971-0089+p3834-0008", "nvidia,p3834-0008", "nvidia,tegra264"],
    tegra_release: "# R38 (release), REVISION: 4.0, GCID: 43443517, BOARD: generic, EABI: aarch64, DATE: Wed Dec 31 00:15:19 UTC 2025\n# KERNEL_VARIANT: oot\nTARGET_USERSPACE_LIB_DIR=nvidia\nTARGET_USERSPACE_LIB_DIR_PATH=usr/lib/aarch64-linux-gnu/nvidia\nINSTALL_TYPE=\n",
    os: "Ubuntu 24.04.3 LTS",
    kernel: "6.8.12-tegra",
    memory_kib: 128_790_720,
    swap_kib: 0,
    clusters: &[
        v3(&[0, 1]),
        v3(&[2, 3]),
        v3(&[4, 5]),
        v3(&[6, 7]),
        v3(&[8, 9]),
        v3(&[10, 11]),
        v3(&[12, 13]),
    ],
    conf: "nvpmodel_p3834_0008.conf",
    default_mode: 1,
    modes: &[
        mode(0, "MAXN", (14, -1, -1, -1), THOR_FULL),
        mode(1, "120W", (14, 2_601_000, 1_386_000_000, 4_266_000_000), THOR_FULL),
        mode(2, "90W", (14, 2_601_000, 1_530_000_000, 4_266_000_000), THOR_GATED),
        mode(3, "70W", (12, 1_998_000, 1_530_000_000, 4_266_000_000), THOR_GATED),
    ],
    sm: 20,
    gpu: Clocks { min: 306_000_000, step: 9_000_000, max: 1_575_000_000 },
    gpu_boost: 1_575_000_000,
    emc_idle: 2_750_000_000,
    emc: &[665_600_000, 2_133_000_000, 2_750_000_000, 3_200_000_000, 4_266_000_000],
    rails: &[
        Rail { gpu: 1.0, ..rail("2-0040", 1, "VDD_GPU", 5000.0, 1.43) },
        Rail { cpu: 1.0, memory: 0.4, ..rail("2-0040", 2, "VDD_CPU_SOC_MSS", 5000.0, 5.89) },
        Rail { memory: 0.6, ..rail("2-0040", 3, "VIN_SYS_5V0", 5000.0, 5.63) },
        Rail { gpu: 1.0, memory: 1.0, cpu: 1.0, ..rail("ina238", 1, "VIN", 19_950.0, 19.25) },
    ],
    power: Power { idle: 19.25, idle_uncapped: 0.6, gpu: 75.0, memory: 18.0, cpu: 25.0, over_current: 112.0 },
    thermal: Thermal {
        idle: 38.9,
        resistance: 0.5,
        time_constant: 18.0,
        throttle: 109.0,
        critical: 114.5,
        zones: &[
            ("tj-thermal", 0.0, false),
            ("soc012-thermal", -1.4, false),
            ("cpu-thermal", -1.5, false),
            ("soc345-thermal", -1.5, false),
            ("gpu-thermal", 0.0, false),
        ],
    },
};

const GB10: Spec = Spec {
    key: "gb10",
    family: Family::Gb10,
    model: "NVIDIA_DGX_Spark",
    compatible: &[],
    tegra_release: "",
    os: "Ubuntu 24.04.3 LTS",
    kernel: "6.17.0-1032-nvidia",
    memory_kib: 127_600_748,
    swap_kib: 16_777_212,
    clusters: &[
        Cluster { cpus: &[0, 1, 2, 3, 4], clocks: A725, part: 0xd87 },
        Cluster { cpus: &[5, 6, 7, 8, 9], clocks: X925, part: 0xd85 },
        Cluster { cpus: &[10, 11, 12, 13, 14], clocks: A725, part: 0xd87 },
        Cluster { cpus: &[15, 16, 17, 18, 19], clocks: X925, part: 0xd85 },
    ],
    conf: "",
    default_mode: 0,
    modes: &[],
    sm: 48,
    gpu: Clocks { min: 208_000_000, step: 13_000_000, max: 3_003_000_000 },
    gpu_boost: 2_483_000_000,
    emc_idle: 4_266_500_000,
    emc: &[4_266_500_000],
    rails: &[Rail { gpu: 1.0, memory: 1.0, ..rail("nvml", 0, "gpu", 1000.0, 4.0) }],
    power: Power {
        idle: 4.0,
        idle_uncapped: 0.0,
        gpu: 58.0,
        memory: 38.0,
        cpu: 40.0,
        over_current: f64::INFINITY,
    },
    thermal: Thermal {
        idle: 40.0,
        resistance: 0.48,
        time_constant: 18.0,
        throttle: 91.0,
        critical: 104.0,
        zones: &[("acpitz", 0.0, false), ("acpitz", -2.0, false)],
    },
};

const A725: Clocks = Clocks { min: 338_000, step: 130_000, max: 2_808_000 };
const X925: Clocks = Clocks { min: 1_378_000, step: 138_000, max: 3_900_000 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_round_down_and_stay_in_the_table() {
        assert_eq!(ORIN_NANO.gpu.down(820_000_000), 816_000_000);
        assert_eq!(ORIN_NANO.gpu.down(1), 306_000_000);
        assert_eq!(ORIN_NANO.gpu.down(u64::MAX), 1_020_000_000);
        assert_eq!(AGX_ORIN.gpu.down(1_300_000_000), 1_224_000_000);
        assert_eq!(AGX_ORIN.gpu.all().last(), Some(1_300_500_000));
    }

    #[test]
    fn every_cap_of_a_mode_is_in_the_table() {
        for spec in BOARDS {
            for mode in spec.modes.iter().filter(|mode| mode.gpu_hz > 0) {
                let gpu = u64::try_from(mode.gpu_hz).unwrap();
                assert_eq!(spec.gpu.down(gpu), gpu, "{} {}", spec.key, mode.name);
                let cpu = u64::try_from(mode.cpu_khz).unwrap();
                assert_eq!(spec.clusters[0].clocks.down(cpu), cpu, "{} {}", spec.key, mode.name);
            }
        }
    }

    #[test]
    fn masks_leave_the_sms_that_owners_counted() {
        for (spec, mask, sm) in [
            (ORIN_NANO, 240, 8),
            (ORIN_NANO, 252, 4),
            (AGX_ORIN, 0, 16),
            (AGX_ORIN, 248, 6),
            (THOR, THOR_FULL, 20),
            (THOR, THOR_GATED, 12),
        ] {
            assert_eq!(spec.sm_online(mask), sm, "{}", spec.key);
        }
    }
}
