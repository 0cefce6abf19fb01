//! What a switch comes to, with a tool that works and with one that does not.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::boards::{Board, agx, agx_jp7, nano, thor};
use super::harness::{Tree, set_mode};

const GPU: &str = "/sys/devices/platform/17000000.gpu/devfreq_dev/max_freq";

/// Files and what nvpmodel must write into them, in order.
type Writes = Vec<(&'static str, &'static str)>;

/// Boards, each with a mode and what takes it there.
fn golden() -> Vec<(&'static str, Board, u32, &'static str, Writes)> {
    let nano_writes = |cpu, gpu, emc| {
        vec![
            ("/sys/devices/system/cpu/cpu0/online", "1"),
            ("/sys/devices/system/cpu/cpu4/online", "1"),
            ("/sys/devices/system/cpu/cpu5/online", "1"),
            ("/sys/devices/platform/gpu.0/tpc_pg_mask", "240"),
            ("/sys/devices/platform/gpu.0/power/control", "on"),
            ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_min_freq", "729600"),
            ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", cpu),
            ("/sys/devices/platform/17000000.gpu/devfreq_dev/min_freq", "0"),
            ("/sys/devices/platform/17000000.gpu/devfreq_dev/max_freq", gpu),
            ("/sys/devices/platform/gpu.0/power/control", "auto"),
            ("/sys/kernel/nvpmodel_clk_cap/emc", emc),
        ]
    };
    vec![
        ("nano", nano(), 1, "25W", nano_writes("1344000", "918000000", "3199000000")),
        ("nano", nano(), 2, "MAXN_SUPER", nano_writes("-1", "-1", "-1")),
        (
            "agx",
            agx(),
            3,
            "MODE_50W",
            vec![
                ("/sys/devices/system/cpu/cpu8/online", "1"),
                ("/sys/devices/gpu.0/tpc_pg_mask", "0"),
                ("/sys/devices/17000000.ga10b/devfreq/17000000.ga10b/max_freq", "816000000"),
                ("/sys/kernel/nvpmodel_emc_cap/emc_iso_cap", "0"),
            ],
        ),
        (
            "agx, JetPack 7",
            agx_jp7(),
            1,
            "MODE_20W",
            vec![
                ("/sys/devices/platform/gpu.0/tpc_pg_mask", "0"),
                ("/sys/devices/platform/17000000.gpu/devfreq_dev/max_freq", "408000000"),
                ("/sys/kernel/nvpmodel_clk_cap/emc", "2133000000"),
            ],
        ),
        (
            "thor",
            thor(),
            0,
            "MAXN",
            vec![
                ("/opt/nvidia/l4t-gpusetup/gpu_pg_mask", "512"),
                ("/sys/class/devfreq/gpu-gpc-0/max_freq", "-1"),
                ("/sys/class/devfreq/bwmgr/max_freq", "4266000000"),
            ],
        ),
    ]
}

#[test]
fn a_dry_run_tells_exactly_what_the_tool_then_writes() {
    for (board, described, id, name, writes) in golden() {
        let tree = Tree::new(&described);
        let mut actuator = tree.actuator();
        let before = tree.settings();
        let dry = actuator.line.ask(&set_mode(id, name, true))["report"].clone();
        assert_eq!(dry["outcome"], "applied", "{board} {name}: {dry}");
        let expected: Vec<Value> = writes.iter().map(|(path, value)| json!([path, value])).collect();
        assert_eq!(dry["writes"], Value::Array(expected), "{board} {name}");
        assert_eq!((tree.settings(), tree.journal()), (before, None), "{board} {name}: nothing is changed");
        assert!(tree.lines("/calls").is_empty(), "{board} {name}: nothing is run");

        let report = actuator.line.set(id, name);
        assert_eq!(report["outcome"], "applied", "{board} {name}: {report}");
        assert_eq!(report["reached"]["mode"], json!({"id": id, "name": name}));
        let written: Vec<String> = writes.iter().map(|(path, value)| format!("{path} {value}")).collect();
        assert_eq!(tree.lines("/writes"), written, "{board} {name}");
        assert_eq!(tree.lines("/calls"), [format!("-m {id}")]);
    }
}

