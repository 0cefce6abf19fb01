//! Where a daemon is looked for, in a /run and /tmp of their own.

use std::fs::{self, Permissions};
use std::io::ErrorKind::{ConnectionRefused, NotFound};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rooflined_client::{Client, ClientError};
use rustix::process::Uid;
use serde_json::json;

use crate::harness::{Impostor, wait_for};

const STRANGER: u32 = 65534;
const SYSTEM: &str = "/run/rooflined/query.sock";
const OWN: &str = "/tmp/rooflined-0/query.sock";
const RUNTIME: &str = "/run/user/rooflined/query.sock";
/// Such names are hidden from the tests in a process of their own.
const THEIRS: &str = "/tmp/rooflined-0-theirs";

/// Runs a test in a process of its own where /run and /tmp hold no other daemon, as root.
fn apart(test: &str) {
    let allowed = Command::new("unshare").args(["-m", "true"]).stderr(std::process::Stdio::null()).status();
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can give directories away and mount; run as root");
        return;
    }
    if !allowed.is_ok_and(|status| status.success()) {
        let strict = std::env::var("ROOFLINED_STRICT").is_ok_and(|value| value == "1");
        assert!(!strict, "there is no right to mount, and ROOFLINED_STRICT=1 forbids to skip");
        println!("SKIPPED: there is no right to mount");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/client/apart.sh");
    let mut command = Command::new("unshare");
    command.args(["-m", script]).arg(std::env::current_exe().unwrap());
    command.env_remove("ROOFLINED_SOCKET").env("XDG_RUNTIME_DIR", "/run/user");
    let output = command.args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}{errors}");
}

fn directory(path: &str, mode: u32) -> PathBuf {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    path.into()
}

/// A daemon that has one answer and closes, so that each question is a connection.
fn listening(socket: &str) -> Impostor {
    let (path, answer) = (Path::new(socket), "HTTP/1.1 200 OK\r\n\r\n{\"formats\": []}");
    let impostor = Impostor::in_directory(
        path.parent().unwrap(),
        path.file_name().unwrap().to_str().unwrap(),
        move |visit| {
            visit.read();
            visit.send(answer.as_bytes());
        },
    );
    fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
    impostor
}

fn client() -> Client {
    Client::new(None, std::time::Duration::from_secs(5))
}

fn ask(client: &mut Client) -> Result<(), ClientError> {
    wait_for(client.get("/v1/formats")).map(drop)
}

