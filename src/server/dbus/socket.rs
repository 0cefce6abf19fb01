//! The socket of the bus, through which no message comes that is larger than a call may be.
//!
//! The bus passes on messages of 32 MiB and more from anybody, to any path and interface, those included that zbus answers
//! by itself. A body beyond [`MAX_BODY`] is thrown away as it is read, and the header that is passed on says that it is
//! empty; a message whose header is longer than that is thrown away whole. So a message takes no more memory than it may,
//! what decodes it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use zbus::Address;
use zbus::address::Transport;
use zbus::address::transport::UnixSocket;
use zbus::connection::socket::{ReadHalf, Socket, Split, WriteHalf};
use zbus::export::async_trait::async_trait;

/// Bytes of a message's body, as over HTTP.
pub const MAX_BODY: usize = 64 * 1024;
/// Bytes of the fields of a message's header: names, a path and a signature.
const MAX_FIELDS: usize = 64 * 1024;
/// Bytes of a message before its fields.
const FIXED: usize = 16;
/// Descriptors that one message may bring, as the bus allows.
const MAX_DESCRIPTORS: usize = 16;

/// How often something came from the bus.
pub type Heard = Arc<AtomicU64>;

/// A connection to a bus that is not authenticated yet.
#[derive(Debug)]
pub struct BusSocket {
    stream: UnixStream,
    pub heard: Heard,
}

impl BusSocket {
    /// Connects to a Unix socket; `None` for an address of another kind.
    pub fn connect(address: &Address) -> io::Result<Option<Self>> {
        let Transport::Unix(unix) = address.transport() else { return Ok(None) };
        let at = match unix.path() {
            UnixSocket::File(path) => SocketAddr::from_pathname(path)?,
            UnixSocket::Abstract(name) => SocketAddr::from_abstract_name(name.as_encoded_bytes())?,
            _ => return Ok(None),
        };
        // On the same machine: it is there at once, or not at all.
        let stream = StdStream::connect_addr(&at)?;
        stream.set_nonblocking(true)?;
        Ok(Some(Self { stream: UnixStream::from_std(stream)?, heard: Heard::default() }))
    }
}

impl Socket for BusSocket {
    type ReadHalf = Reader;
    type WriteHalf = Writer;

    fn split(self) -> Split<Reader, Writer> {
        let stream = Arc::new(self.stream);
        let reader = Reader {
            stream: Arc::clone(&stream),
            heard: self.heard,
            part: Part::Line { begins: true },
            descriptors: Vec::new(),
        };
        Split::new(reader, Writer(stream))
    }
}

/// What comes next.
#[derive(Debug)]
enum Part {
    /// Of the authentication, which is over when a line begins as only a message does.
    Line {
        begins: bool,
    },
    /// The beginning of a message, of which so many bytes have come.
    Head {
        head: [u8; FIXED],
        read: usize,
    },
    /// The beginning of a message, of which so many bytes have been passed on.
    Passed {
        head: [u8; FIXED],
        passed: usize,
        rest: Rest,
    },
    Rest(Rest),
}

/// What follows the beginning of a message.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// Bytes to pass on.
    pass: usize,
    /// Bytes to throw away behind them.
    drop: usize,
}

#[derive(Debug)]
pub struct Reader {
    stream: Arc<UnixStream>,
    heard: Heard,
    part: Part,
    /// That came with what has not been passed on.
    descriptors: Vec<OwnedFd>,
}

impl Reader {
    /// Reads what there is, and keeps the descriptors that came with it.
    async fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let stream = &self.stream;
        let (read, descriptors) = stream
            .async_io(Interest::READABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
                let mut ancillary = RecvAncillaryBuffer::new(&mut space);
                let received = recvmsg(
                    &**stream,
                    &mut [IoSliceMut::new(buffer)],
                    &mut ancillary,
                    RecvFlags::CMSG_CLOEXEC,
                )?;
                let mut descriptors = Vec::new();
                for message in ancillary.drain() {
                    if let RecvAncillaryMessage::ScmRights(those) = message {
                        descriptors.extend(those);
                    }
                }
                Ok((received.bytes, descriptors))
            })
            .await?;
        self.heard.fetch_add(1, Ordering::Relaxed);
        self.descriptors.extend(descriptors);
        Ok(read)
    }
}

