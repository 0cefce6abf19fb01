//! A daemon on a board whose files fail, are torn and hang, as drivers' do: a tree behind FUSE.

use std::fs;
use std::fs::File;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::Value;

use super::files::is_root;
use super::fuse::{Fault, Tree};
use super::harness::{Daemon, Home, eventually, get, missing};
use super::tree;

const BOARD: &str = "orin-nano-8gb-super";
const CPU: &str = "/sys/class/thermal/thermal_zone0/temp";
const GPU: &str = "/sys/class/thermal/thermal_zone1/temp";
const SOC2: &str = "/sys/class/thermal/thermal_zone5/temp";
const JUNCTION: &str = "/sys/class/thermal/thermal_zone6/temp";
const CLOCK: &str = "/sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu/cur_freq";
const MEMORY_CLOCK: &str = "/sys/kernel/debug/bpmp/debug/clk/emc/rate";
const CURRENT: &str = "/sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1/curr2_input";
/// One of each kind, and the fields and keys that rest on them.
const FAULTS: [(&str, Fault); 6] = [
    (GPU, Fault::Error(Errno::IO)),
    (CURRENT, Fault::Error(Errno::AGAIN)),
    (SOC2, Fault::Torn),
    (CLOCK, Fault::Torn),
    (JUNCTION, Fault::Hang),
    (MEMORY_CLOCK, Fault::Hang),
];

/// The captured board behind FUSE; `None`, said aloud, where there is no FUSE.
fn served() -> Option<(tempfile::TempDir, Tree)> {
    if !is_root() {
        return None;
    }
    let backing = tree::unpack(&tree::nodes(BOARD, "tree.txt"));
    match Tree::serve(backing.path()) {
        Ok(served) => Some((backing, served)),
        Err(lacks) => {
            missing(lacks, "serve a board's files over FUSE");
            None
        }
    }
}

fn start(home: &Home, tree: &mut Tree) -> Daemon {
    home.configure("[calibration]\nautomatic = false\n[sampling]\nidle_period_s = 0.1\nperiod_s = 0.1\n");
    let place = home.path("board");
    fs::create_dir_all(&place).unwrap();
    let mut program = home.command();
    program.arg("--root").arg(&place).env("ROOFLINED_LOG", "info,rooflined=trace");
    let mut command = tree.mounted(&place, &program);
    let log = File::options().append(true).open(home.path("log")).unwrap();
    command.stdout(std::process::Stdio::piped()).stderr(log);
    home.launch(command)
}

fn state(home: &Home) -> Value {
    get(&home.query(), "/v1/state")
}

/// A value of the state and the reason why there is none.
fn told(state: &Value, field: &str, key: &str) -> (Value, String) {
    let field = &state[field];
    let (value, reason) = match key {
        "" => (&field["value"], &field["reason"]),
        key => (&field["value"][key], &field["reasons"][key]),
    };
    (value.clone(), reason.as_str().unwrap_or_default().to_owned())
}

/// What the files say while all is well.
fn healthy(state: &Value) -> bool {
    told(state, "temperatures_c", "gpu-thermal").0 == 50.125
        && told(state, "temperatures_c", "soc2-thermal").0 == 48.906
        && told(state, "temperatures_c", "tj-thermal").0 == 50.531
        && told(state, "gpu_hz", "").0 == 306e6
        && told(state, "memory_hz", "").0 == 2133e6
        && told(state, "rails_w", "VDD_CPU_GPU_CV").0.as_f64().is_some_and(|watts| watts > 0.5)
}

/// What each of [`FAULTS`] must look like: no value, never a wrong one, and why.
fn faults_are_told(state: &Value) -> bool {
    let failed = |field: &str, key: &str, words: &[&str]| {
        let (value, reason) = told(state, field, key);
        value.is_null() && words.iter().any(|word| reason.contains(word))
    };
    failed("temperatures_c", "gpu-thermal", &["os error 5"])
        && failed("rails_w", "VDD_CPU_GPU_CV", &["os error 11"])
        && failed("temperatures_c", "soc2-thermal", &["cut off", "holds nothing"])
        && failed("gpu_hz", "", &["cut off", "holds nothing"])
        && failed("temperatures_c", "tj-thermal", &["does not answer"])
        && failed("memory_hz", "", &["does not answer"])
}

