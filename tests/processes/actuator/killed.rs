//! kill -9 of the helper, of the tool and of the client at every step of a switch: in the end the board is wholly in the
//! original mode or wholly in the one asked for, and the journal knows which.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::boards::nano;
use super::harness::{Tree, eventually, kill, set_mode};

/// The writes of one switch of this board.
const WRITES: usize = 11;

type Settings = BTreeMap<String, String>;

/// The board in its first mode and in 25W.
fn ends() -> (Settings, Settings) {
    let tree = Tree::new(&nano());
    let original = tree.settings();
    let mut actuator = tree.actuator();
    assert_eq!(actuator.line.set(1, "25W")["outcome"], "applied");
    let target = tree.settings();
    actuator.close();
    assert_ne!(original, target);
    (original, target)
}

/// Stops the tool before its Nth write of a mode, from its next run on.
fn hold(tree: &Tree, at: &str) {
    let _ = fs::remove_file(tree.path("/held"));
    tree.write("/hold", at);
}

fn held(tree: &Tree) -> u32 {
    eventually("the tool to get there", || tree.read("/held").trim().parse().ok())
}

fn let_go(tree: &Tree) {
    fs::remove_file(tree.path("/hold")).unwrap();
}

/// Starts the helper once more, hears what it says of the journal, leaves, and looks at the board.
fn judge(tree: &Tree, point: &str, (original, target): &(Settings, Settings)) {
    let mut actuator = tree.actuator();
    let status = actuator.line.status();
    let (now, found) = (status["now"]["mode"]["name"].clone(), tree.settings());
    let name = if found == *original {
        "15W"
    } else if found == *target {
        "25W"
    } else {
        panic!("{point}: the board is in neither mode: {status}\n{found:#?}\n{}", tree.read("/log"));
    };
    assert_eq!(now, name, "{point}: {status}");
    match &status["journal"] {
        Value::Null => assert_eq!(name, "15W", "{point}: an unsettled mode has its journal: {status}"),
        journal => {
            assert_eq!(
                (&journal["phase"], &journal["target"]["name"]),
                (&"applied".into(), &"25W".into()),
                "{point}"
            );
            assert_eq!(name, "25W", "{point}: {status}");
            assert!(status["recovered"].as_str().unwrap().starts_with("adopted"), "{point}: {status}");
        }
    }
    assert!(actuator.close().success(), "{point}");
    assert_eq!(tree.settings(), *original, "{point}: what is not settled goes with its client");
    assert_eq!(tree.journal(), None, "{point}");
}

/// Every point on boards of its own, a few at a time.
fn at_each(points: Vec<String>, trial: impl Fn(&str) + Sync) {
    let count = points.len();
    let queue = Mutex::new(points);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(point) = queue.lock().unwrap().pop() else { return };
                    trial(&point);
                }
            });
        }
    });
    println!("killed at {count} points: wrong end states 0");
}

fn writes_of(id: u32) -> Vec<String> {
    (1..=WRITES).map(|n| format!("{id}:{n}")).collect()
}

#[test]
fn the_role_killed_while_the_tool_writes() {
    let ends = ends();
    at_each(writes_of(1), |point| {
        let tree = Tree::new(&nano());
        hold(&tree, point);
        let mut actuator = tree.actuator();
        actuator.line.order(&set_mode(1, "25W", false));
        held(&tree);
        assert_eq!(
            tree.journal().unwrap()["phase"],
            "started",
            "the journal is there before the first write"
        );
        kill(actuator.child.id());
        actuator.child.wait().unwrap();
        // The tool is an orphan now, and writes on.
        let_go(&tree);
        judge(&tree, point, &ends);
    });
}

#[test]
fn the_role_and_the_tool_killed_together() {
    let ends = ends();
    at_each(writes_of(1), |point| {
        let tree = Tree::new(&nano());
        hold(&tree, point);
        let mut actuator = tree.actuator();
        actuator.line.order(&set_mode(1, "25W", false));
        let tool = held(&tree);
        kill(actuator.child.id());
        kill(tool);
        actuator.child.wait().unwrap();
        // What is left of the tool never ends by itself, and the helper that follows has to see to it.
        tree.write("/hold.kept", "");
        let group = rustix::process::Pid::from_raw(i32::try_from(tool).unwrap()).unwrap();
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let_go(&tree);
        judge(&tree, point, &ends);
    });
}

