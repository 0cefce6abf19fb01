//! Simulated boards: their files, the fake nvpmodel and its faults, and the accelerator that is measured on them.

#![cfg(feature = "simulate")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_predict::calibration::{
    Accelerator, GemvCase, Kernel, Plan, ProbeEvent, Sample, Step, Stores, Stream, centre,
};
use rooflined_probe::{Outcome, Probe};
use rooflined_simulate::{self, Ending, Simulated, Simulation, SimulationError};
use tempfile::TempDir;

const NANO: &str = "jetson-orin-nano-8gb-super";
const AGX: &str = "jetson-agx-orin-64gb";
const THOR: &str = "jetson-agx-thor-t5000";
const PROGRAM: &str = env!("CARGO_BIN_EXE_rooflined");

/// A board that lives as long as this does.
struct Board {
    simulation: Option<Simulation>,
    dir: TempDir,
}

impl Board {
    fn new(key: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let simulation = Simulation::create(key, Some(dir.path()), Path::new(PROGRAM)).unwrap();
        Self { simulation: Some(simulation), dir }
    }

    fn reboot(&mut self, key: &str) -> Result<(), SimulationError> {
        self.simulation = None;
        // A child of another test holds the lock's file until it has become its program.
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match Simulation::create(key, Some(self.dir.path()), Path::new(PROGRAM)) {
                Err(SimulationError::Busy { .. }) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                created => {
                    self.simulation = Some(created?);
                    return Ok(());
                }
            }
        }
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path))
            .unwrap_or_else(|error| panic!("{path}: {error}"))
            .trim()
            .to_owned()
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.path(path), format!("{text}\n")).unwrap();
    }

    /// The fake nvpmodel in this process: how it ends, what it says, and what of that is errors.
    fn nvpmodel(&self, line: &str, mut input: &[u8]) -> (Ending, String, String) {
        let args: Vec<String> = line.split_whitespace().map(ToOwned::to_owned).collect();
        let (mut out, mut error) = (Vec::new(), Vec::new());
        let ending =
            rooflined_simulate::fake_nvpmodel(self.root(), &args, &mut input, &mut out, &mut error).unwrap();
        (ending, String::from_utf8(out).unwrap(), String::from_utf8(error).unwrap())
    }

    fn query(&self) -> String {
        self.nvpmodel("-q", b"").1
    }

    /// Waits for the thread to have done its part.
    fn eventually(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(began.elapsed() < Duration::from_secs(5), "{what}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

const GPU: &str = "/sys/class/devfreq/17000000.gpu";
const DONE: Ending = Ending::Status(0);

#[test]
fn keys_go_with_and_without_jetson_and_a_wrong_one_names_the_right_ones() {
    for key in ["orin-nano-8gb-super", "Jetson-Orin-Nano-8GB-Super"] {
        assert_eq!(Board::new(key).read("/rooflined/simulated"), NANO);
    }
    let error = Simulation::create("orin-nana", None, Path::new(PROGRAM)).unwrap_err().to_string();
    for key in rooflined_simulate::boards() {
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn every_board_has_its_files_and_aliases_show_the_same() {
    for key in rooflined_simulate::boards() {
        let board = Board::new(key);
        assert!(board.read("/proc/meminfo").starts_with("MemTotal:"));
        assert!(board.read("/sys/class/thermal/thermal_zone0/temp").parse::<i64>().unwrap() > 20_000);
    }
    let nano = Board::new(NANO);
    for path in [GPU, "/sys/devices/platform/17000000.gpu/devfreq_dev"] {
        assert_eq!(nano.read(&format!("{path}/max_freq")), "918000000");
    }
    assert_eq!(nano.read("/sys/devices/platform/gpu.0/tpc_pg_mask"), "240");
    assert_eq!(nano.read("/sys/kernel/nvpmodel_clk_cap/emc"), "3199000000");
    assert_eq!(nano.read("/sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1/in1_label"), "VDD_IN");
    let model = fs::read(nano.path("/proc/device-tree/model")).unwrap();
    assert_eq!(model.last(), Some(&0), "the device tree ends its strings with NUL");
    let agx = Board::new(AGX);
    assert_eq!(agx.read("/sys/devices/gpu.0/tpc_pg_mask"), "240");
    assert_eq!(agx.read("/sys/kernel/nvpmodel_emc_cap/emc_iso_cap"), "0");
    assert_eq!(agx.read("/sys/devices/system/cpu/online"), "0-7");
    assert!(!agx.path("/sys/devices/system/cpu/cpufreq/policy8").exists());
    assert_eq!(agx.read("/sys/class/thermal/thermal_zone2/temp"), "-256000");
    let gb10 = Board::new("gb10");
    assert_eq!(gb10.read("/rooflined/nvml/0/name"), "NVIDIA GB10");
    for absent in ["/etc/nvpmodel.conf", "/usr/sbin/nvpmodel", "/sys/class/devfreq", "/proc/device-tree"] {
        assert!(!gb10.path(absent).exists(), "{absent}");
    }
}

/// What answers with and without the name of the mode in force rest on.
#[test]
fn the_mode_in_force_is_the_same_point_by_its_name() {
    let mut modes_seen = 0;
    for key in rooflined_simulate::boards() {
        let board = Board::new(key);
        let root = rooflined_hw::SysRoot::new(board.root());
        let (found, discovered) = rooflined_hw::discover(&root);
        let state = rooflined_hw::read_state(
            &mut rooflined_hw::Sampler::new(&root, discovered),
            rooflined_hw::boot_time(),
        );
        let Some(active) = state.power_mode.known() else { continue };
        let hardware = rooflined_core::hardware::registry().get(key);
        let mode = found.modes.known().unwrap().get(active).unwrap();
        let now = rooflined_predict::snapshot::point_now(&found, &state, hardware);
        assert_eq!(
            rooflined_predict::snapshot::point_in(&found, &state, hardware, mode),
            now,
            "{key} {}",
            mode.name
        );
        for mode in found.power_modes() {
            let point = rooflined_predict::snapshot::point_in(&found, &state, hardware, mode);
            let most = found.gpu.known().and_then(|gpu| gpu.clocks.last().copied());
            assert!(most.is_none_or(|most| point.gpu_clock.unwrap() <= most), "{key} {}", mode.name);
            let caps = mode.operating_point();
            assert!(caps.memory_clock.is_none_or(|cap| point.memory_clock.unwrap() <= cap), "{key}");
            modes_seen += 1;
        }
    }
    assert!(modes_seen > 10, "{modes_seen}");
}

#[test]
fn a_query_has_two_lines_and_a_verbose_one_shows_real_and_configured_values() {
    let board = Board::new(NANO);
    assert_eq!(board.query(), "NV Power Mode: 25W\n1\n");
    let (ending, verbose, _) = board.nvpmodel("-q --verbose", b"");
    assert_eq!(ending, DONE);
    let lines: Vec<_> = verbose.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "NVPM VERB: Config file: /etc/nvpmodel.conf",
            "NVPM VERB: parsing done for /etc/nvpmodel.conf",
            "NVPM VERB: Current mode: NV Power Mode: 25W",
            "1",
        ]
    );
    for line in [
        "NVPM VERB: PARAM GPU: ARG MAX_FREQ: PATH /sys/devices/platform/17000000.gpu/devfreq_dev/max_freq: REAL_VAL: 918000000 CONF_VAL: 918000000",
        "NVPM VERB: PARAM GPU: ARG MIN_FREQ: PATH /sys/devices/platform/17000000.gpu/devfreq_dev/min_freq: REAL_VAL: 306000000 CONF_VAL: 0",
        "NVPM VERB: PARAM GPU_POWER_CONTROL_ENABLE: ARG GPU_PWR_CNTL_EN: PATH /sys/devices/platform/gpu.0/power/control: REAL_VAL: auto CONF_VAL: on",
        "NVPM VERB: PARAM EMC: ARG MAX_FREQ: PATH /sys/kernel/nvpmodel_clk_cap/emc: REAL_VAL: 3199000000 CONF_VAL: 3199000000",
    ] {
        assert!(lines.contains(&line), "{line}\nin\n{verbose}");
    }
    assert_eq!(board.nvpmodel("-m 2", b"").0, DONE);
    let (_, uncapped, _) = board.nvpmodel("-q --verbose", b"");
    assert!(uncapped.contains("REAL_VAL: 1020000000 CONF_VAL: 9223372036854775807"), "{uncapped}");
    let agx = Board::new(AGX);
    let (_, text, _) = agx.nvpmodel("-q --verbose", b"");
    assert!(
        text.contains("PATH /sys/kernel/nvpmodel_emc_cap/emc_iso_cap: REAL_VAL: 0 CONF_VAL: 0"),
        "{text}"
    );
}

#[test]
fn the_modes_are_listed_with_the_default_first() {
    let board = Board::new(NANO);
    let (_, text, _) = board.nvpmodel("-p --verbose", b"");
    for line in [
        "NVPM VERB: PM_CONFIG: DEFAULT=25W(1)",
        "NVPM VERB: PARAM TYPE=FILE NAME=CPU_ONLINE",
        "NVPM VERB: POWER_MODEL: ID=3 NAME=7W",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
    }
}

#[test]
fn a_live_switch_writes_its_caps_saves_the_mode_and_says_nothing() {
    let board = Board::new(NANO);
    assert_eq!(board.nvpmodel("-m 0", b""), (DONE, String::new(), String::new()));
    assert_eq!(board.read("/var/lib/nvpmodel/status"), "pmode:0000");
    assert_eq!(board.query(), "NV Power Mode: 15W\n0\n");
    assert_eq!(board.read(&format!("{GPU}/max_freq")), "612000000");
    assert_eq!(board.read("/sys/kernel/nvpmodel_clk_cap/emc"), "2133000000");
    for policy in [0, 4] {
        let path = format!("/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_max_freq");
        assert_eq!(board.read(&path), "1497600");
    }
    let (ending, out, error) = board.nvpmodel("-m 9", b"");
    assert_eq!((ending, out.as_str()), (Ending::Status(255), ""));
    assert_eq!(error, "NVPM ERROR: Invalid power mode: 9\n");
    assert_eq!(board.query(), "NV Power Mode: 15W\n0\n");
}

const QUESTION: &str = "NVPM WARN: Golden image context is already created\n\
                        NVPM WARN: Reboot required for changing to this power mode: 3\n\
                        NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:\n";
const REFUSED: &str = "NVPM ERROR: bad input!\nNVPM ERROR: optMask is 1, no request for power mode\n";

#[test]
fn gating_asks_for_a_reboot_and_anything_but_yes_leaves_everything_as_it_was() {
    let board = Board::new(NANO);
    let before = board.nvpmodel("-q --verbose", b"").1;
    for input in [&b""[..], b"NO\n", b"\n", b"Y\n", b"YES please\n", b"\xff\xfe\n"] {
        assert_eq!(board.nvpmodel("-m 3", input), (Ending::Status(255), QUESTION.into(), REFUSED.into()));
        assert_eq!(board.nvpmodel("-q --verbose", b"").1, before);
    }
    let (ending, out, _) = board.nvpmodel("-m 3", b"YES\n");
    assert_eq!((ending, out), (DONE, format!("{QUESTION}NVPM WARN: rebooting\n")));
    assert_eq!(board.query(), "NV Power Mode: 25W\n1\n", "nobody here reboots");
    // On AGX every other mode gates other units than MODE_30W does.
    let agx = Board::new(AGX);
    for id in [0, 1, 3] {
        assert!(agx.nvpmodel(&format!("-m {id}"), b"").1.contains("Reboot required"), "{id}");
    }
    assert_eq!(agx.nvpmodel("-m 2", b"").0, DONE);
}

#[test]
fn faults_fail_as_on_boards_that_do() {
    let board = Board::new(NANO);
    let max = format!("{GPU}/max_freq");
    board.write("/rooflined/faults", "silent");
    assert_eq!(board.nvpmodel("-m 0", b""), (DONE, String::new(), String::new()));
    assert_eq!((board.query().as_str(), board.read(&max).as_str()), ("NV Power Mode: 25W\n1\n", "918000000"));
    board.write("/rooflined/faults", "status_only");
    assert_eq!(board.nvpmodel("-m 0", b"").0, DONE);
    assert_eq!((board.query().as_str(), board.read(&max).as_str()), ("NV Power Mode: 15W\n0\n", "918000000"));
    board.write("/rooflined/faults", "half");
    assert_eq!(board.nvpmodel("-m 0", b"").0, Ending::Died);
    let wrong: Vec<String> = board
        .nvpmodel("-q --verbose", b"")
        .1
        .lines()
        .filter(|line| line.contains("MAX_FREQ"))
        .filter(|line| {
            let value = |key: &str| line.split(key).nth(1).unwrap().split(' ').next().unwrap().to_owned();
            value("REAL_VAL: ") != value("CONF_VAL: ")
        })
        .map(ToOwned::to_owned)
        .collect();
    assert!(!wrong.is_empty(), "it died before the last cap");
    board.write("/rooflined/faults", "slow");
    let began = Instant::now();
    assert_eq!(board.nvpmodel("-m 0", b"").0, DONE);
    assert!(began.elapsed() > Duration::from_secs(1));
    assert_eq!(board.read(&max), "612000000");
}

/// The script at its place on the board, run as the privileged helper does.
fn script(board: &Board, args: &[&str], input: &str) -> Output {
    let mut child = Command::new(board.path("/usr/sbin/nvpmodel"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn the_script_on_the_board_runs_the_fake_nvpmodel() {
    let board = Board::new(NANO);
    let output = script(&board, &["-q"], "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "NV Power Mode: 25W\n1\n");
    let output = script(&board, &["-m", "3"], "");
    assert_eq!(output.status.code(), Some(255));
    assert_eq!(String::from_utf8_lossy(&output.stdout), QUESTION);
    board.write("/rooflined/faults", "half");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(script(&board, &["-m", "0"], "").status.signal(), Some(9));
}

#[test]
fn a_reboot_enters_the_saved_mode_with_its_gated_units() {
    let mut board = Board::new(NANO);
    let boot = |board: &Board| board.read("/proc/sys/kernel/random/boot_id");
    let first = boot(&board);
    board.write("/var/lib/nvpmodel/status", "pmode:0003");
    board.reboot(NANO).unwrap();
    assert_ne!(boot(&board), first);
    assert_eq!(board.query(), "NV Power Mode: 7W\n3\n");
    assert_eq!(board.read("/sys/devices/platform/gpu.0/tpc_pg_mask"), "252");
    assert_eq!(board.read("/sys/devices/system/cpu/online"), "0-3");
    assert!(!board.path("/sys/devices/system/cpu/cpufreq/policy4").exists());
    assert!(!board.path("/sys/devices/system/cpu/cpu5/cpufreq").exists());
    assert_eq!(board.read(&format!("{GPU}/max_freq")), "408000000");
    // A damaged status file means the default, as at a first boot.
    board.write("/var/lib/nvpmodel/status", "pmode:banana");
    board.reboot(NANO).unwrap();
    assert_eq!(board.query(), "NV Power Mode: 25W\n1\n");
    assert_eq!(board.read("/sys/devices/system/cpu/online"), "0-5");
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let board = Board::new(NANO);
    let twice = Simulation::create(NANO, Some(board.root()), Path::new(PROGRAM));
    assert!(matches!(twice, Err(SimulationError::Busy { .. })), "{twice:?}");
    let other = Simulation::create(AGX, Some(board.root()), Path::new(PROGRAM));
    assert!(matches!(other, Err(SimulationError::Other { .. })), "{other:?}");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("letter"), "dear").unwrap();
    let occupied = Simulation::create(NANO, Some(dir.path()), Path::new(PROGRAM));
    assert!(matches!(occupied, Err(SimulationError::Occupied { .. })), "{occupied:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_directory_of_its_own_goes_with_the_board() {
    let simulation = Simulation::create(NANO, None, Path::new(PROGRAM)).unwrap();
    let dir = simulation.dir().to_owned();
    assert!(dir.join("proc/meminfo").is_file());
    drop(simulation);
    assert!(!dir.exists());
}

#[test]
fn what_a_person_echoes_is_rounded_down_and_cores_take_their_policy_along() {
    let board = Board::new(NANO);
    let max = format!("{GPU}/max_freq");
    board.write(&max, "700000000");
    board.eventually("the clock is rounded down", |board| board.read(&max) == "612000000");
    for cpu in [4, 5] {
        board.write(&format!("/sys/devices/system/cpu/cpu{cpu}/online"), "0");
    }
    board.eventually("the policy goes", |board| {
        board.read("/sys/devices/system/cpu/online") == "0-3"
            && !board.path("/sys/devices/system/cpu/cpufreq/policy4").exists()
    });
    board.write("/sys/devices/system/cpu/cpu4/online", "1");
    board.eventually("the policy comes back", |board| {
        fs::read_to_string(board.path("/sys/devices/system/cpu/cpu4/cpufreq/affected_cpus"))
            .is_ok_and(|cpus| cpus == "4\n")
    });
    for nonsense in ["", "banana", "-5", "99999999999999999999999999"] {
        board.write(&max, nonsense);
        thread::sleep(Duration::from_millis(20));
    }
    board.write(&max, "918000000");
    board.eventually("the board outlives nonsense", |board| board.read(&max) == "918000000");
}

fn plan() -> Plan {
    Plan {
        steps: vec![],
        holds: Vec::new(),
        accelerator: Accelerator::default(),
        cpus: vec![],
        warm_up_s: 1.0,
        time_limit_s: 30.0,
        filling_s: 0.0,
        memory_limit_bytes: 1 << 30,
        seed: 7,
    }
}

const READ: Kernel = Kernel::Stream { pattern: Stream::Read, bytes: 512 << 20, stores: Stores::Temporal };
const FP16: Kernel = Kernel::Peak { precision: Precision::Fp16 };

fn measure(board: &Board, kernel: Kernel, threads: u32) -> Result<Sample, String> {
    let mut probe = Simulated::new(board.root(), &plan()).unwrap();
    match probe.measure(&Step { kernel, threads, budget_s: 0.05 }, &|| false) {
        Outcome::Measured(sample) => Ok(*sample),
        Outcome::Skipped(reason) | Outcome::Lost(reason) => Err(reason),
        Outcome::Stopped => Err("stopped".into()),
    }
}

fn bandwidth(sample: &Sample) -> f64 {
    (sample.bytes / centre(&sample.times)).get()
}

fn compute(sample: &Sample) -> f64 {
    (sample.flops / centre(&sample.times)).get()
}

/// Nominal DRAM bandwidth is 16 bytes x 2 x the memory clock; dense fp16 is 2048 operations a cycle and SM.
#[test]
fn measured_ceilings_lie_below_the_nominal_ones_and_follow_the_mode() {
    let board = Board::new(NANO);
    let (read, peak) = (measure(&board, READ, 8).unwrap(), measure(&board, FP16, 8).unwrap());
    assert!((0.80..0.92).contains(&(bandwidth(&read) / 102.4e9)), "{}", bandwidth(&read));
    assert!((0.90..0.97).contains(&(compute(&peak) / (8.0 * 918e6 * 2048.0))), "{}", compute(&peak));
    assert!((read.before.clock.reported.unwrap().get() - 918e6).abs() < 1e6, "warmed up");
    assert_eq!(board.nvpmodel("-m 0", b"").0, DONE);
    let (lower, slower) = (measure(&board, READ, 8).unwrap(), measure(&board, FP16, 8).unwrap());
    let memory = bandwidth(&read) / bandwidth(&lower);
    assert!((memory / (3199.0 / 2133.0) - 1.0).abs() < 0.02, "{memory}");
    let clocks = compute(&peak) / compute(&slower);
    assert!((clocks / (918.0 / 612.0) - 1.0).abs() < 0.02, "{clocks}");
}

/// Eight SMs at 612 MHz pull less than the memory gives: 67 GB/s were measured in MODE_30W, 177 in MAXN.
#[test]
fn a_gated_gpu_cannot_pull_what_the_memory_gives() {
    let mut board = Board::new(AGX);
    let gated = bandwidth(&measure(&board, READ, 8).unwrap());
    assert!((60e9..70e9).contains(&gated), "{gated}");
    board.write("/var/lib/nvpmodel/status", "pmode:0000");
    board.reboot(AGX).unwrap();
    let full = bandwidth(&measure(&board, READ, 16).unwrap());
    assert!((170e9..185e9).contains(&full), "{full}");
}

#[test]
fn what_the_gpu_lacks_is_skipped_with_the_reason() {
    let board = Board::new(NANO);
    for (kernel, threads, part) in [
        (Kernel::Peak { precision: Precision::Fp8 }, 8, "no unit"),
        (Kernel::PingPong, 8, "no core-to-core"),
        (READ, 9, "8 are online"),
        (
            Kernel::Gemv { n: 512, k: 512, columns: 1, format: WeightFormat::Nf4, case: GemvCase::Dram },
            8,
            "no GPU kernel",
        ),
    ] {
        let reason = measure(&board, kernel, threads).unwrap_err();
        assert!(reason.contains(part), "{reason}");
    }
    let thor = Board::new(THOR);
    let fp4 = measure(&thor, Kernel::Peak { precision: Precision::Fp4 }, 20).unwrap();
    assert!((0.85..1.0).contains(&(compute(&fp4) / 908.3e12)), "{}", compute(&fp4));
}

#[test]
fn gb10_is_measured_at_its_real_clock_and_at_locked_ones() {
    let board = Board::new("gb10");
    let read = bandwidth(&measure(&board, READ, 48).unwrap());
    assert!((245e9..260e9).contains(&read), "{read}");
    let fp16 = compute(&measure(&board, FP16, 48).unwrap());
    assert!((110e12..122e12).contains(&fp16), "{fp16}");
    board.write("/rooflined/nvml/0/locked_clocks_mhz", "300,1500");
    let locked = compute(&measure(&board, FP16, 48).unwrap());
    assert!((fp16 / locked / (2483.0 / 1500.0) - 1.0).abs() < 0.03, "{locked}");
}

#[test]
fn load_ramps_the_clock_draws_power_and_ends_with_the_probe() {
    let board = Board::new(NANO);
    let cur = format!("{GPU}/cur_freq");
    assert_eq!(board.read(&cur), "306000000");
    let current = |board: &Board| -> f64 {
        board.read("/sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1/curr1_input").parse().unwrap()
    };
    let idle = current(&board) * 5.056e-3;
    assert!((4.4..4.9).contains(&idle), "{idle}");
    let mut probe = Simulated::new(board.root(), &plan()).unwrap();
    let step = Step { kernel: READ, threads: 8, budget_s: 0.05 };
    for _ in 0..10 {
        assert!(matches!(probe.measure(&step, &|| false), Outcome::Measured(_)));
    }
    assert_eq!(board.read(&cur), "918000000");
    let loaded = current(&board) * 5.056e-3;
    assert!((8.0..16.0).contains(&loaded), "{loaded}");
    let available =
        |board: &Board| board.read("/proc/meminfo").split("MemAvailable:").nth(1).unwrap().trim().to_owned();
    let during = available(&board);
    drop(probe);
    board.eventually("the clock falls", |board| board.read(&cur) == "306000000");
    assert_ne!(available(&board), during, "the GPU's memory is the machine's");
}

#[test]
fn a_hot_room_throttles_and_the_samples_show_it() {
    let board = Board::new(NANO);
    board.write("/rooflined/ambient_c", "110");
    let mut probe = Simulated::new(board.root(), &plan()).unwrap();
    let step = Step { kernel: FP16, threads: 8, budget_s: 0.05 };
    let throttled = |board: &Board| {
        (0..8).any(|n| {
            let dir = format!("/sys/class/thermal/cooling_device{n}");
            board.path(&dir).exists()
                && board.read(&format!("{dir}/type")) == "gpu-throttle-alert"
                && board.read(&format!("{dir}/cur_state")) != "0"
        })
    };
    let began = Instant::now();
    while !throttled(&board) || board.read(&format!("{GPU}/cur_freq")) == "918000000" {
        assert!(matches!(probe.measure(&step, &|| false), Outcome::Measured(_)));
        assert!(began.elapsed() < Duration::from_secs(20), "it does not throttle");
    }
    let Outcome::Measured(sample) = probe.measure(&step, &|| false) else { panic!("not measured") };
    assert!(sample.after.clock.reported.unwrap().get() < 918e6);
    assert!(sample.after.temperature.unwrap().get() > 95.0);
}

#[test]
fn the_same_seed_gives_the_same_samples() {
    let board = Board::new(NANO);
    let gemv =
        Kernel::Gemv { n: 2816, k: 3072, columns: 1, format: WeightFormat::Int8, case: GemvCase::Dram };
    let (first, second) = (measure(&board, gemv, 8).unwrap(), measure(&board, gemv, 8).unwrap());
    assert_eq!(first.times, second.times);
    assert_eq!(first.bytes, second.bytes);
}

#[test]
fn the_probe_child_speaks_the_protocol_of_every_probe() {
    let board = Board::new(NANO);
    let steps = [READ, FP16, Kernel::Peak { precision: Precision::Fp4 }, Kernel::Wake].map(|kernel| Step {
        kernel,
        threads: 8,
        budget_s: 0.02,
    });
    let plan = Plan { steps: steps.into(), ..plan() };
    let mut child = Command::new(PROGRAM)
        .args(["probe", "--simulate"])
        .arg(board.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all((serde_json::to_string(&plan).unwrap() + "\n").as_bytes()).unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    let events: Vec<ProbeEvent> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let samples = events.iter().filter(|event| matches!(event, ProbeEvent::Sample(_))).count();
    assert_eq!(samples, 3, "{text}");
    assert!(events.iter().any(|event| matches!(event, ProbeEvent::Skipped { .. })));
    assert!(matches!(events.last(), Some(ProbeEvent::Finished { cut_short: None, .. })));
    let no_board =
        Command::new(PROGRAM).args(["probe", "--simulate", "/proc"]).stdin(Stdio::null()).output().unwrap();
    assert!(!no_board.status.success());
}

/// What the daemon reads from each tree: the same code, the same paths as on the board.
#[test]
fn the_tree_is_read_like_a_boards_with_nothing_amiss() {
    use rooflined_hw::{self, Sampler, SysRoot};
    for (key, mode, sm, gpu, memory, watts) in [
        (NANO, Some("25W"), 8, 918e6, 3.199e9, 4.65),
        (AGX, Some("MODE_30W"), 8, 612e6, 3.199e9, 8.7),
        (THOR, Some("120W"), 20, 1386e6, 4.266e9, 19.8),
        ("gb10", None, 48, 3003e6, 4.266e9, 4.0),
    ] {
        let alive = Board::new(key);
        let root = SysRoot::new(alive.root());
        let (board, discovered) = rooflined_hw::discover(&root);
        let state = rooflined_hw::read_state(&mut Sampler::new(&root, discovered), rooflined_hw::boot_time());
        assert_eq!(board.key, key);
        assert!(board.simulated);
        assert!(board.gpu.known().is_some(), "{key}: {:?}", board.gpu);
        if let Some(modes) = board.modes.known() {
            assert_eq!(modes.warnings, [], "{key}");
        }
        assert_eq!(
            state.power_mode.known().map(|mode| mode.name.as_str()),
            mode,
            "{key}: {:?}",
            state.power_mode
        );
        let known = |name: &str, reading: Option<f64>, expected: f64| {
            let value = reading.unwrap_or_else(|| panic!("{key}: {name} is unknown: {state:#?}"));
            assert!((value / expected - 1.0).abs() < 0.03, "{key}: {name} is {value}");
        };
        known("SMs", state.sm_online.known().map(|sm| f64::from(*sm)), f64::from(sm));
        known("memory cap", state.memory_clock_cap.known().map(|hz| hz.get()), memory);
        if key != "gb10" {
            known("GPU cap", state.gpu_clock_cap.known().map(|hz| hz.get()), gpu);
        }
        known("power", state.total_power.known().map(|total| total.power.get()), watts);
        for (name, absent) in [
            ("cores", state.cores_online.reason()),
            ("temperatures", state.temperatures.reason()),
            ("memory", state.memory.reason()),
            ("load", state.load.reason()),
            ("pressure", state.pressure.reason()),
            ("throttling", state.throttle.reason()),
        ] {
            assert_eq!(absent, None, "{key}: {name}");
        }
        assert!(!state.throttle.known().unwrap().active, "{key}: {:?}", state.throttle);
    }
}