/// The sockets that a new client tries where nobody answers, each with its error.
fn tries() -> Vec<(String, std::io::ErrorKind)> {
    match ask(&mut client()) {
        Err(ClientError::Unreachable { failures }) => {
            failures.into_iter().map(|(path, why)| (path.display().to_string(), why.kind())).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// A new client asks, and `wanted` alone is visited.
fn is_answered_by(wanted: &Impostor, others: &[&Impostor]) {
    let count = |impostors: &[&Impostor]| impostors.iter().map(|one| one.visited()).sum::<usize>();
    let before = (wanted.visited(), count(others));
    ask(&mut client()).unwrap();
    assert_eq!((wanted.visited(), count(others)), (before.0 + 1, before.1));
}

#[test]
fn the_best_place_answers_and_a_strangers_directory_is_passed_over() {
    apart("places::usual");
}

#[test]
#[ignore = "the other half of the test above"]
fn usual() {
    let places = |paths: &[&str]| paths.iter().map(|path| ((*path).to_owned(), NotFound)).collect::<Vec<_>>();
    assert_eq!(tries(), places(&[RUNTIME, SYSTEM]));

    directory("/run/rooflined", 0o755);
    let system = listening(SYSTEM);
    is_answered_by(&system, &[]);

    // A directory that a stranger could have put there is passed over.
    let own = directory("/tmp/rooflined-0", 0o700);
    let first = listening(OWN);
    is_answered_by(&first, &[&system]);
    type Spoil = fn(&Path);
    let spoil: [Spoil; 4] = [
        |own| chown(own, Some(STRANGER), None).unwrap(),
        |own| fs::set_permissions(own, Permissions::from_mode(0o770)).unwrap(),
        |own| fs::set_permissions(own, Permissions::from_mode(0o702)).unwrap(),
        |own| {
            fs::rename(own, THEIRS).unwrap();
            symlink(THEIRS, own).unwrap();
        },
    ];
    for spoil in spoil {
        spoil(&own);
        is_answered_by(&system, &[&first]);
        if fs::symlink_metadata(&own).unwrap().is_symlink() {
            fs::remove_file(&own).unwrap();
            fs::rename(THEIRS, &own).unwrap();
        }
        chown(&own, Some(0), None).unwrap();
        fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
        is_answered_by(&first, &[&system]);
    }

    // A client stays with the daemon that it has found, and a new one takes a better place.
    let mut settled = client();
    ask(&mut settled).unwrap();
    directory("/run/user/rooflined", 0o700);
    let best = listening(RUNTIME);
    is_answered_by(&best, &[&first, &system]);
    let visits = first.visited();
    ask(&mut settled).unwrap();
    assert_eq!(first.visited(), visits + 1);
    chown(&own, Some(STRANGER), None).unwrap();
    assert!(matches!(ask(&mut settled), Err(ClientError::Unreachable { .. })));
    chown(&own, Some(0), None).unwrap();
    fs::remove_dir_all("/run/user/rooflined").unwrap();
    is_answered_by(&first, &[&best, &system]);

    // Whatever else lies there is no daemon.
    fs::remove_file(OWN).unwrap();
    fs::create_dir(OWN).unwrap();
    fs::remove_file(SYSTEM).unwrap();
    fs::write(SYSTEM, "").unwrap();
    let why: Vec<_> = tries().into_iter().map(|(_, why)| why).collect();
    assert_eq!(why, [NotFound, ConnectionRefused, ConnectionRefused]);
}

#[test]
fn a_place_without_permission_is_passed_over_and_named_where_nobody_answers() {
    apart("places::denied");
}

#[test]
#[ignore = "the other half of the test above"]
fn denied() {
    for path in ["/run/rooflined", "/run/user/rooflined"] {
        directory(path, 0o755);
    }
    let (best, system) = (listening(RUNTIME), listening(SYSTEM));
    fs::set_permissions(RUNTIME, Permissions::from_mode(0o600)).unwrap();
    let own = directory(&format!("/tmp/rooflined-{STRANGER}"), 0o700);
    chown(&own, Some(STRANGER), None).unwrap();
    fs::set_permissions("/run/rooflined", Permissions::from_mode(0o777)).unwrap();
    let stranger = Uid::from_raw(STRANGER);
    // Of this thread alone, which from here on may do what anybody may.
    rustix::thread::set_thread_res_uid(stranger, stranger, stranger).unwrap();
    is_answered_by(&system, &[&best]);
    fs::remove_file(SYSTEM).unwrap();
    let error = ask(&mut client()).unwrap_err();
    assert!(matches!(&error, ClientError::Denied { path, .. } if path == Path::new(RUNTIME)), "{error:?}");
    assert!(error.hint().is_some());
    let mine = listening(&format!("/tmp/rooflined-{STRANGER}/query.sock"));
    is_answered_by(&mine, &[&best, &system]);
}

#[test]
fn a_control_socket_beside_is_taken_from_its_owner_only() {
    apart("places::control");
}

#[test]
#[ignore = "the other half of the test above"]
fn control() {
    let hold = json!({"app_id": "test", "constraints": {"mode": "15W"}});
    for path in ["/tmp/rooflined-0", "/tmp/given"] {
        directory(path, 0o700);
        directory(&format!("{path}-control"), 0o755);
    }
    let beside = ["/tmp/rooflined-0-control", "/tmp/given-control"];
    let theirs = beside.map(|path| listening(&format!("{path}/control.sock")));
    for path in beside {
        chown(path, Some(STRANGER), None).unwrap();
    }
    let given = || Client::new(Some(Path::new("/tmp/given")), std::time::Duration::from_secs(5));
    let ask_for_hold = |mut client: Client| wait_for(async { client.hold(&hold).await.map(drop) });
    for client in [client(), given()] {
        assert!(matches!(ask_for_hold(client), Err(ClientError::Unreachable { .. })));
    }
    assert_eq!(theirs.each_ref().map(Impostor::visited), [0, 0]);
    chown(beside[1], Some(0), None).unwrap();
    ask_for_hold(given()).unwrap();
    assert_eq!(theirs.each_ref().map(Impostor::visited), [0, 1]);
}