#[test]
fn a_settled_mode_stays_and_an_unsettled_one_goes_with_its_client() {
    let tree = Tree::new(&nano());
    let before = tree.settings();
    let mut actuator = tree.actuator();
    let report = actuator.line.set(1, "25W");
    assert_eq!(report["before"]["name"], "15W", "{report}");
    assert_eq!(report["reached"]["point"]["gpu_clock"], 918e6);
    assert_eq!(report["reached"]["point"]["cores_online"], 3);
    let status = actuator.line.status();
    assert_eq!(status["journal"]["original"]["name"], "15W", "{status}");
    assert_eq!(status["journal"]["phase"], "applied");
    assert!(actuator.close().success());
    assert_eq!((tree.settings(), tree.journal()), (before, None), "it was undone");

    let mut actuator = tree.actuator();
    actuator.line.set(1, "25W");
    assert_eq!(actuator.line.ask(&json!({"verb": "settle"}))["answer"], "settled");
    assert_eq!(tree.journal(), None);
    actuator.close();
    assert_eq!(tree.read(GPU), "918000000\n");
    assert_eq!(tree.read("/var/lib/nvpmodel/status"), "pmode:0001\n");
}

#[test]
fn several_switches_have_one_way_back() {
    let tree = Tree::new(&nano());
    let before = tree.settings();
    let mut actuator = tree.actuator();
    actuator.line.set(1, "25W");
    actuator.line.set(2, "MAXN_SUPER");
    let status = actuator.line.status();
    assert_eq!(
        (&status["journal"]["original"]["id"], &status["journal"]["target"]["id"]),
        (&json!(0), &json!(2))
    );
    let back = actuator.line.ask(&json!({"verb": "restore"}));
    assert_eq!(back["report"]["outcome"], "applied", "{back}");
    assert_eq!((tree.settings(), tree.journal()), (before, None));
    assert_eq!(actuator.line.ask(&json!({"verb": "restore"}))["answer"], "failed");
    // A switch back to the original leaves nothing to settle.
    actuator.line.set(1, "25W");
    actuator.line.set(0, "15W");
    assert_eq!(tree.journal(), None);
}

#[test]
fn a_mode_that_gates_other_units_is_not_even_tried() {
    for (described, id, name) in [(nano(), 3, "7W"), (agx(), 2, "MODE_30W"), (thor(), 2, "90W")] {
        let tree = Tree::new(&described);
        let mut actuator = tree.actuator();
        let report = actuator.line.set(id, name);
        assert_eq!(report["outcome"], "reboot_required", "{report}");
        assert!(report["hint"].as_str().unwrap().contains("by hand"), "{report}");
        assert!(tree.lines("/calls").is_empty());
        assert_eq!(tree.journal(), None);
    }
}

#[test]
fn the_reboot_question_is_never_answered() {
    let tree = Tree::new(&nano());
    let before = tree.settings();
    tree.behave("question");
    let mut actuator = tree.actuator();
    let report = actuator.line.set(1, "25W");
    assert_eq!(report["outcome"], "reboot_required", "{report}");
    assert_eq!(tree.lines("/calls"), ["-m 1"], "asked once, without --force, and never answered with yes");
    assert_eq!((tree.settings(), tree.journal()), (before.clone(), None));
    // Asked in the middle of its writes, what was written is taken back.
    tree.behave("late_question");
    let report = actuator.line.set(1, "25W");
    assert_eq!(report["outcome"], "reboot_required", "{report}");
    assert_eq!((tree.settings(), tree.journal()), (before, None), "{report}");
}

#[test]
fn what_the_tool_says_is_no_evidence() {
    for behaviour in ["nothing", "status_only", "fail", "garbage"] {
        let tree = Tree::new(&nano());
        let before = tree.settings();
        tree.behave(behaviour);
        let mut actuator = tree.actuator();
        let report = actuator.line.set(1, "25W");
        assert_eq!(report["outcome"], "not_applied", "{behaviour}: {report}");
        assert_eq!(report["reached"]["mode"]["name"], "15W", "{behaviour}: {report}");
        let differences = report["reached"]["differences"].as_array().unwrap();
        assert!(
            differences.iter().any(|d| d["path"] == GPU && d["found"] == "612000000"),
            "{behaviour}: {report}"
        );
        assert_eq!((tree.settings(), tree.journal()), (before, None), "{behaviour}");
    }
}

