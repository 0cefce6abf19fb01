//! Sensors and caps that are not what they seem: signs, two of one name, limits below those of a mode.

use std::collections::{BTreeMap, HashSet};

use rooflined_core::board::{Board, BoardState, Reading};
use rooflined_core::ceilings::datasheet;
use rooflined_core::hardware::registry;
use rooflined_core::precision::Precision;
use rooflined_core::units::{Hertz, Seconds};
use rooflined_hw::{Sampler, SysRoot};
use rooflined_predict::snapshot::{clock_notes, point_in};

use crate::tree::{self, Node, nodes, put, unpack};

/// A board of this directory with some of its files changed, and how it is then.
pub fn changed(board: &str, files: &[(&str, &str)]) -> (Board, BoardState) {
    tree::obey_permissions();
    let dir = unpack(&nodes(board, "tree.txt"));
    for (path, text) in files {
        let node = match *text {
            "gone" => Node::Gone,
            text => Node::File(format!("{text}\n").into_bytes()),
        };
        // Not in place: it may be one that cannot be opened.
        put(dir.path(), path, &Node::Gone);
        put(dir.path(), path, &node);
    }
    let root = SysRoot::new(dir.path());
    let (board, discovered) = rooflined_hw::discover(&root);
    let state = Sampler::new(&root, discovered).sample(Seconds(1.0));
    (board, state)
}

/// Power of each rail in mW; `None` where it is not known.
fn rails(state: &BoardState) -> BTreeMap<String, Option<f64>> {
    let rails = state.rails.known().unwrap();
    let power = |reading: &Reading<rooflined_core::units::Watts>| reading.known().map(|watts| watts.0 * 1e3);
    let by_name: BTreeMap<_, _> = rails.iter().map(|rail| (rail.name.clone(), power(&rail.power))).collect();
    assert_eq!(by_name.len(), rails.len(), "two rails of one name: {rails:?}");
    by_name
}

fn total(state: &BoardState) -> Option<f64> {
    state.total_power.known().map(|total| total.power.0 * 1e3)
}

fn close(found: Option<f64>, expected: f64) {
    assert!(found.is_some_and(|found| (found - expected).abs() < 1e-6), "{found:?}, expected {expected}");
}

const AGX: &str = "/sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3";

#[test]
fn a_negative_current_is_a_power_with_its_sign_and_spoils_no_total() {
    let (gpu, cpu, input) = (12_008.0 * 0.320, 12_008.0 * 0.080, 4968.0 * 1.040);
    let (_, state) = changed("agx-orin-64gb", &[]);
    close(total(&state), gpu + cpu + input);
    let curr2 = format!("{AGX}/curr2_input");
    for (text, milliwatts) in [("-40", -12_008.0 * 0.040), ("-1", -12.008), ("0", 0.0), ("-0", 0.0)] {
        let (_, state) = changed("agx-orin-64gb", &[(&curr2, text)]);
        close(rails(&state)["VDD_CPU_CV"], milliwatts);
        close(total(&state), gpu + milliwatts + input);
        let power = state.rails.known().unwrap()[1].power.known().unwrap().0;
        assert!(power != 0.0 || power.is_sign_positive(), "nothing is not less than nothing");
    }
    // Of a rail that is off the voltage has an offset too.
    let volts = format!("{AGX}/in2_input");
    let (_, state) = changed("agx-orin-64gb", &[(&volts, "-8"), (&curr2, "-40")]);
    close(rails(&state)["VDD_CPU_CV"], 0.0);
    close(total(&state), gpu + input);
    // What no sensor can tell is a failure, and so is the sum.
    for (path, text) in [
        (&volts, "-12008"),
        (&curr2, "-1000001"),
        (&curr2, "9223372036854775807"),
        (&curr2, "18446744073709551576"),
        (&curr2, "--40"),
        (&curr2, "-"),
        (&curr2, "900000"),
    ] {
        let (_, state) =
            changed("agx-orin-64gb", &[(path, text), (&volts, if path == &volts { text } else { "99000" })]);
        assert_eq!(rails(&state)["VDD_CPU_CV"], None, "{text}");
        assert!(matches!(state.total_power, Reading::Failed { .. }), "{text}: {:?}", state.total_power);
    }
}

