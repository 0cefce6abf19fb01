//! Bytes on a connection to either socket: whatever comes, the server answers or closes, is never at fault, and never hangs.
use std::io::Write;

use crate::support::{Server, snapshot};
use crate::{connect, rest, waits_for_ever};
use rooflined::server::Limits;

thread_local! {
    /// No streams, for they end with their clients only.
    static SERVER: Server = Server::start(snapshot(), Limits { streams: 0, ..Limits::default() });
}

pub fn run(bytes: &[u8]) {
    if waits_for_ever(bytes) {
        return;
    }
    SERVER.with(|server| {
        while server.seen.try_recv().is_ok() {}
        for socket in [server.query(), server.control_socket()] {
            let mut stream = connect(&socket);
            // It may close before it has read everything.
            let _ = stream.write_all(bytes);
            let answer = rest(&mut stream);
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", answer.escape_ascii());
        }
    });
}