#[test]
fn a_tool_that_does_not_end_is_killed_with_all_that_it_started() {
    let try_with = |behaviour: &str| {
        let mut tree = Tree::new(&nano());
        tree.time_limit = "5";
        tree.behave(behaviour);
        let mut actuator = tree.actuator();
        let began = Instant::now();
        let report = actuator.line.set(1, "25W");
        assert_eq!(report["outcome"], "not_applied", "{behaviour}: {report}");
        assert!(report["message"].as_str().unwrap().contains("was killed"), "{report}");
        assert!(began.elapsed() < Duration::from_secs(60));
        assert_eq!(tree.journal(), None);
        if behaviour == "hang" {
            let sleeper = tree.read("/sleeper");
            assert!(sleeper.trim().parse::<u32>().is_ok(), "it had started one: {sleeper:?}");
            assert!(!lives(&sleeper), "its child is killed too");
        }
    };
    std::thread::scope(|scope| {
        for behaviour in ["hang", "endless"] {
            scope.spawn(move || try_with(behaviour));
        }
    });
}

/// True for a process that is neither gone nor dead.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn a_tool_that_leaves_a_process_behind_delays_nothing() {
    let tree = Tree::new(&nano());
    tree.behave("lingers");
    let mut actuator = tree.actuator();
    let report = actuator.line.set(1, "25W");
    assert_eq!(report["outcome"], "applied", "{report}");
    assert!(report["took"].as_f64().unwrap() < 30.0, "{report}");
    assert!(!lives(&tree.read("/sleeper")));
}

#[test]
fn half_a_switch_is_undone_by_the_tool_or_without_it() {
    for (behaviour, by) in [("half_once", "15W was restored"), ("half", "by writing its files")] {
        let tree = Tree::new(&nano());
        // 25W changes the CPU's clock before the tool stops, when it is the third write that differs.
        tree.write("/sys/devices/system/cpu/cpu5/online", "0\n");
        let conf = tree.read("/etc/nvpmodel/nvpmodel_board.conf").replacen(
            "CPU_ONLINE CORE_5 1",
            "CPU_ONLINE CORE_5 0",
            1,
        );
        tree.write("/etc/nvpmodel/nvpmodel_board.conf", &conf);
        let before = tree.settings();
        tree.behave(behaviour);
        let mut actuator = tree.actuator();
        let report = actuator.line.set(1, "25W");
        assert_eq!(report["outcome"], "not_applied", "{report}");
        assert_eq!(report["reached"]["mode"]["name"], "15W", "{report}");
        assert!(report["message"].as_str().unwrap().contains(by), "{report}");
        assert_eq!((tree.settings(), tree.journal()), (before, None), "{behaviour}");
    }
}

#[test]
fn a_missing_or_broken_tool_is_refused_before_anything_is_journalled() {
    let tree = Tree::new(&nano());
    let mut actuator = tree.actuator();
    tree.mode("/usr/sbin/nvpmodel", 0o644);
    let report = actuator.line.set(1, "25W");
    assert_eq!(report["outcome"], "refused", "{report}");
    assert!(report["hint"].as_str().unwrap().contains("reinstall"), "{report}");
    tree.mode("/usr/sbin/nvpmodel", 0o755);
    tree.write("/usr/sbin/nvpmodel", "#!/nonexistent/interpreter\n");
    let report = actuator.line.set(1, "25W");
    // Under an emulator the program starts before its interpreter is missed; nothing is changed either way.
    assert!(["refused", "not_applied"].contains(&report["outcome"].as_str().unwrap()), "{report}");
    assert_eq!(tree.journal(), None);
    fs::remove_file(tree.path("/usr/sbin/nvpmodel")).unwrap();
    let report = actuator.line.set(1, "25W");
    assert_eq!(report["outcome"], "refused", "{report}");
    assert!(report["message"].as_str().unwrap().contains("there is no"), "{report}");
    assert_eq!(tree.journal(), None);
    // The other usual place does as well.
    tree.write("/usr/bin/nvpmodel", include_str!("nvpmodel.sh"));
    tree.mode("/usr/bin/nvpmodel", 0o755);
    assert_eq!(actuator.line.set(1, "25W")["outcome"], "applied");
}

