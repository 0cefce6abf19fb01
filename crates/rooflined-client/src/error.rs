//! Why a call failed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use rooflined_api::ErrorBody;

use crate::address::Socket;

/// Why a call failed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody takes connections at any of the places tried.
    #[error("no daemon answers at {}", tried(.failures))]
    Unreachable {
        /// Each socket file and what became of the attempt.
        failures: Vec<(PathBuf, io::Error)>,
    },
    /// The daemon answers questions, and has no socket for what changes something.
    #[error("the daemon takes no changes here: {} is not there", .path.display())]
    WithoutControl {
        /// The control socket's file.
        path: PathBuf,
    },
    /// The socket exists, but this user may not use it.
    #[error("{} may not be opened by this user", .path.display())]
    Denied {
        /// The socket file.
        path: PathBuf,
        /// Which of the two it is.
        socket: Socket,
    },
    /// No answer in time.
    #[error("no answer to {route} within {} s", .limit.as_secs_f64())]
    TimedOut {
        /// What was asked.
        route: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The daemon refused, and says why.
    #[error("{body}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What went wrong, from the daemon.
        body: ErrorBody,
    },
    /// The connection broke before the answer was complete.
    #[error("the connection to the daemon broke off")]
    Broken(#[from] hyper::Error),
    /// A request that cannot be put into HTTP.
    #[error("the request cannot be sent: {reason}")]
    Unsendable {
        /// What is wrong with it.
        reason: String,
    },
    /// The answer is not what this version expects.
    #[error("the daemon's answer is not understood: {source}")]
    Unexpected {
        /// What the parser says.
        source: serde_json::Error,
    },
    /// The answer is larger than the client takes.
    #[error("the answer is larger than {} MiB", crate::MAX_ANSWER_BYTES >> 20)]
    TooLarge,
}

impl ClientError {
    /// The error for a connection that could not be opened anywhere.
    pub(super) fn unreachable(socket: Socket, failures: Vec<(PathBuf, io::Error)>) -> Self {
        let denied = failures.iter().find(|(_, error)| error.kind() == io::ErrorKind::PermissionDenied);
        match denied {
            Some((path, _)) => Self::Denied { path: path.clone(), socket },
            None => Self::Unreachable { failures },
        }
    }

    /// What to do next; `None` where nothing general can be said.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Unreachable { failures } if is_address(failures) => {
                "a socket is a file of this machine: name its directory; a daemon of another one answers with --ssh HOST"
            }
            Self::Unreachable { failures } if stale(failures) => {
                "the daemon that made this socket has ended; start it again with: rooflined serve"
            }
            Self::Unreachable { .. } => {
                "start the daemon with: systemctl start rooflined, or by hand: rooflined serve; \
                 name its directory with --socket"
            }
            Self::WithoutControl { .. } => "to see what is missing, run: rooflinectl doctor",
            Self::Denied { socket: Socket::Control, .. } => {
                "changes are for root and the group rooflined: sudo usermod -aG rooflined $USER, then log in again; \
                 they are off until enabled = true stands under [control] in /etc/rooflined/conf.d/control.toml"
            }
            Self::Denied { socket: Socket::Query, .. } => "look at its mode with: rooflinectl doctor",
            Self::TimedOut { .. } => {
                "look for what keeps the daemon busy with: rooflinectl doctor, or raise --timeout"
            }
            Self::Refused { body, .. } => return body.hint.clone(),
            Self::Broken(_) => "look at why the daemon ended with: journalctl -u rooflined",
            Self::Unexpected { .. } => "compare the versions: rooflined --version, rooflinectl --version",
            Self::TooLarge => "ask for fewer combinations at once",
            Self::Unsendable { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

/// True if the address of a server on the network was named.
fn is_address(failures: &[(PathBuf, io::Error)]) -> bool {
    let is = |path: &PathBuf| {
        path.to_str().is_some_and(|path| path.contains("://") || path.starts_with("localhost:"))
    };
    failures.iter().any(|(path, _)| is(path))
}

/// True if a socket file is there but nobody listens on it.
fn stale(failures: &[(PathBuf, io::Error)]) -> bool {
    failures.iter().any(|(_, error)| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn tried(failures: &[(PathBuf, io::Error)]) -> String {
    let each = failures.iter().map(|(path, error)| match error.kind() {
        io::ErrorKind::NotFound => format!("{} (not there)", path.display()),
        io::ErrorKind::ConnectionRefused => format!("{} (nobody listens)", path.display()),
        io::ErrorKind::TimedOut => format!("{} (takes no connection)", path.display()),
        io::ErrorKind::NotADirectory => format!("{} (a file is in its place)", path.display()),
        _ => format!("{} ({error})", path.display()),
    });
    each.collect::<Vec<_>>().join(", ")
}
