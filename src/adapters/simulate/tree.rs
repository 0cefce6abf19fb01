//! The directory tree of a board that has just booted: every file that the real one shows and that somebody reads.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::conf::{self, Names, THOR_MASK};
use super::kernel::{self, place};
use super::physics::ROOM;
use super::spec::{Family, Rail, Spec};

/// A tree while it is being written. Files that exist are rewritten in place.
pub(super) struct Tree<'a> {
    root: &'a Path,
}

impl<'a> Tree<'a> {
    pub const fn new(root: &'a Path) -> Self {
        Self { root }
    }

    fn line(&self, path: &str, text: impl std::fmt::Display) -> io::Result<()> {
        self.bytes(path, format!("{text}\n").as_bytes())
    }

    fn lines<T: std::fmt::Display>(&self, dir: &str, files: &[(&str, T)]) -> io::Result<()> {
        files.iter().try_for_each(|(name, text)| self.line(&format!("{dir}/{name}"), text))
    }

    fn bytes(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let place = place(self.root, path);
        fs::create_dir_all(place.parent().unwrap_or(self.root))?;
        fs::write(place, bytes)
    }

    fn link(&self, path: &str, target: &str) -> io::Result<()> {
        let place = place(self.root, path);
        fs::create_dir_all(place.parent().unwrap_or(self.root))?;
        match symlink(target, &place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome,
        }
    }
}

/// Where the files of a rail's chip are, and the number of its hwmon.
pub(super) fn chip(spec: &Spec, rail: &Rail) -> Option<(String, u32)> {
    let base = match spec.family {
        Family::Orin5 => 3,
        Family::Orin6 => 1,
        Family::Thor | Family::Gb10 => 2,
    };
    match rail.chip {
        "nvml" => None,
        "ina238" => Some(("/sys/devices/platform/c250000.i2c/i2c-7/7-0044/hwmon/hwmon4".to_owned(), 4)),
        address => {
            let bus = address.split('-').next().unwrap_or("1");
            let number = base + u32::from(address.ends_with("41"));
            Some((
                format!("/sys/devices/platform/c240000.i2c/i2c-{bus}/{address}/hwmon/hwmon{number}"),
                number,
            ))
        }
    }
}

/// `dir/inN_input` and its like for the devfreq directory of the GPU: the real one, not an alias.
pub(super) fn gpu_devfreq(family: Family) -> Option<&'static str> {
    match family {
        Family::Orin5 => Some("/sys/devices/17000000.ga10b/devfreq/17000000.ga10b"),
        Family::Orin6 => Some("/sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu"),
        Family::Thor => Some("/sys/devices/platform/bus@0/d0b0000000.pcie/0000:01:00.0/devfreq/gpu-gpc-0"),
        Family::Gb10 => None,
    }
}

/// The GPU's device on Orin.
pub(super) fn gpu_device(family: Family) -> Option<&'static str> {
    match family {
        Family::Orin5 => Some("/sys/devices/17000000.ga10b"),
        Family::Orin6 => Some("/sys/devices/platform/bus@0/17000000.gpu"),
        Family::Thor | Family::Gb10 => None,
    }
}

/// NVML's answers, where the board's driver gives any.
pub(super) const NVML: &str = "/rooflined/nvml/0";
/// The memory clock's directory in debugfs.
pub(super) const EMC_DEBUG: &str = "/sys/kernel/debug/bpmp/debug/clk/emc";
pub(super) const THERMAL: &str = "/sys/class/thermal";
/// hwmon of the over-current counters, on the boards that have them.
pub(super) const SOCTHERM: &str = "/sys/devices/platform/soctherm-oc-event/hwmon/hwmon5";
/// Cooling devices in their order.
pub(super) const COOLING: [&str; 4] =
    ["cpufreq-cpu0", "gpu-devfreq", "cpu-throttle-alert", "gpu-throttle-alert"];

