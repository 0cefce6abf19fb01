//! Boards as text: each tree under tests/boards is unpacked, discovered and sampled twice, and what was read is
//! compared with expected.json beside it. `UPDATE_EXPECTED=1` rewrites those files, for a person to look at.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rooflined_core::board::{BoardState, Reading};
use rooflined_core::units::{Celsius, Hertz, Seconds, Watts};
use rooflined_hw::{self, Sampler, SysRoot};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tree::{self, Node, nodes, place, put, unpack};

pub const BOARDS: [&str; 42] = [
    "laptop-x86",
    "vm-x86",
    "server-arm64",
    "damaged",
    "tegra-unclaimed",
    "empty",
    "orin-nano-8gb-super",
    "orin-nano-8gb-super-15w",
    "orin-nano-8gb-super-maxn",
    "orin-nano-8gb-super-old-firmware",
    "orin-nano-8gb-super-odd",
    "orin-nano-8gb-super-damaged",
    "orin-nano-8gb-super-container",
    "orin-nano-8gb",
    "orin-nano-4gb",
    "orin-nx-16gb",
    "orin-nx-8gb",
    "agx-orin-32gb",
    "agx-orin-64gb",
    "agx-orin-64gb-jp5",
    "agx-orin-64gb-jp5-odd",
    "xavier-nx",
    "agx-xavier",
    "agx-thor-t5000",
    "agx-thor-t5000-idle",
    "agx-thor-t5000-damaged",
    "agx-thor-t4000",
    "gb10",
    "gb10-spbm",
    "h100",
    "h100-damaged",
    "gpu-unknown",
    "agx-orin-devkit-32gb",
    "agx-orin-as-nano-4gb",
    "igx-orin",
    "agx-xavier-8gb",
    "orin-nano-unlisted",
    "agx-orin-64gb-root",
    "orin-nano-8gb-super-user",
    "agx-thor-t5000-user",
    "gb10-devices",
    "agx-xavier-root",
];

/// An unpacked board, ready to be sampled.
fn board(name: &str) -> (TempDir, Sampler) {
    let dir = unpack(&nodes(name, "tree.txt"));
    let root = SysRoot::new(dir.path());
    let sampler = Sampler::new(&root, rooflined_hw::discover(&root).1);
    (dir, sampler)
}

/// The same value, numbers to one part in a thousand: mean powers divide by real time.
fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-3 * a.abs().max(b.abs())
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| alike(a, b)))
        }
        _ => a == b,
    }
}

#[test]
fn every_board_reads_as_expected() {
    tree::obey_permissions();
    for name in BOARDS {
        let dir = unpack(&nodes(name, "tree.txt"));
        let root = SysRoot::new(dir.path());
        let (board, discovered) = rooflined_hw::discover(&root);
        let mut sampler = Sampler::new(&root, discovered);
        let first = rooflined_hw::read_state(&mut sampler, Seconds(1000.0));
        for (path, node) in nodes(name, "after.txt") {
            put(dir.path(), &path, &node);
        }
        let second = rooflined_hw::read_state(&mut sampler, Seconds(2000.0));
        let found = json!({"board": board, "state": first, "state_after": second});
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards").join(name).join("expected.json");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(&path, format!("{found:#}\n")).unwrap();
        }
        let expected: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        for part in ["board", "state", "state_after"] {
            for (key, value) in found[part].as_object().unwrap() {
                assert!(alike(value, &expected[part][key]), "{name}: {part}.{key} is {value:#}");
            }
        }
        assert!(alike(&found, &expected), "{name} has other keys than expected");
    }
}