#[test]
fn a_meter_that_tells_power_may_tell_less_than_nothing() {
    let (_, state) = changed("agx-thor-t5000", &[("/sys/class/hwmon/hwmon3/power1_input", "-392000")]);
    close(rails(&state)["VIN"], -392.0);
    assert!(matches!(state.total_power, Reading::Failed { .. }), "a rail may, a machine may not");
    let (_, state) = changed("agx-thor-t5000-idle", &[]);
    close(rails(&state)["VDD_GPU"], -392.0);
    close(total(&state), 19_780.0);
    // A sensor mounted in reverse, one that is damaged, one that is off, and two in another unit: none is what a machine draws.
    for text in ["-19780000", "-30000000000", "0", "19780", "19780000000"] {
        let (_, state) = changed("agx-thor-t5000", &[("/sys/class/hwmon/hwmon3/power1_input", text)]);
        assert!(matches!(state.total_power, Reading::Failed { .. }), "{:?}", state.total_power);
    }
}

#[test]
fn zones_of_one_name_are_kept_apart_by_their_numbers() {
    let (_, state) = changed("gb10", &[]);
    let zones = state.temperatures.known().unwrap();
    let found: Vec<(&str, f64)> =
        zones.iter().map(|zone| (zone.name.as_str(), zone.temperature.known().unwrap().0)).collect();
    let acpitz = |number: u32| if number == 0 { "acpitz".to_owned() } else { format!("acpitz-{number}") };
    let degrees = [38.0, 37.0, 38.2, 37.5, 39.1, 36.8, 38.6];
    let names: Vec<String> = (0..7).map(acpitz).collect();
    let expected: Vec<(&str, f64)> = names.iter().map(String::as_str).zip(degrees).collect();
    // Whatever else tells temperatures comes behind them.
    assert_eq!(found[..7], expected);
    // Ten zones: the numbers, not their spelling, decide; names with spaces, and one that looks like a made one.
    let files: Vec<(String, &str)> = (0..12)
        .flat_map(|zone| {
            let kind = match zone {
                4 => "acpitz-11",
                5 | 6 => "Board Sensor",
                _ => "acpitz",
            };
            let dir = format!("/sys/class/thermal/thermal_zone{zone}");
            [(format!("{dir}/type"), kind), (format!("{dir}/temp"), "41000")]
        })
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let (_, state) = changed("gb10", &files);
    let zones = state.temperatures.known().unwrap();
    let names: HashSet<&str> = zones.iter().map(|zone| zone.name.as_str()).collect();
    assert_eq!(names.len(), zones.len(), "{names:?}");
    for name in
        ["acpitz", "acpitz-2", "acpitz-10", "acpitz-11", "acpitz-11-2", "Board Sensor", "Board Sensor-6"]
    {
        assert!(names.contains(name), "{name}: {names:?}");
    }
}

