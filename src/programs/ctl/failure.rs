//! What a command ends with when it does not end well: one sentence, what to do next, and the exit code.

use std::io;

use thiserror::Error;

use answer::error::status;
use roofline::refusal::{Code, Refusal};
use wire::client::ClientError;

/// Exit codes, fixed by the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It worked.
    Ok = 0,
    /// It did not.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Nothing meets the constraints.
    Infeasible = 3,
    /// Not allowed.
    Denied = 4,
    /// Only a reboot would do it.
    RebootRequired = 5,
    /// No daemon.
    Unreachable = 69,
    /// Busy now.
    TryAgain = 75,
}

/// Why a command ends early.
#[derive(Debug, Error)]
pub enum Failure {
    /// The daemon, or the way to it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Standard output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    /// Whoever read our output has seen enough.
    #[error("the reader of the output has gone")]
    ReaderGone,
    /// The answer has been printed, and it is not a good one.
    #[error("see above")]
    Reported(Exit),
    /// The command that was run ended like this.
    #[error("the command ended with {0}")]
    Ended(u8),
    /// Anything else, in words.
    #[error("{message}")]
    Message {
        /// With which exit code.
        exit: Exit,
        message: String,
        /// What to do next.
        hint: Option<String>,
    },
}

impl Failure {
    /// A wrong command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Message { exit: Exit::Usage, message: message.into(), hint: None }
    }

    /// A command that did not work.
    pub fn failed(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Message { exit: Exit::Failed, message: message.into(), hint: Some(hint.into()) }
    }

    /// The same failure with what to do next.
    #[must_use]
    pub fn with_hint(self, text: impl Into<String>) -> Self {
        match self {
            Self::Message { exit, message, .. } => Self::Message { exit, message, hint: Some(text.into()) },
            other => other,
        }
    }

    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => exit_of(error),
            Self::Output(_) => Exit::Failed,
            Self::ReaderGone | Self::Ended(0) => Exit::Ok,
            Self::Ended(_) => Exit::Failed,
            Self::Reported(exit) | Self::Message { exit, .. } => *exit,
        }
    }

    /// The exit code as a number; that of a command that was run is its own.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Ended(code) => *code,
            other => other.exit() as u8,
        }
    }

    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Client(error) => error.hint().map(|hint| with_commands(&hint)),
            Self::Message { hint, .. } => hint.clone(),
            Self::Output(_) | Self::ReaderGone | Self::Reported(_) | Self::Ended(_) => None,
        }
    }

    /// Whether there is anything to say on standard error.
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        matches!(self, Self::ReaderGone | Self::Reported(_) | Self::Ended(_))
    }
}

/// A hint with the commands that ask for the lists which it names by their routes.
fn with_commands(hint: &str) -> String {
    ["hardware", "models", "formats"].into_iter().fold(hint.to_owned(), |hint, list| {
        let command = if list == "formats" { "formats".to_owned() } else { format!("{list} list") };
        hint.replace(&format!("GET /v1/{list} lists all"), &format!("rooflinectl {command} shows all"))
    })
}

/// A refusal of this program's own as the daemon would have sent it.
#[must_use]
pub fn refused(refusal: Refusal) -> ClientError {
    ClientError::Refused { status: status(refusal.code), body: refusal.into() }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::ReaderGone } else { Self::Output(error) }
    }
}

/// Codes decide first, because a status says less.
fn exit_of(error: &ClientError) -> Exit {
    match error {
        ClientError::Unreachable { .. } => Exit::Unreachable,
        ClientError::Denied { .. } => Exit::Denied,
        ClientError::TimedOut { .. } => Exit::TryAgain,
        ClientError::Refused { status, body } => match (body.known_code(), status) {
            (Some(Code::RebootRequired), _) => Exit::RebootRequired,
            (Some(Code::Unsatisfiable), _) => Exit::Infeasible,
            (Some(Code::ControlUnavailable), _) => Exit::Failed,
            (Some(Code::Busy | Code::Gated), _) | (_, 408 | 429 | 503) => Exit::TryAgain,
            (_, 401 | 403) => Exit::Denied,
            (_, 400 | 413 | 422) => Exit::Usage,
            _ => Exit::Failed,
        },
        ClientError::Broken(_)
        | ClientError::Unsendable { .. }
        | ClientError::Unexpected { .. }
        | ClientError::TooLarge => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ErrorBody;

    #[test]
    fn a_list_is_named_by_the_command_that_prints_it() {
        let hint = "did you mean gb10? GET /v1/hardware lists all";
        assert_eq!(with_commands(hint), "did you mean gb10? rooflinectl hardware list shows all");
        assert_eq!(with_commands("GET /v1/formats lists all"), "rooflinectl formats shows all");
        assert_eq!(with_commands("GET /v1/openapi.json lists all"), "GET /v1/openapi.json lists all");
    }

    #[test]
    fn each_refusal_has_the_exit_code_of_the_contract() {
        for (status, code, exit) in [
            (400, "invalid_dimension", Exit::Usage),
            (403, "control_disabled", Exit::Denied),
            (409, "reboot_required", Exit::RebootRequired),
            (409, "busy", Exit::TryAgain),
            (409, "unsatisfiable", Exit::Infeasible),
            (409, "not_reached", Exit::Failed),
            (403, "mode_not_allowed", Exit::Denied),
            (503, "control_unavailable", Exit::Failed),
            (409, "not_calibrated", Exit::Failed),
            (503, "not_ready", Exit::TryAgain),
            (500, "probe_failed", Exit::Failed),
            (403, "of_a_newer_daemon", Exit::Denied),
        ] {
            let body = ErrorBody { code: code.to_owned(), message: String::new(), field: None, hint: None };
            assert_eq!(exit_of(&ClientError::Refused { status, body }), exit, "{status} {code}");
        }
    }
}