/// What one board says of itself, in the terms of its data sheet.
struct Expected {
    board: &'static str,
    key: &'static str,
    mode: Option<(u32, &'static str)>,
    sm: Option<u32>,
    gpu_megahertz: Option<f64>,
    memory_megahertz: Option<f64>,
    /// Millivolts times milliamperes of each rail that counts, or milliwatts times a thousand.
    total_microwatts: Option<f64>,
}

/// A machine without power modes.
const NONE: Option<(u32, &str)> = None;

#[rustfmt::skip]
const EXPECTED: [Expected; 27] = [
    expect("orin-nano-8gb-super", "jetson-orin-nano-8gb-super", Some((1, "25W")), 8, 918.0, 3199.0, 5056.0 * 920.0),
    expect("orin-nano-8gb-super-15w", "jetson-orin-nano-8gb-super", Some((0, "15W")), 8, 612.0, 2133.0, 5056.0 * 920.0),
    expect("orin-nano-8gb-super-maxn", "jetson-orin-nano-8gb-super", Some((2, "MAXN_SUPER")), 8, 1020.0, 3199.0, 5056.0 * 920.0),
    // The mode's caps are open; the table and the firmware end below what its name promises.
    expect("orin-nano-8gb-super-old-firmware", "jetson-orin-nano-8gb-super", Some((2, "MAXN_SUPER")), 8, 624.75, 2133.0, 5056.0 * 920.0),
    // Fresh from flashing: the default. Another supply, and no doubling over the hwmon class.
    expect("orin-nano-8gb-super-odd", "jetson-orin-nano-8gb-super", Some((1, "25W")), 8, 918.0, 3199.0, 19072.0 * 264.0),
    expect("orin-nano-8gb-super-container", "jetson-orin-nano-8gb-super", NONE, 8, 918.0, 0.0, 0.0),
    expect("orin-nano-8gb", "jetson-orin-nano-8gb", Some((0, "15W")), 8, 624.75, 2133.0, 5080.0 * 840.0),
    expect("orin-nano-4gb", "jetson-orin-nano-4gb-super", Some((2, "MAXN_SUPER")), 4, 1020.0, 3199.0, 5072.0 * 800.0),
    expect("orin-nx-16gb", "jetson-orin-nx-16gb-super", Some((2, "15W")), 4, 612.0, 3199.0, 5048.0 * 912.0),
    expect("orin-nx-8gb", "jetson-orin-nx-8gb-super", Some((3, "20W")), 8, 408.0, 3199.0, 5048.0 * 912.0),
    expect("agx-orin-32gb", "jetson-agx-orin-32gb", Some((3, "MODE_40W")), 14, 816.0, 3199.0, 12008.0 * 320.0 + 4968.0 * 980.0),
    expect("agx-orin-64gb", "jetson-agx-orin-64gb", Some((0, "MAXN")), 16, 1300.5, 3199.0, 12008.0 * 400.0 + 4968.0 * 1040.0),
    // 8711 mW: VDDQ_VDD2_1V8AO (397 mW) is part of VIN_SYS_5V0.
    expect("agx-orin-64gb-jp5", "jetson-agx-orin-64gb", Some((2, "MODE_30W")), 8, 612.0, 3199.0, 12008.0 * 320.0 + 4968.0 * 980.0),
    expect("agx-orin-64gb-jp5-odd", "jetson-agx-orin-64gb", Some((2, "MODE_30W")), 8, 612.0, 2133.0, 19500.0 * 120.0 + 12008.0 * 40.0 + 4968.0 * 980.0),
    expect("xavier-nx", "jetson-xavier-nx", Some((0, "MODE_15W_2CORE")), 6, 1109.25, 1600.0, 4904.0 * 760.0),
    expect("agx-xavier", "jetson-agx-xavier", Some((2, "MODE_15W")), 8, 675.75, 1331.2, 3_127_000.0),
    // The input, and not the sum of the three rails behind it (13.48 W).
    expect("agx-thor-t5000", "jetson-agx-thor-t5000", Some((1, "120W")), 20, 1386.0, 4266.0, 19_780_000.0),
    expect("agx-thor-t5000-idle", "jetson-agx-thor-t5000", Some((1, "120W")), 20, 1386.0, 4266.0, 19_780_000.0),
    expect("agx-thor-t4000", "jetson-agx-thor-t4000", Some((1, "70W")), 12, 1530.0, 4266.0, 19_780_000.0),
    expect("gb10", "gb10", NONE, 48, 0.0, 4266.5, 4_000_000.0),
    expect("gb10-spbm", "gb10", NONE, 48, 0.0, 4266.5, 78_000_000.0),
    expect("h100", "h100-sxm", NONE, 132, 0.0, 0.0, 118_200_000.0),
    expect("agx-orin-devkit-32gb", "jetson-agx-orin-devkit-32gb", Some((0, "MAXN")), 16, 1300.5, 3199.0, 12008.0 * 400.0 + 4968.0 * 1040.0),
    // Two clusters of the host's eight are left, and its bus stays.
    expect("agx-orin-as-nano-4gb", "jetson-agx-orin-devkit-32gb", Some((1, "25W")), 4, 1020.0, 3199.0, 12008.0 * 400.0 + 4968.0 * 1040.0),
    expect("igx-orin", "igx-orin", NONE, 16, 1185.0, 3199.0, 12008.0 * 400.0 + 4968.0 * 1040.0),
    expect("agx-xavier-8gb", "jetson-agx-xavier-8gb", NONE, 6, 675.75, 1331.2, 3_127_000.0),
    expect("orin-nano-unlisted", "jetson-orin-nx-unlisted", Some((1, "25W")), 8, 918.0, 3199.0, 5056.0 * 920.0),
];

/// Zero stands for "not known" in this table alone.
const fn expect(
    board: &'static str,
    key: &'static str,
    mode: Option<(u32, &'static str)>,
    sm: u32,
    gpu: f64,
    memory: f64,
    total: f64,
) -> Expected {
    const fn known(value: f64) -> Option<f64> {
        if value > 0.0 { Some(value) } else { None }
    }
    Expected {
        board,
        key,
        mode,
        sm: Some(sm),
        gpu_megahertz: known(gpu),
        memory_megahertz: known(memory),
        total_microwatts: known(total),
    }
}

#[test]
fn a_board_is_recognised_with_its_mode_its_caps_and_its_power() {
    tree::obey_permissions();
    for expected in EXPECTED {
        let dir = unpack(&nodes(expected.board, "tree.txt"));
        let root = SysRoot::new(dir.path());
        let (board, discovered) = rooflined_hw::discover(&root);
        let state = Sampler::new(&root, discovered).sample(Seconds(1.0));
        let name = expected.board;
        assert_eq!(board.key, expected.key, "{name}");
        assert!(board.gpu.known().is_some(), "{name}: {:?}", board.gpu);
        let mode = state.power_mode.known().map(|mode| (mode.id, mode.name.as_str()));
        assert_eq!(mode, expected.mode, "{name}: {:?}", state.power_mode);
        assert_eq!(state.sm_online.known().copied(), expected.sm, "{name}");
        let close = |found: Option<f64>, expected: Option<f64>, what: &str| match (found, expected) {
            (Some(found), Some(expected)) => {
                assert!((found / expected - 1.0).abs() < 1e-6, "{name}: {what} {found}, not {expected}");
            }
            (found, expected) => assert_eq!(found, expected, "{name}: {what}"),
        };
        let megahertz = |clock: &Reading<Hertz>| clock.known().map(|clock| clock.0 / 1e6);
        close(megahertz(&state.gpu_clock_cap), expected.gpu_megahertz, "cap on the GPU");
        close(megahertz(&state.memory_clock_cap), expected.memory_megahertz, "cap on the memory clock");
        let power = state.total_power.known().map(|total| total.power.0 * 1e6);
        close(power, expected.total_microwatts, "total power in µW");
        assert!(state.memory.known().is_some(), "{name}");
        assert!(state.throttle.known().is_none_or(|throttle| !throttle.active), "{name}");
        if let Some(scope) = state.total_power.known().map(|total| total.scope.as_str()) {
            let of_gpu = ["gb10", "h100"].contains(&name);
            assert_eq!(scope == "gpu", of_gpu, "{name}: {scope}");
        }
    }
}

#[test]
fn a_symbolic_link_never_leads_out_of_the_root() {
    let dir = tempfile::tempdir().unwrap();
    for (path, target) in [
        ("/etc/absolute", "/etc/file"),
        ("/etc/relative", "../../../../etc/file"),
        ("/etc/loop", "/etc/loop"),
        ("/dir", "/etc"),
    ] {
        put(dir.path(), path, &Node::Link(target.into()));
    }
    put(dir.path(), "/etc/file", &Node::File(b"inside".to_vec()));
    let root = SysRoot::new(dir.path());
    for path in ["/etc/absolute", "/etc/relative", "/dir/absolute", "/etc/file"] {
        assert_eq!(root.resolve(path), "/etc/file", "{path}");
    }
    assert_eq!(root.resolve("/no/such"), "/no/such");
    assert!(root.read(&root.resolve("/etc/loop")).is_err());
}

#[test]
fn the_machine_is_known_by_a_hash_of_its_id() {
    // FNV-1a, written out: the id itself must appear nowhere.
    let fnv = |text: &str| {
        text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
    };
    let id = "0123456789abcdef0123456789abcdef";
    let dir = unpack(&nodes("laptop-x86", "tree.txt"));
    let (board, _) = rooflined_hw::discover(&SysRoot::new(dir.path()));
    let expected = format!("{:016x}", fnv(&format!("rooflined machine 1\n{id}")));
    assert_eq!(board.machine, Reading::Known(expected));
    assert!(!serde_json::to_string(&board).unwrap().contains(id));
}

/// Whatever one file of a board turns into, the others are still read and every number is one.
#[test]
fn no_content_of_any_file_breaks_a_reading() {
    let garbage: [&[u8]; 8] = [
        b"",
        b"\n",
        b"-1\n",
        b"\xff\x00\xfe\x01",
        b"99999999999999999999999999999999999999\n",
        b"9223372036854775807\n",
        b"nan\n",
        b"0-8191,0-8191:,\x1b[31m some avg10= cpu cpu0 MemTotal: 1",
    ];
    for name in ["laptop-x86", "server-arm64", "tegra-unclaimed", "orin-nano-8gb-super"] {
        let tree = nodes(name, "tree.txt");
        let dir = unpack(&tree);
        let root = SysRoot::new(dir.path());
        let found = rooflined_hw::discover(&root);
        let whole = format!("{found:?}");
        let mut sampler = Sampler::new(&root, found.1);
        let mut now = 0.0;
        for (path, node) in tree.iter().filter(|(_, node)| matches!(node, Node::File(_))) {
            for (index, bytes) in garbage.into_iter().enumerate() {
                put(dir.path(), path, &Node::File(bytes.to_vec()));
                // Found while it was whole, and found in this state.
                now += 1.0;
                let state = sampler.sample(Seconds(now));
                assert!(only_numbers(&json!(state)), "{name}: {path} as {bytes:?}: {state:#?}");
                // Each kind of garbage meets each kind of file; a discovery asks for many.
                if name.starts_with("orin") && !(index + now as usize).is_multiple_of(4) {
                    continue;
                }
                let (board, discovered) = rooflined_hw::discover(&root);
                let fresh = Sampler::new(&root, discovered).sample(Seconds(now));
                for value in [json!(board), json!(fresh)] {
                    assert!(only_numbers(&value), "{name}: {path} as {bytes:?}: {value:#}");
                }
            }
            put(dir.path(), path, &Node::Gone);
            let _ = rooflined_hw::discover(&root);
            let _ = sampler.sample(Seconds(now + 0.5));
            put(dir.path(), path, node);
        }
        assert_eq!(
            format!("{:?}", rooflined_hw::discover(&root)),
            whole,
            "{name}: a damage that passes leaves no trace"
        );
    }
}

/// Fields that may be null: what a mode sets no cap on, what a counter has no value of yet.
const OPTIONAL: [&str; 12] = [
    "energy",
    "busy_ratio",
    "steal_ratio",
    "cpu_some_ratio",
    "mode_note",
    "default",
    "cores_online",
    "cpu_max",
    "gpu_max",
    "memory_max",
    "tpc_mask",
    "sm_online",
];

/// serde_json writes a number that is none as null, and null stands for no option but these.
fn only_numbers(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .all(|(key, value)| only_numbers(value) || (value.is_null() && OPTIONAL.contains(&key.as_str()))),
        Value::Array(values) => values.iter().all(only_numbers),
        other => !other.is_null(),
    }
}

#[test]
fn values_follow_their_files_also_when_those_are_replaced_or_come_back() {
    let (dir, mut sampler) = board("laptop-x86");
    let zone = "/sys/class/thermal/thermal_zone10/temp";
    let temperature = |state: &BoardState| state.temperatures.known().unwrap()[1].temperature.clone();
    for (now, degrees) in [(1.0, 50.0), (2.0, 51.5), (3.0, -3.25)] {
        // Rewritten in place, as the kernel does.
        fs::write(place(dir.path(), zone), format!("{}\n", degrees * 1e3)).unwrap();
        assert_eq!(temperature(&sampler.sample(Seconds(now))), Reading::Known(Celsius(degrees)));
    }
    // Replaced by another file, as a simulated board may do.
    let new = place(dir.path(), "/new");
    fs::write(&new, "70000\n").unwrap();
    fs::rename(&new, place(dir.path(), zone)).unwrap();
    assert_eq!(temperature(&sampler.sample(Seconds(4.0))), Reading::Known(Celsius(70.0)));
    put(dir.path(), zone, &Node::Gone);
    assert!(matches!(temperature(&sampler.sample(Seconds(5.0))), Reading::Absent { .. }));
    put(dir.path(), zone, &Node::File(b"71000\n".to_vec()));
    assert_eq!(temperature(&sampler.sample(Seconds(6.0))), Reading::Known(Celsius(71.0)));
    assert_eq!(sampler.sample(Seconds(7.0)).cpu_clocks.known().unwrap()[0], Hertz(2.8e9));
}

#[test]
fn an_energy_counter_is_power_over_the_time_that_passed_and_survives_its_wrap() {
    let (dir, mut sampler) = board("laptop-x86");
    let counter = "/sys/class/powercap/intel-rapl:0/energy_uj";
    let mut power = |microjoules: u64, now: f64| {
        put(dir.path(), counter, &Node::File(format!("{microjoules}\n").into_bytes()));
        sampler.sample(Seconds(now)).rails.known().unwrap()[2].power.clone()
    };
    let range = 262_143_328_850_u64;
    assert!(matches!(power(range - 1_000_000, 0.0), Reading::Failed { .. }), "one value is no power");
    let close = |power: &Reading<Watts>, expected: f64| {
        let watts = power.known().unwrap().0;
        assert!((watts / expected - 1.0).abs() < 1e-3, "{watts} W, expected {expected} W");
    };
    // 1 J to the end, the step over it, and 19 J after it: 20 J + 1 µJ in 1000 s.
    close(&power(19_000_000, 1000.0), 20.000_001 / 1000.0);
    // A late tick: 30 J in 3000 s.
    close(&power(49_000_000, 4000.0), 30.0 / 3000.0);
    // The same instant twice, or as far apart as two reads are: 100 kJ are no power until 5 s have passed.
    assert!(power(100_049_000_000, 4000.0).reason().is_some());
    // A reset to zero (which looks like a wrap of 162 kJ in 1 s), and on as before.
    assert!(power(0, 4001.0).reason().unwrap().contains("the counter was reset"));
    close(&power(5_000_000, 5001.0), 5.0 / 1000.0);
}

#[test]
fn a_source_that_hangs_delays_nothing_but_itself() {
    let tree = nodes("laptop-x86", "tree.txt");
    let dir = unpack(&tree);
    put(dir.path(), "/sys/class/thermal/thermal_zone0/temp", &Node::Fifo);
    put(dir.path(), "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", &Node::Fifo);
    // Files of /proc are never waited for, whatever lies in their place.
    put(dir.path(), "/proc/meminfo", &Node::Fifo);
    put(dir.path(), "/sys/devices/system/cpu/online", &Node::Fifo);
    let root = SysRoot::new(dir.path());
    let mut sampler = Sampler::new(&root, rooflined_hw::discover(&root).1);
    let start = Instant::now();
    let state = sampler.sample(Seconds(1.0));
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    let zones = state.temperatures.known().unwrap();
    assert_eq!(
        zones[0].temperature.reason().unwrap(),
        "/sys/class/thermal/thermal_zone0/temp does not answer; it is left alone until it does"
    );
    assert_eq!(zones[1].temperature, Reading::Known(Celsius(61.0)));
    assert_eq!(state.cpu_clock_cap, Reading::Known(Hertz(4.3e9)), "seven policies answer");
    assert_eq!(state.rails.known().unwrap()[0].power, Reading::Known(Watts(9.35)));
    assert_eq!(state.memory, Reading::absent("/proc/meminfo is not a regular file"));
    assert_eq!(state.cores_online, Reading::Known(1), "from /proc/stat");
    assert_eq!(sampler.stuck_sources(), 2);
    // From now on they are left alone and cost nothing.
    let start = Instant::now();
    for now in 2..12 {
        let state = sampler.sample(Seconds(f64::from(now)));
        assert!(matches!(state.temperatures.known().unwrap()[0].temperature, Reading::Failed { .. }));
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(sampler.stuck_sources(), 2);
    // It answers at last, and is asked again.
    let zone = place(dir.path(), "/sys/class/thermal/thermal_zone0/temp");
    let held = zone.with_file_name("held");
    fs::rename(&zone, &held).unwrap();
    put(dir.path(), "/sys/class/thermal/thermal_zone0/temp", &Node::File(b"33000\n".to_vec()));
    fs::write(&held, "1\n").unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    let mut state = sampler.sample(Seconds(20.0));
    while sampler.stuck_sources() > 1 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
        state = sampler.sample(Seconds(20.0));
    }
    // On a busy machine the sample that saw it come back may still have been too early for its value.
    while !matches!(state.temperatures.known().unwrap()[0].temperature, Reading::Known(_))
        && Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(5));
        state = sampler.sample(Seconds(20.0));
    }
    assert_eq!(state.temperatures.known().unwrap()[0].temperature, Reading::Known(Celsius(33.0)));
    assert_eq!(sampler.stuck_sources(), 1);
}

