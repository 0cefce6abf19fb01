//! Running out of file descriptors, in a process of its own because the limit is the process's.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its world does")]

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rooflined::server::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

mod support;

use support::{Server, ask, snapshot};

#[test]
fn a_server_without_descriptors_recovers_when_there_are_some_again() {
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
