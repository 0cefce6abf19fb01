//! What of the board may slow a run down, by what its sensors say now.

use super::remedy;
use super::suspect::{Change, MOST, Suspect};
use rooflined_api::{RunEvidence, Unseen};
use rooflined_core::board::{BoardState, OperatingPoint, Reading};
use rooflined_core::units::{Hertz, Seconds};
use rooflined_predict::calibration::{Accelerator, CalibrationRecord};
use rooflined_predict::snapshot::{Snapshot, point_in};

/// Clocks that differ by less are the same: tables round them, and boost clocks wander by a step or two.
const SAME_CLOCK: f64 = 0.03;
/// The clock of a CPU follows heat and neighbours, so that a smaller difference is usual.
const SAME_CPU_CLOCK: f64 = 0.1;
/// Clocks at which a GB10 whose supply negotiated too little power was reported to stay.
const STARVED: [f64; 2] = [513e6, 850e6];
const STARVED_WITHIN: f64 = 0.04;
/// A reference read that is older tells of another time.
pub(super) const YOUNG: Seconds = Seconds(600.0);
/// Bandwidth, the speed of a product, and time that a hypervisor or the memory takes, by less than these parts is noise.
pub(super) const LESS_BANDWIDTH: f64 = 0.1;
pub(super) const LESS_PRODUCT: f64 = 0.2;
const LESS_TIME: f64 = 0.02;
/// The source of a reference product.
pub(super) const PRODUCT: &str = "reference product (POST /v1/measure: error_at_calibration_ratio)";
/// A GPU that does something at all shows a load; a desktop's stays below this.
const BUSY_GPU: f64 = 0.5;

fn is_below(now: Hertz, expected: Hertz) -> bool {
    now.is_positive() && now.get() < expected.get() * (1.0 - SAME_CLOCK)
}

/// The causes that the board shows against a machine at `expected`.
#[must_use]
pub fn suspects(snapshot: &Snapshot, expected: &OperatingPoint, seen: &RunEvidence) -> Vec<Suspect> {
    let mut found = match snapshot.accelerator {
        Accelerator::Gpu => of_gpu(snapshot, expected),
        Accelerator::Cpu => of_cpu(snapshot, expected),
    };
    // A reference that was read at a lowered clock tells of that clock.
    if found.is_empty() {
        found.extend(slow_state(snapshot, expected, seen));
    }
    if snapshot.accelerator == Accelerator::Gpu {
        found.extend(shared_gpu(snapshot, seen.pid));
    }
    let state = &snapshot.state;
    if let Some(steal) = state.load.known().and_then(|load| load.steal_ratio).filter(|part| *part > LESS_TIME)
    {
        found.push(
            Suspect::new(
                "steal",
                format!("the hypervisor gives {:.0} % of the CPU time to other machines", 100.0 * steal),
                Change::Rate(1.0 - steal.min(0.95)),
                "move the virtual machine to a less busy host, or pin its CPUs there",
            )
            .shown_by("/proc/stat", format!("steal {:.0} %", 100.0 * steal)),
        );
    }
    if let Some(part) =
        state.pressure.known().map(|pressure| pressure.memory_some_ratio).filter(|part| *part > LESS_TIME)
    {
        found.push(
            Suspect::new(
                "memory_pressure",
                format!("tasks waited for memory for {:.0} % of the time", 100.0 * part),
                Change::Rate(1.0 - part.min(0.95)),
                "free memory: ps --sort=-rss -eo pid,rss,comm | head",
            )
            .shown_by("/proc/pressure/memory", format!("some {:.1} %", 100.0 * part)),
        );
    }
    found
}

/// The file that a field of the state is read from.
pub(super) fn source(snapshot: &Snapshot, field: &str) -> String {
    let file = snapshot.board.sources.get(&format!("state.{field}"));
    file.cloned().unwrap_or_else(|| format!("GET /v1/state: {field}"))
}

