//! Sockets, and the two ways to wait for them. Whatever else a client does is written once, over [`Io`].

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType,
};

/// What a socket is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// How to wait. The blocking way waits within `poll` of its futures, which are therefore ready at once ([`now`]).
pub(crate) trait Io: Send + Sync + 'static {
    type Socket: AsFd + std::fmt::Debug + Send + Sync + 'static;

    fn wrap(socket: OwnedFd) -> io::Result<Self::Socket>;

    fn unwrap(socket: Self::Socket) -> io::Result<OwnedFd>;

    /// Does `operation` as soon as it does not have to wait; `TimedOut` after `until`, when it is not begun any more.
    fn attempt<T: Send>(
        socket: &Self::Socket,
        direction: Direction,
        until: Instant,
        operation: impl FnMut(BorrowedFd<'_>) -> io::Result<T> + Send,
    ) -> impl Future<Output = io::Result<T>> + Send;

    /// Waits, but no longer than until `over`.
    fn pause(time: Duration, over: &Over) -> impl Future<Output = ()> + Send;
}

/// The value of a future that never waits for anybody else.
#[cfg(feature = "blocking")]
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    use std::task::{Context, Poll, Waker};
    let mut context = Context::from_waker(Waker::noop());
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

/// Waits by `poll`.
#[cfg(feature = "blocking")]
#[derive(Debug)]
pub(crate) struct Blocking;

#[cfg(feature = "blocking")]
impl Io for Blocking {
    type Socket = OwnedFd;

    fn wrap(socket: OwnedFd) -> io::Result<OwnedFd> {
        Ok(socket)
    }

    fn unwrap(socket: OwnedFd) -> io::Result<OwnedFd> {
        Ok(socket)
    }

    async fn attempt<T: Send>(
        socket: &OwnedFd,
        direction: Direction,
        until: Instant,
        mut operation: impl FnMut(BorrowedFd<'_>) -> io::Result<T> + Send,
    ) -> io::Result<T> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match operation(socket.as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            let interest = match direction {
                Direction::Read => PollFlags::IN,
                Direction::Write => PollFlags::OUT,
            };
            // A wait that is too long for the type is as good as for ever.
            let limit = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(socket, interest)], limit.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn pause(time: Duration, over: &Over) {
        over.wait(time);
    }
}

/// Waits by tokio. Sockets are registered for one exchange each, so a client may be used on several runtimes.
#[cfg(feature = "tokio")]
#[derive(Debug)]
pub(crate) struct Tokio;

#[cfg(feature = "tokio")]
impl Io for Tokio {
    type Socket = tokio::net::UnixStream;

    fn wrap(socket: OwnedFd) -> io::Result<Self::Socket> {
        tokio::net::UnixStream::from_std(socket.into())
    }

    fn unwrap(socket: Self::Socket) -> io::Result<OwnedFd> {
        Ok(socket.into_std()?.into())
    }

    async fn attempt<T: Send>(
        socket: &Self::Socket,
        direction: Direction,
        until: Instant,
        mut operation: impl FnMut(BorrowedFd<'_>) -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let interest = match direction {
            Direction::Read => tokio::io::Interest::READABLE,
            Direction::Write => tokio::io::Interest::WRITABLE,
        };
        // Ahead of the time limit tokio looks whether it is done.
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let done = socket.async_io(interest, || operation(socket.as_fd()));
        tokio::time::timeout_at(until.into(), done).await?
    }

    async fn pause(time: Duration, over: &Over) {
        // Hears of what is told from here on.
        let told = over.told.notified();
        if !over.is_over() {
            let _ = tokio::time::timeout(time, told).await;
        }
    }
}

/// A connection that has been asked for; it may still take its time where the daemon's backlog is full.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Over `AF_UNIX` it is done at once, or fails with `WouldBlock` while the daemon's backlog is full.
pub(crate) fn connect(socket: &OwnedFd, path: &Path) -> io::Result<()> {
    Ok(rustix::net::connect(socket, &SocketAddrUnix::new(path)?)?)
}

/// Sends a part of `data`; how much. `files` go with its first byte.
pub(crate) fn send(socket: BorrowedFd<'_>, data: &[u8], files: &[Arc<OwnedFd>]) -> io::Result<usize> {
    if files.is_empty() {
        return Ok(rustix::net::send(socket, data, SendFlags::NOSIGNAL)?);
    }
    let files: Vec<BorrowedFd<'_>> = files.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(rustix::net::sendmsg(socket, &[IoSlice::new(data)], &mut control, SendFlags::NOSIGNAL)?)
}

/// What has come, up to the length of `buffer`; 0 at the end.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    match rustix::net::recv(socket, buffer, RecvFlags::empty()) {
        Ok((received, _)) => Ok(received),
        Err(Errno::CONNRESET) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Whether an idle connection is open and nothing has come: what comes before anything was asked is the daemon's farewell.
pub(crate) fn is_quiet(socket: impl AsFd) -> bool {
    let mut byte = [0];
    matches!(rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(Errno::AGAIN))
}

/// Ends a connection also where somebody reads from it, or a forked child still has it.
pub(crate) fn shut_down(socket: impl AsFd) {
    // It may have ended by itself.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Locks what no panic can leave half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether something is no longer wanted, told from another thread; wakes whoever waits for the connection or pauses.
#[derive(Debug)]
pub(crate) struct Over {
    state: Mutex<OverState>,
    changed: Condvar,
    #[cfg(feature = "tokio")]
    told: tokio::sync::Notify,
    /// A forked child must not end what is its parent's.
    process: u32,
}

#[derive(Default)]
struct OverState {
    is_over: bool,
    connection: Option<Arc<dyn AsFd + Send + Sync>>,
}

impl std::fmt::Debug for OverState {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("OverState").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl Over {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            #[cfg(feature = "tokio")]
            told: tokio::sync::Notify::new(),
            process: std::process::id(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// Whether this is the process that it was made in.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// From now on this connection, if any, is the one to be ended.
    pub(crate) fn watch(&self, connection: Option<Arc<dyn AsFd + Send + Sync>>) {
        let mut state = lock(&self.state);
        if state.is_over {
            connection.into_iter().for_each(shut_down_shared);
        } else {
            state.connection = connection;
        }
    }

    pub(crate) fn set(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        let connection = state.connection.take();
        if self.is_own() {
            connection.into_iter().for_each(shut_down_shared);
        }
        self.changed.notify_all();
        #[cfg(feature = "tokio")]
        self.told.notify_waiters();
    }

    #[cfg(feature = "blocking")]
    fn wait(&self, time: Duration) {
        let state = lock(&self.state);
        // Poisoned or timed out, the pause is over.
        drop(self.changed.wait_timeout_while(state, time, |state| !state.is_over));
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given back with that")]
fn shut_down_shared(connection: Arc<dyn AsFd + Send + Sync>) {
    shut_down(connection.as_fd());
}
