//! Descriptors that come with the bytes of a connection: whatever they are and wherever they come, the server answers or closes, is
//! never at fault, never hangs, and keeps none of them open.
//!
//! The input is the contents of a file behind their length (two bytes), and then pieces: what is attached (a byte), a length
//! (two bytes), and so many bytes of the connection.
#![no_main]

use std::fs::{self, File};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use daemon::server::Limits;
use libfuzzer_sys::fuzz_target;
use rooflined_fuzz::support::{Server, snapshot};
use rooflined_fuzz::{HANGS, connect, rest, waits_for_ever};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// More than a message may have are refused by the kernel.
const MOST: usize = 200;

thread_local! {
    /// No streams, for they end with their clients only.
    static SERVER: Server = Server::start(snapshot(), Limits { streams: 0, ..Limits::default() });
}

/// Descriptors of all kinds, of which a piece attaches one.
struct Kinds {
    file: File,
    others: Vec<OwnedFd>,
}

impl Kinds {
    fn new(contents: &[u8]) -> Self {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(contents).expect("memory");
        let open = |path: &str| OwnedFd::from(File::open(path).expect("it is there"));
        let writer = File::options().write(true).open("/dev/null").expect("it is there");
        // Nobody writes into the pipe, and the socket has nobody behind it.
        let (pipe, other_end) = rustix::pipe::pipe().expect("a pipe");
        let (socket, _) = UnixStream::pair().expect("a pair");
        let others = vec![
            open("/"),
            open("/dev/null"),
            open("/dev/zero"),
            open("/proc/self/maps"),
            writer.into(),
            pipe,
            other_end,
            socket.into(),
        ];
        Self { file, others }
    }

    /// The low half of the byte says which, the high half how many.
    fn chosen(&self, byte: u8) -> Vec<BorrowedFd<'_>> {
        let which = usize::from(byte & 0x0f);
        let kind = match which.checked_sub(8) {
            Some(other) => self.others[other].as_fd(),
            None => self.file.as_fd(),
        };
        let count = match usize::from(byte >> 4) {
            15 => MOST,
            count => count,
        };
        vec![kind; count]
    }
}

/// So many bytes behind their length, and what follows them.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_le_bytes(*length));
    Some(rest.split_at(length.min(rest.len())))
}

fn send(stream: &UnixStream, bytes: &[u8], attached: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(attached.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(attached)));
    // It may have closed.
    sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).is_ok()
}

fn open() -> usize {
    fs::read_dir("/proc/self/fd").expect("a process has one").count()
}

fuzz_target!(|input: &[u8]| {
    let Some((contents, mut pieces)) = counted(input) else { return };
    if waits_for_ever(input) {
        return;
    }
    SERVER.with(|server| {
        while server.seen.try_recv().is_ok() {}
        let before = open();
        let kinds = Kinds::new(contents);
        let mut streams = [connect(&server.query()), connect(&server.control_socket())];
        while let Some((attached, (bytes, after))) =
            pieces.split_first().and_then(|(attached, rest)| Some((*attached, counted(rest)?)))
        {
            pieces = after;
            let descriptors = kinds.chosen(attached);
            if bytes.is_empty() || !streams.iter().all(|stream| send(stream, bytes, &descriptors)) {
                break;
            }
        }
        for stream in &mut streams {
            let answer = rest(stream);
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", answer.escape_ascii());
        }
        drop((streams, kinds));
        let begun = Instant::now();
        while open() > before {
            assert!(begun.elapsed() < HANGS, "{} descriptors stay open", open() - before);
            sleep(Duration::from_millis(1));
        }
    });
});