/// Started by the test below in a process of its own, where every thread named `sensor` is this test's.
#[test]
#[ignore = "counts the threads of its process; started by another test"]
fn counts_helper_threads() {
    let helpers = || {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        tasks
            .filter(|task| {
                fs::read_to_string(task.as_ref().unwrap().path().join("comm"))
                    .is_ok_and(|name| name == "sensor\n")
            })
            .count()
    };
    let mut tree = nodes("laptop-x86", "tree.txt");
    for number in 20..60 {
        let zone = format!("/sys/class/thermal/thermal_zone{number}");
        tree.push((format!("{zone}/type"), Node::File(b"hangs\n".to_vec())));
        tree.push((format!("{zone}/temp"), Node::Fifo));
    }
    let dir = unpack(&tree);
    let root = SysRoot::new(dir.path());
    let mut sampler = Sampler::new(&root, rooflined_hw::discover(&root).1);
    let (mut most, mut slowest) = (0, Duration::ZERO);
    for now in 0..20 {
        let start = Instant::now();
        let state = sampler.sample(Seconds(f64::from(now)));
        slowest = slowest.max(start.elapsed());
        most = most.max(helpers());
        assert!(state.memory.known().is_some());
        // The zones that answer come before those that do not.
        assert_eq!(
            state.temperatures.known().unwrap()[0].temperature.known().is_some(),
            most < 32 || now == 0
        );
    }
    println!("40 stuck sources: at most {most} helpers, slowest sample {slowest:?}");
    assert!(most <= 32, "{most} helpers");
    assert!(slowest < Duration::from_secs(20), "{slowest:?}");
    // They answer: with the files gone nothing hangs any more, and one idle helper is left.
    for number in 20..60 {
        let zone = place(dir.path(), &format!("/sys/class/thermal/thermal_zone{number}/temp"));
        let writer = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let waiting =
            std::os::unix::fs::OpenOptionsExt::custom_flags(fs::File::options().write(true), writer)
                .open(&zone);
        fs::remove_file(&zone).unwrap();
        drop(waiting);
    }
    let until = Instant::now() + Duration::from_secs(5);
    while sampler.stuck_sources() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
        let state = sampler.sample(Seconds(100.0));
        assert!(state.rails.known().is_some());
    }
    assert_eq!(sampler.stuck_sources(), 0);
    let settles = |expected: usize| {
        let until = Instant::now() + Duration::from_secs(5);
        while helpers() != expected && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        helpers() == expected
    };
    assert!(settles(1), "{} helpers", helpers());
    drop(sampler);
    assert!(settles(0), "{} helpers", helpers());
}

