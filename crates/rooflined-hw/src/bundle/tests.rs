use std::fs;
use std::time::Instant;

use rustix::fs::{CWD, Mode, mkfifoat};

use super::*;

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn captured(dir: &tempfile::TempDir) -> Bundle {
    capture(&SysRoot::new(dir.path()), &BTreeMap::new(), "by a test")
}

#[test]
fn each_kind_of_content_has_its_form() {
    let dir = tree(&[
        ("/proc/device-tree/model", "Board\0"),
        ("/proc/meminfo", "MemTotal: 1 kB\nMemFree: 1 kB\n"),
        ("/proc/stat", "cpu 1 2\ncpu0 1 2\nintr 999 1 2 3\n"),
        ("/proc/loadavg", "0.1 0.2\n"),
        ("/proc/pressure/cpu", ""),
        ("/etc/os-release", "== A\n"),
        ("/sys/class/thermal/thermal_zone0/type", " C:\\{n}\n"),
    ]);
    fs::create_dir_all(dir.path().join("sys/class/hwmon/hwmon3")).unwrap();
    let bundle = captured(&dir);
    for line in [
        "# by a test\n# kernel unknown, 8 files\n== /etc",
        "\n== /proc/device-tree/model raw == Board\\x00\n",
        "\n== /proc/meminfo ==\nMemTotal: 1 kB\nMemFree: 1 kB\n==",
        "\n== /proc/stat ==\ncpu 1 2\ncpu0 1 2\n==",
        "\n== /proc/loadavg == 0.1 0.2\n",
        "\n== /proc/pressure/cpu raw == \n",
        "== /etc/os-release == == A\n",
        "\n== /sys/class/thermal/thermal_zone0/type raw == \\x20C:\\\\\\x7bn}\\x0a\n",
        "\n== /sys/class/hwmon/hwmon3 dir ==\n",
    ] {
        assert!(bundle.text.contains(line), "no {line:?} in\n{}", bundle.text);
    }
    assert_eq!(bundle.notes, [""; 0]);
}

#[test]
fn a_link_is_kept_with_the_file_it_leads_to_inside_the_root() {
    let conf = "< PARAM TYPE=FILE NAME=A >\nB /sys/own/switch\nC /etc/shadow\nD /home/x\n\
                < POWER_MODEL ID=0 NAME=X >\nA B 1\nA C 1\nA D 1\n< PM_CONFIG DEFAULT=0 >\n";
    let dir = tree(&[
        ("/etc/nvpmodel/a.conf", conf),
        ("/sys/own/switch", "1\n"),
        ("/etc/shadow", "secret\n"),
        ("/home/x", "secret\n"),
    ]);
    std::os::unix::fs::symlink("/etc/nvpmodel/a.conf", dir.path().join("etc/nvpmodel.conf")).unwrap();
    let bundle = captured(&dir);
    assert!(
        bundle.text.contains("\n== /etc/nvpmodel.conf link == /etc/nvpmodel/a.conf\n"),
        "{}",
        bundle.text
    );
    assert!(bundle.text.contains("\n== /etc/nvpmodel/a.conf ==\n< PARAM"), "{}", bundle.text);
    // What a mode sets is part of the board, but only where boards keep their switches.
    assert!(bundle.text.contains("\n== /sys/own/switch == 1\n"), "{}", bundle.text);
    assert!(!bundle.text.contains("secret"), "{}", bundle.text);
    // A ring of links, and one that leads nowhere.
    for target in ["/etc/nvpmodel.conf", "../../../nowhere"] {
        fs::remove_file(dir.path().join("etc/nvpmodel.conf")).unwrap();
        std::os::unix::fs::symlink(target, dir.path().join("etc/nvpmodel.conf")).unwrap();
        assert!(captured(&dir).text.contains(&format!("link == {target}\n")));
    }
}

#[test]
fn files_that_hang_cost_a_bounded_time_and_are_marked() {
    let dir = tree(&[("/sys/class/thermal/thermal_zone1/temp", "41000\n")]);
    for zone in [0, 2, 3] {
        let path = dir.path().join(format!("sys/class/thermal/thermal_zone{zone}"));
        fs::create_dir_all(&path).unwrap();
        mkfifoat(CWD, path.join("temp"), Mode::from(0o600)).unwrap();
    }
    let start = Instant::now();
    let bundle = captured(&dir);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(bundle.text.matches("/temp fifo ==\n").count(), 3, "{}", bundle.text);
    assert!(bundle.text.contains("thermal_zone1/temp == 41000\n"));
}

#[test]
fn answers_of_other_sources_become_files_and_no_identifier_is_told() {
    let id = "fedcba9876543210fedcba9876543210";
    let serial = "1421020048612";
    let dir = tree(&[
        ("/etc/machine-id", id),
        ("/proc/device-tree/serial-number", &format!("{serial}\0")),
        ("/proc/sys/kernel/hostname", "kitchen-board\n"),
        ("/etc/nvpmodel.conf", &format!("# kitchen-board, {serial}\n< PM_CONFIG DEFAULT=0 >\n")),
        ("/proc/cpuinfo", &format!("processor : 0\nSerial : {serial}\n")),
        ("/rooflined/nvml/0/uuid", "GPU-d51f1f69-4063-9beb-b3e9-734334ec9006\n"),
    ]);
    let answers = [("/rooflined/nvml/1/name".to_owned(), "NVIDIA GB10\n".to_owned())].into();
    let text = capture(&SysRoot::new(dir.path()), &answers, "x").text;
    assert!(text.contains("\n== /rooflined/nvml/1/name == NVIDIA GB10\n"), "{text}");
    for secret in [id, serial, "kitchen-board", "d51f1f69"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn a_huge_tree_is_cut_off_and_says_so() {
    let dir = tree(&[]);
    let line = format!("{}\n", "x".repeat(LARGEST_FILE));
    for number in 0..40 {
        let hwmon = dir.path().join(format!("sys/class/hwmon/hwmon{number}"));
        fs::create_dir_all(&hwmon).unwrap();
        fs::write(hwmon.join("name"), &line).unwrap();
    }
    let bundle = captured(&dir);
    assert!(bundle.text.len() < MOST_BYTES + (64 << 10), "{}", bundle.text.len());
    assert!(bundle.notes.iter().any(|note| note.contains("beyond the limit")), "{:?}", bundle.notes);
    assert!(bundle.notes.iter().any(|note| note.contains("goes on after")), "{:?}", bundle.notes);
}
