//! Sockets that a service manager made.

use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::harness::{Home, get, missing};

/// Binds both sockets, names them and becomes the daemon, as systemd would.
const MANAGER: &str = r#"
import os, socket, sys
query, control, names = sys.argv[1:4]
for number, path in enumerate([query, control]):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    os.dup2(listener.fileno(), 103 + number)
os.dup2(103, 3)
os.dup2(104, 4)
os.environ.update(LISTEN_FDS="2", LISTEN_FDNAMES=names, LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[4], sys.argv[4:])
"#;

fn manager(home: &Home, names: &str) -> Option<Command> {
    let exists =
        Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !exists {
        missing("python3", "act as the service manager");
        return None;
    }
    std::fs::create_dir(home.path("run")).unwrap();
    let daemon = home.command();
    let mut command = Command::new("python3");
    command.arg("-c").arg(MANAGER).arg(home.path("q.sock")).arg(home.path("c.sock")).arg(names);
    command.arg(daemon.get_program()).args(daemon.get_args());
    for (name, value) in daemon.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Some(command)
}

#[test]
fn handed_over_sockets_are_served_by_name_and_left_in_place() {
    let home = Home::new();
    // The other way round than bound, so that only the names tell.
    let Some(command) = manager(&home, "control:query") else { return };
    let mut daemon = home.launch(command);
    daemon.wait_ready();
    assert_eq!(get(&home.path("c.sock"), "/v1/board")["key"], "cpu");
    assert!(!home.query().exists(), "none is made beside them");
    let (status, _) = super::harness::http(&home.path("c.sock"), "POST", "/v1/calibrate", "{}");
    assert_eq!(status, 403, "the one named query changes nothing");
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert!(home.path("q.sock").exists() && home.path("c.sock").exists(), "they belong to the manager");
    assert!(UnixStream::connect(home.path("q.sock")).is_err(), "nobody listens any more");
}

#[test]
fn sockets_without_a_known_name_are_refused() {
    let home = Home::new();
    let Some(mut command) = manager(&home, "http:https") else { return };
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("\"http\"") && said.contains("FileDescriptorName"), "{said}");
}
