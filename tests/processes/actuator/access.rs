//! Who is listened to, and to what.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::{Value, json};

use super::boards::{agx_jp7, nano};
use super::harness::{Line, PATIENCE, Tree, eventually, set_mode};

/// The privileged helper as systemd starts it: with a listening socket as descriptor 3.
struct Activated<'a> {
    tree: &'a Tree,
    child: Child,
}

impl<'a> Activated<'a> {
    fn start(tree: &'a Tree, idle: &str) -> Self {
        let socket = tree.path("/actuate.sock");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let plain = tree.command();
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg("exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"").arg("sh");
        command.arg(plain.get_program()).args(plain.get_args()).args(["--idle", idle]);
        let log = fs::File::options().create(true).append(true).open(tree.path("/log")).unwrap();
        command.env_remove("STATE_DIRECTORY").stdin(Stdio::from(OwnedFd::from(listener))).stderr(log);
        Self { tree, child: command.spawn().unwrap() }
    }

    fn client(&self) -> Line {
        Line::connect(&self.tree.path("/actuate.sock"))
    }

    fn ends(mut self) -> bool {
        eventually("the actuator to end", || self.child.try_wait().unwrap()).success()
    }
}

#[test]
fn it_ends_by_itself_when_nobody_needs_it() {
    let tree = Tree::new(&nano());
    let actuator = Activated::start(&tree, "0.3");
    let mut client = actuator.client();
    assert_eq!(client.status()["now"]["mode"]["name"], "15W");
    // Idle, and with nothing unsettled, a client is no reason to stay.
    assert_eq!(client.hear(), None);
    assert!(actuator.ends());
}

#[test]
fn an_idle_client_keeps_its_unsettled_mode() {
    let tree = Tree::new(&nano());
    let actuator = Activated::start(&tree, "0.2");
    let mut client = actuator.client();
    assert_eq!(client.set(1, "25W")["outcome"], "applied");
    std::thread::sleep(std::time::Duration::from_millis(800));
    assert_eq!(client.status()["now"]["mode"]["name"], "25W");
    drop(client);
    assert!(actuator.ends());
    assert_eq!(tree.settings(), Tree::new(&nano()).settings());
}

#[test]
fn of_two_clients_at_once_the_second_is_told_to_wait() {
    let tree = Tree::new(&nano());
    let actuator = Activated::start(&tree, "5");
    let mut first = actuator.client();
    assert_eq!(first.set(1, "25W")["outcome"], "applied");
    let mut second = actuator.client();
    let answer = second.hear().unwrap();
    assert!(answer["message"].as_str().unwrap().contains("another client"), "{answer}");
    assert_eq!(second.hear(), None);
    assert_eq!(first.status()["now"]["mode"]["name"], "25W", "the first is not disturbed");
    drop(first);
    // One after another is fine, as soon as the first is seen to be gone, and the next finds the original.
    let (third, status) = eventually("the turn of the next", || {
        let mut third = actuator.client();
        third.order(&json!({"verb": "status"}));
        let status = third.hear()?;
        (status["order"] == 1).then_some((third, status))
    });
    assert_eq!((&status["now"]["mode"]["name"], &status["journal"]), (&json!("15W"), &Value::Null));
    drop(third);
    let mut actuator = actuator;
    actuator.child.kill().unwrap();
    actuator.child.wait().unwrap();
}

#[test]
fn two_actuators_do_not_work_at_once() {
    let tree = Tree::new(&nano());
    let mut first = tree.actuator();
    assert_eq!(first.line.set(1, "25W")["outcome"], "applied");
    let mut second = tree.actuator();
    second.line.order(&set_mode(2, "MAXN_SUPER", false));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(tree.lines("/calls"), ["-m 1"], "the second waits for the first");
    first.close();
    let report = second.line.hear().unwrap()["report"].clone();
    assert_eq!(
        (&report["outcome"], &report["before"]["name"]),
        (&json!("applied"), &json!("15W")),
        "{report}"
    );
    second.close();
    assert_eq!(tree.settings(), Tree::new(&nano()).settings());
}

#[test]
fn control_that_is_disabled_or_not_allowed_names_its_remedy() {
    for (control, remedy) in [
        ("", "enabled = true"),
        ("enabled = false\nallowed_modes = [\"25W\"]", "enabled = true"),
        ("enabled = true\nallowed_modes = []", "add it to `allowed_modes`"),
        ("enabled = true\nallowed_modes = [\"15W\"]", "add it to `allowed_modes`"),
        ("enabled = \"perhaps\"", "correct it"),
    ] {
        let tree = Tree::new(&nano());
        tree.configure(control);
        let mut actuator = tree.actuator();
        for dry_run in [true, false] {
            let report = actuator.line.ask(&set_mode(1, "25W", dry_run))["report"].clone();
            assert_eq!(report["outcome"], "refused", "{control}: {report}");
            assert!(report["hint"].as_str().unwrap().contains(remedy), "{control}: {report}");
        }
        assert!(tree.lines("/calls").is_empty());
    }
}

#[test]
fn a_number_and_a_name_that_do_not_agree_are_refused() {
    let tree = Tree::new(&nano());
    let mut actuator = tree.actuator();
    for (id, name) in [(1, "15W"), (2, "25W"), (9, "25W"), (1, "25w"), (u32::MAX, "25W")] {
        let report = actuator.line.set(id, name);
        assert_eq!(report["outcome"], "refused", "{id} {name}: {report}");
    }
    let locked = json!({"knob": "locked_clocks", "min": 0.0, "max": 1e9});
    let order = json!({"verb": "set_mode", "id": 1, "name": "25W", "knob": locked, "dry_run": false});
    assert_eq!(actuator.line.ask(&order)["report"]["outcome"], "refused");
    assert!(tree.lines("/calls").is_empty());
}

#[test]
fn nonsense_is_answered_and_the_next_order_obeyed() {
    let tree = Tree::new(&nano());
    let mut actuator = tree.actuator();
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    for line in
        ["nonsense", "{}", "[1]", "{\"order\":1,\"verb\":\"reboot\"}", "\u{0}", &deep, "{\"order\":-1}"]
    {
        actuator.line.say(format!("{line}\n").as_bytes());
        let answer = actuator.line.hear().unwrap();
        assert_eq!(answer["answer"], "failed", "{line:.40}: {answer}");
    }
    actuator.line.say(b"\xff\xfe\n\n  \n");
    assert_eq!(actuator.line.hear().unwrap()["answer"], "failed");
    // In pieces, and two in one.
    actuator.line.say(b"{\"order\":5,\"ver");
    actuator.line.say(b"b\":\"status\"}\n{\"order\":6,\"verb\":\"status\"}\n");
    assert_eq!(actuator.line.hear().unwrap()["order"], 5);
    assert_eq!(actuator.line.hear().unwrap()["order"], 6);
    assert!(actuator.close().success());
}

#[test]
fn a_line_without_end_is_not_waited_for() {
    let tree = Tree::new(&nano());
    let mut actuator = tree.actuator();
    actuator.line.set(1, "25W");
    for _ in 0..100 {
        actuator.line.say(&[b'x'; 1000]);
    }
    let answer = actuator.line.hear().unwrap();
    assert!(answer["message"].as_str().unwrap().contains("65536"), "{answer}");
    assert_eq!(actuator.line.hear(), None);
    actuator.close();
    assert_eq!(tree.settings(), Tree::new(&nano()).settings(), "its switch is undone");
}

#[test]
fn a_file_that_only_root_may_read_comes_as_a_descriptor() {
    let tree = Tree::new(&agx_jp7());
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut child = tree.command().arg("--stdio").stdin(Stdio::from(OwnedFd::from(theirs))).spawn().unwrap();
    let mut line = Line::new(ours.try_clone().unwrap());
    line.order(&json!({"verb": "open", "path": "/sys/kernel/debug/bpmp/debug/clk/emc/max_rate"}));
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 256];
    let received =
        recvmsg(&ours, &mut [std::io::IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty())
            .unwrap();
    let answer: Value = serde_json::from_slice(&bytes[..received.bytes]).unwrap();
    assert_eq!(answer, json!({"answer": "opened", "order": 1}));
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.next().and_then(|mut files| files.next()).expect("a descriptor");
    let mut text = String::new();
    fs::File::from(file).read_to_string(&mut text).unwrap();
    assert_eq!(text, "3199000000\n");
    for path in
        ["/etc/shadow", "/sys/kernel/debug/../../../etc/shadow", "", "/sys/kernel/debug/cactmon/mc_all"]
    {
        assert_eq!(line.ask(&json!({"verb": "open", "path": path}))["answer"], "failed", "{path}");
    }
    drop((line, ours));
    assert!(eventually("the end", || child.try_wait().unwrap()).success());
}

#[test]
fn without_a_socket_it_says_what_to_start() {
    let tree = Tree::new(&nano());
    let output = tree.command().stdin(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("rooflined-actuate.socket"), "{said}");
}
