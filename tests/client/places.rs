//! Where a daemon is looked for, in a /run and /tmp of their own.

use std::fs::{self, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rooflined_client::types::FormatAnswer;
use rooflined_client::{AsyncClient, Client, Error, Result};
use rustix::process::Uid;
use serde_json::json;

use crate::harness::{Impostor, alone_by, asynchronously};

const STRANGER: u32 = 65534;
const SYSTEM: &str = "/run/rooflined/query.sock";
const OWN: &str = "/tmp/rooflined-0/query.sock";
const RUNTIME: &str = "/run/user/rooflined/query.sock";

/// Runs a test where there is no other daemon in /run and /tmp, and its user may do everything.
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
    alone_by(test, &mut command);
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

/// Both clients, made before anything is there.
struct Both(Client, AsyncClient);

impl Both {
    fn ask(&self) -> [Result<Vec<FormatAnswer>>; 2] {
        [self.0.formats(), asynchronously(self.1.formats())]
    }

    /// What is said where nobody answers, by path.
    fn in_vain(&self) -> Vec<(String, String)> {
        let [mine, theirs] = self.ask().map(|answer| match answer {
            Err(Error::Unreachable { tried, .. }) => {
                tried.into_iter().map(|(path, why)| (path.display().to_string(), why)).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(mine, theirs);
        mine
    }

    /// Both ask, and are answered by `wanted` alone.
    fn are_answered_by(&self, wanted: &Impostor, others: &[&Impostor]) {
        let count = |impostors: &[&Impostor]| impostors.iter().map(|one| one.visited()).sum::<usize>();
        let before = (wanted.visited(), count(others));
        for answer in self.ask() {
            answer.unwrap();
        }
        assert_eq!((wanted.visited(), count(others)), (before.0 + 2, before.1));
    }
}

#[test]
fn a_daemon_is_looked_for_at_each_connection_and_a_strangers_is_not_asked() {
    apart("places::usual");
}

#[test]
#[ignore = "the other half of the test above"]
fn usual() {
    let both = Both(Client::new(), AsyncClient::new());
    let nothing = "no such file or directory".to_owned();
    let wanted = [RUNTIME, OWN, SYSTEM].map(|path| (path.to_owned(), nothing.clone()));
    assert_eq!(both.in_vain(), wanted);

    directory("/run/rooflined", 0o755);
    let system = listening(SYSTEM);
    both.are_answered_by(&system, &[]);

    // What others have put in the place of ours is passed over, and named where nobody else answers.
    let own = directory("/tmp/rooflined-0", 0o700);
    let first = listening(OWN);
    both.are_answered_by(&first, &[&system]);
    type Spoil = fn(&Path);
    let spoil: [(&str, Spoil); 4] = [
        ("belongs to user 65534", |own| chown(own, Some(STRANGER), None).unwrap()),
        ("others may write", |own| fs::set_permissions(own, Permissions::from_mode(0o770)).unwrap()),
        ("others may write", |own| fs::set_permissions(own, Permissions::from_mode(0o702)).unwrap()),
        ("symbolic link", |own| {
            fs::rename(own, "/tmp/theirs").unwrap();
            symlink("/tmp/theirs", own).unwrap();
        }),
    ];
    for (said, spoil) in spoil {
        spoil(&own);
        both.are_answered_by(&system, &[&first]);
        fs::rename(SYSTEM, "/run/rooflined/away").unwrap();
        let tried = both.in_vain();
        assert!(tried[1].0 == OWN && tried[1].1.contains(said), "{said}: {tried:?}");
        fs::rename("/run/rooflined/away", SYSTEM).unwrap();
        if fs::symlink_metadata(&own).unwrap().is_symlink() {
            fs::remove_file(&own).unwrap();
            fs::rename("/tmp/theirs", &own).unwrap();
        }
        chown(&own, Some(0), None).unwrap();
        fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
        both.are_answered_by(&first, &[&system]);
    }

    // One that starts later in a better place.
    directory("/run/user/rooflined", 0o700);
    let best = listening(RUNTIME);
    both.are_answered_by(&best, &[&first, &system]);
    fs::remove_dir_all("/run/user/rooflined").unwrap();
    both.are_answered_by(&first, &[&best, &system]);

    // Whatever else lies there is no daemon.
    fs::remove_file(OWN).unwrap();
    fs::create_dir(OWN).unwrap();
    fs::remove_file(SYSTEM).unwrap();
    fs::write(SYSTEM, "").unwrap();
    let why: Vec<String> = both.in_vain().into_iter().map(|(_, why)| why).collect();
    assert_eq!(why, [&*nothing, "connection refused", "connection refused"]);
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
    let both = Both(Client::new(), AsyncClient::new());
    for _ in 0..2 {
        both.are_answered_by(&system, &[&best]);
    }
    fs::remove_file(SYSTEM).unwrap();
    for answer in both.ask() {
        let error = answer.unwrap_err();
        assert!(matches!(&error, Error::Denied { path, .. } if path == Path::new(RUNTIME)), "{error:?}");
        assert!(error.is_passing() && error.hint().is_some());
    }
    let mine = listening(&format!("/tmp/rooflined-{STRANGER}/query.sock"));
    both.are_answered_by(&mine, &[&best, &system]);
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
    for client in [Client::new(), Client::at("/tmp/given")] {
        assert!(matches!(client.hold(&hold), Err(Error::Unreachable { .. })));
    }
    assert_eq!(theirs.each_ref().map(Impostor::visited), [0, 0]);
    chown(beside[1], Some(0), None).unwrap();
    assert!(Client::at("/tmp/given").hold(&hold).is_err());
    assert_eq!(theirs.each_ref().map(Impostor::visited), [0, 1]);
}