#[test]
fn the_role_killed_while_it_goes_back() {
    let ends = ends();
    at_each(writes_of(0), |point| {
        let tree = Tree::new(&nano());
        let mut actuator = tree.actuator();
        assert_eq!(actuator.line.set(1, "25W")["outcome"], "applied");
        hold(&tree, point);
        let (mut child, line) = (actuator.child, actuator.line);
        drop(line);
        held(&tree);
        kill(child.id());
        child.wait().unwrap();
        let_go(&tree);
        judge(&tree, point, &ends);
    });
}

#[test]
fn the_role_killed_around_its_journal() {
    let ends = ends();
    // Microseconds after the order was sent: before the journal, while it is written, after it, during the read-back.
    let points = (0..24).map(|n| (n * n * 150).to_string()).chain(["journal".to_owned()]).collect();
    at_each(points, |point| {
        let tree = Tree::new(&nano());
        let mut actuator = tree.actuator();
        actuator.line.status();
        actuator.line.order(&set_mode(1, "25W", false));
        match point.parse() {
            Ok(microseconds) => {
                thread::sleep(Duration::from_micros(microseconds));
            }
            Err(_) => eventually("the journal", || tree.journal().map(drop)),
        }
        kill(actuator.child.id());
        actuator.child.wait().unwrap();
        judge(&tree, point, &ends);
    });
}

#[test]
fn the_tool_killed_while_it_writes() {
    let ends = ends();
    at_each(writes_of(1), |point| {
        let tree = Tree::new(&nano());
        hold(&tree, point);
        let mut actuator = tree.actuator();
        actuator.line.order(&set_mode(1, "25W", false));
        // Its loop of writes is a process of its own, held until the report is there: ending it is the helper's duty.
        kill(held(&tree));
        let report = actuator.line.hear().unwrap()["report"].clone();
        let_go(&tree);
        assert_eq!(report["outcome"], "not_applied", "{point}: {report}");
        assert_eq!(report["reached"]["mode"]["name"], "15W", "{point}: {report}");
        assert_eq!((tree.settings(), tree.journal()), (ends.0.clone(), None), "{point}: {report}");
        actuator.close();
        judge(&tree, point, &ends);
    });
}

#[test]
fn the_client_gone_while_the_tool_writes() {
    let ends = ends();
    at_each(writes_of(1), |point| {
        let tree = Tree::new(&nano());
        hold(&tree, point);
        let mut actuator = tree.actuator();
        actuator.line.order(&set_mode(1, "25W", false));
        held(&tree);
        let (mut child, line) = (actuator.child, actuator.line);
        drop(line);
        let_go(&tree);
        eventually("the actuator to end", || child.try_wait().unwrap());
        assert_eq!(
            (tree.settings(), tree.journal()),
            (ends.0.clone(), None),
            "{point}: {}",
            tree.read("/log")
        );
        judge(&tree, point, &ends);
    });
}

#[test]
fn a_tool_that_hangs_after_its_role_was_killed_is_killed_in_the_end() {
    let ends = ends();
    let mut tree = Tree::new(&nano());
    hold(&tree, "1:9");
    let mut actuator = tree.actuator();
    actuator.line.order(&set_mode(1, "25W", false));
    held(&tree);
    kill(actuator.child.id());
    actuator.child.wait().unwrap();
    // It stays held: nobody lets go.
    tree.time_limit = "4";
    judge(&tree, "1:9, for ever", &ends);
    assert!(tree.read("/log").contains("killed"), "{}", tree.read("/log"));
}

#[test]
fn a_switch_of_another_boot_is_undone() {
    let ends = ends();
    let tree = Tree::new(&nano());
    tree.write("/proc/sys/kernel/random/boot_id", "first\n");
    let mut actuator = tree.actuator();
    actuator.line.set(1, "25W");
    kill(actuator.child.id());
    actuator.child.wait().unwrap();
    assert_eq!(tree.settings(), ends.1);
    tree.write("/proc/sys/kernel/random/boot_id", "second\n");
    let mut actuator = tree.actuator();
    let status = actuator.line.status();
    assert!(status["recovered"].as_str().unwrap().starts_with("restored"), "{status}");
    assert_eq!((tree.settings(), tree.journal()), (ends.0, None));
}

