//! One place, one daemon.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Stdio;

use rustix::process::{Signal, geteuid};

use super::harness::{Home, as_nobody, bare, eventually, get, skip};

#[test]
fn a_second_daemon_says_who_holds_the_socket() {
    let home = Home::new();
    let first = home.start();
    let second = home.command().stderr(Stdio::piped()).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&second.stderr);
    assert!(complaint.contains(&first.pid().to_string()), "{complaint}");
    assert!(complaint.contains(home.query().to_str().unwrap()), "{complaint}");
    assert!(complaint.contains("--socket"), "says what to do next: {complaint}");
    get(&home.query(), "/v1/state");
}

#[test]
fn of_two_that_start_at_once_exactly_one_serves() {
    for round in 0..20 {
        let home = Home::new();
        let mut pair = [home.launch(home.command()), home.launch(home.command())];
        let loser = eventually("one to give up", || {
            pair.iter_mut().position(|daemon| daemon.child.try_wait().unwrap().is_some())
        });
        assert_eq!(pair[loser].wait().code(), Some(1), "round {round}: {}", home.log());
        pair[1 - loser].wait_ready();
        get(&home.query(), "/v1/state");
    }
}

#[test]
fn a_stale_socket_is_replaced() {
    let home = Home::new();
    let mut daemon = home.start();
    daemon.signal(Signal::KILL);
    daemon.wait();
    assert!(home.query().exists(), "nothing could remove it");
    let _next = home.start();
    get(&home.query(), "/v1/state");
}

#[test]
fn a_file_in_the_place_of_the_socket_is_not_removed() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    fs::write(home.query(), "precious").unwrap();
    let refused = home.command().stderr(Stdio::piped()).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not a socket"));
    assert_eq!(fs::read_to_string(home.query()).unwrap(), "precious");
}

#[test]
fn an_ordinary_user_gets_a_private_directory_and_no_trap() {
    if !geteuid().is_root() {
        skip("only root may become another user");
        return;
    }
    let dir = std::path::Path::new("/tmp/rooflined-65534");
    if dir.symlink_metadata().is_ok() {
        skip(&format!("{} is in use", dir.display()));
        return;
    }
    // The program may lie where that user may not go.
    let home = Home::new();
    fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let program = home.path("rooflined");
    fs::copy(bare().get_program(), &program).unwrap();
    let run = |ready: bool| {
        let mut command = std::process::Command::new(&program);
        command.args(["--bus", "none", "--state-dir", "/proc/none", "--exit-on-stdin-close"]);
        command.env_remove("XDG_RUNTIME_DIR").env_remove("ROOFLINED_ROOT").current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        as_nobody(&mut command);
        // A test that forks at the wrong moment holds the copy open for writing for an instant.
        let mut child = eventually("the copied program", || command.spawn().ok());
        if ready {
            let path = dir.join("query.sock");
            eventually("the socket", || path.exists().then_some(()));
            let found = fs::symlink_metadata(dir).unwrap();
            assert_eq!((found.uid(), found.mode() & 0o777), (65534, 0o700));
            drop(child.stdin.take());
        }
        child.wait_with_output().unwrap()
    };
    let served = run(true);
    assert!(served.status.success(), "{}", String::from_utf8_lossy(&served.stderr));
    assert!(String::from_utf8_lossy(&served.stdout).contains("/tmp/rooflined-65534/query.sock"));

    fs::remove_dir_all(dir).unwrap();
    symlink(home.path(""), dir).unwrap();
    let trapped = run(false);
    fs::remove_file(dir).unwrap();
    assert_eq!(trapped.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&trapped.stderr).contains("symbolic link"));
    assert!(!home.path("query.sock").exists());

    fs::create_dir(dir).unwrap();
    let foreign = run(false);
    fs::remove_dir(dir).unwrap();
    assert_eq!(foreign.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&foreign.stderr).contains("belongs to user 0"));
}
