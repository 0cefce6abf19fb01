//! Files of power modes of every release: what is read from the ones under tests/nvpmodel against the tables below,
//! which are written from what the boards ship with, and what becomes of text that is none.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rooflined_core::board::nvpmodel::{expected_writes, gating_settings, parse};
use rooflined_core::board::{Knob, PowerModes};
use rooflined_core::units::Hertz;
use serde_json::Value;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvpmodel").join(format!("{name}.conf"))
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

/// A row: id, name, cores, CPU kHz, GPU MHz, memory MHz, mask, SMs. A clock of 0 and a number of `NONE` are
/// what the file leaves open.
type Row = (u32, &'static str, u32, u32, f64, f64, u32, u32);
const NONE: u32 = u32::MAX;

const NANO_8: [Row; 2] = [(0, "15W", 6, 0, 0., 0., 240, 8), (1, "7W", 4, 960_000, 408., 2133., 252, 4)];
const NANO_8_SUPER: [Row; 3] = [
    (0, "15W", 6, 1_497_600, 612., 2133., 240, 8),
    (1, "25W", 6, 1_344_000, 918., 3199., 240, 8),
    (2, "MAXN_SUPER", 6, 0, 0., 0., 240, 8),
];
const AGX_64: [Row; 4] = [
    (0, "MAXN", 12, 0, 0., 0., 0, 16),
    (1, "MODE_15W", 4, 1_113_600, 408., 2133., 248, 6),
    (2, "MODE_30W", 8, 1_728_000, 612., 0., 240, 8),
    (3, "MODE_50W", 12, 1_497_600, 816., 0., 0, 16),
];
const XAVIER_NX: [Row; 9] = [
    (0, "MODE_15W_2CORE", 2, 0, 1109.25, 1600., 1, 6),
    (1, "MODE_15W_4CORE", 4, 0, 1109.25, 1600., 1, 6),
    (2, "MODE_15W_6CORE", 6, 0, 1109.25, 1600., 1, 6),
    (3, "MODE_10W_2CORE", 2, 0, 803.25, 1600., 1, 6),
    (4, "MODE_10W_4CORE", 4, 0, 803.25, 1600., 1, 6),
    (5, "MODE_10W_DESKTOP", 4, 0, 510., 1600., 1, 6),
    (6, "MODE_20W_2CORE", 2, 0, 1109.25, 1866., 1, 6),
    (7, "MODE_20W_4CORE", 4, 0, 1109.25, 1866., 1, 6),
    (8, "MODE_20W_6CORE", 6, 0, 1109.25, 1866., 1, 6),
];

/// Every file without damage: its default and its rows.
#[rustfmt::skip]
fn tables() -> Vec<(&'static str, u32, Vec<Row>)> {
    vec![
        ("orin-nano-4gb-r35", 0, vec![
            (0, "10W", 6, 0, 0., 0., 252, 4),
            (1, "7W_AI", 4, 806_400, 408., 2133., 252, 4),
            (2, "7W_CPU", 4, 960_000, 306., 2133., 252, 4),
        ]),
        ("orin-nano-4gb-super-r36", 1, vec![
            (0, "10W", 6, 1_497_600, 612., 2133., 252, 4),
            (1, "25W", 6, 1_728_000, 1020., 3199., 252, 4),
            (2, "MAXN_SUPER", 6, 0, 0., 0., 252, 4),
        ]),
        ("orin-nano-8gb-r35", 0, NANO_8.to_vec()),
        ("orin-nano-8gb-r36", 0, NANO_8.to_vec()),
        ("orin-nano-8gb-super-r36", 1, NANO_8_SUPER.to_vec()),
        ("windows-line-ends", 1, NANO_8_SUPER.to_vec()),
        ("orin-nano-8gb-super-r36.5", 1, [&NANO_8_SUPER[..], &[(3, "7W", 4, 960_000, 408., 2133., 252, 4)]].concat()),
        ("orin-nx-16gb-r35", 2, vec![
            (0, "MAXN", 8, 0, 0., 0., 240, 8),
            (1, "10W", 4, 1_190_400, 612., 2133., 252, 4),
            (2, "15W", 4, 1_651_200, 612., 0., 252, 4),
            (3, "25W", 8, 1_497_600, 408., 0., 240, 8),
        ]),
        ("orin-nx-16gb-super-r36", 4, vec![
            (0, "MAXN_SUPER", 8, 0, 0., 0., 240, 8),
            (1, "10W", 4, 1_190_400, 612., 2133., 252, 4),
            (2, "15W", 4, 1_420_800, 612., 0., 252, 4),
            (3, "25W", 8, 1_497_600, 408., 0., 240, 8),
            (4, "40W", 8, 1_497_600, 1173., 0., 240, 8),
        ]),
        ("orin-nx-8gb-r35", 2, vec![
            (0, "MAXN", 6, 0, 0., 0., 240, 8),
            (1, "10W", 4, 1_190_400, 612., 2133., 252, 4),
            (2, "15W", 4, 1_651_200, 612., 0., 252, 4),
            (3, "20W", 6, 1_497_600, 408., 0., 240, 8),
        ]),
        ("orin-nx-8gb-super-r36", 4, vec![
            (0, "MAXN_SUPER", 6, 0, 0., 0., 240, 8),
            (1, "10W", 4, 1_190_400, 612., 2133., 252, 4),
            (2, "15W", 4, 1_420_800, 612., 0., 252, 4),
            (3, "20W", 6, 1_497_600, 408., 0., 240, 8),
            (4, "40W", 6, 1_984_000, 1173., 0., 240, 8),
        ]),
        ("agx-orin-32gb-r35", 2, vec![
            (0, "MAXN", 8, 0, 0., 0., 128, 14),
            (1, "MODE_15W", 4, 1_113_600, 408., 2133., 248, 6),
            (2, "MODE_30W", 8, 1_728_000, 612., 0., 240, 8),
            (3, "MODE_40W", 8, 1_497_600, 816., 0., 128, 14),
        ]),
        ("agx-orin-64gb-r35", 2, AGX_64.to_vec()),
        ("agx-orin-64gb-r36", 2, AGX_64.to_vec()),
        ("agx-orin-64gb-r34", 2, vec![
            (0, "MAXN", 12, 0, 0., 0., 0, 16),
            (1, "MODE_15W", 4, 1_113_600, 420.75, 0., 248, 6),
            (2, "MODE_30W", 8, 1_728_000, 624.75, 0., 240, 8),
            (3, "MODE_50W", 12, 1_497_600, 828.75, 0., 0, 16),
        ]),
        ("xavier-nx-r32", 5, XAVIER_NX.to_vec()),
        ("xavier-nx-r35", 5, XAVIER_NX.to_vec()),
        ("agx-xavier-r32", 7, vec![
            (0, "MAXN", 8, 0, 0., 0., 0, 8),
            (1, "MODE_10W", 2, 0, 520., 1065.6, 5, 4),
            (2, "MODE_15W", 4, 0, 670., 1331.2, 0, 8),
            (3, "MODE_30W_ALL", 8, 0, 900., 1600., 0, 8),
            (4, "MODE_30W_6CORE", 6, 0, 900., 1600., 0, 8),
            (5, "MODE_30W_4CORE", 4, 0, 900., 1600., 0, 8),
            (6, "MODE_30W_2CORE", 2, 0, 900., 1600., 0, 8),
            (7, "MODE_15W_DESKTOP", 4, 0, 670., 1331.2, 0, 8),
        ]),
        // Six cores, of which the file lists five.
        ("tx2-r32", 3, vec![
            (0, "MAXN", 6, 0, 0., 0., NONE, NONE),
            (1, "MAXQ", 4, 1_200_000, 850., 1331.2, NONE, NONE),
            (2, "MAXP_CORE_ALL", 6, 1_400_000, 1122., 1600., NONE, NONE),
            (3, "MAXP_CORE_ARM", 4, 2_000_000, 1122., 1600., NONE, NONE),
            (4, "MAXP_CORE_DENVER", 2, 2_035_200, 1122., 1600., NONE, NONE),
        ]),
        ("agx-thor-t5000-r38", 1, vec![
            (0, "MAXN", 14, 0, 0., 0., NONE, NONE),
            (1, "120W", 14, 2_601_000, 1386., 4266., NONE, NONE),
            (2, "90W", 14, 2_601_000, 1530., 4266., NONE, NONE),
            (3, "70W", 12, 1_998_000, 1530., 4266., NONE, NONE),
        ]),
        ("agx-thor-t4000-r38", 1, vec![
            (0, "MAXN", 12, 0, 0., 0., NONE, NONE),
            (1, "70W", 12, 0, 1530., 4266., NONE, NONE),
        ]),
        ("custom-names-and-gaps", 12, [&NANO_8_SUPER[..], &[
            (12, "quiet-9.5W!", 4, 1_113_600, 306., 2133., 252, 4),
            (40, "Büro_Modus", 6, 1_497_600, 714., 3199., 240, 8),
            (255, "a=b>c", 2, 729_600, 306., 2133., 252, 4),
            (1000, "my mode", 6, 0, 510., 0., 240, 8),
        ]].concat()),
    ]
}

#[test]
fn every_file_is_read_as_its_table_says() {
    let number = |value: u32| (value != NONE).then_some(value);
    let clock = |value: f64| (value > 0.0).then_some(value);
    for (name, default, rows) in tables() {
        let modes = parse(&text(name));
        assert_eq!(modes.warnings, [], "{name}");
        assert_eq!(modes.default, Some(default), "{name}");
        assert_eq!(modes.modes.len(), rows.len(), "{name}");
        for (mode, row) in modes.modes.iter().zip(rows) {
            let (id, called, cores, cpu, gpu, memory, mask, sm) = row;
            assert_eq!((mode.id, mode.name.as_str()), (id, called), "{name}");
            assert_eq!(mode.cores_online, Some(cores), "{name} {called}");
            assert_eq!(mode.cpu_max.map(|c| c.get() / 1e3), clock(cpu.into()), "{name} {called}");
            assert_eq!(mode.gpu_max.map(|c| c.get() / 1e6), clock(gpu), "{name} {called}");
            assert_eq!(mode.memory_max.map(|c| c.get() / 1e6), clock(memory), "{name} {called}");
            assert_eq!((mode.tpc_mask, mode.sm_online), (number(mask), number(sm)), "{name} {called}");
            assert_eq!(mode.knob, Knob::Nvpmodel);
            assert_eq!(modes.find(called), Some(mode), "{name}: found by its name");
        }
    }
}

#[test]
fn every_file_of_the_directory_is_in_a_test() {
    let damaged = ["damaged-lines", "damaged-no-default", "damaged-no-params", "fabricated-format"];
    let mut expected: Vec<_> = tables().into_iter().map(|(name, ..)| name).chain(damaged).collect();
    expected.sort_unstable();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvpmodel");
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn every_mode_of_a_whole_file_says_what_it_writes_and_where() {
    for (name, _, rows) in tables() {
        let modes = parse(&text(name));
        for mode in &modes.modes {
            assert!(mode.settings.iter().all(|setting| !setting.paths.is_empty()), "{name} {}", mode.name);
            let writes = expected_writes(mode, |_| true);
            assert_eq!(writes.len(), mode.settings.len(), "{name}");
            assert!(writes.iter().all(|(path, _)| path.starts_with('/')), "{name}");
        }
        let gates = modes.modes.iter().all(|mode| gating_settings(mode).count() > 0);
        assert_eq!(gates, name != "tx2-r32", "{name}: {} modes", rows.len());
    }
}

/// The lines that are warned about, and a part of what is said; 0 is the file as a whole.
fn warned(modes: &PowerModes) -> Vec<(usize, &str)> {
    modes.warnings.iter().map(|w| (w.line.unwrap_or(0), w.message.as_str())).collect()
}

#[test]
fn damaged_lines_are_named_and_the_rest_is_kept() {
    let text = text("damaged-lines");
    let line = |wanted: &str| 1 + text.lines().position(|line| line == wanted).expect(wanted);
    let modes = parse(&text);
    let expected = [
        (line("<PARAM TYPE=CLOCK NAME=EMC"), "without >"),
        (line("GPU MAX_FREQ six hundred"), "hundred after the value"),
        (line("CPU_A78_9 MAX_FREQ 1344000"), "no PARAM CPU_A78_9"),
        (line("EMC MAX_FREQ -3199000000"), "expected a clock in Hz"),
        (line("< POWER_MODEL ID=1 NAME=AGAIN >"), "has ID=1 like 25W"),
        (line("< PM_CONFIG DEFAULT=7 >"), "DEFAULT=7 is no mode"),
    ];
    // The line with a second value is warned about twice: neither of the two is a clock.
    let found: Vec<_> =
        warned(&modes).into_iter().filter(|(_, what)| !what.contains("whole number")).collect();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((line, said), (expected, part)) in found.into_iter().zip(expected) {
        assert!(line == expected && said.contains(part), "line {line}: {said}; expected {expected}: {part}");
    }
    let names: Vec<_> = modes.modes.iter().map(|mode| (mode.id, mode.name.as_str())).collect();
    assert_eq!(names, [(0, "15W"), (1, "25W"), (1, "AGAIN")]);
    let caps = |id| modes.by_id(id).map(|mode| (mode.gpu_max.is_some(), mode.memory_max.is_some())).unwrap();
    assert_eq!((caps(0), caps(1)), ((false, true), (true, false)));
    assert_eq!(modes.by_id(1).and_then(|mode| mode.sm_online), Some(8));
}

#[test]
fn what_is_cut_off_undeclared_or_invented_is_said() {
    let modes = parse(&text("damaged-no-default"));
    assert_eq!((modes.default, modes.modes.len()), (None, 3));
    assert!(warned(&modes).iter().any(|(line, what)| *line == 0 && what.contains("PM_CONFIG")), "{modes:?}");

    let modes = parse(&text("damaged-no-params"));
    let mode = modes.by_id(0).unwrap();
    // What the file says stays visible, but nothing of it can be written.
    assert_eq!((mode.cores_online, mode.gpu_max), (Some(2), Some(Hertz(612e6))));
    assert_eq!((mode.sm_online, expected_writes(mode, |_| true).len()), (None, 0));
    assert!(warned(&modes)[0].1.contains("before any section"), "{modes:?}");

    let modes = parse(&text("fabricated-format"));
    let mode = modes.by_id(0).unwrap();
    assert_eq!((mode.gpu_max, mode.cores_online), (None, None), "what is below the invented end is nobody's");
    assert!(warned(&modes).iter().any(|(_, what)| what.contains("/POWER_MODEL")), "{modes:?}");
}

fn ctl(args: &[&str], stdin: Stdio) -> Output {
    Command::new(crate::programs::rooflinectl())
        .args(["mode", "list", "--conf"])
        .args(args)
        .env("ROOFLINED_SOCKET", "/nonexistent")
        .env("LANG", "C.UTF-8")
        .stdin(stdin)
        .output()
        .unwrap()
}

fn listed(name: &str) -> Value {
    let output = ctl(&[path(name).to_str().unwrap(), "-o", "json"], Stdio::null());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_list_of_a_file_has_the_documented_shape_without_a_daemon() {
    let list = listed("orin-nano-8gb-super-r36");
    let expected = serde_json::json!({
        "id": 0, "name": "15W", "cores_online": 6, "cpu_min_hz": 729_600_000, "cpu_max_hz": 1_497_600_000_u64,
        "gpu_min_hz": null, "gpu_max_hz": 612_000_000, "emc_max_hz": 2_133_000_000_u64, "other_clocks": [],
        "tpc_mask": 240, "sm_online": 8, "reboot_required": null
    });
    assert_eq!(
        (&list["default"], &list["modes"][0], &list["warnings"]),
        (&1.into(), &expected, &serde_json::json!([]))
    );
    let open = &list["modes"][2];
    for key in ["cpu_max_hz", "gpu_max_hz", "emc_max_hz"] {
        assert_eq!(open.get(key), Some(&Value::Null), "{key}");
    }
    // What the file bounds beside CPUs, GPU and memory is there by name; -1 is no cap.
    let engines = &listed("agx-orin-64gb-r36")["modes"][0]["other_clocks"];
    let uncapped = |name: &str| serde_json::json!({"name": name, "min_hz": null, "max_hz": null});
    assert_eq!(*engines, Value::Array(["DLA0_CORE", "DLA0_FALCON", "VIC"].map(uncapped).into()));
    let warning = &listed("damaged-no-params")["warnings"][0];
    assert_eq!(warning["line"], 3);
    assert!(warning["message"].as_str().unwrap().contains("GPU MAX_FREQ 1020000000"));
}

#[test]
fn people_get_a_table_with_all_digits_and_the_warnings() {
    let output = ctl(&[path("agx-orin-64gb-r34").to_str().unwrap()], Stdio::null());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("MODE_30W") && said.contains("624.75") && said.contains("default"), "{said}");
    let output = ctl(&["-"], std::fs::File::open(path("damaged-lines")).unwrap().into());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("standard input:") && said.contains("no PARAM CPU_A78_9"), "{said}");
}

#[test]
fn a_file_that_cannot_be_a_list_of_modes_ends_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let fifo = dir.path().join("fifo").to_str().unwrap().to_owned();
    rustix::fs::mkfifoat(rustix::fs::CWD, fifo.as_str(), rustix::fs::Mode::from(0o600)).unwrap();
    let binary = [&b"\x7fELF\x02\x01\x01"[..], &[0; 64], &[0xff; 64]].concat();
    for (path, said) in [
        ("/nonexistent/nvpmodel.conf".to_owned(), "there is no such file"),
        (dir.path().to_str().unwrap().to_owned(), "not a regular file"),
        (fifo, "not a regular file"),
        ("/dev/zero".to_owned(), "not a regular file"),
        (file("elf", &binary), "is binary"),
        (file("huge", &vec![b'#'; (4 << 20) + 1]), "more than 4 MiB"),
    ] {
        let start = Instant::now();
        let output = ctl(&[&path, "-o", "json"], Stdio::null());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{path}: {errors}");
        assert!(errors.starts_with("error: ") && errors.contains(said), "{path}: {errors}");
        assert!(errors.contains("hint: "), "{path}: {errors}");
        assert!(start.elapsed() < Duration::from_secs(5), "{path}");
    }
    // Text that describes no mode is a list of none, and says so.
    let output = ctl(&[&file("empty", b""), "-o", "json"], Stdio::null());
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&list["default"], list["modes"].as_array().unwrap().len()), (&Value::Null, 0));
    assert!(list["warnings"].to_string().contains("no POWER_MODEL"));
}

