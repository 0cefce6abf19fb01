//! Questions and answers: connections that are kept, found closed, and tried again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::address::{Socket, places, said};
use crate::blocks::{Blocks, Event, Framing};
use crate::body::Encoded;
use crate::error::{Error, Refused, Result};
use crate::http::Response;
use crate::io::{self as sockets, Direction, Io, Over, lock};
use crate::types::ErrorBody;

const MAX_ANSWER_BYTES: usize = 64 << 20;
const BUFFER_BYTES: usize = 64 << 10;
/// An idle connection that is older is not used again: the daemon closes it after five seconds.
const IDLE: Duration = Duration::from_secs(3);
/// Of one socket.
const MAX_IDLE: usize = 8;
/// To get a connection, where the daemon's backlog is full.
const CONNECT: Duration = Duration::from_secs(5);
const BACKLOG_PAUSE: Duration = Duration::from_millis(20);
/// The daemon says that it is still there every 15 s; a stream that is silent for longer is broken.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest wait that a clock can be asked for.
const LONGEST: Duration = Duration::from_secs(1 << 31);

/// By when a whole exchange has to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    of: Duration,
    until: Instant,
}

impl Limit {
    pub(crate) fn new(of: Duration) -> Self {
        Self { of, until: Instant::now() + of.min(LONGEST) }
    }

    /// What became of a wait, as the error of an exchange.
    fn failed(self, why: io::Error, direction: Direction, route: &str) -> Error {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut};
        match why.kind() {
            TimedOut => self.passed(route),
            BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected => {
                Error::ConnectionLost { route: route.to_owned(), source: Some(Arc::new(why)) }
            }
            // The daemon is as well as ever.
            _ => Error::system(
                match direction {
                    Direction::Write => format!("{route} could not be sent"),
                    Direction::Read => format!("the answer to {route} could not be read"),
                },
                why,
            ),
        }
    }

    fn passed(self, route: &str) -> Error {
        Error::TimedOut { route: route.to_owned(), limit: self.of }
    }
}

fn no_socket(why: io::Error) -> Error {
    Error::system("no socket can be had", why)
}

/// One daemon: where it is, and connections to it that wait for the next question.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// As it was given; otherwise it is looked for whenever a connection is made.
    given: Option<PathBuf>,
    idle: Mutex<Idle>,
}

#[derive(Debug)]
struct Idle {
    /// Connections belong to the process that opened them, and not to its forked children.
    process: u32,
    connections: Vec<(Socket, OwnedFd, Instant)>,
}

impl Daemon {
    pub(crate) fn new(given: Option<&Path>) -> Self {
        let idle = Idle { process: std::process::id(), connections: Vec::new() };
        Self { given: given.map(Path::to_owned), idle: Mutex::new(idle) }
    }

    /// The body of the answer.
    pub(crate) async fn ask<I: Io>(&self, request: &Encoded, limit: Limit) -> Result<Vec<u8>> {
        if let Some(kept) = self.take(request.socket) {
            let kept = I::wrap(kept).map_err(no_socket)?;
            match self.exchange::<I>(request, kept, limit).await {
                // Closed before it saw the request, or while it answered: the same question may be asked again.
                Err(Error::ConnectionLost { .. }) if !request.changes => {}
                done => return done,
            }
        }
        let connection = self.connect::<I>(request, limit, &Over::new()).await?;
        self.exchange::<I>(request, connection, limit).await
    }

    async fn exchange<I: Io>(
        &self,
        request: &Encoded,
        connection: I::Socket,
        limit: Limit,
    ) -> Result<Vec<u8>> {
        send::<I>(&connection, request, limit).await?;
        let (mut response, mut body) = (Response::to(&request.method), Vec::new());
        while !response.is_complete() {
            receive::<I>(&connection, &mut response, &mut body, &request.route, limit).await?;
        }
        if response.keeps() {
            // One that cannot be given back is not kept.
            let _ = I::unwrap(connection).map(|connection| self.keep(request.socket, connection));
        }
        accepted(response.status(), body)
    }

    /// An idle connection that the daemon has not closed.
    fn take(&self, socket: Socket) -> Option<OwnedFd> {
        let mut idle = lock(&self.idle);
        if idle.process != std::process::id() {
            // Those of the parent, who goes on using them.
            *idle = Idle { process: std::process::id(), connections: Vec::new() };
        }
        while let Some(index) = idle.connections.iter().rposition(|(kind, ..)| *kind == socket) {
            let (_, connection, since) = idle.connections.remove(index);
            if since.elapsed() < IDLE && sockets::is_quiet(&connection) {
                return Some(connection);
            }
        }
        None
    }

