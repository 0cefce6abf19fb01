//! Why a call failed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::types::ErrorBody;

/// What every call returns.
pub type Result<T> = std::result::Result<T, Error>;

/// What an error came from; [`source`](std::error::Error::source) of it.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// Why a call failed. Match on the variant and on [`code`](Error::code); messages may change their wording.
///
/// What the system or a parser said is the [`source`](std::error::Error::source), and not repeated in the message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The daemon refused, and says why.
    Refused(Refused),
    /// No daemon takes connections.
    #[non_exhaustive]
    Unreachable {
        /// Each socket's path and what became of it.
        tried: Vec<(PathBuf, String)>,
    },
    /// The socket exists and this user may not open it.
    #[non_exhaustive]
    Denied {
        /// The socket.
        path: PathBuf,
    },
    /// No complete answer in time. What would have changed something may still be carried out.
    #[non_exhaustive]
    TimedOut {
        /// What was asked.
        route: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The connection broke before the answer was complete. Whether a change was carried out is not known.
    #[non_exhaustive]
    ConnectionLost {
        /// What was asked.
        route: String,
        /// What the system said; `None` where the connection just ended.
        source: Option<Cause>,
    },
    /// What came is not what this version understands: another program behind the socket, or an answer over 64 MiB.
    #[non_exhaustive]
    Unexpected {
        /// What came.
        message: String,
        /// What is wrong with it, where a parser says so.
        source: Option<Cause>,
    },
    /// The request cannot be sent: a number that is not finite, a file that cannot be attached.
    #[non_exhaustive]
    Invalid {
        /// What is wrong with it.
        message: String,
        /// What the system said, of a file.
        source: Option<Cause>,
    },
    /// This machine or process lacks what the client needs, such as descriptors, memory, threads or a runtime. A request that had
    /// been sent before may have been carried out.
    #[non_exhaustive]
    System {
        /// What could not be done.
        message: String,
        /// What the system said.
        source: Option<Cause>,
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
            Self::Denied { path, .. } if is_control(path) => {
                "changing things is for root and members of the group rooflined: usermod -aG rooflined $USER"
            }
            Self::Denied { .. } => "look at its mode with `rooflinectl doctor`",
            Self::TimedOut { .. } => {
                "look for what keeps the daemon busy with `rooflinectl doctor`, or allow more time with `with_timeout`"
            }
            Self::ConnectionLost { .. } => "see why the daemon ended with `journalctl -u rooflined`",
            Self::Unexpected { .. } => "look at which program listens on the socket, and at its version",
            Self::System { .. } => return self.errno().and_then(remedy),
            Self::Invalid { .. } => return None,
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
            Self::System { .. } => self.errno().and_then(remedy).is_some(),
            Self::Unexpected { .. } | Self::Invalid { .. } => false,
        }
    }

    /// What the system said.
    fn errno(&self) -> Option<Errno> {
        let Self::System { source, .. } = self else { return None };
        Errno::from_io_error(source.as_deref()?.downcast_ref::<io::Error>()?)
    }

    pub(crate) fn unexpected(message: impl Into<String>) -> Self {
        Self::Unexpected { message: message.into(), source: None }
    }

    /// What a parser does not take.
    pub(crate) fn unreadable(
        message: impl Into<String>,
        why: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Unexpected { message: message.into(), source: Some(Arc::new(why)) }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), source: None }
    }

    pub(crate) fn lost(route: &str) -> Self {
        Self::ConnectionLost { route: route.to_owned(), source: None }
    }

    pub(crate) fn system(message: impl Into<String>, why: io::Error) -> Self {
        Self::System { message: message.into(), source: Some(Arc::new(why)) }
    }
}

/// What to do where something has run out that others may give back; `None` of what stays as it is.
fn remedy(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::MFILE => "close files of this process, or raise its limit with `ulimit -n`",
        Errno::NFILE => "close files, or raise the limit of the machine with `sysctl fs.file-max`",
        Errno::TOOMANYREFS => {
            "this user has sent too many open files that nobody has taken yet; try again, or raise the limit with `ulimit -n`"
        }
        Errno::NOMEM | Errno::NOBUFS => "free memory",
        Errno::NOSPC => "raise the limit with `sysctl fs.epoll.max_user_watches`",
        Errno::AGAIN => "end threads or processes of this user, or raise the limit with `ulimit -u`",
        _ => return None,
    })
}

fn is_control(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "control.sock")
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => to.write_str(&refused.message),
            Self::Unreachable { tried, .. } => {
                to.write_str("no daemon answers at ")?;
                for (index, (path, why)) in tried.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(to, "{comma}{} ({why})", path.display())?;
                }
                Ok(())
            }
            Self::Denied { path, .. } => write!(to, "{} may not be opened by this user", path.display()),
            Self::TimedOut { route, limit, .. } => {
                write!(to, "no answer to {route} within {} s", limit.as_secs_f64())
            }
            Self::ConnectionLost { route, .. } => {
                write!(to, "the connection broke before {route} was answered")
            }
            Self::Unexpected { message, .. }
            | Self::Invalid { message, .. }
            | Self::System { message, .. } => to.write_str(message),
        }?;
        self.hint().map_or(Ok(()), |hint| write!(to, "; {hint}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let (Self::ConnectionLost { source, .. }
        | Self::Unexpected { source, .. }
        | Self::Invalid { source, .. }
        | Self::System { source, .. }) = self
        else {
            return None;
        };
        source.as_deref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn what_has_run_out_is_passing_and_says_what_to_do() {
        let error = |errno: Errno| Error::system("no socket can be had", errno.into());
        for errno in [Errno::MFILE, Errno::NFILE, Errno::TOOMANYREFS, Errno::NOMEM, Errno::NOBUFS] {
            assert!(error(errno).is_passing() && error(errno).hint().is_some(), "{errno}");
        }
        for errno in [Errno::INVAL, Errno::AFNOSUPPORT, Errno::ACCESS] {
            assert!(!error(errno).is_passing() && error(errno).hint().is_none(), "{errno}");
        }
    }

    #[test]
    fn the_source_is_not_repeated_in_the_message() {
        let json = serde_json::from_str::<u8>("{").unwrap_err();
        let errors = [
            Error::system("no socket can be had", Errno::MFILE.into()),
            Error::unreadable("the answer is not understood", json),
            Error::ConnectionLost {
                route: "/x".into(),
                source: Some(Arc::new(io::Error::from(Errno::PIPE))),
            },
        ];
        for error in errors {
            let source = error.source().unwrap().to_string();
            assert!(!error.to_string().contains(&source), "{error} / {source}");
        }
        assert!(Error::lost("/x").source().is_none());
    }
}
