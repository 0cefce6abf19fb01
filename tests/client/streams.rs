//! Events and holds, over restarts, threads and forks.

use std::fs;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rooflined_client::types::*;
use rooflined_client::{Error, Event, HoldState};
use serde_json::json;

use crate::harness::{CONTROLLED, Daemon, Impostor, alone, asynchronously, chat, until};

fn fifteen_watts() -> HoldRequest {
    let constraints = ConstraintsOfHold::default().mode("15W");
    HoldRequest::new("test").reason("to see").constraints(constraints)
}

fn enter(daemon: &Daemon, mode: &str) {
    daemon.client().set_mode(&json!({ "mode": mode })).unwrap();
}

#[test]
fn events_begin_with_the_state_and_go_on_over_a_restart() {
    let mut daemon = Daemon::new();
    let mut events = daemon.client().events().unwrap().map(Result::unwrap);
    assert_eq!(events.next().unwrap().name, "state");
    daemon.restart();
    assert!(events.by_ref().any(|event| event.name == "reconnected"));
    assert_eq!(events.next().unwrap().name, "state");
}

#[test]
fn without_reconnecting_the_end_is_an_error_and_the_last_item() {
    let mut daemon = Daemon::new();
    let mut events = daemon.client().events().unwrap().reconnecting_for(Duration::ZERO);
    assert!(events.next().unwrap().is_ok());
    daemon.kill();
    let last = events.by_ref().find_map(Result::err);
    assert!(matches!(last, Some(Error::ConnectionLost { .. })), "{last:?}");
    assert!(events.next().is_none());
}

#[test]
fn another_thread_ends_the_iteration() {
    let mut daemon = Daemon::new();
    for kill in [false, true] {
        let events = daemon.client().events().unwrap();
        let stop = events.stopper();
        let stopping = thread::spawn(move || {
            thread::sleep(Duration::from_millis(500));
            stop.stop();
        });
        if kill {
            // While it waits for the next try.
            daemon.kill();
        }
        assert!(events.map(Result::unwrap).count() >= usize::from(!kill));
        stopping.join().unwrap();
    }
}

#[test]
fn a_slow_reader_still_hears_of_a_change() {
    let daemon = Daemon::new();
    let mut events = daemon.client().events().unwrap().map(Result::unwrap);
    events.next().unwrap();
    thread::sleep(Duration::from_secs(4));
    enter(&daemon, "15W");
    assert_eq!(events.find(|event| event.name == "mode").unwrap().data["to"], "15W");
}

#[test]
fn a_recommendation_is_kept_true() {
    let daemon = Daemon::new();
    let request = RecommendRequest::new(chat()).engine("llama.cpp");
    let mut events = daemon.client().watch(&request).unwrap().map(Result::unwrap);
    let first = events.next().unwrap();
    assert_eq!(first.name, "recommend");
    assert!(first.parse::<RecommendAnswer>().unwrap().feasible);
    enter(&daemon, "15W");
    let stale = events.next().unwrap();
    assert_eq!(stale.name, "advice_stale");
    assert!(!stale.parse::<AdviceStale>().unwrap().reason.is_empty());
    assert!(stale.parse::<RecommendAnswer>().is_err_and(|error| error.code() == "unexpected"));
    assert_eq!(events.next().unwrap().name, "recommend");
    let wrong = daemon.client().watch(&json!({"workload": {}}));
    assert!(matches!(wrong, Err(Error::Refused(_))));
}

#[test]
fn asynchronous_events_reconnect_too_and_lose_nothing_when_they_are_dropped() {
    let mut daemon = Daemon::new();
    let client = daemon.asynchronous();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut events = runtime.block_on(client.events()).unwrap();
    assert_eq!(runtime.block_on(events.next()).unwrap().unwrap().name, "state");
    daemon.restart();
    let gap = runtime.block_on(async {
        loop {
            // Again and again given up while it waits.
            if let Ok(next) = tokio::time::timeout(Duration::from_millis(700), events.next()).await {
                let event: Event = next.unwrap().unwrap();
                if event.name == "reconnected" {
                    return event.data["gap_s"].as_f64().unwrap();
                }
            }
        }
    });
    assert!(gap > 0.0);
    events.stopper().stop();
    assert!(runtime.block_on(events.next()).is_none());
}

#[test]
fn a_hold_lasts_as_long_as_its_guard() {
    let daemon = Daemon::new();
    let client = daemon.client();
    let active = || client.modes().unwrap().active;
    let before = active();
    let hold = client.hold(&fifteen_watts()).unwrap();
    let state = hold.state();
    assert_eq!((&*state.mode, state.satisfied, state.ended), ("15W", Some(true), None));
    assert_eq!(active().as_deref(), Some("15W"));
    let holds = client.holds().unwrap().holds;
    assert_eq!((&*holds[0].app_id, &*holds[0].reason, holds[0].attached), ("test", "to see", true));
    assert_eq!(hold.release().ended.as_deref(), Some("released"));
    assert!(until(|| active() == before));
    let none = fifteen_watts().constraints(ConstraintsOfHold::default().mode("no such mode"));
    assert_eq!(client.hold(&none).unwrap_err().code(), "unknown_mode");
}