/// The active mode's own point where it differs from the expected one.
fn other_mode(snapshot: &Snapshot, expected: &OperatingPoint) -> Option<(String, OperatingPoint)> {
    let active = snapshot.state.power_mode.known()?;
    if expected.power_mode.as_ref() == Some(&active.name) {
        return None;
    }
    let mode = snapshot.board.modes.known()?.get(active)?;
    let caps = mode.operating_point();
    // What the mode itself asks for, whatever lowers the clocks beside it.
    let calm = BoardState::unknown(snapshot.state.taken_at, "not looked at");
    let point = point_in(&snapshot.board, &calm, snapshot.hardware.as_deref(), mode);
    Some((active.name.clone(), OperatingPoint { power_mode: caps.power_mode, ..point }))
}

fn of_gpu(snapshot: &Snapshot, expected: &OperatingPoint) -> Vec<Suspect> {
    let mut found = Vec::new();
    // What is left to explain once the mode is known.
    let mut at = expected.clone();
    if let Some((name, point)) = other_mode(snapshot, expected) {
        let mut lowered = Vec::new();
        let mut words = Vec::new();
        let mut clock =
            |what: &str, is: Option<Hertz>, was: &mut Option<Hertz>, change: fn(Hertz) -> Change| {
                if let (Some(is), Some(expected)) = (is, *was)
                    && is_below(is, expected)
                {
                    words.push(format!("{what} {is} instead of {expected}"));
                    lowered.push(change(is));
                    *was = Some(is);
                }
            };
        clock("GPU", point.gpu_clock, &mut at.gpu_clock, Change::GpuClock);
        clock("memory", point.memory_clock, &mut at.memory_clock, Change::MemoryClock);
        if let (Some(is), Some(expected)) = (point.sm_online, at.sm_online)
            && is < expected
        {
            words.push(format!("{is} of {expected} SMs"));
            lowered.push(Change::Sm(is));
            at.sm_online = Some(is);
        }
        if !lowered.is_empty() {
            let wanted = expected.power_mode.clone();
            let named = wanted.as_ref().map(|mode| format!("sudo rooflinectl mode set {mode}"));
            let fix = named.or_else(|| remedy::enter_mode(snapshot, remedy::Target::Faster));
            let fix = fix.unwrap_or_else(|| "rooflinectl mode list shows the modes".to_owned());
            let than = wanted.map_or_else(String::new, |mode| format!(" instead of {mode}"));
            let what = format!("power mode {name}{than}: {}", words.join(", "));
            let suspect =
                Suspect { changes: lowered, ..Suspect::new("power_mode", what, Change::Sm(1), fix) };
            found.push(suspect.shown_by(source(snapshot, "power_mode"), name));
        }
    }
    caps(snapshot, &mut at, &mut found);
    found.extend(clock_under_load(snapshot, &at));
    let is_throttle_named =
        found.iter().any(|suspect| suspect.evidence.iter().any(|by| by.source.ends_with("throttle")));
    found.extend(unclear_throttle(snapshot).filter(|_| !is_throttle_named));
    found
}

/// Memory bandwidth of a reference over that of the calibration, and where it comes from: one of this run, or the newest on a GPU.
pub(super) fn memory_ratio(snapshot: &Snapshot, seen: &RunEvidence) -> Option<(f64, &'static str)> {
    let newest = || snapshot.memory_ratio(YOUNG).filter(|_| snapshot.accelerator == Accelerator::Gpu);
    let own = seen.memory_ratio.map(|ratio| (ratio, "reference read (POST /v1/measure: drift_ratio)"));
    own.or_else(|| Some((newest()?, "the newest reference read (GET /v1/roofline: drift_ratio)")))
}