/// Writes everything that a boot resets. The mode of the status file is entered afterwards.
pub(super) fn write(spec: &Spec, root: &Path) -> io::Result<()> {
    let tree = Tree::new(root);
    tree.line("/rooflined/peaks", 0)?;
    identity(spec, &tree)?;
    proc_files(spec, &tree)?;
    cpus(spec, root, &tree)?;
    thermal(spec, &tree)?;
    rails(spec, &tree)?;
    match spec.family {
        Family::Orin5 | Family::Orin6 => orin_gpu(spec, &tree)?,
        Family::Thor => thor_gpu(spec, &tree)?,
        Family::Gb10 => {}
    }
    nvml(spec, &tree)?;
    watched(spec, &tree)
}

/// What people watch beside what answers rest on. None of it follows the load.
fn watched(spec: &Spec, tree: &Tree<'_>) -> io::Result<()> {
    let swap = spec.swap_kib;
    let heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority";
    let area = if spec.family == Family::Gb10 { "/swap.img" } else { "/dev/zram0" };
    let kind = if spec.family == Family::Gb10 { "file" } else { "partition" };
    let swaps =
        if swap == 0 { heading.to_owned() } else { format!("{heading}\n{area}\t{kind}\t{swap}\t0\t5") };
    tree.line("/proc/swaps", swaps)?;
    if swap > 0 && spec.family != Family::Gb10 {
        tree.line("/sys/block/zram0/mm_stat", "4096 74 12288 0 12288 0 0 0 0")?;
    }
    tree.line("/proc/buddyinfo", "Node 0, zone   Normal   4381 2139 97 40 16 8 9 4 4 1 102")?;
    tree.line(
        "/usr/local/cuda/version.json",
        format_args!("{{\"cuda\": {{\"name\": \"CUDA SDK\", \"version\": \"{}\"}}}}", cuda(spec)),
    )?;
    if spec.family == Family::Gb10 {
        return Ok(());
    }
    tree.bytes(
        "/etc/nvfancontrol.conf",
        b"<FAN 1>\n\tFAN_DEFAULT_CONTROL close_loop\n\tFAN_DEFAULT_PROFILE quiet\n",
    )?;
    let tach = "/sys/devices/platform/tach/hwmon/hwmon7";
    tree.lines(tach, &[("name", "pwm_tach"), ("fan1_input", "1460")])?;
    hwmon_link(tree, 7, tach)?;
    for (state, name) in ["WFI", "c7"].into_iter().enumerate() {
        let dir = format!("/sys/devices/system/cpu/cpu0/cpuidle/state{state}");
        tree.lines(&dir, &[("name", name), ("disable", "0")])?;
    }
    if spec.family == Family::Orin6 {
        let engines = [
            ("15340000.vic", 729_600_000_u64),
            ("15380000.nvjpg", 627_200_000),
            ("15480000.nvdec", 998_400_000),
            ("15a50000.ofa", 908_800_000),
        ];
        for (name, max) in engines {
            let real = format!("/sys/devices/platform/bus@0/13e00000.host1x/{name}");
            let dir = format!("{real}/devfreq/{name}");
            let clocks = [("cur_freq", 115_200_000), ("min_freq", 115_200_000), ("max_freq", max)];
            tree.lines(&dir, &clocks)?;
            tree.line(&format!("{dir}/governor"), "tegra_wmark")?;
            tree.link(&format!("{dir}/device"), "../..")?;
            tree.line(&format!("{real}/power/runtime_status"), "suspended")?;
            tree.link(
                &format!("/sys/class/devfreq/{name}"),
                &format!("../../{}", dir.trim_start_matches("/sys/")),
            )?;
        }
    }
    Ok(())
}

/// The release of CUDA that comes with a board's software.
const fn cuda(spec: &Spec) -> &'static str {
    match spec.family {
        Family::Orin5 => "11.4.19",
        Family::Orin6 => "12.6.11",
        Family::Thor | Family::Gb10 => "13.0.0",
    }
}

