//! What a command ends with when it does not end well: one sentence, what to do next, and the exit code.

use std::io;

use thiserror::Error;

use super::options::{name_options, option_for};
use rooflined_advice::modelfile::ModelFileError;
use rooflined_api::{ErrorBody, ErrorProblem};
use rooflined_client::ClientError;
use rooflined_core::refusal::{Code, Refusal};

/// Exit codes, fixed by the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It worked.
    Ok = 0,
    /// It did not.
    Failed = 1,
    /// The command line is wrong, or a file that it names: missing, damaged or of another kind.
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
    /// The reader of our output has seen enough.
    #[error("the reader of the output has gone")]
    ReaderGone,
    /// The answer has been printed, and it is not a good one.
    #[error("see above")]
    Reported(Exit),
    /// The command that was run ended like this.
    #[error("the command ended with {0}")]
    Ended(u8),
    /// Anything else, as a sentence.
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

    /// A command that did not work now, and may in a moment.
    pub fn try_again(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Message { exit: Exit::TryAgain, message: message.into(), hint: Some(hint.into()) }
    }

    /// A file that the command line names and that cannot be used: missing, damaged or of another kind.
    pub fn wrong_file(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::usage(message).with_hint(hint)
    }

    /// A file that holds no model to be read.
    pub fn of_file(error: &ModelFileError, hint: &str) -> Self {
        Self::wrong_file(error.to_string(), hint)
    }

    /// Mistakes in a request that an option holds.
    pub fn in_option(option: &str, refusal: Refusal) -> Self {
        let status = refusal.code.status();
        let mut body = ErrorBody::from(refusal);
        put_option(option, &mut body.message, &mut body.field);
        for problem in &mut body.problems {
            put_option(option, &mut problem.message, &mut problem.field);
        }
        Self::Client(ClientError::Refused { status, body })
    }

    /// The same failure with what to do next.
    #[must_use]
    pub fn with_hint(self, text: impl Into<String>) -> Self {
        match self {
            Self::Message { exit, message, .. } => Self::Message { exit, message, hint: Some(text.into()) },
            other => other,
        }
    }

    /// The same failure, and a refused field is named by its option.
    #[must_use]
    pub fn naming_option(self) -> Self {
        match self {
            Self::Client(ClientError::Refused { status, mut body }) => {
                name_option(&mut body.message, &mut body.field, &mut body.hint);
                for problem in &mut body.problems {
                    name_option(&mut problem.message, &mut problem.field, &mut problem.hint);
                }
                Self::Client(ClientError::Refused { status, body })
            }
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

    /// Every mistake after the first, each with what to do about it.
    #[must_use]
    pub fn further_problems(&self) -> &[ErrorProblem] {
        match self {
            Self::Client(ClientError::Refused { body, .. }) => body.problems.get(1..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Client(error) => error.hint(),
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

/// Names the option that fills the field, where there is one. A sentence about a model or a file names it.
fn name_option(message: &mut String, field: &mut Option<String>, hint: &mut Option<String>) {
    *message = name_options(message);
    *hint = hint.take().map(|hint| name_options(&hint));
    if field.as_deref().is_some_and(|field| field.ends_with(".path") || field.ends_with(".model")) {
        *field = None;
    }
    match field.as_deref().and_then(option_for) {
        Some(option) if !message.contains(option) => put_option(option, message, field),
        Some(_) => *field = None,
        None => {}
    }
}

/// Puts the option in front of the sentence, which takes the field's place.
fn put_option(option: &str, message: &mut String, field: &mut Option<String>) {
    *message = format!("{option}: {message}");
    *field = None;
}

/// A refusal of this program's own as the daemon would have sent it.
#[must_use]
pub fn refused(refusal: Refusal) -> ClientError {
    ClientError::Refused { status: refusal.code.status(), body: refusal.into() }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::ReaderGone } else { Self::Output(error) }
    }
}

/// Codes decide first, because a status says less.
fn exit_of(error: &ClientError) -> Exit {
    match error {
        ClientError::Unreachable { .. } | ClientError::WithoutControl { .. } => Exit::Unreachable,
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
            (400, "unreadable_model", Exit::Usage),
            (409, "not_calibrated", Exit::Failed),
            (503, "not_ready", Exit::TryAgain),
            (500, "probe_failed", Exit::Failed),
            (403, "of_a_newer_daemon", Exit::Denied),
        ] {
            let body = ErrorBody { code: code.to_owned(), ..ErrorBody::default() };
            assert_eq!(exit_of(&ClientError::Refused { status, body }), exit, "{status} {code}");
        }
    }

    #[test]
    fn every_mistake_in_a_query_is_told_and_names_the_option() {
        let parsed = rooflined_advice::parse::parse::<rooflined_api::RecommendRequest>(
            br#"{"workload": {"model": "llama-3.1-8b", "batch": "two"}, "objectiv": "energy"}"#,
        );
        let failure = Failure::in_option("--query", parsed.unwrap_err()).naming_option();
        assert_eq!(failure.exit(), Exit::Usage);
        assert!(failure.to_string().starts_with("--query: "), "{failure}");
        let [further] = failure.further_problems() else { panic!("{failure:?}") };
        assert!(further.message.starts_with("--query: ") && further.hint.is_some(), "{further:?}");
    }
}