    fn keep(&self, socket: Socket, connection: OwnedFd) {
        let mut idle = lock(&self.idle);
        // What nobody would use any more leaves its place to others.
        idle.connections.retain(|(.., since)| since.elapsed() < IDLE);
        let alike = idle.connections.iter().filter(|(kind, ..)| *kind == socket).count();
        if idle.process == std::process::id() && alike < MAX_IDLE {
            idle.connections.push((socket, connection, Instant::now()));
        }
    }

    /// Closes idle connections.
    pub(crate) fn close(&self) {
        lock(&self.idle).connections.clear();
    }

    /// Connects to the first daemon that takes a connection, of those that are there now.
    async fn connect<I: Io>(&self, request: &Encoded, limit: Limit, over: &Over) -> Result<I::Socket> {
        let (mut tried, mut denied) = (Vec::new(), None);
        for place in places(self.given.as_deref()) {
            let path = place.address.of(request.socket);
            if let Some(objection) = place.objection {
                tried.push((path.to_owned(), objection));
                continue;
            }
            if Instant::now() >= limit.until {
                return Err(limit.passed(&request.route));
            }
            let connection = sockets::open().map_err(no_socket)?;
            let until = limit.until.min(Instant::now() + CONNECT);
            let why = loop {
                match sockets::connect(&connection, path) {
                    Ok(()) => return I::wrap(connection).map_err(no_socket),
                    Err(why)
                        if why.kind() == io::ErrorKind::WouldBlock
                            && Instant::now() < until
                            && !over.is_over() =>
                    {
                        I::pause(BACKLOG_PAUSE, over).await;
                    }
                    Err(why) => break why,
                }
            };
            if why.kind() == io::ErrorKind::PermissionDenied {
                denied.get_or_insert_with(|| path.to_owned());
            }
            if why.kind() == io::ErrorKind::WouldBlock && Instant::now() >= limit.until {
                return Err(limit.passed(&request.route));
            }
            tried.push((path.to_owned(), said(&why)));
        }
        // One that is closed to this user is the reason only where no other answers.
        Err(denied.map_or(Error::Unreachable { tried }, |path| Error::Denied { path }))
    }

    /// A connection of its own whose answer goes on; `over` ends the wait for it, and then the connection.
    pub(crate) async fn open<I: Io>(
        &self,
        request: &Encoded,
        framing: Framing,
        limit: Limit,
        over: &Over,
    ) -> Result<Stream<I>> {
        let connection = Arc::new(self.connect::<I>(request, limit, over).await?);
        over.watch(Some(Arc::clone(&connection) as _));
        // From here on the connection ends with the stream, also where this is given up.
        let mut stream = Stream {
            connection,
            response: Response::to(&request.method),
            blocks: Blocks::new(framing),
            first: Vec::new(),
            route: request.route.clone(),
            process: std::process::id(),
        };
        send::<I>(&stream.connection, request, limit).await?;
        while stream.response.status() == 0
            || (!is_success(stream.response.status()) && !stream.response.is_complete())
        {
            stream.receive(limit).await?;
        }
        stream.first = accepted(stream.response.status(), std::mem::take(&mut stream.first))?;
        Ok(stream)
    }
}

async fn send<I: Io>(connection: &I::Socket, request: &Encoded, limit: Limit) -> Result<()> {
    let mut sent = 0;
    while sent < request.data.len() {
        let files = if sent == 0 { &request.files[..] } else { &[] };
        let operation =
            |socket: std::os::fd::BorrowedFd<'_>| sockets::send(socket, &request.data[sent..], files);
        match I::attempt(connection, Direction::Write, limit.until, operation).await {
            Ok(more) => sent += more,
            Err(why) if matches!(why.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                // It may have been refused before it was read; then the answer is there.
                return if sockets::is_quiet(connection) {
                    Err(limit.failed(why, Direction::Write, &request.route))
                } else {
                    Ok(())
                };
            }
            Err(why) => return Err(limit.failed(why, Direction::Write, &request.route)),
        }
    }
    Ok(())
}

/// Takes what comes next into `response` and `body`.
async fn receive<I: Io>(
    connection: &I::Socket,
    response: &mut Response,
    body: &mut Vec<u8>,
    route: &str,
    limit: Limit,
) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let operation = |socket: std::os::fd::BorrowedFd<'_>| sockets::receive(socket, &mut buffer);
    let received = I::attempt(connection, Direction::Read, limit.until, operation).await;
    match received.map_err(|why| limit.failed(why, Direction::Read, route))? {
        0 if response.end() => Ok(()),
        0 => Err(Error::lost(route)),
        received => {
            response.feed(&buffer[..received], body)?;
            if body.len() > MAX_ANSWER_BYTES {
                return Err(Error::unexpected("the answer is larger than 64 MiB"));
            }
            Ok(())
        }
    }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// The body of an answer that says yes.