/// What a reference kernel shows and no counter names.
fn slow_state(snapshot: &Snapshot, expected: &OperatingPoint, seen: &RunEvidence) -> Vec<Suspect> {
    let mut found = Vec::new();
    let memory = memory_ratio(snapshot, seen);
    if let Some((ratio, source)) = memory.filter(|(ratio, _)| *ratio < 1.0 - LESS_BANDWIDTH) {
        found.push(slow_memory(ratio, source));
    }
    if let Some(ratio) = seen.product_ratio.filter(|ratio| *ratio < 1.0 - LESS_PRODUCT) {
        let clock = match snapshot.accelerator {
            Accelerator::Gpu => expected.gpu_clock.map(|clock| Change::GpuClock(clock * ratio)),
            Accelerator::Cpu => expected.cpu_clock.map(|clock| Change::CpuClock(clock * ratio)),
        };
        let what = format!(
            "a product of matrices runs at {:.0} % of the speed of the calibration, and no counter says why: a clock that no sensor \
             shows is low",
            100.0 * ratio
        );
        let change = clock.unwrap_or(Change::Rate(ratio.max(1.0 - MOST)));
        found.push(
            Suspect::new("slow_state", what, change, remedy::of_slow_state(snapshot))
                .estimated()
                .shown_by(PRODUCT, format!("{ratio:.2}")),
        );
    }
    found
}

/// Other processes on the GPU. The server's own workers are processes of their own, so one beside it says nothing, but a
/// rate measured earlier has no process now.
fn shared_gpu(snapshot: &Snapshot, server: Option<u32>) -> Option<Suspect> {
    let state = &snapshot.state;
    let processes = state.details.gpu_processes.known()?;
    let is_busy = state.gpu_load.known().is_some_and(|load| *load > BUSY_GPU);
    let (what, least) = match server {
        Some(_) => (format!("{} processes use the GPU", processes.len()), 2),
        None if is_busy => ("other work keeps the GPU busy now".to_owned(), 1),
        None => return None,
    };
    if processes.len() < least {
        return None;
    }
    let names: Vec<String> = processes
        .iter()
        .map(|process| format!("{} {}", process.pid, process.name.known().map_or("?", String::as_str)))
        .collect();
    let suspect = Suspect::possible("gpu_shared", what, remedy::of_sharing(snapshot));
    Some(suspect.shown_by("GET /v1/state: gpu_processes", names.join(", ")))
}

/// Caps below what the mode explains.
fn caps(snapshot: &Snapshot, at: &mut OperatingPoint, found: &mut Vec<Suspect>) {
    let state = &snapshot.state;
    let cap = |reading: &Reading<Hertz>, expected: Option<Hertz>| {
        let (is, expected) = (*reading.known()?, expected?);
        is_below(is, expected).then_some((is, expected))
    };
    let throttled = state.throttle.known().is_some_and(|throttle| throttle.active);
    if let Some((is, expected)) = cap(&state.gpu_clock_cap, at.gpu_clock) {
        at.gpu_clock = Some(is);
        let file = source(snapshot, "gpu_clock_cap");
        let fix = remedy::of_gpu_cap(snapshot, &file, expected.get());
        let value = format!("{:.0}", is.get());
        // Heat that holds the clock below the cap is a cause of its own. Else cooling may have lowered the very cap.
        let is_below_cap = snapshot.busy_clocks.gpu.is_some_and(|busy| is_below(busy, is));
        let suspect = if throttled && !is_below_cap {
            let mut suspect = throttle(snapshot, is, expected).shown_by(file, value);
            suspect.fix = format!("{}; if the cap stays when it is cool: {fix}", suspect.fix);
            suspect
        } else {
            let what = format!("GPU clock capped at {is} instead of {expected}");
            Suspect::new("gpu_clock_cap", what, Change::GpuClock(is), fix).shown_by(file, value)
        };
        found.push(suspect);
    }
    if let Some((is, expected)) = cap(&state.memory_clock_cap, at.memory_clock) {
        at.memory_clock = Some(is);
        let file = source(snapshot, "memory_clock_cap");
        found.push(
            Suspect::new(
                "memory_clock",
                format!("memory clock {is} instead of {expected}"),
                Change::MemoryClock(is),
                remedy::of_memory_cap(snapshot),
            )
            .shown_by(file, format!("{:.0}", is.get())),
        );
    }
    if let (Some(is), Some(expected)) = (state.sm_online.known().copied(), at.sm_online)
        && is > 0
        && is < expected
    {
        found.push(
            Suspect::new(
                "sm_gated",
                format!("{is} of {expected} SMs are on"),
                Change::Sm(is),
                remedy::of_gated_sms(snapshot),
            )
            .shown_by(source(snapshot, "sm_online"), is.to_string()),
        );
    }
}

