//! What often slows a run down and was found to be fine, for a run without a cause: the most usual first.

use super::machine::{LESS_BANDWIDTH, LESS_PRODUCT, PRODUCT, memory_ratio, source};
use super::suspect::file;
use rooflined_api::{CheckedAnswer, RunEvidence};
use rooflined_core::board::Reading;
use rooflined_core::units::Hertz;
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::snapshot::Snapshot;

/// The list. What could not be read has no value. `decodes`: the rate is that of a model that generates text.
#[must_use]
pub fn checked(snapshot: &Snapshot, seen: &RunEvidence, decodes: bool) -> Vec<CheckedAnswer> {
    let mut found = of_clocks(snapshot);
    let percent = |ratio: f64| format!("{:.0} %", 100.0 * ratio);
    let state = &snapshot.state;
    let mut add = |what: &str, value: Option<String>, source: String| {
        found.push(CheckedAnswer { what: what.to_owned(), value, source });
    };
    for (answer, _) in of_reference(snapshot, seen) {
        add(&answer.what, answer.value, answer.source);
    }
    let steal = state.load.known().and_then(|load| load.steal_ratio);
    add("CPU time that the hypervisor takes", steal.map(percent), "/proc/stat".to_owned());
    let pressure = state.pressure.known().map(|pressure| percent(pressure.memory_some_ratio));
    add("time in which tasks wait for memory", pressure, "/proc/pressure/memory".to_owned());
    if seen.pid.is_none() {
        let how = "give its port or number: rooflinectl explain --port PORT, or --pid PID".to_owned();
        add("the process", None, how);
        if decodes {
            let how = "count the tokens after the first one, over the time after it".to_owned();
            add("whether the rate counts the time of the prompt", None, how);
        }
        return found;
    }
    let cpus: f64 = seen.others.iter().map(|other| other.cpus).sum();
    add("CPUs that other processes use", Some(format!("{cpus:.1}")), "/proc/*/stat".to_owned());
    let waits = seen.cpu_wait_ratio.map(percent);
    add("time in which its threads wait for a CPU", waits, file(seen, "task/*/schedstat"));
    let threads = seen.computing_threads.map(|count| count.to_string());
    add("threads that compute", threads, file(seen, "task"));
    let allowed = seen.cpus_allowed.map(|count| count.to_string());
    add("CPUs that it may use", allowed, file(seen, "status: Cpus_allowed_list"));
    let megabytes = |bytes: f64| format!("{:.0} MB", bytes / 1e6);
    let reads = seen.read_bytes_per_s.map(|rate| format!("{}/s", megabytes(rate)));
    add("reads from storage", reads, file(seen, "io"));
    add("its memory in swap", seen.swapped_bytes.map(megabytes), file(seen, "status: VmSwap"));
    found
}

/// The reference kernels that ran as fast as at the calibration.
#[must_use]
pub fn cleared(snapshot: &Snapshot, seen: &RunEvidence) -> Vec<CheckedAnswer> {
    of_reference(snapshot, seen)
        .into_iter()
        .filter_map(|(answer, is_fine)| is_fine.then_some(answer))
        .collect()
}

/// What reference kernels showed of the machine, and whether that is as at the calibration.
fn of_reference(snapshot: &Snapshot, seen: &RunEvidence) -> [(CheckedAnswer, bool); 2] {
    const NONE: &str = "rooflinectl explain runs a reference kernel on a machine at rest";
    let answer = |what: &str, reading: Option<(f64, &str)>, less: f64| {
        let answer = CheckedAnswer {
            what: format!("{what}, of that of the calibration"),
            value: reading.map(|(ratio, _)| format!("{:.0} %", 100.0 * ratio)),
            source: reading.map_or(NONE, |(_, source)| source).to_owned(),
        };
        (answer, reading.is_some_and(|(ratio, _)| ratio >= 1.0 - less))
    };
    let product = seen.product_ratio.map(|ratio| (ratio, PRODUCT));
    [
        answer("memory bandwidth", memory_ratio(snapshot, seen), LESS_BANDWIDTH),
        answer("speed of a product of matrices", product, LESS_PRODUCT),
    ]
}

/// Clocks, units and what lowers them.
fn of_clocks(snapshot: &Snapshot) -> Vec<CheckedAnswer> {
    let state = &snapshot.state;
    let clock = |reading: &Reading<Hertz>| reading.known().map(Hertz::to_string);
    let throttle = state.throttle.known().map(|throttle| if throttle.active { "active" } else { "none" });
    let throttle = ("throttling", throttle.map(ToOwned::to_owned), "throttle");
    let fields = match snapshot.accelerator {
        Accelerator::Gpu => vec![
            ("GPU clock under load", snapshot.busy_clocks.gpu.map(|clock| clock.to_string()), "gpu_clock"),
            throttle,
            ("power mode", state.power_mode.known().map(|mode| mode.name.clone()), "power_mode"),
            ("GPU clock cap", clock(&state.gpu_clock_cap), "gpu_clock_cap"),
            ("memory clock cap", clock(&state.memory_clock_cap), "memory_clock_cap"),
            ("SMs that are on", state.sm_online.known().map(ToString::to_string), "sm_online"),
            (
                "processes on the GPU",
                state.details.gpu_processes.known().map(|all| all.len().to_string()),
                "gpu_processes",
            ),
        ],
        Accelerator::Cpu => vec![
            ("CPU clock under load", snapshot.busy_clocks.cpu.map(|clock| clock.to_string()), "cpu_clocks"),
            throttle,
            ("CPU clock cap", clock(&state.cpu_clock_cap), "cpu_clock_cap"),
            ("CPUs online", state.cores_online.known().map(ToString::to_string), "cores_online"),
        ],
    };
    let answer = |(what, value, field): (&str, Option<String>, &str)| CheckedAnswer {
        what: what.to_owned(),
        value,
        source: source(snapshot, field),
    };
    fields.into_iter().map(answer).collect()
}
