//! What /proc shows of a process over a window: the CPUs it may use and gets, who else uses them, and what it reads.

use std::collections::BTreeMap;
use std::fs;

use super::log::Log;
use crate::failure::Failure;
use crate::observe::{Activity, Process, field, read, stat};
use rooflined_api::{OtherProcess, RunEvidence, Unseen};
use rooflined_hw::{SysRoot, core_speed, cpu_limits, far_memory, memory_nodes};

/// A process that used less of a CPU is not named.
const LEAST_CPUS: f64 = 0.05;
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
}

impl Counters {
    /// # Errors
    /// The process has ended.
    pub fn read(process: &Process) -> Result<Self, Failure> {
        let ticks = Process::all().into_iter().filter_map(|pid| {
            let stat = stat(pid)?;
            Some((pid, field(&stat, 14)? + field(&stat, 15)?))
        });
        Ok(Self {
            activity: process.activity()?,
            ticks: ticks.collect(),
            read_bytes: number_in(process.pid, "io", "read_bytes:"),
            major_faults: stat(process.pid).and_then(|stat| field(&stat, 12)),
        })
    }
}

/// The number behind `key` in a file of lines.
fn number_in(pid: u32, file: &str, key: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(&read(pid, file)?).into_owned();
    text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
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
        core_speed_ratio: cores.as_ref().map(|cores| cores.ratio),
        core_speed_files: cores.map(|cores| cores.source),
        far_memory_ratio: far.map(|far| far.ratio),
        memory_distance_ratio: far.map(|far| far.distance),
        instructions: log.instructions,
        acceptance_ratio: log.acceptance_ratio,
        log_file: log.file,
        cpu_quota: limits.quota.as_ref().map(|(cpus, _)| *cpus),
        cpu_quota_file: limits.quota.map(|(_, file)| file),
        nice: stat(pid).and_then(|stat| stat.get(16)?.parse().ok()),
        computing_threads,
        cpu_wait_ratio: shares.map(|shares| shares.wait_ratio),
        blocked_ratio: shares.map(|shares| shares.blocked_ratio),
        read_bytes_per_s: rate(before.read_bytes, after.read_bytes),
        major_faults_per_s: rate(before.major_faults, after.major_faults),
        swapped_bytes: swapped,
        others: others(pid, (&before.ticks, &after.ticks), seconds),
        kernels: libraries
            .as_ref()
            .and_then(|all| all.iter().find(|name| name.contains("ggml-cpu")))
            .cloned(),
        gpu_library: libraries.as_ref().map(|all| all.iter().any(|name| name.starts_with("libcuda.so"))),
        unseen,
        ..RunEvidence::default()
    }
}

/// Names of the shared libraries that a process has mapped; `None` where that may not be read.
fn libraries(pid: u32) -> Option<Vec<String>> {
    let maps = String::from_utf8_lossy(&read(pid, "maps")?).into_owned();
    let name = |line: &str| {
        let path = line.split_whitespace().nth(5)?;
        Some(path.rsplit('/').next()?.to_owned()).filter(|name| name.contains(".so"))
    };
    let mut names: Vec<String> = maps.lines().filter_map(name).collect();
    names.dedup();
    Some(names)
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