fn accepted(status: u16, body: Vec<u8>) -> Result<Vec<u8>> {
    #[derive(Deserialize)]
    struct Answer {
        error: ErrorBody,
    }
    if is_success(status) {
        return Ok(body);
    }
    let body = serde_json::from_slice::<Answer>(&body).map(|answer| answer.error);
    let body = body.unwrap_or_else(|_| ErrorBody {
        code: "http".into(),
        message: format!("the daemon answered {status}"),
        ..ErrorBody::default()
    });
    Err(Error::Refused(Refused { status, body }))
}

/// One connection whose answer goes on.
#[derive(Debug)]
pub(crate) struct Stream<I: Io> {
    connection: Arc<I::Socket>,
    response: Response,
    blocks: Blocks,
    first: Vec<u8>,
    route: String,
    process: u32,
}

impl<I: Io> Stream<I> {
    /// Adds the next bytes of the answer to `first`.
    async fn receive(&mut self, limit: Limit) -> Result<()> {
        receive::<I>(&self.connection, &mut self.response, &mut self.first, &self.route, limit).await
    }

    /// Waits for the next bytes and adds the events in them, perhaps none. May be dropped while it waits.
    ///
    /// # Errors
    /// [`Error::ConnectionLost`] at the end and after a minute of silence, [`Error::Unexpected`].
    pub(crate) async fn read(&mut self, into: &mut VecDeque<Event>) -> Result<()> {
        match self.read_within(into, Limit::new(SILENCE)).await {
            Err(Error::TimedOut { .. }) => Err(Error::lost(&self.route)),
            done => done,
        }
    }

    /// As [`read`](Self::read), in time.
    pub(crate) async fn read_within(&mut self, into: &mut VecDeque<Event>, limit: Limit) -> Result<()> {
        if !self.first.is_empty() {
            return self.blocks.feed(&std::mem::take(&mut self.first), into);
        }
        if self.response.is_complete() {
            return Err(Error::lost(&self.route));
        }
        let mut data = Vec::new();
        receive::<I>(&self.connection, &mut self.response, &mut data, &self.route, limit).await?;
        self.blocks.feed(&data, into)
    }
}

impl<I: Io> Drop for Stream<I> {
    fn drop(&mut self) {
        // Not by a forked child.
        if self.process == std::process::id() {
            sockets::shut_down(self.connection.as_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn idle_connections_of_one_socket_leave_those_of_the_other_their_places() {
        let daemon = Daemon::new(None);
        let count = || lock(&daemon.idle).connections.len();
        for _ in 0..MAX_IDLE + 2 {
            daemon.keep(Socket::Control, sockets::open().unwrap());
        }
        assert_eq!(count(), MAX_IDLE);
        daemon.keep(Socket::Query, sockets::open().unwrap());
        assert_eq!(count(), MAX_IDLE + 1);
        // Those that are too old are closed, and not counted.
        for (_, _, since) in &mut lock(&daemon.idle).connections {
            *since -= IDLE;
        }
        daemon.keep(Socket::Control, sockets::open().unwrap());
        assert_eq!(count(), 1);
    }

    #[test]
    fn only_a_connection_that_broke_is_told_as_that() {
        let limit = Limit::new(Duration::from_secs(1));
        let code = |errno: Errno| {
            let error = limit.failed(errno.into(), Direction::Write, "/v1/predict");
            (error.code().to_owned(), std::error::Error::source(&error).map(ToString::to_string))
        };
        let whole = |errno: Errno| Some(io::Error::from(errno).to_string());
        for errno in [Errno::PIPE, Errno::CONNRESET, Errno::CONNABORTED, Errno::NOTCONN] {
            assert_eq!(code(errno), ("connection_lost".into(), whole(errno)));
        }
        for errno in
            [Errno::TOOMANYREFS, Errno::NOBUFS, Errno::NOMEM, Errno::MSGSIZE, Errno::INVAL, Errno::MFILE]
        {
            assert_eq!(code(errno), ("system".into(), whole(errno)));
        }
        let late = limit.failed(io::ErrorKind::TimedOut.into(), Direction::Read, "/v1/predict");
        assert_eq!(late.code(), "timed_out");
    }
}
