//! What a request is refused with.

use std::fmt;

use serde::{Deserialize, Serialize};

use rooflined_core::refusal::{Code, Problem, Refusal};

/// Every error: `{"error": {…}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ErrorAnswer {
    /// What went wrong.
    pub error: ErrorBody,
}

/// What went wrong, for programs and for people.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// Stable; match on this.
    #[cfg_attr(test, schema(value_type = crate::schema::ErrorCode))]
    pub code: String,
    /// One sentence.
    pub message: String,
    /// The field of the request that is wrong.
    pub field: Option<String>,
    /// What to do next.
    pub hint: Option<String>,
    /// Every mistake in the request, the one above first; empty where there is only one.
    #[serde(default)]
    #[cfg_attr(test, schema(value_type = Vec<ErrorProblem>))]
    pub problems: Box<[ErrorProblem]>,
}

impl ErrorBody {
    /// The code, where this version knows it; a newer daemon's is in [`Self::code`] as text.
    #[must_use]
    pub fn known_code(&self) -> Option<Code> {
        Code::from_key(&self.code)
    }
}

impl fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_sentence(self.field.as_deref(), &self.message, f)
    }
}

impl From<Refusal> for ErrorBody {
    fn from(Refusal { code, message, hint, field, problems }: Refusal) -> Self {
        Self {
            code: code.key().to_owned(),
            message,
            field,
            hint: Some(hint),
            problems: problems.into_iter().map(ErrorProblem::from).collect(),
        }
    }
}

/// One of several mistakes in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ErrorProblem {
    /// One sentence.
    pub message: String,
    /// The field of the request that is wrong.
    pub field: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for ErrorProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_sentence(self.field.as_deref(), &self.message, f)
    }
}

impl From<Problem> for ErrorProblem {
    fn from(Problem { message, hint, field }: Problem) -> Self {
        Self { message, field, hint: Some(hint) }
    }
}

/// The field stands in front where the sentence does not name it.
fn write_sentence(field: Option<&str>, message: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match field {
        Some(field) if !message.contains(field) => write!(f, "{field}: {message}"),
        _ => f.write_str(message),
    }
}
