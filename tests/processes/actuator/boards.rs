//! Boards with files of modes of several generations, in NVIDIA's grammar and with its numbers, written for these tests.

/// A board: its files, and its modes with what nvpmodel writes for them.
pub struct Board {
    pub conf: String,
    /// Files and what they hold in the mode that the board is in at first.
    pub files: Vec<(String, String)>,
}

fn file(path: &str, text: &str) -> (String, String) {
    (path.into(), format!("{text}\n"))
}

fn params(text: &str) -> String {
    text.lines()
        .map(str::trim_start)
        .filter(|line| !line.is_empty())
        .map(|line| format!("{line}\n"))
        .collect()
}

const NANO_GPU: &str = "/sys/devices/platform/17000000.gpu/devfreq_dev";
const CPU_TABLE: &str = "729600 960000 1344000 1497600 1728000 ";

/// Orin Nano 8GB, JetPack 6.2, Super: modes 0, 1 and 2 gate alike, 3 does not. It is in 15W.
pub fn nano() -> Board {
    let mut conf = params(
        "< PARAM TYPE=FILE NAME=CPU_ONLINE >
        CORE_0 /sys/devices/system/cpu/cpu0/online
        CORE_4 /sys/devices/system/cpu/cpu4/online
        CORE_5 /sys/devices/system/cpu/cpu5/online
        < PARAM TYPE=FILE NAME=TPC_POWER_GATING >
        TPC_PG_MASK /sys/devices/gpu.0/tpc_pg_mask
        TPC_PG_MASK_KNEXT /sys/devices/platform/gpu.0/tpc_pg_mask
        < PARAM TYPE=FILE NAME=GPU_POWER_CONTROL_ENABLE >
        GPU_PWR_CNTL_EN /sys/devices/gpu.0/power/control
        GPU_PWR_CNTL_EN_KNEXT /sys/devices/platform/gpu.0/power/control
        < PARAM TYPE=FILE NAME=GPU_POWER_CONTROL_DISABLE >
        GPU_PWR_CNTL_DIS /sys/devices/gpu.0/power/control
        GPU_PWR_CNTL_DIS_KNEXT /sys/devices/platform/gpu.0/power/control
        < PARAM TYPE=CLOCK NAME=CPU_A78_0 >
        FREQ_TABLE /sys/devices/system/cpu/cpu0/cpufreq/scaling_available_frequencies
        MAX_FREQ /sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq
        MIN_FREQ /sys/devices/system/cpu/cpu0/cpufreq/scaling_min_freq
        < PARAM TYPE=CLOCK NAME=GPU >
        FREQ_TABLE /sys/devices/17000000.ga10b/devfreq/17000000.ga10b/available_frequencies
        MAX_FREQ /sys/devices/17000000.ga10b/devfreq/17000000.ga10b/max_freq
        MIN_FREQ /sys/devices/17000000.ga10b/devfreq/17000000.ga10b/min_freq
        FREQ_TABLE_KNEXT /sys/devices/platform/17000000.gpu/devfreq_dev/available_frequencies
        MAX_FREQ_KNEXT /sys/devices/platform/17000000.gpu/devfreq_dev/max_freq
        MIN_FREQ_KNEXT /sys/devices/platform/17000000.gpu/devfreq_dev/min_freq
        <PARAM TYPE=CLOCK NAME=EMC >
        MAX_FREQ /sys/kernel/nvpmodel_emc_cap/emc_iso_cap
        MAX_FREQ_KNEXT /sys/kernel/nvpmodel_clk_cap/emc
        ",
    );
    for (id, name, cores, cpu, gpu, emc, mask) in [
        (0, "15W", 1, "1497600", "612000000", "2133000000", 240),
        (1, "25W", 1, "1344000", "918000000", "3199000000", 240),
        (2, "MAXN_SUPER", 1, "-1", "-1", "-1", 240),
        (3, "7W", 0, "960000", "408000000", "2133000000", 252),
    ] {
        conf += &params(&format!(
            "< POWER_MODEL ID={id} NAME={name} >
            CPU_ONLINE CORE_0 1
            CPU_ONLINE CORE_4 {cores}
            CPU_ONLINE CORE_5 {cores}
            TPC_POWER_GATING TPC_PG_MASK {mask}
            GPU_POWER_CONTROL_ENABLE GPU_PWR_CNTL_EN on
            CPU_A78_0 MIN_FREQ 729600
            CPU_A78_0 MAX_FREQ {cpu}
            GPU MIN_FREQ 0
            GPU MAX_FREQ {gpu}
            GPU_POWER_CONTROL_DISABLE GPU_PWR_CNTL_DIS auto
            EMC MAX_FREQ {emc}"
        ));
    }
    conf += "< PM_CONFIG DEFAULT=1 >\n";
    let gpu_table = "306000000 408000000 510000000 612000000 714000000 816000000 918000000 1020000000 ";
    let files = vec![
        file("/etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic"),
        file("/sys/devices/system/cpu/cpu0/online", "1"),
        file("/sys/devices/system/cpu/cpu4/online", "1"),
        file("/sys/devices/system/cpu/cpu5/online", "1"),
        file("/sys/devices/platform/gpu.0/tpc_pg_mask", "240"),
        file("/sys/devices/platform/gpu.0/power/control", "auto"),
        file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_available_frequencies", CPU_TABLE),
        file("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "1728000"),
        file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_min_freq", "729600"),
        file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "1497600"),
        file(&format!("{NANO_GPU}/available_frequencies"), gpu_table),
        file(&format!("{NANO_GPU}/min_freq"), "306000000"),
        file(&format!("{NANO_GPU}/max_freq"), "612000000"),
        file("/sys/kernel/nvpmodel_clk_cap/emc", "2133000000"),
        file("/sys/kernel/debug/bpmp/debug/clk/emc/max_rate", "3199000000"),
        file("/var/lib/nvpmodel/status", "pmode:0000"),
    ];
    Board { conf, files }
}

