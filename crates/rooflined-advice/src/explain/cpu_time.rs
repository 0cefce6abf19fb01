//! CPU time: the threads that compute, or on a machine with a GPU those that start its kernels, and who else wants the CPUs.

use super::suspect::{Certainty, Change, LESS_TIME, MOST, Suspect, file};
use rooflined_api::{ExplainRequest, OtherProcess, RunEvidence};
use rooflined_core::names::Engine;
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::snapshot::Snapshot;

/// Less of a CPU is noise.
const LESS_CPU: f64 = 0.15;
/// CPUs that others want beyond those that are left to them, from which on a machine that nobody watches is crowded: the programs of
/// a desktop want less.
const CROWDED: f64 = 0.5;
/// CPUs as busy as this have tasks that wait; then the load average tells how many.
const FULL: f64 = 0.9;

/// The causes that the CPU time shows.
pub fn suspects(snapshot: &Snapshot, request: &ExplainRequest, seen: &RunEvidence, found: &mut Vec<Suspect>) {
    match snapshot.accelerator {
        Accelerator::Cpu => {
            threads(snapshot, request, seen, found);
            found.extend(crowd(snapshot, request, seen));
        }
        Accelerator::Gpu => host(snapshot, seen, found),
    }
}

/// `1 thread`, `2 threads`.
fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// On a machine with a GPU the CPU starts its kernels and computes what is left to it. How long the GPU waits for that shows
/// nowhere, so these causes have no figure of their own.
fn host(snapshot: &Snapshot, seen: &RunEvidence, found: &mut Vec<Suspect>) {
    let is_split = seen.workload.as_ref().is_some_and(|workload| workload.offload.is_some());
    let usual = if is_split { snapshot.physical_cores() } else { 1 };
    let threads = seen.computing_threads.unwrap_or(usual).max(1);
    let mut of_cpu = Vec::new();
    let granted = limits(snapshot, (threads, false), seen, &mut of_cpu);
    waiting(seen, granted, &mut of_cpu);
    // Beside a card, others that leave its thread a CPU take nothing from it.
    of_cpu.retain(|suspect| !suspect.changes.is_empty() || snapshot.board.unified_memory);
    found.extend(of_cpu.into_iter().map(Suspect::with_unknown_effect));
}

/// Others who want the CPUs of a machine on which nothing is watched.
fn crowd(snapshot: &Snapshot, request: &ExplainRequest, seen: &RunEvidence) -> Option<Suspect> {
    let is_measured = request.time_s.is_some() || request.tokens_per_s.is_some();
    // The load of now says nothing of a rate that was measured before, and that of a server is its own.
    if is_measured || seen.pid.is_some() || snapshot.is_hypothetical() {
        return None;
    }
    let logical = snapshot.state.cores_online.known().copied().unwrap_or(snapshot.board.cpu.logical).max(1);
    let named: f64 = seen.others.iter().map(|other| other.cpus).sum();
    let load = snapshot.state.load.known();
    let (wanted, source, value) = match (seen.runnable_tasks, load) {
        (Some(tasks), _) => (tasks.max(named), "/proc/loadavg", format!("{tasks:.1} tasks run or wait")),
        (None, Some(load)) => {
            let busy = load.busy_ratio?;
            let cpus = busy * f64::from(logical);
            let wanted = if busy > FULL { cpus.max(load.average_1m) } else { cpus };
            (wanted, "/proc/loadavg", format!("{:.2}", load.average_1m))
        }
        (None, None) => return None,
    };
    let threads = f64::from(request.workload.threads.unwrap_or_else(|| snapshot.physical_cores()));
    let logical = f64::from(logical);
    // Those for whom no CPU is left meet its threads; the slowest thread holds up the others.
    let excess = threads + wanted - logical;
    if excess.min(wanted) < CROWDED {
        return None;
    }
    let rivals = (excess / logical).max(excess.min(1.0));
    let who = who(seen);
    let what = format!(
        "others keep {:.1} of {logical} CPUs busy, with {wanted:.1} tasks that want one: {who}",
        wanted.min(logical)
    );
    let suspect =
        Suspect::new("other_process", what, Change::Rivals(1.0 / (1.0 + rivals)), end(&seen.others));
    let suspect = suspect.shown_by(source, value);
    Some(if seen.others.is_empty() { suspect } else { suspect.shown_by("/proc/*/stat", who) })
}

fn who(seen: &RunEvidence) -> String {
    let named: Vec<String> = seen.others.iter().take(3).map(name_other).collect();
    if named.is_empty() { "other work".to_owned() } else { named.join(", ") }
}