/// The clock of a GPU under a load that lasts, where it is below its cap.
fn clock_under_load(snapshot: &Snapshot, at: &OperatingPoint) -> Option<Suspect> {
    let (is, expected) = (snapshot.busy_clocks.gpu?, at.gpu_clock?);
    is_below(is, expected).then(|| throttle(snapshot, is, expected))
}

/// What a `clock` below the `expected` one comes from, by the words of the sensors: key, words, remedy.
fn reason_of(
    snapshot: &Snapshot,
    clock: Option<Hertz>,
    expected: Option<Hertz>,
) -> (&'static str, &'static str, String) {
    let reasons = throttle_reasons(snapshot).join("; ").to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| reasons.contains(word));
    let is_gb10 = snapshot.hardware.as_deref().is_some_and(|hardware| hardware.key == "gb10");
    let is_starved =
        |clock: Hertz| STARVED.iter().any(|known| (clock.get() / known - 1.0).abs() < STARVED_WITHIN);
    // Files of alarms are named after what they watch: temp1_crit, curr1_crit, in1_lcrit.
    let hot = has(&["thermal", "throttle-alert", "temperature", "cooling"])
        || reasons.split("; ").any(|line| line.contains("temp") && line.contains("_crit"));
    // A Raspberry Pi's firmware lowers clocks for the supply, which it names, and for heat.
    let hot = hot || has(&["the firmware says"]);
    if has(&["supply", "under-voltage", "_lcrit"]) || is_gb10 && !hot && clock.is_some_and(is_starved) {
        ("supply", "the supply delivers too little power", remedy::of_supply(snapshot))
    } else if hot {
        ("thermal", "too hot", remedy::of_heat(snapshot))
    } else if has(&["over-current", "curr"]) {
        ("current", "its current peaks are cut", remedy::of_current(snapshot))
    } else if has(&["power"]) {
        ("power_limit", "at its power limit", remedy::of_power_limit(snapshot))
    } else {
        ("gpu_clock", "no sensor names a reason", remedy::of_clock(snapshot, expected))
    }
}

fn throttle_reasons(snapshot: &Snapshot) -> &[String] {
    snapshot.state.throttle.known().map_or(&[][..], |throttle| throttle.evidence.as_slice())
}

fn with_throttle_reasons(mut suspect: Suspect, snapshot: &Snapshot) -> Suspect {
    for line in throttle_reasons(snapshot) {
        suspect = suspect.shown_by("GET /v1/state: throttle", line);
    }
    suspect
}

fn throttle(snapshot: &Snapshot, is: Hertz, expected: Hertz) -> Suspect {
    let (key, why, fix) = reason_of(snapshot, Some(is), Some(expected));
    let what = format!("GPU clock {is} instead of {expected} under load: {why}");
    let suspect = Suspect::new(key, what, Change::GpuClock(is), fix)
        .shown_by(source(snapshot, "gpu_clock"), format!("{:.0}", is.get()));
    with_throttle_reasons(suspect, snapshot)
}