#[test]
fn recovering_undoes_even_what_was_entered_in_this_boot() {
    let ends = ends();
    let tree = Tree::new(&nano());
    let mut actuator = tree.actuator();
    actuator.line.set(1, "25W");
    kill(actuator.child.id());
    actuator.child.wait().unwrap();
    assert!(tree.command().arg("--recover").status().unwrap().success());
    assert_eq!((tree.settings(), tree.journal()), (ends.0, None));
    // Nothing to do is no failure.
    assert!(tree.command().arg("--recover").status().unwrap().success());
}

#[test]
fn what_cannot_be_restored_is_tried_a_few_times_and_told() {
    let tree = Tree::new(&nano());
    let mut actuator = tree.actuator();
    actuator.line.set(1, "25W");
    kill(actuator.child.id());
    actuator.child.wait().unwrap();
    // The mode to go back to is gone.
    let conf = tree.read("/etc/nvpmodel/nvpmodel_board.conf").replace("ID=0 NAME=15W", "ID=0 NAME=FIFTEEN");
    tree.write("/etc/nvpmodel/nvpmodel_board.conf", &conf);
    let mut actuator = tree.actuator();
    assert_eq!(actuator.line.status()["journal"]["phase"], "applied");
    actuator.close();
    let log = tree.read("/log");
    assert_eq!(log.matches("no longer among the modes").count(), 3, "{log}");
    let mut actuator = tree.actuator();
    let status = actuator.line.status();
    assert!(status["recovered"].as_str().unwrap().contains("not tried again"), "{status}");
    assert_eq!(status["journal"]["original"]["name"], "15W", "{status}");
    // Another mode can still be entered, and settled.
    assert_eq!(actuator.line.set(2, "MAXN_SUPER")["outcome"], "applied");
}

#[test]
fn a_journal_that_makes_no_sense_is_set_aside() {
    let tree = Tree::new(&nano());
    fs::create_dir_all(tree.state_dir()).unwrap();
    fs::write(tree.state_dir().join("switch.json"), "\u{0}{").unwrap();
    let mut actuator = tree.actuator();
    let status = actuator.line.status();
    assert!(status["recovered"].as_str().unwrap().contains("could not be read"), "{status}");
    assert_eq!(actuator.line.set(1, "25W")["outcome"], "applied");
}

/// The daemon on this tree, with the helper's journal where it then is.
fn daemon(tree: &Tree) -> std::process::Child {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rooflined"));
    command.arg("--root").arg(tree.path("/")).arg("--config").arg(tree.path("/rooflined.toml"));
    command.arg("--socket").arg(tree.path("/run")).arg("--state-dir").arg(tree.path("/daemon"));
    command.args(["--bus", "none", "--exit-on-stdin-close"]);
    command.env_remove("STATE_DIRECTORY").env_remove("NOTIFY_SOCKET");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    command.stderr(fs::File::options().create(true).append(true).open(tree.path("/log")).unwrap());
    command.spawn().unwrap()
}

#[test]
fn a_daemon_that_starts_has_the_switch_of_another_boot_undone() {
    let ends = ends();
    let tree = Tree::new(&nano());
    tree.write("/proc/sys/kernel/random/boot_id", "first\n");
    let mut actuator = tree.actuator();
    actuator.line.set(1, "25W");
    kill(actuator.child.id());
    actuator.child.wait().unwrap();
    fs::create_dir_all(tree.path("/daemon")).unwrap();
    fs::rename(tree.state_dir(), tree.path("/daemon/actuate")).unwrap();
    tree.write("/proc/sys/kernel/random/boot_id", "second\n");
    let mut daemon = daemon(&tree);
    eventually("the switch to be undone", || {
        (!tree.path("/daemon/actuate/switch.json").exists()).then_some(())
    });
    assert_eq!(tree.settings(), ends.0);
    drop(daemon.stdin.take());
    assert!(daemon.wait().unwrap().success(), "{}", tree.read("/log"));
    let log = tree.read("/log");
    assert!(log.contains("found a switch that was not settled"), "{log}");
}