/// Threads, and the CPUs that they get.
fn threads(snapshot: &Snapshot, request: &ExplainRequest, seen: &RunEvidence, found: &mut Vec<Suspect>) {
    let logical = snapshot.board.cpu.logical.max(1);
    let usual = request.workload.threads.unwrap_or_else(|| snapshot.physical_cores());
    let option = seen.workload.as_ref().and_then(|workload| workload.threads);
    let running = option.or(seen.computing_threads).unwrap_or(usual).max(1);
    // Runtimes start one thread for each CPU that they may use, and of more only so many compute at once.
    let is_confined =
        option.is_none() && seen.cpus_allowed.is_some_and(|cpus| running <= cpus && cpus < usual);
    if running != usual && !is_confined {
        let source = if option.is_some() { "-t" } else { "threads that compute (/proc/PID/task)" };
        found.push(
            Suspect::new(
                "threads",
                format!("{} instead of {usual}", count(running, "thread")),
                Change::Threads(running.min(logical)),
                match request.engine {
                    Engine::Torch | Engine::OnnxRuntime => {
                        format!("start it with OMP_NUM_THREADS={usual}, or set that many in the program")
                    }
                    _ => format!("start it with -t {usual}"),
                },
            )
            .shown_by(source, running.to_string()),
        );
    }
    let threads = if is_confined { usual } else { running };
    let granted = limits(snapshot, (threads, is_confined), seen, found);
    waiting(seen, granted, found);
}

/// Part of a CPU that each of `threads` has where there are so many CPUs for all.
fn part(cpus: f64, threads: u32) -> f64 {
    (cpus / f64::from(threads)).clamp(1.0 - MOST, 1.0)
}

/// Affinity, quota and too many threads. Returns the part of a CPU that each thread can have at most.
fn limits(
    snapshot: &Snapshot,
    (threads, is_confined): (u32, bool),
    seen: &RunEvidence,
    found: &mut Vec<Suspect>,
) -> f64 {
    let logical = snapshot.board.cpu.logical.max(1);
    let mut granted = 1.0_f64;
    let allowed = seen.cpus_allowed.filter(|allowed| *allowed < threads.min(logical));
    if let Some(allowed) = allowed {
        let left = part(f64::from(allowed), threads);
        granted = granted.min(left);
        found.push(
            Suspect::new(
                "affinity",
                format!("{} may run on {allowed} of {}", count(threads, "thread"), count(logical, "CPU")),
                if is_confined { Change::Threads(allowed) } else { Change::Rate(left) },
                format!(
                    "sudo taskset -a -p -c 0-{} {pid}; if that changes nothing, widen the cpuset of its control group: cat /proc/{pid}/cgroup",
                    logical - 1,
                    pid = pid(seen)
                ),
            )
            .shown_by(file(seen, "status: Cpus_allowed_list"), count(allowed, "CPU")),
        );
    } else if threads > logical {
        granted = granted.min(part(f64::from(logical), threads));
        // The threads spin while they wait for one that has no CPU.
        if let Some(suspect) = found.iter_mut().find(|suspect| suspect.key == "threads") {
            suspect.changes.push(Change::Rate(part(f64::from(logical), threads)));
            suspect.certainty = Certainty::Estimated;
        }
    }
    let ceiling = threads.min(allowed.unwrap_or(logical));
    let wanted = ceiling.min(snapshot.physical_cores());
    if let Some(cores) = seen.cores_allowed.filter(|cores| *cores < wanted) {
        let what = format!(
            "{} share {}: the CPUs that it may use are threads of the same cores",
            count(ceiling, "thread"),
            count(cores, "core")
        );
        let fix = "give it one CPU of each core, which lscpu -e=CPU,CORE shows: sudo taskset -a -p -c CPUS";
        found.push(
            Suspect::new("smt", what, Change::Threads(cores), format!("{fix} {}", pid(seen)))
                .estimated()
                .shown_by("/sys/devices/system/cpu/cpu*/topology/core_cpus_list", count(cores, "core")),
        );
    }
    let ceiling = f64::from(ceiling);
    if let Some(quota) = seen.cpu_quota.filter(|quota| *quota < ceiling * (1.0 - LESS_TIME)) {
        granted = granted.min(part(quota, threads));
        let source = seen.cpu_quota_file.clone().unwrap_or_else(|| "cpu.max".to_owned());
        let left = (quota / ceiling).clamp(1.0 - MOST, 1.0);
        let unlimited = if source.ends_with("cfs_quota_us") { "-1" } else { "max" };
        let fix = format!(
            "echo {unlimited} | sudo tee {source}, or raise CPUQuota= of its unit, or --cpus of its container"
        );
        let what = format!("a control group grants {quota:.2} CPUs to {}", count(threads, "thread"));
        found.push(
            Suspect::new("cpu_quota", what, Change::Rate(left), fix)
                .shown_by(source, format!("{quota:.2} CPUs")),
        );
    }
    granted
}

