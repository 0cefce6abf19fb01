//! The directory tree of a board that has just booted: the files of its description, and those that follow from its
//! CPUs and its memory.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::kernel::{self, place};
use super::physics::ROOM;
use super::spec::{Rail, Spec, Texts};

/// A tree while it is being written. Files that exist are rewritten in place.
struct Tree<'a> {
    root: &'a Path,
}

impl Tree<'_> {
    fn line(&self, path: &str, text: impl std::fmt::Display) -> io::Result<()> {
        self.bytes(path, format!("{text}\n").as_bytes())
    }

    fn lines<T: std::fmt::Display>(&self, dir: &str, files: &[(&str, T)]) -> io::Result<()> {
        files.iter().try_for_each(|(name, text)| self.line(&format!("{dir}/{name}"), text))
    }

    /// A text that does not end with a line end or NUL is a line.
    fn text(&self, path: &str, text: &str) -> io::Result<()> {
        if text.ends_with(['\n', '\0']) { self.bytes(path, text.as_bytes()) } else { self.line(path, text) }
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

/// NVML's answers, where the board's driver gives any.
pub(super) const NVML: &str = "/rooflined/nvml/0";

/// Writes everything that a boot resets. The mode of the status file is entered afterwards.
pub(super) fn write(spec: &Spec, root: &Path) -> io::Result<()> {
    let tree = Tree { root };
    for (path, text) in texts(&spec.files) {
        tree.text(&path, text)?;
    }
    for (path, target) in &spec.links {
        tree.link(path, target)?;
    }
    boot_id(&tree)?;
    proc_files(spec, &tree)?;
    cpus(spec, &tree)
}

fn texts(texts: &Texts) -> impl Iterator<Item = (String, &str)> {
    texts.iter().flat_map(|(dir, files)| {
        files.iter().map(move |(name, text)| (format!("{dir}/{name}"), text.as_str()))
    })
}

fn boot_id(tree: &Tree<'_>) -> io::Result<()> {
    let part = |digits: usize| (0..digits).map(|_| format!("{:x}", fastrand::u8(..16))).collect::<String>();
    let boot = format!("{}-{}-4{}-a{}-{}", part(8), part(4), part(3), part(3), part(12));
    tree.line("/proc/sys/kernel/random/boot_id", boot)
}

fn proc_files(spec: &Spec, tree: &Tree<'_>) -> io::Result<()> {
    tree.bytes("/proc/meminfo", meminfo(spec, 0).as_bytes())?;
    let stat = stat(&(0..spec.cpus()).collect::<Vec<_>>(), 40.0, 4000.0);
    tree.bytes("/proc/stat", stat.as_bytes())?;
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

fn cpus(spec: &Spec, tree: &Tree<'_>) -> io::Result<()> {
    const CPUS: &str = "/sys/devices/system/cpu";
    let root = tree.root;
    let all = kernel::list(&(0..spec.cpus()).collect::<Vec<_>>());
    tree.lines(CPUS, &[("possible", all.as_str()), ("present", &all), ("online", &all), ("offline", "")])?;
    fs::create_dir_all(place(root, &format!("{CPUS}/cpufreq")))?;
    for cluster in &spec.clusters {
        let first = cluster.cpus.first().copied().unwrap_or_default();
        // A boot starts with fresh policies.
        let policy = place(root, &format!("{CPUS}/cpufreq/policy{first}"));
        if policy.is_dir() {
            fs::remove_dir_all(policy)?;
        }
        let shared = kernel::list(&cluster.cpus);
        for &cpu in &cluster.cpus {
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

/// What a zone's file holds. A plain file cannot refuse a read with EAGAIN, as a gated zone of newer kernels does, so
/// such a zone reads as it does on older ones.
pub(super) fn zone_text(junction: f64, above: f64, gated: bool) -> String {
    if gated { "-256000".to_owned() } else { format!("{:.0}", (junction + above) * 1e3) }
}

/// The files of a rail at this power, by name. Only some meters have that of the power.
pub(super) fn rail_texts(rail: &Rail, watts: f64) -> [(String, String); 3] {
    let n = rail.channel;
    let milliamperes = if rail.voltage > 0.0 { watts * 1e6 / rail.voltage } else { 0.0 };
    [
        (format!("in{n}_input"), format!("{:.0}", rail.voltage)),
        (format!("curr{n}_input"), format!("{milliamperes:.0}")),
        (format!("power{n}_input"), format!("{:.0}", watts * 1e6)),
    ]
}

/// Writes what lasts over a boot where it is missing (the modes, the saved mode, the room), and the fake nvpmodel.
pub(super) fn write_lasting(spec: &Spec, root: &Path, program: &Path) -> io::Result<()> {
    let tree = Tree { root };
    let missing = |path: &str| !place(root, path).exists();
    if missing("/rooflined/ambient_c") {
        tree.line("/rooflined/ambient_c", ROOM)?;
    }
    if spec.lasting.is_empty() {
        return Ok(());
    }
    for (path, text) in texts(&spec.lasting).filter(|(path, _)| missing(path)) {
        tree.text(&path, text)?;
    }
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    let script =
        format!("#!/bin/sh\nexec {} fake-nvpmodel --root {} \"$@\"\n", quoted(program), quoted(root));
    let tool = "/usr/sbin/nvpmodel";
    tree.bytes(tool, script.as_bytes())?;
    fs::set_permissions(place(root, tool), fs::Permissions::from_mode(0o755))
}
