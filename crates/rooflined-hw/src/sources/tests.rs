//! A made-up source, registered by one line.

mod watched;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustix::fs::{CWD, Mode, mkfifoat};

use super::SOURCES;
use crate::answers::{File, Files};
use crate::bundle::capture;
use crate::discover::discover_with;
use crate::source::{Discover, DiscoveryContext, Plan, Reader, found};
use crate::{Sampler, SysRoot};
use rooflined_core::board::{BoardState, Reading, parse};
use rooflined_core::units::{Hertz, Seconds};

const CRYSTAL: &str = "/sys/class/crystal/crystal0/memory_khz";

/// A driver that tells the memory clock in kHz.
fn crystal(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    if !context.has(CRYSTAL) {
        return None;
    }
    plan.add_origin("memory_clock", CRYSTAL);
    plan.read([File::of_driver(CRYSTAL)]);
    found(|answers, state| {
        state
            .set(|state| &mut state.memory_clock, answers.value(CRYSTAL, "a clock in kHz", parse::kilohertz));
    })
}

/// The table with one line more.
fn with_crystal() -> Vec<Discover> {
    SOURCES.iter().copied().chain([crystal as Discover]).collect()
}

fn put(root: &Path, path: &str, text: &str) {
    let place = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(place, text).unwrap();
}

/// A machine with something for most sources.
fn machine() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [
        (CRYSTAL, "3200000\n"),
        ("/proc/meminfo", "MemTotal: 2000 kB\nMemFree: 1000 kB\nMemAvailable: 1500 kB\n"),
        ("/proc/stat", "cpu  1 0 0 1 0 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\n"),
        ("/proc/loadavg", "0.42 0.30 0.20 1/400 1234\n"),
        ("/proc/pressure/memory", "some avg10=1.00 avg60=0.00 avg300=0.00 total=0\n"),
        ("/sys/devices/system/cpu/online", "0\n"),
        ("/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n"),
        ("/sys/devices/system/cpu/cpufreq/policy0/related_cpus", "0\n"),
        ("/sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "1000000\n"),
        ("/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "3900000\n"),
        ("/sys/class/thermal/thermal_zone0/type", "package\n"),
        ("/sys/class/thermal/thermal_zone0/temp", "51000\n"),
        ("/sys/class/thermal/cooling_device0/type", "Processor\n"),
        ("/sys/class/thermal/cooling_device0/cur_state", "2\n"),
        ("/sys/class/hwmon/hwmon0/name", "ina238\n"),
        ("/sys/class/hwmon/hwmon0/power1_input", "19780000\n"),
        ("/sys/class/hwmon/hwmon1/name", "spbm\n"),
        ("/sys/class/hwmon/hwmon1/prochot", "1\n"),
        ("/sys/class/powercap/intel-rapl:0/name", "package-0\n"),
        ("/sys/class/powercap/intel-rapl:0/energy_uj", "5000000\n"),
        ("/rooflined/nvml/0/name", "NVIDIA GB10\n"),
        ("/rooflined/nvml/0/utilization_gpu_percent", "37\n"),
        ("/rooflined/nvml/0/throttle_reasons", "0x4\n"),
    ] {
        put(dir.path(), path, text);
    }
    dir
}

fn sampled(root: &SysRoot, table: &[Discover]) -> BoardState {
    let (_, discovered) = discover_with(root, table);
    Sampler::new(root, discovered).sample(Seconds(1000.0))
}

/// A state as clients see it: without the instants at which meters were read, which differ from run to run.
fn shown(state: &BoardState) -> serde_json::Value {
    serde_json::json!(state)
}

#[test]
fn a_source_is_one_file_and_one_line() {
    let dir = machine();
    let root = SysRoot::new(dir.path());
    let without = sampled(&root, SOURCES);
    assert!(without.memory_clock.known().is_none(), "{:?}", without.memory_clock);
    let table = with_crystal();
    let (board, discovered) = discover_with(&root, &table);
    assert_eq!(board.sources["state.memory_clock"], CRYSTAL);
    let mut sampler = Sampler::new(&root, discovered);
    let state = sampler.sample(Seconds(1000.0));
    assert_eq!(state.memory_clock, Reading::Known(Hertz(3.2e9)));
    // It sets its own field and no other.
    assert_eq!(shown(&BoardState { memory_clock: without.memory_clock.clone(), ..state }), shown(&without));

    put(dir.path(), CRYSTAL, "none\n");
    let state = sampler.sample(Seconds(1001.0));
    let reason = format!("{CRYSTAL} holds \"none\", expected a clock in kHz");
    assert_eq!(state.memory_clock, Reading::failed(reason));
}

#[test]
fn a_made_up_source_that_hangs_delays_no_other() {
    let dir = machine();
    let root = SysRoot::new(dir.path());
    fs::remove_file(root.path(CRYSTAL)).unwrap();
    mkfifoat(CWD, root.path(CRYSTAL), Mode::RUSR | Mode::WUSR).unwrap();
    let (_, discovered) = discover_with(&root, &with_crystal());
    let mut sampler = Sampler::new(&root, discovered);
    let state = sampler.sample(Seconds(1000.0));
    assert!(matches!(&state.memory_clock, Reading::Failed { reason } if reason.contains("does not answer")));
    assert!(state.memory.known().is_some() && state.cpu_clock_cap.known().is_some());
    assert_eq!(sampler.stuck_sources(), 1);
}

#[test]
fn the_order_of_the_sources_changes_no_value() {
    let dir = machine();
    let root = SysRoot::new(dir.path());
    let mut table = with_crystal();
    let forwards = sampled(&root, &table);
    assert_eq!(forwards.throttle.known().unwrap().evidence.len(), 3, "{:?}", forwards.throttle);
    table.reverse();
    let backwards = sampled(&root, &table);
    let sorted = |mut state: BoardState| {
        if let Reading::Known(throttle) = &mut state.throttle {
            throttle.evidence.sort();
        }
        if let Reading::Known(rails) = &mut state.rails {
            rails.sort_by(|a, b| a.name.cmp(&b.name));
        }
        shown(&state)
    };
    assert_eq!(sorted(forwards), sorted(backwards));
}

#[test]
fn every_origin_names_a_field_and_every_file_has_a_pattern() {
    let dir = machine();
    let root = SysRoot::new(dir.path());
    let (board, discovered) = discover_with(&root, SOURCES);
    let fields = serde_json::json!(BoardState::unknown(Seconds::ZERO, ""));
    let named: Vec<&str> = board.sources.keys().filter_map(|field| field.strip_prefix("state.")).collect();
    assert!(named.len() >= 8, "{named:?}");
    for field in named {
        assert!(fields.get(field).is_some(), "{field} is no field of a state");
    }
    let captured = capture(&root, &BTreeMap::new(), "a test").text;
    for file in &discovered.plan.files {
        let there = root.path(file.path()).exists();
        assert!(!there || captured.contains(&format!("\n== {} ==", file.path())), "{file:?} is not captured");
    }
}

#[test]
fn a_file_is_kept_once_and_only_what_is_named_is_read() {
    let dir = machine();
    let root = SysRoot::new(dir.path());
    let mut files = Files::new(&root, [File::of_kernel("/proc/stat"), File::of_kernel("/proc/stat")]);
    let answers = files.read(Seconds(1.0));
    let text = answers.text("/proc/stat").unwrap();
    put(dir.path(), "/proc/stat", "cpu 2\n");
    assert_eq!(answers.text("/proc/stat").unwrap(), text, "one sample reads a file once");
    assert!(answers.text("/proc/loadavg").is_err());
}
