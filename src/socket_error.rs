//! Why the daemon cannot listen.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// `sun_path` without its closing zero.
pub const LONGEST_PATH: usize = 107;

/// Why the daemon cannot listen.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Another daemon serves this socket.
    #[error("{holder} already serves {path}; stop it first, or choose another directory with --socket DIR")]
    Held {
        /// Name and process number.
        holder: String,
        path: PathBuf,
    },
    /// A directory or the lock cannot be made.
    #[error("cannot make {path}: {source}; choose a directory that you may write with --socket DIR")]
    Make { path: PathBuf, source: io::Error },
    /// A private directory that is not ours: its owner could put a false socket there.
    #[error(
        "{path} {what}, so sockets in it could be replaced; remove it, or choose another with --socket DIR"
    )]
    NotPrivate { path: PathBuf, what: String },
    /// Something else has the name.
    #[error("{path} is not a socket; move it away, or choose another directory with --socket DIR")]
    Occupied { path: PathBuf },
    /// The kernel takes no longer name.
    #[error(
        "{path} is {length} bytes long and a socket's path at most {LONGEST_PATH}; choose a shorter --socket DIR"
    )]
    TooLong { path: PathBuf, length: usize },
    /// The socket cannot be made.
    #[error("cannot listen on {path}: {source}; choose another directory with --socket DIR")]
    Listen { path: PathBuf, source: io::Error },
    /// What the service manager handed over is not usable.
    #[error(
        "the service manager handed over no usable sockets: {0}; check FileDescriptorName= of the socket units"
    )]
    Activation(String),
}
