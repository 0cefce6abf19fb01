//! Start, ready, alive, end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::harness::{Home, get, is_emulated, missing, skip};

#[test]
fn it_says_where_it_listens_and_that_it_is_ready() {
    let home = Home::new();
    let mut daemon = home.start();
    let mut line = String::new();
    BufReader::new(daemon.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(home.query().to_str().unwrap()), "{line}");
    assert!(line.contains(home.control().to_str().unwrap()), "{line}");
    assert!(
        daemon.notifications().iter().any(|line| line.starts_with("STATUS=not calibrated")),
        "{:?}",
        daemon.notifications()
    );
    assert_eq!(get(&home.query(), "/v1/board")["key"], "cpu");
}

#[test]
fn anyone_may_query_and_only_the_owner_or_the_group_may_control() {
    let home = Home::new();
    let _daemon = home.start();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.query()), 0o666);
    assert!([0o600, 0o660].contains(&mode(home.control())), "{:o}", mode(home.control()));
}

#[test]
fn a_request_to_end_removes_the_sockets_and_is_no_failure() {
    for signal in [Signal::TERM, Signal::INT] {
        let home = Home::new();
        let mut daemon = home.start();
        assert!(home.query().exists() && home.control().exists());
        daemon.signal(signal);
        let status = daemon.wait();
        assert!(status.success(), "{status}\n{}", home.log());
        assert!(!home.query().exists() && !home.control().exists());
        assert!(
            daemon.notifications().iter().any(|line| line == "STOPPING=1"),
            "{:?}",
            daemon.notifications()
        );
    }
}

/// As during an upgrade: a client that got in just before the end is answered, and one that says nothing is not waited for.
#[test]
fn who_was_let_in_before_the_end_may_still_ask() {
    let home = Home::new();
    let mut daemon = home.start();
    let mut asking = UnixStream::connect(home.query()).unwrap();
    let _silent = UnixStream::connect(home.query()).unwrap();
    // Both are let in when a third, which comes after them, is answered.
    get(&home.query(), "/-/healthy");
    daemon.signal(Signal::TERM);
    daemon.wait_notified("STOPPING=1", 1);
    asking.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    asking.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(daemon.wait().success(), "{}", home.log());
}

#[test]
fn the_watchdog_is_fed_while_the_loop_turns() {
    let home = Home::new();
    let mut daemon = home.start_with(|command| {
        command.env("WATCHDOG_USEC", "400000").env_remove("WATCHDOG_PID");
    });
    daemon.wait_notified("WATCHDOG=1", 3);
}

#[test]
fn without_a_watchdog_nothing_is_fed() {
    let home = Home::new();
    let mut daemon = home.start();
    get(&home.query(), "/v1/state");
    daemon.signal(Signal::TERM);
    daemon.wait();
    assert!(
        !daemon.notifications().iter().any(|line| line.starts_with("WATCHDOG")),
        "{:?}",
        daemon.notifications()
    );
}

#[test]
fn closing_standard_input_ends_it_if_that_was_asked_for() {
    let home = Home::new();
    let mut daemon = home.start_with(|command| {
        command.arg("--exit-on-stdin-close").stdin(Stdio::piped());
    });
    drop(daemon.child.stdin.take());
    assert!(daemon.wait().success());
    assert!(!home.query().exists());
}

#[test]
fn closing_standard_input_means_nothing_otherwise() {
    let home = Home::new();
    let mut daemon = home.start_with(|command| {
        command.stdin(Stdio::piped());
    });
    drop(daemon.child.stdin.take());
    get(&home.query(), "/v1/state");
    assert!(daemon.child.try_wait().unwrap().is_none());
}

#[test]
fn an_idle_daemon_is_small() {
    let home = Home::new();
    let daemon = home.start();
    if is_emulated(daemon.pid()) {
        skip("the memory of an emulator is not the daemon's");
        return;
    }
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    // Ten in a release build, measured by benches/daemon.sh; this is an unoptimised one with its symbols.
    assert!(kilobytes < 64 * 1024, "{kilobytes} kB");
}

#[test]
fn what_the_kernel_refuses_a_simulated_board_is_named_with_what_to_raise() {
    // The limit of a user in a namespace of its own, so that no other process feels it.
    let lowered = "echo 0 >/proc/sys/user/max_inotify_instances";
    let may = Command::new("unshare").args(["-Ur", "sh", "-c", lowered]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        return missing("user namespace", "lower the limit of inotify in");
    }
    let home = Home::new();
    let program = home.command();
    let mut command = Command::new("unshare");
    command.args(["-Ur", "sh", "-c", &format!("{lowered}; exec \"$@\""), "sh"]);
    command.arg(program.get_program()).args(program.get_args()).args(["--simulate", "gb10"]);
    let output = command.env_remove("ROOFLINED_ROOT").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    assert!(errors.contains(&format!("fs.inotify.max_user_instances allows ({})", limit.trim())), "{errors}");
    assert!(errors.contains("sysctl fs.inotify.max_user_instances="), "{errors}");
}
