//! What a machine hides: a device tree, a class of devices, a whole file system. It is said to be hidden, and not to be missing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rooflined_core::board::BoardState;
use rooflined_core::units::Seconds;
use rooflined_hw::{Sampler, SysRoot};

use crate::captured::BOARDS;
use crate::machines::said;
use crate::sensors::changed;
use crate::tree;

#[test]
fn a_tegra_whose_device_tree_is_hidden_is_known_by_its_fuses() {
    const MODEL: &str = "Example Carrier with Orin NX";
    let masked = [
        ("/proc/device-tree", "gone"),
        ("/sys/devices/soc0/family", "Tegra"),
        ("/sys/devices/soc0/machine", MODEL),
    ];
    for (id, base, key) in [
        ("35", "orin-nx-16gb", "jetson-orin-nx-unlisted"),
        ("35", "agx-orin-64gb", "jetson-agx-orin-unlisted"),
        ("25", "xavier-nx", "jetson-xavier-nx-unlisted"),
        ("38", "agx-thor-t5000", "jetson-agx-thor-t5000"),
    ] {
        let files = [&masked[..], &[("/sys/devices/soc0/soc_id", id)]].concat();
        let (board, _) = changed(base, &files);
        assert_eq!(
            (board.key.as_str(), board.model.known().map(String::as_str)),
            (key, Some(MODEL)),
            "{:?}",
            board.notes
        );
        assert!(said(&board.notes, "follows from /sys/devices/soc0/soc_id"), "{:?}", board.notes);
        assert!(!said(&board.notes, "the device tree holds no"), "{:?}", board.notes);
    }
    // A chip that is not in the registry is still a Tegra, and no other machine is one.
    let files = [&masked[..], &[("/sys/devices/soc0/soc_id", "33"), ("/sys/class/devfreq", "gone")]].concat();
    let (board, _) = changed("orin-nx-16gb", &files);
    assert!(
        board.gpu.reason().unwrap().contains("this Tegra is not in the hardware registry"),
        "{:?}",
        board.gpu
    );
    let other = [("/sys/devices/soc0/family", "Freescale i.MX"), ("/sys/devices/soc0/soc_id", "35")];
    assert_eq!(changed("server-arm64", &other).0.key, "cpu");
}

#[test]
fn a_thor_without_device_tree_and_devfreq_is_known_by_nvml_and_its_gpu_is_up() {
    let masked = [
        ("/proc/device-tree", "gone"),
        ("/sys/class/devfreq", "gone"),
        ("/etc/nvpmodel.conf", "gone"),
        ("/etc/nv_boot_control.conf", "gone"),
    ];
    let root = |files: &[(&str, &str)]| {
        let (board, state) = changed("agx-thor-t5000", files);
        (board.key, board.gpu.known().is_some(), state.gpu_load.known().is_some())
    };
    assert_eq!(root(&masked), ("jetson-agx-thor-unlisted".to_owned(), true, true));
    let none = [&masked[..], &[("/rooflined/nvml", "gone")]].concat();
    assert_eq!(root(&none).0, "cpu", "nothing is left that tells");
}

#[test]
fn hidden_not_readable_and_not_there_are_three_reasons() {
    let clock =
        |files: &[(&str, &str)]| changed("laptop-x86", files).1.cpu_clocks.reason().unwrap().to_owned();
    let absent = clock(&[("/sys/devices/system/cpu/cpufreq", "gone")]);
    assert!(absent.contains("no cpufreq driver is loaded, or a hypervisor"), "{absent}");
    let engines = |board: &str, files: &[(&str, &str)]| {
        changed(board, files).1.details.engines.reason().unwrap().to_owned()
    };
    assert!(engines("laptop-x86", &[]).ends_with("its processor is an x86"));
    assert!(engines("gb10", &[]).ends_with("it has DMI tables and no device tree"));
    let hidden = engines("gb10", &[("/sys/class/dmi", "gone")]);
    assert!(
        hidden.ends_with("not known to be a Tegra: /proc/device-tree/compatible is not visible here"),
        "{hidden}"
    );
    let other =
        engines("gb10", &[("/proc/device-tree/compatible", "xunlong,orangepi-5-plus\0rockchip,rk3588")]);
    assert!(other.ends_with("/proc/device-tree/compatible names xunlong,orangepi-5-plus"), "{other}");
}

/// The reasons of all readings that are absent or have failed, wherever they are.
fn reasons(value: &serde_json::Value) -> Vec<&str> {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            let own = fields.get("reason").and_then(Value::as_str).into_iter();
            own.chain(fields.values().flat_map(reasons)).collect()
        }
        Value::Array(items) => items.iter().flat_map(reasons).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn nothing_is_called_missing_in_a_file_system_that_is_not_mounted() {
    for board in BOARDS {
        for mount in ["/sys", "/proc", "/sys/kernel/debug"] {
            let (board_found, state) = changed(board, &[(mount, "gone")]);
            let (board_found, state) = (serde_json::json!(board_found), serde_json::json!(state));
            let (of_board, of_state) = (reasons(&board_found), reasons(&state));
            let inside = if mount == "/sys/kernel/debug" {
                "no /sys/kernel/debug/".to_owned()
            } else {
                format!("{mount}/")
            };
            for reason in of_state.iter().chain(&of_board) {
                let gpu = ["not visible", "hidden", "is visible"].iter().any(|word| reason.contains(word));
                assert!(gpu || !reason.contains(&inside), "{board} without {mount}: {reason}");
            }
            let hidden = format!("{mount} is not mounted here, or hidden");
            assert!(
                mount == "/sys/kernel/debug" || of_state.contains(&hidden.as_str()),
                "{board} without {mount}"
            );
        }
    }
}

/// A directory that may not be listed is there, and what lies in it is not missing.
#[test]
fn a_closed_directory_is_said_to_be_closed() {
    tree::obey_permissions();
    let allow = |place: &Path, mode| fs::set_permissions(place, Permissions::from_mode(mode)).unwrap();
    for (dir, of) in [
        ("/sys/class/thermal", |state: &BoardState| state.temperatures.reason().map(ToOwned::to_owned)),
        ("/sys/class/hwmon", |state: &BoardState| state.rails.reason().map(ToOwned::to_owned)),
    ] as [(_, fn(&BoardState) -> Option<String>); 2]
    {
        let files = tree::unpack(&tree::nodes("server-arm64", "tree.txt"));
        let place = tree::place(files.path(), dir);
        fs::create_dir_all(&place).unwrap();
        allow(&place, 0o000);
        let root = SysRoot::new(files.path());
        let (board, discovered) = rooflined_hw::discover(&root);
        let state = Sampler::new(&root, discovered).sample(Seconds(1.0));
        allow(&place, 0o700);
        assert!(said(&board.notes, &format!("{dir} may not be listed by this user")), "{:?}", board.notes);
        let reason = of(&state).unwrap();
        assert!(reason.contains("may not be listed: permission denied"), "{reason}");
    }
}
