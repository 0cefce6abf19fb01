//! Bytes on a connection to either socket: whatever comes, the server answers or closes, is never at fault, and never hangs.
#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use daemon::server::Limits;
use libfuzzer_sys::fuzz_target;
use rooflined_fuzz::support::{Server, snapshot};

/// What has not come by then waits for more from the client, or for the daemon.
const PATIENCE: Duration = Duration::from_millis(5);
/// Much longer than any answer takes, and shorter than libFuzzer waits.
const HANGS: Duration = Duration::from_secs(6);

thread_local! {
    /// No streams, for they end with their clients only.
    static SERVER: Server = Server::start(snapshot(), Limits { streams: 0, ..Limits::default() });
}

/// All that comes back for the bytes.
fn exchange(socket: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    stream.set_write_timeout(Some(HANGS)).expect("a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    // It may close before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let _ = stream.shutdown(Shutdown::Write);
            stream.set_read_timeout(Some(HANGS)).expect("a socket");
            let rest = stream.read_to_end(&mut answer);
            let hangs = rest.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            assert!(!hangs, "a connection stays open that its client has closed");
        }
        Ok(_) | Err(_) => {}
    }
    answer
}

fuzz_target!(|bytes: &[u8]| {
    // The daemon of the tests never ends a calibration that is waited for, and a client that has sent more behind it is not
    // seen to go before that.
    if bytes.windows(6).any(|word| word == b"\"wait\"") {
        return;
    }
    SERVER.with(|server| {
        while server.seen.try_recv().is_ok() {}
        for socket in [server.query(), server.control_socket()] {
            let answer = exchange(&socket, bytes);
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", answer.escape_ascii());
            // Not every 500 is a fault of the server: there is no probe here that could measure.
            let fault = b"\"code\":\"internal\"";
            assert!(!answer.windows(fault.len()).any(|part| part == fault), "{}", answer.escape_ascii());
        }
    });
});