#[test]
fn a_mode_that_crashes_the_next_boot_is_never_left_for_it() {
    let tree = Tree::new(&agx_jp7());
    let mut actuator = tree.actuator();
    let report = actuator.line.set(1, "MODE_20W");
    assert_eq!(report["outcome"], "applied", "{report}");
    assert!(report["message"].as_str().unwrap().contains("the next boot sets MAXN instead"), "{report}");
    assert_eq!(tree.read("/var/lib/nvpmodel/status"), "pmode:0000\n");
    assert_eq!(actuator.line.ask(&json!({"verb": "settle"}))["answer"], "settled");
    assert_eq!(tree.read("/var/lib/nvpmodel/status"), "pmode:0000\n");
    assert_eq!(actuator.line.status()["now"]["mode"]["name"], "MODE_20W");
}

#[test]
fn a_clock_that_is_rounded_counts_as_entered() {
    let tree = Tree::new(&agx());
    let mut actuator = tree.actuator();
    let report = actuator.line.set(3, "MODE_50W");
    assert_eq!(report["outcome"], "applied", "{report}");
    assert_eq!(
        report["reached"]["point"]["gpu_clock"], 726.75e6,
        "816 MHz is between two clocks of the table"
    );
}

#[test]
fn what_somebody_else_entered_since_is_left() {
    let tree = Tree::new(&nano());
    let mut actuator = tree.actuator();
    actuator.line.set(1, "25W");
    let by_hand = std::process::Command::new(tree.path("/usr/sbin/nvpmodel"))
        .args(["-m", "2"])
        .env("ROOFLINED_ROOT", tree.path("/"))
        .status();
    assert!(by_hand.unwrap().success());
    actuator.close();
    assert_eq!(tree.read(GPU), "1020000000\n", "{}", tree.read("/log"));
    assert_eq!(tree.journal(), None);
}

#[test]
fn a_board_in_no_mode_goes_back_to_the_one_that_nvpmodel_believes_in() {
    let tree = Tree::new(&nano());
    tree.write(GPU, "510000000\n");
    let mut actuator = tree.actuator();
    assert_eq!(actuator.line.status()["now"]["mode"], Value::Null);
    let report = actuator.line.set(1, "25W");
    assert_eq!((&report["outcome"], &report["before"]), (&json!("applied"), &Value::Null), "{report}");
    actuator.close();
    assert_eq!(tree.read(GPU), "612000000\n");
    // Without even that there is no way back, so nothing is begun.
    tree.write(GPU, "510000000\n");
    fs::remove_file(tree.path("/var/lib/nvpmodel/status")).unwrap();
    let conf = tree.read("/etc/nvpmodel/nvpmodel_board.conf").replace("< PM_CONFIG DEFAULT=1 >", "");
    tree.write("/etc/nvpmodel/nvpmodel_board.conf", &conf);
    let mut actuator = tree.actuator();
    let report = actuator.line.set(1, "25W");
    assert_eq!(report["outcome"], "refused", "{report}");
    assert!(report["message"].as_str().unwrap().contains("no way back"), "{report}");
}

#[test]
fn damaged_files_are_an_answer_and_no_crash() {
    for (path, text) in [
        ("/etc/nvpmodel/nvpmodel_board.conf", "\u{0}\u{1}garbage"),
        ("/etc/nvpmodel/nvpmodel_board.conf", ""),
        ("/var/lib/nvpmodel/status", "pmode:99999999999999"),
        (GPU, ""),
        (GPU, "-9999999999999999999999"),
        ("/sys/devices/platform/17000000.gpu/devfreq_dev/available_frequencies", "x y z -1"),
        ("/sys/devices/system/cpu/cpu0/online", "maybe"),
    ] {
        let tree = Tree::new(&nano());
        tree.write(path, text);
        let mut actuator = tree.actuator();
        let report = actuator.line.set(1, "25W");
        assert!(report["outcome"].is_string() && report["message"].is_string(), "{path}: {report}");
        assert_eq!(actuator.line.status()["answer"], "status", "{path}");
        assert!(actuator.close().success(), "{path}");
        assert_eq!(tree.journal(), None, "{path}: {}", tree.read("/log"));
    }
}

#[test]
fn a_fifo_in_the_place_of_a_file_hangs_nothing() {
    for path in [GPU, "/var/lib/nvpmodel/status", "/etc/nvpmodel/nvpmodel_board.conf"] {
        let tree = Tree::new(&nano());
        fs::remove_file(tree.path(path)).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(tree.path(path)).status().unwrap().success());
        tree.behave("nothing");
        let mut actuator = tree.actuator();
        let report = actuator.line.set(1, "25W");
        assert_ne!(report["outcome"], "applied", "{path}: {report}");
        assert!(actuator.close().success());
    }
}