/// AGX Orin 64GB, JetPack 5, with the clock table of its first release, which rounds 612 MHz to 522.75. It is in MAXN.
pub fn agx() -> Board {
    let mut conf = params(
        "< PARAM TYPE=FILE NAME=CPU_ONLINE >
        CORE_8 /sys/devices/system/cpu/cpu8/online
        < PARAM TYPE=FILE NAME=TPC_POWER_GATING >
        TPC_PG_MASK /sys/devices/gpu.0/tpc_pg_mask
        < PARAM TYPE=CLOCK NAME=GPU >
        MAX_FREQ /sys/devices/17000000.ga10b/devfreq/17000000.ga10b/max_freq
        <PARAM TYPE=CLOCK NAME=EMC >
        MAX_FREQ /sys/kernel/nvpmodel_emc_cap/emc_iso_cap",
    );
    for (id, name, core, gpu, emc, mask) in [
        (0, "MAXN", 1, "-1", "0", 0),
        (1, "MODE_15W", 0, "408000000", "2133000000", 248),
        (2, "MODE_30W", 0, "612000000", "0", 240),
        (3, "MODE_50W", 1, "816000000", "0", 0),
    ] {
        conf += &params(&format!(
            "< POWER_MODEL ID={id} NAME={name} >
            CPU_ONLINE CORE_8 {core}
            TPC_POWER_GATING TPC_PG_MASK {mask}
            GPU MAX_FREQ {gpu}
            EMC MAX_FREQ {emc}"
        ));
    }
    conf += "< PM_CONFIG DEFAULT=2 >\n";
    let dir = "/sys/devices/17000000.ga10b/devfreq/17000000.ga10b";
    let table = "306000000 420750000 522750000 624750000 726750000 828750000 1300500000";
    let files = vec![
        file("/etc/nv_tegra_release", "# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref"),
        file("/sys/devices/system/cpu/cpu8/online", "1"),
        file("/sys/devices/gpu.0/tpc_pg_mask", "0"),
        file(&format!("{dir}/available_frequencies"), table),
        file(&format!("{dir}/max_freq"), "1300500000"),
        file("/sys/kernel/nvpmodel_emc_cap/emc_iso_cap", "0"),
        file("/var/lib/nvpmodel/status", "pmode:0000"),
    ];
    Board { conf, files }
}