/// Throttling whose clock does not show.
fn unclear_throttle(snapshot: &Snapshot) -> Option<Suspect> {
    snapshot.state.throttle.known().filter(|throttle| throttle.active)?;
    let (key, why, fix) = reason_of(snapshot, None, None);
    let key = if key == "gpu_clock" { "thermal" } else { key };
    let what = format!("the machine is throttling: {why}");
    Some(with_throttle_reasons(Suspect::possible(key, what, fix), snapshot))
}

fn of_cpu(snapshot: &Snapshot, expected: &OperatingPoint) -> Vec<Suspect> {
    let mut found = Vec::new();
    let state = &snapshot.state;
    let regime = snapshot.calibration.as_ref().and_then(CalibrationRecord::current);
    let cap_then = regime.and_then(|regime| regime.clock_cap).or(expected.cpu_clock);
    // What is left to explain once the cap is known.
    let mut at = expected.cpu_clock;
    if let (Some(is), Some(then), Some(clock)) =
        (state.cpu_clock_cap.known().copied(), cap_then, expected.cpu_clock)
        && is_below(is, then)
    {
        at = Some(clock * (is / then));
        let file = source(snapshot, "cpu_clock_cap");
        found.push(
            Suspect::new(
                "cpu_clock",
                format!("CPU clock capped at {is} instead of {then}"),
                Change::CpuClock(clock * (is / then)),
                remedy::of_cpu_cap(snapshot, then.get()),
            )
            .shown_by(file, format!("{:.0} kHz", is.get() / 1e3)),
        );
    }
    if let (Some(is), Some(expected)) = (snapshot.busy_clocks.cpu, at)
        && is.get() < expected.get() * (1.0 - SAME_CPU_CLOCK)
    {
        found.push(
            Suspect::new(
                "cpu_clock",
                format!("the fastest CPU runs at {is} instead of {expected} under load"),
                Change::CpuClock(is),
                remedy::of_cpu_clock(snapshot),
            )
            .shown_by(source(snapshot, "cpu_clocks"), format!("{:.0} kHz", is.get() / 1e3)),
        );
    }
    if let (Some(is), Some(expected)) = (state.cores_online.known().copied(), expected.cores_online)
        && is < expected
    {
        found.push(
            Suspect::new(
                "cores_offline",
                format!("{is} of {expected} CPUs that were calibrated are online"),
                Change::Cores(is),
                remedy::of_offline_cpus(snapshot),
            )
            .shown_by(source(snapshot, "cores_online"), format!("{is} online")),
        );
    }
    found.extend(unclear_throttle(snapshot));
    found
}

/// Memory that gives less than at the calibration.
fn slow_memory(ratio: f64, source: &str) -> Suspect {
    Suspect::new(
        "memory_bandwidth",
        format!(
            "memory gives {:.0} % of what the calibration found: other work uses it, or a clock that no sensor shows is low",
            100.0 * ratio
        ),
        Change::MemoryRatio(ratio),
        "see what else runs (top) and end it, then: rooflinectl compare; if it stays, reboot",
    )
    .shown_by(source, format!("{ratio:.2}"))
}

/// What of the board cannot be read.
#[must_use]
pub fn unseen(snapshot: &Snapshot) -> Vec<Unseen> {
    if snapshot.accelerator == Accelerator::Cpu || snapshot.is_hypothetical() {
        return Vec::new();
    }
    let state = &snapshot.state;
    let needed = [
        ("GPU clock cap", state.gpu_clock_cap.reason()),
        ("memory clock", state.memory_clock_cap.reason()),
        ("SMs online", state.sm_online.reason()),
        ("throttling", state.throttle.reason()),
    ];
    let without = |(what, reason): (&str, Option<&str>)| {
        let reason = reason.filter(|reason| reason.contains("permission denied"))?;
        Some(Unseen {
            what: what.to_owned(),
            reason: reason.to_owned(),
            grant: "files for root only are read by the privileged helper: sudo systemctl enable --now rooflined-actuate.socket"
                .to_owned(),
        })
    };
    needed.into_iter().filter_map(without).collect()
}