fn identity(spec: &Spec, tree: &Tree<'_>) -> io::Result<()> {
    if spec.family == Family::Gb10 {
        let dmi = [
            ("product_name", spec.model),
            ("sys_vendor", "NVIDIA"),
            ("board_name", "P4242"),
            ("bios_version", "5.36_0ACUM027"),
        ];
        tree.lines("/sys/class/dmi/id", &dmi)?;
        tree.bytes("/etc/dgx-release", b"DGX_NAME=\"DGX Spark\"\nDGX_PRETTY_NAME=\"NVIDIA DGX Spark\"\n")?;
        let version = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.173.02  Release Build";
        tree.line("/proc/driver/nvidia/version", version)?;
    } else {
        tree.bytes("/proc/device-tree/model", format!("{}\0", spec.model).as_bytes())?;
        let compatible: String = spec.compatible.iter().map(|name| format!("{name}\0")).collect();
        tree.bytes("/proc/device-tree/compatible", compatible.as_bytes())?;
        tree.bytes("/etc/nv_tegra_release", spec.tegra_release.as_bytes())?;
    }
    let name = spec.os.split(' ').next().unwrap_or("Ubuntu");
    let version = spec.os.split(' ').nth(1).unwrap_or_default();
    let release = format!(
        "PRETTY_NAME=\"{}\"\nNAME=\"{name}\"\nVERSION_ID=\"{}\"\nID=ubuntu\nID_LIKE=debian\n",
        spec.os,
        version.get(..5).unwrap_or(version)
    );
    tree.bytes("/etc/os-release", release.as_bytes())?;
    // The same at every start of the same board, and no machine's.
    tree.line("/etc/machine-id", "51510000000000000000000000000000")?;
    tree.line("/proc/sys/kernel/osrelease", spec.kernel)?;
    tree.line("/proc/version", format_args!("Linux version {} (simulated)", spec.kernel))?;
    let part = |digits: usize| (0..digits).map(|_| format!("{:x}", fastrand::u8(..16))).collect::<String>();
    let boot = format!("{}-{}-4{}-a{}-{}", part(8), part(4), part(3), part(3), part(12));
    tree.line("/proc/sys/kernel/random/boot_id", boot)
}

fn proc_files(spec: &Spec, tree: &Tree<'_>) -> io::Result<()> {
    tree.bytes("/proc/meminfo", meminfo(spec, 0).as_bytes())?;
    let stat = stat(&(0..spec.cpus()).collect::<Vec<_>>(), 40.0, 4000.0);
    tree.bytes("/proc/stat", stat.as_bytes())?;
    tree.line("/proc/loadavg", "0.05 0.04 0.01 1/512 4242")?;
    let calm =
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=1200\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    for what in ["memory", "cpu", "io"] {
        tree.bytes(&format!("/proc/pressure/{what}"), calm.as_bytes())?;
    }
    let processor = |cpu: u32| {
        let part = spec.cluster_of(cpu).map_or(0, |cluster| cluster.part);
        format!(
            "processor\t: {cpu}\nBogoMIPS\t: 62.50\nFeatures\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp uscat ilrcpc flagm\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {part:#x}\nCPU revision\t: 1\n\n"
        )
    };
    tree.bytes("/proc/cpuinfo", (0..spec.cpus()).map(processor).collect::<String>().as_bytes())
}

/// /proc/stat after each CPU was busy and idle for this long.
pub(super) fn stat(online: &[u32], busy: f64, idle: f64) -> String {
    // Ticks of 10 ms.
    let (user, idle) = ((busy * 100.0) as u64, (idle * 100.0) as u64);
    let count = online.len() as u64;
    let mut text = format!("cpu  {} 0 0 {} 0 0 0 0 0 0\n", user * count, idle * count);
    for cpu in online {
        let _ = writeln!(text, "cpu{cpu} {user} 0 0 {idle} 0 0 0 0 0 0");
    }
    text + "btime 1767225600\nprocesses 4242\nprocs_running 1\nprocs_blocked 0\n"
}

/// /proc/meminfo with `used_kib` taken by whatever runs on the accelerator: the memory is shared.
pub(super) fn meminfo(spec: &Spec, used_kib: u64) -> String {
    let total = spec.memory_kib;
    let available = (total / 100 * 77).saturating_sub(used_kib);
    let free = (total / 100 * 30).saturating_sub(used_kib);
    let lines = [
        ("MemTotal:", total),
        ("MemFree:", free),
        ("MemAvailable:", available),
        ("Buffers:", 103_224),
        ("Cached:", available.saturating_sub(free)),
        ("SwapTotal:", spec.swap_kib),
        ("SwapFree:", spec.swap_kib),
        ("CmaTotal:", 262_144),
        ("CmaFree:", 98_304),
    ];
    lines.map(|(name, kib)| format!("{name:<16}{kib:>8} kB\n")).concat()
}

