//! Running out of file descriptors. The limit is the process's, so the test starts this program again for itself.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its world does")]

use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rooflined::server::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{Server, ask, snapshot};

/// Set where the test runs with nothing beside it.
const ALONE: &str = "ROOFLINED_TEST_ALONE";

#[test]
fn a_server_without_descriptors_recovers_when_there_are_some_again() {
    if std::env::var_os(ALONE).is_some() {
        return run_out_of_descriptors();
    }
    let name = "descriptors::a_server_without_descriptors_recovers_when_there_are_some_again";
    let child =
        Command::new(std::env::current_exe().unwrap()).args(["--exact", name]).env(ALONE, "1").output();
    let output = match child {
        Ok(output) => output,
        // ENOEXEC: this is another machine's program, run by an emulator that the kernel does not know.
        Err(error) if error.raw_os_error() == Some(8) => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    // Without the count a test of another name would pass.
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn run_out_of_descriptors() {
    let server = Server::start(snapshot(), Limits::default());
    let socket = server.query();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(80), maximum: before.maximum }).unwrap();
    // Client and server share the limit: one of the two fails first, and the other right after.
    let mut held = Vec::new();
    while let Ok(stream) = UnixStream::connect(&socket) {
        held.push(stream);
        std::thread::sleep(Duration::from_millis(2));
        assert!(held.len() < 200);
    }
    std::thread::sleep(Duration::from_millis(300));
    held.truncate(held.len() / 2);
    // The server sees the closed connections and accepts again.
    let begun = Instant::now();
    let status = loop {
        match UnixStream::connect(&socket) {
            Ok(_) => break ask(&socket, "GET", "/-/healthy", "").status,
            Err(_) => assert!(begun.elapsed() < Duration::from_secs(5)),
        }
    };
    assert_eq!(status, 200);
    setrlimit(Resource::Nofile, before).unwrap();
    drop(held);
    assert_eq!(ask(&socket, "GET", "/v1/state", "").status, 200);
}