/// The same with JetPack 7.2, where 20W lowers the memory clock; no mode gates. It is in MAXN.
pub fn agx_jp7() -> Board {
    let mut conf = params(
        "<PARAM TYPE=CLOCK NAME=EMC >
        MAX_FREQ /sys/kernel/nvpmodel_clk_cap/emc
        < PARAM TYPE=CLOCK NAME=GPU >
        MAX_FREQ /sys/devices/platform/17000000.gpu/devfreq_dev/max_freq
        < PARAM TYPE=FILE NAME=TPC_POWER_GATING >
        TPC_PG_MASK /sys/devices/platform/gpu.0/tpc_pg_mask",
    );
    for (id, name, gpu, emc) in [(0, "MAXN", "-1", "-1"), (1, "MODE_20W", "408000000", "2133000000")] {
        conf += &params(&format!(
            "< POWER_MODEL ID={id} NAME={name} >
            TPC_POWER_GATING TPC_PG_MASK 0
            GPU MAX_FREQ {gpu}
            EMC MAX_FREQ {emc}"
        ));
    }
    conf += "< PM_CONFIG DEFAULT=1 >\n";
    let files = vec![
        file("/etc/nv_tegra_release", "# R39 (release), REVISION: 2.0, GCID: 1, BOARD: generic"),
        file("/sys/kernel/nvpmodel_clk_cap/emc", "3199000000"),
        file("/sys/kernel/debug/bpmp/debug/clk/emc/max_rate", "3199000000"),
        file("/sys/devices/platform/17000000.gpu/devfreq_dev/available_frequencies", "408000000 1300500000"),
        file("/sys/devices/platform/17000000.gpu/devfreq_dev/max_freq", "1300500000"),
        file("/sys/devices/platform/gpu.0/tpc_pg_mask", "0"),
        file("/var/lib/nvpmodel/status", "pmode:0000"),
    ];
    Board { conf, files }
}

/// AGX Thor: another memory file, and masks in a file of module options. It is in 120W.
pub fn thor() -> Board {
    let mut conf = params(
        "< PARAM TYPE=FILE NAME=GPU_PG >
        GPU_PG_MASK /opt/nvidia/l4t-gpusetup/gpu_pg_mask
        < PARAM TYPE=CLOCK NAME=GPU >
        MAX_FREQ /sys/class/devfreq/gpu-gpc-0/max_freq
        < PARAM TYPE=CLOCK NAME=EMC >
        MAX_FREQ /sys/class/devfreq/bwmgr/max_freq",
    );
    for (id, name, gpu, mask) in
        [(0, "MAXN", "-1", 512), (1, "120W", "1386000000", 512), (2, "90W", "1530000000", 17353)]
    {
        conf += &params(&format!(
            "< POWER_MODEL ID={id} NAME={name} >
            GPU_PG GPU_PG_MASK {mask}
            GPU MAX_FREQ {gpu}
            EMC MAX_FREQ 4266000000"
        ));
    }
    conf += "< PM_CONFIG DEFAULT=1 >\n";
    let files = vec![
        file("/opt/nvidia/l4t-gpusetup/gpu_pg_mask", "gpu_pg_mask_param=512"),
        file(
            "/sys/class/devfreq/gpu-gpc-0/available_frequencies",
            "306000000 1386000000 1530000000 1575000000",
        ),
        file("/sys/class/devfreq/gpu-gpc-0/max_freq", "1386000000"),
        file("/sys/class/devfreq/bwmgr/max_freq", "4266000000"),
        file("/var/lib/nvpmodel/status", "pmode:0001"),
    ];
    Board { conf, files }
}