fn cpus(spec: &Spec, root: &Path, tree: &Tree<'_>) -> io::Result<()> {
    const CPUS: &str = "/sys/devices/system/cpu";
    let all = kernel::list(&(0..spec.cpus()).collect::<Vec<_>>());
    tree.lines(CPUS, &[("possible", all.as_str()), ("present", &all), ("online", &all), ("offline", "")])?;
    fs::create_dir_all(place(root, &format!("{CPUS}/cpufreq")))?;
    for cluster in spec.clusters {
        let first = cluster.cpus.first().copied().unwrap_or_default();
        // A boot starts with fresh policies.
        let policy = place(root, &format!("{CPUS}/cpufreq/policy{first}"));
        if policy.is_dir() {
            fs::remove_dir_all(policy)?;
        }
        let shared = kernel::list(cluster.cpus);
        for &cpu in cluster.cpus {
            let dir = format!("{CPUS}/cpu{cpu}");
            tree.line(&format!("{dir}/online"), 1)?;
            tree.line(&format!("{dir}/topology/core_cpus_list"), cpu)?;
            let own = cpu.to_string();
            for (index, level, kind, size, shared) in [
                (0, 1, "Data", "64K", own.as_str()),
                (1, 1, "Instruction", "64K", &own),
                (2, 2, "Unified", "256K", &own),
                (3, 3, "Unified", "2048K", &shared),
            ] {
                let level = level.to_string();
                let files =
                    [("level", level.as_str()), ("type", kind), ("size", size), ("shared_cpu_list", shared)];
                tree.lines(&format!("{dir}/cache/index{index}"), &files)?;
            }
        }
    }
    kernel::settle_cpus(spec, root)
}

fn thermal(spec: &Spec, tree: &Tree<'_>) -> io::Result<()> {
    const REAL: &str = "/sys/devices/virtual/thermal";
    for (index, (name, above, gated)) in spec.thermal.zones.iter().enumerate() {
        let dir = format!("{REAL}/thermal_zone{index}");
        tree.line(&format!("{dir}/type"), name)?;
        tree.line(&format!("{dir}/temp"), zone_text(spec.thermal.idle, *above, *gated))?;
        tree.line(&format!("{dir}/trip_point_0_temp"), spec.thermal.throttle * 1e3)?;
        tree.line(&format!("{dir}/trip_point_0_type"), "passive")?;
        tree.line(&format!("{dir}/trip_point_1_temp"), spec.thermal.critical * 1e3)?;
        tree.line(&format!("{dir}/trip_point_1_type"), "critical")?;
        tree.link(
            &format!("{THERMAL}/thermal_zone{index}"),
            &format!("../../devices/virtual/thermal/thermal_zone{index}"),
        )?;
    }
    if spec.family == Family::Gb10 {
        return Ok(());
    }
    for (index, name) in COOLING.into_iter().chain(["pwm-fan"]).enumerate() {
        let dir = format!("{REAL}/cooling_device{index}");
        tree.lines(&dir, &[("type", name), ("cur_state", "0"), ("max_state", "3")])?;
        tree.link(
            &format!("{THERMAL}/cooling_device{index}"),
            &format!("../../devices/virtual/thermal/cooling_device{index}"),
        )?;
    }
    Ok(())
}

/// What a zone's file holds. A plain file cannot refuse a read with EAGAIN, as a gated zone of newer kernels does, so
/// such a zone reads as it does on older ones.
pub(super) fn zone_text(junction: f64, above: f64, gated: bool) -> String {
    if gated { "-256000".to_owned() } else { format!("{:.0}", (junction + above) * 1e3) }
}