#[test]
fn stuck_sources_never_cost_more_than_a_few_threads() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "captured::counts_helper_threads", "--ignored", "--nocapture"])
        .output();
    // ENOEXEC: this is another machine's program, run by an emulator that the kernel does not know.
    if let Err(error) = &output
        && error.raw_os_error() == Some(8)
    {
        return println!("skipped: {error}");
    }
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    // Without the count a test of another name would pass.
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}

#[test]
fn this_machine_tells_what_it_is_and_why_it_does_not_tell_more() {
    let root = SysRoot::host();
    let (board, discovered) = rooflined_hw::discover(&root);
    assert_eq!(board.key, "cpu");
    assert_eq!(board.cpu.architecture, std::env::consts::ARCH);
    assert!(board.memory_total.known().unwrap().is_positive());
    let mut sampler = Sampler::new(&root, discovered);
    let first = rooflined_hw::read_state(&mut sampler, rooflined_hw::boot_time());
    let threads = std::thread::available_parallelism().unwrap().get();
    assert!(*first.cores_online.known().unwrap() as usize >= threads);
    assert_eq!(
        rooflined_hw::online_cpus(&root).known().unwrap().len(),
        *first.cores_online.known().unwrap() as usize
    );
    let state = json!(first);
    for (field, reading) in state
        .as_object()
        .unwrap()
        .iter()
        .filter(|(field, _)| !["taken_at", "mode_note"].contains(&field.as_str()))
    {
        let reason = reading["absent"]["reason"].as_str().or(reading["failed"]["reason"].as_str());
        assert!(reading.get("known").is_some() || reason.is_some_and(|reason| !reason.is_empty()), "{field}");
    }
    // Two threads spin, so the CPUs are busy.
    let until = Instant::now() + Duration::from_millis(600);
    let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    let second = sampler.sample(rooflined_hw::boot_time());
    child.kill().unwrap();
    child.wait().unwrap();
    let load = second.load.known().unwrap();
    assert!(load.busy_ratio.unwrap() > 0.1 && load.busy_ratio.unwrap() <= 1.0, "{load:?}");
}