fn pid(seen: &RunEvidence) -> String {
    seen.pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string())
}

/// Why its threads give way to others: key, words behind what they wait, remedy, file and what it holds.
type Yielding = (&'static str, String, String, (String, String));

fn yielding(seen: &RunEvidence) -> Vec<Yielding> {
    let pid = pid(seen);
    let mut found = Vec::new();
    if let Some(nice) = seen.nice.filter(|nice| *nice > 0) {
        found.push((
            "low_priority",
            format!("at nice {nice}"),
            format!("sudo renice -n 0 -p $(ls /proc/{pid}/task)"),
            (file(seen, "stat: nice"), nice.to_string()),
        ));
    }
    if seen.is_idle_class == Some(true) {
        found.push((
            "low_priority",
            "under SCHED_IDLE".to_owned(),
            format!("sudo chrt --all-tasks --other --pid 0 {pid}"),
            (file(seen, "stat: policy"), "5 (SCHED_IDLE)".to_owned()),
        ));
    }
    if let Some(ratio) = seen.cpu_weight_ratio.filter(|ratio| *ratio < 1.0 - LESS_TIME) {
        let source = seen.cpu_weight_file.clone().unwrap_or_else(|| "cpu.weight".to_owned());
        let usual = if source.ends_with("cpu.shares") { 1024 } else { 100 };
        found.push((
            "cpu_weight",
            format!("with {:.0} % of the usual weight of its control group", 100.0 * ratio),
            format!("echo {usual} | sudo tee {source}, or raise CPUWeight= of its unit, or --cpu-shares of its container"),
            (source, format!("{:.0}", ratio * f64::from(usual))),
        ));
    }
    found
}

/// CPU time that others took. `granted`: the part of a CPU that each thread can have at most.
fn waiting(seen: &RunEvidence, granted: f64, found: &mut Vec<Suspect>) {
    let others: f64 = seen.others.iter().map(|other| other.cpus).sum();
    let who = who(seen);
    // Its own threads wait for each other where they have too few CPUs.
    let waited = (seen.cpu_wait_ratio.unwrap_or(0.0) - (1.0 - granted)).clamp(0.0, MOST);
    let is_waiting = waited > LESS_TIME && (others > LESS_CPU || granted >= 1.0);
    if !is_waiting {
        // Without a process to watch, nothing was measured beside them.
        if others > LESS_CPU && granted >= 1.0 && seen.pid.is_some() {
            found.push(
                Suspect::possible(
                    "other_process",
                    format!("other processes use {others:.1} CPUs, caches and memory: {who}"),
                    end(&seen.others),
                )
                .shown_by("/proc/*/stat", who),
            );
        }
        return;
    }
    let shown = format!("{:.0} %", 100.0 * waited);
    let left = 1.0 - waited;
    let yielding = yielding(seen);
    // At the usual priority a rival gets as much as the thread that it meets.
    let fair = if yielding.is_empty() { left } else { left.max(1.0 / (1.0 + others.clamp(0.0, 1.0))) };
    let source = file(seen, "task/*/schedstat");
    found.push(
        Suspect::new(
            "other_process",
            format!("its threads wait for a CPU for {shown} of the time: {who}"),
            Change::Rivals(fair),
            end(&seen.others),
        )
        .shown_by(&source, format!("waits {shown}")),
    );
    for (key, how, fix, (shown_by, value)) in yielding {
        let what = format!("its threads wait for a CPU for {shown} of the time {how}: {who}");
        found.push(
            Suspect::new(key, what, Change::LowPriority(left), fix)
                .shown_by(shown_by, value)
                .shown_by(&source, format!("waits {shown}")),
        );
    }
}

fn name_other(other: &OtherProcess) -> String {
    format!("{} (process {}, {:.1} CPUs)", other.name, other.pid, other.cpus)
}

fn end(others: &[OtherProcess]) -> String {
    match others.first() {
        Some(other) => format!(
            "end {} if you do not need it, or give it other cores: sudo taskset -a -p -c CPUS {}",
            other.name, other.pid
        ),
        None => "see what runs: top".to_owned(),
    }
}