fn rails(spec: &Spec, tree: &Tree<'_>) -> io::Result<()> {
    for rail in spec.rails {
        let Some((dir, number)) = chip(spec, rail) else { continue };
        let device = dir.rsplit_once("/hwmon/").map_or(dir.as_str(), |(device, _)| device);
        let driver = if rail.chip == "ina238" { "ina238" } else { "ina3221" };
        tree.line(&format!("{dir}/name"), driver)?;
        hwmon_link(tree, number, &dir)?;
        let address = device.rsplit('/').next().unwrap_or_default();
        let up = "../../../../";
        tree.link(
            &format!("/sys/bus/i2c/drivers/{driver}/{address}"),
            &format!("{up}{}", device.trim_start_matches("/sys/")),
        )?;
        for (name, text) in rail_texts(rail, rail.idle) {
            tree.line(&format!("{dir}/{name}"), text)?;
        }
        if driver == "ina238" {
            tree.line(&format!("{dir}/in1_label"), rail.label)?;
            tree.line(&format!("{dir}/power1_label"), rail.label)?;
            continue;
        }
        let channel = rail.channel;
        tree.line(&format!("{dir}/in{channel}_label"), rail.label)?;
        tree.line(
            &format!("{dir}/curr{channel}_max"),
            if spec.family == Family::Orin6 { 4984 } else { 32_760 },
        )?;
        tree.line(
            &format!("{dir}/curr{channel}_crit"),
            if spec.family == Family::Orin6 { 4984 } else { 32_760 },
        )?;
        tree.line(&format!("{dir}/in{}_input", channel + 3), 760)?;
        tree.lines(&dir, &[("in7_label", "sum of shunt voltages"), ("in7_input", "6640")])?;
    }
    match spec.family {
        Family::Gb10 => {
            for (number, name) in ["acpitz", "nvme", "mlx5", "mt7925_phy0"].into_iter().enumerate() {
                let dir = format!("/sys/devices/virtual/hwmon/hwmon{number}");
                tree.lines(&dir, &[("name", name), ("temp1_input", "39000")])?;
                hwmon_link(tree, u32::try_from(number).unwrap_or_default(), &dir)?;
            }
        }
        _ => {
            let fan = "/sys/devices/platform/pwm-fan/hwmon/hwmon0";
            tree.lines(fan, &[("name", "pwmfan"), ("pwm1", "69")])?;
            hwmon_link(tree, 0, fan)?;
        }
    }
    // The older kernel has no such device.
    if matches!(spec.family, Family::Orin6 | Family::Thor) {
        tree.line(&format!("{SOCTHERM}/name"), "soctherm_oc")?;
        for n in 1..=3 {
            tree.lines(
                SOCTHERM,
                &[(format!("oc{n}_event_cnt").as_str(), 0), (&format!("oc{n}_throt_en"), 1)],
            )?;
        }
        hwmon_link(tree, 5, SOCTHERM)?;
    }
    Ok(())
}

/// The files of a rail at this power, by name.
pub(super) fn rail_texts(rail: &Rail, watts: f64) -> Vec<(String, String)> {
    let n = rail.channel;
    let milliamperes = if rail.voltage > 0.0 { watts * 1e6 / rail.voltage } else { 0.0 };
    let voltage = (format!("in{n}_input"), format!("{:.0}", rail.voltage));
    let current = (format!("curr{n}_input"), format!("{milliamperes:.0}"));
    if rail.chip == "ina238" {
        vec![voltage, current, (format!("power{n}_input"), format!("{:.0}", watts * 1e6))]
    } else {
        vec![voltage, current]
    }
}

fn hwmon_link(tree: &Tree<'_>, number: u32, dir: &str) -> io::Result<()> {
    let target = format!("../../{}", dir.trim_start_matches("/sys/"));
    tree.link(&format!("/sys/class/hwmon/hwmon{number}"), &target)
}

fn devfreq(spec: &Spec, tree: &Tree<'_>, dir: &str, governor: &str, table: bool) -> io::Result<()> {
    let (low, high) = (spec.gpu.min.to_string(), spec.gpu.max.to_string());
    let name = dir.rsplit('/').next().unwrap_or_default();
    let files = [
        ("cur_freq", low.as_str()),
        ("target_freq", &low),
        ("min_freq", &low),
        ("max_freq", &high),
        ("governor", governor),
        ("name", name),
    ];
    tree.lines(dir, &files)?;
    if table {
        let clocks: Vec<String> = spec.gpu.all().map(|clock| clock.to_string()).collect();
        tree.line(&format!("{dir}/available_frequencies"), clocks.join(" "))?;
    }
    Ok(())
}