/// What follows a message's first bytes; the length in them is that of what is passed on. `None` for a message that
/// is thrown away whole, with its length.
fn admit(head: &mut [u8; FIXED]) -> Result<Rest, usize> {
    let number = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        // `l` is for little endian.
        (if head[0] == b'l' { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }) as usize
    };
    let (body, fields) = (number(4), number(12));
    let header = fields.next_multiple_of(8);
    if fields > MAX_FIELDS {
        return Err(header + body);
    }
    if body <= MAX_BODY {
        return Ok(Rest { pass: header + body, drop: 0 });
    }
    head[4..8].fill(0);
    Ok(Rest { pass: header, drop: body })
}

#[async_trait]
impl ReadHalf for Reader {
    async fn recvmsg(&mut self, out: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        // What is thrown away goes through here.
        let mut waste = [0; 4096];
        loop {
            match &mut self.part {
                // Byte by byte, because the first message may come right behind the last line.
                Part::Line { begins } => {
                    let begins = *begins;
                    let mut byte = [0];
                    if self.receive(&mut byte).await? == 0 {
                        return Ok((0, Vec::new()));
                    }
                    if begins && matches!(byte[0], b'l' | b'B') {
                        let mut head = [0; FIXED];
                        head[0] = byte[0];
                        self.part = Part::Head { head, read: 1 };
                        continue;
                    }
                    self.part = Part::Line { begins: byte[0] == b'\n' };
                    out[0] = byte[0];
                    return Ok((1, std::mem::take(&mut self.descriptors)));
                }
                Part::Head { head, read } if *read == FIXED => {
                    let mut head = *head;
                    self.part = match admit(&mut head) {
                        Ok(rest) => Part::Passed { head, passed: 0, rest },
                        Err(drop) => {
                            self.descriptors.clear();
                            Part::Rest(Rest { pass: 0, drop })
                        }
                    };
                }
                Part::Head { head, read } => {
                    let (mut head, mut read) = (*head, *read);
                    let more = self.receive(&mut head[read..]).await?;
                    if more == 0 {
                        return Ok((0, Vec::new()));
                    }
                    read += more;
                    self.part = Part::Head { head, read };
                }
                Part::Passed { head, passed, rest } if *passed < FIXED => {
                    let length = out.len().min(FIXED - *passed);
                    out[..length].copy_from_slice(&head[*passed..*passed + length]);
                    *passed += length;
                    if *passed == FIXED {
                        self.part = Part::Rest(*rest);
                    }
                    return Ok((length, std::mem::take(&mut self.descriptors)));
                }
                Part::Passed { rest, .. } => self.part = Part::Rest(*rest),
                Part::Rest(Rest { pass: 0, drop: 0 }) => self.part = Part::Head { head: [0; FIXED], read: 0 },
                &mut Part::Rest(Rest { pass: 0, drop }) => {
                    let length = waste.len().min(drop);
                    let read = self.receive(&mut waste[..length]).await?;
                    if read == 0 {
                        return Ok((0, Vec::new()));
                    }
                    self.part = Part::Rest(Rest { pass: 0, drop: drop - read });
                }
                &mut Part::Rest(Rest { pass, drop }) => {
                    let length = out.len().min(pass);
                    let read = self.receive(&mut out[..length]).await?;
                    self.part = Part::Rest(Rest { pass: pass - read, drop });
                    return Ok((read, std::mem::take(&mut self.descriptors)));
                }
            }
        }
    }

    fn can_pass_unix_fd(&self) -> bool {
        true
    }
}

#[derive(Debug)]
pub struct Writer(Arc<UnixStream>);

#[async_trait]
impl WriteHalf for Writer {
    async fn sendmsg(&mut self, buffer: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.0
            .async_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
                }
                let flags = SendFlags::NOSIGNAL;
                Ok(sendmsg(&*self.0, &[IoSlice::new(buffer)], &mut ancillary, flags)?)
            })
            .await
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Both)?)
    }

    fn can_pass_unix_fd(&self) -> bool {
        true
    }
}
