//! Holds over restarts of the daemon. The daemon, the privileged helper, the board's nvpmodel and the clients are real
//! processes; the nvpmodel counts its switches.

use std::fs;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::harness::{Daemon, Home, eventually, get, http, kill};

const BOARD: &str = "jetson-orin-nano-8gb-super";
const SLOW: &str = "612000000";

struct Board {
    home: Home,
}

impl Board {
    /// In 15W, where it stays until somebody holds.
    fn new() -> (Self, Daemon) {
        let home = Home::new();
        home.configure("[calibration]\nautomatic = false\n[control]\nenabled = true\ndwell_s = 0\n");
        let board = Self { home };
        // Made, and then left to daemons that take it for a board like any other.
        let mut maker = board.home.start_with(|command| {
            command.args(["--simulate", BOARD]).arg("--root").arg(board.home.path("board"));
        });
        maker.signal(Signal::KILL);
        maker.wait();
        let tool = board.home.path("board/usr/sbin/nvpmodel");
        let script = fs::read_to_string(&tool).unwrap();
        let count = format!("echo \"$*\" >>{}\n", board.home.path("switches").display());
        fs::write(&tool, script.replacen('\n', &format!("\n{count}"), 1)).unwrap();
        let daemon = board.start();
        let body = json!({ "mode": "15W" }).to_string();
        let (status, answer) = http(&board.home.control(), "POST", "/v1/mode", &body);
        assert_eq!(status, 200, "{answer}");
        let _ = fs::remove_file(board.home.path("switches"));
        (board, daemon)
    }

    fn start(&self) -> Daemon {
        self.home.start_with(|command| {
            command.arg("--root").arg(self.home.path("board"));
        })
    }

    fn restart(&self, mut daemon: Daemon, signal: Signal) -> Daemon {
        daemon.signal(signal);
        daemon.wait();
        self.start()
    }

    fn switches(&self) -> usize {
        fs::read_to_string(self.home.path("switches")).unwrap_or_default().lines().count()
    }

    fn clock(&self) -> String {
        let path = "board/sys/class/devfreq/17000000.gpu/max_freq";
        fs::read_to_string(self.home.path(path)).unwrap().trim().into()
    }

    fn holds(&self) -> Vec<Value> {
        get(&self.home.query(), "/v1/holds")["holds"].as_array().unwrap().clone()
    }

    /// Holds that somebody or time stands for.
    fn held(&self, count: usize) {
        eventually("the holds", || {
            let holds = self.holds();
            (holds.len() == count && holds.iter().all(|hold| hold["waiting_s"].is_null())).then_some(())
        });
    }

    /// One that holds and has heard so: it asks again only for what it was given.
    fn client(&self) -> Client {
        let told = || {
            let said = fs::read_to_string(self.home.path("client")).unwrap_or_default();
            said.matches("held in 25W\n").count()
        };
        let before = told();
        let mut command = Command::new(crate::programs::rooflinectl());
        command.arg("--socket").arg(self.home.path("run"));
        command.args(["hold", "--mode", "25W", "--", "sleep", "1000"]);
        let log = fs::File::options().create(true).append(true).open(self.home.path("client")).unwrap();
        let client = Client(command.stdin(Stdio::null()).stderr(log).spawn().unwrap());
        eventually("the client to hear that it holds", || (told() > before).then_some(()));
        client
    }
}

impl Drop for Board {
    /// What a failed test is looked into with.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let client = fs::read_to_string(self.home.path("client")).unwrap_or_default();
            eprintln!("daemon:\n{}\nclient:\n{client}\nswitches: {}", self.home.log(), self.switches());
        }
    }
}

/// `rooflinectl hold`, ended with its command.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        kill(self.0.id(), Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn a_hold_goes_on_over_restarts_and_kills_and_nothing_is_switched() {
    let (board, daemon) = Board::new();
    let client = board.client();
    board.held(1);
    let fast = board.clock();
    assert_ne!(fast, SLOW);
    assert_eq!(board.switches(), 1);
    let mut daemon = daemon;
    for signal in [Signal::TERM, Signal::KILL, Signal::TERM] {
        daemon = board.restart(daemon, signal);
        board.held(1);
        assert_eq!((board.clock(), board.switches()), (fast.clone(), 1), "{signal:?} {}", board.home.log());
    }
    eventually("the client to have said so each time", || {
        let said = fs::read_to_string(board.home.path("client")).unwrap();
        (said.matches("held in 25W again").count() == 3).then_some(())
    });
    drop(client);
    eventually("the mode of before", || (board.clock() == SLOW).then_some(()));
    board.held(0);
    assert_eq!(board.switches(), 2);
    drop(daemon);
}

#[test]
fn many_holds_go_on_and_each_ends_as_it_would_have() {
    let (board, daemon) = Board::new();
    let clients: Vec<Client> = (0..6).map(|_| board.client()).collect();
    board.held(6);
    let body = json!({ "constraints": { "mode": "25W" }, "app_id": "timed", "ttl_s": 3600 });
    let (status, timed) = http(&board.home.control(), "POST", "/v1/holds", &body.to_string());
    assert_eq!(status, 200, "{timed}");
    let _daemon = board.restart(daemon, Signal::TERM);
    board.held(7);
    assert_eq!(board.switches(), 1, "{}", board.home.log());
    drop(clients);
    board.held(1);
    assert_ne!(board.clock(), SLOW, "one is left");
    // What releases it is what it was before.
    let (status, _) = http(&board.home.control(), "DELETE", &format!("/v1/holds/{}", timed["id"]), "");
    assert_eq!(status, 200);
    eventually("the mode of before", || (board.clock() == SLOW).then_some(()));
    assert_eq!(board.switches(), 2);
}