#[test]
fn a_hold_goes_on_over_a_restart_of_the_daemon() {
    let mut daemon = Daemon::new();
    let client = daemon.client();
    let changes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&changes);
    let hold =
        client.hold_with(&fifteen_watts(), move |state| seen.lock().unwrap().push(state.clone())).unwrap();
    daemon.restart();
    assert!(until(|| changes.lock().unwrap().last().is_some_and(|last| last.satisfied == Some(true))));
    assert_eq!(changes.lock().unwrap()[0].satisfied, None);
    // The helper of a simulated board ends with the daemon, so this is a hold in place of the other, with an id of its own.
    assert_eq!(hold.state().satisfied, Some(true));
    assert_eq!(client.modes().unwrap().active.as_deref(), Some("15W"));
    assert_eq!(client.holds().unwrap().holds.len(), 1);
    client.release_hold(hold.state().id).unwrap();
    assert!(until(|| hold.state().ended.is_some()));
    assert_eq!(hold.release().ended.as_deref(), Some("released"));
}

#[test]
fn a_hold_that_is_refused_after_a_restart_says_so() {
    let mut daemon = Daemon::new();
    let hold = daemon.client().hold(&fifteen_watts()).unwrap();
    daemon.kill();
    daemon.configure(&CONTROLLED.replace("enabled = true", "enabled = false"));
    daemon.start();
    assert!(until(|| hold.state().ended.is_some()));
    let state = hold.release();
    assert_eq!(state.ended.as_deref(), Some("control_disabled"));
    assert!(state.unmet.is_some());
}

#[test]
fn a_hold_whose_daemon_is_gone_is_given_up_at_once() {
    let mut daemon = Daemon::new();
    let hold = daemon.client().hold(&fifteen_watts()).unwrap();
    daemon.kill();
    assert!(until(|| hold.state().satisfied.is_none()));
    assert_eq!(hold.release().ended.as_deref(), Some("released"));
}

/// Takes connections where a daemon was and never answers; hears of the first one that asked something.
fn silent(socket: &Path) -> (UnixListener, UnixStream) {
    let _ = fs::remove_file(socket);
    let listener = UnixListener::bind(socket).unwrap();
    let (mut connection, _) = listener.accept().unwrap();
    assert!(connection.read(&mut [0; 64]).unwrap() > 0);
    (listener, connection)
}

#[test]
fn a_hold_is_given_up_at_once_while_it_is_asked_for_again() {
    let mut daemon = Daemon::new();
    let hold = daemon.client().hold(&fifteen_watts()).unwrap();
    daemon.kill();
    let (_listener, mut connection) = silent(&daemon.socket().join("control.sock"));
    let releasing = thread::spawn(move || hold.release());
    assert!(until(|| releasing.is_finished()));
    assert_eq!(releasing.join().unwrap().ended.as_deref(), Some("released"));
    // Nothing is left that a daemon could take for a hold.
    assert!(connection.read_to_end(&mut Vec::new()).is_ok());
}

#[test]
fn events_end_at_once_while_they_are_asked_for_again() {
    let mut daemon = Daemon::new();
    let long = Duration::from_secs(3600);
    let events = daemon.client().with_timeout(long).events().unwrap();
    let stop = events.stopper();
    let reading = thread::spawn(move || events.map(Result::unwrap).count());
    let client = daemon.asynchronous().with_timeout(long);
    let (tell, told) = std::sync::mpsc::channel();
    let awaiting = thread::spawn(move || {
        asynchronously(async {
            let mut events = client.events().await.unwrap();
            tell.send(events.stopper()).unwrap();
            while events.next().await.transpose().unwrap().is_some() {}
        });
    });
    let asynchronous_stop = told.recv().unwrap();
    daemon.kill();
    let (listener, _first) = silent(&daemon.socket().join("query.sock"));
    let _second = listener.accept().unwrap();
    stop.stop();
    asynchronous_stop.stop();
    assert!(until(|| reading.is_finished() && awaiting.is_finished()));
    reading.join().unwrap();
    awaiting.join().unwrap();
}