fn orin_gpu(spec: &Spec, tree: &Tree<'_>) -> io::Result<()> {
    let (Some(dir), Some(device)) = (gpu_devfreq(spec.family), gpu_device(spec.family)) else {
        return Ok(());
    };
    let name = dir.rsplit('/').next().unwrap_or_default();
    devfreq(spec, tree, dir, "nvhost_podgov", true)?;
    tree.link(&format!("{dir}/device"), "../..")?;
    tree.link(&format!("/sys/class/devfreq/{name}"), &format!("../../{}", dir.trim_start_matches("/sys/")))?;
    tree.bytes(
        &format!("{device}/of_node/name"),
        if spec.family == Family::Orin6 { b"gpu\0" } else { b"ga10b\0" },
    )?;
    let full = 0xff & !((1_u32 << (spec.sm / 2)) - 1);
    tree.line(&format!("{device}/tpc_pg_mask"), full)?;
    tree.line(&format!("{device}/fbp_pg_mask"), if spec.family == Family::Orin6 { 2 } else { 0 })?;
    let files = [
        ("load", "0"),
        ("power/control", "auto"),
        ("railgate_enable", "1"),
        ("railgate_delay", "500"),
        ("enable_3d_scaling", "1"),
    ];
    tree.lines(device, &files)?;
    if spec.family == Family::Orin6 {
        tree.link("/sys/devices/platform/17000000.gpu", "bus@0/17000000.gpu")?;
        tree.link("/sys/devices/platform/gpu.0", "bus@0/17000000.gpu")?;
        tree.link(&format!("{device}/devfreq_dev"), "devfreq/17000000.gpu")?;
        tree.line("/sys/kernel/nvpmodel_clk_cap/emc", spec.emc_max())?;
    } else {
        tree.link("/sys/devices/gpu.0", "17000000.ga10b")?;
        tree.line("/sys/kernel/nvpmodel_emc_cap/emc_iso_cap", 0)?;
    }
    let (idle, top) = (spec.emc_idle, spec.emc_max());
    let lowest = spec.emc.first().copied().unwrap_or(idle);
    tree.lines(
        EMC_DEBUG,
        &[("rate", idle), ("min_rate", lowest), ("max_rate", top), ("mrq_rate_locked", 0), ("state", 1)],
    )?;
    let rates: Vec<String> = spec.emc.iter().map(|hz| (hz / 1000).to_string()).collect();
    tree.line("/sys/kernel/debug/bpmp/debug/emc/possible_rates", rates.join(" "))?;
    tree.line("/sys/kernel/debug/cactmon/mc_all", 0)
}

fn thor_gpu(spec: &Spec, tree: &Tree<'_>) -> io::Result<()> {
    let Some(dir) = gpu_devfreq(spec.family) else { return Ok(()) };
    devfreq(spec, tree, dir, "pod_scaling", false)?;
    let up = |dir: &str| format!("../../{}", dir.trim_start_matches("/sys/"));
    tree.link("/sys/class/devfreq/gpu-gpc-0", &up(dir))?;
    let video = dir.replace("gpu-gpc-0", "gpu-nvd-0");
    let files = [
        ("cur_freq", "314000000"),
        ("min_freq", "306000000"),
        ("max_freq", "1692000000"),
        ("governor", "pod_scaling"),
        ("name", "gpu-nvd-0"),
    ];
    tree.lines(&video, &files)?;
    tree.link("/sys/class/devfreq/gpu-nvd-0", &up(&video))?;
    let pci = "/sys/devices/platform/bus@0/d0b0000000.pcie/0000:01:00.0";
    tree.lines(&format!("{pci}/power"), &[("control", "auto"), ("runtime_status", "active")])?;
    tree.link(
        "/sys/bus/pci/devices/0000:01:00.0",
        "../../../devices/platform/bus@0/d0b0000000.pcie/0000:01:00.0",
    )?;
    tree.line(THOR_MASK, 512)?;
    let bwmgr = "/sys/devices/platform/bwmgr/devfreq/bwmgr";
    let (idle, top) = (spec.emc_idle.to_string(), spec.emc_max().to_string());
    let files = [
        ("cur_freq", idle.as_str()),
        ("min_freq", "665600000"),
        ("max_freq", &top),
        ("governor", "bpmp-bwmgr"),
        ("name", "bwmgr"),
    ];
    tree.lines(bwmgr, &files)?;
    tree.link("/sys/class/devfreq/bwmgr", &up(bwmgr))?;
    tree.line("/sys/kernel/debug/bpmp/debug/actmon/mc_all_avg_activity", 0)?;
    tree.line(
        "/proc/driver/nvidia/gpus/0000:01:00.0/power",
        "Runtime D3 status: Enabled (fine-grained)\nRail-Gating: Supported",
    )
}