#[test]
fn rails_of_one_name_are_kept_apart_by_their_sensors_address() {
    let other = "/sys/bus/i2c/drivers/ina3221/1-0041/hwmon/hwmon4";
    let label = format!("{other}/in2_label");
    let (_, state) = changed("agx-orin-64gb", &[(&label, "VDD_CPU_CV")]);
    let rails = rails(&state);
    close(rails["VDD_CPU_CV"], 12_008.0 * 0.080);
    close(rails["VDD_CPU_CV-1-0041.2"], 4968.0 * 0.080);
    // The total is that of the first sensor.
    close(total(&state), 12_008.0 * 0.400 + 4968.0 * 1.040);
    assert_eq!(state.total_power.known().unwrap().rails, ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"]);
}

#[test]
fn a_package_that_two_interfaces_tell_of_is_counted_once() {
    let files = [
        ("/sys/class/powercap/intel-rapl-mmio:0/name", "package-0"),
        ("/sys/class/powercap/intel-rapl-mmio:0/energy_uj", "1000000"),
        ("/sys/class/powercap/intel-rapl-mmio:0/max_energy_range_uj", "262143328850"),
    ];
    let (_, state) = changed("laptop-x86", &files);
    assert_eq!(rails(&state).keys().filter(|name| name.starts_with("package-0-")).count(), 1);
    let all = rails(&state);
    assert!(all.contains_key("package-0") && all.contains_key("package-0-intel-rapl-mmio:0"), "{all:?}");
}

#[test]
fn the_inputs_of_a_carrier_are_rails_and_no_part_of_the_modules_power() {
    let carrier = "/sys/bus/i2c/drivers/ina3221/2-0041/hwmon/hwmon7";
    let path = |file: &str| format!("{carrier}/{file}");
    let texts = [
        ("name", "ina3221"),
        ("in1_label", "CVB_ATX_12V"),
        ("in1_input", "12048"),
        ("curr1_input", "1900"),
        ("in2_label", "CVB_ATX_3V3"),
        ("in2_input", "3312"),
        ("curr2_input", "400"),
        ("in3_label", "CVB_ATX_5V"),
        ("in3_input", "5016"),
        ("curr3_input", "120"),
    ];
    let paths: Vec<(String, &str)> = texts.iter().map(|(file, text)| (path(file), *text)).collect();
    let mut files: Vec<(&str, &str)> = paths.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    files.extend([
        ("/sys/class/hwmon/hwmon8/name", "ina219"),
        ("/sys/class/hwmon/hwmon8/label", "CVB_ATX_12V_8P"),
        ("/sys/class/hwmon/hwmon8/power1_input", "21000000"),
    ]);
    let (_, state) = changed("agx-orin-64gb", &files);
    let rails = rails(&state);
    close(rails["CVB_ATX_12V"], 12_048.0 * 1.9);
    close(rails["CVB_ATX_12V_8P"], 21_000.0);
    close(total(&state), 12_008.0 * 0.400 + 4968.0 * 1.040);
    assert_eq!(state.total_power.known().unwrap().scope, "module");
}

#[test]
fn of_two_sensors_at_an_input_the_modules_own_counts() {
    let files = [
        ("/sys/class/hwmon/hwmon1/name", "ina238"),
        ("/sys/class/hwmon/hwmon1/label", "CARRIER"),
        ("/sys/class/hwmon/hwmon1/power1_input", "61000000"),
    ];
    let (_, state) = changed("agx-thor-t5000", &files);
    close(total(&state), 19_780.0);
}

/// Memory bandwidth in GB/s and dense fp16 in TFLOPS that a board would have in one of its modes.
fn ceilings(board: &Board, state: &BoardState, mode: &str) -> (f64, f64) {
    let hardware = registry().get(&board.key).unwrap();
    let mode = board.mode(mode).unwrap();
    let roofline = datasheet(hardware, &point_in(board, state, Some(hardware), mode));
    let fp16 = roofline.compute(Precision::Fp16).unwrap().value;
    (roofline.memory_limit.unwrap().value.get() / 1e9, fp16.get() / 1e12)
}

fn notes(board: &Board, state: &BoardState, mode: &str) -> Vec<String> {
    let hardware = registry().get(&board.key);
    clock_notes(board, state, hardware, board.mode(mode).unwrap())
}

fn is(found: (f64, f64), bandwidth: f64, compute: f64) {
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
    assert!(near(found.0, bandwidth) && near(found.1, compute), "{found:?}, not {bandwidth}, {compute}");
}

/// 128 bits at twice the memory clock; 8 SMs that do 2048 operations a clock.
fn nano(memory_mhz: f64, gpu_mhz: f64) -> (f64, f64) {
    (16.0 * 2.0 * memory_mhz / 1e3, 8.0 * 2048.0 * gpu_mhz / 1e6)
}

#[test]
fn a_mode_promises_no_more_than_firmware_and_tables_give() {
    let old = "orin-nano-8gb-super-old-firmware";
    let (slow, as_is) = (nano(2133.0, 612.0), nano(2133.0, 624.75));
    let (board, state) = changed(old, &[]);
    // 68 GB/s and 10.2 TFLOPS in place of 102 and 16.7.
    for (mode, (bandwidth, compute)) in [("MAXN_SUPER", as_is), ("25W", as_is), ("15W", slow)] {
        is(ceilings(&board, &state, mode), bandwidth, compute);
    }
    assert!(
        state.mode_note.as_ref().is_some_and(|note| note.contains("2.13 GHz and not 3.20 GHz")),
        "{:?}",
        state.mode_note
    );
    let said = notes(&board, &state, "25W");
    assert!(said.iter().any(|note| note.contains("625 MHz, below the 918 MHz")), "{said:?}");
    assert!(said.iter().any(|note| note.contains("stays at 2.13 GHz")), "{said:?}");
    assert_eq!(notes(&board, &state, "15W"), Vec::<String>::new());
    // Read by root, and in whichever mode: the firmware itself tells.
    let max = ("/sys/kernel/debug/bpmp/debug/clk/emc/max_rate", "2133000000");
    let gpu = "/sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu/max_freq";
    let cpu = "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
    let cpu4 = "/sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq";
    let mode_0 =
        [("/var/lib/nvpmodel/status", "pmode:0000"), (gpu, "612000000"), (cpu, "1497600"), (cpu4, "1497600")];
    let (board, state) = changed(old, &[&mode_0[..], &[max]].concat());
    assert_eq!(
        state.power_mode.known().map(|mode| mode.name.as_str()),
        Some("15W"),
        "{:?}",
        state.power_mode
    );
    assert_eq!(state.mode_note, None);
    is(ceilings(&board, &state, "MAXN_SUPER"), as_is.0, as_is.1);
    // Not read by root, in a mode that caps the memory itself: nothing tells, and that is said.
    let (board, state) = changed(old, &mode_0);
    assert_eq!(
        state.power_mode.known().map(|mode| mode.name.as_str()),
        Some("15W"),
        "{:?}",
        state.power_mode
    );
    let highest = nano(3199.0, 624.75);
    is(ceilings(&board, &state, "MAXN_SUPER"), highest.0, highest.1);
    let said = notes(&board, &state, "MAXN_SUPER");
    assert!(
        said.iter().any(|note| note.starts_with("nothing confirms a memory clock of 3.20 GHz")),
        "{said:?}"
    );
    assert_eq!(notes(&board, &state, "15W"), Vec::<String>::new());
}

#[test]
fn a_cap_above_the_table_of_clocks_is_the_tables_highest() {
    let gpu = "/sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu/max_freq";
    for cap in ["1020000000", "0", "-1", "2147483647", "9223372036854775807", "18446744073709551615"] {
        let (board, state) = changed("orin-nano-8gb-super-old-firmware", &[(gpu, cap)]);
        assert_eq!(state.gpu_clock_cap, Reading::Known(Hertz(624.75e6)), "{cap}");
        assert_eq!(state.power_mode.known().map(|mode| mode.id), Some(2), "{cap}: {:?}", state.power_mode);
        let (bandwidth, compute) = nano(2133.0, 624.75);
        is(ceilings(&board, &state, "MAXN_SUPER"), bandwidth, compute);
    }
    // A table that lists some clocks and the highest, which is no multiple of the others.
    let table = gpu.replace("max_freq", "available_frequencies");
    let thinned = (table.as_str(), "306000000 510000000 714000000 918000000 1020000000");
    let (_, state) = changed("orin-nano-8gb-super-maxn", &[thinned]);
    assert_eq!(state.gpu_clock_cap, Reading::Known(Hertz(1020e6)));
    // A table in kHz is none, and no clock of 1 MHz comes of it.
    let (_, state) = changed("orin-nano-8gb-super-maxn", &[(&table, "306000 1020000")]);
    assert_eq!(state.gpu_clock_cap, Reading::Known(Hertz(1020e6)));
}

#[test]
fn a_board_whose_firmware_admits_what_its_modes_ask_for_has_nothing_said() {
    let (board, state) = changed("orin-nano-8gb-super", &[]);
    for (mode, memory, gpu) in
        [("15W", 2133.0, 612.0), ("25W", 3199.0, 918.0), ("MAXN_SUPER", 3199.0, 1020.0)]
    {
        let (bandwidth, compute) = nano(memory, gpu);
        is(ceilings(&board, &state, mode), bandwidth, compute);
        assert_eq!(notes(&board, &state, mode), Vec::<String>::new(), "{mode}");
    }
}
