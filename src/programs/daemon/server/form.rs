//! How the answer to a question is written.

use super::command;
use super::judge::Content;
use super::members::Members;
use answer::Answer;
use roofline::refusal::Refusal;
use zbus::wire::Endian;

/// How the answer to a question is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    /// For a message of that byte order.
    Members(Endian),
}

impl Form {
    /// Writes an answer.
    ///
    /// # Errors
    /// It has what the form cannot hold.
    pub fn write(self, answer: &Answer) -> Result<Content, Refusal> {
        match self {
            Self::Json => command::encode(answer).map(Content::Json),
            Self::Members(endian) => {
                let written = Members::of(answer, endian).map(Content::Members);
                written.map_err(|error| command::unwritten(&error))
            }
        }
    }
}
