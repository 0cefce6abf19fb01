//! Why a call failed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::types::ErrorBody;

/// What every call returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. Match on the variant and on [`code`](Error::code); messages may change their wording.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The daemon refused, and says why.
    Refused(Refused),
    /// No daemon takes connections.
    Unreachable {
        /// Each socket's path and what became of it.
        tried: Vec<(PathBuf, String)>,
    },
    /// The socket exists and this user may not open it.
    Denied {
        /// The socket.
        path: PathBuf,
    },
    /// No complete answer in time. What would have changed something may still be carried out.
    TimedOut {
        /// What was asked.
        route: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The connection broke before the answer was complete. Whether a change was carried out is not known.
    ConnectionLost {
        /// What was asked.
        route: String,
    },
    /// What came is not what this version understands: another program behind the socket, or an answer over 64 MiB.
    Unexpected {
        /// What came.
        message: String,
    },
    /// The request cannot be sent: a number that is not finite, a file that cannot be attached.
    Invalid {
        /// What is wrong with it.
        message: String,
    },
    /// This machine lacks what the client needs, threads or descriptors for instance.
    System {
        /// What the system said.
        message: String,
    },
}

/// The daemon's own words. Dereferences to them: `refused.code`, `refused.message`, `refused.field`, `refused.hint`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Refused {
    /// The status of HTTP; 200 where a report was read and not accepted.
    pub status: u16,
    /// What went wrong; `code` is stable.
    pub body: ErrorBody,
}

impl std::ops::Deref for Refused {
    type Target = ErrorBody;

    fn deref(&self) -> &ErrorBody {
        &self.body
    }
}

impl Error {
    /// A stable name: `unreachable`, `denied`, `timed_out`, `connection_lost`, `unexpected`, `invalid`, `system`, or what the
    /// daemon calls it.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(refused) => &refused.code,
            Self::Unreachable { .. } => "unreachable",
            Self::Denied { .. } => "denied",
            Self::TimedOut { .. } => "timed_out",
            Self::ConnectionLost { .. } => "connection_lost",
            Self::Unexpected { .. } => "unexpected",
            Self::Invalid { .. } => "invalid",
            Self::System { .. } => "system",
        }
    }

    /// What to do next; `None` where nothing general can be said.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        Some(match self {
            Self::Refused(refused) => return refused.hint.as_deref(),
            Self::Unreachable { .. } => {
                "start one with `systemctl start rooflined`, or by hand with `rooflined`; name the directory of its sockets \
                 with ROOFLINED_SOCKET or Client::at"
            }
            Self::Denied { path } if is_control(path) => {
                "changing things is for root and members of the group rooflined: usermod -aG rooflined $USER"
            }
            Self::Denied { .. } => "look at its mode with `rooflinectl doctor`",
            Self::TimedOut { .. } => {
                "look for what keeps the daemon busy with `rooflinectl doctor`, or allow more time with `with_timeout`"
            }
            Self::ConnectionLost { .. } => "see why the daemon ended with `journalctl -u rooflined`",
            Self::Unexpected { .. } => "look at which program listens on the socket, and at its version",
            Self::Invalid { .. } | Self::System { .. } => return None,
        })
    }

    /// Whether the same request may succeed a little later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            // While a daemon starts, its socket exists before everybody may open it.
            Self::Unreachable { .. }
            | Self::Denied { .. }
            | Self::TimedOut { .. }
            | Self::ConnectionLost { .. } => true,
            Self::Refused(refused) => refused.status == 503 || refused.code == "busy",
            Self::Unexpected { .. } | Self::Invalid { .. } | Self::System { .. } => false,
        }
    }

    pub(crate) fn unexpected(message: impl Into<String>) -> Self {
        Self::Unexpected { message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into() }
    }
}

fn is_control(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "control.sock")
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => to.write_str(&refused.message),
            Self::Unreachable { tried } => {
                to.write_str("no daemon answers at ")?;
                for (index, (path, why)) in tried.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(to, "{comma}{} ({why})", path.display())?;
                }
                Ok(())
            }
            Self::Denied { path } => write!(to, "{} may not be opened by this user", path.display()),
            Self::TimedOut { route, limit } => {
                write!(to, "no answer to {route} within {} s", limit.as_secs_f64())
            }
            Self::ConnectionLost { route } => write!(to, "the connection broke before {route} was answered"),
            Self::Unexpected { message } | Self::Invalid { message } | Self::System { message } => {
                to.write_str(message)
            }
        }?;
        self.hint().map_or(Ok(()), |hint| write!(to, "; {hint}"))
    }
}

impl std::error::Error for Error {}