fn threads(daemon: &Daemon) -> usize {
    fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().count()
}

fn descriptors(daemon: &Daemon) -> usize {
    fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

fn samples(home: &Home) -> usize {
    home.log().lines().filter(|line| line.contains("sampled")).count()
}

#[test]
fn files_that_fail_tear_and_hang_cost_their_own_values_and_nothing_else() {
    let Some((_backing, mut tree)) = served() else { return };
    let home = Home::new();
    tree.set(&FAULTS);
    let mut daemon = start(&home, &mut tree);
    daemon.wait_ready();
    eventually("the faults to be told", || faults_are_told(&state(&home)).then_some(()));
    assert_eq!(tree.hanging(), 2, "each is asked once and left alone");

    // Meanwhile the others are read, again and again, and nobody is shown what was torn or what hangs.
    tree.write(CPU, "61000\n");
    eventually("another sensor", || {
        let state = state(&home);
        assert!(faults_are_told(&state), "{state}");
        (told(&state, "temperatures_c", "cpu-thermal").0 == 61.0).then_some(())
    });
    let (before, begun) = (samples(&home), Instant::now());
    eventually("twenty samples", || {
        let state = state(&home);
        assert!(faults_are_told(&state), "{state}");
        (samples(&home) >= before + 20).then_some(())
    });
    // Two seconds without a fault; each hang waited for would add ten.
    println!("20 samples, one due each 0.1 s, in {:.1} s", begun.elapsed().as_secs_f64());
    assert!(begun.elapsed() < Duration::from_secs(30));

    tree.set(&[]);
    eventually("all of them to be back", || healthy(&state(&home)).then_some(()));
    assert_eq!(tree.hanging(), 0);

    // Again and again: what was kept waiting has been given back each time.
    let mut counted = Vec::new();
    for _ in 0..10 {
        tree.set(&FAULTS);
        eventually("the faults to be told", || faults_are_told(&state(&home)).then_some(()));
        tree.set(&[]);
        eventually("all of them to be back", || healthy(&state(&home)).then_some(()));
        counted.push((threads(&daemon), descriptors(&daemon)));
    }
    println!("threads and descriptors after each round: {counted:?}");
    // A helper that came back last may not have ended yet, and the connection that asked last may still be closing.
    let (threads, descriptors) = counted[0];
    let (last_threads, last_descriptors) = *counted.last().unwrap();
    assert!(last_threads <= threads + 2 && last_descriptors <= descriptors + 2, "{counted:?}");

    tree.set(&FAULTS);
    eventually("a read to hang", || (tree.hanging() == 2).then_some(()));
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success(), "{}", home.log());
    assert!(!home.query().exists(), "it cleared up behind itself");
}

/// A driver that no signal reaches keeps its thread, and with that the process, whatever the daemon does. Everything else of the
/// daemon is over by then: the next one starts and has the state directory.
#[test]
fn a_driver_that_no_signal_reaches_keeps_no_other_daemon_from_starting() {
    let Some((_backing, mut tree)) = served() else { return };
    let home = Home::new();
    tree.set(&[(JUNCTION, Fault::HangForGood)]);
    let mut daemon = start(&home, &mut tree);
    daemon.wait_ready();
    eventually("a read to hang", || (tree.hanging() == 1).then_some(()));
    daemon.signal(Signal::TERM);
    daemon.wait_notified("STOPPING=1", 1);
    eventually("its socket to go", || (!home.query().exists()).then_some(()));
    let next = home.start();
    assert!(daemon.child.try_wait().unwrap().is_none(), "the hanging read was to keep it");
    assert_eq!(super::harness::degraded(&home), "[]");
    drop(next);
    tree.set(&[]);
    assert!(daemon.wait().success(), "{}", home.log());
}