#[test]
fn a_hold_whose_callback_panics_says_that_it_is_over() {
    let mut daemon = Daemon::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let hold = daemon.client().hold_with(&fifteen_watts(), |_| panic!("on purpose")).unwrap();
    let (client, request) = (daemon.asynchronous(), fifteen_watts());
    let other = runtime.block_on(client.hold_with(&request, |_| panic!("on purpose"))).unwrap();
    let third = runtime.block_on(client.hold(&request)).unwrap();
    daemon.kill();
    let ends = |state: HoldState| state.ended.as_deref() == Some("abandoned") && state.satisfied.is_none();
    assert!(until(|| {
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
        ends(hold.state()) && ends(other.state())
    }));
    assert_eq!(third.state().ended, None);
    drop(runtime);
    assert!(until(|| ends(third.state())));
    assert_eq!(hold.release().ended.as_deref(), Some("abandoned"));
}

#[test]
fn asynchronous_holds_do_the_same() {
    let mut daemon = Daemon::new();
    let (client, asked) = (daemon.asynchronous(), daemon.client());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let hold = runtime.block_on(client.hold(&fifteen_watts())).unwrap();
    daemon.restart();
    let ids = (0..600).find_map(|_| {
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(100)).await });
        let state = hold.state();
        let held = asked.holds().ok()?.holds;
        (state.satisfied == Some(true) && held.len() == 1 && state.mode == "15W").then_some(state.id)
    });
    assert!(ids.is_some(), "{:?}", hold.state());
    drop(hold);
    assert!(until(|| asked.holds().unwrap().holds.is_empty()));
}

/// In a process of its own, because the limit is that of a process.
#[test]
fn a_hold_outlives_a_lack_of_descriptors() {
    alone("streams::short_of_descriptors", |command| command);
}

#[test]
#[ignore = "the other half of the test above"]
fn short_of_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let (told, asked) = (Mutex::new(told), std::sync::atomic::AtomicU64::new(0));
    let impostor = Impostor::control(move |visit| {
        visit.read();
        let id = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
        let held = json!({"event": "held", "id": id, "mode": "15W", "satisfied": true}).to_string();
        visit.send(format!("HTTP/1.1 200 OK\r\n\r\n{held}\n").as_bytes());
        told.lock().unwrap().recv().unwrap();
    });
    let mine = impostor.client().hold(&fifteen_watts()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let turn = |time| runtime.block_on(async { tokio::time::sleep(Duration::from_millis(time)).await });
    let theirs = runtime.block_on(impostor.asynchronous().hold(&fifteen_watts())).unwrap();
    let whole = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..whole }).unwrap();
    match impostor.client().hold(&fifteen_watts()) {
        Err(error @ Error::System { .. }) => {
            assert!(error.is_passing() && error.hint().unwrap().contains("ulimit -n"), "{error}");
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains("Too many open files") && !error.to_string().contains(&cause), "{error}");
        }
        other => panic!("{other:?}"),
    }
    tell.send(()).unwrap();
    tell.send(()).unwrap();
    let both = |satisfied| {
        turn(50);
        mine.state().satisfied == satisfied && theirs.state().satisfied == satisfied
    };
    assert!(until(|| both(None)));
    // Asked for again, more than once.
    turn(1500);
    assert_eq!((mine.state().ended, theirs.state().ended), (None, None));
    setrlimit(Resource::Nofile, whole).unwrap();
    assert!(until(|| both(Some(true))));
    assert_eq!(mine.state().id.min(theirs.state().id), 3);
    assert_eq!(mine.release().ended.as_deref(), Some("released"));
    assert_eq!(theirs.release().ended.as_deref(), Some("released"));
}

/// In a process of its own, because other threads of this one may hold what the child needs.
#[test]
fn a_forked_child_shares_the_client_and_leaves_the_hold_alone() {
    let daemon = Daemon::new();
    alone("streams::forks", |command| command.env("ROOFLINED_SOCKET", daemon.socket()));
    assert!(until(|| daemon.client().holds().unwrap().holds.is_empty()));
}

#[test]
#[ignore = "the other half of the test above"]
#[expect(unsafe_code, reason = "fork; the child is alone, asks and exits")]
fn forks() {
    let client = rooflined_client::Client::new();
    let hold = client.hold(&fifteen_watts()).unwrap();
    let mut events = client.events().unwrap();
    client.board().unwrap();
    // SAFETY: nothing else runs but the hold's own thread, which waits for its socket.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(events);
        let ended = hold.release().ended;
        let is_held = client.holds().is_ok_and(|answer| answer.holds.len() == 1);
        let is_well = is_held && ended.as_deref() == Some("released") && client.board().is_ok();
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!is_well)) };
    }
    let mut status = -1;
    // SAFETY: the child is ours, and the status a valid place.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(client.board().is_ok() && events.next().unwrap().is_ok());
    assert_eq!(client.holds().unwrap().holds.len(), 1);
    assert_eq!(hold.release().ended.as_deref(), Some("released"));
}
