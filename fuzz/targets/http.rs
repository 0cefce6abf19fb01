//! Bytes on a connection to either socket: whatever comes, the server answers or closes, is never at fault, and never hangs.
#![no_main]

use std::io::Write;

use daemon::server::Limits;
use libfuzzer_sys::fuzz_target;
use rooflined_fuzz::support::{Server, snapshot};
use rooflined_fuzz::{connect, rest, waits_for_ever};

thread_local! {
    /// No streams, for they end with their clients only.
    static SERVER: Server = Server::start(snapshot(), Limits { streams: 0, ..Limits::default() });
}

fuzz_target!(|bytes: &[u8]| {
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
});
