//! What /proc shows of a process over a window: the CPUs it may use and gets, who else uses them, and what it reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::build::Build;
use super::log::Log;
use crate::failure::Failure;
use crate::observe::{Activity, Process, field, read, stat};
use rooflined_api::{OtherProcess, RunEvidence, Unseen};
use rooflined_hw::{SysRoot, core_speed, count_cores, cpu_limits, far_memory, memory_nodes};

/// A process that used less of a CPU is not named.
const LEAST_CPUS: f64 = 0.05;
/// What a library of llama.cpp with CPU kernels is called.
const KERNELS: &str = "ggml-cpu";
/// Number of the scheduling policy in `stat`.
const SCHED_IDLE: u64 = 5;
/// Processes that are named.
const MOST_OTHERS: usize = 5;

/// What counts up while a process runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Counters {
    activity: Activity,
    /// CPU ticks of every process that can be seen.
    ticks: BTreeMap<u32, u64>,
    read_bytes: Option<u64>,
    major_faults: Option<u64>,
    /// Pages that the machine read from swap.
    swapped_in: Option<u64>,
}

/// CPU ticks of every process that can be seen.
fn ticks() -> BTreeMap<u32, u64> {
    let of = |pid| {
        let stat = stat(pid)?;
        Some((pid, field(&stat, 14)? + field(&stat, 15)?))
    };
    Process::all().into_iter().filter_map(of).collect()
}

impl Counters {
    /// Whether the process has run since `before`; true where that is not known.
    pub fn has_run_since(&self, before: &Self) -> bool {
        self.activity.has_run_since(&before.activity)
    }

    /// # Errors
    /// The process has ended.
    pub fn read(process: &Process) -> Result<Self, Failure> {
        Ok(Self {
            activity: process.activity()?,
            ticks: ticks(),
            read_bytes: number_in(process.pid, "io", "read_bytes:"),
            major_faults: stat(process.pid).and_then(|stat| field(&stat, 12)),
            swapped_in: fs::read_to_string("/proc/vmstat").ok().and_then(|text| swapped_in(&text)),
        })
    }
}

/// Pages that were read from swap, in the text of /proc/vmstat.
fn swapped_in(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("pswpin ")?.parse().ok())
}

/// What stands behind `key` in a file of lines.
fn line_in(pid: u32, file: &str, key: &str) -> Option<String> {
    let text = String::from_utf8_lossy(&read(pid, file)?).into_owned();
    text.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()))
}

/// The number there.
fn number_in(pid: u32, file: &str, key: &str) -> Option<u64> {
    line_in(pid, file, key)?.split_whitespace().next()?.parse().ok()
}

/// Files that limit a process, as the evidence of a cause quotes them.
fn quoted(pid: u32, files: [Option<&String>; 2]) -> BTreeMap<String, String> {
    let mut quoted: BTreeMap<String, String> = files
        .into_iter()
        .flatten()
        .filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?.trim().to_owned())))
        .collect();
    const ALLOWED: &str = "Cpus_allowed_list";
    if let Some(list) = line_in(pid, "status", &format!("{ALLOWED}:")) {
        quoted.insert(format!("/proc/{pid}/status: {ALLOWED}"), list);
    }
    quoted
}

/// Who uses the CPUs of this machine, seen over `window`, where no process is watched.
pub async fn around(window: Duration) -> RunEvidence {
    const LOOKS: u32 = 10;
    let (before, began) = (ticks(), Instant::now());
    let mut runnable = Vec::new();
    for _ in 0..LOOKS {
        tokio::time::sleep(window / LOOKS).await;
        runnable.extend(runnable_now());
    }
    let seconds = began.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "as many as looks")]
    let mean = runnable.iter().sum::<f64>() / runnable.len().max(1) as f64;
    let files = fs::read_to_string("/proc/loadavg").ok();
    RunEvidence {
        runnable_tasks: (!runnable.is_empty()).then_some(mean),
        others: others(std::process::id(), (&before, &ticks()), seconds),
        files: files.map(|text| ("/proc/loadavg".to_owned(), text.trim().to_owned())).into_iter().collect(),
        ..RunEvidence::default()
    }
}

