//! `watch`, and the progress of long commands, in a pseudo terminal, as somebody sees them.

use std::io::{Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use super::answers::{board, healthy};
use super::fake::{Fake, Reply};
use super::{bad, contains, ctl};

/// Far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal of so many rows and columns, kept by script(1), in which the view runs.
pub(super) struct Screen {
    child: Child,
    parser: Arc<Mutex<vt100::Parser>>,
}

impl Screen {
    fn open(socket: &Path, rows: u16, columns: u16, args: &[&str]) -> Self {
        Self::of(socket, rows, columns, &[&["watch"], args].concat())
    }

    /// The same for any command.
    fn of(socket: &Path, rows: u16, columns: u16, args: &[&str]) -> Self {
        let view = ctl(socket, args);
        let view: Vec<String> = std::iter::once(view.get_program())
            .chain(view.get_args())
            .map(|part| format!("'{}'", part.to_str().unwrap()))
            .collect();
        Self::running(&view.join(" "), rows, columns, |command| {
            command.env("ROOFLINED_SOCKET", socket);
        })
    }

    /// The same for the words of a command line of sh.
    pub(super) fn running(words: &str, rows: u16, columns: u16, prepare: impl FnOnce(&mut Command)) -> Self {
        let line = format!("stty rows {rows} cols {columns}; exec {words}");
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        command.env("SHELL", "/bin/sh").env_remove("NO_COLOR").env_remove("COLUMNS").env_remove("LINES");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().expect("script(1) of bsdutils");
        let size = |length| NonZero::new(length).unwrap();
        let parser = Arc::new(Mutex::new(vt100::Parser::new(size(rows), size(columns), 0)));
        let (mut output, copy) = (child.stdout.take().unwrap(), Arc::clone(&parser));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                copy.lock().unwrap().process(&bytes[..read]);
            }
        });
        Self { child, parser }
    }

    pub(super) fn press(&mut self, keys: &str) {
        let mut input = self.child.stdin.as_ref().unwrap();
        input.write_all(keys.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// What is on the screen now.
    pub(super) fn contents(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    /// What is on the screen, once that is there.
    fn until(&self, what: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.parser.lock().unwrap().screen().contents();
            if text.contains(what) {
                return text;
            }
            assert!(Instant::now() < deadline, "no {what:?} in:\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_restored(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let parser = self.parser.lock().unwrap();
            if !parser.screen().alternate_screen() && !parser.screen().hide_cursor() {
                return true;
            }
            drop(parser);
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn daemon() -> Fake {
    Fake::start(answer)
}

fn answer(asked: &super::fake::Received) -> Reply {
    match asked.route.as_str() {
        "/v1/board" => {
            Reply::ok(&rooflined_api::BoardAnswer { model: Some("Board of Tests".into()), ..board() })
        }
        "/v1/holds" => Reply::ok(&json!({
            "active_mode": "25W", "cause": "hold", "switching": null, "pending": null,
            "holds": [{
                "app_id": "llama", "reason": "chat", "uid": 1000, "attached": true,
                "constraints": {"min_mode": "25W"}, "satisfied": false, "unmet": "mode 15W", "age_s": 90.0, "expires_in_s": null,
            }],
            "control_enabled": true, "unavailable": null, "simulated": false, "serial": 17,
        })),
        _ => healthy(asked),
    }
}

#[test]
fn loads_ceilings_holds_and_events_are_on_one_screen_and_keys_turn_pages() {
    let fake = daemon();
    let mut screen = Screen::open(fake.path(), 24, 80, &[]);
    let text = screen.until("calibration");
    for part in [
        "25W (hold)  Board of Tests",
        "1 overview",
        "cpu  ",
        "bandwidth",
        "llama (user 1000, for chat): at least 25W, NOT MET: mode 15W",
        "q quit",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    screen.press("2");
    assert!(screen.until("cores online").contains("no nvpmodel") || screen.until("memory").contains("total"));
    screen.press("3");
    screen.until("50.0 % done");
    screen.press("p");
    screen.until("PAUSED");
    screen.press("q");
    assert!(screen.ended().success());
    assert!(screen.is_restored());
}

#[test]
fn a_daemon_that_goes_is_waited_for_and_the_view_says_so() {
    let is_away = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_away);
    let fake = Fake::start(move |asked| match seen.load(Ordering::Relaxed) {
        true => Reply::error(503, "unavailable", None),
        false => answer(asked),
    });
    let mut screen = Screen::open(fake.path(), 30, 120, &["--interval", "100ms"]);
    screen.until("Board of Tests");
    is_away.store(true, Ordering::Relaxed);
    screen.until("NOT NOW");
    is_away.store(false, Ordering::Relaxed);
    let deadline = Instant::now() + PATIENCE;
    while screen.parser.lock().unwrap().screen().contents().contains("NOT NOW") {
        assert!(Instant::now() < deadline, "it does not recover");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Ctrl-C is a key in this mode.
    screen.press("\u{3}");
    assert!(screen.ended().success());
    assert!(screen.is_restored());
}

#[test]
fn without_a_terminal_or_with_another_format_it_says_what_to_use() {
    let fake = daemon();
    let (code, errors) = bad(fake.path(), &["watch"]);
    assert_eq!(code, 2);
    contains(&errors, &["needs a terminal", "watch --events"]);
    let (code, errors) = bad(fake.path(), &["watch", "-o", "json"]);
    assert_eq!(code, 2);
    contains(&errors, &["for people", "status -o json"]);
}

/// A daemon that answers `route` with a refusal once `open` is set, and not before.
fn held(route: &'static str, open: &Arc<AtomicBool>) -> Fake {
    let open = Arc::clone(open);
    Fake::start(move |asked| {
        if asked.route != route {
            return healthy(asked);
        }
        let deadline = Instant::now() + PATIENCE;
        while !open.load(Ordering::Relaxed) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        Reply::error(409, "not_calibrated", None)
    })
}

#[test]
fn a_long_wait_is_shown_on_a_terminal_and_gone_at_its_end() {
    for (route, command, shown) in [
        ("/v1/sweep", &["sweep", "gemv", "4096", "4096"][..], "waiting for the daemon's answer"),
        ("/v1/recommend", &["recommend", "gemv", "4096", "4096"], "waiting for the daemon's answer"),
        ("/v1/measure", &["measure", "gemv", "4096", "4096"], "measuring"),
        ("/v1/measure", &["compare", "gemv", "4096", "4096", "--formats", "fp32,int8"], "0 of 2"),
    ] {
        let open = Arc::new(AtomicBool::new(false));
        let fake = held(route, &open);
        let mut screen = Screen::of(fake.path(), 24, 80, command);
        screen.until(shown);
        open.store(true, Ordering::Relaxed);
        assert!(!screen.ended().success());
        let text = screen.until("error: ");
        assert!(!text.contains(shown) && text.starts_with("error: "), "{command:?}: {text}");
        assert!(screen.is_restored());
    }
}

/// A directory with a file of two million weights, a board whose file does not answer, and one request.
fn slow() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let table = r#"{"w":{"dtype":"F32","shape":[2048,1024],"data_offsets":[0,8388608]}}"#;
    // Another value in each place of a row.
    let row: Vec<u8> = (0..1024_u16).flat_map(|column| f32::from(column % 997).to_le_bytes()).collect();
    let length = (table.len() as u64).to_le_bytes();
    let file = [&length[..], table.as_bytes(), &row.repeat(2048)].concat();
    std::fs::write(place("big.safetensors"), file).unwrap();
    std::fs::create_dir_all(place("board/etc")).unwrap();
    assert!(Command::new("mkfifo").arg(place("board/etc/os-release")).status().unwrap().success());
    let request = json!({"workload": {"op": {"kind": "gemv", "n": 64, "k": 64}}});
    std::fs::write(place("requests"), format!("{request}\n")).unwrap();
    directory
}

/// Command lines that take long by themselves, or until their daemon answers, and what is shown meanwhile. `models inspect` is
/// not among them: it reads headers alone and refuses what could block. `doctor --report` prints a line for each step.
const LONG: [(&str, &str, &str); 4] = [
    ("quant-error {dir}/big.safetensors", "", " of 8."),
    ("bundle --root {dir}/board --file {dir}/out", "", "reading the board's files"),
    // What it answers goes elsewhere; on the same terminal its lines show how far it is.
    ("predict --requests {dir}/requests >{dir}/out", "/v1/predict", "0 lines answered"),
    ("compare gemv 4096 4096 --formats q8_0", "/v1/measure", "0 of 1"),
];

/// A daemon that answers once it may, or at once what nothing waits for, and the command line for sh.
fn long(line: &str, route: &'static str, directory: &Path) -> (Fake, Arc<AtomicBool>, String) {
    let open = Arc::new(AtomicBool::new(false));
    let fake = if route.is_empty() { daemon() } else { held(route, &open) };
    let line = line.replace("{dir}", directory.to_str().unwrap());
    (fake, open, format!("{} {line}", crate::programs::rooflinectl().display()))
}

#[test]
fn what_takes_long_by_itself_is_shown_too_and_gone_at_its_end() {
    let directory = slow();
    for (line, route, shown) in LONG {
        let (fake, open, line) = long(line, route, directory.path());
        let mut screen = Screen::running(&line, 40, 120, |command| {
            command.env("ROOFLINED_SOCKET", fake.path());
        });
        screen.until(shown);
        open.store(true, Ordering::Relaxed);
        screen.ended();
        assert!(screen.is_restored());
        let text = screen.contents();
        assert!(!text.contains(shown) && !text.contains("[ ") && !text.contains("=> "), "{line}: {text}");
    }
}

#[test]
fn without_a_terminal_nothing_of_them_is_on_standard_error() {
    let directory = slow();
    for (line, route, shown) in LONG {
        let (fake, open, line) = long(line, route, directory.path());
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("exec {line}")])
            .env("ROOFLINED_SOCKET", fake.path())
            .stdin(Stdio::null());
        let child =
            command.env("LANG", "C.UTF-8").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // Beyond the delay after which a terminal would have shown it.
        std::thread::sleep(Duration::from_millis(800));
        open.store(true, Ordering::Relaxed);
        let errors = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
        assert!(!errors.contains(shown) && !errors.contains(['\r', '\u{1b}']), "{line}: {errors:?}");
    }
}

#[test]
fn without_a_terminal_nothing_of_a_long_wait_is_on_standard_error() {
    let open = Arc::new(AtomicBool::new(false));
    let fake = held("/v1/sweep", &open);
    let mut command = ctl(fake.path(), &["sweep", "gemv", "4096", "4096"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Beyond the delay after which a terminal would have shown it.
    std::thread::sleep(Duration::from_millis(1200));
    open.store(true, Ordering::Relaxed);
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.starts_with("error: ") && !errors.contains('\r'), "{errors:?}");
}