/// Not a test: `cargo test --release --test boards -- --ignored --nocapture sample_costs`.
#[test]
#[ignore = "a measurement"]
fn sample_costs() {
    let laptop = unpack(&nodes("laptop-x86", "tree.txt"));
    let orin = unpack(&nodes("agx-orin-64gb", "tree.txt"));
    let nano = unpack(&nodes("orin-nano-8gb-super", "tree.txt"));
    let full = unpack(&nodes("agx-orin-64gb-root", "tree.txt"));
    for (name, root) in [
        ("this machine", SysRoot::host()),
        ("laptop tree", SysRoot::new(laptop.path())),
        ("AGX Orin tree", SysRoot::new(orin.path())),
        ("Orin Nano tree", SysRoot::new(nano.path())),
        ("AGX Orin tree with all that is watched", SysRoot::new(full.path())),
    ] {
        let start = Instant::now();
        let (_, discovered) = rooflined_hw::discover(&root);
        let discovery = start.elapsed();
        let mut sampler = Sampler::new(&root, discovered);
        let mut times: Vec<f64> = (0..2000)
            .map(|now| {
                let start = Instant::now();
                std::hint::black_box(sampler.sample(Seconds(f64::from(now))));
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!(
            "{name}: discovery {discovery:?}, sample median {:.1} µs, 99 % {:.1} µs",
            times[1000], times[1980]
        );
    }
}