/// Tasks that run or wait for a CPU now, without this one: the fourth field, `3/412`.
fn runnable_now() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let tasks: f64 = text.split_whitespace().nth(3)?.split('/').next()?.parse().ok()?;
    Some((tasks - 1.0).max(0.0))
}

/// What is seen of `process` in the `seconds` between two readings.
pub fn of(process: &Process, (before, after): (&Counters, &Counters), seconds: f64) -> RunEvidence {
    let pid = process.pid;
    #[expect(clippy::cast_precision_loss, reason = "counts of a window")]
    let rate = |before: Option<u64>, after: Option<u64>| {
        Some(after?.saturating_sub(before?) as f64 / seconds.max(1e-3))
    };
    let shares = after.activity.shares(&before.activity, seconds);
    let root = SysRoot::host();
    let limits = cpu_limits(&root, pid);
    let computing_threads = shares.map(|shares| shares.threads);
    let allowed = limits.allowed.as_deref();
    let cores = allowed.and_then(|cpus| core_speed(&root, cpus, computing_threads.unwrap_or(1)));
    let far = far_memory(&root, pid);
    let log = Log::of(pid);
    let libraries = libraries(pid);
    let build = kernels_file(pid, libraries.as_deref()).and_then(|path| {
        let inside = PathBuf::from(format!("/proc/{pid}/root")).join(path.strip_prefix("/").ok()?);
        Some((path, Build::read(&inside)?))
    });
    let is_logged = log.instructions.is_some();
    #[expect(clippy::cast_precision_loss, reason = "a size of memory")]
    let swapped = number_in(pid, "status", "VmSwap:").map(|kib| kib as f64 * 1024.0);
    let mut unseen = Vec::new();
    let mut needs = |what: &str, file: &str, known: bool| {
        if !known {
            unseen.push(Unseen {
                what: what.to_owned(),
                reason: format!("/proc/{pid}/{file} may not be read"),
                grant: "run this as the server's user, or with sudo".to_owned(),
            });
        }
    };
    needs("bytes that it reads from storage", "io", after.read_bytes.is_some());
    needs("the kernels that it has loaded", "maps", libraries.is_some());
    needs("where its memory lies", "numa_maps", far.is_some() || memory_nodes(&root) < 2);
    needs("settings from its environment", "environ", process.environment.is_some());
    RunEvidence {
        pid: Some(pid),
        cpus_allowed: allowed.and_then(|cpus| u32::try_from(cpus.len()).ok()),
        cores_allowed: allowed.and_then(|cpus| count_cores(&root, cpus)),
        core_speed_ratio: cores.as_ref().map(|cores| cores.ratio),
        core_speed_files: cores.map(|cores| cores.source),
        far_memory_ratio: far.map(|far| far.ratio),
        memory_distance_ratio: far.map(|far| far.distance),
        instructions_file: build
            .as_ref()
            .filter(|_| !is_logged)
            .map(|(path, _)| path.to_string_lossy().into_owned()),
        is_unoptimised: build.as_ref().and_then(|(_, build)| build.is_unoptimised),
        instructions: log.instructions.or_else(|| build.map(|(_, build)| build.instructions)),
        acceptance_ratio: log.acceptance_ratio,
        log_file: log.file,
        cpu_quota: limits.quota.as_ref().map(|(cpus, _)| *cpus),
        files: quoted(
            pid,
            [limits.quota.as_ref(), limits.weight.as_ref()].map(|of| of.map(|(_, file)| file)),
        ),
        cpu_quota_file: limits.quota.map(|(_, file)| file),
        cpu_weight_ratio: limits.weight.as_ref().map(|(ratio, _)| *ratio),
        cpu_weight_file: limits.weight.map(|(_, file)| file),
        is_idle_class: stat(pid).and_then(|stat| Some(field(&stat, 41)? == SCHED_IDLE)),
        nice: stat(pid).and_then(|stat| stat.get(16)?.parse().ok()),
        computing_threads,
        cpu_wait_ratio: shares.map(|shares| shares.wait_ratio),
        blocked_ratio: shares.map(|shares| shares.blocked_ratio),
        read_bytes_per_s: rate(before.read_bytes, after.read_bytes),
        major_faults_per_s: rate(before.major_faults, after.major_faults),
        swapped_bytes: swapped,
        swap_in_bytes_per_s: rate(before.swapped_in, after.swapped_in)
            .map(|pages| pages * f64::from(u32::try_from(rustix::param::page_size()).unwrap_or(4096))),
        others: others(pid, (&before.ticks, &after.ticks), seconds),
        kernels: libraries
            .as_ref()
            .and_then(|all| all.iter().map(|path| file_name(path)).find(|name| name.contains(KERNELS)))
            .map(ToOwned::to_owned),
        gpu_library: libraries
            .as_ref()
            .map(|all| all.iter().any(|path| file_name(path).starts_with("libcuda.so"))),
        unseen,
        ..RunEvidence::default()
    }
}