#[test]
fn without_holds_a_restart_switches_nothing() {
    let (board, daemon) = Board::new();
    let daemon = board.restart(daemon, Signal::TERM);
    let _daemon = board.restart(daemon, Signal::KILL);
    board.held(0);
    assert_eq!((board.clock().as_str(), board.switches()), (SLOW, 0));
}

#[test]
fn a_hold_ends_where_its_client_does_not_come_back() {
    let (board, mut daemon) = Board::new();
    let client = board.client();
    board.held(1);
    daemon.signal(Signal::KILL);
    daemon.wait();
    drop(client);
    let _daemon = board.start();
    let holds = board.holds();
    assert!(holds[0]["waiting_s"].as_f64().unwrap() > 0.0, "{holds:?}");
    assert_eq!(board.switches(), 1);
    eventually("the mode of before", || (board.clock() == SLOW).then_some(()));
    board.held(0);
    assert_eq!(board.switches(), 2);
    assert!(!board.home.state.join("holds.json").exists());
}

#[test]
fn the_mode_of_before_comes_back_where_no_daemon_does() {
    let try_with = |signal| {
        let (board, mut daemon) = Board::new();
        let client = board.client();
        board.held(1);
        daemon.signal(signal);
        daemon.wait();
        assert_ne!(board.clock(), SLOW, "it is kept for a while");
        eventually("the mode of before", || (board.clock() == SLOW).then_some(()));
        eventually("the journal to be cleared", || {
            (!board.home.state.join("actuate/switch.json").exists()).then_some(())
        });
        assert_eq!(board.switches(), 2);
        // The client waits for the daemon, which has the mode entered once more.
        let _daemon = board.start();
        board.held(1);
        assert_ne!(board.clock(), SLOW);
        drop(client);
    };
    // The mode is kept for some time after the daemon has gone.
    std::thread::scope(|scope| {
        for signal in [Signal::TERM, Signal::KILL] {
            scope.spawn(move || try_with(signal));
        }
    });
}

/// Starts daemons whose clock since boot is so many seconds ahead; false where this kernel cannot do that.
fn may_shift_clocks() -> bool {
    let tried = Command::new("unshare").args(["--time", "--boottime", "1000", "true"]).output();
    let may = tried.is_ok_and(|output| output.status.success());
    if !may {
        super::harness::missing("time namespace", "shift the clock since boot");
    }
    may
}

/// A daemon in a time namespace: the machine has slept between two daemons, or a container goes on where less time has passed since
/// the boot.
#[test]
fn a_clock_since_boot_that_jumps_between_two_daemons_ends_holds_in_time_and_never_late() {
    if !may_shift_clocks() {
        return;
    }
    let home = Home::new();
    home.configure("[calibration]\nautomatic = false\n[control]\nenabled = true\ndwell_s = 0\n");
    let start = |ahead: u32| {
        let mut program = home.command();
        program.args(["--simulate", BOARD]).arg("--root").arg(home.path("board"));
        let ahead = ahead.to_string();
        let mut command = Command::new("unshare");
        command.args(["--time", "--boottime", &ahead, "--monotonic", &ahead]);
        command.arg(program.get_program()).args(program.get_args());
        let log = fs::File::options().append(true).open(home.path("log")).unwrap();
        command.env_remove("ROOFLINED_ROOT").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut daemon = home.launch(command);
        daemon.wait_ready();
        daemon
    };
    let stop = |mut daemon: Daemon| {
        daemon.signal(Signal::KILL);
        daemon.wait();
    };
    let left = || {
        let holds = get(&home.query(), "/v1/holds")["holds"].clone();
        holds
            .as_array()
            .unwrap()
            .iter()
            .map(|hold| hold["expires_in_s"].as_f64().unwrap())
            .collect::<Vec<_>>()
    };
    const DAY: u32 = 86_400;
    let daemon = start(DAY);
    let body = json!({ "constraints": { "mode": "15W" }, "app_id": "timed", "ttl_s": 3600 });
    let (status, answer) = http(&home.control(), "POST", "/v1/holds", &body.to_string());
    assert_eq!(status, 200, "{answer}");
    stop(daemon);

    // Back by a day: it has no more than the time that it was given.
    let daemon = start(0);
    let times = left();
    assert!(times.len() == 1 && times[0] > 0.0 && times[0] <= 3600.0, "{times:?} {}", home.log());
    let state = get(&home.query(), "/v1/state");
    assert!(state["power_mode"]["age_s"].as_f64().is_some_and(|age| age >= 0.0), "{state}");
    stop(daemon);

    // On by two: its time is over.
    let daemon = start(2 * DAY);
    eventually("the hold to end", || left().is_empty().then_some(()));
    assert!(!home.log().contains("panicked"), "{}", home.log());
    drop(daemon);
}
