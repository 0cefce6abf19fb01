//! What strangers talk to: HTTP over Unix sockets and D-Bus, both answered from one snapshot.
//!
//! The daemon owns everything that changes. It hands this module a `watch::Receiver<Arc<Snapshot>>` to answer from
//! and takes [`Request`]s from the other end of a [`Control`].

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use rooflined_advice::Catalogue;
use rooflined_core::refusal::Refusal;
use rooflined_governor::{Command, Event, Reply};
use rooflined_predict::snapshot::Snapshot;

pub mod access;
pub mod advice;
mod audit;
pub mod clock;
pub mod command;
pub mod dbus;
pub mod dispatch;
pub mod events;
pub mod http;

pub mod metrics;
pub mod model_files;
pub mod openapi;
pub mod power;
pub mod routes;
mod servers;
pub mod service;
pub mod shares;

use shares::Work;

pub use model_files::ModelFiles;

/// The newest snapshot, as the daemon publishes it.
pub type Snapshots = watch::Receiver<Arc<Snapshot>>;

/// What the servers send to the daemon.
#[derive(Debug)]
pub enum Request {
    /// A command with the way back. If [`oneshot::Sender::closed`] resolves, the client has gone.
    Command { command: Command, reply: oneshot::Sender<Reply> },
    /// Something that nobody waits for.
    Event(Event),
}

/// The servers' end of the channel to the daemon, and what they share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Control {
    tx: mpsc::Sender<Request>,
    /// Hardware, with a user's own beside what is built in, and whatever models have been read.
    pub catalogue: Arc<Catalogue>,
    pub(crate) work: Arc<Work>,
    /// How model files are read.
    pub files: Arc<ModelFiles>,
    /// Boot-time second in which the daemon was last told of a request.
    looked_at: Arc<AtomicU64>,
}

impl Control {
    /// A handle that sends into `tx`; the daemon keeps the receiver.
    #[must_use]
    pub fn new(tx: mpsc::Sender<Request>) -> Self {
        Self {
            tx,
            catalogue: Arc::default(),
            work: Arc::default(),
            files: Arc::default(),
            looked_at: Arc::default(),
        }
    }

    /// Sends a command and waits for the reply; dropping the future tells the daemon that the client has gone.
    /// `None` if the daemon is shutting down.
    pub async fn ask(&self, command: Command) -> Option<Reply> {
        let (reply, answer) = oneshot::channel();
        self.tx.send(Request::Command { command, reply }).await.ok()?;
        answer.await.ok()
    }

    /// Says that a connection has closed, to which holds may be attached. Never lost, though it may come a little later
    /// when the daemon is busy.
    pub fn closed(&self, connection: u64) {
        self.tell(Event::ConnectionClosed { connection });
    }

    /// Says that a connection broke without its client's doing: holds wait for that to come back.
    pub fn lost(&self, connection: u64) {
        self.tell(Event::ConnectionLost { connection });
    }

    /// Sends what must not be lost.
    fn tell(&self, event: Event) {
        let full = match self.tx.try_send(Request::Event(event)) {
            Err(mpsc::error::TrySendError::Full(request)) => request,
            // Without a daemon there are no holds.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => return,
        };
        let tx = self.tx.clone();
        tokio::spawn(async move { tx.send(full).await });
    }

    /// Says that somebody asks, at most once a second.
    pub fn looked(&self) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds since boot")]
        let second = clock::now().boottime.get() as u64;
        if self.looked_at.swap(second, Ordering::Relaxed) != second {
            self.watched();
        }
    }

    /// Says that somebody looks. Lost without harm when the daemon is busy.
    pub fn watched(&self) {
        // A full queue means that the daemon is being asked things already.
        let _ = self.tx.try_send(Request::Event(Event::Watched));
    }
}

/// A number for a connection that no other one has.
#[must_use]
pub fn next_connection() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Holds attached to a connection end when this is dropped.
#[derive(Debug)]
pub struct Attachment {
    control: Control,
    pub connection: u64,
}

impl Attachment {
    /// For a connection of its own.
    #[must_use]
    pub fn new(control: Control) -> Self {
        Self { control, connection: next_connection() }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.control.closed(self.connection);
    }
}

/// Which of the two sockets a listener is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Socket {
    /// Anyone local; changes nothing on the machine.
    Query {
        /// Where the control socket is, for the hint of a refusal.
        control: Option<PathBuf>,
    },
    /// Those who may change something.
    Control,
    /// The same, and nothing is changed over it.
    Unsafe {
        /// Why.
        refusal: Refusal,
    },
}

/// What one HTTP listener admits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; of one user half of them, and less where others have some ([`shares`]).
    pub connections: usize,
    /// Bytes of a request body.
    pub body_bytes: usize,
    /// From a connection's first byte, or the end of the answer before, to the end of the next header.
    pub header_time: Duration,
    /// From the end of the header to the end of the body.
    pub body_time: Duration,
    /// A client that reads nothing of its answer for this long is cut off.
    pub write_stall: Duration,
    /// So is one that has not read all of its answer this long after it had to be waited for.
    pub write_total: Duration,
    /// Bytes of answers that were not read yet, shared like connections.
    pub unread_bytes: usize,
    /// Event streams at once, shared like connections.
    pub streams: usize,
    /// Between two comments that keep an event stream alive.
    pub heartbeat: Duration,
    /// After a request to stop, answers in progress may take this long.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            body_bytes: 64 * 1024,
            header_time: Duration::from_secs(5),
            body_time: Duration::from_secs(10),
            write_stall: Duration::from_secs(30),
            write_total: Duration::from_secs(120),
            unread_bytes: 64 << 20,
            streams: 32,
            heartbeat: Duration::from_secs(15),
            drain: Duration::from_secs(2),
        }
    }
}