fn nvml(spec: &Spec, tree: &Tree<'_>) -> io::Result<()> {
    let uuid = "GPU-51510000-0000-4000-a000-000000000001";
    match spec.family {
        // The older kernel's driver has no library to ask.
        Family::Orin5 => Ok(()),
        Family::Orin6 => tree.lines(
            NVML,
            &[
                ("name", "Orin (nvgpu)"),
                ("uuid", uuid),
                ("driver_version", "540.4.0"),
                ("compute_capability", "8.7"),
            ],
        ),
        Family::Thor => tree.lines(
            NVML,
            &[
                ("name", "NVIDIA Thor"),
                ("uuid", uuid),
                ("driver_version", "580.00"),
                ("compute_capability", "11.0"),
                ("utilization_gpu_percent", "0"),
            ],
        ),
        Family::Gb10 => tree.lines(
            NVML,
            &[
                ("name", "NVIDIA GB10"),
                ("uuid", uuid),
                ("driver_version", "580.173.02"),
                ("compute_capability", "12.1"),
                ("temperature_c", "40"),
                ("power_mw", "4000"),
                ("utilization_gpu_percent", "0"),
                ("sm_clock_mhz", "208"),
                ("max_sm_clock_mhz", "3003"),
                ("throttle_reasons", "0x1"),
                ("energy_mj", "0"),
                ("locked_clocks_mhz", ""),
            ],
        ),
    }
}

/// What lasts over a boot, written only where it is missing: the modes, the saved mode, the room, the marker.
pub(super) fn write_lasting(spec: &Spec, root: &Path, program: &Path) -> io::Result<()> {
    let tree = Tree::new(root);
    let missing = |path: &str| !place(root, path).exists();
    if missing("/rooflined/ambient_c") {
        tree.line("/rooflined/ambient_c", ROOM)?;
    }
    if spec.modes.is_empty() {
        return Ok(());
    }
    let conf = format!("/etc/nvpmodel/{}", spec.conf);
    if missing(&conf) {
        tree.bytes(&conf, conf::render(spec).as_bytes())?;
    }
    tree.link("/etc/nvpmodel.conf", &format!("nvpmodel/{}", spec.conf))?;
    if missing("/var/lib/nvpmodel/status") {
        tree.line("/var/lib/nvpmodel/status", format_args!("pmode:{:04}", spec.default_mode))?;
        tree.line("/var/lib/nvpmodel/conf_file_path", "/etc/nvpmodel.conf")?;
    }
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    let script =
        format!("#!/bin/sh\nexec {} fake-nvpmodel --root {} \"$@\"\n", quoted(program), quoted(root));
    let tool = "/usr/sbin/nvpmodel";
    tree.bytes(tool, script.as_bytes())?;
    fs::set_permissions(place(root, tool), fs::Permissions::from_mode(0o755))
}

/// The paths by which the caps are read back.
pub(super) struct CapFiles {
    pub gpu_max: String,
    pub gpu_min: String,
    pub emc: String,
    pub mask: String,
}

impl CapFiles {
    pub fn of(family: Family) -> Self {
        let names = Names::of(family);
        let gpu = gpu_devfreq(family).unwrap_or_default();
        let mask = match family {
            Family::Thor => THOR_MASK.to_owned(),
            _ => format!("{}/tpc_pg_mask", gpu_device(family).unwrap_or_default()),
        };
        let emc = names.emc_knext.unwrap_or(names.emc).to_owned();
        Self { gpu_max: format!("{gpu}/max_freq"), gpu_min: format!("{gpu}/min_freq"), emc, mask }
    }
}