/// Shared libraries that a process has mapped; `None` where that may not be read.
fn libraries(pid: u32) -> Option<Vec<PathBuf>> {
    let maps = String::from_utf8_lossy(&read(pid, "maps")?).into_owned();
    let path = |line: &str| {
        let path = PathBuf::from(&line[line.find('/')?..]);
        Some(path).filter(|path| file_name(path).contains(".so"))
    };
    let mut paths: Vec<PathBuf> = maps.lines().filter_map(path).collect();
    paths.dedup();
    Some(paths)
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The file that holds the CPU kernels of a process: a library of llama.cpp, or the program itself where it is linked into that.
fn kernels_file(pid: u32, libraries: Option<&[PathBuf]>) -> Option<PathBuf> {
    let libraries = libraries?;
    let named = |part: &str| libraries.iter().find(|path| file_name(path).contains(part)).cloned();
    let program = || fs::read_link(format!("/proc/{pid}/exe")).ok().filter(|path| Path::is_absolute(path));
    named(KERNELS).or_else(|| named("libggml")).or_else(|| named("libllama")).or_else(program)
}

/// The processes that used the CPUs beside this one and us, the largest first.
fn others(
    pid: u32,
    (before, after): (&BTreeMap<u32, u64>, &BTreeMap<u32, u64>),
    seconds: f64,
) -> Vec<OtherProcess> {
    #[expect(clippy::cast_precision_loss, reason = "ticks of a window")]
    let per_tick = 1.0 / rustix::param::clock_ticks_per_second().max(1) as f64;
    let used = |(other, ticks): (&u32, &u64)| {
        // One that began meanwhile used all of its time in the window.
        let ran = ticks.saturating_sub(before.get(other).copied().unwrap_or(0));
        #[expect(clippy::cast_precision_loss, reason = "ticks of a window")]
        let cpus = ran as f64 * per_tick / seconds.max(1e-3);
        let name = || fs::read_to_string(format!("/proc/{other}/comm")).ok();
        let is_other = *other != pid && *other != std::process::id() && cpus >= LEAST_CPUS;
        is_other.then(|| OtherProcess {
            pid: *other,
            name: name().map_or_else(|| "?".to_owned(), |name| crate::words::printable(name.trim())),
            cpus,
        })
    };
    let mut all: Vec<OtherProcess> = after.iter().filter_map(used).collect();
    all.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
    all.truncate(MOST_OTHERS);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_from_swap_are_read_from_their_line_alone() {
        let vmstat = "nr_free_pages 81230\npgpgin 512\npswpin 4711\npswpout 12\n";
        assert_eq!(swapped_in(vmstat), Some(4711));
        assert_eq!(swapped_in("pswpinned 3\npswpout 12\n"), None);
        assert_eq!(swapped_in("pswpin many\n"), None);
    }

    #[test]
    fn a_process_that_computes_beside_this_one_is_named() {
        let mut busy = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let own = Process::find(std::process::id()).unwrap();
        let before = Counters::read(&own).unwrap();
        let began = std::time::Instant::now();
        // Until the kernel has counted some ticks of it.
        let evidence = loop {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let after = Counters::read(&own).unwrap();
            let evidence = of(&own, (&before, &after), began.elapsed().as_secs_f64());
            if evidence.others.iter().any(|other| other.pid == busy.id()) {
                break evidence;
            }
        };
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(evidence.cpus_allowed.is_some_and(|cpus| cpus >= 1));
        assert!(evidence.nice.is_some());
        assert!(evidence.others.iter().all(|other| other.pid != own.pid));
    }
}