#[test]
fn megabytes_of_anything_are_read_in_a_moment() {
    let whole = text("orin-nx-16gb-super-r36");
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut noise = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 56) as u8
    };
    let bytes: Vec<u8> = (0..1 << 20).map(|_| noise()).collect();
    for text in [
        String::from_utf8_lossy(&bytes).into_owned(),
        "<".repeat(1 << 20),
        "< PARAM TYPE=".repeat(1 << 16),
        "\n".repeat(1 << 20),
        "< POWER_MODEL ID=0 NAME=x >\n".repeat(1 << 15),
        "x ".repeat(1 << 19),
        format!("{whole}{}", "NAME=".repeat(1 << 18)),
        whole.repeat(200),
    ] {
        let start = Instant::now();
        let modes = parse(&text);
        assert!(start.elapsed() < Duration::from_secs(2), "{:?} for {:.20}", start.elapsed(), text);
        assert!(modes.warnings.len() <= 101 && modes.modes.len() <= 64);
        assert!(serde_json::to_vec(&modes).unwrap().len() < 1 << 20);
    }
}

proptest! {
    /// Whatever a line of a good file turns into, nothing panics, numbers stay numbers, and each mode is there once.
    #[test]
    fn no_damage_to_a_file_breaks_the_reader(
        at in any::<prop::sample::Index>(),
        length in 0usize..80,
        noise in any::<Vec<u8>>(),
    ) {
        let whole = text("xavier-nx-r35").into_bytes();
        let start = at.index(whole.len());
        let end = (start + length).min(whole.len());
        let damaged = [&whole[..start], &noise, &whole[end..]].concat();
        let modes = parse(&String::from_utf8_lossy(&damaged));
        let mut ids: Vec<_> = modes.modes.iter().map(|mode| mode.id).collect();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), modes.modes.len());
        // One hole of 80 bytes reaches over no more than two modes.
        prop_assert!(modes.modes.len() >= 7);
        for mode in &modes.modes {
            for clock in [mode.cpu_max, mode.gpu_max, mode.memory_max].into_iter().flatten() {
                prop_assert!((1e6..=20e9).contains(&clock.get()));
            }
            prop_assert!(mode.sm_online.is_none_or(|sm| (2..=16).contains(&sm)));
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC*") {
        let modes = parse(&text);
        prop_assert!(modes.warnings.len() <= 101);
    }
}
